"""Frames to Parquet: the files hold exactly the rows of the tables; all files appear, or none."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import wirescan
from tests.laws.cases import steady
from tests.laws.packages import PACKAGES
from tests.strategies import kafka as strategies
from tests.strategies import shared as st
from tests.support.paths import ORDERS
from wirescan import ExpansionError, FrameError, Limits
from wirescan.export import counted_batches
from wirescan.export import fault_report as faults
from wirescan.export import parquet_writer as sink
from wirescan.export.hive_layout import Layout
from wirescan.export.parquet import Summary, convert, write, write_counted
from wirescan.frames import to_arrow
from wirescan.kafka import Record, encode_batch
from wirescan.nats import encode_msg
from wirescan.reading.splits import Slice, plan

GOOD = encode_batch(
    [Record(i, 1_000 + i, b"k%d" % i, b"v" * i, [("h", b"%d" % i)]) for i in range(10)]
)
BAD = GOOD[:-1] + b"\xff"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(GOOD + BAD + GOOD)
    return str(path)


def list_parts(out):
    return sorted(path.name for path in out.iterdir())


def check_empty(out, columns=None):
    """One part file with the schema and no rows, so that readers know the columns."""
    assert list_parts(out) == ["_SUCCESS", "part-00000.parquet"]
    table = pq.read_table(out)
    assert table.num_rows == 0
    assert table.schema.remove_metadata() == to_arrow.make_schema(
        "kafka.records", columns, types="spark"
    )


def test_the_corpus_is_written_exactly(tmp_path):
    out = tmp_path / "out"
    columns = [*to_arrow.list_default_columns("kafka.records"), "codec", "_start"]
    done = convert(ORDERS, out, "kafka.records", columns=columns, size=300_000, file_bytes=1)
    table = wirescan.scan(ORDERS, "kafka.records")
    expected = pa.table(
        [to_arrow.to_batch(table, columns, types="spark").column(n) for n in columns],
        schema=to_arrow.make_schema("kafka.records", columns, types="spark"),
    )
    written = pq.read_table(out)
    assert written.schema.remove_metadata() == expected.schema and written.combine_chunks().equals(
        expected
    )
    names = [name for name in list_parts(out) if name != "_SUCCESS"]
    assert len(names) > 3 and names == [f"part-{n:05}.parquet" for n in range(len(names))]
    assert (done.files, done.frames, done.records, done.faults) == (9, 284, 27_708, 0)
    assert done.bytes == 2_213_570 and done.written == sum(
        (out / name).stat().st_size for name in names
    )
    assert done.seconds > 0


@pytest.mark.parametrize("format", ["kafka.batches", "kafka.records", "kafka.headers"])
@pytest.mark.parametrize("size", [20_000, 1 << 30])
def test_every_format_is_converted(tmp_path, format, size):
    done = convert(ORDERS, tmp_path / "out", format=format, size=size, workers=2)
    table = wirescan.scan(ORDERS, format)
    written = pq.read_table(tmp_path / "out")
    assert written.num_rows == len(table) == done.records and done.files == 9 and done.frames == 284
    assert written.schema.names == to_arrow.list_default_columns(format)
    if format == "kafka.records":
        assert written["offset"].to_pylist() == table["offset"].tolist()


def read_counted(path, format, columns, errors, *, as_columns, chunk=counted_batches.BATCH_BYTES):
    """Return what is written and counted of a file, or the error that reading raises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_batches, "BATCH_BYTES", chunk)
        # The frames become columns without tables, or only by tables.
        if as_columns and format == "kafka.records":
            patch.setattr(counted_batches, "open_nested", None)
        if not as_columns:
            patch.setattr(counted_batches, "make_column_reader", lambda *arguments, **options: None)
            patch.setattr(counted_batches, "can_write_columns", lambda scan: False)
        layout = Layout.from_columns(format, columns)
        advanced = []
        options = {"errors": errors, "advance": advanced.append}
        try:
            pieces = list(write_counted(plan(path, format), layout, **options))
        except FrameError as error:
            return str(error), error.source
    batches = [batch for piece in pieces for _, batch in piece.batches]
    faults_found = [piece.faults.to_pylist() for piece in pieces if piece.faults is not None]
    rows = pa.Table.from_batches(batches, layout.schema).combine_chunks()
    summary = sum((piece.summary for piece in pieces), Summary())
    return summary, sum(advanced), rows, faults_found


@steady
@given(
    st.one_of(strategies.logs(), strategies.damaged_logs()),
    st.sampled_from([["offset", "timestamp", "key", "value"], ["value", "fault", "_start"]]),
    st.sampled_from(["strict", "mark", "skip"]),
)
def test_columns_without_tables_are_written_and_counted_as_tables_are(raw, columns, errors):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"{0:020}.log")
        with open(path, "wb") as file:
            file.write(raw)
        by_columns = read_counted(path, "kafka.records", columns, errors, as_columns=True)
        by_rows = read_counted(path, "kafka.records", columns, errors, as_columns=False)
        assert by_columns == by_rows


