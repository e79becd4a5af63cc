"""The formats of Thrift, and the functions that read them.

`wirescan.thrift` exports these functions. `frames/registry.py` finds the formats in `FORMATS`.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

from wirescan.core.arguments import to_bytes
from wirescan.core.column_writer import ColumnWriter
from wirescan.core.fault import Fault
from wirescan.files.whole_source import scan_source
from wirescan.frames.columns import Column
from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.exchange import ExchangeFormat
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import FrameTable, renumber_enclosing, require_rows
from wirescan.thrift import exchanges
from wirescan.thrift.call_text import call_text
from wirescan.thrift.constants import InfoKind, Kind, MessageType, Protocol, Role, Transform, Type
from wirescan.thrift.evidence import OPENINGS, weigh_frames, weigh_frames_alone
from wirescan.thrift.files import FILES, find_boundaries
from wirescan.thrift.format_options import IDL, IDL_INCLUDE, NON_STRICT
from wirescan.thrift.hmac import make_signer
from wirescan.thrift.idl import add_names
from wirescan.thrift.meanings import MEANINGS
from wirescan.thrift.scan import (
    FIELD,
    FRAME,
    INFO,
    MESSAGE,
    PLAIN,
    bytes_needed,
    open_infos,
    open_messages,
    open_plain,
    scan_stream,
    scan_streams,
)
from wirescan.thrift.struct_fields import open_fields
from wirescan.thrift.transforms import TRANSFORM_COLUMNS, ZLIB, undo_transforms

KINDS = {kind.value: kind.name for kind in Kind}
DEEPEST = 64  # levels of structs and containers


def scan(
    source: Any,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
    non_strict: bool = False,
) -> FrameTable:
    """Return the frames in a source as a table of thrift.frames: dtype FRAME, 64 bytes a row.

    Args:
        source: anything that `wirescan.open` takes: for each connection, the bytes of one
            direction. Kinds of frames may be mixed.
        errors: "strict", "mark" or "skip".
        check: accepted for consistency and ignored: frames have no checksum.
        limits: limits on what is read.
        into: a writable array of dtype FRAME, for a source of one buffer.
        non_strict: accept binary messages without a version word too. Only their plausibility
            identifies them.

    The columns:
        kind: see `Kind`. The first bytes of a frame determine it.
        seq, flags, header_words, protocol_id, mac_size: as on the wire; 0 without a header.
        transform_count: number of transforms.
        transform_0 to transform_3: the first four transforms, or 0. `transform_ids` lists all.
        info_count: pairs in the infos.
        padding: bytes after the infos; 255 is 255 or more.

    The places:
        infos: null without a header.
        payload: the message with its transforms, without its mac; for HTTP the body; null where
            there is none. Nothing is read of a TTHEADER.

    The faults of a header are TRUNCATED, BAD_VARINT, BAD_HEADER (the header or the mac is larger
    than the frame), BAD_COUNT (more transforms or pairs than the header has bytes for), BAD_FIELD
    (an impossible number) and BAD_CODEC (an unknown transform). A row with BAD_CODEC has all its
    columns. After damage in an unframed message, no next frame can be found for certain. With
    errors="mark" or "skip", the next frame with a length is searched for.

    Format: Apache Thrift, doc/specs/HeaderFormat.md; for BIGF and HMAC, fbthrift.

    Raises:
        FrameError: for a fault, as `errors` says.
        OSError: the source cannot be read.
        TypeError, ValueError: an unfit argument.
    """
    without_versions = partial(scan_stream, versions=False) if non_strict else None
    return scan_source(source, FRAMES, errors, check, limits, into, without_versions)


def infos(
    frames: FrameTable, *, errors: str | None = None, check: bool = True, limits: Limits = Limits()
) -> FrameTable:
    """Return the infos of frames as a table of thrift.infos: dtype INFO, 40 bytes a row.

    Args:
        frames: a table of thrift.frames.
        errors: "strict", "mark" or "skip". None, the default: the mode of the given table.
        check: accepted for consistency and ignored: infos have no checksum.
        limits: limits on what is read.

    Each pair of key and value is one row. Column `parent` is the row in `frames`. kind: see
    `InfoKind`. The places are key and value.
    Pairs are in the order of the wire. A key may occur twice; readers take the last value.
    Persistent infos also apply to later frames of the connection: `resolve` adds them there. A
    frame with unknown transforms is opened, if the given table has it. Any other bad frame is one
    bad row. A frame with unknown transforms is itself bad, so mode "skip" of `scan` discards it,
    and "strict" raises. Scan with "mark" to keep its infos.

    Raises:
        FrameError: as `scan`, and LIMIT for more rows than the limits allow.
        TypeError, ValueError: as `scan`.
    """
    errors = resolve_mode(errors, frames, limits)
    require_rows(frames, FRAME, "infos takes a table of thrift.frames")
    rows, bad, fault = open_infos(frames.rows, frames.buffers, limits)
    table = FrameTable(frames.buffers, rows, (), INFOS, frames)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def plain(
    frames: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    key: Any = None,
    hash: Any = "sha256",
) -> FrameTable:
    """Return the payloads of frames, their transforms undone: dtype PLAIN, 32 bytes a row.

    Args:
        frames: a table of thrift.frames.
        errors: "strict", "mark" or "skip". None, the default: the mode of the given table.
        check: verify Adler-32, and refuse bytes after a zlib stream.
        limits: limits on what is read. Each transform that is undone counts against
            `limits.inflated_total`.
        key: verify the macs of HMAC with this secret. A frame without a mac is good too.
        hash: the hash of the macs, as `encode_frame` takes it.

    Returns:
        A table of thrift.plain. Column `parent` is the row in `frames`. `kind` is the frame's kind.
        The place is payload. Decompressed payloads and joined HTTP chunks are in new buffers of
        the table. Other payloads stay in their buffers.

    The faults are BAD_COMPRESSION, TRUNCATED (a zlib stream without its end), LEFTOVER,
    BAD_CHECKSUM (Adler-32 or the mac), TOO_LARGE (also more than 8 transforms, not counting NONE
    and HMAC), BAD_CODEC, and those of the frame.

    Raises:
        FrameError: as `scan`.
        TypeError, ValueError: as `scan`, and for an unfit key or hash.
    """
    errors = resolve_mode(errors, frames, limits)
    require_rows(frames, FRAME, "plain takes a table of thrift.frames")
    sign = None if key is None else make_signer(to_bytes(key, "key"), hash)
    rows, buffers = undo_transforms(frames.rows, frames.buffers, limits, check=check, sign=sign)
    bad = int(np.count_nonzero(rows["fault"]))
    return enforce_mode(FrameTable(buffers, rows, (), PLAINS, frames, checked=check), errors, bad)


def messages(
    frames: FrameTable, *, errors: str | None = None, check: bool = True, limits: Limits = Limits()
) -> FrameTable:
    """Return the messages in frames as a table of thrift.messages: dtype MESSAGE, 56 bytes a row.

    Args:
        frames: a table of thrift.frames or of thrift.plain.
        errors: "strict", "mark" or "skip". None, the default: the mode of the given table.
        check: as in `plain`.
        limits: as in `plain`.

    The columns:
        parent: the row of thrift.frames. A frame without a payload, or with an empty one, has no
            message.
        kind: see `MessageType`.
        protocol: 0 binary, 2 compact.
        version: of a compact message 1 (Apache's) or 2 (fbthrift's); of a binary message 1, or 0
            without a version word.
        strict: 1 with a version word, else 0.
        seqid: the message's own; it may differ from the frame's `seq`.

    The places:
        method: the method's name.
        service: of a multiplexed call, whose name is "service:method"; else null.
        arguments: the struct after the message's begin; in a reply the result.

    The column `call` is computed, as an Arrow array of strings: the text of `call_text`.

    The faults are BAD_MAGIC, BAD_VERSION, BAD_KIND (an unknown type or protocol), TRUNCATED,
    BAD_VARINT, and those of `plain`.

    Format: Apache Thrift, doc/specs/thrift-binary-protocol.md and thrift-compact-protocol.md,
    "Message".

    Raises:
        FrameError: as `scan`, and LIMIT for more rows than the limits allow.
        TypeError, ValueError: as `scan`.
    """
    errors = resolve_mode(errors, frames, limits)
    if isinstance(frames, FrameTable) and frames.dtype == PLAIN and frames.outer is not None:
        outer = frames.outer
        buffers = frames.buffers
        rows, bad, fault = open_plain(outer.rows, frames.rows, buffers, limits)
    else:
        require_rows(frames, FRAME, "messages takes a table of thrift.frames or thrift.plain")
        outer = frames
        buffers = frames.buffers
        opened = open_messages(frames.rows, buffers, limits)
        if opened is None:
            payloads, buffers = undo_transforms(frames.rows, buffers, limits, check=check)
            opened = open_plain(frames.rows, payloads, buffers, limits)
        rows, bad, fault = opened
    table = FrameTable(buffers, rows, (), MESSAGES, outer, checked=check)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def write_messages(
    frames: FrameTable, writer: ColumnWriter, *, check: bool, limits: Limits
) -> None:
    """Read the messages in frames into a writer of columns.

    frames: a table of thrift.frames. check, limits: as in `messages`.
    """
    require_rows(frames, FRAME, "messages are written from a table of thrift.frames")
    if open_messages(frames.rows, frames.buffers, limits, writer) is None:
        payloads, buffers = undo_transforms(frames.rows, frames.buffers, limits, check=check)
        open_plain(frames.rows, payloads, buffers, limits, writer)


def fields(
    messages: FrameTable,
    *,
    depth: int = DEEPEST,
    idl: Any = None,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the content of messages as a table of thrift.fields: dtype FIELD, 64 bytes a row.

    Args:
        messages: a table of thrift.messages.
        depth: 1 to 64. Deeper values are skipped.
        idl: the path of an IDL, or a module that thriftpy2 has loaded. With it the rows have one
            more column: `name`, dtype S, the name of the field, or empty where it is unknown.
        errors: "strict", "mark" or "skip". None, the default: the mode of the given table.
        check: accepted for consistency and ignored: fields have no checksum.
        limits: limits on what is read.

    Each field of a struct, each element of a list or set, and each key and value of a map is one
    row (`role`, see `Role`). Its row is before the rows of its content. The columns:
        parent: the row in `messages`.
        enclosing: the row in this table of the struct or container that holds the value. -1 in the
            outermost struct, and where that row is bad and skipped.
        depth: 1 in the outermost struct.
        kind: see `Type`.
        id: the number of a field, or the index of an element.
        integer: the value of a BOOL, BYTE, I16, I32 or I64, and the bits of a U64; else 0.
        real: the value of a DOUBLE or FLOAT; else 0.
        count: elements, or pairs of a map.
        key_type: the type of a map's keys.
        element_type: the type of elements, or of a map's values.

    The place is value: the bytes of a string without their length; the bytes of a number on the
    wire; the elements of a list, set or map without the types and the count; the fields of a
    struct with the final stop. It is empty, not null, where nothing is on the wire: in an empty
    container, and in a boolean field of the compact protocol.

    The faults are BAD_FIELD (an unknown type, or a field number above 16 bits), BAD_COUNT
    (negative, or more than the message has bytes for), TRUNCATED, BAD_VARINT, NESTED (more than 64
    levels) and LEFTOVER (bytes after the struct). A bad row covers the rest of its message. The
    rows that enclose it have the fault too.

    Format: Apache Thrift, doc/specs/thrift-binary-protocol.md and thrift-compact-protocol.md; for
    version 2 of the compact protocol, fbthrift.

    Raises:
        FrameError: as `messages`.
        TypeError, ValueError: as `messages`; ValueError for an IDL that cannot be parsed.
        ImportError: `idl` is given, and thriftpy2 is not installed.
        OSError: the IDL cannot be read.
    """
    errors = resolve_mode(errors, messages, limits)
    require_rows(messages, MESSAGE, "fields takes a table of thrift.messages")
    depth = operator.index(depth)
    if not 1 <= depth <= DEEPEST:
        raise ValueError(f"depth must be from 1 to {DEEPEST}, not {depth}")
    rows, bad, fault = open_fields(messages.rows, messages.buffers, depth, limits)
    table = FrameTable(messages.buffers, rows, (), FIELDS, messages)
    if idl is not None:
        table = add_names(table, idl)
    table = raise_if_row_limit(table, fault)  # the error has the rows so far, with their names
    return renumber_enclosing(enforce_mode(table, errors, bad), table)


