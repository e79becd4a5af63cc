"""Arrow arrays of decoded payloads as values of JSON.

Arrow type                      JSON
null, bool, integers, strings   the same
floats                          numbers; NaN, Infinity and -Infinity are texts
decimals                        text, with all digits
binary                          text, or a number, in one of the notations of `value_text`
struct                          object
list                            array
map                             object; an array of {"key", "value"} if the keys are lists, structs
                                or numbers with a fraction. Of equal keys the last one counts
timestamp, date, time           text in ISO 8601; a time zone other than UTC is written as UTC
duration                        text: seconds, such as "1.5s"

A time that has no text in ISO 8601 is its number. Any other type is its text in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from wirescan.frames.optional_packages import name_package
from wirescan.frames.value_text import encode, encode_float

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

MOST_VALUES = 1 << 20  # that are converted at a time, if they belong to several rows
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
SECONDS_PER_DAY = 86_400
TIME_START = len("1970-01-01T")


def iter_json_values(array: pa.Array, encoding: str) -> Iterator[Any]:
    """Yield the values of an array as values of JSON: see the module's table.

    Few rows are converted at a time if they have many values: payloads may be hostile.

    Args:
        array: the values of a decoder.
        encoding: the notation of byte strings, one of `value_text.ENCODINGS`.
    """
    todo = [array]
    while todo:
        part = todo.pop()
        if len(part) < 2 or _count_values(part) <= MOST_VALUES:
            yield from _convert(part, encoding)
            continue
        middle = len(part) // 2
        todo += [part.slice(middle), part.slice(0, middle)]


def _count_values(array: pa.Array) -> int:
    """Return the number of values at all levels of an array."""
    kind = array.type
    count = len(array)
    if pa.types.is_struct(kind):
        count += sum(_count_values(array.field(i)) for i in range(kind.num_fields))
    elif pa.types.is_map(kind):
        count += _count_values(_select_items(array, array.keys))
        count += _count_values(_select_items(array, array.items))
    elif _is_list(kind):
        count += _count_values(_select_items(array, array.values))
    return count


def _convert(array: pa.Array, encoding: str) -> list[Any]:
    """Return the values of an array as values of JSON."""
    kind = array.type
    if _is_plain(kind):
        values: list[Any] = array.to_pylist()
        return values
    if pa.types.is_struct(kind):
        values = _convert_structs(array, encoding)
    elif pa.types.is_map(kind):
        values = _convert_maps(array, encoding)
    elif _is_list(kind):
        items = _convert(_select_items(array, array.values), encoding)
        values = _cut(array, items)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        values = _format_times(array)
    elif pa.types.is_duration(kind):
        numbers = _read_numbers(array).tolist()
        values = [_format_duration(number, kind.unit) for number in numbers]
    else:
        return [
            None if value is None else _convert_value(value, kind, encoding)
            for value in array.to_pylist()
        ]
    if not array.null_count:
        return values
    is_valid = array.is_valid().to_pylist()
    return [value if valid else None for value, valid in zip(values, is_valid)]


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether Python's values of an Arrow type are values of JSON."""
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return is_text or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _select_items(array: pa.Array, items: pa.Array) -> pa.Array:
    """Return the items between the first and the last offset of an array of lists or maps."""
    if not len(array):
        return items.slice(0, 0)
    first = array.offsets[0].as_py()
    return items.slice(first, array.offsets[-1].as_py() - first)


def _cut(array: pa.Array, items: Sequence[Any]) -> list[Any]:
    """Return the items of each list, or map, of an array."""
    if not len(array):
        return []
    offsets = array.offsets.to_numpy()
    return [items[start:stop] for start, stop in pairwise((offsets - offsets[0]).tolist())]


def _convert_structs(array: pa.Array, encoding: str) -> list[dict[str, Any]]:
    kind = array.type
    names = [kind.field(i).name for i in range(kind.num_fields)]
    if not names:
        return [{} for _ in range(len(array))]
    columns = [_convert(array.field(i), encoding) for i in range(len(names))]
    return [dict(zip(names, row)) for row in zip(*columns)]


def _convert_maps(array: pa.Array, encoding: str) -> list[Any]:
    keys = _select_items(array, array.keys)
    items = _convert(_select_items(array, array.items), encoding)
    entries = _cut(array, list(zip(_convert(keys, encoding), items)))
    if _is_plain(keys.type) or _is_binary(keys.type):
        return [{_format_key(key): item for key, item in pairs} for pairs in entries]
    return [[dict(zip(("key", "value"), pair)) for pair in pairs] for pairs in entries]


def _format_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _convert_value(value: Any, kind: pa.DataType, encoding: str) -> Any:
    """Return one value of a type that is neither plain nor nested nor a time."""
    if _is_binary(kind):
        return encode(value, encoding)
    if pa.types.is_decimal(kind):
        return format(value, "f")
    if not pa.types.is_floating(kind):
        return str(value)
    number = encode_float(value)
    if isinstance(number, str) or not pa.types.is_float32(kind):
        return number
    # The shortest text that gives the same float of this size.
    return float(str(np.float32(value)))


def _read_numbers(array: pa.Array) -> np.ndarray:
    """Return an array of times as int64; 0 for null."""
    whole = pa.int64() if array.type.bit_width == 64 else pa.int32()
    numbers: np.ndarray = array.view(whole).fill_null(0).to_numpy().astype(np.int64)
    return numbers


def _format_times(array: pa.Array) -> list[Any]:
    """Return timestamps, dates and times of day as text in ISO 8601."""
    kind = array.type
    numbers = _read_numbers(array)
    if pa.types.is_date(kind):
        days = numbers if pa.types.is_date32(kind) else numbers // (SECONDS_PER_DAY * 1_000)
        return _format_instants(days, "D", "naive")
    if pa.types.is_timestamp(kind):
        return _format_instants(numbers, kind.unit, "naive" if kind.tz is None else "UTC")
    in_day = (numbers >= 0) & (numbers < SECONDS_PER_DAY * PER_SECOND[kind.unit])
    texts = _format_instants(np.where(in_day, numbers, 0), kind.unit, "naive")
    return [
        text[TIME_START:] if is_time else number
        for text, is_time, number in zip(texts, in_day.tolist(), numbers.tolist())
    ]


def _format_instants(numbers: np.ndarray, unit: str, zone: Literal["naive", "UTC"]) -> list[Any]:
    """Return numbers of a unit since 1970 as text; one that numpy has no text for is unchanged."""
    instants = numbers.view(f"M8[{unit}]")
    texts = np.datetime_as_string(instants, timezone=zone).tolist()
    return [
        number if is_unknown else text
        for text, is_unknown, number in zip(texts, np.isnat(instants).tolist(), numbers.tolist())
    ]


def _format_duration(number: int, unit: str) -> str:
    """Return a duration as seconds with all digits, such as "-1.5s"."""
    per_second = PER_SECOND[unit]
    seconds, rest = divmod(abs(number), per_second)
    digits = f"{rest:0{len(str(per_second)) - 1}}".rstrip("0") if rest else ""
    sign = "-" if number < 0 else ""
    return f"{sign}{seconds}{'.' if digits else ''}{digits}s"
