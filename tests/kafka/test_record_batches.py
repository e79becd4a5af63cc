"""Kafka records: all code paths return equal rows, and no kernel reads outside its buffers."""

import random
import struct
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirescan
from tests.laws.cases import steady
from tests.laws.packages import PACKAGES
from tests.strategies import kafka as strategies
from tests.support import kafka_bytes as golden
from tests.support.kafka_bytes import (
    TIME,
    make_batch,
    make_message,
    make_record,
    make_varint,
)
from wirescan import FrameTable, Limits, kafka
from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import HEAD, spans
from wirescan.files.source import MappedFile
from wirescan.frames.scanned_columns import PlaceColumns
from wirescan.kafka.encode.records import Record, encode_batch
from wirescan.kafka.record_batches.scan import PATHS, open_records
from wirescan.testing import laws


def read_by_every_path(raw, check=True):
    """Return the rows of the uncompressed batches, after a check that all paths agree on them.

    The columns that a writer makes of them have the same values.
    """
    batches = kafka.scan(raw, errors="mark", check=check)
    return check_every_path(batches[batches["codec"] == 0], check)


def check_every_path(batches, check):
    """Return the rows of batches, after the same check."""
    counts = batches["record_count"].astype(np.int32)
    open_all = partial(
        open_records, batches.rows, batches.buffers, spans(batches.rows), counts, check, Limits()
    )
    results = [open_all(path=path) for path in PATHS]
    first_rows = results[0][0]
    for (rows, bad, fault), path in zip(results, PATHS):
        assert rows.tobytes() == first_rows.tobytes(), path
        assert (bad, fault) == (np.count_nonzero(rows["fault"]), 0), path
    for kind in (pa.binary_view(), pa.binary(), pa.large_binary()):
        assert_columns(open_all, FrameTable(batches.buffers, first_rows, ()), kind)
    return first_rows


def assert_columns(open_all, table, kind):
    """Assert that every path writes the columns of a table, unless one of its rows is bad."""
    for path in PATHS:
        writer = ColumnWriter(kafka.RECORD)
        writer.add_sum("header_count")
        writer.add_rows("headers", "header_count")
        for name in ("parent", "timestamp", "offset"):
            writer.add_numbers(name)
        for name in ("value", "key"):
            if kind == pa.binary_view():
                writer.add_views(name)
            else:
                writer.add_gathered(name, large=kind == pa.large_binary())
        open_all(path=path, writer=writer)
        assert writer.failed == table.bad.any(), path
        if writer.failed:
            continue
        assert len(writer) == len(table)
        for name in ("parent", "timestamp", "offset"):
            assert writer.take_numbers(name).tolist() == table[name].tolist(), (path, name)
        for name in ("value", "key"):
            column = PlaceColumns(writer).make_place(name, kind)
            column.validate(full=True)
            wanted = [getattr(row, name) for row in table]
            assert column.to_pylist() == [None if x is None else bytes(x) for x in wanted], path
        count = table["header_count"]
        assert writer.take_sum("header_count") == count.sum()
        numbers, rows = writer.take_rows("headers")
        assert numbers.tolist() == np.flatnonzero(count).tolist(), path
        assert rows.tobytes() == table.rows[count > 0].tobytes(), path


def test_the_fast_paths_exist():
    assert PATHS[:2] == ("plain", "portable")
    no_batches = np.empty(0, kafka.BATCH)
    no_spans = np.empty(0, HEAD)
    no_counts = np.empty(0, np.int32)
    check = True
    with pytest.raises(ValueError, match="portable"):
        open_records(no_batches, (), no_spans, no_counts, check, Limits(), path="fast")


@steady
@given(st.data(), st.booleans())
def test_paths_agree_on_any_bytes(data, check):
    read_by_every_path(data.draw(PACKAGES["kafka"].damaged | strategies.logs()), check)


