"""Formats of Lumberjack, and the functions that read them.

These are scan, plain, events, pairs, unroll and documents.
The registry, the command line, exports and Spark find the formats here.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import lie_inside, spans
from wirescan.files.whole_source import scan_source
from wirescan.frames.arena import Arena
from wirescan.frames.columns import Column
from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.exchange import ExchangeFormat
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.optional_packages import name_package
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import MAX_BUFFERS, FrameTable, require_rows
from wirescan.lumberjack import exchanges
from wirescan.lumberjack.constants import KINDS
from wirescan.lumberjack.evidence import OPENINGS, weigh_frames, weigh_frames_alone
from wirescan.lumberjack.files import FILES, FINISHED, estimate_work, find_boundaries
from wirescan.lumberjack.meanings import MEANINGS
from wirescan.lumberjack.scan import (
    EVENT,
    FRAME,
    PAIR,
    bytes_needed,
    child_spans,
    find_compressed,
    open_pairs,
    scan_stream,
    scan_streams,
    unpack,
    unroll_sequences,
)

if TYPE_CHECKING:
    import pyarrow as pa

DEEPEST = 0xFFFF  # largest value of the column `depth`
# First guess of decompressed bytes for each compressed byte. Pages that are never written cost no
# memory.
USUAL_RATIO = 10
COMPRESSED_EVENT = 16  # bytes of an event in a compressed frame, about


def scan(
    source: Any,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
) -> FrameTable:
    """Return the frames in a source: a table of lumberjack.frames, dtype FRAME (40 bytes a row).

    source: anything that `wirescan.open` accepts. It holds the bytes of one direction of each
        connection, or of both directions if they are cut between frames.
    errors: "strict", "mark" or "skip". check: accepted for consistency; frames have no checksum.
    limits: bounds of the scan.
    into: writable array of dtype FRAME for the rows, for a source of one buffer.

    Versions and types may be mixed. Column `kind` is the type. `sequence` is the number of D, J and
    A. `count` is the number of events of W and of pairs of D. `length` is the number of bytes after
    the length field of J and C. A D without pairs and a W of no events are good. A J without a
    document has the fault EMPTY. `version` is 1 or 2. `depth` is the number of C around the frame.

    After damage there is no way to find the next frame. With errors="mark", the rest of the buffer
    is one bad row.

    Raises FrameError as `errors` says, OSError, and TypeError and ValueError for wrong arguments.
    Format: docs/lumberjack.md, "Frames".
    """
    return scan_source(source, FRAMES, errors, check, limits, into)


def plain(
    frames: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    depth: int = 1,
) -> FrameTable:
    """Return frames with each compressed frame replaced by the frames inside it: dtype FRAME.

    frames: table of lumberjack.frames. check: verify Adler-32.
    errors: "strict", "mark" or "skip". None, the default: as in `frames.errors`.
    limits: bounds of the decompressed payloads and of the rows.
    depth: how many compressed frames may be nested, 1 to 65,535. A deeper one is a bad row, NESTED.

    Column `parent` is the row in `frames`. Column `depth` is the number of compressed frames around
    a frame. Decompressed payloads are new buffers of the table.

    A compressed frame that cannot be decompressed is one bad row over its payload. Some ends of a
    zlib stream are accepted by some readers only. Then the frames are kept, and a bad row of no
    bytes follows them. Its fault is TRUNCATED if the zlib stream has no end or no Adler-32, and
    LEFTOVER if bytes follow the stream. So "strict" reports the fault, and "skip" accepts what any
    reader accepts.

    Raises as `scan`, and FrameError(LIMIT) if there are more rows than the limits allow.
    Format: docs/lumberjack.md, "Compressed frames".
    """
    return _unpack_frames(
        frames, errors=errors, check=check, limits=limits, depth=depth, to_events=False
    )


def events(
    frames: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    depth: int = 1,
) -> FrameTable:
    """Return the data and JSON frames: a table of lumberjack.events, dtype EVENT (48 bytes a row).

    frames: table of lumberjack.frames, or a result of `plain`.

    The table includes the events in compressed frames, in the order of the stream. Bad frames are
    rows too. Column `parent` is the row of lumberjack.frames. `window` is the number of the event's
    window, from 0 in each table, and -1 before the first window. `count` is the number of pairs of
    a data frame. `sequence`, `version` and `depth` mean the same as in lumberjack.frames. Place:
    json, null for a data frame.

    The other arguments and errors are those of `plain`.
    Format: docs/lumberjack.md, "Events".
    """
    return _unpack_frames(
        frames, errors=errors, check=check, limits=limits, depth=depth, to_events=True
    )


def write_events(frames: FrameTable, writer: ColumnWriter, *, check: bool, limits: Limits) -> None:
    """Read the data and JSON frames into a writer of columns.

    frames: table of lumberjack.frames. check, limits: as in `events`.
    """
    require_rows(frames, FRAME, "events are those of a table of lumberjack.frames")
    _open_levels(frames, check=check, limits=limits, depth=1, to_events=True, writer=writer)


def _expect_events(frames: FrameTable) -> np.ndarray | None:
    """Return about how many events each frame has (i8); None if no frame is compressed."""
    compressed = find_compressed(frames.rows)
    if not len(compressed):
        return None
    expected = np.ones(len(frames), np.int64)
    expected[compressed] = frames["length"][compressed] // COMPRESSED_EVENT
    return expected


def _is_compressed(frames: FrameTable) -> np.ndarray:
    """Return which frames are compressed: a bool array."""
    is_compressed = np.zeros(len(frames), bool)
    is_compressed[find_compressed(frames.rows)] = True
    return is_compressed


def pairs(
    events: FrameTable, *, errors: str | None = None, check: bool = True, limits: Limits = Limits()
) -> FrameTable:
    """Return the pairs of data frames: a table of lumberjack.pairs, dtype PAIR (40 bytes a row).

    events: table of lumberjack.events. check: accepted for consistency; pairs have no checksum.
    errors: "strict", "mark" or "skip". None, the default: as in `events.errors`.

    Column `parent` is the pair's row in `events`. Places: key and value, bytes that need not be
    UTF-8. Duplicate keys are kept, in the order of the wire; readers use the last one.
    Raises as `events`.
    """
    errors = resolve_mode(errors, events, limits)
    require_rows(events, EVENT, "pairs are those of a table of lumberjack.events")
    rows, bad, fault = open_pairs(events.rows, events.buffers, *child_spans(events.rows), limits)
    table = FrameTable(events.buffers, rows, (), PAIRS, events)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def unroll(events: FrameTable) -> np.ndarray:
    """Return an int64 array: the events' sequence numbers, plus 2**32 for each roll-over before.

    events: table of lumberjack.events. If tables are joined, call this for each table before that,
        because the windows of each table are numbered from 0.

    A number has rolled over if it is below the number of the good event before it. At the start of
    a window this counts only if the number falls by 2**31 or more, because most writers begin each
    window at 1. Raises TypeError for another table.
    """
    require_rows(events, EVENT, "sequence numbers are those of a table of lumberjack.events")
    return unroll_sequences(events.rows)


def _unpack_frames(
    frames: FrameTable,
    *,
    errors: str | None,
    check: bool,
    limits: Limits,
    depth: int,
    to_events: bool,
) -> FrameTable:
    errors = resolve_mode(errors, frames, limits)
    require_rows(frames, FRAME, "events are those of a table of lumberjack.frames")
    depth = operator.index(depth)
    if not 1 <= depth <= DEEPEST:
        raise ValueError(f"depth must be from 1 to {DEEPEST}, not {depth!r}")
    outer, buffers, rows, bad, fault = _open_levels(
        frames, check=check, limits=limits, depth=depth, to_events=to_events
    )
    table = FrameTable(buffers, rows, (), EVENTS if to_events else FRAMES, outer, checked=check)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


class _Unpacked(NamedTuple):
    """The frames or events in a table of frames.

    Attributes:
        outer: the table that the column `parent` of the rows is about.
        buffers: the buffers that the rows point into.
        rows: the rows. With a writer of columns there are none.
        bad: the number of bad rows.
        fault: LIMIT if there are more rows than the limits allow, else OK.
    """

    outer: FrameTable | None
    buffers: tuple[memoryview, ...]
    rows: np.ndarray
    bad: int
    fault: int


def _open_levels(
    frames: FrameTable,
    *,
    check: bool,
    limits: Limits,
    depth: int,
    to_events: bool,
    writer: ColumnWriter | None = None,
) -> _Unpacked:
    """Return the frames in frames, up to `depth` levels of compressed ones opened.

    to_events: return events instead.
    writer: takes the rows of the events.

    The other arguments are those of `events`. Raises ValueError for more than 65,536 buffers.
    """
    # Frames of a capture have an outer table too: that of the streams.
    was_unpacked = frames.outer is not None and frames.outer.dtype == FRAME
    outer = frames.outer if was_unpacked else frames
    rows = frames.rows
    buffers = frames.buffers
    arena = None
    is_finished = False
    while not is_finished:  # each turn opens one more level of compressed frames
        numbers = find_compressed(rows)
        depth -= 1
        last = depth == 0 or not len(numbers)
        if arena is None:
            arena = Arena(limits, USUAL_RATIO * int(rows["length"][numbers].sum(dtype=np.int64)))
        payloads = _decompress(rows[numbers], buffers, arena, len(frames.buffers), check=check)
        buffers = (*frames.buffers, *arena.buffers) if len(numbers) else buffers
        if len(buffers) > MAX_BUFFERS:
            raise ValueError("a table holds at most 65,536 buffers; open fewer frames at a time")
        rows, bad, fault = unpack(
            rows,
            buffers,
            numbers,
            payloads,
            again=was_unpacked,
            last=last,
            events=to_events and last,
            limits=limits,
            writer=writer if last else None,
        )
        is_finished = last or fault != 0
        was_unpacked = True
    return _Unpacked(outer, buffers, rows, bad, fault)


def _decompress(
    rows: np.ndarray,
    buffers: tuple[memoryview, ...],
    arena: Arena,
    first_buffer: int,
    *,
    check: bool,
) -> np.ndarray:
    """Return an array of dtype HEAD: the places of the decompressed payloads of compressed frames.

    first_buffer: number of the arena's first buffer in the table.
    `fault` says why a payload was not decompressed; then the place is that of the payload itself.
    `kind` is the fault at the end of the zlib stream, or 0.
    """
    if not lie_inside(rows, buffers):
        raise ValueError("a row points outside its buffer")
    places = spans(rows)
    if not len(places):
        return places
    results = arena.add_zlib_with_ends(buffers, places, check=check)
    good = results["fault"] == 0
    # The sum is refused later if it is not a number of a buffer.
    results["buffer"] = results["buffer"].astype(np.int64) + first_buffer
    for name in ("buffer", "start", "size", "kind"):
        np.copyto(places[name], results[name], where=good)
    places["fault"] = results["fault"]
    return places


def documents(
    events: FrameTable,
    *,
    schema: pa.Schema | None = None,
    others: bool = False,
    errors: str | None = None,
    limits: Limits = Limits(),
) -> pa.Table:
    """Return events as an Arrow table, row for row, with their JSON documents parsed.

    events: table of lumberjack.events.
    schema: the wanted fields and their types. The types are those that pyarrow.json.read_json
        accepts. Other fields are discarded unless `others` is set. A field of type string accepts
        any value: a value that is not a string becomes its JSON text.
    others: also keep the fields that `schema` does not have.
    errors: what happens to a refused document. "strict" raises. "mark" keeps the row. "skip"
        discards the row, and also rows of bad events. None: as in `events.errors`.
    limits: bounds for the pairs.

    Columns of the result:

    - sequence uint32, version uint16, window int32, fault (its name, or null): as in the events.
    - pairs: map<binary, binary>, the pairs of a data frame in the order of the wire, duplicates
      included; null for other events.
    - document: struct, the fields of the JSON document; null if the event has none or it is
      refused.
    - refused: string, the reason why the document is refused, or null.

    `pyarrow.Table.from_struct_array(table["document"])` has the fields as columns, with the same
    rows. Memory is proportional to the number of rows times the number of fields.

    Without a schema, or with `others`, types are inferred from all documents. The inferred types
    are null, bool, int64, double, string, struct and list. Numbers are double if one of them is not
    an int64. A list is of string if no such list has a value. `@metadata` is a struct like any
    other. Strings are not parsed as dates, with one exception: "@timestamp", unless the schema has
    it, is timestamp[ns, UTC]. It accepts dates and times such as 2020-01-31T12:30:59.123Z: a date
    with hyphens, then optionally "T" or a blank and a time with colons. Minutes, seconds and up to
    9 digits after a point may be missing. An offset is Z, +hh, +hhmm or +hh:mm, below 24 hours.
    Without an offset the time is UTC. Other forms of ISO 8601 are refused: those without hyphens or
    colons, ordinal and week dates, a comma before the digits, and the hour 24. So are leap seconds,
    and times outside the years 1677 to 2262.

    A document is refused for these reasons:

    - It is not one object in UTF-8. No bytes are replaced. A strict receiver accepts bytes in
      strings that are not UTF-8, so documents that it accepted may be refused here.
    - An object has the name of a kept field twice.
    - A string has half a surrogate pair.
    - A number is too large for a double, or has more than 300 digits.
    - More than 50 objects and arrays are nested, or there are more than 8,192 objects and members.
    - It has 1 GiB or more.
    - A value does not have the type of its field. The type is given, or was inferred from earlier
      events. So fields that change their type need a schema.

    Raises ImportError without pyarrow. Raises TypeError for other tables. Raises ValueError for a
    schema that the parser does not accept, and for more than 1,000 inferred fields. Raises
    ValueError for 2 GiB of keys or values of pairs. With "strict", raises ValueError for a refused
    document; the message has its row, the reason and its first bytes. Raises FrameError for pairs,
    as `errors` says.
    """
    with name_package("pyarrow", "documents", "'wirescan[arrow]'"):
        from wirescan.lumberjack.json_documents import parse_events

    return parse_events(events, schema=schema, others=others, errors=errors, limits=limits)


EXCHANGES = ExchangeFormat(
    "lumberjack.exchanges",
    "windows of events with the acks of their last events, from captures",
    exchanges.EXCHANGE_COLUMNS,
    partial(exchanges.pair_windows, open_events=events),
    meanings=MEANINGS["lumberjack.exchanges"],
)
FRAMES = Format(
    "lumberjack.frames",
    "frames of Beats and Logstash: windows, data, JSON, compressed frames, acks",
    FRAME,
    scan,
    children={"events": events},
    columns={"kind": Column(names=KINDS)},
    parser=Parser(
        scan=scan_stream,
        spans=scan_streams,
        bytes_needed=bytes_needed,
        expect_inside=_expect_events,
        is_deflated=_is_compressed,
        writes_columns=True,
    ),
    conversation=Conversation(
        ports=(5044, 5043), openings=OPENINGS, weigh_after_gap=weigh_frames_alone
    ),
    exchange=EXCHANGES,
    storage=Storage(
        files=FILES,
        finished=FINISHED,
        text_marks=(b"1", b"2"),  # the versions
        weigh=weigh_frames,
        evidence="their versions, types and numbers are likely",
        boundaries=find_boundaries,
        estimate_work=estimate_work,
    ),
    display=Display(shown=("_start", "size", "kind", "version", "sequence", "count")),
    meanings=MEANINGS["lumberjack.frames"],
)
EVENTS = Format(
    "lumberjack.events",
    "the data and JSON frames, including those in compressed frames",
    EVENT,
    events,
    write=write_events,
    within="lumberjack.frames",
    children={"pairs": pairs},
    columns={
        "kind": Column(names=KINDS),
        "window": Column(local=True),
        "pairs": Column(count="count"),
    },
    display=Display(
        shown=("_start", "kind", "sequence", "json", "pairs"),
        counted_as="events",
        summary=SummaryColumns(sizes=True),
    ),
    meanings=MEANINGS["lumberjack.events"],
)
PAIRS = Format(
    "lumberjack.pairs",
    "the keys and values of the data frames",
    PAIR,
    pairs,
    within="lumberjack.events",
    display=Display(shown=("_start", "key", "value"), grouped_by="key"),
    meanings=MEANINGS["lumberjack.pairs"],
)
FORMATS = (FRAMES, EVENTS, PAIRS)
