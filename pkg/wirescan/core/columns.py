"""What encoders are given, as what their loops take: numbers and byte strings, one by one or in columns, and header
pairs."""
from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from wirescan.core.chunks import chunks_of, is_arrow, nulls_of, numbers
from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings

LONGEST = (1 << 31) - 1             # bytes in a string
I32, I64, U64 = ((-1 << 31, (1 << 31) - 1), (-1 << 63, (1 << 63) - 1), (0, (1 << 64) - 1))


def integer(given: Any, name: str, bounds: tuple[int, int]) -> int:
    """An integer from the least to the most: TypeError for another object, ValueError outside of them."""
    try:
        number = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {given!r:.80}") from None
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{name} must be from {bounds[0]} to {bounds[1]}, not {number}")
    return number


def octets(given: Any, name: str) -> bytes:
    """The bytes of a bytes-like object, or of str in UTF-8: TypeError for another, ValueError for 2 GiB or more."""
    if isinstance(given, str):
        try:
            given = given.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{name} has a surrogate at {error.start}, which UTF-8 cannot hold") from None
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be bytes or str, not {type(given).__name__}")
    if len(found := bytes(given)) > LONGEST:
        raise ValueError(f"{name} has {len(found)} bytes, and at most {LONGEST} are possible")
    return found


def pairs_of(given: Any) -> list[tuple[bytes, Any]]:
    """The pairs of a mapping, or of an iterable of (key, value), with keys as bytes. TypeError for anything else."""
    if isinstance(given, (bytes, bytearray, memoryview, str)) or not isinstance(given, Iterable):
        raise TypeError(f"headers are a mapping or pairs (key, value), not {type(given).__name__}")
    found = []
    for pair in given.items() if isinstance(given, Mapping) else given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a header is (key, value), not {pair!r:.80}")
        found.append((octets(pair[0], "a header's key"), pair[1]))
    return found


def columns_of(given: dict[str, Any], headers: Any = None) -> tuple[dict[str, Any], Pairs | None]:
    """Columns of equal length, by name, and the headers' pairs.

    given: what `ByteStrings` takes, or one bytes-like object, str or None for all rows, which all become `ByteStrings`;
    or `Bounded`, which becomes what `numbers_of` gives. headers: as `nats.encode_pubs` takes them.
    Raises TypeError for anything else; ValueError for what does not fit, where lengths differ, and where no column says
    how many rows there are.
    """
    columns = {name: _column(one, name) for name, one in given.items()}
    lists, keys, parts = None, [], []
    if isinstance(headers, (Mapping, list)):
        for key, one in pairs_of(headers):
            keys.append(key)
            parts.append((name := f"header {key!r:.80}", _column(one, name)))
    elif headers is not None:
        lists = _lists(headers)
    counts = [(name, len(one)) for name, one in (*columns.items(), *parts, ("headers", lists))
              if isinstance(one, (ByteStrings, Pairs)) or isinstance(one, np.ndarray) and one.ndim]
    if not counts:
        raise ValueError("no column says how many rows there are")
    if len({count for _, count in counts}) > 1:
        raise ValueError("columns of unequal length: " + ", ".join(f"{count} in {name}" for name, count in counts))
    count = counts[0][1]
    columns = {name: _repeated(one, count) for name, one in columns.items()}
    if parts:
        lists = Pairs.of_columns(keys, [_repeated(one, count) for _, one in parts], count)
    return columns, lists


def _column(given: Any, name: str) -> ByteStrings | bytes | np.ndarray | None:
    if isinstance(given, Bounded):
        return numbers_of(given, name)
    if given is None:
        return None
    return octets(given, name) if isinstance(given, (bytes, bytearray, memoryview, str)) else _strings(given, name)


def _repeated(one: Any, count: int) -> ByteStrings | np.ndarray:
    return ByteStrings(one, count) if one is None or isinstance(one, bytes) else one


class Bounded:
    """A column of numbers: what is given, and (least, most)."""

    def __init__(self, given: Any, bounds: tuple[int, int]):
        self.given, self.bounds = given, bounds


