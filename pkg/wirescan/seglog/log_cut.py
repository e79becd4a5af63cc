"""Cuts a part out of a log: the whole frames that hold any selected record, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from wirescan.files.new_directory import NewDirectory
from wirescan.files.source import get_seekable_size
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_outermost_rows
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.chunks import read_chunks
from wirescan.reading.filters import (
    Condition,
    Filter,
    apply_filters,
    find_column_ranges,
    prune_file,
    prune_frames,
)
from wirescan.reading.nested_groups import open_nested
from wirescan.seglog.frame_offsets import UNKNOWN, find_first_offsets, log_columns
from wirescan.seglog.log_salvage import check_target, group_files
from wirescan.seglog.segment_writer import REACH, SegmentWriter, list_ranges, write_frames


def select_frames(
    path: str,
    format: Format,
    filters: Sequence[Condition],
    *,
    limits: Limits = Limits(),
    pieces: Iterable[memoryview] | None = None,
    inspect_end: Callable[[FrameTable], None] | None = None,
) -> Iterator[FrameTable]:
    """Yield the outermost frames of a file that hold a selected record, in tables.

    Args:
        path: of the file. Parts that its indexes exclude are not read.
        format: of the records.
        filters: the result of `filters.check_filters`, on the columns of `format`. A record is
            selected if it passes all of them.
        limits: for reading.
        pieces: the bytes of the file, if it cannot be read in parts.
        inspect_end: called with the last table of outermost frames, whose `stop` and `tail` say how
            the file ends. A frame that the end cuts is not selected.

    Raises:
        FrameError: for damage.
        OSError.
    """
    start, stop = 0, None
    if pieces is None:
        start, stop = prune_file(path, format, filters, limits=limits)
        if stop is not None and start >= stop:
            return
        stop = get_seekable_size(path) if stop is None else stop
        pieces = read_chunks(path, start, stop)
    allowance = Allowance(limits)
    tables = scan_outermost(
        allowance.count_chunks(pieces),
        format,
        limits=limits,
        source=path,
        offset=start,
        allowance=allowance,
    )
    for table in tables:
        candidates = prune_frames(table, format, filters, "strict", path)
        if format.within is None:  # the frames are the records
            if len(passing := apply_filters(candidates, filters, path)):
                yield passing
            continue
        selected = find_whole_frames(candidates, format, filters)
        doubtful = np.flatnonzero(~selected)
        at = 0
        for records in open_nested(
            candidates[doubtful],
            format,
            limits=limits,
            source=path,
            filters=filters,
            allowance=allowance,
        ):
            parents = np.asarray(find_outermost_rows(records)[1])
            selected[doubtful[at + np.unique(parents)]] = True
            at += len(records.outermost)
        if selected.any():
            yield candidates.where(selected)
    if inspect_end is not None:
        inspect_end(table)


def find_whole_frames(
    frames: FrameTable, format: Format, filters: Sequence[Condition]
) -> np.ndarray:
    """Return a bool array: the frames whose records are all selected, by their headers.

    That is known only if all filters are bounds of the offset.
    """
    log = format.storage.log
    counted = frames.format.display.record_count
    if log is None or counted is None or any(not _is_bound(item, log.first) for item in filters):
        return np.zeros(len(frames), bool)
    low, high = find_column_ranges(format, format, filters).get(log.first, (None, None))
    first = find_first_offsets(frames)
    whole: np.ndarray = (first != UNKNOWN) & (frames[counted] > 0)
    if low is not None:
        whole &= first >= low
    if high is not None:
        whole &= frames[log_columns(frames).last] <= high
    return whole


def _is_bound(condition: Condition, column: str) -> bool:
    return (
        isinstance(condition, Filter)
        and condition.column == column
        and condition.op in ("<", "<=", ">", ">=")
    )


class SegmentFile:
    """Writes frames of one log to a file, which is then a valid segment.

    file: where the bytes go.

    Attributes:
        frames, size: what was written, in frames and bytes.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._first: int | None = None
        self._last = -1
        self.frames = 0
        self.size = 0

    def add(self, frames: FrameTable) -> None:
        """Write frames whose offsets rise.

        Raises OSError, and ValueError for offsets that do not rise, and for frames that do not fit
        into one segment.
        """
        first, last = list_ranges(frames, self._last)
        if (first <= np.append(self._last, last[:-1])).any():
            raise ValueError("the offsets do not rise: cut each log by itself, or salvage it first")
        self._first = int(first[0]) if self._first is None else self._first
        self.size += int(frames["size"].sum(dtype=np.int64))
        if self.size > REACH or int(last[-1]) - self._first > REACH:
            raise ValueError(
                "the part does not fit into one segment, which has less than 2 GiB and 2**31 "
                "offsets: write a directory of segments"
            )
        write_frames(self._file, frames)
        self.frames += len(frames)
        self._last = int(last[-1])


def cut_to_directory(
    paths: Sequence[str],
    target: str | os.PathLike[str],
    format: Format,
    filters: Sequence[Condition],
    *,
    limits: Limits = Limits(),
    select: Callable[..., Iterator[FrameTable]] = select_frames,
) -> int:
    """Write the selected part of logs below a new directory, with indexes. Return the frames.

    Args:
        paths: segments, and other files of frames. Each log gets a directory, as in
            `wirescan.seglog.log_salvage`. Each file becomes a segment that is named by its first
            frame.
        target: the new directory. It appears when it is complete.
        format: of the records.
        filters: see `select_frames`.
        limits: for reading.
        select: replaces `select_frames`.

    Raises:
        FileExistsError: the target exists and is not empty.
        ValueError: no record is selected, the offsets of a log do not rise, or as `check_target`.
        FrameError, OSError: as `select_frames`.
    """
    top = format.outermost
    filters = list(filters)
    check_target(paths, target, top)
    frames = 0
    with NewDirectory(target) as new:
        for name, files in group_files(paths, top).items():
            (new.path / name).mkdir()
            with SegmentWriter(new.path / name, top) as writer:
                for path in files:
                    for table in select(path, format, filters, limits=limits):
                        writer.add(table)
                    writer.close()
            count = sum(segment.frames for segment in writer.take_segments())
            frames += count
            if not count:
                (new.path / name).rmdir()
        if not frames:
            raise ValueError("no record is selected, so nothing is written")
    return frames
