"""Record batches of nested frames, which become columns without tables of their rows.

Only filters and damage need rows. `batches.py` uses this module for the formats that have
`Format.write`, and reads several groups of frames at the same time. `counted_batches.py` uses it on
one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from wirescan.core.loop import bound_counts
from wirescan.core.parallel import FixedWorkers, choose_workers, cut_evenly, map_in_order
from wirescan.export.table_parts import make_batches, split_by_bytes
from wirescan.frames.errors import FrameError, enforce_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.optional_packages import name_package
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import ColumnScan, to_batch
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunks import LocalChunks
from wirescan.reading.filters import Condition, apply_filters, prune_frames
from wirescan.reading.nested_groups import (
    INFLATED,
    add_source,
    limit_group,
    open_nested,
    verify_frames,
)
from wirescan.reading.stream import Stream

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

ROWS_PER_BYTE = 16  # of a frame: a larger count is not believed when frames are grouped
GROUPS = 4  # the number of groups of a chunk is a multiple of it, if the chunk has enough frames


class _Group(NamedTuple):
    """Outermost frames that are read together.

    table: the frames.
    bytes_read: the bytes of the file that were read for them, after those for the group before.
    """

    table: FrameTable
    bytes_read: int


class _Opened(NamedTuple):
    """The frames inside a group.

    batches: the frames that pass the filters.
    spend: counts all frames that were opened, see `Allowance`.
    """

    batches: Sequence[pa.RecordBatch]
    spend: Callable[[], None]


@dataclass(frozen=True)
class ColumnReader:
    """Reads the frames of a format as record batches. One reader reads one file.

    Attributes:
        format: the format. It has a `write`.
        schema: the columns, as `to_arrow.make_schema` returns them.
        binary, types: as in `to_arrow.make_schema`.
        source: the path of the file, for errors and the column `_file`; None for bytes in memory.
        batch_rows: rows in a batch, at most.
        batch_bytes: bytes of the frames in a batch, about.
        errors, check, limits: as in `chunked.iter_tables`.
        allowance: counts what is opened.
        workers: the number of threads.
        filters: the result of `filters.check_filters`.
    """

    format: Format
    schema: pa.Schema
    binary: str
    types: str
    source: str | None
    batch_rows: int
    batch_bytes: int
    errors: str
    check: bool
    limits: Limits
    allowance: Allowance
    workers: int
    filters: Sequence[Condition]

    @cached_property
    def _columns(self) -> ColumnScan:
        together = min(INFLATED, self.limits.inflated_total)
        return ColumnScan(
            self.format,
            self.schema,
            file=self.source,
            errors=self.errors,
            check=self.check,
            limits=replace(self.limits, inflated_total=together),
        )

    @property
    def outermost(self) -> Format:
        """The format around the frames."""
        return self.format.outermost

    @property
    def verifies_late(self) -> bool:
        """Whether checksums are verified when the frames are opened, and not by the scan.

        The bytes are read once then. Only in "strict" mode, because no frame is searched for after
        a bad one.
        """
        return self.check and self.errors == "strict" and self.outermost.parser.verify is not None

    def read(
        self, chunks: Iterable[Any], offset: int, *, allow_cut: bool
    ) -> Iterator[pa.RecordBatch | FrameTable]:
        """Yield the frames in chunks of a file: record batches, or tables where rows are needed.

        chunks, offset, allow_cut: as in `chunked.scan_outermost`.

        Raises FrameError as `errors` says, and ExpansionError for more than the allowance.
        """
        stream = Stream(
            self.outermost,
            errors=self.errors,
            check=self.check and not self.verifies_late,
            limits=self.limits,
            source=self.source,
            offset=offset,
        )
        groups = self._list_groups(stream, chunks, allow_cut=allow_cut)
        open_group = self._filter_group if self.filters else self._write_group
        for group, opened in map_in_order(open_group, groups, self.workers):
            # Counted here, and not where they are read ahead, so that no error depends on threads.
            self.allowance.count_read(group.bytes_read)
            with add_source(self.source):
                self.allowance.spend_frames(group.table)
            yield from self._count_opened(group, opened)

    def open(self, table: FrameTable) -> Iterator[pa.RecordBatch | FrameTable]:
        """Yield the frames inside outermost frames, which another reader has scanned and counted.

        Without filters, on this thread. The results and the errors are those of `read`.
        """
        for part in self._group(table):
            yield from self._count_opened(*self._write_group(_Group(part, 0)))

    def _count_opened(
        self, group: _Group, opened: _Opened | None
    ) -> Iterator[pa.RecordBatch | FrameTable]:
        """Yield what was opened inside a group, after it was counted; tables if `opened` is None.

        Raises ExpansionError for more than the allowance.
        """
        if opened is None:
            yield from self._open_rows(group.table)
            return
        with add_source(self.source):
            opened.spend()
        yield from opened.batches

    def _list_groups(
        self, stream: Stream, chunks: Iterable[Any], *, allow_cut: bool
    ) -> Iterator[_Group]:
        """Yield the outermost frames of a stream, in groups that are read together.

        Groups before a fault are yielded before its error is raised: damage in them comes first.
        """
        bytes_read = 0
        for chunk in chain(chunks, [None]):
            frames, error = stream.feed_to_fault(chunk, tail=allow_cut)
            if chunk is not None:
                new_bytes = len(chunk)
                if isinstance(chunks, LocalChunks):
                    new_bytes = chunks.new_bytes
                    if error is None:
                        chunks.repeat_cut(stream)
                bytes_read += new_bytes
            for table in self._group(frames):
                yield _Group(table, bytes_read)
                bytes_read = 0
            if error is not None:
                if self.verifies_late:
                    self._check_last_frame(stream.damaged)
                raise error

    def _check_last_frame(self, table: FrameTable) -> None:
        """Raise FrameError for the fault that a scan with checksums finds in the last frame."""
        if not len(table):
            return
        scan = self.outermost.parser.scan
        assert scan is not None  # every outermost format has it
        frame = table.frame(len(table) - 1)
        found, bad, *_ = scan(frame, check=True, resync=False, limits=self.limits)
        if bad:
            rows = table.rows.copy()
            rows["fault"][-1] = found["fault"][0]
            with add_source(self.source):
                enforce_mode(replace(table, rows=rows), self.errors, bad)

    def _verify(self, table: FrameTable) -> FrameTable:
        return verify_frames(table, self.format, limits=self.limits, source=self.source)

    def _group(self, table: FrameTable) -> Iterator[FrameTable]:
        """Yield parts of a table whose frames state about two batches of rows, or fewer.

        The parts have about as many rows each. Their number does not depend on that of the threads,
        and two or four threads have equal shares.
        """
        if not len(table):
            return
        expected = self._expect_rows(table)
        if expected is None:
            yield from _cut_equally(table, self._count_parts(len(table)))
            return
        # A frame with many rows is a part of its own in any case.
        rows = bound_counts(table.rows, expected, ROWS_PER_BYTE, 2 * self.batch_rows)
        parts = self._count_parts(int(rows.sum()))
        if parts == 1:
            yield table  # to divide it would take longer
            return
        for first, last in cut_evenly(rows, parts):
            yield table[first:last]

    def _expect_rows(self, table: FrameTable) -> np.ndarray | None:
        """Return how many rows each frame states, or has probably; None if it is one in each.

        The numbers are int32, as `bound_counts` takes them. Larger ones are never believed.
        """
        column = self.outermost.display.record_count
        expect = self.outermost.parser.expect_inside
        counts: np.ndarray | None = None
        if column is not None:
            counts = table[column]
        elif expect is not None:
            counts = expect(table)
        if counts is None or counts.dtype == np.int32:
            return counts
        wide = counts.astype(np.uint64 if counts.dtype.kind == "u" else np.int64)
        return np.clip(wide, 0, np.iinfo(np.int32).max).astype(np.int32)

    def _count_parts(self, rows: int) -> int:
        """Return in how many parts frames with so many rows are read."""
        parts = -(-rows // (2 * self.batch_rows))
        return parts if parts == 1 else -(-parts // GROUPS) * GROUPS

    def _write_group(self, group: _Group) -> tuple[_Group, _Opened | None]:
        """Return a group, and the frames inside it; None where rows are needed."""
        with add_source(self.source):
            frames = self._columns.read_inside(group.table)
        if frames is None:
            return group, None
        batches = make_batches(
            self._columns, frames, batch_rows=self.batch_rows, batch_bytes=self.batch_bytes
        )
        return group, _Opened(batches, partial(self.allowance.spend_columns, frames))

    def _filter_group(self, group: _Group) -> tuple[_Group, _Opened | None]:
        """Return a group, and the frames inside it that pass the filters.

        None stands for damage, and for frames that exceed a limit together.
        """
        outer = group.table
        wanted = prune_frames(outer, self.format, self.filters, self.errors, self.source)
        if self.verifies_late and len(wanted) < len(outer):
            # The columns that exclude a frame may be damaged.
            assert self.outermost.parser.verify is not None
            if self.outermost.parser.verify(outer.rows, outer.buffers).any():
                return group, None
            wanted = replace(wanted, checked=True)
        try:
            # Other groups are read at the same time.
            with FixedWorkers(1):
                inner = self.format.inside(
                    wanted,
                    errors="strict",
                    check=self.check,
                    limits=limit_group(self.limits, wanted),
                )
        except FrameError:
            return group, None
        passing = replace(apply_filters(inner, self.filters, self.source), errors=self.errors)
        batches = [
            to_batch(
                part,
                self.schema.names,
                binary=self.binary,
                types=self.types,
                file=self.source,
                errors=self.errors,
                limits=self.limits,
            )
            for part in split_by_bytes(passing, self.batch_bytes, self.schema.names)
        ]
        return group, _Opened(batches, partial(self.allowance.spend_nested, inner, wanted))

    def _open_rows(self, group: FrameTable) -> Iterator[FrameTable]:
        """Yield the frames inside a group as tables, which can have bad rows."""
        if self.verifies_late:
            group = self._verify(group)
        yield from open_nested(
            group,
            self.format,
            errors=self.errors,
            check=self.check,
            limits=self.limits,
            source=self.source,
            filters=self.filters,
            allowance=self.allowance,
        )


def _cut_equally(table: FrameTable, parts: int) -> Iterator[FrameTable]:
    """Yield a table in parts of as many rows each, or one fewer. No number is added up."""
    starts = [len(table) * part // parts for part in range(parts + 1)]
    for first, last in zip(starts, starts[1:]):
        yield table[first:last]


def make_column_reader(
    format: str | Format, limits: Limits, workers: SupportsIndex | None = None, **options: Any
) -> ColumnReader | None:
    """Return the reader of a format; None if the format can only be read as tables.

    format: the format or its name.
    limits, options: as in `ColumnReader`.
    workers: as in `parallel.choose_workers`.

    Raises ValueError and TypeError for an unknown format or number of threads.
    """
    inner = format_of(format) if isinstance(format, str) else format
    if inner.write is None or inner.within != inner.outermost.spec:
        return None
    return ColumnReader(
        inner,
        limits=limits,
        allowance=Allowance(limits),
        workers=choose_workers(workers),
        **options,
    )
