"""Write Liftbridge bytes: envelopes and what is in them, and records of commit logs, one by one or out of columns.

    envelope    B9 0E 43 B4 | version u8 0 | header size u8 8 or 12 | flags u8 | kind u8 | [CRC-32C u32] | payload
    Publish     Message: offset 1 | key 2 | value 3 | timestamp 4 | stream 5 | partition 6 | subject 7 | reply subject 8
                | headers 9 | ack inbox 10 | correlation id 11 | ack policy 12         (protobuf, by field number)
    Ack         stream 1 | partition subject 2 | message subject 3 | offset 4 | ack inbox 5 | correlation id 6
                | ack policy 7 | reception timestamp 8 | commit timestamp 9 | error 10 (protobuf)
    ReplicationResponse     leader epoch u64 | high watermark i64 | records
    record      offset i64 | timestamp i64 | leader epoch u64 | size i32 | CRC-32C u32 | magic i8 1 | attributes i8 0
                | key | value | headers u16 | (name size u16 | name | value)*
                where a key or a value is its size i32, -1 for null, and its bytes

Numbers outside protobuf are big-endian. The CRC covers what follows it. The formats' sources: Liftbridge documentation,
"Envelope Protocol"; liftbridge-api, api.proto; of the server server/protocol/envelope.go and internal.proto, and
server/commitlog/message.go and message_set.go; Protocol Buffers, "Encoding".

In protobuf a number that is 0 is not written, nor is a string that is None (in a column, null). One that is empty is
written, as a field of no bytes: Liftbridge's own readers take it as if it were not there, and `liftbridge.messages`
tells the two apart. Negative numbers have ten bytes, among them the offset -1, which asks for no certain one.
"""
from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from wirescan.core.checksum import crc32c
from wirescan.core.columns import I32, I64, LONGEST, U64, Bounded, columns_of, integer, octets, pairs_of
from wirescan.core.strings import ByteStrings
from wirescan.liftbridge.kind import AckError, AckPolicy, Kind
from wirescan.liftbridge.write import write_entries, write_messages

__all__ = ["encode_ack", "encode_acks", "encode_entries", "encode_entry", "encode_envelope", "encode_internal",
           "encode_message", "encode_messages", "encode_replication_response"]

MAGIC = b"\xb9\x0e\x43\xb4"
CRC = 0x01                              # the flag
STRING, FLAG, POLICY, ERROR = None, (0, 1), (0, max(AckPolicy)), (0, max(AckError))
# The fields of protobuf messages, by their names here: the number, and for numbers their bounds.
Fields = dict[str, tuple[int, tuple[int, int] | None]]
MESSAGE: Fields = {
    "offset": (1, I64), "key": (2, STRING), "value": (3, STRING), "timestamp": (4, I64), "stream": (5, STRING),
    "partition": (6, I32), "subject": (7, STRING), "reply_subject": (8, STRING), "headers": (9, STRING),
    "ack_inbox": (10, STRING), "correlation_id": (11, STRING), "ack_policy": (12, POLICY)}
ACK: Fields = {
    "stream": (1, STRING), "partition_subject": (2, STRING), "msg_subject": (3, STRING), "offset": (4, I64),
    "ack_inbox": (5, STRING), "correlation_id": (6, STRING), "ack_policy": (7, POLICY), "reception_timestamp": (8, I64),
    "commit_timestamp": (9, I64), "ack_error": (10, ERROR)}
INTERNAL: dict[int, Fields] = {
    Kind.REPLICATION_REQUEST: {"id": (1, STRING), "offset": (2, I64), "leader_epoch": (3, U64)},
    Kind.RAFT_JOIN_REQUEST: {"id": (1, STRING), "host": (2, STRING)},
    Kind.RAFT_JOIN_RESPONSE: {"error": (1, STRING)},
    Kind.LEADER_EPOCH_OFFSET_REQUEST: {"leader_epoch": (1, U64)},
    Kind.LEADER_EPOCH_OFFSET_RESPONSE: {"end_offset": (1, I64)},
    Kind.SERVER_INFO_REQUEST: {"id": (1, STRING)},
    Kind.SERVER_INFO_RESPONSE: {"id": (1, STRING), "host": (2, STRING), "port": (3, I32)},
    Kind.PARTITION_STATUS_REQUEST: {"stream": (1, STRING), "partition": (2, I32)},
    Kind.PARTITION_STATUS_RESPONSE: {"exists": (1, FLAG), "is_leader": (2, FLAG)},
    Kind.PARTITION_NOTIFICATION: {"stream": (1, STRING), "partition": (2, I32)},
}


