"""DataFrames that are written as Kafka segments."""

import glob
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, StructType

from tests.support.paths import ORDERS
from wirescan import kafka
from wirescan.spark import read
from wirescan.spark.segment_sink import SegmentSink, WrittenPartitions

pytestmark = pytest.mark.spark
HEADERS = ArrayType(StructType().add("key", "string").add("value", "binary"))
ALL = "key, value, topic, partition, offset, timestamp, headers"


def write(frame, path, mode="append", **options):
    frame.write.format("wirescan").mode(mode).options(**options).save(str(path))


def read_back(spark, path):
    frame = read(spark, str(path), schema="kafka", include_headers=True)
    return frame.orderBy("topic", "partition", "offset").collect()


@pytest.fixture
def orders(spark):
    """The records of a real partition directory, with gaps between their offsets."""
    return read(spark, str(ORDERS), schema="kafka", include_headers=True)


def list_segments(path):
    return sorted(glob.glob(f"{path}/*/*.log"))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_of_a_log_are_written_back(spark, orders, tmp_path, codec):
    out = tmp_path / "out"
    arranged = orders.repartition("topic", "partition").sortWithinPartitions("offset")
    write(arranged, out, codec=codec, segmentBytes="200k", batchBytes="16k")
    assert os.listdir(out) == ["orders-0"]
    sizes = [os.path.getsize(segment) for segment in list_segments(out)]
    assert len(sizes) > 3 and max(sizes) <= 200 << 10 < sum(sizes[:2])
    expected = [row.asDict(recursive=True) | {"timestampType": 0} for row in orders.collect()]
    expected.sort(key=lambda row: row["offset"])
    assert [row.asDict(recursive=True) for row in read_back(spark, out)] == expected
    directory = kafka.open_log(out / "orders-0", start=20_000, stop=20_010)
    assert kafka.records(directory)["offset"].tolist() == [
        row["offset"] for row in expected if 20_000 <= row["offset"] < 20_010
    ]
    for segment in list_segments(out):
        assert Path(segment).with_suffix(".index").exists()
        assert Path(segment).with_suffix(".timeindex").exists()


def test_rows_without_offsets_get_them_in_order(spark, tmp_path):
    frame = spark.range(0, 25_000, 1, 2).selectExpr("cast(id as string) as value")
    write(frame, tmp_path / "out", topic="numbers")
    assert sorted(os.listdir(tmp_path / "out")) == ["numbers-0", "numbers-1"]
    values = []
    for partition in (0, 1):
        records = kafka.records(kafka.scan(tmp_path / "out" / f"numbers-{partition}"))
        assert np.array_equal(records["offset"], np.arange(12_500))
        assert (records["timestamp"] == -1).all() and (records["key_size"] == -1).all()
        values += [int(bytes(record.value)) for record in records]
    assert values == list(range(25_000))


def test_partitions_and_topics_are_columns(spark, tmp_path):
    rows = [("b", 1, 7, "x"), ("b", 1, 9, None), ("a", 0, 0, "y"), ("b", 0, 3, "z")]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset bigint, value string")
    write(frame.coalesce(1), tmp_path / "out")
    found = [
        (row.topic, row.partition, row.offset, row.value)
        for row in read_back(spark, tmp_path / "out")
    ]
    encoded = [(*row[:3], row[3] and row[3].encode()) for row in rows]
    assert found == sorted(encoded, key=lambda row: row[:3])


def test_existing_partitions_are_kept_or_replaced(spark, tmp_path):
    out = tmp_path / "out"
    first = spark.createDataFrame([("first", 0), ("first", 1)], "value string, partition int")
    write(first.coalesce(1), out, topic="t")
    second = spark.createDataFrame([("second", 1)], "value string, partition int")
    with pytest.raises(PySparkException, match="has t-1 already"):
        write(second, out, topic="t")
    write(second, out, "overwrite", topic="t")
    assert [row.value for row in read_back(spark, out)] == [b"first", b"second"]
    assert sorted(os.listdir(out)) == ["t-0", "t-1"]


