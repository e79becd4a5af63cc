"""Lumberjack, the protocol of Beats and Logstash, versions 1 and 2: what a writer sent, or a reader.

`scan` gives frames, `events` the data and JSON frames among them, those in compressed frames too, and `pairs` the
fields of the data frames. docs/lumberjack.md describes the protocol; lumberjack/scan.pyx draws the wire. The rest:

    encode.py       encode_window, encode_json, encode_data, encode_compressed, encode_ack; whole windows: encode_batch,
                    encode_batches, encode_events
    columns.py      documents: the events as columns of Arrow, their JSON parsed
    conversation.py Receiver, Sender: both sides, without sockets
    server.py       Server: receives with them                      client.py       Client: sends with them
"""
from __future__ import annotations

import operator
from enum import IntEnum
from importlib import import_module
from typing import Any

import numpy as np

from wirescan.catalog import Format
from wirescan.codecs import Arena, CodecError
from wirescan.core.loop import lie_inside, spans
from wirescan.errors import apply, check_mode, limited
from wirescan.limits import Limits
from wirescan.lumberjack.cuts import FILES, cuts
from wirescan.lumberjack.encode import (
    encode_ack, encode_batch, encode_batches, encode_compressed, encode_data, encode_data_batches, encode_events,
    encode_json, encode_window)
from wirescan.lumberjack.scan import (
    EVENT, FRAME, PAIR, claims, compressed, needed, open_pairs, scan_stream, scan_streams, unpack, unrolled)
from wirescan.source import open
from wirescan.table import FrameTable, Stop, empty, join

__all__ = [
    "EVENT", "FORMATS", "FRAME", "Kind", "PAIR", "encode_ack", "encode_batch", "encode_batches", "encode_compressed",
    "encode_data", "encode_data_batches", "encode_events", "encode_json", "encode_window", "events", "pairs", "plain",
    "scan", "unroll"]

DEEPEST = 0xFFFF            # of the column `depth`
USUAL_RATIO = 5             # of what payloads inflate to, to what they are: a first guess


class Kind(IntEnum):
    """The column `kind` of frames and events: the letter of the frame's type. Only readers send ACK, writers all else.
    """
    ACK = 0x41
    COMPRESSED = 0x43
    DATA = 0x44
    JSON = 0x4A
    WINDOW = 0x57


KINDS = {kind.value: chr(kind) for kind in Kind}


def scan(source: Any, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
         into: np.ndarray | None = None) -> FrameTable:
    """The frames in a source, as a table of dtype FRAME (40 bytes a row): lumberjack.frames.

    source: anything that `wirescan.open` takes: of each connection the bytes of one direction, or of both if they
    are cut on frames. Versions and types may be mixed as they like; `kind` is the type. sequence: of D, J and A; count:
    of W the events, of D the pairs; length: of J and C what follows it. A D with no pairs and a W of no events are
    good, a J without a document is EMPTY. into: a writable array of dtype FRAME, for a source of one buffer.

    There is no way to find the next frame behind damage: what follows is one bad row, with errors="mark".
    Raises FrameError as `errors` says, OSError, TypeError and ValueError for unfit arguments.
    Format: docs/lumberjack.md, "Frames".
    """
    check_mode(errors, limits)
    buffers = open(source, files=FILES)
    if into is not None and len(buffers) != 1:
        raise ValueError(f"into takes the rows of one buffer, and the source has {len(buffers)}")
    tables = []
    for buffer in buffers:
        rows, bad, fault, offset = scan_stream(buffer, check, errors != "strict", limits, into)
        tables.append(apply(FrameTable((buffer,), rows, (Stop(fault, offset),), FRAMES, checked=check), errors, bad))
    return join(tables) if tables else empty(FRAMES)


def plain(frames: FrameTable, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
          depth: int = 1) -> FrameTable:
    """The frames in a table of lumberjack.frames, in the place of a compressed one those in it: a table of dtype FRAME.

    Column `parent` is the row in `frames`; `depth` says how many compressed frames lie around. What they inflate to,
    within `limits`, lies in new buffers of the table. depth: how many may lie in one another, 1 to 65,535; one deeper
    is a bad row, NESTED. check: verify Adler-32.

    A compressed frame that cannot be inflated is one bad row, over its payload. One that only ends in a way that not
    every reader takes keeps its frames, and behind them a bad row of no bytes tells: TRUNCATED, where the zlib stream
    has no end or no Adler-32, LEFTOVER, where something follows it. So "strict" names what is wrong, and "skip" takes
    what any reader takes. Raises as `scan`, and FrameError(LIMIT) beyond limits.rows.
    Format: docs/lumberjack.md, "Compressed frames".
    """
    return _unpacked(frames, errors, check, limits, depth, False)


def events(frames: FrameTable, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
           depth: int = 1) -> FrameTable:
    """The data and JSON frames in a table of lumberjack.frames (or in one that `plain` gave), those in compressed
    frames too, in the order of the stream, as a table of dtype EVENT (48 bytes a row): lumberjack.events.

    Column `parent` is the row of lumberjack.frames. window: the number of the window that the event lies in, from 0 in
    each table, -1 before the first. Places: json, null for a data frame; `count` is how many pairs that has. Bad frames
    are among the rows. The other arguments and what is raised are those of `plain`.
    Format: docs/lumberjack.md, "Events".
    """
    return _unpacked(frames, errors, check, limits, depth, True)


