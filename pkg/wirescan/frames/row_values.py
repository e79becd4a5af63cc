"""The rows of a frame table as values: for JSON, and as cells of text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.frames.columns import (
    FILE,
    PATH_KINDS,
    PLACES,
    START,
    ColumnDescription,
    ColumnKind,
)
from wirescan.frames.fault_names import list_names
from wirescan.frames.lookup import (
    FoundColumn,
    find_column,
    find_rows_with_list,
    find_rows_without_lists,
    open_pairs,
)
from wirescan.frames.value_text import (
    ENCODINGS,
    LONGEST_CHARACTER,
    VALUE_ENCODINGS,
    encode,
    encode_float,
    escape_text,
    format_time,
    show_bytes,
)

if TYPE_CHECKING:
    from wirescan.frames.format import Format
    from wirescan.frames.table import FrameTable

FAULT_COLUMN = "fault"
WIDEST_CELL = 1000  # characters of text


def list_json_columns(format: Format) -> list[str]:
    """Return the columns of JSON output if the user names none."""
    return [FILE, START, *format.export_columns]


def list_all_columns(format: Format) -> list[str]:
    """Return every column that output may have."""
    return format.all_columns


def list_bytes_columns(format: Format) -> list[str]:
    """Return the columns of `list_all_columns` that hold bytes, or lists of bytes."""
    described = ((name, format.describe_column(name)) for name in list_all_columns(format))
    kinds = (ColumnKind.BYTES, ColumnKind.PAIRS)
    return [name for name, column in described if column is not None and column.kind in kinds]


def list_text_columns(format: Format) -> list[str]:
    """Return the columns of text output if the user names none."""
    return list(format.selected or format.display.shown) or list_json_columns(format)


class RowValues:
    """Converts the rows of tables of one format to tuples of values.

    Codecs, APIs and error codes are given by name. Values that were not read of a bad frame are
    None.

    Args:
        format: the format of the tables.
        columns: the columns of a tuple, in order.
        encodings: for each of `list_bytes_columns`, how its bytes are written.
        errors: "skip" drops the bad entries of a list.
        for_people: times are ISO 8601 and bytes are printable text. Otherwise the values are for
            JSON: times are milliseconds (None if there is none) or nanoseconds, and numbers that
            JSON does not have, such as infinity, are the texts of `encode_float`.
        widest: for people, at least so many characters of a byte string are shown if it has them.
            The rest may be missing.
        most_pairs: for people, the pairs of a list that are shown. Of a longer list the text has
            only the length. None, the default: all.
    """

    def __init__(
        self,
        format: Format,
        columns: Sequence[str],
        encodings: Mapping[str, str],
        errors: str,
        *,
        for_people: bool,
        widest: int = WIDEST_CELL,
        most_pairs: int | None = None,
    ):
        self._format = format
        self._columns = columns
        self._encodings = encodings
        self._errors = errors
        self._for_people = for_people
        self._shown_bytes = widest * LONGEST_CHARACTER
        self._most_pairs = most_pairs

    def iter_rows(self, table: FrameTable, path: str) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the rows of a table of the file `path`."""
        return zip(*(self.read_column(table, name, path) for name in self._columns))

    def read_column(self, table: FrameTable, name: str, path: str) -> Sequence[Any]:
        """Return the values of one column of a table of the file `path`."""
        found = find_column(table, name)
        kind = found.column.kind
        if kind in PATH_KINDS:
            return [self._read_path(found.column, path)] * len(table)
        if kind is ColumnKind.POSITION or name == "start" and table.outer is None:
            return table.positions.tolist()
        if kind is ColumnKind.FAULT:
            names = list_names(self._format.faults)
            return [names[number] for number in table[FAULT_COLUMN].tolist()]
        if kind is ColumnKind.COMPUTED_TEXT:
            return found.compute_texts()
        if kind is ColumnKind.PAIRS:
            return self._list_values(table, name)
        if kind in PLACES:
            return self._read_place(found, name)
        numbers, is_null = found.read_numbers_and_nulls()
        values = self._convert_numbers(found.column, numbers)
        if is_null is None:
            return values
        return [None if null else value for value, null in zip(values, is_null)]

    def _read_path(self, column: ColumnDescription, path: str) -> str | int | None:
        """Return the value of a column that follows from the path of a file."""
        if column.name == FILE:
            return escape_text(path) if self._for_people else path
        assert column.read_path is not None
        return column.read_path(path)

    def _convert_numbers(self, column: ColumnDescription, numbers: np.ndarray) -> Sequence[Any]:
        """Return the numbers of a column as output values, also where they are null."""
        names = column.declared.number_names
        values = numbers.tolist()
        unit = column.declared.unit
        if unit is not None and self._for_people:
            return [format_time(value, unit) for value in values]
        if column.kind is ColumnKind.NAME:
            return [names.get(value) for value in values]
        if column.kind is ColumnKind.TEXT:
            return [value.decode(errors="backslashreplace") or None for value in values]
        if column.kind is ColumnKind.FLAG:
            return (numbers != 0).tolist()
        if names:
            return list(map(column.declared.name_number, values))
        if column.kind is ColumnKind.FLOAT and not self._for_people:
            return list(map(encode_float, values))
        return values

    def _read_place(self, found: FoundColumn, name: str) -> list[Any]:
        """Return the byte strings, or arrays of numbers, of a place."""
        views = iter_views(found.select_rows(), found.column.name)
        if found.column.kind is ColumnKind.BYTES:
            texts: list[Any] = [self._show(view, self._encodings[name]) for view in views]
            for row, text in self._name_bytes(found.table, name).items():
                texts[row] = text
            return texts
        dtype = found.column.dtype
        return [None if view is None else np.frombuffer(view, dtype).tolist() for view in views]

    def _name_bytes(self, table: FrameTable, name: str) -> Mapping[int, str]:
        """Return the names of the byte strings of a column that are codes: {row: name}."""
        name_keys = self._format.display.name_keys
        if not self._for_people or name_keys is None or table.format is not self._format:
            return {}
        return name_keys(table).get(name, {})

    def _show(self, view: memoryview | None, encoding: str) -> str | int | float | None:
        """Return bytes as text or a number."""
        if view is None:
            return None
        if self._for_people:  # bytes beyond the widest cell are never shown
            return show_bytes(view[: self._shown_bytes], encoding)
        return encode(view, encoding)

    def _list_values(self, table: FrameTable, name: str) -> list[Any]:
        """Return the list of pairs of each row; None for a row without lists."""
        lists: list[Any] = [
            None if absent else [] for absent in find_rows_without_lists(table).tolist()
        ]
        long_rows = self._find_long_lists(table, name)
        short_rows = np.setdiff1d(np.arange(len(table)), long_rows)
        inner, rows = open_pairs(table[short_rows] if len(long_rows) else table, name)
        rows = short_rows[rows]
        encoding = self._encodings[name]
        # The name in a pair is text, also where its value is a number.
        encodings = [ENCODINGS[0] if encoding in VALUE_ENCODINGS else encoding, encoding]
        columns = [
            [self._show(view, notation) for view in iter_views(inner, place)]
            for place, notation in zip(inner.places, encodings)
        ]
        for row, fault, *values in zip(rows.tolist(), inner[FAULT_COLUMN].tolist(), *columns):
            if not fault:
                lists[row].append(dict(zip(inner.places, values)))
            elif self._errors != "skip":
                lists[row].append({FAULT_COLUMN: inner.describe_fault(fault).name})
        if not self._for_people:
            return lists
        texts = [None if entries is None else _format_pairs(entries) for entries in lists]
        counts = table[table.format.lists[name]]
        for row in long_rows.tolist():
            texts[row] = f"({counts[row]:,} {name})"
        return texts

    def _find_long_lists(self, table: FrameTable, name: str) -> np.ndarray:
        """Return the rows with more than `most_pairs` pairs that can be read."""
        if self._most_pairs is None:
            return np.empty(0, np.intp)
        counts = table[table.format.lists[name]]
        return np.flatnonzero((counts > self._most_pairs) & find_rows_with_list(table, name))


def get_outer_table(table: FrameTable) -> FrameTable:
    """Return the table that a table was opened from."""
    assert table.outer is not None
    return table.outer


def iter_views(table: FrameTable, name: str) -> Iterator[memoryview | None]:
    """Return an iterator over the bytes of a place in every row; None for null and in bad rows."""
    rows = table.rows
    buffers = table.buffers
    start = rows["start"] + rows[name + "_at"]
    size = np.where(rows["fault"] != 0, -1, rows[name + "_size"])
    return (
        None if length < 0 else buffers[buffer][first : first + length]
        for buffer, first, length in zip(rows["buffer"].tolist(), start.tolist(), size.tolist())
    )


def _format_pairs(pairs: list[dict[str, Any]]) -> str:
    """Return the pairs of a list as one cell of text."""
    return " ".join(
        "=".join("null" if value is None else value for value in pair.values()) for pair in pairs
    )
