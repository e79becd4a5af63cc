"""One binary form for the records of every reader, so that readers are compared by bytes or by digest.

    record := offset i64, timestamp i64, key, value, headers i32 (a count), {key, value} per header
    key, value := length i32 (-1 is null), bytes                                        all big-endian

The timestamp is in milliseconds, -1 where the format has none (magic 0). Records of control batches are in,
like any other; a compressed message of magic 0 or 1 stands for the messages in it. Peer.java writes and reads
the same form.
"""
import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def canonical(records: Iterable[Record]) -> bytes:
    """The records, one after the other, in the form at the head of this file."""
    parts = []
    for offset, timestamp, key, value, headers in records:
        parts.append(struct.pack(">qq", offset, timestamp) + field(key) + field(value))
        parts.append(struct.pack(">i", len(headers)))
        parts += [field(name) + field(content) for name, content in headers]
    return b"".join(parts)


def digest(records: Iterable[Record]) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(records)).hexdigest()


def parse(data: bytes) -> Iterator[Record]:
    """The inverse of `canonical`."""
    at = 0

    def number(layout: str) -> int:
        nonlocal at
        found, = struct.unpack_from(layout, data, at)
        at += struct.calcsize(layout)
        return found

    def content() -> bytes | None:
        nonlocal at
        size = number(">i")
        if size < 0:
            return None
        at += size
        return data[at - size:at]

    while at < len(data):
        offset, timestamp, key, value = number(">q"), number(">q"), content(), content()
        headers = tuple((content(), content()) for _ in range(number(">i")))
        yield Record(offset, timestamp, key, value, headers)


def from_wirescan(source) -> list[Record]:
    """Every record of `source` (a path or bytes) as wirescan reads it, checksums checked, strictly."""
    from wirescan import kafka

    records = kafka.records(kafka.scan(source))
    headers = kafka.headers(records)
    of_record: list[list] = [[] for _ in range(len(records))]
    for row, parent in enumerate(headers["parent"].tolist()):
        of_record[parent].append((owned(headers.bytes(row, "key")), owned(headers.bytes(row, "value"))))
    offsets, timestamps = records["offset"].tolist(), records["timestamp"].tolist()
    return [Record(offsets[row], timestamps[row], owned(records.bytes(row, "key")),
                   owned(records.bytes(row, "value")), tuple(of_record[row])) for row in range(len(records))]


def owned(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)
