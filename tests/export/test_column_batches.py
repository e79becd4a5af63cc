"""Record batches that are read as columns: they are those that tables give."""

import glob
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import wirescan
from tests.laws.cases import steady
from tests.strategies import kafka as strategies
from tests.strategies import kafka_kbak
from tests.strategies import shared as st
from tests.support.paths import ORDERS
from wirescan import FrameError, Limits, kafka
from wirescan.core.column_writer import ColumnWriter
from wirescan.export import batches
from wirescan.export.batches import iter_batches
from wirescan.export.column_batches import ColumnReader, make_column_reader
from wirescan.frames.registry import format_of
from wirescan.frames.to_arrow import list_default_columns, make_schema
from wirescan.kafka.encode.records import Record, encode_batch, encode_message_set

FOUR = ["offset", "timestamp", "key", "value"]
COLUMNS = (
    FOUR,
    list_default_columns("kafka.records"),
    ["headers", "_start", "base_offset", "codec", "_fault", "parent", "is_control", "kind", "size"],
    ["timestamp_type", "offset", "control"],
    ["value", "value", "headers", "headers", "offset", "offset", "timestamp"],
    [],
)
TYPES = (("view", "arrow"), ("binary", "arrow"), ("large_binary", "arrow"), ("binary", "spark"))
# None passes all rows. The others exclude batches, or rows by numbers, texts or byte strings.
CONDITIONS = (
    None,
    "offset >= 3 and offset < 40",
    "value_size > 5 or key is null",
    "key != 'k1'",
    "timestamp > '2026-01-01' and not is_control",
    "offset < 0",
)
SEGMENTS = sorted(glob.glob(str(ORDERS / "*.log")))


def read(source, as_columns=True, **options):
    """Return the rows of a source, or the error that reading raises."""
    with pytest.MonkeyPatch.context() as patch:
        if not as_columns:
            patch.setattr(batches, "make_column_reader", lambda *arguments, **keywords: None)
        parts = []
        try:
            parts.extend(iter_batches(source, format="kafka.records", **options))
        except FrameError as error:
            return str(error), error.fault, error.offset, error.source
    for part in parts:
        part.validate(full=True)
    asked = options.get("columns"), options.get("binary", "binary"), options.get("types", "arrow")
    schema = make_schema("kafka.records", asked[0], binary=asked[1], types=asked[2])
    return pa.Table.from_batches(parts, schema)


def assert_same(source, **options):
    columns = read(source, **options)
    tables = read(source, as_columns=False, **options)
    assert type(columns) is type(tables)
    assert columns.equals(tables) if isinstance(columns, pa.Table) else columns == tables


@pytest.mark.parametrize("path", SEGMENTS)
@pytest.mark.parametrize(("binary", "types"), TYPES)
def test_columns_of_files_are_those_of_tables(path, binary, types):
    for columns in COLUMNS:
        for errors in ("strict", "mark", "skip"):
            assert_same(path, columns=columns, binary=binary, types=types, errors=errors)


@steady
@given(
    strategies.logs(),
    st.sampled_from(COLUMNS),
    st.sampled_from(TYPES),
    st.sampled_from(("strict", "mark", "skip")),
    st.booleans(),
    st.sampled_from(CONDITIONS),
)
def test_columns_of_any_log_are_those_of_tables(raw, columns, types, errors, check, where):
    options = {"errors": errors, "check": check, "where": where}
    assert_same(raw, columns=columns, binary=types[0], types=types[1], **options)


@steady
@given(st.data())
def test_damage_is_reported_as_by_tables(data):
    raw = data.draw(strategies.mutations(data.draw(strategies.logs())))
    # The numbers in `parent` count from the first batch of a group, and groups may differ.
    columns = [name for name in data.draw(st.sampled_from(COLUMNS)) if name != "parent"]
    errors = data.draw(st.sampled_from(("strict", "mark", "skip")))
    where = data.draw(st.sampled_from(CONDITIONS))
    assert_same(raw, columns=columns, errors=errors, check=data.draw(st.booleans()), where=where)


def make_log(batches=20, records=50, **options):
    return b"".join(
        encode_batch(
            [Record(n * records + i, 1000 + i, b"k%d" % i, b"v" * i) for i in range(records)],
            **options,
        )
        for n in range(batches)
    )


