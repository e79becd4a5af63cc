"""Sources of liftbridge.scan: tables, Arrow arrays, offsets, lists and bytes, none copied."""

import array

import numpy as np
import pyarrow as pa
import pytest

from wirescan import Fault, kafka, liftbridge, nats
from wirescan.core.loop import HEAD, lie_inside
from wirescan.liftbridge import payload_sources
from wirescan.liftbridge.payload_sources import open_payload_source

VALUES = [b"a", None, b"", b"twelve bytes", b"thirteen byte", None, b"x" * 5000, b"end"]
BYTES = [value or b"" for value in VALUES]
KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]
CAPTURE = (
    b"INFO {}\r\nPUB one 3\r\nabc\r\nPING\r\nMSG two 1 0\r\n\r\n"
    b"HPUB three reply 12 16\r\nNATS/1.0\r\n\r\n"
    b"data\r\n+OK\r\nHMSG four 9 12 12\r\nNATS/1.0\r\n\r\n\r\n-ERR 'no'\r\n"
)


def list_payloads(source):
    """Return the payloads in the spans of a source; check the columns of the spans."""
    buffers, spans, outer = open_payload_source(source)
    assert spans.dtype == HEAD
    assert isinstance(buffers, tuple)
    assert lie_inside(spans, buffers)
    assert not spans["body"].any()
    assert not spans["kind"].any()
    if outer is None:
        assert (spans["parent"] == -1).all()
        assert not spans["fault"].any()
    columns = (spans[name].tolist() for name in ("buffer", "start", "size"))
    return [bytes(buffers[buffer][start : start + size]) for buffer, start, size in zip(*columns)]


def find_address(view):
    return np.frombuffer(view, np.uint8).ctypes.data


# ---- tables


def test_payloads_of_a_table():
    table = nats.scan(CAPTURE)
    assert list_payloads(table) == [b"abc", b"", b"data", b""]
    buffers, spans, outer = open_payload_source(table)
    assert outer is table
    assert buffers is table.buffers
    assert spans["parent"].tolist() == [1, 3, 4, 6]
    assert not spans["fault"].any()
    assert list_payloads(table.where(table["kind"] == nats.Kind.MSG)) == [b""]
    assert list_payloads(table[:1]) == list_payloads(nats.scan(b"")) == []


def test_a_bad_row_is_a_span_with_its_fault():
    raw = b"PUB a 2\r\nok\r\nSUB a\r\nPUB b 1\r\nx\r\nPUB c 5\r\nshort"
    table = nats.scan(raw + b" of CRLF\r\n", errors="mark")
    buffers, spans, _ = open_payload_source(table)
    assert spans["fault"].tolist() == [0, Fault.BAD_COUNT, 0, *table["fault"][3:].tolist()]
    assert table["fault"][3]
    bad = spans["fault"] != 0
    good = [bytes(buffers[0][span["start"] : span["start"] + span["size"]]) for span in spans[~bad]]
    assert good == [b"ok", b"x"]
    for name in ("start", "size", "buffer"):
        assert spans[name][bad].tolist() == table[name][table.bad].tolist()
    assert spans["parent"].tolist() == list(range(len(table)))


def test_other_tables_are_refused():
    for table in (kafka.scan(b""), nats.headers(nats.scan(CAPTURE))):
        with pytest.raises(TypeError, match=f"not of {table.name}"):
            open_payload_source(table)


# ---- Arrow


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_slices_of_arrow_arrays_are_payloads(kind):
    whole = pa.array(VALUES, kind)
    assert list_payloads(whole) == BYTES
    for first in range(len(VALUES) + 1):
        for count in range(len(VALUES) + 1 - first):
            assert list_payloads(whole.slice(first, count)) == BYTES[first : first + count]
    chunks = pa.chunked_array([whole[2:], whole[:0], whole[1:5]])
    assert list_payloads(chunks) == BYTES[2:] + BYTES[1:5]
    for empty in (pa.chunked_array([], kind), whole[:0], pa.array([], kind)):
        assert list_payloads(empty) == []
    assert list_payloads(pa.array([None, None], kind)) == [b"", b""]
    long = pa.array([b"%d" % i if i % 3 else None for i in range(100)], kind)[9:]
    assert list_payloads(long) == [b"%d" % i if i % 3 else b"" for i in range(9, 100)]