def test_a_partition_that_cannot_be_replaced_is_put_back(tmp_path):
    """The new partition is gone when the driver moves it."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "kept").write_text("old")
    schema = StructType().add("value", "string")
    sink = SegmentSink({"path": str(tmp_path), "topic": "t"}, schema, overwrite=True)
    os.makedirs(sink._progress)
    with pytest.raises(FileNotFoundError):
        sink.commit([WrittenPartitions(str(tmp_path / "nowhere"), ("t-0",))])
    assert (tmp_path / "t-0" / "kept").read_text() == "old"
    assert os.listdir(tmp_path) == ["t-0"]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("topic", ["t", None], "column topic has a null"),  # the rows went to a topic "None"
        ("partition", [0, None], "column partition has a null"),
        ("offset", [-5, -4], "no offset -5"),  # this error asked for sorted rows
    ],
)
def test_rows_without_a_place_are_refused(tmp_path, column, values, message):
    kind = "string" if column == "topic" else "integer"
    schema = StructType().add("value", "string").add(column, kind)
    options = {"path": str(tmp_path / "out")} | ({} if column == "topic" else {"topic": "t"})
    sink = SegmentSink(options, schema, overwrite=False)
    batch = pa.record_batch({"value": pa.array(["v", "w"]), column: pa.array(values)})
    with pytest.raises(ValueError, match=message):
        sink.write(iter([batch]))


@pytest.mark.parametrize("large", [0, 2, 5])
def test_a_batch_larger_than_a_segment_has_a_segment_of_its_own(tmp_path, large):
    """The rows after it were refused: the next segment had the same name again."""
    values = [b"v"] * 6
    values[large] = b"v" * 1000
    schema = StructType().add("value", "binary")
    options = {"path": str(tmp_path), "topic": "t", "segmentBytes": "200", "batchBytes": "80"}
    sink = SegmentSink(options, schema, overwrite=False)
    batches = [pa.record_batch({"value": pa.array(part, pa.binary())}) for part in (values, values)]
    sink.commit([sink.write(iter(batches))])
    records = kafka.records(kafka.scan(tmp_path / "t-0"))
    assert records["offset"].tolist() == list(range(12))
    assert [bytes(record.value) for record in records] == values * 2
    sizes = [os.path.getsize(segment) for segment in list_segments(tmp_path)]
    assert sum(size > 200 for size in sizes) == 2


@pytest.mark.parametrize("source", ["", "*", "*/*", "**"])
def test_readers_do_not_see_what_is_not_committed(tmp_path, source):
    """They read the segments of jobs in progress, and after a kill those that were replaced."""
    schema = StructType().add("value", "string")
    options = {"path": str(tmp_path), "topic": "t"}
    batch = pa.record_batch({"value": pa.array(["v"] * 3)})
    first = SegmentSink(options, schema, overwrite=False)
    first.commit([first.write(iter([batch]))])
    second = SegmentSink(options, schema, overwrite=True)
    second.write(iter([batch, batch]))
    shutil.copytree(tmp_path / "t-0", os.path.join(second._progress, "t-0.replaced"))
    assert len(kafka.records(kafka.scan(tmp_path / source))) == 3


def test_an_error_in_a_record_names_its_partition_and_offset(tmp_path):
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    pairs = [[], [{"key": None, "value": b"x"}]]
    batch = pa.record_batch({"value": pa.array(["v", "w"]), "headers": pa.array(pairs, headers)})
    schema = StructType().add("value", "string").add("headers", HEADERS)
    sink = SegmentSink({"path": str(tmp_path), "topic": "t"}, schema, overwrite=False)
    good = pa.record_batch({"value": pa.array(["u"] * 5), "headers": pa.array([[]] * 5, headers)})
    with pytest.raises(ValueError, match="rows of t-0 from offset 5 on: row 1: a header's key"):
        sink.write(iter([good, batch]))


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_link_to_nothing_is_a_partition_that_exists(tmp_path, overwrite):
    (tmp_path / "t-1").symlink_to("nowhere")
    schema = StructType().add("value", "string").add("partition", "integer")
    sink = SegmentSink({"path": str(tmp_path), "topic": "t"}, schema, overwrite=overwrite)
    partitions = pa.array([0, 1], pa.int32())
    batch = pa.record_batch({"value": pa.array(["v", "w"]), "partition": partitions})
    written = sink.write(iter([batch]))
    if overwrite:
        sink.commit([written])
        assert sorted(os.listdir(tmp_path)) == ["t-0", "t-1"]
        assert len(kafka.records(kafka.scan(tmp_path / "t-1"))) == 1
        return
    with pytest.raises(ValueError, match="has t-1 already"):
        sink.commit([written])
    assert os.listdir(tmp_path) == ["t-1"]  # partition 0 was put in its place before the error


def test_large_batches_are_refused_before_a_task_runs(tmp_path):
    options = {"path": str(tmp_path), "topic": "t", "batchBytes": "2g"}
    with pytest.raises(ValueError, match="option batchBytes must be at most 2147483647, not '2g'"):
        SegmentSink(options, StructType().add("value", "string"), overwrite=False)


def test_a_failed_job_leaves_nothing(spark, tmp_path):
    out = tmp_path / "out"
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        "cast(assert_true(id < 900) as string) as value", "cast(id as string) as key"
    )
    with pytest.raises(PySparkException):
        write(frame, out, topic="t")
    assert not out.exists() or os.listdir(out) == []


def test_a_retried_task_writes_once(spark, tmp_path):
    """The first attempt of each task fails after it has read its rows."""
    from pyspark import TaskContext

    def fail_once(batches):
        yield from batches
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first attempt")

    frame = spark.range(0, 5000, 1, 2).selectExpr("cast(id as string) as value")
    write(frame.mapInArrow(fail_once, frame.schema), tmp_path / "out", topic="t")
    records = kafka.records(kafka.scan(tmp_path / "out"))
    assert len(records) == 5000


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("'v' as value", {}, "give the topic"),
        ("'v' as value, 't' as topic", {"topic": "t"}, "give the topic"),
        ("'v' as value, 1 as ofset", {"topic": "t"}, "no column 'ofset'"),
        ("1 as value", {"topic": "t"}, "must be binary or string"),
        ("'k' as key", {"topic": "t"}, "needs the column value"),
        ("'v' as value", {"topic": "t", "codec": "rar"}, "codec must be .*, not 'rar'"),
        ("'v' as value", {"topic": "t", "segmentBites": "1"}, "without an option"),
        ("'v' as value", {"topic": "../up"}, "is not the name of a topic"),
        ("'v' as value, -1 as partition", {"topic": "t"}, "no partition -1"),
        ("'v' as value, cast(null as int) as partition", {"topic": "t"}, "has a null"),
    ],
)
def test_unfit_frames_are_refused(spark, tmp_path, columns, options, message):
    frame = spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException, match=message):
        write(frame, tmp_path / "out", **options)


def test_unsorted_and_divided_partitions_are_refused(spark, tmp_path):
    schema = "partition int, offset bigint, value string"
    rows = [(0, 5, "v"), (0, 4, "v")]
    with pytest.raises(PySparkException, match="offset 4 of t-0 follows offset 5: sort the rows"):
        write(spark.createDataFrame(rows, schema).coalesce(1), tmp_path / "a", topic="t")
    divided = spark.createDataFrame([(0, 0, "v")], schema)
    with pytest.raises(PySparkException, match="several tasks have rows of t-0"):
        write(divided.union(divided), tmp_path / "b", topic="t")
    with pytest.raises(PySparkException, match="file system that driver and executors share"):
        write(divided, "s3://bucket/out", topic="t")
