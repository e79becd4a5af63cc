"""Write Parquet: the files of one task, and a directory whose files become visible together.

`parquet.py` and Spark's tasks use it.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from wirescan.files.object_store import URL
from wirescan.frames.escape import make_visible
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa
    import pyarrow.parquet as pq

COMPRESSION = "zstd"
GROUP_BYTES = 64 << 20  # of a row group, before compression
FILE_BYTES = 128 << 20  # the size after which a file is followed by another
SMALL = 16  # a file of less than this fraction of FILE_BYTES is merged with its neighbours
OPEN = 32  # files that a task keeps open between row groups
MAX_GROUPS = 4  # row groups that are held for many directories together
DICTIONARY_BYTES = 64 << 10  # a column whose distinct values do not fit is written plainly
FAULTS = ".faults"  # the directory of a part of the faults table, and the end of that table's name


class WrittenFile(NamedTuple):
    """A file that was written.

    Attributes:
        directory: the directory that it belongs to, relative to the output.
        path: its path.
        records: its rows.
        written: its bytes.
    """

    directory: str
    path: str
    records: int
    written: int


class _OpenFile(NamedTuple):
    """A file that rows are written to, and its number."""

    number: int
    file: Any
    writer: pq.ParquetWriter
    metadata: list[pq.FileMetaData]


def open_local_file(path: str) -> pa.NativeFile:
    """Open a new file of the file system."""
    return pa.OSFile(path, "wb")


def open_local_input(path: str) -> pa.NativeFile:
    """Open a file of the file system to read it."""
    return pa.OSFile(path, "rb")


class Sink:
    """The Parquet files of one task, each for one directory.

    Use it as `with Sink(name) as sink`, then read `sink.parts`. Rows are held until they fill a
    row group. Rows for many directories are held until they fill a few row groups.

    Args:
        name: a function of a number that returns the path of a file.
        compression: the name of a Parquet codec.
        file_bytes: the size after which a file is followed by another.
        open_file: a function of a path that returns a writable file of pyarrow. Default: a local
            file.
        schema: the Arrow schema of the files, which the batches are cast to. Default: that of the
            first batch of each file.

    Attributes:
        parts: the files, in the order in which they were begun.
        metadata: the metadata of each file that is closed, by its number in `parts`.
    """

    def __init__(
        self,
        name: Callable[[int], str],
        compression: str = COMPRESSION,
        file_bytes: float = FILE_BYTES,
        *,
        open_file: Callable[[str], Any] = open_local_file,
        schema: pa.Schema | None = None,
    ):
        self.parts: list[WrittenFile] = []
        self.metadata: dict[int, pq.FileMetaData] = {}
        self._open_file = open_file
        self._schema = schema
        self._name = name
        self._compression = compression
        self._file_bytes = file_bytes
        self._pending: dict[str, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self._open: dict[str, _OpenFile] = {}  # by the directory

    def add(self, directory: str, batch: pa.RecordBatch) -> None:
        """Add rows for a directory. They are written with a later row group."""
        if batch.num_rows:
            self._pending.setdefault(directory, []).append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= GROUP_BYTES * min(len(self._pending), MAX_GROUPS):
            self._flush()

    def _flush(self) -> None:
        pending = self._pending
        self._pending = {}
        self._bytes = 0
        for directory, batches in pending.items():
            table = pa.Table.from_batches(batches)
            if self._schema is not None:
                table = table.cast(self._schema)
            if directory not in self._open:
                self._open[directory] = self._begin_file(directory, table.schema)
            number, file, writer, _ = self._open[directory]
            writer.write_table(table)
            part = self.parts[number]
            self.parts[number] = part._replace(records=part.records + table.num_rows)
            if file.tell() >= self._file_bytes or len(self._open) > OPEN:
                self._close(directory)

    def _begin_file(self, directory: str, schema: pa.Schema) -> _OpenFile:
        number = len(self.parts)
        path = self._name(number)
        file = self._open_file(path)
        metadata: list[pq.FileMetaData] = []
        writer = make_writer(file, schema, self._compression, metadata)
        self.parts.append(WrittenFile(directory, path, records=0, written=0))
        return _OpenFile(number, file, writer, metadata)

    def _close(self, directory: str) -> None:
        number, file, writer, metadata = self._open.pop(directory)
        with file:
            writer.close()
            written = file.tell()
        self.metadata[number] = metadata[0]
        self.parts[number] = self.parts[number]._replace(written=written)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if error[0] is None:
                self._flush()
        finally:
            for directory in list(self._open):
                self._close(directory)


def check_compression(compression: str) -> None:
    """Raise ValueError for a name that is no Parquet codec of pyarrow."""
    one_null = pa.table([pa.nulls(1)], ["empty"])
    try:
        pq.write_table(one_null, pa.BufferOutputStream(), compression=compression)
    except (pa.ArrowException, OSError):
        raise ValueError(
            "compression must be a Parquet codec such as zstd, snappy, gzip or none, not "
            f"{compression!r}"
        ) from None


def make_writer(
    out: Any,
    schema: pa.Schema,
    compression: str,
    metadata: list[pq.FileMetaData] | None = None,
) -> pq.ParquetWriter:
    """Return a Parquet writer whose encodings suit columns of frames.

    out: a path or an open file.
    schema: the Arrow schema of the rows.
    compression: the name of a Parquet codec.
    metadata: a list that gets the metadata of the file when the writer is closed.
    """
    numbers = [
        f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_timestamp(f.type)
    ]
    return pq.ParquetWriter(
        out,
        schema,
        compression=compression,
        dictionary_pagesize_limit=DICTIONARY_BYTES,
        use_dictionary=[f.name for f in schema if f.name not in numbers],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        metadata_collector=metadata,
    )


def find_small(
    parts: Sequence[WrittenFile], file_bytes: int = FILE_BYTES
) -> list[list[WrittenFile]]:
    """Return lists of adjacent small files of one directory, each of two or more files.

    Each list makes a file of about `file_bytes`.
    """
    runs: list[list[WrittenFile]] = []
    for files in group_by_directory(parts).values():
        for is_small, run in groupby(files, lambda part: part.written * SMALL < file_bytes):
            remaining = 0
            for part in run if is_small else ():
                if part.written > remaining:
                    runs.append([])
                    remaining = file_bytes
                runs[-1].append(part)
                remaining -= part.written
    return [run for run in runs if len(run) > 1]


def group_by_directory(parts: Iterable[WrittenFile]) -> dict[str, list[WrittenFile]]:
    """Return the files of each directory, in their order."""
    out: dict[str, list[WrittenFile]] = {}
    for part in parts:
        out.setdefault(part.directory, []).append(part)
    return out


def merge(
    parts: Sequence[WrittenFile],
    path: str,
    compression: str = COMPRESSION,
    *,
    open_file: Callable[[str], Any] = open_local_file,
    open_input: Callable[[str], Any] = open_local_input,
) -> WrittenFile:
    """Write the rows of files of one directory to one file, in full row groups.

    open_file, open_input: functions of a path that open a file of pyarrow to write and to read.
    """
    with Sink(lambda number: path, compression, float("inf"), open_file=open_file) as sink:
        for part in parts:
            with open_input(part.path) as source, pq.ParquetFile(source) as file:
                for number in range(file.num_row_groups):
                    for batch in file.read_row_group(number).to_batches():
                        sink.add(part.directory, batch)
    return sink.parts[0]


def replace_merged(
    parts: Sequence[WrittenFile], runs: Sequence[Sequence[WrittenFile]], into: Sequence[WrittenFile]
) -> list[WrittenFile]:
    """Return the parts, in which merged files replace the files that they were made of.

    parts: all parts.
    runs: the result of `find_small`.
    into: the merged file of each run.
    """
    replacement = {run[0].path: part for run, part in zip(runs, into)}
    merged = {part.path for run in runs for part in run[1:]}
    return [replacement.get(part.path, part) for part in parts if part.path not in merged]


# The files of a conversion, by either engine, and the directories that contain only such files.
# Earlier versions wrote the faults table into the output itself, as "_faults".
OURS = re.compile(
    r"part-.*\.parquet|\.part-.*\.crc|_SUCCESS|\._SUCCESS\.crc|_temporary.*|_faults|[^=]+=.*"
)


def find_foreign_file(folder: Path) -> Path | None:
    """Return a file in a directory that no conversion wrote, or None."""
    for path in sorted(folder.iterdir()):
        if not OURS.fullmatch(path.name) or "=" in path.name and not path.is_dir():
            return path
        if path.is_dir() and not path.name.startswith("_temporary"):
            inside = find_foreign_file(path)
            if inside:
                return inside
    return None


def make_faults_path(out: str | os.PathLike[str]) -> str:
    """Return the path of the faults table of an output.

    It is beside the output, because many readers take every file in a directory for rows.
    """
    out = os.fspath(out)
    return (out.rstrip("/") if URL.match(out) else os.path.abspath(out)) + FAULTS


class Output:
    """A directory of part files that become visible together.

    Use it as `with Output(path) as output`, then call `commit`. Until then the files are in a
    directory inside the output. Its name begins with an underscore, so that readers of Parquet
    directories skip it. It is removed at the end in any case.

    The faults table is a second directory, `make_faults_path(path)`. It exists only if there are
    faults. An earlier one is refused or replaced together with the output.

    Args:
        path: the directory.
        overwrite: replace the files of an earlier conversion.

    Raises:
        ValueError: `path` is a URL.
        NotADirectoryError: `path` is no directory.
        FileExistsError: the directory has files that may not be replaced.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False):
        if URL.match(os.fspath(path)):
            raise ValueError(f"Parquet files go to a directory, not to {os.fspath(path)}")
        self.path = Path(path)
        self.faults = Path(make_faults_path(path))
        self._made = not self.path.exists()
        self._old = _list_replaceable(self.path, overwrite=overwrite)
        _list_replaceable(self.faults, overwrite=overwrite)
        self._partial = self.path / f"_temporary-{uuid.uuid4().hex}"

    def __enter__(self) -> Output:
        self._partial.mkdir(parents=True)
        return self

    def make_part_path(self, number: int | str, attempt: str = "") -> str:
        """Return the path to write a file to, without its end ".parquet".

        Each attempt has a path of its own.
        """
        return str(self._partial / f"{number:05}{attempt and '-' + attempt}")

    def open_file(self, path: str) -> pa.NativeFile:
        """Open a new file at a path of `make_part_path`."""
        return open_local_file(path)

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file that was written."""
        return open_local_input(path)

    def commit(self, parts: Sequence[WrittenFile], schema: pa.Schema | None = None) -> int:
        """Replace the content of the directory with files, and return their bytes.

        The bytes of the faults table are not included.

        parts: the files, in their order.
        schema: the schema of the rows. If it is given, there is a file even without rows.

        Raises FileExistsError if another output has put files into the directory meanwhile.
        """
        others = {path.name for path in self.path.iterdir()} - {path.name for path in self._old}
        if any(not name.startswith("_temporary") for name in others):
            raise FileExistsError(f"{self.path} has files of another conversion by now")
        if schema is not None and all(part.directory == FAULTS for part in parts):
            path = f"{self.make_part_path('empty')}.parquet"
            make_writer(path, schema, COMPRESSION).close()
            parts = [*parts, WrittenFile("", path, 0, os.path.getsize(path))]
        for old in self._old:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        if self.faults.exists():
            shutil.rmtree(self.faults)
        folders = group_by_directory(parts)
        for directory, files in folders.items():
            folder = self.faults if directory == FAULTS else self.path / directory
            folder.mkdir(parents=True, exist_ok=True)
            for number, part in enumerate(files):
                # The faults table is beside the output, perhaps on another file system.
                move = shutil.move if directory == FAULTS else os.replace
                move(part.path, folder / f"part-{number:05}.parquet")
        (self.path / "_SUCCESS").touch()
        return sum(part.written for part in parts if part.directory != FAULTS)

    def __exit__(self, *error: object) -> None:
        # After the rename, a task that Spark gave up can create no further file in it.
        discarded = self._partial.with_name(f"{self._partial.name}-gone")
        if self._partial.exists():
            self._partial.rename(discarded)
        shutil.rmtree(discarded, ignore_errors=True)
        # A directory with "_SUCCESS" has the files of another output.
        if self._made and error[0] is not None and not (self.path / "_SUCCESS").exists():
            shutil.rmtree(self.path, ignore_errors=True)


def _list_replaceable(folder: Path, *, overwrite: bool) -> list[Path]:
    """Return the content of a directory that may be replaced.

    Raises FileExistsError or NotADirectoryError if it may not.
    """
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise NotADirectoryError(f"not a directory: {folder}")
    old = list(folder.iterdir())
    if old and not overwrite:
        raise FileExistsError(
            f"{folder} has files in it; choose another directory, or overwrite it"
        )
    if old and (other := find_foreign_file(folder)):
        raise FileExistsError(
            f"{folder} holds {make_visible(other.relative_to(folder))}, "
            "which is no output of a conversion"
        )
    return old
