"""The files that the tasks of one job write below a directory or URL, before they are committed.

Each attempt of a task writes files with names that no other attempt has, so nothing is renamed.
The names of a job have its own random number in them. So the driver can remove the files of
attempts that are not part of the result.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark import TaskContext

from wirescan.files import object_store
from wirescan.files.object_store import URL, name_url_in_errors
from wirescan.files.source import to_plain_path


@dataclass(frozen=True)
class StoreFiles:
    """The place of the files of one job. Spark sends it to the tasks.

    url: the directory, as a URL or as a path that all machines have.
    file_system: pyarrow's file system, or None for that of the URL.
    job: the random number of the job, as text.
    """

    url: str
    file_system: Any = field(default=None, repr=False)
    job: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def is_local(self) -> bool:
        """Whether the directory is one of a file system of all machines, and of no store."""
        return not URL.match(self.url) or self.url.startswith("file:")

    def open_directory(self) -> tuple[Any, str]:
        """Return pyarrow's file system, and the path of the directory in it."""
        if self.is_local:
            from pyarrow.fs import LocalFileSystem

            return LocalFileSystem(), os.path.abspath(to_plain_path(self.url))
        if self.file_system is None:
            return object_store.open_file_system(self.url)
        root, path, _ = object_store.split(self.url)
        return self.file_system, root.partition("://")[2] + unquote(path)

    def make_name(self, number: int) -> str:
        """Return the name of a file of this attempt of a task. number: of the file in the task."""
        task = TaskContext.get()
        task_number, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
        return f"part-{task_number:05}-{self.job}-{attempt}-{number}.parquet"

    def open_file(self, name: str) -> pa.NativeFile:
        """Open a new file. name: its path in the directory. Raises OSError."""
        file_system, directory = self.open_directory()
        with self.name_errors():
            path = posixpath.join(directory, name)
            if self.is_local:
                file_system.create_dir(posixpath.dirname(path))
            return file_system.open_output_stream(path)

    @contextmanager
    def name_errors(self) -> Iterator[None]:
        """Turn errors of the store into errors that name the directory."""
        if self.is_local:
            yield
            return
        with name_url_in_errors(self.url):
            yield

    def remove_others(self, committed: Collection[str]) -> None:
        """Remove the files of this job that are not committed. An error is ignored.

        committed: paths in the directory.
        """
        from pyarrow.fs import FileSelector

        with suppress(OSError):
            file_system, directory = self.open_directory()
            selector = FileSelector(directory, recursive=True, allow_not_found=True)
            for info in file_system.get_file_info(selector):
                name = posixpath.relpath(info.path, directory)
                if info.is_file and f"-{self.job}-" in info.base_name and name not in committed:
                    file_system.delete_file(info.path)
