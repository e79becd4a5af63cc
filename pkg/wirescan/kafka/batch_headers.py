"""What headers of record batches say beyond their columns.

Summaries, `verify` and filters use it. The formats in formats.py declare it.
"""

from __future__ import annotations

import numpy as np

from wirescan.frames.logs import Claim
from wirescan.frames.table import FrameTable
from wirescan.kafka.constants import BATCH_HEADER_SIZE, MAGIC_AT

# Attributes of a batch whose base_timestamp is not the time of a record: bit 3, LogAppendTime, and
# bit 6, a delete horizon in its place.
OTHER_TIME = 0x08 | 0x40
LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max


def read_claim(data: memoryview) -> Claim | None:
    """Return what a damaged batch claims, or None without a plausible header of magic 2.

    data: the bytes from the batch's first byte on.
    """
    head = bytes(data[:BATCH_HEADER_SIZE])
    if len(head) < BATCH_HEADER_SIZE or head[MAGIC_AT] != 2:
        return None
    first = int.from_bytes(head[:8], "big", signed=True)
    last = first + int.from_bytes(head[23:27], "big", signed=True)
    records = int.from_bytes(head[57:61], "big", signed=True)
    return Claim(first, last, records) if first >= 0 and 0 < records <= last - first + 1 else None


def has_time(batches: FrameTable, name: str) -> np.ndarray:
    """Return a bool array: the rows of kafka.batches with a record's time in column `name`."""
    has: np.ndarray = batches[name] != -1
    if name == "base_timestamp":
        has &= (batches["magic"] != 2) | (batches["attributes"] & OTHER_TIME == 0)
    return has


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
