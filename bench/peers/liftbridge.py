"""Others that read and write Liftbridge's bytes: protobuf (upb) its Message, and `struct` its commit log."""
from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from crc32c import crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import api_implementation

FIELDS = {"offset": (1, "INT64"), "key": (2, "BYTES"), "value": (3, "BYTES"), "timestamp": (4, "INT64"),
          "stream": (5, "STRING"), "partition": (6, "INT32"), "subject": (7, "STRING"), "replySubject": (8, "STRING"),
          "ackInbox": (10, "STRING"), "correlationId": (11, "STRING"), "ackPolicy": (12, "INT32")}
ENVELOPE = 8                # bytes of an envelope without a checksum, and where that lies in one with it
MAGIC = b"\xb9\x0e\x43\xb4"
CRC = 0x01                  # the flag

_record = struct.Struct(">qqQIIbb").unpack_from     # of the message: its checksum, magic and attributes
_one, _count = struct.Struct(">i").unpack_from, struct.Struct(">H").unpack_from
RECORD, COVERED = 34, 32    # bytes of that, and where begins what the checksum is of


def message_class() -> Any:
    """The Message of Liftbridge's api.proto, in a pool of its own: other clients of Liftbridge bring their own one.

    The enumeration ackPolicy is read as the int32 that it is on the wire. Raises RuntimeError without upb.
    """
    if api_implementation.Type() != "upb":
        raise RuntimeError(f"protobuf runs on {api_implementation.Type()}, not upb")
    file = descriptor_pb2.FileDescriptorProto(name="message.proto", package="proto", syntax="proto3")
    message, field = file.message_type.add(name="Message"), descriptor_pb2.FieldDescriptorProto
    for name, (number, kind) in FIELDS.items():
        message.field.add(name=name, number=number, type=f"TYPE_{kind}", label=field.LABEL_OPTIONAL)
    entry = message.nested_type.add(name="HeadersEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    message.field.add(name="headers", number=9, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED,
                      type_name=".proto.Message.HeadersEntry")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("proto.Message"))


Message = message_class()
parse = Message.FromString
Five = tuple[int, bytes, bytes, str, int]       # offset, key, value, correlation id, ack policy


def five_fields(messages: Iterable[bytes]) -> list[Five]:
    """Five fields of Messages without their envelopes."""
    return [(message.offset, message.key, message.value, message.correlationId, message.ackPolicy)
            for message in map(parse, messages)]


def opened(envelopes: list[bytes]) -> Iterator[bytes]:
    """The Messages in envelopes. Raises ValueError for what is not an envelope of the kind Publish."""
    for envelope in envelopes:
        if envelope[:4] != MAGIC or envelope[4] or envelope[7]:
            raise ValueError("not an envelope around a Message")
        message = envelope[envelope[5]:]
        if envelope[6] & CRC and crc32c(message) != int.from_bytes(envelope[ENVELOPE:ENVELOPE + 4], "big"):
            raise ValueError("a checksum is wrong")
        yield message


def enveloped(rows: list[Five]) -> list[bytes]:
    """Envelopes of the kind Publish, without checksums."""
    header = MAGIC + bytes((0, ENVELOPE, 0, 0))
    return [header + Message(offset=offset, key=key, value=value, correlationId=identity,
                             ackPolicy=policy).SerializeToString() for offset, key, value, identity, policy in rows]


def record_headers(log: bytes) -> list[tuple[int, ...]]:
    """Offset, timestamp, leader epoch, size, checksum, magic and attributes; the messages are stepped over."""
    at, end, found = 0, len(log), []
    while at < end:
        fields = _record(log, at)
        found.append(fields)
        at += 28 + fields[3]
    return found


def entries(log: bytes, check: bool) -> list[tuple[int, int, int, bytes | None, bytes | None, dict[bytes, bytes]]]:
    """Offset, timestamp, leader epoch, key, value and headers of commit-log entries.

    check: verify the checksums. Raises ValueError for a wrong one, and for an entry that its parts do not fill.
    """
    at, end, found = 0, len(log), []
    while at < end:
        offset, timestamp, epoch, size, crc, magic, _ = _record(log, at)
        stop = at + 28 + size
        if magic != 1 or check and crc32c(log[at + COVERED:stop]) != crc:
            raise ValueError(f"a bad entry at {at}")
        key, at = _string(log, at + RECORD)
        value, at = _string(log, at)
        headers, (count,) = {}, _count(log, at)
        at += 2
        for _ in range(count):
            size, = _count(log, at)
            name = log[at + 2:at + 2 + size]
            headers[name], at = _string(log, at + 2 + size)
        if at != stop:
            raise ValueError(f"an entry ends at {at}, not at {stop}")
        found.append((offset, timestamp, epoch, key, value, headers))
    return found


def _string(log: bytes, at: int) -> tuple[bytes | None, int]:
    """A byte string behind its length, and where it ends; null has the length -1."""
    size, = _one(log, at)
    at += 4
    return (None, at) if size < 0 else (log[at:at + size], at + size)
