"""Tables to Arrow. Exports, Spark and the command line use it. Imports pyarrow.

A place becomes a binary column: views into the buffers, or gathered bytes.

column of the table            in Arrow                         for Spark (types="spark")
i1 i2 i4 i8                    int8 int16 int32 int64           the same
u1 u2 u4 u8                    uint8 uint16 uint32 uint64       int16 int32 int64 int64 [1]
is_...                         bool                             bool
kind, if it has names          string                           string
fault                          dictionary of strings, 0 is null string, 0 is null
S<n>, text padded with zeros   string, empty is null            the same
times in ms (`Column.unit`)    timestamp[ms, UTC], -1 is null   timestamp[us, UTC], -1 is null
times in ns                    timestamp[ns, UTC], 0 is null    timestamp[us, UTC], rounded down
<name>_at, <name>_size         <name>: binary_view, or `binary` binary
a place of numbers             list of numbers                  the same
a list of pairs (`headers`)    list<struct<key, value>> [2]     the same
_file                          string: the path of the file
_start                         int64: the position in the file of the outermost frame
_fault                         as fault: of the frame or of one around it; null: none is bad

[1] null for larger numbers. [2] null in a bad row.

Data that was not read of a bad frame is null: its bytes and lists, and the numbers that are 0 or
the default of their column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.parallel import FixedWorkers
from wirescan.frames.columns import PLACES, ColumnDescription, ColumnKind, list_places
from wirescan.frames.errors import FrameError
from wirescan.frames.fault_names import FAULT_NAMES, NUMBERS, FaultMeaning
from wirescan.frames.format import Format, describe_rows
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import (
    EnclosingTables,
    FoundColumn,
    find_column,
    find_innermost_faults,
    find_rows_with_list,
    find_rows_without_lists,
    list_declared_faults,
)
from wirescan.frames.optional_packages import name_package
from wirescan.frames.registry import format_of
from wirescan.frames.scanned_columns import (
    PlaceColumns,
    ScannedColumns,
    list_requests,
    write_places,
)
from wirescan.frames.similar_names import hint_at_names

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable

BINARY = {"view": pa.binary_view(), "binary": pa.binary(), "large_binary": pa.large_binary()}
TYPES = ("arrow", "spark")
FAULT_TYPES = {"arrow": pa.dictionary(pa.int32(), pa.string()), "spark": pa.string()}
SIMPLE_TYPES = {
    ColumnKind.COMPUTED_TEXT: pa.string(),
    ColumnKind.PATH: pa.string(),
    ColumnKind.PATH_NUMBER: pa.int32(),
    ColumnKind.POSITION: pa.int64(),
    ColumnKind.NAME: pa.string(),
    ColumnKind.TEXT: pa.string(),
    ColumnKind.FLAG: pa.bool_(),
}
WIDER = {"u1": pa.int16(), "u2": pa.int32(), "u4": pa.int64(), "u8": pa.int64()}
LATEST = (2**63 - 1) // 1000  # milliseconds that fit 64 bits as microseconds
BATCH_ROWS = 1 << 16  # in a record batch of a whole table
LARGEST = (1 << 31) - 1  # bytes in one binary column of 32-bit offsets


class _Context(NamedTuple):
    """What is the same for all columns of a batch."""

    file: str | None
    errors: str
    limits: Limits
    # Whether rows of the exported table may be bad, and whether those around it may be. If not, no
    # column is searched for unread numbers.
    has_bad_rows: bool
    has_bad_outer_rows: bool
    # The places of the exported table, which are written together.
    places: PlaceColumns | None


def list_default_columns(format: str | Format) -> list[str]:
    """Return the columns of an export that names none: a format's own columns, and `fault`."""
    return (format_of(format) if isinstance(format, str) else format).export_columns


def make_schema(
    format: str | Format,
    columns: Sequence[str] | None = None,
    *,
    binary: str = "view",
    types: str = "arrow",
) -> pa.Schema:
    """Return the Arrow schema of a format.

    Args:
        format: a format or its name.
        columns: the columns, in their order: those of `list_default_columns`, any other column of
            the row or of the frames around it, `_file`, `_start` and `_fault`. None, the default:
            those of `list_default_columns`.
        binary: the type of byte strings: "view", "binary" or "large_binary".
        types: "arrow", or "spark", which has no unsigned integers and no views.

    Raises:
        ValueError: an unknown name, or an unknown value of `binary` or `types`.
    """
    format = format_of(format) if isinstance(format, str) else format
    if types not in TYPES:
        raise ValueError(f"types must be one of {', '.join(TYPES)}, not {types!r}")
    if binary not in BINARY:
        raise ValueError(f"binary must be one of {', '.join(BINARY)}, not {binary!r}")
    if types == "spark":
        binary = "binary"
    names = format.export_columns if columns is None else list(columns)
    return pa.schema(
        [pa.field(name, _choose_type(format, name, BINARY[binary], types)) for name in names]
    )


