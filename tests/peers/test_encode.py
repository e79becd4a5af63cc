"""What wirescan writes, as Kafka, kafka-python and a broker read it: every magic, codec and framing."""
import pytest

from .broker import LINES
from .canonical import Record, from_wirescan
from .producers import orders
from .readers import consume, from_kafka, from_kafka_python, kafka_python_batches
from .wire import produce

pytestmark = pytest.mark.peers

LEGACY = ("none", "gzip", "snappy", "snappy-raw", "lz4")
CASES = [(0, codec) for codec in (*LEGACY, "lz4-legacy")] + [(1, codec) for codec in LEGACY] + [
    (2, codec) for codec in (*LEGACY, "zstd")]
PRODUCE = {0: 0, 1: 2, 2: 7}  # the Produce version that takes a magic


def rows(magic: int, step: int = 1) -> list[Record]:
    """Records that a magic can hold, their offsets `step` apart."""
    return [Record(number * step, row.timestamp if magic else -1, row.key, row.value,
                   row.headers if magic == 2 else ()) for number, row in enumerate(orders(700, seed=magic))]


def encode(magic: int, codec: str, records: list[Record], **producer) -> bytes:
    from wirescan import kafka

    if magic == 2:
        return kafka.encode_batch(records, codec=codec, **producer)
    return kafka.encode_message_set(records, magic=magic, codec=codec)


@pytest.mark.parametrize("line", LINES)
def test_read_by_kafka(tmp_path, line):
    """All of them in one run of Java: a partition directory with gaps between the offsets."""
    files = [tmp_path / f"{magic}-{codec}" for magic, codec in CASES]
    for file, case in zip(files, CASES, strict=True):
        file.write_bytes(encode(*case, rows(case[0], step=3)))
    assert from_kafka(*files, line=line) == [record for magic, _ in CASES for record in rows(magic, step=3)]


@pytest.mark.parametrize("magic, codec", CASES)
def test_read_by_kafka_python(magic, codec):
    data = encode(magic, codec, rows(magic, step=3))
    assert from_kafka_python(data) == rows(magic, step=3)


def test_batch_fields_read_by_kafka_python():
    data = encode(2, "zstd", rows(2), leader_epoch=5, producer_id=2**50, producer_epoch=3, base_sequence=17,
                  transactional=True, last_offset=2000)
    batch, = kafka_python_batches(data)
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch) == (5, 2**50, 3)
    assert batch.base_sequence == 17
    assert batch.is_transactional and batch.last_offset == 2000 and batch.next_offset == 2001


@pytest.mark.parametrize("magic, codec", CASES)
def test_taken_by_a_broker(broker_39, magic, codec):
    """A broker checks what it takes, converts magic 0 and 1 to 2, and stores it; its log is read back."""
    topic = f"taken-{magic}-{codec}"
    broker_39.create_topic(topic)
    produce(broker_39.address, topic, encode(magic, codec, rows(magic)), version=PRODUCE[magic])
    segment, = broker_39.directory(topic).glob("*.log")
    assert consume(broker_39.address, topic) == rows(magic) == from_wirescan(segment)
