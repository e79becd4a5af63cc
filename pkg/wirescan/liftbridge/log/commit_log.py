"""A partition directory of Liftbridge: its segments, look-up, ranges of records, and gaps.

    <base offset, 20 digits>.log        records without gaps; the last one may be torn

`index_files.py` describes the files beside a segment. `wirescan.seglog` searches the segments.
Source: github.com/liftbridge-io/liftbridge, server/commitlog.
"""

from __future__ import annotations

import os
from operator import index as integer
from typing import Any, NamedTuple

import numpy as np

from wirescan.frames.errors import check_mode, enforce_mode
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, make_empty
from wirescan.liftbridge.files import SEGMENTS
from wirescan.liftbridge.formats import ENTRIES, entries
from wirescan.liftbridge.log import index_files, segment
from wirescan.liftbridge.log.index_files import make_index_path
from wirescan.liftbridge.log.segment import LAYOUT, CommitLogSegment
from wirescan.liftbridge.scan import ENTRY
from wirescan.seglog.index_entries import read_or_empty
from wirescan.seglog.segmented_log import LogMatch, LogPosition, SegmentedLog
from wirescan.seglog.segments import list_segments


class RecordPosition(NamedTuple):
    """The start of a record: the segment, and the byte position in its file."""

    segment: CommitLogSegment
    position: int


class CommitLog:
    """The segments of a partition directory, as they were when the object was created.

    directory: the path. limits: bounds of everything that is read.
    segments: tuple of `CommitLogSegment`, in the order of their offsets. Segments that the server
    is about to put in their place (.cleaned, .truncated) are ignored.

    A server does not change records. But if it compacts or truncates a segment meanwhile, reading
    raises EOFError or may end the process (see `wirescan.files.source`). Copy a live directory
    first.

    Raises NotADirectoryError, FileNotFoundError if there is no segment, and OSError.
    """

    def __init__(self, directory: str | os.PathLike[str], *, limits: Limits = Limits()):
        check_mode("strict", limits)
        self.directory = os.fspath(directory)
        self.limits = limits
        self.segments = list_segments(self.directory, SEGMENTS, CommitLogSegment)
        self._log = SegmentedLog(ENTRIES, LAYOUT, self.segments, limits)

    def __repr__(self) -> str:
        return f"<CommitLog {self.directory}: {len(self.segments)} segments>"

    # ------------------------------------------------------------------ files

    @property
    def high_watermark(self) -> int | None:
        """The offset of the last record that the server had noted as committed.

        -1 if no record was; None without the file replication-offset-checkpoint. Later records may
        have been committed since. Raises FrameError and OSError.
        """
        path = os.path.join(self.directory, "replication-offset-checkpoint")
        return index_files.read_high_watermark(path) if os.path.exists(path) else None

    def read_leader_epochs(self) -> np.ndarray:
        """Return the leader epochs in leader-epoch-checkpoint.

        The array has the columns `leader_epoch` u8 and `start_offset` i8. It is empty without the
        file. Raises FrameError and OSError.
        """
        path = os.path.join(self.directory, "leader-epoch-checkpoint")
        return read_or_empty(path, index_files.read_leader_epochs, index_files.EPOCHS)

    def verify(self) -> np.ndarray:
        """Return where the indexes and the records disagree, as an array of dtype DISAGREEMENT.

        Columns: `base_offset` i8, of the segment; `entry` i8, the number of the entry in its index,
        or -1; `position` i8 and `offset` i8, of that entry.

        An index entry is in the result if it does not point at an intact record, if its offset,
        timestamp or size differs from the record's, or if an earlier entry points at the same
        record. An intact record without an index entry is in the result with `entry` -1. Segments
        without an index are not compared.

        Raises FrameError and ValueError for a file that is not an index, OSError, and EOFError.
        """
        disagreements = [
            segment.find_disagreements(item, self.limits)
            for item in self.segments
            if os.path.exists(make_index_path(item.path))
        ]
        return np.concatenate([np.empty(0, segment.DISAGREEMENT), *disagreements])

    # ------------------------------------------------------------------ look-up

    def find(self, offset: int) -> RecordPosition | None:
        """Return the start of the first record whose offset is not below `offset`.

        Returns None if there is no such record. If damage before the record may hide the offset,
        the result is the start of the damage. Raises OSError, and EOFError if a segment has become
        shorter.
        """
        return self._to_position(self._log.find_offset(integer(offset)))

    def find_time(self, timestamp: int) -> RecordPosition | None:
        """Return the start of the first record whose timestamp is not below `timestamp`.

        timestamp: nanoseconds since 1970. Returns None if there is no such record. Damage and
        errors are as for `find`. The look-up trusts the timestamps of earlier records in the index.
        """
        return self._to_position(self._log.find_time(integer(timestamp)))

    def _to_position(self, match: LogMatch | None) -> RecordPosition | None:
        if match is None:
            return None
        return RecordPosition(self.segments[match.number], match.position)

    # ------------------------------------------------------------------ reading

    def read(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        start_time: int | None = None,
        stop_time: int | None = None,
        errors: str = "strict",
        check: bool = True,
    ) -> FrameTable:
        """Return the records of a range of the log, as one table of liftbridge.entries.

        The arguments are those of `open_log`.
        """
        check_mode(errors, self.limits)
        log = self._log
        begins = [LogPosition(0, 0)]
        ends = [log.end]
        for find, low, high in (
            (log.find_offset, start, stop),
            (log.find_time, start_time, stop_time),
        ):
            if low is not None:
                begins.append(log.find_begin(find(integer(low))))
            if high is not None:
                ends.append(log.find_end(find(integer(high)), includes_frame=False))
        table = log.read_part(max(begins), min(ends), check=check)
        if table is None:
            return make_empty(ENTRIES)
        return enforce_mode(table, errors, int(np.count_nonzero(table.bad)))


