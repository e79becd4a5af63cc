"""Frames to Parquet: the files of each task, in one process; imports pyarrow.

The engines differ in where `write_parts` runs: here in threads (`convert`), in the tasks of Spark in `wirescan.spark`.
The files are the same: Spark's types, since they are what every reader of Parquet knows.
"""
from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wirescan import faults as faults_table
from wirescan.catalog import format_of
from wirescan.errors import check_mode, damage
from wirescan.filters import checked
from wirescan.layout import Key, Layout
from wirescan.limits import Limits
from wirescan.partition import SLICE_BYTES, Slice, tasks
from wirescan.pieces import chunks, opened, outermost
from wirescan.sink import COMPRESSION, FAULTS, FILE_BYTES, Output, Part, Sink, merge, merged, small, writer
from wirescan.source import seekable_size


@dataclass(frozen=True)
class Summary:
    """What a conversion did. files: read. frames: outermost ones, such as batches. records: rows written. bytes: read.
    faults: bad rows met. tail: bytes behind the last whole frames. written: bytes of Parquet, those of the faults table
    aside. seconds: on the wall."""
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


class Piece(NamedTuple):
    """What one table of frames became. done: what is to be counted. batches: its rows, in record batches of Spark's
    types, each with the key that these have in the layout. faults: its bad frames as `wirescan.faults` tells them."""
    done: Summary
    batches: list[tuple[Key, pa.RecordBatch]]
    faults: pa.RecordBatch | None = None


def counted(slices: Sequence[Slice], layout: Layout, *, errors: str = "strict", check: bool = True,
            limits: Limits = Limits(), filters: Iterable[tuple[Any, ...]] = ()) -> Iterator[Piece]:
    """The frames of some slices, table by table.

    A file counts in the slice that has its first byte. Bad frames raise FrameError ("strict"), become rows with their
    fault ("mark"), or are left out and counted ("skip"); those in lists too, where these are among the columns.
    filters: those that rows have to pass, see `wirescan.filters`; bad ones that do not are not counted either.
    """
    check_mode(errors, limits)
    format = format_of(layout.format)
    # Skipping is done here, so that what is left out is counted.
    options: dict[str, Any] = {"errors": "strict" if errors == "strict" else "mark", "check": check, "limits": limits}
    wanted = checked(filters, format)
    for one in slices:
        covered = 0
        tail = one.last or one.stop >= seekable_size(one.path)
        for frames in outermost(chunks(one.path, one.start, one.stop), format, source=one.path, offset=one.start,
                                tail=tail, **options):
            covered += int(frames["size"].sum(dtype=np.int64))
            yield Piece(Summary(frames=int(np.count_nonzero(~frames.bad))), [])
            for table in opened(frames, format, source=one.path, filters=wanted, **options):
                found = [] if errors == "strict" else damage(table, layout.columns)         # which raises instead
                met = sum(len(bad) for bad, _ in found)
                told = faults_table.to_batch(table, one.path, layout.columns) if met else None
                if errors == "skip" and met:
                    table = table.where(~table.bad)
                batches = list(layout.batches(table, one.path, errors))
                yield Piece(Summary(records=len(table), faults=met), batches, told)
        yield Piece(Summary(files=int(one.start == 0), bytes=len(one), tail=len(one) - covered), [])


def write(slices: Sequence[Slice], out: str, *, format: str, columns: Sequence[str] | None = None,
          compression: str = COMPRESSION, **options: Any) -> Summary:
    """Write the frames of some slices to one Parquet file, and sum up what was done. The file is there without records
    too. options: as of `counted`, which tells what is raised."""
    layout = Layout.of(format, columns)
    done, parts = _written(slices, Sink(lambda number: out, compression, float("inf")), layout, options, told=False)
    if not parts:
        writer(out, layout.schema, compression).close()
    return replace(done, written=os.path.getsize(out))


def write_parts(slices: Sequence[Slice], stem: str, layout: Layout, *, compression: str = COMPRESSION,
                file_bytes: int = FILE_BYTES, **options: Any) -> tuple[Summary, list[Part]]:
    """Write the frames of some slices to Parquet files `stem`-<n>.parquet, and what is wrong with bad ones to such
    files for the directory FAULTS. options: as of `counted`, which tells what is raised."""
    sink = Sink(lambda number: f"{stem}-{number}.parquet", compression, file_bytes)
    return _written(slices, sink, layout, options)


def _written(slices: Sequence[Slice], sink: Sink, layout: Layout, options: dict[str, Any],
             told: bool = True) -> tuple[Summary, list[Part]]:
    begun, total = time.perf_counter(), Summary()
    with sink:
        for done, batches, faults in counted(slices, layout, **options):
            total += done
            for key, batch in batches:
                sink.add(layout.directory(key), batch)
            if told and faults is not None:
                sink.add(FAULTS, faults)
    return replace(total, seconds=time.perf_counter() - begun), sink.parts


def convert(sources: Any, out: str | os.PathLike[str], *, format: str = "kafka.records",
            columns: Sequence[str] | None = None, partition_by: str | Sequence[str] = (),
            compression: str = COMPRESSION, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
            size: int = SLICE_BYTES, file_bytes: int = FILE_BYTES, workers: int | None = None,
            overwrite: bool = False, filters: Iterable[tuple[Any, ...]] = ()) -> Summary:
    """Write the frames of all sources to a directory of Parquet files, in threads of this process.

    The files appear when all of them are written, or not at all. With errors "mark" and "skip" the bad frames are told
    in the table `_faults` in that directory (`wirescan.faults`), which readers of the directory pass over.

    columns, partition_by: as of `wirescan.layout`. size: bytes of the sources for one task. file_bytes: a file that has
    as many is followed by another; files with less than a sixteenth of it are merged. workers: by default the number of
    processors. filters: those that rows have to pass, see `wirescan.filters`; where none can, nothing is read.
    Raises FrameError as `errors` says, FileExistsError for a directory that has files unless `overwrite` and they are
    those of an earlier conversion, ValueError, TypeError, OSError.
    """
    begun = time.perf_counter()
    layout = Layout.of(format, columns, partition_by)
    check_mode(errors, limits)
    filters = tuple(filters)
    with Output(out, overwrite) as output, ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        work = tasks(sources, size, format, filters=filters, errors=errors)
        write_one = partial(write_parts, layout=layout, compression=compression, file_bytes=file_bytes, errors=errors,
                            check=check, limits=limits, filters=filters)
        done = list(pool.map(write_one, work, map(output.part, range(len(work)))))
        parts = [part for _, several in done for part in several]
        runs = small(parts, file_bytes)
        into = pool.map(lambda number, run: merge(run, f"{output.part(number, 'merged')}.parquet", compression),
                        range(len(runs)), runs)
        written = output.commit(merged(parts, runs, list(into)), needed(layout, errors))
    return replace(sum((one for one, _ in done), Summary()), files=len({one.path for one in work.slices}),
                   written=written, seconds=time.perf_counter() - begun)


def needed(layout: Layout, errors: str) -> dict[str, pa.Schema]:
    """What `Output.commit` needs to know: the tables of a conversion, which are there without rows too."""
    return {"": layout.schema} | ({} if errors == "strict" else {FAULTS: faults_table.SCHEMA})
