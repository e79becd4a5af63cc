"""A partition directory of a broker: its segments and other files, lookup, and parts of the log.

The package wirescan.kafka exports `PartitionLog`, `open_log` and `within`. index_files.py reads the
files beside the segments, segment.py searches one segment, transactions.py finds committed data.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from operator import index as integer
from typing import Any, NamedTuple

import numpy as np

from wirescan.frames.errors import FrameError, check_mode, enforce_mode
from wirescan.frames.limits import Limits
from wirescan.frames.logs import OFFSET_END
from wirescan.frames.table import FrameTable, join, make_empty
from wirescan.kafka.constants import ISOLATIONS
from wirescan.kafka.files import SEGMENTS, SNAPSHOT, parse_directory_name
from wirescan.kafka.formats import BATCHES, records, scan
from wirescan.kafka.log import index_files, segment, transactions
from wirescan.kafka.log.segment import LogSegment
from wirescan.kafka.record_batches.scan import RECORD, verify_batches


class BatchPosition(NamedTuple):
    """The first byte of a batch: the segment, and the position in it in bytes."""

    segment: LogSegment
    position: int


class _LogMatch(NamedTuple):
    """A `segment.BatchMatch`, with the number of the segment in the log."""

    number: int
    position: int
    row: np.void | None


class _LogPosition(NamedTuple):
    """A byte position in the log. Positions compare by segment, then by position."""

    number: int  # of the segment in the log
    position: int


class PartitionLog:
    """The segments of a partition directory, as listed when this object was made.

    directory: its path. limits: bounds of every scan.
    segments: tuple of `LogSegment`, in order of offsets. Files that a broker is about to delete or
        to put in place are not included.
    topic, partition: from the directory's name; both are None if the name is not of the form
        <topic>-<partition>.

    A broker does not change records. But a segment that is deleted or truncated during a read may
    end the process (see `wirescan.files.source`), so copy a live directory first.

    Raises NotADirectoryError, FileNotFoundError if there is no segment, OSError.
    """

    topic: str | None
    partition: int | None

    def __init__(self, directory: str | os.PathLike[str], *, limits: Limits = Limits()):
        check_mode("strict", limits)
        self.directory = os.fspath(directory)
        self.limits = limits
        if not os.path.isdir(self.directory):
            raise NotADirectoryError(f"not a directory: {self.directory}")
        names = sorted(
            name
            for name in os.listdir(self.directory)
            if (segment_name := SEGMENTS.parse(name)) is not None
            and not segment_name.prefix
            and segment_name.base < OFFSET_END
        )
        paths = [os.path.join(self.directory, name) for name in names]
        paths = [path for path in paths if os.path.isfile(path)]
        self.segments = tuple(
            LogSegment(
                index_files.parse_base_offset(path), path, os.stat(path).st_size, path == paths[-1]
            )
            for path in paths
        )
        if not self.segments:
            raise FileNotFoundError(f"no segment in {self.directory}")
        self.topic, self.partition = parse_directory_name(self.directory) or (None, None)

    def __repr__(self) -> str:
        return f"<PartitionLog {self.directory}: {len(self.segments)} segments>"

    # --------------------------------------------------------------------------------------- files

    def list_snapshots(self) -> dict[int, str]:
        """Return the paths of the producer snapshots by their offsets.

        `wirescan.kafka.log.index_files.read_producer_snapshot` reads such a file. Raises OSError.
        """
        names = filter(None, map(SNAPSHOT.fullmatch, sorted(os.listdir(self.directory))))
        return {int(name[1]): os.path.join(self.directory, name[0]) for name in names}

    def read_leader_epochs(self) -> np.ndarray:
        """Return the leader-epoch-checkpoint: array of `epoch` i8, `start_offset` i8.

        It is empty without the file. Raises FrameError, OSError.
        """
        path = os.path.join(self.directory, "leader-epoch-checkpoint")
        if not os.path.exists(path):
            return np.empty(0, index_files.EPOCHS)
        return index_files.read_leader_epochs(path)

    def read_metadata(self) -> index_files.PartitionMetadata | None:
        """Return the partition.metadata, or None without the file. Raises FrameError, OSError."""
        path = os.path.join(self.directory, "partition.metadata")
        return index_files.read_partition_metadata(path) if os.path.exists(path) else None

    @property
    def high_watermark(self) -> int | None:
        """The offset before which all records were replicated at the broker's last checkpoint.

        It is read from replication-offset-checkpoint in the parent directory. None if that file is
        missing or does not name the partition. Raises FrameError, OSError.
        """
        return self._read_checkpoint("replication-offset-checkpoint")

    @property
    def log_start(self) -> int | None:
        """The offset before which records were deleted.

        It is read from log-start-offset-checkpoint, and is None as for `high_watermark`. The file
        names only partitions whose log begins inside a segment. Raises FrameError, OSError.
        """
        return self._read_checkpoint("log-start-offset-checkpoint")

    @property
    def recovery_point(self) -> int | None:
        """The offset before which the log was flushed to disk.

        It is read from recovery-point-offset-checkpoint, and is None as for `high_watermark`.
        Raises FrameError, OSError.
        """
        return self._read_checkpoint("recovery-point-offset-checkpoint")

    def _read_checkpoint(self, name: str) -> int | None:
        path = os.path.join(os.path.dirname(os.path.abspath(self.directory)), name)
        if self.topic is None or self.partition is None or not os.path.exists(path):
            return None
        return index_files.read_offset_checkpoint(path).get((self.topic, self.partition))

    # -------------------------------------------------------------------------------------- lookup

    def find(self, offset: int) -> BatchPosition | None:
        """Return the place of the batch that holds an offset.

        If no batch holds it, the place is that of the next batch; None after the last batch. If
        damage before that batch may hide the offset, the place is the start of the damage.
        Raises OSError, EOFError if a segment has become shorter.
        """
        return self._to_position(self._find(integer(offset)))

    def find_time(self, timestamp: int) -> BatchPosition | None:
        """Return the place of the batch with the first record of `timestamp` or later.

        timestamp: milliseconds. None if there is no such record. Damage and exceptions are as for
        `find`. The highest timestamp of a batch is the one in its header, as in Kafka. An entry of
        a .timeindex is used if the batch that it names has its timestamp. Nothing verifies that no
        batch before has a higher timestamp.
        """
        return self._to_position(self._find_time(integer(timestamp)))

    def find_offset(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record of `timestamp` or later.

        This is the answer of Kafka's ListOffsets. timestamp: milliseconds. None if there is no such
        record. Raises FrameError if damage may hide the record, and as `find`.
        """
        match = self._find_time(integer(timestamp))
        if match is None:
            return None
        file = self.segments[match.number]
        stop = file.size
        if match.row is not None:
            stop = int(match.row["start"]) + int(match.row["size"])
        batches = segment.read_slice(file, match.position, stop, self.limits)
        opened = records(batches, limits=self.limits)
        late = np.flatnonzero(opened["timestamp"] >= timestamp)
        if not len(late):
            return None
        return int(opened["offset"][late[0]]), int(opened["timestamp"][late[0]])

    def _to_position(self, match: _LogMatch | None) -> BatchPosition | None:
        return None if match is None else BatchPosition(self.segments[match.number], match.position)

    def _find(self, offset: int) -> _LogMatch | None:
        before = bisect_right(self.segments, offset, key=lambda file: file.base_offset)
        first = max(before - 1, 0)
        for number, file in enumerate(self.segments[first:], first):
            match = segment.find(file, file.view(), offset, self.limits)
            if match:
                return _LogMatch(number, *match)
        return None

    def _find_time(self, timestamp: int) -> _LogMatch | None:
        for number, file in enumerate(self.segments):
            match = segment.find_time(file, file.view(), timestamp, self.limits)
            if match:
                return _LogMatch(number, *match)
        return None

    # ------------------------------------------------------------------------------------- reading

    def read(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        start_time: int | None = None,
        stop_time: int | None = None,
        isolation: str = "read_uncommitted",
        checkpoints: bool = False,
        errors: str = "strict",
        check: bool = True,
    ) -> FrameTable:
        """Return the batches of a part of the log as a table of kafka.batches.

        The arguments and exceptions are those of `kafka.open_log`.
        """
        check_mode(errors, self.limits)
        if isolation not in ISOLATIONS:
            raise ValueError(f"isolation must be one of {', '.join(ISOLATIONS)}, not {isolation!r}")
        only_committed = isolation == "read_committed"
        high = self.high_watermark if checkpoints else None
        stable = self.find_last_stable_offset(high) if only_committed else None
        begins = [_LogPosition(0, 0)]
        if start is not None:
            begins.append(self._begin(self._find(integer(start))))
        log_start = self.log_start if checkpoints else None
        if log_start is not None:
            begins.append(self._begin(self._find(log_start)))
        if start_time is not None:
            begins.append(self._begin(self._find_time(integer(start_time))))
        ends = [self._log_end]
        for bound in (stop, high, stable):
            if bound is not None:
                ends.append(self._end(self._find(integer(bound) - 1), integer(bound)))
        if stop_time is not None:
            ends.append(self._end(self._find_time(integer(stop_time)), None))
        begin = max(begins)
        end = min(ends)
        table = self._scan_part(begin, end, check=check)
        if table is None:
            return make_empty(BATCHES)
        listed = self._find_aborted(table, begin, end) if only_committed else None
        table = enforce_mode(table, errors, int(np.count_nonzero(table.bad)))
        return transactions.committed(table, listed) if only_committed else table

    def _scan_part(
        self, begin: _LogPosition, end: _LogPosition, *, check: bool
    ) -> FrameTable | None:
        """Return the batches between two positions, in the mode "mark"; None for no bytes."""
        parts = []
        for number in range(begin.number, end.number + 1):
            file = self.segments[number]
            start = begin.position if number == begin.number else 0
            stop = end.position if number == end.number else file.size
            if start < stop:
                parts.append(segment.read_slice(file, start, stop, self.limits, check=check))
        return join(parts) if parts else None

    def open_transactions(self, until: int | None = None) -> np.ndarray:
        """Return the transactions that did not end before the offset `until`.

        until: the default is the end of the log. The result is an array of `producer_id` i8,
        `first_offset` i8, `last_offset` i8 (2**63-1).

        The sources are the newest producer snapshot at the base offset of a segment, and the
        transactional batches from there on. Without a snapshot, all batches are read. Bad batches
        are ignored. Raises OSError, EOFError as `find`.
        """
        first, snapshot = self._find_newest_snapshot(until)
        steps = [snapshot]
        for file in self.segments[first:]:
            table = segment.read_slice(file, 0, file.size, self.limits, check=False)
            table = table.where((table["is_transactional"] != 0) & ~table.bad)
            table = table.where(verify_batches(table.rows, table.buffers) == 0)
            steps.append(transactions.list_transaction_steps(table))
        joined = np.concatenate(steps)
        if until is not None:
            joined = joined[joined["offset"] < until]
        return transactions.find_transactions(joined).open

    def _find_newest_snapshot(self, until: int | None) -> tuple[int, np.ndarray]:
        """Return the open transactions of the newest readable snapshot, and where to go on from.

        The values are the number of the segment with the snapshot's offset, and an array of dtype
        STEP. Without a snapshot they are 0 and an empty array. Snapshots after `until` are ignored.
        """
        for number in range(len(self.segments) - 1, 0, -1):
            file = self.segments[number]
            if until is not None and file.base_offset > until:
                continue
            try:
                producers = index_files.read_producer_snapshot(file.find_side_path("snapshot"))
            except (OSError, FrameError):
                continue
            producers = producers[producers["transaction_first_offset"] >= 0]
            steps = np.full(len(producers), transactions.DATA, transactions.STEP)
            steps["producer_id"] = producers["producer_id"]
            steps["offset"] = producers["transaction_first_offset"]
            return number, steps
        return 0, np.empty(0, transactions.STEP)

    def find_last_stable_offset(self, until: int | None = None) -> int | None:
        """Return the first offset of the first transaction that is open (before `until`).

        None if no transaction is open. Readers of committed data get no records from this offset
        on. Raises as `open_transactions`.
        """
        open_transactions = self.open_transactions(until)
        if not len(open_transactions):
            return None
        return int(open_transactions["first_offset"].min())

    def _find_aborted(
        self, table: FrameTable, begin: _LogPosition, end: _LogPosition
    ) -> np.ndarray:
        """Return the aborted transactions with batches in a part of the log.

        table: the batches of the part. No transaction is open at the end of the part.
        The markers decide: a .txnindex has no checksum, and a copy of a log may lack it. If batches
        of the part are bad, the .txnindex replaces their markers.
        """
        steps = transactions.list_transaction_steps(table)
        last = steps["offset"].max(initial=-1)
        for view, rows in self._walk(end):
            still_open = transactions.find_transactions(steps).open
            if not (still_open["first_offset"] <= last).any():
                break
            steps = np.concatenate(
                [steps, transactions.list_transaction_steps(segment.make_table(rows, view))]
            )
        listed = transactions.find_transactions(steps).aborted
        if table.bad.any():
            try:
                entries = np.concatenate(
                    [file.read_transaction_index() for file in self.segments[begin.number :]]
                )
            except (OSError, FrameError):
                return listed
            if np.isin(listed["last_offset"], entries["last_offset"]).all():
                return entries
        return listed

    def _walk(self, start: _LogPosition) -> Iterator[tuple[memoryview, np.ndarray]]:
        """Yield the bytes of a segment and some of its rows, from a position to the log's end."""
        position = start.position
        for file in self.segments[start.number :]:
            view = file.view()
            for rows in segment.walk(view, position, self.limits):
                yield view, rows
            position = 0

    @property
    def _log_end(self) -> _LogPosition:
        return _LogPosition(len(self.segments) - 1, self.segments[-1].size)

    def _begin(self, match: _LogMatch | None) -> _LogPosition:
        """Return the start of a part that begins at a match."""
        return self._log_end if match is None else _LogPosition(match.number, match.position)

    def _end(self, match: _LogMatch | None, stop: int | None) -> _LogPosition:
        """Return the end of a part that ends with the batch of a match.

        The part ends before the batch if the batch begins at the offset `stop` or later.
        """
        if match is None:
            return self._log_end
        if match.row is None:
            return _LogPosition(match.number, self.segments[match.number].size)
        row = match.row
        position = int(row["start"])
        # The first offset in a wrapper (record_count -1) is not known.
        is_behind = stop is not None and row["record_count"] >= 0 and row["base_offset"] >= stop
        return _LogPosition(match.number, position if is_behind else position + int(row["size"]))


