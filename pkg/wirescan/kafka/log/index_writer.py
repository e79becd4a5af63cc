"""Writes the indexes beside the segments of a log, as a broker does when it recovers a segment.

The docstring of index_files.py shows the files. Source: Apache Kafka, LogSegment.recover,
TimeIndex.maybeAppend and ProducerStateManager.lastStableOffset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from contextlib import ExitStack
from typing import BinaryIO

import numpy as np

from wirescan.files.source import make_sibling_path
from wirescan.frames.table import FrameTable
from wirescan.kafka.files import INTERVAL
from wirescan.kafka.log.index_files import ABORTED_ENTRY, OFFSET_ENTRY, TIME_ENTRY
from wirescan.kafka.log.transactions import ABORT, DATA, list_transaction_steps
from wirescan.seglog.index_entries import parse_base_offset

NO_TIME = -1  # the timestamp of batches without one


class KafkaIndexWriter:
    """Writes .index, .timeindex and .txnindex of the segments of one partition.

    An .index has an entry for the first batch that begins more than 4 KiB after the batch of the
    entry before. The .timeindex has an entry with each of these, and one at the end, where the
    highest timestamp so far has risen. A .txnindex is written only if a transaction of the segment
    was aborted. Transactions may continue from segment to segment.

    The methods are those of `wirescan.frames.logs.IndexWriter`.
    """

    def __init__(self) -> None:
        # Producer -> start of its open transaction, in the order of these offsets. The first one of
        # an OrderedDict is found in constant time, also after many were removed.
        self._first_offsets: OrderedDict[int, int] = OrderedDict()

    def start_segment(self, path: str) -> None:
        """Begin the indexes of a new segment. Its name is its base offset. Raises OSError."""
        self._path = path
        self._base = parse_base_offset(path)
        self._last_entry = 0  # position of the batch of the last entry
        self._latest = NO_TIME  # the highest timestamp so far
        self._latest_offset = 0  # the relative last offset of its batch
        self._last_time = NO_TIME  # of the last entry of the .timeindex
        self._files = ExitStack()
        self._offset_index = self._open(".index")
        self._time_index = self._open(".timeindex")
        self._aborted: BinaryIO | None = None

    def _open(self, ending: str) -> BinaryIO:
        return self._files.enter_context(open(make_sibling_path(self._path, ending), "xb"))

    def add(self, frames: FrameTable, position: int) -> None:
        """Add entries for good batches of the segment, in their order. Raises OSError.

        The batches are one after another in the segment, from the byte `position` on.
        """
        if not len(frames):
            return
        sizes = frames["size"].astype(np.int64)
        starts = position + np.cumsum(sizes) - sizes
        last = frames["last_offset"] - self._base
        chosen = self._choose_entries(starts.tolist())
        entries = np.empty(len(chosen), OFFSET_ENTRY)
        entries["offset"] = last[chosen]
        entries["position"] = starts[chosen]
        self._offset_index.write(entries.tobytes())
        self._add_times(frames["max_timestamp"], last, chosen)
        self._add_aborted(frames)

    def _choose_entries(self, starts: list[int]) -> list[int]:
        """Return the numbers of the batches that get an entry, by their positions."""
        chosen = []
        number = bisect_right(starts, self._last_entry + INTERVAL)
        while number < len(starts):
            chosen.append(number)
            self._last_entry = starts[number]
            number = bisect_right(starts, self._last_entry + INTERVAL, number)
        return chosen

    def _add_times(self, times: np.ndarray, last: np.ndarray, chosen: list[int]) -> None:
        """Write the entries of the .timeindex that belong to the chosen batches."""
        latest = np.maximum.accumulate(np.append(self._latest, times))
        is_later = latest[1:] > latest[:-1]
        rows = np.maximum.accumulate(np.where(is_later, np.arange(len(times)), -1))
        offsets = np.where(rows >= 0, last[rows], self._latest_offset)
        entries = np.empty(len(chosen), TIME_ENTRY)
        entries["timestamp"] = latest[1:][chosen]
        entries["offset"] = offsets[chosen]
        before = np.append(self._last_time, entries["timestamp"])
        self._time_index.write(entries[before[1:] > before[:-1]].tobytes())
        self._last_time = int(before[-1])
        self._latest = int(latest[-1])
        self._latest_offset = int(offsets[-1])

    def _add_aborted(self, frames: FrameTable) -> None:
        """Follow the transactions, and write an entry for each one that is aborted."""
        steps = list_transaction_steps(frames)
        for producer, offset, kind in steps.tolist():
            if kind == DATA:
                self._first_offsets.setdefault(producer, offset)
                continue
            first = self._first_offsets.pop(producer, None)
            if first is None or kind != ABORT:
                continue  # a marker without data changes nothing
            stable = next(iter(self._first_offsets.values()), offset + 1)
            entry = np.array((0, producer, first, offset, stable), ABORTED_ENTRY)
            self._aborted = self._aborted or self._open(".txnindex")
            self._aborted.write(entry.tobytes())

    def end_segment(self) -> None:
        """Complete the indexes of the segment. Raises OSError."""
        if self._latest > self._last_time:
            entry = np.array((self._latest, self._latest_offset), TIME_ENTRY)
            self._time_index.write(entry.tobytes())
        self._files.close()

    def describe_end(self) -> list[str]:
        """Return a line for each transaction that has no end in the log."""
        return [
            f"the transaction of producer {producer} from offset {first} has no end: readers "
            "of committed data stop there"
            for producer, first in self._first_offsets.items()
        ]
