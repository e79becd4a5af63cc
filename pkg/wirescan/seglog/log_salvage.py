"""Writes the intact frames of a damaged log as valid segments, and says what is not in them.

    from wirescan.seglog.log_salvage import salvage

    report = salvage("orders-0", "repaired", format="kafka.batches")

A frame is intact if its header and its checksum are right. It is copied byte for byte and keeps its
offsets. `log_order.py` chooses among frames whose offsets are out of order. Producer snapshots and
checkpoints are not written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.file_pattern import include_left_out
from wirescan.files.new_directory import NewDirectory, check_is_free
from wirescan.files.source import URL, expand, get_seekable_size
from wirescan.frames.escape import make_visible
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.logs import Claim
from wirescan.frames.lookup import find_outermost_rows
from wirescan.frames.registry import format_of, formats
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.chunks import read_chunks
from wirescan.reading.nested_groups import open_nested
from wirescan.seglog.frame_offsets import (
    UNKNOWN,
    find_first_offsets,
    log_columns,
    parse_segment,
    read_claims,
)
from wirescan.seglog.log_order import KeptFrames, choose_frames, find_sound_rows
from wirescan.seglog.segment_writer import REACH, SegmentWriter, list_ranges

DUPLICATE = "DUPLICATE"
DUPLICATE_MEANING = "a copy of a frame that is kept"
DISORDER = "OFFSET_ORDER"
DISORDER_MEANING = "the offsets do not fit between those of the frames around it"

ReadFile = Callable[[str], Iterable[memoryview]]


@dataclass(frozen=True)
class Omission:
    """Bytes of a file that are not in the result.

    path: of the file. position, size: in bytes. fault: a name. meaning: what it means.
    claim: the offsets and records that the frame's header states; None if it states none.
    """

    path: str
    position: int
    size: int
    fault: str
    meaning: str
    claim: Claim | None = None


@dataclass(frozen=True)
class LostRange:
    """Offsets that are lost with damaged bytes.

    path: of the file. position: of the frame after the damage, or the size of the file.
    first, last: the offsets. claims: what the headers of damaged frames there state.
    at_end: whether the log ends there, so that it may have lost more.
    """

    path: str
    position: int
    first: int
    last: int
    claims: tuple[Claim, ...] = ()
    at_end: bool = False


@dataclass(frozen=True)
class SalvagedSegment:
    """A segment of the result.

    source: the path of the file that its first frame is from. name: of its own file, below the
    target. base: the offset in the name. first, last: offsets of its frames. frames: their number.
    size: in bytes.
    """

    source: str
    name: str
    base: int
    first: int
    last: int
    frames: int
    size: int


@dataclass(frozen=True)
class OpenEnd:
    """Something that the end of a salvaged log leaves open. log: its name. meaning: a sentence."""

    log: str
    meaning: str


Event = Omission | LostRange | SalvagedSegment | OpenEnd


@dataclass
class SalvageReport:
    """What `salvage` wrote and left out.

    events: the details, in the order of the logs. The first MOST_EVENTS are listed.
    frames, size: frames and bytes that were written. omitted: bytes that were not, without zeros
    at the end of files. lost: offsets that are lost with them.
    """

    events: list[Event] = field(default_factory=list)
    frames: int = 0
    size: int = 0
    omitted: int = 0
    lost: int = 0

    MOST_EVENTS = 10_000

    def add(self, event: Event) -> None:
        """Count an event, and keep it if there are not too many."""
        if len(self.events) < self.MOST_EVENTS:
            self.events.append(event)
        if isinstance(event, SalvagedSegment):
            self.frames += event.frames
            self.size += event.size
        elif isinstance(event, Omission):
            self.omitted += event.size
        elif isinstance(event, LostRange):
            self.lost += event.last - event.first + 1


def salvage(
    source: str | os.PathLike[str] | Sequence[str],
    target: str | os.PathLike[str],
    *,
    format: str,
    deep: bool = False,
    limits: Limits = Limits(),
) -> SalvageReport:
    """Write the intact frames of logs below a new directory, completely or not at all.

    Args:
        source: a partition directory, a directory of such, a glob, a URL, or a list of files.
        target: the new directory. Each log gets a directory in it, see `group_files`.
        format: the name of an outermost format of logs, such as the one of segments.
        deep: also leave out intact frames if what is inside cannot be read.
        limits: for reading. A frame above `limits.frame` is not intact.

    Raises:
        FileExistsError: the target exists and is not empty.
        ValueError: no frame is intact, the target is inside a source, or two logs have one name.
        OSError: a file cannot be read or written.
    """
    top = format_of(format)
    paths = expand_sources(source, top)
    report = SalvageReport()
    for event in salvage_files(paths, target, format=top, deep=deep, limits=limits):
        report.add(event)
    return report


def expand_sources(source: str | os.PathLike[str] | Sequence[str], format: Format) -> list[str]:
    """Return the files of a source of `salvage`, in order. Raises OSError, ValueError."""
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    files = include_left_out(format.storage.files)
    return [
        path for item in sources for path in expand(item, files=files, ignore=format.storage.ignore)
    ]


def salvage_files(
    paths: Sequence[str],
    target: str | os.PathLike[str],
    *,
    format: Format,
    deep: bool = False,
    limits: Limits = Limits(),
    read: ReadFile | None = None,
    writes: bool = True,
) -> Iterator[Event]:
    """Write the intact frames of files, and yield what was written and what was not.

    The target gets its name when the iterator ends. An iterator that is not read to its end writes
    nothing.

    read: path of a file -> its bytes in pieces. It is called two or three times for each file. The
    default reads the files as they are stored. writes: False: only yield what would be written.
    The other arguments, and the errors, are those of `salvage`.
    """
    if format.storage.log is None or format.storage.log.segments is None:
        raise ValueError(f"{format.name} has no segments, so none can be salvaged")
    check_target(paths, target, format)
    logs = group_files(paths, format)
    frames = 0

    def make_salvage(name: str) -> LogSalvage:
        return LogSalvage(
            name, logs[name], format=format, deep=deep, limits=limits, read=read or _read_file
        )

    if not writes:
        for name in logs:
            yield from make_salvage(name).write(None)
        return
    with NewDirectory(target) as new:
        for name in logs:
            for event in make_salvage(name).write(new.path / name):
                frames += event.frames if isinstance(event, SalvagedSegment) else 0
                yield event
        if not frames:
            raise ValueError("no frame is intact, so nothing is written")


def _read_file(path: str) -> Iterator[memoryview]:
    return read_chunks(path, 0, get_seekable_size(path))


def check_target(paths: Sequence[str], target: str | os.PathLike[str], format: Format) -> None:
    """Raise an error unless `target` can be written without a change to the sources.

    Raises FileExistsError for a target that is not empty, and ValueError for one that is the
    directory of a log, or inside it.
    """
    real = os.path.realpath(target)
    folders = {
        os.path.dirname(os.path.realpath(path))
        for path in paths
        if not URL.match(path) and parse_segment(format, path) is not None
    }
    for folder in sorted(folders):
        if os.path.commonpath([folder, real]) == folder:
            raise ValueError(
                f"{make_visible(os.fspath(target))} is the directory of a source, or inside it: "
                "name a directory outside of it"
            )
    check_is_free(Path(os.path.abspath(target)))


def group_files(paths: Sequence[str], format: Format) -> dict[str, list[str]]:
    """Return name -> files of each log, in the order of their offsets.

    Segments of one directory are a log, with the name of the directory. Any other file is a log
    of its own, with the name of the file without its ending. Raises ValueError for two logs of one
    name.
    """
    prefixes: dict[str, str] = {}
    logs: dict[str, list[str]] = {}
    for path in paths:
        absolute = path if URL.match(path) else os.path.abspath(path)
        segment = parse_segment(format, absolute)
        prefix = absolute if segment is None else segment.prefix
        name = os.path.basename(prefix.rstrip("/"))
        if segment is None:
            name = name.partition(".")[0] or name.strip(".")
        if prefixes.setdefault(name, prefix) != prefix:
            raise ValueError(
                f"two logs have the name {make_visible(name)}: {make_visible(prefixes[name])} and "
                f"{make_visible(prefix)}; write them into two directories"
            )
        logs.setdefault(name, []).append(path)

    def find_base(path: str) -> int:
        segment = parse_segment(format, path)
        return 0 if segment is None else segment.base

    return {name: sorted(sorted(set(files)), key=find_base) for name, files in logs.items()}


class LogSalvage:
    """Salvages one log.

    name: of the log. paths: its files in the order of their offsets. The other arguments are those
    of `salvage_files`.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[str],
        *,
        format: Format,
        deep: bool,
        limits: Limits,
        read: ReadFile,
    ):
        self._name = name
        self._paths = paths
        self._format = format
        self._limits = limits
        self._deep = deep
        self._read = read
        segments = [parse_segment(format, path) for path in paths]
        self._bases = [None if segment is None else segment.base for segment in segments]
        self._kept: KeptFrames | None = None
        self._previous: int | None = None  # the last offset that was kept
        self._claims: list[Claim] = []  # of damage since then
        self._is_damaged = False  # since then
        self._end = 0  # size of the last file

    def write(self, directory: Path | None) -> Iterator[Event]:
        """Write the intact frames into a new directory, and yield what happens.

        directory: None: write nothing. A log without intact frames has no directory.

        Raises OSError, and ValueError if a file changes meanwhile.
        """
        self._kept = choose_frames(self._scan, self._bases)
        if directory is not None:
            directory.mkdir()
        with SegmentWriter(directory, self._format) as writer:
            for number in range(len(self._paths)):
                yield from self._write_file(number, writer)
        yield from self._report_end()
        if writer.index_writer is not None:
            for line in writer.index_writer.describe_end():
                yield OpenEnd(self._name, line)
        if directory is not None and not any(directory.iterdir()):
            directory.rmdir()

    def _write_file(self, number: int, writer: SegmentWriter) -> Iterator[Event]:
        """Write the kept frames of a file, and yield what is left out."""
        path = self._paths[number]
        is_started = False
        for table in self._scan(number):
            kept = find_sound_rows(table)
            if self._kept is not None:
                kept &= self._kept.find(number, table.positions)
            yield from self._report_omissions(number, table, kept)
            frames = table if kept.all() else table.where(kept)
            if not len(frames):
                continue
            if not is_started:
                first, last = list_ranges(frames, writer.last)
                writer.start_segment(
                    self._choose_base(number, int(first[0]), int(last[0]), writer.last)
                )
                is_started = True
            writer.add(frames)
        yield from self._report_tail(path, table)
        writer.close()
        for segment in writer.take_segments():
            name = os.path.join(self._name, os.path.basename(segment.path))
            yield SalvagedSegment(
                path,
                name,
                segment.base,
                segment.first,
                segment.last,
                segment.frames,
                segment.size,
            )

    def _choose_base(self, number: int, first: int, last: int, previous: int) -> int:
        """Return the offset in the name of a segment whose first frame has the given offsets.

        previous: the last offset before them.

        A broker accepts a first offset above the name, as compaction leaves it. So a file keeps its
        name, unless its frames are below the name or the frames before reach above it.
        """
        base = self._bases[number]
        if base is not None and previous < base <= first and last - base <= REACH:
            return base
        return max(first, last - REACH)

    def _scan(self, number: int) -> Iterator[FrameTable]:
        """Yield the frames of a file, in the mode "mark". With `deep`, unreadable ones are bad."""
        path = self._paths[number]
        allowance = Allowance(self._limits)
        tables = scan_outermost(
            allowance.count_chunks(self._read(path)),
            self._format,
            errors="mark",
            limits=self._limits,
            source=path,
            allowance=allowance,
        )
        for table in tables:
            yield self._mark_unreadable(table, path, allowance) if self._deep else table

    def _mark_unreadable(self, table: FrameTable, path: str, allowance: Allowance) -> FrameTable:
        """Return the table with a fault in each intact frame whose content cannot be read.

        Raises ValueError for a frame above a limit, whose content may be good.
        """
        faults = table["fault"].copy()
        for frames, at in self._open_inside(table, path, allowance):
            bad = frames.bad
            parents = np.asarray(find_outermost_rows(frames)[1])[bad] + at
            is_new = faults[parents] == 0
            faults[parents[is_new]] = frames["fault"][bad][is_new]
        too_large = np.flatnonzero((faults == Fault.TOO_LARGE) & ~table.bad)
        if len(too_large):
            position = int(table.positions[too_large[0]])
            raise ValueError(
                f"{make_visible(path)}: the frame at byte {position} decompresses to more than "
                "the limits allow: raise them, or do not read what is inside the frames"
            )
        rows = table.rows.copy()
        rows["fault"] = faults
        rows.flags.writeable = False
        return replace(table, rows=rows)

    def _open_inside(
        self, table: FrameTable, path: str, allowance: Allowance
    ) -> Iterator[tuple[FrameTable, int]]:
        """Yield the frames inside those of a table, and the row that their parents count from."""
        for frames in open_lists(table, self._limits):
            yield frames, 0
        for format in list_formats_inside(self._format):
            at = 0
            opened = open_nested(
                table, format, errors="mark", limits=self._limits, source=path, allowance=allowance
            )
            for inner in opened:
                for frames in [inner, *open_lists(inner, self._limits)]:
                    yield frames, at
                at += len(inner.outermost)

    def _report_omissions(
        self, number: int, table: FrameTable, kept: np.ndarray
    ) -> Iterator[Event]:
        """Yield the frames of a table that are not kept, and the offsets lost with them."""
        omitted = np.flatnonzero(~kept)
        kept_rows = np.flatnonzero(kept)
        kept_before = np.searchsorted(kept_rows, omitted).tolist()
        omissions = self._describe_rows(number, table, omitted)
        firsts = find_first_offsets(table)
        lasts = table[log_columns(table).last]
        positions = table.positions
        passed = 0  # kept rows before the present one
        for row, before in zip(
            [*omitted.tolist(), len(table)], [*kept_before, len(kept_rows)], strict=True
        ):
            if before > passed:
                if self._is_damaged:
                    first_kept = kept_rows[passed]
                    yield from self._report_loss(
                        number, int(positions[first_kept]), int(firsts[first_kept])
                    )
                self._previous = int(lasts[kept_rows[before - 1]])
                passed = before
            if row == len(table):
                return
            omission = next(omissions)
            self._is_damaged |= omission.fault != DUPLICATE
            if omission.fault == DISORDER:
                yield from self._report_displaced(omission)
            elif omission.fault != DUPLICATE and omission.claim is not None:
                self._claims.append(omission.claim)
            yield omission

    def _describe_rows(
        self, number: int, table: FrameTable, rows: np.ndarray
    ) -> Iterator[Omission]:
        """Yield for each frame that is not kept what it is, and why it is not kept.

        rows: the row numbers of these frames, in ascending order.
        """
        path = self._paths[number]
        positions = table.positions[rows].tolist()
        sizes = table["size"][rows].tolist()
        faults = table["fault"][rows].tolist()
        columns = log_columns(table)
        firsts = table[columns.first][rows].tolist()
        lasts = table[columns.last][rows].tolist()
        counted = self._format.display.record_count
        counts = table[counted][rows].tolist() if counted else [1] * len(rows)
        claims = read_claims(table, rows[table.bad[rows]])
        described = zip(rows.tolist(), positions, sizes, faults, firsts, lasts, counts, strict=True)
        for row, position, size, fault, first, last, count in described:
            if fault:
                name, meaning = table.describe_fault(fault)
                claim = claims[row]
            else:
                name, meaning = DISORDER, DISORDER_MEANING
                if self._kept is not None and self._kept.is_duplicate(number, position):
                    name, meaning = DUPLICATE, DUPLICATE_MEANING
                claim = Claim(first, last, count)
            yield Omission(path, position, size, name, meaning, claim)

    def _report_displaced(self, omission: Omission) -> Iterator[LostRange]:
        """Yield the offsets of a frame at a wrong place, if no kept frame is around them."""
        claim = omission.claim
        if self._kept is None or claim is None:
            return
        if self._kept.is_hole(claim.first, claim.last):
            yield LostRange(omission.path, omission.position, claim.first, claim.last, (claim,))

    def _report_loss(self, number: int, position: int, first: int) -> Iterator[LostRange]:
        """Yield the offsets that are lost before a kept frame that follows damage.

        position, first: the position of that frame, and its first offset.
        """
        begin = self._find_expected(number)
        if first != UNKNOWN and begin is not None and begin < first:
            claims = tuple(claim for claim in self._claims if begin <= claim.first)
            yield LostRange(self._paths[number], position, begin, first - 1, claims)
        self._claims = []
        self._is_damaged = False

    def _find_expected(self, number: int) -> int | None:
        """Return the offset that should follow the last kept frame, or with which the log begins.

        None if nothing states it.
        """
        if self._previous is not None:
            return self._previous + 1
        starts = [claim.first for claim in self._claims]
        starts += [base for base in self._bases[: number + 1] if base is not None]
        return min(starts, default=None)

    def _report_tail(self, path: str, table: FrameTable) -> Iterator[Omission]:
        """Yield the bytes after the last frame of a file, unless they are zeros."""
        stop = table.stop
        position = table.origins[0] + stop.offset
        self._end = position + len(table.tail)
        if not stop.fault or stop.fault == Fault.ZEROS or not len(table.tail):
            return
        columns = log_columns(table)
        claim = None if columns.claim is None else columns.claim(table.tail)
        if claim is not None and claim.first <= (-1 if self._previous is None else self._previous):
            claim = None
        if claim is not None:
            self._claims.append(claim)
        self._is_damaged = True
        name, meaning = table.describe_fault(stop.fault)
        yield Omission(path, position, len(table.tail), name, meaning, claim)

    def _report_end(self) -> Iterator[LostRange]:
        """Yield the offsets that the end of the log has lost, by the headers of damaged frames."""
        previous = -1 if self._previous is None else self._previous
        claims = tuple(claim for claim in self._claims if claim.first > previous)
        if claims:
            first = min(claim.first for claim in claims)
            last = max(claim.last for claim in claims)
            yield LostRange(self._paths[-1], self._end, first, last, claims, at_end=True)


def list_formats_inside(outer: Format) -> list[Format]:
    """Return the formats of the frames directly inside those of `outer`, but not short lists."""
    return [
        format
        for format in formats().values()
        if format.within == outer.name
        and not format.display.repeats
        and format.read in outer.children.values()
    ]


def open_lists(frames: FrameTable, limits: Limits) -> Iterator[FrameTable]:
    """Yield the short lists inside frames, such as headers, in the mode "mark"."""
    for name in frames.format.lists:
        yield frames.format.children[name](frames, errors="mark", limits=limits)
