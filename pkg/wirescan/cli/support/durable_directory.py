"""A directory that one process writes, whose files are on disk when they have their names.

`wirescan receive` and `wirescan fetch` write such directories.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from wirescan.cli.exit_codes import Failure
from wirescan.cli.output import format_path
from wirescan.files.new_directory import sync_directory


class DurableDirectory:
    """A directory, created and locked while the context lasts.

    Args:
        path: of the directory. Missing parents are created too.
        writer: what messages call another process that writes to it, such as "fetch".

    Raises:
        Failure: if another process writes to the directory, or this one may not.
        OSError: if the directory cannot be used.
    """

    def __init__(self, path: Path, writer: str):
        self.path = path
        self._writer = writer

    def __enter__(self) -> DurableDirectory:
        new_directories = [path for path in (self.path, *self.path.parents) if not path.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        for path in new_directories:
            sync_directory(path.parent)
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise Failure(f"{format_path(str(self.path))}: the directory is not writable")
        self._handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(self._handle)
            if isinstance(error, BlockingIOError):
                raise Failure(
                    f"{format_path(str(self.path))}: another {self._writer} writes to it"
                ) from None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def publish(partial: Path, final: Path) -> None:
    """Sync a complete file to disk, and give it its final name in the same directory."""
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.rename(partial, final)
    sync_directory(final.parent)
