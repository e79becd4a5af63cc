"""What clients do besides sending and reading: offsets in transactions, and administration.

`commit_in_transaction_*` joins a group, and commits an offset of it in a transaction with one
record. `create_and_describe_*` creates a topic, and reads its settings. kafka-python and aiokafka
also read some settings of the broker. The others would read all, with the broker's directories.
"""

import asyncio
from pathlib import Path

from .broker import run_source

JAVA = Path(__file__).with_name("Administration.java")
RECORD = b"commits an offset"
SETTINGS = {"cleanup.policy": "compact", "retention.ms": "3600000"}
PARTITIONS = 2
BROKER = "1"  # id of the only broker
BROKER_SETTINGS = {"message.max.bytes": None, "log.cleaner.threads": None}


def commit_in_transaction_librdkafka(address: str, topic: str, protocol: str) -> None:
    """protocol: "classic" or "consumer", the protocol of the group."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"{topic}-transaction",
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"{topic}-offsets"})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(1)
    # Otherwise the consumer would hang up inside the response with the record.
    consumer.pause(consumer.assignment())
    consumer.poll(1)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, RECORD, partition=0)
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), 30
    )
    producer.commit_transaction(30)
    consumer.close()


def create_and_describe_librdkafka(address: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

    client = AdminClient({"bootstrap.servers": address})
    made = f"{topic}-made"
    futures = client.create_topics([NewTopic(made, PARTITIONS, 1, config=SETTINGS)])
    futures[made].result(30)
    for future in client.describe_configs([ConfigResource("topic", made)]).values():
        assert future.result(30)


def commit_in_transaction_kafka_python(address: str, topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=f"{topic}-transaction",
        enable_auto_commit=False,
    )
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=f"{topic}-offsets")
    while not consumer.assignment():
        consumer.poll(timeout_ms=1000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, value=RECORD, partition=0)
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)}
    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    producer.commit_transaction()
    producer.close()
    consumer.close()


def create_and_describe_kafka_python(address: str, topic: str) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

    client = KafkaAdminClient(bootstrap_servers=address)
    made = f"{topic}-made"
    client.create_topics([NewTopic(made, PARTITIONS, 1, topic_configs=SETTINGS)])
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, made),
        ConfigResource(ConfigResourceType.BROKER, BROKER, BROKER_SETTINGS),
    ]
    assert client.describe_configs(resources, include_synonyms=True, config_filter="all")
    client.close()


def commit_in_transaction_aiokafka(address: str, topic: str) -> None:
    asyncio.run(_commit_in_transaction_aiokafka(address, topic))


async def _commit_in_transaction_aiokafka(address: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    group = f"{topic}-transaction"
    partition = TopicPartition(topic, 0)
    async with (
        AIOKafkaConsumer(
            topic, bootstrap_servers=address, group_id=group, enable_auto_commit=False
        ) as consumer,
        AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=f"{topic}-offsets"
        ) as producer,
    ):
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=1000)
        async with producer.transaction():
            await producer.send_and_wait(topic, RECORD, partition=0)
            await producer.send_offsets_to_transaction({partition: 1}, group)


def create_and_describe_aiokafka(address: str, topic: str) -> None:
    asyncio.run(_create_and_describe_aiokafka(address, topic))


async def _create_and_describe_aiokafka(address: str, topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    client = AIOKafkaAdminClient(bootstrap_servers=address)
    await client.start()
    made = f"{topic}-made"
    await client.create_topics([NewTopic(made, PARTITIONS, 1, topic_configs=SETTINGS)])
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, made),
        ConfigResource(ConfigResourceType.BROKER, BROKER, BROKER_SETTINGS),
    ]
    assert await client.describe_configs(resources)
    await client.close()


def commit_in_transaction_java(address: str, topic: str, line: str) -> None:
    """line: the release line of the client."""
    run_source(JAVA.stem, JAVA.read_text(), "commit", address, topic, RECORD.decode(), line=line)


def create_and_describe_java(address: str, topic: str, line: str) -> None:
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    arguments = ("create", address, f"{topic}-made", PARTITIONS, *settings)
    run_source(JAVA.stem, JAVA.read_text(), *arguments, line=line)
