"""What headers of record batches say beyond their columns.

Summaries, `verify` and filters use it. The formats in formats.py declare it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wirescan.frames.logs import Claim
from wirescan.frames.table import FrameTable
from wirescan.kafka.constants import (
    BATCH_HEADER_SIZE,
    MAGIC_AT,
    NO_TIMESTAMP_TYPE,
    NOT_CONTROL,
    ControlType,
)

# Attributes of a batch whose base_timestamp is not the time of a record: bit 3, LogAppendTime, and
# bit 6, a delete horizon in its place.
OTHER_TIME = 0x08 | 0x40
APPEND_BIT = 3  # of the attributes
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


def compute_timestamp_types(batches: Any) -> np.ndarray:
    """Return the column `timestamp_type`, an i1 array: a `TimestampType` for each batch.

    NO_TIMESTAMP_TYPE stands for messages of magic 0, and for bad rows.

    batches: a table of kafka.batches, or an object that `ComputedColumn.compute` describes.
    """
    types = (batches["attributes"] >> APPEND_BIT & 1).astype(np.int8)
    types[(batches["magic"] == 0) | (batches["fault"] != 0)] = NO_TIMESTAMP_TYPE
    return types


def compute_statistics(batches: np.ndarray) -> dict[str, tuple[np.ndarray | None, np.ndarray]]:
    """Return the bounds of offsets, timestamps and control types in each batch, from its header.

    batches: rows of dtype BATCH. The result is {column of kafka.records: (lowest, highest)}. Each
    bound is an array of integers, or None if there is no lower bound.
    """
    latest = batches["max_timestamp"]
    is_control = batches["is_control"] != 0
    # A compressed message set has only its last offset on the wire, and 0 where a producer wrote
    # it: then the offsets inside are absolute.
    is_wrapper = batches["record_count"] < 0
    last = batches["last_offset"]
    return {
        "offset": (
            np.where(is_wrapper, LOWEST, batches["base_offset"]),
            np.where(is_wrapper & (last == 0), HIGHEST, last),
        ),
        "timestamp": (None, np.where(latest < 0, HIGHEST, latest)),
        "control": (
            np.where(is_control, min(ControlType), NOT_CONTROL),
            np.where(is_control, max(ControlType), NOT_CONTROL),
        ),
    }
