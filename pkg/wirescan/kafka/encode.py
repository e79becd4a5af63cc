"""Write Kafka bytes: record batches (magic 2) and message sets (magic 0 and 1).

    batch    base offset i64 | length i32 | leader epoch i32 | magic i8 | CRC-32C u32 | attributes i16
             | last offset delta i32 | base timestamp i64 | max timestamp i64 | producer id i64
             | producer epoch i16 | base sequence i32 | record count i32 | records
    record   length | attributes i8 | timestamp delta | offset delta | key | value | headers
             (zig-zag varints)
    message  offset i64 | length i32 | CRC-32 u32 | magic i8 | attributes i8 | [timestamp i64] | key | value

Everything is big-endian. The format's source: Apache Kafka, "Implementation, Message Format"
(kafka.apache.org/documentation/#messageformat), and its DefaultRecordBatch, DefaultRecord and LegacyRecord.
"""
from __future__ import annotations

import operator
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

from crc32c import crc32c

from wirescan.codecs import compress

__all__ = ["Record", "encode_batch", "encode_message_set"]

I16, I32, I64 = 1 << 15, 1 << 31, 1 << 63
CREATE, APPEND = "create", "append"
TIMESTAMP_TYPES = {CREATE: 0, APPEND: 0x08}
TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x10, 0x20, 0x40
NO_TIMESTAMP = -1
# a codec as callers name it: its number on the wire, and the framing as wirescan.codecs names it
CODECS = {
    "none": (0, ""), "gzip": (1, "gzip"), "snappy": (2, "snappy-xerial"), "snappy-raw": (2, "snappy"),
    "lz4": (3, "lz4"), "lz4-legacy": (3, "lz4-legacy"), "zstd": (4, "zstd"),
}


