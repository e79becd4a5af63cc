"""`wirescan metadata` with real brokers."""

import json

import pytest
from click.testing import CliRunner

from wirescan.cli.main import main

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
