"""One segment of a Liftbridge partition: look-up in it, a part of it, and whether its index tells the truth.

A look-up begins at the entry that the index names, where that entry bears the index out, or else at the segment's first
one; from there it goes from entry to entry, so that no damaged index makes an answer wrong; a forged one can, where a
value holds records. index.py draws the files.
"""
from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wirescan.core.fault import Fault
from wirescan.errors import HARD
from wirescan.liftbridge import index
from wirescan.liftbridge.index import SMALLEST
from wirescan.liftbridge.scan import ENTRY, scan_entries
from wirescan.limits import Limits
from wirescan.source import MappedFile, beside
from wirescan.table import FrameTable, Stop

HEADER = struct.Struct(">qq8xI")        # offset, timestamp, leader epoch (not read here), bytes that follow
WINDOW = 16 << 10           # bytes that a walk looks at first; then twice as many, and so on
LARGEST_ROW = (1 << 32) - 1

# Of an index and its segment; `entry` is -1 for a record that has none.
DISAGREEMENT = np.dtype([(name, np.int64) for name in ("base_offset", "entry", "position", "offset")])


@dataclass(frozen=True)
class Segment:
    """A segment: the offset that it is named for, the path of its .log, how many bytes that had, and whether it is the
    newest of its directory: only that one may end inside an entry."""
    base_offset: int
    path: str
    size: int
    newest: bool

    def index(self) -> np.ndarray:
        """The .index: array of `offset`, `timestamp`, `position`, `size`, all i8; empty without the file. Raises as
        `wirescan.liftbridge.index.read_index`."""
        path = index_of(self.path)
        return index.read_index(path) if os.path.exists(path) else np.empty(0, index.INDEX)

    def view(self) -> memoryview:
        """Its bytes, mapped. Raises OSError, EOFError where the file has become shorter."""
        return memoryview(MappedFile(self.path, self.size) if self.size else b"")

    def is_torn(self, left: memoryview) -> bool:
        """Whether bytes left over at its end are damage: not in the newest, nor zeros, which are no entries."""
        return not self.newest and bool(np.frombuffer(left, np.uint8).any())


def index_of(path: str) -> str:
    """The path of the .index beside a .log."""
    return beside(path, ".index")


def is_confirmed(entry: index.Entry, header: memoryview) -> bool:
    """Whether the bytes that an entry of an index points at are the header that it tells of."""
    return len(header) == HEADER.size and HEADER.unpack(header) == (entry.offset, entry.timestamp,
                                                                    entry.size - HEADER.size)


def find(segment: Segment, column: str, goal: int, limits: Limits) -> tuple[int, int] | None:
    """Where the first entry begins whose `offset`, or `timestamp`, is not below a goal; None if there is none. Two
    positions: before damage that may hide the goal, and behind it; without any they are one."""
    view, path, ended, whole = segment.view(), index_of(segment.path), 0, True
    if column == "offset":
        hint, _ = index.around(path, column, goal)
    else:
        hint = index.before_time(path, goal, segment.size // SMALLEST)
    if hint and 0 <= hint.position and is_confirmed(hint, view[hint.position:hint.position + HEADER.size]):
        ended = hint.position
    for rows in walk(view, ended, limits):
        good, ends = rows["fault"] == 0, rows["start"] + rows["size"]
        for i in np.flatnonzero(good & (rows[column] >= goal))[:1]:
            at = int(rows["start"][i])
            if column == "offset" and rows["offset"][i] == goal:
                return at, at                           # damage before it cannot hide the offset
            return int(ends[:i][good[:i]].max(initial=ended)), at
        if len(rows):
            whole, ended = bool(good[-1]), int(ends[good].max(initial=ended))
    return None if whole and not segment.is_torn(view[ended:]) else (ended, len(view))


def walk(view: memoryview, at: int, limits: Limits) -> Iterator[np.ndarray]:
    """The rows of the entries from `at` on, where one begins, in windows that grow; bad ones too, as under "mark".
    `start` counts from the view's first byte."""
    limits, size, last = Limits(frame=limits.frame), WINDOW, False
    while at < len(view) and not last:
        last = size >= len(view) - at
        rows, bad, fault, used = scan_entries(view[at:at + size], True, last, limits, None, not last)
        if not last and (bad or fault >= HARD):         # how far damage reaches only the rest of the segment tells
            last, (rows, _, _, used) = True, scan_entries(view[at:], True, True, limits)
        rows = rows.copy()
        rows["start"] += at
        yield rows
        at, size = at + used, 2 * size


def part(segment: Segment, start: int, stop: int, limits: Limits, check: bool = True) -> FrameTable:
    """The entries between two positions, bad ones too, as a table in the mode "mark". What the second position cuts is
    bad, and so are torn bytes where the segment ends there."""
    from wirescan.liftbridge import ENTRIES
    view = segment.view()[start:stop]
    rows, _, fault, at = scan_entries(view, check, True, limits)
    if at < len(view) and fault < HARD and (stop < segment.size or segment.is_torn(view[at:])):
        gap = np.zeros(-(-(len(view) - at) // LARGEST_ROW), ENTRY)
        gap["start"] = at + LARGEST_ROW * np.arange(len(gap))
        gap["size"] = np.minimum(len(view) - gap["start"], LARGEST_ROW)
        gap["parent"], gap["fault"] = -1, Fault.BAD_LENGTH
        rows, fault, at = np.concatenate([rows, gap]), Fault.OK, len(view)
    rows.flags.writeable = False
    return FrameTable((view,), rows, (Stop(int(fault), at),), ENTRIES, origins=(start,), checked=check, errors="mark")


def disagreements(segment: Segment, limits: Limits) -> np.ndarray:
    """What of its index the records do not bear out, and what of them the index does not have: see `CommitLog.verify`.
    """
    listed = index.all_entries(index_of(segment.path))
    rows = np.concatenate([np.empty(0, ENTRY), *walk(segment.view(), 0, limits)])
    rows = rows[rows["fault"] == 0]
    places = np.minimum(np.searchsorted(rows["start"], listed["position"]), len(rows) - 1)
    there = np.isin(listed["position"], rows["start"])
    again = np.ones(len(listed), bool)
    again[np.unique(listed["position"], return_index=True)[1]] = False
    wrong = ~there | again
    for name in ("offset", "timestamp", "size"):
        wrong[there] |= listed[name][there] != rows[name][places[there]]
    unknown = rows[~np.isin(rows["start"], listed["position"])]
    numbers = np.flatnonzero(wrong)
    out = np.full(len(numbers) + len(unknown), -1, DISAGREEMENT)
    out["base_offset"], out["entry"][:len(numbers)] = segment.base_offset, numbers
    out["position"] = np.concatenate([listed["position"][wrong], unknown["start"]])
    out["offset"] = np.concatenate([listed["offset"][wrong], unknown["offset"]])
    return out
