"""Encoding from arrays: byte for byte what the encoders of Python records write, out of every kind of array."""
import gc
import mmap
import zlib

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard import Guarded
from strategies import kafka as strategies
from wirescan import kafka
from wirescan.core.strings import ByteStrings
from wirescan.kafka import (
    Record, encode_batch, encode_batches, encode_message_set, encode_message_sets, partition_of)
from wirescan.kafka.partitioner import murmur2
from wirescan.table import FrameTable

quiet = settings(max_examples=150, deadline=None)
HEAD = 61                                       # bytes before the records of a batch
STRINGS = [b"a", None, b"", b"x" * 50, b"ends in zeros\0\0", b"exactly 12 b", b"thirteen byte", None, bytes(3)]
PLAIN = [b"a", b"", b"x" * 50, b"exactly 12 b"]  # what numpy's S can hold


def consecutive(rows, first):
    return [row._replace(offset=first + i) for i, row in enumerate(rows)]


def columns(rows):
    """The arguments that stand for records."""
    pairs = [pair for row in rows for pair in row.headers]
    return dict(values=[row.value for row in rows], keys=[row.key for row in rows],
                timestamps=np.array([row.timestamp for row in rows], np.int64),
                headers=([len(row.headers) for row in rows], [key for key, _ in pairs], [value for _, value in pairs]))


def table_of(raw):
    return kafka.records(kafka.scan(raw))


def read(raw):
    """[Record] of everything in raw, as wirescan reads it."""
    def owned(view):
        return None if view is None else bytes(view)
    return [Record(row.offset, row.timestamp, owned(row.key), owned(row.value),
                   tuple((owned(key), owned(value)) for key, value in row.headers)) for row in table_of(raw)]


def cuts(raw):
    """(first, end) of the records of each batch."""
    ends = np.cumsum(kafka.scan(raw)["record_count"]).tolist()
    return list(zip([0, *ends], ends))


# -------------------------------------------------------------------------------------------- the same bytes

@quiet
@given(strategies.records(most=12), st.integers(-2**63, 2**63 - 13), st.sampled_from((1, 100, 300, 9000, 1 << 20)),
       st.sampled_from(("none", "none", *strategies.BATCH_CODECS)), st.sampled_from(("create", "append")),
       st.sampled_from((-1, 0, 2**31 - 3)) | st.integers(0, 2**31 - 1), st.booleans())
def test_batches_are_those_of_encode_batch(rows, first, most, codec, timestamp_type, sequence, transactional):
    rows = consecutive(rows, first)
    options = dict(codec=codec, timestamp_type=timestamp_type, leader_epoch=7, producer_id=2**40, producer_epoch=3,
                   transactional=transactional)
    raw = encode_batches(**columns(rows), base_offset=first, batch_bytes=most, base_sequence=sequence, **options)
    assert raw.readonly and raw.format == "B"
    parts, wanted = cuts(raw), b""
    for start, end in parts:
        follows = -1 if sequence < 0 else (sequence + start) % 2**31
        wanted += encode_batch(rows[start:end], base_sequence=follows, **options)
    assert raw == wanted
    for start, end in parts:            # no batch is too large, and none could take the next record
        assert end - start == 1 or len(encode_batch(rows[start:end])) <= most
        assert end == len(rows) or len(encode_batch(rows[start:end + 1])) > most


@quiet
@given(strategies.records(most=8, headed=False), st.integers(0, 2**62), st.sampled_from((1, 150, 9000, 1 << 20)),
       st.sampled_from([(magic, codec) for magic, codecs in strategies.MESSAGE_CODECS.items() for codec in codecs]),
       st.sampled_from(("create", "append")))
def test_message_sets_are_those_of_encode_message_set(rows, first, most, kind, timestamp_type):
    magic, codec = kind
    rows = consecutive(rows, first)
    options = dict(magic=magic, codec=codec, timestamp_type=timestamp_type if magic else "create")
    given = dict(values=[row.value for row in rows], keys=[row.key for row in rows])
    if magic:
        given |= dict(timestamps=np.array([row.timestamp for row in rows], np.int64))
    else:
        rows = [row._replace(timestamp=-1) for row in rows]
    raw = encode_message_sets(**given, base_offset=first, batch_bytes=most, **options)
    if codec == "none" or not rows:
        assert raw == encode_message_set(rows, **options | dict(codec="none"))
        return
    ends = (kafka.scan(raw)["base_offset"] - first + 1).tolist()
    parts, overhead = list(zip([0, *ends], ends)), 34 if magic else 26
    assert raw == b"".join(encode_message_set(rows[start:end], **options) for start, end in parts)
    for start, end in parts:
        assert end - start == 1 or overhead + len(encode_message_set(rows[start:end], magic=magic)) <= most
        assert end == len(rows) or overhead + len(encode_message_set(rows[start:end + 1], magic=magic)) > most


