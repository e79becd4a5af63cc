"""Frames that some readers of Lumberjack accept and others refuse.

`receiver.py` uses it: a strict Receiver refuses these frames, and a lenient Receiver accepts them.

The readers are logstash-input-beats, go-lumber, ruby-lumberjack and Vector. docs/lumberjack.md,
section 16, has the table of these frames. Both Receivers refuse what all of these readers refuse:
bytes that are not a frame, a JSON frame of no bytes, zlib data that is damaged or in another
format, and a frame that the end of its compressed frame cuts. Both refuse frames deeper than
`depth` or above a limit. There is one exception: a lenient Receiver does not parse documents, so it
accepts documents that are not JSON.
"""

from __future__ import annotations

import json

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.constants import Kind
from wirescan.lumberjack.live.conversation_errors import Reason

LARGEST_SEQUENCE = 0x7FFFFFFF  # logstash-input-beats reads a larger number as negative


def mark_tolerable_ends(flat: FrameTable) -> np.ndarray:
    """Return an array of bool: which bad rows only report the end of a compressed frame.

    flat: a result of `plain`. Some readers accept the compressed frames of these rows.
    """
    fault = flat["fault"]
    mask: np.ndarray = (fault == Fault.LEFTOVER) | (fault == Fault.TRUNCATED) & (flat["size"] == 0)
    return mask


def find_offence(
    frames: FrameTable, flat: FrameTable, events: FrameTable, version: int, largest_window: int
) -> tuple[Reason, FrameTable, int] | None:
    """Return (reason, table, row) of the first frame that a strict reader refuses, or None.

    The frames before it are not taken into account.

    frames: table of lumberjack.frames. flat: the result of `plain` for `frames`. events: the events
    in it, without bad rows. version: of the first frame. largest_window: events in a window.
    """
    kind = flat["kind"]
    fault = flat["fault"]
    is_json = kind == Kind.JSON
    is_data = kind == Kind.DATA
    is_window = kind == Kind.WINDOW
    other_version = flat["version"] != version
    wrong_version = is_json & (flat["version"] == 1) | is_data & (flat["version"] == 2)
    large_sequence = (is_json | is_data) & (flat["sequence"] > LARGEST_SEQUENCE)
    # If one frame has several offences, the first of the list is reported.
    checks = [
        (Reason.ACK_FROM_WRITER, flat, kind == Kind.ACK),
        (Reason.WRONG_VERSION, flat, wrong_version),
        (Reason.MIXED_VERSIONS, frames, frames["version"] != version),
        (Reason.MIXED_VERSIONS, flat, (fault == 0) & other_version),
        (Reason.LARGE_WINDOW, flat, is_window & (flat["count"] > largest_window)),
        (Reason.WINDOW_INSIDE, flat, is_window & (flat["depth"] > 0)),
        (Reason.LARGE_SEQUENCE, flat, large_sequence),
        (Reason.NO_PAIRS, flat, is_data & (flat["count"] == 0)),
        (Reason.CUT_PAYLOAD, flat, fault == Fault.TRUNCATED),
        (Reason.LONG_PAYLOAD, flat, fault == Fault.LEFTOVER),
        (Reason.NOT_AN_OBJECT, events, _mark_first_non_object(events)),
    ]
    if flat is not frames:
        is_empty = frames["kind"] == Kind.COMPRESSED
        is_empty[flat["parent"]] = False
        checks.append((Reason.EMPTY_PAYLOAD, frames, is_empty))
    offences = [(reason, table, int(mask.argmax())) for reason, table, mask in checks if mask.any()]
    return min(offences, key=lambda offence: find_wire_row(offence[1], offence[2]), default=None)


def find_wire_row(table: FrameTable, row: int) -> int:
    """Return the row of the frame on the wire that holds a row."""
    return row if table.outer is None else int(table["parent"][row])


def _mark_first_non_object(events: FrameTable) -> np.ndarray:
    """Return an array of bool: the first JSON frame whose document is not a JSON object."""
    mask = np.zeros(len(events), bool)
    for row in np.flatnonzero(events["json_size"] > 0).tolist():
        document = events.bytes(row, "json")
        assert document is not None  # its size is above 0
        if not _is_object(bytes(document)):
            mask[row] = True
            break
    return mask


def _is_object(document: bytes) -> bool:
    # Bytes in strings that are not UTF-8 and numbers of any size are accepted, because the parsers
    # of Logstash and go-lumber disagree on them. U+FFFD is legal in strings only, so elsewhere such
    # bytes are refused.
    try:
        value = json.loads(
            document.decode(errors="replace"), parse_int=float, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")
