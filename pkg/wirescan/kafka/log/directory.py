"""A partition directory of a broker: its segments and other files, lookup, and parts of the log.

The package wirescan.kafka exports `PartitionLog` and `open_log`. index_files.py reads the
files beside the segments, transactions.py finds committed data, and `wirescan.seglog` searches the
segments.
"""

from __future__ import annotations

import os
from dataclasses import replace
from operator import index as integer
from typing import Any, NamedTuple

import numpy as np

from wirescan.files.source import URL, exists, expand, join_path, to_plain_path
from wirescan.frames.errors import FrameError, check_mode, enforce_mode
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, make_empty
from wirescan.kafka.batch_formats import BATCHES, records, scan
from wirescan.kafka.constants import ISOLATIONS
from wirescan.kafka.files import (
    FILES,
    IGNORE,
    SEGMENTS,
    is_tiered,
    list_snapshots,
    parse_directory_name,
)
from wirescan.kafka.log import index_files, transactions
from wirescan.kafka.log.batch_range import add_range
from wirescan.kafka.log.segment import LAYOUT, LogSegment
from wirescan.kafka.log.tiered_segments import (
    choose_segments,
    drop_copies,
    find_logs,
)
from wirescan.kafka.record_batches.scan import verify_batches
from wirescan.seglog.index_entries import read_or_empty
from wirescan.seglog.segmented_log import LogMatch, LogPosition, SegmentedLog
from wirescan.seglog.segments import list_names, list_segments


class BatchPosition(NamedTuple):
    """The first byte of a batch: the segment, and the position in it in bytes."""

    segment: LogSegment
    position: int


