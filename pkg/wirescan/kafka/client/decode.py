"""The step after fetching: `Decoding` turns FetchedBatches into Parts.

Parts hold tables of records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from wirescan.frames.errors import enforce_mode
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.kafka.batch_formats import records, scan
from wirescan.kafka.client.cluster import Cluster
from wirescan.kafka.client.effects import Operation
from wirescan.kafka.client.fetch_ranges import FetchedBatches, FetchRange, Question, read_range
from wirescan.kafka.log.transactions import committed
from wirescan.kafka.record_batches.scan import verify_batches

PARTS_AHEAD = 2  # decoded parts that wait for the caller, for each partition that is read


class Part(NamedTuple):
    """Some records of a partition, in the order of their offsets.

    records: a table of kafka.records, which may be empty; None where only batches were asked for.
    next_offset: the offset at which the next part begins.
    batches: a table of kafka.batches, those of the records. The first batch may begin before the
        offsets that were asked for, and the last batch may end after them.
    """

    topic: str
    partition: int
    records: FrameTable | None
    next_offset: int
    batches: FrameTable

    @property
    def pieces(self) -> list[memoryview]:
        """The bytes of the batches as received, without bad batches.

        Adjacent batches are in one piece.
        """
        rows = self.batches.rows[~self.batches.bad]
        if not len(rows):
            return []
        start = rows["start"]
        stop = rows["start"] + rows["size"]
        buffer = rows["buffer"]
        is_gap = (start[1:] != stop[:-1]) | (buffer[1:] != buffer[:-1])
        first = np.flatnonzero(np.concatenate([[True], is_gap]))
        last = np.append(first[1:], len(rows)) - 1
        return [
            self.batches.buffers[number][begin:end]
            for number, begin, end in zip(
                buffer[first].tolist(), start[first].tolist(), stop[last].tolist()
            )
        ]


class Decoding(NamedTuple):
    """How FetchedBatches become Parts. The fields are arguments of `kafka.fetch`."""

    isolation: str = "read_uncommitted"
    records: bool = True
    errors: str = "strict"
    check: bool = True
    limits: Limits = Limits()

    def make_part(self, answer: FetchedBatches) -> Part:
        """Return fetched batches as a Part. Raises as `kafka.scan` and `kafka.records`."""
        fetched = answer.range
        batches = self._select_batches(answer)
        table = self._open_records(batches, fetched) if self.records else None
        next_offset = min(answer.next_offset, fetched.stop)
        return Part(fetched.topic, fetched.partition, table, next_offset, batches)

    @property
    def _options(self) -> dict[str, Any]:
        return {"errors": self.errors, "check": self.check, "limits": self.limits}

    def _select_batches(self, answer: FetchedBatches) -> FrameTable:
        """Return the batches of an answer that are in its range and are to be read."""
        start = answer.range.start
        stop = answer.range.stop
        batches = answer.batches
        if self.check and not batches.checked and not (self.records and self.errors == "strict"):
            # In the excluded case the checksums are verified while the records are read. That does
            # not search for the next good batch, so only "strict" may use it.
            batches = scan(answer.fetched.table, **self._options)
        at_stop = np.flatnonzero(~batches.bad & (batches["last_offset"] >= stop - 1))
        if len(at_stop):
            batches = batches[: at_stop[0] + 1]
        in_range = batches
        rows = batches.rows
        # The first offset in a wrapper of magic 0 or 1 is not known, but its last one is.
        keep = batches.bad | (
            (rows["last_offset"] >= start) & ~((rows["magic"] == 2) & (rows["base_offset"] >= stop))
        )
        if self.records:
            keep &= batches.bad | (rows["is_control"] == 0)
        if self.isolation == "read_committed":
            batches = committed(
                batches.where(keep | (rows["is_control"] != 0)), answer.fetched.aborted
            )
        elif not keep.all():
            batches = batches.where(keep)
        if self.check and not in_range.checked and len(batches) < len(in_range):
            # `records` does not verify the batches that were left out. They may have been left out
            # only because they are damaged.
            _verify(in_range.where(~np.isin(in_range["start"], batches["start"])))
        return batches

    def _open_records(self, batches: FrameTable, fetch_range: FetchRange) -> FrameTable:
        """Return the records of batches, without those outside the range."""
        table = records(batches, **self._options)
        rows = batches.rows
        may_exceed = (
            (rows["base_offset"] < fetch_range.start)
            | (rows["last_offset"] >= fetch_range.stop)
            | (rows["record_count"] < 0)
        )
        if not may_exceed.any():
            return table
        offset = table["offset"]
        inside = table.bad | ((offset >= fetch_range.start) & (offset < fetch_range.stop))
        return table if inside.all() else table.where(inside)


class FetchJob(NamedTuple):
    """How the ranges of a topic are read.

    cluster: of the topic.
    question: how to fetch.
    decoding: how to decode.
    side_by_side: the number of ranges that are read at the same time.
    """

    cluster: Cluster
    question: Question
    decoding: Decoding
    side_by_side: int

    def read(self, fetch_range: FetchRange) -> Operation[None]:
        """Return the operation that reads a range and gives its FetchedBatches."""
        limits = self.decoding.limits
        return read_range(self.cluster, fetch_range, self.question, limits, self.decoding.errors)


def _verify(batches: FrameTable) -> None:
    """Raise FrameError for the first batch whose checksum is wrong."""
    rows = batches.rows.copy()
    rows["fault"] = verify_batches(rows, batches.buffers)
    enforce_mode(replace(batches, rows=rows), "strict", int(np.count_nonzero(rows["fault"])))
