"""The Kafka producer against real brokers.

Other clients read its records, and choose the same partitions. Every record is stored once and in
order, also when leaders are killed.
"""

import random
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from wirescan import kafka

from .broker import Broker, run
from .canonical import Record
from .cluster import Cluster
from .producers import CODECS, make_orders
from .readers import consume, consume_java, consume_kafka_python, write_properties

pytestmark = pytest.mark.peers
PATIENT = kafka.Retries(attempts=1000, seconds=120)
PARTITIONS = 7
PARTITIONER = Path(__file__).with_name("DefaultPartitioner.java")


def make_columns(rows: list[Record]) -> dict:
    """Rows as arguments of `send`."""
    headers = [pair for row in rows for pair in row.headers]
    return {
        "values": [row.value for row in rows],
        "keys": [row.key for row in rows],
        "timestamps": [row.timestamp for row in rows],
        "headers": (
            [len(row.headers) for row in rows],
            *(list(column) for column in zip(*headers)),
        ),
    }


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_records_of_all_codecs(broker, acks):
    """Three readers and wirescan read the records of all codecs."""
    topic = f"producer-codecs{acks}"
    rows = make_orders(500, seed=50)
    broker.create_topic(topic)
    with kafka.Client(broker.address) as client:
        for number, codec in enumerate(CODECS):
            sent = client.send(
                topic, partition=0, codec=codec, acks=acks, batch_bytes=50_000, **make_columns(rows)
            )
            first = number * len(rows) if acks else -1
            last = first + len(rows) - 1 if acks else -1
            assert sent.tolist() == [(0, len(rows), first, last)]
        # The broker processes this request after those with acks=0.
        client.send(topic, [b"the last"], partition=0, timestamps=5)
        ours = [
            None if row.value is None else bytes(row.value)
            for part in client.fetch(topic)
            for row in part.records
        ]
    expected = [row._replace(offset=offset) for offset, row in enumerate(rows * len(CODECS))]
    expected.append(Record(len(expected), 5, None, b"the last", ()))
    assert ours == [row.value for row in expected]
    assert consume(broker.address, topic) == expected
    if acks == -1:
        assert consume_kafka_python(broker.address, topic) == expected
        assert consume_java(broker.address, topic, len(expected), broker.line) == expected


def test_message_sets_of_the_guide(broker):
    """A broker of 3.9 accepts the message sets of the guide. A broker of 4 hangs up."""
    topic = "producer-sets"
    broker.create_topic(topic)
    kinds = [
        (magic, codec)
        for magic, lz4 in enumerate(("lz4-legacy", "lz4"))
        for codec in ("none", "gzip", "snappy", lz4)
    ]
    with kafka.Client(broker.address) as client:
        for magic, codec in kinds:
            data = kafka.encode_message_set([codec.encode()] * 2, magic=magic, codec=codec)
            result = client.produce({(topic, 0): data})[topic, 0]
            if broker.line == "4":
                assert isinstance(result.error, ConnectionError)
                return
            assert result.error is None
    written = [row.value.decode() for row in consume(broker.address, topic)]
    assert written == [codec for _, codec in kinds for _ in range(2)]


def make_random_keys(count: int) -> list[bytes]:
    chance = random.Random(51)
    return [b"", *(chance.randbytes(chance.randrange(40)) for _ in range(count))]


def map_keys_to_partitions(client, topic: str) -> dict[bytes, set[int]]:
    """The partitions of each key of a topic."""
    partitions_of: dict[bytes, set[int]] = {}
    for part in client.fetch(topic):
        for row in part.records:
            partitions_of.setdefault(bytes(row.key), set()).add(part.partition)
    return partitions_of


def test_partitions_are_those_of_java(broker):
    keys = make_random_keys(300)
    for topic in ("producer-java", "producer-murmur2"):
        broker.create_topic(topic, partitions=PARTITIONS)
    with tempfile.NamedTemporaryFile() as config, tempfile.NamedTemporaryFile("w") as file:
        file.write("".join(key.hex() + "\n" for key in keys))
        file.flush()
        settings = write_properties(config, {"bootstrap.servers": broker.address})
        printed = run(PARTITIONER, settings, "producer-java", file.name, line=broker.line)
    with kafka.Client(broker.address) as client:
        client.send("producer-murmur2", None, keys=keys)
        ours = map_keys_to_partitions(client, "producer-murmur2")
        assert ours == map_keys_to_partitions(client, "producer-java")
    assert [ours[key] for key in keys] == [{int(number)} for number in printed.split()]


