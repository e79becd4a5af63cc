"""One binary form for the records of every reader. Readers are compared by these bytes or a digest.

    record := offset i64, timestamp i64, key, value, headers i32 (a count), {key, value} per header
    key, value := length i32 (-1 is null), bytes
    All numbers are big-endian.

The timestamp is in milliseconds, -1 where the format has none (magic 0). Records of control batches
are included. A compressed message of magic 0 or 1 is replaced by the messages inside it. Peer.java
writes and reads the same form.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.support.places import copy_bytes


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def encode_field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def encode_records(records: Iterable[Record]) -> bytes:
    """Encode records in the form that this file's docstring describes."""
    parts = []
    for offset, timestamp, key, value, headers in records:
        parts.append(
            struct.pack(">qq", offset, timestamp) + encode_field(key) + encode_field(value)
        )
        parts.append(struct.pack(">i", len(headers)))
        parts += [encode_field(name) + encode_field(content) for name, content in headers]
    return b"".join(parts)


def digest(records: Iterable[Record]) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(encode_records(records)).hexdigest()


def parse(data: bytes) -> Iterator[Record]:
    """Decode the records that `encode_records` encoded."""
    at = 0

    def number(layout: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(layout, data, at)
        at += struct.calcsize(layout)
        return value

    def content() -> bytes | None:
        nonlocal at
        size = number(">i")
        if size < 0:
            return None
        at += size
        return data[at - size : at]

    while at < len(data):
        offset = number(">q")
        timestamp = number(">q")
        key = content()
        value = content()
        headers = tuple((content(), content()) for _ in range(number(">i")))
        yield Record(offset, timestamp, key, value, headers)


def read_with_wirescan(source) -> list[Record]:
    """Read every record of a path or bytes with wirescan: strict, with checksums."""
    from wirescan import kafka

    records = kafka.records(kafka.scan(source))
    headers = kafka.headers(records)
    header_lists: list[list] = [[] for _ in range(len(records))]
    for row, parent in enumerate(headers["parent"].tolist()):
        name = copy_bytes(headers.bytes(row, "key"))
        content = copy_bytes(headers.bytes(row, "value"))
        header_lists[parent].append((name, content))
    offsets = records["offset"].tolist()
    timestamps = records["timestamp"].tolist()
    return [
        Record(
            offsets[row],
            timestamps[row],
            copy_bytes(records.bytes(row, "key")),
            copy_bytes(records.bytes(row, "value")),
            tuple(header_lists[row]),
        )
        for row in range(len(records))
    ]
