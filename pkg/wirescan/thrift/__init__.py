"""Thrift: frames of the header transport (THeader) and of the older transports beside it, and what is in them.

`scan` gives frames; `infos` their headers, `messages` what is called or answered, `fields` what is in that, without its
schema or with it. thrift/scan.pyx draws the wire. The rest:

    kind.py         the numbers by their names: Kind, MessageType, Protocol, Transform, InfoKind, Type, Role
    resolving.py    resolve: the headers in force, persistent ones too
    pairing.py      pair: calls with their replies
    encode.py       encode_frame, encode_framed, encode_message; for columns encode_frames, encode_framed_messages,
                    encode_messages
    channel.py      ClientChannel, ServerChannel: both sides, without sockets
    transport.py    HeaderTransport, for Apache Thrift's own library
"""
from __future__ import annotations

import operator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from wirescan.catalog import Format
from wirescan.core.columns import octets
from wirescan.errors import apply, check_mode, limited
from wirescan.limits import Limits
from wirescan.source import open
from wirescan.table import FrameTable, Stop, empty, join
from wirescan.thrift.cuts import FILES, cuts
from wirescan.thrift.encode import (
    encode_frame, encode_framed, encode_framed_messages, encode_frames, encode_message, encode_messages)
from wirescan.thrift.kind import InfoKind, Kind, MessageType, Protocol, Role, Transform, Type
from wirescan.thrift.mac import signer
from wirescan.thrift.scan import (
    FRAME, INFO, MESSAGE, PLAIN, needed, open_infos, open_messages, open_plain, scan_any, scan_stream,
    scan_streams)
from wirescan.thrift.structs import FIELD, open_fields
from wirescan.thrift.transforms import undone

__all__ = [
    "FIELD", "FORMATS", "FRAME", "INFO", "InfoKind", "Kind", "MESSAGE", "MessageType", "PLAIN", "Protocol", "Role",
    "Transform", "Type", "encode_frame", "encode_framed", "encode_framed_messages", "encode_frames", "encode_message",
    "encode_messages", "fields", "infos", "messages", "plain", "scan"]

KINDS = {kind.value: kind.name for kind in Kind}
DEEPEST = 64                # of structs and containers in one another


def scan(source: Any, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
         into: np.ndarray | None = None, non_strict: bool = False) -> FrameTable:
    """The frames in a source, as a table of dtype FRAME (64 bytes a row): thrift.frames.

    source: anything that `wirescan.open` takes: of each connection the bytes of one direction. `kind` tells the frames
    apart, by their first bytes, see `Kind`; they may be mixed as they like. seq, flags, header_words, protocol_id,
    mac_size: as on the wire, 0 where there is no header. transform_count, and transform_0 to transform_3: how many, and
    the first four; 0: fewer. info_count: pairs in the infos; padding: bytes after them (255: or more). Places: infos,
    null without a header; payload: the message, as it was transformed, without its code; of HTTP the body, null where
    there is none. Of a TTHEADER nothing is read.
    non_strict: take binary messages that do not begin with a version too; nothing but their plausibility tells them.
    into: a writable array of dtype FRAME, for a source of one buffer.

    Faults of a header: TRUNCATED, BAD_VARINT, BAD_HEADER (larger than the frame, or a code that is), BAD_COUNT (more
    transforms or pairs than there is room for), BAD_FIELD (a number that cannot be); BAD_CODEC, a transform that is not
    known: then the row has all its columns. `check` changes nothing. There is no way to find the next frame behind
    damage in an unframed message; with errors="mark" or "skip" the next one with a length is looked for.
    Raises FrameError as `errors` says, OSError, TypeError and ValueError for unfit arguments.
    Format: Apache Thrift, doc/specs/HeaderFormat.md; of BIGF and HMAC, fbthrift.
    """
    check_mode(errors, limits)
    buffers = open(source, files=FILES)
    if into is not None and len(buffers) != 1:
        raise ValueError(f"into takes the rows of one buffer, and the source has {len(buffers)}")
    tables = []
    for buffer in buffers:
        found = (scan_any(buffer, errors != "strict", limits, into) if non_strict
                 else scan_stream(buffer, check, errors != "strict", limits, into))
        rows, bad, fault, offset = found
        tables.append(apply(FrameTable((buffer,), rows, (Stop(fault, offset),), FRAMES, checked=check), errors, bad))
    return join(tables) if tables else empty(FRAMES)