def within(
    records: FrameTable,
    start: int | None = None,
    stop: int | None = None,
    start_time: int | None = None,
    stop_time: int | None = None,
) -> FrameTable:
    """Return the records with start <= offset < stop and start_time <= timestamp < stop_time.

    records: a table of kafka.records. Times are milliseconds. None is no bound. Bad rows are kept.
    Raises TypeError for another table.
    """
    if not isinstance(records, FrameTable) or records.dtype != RECORD:
        raise TypeError(
            "within takes a table of kafka.records, not "
            f"{getattr(records, 'name', type(records).__name__)}"
        )
    keep = np.ones(len(records), bool)
    for column, low, high in (("offset", start, stop), ("timestamp", start_time, stop_time)):
        if low is not None:
            keep &= records[column] >= integer(low)
        if high is not None:
            keep &= records[column] < integer(high)
    return records.where(keep | records.bad)


def open_log(
    directory: str | os.PathLike[str],
    *,
    start: int | None = None,
    stop: int | None = None,
    start_time: int | None = None,
    stop_time: int | None = None,
    isolation: str = "read_uncommitted",
    checkpoints: bool = False,
    **options: Any,
) -> FrameTable:
    """Return the batches of a partition directory as one table of kafka.batches.

    The segments are in the order of their offsets.

    start, stop: read the offsets from `start` on and before `stop`.
    start_time, stop_time: milliseconds. Read from the first record of `start_time` or later, up to
        the first record of `stop_time` or later. Kafka's ListOffsets turns times into offsets in
        the same way.
    isolation: "read_uncommitted" or "read_committed". "read_committed" excludes control batches and
        the batches of aborted transactions, and ends before the first open transaction.
    checkpoints: exclude records before the log start, and from the high watermark on. Both come
        from the checkpoints in the parent directory (see `PartitionLog`). A checkpoint that is
        missing excludes nothing.
    options: errors, check and limits, as for `kafka.scan`; without the other arguments also into.

    Only the parts of the segments with these offsets and times are read. Batches are returned
    whole: `kafka.within` selects the records. Files with the suffixes .deleted, .cleaned and .swap
    are ignored.

    Without any argument but options, all segments under the directory are read, at any depth.
    Otherwise the segments in the directory itself are read. Then bytes after the last batch of a
    segment, other than zeros, are a bad row (BAD_LENGTH) and not a tail, except in the newest
    segment.

    Raises NotADirectoryError, FileNotFoundError if there is no segment, and as `kafka.scan`.
    """
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"not a directory: {os.fspath(directory)}")
    defaults = (None, None, None, None, "read_uncommitted", False)
    if (start, stop, start_time, stop_time, isolation, checkpoints) == defaults:
        return scan(directory, **options)
    log = PartitionLog(directory, limits=options.pop("limits", Limits()))
    return log.read(
        start,
        stop,
        start_time=start_time,
        stop_time=stop_time,
        isolation=isolation,
        checkpoints=checkpoints,
        **options,
    )
