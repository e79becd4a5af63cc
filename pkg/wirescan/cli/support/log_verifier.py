"""Verifies one log for `wirescan verify`: its offsets, its end, and the files beside its segments.

`gap_rules.py` has the rules for offsets. `LogVerifier` knows which parts of the log are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from wirescan.cli.exit_codes import describe_error
from wirescan.cli.output import format_path
from wirescan.cli.support.finding_printer import FileFinding, FileGap
from wirescan.cli.support.gap_rules import GapRules
from wirescan.cli.support.losses import LogLosses, Lost
from wirescan.cli.support.segment_scope import SegmentScope
from wirescan.frames.format import Format
from wirescan.frames.logs import (
    Claim,
    Finding,
    Reach,
    SegmentCheck,
    SegmentName,
    SegmentNames,
    SideFiles,
)
from wirescan.frames.table import FrameTable

# Findings that are not faults of a frame.
GONE = "MISSING_SEGMENT"
GONE_MEANING = "a segment, or the end of one, is missing"
NO_SEGMENT_MEANING = "its segment is missing"
SHORTER = "LOG_TOO_SHORT"


class LogVerifier:
    """Verifies one log, or the part of it that is read without a break.

    A file that is not named as a segment is a log of its own. Call `start_file` for each segment,
    `check_batches` and then `check_side_files` for its batches, `end_file`, and at last `end`.

    Args:
        format: the outermost format of the files.
        segment: the name of the first segment; None for a file that is not named as one.
        scope: the segments that are read.
        side_files: the checks of the files beside the log; None: they are not verified.
        fail: takes messages about files beside the log that cannot be read.
        start: the byte from which on the first segment is read.

    Attributes:
        losses: the state of the log, and what it has lost.
    """

    def __init__(
        self,
        format: Format,
        segment: SegmentName | None,
        scope: SegmentScope,
        side_files: SideFiles | None,
        fail: Callable[[str], None],
        *,
        start: int = 0,
    ):
        log = format.storage.log
        self._segments: SegmentNames | None = None if log is None else log.segments
        self._scope = scope
        self._side_files = side_files
        self._fail = fail
        self._is_at_end = True  # the file in progress, or the last one, is read to its end
        self._is_cut = False  # a part of a segment of this log is not read
        self._is_start_cut = start > 0  # the first batches of the first segment are not read
        self._follows_cut = self._is_start_cut  # ... or the segments before it
        self._segment_check: SegmentCheck | None = None
        self._reached: list[Reach] = []  # as the files beside the log state
        self.losses = LogLosses()
        if segment is not None:
            self._is_cut = scope.is_partly_excluded(segment.prefix)
            self._follows_cut |= scope.has_excluded_before(segment)
            memory = None if side_files is None else side_files.make_memory()
            options = segment.options
            self.losses = LogLosses(segment.prefix, self._segments, memory, options)
            if side_files is not None:
                # Read before the segments: a broker may append while they are read.
                with self._report_side_file_errors():
                    self._reached = side_files.find_reaches(self.losses)
        self._rules = GapRules(
            format,
            self.losses,
            is_start_cut=self._is_start_cut,
            follows_cut=self._follows_cut,
        )

    def continues_with(self, segment: SegmentName, start: int) -> bool:
        """Return whether the part of a segment that is read follows what was read before.

        start: the byte from which on the segment is read.
        """
        verified = self.losses.verified
        if segment.prefix != self.losses.prefix or start or not self._is_at_end:
            return False
        previous = verified[-1] if verified else segment.base
        return not self._scope.has_excluded_between(previous, segment)

    def start_file(self, path: str, segment: SegmentName | None, *, is_whole: bool) -> None:
        """Announce that the next batches are those of another file of the log.

        Args:
            path: the file.
            segment: its name; None if it is not named as a segment.
            is_whole: all of it is read, so the files beside it can be verified.
        """
        self._is_at_end = True
        self._is_cut |= not is_whole
        self._segment_check = None
        self._rules.start_file(path, None if segment is None else segment.base)
        if segment is None:
            return
        self.losses.verified.append(segment.base)
        if self._side_files is not None and is_whole:
            with self._report_side_file_errors():
                self._segment_check = self._side_files.check_segment(path, self.losses)

    def check_batches(
        self, frames: FrameTable, first: np.ndarray, claims: Mapping[int, Claim | None]
    ) -> Iterator[FileFinding | FileGap]:
        """Yield the offsets that are out of order or missing; see `GapRules.check_batches`."""
        return self._rules.check_batches(frames, first, claims)

    def check_side_files(self, frames: FrameTable) -> Iterator[FileFinding]:
        """Yield where the files beside the segment do not agree with its next batches."""
        if self._segment_check is not None:
            yield from _convert_findings(self._segment_check.check_frames(frames))

    def check_tail_claim(self, claim: Claim | None) -> Claim | None:
        """Return what the header of a damaged tail claims; None if offsets before it refute it."""
        previous = self._rules.previous
        if claim is not None and previous is not None and claim.first <= previous:
            return None
        return claim

    def add_damage(self, claim: Claim | None) -> None:
        """Note damage after the last good batch, and what its header claims."""
        self.losses.add_damage(claim)

    def add_losses(self, lost: Iterable[Lost]) -> None:
        """Note records that are lost inside good batches."""
        self.losses.lost += lost

    def end_file(self, *, is_at_end: bool) -> Iterator[FileFinding]:
        """Return the damage in the files beside the segment, which is read.

        is_at_end: the segment was read to its end. If not, there is none.
        """
        self._is_at_end = is_at_end
        self._is_cut |= not is_at_end
        return self._end_segment_check()

    def _end_segment_check(self) -> Iterator[FileFinding]:
        if self._segment_check is not None and self._is_at_end:
            with self._report_side_file_errors():
                yield from _convert_findings(self._segment_check.end())

    def end(self) -> Iterator[FileFinding]:
        """Yield missing segments, damaged snapshots, and what the end of the log has lost."""
        losses = self.losses
        if not self._is_cut and not self._scope.is_partly_excluded(losses.prefix):
            orphans: dict[int, list[str]] = {}
            if self._side_files is not None and losses.verified:
                with self._report_side_file_errors():
                    yield from _convert_findings(self._side_files.check_snapshots(losses))
                    orphans = self._side_files.find_orphans(losses)
            yield from self._check_missing_segments(orphans)
        if losses.verified and self._is_at_end:
            yield from self._check_end()
        else:
            losses.add_claimed_loss()

    def _check_missing_segments(self, orphans: dict[int, list[str]]) -> Iterator[FileFinding]:
        """Yield gaps between segments, and side files without a segment.

        A gap is no finding if the log is compacted and no side file belongs to it.

        orphans: base offset -> the side files whose segment does not exist.
        """
        losses = self.losses
        for gap in self._rules.missing:
            named = [base for base in orphans if gap.first <= base <= gap.last]
            if losses.compacted and not named:
                continue
            lost = losses.add_loss(gap.first, gap.last)
            files = "".join(f"; {format_path(orphans[base][0])} exists" for base in named)
            for base in named:
                del orphans[base]
            yield FileFinding(gap.path, GONE, GONE_MEANING + files, gap.at, lost=lost)
        verified = sorted(losses.verified)
        for base, paths in orphans.items():
            lost_range = None
            if base < verified[0]:
                following = min(other for other in [*orphans, *verified] if other > base)
                lost_range = losses.add_loss(base, following - 1)
            yield FileFinding(paths[0], GONE, NO_SEGMENT_MEANING, lost=lost_range)

    def _check_end(self) -> Iterator[FileFinding]:
        """Yield what the log has lost after its last good batch."""
        losses = self.losses
        newest = max(losses.verified)
        later = [base for base in losses.bases or () if base > newest]
        last = self._rules.previous
        is_start_known = last is not None or not self._follows_cut
        if last is None and self._is_start_cut:
            losses.add_claimed_loss()
            return
        if last is None:
            last = min(losses.verified) - 1
        claimed = max((claim.last for claim in losses.claims), default=last)
        if later and self._scope.is_given(losses.prefix, later[0]):
            # The next segment, or a part of it, is excluded. That is no damage.
            if losses.damaged and last + 1 < later[0]:
                losses.add_loss(last + 1, later[0] - 1, losses.claims)
            return
        reached = self._reached
        if later:  # the log ends in a file that was not given
            next_segment = self._make_segment_path(later[0])
            reached = [Reach(later[0] - 1, next_segment)] if losses.damaged else []
        furthest = max(reached, default=None)
        is_further = furthest is not None and furthest.offset > max(last, claimed)
        if furthest is None or not is_further or not is_start_known:
            losses.add_claimed_loss()
            return
        lost = losses.add_loss(last + 1, furthest.offset, losses.claims, at_end=not later)
        yield FileFinding(
            self._make_segment_path(newest),
            SHORTER,
            f"the log ends with offset {last}, but {format_path(furthest.path)} states that it "
            f"had reached offset {furthest.offset}",
            lost=lost,
        )

    def _make_segment_path(self, base: int) -> str:
        """Return the path of the segment that begins with the offset `base`."""
        prefix = self.losses.prefix
        assert self._segments is not None  # the log has segments that were verified
        assert prefix is not None
        for name in sorted(self.losses.names or ()):
            segment = self._segments.parse(name)
            if segment is not None and (segment.prefix, segment.base) == ("", base):
                return prefix + name
        return self._segments.make_path(prefix, base)

    @contextmanager
    def _report_side_file_errors(self) -> Iterator[None]:
        """Report a file beside the log that cannot be read, and let the verification continue."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self._fail(describe_error(error))


def _convert_findings(findings: Iterable[Finding]) -> Iterator[FileFinding]:
    """Yield damage in the files beside a log as findings to print."""
    for finding in findings:
        yield FileFinding(**finding._asdict())
