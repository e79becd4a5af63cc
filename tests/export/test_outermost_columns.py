"""Record batches of outermost frames that are read as columns: they are those that tables give.

It also tests the frames inside them, of protocols other than Kafka.
"""

import random
import struct
import threading
import zlib

import pyarrow as pa
import pytest
from hypothesis import given

import wirescan
from tests.laws.cases import steady
from tests.laws.packages import PACKAGES
from tests.strategies import shared as st
from tests.support.examples import read_example_count
from tests.support.paths import CORPUS
from wirescan import FrameError, Limits
from wirescan.core.column_writer import ColumnWriter
from wirescan.export import batches
from wirescan.export.batches import iter_batches
from wirescan.export.column_batches import make_column_reader
from wirescan.export.outermost_columns import can_write_columns
from wirescan.frames.registry import format_of
from wirescan.frames.to_arrow import ColumnScan, make_schema, to_batch
from wirescan.kafka import encode_batch
from wirescan.liftbridge import encode_entries
from wirescan.nats.scan import scan_stream
from wirescan.testing import laws

RECORDED = {
    "kafka.requests": CORPUS / "kafka-streams" / "kafka-python-4" / "committed-1.requests.bin",
    "lumberjack.frames": CORPUS / "lumberjack" / "recorded" / "filebeat.sent.bin",
    "lumberjack.events": CORPUS / "lumberjack" / "recorded" / "filebeat.sent.bin",
    "nats.messages": CORPUS / "nats" / "recorded" / "nats-py.client.bin",
    "thrift.frames": CORPUS / "thrift" / "header-compact-zlib.requests.theader",
    "thrift.messages": CORPUS / "thrift" / "header-compact-zlib.requests.theader",
}
# Packages whose outermost frames, or the frames inside them, are written as columns.
WRITTEN = {
    "kafka": ("kafka.batches",),
    "kafka.init_producer_id_request": ("kafka.requests",),
    "redpanda": ("kafka.redpanda_batches",),
    "kbak": ("kafka.kbak_segments",),
    "connect-backup": ("kafka.connect_backup_records",),
    "lumberjack": ("lumberjack.frames", "lumberjack.events"),
    "nats": ("nats.messages",),
    "liftbridge.entries": ("liftbridge.entries",),
    "thrift": ("thrift.frames", "thrift.messages"),
}
TYPES = (("view", "arrow"), ("binary", "arrow"), ("large_binary", "arrow"), ("binary", "spark"))
MODES = ("strict", "mark", "skip")


def read(source, format, as_columns=True, **options):
    """Return the rows of a source and the bytes that it has, or the error that reading raises."""
    with pytest.MonkeyPatch.context() as patch:
        if not as_columns:
            patch.setattr(batches, "make_column_reader", lambda *arguments, **keywords: None)
            patch.setattr(batches, "can_write_columns", lambda column_scan: False)
        parts = []
        try:
            parts.extend(iter_batches(source, format=format, **options))
        except FrameError as error:
            return str(error), error.fault, error.offset, error.source
    for part in parts:
        part.validate(full=True)
    names = options.get("columns")
    schema = make_schema(
        format,
        names,
        binary=options.get("binary", "binary"),
        types=options.get("types", "arrow"),
    )
    return pa.Table.from_batches(parts, schema)


def assert_same(source, format, **options):
    columns = read(source, format, **options)
    tables = read(source, format, as_columns=False, **options)
    assert type(columns) is type(tables)
    assert columns.equals(tables) if isinstance(columns, pa.Table) else columns == tables
    return columns


def list_own_columns(format):
    """Return every column that depends on no other row of a table, and those of the file."""
    local = {name for name, column in format_of(format).columns.items() if column.local}
    return [
        name
        for name in format_of(format).all_columns
        if name not in {"parent", "start", "buffer", *local}
    ]


@pytest.mark.parametrize("format", RECORDED)
@pytest.mark.parametrize(("binary", "types"), TYPES)
def test_columns_of_recorded_bytes_are_those_of_tables(tmp_path, format, binary, types):
    """Blocks of rows are written before the next ones are read."""
    path = tmp_path / "recorded"
    path.write_bytes(RECORDED[format].read_bytes() * 50)
    for columns in (None, list_own_columns(format), ["_start", "_fault", "_file", "fault"], []):
        options = {"columns": columns, "binary": binary, "types": types}
        found = assert_same(str(path), format, **options)
        assert found.num_rows == len(wirescan.scan(str(path), format)) > 256
        assert_same(str(path), format, batch_bytes=1 << 14, **options)