@pytest.mark.parametrize("where", [None, "offset < 10", "value_size > 3"])
@pytest.mark.parametrize("position", [11, 20, 70, -30, -1])
def test_a_checksum_that_is_verified_late_is_reported_at_its_batch(position, where):
    """Also in a batch that a filter excludes by its header: the header may be what is damaged."""
    raw = bytearray(make_log())
    size = len(raw) // 20
    raw[9 * size + position % size] ^= 1
    assert_same(bytes(raw), columns=FOUR, where=where)
    with pytest.raises(FrameError):
        list(iter_batches(bytes(raw), format="kafka.records", columns=FOUR, where=where))


def test_bad_records_have_the_nulls_of_tables():
    raw = bytearray(make_log())
    raw[-len(raw) // 20 + 61] = 1  # the length of the first record of the last batch is negative
    assert wirescan.scan(bytes(raw), "kafka.records", errors="mark", check=False).bad.sum() == 1
    assert_same(bytes(raw), columns=FOUR, errors="mark", check=False)


@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_filters_also_apply_where_a_batch_is_damaged(errors):
    raw = bytearray(make_log())
    raw[-1] ^= 1
    options = {"columns": FOUR, "errors": errors, "where": "value_size > 40"}
    assert_same(bytes(raw), **options)
    assert read(bytes(raw), **options).num_rows == 19 * 9


def test_the_first_of_two_faults_is_reported():
    """A damaged checksum before a damaged length, which the scan finds first."""
    raw = bytearray(make_log())
    size = len(raw) // 20
    raw[5 * size + 70] ^= 1
    raw[9 * size + 16] = 9
    with pytest.raises(FrameError, match="BAD_CHECKSUM") as caught:
        list(iter_batches(bytes(raw), format="kafka.records", columns=FOUR))
    assert caught.value.offset == 5 * size


def test_a_checksum_is_reported_before_another_fault_of_its_frame():
    """A negative count, which the scan finds without the checksum."""
    raw = bytearray(make_log())
    raw[9 * (len(raw) // 20) + 57] = 0xFF
    assert_same(bytes(raw), columns=FOUR)
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        list(iter_batches(bytes(raw), format="kafka.records", columns=FOUR))


@pytest.mark.parametrize("columns", [["headers"], ["value"]])
def test_pairs_count_if_they_are_not_exported_too(columns):
    pairs = [(b"", b"")] * 30_000
    bomb = encode_batch([Record(i, 0, None, b"", pairs) for i in range(20)], codec="gzip")
    options = {"columns": columns, "limits": Limits(expansion=64)}
    tables = read(bomb * 3, as_columns=False, **options)
    assert isinstance(tables, tuple) and "expansion" in tables[0]
    assert read(bomb * 3, **options) == tables


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_groups_have_about_as_many_records_each(monkeypatch, workers):
    """Their number is a multiple of four, so two or four threads have as many of them."""
    groups = []
    write_group = ColumnReader._write_group

    def note_group(self, group):
        groups.append(int(group.table["record_count"].sum()))
        return write_group(self, group)

    monkeypatch.setattr(ColumnReader, "_write_group", note_group)
    monkeypatch.setattr(batches, "BATCH_ROWS", 100)
    raw = b"".join(encode_batch([Record(i, 0, None, b"")] * 10) for i in range(100))
    read_rows = [len(b) for b in iter_batches(raw, format="kafka.records", workers=workers)]
    assert sorted(groups) == [120, 120, 120, 120, 130, 130, 130, 130]
    assert sum(read_rows) == 1000 and max(read_rows) <= 100


def make_grouping_reader(batch_rows):
    """Return a reader of records, whose groups are looked at."""
    return make_column_reader(
        "kafka.records",
        limits=Limits(),
        workers=1,
        schema=make_schema("kafka.records", FOUR),
        binary="binary",
        types="arrow",
        source=None,
        batch_rows=batch_rows,
        batch_bytes=1 << 20,
        errors="mark",
        check=True,
        filters=(),
    )


def test_forged_counts_make_no_group_of_others_larger():
    raw = b"".join(encode_batch([Record(i, 0, None, b"")] * 10) for i in range(400))
    table = kafka.scan(raw)
    rows = table.rows.copy()
    rows["record_count"][:5] = 2**31 - 1
    reader = make_grouping_reader(batch_rows=100)
    groups = list(reader._group(replace(table, rows=rows)))
    assert sum(map(len, groups)) == 400
    assert max(map(len, groups)) <= 20
    rows["record_count"] = -1  # as in wrappers: one is expected
    assert max(map(len, reader._group(replace(table, rows=rows)))) <= 200


@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "u4", ">i4", "u8", "i8"])
def test_formats_of_other_packages_may_count_in_any_integers(kind):
    raw = b"".join(encode_batch([Record(i, 0, None, b"")] * 3) for i in range(40))
    table = kafka.scan(raw)
    largest = np.iinfo(kind).max
    dtype = [
        (name, kind if name == "record_count" else field[0])
        for name, field in table.dtype.fields.items()
    ]
    rows = table.rows.astype(dtype)
    rows["record_count"][:5] = largest
    reader = make_grouping_reader(batch_rows=10)
    groups = list(reader._group(replace(table, rows=rows)))
    assert sum(map(len, groups)) == 40
    assert 6 <= len(groups) <= 16


def test_forged_counts_make_few_groups():
    """A group takes half a millisecond, and a forged batch has 69 bytes."""
    batch = bytearray(encode_batch([Record(0, 0, None, None)]))
    batch[57:61] = b"\x7f\xff\xff\xff"
    raw = bytes(batch) * 3000
    groups = []
    write_group = ColumnReader._write_group

    def note_group(self, group):
        groups.append(len(group.table))
        return write_group(self, group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ColumnReader, "_write_group", note_group)
        read(raw, columns=FOUR, errors="skip", check=False)
    assert sum(groups) == 3000
    assert len(groups) <= 32


@pytest.mark.parametrize("through_rows", [True, False])
def test_pairs_of_many_blocks_count(through_rows):
    pair = (b"", b"")
    raw = encode_batch([Record(i, 0, None, b"", [pair] * (i % 4)) for i in range(1000)]) * 3
    writer = ColumnWriter(kafka.RECORD)
    writer.add_sum("header_count")
    if through_rows:
        writer.add_numbers("size")  # a column that the fast kernel does not write
    format_of("kafka.records").write(kafka.scan(raw), writer, check=True, limits=Limits())
    assert writer.take_sum("header_count") == 4500


@pytest.mark.parametrize("columns", [["headers"], ["headers", "size"]])
@pytest.mark.parametrize("per_batch", [3, 7, 50, 1500])
def test_headers_stay_with_their_records(columns, per_batch):
    records = [
        Record(i, 0, None, b"v", [(b"h", b"%d" % i)] * (0 if i % 4 else i % 3)) for i in range(3000)
    ]
    raw = b"".join(
        encode_batch(records[i : i + per_batch]) for i in range(0, len(records), per_batch)
    )
    (batch,) = iter_batches(raw, format="kafka.records", columns=columns)
    assert batch["headers"].to_pylist() == [
        [{"key": key, "value": value} for key, value in record.headers] for record in records
    ]


@pytest.mark.parametrize("columns", [FOUR, ["headers"], ["value"]])
@pytest.mark.parametrize("workers", [1, 2, 8, 64])
@pytest.mark.parametrize("where", [None, "value_size > 0"])
def test_what_a_file_may_expand_to_depends_on_no_thread(tmp_path, columns, workers, where):
    pairs = [(b"", b"")] * 9000
    bomb = encode_batch([Record(i, 0, None, bytes(40_000), pairs) for i in range(20)], codec="gzip")
    noise = random.Random(7).randbytes(9000)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bomb * 20 + encode_batch([Record(99, 0, None, noise)]) * 400)
    limits = Limits(expansion=16)
    options = {"columns": columns, "limits": limits, "batch_bytes": 1 << 18, "where": where}
    tables = read(str(path), as_columns=False, **options)
    assert isinstance(tables, tuple) and "expansion" in tables[0]
    assert read(str(path), workers=workers, **options) == tables


