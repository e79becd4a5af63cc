"""Frames in captures: the same as without Spark. A capture is read by one task."""

import pytest

import wirescan
from tests.support.captures import list_captures
from wirescan.spark import read

pytestmark = pytest.mark.spark
COLUMNS = ["time", "client", "direction", "api_key", "correlation_id"]
CAPTURES = [capture for capture in list_captures() if capture.protocol == "kafka"]
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


def test_the_function_reads_captures(spark):
    frame = read(
        spark, PATHS, "kafka.requests?capture=true", columns=COLUMNS, bytes_per_partition=1000
    )
    assert frame.rdd.getNumPartitions() == len(PATHS)
    assert list_spark_rows(frame) == list_local_rows()


def test_the_source_reads_captures(spark):
    frame = (
        spark.read.format("wirescan")
        .option("format", "kafka.requests?capture=true")
        .load(PATHS)
        .select(*COLUMNS)
    )
    assert list_spark_rows(frame) == list_local_rows()
