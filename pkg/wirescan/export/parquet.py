"""Convert frames to Parquet: the files of each task, in one process. Imports pyarrow.

`write_parts` writes the files of a task. `convert` runs it in threads, and `wirescan.spark` in
Spark's tasks. Both write the same files, with Spark's types, because every reader of Parquet
supports these. `counted_batches.py` reads the frames.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow  # noqa: F401 - so that its error names this module

from wirescan.core.parallel import FixedWorkers, choose_workers
from wirescan.decoding.decoder import Decoder
from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.export.batches import fit_payloads
from wirescan.export.counted_batches import CountedBatches, RowChoice, Summary, write_counted
from wirescan.export.hive_layout import Layout
from wirescan.export.parquet_writer import (
    COMPRESSION,
    FAULTS,
    FILE_BYTES,
    Output,
    Sink,
    WrittenFile,
    check_compression,
    find_small,
    make_writer,
    merge,
    open_local_file,
    replace_merged,
)
from wirescan.frames.errors import check_mode
from wirescan.frames.limits import Limits
from wirescan.reading.captures import choose_source_format
from wirescan.reading.expression import add_expression
from wirescan.reading.filters import check_filters
from wirescan.reading.splits import SLICE_BYTES, Slice, plan_tasks

__all__ = [
    "CountedBatches",
    "RowChoice",
    "Summary",
    "convert",
    "write",
    "write_counted",
    "write_parts",
]


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
    check_compression(compression)
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
        workers: the number of threads, as in `batches.iter_batches`.
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
    check_compression(compression)
    filters = add_expression(check_filters(filters, format), where, format)
    options: dict[str, Any] = {
        "errors": errors,
        "check": check,
        "limits": limits,
        "filters": filters,
    }
    threads = choose_workers(workers)
    if chooser is not None:
        threads = 1  # it gets the tables in order
    with Output(out, overwrite=overwrite) as output, ThreadPoolExecutor(threads) as pool:
        work = plan_tasks(sources, format, size, filters=filters, errors=errors, limits=limits)
        if decode:
            layout = _add_payloads(layout, PayloadColumns(decode), work.slices, options)
        write_task = partial(
            write_parts,
            layout=layout,
            compression=compression,
            file_bytes=file_bytes,
            chooser=chooser,
            advance=advance,
            **options,
        )
        threads_per_task = 1 if threads == 1 else None
        summary, parts = _run_tasks(write_task, work, output, pool, threads_per_task)
        parts = _merge_small_files(parts, file_bytes, output, pool, compression)
        written = output.commit(parts, layout.schema)
    return replace(
        summary,
        files=len({part.path for part in work.slices}),
        written=written,
        seconds=time.perf_counter() - begun,
    )


def _run_tasks(
    write_task: Callable[[Sequence[Slice], str], tuple[Summary, list[WrittenFile]]],
    work: Sequence[Sequence[Slice]],
    output: Output,
    pool: ThreadPoolExecutor,
    threads_per_task: int | None,
) -> tuple[Summary, list[WrittenFile]]:
    """Write the files of all tasks, and return the sum of their summaries and the files.

    write_task: writes the slices of a task to files whose paths start with a text.
    threads_per_task: as in `FixedWorkers`.
    """

    def write_with_threads(slices: Sequence[Slice], stem: str) -> tuple[Summary, list[WrittenFile]]:
        with FixedWorkers(threads_per_task):
            return write_task(slices, stem)

    stems = map(output.make_part_path, range(len(work)))
    results = list(pool.map(write_with_threads, work, stems))
    total = sum((summary for summary, _ in results), Summary())
    return total, [part for _, parts in results for part in parts]


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
