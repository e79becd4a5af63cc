"""The file of `wirescan produce --resume`: up to which offset each log is written.

The first line has the settings, which have to be the same in every run. Each further line is a step
of progress in one log: {"log": DIRECTORY, "next_offset": N, "records": N}. The last line of a log
counts. A line is added, and synced to disk, after the cluster acknowledged its records.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from wirescan.cli.exit_codes import Failure
from wirescan.cli.output import format_path
from wirescan.files.new_directory import sync_directory
from wirescan.frames.logs import OFFSET_END

VERSION = 1  # of the layout of the file
LONGEST_SETTING = 80  # characters of a setting in a message


class ResumeFile:
    """The progress of `wirescan produce`. Use it as a context manager: it locks the file.

    Args:
        path: the file. It is created if it does not exist.
        settings: what has to be the same in every run, as values of JSON.

    Attributes:
        next_offsets: log -> the first offset that is not known to be written.
        records: how many records are written, in all runs.

    Raises:
        Failure: if the file has other settings or other content, or another process writes to it.
        OSError: if the file cannot be used.
    """

    def __init__(self, path: str, settings: Mapping[str, Any]):
        self._path = Path(path)
        self._settings = {"version": VERSION, **settings}
        self._file: BinaryIO
        self.next_offsets: dict[str, int] = {}
        self.records = 0

    def __enter__(self) -> ResumeFile:
        is_new = not self._path.exists()
        self._file = open(self._path, "ab+", buffering=0)
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise
        if is_new:
            sync_directory(self._path.parent)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, log: str, next_offset: int, records: int) -> None:
        """Note that the records of a log before an offset are written.

        records: how many of them were written since the last call.
        """
        self.next_offsets[log] = next_offset
        self.records += records
        self._append({"log": log, "next_offset": next_offset, "records": records})

    def _lock(self) -> None:
        """Lock the file until it is closed."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"{self._name}: another wirescan produce writes to it") from None

    @property
    def _name(self) -> str:
        return format_path(str(self._path))

    def _append(self, fields: Mapping[str, Any]) -> None:
        """Add a line, and sync it to disk."""
        line = json.dumps(fields).encode() + b"\n"
        if self._file.write(line) != len(line):
            raise OSError(f"{self._name}: the disk is full")
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        """Read the lines of earlier runs. A new file gets its first line."""
        self._file.seek(0)
        content = self._file.read()
        lines = content.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            # The process ended while it wrote this line.
            cut = lines.pop()
            self._check_cut_line(cut, is_first=not lines)
            self._file.truncate(len(content) - len(cut))
        if not lines:
            self._append(self._settings)
            return
        try:
            self._check_settings(json.loads(lines[0]))
            for line in lines[1:]:
                self._read_line(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._refuse() from None

    def _check_cut_line(self, line: bytes, *, is_first: bool) -> None:
        """Raise Failure for a last line that this class did not begin to write."""
        begin = json.dumps(self._settings if is_first else {"log": ""}).encode()
        begin = begin if is_first else begin[: begin.index(b'""')]
        if line[: len(begin)] != begin[: len(line)]:
            raise self._refuse()

    def _check_settings(self, stored: dict[str, Any]) -> None:
        """Compare the settings of earlier runs with those of this one."""
        for name, value in self._settings.items():
            if stored[name] != value:
                before = json.dumps(stored[name])[:LONGEST_SETTING]
                now = json.dumps(value)[:LONGEST_SETTING]
                raise Failure(
                    f"{self._name} is of a run with {name} {before}, not {now}: give the same "
                    "options, or another file to write all records again"
                )

    def _read_line(self, fields: dict[str, Any]) -> None:
        """Read a step of progress. Raises ValueError, KeyError, TypeError for any other line."""
        log = fields["log"]
        next_offset = fields["next_offset"]
        records = fields["records"]
        if type(log) is not str or type(next_offset) is not int or type(records) is not int:
            raise TypeError("a field has another type")
        if not 0 <= next_offset <= OFFSET_END or records < 0:
            raise ValueError("a number is out of range")
        self.next_offsets[log] = next_offset
        self.records += records

    def _refuse(self) -> Failure:
        return Failure(
            f"{self._name} is damaged, or no file of wirescan produce --resume: give another file "
            "to write all records again"
        )
