"""Record batches and message sets out of arrays: columns in, bytes out, and no object per record.

`encode_batch` and `encode_message_set` write the same bytes out of Python records; encode.py draws them.
"""
from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from wirescan.core.chunks import chunks_of, is_arrow, nulls_of, numbers
from wirescan.core.strings import ByteStrings
from wirescan.kafka.encode import (
    CREATE, I16, I32, I64, NO_TIMESTAMP, TRANSACTIONAL, codec_of, fit, message_attributes, timestamp_bit)
from wirescan.kafka.write import Columns, Headers, write_batches, write_message_sets

BATCH_BYTES = 1 << 20


def encode_batches(
    values: Any, *, keys: Any = None, timestamps: Any = None, headers: Any = None, select: Any = None,
    base_offset: SupportsIndex = 0, batch_bytes: SupportsIndex = BATCH_BYTES, codec: str = "none",
    level: SupportsIndex | None = None, timestamp_type: str = CREATE, leader_epoch: SupportsIndex = -1,
    producer_id: SupportsIndex = -1, producer_epoch: SupportsIndex = -1, base_sequence: SupportsIndex = -1,
    transactional: bool = False,
) -> memoryview:
    """Record batches of magic 2, one after another, as a read-only memoryview of bytes (for `kafka.scan`, a file's
    write, a socket's send; `bytes()` copies it). Nothing in it refers to the columns.

    values, keys: a place of a table as (table, "value"); an Arrow array or chunked array of binary, string,
        fixed_size_binary, their large and view types, or a dictionary of them; a numpy array of dtype S;
        (offsets, data); a list of bytes and None; or bytes or None for all records alike. See
        `wirescan.core.strings.ByteStrings`.
    timestamps: milliseconds: an array of integers, of datetime64 or of Arrow timestamps (finer units are rounded down;
        NaT and null: it has none), or an integer for all. None: they have none (-1).
    headers: an Arrow array of list<struct<key, value>> or map, or (counts, keys, values): an array of integers, how
        many each record has, and all keys and values, of the kinds of `values`. The headers of a table of records:
        (records["header_count"], (headers, "key"), (headers, "value")).
    select: an array of integers: which rows are written, in this order; None: all. Payloads are copied once.
    base_offset: of the first record; the others follow without gaps, and so do sequences, after 2**31 - 1 from 0 on.
    batch_bytes: in a batch at most, its header among them, before compression; a larger record has a batch of its own.
    Everything else is as in `encode_batch`, for each batch. Without records there is no batch.

    Raises TypeError for an argument of another type; ValueError for one that the format cannot hold, columns of unequal
    length, offsets or views that point outside their data, and, by its row, for a record that is too large or has a
    header without a key.
    """
    number, pack = codec_of(codec, level)
    columns, count = _columns(values, keys, timestamps, headers, select)
    first = _base_offset(base_offset, count)
    sequence = fit(base_sequence, I32, "base_sequence")
    if sequence < -1:
        raise ValueError(f"base_sequence must be from -1 to {I32 - 1}, not {sequence}")
    attributes = timestamp_bit(timestamp_type) | TRANSACTIONAL * bool(transactional) | number
    fields = (first, fit(producer_id, I64, "producer_id"), fit(leader_epoch, I32, "leader_epoch"), sequence,
              attributes, fit(producer_epoch, I16, "producer_epoch"))
    if pack and not count:
        pack(b"")               # is there such a level?
    return write_batches(columns, _batch_bytes(batch_bytes), fields, pack)


