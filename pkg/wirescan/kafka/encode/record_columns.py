"""Encode record batches and message sets from arrays, without a Python object for each record.

The package wirescan.kafka exports `encode_batches` and `encode_message_sets`. The producer in
client/ uses `Source`. `encode_batch` and `encode_message_set` write the same bytes from Python
records.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from wirescan.core.arguments import (
    I16,
    I32,
    I64,
    check_integer,
    convert_strings,
    convert_times,
    read_arrow_lists,
)
from wirescan.core.arrow_input import find_nulls, is_arrow, list_chunks, read_numbers
from wirescan.core.strings import ByteStrings
from wirescan.kafka.encode.records import (
    CREATE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    check_message_attributes,
    find_codec,
    get_timestamp_bit,
)
from wirescan.kafka.encode.writer import Columns, Headers, write_batches, write_message_sets

BATCH_BYTES = 1 << 20  # the default most bytes of a batch, before compression


def encode_batches(
    values: Any,
    *,
    keys: Any = None,
    timestamps: Any = None,
    headers: Any = None,
    select: Any = None,
    base_offset: SupportsIndex = 0,
    batch_bytes: SupportsIndex = BATCH_BYTES,
    codec: str = "none",
    level: SupportsIndex | None = None,
    timestamp_type: str = CREATE,
    leader_epoch: SupportsIndex = -1,
    producer_id: SupportsIndex = -1,
    producer_epoch: SupportsIndex = -1,
    base_sequence: SupportsIndex = -1,
    transactional: bool = False,
) -> memoryview:
    """Encode record batches of magic 2 from columns, and return them as a read-only memoryview.

    The batches follow one another in the buffer. It fits `kafka.scan`, a file's write and a
    socket's send; `bytes()` copies it. It does not refer to the columns.

    values, keys: one string for each record, in one of these forms:
        a place of a table as (table, "value");
        an Arrow array or chunked array of binary, string, fixed_size_binary, their large and view
        types, or a dictionary of them;
        a numpy array of dtype S; (offsets, data); a list of bytes and None;
        or bytes or None, for all records. See `wirescan.core.strings.ByteStrings`.
    timestamps: milliseconds, as an array of integers, datetime64 or Arrow timestamps, or as one
        integer for all records. Finer units are rounded down. NaT and null mean no timestamp.
        None: no record has a timestamp (-1).
    headers: an Arrow array of list<struct<key, value>> or map, or a tuple (counts, keys, values).
        counts is an array of integers, the number of headers of each record. keys and values hold
        the strings of all headers, in a form that `values` accepts. For the headers of a table of
        records: (records["header_count"], (headers, "key"), (headers, "value")).
    select: an array of integers, the rows to write, in this order. None: all rows. Payloads are
        copied once.
    base_offset: the offset of the first record. The other offsets follow without gaps.
    base_sequence: the sequence of the first record. The others follow without gaps; 0 follows
        2**31 - 1.
    batch_bytes: the most bytes of a batch with its header, before compression. A larger record has
        a batch of its own.
    The other arguments are those of `encode_batch` and apply to each batch. Without records there
    is no batch.

    Raises TypeError for an argument of another type. Raises ValueError for an argument that the
    format cannot hold, for columns of unequal length, and for offsets or views that point outside
    their data. Raises ValueError, with the row, for a record that is too large or has a header
    without a key.
    """
    number, pack = find_codec(codec, level)
    columns, count = _select_columns(values, keys, timestamps, headers, select)
    first = _check_base_offset(base_offset, count)
    sequence = check_integer(base_sequence, "base_sequence", (-1, I32[1]))
    attributes = get_timestamp_bit(timestamp_type) | TRANSACTIONAL * bool(transactional) | number
    fields = (
        first,
        check_integer(producer_id, "producer_id", I64),
        check_integer(leader_epoch, "leader_epoch", I32),
        sequence,
        attributes,
        check_integer(producer_epoch, "producer_epoch", I16),
    )
    if pack and not count:
        pack(b"")  # raises ValueError if the codec has no such level
    return write_batches(columns, _check_batch_bytes(batch_bytes), fields, pack)


def encode_message_sets(
    values: Any,
    *,
    magic: SupportsIndex = 1,
    keys: Any = None,
    timestamps: Any = None,
    select: Any = None,
    base_offset: SupportsIndex = 0,
    batch_bytes: SupportsIndex = BATCH_BYTES,
    codec: str = "none",
    level: SupportsIndex | None = None,
    timestamp_type: str = CREATE,
) -> memoryview:
    """Encode messages of magic 0 or 1 from columns, and return them as a read-only memoryview.

    The messages follow one another in the buffer. With a codec they are inside wrappers.
    batch_bytes: the most bytes of a wrapper with its own header, before compression. A larger
    message has a wrapper of its own.
    The columns, select and base_offset are those of `encode_batches`. Magic 0 has no timestamps.
    Codecs, offsets and timestamps of wrappers are those of `encode_message_set`.
    Raises as these functions do.
    """
    magic, bit = check_message_attributes(magic, codec, timestamp_type)
    number, pack = find_codec(codec, level)
    if magic == 0 and timestamps is not None:
        raise ValueError("a message of magic 0 cannot hold a timestamp")
    columns, count = _select_columns(values, keys, timestamps, None, select)
    first = _check_base_offset(base_offset, count)
    if pack and first < 0:
        raise ValueError("offsets in a compressed message set must rise, from 0 or more")
    if pack and not count:
        pack(b"")
    return write_message_sets(
        columns, _check_batch_bytes(batch_bytes), magic, bit, first, number, pack
    )


def _check_base_offset(base_offset: SupportsIndex, count: int) -> int:
    first = check_integer(base_offset, "base_offset", I64)
    check_integer(first + max(count - 1, 0), "the last offset", I64)
    return first


def _check_batch_bytes(batch_bytes: SupportsIndex) -> int:
    return check_integer(batch_bytes, "batch_bytes", (1, I32[1]))


class Source:
    """The columns that `encode_batches` accepts, converted once and written in several steps.

    keys, values: `ByteStrings`. The length is the number of records. Raises as `encode_batches`.
    """

    keys: ByteStrings
    values: ByteStrings

    def __init__(self, values: Any, keys: Any, timestamps: Any, headers: Any):
        self._stamps = _convert_times(timestamps)
        self._headers = _convert_headers(headers)
        value_column = None if _is_scalar(values) else convert_strings(values, "values")
        key_column = None if _is_scalar(keys) else convert_strings(keys, "keys")
        columns = {
            "values": value_column,
            "keys": key_column,
            "timestamps": self._stamps if self._stamps.ndim else None,
            "headers": self._headers,
        }
        counts = {name: len(column) for name, column in columns.items() if column is not None}
        if not counts:
            raise ValueError(
                "one of values, keys, timestamps and headers must be an array: "
                "the number of records is its length"
            )
        if len(set(counts.values())) > 1:
            raise ValueError(
                "columns of unequal length: "
                + ", ".join(f"{count} {name}" for name, count in counts.items())
            )
        self._count = next(iter(counts.values()))
        if value_column is None:
            value_column = convert_strings(values, "values", self._count)
        if key_column is None:
            key_column = convert_strings(keys, "keys", self._count)
        self.values = value_column
        self.keys = key_column

    def __len__(self) -> int:
        return self._count

    def make_columns(self, rows: np.ndarray | None = None) -> Columns:
        """Return all rows, or those in `rows`, an int64 array of row numbers, in its order."""
        stamps = self._stamps
        headers = self._headers
        if rows is None:
            return Columns(self.keys, self.values, np.atleast_1d(stamps), headers, None)
        stamps = np.atleast_1d(stamps[rows] if stamps.ndim else stamps)
        return Columns(
            self.keys.take(rows),
            self.values.take(rows),
            stamps,
            None if headers is None else headers.take(rows),
            rows,
        )


def _select_columns(
    values: Any, keys: Any, timestamps: Any, headers: Any, select: Any
) -> tuple[Columns, int]:
    """Return the columns of the rows to write, and the number of these rows."""
    source = Source(values, keys, timestamps, headers)
    if select is None:
        return source.make_columns(), len(source)
    rows = _convert_integers(select, "select")
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(source):
        raise ValueError(
            f"select has rows from {rows.min()} to {rows.max()}, "
            f"but there are {len(source)} records"
        )
    return source.make_columns(rows), len(rows)


def _is_scalar(value: Any) -> bool:
    """Return whether an argument is one string, or null, for all records."""
    return value is None or isinstance(value, (bytes, bytearray, memoryview))


def _convert_integers(column: Any, name: str) -> np.ndarray:
    """Return a copy as an int64 array of one dimension."""
    if isinstance(column, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: its mask would be ignored")
    array = np.asarray(column)
    if array.shape == (0,):
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64):
        raise TypeError(
            f"{name} must be integers in an array of one dimension, not {array.dtype} in "
            f"{array.ndim} dimensions"
        )
    return array.astype(np.int64)


def _convert_times(timestamps: Any) -> np.ndarray:
    """Return an int64 array: of one dimension, or of none if one timestamp is for all records."""
    if timestamps is None:
        return np.asarray(NO_TIMESTAMP, np.int64)
    if is_arrow(timestamps):
        return np.concatenate([np.empty(0, np.int64), *map(_from_arrow, list_chunks(timestamps))])
    array = np.asanyarray(timestamps)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("timestamps must not be a masked array: use an Arrow array with nulls")
    if array.ndim == 0:
        return np.asarray(check_integer(timestamps, "timestamps", I64), np.int64)
    if array.dtype.kind == "M":
        return _from_datetimes(array)
    return _convert_integers(array, "timestamps")


def _from_datetimes(array: np.ndarray) -> np.ndarray:
    if array.ndim != 1:
        raise TypeError(f"timestamps must have one dimension, not {array.ndim}")
    return convert_times(array, "timestamps", "ms", NO_TIMESTAMP)


def _from_arrow(chunk: Any) -> np.ndarray:
    kind = str(chunk.type)
    if not kind.startswith(("timestamp[", "int")):
        raise TypeError(f"timestamps in Arrow must be of type timestamp or int64, not {kind}")
    integers = chunk.cast("int64")
    nulls = find_nulls(chunk)
    stamps = read_numbers(integers.buffers()[1], np.int64, integers.offset, len(integers)).copy()
    stamps[nulls] = 0
    if kind.startswith("timestamp["):
        stamps = _from_datetimes(stamps.view(f"M8[{chunk.type.unit}]"))
    stamps[nulls] = NO_TIMESTAMP
    return stamps


def _convert_headers(headers: Any) -> Headers | None:
    if headers is None:
        return None
    if isinstance(headers, tuple) and len(headers) == 3:
        counts = _convert_integers(headers[0], "the counts of headers")
        total = int(counts.sum())
        keys = convert_strings(headers[1], "the headers' keys", total)
        values = convert_strings(headers[2], "the headers' values", total)
        return Headers(np.cumsum(counts) - counts, counts, keys, values)
    if not is_arrow(headers):
        raise TypeError(
            "headers must be an Arrow array of list<struct<key, value>> or map, or a tuple "
            f"(counts, keys, values), not {type(headers).__name__}"
        )
    return Headers(*read_arrow_lists(headers))
