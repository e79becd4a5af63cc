"""Verifies files frame by frame for `wirescan verify` and `wirescan report`: `Verifier`.

`log_verifier.py` verifies the log that the files belong to, and `finding_printer.py` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from wirescan.cli.file_ends import find_end, is_empty
from wirescan.cli.input import read_part
from wirescan.cli.progress import Progress
from wirescan.cli.support.checked_frames import CheckedFrames, find_kept_rows
from wirescan.cli.support.finding_printer import (
    FileCounts,
    FileFinding,
    FileGap,
    FindingPrinter,
    Line,
    print_line,
)
from wirescan.cli.support.log_offsets import fill_first_offsets
from wirescan.cli.support.log_verifier import LogVerifier
from wirescan.cli.support.losses import Lost, find_lost_records, sum_losses
from wirescan.cli.support.opened_formats import OpenedFormats
from wirescan.cli.support.segment_scope import SegmentScope
from wirescan.cli.support.selection import FilePart
from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.logs import Claim, SegmentName
from wirescan.frames.row_values import get_outer_table
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.nested_groups import open_nested
from wirescan.seglog.frame_offsets import find_first_offsets, parse_segment, read_claims


class Verifier:
    """Verifies files one after another, and prints what it finds.

    Call `verify_part` for each file, or `start_file`, `verify_frames` and `end_file`. At last call
    `end_log` and `print_summary`.

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
        write: Callable[[Line], None] = print_line,
    ):
        self._fail = fail
        self._checked = checked
        self._printer = FindingPrinter(write, as_json=as_json)
        self._outermost = format.outermost
        self._formats = OpenedFormats(format, deep=deep)
        self._options: dict[str, Any] = {"errors": "mark", "check": check, "limits": limits}
        self._allowance = Allowance(limits)  # of the file in progress
        log = self._outermost.storage.log
        self._side_files = None if log is None or log_only else log.side_files
        self._scope = SegmentScope(self._outermost, files)
        self._log = self._make_log(None, 0)
        self._path = ""
        self._start = 0  # byte of the file in progress from which on it is read
        self._fed = 0  # bytes of the file in progress that were scanned
        self._counts = FileCounts()  # of all files
        self._counts_before = FileCounts()  # the counts before the file in progress
        self._lost: list[Lost] = []  # by the logs that have ended
        self._unknown = 0

    @property
    def damage(self) -> int:
        """The number of findings that are damage."""
        return self._printer.damage

    @property
    def allowance(self) -> Allowance:
        """What the file in progress may expand to. Read the file with it."""
        return self._allowance

    def exclude_file(self, path: str) -> None:
        """Announce that a file is not read, before any file of its log that follows it."""
        self._scope.exclude_file(path)

    def verify_part(self, part: FilePart, progress: Progress) -> None:
        """Verify the frames that begin in a part of a file, and print what is found.

        Raises OSError.
        """
        path, start, stop = part
        self.start_file(path, start, is_whole=(start, stop) == (0, None))
        chunks = read_part(path, start, stop, progress, self._allowance)
        if stop is not None:
            # A damaged frame may reach above the end of the part.
            chunks = chain(chunks, read_part(path, stop, None, progress, self._allowance))
        is_done = False
        for frames in scan_outermost(
            self._count_chunks(chunks),
            self._outermost,
            offset=start,
            allowance=self._allowance,
            **self._options,
        ):
            if stop is not None and len(frames):
                is_done = _find_stop(frames) >= stop
                frames = frames[: int(np.searchsorted(frames.positions, stop))]
            if self._checked is None:
                self.verify_frames(frames)
            else:
                wanted = self._checked.choose(frames, path, self._allowance)
                self.verify_frames(wanted.frames, wanted.opened)
                is_done |= self._checked.is_done
                frames = wanted.frames
            if is_done:
                break
        self.end_file(frames, is_at_end=not is_done)

    def _count_chunks(self, chunks: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield chunks of the file, and count their bytes in `_fed`."""
        for chunk in chunks:
            self._fed += len(chunk)
            yield chunk

    def start_file(self, path: str, start: int = 0, *, is_whole: bool = True) -> None:
        """Announce that the next frames are those of another file.

        Verifies the log before it, if this file belongs to another one.

        Args:
            path: the file.
            start: the byte from which on it is read.
            is_whole: it is read to its end too, so the files beside it can be verified.
        """
        segment = parse_segment(self._outermost, path)
        if segment is None or not self._log.continues_with(segment, start):
            self.end_log()
            self._log = self._make_log(segment, start)
        self._path = path
        self._start = start
        self._fed = 0
        self._counts_before = replace(self._counts)
        self._printer.start_file()
        self._log.start_file(path, segment, is_whole=is_whole)
        self._allowance = Allowance(self._options["limits"])

    def _make_log(self, segment: SegmentName | None, start: int) -> LogVerifier:
        """Return what verifies the log of a segment, or that of a file that is no segment."""
        return LogVerifier(
            self._outermost, segment, self._scope, self._side_files, self._fail, start=start
        )

    def end_file(self, last: FrameTable, *, is_at_end: bool = True) -> None:
        """Verify the end of a file, and print its counts.

        Args:
            last: its last frames.
            is_at_end: the file was read to its end. If not, its end is not verified.
        """
        if is_at_end:
            self._verify_tail(last)
        elif self._outermost.make_reader is not None:
            self._counts.bytes += self._fed  # frames of a capture have no position in the file
        elif len(last):
            self._counts.bytes += _find_stop(last) - self._start
        self._print(self._log.end_file(is_at_end=is_at_end))
        self._counts.files += 1
        self._printer.end_file(self._path, self._counts.subtract(self._counts_before))

    def report_bad_compression(self, message: str) -> None:
        """Report that the compressed file in progress cannot be decompressed further."""
        self._print([FileFinding(self._path, Fault.BAD_COMPRESSION.name, message)])
        self._counts.files += 1

    def report_bad_storage(self, error: FrameError) -> None:
        """Report that the bytes of the file in progress cannot be computed from those stored."""
        name, meaning = error.meaning
        path = error.source or self._path
        self._print([FileFinding(path, name, meaning, error.offset, near=error.near)])
        self._counts.files += 1
        # The rest of the segment is not read, so the gap before the next one is a loss.
        self._log.add_damage(None)

    def end_log(self) -> None:
        """Verify the log that ends here as a whole.

        Reports missing segments, damaged snapshots, and what the end of the log has lost.
        """
        log = self._log
        self._log = self._make_log(None, 0)
        self._print(log.end())
        self._lost += log.losses.lost
        self._unknown += log.losses.unknown

    def print_summary(self) -> None:
        """Print the counts of all files, the verdict, and what is lost."""
        self._printer.print_summary(
            self._counts,
            sum_losses(self._lost, self._unknown),
            self._checked,
            has_records=bool(self._formats.list_counted()),
        )

    def _print(self, found: Iterable[FileFinding | FileGap]) -> None:
        """Print findings and gaps."""
        for item in found:
            if isinstance(item, FileGap):
                self._printer.print_gap(item)
            else:
                self._printer.print_finding(item)

    def verify_frames(self, frames: FrameTable, opened: FrameTable | None = None) -> None:
        """Verify the next outermost frames of the file, and what is inside them.

        opened: those of them that are counted and opened. None, the default: all.
        """
        opened = frames if opened is None else opened
        starts = frames.positions
        self._counts.frames += int(np.count_nonzero(~opened.bad))
        has_offsets = frames.format.storage.log is not None
        bad = np.flatnonzero(frames.bad)
        claims = read_claims(frames, bad) if has_offsets else {}
        for row in bad.tolist():
            lost = _make_claimed_loss(claims.get(row))
            self._report_fault(frames, row, int(starts[row]), lost)
        first = find_first_offsets(frames)
        if opened is frames or not has_offsets:
            self._verify_inside(opened, first)
        else:
            kept = find_kept_rows(frames, opened)
            known = first[kept]
            self._verify_inside(opened, known)
            first = first.copy()
            first[kept] = known
        if has_offsets:
            self._print(self._log.check_batches(frames, first, claims))
        self._print(self._log.check_side_files(frames))

    def _verify_inside(self, frames: FrameTable, first: np.ndarray) -> None:
        """Verify what is inside outermost frames.

        first: the first offset in each of them by its header. Those that are unknown are replaced.
        """
        inside = self._formats.list_inside(self._outermost)
        counted = self._formats.list_counted()
        for format in inside:
            at = 0
            tables = open_nested(frames, format, allowance=self._allowance, **self._options)
            for inner in tables:
                if format in counted:
                    self._counts.records += int(np.count_nonzero(~inner.bad))
                if self._checked is not None:
                    self._checked.count(inner, self._path)
                self._verify_nested(inner)
                fill_first_offsets(first, inner, at)
                at += len(get_outer_table(inner))
        if self._checked is not None and self._checked.format not in inside:
            self._checked.open_and_count(frames, self._path, self._allowance)

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
            self._log.add_losses(losses.values())
            positions = inner.positions[bad].tolist()
            for row, at, inflated in zip(
                bad.tolist(), positions, _find_payload_positions(inner, bad)
            ):
                self._report_fault(inner, row, at, losses.get(row), inflated)
        for format in self._formats.list_inside(inner.format):
            nested = format.read(inner, **self._options)
            self._allowance.spend_nested(nested, inner.outermost)
            self._verify_nested(nested)

    def _verify_tail(self, last: FrameTable) -> None:
        """Report how the file ends; `last` are its last frames."""
        stop = last.stop
        remaining = len(last.tail)
        at = find_end(last)
        self._counts.bytes += at + remaining - self._start
        if is_empty(last):
            self._counts.empty += 1
            zeros = ": it holds only zeros" if remaining else ""
            meaning = f"the file is empty{zeros}"
            finding = FileFinding(
                self._path, Fault.EMPTY.name, meaning, size=remaining, kind="info"
            )
            self._print([finding])
        elif stop.fault == Fault.ZEROS:
            name, meaning = last.describe_fault(stop.fault)
            self._print([FileFinding(self._path, name, meaning, at, remaining, kind="info")])
        elif stop.fault:
            self._verify_unread_bytes(last, at)

    def _verify_unread_bytes(self, last: FrameTable, at: int) -> None:
        """Report the bytes after the last frame of the file, which begin at its byte `at`."""
        fault = last.stop.fault
        kind = "info" if fault == Fault.FILLER and at else "damage"
        log = last.format.storage.log if kind == "damage" else None
        claim = None if log is None or log.claim is None else log.claim(last.tail)
        claim = self._log.check_tail_claim(claim)
        name, meaning = last.describe_fault(fault)
        finding = FileFinding(
            self._path,
            name,
            meaning,
            at,
            len(last.tail),
            last.tail,
            kind=kind,
            lost=_make_claimed_loss(claim),
        )
        self._print([finding])
        if log is not None:
            self._log.add_damage(claim)

    def _report_fault(
        self,
        frames: FrameTable,
        row: int,
        at: int,
        lost: Lost | None,
        inflated: int | None = None,
    ) -> None:
        """Report a bad row of a table; the other arguments are fields of `FileFinding`."""
        name, meaning = frames.describe_fault(int(frames["fault"][row]))
        finding = FileFinding(
            self._path,
            name,
            meaning,
            at,
            int(frames["size"][row]),
            frames.frame(row),
            inside=None if frames.outer is None else frames.name,
            inflated=inflated,
            lost=lost,
        )
        self._print([finding])


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


def _find_stop(frames: FrameTable) -> int:
    """Return the byte after the last frame of a table, in the file."""
    return int(frames.positions[-1]) + int(frames["size"][-1])


def _make_claimed_loss(claim: Claim | None) -> Lost | None:
    """Return what a damaged batch has lost by its own header."""
    return None if claim is None else Lost(claim.first, claim.last, claim.records)
