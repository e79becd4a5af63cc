"""What some readers of Lumberjack take and others do not: a strict Receiver refuses it, a lenient one takes it.

Readers: logstash-input-beats 7.0.9 (L), go-lumber 0.2.0 (G), ruby-lumberjack 0.0.26 (R), Vector of 2026 (V). What all
of them refuse, both Receivers do: what is no frame, a JSON frame of no bytes, zlib data that is damaged or something
else, a frame that the end of its compressed frame cuts; and what lies deeper than `depth`, or above a limit.

    what comes                             taken by  strict            lenient
    fewer events than the window said      R         SHORT_WINDOW      the next W ends it: a window of those that came
    more events than it said               R         SURPLUS_EVENT     they are a window, with those of the same chunk
    events before any window               R         NO_WINDOW         the same
    W(n), n > largest_window               L R       LARGE_WINDOW      nothing is allocated for it
    W(0)                                   all       an empty window, acked with 0
    a window over several C, or mixed      L R       SPLIT_WINDOW      one window
    W inside a C, several in one           L R       WINDOW_INSIDE     windows like others
    J of version 1, D of version 2         R V       WRONG_VERSION     events like others
    versions mixed otherwise               L R       MIXED_VERSIONS    a window is acked in the version of its W
    a sequence number of 2**31 or more     G R       LARGE_SEQUENCE    acked like others
    D without pairs                        G         NO_PAIRS          an event without fields
    J that is no object                    G R       NOT_AN_OBJECT     an event
    zlib data without an end               L G       CUT_PAYLOAD       what it inflates to
    zlib data without its Adler-32         L         CUT_PAYLOAD       the same
    C of no bytes                          L         CUT_PAYLOAD       no events
    bytes behind the zlib data             L G R     LONG_PAYLOAD      left out
    a second zlib stream behind it         L R       LONG_PAYLOAD      left out
    C that holds no frames                 L R       EMPTY_PAYLOAD     no events
    A from a writer                        V         ACK_FROM_WRITER   left out
    C inside a C                           L G R     refused, NESTED, with depth=1; taken up to a larger `depth`
"""
from __future__ import annotations

import numpy as np

from wirescan.core.fault import Fault
from wirescan.lumberjack import Kind
from wirescan.lumberjack.refusal import Reason
from wirescan.table import FrameTable

BLANK = b" \t\r\n"          # of JSON


def tolerable(flat: FrameTable) -> np.ndarray:
    """Array of bool: which rows of what `plain` gave only tell how a compressed frame ends that some readers take."""
    fault = flat["fault"]
    return (fault == Fault.LEFTOVER) | (fault == Fault.TRUNCATED) & (flat["size"] == 0)


def offence(frames: FrameTable, flat: FrameTable, events: FrameTable, version: int,
            largest_window: int) -> tuple[Reason, FrameTable, int] | None:
    """The first frame that a strict reader does not take, whatever precedes it: why, and its table and row there.

    flat: what `plain` made of `frames`. events: those in it, without bad rows. version: of the first frame.
    """
    kind, fault, good = flat["kind"], flat["fault"], flat["fault"] == 0
    is_json, is_data = kind == Kind.JSON, kind == Kind.DATA
    checks = [
        (Reason.ACK_FROM_WRITER, flat, kind == Kind.ACK),
        (Reason.WRONG_VERSION, flat, is_json & (flat["version"] == 1) | is_data & (flat["version"] == 2)),
        (Reason.MIXED_VERSIONS, frames, frames["version"] != version),
        (Reason.MIXED_VERSIONS, flat, good & (flat["version"] != version)),
        (Reason.LARGE_WINDOW, flat, (kind == Kind.WINDOW) & (flat["count"] > largest_window)),
        (Reason.WINDOW_INSIDE, flat, (kind == Kind.WINDOW) & (flat["depth"] > 0)),
        (Reason.LARGE_SEQUENCE, flat, (is_json | is_data) & (flat["sequence"] > 0x7FFFFFFF)),
        (Reason.NO_PAIRS, flat, is_data & (flat["count"] == 0)),
        (Reason.CUT_PAYLOAD, flat, fault == Fault.TRUNCATED),
        (Reason.LONG_PAYLOAD, flat, fault == Fault.LEFTOVER),
        (Reason.NOT_AN_OBJECT, events, _no_object(events)),
    ]
    if flat is not frames:
        is_empty = frames["kind"] == Kind.COMPRESSED
        is_empty[flat["parent"]] = False
        checks.append((Reason.EMPTY_PAYLOAD, frames, is_empty))
    found = [(reason, table, int(mask.argmax())) for reason, table, mask in checks if mask.any()]
    return min(found, key=lambda one: _wire_row(one[1], one[2]), default=None)


def _wire_row(table: FrameTable, row: int) -> int:
    return row if table.outer is None else int(table["parent"][row])


def _no_object(events: FrameTable) -> np.ndarray:
    """Array of bool: the JSON frames whose document does not begin as an object."""
    found = np.zeros(len(events), bool)
    for number in np.unique(events["buffer"]):
        at = np.flatnonzero((events["buffer"] == number) & (events["json_size"] > 0))
        data = np.frombuffer(events.buffers[number], np.uint8)
        found[at] = data[events["start"][at] + events["json_at"][at]] != ord("{")
    for row in np.flatnonzero(found).tolist():          # blanks may precede it
        document = events.bytes(row, "json")
        found[row] = next((byte for byte in document if byte not in BLANK), 0) != ord("{")
    return found
