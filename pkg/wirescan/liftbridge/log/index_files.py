"""The files beside the segments of a Liftbridge partition, as arrays.

    <base offset>.index             { relative offset i4 | timestamp i8 | position i4 | size i4 }*
                                    and zeros up to the end of the file
    replication-offset-checkpoint   text without a line end: the high watermark, -1 if nothing is
                                    committed
    leader-epoch-checkpoint         text: 0, a count, and as many lines "epoch start-offset"

All integers are big-endian. Each record has an index entry: its start in the segment, and its size
with the header of 28 bytes. While the server writes to an index, it is a memory-mapped file of
10 MiB or more. Only a closed index ends with its last entry.
Source: github.com/liftbridge-io/liftbridge, server/commitlog: index.go, commitlog.go,
leader_epoch_cache.go.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.source import (
    get_file_name,
    get_seekable_size,
    make_sibling_path,
    open_ranges,
    read_range,
)
from wirescan.frames.errors import FrameError
from wirescan.frames.escape import make_visible
from wirescan.frames.logs import OFFSET_END

COLUMNS = ("offset", "timestamp", "position", "size")
# A record's header: offset, timestamp, leader epoch (skipped), number of bytes that follow.
HEADER = struct.Struct(">qq8xI")
LAYOUT = struct.Struct(">iqii")
INDEX_ENTRY = np.dtype(list(zip(COLUMNS, (">i4", ">i8", ">i4", ">i4"))))
SMALLEST = 44  # bytes of a record without key, value and headers
LARGEST = 1 << 30  # bytes that an index does not reach: a position in a segment is below 2 GiB

INDEX = np.dtype([(name, np.int64) for name in COLUMNS])
EPOCHS = np.dtype([("leader_epoch", np.uint64), ("start_offset", np.int64)])


class Entry(NamedTuple):
    """One index entry, as in an array of dtype INDEX."""

    offset: int
    timestamp: int
    position: int
    size: int


def make_index_path(path: str) -> str:
    """Return the path of the .index beside a .log."""
    return make_sibling_path(path, ".index")


def is_confirmed(entry: Entry, header: memoryview) -> bool:
    """Return whether the bytes at an entry's position are the header that the entry describes."""
    return len(header) == HEADER.size and HEADER.unpack(header) == (
        entry.offset,
        entry.timestamp,
        entry.size - HEADER.size,
    )


def read_index(path: str) -> np.ndarray:
    """Return the entries of an .index, as an array of dtype INDEX.

    Columns: `offset` i8, of the log and not relative; `timestamp` i8, nanoseconds since 1970;
    `position` i8, in the segment; `size` i8, of the whole record. Zeros after the last entry of an
    index in use are ignored. So is an entry that the end of the file cuts.

    Raises FrameError(NOT_A_FRAME) for an entry whose offset does not increase, or that does not
    start at the end of the previous record. Raises ValueError for a file name that is not an
    offset, and OSError.
    """
    base, raw, entries = _read_entries(path)
    good = _count_good(base, entries)
    if good < len(entries):
        position = good * INDEX_ENTRY.itemsize
        near = raw[position : position + INDEX_ENTRY.itemsize]
        raise FrameError(Fault.NOT_A_FRAME, position, good, near, path)
    return entries


def read_unchecked(path: str) -> np.ndarray:
    """Return the entries of an .index as `read_index`, but without validation of the entries."""
    return _read_entries(path)[2]


def find_around(path: str, column: str, goal: int) -> tuple[Entry | None, Entry | None]:
    """Return the last entry whose column is below a goal, and the first entry after it.

    The search is binary, so the column must be sorted. An entry is None if it does not exist, or if
    the index cannot be read. The entries are not validated.
    """
    base = int(get_file_name(path)[:20])
    number = COLUMNS.index(column)
    try:
        count = get_seekable_size(path) // LAYOUT.size
        with open_ranges(path) as read_bytes:

            def read(i: int) -> Entry:
                raw = read_bytes(i * LAYOUT.size, (i + 1) * LAYOUT.size)
                offset, *rest = LAYOUT.unpack(raw)
                return Entry(base + offset, *rest)

            def is_behind(i: int) -> int:
                entry = read(i)
                return int(not any(entry[1:]) or entry[number] >= goal)

            i = bisect_left(range(count), 1, key=is_behind)
            behind = read(i) if i < count else None
            before = read(i - 1) if i else None
            return before, behind if behind and any(behind[1:]) else None
    except (OSError, struct.error):  # the file cannot be read, or has become shorter
        return None, None


