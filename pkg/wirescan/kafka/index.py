"""The files beside the segments of a partition, and those of the data directory around it, as arrays.

    <base offset>.index       { relative offset i4 | position i4 }*                     sparse; zeros behind them
    <base offset>.timeindex   { timestamp i8 | relative offset i4 }*                    sparse; zeros behind them
    <base offset>.txnindex    { version i2 = 0 | producer id i8 | first offset i8 | last offset i8
                              | last stable offset i8 }*
    <offset>.snapshot         version i2 = 1 | CRC-32C u4 of what follows | count i4 | { producer id i8 | epoch i2
                              | last sequence i4 | last offset i8 | offset delta i4 | timestamp i8
                              | coordinator epoch i4 | first offset of the open transaction i8, or -1 }*
    leader-epoch-checkpoint   text: 0, a count, and so many lines "epoch first-offset"
    *-offset-checkpoint       text: 0, a count, and so many lines "topic partition offset"
    partition.metadata        text: "version: 0" and "topic_id: " with 16 bytes in base64

All integers are big-endian. An entry of an .index names a batch: its position, and the last offset of what was
appended there. One of a .timeindex says which timestamp is the highest so far, and an offset in the batch that has it.
Source: Apache Kafka, "Log" of the documentation, and its OffsetIndex, TimeIndex, AbortedTxn, ProducerStateManager,
CheckpointFile and PartitionMetadataFile.
"""
from __future__ import annotations

import base64
import re
import uuid
from typing import NamedTuple

import numpy as np

from wirescan.core.checksum import crc32c
from wirescan.core.fault import Fault
from wirescan.errors import FrameError
from wirescan.source import name_of, read_range, seekable_size

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
ABORTED_ENTRY = np.dtype([("version", ">i2"), ("producer_id", ">i8"), ("first_offset", ">i8"), ("last_offset", ">i8"),
                          ("last_stable_offset", ">i8")])
PRODUCER_ENTRY = np.dtype([("producer_id", ">i8"), ("producer_epoch", ">i2"), ("last_sequence", ">i4"),
                           ("last_offset", ">i8"), ("offset_delta", ">i4"), ("timestamp", ">i8"),
                           ("coordinator_epoch", ">i4"), ("transaction_first_offset", ">i8")])
SNAPSHOT_HEAD = 10          # bytes: version, checksum, count
SNAPSHOT_VERSION = 1
LARGEST = 1 << 31           # Kafka's files have fewer bytes than this

OFFSETS = np.dtype([("offset", np.int64), ("position", np.int64)])
TIMES = np.dtype([("timestamp", np.int64), ("offset", np.int64)])
ABORTED = np.dtype([(name, np.int64) for name in ABORTED_ENTRY.names[1:]])
PRODUCERS = PRODUCER_ENTRY.newbyteorder("=")
EPOCHS = np.dtype([("epoch", np.int64), ("start_offset", np.int64)])


class Metadata(NamedTuple):
    """What partition.metadata holds."""
    version: int
    topic_id: uuid.UUID