def test_intact_records_are_read_without_tables(monkeypatch):
    def refuse(*arguments, **keywords):
        raise AssertionError("a table of rows was made")

    monkeypatch.setattr(batches, "to_batch", refuse)
    monkeypatch.setattr("wirescan.export.column_batches.open_nested", refuse)
    for codec in ("none", "gzip", "zstd"):
        rows = list(iter_batches(make_log(codec=codec), format="kafka.records"))
        assert sum(map(len, rows)) == 1000


@pytest.mark.parametrize("where", [None, "value_size > 20"])
@pytest.mark.parametrize("workers", [2, 5])
def test_threads_give_the_batches_of_one(workers, where, tmp_path):
    """Also the batches before a fault, which come before its error."""
    good = make_log(batches=40, codec="gzip") + make_log(batches=40)
    bad = bytearray(good)
    bad[-1] ^= 1
    path = tmp_path / "00000000000000000000.log"
    for raw in (good, bytes(bad)):
        path.write_bytes(raw)
        results = []
        for number in (1, workers):
            parts = []
            try:
                parts.extend(
                    iter_batches(
                        str(path),
                        format="kafka.records",
                        batch_bytes=9000,
                        workers=number,
                        where=where,
                    )
                )
            except FrameError as error:
                parts.append((str(error), error.offset))
            results.append(parts)
        assert len(results[0]) > 10 and len(results[0]) == len(results[1])
        assert all(one == other for one, other in zip(*results))