def test_paths_agree_on_every_length_of_varints():
    """Lengths, timestamps and offsets take from one byte to the most that a varint can have.

    They come in any order, and also near the batch's end.
    """
    chance = random.Random(1)
    sizes = [-1, 0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 8193, 1 << 20]
    deltas = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 20, 1 << 27, 2**31 - 1, -(2**31)]
    times = [*deltas, 2**34, 2**41, 2**48, 2**55, 2**62, -(2**63) + 1]
    for options in ({}, {"timestamp_type": "append", "max_timestamp": 7}):
        for _ in range(150):
            rows = []
            for _ in range(chance.choice((1, 1, 2, 3, 10, 40))):
                key, value = (
                    None if size < 0 else bytes(size) for size in chance.choices(sizes[:-1], k=2)
                )
                if not chance.randrange(40):
                    value = bytes(1 << 20)
                headers = [(b"h", None)] * (not chance.randrange(5)) * chance.randrange(1, 3)
                time = TIME + chance.choice(times) % 2**62
                rows.append(Record(2**32 + chance.choice(deltas), time, key, value, headers))
            raw = encode_batch(
                rows, base_offset=2**32, last_offset=2**32, base_timestamp=TIME, **options
            )
            table = read_by_every_path(raw)
            assert not table["fault"].any()
            assert table["offset"].tolist() == [row.offset for row in rows]
            assert table["timestamp"].tolist() == [7 if options else row.timestamp for row in rows]
            assert table["header_count"].tolist() == [len(row.headers) for row in rows]


def test_paths_agree_on_tiny_batches():
    for count in range(9):
        raw = encode_batch([Record(i, 0, None, None) for i in range(count)])
        twice = raw * 2 + encode_batch([])
        assert len(read_by_every_path(raw)) == count
        assert len(read_by_every_path(twice)) // 2 == count
    smallest = b"\x0c\0\0\0\1\1\0"  # seven bytes: key and value are null, no headers
    for cut in range(len(smallest) + 1):
        for count in (0, 1, 2, 3, 7, 8, 1000):
            read_by_every_path(make_batch(smallest[:cut], count))
            for whole in (2, 7):
                records = smallest * whole + smallest[:cut]
                read_by_every_path(make_batch(records, count) + encode_batch([]))


NO_HEADERS = dict(
    header_count=0,
    header_key_length=b"",
    header_key=b"",
    header_value_length=b"",
    header_value=b"",
    second_key_length=b"",
    second_value_length=b"",
)


def test_paths_agree_on_odd_varints():
    """Varints that are longer than necessary, or out of range, in each field of a record."""
    forms = [make_varint(n, size) for n in (0, 1, -1, 3, 5) for size in range(1, 12)]
    forms += [make_varint(n) for n in (2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**62)]
    forms += [b"\xff" * size for size in (1, 4, 5, 10)]
    for name in [*golden.NUMBERS[:5], "length"]:
        for form in forms:
            changed = {name.replace(" ", "_"): form}
            odd = make_record(**changed)
            plain = make_record(**NO_HEADERS | changed)
            for payload, count in (
                (odd, 1),
                (plain, 1),
                (plain * 3, 3),
                (odd + plain * 2, 3),
                (plain + odd, 2),
                # The layouts of varints are learnt only where many records are left.
                (plain * 20, 20),
                (odd + plain * 20, 21),
                (plain * 5 + odd + plain * 20, 26),
            ):
                read_by_every_path(make_batch(payload, count))
                read_by_every_path(make_batch(payload, count) + make_batch(make_record() * 4, 4))


def make_varied_records(count, seed):
    """Return records whose varints change their sizes from one record to the next."""
    chance = random.Random(seed)
    records = []
    for number in range(count):
        key, value = (bytes(chance.choice((3, 70, 300))) for _ in range(2))
        key_length = chance.choice((-1, len(key)))
        value_length = chance.choice((-1, len(value), len(value)))
        headers = {} if chance.randrange(3) == 0 else NO_HEADERS
        records.append(
            make_record(
                timestamp=chance.choice((1, -100, 20_000, 3_000_000)),
                offset=number,
                key_length=key_length,
                key=key if key_length >= 0 else b"",
                value_length=value_length,
                value=value if value_length >= 0 else b"",
                **headers,
            )
        )
    return records


