"""Kafka, kafka-python and aiokafka read what wirescan encodes from arrays.

They also choose the same partitions.
"""

from pathlib import Path

import numpy as np
import pytest

from .broker import run
from .canonical import Record, read_with_wirescan
from .producers import make_orders
from .readers import consume, convert_record, parse_batches, read_with_kafka, read_with_kafka_python
from .wire import produce

pytestmark = pytest.mark.peers

LEGACY = ("none", "gzip", "snappy", "lz4")
CASES = [(magic, codec) for magic in (0, 1) for codec in LEGACY] + [
    (2, codec) for codec in (*LEGACY, "zstd")
]
KEYS = [b"%d" % number * (number % 40) for number in range(1, 3000)] + [b"", b"\xff" * 7, bytes(9)]
FIRST = 40  # the first offset
COUNT = 700  # the number of records


def make_rows(magic: int, first: int = FIRST) -> list[Record]:
    """Records that a magic can hold, with consecutive offsets."""
    return [
        Record(
            first + number,
            row.timestamp if magic else -1,
            row.key,
            row.value,
            row.headers if magic == 2 else (),
        )
        for number, row in enumerate(make_orders(COUNT, seed=magic))
    ]


def encode(magic: int, codec: str, records: list[Record], **options) -> bytes:
    """Encode the records from Arrow arrays in several batches."""
    import pyarrow as pa

    from wirescan import kafka

    values = pa.array([row.value for row in records], pa.binary())
    keys = pa.array([row.key for row in records], pa.binary())
    arguments = {
        "keys": keys,
        "base_offset": records[0].offset,
        "batch_bytes": 10_000,
        "codec": codec,
        **options,
    }
    if magic:
        times = [row.timestamp for row in records]
        arguments["timestamps"] = pa.array(times, pa.timestamp("ms", "UTC"))
    if magic < 2:
        return bytes(kafka.encode_message_sets(values, magic=magic, **arguments))
    headers = pa.array([row.headers for row in records], pa.map_(pa.binary(), pa.binary()))
    return bytes(kafka.encode_batches(values, headers=headers, **arguments))


def test_kafka_reads_the_records(tmp_path):
    files = [tmp_path / f"{magic}-{codec}" for magic, codec in CASES]
    for file, case in zip(files, CASES, strict=True):
        file.write_bytes(encode(*case, make_rows(case[0])))
    assert read_with_kafka(*files) == [record for magic, _ in CASES for record in make_rows(magic)]


# The lz4 of magic 0 would need another library.
@pytest.mark.parametrize("magic, codec", [case for case in CASES if case != (0, "lz4")])
def test_python_clients_read_the_records(magic, codec):
    from aiokafka.record.memory_records import MemoryRecords

    data = encode(magic, codec, make_rows(magic))
    records = []
    assert read_with_kafka_python(data) == make_rows(magic)
    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        records += map(convert_record, batch)
    assert records == make_rows(magic)


def test_kafka_python_reads_the_batch_fields():
    data = encode(
        2,
        "lz4",
        make_rows(2),
        leader_epoch=5,
        producer_id=2**50,
        producer_epoch=3,
        base_sequence=2**31 - 300,
        transactional=True,
    )
    batches = parse_batches(data)
    sequence = 2**31 - 300
    assert len(batches) > 5
    for batch in batches:
        assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch) == (5, 2**50, 3)
        assert batch.is_transactional
        assert batch.base_sequence == sequence
        sequence = (sequence + batch.next_offset - batch.base_offset) % 2**31
    assert batches[-1].base_sequence < 2**30 < batches[0].base_sequence


@pytest.mark.parametrize("codec", [codec for magic, codec in CASES if magic == 2])
def test_a_broker_accepts_the_records(broker_39, codec):
    """A Produce request has one batch. The broker checks its sequence numbers."""
    topic = f"arrays-{codec}"
    records = make_rows(2, first=0)
    broker_39.create_topic(topic)
    produce(broker_39.address, topic, encode(2, codec, records, batch_bytes=1 << 20), version=7)
    (segment,) = broker_39.directory(topic).glob("*.log")
    assert consume(broker_39.address, topic) == records == read_with_wirescan(segment)


def test_partitions_are_those_of_kafka(tmp_path):
    from wirescan.kafka import partition_of
    from wirescan.kafka.client.partitioner import murmur2

    file = tmp_path / "keys"
    file.write_text("\n".join(key.hex() for key in KEYS) + "\n")
    output = run(Path(__file__).with_name("Partitions.java"), file, 13)
    theirs = np.array([line.split(",") for line in output.split()], int)
    assert [murmur2(key) for key in KEYS] == theirs[:, 0].tolist()
    assert partition_of(KEYS, 13).tolist() == theirs[:, 1].tolist()


def test_murmur2_is_that_of_the_python_clients():
    from aiokafka.partitioner import murmur2 as aiokafka_murmur2
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2

    from wirescan.kafka.client.partitioner import murmur2

    hashes = [murmur2(key) & 0xFFFFFFFF for key in KEYS]
    for their_murmur2 in (aiokafka_murmur2, kafka_python_murmur2):
        assert hashes == [their_murmur2(key) & 0xFFFFFFFF for key in KEYS]


@pytest.mark.parametrize("partitioner, how", [("consistent", "crc32"), ("murmur2", "murmur2")])
def test_partitions_are_those_of_librdkafka(broker_39, partitioner, how):
    from confluent_kafka import Producer

    from wirescan.kafka import partition_of

    topic = f"parted-{partitioner}"
    theirs = {}
    broker_39.create_topic(topic, partitions=7)
    producer = Producer({"bootstrap.servers": broker_39.address, "partitioner": partitioner})

    def record_partition(error, message):
        assert error is None
        theirs[message.key()] = message.partition()

    for key in KEYS:
        producer.produce(topic, b"", key, on_delivery=record_partition)
    assert producer.flush(60) == 0
    if how == "murmur2":
        theirs.pop(b"")  # librdkafka treats an empty key as null, unlike Java
    keys = list(theirs)
    assert len(keys) > 2000
    assert partition_of(keys, 7, how).tolist() == list(theirs.values())
