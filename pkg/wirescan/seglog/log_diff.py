"""Compares two copies of a log by offset, in memory that does not depend on their size.

    from wirescan.seglog.log_diff import LogDiff

    for difference in LogDiff("a/orders-0", "b/orders-0", format="kafka.records"):
        ...

Frames with equal headers, sizes and checksums are equal, and are not opened. So only the stretches
that differ cost more than a scan. There the records are compared, whatever frames they are in:
segments, batches and compression may differ, and records may be missing in either log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from wirescan.files.source import expand, get_seekable_size
from wirescan.frames.columns import list_columns, list_places
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.chunks import read_chunks
from wirescan.reading.nested_groups import open_nested
from wirescan.seglog.frame_offsets import log_columns, parse_segment

ONLY_LEFT = "missing in B"
ONLY_RIGHT = "missing in A"
DIFFERENT = "different"
KINDS = ("equal", ONLY_LEFT, ONLY_RIGHT, DIFFERENT)
GROUP = 64  # frames that are opened together
COMPARED_BYTES = 1 << 20  # bytes of places that are compared at once
PLACES_IN_FILE = ("start", "parent", "buffer", "body")  # columns that say where a frame is


class Difference(NamedTuple):
    """Offsets first..last that are missing in one log, or have another content.

    kind: ONLY_LEFT, ONLY_RIGHT or DIFFERENT. records: their number.
    examples: DIFFERENT: the first records, see `Example`.
    """

    kind: str
    first: int
    last: int
    records: int
    examples: tuple[Example, ...] = ()


class Example(NamedTuple):
    """A record that differs. left, right: the fields that differ, with their values in A and B."""

    offset: int
    left: dict[str, Any]
    right: dict[str, Any]


class LogTables(NamedTuple):
    """A log that is not in files, such as a partition of a live topic.

    name: names the log in messages.
    tables: tables of its outermost frames, in the order of their offsets. Their checksums are
        verified, and no frame is bad.
    """

    name: str
    tables: Iterable[FrameTable]


LogSource = str | os.PathLike[str] | LogTables


class LogDiff:
    """The differences of two logs: iterate over them.

    Args:
        left, right: a directory of segments, a file, a glob, or `LogTables`. Files are read in the
            order of their offsets.
        format: the name of the format of records.
        exact: compare the frames around the records instead: their borders, and all columns of
            their headers.
        examples: how many records that differ are described.
        limits: for reading.
        advance: called with the bytes of the frames that were just read, of both logs.
        inspect_end: called for each file with its last table of frames, whose `stop` and `tail` say
            how the file ends, and its path. A frame that the end cuts is not compared.

    Iterating raises FrameError for damage, ExpansionError for a file that expands to more than
    `limits.expansion`, ValueError for offsets that do not rise, and OSError.
    """

    def __init__(
        self,
        left: LogSource,
        right: LogSource,
        *,
        format: str,
        exact: bool = False,
        examples: int = 10,
        limits: Limits = Limits(),
        advance: Callable[[int], None] = lambda count: None,
        inspect_end: Callable[[FrameTable, str], None] = lambda last, path: None,
    ):
        inner = format_of(format)
        self._outer = inner.outermost
        self._format = self._outer if exact else inner
        if self._format.storage.log is None or "crc" not in list_columns(self._outer.dtype):
            raise ValueError(f"{format} is not compared: its frames have no offsets or checksums")
        self._exact = exact
        self._examples = examples
        self._left = _LogReader(left, self._format, limits, advance, inspect_end)
        self._right = _LogReader(right, self._format, limits, advance, inspect_end)
        skipped = PLACES_IN_FILE if exact else (*PLACES_IN_FILE, "leader_epoch")
        self._headers = [name for name in list_columns(self._outer.dtype) if name not in skipped]

    def __iter__(self) -> Iterator[Difference]:
        run: Difference | None = None
        for difference in self._compare():
            if run is not None and run.kind == difference.kind:
                run = run._replace(
                    last=difference.last,
                    records=run.records + difference.records,
                    examples=run.examples + difference.examples,
                )
                continue
            if run is not None and run.kind != KINDS[0]:
                yield run
            run = difference
        if run is not None and run.kind != KINDS[0]:
            yield run

    def _compare(self) -> Iterator[Difference]:
        """Yield equal and different stretches, in the order of their offsets."""
        left = self._left
        right = self._right
        while True:
            if left.is_between_frames and right.is_between_frames:
                count = self._count_equal(left.frames, right.frames)
                if count:
                    columns = log_columns(left.frames)
                    first = int(left.frames[columns.first][0])
                    last = int(left.frames[columns.last][count - 1])
                    left.skip(count)
                    right.skip(count)
                    yield Difference(KINDS[0], first, last, count)
                    continue
            left_ends = left.ends
            right_ends = right.ends
            has_left = left.open_next(right_ends)
            has_right = right.open_next(left_ends)
            if not has_left and not has_right:
                return
            stop = min(reader.last for reader in (left, right) if len(reader.records))
            yield from self._compare_records(left.take(stop), right.take(stop))

    def _count_equal(self, left: FrameTable, right: FrameTable) -> int:
        """Return how many frames at the start of two tables are equal."""
        count = min(len(left), len(right))
        equal = np.ones(count, bool)
        for name in self._headers:
            equal &= left[name][:count] == right[name][:count]
            if not equal[:1].all():
                return 0
        return count if equal.all() else int(equal.argmin())

    def _compare_records(self, left: FrameTable, right: FrameTable) -> Iterator[Difference]:
        """Yield the stretches of two tables that end with the same offset."""
        column = log_columns(left).first
        a = left[column]
        b = right[column]
        offsets = np.union1d(a, b)
        kinds = np.full(len(offsets), 0)
        kinds[~np.isin(offsets, b)] = KINDS.index(ONLY_LEFT)
        kinds[~np.isin(offsets, a)] = KINDS.index(ONLY_RIGHT)
        common, rows_left, rows_right = np.intersect1d(a, b, return_indices=True)
        fields = self._compare_fields(left[rows_left], right[rows_right])
        differs = np.zeros(len(common), bool)
        for different in fields.values():
            differs |= different
        kinds[np.searchsorted(offsets, common[differs])] = KINDS.index(DIFFERENT)
        begins = np.flatnonzero(np.diff(kinds, prepend=-1))
        for begin, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(kinds)]):
            examples: list[Example] = []
            if kinds[begin] == KINDS.index(DIFFERENT):
                for offset in offsets[begin:stop][: self._examples].tolist():
                    row = int(np.searchsorted(common, offset))
                    names = [name for name, different in fields.items() if different[row]]
                    pair = (
                        _describe(left, int(rows_left[row]), names, self._format),
                        _describe(right, int(rows_right[row]), names, self._format),
                    )
                    examples.append(Example(offset, *pair))
                self._examples -= len(examples)
            yield Difference(
                KINDS[kinds[begin]],
                int(offsets[begin]),
                int(offsets[stop - 1]),
                stop - begin,
                tuple(examples),
            )

    def _compare_fields(self, left: FrameTable, right: FrameTable) -> dict[str, np.ndarray]:
        """Return for each field a bool array: the rows in which it differs."""
        if self._exact:
            return {name: left[name] != right[name] for name in self._headers}
        lists = self._format.lists
        fields = {
            name: left[name] != right[name]
            for name, column in self._format.columns.items()
            if column.unit is not None and name in list_columns(self._format.dtype)
        }
        for name in list_places(self._format.dtype):
            if name not in lists:
                sizes = (left[f"{name}_size"], right[f"{name}_size"])
                fields[name] = _differ(left, right, name, *sizes)
        for name, count in lists.items():
            sizes = (_measure_list(left, name, count), _measure_list(right, name, count))
            fields[name] = _differ(left, right, name, *sizes)
            fields[name] |= left[count] != right[count]
        return fields


class _OuterTable(NamedTuple):
    """A table of outermost frames.

    name: of its file, or of its log if that is not in files. allowance: what the file may expand
    to; None for a log that is not in files.
    """

    name: str
    frames: FrameTable
    allowance: Allowance | None = None


class _LogReader:
    """Reads the frames of a log, or the records inside them, as they are asked for."""

    def __init__(
        self,
        source: LogSource,
        format: Format,
        limits: Limits,
        advance: Callable[[int], None],
        inspect_end: Callable[[FrameTable, str], None],
    ):
        self._format = format
        self._limits = limits
        self._advance = advance
        self._inspect_end = inspect_end
        self._tables = self._scan(source)
        self.frames: FrameTable = format.outermost.read(b"")  # not opened yet
        self._outer = _OuterTable("", self.frames)  # the table of these frames
        self.records: FrameTable | Any = ()  # opened, and not compared yet
        self._opened: Iterator[FrameTable] = iter(())
        self._opened_end = np.empty(0, np.int64)  # the last offset of the frames opened last
        self._reach = -1  # the last offset of the frames so far
        self._record_reach = -1  # the last offset of the records so far

    def _scan(self, source: LogSource) -> Iterator[_OuterTable]:
        """Yield the tables of a log, whose offsets rise."""
        for outer in self._read(source):
            table = outer.frames
            if not len(table):
                continue
            last = table[log_columns(table).last]
            if (np.diff(last, prepend=self._reach) <= 0).any():
                raise ValueError(
                    f"{outer.name}: the offsets do not rise: salvage the log before it is compared"
                )
            self._reach = int(last[-1])
            self._advance(int(table["size"].sum(dtype=np.int64)))
            yield outer

    def _read(self, source: LogSource) -> Iterator[_OuterTable]:
        """Yield tables of outermost frames."""
        top = self._format.outermost
        if isinstance(source, LogTables):
            for table in source.tables:
                yield _OuterTable(source.name, table)
            return

        def find_base(path: str) -> int:
            segment = parse_segment(top, path)
            return 0 if segment is None else segment.base

        files = expand(source, files=top.storage.files, ignore=top.storage.ignore)
        for path in sorted(files, key=find_base):
            allowance = Allowance(self._limits)
            chunks = read_chunks(path, 0, get_seekable_size(path))
            for table in scan_outermost(
                allowance.count_chunks(chunks),
                top,
                limits=self._limits,
                source=path,
                allowance=allowance,
            ):
                yield _OuterTable(path, table, allowance)
            self._inspect_end(table, path)

    @property
    def is_between_frames(self) -> bool:
        """Whether the next records begin a frame, which `frames` then has."""
        if len(self.records) or self._has_opened():
            return False
        while not len(self.frames):
            outer = next(self._tables, None)
            if outer is None:
                return False
            self._outer = outer
            self.frames = outer.frames
        return True

    def skip(self, count: int) -> None:
        """Pass over the next frames."""
        self._record_reach = int(self.frames[log_columns(self.frames).last][count - 1])
        self.frames = self.frames[count:]

    @property
    def last(self) -> int:
        """The offset of the last opened record."""
        return int(self.records[log_columns(self.records).last][-1])

    @property
    def ends(self) -> np.ndarray:
        """The offsets after which both logs may be between frames again.

        They are the last offset of the opened frames, or those of the frames that may be opened
        next.
        """
        if not self.is_between_frames:
            return self._opened_end
        return self.frames[log_columns(self.frames).last][:GROUP]

    def open_next(self, ends: np.ndarray) -> bool:
        """Open the next records, if none are open. Return whether there are any.

        ends: `ends` of the other log. The group ends with the last of them that a frame ends with.
            So equal frames after a difference are found again, and are not opened.
        """
        while not len(self.records):
            if not self._has_opened():
                if not self.is_between_frames:
                    return bool(len(self.records))
                own_ends = self.ends
                shared = np.flatnonzero(np.isin(own_ends, ends))
                count = int(shared[-1]) + 1 if len(shared) else len(own_ends)
                self._opened_end = own_ends[count - 1 : count]
                group = self.frames[:count]
                self.frames = self.frames[count:]
                if self._format is self._format.outermost:
                    self._check_order(group)
                    self.records = group
                else:
                    self._opened = open_nested(
                        group,
                        self._format,
                        limits=self._limits,
                        source=self._outer.name,
                        allowance=self._outer.allowance,
                    )
        return True

    def _has_opened(self) -> bool:
        """Move on to the next records of an opened group. Return whether there are any."""
        while not len(self.records):
            table = next(self._opened, None)
            if table is None:
                return False
            self._check_order(table)
            self.records = table
        return True

    def _check_order(self, records: FrameTable) -> None:
        """Raise ValueError if the offsets of the next records do not rise.

        No checksum covers the offset of a batch, and a batch may state any offsets of its records.
        """
        columns = log_columns(records)
        offsets = records[columns.first]
        lasts = records[columns.last]  # another column only for frames
        before = np.append(self._record_reach, lasts[:-1])
        for row in np.flatnonzero(offsets <= before)[:1].tolist():
            raise ValueError(
                f"{self._outer.name}: the offsets of the records do not rise, so they are not "
                f"compared: offset {int(offsets[row])} follows offset {int(before[row])}"
            )
        if len(offsets):
            self._record_reach = int(lasts[-1])

    def take(self, stop: int) -> FrameTable:
        """Return the opened records up to the offset `stop`, and remove them."""
        if not len(self.records):
            empty = self._format.outermost.read(b"")
            inner = empty if self._format is empty.format else self._format.read(empty)
            assert isinstance(inner, FrameTable)
            return inner
        count = int(np.searchsorted(self.records[log_columns(self.records).last], stop, "right"))
        taken: FrameTable = self.records[:count]
        self.records = self.records[count:]
        return taken


def _measure_list(table: FrameTable, name: str, count: str) -> np.ndarray:
    """Return the bytes of a list at the end of each frame."""
    sizes = table["size"].astype(np.int64) - table[f"{name}_at"]
    return np.where(table[count] > 0, sizes, 0)


def _differ(
    left: FrameTable,
    right: FrameTable,
    name: str,
    sizes: np.ndarray,
    other_sizes: np.ndarray,
) -> np.ndarray:
    """Return a bool array: the rows whose bytes in a place differ.

    The place begins at the column `<name>_at` of each frame. A size of -1 is null.
    """
    differs: np.ndarray = sizes != other_sizes
    rows = np.flatnonzero(~differs & (sizes > 0))
    starts = left["start"][rows] + left[f"{name}_at"][rows]
    others = right["start"][rows] + right[f"{name}_at"][rows]
    pairs = left["buffer"][rows].astype(np.int64) << 16 | right["buffer"][rows]
    for pair in np.unique(pairs).tolist():
        chosen = np.flatnonzero(pairs == pair)
        a = np.frombuffer(left.buffers[pair >> 16], np.uint8)
        b = np.frombuffer(right.buffers[pair & 0xFFFF], np.uint8)
        group = np.cumsum(sizes[rows[chosen]], dtype=np.int64) // COMPARED_BYTES
        for part in np.split(chosen, np.flatnonzero(np.diff(group)) + 1):
            size = sizes[rows[part]].astype(np.int64)
            first = np.cumsum(size) - size
            within = np.arange(int(size.sum())) - np.repeat(first, size)
            unequal = (
                a[np.repeat(starts[part], size) + within]
                != (b[np.repeat(others[part], size) + within])
            )
            differs[rows[part]] |= np.add.reduceat(unequal, first, dtype=np.int64) > 0
    return differs


def _describe(table: FrameTable, row: int, names: list[str], format: Format) -> dict[str, Any]:
    """Return some fields of a record: numbers, bytes, None for null, and lists of pairs."""
    values: dict[str, Any] = {}
    for name in names:
        if name in format.lists:
            pairs = getattr(table[row], name)
            values[name] = [tuple(None if v is None else bytes(v) for v in pair) for pair in pairs]
        else:
            value = getattr(table[row], name)
            values[name] = bytes(value) if isinstance(value, memoryview) else value
    return values
