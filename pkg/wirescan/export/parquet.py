"""Convert frames to Parquet: the files of each task, in one process. Imports pyarrow.

`write_parts` writes the files of a task. `convert` runs it in threads, and `wirescan.spark` in
Spark's tasks. Both write the same files, with Spark's types, because every reader of Parquet
supports these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

from wirescan.core.parallel import FixedWorkers
from wirescan.decoding.decoder import Decoder
from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.export import fault_report
from wirescan.export.batches import BATCH_BYTES, fit_payloads
from wirescan.export.column_batches import make_column_reader
from wirescan.export.hive_layout import Key, Layout
from wirescan.export.parquet_writer import (
    COMPRESSION,
    FAULTS,
    FILE_BYTES,
    Output,
    Sink,
    WrittenFile,
    find_small,
    make_writer,
    merge,
    open_local_file,
    replace_merged,
)
from wirescan.export.table_parts import BATCH_ROWS
from wirescan.frames.errors import check_mode
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_bad_frames
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.captures import choose_source_format
from wirescan.reading.chunked import count_chunks, scan_outermost
from wirescan.reading.chunks import open_chunks
from wirescan.reading.expression import add_expression
from wirescan.reading.filters import Condition, check_filters
from wirescan.reading.nested_groups import open_nested
from wirescan.reading.splits import SLICE_BYTES, Slice, plan_tasks


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
    """The result for one table of frames.

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
    """Yield the frames of some slices, table by table.

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
    format = format_of(layout.format)
    # Bad rows are skipped here and not by the readers, so that they are counted.
    options: dict[str, Any] = {
        "errors": "strict" if errors == "strict" else "mark",
        "check": check,
        "limits": limits,
    }
    conditions = check_filters(filters, format)
    needs_rows = chooser is not None or bool(conditions) or _needs_rows(layout, errors)
    for part in slices:
        if chooser is not None and chooser.is_done:
            return
        covered = 0
        opener = _make_opener(layout, part.path, conditions, options, needs_rows=needs_rows)
        file_range = open_chunks(part.path, part.start, part.stop, BATCH_BYTES)
        for frames in scan_outermost(
            count_chunks(file_range.chunks, opener.allowance),
            format,
            offset=part.start,
            allow_cut=part.last or file_range.reaches_end,
            source=part.path,
            allowance=opener.allowance,
            **options,
        ):
            read = int(frames["size"].sum(dtype=np.int64))
            covered += read
            yield CountedBatches(Summary(frames=int(np.count_nonzero(~frames.bad))), [])
            for result in opener.open(frames):
                yield _count_result(result, layout, errors, chooser, part.path)
            advance(read)
            if chooser is not None and chooser.is_done:
                break
        # The frames of a capture do not have the bytes of its packets' headers.
        is_captured = format.outermost.make_reader is not None
        tail_size = len(frames.tail) if is_captured else len(part) - covered
        yield CountedBatches(
            Summary(files=int(part.start == 0), bytes=len(part), tail=tail_size), []
        )


def _needs_rows(layout: Layout, errors: str) -> bool:
    """Return whether rows are sorted into directories, or counted for damage in their lists."""
    has_lists = not format_of(layout.format).lists.keys().isdisjoint(layout.columns)
    return bool(layout.by) or (errors != "strict" and has_lists)


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


def write(
    slices: Sequence[Slice],
    out: str,
    *,
    format: str,
    columns: Sequence[str] | None = None,
    compression: str = COMPRESSION,
    **options: Any,
) -> Summary:
    """Write the frames of some slices to one Parquet file, and return a summary.

    The file is written even if there are no rows.

    slices, options: those of `write_counted`, whose errors this function raises too.
    out: the path of the file.
    format: the name of the format.
    columns: as in `wirescan.frames.to_arrow.make_schema`.
    compression: the name of a Parquet codec.
    """
    layout = Layout.from_columns(format, columns)
    sink = Sink(lambda number: out, compression, float("inf"))
    summary, parts = _write_to_sink(slices, sink, layout, options, with_faults=False)
    if not parts:
        make_writer(out, layout.schema, compression).close()
    return replace(summary, written=os.path.getsize(out))


def write_parts(
    slices: Sequence[Slice],
    stem: str,
    layout: Layout,
    *,
    compression: str = COMPRESSION,
    file_bytes: int = FILE_BYTES,
    open_file: Callable[[str], Any] = open_local_file,
    **options: Any,
) -> tuple[Summary, list[WrittenFile]]:
    """Write the frames of some slices to Parquet files, and return a summary and the files.

    Bad frames are listed in further files, which belong to the directory FAULTS.

    slices, layout, options: those of `write_counted`, whose errors this function raises too.
    stem: the start of the paths, which are `<stem>-<n>.parquet`.
    compression: the name of a Parquet codec.
    file_bytes: the size after which a file is followed by another.
    open_file: a function of a path that opens a file of pyarrow to write. Default: a local file.
    """
    sink = Sink(
        lambda number: f"{stem}-{number}.parquet", compression, file_bytes, open_file=open_file
    )
    return _write_to_sink(slices, sink, layout, options, with_faults=True)


def _write_to_sink(
    slices: Sequence[Slice],
    sink: Sink,
    layout: Layout,
    options: dict[str, Any],
    *,
    with_faults: bool,
) -> tuple[Summary, list[WrittenFile]]:
    begun = time.perf_counter()
    total = Summary()
    with sink:
        for summary, batches, faults in write_counted(slices, layout, **options):
            total += summary
            for key, batch in batches:
                sink.add(layout.format_directory(key), batch)
            if with_faults and faults is not None:
                sink.add(FAULTS, faults)
    return replace(total, seconds=time.perf_counter() - begun), sink.parts


def convert(
    sources: Any,
    out: str | os.PathLike[str],
    format: str,
    *,
    columns: Sequence[str] | None = None,
    partition_by: str | Sequence[str] = (),
    compression: str = COMPRESSION,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    size: int = SLICE_BYTES,
    file_bytes: int = FILE_BYTES,
    workers: int | None = None,
    overwrite: bool = False,
    filters: Iterable[tuple[Any, ...]] = (),
    where: str | None = None,
    chooser: RowChoice | None = None,
    decode: Mapping[str, str | Decoder] | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Summary:
    """Write the frames of all sources to a directory of Parquet files, in threads of this process.

    The files appear when all of them are written, or not at all. With errors "mark" and "skip",
    bad frames are listed in a directory beside the output, `<out>.faults`
    (`wirescan.export.fault_report`). It exists only if there are bad frames.

    Args:
        sources: paths, globs, directories or URLs.
        out: the directory.
        format: the name of the format. If the first file is a capture of packets, "kafka.requests"
            means "kafka.requests?capture=true".
        columns: as in `wirescan.frames.to_arrow.make_schema`.
        partition_by: as in `wirescan.export.hive_layout`.
        compression: the name of a Parquet codec.
        errors: "strict", "mark" or "skip".
        check: verify checksums.
        limits: bounds on rows and bytes.
        size: bytes of the sources per task.
        file_bytes: the size after which a file is followed by another. Files of less than a
            sixteenth of it are merged.
        workers: the number of threads. Default: the number of processors.
        overwrite: replace the files of an earlier conversion.
        filters: the filters that rows have to pass, see `wirescan.reading.filters`. Parts of
            files without wanted rows are not read.
        where: a condition that rows have to pass too, as text: see
            `wirescan.reading.expression`.
        chooser: chooses among the rows that pass, as in `write_counted`. The files are then read
            in order, by one thread, until it is done.
        decode: the columns whose payloads are decoded, as in `batches.iter_batches`. Types that
            are inferred come from the first rows.
        advance: called with the bytes of sources that were converted, in any of the threads.

    Raises:
        FrameError: as `errors` says.
        FileExistsError: the directory has files, unless `overwrite` is true and they are those
            of an earlier conversion.
        ValueError, TypeError: an argument is wrong.
        OSError: a file cannot be read or written.
    """
    begun = time.perf_counter()
    format = choose_source_format(format, sources)
    layout = Layout.from_columns(format, columns, partition_by)
    check_mode(errors, limits)
    filters = add_expression(check_filters(filters, format), where, format)
    threads = workers or os.cpu_count()
    if chooser is not None:
        threads = 1  # it gets the tables in order
    with Output(out, overwrite=overwrite) as output, ThreadPoolExecutor(threads) as pool:
        work = plan_tasks(sources, format, size, filters=filters, errors=errors, limits=limits)
        if decode:
            options = {"errors": errors, "check": check, "limits": limits, "filters": filters}
            layout = _add_payloads(layout, PayloadColumns(decode), work.slices, options)
        write_task = partial(
            write_parts,
            layout=layout,
            compression=compression,
            file_bytes=file_bytes,
            errors=errors,
            check=check,
            limits=limits,
            filters=filters,
            chooser=chooser,
            advance=advance,
        )

        def write_with_threads(slices: Sequence[Slice], stem: str) -> Any:
            with FixedWorkers(1 if threads == 1 else None):
                return write_task(slices, stem)

        stems = map(output.make_part_path, range(len(work)))
        results = list(pool.map(write_with_threads, work, stems))
        parts = [part for _, task_parts in results for part in task_parts]
        parts = _merge_small_files(parts, file_bytes, output, pool, compression)
        written = output.commit(parts, layout.schema)
    return replace(
        sum((summary for summary, _ in results), Summary()),
        files=len({part.path for part in work.slices}),
        written=written,
        seconds=time.perf_counter() - begun,
    )


def _merge_small_files(
    parts: list[WrittenFile],
    file_bytes: int,
    output: Output,
    pool: ThreadPoolExecutor,
    compression: str,
) -> list[WrittenFile]:
    """Merge runs of small files that were written, and return the files that are left."""
    runs = find_small(parts, file_bytes)
    into = pool.map(
        lambda number, run: merge(
            run, f"{output.make_part_path(number, 'merged')}.parquet", compression
        ),
        range(len(runs)),
        runs,
    )
    return replace_merged(parts, runs, list(into))


def _add_payloads(
    layout: Layout, payloads: PayloadColumns, slices: Iterable[Slice], options: dict[str, Any]
) -> Layout:
    """Return a layout whose payloads are decoded. The first rows give types that are not known.

    slices: where the first rows are. options: further arguments of `iter_batches`.
    """
    payloads.check(layout.stored_schema)
    fit_payloads(payloads, layout.format, slices, **options)
    return replace(layout, payloads=payloads)