@pytest.mark.parametrize("partitioner", ["consistent", "consistent_random"])
def test_partitions_are_those_of_librdkafka(broker, partitioner):
    from confluent_kafka import Producer

    keys = make_random_keys(300)
    theirs = {}
    topic = f"producer-{partitioner}"
    broker.create_topic(topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.address, "partitioner": partitioner})

    def record_partition(error, message):
        assert error is None
        theirs.setdefault(message.key(), set()).add(message.partition())

    for key in keys:
        producer.produce(topic, key=key, on_delivery=record_partition)
    assert producer.flush(30) == 0
    with kafka.Client(broker.address) as client:
        sent = client.send(topic, None, keys=keys, partitioner=partitioner)
        ours = map_keys_to_partitions(client, topic)
        if partitioner == "consistent":
            null = client.send(topic, [b""], partitioner=partitioner)
            assert null["partition"].tolist() == [0]
            assert theirs[b""] == {0}
    if partitioner == "consistent_random":
        ours.pop(b"")
        theirs.pop(b"", None)
        theirs.pop(None, None)
    assert sent["count"].sum() == len(keys)
    assert {key: partitions for key, partitions in theirs.items() if key in ours} == ours


def test_too_large_batches_are_divided(broker):
    topic = "producer-large"
    broker.create_topic(topic, {"max.message.bytes": 2000})
    values = [b"%06d" % number * 10 for number in range(2000)]
    with kafka.Client(broker.address) as client:
        assert client.send(topic, values, partition=0).tolist() == [(0, 2000, 0, 1999)]
        with pytest.raises(kafka.ProduceError, match="MESSAGE_TOO_LARGE") as error:
            client.send(topic, [b"fits", bytes(3000), b"comes after"], partition=0, batch_bytes=100)
        assert error.value.unsent.tolist() == [1, 2]
        assert error.value.sent["count"].tolist() == [1]
        client.send(topic, [b"goes on"], partition=0)
    assert [row.value for row in consume(broker.address, topic)] == values + [b"fits", b"goes on"]


class Sending(threading.Thread):
    """Sends numbered values to both partitions of a topic, until `finish`."""

    def __init__(self, address: str, topic: str):
        super().__init__(daemon=True)
        self.client = kafka.Client(address, retries=PATIENT, timeout=10)
        self.topic = topic
        self.sent = 0
        self.error = None
        self.enough = threading.Event()

    def run(self):
        try:
            while not self.enough.is_set():
                numbers = np.arange(self.sent, self.sent + 1000)
                values = [b"%d" % number for number in numbers]
                self.client.send(self.topic, values, partition=numbers % 2, batch_bytes=500)
                self.sent += 1000
        except BaseException as error:
            self.error = error

    def wait(self, more: int) -> None:
        """Wait until the broker has acknowledged so many more values."""
        until = self.sent + more
        while self.sent < until and self.is_alive():
            self.enough.wait(0.05)

    def finish(self) -> None:
        """End, and check that each record is stored once and in order."""
        self.enough.set()
        self.join(120)
        assert self.error is None
        assert not self.is_alive()
        assert self.sent
        values = {0: [], 1: []}
        for part in self.client.fetch(self.topic):
            values[part.partition] += [int(bytes(row.value)) for row in part.records]
        address = ",".join(str(node) for node in self.client.metadata().brokers.values())
        self.client.close()
        for partition in (0, 1):
            assert values[partition] == list(range(partition, self.sent, 2))
        assert [int(row.value) for row in consume(address, self.topic)] == values[0]


NIGHTLY = pytest.mark.nightly


@pytest.fixture(scope="module", params=["4", pytest.param("3.9", marks=NIGHTLY)])
def brokers(request):
    """Two brokers of each line. Only the nightly run uses those of 3.9."""
    if request.param == "4":
        yield request.getfixturevalue("cluster")
        return
    with Cluster(2, line=request.param) as cluster:
        yield cluster


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_leaders_end_while_records_are_sent(brokers, end):
    """With acks=-1 and two leaders that end, no record is lost, repeated or out of order."""
    topic = f"producer-{end}"
    brokers.create_topic(topic, partitions=2)
    sending = Sending(brokers.address, topic)
    sending.start()
    sending.wait(3000)
    leader = brokers.leader(topic)
    getattr(leader, end)()
    brokers.await_leader(topic, but=leader)
    sending.wait(3000)
    leader.restart()
    brokers.await_in_sync(topic)
    brokers.await_in_sync(topic, 1)
    sending.wait(2000)
    other = brokers.leader(topic)
    getattr(other, end)()
    brokers.await_leader(topic, but=other)
    sending.wait(2000)
    other.restart()
    sending.finish()


@pytest.mark.parametrize(
    "line, end",
    [
        ("4", "kill"),
        ("3.9", "stop"),
        pytest.param("4", "stop", marks=NIGHTLY),
        pytest.param("3.9", "kill", marks=NIGHTLY),
    ],
)
def test_the_only_broker_restarts_while_records_are_sent(line, end):
    with Broker(line=line) as broker:
        broker.create_topic("orders", partitions=2)
        sending = Sending(broker.address, "orders")
        sending.start()
        for _ in range(2):
            sending.wait(3000)
            getattr(broker, end)()
            broker.restart()
        sending.wait(3000)
        sending.finish()
