"""Functions that follow the rows of a table to its outer tables, its buffers and its lists.

Tables, exports, filters and the command line use them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wirescan.frames.columns import (
    ColumnDescription,
    ColumnKind,
    describe_export_column,
    describe_own_column,
    list_columns,
)
from wirescan.frames.fault_names import FaultMeaning

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable

# Columns that a bad row has too, besides the local ones. Its `body` is 0 where the frame's end is
# not known.
SCAN_COLUMNS = ("size", "body", "fault")


def list_levels(table: FrameTable) -> list[FrameTable]:
    """Return a table, the table around it, and so on to the outermost table."""
    levels = [table]
    while levels[-1].outer is not None:
        levels.append(levels[-1].outer)
    return levels


def is_read_from_capture(table: FrameTable) -> bool:
    """Return whether a `CaptureReader` makes such tables: they are outermost, and have an outer."""
    return table.format is not None and table.format.make_reader is not None


def find_stream_origins(table: FrameTable) -> np.ndarray | None:
    """Return what to add to `start` for the position in the bytes that a sender sent, for each row.

    None for a table that is not read from the streams of a capture.
    """
    streams = table
    if "position" not in list_columns(table.dtype):
        if table.outer is None or "position" not in list_columns(table.outer.dtype):
            return None
        streams = table.outer
    origins: np.ndarray = streams["position"] - streams["start"]
    return origins if streams is table else origins[find_parents(table)]


def find_outermost_rows(table: FrameTable) -> tuple[FrameTable, np.ndarray | slice]:
    """Return the outermost table, and its rows that contain the frames of a table, one for each.

    Raises ValueError for a row that points outside the table around it.
    """
    rows: np.ndarray | slice = slice(None)
    while table.outer is not None and not is_read_from_capture(table):
        rows = find_parents(table, rows)
        table = table.outer
    return table, rows


def find_parents(table: FrameTable, rows: np.ndarray | slice | None = None) -> np.ndarray:
    """Return the rows of `table.outer` that contain the frames of a table.

    table: a table with an `outer` table.
    rows: some rows of the table. None, the default: all rows.

    Raises ValueError if a row points outside the table around it.
    """
    assert table.outer is not None
    return _read_numbers(table, "parent", rows, len(table.outer), "outside the table around it")


def find_buffers(table: FrameTable, rows: np.ndarray | slice | None = None) -> np.ndarray:
    """Return the numbers of the buffers that contain the frames of a table.

    rows: as in `find_parents`. Raises ValueError if a row names a buffer that does not exist.
    """
    return _read_numbers(table, "buffer", rows, len(table.buffers), "to a buffer that is not there")


def _read_numbers(
    table: FrameTable, name: str, rows: np.ndarray | slice | None, count: int, place: str
) -> np.ndarray:
    """Return numbers below `count` from a column, or raise ValueError if one is out of range."""
    numbers: np.ndarray = table[name] if rows is None else table[name][rows]
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
        raise ValueError(f"a row of {table.name} points {place}")
    return numbers


def find_rows_without_lists(table: FrameTable) -> np.ndarray:
    """Return a bool array: the rows whose lists cannot be read because of their fault."""
    readable = () if table.format is None else table.format.readable
    unreadable: np.ndarray = table.bad & ~np.isin(table["fault"], readable)
    return unreadable


def find_rows_with_list(table: FrameTable, name: str) -> np.ndarray:
    """Return a bool array: the rows with pairs in the list `name` that can be read.

    Bad rows are included if their fault does not concern the list.
    """
    readable: np.ndarray = (table[table.format.lists[name]] > 0) & ~find_rows_without_lists(table)
    return readable


class FoundColumn(NamedTuple):
    """A column of exports of a table.

    Attributes:
        table: the table that has the column: the exported table, or a part of one around it.
        parents: for each exported row its row in `table`; None if they are the same table.
        column: what the column is.
    """

    table: FrameTable
    parents: np.ndarray | None
    column: ColumnDescription

    def read_numbers(self) -> np.ndarray:
        """Return the column's value for each exported row."""
        numbers = self._read_own_numbers()
        return numbers if self.parents is None else numbers[self.parents]

    def _read_own_numbers(self) -> np.ndarray:
        """Return the column's value for each row of `table`."""
        computed = self.column.declared.computed
        if computed is not None:
            return computed.compute(self.table)
        numbers: np.ndarray = self.table[self.column.name]
        return numbers

    def read_numbers_and_nulls(
        self, *, has_bad_rows: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return `read_numbers()`, and a bool array: the exported rows whose number is null.

        A number is null if it stands for no time or no value, or was not read of a bad frame. None
        instead of the array means that no number is null.

        has_bad_rows: False if the caller knows that no row of `table` is bad.
        """
        numbers = self._read_own_numbers()
        nulls = _find_unread(self.table, self.column) if has_bad_rows else None
        null = self.column.declared.null
        if null is not None:
            absent = numbers == null
            nulls = absent if nulls is None else nulls | absent
        if self.parents is None:
            return numbers, nulls
        return numbers[self.parents], None if nulls is None else nulls[self.parents]

    def compute_texts(self) -> list[str | None]:
        """Return the text of a column of COMPUTED_TEXT for each exported row."""
        texts, indexes = self.compute_distinct_texts()
        return texts if indexes is None else [texts[index] for index in indexes.tolist()]

    def compute_distinct_texts(self) -> tuple[list[str | None], np.ndarray | None]:
        """Return texts of a column of COMPUTED_TEXT, and the index of each exported row's text.

        The indexes are an int64 array. None: there is one text for each row, in row order.
        """
        compute = self.column.declared.compute_texts
        assert compute is not None  # every column of this kind has it
        if self.parents is None:
            return compute(self.table), None
        rows, indexes = self.find_distinct_rows()
        return compute(self.table[rows]), indexes

    def find_distinct_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that `parents` has, ascending, and the index of each parent among them.

        Both are int64 arrays. `parents` is not None.
        """
        assert self.parents is not None
        # A sort of the parents would take longer than what is done with the rows.
        is_used = np.zeros(len(self.table), bool)
        is_used[self.parents] = True
        return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[self.parents]

    def select_rows(self) -> FrameTable:
        """Return the rows of `table`, one for each exported row."""
        return self.table if self.parents is None else self.table[self.parents]


class EnclosingColumnError(ValueError):
    """A column is that of an enclosing frame, and the table was opened from none that has it."""


class EnclosingTables:
    """The tables around a table, and their rows that contain its frames.

    They are found once, for all columns of an export.
    """

    def __init__(self, table: FrameTable) -> None:
        # The table of each level, and for each frame its row there; None at level 0.
        self._levels: list[tuple[FrameTable, np.ndarray | None]] = [(table, None)]
        # By level: what `narrow` has returned.
        self._narrow: dict[int, tuple[FrameTable, np.ndarray | None]] = {}

    def get_table(self, level: int) -> FrameTable:
        """Return the table of a level: 0 is the table itself, 1 is the one around it."""
        return self._levels[level][0]

    def open_next(self) -> bool:
        """Find the rows of one more table; return False if there is none.

        Raises ValueError for a row that points outside the table around it.
        """
        table, parents = self._levels[-1]
        if table.outer is None:
            return False
        self._levels.append((table.outer, find_parents(table, parents)))
        return True

    def __len__(self) -> int:
        return len(self._levels)

    def narrow(self, level: int) -> tuple[FrameTable, np.ndarray | None]:
        """Return the table of a level, or a part of it with the rows, and the rows' numbers in it.

        An export of a large table asks for a column of the table around it many times, each time
        for few rows.
        """
        table, rows = self._levels[level]
        if rows is None or len(table) <= len(rows):
            return table, rows
        if level not in self._narrow:
            first = int(rows.min(initial=len(table)))
            part = table[first : int(rows.max(initial=-1)) + 1]
            self._narrow[level] = part, rows - first
        return self._narrow[level]


def find_column(
    table: FrameTable, name: str, *, lists: bool = True, around: EnclosingTables | None = None
) -> FoundColumn:
    """Find a column of exports in a table, or in the nearest table around it.

    table: the exported table.
    name: the column.
    lists: whether a list of pairs hides a place of the same name.
    around: the tables around the table. Without it they are found anew for each column.

    Raises EnclosingColumnError if no table has the column, and ValueError for a row that points
    outside the table around it.
    """
    described = describe_export_column(name)
    if described is not None:
        return FoundColumn(table, None, described)
    if lists and table.format is not None and table.format.get_column(name).count is not None:
        return FoundColumn(table, None, ColumnDescription(name, ColumnKind.PAIRS))
    described = _describe_path_column(table, name)
    if described is not None:
        return FoundColumn(table, None, described)
    if around is None:
        around = EnclosingTables(table)
    level = 0
    owner = table
    own_name = name
    while (column := describe_own_column(owner.dtype, owner.format, own_name)) is None:
        level += 1
        if level == len(around) and not around.open_next():
            raise EnclosingColumnError(
                f"column {name!r} is that of an enclosing frame, "
                "and this table was opened from none"
            )
        if owner.format is not None:
            own_name = owner.format.get_column(own_name).outer_name or own_name
        owner = around.get_table(level)
    _check_outer_columns(owner, column)
    return FoundColumn(*around.narrow(level), column)


def _check_outer_columns(table: FrameTable, column: ColumnDescription) -> None:
    """Raise EnclosingColumnError if the enclosing frames lack what a computed column reads."""
    computed = column.declared.computed
    if computed is None:
        return
    present = () if table.outer is None else list_columns(table.outer.dtype)
    for name in computed.reads_outer:
        if name not in present:
            raise EnclosingColumnError(
                f"column {column.name!r} follows from {name!r}, which is that of an enclosing "
                "frame, and this table was opened from none"
            )


def _describe_path_column(table: FrameTable, name: str) -> ColumnDescription | None:
    """Return what a column is that follows from the path of the file; None for any other column.

    A column of the rows, or of the frames around them, hides one of the same name.
    """
    described = None if table.format is None else table.format.describe_path_column(name)
    if described is None:
        return None
    for level in list_levels(table):
        if describe_own_column(level.dtype, level.format, name) is not None:
            return None
    return described


def open_pairs(table: FrameTable, name: str) -> tuple[FrameTable, np.ndarray]:
    """Return the pairs of the list `name` in all rows where it can be read.

    The result is the table of the pairs, and an i8 array: the row that each pair belongs to.
    """
    rows = np.flatnonzero(find_rows_with_list(table, name))
    inner = table.format.children[name](table[rows], errors="mark")
    return inner, rows[inner["parent"]]


def find_bad_frames(
    table: FrameTable, columns: Collection[str] | None = None
) -> list[tuple[FrameTable, np.ndarray]]:
    """Return the bad frames of a table, and those in the lists of its rows.

    The result is tables that have rows, each with an i8 array: the rows of `table` that the frames
    are or belong to.

    columns: the lists to examine are those among these names. None, the default: all lists.
    """
    lists = () if table.format is None else table.format.lists
    levels = [(table, np.arange(len(table)))]
    levels += [open_pairs(table, name) for name in lists if columns is None or name in columns]
    return [
        (frames.where(frames.bad), rows[frames.bad]) for frames, rows in levels if frames.bad.any()
    ]


def find_innermost_faults(table: FrameTable) -> tuple[np.ndarray, np.ndarray]:
    """Return the fault of each row, or of the nearest bad frame around a good row.

    The result is the faults (u1), and the level that each of them is from (u1): 0 for the table
    itself, 1 for the table around it, and so on.
    """
    faults = np.array(table["fault"])
    levels = np.zeros(len(table), np.uint8)
    inner, *outers = list_levels(table)
    parents: np.ndarray | None = None
    for depth, level in enumerate(outers, 1):
        parents = find_parents(inner, parents)
        levels[faults == 0] = depth
        faults = np.where(faults, faults, level["fault"][parents])
        inner = level
    return faults, levels


def list_declared_faults(table: FrameTable) -> list[Mapping[int, FaultMeaning]]:
    """Return the faults that the formats of a table and of those around it declare, by level."""
    return [{} if level.format is None else level.format.faults for level in list_levels(table)]


def _find_unread(table: FrameTable, column: ColumnDescription) -> np.ndarray | None:
    """Return a bool array: the bad rows whose value in a column may not have been read.

    Such a row holds 0, or the number of `Column.unset`. A bad row where that number was read
    looks the same, and counts as unread. None means no row.
    """
    if (
        column.name in SCAN_COLUMNS
        or column.declared.local
        or column.declared.computed is not None
        or column.dtype is None
        or column.dtype.kind not in "iuf"
    ):
        return None
    bad = table.bad
    if not bad.any():
        return None
    values = table[column.name]
    unread: np.ndarray = bad & ((values == 0) | (values == column.declared.unset))
    return unread
