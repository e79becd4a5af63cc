"""Frames as record batches for Parquet, with counts of rows, frames and faults.

`parquet.py` and `wirescan.spark` write the batches. Imports pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from wirescan.files.source import read_ahead
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

from wirescan.export import fault_report
from wirescan.export.batches import BATCH_BYTES
from wirescan.export.column_batches import make_column_reader
from wirescan.export.hive_layout import Key, Layout
from wirescan.export.outermost_columns import OutermostReader, can_write_columns
from wirescan.export.table_parts import BATCH_ROWS, make_batches
from wirescan.frames.errors import check_mode
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_bad_frames
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import ColumnScan
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import count_chunks, scan_outermost
from wirescan.reading.chunks import LocalChunks, open_chunks
from wirescan.reading.filters import Condition, check_filters
from wirescan.reading.nested_groups import open_nested
from wirescan.reading.splits import Slice


@dataclass(frozen=True)
class Summary:
    """What a conversion did.

    Attributes:
        files: files read.
        frames: good outermost frames, such as batches.
        records: rows written.
        bytes: bytes read.
        faults: bad rows found.
        tail: bytes after the last whole frames.
        written: bytes of Parquet, without the table of faults.
        seconds: wall time.
    """

    files: int = 0
    frames: int = 0
    records: int = 0
    bytes: int = 0
    faults: int = 0
    tail: int = 0
    written: int = 0
    seconds: float = 0.0

    def __add__(self, other: Summary) -> Summary:
        return Summary(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class RowChoice(Protocol):
    """Chooses rows of the tables that pass the filters. It gets the tables in order."""

    @property
    def is_done(self) -> bool:
        """Whether no row of a later table is chosen."""

    def choose(self, table: FrameTable, path: str) -> np.ndarray:
        """Return the numbers of the chosen rows of the next table, which is one of a file."""


class CountedBatches(NamedTuple):
    """Counts, and the rows of one table or record batch.

    Attributes:
        summary: what is to be counted.
        batches: the rows, in record batches of Spark's types, each with the key of its rows in
            the layout.
        faults: the bad frames, as `wirescan.export.fault_report` lists them, or None.
    """

    summary: Summary
    batches: list[tuple[Key, pa.RecordBatch]]
    faults: pa.RecordBatch | None = None


def write_counted(
    slices: Sequence[Slice],
    layout: Layout,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    filters: Iterable[tuple[Any, ...]] = (),
    chooser: RowChoice | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[CountedBatches]:
    """Yield the frames of some slices, in parts, with their counts.

    Args:
        slices: the slices. A file counts in the slice that has its first byte.
        layout: the columns and directories.
        errors: for bad frames: "strict" raises FrameError, "mark" keeps them as rows with their
            fault, "skip" removes and counts them. Bad frames in lists are included if the lists
            are among the columns.
        check: verify checksums.
        limits: bounds on rows and bytes.
        filters: the filters that rows have to pass, see `wirescan.reading.filters`. Bad rows that
            do not pass are not counted either.
        chooser: chooses among the rows that pass. None, the default: all. Damage in rows that are
            not chosen counts too.
        advance: called with the bytes of frames that were written.

    Raises:
        FrameError: as `errors` says.
        ValueError, TypeError, EOFError, OSError: as `chunked.iter_tables`.
    """
    check_mode(errors, limits)
    # Bad rows are skipped here and not by the readers, so that they are counted.
    options: dict[str, Any] = {
        "errors": "strict" if errors == "strict" else "mark",
        "check": check,
        "limits": limits,
    }
    conditions = check_filters(filters, format_of(layout.format))
    needs_rows = chooser is not None or bool(conditions) or _needs_rows(layout, errors)
    # Not all bytes may be needed.
    head = 0 if conditions or chooser is not None else None
    for part in read_ahead(slices, attrgetter("path"), head=head):
        if chooser is not None and chooser.is_done:
            return
        tail = len(part)
        block_faults = _BlockFaults(part.path)
        for group in _read_frames(
            layout, part, conditions, options, block_faults.add, needs_rows=needs_rows
        ):
            yield from block_faults.take_batches()
            yield CountedBatches(Summary(frames=group.frames), [])
            for result in group.results:
                yield _count_result(result, layout, errors, chooser, part.path)
            advance(group.bytes)
            # The frames of a capture do not have the bytes of its packets' headers.
            tail = tail - group.bytes if group.tail is None else group.tail
            if chooser is not None and chooser.is_done:
                break
        yield from block_faults.take_batches()
        yield CountedBatches(Summary(files=int(part.start == 0), bytes=len(part), tail=tail), [])


class _BlockFaults:
    """The bad blocks of a capture, which are in no frame. path: the path of the file."""

    def __init__(self, path: str):
        self._path = path
        self._tables: list[FrameTable] = []

    def add(self, blocks: FrameTable) -> None:
        """Keep the bad rows of a table of pcap.blocks."""
        if blocks.bad.any():
            self._tables.append(blocks.where(blocks.bad))

    def take_batches(self) -> Iterator[CountedBatches]:
        """Yield the counts and the faults of the blocks so far, and forget them."""
        tables, self._tables = self._tables, []
        for blocks in tables:
            faults = fault_report.to_batch(blocks, self._path)
            yield CountedBatches(Summary(faults=len(blocks)), [], faults)


def _needs_rows(layout: Layout, errors: str) -> bool:
    """Return whether rows are sorted into directories, or counted for damage in their lists."""
    has_lists = not format_of(layout.format).lists.keys().isdisjoint(layout.columns)
    return bool(layout.by) or (errors != "strict" and has_lists)


class _FrameGroup(NamedTuple):
    """Counts of outermost frames, and the rows to write for them.

    frames: the number of good frames.
    bytes: the size of all frames.
    results: the rows. Iteration may raise FrameError.
    tail: the bytes of a capture after the last whole frames; None for other files.
    """

    frames: int
    bytes: int
    results: Iterable[pa.RecordBatch | FrameTable]
    tail: int | None = None


def _read_frames(
    layout: Layout,
    part: Slice,
    conditions: Sequence[Condition],
    options: dict[str, Any],
    inspect_blocks: Callable[[FrameTable], None],
    *,
    needs_rows: bool,
) -> Iterator[_FrameGroup]:
    """Yield the frames of a slice: as columns if possible, otherwise as tables.

    conditions: the filters. options: the arguments `errors`, `check` and `limits` of the readers.
    inspect_blocks: as in `scan_outermost`.
    """
    format = format_of(layout.format)
    file_range = open_chunks(part.path, part.start, part.stop, BATCH_BYTES)
    allow_cut = part.last or file_range.reaches_end
    # Lists have the default limits, as in `Layout.make_batches`.
    scan = ColumnScan(format, layout.stored_schema, file=part.path, errors=options["errors"])
    can_write = can_write_columns(scan) and not needs_rows
    if can_write and isinstance(file_range.chunks, LocalChunks):
        yield from _read_outermost(scan, file_range.chunks, part, options, allow_cut=allow_cut)
        return
    opener = _make_opener(layout, part.path, conditions, options, needs_rows=needs_rows)
    for frames in scan_outermost(
        count_chunks(file_range.chunks, opener.allowance),
        format,
        offset=part.start,
        allow_cut=allow_cut,
        source=part.path,
        allowance=opener.allowance,
        inspect_blocks=inspect_blocks,
        **options,
    ):
        tail = len(frames.tail) if format.outermost.make_reader is not None else None
        yield _count_frames(frames, opener.open(frames), tail)


def _read_outermost(
    scan: ColumnScan, chunks: LocalChunks, part: Slice, options: dict[str, Any], *, allow_cut: bool
) -> Iterator[_FrameGroup]:
    """Yield the frames of an outermost format: columns, or tables where rows are needed.

    options: as in `_read_frames`. allow_cut: as in `scan_outermost`.
    """
    reader = OutermostReader(scan, part.path, **options)
    for result in reader.read(chunks, part.start, allow_cut=allow_cut):
        if isinstance(result, FrameTable):
            yield _count_frames(result, [result])
        else:
            batches = make_batches(scan, result, batch_rows=BATCH_ROWS, batch_bytes=BATCH_BYTES)
            yield _FrameGroup(len(result), result.count_bytes(), batches)


def _count_frames(
    frames: FrameTable, results: Iterable[pa.RecordBatch | FrameTable], tail: int | None = None
) -> _FrameGroup:
    """Return outermost frames with their counts."""
    size = int(frames["size"].sum(dtype=np.int64))
    return _FrameGroup(int(np.count_nonzero(~frames.bad)), size, results, tail)


class _Opener(NamedTuple):
    """What opens the frames inside outermost frames.

    allowance: counts what is opened.
    open: returns the frames inside a table, as record batches or as tables.
    """

    allowance: Allowance
    open: Callable[[FrameTable], Iterable[pa.RecordBatch | FrameTable]]


def _make_opener(
    layout: Layout,
    source: str,
    conditions: Sequence[Condition],
    options: dict[str, Any],
    *,
    needs_rows: bool,
) -> _Opener:
    """Return what opens the frames of a file: as columns if possible, otherwise as tables.

    conditions: the filters. options: the arguments `errors`, `check` and `limits` of the readers.
    """
    if not needs_rows:
        reader = make_column_reader(
            layout.format,
            schema=layout.stored_schema,
            binary="binary",
            types="spark",
            source=source,
            batch_rows=BATCH_ROWS,
            batch_bytes=BATCH_BYTES,
            workers=1,
            filters=(),
            **options,
        )
        if reader is not None:
            return _Opener(reader.allowance, reader.open)
    allowance = Allowance(options["limits"])
    open_tables = partial(
        open_nested,
        format=format_of(layout.format),
        filters=conditions,
        source=source,
        allowance=allowance,
        **options,
    )
    return _Opener(allowance, open_tables)


def _count_result(
    result: pa.RecordBatch | FrameTable,
    layout: Layout,
    errors: str,
    chooser: RowChoice | None,
    path: str,
) -> CountedBatches:
    """Return the rows to write, and the counts. The arguments are of `write_counted`."""
    if isinstance(result, FrameTable):
        return _count_table(result, layout, errors, chooser, path)
    batch = layout.decode(result)
    return CountedBatches(Summary(records=len(batch)), [((), batch)])


def _count_table(
    table: FrameTable, layout: Layout, errors: str, chooser: RowChoice | None, path: str
) -> CountedBatches:
    """Return the rows of a table to write, and the counts. The arguments are of `write_counted`."""
    # Under "strict" the readers have raised for any damage.
    damaged = [] if errors == "strict" else find_bad_frames(table, layout.columns)
    bad_count = sum(len(bad) for bad, _ in damaged)
    faults = None
    if bad_count:
        faults = fault_report.to_batch(table, path, layout.columns)
    if errors == "skip" and bad_count:
        table = table.where(~table.bad)
    if chooser is not None:
        table = table[chooser.choose(table, path)]
    batches = list(layout.make_batches(table, path, errors))
    return CountedBatches(Summary(records=len(table), faults=bad_count), batches, faults)