def to_batch(
    table: FrameTable,
    columns: Sequence[str] | None = None,
    *,
    binary: str = "view",
    types: str = "arrow",
    file: str | None = None,
    errors: str | None = None,
    limits: Limits = Limits(),
) -> pa.RecordBatch:
    """Return a table as one record batch.

    With `binary="view"` no payload is copied, and the batch keeps the table's buffers alive.
    In a bad row, bytes and lists are null. Its numbers are what was read, or null.

    table: the frames.
    columns, binary, types: as in `make_schema`.
    file: the value of the column `_file`.
    errors: how to treat a fault in a list, such as headers: "strict" raises FrameError, "mark"
        makes the bad pair null, "skip" removes it. None, the default: as in `table.errors`.
    limits: the limits for the lists.

    Raises FrameError for a fault in a list, under "strict". Raises ValueError for an unknown name,
    text that is not UTF-8, more than 2 GiB in one column of "binary", and rows that point outside
    the buffers or the tables around them.
    """
    out_schema = make_schema(describe_rows(table), columns, binary=binary, types=types)
    places = _write_own_places(table, out_schema)
    context = _Context(
        file,
        errors or table.errors,
        limits,
        has_bad_rows=bool(table.bad.any()),
        has_bad_outer_rows=True,
        places=places,
    )
    around = EnclosingTables(table)
    found = ((find_column(table, field.name, around=around), field.type) for field in out_schema)
    return _make_batch(table, found, out_schema, context)


def _write_own_places(table: FrameTable, schema: pa.Schema) -> PlaceColumns | None:
    """Return the exported places of the rows themselves; None if there are none."""
    format = describe_rows(table)
    fields = []
    for field in schema:
        column = format.describe_column(field.name)
        if column is not None and column.kind in PLACES and column.owner is format:
            fields.append((field.name, field.type))
    return write_places(table, fields) if fields else None


class ColumnScan:
    """Makes record batches of frames, without making rows of the frames.

    The columns are written while the frames are read, so only the named columns are. What a column
    needs is looked up once, for all batches.

    Args:
        format: the format of the frames. Unless rows are needed, it has a `write`, or its parser
            has `writes_columns`.
        schema: the columns, as `make_schema` returns them.
        file, errors, limits: as in `to_batch`.
        check: verify checksums, also those of the tables if their scan did not.
    """

    def __init__(
        self,
        format: Format,
        schema: pa.Schema,
        *,
        file: str | None = None,
        errors: str = "strict",
        check: bool = True,
        limits: Limits = Limits(),
    ):
        self._format = format
        self._schema = schema
        self._file = file
        self._errors = errors
        self._check = check
        self._limits = limits
        fields = [(field.name, field.type) for field in schema]
        self._requests = list_requests(format, fields)
        self._columns = [(name, kind, _describe_own_column(format, name)) for name, kind in fields]

    @property
    def format(self) -> Format:
        """The format of the frames."""
        return self._format

    @property
    def needs_rows(self) -> bool:
        """Whether a column is of a kind that is not written."""
        return self._requests is None

    def make_writer(self) -> ColumnWriter:
        """Return a writer of the columns for one scan. No column needs rows."""
        assert self._requests is not None
        writer = ColumnWriter(self._format.dtype)
        for request in self._requests:
            request(writer)
        return writer

    def read_inside(self, outer: FrameTable) -> ScannedColumns | None:
        """Return the frames inside a table of `format.within`. It uses one thread.

        Returns None if rows are needed: a frame is bad, a limit is reached, or a column is of a
        kind that is not written.
        """
        if self.needs_rows:
            return None
        writer = self.make_writer()
        assert self._format.write is not None
        # Exports read several tables at the same time.
        with FixedWorkers(1):
            self._format.write(outer, writer, check=self._check, limits=self._limits)
        if writer.failed:
            return None
        table = replace(
            outer,
            buffers=writer.buffers,
            rows=np.empty(0, self._format.dtype),
            stops=(),
            format=self._format,
            outer=outer,
            origins=(),
            errors=self._errors,
        )
        return ScannedColumns(writer, table)

    def make_batch(self, frames: ScannedColumns) -> pa.RecordBatch:
        """Return scanned frames as one record batch.

        The batch is the one that `to_batch` returns for a table of these frames.

        frames: their writer is from `make_writer`.

        Raises FrameError for a fault in a list, as `to_batch`.
        """
        table = cast("FrameTable", frames)
        around = EnclosingTables(table)
        found = [
            (
                find_column(table, name, around=around)
                if column is None
                else FoundColumn(table, None, column),
                kind,
            )
            for name, kind, column in self._columns
        ]
        context = _Context(
            self._file,
            self._errors,
            self._limits,
            has_bad_rows=False,
            has_bad_outer_rows=False,
            places=frames,
        )
        return _make_batch(frames, found, self._schema, context)


