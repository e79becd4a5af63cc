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
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wirescan.core.checksum import crc32c
from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError
from wirescan.seglog.index_entries import (
    IndexLayout,
    find_falls,
    read_checkpoint,
    read_entries,
    read_epochs,
    read_good_entries,
    read_side_file,
)

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

OFFSETS = np.dtype([("offset", np.int64), ("position", np.int64)])
TIMES = np.dtype([("timestamp", np.int64), ("offset", np.int64)])
ABORTED = np.dtype([(name, np.int64) for name in ABORTED_COLUMNS])
PRODUCERS = PRODUCER_ENTRY.newbyteorder("=")
EPOCHS = np.dtype([("epoch", np.int64), ("start_offset", np.int64)])


class PartitionMetadata(NamedTuple):
    """The content of partition.metadata."""

    version: int
    topic_id: uuid.UUID


def _find_offset_faults(base: int, entries: np.ndarray) -> Iterator[tuple[Fault, np.ndarray]]:
    falls = find_falls(entries["offset"], base) | find_falls(entries["position"], 1)
    yield Fault.NOT_A_FRAME, falls


def _find_time_faults(base: int, entries: np.ndarray) -> Iterator[tuple[Fault, np.ndarray]]:
    falls = find_falls(entries["timestamp"], 0) | find_falls(entries["offset"], base, strict=False)
    yield Fault.NOT_A_FRAME, falls


def _find_aborted_faults(base: int, entries: np.ndarray) -> Iterator[tuple[Fault, np.ndarray]]:
    yield Fault.BAD_VERSION, entries["version"] != 0
    first = entries["first_offset"]
    last = entries["last_offset"]
    yield Fault.NOT_A_FRAME, (first < 0) | (first >= last) | find_falls(last, base)


OFFSET_INDEX = IndexLayout(OFFSET_ENTRY, OFFSETS, _find_offset_faults)
TIME_INDEX = IndexLayout(TIME_ENTRY, TIMES, _find_time_faults)
ABORTED_INDEX = IndexLayout(
    ABORTED_ENTRY,
    ABORTED_ENTRY.newbyteorder("="),
    _find_aborted_faults,
    is_preallocated=False,
)


def read_index(path: str, max_entries: int | None = None) -> np.ndarray:
    """Return the good entries of an .index, as `read_offset_index` does. Damage is no error here.

    The result ends before the zeros of a preallocated file, and before an entry that does not
    increase. max_entries: the most entries to read; None for all.
    Raises ValueError if the file's name is no offset, OSError.
    """
    return read_good_entries(path, OFFSET_INDEX, max_entries)


def read_offset_index(path: str) -> np.ndarray:
    """Return the entries of an .index: array of `offset` i8 and `position` i8.

    offset: the absolute offset in the log. position: the byte position in the segment.
    The zeros after the last entry of a preallocated file are no entries. The batch at position 0
    has no entry.
    Raises FrameError if the file ends inside an entry or an entry does not increase. Raises
    ValueError if the file's name is no offset, OSError.
    """
    return read_entries(path, OFFSET_INDEX)


def read_time_index(path: str) -> np.ndarray:
    """Return the entries of a .timeindex: array of `timestamp` i8 and `offset` i8.

    timestamp: milliseconds. offset: an absolute offset in the batch with the timestamp. Which
    offset of the batch it is depends on the broker's version.
    Zeros at the end and exceptions are as for `read_offset_index`.
    """
    return read_entries(path, TIME_INDEX)


def read_transaction_index(path: str) -> np.ndarray:
    """Return the aborted transactions of a .txnindex, in the order in which they ended.

    Array of `producer_id`, `first_offset`, `last_offset` and `last_stable_offset`, all i8.
    `last_offset` is the offset of the marker, which is in the segment.
    Raises FrameError if the file ends inside an entry, for an unknown version, and for an entry
    with impossible offsets. Raises ValueError if the file's name is no offset, OSError.
    """
    return read_entries(path, ABORTED_INDEX)[ABORTED_COLUMNS].astype(ABORTED)


def read_producer_snapshot(path: str) -> np.ndarray:
    """Return the producers that a broker knew at the offset in the file's name.

    Array of dtype PRODUCERS: `producer_id` i8, `producer_epoch` i2, `last_sequence` i4,
    `last_offset` i8, `offset_delta` i4, `timestamp` i8 (milliseconds), `coordinator_epoch` i4,
    `transaction_first_offset` i8 (-1: no transaction is open).
    Raises FrameError for an unknown version and for a checksum or a count that does not match,
    OSError.
    """
    raw = read_side_file(path)
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
    return read_epochs(path, rb"(\d+) (\d+)", EPOCHS)


def read_offset_checkpoint(path: str) -> dict[tuple[str, int], int]:
    """Return the entries of an offset checkpoint of a data directory: (topic, partition) -> offset.

    Raises FrameError with the position of the wrong line, OSError.
    """
    lines = read_checkpoint(path, rb"([A-Za-z0-9._-]{1,249}) (\d+) (\d+)")
    return {
        (topic.decode("ascii"), int(partition)): int(offset)
        for _, (topic, partition, offset) in lines
    }


def read_partition_metadata(path: str) -> PartitionMetadata:
    """Return the content of a partition.metadata. Raises FrameError, OSError."""
    raw = bytes(read_side_file(path))
    text = re.fullmatch(rb"version: (\d{1,5})\ntopic_id: ([A-Za-z0-9_-]{22})\n?", raw)
    if not text:
        raise FrameError(Fault.NOT_A_FRAME, 0, 0, raw, path)
    version = int(text[1])
    if version != 0:
        raise FrameError(Fault.BAD_VERSION, 0, 0, raw, path)
    return PartitionMetadata(version, uuid.UUID(bytes=base64.urlsafe_b64decode(text[2] + b"==")))
