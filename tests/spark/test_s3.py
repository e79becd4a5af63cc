"""Objects in S3. Spark's workers read ranges of them and store nothing on disk.

The store is moto's server on the loopback.
"""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.spark.records import ORDERS, collect_rows, read_expected_rows
from wirescan.spark import read

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def objects():
    from tests.support.object_store import ObjectStore

    with ObjectStore() as store:
        yield store


@pytest.fixture
def topic(objects, log):
    objects.put_directory(Path(log), "topic-0")
    return "topic-0"


def test_the_same_rows_as_from_disk(spark, objects, topic, log):
    rows = read_expected_rows(log)
    for path in topic, "topic-0/*.log", "*/0*.log":
        assert collect_rows(read(spark, objects.url(path))) == rows
    assert collect_rows(spark.read.format("wirescan").load(objects.url(topic))) == rows
    several = [objects.url(f"topic-0/{base:020}.log") for base in (600, 1200)]
    assert collect_rows(read(spark, several)) == rows[600:]
    spark.sql(
        f"create or replace temp view objects using wirescan options (path '{objects.url(topic)}')"
    )
    assert spark.sql("select count(*), max(offset) from objects").first() == (1800, 1799)


def test_slices_read_their_ranges_only(spark, objects, topic, log):
    frame = read(spark, objects.url(topic), bytes_per_partition=10_000)
    slices = frame.rdd.getNumPartitions()
    rows, requests = objects.record_requests(lambda: collect_rows(frame))
    assert slices > 5
    assert rows == read_expected_rows(log)
    # Tasks know their objects and list none.
    assert {request.split()[0] for request in requests} == {"HEAD", "GET"}
    gets = [request for request in requests if request.startswith("GET") and ".log" in request]
    assert slices <= len(gets) <= 2 * slices + 3
    assert len(requests) <= 4 * len(gets)


def test_a_real_partition_is_cut_by_its_indexes(spark, objects):
    objects.put_directory(ORDERS, "orders-0")
    frame, requests = objects.record_requests(
        lambda: read(spark, objects.url("orders-0"), bytes_per_partition=200_000)
    )
    assert any(request.startswith("GET") and request.endswith(".index") for request in requests)
    assert frame.rdd.getNumPartitions() > 3
    assert collect_rows(frame) == sorted(read_expected_rows(str(ORDERS)))


def test_errors_of_an_object_are_one_line(spark, objects, damaged):
    path, position = damaged
    objects.put("damaged.log", Path(path).read_bytes())
    load = spark.read.format("wirescan").load
    for make, name, text in (
        (
            load,
            "none.log",
            "FileNotFoundError: [Errno 2] S3: no such object: 's3://bucket/none.log'",
        ),
        (load, "none*.log", "no file to read in s3://bucket/none*.log"),
        (lambda url: read(spark, url), "damaged.log", f"(BAD_CHECKSUM) at byte {position} of "),
    ):
        with pytest.raises(PySparkException) as caught:
            make(objects.url(name)).count()
        assert text in str(caught.value)
        assert len(str(caught.value).strip().splitlines()) <= 3
    with pytest.raises(FileNotFoundError, match="no such object"):
        read(spark, objects.url("none.log"))


def test_an_object_that_shrinks_after_the_plan(spark, objects, topic):
    frame = read(spark, objects.url("topic-0/0*1200.log"))
    assert frame.rdd.getNumPartitions() == 1
    objects.put(f"topic-0/{1200:020}.log", b"x" * 100)
    with pytest.raises(PySparkException, match="EOFError: .* ends at 100, before "):
        frame.collect()


def test_errors_of_the_store_in_a_task(spark, objects, topic):
    frame = read(spark, objects.url(topic), columns=["offset"])
    message = "PermissionError: .*'s3://bucket/topic-0/0"
    with objects.refuse_logins(), pytest.raises(PySparkException, match=message) as caught:
        frame.count()
    assert "secret" not in str(caught.value)
    assert frame.count() == 1800
