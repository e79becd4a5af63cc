"""The files beside the segments of a Liftbridge partition, as arrays.

    <base offset>.index             { relative offset i4 | timestamp i8 | position i4 | size i4 }*      and zeros behind
    replication-offset-checkpoint   text: the high watermark, -1 where nothing is committed; no line end
    leader-epoch-checkpoint         text: 0, a count, and so many lines "epoch start-offset"

All integers are big-endian. Every record has an entry: where it begins in the segment, and its bytes with the header of
28. While it is written to, an index is a memory-mapped file of 10 MiB or more; only a closed one ends with its entries.
Source: github.com/liftbridge-io/liftbridge, server/commitlog: index.go, commitlog.go, leader_epoch_cache.go.
"""
from __future__ import annotations

import re
import struct
from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.errors import FrameError
from wirescan.source import name_of, ranges, read_range, seekable_size

COLUMNS = ("offset", "timestamp", "position", "size")
LAYOUT = struct.Struct(">iqii")
INDEX_ENTRY = np.dtype(list(zip(COLUMNS, (">i4", ">i8", ">i4", ">i4"))))
SMALLEST = 44               # bytes of a record that holds nothing
LARGEST = 1 << 30           # an index has fewer bytes than this: a position in a segment is below 2 GiB

INDEX = np.dtype([(name, np.int64) for name in COLUMNS])
EPOCHS = np.dtype([("leader_epoch", np.uint64), ("start_offset", np.int64)])


class Entry(NamedTuple):
    """One entry, as in an array of dtype INDEX."""
    offset: int
    timestamp: int
    position: int
    size: int


def read_index(path: str) -> np.ndarray:
    """The entries of an .index: array of dtype INDEX: `offset` i8, of the log and not relative, `timestamp` i8,
    nanoseconds since 1970, `position` i8, in the segment, and `size` i8, of the whole record.

    Zeros behind the last entry, of an index in use, are left out, and so is an entry that the end of the file cuts.
    Raises FrameError, NOT_A_FRAME, for an entry whose offset does not rise, or that does not begin where the one before
    ends; ValueError for a name that is no offset, OSError.
    """
    base, raw, entries = _entries(path)
    good = _count_of_good(base, entries)
    if good < len(entries):
        at = good * INDEX_ENTRY.itemsize
        raise FrameError(Fault.NOT_A_FRAME, at, good, raw[at:at + INDEX_ENTRY.itemsize], path)
    return entries


def all_entries(path: str) -> np.ndarray:
    """The entries of an .index, as `read_index`, whatever they say. Raises as that, but for their sake."""
    return _entries(path)[2]


def around(path: str, column: str, goal: int) -> tuple[Entry | None, Entry | None]:
    """The last entry whose column is below a goal, and the first from there on whose is not, by binary search: so the
    column has to rise. None where there is no such entry, or no index that can be read; what they say is not checked.
    """
    base, number = int(name_of(path)[:20]), COLUMNS.index(column)
    try:
        count = seekable_size(path) // LAYOUT.size
        with ranges(path) as part:
            def read(i: int) -> Entry:
                offset, *rest = LAYOUT.unpack(part(i * LAYOUT.size, (i + 1) * LAYOUT.size))
                return Entry(base + offset, *rest)

            def is_behind(i: int) -> bool:
                found = read(i)
                return not any(found[1:]) or found[number] >= goal
            i = bisect_left(range(count), True, key=is_behind)
            behind = read(i) if i < count else None
            return read(i - 1) if i else None, behind if behind and any(behind[1:]) else None
    except (OSError, struct.error):             # it cannot be read, or became shorter meanwhile
        return None, None


def before_time(path: str, timestamp: int, most: int) -> Entry | None:
    """The entry before the first whose timestamp is not below the one given, the last one if there is none. Timestamps
    may fall, so the entries are read from the first on, `most` of them, up to one that cannot be one."""
    try:
        base, _, entries = _entries(path, most)
    except (OSError, ValueError):
        return None
    entries = entries[:_count_of_good(base, entries)]
    late = np.flatnonzero(entries["timestamp"] >= timestamp)[:1].tolist() or [len(entries)]
    return Entry(*entries[late[0] - 1].tolist()) if late[0] else None


def high_watermark(path: str) -> int:
    """The offset in a replication-offset-checkpoint: that of the last record that was known to be committed, -1 where
    none was. Raises FrameError, OSError."""
    raw = _whole(path)
    if not re.fullmatch(rb"-1|\d{1,19}", raw) or int(bytes(raw)) >= 1 << 63:
        raise FrameError(Fault.NOT_A_FRAME if len(raw) else Fault.TRUNCATED, 0, 0, raw, path)
    return int(bytes(raw))


def leader_epochs(path: str) -> np.ndarray:
    """The lines of a leader-epoch-checkpoint: array of dtype EPOCHS: `leader_epoch` u8, which rises, and `start_offset`
    i8 (-1: the log was empty). Raises FrameError with the offset of the line that is wrong, OSError."""
    *lines, rest = bytes(_whole(path)).split(b"\n")
    at, found = 0, list[tuple[int, ...]]()
    for number, line in enumerate(lines):
        fields = re.fullmatch(rb"(\d{1,19}) (-1|\d{1,19})" if number > 1 else rb"(\d{1,19})", line)
        numbers = tuple(map(int, fields.groups())) if fields else (1 << 63,)
        if max(numbers) >= 1 << 63 or number > 2 and numbers[0] <= found[-1][0]:
            raise FrameError(Fault.NOT_A_FRAME, at, number, line, path)
        if number == 0 and numbers[0]:
            raise FrameError(Fault.BAD_VERSION, at, number, line, path)
        found.append(numbers)
        at += len(line) + 1
    if rest or len(found) < 2:
        raise FrameError(Fault.TRUNCATED, at, len(found), rest, path)
    if found[1][0] != len(found) - 2:
        raise FrameError(Fault.BAD_COUNT, len(lines[0]) + 1, 1, lines[1], path)
    return np.array(found[2:], EPOCHS)


def _whole(path: str, most: int | None = None) -> memoryview:
    size = seekable_size(path)
    if most is None and size >= LARGEST:
        raise FrameError(Fault.BAD_LENGTH, 0, 0, read_range(path, 0, INDEX_ENTRY.itemsize), path)
    return read_range(path, 0, size if most is None else min(size, most * INDEX_ENTRY.itemsize))


def _entries(path: str, most: int | None = None) -> tuple[int, memoryview, np.ndarray]:
    """The offset that a file is named for, its bytes, and the entries in them."""
    base, raw = int(name_of(path).split(".")[0]), _whole(path, most)
    if not 0 <= base < 1 << 63:
        raise ValueError(f"no offset of a log: {base}")
    used = len(bytes(raw).rstrip(b"\0"))
    count = min(-(-used // INDEX_ENTRY.itemsize), len(raw) // INDEX_ENTRY.itemsize)
    entries = np.frombuffer(raw[:count * INDEX_ENTRY.itemsize], INDEX_ENTRY).astype(INDEX)
    entries["offset"] += base
    return base, raw, entries


def _count_of_good(base: int, entries: np.ndarray) -> int:
    """How many entries there are before the first that cannot be one."""
    offset, size = entries["offset"], entries["size"]
    bad = (size < SMALLEST) | (entries["position"] != np.cumsum(size) - size) | (offset < base)
    bad[1:] |= offset[1:] <= offset[:-1]
    return int(bad.argmax()) if bad.any() else len(entries)