def encode_envelope(payload: Any, kind: SupportsIndex = Kind.PUBLISH, *, crc: bool = False) -> bytes:
    """An envelope around a payload, a bytes-like object, which is not looked at. kind: a `Kind` from 0 to 14.
    crc: with the CRC-32C of the payload; Liftbridge's own programs write none, and the server verifies it.

    Raises TypeError for an argument of another type, ValueError for one that the format cannot hold; so do all others
    here.
    """
    payload = octets(payload, "payload")
    return _head(kind, crc) + (crc32c(payload).to_bytes(4, "big") if crc else b"") + payload


def encode_message(
    value: Any, *, key: Any = None, offset: SupportsIndex | None = None, timestamp: SupportsIndex | None = None,
    stream: Any = None, partition: SupportsIndex | None = None, subject: Any = None, reply_subject: Any = None,
    headers: Any = None, ack_inbox: Any = None, correlation_id: Any = None,
    ack_policy: SupportsIndex = AckPolicy.LEADER, crc: bool = False, envelope: bool = True,
) -> bytes:
    """A message to publish: an envelope of kind PUBLISH around a Message.

    value, key, stream, subject, reply_subject, ack_inbox, correlation_id: bytes-like, str or None. headers: a mapping,
    or (key, value) in order, of the same, with None only as a value; readers take the last one of a key.
    offset: that the message is expected to get, where the stream has optimistic concurrency control; -1: any, as
    go-liftbridge sends. ack_policy: an `AckPolicy`. A server that takes the message ignores timestamp (nanoseconds
    since 1970), stream, partition and subjects, and fills them in where it delivers it.
    envelope: if not, the bare Message, as gRPC carries it.
    """
    return _enveloped(_protobuf(MESSAGE, locals()), Kind.PUBLISH, crc, envelope)


def encode_ack(
    *, stream: Any = None, partition_subject: Any = None, msg_subject: Any = None, offset: SupportsIndex | None = None,
    ack_inbox: Any = None, correlation_id: Any = None, ack_policy: SupportsIndex = AckPolicy.LEADER,
    reception_timestamp: SupportsIndex | None = None, commit_timestamp: SupportsIndex | None = None,
    ack_error: SupportsIndex = AckError.OK, crc: bool = False, envelope: bool = True,
) -> bytes:
    """An ack, as a server sends it: an envelope of kind ACK around an Ack. Strings are bytes-like, str or None,
    timestamps nanoseconds since 1970; ack_error: an `AckError`. envelope: if not, the bare Ack, as gRPC carries it."""
    return _enveloped(_protobuf(ACK, locals()), Kind.ACK, crc, envelope)


def encode_internal(kind: SupportsIndex, *, crc: bool = False, **fields: Any) -> bytes:
    """A message between servers, in its envelope, with fields named as the columns of liftbridge.internal:

        REPLICATION_REQUEST             id, offset, leader_epoch
        RAFT_JOIN_REQUEST               id, host                    (RAFT_JOIN_RESPONSE: error)
        LEADER_EPOCH_OFFSET_REQUEST     leader_epoch                (.._RESPONSE: end_offset)
        SERVER_INFO_REQUEST             id                          (.._RESPONSE: id, host, port)
        PARTITION_STATUS_REQUEST        stream, partition           (.._RESPONSE: exists, is_leader)
        PARTITION_NOTIFICATION          stream, partition

    Raises ValueError for another kind, TypeError for a field that it does not have.
    """
    if (number := integer(kind, "kind", (0, 255))) not in INTERNAL:
        raise ValueError(f"no message of kind {Kind(number).name if number in {*Kind} else number} is written here")
    if unknown := fields.keys() - INTERNAL[number].keys():
        raise TypeError(f"{Kind(number).name} has no {', '.join(sorted(unknown))}, "
                        f"only {', '.join(INTERNAL[number])}")
    return _enveloped(_protobuf(INTERNAL[number], fields), number, crc, True)


