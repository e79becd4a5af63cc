"""NATS and Liftbridge through Spark: captures, commit logs, and payloads in a binary column."""

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

import wirescan
from tests.spark.frames import sort_rows, sort_rows_of_frame, write_captures
from tests.support.liftbridge_bytes import (
    make_capture,
    make_envelope,
    make_payloads,
    write_partition,
)
from wirescan import FrameError, Limits, liftbridge
from wirescan.frames.to_arrow import to_batch
from wirescan.liftbridge import Kind
from wirescan.spark import map_frames, read
from wirescan.spark.frame_mapping import read_values
from wirescan.spark.run import Reading

pytestmark = pytest.mark.spark

IN_CAPTURES = (
    "nats.messages",
    "nats.headers",
    "liftbridge.envelopes",
    "liftbridge.messages",
    "liftbridge.acks",
    "liftbridge.internal",
    "liftbridge.headers",
)
FILES = 3


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captures")
    write_captures(folder, "nats", make_capture, FILES)
    return str(folder)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return str(write_partition(tmp_path_factory.mktemp("log") / "0"))


@pytest.fixture(scope="module")
def values():
    """The values of a binary column: payloads and nulls."""
    return [None, *make_payloads(0, 100), None, *make_payloads(100, 20)]


@pytest.fixture(scope="module")
def column(spark, values):
    rows = [(i, None if value is None else bytearray(value)) for i, value in enumerate(values)]
    return spark.createDataFrame(rows, "number bigint, payload binary").repartition(2)


def read_locally(source, format, names=None):
    return to_batch(wirescan.scan(source, format), names, types="spark", binary="binary")


@pytest.mark.parametrize("format", IN_CAPTURES)
def test_spark_reads_captures(spark, captures, format):
    expected = read_locally(captures, format)
    assert expected.num_rows > FILES
    whole = read(spark, captures, format)
    reader = spark.read.format("wirescan").option("format", format)
    sliced = reader.option("bytesPerPartition", "2k").load(captures)
    assert sliced.rdd.getNumPartitions() > 2 * FILES
    assert sort_rows_of_frame(whole, expected.schema) == sort_rows(expected)
    assert sort_rows_of_frame(sliced, expected.schema) == sort_rows(expected)


def test_spark_reads_commit_logs(spark, log):
    names = ["offset", "timestamp", "leader_epoch", "key", "value", "headers", "fault"]
    expected = read_locally(log, "liftbridge.entries", names)
    whole = read(spark, log, "liftbridge.entries", names)
    options = {
        "format": "liftbridge.entries",
        "bytesPerPartition": "2k",
        "columns": ",".join(names),
    }
    sliced = spark.read.format("wirescan").options(**options).load(log)
    assert sliced.rdd.getNumPartitions() > 6
    assert sort_rows_of_frame(whole, expected.schema) == sort_rows(expected)
    assert sort_rows_of_frame(sliced, expected.schema) == sort_rows(expected)
    sums = whole.selectExpr("min(offset)", "max(offset)", "count(timestamp)", "count(key)").first()
    assert tuple(sums) == (0, 598, 300, 240)
    assert expected["timestamp"].type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("format", IN_CAPTURES[2:])
def test_values_are_envelopes(column, values, format):
    table = wirescan.formats()[format].inside(liftbridge.scan(pa.array(values, pa.binary())))
    # The number of the value of each row is the row of its outermost frame.
    numbers = range(len(table))
    level = table
    while level.outer is not None:
        numbers = level["parent"][numbers]
        level = level.outer
    expected = pa.Table.from_batches([to_batch(table, types="spark", binary="binary")])
    expected = expected.add_column(0, "number", pa.array(numbers, pa.int64()))
    # A null has no frames.
    expected = expected.filter(pa.array([values[number] is not None for number in numbers]))
    out = map_frames(column, "payload", format, keep=["number"])
    assert expected.num_rows
    assert sort_rows_of_frame(out, expected.schema) == sort_rows(expected)


