"""NATS, the client protocol: what a client sent, or a server.

`scan` gives messages, `headers` the header lines in them, `options` what INFO and CONNECT say. nats/scan.pyx draws the
wire. encode.py has encode_pub, encode_msg, and encode_pubs, encode_msgs for columns. Room liftbridge reads payloads on.
"""
from __future__ import annotations

import json
from typing import Any

import numpy as np

from wirescan.catalog import Format
from wirescan.errors import apply, check_mode, limited
from wirescan.limits import Limits
from wirescan.nats.cuts import FILES, cuts
from wirescan.nats.encode import encode_msg, encode_msgs, encode_pub, encode_pubs
from wirescan.nats.kind import Kind
from wirescan.nats.scan import HEADER, MESSAGE, claims, needed, open_headers, scan_stream, scan_streams
from wirescan.source import open
from wirescan.table import FrameTable, Stop, empty, join

__all__ = [
    "FORMATS", "HEADER", "Kind", "MESSAGE", "encode_msg", "encode_msgs", "encode_pub", "encode_pubs", "headers",
    "options", "scan"]

KINDS = {kind.value: kind.name for kind in Kind} | {Kind.OK.value: "+OK", Kind.ERR.value: "-ERR"}
CREDENTIALS = ("auth_token", "jwt", "nkey", "pass", "sig", "user")      # members of CONNECT


def scan(source: Any, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
         into: np.ndarray | None = None, credentials: bool = False) -> FrameTable:
    """The messages in a source, as a table of dtype MESSAGE (80 bytes a row): nats.messages.

    source: anything that `wirescan.open` takes: of each connection the bytes of one direction, or of both if they are
    cut on messages. `kind` is the operation, see `Kind`. Places: subject, sid, reply; queue: the group of SUB; headers:
    the whole header block; payload: what is published, the JSON of INFO, the text of -ERR; that of CONNECT, which may
    hold a password, only with `credentials`. count: the maximum of UNSUB. status: the number in the block's first line,
    or 0. header_count: rows that `headers` gives, 65535 where they are more. into: a writable array of dtype MESSAGE,
    for a source of one buffer.

    SUB and UNSUB with too few or too many words are BAD_COUNT, a header block larger than its message is BAD_HEADER.
    Where a message's size is no number of one to nine digits, or no CRLF follows its payload (BAD_LENGTH), and behind
    what is no message, or one with another number of words (NOT_A_FRAME), nothing tells where the next one begins: what
    follows is one bad row, with errors="mark".
    check changes nothing: messages have no checksum. An error shows the first bytes of what it met: of a capture that
    begins inside CONNECT they may be a password.
    Raises FrameError as `errors` says, OSError, TypeError and ValueError for unfit arguments.
    Format: NATS documentation, "Client Protocol".
    """
    check_mode(errors, limits)
    buffers = open(source, files=FILES)
    if into is not None and len(buffers) != 1:
        raise ValueError(f"into takes the rows of one buffer, and the source has {len(buffers)}")
    tables = []
    for buffer in buffers:
        rows, bad, fault, offset = scan_stream(buffer, check, errors != "strict", limits, into,
                                               credentials=credentials)
        tables.append(apply(FrameTable((buffer,), rows, (Stop(fault, offset),), MESSAGES, checked=check), errors, bad))
    return join(tables) if tables else empty(MESSAGES)


def headers(messages: FrameTable, *, errors: str = "strict", check: bool = True,
            limits: Limits = Limits()) -> FrameTable:
    """The header lines in a table of nats.messages, as a table of dtype HEADER (40 bytes a row): nats.headers.

    Column `parent` is the row in `messages`. Places: key, value: bytes; blanks around a value are no part of it. Names
    that come twice stay, in the order of the wire. Servers pass on whatever a client wrote: a line without a name is
    BAD_FIELD; a block that does not begin with NATS/1.0 is one bad row, BAD_MAGIC, one that does not end with an empty
    line TRUNCATED. Raises as `scan`, and FrameError(LIMIT) beyond limits.rows; `check` changes nothing.
    Format: NATS ADR-4, "NATS Message Headers".
    """
    check_mode(errors, limits)
    _refuse_unless(messages, "headers are those of a table of nats.messages")
    spans, counts = claims(messages.rows, messages.buffers)
    rows, bad, fault = open_headers(messages.rows, messages.buffers, spans, counts, limits)
    return apply(limited(FrameTable(messages.buffers, rows, (), HEADERS, messages), fault), errors, bad)


def options(messages: FrameTable, *, credentials: bool = False) -> list[dict[str, Any] | None]:
    """What INFO and CONNECT say, for each row of a table of nats.messages a dict of it; None for other operations, and
    where it is no JSON object. credentials: with the members of CONNECT that log a client in: auth_token, jwt, nkey,
    pass, sig, user. Raises TypeError for another table."""
    _refuse_unless(messages, "options are those of a table of nats.messages")
    found: list[dict[str, Any] | None] = [None] * len(messages)
    kinds = messages["kind"]
    for i in np.flatnonzero(((kinds == Kind.INFO) | (kinds == Kind.CONNECT)) & ~messages.bad).tolist():
        text = bytes(messages.frame(i)).split(None, 1)[-1]
        try:
            members = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(members, dict):
            hidden = () if credentials or kinds[i] == Kind.INFO else CREDENTIALS
            # Servers take the names of members in letters of either case.
            found[i] = {name: value for name, value in members.items() if name.casefold() not in hidden}
    return found


def _refuse_unless(table: Any, what: str) -> None:
    if not isinstance(table, FrameTable) or table.dtype != MESSAGE:
        raise TypeError(f"{what}, not of {getattr(table, 'name', type(table).__name__)}")


MESSAGES = Format(
    "nats.messages", "what NATS clients and servers send: publications, deliveries, subscriptions", MESSAGE, scan,
    children={"headers": headers}, lists={"headers": "header_count"}, kinds=KINDS, scan=scan_stream,
    spans=scan_streams, needed=needed, cuts=cuts, files=FILES)
HEADERS = Format("nats.headers", "the header lines in them", HEADER, headers, within="nats.messages")
FORMATS = (MESSAGES, HEADERS)
