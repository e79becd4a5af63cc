"""The log offsets of frames: which columns have them, and what damaged headers claim."""

from __future__ import annotations

import numpy as np

from wirescan.frames.format import Format
from wirescan.frames.logs import Claim, LogColumns, SegmentName
from wirescan.frames.table import FrameTable

UNKNOWN = -1  # the first offset of a frame that does not state it and was not opened


def log_columns(table: FrameTable) -> LogColumns:
    """Return the log columns of a table's format. Raises TypeError for frames of no log."""
    if table.format is None or table.format.storage.log is None:
        raise TypeError(f"{table.name} has no log offsets")
    return table.format.storage.log


def parse_segment(format: Format, path: str) -> SegmentName | None:
    """Return the parts of the path of a segment; None for the path of another file."""
    segments = None if format.storage.log is None else format.storage.log.segments
    return None if segments is None else segments.parse(path)


def find_first_offsets(batches: FrameTable) -> np.ndarray:
    """Return the first offset in each batch by its header; an empty array for frames of no log.

    It is UNKNOWN for a batch that does not state its number of records.
    """
    if batches.format.storage.log is None:
        return np.empty(0, np.int64)
    first = batches[batches.format.storage.log.first]
    counted = batches.format.display.record_count
    return np.where(batches[counted] < 0, UNKNOWN, first) if counted else first


def read_claims(table: FrameTable, rows: np.ndarray) -> dict[int, Claim | None]:
    """Return what bad rows of a log claim: row -> claim.

    It is None for a row without a claim, and where the good rows around it exclude what it claims.

    rows: row numbers of bad rows, in ascending order.
    """
    if not len(rows):
        return {}
    columns = log_columns(table)
    firsts = table[columns.first]
    lasts = table[columns.last]
    good = np.flatnonzero(~table.bad)
    claims: dict[int, Claim | None] = {}
    # `place` is the number of good rows before the bad one.
    for row, place in zip(rows.tolist(), np.searchsorted(good, rows).tolist()):
        if columns.claim is None:
            offset = int(firsts[row])
            claim: Claim | None = Claim(offset, offset, 1)
        else:
            claim = columns.claim(table.frame(row))
        if claim is not None and (
            (place and claim.first <= lasts[good[place - 1]])
            or (place < len(good) and claim.last >= firsts[good[place]])
        ):
            claim = None
        claims[row] = claim
    return claims
