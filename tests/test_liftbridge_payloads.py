"""What liftbridge.scan takes: payloads in tables, Arrow arrays, offsets, lists and bytes, found where they lie."""
import array

import numpy as np
import pyarrow as pa
import pytest

from wirescan import Fault, kafka, liftbridge, nats
from wirescan.core.loop import HEAD, lie_inside
from wirescan.liftbridge import payloads
from wirescan.liftbridge.payloads import places

VALUES = [b"a", None, b"", b"twelve bytes", b"thirteen byte", None, b"x" * 5000, b"end"]
BYTES = [value or b"" for value in VALUES]
KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]
CAPTURE = (b"INFO {}\r\nPUB one 3\r\nabc\r\nPING\r\nMSG two 1 0\r\n\r\nHPUB three reply 12 16\r\nNATS/1.0\r\n\r\n"
           b"data\r\n+OK\r\nHMSG four 9 12 12\r\nNATS/1.0\r\n\r\n\r\n-ERR 'no'\r\n")


def found(source):
    """The payloads, out of the spans; what holds for every source is looked at."""
    buffers, spans, outer = places(source)
    assert spans.dtype == HEAD and isinstance(buffers, tuple) and lie_inside(spans, buffers)
    assert not spans["body"].any() and not spans["kind"].any()
    if outer is None:
        assert (spans["parent"] == -1).all() and not spans["fault"].any()
    columns = (spans[name].tolist() for name in ("buffer", "start", "size"))
    return [bytes(buffers[buffer][start:start + size]) for buffer, start, size in zip(*columns)]


def address(view):
    return np.frombuffer(view, np.uint8).ctypes.data


# ---------------------------------------------------------------------------- tables

def test_payloads_of_a_table():
    table = nats.scan(CAPTURE)
    assert found(table) == [b"abc", b"", b"data", b""]
    buffers, spans, outer = places(table)
    assert outer is table and buffers is table.buffers
    assert spans["parent"].tolist() == [1, 3, 4, 6] and not spans["fault"].any()
    assert found(table.where(table["kind"] == nats.Kind.MSG)) == [b""]
    assert found(table[:1]) == found(nats.scan(b"")) == []


def test_a_bad_row_is_a_span_with_its_fault():
    raw = b"PUB a 2\r\nok\r\nHPUB a 9 3\r\nabc\r\nPUB b 1\r\nx\r\nPUB c 5\r\nshort"
    table = nats.scan(raw + b" of CRLF\r\n", errors="mark")
    buffers, spans, _ = places(table)
    assert spans["fault"].tolist() == [0, Fault.BAD_HEADER, 0, *table["fault"][3:].tolist()] and table["fault"][3]
    bad = spans["fault"] != 0
    assert [bytes(buffers[0][one["start"]:one["start"] + one["size"]]) for one in spans[~bad]] == [b"ok", b"x"]
    for name in ("start", "size", "buffer"):
        assert spans[name][bad].tolist() == table[name][table.bad].tolist()
    assert spans["parent"].tolist() == list(range(len(table)))


def test_other_tables_are_refused():
    for table in (kafka.scan(b""), nats.headers(nats.scan(CAPTURE))):
        with pytest.raises(TypeError, match=f"not of {table.name}"):
            places(table)


# ---------------------------------------------------------------------------- Arrow

@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_arrow_arrays(kind):
    whole = pa.array(VALUES, kind)
    assert found(whole) == BYTES
    for first in range(len(VALUES) + 1):
        for count in range(len(VALUES) + 1 - first):
            assert found(whole.slice(first, count)) == BYTES[first:first + count]
    chunks = pa.chunked_array([whole[2:], whole[:0], whole[1:5]])
    assert found(chunks) == BYTES[2:] + BYTES[1:5]
    assert found(pa.chunked_array([], kind)) == found(whole[:0]) == found(pa.array([], kind)) == []
    assert found(pa.array([None, None], kind)) == [b"", b""]
    long = pa.array([b"%d" % i if i % 3 else None for i in range(100)], kind)[9:]
    assert found(long) == [b"%d" % i if i % 3 else b"" for i in range(9, 100)]


def test_arrays_of_fixed_width_and_of_nothing():
    fixed = pa.array([b"abc", None, b"def", b"ghi"], pa.binary(3))
    assert found(fixed) == [b"abc", b"", b"def", b"ghi"] and found(fixed[1:3]) == [b"", b"def"]
    assert found(pa.array([b"", b""], pa.binary(0))) == [b"", b""]
    assert found(pa.nulls(2)) == found(pa.array([None, None])) == [b"", b""] and found(pa.array([])) == []


@pytest.mark.parametrize("kind", [*KINDS, pa.binary(5000)], ids=str)
def test_nothing_of_an_array_is_copied(kind):
    whole = pa.array([b"y" * 5000, b"x" * 5000], kind)
    buffers, spans, _ = places(whole[1:])
    place = address(buffers[spans["buffer"][0]]) + int(spans["start"][0])
    held = whole.buffers()[-1]
    assert held.address <= place <= held.address + held.size - 5000
    del whole, held
    assert bytes(buffers[spans["buffer"][0]])[-5000:] == b"x" * 5000        # it is held


class Exported:
    """Nothing but the Arrow C data interface."""
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
    assert found(Exported(whole[1:])) == BYTES[1:]
    assert found(Streamed(pa.chunked_array([whole, whole[3:]]))) == BYTES + BYTES[3:]


@pytest.mark.parametrize("source", [
    pa.array(["text"]), pa.array([1]), pa.array([], pa.int8()), pa.array([b"a"]).dictionary_encode(),
    pa.array([[b"a"]]), pa.table({"value": [b"a"]}), pa.record_batch({"value": [b"a"]})],
    ids=lambda one: type(one).__name__)