@pytest.mark.parametrize("name", WRITTEN)
def test_columns_of_any_bytes_are_those_of_tables(name):
    package = PACKAGES[name]

    @steady
    @given(
        st.one_of(package.good, package.damaged),
        st.sampled_from(WRITTEN[name]),
        st.sampled_from(TYPES),
        st.sampled_from(MODES),
        st.booleans(),
        st.sampled_from((50, 400, 1 << 20)),
        st.sampled_from((1, 30)),
    )
    def check(raw, format, types, errors, check, batch_bytes, times):
        assert_same(
            raw * times,
            format,
            columns=list_own_columns(format),
            binary=types[0],
            types=types[1],
            errors=errors,
            check=check,
            batch_bytes=batch_bytes,
        )

    check()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_scan_into_columns_keeps_the_law_over_many_blocks(name):
    @steady
    @given(PACKAGES[name].good)
    def check(raw):
        laws.columns_are_those_of_rows(PACKAGES[name], raw * (1 + 10_000 // max(len(raw), 1)))

    check()


@pytest.mark.parametrize("format", RECORDED)
@pytest.mark.parametrize("errors", MODES)
def test_damage_in_any_chunk_is_reported_as_by_tables(format, errors):
    one = RECORDED[format].read_bytes()
    chance = random.Random(3)
    for _ in range(read_example_count(4)):
        raw = bytearray(one * 20)
        for _ in range(chance.choice((1, 1, 3))):
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        raw = bytes(raw[: chance.choice((len(raw), len(raw) - 5))])
        for batch_bytes in (3000, 1 << 20):
            assert_same(raw, format, errors=errors, batch_bytes=batch_bytes)


def test_a_chunk_with_damage_is_a_table_and_the_others_are_columns(monkeypatch):
    """Rows are read where they are needed, and only there."""
    one = encode_batch([b"value"]) * 50
    raw = bytearray(one * 20)
    raw[9 * len(one) + 70] ^= 1
    tables = []

    def note(table, **options):
        tables.append(len(table))
        return to_batch(table, **options)

    monkeypatch.setattr(batches, "to_batch", note)
    parts = list(iter_batches(raw, format="kafka.batches", batch_bytes=len(one), errors="mark"))
    rows = pa.Table.from_batches(parts)
    assert rows["fault"].to_pylist() == [None] * 450 + ["BAD_CHECKSUM"] + [None] * 549
    assert tables == [50]


def test_good_frames_are_read_without_tables(monkeypatch):
    def refuse(*arguments, **keywords):
        raise AssertionError("a table of rows was made")

    monkeypatch.setattr(batches, "to_batch", refuse)
    for format, path in RECORDED.items():
        raw = path.read_bytes() * 30
        found = list(iter_batches(raw, format=format, batch_bytes=30_000))
        assert sum(map(len, found)) == len(wirescan.scan(raw, format))
        assert len(found) > 1


def count_tables(monkeypatch, raw, format, **options):
    """Return how many tables of rows become record batches."""
    tables = []

    def note(table, **options):
        tables.append(table)
        return to_batch(table, **options)

    monkeypatch.setattr(batches, "to_batch", note)
    assert sum(map(len, iter_batches(raw, format=format, **options))) > 0
    return len(tables)


def test_rows_are_needed_for_filters_and_computed_texts(monkeypatch):
    raw = RECORDED["nats.messages"].read_bytes()
    assert count_tables(monkeypatch, raw, "nats.messages", columns=["size"]) == 0
    assert count_tables(monkeypatch, raw, "nats.messages", columns=["size"], where="size > 40") > 0
    raw = RECORDED["thrift.messages"].read_bytes()
    assert count_tables(monkeypatch, raw, "thrift.messages", columns=["method"]) == 0
    assert count_tables(monkeypatch, raw, "thrift.messages", columns=["call"]) > 0


def test_formats_with_options_are_written_as_columns(monkeypatch):
    raw = (CORPUS / "thrift" / "framed-not-strict.requests.theader").read_bytes()
    for format in ("thrift.frames?non_strict=true", "thrift.messages?non_strict=true"):
        assert count_tables(monkeypatch, raw, format) == 0
        assert_same(raw, format)


def test_views_of_small_frames_share_few_bytes():
    """A chunk with more rows than a batch may have makes the next ones smaller."""
    raw = b"PUB a 20\r\nabcdefghijklmnopqrst\r\n" * 1_000_000
    found = list(iter_batches(raw, format="nats.messages", columns=["payload"], binary="view"))
    assert sum(map(len, found)) == 1_000_000
    assert max(map(len, found)) <= batches.BATCH_ROWS
    assert sum(batch.get_total_buffer_size() for batch in found[8:]) < 2.5 * len(raw)
    assert len(found) < 32


def test_compressed_frames_are_read_in_groups_of_their_events():
    """Their events are many more than the frames, and their bytes many more than those read."""
    event = b"2J" + struct.pack(">II", 1, 100) + random.Random(1).randbytes(100)
    packed = zlib.compress(event * 300)
    raw = (b"2C" + struct.pack(">I", len(packed)) + packed) * 1000
    reader = make_column_reader(
        "lumberjack.events",
        limits=Limits(),
        workers=1,
        schema=make_schema("lumberjack.events", ["sequence"]),
        binary="binary",
        types="arrow",
        source=None,
        batch_rows=2000,
        batch_bytes=1 << 20,
        errors="strict",
        check=True,
        filters=(),
    )
    for frames, most in ((raw, 300), (event * 1000, 1000), (event + raw, 300)):
        groups = [len(part) for part in reader._group(wirescan.scan(frames, "lumberjack.frames"))]
        assert sum(groups) == len(wirescan.scan(frames, "lumberjack.frames"))
        assert max(groups) <= most


@pytest.mark.parametrize("mapped", [True, False])
def test_frames_larger_than_a_chunk_are_joined(tmp_path, mapped):
    """Their chunks are rows, and the chunks after them are columns again."""
    large = b"PUB a 3000\r\n" + bytes(3000) + b"\r\n"
    small = b"PUB b 3\r\nabc\r\n" * 100
    path = tmp_path / "client.nats"
    path.write_bytes(small * 5 + large * 3 + small * 5)
    found = assert_same(str(path), "nats.messages", batch_bytes=700, mapped=mapped)
    assert found.num_rows == 1003


def test_more_rows_than_the_limit_are_refused_as_by_tables():
    raw = b"+OK\r\n" * 5000
    for rows in (100, 257, 4999, 5000):
        found = assert_same(raw, "nats.messages", columns=["kind"], limits=Limits(rows=rows))
        assert isinstance(found, pa.Table) == (rows == 5000)


def test_the_next_chunk_is_scanned_from_the_same_state():
    """A scan into columns that needs rows leaves nothing behind."""
    package = PACKAGES["liftbridge.entries"]

    @steady
    @given(package.damaged, st.lists(st.integers(1, 400), min_size=1, max_size=4))
    def check(raw, sizes):
        format = format_of("liftbridge.entries")
        plain, mixed = (wirescan.stream(format.name, errors="mark") for _ in range(2))
        start = 0
        for size in (*sizes, len(raw)):
            chunk = raw[start : start + size]
            start += size
            writer = laws.make_writer(format)
            table = plain.feed(chunk)
            written = mixed.feed_columns(chunk, writer)
            if written is None:
                again = mixed.feed(chunk)
                assert laws.describe_rows(again) == laws.describe_rows(table)
            else:
                assert not len(written) and written.stops == table.stops
                assert len(writer) == len(table)
            assert (plain.offset, plain.held) == (mixed.offset, mixed.held)
        assert laws.describe_rows(plain.close()) == laws.describe_rows(mixed.close())

    check()


def test_a_scan_that_needs_rows_does_not_move_the_stream():
    """After it, the chunk begins with good frames, though the scan ended inside a long gap."""
    format = format_of("liftbridge.entries")
    good = encode_entries(0, 0, 0, [None] * 3, [b"v"] * 3)
    chunks = [good + b"\xff" * 2000, b"\xff" * 500 + good]
    stream = wirescan.stream(format.name, errors="mark", limits=Limits(frame=200))
    found = []
    for chunk in chunks:
        if stream.feed_columns(chunk, laws.make_writer(format)) is None:
            found += stream.feed(chunk)["offset"].tolist()
    assert found[:3] == [0, 1, 2]


def test_packed_messages_after_others():
    """Messages that are read in place are not written twice, if one after them is packed."""
    folder = CORPUS / "thrift"
    plain = (folder / "framed-compact.requests.theader").read_bytes() * 50
    packed = RECORDED["thrift.messages"].read_bytes()
    found = assert_same(plain + packed, "thrift.messages")
    assert found.num_rows == 9 * 50 + 26


def test_a_writer_of_other_rows_is_refused():
    raw = b"+OK\r\n"
    writer = ColumnWriter(format_of("liftbridge.entries").dtype)
    with pytest.raises(TypeError, match="the sink takes rows of dtype .*and the scan has"):
        scan_stream(raw, check=True, resync=False, limits=Limits(), into=writer)


def test_other_threads_make_the_batches_of_columns(monkeypatch):
    """The calling thread reads the next chunk, while others make the batches of the last ones."""
    makers = set()
    make_batch = ColumnScan.make_batch

    def note(self, frames):
        makers.add(threading.current_thread())
        return make_batch(self, frames)

    monkeypatch.setattr(ColumnScan, "make_batch", note)
    raw = RECORDED["nats.messages"].read_bytes() * 20
    for workers in (1, 3):
        makers.clear()
        list(iter_batches(raw, format="nats.messages", batch_bytes=3000, workers=workers))
        assert (threading.current_thread() in makers) == (workers == 1)


def test_captures_are_read_into_rows():
    schema = make_schema("nats.messages", ["subject"])
    for format, is_written in (("nats.messages?capture=true", False), ("nats.messages", True)):
        assert can_write_columns(ColumnScan(format_of(format), schema)) == is_written