def open_log(
    directory: str | os.PathLike[str],
    *,
    start: int | None = None,
    stop: int | None = None,
    start_time: int | None = None,
    stop_time: int | None = None,
    **options: Any,
) -> FrameTable:
    """Return the records of a partition directory, as one table of liftbridge.entries.

    The segments are read in order. Only the parts of segments that hold the range are read.

    Arguments:
        directory: the path.
        start: the first offset to read.
        stop: the offset before which reading ends.
        start_time: read from the first record whose timestamp, in nanoseconds since 1970, is not
            below this one.
        stop_time: read before the first record whose timestamp is not below this one.
        options: errors, check and limits of `liftbridge.entries`; also `into`, if no range is
            given.

    Without a range, all segments under the directory are read. With a range, only those directly in
    the directory are. Then leftover bytes at the end of a segment that is not the newest are a bad
    row (BAD_LENGTH) and not a tail, unless they are zeros.

    Raises NotADirectoryError, FileNotFoundError if there is no segment, and the errors of
    `liftbridge.entries`.
    """
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"not a directory: {os.fspath(directory)}")
    if (start, stop, start_time, stop_time) == (None, None, None, None):
        return entries(directory, **options)
    log = CommitLog(directory, limits=options.pop("limits", Limits()))
    return log.read(start, stop, start_time=start_time, stop_time=stop_time, **options)


def gaps(entries: FrameTable) -> np.ndarray:
    """Return where the offsets in a table of liftbridge.entries are not consecutive.

    entries: the records of one log, in their order. The offsets of bad rows count as missing.

    Returns an int64 array of shape (n, 2): the offset that was expected, and the offset that
    followed. So a row is a range of missing offsets, as compaction leaves them. If the second
    number is below the first, the offsets went back.

    Raises TypeError for another table.
    """
    if not isinstance(entries, FrameTable) or entries.dtype != ENTRY:
        raise TypeError(
            "gaps are computed from a table of liftbridge.entries, not of "
            f"{getattr(entries, 'name', type(entries).__name__)}"
        )
    offsets = entries["offset"][~entries.bad]
    due = np.minimum(offsets[:-1], np.iinfo(np.int64).max - 1) + 1
    # The second term is for the largest offset, which is due after itself.
    is_gap = (offsets[1:] != due) | (offsets[1:] == offsets[:-1])
    missing: np.ndarray = np.stack([due, offsets[1:]], axis=1)[is_gap]
    return missing
