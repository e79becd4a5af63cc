"""The functions that read Liftbridge, and its `Format` declarations.

The package exports the functions. The registry reads FORMATS.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wirescan.core.arguments import LONGEST
from wirescan.core.fault import Fault
from wirescan.core.loop import spans
from wirescan.files.whole_source import scan_source
from wirescan.frames.columns import Column, PathColumn
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.exchange import ExchangeFormat
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.logs import LogColumns
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import FrameTable, require_rows
from wirescan.liftbridge import exchanges
from wirescan.liftbridge.constants import AckError, AckPolicy, Kind
from wirescan.liftbridge.evidence import weigh_entries
from wirescan.liftbridge.files import (
    BESIDE,
    FILES,
    IGNORE,
    SEGMENTS,
    find_boundaries,
    read_partition,
    read_stream,
)
from wirescan.liftbridge.log.index_writer import LiftbridgeIndexWriter
from wirescan.liftbridge.log.segment import LAYOUT
from wirescan.liftbridge.meanings import MEANINGS
from wirescan.liftbridge.payload_sources import open_payload_source
from wirescan.liftbridge.scan import (
    ACK,
    ENTRY,
    ENVELOPE,
    HEADER,
    INTERNAL,
    MESSAGE,
    open_entries,
    open_entry_headers,
    open_headers,
    open_payloads,
    scan_entries,
    scan_entry_sets,
    scan_value,
    scan_values,
)
from wirescan.seglog.segment_search import prune

RESPONSE_HEADER = 16  # bytes of a ReplicationResponse before its records
ANY_KIND = -1  # `bare` of scan_values: a value may have an envelope, which says its kind


def scan(
    source: Any,
    *,
    bare: Kind | None = None,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the envelopes in payloads of NATS messages, as a table of liftbridge.envelopes.

    The rows have dtype ENVELOPE (32 bytes a row).

    Arguments:
        source: a table of nats.messages; then `parent` is the row in it. Or the payloads: an Arrow
            array or chunked array of binary values, a list of bytes-like objects, one such object,
            or a pair (data, offsets) with n + 1 integers. Then row i is value i, and a null is an
            empty value.
        bare: PUBLISH or ACK, if the values have no envelope and are Protocol Buffers messages of
            this kind, as gRPC carries them.
        errors: "strict", "mark" or "skip". None, the default: the mode of the source if it is a
            table, otherwise "strict". So it is for each function here that takes a table.
        check: verify CRC-32C.
        limits: bounds of what is read.

    Columns: `kind` is the message type, a `Kind`. It is PLAIN for a payload without an envelope,
    because Liftbridge accepts any NATS message. It is LIFT for a payload with the cookie of
    Liftbridge's first releases. `crc` is the checksum of the envelope, 0 if it has none.

    A server treats a payload with a bad envelope as a plain payload. Here it is a row with a fault:
    TRUNCATED, shorter than its header; BAD_VERSION; BAD_HEADER, a header of less than 8 bytes, or a
    header with a checksum that has not 12 bytes; BAD_KIND; BAD_CHECKSUM. Unknown flags and longer
    headers are accepted.

    Raises FrameError according to `errors`, FrameError(LIMIT) beyond the limits on rows, and
    TypeError and ValueError for wrong arguments.

    Format: Liftbridge documentation, "Envelope Protocol".
    """
    errors = resolve_mode(errors, source, limits)
    kind = ANY_KIND
    if bare is not None:
        if bare not in (Kind.PUBLISH, Kind.ACK):
            raise ValueError(f"bare must be Kind.PUBLISH or Kind.ACK, not {bare!r}")
        kind = int(bare)
    if type(source) is bytes and len(source) <= LONGEST:
        # One small value, for which spans cost more than the scan.
        rows, bad = scan_value(source, check=check, bare=kind, limits=limits)
        table = FrameTable((memoryview(source),), rows, (), ENVELOPES, None, (), check, errors)
        return enforce_mode(table, errors, bad) if bad else table
    buffers, values, outer = open_payload_source(source)
    rows, bad, fault = scan_values(buffers, values, check=check, bare=kind, limits=limits)
    table = FrameTable(buffers, rows, (), ENVELOPES, outer, checked=check)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def _scan_values(
    buffer: memoryview, values: np.ndarray, *, check: bool, limits: Limits
) -> tuple[np.ndarray, int]:
    rows, bad, _ = scan_values((buffer,), values, check=check, bare=ANY_KIND, limits=limits)
    return rows, bad


