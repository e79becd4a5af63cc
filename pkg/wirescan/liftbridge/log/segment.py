"""One segment of a Liftbridge partition: look-up, reading a slice, and comparison with its index.

A look-up starts at a record that the index names, if the record's header confirms the index entry.
Otherwise it starts at the first record of the segment. From there it reads record after record. So
a damaged index cannot make the result wrong. A forged index can, if a value holds records.
`index_files.py` describes the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.source import MappedFile
from wirescan.frames.errors import HARD
from wirescan.frames.limits import Limits
from wirescan.frames.table import LARGEST_ROW, FrameTable, Stop
from wirescan.liftbridge.formats import ENTRIES
from wirescan.liftbridge.log import index_files
from wirescan.liftbridge.log.index_files import SMALLEST
from wirescan.liftbridge.scan import ENTRY, scan_entries

WINDOW = 16 << 10  # bytes of the first window of a walk; each next window is twice as large

# A disagreement of an index and its segment. `entry` is -1 for a record without an index entry.
DISAGREEMENT = np.dtype(
    [(name, np.int64) for name in ("base_offset", "entry", "position", "offset")]
)


class Match(NamedTuple):
    """Byte positions of a record in a segment.

    start: the record's start. before_damage: the start of damage before the record that may hide
    the goal; without such damage, the record's start.
    """

    before_damage: int
    start: int


@dataclass(frozen=True)
class CommitLogSegment:
    """A segment of a partition directory.

    base_offset: the offset in the file's name. path: of the .log. size: bytes that the .log had.
    newest: whether it is the newest segment of its directory. Only the newest segment may end
    inside a record.
    """

    base_offset: int
    path: str
    size: int
    newest: bool

    def read_index(self) -> np.ndarray:
        """Return the entries of the .index, as an array of dtype INDEX.

        The columns are `offset`, `timestamp`, `position` and `size`, all i8. The array is empty
        without the file. Raises the errors of `wirescan.liftbridge.log.index_files.read_index`.
        """
        path = index_files.make_index_path(self.path)
        if not os.path.exists(path):
            return np.empty(0, index_files.INDEX)
        return index_files.read_index(path)

    def view(self) -> memoryview:
        """Map the segment's bytes. Raises OSError, and EOFError if the file has become shorter."""
        return memoryview(MappedFile(self.path, self.size) if self.size else b"")

    def is_torn(self, rest: memoryview) -> bool:
        """Return whether leftover bytes at the segment's end are damage.

        They are not in the newest segment, and not if they are zeros.
        """
        return not self.newest and bool(np.frombuffer(rest, np.uint8).any())


def find_record(segment: CommitLogSegment, column: str, goal: int, limits: Limits) -> Match | None:
    """Return the first record whose `offset` or `timestamp` is not below a goal.

    Returns None if there is no such record, and no damage that may hide it.
    """
    view = segment.view()
    ended = _find_first_position(segment, view, column, goal)
    is_whole = True
    for rows in walk(view, ended, limits):
        good = rows["fault"] == 0
        ends = rows["start"] + rows["size"]
        for i in np.flatnonzero(good & (rows[column] >= goal))[:1]:
            start = int(rows["start"][i])
            if column == "offset" and rows["offset"][i] == goal:
                return Match(start, start)  # damage before the record cannot hide its offset
            return Match(int(ends[:i][good[:i]].max(initial=ended)), start)
        if len(rows):
            is_whole = bool(good[-1])
            ended = int(ends[good].max(initial=ended))
    if is_whole and not segment.is_torn(view[ended:]):
        return None
    return Match(ended, len(view))


