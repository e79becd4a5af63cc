"""Tables to Arrow. Places become binary columns, as views into the buffers or gathered; imports pyarrow.

    column of the table            in Arrow                               for Spark (types="spark")
    i1 i2 i4 i8                    int8 int16 int32 int64                 the same
    u1 u2 u4 u8                    uint8 uint16 uint32 uint64             int16 int32 int64 int64, beyond is null
    is_...                         bool                                   bool
    kind, where it has names       string                                 string
    S<n>, text padded with zeros   string, empty is null                  the same
    milliseconds (Format.times)    timestamp[ms, UTC], -1 is null         timestamp[us, UTC], -1 is null
    nanoseconds                    timestamp[ns, UTC], 0 is null          timestamp[us, UTC], rounded down
    <name>_at, <name>_size         <name>: binary_view, or as `binary`    binary
    a place of numbers             list of them                           the same
    a list of pairs (`headers`)    list<struct<key, value>>               the same
    _file, _start                  string, int64: the file, and the offset in it of the outermost frame
    _fault                         string: what is wrong with the frame, or with one around it; null: nothing
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from wirescan.catalog import FAULT, FILE, START, Format, format_of
from wirescan.core.gather import Places
from wirescan.core.loop import HEAD
from wirescan.errors import FrameError
from wirescan.filters import FAULTS, faults_of
from wirescan.limits import Limits
from wirescan.pieces import PIECE, iter_tables
from wirescan.table import FrameTable, places

BINARY = {"view": pa.binary_view(), "binary": pa.binary(), "large_binary": pa.large_binary()}
TYPES = ("arrow", "spark")
EXPORTED = {FILE: pa.string(), START: pa.int64(), FAULT: pa.string()}
WIDER = {"u1": pa.int16(), "u2": pa.int32(), "u4": pa.int64(), "u8": pa.int64()}
LATEST = (2**63 - 1) // 1000        # milliseconds that are still microseconds in 64 bits
LARGEST = (1 << 31) - 1             # bytes in one binary column of 32-bit offsets
BATCH_BYTES = PIECE
BATCH_ROWS = 1 << 16                # in one batch at most: what the JVM handles best


def columns_of(format: str | Format) -> list[str]:
    """The columns that a format has in Arrow unless others are asked for: its own ones, and `fault`."""
    return (format_of(format) if isinstance(format, str) else format).columns


def schema(format: str | Format, columns: Sequence[str] | None = None, *, binary: str = "view",
           types: str = "arrow") -> pa.Schema:
    """The Arrow schema of a format, or of some of its columns, in their order.

    columns: names of `columns_of`, of any column of the row or of the frames that enclose it, `_file`, `_start`,
    `_fault`.
    binary: "view", "binary" or "large_binary". types: "arrow", or "spark" (which has no unsigned integers, no views).
    Raises ValueError for an unknown name, or an unknown value of `binary` or `types`.
    """
    format = format_of(format) if isinstance(format, str) else format
    if types not in TYPES:
        raise ValueError(f"types must be one of {', '.join(TYPES)}, not {types!r}")
    if binary not in BINARY:
        raise ValueError(f"binary must be one of {', '.join(BINARY)}, not {binary!r}")
    if types == "spark":
        binary = "binary"
    names = format.columns if columns is None else list(columns)
    return pa.schema([pa.field(name, _type(format, name, BINARY[binary], types)) for name in names])


def to_batch(table: FrameTable, columns: Sequence[str] | None = None, *, binary: str = "view", types: str = "arrow",
             file: str | None = None, errors: str | None = None, limits: Limits = Limits()) -> pa.RecordBatch:
    """A table as one record batch. See `schema` for the arguments; `file` is what the column `_file` says.

    errors: what a fault in a list (of headers, say) does: "mark" makes the bad pair null, "skip" leaves it out; None:
    as in `table.errors`. limits: for the lists. In a bad row bytes are null; numbers are what was read, or zero.

    With "view" nothing of the payload is copied, and the batch keeps the table's buffers alive.
    Raises ValueError for an unknown name, for text that is no UTF-8, or for more than 2 GiB in one column of "binary".
    """
    wanted = schema(format_in(table), columns, binary=binary, types=types)
    try:
        arrays = [_array(table, field, file, errors or table.errors, limits) for field in wanted]
    except FrameError as error:
        error.source = error.source or file
        raise
    if not arrays:                      # no column, but as many rows
        return pa.RecordBatch.from_struct_array(pa.nulls(len(table), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def schema_of(table: FrameTable) -> pa.Schema:
    """The schema of `reader`: every column of the rows, with places and lists as such."""
    return schema(format_in(table), _all_columns(table))


def reader(table: FrameTable, rows: int = 1 << 16) -> pa.RecordBatchReader:
    """A table as a stream of record batches, all columns, payloads as views. It can be read once; ask again.

    rows: in one batch, at most. Raises ValueError for less than one.
    """
    if rows < 1:
        raise ValueError(f"a batch has at least 1 row, not {rows}")
    columns = _all_columns(table)
    parts = (to_batch(table[i:i + rows], columns) for i in range(0, len(table), rows))
    return pa.RecordBatchReader.from_batches(schema_of(table), parts)


def iter_batches(path: str, start: int = 0, stop: int | None = None, *, format: str,
                 columns: Sequence[str] | None = None, batch_bytes: int = BATCH_BYTES, errors: str = "strict",
                 check: bool = True, limits: Limits = Limits(), binary: str = "binary", types: str = "arrow",
                 tail: bool = False, filters: Iterable[tuple[Any, ...]] = ()) -> Iterator[pa.RecordBatch]:
    """The frames of a file between two offsets as record batches of about `batch_bytes`.

    See `pieces.iter_tables` and `schema` for the arguments, and for what is raised."""
    for table in iter_tables(path, start, stop, format=format, piece=batch_bytes, errors=errors, check=check,
                             limits=limits, tail=tail, filters=filters):
        for part in split(table, batch_bytes, columns):
            yield to_batch(part, columns, binary=binary, types=types, file=path, errors=errors, limits=limits)


def split(table: FrameTable, size: int, columns: Sequence[str] | None = None) -> Iterator[FrameTable]:
    """Parts of a table, each of about `size` bytes of frames and of what is gathered from those around them for the
    columns, and of at most BATCH_ROWS rows."""
    return (table[part] for part in parts_of(gathered(table, columns), size))


def parts_of(sizes: np.ndarray, size: int) -> Iterator[slice]:
    """Slices of rows so that the sizes (bytes) of each part make about `size`, one row at the least."""
    ends, first = np.cumsum(sizes, dtype=np.int64), 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + size, "right"))
        last = min(max(last, first + 1), first + BATCH_ROWS)
        yield slice(first, last)
        first = last


def gathered(table: FrameTable, columns: Sequence[str] | None = None) -> np.ndarray:
    """Int64 array: the bytes of each frame, and of the places of enclosing frames that a row has among the columns."""
    total = table["size"].astype(np.int64)
    for name in format_in(table).columns if columns is None else columns:
        rows, parents = table, None
        while name not in rows.places and rows.outer is not None:
            parents = rows["parent"] if parents is None else rows["parent"][parents]
            rows = rows.outer
        if name in rows.places and rows is not table:       # its own ones lie in the row's frame
            sizes = np.maximum(rows[name + "_size"].astype(np.int64), 0)
            total += sizes if parents is None else sizes[parents]
    return total


def format_in(table: FrameTable) -> Format:
    """The format of a table with its columns, which may be more than the format has; a nameless one for none."""
    format = table.format or Format("frames", "", table.dtype, read=FrameTable)
    return format if format.dtype == table.dtype else replace(format, dtype=table.dtype)


def _all_columns(table: FrameTable) -> list[str]:
    format = format_in(table)
    return [*(name for name in HEAD.names if name not in format.columns), *format.local, *format.columns]


def _type(format: Format, name: str, binary: pa.DataType, types: str) -> pa.DataType:
    spark = types == "spark"
    if name in EXPORTED:
        return EXPORTED[name]
    if name in format.lists:
        pairs = format_of(f"{format.name.split('.')[0]}.{name}")
        return pa.list_(pa.struct([(part, binary) for part in places(pairs.dtype)]))
    owner = format.owner(name)
    if owner is None:
        raise ValueError(f"{format.name} has no column {name!r}; it has {', '.join(format.columns)}")
    if name == "kind" and owner.kinds:
        return pa.string()
    if name in owner.numbers:
        return pa.list_(pa.from_numpy_dtype(np.dtype(owner.numbers[name]).newbyteorder("=")))
    if name in places(owner.dtype):
        return binary
    if name in owner.times:
        return pa.timestamp("us" if spark else "ms", tz="UTC")
    if name in owner.nanoseconds:
        return pa.timestamp("us" if spark else "ns", tz="UTC")
    if name.startswith("is_"):
        return pa.bool_()
    kind = owner.dtype[name].str[1:]
    if kind.startswith("S"):
        return pa.string()
    return WIDER[kind] if spark and kind in WIDER else pa.from_numpy_dtype(owner.dtype[name])


def _array(table: FrameTable, field: pa.Field, file: str | None, errors: str, limits: Limits) -> pa.Array:
    name, kind = field.name, field.type
    if name == FILE:
        return pa.nulls(len(table), kind) if file is None else _repeated(file, len(table))
    if name == START:
        return _numbers(table.positions, kind)
    if name == FAULT:
        return _named(faults_of(table), FAULTS)
    if name in format_in(table).lists:
        return _list(table, name, kind, errors, limits)
    rows, parents = table, None
    while name not in rows.dtype.names and name not in rows.places:
        if rows.outer is None:
            raise ValueError(f"column {name!r} is that of an enclosing frame, and this table was opened from none")
        parents = rows["parent"] if parents is None else rows["parent"][parents]
        rows = rows.outer
    if name in rows.places:
        return (_number_lists if pa.types.is_list(kind) else _binary)(
            rows if parents is None else rows[parents], name, kind)
    values = rows[name] if parents is None else rows[name][parents]
    if pa.types.is_timestamp(kind) and name in rows.format.nanoseconds:
        return _numbers(values if kind.unit == "ns" else values // 1000, kind, values == 0)
    if pa.types.is_timestamp(kind):
        return _times(values, kind)
    if pa.types.is_string(kind):
        return _texts(values, name) if values.dtype.kind == "S" else _named(values, rows.format.kinds)
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(_bits(values != 0))])
    beyond = values >> 63 == 1 if values.dtype == np.uint64 and pa.types.is_int64(kind) else None
    return _numbers(values, kind, beyond)


def _repeated(text: str, count: int) -> pa.Array:
    raw = text.encode(errors="backslashreplace")        # a file's name may be no text
    one = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, len(raw)], np.int32)),
                                                 pa.py_buffer(raw)])
    return pa.repeat(one[0], count)


def _named(values: np.ndarray, names: Mapping[int, str]) -> pa.Array:
    """The names of numbers of 8 bits; null for those that have none."""
    codes = np.full(256, len(names), np.int32)
    codes[list(names)] = np.arange(len(names))
    return pa.array([*names.values(), None], pa.string()).take(_numbers(codes[values], pa.int32()))


def _texts(values: np.ndarray, name: str) -> pa.Array:
    """Text that zeros fill up; null where there is none."""
    texts = np.array(values, f"S{values.dtype.itemsize or 1}")
    sizes = np.char.str_len(texts)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if offsets[-1] > LARGEST:
        raise ValueError(f"{offsets[-1]} bytes in column {name!r}: use smaller batches")
    letters = texts.view(np.uint8).reshape(len(texts), texts.itemsize)
    parts = [_bits(sizes > 0), offsets.astype(np.int32), letters[np.arange(texts.itemsize) < sizes[:, None]]]
    return pa.Array.from_buffers(pa.binary(), len(texts), list(map(pa.py_buffer, parts))).cast(pa.string())


def _numbers(values: np.ndarray, kind: pa.DataType, absent: np.ndarray | None = None) -> pa.Array:
    """A copy of numbers of the width of `kind`, or narrower. (`pa.array` imports pandas where there is one.)"""
    if not pa.types.is_primitive(kind):
        return pa.array(values)
    values = np.array(values, np.int64 if pa.types.is_timestamp(kind) else kind.to_pandas_dtype())
    bitmap = None if absent is None or not absent.any() else pa.py_buffer(_bits(~absent))
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(values)])


def _bits(flags: np.ndarray) -> np.ndarray:
    return np.packbits(flags, bitorder="little")


def _times(values: np.ndarray, kind: pa.TimestampType) -> pa.Array:
    values = np.ascontiguousarray(values)
    absent = values == -1
    if kind.unit == "us":
        # What microseconds cannot tell is beyond the year 294,000 and comes from damage: null.
        absent |= (values > LATEST) | (values < -LATEST)
        values = values * 1000                  # wraps where it is null
    return _numbers(values, kind, absent)


def _binary(table: FrameTable, name: str, kind: pa.DataType) -> pa.Array:
    found = Places(table, name)
    validity = found.validity()
    bitmap = None if validity is None else pa.py_buffer(validity)
    if kind == pa.binary_view():
        views, windows = found.views()
        parts = [pa.py_buffer(views), *(pa.py_buffer(window) for window in windows)]
    else:
        if kind == pa.binary() and found.total > LARGEST:
            raise ValueError(f"{found.total} bytes in column {name!r}: use large_binary, or smaller batches")
        parts = [pa.py_buffer(part) for part in found.gathered(kind == pa.large_binary())]
    return pa.Array.from_buffers(kind, len(table), [bitmap, *parts], null_count=found.nulls)


def _number_lists(table: FrameTable, name: str, kind: pa.ListType) -> pa.Array:
    found, dtype = Places(table, name), np.dtype(table.format.numbers[name])
    if found.total > LARGEST:
        raise ValueError(f"{found.total} bytes in column {name!r}: use smaller batches")
    offsets, data = found.gathered(False)
    validity, values = found.validity(), np.frombuffer(data, dtype)
    return pa.Array.from_buffers(
        kind, len(table), [None if validity is None else pa.py_buffer(validity),
                           pa.py_buffer(offsets // np.int32(dtype.itemsize))], null_count=found.nulls,
        children=[_numbers(values, kind.value_type)])


def _list(table: FrameTable, name: str, kind: pa.ListType, errors: str, limits: Limits) -> pa.Array:
    """Pairs in lists: the child table has them in the order of their parents."""
    offsets = np.zeros(len(table) + 1, np.int32)
    have = np.flatnonzero((table[table.format.lists[name]] > 0) & ~table.bad)
    if len(have):
        child = table.format.children[name](table[have], errors=errors, limits=limits)
        np.cumsum(np.bincount(have[child["parent"]], minlength=len(table)), out=offsets[1:])
        parts = [_binary(child, field.name, field.type) for field in kind.value_type]
        pairs = pa.StructArray.from_arrays(parts, fields=list(kind.value_type))
    else:
        pairs = pa.nulls(0, kind.value_type)
    return pa.ListArray.from_arrays(_numbers(offsets, pa.int32()), pairs, type=kind)