def test_bytes_in_memory_are_not_copied():
    raw = make_log()
    (batch,) = iter_batches(raw, format="kafka.records", columns=["value"], binary="view")
    payloads = batch.column(0).buffers()[2]
    first = pa.py_buffer(raw).address
    assert first <= payloads.address < payloads.address + payloads.size <= first + len(raw)


@pytest.mark.parametrize("path", SEGMENTS)
@pytest.mark.parametrize("where", [None, "offset >= 2000"])
@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
def test_mapped_files_give_the_batches_of_copied_files(path, where, errors):
    columns = [*FOUR, "_file", "_start"]
    options = {"columns": columns, "where": where, "errors": errors}
    assert read(path, mapped=True, **options).equals(read(path, **options))


def test_the_bytes_of_a_mapped_file_are_not_copied(tmp_path):
    """Bytes that the file gets later are in the batch, so it points into the file."""
    path = tmp_path / f"{0:020}.log"
    options = {"format": "kafka.records", "columns": ["value"], "binary": "view"}
    value = b"a value that is too long for the view itself"
    path.write_bytes(encode_batch([Record(0, 0, None, value)]))
    (mapped,) = iter_batches(str(path), mapped=True, **options)
    (copied,) = iter_batches(str(path), **options)
    with open(path, "r+b") as file:
        file.seek(path.read_bytes().index(value))
        file.write(value.upper())
    assert mapped["value"].to_pylist() == [value.upper()]
    assert copied["value"].to_pylist() == [value]


@pytest.mark.parametrize("where", [None, "offset >= 0"])
def test_damage_in_a_mapped_file_names_the_file(tmp_path, where):
    path = tmp_path / f"{0:020}.log"
    data = bytearray(make_log())
    data[-1] ^= 1
    path.write_bytes(data)
    error = read(str(path), mapped=True, where=where)
    assert error == read(str(path), where=where)
    assert error[3] == str(path)


def test_files_that_cannot_be_mapped_are_copied(tmp_path):
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"")
    assert read(str(path), mapped=True).num_rows == 0
    with pytest.raises(EOFError, match=f"{path.name} ends at 0"):
        list(iter_batches(str(path), 0, 10, format="kafka.records", mapped=True))
    path.write_bytes(make_log())
    with pytest.raises(EOFError, match=f"{path.name} has [0-9]+ bytes"):
        list(iter_batches(str(path), 0, 10**9, format="kafka.records", mapped=True))
    with pytest.raises(OSError, match="not a regular file"):
        list(iter_batches(str(tmp_path), format="kafka.records", mapped=True))
    for mapped in (True, False):
        with pytest.raises(FileNotFoundError):
            list(iter_batches("", format="kafka.records", mapped=mapped))


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batches_have_about_the_given_bytes(codec):
    raw = make_log(codec=codec)
    parts = list(iter_batches(raw, format="kafka.records", batch_bytes=5000))
    assert sum(map(len, parts)) == 1000 and len(parts) > 5
    rows = [value for part in parts for value in part["value"].to_pylist()]
    assert rows == [bytes(row.value) for row in wirescan.scan(raw, "kafka.records")]


@pytest.mark.parametrize("extra", [[], ["size"]])
@pytest.mark.parametrize("per_batch", [1, 7, 50, 127, 128, 129, 1000])
def test_nulls_of_all_blocks_are_kept(per_batch, extra):
    """Blocks of frames begin at any bit of a byte of the bitmaps.

    The fast kernel writes no column `size`, so with it the columns are made of rows. Without it, a
    record with 64 headers begins a block of rows. 1,024 records without so many are one block.
    """
    many = [("h", b"")] * 64
    records = [
        Record(
            i,
            -1 if i % 5 == 0 else i,
            b"k" if i % 3 else None,
            None if i % 7 else b"v" * (i % 1000),
            many if i < 1000 and i % 61 == 0 else [],
        )
        for i in range(4000)
    ]
    raw = b"".join(
        encode_batch(records[i : i + per_batch]) for i in range(0, len(records), per_batch)
    )
    for binary in ("view", "binary"):
        (batch,) = iter_batches(raw, format="kafka.records", columns=FOUR + extra, binary=binary)
        assert batch["key"].to_pylist() == [record.key for record in records]
        assert batch["value"].to_pylist() == [record.value for record in records]
        assert batch["key"].null_count == sum(record.key is None for record in records)


