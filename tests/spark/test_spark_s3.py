"""Objects in S3, here moto's server on loopback, read by Spark's workers in ranges: nothing is staged."""
from pathlib import Path

import pytest
from conftest import ORDERS, collected, expected
from pyspark.errors import PySparkException

from wirescan.spark import read

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def objects():
    from objects import ObjectStore
    with ObjectStore() as store:
        yield store


@pytest.fixture
def topic(objects, log):
    objects.put_directory(Path(log), "topic-0")
    return "topic-0"


def test_the_same_rows_as_from_disk(spark, objects, topic, log):
    rows = expected(log)
    for path in topic, "topic-0/*.log", "*/0*.log":
        assert collected(read(spark, objects.url(path))) == rows
    assert collected(spark.read.format("wirescan").load(objects.url(topic))) == rows
    several = [objects.url(f"topic-0/{base:020}.log") for base in (600, 1200)]
    assert collected(read(spark, several)) == rows[600:]
    spark.sql(f"create or replace temp view objects using wirescan options (path '{objects.url(topic)}')")
    assert spark.sql("select count(*), max(offset) from objects").first() == (1800, 1799)


def test_slices_read_their_ranges_only(spark, objects, topic, log):
    frame = read(spark, objects.url(topic), bytes_per_partition=10_000)
    slices = frame.rdd.getNumPartitions()
    rows, requests = objects.told(lambda: collected(frame))
    assert slices > 5 and rows == expected(log)
    got = [one for one in requests if one.startswith("GET") and ".log" in one]
    assert {one.split()[0] for one in requests} == {"HEAD", "GET"}      # no listing: tasks know what they read
    assert slices <= len(got) <= 2 * slices + 3 and len(requests) <= 4 * len(got)


def test_a_real_partition_is_cut_by_its_indexes(spark, objects):
    objects.put_directory(ORDERS, "orders-0")
    frame, requests = objects.told(lambda: read(spark, objects.url("orders-0"), bytes_per_partition=200_000))
    assert any(one.startswith("GET") and one.endswith(".index") for one in requests)
    assert frame.rdd.getNumPartitions() > 3
    assert collected(frame) == sorted(expected(str(ORDERS)))


def test_what_is_wrong_with_an_object_is_told_in_a_line(spark, objects, damaged):
    path, at = damaged
    objects.put("damaged.log", Path(path).read_bytes())
    load = spark.read.format("wirescan").load
    for make, name, words in (
            (load, "none.log", "FileNotFoundError: [Errno 2] no such object: 's3://bucket/none.log'"),
            (load, "none*.log", "no file to read in s3://bucket/none*.log"),
            (lambda url: read(spark, url), "damaged.log", f"(BAD_CHECKSUM) at byte {at} of ")):
        with pytest.raises(PySparkException) as caught:
            make(objects.url(name)).count()
        assert words in str(caught.value) and len(str(caught.value).strip().splitlines()) <= 3
    with pytest.raises(FileNotFoundError, match="no such object"):
        read(spark, objects.url("none.log"))


def test_an_object_that_is_replaced_by_a_shorter_one_after_it_was_planned(spark, objects, topic):
    frame = read(spark, objects.url("topic-0/0*1200.log"))
    assert frame.rdd.getNumPartitions() == 1
    objects.put(f"topic-0/{1200:020}.log", b"x" * 100)
    with pytest.raises(PySparkException, match="EOFError: .* ends at 100, before "):
        frame.collect()


def test_errors_of_the_store_in_a_task(spark, objects, topic):
    frame = read(spark, objects.url(topic), columns=["offset"])
    message = "PermissionError: .*'s3://bucket/topic-0/0"
    with objects.refusing(), pytest.raises(PySparkException, match=message) as caught:
        frame.count()
    assert "secret" not in str(caught.value)
    assert frame.count() == 1800
