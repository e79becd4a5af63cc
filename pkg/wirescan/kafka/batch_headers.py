"""What headers of record batches say beyond their columns. Summaries and `verify` use it."""

from __future__ import annotations

import numpy as np

from wirescan.frames.logs import Claim
from wirescan.frames.table import FrameTable
from wirescan.kafka.constants import BATCH_HEADER_SIZE, MAGIC_AT

# Attributes of a batch whose base_timestamp is not the time of a record: bit 3, LogAppendTime, and
# bit 6, a delete horizon in its place.
OTHER_TIME = 0x08 | 0x40


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
