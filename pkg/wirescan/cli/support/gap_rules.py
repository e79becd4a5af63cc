"""The rules for the offsets of a log in `wirescan verify`: order, gaps, and what explains a gap.

Damage beside a gap makes it a loss. Inside a segment only compaction leaves other gaps. Before the
first batch of a segment, a segment may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from wirescan.cli.support.finding_printer import FileFinding, FileGap
from wirescan.cli.support.log_offsets import Gap, Offsets
from wirescan.cli.support.losses import LogLosses
from wirescan.frames.format import Format
from wirescan.frames.logs import Claim
from wirescan.frames.table import FrameTable
from wirescan.seglog.frame_offsets import log_columns

# A finding that is not a fault of a frame.
ORDER = "OFFSET_ORDER"
ORDER_MEANING = "the offset is not above that of the frame before"


class GapRules:
    """Verifies the offsets of one log, from batch to batch.

    Call `start_file` for each segment, then `check_batches` for its batches.

    Args:
        format: the outermost format of the files.
        losses: the state of the log. It gets the losses, and signs of damage and compaction.
        is_start_cut: the first batches of the first segment are not read.
        follows_cut: ... or the segments before it.

    Attributes:
        missing: gaps before the first batch of a segment. Unless the log turns out to be compacted,
            a segment is missing there.
    """

    def __init__(self, format: Format, losses: LogLosses, *, is_start_cut: bool, follows_cut: bool):
        self._losses = losses
        self._is_start_cut = is_start_cut
        self._follows_cut = follows_cut
        self._offsets = Offsets(format)
        self._path = ""
        self._base: int | None = None  # of the segment in progress
        self._is_first = True  # no good batch of this file was read yet
        self._edge: int | None = None  # the last offset of the first good batch after a cut
        self.missing: list[FileGap] = []

    @property
    def previous(self) -> int | None:
        """The last offset of the previous good batch; None if the log has none yet."""
        return self._offsets.previous

    def start_file(self, path: str, base: int | None) -> None:
        """Announce that the next batches are those of another file of the log.

        base: the base offset of the segment; None for a file that is not named as a segment.
        """
        self._path = path
        self._base = base
        self._is_first = True
        self._offsets.start_file(path)

    def check_batches(
        self, frames: FrameTable, first: np.ndarray, claims: Mapping[int, Claim | None]
    ) -> Iterator[FileFinding | FileGap]:
        """Yield the offsets of the next batches that are out of order or missing.

        Args:
            frames: the batches.
            first: i8 array with the first offset in each batch, -1 if not known.
            claims: row -> what the header of that bad batch claims.
        """
        starts = frames.positions
        good = np.flatnonzero(~frames.bad)
        bad = np.flatnonzero(frames.bad)
        if len(good):
            self._set_log_start(first, int(good[0]), claims)
        missing_inside = self._offsets.missing_inside
        gaps, disorder = self._offsets.follow(frames, first)
        self._losses.compacted |= self._offsets.missing_inside > missing_inside
        if self._follows_cut and self._edge is None and len(good):
            self._edge = int(frames[log_columns(frames).last][good[0]])
        for row, before in disorder:
            if before == self._edge:
                continue  # the batches before the first one are not known: it may be the wrong one
            yield self._make_order_finding(frames, row, int(starts[row]), before)
        misplaced = {row for row, _ in disorder}
        for gap, previous, between in _list_bad_before_gaps(gaps, good, bad):
            # A batch with a wrong offset leaves a gap where it belongs.
            is_near = gap.row in misplaced or previous in misplaced
            near = [claims[row] for row in between]
            yield self._classify_gap(
                gap, int(starts[gap.row]), near, is_first=previous is None, is_near=is_near
            )
        if len(good):
            self._is_first = False
            self._losses.clear_damage()
        for row in bad[bad > (good[-1] if len(good) else -1)].tolist():
            self._losses.add_damage(claims[row])

    def _make_order_finding(
        self, frames: FrameTable, row: int, at: int, before: int
    ) -> FileFinding:
        """Return the finding for the batch at byte `at`, whose offset is not above `before`."""
        offset = int(frames[log_columns(frames).first][row])
        return FileFinding(
            self._path,
            ORDER,
            f"{ORDER_MEANING} ({offset} after {before})",
            at,
            int(frames["size"][row]),
            frames.frame(row),
        )

    def _classify_gap(
        self,
        gap: Gap,
        at: int,
        near: list[Claim | None],
        *,
        is_first: bool,
        is_near: bool,
    ) -> FileGap:
        """Return a gap, with its loss if damage explains it.

        Args:
            gap: the gap.
            at: byte position in the file after the gap.
            near: what the bad batches in the place of the gap claim.
            is_first: the gap is before the first good batch of the table.
            is_near: a batch beside the gap has an offset out of order.
        """
        if near or is_near or is_first and self._losses.damaged:
            claims = [*self._losses.claims] if is_first else []
            claims += [claim for claim in near if claim is not None]
            lost = self._losses.add_loss(gap.first, gap.last, claims)
            return FileGap(self._path, at, gap.first, gap.last, lost)
        self._explain_gap(gap, at, is_first=is_first and self._is_first)
        return FileGap(self._path, at, gap.first, gap.last)

    def _set_log_start(
        self, first: np.ndarray, row: int, claims: Mapping[int, Claim | None]
    ) -> None:
        """Set where a log begins if its first good batch is not its first one.

        Damage or a segment without batches may precede that batch. Then the name of the segment
        or the header of a damaged batch gives the start.

        Args:
            first: i8 array with the first offset in each batch, -1 if not known.
            row: the first good batch of the table.
            claims: row -> what the header of that bad batch claims.
        """
        losses = self._losses
        follows_empty = len(losses.verified) > 1
        is_preceded = row or losses.damaged or follows_empty
        if self._offsets.previous is not None or not is_preceded:
            return
        here = [claim for i, claim in claims.items() if i < row and claim is not None]
        begin = int(first[row])
        starts = [claim.first for claim in [*losses.claims, *here] if 0 <= claim.first < begin]
        is_start_known = bool(losses.verified) and not self._is_start_cut
        starts += [min(losses.verified)] if is_start_known else []
        if starts and min(starts) < begin:
            self._offsets.expect(min(starts))

    def _explain_gap(self, gap: Gap, at: int, *, is_first: bool) -> None:
        """Decide whether compaction or a missing segment explains a gap without damage.

        Inside a segment, and at or after its base offset, only compaction leaves a gap. A gap
        before the base offset is a missing segment, unless the log is compacted.

        Args:
            gap: the gap.
            at: byte position in the file after the gap.
            is_first: the gap is before the first good batch of the file.
        """
        base = self._base
        if not is_first or base is None or base <= gap.first:
            self._losses.compacted = True
        elif not self._losses.has_unverified_segment(gap.first, gap.last):
            last = min(gap.last, base - 1)
            self._losses.compacted |= last < gap.last
            self.missing.append(FileGap(self._path, at, gap.first, last))


def _list_bad_before_gaps(
    gaps: list[Gap], good: np.ndarray, bad: np.ndarray
) -> Iterator[tuple[Gap, int | None, list[int]]]:
    """Yield each gap, the good row before it (None if there is none), and the bad rows between.

    Args:
        gaps: the gaps in a table, before some of its good rows.
        good: the good rows of the table.
        bad: its bad rows.
    """
    rows = np.array([gap.row for gap in gaps], np.int64)
    places = np.searchsorted(good, rows)
    previous = np.where(places > 0, good[places - 1], -1) if len(rows) else rows
    starts = np.searchsorted(bad, previous)
    stops = np.searchsorted(bad, rows)
    for gap, row, start, stop in zip(gaps, previous.tolist(), starts.tolist(), stops.tolist()):
        yield gap, None if row < 0 else row, bad[start:stop].tolist()