def test_arrays_of_fixed_width_and_of_nulls():
    fixed = pa.array([b"abc", None, b"def", b"ghi"], pa.binary(3))
    assert list_payloads(fixed) == [b"abc", b"", b"def", b"ghi"]
    assert list_payloads(fixed[1:3]) == [b"", b"def"]
    assert list_payloads(pa.array([b"", b""], pa.binary(0))) == [b"", b""]
    assert list_payloads(pa.nulls(2)) == list_payloads(pa.array([None, None])) == [b"", b""]
    assert list_payloads(pa.array([])) == []


@pytest.mark.parametrize("kind", [*KINDS, pa.binary(5000)], ids=str)
def test_arrays_are_not_copied(kind):
    whole = pa.array([b"y" * 5000, b"x" * 5000], kind)
    buffers, spans, _ = open_payload_source(whole[1:])
    place = find_address(buffers[spans["buffer"][0]]) + int(spans["start"][0])
    buffer = whole.buffers()[-1]
    assert buffer.address <= place <= buffer.address + buffer.size - 5000
    del whole, buffer
    # The buffers keep the array alive.
    assert bytes(buffers[spans["buffer"][0]])[-5000:] == b"x" * 5000


class Exported:
    """An object with the Arrow C data interface only."""

    def __init__(self, array):
        self._array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self._array.__arrow_c_array__(requested_schema)


class Streamed:
    def __init__(self, array):
        self._array = array

    def __arrow_c_stream__(self, requested_schema=None):
        return self._array.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_c_data_interface(kind):
    whole = pa.array(VALUES, kind)
    assert list_payloads(Exported(whole[1:])) == BYTES[1:]
    assert list_payloads(Streamed(pa.chunked_array([whole, whole[3:]]))) == BYTES + BYTES[3:]


