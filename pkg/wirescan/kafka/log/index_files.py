"""Read the files beside the segments of a partition, and checkpoints of the data directory.

The other modules of log/ and the command line use these functions.

    <base offset>.index       { relative offset i4 | position i4 }*
    <base offset>.timeindex   { timestamp i8 | relative offset i4 }*
    <base offset>.txnindex    { version i2 = 0 | producer id i8 | first offset i8 | last offset i8
                              | last stable offset i8 }*
    <offset>.snapshot         version i2 = 1 | CRC-32C u4 of the following bytes | count i4
                              | { producer id i8 | epoch i2 | last sequence i4 | last offset i8
                                | offset delta i4 | timestamp i8 | coordinator epoch i4
                                | first offset of the open transaction i8, or -1 }*
    leader-epoch-checkpoint   text: 0, a count, and for each entry a line "epoch first-offset"
    *-offset-checkpoint       text: 0, a count, and for each entry a line "topic partition offset"
    partition.metadata        text: "version: 0" and "topic_id: " with 16 bytes in base64

All integers are big-endian. An .index and a .timeindex are sparse, and zeros may follow their
entries. An entry of an .index names a batch by its position, and has the last offset that was
appended there. An entry of a .timeindex has the highest timestamp so far, and an offset in the
batch with that timestamp.

Source: Apache Kafka, "Log" of the documentation, and its classes OffsetIndex, TimeIndex,
AbortedTxn, ProducerStateManager, CheckpointFile and PartitionMetadataFile.
"""

from __future__ import annotations

import base64
import re
import uuid
from typing import NamedTuple

import numpy as np

from wirescan.core.checksum import crc32c
from wirescan.core.fault import Fault
from wirescan.files.source import get_file_name, get_seekable_size, read_range
from wirescan.frames.errors import FrameError
from wirescan.frames.logs import OFFSET_END

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
ABORTED_COLUMNS = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
ABORTED_ENTRY = np.dtype([("version", ">i2"), *((name, ">i8") for name in ABORTED_COLUMNS)])
PRODUCER_ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("transaction_first_offset", ">i8"),
    ]
)
SNAPSHOT_HEAD = 10  # bytes: version, checksum, count
SNAPSHOT_VERSION = 1
LARGEST = 1 << 31  # these files of Kafka have fewer bytes
MAX_DIGITS = 19  # digits of the largest i8

OFFSETS = np.dtype([("offset", np.int64), ("position", np.int64)])
TIMES = np.dtype([("timestamp", np.int64), ("offset", np.int64)])
ABORTED = np.dtype([(name, np.int64) for name in ABORTED_COLUMNS])
PRODUCERS = PRODUCER_ENTRY.newbyteorder("=")
EPOCHS = np.dtype([("epoch", np.int64), ("start_offset", np.int64)])


class PartitionMetadata(NamedTuple):
    """The content of partition.metadata."""

    version: int
    topic_id: uuid.UUID


def read_index(path: str, max_entries: int | None = None) -> np.ndarray:
    """Return the good entries of an .index, as `read_offset_index` does. Damage is no error here.

    The result ends before the zeros of a preallocated file, and before an entry that does not
    increase. max_entries: the most entries to read; None for all.
    Raises ValueError if the file's name is no offset, OSError.
    """
    base = parse_base_offset(path)
    size = get_seekable_size(path)
    raw = read_range(
        path, 0, size if max_entries is None else min(size, OFFSET_ENTRY.itemsize * max_entries)
    )
    end = len(raw) // OFFSET_ENTRY.itemsize * OFFSET_ENTRY.itemsize
    entries = np.frombuffer(raw[:end], OFFSET_ENTRY)
    bad = np.flatnonzero(_find_not_increasing(entries))
    return _make_absolute(entries[: bad[0]] if len(bad) else entries, OFFSETS, base)


def read_offset_index(path: str) -> np.ndarray:
    """Return the entries of an .index: array of `offset` i8 and `position` i8.

    offset: the absolute offset in the log. position: the byte position in the segment.
    The zeros after the last entry of a preallocated file are no entries. The batch at position 0
    has no entry.
    Raises FrameError if the file ends inside an entry or an entry does not increase. Raises
    ValueError if the file's name is no offset, OSError.
    """
    base, raw, entries = _read_entries(path, OFFSET_ENTRY)
    _raise_if_any(path, raw, entries, _find_not_increasing(entries), Fault.NOT_A_FRAME)
    return _make_absolute(entries, OFFSETS, base)