@pytest.mark.parametrize("columns", [FOUR, ["parent", "offset", "headers"], ["size", "offset"]])
@pytest.mark.parametrize("most", [6, 12, 300])
def test_batches_of_any_number_of_records_keep_their_order(columns, most):
    """The columns of several batches are completed together, up to a row or to another buffer.

    A record with 64 headers or more becomes a row first. The records of a compressed batch are in
    another buffer.
    """
    choose = random.Random(most)
    raw = b""
    first = 0
    for _ in range(200):
        count = choose.randint(1, most)
        rows = []
        for i in range(first, first + count):
            headers = [("h", b"%d" % i)] * choose.choice([1] * 20 + [70])
            rows.append(Record(i, i, None if i % 5 == 0 else b"k%d" % i, b"v" * (i % 20), headers))
        raw += encode_batch(rows, codec=choose.choice(["none", "none", "gzip"]))
        first += count
    for binary in ("view", "binary"):
        assert_same(raw, columns=columns, binary=binary)
    assert read(raw, columns=["offset"])["offset"].to_pylist() == list(range(first))


@pytest.mark.parametrize("format", ["kafka.records", "kafka.kbak_records"])
@pytest.mark.parametrize("binary", ["view", "binary", "large_binary"])
def test_a_parent_may_have_more_rows_than_a_block(format, binary):
    """The rows of a wrapper are written together, after its offsets are known."""
    records = [
        Record(i, 5, b"k%d" % i, None if i % 7 == 0 else b"v" * (i % 90)) for i in range(5000)
    ]
    if format == "kafka.records":
        raw = encode_message_set(records, magic=1, codec="gzip")
    else:
        rows = [(record.offset, 5, record.key, record.value, ()) for record in records]
        raw = kafka_kbak.make_segment(rows, kafka_kbak.NONE)
    (batch,) = iter_batches(raw, format=format, columns=["offset", "key", "value"], binary=binary)
    batch.validate(full=True)
    assert batch["offset"].to_pylist() == list(range(5000))
    assert batch["key"].to_pylist() == [record.key for record in records]
    assert batch["value"].to_pylist() == [record.value for record in records]


@pytest.mark.parametrize(("binary", "types"), TYPES)
def test_columns_that_grow_keep_what_they_have(binary, types):
    """More rows than are expected of so few bytes: the columns are moved as they grow."""
    records = [
        Record(i, 0, b"" if i % 3 else None, None if i % 7 == 0 else b"v" * (i % 2))
        for i in range(150_000)
    ]
    raw = encode_batch(records)
    assert_same(raw, columns=FOUR, binary=binary, types=types)
    keys = pa.chunked_array(
        batch["key"]
        for batch in iter_batches(raw, format="kafka.records", columns=FOUR, binary=binary)
    )
    assert keys.to_pylist() == [record.key for record in records]


@pytest.mark.parametrize("limits", [Limits(rows=100), Limits(row_bytes=6400), Limits(expansion=1)])
@pytest.mark.parametrize("where", [None, "offset >= 4500", "key == 'k7'"])
def test_limits_are_those_of_tables(limits, where):
    raw = make_log(batches=3, records=2000, codec="gzip")
    assert_same(raw, columns=FOUR, limits=limits, where=where)


@pytest.mark.parametrize("over", [0, 1, 2000])
@pytest.mark.parametrize("columns", [FOUR, ["key", "headers"]])
def test_messages_beyond_the_limit_are_not_written(columns, over):
    """The columns are full when the messages of magic 1 begin that are too many."""
    messages = b"".join(encode_message_set([b"value"], magic=1, base_offset=i) for i in range(2100))
    raw = encode_batch([Record(i, 0, None, b"") for i in range(3000)]) + messages
    assert_same(raw, columns=columns, limits=Limits(rows=5100 - over))


def test_more_rows_than_a_batch_may_have():
    raw = encode_batch([Record(i, 0, None, b"") for i in range(150_000)])
    parts = list(iter_batches(raw, format="kafka.records", columns=FOUR))
    assert sum(map(len, parts)) == 150_000
    assert max(map(len, parts)) <= batches.BATCH_ROWS


@pytest.mark.parametrize("stop", [-1, 100])
def test_a_range_outside_the_bytes_is_refused(stop):
    with pytest.raises((ValueError, EOFError)):
        list(iter_batches(b"12345", 0, stop, format="kafka.records"))
