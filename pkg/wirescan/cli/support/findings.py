"""What `wirescan verify` finds and prints: damage, gaps in the offsets, and what is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import click
import numpy as np

from wirescan.cli.exit_codes import Failure, describe_error
from wirescan.cli.file_ends import find_end, is_empty
from wirescan.cli.input import read_part
from wirescan.cli.output import colour, dump_json, format_path, name_path
from wirescan.cli.progress import Progress
from wirescan.cli.support.checked_frames import CheckedFrames, find_kept_rows
from wirescan.cli.support.log_offsets import (
    Gap,
    Offsets,
    fill_first_offsets,
)
from wirescan.cli.support.losses import (
    AT_LEAST,
    Claim,
    Log,
    Lost,
    combine_bounds,
    describe_loss,
    find_lost_records,
)
from wirescan.cli.support.selection import FilePart
from wirescan.cli.support.tally import find_counted_format
from wirescan.core.fault import Fault
from wirescan.frames.errors import NEAR, FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.logs import Finding, Reach, SegmentCheck, SegmentName
from wirescan.frames.registry import format_of, formats
from wirescan.frames.row_values import get_outer_table
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_count
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.nested_groups import open_nested
from wirescan.seglog.frame_offsets import (
    find_first_offsets,
    log_columns,
    parse_segment,
    read_claim,
)

Line: TypeAlias = str | dict[str, Any]

SHOWN_GAPS = 20  # gaps in the offsets that the text lists for a file

# Findings that are not faults of a frame.
ORDER = "OFFSET_ORDER"
ORDER_MEANING = "the offset is not above that of the frame before"
GONE = "MISSING_SEGMENT"
GONE_MEANING = "a segment, or the end of one, is missing"
NO_SEGMENT_MEANING = "its segment is missing"
SHORTER = "LOG_TOO_SHORT"


class MissingRange(NamedTuple):
    """Missing offsets first..last before byte `position` of the segment `path`."""

    path: str
    position: int
    first: int
    last: int


class Report:
    """Verifies files one after another, and prints what it finds.

    Args:
        format: the format of the files.
        fail: takes messages about files beside a log that cannot be read.
        check: verify checksums.
        deep: also open what is inside the frames.
        log_only: do not verify the files beside a log.
        as_json: print JSON lines.
        limits: for reading.
        files: all files that the user gave, also those that are not read.
        checked: chooses the frames to verify, and counts the selected rows. None: all frames.
        write: takes each line of the output: text, or with `as_json` a dict of JSON values.

    Attributes:
        damage: the number of findings that are damage.
    """

    def __init__(
        self,
        format: Format,
        fail: Callable[[str], None],
        *,
        check: bool,
        deep: bool,
        log_only: bool,
        as_json: bool,
        limits: Limits,
        files: Iterable[str] = (),
        checked: CheckedFrames | None = None,
        write: Callable[[Line], None] | None = None,
    ):
        self._fail = fail
        self._checked = checked
        self._write = write or _print
        self._outermost = format.outermost
        self._requested: set[str] = set()  # the format and those around it, but the outermost
        while format.within is not None:
            self._requested.add(format.name)
            format = format_of(format.within)
        self._deep = deep
        self._json = as_json
        self._options: dict[str, Any] = {"errors": "mark", "check": check, "limits": limits}
        self._allowance = Allowance(limits)  # of the file in progress
        log = self._outermost.storage.log
        self._side_files = None if log is None or log_only else log.side_files
        self._segments = None if log is None else log.segments
        self._offsets = Offsets(self._outermost)
        self._log = Log()
        self._missing: list[MissingRange] = []
        self._segment_check: SegmentCheck | None = None
        self._reached: list[Reach] = []  # as the files beside the log state
        self._is_first = True  # no good batch of this file was read yet
        self._fed = 0  # bytes of the file in progress that were scanned
        self._start = 0  # byte of the file in progress from which on it is read
        self._is_at_end = True  # the file in progress, or the last one, is read to its end
        segments = [parse_segment(self._outermost, path) for path in files]
        self._given = {(name.prefix, name.base) for name in segments if name is not None}
        self._excluded: dict[str, set[int]] = {}  # prefix -> base offsets of segments not read
        self._is_cut_log = False  # a part of a segment of this log is not read
        self._is_start_cut = False  # the first batches of the first segment are not read
        self._follows_cut = False  # ... or the segments before it
        self._edge: int | None = None  # the last offset of the first good batch after a cut
        self._lost: list[Lost] = []
        self._unknown = 0
        self._before: dict[str, int] = {}  # the counts before the file in progress
        self._count = dict.fromkeys(
            ("files", "bytes", "frames", "records", "damage", "gaps", "empty"), 0
        )

    @property
    def damage(self) -> int:
        """The number of findings that are damage."""
        return self._count["damage"]

    @property
    def allowance(self) -> Allowance:
        """What the file in progress may expand to. Read the file with it."""
        return self._allowance

    def exclude_file(self, path: str) -> None:
        """Announce that a file is not read, before any file of its log that follows it."""
        segment = parse_segment(self._outermost, path)
        if segment is not None:
            self._excluded.setdefault(segment.prefix, set()).add(segment.base)

    def verify_part(self, part: FilePart, progress: Progress) -> None:
        """Verify the frames that begin in a part of a file, and print what is found.

        Raises OSError.
        """
        path, start, stop = part
        self.start_file(path, start, is_whole=(start, stop) == (0, None))
        pieces = read_part(path, start, stop, progress, self._allowance)
        if stop is not None:
            # A damaged frame may reach above the end of the part.
            pieces = chain(pieces, read_part(path, stop, None, progress, self._allowance))
        is_done = False
        for piece in scan_outermost(
            self._count_chunks(pieces),
            self._outermost,
            offset=start,
            allowance=self._allowance,
            **self._options,
        ):
            if stop is not None and len(piece):
                is_done = _find_stop(piece) >= stop
                piece = piece[: int(np.searchsorted(piece.positions, stop))]
            if self._checked is None:
                self.verify_piece(piece)
            else:
                wanted = self._checked.choose(piece, path, self._allowance)
                self.verify_piece(wanted.frames, wanted.opened)
                is_done |= self._checked.is_done
                piece = wanted.frames
            if is_done:
                break
        self.end_file(piece, is_at_end=not is_done)

    def _count_chunks(self, chunks: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield chunks of the file, and count their bytes in `_fed`."""
        for chunk in chunks:
            self._fed += len(chunk)
            yield chunk

    def start_file(self, path: str, start: int = 0, *, is_whole: bool = True) -> None:
        """Announce that the next pieces are those of another file.

        Verifies the log before it, if this file belongs to another one.

        Args:
            path: the file.
            start: the byte from which on it is read.
            is_whole: it is read to its end too, so the files beside it can be verified.
        """
        segment = parse_segment(self._outermost, path)
        is_next = segment is not None and self._continues_log(segment, start)
        if not is_next:
            self.end_log()
            self._start_log(segment, start)
        self._path = path
        self._start = start
        self._fed = 0
        self._gaps = 0
        self._is_first = True
        self._is_at_end = True
        self._is_cut_log |= not is_whole
        self._segment_check = None
        self._before = dict(self._count)
        self._offsets.start_file(path, is_next=is_next)
        if segment:
            self._log.verified.append(segment.base)
            if self._side_files is not None and is_whole:
                with self._report_side_file_errors():
                    self._segment_check = self._side_files.check_segment(path, self._log)
        self._allowance = Allowance(self._options["limits"])

    def _continues_log(self, segment: SegmentName, start: int) -> bool:
        """Return whether the part of a segment that is read follows what was read before."""
        if segment.prefix != self._log.prefix or start or not self._is_at_end:
            return False
        excluded = self._excluded.get(segment.prefix, ())
        previous = self._log.verified[-1] if self._log.verified else segment.base
        return not any(previous <= base < segment.base for base in excluded)

    def _start_log(self, segment: SegmentName | None, start: int) -> None:
        """Begin a log, or the next part of one, with a segment. start: as in `start_file`."""
        memory = None if self._side_files is None else self._side_files.make_memory()
        self._log = self._make_log(segment, memory)
        excluded = self._excluded.get(segment.prefix, ()) if segment else ()
        is_cut_before = any(base < segment.base for base in excluded) if segment else False
        self._is_start_cut = start > 0
        self._follows_cut = self._is_start_cut or is_cut_before
        self._is_cut_log = bool(excluded)
        self._edge = None
        if segment and self._side_files is not None:
            # Read before the segments: a broker may append while they are read.
            with self._report_side_file_errors():
                self._reached = self._side_files.find_reaches(self._log)

    def _make_log(self, segment: SegmentName | None, memory: Any) -> Log:
        """Return the state of a segment's log, or of a file that is no segment."""
        if segment is None:
            return Log(None, self._segments, memory)
        return Log(segment.prefix, self._segments, memory, segment.options)

    def end_file(self, last: FrameTable, *, is_at_end: bool = True) -> None:
        """Verify the end of a file, and print its counts.

        Args:
            last: the last piece of it.
            is_at_end: the file was read to its end. If not, its end is not verified.
        """
        self._is_at_end = is_at_end
        self._is_cut_log |= not is_at_end
        if is_at_end:
            self._verify_tail(last)
        elif self._outermost.make_reader is not None:
            self._count["bytes"] += self._fed  # frames of a capture have no position in the file
        elif len(last):
            self._count["bytes"] += _find_stop(last) - self._start
        if self._segment_check is not None and is_at_end:
            with self._report_side_file_errors():
                self._report_findings(self._segment_check.end())
        self._count["files"] += 1
        before = self._before
        counts = {name: self._count[name] - before[name] for name in before if name != "files"}
        if self._json:
            self._write({"kind": "file", "file": name_path(self._path), **counts})
        elif self._gaps > SHOWN_GAPS:
            other_gaps = format_count(self._gaps - SHOWN_GAPS, "more gap")
            self._write(f"  and {other_gaps} in the offsets (--json lists all)")

    def report_bad_compression(self, message: str) -> None:
        """Report that the compressed file in progress cannot be decompressed further."""
        self._report(Fault.BAD_COMPRESSION.name, message)
        self._count["files"] += 1

    def report_bad_storage(self, error: FrameError) -> None:
        """Report that the bytes of the file in progress cannot be computed from those stored."""
        self._report(
            error.meaning.name,
            error.meaning.meaning,
            error.offset,
            near=error.near,
            path=error.source,
        )
        self._count["files"] += 1
        # The rest of the segment is not read, so the gap before the next one is a loss.
        self._log.add_damage(None)

    def end_log(self) -> None:
        """Verify the log that ends here as a whole.

        Reports missing segments, damaged snapshots, and what the end of the log has lost.
        """
        log = self._log
        missing = self._missing
        reached = self._reached
        self._log = Log()
        self._missing = []
        self._reached = []
        if not self._is_cut_log and log.prefix not in self._excluded:
            orphans: dict[int, list[str]] = {}
            if self._side_files is not None and log.verified:
                with self._report_side_file_errors():
                    self._report_findings(self._side_files.check_snapshots(log))
                    orphans = self._side_files.find_orphans(log)
            self._report_missing_segments(log, missing, orphans)
        if log.verified and self._is_at_end:
            self._verify_end_of_log(log, reached)
        else:
            self._add_claimed_loss(log)
        self._lost += log.lost
        self._unknown += log.unknown

    @contextmanager
    def _report_side_file_errors(self) -> Iterator[None]:
        """Report a file beside the log that cannot be read, and let the verification continue."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self._fail(describe_error(error))

    def print_summary(self) -> None:
        """Print the counts of all files, the verdict, and what is lost."""
        records = sum(lost.records for lost in self._lost)
        bound = combine_bounds([*(lost.bound for lost in self._lost), *[AT_LEAST] * self._unknown])
        if self._json:
            self._write(
                {
                    "kind": "summary",
                    "clean": not self.damage,
                    **self._count,
                    "lost_records": records,
                    "lost_ranges": len(self._lost),
                    "bound": bound,
                    **({} if self._checked is None else self._checked.to_json_fields()),
                }
            )
            return
        count = self._count
        parts = [format_count(count["files"], "file"), format_count(count["frames"], "frame")]
        if self._list_counted_formats():
            parts.append(format_count(count["records"], "record"))
        parts.append(format_count(count["bytes"], "byte"))
        gaps = f"; {format_count(count['gaps'], 'gap')} in the offsets" if count["gaps"] else ""
        self._write(f"{', '.join(parts)}: {self._choose_verdict()}{gaps}")
        if self._checked is not None:
            self._write(str(self._checked))
        if self._lost:
            ranges = format_count(len(self._lost), "range")
            self._write(f"lost: {describe_loss(records, bound)} in {ranges} of offsets")
        if self._unknown:
            places = format_count(self._unknown, "damaged place")
            self._write(f"lost: {places} at the end of a log, with an unknown number of records")

    def _choose_verdict(self) -> str:
        """Return whether the files are clean, damaged or empty, as text."""
        count = self._count
        if self.damage:
            text = f"{format_count(self.damage, 'finding')} of damage"
            return colour(text, fg="red", bold=True)
        if not count["files"]:
            return "nothing was selected"
        if count["empty"] == count["files"]:
            return "empty"
        clean = colour("clean", fg="green", bold=True)
        if not count["empty"]:
            return clean
        return f"{clean}, {format_count(count['empty'], 'file')} empty"

    def _report_missing_segments(
        self, log: Log, missing: list[MissingRange], orphans: dict[int, list[str]]
    ) -> None:
        """Report gaps between segments, and side files without a segment.

        A gap is not reported if the log is compacted and no side file belongs to it.

        Args:
            log: the log.
            missing: the gaps.
            orphans: base offset -> the side files whose segment does not exist.
        """
        for path, at, first, last in missing:
            named = [base for base in orphans if first <= base <= last]
            if log.compacted and not named:
                continue
            lost = log.add_loss(first, last)
            files = "".join(f"; {format_path(orphans[base][0])} exists" for base in named)
            for base in named:
                del orphans[base]
            self._report(GONE, GONE_MEANING + files, at, lost=lost, path=path)
        verified = sorted(log.verified)
        for base, paths in orphans.items():
            lost_range = None
            if base < verified[0]:
                following = min(other for other in [*orphans, *verified] if other > base)
                lost_range = log.add_loss(base, following - 1)
            self._report(GONE, NO_SEGMENT_MEANING, lost=lost_range, path=paths[0])

    def _verify_end_of_log(self, log: Log, reached: list[Reach]) -> None:
        """Report what the log has lost after its last good batch.

        Args:
            log: the log.
            reached: the offsets that the log had reached, as the files beside it state.
        """
        newest = max(log.verified)
        later = [base for base in log.bases or () if base > newest]
        last = self._offsets.previous
        is_start_known = last is not None or not self._follows_cut
        if last is None and self._is_start_cut:
            self._add_claimed_loss(log)
            return
        if last is None:
            last = min(log.verified) - 1
        claimed = max((claim.last for claim in log.claims), default=last)
        if later and (log.prefix, later[0]) in self._given:
            # The next segment, or a part of it, is excluded. That is no damage.
            if log.damaged and last + 1 < later[0]:
                log.add_loss(last + 1, later[0] - 1, log.claims)
            return
        if later:  # the log ends in a file that was not given
            next_segment = self._make_segment_path(log, later[0])
            reached = [Reach(later[0] - 1, next_segment)] if log.damaged else []
        furthest = max(reached, default=None)
        is_further = furthest is not None and furthest.offset > max(last, claimed)
        if furthest is None or not is_further or not is_start_known:
            self._add_claimed_loss(log)
            return
        lost = log.add_loss(last + 1, furthest.offset, log.claims, at_end=not later)
        self._report(
            SHORTER,
            f"the log ends with offset {last}, but {format_path(furthest.path)} states that it "
            f"had reached offset {furthest.offset}",
            lost=lost,
            path=self._make_segment_path(log, newest),
        )

    def _make_segment_path(self, log: Log, base: int) -> str:
        """Return the path of the segment of a log that begins with the offset `base`."""
        assert self._segments is not None  # the log has segments that were verified
        assert log.prefix is not None
        for name in sorted(log.names or ()):
            segment = self._segments.parse(name)
            if segment is not None and (segment.prefix, segment.base) == ("", base):
                return log.prefix + name
        return self._segments.make_path(log.prefix, base)

    @staticmethod
    def _add_claimed_loss(log: Log) -> None:
        """Count what the end of a log has lost by the headers of its damaged batches alone."""
        if log.claims:
            log.add_loss(
                min(claim.first for claim in log.claims),
                max(claim.last for claim in log.claims),
                log.claims,
                at_end=True,
            )
        elif log.damaged:
            log.unknown += 1

    def _report_findings(self, findings: Iterable[Finding]) -> None:
        """Report damage in the files beside the log."""
        for finding in findings:
            self._report(**finding._asdict())

    def verify_piece(self, table: FrameTable, opened: FrameTable | None = None) -> None:
        """Verify the next outermost frames of the file, and what is inside them.

        opened: the frames of the table that are counted and opened. None, the default: all.
        """
        frames = table if opened is None else opened
        starts = table.positions
        self._count["frames"] += int(np.count_nonzero(~frames.bad))
        has_offsets = table.format.storage.log is not None
        bad = np.flatnonzero(table.bad).tolist()
        claims = {row: read_claim(table, row) for row in bad} if has_offsets else {}
        for row in bad:
            lost = _make_claimed_loss(claims.get(row))
            self._report_fault(table, row, int(starts[row]), lost)
        first = find_first_offsets(table)
        if frames is table or not has_offsets:
            self._verify_inside(frames, first)
        else:
            kept = find_kept_rows(table, frames)
            known = first[kept]
            self._verify_inside(frames, known)
            first = first.copy()
            first[kept] = known
        if has_offsets:
            self._verify_offsets(table, first, claims)
        if self._segment_check is not None:
            self._report_findings(self._segment_check.check_frames(table))

    def _verify_inside(self, frames: FrameTable, first: np.ndarray) -> None:
        """Verify what is inside outermost frames.

        first: the first offset in each of them by its header. Those that are unknown are replaced.
        """
        inside = self._list_formats_inside(self._outermost)
        counted = self._list_counted_formats()
        for format in inside:
            at = 0
            tables = open_nested(frames, format, allowance=self._allowance, **self._options)
            for inner in tables:
                if format in counted:
                    self._count["records"] += int(np.count_nonzero(~inner.bad))
                if self._checked is not None:
                    self._checked.count(inner, self._path)
                self._verify_nested(inner)
                fill_first_offsets(first, inner, at)
                at += len(get_outer_table(inner))
        if self._checked is not None and self._checked.format not in inside:
            self._checked.open_and_count(frames, self._path, self._allowance)

    def _list_counted_formats(self) -> list[Format]:
        """Return the formats inside the outermost frames that count as records."""
        lists = [self._outermost.children[name] for name in self._outermost.lists]
        counted = find_counted_format(self._outermost)
        return [
            format
            for format in self._list_formats_inside(self._outermost)
            if format.read not in lists and counted in (None, format)
        ]

    def _list_formats_inside(self, outer: Format) -> list[Format]:
        """Return the formats to open in frames of `outer`.

        These are its children, and the requested format, which may be of another protocol.
        """
        if not self._deep:
            return []
        return [
            format
            for format in formats().values()
            if not format.display.repeats
            and (
                format.read in outer.children.values()
                or format.within == outer.name
                and format.name in self._requested
            )
        ]

    def _verify_nested(self, inner: FrameTable) -> None:
        """Report the bad rows of a table, and verify what is inside the good ones.

        A row whose enclosing frame is bad is not reported.
        """
        bad = np.flatnonzero(inner.bad)
        bad = bad[get_outer_table(inner)["fault"][inner["parent"][bad]] == 0]
        if inner.format.enclosing is not None:
            # The values around a bad one have its fault too. The bad one itself has no kind.
            bad = bad[inner["kind"][bad] == 0]
        if len(bad):
            losses = find_lost_records(inner, bad, get_outer_table(inner))
            self._log.lost += losses.values()
            positions = inner.positions[bad].tolist()
            for row, at, inflated in zip(
                bad.tolist(), positions, _find_payload_positions(inner, bad)
            ):
                self._report_fault(inner, row, at, losses.get(row), inflated)
        for format in self._list_formats_inside(inner.format):
            nested = format.read(inner, **self._options)
            self._allowance.spend_nested(nested, inner.outermost)
            self._verify_nested(nested)

    def _verify_offsets(
        self, table: FrameTable, first: np.ndarray, claims: dict[int, Claim | None]
    ) -> None:
        """Report offsets of a piece that are out of order or missing.

        Args:
            table: the batches.
            first: i8 array with the first offset in each batch, -1 if not known.
            claims: row -> what the header of that bad batch claims.
        """
        starts = table.positions
        good = np.flatnonzero(~table.bad)
        bad = np.flatnonzero(table.bad)
        if len(good):
            self._set_log_start(first, int(good[0]), claims)
        missing_inside = self._offsets.missing_inside
        gaps, disorder = self._offsets.follow(table, first)
        self._log.compacted |= self._offsets.missing_inside > missing_inside
        if self._follows_cut and self._edge is None and len(good):
            self._edge = int(table[log_columns(table).last][good[0]])
        for row, before in disorder:
            if before == self._edge:
                continue  # the batches before the first one are not known: it may be the wrong one
            offset = int(table[log_columns(table).first][row])
            meaning = f"{ORDER_MEANING} ({offset} after {before})"
            self._report(
                ORDER, meaning, int(starts[row]), int(table["size"][row]), table.frame(row)
            )
        misplaced = {row for row, _ in disorder}
        for gap in gaps:
            self._classify_gap(gap, int(starts[gap.row]), good, bad, claims, misplaced)
        if len(good):
            self._is_first = False
            self._log.clear_damage()
        for row in bad[bad > (good[-1] if len(good) else -1)].tolist():
            self._log.add_damage(claims[row])

    def _classify_gap(
        self,
        gap: Gap,
        at: int,
        good: np.ndarray,
        bad: np.ndarray,
        claims: dict[int, Claim | None],
        misplaced: set[int],
    ) -> None:
        """Report a gap, as a loss if damage explains it.

        Args:
            gap: the gap.
            at: byte position in the file after the gap.
            good: rows of the good batches of the piece.
            bad: rows of its bad batches.
            claims: as for `_verify_offsets`.
            misplaced: rows of the batches with offsets out of order.
        """
        place = int(np.searchsorted(good, gap.row))
        is_first = not place
        previous = -1 if is_first else int(good[place - 1])
        # A batch with a wrong offset leaves a gap where it belongs.
        is_near = bool({gap.row, previous} & misplaced)
        between = bad[(bad < gap.row) & (bad > previous)].tolist()
        if between or is_near or is_first and self._log.damaged:
            near = [claim for row in between if (claim := claims[row]) is not None]
            earlier = self._log.claims if is_first else []
            self._report_gap(gap, at, self._log.add_loss(gap.first, gap.last, [*earlier, *near]))
        else:
            self._explain_gap(gap, at, is_first=is_first and self._is_first)
            self._report_gap(gap, at)

    def _set_log_start(self, first: np.ndarray, row: int, claims: dict[int, Claim | None]) -> None:
        """Set where a log begins if its first good batch is not its first one.

        Damage or a segment without batches may precede that batch. Then the name of the segment
        or the header of a damaged batch gives the start.

        Args:
            first: i8 array with the first offset in each batch, -1 if not known.
            row: the first good batch of the piece.
            claims: row -> what the header of that bad batch claims.
        """
        follows_empty = len(self._log.verified) > 1
        is_preceded = row or self._log.damaged or follows_empty
        if self._offsets.previous is not None or not is_preceded:
            return
        here = [claim for i, claim in claims.items() if i < row and claim is not None]
        begin = int(first[row])
        starts = [claim.first for claim in [*self._log.claims, *here] if 0 <= claim.first < begin]
        is_start_known = bool(self._log.verified) and not self._is_start_cut
        starts += [min(self._log.verified)] if is_start_known else []
        if starts and min(starts) < begin:
            self._offsets.expect(min(starts))

    def _explain_gap(self, gap: Gap, at: int, *, is_first: bool) -> None:
        """Decide whether compaction or a missing segment explains a gap.

        Inside a segment, and at or after its base offset, only compaction leaves a gap. A gap
        before the base offset is a missing segment, unless the log is compacted.
        """
        segment = parse_segment(self._outermost, self._path)
        base = None if segment is None else segment.base
        if not is_first or base is None or base <= gap.first:
            self._log.compacted = True
        elif not self._log.has_unverified_segment(gap.first, gap.last):
            last = min(gap.last, base - 1)
            self._log.compacted |= last < gap.last
            self._missing.append(MissingRange(self._path, at, gap.first, last))

    def _report_gap(self, gap: Gap, at: int, lost: Lost | None = None) -> None:
        """Print a gap before byte `at` of the file, and what was lost there."""
        self._gaps += 1
        self._count["gaps"] += 1
        missing = gap.last - gap.first + 1
        if self._json:
            line = {
                "kind": "gap",
                "file": name_path(self._path),
                "offset": at,
                "first": gap.first,
                "last": gap.last,
                "missing": missing,
            }
            self._write(line | (lost.to_json_fields() if lost else {}))
        elif self._gaps <= SHOWN_GAPS or lost:
            text = f"{format_count(missing, 'offset')} missing, {gap.first} to {gap.last}"
            loss = f"; {lost}" if lost else ""
            self._write(f"{format_path(self._path)}: gap before byte {at}: {text}{loss}")

    def _verify_tail(self, table: FrameTable) -> None:
        """Report how the file ends; `table` is its last one."""
        stop = table.stop
        remaining = len(table.tail)
        at = find_end(table)
        self._count["bytes"] += at + remaining - self._start
        if is_empty(table):
            self._count["empty"] += 1
            zeros = ": it holds only zeros" if remaining else ""
            meaning = f"the file is empty{zeros}"
            self._report(Fault.EMPTY.name, meaning, size=remaining, kind="info")
        elif stop.fault == Fault.ZEROS:
            self._report(*table.describe_fault(stop.fault), at, remaining, kind="info")
        elif stop.fault:
            kind = "info" if stop.fault == Fault.FILLER and at else "damage"
            log = table.format.storage.log if kind == "damage" else None
            claim = None if log is None or log.claim is None else log.claim(table.tail)
            if claim is not None and claim.first <= (self._offsets.previous or -1):
                claim = None
            fault = table.describe_fault(stop.fault)
            lost = _make_claimed_loss(claim)
            self._report(*fault, at, remaining, table.tail, kind=kind, lost=lost)
            if log is not None:
                self._log.add_damage(claim)

    def _report_fault(
        self,
        table: FrameTable,
        row: int,
        at: int,
        lost: Lost | None,
        inflated: int | None = None,
    ) -> None:
        """Report a bad row of a table; the other arguments are those of `_report`."""
        self._report(
            *table.describe_fault(int(table["fault"][row])),
            at,
            int(table["size"][row]),
            table.frame(row),
            inside=None if table.outer is None else table.name,
            inflated=inflated,
            lost=lost,
        )

    def _report(
        self,
        fault: str,
        meaning: str,
        at: int = 0,
        size: int = 0,
        near: bytes | memoryview = b"",
        *,
        kind: str = "damage",
        inside: str | None = None,
        inflated: int | None = None,
        lost: Lost | None = None,
        path: str | None = None,
    ) -> None:
        """Print a finding.

        Args:
            fault: its name.
            meaning: what it means.
            at: byte position in the file.
            size: bytes that are affected.
            near: the bytes from `at` on; the first NEAR are printed.
            kind: "damage" or "info".
            inside: the format of a bad frame inside the frame at `at`.
            inflated: its byte position in the decompressed payload.
            lost: what is lost.
            path: the file, if it is not the one that is verified.
        """
        self._count["damage"] += kind == "damage"
        digits = bytes(near[:NEAR]).hex(" ")
        path = path or self._path
        if self._json:
            line = {
                "kind": kind,
                "file": name_path(path),
                "offset": at,
                "size": size,
                "fault": fault,
                "meaning": meaning,
                "near": digits,
                "inside": inside,
                "inflated_offset": inflated,
            }
            line |= lost.to_json_fields() if lost else {}
            self._write({name: value for name, value in line.items() if value is not None})
            return
        has_position = bool(size or at)
        place = format_path(path)
        place += f": byte {at}" if has_position else ""
        place += f", {inside} in it" if inside else ""
        place += f", decompressed byte {inflated}" if inflated is not None else ""
        place += f", {format_count(size, 'byte')}" if has_position else ""
        label = colour(fault, fg="red" if kind == "damage" else None, bold=True)
        loss = f"; {lost}" if lost else ""
        bytes_line = f"\n  near {digits}" if digits else ""
        self._write(f"{place}: {label}, {meaning}{loss}{bytes_line}")


def _find_payload_positions(inner: FrameTable, rows: np.ndarray) -> list[int | None]:
    """Return where rows begin in the decompressed payload of their outermost frame.

    The result is None for a row whose outermost frame is not compressed.
    """
    records = inner
    at = rows
    while get_outer_table(records).outer is not None:
        at = records["parent"][at]
        records = get_outer_table(records)
    parents = np.ascontiguousarray(records["parent"])
    firsts = np.searchsorted(parents, parents[at])
    positions = (inner["start"][rows] - records["start"][firsts]).tolist()
    is_inflated = (records["buffer"][at] >= len(get_outer_table(records).buffers)).tolist()
    return [position if flag else None for position, flag in zip(positions, is_inflated)]


def _find_stop(table: FrameTable) -> int:
    """Return the byte after the last frame of a table, in the file."""
    return int(table.positions[-1]) + int(table["size"][-1])


def _make_claimed_loss(claim: Claim | None) -> Lost | None:
    """Return what a damaged batch has lost by its own header."""
    return None if claim is None else Lost(claim.first, claim.last, claim.records)


def _print(line: Line) -> None:
    """Print a line of text, or an object as a line of JSON."""
    try:
        click.echo(dump_json(line) if isinstance(line, dict) else line)
    except BrokenPipeError:
        raise
    except OSError as error:  # an error of the output, not of the file that is read
        raise Failure(describe_error(error)) from None
