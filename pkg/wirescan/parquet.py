"""Frames to Parquet: one file for each group of slices, in one process; imports pyarrow.

The engines differ in where `write` runs: here in threads (`convert`), in the tasks of Spark in `wirescan.spark`. The
files are the same: Spark's types, since they are what every reader of Parquet knows.
"""
from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wirescan import arrow
from wirescan.errors import check_mode, damage
from wirescan.limits import Limits
from wirescan.partition import SLICE_BYTES, Slice, groups, plan
from wirescan.pieces import iter_tables
from wirescan.source import URL

COMPRESSION = "zstd"
GROUP_BYTES = 64 << 20              # of a row group, before compression
DICTIONARY_BYTES = 64 << 10         # a column with more distinct values than fit is written plainly


@dataclass(frozen=True)
class Summary:
    """What a conversion did. files: read. frames: outermost ones, such as batches. records: rows written. bytes: read.
    faults: bad rows met. tail: bytes behind the last whole frames. written: bytes of Parquet. seconds: on the wall."""
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


def counted(slices: Sequence[Slice], *, format: str, columns: Sequence[str] | None = None, errors: str = "strict",
            check: bool = True, limits: Limits = Limits()) -> Iterator[tuple[Summary, list[pa.RecordBatch]]]:
    """The frames of some slices, in record batches of Spark's types; with each table of them, what is to be counted.

    A file counts in the slice that has its first byte. Bad frames raise FrameError ("strict"), become rows with their
    fault ("mark"), or are left out and counted ("skip"); those in lists too, where these are among `columns`.
    """
    check_mode(errors, limits)
    for one in slices:
        covered = 0
        # Skipping is done here, so that what is left out is counted.
        for table in iter_tables(one.path, one.start, one.stop, format=format, check=check, limits=limits,
                                 errors="strict" if errors == "strict" else "mark", tail=one.last):
            top, bad = table, table.bad
            while top.outer is not None:
                top = top.outer
            covered += int(top["size"].sum(dtype=np.int64))
            found = [] if errors == "strict" else damage(table, columns)        # which raises instead
            faults = sum(len(frames) for frames, _ in found)
            if errors == "skip" and faults:
                table = table.where(~bad)
            done = Summary(frames=int(np.count_nonzero(~top.bad)), records=len(table), faults=faults)
            yield done, [arrow.to_batch(part, columns, types="spark", file=one.path, errors=errors)
                         for part in arrow.split(table, arrow.BATCH_BYTES)]
        yield Summary(files=int(one.start == 0), bytes=len(one), tail=len(one) - covered), []


def write(slices: Sequence[Slice], out: str, *, format: str, columns: Sequence[str] | None = None,
          compression: str = COMPRESSION, errors: str = "strict", check: bool = True,
          limits: Limits = Limits()) -> Summary:
    """Write the frames of some slices to one Parquet file, and sum up what was done. Raises as `counted`.

    The file is there without records too; `Output.commit` decides whether it is kept."""
    begun, total = time.perf_counter(), Summary()
    wanted = arrow.schema(format, columns, types="spark")
    held: list[pa.RecordBatch] = []
    with writer(out, wanted, compression) as parquet:
        for done, batches in counted(slices, format=format, columns=wanted.names, errors=errors, check=check,
                                     limits=limits):
            total += done
            held += batches
            if sum(batch.nbytes for batch in held) >= GROUP_BYTES:
                parquet.write_table(pa.Table.from_batches(held))
                held = []
        if held:
            parquet.write_table(pa.Table.from_batches(held))
    return total + Summary(written=os.path.getsize(out), seconds=time.perf_counter() - begun)


def writer(out: Any, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    """A writer of Parquet to a path or an open file, with the encodings that fit what is on a wire."""
    numbers = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_timestamp(f.type)]
    return pq.ParquetWriter(out, schema, compression=compression, dictionary_pagesize_limit=DICTIONARY_BYTES,
                            use_dictionary=[f.name for f in schema if f.name not in numbers],
                            column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"))


def convert(sources: Any, out: str | os.PathLike[str], *, format: str = "kafka.records",
            columns: Sequence[str] | None = None, compression: str = COMPRESSION, errors: str = "strict",
            check: bool = True, limits: Limits = Limits(), size: int = SLICE_BYTES, workers: int | None = None,
            overwrite: bool = False) -> Summary:
    """Write the frames of all sources to a directory of Parquet files, in threads of this process.

    The files appear when all of them are written, or not at all. workers: by default the number of processors.
    Raises FrameError as `errors` says, FileExistsError for a directory that has files unless `overwrite` and they are
    those of an earlier conversion, OSError.
    """
    begun = time.perf_counter()
    with Output(out, overwrite) as output:
        work = groups(plan(sources, size, format), size) or [[]]
        names = [output.part(number) for number in range(len(work))]
        with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
            done = list(pool.map(lambda slices, name: write(slices, name, format=format, columns=columns, errors=errors,
                                                            compression=compression, check=check, limits=limits),
                                 work, names))
        total = output.commit(dict(zip(names, done)))
    return replace(total, seconds=time.perf_counter() - begun)


# What a conversion leaves behind, by either engine.
OURS = re.compile(r"part-.*\.parquet|\.part-.*\.crc|_SUCCESS|\._SUCCESS\.crc|_temporary.*")


class Output:
    """A directory of part files that become visible together: `with Output(path) as output`, then `commit`.

    Until then they lie in a directory of their own inside it, whose name begins with an underscore, so that readers
    of Parquet directories pass it over; it is removed at the end, whatever happened.
    """
    def __init__(self, path: str | os.PathLike[str], overwrite: bool = False):
        if URL.match(os.fspath(path)):
            raise ValueError(f"Parquet files go to a directory, not to {os.fspath(path)}")
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"not a directory: {self.path}")
        self._made = not self.path.exists()
        self._old = [] if self._made else list(self.path.iterdir())
        if self._old and not overwrite:
            raise FileExistsError(f"{self.path} has files in it; choose another directory, or overwrite it")
        for old in self._old:
            if not OURS.fullmatch(old.name):
                raise FileExistsError(f"{self.path} holds {old.name}, which is no output of a conversion")
        self._partial = self.path / f"_temporary-{uuid.uuid4().hex}"

    def __enter__(self) -> Output:
        self._partial.mkdir(parents=True)
        return self

    def part(self, number: int, attempt: str = "") -> str:
        """The path to write part file `number` to; one for each attempt."""
        return str(self._partial / f"part-{number:05}{attempt and '-' + attempt}.parquet")

    def commit(self, parts: Mapping[str, Summary]) -> Summary:
        """Put the part files that have records in place of whatever the directory had; if none has, one without.

        Returns the sum of all parts, with the bytes written of those that were put there."""
        full = [part for part, done in parts.items() if done.records] or list(parts)[:1]
        for old in self._old:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        for number, part in enumerate(full):
            os.replace(part, self.path / f"part-{number:05}.parquet")
        (self.path / "_SUCCESS").touch()
        return replace(sum(parts.values(), Summary()), written=sum(parts[part].written for part in full))

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)
        if self._made and error[0] is not None:
            shutil.rmtree(self.path, ignore_errors=True)
