"""A partition directory of Liftbridge as a source of entries: its segments, look-up, parts of the log, and its gaps.

    <base offset, 20 digits>.log        entries one after another; the last may be torn

index.py draws the files beside a segment, segment.py looks things up in one.
Source: github.com/liftbridge-io/liftbridge, server/commitlog.
"""
from __future__ import annotations

import os
import re
from bisect import bisect_right
from operator import index as integer
from typing import Any, NamedTuple

import numpy as np

from wirescan.errors import apply, check_mode
from wirescan.liftbridge import index, segment
from wirescan.liftbridge.index import SMALLEST
from wirescan.liftbridge.scan import ENTRY, scan_entries
from wirescan.liftbridge.segment import HEADER, Segment, index_of, is_confirmed
from wirescan.limits import Limits
from wirescan.source import name_of, ranges, size_of
from wirescan.table import FrameTable, empty, join
from wirescan.walk import Sized, cuts_at_headers

# Segments that a server is about to put in place hold records twice.
IGNORE = r"\.(cleaned|truncated|index)$|(^|/)(replication-offset|leader-epoch)-checkpoint$"
FILES = r"(?s)(\A|/)\d{20}\.log\Z"
SEGMENT = re.compile(r"[0-9]{20}\.log")
SIZED = Sized(header=HEADER.size, length_at=HEADER.size - 4, overhead=HEADER.size, smallest=(SMALLEST,))


def cuts(path: str, size: int, start: int = 0) -> list[int]:
    """Offsets in a file at which an entry begins, about `size` bytes apart; the first is `start`.

    Taken from the `.index` beside a segment where every entry used is confirmed by the header that it points to; else
    by a walk from header to header, which ends at the first that cannot be one: who reads the slice tells what is wrong
    there.
    """
    total = size_of(path)
    if total - start <= size:
        return [start]
    found = _cuts_by_index(path, size, total) if SEGMENT.fullmatch(name_of(path)) else None
    return [start, *(at for at in found if at >= start + size)] if found else cuts_at_headers(
        path, size, start, SIZED, _is_intact)


def _cuts_by_index(path: str, size: int, total: int) -> list[int] | None:
    listed = index_of(path)
    last, _ = index.around(listed, "position", total)
    if last is None or total - last.position - last.size > size:
        return None                     # there are entries that the index does not know
    out = [0]
    with ranges(path) as read:
        while (entry := index.around(listed, "position", out[-1] + size)[1]) and entry.position < total:
            if not is_confirmed(entry, read(entry.position, entry.position + HEADER.size)):
                return None
            out.append(entry.position)
    return out


def _is_intact(record: memoryview) -> bool:
    """Whether these bytes are one entry, whose checksum is right."""
    rows, bad, _, used = scan_entries(record, True, False, Limits())
    return len(rows) == 1 and not bad and bool(used == len(record))


class Place(NamedTuple):
    """Where an entry begins: the segment, and the position in it in bytes."""
    segment: Segment
    position: int


