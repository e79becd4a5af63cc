"""A partition directory as it lies on disk: its segments, the files in it and around it, look-up, and parts of the log.

index.py draws the files, segment.py looks things up in one segment, transactions.py tells what was committed.
"""
from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from operator import index as integer
from typing import NamedTuple

import numpy as np

from wirescan.errors import FrameError, apply, check_mode
from wirescan.kafka import index, segment, transactions
from wirescan.kafka.scan import RECORD, verify_batches
from wirescan.kafka.segment import Segment
from wirescan.limits import Limits
from wirescan.table import FrameTable, empty, join

SEGMENT = re.compile(r"[0-9]{20}\.log")
SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot")
NAME = re.compile(r"([A-Za-z0-9._-]{1,249})-(\d+)")


class Place(NamedTuple):
    """Where a batch begins: the segment, and the position in it in bytes."""
    segment: Segment
    position: int


class _Found(NamedTuple):
    number: int                 # of the segment
    position: int
    row: np.void | None         # see segment.Found


class PartitionLog:
    """The segments of a partition directory, as they were when this was made.

    directory: its path. segments: tuple of `Segment`, in order of offsets. topic, partition: from the directory's name,
    both None where that is not of the form <topic>-<partition>. Files that a broker is about to delete or to put in
    place are left out. limits: for all that is read. Records are not changed by a broker; a segment that is deleted or
    truncated meanwhile may end the process (see `wirescan.source`), so copy a live directory first.

    Raises NotADirectoryError, FileNotFoundError where there is no segment, OSError.
    """
    def __init__(self, directory: str | os.PathLike[str], *, limits: Limits = Limits()):
        check_mode("strict", limits)
        self.directory, self.limits = os.fspath(directory), limits
        if not os.path.isdir(self.directory):
            raise NotADirectoryError(f"not a directory: {self.directory}")
        names = sorted(name for name in os.listdir(self.directory)
                       if SEGMENT.fullmatch(name) and int(name[:20]) < 1 << 63)
        paths = [path for name in names if os.path.isfile(path := os.path.join(self.directory, name))]
        self.segments = tuple(Segment(index.base_of(path), path, os.stat(path).st_size, path == paths[-1])
                              for path in paths)
        if not self.segments:
            raise FileNotFoundError(f"no segment in {self.directory}")
        found = NAME.fullmatch(os.path.basename(os.path.abspath(self.directory)))
        self.topic, self.partition = (found[1], int(found[2])) if found else (None, None)

    def __repr__(self) -> str:
        return f"<PartitionLog {self.directory}: {len(self.segments)} segments>"

    # ------------------------------------------------------------------------------------------- files

    def snapshots(self) -> dict[int, str]:
        """Offset -> path of the producer snapshots there; `wirescan.kafka.index.producer_snapshot` reads one."""
        found = filter(None, map(SNAPSHOT.fullmatch, sorted(os.listdir(self.directory))))
        return {int(name[1]): os.path.join(self.directory, name[0]) for name in found}

    def leader_epochs(self) -> np.ndarray:
        """leader-epoch-checkpoint: array of `epoch` i8, `start_offset` i8; empty without the file. Raises FrameError,
        OSError."""
        path = os.path.join(self.directory, "leader-epoch-checkpoint")
        return index.leader_epochs(path) if os.path.exists(path) else np.empty(0, index.EPOCHS)

    def metadata(self) -> index.Metadata | None:
        """partition.metadata: (version, topic_id), or None without the file. Raises FrameError, OSError."""
        path = os.path.join(self.directory, "partition.metadata")
        return index.partition_metadata(path) if os.path.exists(path) else None

    @property
    def high_watermark(self) -> int | None:
        """The offset up to which records were known to be replicated when the broker last noted it; None where
        replication-offset-checkpoint, in the directory around this one, is missing or does not name the partition.
        Raises FrameError, OSError."""
        return self._checkpoint("replication-offset-checkpoint")

    @property
    def log_start(self) -> int | None:
        """The offset before which records were deleted; None as for `high_watermark` (log-start-offset-checkpoint names
        only partitions whose log begins inside a segment). Raises FrameError, OSError."""
        return self._checkpoint("log-start-offset-checkpoint")

    @property
    def recovery_point(self) -> int | None:
        """The offset up to which the log was flushed to disk; None as for `high_watermark`
        (recovery-point-offset-checkpoint). Raises FrameError, OSError."""
        return self._checkpoint("recovery-point-offset-checkpoint")

    def _checkpoint(self, name: str) -> int | None:
        path = os.path.join(os.path.dirname(os.path.abspath(self.directory)), name)
        if self.topic is None or not os.path.exists(path):
            return None
        return index.offset_checkpoint(path).get((self.topic, self.partition))

    # ----------------------------------------------------------------------------------------- look-up

    def find(self, offset: int) -> Place | None:
        """Where the batch begins that holds an offset or, where no batch does, the next one; None behind the last.

        Damage that may hide the offset comes before that batch: then the place is where it begins. Raises OSError,
        EOFError where a segment has become shorter.
        """
        return self._place(self._find(integer(offset)))

    def find_time(self, timestamp: int) -> Place | None:
        """Where the batch begins that holds the first record whose timestamp, in milliseconds, is not below the one
        given; None if there is none. Damage and errors are as for `find`.

        The highest timestamp of a batch is taken from its header, as Kafka does. An entry of a .timeindex is used where
        the batch that it names has its timestamp; that no batch before has a higher one is believed.
        """
        return self._place(self._find_time(integer(timestamp)))

    def offset_at(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp is not below the one given, in milliseconds, as
        Kafka's ListOffsets answers; None if there is none. Raises FrameError where damage may hide it, and as `find`.
        """
        from wirescan.kafka import records
        found = self._find_time(integer(timestamp))
        if found is None:
            return None
        one = self.segments[found.number]
        end = one.size if found.row is None else int(found.row["start"]) + int(found.row["size"])
        rows = records(segment.part(one, found.position, end, self.limits), limits=self.limits)
        first = np.flatnonzero(rows["timestamp"] >= timestamp)[:1]
        return (int(rows["offset"][first][0]), int(rows["timestamp"][first][0])) if len(first) else None

    def _place(self, found: _Found | None) -> Place | None:
        return None if found is None else Place(self.segments[found.number], found.position)

    def _find(self, offset: int) -> _Found | None:
        first = max(bisect_right(self.segments, offset, key=lambda one: one.base_offset) - 1, 0)
        for number, one in enumerate(self.segments[first:], first):
            found = segment.find(one, one.view(), offset, self.limits)
            if found:
                return _Found(number, *found)
        return None

    def _find_time(self, timestamp: int) -> _Found | None:
        for number, one in enumerate(self.segments):
            found = segment.find_time(one, one.view(), timestamp, self.limits)
            if found:
                return _Found(number, *found)
        return None

    # ----------------------------------------------------------------------------------------- reading

    def read(self, start: int | None = None, stop: int | None = None, *, start_time: int | None = None,
             stop_time: int | None = None, isolation: str = "read_uncommitted", checkpoints: bool = False,
             errors: str = "strict", check: bool = True) -> FrameTable:
        """The batches of a part of the log, as one table of kafka.batches: see `kafka.open_log`."""
        check_mode(errors, self.limits)
        if isolation not in transactions.ISOLATIONS:
            raise ValueError(f"isolation must be one of {', '.join(transactions.ISOLATIONS)}, not {isolation!r}")
        only_committed = isolation == "read_committed"
        high = self.high_watermark if checkpoints else None
        stable = self.last_stable_offset(high) if only_committed else None
        begins = [self._begin(self._find(integer(one))) for one in (start, self.log_start if checkpoints else None)
                  if one is not None]
        ends = [self._end(self._find(integer(one) - 1), integer(one)) for one in (stop, high, stable)
                if one is not None]
        if start_time is not None:
            begins.append(self._begin(self._find_time(integer(start_time))))
        if stop_time is not None:
            ends.append(self._end(self._find_time(integer(stop_time)), None))
        begin, end = max([(0, 0), *begins]), min([self._last, *ends])
        parts = []
        for number in range(begin[0], end[0] + 1):
            low = begin[1] if number == begin[0] else 0
            high = end[1] if number == end[0] else self.segments[number].size
            if low < high:
                parts.append(segment.part(self.segments[number], low, high, self.limits, check))
        if not parts:
            from wirescan.kafka import BATCHES
            return empty(BATCHES)
        table = join(parts)
        listed = self._aborted(table, begin, end) if only_committed else None
        table = apply(table, errors, int(np.count_nonzero(table.bad)))
        return transactions.committed(table, listed) if only_committed else table

    def open_transactions(self, until: int | None = None) -> np.ndarray:
        """The transactions that are not ended before the offset `until`, by default the log's end: array of
        `producer_id` i8, `first_offset` i8, `last_offset` i8 (2**63-1).

        Read from the newest producer snapshot that stands at the beginning of a segment, and the transactional batches
        from there on; without one, from all. Bad batches are passed over. Raises OSError, EOFError as `find`.
        """
        found, first = [], 0
        for number in range(len(self.segments) - 1, 0, -1):
            one = self.segments[number]
            if until is not None and one.base_offset > until:
                continue
            try:
                producers = index.producer_snapshot(one.beside("snapshot"))
            except (OSError, FrameError):
                continue
            producers = producers[producers["transaction_first_offset"] >= 0]
            known = np.full(len(producers), transactions.DATA, transactions.STEP)
            known["producer_id"], known["offset"] = producers["producer_id"], producers["transaction_first_offset"]
            found, first = [known], number
            break
        for one in self.segments[first:]:
            table = segment.part(one, 0, one.size, self.limits, check=False)
            table = table.where((table["is_transactional"] != 0) & ~table.bad)
            found.append(transactions.steps(table.where(verify_batches(table.rows, table.buffers) == 0)))
        steps = np.concatenate(found)
        return transactions.transactions(steps if until is None else steps[steps["offset"] < until]).open

    def last_stable_offset(self, until: int | None = None) -> int | None:
        """The first offset of the first transaction that is open (before `until`), or None if none is: readers of
        committed data get nothing from there on. Raises as `open_transactions`."""
        found = self.open_transactions(until)
        return int(found["first_offset"].min()) if len(found) else None

    def _aborted(self, table: FrameTable, begin: tuple[int, int], end: tuple[int, int]) -> np.ndarray:
        """The aborted transactions with batches in a part of the log in which none is open.

        Markers are the truth, since a .txnindex has no checksum and is easily left behind when a log is copied; where
        batches of the part are bad, it knows what their markers said.
        """
        found = transactions.steps(table)
        last = found["offset"].max(initial=-1)
        for view, rows in self._onwards(end):
            open_ones = transactions.transactions(found).open
            if not (open_ones["first_offset"] <= last).any():
                break
            found = np.concatenate([found, transactions.steps(segment.table_of(rows, view))])
        listed = transactions.transactions(found).aborted
        if table.bad.any():
            try:
                entries = np.concatenate([one.transaction_index() for one in self.segments[begin[0]:]])
            except (OSError, FrameError):
                return listed
            if np.isin(listed["last_offset"], entries["last_offset"]).all():
                return entries
        return listed

    def _onwards(self, place: tuple[int, int]) -> Iterator[tuple[memoryview, np.ndarray]]:
        at = place[1]
        for one in self.segments[place[0]:]:
            view = one.view()
            for rows in segment.walk(view, at, self.limits):
                yield view, rows
            at = 0

    @property
    def _last(self) -> tuple[int, int]:
        return len(self.segments) - 1, self.segments[-1].size

    def _begin(self, found: _Found | None) -> tuple[int, int]:
        return self._last if found is None else (found.number, found.position)

    def _end(self, found: _Found | None, stop: int | None) -> tuple[int, int]:
        """The end of the part that ends in the batch found; before it, where it begins at `stop` or later."""
        if found is None:
            return self._last
        if found.row is None:
            return found.number, self.segments[found.number].size
        at, size = int(found.row["start"]), int(found.row["size"])
        # The first offset in a wrapper is not known.
        behind = stop is not None and found.row["record_count"] >= 0 and found.row["base_offset"] >= stop
        return found.number, at if behind else at + size


def within(records: FrameTable, start: int | None = None, stop: int | None = None, start_time: int | None = None,
           stop_time: int | None = None) -> FrameTable:
    """The records of a table of kafka.records with start <= offset < stop and start_time <= timestamp < stop_time, in
    milliseconds; a bound that is None is none. Bad rows stay. Raises TypeError for another table."""
    if not isinstance(records, FrameTable) or records.dtype != RECORD:
        raise TypeError("offsets and times are those of a table of kafka.records, not of "
                        f"{getattr(records, 'name', type(records).__name__)}")
    keep = np.ones(len(records), bool)
    for column, low, high in (("offset", start, stop), ("timestamp", start_time, stop_time)):
        if low is not None:
            keep &= records[column] >= integer(low)
        if high is not None:
            keep &= records[column] < integer(high)
    return records.where(keep | records.bad)
