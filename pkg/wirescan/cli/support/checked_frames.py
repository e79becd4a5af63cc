"""What `wirescan verify` checks where the user selects frames, and how many rows are selected.

Conditions exclude frames as they do for `wirescan scan`: by headers. A frame that they do not
exclude is checked whole, and so is each bad one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from wirescan.cli.support.row_choice import RowChooser
from wirescan.cli.support.selection import Selection
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_outermost_rows
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.nested_groups import open_nested

PLACE_BITS = 47  # of a position in a buffer; memory has no larger addresses


class Wanted(NamedTuple):
    """What is checked of some outermost frames of a file.

    frames: those up to the last one that is wanted.
    opened: those of them that are opened.
    """

    frames: FrameTable
    opened: FrameTable


class CheckedFrames:
    """Chooses the outermost frames to check, and counts the selected rows inside them.

    Only good rows are counted.

    Args:
        selection: what is selected. It has conditions, or --limit or --tail.
        chooser: chooses among the rows of all files, in order.
        check: verify checksums.
        limits: for reading.
    """

    def __init__(self, selection: Selection, chooser: RowChooser, *, check: bool, limits: Limits):
        self._selection = selection
        self._chooser = chooser
        self._options: dict[str, Any] = {"errors": "mark", "check": check, "limits": limits}
        self._selected = 0
        self._rows = 0

    @property
    def format(self) -> Format:
        """The format of the rows that are selected and counted."""
        return self._selection.format

    @property
    def is_done(self) -> bool:
        """Whether no later row will be selected."""
        return self._chooser.is_done

    def choose(self, frames: FrameTable, path: str, allowance: Allowance) -> Wanted:
        """Return what is to be checked of the next outermost frames of a file.

        allowance: of the file. What is opened only to find the last row is counted apart.
        """
        opened = self._selection.prune(frames, path)
        if self._selection.limit is None or not len(opened):
            return Wanted(frames, opened)
        last = self._find_last(opened, path, allowance)
        if last is None:
            return Wanted(frames, opened)
        opened = opened[: last + 1]
        rows = np.arange(len(frames))[find_kept_rows(frames, opened)]
        return Wanted(frames[: int(rows[-1]) + 1], opened)

    def _find_last(self, opened: FrameTable, path: str, allowance: Allowance) -> int | None:
        """Choose rows up to the last one of --limit, and return the row of its outermost frame.

        The result is None if later rows are wanted.
        """
        first = 0
        for table in self._open(opened, allowance, self._chooser.max_rows):
            rows = self._chooser.choose(table, path)
            self._selected += len(rows)
            outermost, parents = find_outermost_rows(table)
            if self._chooser.is_done:
                last = int(rows[-1])
                return first + (last if isinstance(parents, slice) else int(parents[last]))
            first += len(outermost)
        return None

    def _open(
        self, opened: FrameTable, allowance: Allowance, max_rows: int | None = None
    ) -> Iterator[FrameTable]:
        """Open the rows apart from those that are checked. Their cost is counted apart, too."""
        own_allowance = Allowance(self._options["limits"])
        own_allowance.copy_read(allowance)
        return open_nested(
            opened, self.format, max_rows=max_rows, allowance=own_allowance, **self._options
        )

    def open_and_count(self, opened: FrameTable, path: str, allowance: Allowance) -> None:
        """Count the rows inside checked frames that are not opened otherwise."""
        for table in self._open(opened, allowance):
            self.count(table, path)

    def count(self, table: FrameTable, path: str) -> None:
        """Count the rows of the next checked frames. Tables of other formats are ignored."""
        if table.format is not self.format:
            return
        self._rows += int(np.count_nonzero(~table.bad))
        if self._selection.limit is None:
            self._selected += len(self._chooser.choose(table, path))

    def __str__(self) -> str:
        return (
            f"selected: {self._selected:,} of {self._rows:,} {self.format.name} in the checked "
            "frames"
        )

    def to_json_fields(self) -> dict[str, int | str]:
        """Return the counts as fields for JSON."""
        return {
            "selected": self._selected,
            "selected_of": self._rows,
            "selected_format": self.format.name,
        }


def find_kept_rows(frames: FrameTable, kept: FrameTable) -> slice | np.ndarray:
    """Return the rows of a table that some of its outermost frames have."""
    if kept is frames:
        return slice(None)
    return np.flatnonzero(np.isin(_make_places(frames), _make_places(kept)))


def _make_places(frames: FrameTable) -> np.ndarray:
    """Return numbers for the places of frames in their buffers. No two frames have the same one."""
    places: np.ndarray = frames["start"] | frames["buffer"].astype(np.int64) << PLACE_BITS
    return places