@pytest.mark.parametrize("codec", strategies.BATCH_CODECS)
def test_read_back(codec):
    rows = [Record(40 + i, 1_700_000_000_000 + 37 * i, b"key-%d" % (i % 7) if i % 5 else None, b"%d" % i * (i % 60),
                   ((b"a", b"%d" % i), (b"", None)) if i % 3 == 0 else ()) for i in range(3000)]
    raw = encode_batches(**columns(rows), base_offset=40, batch_bytes=5000, codec=codec)
    assert read(raw) == rows and len(cuts(raw)) > 20
    level = {"gzip": 9, "zstd": 19}.get(codec)
    assert read(encode_batches(**columns(rows), base_offset=40, codec=codec, level=level)) == rows


@pytest.mark.parametrize("size", [
    63, 64, 8191, 8192, (1 << 20) - 1, 1 << 20, pytest.param((1 << 27) - 1, marks=pytest.mark.slow), 1 << 27])
def test_varints_of_every_length(size):
    """Sizes, and deltas of timestamps, at which a varint grows by a byte."""
    value = bytes(size)
    rows = [Record(0, 0), Record(1, size, None, memoryview(value))]
    assert encode_batches([None, value], timestamps=[0, size], batch_bytes=2**31 - 1) == encode_batch(rows)


def test_varints_of_timestamps():
    deltas = [0, *(sign << bits - near for bits in range(5, 63) for near in (0, 1) for sign in (1, -1))]
    rows = [Record(i, delta) for i, delta in enumerate(deltas)]
    assert encode_batches(None, timestamps=deltas) == encode_batch(rows)


def test_no_records():
    for raw in (encode_batches([]), encode_batches([], codec="zstd"), encode_message_sets([]),
                encode_message_sets([], codec="gzip"), encode_batches([b"x"], select=[]),
                encode_batches(pa.chunked_array([], pa.binary()),
                               headers=pa.array([], pa.map_(pa.binary(), pa.binary())))):
        assert raw == b"" and len(kafka.scan(raw)) == 0


def test_one_value_for_all():
    keys = [b"%d" % i for i in range(5)]
    assert read(encode_batches(None, keys=keys, timestamps=9)) == [Record(i, 9, key) for i, key in enumerate(keys)]
    same = [Record(0, 1, None, b"same"), Record(1, 2, None, b"same")]
    assert read(encode_batches(b"same", timestamps=[1, 2])) == same
    headed = encode_batches(b"", keys=bytearray(b"k"), headers=([2, 0, 1], b"trace", [b"1", None, b"2"]))
    assert [row.headers for row in read(headed)] == [((b"trace", b"1"), (b"trace", None)), (), ((b"trace", b"2"),)]


# ---------------------------------------------------------------------------------------- every kind of input

def kinds(strings):
    """The same byte strings in everything that holds any."""
    yield "list", list(strings)
    yield "objects", np.array(strings, object)
    yield "byte strings", ByteStrings(strings)
    yield "place", (table_of(encode_batches(strings)), "value")
    yield "inflated place", (table_of(encode_batches(strings, codec="lz4")), "value")
    yield "polars", polars.Series(strings, dtype=polars.Binary)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        array = pa.array(strings, kind)
        yield str(kind), array
        yield f"{kind} in chunks", pa.chunked_array([array[:3], array[3:3], array[3:]])
        wider = pa.array([b"before", *strings, b"behind"], kind)
        yield f"part of {kind}", wider[1:-1]
        for shift in (7, 8, 9):
            yield f"{kind}, {shift} bits on", pa.array([None] * shift + strings, kind)[shift:]
    array = pa.array(strings, pa.binary())
    yield "dictionary", array.dictionary_encode()
    yield "chunks of dictionaries", pa.chunked_array([array[:2].dictionary_encode(), array[2:].dictionary_encode()])
    if None not in strings:
        data, offsets = b"##" + b"".join(strings) + b"#", np.cumsum([2, *map(len, strings)])
        yield "offsets", (offsets, data)
        yield "narrow offsets", (offsets.astype(np.int32), bytearray(data))
        yield "offsets in a list", (offsets.tolist(), np.frombuffer(data, np.uint8))
        yield "strided offsets", (np.repeat(offsets, 2)[::2], memoryview(data))
    if strings == PLAIN:
        yield "numpy", np.array(strings)
        yield "strided numpy", np.array(strings * 2).reshape(2, -1).T.copy()[:, 0]
        texts = [string.decode() for string in strings]
        for kind in (pa.string(), pa.large_string(), pa.string_view()):
            yield str(kind), pa.array(texts, kind)


