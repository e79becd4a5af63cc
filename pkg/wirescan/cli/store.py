"""What `wirescan fetch` leaves in a directory, so that a second run can tell where the first ended.

    _<topic>.json                                       whose records these are, and what must stay the same
    <topic>-<partition>/<offset, 20 digits>.log         segments: whole batches, named for the first of them
    <topic>-<partition>-<start>-<stop>.parquet          Parquet: the records of that range of offsets
    _<topic>-<partition>.partial                        ... while it is written

Segments go on behind their last good batch: the tail that a killed process left is cut off, once the cluster is known
to have what follows. A Parquet file has its name once all of it is on the disk. They lie side by side, since Spark does
not look for them in directories below.
"""
from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from wirescan.catalog import format_of
from wirescan.cli.common import Damage, Failure
from wirescan.cli.output import name_of, printable
from wirescan.core.fault import Fault
from wirescan.kafka.log import SEGMENT
from wirescan.pieces import chunks, outermost
from wirescan.table import FrameTable

if TYPE_CHECKING:
    import pyarrow as pa

    from wirescan.kafka.client import Part

INDEXED = (1 << 31) - 1         # offsets from a segment's first that an index of it can tell
GROUP_BYTES = 64 << 20          # of row groups, in all partitions together
SMALLEST_GROUP = 1 << 20
LARGEST_OFFSET = (1 << 63) - 1


class End(NamedTuple):
    """How what is on the disk of a partition ends: the offset behind it; and of segments, the last one with a good
    batch, and its bytes up to the end of that batch."""
    offset: int
    path: Path | None = None
    size: int = 0


class Ledger:
    """What a directory holds of a topic: `starts` has the offset at which each partition begins, by its number.

    held: what must be the same in every run. check: whether this run verifies checksums; the attribute says whether all
    of them did. A context manager: the directory is made, and locked until it is left.
    Raises Failure where it holds something else, or where another process writes to it; OSError.
    """
    def __init__(self, directory: Path, topic: str, held: Mapping[str, Any], check: bool = True):
        self._directory, self._topic, self._held, self.check = directory, topic, dict(held), check
        self._path = directory / f"_{topic}.json"
        self.starts: dict[int, int] = {}

    def __enter__(self) -> Ledger:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                raise Failure(f"{name_of(str(self._directory))}: another fetch writes to it") from None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _read(self) -> None:
        if not self._path.exists():
            return
        try:
            there = json.loads(self._path.read_text())
            starts = there["starts"]
            if not all(number.isdecimal() and type(offset) is int and 0 <= offset <= LARGEST_OFFSET
                       for number, offset in starts.items()):
                raise ValueError("no partition, or no offset")
            self.starts = {int(number): offset for number, offset in starts.items()}
            self.check &= there.get("check", True) is True
            there["version"]
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise Failure(f"{name_of(str(self._path))} is damaged: fetch into another directory") from None
        for name, value in self._held.items():
            if there.get(name) != value:
                raise Failure(f"{name_of(str(self._directory))} holds {self._topic} with {name} "
                              f"{shown(there.get(name))}, not {shown(value)}: fetch into another directory")

    def begin(self, starts: Mapping[int, int]) -> None:
        """Put the starts of further partitions on the disk, before anything of them is there."""
        self.starts |= starts
        made = self._path.with_suffix(".part")          # no longer than the name itself
        with open(made, "w") as file:
            json.dump({**self._held, "check": self.check, "starts": self.starts}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, self._path)
        sync(self._directory)


class Store(Protocol):
    """Where the records of one partition go. records, bytes, files: written by this run."""
    records: int
    bytes: int
    files: int

    def add(self, part: Part) -> None:
        """Takes the next part of the partition."""

    def close(self) -> None:
        """Puts on the disk all that was added."""