@pytest.mark.parametrize(
    "source",
    [
        pa.array(["text"]),
        pa.array([1]),
        pa.array([], pa.int8()),
        pa.array([b"a"]).dictionary_encode(),
        pa.array([[b"a"]]),
        pa.table({"value": [b"a"]}),
        pa.record_batch({"value": [b"a"]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_of_arrow_are_refused(source):
    with pytest.raises(TypeError, match="payloads in Arrow are"):
        open_payload_source(source)


def forge_array(kind, *buffers, count=1):
    """Return an array of any buffers; pyarrow does not validate them."""
    return pa.Array.from_buffers(kind, count, [None, *(pa.py_buffer(part) for part in buffers)])


@pytest.mark.parametrize(
    "offsets", [[0, 9], [-1, 2], [2, 1, 2], [0, 9, 2], [3, 2], [-5, -2], [5, 6]]
)
@pytest.mark.parametrize(
    "kind, width", [(pa.binary(), np.int32), (pa.large_binary(), np.int64)], ids=str
)
def test_forged_offsets_are_refused(kind, width, offsets):
    with pytest.raises(ValueError, match="offset"):
        open_payload_source(
            forge_array(kind, np.array(offsets, width), b"four", count=len(offsets) - 1)
        )
    with pytest.raises(ValueError, match="its offsets .* are not in order in 4 bytes"):
        open_payload_source((b"four", offsets))


@pytest.mark.parametrize(
    "view",
    [
        [13, 0, 0, 0],
        [14, 0, 1, 0],
        [14, 0, -1, 0],
        [14, 0, 0, -1],
        [-1, 0, 0, 0],
        [2**31 - 1, 0, 0, 2**31 - 1],
    ],
)
def test_forged_views_are_refused(view):
    with pytest.raises(ValueError, match="points outside the buffers"):
        open_payload_source(
            forge_array(pa.binary_view(), np.array(view, np.int32), b"twelve bytes")
        )
    buffers = [pa.py_buffer(b"\0"), pa.py_buffer(np.array(view, np.int32))]
    null = pa.Array.from_buffers(pa.binary_view(), 1, buffers)
    assert list_payloads(null) == [b""]


def test_too_many_buffers_are_refused(monkeypatch):
    assert np.iinfo(HEAD["buffer"]).max + 1 == payload_sources.MAX_BUFFERS
    monkeypatch.setattr(payload_sources, "MAX_BUFFERS", 100)
    chunk = pa.array([b"a"])
    assert list_payloads(pa.chunked_array([chunk] * 100)) == [b"a"] * 100
    with pytest.raises(ValueError, match="at most 100 buffers"):
        open_payload_source(pa.chunked_array([chunk] * 101))


# ---- offsets, lists and bytes


@pytest.mark.parametrize(
    "offsets",
    [
        [2, 3, 3, 8],
        range(2, 9, 2),
        np.array([2, 3, 8], np.uint8),
        np.array([2, 3, 8], np.uint64),
        np.array([2, 5, 9], ">i2")[::-1][::-1],
        pa.array([2, 3]),
        array.array("q", [2, 8]),
        [4],
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, pa.py_buffer, lambda raw: np.frombuffer(raw, np.uint8)]
)
def test_offsets_divide_bytes_into_payloads(kind, offsets):
    raw = b"0123456789"
    if isinstance(offsets, np.ndarray) and offsets.dtype == np.uint8:
        assert list_payloads((kind(raw), offsets)) == [raw, bytes(offsets)]  # both are payloads
        return
    ends = np.asarray(offsets).tolist()
    payloads = [raw[start:stop] for start, stop in zip(ends, ends[1:])]
    assert list_payloads((kind(raw), offsets)) == payloads


def test_bytes_with_offsets_are_not_copied():
    raw = b"0123456789"
    buffers, spans, outer = open_payload_source((raw, [0, 4, 10]))
    assert outer is None
    assert find_address(buffers[0]) == find_address(raw)
    with pytest.raises(ValueError, match="the offsets are empty"):
        open_payload_source((raw, []))
    for start, stop in ((0, 2**64 - 1), (2**63, 2**64 - 1)):
        with pytest.raises(ValueError, match="not in order"):
            open_payload_source((raw, np.array([start, stop], np.uint64)))
    with pytest.raises(ValueError, match="not in order"):
        open_payload_source((raw, [0, 2**63 - 1, -2, 5]))  # the differences wrap


@pytest.mark.parametrize(
    "offsets", [[0.0, 2.0], [[0, 2]], 7, "text", [True, False], pa.array([0, None]), [0, 1 << 64]]
)
def test_bad_types_of_offsets_are_refused(offsets):
    with pytest.raises(TypeError, match="a pair is"):
        open_payload_source((b"data", offsets))


def test_lists_of_bytes_are_payloads():
    mixed = [
        b"one",
        None,
        bytearray(b"two"),
        memoryview(b"-three-")[1:-1],
        b"",
        np.frombuffer(b"four", np.uint8),
    ]
    payloads = [b"one", b"", b"two", b"three", b"", b"four"]
    assert list_payloads(mixed) == payloads
    assert list_payloads(tuple(mixed)) == payloads
    assert list_payloads([]) == list_payloads(()) == []
    assert list_payloads((b"a", b"b")) == [b"a", b"b"]
    assert list_payloads((b"a", None)) == [b"a", b""]
    assert len(open_payload_source(mixed)[0]) == 1


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, pa.py_buffer, lambda raw: np.frombuffer(raw, np.uint8)]
)
def test_bytes_are_one_payload(kind):
    assert list_payloads(kind(b"payload")) == [b"payload"]
    assert list_payloads(kind(b"")) == [b""]
    raw = kind(b"payload")
    assert find_address(open_payload_source(raw)[0][0]) == find_address(raw)


def test_payloads_of_2_gib_are_refused():
    huge = np.zeros(1 << 31, np.uint8)  # never written, so it takes no memory
    array = forge_array(pa.large_binary(), np.array([0, 1 << 31]), huge)
    for source in (huge, (huge, [0, 1 << 31]), array):
        with pytest.raises(ValueError, match="or are 2 GiB apart"):
            liftbridge.scan(source)


@pytest.mark.parametrize(
    "source",
    [
        "capture.nats",
        5,
        None,
        {b"a"},
        iter([b"a"]),
        object(),
        [b"a", "b"],
        ["a"],
        (b"a", b"b", 3),
        np.array([1, 2]),
        np.array([b"a", b"bc"]),
        np.array([b"a", None]),
        array.array("i", [1]),
        np.zeros(4, np.uint8)[::2],
        [[b"a"]],
        open,
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_sources_are_refused(source):
    with pytest.raises(TypeError, match="payloads are a table of|not contiguous"):
        open_payload_source(source)


def test_a_path_is_refused_with_advice():
    with pytest.raises(TypeError, match=r"nats\.scan.*not str"):
        open_payload_source("/captures/one.nats")
