"""The tables of frames that `wirescan scan --follow` prints, as files grow."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

from wirescan.cli.output import print_message
from wirescan.cli.support.row_choice import RowChooser
from wirescan.cli.support.selected_tables import SelectedTables
from wirescan.files.file_identity import Offset
from wirescan.frames.table import FrameTable
from wirescan.reading import growing
from wirescan.reading.growing import GrowingFiles, GrownSlice

POLL = 0.2  # seconds between two looks at the files
PIECE = 1 << 20  # bytes of files that are read before their rows are shown


class FollowedTables(SelectedTables):
    """Iterates over the tables of frames in files that grow, as (table, path), without an end.

    A frame is read when all its bytes are in its file. Damage is read when a good frame follows it,
    or a minute after the last change. Files that appear in a directory are read too, and files that
    are renamed are followed. A message reports what is lost because a file was cut or deleted.

    Args:
        paths: files, directories and globs.
        others, options: those of `SelectedTables`.
    """

    def __init__(self, paths: Sequence[str], *others: Any, **options: Any):
        super().__init__([], *others, **options)
        self._tail = GrowingFiles(
            paths, self._format.spec, lossless=False, size=PIECE, **self._options
        )

    def __iter__(self) -> Iterator[tuple[FrameTable, str]]:
        log = _MessagePrinter()
        growing.logger.addHandler(log)
        try:
            yield from self._iter_tables()
        finally:
            growing.logger.removeHandler(log)

    def _iter_tables(self) -> Iterator[tuple[FrameTable, str]]:
        offset: Offset = {"files": {}}
        chooser = RowChooser(self._selection, self._errors)
        if self._selection.tail is not None:
            present = self._tail.find_latest(offset)
            parts, skipped = self._find_last(offset, present, self._selection.tail)
            chooser = RowChooser(self._selection, self._errors, skipped=skipped)
            yield from self._read_parts(parts, chooser)
            offset = present
        while not chooser.is_done:
            self._flush()
            reached = self._tail.find_latest(offset, PIECE)
            if reached == offset:
                time.sleep(POLL)
                continue
            yield from self._read_parts(self._list_parts(offset, reached), chooser)
            offset = reached

    def _list_parts(self, start: Offset, stop: Offset) -> list[GrownSlice]:
        tasks = self._tail.plan_tasks(start, stop)
        return [part for task in tasks for part in task if self._selection.wants_file(part.path)]

    def _find_last(self, start: Offset, stop: Offset, rows: int) -> tuple[list[GrownSlice], int]:
        """Return the parts that hold the last rows, and how many rows in them are before those."""
        parts = self._list_parts(start, stop)
        missing = rows
        for number in reversed(range(len(parts))):
            count = sum(
                len(self._selection.find_rows(table, path, self._errors))
                for path, table in self._tail.read_tables(parts[number])
            )
            if count >= missing:
                return parts[number:], count - missing
            missing -= count
        return parts, 0

    def _read_parts(
        self, parts: Sequence[GrownSlice], chooser: RowChooser
    ) -> Iterator[tuple[FrameTable, str]]:
        for part in parts:
            for path, table in self._tail.read_tables(part):
                yield from self._apply_mode(table, path, chooser)
                if chooser.is_done:
                    return


class _MessagePrinter(logging.Handler):
    """Prints what `GrowingFiles` logs: bytes that were lost."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(f"wirescan: {record.getMessage()}")
