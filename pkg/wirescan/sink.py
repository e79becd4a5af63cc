"""Parquet files: those that one task writes, and a directory in which all of them become visible together."""
from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from wirescan.source import URL

COMPRESSION = "zstd"
GROUP_BYTES = 64 << 20              # of a row group, before compression
FILE_BYTES = 128 << 20              # of a file: when it has as many, the next is begun
SMALL = 16                          # a file with less than this part of FILE_BYTES is merged with its neighbours
OPEN = 32                           # files that a task has open when it is not writing
DICTIONARY_BYTES = 64 << 10         # a column with more distinct values than fit is written plainly
FAULTS = "_faults"                  # the directory of the faults table; readers pass over it, as over all with a "_"


class Part(NamedTuple):
    """A file that was written: the directory it belongs in, from the output's own, its path, its rows, its bytes."""
    directory: str
    path: str
    records: int
    written: int


class Sink:
    """The Parquet files of one task, each of one directory: `with Sink(name) as sink`, then `sink.parts`.

    name: gives the path for a file from its number. Rows are held until they fill a row group; where they go to many
    directories, until they fill a few."""

    def __init__(self, name: Callable[[int], str], compression: str = COMPRESSION, file_bytes: float = FILE_BYTES):
        self.parts: list[Part] = []
        self._name, self._compression, self._file_bytes = name, compression, file_bytes
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self._open: dict[str, tuple[int, pq.ParquetWriter]] = {}       # of a directory: number of its part, writer

    def add(self, directory: str, batch: pa.RecordBatch) -> None:
        """Write rows to a directory, soon."""
        if batch.num_rows:
            self._held.setdefault(directory, []).append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= GROUP_BYTES * min(len(self._held), 4):
            self._flush()

    def _flush(self) -> None:
        held, self._held, self._bytes = self._held, {}, 0
        for directory, batches in held.items():
            table = pa.Table.from_batches(batches)
            if directory not in self._open:
                path = self._name(len(self.parts))
                self._open[directory] = len(self.parts), writer(path, table.schema, self._compression)
                self.parts.append(Part(directory, path, 0, 0))
            number, file = self._open[directory]
            file.write_table(table)
            part = self.parts[number]
            self.parts[number] = part._replace(records=part.records + table.num_rows)
            if os.path.getsize(part.path) >= self._file_bytes or len(self._open) > OPEN:
                self._close(directory)

    def _close(self, directory: str) -> None:
        number, file = self._open.pop(directory)
        file.close()
        self.parts[number] = self.parts[number]._replace(written=os.path.getsize(self.parts[number].path))

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if error[0] is None:
                self._flush()
        finally:
            for directory in list(self._open):
                self._close(directory)


