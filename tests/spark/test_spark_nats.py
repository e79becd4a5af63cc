"""NATS and Liftbridge through Spark: captures, commit logs, and payloads in a binary column."""
import pyarrow as pa
import pytest
from liftbridge_bytes import capture, envelope, payloads, segments
from pyspark.errors import PythonException

import wirescan
from wirescan import Fault, FrameError, Limits, liftbridge
from wirescan.arrow import to_batch
from wirescan.liftbridge import Kind
from wirescan.spark import map_frames, read
from wirescan.spark.mapping import tables
from wirescan.spark.reading import Reading

pytestmark = pytest.mark.spark

IN_CAPTURES = ("nats.messages", "nats.headers", "liftbridge.envelopes", "liftbridge.messages", "liftbridge.acks",
               "liftbridge.internal", "liftbridge.headers")
FILES = 3


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captures")
    for number in range(FILES):
        (folder / f"{number}.nats").write_bytes(capture(100 * number, 100))
    (folder / "notes.txt").write_text("no capture")
    return str(folder)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return str(segments(tmp_path_factory.mktemp("log") / "0"))


@pytest.fixture(scope="module")
def values():
    """What is in a binary column: payloads, and null."""
    return [None, *payloads(0, 100), None, *payloads(100, 20)]


@pytest.fixture(scope="module")
def column(spark, values):
    rows = [(i, None if value is None else bytearray(value)) for i, value in enumerate(values)]
    return spark.createDataFrame(rows, "number bigint, payload binary").repartition(2)


def rows_of(batch):
    return sorted(map(repr, batch.to_pylist()))


def of_spark(frame, schema):
    return rows_of(frame.toArrow().cast(schema))


def local(source, format, names=None):
    return to_batch(wirescan.scan(source, format), names, types="spark", binary="binary")


@pytest.mark.parametrize("format", IN_CAPTURES)
def test_captures(spark, captures, format):
    want = local(captures, format)
    assert want.num_rows > FILES
    by_source = spark.read.format("wirescan").option("format", format)
    whole, cut = read(spark, captures, format), by_source.option("bytesPerPartition", "2k").load(captures)
    assert cut.rdd.getNumPartitions() > 2 * FILES
    assert of_spark(whole, want.schema) == of_spark(cut, want.schema) == rows_of(want)


def test_commit_logs(spark, log):
    want = local(log, "liftbridge.entries", ["offset", "timestamp", "leader_epoch", "key", "value", "headers", "fault"])
    names = want.schema.names
    whole = read(spark, log, "liftbridge.entries", names)
    cut = spark.read.format("wirescan").options(
        format="liftbridge.entries", bytesPerPartition="2k", columns=",".join(names)).load(log)
    assert cut.rdd.getNumPartitions() > 6
    assert of_spark(whole, want.schema) == of_spark(cut, want.schema) == rows_of(want)
    found = whole.selectExpr("min(offset)", "max(offset)", "count(timestamp)", "count(key)").first()
    assert tuple(found) == (0, 598, 300, 240)
    assert want["timestamp"].type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("format", IN_CAPTURES[2:])
def test_values_are_envelopes(column, values, format):
    table = wirescan.formats()[format].inside(liftbridge.scan(pa.array(values, pa.binary())))
    rows, outer = range(len(table)), table
    while outer.outer is not None:
        rows, outer = outer["parent"][rows], outer.outer
    want = pa.Table.from_batches([to_batch(table, types="spark", binary="binary")])
    want = want.add_column(0, "number", pa.array(rows, pa.int64()))
    want = want.filter(pa.array([values[row] is not None for row in rows]))       # null holds none
    out = map_frames(column, "payload", format, keep=["number"])
    assert want.num_rows and of_spark(out, want.schema) == rows_of(want)


