"""The peers' readers: each gives `canonical.Record`s, so that what they read can be compared.

The clients are imported where they are used, here and in producers.py: to collect the tests none is needed.
"""
import tempfile
from pathlib import Path

from .broker import run
from .canonical import Record, parse

PEER = Path(__file__).with_name("Peer.java")


def kafka_python_batches(data: bytes) -> list:
    """The batches of `data` as kafka-python's objects, checksums checked; a partial tail is left out."""
    from kafka.record.memory_records import MemoryRecords

    batches = list(MemoryRecords(data))
    for batch in batches:
        if not batch.validate_crc():
            raise ValueError(f"kafka-python finds a wrong checksum at offset {batch.base_offset}")
    return batches


def from_kafka_python(data: bytes) -> list[Record]:
    """The records of `data` as kafka-python reads them; a partial tail is left out."""
    return [from_client(record) for batch in kafka_python_batches(data) for record in batch]


def from_client(record) -> Record:
    """A record, or a consumed message, of kafka-python or aiokafka."""
    timestamp = -1 if record.timestamp is None else record.timestamp
    headers = tuple((name.encode(), content) for name, content in record.headers)
    return Record(record.offset, timestamp, record.key, record.value, headers)


def from_librdkafka(message) -> Record:
    """A message that confluent-kafka consumed."""
    kind, timestamp = message.timestamp()
    headers = tuple((name.encode(), content) for name, content in message.headers() or ())
    return Record(message.offset(), timestamp if kind else -1, message.key(), message.value(), headers)


def from_kafka(*files: Path) -> list[Record]:
    """The records of files as Kafka's own reader finds them; a partial tail is left out."""
    with tempfile.NamedTemporaryFile() as out:
        run(PEER, "read", out.name, *files)
        return list(parse(out.read()))


def consume(address: str, topic: str, isolation: str = "read_uncommitted") -> list[Record]:
    """All records of partition 0 as a librdkafka consumer gets them: no control records."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "peers", "isolation.level": isolation,
                         "enable.partition.eof": True, "check.crcs": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    try:
        while True:
            message = consumer.poll(30)
            if message is None:
                raise TimeoutError(f"{topic} did not end")
            if message.error() is None:
                records.append(from_librdkafka(message))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return records
            else:
                raise RuntimeError(message.error())
    finally:
        consumer.close()


def consume_kafka_python(address: str, topic: str) -> list[Record]:
    """All records of partition 0 as a kafka-python consumer gets them: no control records."""
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    try:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        records = []
        while consumer.position(partition) < end:
            for found in consumer.poll(timeout_ms=5000).values():
                records += map(from_client, found)
        return records
    finally:
        consumer.close()