@pytest.mark.parametrize("seed", range(3))
def test_varied_records_are_read_by_the_fast_paths(seed):
    """Records of every shape follow records of varied layouts, and good ones follow them."""
    before, after = make_varied_records(12, seed), make_varied_records(4, seed + 100)
    many = make_varied_records(300, seed + 200)
    rows = read_by_every_path(make_batch(b"".join(many), len(many)))
    assert not rows["fault"].any()
    assert rows["size"].tolist() == list(map(len, many))
    numbers = (0, 1, -1, -2, 3, 5, 2**32, 2**34)
    lengths = [make_varint(n, size) for n in numbers for size in range(1, 10)]
    counts = [make_varint(n) for n in (-1, 1, 2, 3, 63, 64, 2**28)]
    odd = [make_record(**{name: form}) for form in lengths for name in ("offset", "timestamp")]
    odd += [make_record(**{name: form}) for form in lengths for name in ("key_length", "length")]
    # The three varints that follow the attributes may fill the eight bytes of a word.
    odd += [make_record(timestamp=1, offset=form) for form in lengths]
    odd += [make_record(timestamp=1, key_length=form) for form in lengths]
    odd += [make_record(value_length=form) for form in lengths]
    odd += [make_record(header_count=form) for form in counts]
    odd += [make_record(**NO_HEADERS) + b"\0", make_record(length=40, **NO_HEADERS) + bytes(40)]
    odd += [make_record(length=12, **NO_HEADERS), make_record(length=10_000)]
    body = len(make_record(**NO_HEADERS)) - 1
    odd += [make_record(length=make_varint(body, size), **NO_HEADERS) for size in range(1, 11)]
    odd += [make_record(length=-body - 1, **NO_HEADERS)]  # its code is one more than that of body
    for record in odd:
        raw = b"".join([*before, record, *after])
        read_by_every_path(make_batch(raw, len(before) + 1 + len(after)))


@pytest.mark.parametrize("seed", range(3))
def test_batches_of_alike_and_of_varied_records_follow_each_other(seed):
    """The rows do not depend on what the loops remember of the batches before."""
    draw = random.Random(seed)
    alike = [make_record(offset=n) for n in range(1500)]
    raw = b""
    expected = []
    for number in range(24):
        most = draw.choice([1, 7, 8, 9, 60, 300, 1500])
        is_varied = draw.random() < 0.6
        records = make_varied_records(most, 100 * seed + number) if is_varied else alike[:most]
        if draw.random() < 0.3:
            # No fast loop reads this record.
            records.insert(draw.randrange(most), make_record(offset=make_varint(1, 5)))
        raw += make_batch(b"".join(records), len(records))
        expected += map(len, records)
    rows = read_by_every_path(raw)
    assert not rows["fault"].any()
    assert rows["size"].tolist() == expected


def encode_string(value):
    """Return a byte string after its length, as messages of magic 0 and 1 have it."""
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


@pytest.mark.parametrize("magic", [0, 1])
def test_columns_of_plain_messages(magic):
    """Columns equal the rows. A bad message makes the writer fail."""
    good = [
        make_message(magic, key_and_value, offset=offset)
        for offset, key_and_value in enumerate(
            encode_string(key) + encode_string(value)
            for key in (b"", None, b"k", bytes(range(12)), bytes(range(13)), bytes(200))
            for value in (b"", None, b"v" * 12, b"v" * 13, b"v" * 3000)
        )
    ]
    rows = read_by_every_path(b"".join(good))
    assert len(rows) == len(good)
    assert not rows["fault"].any()
    null, empty, short = encode_string(None), encode_string(b""), encode_string(b"short")
    odd = [
        struct.pack(">i", length) + value for length in (-2, -(2**31)) for value in (empty, short)
    ]
    odd += [short + struct.pack(">i", -2), null + struct.pack(">i", -(2**31))]
    for key_and_value in odd:
        rows = read_by_every_path(b"".join([*good, make_message(magic, key_and_value), *good]))
        assert not rows["fault"].any()
    bad = [short + empty + b"\0", short + null + b"\0", null + empty + short]
    bad += [struct.pack(">i", length) + short for length in (10, 11, 2**31 - 1)]
    bad += [short + struct.pack(">i", length) + b"v" for length in (0, 2, 2**31 - 1)]
    for key_and_value in bad:
        rows = read_by_every_path(b"".join([*good, make_message(magic, key_and_value), *good]))
        assert np.count_nonzero(rows["fault"]) == 1
    batches = kafka.scan(b"".join(good))
    forged = batches.rows.copy()
    forged["codec"][0] = 1
    assert check_every_path(replace(batches, rows=forged), check=True)["fault"][0]


