"""Liftbridge, streams over NATS: its envelopes, the messages and acks in them, and its commit log.

`scan` gives envelopes; `messages`, `acks` and `internal` what is in them, `headers` the headers of messages; `entries`
the records of replication and of log files. liftbridge/scan.pyx draws the wire. The rest:

    encode.py       encode_envelope, encode_message, encode_ack, encode_internal, encode_replication_response,
                    encode_entry; for columns encode_messages, encode_acks, encode_entries
    log.py          CommitLog, open_log, gaps: a partition directory
    publisher.py    Publisher, subscriber.py: Subscriber: both sides, without sockets
    client.py       Client: with them, over nats-py
"""
from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from wirescan.catalog import Format
from wirescan.core.fault import Fault
from wirescan.core.loop import spans
from wirescan.errors import apply, check_mode, limited
from wirescan.liftbridge.encode import (
    encode_ack, encode_acks, encode_entries, encode_entry, encode_envelope, encode_internal, encode_message,
    encode_messages, encode_replication_response)
from wirescan.liftbridge.kind import AckError, AckPolicy, Kind
from wirescan.liftbridge.log import FILES, IGNORE, cuts
from wirescan.liftbridge.narrow import narrow
from wirescan.liftbridge.payloads import places
from wirescan.liftbridge.scan import (
    ACK, ENTRY, ENVELOPE, HEADER, INTERNAL, MESSAGE, open_entries, open_entry_headers, open_headers, open_payloads,
    scan_entries, scan_entry_sets, scan_values)
from wirescan.limits import Limits
from wirescan.source import open
from wirescan.table import FrameTable, Stop, empty, join

__all__ = [
    "ACK", "AckError", "AckPolicy", "ENTRY", "ENVELOPE", "FORMATS", "HEADER", "INTERNAL", "Kind", "MESSAGE", "acks",
    "encode_ack", "encode_acks", "encode_entries", "encode_entry", "encode_envelope", "encode_internal",
    "encode_message", "encode_messages", "encode_replication_response", "entries", "headers", "internal", "messages",
    "scan"]

KINDS = {kind.value: kind.name for kind in Kind}
RESPONSE_HEADER = 16        # bytes of a ReplicationResponse before its records


def scan(source: Any, *, bare: Kind | None = None, errors: str = "strict", check: bool = True,
         limits: Limits = Limits()) -> FrameTable:
    """The envelopes in payloads of NATS messages, as a table of dtype ENVELOPE (32 bytes a row): liftbridge.envelopes.

    source: a table of nats.messages, whose row is `parent`; or the payloads: an Arrow array of binary values, chunked
    or not, a list of bytes-like objects, one such object, or a pair (data, offsets) of one and n + 1 integers. Then row
    i is value i, a null an empty one.
    `kind` is the message type, see `Kind`: PLAIN where there is no envelope, as Liftbridge takes any NATS message, LIFT
    where there is the cookie of its first releases instead. crc: as on the wire, 0 without. check: verify CRC-32C.
    bare: the values have no envelope and are Protocol Buffers messages of this kind, PUBLISH or ACK, as gRPC has them.

    A server takes a payload with a bad envelope for a plain one; here it is a row with its fault: TRUNCATED, shorter
    than its header; BAD_VERSION; BAD_HEADER, a header of less than 8 bytes, or not of 12 with a checksum; BAD_KIND;
    BAD_CHECKSUM. Unknown flags and longer headers are good.
    Raises FrameError as `errors` says, and FrameError(LIMIT) beyond limits.rows; TypeError and ValueError for unfit
    arguments. Format: Liftbridge documentation, "Envelope Protocol".
    """
    check_mode(errors, limits)
    if bare not in (None, Kind.PUBLISH, Kind.ACK):
        raise ValueError(f"bare is Kind.PUBLISH or Kind.ACK, not {bare!r}")
    buffers, values, outer = places(source)
    rows, bad, fault = scan_values(buffers, values, check, -1 if bare is None else int(bare), limits)
    return apply(limited(FrameTable(buffers, rows, (), ENVELOPES, outer, checked=check), fault), errors, bad)


def _values(buffer: memoryview, values: np.ndarray, check: bool, limits: Limits) -> tuple[np.ndarray, int]:
    return scan_values((buffer,), values, check, -1, limits)[:2]


