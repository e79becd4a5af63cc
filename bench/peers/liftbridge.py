"""Other readers and writers of Liftbridge's bytes.

protobuf (upb) reads and writes Messages. A Python reader with `struct` reads commit logs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from crc32c import crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import api_implementation

FIELDS = {
    "offset": (1, "INT64"),
    "key": (2, "BYTES"),
    "value": (3, "BYTES"),
    "timestamp": (4, "INT64"),
    "stream": (5, "STRING"),
    "partition": (6, "INT32"),
    "subject": (7, "STRING"),
    "replySubject": (8, "STRING"),
    "ackInbox": (10, "STRING"),
    "correlationId": (11, "STRING"),
    "ackPolicy": (12, "INT32"),
}
ENVELOPE = 8  # bytes of an envelope without a checksum, and the position of a checksum
MAGIC = b"\xb9\x0e\x43\xb4"
CRC = 0x01  # the flag

# Offset, timestamp, leader epoch and size; then the message's checksum, magic and attributes.
_record = struct.Struct(">qqQIIbb").unpack_from
_size = struct.Struct(">i").unpack_from
_count = struct.Struct(">H").unpack_from
RECORD = 34  # bytes of these fields
COVERED = 32  # position of the first byte that the checksum covers


def load_message_class() -> Any:
    """Return the class of the Message of Liftbridge's api.proto.

    It has a separate descriptor pool, because other clients of Liftbridge register the same name.
    The enumeration ackPolicy is read as int32. Raises RuntimeError without upb.
    """
    if api_implementation.Type() != "upb":
        raise RuntimeError(f"protobuf runs on {api_implementation.Type()}, not upb")
    file = descriptor_pb2.FileDescriptorProto(
        name="message.proto", package="proto", syntax="proto3"
    )
    message, field = file.message_type.add(name="Message"), descriptor_pb2.FieldDescriptorProto
    for name, (number, kind) in FIELDS.items():
        message.field.add(name=name, number=number, type=f"TYPE_{kind}", label=field.LABEL_OPTIONAL)
    entry = message.nested_type.add(name="HeadersEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    message.field.add(
        name="headers",
        number=9,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_REPEATED,
        type_name=".proto.Message.HeadersEntry",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("proto.Message"))


Message = load_message_class()
parse = Message.FromString
Five = tuple[int, bytes, bytes, str, int]  # offset, key, value, correlation id, ack policy


def read_five_fields(messages: Iterable[bytes]) -> list[Five]:
    """Return five fields of each Message. The Messages have no envelopes."""
    return [
        (message.offset, message.key, message.value, message.correlationId, message.ackPolicy)
        for message in map(parse, messages)
    ]


def unwrap(envelopes: list[bytes]) -> Iterator[bytes]:
    """Yield the Messages in envelopes. Raises ValueError for envelopes of other kinds."""
    for envelope in envelopes:
        if envelope[:4] != MAGIC or envelope[4] or envelope[7]:
            raise ValueError("not an envelope around a Message")
        message = envelope[envelope[5] :]
        if envelope[6] & CRC and crc32c(message) != int.from_bytes(
            envelope[ENVELOPE : ENVELOPE + 4], "big"
        ):
            raise ValueError("a checksum is wrong")
        yield message


def wrap(rows: list[Five]) -> list[bytes]:
    """Return envelopes of the kind Publish without checksums."""
    header = MAGIC + bytes((0, ENVELOPE, 0, 0))
    return [
        header
        + Message(
            offset=offset, key=key, value=value, correlationId=identity, ackPolicy=policy
        ).SerializeToString()
        for offset, key, value, identity, policy in rows
    ]


def read_record_headers(log: bytes) -> list[tuple[int, ...]]:
    """Return the record headers of a log, and skip the messages.

    A record header is (offset, timestamp, leader epoch, size, checksum, magic, attributes).
    """
    at = 0
    end = len(log)
    headers = []
    while at < end:
        fields = _record(log, at)
        headers.append(fields)
        at += 28 + fields[3]
    return headers


def read_entries(
    log: bytes, *, check: bool
) -> list[tuple[int, int, int, bytes | None, bytes | None, dict[bytes, bytes]]]:
    """Return offset, timestamp, leader epoch, key, value and headers of commit-log entries.

    check: verify the checksums. Raises ValueError for a wrong checksum or an entry of wrong size.
    """
    at = 0
    end = len(log)
    rows = []
    while at < end:
        offset, timestamp, epoch, size, crc, magic, _ = _record(log, at)
        stop = at + 28 + size
        if magic != 1 or check and crc32c(log[at + COVERED : stop]) != crc:
            raise ValueError(f"a bad entry at {at}")
        key, at = _read_string(log, at + RECORD)
        value, at = _read_string(log, at)
        headers = {}
        (count,) = _count(log, at)
        at += 2
        for _ in range(count):
            (size,) = _count(log, at)
            name = log[at + 2 : at + 2 + size]
            headers[name], at = _read_string(log, at + 2 + size)
        if at != stop:
            raise ValueError(f"an entry ends at {at}, not at {stop}")
        rows.append((offset, timestamp, epoch, key, value, headers))
    return rows


def _read_string(log: bytes, at: int) -> tuple[bytes | None, int]:
    """Return a byte string with a length prefix, and its end. Null has the length -1."""
    (size,) = _size(log, at)
    at += 4
    return (None, at) if size < 0 else (log[at : at + size], at + size)
