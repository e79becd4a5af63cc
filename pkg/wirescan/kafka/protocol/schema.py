"""Kafka's messages as Python objects, and the dtypes of their rows.

The sources are the tables in api_definitions.py and metadata_definitions.py. compile.py, encode.py,
formats.py, message.pyx and the clients use these objects.

The row of a struct begins with `Head`. Its columns follow, widest first:

    number                  as wide as on the wire
    string, bytes, uuid     a place; null in a version without the field
    array of numbers        a place; the numbers in it are big-endian
    array of structs        a place, and <name>_count (-1: null)
    array of strings        the same: each string is a struct of one field, `name`
    array of uuids          the same: each uuid is a struct of one field, `id`
    struct                  the columns of its fields, as <struct>_<field>; if it is null, they are
                            those of a version without the struct

The name of a format ends with the name of its array, as in kafka.fetch_response.partitions. Arrays
that have the same name in one message have their enclosing arrays in the name too, as in
kafka.offset_fetch_response.groups.topics.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from operator import index as integer

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.kafka.protocol.api_definitions import APIS, MESSAGES
from wirescan.kafka.protocol.metadata_definitions import METADATA_MESSAGES, METADATA_TYPES

WIDTHS = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
}
COLUMN_KINDS = {"bool": "u1", "uint16": "u2", "float64": "f8"}  # all other numbers are signed
BARE_ARRAYS = {"[]string": "name", "[]uuid": "id"}  # arrays without structs -> name of their values
LENGTHS = {"string": 2, "bytes": 4, "records": 4}  # bytes of a length that is not compact
UUID = 16  # bytes
LINE = re.compile(
    r"( +)(\w+) +(\w+|\[\]\w*)(\?)?(\d+)?\+?(?: +([\d+-]+))?(?: +tag (\d+))?(?: += (\S+))?"
)
HEADING = re.compile(r"(\w+) (request|response|key|value|record) ([\d-]+)(?: flexible (\d+))?")
HEAD_FIELDS = HEAD.descr  # numpy computes it at each access
NEVER = 1 << 15  # higher than any version
INDENT = 4  # columns of one level in the table of messages


@dataclass(frozen=True)
class Api:
    """A Kafka API.

    newest: the newest version. flexible: the first flexible version, or NEVER.
    """

    key: int
    name: str
    newest: int
    flexible: int


@dataclass(frozen=True)
class Field:
    """A field of a struct.

    type: as in api_definitions.py. versions: those that have the field.
    nullable: the first version in which it may be null, or NEVER.
    tag: its tag, or None if it is no tagged field. default: its value in a message without it.
    fields: the fields inside it.
    """

    name: str
    type: str
    versions: range
    nullable: int = NEVER
    tag: int | None = None
    default: int | None = 0
    fields: tuple[Field, ...] = ()

    @property
    def is_array(self) -> bool:
        """Whether the field is an array of structs, or of values that are read like structs."""
        return self.type == "[]" or self.type in BARE_ARRAYS


@dataclass(frozen=True, eq=False)
class Level:
    """The structs of one array, or the message itself. A level becomes one table.

    name: the name of the array, or of the message in snake case. path: the name of the format
    without its protocol. fields: of each struct. arrays: the levels inside.
    is_bare: the array is one of BARE_ARRAYS. Its values have no tagged fields.
    """

    name: str
    path: str
    fields: tuple[Field, ...]
    arrays: tuple[Level, ...]
    is_bare: bool = False

    @cached_property
    def columns(self) -> list[tuple[str, str, int]]:
        """(name, type, default) of each column, widest first."""
        columns: list[tuple[str, str, int]] = []
        for name, item in iter_flat_fields(self.fields):
            if item.type in WIDTHS:
                kind = COLUMN_KINDS.get(item.type, f"i{WIDTHS[item.type]}")
                columns.append((name, kind, item.default or 0))
            else:
                columns += [(name + "_at", "u4", 0), (name + "_size", "i4", -1)]
                if item.is_array:
                    columns.append((name + "_count", "i4", -1))
        columns.sort(key=lambda column: -int(column[1][1:]))
        padding = -sum(int(kind[1:]) for _, kind, _ in columns) % 8  # a row has whole words
        if padding:
            columns.append(("reserved", f"V{padding}", 0))
        return columns

    @cached_property
    def dtype(self) -> np.dtype:
        """The dtype of the rows."""
        return np.dtype(HEAD_FIELDS + [(name, kind) for name, kind, _ in self.columns])

    @cached_property
    def template(self) -> np.ndarray:
        """An array of one row with the defaults of the columns."""
        row = np.zeros(1, self.dtype)
        for name, kind, default in self.columns:
            if kind[0] != "V":
                row[name] = default
        return row


@dataclass(frozen=True, eq=False)
class MessageSchema:
    """The body of a request or a response, the key or value of a record, or a metadata record.

    side: "request", "response", "key", "value" or "record". versions: those of the message.
    flexible: the first flexible version, or NEVER.
    """

    name: str
    side: str
    versions: range
    flexible: int
    fields: tuple[Field, ...] = field(repr=False)

    @cached_property
    def level(self) -> Level:
        """The message as a tree of tables."""
        root = f"{to_snake_case(self.name)}_{self.side}"
        counts = Counter(_iter_array_names(self.fields))
        repeated = {name for name, count in counts.items() if count > 1}
        return _make_level((root,), self.fields, repeated, is_bare=False)

    def check(self, version: int) -> int:
        """Return `version` as an int.

        Raises ValueError for a version that the table does not have, TypeError for no integer.
        """
        version = integer(version)
        if version not in self.versions:
            raise ValueError(
                f"{self.name} {self.side} has the versions {self.versions[0]} to "
                f"{self.versions[-1]}, not {version}"
            )
        return version


def to_snake_case(name: str) -> str:
    """Return a name in snake case: ListOffsets -> list_offsets."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def iter_flat_fields(fields: tuple[Field, ...], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yield (column, field) of fields. A struct is replaced by its fields."""
    for item in fields:
        if item.type == "struct":
            yield from iter_flat_fields(item.fields, f"{prefix}{item.name}_")
        else:
            yield prefix + item.name, item