def encode_message_sets(
    values: Any, *, magic: SupportsIndex = 1, keys: Any = None, timestamps: Any = None, select: Any = None,
    base_offset: SupportsIndex = 0, batch_bytes: SupportsIndex = BATCH_BYTES, codec: str = "none",
    level: SupportsIndex | None = None, timestamp_type: str = CREATE,
) -> memoryview:
    """Messages of magic 0 or 1, one after another or, with a codec, inside wrappers: a read-only memoryview of bytes.

    batch_bytes: in a wrapper at most, its own header among them, before compression; a larger message has a wrapper of
    its own. Columns, select and base_offset are as in `encode_batches`; magic 0 has no timestamps. Codecs, offsets and
    timestamps of wrappers are as in `encode_message_set`. Raises as these do.
    """
    magic, bit = message_attributes(magic, codec, timestamp_type)
    number, pack = codec_of(codec, level)
    if magic == 0 and timestamps is not None:
        raise ValueError("a message of magic 0 cannot hold a timestamp")
    columns, count = _columns(values, keys, timestamps, None, select)
    first = _base_offset(base_offset, count)
    if pack and first < 0:
        raise ValueError("offsets in a compressed message set must rise, from 0 or more")
    if pack and not count:
        pack(b"")
    return write_message_sets(columns, _batch_bytes(batch_bytes), magic, bit, first, number, pack)


def _base_offset(given: SupportsIndex, count: int) -> int:
    first = fit(given, I64, "base_offset")
    fit(first + max(count - 1, 0), I64, "the last offset")
    return first


def _batch_bytes(given: SupportsIndex) -> int:
    if not 1 <= (most := fit(given, I64, "batch_bytes")) < I32:
        raise ValueError(f"batch_bytes must be from 1 to {I32 - 1}, not {most}")
    return most


class Source:
    """The columns that `encode_batches` takes, read once, for who writes some rows of them after others.

    keys, values: `ByteStrings`. A length: how many records there are. Raises as `encode_batches`.
    """

    def __init__(self, values: Any, keys: Any, timestamps: Any, headers: Any):
        given = {"values": values, "keys": keys}
        self._stamps, self._headers = _milliseconds(timestamps), _headers(headers)
        strings = {name: None if _is_one(one) else _strings(one, name) for name, one in given.items()}
        columns = {**strings, "timestamps": self._stamps if self._stamps.ndim else None, "headers": self._headers}
        counts = {name: len(column) for name, column in columns.items() if column is not None}
        if not counts:
            raise ValueError("no array among values, keys, timestamps and headers says how many records there are")
        if len(set(counts.values())) > 1:
            raise ValueError("columns of unequal length: " + ", ".join(f"{n} {name}" for name, n in counts.items()))
        self._count = next(iter(counts.values()))
        self.values, self.keys = (_strings(one, name, self._count) if strings[name] is None else strings[name]
                                  for name, one in given.items())

    def __len__(self) -> int:
        return self._count

    def columns(self, rows: np.ndarray | None = None) -> Columns:
        """What is to be written: all rows, or those in an int64 array, in its order."""
        stamps, headers = self._stamps, self._headers
        if rows is None:
            return Columns(self.keys, self.values, np.atleast_1d(stamps), headers, None)
        stamps = np.atleast_1d(stamps[rows] if stamps.ndim else stamps)
        return Columns(self.keys.take(rows), self.values.take(rows), stamps,
                       None if headers is None else headers.take(rows), rows)


def _columns(values: Any, keys: Any, timestamps: Any, headers: Any, select: Any) -> tuple[Columns, int]:
    """The columns of the rows to be written, and how many these are."""
    source = Source(values, keys, timestamps, headers)
    if select is None:
        return source.columns(), len(source)
    rows = _integers(select, "select")
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(source):
        raise ValueError(f"select has rows from {rows.min()} to {rows.max()}, and there are {len(source)}")
    return source.columns(rows), len(rows)


def _is_one(given: Any) -> bool:
    return given is None or isinstance(given, (bytes, bytearray, memoryview))


