"""Lumberjack through Spark: files, slices of them, and streams in a binary column."""

import pyarrow as pa
import pytest

import wirescan
from wirescan import lumberjack
from wirescan.frames.to_arrow import to_batch
from wirescan.lumberjack import encode
from wirescan.spark import map_frames, read, register

pytestmark = pytest.mark.spark

WINDOWS = 40
EVENTS_IN_WINDOW = 50
COLUMNS = ["kind", "sequence", "version", "depth", "json", "pairs", "fault"]


def make_stream(first, windows=WINDOWS):
    """Windows of JSON and of data frames. Every second window is compressed."""
    batches = []
    for number in range(first, first + windows):
        events = [
            {"message": f"{number}/{i}", "text": "x" * (i % 90)} for i in range(EVENTS_IN_WINDOW)
        ]
        level = 3 if number % 2 else None
        batches.append(encode.encode_batch(events, version=1 + number // 2 % 2, level=level))
    return b"".join(batches)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("received")
    for number in range(3):
        (folder / f"{number}.lumberjack").write_bytes(make_stream(number * WINDOWS))
    (folder / "notes.txt").write_text("no frames")
    return str(folder)


def sort_rows_of_table(table, names=COLUMNS):
    batch = to_batch(table, names, types="spark")
    return sorted(map(repr, batch.to_pylist()))


def sort_collected_rows(frame, names=COLUMNS):
    def plain(value):
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
        if isinstance(value, list):
            return [
                {key: bytes(field) for key, field in struct.asDict().items()} for struct in value
            ]
        return value

    return sorted(repr({name: plain(row[name]) for name in names}) for row in frame.collect())


@pytest.mark.parametrize("size", [None, 4000])
def test_spark_reads_events_of_files(spark, files, size):
    options = {} if size is None else {"bytes_per_partition": size}
    frame = read(spark, files, "lumberjack.events", **options)
    assert size is None or frame.rdd.getNumPartitions() > 10
    local = wirescan.scan(files, "lumberjack.events")
    assert len(local) == 3 * WINDOWS * EVENTS_IN_WINDOW
    assert sort_collected_rows(frame) == sort_rows_of_table(local)


def test_the_data_source_reads_frames(spark, files):
    register(spark)
    frames = spark.read.format("wirescan").option("format", "lumberjack.frames").load(files)
    local = lumberjack.scan(files)
    kinds = {row["kind"]: row["count"] for row in frames.groupBy("kind").count().collect()}
    assert kinds == {
        kind.name[0]: int((local["kind"] == kind).sum())
        for kind in lumberjack.Kind
        if (local["kind"] == kind).any()
    }
    pairs = spark.read.format("wirescan").option("format", "lumberjack.pairs").load(files)
    messages = pairs.where("key = cast('message' as binary)")
    assert messages.count() == 3 * WINDOWS * EVENTS_IN_WINDOW // 2


def test_streams_in_a_column(spark):
    streams = [make_stream(0, 2), b"", None, make_stream(2, 3), make_stream(5, 1)[:-1]]
    frame = spark.createDataFrame(list(enumerate(streams)), "id bigint, bytes binary")
    out = map_frames(frame, "bytes", "lumberjack.events", keep=["id"], cut="leave")
    counts = {row["id"]: row["count"] for row in out.groupBy("id").count().collect()}
    expected = {
        i: len(wirescan.scan(value, "lumberjack.events"))
        for i, value in enumerate(streams)
        if value
    }
    assert counts == {i: count for i, count in expected.items() if count}
    assert pa.table(out.select("json").toArrow()).num_rows == sum(expected.values())
