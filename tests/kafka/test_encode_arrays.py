"""Encoding from arrays of every kind gives the bytes that the encoders of Python records write."""

import gc
import mmap
import zlib

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import kafka as strategies
from tests.support.examples import read_example_count
from tests.support.places import copy_bytes
from wirescan import kafka
from wirescan.core.strings import ByteStrings
from wirescan.frames.table import FrameTable
from wirescan.kafka import (
    Record,
    encode_batch,
    encode_batches,
    encode_message_set,
    encode_message_sets,
    partition_of,
)
from wirescan.kafka.client.partitioner import murmur2
from wirescan.testing.guarded_memory import GuardedMemory

quiet = settings(max_examples=read_example_count(30), deadline=None)
HEAD = 61  # bytes before the records of a batch
STRINGS = [
    b"a",
    None,
    b"",
    b"x" * 50,
    b"ends in zeros\0\0",
    b"exactly 12 b",
    b"thirteen byte",
    None,
    bytes(3),
]
PLAIN = [b"a", b"", b"x" * 50, b"exactly 12 b"]  # strings that numpy's S can hold


def number_rows(rows, first):
    """Replace the offsets of the records by consecutive offsets."""
    return [row._replace(offset=first + i) for i, row in enumerate(rows)]


def columns_of(rows):
    """Return the records as column arguments of the encoders."""
    pairs = [pair for row in rows for pair in row.headers]
    counts = [len(row.headers) for row in rows]
    header_keys = [key for key, _ in pairs]
    header_values = [value for _, value in pairs]
    return dict(
        values=[row.value for row in rows],
        keys=[row.key for row in rows],
        timestamps=np.array([row.timestamp for row in rows], np.int64),
        headers=(counts, header_keys, header_values),
    )


def scan_records(raw):
    return kafka.records(kafka.scan(raw))


def read(raw):
    """List all records as wirescan reads them."""
    return [
        Record(
            row.offset,
            row.timestamp,
            copy_bytes(row.key),
            copy_bytes(row.value),
            tuple((copy_bytes(key), copy_bytes(value)) for key, value in row.headers),
        )
        for row in scan_records(raw)
    ]


def list_timestamps(raw):
    return [row.timestamp for row in read(raw)]


def row_ranges(raw):
    """List (start, stop) of the rows in each batch."""
    stops = np.cumsum(kafka.scan(raw)["record_count"]).tolist()
    return list(zip([0, *stops], stops))


# ---- the same bytes


@quiet
@given(
    strategies.records(most=12),
    st.integers(-(2**63), 2**63 - 13),
    st.sampled_from((1, 100, 300, 9000, 1 << 20)),
    st.sampled_from(("none", "none", *strategies.BATCH_CODECS)),
    st.sampled_from(("create", "append")),
    st.sampled_from((-1, 0, 2**31 - 3)) | st.integers(0, 2**31 - 1),
    st.booleans(),
)
def test_batches_are_those_of_encode_batch(
    rows, first, most, codec, timestamp_type, sequence, transactional
):
    rows = number_rows(rows, first)
    options = dict(
        codec=codec,
        timestamp_type=timestamp_type,
        leader_epoch=7,
        producer_id=2**40,
        producer_epoch=3,
        transactional=transactional,
    )
    columns = columns_of(rows)
    raw = encode_batches(
        **columns, base_offset=first, batch_bytes=most, base_sequence=sequence, **options
    )
    assert raw.readonly
    assert raw.format == "B"
    ranges = row_ranges(raw)
    wanted = b""
    for start, stop in ranges:
        batch_sequence = -1 if sequence < 0 else (sequence + start) % 2**31
        wanted += encode_batch(rows[start:stop], base_sequence=batch_sequence, **options)
    assert raw == wanted
    # No batch is too large, and no batch has space for the next record.
    for start, stop in ranges:
        if stop - start > 1:
            assert len(encode_batch(rows[start:stop])) <= most
        if stop < len(rows):
            assert len(encode_batch(rows[start : stop + 1])) > most


