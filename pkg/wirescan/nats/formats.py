"""The functions that read NATS, and its `Format` declarations.

The package exports the functions. The registry reads FORMATS.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np

from wirescan.files.whole_source import scan_source
from wirescan.frames.columns import Column
from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.exchange import ExchangeFormat
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, require_rows
from wirescan.nats import exchanges
from wirescan.nats.constants import Kind
from wirescan.nats.evidence import OPENINGS, weigh_messages, weigh_messages_alone
from wirescan.nats.files import FILES, find_boundaries
from wirescan.nats.meanings import MEANINGS
from wirescan.nats.scan import (
    HEADER,
    MESSAGE,
    bytes_needed,
    open_headers,
    scan_stream,
    scan_streams,
)

KINDS = {kind.value: kind.name for kind in Kind} | {Kind.OK.value: "+OK", Kind.ERR.value: "-ERR"}
# Members of CONNECT that log a client in.
CREDENTIALS = ("auth_token", "jwt", "nkey", "pass", "sig", "user")


def scan(
    source: Any,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
    credentials: bool = False,
) -> FrameTable:
    """Return the messages in a source, as a table of nats.messages.

    The rows have dtype MESSAGE (80 bytes a row).

    Arguments:
        source: anything that `wirescan.open` takes: the bytes of one direction of a connection, or
            of both directions if they are cut at messages.
        errors: "strict", "mark" or "skip".
        check: accepted for consistency and ignored: messages have no checksum.
        limits: bounds of what is read.
        into: a writable array of dtype MESSAGE that receives the rows, for a source of one buffer.
        credentials: give the payload of CONNECT, which may hold a password.

    Columns: `kind` is the operation, a `Kind`. `count` is the maximum of UNSUB. `status` is the
    number in the first line of the header block, or 0. `header_count` is the number of rows that
    `headers` returns, 65535 if there are more. Places: subject, sid, reply; queue, the group of
    SUB; headers, the whole header block; payload, the published bytes, the JSON of INFO, or the
    text of -ERR. `table.bytes(i, "headers")` returns the header block; `row.headers` and exports
    give its lines.

    Faults: BAD_COUNT, a SUB or UNSUB with too few or too many words. BAD_LENGTH, a size that is not
    a number of one to nine digits, a header block that is larger than its message, or a payload
    without CRLF after it. NOT_A_FRAME, not a message, or another message with a wrong number of
    words. After the last two, the start of the next message cannot be found. With errors="mark",
    the rest is one bad row.

    An error shows the first bytes of the bad frame. If a capture begins inside CONNECT, they may be
    a password.

    Raises FrameError according to `errors`, OSError, and TypeError and ValueError for wrong
    arguments.

    Format: NATS documentation, "Client Protocol".
    """
    with_credentials = partial(scan_stream, credentials=True) if credentials else None
    return scan_source(source, MESSAGES, errors, check, limits, into, with_credentials)


def headers(
    messages: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the header lines of messages, as a table of nats.headers.

    The rows have dtype HEADER (40 bytes a row).

    messages: a table of nats.messages. errors: None, the default, means `messages.errors`. limits:
    as in `scan`. check is accepted for consistency and ignored.

    Columns: `parent` is the row in `messages`. Places: key, value: bytes, without the blanks around
    a value. Repeated names are kept, in the order of the wire.

    Servers pass on whatever a client wrote. Faults: BAD_FIELD, a line without a name; BAD_MAGIC, a
    block that does not begin with NATS/1.0; TRUNCATED, a block that does not end with an empty
    line. A bad block is one bad row.

    Raises the same errors as `scan`, and FrameError(LIMIT) beyond the limits on rows.

    Format: NATS ADR-4, "NATS Message Headers".
    """
    errors = resolve_mode(errors, messages, limits)
    require_rows(messages, MESSAGE, "headers are read from a table of nats.messages")
    rows, bad, fault = open_headers(messages.rows, messages.buffers, limits)
    table = FrameTable(messages.buffers, rows, (), HEADERS, messages)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def options(messages: FrameTable, *, credentials: bool = False) -> list[dict[str, Any] | None]:
    """Return the JSON object of each INFO and CONNECT, as a dict.

    messages: a table of nats.messages. The result has one item for each row. It is None for other
    operations, and if the text is not a JSON object. credentials: include the members of CONNECT
    that log a client in: auth_token, jwt, nkey, pass, sig, user.

    Raises TypeError for another table.
    """
    require_rows(messages, MESSAGE, "options are read from a table of nats.messages")
    objects: list[dict[str, Any] | None] = [None] * len(messages)
    kinds = messages["kind"]
    has_json = ((kinds == Kind.INFO) | (kinds == Kind.CONNECT)) & ~messages.bad
    for i in np.flatnonzero(has_json).tolist():
        words = bytes(messages.frame(i)).split(None, 1)
        try:
            members = json.loads(words[-1] if words else b"", parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
        if isinstance(members, dict):
            hidden = () if credentials or kinds[i] == Kind.INFO else CREDENTIALS
            # Servers accept the names of members in upper and lower case.
            objects[i] = {
                name: value for name, value in members.items() if name.casefold() not in hidden
            }
    return objects


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


EXCHANGES = ExchangeFormat(
    "nats.exchanges",
    "messages with a reply subject, and the first reply to each, from captures",
    exchanges.EXCHANGE_COLUMNS,
    exchanges.pair_requests,
    meanings=MEANINGS["nats.exchanges"],
    grouped_by="subject",
    find_errors=lambda table: table["status"] >= exchanges.FIRST_ERROR,
)
MESSAGES = Format(
    "nats.messages",
    "messages of NATS clients and servers: publications, deliveries, subscriptions",
    MESSAGE,
    scan,
    children={"headers": headers},
    columns={"kind": Column(names=KINDS), "headers": Column(count="header_count")},
    parser=Parser(
        scan=scan_stream, spans=scan_streams, bytes_needed=bytes_needed, writes_columns=True
    ),
    conversation=Conversation(
        ports=(4222,), openings=OPENINGS, weigh_after_gap=weigh_messages_alone
    ),
    exchange=EXCHANGES,
    storage=Storage(
        files=FILES,
        boundaries=find_boundaries,
        weigh=weigh_messages,
        evidence="they begin with an operation of NATS, and lines end where they must",
    ),
    display=Display(
        shown=("_start", "kind", "subject", "reply", "headers", "payload"), grouped_by="subject"
    ),
    meanings=MEANINGS["nats.messages"],
)
HEADERS = Format(
    "nats.headers",
    "header lines of messages",
    HEADER,
    headers,
    within="nats.messages",
    display=Display(shown=("_start", "key", "value"), grouped_by="key"),
    meanings=MEANINGS["nats.headers"],
)
FORMATS = (MESSAGES, HEADERS)
