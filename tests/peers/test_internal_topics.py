"""The records of __consumer_offsets and __transaction_state, beside the brokers' answers."""

import shutil
import time

import pytest

from tests.support.places import decode_text
from wirescan import kafka

from .broker import Broker

pytestmark = pytest.mark.peers
MEMBERS = 2
# The states of a transaction.
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(1, 6)
METADATA = "noted"  # the metadata of committed offsets


def read_log(broker: Broker, topic: str, tmp_path):
    """The records of an internal topic with one partition. Reads a copy of the live log."""
    copy = tmp_path / f"{topic}-0"
    shutil.copytree(broker.directory(topic), copy, dirs_exist_ok=True)
    return kafka.records(kafka.open_log(copy))


def list_states(name: str, broker: Broker, tmp_path):
    """The values of __transaction_state for a transactional id, in order."""
    records = read_log(broker, "__transaction_state", tmp_path)
    names = {
        key.parent: decode_text(key.transactional_id)
        for key in kafka.body(records, "TransactionLog key")
    }
    return [
        value
        for value in kafka.body(records, "TransactionLog value")
        if names[value.parent] == name
    ]


@pytest.fixture
def topic(broker, request):
    name = f"internal-{abs(hash(request.node.name))}"
    broker.create_topic(name, partitions=3)
    return name


def test_committed_offsets_are_those_of_the_broker(broker, topic, tmp_path):
    from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": f"group of {topic}",
            "enable.auto.commit": False,
        }
    )
    for number in (1, 5, 7):
        committed = [
            TopicPartition(topic, partition, number + partition, METADATA) for partition in range(3)
        ]
        consumer.commit(offsets=committed, asynchronous=False)
    consumer.close()
    records = read_log(broker, "__consumer_offsets", tmp_path)
    keys = kafka.body(records, "OffsetCommit key")
    offsets = kafka.body(records, "OffsetCommit value")
    key_of = {key.parent: key for key in keys}
    last = {}
    for offset in offsets:
        key = key_of[offset.parent]
        # confluent-kafka adds a zero byte.
        metadata = decode_text(offset.metadata).removesuffix("\0")
        partition = (decode_text(key.group), decode_text(key.topic), key.partition)
        last[partition] = (offset.offset, metadata)
    admin = AdminClient({"bootstrap.servers": broker.address})
    group = f"group of {topic}"
    futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    answer = futures[group].result(30)
    expected = {
        (group, partition.topic, partition.partition): (partition.offset, METADATA)
        for partition in answer.topic_partitions
    }
    assert {key: value for key, value in last.items() if key[0] == group} == expected
    assert len(expected) == 3
    assert not keys.bad.any()
    assert not offsets.bad.any()
    assert set(keys["kind"].tolist()) <= {0, 1}


def test_group_metadata_has_the_members(broker, topic, tmp_path):
    from confluent_kafka import Consumer

    group = f"members of {topic}"
    members = [
        Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": group,
                "client.id": f"member {number}",
                "group.protocol": "classic",
            }
        )
        for number in range(MEMBERS)
    ]
    for member in members:
        member.subscribe([topic])
    for _ in range(200):
        for member in members:
            member.poll(0.05)
        if all(member.assignment() for member in members):
            break
    assert all(member.assignment() for member in members)
    records = read_log(broker, "__consumer_offsets", tmp_path)
    for member in members:
        member.close()
    group_of = {
        key.parent: decode_text(key.group) for key in kafka.body(records, "GroupMetadata key")
    }
    values = [
        value
        for value in kafka.body(records, "GroupMetadata value")
        if group_of[value.parent] == group
    ]
    full = [value for value in values if len(list(value.members)) == MEMBERS][-1]
    assert decode_text(full.protocol_type) == "consumer"
    assert full.generation > 0
    assert {decode_text(member.client_id) for member in full.members} == {
        f"member {number}" for number in range(MEMBERS)
    }
    for member in full.members:
        assert topic.encode() in bytes(member.subscription)
        assert decode_text(member.client_host) == "/127.0.0.1"


def test_transaction_log_has_every_state(broker, topic, tmp_path):
    from confluent_kafka import Producer

    name = f"transaction on {topic}"
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"value", partition=1)
        producer.flush(30)
        end(30)
    until = time.monotonic() + 30
    values = list_states(name, broker, tmp_path)
    # The broker writes the markers after its answer to the client.
    while values[-1].transaction_status != COMPLETE_ABORT and time.monotonic() < until:
        time.sleep(0.1)
        values = list_states(name, broker, tmp_path)
    states = [value.transaction_status for value in values]
    assert {ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT} <= set(states)
    ongoing = values[states.index(ONGOING)]
    partitions = [
        (decode_text(row.topic), row.partition_ids.tolist())
        for row in ongoing.transaction_partitions
    ]
    assert partitions == [(topic, [1])]
    written = kafka.records(kafka.open_log(broker.directory(topic, 1)))
    producers = set(written.outer["producer_id"].tolist())
    assert {value.producer_id for value in values} >= producers - {-1}