def messages(
    envelopes: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the messages in envelopes, as a table of liftbridge.messages.

    The rows have dtype MESSAGE (112 bytes a row).

    envelopes: a table of liftbridge.envelopes. Its rows of the kinds PUBLISH, LIFT and PLAIN hold
    messages. In a plain one the whole payload is the value, as a server stores it. A capture has
    many of them: every payload without an envelope is plain. errors and limits: as in `scan`.
    check is accepted for consistency and ignored: messages have no checksum.

    Columns: `parent` is the row in `envelopes`. `kind` distinguishes the three kinds. `offset` of a
    published message is the offset that it expects. `timestamp` is nanoseconds since 1970, 0 if
    absent. `header_count` is the number of rows that `headers` returns. Places: key, value, stream,
    subject, reply_subject, ack_inbox, correlation_id. A place is null if the field is absent. Its
    bytes may not be UTF-8. A server fills in `subject`. The subject on which a message was
    published is that of nats.messages; exports have it as the column `nats_subject`, if it is
    named.

    Unknown fields are skipped. So are known fields of another wire type. A server refuses the
    latter, and treats the payload as a plain one. The last value of a repeated field counts.

    Faults: TRUNCATED, BAD_VARINT, BAD_FIELD (an impossible tag), NESTED (groups more than 100
    deep), and those of the envelope. A bad message of NATS, or an envelope that ends before it says
    its kind, is a bad row in `messages`, `acks`, `internal` and `entries`: it may have held any of
    them. Raises the same errors as `scan`.

    Format: liftbridge-api, api.proto, Message.
    """
    return _open_payloads(
        envelopes, MESSAGES, (Kind.PUBLISH, Kind.PUBLISH), errors=errors, check=check, limits=limits
    )


def acks(
    envelopes: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the acks in envelopes, as a table of liftbridge.acks.

    The rows have dtype ACK (96 bytes a row).

    envelopes: a table of liftbridge.envelopes.

    Columns: `parent` is the row in `envelopes`. `reception_timestamp` and `commit_timestamp` are
    nanoseconds since 1970, 0 if absent. `ack_policy` and `ack_error` are those of `AckPolicy` and
    `AckError`. Places: stream, partition_subject, msg_subject, ack_inbox, correlation_id. The
    arguments, faults and errors are as for `messages`.

    Format: liftbridge-api, api.proto, Ack.
    """
    return _open_payloads(
        envelopes, ACKS, (Kind.ACK, Kind.ACK), errors=errors, check=check, limits=limits
    )


def internal(
    envelopes: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the messages between servers in envelopes, as a table of liftbridge.internal.

    The rows have dtype INTERNAL (168 bytes a row).

    envelopes: a table of liftbridge.envelopes.

    Columns: `parent` is the row in `envelopes`. `kind` says which request or response a row is.
    Each kind uses some of the columns. The others are 0, null, and -1 for `op`. In a
    PropagatedRequest, `op` is the operation and `operation` its message; the fields of that message
    are in the columns of their names. In a ReplicationResponse, `entries` are the records, which
    the function `entries` reads. The arguments, faults and errors are as for `messages`.

    Format: Liftbridge, server/protocol, internal.proto and envelope.go.
    """
    kinds = (Kind.REPLICATION_REQUEST, Kind.PARTITION_NOTIFICATION)
    return _open_payloads(envelopes, INTERNALS, kinds, errors=errors, check=check, limits=limits)


def entries(
    source: Any,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
) -> FrameTable:
    """Return the records of segments or of replication, as a table of liftbridge.entries.

    The rows have dtype ENTRY (80 bytes a row).

    source: anything that `wirescan.open` takes; in a directory, its segments are read. Or a table
    of liftbridge.envelopes: then the records of its replication responses are read, and `parent` is
    the row in it. check: verify CRC-32C. into: a writable array of dtype ENTRY that receives the
    rows, for a source of one buffer. errors and limits: as in `scan`.

    Columns: `offset` is the log offset. `timestamp` is nanoseconds since 1970. `leader_epoch` is
    the epoch of the leader that wrote the record. `crc` is its checksum, CRC-32C. `magic` is 1.
    `attributes` are stored as they are. `headers_at` and `header_count` say where `headers` finds
    the headers. Places: key, value.

    After a crash, a segment may end inside a record. Those bytes are the tail. Faults: BAD_LENGTH,
    a size that no record has; BAD_CHECKSUM; BAD_MAGIC; TRUNCATED, LEFTOVER and BAD_NULL, lengths
    that do not fit the record. Raises the same errors as `scan`, and OSError.

    Format: Liftbridge, server/commitlog, message.go and message_set.go.
    """
    errors = resolve_mode(errors, source, limits)
    if isinstance(source, FrameTable):
        if into is not None:
            raise ValueError("into takes the rows of one buffer, not of responses in a table")
        return _open_replicated_records(source, errors=errors, check=check, limits=limits)
    return scan_source(source, ENTRIES, errors=errors, check=check, limits=limits, into=into)


def headers(
    messages: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the headers of messages or records, as a table of liftbridge.headers.

    The rows have dtype HEADER (40 bytes a row).

    messages: a table of liftbridge.messages or liftbridge.entries.

    Columns: `parent` is the row in `messages`. Places: key, value. Repeated keys are kept, in the
    order of the wire; the last one counts. The other arguments and the errors are as for
    `messages`.
    """
    errors = resolve_mode(errors, messages, limits)
    if isinstance(messages, FrameTable) and messages.dtype == ENTRY:
        records = messages.rows
        opened = (records["header_count"] > 0) | messages.bad
        rows, bad, fault = open_entry_headers(
            records,
            messages.buffers,
            spans(records, records["headers_at"])[opened],
            records["header_count"][opened].astype(np.int32),
            limits,
        )
    else:
        require_rows(
            messages,
            MESSAGE,
            "headers are read from a table of liftbridge.messages or liftbridge.entries",
        )
        rows, bad, fault = open_headers(messages.rows, messages.buffers, limits)
    table = FrameTable(messages.buffers, rows, (), HEADERS, messages)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def _open_payloads(
    envelopes: FrameTable,
    format: Format,
    kinds: tuple[Kind, Kind],
    *,
    errors: str | None,
    check: bool,
    limits: Limits,
) -> FrameTable:
    """Return the payloads of the kinds from the first to the last of `kinds`."""
    errors = resolve_mode(errors, envelopes, limits)
    require_rows(envelopes, ENVELOPE, f"{format.name} are in a table of liftbridge.envelopes")
    first, last = kinds
    rows, bad, fault = open_payloads(
        envelopes.rows, envelopes.buffers, format.dtype, int(first), int(last), limits
    )
    table = FrameTable(envelopes.buffers, rows, (), format, envelopes, checked=check)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def _open_replicated_records(
    envelopes: FrameTable, *, errors: str, check: bool, limits: Limits
) -> FrameTable:
    """Return the records of the replication responses in a table of envelopes."""
    require_rows(envelopes, ENVELOPE, "entries are in a table of liftbridge.envelopes")
    rows = envelopes.rows
    is_response = rows["kind"] == Kind.REPLICATION_RESPONSE
    is_response |= envelopes.bad & (rows["kind"] == Kind.PLAIN)  # they may have held one
    is_short = ~envelopes.bad & (rows["size"] < rows["body"].astype(np.int64) + RESPONSE_HEADER)
    header_sizes = np.where(is_short | envelopes.bad, 0, RESPONSE_HEADER).astype(np.uint32)
    record_sets = spans(rows, rows["body"] + header_sizes)
    record_sets["fault"][is_short] = Fault.TRUNCATED
    is_opened = is_response & ((record_sets["size"] > 0) | (record_sets["fault"] > 0))
    rows, bad, fault = open_entries(rows, envelopes.buffers, record_sets[is_opened], check, limits)
    table = FrameTable(envelopes.buffers, rows, (), ENTRIES, envelopes, checked=check)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


ENVELOPES = Format(
    "liftbridge.envelopes",
    "payloads of NATS messages, with the envelope of Liftbridge or without",
    ENVELOPE,
    scan,
    within="nats.messages",
    children={"messages": messages, "acks": acks, "internal": internal, "entries": entries},
    columns={"kind": Column(names=Kind)},
    parser=Parser(scan_values=_scan_values),
    display=Display(
        shown=("_start", "size", "kind", "version", "header_size", "flags"),
        counted_as="envelopes",
        summary=SummaryColumns(by_kind=True),
    ),
    meanings=MEANINGS["liftbridge.envelopes"],
)
EXCHANGES = ExchangeFormat(
    "liftbridge.exchanges",
    "published messages with their acks, from captures",
    exchanges.EXCHANGE_COLUMNS,
    partial(
        exchanges.pair_publications,
        open_envelopes=scan,
        open_messages=messages,
        open_acks=acks,
    ),
    crosses_connections=True,
    columns={
        "offset": Column(is_offset=True, unset=exchanges.NO_OFFSET),
        "ack_policy": Column(names=AckPolicy),
        "ack_error": Column(names=AckError),
    },
    meanings=MEANINGS["liftbridge.exchanges"],
    grouped_by="subject",
    find_errors=lambda table: table["ack_error"] != AckError.OK,
)
MESSAGES = Format(
    "liftbridge.messages",
    "messages in envelopes, and plain messages",
    MESSAGE,
    messages,
    within="liftbridge.envelopes",
    children={"headers": headers},
    columns={
        "kind": Column(names=Kind),
        "offset": Column(is_offset=True),
        "timestamp": Column(unit="ns"),
        "ack_policy": Column(names=AckPolicy),
        "headers": Column(count="header_count"),
        "nats_subject": Column(outer_name="subject"),
    },
    exchange=EXCHANGES,
    display=Display(
        shown=("_start", "kind", "stream", "subject", "offset", "key", "value", "headers"),
        grouped_by="key",
    ),
    meanings=MEANINGS["liftbridge.messages"],
)
ACKS = Format(
    "liftbridge.acks",
    "acks in envelopes",
    ACK,
    acks,
    within="liftbridge.envelopes",
    columns={
        "offset": Column(is_offset=True),
        "reception_timestamp": Column(unit="ns"),
        "commit_timestamp": Column(unit="ns"),
        "ack_policy": Column(names=AckPolicy),
        "ack_error": Column(names=AckError),
    },
    display=Display(
        shown=(
            "_start",
            "stream",
            "offset",
            "commit_timestamp",
            "ack_policy",
            "ack_error",
            "correlation_id",
        ),
    ),
    meanings=MEANINGS["liftbridge.acks"],
)
INTERNALS = Format(
    "liftbridge.internal",
    "messages between servers in envelopes",
    INTERNAL,
    internal,
    within="liftbridge.envelopes",
    columns={
        "kind": Column(names=Kind),
        "op": Column(unset=-1),
        "offset": Column(is_offset=True),
        "high_watermark": Column(is_offset=True),
        "end_offset": Column(is_offset=True),
    },
    display=Display(
        shown=("_start", "kind", "stream", "partition", "leader_epoch", "offset", "error")
    ),
    meanings=MEANINGS["liftbridge.internal"],
)
HEADERS = Format(
    "liftbridge.headers",
    "headers of messages",
    HEADER,
    headers,
    within="liftbridge.messages",
    display=Display(shown=("_start", "key", "value"), grouped_by="key"),
    meanings=MEANINGS["liftbridge.headers"],
)
ENTRIES = Format(
    "liftbridge.entries",
    "records of commit-log segments",
    ENTRY,
    entries,
    children={"headers": headers},
    columns={
        "offset": Column(is_offset=True),
        "timestamp": Column(unit="ns"),
        "headers": Column(count="header_count"),
    },
    parser=Parser(scan=scan_entries, spans=scan_entry_sets, writes_columns=True),
    storage=Storage(
        files=FILES,
        ignore=IGNORE,
        text_marks=(),
        beside=BESIDE,
        weigh=weigh_entries,
        evidence="their checksums are right",
        boundaries=find_boundaries,
        prune=partial(prune, LAYOUT),
        path_columns={
            "stream": PathColumn(
                read_stream, meaning="stream in the path, null if the path has none"
            ),
            "partition": PathColumn(
                read_partition, is_number=True, meaning="partition in the path, null for none"
            ),
        },
        log=LogColumns(
            "offset",
            "offset",
            segments=SEGMENTS,
            directory_files=("leader-epoch-checkpoint",),
            make_index_writer=LiftbridgeIndexWriter,
            time="timestamp",
        ),
    ),
    display=Display(
        shown=("offset", "timestamp", "leader_epoch", "key", "value", "headers"),
        grouped_by="key",
        summary=SummaryColumns(values=("magic",)),
    ),
    meanings=MEANINGS["liftbridge.entries"],
)
FORMATS = (ENVELOPES, MESSAGES, ACKS, INTERNALS, HEADERS, ENTRIES)