def pairs(events: FrameTable, *, errors: str = "strict", check: bool = True, limits: Limits = Limits()) -> FrameTable:
    """The pairs in a table of lumberjack.events, as a table of dtype PAIR (40 bytes a row): lumberjack.pairs.

    Column `parent` is the pair's row in `events`. Places: key, value: bytes, which need not be UTF-8. Duplicate keys
    stay, in the order of the wire; readers take the last. Raises as `events`; `check` changes
    nothing: pairs have no checksum.
    """
    check_mode(errors, limits)
    _refuse_unless(events, EVENT, "pairs are those of a table of lumberjack.events")
    rows, bad, fault = open_pairs(events.rows, events.buffers, *claims(events.rows), limits)
    return apply(limited(FrameTable(events.buffers, rows, (), PAIRS, events), fault), errors, bad)


def unroll(events: FrameTable) -> np.ndarray:
    """Int64 array: the sequence numbers of lumberjack.events, with 2**32 added for each roll-over before them.

    A number below that of the good event before has rolled over, as the protocol says; but where a new window begins,
    only if it falls by 2**31 or more: most writers begin each window at 1. Of tables that are joined, ask each before:
    their windows are counted from 0 in each. Raises TypeError for another table.
    """
    _refuse_unless(events, EVENT, "sequence numbers are those of a table of lumberjack.events")
    return unrolled(events.rows)


def _refuse_unless(table: Any, dtype: np.dtype, what: str) -> None:
    if not isinstance(table, FrameTable) or table.dtype != dtype:
        raise TypeError(f"{what}, not of {getattr(table, 'name', type(table).__name__)}")


def _unpacked(frames: FrameTable, errors: str, check: bool, limits: Limits, depth: int, to_events: bool) -> FrameTable:
    check_mode(errors, limits)
    _refuse_unless(frames, FRAME, "events are those of a table of lumberjack.frames")
    depth = operator.index(depth)
    if not 1 <= depth <= DEEPEST:
        raise ValueError(f"depth must be from 1 to {DEEPEST}, not {depth!r}")
    outer, again = (frames, False) if frames.outer is None else (frames.outer, True)
    rows, buffers, arena, opened = frames.rows, frames.buffers, None, False
    while not opened:
        numbers = compressed(rows)
        depth -= 1
        last = depth == 0 or not len(numbers)
        if arena is None:
            arena = Arena(limits, USUAL_RATIO * int(rows["length"][numbers].sum(dtype=np.int64)))
        places = _inflated(rows[numbers], buffers, arena, len(frames.buffers), check)
        buffers = (*frames.buffers, *arena.buffers) if len(numbers) else buffers
        if len(buffers) > 1 << 16:
            raise ValueError("a table holds at most 65,536 buffers; open fewer frames at a time")
        rows, bad, fault = unpack(rows, buffers, numbers, places, again, last, to_events and last, limits)
        opened, again = last or fault != 0, True
    table = FrameTable(buffers, rows, (), EVENTS if to_events else FRAMES, outer, checked=check)
    return apply(limited(table, fault), errors, bad)


def _inflated(rows: np.ndarray, buffers: tuple[memoryview, ...], arena: Arena, held: int, check: bool) -> np.ndarray:
    """Spans of what compressed frames inflate to, where they do: their `fault` says why not, `kind` what is behind."""
    if not lie_inside(rows, buffers):
        raise ValueError("a row points outside its buffer")
    places = spans(rows)
    found = []
    stop = places["start"] + places["size"]
    for buffer, start, end in zip(places["buffer"].tolist(), places["start"].tolist(), stop.tolist()):
        try:
            (number, first, size), behind = arena.add_zlib(buffers[buffer][start:end], check)
            found.append((held + number, first, size, 0, behind))
        except CodecError as error:
            found.append((buffer, start, end - start, error.fault, 0))      # the row covers the payload as it lies
    columns = np.array(found, np.int64).reshape(-1, 5)
    for name, column in zip(("buffer", "start", "size", "fault", "kind"), columns.T):
        places[name] = column
    return places


FRAMES = Format(
    "lumberjack.frames", "what Beats, Logstash and their like send: windows, data, JSON, compressed frames, acks",
    FRAME, scan, children={"events": events}, kinds=KINDS, scan=scan_stream, spans=scan_streams,
    needed=needed, cuts=cuts, files=FILES)
EVENTS = Format(
    "lumberjack.events", "the data and JSON frames among them, those in compressed ones too", EVENT, events,
    within="lumberjack.frames", children={"pairs": pairs}, lists={"pairs": "count"}, local=("window",), kinds=KINDS)
PAIRS = Format(
    "lumberjack.pairs", "the keys and values of the data frames", PAIR, pairs, within="lumberjack.events")
FORMATS = (FRAMES, EVENTS, PAIRS)

# What holds a conversation, or needs pyarrow, is imported by who asks for it.
LATE = {"Receiver": "conversation", "Sender": "conversation", "Window": "conversation",
        "ConversationError": "conversation", "Reason": "refusal", "Server": "server", "Bounds": "server",
        "Client": "client", "documents": "columns"}


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATE[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *LATE]
