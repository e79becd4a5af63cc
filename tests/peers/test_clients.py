"""Record sets that the clients' own code makes, of every magic and codec that each supports.

kafka-python, aiokafka and Kafka's Java library build them in memory; librdkafka has no builder to call, so it
sends them to a listener that keeps the bytes (recorder.py). kafka-python is the second reader throughout.
"""
import pytest

from .broker import run
from .canonical import Record, canonical, from_wirescan
from .producers import CODECS, orders, send_librdkafka
from .readers import PEER, from_kafka_python, kafka_python_batches
from .recorder import TOPIC, Recorder

pytestmark = pytest.mark.peers

ALL = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"]
AIOKAFKA = [(magic, codec) for magic, codec in ALL if (magic, codec) != (0, "lz4")]  # it refuses old lz4
ROWS = orders(500, seed=1, big=False) + orders(3, seed=2) + [Record(-1, 1_700_000_000_000, None, None, ())]


def known(rows: list[Record], magic: int, offsets) -> list[Record]:
    """What must be read from a record set of `rows`: magic 0 has no times, magic 0 and 1 have no headers."""
    return [Record(offset, row.timestamp if magic else -1, row.key, row.value,
                   row.headers if magic == 2 else ()) for row, offset in zip(rows, offsets, strict=True)]


def text_headers(row: Record, magic: int) -> list:
    return [(name.decode(), content) for name, content in row.headers] if magic == 2 else []


def kafka_python(magic: int, codec: str, rows: list[Record], **producer) -> bytes:
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(magic, CODECS.index(codec), 1 << 20, **producer)
    for row in rows:
        assert builder.append(row.timestamp, row.key, row.value, text_headers(row, magic)) is not None
    builder.close()
    return bytes(builder.buffer())


def aiokafka_builder(magic: int, codec: str, rows: list[Record]) -> bytes:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

    if magic == 2:
        builder = DefaultRecordBatchBuilder(magic, CODECS.index(codec), is_transactional=0, producer_id=-1,
                                            producer_epoch=-1, base_sequence=-1, batch_size=1 << 20)
    else:
        builder = LegacyRecordBatchBuilder(magic, CODECS.index(codec), 1 << 20)
    for offset, row in enumerate(rows):
        fields = {"timestamp": row.timestamp, "key": row.key, "value": row.value}
        if magic == 2:
            fields["headers"] = text_headers(row, magic)
        assert builder.append(offset, **fields) is not None
    return bytes(builder.build())


@pytest.fixture(scope="module")
def java_sets(tmp_path_factory) -> dict[tuple[int, str], bytes]:
    """What Kafka's own writer makes of ROWS, with offsets from 1000 in steps of 3, as after compaction."""
    home = tmp_path_factory.mktemp("java")
    rows = [row._replace(offset=1000 + 3 * number) for number, row in enumerate(ROWS)]
    (home / "rows").write_bytes(canonical(rows))
    run(PEER, "encode", home, home / "rows")
    return {(magic, codec): (home / f"{magic}-{codec}").read_bytes() for magic, codec in ALL}


def check(data: bytes, rows: list[Record], magic: int, offsets) -> None:
    """wirescan reads what was put in and what kafka-python reads, batch fields too."""
    expected = known(rows, magic, offsets)
    assert from_kafka_python(data) == expected
    assert from_wirescan(data) == expected
    check_batches(data)


def check_batches(data: bytes) -> None:
    from wirescan import kafka

    table = kafka.scan(data)
    theirs = kafka_python_batches(data)
    assert table.consumed == len(data) and len(table.tail) == 0
    assert table["base_offset"].tolist() == [batch.base_offset for batch in theirs]
    assert table["size"].tolist() == [batch.size_in_bytes for batch in theirs]
    assert table["magic"].tolist() == [batch.magic for batch in theirs]
    assert table["codec"].tolist() == [batch.compression_type for batch in theirs]
    modern = table.where(table["magic"] == 2)
    theirs = [batch for batch in theirs if batch.magic == 2]
    for column, name in {"last_offset": "last_offset", "base_timestamp": "first_timestamp",
                         "max_timestamp": "max_timestamp", "producer_id": "producer_id",
                         "producer_epoch": "producer_epoch", "base_sequence": "base_sequence",
                         "leader_epoch": "leader_epoch", "record_count": "records_count", "crc": "crc",
                         "attributes": "attributes"}.items():
        assert modern[column].tolist() == [getattr(batch, name) for batch in theirs], column


@pytest.mark.parametrize("magic, codec", ALL)
def test_kafka_python(magic, codec):
    check(kafka_python(magic, codec, ROWS), ROWS, magic, range(len(ROWS)))


@pytest.mark.parametrize("magic, codec", AIOKAFKA)
def test_aiokafka(magic, codec):
    check(aiokafka_builder(magic, codec, ROWS), ROWS, magic, range(len(ROWS)))


@pytest.mark.parametrize("magic, codec", ALL)
def test_java(java_sets, magic, codec):
    check(java_sets[magic, codec], ROWS, magic, range(1000, 1000 + 3 * len(ROWS), 3))


@pytest.mark.parametrize("magic, codec", ALL)
def test_librdkafka(magic, codec):
    with Recorder(magic) as recorder:
        send_librdkafka(recorder.address, TOPIC, ROWS, codec, batch_num_messages=100)
    assert len(recorder.record_sets) > 1
    rows = iter(ROWS)
    for data in recorder.record_sets:
        count = len(from_kafka_python(data))
        check(data, [next(rows) for _ in range(count)], magic, range(count))
    assert next(rows, None) is None


def test_transactional_fields():
    data = kafka_python(2, "lz4", ROWS, transactional=True, producer_id=2**40, producer_epoch=7,
                        base_sequence=2**31 - 3)
    check(data, ROWS, 2, range(len(ROWS)))


def test_magics_side_by_side(java_sets):
    """One buffer of all magics and codecs, as in a partition that outlived its brokers."""
    data = b"".join(java_sets[case] for case in ALL)
    assert from_wirescan(data) == from_kafka_python(data)
    check_batches(data)