def read_time_index(path: str) -> np.ndarray:
    """Return the entries of a .timeindex: array of `timestamp` i8 and `offset` i8.

    timestamp: milliseconds. offset: an absolute offset in the batch with the timestamp. Which
    offset of the batch it is depends on the broker's version.
    Zeros at the end and exceptions are as for `read_offset_index`.
    """
    base, raw, entries = _read_entries(path, TIME_ENTRY)
    times = entries["timestamp"].astype(np.int64)
    offsets = entries["offset"].astype(np.int64)
    bad = (np.diff(times, prepend=-1) <= 0) | (times < 0) | (np.diff(offsets, prepend=0) < 0)
    _raise_if_any(path, raw, entries, bad, Fault.NOT_A_FRAME)
    return _make_absolute(entries, TIMES, base)


def read_transaction_index(path: str) -> np.ndarray:
    """Return the aborted transactions of a .txnindex, in the order in which they ended.

    Array of `producer_id`, `first_offset`, `last_offset` and `last_stable_offset`, all i8.
    `last_offset` is the offset of the marker, which is in the segment.
    Raises FrameError if the file ends inside an entry, for an unknown version, and for an entry
    with impossible offsets. Raises ValueError if the file's name is no offset, OSError.
    """
    base, raw, entries = _read_entries(path, ABORTED_ENTRY, preallocated=False)
    _raise_if_any(path, raw, entries, entries["version"] != 0, Fault.BAD_VERSION)
    first = entries["first_offset"].astype(np.int64)
    last = entries["last_offset"].astype(np.int64)
    rises = np.concatenate([last[:1] >= base, last[1:] > last[:-1]])
    bad = (first < 0) | (first >= last) | ~rises
    _raise_if_any(path, raw, entries, bad, Fault.NOT_A_FRAME)
    out = np.empty(len(entries), ABORTED)
    for name in ABORTED_COLUMNS:
        out[name] = entries[name]
    return out


def read_producer_snapshot(path: str) -> np.ndarray:
    """Return the producers that a broker knew at the offset in the file's name.

    Array of dtype PRODUCERS: `producer_id` i8, `producer_epoch` i2, `last_sequence` i4,
    `last_offset` i8, `offset_delta` i4, `timestamp` i8 (milliseconds), `coordinator_epoch` i4,
    `transaction_first_offset` i8 (-1: no transaction is open).
    Raises FrameError for an unknown version and for a checksum or a count that does not match,
    OSError.
    """
    raw = _read_file(path)
    if len(raw) < SNAPSHOT_HEAD:
        raise FrameError(Fault.TRUNCATED, 0, 0, raw, path)
    if int.from_bytes(raw[:2], "big") != SNAPSHOT_VERSION:
        raise FrameError(Fault.BAD_VERSION, 0, 0, raw, path)
    if crc32c(raw[6:]) != int.from_bytes(raw[2:6], "big"):
        raise FrameError(Fault.BAD_CHECKSUM, 0, 0, raw, path)
    count = int.from_bytes(raw[6:10], "big", signed=True)
    if len(raw) != SNAPSHOT_HEAD + PRODUCER_ENTRY.itemsize * count:
        raise FrameError(Fault.BAD_COUNT, 6, 0, raw[6:], path)
    return np.frombuffer(raw[SNAPSHOT_HEAD:], PRODUCER_ENTRY).astype(PRODUCERS)


def read_leader_epochs(path: str) -> np.ndarray:
    """Return the entries of a leader-epoch-checkpoint: array of `epoch` i8 and `start_offset` i8.

    The epochs increase. Raises FrameError with the position of the wrong line, OSError.
    """
    entries = _read_checkpoint(path, re.compile(rb"(\d+) (\d+)"))
    out = np.array([(int(epoch), int(offset)) for _, (epoch, offset) in entries], EPOCHS)
    falls = np.flatnonzero(np.diff(out["epoch"], prepend=-1) <= 0)
    if len(falls):
        row = int(falls[0])
        position, fields = entries[row]
        raise FrameError(Fault.NOT_A_FRAME, position, row, b" ".join(fields), path)
    return out


def read_offset_checkpoint(path: str) -> dict[tuple[str, int], int]:
    """Return the entries of an offset checkpoint of a data directory: (topic, partition) -> offset.

    Raises FrameError with the position of the wrong line, OSError.
    """
    entries = _read_checkpoint(path, re.compile(rb"([A-Za-z0-9._-]{1,249}) (\d+) (\d+)"))
    return {
        (topic.decode("ascii"), int(partition)): int(offset)
        for _, (topic, partition, offset) in entries
    }