@pytest.mark.parametrize("strings", [STRINGS, PLAIN, [b""], [None, None, None]], ids=["all", "plain", "empty", "null"])
def test_every_kind_is_equal(strings):
    wanted = encode_batches(strings, keys=strings, headers=([1] * len(strings), b"h", strings))
    for name, given in kinds(strings):
        held = ByteStrings(given)
        assert list(held) == strings and len(held) == len(strings), name
        sizes = [len(string) for string in strings if string is not None]
        assert (held.nulls, held.total, held.longest) == (
            strings.count(None), sum(sizes), max(sizes, default=0)), name
        assert encode_batches(given, keys=given, headers=([1] * len(strings), b"h", given)) == wanted, name


def test_fixed_width_and_null_arrays():
    fixed = pa.array([b"abc", None, b"x\0\0", b"def"], pa.binary(3))
    assert list(ByteStrings(fixed)) == fixed.to_pylist()
    assert list(ByteStrings(pa.chunked_array([fixed[1:3], fixed[2:]]))) == [None, b"x\0\0", b"x\0\0", b"def"]
    assert list(ByteStrings(pa.nulls(9))) == [None] * 9
    assert list(ByteStrings(np.array([b"", b"a\0b\0"]))) == [b"", b"a\0b"]
    assert list(ByteStrings(np.zeros(3, "S4"))) == [b""] * 3
    assert list(ByteStrings(np.array([b"ab", b"cd"])[::-1])) == [b"cd", b"ab"]


def test_bad_rows_and_nulls_of_a_table_are_null():
    table = table_of(encode_batches([b"one", None, b"three"]))
    rows = table.rows.copy()
    rows["fault"][2] = 1
    assert list(ByteStrings((FrameTable(table.buffers, rows, (), table.format), "value"))) == [b"one", None, None]


TIMES = [1_700_000_000_123, 0, -1, -62_135_596_800_000]


def test_what_a_mask_hides_is_not_written():
    hidden = np.ma.array([5], mask=[True])
    for given in dict(timestamps=hidden), dict(timestamps=hidden.astype("M8[ms]")), dict(select=hidden):
        with pytest.raises(TypeError, match="a masked array"):
            encode_batches([b"a"], **given)


def test_every_kind_of_timestamps():
    wanted = encode_batches(None, timestamps=TIMES)
    times = np.array(TIMES)
    strided = np.zeros(8, np.int64)
    strided[::2] = times
    for given in (times, times.astype(">i8"), strided[::2], times.view("M8[ms]"),
                  times.view("M8[ms]").astype(">M8[us]"),
                  (times * 1000 + 999).view("M8[us]"), pa.array(TIMES), pa.array(TIMES, pa.timestamp("ms")),
                  pa.array(times * 1000 + 1, pa.timestamp("us", "UTC")),
                  pa.chunked_array([times[:1], times[1:]]), pa.array([0, *TIMES])[1:], (table_of(wanted))["timestamp"],
                  polars.Series(TIMES, dtype=polars.Datetime("ms"))):
        assert encode_batches(None, timestamps=given) == wanted
    nanoseconds = np.array(TIMES[:3]) * 1_000_000
    assert encode_batches(None, timestamps=nanoseconds.view("M8[ns]")) == encode_batches(None, timestamps=TIMES[:3])
    days = np.array(["2024-02-29", "1969-12-31", "NaT"], "M8[D]")
    assert [row.timestamp for row in read(encode_batches(None, timestamps=days))] == [1709164800000, -86400000, -1]
    seconds = pa.array([7, None, -2], pa.timestamp("s"))
    assert [row.timestamp for row in read(encode_batches(None, timestamps=seconds))] == [7000, -1, -2000]
    for codes in (np.array([3, 4], np.uint8), pa.array([3, 4], pa.int16())):
        assert [row.timestamp for row in read(encode_batches(None, timestamps=codes))] == [3, 4]
    assert encode_batches([b""] * 4, timestamps=np.int32(5)) == encode_batches([b""] * 4, timestamps=[5] * 4)


HEADERS = [[(b"a", b"1"), (b"a", None), (b"", b"x" * 40)], [], None, [(b"b", b"")], []]
FLAT = [((b"a", b"1"), (b"a", None), (b"", b"x" * 40)), (), (), ((b"b", b""),), ()]


