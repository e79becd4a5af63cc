"""`FrameTable`, which all layers exchange: buffers, and an array of rows that point into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, overload

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import copy_rows, join_rows, select_rows
from wirescan.core.stop import Stop
from wirescan.core.table_fields import TableFields
from wirescan.frames.columns import (
    PATH_KINDS,
    PLACES,
    RESERVED,
    ColumnKind,
    is_place,
    list_columns,
    list_places,
)
from wirescan.frames.fault_names import FaultMeaning, describe_fault
from wirescan.frames.format import describe_rows
from wirescan.frames.lookup import (
    EnclosingColumnError,
    FoundColumn,
    find_buffers,
    find_column,
    find_outermost_rows,
    find_rows_with_list,
    find_stream_origins,
    is_read_from_capture,
    list_levels,
)
from wirescan.frames.optional_packages import name_package
from wirescan.frames.similar_names import suggest_name

MAX_BUFFERS = 1 << 16  # in one table: `buffer` of a row is u2
LARGEST_ROW = (1 << 32) - 1  # bytes: `size` of a row is u4


Rows = slice | np.ndarray | Sequence[int]  # which rows of a table


class Row:
    """One row of a table. Its values are read when they are asked for.

    `row.size` is a column. `row.key` is a place: a memoryview, None for null, or an array if the
    place holds numbers. `record.headers` are the frames inside the row, by the name of their
    format. `packet.source` is a computed column, and `request.client` is one of an enclosing frame.

    Frames inside are read in the mode of the table. Under "mark" a bad header is a pair of None,
    under "strict" it raises FrameError.

    A row unpacks to its places: `for key, value in table`.
    """

    __slots__ = ("_index", "_table")

    def __init__(self, table: FrameTable, index: int):
        self._table = table
        self._index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return Row, (self._table[self._index : self._index + 1], 0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        table = self._table
        if name in list_columns(table.dtype):
            return table.rows[name][self._index].item()
        if name in _list_children(table):
            return self._open(name)
        if name in table.places:
            return table._read_value(self._index, name)
        column = describe_rows(table).describe_column(name)
        if column is not None and column.kind not in PATH_KINDS:
            return table._read_cell(self._index, name)
        hint = _hint_at_columns(table, name)
        raise AttributeError(f"a row of {table.name} has no {name!r}{hint}")

    def _open(self, name: str) -> Iterator[Row]:
        """Return the frames of the format `name` inside this row. A bad frame has none."""
        table = self._table
        alone = table[self._index : self._index + 1]
        if table.rows["fault"][self._index]:
            is_readable_list = name in table.format.lists and find_rows_with_list(alone, name).any()
            if not is_readable_list:
                return iter(())
        try:
            return iter(alone.open(name))
        except ValueError as error:
            error.add_note(f"among the {name} of row {self._index} of {table.name}")
            raise

    def __dir__(self) -> list[str]:
        table = self._table
        names = [*_list_plain_columns(table.dtype), *table.places, *_list_children(table)]
        return [*super().__dir__(), *dict.fromkeys([*names, *_list_other_columns(table)])]

    def __iter__(self) -> Iterator[memoryview | None]:
        return iter([self._table.bytes(self._index, name) for name in self._table.places])

    def __repr__(self) -> str:
        from wirescan.frames.text_table import format_row

        return format_row(self._table, self._index)


@dataclass(frozen=True, init=False, eq=False)
class FrameTable(TableFields):
    """Frames that a scan read from buffers.

    Attributes:
        buffers: the bytes. They are held and never copied.
        rows: read-only structured array, one row per frame, in the order of the wire. Its dtype
            begins with `HEAD`. A place in a frame is `<name>_at` (from the frame's start) and
            `<name>_size` (-1: null).
        stops: why the scan of each buffer ended. Empty for a table of nested frames.
        format: the `Format` of the rows, or None.
        outer: the table that was opened. The column `parent` holds row numbers of it.
        origins: the position in its file or stream of the first byte of each buffer. Empty: all 0.
        checked: the checksums of the frames were verified, or the frames have none.
        errors: the mode in which the rows were read: "strict", "mark" or "skip". Frames inside
            them are read in the same mode.
    """

    __slots__ = ()

    # `TableFields` holds them, and has the defaults of its arguments.
    buffers: tuple[memoryview, ...]
    rows: np.ndarray
    stops: tuple[Stop, ...]
    format: Any
    outer: FrameTable | None
    origins: tuple[int, ...]
    checked: bool
    errors: str

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, key: str) -> Any: ...

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> Row: ...

    @overload
    def __getitem__(self, key: Rows | Sequence[str]) -> FrameTable: ...

    def __getitem__(self, key: Any) -> Any:
        """Return a column, a row, a table of some rows, or a table of some columns.

        Args:
            key: one of these:

                - The name of a column of numbers: a numpy array, as the rows have them. Codes and
                  times are numbers too. A column of the rows is a view, and no value is copied. A
                  column of the frames around them has a value for each row.
                - The name of a column of byte strings, or of any other that `to_arrow` has: a
                  `pyarrow.Array` of the type in `to_arrow`. Byte strings are views into the
                  buffers. Null values are null, also those of bad rows.
                - An integer: a `Row`.
                - A slice or an array of bool or of row numbers: the table of these rows.
                - A list, tuple or array of names that `to_arrow` accepts: a table with only these
                  columns. `columns`, `repr`, `to_arrow` and every other export have them in their
                  order. Byte strings are not copied. The rows keep the columns of `HEAD`, by which
                  `positions`, `bad` and `frame` work. Their frames cannot be opened.

        Raises:
            KeyError: there is no column of this name. The message names a similar one, or all.
            ValueError: rows point outside their buffers, or outside the table around them.
            ImportError: a column of byte strings needs pyarrow.
        """
        if isinstance(key, str):
            if key in list_columns(self.dtype) and key not in self.places:
                return self.rows[key]
            return self._read_column(key)
        names = _read_names(key)
        if names is not None:
            return self._select(names)
        if isinstance(key, (int, np.integer)):
            return Row(self, range(len(self))[key])
        return replace(self, rows=_freeze(select_rows(self.rows, key)))

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray:
        """Raise TypeError.

        pandas would take the array for the columns, and numpy has no type for bytes of any length.
        """
        raise TypeError(
            f"a table of {self.name} is not an array: use table.to_pandas() for pandas, "
            "table.to_polars() for polars, table['a column'] or table.rows for numpy"
        )

    def __iter__(self) -> Iterator[Row]:
        return (Row(self, i) for i in range(len(self)))

    def where(self, mask: np.ndarray) -> FrameTable:
        """Return the table of the rows where `mask` is true.

        Raises TypeError for a mask that is not of booleans.
        """
        mask = np.asarray(mask)
        if mask.dtype != bool:
            hint = "; wirescan.where takes a condition as text" if mask.dtype.kind == "U" else ""
            raise TypeError(f"a mask is an array of bool, not of {mask.dtype}{hint}")
        return self[mask]

    def head(self, count: int = 5) -> FrameTable:
        """Return the first `count` rows as a table; all but the last -count for a negative number.

        `table[-count:]` has the last rows: `tail` is the bytes after the last frame.
        """
        return self[:count]

    def to_arrow(self, columns: Sequence[str] | None = None, *, binary: str = "view") -> Any:
        """Return a `pyarrow.Table`, whose byte strings are views into the buffers.

        `pyarrow.table(table)`, `polars.DataFrame(table)` and DuckDB read the same columns.

        Args:
            columns: the columns in their order: those of `columns`, any other column of the rows
                such as `size`, `start` and `parent`, any column of the frames around them, `_start`
                and `_fault`. None, the default: `columns`.
            binary: the type of byte strings. "view", the default, copies no bytes. "binary" and
                "large_binary" copy them, and every function of `pyarrow.compute` takes them.

        Raises:
            ImportError: pyarrow is not installed.
            ValueError: an unknown column or type, or rows that point outside their buffers.
            FrameError: a fault in a list such as headers, if `errors` is "strict".
        """
        return _import_to_arrow().to_arrow_table(self, columns, binary=binary)

    def to_polars(self, columns: Sequence[str] | None = None) -> Any:
        """Return a `polars.DataFrame`. Arguments and errors are those of `to_arrow`."""
        with name_package("polars", "to_polars", "'wirescan[polars]'"):
            import polars

        return polars.DataFrame(self.to_arrow(columns))

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return a `pandas.DataFrame`. Arguments and errors are those of `to_arrow`.

        Byte strings become objects of type bytes, so their bytes are copied.
        """
        with name_package("pandas", "to_pandas", "'wirescan[arrow]' pandas"):
            import pandas  # noqa: F401 - pyarrow imports it, and names no package to install

        return self.to_arrow(columns).to_pandas()

    def open(self, name: str, **options: Any) -> FrameTable:
        """Return the frames inside these, such as "records" in kafka.batches.

        Args:
            name: the name of one of the format's children.
            options: those of the function of that name. `errors` is that of this table by default.

        Raises:
            KeyError: the format has no such child. Other errors: as the function of that name.
        """
        children = _list_children(self)
        if name not in children:
            raise KeyError(
                f"{self.name} holds no {name!r}, only {', '.join(children) or 'nothing'}"
            )
        options.setdefault("errors", self.errors)
        return cast(FrameTable, children[name](self, **options))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows."""
        return self.rows.dtype

    @property
    def columns(self) -> list[str]:
        """The names of the columns that `to_arrow` and the exports of the command have by default.

        For a table of some columns these are its columns. `dtype.names` has all columns of the
        rows, also the positions of frames and byte strings.
        """
        return describe_rows(self).export_columns

    @property
    def name(self) -> str:
        """The name of the format, or "frames" if there is none."""
        return "frames" if self.format is None else self.format.name

    @property
    def places(self) -> tuple[str, ...]:
        """The names of the byte strings in a row, which `bytes` accepts."""
        return list_places(self.dtype)

    @property
    def bad(self) -> np.ndarray:
        """Bool array: the rows that have a fault."""
        bad: np.ndarray = self.rows["fault"] != 0
        return bad

    def describe_fault(self, fault: int) -> FaultMeaning:
        """Return the name and the meaning of a number of the column `fault`, or of a stop."""
        return describe_fault(fault, {} if self.format is None else self.format.faults)

    @property
    def outermost(self) -> FrameTable:
        """The table whose frames enclose all others, or the table itself if it is outermost."""
        return list_levels(self)[-1]

    @property
    def stop(self) -> Stop:
        """Why the scan of the last buffer of outermost frames ended."""
        stops = self.outermost.stops
        return stops[-1] if stops else Stop(Fault.OK, 0)

    @property
    def consumed(self) -> int:
        """The bytes that outermost frames cover, in all scanned buffers."""
        return sum(stop.offset for stop in self.outermost.stops)

    @property
    def tail(self) -> memoryview:
        """The bytes after the last outermost frame of the last scanned buffer."""
        table = self.outermost
        if not table.stops:
            return memoryview(b"")
        return table.buffers[table.stop.buffer][table.stop.offset :]

    @property
    def positions(self) -> np.ndarray:
        """Int64 array: the position in its file or stream of each row's outermost frame.

        Of frames in captures, it is the position in the bytes that their sender sent.

        Raises ValueError for rows that point outside the tables around them, or that name a
        buffer that does not exist.
        """
        table, rows = find_outermost_rows(self)
        if is_read_from_capture(table):
            stream_origins = find_stream_origins(table)
            if stream_origins is not None:
                return (table["start"] + stream_origins)[rows]
        origins = np.array(table.origins or [0] * len(table.buffers), np.int64)
        positions: np.ndarray = table["start"][rows] + origins[find_buffers(table, rows)]
        return positions

    def frame(self, i: int) -> memoryview:
        """Return the whole frame of row i.

        Raises ValueError if the row points outside its buffer.
        """
        row = self.rows[i]
        start = int(row["start"])
        size = int(row["size"])
        number = int(row["buffer"])
        if (
            not 0 <= number < len(self.buffers)
            or not 0 <= start <= len(self.buffers[number]) - size
        ):
            raise ValueError(f"row {i} of {self.name}: start and size point outside its buffer")
        return self.buffers[number][start : start + size]

    def payload(self, i: int) -> memoryview:
        """Return the bytes after the header in the frame of row i.

        Raises ValueError as `frame`, and for a payload outside its frame.
        """
        body = int(self.rows["body"][i])
        return self._slice_frame(i, "body", body, max(int(self.rows["size"][i]) - body, 0))

    def bytes(self, i: int, name: str) -> memoryview | None:
        """Return the place `name` in row i; None for null, and in a bad row.

        Raises:
            KeyError: `name` is not among `places`.
            ValueError: as `frame`, and for a place outside its frame.
        """
        if name not in self.places:
            raise KeyError(
                f"{self.name} has no place {name!r}, only {', '.join(self.places) or 'none'}"
            )
        row = self.rows[i]
        size = int(row[name + "_size"])
        if size < 0 or row["fault"]:
            return None
        return self._slice_frame(i, name, int(row[name + "_at"]), size)

    def _read_value(self, i: int, name: str) -> memoryview | np.ndarray | None:
        """Return the place of row i: a memoryview, an array of numbers, or None for null."""
        view = self.bytes(i, name)
        items = None if self.format is None else self.format.get_column(name).items
        return view if view is None or items is None else np.frombuffer(view, items)

    def _read_cell(self, i: int, name: str) -> Any:
        """Return a value of row i of a column that is none of the rows' own.

        It is the text of a computed column, the place of an enclosing frame, or a number.
        """
        found = self[i : i + 1]._find_column(name)
        if found.column.kind is ColumnKind.COMPUTED_TEXT:
            return found.compute_texts()[0]
        if found.column.kind in PLACES:
            return found.select_rows()._read_value(0, found.column.name)
        return found.read_numbers()[0].item()

    def _read_column(self, name: str) -> Any:
        """Return a column that is none of the rows' own numbers."""
        found = self._find_column(name)
        column = found.column
        if column.kind is ColumnKind.POSITION:
            return self.positions
        if column.dtype is not None and column.kind not in PLACES:
            return found.read_numbers()
        return _import_to_arrow().to_batch(self, [name]).column(0)

    def _find_column(self, name: Any) -> FoundColumn:
        """Return what a column is. Raises KeyError if neither this table nor one around has it."""
        format = describe_rows(self)
        if not isinstance(name, str) or format.describe_column(name) is None:
            raise self._make_column_error(name)
        try:
            return find_column(self, name)
        except EnclosingColumnError as error:
            raise KeyError(str(error)) from None

    def _select(self, names: list[str]) -> FrameTable:
        """Return a table of some columns, and of the columns of HEAD."""
        existing = list_columns(self.dtype)
        needed = set(list_columns(HEAD))
        for name in names:
            column = self._find_column(name).column
            computed = column.declared.computed
            if column.kind in (ColumnKind.PAIRS, ColumnKind.COMPUTED_TEXT):
                needed.update(existing)  # what reads or computes it needs all of them
            elif computed is not None and column.owner is self.format:
                needed.update(computed.reads)
            elif name in self.places:
                needed.update([name + "_at", name + "_size"])
            else:
                needed.add(name)
        columns = [name for name in existing if name in needed]
        rows = np.empty(len(self), [(name, self.dtype[name]) for name in columns])
        for name in columns:
            rows[name] = self.rows[name]
        selected = self.format and _restrict(self.format, rows.dtype, tuple(map(str, names)))
        return replace(self, rows=_freeze(rows), format=selected)

    def _make_column_error(self, name: Any) -> KeyError:
        """Return the error for a name that is no column."""
        return KeyError(f"{self.name} has no column {_quote(name)}{_hint_at_columns(self, name)}")

    def _slice_frame(self, i: int, name: str, at: int, size: int) -> memoryview:
        """Return `size` bytes from position `at` of the frame of row i."""
        frame = self.frame(i)
        if not 0 <= at <= len(frame) - size:
            raise ValueError(f"row {i} of {self.name}: {name} points outside its frame")
        return frame[at : at + size]

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapped file is pickled as its path and range (source.MappedFile), and a buffer of
        # `outer` as its number there.
        shared: dict[int, int] = {}
        if self.outer is not None:
            shared = {id(view): number for number, view in enumerate(self.outer.buffers)}
        buffers = [
            shared[id(view)] if id(view) in shared else _to_picklable(view) for view in self.buffers
        ]
        return _restore, (
            buffers,
            copy_rows(self.rows),
            self.stops,
            self.format,
            self.outer,
            self.origins,
            self.checked,
            self.errors,
            () if self.format is None else self.format.selected,
        )

    def __arrow_c_schema__(self) -> object:
        return _import_to_arrow().make_schema(describe_rows(self)).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an Arrow stream of record batches: what `to_arrow` returns. Needs pyarrow."""
        return _import_to_arrow().make_reader(self).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        from wirescan.frames.text_table import format_table

        return format_table(self)

    def _repr_html_(self) -> str:
        from wirescan.frames.text_table import format_html

        return format_html(self)


def iter_groups(numbers: np.ndarray, chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each number of some rows, in ascending order, and the rows that have it.

    numbers: a number for each row of a table.
    chosen: the row numbers to group.
    """
    order = chosen[np.argsort(numbers[chosen], kind="stable")]
    borders = np.flatnonzero(np.diff(numbers[order])) + 1
    for rows in np.split(order, borders) if len(order) else ():
        yield int(numbers[rows[0]]), rows


def join(tables: Sequence[FrameTable]) -> FrameTable:
    """Return one table over all buffers of tables of one format. Only the rows are copied.

    Raises:
        TypeError: an element is not a FrameTable.
        ValueError: there is no table, the dtypes differ, or there are more than 65,536 buffers.
    """
    tables = list(tables)
    for table in tables:
        if not isinstance(table, FrameTable):
            raise TypeError(
                f"join takes a list of FrameTables, but the list contains {type(table).__name__}"
            )
    if not tables:
        raise ValueError("join needs at least one table")
    if len(tables) == 1:
        return tables[0]
    if len({table.dtype for table in tables}) != 1:
        raise ValueError("only tables of one format can be joined")
    rows = join_rows([table.rows for table in tables])
    buffers: list[memoryview] = []
    stops: list[Stop] = []
    outers: list[FrameTable] = []
    origins: list[int] = []
    at = 0
    parents = 0
    for table in tables:
        if len(buffers) + len(table.buffers) > MAX_BUFFERS:
            raise ValueError("a table holds at most 65,536 buffers; join fewer")
        part = rows[at : at + len(table)]
        if len(part):
            part["buffer"] += len(buffers)
        if table.outer is not None:
            part["parent"] += parents
            parents += len(table.outer)
            outers.append(table.outer)
        stops += [stop._replace(buffer=stop.buffer + len(buffers)) for stop in table.stops]
        buffers += table.buffers
        origins += table.origins or [0] * len(table.buffers)
        at += len(table)
    return FrameTable(
        tuple(buffers),
        _freeze(rows),
        tuple(stops),
        tables[0].format,
        join(outers) if len(outers) == len(tables) else None,
        tuple(origins),
        all(table.checked for table in tables),
        # In alphabetical order: "mark" if any table was marked, else "skip" if any was skipped.
        min(table.errors for table in tables),
    )


def require_rows(table: Any, dtype: np.dtype[Any], message: str) -> None:
    """Raise TypeError unless `table` is a FrameTable whose rows have a dtype.

    table: the object to check.
    dtype: the expected dtype.
    message: the start of the message, which says what was expected.
    """
    if not isinstance(table, FrameTable) or table.dtype != dtype:
        raise TypeError(f"{message}, not {getattr(table, 'name', type(table).__name__)}")


def renumber_enclosing(result: FrameTable, table: FrameTable) -> FrameTable:
    """Return `result`, the good rows of `table`, with the column `enclosing` as row numbers of it.

    -1 stands for a row that is bad. If `result` has all rows of `table`, it is returned unchanged.
    For formats whose values are nested in one table: see `Format.enclosing`.
    """
    if len(result) == len(table):
        return result
    rows = copy_rows(result.rows)
    numbers = np.where(table.bad, -1, np.cumsum(~table.bad) - 1)
    rows["enclosing"] = np.where(rows["enclosing"] < 0, -1, numbers[rows["enclosing"]])
    return replace(result, rows=_freeze(rows))


def make_empty(format: Any) -> FrameTable:
    """Return a table of a format without frames."""
    return FrameTable((), _freeze(np.empty(0, format.dtype)), (), format, checked=True)


def make_gap_rows(dtype: np.dtype[Any], start: int, size: int) -> np.ndarray:
    """Return the rows for bytes without frames: none for no bytes, several from 4 GiB on.

    start: byte position of the first byte. size: number of bytes.
    """
    rows = np.zeros(-(-size // LARGEST_ROW), dtype)
    rows["start"] = start + LARGEST_ROW * np.arange(len(rows))
    rows["size"] = np.minimum(start + size - rows["start"], LARGEST_ROW)
    rows["parent"] = -1
    rows["fault"] = Fault.BAD_LENGTH
    return rows


def _list_children(table: FrameTable) -> Mapping[str, Any]:
    """Return the formats inside the frames of a table: name -> function of a table."""
    return {} if table.format is None else table.format.children


def _list_plain_columns(dtype: np.dtype[Any]) -> list[str]:
    """Return the names of the columns that are no part of a place and no padding."""
    return [name for name in list_columns(dtype) if not is_place(dtype, name) and name != RESERVED]


def _read_names(key: Any) -> list[str] | None:
    """Return the names in a list, tuple or array of names of columns; None for another key."""
    if isinstance(key, np.ndarray):
        return key.tolist() if key.dtype.kind == "U" else None
    is_list = isinstance(key, (list, tuple)) and any(isinstance(name, str) for name in key)
    return list(key) if is_list else None


def _restrict(format: Any, dtype: np.dtype[Any], selected: tuple[str, ...] = ()) -> Any:
    """Return a format whose rows have only some of the columns.

    Of the frames inside only the selected lists can be opened, because the others need all columns.
    """
    columns = {
        name: column
        for name, column in format.columns.items()
        if name in selected or not (column.count or column.inherited)
    }
    children = {name: read for name, read in format.children.items() if name in columns}
    return replace(format, dtype=dtype, children=children, columns=columns, selected=selected)


def _list_other_columns(table: FrameTable) -> list[str]:
    """Return the columns of exports that a row has: not those of the path of a file."""
    format = describe_rows(table)
    described = ((name, format.describe_column(name)) for name in format.all_columns)
    return [
        name
        for name, column in described
        if column is not None and column.kind not in PATH_KINDS and not name.startswith("_")
    ]


def _hint_at_columns(table: FrameTable, name: Any) -> str:
    """Return the end of a message about a column that does not exist."""
    names = [*_list_plain_columns(table.dtype), *table.places, *_list_children(table)]
    return suggest_name(name, describe_rows(table).all_columns) or f"; it has {', '.join(names)}"


def _quote(name: Any) -> str:
    return repr(str(name) if isinstance(name, str) else name)  # numpy's str has another repr


def _import_to_arrow() -> Any:
    """Return the module that makes Arrow arrays. Raises ImportError that names the extra."""
    with name_package("pyarrow", "Arrow", "'wirescan[arrow]'"):
        from wirescan.frames import to_arrow

    return to_arrow


def _freeze(rows: np.ndarray) -> np.ndarray:
    rows.flags.writeable = False
    return rows


def _to_picklable(view: memoryview) -> Any:
    """Return the mapped file of a view, if the view is all of it, else a copy of the bytes."""
    source: Any = view.obj
    return source if hasattr(source, "path") and len(source) == len(view) else bytes(view)


def _restore(
    buffers: list[Any],
    rows: np.ndarray,
    stops: tuple[Stop, ...],
    format: Any,
    outer: FrameTable | None,
    origins: tuple[int, ...],
    checked: bool,  # noqa: FBT001 - pickle passes it by position
    errors: str,
    selected: tuple[str, ...] = (),
) -> FrameTable:
    has_all = format is None or set(format.dtype.names) <= set(list_columns(rows.dtype))
    if selected or not has_all:
        format = _restrict(format, rows.dtype, selected)
    shared = () if outer is None else outer.buffers
    views = (shared[b] if isinstance(b, int) else memoryview(b).cast("B") for b in buffers)
    return FrameTable(tuple(views), _freeze(rows), stops, format, outer, origins, checked, errors)