def messages(envelopes: FrameTable, *, errors: str = "strict", check: bool = True,
             limits: Limits = Limits()) -> FrameTable:
    """The messages in a table of liftbridge.envelopes, as a table of dtype MESSAGE (112 bytes a row):
    liftbridge.messages.

    They are those of the kinds PUBLISH, LIFT and PLAIN, which the column `kind` tells apart: of a plain one the whole
    payload is the value, as a server stores it; of these there are many in a capture, all that is no envelope. Column
    `parent` is the row in `envelopes`. offset: of what is published the one that is expected. timestamp: nanoseconds
    since 1970, 0 where there is none. Places: key, value, stream, subject, reply_subject, ack_inbox, correlation_id,
    null where there is no such field; strings are bytes that may not be UTF-8. header_count: rows that `headers` gives.
    `subject` is what a server fills in; that on which a message was published is the one in nats.messages.

    Unknown fields are stepped over, and so are known ones of another type, which a server refuses: to it the payload is
    a plain one then. Of repeated fields the last counts. Faults: TRUNCATED, BAD_VARINT, BAD_FIELD (a tag that cannot
    be), NESTED (groups more than 100 deep); those of the envelope. Raises as `scan`; `check` changes nothing.
    Format: liftbridge-api, api.proto, Message.
    """
    return _opened(envelopes, MESSAGES, Kind.PUBLISH, Kind.PUBLISH, errors, check, limits)


def acks(envelopes: FrameTable, *, errors: str = "strict", check: bool = True, limits: Limits = Limits()) -> FrameTable:
    """The acks in a table of liftbridge.envelopes, as a table of dtype ACK (96 bytes a row): liftbridge.acks.

    Column `parent` is the row in `envelopes`. reception_timestamp, commit_timestamp: nanoseconds since 1970, 0 where
    there is none. ack_policy and ack_error: see `AckPolicy` and `AckError`. Places: stream, partition_subject,
    msg_subject, ack_inbox, correlation_id. The rest is as for `messages`. Format: liftbridge-api, api.proto, Ack.
    """
    return _opened(envelopes, ACKS, Kind.ACK, Kind.ACK, errors, check, limits)


def internal(envelopes: FrameTable, *, errors: str = "strict", check: bool = True,
             limits: Limits = Limits()) -> FrameTable:
    """What servers say to each other in a table of liftbridge.envelopes, as a table of dtype INTERNAL (168 bytes a
    row): liftbridge.internal.

    Column `kind` tells which request or response a row is, `parent` its row in `envelopes`; of the columns those count
    that this one has, the others are 0, null, and -1 for `op`. Of a PropagatedRequest `op` is the operation,
    `operation` its message, whose fields are in the columns of their names; of a ReplicationResponse `entries` are the
    records, which the function `entries` reads. The rest is as for `messages`.
    Format: Liftbridge, server/protocol, internal.proto and envelope.go.
    """
    return _opened(envelopes, INTERNALS, Kind.REPLICATION_REQUEST, Kind.PARTITION_NOTIFICATION, errors, check, limits)


def entries(source: Any, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
            into: np.ndarray | None = None) -> FrameTable:
    """The records of commit-log segments, or of replication, as a table of dtype ENTRY (80 bytes a row):
    liftbridge.entries.

    source: anything that `wirescan.open` takes, of a directory its segments; or a table of liftbridge.envelopes: then
    those in its replication responses, and `parent` is the row there. timestamp: nanoseconds since 1970. Places: key,
    value. headers_at, header_count: where `headers` finds them. check: verify CRC-32C. into: a writable array of dtype
    ENTRY, for a source of one buffer.

    A segment may end inside a record, after a crash: that is the tail. Faults: BAD_LENGTH, a size that no record has;
    BAD_CHECKSUM; BAD_MAGIC; TRUNCATED, LEFTOVER and BAD_NULL, lengths that do not fit the record. Raises as `scan`, and
    OSError. Format: Liftbridge, server/commitlog, message.go and message_set.go.
    """
    check_mode(errors, limits)
    if isinstance(source, FrameTable):
        if into is not None:
            raise ValueError("into takes the rows of one buffer, not of responses in a table")
        return _replicated(source, errors, check, limits)
    buffers = open(source, files=FILES, ignore=IGNORE)
    if into is not None and len(buffers) != 1:
        raise ValueError(f"into takes the rows of one buffer, and the source has {len(buffers)}")
    tables = []
    for buffer in buffers:
        rows, bad, fault, offset = scan_entries(buffer, check, errors != "strict", limits, into)
        tables.append(apply(FrameTable((buffer,), rows, (Stop(fault, offset),), ENTRIES, checked=check), errors, bad))
    return join(tables) if tables else empty(ENTRIES)


