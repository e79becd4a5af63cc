"""What brokers note of groups and transactions, in __consumer_offsets and __transaction_state, beside their answers."""
import shutil
import time

import pytest

from wirescan import kafka

from .broker import Broker

pytestmark = pytest.mark.peers
MEMBERS = 2
METADATA = "noted"


def text(view):
    return None if view is None else bytes(view).decode()


def log_of(broker: Broker, topic: str, tmp_path):
    """The records of an internal topic (of one partition), of a copy: the broker is running."""
    copy = tmp_path / f"{topic}-0"
    shutil.copytree(broker.directory(topic), copy, dirs_exist_ok=True)
    return kafka.records(kafka.open_log(copy))


def states_of(name: str, broker: Broker, tmp_path):
    """What __transaction_state says of a transactional id, in order."""
    records = log_of(broker, "__transaction_state", tmp_path)
    names = {key.parent: text(key.transactional_id) for key in kafka.body(records, "TransactionLog key")}
    return [value for value in kafka.body(records, "TransactionLog value") if names[value.parent] == name]


@pytest.fixture
def topic(broker, request):
    name = f"internal-{abs(hash(request.node.name))}"
    broker.create_topic(name, partitions=3)
    return name


def test_committed_offsets(broker, topic, tmp_path):
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka import ConsumerGroupTopicPartitions

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": f"group of {topic}",
                         "enable.auto.commit": False})
    for number in (1, 5, 7):
        given = [TopicPartition(topic, partition, number + partition, METADATA) for partition in range(3)]
        consumer.commit(offsets=given, asynchronous=False)
    consumer.close()
    records = log_of(broker, "__consumer_offsets", tmp_path)
    keys, offsets = kafka.body(records, "OffsetCommit key"), kafka.body(records, "OffsetCommit value")
    key_of = {key.parent: key for key in keys}
    last = {}
    for offset in offsets:
        key = key_of[offset.parent]
        noted = text(offset.metadata).removesuffix("\0")        # which confluent-kafka sends along
        last[text(key.group), text(key.topic), key.partition] = (offset.offset, noted)
    admin = AdminClient({"bootstrap.servers": broker.address})
    group = f"group of {topic}"
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    want = {(group, one.topic, one.partition): (one.offset, METADATA) for one in asked.topic_partitions}
    assert {key: value for key, value in last.items() if key[0] == group} == want
    assert len(want) == 3 and not keys.bad.any() and not offsets.bad.any()
    assert set(keys["kind"].tolist()) <= {0, 1}


def test_members_of_a_group(broker, topic, tmp_path):
    from confluent_kafka import Consumer

    group = f"members of {topic}"
    members = [Consumer({"bootstrap.servers": broker.address, "group.id": group, "client.id": f"member {number}",
                         "group.protocol": "classic"}) for number in range(MEMBERS)]
    for member in members:
        member.subscribe([topic])
    for _ in range(200):
        for member in members:
            member.poll(0.05)
        if all(member.assignment() for member in members):
            break
    assert all(member.assignment() for member in members)
    records = log_of(broker, "__consumer_offsets", tmp_path)
    for member in members:
        member.close()
    group_of = {key.parent: text(key.group) for key in kafka.body(records, "GroupMetadata key")}
    values = [value for value in kafka.body(records, "GroupMetadata value") if group_of[value.parent] == group]
    full = [value for value in values if len(list(value.members)) == MEMBERS][-1]
    assert text(full.protocol_type) == "consumer" and full.generation > 0
    assert {text(member.client_id) for member in full.members} == {f"member {number}" for number in range(MEMBERS)}
    for member in full.members:
        assert topic.encode() in bytes(member.subscription) and text(member.client_host) == "/127.0.0.1"


def test_states_of_a_transaction(broker, topic, tmp_path):
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
    while (values := states_of(name, broker, tmp_path))[-1].transaction_status != 5 and time.monotonic() < until:
        time.sleep(0.1)                             # the markers are written behind the client's back
    states = [value.transaction_status for value in values]
    assert {1, 2, 3, 4, 5} <= set(states)           # ongoing, about to commit, to abort, committed, aborted
    ongoing = values[states.index(1)]
    assert [(text(one.topic), one.partition_ids.tolist()) for one in ongoing.transaction_partitions] == [(topic, [1])]
    written = kafka.records(kafka.open_log(broker.directory(topic, 1)))
    producers = set(written.outer["producer_id"].tolist())
    assert {value.producer_id for value in values} >= producers - {-1}