def test_values_are_streams_of_other_formats(spark, log):
    streams = [capture(0, 20), None, b"", capture(30, 5) + b"PUB cut 9\r\n", capture(40, 1)]
    frame = spark.createDataFrame([(i, value) for i, value in enumerate(streams)], "id bigint, bytes binary")
    for format in ("nats.messages", "nats.headers"):
        out = map_frames(frame, "bytes", format, keep=["id"], cut="leave")
        counts = dict(map(tuple, out.groupBy("id").count().collect()))
        want = {i: len(wirescan.scan(value, format)) for i, value in enumerate(streams) if value}
        assert counts == {i: count for i, count in want.items() if count}
    with open(f"{log}/{0:020}.log", "rb") as file:
        segment = file.read()
    entries = spark.createDataFrame([(segment,), (segment,)], "bytes binary")
    out = map_frames(entries, "bytes", "liftbridge.entries", columns=["offset"])
    assert out.selectExpr("count(*)", "sum(offset)").first() == (200, 2 * sum(range(0, 200, 2)))


def test_bad_values_in_each_mode(spark):
    good = envelope(Kind.PUBLISH, b"\x1a\1x", crc=True)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    values = [good, b"", bytes(flipped), None, envelope(77, b""), envelope(Kind.PUBLISH, b"\x1a\x7fx"), b"plain"]
    frame = spark.createDataFrame(list(enumerate(values)), "id int, payload binary").coalesce(1)
    options = {"keep": ["id"], "columns": ["kind", "value", "fault"]}
    def found(format="liftbridge.messages", **more):
        return [(row[0], row[1], row[2] and bytes(row[2]), row[3])
                for row in map_frames(frame, "payload", format, **options, **more).orderBy("id").collect()]
    fine = [(0, "PUBLISH", b"x", 0), (1, "PLAIN", b"", 0), (6, "PLAIN", b"plain", 0)]
    assert found(errors="skip") == fine
    marked = found(errors="mark")
    assert [row for row in marked if not row[3]] == fine
    assert {row[0]: row[3] for row in marked if row[3]}.items() >= {2: Fault.BAD_CHECKSUM, 5: Fault.TRUNCATED}.items()
    faults = map_frames(frame, "payload", "liftbridge.envelopes", ["id"], columns=["fault"], errors="mark")
    assert dict(map(tuple, faults.where("fault != 0").collect())) == {2: Fault.BAD_CHECKSUM, 4: Fault.BAD_KIND}
    assert [row[0] for row in found(check=False, errors="skip")] == [0, 1, 2, 6]
    with pytest.raises(PythonException, match=r"BAD_CHECKSUM\) at byte 0 of column payload, row 2 of partition 0"):
        found()


def test_the_value_of_an_error_is_named():
    """Also among empty ones, which begin where their neighbours do."""
    reading = Reading("liftbridge.messages")
    bad = envelope(Kind.PUBLISH, b"\x1a\x7fx")
    for values in ([b"", b"ok", b"", b"", bad, b"", b"ok"], [None, bad, b""], [b"", b"", bad]):
        with pytest.raises(FrameError, match="TRUNCATED") as caught:
            list(tables(pa.array(values, pa.binary()), reading, first=100, where=str))
        assert caught.value.source == str(100 + values.index(bad))
    for format, most in (("liftbridge.envelopes", 3), ("nats.messages", 3)):
        stream = [b"PING\r\n"] * 5 if format == "nats.messages" else [b"", b"a", b"b", b"c", b"d"]
        with pytest.raises(FrameError, match="LIMIT") as caught:
            list(tables(pa.array([*stream, b"PING\r\n" * 4]), Reading(format, limits=Limits(rows=most)), where=str))
        assert caught.value.source == "3"               # the limit is of what is read together


def test_columns_of_frames_around_the_values(column):
    for name in ("sid", "queue"):
        with pytest.raises(ValueError, match="enclosing frame"):
            map_frames(column, "payload", "liftbridge.messages", columns=["value", name])
    out = map_frames(column, "payload", "liftbridge.headers", columns=["stream", "version", "value"])
    assert out.select("stream").distinct().count() == 1