def _find_first_position(
    segment: CommitLogSegment, view: memoryview, column: str, goal: int
) -> int:
    """Return the position at which a look-up starts: a record before the goal, or 0."""
    path = index_files.make_index_path(segment.path)
    if column == "offset":
        hint, _ = index_files.find_around(path, column, goal)
    else:
        hint = index_files.find_before_time(path, goal, segment.size // SMALLEST)
    return hint.position if hint and _is_confirmed_in(view, hint) else 0


def _is_confirmed_in(view: memoryview, entry: index_files.Entry) -> bool:
    header = view[entry.position : entry.position + index_files.HEADER.size]
    return entry.position >= 0 and index_files.is_confirmed(entry, header)


def walk(view: memoryview, start: int, limits: Limits) -> Iterator[np.ndarray]:
    """Yield the rows of the records from byte position `start`, in windows that grow.

    start: the start of a record. Bad rows are included, as in the mode "mark". The column `start`
    counts from the first byte of the view.
    """
    limits = Limits(frame=limits.frame)
    size = WINDOW
    is_last = False
    while start < len(view) and not is_last:
        is_last = size >= len(view) - start
        rows, bad, fault, used = scan_entries(
            view[start : start + size],
            check=True,
            resync=is_last,
            limits=limits,
            more=not is_last,
        )
        if not is_last and (bad or fault >= HARD):
            # The end of the damage depends on the rest of the segment, so scan all of it.
            is_last = True
            rows, _, _, used = scan_entries(view[start:], check=True, resync=True, limits=limits)
        rows = rows.copy()
        rows["start"] += start
        yield rows
        start += used
        size *= 2


def read_slice(
    segment: CommitLogSegment, start: int, stop: int, limits: Limits, *, check: bool = True
) -> FrameTable:
    """Return the records between two byte positions, as a table in the mode "mark".

    Bad rows are included. A record that `stop` cuts is bad. So are torn bytes at the end of the
    segment.
    """
    view = segment.view()[start:stop]
    rows, _, fault, used = scan_entries(view, check=check, resync=True, limits=limits)
    is_cut = used < len(view) and fault < HARD
    if is_cut and (stop < segment.size or segment.is_torn(view[used:])):
        gap = np.zeros(-(-(len(view) - used) // LARGEST_ROW), ENTRY)
        gap["start"] = used + LARGEST_ROW * np.arange(len(gap))
        gap["size"] = np.minimum(len(view) - gap["start"], LARGEST_ROW)
        gap["parent"] = -1
        gap["fault"] = Fault.BAD_LENGTH
        rows = np.concatenate([rows, gap])
        fault = Fault.OK
        used = len(view)
    rows.flags.writeable = False
    return FrameTable(
        (view,),
        rows,
        (Stop(int(fault), used),),
        ENTRIES,
        origins=(start,),
        checked=check,
        errors="mark",
    )


def find_disagreements(segment: CommitLogSegment, limits: Limits) -> np.ndarray:
    """Return where a segment and its index disagree, as described at `CommitLog.verify`."""
    entries = index_files.read_unchecked(index_files.make_index_path(segment.path))
    rows = np.concatenate([np.empty(0, ENTRY), *walk(segment.view(), 0, limits)])
    rows = rows[rows["fault"] == 0]
    numbers = np.minimum(np.searchsorted(rows["start"], entries["position"]), len(rows) - 1)
    has_record = np.isin(entries["position"], rows["start"])
    is_repeated = np.ones(len(entries), bool)
    is_repeated[np.unique(entries["position"], return_index=True)[1]] = False
    is_wrong = ~has_record | is_repeated
    for name in ("offset", "timestamp", "size"):
        is_wrong[has_record] |= entries[name][has_record] != rows[name][numbers[has_record]]
    unlisted = rows[~np.isin(rows["start"], entries["position"])]
    wrong = np.flatnonzero(is_wrong)
    out = np.full(len(wrong) + len(unlisted), -1, DISAGREEMENT)
    out["base_offset"] = segment.base_offset
    out["entry"][: len(wrong)] = wrong
    out["position"] = np.concatenate([entries["position"][is_wrong], unlisted["start"]])
    out["offset"] = np.concatenate([entries["offset"][is_wrong], unlisted["offset"]])
    return out
