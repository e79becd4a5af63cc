"""One segment of a partition: the files beside it, a walk over its batches, and look-up by offset and by time.

A look-up begins at the batch that an index names, where that batch bears the index out, or else at the segment's first
one; from there it goes from batch to batch, so that no index makes an answer wrong. index.py draws the files.
"""
from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.errors import HARD
from wirescan.kafka import index
from wirescan.kafka.scan import BATCH, scan_batches
from wirescan.limits import Limits
from wirescan.source import MappedFile
from wirescan.table import FrameTable, Stop

WINDOW = 16 << 10           # bytes that a walk looks at first; then twice as many, and so on
LARGEST_ROW = (1 << 32) - 1
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
LENGTH = struct.Struct(">8xi")          # how many bytes follow it: so every batch begins


@dataclass(frozen=True)
class Segment:
    """A segment: the offset that it is named for, the path of its .log, how many bytes that had, and whether it is the
    newest of its directory: only that one may end inside a batch, the others with a batch or in zeros.

    The three indexes are read when asked; without the file they are empty arrays. They raise as the functions of
    wirescan.kafka.index do.
    """
    base_offset: int
    path: str
    size: int
    newest: bool

    def beside(self, suffix: str) -> str:
        """The path of the file with another suffix."""
        return self.path[:-len("log")] + suffix

    def offset_index(self) -> np.ndarray:
        """The .index: array of `offset` i8, `position` i8."""
        return self._read("index", index.offset_index, index.OFFSETS)

    def time_index(self) -> np.ndarray:
        """The .timeindex: array of `timestamp` i8 (milliseconds), `offset` i8."""
        return self._read("timeindex", index.time_index, index.TIMES)

    def transaction_index(self) -> np.ndarray:
        """The .txnindex: array of `producer_id`, `first_offset`, `last_offset`, `last_stable_offset`, all i8."""
        return self._read("txnindex", index.transaction_index, index.ABORTED)

    def _read(self, suffix: str, read: Callable[[str], np.ndarray], dtype: np.dtype) -> np.ndarray:
        path = self.beside(suffix)
        return read(path) if os.path.exists(path) else np.empty(0, dtype)

    def view(self) -> memoryview:
        """Its bytes, mapped. Raises OSError, EOFError where the file has become shorter."""
        return memoryview(MappedFile(self.path, self.size) if self.size else b"")

    def is_torn(self, left: memoryview) -> bool:
        """Whether bytes left over at its end are damage: not in the newest, nor zeros, which brokers preallocate."""
        return not self.newest and bool(np.frombuffer(left, np.uint8).any())


class Found(NamedTuple):
    """What a look-up ends at: the row of a batch, whose `start` counts from the segment's first byte, or None where
    the rest of the segment is damaged; and the position to read from, which is before damage that may hide the goal."""
    position: int
    row: np.void | None


def find(segment: Segment, view: memoryview, offset: int, limits: Limits) -> Found | None:
    """The first batch in a segment, whose bytes are `view`, that reaches an offset; None if none does."""
    hint = _hint(segment.beside("index"), OFFSET_ENTRY, lambda entry: segment.base_offset + entry[0] <= offset)
    row = _batch_at(view, hint[1], limits) if hint else None
    begin = int(row["start"]) if row is not None and row["base_offset"] <= offset else 0
    found = _search(segment, view, begin, limits, lambda rows: rows["last_offset"] >= offset)
    if found and found.row is not None and found.row["base_offset"] <= offset:
        return Found(int(found.row["start"]), found.row)        # damage before it cannot hide the offset
    return found


def find_time(segment: Segment, view: memoryview, timestamp: int, limits: Limits) -> Found | None:
    """The first batch in a segment, whose bytes are `view`, with a record of a time or later, or with bad records."""
    begin, hint = 0, _hint(segment.beside("timeindex"), TIME_ENTRY, lambda entry: entry[0] < timestamp)
    if hint:
        named = find(segment, view, segment.base_offset + hint[1], limits)
        if named and named.row is not None and named.row["max_timestamp"] == hint[0]:
            begin = int(named.row["start"])

    def holds(rows: np.ndarray) -> bool:
        from wirescan.kafka import records
        found = records(table_of(rows, view), errors="mark", limits=limits)
        return bool((found.bad | (found["timestamp"] >= timestamp)).any())
    return _search(segment, view, begin, limits, lambda rows: rows["max_timestamp"] >= timestamp, holds)