def test_views_into_a_file_above_2_gib(tmp_path):
    """Also of batches on both sides of a multiple of 1 GiB, where another window begins."""
    window = 1 << 30
    path = tmp_path / "sparse"
    spots = [0, window - 90, 2 * window, 2 * window + 600, 3 * window - 100, (4 << 30) + 5]
    raw = encode_batch([Record(i, TIME, b"key", b"value of %d" % i * 4) for i in range(8)])
    with open(path, "wb") as file:
        for spot in spots:
            file.seek(spot)
            file.write(raw)
        file.truncate((5 << 30) + 123)
    file = memoryview(MappedFile(str(path)))
    batches = np.repeat(kafka.scan(raw).rows, len(spots))
    batches["start"] = spots
    counts = np.full(len(spots), 8, np.int32)
    check = True
    open_all = partial(open_records, batches, (file,), spans(batches), counts, check, Limits())
    table = FrameTable((file,), open_all()[0], ())
    assert table["offset"].tolist() == list(range(8)) * len(spots)
    assert_columns(open_all, table, pa.binary_view())


def test_a_value_of_1_gib_is_too_long_for_a_view(tmp_path):
    """The writer fails. So the caller reads rows, and their export names the fault."""
    size = 1 << 30
    head = bytearray(make_message(1, encode_string(None) + struct.pack(">i", size)))
    struct.pack_into(">i", head, 8, len(head) + size - 12)
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + size + 100)
    batches = kafka.scan(path, errors="mark", check=False, limits=Limits(frame=2 * size))[:1]
    assert kafka.records(batches, check=False)["value_size"].tolist() == [size]
    writer = ColumnWriter(kafka.RECORD)
    writer.add_views("value")
    counts = np.ones(1, np.int32)
    check = False
    open_records(
        batches.rows, batches.buffers, spans(batches.rows), counts, check, Limits(), writer=writer
    )
    assert writer.failed


@pytest.mark.parametrize("path", PATHS)
def test_views_into_a_batch_of_more_than_1_gib(tmp_path, path):
    """No window holds the whole batch, so its views are made of rows."""
    window = 1 << 30
    size = 6 * window // 10
    body = b"\0\0\0\1" + make_varint(size)
    large = make_varint(len(body) + size + 1) + body
    values = [b"%d is a value outside of its view" % i for i in range(400)]
    small = encode_batch([Record(0, 0, None, value) for value in values], base_offset=0)[61:]
    (first,) = kafka.scan(encode_batch([Record(0, 0, None, b"")])).rows
    start = window - 100
    position = start + first["body"]
    with open(tmp_path / "sparse", "wb") as file:
        for _ in range(2):
            file.seek(position)
            file.write(large)
            position += len(large) + size + 1
        file.seek(position)
        file.write(small)
        position += len(small)
        file.truncate(position)
    file = memoryview(MappedFile(str(tmp_path / "sparse")))
    batches = np.repeat(first, 2)
    batches["size"][0] = first["body"]
    batches["start"][1], batches["size"][1] = start, position - start
    counts = np.array([0, 2 + len(values)], np.int32)
    writer = ColumnWriter(kafka.RECORD)
    writer.add_views("value")
    open_records(
        batches,
        (file,),
        spans(batches),
        counts,
        check=True,
        limits=Limits(),
        path=path,
        writer=writer,
    )
    assert not writer.failed
    column = PlaceColumns(writer).make_place("value", pa.binary_view())
    column.validate(full=True)
    assert column[2:].to_pylist() == values


def test_rows_are_written_into_an_array_of_the_caller():
    raw = encode_batch(golden.RECORDS) * 3
    batches = kafka.scan(raw)
    out = np.empty(9, kafka.RECORD)
    table = kafka.records(batches, into=out)
    assert table.rows.base is out or np.shares_memory(table.rows, out)
    assert table.rows.tobytes() == kafka.records(batches).rows.tobytes()
    with pytest.raises(ValueError, match="into has 8 rows"):
        kafka.records(batches, into=np.empty(8, kafka.RECORD))
    for unfit in (
        np.empty(9, kafka.BATCH),
        np.empty(18, kafka.RECORD)[::2],
        np.empty((3, 3), kafka.RECORD),
        bytearray(576),
    ):
        with pytest.raises(TypeError, match="into"):
            kafka.records(batches, into=unfit)