def find_before_time(path: str, timestamp: int, max_entries: int) -> Entry | None:
    """Return the entry before the first one whose timestamp is not below `timestamp`.

    If all timestamps are below, this is the last entry. Timestamps may decrease, so the entries are
    read from the first one. max_entries: the number of entries to read. The search ends at an
    invalid entry. Returns None if there is no such entry, or if the index cannot be read.
    """
    try:
        base, _, entries = _read_entries(path, max_entries)
    except (OSError, ValueError):
        return None
    entries = entries[: _count_good(base, entries)]
    late = np.flatnonzero(entries["timestamp"] >= timestamp)
    first_late = int(late[0]) if len(late) else len(entries)
    return Entry(*entries[first_late - 1].tolist()) if first_late else None


def read_high_watermark(path: str) -> int:
    """Return the offset in a replication-offset-checkpoint.

    It is the offset of the last record that was known to be committed, -1 if no record was. Raises
    FrameError and OSError.
    """
    raw = _read_file(path)
    if not re.fullmatch(rb"-1|\d{1,19}", raw) or int(bytes(raw)) >= OFFSET_END:
        raise FrameError(Fault.NOT_A_FRAME if len(raw) else Fault.TRUNCATED, 0, 0, raw, path)
    return int(bytes(raw))


def read_leader_epochs(path: str) -> np.ndarray:
    """Return the lines of a leader-epoch-checkpoint, as an array of dtype EPOCHS.

    Columns: `leader_epoch` u8, which increases, and `start_offset` i8 (-1: the log was empty).

    Raises FrameError with the byte position of the line that is wrong, and OSError.
    """
    *lines, rest = bytes(_read_file(path)).split(b"\n")
    position = 0
    numbers_by_line: list[tuple[int, ...]] = []
    for row, line in enumerate(lines):
        pattern = rb"(\d{1,19}) (-1|\d{1,19})" if row > 1 else rb"(\d{1,19})"
        fields = re.fullmatch(pattern, line)
        numbers = tuple(map(int, fields.groups())) if fields else (OFFSET_END,)
        is_repeated = row > 2 and numbers[0] <= numbers_by_line[-1][0]
        if max(numbers) >= OFFSET_END or is_repeated:
            raise FrameError(Fault.NOT_A_FRAME, position, row, line, path)
        if row == 0 and numbers[0]:
            raise FrameError(Fault.BAD_VERSION, position, row, line, path)
        numbers_by_line.append(numbers)
        position += len(line) + 1
    if rest or len(numbers_by_line) < 2:
        raise FrameError(Fault.TRUNCATED, position, len(numbers_by_line), rest, path)
    if numbers_by_line[1][0] != len(numbers_by_line) - 2:
        raise FrameError(Fault.BAD_COUNT, len(lines[0]) + 1, 1, lines[1], path)
    return np.array(numbers_by_line[2:], EPOCHS)


def _read_file(path: str, max_entries: int | None = None) -> memoryview:
    """Return the bytes of a file, or those of its first `max_entries` index entries."""
    size = get_seekable_size(path)
    if max_entries is None and size >= LARGEST:
        raise FrameError(Fault.BAD_LENGTH, 0, 0, read_range(path, 0, INDEX_ENTRY.itemsize), path)
    return read_range(
        path, 0, size if max_entries is None else min(size, max_entries * INDEX_ENTRY.itemsize)
    )


def _read_entries(path: str, max_entries: int | None = None) -> tuple[int, memoryview, np.ndarray]:
    """Return the offset in the file's name, the file's bytes, and the entries in them."""
    base = int(get_file_name(path).split(".")[0])
    raw = _read_file(path, max_entries)
    if not 0 <= base < OFFSET_END:
        raise ValueError(f"the name of {make_visible(path)} is not an offset of a log: {base}")
    used = len(bytes(raw).rstrip(b"\0"))
    count = min(-(-used // INDEX_ENTRY.itemsize), len(raw) // INDEX_ENTRY.itemsize)
    entries = np.frombuffer(raw[: count * INDEX_ENTRY.itemsize], INDEX_ENTRY).astype(INDEX)
    entries["offset"] += base
    return base, raw, entries


def _count_good(base: int, entries: np.ndarray) -> int:
    """Return the number of entries before the first invalid one."""
    offset = entries["offset"]
    size = entries["size"]
    bad = (size < SMALLEST) | (entries["position"] != np.cumsum(size) - size) | (offset < base)
    bad[1:] |= offset[1:] <= offset[:-1]
    return int(bad.argmax()) if bad.any() else len(entries)
