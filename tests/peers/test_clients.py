"""Record sets that the clients' own code makes, of every magic and codec that a client supports.

kafka-python, aiokafka and Kafka's Java library make them in memory. librdkafka has no such
function, so it sends them to a listener that keeps the bytes (recorder.py). kafka-python is the
second reader of all of them.
"""

import pytest

from .broker import run
from .canonical import Record, encode_records, read_with_wirescan
from .producers import CODECS, make_orders, send_librdkafka
from .readers import PEER, parse_batches, read_with_kafka_python
from .recorder import TOPIC, Recorder

pytestmark = pytest.mark.peers

ALL = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"]
# aiokafka refuses the old lz4 of magic 0.
AIOKAFKA = [case for case in ALL if case != (0, "lz4")]
ROWS = (
    make_orders(500, seed=1, big=False)
    + make_orders(3, seed=2)
    + [Record(-1, 1_700_000_000_000, None, None, ())]
)


def make_expected_records(rows: list[Record], magic: int, offsets) -> list[Record]:
    """The records that a record set of `rows` holds.

    Magic 0 has no times. Magic 0 and 1 have no headers.
    """
    return [
        Record(
            offset,
            row.timestamp if magic else -1,
            row.key,
            row.value,
            row.headers if magic == 2 else (),
        )
        for row, offset in zip(rows, offsets, strict=True)
    ]


def decode_headers(row: Record, magic: int) -> list:
    return [(name.decode(), content) for name, content in row.headers] if magic == 2 else []


def encode_with_kafka_python(magic: int, codec: str, rows: list[Record], **producer) -> bytes:
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(magic, CODECS.index(codec), 1 << 20, **producer)
    for row in rows:
        headers = decode_headers(row, magic)
        assert builder.append(row.timestamp, row.key, row.value, headers) is not None
    builder.close()
    return bytes(builder.buffer())


def encode_with_aiokafka(magic: int, codec: str, rows: list[Record]) -> bytes:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

    if magic == 2:
        builder = DefaultRecordBatchBuilder(
            magic,
            CODECS.index(codec),
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 20,
        )
    else:
        builder = LegacyRecordBatchBuilder(magic, CODECS.index(codec), 1 << 20)
    for offset, row in enumerate(rows):
        fields = {"timestamp": row.timestamp, "key": row.key, "value": row.value}
        if magic == 2:
            fields["headers"] = decode_headers(row, magic)
        assert builder.append(offset, **fields) is not None
    return bytes(builder.build())


@pytest.fixture(scope="module")
def java_sets(tmp_path_factory) -> dict[tuple[int, str], bytes]:
    """Record sets of ROWS from Kafka's own writer.

    The offsets begin at 1000 and have steps of 3, like after compaction.
    """
    home = tmp_path_factory.mktemp("java")
    rows = [row._replace(offset=1000 + 3 * number) for number, row in enumerate(ROWS)]
    (home / "rows").write_bytes(encode_records(rows))
    run(PEER, "encode", home, home / "rows")
    return {(magic, codec): (home / f"{magic}-{codec}").read_bytes() for magic, codec in ALL}


def check_records(data: bytes, rows: list[Record], magic: int, offsets) -> None:
    """wirescan reads the given records, and the same records and batches as kafka-python."""
    expected = make_expected_records(rows, magic, offsets)
    assert read_with_kafka_python(data) == expected
    assert read_with_wirescan(data) == expected
    check_batches(data)


def check_batches(data: bytes) -> None:
    from wirescan import kafka

    table = kafka.scan(data)
    theirs = parse_batches(data)
    assert table.consumed == len(data)
    assert len(table.tail) == 0
    assert table["base_offset"].tolist() == [batch.base_offset for batch in theirs]
    assert table["size"].tolist() == [batch.size_in_bytes for batch in theirs]
    assert table["magic"].tolist() == [batch.magic for batch in theirs]
    assert table["codec"].tolist() == [batch.compression_type for batch in theirs]
    modern = table.where(table["magic"] == 2)
    theirs = [batch for batch in theirs if batch.magic == 2]
    for column, name in {
        "last_offset": "last_offset",
        "base_timestamp": "first_timestamp",
        "max_timestamp": "max_timestamp",
        "producer_id": "producer_id",
        "producer_epoch": "producer_epoch",
        "base_sequence": "base_sequence",
        "leader_epoch": "leader_epoch",
        "record_count": "records_count",
        "crc": "crc",
        "attributes": "attributes",
    }.items():
        assert modern[column].tolist() == [getattr(batch, name) for batch in theirs], column


@pytest.mark.parametrize("magic, codec", ALL)
def test_record_sets_of_kafka_python(magic, codec):
    check_records(encode_with_kafka_python(magic, codec, ROWS), ROWS, magic, range(len(ROWS)))


@pytest.mark.parametrize("magic, codec", AIOKAFKA)
def test_record_sets_of_aiokafka(magic, codec):
    check_records(encode_with_aiokafka(magic, codec, ROWS), ROWS, magic, range(len(ROWS)))


@pytest.mark.parametrize("magic, codec", ALL)
def test_record_sets_of_java(java_sets, magic, codec):
    check_records(java_sets[magic, codec], ROWS, magic, range(1000, 1000 + 3 * len(ROWS), 3))


@pytest.mark.parametrize("magic, codec", ALL)
def test_record_sets_of_librdkafka(magic, codec):
    with Recorder(magic) as recorder:
        send_librdkafka(recorder.address, TOPIC, ROWS, codec, batch_num_messages=100)
    assert len(recorder.record_sets) > 1
    rows = iter(ROWS)
    for data in recorder.record_sets:
        count = len(read_with_kafka_python(data))
        check_records(data, [next(rows) for _ in range(count)], magic, range(count))
    assert next(rows, None) is None


def test_transactional_batches_of_kafka_python():
    data = encode_with_kafka_python(
        2,
        "lz4",
        ROWS,
        transactional=True,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=2**31 - 3,
    )
    check_records(data, ROWS, 2, range(len(ROWS)))


def test_all_magics_in_one_buffer(java_sets):
    """One buffer holds all magics and codecs, like the log of an old partition."""
    data = b"".join(java_sets[case] for case in ALL)
    assert read_with_wirescan(data) == read_with_kafka_python(data)
    check_batches(data)