class Segments:
    """A partition directory with segments of about `size` bytes; goes on at `end`. Bad batches are left out.

    What the directory holds behind `end`, or where there is none, is removed. Raises OSError, and Damage for batches
    whose offsets do not rise.
    """

    def __init__(self, directory: Path, size: int, end: End | None = None):
        self._directory, self._limit = directory, size
        self._file: BinaryIO | None = None
        self._base = self._size = self.records = self.bytes = self.files = 0
        self._last = -1
        last = end and end.path
        for path in segments(directory):
            if last is None or path > last:
                path.unlink()
        if end and last:
            os.truncate(last, end.size)
            self._last = end.offset - 1
            self._open(last)

    def add(self, part: Part) -> None:
        batches = part.batches.where(~part.batches.bad)
        if not len(batches):
            return
        # No checksum covers base offsets; and segments are named for them.
        first, last = batches["base_offset"], batches["last_offset"]
        before = np.append(self._last, last[:-1])
        wrong = np.flatnonzero((first <= before) | (last < first))
        if len(wrong):
            one = wrong[0]
            raise Damage(f"{self._directory.name}: a batch of offsets {first[one]:,} to {last[one]:,} comes after "
                         f"offset {before[one]:,}")
        ends, at = np.cumsum(batches["size"], dtype=np.int64), 0
        while at < len(batches):
            room = self._limit - self._size + (int(ends[at - 1]) if at else 0)
            stop = int(min(np.searchsorted(ends, room, "right"),
                           np.searchsorted(batches["last_offset"], self._base + INDEXED, "right")))
            if self._file is None or stop <= at and self._size:
                self._roll(int(batches["base_offset"][at]))
                continue
            stop = max(stop, at + 1)            # a batch may be larger than a segment
            self._write(batches, at, stop)
            at = stop
        self._last = int(last[-1])

    def close(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()

    def _write(self, batches: FrameTable, first: int, stop: int) -> None:
        rows = batches.rows[first:stop]
        starts, ends = rows["start"], rows["start"] + rows["size"]
        apart = np.flatnonzero((starts[1:] != ends[:-1]) | (rows["buffer"][1:] != rows["buffer"][:-1])) + 1
        for begin, end in zip([0, *apart], [*apart, len(rows)]):
            data = batches.buffers[rows["buffer"][begin]][int(starts[begin]):int(ends[end - 1])]
            while len(data):
                data = data[self._file.write(data):]
        size = int(rows["size"].sum(dtype=np.int64))
        self._size += size
        self.bytes += size
        offsets = rows["last_offset"] - rows["base_offset"] + 1     # a wrapper does not count its messages
        self.records += int(np.where(rows["record_count"] < 0, offsets, rows["record_count"]).sum())

    def _roll(self, base: int) -> None:
        self.close()
        self._directory.mkdir(exist_ok=True)
        sync(self._directory.parent)
        self._open(self._directory / f"{base:020}.log")
        sync(self._directory)

    def _open(self, path: Path) -> None:
        self._file = open(path, "ab", buffering=0)
        self._base, self._size = int(path.stem), self._file.seek(0, os.SEEK_END)
        self.files += 1


class Parts:
    """Parquet files of a partition from the offset `start` on, each of about `size` bytes of records.

    partitions: so many are written side by side, and share the memory for row groups. Raises OSError.
    """
    def __init__(self, directory: Path, name: str, start: int, schema: pa.Schema, size: int, compression: str,
                 errors: str, partitions: int):
        self._directory, self._name, self._schema = directory, name, schema
        self._limit, self._compression, self._errors = size, compression, errors
        self._group = max(GROUP_BYTES // partitions, SMALLEST_GROUP)
        self._partial = directory / f"_{name}.partial"
        self._start = self._stop = start
        self._writer: Any = None
        self._held: list[pa.RecordBatch] = []
        self._size = self.records = self.bytes = self.files = 0

    def add(self, part: Part) -> None:
        from wirescan.topic import to_batches
        size = int(part.records["size"].sum(dtype=np.int64))
        self._held += to_batches(part, self._schema.names, errors=self._errors)
        self._stop = part.next_offset
        self._size += size
        self.bytes += size
        self.records += len(part.records)
        if self._size >= self._limit:
            self.close()
        elif sum(batch.nbytes for batch in self._held) >= self._group:
            self._flush()

    def close(self) -> None:
        self._flush()
        if self._writer is None:
            return
        self._writer.close()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._partial, self._directory / part_name(self._name, self._start, self._stop))
        sync(self._directory)
        self._writer, self._start, self._size = None, self._stop, 0
        self.files += 1

    def _flush(self) -> None:
        import pyarrow as pa

        from wirescan.parquet import writer
        held, self._held = [batch for batch in self._held if len(batch)], []
        if not held:
            return
        if self._writer is None:
            self._file = open(self._partial, "wb")
            self._writer = writer(self._file, self._schema, self._compression)
        self._writer.write_table(pa.Table.from_batches(held))


def segments_end(directory: Path, name: str, check: bool = True) -> End | None:
    """How the segments of a partition end: behind the last good batch. None where there is none.

    check: False where they were fetched without verifying checksums, and may hold batches that fail theirs.
    Raises Damage where a bad batch lies before a good one: it is not what a killed process leaves; OSError.
    """
    return next(filter(None, (_end(path, check) for path in reversed(segments(directory / name)))), None)


def parts_end(directory: Path, name: str) -> End | None:
    """How the Parquet files of a partition end; None where there is none. A partial one is removed."""
    (directory / f"_{name}.partial").unlink(missing_ok=True)
    pattern = re.compile(re.escape(name) + r"-(\d{20})-(\d{20})\.parquet")
    return max((End(int(found[2])) for found in map(pattern.fullmatch, os.listdir(directory)) if found), default=None)


def part_name(name: str, start: int, stop: int) -> str:
    """The file name of the Parquet file of a partition that has these offsets."""
    return f"{name}-{start:020}-{stop:020}.parquet"


def check_name(directory: Path, name: str) -> None:
    """Raises Failure for a name that is too long for the file system of a directory, in which all are ASCII."""
    most = os.pathconf(directory, "PC_NAME_MAX")
    if len(name) > most:
        raise Failure(f"{name_of(str(directory))}: names there have {most} characters at the most, and that of "
                      f"{name} would have {len(name)}")


def is_there(directory: Path, name: str) -> bool:
    """Whether a directory has anything of a partition."""
    pattern = re.compile(re.escape(name) + r"(-\d{20}-\d{20}\.parquet)?")
    return any(map(pattern.fullmatch, os.listdir(directory)))


def segments(directory: Path) -> list[Path]:
    """The segments of a partition directory, in order."""
    return sorted(path for path in directory.glob("*.log") if SEGMENT.fullmatch(path.name))


def sync(directory: Path) -> None:
    """Put on the disk which names a directory has."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def shown(value: Any) -> str:
    return printable(",".join(map(str, value)) if isinstance(value, list) else str(value))


def _end(path: Path, check: bool) -> End | None:
    """How one segment ends; see `segments_end`."""
    damage = end = None
    for table in outermost(chunks(str(path), 0, path.stat().st_size), format_of("kafka.batches"), errors="mark"):
        bad = table.bad if check else table.bad & (table["fault"] != Fault.BAD_CHECKSUM)
        if damage is None and bad.any():
            damage = int(table.positions[bad.argmax()])
        good = np.flatnonzero(~table.bad)
        if len(good):
            size = int(table.positions[good[-1]]) + int(table["size"][good[-1]])
            end = End(int(table["last_offset"][good[-1]]) + 1, path, size)
    if damage is not None and end is not None and damage < end.size:
        raise Damage(f"{name_of(str(path))}: the batch at byte {damage} is bad, and good ones follow: nothing was "
                     "changed; cut the file there (truncate -s) to fetch again what follows, or fetch into another "
                     "directory")
    return end
