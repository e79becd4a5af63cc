"""The segments of a partition: what is declared of them, and the indexes beside one segment.

The docstring of index_files.py shows the files. directory.py reads the segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wirescan.files.source import make_sibling_path
from wirescan.kafka.files import SEGMENTS, is_tiered
from wirescan.kafka.log import index_files
from wirescan.kafka.record_batches.scan import scan_batches
from wirescan.seglog.index_entries import find_around, read_or_empty
from wirescan.seglog.segments import Segment, SegmentLayout


@dataclass(frozen=True)
class LogSegment(Segment):
    """One segment of a partition directory, as in `Segment`.

    The methods for the three indexes read the files at each call. Without a file they return an
    empty array. They raise as the functions of wirescan.kafka.log.index_files do.
    """

    @property
    def is_tiered(self) -> bool:
        """Whether tiered storage has the segment: its name has an id."""
        return is_tiered(self.path)

    def find_side_path(self, suffix: str) -> str:
        """Return the path of the file with another suffix, such as "index"."""
        return make_sibling_path(self.path, f".{suffix}")

    def read_offset_index(self) -> np.ndarray:
        """Return the .index: array of `offset` i8, `position` i8."""
        return self._read("index", index_files.read_offset_index, index_files.OFFSETS)

    def read_time_index(self) -> np.ndarray:
        """Return the .timeindex: array of `timestamp` i8 (milliseconds), `offset` i8."""
        return self._read("timeindex", index_files.read_time_index, index_files.TIMES)

    def read_transaction_index(self) -> np.ndarray:
        """Return the .txnindex: see `wirescan.kafka.log.index_files.read_transaction_index`."""
        return self._read("txnindex", index_files.read_transaction_index, index_files.ABORTED)

    def _read(self, suffix: str, read: Callable[[str], np.ndarray], dtype: np.dtype) -> np.ndarray:
        return read_or_empty(self.find_side_path(suffix), read, dtype)


def is_after(batch: np.void, offset: int) -> bool:
    """Return whether no record in a batch is before an offset.

    A compressed message set has only its last offset on the wire, so it is not known to be.
    """
    return bool(batch["record_count"] >= 0 and batch["base_offset"] >= offset)


def find_time_hint(path: str, size: int, timestamp: int) -> tuple[int, int] | None:
    """Return the last entry of the .timeindex before a time, as `SegmentLayout` describes it.

    The highest timestamp of a batch is the one in its header. `size` is not used.
    """
    time_index = make_sibling_path(path, ".timeindex")
    entry, _, _ = find_around(time_index, index_files.TIME_INDEX, "timestamp", timestamp)
    return (entry["timestamp"], entry["offset"]) if entry else None


LAYOUT = SegmentLayout(
    scan=scan_batches,
    names=SEGMENTS,
    index=index_files.OFFSET_INDEX,
    first="base_offset",
    last="last_offset",
    time="max_timestamp",
    is_after=is_after,
    find_time_hint=find_time_hint,
)
