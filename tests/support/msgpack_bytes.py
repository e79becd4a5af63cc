"""MessagePack in each of its forms, and what the package `msgpack` reads in it."""

import random
import struct
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa

FIXED_EXTENSIONS = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
SIGNED = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
UNSIGNED = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class MisfitError(Exception):
    """A value does not fit its type."""


def encode_size(first: int, size: int, widths: tuple[int, ...], chance: random.Random) -> bytes:
    """Return a size in one of the widths that can hold it. first: the byte of the first width."""
    choices = [i for i, width in enumerate(widths) if size < 1 << 8 * width]
    i = chance.choice(choices)
    return bytes([first + i]) + size.to_bytes(widths[i], "big")


def encode_integer(number: int, chance: random.Random) -> bytes:
    forms = []
    if 0 <= number < 128 or -32 <= number < 0:
        forms.append(bytes([number & 0xFF]))
    for i, width in enumerate((1, 2, 4, 8)):
        for first, layout in ((0xCC, UNSIGNED[width]), (0xD0, SIGNED[width])):
            try:
                forms.append(bytes([first + i]) + struct.pack(layout, number))
            except struct.error:
                continue
    return chance.choice(forms)


def encode(value: Any, chance: random.Random) -> bytes:
    """Return the bytes of a value, in a random form of those that MessagePack has for it.

    A list of pairs in a tuple is a map whose keys may be anything.
    """
    if value is None or isinstance(value, bool):
        return msgpack.packb(value)
    if isinstance(value, int):
        return encode_integer(value, chance)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        raw = value.encode()
        if len(raw) < 32 and chance.random() < 0.5:
            return bytes([0xA0 + len(raw)]) + raw
        return encode_size(0xD9, len(raw), (1, 2, 4), chance) + raw
    if isinstance(value, bytes):
        return encode_size(0xC4, len(value), (1, 2, 4), chance) + value
    if isinstance(value, msgpack.Timestamp):
        return encode_extension(-1, value.to_bytes(), chance)
    if isinstance(value, msgpack.ExtType):
        return encode_extension(value.code, value.data, chance)
    if isinstance(value, list):
        head = bytes([0x90 + len(value)])
        if len(value) > 15 or chance.random() < 0.5:
            head = encode_size(0xDC, len(value), (2, 4), chance)
        return head + b"".join(encode(item, chance) for item in value)
    pairs = list(value.items()) if isinstance(value, dict) else list(value)
    head = bytes([0x80 + len(pairs) & 0xFF])
    if len(pairs) > 15 or chance.random() < 0.5:
        head = encode_size(0xDE, len(pairs), (2, 4), chance)
    return head + b"".join(encode(part, chance) for pair in pairs for part in pair)


def encode_extension(code: int, data: bytes, chance: random.Random) -> bytes:
    kind = struct.pack("b", code)
    if len(data) in FIXED_EXTENSIONS and chance.random() < 0.5:
        return bytes([FIXED_EXTENSIONS[len(data)]]) + kind + data
    return encode_size(0xC7, len(data), (1, 2, 4), chance) + kind + data


class Extension(NamedTuple):
    """An extension other than a timestamp, also of a type below zero, which ExtType refuses."""

    code: int
    data: bytes


class Pairs(list):
    """The pairs of a map."""


def read_with_msgpack(raw: bytes) -> Any:
    """Return a value, with each map as `Pairs`. Raise an error of msgpack.

    A string that is not UTF-8 has surrogates.
    """
    return msgpack.unpackb(
        raw,
        object_pairs_hook=Pairs,
        ext_hook=Extension,
        strict_map_key=False,
        unicode_errors="surrogateescape",
    )


def convert(value: Any, kind: pa.DataType) -> Any:
    """Return what a column of a type has for a value of msgpack. Raise MisfitError for none.

    Times are numbers of their units.
    """
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return convert_struct(value, kind)
    if pa.types.is_map(kind) and isinstance(value, Pairs):
        if any(key is None for key, _ in value):
            raise MisfitError
        keys = [convert(key, kind.key_type) for key, _ in value]
        if len(set(keys)) < len(keys):
            raise MisfitError
        return [(key, convert(item, kind.item_type)) for key, (_, item) in zip(keys, value)]
    if pa.types.is_list(kind) and type(value) is list:
        return [convert(item, kind.value_type) for item in value]
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    return convert_scalar(value, kind)


def convert_scalar(value: Any, kind: pa.DataType) -> Any:
    is_integer = type(value) is int
    if pa.types.is_timestamp(kind):
        return convert_time(value, kind)
    if pa.types.is_integer(kind) and is_integer:
        bounds = np.iinfo(kind.to_pandas_dtype())
        if bounds.min <= value <= bounds.max:
            return value
    elif pa.types.is_floating(kind) and (is_integer or isinstance(value, float)):
        real = float(value)
        if kind == pa.float64():
            return real
        if abs(real) <= float(np.finfo(np.float32).max) or not np.isfinite(real):
            return float(np.float32(real))
    elif pa.types.is_string(kind) and isinstance(value, str):
        if not has_surrogates(value):
            return value
    elif pa.types.is_binary(kind) and isinstance(value, (str, bytes, Extension)):
        if isinstance(value, str):
            return value.encode(errors="surrogateescape")
        return value if isinstance(value, bytes) else value.data
    raise MisfitError


def convert_time(value: Any, kind: pa.TimestampType) -> int:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, msgpack.Timestamp):
        per_second = PER_SECOND[kind.unit]
        limit = (2**63 - 1) // per_second
        if -limit <= value.seconds < limit:
            return value.to_unix_nano() // (10**9 // per_second)
    raise MisfitError


def has_surrogates(text: str) -> bool:
    """Return whether the bytes of a text were not UTF-8."""
    return any(0xDC80 <= ord(character) <= 0xDCFF for character in text)


def convert_struct(value: Any, kind: pa.DataType) -> dict[str, Any]:
    if not isinstance(value, Pairs):
        raise MisfitError
    out: dict[str, Any] = {}
    for key, item in value:
        if type(key) not in (str, int) or has_surrogates(str(key)):
            raise MisfitError
        index = kind.get_field_index(str(key))
        if index >= 0:
            if str(key) in out:
                raise MisfitError
            out[str(key)] = convert(item, kind.field(index).type)
    return {field.name: out.get(field.name) for field in kind}