@quiet
@given(
    strategies.records(most=8, headed=False),
    st.integers(0, 2**62),
    st.sampled_from((1, 150, 9000, 1 << 20)),
    st.sampled_from(
        [(magic, codec) for magic, codecs in strategies.MESSAGE_CODECS.items() for codec in codecs]
    ),
    st.sampled_from(("create", "append")),
)
def test_message_sets_are_those_of_encode_message_set(rows, first, most, kind, timestamp_type):
    magic, codec = kind
    rows = number_rows(rows, first)
    options = dict(magic=magic, codec=codec, timestamp_type=timestamp_type if magic else "create")
    columns = dict(values=[row.value for row in rows], keys=[row.key for row in rows])
    if magic:
        columns |= dict(timestamps=np.array([row.timestamp for row in rows], np.int64))
    else:
        rows = [row._replace(timestamp=-1) for row in rows]
    raw = encode_message_sets(**columns, base_offset=first, batch_bytes=most, **options)
    if codec == "none" or not rows:
        assert raw == encode_message_set(rows, **options | dict(codec="none"))
        return
    stops = (kafka.scan(raw)["base_offset"] - first + 1).tolist()
    ranges = list(zip([0, *stops], stops))
    wanted = [encode_message_set(rows[start:stop], **options) for start, stop in ranges]
    assert raw == b"".join(wanted)

    def wrapper_size(start, stop):
        """Return the size that `batch_bytes` limits: of a wrapper without compression."""
        overhead = 34 if magic else 26
        return overhead + len(encode_message_set(rows[start:stop], magic=magic))

    for start, stop in ranges:
        if stop - start > 1:
            assert wrapper_size(start, stop) <= most
        if stop < len(rows):
            assert wrapper_size(start, stop + 1) > most


@pytest.mark.parametrize("codec", strategies.BATCH_CODECS)
def test_encoded_columns_read_back(codec):
    rows = [
        Record(
            40 + i,
            1_700_000_000_000 + 37 * i,
            b"key-%d" % (i % 7) if i % 5 else None,
            b"%d" % i * (i % 60),
            ((b"a", b"%d" % i), (b"", None)) if i % 3 == 0 else (),
        )
        for i in range(1000)
    ]
    columns = columns_of(rows)
    raw = encode_batches(**columns, base_offset=40, batch_bytes=1500, codec=codec)
    assert read(raw) == rows
    assert len(row_ranges(raw)) > 20
    level = {"gzip": 9, "zstd": 19}.get(codec)
    assert read(encode_batches(**columns, base_offset=40, codec=codec, level=level)) == rows


@pytest.mark.parametrize(
    "size",
    [
        63,
        64,
        8191,
        8192,
        (1 << 20) - 1,
        1 << 20,
        pytest.param((1 << 27) - 1, marks=pytest.mark.slow),
        pytest.param(1 << 27, marks=pytest.mark.slow),
    ],
)
def test_varints_of_every_length(size):
    """Sizes, and deltas of timestamps, at which a varint grows by a byte."""
    value = bytes(size)
    rows = [Record(0, 0), Record(1, size, None, memoryview(value))]
    raw = encode_batches([None, value], timestamps=[0, size], batch_bytes=2**31 - 1)
    assert raw == encode_batch(rows)


def test_timestamps_of_every_width_read_back():
    deltas = [
        0,
        *(sign << bits - near for bits in range(5, 63) for near in (0, 1) for sign in (1, -1)),
    ]
    rows = [Record(i, delta) for i, delta in enumerate(deltas)]
    assert encode_batches(None, timestamps=deltas) == encode_batch(rows)


def test_no_records_are_no_bytes():
    no_values = pa.chunked_array([], pa.binary())
    no_headers = pa.array([], pa.map_(pa.binary(), pa.binary()))
    for raw in (
        encode_batches([]),
        encode_batches([], codec="zstd"),
        encode_message_sets([]),
        encode_message_sets([], codec="gzip"),
        encode_batches([b"x"], select=[]),
        encode_batches(no_values, headers=no_headers),
    ):
        assert raw == b""
        assert len(kafka.scan(raw)) == 0


def test_one_value_for_all_records():
    keys = [b"%d" % i for i in range(5)]
    assert read(encode_batches(None, keys=keys, timestamps=9)) == [
        Record(i, 9, key) for i, key in enumerate(keys)
    ]
    same = [Record(0, 1, None, b"same"), Record(1, 2, None, b"same")]
    assert read(encode_batches(b"same", timestamps=[1, 2])) == same
    headers = [2, 0, 1], b"trace", [b"1", None, b"2"]
    with_headers = encode_batches(b"", keys=bytearray(b"k"), headers=headers)
    assert [row.headers for row in read(with_headers)] == [
        ((b"trace", b"1"), (b"trace", None)),
        (),
        ((b"trace", b"2"),),
    ]


# ---- every kind of input


def list_containers(strings):
    """Yield (name, container) for the same byte strings in every supported container."""
    yield "list", list(strings)
    yield "objects", np.array(strings, object)
    yield "byte strings", ByteStrings(strings)
    yield "place", (scan_records(encode_batches(strings)), "value")
    yield "inflated place", (scan_records(encode_batches(strings, codec="lz4")), "value")
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
    dictionaries = [array[:2].dictionary_encode(), array[2:].dictionary_encode()]
    yield "chunks of dictionaries", pa.chunked_array(dictionaries)
    if None not in strings:
        data = b"##" + b"".join(strings) + b"#"
        offsets = np.cumsum([2, *map(len, strings)])
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


