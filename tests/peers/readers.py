"""The readers of other programs. Each returns `canonical.Record`s, so the results can be compared.

The clients are imported inside the functions, here and in producers.py. So pytest can collect the
tests without them.
"""

import asyncio
import tempfile
from pathlib import Path

from .broker import run_source
from .canonical import Record, parse

PEER = Path(__file__).with_name("Peer.java")


def parse_batches(data: bytes) -> list:
    """The batches of `data` as kafka-python's objects, with checked checksums.

    A partial batch at the end is ignored.
    """
    from kafka.record.memory_records import MemoryRecords

    batches = list(MemoryRecords(data))
    for batch in batches:
        if not batch.validate_crc():
            raise ValueError(f"kafka-python found a wrong checksum at offset {batch.base_offset}")
    return batches


def read_with_kafka_python(data: bytes) -> list[Record]:
    """Read the records of `data` with kafka-python. Ignore a partial tail."""
    return [convert_record(record) for batch in parse_batches(data) for record in batch]


def convert_record(record) -> Record:
    """Convert a record or a consumed message of kafka-python or aiokafka."""
    timestamp = -1 if record.timestamp is None else record.timestamp
    headers = tuple((name.encode(), content) for name, content in record.headers)
    return Record(record.offset, timestamp, record.key, record.value, headers)


def convert_message(message) -> Record:
    """Convert a message that confluent-kafka consumed."""
    kind, timestamp = message.timestamp()
    headers = tuple((name.encode(), content) for name, content in message.headers() or ())
    if not kind:
        timestamp = -1
    return Record(message.offset(), timestamp, message.key(), message.value(), headers)


def run_peer(*arguments: object, line: str = "3.9") -> None:
    """Run Peer.java with the kafka-clients of a line.

    In 4.x most classes of common.record are in the package `internal`.
    """
    package = "import org.apache.kafka.common.record."
    moved = f"{package}*; {package}internal.*;" if line != "3.9" else f"{package}*;"
    run_source(PEER.stem, PEER.read_text().replace(f"{package}*;", moved), *arguments, line=line)


def write_properties(file, config: dict[str, object]) -> str:
    """Write a Java client's properties to an open file. Return its name."""
    file.write("".join(f"{name}={value}\n" for name, value in config.items()).encode())
    file.flush()
    return file.name


def read_with_kafka(*files: Path, line: str = "3.9") -> list[Record]:
    """Read the records of files with Kafka's own reader. Ignore a partial tail."""
    with tempfile.NamedTemporaryFile() as out:
        run_peer("read", out.name, *files, line=line)
        return list(parse(out.read()))


def consume(
    address: str, topic: str, isolation: str = "read_uncommitted", **config
) -> list[Record]:
    """All records of partition 0, read by a librdkafka consumer. Control records are not included.

    config: options of librdkafka, with "_" for ".".
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "peers",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "enable.auto.commit": False,
        }
        | {name.replace("_", "."): value for name, value in config.items()}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    try:
        while True:
            message = consumer.poll(30)
            if message is None:
                raise TimeoutError(f"{topic} did not end")
            if message.error() is None:
                records.append(convert_message(message))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return records
            else:
                raise RuntimeError(message.error())
    finally:
        consumer.close()


def consume_kafka_python(address: str, topic: str, **config) -> list[Record]:
    """All records of partition 0, read by a kafka-python consumer: no control records."""
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, **config)
    try:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        records = []
        while consumer.position(partition) < end:
            for batch in consumer.poll(timeout_ms=5000).values():
                records += map(convert_record, batch)
        return records
    finally:
        consumer.close()


def consume_aiokafka(address: str, topic: str, **config) -> list[Record]:
    """All records of partition 0, read by an aiokafka consumer: no control records."""
    return asyncio.run(_consume_aiokafka(address, topic, config))


async def _consume_aiokafka(address: str, topic: str, config: dict) -> list[Record]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest", **config
    ) as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        records = []
        while await consumer.position(partition) < end:
            for batch in (await consumer.getmany(timeout_ms=5000)).values():
                records += map(convert_record, batch)
        return records


def consume_java(address: str, topic: str, count: int, line: str = "3.9", **config) -> list[Record]:
    """The first `count` records of partition 0, read by a Java consumer.

    config: options of the consumer, with "_" for ".".
    """
    config = {
        "bootstrap.servers": address,
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    } | {name.replace("_", "."): value for name, value in config.items()}
    with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile() as out:
        run_peer("consume", write_properties(file, config), topic, count, out.name, line=line)
        return list(parse(out.read()))
