"""Spark reads the records of Kafka's metadata log by their types."""

import json

import pytest

from tests.support.paths import CORPUS

pytestmark = pytest.mark.spark

METADATA = CORPUS / "kafka-metadata"
EXPECTED = json.loads((METADATA / "expected.json").read_text())["4/00000000000000000000.log"]


def test_topics_and_their_partitions_are_joined(spark):
    from wirescan.spark import read

    folder = str(METADATA / "4")
    topics = read(spark, folder, format="kafka.topic_record")
    partitions = read(spark, folder, format="kafka.partition_record")
    joined = partitions.join(topics, "topic_id").select(
        "name", "partition_id", "leader", "replicas"
    )
    found = sorted(
        (bytes(row.name).decode(), row.partition_id, row.leader, row.replicas)
        for row in joined.collect()
    )
    assert found == [("orders", number, 1, [1]) for number in range(4)] + [("removed", 0, 1, [1])]


def test_the_data_source_counts_the_types(spark):
    source = spark.read.format("wirescan").option("format", "kafka.metadata_records")
    frame = source.load(str(METADATA / "4"))
    counts = {row["type"]: row["count"] for row in frame.groupBy("type").count().collect()}
    assert sum(counts.values()) == len(EXPECTED)
    assert counts[-1] == sum(record is None for _, record in EXPECTED)
    assert counts[2] == 2
    ports = spark.read.format("wirescan").option(
        "format", "kafka.register_broker_record.end_points"
    )
    found = ports.load(str(METADATA / "4")).select("port").collect()
    assert [row.port > 1024 for row in found] == [True, True]