def _strings(given: Any, name: str, count: int | None = None) -> ByteStrings:
    try:
        return ByteStrings(given, count)
    except (TypeError, ValueError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{name}: {error}") from None


def _integers(given: Any, name: str) -> np.ndarray:
    """A copy, of int64."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array: what it hides would be taken")
    array = np.asarray(given)
    if array.shape == (0,):
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64):
        raise TypeError(f"{name} must be integers in an array of one dimension, not {array.dtype} in {array.ndim}")
    return array.astype(np.int64)


def _milliseconds(given: Any) -> np.ndarray:
    """Int64 array of no dimension, for all, or of one."""
    if is_arrow(given):
        return np.concatenate([np.empty(0, np.int64), *map(_of_arrow, chunks_of(given))])
    array = np.asanyarray(NO_TIMESTAMP if given is None else given)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("timestamps: a masked array: give what it hides as nulls of Arrow")
    if array.ndim and array.dtype.kind == "M":
        return _of_datetimes(array)
    return _integers(array, "timestamps") if array.ndim else np.asarray(
        NO_TIMESTAMP if given is None else fit(given, I64, "timestamps"), np.int64)


def _of_datetimes(array: np.ndarray) -> np.ndarray:
    if array.ndim != 1:
        raise TypeError(f"timestamps must be of one dimension, not of {array.ndim}")
    stamps = array.astype("M8[ms]")
    if np.can_cast(array.dtype, stamps.dtype) and ((stamps.astype(array.dtype) != array) & ~np.isnat(array)).any():
        raise ValueError(f"a timestamp of {array.dtype} is no number of milliseconds of 64 bits")
    return np.where(np.isnat(stamps), NO_TIMESTAMP, stamps.view(np.int64))


def _of_arrow(chunk: Any) -> np.ndarray:
    kind = str(chunk.type)
    if not kind.startswith(("timestamp[", "int")):
        raise TypeError(f"timestamps in Arrow are of type timestamp or int64, not {kind}")
    whole, nulls = chunk.cast("int64"), nulls_of(chunk)
    stamps = numbers(whole.buffers()[1], np.int64, whole.offset, len(whole)).copy()
    stamps[nulls] = 0
    if kind.startswith("timestamp["):
        stamps = _of_datetimes(stamps.view(f"M8[{chunk.type.unit}]"))
    stamps[nulls] = NO_TIMESTAMP
    return stamps


def _headers(given: Any) -> Headers | None:
    if given is None:
        return None
    if isinstance(given, tuple) and len(given) == 3:
        counts = _integers(given[0], "the counts of headers")
        total = int(counts.sum())
        keys, values = (_strings(part, name, total) for part, name in
                        zip(given[1:], ("the headers' keys", "the headers' values")))
        return Headers(np.cumsum(counts) - counts, counts, keys, values)
    if not is_arrow(given):
        raise TypeError("headers are an Arrow array of list<struct<key, value>> or map, or (counts, keys, values), "
                        f"not {type(given).__name__}")
    import pyarrow as pa
    starts, counts, parts, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [], 0
    for chunk in chunks_of(given):
        parts.append(_pairs(chunk, pa.types))
        offsets, nulls = chunk.offsets, nulls_of(chunk)
        dtype = np.int64 if pa.types.is_large_list(chunk.type) else np.int32
        ends = numbers(offsets.buffers()[1], dtype, offsets.offset, len(chunk) + 1).astype(np.int64)
        counts.append(np.where(nulls, 0, np.diff(ends)))
        starts.append(np.where(nulls, 0, ends[:-1] + before))
        before += len(chunk.values)
    keys, values = (_strings(pa.chunked_array(column), "headers") for column in zip(*parts)) if parts else (
        ByteStrings([]), ByteStrings([]))
    return Headers(np.concatenate(starts), np.concatenate(counts), keys, values)


def _pairs(chunk: Any, types: Any) -> tuple[Any, Any]:
    """The keys and the values of all pairs in an array of lists; those of a null pair are null."""
    kind = chunk.type
    if types.is_map(kind):
        return tuple(chunk.values.flatten())
    if (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type):
        columns = {field.name: part for field, part in zip(kind.value_type, chunk.values.flatten())}
        if columns.keys() == {"key", "value"}:
            return columns["key"], columns["value"]
    raise TypeError(f"headers in Arrow are of type list<struct<key, value>> or map, not {kind}")