def _is_deflated(frames: FrameTable) -> np.ndarray:
    """Return which frames have a transform of zlib and no mac: a bool array."""
    names = [f"transform_{number}" for number in range(TRANSFORM_COLUMNS)]
    transforms = np.stack([frames[name] for name in names])
    has_zlib = np.isin(transforms, ZLIB).any(axis=0)
    has_no_mac = (transforms != Transform.HMAC).all(axis=0)
    return np.logical_and(has_zlib, has_no_mac)


FRAMES = Format(
    "thrift.frames",
    "frames of Thrift's transports: header frames, framed and unframed messages, HTTP",
    FRAME,
    scan,
    children={"infos": infos, "messages": messages, "plain": plain},
    columns={
        "kind": Column(names=Kind),
        "protocol_id": Column(names=Protocol),
        **dict.fromkeys(
            ("transform_0", "transform_1", "transform_2", "transform_3"), Column(names=Transform)
        ),
        "infos": Column(count="info_count"),
    },
    parser=Parser(
        scan=scan_stream,
        spans=scan_streams,
        bytes_needed=bytes_needed,
        is_deflated=_is_deflated,
        writes_columns=True,
    ),
    conversation=Conversation(
        ports=(9090,), openings=OPENINGS, weigh_after_gap=weigh_frames_alone, resyncs=True
    ),
    storage=Storage(
        files=FILES,
        text_marks=(b"POST ", b"HTTP/"),
        boundaries=find_boundaries,
        weigh=weigh_frames,
        evidence="they have the marks of a transport, and messages with the name of a method",
    ),
    display=Display(shown=("_start", "size", "kind", "seq", "protocol_id", "transform_0", "infos")),
    readable=(Fault.BAD_CODEC,),
    accepts=(NON_STRICT,),
    meanings=MEANINGS["thrift.frames"],
)
INFOS = Format(
    "thrift.infos",
    "the key/value headers of frames",
    INFO,
    infos,
    within="thrift.frames",
    columns={"kind": Column(names=InfoKind), "seq": Column(inherited=True)},
    display=Display(shown=("_start", "kind", "key", "value"), grouped_by="key"),
    accepts=(NON_STRICT,),
    meanings=MEANINGS["thrift.infos"],
)
PLAINS = Format(
    "thrift.plain",
    "the payloads of frames, their transforms undone",
    PLAIN,
    plain,
    within="thrift.frames",
    columns={"kind": Column(names=Kind), "seq": Column(inherited=True)},
    display=Display(shown=("_start", "kind", "payload"), repeats=True),
    accepts=(NON_STRICT,),
    meanings=MEANINGS["thrift.plain"],
)
EXCHANGES = ExchangeFormat(
    "thrift.exchanges",
    "calls with their replies, from captures",
    exchanges.EXCHANGE_COLUMNS,
    partial(exchanges.pair_calls, open_messages=messages),
    columns={
        "call_type": Column(names=MessageType),
        "reply_type": Column(names=MessageType),
    },
    meanings=MEANINGS["thrift.exchanges"],
    grouped_by="method",
    find_errors=lambda table: table["reply_type"] == MessageType.EXCEPTION,
)
MESSAGES = Format(
    "thrift.messages",
    "the messages in frames: calls, replies, exceptions",
    MESSAGE,
    messages,
    write=write_messages,
    within="thrift.frames",
    children={"fields": fields},
    columns={
        "kind": Column(names=MessageType),
        "protocol": Column(names=Protocol),
        "call": Column(compute_texts=call_text),
    },
    display=Display(
        shown=("_start", "kind", "seqid", "protocol", "call"),
        grouped_by="method",
        counted_as="messages",
        summary=SummaryColumns(by_kind=True),
    ),
    accepts=(NON_STRICT, IDL_INCLUDE, IDL),
    exchange=EXCHANGES,
    meanings=MEANINGS["thrift.messages"],
)
FIELDS = Format(
    "thrift.fields",
    "the fields, elements, keys and values in messages, without their schema",
    FIELD,
    fields,
    within="thrift.messages",
    columns={
        "kind": Column(names=Type),
        "role": Column(names=Role),
        "key_type": Column(names=Type),
        "element_type": Column(names=Type),
        "enclosing": Column(local=True),
        "method": Column(inherited=True),
        "seqid": Column(inherited=True),
    },
    display=Display(
        shown=("_start", "kind", "depth", "role", "id", "integer", "real", "count", "value"),
        grouped_by="method",
    ),
    enclosing="enclosing",
    accepts=(NON_STRICT, IDL_INCLUDE, IDL),
    meanings=MEANINGS["thrift.fields"],
)
FORMATS = (FRAMES, INFOS, PLAINS, MESSAGES, FIELDS)
