"""Conversion of the encoders' arguments to the arrays that their loops read.

The arguments are numbers, byte strings and header pairs, as single values or as columns; and `tls`
of the clients. The encoders of the protocol packages and their clients use this module.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wirescan.core.arrow_input import find_nulls, is_arrow, list_chunks, read_numbers
from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings

if TYPE_CHECKING:
    import ssl

LONGEST = (1 << 31) - 1  # maximum bytes in a string
# Inclusive bounds of integer types.
I16 = (-1 << 15, (1 << 15) - 1)
I32 = (-1 << 31, (1 << 31) - 1)
I64 = (-1 << 63, (1 << 63) - 1)
U64 = (0, (1 << 64) - 1)
UNIT_NAMES = {"ms": "milliseconds", "ns": "nanoseconds"}

BYTES_LIKE = (bytes, bytearray, memoryview)


def check_integer(value: Any, name: str, bounds: tuple[int, int]) -> int:
    """Return an integer that is within bounds.

    name: what messages call the argument. bounds: (minimum, maximum), both inclusive.
    Raises TypeError for an object that is no integer, ValueError for a number outside the bounds.
    """
    try:
        number = operator.index(value)  # a Python int: its sums do not wrap, unlike numpy's
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r:.80}") from None
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{name} must be from {bounds[0]} to {bounds[1]}, not {number}")
    return number


def check_host(host: str) -> None:
    """Raise ValueError for a name that no host can have, such as one with an empty part.

    Raises TypeError for what is no str.
    """
    if not isinstance(host, str):
        raise TypeError(f"host must be a str, not {type(host).__name__}")
    try:
        host.encode("idna")  # as sockets encode it
    except UnicodeError as error:
        reason = error.__cause__ or error
        raise ValueError(f"{host!r:.80} is no name of a host: {reason}") from None


def to_tls_context(tls: Any) -> ssl.SSLContext | None:
    """Return the ssl.SSLContext for the argument `tls` of a client, or None without TLS.

    tls: None or False; True, which trusts the authorities of the system; a file of trusted
        authorities (PEM); or an ssl.SSLContext.
    Raises OSError for a file that cannot be read or has no certificate, TypeError for other
    arguments.
    """
    if tls is None or tls is False:
        return None
    import ssl  # late: clients without TLS start quicker

    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is not True and not isinstance(tls, (str, os.PathLike)):
        raise TypeError(
            f"tls must be None, True, a path or an ssl.SSLContext, not {type(tls).__name__}"
        )
    return ssl.create_default_context(cafile=None if tls is True else os.fspath(tls))


def to_bytes(value: Any, name: str) -> bytes:
    """Return the bytes of a bytes-like object, or of str in UTF-8.

    name: what messages call the argument.
    Raises TypeError for another object, ValueError for a surrogate and for 2 GiB or more.
    """
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name} has a surrogate at {error.start}, which UTF-8 cannot encode"
            ) from None
    if not isinstance(value, BYTES_LIKE):
        raise TypeError(f"{name} must be bytes or str, not {type(value).__name__}")
    data = bytes(value)
    if len(data) > LONGEST:
        raise ValueError(f"{name} has {len(data)} bytes, and at most {LONGEST} are possible")
    return data


def list_pairs(headers: Any) -> list[tuple[bytes, Any]]:
    """Return the pairs of a mapping, or of an iterable of (key, value), with keys as bytes.

    Raises TypeError for anything else, and for a key that is neither bytes-like nor str.
    """
    if isinstance(headers, (*BYTES_LIKE, str)) or not isinstance(headers, Iterable):
        raise TypeError(
            f"headers are a mapping or pairs (key, value), not {type(headers).__name__}"
        )
    pairs = []
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a header is (key, value), not {pair!r:.80}")
        pairs.append((to_bytes(pair[0], "a header's key"), pair[1]))
    return pairs


def convert_columns(
    columns: dict[str, Any], headers: Any = None
) -> tuple[dict[str, Any], Pairs | None]:
    """Return columns of equal length by their names, and the headers as pairs.

    columns: by name, one of
      `Bounded`          a column of numbers; it becomes the array of `convert_numbers`
      byte strings       any source of `ByteStrings`; it becomes `ByteStrings`
      one value          a bytes-like object, str or None, which is repeated for all rows; it
                         becomes `ByteStrings`
    headers: None; a mapping or list of (key, column); (counts, keys, values); or an Arrow array of
        lists or maps.

    Raises TypeError for anything else. Raises ValueError for values that do not fit, for columns of
    unequal length, and where no column gives the number of rows.
    """
    converted = {
        name: convert_numbers(value, name)
        if isinstance(value, Bounded)
        else _convert_string_column(value, name)
        for name, value in columns.items()
    }
    lists: Pairs | None = None
    keys: list[bytes] = []
    header_columns: list[tuple[str, ByteStrings | bytes | None]] = []
    if isinstance(headers, (Mapping, list)):
        for key, value in list_pairs(headers):
            name = f"header {key!r:.80}"
            keys.append(key)
            header_columns.append((name, _convert_string_column(value, name)))
    elif headers is not None:
        lists = _convert_header_lists(headers)
    count = _count_rows([*converted.items(), *header_columns, ("headers", lists)])
    if header_columns:
        lists = Pairs.of_columns(
            keys, [_repeat(value, count) for _, value in header_columns], count
        )
    return {
        name: value if isinstance(value, np.ndarray) else _repeat(value, count)
        for name, value in converted.items()
    }, lists


def _count_rows(columns: Iterable[tuple[str, Any]]) -> int:
    """Return the length of the columns that have one. Raises ValueError where it is not unique."""
    counts = [
        (name, len(column))
        for name, column in columns
        if isinstance(column, (ByteStrings, Pairs))
        or (isinstance(column, np.ndarray) and column.ndim)
    ]
    if not counts:
        raise ValueError("no column says how many rows there are")
    if len({count for _, count in counts}) > 1:
        raise ValueError(
            "columns of unequal length: "
            + ", ".join(f"{count} in {name}" for name, count in counts)
        )
    return counts[0][1]


def _convert_string_column(source: Any, name: str) -> ByteStrings | bytes | None:
    """Return a column of byte strings, or one value for all rows."""
    if source is None:
        return None
    if isinstance(source, (*BYTES_LIKE, str)):
        return to_bytes(source, name)
    return convert_strings(source, name)


def _repeat(value: ByteStrings | bytes | None, count: int) -> ByteStrings:
    return value if isinstance(value, ByteStrings) else ByteStrings(value, count)


class Bounded:
    """A column of numbers, and the (minimum, maximum) that they may have."""

    def __init__(self, values: Any, bounds: tuple[int, int]):
        self.values = values
        self.bounds = bounds


def convert_numbers(column: Bounded, name: str) -> np.ndarray:
    """Return the numbers of a column as a new int64 array.

    column: one of
      integers           an array, or an Arrow array, whose nulls become 0
      times              an array of datetime64, or Arrow timestamps; they become nanoseconds since
                         1970, NaT and null become 0
      one integer        the result has no dimension
      None               0
    name: what messages call the column.

    Numbers above 2**63 - 1 are stored as their two's complement.
    Raises TypeError for anything else, ValueError for a number outside the bounds.
    """
    values = column.values
    minimum, maximum = column.bounds
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: a masked array is not accepted; give masked values as 0, or as nulls of Arrow"
        )
    if is_arrow(values):
        chunks = [_convert_arrow_numbers(chunk, name) for chunk in list_chunks(values)]
        array = np.concatenate(chunks) if chunks else np.empty(0, np.int64)
    else:
        try:
            array = np.asarray(0 if values is None else values)
        except ValueError:  # lists of unequal lengths
            raise TypeError(
                f"{name} must be integers in an array of one dimension, "
                f"not {type(values).__name__} of sequences"
            ) from None
        if array.ndim == 0 and array.dtype.kind != "M":
            number = check_integer(0 if values is None else values, name, column.bounds)
            return np.asarray(number if number < 1 << 63 else number - (1 << 64), np.int64)
        if array.dtype.kind == "M":
            array = convert_times(array, name)
    if array.shape == (0,):
        return np.empty(0, np.int64)
    if array.ndim > 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must be integers in an array of one dimension, "
            f"not {array.dtype} in {array.ndim}"
        )
    for number in (int(array.min()), int(array.max())):
        if not minimum <= number <= maximum:
            raise ValueError(f"{name} must be from {minimum} to {maximum}, not {number}")
    return array.astype(np.uint64 if array.dtype.kind == "u" else np.int64).view(np.int64)


def convert_times(array: np.ndarray, name: str, unit: str = "ns", null: int = 0) -> np.ndarray:
    """Return an array of datetime64 as int64 numbers since 1970. Finer units are rounded down.

    name: what messages call the array. unit: that of the numbers, as in `UNIT_NAMES`. null: the
    number for NaT.
    Raises ValueError where a time does not fit.
    """
    stamps = array.astype(f"M8[{unit}]")
    if (
        np.datetime_data(array.dtype)[0] != "generic"
        and np.can_cast(array.dtype, stamps.dtype)
        and ((stamps.astype(array.dtype) != array) & ~np.isnat(array)).any()
    ):
        raise ValueError(
            f"{name}: a time of {array.dtype} does not fit in 64 bits of {UNIT_NAMES[unit]}"
        )
    return np.where(np.isnat(stamps), null, stamps.view(np.int64))


def _convert_arrow_numbers(chunk: Any, name: str) -> np.ndarray:
    """Return the integers or timestamps of an Arrow array as a new array."""
    kind = str(chunk.type)
    is_time = kind.startswith("timestamp[")
    if not is_time and not kind.startswith(("int", "uint")):
        raise TypeError(f"{name} in Arrow are integers or timestamps, not {kind}")
    dtype = "int64" if is_time else kind
    integers = chunk.cast(dtype)
    array = read_numbers(integers.buffers()[1], dtype, integers.offset, len(integers)).copy()
    array[find_nulls(chunk)] = 0
    return convert_times(array.view(f"M8[{chunk.type.unit}]"), name) if is_time else array


def convert_strings(source: Any, name: str, count: int | None = None) -> ByteStrings:
    """Return a column of byte strings. Errors begin with the name of the argument.

    source: any source of `ByteStrings`. count: the number of strings, if one is for all rows.
    """
    try:
        return ByteStrings(source, count)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _convert_header_lists(headers: Any) -> Pairs:
    """Return the pairs of (counts, keys, values), or of an Arrow array of lists or maps."""
    if isinstance(headers, tuple) and len(headers) == 3:
        counts = np.atleast_1d(
            convert_numbers(Bounded(headers[0], (0, LONGEST)), "the counts of headers")
        )
        keys = convert_strings(headers[1], "the headers' keys")
        values = convert_strings(headers[2], "the headers' values")
        return Pairs.of_lists(np.cumsum(counts) - counts, counts, keys, values)
    if not is_arrow(headers):
        raise TypeError(
            "headers are a mapping or list of (key, column), (counts, keys, values), "
            f"or an Arrow array of list<struct<key, value>> or map, not {type(headers).__name__}"
        )
    return Pairs.of_lists(*read_arrow_lists(headers))


class PairLists(NamedTuple):
    """Lists of pairs in one array of all pairs.

    first, counts: int64 arrays, the first pair and the number of pairs of each list.
    keys, values: those of all pairs.
    """

    first: np.ndarray
    counts: np.ndarray
    keys: ByteStrings
    values: ByteStrings


def read_arrow_lists(headers: Any) -> PairLists:
    """Return the pairs of an Arrow array of lists or maps. A null list has no pairs.

    Raises TypeError for an Arrow array of another type.
    """
    import pyarrow as pa

    first = [np.empty(0, np.int64)]
    counts = [np.empty(0, np.int64)]
    keys = []
    values = []
    pairs_before = 0
    for chunk in list_chunks(headers):
        key, value = _split_pairs(chunk, pa.types)
        keys.append(key)
        values.append(value)
        dtype = np.int64 if pa.types.is_large_list(chunk.type) else np.int32
        offsets = chunk.offsets
        ends = read_numbers(offsets.buffers()[1], dtype, offsets.offset, len(chunk) + 1).astype(
            np.int64
        )
        nulls = find_nulls(chunk)
        counts.append(np.where(nulls, 0, np.diff(ends)))
        first.append(np.where(nulls, 0, ends[:-1] + pairs_before))
        pairs_before += len(chunk.values)
    return PairLists(
        np.concatenate(first),
        np.concatenate(counts),
        convert_strings(pa.chunked_array(keys) if keys else [], "headers"),
        convert_strings(pa.chunked_array(values) if values else [], "headers"),
    )


def _split_pairs(chunk: Any, types: Any) -> tuple[Any, Any]:
    """Return the keys and the values of all pairs in an array of lists; null for a null pair.

    types: the module `pyarrow.types`.
    """
    kind = chunk.type
    if types.is_map(kind):
        keys, values = chunk.values.flatten()
        return keys, values
    if (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type):
        fields = dict(zip((field.name for field in kind.value_type), chunk.values.flatten()))
        if fields.keys() == {"key", "value"}:
            return fields["key"], fields["value"]
    raise TypeError(f"headers in Arrow are of type list<struct<key, value>> or map, not {kind}")