@pytest.mark.parametrize(
    "name, format",
    [
        ("kafka", "kafka.batches"),
        ("lumberjack", "lumberjack.frames"),
        ("nats", "nats.messages"),
        ("liftbridge.entries", "liftbridge.entries"),
        ("thrift", "thrift.frames"),
    ],
)
def test_outermost_frames_are_written_and_counted_as_tables_are(name, format):
    package = PACKAGES[name]

    @steady
    @given(
        st.one_of(package.good, package.damaged),
        st.sampled_from(["strict", "mark", "skip"]),
        st.sampled_from([100, 1 << 20]),
        st.sampled_from([1, 20]),
    )
    def check(raw, errors, chunk, times):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "frames")
            with open(path, "wb") as file:
                file.write(raw * times)
            columns = ["_start", "size", "fault", *to_arrow.list_default_columns(format)]
            options = {"columns": list(dict.fromkeys(columns)), "errors": errors, "chunk": chunk}
            by_columns = read_counted(path, format, as_columns=True, **options)
            assert by_columns == read_counted(path, format, as_columns=False, **options)

    check()


def test_the_limit_of_rows_does_not_count_the_pairs_of_lists(tmp_path):
    """Conversions by tables do not count them either."""
    one = encode_msg("a", "1", b"x", headers=[(f"k{number}", b"v") for number in range(30)])
    path = tmp_path / "frames.nats"
    path.write_bytes(one * 50)
    for by in ([], ["subject"]):
        done = convert(
            path,
            tmp_path / f"out-{len(by)}",
            "nats.messages",
            partition_by=by,
            limits=Limits(rows=100),
        )
        assert done.records == 50


def test_good_outermost_frames_are_converted_without_tables(tmp_path, monkeypatch):
    raw = encode_batch([b"value"]) * 1000
    path = tmp_path / "batches.log"
    path.write_bytes(raw + raw[:20])
    monkeypatch.setattr(counted_batches, "_count_table", None)
    advanced = []
    done = convert(path, tmp_path / "out", "kafka.batches", advance=advanced.append)
    assert (done.frames, done.records, done.faults) == (1000, 1000, 0)
    assert sum(advanced) == len(raw)
    assert (done.bytes, done.tail) == (len(raw) + 20, 20)


def test_what_a_file_may_expand_to_is_bounded(tmp_path):
    """Also where frames become columns without tables."""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(encode_batch([bytes(900_000)], codec="zstd") * 100)
    with pytest.raises(ExpansionError) as caught:
        convert(path, tmp_path / "out", "kafka.records", limits=Limits(expansion=10))
    assert caught.value.source == str(path)


def test_faults_in_lists_are_counted(tmp_path):
    path = tmp_path / "a.log"
    raw = bytearray(encode_batch([Record(0, 0, None, b"value", [(b"key", b"value")])]))
    raw[-10] = 99  # the size of the header's key
    path.write_bytes(raw)
    with pytest.raises(FrameError):
        convert(path, tmp_path / "strict", "kafka.records", check=False)
    done = convert(path, tmp_path / "mark", "kafka.records", check=False, errors="mark")
    assert (done.records, done.faults) == (1, 1)


def test_the_environment_bounds_the_threads(tmp_path, monkeypatch):
    threads = []

    def make_pool(number):
        threads.append(number)
        return ThreadPoolExecutor(number)

    monkeypatch.setattr("wirescan.export.parquet.ThreadPoolExecutor", make_pool)
    monkeypatch.setenv("WIRESCAN_WORKERS", "1")
    convert(ORDERS, tmp_path / "one", "kafka.records")
    convert(ORDERS, tmp_path / "three", "kafka.records", workers=3)
    assert threads == [1, 3]
    with pytest.raises(ValueError, match="workers=0"):
        convert(ORDERS, tmp_path / "none", "kafka.records", workers=0)