def test_values_are_streams_of_other_formats(spark, log):
    streams = [
        make_capture(0, 20),
        None,
        b"",
        make_capture(30, 5) + b"PUB cut 9\r\n",
        make_capture(40, 1),
    ]
    frame = spark.createDataFrame(list(enumerate(streams)), "id bigint, bytes binary")
    for format in ("nats.messages", "nats.headers"):
        out = map_frames(frame, "bytes", format, keep=["id"], cut="leave")
        counts = dict(map(tuple, out.groupBy("id").count().collect()))
        expected = {
            i: len(wirescan.scan(value, format)) for i, value in enumerate(streams) if value
        }
        assert counts == {i: count for i, count in expected.items() if count}
    with open(f"{log}/{0:020}.log", "rb") as file:
        segment = file.read()
    entries = spark.createDataFrame([(segment,), (segment,)], "bytes binary")
    out = map_frames(entries, "bytes", "liftbridge.entries", columns=["offset"])
    assert out.selectExpr("count(*)", "sum(offset)").first() == (200, 2 * sum(range(0, 200, 2)))


def test_bad_values_in_each_mode(spark):
    good = make_envelope(Kind.PUBLISH, b"\x1a\1x", crc=True)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    values = [
        good,
        b"",
        bytes(flipped),
        None,
        make_envelope(77, b""),
        make_envelope(Kind.PUBLISH, b"\x1a\x7fx"),
        b"plain",
    ]
    frame = spark.createDataFrame(list(enumerate(values)), "id int, payload binary").coalesce(1)
    options = {"keep": ["id"], "columns": ["kind", "value", "fault"]}

    def collect(format="liftbridge.messages", **more):
        out = map_frames(frame, "payload", format, **options, **more)
        return [
            (id, kind, value and bytes(value), fault)
            for id, kind, value, fault in out.orderBy("id").collect()
        ]

    good_rows = [(0, "PUBLISH", b"x", None), (1, "PLAIN", b"", None), (6, "PLAIN", b"plain", None)]
    assert collect(errors="skip") == good_rows
    marked = collect(errors="mark")
    assert [row for row in marked if not row[3]] == good_rows
    faults = {id: fault for id, _, _, fault in marked if fault}
    assert faults[2] == "BAD_CHECKSUM"
    assert faults[5] == "TRUNCATED"
    envelopes = map_frames(
        frame, "payload", "liftbridge.envelopes", ["id"], columns=["fault"], errors="mark"
    )
    faults = dict(map(tuple, envelopes.where("fault is not null").collect()))
    assert faults == {2: "BAD_CHECKSUM", 4: "BAD_KIND"}
    assert [row[0] for row in collect(check=False, errors="skip")] == [0, 1, 2, 6]
    message = r"BAD_CHECKSUM\) at byte 0 of column payload, row 2 of partition 0"
    with pytest.raises(PythonException, match=message):
        collect()


def test_errors_name_the_value():
    """An empty value starts at the position of its neighbour."""
    reading = Reading("liftbridge.messages")
    bad = make_envelope(Kind.PUBLISH, b"\x1a\x7fx")
    for values in ([b"", b"ok", b"", b"", bad, b"", b"ok"], [None, bad, b""], [b"", b"", bad]):
        with pytest.raises(FrameError, match="TRUNCATED") as caught:
            list(read_values(pa.array(values, pa.binary()), reading, first=100, name_value=str))
        assert caught.value.source == str(100 + values.index(bad))
    # The limit holds for all values of a table together.
    for format, values in (
        ("liftbridge.envelopes", [b"", b"a", b"b", b"c", b"d"]),
        ("nats.messages", [b"PING\r\n"] * 5),
    ):
        limited = Reading(format, limits=Limits(rows=3))
        with pytest.raises(FrameError, match="LIMIT") as caught:
            list(read_values(pa.array([*values, b"PING\r\n" * 4]), limited, name_value=str))
        assert caught.value.source == "3"


def test_columns_of_frames_around_the_values(column):
    for name in ("sid", "queue"):
        with pytest.raises(ValueError, match="enclosing frame"):
            map_frames(column, "payload", "liftbridge.messages", columns=["value", name])
    out = map_frames(
        column, "payload", "liftbridge.headers", columns=["stream", "version", "value"]
    )
    assert out.select("stream").distinct().count() == 1