def test_every_kind_of_headers():
    as_structs = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in HEADERS]
    wanted = encode_batches(None, timestamps=[0] * 5, headers=(
        [3, 0, 0, 1, 0], [b"a", b"a", b"", b"b"], [b"1", None, b"x" * 40, b""]))
    assert [row.headers for row in read(wanted)] == FLAT
    struct = pa.struct([("key", pa.string()), ("value", pa.binary_view())])
    swapped = pa.struct([("value", pa.binary()), ("key", pa.binary())])
    arrays = [pa.array(HEADERS, pa.map_(pa.string(), pa.binary()))]
    arrays += [pa.array(as_structs, kind) for kind in (pa.list_(struct), pa.large_list(struct), pa.list_(swapped))]
    for array in arrays:
        twice = pa.chunked_array([array[:2], array[2:], array[:0]])
        for given in (array, pa.concat_arrays([array[3:], array])[2:], twice):
            assert encode_batches(None, timestamps=0, headers=given) == wanted, array.type
        assert encode_batches(None, timestamps=0, headers=array[3:]) == encode_batches(
            None, timestamps=[0, 0], headers=([1, 0], [b"b"], [b""]))
    assert encode_batches(None, timestamps=0, headers=polars.Series(
        as_structs, dtype=polars.List(polars.Struct({"key": polars.Binary, "value": polars.Binary})))) == wanted
    table = table_of(wanted)
    pairs = kafka.headers(table)
    of_table = (table["header_count"], (pairs, "key"), (pairs, "value"))
    assert encode_batches(None, timestamps=0, headers=of_table) == wanted
    arrow = pa.table(table)                     # as wirescan itself exports them
    assert encode_batches(None, timestamps=0, headers=arrow["headers"]) == wanted
    assert encode_batches(arrow["value"], timestamps=arrow["timestamp"], headers=arrow["headers"]) == wanted


# ------------------------------------------------------------------------------------------------- selecting

@quiet
@given(strategies.records(least=1), st.lists(st.integers(0, 2**30)), st.sampled_from((100, 1 << 20)))
def test_select_writes_those_rows_in_that_order(rows, numbers, most):
    rows = consecutive(rows, 0)
    numbers = [number % len(rows) for number in numbers]
    chosen = columns([rows[number] for number in numbers])
    wanted = encode_batches(**chosen, batch_bytes=most)
    for select in (numbers, np.array(numbers, np.uint32), np.repeat(np.array(numbers, np.int64), 2)[::2]):
        assert encode_batches(**columns(rows), select=select, batch_bytes=most) == wanted
    chosen.pop("headers")
    plain = columns(rows)
    plain.pop("headers")
    assert encode_message_sets(**plain, select=numbers) == encode_message_sets(**chosen)
    assert encode_batches(b"v", keys=plain["keys"], timestamps=3, select=numbers) == encode_batches(
        b"v", keys=chosen["keys"], timestamps=3)


# ------------------------------------------------------------------------------------------- hostile and unfit

def forged(kind, good, bad, data=bytes(40)):
    """An array of pyarrow over offsets or views that were good, and are no more: pyarrow asks when it is made."""
    numbers = np.array(good)
    array = pa.Array.from_buffers(kind, numbers.size - 1 if numbers.ndim == 1 else len(numbers),
                                  [None, pa.py_buffer(numbers), pa.py_buffer(data)])
    numbers[:] = bad
    return array


def narrow(*offsets):
    return np.array(offsets, np.int32)


def view(size, number, at):
    return np.array([[3, 0, 0, 0], [size, 0, number, at]], np.int32)