def infos(frames: FrameTable, *, errors: str = "strict", check: bool = True, limits: Limits = Limits()) -> FrameTable:
    """The pairs in the infos of a table of thrift.frames, as a table of dtype INFO (40 bytes a row): thrift.infos.

    Column `parent` is the row in `frames`; kind: see `InfoKind`. Places: key, value: bytes. Pairs stay in the order of
    the wire, and keys that come twice: readers take the last. Persistent ones hold for later frames of the connection
    too: `resolve` has them there. A frame whose transforms are not known is opened, another bad one is one bad row.
    Raises as `scan`, and FrameError(LIMIT) beyond limits.rows.
    """
    check_mode(errors, limits)
    _refuse_unless(frames, FRAME, "infos are those of a table of thrift.frames")
    rows, bad, fault = open_infos(frames.rows, frames.buffers, limits)
    return apply(limited(FrameTable(frames.buffers, rows, (), INFOS, frames), fault), errors, bad)


def plain(frames: FrameTable, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
          key: Any = None, hash: Any = "sha256") -> FrameTable:
    """The payloads in a table of thrift.frames, their transforms undone, as a table of dtype PLAIN (32 bytes a row):
    thrift.plain.

    Column `parent` is the row in `frames`, `kind` that of the frame. Place: payload. What is inflated, within `limits`,
    lies in new buffers of the table, and so do the chunks of HTTP put together; any other payload where it is. check:
    verify Adler-32, and refuse what follows a zlib stream. key, hash: verify the codes of HMAC, as `encode_frame` makes
    them; what has none is good too.

    Faults: BAD_COMPRESSION, TRUNCATED (a zlib stream without its end), LEFTOVER, BAD_CHECKSUM (Adler-32, or the code),
    TOO_LARGE, BAD_CODEC, and those of the frame. Raises as `scan`; TypeError and ValueError for an
    unfit key or hash.
    """
    check_mode(errors, limits)
    _refuse_unless(frames, FRAME, "payloads are those of a table of thrift.frames")
    sign = None if key is None else signer(octets(key, "key"), hash)
    rows, buffers = _undone(frames, check, limits, sign)
    bad = int(np.count_nonzero(rows["fault"]))
    return apply(FrameTable(buffers, rows, (), PLAINS, frames, checked=check), errors, bad)


def messages(frames: FrameTable, *, errors: str = "strict", check: bool = True,
             limits: Limits = Limits()) -> FrameTable:
    """The messages in a table of thrift.frames (or in one that `plain` gave), as a table of dtype MESSAGE (56 bytes a
    row): thrift.messages.

    Column `parent` is the row of thrift.frames; kind: see `MessageType`. protocol: 0 binary, 2 compact; version: of a
    compact message 1 (Apache's) or 2 (fbthrift's), of a binary one 1, or 0 where it does not tell; `strict` is 1 where
    it does. seqid is the message's own, which need not be the frame's `seq`. Places: method, and of a call
    service, where the name is that of a multiplexed one ("service:method"); arguments: the struct behind them, in a
    reply the result. Frames without a payload have no message.

    Faults: BAD_MAGIC, BAD_VERSION and BAD_KIND (a type, or a protocol, that there is not), TRUNCATED, BAD_VARINT; those
    of `plain`. Raises as `scan`, and FrameError(LIMIT) beyond limits.rows.
    Format: Apache Thrift, doc/specs/thrift-binary-protocol.md and thrift-compact-protocol.md, "Message".
    """
    check_mode(errors, limits)
    if isinstance(frames, FrameTable) and frames.dtype == PLAIN and frames.outer is not None:
        outer, rows, buffers = frames.outer, frames.rows, frames.buffers
        found = open_plain(outer.rows, rows, buffers, limits)
    else:
        _refuse_unless(frames, FRAME, "messages are those of a table of thrift.frames or thrift.plain")
        outer, buffers = frames, frames.buffers
        found = open_messages(frames.rows, buffers, limits)
        if found is None:
            rows, buffers = _undone(frames, check, limits)
            found = open_plain(frames.rows, rows, buffers, limits)
    rows, bad, fault = found
    return apply(limited(FrameTable(buffers, rows, (), MESSAGES, outer, checked=check), fault), errors, bad)


