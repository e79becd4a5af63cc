"""`NewDirectory`: a directory that gets its name only when all of its files are on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from wirescan.frames.escape import make_visible


class NewDirectory:
    """A directory that appears at `target` when the context ends without an error, or not at all.

    Write the files below `path`, which is a hidden directory beside the target. At the end they
    are synced to disk and the directory is renamed. After an error it is removed. A killed process
    leaves the hidden directory behind.

    Args:
        target: where the directory appears. It must not exist, or be empty. Missing parents are
            created.

    Attributes:
        target: the argument.
        path: where to write. Valid inside the context.

    Raises:
        FileExistsError: the target exists and is not an empty directory.
        OSError: a directory or a file cannot be written.
    """

    path: Path

    def __init__(self, target: str | os.PathLike[str]):
        self.target = Path(os.path.abspath(target))
        check_is_free(self.target)

    def __enter__(self) -> NewDirectory:
        parent = self.target.parent
        self._new_parents = [path for path in (parent, *parent.parents) if not path.exists()]
        parent.mkdir(parents=True, exist_ok=True)
        name = tempfile.mkdtemp(dir=parent, prefix=f".{self.target.name}.", suffix=".partial")
        self.path = Path(name)
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        try:
            if error_type is None:
                self._publish()
        finally:
            shutil.rmtree(self.path, ignore_errors=True)

    def _publish(self) -> None:
        """Sync all files to disk and give the directory its name."""
        for folder, _, names in os.walk(self.path, topdown=False):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
            sync_directory(Path(folder))
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self.path, 0o777 & ~mask)  # mkdtemp makes a private directory
        check_is_free(self.target)
        os.rename(self.path, self.target)  # replaces an empty directory, and no other
        sync_directory(self.target.parent)
        for path in self._new_parents:
            sync_directory(path.parent)


def check_is_free(target: Path) -> None:
    """Raise FileExistsError unless a path does not exist or is an empty directory. OSError too."""
    if not os.path.lexists(target):
        return
    if target.is_dir() and not any(target.iterdir()):
        return
    raise FileExistsError(
        f"{make_visible(str(target))} exists and is not an empty directory: name a new one, "
        "because nothing is overwritten"
    )


def sync_directory(directory: Path) -> None:
    """Sync the names in a directory to disk. Raises OSError."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