def _iter_array_names(fields: tuple[Field, ...]) -> Iterator[str]:
    """Yield the names of the arrays in fields, and of the arrays inside them."""
    for name, item in iter_flat_fields(fields):
        if item.is_array:
            yield name
            yield from _iter_array_names(item.fields)


def _make_level(
    names: tuple[str, ...], fields: tuple[Field, ...], repeated: set[str], *, is_bare: bool
) -> Level:
    """Return a level with the levels in it.

    names: of the message, of the enclosing arrays and of this array, from the outermost on.
    repeated: the names that several arrays of the message have.
    """
    name = names[-1]
    path = names[:1] + names[-1:] if len(names) > 1 and name not in repeated else names
    arrays = tuple(
        _make_level((*names, column), item.fields, repeated, is_bare=item.type in BARE_ARRAYS)
        for column, item in iter_flat_fields(fields)
        if item.is_array
    )
    return Level(name, ".".join(path), fields, arrays, is_bare)


def _parse_versions(text: str | None, within: range) -> range:
    """Parse the versions of a field or message. within: those of the enclosing struct."""
    if not text:
        return within
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), within.stop)
    return range(int(first), int(last or first) + 1)


def _parse_fields(lines: list[re.Match[str]], within: range, indent: int) -> tuple[Field, ...]:
    """Parse the fields of a struct and remove their lines from `lines`.

    lines: the lines of a message in reverse order. The fields of the struct are the lines from the
    last one on with this indentation. within: the versions of the struct.
    """
    fields = []
    while lines and len(lines[-1][1]) == indent:
        _, name, kind, null, since, versions_text, tag, default = lines.pop().groups()
        versions = _parse_versions(versions_text, within)
        inner: tuple[Field, ...] = ()
        if kind in BARE_ARRAYS:
            inner = (Field(BARE_ARRAYS[kind], kind.removeprefix("[]"), versions),)
        elif kind in ("struct", "[]"):
            inner = _parse_fields(lines, versions, indent + INDENT)
        fields.append(
            Field(
                name,
                kind,
                versions,
                int(since or 0) if null else NEVER,
                None if tag is None else int(tag),
                int({None: 0, "true": 1}.get(default, default)),
                inner,
            )
        )
    return tuple(fields)


def _parse(pattern: re.Pattern[str], line: str) -> re.Match[str]:
    match = pattern.fullmatch(line)
    if match is None:
        raise ValueError(f"the table of messages has a line of unknown form: {line!r}")
    return match


def _parse_messages(table: str) -> Iterator[MessageSchema]:
    """Yield the messages of a table."""
    for text in table.strip("\n").split("\n\n"):
        heading, *rest = text.split("\n")
        name, side, versions_text, flexible = _parse(HEADING, heading).groups()
        versions = _parse_versions(versions_text, range(0))
        lines = [_parse(LINE, line) for line in reversed(rest)]
        fields = _parse_fields(lines, versions, INDENT)
        assert not lines, f"{heading}: {lines[-1][0]}"
        yield MessageSchema(name, side, versions, int(flexible or NEVER), fields)


API = {
    int(key): Api(int(key), name, int(newest), NEVER if flexible == "-" else int(flexible))
    for key, name, newest, flexible in map(str.split, APIS.strip().split("\n"))
}
KEYS = {api.name: api.key for api in API.values()}
_API_KEYS = {to_snake_case(name).upper(): key for name, key in KEYS.items()}
# mypy wants the members as a literal; they come from the table.
ApiKey = IntEnum("ApiKey", _API_KEYS, module=__name__)  # type: ignore[misc]
ApiKey.__doc__ = "A value of the columns `api_key` of kafka.requests and kafka.responses."
OPAQUE = 255  # the kind of a message whose header is not known
_METADATA_NUMBERS = {
    name: int(number) for number, name in map(str.split, METADATA_TYPES.strip().split("\n"))
}
MetadataType = IntEnum(  # type: ignore[misc]
    "MetadataType",
    {f"{to_snake_case(name)}_record".upper(): number for name, number in _METADATA_NUMBERS.items()},
    module=__name__,
)
MetadataType.__doc__ = "A value of the column `type` of kafka.metadata_records."
MESSAGE = {
    (message.name, message.side): message
    for table in (MESSAGES, METADATA_MESSAGES)
    for message in _parse_messages(table)
}


def get_message(name: str, side: str) -> MessageSchema:
    """Return a message by its name and side. Raises ValueError, which lists the known names."""
    if (name, side) not in MESSAGE:
        names = ", ".join(known_name for known_name, known_side in MESSAGE if known_side == side)
        raise ValueError(f"unknown {side} {name!r}; expected one of {names}")
    return MESSAGE[name, side]


def get_api_key(name: str | int) -> int:
    """Return the key of an API by its name, or a key itself.

    Raises ValueError for an unknown name.
    """
    if not isinstance(name, str):
        return integer(name)
    if name not in KEYS:
        raise ValueError(f"unknown API {name!r}; expected one of {', '.join(KEYS)}")
    return KEYS[name]


def get_metadata_type(name: str) -> int:
    """Return the number of a type of metadata record by its name, such as "Topic"."""
    return _METADATA_NUMBERS[name]