class CommitLog:
    """The segments of a partition directory, as they were when this was made.

    directory: its path. segments: tuple of `Segment`, in order of offsets; what the server is about to put in their
    place (.cleaned, .truncated) is left out. limits: for all that is read. Records are not changed by a server, but a
    segment that is compacted or truncated meanwhile is EOFError, or may end the process (see `wirescan.source`): copy a
    live directory first.

    Raises NotADirectoryError, FileNotFoundError where there is no segment, OSError.
    """
    def __init__(self, directory: str | os.PathLike[str], *, limits: Limits = Limits()):
        check_mode("strict", limits)
        self.directory, self.limits = os.fspath(directory), limits
        if not os.path.isdir(self.directory):
            raise NotADirectoryError(f"not a directory: {self.directory}")
        names = sorted(name for name in os.listdir(self.directory)
                       if SEGMENT.fullmatch(name) and int(name[:20]) < 1 << 63)
        paths = [os.path.join(self.directory, name) for name in names]
        paths = [path for path in paths if os.path.isfile(path)]
        self.segments = tuple(Segment(int(os.path.basename(path)[:20]), path, os.stat(path).st_size, path == paths[-1])
                              for path in paths)
        if not self.segments:
            raise FileNotFoundError(f"no segment in {self.directory}")

    def __repr__(self) -> str:
        return f"<CommitLog {self.directory}: {len(self.segments)} segments>"

    # ------------------------------------------------------------------------------------------- files

    @property
    def high_watermark(self) -> int | None:
        """The offset of the last record that the server had noted as committed, -1 where none was; None without
        replication-offset-checkpoint. Records behind it may have been committed since. Raises FrameError, OSError."""
        path = os.path.join(self.directory, "replication-offset-checkpoint")
        return index.high_watermark(path) if os.path.exists(path) else None

    def leader_epochs(self) -> np.ndarray:
        """leader-epoch-checkpoint: array of `leader_epoch` u8, `start_offset` i8; empty without the file. Raises
        FrameError, OSError."""
        path = os.path.join(self.directory, "leader-epoch-checkpoint")
        return index.leader_epochs(path) if os.path.exists(path) else np.empty(0, index.EPOCHS)

    def verify(self) -> np.ndarray:
        """Where the indexes and the records disagree: array of dtype DISAGREEMENT: `base_offset` i8, of the segment;
        `entry` i8, the number of the entry of its index, or -1; `position` i8 and `offset` i8, as that entry says.

        An entry is among them that points at no intact record, or tells of it another offset, timestamp or size, or
        names it again; and so is, with entry -1, an intact record that none points at. Segments without an index are
        left out. Raises FrameError and ValueError for a file that is no index at all, OSError, EOFError.
        """
        told = [segment.disagreements(one, self.limits) for one in self.segments
                if os.path.exists(index_of(one.path))]
        return np.concatenate([np.empty(0, segment.DISAGREEMENT), *told])

    # ----------------------------------------------------------------------------------------- look-up

    def find(self, offset: int) -> Place | None:
        """Where the entry begins that has an offset or, where none does, the next one; None behind the last.

        Damage that may hide the offset comes before that entry: then the place is where it begins. Raises OSError,
        EOFError where a segment has become shorter.
        """
        return self._place(self._find("offset", integer(offset)))

    def find_time(self, timestamp: int) -> Place | None:
        """Where the first entry begins whose timestamp, in nanoseconds since 1970, is not below the one given; None if
        there is none. Damage and errors are as for `find`. What the index says of the timestamps before is believed."""
        return self._place(self._find("timestamp", integer(timestamp)))

    def _place(self, found: tuple[int, int, int] | None) -> Place | None:
        return None if found is None else Place(self.segments[found[0]], found[1])

    def _find(self, column: str, goal: int) -> tuple[int, int, int] | None:
        """The number of a segment, and the positions that `segment.find` gives."""
        first = 0
        if column == "offset":
            first = max(bisect_right(self.segments, goal, key=lambda one: one.base_offset) - 1, 0)
        for number, one in enumerate(self.segments[first:], first):
            found = segment.find(one, column, goal, self.limits)
            if found is not None:
                return number, *found
        return None

    # ----------------------------------------------------------------------------------------- reading

    def read(self, start: int | None = None, stop: int | None = None, *, start_time: int | None = None,
             stop_time: int | None = None, errors: str = "strict", check: bool = True) -> FrameTable:
        """The entries of a part of the log, as one table of liftbridge.entries: see `open_log`."""
        from wirescan.liftbridge import ENTRIES
        check_mode(errors, self.limits)
        last = len(self.segments) - 1, self.segments[-1].size, self.segments[-1].size
        begin, end = (0, 0, 0), last
        for column, low, high in (("offset", start, stop), ("timestamp", start_time, stop_time)):
            if low is not None:
                begin = max(begin, self._find(column, integer(low)) or last)
            if high is not None:
                end = min(end, self._find(column, integer(high)) or last, key=lambda found: (found[0], found[2]))
        parts = []
        for number in range(begin[0], end[0] + 1):
            one = self.segments[number]
            at, until = begin[1] if number == begin[0] else 0, end[2] if number == end[0] else one.size
            if at < until:
                parts.append(segment.part(one, at, until, self.limits, check))
        table = join(parts) if parts else empty(ENTRIES)
        return apply(table, errors, int(np.count_nonzero(table.bad)))


def open_log(directory: str | os.PathLike[str], *, start: int | None = None, stop: int | None = None,
             start_time: int | None = None, stop_time: int | None = None, **options: Any) -> FrameTable:
    """The entries of a partition directory, its segments in order, as one table of liftbridge.entries.

    start, stop: the offsets from `start` on and before `stop`. start_time, stop_time: from the first entry whose
    timestamp, in nanoseconds since 1970, is not below the one, and before the first that is not below the other. Only
    the parts of the segments that hold these are read.

    Without any of these all segments under the directory are read; with one, those in it: then bytes left over at the
    end of a segment that is not the newest, other than zeros, are a bad row (BAD_LENGTH) and not a tail. options:
    errors, check and limits, and without these also into, as of `liftbridge.entries`.
    Raises NotADirectoryError, FileNotFoundError where there is no segment, and as `liftbridge.entries`.
    """
    from wirescan.liftbridge import entries
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"not a directory: {os.fspath(directory)}")
    if (start, stop, start_time, stop_time) == (None, None, None, None):
        return entries(directory, **options)
    log = CommitLog(directory, limits=options.pop("limits", Limits()))
    return log.read(start, stop, start_time=start_time, stop_time=stop_time, **options)


def gaps(entries: FrameTable) -> np.ndarray:
    """Where the offsets in a table of liftbridge.entries, of one log and in its order, do not follow one another: int64
    array of shape (n, 2): the offset that had to come, and the one that came.

    So a row is a range of offsets that are missing, as compaction leaves it; or, where the second is below the first,
    tells that offsets fall back. Those of bad rows are missing. Raises TypeError for another table.
    """
    if not isinstance(entries, FrameTable) or entries.dtype != ENTRY:
        raise TypeError("gaps are those of a table of liftbridge.entries, not of "
                        f"{getattr(entries, 'name', type(entries).__name__)}")
    offsets = entries["offset"][~entries.bad]
    due = np.minimum(offsets[:-1], np.iinfo(np.int64).max - 1) + 1
    return np.stack([due, offsets[1:]], axis=1)[(offsets[1:] != due) | (offsets[1:] == offsets[:-1])]