class Record(NamedTuple):
    """One record to write. `None` is null, `b""` is empty.

    offset     its place in the log, an integer (numpy's too); None: one after the record before it
    timestamp  milliseconds since 1970, an integer; None: it has none (-1)
    headers    pairs (key, value) in order, or a mapping; a key is bytes or str, a value bytes or None
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
    records: Iterable[Any], *, base_offset: SupportsIndex | None = None, last_offset: SupportsIndex | None = None,
    codec: str = "none", level: SupportsIndex | None = None, timestamp_type: str = CREATE,
    base_timestamp: SupportsIndex | None = None, max_timestamp: SupportsIndex | None = None,
    leader_epoch: SupportsIndex = -1, producer_id: SupportsIndex = -1, producer_epoch: SupportsIndex = -1,
    base_sequence: SupportsIndex = -1, transactional: bool = False, control: bool = False,
    delete_horizon: SupportsIndex | None = None,
) -> bytes:
    """One record batch of magic 2.

    records: `Record`s, tuples in that order, mappings with those keys, objects with those attributes (such as
    the rows of `kafka.records`), or plain bytes, which are values. Offsets may have gaps.
    base_offset, last_offset: by default those of the records, or 0; a compacted batch keeps a higher last.
    codec: none, gzip, snappy (in Java's framing), snappy-raw (as librdkafka writes it), lz4 or zstd.
    level: gzip 0 .. 9, zstd -131072 .. 22; the others have none.
    timestamp_type: "create", or "append": readers then take max_timestamp for every record.
    base_timestamp, max_timestamp: milliseconds; by default the first record's and the highest.
    delete_horizon: milliseconds; it stands in the place of the base timestamp.
    Without records the batch is the empty one that a compacted log keeps, and is not compressed.

    Raises TypeError for an argument of another type, ValueError for one that the format cannot hold.
    """
    rows = _numbered(records, base_offset)
    first = _or(base_offset, rows[0].offset if rows else 0, "base_offset")
    last = _or(last_offset, rows[-1].offset if rows else first, "last_offset")
    base = _or(base_timestamp, rows[0].timestamp if rows else NO_TIMESTAMP, "base_timestamp")
    latest = _or(max_timestamp, max((row.timestamp for row in rows), default=NO_TIMESTAMP), "max_timestamp")
    attributes = timestamp_bit(timestamp_type)
    attributes |= TRANSACTIONAL * bool(transactional) | CONTROL * bool(control)
    if delete_horizon is not None:
        attributes, base = attributes | DELETE_HORIZON, fit(delete_horizon, I64, "delete_horizon")
    number, payload = _compressed(codec, level, b"".join(_record(row, first, base) for row in rows))
    if not rows:
        number, payload = 0, b""
    covered = struct.pack(
        ">hiqqqhii", attributes | number, fit(last - first, I32, "last_offset - base_offset"), base, latest,
        fit(producer_id, I64, "producer_id"), fit(producer_epoch, I16, "producer_epoch"),
        fit(base_sequence, I32, "base_sequence"), len(rows),
    ) + payload
    length = fit(9 + len(covered), I32, "the batch's length")
    epoch = fit(leader_epoch, I32, "leader_epoch")
    return struct.pack(">qiibI", first, length, epoch, 2, crc32c(covered)) + covered


def encode_message_set(
    records: Iterable[Any], *, magic: SupportsIndex = 1, base_offset: SupportsIndex | None = None,
    codec: str = "none", level: SupportsIndex | None = None, timestamp_type: str = CREATE,
    wrapper_offset: SupportsIndex | None = None, wrapper_timestamp: SupportsIndex | None = None,
) -> bytes:
    """A message set of magic 0 or 1: messages in a row or, with a codec, inside one wrapper message.

    records: as for `encode_batch`, without headers, and without timestamps in magic 0.
    codec: none, gzip, snappy (in Java's framing), snappy-raw, lz4, or lz4-legacy: magic 0 with the wrong
    header checksum that Kafka 0.8 and 0.9 wrote. Inside a wrapper the offsets of magic 0 are absolute, those
    of magic 1 relative to the first. level: as for `encode_batch`.
    wrapper_offset: by default the last record's; a producer writes 0 and sends offsets from 0.
    wrapper_timestamp: by default the highest; readers take it for every record of an "append" set.

    Raises TypeError for an argument of another type, ValueError for one that the format cannot hold.
    """
    magic, bit = message_attributes(magic, codec, timestamp_type)
    rows = _numbered(records, base_offset)
    for row in rows:
        if _pairs(row.headers):
            raise ValueError(f"a message of magic {magic} cannot hold headers")
        if magic == 0 and row.timestamp != NO_TIMESTAMP:
            raise ValueError("a message of magic 0 cannot hold a timestamp")
    if codec == "none":
        plain = b"".join(_message(magic, bit, row.offset, row.timestamp, row.key, row.value) for row in rows)
        return _compressed(codec, level, plain)[1]
    if not rows:
        raise ValueError("a compressed message set needs at least one record")
    base = rows[0].offset if magic == 1 else 0
    if base < 0 or any(a.offset >= b.offset for a, b in zip(rows, rows[1:])):
        raise ValueError("offsets in a compressed message set must rise, from 0 or more")
    inner = b"".join(
        _message(magic, bit, row.offset - base, row.timestamp, row.key, row.value) for row in rows)
    number, payload = _compressed(codec, level, inner)
    offset = _or(wrapper_offset, rows[-1].offset, "wrapper_offset")
    timestamp = _or(wrapper_timestamp, max(row.timestamp for row in rows), "wrapper_timestamp")
    return _message(magic, bit | number, offset, timestamp, None, payload)


def _numbered(records: Iterable[Any], base_offset: SupportsIndex | None) -> list[_Row]:
    """The records with every offset and timestamp filled in."""
    rows, following = [], _or(base_offset, 0, "base_offset")
    for item in records:
        row = _as_record(item)
        offset = fit(following if row.offset is None else row.offset, I64, "offset")
        rows.append(_Row(offset, _or(row.timestamp, NO_TIMESTAMP, "timestamp"), row.key, row.value, row.headers))
        following = offset + 1
    return rows


def _as_record(item: Any) -> Record:
    if isinstance(item, (bytes, bytearray, memoryview)):
        return Record(value=item)
    if isinstance(item, tuple):
        if len(item) > len(Record._fields):
            raise ValueError(f"a record has the fields {', '.join(Record._fields)}: {item!r} has more")
        return Record(*item)
    if isinstance(item, Mapping):
        unknown = set(item) - set(Record._fields)
        if unknown:
            raise ValueError(f"a record has no field {unknown.pop()!r}, only {', '.join(Record._fields)}")
        return Record(**item)
    if not hasattr(item, "value"):
        raise TypeError(f"not a record: {item!r}")
    return Record(**{name: getattr(item, name) for name in Record._fields if hasattr(item, name)})


def _record(row: _Row, base_offset: int, base_timestamp: int) -> bytes:
    delta = fit(row.offset - base_offset, I32, "offset - base_offset")
    pairs = _pairs(row.headers)
    # a timestamp's delta wraps at 64 bits, as Java's does: the reader's sum wraps back
    parts = [b"\0", _varint(row.timestamp - base_timestamp), _varint(delta),
             _sized(row.key, "key"), _sized(row.value, "value"), _varint(len(pairs))]
    for key, value in pairs:
        key = key.encode() if isinstance(key, str) else key
        if key is None:
            raise ValueError("a header's key must not be None")
        parts += _sized(key, "a header's key"), _sized(value, "a header's value")
    body = b"".join(parts)
    return _varint(len(body)) + body


def _message(magic: int, attributes: int, offset: int, timestamp: int, key: Any, value: Any) -> bytes:
    head = struct.pack(">bb", magic, attributes)
    if magic == 1:
        head += struct.pack(">q", fit(timestamp, I64, "timestamp"))
    covered = b"".join((head, _sized32(key, "key"), _sized32(value, "value")))
    length = fit(4 + len(covered), I32, "the message's length")
    return struct.pack(">qiI", fit(offset, I64, "offset"), length, zlib.crc32(covered)) + covered


def _pairs(headers: Any) -> list[tuple[Any, Any]]:
    if headers is None:
        return []
    return [(key, value) for key, value in (headers.items() if isinstance(headers, Mapping) else headers)]


def _varint(number: int) -> bytes:
    """A signed number of 64 bits, zig-zag: 1 to 10 bytes."""
    rest = (number << 1) & 0xFFFFFFFFFFFFFFFF
    if number & I64:
        rest ^= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(value: Any, name: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be bytes or None, not {type(value).__name__}")
    return bytes(value)


def _sized(value: Any, name: str) -> bytes:
    return b"\1" if value is None else _varint(len(data := _bytes(value, name))) + data


def _sized32(value: Any, name: str) -> bytes:
    if value is None:
        return b"\xff\xff\xff\xff"
    data = _bytes(value, name)
    return struct.pack(">i", len(data)) + data


def fit(given: SupportsIndex, bound: int, name: str) -> int:
    """An integer from -bound to bound - 1. Raises TypeError and ValueError, by its name, for anything else."""
    try:
        number = operator.index(given)      # an int of Python, whose sums do not wrap
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {given!r}") from None
    if not -bound <= number < bound:
        raise ValueError(f"{name} must be from -{bound} to {bound - 1}, not {number}")
    return number


def _or(given: SupportsIndex | None, default: int, name: str) -> int:
    return default if given is None else fit(given, I64, name)


def timestamp_bit(timestamp_type: str) -> int:
    """The bit of the attributes that says "create" or "append". Raises ValueError for another type."""
    if timestamp_type not in TIMESTAMP_TYPES:
        raise ValueError(f"timestamp_type must be 'create' or 'append', not {timestamp_type!r}")
    return TIMESTAMP_TYPES[timestamp_type]


def codec_of(codec: str, level: SupportsIndex | None) -> tuple[int, Callable[[bytes | memoryview], bytes] | None]:
    """A codec's number on the wire, and what compresses with it (None for "none").

    Raises ValueError for a codec that is not known, and, then or when it compresses, for a level that it has not.
    """
    if codec not in CODECS:
        raise ValueError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
    number, framing = CODECS[codec]
    if level is not None:
        level = fit(level, I64, "level")
        if not framing:
            raise ValueError(f"codec none has no levels, and not level {level}")
    return number, partial(compress, framing, level=level) if framing else None


def message_attributes(magic: SupportsIndex, codec: str, timestamp_type: str) -> tuple[int, int]:
    """The magic, 0 or 1, and the bits of the attributes in a message. Raises ValueError for what it cannot have."""
    magic = fit(magic, I64, "magic")
    if magic not in (0, 1):
        raise ValueError(f"magic must be 0 or 1, not {magic!r}; encode_batch writes magic 2")
    if codec == "zstd":
        raise ValueError("zstd needs magic 2: use encode_batch")
    if codec == "lz4-legacy" and magic != 0:
        raise ValueError("lz4-legacy is a framing of magic 0 only")
    bit = timestamp_bit(timestamp_type)
    if bit and magic == 0:
        raise ValueError("a message of magic 0 has no timestamp and so no timestamp type")
    return magic, bit


def _compressed(codec: str, level: SupportsIndex | None, data: bytes) -> tuple[int, bytes]:
    """The codec's number on the wire, and the data in it."""
    number, pack = codec_of(codec, level)
    return number, pack(data) if pack else data