@pytest.mark.parametrize(
    "strings", [STRINGS, PLAIN, [b""], [None, None, None]], ids=["all", "plain", "empty", "null"]
)
def test_every_kind_is_equal(strings):
    ones = [1] * len(strings)
    sizes = [len(string) for string in strings if string is not None]
    expected = encode_batches(strings, keys=strings, headers=(ones, b"h", strings))
    for name, source in list_containers(strings):
        byte_strings = ByteStrings(source)
        assert list(byte_strings) == strings, name
        assert len(byte_strings) == len(strings), name
        assert byte_strings.nulls == strings.count(None), name
        assert byte_strings.total == sum(sizes), name
        assert byte_strings.longest == max(sizes, default=0), name
        raw = encode_batches(source, keys=source, headers=(ones, b"h", source))
        assert raw == expected, name


def test_fixed_width_and_null_arrays():
    fixed = pa.array([b"abc", None, b"x\0\0", b"def"], pa.binary(3))
    assert list(ByteStrings(fixed)) == fixed.to_pylist()
    chunked = pa.chunked_array([fixed[1:3], fixed[2:]])
    assert list(ByteStrings(chunked)) == [None, b"x\0\0", b"x\0\0", b"def"]
    assert list(ByteStrings(pa.nulls(9))) == [None] * 9
    assert list(ByteStrings(np.array([b"", b"a\0b\0"]))) == [b"", b"a\0b"]
    assert list(ByteStrings(np.zeros(3, "S4"))) == [b""] * 3
    assert list(ByteStrings(np.array([b"ab", b"cd"])[::-1])) == [b"cd", b"ab"]


def test_bad_rows_and_nulls_of_a_table_are_null():
    table = scan_records(encode_batches([b"one", None, b"three"]))
    rows = table.rows.copy()
    rows["fault"][2] = 1
    table = FrameTable(table.buffers, rows, (), table.format)
    assert list(ByteStrings((table, "value"))) == [b"one", None, None]


TIMES = [1_700_000_000_123, 0, -1, -62_135_596_800_000]


def test_masked_arrays_are_refused():
    masked = np.ma.array([5], mask=[True])
    for options in (
        dict(timestamps=masked),
        dict(timestamps=masked.astype("M8[ms]")),
        dict(select=masked),
    ):
        with pytest.raises(TypeError, match="a masked array"):
            encode_batches([b"a"], **options)


def test_every_kind_of_timestamps():
    expected = encode_batches(None, timestamps=TIMES)
    times = np.array(TIMES)
    strided = np.zeros(8, np.int64)
    strided[::2] = times
    for timestamps in (
        times,
        times.astype(">i8"),
        strided[::2],
        times.view("M8[ms]"),
        times.view("M8[ms]").astype(">M8[us]"),
        (times * 1000 + 999).view("M8[us]"),
        pa.array(TIMES),
        pa.array(TIMES, pa.timestamp("ms")),
        pa.array(times * 1000 + 1, pa.timestamp("us", "UTC")),
        pa.chunked_array([times[:1], times[1:]]),
        pa.array([0, *TIMES])[1:],
        scan_records(expected)["timestamp"],
        polars.Series(TIMES, dtype=polars.Datetime("ms")),
    ):
        assert encode_batches(None, timestamps=timestamps) == expected
    nanoseconds = (np.array(TIMES[:3]) * 1_000_000).view("M8[ns]")
    expected = encode_batches(None, timestamps=TIMES[:3])
    assert encode_batches(None, timestamps=nanoseconds) == expected
    days = np.array(["2024-02-29", "1969-12-31", "NaT"], "M8[D]")
    raw = encode_batches(None, timestamps=days)
    assert list_timestamps(raw) == [1709164800000, -86400000, -1]
    seconds = pa.array([7, None, -2], pa.timestamp("s"))
    assert list_timestamps(encode_batches(None, timestamps=seconds)) == [7000, -1, -2000]
    for small in (np.array([3, 4], np.uint8), pa.array([3, 4], pa.int16())):
        assert list_timestamps(encode_batches(None, timestamps=small)) == [3, 4]
    expected = encode_batches([b""] * 4, timestamps=[5] * 4)
    assert encode_batches([b""] * 4, timestamps=np.int32(5)) == expected


