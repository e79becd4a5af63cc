"""One segment of a partition: its files, a walk over its batches, lookup by offset and by time.

directory.py uses these functions for each segment of a partition. The docstring of index_files.py
shows the files.

A lookup begins at the batch that an index names, if that batch confirms the index. Otherwise it
begins at the first batch of the segment. From there it walks from batch to batch, so a wrong index
cannot make the answer wrong.
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
from wirescan.files.source import MappedFile
from wirescan.frames.errors import HARD
from wirescan.frames.limits import Limits
from wirescan.frames.table import LARGEST_ROW, FrameTable, Stop
from wirescan.kafka.formats import BATCHES, records
from wirescan.kafka.log import index_files
from wirescan.kafka.record_batches.scan import BATCH, scan_batches

WINDOW = 16 << 10  # bytes of the first window of a walk; each next window is twice as large
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
LENGTH = struct.Struct(">8xi")  # every batch begins with an offset and the length after it


@dataclass(frozen=True)
class LogSegment:
    """One segment of a partition directory.

    base_offset: the offset in the file's name. path: of the .log file. size: bytes of the .log file
    when the directory was listed. newest: whether it is the newest segment of its directory. Only
    the newest segment may end inside a batch. The others end with a batch or with zeros.

    The methods for the three indexes read the files at each call. Without a file they return an
    empty array. They raise as the functions of wirescan.kafka.log.index_files do.
    """

    base_offset: int
    path: str
    size: int
    newest: bool

    def find_side_path(self, suffix: str) -> str:
        """Return the path of the file with another suffix, such as "index"."""
        return self.path[: -len("log")] + suffix

    def read_offset_index(self) -> np.ndarray:
        """Return the .index: array of `offset` i8, `position` i8."""
        return self._read("index", index_files.read_offset_index, index_files.OFFSETS)

    def read_time_index(self) -> np.ndarray:
        """Return the .timeindex: array of `timestamp` i8 (milliseconds), `offset` i8."""
        return self._read("timeindex", index_files.read_time_index, index_files.TIMES)

    def read_transaction_index(self) -> np.ndarray:
        """Return the .txnindex: see `wirescan.kafka.log.index_files.read_transaction_index`."""
        return self._read("txnindex", index_files.read_transaction_index, index_files.ABORTED)

    def _read(self, suffix: str, read: Callable[[str], np.ndarray], dtype: np.dtype) -> np.ndarray:
        path = self.find_side_path(suffix)
        return read(path) if os.path.exists(path) else np.empty(0, dtype)

    def view(self) -> memoryview:
        """Map the bytes of the segment. Raises OSError, EOFError if the file has become shorter."""
        return memoryview(MappedFile(self.path, self.size) if self.size else b"")

    def is_torn(self, rest: memoryview) -> bool:
        """Return whether bytes after the last batch are damage.

        They are no damage in the newest segment. Zeros are no damage: brokers preallocate files.
        """
        return not self.newest and bool(np.frombuffer(rest, np.uint8).any())


class BatchMatch(NamedTuple):
    """The result of a lookup.

    position: where to read from. Damage that may hide the wanted record is after it.
    row: the row of the batch; its `start` counts from the segment's first byte. None if the rest of
        the segment is damaged.
    """

    position: int
    row: np.void | None


def find(segment: LogSegment, view: memoryview, offset: int, limits: Limits) -> BatchMatch | None:
    """Find the first batch of a segment that reaches an offset; None if no batch does.

    view: the bytes of the segment.
    """
    hint = _find_hint(
        segment.find_side_path("index"),
        OFFSET_ENTRY,
        lambda entry: segment.base_offset + entry[0] <= offset,
    )
    row = _read_batch(view, hint[1], limits) if hint else None
    begin = int(row["start"]) if row is not None and row["base_offset"] <= offset else 0
    match = _search(segment, view, begin, limits, lambda rows: rows["last_offset"] >= offset)
    if match and match.row is not None and match.row["base_offset"] <= offset:
        # The batch has the offset, so damage before it cannot hide the offset.
        return BatchMatch(int(match.row["start"]), match.row)
    return match


def find_time(
    segment: LogSegment, view: memoryview, timestamp: int, limits: Limits
) -> BatchMatch | None:
    """Find the first batch of a segment with a record of `timestamp` or later.

    A batch with bad records is a match too. None if there is no such batch.
    view: the bytes of the segment. timestamp: milliseconds.
    """
    begin = 0
    hint = _find_hint(
        segment.find_side_path("timeindex"), TIME_ENTRY, lambda entry: entry[0] < timestamp
    )
    if hint:
        named = find(segment, view, segment.base_offset + hint[1], limits)
        if named and named.row is not None and named.row["max_timestamp"] == hint[0]:
            begin = int(named.row["start"])

    def holds(rows: np.ndarray) -> bool:
        opened = records(make_table(rows, view), errors="mark", limits=limits)
        return bool((opened.bad | (opened["timestamp"] >= timestamp)).any())

    return _search(
        segment, view, begin, limits, lambda rows: rows["max_timestamp"] >= timestamp, holds
    )


def walk(view: memoryview, at: int, limits: Limits) -> Iterator[np.ndarray]:
    """Yield the rows of the batches from position `at` on, in windows that grow.

    A batch begins at `at`. Bad rows are included, as `kafka.scan` returns them under "mark".
    `start` counts from the view's first byte.
    """
    limits = Limits(frame=limits.frame)
    size = WINDOW
    last = False
    while at < len(view) and not last:
        last = size >= len(view) - at
        window = view[at : at + size]
        rows, bad, fault, used = scan_batches(
            window, check=True, resync=last, limits=limits, more=not last
        )
        if not last and (bad or fault >= HARD):
            # The end of the damage may be after the window, so scan the rest of the segment.
            last = True
            rows, _, _, used = scan_batches(view[at:], check=True, resync=True, limits=limits)
        yield _shift(rows, at)
        at += used
        size *= 2


def read_slice(
    segment: LogSegment, start: int, stop: int, limits: Limits, *, check: bool = True
) -> FrameTable:
    """Return the batches between two positions, as a table in the mode "mark".

    Bad batches are included. A batch that `stop` cuts is bad. Bytes after the last batch are bad if
    `stop` is the end of the segment and they are damage (`LogSegment.is_torn`).
    """
    view = segment.view()[start:stop]
    rows, _, fault, at = scan_batches(view, check=check, resync=True, limits=limits)
    if at < len(view) and fault < HARD and (stop < segment.size or segment.is_torn(view[at:])):
        gap = np.zeros(-(-(len(view) - at) // LARGEST_ROW), BATCH)
        gap["start"] = at + LARGEST_ROW * np.arange(len(gap))
        gap["size"] = np.minimum(len(view) - gap["start"], LARGEST_ROW)
        gap["parent"] = -1
        gap["fault"] = Fault.BAD_LENGTH
        rows = np.concatenate([rows, gap])
        fault = Fault.OK
        at = len(view)
    return make_table(rows, view, (Stop(int(fault), at),), start, check=check)


def make_table(
    rows: np.ndarray,
    view: memoryview,
    stops: tuple[Stop, ...] = (),
    origin: int = 0,
    *,
    check: bool = True,
) -> FrameTable:
    """Make a table, in the mode "mark", of scanned rows.

    origin: position of the view's first byte in the file. check: whether checksums were verified.
    """
    rows.flags.writeable = False
    return FrameTable(
        (view,), rows, stops, BATCHES, origins=(origin,), checked=check, errors="mark"
    )


def _search(
    segment: LogSegment,
    view: memoryview,
    begin: int,
    limits: Limits,
    reaches: Callable[[np.ndarray], np.ndarray],
    holds: Callable[[np.ndarray], bool] = lambda rows: True,
) -> BatchMatch | None:
    """Find the first good batch from position `begin` on that is a match. A batch begins there.

    reaches: rows -> bool array, whether the header of each batch allows a match.
    holds: one row -> whether the batch is a match.
    The position of the result is the end of the good batch before the match, so damage between the
    two is not skipped. None if no batch matches and the end of the segment is not damaged.
    """
    ended = begin  # end of the last good batch
    is_intact = True  # no damage after `ended`
    for rows in walk(view, begin, limits):
        good = rows["fault"] == 0
        ends = rows["start"] + rows["size"]
        for i in np.flatnonzero(good & reaches(rows)).tolist():
            if holds(rows[i : i + 1]):
                before = ends[:i][good[:i]]
                return BatchMatch(int(before[-1]) if len(before) else ended, rows[i])
        if len(rows):
            is_intact = bool(good[-1])
        if good.any():
            ended = int(ends[good][-1])
    if is_intact and not segment.is_torn(view[ended:]):
        return None
    return BatchMatch(ended, None)


def _find_hint(
    path: str, entry: struct.Struct, before: Callable[[tuple[int, ...]], bool]
) -> tuple[int, ...] | None:
    """Find the last entry of an index for which `before` is true, by binary search.

    None if there is no such entry or no index. Zeros at the end of a preallocated file count as
    entries after all others.
    """
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb", buffering=0) as file:

            def read(number: int) -> tuple[int, ...]:
                return entry.unpack(os.pread(file.fileno(), entry.size, number * entry.size))

            def is_behind(number: int) -> bool:
                fields = read(number)
                return not any(fields) or not before(fields)

            numbers = range(os.fstat(file.fileno()).st_size // entry.size)
            count = bisect_left(numbers, x=True, key=is_behind)
            return read(count - 1) if count else None
    except (OSError, struct.error):  # the file cannot be read, or it became shorter
        return None


def _read_batch(view: memoryview, at: int, limits: Limits) -> np.void | None:
    """Return the row of the batch that begins at a position; None if it is not intact."""
    if not 0 <= at <= len(view) - LENGTH.size:
        return None
    batch = view[at : at + LENGTH.size + max(LENGTH.unpack_from(view, at)[0], 0)]
    rows, bad, _, used = scan_batches(batch, check=True, resync=False, limits=limits)
    return _shift(rows, at)[0] if len(rows) == 1 and not bad and used == len(batch) else None


def _shift(rows: np.ndarray, at: int) -> np.ndarray:
    """Return a copy of rows whose `start` counts from a position `at` bytes earlier."""
    rows = rows.copy()
    rows["start"] += at
    return rows