def encode_replication_response(
    leader_epoch: SupportsIndex, high_watermark: SupportsIndex, entries: Any = b"", *, crc: bool = False
) -> bytes:
    """What a leader sends to a follower, in its envelope. entries: records as `encode_entries` writes them, bytes-like;
    none says that the follower has all."""
    numbers = (integer(leader_epoch, "leader_epoch", U64).to_bytes(8, "big")
               + integer(high_watermark, "high_watermark", I64).to_bytes(8, "big", signed=True))
    return encode_envelope(numbers + octets(entries, "entries"), Kind.REPLICATION_RESPONSE, crc=crc)


def encode_entry(
    offset: SupportsIndex, timestamp: SupportsIndex, leader_epoch: SupportsIndex, key: Any, value: Any,
    headers: Any = None,
) -> bytes:
    """A record of a commit log. offset: from 0 on. timestamp: nanoseconds since 1970. key, value: bytes-like, str or
    None, which is null. headers: as in `encode_message`, at most 65,535, with keys of at most 32,767 bytes."""
    head = (integer(offset, "offset", (0, I64[1])).to_bytes(8, "big")
            + integer(timestamp, "timestamp", I64).to_bytes(8, "big", signed=True)
            + integer(leader_epoch, "leader_epoch", U64).to_bytes(8, "big"))
    pairs = pairs_of(() if headers is None else headers)
    parts = [b"\1\0", *_nullable(key, "key"), *_nullable(value, "value"), b""]
    for name, given in pairs:
        if len(name) > 0x7FFF:
            raise ValueError(f"a header's key has {len(name)} bytes, and at most 32767 are possible")
        parts += len(name).to_bytes(2, "big"), name, *_nullable(given, f"header {name!r:.80}")
    parts[5] = integer(len(pairs), "the number of headers", (0, 0xFFFF)).to_bytes(2, "big")
    if (size := sum(map(len, parts)) + 4) > LONGEST - 28:
        raise ValueError(f"a record of {size + 28} bytes, and at most {LONGEST} are possible")
    message = b"".join(parts)
    return head + size.to_bytes(4, "big") + crc32c(message).to_bytes(4, "big") + message


def encode_messages(
    values: Any, *, keys: Any = None, offset: Any = None, timestamp: Any = None, stream: Any = None,
    partition: Any = None, subject: Any = None, reply_subject: Any = None, headers: Any = None, ack_inbox: Any = None,
    correlation_id: Any = None, ack_policy: Any = AckPolicy.LEADER, crc: bool = False, envelope: bool = True,
) -> tuple[bytes, np.ndarray]:
    """(data, offsets): messages to publish, as `encode_message` writes them, one behind another: message i is
    data[offsets[i]:offsets[i + 1]], with n + 1 offsets of int64. `liftbridge.scan` takes the pair as it is,
    `nats.encode_pubs` as payloads=(offsets, data).

    Byte strings: a column, or one bytes-like object, str or None for all rows. A column is a place of a table as
        (table, "value"); an Arrow array or chunked array of binary or string, or their large and view types; a numpy
        array of dtype S or of objects; (offsets, data); or a list of bytes and None. See
        `wirescan.core.strings.ByteStrings`. A null is not written.
    Numbers: an array of integers, or of Arrow integers, whose nulls are not written, or one integer or None for all;
        timestamps also as datetime64 or Arrow timestamps. They stand in the columns' names of liftbridge.messages.
    headers: a mapping or list of (key, column), where the value may be one for all rows, and a null leaves its pair
        out; or (counts, keys, values): an array of integers, how many each row has, and all keys and values in columns;
        or an Arrow array of map or list<struct<key, value>>. A null value in these is not written, but its key is.

    Raises TypeError for an argument of another type; ValueError for columns of unequal length, where no column says how
    many rows there are, for offsets or views that point outside their data, a number out of its bounds, a header
    without a key, and, by its number, for a message of 2 GiB or more.
    """
    given = {"value": values, "key": keys, **locals()}
    return _messages(MESSAGE, given, headers, Kind.PUBLISH, crc, envelope)