def walk(view: memoryview, at: int, limits: Limits) -> Iterator[np.ndarray]:
    """The rows of the batches from `at` on, where one begins, in windows that grow; bad ones too, as `kafka.scan` under
    "mark" gives them. `start` counts from the view's first byte."""
    limits, size, last = Limits(frame=limits.frame), WINDOW, False
    while at < len(view) and not last:
        last = size >= len(view) - at
        rows, bad, fault, used = scan_batches(view[at:at + size], True, last, limits, None, not last)
        if not last and (bad or fault >= HARD):         # how far damage reaches only the rest of the segment tells
            last, (rows, _, _, used) = True, scan_batches(view[at:], True, True, limits)
        yield _moved(rows, at)
        at, size = at + used, 2 * size


def part(segment: Segment, start: int, stop: int, limits: Limits, check: bool = True) -> FrameTable:
    """The batches between two positions, bad ones too, as a table in the mode "mark". What the second position cuts
    is bad, and so are torn bytes where the segment ends there."""
    view = segment.view()[start:stop]
    rows, _, fault, at = scan_batches(view, check, True, limits)
    if at < len(view) and fault < HARD and (stop < segment.size or segment.is_torn(view[at:])):
        gap = np.zeros(-(-(len(view) - at) // LARGEST_ROW), BATCH)
        gap["start"] = at + LARGEST_ROW * np.arange(len(gap))
        gap["size"] = np.minimum(len(view) - gap["start"], LARGEST_ROW)
        gap["parent"], gap["fault"] = -1, Fault.BAD_LENGTH
        rows, fault, at = np.concatenate([rows, gap]), Fault.OK, len(view)
    return table_of(rows, view, (Stop(int(fault), at),), start, check)


def table_of(rows: np.ndarray, view: memoryview, stops: tuple[Stop, ...] = (), origin: int = 0,
             check: bool = True) -> FrameTable:
    """A table, in the mode "mark", of rows that were scanned."""
    from wirescan.kafka import BATCHES
    rows.flags.writeable = False
    return FrameTable((view,), rows, stops, BATCHES, origins=(origin,), checked=check, errors="mark")


def _search(segment: Segment, view: memoryview, begin: int, limits: Limits,
            reaches: Callable[[np.ndarray], np.ndarray],
            holds: Callable[[np.ndarray], bool] = lambda rows: True) -> Found | None:
    """The first good batch from `begin` on, where one begins, that reaches the goal by its header and holds it; its
    position is the end of the good batch before, so that damage between the two is not passed over."""
    ended, whole = begin, True
    for rows in walk(view, begin, limits):
        good, ends = rows["fault"] == 0, rows["start"] + rows["size"]
        for i in np.flatnonzero(good & reaches(rows)).tolist():
            if holds(rows[i:i + 1]):
                before = ends[:i][good[:i]]
                return Found(int(before[-1]) if len(before) else ended, rows[i])
        if len(rows):
            whole = bool(good[-1])
            ended = int(ends[good][-1]) if good.any() else ended
    return None if whole and not segment.is_torn(view[ended:]) else Found(ended, None)


def _hint(path: str, entry: struct.Struct, before: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...] | None:
    """The last entry of an index for which `before` holds, by binary search; None where there is none, or no index.
    Zeros, as a preallocated file ends in, count as behind all others."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb", buffering=0) as file:
            def read(number: int) -> tuple[int, ...]:
                return entry.unpack(os.pread(file.fileno(), entry.size, number * entry.size))

            def is_behind(number: int) -> bool:
                found = read(number)
                return not any(found) or not before(found)
            count = bisect_left(range(os.fstat(file.fileno()).st_size // entry.size), True, key=is_behind)
            return read(count - 1) if count else None
    except (OSError, struct.error):             # it cannot be read, or became shorter meanwhile
        return None


def _batch_at(view: memoryview, at: int, limits: Limits) -> np.void | None:
    """The row of the batch that begins at a position, or None where no intact one does."""
    if not 0 <= at <= len(view) - LENGTH.size:
        return None
    batch = view[at:at + LENGTH.size + max(LENGTH.unpack_from(view, at)[0], 0)]
    rows, bad, _, used = scan_batches(batch, True, False, limits)
    return _moved(rows, at)[0] if len(rows) == 1 and not bad and used == len(batch) else None


def _moved(rows: np.ndarray, at: int) -> np.ndarray:
    rows = rows.copy()
    rows["start"] += at
    return rows
