"""Follows the offsets of a log from batch to batch: missing offsets, and offsets out of order.

`wirescan stat` and `wirescan verify` use this module. A batch is an outermost frame of a log: it
holds one record or several. A format says which columns hold its offsets (`Storage.log`) and its
number of records (`Display.record_count`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wirescan.frames.format import Format
from wirescan.frames.table import FrameTable
from wirescan.seglog.frame_offsets import log_columns, parse_segment


class Gap(NamedTuple):
    """Offsets first..last are missing before the batch in row `row`."""

    row: int
    first: int
    last: int


class Offsets:
    """Follows the offsets of logs: `start_file` for each file, then `follow` for its batches.

    Segments of one directory continue each other. Any other file begins a new log. Bad batches are
    ignored, so that their offsets appear as a gap.

    Args:
        format: the outermost format of the files.

    Attributes:
        first, last: the lowest and the highest offset so far, of all logs; None before any.
        gaps, missing: the number of gaps, and of offsets in them.
        missing_inside: offsets inside batches that have no record, because of compaction.
        previous: the last offset of the previous good batch; None if this log has none yet.
    """

    def __init__(self, format: Format) -> None:
        self._format = format
        self.first: int | None = None
        self.last: int | None = None
        self.gaps = 0
        self.missing = 0
        self.missing_inside = 0
        self.previous: int | None = None
        self._log: str | None = None
        self._earlier: int | None = None  # `previous` before the last batch in order

    def start_file(self, path: str, *, is_next: bool = True) -> None:
        """Announce that the next batches are those of another file.

        is_next: if it is of the same log, it follows the file before.
        """
        segment = parse_segment(self._format, path)
        log = segment.prefix if segment else None
        if log is None or log != self._log or not is_next:
            self.previous = None
            self._earlier = None
        self._log = log

    def expect(self, offset: int) -> None:
        """Set the offset at which the next batch should begin."""
        self.previous = offset - 1
        self._earlier = None

    def follow(
        self, batches: FrameTable, first: np.ndarray
    ) -> tuple[list[Gap], list[tuple[int, int]]]:
        """Compare the offsets of the next batches with those before them.

        Args:
            batches: the next batches of the file.
            first: i8 array with the first offset in each batch, or UNKNOWN.

        Returns:
            (gaps, [(row, the offset before it)] of the batches that are out of order)
        """
        good = np.flatnonzero(~batches.bad)
        if not len(good):
            return [], []
        rows = batches.rows[good]
        columns = log_columns(batches)
        base = rows[columns.first]
        last = rows[columns.last]
        counted = batches.format.display.record_count
        count = rows[counted].astype(np.int64) if counted else np.ones(len(rows), np.int64)
        begin = first[good]
        has_begin = begin >= 0
        begin = np.where(has_begin, begin, last)
        self.missing_inside += int((last - base + 1 - count)[count >= 0].sum())
        start = int(begin[0]) - 1 if self.previous is None else self.previous
        before = np.concatenate([[start], last[:-1]])
        misplaced: dict[int, int] = {}
        if (begin <= before).any():
            before, misplaced = self._find_misplaced(begin, last, start)
        else:
            self.previous = int(last[-1])
            self._earlier = int(before[-1])
        gaps = [
            Gap(int(good[i]), int(before[i]) + 1, int(begin[i]) - 1)
            for i in np.flatnonzero((begin - before > 1) & has_begin)
        ]
        disorder = [(int(good[i]), reference) for i, reference in misplaced.items()]
        self.gaps += len(gaps)
        self.missing += sum(gap.last - gap.first + 1 for gap in gaps)
        lowest = int(begin.min())
        highest = int(last.max())
        self.first = lowest if self.first is None else min(self.first, lowest)
        self.last = highest if self.last is None else max(self.last, highest)
        return gaps, disorder

    def _find_misplaced(
        self, begin: np.ndarray, last: np.ndarray, start: int
    ) -> tuple[np.ndarray, dict[int, int]]:
        """Find the batches that are out of place.

        A batch out of place does not move the reference for the batches after it. If a batch
        is above the one before the previous, the previous one has the wrong offset.

        Args:
            begin: i8 array with the first offset of each batch.
            last: i8 array with the last offset of each batch.
            start: the offset before the first of them.

        Returns:
            (array of the offset that each batch follows, {row: the offset that it is not above})
        """
        # An object array, since the offset before -2**63 does not fit into 64 bits.
        before = np.empty(len(begin), object)
        misplaced: dict[int, int] = {}
        reference = start
        earlier = self._earlier
        accepted = -1
        for i, (first, end) in enumerate(zip(begin.tolist(), last.tolist())):
            before[i] = reference
            if first > reference:
                earlier = reference
                reference = end
                accepted = i
                continue
            misplaced[i] = reference
            before[i] = first - 1  # a batch out of place has no gap before it
            if earlier is not None and first > earlier:
                # The batch before this one is out of place.
                before[i] = earlier
                reference = end
                if accepted >= 0:
                    before[accepted] = int(begin[accepted]) - 1
            elif i - 1 in misplaced and first > last[i - 1]:
                # Two batches in a row are in order: the log continues from here.
                reference = end
        self.previous = reference
        self._earlier = earlier
        return before, misplaced


def fill_first_offsets(first: np.ndarray, records: FrameTable, at: int) -> None:
    """Replace UNKNOWN in `first` by the offsets of records.

    Args:
        first: the result of `find_first_offsets`; changed in place.
        records: the records of the batches from row `at` on.
        at: a row of the table of batches.
    """
    if not len(first) or records.format.storage.log is None:
        return
    good = records.where(~records.bad)
    parents, rows = np.unique(good["parent"], return_index=True)
    unknown = first[at + parents] < 0
    first[at + parents[unknown]] = good[records.format.storage.log.first][rows[unknown]]
