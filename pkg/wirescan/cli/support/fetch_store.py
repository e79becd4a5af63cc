"""The directory that `wirescan fetch` writes, from which a second run continues.

    _<topic>.json                                       settings that every run must share
    <topic>-<partition>/<offset, 20 digits>.log         segments: whole batches, with the offset
                                                        of the first one in the name
    <topic>-<partition>-<start>-<stop>.parquet          Parquet: the records of that offset range
    _<topic>-<partition>.partial                        ... while it is written

A run continues segments after their last good batch. It first checks that the cluster has what
follows, and then truncates the tail that a killed process left. A Parquet file gets its name when
all of it is synced to disk. Parquet files share one directory, because Spark does not search the
directories below it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from wirescan.cli.exit_codes import Damage, Failure
from wirescan.cli.output import format_path
from wirescan.cli.support.durable_directory import DurableDirectory, publish
from wirescan.core.fault import Fault
from wirescan.files.new_directory import sync_directory
from wirescan.frames.logs import OFFSET_END
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import escape_text
from wirescan.kafka.files import SEGMENT
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.chunks import read_chunks
from wirescan.seglog.segment_writer import REACH, write_frames

if TYPE_CHECKING:
    import pyarrow as pa

    from wirescan.kafka.client import Part

GROUP_BYTES = 64 << 20  # memory for row groups, in all partitions together
SMALLEST_GROUP = 1 << 20  # bytes
LARGEST_OFFSET = OFFSET_END - 1


class End(NamedTuple):
    """How the files of a partition end.

    offset: the offset after the last record. path: the last segment with a good batch; None for
    Parquet. size: bytes of that segment up to the end of its last good batch.
    """

    offset: int
    path: Path | None = None
    size: int = 0


class Ledger:
    """The file that says what a directory holds of a topic.

    Use it as a context manager: the directory is created, and locked until the context ends.

    Args:
        directory: where the topic is fetched to.
        topic: the topic's name.
        settings: what must be the same in every run.
        check: whether this run verifies checksums.

    Attributes:
        starts: partition -> the offset at which its files begin.
        check: whether all runs so far verified checksums.

    Raises:
        Failure: if the directory holds something else, or another process writes to it.
        OSError: if the directory cannot be used.
    """

    def __init__(
        self, directory: Path, topic: str, settings: Mapping[str, Any], *, check: bool = True
    ):
        self._directory = directory
        self._lock = DurableDirectory(directory, "fetch")
        self._topic = topic
        self._settings = dict(settings)
        self._path = directory / f"_{topic}.json"
        self.check = check
        self.starts: dict[int, int] = {}

    def __enter__(self) -> Ledger:
        with ExitStack() as stack:
            stack.enter_context(self._lock)
            self._read()
            stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def _read(self) -> None:
        """Read the file of an earlier run, and compare its settings with those of this one."""
        if not self._path.exists():
            return
        try:
            stored = json.loads(self._path.read_text())
            starts = stored["starts"]
            if not all(
                number.isdecimal() and type(offset) is int and 0 <= offset <= LARGEST_OFFSET
                for number, offset in starts.items()
            ):
                raise ValueError("a number is not a partition or an offset")
            self.starts = {int(number): offset for number, offset in starts.items()}
            self.check &= stored.get("check", True) is True
            stored["version"]
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise Failure(
                f"{format_path(str(self._path))} is damaged: fetch into another directory"
            ) from None
        for name, value in self._settings.items():
            if stored.get(name) != value:
                raise Failure(
                    f"{format_path(str(self._directory))} holds {self._topic} with {name} "
                    f"{_format_setting(stored.get(name))}, not {_format_setting(value)}: fetch "
                    "into another directory"
                )

    def add_starts(self, starts: Mapping[int, int]) -> None:
        """Store the starts of further partitions; called before their first file is written."""
        self.starts |= starts
        temporary = self._path.with_suffix(".part")  # no longer than the final name
        with open(temporary, "w") as file:
            json.dump({**self._settings, "check": self.check, "starts": self.starts}, file)
        publish(temporary, self._path)


class Store(Protocol):
    """Where the records of one partition go. records, bytes, files: written by this run."""

    records: int
    bytes: int
    files: int

    def add(self, part: Part) -> None:
        """Add the next part of the partition."""

    def close(self) -> None:
        """Write everything that was added, and sync it to disk."""


class Segments:
    """A partition directory with segments of about `size` bytes; bad batches are dropped.

    It continues at `end`. Files after `end`, or all segments if it is None, are removed.

    Raises:
        OSError: if the directory cannot be used.
        Damage: for batches whose offsets do not rise.
    """

    def __init__(self, directory: Path, size: int, end: End | None = None):
        self._directory = directory
        self._limit = size
        self._file: BinaryIO | None = None
        self._base = 0
        self._size = 0
        self.records = 0
        self.bytes = 0
        self.files = 0
        self._last = -1
        last = end and end.path
        for path in list_segments(directory):
            if last is None or path > last:
                path.unlink()
        if end and last:
            os.truncate(last, end.size)
            self._last = end.offset - 1
            self._open(last)

    def add(self, part: Part) -> None:
        """Add the good batches of the next part of the partition."""
        batches = part.batches.where(~part.batches.bad)
        if not len(batches):
            return
        self._check_order(batches)
        ends = np.cumsum(batches["size"], dtype=np.int64)
        at = 0
        while at < len(batches):
            space = self._limit - self._size + (int(ends[at - 1]) if at else 0)
            stop = int(
                min(
                    np.searchsorted(ends, space, "right"),
                    np.searchsorted(batches["last_offset"], self._base + REACH, "right"),
                )
            )
            if self._file is None or stop <= at and self._size:
                self._start_segment(int(batches["base_offset"][at]))
                continue
            stop = max(stop, at + 1)  # a batch may be larger than a segment
            self._write(batches, at, stop)
            at = stop
        self._last = int(batches["last_offset"][-1])

    def _check_order(self, batches: FrameTable) -> None:
        """Raise Damage if offsets do not rise: no checksum covers them, and they name segments."""
        first = batches["base_offset"]
        last = batches["last_offset"]
        before = np.append(self._last, last[:-1])
        wrong = np.flatnonzero((first <= before) | (last < first))
        if len(wrong):
            row = wrong[0]
            raise Damage(
                f"{self._directory.name}: a batch of offsets {first[row]} to {last[row]} comes "
                f"after offset {before[row]}"
            )

    def close(self) -> None:
        """Sync the segment in progress to disk and close it."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()

    def _write(self, batches: FrameTable, first: int, stop: int) -> None:
        """Append the batches in rows first..stop-1 to the segment."""
        assert self._file is not None  # `add` starts a segment first
        rows = batches.rows[first:stop]
        write_frames(self._file, batches[first:stop])
        size = int(rows["size"].sum(dtype=np.int64))
        self._size += size
        self.bytes += size
        # A wrapper does not state its number of messages.
        offsets = rows["last_offset"] - rows["base_offset"] + 1
        self.records += int(np.where(rows["record_count"] < 0, offsets, rows["record_count"]).sum())

    def _start_segment(self, base: int) -> None:
        """Close the segment in progress, and create the next one."""
        self.close()
        self._directory.mkdir(exist_ok=True)
        sync_directory(self._directory.parent)
        self._open(self._directory / f"{base:020}.log")
        sync_directory(self._directory)

    def _open(self, path: Path) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 -- `close` closes it
        self._base = int(path.stem)
        self._size = self._file.seek(0, os.SEEK_END)
        self.files += 1


