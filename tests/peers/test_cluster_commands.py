"""`wirescan metadata` and `wirescan produce` with real brokers."""

import json

import pytest
from click.testing import CliRunner

from wirescan.cli.main import main

from .producers import CODECS, make_orders, send_librdkafka, send_transactions
from .readers import consume, consume_kafka_python

pytestmark = pytest.mark.peers


def run(*arguments, code=0, **options):
    result = CliRunner().invoke(main, [*map(str, arguments)], **options)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def test_metadata_is_that_of_the_broker(broker):
    from confluent_kafka.admin import AdminClient

    topic = "metadata-command"
    broker.create_topic(topic, {}, partitions=3)
    expected = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=30)
    found = json.loads(run("metadata", broker.address, "--json"))
    assert {item["id"]: (item["host"], item["port"]) for item in found["brokers"]} == {
        item.id: (item.host, item.port) for item in expected.brokers.values()
    }
    assert found["cluster"] == expected.cluster_id
    assert found["controller"] == expected.controller_id
    assert {item["name"] for item in found["topics"]} == set(expected.topics)
    partitions = next(item for item in found["topics"] if item["name"] == topic)["partitions"]
    assert [
        (item["partition"], item["leader"], item["replicas"], item["in_sync"])
        for item in partitions
    ] == [
        (number, item.leader, item.replicas, item.isrs)
        for number, item in sorted(expected.topics[topic].partitions.items())
    ]
    assert f"{topic}-2" in run("metadata", broker.address, "--topic", topic, "--partitions")


def without_offsets(records):
    return [tuple(record)[1:] for record in records]


def test_a_topic_is_restored_from_the_files_of_the_broker(broker):
    """Consumers read the same records from the copy, without those of aborted transactions."""
    source = "produce-source"
    broker.create_topic(source, {"segment.bytes": 1 << 20})
    for seed, codec in enumerate(CODECS):
        send_librdkafka(broker.address, source, make_orders(500, seed), codec)
    send_transactions(
        broker.address, source, make_orders(200, seed=9), "lz4", "aca", f"produce-{broker.line}"
    )
    committed = without_offsets(consume(broker.address, source, "read_committed"))
    assert len(committed) < len(consume(broker.address, source, "read_uncommitted"))
    folder = broker.directory(source)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        copy = f"produce-copy-{codec}"
        broker.create_topic(copy)
        options = ("--compression", codec, "--json")
        report = json.loads(run("produce", broker.address, copy, folder, *options))
        assert report["partitions"] == [
            {
                "partition": 0,
                "records": len(committed),
                "first_offset": 0,
                "last_offset": len(committed) - 1,
            }
        ]
        assert without_offsets(consume(broker.address, copy, "read_committed")) == committed
        assert without_offsets(consume_kafka_python(broker.address, copy)) == committed


def test_json_lines_reach_consumers(broker):
    source = "produce-json-source"
    copy = "produce-json-copy"
    for topic in (source, copy):
        broker.create_topic(topic)
    send_librdkafka(broker.address, source, make_orders(500, 4), "zstd")
    lines = run("scan", broker.directory(source), "--json")
    run("produce", broker.address, copy, "-", "--lines", "json", input=lines)
    expected = without_offsets(consume(broker.address, source, "read_committed"))
    assert without_offsets(consume(broker.address, copy, "read_committed")) == expected


def test_a_topic_that_does_not_exist(broker, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("a\n")
    run("produce", broker.address, "produce-none", lines, "--lines", "text", code=2)