def read_index(path: str, most: int | None = None) -> np.ndarray:
    """The entries of an offset index, as `offset_index`, as far as they are good; damage is no error here.

    Ends before the zeros of a preallocated file, and before an entry that does not increase. most: entries that are
    read. Raises ValueError for a name that is no offset, OSError.
    """
    base, size = base_of(path), seekable_size(path)
    raw = read_range(path, 0, size if most is None else min(size, OFFSET_ENTRY.itemsize * most))
    entries = np.frombuffer(raw[:len(raw) // OFFSET_ENTRY.itemsize * OFFSET_ENTRY.itemsize], OFFSET_ENTRY)
    falls = np.flatnonzero(_falls(entries))
    return _absolute(entries[:falls[0]] if len(falls) else entries, OFFSETS, base)


def offset_index(path: str) -> np.ndarray:
    """The entries of an .index: array of `offset` i8, of the log and not relative, and `position` i8 in the segment.

    Zeros behind the last entry, of a preallocated file, are left out. No entry is that of the batch at position 0.
    Raises FrameError where the file is cut inside an entry or an entry does not increase, ValueError for a name that is
    no offset, OSError.
    """
    base, raw, entries = _entries(path, OFFSET_ENTRY)
    _refuse(path, raw, entries, _falls(entries), Fault.NOT_A_FRAME)
    return _absolute(entries, OFFSETS, base)


def time_index(path: str) -> np.ndarray:
    """The entries of a .timeindex: array of `timestamp` i8, milliseconds, and `offset` i8 of the log.

    The offset lies in the batch that has the timestamp; which of its offsets it is depends on the broker's version.
    Zeros are left out, and what is raised is, as in `offset_index`.
    """
    base, raw, entries = _entries(path, TIME_ENTRY)
    times, offsets = (entries[name].astype(np.int64) for name in ("timestamp", "offset"))
    _refuse(path, raw, entries, (np.diff(times, prepend=-1) <= 0) | (times < 0) | (np.diff(offsets, prepend=0) < 0),
            Fault.NOT_A_FRAME)
    return _absolute(entries, TIMES, base)


def transaction_index(path: str) -> np.ndarray:
    """The aborted transactions in a .txnindex, in the order in which they ended: array of `producer_id`,
    `first_offset`, `last_offset` (of the marker, which lies in the segment) and `last_stable_offset`, all i8.

    Raises FrameError where the file is cut inside an entry, for an unknown version, and for an entry that cannot be
    one; ValueError for a name that is no offset, OSError.
    """
    base, raw, entries = _entries(path, ABORTED_ENTRY, zeros=False)
    _refuse(path, raw, entries, entries["version"] != 0, Fault.BAD_VERSION)
    first, last = (entries[name].astype(np.int64) for name in ("first_offset", "last_offset"))
    rises = np.concatenate([last[:1] >= base, last[1:] > last[:-1]])
    _refuse(path, raw, entries, (first < 0) | (first >= last) | ~rises, Fault.NOT_A_FRAME)
    return entries[list(ABORTED.names)].astype(ABORTED)


def producer_snapshot(path: str) -> np.ndarray:
    """The producers that a broker knew at the offset in the name: array of dtype PRODUCERS: `producer_id` i8,
    `producer_epoch` i2, `last_sequence` i4, `last_offset` i8, `offset_delta` i4, `timestamp` i8 (milliseconds),
    `coordinator_epoch` i4, `transaction_first_offset` i8 (-1: no transaction is open).

    Raises FrameError for an unknown version, a checksum or count that does not match; OSError.
    """
    raw = _whole(path)
    if len(raw) < SNAPSHOT_HEAD:
        raise FrameError(Fault.TRUNCATED, 0, 0, raw, path)
    if int.from_bytes(raw[:2], "big") != SNAPSHOT_VERSION:
        raise FrameError(Fault.BAD_VERSION, 0, 0, raw, path)
    if crc32c(raw[6:]) != int.from_bytes(raw[2:6], "big"):
        raise FrameError(Fault.BAD_CHECKSUM, 0, 0, raw, path)
    if SNAPSHOT_HEAD + PRODUCER_ENTRY.itemsize * int.from_bytes(raw[6:10], "big", signed=True) != len(raw):
        raise FrameError(Fault.BAD_COUNT, 6, 0, raw[6:], path)
    return np.frombuffer(raw[SNAPSHOT_HEAD:], PRODUCER_ENTRY).astype(PRODUCERS)


def leader_epochs(path: str) -> np.ndarray:
    """The lines of a leader-epoch-checkpoint: array of `epoch` i8 and `start_offset` i8, epochs rising.

    Raises FrameError with the offset of the line that is wrong, OSError.
    """
    found = _checkpoint(path, re.compile(rb"(\d+) (\d+)"))
    out = np.array([(int(epoch), int(offset)) for _, (epoch, offset) in found], EPOCHS)
    falls = np.flatnonzero(np.diff(out["epoch"], prepend=-1) <= 0)
    if len(falls):
        row = int(falls[0])
        raise FrameError(Fault.NOT_A_FRAME, found[row][0], row, b" ".join(found[row][1]), path)
    return out


def offset_checkpoint(path: str) -> dict[tuple[str, int], int]:
    """The lines of an offset checkpoint of a data directory: (topic, partition) -> offset.

    Raises FrameError with the offset of the line that is wrong, OSError.
    """
    found = _checkpoint(path, re.compile(rb"([A-Za-z0-9._-]{1,249}) (\d+) (\d+)"))
    return {(topic.decode("ascii"), int(partition)): int(offset) for _, (topic, partition, offset) in found}


def partition_metadata(path: str) -> Metadata:
    """What a partition.metadata says. Raises FrameError, OSError."""
    raw = bytes(_whole(path))
    found = re.fullmatch(rb"version: (\d{1,5})\ntopic_id: ([A-Za-z0-9_-]{22})\n?", raw)
    if not found:
        raise FrameError(Fault.NOT_A_FRAME, 0, 0, raw, path)
    if int(found[1]) != 0:
        raise FrameError(Fault.BAD_VERSION, 0, 0, raw, path)
    return Metadata(int(found[1]), uuid.UUID(bytes=base64.urlsafe_b64decode(found[2] + b"==")))


def _whole(path: str) -> memoryview:
    size = seekable_size(path)
    if size >= LARGEST:
        raise FrameError(Fault.BAD_LENGTH, 0, 0, read_range(path, 0, OFFSET_ENTRY.itemsize), path)
    return read_range(path, 0, size)


def base_of(path: str) -> int:
    """The offset that a file is named for. Raises ValueError where it is none."""
    base = int(name_of(path).split(".")[0])
    if not 0 <= base < 1 << 63:
        raise ValueError(f"no offset of a log: {base}")
    return base


def _entries(path: str, dtype: np.dtype, zeros: bool = True) -> tuple[int, memoryview, np.ndarray]:
    """The offset that a file is named for, its bytes, and the entries in them. zeros: leave out those at the end."""
    base, raw = base_of(path), _whole(path)
    count, rest = divmod(len(raw), dtype.itemsize)
    if rest:
        raise FrameError(Fault.TRUNCATED, count * dtype.itemsize, count, raw[-rest:], path)
    if zeros:
        used = np.flatnonzero(np.frombuffer(raw, np.uint8))
        count = -(-(int(used[-1]) + 1) // dtype.itemsize) if len(used) else 0
    return base, raw, np.frombuffer(raw[:count * dtype.itemsize], dtype)


def _refuse(path: str, raw: memoryview, entries: np.ndarray, bad: np.ndarray, fault: Fault) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        at = int(rows[0]) * entries.dtype.itemsize
        raise FrameError(fault, at, int(rows[0]), raw[at:at + entries.dtype.itemsize], path)


def _falls(entries: np.ndarray) -> np.ndarray:
    return ((np.diff(entries["offset"].astype(np.int64), prepend=-1) <= 0)
            | (np.diff(entries["position"].astype(np.int64), prepend=0) <= 0))


def _absolute(entries: np.ndarray, dtype: np.dtype, base: int) -> np.ndarray:
    out = entries.astype(dtype)
    out["offset"] += base
    return out


def _checkpoint(path: str, entry: re.Pattern[bytes]) -> list[tuple[int, tuple[bytes, ...]]]:
    """The entries of a text checkpoint, each as its offset in the file and its fields."""
    raw = bytes(_whole(path))
    *lines, rest = raw.split(b"\n")
    at, found = 0, []
    for number, line in enumerate(lines):
        fields = entry.fullmatch(line) if number > 1 else re.fullmatch(rb"(\d+)", line)
        if not fields or any(len(field) > 19 or int(field) >= 1 << 63 for field in fields.groups()[-2:]
                             if field.isdigit()):
            raise FrameError(Fault.NOT_A_FRAME, at, number, line, path)
        if number == 0 and int(line):
            raise FrameError(Fault.BAD_VERSION, at, number, line, path)
        found.append((at, fields.groups()))
        at += len(line) + 1
    if rest or len(found) < 2:
        raise FrameError(Fault.TRUNCATED, at, len(found), rest, path)
    if int(found[1][1][0]) != len(found) - 2:
        raise FrameError(Fault.BAD_COUNT, found[1][0], 1, lines[1], path)
    return found[2:]