def encode_acks(
    *, stream: Any = None, partition_subject: Any = None, msg_subject: Any = None, offset: Any = None,
    ack_inbox: Any = None, correlation_id: Any = None, ack_policy: Any = AckPolicy.LEADER,
    reception_timestamp: Any = None, commit_timestamp: Any = None, ack_error: Any = AckError.OK, crc: bool = False,
    envelope: bool = True,
) -> tuple[bytes, np.ndarray]:
    """(data, offsets): acks, as `encode_ack` writes them, out of columns as `encode_messages` takes them."""
    return _messages(ACK, locals(), None, Kind.ACK, crc, envelope)


def encode_entries(
    offsets: Any, timestamps: Any, leader_epochs: Any, keys: Any, values: Any, headers: Any = None
) -> bytes:
    """Records of a commit log, one behind another, as `encode_entry` writes them: a segment, or the records of a
    replication response.

    offsets: an array of integers; or one, of the first record, which the others follow without gaps. All else is in
    columns as `encode_messages` takes them; a null key or value is null.
    """
    columns, pairs = columns_of({
        "offset": Bounded(offsets, (0, I64[1])), "timestamp": Bounded(timestamps, I64),
        "leader_epoch": Bounded(leader_epochs, U64), "key": keys, "value": values}, headers)
    count, first = len(columns["value"]), columns["offset"]
    if not first.ndim:
        integer(int(first) + max(count - 1, 0), "the last offset", (0, I64[1]))
        columns["offset"] = first + np.arange(count)
    numbers = [np.atleast_1d(columns[name]) for name in ("offset", "timestamp", "leader_epoch")]
    return write_entries(*numbers, columns["key"], columns["value"], pairs)


def _head(kind: SupportsIndex, crc: bool) -> bytes:
    number = integer(kind, "kind", (0, Kind.PARTITION_NOTIFICATION.value))
    return MAGIC + bytes((0, 12 if crc else 8, CRC if crc else 0, number))


def _enveloped(payload: bytes, kind: int, crc: bool, envelope: bool) -> bytes:
    if crc and not envelope:
        raise ValueError("a CRC is one of the envelope")
    return encode_envelope(payload, kind, crc=crc) if envelope else payload


def _protobuf(fields: Fields, given: dict[str, Any]) -> bytes:
    parts: list[bytes] = []
    for name, (number, bounds) in fields.items():
        if (one := given.get(name)) is None:
            continue
        if name == "headers":
            for key, value in pairs_of(one):
                entry = [*_field(1, key), *(() if value is None else _field(2, octets(value, f"header {key!r:.80}")))]
                parts += _field(number, b"".join(entry))
        elif bounds is STRING:
            parts += _field(number, octets(one, name))
        elif one := integer(one, name, bounds):
            parts.append(_varint(number << 3) + _varint(one % (1 << 64)))
    if sum(map(len, parts)) > LONGEST - 12:
        raise ValueError("a message has less than 2 GiB")
    return b"".join(parts)


def _field(number: int, data: bytes) -> tuple[bytes, bytes]:
    return _varint(number << 3 | 2) + _varint(len(data)), data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _nullable(given: Any, name: str) -> tuple[bytes, bytes]:
    if given is None:
        return b"\xff\xff\xff\xff", b""
    data = octets(given, name)
    return len(data).to_bytes(4, "big"), data


def _messages(
    fields: Fields, given: dict[str, Any], headers: Any, kind: int, crc: bool, envelope: bool
) -> tuple[bytes, np.ndarray]:
    if crc and not envelope:
        raise ValueError("a CRC is one of the envelope")
    columns, pairs = columns_of({name: given[name] if bounds is STRING else Bounded(given[name], bounds)
                                 for name, (_, bounds) in fields.items() if name != "headers"}, headers)
    columns["headers"] = pairs
    count = next(len(column) for column in columns.values() if isinstance(column, ByteStrings))
    # What no row has costs nothing.
    written = [(number, np.atleast_1d(column) if bounds else column) for name, (number, bounds) in fields.items()
               if (column := columns[name]) is not None and (column.any() if bounds else name == "headers" or
                                                             column.nulls < count)]
    return write_messages(written, count, _head(kind, crc) if envelope else b"", bool(crc))
