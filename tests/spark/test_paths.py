"""Paths as Spark spells them."""

import pytest
from pyspark.sql.types import StructType

from tests.spark.records import read_expected_rows
from wirescan.spark import read
from wirescan.spark.datasource_options import parse_reading
from wirescan.spark.datasource_stream import StreamReader
from wirescan.spark.run import list_paths
from wirescan.spark.segment_sink import SegmentSink

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/data/orders-0", "/data/orders-0"),
        ("file:/data/orders-0", "/data/orders-0"),
        ("file:///data/orders%200", "/data/orders 0"),
        ("FILE://localhost/data", "/data"),
        ("dbfs:/data/orders-0", "/dbfs/data/orders-0"),
        ("dbfs:///data", "/dbfs/data"),
        ("dbfs:/Volumes/main/logs", "/Volumes/main/logs"),
        ("/Volumes/main/logs", "/Volumes/main/logs"),
        ("s3a://bucket/logs/*.log", "s3a://bucket/logs/*.log"),
        ("abfss://container@account.dfs.core.windows.net/logs",) * 2,
        ("gs://bucket/logs",) * 2,
        ("hdfs://namenode:8020/logs",) * 2,
    ],
)
def test_paths_are_files_or_urls(given, expected):
    assert list_paths(given) == [expected]
    assert list_paths([given, given]) == [expected, expected]


def test_an_empty_path_is_not_the_current_directory():
    with pytest.raises(FileNotFoundError):
        list_paths("")
    with pytest.raises(FileNotFoundError):
        parse_reading({"path": ""})
    with pytest.raises(FileNotFoundError):
        StreamReader({"path": ""}, parse_reading({}).struct)
    with pytest.raises(FileNotFoundError):
        SegmentSink({"path": "", "topic": "t"}, StructType().add("value", "string"), overwrite=True)


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_scheme_is_read_in_every_way(spark, log, scheme):
    count = len(read_expected_rows(log))
    assert read(spark, scheme + log, columns=["offset"]).count() == count
    assert spark.read.format("wirescan").load(scheme + log).count() == count
    stream = spark.readStream.format("wirescan").load(scheme + log)
    query = stream.writeStream.format("memory").queryName("paths").trigger(availableNow=True)
    query.start().awaitTermination(60)
    assert spark.table("paths").count() == count
