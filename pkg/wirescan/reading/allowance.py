"""`Allowance`: what the bytes of one file may expand to, over all groups that are opened.

`Limits` bounds each group by itself. A small file may have many groups, so the sum needs a bound
too. This module has the rule. `chunked.py`, `nested_groups.py` and the command's `read_input`
apply it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.arena import DEFLATE_RATIO
from wirescan.frames.errors import NEAR, ExpansionError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_rows_with_list
from wirescan.frames.table import FrameTable

if TYPE_CHECKING:
    from wirescan.frames.scanned_columns import ScannedColumns

# The first bytes of a file: the allowance does not grow with them. So it is the same for all
# files of up to twice this size, which may thus compress better than others.
FIRST_BYTES = 512 << 10
ROW_COST = 512  # decompressed bytes that take about as long as one row, where rows are written
# A file of more than 1 MiB may have so many rows for each further byte. Logs of equal small records
# have about one.
ROWS_PER_BYTE = 8
PAIR_COST = 128  # the same for a pair in a list of a row, such as a header
# Faults that a stream of deflate has at its end, after all of it was decompressed.
ENDS_OF_DEFLATE = (Fault.BAD_CHECKSUM, Fault.TRUNCATED, Fault.LEFTOVER)
REFUSED_BYTES = 1 << 20  # at least so many bytes are decompressed until a payload is too large


class Allowance:
    """Counts what the bytes of one file expand to, and raises an error where it is too much.

    The allowance is `limits.expansion` times the bytes that were read. The first 512 KiB of these
    bytes do not count, but the bytes that count are at least 512 KiB. Decompressed bytes and rows
    are counted apart, and each format is. A row counts as 512 bytes, and a pair in a list of a row
    as 128 bytes.

    Args:
        limits: its `expansion` is applied; None allows everything.
    """

    def __init__(self, limits: Limits) -> None:
        self._expansion = limits.expansion
        self._limits = limits
        self._read = 0  # bytes of the file, as they are stored
        self._unpacked = 0  # bytes of a compressed file's contents
        self._inflated: Counter[str] = Counter()  # bytes of payloads, by format
        self._row_cost: Counter[str] = Counter()  # by format

    @property
    def total(self) -> float:
        """The allowance for the bytes that were read so far, in bytes."""
        if self._expansion is None:
            return float("inf")
        return self._expansion * max(self._read - FIRST_BYTES, FIRST_BYTES)

    @property
    def row_total(self) -> float:
        """The allowance for the rows of the bytes that were read so far, in bytes."""
        if self._expansion is None:
            return float("inf")
        first = max(self._expansion * FIRST_BYTES, ROW_COST * self._read)
        further = max(self._read - 2 * FIRST_BYTES, 0)
        return first + ROWS_PER_BYTE * self._expansion * further

    def count_read(self, count: int) -> None:
        """Count bytes that were read from the file."""
        self._read += count

    def copy_read(self, other: Allowance) -> None:
        """Count as read what another allowance of the same file counted as read."""
        self._read = other._read

    def count_chunks(self, chunks: Iterable[Any]) -> Iterator[Any]:
        """Yield the chunks of a file, and count their bytes as read."""
        for chunk in chunks:
            self.count_read(len(chunk))
            yield chunk

    def spend_contents(self, data: memoryview) -> None:
        """Count the next contents of a file that is compressed as a whole.

        Raises ExpansionError if they are more than the allowance.
        """
        position = self._unpacked
        self._unpacked += len(data)
        if self._unpacked > self.total:
            raise ExpansionError(Fault.LIMIT, position, 0, data[:NEAR])

    def spend_frames(self, frames: FrameTable) -> None:
        """Count outermost frames.

        Raises ExpansionError if the rows so far are more than the allowance.
        """
        self._spend(frames.name, frames, 0, ROW_COST * len(frames))

    def spend_nested(self, inner: FrameTable, outermost: FrameTable) -> None:
        """Count the frames that were opened inside some outermost frames.

        inner: the frames inside.
        outermost: the outermost frames that were opened.

        Raises ExpansionError if what was opened so far is more than the allowance.
        """
        if inner.format is outermost.format:
            return  # `spend_frames` has counted them
        inflated = sum(map(len, inner.buffers)) - sum(map(len, outermost.buffers))
        inflated += self._measure_refused(inner, outermost)
        cost = PAIR_COST * _count_pairs(inner)
        level = inner
        while level.format is not outermost.format and level.outer is not None:
            cost += ROW_COST * len(level)
            level = level.outer
        self._spend(inner.name, outermost, max(inflated, 0), cost)

    def spend_columns(self, frames: ScannedColumns) -> None:
        """Count frames inside others that were read as columns.

        Raises ExpansionError if what was opened so far is more than the allowance.
        """
        outermost = frames.outer
        assert outermost is not None
        inflated = sum(map(len, frames.buffers)) - sum(map(len, outermost.buffers))
        cost = ROW_COST * len(frames) + PAIR_COST * frames.count_pairs()
        self._spend(frames.name, outermost, inflated, cost)

    def _measure_refused(self, inner: FrameTable, outermost: FrameTable) -> int:
        """Return the most bytes that were decompressed of payloads that were refused.

        The arguments are those of `spend_nested`.
        """
        if not inner["fault"].any():
            return 0
        too_large = inner["fault"] == Fault.TOO_LARGE
        damaged = inner["fault"] == Fault.BAD_COMPRESSION
        deflated = _find_damaged_deflate(inner, outermost)
        damaged[deflated] = True
        if not (too_large | damaged).any():
            return 0
        ratios = np.full(len(inner), self._limits.ratio, np.int64)
        ratios[deflated] = min(self._limits.ratio, DEFLATE_RATIO)
        bytes_tried = ratios * inner["size"].astype(np.int64)
        bytes_tried[too_large] = np.maximum(bytes_tried[too_large], REFUSED_BYTES)
        bytes_tried = np.minimum(bytes_tried, self._limits.inflated)
        return int(bytes_tried[too_large | damaged].sum())

    def _spend(self, name: str, outermost: FrameTable, inflated: int, cost: int) -> None:
        """Count the cost of frames of a format; an error names the first outermost frame."""
        self._inflated[name] += inflated
        self._row_cost[name] += cost
        if self._inflated[name] > self.total or self._row_cost[name] > self.row_total:
            raise ExpansionError(
                Fault.LIMIT, int(outermost[:1].positions[0]), 0, outermost.frame(0)
            )


def _find_damaged_deflate(inner: FrameTable, outermost: FrameTable) -> np.ndarray:
    """Return the rows of frames inside whose stream of deflate is damaged at its end: int64."""
    is_deflated = outermost.format.parser.is_deflated
    if is_deflated is None:
        return np.zeros(0, np.int64)
    # Other bytes than those of an outermost frame were decompressed, and are counted.
    in_frames = inner["buffer"] < len(outermost.buffers)
    rows = np.flatnonzero(np.isin(inner["fault"], ENDS_OF_DEFLATE) & in_frames)
    if not len(rows):
        return rows
    parents = rows
    level = inner
    while level.format is not outermost.format and level.outer is not None:
        parents = level["parent"][parents]
        level = level.outer
    return rows[is_deflated(outermost)[parents]]


def _count_pairs(table: FrameTable) -> int:
    """Return how many pairs the lists of the rows have, at most.

    The count of a list comes from the wire, but a pair takes at least a byte of the frame or of
    its payload.
    """
    format: Format | None = table.format
    if format is None:
        return 0
    total = 0
    for name, column in format.lists.items():
        if not table[column].any():
            continue  # most tables: one pass instead of several
        has_list = find_rows_with_list(table, name)
        counts = np.minimum(table[column][has_list], table["size"][has_list])
        total += int(counts.sum(dtype=np.int64))
    return total