def fields(messages: FrameTable, *, depth: int = DEEPEST, idl: Any = None, errors: str = "strict", check: bool = True,
           limits: Limits = Limits()) -> FrameTable:
    """What is in the messages of a table of thrift.messages, as a table of dtype FIELD (64 bytes a row): thrift.fields.

    A row for each field of a struct, element of a list or set, key and value of a map (`role`, see `Role`), before
    those inside it. Column `parent` is the row in `messages`, `enclosing` the row of the struct or container around it
    in this table, -1 in the outermost struct, or where that row is bad and skipped; `depth` counts from 1 there. kind:
    see `Type`. id: of a field its number, else the index. integer: of BOOL, BYTE, I16, I32, I64, and the bits of U64;
    real: of DOUBLE and FLOAT; else 0.
    count: elements, or pairs of a map, whose keys have key_type; element_type: of what else is in there.
    Place: value: the bytes of a string, else what is on the wire.
    depth: what lies deeper is stepped over, 1 to 64. idl: the path of an IDL, or a module that thriftpy2 has loaded:
    then the rows have a column `name` more, of dtype S: the name of the field, empty where it is not known.

    Faults: BAD_FIELD (a type that there is not, a number beyond 16 bits), BAD_COUNT (negative, or more than there is
    room for), TRUNCATED, BAD_VARINT, NESTED (more than 64 deep), LEFTOVER (more follows the struct). A bad row covers
    the rest of its message; those around it have the fault too. Raises as `messages`; for `idl` ImportError without
    thriftpy2, OSError, and ValueError where it cannot be read. `check` changes nothing.
    Format: Apache Thrift, doc/specs/thrift-binary-protocol.md and thrift-compact-protocol.md; of fbthrift, version 2.
    """
    check_mode(errors, limits)
    _refuse_unless(messages, MESSAGE, "fields are those of a table of thrift.messages")
    depth = operator.index(depth)
    if not 1 <= depth <= DEEPEST:
        raise ValueError(f"depth must be from 1 to {DEEPEST}, not {depth}")
    rows, bad, fault = open_fields(messages.rows, messages.buffers, depth, limits)
    table = limited(FrameTable(messages.buffers, rows, (), FIELDS, messages), fault)
    if idl is not None:
        from wirescan.thrift.idl import named
        table = named(table, idl)
    return _renumbered(apply(table, errors, bad), table)


def _renumbered(kept: FrameTable, table: FrameTable) -> FrameTable:
    """The rows that were kept of a table of fields, `enclosing` counting among them."""
    if len(kept) == len(table):
        return kept
    rows, numbers = kept.rows.copy(), np.where(table.bad, -1, np.cumsum(~table.bad) - 1)
    rows["enclosing"] = np.where(rows["enclosing"] < 0, -1, numbers[rows["enclosing"]])
    rows.flags.writeable = False
    return replace(kept, rows=rows)


def _undone(frames: FrameTable, check: bool, limits: Limits, sign: Any = None) -> Any:
    found = undone(frames.rows, frames.buffers, check, limits, sign)
    if len(found[1]) > 1 << 16:
        raise ValueError("a table holds at most 65,536 buffers; open fewer frames at a time")
    return found


def _refuse_unless(table: Any, dtype: np.dtype, what: str) -> None:
    if not isinstance(table, FrameTable) or table.dtype != dtype:
        raise TypeError(f"{what}, not of {getattr(table, 'name', type(table).__name__)}")


FRAMES = Format(
    "thrift.frames", "what Thrift's transports send: header frames, framed and unframed messages, HTTP", FRAME, scan,
    children={"infos": infos, "messages": messages, "plain": plain}, lists={"infos": "info_count"}, kinds=KINDS,
    scan=scan_stream, spans=scan_streams, needed=needed, cuts=cuts, files=FILES)
INFOS = Format(
    "thrift.infos", "the key/value headers in them", INFO, infos, within="thrift.frames", inherited=("seq",),
    kinds={kind.value: kind.name for kind in InfoKind})
PLAINS = Format(
    "thrift.plain", "the payloads in them, their transforms undone", PLAIN, plain, within="thrift.frames",
    inherited=("seq",), kinds=KINDS)
MESSAGES = Format(
    "thrift.messages", "the messages in them: calls, replies, exceptions", MESSAGE, messages, within="thrift.frames",
    children={"fields": fields}, kinds={kind.value: kind.name for kind in MessageType})
FIELDS = Format(
    "thrift.fields", "what is in the messages, without their schema", FIELD, fields, within="thrift.messages",
    inherited=("method", "seqid"), local=("enclosing",), kinds={kind.value: kind.name for kind in Type})
FORMATS = (FRAMES, INFOS, PLAINS, MESSAGES, FIELDS)

# What holds a conversation, or needs another library, is imported by who asks for it.
LATE = {"resolve": "resolving", "pair": "pairing", "ClientChannel": "channel", "ServerChannel": "channel",
        "Call": "channel", "Reply": "channel", "Sent": "channel", "ConversationError": "standing",
        "HeaderTransport": "transport", "HeaderTransportFactory": "transport", "TransportError": "transport"}


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATE[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *LATE]
