"""A directory of Parquet files in an object store: the target of `to_parquet` for URLs.

Tasks write below a directory of the output whose name begins with an underscore, so that readers of
Parquet directories skip it. After the last task, the driver lets the store copy the files to their
places, and writes the object _SUCCESS last. An object store renames no directory, and a directory
of Parquet has no list of its files. So a reader that lists it during the copies sees some of the
files. It should wait for _SUCCESS, or read a table of `wirescan.spark.to_table`, whose commits are
atomic. A driver that is killed leaves the files that it has not copied yet in _temporary-<job>.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa

from wirescan.export.parquet_writer import (
    COMPRESSION,
    FAULTS,
    OURS,
    WrittenFile,
    group_by_directory,
    make_writer,
)
from wirescan.files import object_store
from wirescan.files.object_store import redact_url
from wirescan.frames.escape import make_visible
from wirescan.spark.store_files import StoreFiles

COPIES = 16  # that the driver asks the store for at a time
SUCCESS = "_SUCCESS"
TEMPORARY = "_temporary-"  # the start of the name of the directory that tasks write to


class StoreOutput:
    """Part files in an object store, as `wirescan.export.parquet_writer.Output` in a file system.

    Use it as `with StoreOutput(url) as output`, then call `commit`. Spark sends it to the tasks.
    Without a commit, and if a copy fails, the files of the output are as before.

    Args:
        url: of the directory.
        overwrite: replace the files of an earlier conversion.
        file_system: pyarrow's file system, or None for that of the URL.

    Raises FileExistsError for files that may not be replaced, and OSError.
    """

    def __init__(self, url: str, *, overwrite: bool = False, file_system: Any = None):
        root, path, options = object_store.split(url)
        path = path.rstrip("/")
        self._files = StoreFiles(f"{root}{path}{options}", file_system)
        self._faults = StoreFiles(f"{root}{path}{FAULTS}{options}", file_system)
        self._staging = f"{TEMPORARY}{self._files.job}"
        self._old = [
            *_list_replaceable(self._files, overwrite=overwrite),
            *_list_replaceable(self._faults, overwrite=overwrite),
        ]

    def __enter__(self) -> StoreOutput:
        return self

    def make_part_path(self, number: int | str, attempt: str = "") -> str:
        """Return the path in the output to write a file to, without its end ".parquet".

        Each attempt has a path of its own.
        """
        return f"{self._staging}/{number:05}{attempt and '-' + attempt}"

    def open_file(self, path: str) -> pa.NativeFile:
        """Open a new file. path: in the output. Raises OSError."""
        return self._files.open_file(path)

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file that a task wrote. path: in the output. Raises OSError."""
        file_system, directory = self._files.open_directory()
        with self._files.name_errors():
            return file_system.open_input_file(posixpath.join(directory, path))

    def commit(self, parts: Sequence[WrittenFile], schema: pa.Schema | None = None) -> int:
        """Copy files to their places, remove those that they replace, and write _SUCCESS.

        Returns the bytes of the files without those of the faults table. If a copy fails, the
        copies are removed. If a replaced file cannot be removed, the copies stay, without _SUCCESS.

        parts: the files, in their order.
        schema: the schema of the rows. If it is given, there is a file even without rows.

        Raises FileExistsError if another output has put files into the directory meanwhile, and
        OSError.
        """
        self._check_others()
        if schema is not None and all(part.directory == FAULTS for part in parts):
            parts = [*parts, self._write_empty(schema)]
        file_system, source = self._files.open_directory()
        copies = [
            (posixpath.join(source, part.path), target)
            for directory, files in group_by_directory(parts).items()
            for part, target in zip(files, self._make_targets(directory, len(files)))
        ]
        with self._files.name_errors():
            success = posixpath.join(source, SUCCESS)
            if success in self._old:
                file_system.delete_file(success)
            try:
                _run_each(lambda pair: file_system.copy_file(*pair), copies)
            except BaseException:
                _remove(file_system, (target for _, target in copies))
                if success in self._old:
                    _write_object(file_system, success)
                raise
            _run_each(file_system.delete_file, [path for path in self._old if path != success])
            _write_object(file_system, success)
        return sum(part.written for part in parts if part.directory != FAULTS)

    def __exit__(self, *error: object) -> None:
        # A task that Spark gave up may still write files there. Readers skip them.
        with suppress(OSError):
            file_system, directory = self._files.open_directory()
            file_system.delete_dir(posixpath.join(directory, self._staging))

    def _make_targets(self, directory: str, count: int) -> list[str]:
        """Return the paths for the files of a directory. No other job has these names."""
        files = self._faults if directory == FAULTS else self._files
        _, path = files.open_directory()
        folder = path if directory == FAULTS else posixpath.join(path, directory)
        names = (f"part-{number:05}-{self._files.job}.parquet" for number in range(count))
        return [posixpath.join(folder, name) for name in names]

    def _write_empty(self, schema: pa.Schema) -> WrittenFile:
        """Write a file without rows, and return it."""
        path = f"{self.make_part_path('empty')}.parquet"
        with self.open_file(path) as file:
            make_writer(file, schema, COMPRESSION).close()
            return WrittenFile("", path, 0, file.tell())

    def _check_others(self) -> None:
        """Raise FileExistsError if the output has files that it did not have at the beginning."""
        for path in _list_objects(self._files):
            if path not in self._old:
                raise FileExistsError(
                    f"{redact_url(self._files.url)} has files of another conversion by now"
                )


def _list_objects(files: StoreFiles) -> list[str]:
    """Return the paths of the objects below a directory, without the unfinished ones of any job."""
    from pyarrow.fs import FileSelector

    file_system, directory = files.open_directory()
    with files.name_errors():
        selector = FileSelector(directory, recursive=True, allow_not_found=True)
        infos = file_system.get_file_info(selector)
    unfinished = posixpath.join(directory, TEMPORARY)
    return [info.path for info in infos if info.is_file and not info.path.startswith(unfinished)]


def _list_replaceable(files: StoreFiles, *, overwrite: bool) -> list[str]:
    """Return the objects below a directory, which may be replaced. Raises FileExistsError."""
    paths = _list_objects(files)
    if paths and not overwrite:
        raise FileExistsError(
            f"{redact_url(files.url)} has files in it; choose another directory, or overwrite it"
        )
    _, directory = files.open_directory()
    for path in paths:
        name = posixpath.relpath(path, directory)
        if not all(OURS.fullmatch(part) for part in name.split("/")):
            raise FileExistsError(
                f"{redact_url(files.url)} holds {make_visible(name)}, "
                "which is no output of a conversion"
            )
    return paths


def _run_each(call: Any, items: Iterable[Any]) -> None:
    """Call a function with each item, in a few threads. Raises the first exception."""
    with ThreadPoolExecutor(COPIES) as pool:
        for _ in pool.map(call, items):
            pass


def _remove(file_system: Any, paths: Iterable[str]) -> None:
    """Remove objects that may not exist."""
    for path in paths:
        with suppress(OSError):
            file_system.delete_file(path)


def _write_object(file_system: Any, path: str) -> None:
    """Write an object without bytes."""
    with file_system.open_output_stream(path):
        pass