class PartitionLog:
    """The segments of a partition directory, as listed when this object was made.

    directory: its path, or its URL in an object store. limits: bounds of every scan.
    segments: tuple of `LogSegment`, in order of offsets. Files that a broker is about to delete or
        to put in place are not included. Of several segments with one base offset, as tiered
        storage may have them, the largest is included.
    topic, partition: from the directory's name; both are None if the name is not of the form
        <topic>-<partition>, or in tiered storage <topic>-<partition>-<topic id>.

    A broker does not change records. But a segment that is deleted or truncated during a read may
    end the process (see `wirescan.files.source`), so copy a live directory first.

    Raises NotADirectoryError, FileNotFoundError if there is no segment, OSError.
    """

    topic: str | None
    partition: int | None

    def __init__(self, directory: str | os.PathLike[str], *, limits: Limits = Limits()):
        check_mode("strict", limits)
        self.directory = to_plain_path(directory)
        self.limits = limits
        self.segments = _list_segments(self.directory)
        self._log = SegmentedLog(BATCHES, LAYOUT, self.segments, limits)
        self.topic, self.partition = parse_directory_name(self.directory) or (None, None)

    def __repr__(self) -> str:
        return f"<PartitionLog {self.directory}: {len(self.segments)} segments>"

    # --------------------------------------------------------------------------------------- files

    def list_snapshots(self) -> dict[int, str]:
        """Return the paths of the producer snapshots by their offsets.

        `wirescan.kafka.log.index_files.read_producer_snapshot` reads such a file. The snapshots of
        tiered storage are not included: `LogSegment.find_side_path` names them. Raises OSError.
        """
        names = list_snapshots(list_names(self.directory), "")
        return {offset: join_path(self.directory, name) for offset, name in names.items()}

    def read_leader_epochs(self) -> np.ndarray:
        """Return the leader-epoch-checkpoint: array of `epoch` i8, `start_offset` i8.

        In tiered storage it is the one of the newest segment. It is empty without the file. Raises
        FrameError, OSError.
        """
        path = join_path(self.directory, "leader-epoch-checkpoint")
        if self.segments[-1].is_tiered:
            path = self.segments[-1].find_side_path("leader_epoch_checkpoint")
        return read_or_empty(path, index_files.read_leader_epochs, index_files.EPOCHS)

    def read_metadata(self) -> index_files.PartitionMetadata | None:
        """Return the partition.metadata, or None without the file. Raises FrameError, OSError."""
        path = join_path(self.directory, "partition.metadata")
        return index_files.read_partition_metadata(path) if exists(path) else None

    @property
    def high_watermark(self) -> int | None:
        """The offset before which all records were replicated at the broker's last checkpoint.

        It is read from replication-offset-checkpoint in the parent directory. None if that file is
        missing or does not name the partition, and for a URL. Raises FrameError, OSError.
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
        if self.topic is None or self.partition is None or URL.match(self.directory):
            return None
        path = os.path.join(os.path.dirname(os.path.abspath(self.directory)), name)
        if not os.path.exists(path):
            return None
        return index_files.read_offset_checkpoint(path).get((self.topic, self.partition))

    # -------------------------------------------------------------------------------------- lookup

    def find(self, offset: int) -> BatchPosition | None:
        """Return the place of the batch that holds an offset.

        If no batch holds it, the place is that of the next batch; None after the last batch. If
        damage before that batch may hide the offset, the place is the start of the damage.
        Raises OSError, EOFError if a segment has become shorter.
        """
        return self._to_position(self._log.find_offset(integer(offset)))

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
        end = self._log.find_end(match, includes_frame=True)
        batches = self._log.read_slice(match.number, match.position, end.position)
        opened = records(batches, errors="strict", limits=self.limits)
        late = np.flatnonzero(opened["timestamp"] >= timestamp)
        if not len(late):
            return None
        return int(opened["offset"][late[0]]), int(opened["timestamp"][late[0]])

    def _to_position(self, match: LogMatch | None) -> BatchPosition | None:
        return None if match is None else BatchPosition(self.segments[match.number], match.position)

    def _find_time(self, timestamp: int) -> LogMatch | None:
        def holds(rows: np.ndarray, view: memoryview) -> bool:
            batch = self._log.make_table(rows, view)
            opened = records(batch, errors="mark", limits=self.limits)
            return bool((opened.bad | (opened["timestamp"] >= timestamp)).any())

        return self._log.find_time(timestamp, holds=holds)

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
        log = self._log
        begins = [LogPosition(0, 0)]
        first_offsets = [start, self.log_start if checkpoints else None]
        for bound in first_offsets:
            if bound is not None:
                begins.append(log.find_begin(log.find_offset(integer(bound))))
        if start_time is not None:
            match = self._find_time(integer(start_time))
            begins.append(log.find_begin(match))
            first_offsets.append(self._find_late_offset(match, start_time))
        ends = [log.end]
        stop_offsets = [stop, high, stable]
        for bound in stop_offsets:
            if bound is not None:
                ends.append(self._find_stop(integer(bound)))
        if stop_time is not None:
            match = self._find_time(integer(stop_time))
            ends.append(log.find_end(match, includes_frame=True))
            stop_offsets.append(self._find_late_offset(match, stop_time))
        begin = max(begins)
        end = min(ends)
        table = log.read_part(begin, end, check=check)
        if table is None:
            return make_empty(BATCHES)
        if any(segment.is_tiered for segment in self.segments):
            table = drop_copies(table, np.zeros(len(table.buffers), np.int64))
        listed = self._find_aborted(table, begin, end) if only_committed else None
        table = enforce_mode(table, errors, int(np.count_nonzero(table.bad)))
        table = transactions.committed(table, listed) if only_committed else table
        return add_range(
            table,
            max((integer(bound) for bound in first_offsets if bound is not None), default=None),
            min((integer(bound) for bound in stop_offsets if bound is not None), default=None),
        )

    def _find_late_offset(self, match: LogMatch | None, timestamp: int) -> int | None:
        """Return the first offset in a batch with `timestamp` or later.

        match: the batch, as `_find_time` finds it. None if there is none, or if damage may hide the
        offset.
        """
        if match is None or match.row is None:
            return None
        end = self._log.find_end(match, includes_frame=True)
        batches = self._log.read_slice(match.number, match.position, end.position)
        opened = records(batches, errors="mark", limits=self.limits)
        late = np.flatnonzero(opened.bad | (opened["timestamp"] >= timestamp))
        if not len(late) or opened.bad[late[0]]:
            return None
        return int(opened["offset"][late[0]])

    def _find_stop(self, stop: int) -> LogPosition:
        """Return the end of a part that has no batch with only offsets from `stop` on."""
        match = self._log.find_offset(stop - 1)
        is_after = match is not None and match.row is not None and LAYOUT.is_after(match.row, stop)
        return self._log.find_end(match, includes_frame=not is_after)

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
        for number in range(first, len(self.segments)):
            table = self._log.read_slice(number, 0, self.segments[number].size, check=False)
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
                producers = index_files.read_producer_snapshot(self._find_snapshot(number))
            except (OSError, FrameError):
                continue
            producers = producers[producers["transaction_first_offset"] >= 0]
            return number, transactions.make_data_steps(
                producers["producer_id"], producers["transaction_first_offset"]
            )
        return 0, np.empty(0, transactions.STEP)

    def _find_snapshot(self, number: int) -> str:
        """Return the path of the producer snapshot for the start of a segment, but the first one.

        A snapshot of tiered storage is for the end of the segment that it is beside.
        """
        before = self.segments[number - 1]
        file = before if before.is_tiered else self.segments[number]
        return file.find_side_path("snapshot")

    def find_last_stable_offset(self, until: int | None = None) -> int | None:
        """Return the first offset of the first transaction that is open (before `until`).

        None if no transaction is open. Readers of committed data get no records from this offset
        on. Raises as `open_transactions`.
        """
        open_transactions = self.open_transactions(until)
        if not len(open_transactions):
            return None
        return int(open_transactions["first_offset"].min())

    def _find_aborted(self, table: FrameTable, begin: LogPosition, end: LogPosition) -> np.ndarray:
        """Return the aborted transactions with batches in a part of the log.

        table: the batches of the part. No transaction is open at the end of the part.
        The markers decide: a .txnindex has no checksum, and a copy of a log may lack it. If batches
        of the part are bad, the .txnindex replaces their markers.
        """
        steps = transactions.list_transaction_steps(table)
        still_open = transactions.find_transactions(steps).open["producer_id"]
        for following in self._log.walk(end):
            if not len(still_open):
                break
            ends = transactions.find_first_ends(
                transactions.list_transaction_steps(following), still_open
            )
            steps = np.concatenate([steps, ends])
            still_open = np.setdiff1d(still_open, ends["producer_id"])
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


def _list_segments(directory: str) -> tuple[LogSegment, ...]:
    """Return the segments that are read of a partition directory, in the order of their offsets."""
    segments = list_segments(directory, SEGMENTS, LogSegment)
    chosen = set(choose_segments([segment.path for segment in segments]))
    *older, newest = [segment for segment in segments if segment.path in chosen]
    return (*older, replace(newest, newest=True))


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

    directory: a path, or the URL of a directory in an object store. Of an object only the parts
        that are needed are fetched.
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

    Only the parts of the segments with these offsets and times are read. The batches that hold them
    are returned. `kafka.records` opens exactly the records of the range, without the records that
    its first batch has before it, and those that its last batch has after it. Bad rows are kept. A
    time stands for the offset that the log has at that time. Files with the suffixes .deleted,
    .cleaned and .swap are ignored.

    Without any argument but options, all segments under the directory are read, at any depth.
    Otherwise the segments in the directory itself are read. Then bytes after the last batch of a
    segment, other than zeros, are a bad row (BAD_LENGTH) and not a tail, except in the newest
    segment.

    A directory of tiered storage is read in the same way. Of several segments with one base offset,
    the largest is read. Where segments overlap, each batch is returned once.

    Raises NotADirectoryError, FileNotFoundError if there is no segment, and as `kafka.scan`.
    """
    directory = to_plain_path(directory)
    if not (URL.match(directory) or os.path.isdir(directory)):
        raise NotADirectoryError(f"not a directory: {directory}")
    defaults = (None, None, None, None, "read_uncommitted", False)
    if (start, stop, start_time, stop_time, isolation, checkpoints) == defaults:
        paths = expand(directory, files=FILES, ignore=IGNORE)
        if not any(map(is_tiered, paths)):
            return scan(directory, **options)
        paths = choose_segments(paths)
        return drop_copies(scan(paths, **options), find_logs(paths))
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