def test_other_types_of_arrow_are_refused(source):
    with pytest.raises(TypeError, match="payloads in Arrow are"):
        places(source)


def forged(kind, *buffers, count=1):
    """An array that says what it likes: pyarrow does not look inside."""
    return pa.Array.from_buffers(kind, count, [None, *(pa.py_buffer(part) for part in buffers)])


@pytest.mark.parametrize("offsets", [[0, 9], [-1, 2], [2, 1, 2], [0, 9, 2], [3, 2], [-5, -2], [5, 6]])
@pytest.mark.parametrize("kind, width", [(pa.binary(), np.int32), (pa.large_binary(), np.int64)], ids=str)
def test_forged_offsets(kind, width, offsets):
    with pytest.raises(ValueError):
        places(forged(kind, np.array(offsets, width), b"four", count=len(offsets) - 1))
    with pytest.raises(ValueError):
        places((b"four", offsets))


@pytest.mark.parametrize("view", [[13, 0, 0, 0], [14, 0, 1, 0], [14, 0, -1, 0], [14, 0, 0, -1], [-1, 0, 0, 0],
                                  [2**31 - 1, 0, 0, 2**31 - 1]])
def test_forged_views(view):
    with pytest.raises(ValueError):
        places(forged(pa.binary_view(), np.array(view, np.int32), b"twelve bytes"))
    null = pa.Array.from_buffers(pa.binary_view(), 1, [pa.py_buffer(b"\0"), pa.py_buffer(np.array(view, np.int32))])
    assert found(null) == [b""]


def test_too_many_buffers(monkeypatch):
    assert payloads.MOST == np.iinfo(HEAD["buffer"]).max + 1
    monkeypatch.setattr(payloads, "MOST", 100)
    one = pa.array([b"a"])
    assert found(pa.chunked_array([one] * 100)) == [b"a"] * 100
    with pytest.raises(ValueError, match="at most 100 buffers"):
        places(pa.chunked_array([one] * 101))


# ---------------------------------------------------------------------------- offsets, lists and bytes

@pytest.mark.parametrize("offsets", [
    [2, 3, 3, 8], range(2, 9, 2), np.array([2, 3, 8], np.uint8), np.array([2, 3, 8], np.uint64),
    np.array([2, 5, 9], ">i2")[::-1][::-1], pa.array([2, 3]), array.array("q", [2, 8]), [4]],
    ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer, lambda raw: np.frombuffer(raw, np.uint8)])
def test_offsets(kind, offsets):
    raw = b"0123456789"
    if isinstance(offsets, np.ndarray) and offsets.dtype == np.uint8:
        assert found((kind(raw), offsets)) == [raw, bytes(offsets)]         # bytes are a payload
        return
    ends = np.asarray(offsets).tolist()
    assert found((kind(raw), offsets)) == [raw[start:stop] for start, stop in zip(ends, ends[1:])]


def test_offsets_are_not_copied_into():
    raw = b"0123456789"
    buffers, spans, outer = places((raw, [0, 4, 10]))
    assert outer is None and address(buffers[0]) == address(raw)
    with pytest.raises(ValueError, match="here is none"):
        places((raw, []))
    for start, stop in ((0, 2**64 - 1), (2**63, 2**64 - 1)):
        with pytest.raises(ValueError, match="not in order"):
            places((raw, np.array([start, stop], np.uint64)))
    with pytest.raises(ValueError, match="not in order"):
        places((raw, [0, 2**63 - 1, -2, 5]))            # the differences wrap


@pytest.mark.parametrize("offsets", [[0.0, 2.0], [[0, 2]], 7, "text", [True, False], pa.array([0, None]), [0, 1 << 64]])
def test_what_is_no_array_of_offsets(offsets):
    with pytest.raises(TypeError):
        places((b"data", offsets))


def test_lists():
    mixed = [b"one", None, bytearray(b"two"), memoryview(b"-three-")[1:-1], b"", np.frombuffer(b"four", np.uint8)]
    assert found(mixed) == found(tuple(mixed)) == [b"one", b"", b"two", b"three", b"", b"four"]
    assert found([]) == found(()) == [] and found((b"a", b"b")) == [b"a", b"b"] and found((b"a", None)) == [b"a", b""]
    assert len(places(mixed)[0]) == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer, lambda raw: np.frombuffer(raw, np.uint8)])
def test_one_payload(kind):
    assert found(kind(b"payload")) == [b"payload"] and found(kind(b"")) == [b""]
    raw = kind(b"payload")
    assert address(places(raw)[0][0]) == address(raw)


def test_what_is_longer_than_a_row_can_say():
    huge = np.zeros(1 << 31, np.uint8)                  # of pages that nobody touches
    array = forged(pa.large_binary(), np.array([0, 1 << 31]), huge)
    for source in (huge, (huge, [0, 1 << 31]), array):
        with pytest.raises(ValueError):
            liftbridge.scan(source)


@pytest.mark.parametrize("source", [
    "capture.nats", 5, None, {b"a"}, iter([b"a"]), object(), [b"a", "b"], ["a"], (b"a", b"b", 3), np.array([1, 2]),
    np.array([b"a", b"bc"]), np.array([b"a", None]), array.array("i", [1]), np.zeros(4, np.uint8)[::2],
    [[b"a"]], open], ids=lambda value: type(value).__name__)
def test_other_sources_are_refused(source):
    with pytest.raises(TypeError):
        places(source)


def test_a_path_is_told_what_to_do():
    with pytest.raises(TypeError, match=r"nats\.scan.*not str"):
        places("/captures/one.nats")