def headers(messages: FrameTable, *, errors: str = "strict", check: bool = True,
            limits: Limits = Limits()) -> FrameTable:
    """The headers in a table of liftbridge.messages or liftbridge.entries, as a table of dtype HEADER (40 bytes a row):
    liftbridge.headers.

    Column `parent` is the row in `messages`. Places: key, value. Keys that come twice stay, in the order of the wire;
    the last one counts. The rest is as for `messages`.
    """
    check_mode(errors, limits)
    if isinstance(messages, FrameTable) and messages.dtype == ENTRY:
        rows = messages.rows
        have = (rows["header_count"] > 0) | messages.bad
        found = open_entry_headers(rows, messages.buffers, spans(rows, rows["headers_at"])[have],
                                   rows["header_count"][have].astype(np.int32), limits)
    else:
        _refuse_unless(messages, MESSAGE, "headers are those of a table of liftbridge.messages or liftbridge.entries")
        found = open_headers(messages.rows, messages.buffers, limits)
    rows, bad, fault = found
    return apply(limited(FrameTable(messages.buffers, rows, (), HEADERS, messages), fault), errors, bad)


def _opened(envelopes: FrameTable, format: Format, first: Kind, last: Kind, errors: str, check: bool,
            limits: Limits) -> FrameTable:
    check_mode(errors, limits)
    _refuse_unless(envelopes, ENVELOPE, f"{format.name} are in a table of liftbridge.envelopes")
    rows, bad, fault = open_payloads(envelopes.rows, envelopes.buffers, format.dtype, int(first), int(last), limits)
    table = FrameTable(envelopes.buffers, rows, (), format, envelopes, checked=check)
    return apply(limited(table, fault), errors, bad)


def _replicated(envelopes: FrameTable, errors: str, check: bool, limits: Limits) -> FrameTable:
    _refuse_unless(envelopes, ENVELOPE, "entries are in a table of liftbridge.envelopes")
    rows = envelopes.rows
    responses = rows["kind"] == Kind.REPLICATION_RESPONSE
    short = ~envelopes.bad & (rows["size"] < rows["body"].astype(np.int64) + RESPONSE_HEADER)
    places = spans(rows, rows["body"] + np.where(short | envelopes.bad, 0, RESPONSE_HEADER).astype(np.uint32))
    places["fault"][short] = Fault.TRUNCATED
    places = places[responses & ((places["size"] > 0) | (places["fault"] > 0))]
    rows, bad, fault = open_entries(rows, envelopes.buffers, places, check, limits)
    table = FrameTable(envelopes.buffers, rows, (), ENTRIES, envelopes, checked=check)
    return apply(limited(table, fault), errors, bad)


def _refuse_unless(table: Any, dtype: np.dtype, what: str) -> None:
    if not isinstance(table, FrameTable) or table.dtype != dtype:
        raise TypeError(f"{what}, not in {getattr(table, 'name', type(table).__name__)}")


ENVELOPES = Format(
    "liftbridge.envelopes", "payloads of NATS messages, as Liftbridge takes them: with its envelope, or plain",
    ENVELOPE, scan, within="nats.messages", kinds=KINDS, values=_values,
    children={"messages": messages, "acks": acks, "internal": internal, "entries": entries})
MESSAGES = Format(
    "liftbridge.messages", "the messages in them: published, and plain ones", MESSAGE, messages,
    within="liftbridge.envelopes", children={"headers": headers}, lists={"headers": "header_count"},
    nanoseconds=("timestamp",), kinds=KINDS)
ACKS = Format(
    "liftbridge.acks", "the acks in them", ACK, acks, within="liftbridge.envelopes",
    nanoseconds=("reception_timestamp", "commit_timestamp"))
INTERNALS = Format(
    "liftbridge.internal", "what servers say to each other in them", INTERNAL, internal, within="liftbridge.envelopes",
    kinds=KINDS)
HEADERS = Format(
    "liftbridge.headers", "the headers of the messages", HEADER, headers, within="liftbridge.messages")
ENTRIES = Format(
    "liftbridge.entries", "the records of commit-log segments", ENTRY, entries, children={"headers": headers},
    lists={"headers": "header_count"}, nanoseconds=("timestamp",), scan=scan_entries,
    spans=scan_entry_sets, cuts=cuts, narrow=narrow, files=FILES, ignore=IGNORE)
FORMATS = (ENVELOPES, MESSAGES, ACKS, INTERNALS, HEADERS, ENTRIES)

# What holds a conversation is imported by who asks for it.
LATE = {"CommitLog": "log", "open_log": "log", "gaps": "log", "Publisher": "publisher", "PublishError": "publisher",
        "Outcome": "publisher", "Receipt": "publisher", "Subscriber": "subscriber", "Client": "client"}


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATE[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *LATE]
