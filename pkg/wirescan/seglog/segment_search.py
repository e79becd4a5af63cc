"""Look up offsets and times in one segment, and find the bytes of it that hold a range of them.

A look-up begins at a frame that an index names, if the intact frame at that position confirms the
index. Otherwise it begins at the first frame. From there it walks from frame to frame, so a wrong
index cannot make the answer wrong. A forged one can, if a value holds frames.

Offsets increase in a segment. Timestamps may not, so a range of times gives only a start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wirescan.files import boundaries
from wirescan.files.source import get_file_name, get_size, make_sibling_path, open_ranges
from wirescan.frames.limits import Limits
from wirescan.seglog.index_entries import find_around
from wirescan.seglog.segments import RangeView, Segment, SegmentLayout, walk

SEARCH_BYTES = 1 << 20  # bytes after an entry of the .index to search for the frame of a time
Range = tuple[int | None, int | None]  # (lowest, highest); None: no bound


@dataclass(frozen=True)
class SegmentReader:
    """Finds positions in a segment by its indexes. Intact frames confirm each position.

    path: of the segment. read: (start, stop) -> bytes of it. size: its size in bytes.
    limits: a frame above `limits.frame` is not intact.
    """

    layout: SegmentLayout
    path: str
    read: Callable[[int, int], memoryview]
    size: int
    limits: Limits

    def read_frame(self, at: int) -> np.void | None:
        """Return the row of the frame at a position; None if it is not intact."""
        if not 0 <= at < self.size:
            return None
        return boundaries.read_frame(self.read, at, self.size, self.layout.scan, self.limits)

    def find_offset_start(self, offset: int) -> int:
        """Return a position before which all offsets are lower than `offset`; 0 if unknown."""
        entry, _, _ = find_around(
            make_sibling_path(self.path, ".index"), self.layout.index, "offset", offset + 1
        )
        frame = self.read_frame(entry["position"]) if entry else None
        if frame is None or frame[self.layout.first] > offset:
            return 0
        is_before = frame[self.layout.last] < offset
        return int(frame["start"]) + (int(frame["size"]) if is_before else 0)

    def find_offset_stop(self, offset: int) -> int:
        """Return a position from which on no offset is lower than `offset`.

        It is the segment's size if no such position is known.
        """
        first = self.read_frame(0)
        if first is not None and self.layout.is_after(first, offset):
            return 0
        _, *entries = find_around(
            make_sibling_path(self.path, ".index"), self.layout.index, "offset", offset
        )
        # The frame of the first entry may begin before the offset.
        for entry in filter(None, entries):
            frame = self.read_frame(entry["position"])
            if frame is not None and self.layout.is_after(frame, offset):
                return int(frame["start"])
        return self.size

    def find_time_start(self, time: int) -> int:
        """Return a position before which all times are lower than `time`; 0 if unknown.

        The times of earlier frames are those that the index states.
        """
        hint = self.layout.find_time_hint(self.path, self.size, time)
        if hint is None:
            return 0
        stated, offset = hint
        at = self.find_offset_start(offset)
        until = at + SEARCH_BYTES
        while at < until and (frame := self.read_frame(at)) is not None:
            if frame[self.layout.last] >= offset:
                is_confirmed = (
                    frame[self.layout.first] <= offset and frame[self.layout.time] == stated
                )
                return at if is_confirmed else 0
            at += int(frame["size"])
        return 0


def prune(
    layout: SegmentLayout,
    path: str,
    bounds: Mapping[str, Range],
    *,
    limits: Limits = Limits(),
) -> tuple[int, int]:
    """Return (start, stop), the bytes of a segment that can hold the wanted records.

    bounds: {"offset": (lowest, highest), "timestamp": (lowest, highest)}, None for no bound; a
    missing column has no bounds. limits: a frame above `limits.frame` is damaged, and nothing is
    pruned by it.
    start and stop are the first byte of a frame or an end of the file. A file without the name of a
    segment is not pruned. Raises OSError.
    """
    total = get_size(path)
    if layout.names.parse(get_file_name(path)) is None:
        return 0, total
    low, high = bounds.get("offset", (None, None))
    earliest, _ = bounds.get("timestamp", (None, None))
    with open_ranges(path) as read:
        reader = SegmentReader(layout, path, read, total, limits)
        stop = total if high is None else reader.find_offset_stop(high + 1)
        if stop == 0:
            return 0, 0
        start = 0 if low is None else reader.find_offset_start(low)
        if earliest is not None:
            start = max(start, reader.find_time_start(earliest))
    return start, max(start, stop)


class FrameMatch(NamedTuple):
    """The result of a look-up.

    position: where to read from. Damage that may hide the wanted record is after it.
    row: the row of the frame; its `start` counts from the segment's first byte. None if the rest of
        the segment is damaged.
    """

    position: int
    row: np.void | None


def find_frame(
    segment: Segment,
    layout: SegmentLayout,
    column: str,
    goal: int,
    limits: Limits,
    holds: Callable[[np.ndarray, memoryview], bool] = lambda row, view: True,
) -> FrameMatch | None:
    """Find the first frame of a segment whose last offset or time is not below a goal.

    column: `layout.last` or `layout.time`.
    holds: array of one row, bytes of its frame -> whether the frame is a match. The `start` of the
        row is 0.
    None if there is no such frame and no damage that may hide it.
    """
    view = segment.view()
    reader = SegmentReader(
        layout, segment.path, lambda start, stop: view[start:stop], segment.size, limits
    )
    by_offset = column == layout.last
    begin = reader.find_offset_start(goal) if by_offset else reader.find_time_start(goal)
    ended = begin  # end of the last good frame
    is_intact = True  # no damage after `ended`
    for rows in walk(view, begin, layout.scan, limits):
        good = rows["fault"] == 0
        ends = rows["start"] + rows["size"]
        for i in np.flatnonzero(good & (rows[column] >= goal)).tolist():
            if not _holds_frame(rows[i : i + 1], view, holds):
                continue
            if by_offset and rows[layout.first][i] <= goal:
                # The frame has the offset, so damage before it cannot hide the offset.
                return FrameMatch(int(rows["start"][i]), rows[i])
            return FrameMatch(int(ends[:i][good[:i]].max(initial=ended)), rows[i])
        if len(rows):
            is_intact = bool(good[-1])
        ended = int(ends[good].max(initial=ended))
    if is_intact and not segment.is_torn(view[ended:]):
        return None
    return FrameMatch(ended, None)


def _holds_frame(
    row: np.ndarray,
    view: memoryview | RangeView,
    holds: Callable[[np.ndarray, memoryview], bool],
) -> bool:
    """Return what `holds` of `find_frame` does for a row, an array of one."""
    start = int(row["start"][0])
    copied = row.copy()
    copied["start"] = 0
    return holds(copied, view[start : start + int(row["size"][0])])
