"""Encode record batches (magic 2) and message sets (magic 0 and 1) from Python objects.

The package wirescan.kafka exports `Record`, `encode_batch` and `encode_message_set`.
record_columns.py and client/ use the checks of codecs and attributes.

The docstring of record_batches/scan.pyx shows the layouts. Source: Apache Kafka, "Implementation,
Message Format" (kafka.apache.org/documentation/#messageformat), and its classes DefaultRecordBatch,
DefaultRecord and LegacyRecord.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

from crc32c import crc32c

from wirescan.core.arguments import I16, I32, I64, check_integer
from wirescan.core.varint import encode_varint
from wirescan.frames.codecs import compress

__all__ = ["Record", "encode_batch", "encode_message_set"]

CREATE = "create"
APPEND = "append"
# Bits of the attributes.
TIMESTAMP_TYPES = {CREATE: 0, APPEND: 0x08}
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
NO_TIMESTAMP = -1
# Of a number of 64 bits.
SIGN_BIT = 1 << 63
ALL_BITS = (1 << 64) - 1
LENGTH_EXCLUDES = 12  # bytes of a batch or message that its length does not count
# Name of a codec -> its number on the wire, and the name of its framing in wirescan.frames.codecs.
CODECS = {
    "none": (0, ""),
    "gzip": (1, "gzip"),
    "snappy": (2, "snappy-xerial"),
    "snappy-raw": (2, "snappy"),
    "lz4": (3, "lz4"),
    "lz4-legacy": (3, "lz4-legacy"),
    "zstd": (4, "zstd"),
}
BATCH_HEAD = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC-32C
MESSAGE_HEAD = struct.Struct(">qiI")  # offset, length, CRC-32


class Record(NamedTuple):
    """A record to write. `None` is null, `b""` is empty.

    offset: the offset in the log, an integer (of Python or numpy). None: the offset after that of
        the record before.
    timestamp: milliseconds since 1970, an integer. None: the record has no timestamp (-1).
    headers: pairs (key, value) in order, or a mapping. A key is bytes or str, a value bytes or
        None.
    """

    offset: SupportsIndex | None = None
    timestamp: SupportsIndex | None = None
    key: Any = None
    value: Any = None
    headers: Any = ()


class _Row(NamedTuple):
    """A record with its offset and timestamp filled in."""

    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Any


def encode_batch(
    records: Iterable[Any],
    *,
    base_offset: SupportsIndex | None = None,
    last_offset: SupportsIndex | None = None,
    codec: str = "none",
    level: SupportsIndex | None = None,
    timestamp_type: str = CREATE,
    base_timestamp: SupportsIndex | None = None,
    max_timestamp: SupportsIndex | None = None,
    leader_epoch: SupportsIndex = -1,
    producer_id: SupportsIndex = -1,
    producer_epoch: SupportsIndex = -1,
    base_sequence: SupportsIndex = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: SupportsIndex | None = None,
) -> bytes:
    """Encode one record batch of magic 2.

    records: `Record`s; tuples with these fields; mappings with these keys; objects with these
        attributes, such as the rows of `kafka.records`; or bytes, which are values. Offsets may
        have gaps.
    base_offset, last_offset: the defaults are those of the records, or 0. A compacted batch may
        have a higher last offset.
    codec: none, gzip, snappy (in Java's framing), snappy-raw (as librdkafka writes it), lz4 or
        zstd.
    level: gzip 0 .. 9, zstd -131072 .. 22; the other codecs have no levels.
    timestamp_type: "create" or "append". With "append" readers use max_timestamp for every record.
    base_timestamp, max_timestamp: milliseconds. The defaults are the first and the highest
        timestamp of the records.
    delete_horizon: milliseconds; it replaces the base timestamp.
    Without records the result is the empty batch that a compacted log keeps. It is not compressed.

    Raises TypeError for an argument of another type, ValueError for an argument that the format
    cannot hold.
    """
    rows = _make_rows(records, base_offset)
    first = _check_or_default(base_offset, rows[0].offset if rows else 0, "base_offset")
    last = _check_or_default(last_offset, rows[-1].offset if rows else first, "last_offset")
    base = _check_or_default(
        base_timestamp, rows[0].timestamp if rows else NO_TIMESTAMP, "base_timestamp"
    )
    highest = max((row.timestamp for row in rows), default=NO_TIMESTAMP)
    latest = _check_or_default(max_timestamp, highest, "max_timestamp")
    attributes = get_timestamp_bit(timestamp_type)
    attributes |= TRANSACTIONAL * bool(transactional) | CONTROL * bool(control)
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON
        base = check_integer(delete_horizon, "delete_horizon", I64)
    number, payload = _compress(
        codec, level, b"".join(_encode_record(row, first, base) for row in rows)
    )
    if not rows:
        number = 0
        payload = b""
    covered = (
        struct.pack(
            ">hiqqqhii",
            attributes | number,
            check_integer(last - first, "last_offset - base_offset", I32),
            base,
            latest,
            check_integer(producer_id, "producer_id", I64),
            check_integer(producer_epoch, "producer_epoch", I16),
            check_integer(base_sequence, "base_sequence", I32),
            len(rows),
        )
        + payload
    )
    size = BATCH_HEAD.size - LENGTH_EXCLUDES + len(covered)
    length = check_integer(size, "the batch's length", I32)
    epoch = check_integer(leader_epoch, "leader_epoch", I32)
    return BATCH_HEAD.pack(first, length, epoch, 2, crc32c(covered)) + covered


def encode_message_set(
    records: Iterable[Any],
    *,
    magic: SupportsIndex = 1,
    base_offset: SupportsIndex | None = None,
    codec: str = "none",
    level: SupportsIndex | None = None,
    timestamp_type: str = CREATE,
    wrapper_offset: SupportsIndex | None = None,
    wrapper_timestamp: SupportsIndex | None = None,
) -> bytes:
    """Encode a message set of magic 0 or 1.

    Without a codec the messages follow one another. With a codec they are inside one wrapper
    message. Inside a wrapper the offsets of magic 0 are absolute, those of magic 1 are relative to
    the first.

    records: as for `encode_batch`, without headers, and without timestamps in magic 0.
    codec: none, gzip, snappy (in Java's framing), snappy-raw, lz4 or lz4-legacy. lz4-legacy is for
        magic 0: it has the wrong header checksum that Kafka 0.8 and 0.9 wrote.
    level: as for `encode_batch`.
    wrapper_offset: the default is the offset of the last record. A producer writes 0 and sends
        offsets from 0.
    wrapper_timestamp: the default is the highest timestamp. Readers use it for every record of an
        "append" set.

    Raises TypeError for an argument of another type, ValueError for an argument that the format
    cannot hold.
    """
    magic, bit = check_message_attributes(magic, codec, timestamp_type)
    rows = _make_rows(records, base_offset)
    for row in rows:
        if _list_pairs(row.headers):
            raise ValueError(f"a message of magic {magic} cannot hold headers")
        if magic == 0 and row.timestamp != NO_TIMESTAMP:
            raise ValueError("a message of magic 0 cannot hold a timestamp")
    base = 0  # offsets count from here
    if codec != "none":
        if not rows:
            raise ValueError("a compressed message set needs at least one record")
        base = rows[0].offset if magic == 1 else 0
        if base < 0 or any(a.offset >= b.offset for a, b in zip(rows, rows[1:])):
            raise ValueError("offsets in a compressed message set must rise, from 0 or more")
    messages = b"".join(
        _encode_message(magic, bit, row.offset - base, row.timestamp, row.key, row.value)
        for row in rows
    )
    number, payload = _compress(codec, level, messages)
    if codec == "none":
        return payload
    offset = _check_or_default(wrapper_offset, rows[-1].offset, "wrapper_offset")
    highest = max(row.timestamp for row in rows)
    timestamp = _check_or_default(wrapper_timestamp, highest, "wrapper_timestamp")
    return _encode_message(magic, bit | number, offset, timestamp, None, payload)


def _make_rows(records: Iterable[Any], base_offset: SupportsIndex | None) -> list[_Row]:
    """Return the records with every offset and timestamp filled in."""
    rows = []
    next_offset = _check_or_default(base_offset, 0, "base_offset")
    for item in records:
        record = _to_record(item)
        number = next_offset if record.offset is None else record.offset
        offset = check_integer(number, "offset", I64)
        timestamp = _check_or_default(record.timestamp, NO_TIMESTAMP, "timestamp")
        rows.append(_Row(offset, timestamp, record.key, record.value, record.headers))
        next_offset = offset + 1
    return rows


def _to_record(item: Any) -> Record:
    if isinstance(item, (bytes, bytearray, memoryview)):
        return Record(value=item)
    if isinstance(item, tuple):
        if len(item) > len(Record._fields):
            raise ValueError(
                f"a record has only the fields {', '.join(Record._fields)}; {item!r} has more"
            )
        return Record(*item)
    if isinstance(item, Mapping):
        unknown = set(item) - set(Record._fields)
        if unknown:
            raise ValueError(
                f"a record has no field {unknown.pop()!r}, only {', '.join(Record._fields)}"
            )
        return Record(**item)
    if not hasattr(item, "value"):
        raise TypeError(f"not a record: {item!r}")
    return Record(**{name: getattr(item, name) for name in Record._fields if hasattr(item, name)})


def _encode_record(row: _Row, base_offset: int, base_timestamp: int) -> bytes:
    delta = check_integer(row.offset - base_offset, "offset - base_offset", I32)
    pairs = _list_pairs(row.headers)
    # The delta of a timestamp wraps at 64 bits, as in Java. The reader's sum wraps back.
    parts = [
        b"\0",
        _encode_zigzag(row.timestamp - base_timestamp),
        _encode_zigzag(delta),
        _encode_sized(row.key, "key"),
        _encode_sized(row.value, "value"),
        _encode_zigzag(len(pairs)),
    ]
    for key, value in pairs:
        key = key.encode() if isinstance(key, str) else key
        if key is None:
            raise ValueError("a header's key must not be None")
        parts += _encode_sized(key, "a header's key"), _encode_sized(value, "a header's value")
    body = b"".join(parts)
    return _encode_zigzag(len(body)) + body


def _encode_message(
    magic: int, attributes: int, offset: int, timestamp: int, key: Any, value: Any
) -> bytes:
    head = struct.pack(">bb", magic, attributes)
    if magic == 1:
        head += struct.pack(">q", check_integer(timestamp, "timestamp", I64))
    covered = b"".join((head, _encode_sized32(key, "key"), _encode_sized32(value, "value")))
    size = MESSAGE_HEAD.size - LENGTH_EXCLUDES + len(covered)
    length = check_integer(size, "the message's length", I32)
    number = check_integer(offset, "offset", I64)
    return MESSAGE_HEAD.pack(number, length, zlib.crc32(covered)) + covered


def _list_pairs(headers: Any) -> list[tuple[Any, Any]]:
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(key, value) for key, value in pairs]


def _encode_zigzag(number: int) -> bytes:
    """Return the low 64 bits of a signed number as a zig-zag varint of 1 to 10 bytes."""
    rest = (number << 1) & ALL_BITS
    if number & SIGN_BIT:
        rest ^= ALL_BITS
    return encode_varint(rest)


def _to_bytes(value: Any, name: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be bytes or None, not {type(value).__name__}")
    return bytes(value)


def _encode_sized(value: Any, name: str) -> bytes:
    if value is None:
        return b"\1"
    data = _to_bytes(value, name)
    return _encode_zigzag(len(data)) + data


def _encode_sized32(value: Any, name: str) -> bytes:
    if value is None:
        return b"\xff\xff\xff\xff"
    data = _to_bytes(value, name)
    return struct.pack(">i", len(data)) + data


def _check_or_default(value: SupportsIndex | None, default: int, name: str) -> int:
    return default if value is None else check_integer(value, name, I64)


def get_timestamp_bit(timestamp_type: str) -> int:
    """Return the bit of the attributes for "create" or "append". Raises ValueError for another."""
    if timestamp_type not in TIMESTAMP_TYPES:
        raise ValueError(f"timestamp_type must be 'create' or 'append', not {timestamp_type!r}")
    return TIMESTAMP_TYPES[timestamp_type]


def find_codec(
    codec: str, level: SupportsIndex | None
) -> tuple[int, Callable[[bytes | memoryview], bytes] | None]:
    """Return a codec's number on the wire, and the function that compresses (None for "none").

    Raises ValueError for an unknown codec. For a level that the codec does not have, this function
    or the one that compresses raises ValueError.
    """
    if codec not in CODECS:
        raise ValueError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
    number, framing = CODECS[codec]
    if level is not None:
        level = check_integer(level, "level", I64)
        if not framing:
            raise ValueError(f"codec none has no levels, so level must be None, not {level}")
    return number, partial(compress, framing, level=level) if framing else None


def check_message_attributes(
    magic: SupportsIndex, codec: str, timestamp_type: str
) -> tuple[int, int]:
    """Return the magic, 0 or 1, and the timestamp bit of a message's attributes.

    Raises TypeError for a magic that is no integer. Raises ValueError for another magic, and for a
    codec or timestamp type that the magic does not have.
    """
    magic = check_integer(magic, "magic", I64)
    if magic not in (0, 1):
        raise ValueError(f"magic must be 0 or 1, not {magic!r}; encode_batch writes magic 2")
    if codec == "zstd":
        raise ValueError("zstd needs magic 2: use encode_batch")
    if codec == "lz4-legacy" and magic != 0:
        raise ValueError("lz4-legacy is a framing of magic 0 only")
    bit = get_timestamp_bit(timestamp_type)
    if bit and magic == 0:
        raise ValueError("a message of magic 0 has no timestamp and so no timestamp type")
    return magic, bit


def _compress(codec: str, level: SupportsIndex | None, data: bytes) -> tuple[int, bytes]:
    """Return the codec's number on the wire, and the compressed data."""
    number, pack = find_codec(codec, level)
    return number, pack(data) if pack else data