FORGED = {
    "falling": ([0, 3, 2], b"abc"),
    "beyond": ([0, 1, 4], b"abc"),
    "negative": ([-1, 1, 2], b"abc"),
    "far below": ([-2**63, 2**63 - 1], b"abc"),
    "far beyond": ([0, 2**63 - 1], b"abc"),
    "narrow and negative": (narrow(-2**31, 2**31 - 1), b"abc"),
    "no offsets": (np.zeros(0, np.int64), b"abc"),
    "arrow, falling": forged(pa.binary(), narrow(0, 1, 2, 3), narrow(0, 2, 1, 3)),
    "arrow, beyond in between": forged(pa.binary(), narrow(0, 1, 2, 3), narrow(0, 2**31 - 1, 2, 3)),
    "arrow, negative in between": forged(pa.large_binary(), [0, 1, 2, 3], [0, -2**63, 2, 3]),
    "arrow, far in between": forged(pa.large_binary(), [0, 1, 2, 3], [0, 2**62, 2, 3]),
    "arrow, beyond": forged(pa.large_binary(), [0, 1], [0, 2**62]),
    "arrow, view of no buffer": forged(pa.binary_view(), view(1, 0, 0), view(20, 1, 0)),
    "arrow, view of a negative buffer": forged(pa.binary_view(), view(1, 0, 0), view(20, -1, 0)),
    "arrow, view beyond": forged(pa.binary_view(), view(1, 0, 0), view(20, 0, 21)),
    "arrow, view before": forged(pa.binary_view(), view(1, 0, 0), view(20, 0, -1)),
    "arrow, view of negative size": forged(pa.binary_view(), view(1, 0, 0), view(-2, 0, 0)),
    "arrow, largest view": forged(pa.binary_view(), view(1, 0, 0), view(2**31 - 1, 0, 2**31 - 1)),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_arrays_are_refused(name):
    given = FORGED[name]
    for call in (ByteStrings, encode_batches, encode_message_sets, lambda given: partition_of(given, 3),
                 lambda given: encode_batches(None, keys=given)):
        with pytest.raises(ValueError):
            call(given)


class Cut:
    """An array of Arrow whose buffers end too early, which pyarrow itself would not make."""

    def __init__(self, array, *buffers):
        self.type, self.offset, self.count, self.parts = array.type, array.offset, len(array), buffers

    def __len__(self):
        return self.count

    def buffers(self):
        return list(self.parts)


@pytest.mark.parametrize("cut", [
    Cut(pa.array([b"abc"] * 9), None, narrow(0, 3, 6), b"abc" * 9),
    Cut(pa.array([b"abc"] * 9), b"\xff", narrow(*range(0, 30, 3)), b"abc" * 9),
    Cut(pa.array([b"abc"] * 9)[8:], b"\xff", narrow(*range(0, 30, 3)), b"abc" * 9),
    Cut(pa.array([b"abc"] * 9)[8:], None, narrow(*range(0, 27, 3)), b"abc" * 9),
    Cut(pa.array([b"abc"] * 9), None, narrow(*range(0, 30, 3)), None),
    Cut(pa.array([b"abc"] * 9), None, None, b"abc" * 9),
    Cut(pa.array([b"abc"] * 9, pa.binary(3)), None, b"abc" * 8),
    Cut(pa.array([b"abc"] * 9, pa.binary(3))[8:], None, b"abc" * 8),
    Cut(pa.array([b"abc"] * 9, pa.binary_view()), None, bytes(16 * 8)),
    Cut(pa.array([b"abc" * 9] * 9, pa.binary_view()), None, np.array([[27, 0, 0, 0]] * 9, np.int32), b"abc" * 8),
])
def test_buffers_that_end_too_early_are_refused(cut, monkeypatch):
    from wirescan.core import strings
    monkeypatch.setattr(strings, "chunks_of", lambda source: [source])
    monkeypatch.setattr(strings, "is_arrow", lambda source: True)
    with pytest.raises(ValueError):
        ByteStrings(cut)


def test_forged_dictionaries_and_lists_are_refused():
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 9], pa.int32()), pa.array([b"a"]), safe=False)
    with pytest.raises(ValueError):
        ByteStrings(codes)
    pairs = pa.array([{"key": b"a", "value": b"b"}] * 3)
    for ends in ([0, 4, 3], [2, 1, 3], [-1, 2, 3], [0, 2**31 - 1, 3]):
        offsets = narrow(0, 1, 3)
        lists = pa.Array.from_buffers(pa.list_(pairs.type), 2, [None, pa.py_buffer(offsets)], children=[pairs])
        offsets[:] = ends
        with pytest.raises(ValueError):
            encode_batches([b""] * 2, headers=lists)


@pytest.mark.parametrize("place", [(0, 0, 11), (0, 11, 1), (0, -1, 2), (1, 0, 1), (0, 2**62, 5), (0, 0, 2**31 - 1)])
def test_forged_tables_are_refused(place):
    rows = np.zeros(2, kafka.RECORD)
    rows["key_size"] = -1
    rows["buffer"][1], rows["start"][1], rows["value_size"][1] = place
    table = FrameTable((memoryview(b"0123456789"),), rows, (), kafka.RECORDS)
    with pytest.raises(ValueError, match="row 1 points outside"):
        encode_batches((table, "value"))
    assert list(ByteStrings((table, "key"))) == [None, None]


def test_nothing_is_read_outside():
    """The strings lie right before a page that cannot be read."""
    for size in range(150):
        guarded = Guarded(size)
        data = guarded.at_the_end(bytes(size))
        for given in (([0, size], data), np.frombuffer(data, f"S{size}") if size else [b""]):
            encode_batches(given, keys=given, codec="lz4" if size % 9 == 0 else "none")
            encode_message_sets(given, keys=given)
            partition_of(given, 5), partition_of(given, 5, "crc32")
        del data, given


VALUES = [b"v"] * 3


