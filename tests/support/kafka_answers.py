"""Batches, clusters and answers of a fake Kafka broker."""

from tests.support.fake_broker import VERSIONS, FakeCluster, FakeDriver
from wirescan.kafka.client.effects import Exchange, Node
from wirescan.kafka.encode.records import encode_batch

NODE = Node(1, "broker-1", 9092)


def make_batch(first, count=5, value=b"value %d", **options):
    return encode_batch(
        [(first + i, 1000 + first + i, b"key", value % (first + i)) for i in range(count)],
        base_offset=first,
        **options,
    )


def make_cluster(batches=10, partitions=1, versions=VERSIONS, brokers=1):
    """Return a cluster with a topic `orders`. Its partitions have batches of five records."""
    cluster = FakeCluster(brokers, versions)
    cluster.add_topic("orders", partitions)
    for number in range(partitions):
        cluster.topics["orders"][number].leader = 1 + number % brokers
        for first in range(0, 5 * batches, 5):
            cluster.append("orders", number, make_batch(first))
    return cluster


def greet_cluster(fake, sasl=None, **options):
    """Connect to a cluster, send a Metadata request, and return the answer."""
    driver = FakeDriver(fake, sasl=sasl, **options)
    return driver.run(exchange("Metadata", lambda version: {}))


def exchange(api, body, **options):
    """An operation of a client that consists of one request and its response."""
    return (yield Exchange(NODE, api, body, **options))