def read_partition_metadata(path: str) -> PartitionMetadata:
    """Return the content of a partition.metadata. Raises FrameError, OSError."""
    raw = bytes(_read_file(path))
    text = re.fullmatch(rb"version: (\d{1,5})\ntopic_id: ([A-Za-z0-9_-]{22})\n?", raw)
    if not text:
        raise FrameError(Fault.NOT_A_FRAME, 0, 0, raw, path)
    version = int(text[1])
    if version != 0:
        raise FrameError(Fault.BAD_VERSION, 0, 0, raw, path)
    return PartitionMetadata(version, uuid.UUID(bytes=base64.urlsafe_b64decode(text[2] + b"==")))


def _read_file(path: str) -> memoryview:
    """Return the bytes of a file. Raises FrameError if it is too large for a file of Kafka."""
    size = get_seekable_size(path)
    if size >= LARGEST:
        raise FrameError(Fault.BAD_LENGTH, 0, 0, read_range(path, 0, OFFSET_ENTRY.itemsize), path)
    return read_range(path, 0, size)


def parse_base_offset(path: str) -> int:
    """Return the offset in a file's name. Raises ValueError if the name has no valid offset."""
    base = int(get_file_name(path).split(".")[0])
    if not 0 <= base < OFFSET_END:
        raise ValueError(f"the offset in a file's name must be from 0 to 2**63 - 1, not {base}")
    return base


def _read_entries(
    path: str, dtype: np.dtype, *, preallocated: bool = True
) -> tuple[int, memoryview, np.ndarray]:
    """Return the offset in a file's name, the file's bytes, and the entries in them.

    preallocated: the zeros at the end of the file are no entries.
    """
    base = parse_base_offset(path)
    raw = _read_file(path)
    count, rest = divmod(len(raw), dtype.itemsize)
    if rest:
        raise FrameError(Fault.TRUNCATED, count * dtype.itemsize, count, raw[-rest:], path)
    if preallocated:
        used = np.flatnonzero(np.frombuffer(raw, np.uint8))
        count = -(-(int(used[-1]) + 1) // dtype.itemsize) if len(used) else 0
    return base, raw, np.frombuffer(raw[: count * dtype.itemsize], dtype)


def _raise_if_any(
    path: str, raw: memoryview, entries: np.ndarray, bad: np.ndarray, fault: Fault
) -> None:
    """Raise FrameError for the first bad entry, if there is one."""
    rows = np.flatnonzero(bad)
    if len(rows):
        at = int(rows[0]) * entries.dtype.itemsize
        raise FrameError(fault, at, int(rows[0]), raw[at : at + entries.dtype.itemsize], path)


def _find_not_increasing(entries: np.ndarray) -> np.ndarray:
    """Return a bool array: whether the offset or the position of each entry does not increase."""
    offsets = np.diff(entries["offset"].astype(np.int64), prepend=-1)
    positions = np.diff(entries["position"].astype(np.int64), prepend=0)
    return (offsets <= 0) | (positions <= 0)


def _make_absolute(entries: np.ndarray, dtype: np.dtype, base: int) -> np.ndarray:
    """Return a copy of entries with absolute offsets."""
    out = entries.astype(dtype)
    out["offset"] += base
    return out


def _read_checkpoint(path: str, entry: re.Pattern[bytes]) -> list[tuple[int, tuple[bytes, ...]]]:
    """Return the entries of a text checkpoint, each as its position in the file and its fields.

    The first line is the version and the second line is the count.
    """
    raw = bytes(_read_file(path))
    *lines, rest = raw.split(b"\n")
    position = 0
    parsed = []
    for number, line in enumerate(lines):
        fields = entry.fullmatch(line) if number > 1 else re.fullmatch(rb"(\d+)", line)
        if not fields or any(map(_is_too_large, fields.groups()[-2:])):
            raise FrameError(Fault.NOT_A_FRAME, position, number, line, path)
        if number == 0 and int(line):
            raise FrameError(Fault.BAD_VERSION, position, number, line, path)
        parsed.append((position, fields.groups()))
        position += len(line) + 1
    if rest or len(parsed) < 2:
        raise FrameError(Fault.TRUNCATED, position, len(parsed), rest, path)
    second_position, (count,) = parsed[1]
    if int(count) != len(parsed) - 2:
        raise FrameError(Fault.BAD_COUNT, second_position, 1, lines[1], path)
    return parsed[2:]


def _is_too_large(field: bytes) -> bool:
    """Return whether a decimal number does not fit in an i8."""
    return len(field) > MAX_DIGITS or int(field) >= OFFSET_END