@pytest.mark.parametrize("call, words", [
    (lambda: encode_batches(VALUES, keys=[b""]), "columns of unequal length: 3 values, 1 keys"),
    (lambda: encode_batches(VALUES, timestamps=[1, 2]), "unequal length"),
    (lambda: encode_batches(VALUES, timestamps=[1]), "unequal length"),
    (lambda: encode_batches(VALUES, headers=([1], [b"a"], [b"b"])), "unequal length"),
    (lambda: encode_batches(VALUES, headers=([1, 1, 0], [b"a"], [b"b"])), "keys: there are 1 byte strings, not 2"),
    (lambda: encode_batches(VALUES, headers=([1, -1, 1], [b"a"], [b"b"])), "do not fit"),
    (lambda: encode_batches(VALUES, headers=([2**40, 1 - 2**40, 0], [b"a"], [b"b"])), "do not fit"),
    (lambda: encode_batches(VALUES, headers=([0, 1, 1], [b"a", None], b"")), "row 2: a header's key must not be null"),
    (lambda: encode_batches(VALUES, headers=([0, 1, 1], [b"a", None], b""), batch_bytes=1), "row 2: a header's key"),
    (lambda: encode_batches(VALUES, headers=([0, 1, 1], [b"a", None], b""), select=[1, 0, 2, 2]), "row 2: a header's"),
    (lambda: encode_batches(VALUES, headers=pa.array([[None], [], []], pa.list_(pa.struct(
        [("key", pa.binary()), ("value", pa.binary())])))), "row 0: a header's key must not be null"),
    (lambda: encode_batches(b"v"), "says how many records"),
    (lambda: encode_batches(None, keys=b"k", timestamps=3), "says how many records"),
    (lambda: encode_batches(VALUES, select=[0, 3]), "select has rows from 0 to 3, and there are 3"),
    (lambda: encode_batches(VALUES, select=[-1]), "select has rows from -1 to -1"),
    (lambda: encode_batches([], select=[0]), "and there are 0"),
    (lambda: encode_batches(VALUES, batch_bytes=0), "batch_bytes must be from 1"),
    (lambda: encode_batches(VALUES, batch_bytes=2**31), "batch_bytes must be from 1"),
    (lambda: encode_batches(VALUES, base_offset=2**63 - 2), "the last offset must be"),
    (lambda: encode_batches(VALUES, base_sequence=-2), "base_sequence must be from -1"),
    (lambda: encode_batches(VALUES, base_sequence=2**31), "base_sequence must be from"),
    (lambda: encode_batches(VALUES, producer_epoch=2**15), "producer_epoch"),
    (lambda: encode_batches(VALUES, timestamps=2**63), "timestamps must be from"),
    (lambda: encode_batches(VALUES, timestamps=np.array([2**60] * 3, "M8[s]")), "no number of milliseconds"),
    (lambda: encode_batches(VALUES, timestamps=np.array([-2**62] * 3, "M8[D]")), "no number of milliseconds"),
    (lambda: encode_batches(VALUES, codec="brotli"), "codec must be one of"),
    (lambda: encode_batches(VALUES, codec="gzip", level=10), "levels from 0 to 9"),
    (lambda: encode_batches([], codec="gzip", level=10), "levels from 0 to 9"),
    (lambda: encode_batches(VALUES, level=1), "codec none has no levels"),
    (lambda: encode_batches(VALUES, timestamp_type="log"), "timestamp_type"),
    (lambda: encode_batches((table_of(encode_batches(VALUES)), "offset")), "kafka.records has no place 'offset'"),
    (lambda: encode_message_sets(VALUES, magic=2), "magic must be 0 or 1"),
    (lambda: encode_message_sets(VALUES, codec="zstd"), "magic 2"),
    (lambda: encode_message_sets(VALUES, codec="lz4-legacy"), "magic 0 only"),
    (lambda: encode_message_sets(VALUES, codec="gzip", base_offset=-1), "must rise"),
    (lambda: encode_message_sets(VALUES, magic=0, timestamps=5), "cannot hold a timestamp"),
    (lambda: encode_message_sets(VALUES, magic=0, timestamp_type="append"), "no timestamp"),
    (lambda: ByteStrings(b"v"), "how many"),
    (lambda: ByteStrings(None, -1), "how many"),
    (lambda: ByteStrings(VALUES, 2), "there are 3 byte strings, not 2"),
    (lambda: ByteStrings(VALUES).take([3]), "none of number 3"),
    (lambda: ByteStrings(b"one", 2).take([-1]), "none of number -1"),
    (lambda: partition_of(VALUES, 0), "from 1 to"),
    (lambda: partition_of(VALUES, 2**31), "from 1 to"),
    (lambda: partition_of(VALUES, 3, "fnv1a"), "how must be"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_does_not_fit(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("call, words", [
    (lambda: encode_batches(["text"]), "values: string 0 must be bytes or None, not str"),
    (lambda: encode_batches([b"", 5]), "values: string 1 must be bytes"),
    (lambda: encode_batches("text"), "byte strings are .* not str"),
    (lambda: encode_batches(np.arange(3)), "of dtype S, in one dimension, not int64 in 1"),
    (lambda: encode_batches(np.array(["u"])), "of dtype S"),
    (lambda: encode_batches(np.zeros((2, 2), "S1")), "of dtype S"),
    (lambda: encode_batches(VALUES, keys=np.zeros(3)), "keys: .* not float64"),
    (lambda: encode_batches(pa.array([1, 2])), "binary or string, not int64"),
    (lambda: encode_batches(pa.array([[b"a"]])), "binary or string, not list"),
    (lambda: encode_batches(table_of(encode_batches(VALUES))), "binary or string, not struct"),
    (lambda: encode_batches(([0.0, 1.0], b"a")), "offsets of int32 or int64"),
    (lambda: encode_batches((np.array([0, 1], ">i4"), b"a")), "offsets of int32 or int64"),
    (lambda: encode_batches(([0, 1], "a")), "the place 'a' is one of a table, not of list"),
    (lambda: encode_batches(([0, 1], 5)), "not a contiguous bytes-like object: int"),
    (lambda: encode_batches(([0, 1], np.zeros(8, np.uint8)[::2])), "not a contiguous"),
    (lambda: encode_batches((b"a", b"b")), "a pair is"),
    (lambda: encode_batches(VALUES, timestamps=1.5), "timestamps must be an integer"),
    (lambda: encode_batches(VALUES, timestamps=[1.5, 2, 3]), "timestamps must be integers"),
    (lambda: encode_batches(VALUES, timestamps=np.zeros(3, np.uint64)), "timestamps must be integers"),
    (lambda: encode_batches(VALUES, timestamps=np.zeros((3, 1), "M8[ms]")), "one dimension"),
    (lambda: encode_batches(VALUES, timestamps="now"), "timestamps must be an integer"),
    (lambda: encode_batches(VALUES, timestamps=pa.array(["a"] * 3)), "of type timestamp or int64, not string"),
    (lambda: encode_batches(VALUES, headers=[[(b"a", b"b")]] * 3), "headers are an Arrow array"),
    (lambda: encode_batches(VALUES, headers=pa.array([[1]] * 3)), "list<struct<key, value>> or map, not list"),
    (lambda: encode_batches(VALUES, headers=pa.array([[{"key": b"", "v": b""}]] * 3)), "not list<"),
    (lambda: encode_batches(VALUES, headers=([1.0] * 3, VALUES, VALUES)), "the counts of headers must be integers"),
    (lambda: encode_batches(VALUES, select=[True, False, True]), "select must be integers"),
    (lambda: encode_batches(VALUES, select=1), "select must be integers"),
    (lambda: encode_batches(VALUES, base_offset=0.0), "base_offset must be an integer"),
    (lambda: encode_batches(VALUES, batch_bytes=1e6), "batch_bytes must be an integer"),
    (lambda: encode_batches(VALUES, codec="gzip", level=1.0), "level must be an integer"),
    (lambda: partition_of(VALUES, 2.5), "integer"),
    (lambda: partition_of(np.arange(3), 2), "of dtype S"),
    (lambda: murmur2("text"), "bytes-like"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_arguments_of_another_type(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_records_that_are_too_large():
    """Nothing of theirs is read or allocated: they are measured first."""
    with mmap.mmap(-1, (1 << 31) + 100) as sparse:
        for size in (2**31 - 1, 2**31 - 20):
            for call in (encode_batches, encode_message_sets):
                with pytest.raises(ValueError, match="row 1 is too large"):
                    call(([0, 5, 5 + size], sparse), codec="none")
                with pytest.raises(ValueError, match="row 7 is too large"):
                    call(([0] * 8 + [size, size], sparse), select=[3, 7], codec="gzip")
        with pytest.raises(ValueError, match="values: string 1 has 2147483648 bytes"):
            encode_batches(([0, 5, 5 + 2**31], sparse))
        half = ([0, 1 << 30, 1 << 31], sparse)
        with pytest.raises(ValueError, match="row 0 is too large"):
            encode_batches(b"", keys=[b"k"], headers=([2], b"h", half))
        with pytest.raises(ValueError, match="row 0 is too large"):         # 2**28 headers in the same bytes
            encode_batches(b"", keys=[b"k"], headers=([1 << 24], b"h" * 200, b""))
        del half
        gc.collect()


def test_more_than_there_is_memory_for():
    """The same megabyte, over and over: measured, and then refused, in vain asked of the system."""
    many = np.zeros(1 << 20, np.int64)
    with mmap.mmap(-1, 1 << 30) as sparse, pytest.raises(MemoryError):
        values = ByteStrings(([0, 1 << 30], sparse))
        try:
            encode_batches(values, select=many)
        finally:
            del values
            gc.collect()


# --------------------------------------------------------------------------------------------------- memory

def test_the_result_refers_to_nothing_that_was_given():
    data, times = bytearray(b"abcdef"), np.array([1, 2])
    raw = encode_batches(([0, 3, 6], data), timestamps=times)
    before = bytes(raw)
    data[:] = b"xxxxxx"
    data.extend(bytes(100))             # refused, were it held
    times[:] = 7
    assert raw == before
    part = raw[61:70]
    del raw
    gc.collect()
    encode_batches([bytes(1000)] * 100)
    assert part == before[61:70]


def test_strings_keep_their_memory():
    data = bytearray(b"abcdef" * 1000)
    strings = ByteStrings((np.arange(0, 6001, 6), data))
    with pytest.raises(BufferError):
        data.extend(b"more")
    items = [bytes([i]) * 100 for i in range(100)]
    of_list, chosen = ByteStrings(items), ByteStrings(items).take([5, 6])
    arrow = ByteStrings(pa.array(items).dictionary_encode())
    place = ByteStrings((table_of(encode_batches(items, codec="zstd")), "value"))
    wanted = list(items)
    items.clear()
    gc.collect()
    encode_batches([bytes(100)] * 1000, codec="zstd")
    assert list(strings) == [b"abcdef"] * 1000
    assert list(of_list) == list(arrow) == list(place) == wanted and list(chosen) == wanted[5:7]
    assert list(ByteStrings(chosen)) == wanted[5:7]


# -------------------------------------------------------------------------------------------------- partitions

VECTORS = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
           b"a-little-bit-longer-string": -1486304829, b"abc": 479470107,
           b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971}      # Kafka's UtilsTest


def slow_murmur2(key):
    """As Kafka's Utils.murmur2 is written, an octet at a time."""
    def times(value):
        return value * 0x5BD1E995 & 0xFFFFFFFF
    value, whole = 0x9747B28C ^ len(key), len(key) & ~3
    for at in range(0, whole, 4):
        word = times(int.from_bytes(key[at:at + 4], "little"))
        value = times(value) ^ times(word ^ word >> 24)
    if whole < len(key):
        value = times(value ^ int.from_bytes(key[whole:], "little"))
    value = times(value ^ value >> 13)
    return value ^ value >> 15


def test_kafkas_own_vectors():
    assert {key: murmur2(key) for key in VECTORS} == VECTORS
    assert partition_of(list(VECTORS), 2**31 - 1).tolist() == [
        (number & 0x7FFFFFFF) % (2**31 - 1) for number in VECTORS.values()]


@quiet
@given(st.lists(st.none() | st.binary(max_size=70)), st.sampled_from((1, 2, 7, 1000, 2**31 - 1)))
def test_partitions_are_those_of_the_hash(keys, partitions):
    wanted = [-1 if key is None else (slow_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    found = partition_of(keys, partitions)
    assert found.dtype == np.int32 and found.tolist() == wanted
    assert partition_of(pa.array(keys, pa.binary_view()), np.int16(partitions % 999 + 1), how="crc32").tolist() == [
        -1 if key is None else zlib.crc32(key) % (partitions % 999 + 1) for key in keys]
    assert all(slow_murmur2(key) == murmur2(key) & 0xFFFFFFFF for key in keys if key is not None)
    assert partition_of(ByteStrings(b"key", 3), 5).tolist() == [(slow_murmur2(b"key") & 0x7FFFFFFF) % 5] * 3


def test_a_producer_parts_an_array():
    """What the functions are for: rows go to partitions, in order, and every one to the partition of its key."""
    keys = [b"%d" % (i * 7919 % 50) for i in range(1000)]
    values = [b"value-%d" % i for i in range(1000)]
    where = partition_of(keys, 6)
    order = np.argsort(where, kind="stable")
    parts = np.split(order, np.searchsorted(where[order], np.arange(1, 6)))
    seen = 0
    for partition, rows in enumerate(parts):
        got = read(encode_batches(values, keys=keys, select=rows))
        assert [(row.key, row.value) for row in got] == [
            (key, value) for key, value, at in zip(keys, values, where) if at == partition]
        seen += len(got)
    assert seen == 1000