def numbers_of(column: Bounded, name: str) -> np.ndarray:
    """A new array of int64, of no dimension for one number; numbers beyond 2**63 - 1 stand as their two's complement.

    An integer, an array of integers, or of Arrow integers, whose nulls are 0; or of datetime64 or Arrow timestamps,
    as nanoseconds since 1970, NaT and null as 0. None is 0.
    Raises TypeError for anything else, ValueError for a number outside the bounds.
    """
    given, (least, most) = column.given, column.bounds
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array: give what it hides as 0, or as nulls of Arrow")
    if is_arrow(given):
        array = np.concatenate([_of_arrow(chunk, name) for chunk in chunks_of(given)] or [[]])
    else:
        array = np.asarray(0 if given is None else given)
        if array.ndim == 0 and array.dtype.kind != "M":
            number = integer(0 if given is None else given, name, column.bounds)
            return np.asarray(number if number < 1 << 63 else number - (1 << 64), np.int64)
        if array.dtype.kind == "M":
            array = _nanoseconds(array, name)
    if array.shape == (0,):
        return np.empty(0, np.int64)
    if array.ndim > 1 or array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers in an array of one dimension, not {array.dtype} in {array.ndim}")
    for number in (int(array.min()), int(array.max())):
        if not least <= number <= most:
            raise ValueError(f"{name} must be from {least} to {most}, not {number}")
    return array.astype(np.uint64 if array.dtype.kind == "u" else np.int64).view(np.int64)


def _nanoseconds(array: np.ndarray, name: str) -> np.ndarray:
    stamps = array.astype("M8[ns]")
    if np.datetime_data(array.dtype)[0] != "generic" and np.can_cast(array.dtype, stamps.dtype) and (
            (stamps.astype(array.dtype) != array) & ~np.isnat(array)).any():
        raise ValueError(f"{name}: a time of {array.dtype} is no number of nanoseconds of 64 bits")
    return np.where(np.isnat(stamps), 0, stamps.view(np.int64))


def _of_arrow(chunk: Any, name: str) -> np.ndarray:
    kind = str(chunk.type)
    if not kind.startswith(("timestamp[", "int", "uint")):
        raise TypeError(f"{name} in Arrow are integers or timestamps, not {kind}")
    dtype = "int64" if kind.startswith("timestamp[") else kind
    whole = chunk.cast(dtype)
    found = numbers(whole.buffers()[1], dtype, whole.offset, len(whole)).copy()
    nulls = nulls_of(chunk)
    found[nulls] = 0
    if kind.startswith("timestamp["):
        found = _nanoseconds(found.view(f"M8[{chunk.type.unit}]"), name)
    return found


def _strings(given: Any, name: str) -> ByteStrings:
    try:
        return ByteStrings(given)
    except (TypeError, ValueError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{name}: {error}") from None


def _lists(given: Any) -> Pairs:
    """The pairs of (counts, keys, values), or of an Arrow array of lists or maps."""
    if isinstance(given, tuple) and len(given) == 3:
        counts = np.atleast_1d(numbers_of(Bounded(given[0], (0, LONGEST)), "the counts of headers"))
        keys, values = (_strings(part, name) for part, name in
                        zip(given[1:], ("the headers' keys", "the headers' values")))
        return Pairs.of_lists(np.cumsum(counts) - counts, counts, keys, values)
    if not is_arrow(given):
        raise TypeError("headers are a mapping or list of (key, column), (counts, keys, values), or an Arrow array of "
                        f"list<struct<key, value>> or map, not {type(given).__name__}")
    import pyarrow as pa
    first, counts, keys, values, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [], [], 0
    for chunk in chunks_of(given):
        key, value = _key_and_value(chunk, pa.types)
        keys.append(key)
        values.append(value)
        dtype = np.int64 if pa.types.is_large_list(chunk.type) else np.int32
        offsets = chunk.offsets
        ends = numbers(offsets.buffers()[1], dtype, offsets.offset, len(chunk) + 1).astype(np.int64)
        nulls = nulls_of(chunk)
        counts.append(np.where(nulls, 0, np.diff(ends)))
        first.append(np.where(nulls, 0, ends[:-1] + before))
        before += len(chunk.values)
    columns = [_strings(pa.chunked_array(column) if column else [], "headers") for column in (keys, values)]
    return Pairs.of_lists(np.concatenate(first), np.concatenate(counts), *columns)


def _key_and_value(chunk: Any, types: Any) -> tuple[Any, Any]:
    """The keys and the values of all pairs in an array of lists; those of a null pair are null."""
    kind = chunk.type
    if types.is_map(kind):
        return tuple(chunk.values.flatten())
    if (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type):
        parts = dict(zip((field.name for field in kind.value_type), chunk.values.flatten()))
        if parts.keys() == {"key", "value"}:
            return parts["key"], parts["value"]
    raise TypeError(f"headers in Arrow are of type list<struct<key, value>> or map, not {kind}")
