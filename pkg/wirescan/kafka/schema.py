"""Kafka's messages as objects: what the table in messages.py says, and the rows that its structs become.

A row of a struct begins with `Head`; then come its columns, widest first:

    number                  as wide as on the wire
    string, bytes, uuid     a place; of a version that has no such field, null
    array of numbers        a place: the numbers as they lie there, big-endian
    array of structs        a place, and <name>_count (-1: null)
    struct                  the columns of its fields, as <struct>_<field>
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from operator import index as integer

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.kafka.messages import APIS, MESSAGES

WIDTHS = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
LINE = re.compile(r"( +)(\w+) +(\w+|\[\]\w*)(\?)?(\d+)?\+?(?: +([\d+-]+))?(?: +tag (\d+))?(?: += (\S+))?")
HEADING = re.compile(r"(\w+) (request|response|key|value) ([\d-]+)(?: flexible (\d+))?")
NEVER = 1 << 15


@dataclass(frozen=True)
class Api:
    """A Kafka API: its key, its name, the newest version, and the first flexible one (NEVER: none)."""
    key: int
    name: str
    newest: int
    flexible: int


@dataclass(frozen=True)
class Field:
    """A field of a struct: its type as in messages.py, its versions, from which on it may be null (NEVER: from none),
    its tag or None, its default, and the fields inside it."""
    name: str
    type: str
    versions: range
    nullable: int = NEVER
    tag: int | None = None
    default: int | None = 0
    fields: tuple[Field, ...] = ()

    @property
    def is_array(self) -> bool:
        """Whether it is an array of structs."""
        return self.type == "[]"


@dataclass(frozen=True, eq=False)
class Level:
    """The structs of one array, or the message itself: what becomes one table.

    name: of the array, or of the message in snake case. path: the format's name without its room."""
    name: str
    path: str
    fields: tuple[Field, ...]
    arrays: tuple[Level, ...]

    @cached_property
    def columns(self) -> list[tuple[str, str, int]]:
        """(name, type, default) of each column, widest first."""
        found: list[tuple[str, str, int]] = []
        for name, one in flat_fields(self.fields):
            if one.type in WIDTHS:
                kind = "u1" if one.type == "bool" else f"i{WIDTHS[one.type]}"
                found.append((name, kind, one.default or 0))
            else:
                found += [(name + "_at", "u4", 0), (name + "_size", "i4", -1)]
                if one.is_array:
                    found.append((name + "_count", "i4", -1))
        found.sort(key=lambda column: -int(column[1][1:]))
        rest = -sum(int(kind[1:]) for _, kind, _ in found) % 8       # a row is whole words
        return found + ([("reserved", f"V{rest}", 0)] if rest else [])

    @cached_property
    def dtype(self) -> np.dtype:
        """The dtype of the rows."""
        return np.dtype(HEAD.descr + [(name, kind) for name, kind, _ in self.columns])

    @cached_property
    def template(self) -> np.ndarray:
        """One row, with the defaults of the columns."""
        row = np.zeros(1, self.dtype)
        for name, kind, default in self.columns:
            if kind[0] != "V":
                row[name] = default
        return row


@dataclass(frozen=True, eq=False)
class Message:
    """The body of a request, of a response, or of the key or the value of a record."""
    name: str
    side: str
    versions: range
    flexible: int
    fields: tuple[Field, ...] = field(repr=False)

    @cached_property
    def level(self) -> Level:
        """The message as a tree of tables."""
        path = f"{snake(self.name)}_{self.side}"
        return _level(path, path, path, self.fields)

    def check(self, version: int) -> int:
        """`version`. Raises ValueError where the table does not have it, TypeError where it is no integer."""
        version = integer(version)
        if version not in self.versions:
            raise ValueError(f"{self.name} {self.side} has the versions {self.versions[0]} to {self.versions[-1]}, "
                             f"not {version}")
        return version


def snake(name: str) -> str:
    """ListOffsets -> list_offsets."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def flat_fields(fields: tuple[Field, ...], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """(column, field) of fields, those of structs among them."""
    for one in fields:
        if one.type == "struct":
            yield from flat_fields(one.fields, f"{prefix}{one.name}_")
        else:
            yield prefix + one.name, one


def _level(root: str, name: str, path: str, fields: tuple[Field, ...]) -> Level:
    return Level(name, path, fields, tuple(
        _level(root, column, f"{root}.{column}", one.fields) for column, one in flat_fields(fields) if one.is_array))


def _versions(text: str | None, within: range) -> range:
    if not text:
        return within
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), within.stop)
    return range(int(first), int(last or first) + 1)


def _fields(lines: list[re.Match[str]], within: range, indent: int) -> tuple[Field, ...]:
    """The fields of a struct: the lines from the last one on that are indented so far. Takes them off `lines`."""
    found = []
    while lines and len(lines[-1][1]) == indent:
        _, name, kind, null, since, versions, tag, default = lines.pop().groups()
        its = _versions(versions, within)
        inside = _fields(lines, its, indent + 4) if kind in ("struct", "[]") else ()
        value = {None: 0, "true": 1}.get(default, default)
        found.append(Field(name, kind, its, int(since or 0) if null else NEVER, None if tag is None else int(tag),
                           int(value), inside))
    return tuple(found)


def _messages() -> Iterator[Message]:
    for text in MESSAGES.strip("\n").split("\n\n"):
        heading, *rest = text.split("\n")
        name, side, versions, flexible = HEADING.fullmatch(heading).groups()
        its = _versions(versions, range(0))
        lines = [LINE.fullmatch(line) for line in reversed(rest)]
        yield Message(name, side, its, int(flexible or NEVER), _fields(lines, its, 4))
        assert not lines, f"{heading}: {lines[-1][0]}"


API = {int(key): Api(int(key), name, int(newest), NEVER if flexible == "-" else int(flexible))
       for key, name, newest, flexible in map(str.split, APIS.strip().split("\n"))}
KEYS = {api.name: api.key for api in API.values()}
ApiKey = IntEnum("ApiKey", {snake(name).upper(): key for name, key in KEYS.items()}, module=__name__)
ApiKey.__doc__ = "The columns `api_key` of kafka.requests and kafka.responses."
MESSAGE = {(message.name, message.side): message for message in _messages()}


def message_of(name: str, side: str) -> Message:
    """The message of that name. Raises ValueError, which lists the names, where the table has none."""
    if (name, side) not in MESSAGE:
        names = ", ".join(there for there, its in MESSAGE if its == side)
        raise ValueError(f"no {side} {name!r} in the table of messages; there are {names}")
    return MESSAGE[name, side]


def api_key(name: str | int) -> int:
    """The key of an API by its name (or itself). Raises ValueError where there is none of that name."""
    if isinstance(name, str) and name not in KEYS:
        raise ValueError(f"Kafka has no API {name!r}; it has {', '.join(KEYS)}")
    return KEYS[name] if isinstance(name, str) else integer(name)
