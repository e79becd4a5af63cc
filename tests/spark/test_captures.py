"""Frames in captures: the same as without Spark. A capture is read by one task."""

import pytest
from pyspark.errors import AnalysisException

import wirescan
from tests.support.captures import list_captures
from wirescan.spark import faults, ranges, read, to_parquet
from wirescan.spark.datasource import WirescanSource

pytestmark = pytest.mark.spark
COLUMNS = ["time", "client", "direction", "api_key", "correlation_id"]
CAPTURES = [capture for capture in list_captures() if capture.protocol == "kafka"]
FORMATS = ["kafka.requests", "kafka.requests?capture=true"]
PATHS = [str(capture.path) for capture in CAPTURES]


def list_local_rows():
    """Return the rows without Spark. Spark's times are in microseconds, rounded down."""
    rows = []
    for path in PATHS:
        table = wirescan.scan(path, "kafka.requests").to_arrow(COLUMNS)
        times = [time // 1000 for time in table["time"].cast("int64").to_pylist()]
        rows += zip(times, *(table[name].to_pylist() for name in COLUMNS[1:]))
    return sorted(rows)


def list_spark_rows(frame):
    times = frame.selectExpr("unix_micros(time) AS time", *COLUMNS[1:])
    return sorted(tuple(row) for row in times.collect())


@pytest.mark.parametrize("format", FORMATS)
def test_the_function_reads_captures(spark, format):
    frame = read(spark, PATHS, format, columns=COLUMNS, bytes_per_partition=1000)
    assert frame.rdd.getNumPartitions() == len(PATHS)
    assert list_spark_rows(frame) == list_local_rows()


@pytest.mark.parametrize("format", FORMATS)
def test_the_source_reads_captures(spark, format):
    frame = spark.read.format("wirescan").option("format", format).load(PATHS).select(*COLUMNS)
    assert list_spark_rows(frame) == list_local_rows()


def test_other_functions_read_captures(spark, tmp_path):
    tables = ranges(spark, PATHS[:1], "kafka.requests")
    assert tables.reading.format == "kafka.requests?capture=true"
    assert faults(spark, PATHS, "kafka.requests").count() == 0
    summary = to_parquet(spark, PATHS, tmp_path / "out", "kafka.requests", columns=COLUMNS)
    assert summary.records == len(list_local_rows())
    assert list_spark_rows(spark.read.parquet(str(tmp_path / "out"))) == list_local_rows()


def test_formats_that_are_not_sent_are_refused(spark):
    name = "kafka.redpanda_records"
    message = "is a capture of packets: kafka.redpanda_batches are not sent over connections"
    with pytest.raises(ValueError, match=message):
        read(spark, PATHS, name)
    with pytest.raises(AnalysisException, match=message):
        spark.read.format("wirescan").option("format", name).load(PATHS)


@pytest.mark.parametrize("name", ["kafka.records", "kafka.exchanges"])
def test_records_and_exchanges_are_read(spark, name):
    columns = ["client", "topic", "offset", "value"] if name == "kafka.records" else ["latency"]
    frame = read(spark, PATHS, name).select(*columns)
    tables = (wirescan.scan(path, name).to_arrow(columns) for path in PATHS)
    expected = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    assert sorted(map(repr, map(tuple, frame.collect()))) == sorted(map(repr, expected))
    assert expected


def test_a_stream_of_captures_is_refused():
    source = WirescanSource({"path": PATHS[0], "format": "kafka.requests"})
    with pytest.raises(ValueError, match="are not read as it grows"):
        source.streamReader(source.schema())
