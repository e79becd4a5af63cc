"""Encoders for Liftbridge: envelopes with messages, and records of commit logs.

Each kind is encoded from single values or from columns. scan.pyx shows the formats of envelopes and
records. MESSAGE, ACK and INTERNAL have the fields of the protobuf messages.

A protobuf number that is 0 is not written. A string that is None (in a column, null) is not written
either. An empty string is written, as a field without bytes. Liftbridge's own readers treat it as
absent; `liftbridge.messages` distinguishes the two. A negative number has ten bytes. One of them is
the offset -1, which expects no particular offset.

Sources: Liftbridge documentation, "Envelope Protocol"; liftbridge-api, api.proto; in the server,
server/protocol/envelope.go and internal.proto, and server/commitlog/message.go and message_set.go;
Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from crc32c import crc32c

from wirescan.core.arguments import (
    I32,
    I64,
    LONGEST,
    U64,
    Bounded,
    check_integer,
    convert_columns,
    list_pairs,
    to_bytes,
)
from wirescan.core.strings import ByteStrings
from wirescan.core.varint import encode_varint
from wirescan.liftbridge.constants import AckError, AckPolicy, Kind
from wirescan.liftbridge.writer import write_entries, write_messages

MAGIC = b"\xb9\x0e\x43\xb4"
ENVELOPE_HEADER_SIZE = 8
CHECKED_ENVELOPE_HEADER_SIZE = 12  # with a CRC-32C
CRC_FLAG = 0x01
RECORD_HEAD = 28  # bytes of a record before its message
MAX_HEADER_KEY = 0x7FFF  # bytes in the key of a record's header
MAX_HEADERS = 0xFFFF  # headers in a record
WIRE_BYTES = 2  # protobuf's wire type of byte strings

# The bounds of a number; None for a byte string.
STRING = None
FLAG = (0, 1)
POLICY = (0, max(AckPolicy))
ERROR = (0, max(AckError))

# The fields of protobuf messages: name -> (field number, bounds).
Fields = dict[str, tuple[int, tuple[int, int] | None]]
MESSAGE: Fields = {
    "offset": (1, I64),
    "key": (2, STRING),
    "value": (3, STRING),
    "timestamp": (4, I64),
    "stream": (5, STRING),
    "partition": (6, I32),
    "subject": (7, STRING),
    "reply_subject": (8, STRING),
    "headers": (9, STRING),
    "ack_inbox": (10, STRING),
    "correlation_id": (11, STRING),
    "ack_policy": (12, POLICY),
}
ACK: Fields = {
    "stream": (1, STRING),
    "partition_subject": (2, STRING),
    "msg_subject": (3, STRING),
    "offset": (4, I64),
    "ack_inbox": (5, STRING),
    "correlation_id": (6, STRING),
    "ack_policy": (7, POLICY),
    "reception_timestamp": (8, I64),
    "commit_timestamp": (9, I64),
    "ack_error": (10, ERROR),
}
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


def encode_envelope(
    payload: Any, kind: SupportsIndex = Kind.PUBLISH, *, crc: bool = False
) -> bytes:
    """Encode an envelope around a payload.

    payload: a bytes-like object, which is not validated. kind: a `Kind` from 0 to 14. crc: add the
    CRC-32C of the payload. Liftbridge's own programs write none, and the server verifies it.

    Raises TypeError for an argument of another type, and ValueError for an argument that the format
    cannot hold. All encoders of this module raise the same errors.
    """
    data = to_bytes(payload, "payload")
    head = _encode_envelope_header(kind, crc=crc)
    if crc:
        checksum: int = crc32c(data)
        head += checksum.to_bytes(4, "big")
    return head + data


def encode_message(
    value: Any,
    *,
    key: Any = None,
    offset: SupportsIndex | None = None,
    timestamp: SupportsIndex | None = None,
    stream: Any = None,
    partition: SupportsIndex | None = None,
    subject: Any = None,
    reply_subject: Any = None,
    headers: Any = None,
    ack_inbox: Any = None,
    correlation_id: Any = None,
    ack_policy: SupportsIndex = AckPolicy.LEADER,
    crc: bool = False,
    envelope: bool = True,
) -> bytes:
    """Encode a message to publish: an envelope of kind PUBLISH around a Message.

    value, key, stream, subject, reply_subject, ack_inbox, correlation_id: bytes-like, str or None.
    headers: a mapping, or (key, value) pairs in order, of the same types. Only a value may be None.
        Readers take the last value of a repeated key.
    offset: the offset that the message is expected to get, if the stream has optimistic concurrency
        control; -1: any offset, as go-liftbridge sends.
    timestamp: nanoseconds since 1970.
    ack_policy: an `AckPolicy`.
    crc: as in `encode_envelope`.
    envelope: if False, return the bare Message, as gRPC carries it.

    A server that stores the message ignores timestamp, stream, partition and the subjects. It fills
    them in when it delivers the message.
    """
    payload = _encode_protobuf(MESSAGE, locals())
    return _add_envelope(payload, Kind.PUBLISH, crc=crc, envelope=envelope)


def encode_ack(
    *,
    stream: Any = None,
    partition_subject: Any = None,
    msg_subject: Any = None,
    offset: SupportsIndex | None = None,
    ack_inbox: Any = None,
    correlation_id: Any = None,
    ack_policy: SupportsIndex = AckPolicy.LEADER,
    reception_timestamp: SupportsIndex | None = None,
    commit_timestamp: SupportsIndex | None = None,
    ack_error: SupportsIndex = AckError.OK,
    crc: bool = False,
    envelope: bool = True,
) -> bytes:
    """Encode an ack as a server sends it: an envelope of kind ACK around an Ack.

    stream, partition_subject, msg_subject, ack_inbox, correlation_id: bytes-like, str or None.
    reception_timestamp, commit_timestamp: nanoseconds since 1970. ack_policy: an `AckPolicy`.
    ack_error: an `AckError`. envelope: if False, return the bare Ack, as gRPC carries it.
    """
    payload = _encode_protobuf(ACK, locals())
    return _add_envelope(payload, Kind.ACK, crc=crc, envelope=envelope)


def encode_internal(kind: SupportsIndex, *, crc: bool = False, **fields: Any) -> bytes:
    """Encode a message between servers, in its envelope.

    The fields have the names of the columns of liftbridge.internal:

        REPLICATION_REQUEST             id, offset, leader_epoch
        RAFT_JOIN_REQUEST               id, host                    (RAFT_JOIN_RESPONSE: error)
        LEADER_EPOCH_OFFSET_REQUEST     leader_epoch                (.._RESPONSE: end_offset)
        SERVER_INFO_REQUEST             id                          (.._RESPONSE: id, host, port)
        PARTITION_STATUS_REQUEST        stream, partition           (.._RESPONSE: exists, is_leader)
        PARTITION_NOTIFICATION          stream, partition

    Raises ValueError for another kind, and TypeError for a field that the kind does not have.
    """
    number = check_integer(kind, "kind", (0, 255))
    name = Kind(number).name if number in {*Kind} else str(number)
    if number not in INTERNAL:
        raise ValueError(
            f"encode_internal cannot write kind {name}: expected one of "
            f"{', '.join(Kind(item).name for item in INTERNAL)}"
        )
    if unknown := fields.keys() - INTERNAL[number].keys():
        raise TypeError(
            f"{name} has no {', '.join(sorted(unknown))}, only {', '.join(INTERNAL[number])}"
        )
    payload = _encode_protobuf(INTERNAL[number], fields)
    return _add_envelope(payload, number, crc=crc, envelope=True)


def encode_replication_response(
    leader_epoch: SupportsIndex,
    high_watermark: SupportsIndex,
    entries: Any = b"",
    *,
    crc: bool = False,
) -> bytes:
    """Encode what a leader sends to a follower, in its envelope.

    leader_epoch: u64. high_watermark: i64. entries: bytes-like, records as `encode_entry` writes
    them; no records means that the follower is up to date.
    """
    epoch = check_integer(leader_epoch, "leader_epoch", U64).to_bytes(8, "big")
    watermark = check_integer(high_watermark, "high_watermark", I64).to_bytes(8, "big", signed=True)
    payload = epoch + watermark + to_bytes(entries, "entries")
    return encode_envelope(payload, Kind.REPLICATION_RESPONSE, crc=crc)


def encode_entry(
    offset: SupportsIndex,
    timestamp: SupportsIndex,
    leader_epoch: SupportsIndex,
    key: Any,
    value: Any,
    headers: Any = None,
) -> bytes:
    """Encode a record of a commit log.

    offset: 0 or more. timestamp: nanoseconds since 1970. leader_epoch: u64. key, value: bytes-like,
    str or None, which is null. headers: as in `encode_message`, at most 65,535, with keys of at
    most 32,767 bytes.
    """
    head = (
        check_integer(offset, "offset", (0, I64[1])).to_bytes(8, "big")
        + check_integer(timestamp, "timestamp", I64).to_bytes(8, "big", signed=True)
        + check_integer(leader_epoch, "leader_epoch", U64).to_bytes(8, "big")
    )
    pairs = list_pairs(() if headers is None else headers)
    count = check_integer(len(pairs), "the number of headers", (0, MAX_HEADERS))
    parts = [b"\1\0", *_to_nullable_bytes(key, "key"), *_to_nullable_bytes(value, "value")]
    parts.append(count.to_bytes(2, "big"))
    for name, header in pairs:
        if len(name) > MAX_HEADER_KEY:
            raise ValueError(f"a header's key has {len(name)} bytes: the limit is {MAX_HEADER_KEY}")
        parts += (
            len(name).to_bytes(2, "big"),
            name,
            *_to_nullable_bytes(header, f"header {name!r:.80}"),
        )
    size = sum(map(len, parts)) + 4
    if size > LONGEST - RECORD_HEAD:
        raise ValueError(f"the record has {size + RECORD_HEAD} bytes: the limit is {LONGEST}")
    message = b"".join(parts)
    checksum: int = crc32c(message)
    return head + size.to_bytes(4, "big") + checksum.to_bytes(4, "big") + message


def encode_messages(
    values: Any,
    *,
    keys: Any = None,
    offset: Any = None,
    timestamp: Any = None,
    stream: Any = None,
    partition: Any = None,
    subject: Any = None,
    reply_subject: Any = None,
    headers: Any = None,
    ack_inbox: Any = None,
    correlation_id: Any = None,
    ack_policy: Any = AckPolicy.LEADER,
    crc: bool = False,
    envelope: bool = True,
) -> tuple[bytes, np.ndarray]:
    """Encode messages to publish from columns: return (data, offsets).

    Message i is data[offsets[i]:offsets[i + 1]], as `encode_message` writes it. There are n + 1
    offsets of int64. `liftbridge.scan` takes the pair as it is, and `nats.encode_pubs` takes it as
    payloads=(offsets, data).

    Byte strings: a column, or one bytes-like object, str or None for all rows. A null is not
        written. A column is a place of a table as (table, "value"); an Arrow array or chunked array
        of binary or string, or their large and view types; a numpy array of dtype S or of objects;
        (offsets, data); or a list of bytes and None. See `wirescan.core.strings.ByteStrings`.
    Numbers: an array of integers, or of Arrow integers, whose nulls are not written; or one integer
        or None for all rows. Timestamps may also be datetime64 or Arrow timestamps. The arguments
        have the names of the columns of liftbridge.messages.
    headers: a mapping or list of (key, column), where the value may be one for all rows, and a pair
        with a null value is not written; or (counts, keys, values): an array of integers with the
        number of headers of each row, and all keys and values in columns; or an Arrow array of map
        or list<struct<key, value>>. In the last two forms, the key of a null value is written.

    Raises TypeError for an argument of another type. Raises ValueError for columns of unequal
    length, if no column says how many rows there are, for offsets or views that point outside their
    data, for a number out of its bounds, and for a header without a key. Raises ValueError with the
    row's number for a message of 2 GiB or more.
    """
    arguments = {"value": values, "key": keys, **locals()}
    return _encode_columns(MESSAGE, arguments, headers, Kind.PUBLISH, crc=crc, envelope=envelope)


def encode_acks(
    *,
    stream: Any = None,
    partition_subject: Any = None,
    msg_subject: Any = None,
    offset: Any = None,
    ack_inbox: Any = None,
    correlation_id: Any = None,
    ack_policy: Any = AckPolicy.LEADER,
    reception_timestamp: Any = None,
    commit_timestamp: Any = None,
    ack_error: Any = AckError.OK,
    crc: bool = False,
    envelope: bool = True,
) -> tuple[bytes, np.ndarray]:
    """Encode acks from columns: return (data, offsets).

    The acks are as `encode_ack` writes them. The columns are as `encode_messages` takes them.
    """
    return _encode_columns(ACK, locals(), None, Kind.ACK, crc=crc, envelope=envelope)


def encode_entries(
    offsets: Any, timestamps: Any, leader_epochs: Any, keys: Any, values: Any, headers: Any = None
) -> bytes:
    """Encode records of a commit log from columns.

    The result is a segment, or the records of a replication response. The records are as
    `encode_entry` writes them, without gaps. offsets: an array of integers; or
    the offset of the first record, and the others follow without gaps. The other arguments are
    columns as `encode_messages` takes them. A null key or value is written as null.
    """
    columns, pairs = convert_columns(
        {
            "offset": Bounded(offsets, (0, I64[1])),
            "timestamp": Bounded(timestamps, I64),
            "leader_epoch": Bounded(leader_epochs, U64),
            "key": keys,
            "value": values,
        },
        headers,
    )
    count = len(columns["value"])
    first = columns["offset"]
    if not first.ndim:
        check_integer(int(first) + max(count - 1, 0), "the last offset", (0, I64[1]))
        columns["offset"] = first + np.arange(count)
    return write_entries(
        np.atleast_1d(columns["offset"]),
        np.atleast_1d(columns["timestamp"]),
        np.atleast_1d(columns["leader_epoch"]),
        columns["key"],
        columns["value"],
        pairs,
    )


def _encode_envelope_header(kind: SupportsIndex, *, crc: bool) -> bytes:
    number = check_integer(kind, "kind", (0, Kind.PARTITION_NOTIFICATION.value))
    size = CHECKED_ENVELOPE_HEADER_SIZE if crc else ENVELOPE_HEADER_SIZE
    return MAGIC + bytes((0, size, CRC_FLAG if crc else 0, number))


def _add_envelope(payload: bytes, kind: int, *, crc: bool, envelope: bool) -> bytes:
    _check_crc(crc=crc, envelope=envelope)
    return encode_envelope(payload, kind, crc=crc) if envelope else payload


def _check_crc(*, crc: bool, envelope: bool) -> None:
    if crc and not envelope:
        raise ValueError("crc=True needs envelope=True: the CRC is in the envelope's header")


def _encode_protobuf(fields: Fields, values: dict[str, Any]) -> bytes:
    parts: list[bytes] = []
    for name, (number, bounds) in fields.items():
        value = values.get(name)
        if value is None:
            continue
        if name == "headers":
            parts += _encode_map_entries(number, value)
        elif bounds is STRING:
            parts += _encode_bytes_field(number, to_bytes(value, name))
        elif value := check_integer(value, name, bounds):
            parts.append(encode_varint(number << 3) + encode_varint(value % (1 << 64)))
    if sum(map(len, parts)) > LONGEST - CHECKED_ENVELOPE_HEADER_SIZE:
        raise ValueError("a message must have less than 2 GiB")
    return b"".join(parts)


def _encode_map_entries(number: int, headers: Any) -> list[bytes]:
    parts: list[bytes] = []
    for key, value in list_pairs(headers):
        entry = [*_encode_bytes_field(1, key)]
        if value is not None:
            entry += _encode_bytes_field(2, to_bytes(value, f"header {key!r:.80}"))
        parts += _encode_bytes_field(number, b"".join(entry))
    return parts


def _encode_bytes_field(number: int, data: bytes) -> tuple[bytes, bytes]:
    return encode_varint(number << 3 | WIRE_BYTES) + encode_varint(len(data)), data


def _to_nullable_bytes(value: Any, name: str) -> tuple[bytes, bytes]:
    if value is None:
        return b"\xff\xff\xff\xff", b""
    data = to_bytes(value, name)
    return len(data).to_bytes(4, "big"), data


def _encode_columns(
    fields: Fields,
    arguments: dict[str, Any],
    headers: Any,
    kind: int,
    *,
    crc: bool,
    envelope: bool,
) -> tuple[bytes, np.ndarray]:
    _check_crc(crc=crc, envelope=envelope)
    columns, pairs = convert_columns(
        {
            name: arguments[name] if bounds is STRING else Bounded(arguments[name], bounds)
            for name, (_, bounds) in fields.items()
            if name != "headers"
        },
        headers,
    )
    columns["headers"] = pairs
    count = next(len(column) for column in columns.values() if isinstance(column, ByteStrings))
    # A column without any value is not passed on, so it costs nothing for each row.
    written = [
        (number, np.atleast_1d(column) if bounds else column)
        for name, (number, bounds) in fields.items()
        if (column := columns[name]) is not None
        and (column.any() if bounds else name == "headers" or column.nulls < count)
    ]
    head = _encode_envelope_header(kind, crc=crc) if envelope else b""
    return write_messages(written, count, head, bool(crc))
