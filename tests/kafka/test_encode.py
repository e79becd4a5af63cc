"""The Kafka encoder: the reference reads its bytes back, and kafka-python agrees with them."""

import struct
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.reference import kafka as reference
from tests.strategies import kafka as strategies
from tests.support.examples import read_example_count
from wirescan.kafka.encode.records import Record, encode_batch, encode_message_set

quiet = settings(max_examples=read_example_count(30), deadline=None)


def read_back(raw):
    """List all records as the reference reads them. A bad row is an error."""
    batches, fault, position = reference.read_batches(raw)
    assert (fault, position) == (reference.OK, len(raw))
    assert sum(batch["size"] for batch in batches) == len(raw)
    assert not any(batch["fault"] for batch in batches)
    return [
        read_record(raw, batch, row)
        for batch in batches
        for row in reference.list_records(raw, batch)
    ]


def read_record(raw, batch, row):
    assert row["fault"] == 0
    buffer = reference.decompress_payload(raw, batch) if row["buffer"] else raw
    headers = reference.list_headers(buffer, row)
    assert not any(header["fault"] for header in headers)
    assert len(headers) == row["header_count"]
    pairs = [
        (copy_place(buffer, each, "key"), copy_place(buffer, each, "value")) for each in headers
    ]
    key = copy_place(buffer, row, "key")
    value = copy_place(buffer, row, "value")
    return Record(row["offset"], row["timestamp"], key, value, tuple(pairs))


def copy_place(buffer, row, name):
    at, size = row["start"] + row[f"{name}_at"], row[f"{name}_size"]
    return None if size < 0 else bytes(buffer[at : at + size])


# ---- encode then decode


@quiet
@given(strategies.batch_calls())
def test_batch_reads_back(call):
    rows, options = call
    raw = encode_batch(rows, **options)
    (batch,) = reference.read_batches(raw)[0]
    if options["timestamp_type"] == "append":
        rows = [row._replace(timestamp=batch["max_timestamp"]) for row in rows]
    assert read_back(raw) == rows
    assert batch["record_count"] == len(rows)
    assert batch["magic"] == 2
    for name in (
        "base_offset",
        "last_offset",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "max_timestamp",
    ):
        assert name not in options or batch[name] == options[name]
    bits = batch["attributes"]
    assert bool(bits & 0x10) == options["transactional"]
    assert bool(bits & 0x20) == options["control"]
    assert bool(bits & 0x40) == ("delete_horizon" in options)
    assert bool(batch["codec"]) == bool(rows and options["codec"] != "none")


@quiet
@given(strategies.message_set_calls())
def test_message_set_reads_back(call):
    rows, options = call
    raw = encode_message_set(rows, **options)
    is_compressed = options["codec"] != "none"
    if options.get("timestamp_type") == "append" and is_compressed:
        rows = [row._replace(timestamp=max(row.timestamp for row in rows)) for row in rows]
    if options["magic"] == 0:
        rows = [row._replace(timestamp=-1) for row in rows]
    elif is_compressed and "wrapper_offset" in options:
        rows = [row._replace(offset=row.offset - rows[0].offset) for row in rows]
    assert read_back(raw) == rows
    assert len(reference.read_batches(raw)[0]) == (1 if is_compressed else len(rows))


@quiet
@given(strategies.logs())
def test_mixed_log_is_good(raw):
    read_back(raw)


# ---- arguments


def test_every_kind_of_record_is_accepted():
    pair = ("h", b"1")
    rows = [
        b"plain",
        (None, 5),
        {"value": b"m", "headers": {"h": b"1"}},
        Record(9, 6, b"k", memoryview(b"v"), [pair]),
        SimpleNamespace(key=None, value=b"", timestamp=7, headers=None),
    ]
    assert read_back(encode_batch(rows, base_offset=3)) == [
        (3, -1, None, b"plain", ()),
        (4, 5, None, None, ()),
        (5, -1, None, b"m", ((b"h", b"1"),)),
        (9, 6, b"k", b"v", ((b"h", b"1"),)),
        (10, 7, None, b"", ()),
    ]


def test_defaults_come_from_the_records():
    raw = encode_batch([Record(1000, 7), Record(1003, 9), Record(1004, 8)])
    (batch,) = reference.read_batches(raw)[0]
    assert (batch["base_offset"], batch["last_offset"], batch["record_count"]) == (1000, 1004, 3)
    assert (batch["base_timestamp"], batch["max_timestamp"], batch["producer_id"]) == (7, 9, -1)


def test_an_empty_batch_keeps_its_offsets():
    raw = encode_batch([], base_offset=40, last_offset=49, codec="zstd", producer_id=5)
    (batch,) = reference.read_batches(raw)[0]
    assert len(raw) == 61
    assert batch["last_offset"] == 49
    assert batch["codec"] == 0
    assert batch["base_timestamp"] == -1
    assert reference.list_records(raw, batch) == []


