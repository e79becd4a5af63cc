"""The offsets of a log as its batches, or entries, go by: what is missing between them, and what is out of order."""
from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from wirescan.table import FrameTable

# Frames that continue each other by their offsets: the columns of the first one in a frame, and of the last.
LOGS = {"kafka.batches": ("base_offset", "last_offset"), "liftbridge.entries": ("offset", "offset")}
SEGMENT = re.compile(r"^(.*?)\d{20}\.log$", re.DOTALL)


class Gap(NamedTuple):
    """Offsets first..last are missing before the batch in row `row`."""
    row: int
    first: int
    last: int


class Offsets:
    """Follows the offsets of one log; `turn` to the next file, then `follow` its batches in order.

    Segments of one directory continue each other; any other file begins anew. Bad batches are passed over:
    what they held shows as a gap. Attributes: first, last (None before any), gaps and missing (how many),
    lacking (offsets inside batches that have no record: compaction took it).
    """
    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.gaps = self.missing = self.lacking = 0
        self._log: str | None = None
        self._last: int | None = None

    def turn(self, path: str) -> None:
        """The batches that follow are those of another file."""
        segment = SEGMENT.match(path)
        log = segment[1] if segment else None
        if log is None or log != self._log:
            self._last = None
        self._log = log

    def follow(self, batches: FrameTable, first: np.ndarray) -> tuple[list[Gap], list[tuple[int, int]]]:
        """(gaps, [(row, the offset before it) of batches that are out of order]).

        first: i8 array, the first offset in each batch, -1 where it is not known.
        """
        good = np.flatnonzero(~batches.bad)
        if not len(good):
            return [], []
        rows = batches.rows[good]
        base, last = (rows[name] for name in LOGS[batches.name])
        counted = "record_count" in rows.dtype.fields
        count = rows["record_count"].astype(np.int64) if counted else np.ones(len(rows), np.int64)
        begin = first[good]
        known = begin >= 0
        begin = np.where(known, begin, last)
        before = np.concatenate([[begin[0] - 1 if self._last is None else self._last], last[:-1]])
        step = begin - before
        self.lacking += int((last - base + 1 - count)[count >= 0].sum())
        gaps = [Gap(int(good[i]), int(before[i]) + 1, int(begin[i]) - 1)
                for i in np.flatnonzero((step > 1) & known)]
        disorder = [(int(good[i]), int(before[i])) for i in np.flatnonzero(step < 1)]
        self.gaps += len(gaps)
        self.missing += sum(gap.last - gap.first + 1 for gap in gaps)
        self._last = int(last[-1])
        lowest, highest = int(begin.min()), int(last.max())
        self.first = lowest if self.first is None else min(self.first, lowest)
        self.last = highest if self.last is None else max(self.last, highest)
        return gaps, disorder


def first_offsets(batches: FrameTable) -> np.ndarray:
    """The first offset in each batch as the headers tell it; -1 for wrappers, which do not."""
    first = batches[LOGS[batches.name][0]]
    return np.where(batches["record_count"] < 0, -1, first) if "record_count" in batches.rows.dtype.fields else first


def learn(first: np.ndarray, records: FrameTable, at: int) -> None:
    """Fill in what the headers do not tell; `records` were opened from the batches from row `at` on."""
    if "offset" not in records.rows.dtype.fields:
        return
    good = records.where(~records.bad)
    parents, rows = np.unique(good["parent"], return_index=True)
    unknown = first[at + parents] < 0
    first[at + parents[unknown]] = good["offset"][rows[unknown]]
