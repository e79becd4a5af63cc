"""Write requests and responses of Kafka's protocol, from mappings with Kafka's field names."""
from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from wirescan.kafka.schema import API, Field, api_key, message_of

__all__ = ["encode_request", "encode_response"]

LAYOUTS = {"bool": ">?", "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}
LENGTHS = {"string": "int16", "bytes": "int32", "records": "int32"}
CONTROLLED_SHUTDOWN, API_VERSIONS = 7, 18       # whose headers are exceptions
UUID = 16
Parts = list[bytes]


def encode_request(api: str | int, version: int, body: Mapping[str, Any] | None = None, *, correlation_id: int = 0,
                   client_id: str | bytes | None = None) -> bytes:
    """A request with its header and its size, as it goes over the wire.

    api: its name or key. body: Kafka's field names in snake case, as kafka/messages.py lists them. Strings are str or
    bytes, uuids 16 bytes, records anything that is bytes-like, arrays of structs lists of mappings. A field that is not
    there has its default: 0, an empty string or array, null where that may be, or what the table says. Tagged fields
    with their default are left out.

    Raises ValueError for an API or version that the table does not have, for a field that this version does not have
    (unless it has its default), and for a value that does not fit; TypeError for a value of another type.
    """
    key = api_key(api)
    message = message_of(API[key].name if key in API else str(key), "request")
    version = message.check(version)
    parts = [struct.pack(">hh", key, version), _number("int32", correlation_id, "correlation_id")]
    if not (key == CONTROLLED_SHUTDOWN and version == 0):
        _sized(parts, "client_id", "string", client_id, True, False)        # never compact
        if version >= message.flexible:
            parts.append(b"\0")
    return _message(parts, message.fields, version, message.flexible, body)


def encode_response(api: str | int, version: int, body: Mapping[str, Any] | None = None, *,
                    correlation_id: int = 0) -> bytes:
    """A response with its header and its size, as `encode_request` writes requests."""
    key = api_key(api)
    message = message_of(API[key].name if key in API else str(key), "response")
    version = message.check(version)
    parts = [_number("int32", correlation_id, "correlation_id")]
    if version >= message.flexible and key != API_VERSIONS:
        parts.append(b"\0")
    return _message(parts, message.fields, version, message.flexible, body)


def _message(parts: Parts, fields: tuple[Field, ...], version: int, flexible: int,
             body: Mapping[str, Any] | None) -> bytes:
    _struct(parts, fields, version, version >= flexible, {} if body is None else body, "the body")
    size = sum(map(len, parts))
    return b"".join([_number("int32", size, "the size of the message"), *parts])


def _struct(parts: Parts, fields: tuple[Field, ...], version: int, flexible: bool, values: Mapping[str, Any],
            where: str) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(f"{where} must be a mapping of fields, not {type(values).__name__}")
    unknown = set(values) - {one.name for one in fields}
    if unknown:
        raise ValueError(f"{where} has no field {min(map(str, unknown))!r}; it has {', '.join(o.name for o in fields)}")
    tagged = []
    for one in fields:
        value = values.get(one.name)
        if version not in one.versions:
            if not _is_default(value, one):
                raise ValueError(f"version {version} of {where} has no field {one.name!r}")
        elif one.tag is not None:
            inside: Parts = []
            _field(inside, one, version, flexible, value)
            plain: Parts = []
            _field(plain, one, version, flexible, None)
            if value is not None and inside != plain:
                tagged.append((one.tag, b"".join(inside)))
        else:
            _field(parts, one, version, flexible, value)
    if flexible:
        parts.append(_unsigned(len(tagged)))
        for tag, data in sorted(tagged):
            parts += _unsigned(tag), _unsigned(len(data)), data


def _is_default(value: Any, one: Field) -> bool:
    if value is None:
        return True
    return len(value) == 0 if hasattr(value, "__len__") else bool(value == one.default)


def _field(parts: Parts, one: Field, version: int, flexible: bool, value: Any) -> None:
    nullable = one.nullable <= version
    if one.type in LAYOUTS:
        parts.append(_number(one.type, one.default if value is None else value, one.name))
    elif one.type in LENGTHS:
        _sized(parts, one.name, one.type, value if value is not None or nullable else b"", nullable, flexible)
    elif one.type == "uuid":
        data = bytes(UUID) if value is None else _data(value, one.name)
        if len(data) != UUID:
            raise ValueError(f"{one.name} must be {UUID} bytes, not {len(data)}")
        parts.append(data)
    elif one.type == "struct":
        _struct(parts, one.fields, version, flexible, {} if value is None else value, one.name)
    else:
        _array(parts, one, version, flexible, value if value is not None or nullable else ())


def _array(parts: Parts, one: Field, version: int, flexible: bool, values: Iterable[Any] | None) -> None:
    if values is None:
        parts.append(b"\0" if flexible else b"\xff\xff\xff\xff")
        return
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{one.name} must be a list, not {type(values).__name__}")
    values = list(values)
    parts.append(_unsigned(len(values) + 1) if flexible else struct.pack(">i", len(values)))
    for value in values:
        if one.is_array:
            _struct(parts, one.fields, version, flexible, value, f"one of {one.name}")
        else:
            parts.append(_number(one.type.removeprefix("[]"), value, one.name))


def _sized(parts: Parts, name: str, kind: str, value: Any, nullable: bool, flexible: bool) -> None:
    if value is None and not nullable:
        raise ValueError(f"{name} must not be None")
    data = None if value is None else _data(value, name)
    if flexible:
        parts.append(_unsigned(0 if data is None else len(data) + 1))
    else:
        parts.append(_number(LENGTHS[kind], -1 if data is None else len(data), f"the length of {name}"))
    if data is not None:
        parts.append(data)


def _data(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return value.encode()
    try:
        return memoryview(value).cast("B")
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be bytes or str, not {type(value).__name__}") from None


def _number(kind: str, value: Any, name: str) -> bytes:
    try:
        return struct.pack(LAYOUTS[kind], value)
    except struct.error:
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be an integer, not {value!r}") from None
        raise ValueError(f"{name} must fit in {kind}, and {value} does not") from None


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