class ParquetParts:
    """Parquet files of a partition, each of about `size` bytes of records.

    Args:
        directory: where the files go.
        name: topic and partition, for file names.
        start: the first offset.
        schema: of the files.
        size: bytes of the records in one file.
        compression: of Parquet.
        errors: "strict", "mark" or "skip".
        partitions: the number written at the same time; they share the memory for row groups.

    Raises:
        OSError: if a file cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        start: int,
        schema: pa.Schema,
        size: int,
        compression: str,
        errors: str,
        partitions: int,
    ):
        self._directory = directory
        self._name = name
        self._schema = schema
        self._limit = size
        self._compression = compression
        self._errors = errors
        self._group = max(GROUP_BYTES // partitions, SMALLEST_GROUP)
        self._partial = directory / f"_{name}.partial"
        self._start = start
        self._stop = start
        self._writer: Any = None
        self._pending: list[pa.RecordBatch] = []
        self._size = 0
        self.records = 0
        self.bytes = 0
        self.files = 0

    def add(self, part: Part) -> None:
        """Add the records of the next part of the partition."""
        from wirescan.kafka.client.topic_batches import to_batches

        size = int(part.records["size"].sum(dtype=np.int64))
        self._pending += to_batches(part, self._schema.names, errors=self._errors)
        self._stop = part.next_offset
        self._size += size
        self.bytes += size
        self.records += len(part.records)
        if self._size >= self._limit:
            self.close()
        elif sum(batch.nbytes for batch in self._pending) >= self._group:
            self._flush()

    def close(self) -> None:
        """Complete the file in progress: sync it to disk and give it its name."""
        self._flush()
        if self._writer is None:
            return
        self._writer.close()
        self._file.close()
        name = make_file_name(self._name, self._start, self._stop)
        publish(self._partial, self._directory / name)
        self._writer = None
        self._start = self._stop
        self._size = 0
        self.files += 1

    def _flush(self) -> None:
        """Write the batches in memory as one row group."""
        import pyarrow as pa

        from wirescan.export.parquet import make_writer

        batches = [batch for batch in self._pending if len(batch)]
        self._pending = []
        if not batches:
            return
        if self._writer is None:
            self._file = open(self._partial, "wb")  # noqa: SIM115 -- `close` closes it
            self._writer = make_writer(self._file, self._schema, self._compression)
        self._writer.write_table(pa.Table.from_batches(batches))


def find_segments_end(directory: Path, name: str, *, check: bool = True) -> End | None:
    """Return how the segments of a partition end: after the last good batch; None without one.

    Args:
        directory: where the topic is fetched to.
        name: topic and partition.
        check: False if they were fetched without verifying checksums, so a batch may fail its own.

    Raises:
        Damage: if a bad batch precedes a good one, which no killed process leaves.
        OSError: if a segment cannot be read.
    """
    ends = (_find_end(path, check=check) for path in reversed(list_segments(directory / name)))
    return next((end for end in ends if end is not None), None)


def find_parts_end(directory: Path, name: str) -> End | None:
    """Return how the Parquet files of a partition end; None without one. Removes a partial file."""
    (directory / f"_{name}.partial").unlink(missing_ok=True)
    pattern = re.compile(re.escape(name) + r"-([0-9]{20})-([0-9]{20})\.parquet")
    matches = map(pattern.fullmatch, os.listdir(directory))
    return max((End(int(match[2])) for match in matches if match), default=None)


def make_file_name(name: str, start: int, stop: int) -> str:
    """Return the name of the Parquet file with the offsets start..stop-1 of a partition."""
    return f"{name}-{start:020}-{stop:020}.parquet"


def check_name(directory: Path, name: str) -> None:
    """Raise Failure for an ASCII file name that is too long for a directory's file system."""
    longest = os.pathconf(directory, "PC_NAME_MAX")
    if len(name) > longest:
        raise Failure(
            f"{format_path(str(directory))}: file names there have at most {longest} characters, "
            f"and that of {name} would have {len(name)}"
        )