@pytest.mark.parametrize(
    "column, value",
    [
        ("start", -1),
        ("start", 1 << 40),
        ("size", 2**32 - 1),
        ("buffer", 9),
        ("body", 2**32 - 1),
        ("start", 2**63 - 1),
    ],
)
def test_forged_batch_rows_are_refused(column, value):
    """Rows may come from a user: no row may make a kernel read outside its buffers."""
    for codec in ("none", "gzip"):
        batches = kafka.scan(encode_batch(golden.RECORDS, codec=codec))
        rows = batches.rows.copy()
        rows[column] = value
        forged = wirescan.FrameTable(batches.buffers, rows, batches.stops, batches.format)
        for check in (True, False):
            try:
                table = kafka.records(forged, errors="mark", check=check)
            except ValueError:
                continue
            assert column == "body"
            assert table.bad.all()


@pytest.mark.parametrize(
    "column, value",
    [
        ("headers_at", 2**32 - 1),
        ("start", -1),
        ("start", -(2**40)),
        ("buffer", 3),
        ("parent", -5),
        ("header_count", 2**31 - 1),
    ],
)
def test_forged_record_rows_are_refused(column, value):
    records = kafka.records(kafka.scan(encode_batch(golden.RECORDS)))
    rows = records.rows.copy()
    rows[column] = value
    forged = wirescan.FrameTable(records.buffers, rows, (), records.format, records.outer)
    try:
        table = kafka.headers(forged, errors="mark")
    except ValueError:
        return
    laws.places_are_in_their_frames(table)


def test_varints_that_fill_a_word_or_more():
    """All paths agree on long deltas beside long keys, which do not fit into one word."""
    for timestamp in (2**6, 2**13, 2**20, 2**27, 2**34, 2**41, 2**48, 2**62):
        for offset in (1, 2**6, 2**13, 2**20, 2**27):
            for size in (1, 2**6, 2**13):
                key = bytes(range(1, 256)) * (size // 255 + 1)
                rows = [
                    Record(0, 0, b"", b""),
                    Record(offset, timestamp, key, b"v"),
                    Record(offset + 1, 0, b"k", bytes(100)),
                ]
                table = kafka.scan(encode_batch(rows) + encode_batch(rows))
                fields = [
                    (row.offset, row.timestamp, bytes(row.key), bytes(row.value))
                    for row in kafka.records(table)
                ]
                assert fields == [row[:4] for row in rows] * 2


def test_columns_hold_what_the_docstrings_of_scan_and_records_say():
    wrapper = kafka.scan(
        kafka.encode_message_set([b"a", b"b", b"c"], magic=1, codec="gzip", base_offset=10)
    )
    assert wrapper["base_offset"][0] == 12
    assert wrapper["last_offset"][0] == 12
    assert wrapper["record_count"][0] == -1
    assert kafka.records(wrapper)["offset"].tolist() == [10, 11, 12]

    rows = [
        {"key": b"k", "timestamp": TIME + 5},
        {"key": b"k", "value": b"v", "timestamp": TIME + 9},
    ]
    for options, times, base_timestamp in (
        ({}, [TIME + 5, TIME + 9], TIME + 5),
        ({"delete_horizon": TIME + 100}, [TIME + 5, TIME + 9], TIME + 100),
        ({"timestamp_type": "append", "max_timestamp": TIME + 50}, [TIME + 50] * 2, TIME + 5),
    ):
        batches = kafka.scan(encode_batch(rows, **options))
        assert kafka.records(batches)["timestamp"].tolist() == times
        assert batches["base_timestamp"].tolist() == [base_timestamp]
        assert bool(batches["attributes"][0] & 64) == ("delete_horizon" in options)
        assert bool(batches["attributes"][0] & 8) == ("timestamp_type" in options)

    batches = kafka.scan(
        encode_batch(
            [b"a", b"b"], base_offset=7, producer_id=1, producer_epoch=0, base_sequence=2**31 - 1
        )
    )
    deltas = kafka.records(batches)["offset"] - batches["base_offset"]
    sequences = batches["base_sequence"].astype(np.int64) + deltas
    assert (sequences % 2**31).tolist() == [2**31 - 1, 0]


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_any_negative_length_is_null(length):
    body = b"\0" * 3 + make_varint(length) * 2 + b"\0"
    records = kafka.records(kafka.scan(make_batch(make_varint(len(body)) + body)))
    assert (records["key_size"][0], records["value_size"][0]) == (-1, -1)
    assert records[0].key is None
    assert records[0].value is None