HEADERS = [[(b"a", b"1"), (b"a", None), (b"", b"x" * 40)], [], None, [(b"b", b"")], []]
HEADERS_READ = [((b"a", b"1"), (b"a", None), (b"", b"x" * 40)), (), (), ((b"b", b""),), ()]
HEADER_COLUMNS = [3, 0, 0, 1, 0], [b"a", b"a", b"", b"b"], [b"1", None, b"x" * 40, b""]
HEADER_STRUCTS = [
    None if row is None else [{"key": key, "value": value} for key, value in row] for row in HEADERS
]


def encode_headers(headers):
    """Encode records that have only headers, and the timestamp 0."""
    return encode_batches(None, timestamps=0, headers=headers)


def test_every_kind_of_headers():
    expected = encode_batches(None, timestamps=[0] * 5, headers=HEADER_COLUMNS)
    assert [row.headers for row in read(expected)] == HEADERS_READ
    last_two = encode_batches(None, timestamps=[0, 0], headers=([1, 0], [b"b"], [b""]))
    struct = pa.struct([("key", pa.string()), ("value", pa.binary_view())])
    swapped = pa.struct([("value", pa.binary()), ("key", pa.binary())])
    arrays = [pa.array(HEADERS, pa.map_(pa.string(), pa.binary()))]
    arrays += [
        pa.array(HEADER_STRUCTS, kind)
        for kind in (pa.list_(struct), pa.large_list(struct), pa.list_(swapped))
    ]
    for array in arrays:
        chunked = pa.chunked_array([array[:2], array[2:], array[:0]])
        sliced = pa.concat_arrays([array[3:], array])[2:]
        for headers in (array, sliced, chunked):
            assert encode_headers(headers) == expected, array.type
        assert encode_headers(array[3:]) == last_two
    of_polars = polars.List(polars.Struct({"key": polars.Binary, "value": polars.Binary}))
    assert encode_headers(polars.Series(HEADER_STRUCTS, dtype=of_polars)) == expected
    table = scan_records(expected)
    pairs = kafka.headers(table)
    assert encode_headers((table["header_count"], (pairs, "key"), (pairs, "value"))) == expected
    arrow = pa.table(table)  # wirescan's own export
    assert encode_headers(arrow["headers"]) == expected
    values, timestamps, headers = (arrow[name] for name in ("value", "timestamp", "headers"))
    assert encode_batches(values, timestamps=timestamps, headers=headers) == expected


# ---- selecting


@quiet
@given(
    strategies.records(least=1), st.lists(st.integers(0, 2**30)), st.sampled_from((100, 1 << 20))
)
def test_select_writes_those_rows_in_that_order(rows, numbers, most):
    rows = number_rows(rows, 0)
    numbers = [number % len(rows) for number in numbers]
    columns = columns_of(rows)
    selected = columns_of([rows[number] for number in numbers])
    wanted = encode_batches(**selected, batch_bytes=most)
    for select in (
        numbers,
        np.array(numbers, np.uint32),
        np.repeat(np.array(numbers, np.int64), 2)[::2],
    ):
        assert encode_batches(**columns, select=select, batch_bytes=most) == wanted
    del columns["headers"], selected["headers"]
    assert encode_message_sets(**columns, select=numbers) == encode_message_sets(**selected)
    wanted = encode_batches(b"v", keys=selected["keys"], timestamps=3)
    assert encode_batches(b"v", keys=columns["keys"], timestamps=3, select=numbers) == wanted


# ---- hostile and wrong arguments


def forge_array(kind, good, bad, data=bytes(40)):
    """Make an Arrow array with bad offsets or views.

    pyarrow validates an array when it is made. So the array is made of good numbers, which are
    then overwritten in place.
    """
    numbers = np.array(good)
    length = numbers.size - 1 if numbers.ndim == 1 else len(numbers)
    array = pa.Array.from_buffers(kind, length, [None, pa.py_buffer(numbers), pa.py_buffer(data)])
    numbers[:] = bad
    return array


def make_offsets(*offsets):
    return np.array(offsets, np.int32)


def make_views(size, buffer, at):
    """Return the views of a short string and of a string in a buffer."""
    return np.array([[3, 0, 0, 0], [size, 0, buffer, at]], np.int32)