def test_timestamp_deltas_wrap():
    ends = [Record(0, -(2**63)), Record(1, 2**63 - 1)]
    assert [row.timestamp for row in read_back(encode_batch(ends))] == [-(2**63), 2**63 - 1]


def test_magic_0_has_the_old_lz4_checksum():
    raw = encode_message_set([b"x" * 100_000], magic=0, codec="lz4-legacy")
    assert raw[26:33] == bytes.fromhex("04224d1860401a")
    assert [len(row.value) for row in read_back(raw)] == [100_000]


def test_wrappers_have_the_offsets_of_their_magic():
    rows = [Record(10), Record(12), Record(19)]
    for magic, inner_offsets in ((0, [10, 12, 19]), (1, [0, 2, 9])):
        raw = encode_message_set(rows, magic=magic, codec="gzip")
        (batch,) = reference.read_batches(raw)[0]
        payload = reference.decompress_payload(raw, batch)
        starts = [row["start"] for row in reference.list_records(raw, batch)]
        assert batch["base_offset"] == 19
        assert [struct.unpack_from(">q", payload, at)[0] for at in starts] == inner_offsets


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_batch([{"vaule": b""}]), "no field 'vaule'"),
        (lambda: encode_batch([tuple(range(6))]), "has more"),
        (lambda: encode_batch([Record(headers=[(None, b"")])]), "must not be None"),
        (lambda: encode_batch([Record(0), Record(2**31)]), "offset - base_offset"),
        (lambda: encode_batch([Record(2**63)]), "offset must be"),
        (lambda: encode_batch([b""], codec="brotli"), "codec must be one of"),
        (lambda: encode_batch([], codec="brotli"), "codec must be one of"),
        (lambda: encode_batch([b""], codec="gzip", level=10), "codec gzip has levels from 0 to 9"),
        (lambda: encode_batch([b""], codec="zstd", level=2**70), "level must be from"),
        (lambda: encode_batch([b""], codec="snappy", level=1), "has no levels"),
        (lambda: encode_batch([b""], level=1), "codec none has no levels"),
        (lambda: encode_message_set([b""], level=1), "codec none has no levels"),
        (lambda: encode_message_set([b""], codec="lz4", level=1), "codec lz4 has no levels"),
        (lambda: encode_batch([b""], base_offset=2**63), "base_offset must be"),
        (lambda: encode_batch([b""], delete_horizon=2**63), "delete_horizon must be"),
        (
            lambda: encode_message_set([b""], codec="gzip", wrapper_offset=-(2**63) - 1),
            "wrapper_offset must be",
        ),
        (
            lambda: encode_message_set([b""], codec="gzip", wrapper_timestamp=2**63),
            "wrapper_timestamp must be",
        ),
        (lambda: encode_batch([b""], timestamp_type="log"), "timestamp_type"),
        (lambda: encode_batch([b""], producer_epoch=2**15), "producer_epoch"),
        (lambda: encode_message_set([b""], magic=2), "magic must be 0 or 1"),
        (lambda: encode_message_set([b""], codec="zstd"), "magic 2"),
        (lambda: encode_message_set([b""], codec="lz4-legacy"), "magic 0 only"),
        (lambda: encode_message_set([], codec="gzip"), "at least one"),
        (lambda: encode_message_set([Record(5), Record(5)], codec="gzip"), "must rise"),
        (lambda: encode_message_set([Record(headers=[(b"k", b"")])]), "headers"),
        (lambda: encode_message_set([Record(timestamp=1)], magic=0), "cannot hold a timestamp"),
        (lambda: encode_message_set([b""], magic=0, timestamp_type="append"), "no timestamp"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


NUMBERS = (
    "base_offset",
    "last_offset",
    "base_timestamp",
    "max_timestamp",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "delete_horizon",
    "level",
)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_batch(["text"]), "not a record"),
        (lambda: encode_batch([Record(key="text")]), "key must be bytes"),
        (lambda: encode_batch([Record(offset=0.0)]), "offset must be an integer, not 0.0"),
        (lambda: encode_batch([Record(timestamp=1.5)]), "timestamp must be an integer"),
        *(
            (lambda name=name: encode_batch([b""], codec="zstd", **{name: 0.0}), f"^{name} must be")
            for name in NUMBERS
        ),
        *(
            (
                lambda name=name: encode_message_set([b""], codec="gzip", **{name: np.float64(1)}),
                f"^{name} must be",
            )
            for name in ("magic", "base_offset", "wrapper_offset", "wrapper_timestamp", "level")
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_of_another_type(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_integers_of_numpy_are_accepted():
    kinds = {"int64": np.int64, "uint64": np.uint64, "int32": np.int32, "uint8": np.uint8}
    plain = [Record(7, 100, b"k", b"v"), Record(200, 90, None, b"w"), Record(None, 5)]
    for kind in kinds.values():
        rows = [
            row._replace(
                offset=None if row.offset is None else kind(row.offset),
                timestamp=kind(row.timestamp),
            )
            for row in plain
        ]
        assert encode_batch(rows) == encode_batch(plain)
        numbers = {name: number for number, name in enumerate(NUMBERS)}
        of_kind = {name: kind(number) for name, number in numbers.items()}
        assert encode_batch(rows, codec="zstd", **of_kind) == encode_batch(
            plain, codec="zstd", **numbers
        )
        numbers = dict(magic=1, base_offset=3, level=5, wrapper_offset=9, wrapper_timestamp=8)
        of_kind = {name: kind(number) for name, number in numbers.items()}
        assert encode_message_set(rows, codec="gzip", **of_kind) == encode_message_set(
            plain, codec="gzip", **numbers
        )


# ---- peers

SAME = [
    Record(0, 1_700_000_000_000, b"k" * 20, b"v" * 300),
    Record(1, 1_700_000_000_500, None, b"v" * 300),
    Record(2, 1_600_000_000_000, b"", None),
    Record(3, 2**42, b"k", b""),
]
HEADED = [row._replace(headers=(("a", b"1"), ("a", None), ("", b""))) for row in SAME]


def encode_by_kafka_python(magic, codec, rows, **options):
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(magic, codec, batch_size=1 << 20, **options)
    for row in rows:
        builder.append(
            timestamp=row.timestamp, key=row.key, value=row.value, headers=list(row.headers)
        )
    builder.close()
    return bytes(builder.buffer())


@pytest.mark.peers
@pytest.mark.parametrize(
    "options", [{}, dict(transactional=True, producer_id=7, producer_epoch=2, base_sequence=5)]
)
def test_batch_is_byte_for_byte_kafka_pythons(options):
    expected = encode_by_kafka_python(2, 0, HEADED, **options)
    assert encode_batch(HEADED, leader_epoch=0, **options) == expected


@pytest.mark.peers
def test_snappy_batch_is_byte_for_byte_kafka_pythons():
    expected = encode_by_kafka_python(2, 2, HEADED)
    assert encode_batch(HEADED, leader_epoch=0, codec="snappy") == expected


@pytest.mark.peers
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec, number", [("none", 0), ("snappy", 2)])
def test_message_set_is_byte_for_byte_kafka_pythons(magic, codec, number):
    rows = [row._replace(timestamp=None) for row in SAME] if magic == 0 else SAME
    ours = encode_message_set(rows, magic=magic, codec=codec, wrapper_offset=0, wrapper_timestamp=0)
    assert ours == encode_by_kafka_python(magic, number, SAME)


def read_by_kafka_python(raw):
    from kafka.record import MemoryRecords

    rows = []
    records = MemoryRecords(raw)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for row in batch:
            headers = tuple((key.encode(), value) for key, value in row.headers)
            timestamp = -1 if row.timestamp is None else row.timestamp
            rows.append((row.offset, timestamp, row.key, row.value, headers))
    return rows


@pytest.mark.peers
@pytest.mark.parametrize("codec", strategies.BATCH_CODECS)
@pytest.mark.parametrize("timestamp_type", ["create", "append"])
def test_kafka_python_reads_our_batches(codec, timestamp_type):
    rows = [row._replace(offset=row.offset * 3 + 2**33) for row in HEADED * 20]
    raw = encode_batch(rows, codec=codec, timestamp_type=timestamp_type) * 2
    assert read_by_kafka_python(raw) == read_back(raw)


@pytest.mark.peers
@pytest.mark.parametrize(
    "magic, codec",
    [
        (magic, codec)
        for magic, codecs in strategies.MESSAGE_CODECS.items()
        for codec in codecs
        # kafka-python needs one more library for lz4 in magic 0.
        if not (magic == 0 and codec.startswith("lz4"))
    ],
)
def test_kafka_python_reads_our_message_sets(magic, codec):
    rows = [row._replace(offset=row.offset * 3 + 100) for row in SAME]
    if magic == 0:
        rows = [row._replace(timestamp=None) for row in rows]
    raw = encode_message_set(rows, magic=magic, codec=codec)
    assert read_by_kafka_python(raw) == read_back(raw)


@pytest.mark.peers
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_reference_reads_kafka_pythons_bytes(magic, codec):
    is_zstd_message = magic < 2 and codec == 4
    is_old_lz4 = (magic, codec) == (0, 3)
    if is_zstd_message or is_old_lz4:
        codec = 1  # kafka-python has no zstd for messages, and needs one more library for old lz4
    rows = HEADED if magic == 2 else SAME
    raw = encode_by_kafka_python(magic, codec, rows * 10)
    assert read_back(raw) == read_by_kafka_python(raw)
