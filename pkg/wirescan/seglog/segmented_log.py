"""All segments of a log as one: look-up by offset and time, and the tables of its parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.source import read_ahead
from wirescan.frames.errors import HARD
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, Stop, join, make_gap_rows
from wirescan.seglog.segment_search import find_frame
from wirescan.seglog.segments import RangeView, Segment, SegmentLayout, walk


class LogPosition(NamedTuple):
    """A byte position in the log. Positions compare by segment, then by position."""

    number: int  # of the segment in the log
    position: int


class LogMatch(NamedTuple):
    """A `segment_search.FrameMatch`, with the number of the segment in the log."""

    number: int
    position: int
    row: np.void | None


@dataclass(frozen=True)
class SegmentedLog:
    """The segments of a log, in the order of their offsets, as one.

    format: the outermost format of the frames. limits: bounds of every scan.
    """

    format: Format
    layout: SegmentLayout
    segments: tuple[Segment, ...]
    limits: Limits

    @property
    def end(self) -> LogPosition:
        """The end of the newest segment."""
        return LogPosition(len(self.segments) - 1, self.segments[-1].size)

    def find_offset(self, offset: int) -> LogMatch | None:
        """Find the first frame whose last offset is not below an offset."""
        before = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return self._find(max(before - 1, 0), self.layout.last, offset)

    def find_time(self, time: int, **options: Any) -> LogMatch | None:
        """Find the first frame whose latest time is not below a time.

        options: `holds` of `segment_search.find_frame`.
        """
        return self._find(0, self.layout.time, time, **options)

    def _find(self, first: int, column: str, goal: int, **options: Any) -> LogMatch | None:
        for number, segment in enumerate(self.segments[first:], first):
            match = find_frame(segment, self.layout, column, goal, self.limits, **options)
            if match is not None:
                return LogMatch(number, *match)
        return None

    def find_begin(self, match: LogMatch | None) -> LogPosition:
        """Return the start of a part that begins with the frame of a match."""
        return self.end if match is None else LogPosition(match.number, match.position)

    def find_end(self, match: LogMatch | None, *, includes_frame: bool) -> LogPosition:
        """Return the end of a part that ends with the frame of a match, or before that frame.

        If the rest of the segment is damaged, the part ends with the segment.
        """
        if match is None:
            return self.end
        if match.row is None:
            return LogPosition(match.number, self.segments[match.number].size)
        size = int(match.row["size"]) if includes_frame else 0
        return LogPosition(match.number, int(match.row["start"]) + size)

    def make_table(
        self,
        rows: np.ndarray,
        view: memoryview,
        stops: tuple[Stop, ...] = (),
        origin: int = 0,
        *,
        check: bool = True,
    ) -> FrameTable:
        """Make a table, in the mode "mark", of scanned rows.

        origin: position of the view's first byte in the file. check: whether checksums were
        verified.
        """
        rows.flags.writeable = False
        return FrameTable(
            (view,), rows, stops, self.format, origins=(origin,), checked=check, errors="mark"
        )

    def read_slice(self, number: int, start: int, stop: int, *, check: bool = True) -> FrameTable:
        """Return the frames between two positions of a segment, as a table in the mode "mark".

        Bad frames are included. A frame that `stop` cuts is bad. Bytes after the last frame are bad
        if `stop` is the end of the segment and they are damage (`Segment.is_torn`).
        """
        segment = self.segments[number]
        view = segment.view()[start:stop]
        rows, _, fault, at = self.layout.scan(view, check=check, resync=True, limits=self.limits)
        is_cut = at < len(view) and fault < HARD
        if is_cut and (stop < segment.size or segment.is_torn(view[at:])):
            rows = np.concatenate([rows, make_gap_rows(rows.dtype, at, len(view) - at)])
            fault = Fault.OK
            at = len(view)
        return self.make_table(rows, view, (Stop(int(fault), at),), start, check=check)

    def read_part(
        self, begin: LogPosition, end: LogPosition, *, check: bool = True
    ) -> FrameTable | None:
        """Return the frames between two positions, in the mode "mark"; None for no bytes."""
        tables = []
        numbers = range(begin.number, end.number + 1)
        for number in read_ahead(numbers, lambda number: self.segments[number].path):
            start = begin.position if number == begin.number else 0
            stop = end.position if number == end.number else self.segments[number].size
            if start < stop:
                tables.append(self.read_slice(number, start, stop, check=check))
        return join(tables) if tables else None

    def walk(self, start: LogPosition) -> Iterator[FrameTable]:
        """Yield tables of the frames from a position to the end of the log, in the mode "mark"."""
        position = start.position
        for segment in self.segments[start.number :]:
            view = segment.view()
            for rows in walk(view, position, self.layout.scan, self.limits):
                yield self._make_window(rows, view)
            position = 0

    def _make_window(self, rows: np.ndarray, view: memoryview | RangeView) -> FrameTable:
        """Make a table of scanned rows. Of a view that is not mapped, only their bytes are read."""
        if isinstance(view, memoryview):
            return self.make_table(rows, view)
        start = int(rows["start"].min(initial=len(view)))
        stop = int((rows["start"] + rows["size"]).max(initial=start))
        rows["start"] -= start
        return self.make_table(rows, view[start:stop], origin=start)