def test_columns_and_compression_are_options(tmp_path):
    for compression, stored in (("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("none", "UNCOMPRESSED")):
        out = tmp_path / compression
        convert(
            ORDERS,
            out,
            "kafka.records",
            columns=["value", "offset", "_file"],
            compression=compression,
        )
        file = pq.ParquetFile(out / "part-00000.parquet")
        assert file.metadata.row_group(0).column(0).compression == stored
        assert file.schema_arrow.names == ["value", "offset", "_file"]
    assert set(pq.read_table(out)["_file"].to_pylist()) == set(map(str, ORDERS.glob("*.log")))
    with pytest.raises(ValueError, match="no column"):
        convert(ORDERS, tmp_path / "wrong", "kafka.records", columns=["nothing"])


def test_damage_follows_the_mode(source, tmp_path):
    with pytest.raises(FrameError) as caught:
        convert(source, tmp_path / "strict", "kafka.records")
    assert (caught.value.source, caught.value.offset) == (source, len(GOOD))
    done = convert(source, tmp_path / "mark", "kafka.records", errors="mark")
    assert (done.records, done.frames, done.faults) == (21, 2, 1)
    table = pq.read_table(tmp_path / "mark")
    assert (
        table["fault"].to_pylist() == [None] * 10 + ["BAD_CHECKSUM"] + [None] * 10
        and table["value"][10].as_py() is None
    )
    done = convert(source, tmp_path / "skip", "kafka.records", errors="skip")
    assert (done.records, done.frames, done.faults) == (20, 2, 1)
    assert pq.read_table(tmp_path / "skip")["offset"].to_pylist() == list(range(10)) * 2
    with pytest.raises(ValueError, match="errors must be"):
        convert(source, tmp_path / "none", "kafka.records", errors="ignore")


def test_headers_of_bad_records_in_each_mode(tmp_path):
    raw = bytearray(GOOD)
    raw[raw.index(b"\x02h\x025")] = 0x7E  # the length of a header's key
    path = tmp_path / "a.log"
    path.write_bytes(raw)
    with pytest.raises(FrameError, match="TRUNCATED.*a.log"):
        convert(path, tmp_path / "strict", "kafka.records", check=False)
    assert convert(path, tmp_path / "mark", "kafka.records", check=False, errors="mark").faults == 1
    assert convert(path, tmp_path / "skip", "kafka.records", check=False, errors="skip").faults == 1

    def lists(name):
        return pq.read_table(tmp_path / name)["headers"].to_pylist()

    assert lists("mark")[5] == [{"key": None, "value": None}] and lists("skip")[5] == []
    assert lists("mark")[4] == lists("skip")[4] == [{"key": b"h", "value": b"4"}]
    convert(path, tmp_path / "without", "kafka.records", columns=["offset"], check=False)


@pytest.mark.parametrize("raw", [BAD, BAD + BAD], ids=["one", "two"])
def test_skip_with_nothing_good(tmp_path, raw):
    path = tmp_path / "a.log"
    path.write_bytes(raw)
    done = convert(path, tmp_path / "out", "kafka.records", errors="skip")
    assert (done.records, done.frames, done.faults, done.tail) == (0, 0, len(raw) // len(BAD), 0)
    check_empty(tmp_path / "out")
    assert done.written == os.path.getsize(tmp_path / "out" / "part-00000.parquet")


def test_what_is_written_is_what_is_kept(tmp_path):
    """Of many part files without records one is kept, and none where another has records."""
    path, batch = tmp_path / "a.log", encode_batch([])
    for raw in (batch * 5, batch * 2 + GOOD + batch * 2):
        path.write_bytes(raw)
        done = convert(path, tmp_path / "out", "kafka.records", size=1, overwrite=True)
        assert list_parts(tmp_path / "out") == ["_SUCCESS", "part-00000.parquet"]
        assert done.written == os.path.getsize(tmp_path / "out" / "part-00000.parquet") > 0
        assert (done.frames, done.bytes) == (5, len(raw))


def test_empty_input_gives_no_rows(tmp_path):
    path = tmp_path / f"{0:020}.log"
    for raw in (b"", bytes(4096), GOOD[:-1]):
        path.write_bytes(raw)
        done = convert(path, tmp_path / "out", "kafka.records", overwrite=True)
        assert (done.records, done.frames, done.faults, done.tail) == (0, 0, 0, len(raw))
        check_empty(tmp_path / "out")
    convert(path, tmp_path / "some", "kafka.records", columns=["value", "offset"])
    check_empty(tmp_path / "some", ["value", "offset"])
    path.write_bytes(encode_batch([]) * 3)
    assert (
        convert(path, tmp_path / "none", "kafka.records", size=1).frames,
        pq.read_table(tmp_path / "none").num_rows,
    ) == (3, 0)
    check_empty(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="no file to read in .*none"):
        convert(tmp_path / "none", tmp_path / "out2", "kafka.records")
    assert not (tmp_path / "out2").exists()


def test_nothing_is_overwritten_unasked(source, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    convert(source, out, "kafka.records", errors="skip")  # an empty directory is fine
    before = list_parts(out)
    with pytest.raises(FileExistsError, match="overwrite"):
        convert(ORDERS, out, "kafka.records")
    assert list_parts(out) == before and pq.read_table(out).num_rows == 20
    convert(ORDERS, out, "kafka.records", overwrite=True, size=100_000, file_bytes=1)
    assert pq.read_table(out).num_rows == 27_708 and len(list_parts(out)) > 10
    convert(
        source, out, "kafka.records", errors="skip", overwrite=True
    )  # fewer parts than before: the rest go
    assert pq.read_table(out).num_rows == 20 and list_parts(out) == before
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="not a directory: .*file"):
        convert(source, tmp_path / "file", "kafka.records", overwrite=True)


@pytest.mark.parametrize(
    "other", ["letters.txt", "part-00000.parquet.txt", "table.parquet", ".hidden", "old/"]
)
def test_only_an_earlier_output_is_overwritten(source, tmp_path, other):
    out = tmp_path / "out"
    convert(source, out, "kafka.records", errors="skip")
    (out / other).mkdir() if other.endswith("/") else (out / other).write_text("mine")
    before = list_parts(out)
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match=other.strip("/") if overwrite else "overwrite"):
            convert(ORDERS, out, "kafka.records", overwrite=overwrite)
        assert (
            list_parts(out) == before and pq.read_table(out / "part-00000.parquet").num_rows == 20
        )


def test_what_spark_leaves_and_what_a_kill_leaves_are_earlier_outputs(source, tmp_path):
    out = tmp_path / "out"
    (out / "_temporary-0123").mkdir(parents=True)
    (out / "_temporary-0123" / "part-00000.parquet").touch()
    for name in (
        "_SUCCESS",
        "._SUCCESS.crc",
        "part-00000-a1b2.snappy.parquet",
        ".part-00000-a1b2.snappy.parquet.crc",
    ):
        (out / name).touch()
    convert(source, out, "kafka.records", errors="skip", overwrite=True)
    assert (
        list_parts(out) == ["_SUCCESS", "part-00000.parquet"] and pq.read_table(out).num_rows == 20
    )


def test_nothing_appears_after_a_failure(source, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        convert([ORDERS, source], out, "kafka.records", size=100_000)
    assert not out.exists()
    out.mkdir()
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        convert([ORDERS, source], out, "kafka.records", size=100_000)
    assert list_parts(out) == []  # the directory was there before
    convert(ORDERS, out, "kafka.records")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for overwrite in (False, True):
        with pytest.raises(
            (FrameError, FileExistsError), match="BAD_CHECKSUM" if overwrite else "overwrite it"
        ):
            convert(source, out, "kafka.records", overwrite=overwrite)
        assert {
            path.name: path.read_bytes() for path in out.iterdir()
        } == before  # the old files stay


def test_a_group_of_slices_is_one_file(tmp_path, source):
    slices = plan(ORDERS, "kafka.records", 100_000)[:5]
    out = str(tmp_path / "one.parquet")
    done = write(slices, out, format="kafka.records")
    assert done.bytes == sum(map(len, slices)) and done.files == sum(
        piece.start == 0 for piece in slices
    ) < len(slices)
    assert pq.read_table(out).num_rows == done.records and done.written == os.path.getsize(out)
    for number, none in enumerate(([Slice(source, 0, 0)], [])):
        out = tmp_path / f"none-{number}.parquet"
        done = write(none, str(out), format="kafka.records")
        assert done.records == done.frames == done.bytes == 0 and done.files == len(none)
        assert done.written == out.stat().st_size
        table = pq.read_table(out)  # it is always there, with its columns
        assert table.num_rows == 0 and table.schema.remove_metadata() == to_arrow.make_schema(
            "kafka.records", types="spark"
        )


def test_limits_and_checks_are_passed_on(source, tmp_path):
    assert (
        convert(
            source,
            tmp_path / "unchecked",
            "kafka.records",
            check=False,
            columns=["offset"],
            errors="mark",
        ).frames
        == 3
    )
    with pytest.raises(FrameError, match="LIMIT"):
        convert(ORDERS, tmp_path / "limited", "kafka.records", limits=Limits(rows=10))


def test_summaries_add_up():
    summary = Summary(1, 2, 3, 4, 5, 6, 7, 0.5)
    assert summary + Summary() == summary and summary + summary == Summary(
        2, 4, 6, 8, 10, 12, 14, 1.0
    )
    assert sum([summary, summary], Summary()).records == 6


@pytest.mark.parametrize("size", [1, 300, 1 << 30])
@pytest.mark.parametrize(
    "tail", [b"", GOOD[:50], GOOD[:9], bytes(3000)], ids=["none", "cut", "header", "zeros"]
)
def test_tails_are_reported_in_every_mode(tmp_path, tail, size):
    path = tmp_path / "a.log"
    path.write_bytes(GOOD + GOOD + tail)
    for errors in ("strict", "mark", "skip"):
        done = convert(path, tmp_path / errors, "kafka.records", errors=errors, size=size)
        assert (done.files, done.frames, done.records, done.faults) == (1, 2, 20, 0)
        assert (done.bytes, done.tail) == (2 * len(GOOD) + len(tail), len(tail))
        assert pq.read_table(tmp_path / errors)["offset"].to_pylist() == list(range(10)) * 2


def test_a_file_that_grows_after_it_was_planned(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(GOOD + GOOD[:50])
    slices = plan(path, "kafka.records")
    path.write_bytes(GOOD + GOOD)
    done = write(slices, str(tmp_path / "out.parquet"), format="kafka.records")
    assert (done.records, done.faults, done.tail, done.bytes) == (10, 0, 50, len(GOOD) + 50)


def test_a_length_that_lies_is_no_tail(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(GOOD + GOOD[:8] + b"\x7f\xff\xff\xff" + GOOD[12:] + GOOD)
    with pytest.raises(FrameError, match="BAD_LENGTH") as caught:
        convert(path, tmp_path / "strict", "kafka.records")
    assert (caught.value.source, caught.value.offset) == (str(path), len(GOOD))
    done = convert(path, tmp_path / "mark", "kafka.records", errors="mark")
    assert (done.frames, done.records, done.faults, done.tail) == (2, 21, 1, 0)


@pytest.mark.parametrize("size", [1, 1 << 30])
@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_what_is_counted(tmp_path, errors, size):
    """Every frame is written once, every byte is in a frame or the tail, every fault counts."""
    path = tmp_path / "a.log"
    empty = encode_batch([])
    path.write_bytes(GOOD + empty + BAD + empty + GOOD + b"\xfe" * 100 + GOOD + GOOD[:70])
    layout = Layout.from_columns("kafka.records", ["offset", "fault"])
    pieces = list(write_counted(plan(path, "kafka.records", size), layout, errors=errors))
    total = sum((done for done, _, _ in pieces), Summary())
    bad = 2 if errors == "mark" else 0
    assert (total.files, total.frames, total.records, total.faults) == (1, 5, 30 + bad, 2)
    assert (total.bytes, total.tail) == (path.stat().st_size, 70)
    assert total.written == total.seconds == 0
    for done, batches, _ in pieces:
        assert done.records == sum(batch.num_rows for _, batch in batches)
        assert all(
            batch.num_rows and batch.schema.names == ["offset", "fault"] for _, batch in batches
        )
    fault_rows = pa.Table.from_batches(piece.faults for piece in pieces if piece.faults)
    assert (
        fault_rows["fault"].to_pylist() == ["BAD_CHECKSUM", "BAD_LENGTH"]
        and fault_rows.schema == faults.SCHEMA
    )
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        list(write_counted(plan(path, "kafka.records", size), layout))
    with pytest.raises(ValueError, match="errors must be"):
        list(write_counted([], layout, errors="ignore"))


def test_row_groups_are_large(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    path.write_bytes(encode_batch([b"x" * 1000] * 100) * 400)  # 40 MB
    convert(path, tmp_path / "one", "kafka.records")
    assert pq.ParquetFile(tmp_path / "one" / "part-00000.parquet").metadata.num_row_groups == 1
    monkeypatch.setattr(sink, "GROUP_BYTES", 10_000_000)
    monkeypatch.setattr("wirescan.export.hive_layout.BATCH_BYTES", 1 << 20)
    convert(path, tmp_path / "some", "kafka.records")
    metadata = pq.ParquetFile(tmp_path / "some" / "part-00000.parquet").metadata
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sum(sizes) == 40_000 and 3 <= len(sizes) <= 5
    for name in ("one", "some"):
        assert pq.read_table(tmp_path / name)["offset"].to_pylist() == list(range(100)) * 400


def test_columns_have_suitable_encodings(tmp_path):
    columns = [
        "offset",
        "timestamp",
        "codec",
        "producer_id",
        "_start",
        "key",
        "value",
        "is_control",
        "fault",
    ]
    convert(ORDERS, tmp_path / "out", "kafka.records", columns=columns)
    group = pq.ParquetFile(tmp_path / "out" / "part-00000.parquet").metadata.row_group(0)
    encodings = {name: group.column(i).encodings for i, name in enumerate(columns)}
    for name in columns[:5]:
        assert (
            "DELTA_BINARY_PACKED" in encodings[name] and "RLE_DICTIONARY" not in encodings[name]
        ), name
    assert "RLE_DICTIONARY" in encodings["key"] and "RLE_DICTIONARY" in encodings["fault"]
    assert "DELTA_BINARY_PACKED" not in encodings["value"] + encodings["is_control"]


def test_control_records_are_told(tmp_path):
    convert(ORDERS, tmp_path / "out", "kafka.records")
    table = wirescan.scan(ORDERS, "kafka.records")
    flags = pq.read_table(tmp_path / "out", columns=["is_control"])["is_control"].to_pylist()
    assert flags == (table.outer["is_control"][table["parent"]] != 0).tolist() and sum(flags) == 8


# ---- faults


def test_faults_are_a_table_of_their_own(source, tmp_path):
    """One row per fault, beside the output. Without faults an old table is removed."""
    for errors in ("mark", "skip"):
        convert(source, tmp_path / errors, "kafka.records", errors=errors)
        table = pq.read_table(tmp_path / f"{errors}.faults")
        assert table.schema.remove_metadata() == faults.SCHEMA and table.to_pylist() == [
            {
                "file": source,
                "start": len(GOOD),
                "size": len(BAD),
                "format": "kafka.batches",
                "fault": "BAD_CHECKSUM",
                "meaning": "the checksum does not match",
                "near": BAD[:16],
            }
        ]
        assert pq.read_table(tmp_path / errors).num_rows == (21 if errors == "mark" else 20)
        assert list_parts(tmp_path / errors) == ["_SUCCESS", "part-00000.parquet"]
    convert(ORDERS, tmp_path / "mark", "kafka.records", errors="mark", overwrite=True)
    convert(ORDERS, tmp_path / "skip", "kafka.records", overwrite=True)
    assert list_parts(tmp_path) == ["in", "mark", "skip"]


@pytest.mark.parametrize("errors, records", [("mark", 21), ("skip", 20)])
def test_other_readers_take_no_fault_for_a_row(source, tmp_path, errors, records):
    """Readers that take all files of a directory, such as polars and DuckDB, see only the rows."""
    convert(source, tmp_path / "out", "kafka.records", errors=errors)
    for path in (tmp_path / "out").rglob("*.parquet"):
        assert pq.read_schema(path).remove_metadata() == to_arrow.make_schema(
            "kafka.records", types="spark"
        )
    assert (
        sum(pq.read_metadata(path).num_rows for path in (tmp_path / "out").rglob("*.parquet"))
        == records
    )
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(tmp_path / "out").height == records
    duckdb = pytest.importorskip("duckdb")
    assert len(duckdb.sql(f"SELECT * FROM '{tmp_path}/out/**/*.parquet'").fetchall()) == records


def test_faults_of_what_lies_inside(tmp_path):
    """The positions of a bad header of a good record, and of a record in a decompressed payload."""
    raw = bytearray(GOOD)
    at = raw.index(b"\x02h\x025")
    raw[at] = 0x7E  # the length of a header's key
    fewer = bytearray(encode_batch([Record(i, 0, b"k", b"v") for i in range(5)], codec="gzip"))
    fewer[60] -= 1
    path = tmp_path / "a.log"
    path.write_bytes(raw + fewer + GOOD)
    done = convert(path, tmp_path / "out", "kafka.records", check=False, errors="mark")
    header, record = pq.read_table(tmp_path / "out.faults").to_pylist()
    assert done.faults == 2
    assert (header["format"], header["start"], header["near"][:2]) == (
        "kafka.headers",
        at,
        b"\x7eh",
    )
    assert (record["format"], record["start"], record["fault"]) == (
        "kafka.records",
        len(raw),
        "BAD_COUNT",
    )
    convert(
        path, tmp_path / "other", "kafka.records", columns=["offset"], check=False, errors="mark"
    )  # no headers asked for
    assert pq.read_table(tmp_path / "other.faults")["format"].to_pylist() == ["kafka.records"]


def test_a_file_of_nothing_but_faults(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes((BAD + GOOD) * 500 + BAD[:-3])
    assert (
        convert(path, tmp_path / "out", "kafka.records", errors="skip", size=10_000).faults == 500
    )
    starts = pq.read_table(tmp_path / "out.faults")["start"].to_pylist()
    assert starts == [2 * len(GOOD) * i for i in range(500)]
    assert list_parts(tmp_path / "out.faults") == ["part-00000.parquet"]


# ---- directories by values


def read_hive(out):
    return pq.read_table(out, partitioning="hive")


def test_partitioned_by_numbers_and_days(tmp_path):
    done = convert(
        ORDERS,
        tmp_path / "out",
        "kafka.records",
        partition_by=["codec", "timestamp:day"],
        size=100_000,
    )
    table = wirescan.scan(ORDERS, "kafka.records")
    written = read_hive(tmp_path / "out").sort_by("offset")
    assert written.num_rows == done.records == len(table)
    assert {*written.column_names} == {
        *to_arrow.list_default_columns("kafka.records"),
        "codec",
        "timestamp_day",
    }
    assert written["codec"].to_pylist() == table.outer["codec"][table["parent"]].tolist()
    days = np.datetime_as_string(table["timestamp"].astype("M8[ms]").astype("M8[D]"))
    assert written["timestamp_day"].to_pylist() == days.tolist()
    whole = pq.read_table(convert_to(tmp_path / "whole"))
    assert (
        written.select(whole.column_names).combine_chunks()
        == whole.sort_by("offset").combine_chunks()
    )
    for directory in {path.parent for path in (tmp_path / "out").rglob("part*")}:
        assert list_parts(directory) == ["part-00000.parquet"]  # whatever the number of tasks
        offsets = (
            pq.ParquetFile(directory / "part-00000.parquet").read(["offset"])["offset"].to_pylist()
        )
        assert offsets == sorted(offsets)


def convert_to(out):
    convert(ORDERS, out, "kafka.records")
    return out


@pytest.mark.parametrize(
    "unit, text",
    [("year", "2026"), ("month", "2026-11"), ("day", "2026-11-22"), ("hour", "2026-11-22T13")],
)
def test_times_keep_their_units(tmp_path, unit, text):
    path = tmp_path / "a.log"
    times = [
        1_795_352_400_000,
        -1,
        1_795_355_999_999,
        2**62,
    ]  # the ends of an hour; null; beyond microseconds
    path.write_bytes(
        b"".join(encode_batch([Record(i, time, None, b"")]) for i, time in enumerate(times))
    )
    convert(
        path,
        tmp_path / "out",
        "kafka.records",
        partition_by=f"timestamp:{unit}",
        columns=["offset", "timestamp"],
    )
    assert list_parts(tmp_path / "out") == [
        "_SUCCESS",
        f"timestamp_{unit}={text}",
        f"timestamp_{unit}=__HIVE_DEFAULT_PARTITION__",
    ]
    for name, offsets in zip(list_parts(tmp_path / "out")[1:], ([0, 2], [1, 3])):
        assert pq.read_table(tmp_path / "out" / name)["offset"].to_pylist() == offsets


KEYS = [
    b"plain",
    b"a/b=c%d",
    b"..",
    "\u0436 \u65e5".encode(),
    b"",
    None,
    b"\xff\x00",
    b"k:*?\"'#[]{}^\\",
    rb"\xfe\n",
    b"plain",
]


def test_any_bytes_name_directories(tmp_path):
    """Unsafe values are escaped as Hive does, empty text is null, no file is outside."""
    path = tmp_path / "a.log"
    path.write_bytes(encode_batch([Record(i, 0, key, b"v") for i, key in enumerate(KEYS)]))
    convert(
        path, tmp_path / "out", "kafka.records", partition_by=["key"], columns=["offset", "value"]
    )
    rows = sorted(read_hive(tmp_path / "out").to_pylist(), key=lambda row: row["offset"])
    texts = [None if not key else key.decode(errors="backslashreplace") for key in KEYS]
    texts[-2] = r"\x5cxfe\n"  # differs from that of the byte 0xfe
    assert [row["key"] for row in rows] == texts
    assert all(name.startswith(("key=", "_SUCCESS")) for name in list_parts(tmp_path / "out"))
    assert list_parts(tmp_path) == ["a.log", "out"]
    path.write_bytes(encode_batch([Record(0, 0, b"x" * 300, b"v")]))
    with pytest.raises(ValueError, match="too long for the name of a directory: key=xxx"):
        convert(path, tmp_path / "long", "kafka.records", partition_by="key")
    assert not (tmp_path / "long").exists()


@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_text_too_long_for_a_directory_is_shortened(tmp_path, errors):
    """A long text does not stop the job, and different texts stay different."""
    path = tmp_path / "a.log"
    keys = [
        b"plain",
        b"x" * 251,
        b"x" * 252,
        b"x" * 300,
        b"x" * 300 + b"y",
        b"/" * 90,
        "\u65e5".encode() * 90,
        b"\xff" * 70,
        b"x" * 300,
        b"y" * 1_000_000,
    ]
    path.write_bytes(encode_batch([Record(i, 0, key, b"v") for i, key in enumerate(keys)]))
    done = convert(
        path,
        tmp_path / "out",
        "kafka.records",
        partition_by=["key"],
        columns=["offset"],
        errors=errors,
    )
    assert done.records == len(keys) and done.faults == 0
    names = [name for name in list_parts(tmp_path / "out") if name.startswith("key=")]
    assert len(names) == len(set(keys)) and max(len(os.fsencode(name)) for name in names) == 255
    rows = sorted(read_hive(tmp_path / "out").to_pylist(), key=lambda row: row["offset"])
    for key, row in zip(keys, rows):
        text, (first, mark, digest) = (
            key.decode(errors="backslashreplace"),
            row["key"].rpartition("~"),
        )
        if len(key) < 252 and key[0] in b"px":
            assert row["key"] == text
        else:
            assert (
                mark and text.startswith(first) and digest == sha256(text.encode()).hexdigest()[:32]
            )
            assert len(first) > 20


def test_many_directories_get_each_row_once(tmp_path, monkeypatch):
    """More than files are held open, of more rows than are held: each row once, in its order."""
    monkeypatch.setattr(sink, "GROUP_BYTES", 10_000)
    path = tmp_path / "a.log"
    records = [Record(i, 0, b"%d" % (i * 7 % 100), b"v" * 20) for i in range(20_000)]
    path.write_bytes(b"".join(encode_batch(records[n : n + 1000]) for n in range(0, 20_000, 1000)))
    done = convert(
        path,
        tmp_path / "out",
        "kafka.records",
        partition_by="key",
        columns=["offset", "value"],
        size=200_000,
    )
    table = read_hive(tmp_path / "out").sort_by("offset")
    assert done.records == 20_000 and table["offset"].to_pylist() == list(range(20_000))
    assert table["key"].to_pylist() == [i * 7 % 100 for i in range(20_000)]
    files = sorted((tmp_path / "out").rglob("part*"))
    assert len(files) == 100 and done.written == sum(file.stat().st_size for file in files)
    offsets = pq.ParquetFile(files[0]).read()["offset"].to_pylist()
    assert offsets == sorted(offsets)


def test_partitioned_by_kind_and_by_fault(source, tmp_path):
    convert(
        source,
        tmp_path / "out",
        "kafka.records",
        partition_by="fault",
        errors="mark",
        columns=["offset", "fault"],
    )
    assert list_parts(tmp_path / "out") == [
        "_SUCCESS",
        "fault=BAD_CHECKSUM",
        "fault=__HIVE_DEFAULT_PARTITION__",
    ]
    convert(
        ORDERS,
        tmp_path / "control",
        "kafka.records",
        partition_by=("is_control",),
        columns=["offset", "is_control"],
    )
    assert list_parts(tmp_path / "control") == ["_SUCCESS", "is_control=false", "is_control=true"]
    assert (
        pq.ParquetFile(
            tmp_path / "control" / "is_control=true" / "part-00000.parquet"
        ).metadata.num_rows
        == 8
    )


@pytest.mark.parametrize(
    "by, message",
    [
        ("nothing", "no column 'nothing'"),
        ("offset:day", "only times have units"),
        ("timestamp:week", "only times"),
        ("timestamp", "timestamp:day"),
        ("headers", "cannot partition"),
        (["codec", "codec"], "twice"),
        (["offset", "timestamp:day", "timestamp:day"], "twice"),
    ],
)
def test_what_cannot_partition(tmp_path, by, message):
    with pytest.raises(ValueError, match=message):
        convert(ORDERS, tmp_path / "out", "kafka.records", partition_by=by)
    assert not (tmp_path / "out").exists()
    for by, columns in ((["offset", "key"], ["key", "offset"]), ((), [])):
        with pytest.raises(ValueError, match="no column is left"):
            convert(ORDERS, tmp_path / "out", "kafka.records", partition_by=by, columns=columns)


@pytest.mark.parametrize("name", ["rar", "lzo"])
def test_an_unknown_compression_is_refused(tmp_path, name):
    """pyarrow raises ArrowException or, for what it knows and cannot write, OSError."""
    with pytest.raises(ValueError, match=f"compression must be a Parquet codec .*, not '{name}'"):
        convert(ORDERS, tmp_path / "out", "kafka.records", compression=name)
    with pytest.raises(ValueError, match=f"not '{name}'"):
        write([], str(tmp_path / "out.parquet"), format="kafka.records", compression=name)
    assert not list(tmp_path.iterdir())


def test_a_column_is_not_written_twice(tmp_path):
    """Readers of a directory refuse files with two columns of one name."""
    with pytest.raises(ValueError, match="column 'offset' is named twice"):
        convert(ORDERS, tmp_path / "out", "kafka.records", columns=["offset", "key", "offset"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "by, first", [("_file", "file=%2F"), ("_fault", "fault=__HIVE"), ("_start", "start=")]
)
def test_readers_see_what_is_partitioned_by_columns_of_the_place(source, tmp_path, by, first):
    done = convert(
        source,
        tmp_path / "out",
        "kafka.records",
        partition_by=by,
        errors="mark",
        columns=["offset"],
    )
    assert any(name.startswith(first) for name in list_parts(tmp_path / "out"))
    assert read_hive(tmp_path / "out").num_rows == done.records > 0


def test_filters_select_rows(source, tmp_path):
    done = convert(
        ORDERS,
        tmp_path / "out",
        "kafka.records",
        filters=[("offset", ">=", 100), ("offset", "<", 1500)],
        size=100_000,
    )
    assert (
        pq.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(100, 1500))
        and done.records == 1400
    )
    assert done.bytes < 2_213_570 and done.tail == 0
    done = convert(
        source,
        tmp_path / "some",
        "kafka.records",
        filters=[("offset", "==", 3), ("fault", "==", 0)],
        errors="mark",
    )
    assert (done.records, done.frames, done.tail, done.faults, done.files) == (2, 2, 0, 0, 1)
    with pytest.raises(ValueError, match="nothing"):
        convert(source, tmp_path / "none", "kafka.records", filters=[("nothing", "==", 3)])
    assert not (tmp_path / "none").exists()


def test_small_files_are_merged(tmp_path):
    """Many small files make one; and a large one is followed by another where it is full."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(500):
        (folder / f"{number:020}.log").write_bytes(
            encode_batch([Record(number, 0, None, b"v")], base_offset=number)
        )
    done = convert(folder, tmp_path / "out", "kafka.records", size=1000)
    assert done.files == 500 and list_parts(tmp_path / "out") == ["_SUCCESS", "part-00000.parquet"]
    assert pq.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(500))


def test_progress_counts_the_bytes_of_frames(tmp_path):
    counts = []
    convert([ORDERS], tmp_path / "out", format="kafka.records", advance=counts.append)
    assert sum(counts) == sum(path.stat().st_size for path in ORDERS.glob("*.log"))
    assert len(counts) >= len(list(ORDERS.glob("*.log")))
