"""Writes whole frames as segments of a log, with the indexes beside them.

The frames are copied byte for byte. `log_salvage.py` and `log_cut.py` use this module.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from wirescan.frames.format import Format
from wirescan.frames.logs import IndexWriter
from wirescan.frames.table import FrameTable
from wirescan.seglog.frame_offsets import UNKNOWN, find_first_offsets, log_columns

# Indexes hold offsets relative to the segment's name, and positions, as signed 32-bit numbers.
REACH = (1 << 31) - 1


@dataclass
class WrittenSegment:
    """A segment that was written.

    path: of the file. base: the offset in its name. first, last: the offsets of its frames.
    frames: their number. size: in bytes.
    """

    path: str
    base: int
    first: int
    last: int
    frames: int = 0
    size: int = 0


class SegmentWriter:
    """Writes the segments of one log into a directory: `start_segment`, `add` frames, `close`.

    Use it as a context manager, which closes it.

    Args:
        directory: an existing directory without segments. None: nothing is written, and the
            segments are only counted.
        format: an outermost format whose `Storage.log` names the segments.

    Attributes:
        index_writer: writes the indexes; None if there are none.
        last: the last offset that was written; -1 before any.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, format: Format):
        log = format.storage.log
        if log is None or log.segments is None:
            raise ValueError(f"{format.name} has no segments, so none can be written")
        self._writes = directory is not None
        self._prefix = "" if directory is None else os.path.join(os.fspath(directory), "")
        self._names = log.segments
        self.index_writer: IndexWriter | None = None
        if self._writes and log.make_index_writer is not None:
            self.index_writer = log.make_index_writer()
        self.last = -1
        self._segment: WrittenSegment | None = None
        self._file: BinaryIO | None = None
        self._ended: list[WrittenSegment] = []

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        if error_type is None:
            self.close()
            return
        with suppress(OSError):
            self.close()

    def start_segment(self, base: int) -> None:
        """End the segment in progress, and begin the one that is named `base`. Raises OSError."""
        self.close()
        path = self._names.make_path(self._prefix, base)
        if self._writes:
            self._file = open(path, "xb", buffering=0)  # noqa: SIM115 -- `close` closes it
        self._segment = WrittenSegment(path, base, base, base - 1)
        if self.index_writer is not None:
            self.index_writer.start_segment(path)

    def close(self) -> None:
        """End the segment in progress. Raises OSError."""
        if self._segment is None:
            return
        segment = self._segment
        self._segment = None
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.index_writer is not None:
            self.index_writer.end_segment()
        self._ended.append(segment)

    def take_segments(self) -> list[WrittenSegment]:
        """Return the segments that ended since the last call."""
        ended = self._ended
        self._ended = []
        return ended

    def add(self, frames: FrameTable) -> None:
        """Write good frames, whose offsets are above all before and rise.

        Where a frame does not fit into the segment in progress, or none was started, the frame
        begins a segment. Its name is the frame's first offset, or a lower one if that is not known.

        Raises:
            OSError: a file cannot be written.
            ValueError: the offsets do not rise.
        """
        first, last = list_ranges(frames, self.last)
        before = np.append(self.last, last[:-1])
        if ((first <= before) | (last < first)).any():
            raise ValueError(f"the offsets of {frames.name} do not rise, so they are no segment")
        ends = np.cumsum(frames["size"], dtype=np.int64)
        at = 0
        while at < len(frames):
            stop = at
            if self._segment is not None:
                space = REACH - self._segment.size + (int(ends[at - 1]) if at else 0)
                in_size = np.searchsorted(ends, space, "right")
                in_reach = np.searchsorted(last, self._segment.base + REACH, "right")
                stop = int(min(in_size, in_reach))
            if stop <= at:
                self.start_segment(max(int(first[at]), int(last[at]) - REACH))
                stop = at + 1
            self._write(frames[at:stop], int(first[at]), int(last[stop - 1]))
            at = stop

    def _write(self, frames: FrameTable, first: int, last: int) -> None:
        """Append frames to the segment in progress, and to its indexes."""
        assert self._segment is not None  # `add` started a segment
        segment = self._segment
        if self.index_writer is not None:
            self.index_writer.add(frames, segment.size)
        if self._file is not None:
            write_frames(self._file, frames)
        segment.size += int(frames["size"].sum(dtype=np.int64))
        segment.first = segment.first if segment.frames else first
        segment.last = last
        segment.frames += len(frames)
        self.last = last


def list_ranges(frames: FrameTable, previous: int) -> tuple[np.ndarray, np.ndarray]:
    """Return i8 arrays of the first and the last offset of frames in the order of a log.

    previous: the last offset before them. A frame that does not state its first offset is taken to
    begin where the frame before ends.
    """
    last = frames[log_columns(frames).last]
    first = find_first_offsets(frames)
    before = np.append(previous, last[:-1])
    return np.where(first == UNKNOWN, before + 1, first), last


def write_frames(file: BinaryIO, frames: FrameTable) -> None:
    """Write the bytes of outermost frames, adjacent ones together. Raises OSError."""
    rows = frames.rows
    starts = rows["start"]
    ends = rows["start"] + rows["size"]
    is_apart = (starts[1:] != ends[:-1]) | (rows["buffer"][1:] != rows["buffer"][:-1])
    breaks = np.flatnonzero(is_apart) + 1
    for begin, end in zip([0, *breaks], [*breaks, len(rows)]):
        if begin == end:
            continue
        data = frames.buffers[rows["buffer"][begin]][int(starts[begin]) : int(ends[end - 1])]
        while len(data):
            data = data[file.write(data) :]
