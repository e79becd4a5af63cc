"""The peers' readers: each gives `canonical.Record`s, so that what they read can be compared.

The clients are imported where they are used, here and in producers.py: to collect the tests none is needed.
"""
import asyncio
import tempfile
from pathlib import Path

from .broker import run_source
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


def peer(*arguments: object, line: str = "3.9") -> None:
    """Run Peer.java with the kafka-clients of a line. In 4.x most of what was in common.record is in `internal`."""
    package = "import org.apache.kafka.common.record."
    moved = f"{package}*; {package}internal.*;" if line != "3.9" else f"{package}*;"
    run_source(PEER.stem, PEER.read_text().replace(f"{package}*;", moved), *arguments, line=line)


def properties(file, config: dict[str, object]) -> str:
    """Write a Java client's properties to an open file; returns its name."""
    file.write("".join(f"{name}={value}\n" for name, value in config.items()).encode())
    file.flush()
    return file.name


def from_kafka(*files: Path, line: str = "3.9") -> list[Record]:
    """The records of files as Kafka's own reader finds them; a partial tail is left out."""
    with tempfile.NamedTemporaryFile() as out:
        peer("read", out.name, *files, line=line)
        return list(parse(out.read()))


def consume(address: str, topic: str, isolation: str = "read_uncommitted", **config) -> list[Record]:
    """All records of partition 0 as a librdkafka consumer gets them: no control records. `config` in its words, "_"
    for "."."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "peers", "isolation.level": isolation,
                         "enable.partition.eof": True, "check.crcs": True, "enable.auto.commit": False}
                        | {name.replace("_", "."): value for name, value in config.items()})
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


def consume_kafka_python(address: str, topic: str, **config) -> list[Record]:
    """All records of partition 0 as a kafka-python consumer gets them: no control records."""
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, **config)
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


def consume_aiokafka(address: str, topic: str, **config) -> list[Record]:
    """All records of partition 0 as an aiokafka consumer gets them: no control records."""
    return asyncio.run(_consume_aiokafka(address, topic, config))


async def _consume_aiokafka(address: str, topic: str, config: dict) -> list[Record]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest",
                                **config) as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        records = []
        while await consumer.position(partition) < end:
            for found in (await consumer.getmany(timeout_ms=5000)).values():
                records += map(from_client, found)
        return records


def consume_java(address: str, topic: str, count: int, line: str = "3.9", **config) -> list[Record]:
    """The first `count` records of partition 0 as a Java consumer gets them; `config` in its words, "_" for "."."""
    config = {"bootstrap.servers": address, "enable.auto.commit": "false", "auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in config.items()}
    with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile() as out:
        peer("consume", properties(file, config), topic, count, out.name, line=line)
        return list(parse(out.read()))
