"""Where in a segment the records of some offsets and times can be: by its first batch and the indexes beside it.

index.py draws these files. Offsets rise in a segment; timestamps need not, so that only where the wanted ones begin can
be known. An index that the batches do not bear out is passed over. Batches of magic 2 only; others are read.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np

from wirescan.kafka.index import read_index, time_index
from wirescan.kafka.log import SEGMENT, SIZED, SMALLEST
from wirescan.kafka.scan import scan_batches
from wirescan.limits import Limits
from wirescan.source import beside, name_of, ranges, size_of

LENGTH = struct.Struct(">8xi4xb")       # how many bytes follow the length, and the magic
LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
NEAR = 1 << 20              # bytes behind the entry of an index in which a batch is looked for that another one names
Range = tuple[int | None, int | None]
Read = Callable[[int, int], memoryview]


def bounds(batches: np.ndarray) -> dict[str, tuple[np.ndarray | None, np.ndarray]]:
    """Between what the offsets and timestamps in each batch lie, as its header says: (lowest or None, highest), i8."""
    latest = batches["max_timestamp"]
    return {
        # Of a compressed message set only the last offset is known.
        "offset": (np.where(batches["record_count"] < 0, LOWEST, batches["base_offset"]), batches["last_offset"]),
        "timestamp": (None, np.where(latest < 0, HIGHEST, latest)),
    }


def narrow(path: str, wanted: Mapping[str, Range]) -> tuple[int, int]:
    """The bytes of a segment between which all records are whose `offset` and `timestamp` (milliseconds) lie in the
    ranges (lowest, highest; None: any): (start, stop), where batches begin, or the ends of the file; (0, 0) for none.

    All of a file that is not named as a segment is. Raises OSError.
    """
    total = size_of(path)
    if not SEGMENT.search(name_of(path)):
        return 0, total
    start, stop = 0, total
    low, high = wanted.get("offset", (None, None))
    earliest, _ = wanted.get("timestamp", (None, None))
    with ranges(path) as read:
        if high is not None and (first := _batch_at(read, 0, total)) is not None and first["base_offset"] > high:
            return 0, 0
        with suppress(OSError, ValueError):     # whatever is wrong with an index, the segment can be read
            entries = read_index(beside(path, ".index"), total // SMALLEST[0])
            entries = entries[entries["position"] < total]
            if low is not None:
                start = _start(read, entries, low, total)
            if high is not None:
                stop = _stop(read, entries, high, total)
            if earliest is not None:
                times = time_index(beside(path, ".timeindex"))
                for timestamp, offset in times[:np.searchsorted(times["timestamp"], earliest)][-1:].tolist():
                    at = _start(read, entries, offset, total)
                    if at > start and _is_latest(read, at, total, timestamp, offset):
                        start = at
    return start, max(start, stop)


def _stop(read: Read, entries: np.ndarray, offset: int, total: int) -> int:
    """Where the first batch begins that an entry names and that is behind an offset: so are all behind it."""
    # An entry names the last offset of what was appended at its position.
    position = int(entries["position"][np.searchsorted(entries["offset"], offset) + 1:].min(initial=total))
    batch = _batch_at(read, position, total)
    return position if batch is not None and batch["base_offset"] > offset else total


def _start(read: Read, entries: np.ndarray, offset: int, total: int) -> int:
    """Where the batch begins that the last entry up to an offset names: no batch before it has that offset."""
    position = int(entries["position"][:np.searchsorted(entries["offset"], offset, "right")].max(initial=0))
    batch = _batch_at(read, position, total) if position else None
    return position if batch is not None and batch["base_offset"] <= offset else 0


def _is_latest(read: Read, at: int, total: int, timestamp: int, offset: int) -> bool:
    """Whether the batch with an offset, soon behind a position, has the timestamp that an index says it has."""
    until = at + NEAR
    while at < until:
        batch = _batch_at(read, at, total)
        if batch is None or batch["last_offset"] >= offset:
            return batch is not None and bool(batch["base_offset"] <= offset and batch["max_timestamp"] == timestamp)
        at += int(batch["size"])
    return False


def _batch_at(read: Read, at: int, total: int) -> np.void | None:
    """The row of the intact batch of magic 2 at a position, None where there is none."""
    header = read(at, at + LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    length, magic = LENGTH.unpack(header)
    limits, size = Limits(), SIZED.overhead + length
    if magic != 2 or not SMALLEST[2] <= size <= min(total - at, limits.frame):
        return None
    rows, bad, _, used = scan_batches(read(at, at + size), True, False, limits)
    return rows[0] if len(rows) == 1 and not bad and used == size else None