def writer(out: Any, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    """A writer of Parquet to a path or an open file, with the encodings that fit what is on a wire."""
    numbers = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_timestamp(f.type)]
    return pq.ParquetWriter(out, schema, compression=compression, dictionary_pagesize_limit=DICTIONARY_BYTES,
                            use_dictionary=[f.name for f in schema if f.name not in numbers],
                            column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"))


def small(parts: Sequence[Part], file_bytes: int = FILE_BYTES) -> list[list[Part]]:
    """Small files side by side in one directory, in lists of two or more that make a file of about `file_bytes`."""
    runs: list[list[Part]] = []
    for ours in _by_directory(parts).values():
        for is_small, run in groupby(ours, lambda part: part.written * SMALL < file_bytes):
            room = 0
            for part in run if is_small else ():
                if part.written > room:
                    runs.append([])
                    room = file_bytes
                runs[-1].append(part)
                room -= part.written
    return [run for run in runs if len(run) > 1]


def _by_directory(parts: Iterable[Part]) -> dict[str, list[Part]]:
    out: dict[str, list[Part]] = {}
    for part in parts:
        out.setdefault(part.directory, []).append(part)
    return out


def merge(parts: Sequence[Part], path: str, compression: str = COMPRESSION) -> Part:
    """Write the rows of files of one directory to one file, in row groups of their full size."""
    with Sink(lambda number: path, compression, float("inf")) as sink:
        for part in parts:
            with pq.ParquetFile(part.path) as file:
                for number in range(file.num_row_groups):
                    for batch in file.read_row_group(number).to_batches():
                        sink.add(part.directory, batch)
    return sink.parts[0]


def merged(parts: Sequence[Part], runs: Sequence[Sequence[Part]], into: Sequence[Part]) -> list[Part]:
    """The parts, with what was merged of some in the place of these."""
    first = {run[0].path: part for run, part in zip(runs, into)}
    gone = {part.path for run in runs for part in run[1:]}
    return [first.get(part.path, part) for part in parts if part.path not in gone]


# What a conversion leaves behind, by either engine; of directories, those in which there is nothing else.
OURS = re.compile(r"part-.*\.parquet|\.part-.*\.crc|_SUCCESS|\._SUCCESS\.crc|_temporary.*|_faults|[^=]+=.*")


def stranger(folder: Path) -> Path | None:
    """A file in a directory that is of no conversion, or None."""
    for path in sorted(folder.iterdir()):
        if not OURS.fullmatch(path.name) or "=" in path.name and not path.is_dir():
            return path
        inside = path.is_dir() and not path.name.startswith("_temporary") and stranger(path)
        if inside:
            return inside
    return None


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
        if self._old and (other := stranger(self.path)):
            name = other.relative_to(self.path)
            raise FileExistsError(f"{self.path} holds {name}, which is no output of a conversion")
        self._partial = self.path / f"_temporary-{uuid.uuid4().hex}"

    def __enter__(self) -> Output:
        self._partial.mkdir(parents=True)
        return self

    def part(self, number: int | str, attempt: str = "") -> str:
        """The path to write a file to, without its end ".parquet"; one for each attempt."""
        return str(self._partial / f"{number:05}{attempt and '-' + attempt}")

    def commit(self, parts: Sequence[Part], needed: Mapping[str, pa.Schema]) -> int:
        """Put files in place of whatever the directory had, in the order of `parts`; returns their bytes, those of the
        faults table aside.

        needed: directory -> schema, of those that get a file even if nothing belongs there: FAULTS, and "" for the
        rows wherever they are. Raises FileExistsError where another output has put files there meanwhile.
        """
        others = {path.name for path in self.path.iterdir()} - {path.name for path in self._old}
        if any(not name.startswith("_temporary") for name in others):
            raise FileExistsError(f"{self.path} has files of another conversion by now")
        there = {part.directory if part.directory == FAULTS else "" for part in parts}
        parts = [*parts, *(self._empty(directory, schema) for directory, schema in needed.items()
                           if directory not in there)]
        for old in self._old:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        folders = _by_directory(parts)
        for directory in folders:
            (self.path / directory).mkdir(parents=True, exist_ok=True)
        for directory, ours in folders.items():
            for number, part in enumerate(ours):
                os.replace(part.path, self.path / directory / f"part-{number:05}.parquet")
        (self.path / "_SUCCESS").touch()
        return sum(part.written for part in parts if part.directory != FAULTS)

    def _empty(self, directory: str, schema: pa.Schema) -> Part:
        path = f"{self.part(f'empty-{directory}')}.parquet"
        writer(path, schema, COMPRESSION).close()
        return Part(directory, path, 0, os.path.getsize(path))

    def __exit__(self, *error: object) -> None:
        # Under another name no task that Spark gave up can begin a file in it any more.
        gone = self._partial.with_name(f"{self._partial.name}-gone")
        if self._partial.exists():
            self._partial.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        if self._made and error[0] is not None and not (self.path / "_SUCCESS").exists():      # another's
            shutil.rmtree(self.path, ignore_errors=True)
