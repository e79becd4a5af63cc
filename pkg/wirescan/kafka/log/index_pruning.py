"""Find the part of a segment that can hold records of some offsets and times.

kafka/formats.py puts `compute_statistics` and `prune` into the format kafka.records. They use the
headers of batches and the indexes beside the segment. The docstring of index_files.py shows these
files. `reading.filters` calls them, and plans call `prune`.

Offsets increase in a segment. Timestamps may not, so a range of timestamps gives only a start. An
index that disagrees with the batches is ignored. `prune` supports batches of magic 2; the part
with other batches is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from wirescan.files.source import get_file_name, get_size, make_sibling_path, open_ranges
from wirescan.frames.limits import Limits
from wirescan.kafka.files import SEGMENT, SIZED, SMALLEST
from wirescan.kafka.log.index_files import read_index, read_time_index
from wirescan.kafka.record_batches.scan import scan_batches

HEADER = struct.Struct(">8xi4xb")  # the length of a batch, and its magic
LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max
SEARCH_BYTES = 1 << 20  # bytes after an entry of the .index to search for a batch of the .timeindex
Range = tuple[int | None, int | None]  # (lowest, highest); None: no bound
Read = Callable[[int, int], memoryview]  # (start, stop) -> bytes of the file
ReadBatch = Callable[[int], "np.void | None"]  # position -> row of the batch, see `_read_batch`


def compute_statistics(batches: np.ndarray) -> dict[str, tuple[np.ndarray | None, np.ndarray]]:
    """Return the bounds of the offsets and timestamps in each batch, from its header.

    batches: rows of dtype BATCH. The result is {column of kafka.records: (lowest, highest)}. Each
    bound is an i8 array, or None if there is no lower bound.
    """
    latest = batches["max_timestamp"]
    return {
        # A compressed message set has only its last offset on the wire.
        "offset": (
            np.where(batches["record_count"] < 0, LOWEST, batches["base_offset"]),
            batches["last_offset"],
        ),
        "timestamp": (None, np.where(latest < 0, HIGHEST, latest)),
    }


def prune(path: str, bounds: Mapping[str, Range], *, limits: Limits = Limits()) -> tuple[int, int]:
    """Return (start, stop), the bytes of a segment that can hold the wanted records.

    bounds: {"offset": (lowest, highest), "timestamp": (lowest, highest)}, timestamps in
    milliseconds, None for no bound; a missing column has no bounds. limits: a batch above
    `limits.frame` is damaged, and nothing is pruned by it.
    start and stop are the first byte of a batch or an end of the file. (0, 0) means that no record
    is wanted. A file without the name of a segment is not pruned. Raises OSError.
    """
    total = get_size(path)
    if not SEGMENT.search(get_file_name(path)):
        return 0, total
    start = 0
    stop = total
    low, high = bounds.get("offset", (None, None))
    earliest, _ = bounds.get("timestamp", (None, None))
    with open_ranges(path) as read:
        read_batch = partial(_read_batch, read, total, limits)
        first = None if high is None else read_batch(0)
        if first is not None and first["base_offset"] > high:
            return 0, 0
        # An index with any fault is ignored: the whole segment can be read instead.
        with suppress(OSError, ValueError):
            entries = read_index(make_sibling_path(path, ".index"), total // SMALLEST[0])
            entries = entries[entries["position"] < total]
            if low is not None:
                start = _start(read_batch, entries, low)
            if high is not None:
                stop = _stop(read_batch, entries, high, total)
            if earliest is not None:
                times = read_time_index(make_sibling_path(path, ".timeindex"))
                before = times[: np.searchsorted(times["timestamp"], earliest)]
                for timestamp, offset in before[-1:].tolist():
                    position = _start(read_batch, entries, offset)
                    if position > start and _is_latest(read_batch, position, timestamp, offset):
                        start = position
    return start, max(start, stop)


def _stop(read_batch: ReadBatch, entries: np.ndarray, offset: int, total: int) -> int:
    """Return a position from which on all offsets are higher than `offset`; `total` if unknown.

    The candidate is the batch of the second entry after `offset`. The batch itself must confirm it.
    """
    # An entry has the last offset that was appended at its position.
    behind = np.searchsorted(entries["offset"], offset) + 1
    position = int(entries["position"][behind:].min(initial=total))
    batch = read_batch(position)
    return position if batch is not None and batch["base_offset"] > offset else total


def _start(read_batch: ReadBatch, entries: np.ndarray, offset: int) -> int:
    """Return a position before which all offsets are lower than `offset`; 0 if unknown.

    The candidate is the batch of the last entry up to `offset`. The batch itself must confirm it.
    """
    count = np.searchsorted(entries["offset"], offset, "right")
    position = int(entries["position"][:count].max(initial=0))
    batch = read_batch(position) if position else None
    return position if batch is not None and batch["base_offset"] <= offset else 0


def _is_latest(read_batch: ReadBatch, at: int, timestamp: int, offset: int) -> bool:
    """Return whether the batch with an offset has the timestamp of its entry in the .timeindex.

    The search for the batch begins at position `at`.
    """
    until = at + SEARCH_BYTES
    while at < until:
        batch = read_batch(at)
        if batch is None or batch["last_offset"] >= offset:
            return batch is not None and bool(
                batch["base_offset"] <= offset and batch["max_timestamp"] == timestamp
            )
        at += int(batch["size"])
    return False


def _read_batch(read: Read, total: int, limits: Limits, at: int) -> np.void | None:
    """Return the row of the batch at a position; None if it is not intact or not of magic 2."""
    header = read(at, at + HEADER.size)
    if len(header) < HEADER.size:
        return None
    length, magic = HEADER.unpack(header)
    size = SIZED.overhead + length
    if magic != 2 or not SMALLEST[2] <= size <= min(total - at, limits.frame):
        return None
    batch = read(at, at + size)
    rows, bad, _, used = scan_batches(batch, check=True, resync=False, limits=limits)
    return rows[0] if len(rows) == 1 and not bad and used == size else None
