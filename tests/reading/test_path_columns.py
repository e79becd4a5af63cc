"""Columns that follow from the path of a file: topic, partition and stream."""

import os

import polars as pl
import pyarrow as pa
import pytest

import wirescan
from tests.support.paths import ORDERS
from wirescan import kafka, liftbridge
from wirescan.export.batches import iter_batches
from wirescan.frames.registry import format_of
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.files import read_partition, read_topic
from wirescan.liftbridge.files import read_partition as read_stream_partition
from wirescan.liftbridge.files import read_stream
from wirescan.reading.filters import check_filters, prune_file
from wirescan.reading.splits import plan_tasks

SEGMENT = f"{0:020}.log"


@pytest.fixture
def logs(tmp_path):
    """Three partition directories, and a segment that is in none."""
    for number, name in enumerate(("a-b-0", "a-b-12", "c.d-1", "plain")):
        (tmp_path / name).mkdir()
        (tmp_path / name / SEGMENT).write_bytes(encode_batch([Record(number, value=b"v")]))
    return tmp_path


def read(path, **options):
    columns = ["topic", "partition", "offset"]
    batches = iter_batches(str(path), format="kafka.records", columns=columns, **options)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("path", "topic", "partition"),
    [
        ("/data/orders-0/1.log", "orders", 0),
        ("/data/my-topic-with-1-2-17/1.log", "my-topic-with-1-2", 17),
        ("/data/__consumer_offsets-49/1.log", "__consumer_offsets", 49),
        ("s3://bucket/backup/orders-3/1.log?region=eu", "orders", 3),
        ("s3://bucket/1.log", None, None),
        ("/data/orders/1.log", None, None),
        ("/data/orders-x/1.log", None, None),
        ("/data/orders-2147483647/1.log", "orders", 2147483647),
        ("/data/orders-2147483648/1.log", None, None),
        ("/data/orders-0.fd36d1a-delete/1.log", None, None),
        ("/1.log", None, None),
        ("-", None, None),
    ],
)
def test_the_directory_names_topic_and_partition(path, topic, partition):
    assert (read_topic(path), read_partition(path)) == (topic, partition)


def test_a_relative_path_is_in_the_working_directory(logs, monkeypatch):
    monkeypatch.chdir(logs / "a-b-12")
    assert (read_topic(SEGMENT), read_partition(SEGMENT)) == ("a-b", 12)
    assert read(SEGMENT) == [("a-b", 12, 1)]


@pytest.mark.parametrize(
    ("path", "stream", "partition"),
    [
        ("/data/streams/orders/0/1.log", "orders", 0),
        ("/data/streams/or ders/12/1.log", "or ders", 12),
        ("/data/streams/orders/x/1.log", None, None),
        ("/0/1.log", None, None),
    ],
)
def test_two_directories_name_stream_and_partition(path, stream, partition):
    assert (read_stream(path), read_stream_partition(path)) == (stream, partition)


def test_the_columns_of_files(logs):
    assert read(logs / "a-b-12" / SEGMENT) == [("a-b", 12, 1)]
    assert read(logs / "plain" / SEGMENT) == [(None, None, 3)]
    assert read(logs / "a-b-0" / SEGMENT, where="offset >= 0") == [("a-b", 0, 0)]
    data = (logs / "a-b-0" / SEGMENT).read_bytes()
    batches = iter_batches(data, format="kafka.records", columns=["topic", "partition"])
    assert pa.Table.from_batches(batches).to_pylist() == [{"topic": None, "partition": None}]


def test_conditions_exclude_files_by_their_names(logs):
    paths = sorted(str(path) for path in logs.glob("*/*.log"))
    format = format_of("kafka.records")
    for filters, expected in (
        ([("topic", "==", "a-b")], [0, 1]),
        ([("topic", "==", "a-b"), ("partition", ">", 3)], [1]),
        ([("partition", "in", [1, 12])], [1, 2]),
        ([("topic", "is_null")], [3]),
        ([("topic", "starts_with", "c")], [2]),
    ):
        checked = check_filters(filters, format)
        kept = [prune_file(path, format, checked) != (0, 0) for path in paths]
        assert [number for number, is_kept in enumerate(kept) if is_kept] == expected
        plan = plan_tasks(paths, "kafka.records", 1 << 20, filters=checked)
        assert sorted({part.path for part in plan.slices}) == [paths[i] for i in expected]


def test_conditions_pass_the_same_rows_without_names(logs):
    """The condition is tested on rows if it is part of a choice."""
    wanted = "(topic == 'a-b' and partition == 12) or offset == 2"
    rows = [row for path in sorted(logs.glob("*/*.log")) for row in read(path, where=wanted)]
    assert rows == [("a-b", 12, 1), ("c.d", 1, 2)]


def test_lazy_sources_have_the_columns(logs):
    frame = wirescan.scan_polars(
        str(logs / "*" / "*.log"), format="kafka.records", columns=["topic", "partition", "offset"]
    )
    counts = frame.group_by("topic").agg(pl.len().alias("records")).sort("topic").collect()
    assert counts.rows() == [(None, 1), ("a-b", 2), ("c.d", 1)]
    assert frame.filter(pl.col("partition") == 12).collect().rows() == [("a-b", 12, 1)]


def test_a_column_of_an_enclosing_frame_hides_the_path():
    """A Fetch response states the topic of each partition."""
    format = format_of("kafka.fetch_response.partitions")
    described = format.describe_column("partition")
    assert described is None or described.read_path is None
    assert "topic" in format_of("kafka.records").all_columns
    assert format_of("kafka.records").describe_column("topic").read_path is read_topic
    assert "topic" not in format_of("thrift.messages").all_columns


def test_streams_of_liftbridge_have_the_columns(tmp_path):
    path = tmp_path / "streams" / "orders" / "2" / SEGMENT
    path.parent.mkdir(parents=True)
    path.write_bytes(liftbridge.encode_entry(0, 1, 0, None, b"v"))
    columns = ["stream", "partition", "offset"]
    (batch,) = iter_batches(str(path), format="liftbridge.entries", columns=columns)
    assert batch.to_pylist() == [{"stream": "orders", "partition": 2, "offset": 0}]


def test_the_identity_of_each_record_of_a_log():
    table = kafka.records(kafka.scan(ORDERS))
    rows = [
        row
        for path in sorted(os.listdir(ORDERS))
        if path.endswith(".log")
        for row in read(ORDERS / path)
    ]
    assert [row[2] for row in rows] == table["offset"].tolist()
    assert {row[:2] for row in rows} == {("orders", 0)}
