"""Encode requests and responses of Kafka's protocol, from mappings with Kafka's field names.

The package wirescan.kafka exports the two functions, and the clients in client/ use them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from wirescan.core.varint import encode_varint
from wirescan.kafka.protocol.schema import (
    API,
    BARE_ARRAYS,
    LENGTHS,
    UUID,
    Field,
    MessageSchema,
    get_api_key,
    get_message,
)

__all__ = ["encode_request", "encode_response"]

# Type in the table of messages -> format of `struct`.
LAYOUTS = {"bool": ">?", "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}
CONTROLLED_SHUTDOWN = 7  # the key of an API; version 0 of its request has no client id
API_VERSIONS = 18  # the key of an API; the header of its response has no tagged fields
NULL_LENGTH = b"\xff\xff\xff\xff"  # -1
NULL_STRUCT = b"\xff"  # -1, in place of a struct
PRESENT_STRUCT = b"\x01"  # before a struct that may be null
Parts = list[bytes | memoryview]


def encode_request(
    api: str | int,
    version: int,
    body: Mapping[str, Any] | None = None,
    *,
    correlation_id: int = 0,
    client_id: str | bytes | None = None,
) -> bytes:
    """Return the bytes of a request, with its size and its header.

    api: the name or the key of an API.
    body: Kafka's field names in snake case, as in api_definitions.py, and their values. Strings are
        str or bytes; uuids are 16 bytes; records are bytes-like; structs are mappings; arrays of
        structs are lists of mappings; arrays of strings and of numbers are lists of these. A
        missing field has its default: that of the table, or null if it may be null, or 0, an empty
        string or an empty array. Tagged fields with their default are not written.

    Raises ValueError for an unknown API or version, for a field that this version does not have
    (unless the value is the default), and for a value that does not fit. Raises TypeError for a
    value of another type.
    """
    key = get_api_key(api)
    message = get_message(API[key].name if key in API else str(key), "request")
    version = message.check(version)
    parts: Parts = [
        struct.pack(">hh", key, version),
        _encode_number("int32", correlation_id, "correlation_id"),
    ]
    if not (key == CONTROLLED_SHUTDOWN and version == 0):
        # The client id is not compact, even in flexible versions.
        _append_sized(parts, "client_id", "string", client_id, nullable=True, flexible=False)
        if version >= message.flexible:
            parts.append(b"\0")
    return _encode_message(parts, message, version, body)


def encode_response(
    api: str | int, version: int, body: Mapping[str, Any] | None = None, *, correlation_id: int = 0
) -> bytes:
    """Return the bytes of a response, with its size and its header.

    The arguments and exceptions are those of `encode_request`.
    """
    key = get_api_key(api)
    message = get_message(API[key].name if key in API else str(key), "response")
    version = message.check(version)
    parts: Parts = [_encode_number("int32", correlation_id, "correlation_id")]
    if version >= message.flexible and key != API_VERSIONS:
        parts.append(b"\0")
    return _encode_message(parts, message, version, body)


def _encode_message(
    parts: Parts, message: MessageSchema, version: int, body: Mapping[str, Any] | None
) -> bytes:
    """Return a message. parts: its header."""
    values = {} if body is None else body
    is_flexible = version >= message.flexible
    _append_struct(parts, message.fields, version, values, "the body", flexible=is_flexible)
    size = sum(map(len, parts))
    return b"".join([_encode_number("int32", size, "the size of the message"), *parts])


def _append_struct(
    parts: Parts,
    fields: tuple[Field, ...],
    version: int,
    values: Mapping[str, Any],
    subject: str,
    *,
    flexible: bool,
) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(f"{subject} must be a mapping of fields, not {type(values).__name__}")
    unknown = set(values) - {field.name for field in fields}
    if unknown:
        names = ", ".join(field.name for field in fields)
        raise ValueError(f"{subject} has no field {min(map(str, unknown))!r}; it has {names}")
    tagged = []
    for field in fields:
        value = values.get(field.name)
        if version not in field.versions:
            if not _is_default(value, field):
                raise ValueError(f"version {version} of {subject} has no field {field.name!r}")
        elif field.tag is not None:
            data = _encode_field(field, version, value, flexible=flexible)
            default = _encode_field(field, version, None, flexible=flexible)
            if value is not None and data != default:
                tagged.append((field.tag, data))
        else:
            _append_field(parts, field, version, value, flexible=flexible)
    if flexible:
        parts.append(encode_varint(len(tagged)))
        for tag, data in sorted(tagged):
            parts += encode_varint(tag), encode_varint(len(data)), data


def _is_default(value: Any, field: Field) -> bool:
    if value is None:
        return True
    return len(value) == 0 if hasattr(value, "__len__") else bool(value == field.default)


def _encode_field(field: Field, version: int, value: Any, *, flexible: bool) -> bytes:
    parts: Parts = []
    _append_field(parts, field, version, value, flexible=flexible)
    return b"".join(parts)


def _append_field(parts: Parts, field: Field, version: int, value: Any, *, flexible: bool) -> None:
    """Append a field. A value of None is the default of the field."""
    nullable = field.nullable <= version
    if field.type in LAYOUTS:
        parts.append(
            _encode_number(field.type, field.default if value is None else value, field.name)
        )
    elif field.type in LENGTHS:
        if value is None and not nullable:
            value = b""
        _append_sized(parts, field.name, field.type, value, nullable=nullable, flexible=flexible)
    elif field.type == "uuid":
        data = bytes(UUID) if value is None else _to_bytes(value, field.name)
        if len(data) != UUID:
            raise ValueError(f"{field.name} must be {UUID} bytes, not {len(data)}")
        parts.append(data)
    elif field.type == "struct":
        if nullable:
            parts.append(NULL_STRUCT if value is None else PRESENT_STRUCT)
            if value is None:
                return
        values = {} if value is None else value
        _append_struct(parts, field.fields, version, values, field.name, flexible=flexible)
    else:
        if value is None and not nullable:
            value = ()
        _append_array(parts, field, version, value, flexible=flexible)


def _append_array(
    parts: Parts, field: Field, version: int, values: Iterable[Any] | None, *, flexible: bool
) -> None:
    if values is None:
        parts.append(b"\0" if flexible else NULL_LENGTH)
        return
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{field.name} must be a list, not {type(values).__name__}")
    values = list(values)
    parts.append(encode_varint(len(values) + 1) if flexible else struct.pack(">i", len(values)))
    for value in values:
        if field.type in BARE_ARRAYS:
            _append_bare(parts, field, version, value, flexible=flexible)
        elif field.is_array:
            subject = f"one of {field.name}"
            _append_struct(parts, field.fields, version, value, subject, flexible=flexible)
        else:
            parts.append(_encode_number(field.type.removeprefix("[]"), value, field.name))


def _append_bare(parts: Parts, field: Field, version: int, value: Any, *, flexible: bool) -> None:
    """Append a value of an array without structs: the value, or a mapping of its one field."""
    (item,) = field.fields
    if isinstance(value, Mapping):
        if set(value) - {item.name}:
            raise ValueError(f"one of {field.name} is a {item.type} or a mapping of {item.name!r}")
        value = value.get(item.name, b"")
    elif value is None:
        raise ValueError(f"one of {field.name} must not be None")
    _append_field(parts, item, version, value, flexible=flexible)


def _append_sized(
    parts: Parts, name: str, kind: str, value: Any, *, nullable: bool, flexible: bool
) -> None:
    """Append a string or bytes with the length. A flexible version has a compact length."""
    if value is None and not nullable:
        raise ValueError(f"{name} must not be None")
    data = None if value is None else _to_bytes(value, name)
    if flexible:
        parts.append(encode_varint(0 if data is None else len(data) + 1))
    else:
        length = -1 if data is None else len(data)
        parts.append(_encode_number(f"int{8 * LENGTHS[kind]}", length, f"the length of {name}"))
    if data is not None:
        parts.append(data)


def _to_bytes(value: Any, name: str) -> bytes | memoryview:
    """Return a str or bytes-like value as bytes."""
    if isinstance(value, str):
        return value.encode()
    try:
        return memoryview(value).cast("B")
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be bytes or str, not {type(value).__name__}") from None


def _encode_number(kind: str, value: Any, name: str) -> bytes:
    try:
        return struct.pack(LAYOUTS[kind], value)
    except (struct.error, OverflowError):  # the latter for an integer of numpy
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be an integer, not {value!r}") from None
        raise ValueError(f"{name} must fit in {kind}, but {value} does not") from None