FORGED = {
    "falling": ([0, 3, 2], b"abc"),
    "beyond": ([0, 1, 4], b"abc"),
    "negative": ([-1, 1, 2], b"abc"),
    "far below": ([-(2**63), 2**63 - 1], b"abc"),
    "far beyond": ([0, 2**63 - 1], b"abc"),
    "narrow and negative": (make_offsets(-(2**31), 2**31 - 1), b"abc"),
    "no offsets": (np.zeros(0, np.int64), b"abc"),
    "arrow, falling": forge_array(pa.binary(), make_offsets(0, 1, 2, 3), make_offsets(0, 2, 1, 3)),
    "arrow, beyond in between": forge_array(
        pa.binary(), make_offsets(0, 1, 2, 3), make_offsets(0, 2**31 - 1, 2, 3)
    ),
    "arrow, negative in between": forge_array(pa.large_binary(), [0, 1, 2, 3], [0, -(2**63), 2, 3]),
    "arrow, far in between": forge_array(pa.large_binary(), [0, 1, 2, 3], [0, 2**62, 2, 3]),
    "arrow, beyond": forge_array(pa.large_binary(), [0, 1], [0, 2**62]),
    "arrow, view of no buffer": forge_array(
        pa.binary_view(), make_views(1, 0, 0), make_views(20, 1, 0)
    ),
    "arrow, view of a negative buffer": forge_array(
        pa.binary_view(), make_views(1, 0, 0), make_views(20, -1, 0)
    ),
    "arrow, view beyond": forge_array(pa.binary_view(), make_views(1, 0, 0), make_views(20, 0, 21)),
    "arrow, view before": forge_array(pa.binary_view(), make_views(1, 0, 0), make_views(20, 0, -1)),
    "arrow, view of negative size": forge_array(
        pa.binary_view(), make_views(1, 0, 0), make_views(-2, 0, 0)
    ),
    "arrow, largest view": forge_array(
        pa.binary_view(), make_views(1, 0, 0), make_views(2**31 - 1, 0, 2**31 - 1)
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_arrays_are_refused(name):
    array = FORGED[name]
    reason = "view points outside" if "view" in name else "offsets"
    if name == "no offsets":
        reason = "here is none"
    for call in (
        ByteStrings,
        encode_batches,
        encode_message_sets,
        lambda strings: partition_of(strings, 3),
        lambda strings: encode_batches(None, keys=strings),
    ):
        with pytest.raises(ValueError, match=reason):
            call(array)


class ShortArrow:
    """An Arrow array whose buffers are too short. pyarrow itself cannot make such an array."""

    def __init__(self, array, *buffers):
        self.type = array.type
        self.offset = array.offset
        self._length = len(array)
        self._buffers = buffers

    def __len__(self):
        return self._length

    def buffers(self):
        return list(self._buffers)


@pytest.mark.parametrize(
    "cut, reason",
    [
        (
            ShortArrow(pa.array([b"abc"] * 9), None, make_offsets(0, 3, 6), b"abc" * 9),
            "12 bytes does not hold 10",
        ),
        (
            ShortArrow(pa.array([b"abc"] * 9), b"\xff", make_offsets(*range(0, 30, 3)), b"abc" * 9),
            "a validity bitmap of 1",
        ),
        (
            ShortArrow(
                pa.array([b"abc"] * 9)[8:], b"\xff", make_offsets(*range(0, 30, 3)), b"abc" * 9
            ),
            "a validity bitmap of 1",
        ),
        (
            ShortArrow(
                pa.array([b"abc"] * 9)[8:], None, make_offsets(*range(0, 27, 3)), b"abc" * 9
            ),
            "36 bytes does not hold 10",
        ),
        (
            ShortArrow(pa.array([b"abc"] * 9), None, make_offsets(*range(0, 30, 3)), None),
            "not in order in 0 bytes",
        ),
        (ShortArrow(pa.array([b"abc"] * 9), None, None, b"abc" * 9), "0 bytes does not hold 10"),
        (ShortArrow(pa.array([b"abc"] * 9, pa.binary(3)), None, b"abc" * 8), "do not fit into 24"),
        (
            ShortArrow(pa.array([b"abc"] * 9, pa.binary(3))[8:], None, b"abc" * 8),
            "do not fit into 0",
        ),
        (
            ShortArrow(pa.array([b"abc"] * 9, pa.binary_view()), None, bytes(16 * 8)),
            "128 bytes does not hold 9",
        ),
        (
            ShortArrow(
                pa.array([b"abc" * 9] * 9, pa.binary_view()),
                None,
                np.array([[27, 0, 0, 0]] * 9, np.int32),
                b"abc" * 8,
            ),
            "its view points outside",
        ),
    ],
)
def test_buffers_that_end_too_early_are_refused(cut, reason, monkeypatch):
    from wirescan.core import strings

    monkeypatch.setattr(strings, "list_chunks", lambda source: [source])
    monkeypatch.setattr(strings, "is_arrow", lambda source: True)
    with pytest.raises(ValueError, match=reason):
        ByteStrings(cut)


def test_forged_dictionaries_and_lists_are_refused():
    codes = pa.DictionaryArray.from_arrays(
        pa.array([0, 9], pa.int32()), pa.array([b"a"]), safe=False
    )
    with pytest.raises(ValueError, match="out of bounds"):
        ByteStrings(codes)
    pairs = pa.array([{"key": b"a", "value": b"b"}] * 3)
    for ends in ([0, 4, 3], [2, 1, 3], [-1, 2, 3], [0, 2**31 - 1, 3]):
        offsets = make_offsets(0, 1, 3)
        lists = pa.Array.from_buffers(
            pa.list_(pairs.type), 2, [None, pa.py_buffer(offsets)], children=[pairs]
        )
        offsets[:] = ends
        with pytest.raises(ValueError, match="headers do not fit|Negative offsets"):
            encode_batches([b""] * 2, headers=lists)


@pytest.mark.parametrize(
    "place", [(0, 0, 11), (0, 11, 1), (0, -1, 2), (1, 0, 1), (0, 2**62, 5), (0, 0, 2**31 - 1)]
)
def test_forged_tables_are_refused(place):
    rows = np.zeros(2, kafka.RECORD)
    rows["key_size"] = -1
    rows["buffer"][1], rows["start"][1], rows["value_size"][1] = place
    table = FrameTable((memoryview(b"0123456789"),), rows, (), kafka.RECORDS)
    with pytest.raises(ValueError, match="row 1 points outside"):
        encode_batches((table, "value"))
    assert list(ByteStrings((table, "key"))) == [None, None]


def test_nothing_is_read_outside():
    """The strings end right before a memory page without read access."""
    for size in range(150):
        guarded = GuardedMemory(size)
        data = guarded.place_at_end(bytes(size))
        codec = "lz4" if size % 9 == 0 else "none"
        for strings in (([0, size], data), np.frombuffer(data, f"S{size}") if size else [b""]):
            encode_batches(strings, keys=strings, codec=codec)
            encode_message_sets(strings, keys=strings)
            partition_of(strings, 5)
            partition_of(strings, 5, "crc32")
        del data, strings


VALUES = [b"v"] * 3


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_batches(VALUES, keys=[b""]), "columns of unequal length: 3 values, 1 keys"),
        (lambda: encode_batches(VALUES, timestamps=[1, 2]), "unequal length"),
        (lambda: encode_batches(VALUES, timestamps=[1]), "unequal length"),
        (lambda: encode_batches(VALUES, headers=([1], [b"a"], [b"b"])), "unequal length"),
        (
            lambda: encode_batches(VALUES, headers=([1, 1, 0], [b"a"], [b"b"])),
            "keys: there are 1 byte strings, not 2",
        ),
        (lambda: encode_batches(VALUES, headers=([1, -1, 1], [b"a"], [b"b"])), "do not fit"),
        (
            lambda: encode_batches(VALUES, headers=([2**40, 1 - 2**40, 0], [b"a"], [b"b"])),
            "do not fit",
        ),
        (
            lambda: encode_batches(VALUES, headers=([0, 1, 1], [b"a", None], b"")),
            "row 2: a header's key must not be null",
        ),
        (
            lambda: encode_batches(VALUES, headers=([0, 1, 1], [b"a", None], b""), batch_bytes=1),
            "row 2: a header's key",
        ),
        (
            lambda: encode_batches(
                VALUES, headers=([0, 1, 1], [b"a", None], b""), select=[1, 0, 2, 2]
            ),
            "row 2: a header's",
        ),
        (
            lambda: encode_batches(
                VALUES,
                headers=pa.array(
                    [[None], [], []],
                    pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
                ),
            ),
            "row 0: a header's key must not be null",
        ),
        (lambda: encode_batches(b"v"), "the number of records is its length"),
        (
            lambda: encode_batches(None, keys=b"k", timestamps=3),
            "the number of records is its length",
        ),
        (
            lambda: encode_batches(VALUES, select=[0, 3]),
            "select has rows from 0 to 3, but there are 3",
        ),
        (lambda: encode_batches(VALUES, select=[-1]), "select has rows from -1 to -1"),
        (lambda: encode_batches([], select=[0]), "but there are 0"),
        (lambda: encode_batches(VALUES, batch_bytes=0), "batch_bytes must be from 1"),
        (lambda: encode_batches(VALUES, batch_bytes=2**31), "batch_bytes must be from 1"),
        (lambda: encode_batches(VALUES, base_offset=2**63 - 2), "the last offset must be"),
        (lambda: encode_batches(VALUES, base_sequence=-2), "base_sequence must be from -1"),
        (lambda: encode_batches(VALUES, base_sequence=2**31), "base_sequence must be from"),
        (lambda: encode_batches(VALUES, producer_epoch=2**15), "producer_epoch"),
        (lambda: encode_batches(VALUES, timestamps=2**63), "timestamps must be from"),
        (
            lambda: encode_batches(VALUES, timestamps=np.array([2**60] * 3, "M8[s]")),
            "does not fit in 64 bits of milliseconds",
        ),
        (
            lambda: encode_batches(VALUES, timestamps=np.array([-(2**62)] * 3, "M8[D]")),
            "does not fit in 64 bits of milliseconds",
        ),
        (lambda: encode_batches(VALUES, codec="brotli"), "codec must be one of"),
        (lambda: encode_batches(VALUES, codec="gzip", level=10), "levels from 0 to 9"),
        (lambda: encode_batches([], codec="gzip", level=10), "levels from 0 to 9"),
        (lambda: encode_batches(VALUES, level=1), "codec none has no levels"),
        (lambda: encode_batches(VALUES, timestamp_type="log"), "timestamp_type"),
        (
            lambda: encode_batches((scan_records(encode_batches(VALUES)), "offset")),
            "kafka.records has no place 'offset'",
        ),
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
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_values_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_batches(["text"]), "values: string 0 must be bytes or None, not str"),
        (lambda: encode_batches([b"", 5]), "values: string 1 must be bytes"),
        (lambda: encode_batches("text"), "byte strings are .* not str"),
        (lambda: encode_batches(np.arange(3)), "of dtype S, in one dimension, not int64 in 1"),
        (lambda: encode_batches(np.array(["u"])), "of dtype S"),
        (lambda: encode_batches(np.zeros((2, 2), "S1")), "of dtype S"),
        (lambda: encode_batches(VALUES, keys=np.zeros(3)), "keys: .* not float64"),
        (lambda: encode_batches(pa.array([1, 2])), "binary or string, not int64"),
        (lambda: encode_batches(pa.array([[b"a"]])), "binary or string, not list"),
        (
            lambda: encode_batches(scan_records(encode_batches(VALUES))),
            "binary or string, not struct",
        ),
        (lambda: encode_batches(([0.0, 1.0], b"a")), "offsets of int32 or int64"),
        (lambda: encode_batches((np.array([0, 1], ">i4"), b"a")), "offsets of int32 or int64"),
        (lambda: encode_batches(([0, 1], "a")), "the place 'a' is one of a table, not of list"),
        (lambda: encode_batches(([0, 1], 5)), "not a contiguous bytes-like object: int"),
        (lambda: encode_batches(([0, 1], np.zeros(8, np.uint8)[::2])), "not a contiguous"),
        (lambda: encode_batches((b"a", b"b")), "a pair is"),
        (lambda: encode_batches(VALUES, timestamps=1.5), "timestamps must be an integer"),
        (lambda: encode_batches(VALUES, timestamps=[1.5, 2, 3]), "timestamps must be integers"),
        (
            lambda: encode_batches(VALUES, timestamps=np.zeros(3, np.uint64)),
            "timestamps must be integers",
        ),
        (lambda: encode_batches(VALUES, timestamps=np.zeros((3, 1), "M8[ms]")), "one dimension"),
        (lambda: encode_batches(VALUES, timestamps="now"), "timestamps must be an integer"),
        (
            lambda: encode_batches(VALUES, timestamps=pa.array(["a"] * 3)),
            "of type timestamp or int64, not string",
        ),
        (
            lambda: encode_batches(VALUES, headers=[[(b"a", b"b")]] * 3),
            "headers must be an Arrow array",
        ),
        (
            lambda: encode_batches(VALUES, headers=pa.array([[1]] * 3)),
            "list<struct<key, value>> or map, not list",
        ),
        (
            lambda: encode_batches(VALUES, headers=pa.array([[{"key": b"", "v": b""}]] * 3)),
            "not list<",
        ),
        (
            lambda: encode_batches(VALUES, headers=([1.0] * 3, VALUES, VALUES)),
            "the counts of headers must be integers",
        ),
        (lambda: encode_batches(VALUES, select=[True, False, True]), "select must be integers"),
        (lambda: encode_batches(VALUES, select=1), "select must be integers"),
        (lambda: encode_batches(VALUES, base_offset=0.0), "base_offset must be an integer"),
        (lambda: encode_batches(VALUES, batch_bytes=1e6), "batch_bytes must be an integer"),
        (lambda: encode_batches(VALUES, codec="gzip", level=1.0), "level must be an integer"),
        (lambda: partition_of(VALUES, 2.5), "integer"),
        (lambda: partition_of(np.arange(3), 2), "of dtype S"),
        (lambda: murmur2("text"), "bytes-like"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_of_another_type(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_records_that_are_too_large():
    """They are measured first, so their bytes are neither read nor copied."""
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
        # All 2**24 headers share the same bytes.
        with pytest.raises(ValueError, match="row 0 is too large"):
            encode_batches(b"", keys=[b"k"], headers=([1 << 24], b"h" * 200, b""))
        del half
        gc.collect()


def test_a_result_larger_than_the_memory_is_a_memory_error():
    """The same value of a gibibyte is selected many times, so the system refuses the memory."""
    select = np.zeros(1 << 20, np.int64)
    with mmap.mmap(-1, 1 << 30) as sparse, pytest.raises(MemoryError, match="no memory for"):
        values = ByteStrings(([0, 1 << 30], sparse))
        try:
            encode_batches(values, select=select)
        finally:
            del values
            gc.collect()


# ---- memory


def test_the_result_does_not_refer_to_the_arguments():
    data = bytearray(b"abcdef")
    times = np.array([1, 2])
    raw = encode_batches(([0, 3, 6], data), timestamps=times)
    before = bytes(raw)
    data[:] = b"xxxxxx"
    data.extend(bytes(100))  # an error if a buffer of `data` were still exported
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
    with pytest.raises(BufferError, match="Existing exports"):
        data.extend(b"more")
    items = [bytes([i]) * 100 for i in range(100)]
    of_list = ByteStrings(items)
    taken = ByteStrings(items).take([5, 6])
    arrow = ByteStrings(pa.array(items).dictionary_encode())
    place = ByteStrings((scan_records(encode_batches(items, codec="zstd")), "value"))
    expected = list(items)
    items.clear()
    gc.collect()
    encode_batches([bytes(100)] * 1000, codec="zstd")
    assert list(strings) == [b"abcdef"] * 1000
    assert list(of_list) == expected
    assert list(arrow) == expected
    assert list(place) == expected
    assert list(taken) == expected[5:7]
    assert list(ByteStrings(taken)) == expected[5:7]


# ---- partitions

# From Kafka's UtilsTest.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"abc": 479470107,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}


def slow_murmur2(key):
    """Compute the hash as Kafka's Utils.murmur2 does."""

    def multiply(value):
        return value * 0x5BD1E995 & 0xFFFFFFFF

    value = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = multiply(int.from_bytes(key[at : at + 4], "little"))
        value = multiply(value) ^ multiply(word ^ word >> 24)
    if whole < len(key):
        value = multiply(value ^ int.from_bytes(key[whole:], "little"))
    value = multiply(value ^ value >> 13)
    return value ^ value >> 15


def test_murmur2_has_the_values_of_kafkas_tests():
    assert {key: murmur2(key) for key in VECTORS} == VECTORS
    assert partition_of(list(VECTORS), 2**31 - 1).tolist() == [
        (number & 0x7FFFFFFF) % (2**31 - 1) for number in VECTORS.values()
    ]


@quiet
@given(st.lists(st.none() | st.binary(max_size=70)), st.sampled_from((1, 2, 7, 1000, 2**31 - 1)))
def test_partitions_are_those_of_the_hash(keys, partitions):
    def slow_partition(key, count):
        return -1 if key is None else (slow_murmur2(key) & 0x7FFFFFFF) % count

    chosen = partition_of(keys, partitions)
    assert chosen.dtype == np.int32
    assert chosen.tolist() == [slow_partition(key, partitions) for key in keys]
    count = partitions % 999 + 1
    chosen = partition_of(pa.array(keys, pa.binary_view()), np.int16(count), how="crc32")
    assert chosen.tolist() == [-1 if key is None else zlib.crc32(key) % count for key in keys]
    assert all(slow_murmur2(key) == murmur2(key) & 0xFFFFFFFF for key in keys if key is not None)
    same = partition_of(ByteStrings(b"key", 3), 5)
    assert same.tolist() == [slow_partition(b"key", 5)] * 3


def test_a_producer_divides_an_array_among_partitions():
    """Each row goes to the partition of its key, and the rows of a partition stay in order."""
    keys = [b"%d" % (i * 7919 % 50) for i in range(1000)]
    values = [b"value-%d" % i for i in range(1000)]
    partitions = partition_of(keys, 6)
    order = np.argsort(partitions, kind="stable")
    groups = np.split(order, np.searchsorted(partitions[order], np.arange(1, 6)))
    count = 0
    for partition, select in enumerate(groups):
        rows = read(encode_batches(values, keys=keys, select=select))
        assert [(row.key, row.value) for row in rows] == [
            (key, value)
            for key, value, chosen in zip(keys, values, partitions)
            if chosen == partition
        ]
        count += len(rows)
    assert count == 1000
