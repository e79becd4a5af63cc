"""Which files of a directory are read, and which are left out with a message."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache

from wirescan.frames.escape import make_visible

LISTED_GROUPS = 5

logger = logging.getLogger(__name__)


class FilePattern(str):
    """A regular expression of files that are read in a directory, and of files that are left out.

    The files that are left out are read if the directory has no others. Otherwise a log message
    says how many there are: at the level WARNING, once for a directory in each process.

    Attributes:
        left_out: a regular expression. Its first group is what the message calls the file.
        all_files: a regular expression of the files of both kinds.
        hint: the end of the message: how to read them too.
    """

    left_out: str
    all_files: str
    hint: str

    def __new__(cls, files: str, left_out: str, all_files: str, hint: str) -> FilePattern:
        """Return the pattern `files` with the files that are left out."""
        self = super().__new__(cls, files)
        self.left_out = left_out
        self.all_files = all_files
        self.hint = hint
        return self

    def __reduce__(self) -> tuple[type[FilePattern], tuple[str, str, str, str]]:
        return FilePattern, (str(self), self.left_out, self.all_files, self.hint)


def include_left_out(files: str | None) -> str | None:
    """Return the pattern of all files, for work that must leave none out."""
    return files.all_files if isinstance(files, FilePattern) else files


def is_left_out(name: str, files: str | None) -> re.Match[str] | None:
    """Return the match of `FilePattern.left_out` with a file's path in its directory, or None."""
    return re.search(files.left_out, name) if isinstance(files, FilePattern) else None


def report_left_out(directory: str, names: Iterable[str], files: str | None) -> None:
    """Log which files of a directory are left out. names: their paths in the directory."""
    assert isinstance(files, FilePattern)
    matches = (is_left_out(name, files) for name in names)
    groups = Counter(match[1] for match in matches if match)
    parts = [
        f"{make_visible(group)} ({count} file{'s' * (count != 1)})"
        for group, count in sorted(groups.items())
    ]
    if len(parts) > LISTED_GROUPS:
        parts[LISTED_GROUPS:] = [f"and {len(parts) - LISTED_GROUPS} more"]
    if parts:
        _log_once(f"{make_visible(directory)}: left out {', '.join(parts)}; {files.hint}")


@cache
def _log_once(message: str) -> None:
    logger.warning("%s", message)