def _describe_own_column(format: Format, name: str) -> ColumnDescription | None:
    """Return what a column is that needs no table around the rows; None for any other column."""
    column = format.describe_column(name)
    assert column is not None  # it is in a schema
    is_own = column.owner is None or column.owner is format
    return column if is_own and column.declared.computed is None else None


def _make_batch(
    table: FrameTable | ScannedColumns,
    columns: Iterable[tuple[FoundColumn, pa.DataType]],
    schema: pa.Schema,
    context: _Context,
) -> pa.RecordBatch:
    """Return the columns of a schema, which were found in a table."""
    arrays = []
    try:
        for found, kind in columns:
            make = MAKERS.get(found.column.kind, _make_number_column)
            arrays.append(make(found, kind, context))
    except FrameError as error:
        error.source = error.source or context.file
        raise
    if not arrays:
        # A batch without columns still has a number of rows.
        return pa.RecordBatch.from_struct_array(pa.nulls(len(table), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def make_reader(table: FrameTable, rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
    """Return a table as a stream of record batches, with its default columns, payloads as views.

    A reader can be read once.

    table: the frames.
    rows: the number of rows in a batch, at most.

    Raises ValueError for `rows` below 1.
    """
    if rows < 1:
        raise ValueError(f"a batch has at least 1 row, not {rows}")
    parts = (to_batch(table[i : i + rows]) for i in range(0, len(table), rows))
    return pa.RecordBatchReader.from_batches(make_schema(describe_rows(table)), parts)


def to_arrow_table(
    table: FrameTable, columns: Sequence[str] | None = None, *, binary: str = "view"
) -> pa.Table:
    """Return a table as an Arrow table, in record batches of at most BATCH_ROWS rows.

    table: the frames.
    columns, binary: as in `make_schema`.

    Raises as `to_batch`.
    """
    schema = make_schema(describe_rows(table), columns, binary=binary)
    starts = range(0, len(table), BATCH_ROWS)
    batches = (to_batch(table[i : i + BATCH_ROWS], columns, binary=binary) for i in starts)
    return pa.Table.from_batches(batches, schema)


def _choose_type(format: Format, name: str, binary: pa.DataType, types: str) -> pa.DataType:
    """Return the Arrow type of a column. Byte strings get the type `binary`."""
    column = format.describe_column(name)
    if column is None:
        raise ValueError(
            f"{format.name} has no column {name!r}"
            + hint_at_names(name, format.export_columns, "it has")
        )
    if column.kind in SIMPLE_TYPES:
        return SIMPLE_TYPES[column.kind]
    if column.kind is ColumnKind.BYTES:
        return binary
    if column.kind is ColumnKind.PAIRS:
        pairs = format_of(f"{format.name.split('.')[0]}.{name}")
        return pa.list_(pa.struct([(part, binary) for part in list_places(pairs.dtype)]))
    if column.dtype is None or column.kind is ColumnKind.FAULT:
        return FAULT_TYPES[types]
    if column.kind is ColumnKind.NUMBERS:
        return pa.list_(pa.from_numpy_dtype(column.dtype.newbyteorder("=")))
    if column.kind is ColumnKind.TIME:
        return pa.timestamp("us" if types == "spark" else column.declared.unit, tz="UTC")
    width = column.dtype.str[1:]
    is_wider = types == "spark" and width in WIDER
    return WIDER[width] if is_wider else pa.from_numpy_dtype(column.dtype)


def _make_path_values(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    """Return what follows from the path of each row's file. Null for bytes in memory."""
    count = len(found.table)
    read = found.column.read_path
    assert read is not None  # every column of these kinds has it
    value = None if context.file is None else read(context.file)
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, int):
        return _make_numbers(np.full(count, value, np.int32), kind)
    raw = value.encode()
    offsets = np.array([0, len(raw)], np.int32)
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])
    return pa.repeat(text[0], count)


def _make_positions(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    return _make_numbers(found.table.positions, kind)


def _make_own_faults(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    return _make_faults(found.table["fault"], 0, list_declared_faults(found.table)[:1], kind)


def _make_innermost_faults(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    faults, levels = find_innermost_faults(found.table)
    return _make_faults(faults, levels, list_declared_faults(found.table), kind)


def _read_numbers(found: FoundColumn, context: _Context) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the numbers of a column, and which of them are null: see `FoundColumn`."""
    is_own = found.parents is None
    has_bad_rows = context.has_bad_rows if is_own else context.has_bad_outer_rows
    return found.read_numbers_and_nulls(has_bad_rows=has_bad_rows)


def _make_number_column(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    values, absent = _read_numbers(found, context)
    if values.dtype == np.uint64 and pa.types.is_int64(kind):
        is_unfit = values >> 63 == 1
        absent = is_unfit if absent is None else is_unfit | absent
    return _make_numbers(values, kind, absent)


def _make_flags(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    values, absent = _read_numbers(found, context)
    bitmap = None if absent is None else pa.py_buffer(_pack_bits(~absent))
    bits = pa.py_buffer(_pack_bits(values != 0))
    return pa.Array.from_buffers(kind, len(values), [bitmap, bits])


def _make_names(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    """Return the names of 8-bit numbers. Null where there is no name."""
    names = found.column.declared.number_names
    codes = np.full(256, len(names), np.int32)
    codes[list(names)] = np.arange(len(names))
    numbers, absent = _read_numbers(found, context)
    numbers = np.ascontiguousarray(numbers)
    # No number of 8 bits is outside `codes`, and "wrap" does not look for one.
    mode: Literal["wrap", "raise"] = "wrap" if numbers.dtype.itemsize == 1 else "raise"
    indexes = _make_numbers(codes.take(numbers, mode=mode), pa.int32(), absent)
    return _make_strings([*names.values(), None], found.column.name).take(indexes)


def _make_faults(
    faults: np.ndarray,
    levels: np.ndarray | int,
    declared: list[Mapping[int, FaultMeaning]],
    kind: pa.DataType,
) -> pa.Array:
    """Return the names of faults. Null for 0.

    faults: the numbers, u1.
    levels: for each number, the index in `declared` of the faults of its format.
    declared: the faults that each format declares.
    kind: the Arrow type.
    """
    is_text = pa.types.is_string(kind)
    if is_text and not faults.any():
        return pa.nulls(len(faults), kind)
    # The dictionary is the same in all batches of a format.
    names = list(FAULT_NAMES.values())
    names += {fault.name: 0 for level in declared for fault in level.values()}
    if faults.any():
        codes, names = _find_fault_names(faults, levels, declared, names)
        indexes = _make_numbers(codes, pa.int32(), faults == 0)
    else:
        indexes = pa.nulls(len(faults), pa.int32())
    named_faults = pa.DictionaryArray.from_arrays(indexes, _make_strings(names, "fault"))
    return named_faults.dictionary_decode() if is_text else named_faults


def _find_fault_names(
    faults: np.ndarray,
    levels: np.ndarray | int,
    declared: list[Mapping[int, FaultMeaning]],
    names: list[str],
) -> tuple[np.ndarray, list[str]]:
    """Return the index of each fault's name in a list of names (i4), and that list.

    The list is `names`, and has more names if a number is no fault. The other arguments are those
    of `_make_faults`.
    """
    indexes = {name: index for index, name in enumerate(names)}
    codes_by_level = np.full((len(declared), NUMBERS), -1, np.int32)
    codes_by_level[:, 0] = 0
    for codes_of_level, level in zip(codes_by_level, declared):
        named = {**FAULT_NAMES, **{number: fault.name for number, fault in level.items()}}
        codes_of_level[list(named)] = [indexes[name] for name in named.values()]
    codes = codes_by_level[levels, faults]
    if (codes < 0).any():
        # Rows may come from a user, with numbers that are no faults.
        codes = np.where(codes < 0, np.int32(len(names)) + faults, codes)
        names = [*names, *map(str, range(NUMBERS))]
    return codes, names


def _make_computed_texts(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    """Return the texts that a function computes from the rows."""
    texts, indexes = found.compute_distinct_texts()
    strings = _make_strings(texts, found.column.name)
    if indexes is None:
        return strings
    return strings.take(_make_numbers(indexes, pa.int64()))


def _make_strings(texts: Sequence[str | None], name: str) -> pa.StringArray:
    """Return texts as an Arrow array.

    It does not call `pa.array`, which imports pandas if that is installed.

    name: that of the column.

    Raises ValueError for more than 2 GiB.
    """
    encoded = [b"" if text is None else text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    is_text = np.array([text is not None for text in texts], bool)
    bitmap = None if is_text.all() else pa.py_buffer(_pack_bits(is_text))
    return _join_strings(bitmap, offsets, b"".join(encoded), pa.string(), name)


def _join_strings(
    bitmap: pa.Buffer | None,
    offsets: np.ndarray,
    letters: bytes | np.ndarray,
    kind: pa.DataType,
    name: str,
) -> pa.Array:
    """Return an Arrow array of strings, or of byte strings, which follow each other.

    bitmap: the validity. offsets: int64 array, where each string begins, and the end of the last.
    kind: the type, with 32-bit offsets. name: that of the column.

    Raises ValueError for more than 2 GiB.
    """
    if offsets[-1] > LARGEST:
        raise ValueError(f"{offsets[-1]} bytes in column {name!r}: use smaller batches")
    parts = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(letters)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, parts)


def _make_text(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    """Return text that is padded with zeros. Null where it is empty."""
    values = found.read_numbers()
    texts = np.array(values, f"S{values.dtype.itemsize or 1}")
    sizes = np.char.str_len(texts)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    letters = texts.view(np.uint8).reshape(len(texts), texts.itemsize)
    used = letters[np.arange(texts.itemsize) < sizes[:, None]]
    bitmap = pa.py_buffer(_pack_bits(sizes > 0))
    # The cast refuses what is not UTF-8.
    return _join_strings(bitmap, offsets, used, pa.binary(), found.column.name).cast(kind)


def _make_numbers(
    values: np.ndarray, kind: pa.DataType, absent: np.ndarray | None = None
) -> pa.Array:
    """Return numbers, converted to the width of `kind`.

    A column of rows is copied. Numbers that are contiguous already are not.

    Workers must not load pandas: `pa.array` does, and `to_pandas_dtype` before pyarrow 24.
    """
    if not pa.types.is_primitive(kind):
        return pa.array(values)
    letter = "i"
    if pa.types.is_unsigned_integer(kind):
        letter = "u"
    elif pa.types.is_floating(kind):
        letter = "f"
    is_shared = values.strides == (values.itemsize,)
    values = np.array(values, f"{letter}{kind.bit_width // 8}", copy=None if is_shared else True)
    bitmap = None if absent is None or not absent.any() else pa.py_buffer(_pack_bits(~absent))
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(values)])


def _pack_bits(flags: np.ndarray) -> np.ndarray:
    return np.packbits(flags, bitorder="little")


def _make_times(found: FoundColumn, kind: pa.TimestampType, context: _Context) -> pa.Array:
    values, absent = _read_numbers(found, context)
    values = np.ascontiguousarray(values)
    assert absent is not None  # a time is null where it is `Column.no_time`
    unit = found.column.declared.unit
    if kind.unit != unit and unit == "ns":
        values = values // 1000
    elif kind.unit != unit:
        # A time that does not fit is after the year 294,000 and comes from damage, so it is null.
        absent |= (values > LATEST) | (values < -LATEST)
        values = values * 1000  # overflows only where it is null
    return _make_numbers(values, kind, absent)


def _make_bytes(found: FoundColumn, kind: pa.DataType, context: _Context) -> pa.Array:
    name = found.column.name
    if found.parents is None:
        return _choose_places(found, kind, context).make_place(name, kind)
    # Many rows may have one row around them, such as the records of a batch.
    rows, indexes = found.find_distinct_rows()
    strings = None
    if len(rows) < len(indexes):
        # An error would name a row of `rows`.
        with suppress(ValueError):
            strings = write_places(found.table[rows], [(name, kind)]).make_place(name, kind)
    if strings is None or kind == pa.binary() and _count_bytes(found, rows, indexes) > LARGEST:
        return _choose_places(found, kind, context).make_place(name, kind)
    if kind == BINARY["view"]:
        return _take_views(strings, indexes)
    return strings.take(_make_numbers(indexes, pa.int64()))


def _count_bytes(found: FoundColumn, rows: np.ndarray, indexes: np.ndarray) -> int:
    """Return the bytes of a place in all exported rows. rows, indexes: `find_distinct_rows()`."""
    sizes = np.maximum(found.table[found.column.name + "_size"][rows].astype(np.int64), 0)
    return int(sizes[indexes].sum())


def _take_views(strings: pa.BinaryViewArray, indexes: np.ndarray) -> pa.BinaryViewArray:
    """Return elements of an array of views. Not all versions of pyarrow can take them."""
    validity, views, *data = strings.buffers()
    words = np.frombuffer(views, np.int64).reshape(-1, 2)
    taken = np.take(words, indexes, axis=0)
    bitmap = None
    if strings.null_count:
        is_valid = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
        bitmap = pa.py_buffer(_pack_bits(is_valid[indexes]))
    parts = [bitmap, pa.py_buffer(taken), *data]
    return pa.Array.from_buffers(strings.type, len(indexes), parts)


def _make_number_lists(found: FoundColumn, kind: pa.ListType, context: _Context) -> pa.Array:
    name = found.column.name
    dtype = found.column.dtype
    assert dtype is not None
    return _choose_places(found, kind, context).make_number_lists(name, kind, dtype)


def _choose_places(found: FoundColumn, kind: pa.DataType, context: _Context) -> PlaceColumns:
    """Return the places of the table that has a column, one for each exported row."""
    if found.parents is None and context.places is not None:
        return context.places
    return write_places(found.select_rows(), [(found.column.name, kind)])


def _make_pair_lists(found: FoundColumn, kind: pa.ListType, context: _Context) -> pa.Array:
    """Return the pairs of a list. The child table has them in the order of their parents."""
    table = found.table
    name = found.column.name
    offsets = np.zeros(len(table) + 1, np.int32)
    rows, parents = _select_rows_with_list(table, name)
    if len(rows):
        child = table.format.children[name](parents, errors=context.errors, limits=context.limits)
        np.cumsum(np.bincount(rows[child["parent"]], minlength=len(table)), out=offsets[1:])
        fields = [(field.name, field.type) for field in kind.value_type]
        places = write_places(child, fields)
        parts = [places.make_place(*field) for field in fields]
        pairs = pa.StructArray.from_arrays(parts, fields=list(kind.value_type))
    else:
        pairs = pa.nulls(0, kind.value_type)
    mask = None
    unread = None if isinstance(table, ScannedColumns) else find_rows_without_lists(table)
    if unread is not None and unread.any():
        bits = pa.py_buffer(_pack_bits(unread))
        mask = pa.Array.from_buffers(pa.bool_(), len(table), [None, bits])
    return pa.ListArray.from_arrays(_make_numbers(offsets, pa.int32()), pairs, type=kind, mask=mask)


def _select_rows_with_list(
    table: FrameTable | ScannedColumns, name: str
) -> tuple[np.ndarray, FrameTable]:
    """Return the rows whose list can be read and has pairs: their numbers, and a table."""
    if isinstance(table, ScannedColumns):
        return table.take_rows_with_list(name)
    rows = np.flatnonzero(find_rows_with_list(table, name))
    return rows, table[rows]


# All other kinds are numbers: `_make_number_column`.
MAKERS: Mapping[ColumnKind, Callable[[FoundColumn, Any, _Context], pa.Array]] = {
    ColumnKind.COMPUTED_TEXT: _make_computed_texts,
    ColumnKind.PATH: _make_path_values,
    ColumnKind.PATH_NUMBER: _make_path_values,
    ColumnKind.POSITION: _make_positions,
    ColumnKind.FAULT: _make_own_faults,
    ColumnKind.INNERMOST_FAULT: _make_innermost_faults,
    ColumnKind.PAIRS: _make_pair_lists,
    ColumnKind.BYTES: _make_bytes,
    ColumnKind.NUMBERS: _make_number_lists,
    ColumnKind.TIME: _make_times,
    ColumnKind.FLAG: _make_flags,
    ColumnKind.NAME: _make_names,
    ColumnKind.TEXT: _make_text,
}
