"""Kafka, kafka-python and a broker read what wirescan writes.

The tests cover every magic, codec and framing.
"""

import pytest

from .broker import LINES
from .canonical import Record, read_with_wirescan
from .producers import make_orders
from .readers import consume, parse_batches, read_with_kafka, read_with_kafka_python
from .wire import produce

pytestmark = pytest.mark.peers

LEGACY = ("none", "gzip", "snappy", "snappy-raw", "lz4")
CASES = (
    [(0, codec) for codec in (*LEGACY, "lz4-legacy")]
    + [(1, codec) for codec in LEGACY]
    + [(2, codec) for codec in (*LEGACY, "zstd")]
)
PRODUCE = {0: 0, 1: 2, 2: 7}  # the Produce version that accepts each magic


def make_rows(magic: int, step: int = 1) -> list[Record]:
    """Records that a magic can hold. Their offsets are `step` apart."""
    return [
        Record(
            number * step,
            row.timestamp if magic else -1,
            row.key,
            row.value,
            row.headers if magic == 2 else (),
        )
        for number, row in enumerate(make_orders(700, seed=magic))
    ]


def encode(magic: int, codec: str, records: list[Record], **producer) -> bytes:
    from wirescan import kafka

    if magic == 2:
        return kafka.encode_batch(records, codec=codec, **producer)
    return kafka.encode_message_set(records, magic=magic, codec=codec)


@pytest.mark.parametrize("line", LINES)
def test_kafka_reads_the_records(tmp_path, line):
    """One run of Java reads all cases. The offsets have gaps."""
    files = [tmp_path / f"{magic}-{codec}" for magic, codec in CASES]
    for file, case in zip(files, CASES, strict=True):
        file.write_bytes(encode(*case, make_rows(case[0], step=3)))
    assert read_with_kafka(*files, line=line) == [
        record for magic, _ in CASES for record in make_rows(magic, step=3)
    ]


@pytest.mark.parametrize("magic, codec", CASES)
def test_kafka_python_reads_the_records(magic, codec):
    data = encode(magic, codec, make_rows(magic, step=3))
    assert read_with_kafka_python(data) == make_rows(magic, step=3)


def test_kafka_python_reads_the_batch_fields():
    data = encode(
        2,
        "zstd",
        make_rows(2),
        leader_epoch=5,
        producer_id=2**50,
        producer_epoch=3,
        base_sequence=17,
        transactional=True,
        last_offset=2000,
    )
    (batch,) = parse_batches(data)
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch) == (5, 2**50, 3)
    assert batch.base_sequence == 17
    assert batch.is_transactional
    assert (batch.last_offset, batch.next_offset) == (2000, 2001)


@pytest.mark.parametrize("magic, codec", CASES)
def test_a_broker_accepts_the_records(broker_39, magic, codec):
    """A broker accepts and stores the encoded records. Its log is read back.

    It checks them, and converts magic 0 and 1 to 2.
    """
    topic = f"taken-{magic}-{codec}"
    broker_39.create_topic(topic)
    produce(
        broker_39.address, topic, encode(magic, codec, make_rows(magic)), version=PRODUCE[magic]
    )
    (segment,) = broker_39.directory(topic).glob("*.log")
    assert consume(broker_39.address, topic) == make_rows(magic) == read_with_wirescan(segment)
