"""What a `ColumnWriter` has written: places of a table, and columns of frames without a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.core.column_writer import ColumnWriter
from wirescan.frames.columns import PATH_KINDS, PLACES, ColumnDescription, ColumnKind
from wirescan.frames.format import Format
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable

# Columns that are the same in all good rows, and so need no row.
CONSTANT = (*PATH_KINDS, ColumnKind.FAULT)
# A row's own columns of numbers, which a writer copies.
COPIED = (ColumnKind.NUMBER, ColumnKind.FLOAT, ColumnKind.TIME, ColumnKind.FLAG, ColumnKind.NAME)


class PlaceColumns:
    """Places that a writer has written, as Arrow arrays."""

    def __init__(self, writer: ColumnWriter) -> None:
        self._writer = writer
        # A writer gives each column once, and an export may name it twice.
        self._arrays: dict[str, pa.Array] = {}

    def __len__(self) -> int:
        return len(self._writer)

    def make_place(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return the byte strings of a place."""
        if name not in self._arrays:
            self._arrays[name] = self._take_place(name, kind)
        return self._arrays[name]

    def _take_place(self, name: str, kind: pa.DataType) -> pa.Array:
        nulls, validity, values, data = self._writer.take_place(name)
        parts = self._writer.windows if data is None else [data]
        buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(values)]
        buffers += [pa.py_buffer(part) for part in parts]
        return pa.Array.from_buffers(kind, len(self), buffers, null_count=nulls)

    def make_number_lists(self, name: str, kind: pa.ListType, dtype: np.dtype[Any]) -> pa.Array:
        """Return the arrays of numbers in a place."""
        if name not in self._arrays:
            self._arrays[name] = self._take_number_lists(name, kind, dtype)
        return self._arrays[name]

    def _take_number_lists(self, name: str, kind: pa.ListType, dtype: np.dtype[Any]) -> pa.Array:
        nulls, validity, offsets, data = self._writer.take_place(name)
        assert data is not None  # the bytes were gathered
        items = np.frombuffer(memoryview(offsets), np.int32) // np.int32(dtype.itemsize)
        numbers = np.frombuffer(memoryview(data), dtype).astype(dtype.newbyteorder("="))
        values = pa.Array.from_buffers(kind.value_type, len(numbers), [None, pa.py_buffer(numbers)])
        bitmap = None if validity is None else pa.py_buffer(validity)
        return pa.Array.from_buffers(
            kind, len(self), [bitmap, pa.py_buffer(items)], null_count=nulls, children=[values]
        )


def write_places(table: FrameTable, fields: Iterable[tuple[str, pa.DataType]]) -> PlaceColumns:
    """Return places of a table.

    fields: the names of the places and their Arrow types.

    Raises ValueError for a row that points outside its buffer, and for more bytes than a type
    allows.
    """
    writer = ColumnWriter(table.dtype)
    for name, kind in fields:
        _request_place(name, kind)(writer)
    writer.read_rows(table.rows, table.buffers)
    return PlaceColumns(writer)


class ScannedColumns(PlaceColumns):
    """Good frames as columns. Exports read it as they read a `FrameTable`.

    Args:
        writer: the writer that a scan has filled.
        table: the table of the frames, without its rows.

    Attributes:
        format, outer, errors, dtype, name, buffers: those of the table.
    """

    def __init__(self, writer: ColumnWriter, table: FrameTable) -> None:
        super().__init__(writer)
        self._table = table
        self.format: Format = table.format
        self.outer = table.outer
        self.errors = table.errors
        self.dtype = table.dtype
        self.name = table.name
        self.buffers = table.buffers
        self._numbers: dict[str, np.ndarray] = {}
        self._rows: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column of numbers."""
        if name == "fault":
            return np.zeros(len(self), np.uint8)
        if name not in self._numbers:
            self._numbers[name] = self._writer.take_numbers(name)
        return self._numbers[name]

    def count_pairs(self) -> int:
        """Return the number of pairs in the lists of the frames."""
        return sum(self._writer.take_sum(count) for count in self.format.lists.values())

    def count_bytes(self) -> int:
        """Return the bytes of outermost frames, or the bytes that hold frames inside others."""
        if self.outer is None:
            size: int = self._writer.take_sum("size")
            return size
        return sum(map(len, self._writer.windows))

    @property
    def positions(self) -> np.ndarray:
        """Int64 array: the position in its file of each row's outermost frame."""
        positions: np.ndarray
        if self.outer is None:
            (origin,) = self._table.origins  # one chunk is scanned
            positions = self["start"] + origin
        else:
            positions = self.outer.positions[self["parent"]]
        return positions

    def take_rows_with_list(self, name: str) -> tuple[np.ndarray, FrameTable]:
        """Return the rows that have a list: their numbers (i8), and a table."""
        if name not in self._rows:
            self._rows[name] = self._writer.take_rows(name)
        numbers, rows = self._rows[name]
        return numbers, replace(self._table, rows=rows)


# Adds to a writer what one column of an export needs.
Request = Callable[[ColumnWriter], None]


def list_requests(
    format: Format, fields: Iterable[tuple[str, pa.DataType]]
) -> list[Request] | None:
    """Return what the columns of an export request from a writer.

    fields: the names of the columns and their Arrow types.

    Returns None if a column cannot be written without rows.
    """
    # `Allowance` counts the pairs, also of lists that are not exported.
    requests: list[Request] = [methodcaller("add_sum", count) for count in format.lists.values()]
    if format.within is None:
        # `ScannedColumns.count_bytes` adds the sizes of outermost frames.
        requests.append(methodcaller("add_sum", "size"))
    for name, kind in fields:
        column = format.describe_column(name)
        own = None if column is None else _list_own_requests(format, column, kind)
        if own is None:
            return None
        requests += own
    return requests


def _list_own_requests(
    format: Format, column: ColumnDescription, kind: pa.DataType
) -> list[Request] | None:
    """Return what one column requests; None if it cannot be written without rows."""
    if column.kind is ColumnKind.PAIRS:
        return [methodcaller("add_rows", column.name, column.declared.count)]
    is_outermost = format.within is None
    if column.kind in CONSTANT or (column.kind is ColumnKind.INNERMOST_FAULT and is_outermost):
        return []
    if column.kind is ColumnKind.POSITION and is_outermost:
        return [methodcaller("add_numbers", "start")]
    if column.owner is not format:
        return [methodcaller("add_numbers", "parent")]
    if column.declared.computed is not None:
        return [methodcaller("add_numbers", name) for name in column.declared.computed.reads]
    if column.kind in COPIED:
        return [methodcaller("add_numbers", column.name)]
    if column.kind in PLACES:
        return [_request_place(column.name, kind)]
    return None


def _request_place(name: str, kind: pa.DataType) -> Request:
    """Return the request of a place. kind: its Arrow type; a list is gathered, as `binary` is."""
    if kind == pa.binary_view():
        return methodcaller("add_views", name)
    return methodcaller("add_gathered", name, large=kind == pa.large_binary())