def has_partition(directory: Path, name: str) -> bool:
    """Return whether a directory has any file or directory of a partition."""
    pattern = re.compile(re.escape(name) + r"(-[0-9]{20}-[0-9]{20}\.parquet)?")
    return any(map(pattern.fullmatch, os.listdir(directory)))


def list_segments(directory: Path) -> list[Path]:
    """Return the segments of a partition directory, in order."""
    return sorted(path for path in directory.glob("*.log") if SEGMENT.fullmatch(path.name))


def _format_setting(value: Any) -> str:
    """Return a setting of the ledger as safe text."""
    return escape_text(",".join(map(str, value)) if isinstance(value, list) else str(value))


def _find_end(path: Path, *, check: bool) -> End | None:
    """Return how one segment ends; see `find_segments_end`."""
    damage: int | None = None
    end: End | None = None
    for table in scan_outermost(
        read_chunks(str(path), 0, path.stat().st_size), format_of("kafka.batches"), errors="mark"
    ):
        bad = table.bad if check else table.bad & (table["fault"] != Fault.BAD_CHECKSUM)
        if damage is None and bad.any():
            damage = int(table.positions[bad.argmax()])
        good = np.flatnonzero(~table.bad)
        if len(good):
            size = int(table.positions[good[-1]]) + int(table["size"][good[-1]])
            end = End(int(table["last_offset"][good[-1]]) + 1, path, size)
    if damage is not None and end is not None and damage < end.size:
        raise Damage(
            f"{format_path(str(path))}: the batch at byte {damage} is bad, and good ones follow; "
            "nothing was changed. Truncate the file there (truncate -s) to fetch again what "
            "follows, or fetch into another directory"
        )
    return end
