"""Protobuf messages as Arrow types, and as the programs that read them.

Protobuf                                        Arrow
double, float, bool                             double, float, bool
int32, sint32, sfixed32; uint32, fixed32        int32; uint32
int64, sint64, sfixed64; uint64, fixed64        int64; uint64
string, bytes                                   string, binary
enum                                            string: the name, or an unknown number as text
message, group                                  struct
repeated, map                                   list, map
google.protobuf.Timestamp, Duration             timestamp[ns, UTC], duration[ns]
google.protobuf.StringValue, Int32Value, ...    the type of the value

Source: protobuf.dev, "Language Guide (proto 3)" and "Application Note: Field Presence".
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from wirescan.decoding.column_tree import DEEPEST, MOST_NODES, ColumnTree
from wirescan.decoding.known_protos import read_known_file
from wirescan.decoding.protobuf_program import MessageKind, MessageProgram, ValueType
from wirescan.frames.optional_packages import name_package
from wirescan.frames.similar_names import hint_at_names

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

MOST_FILE_BYTES = 1 << 24  # of a FileDescriptorSet
MOST_NAMED = 20  # messages that an error lists
LARGEST_CONSTANT = 1024  # bytes of a default and of the name of an enum's number
PACKAGE = "google.protobuf."  # of the well-known types


class Scalar(NamedTuple):
    """A type of numbers or bytes.

    Attributes:
        type: how a value is read.
        column: its Arrow type.
        layout: the format of `struct` for a number in the column; empty for bytes.
    """

    type: ValueType
    column: pa.DataType
    layout: str = ""


# By the numbers of FieldDescriptorProto.Type.
SCALARS = {
    1: Scalar(ValueType.FIXED64, pa.float64(), "d"),  # double
    2: Scalar(ValueType.FIXED32, pa.float32(), "f"),  # float
    3: Scalar(ValueType.INT64, pa.int64(), "q"),  # int64
    4: Scalar(ValueType.INT64, pa.uint64(), "Q"),  # uint64
    5: Scalar(ValueType.INT32, pa.int32(), "i"),  # int32
    6: Scalar(ValueType.FIXED64, pa.uint64(), "Q"),  # fixed64
    7: Scalar(ValueType.FIXED32, pa.uint32(), "I"),  # fixed32
    8: Scalar(ValueType.BOOLEAN, pa.bool_(), "?"),  # bool
    9: Scalar(ValueType.STRING, pa.string()),  # string
    12: Scalar(ValueType.BINARY, pa.binary()),  # bytes
    13: Scalar(ValueType.INT32, pa.uint32(), "I"),  # uint32
    14: Scalar(ValueType.ENUM, pa.string()),  # enum
    15: Scalar(ValueType.FIXED32, pa.int32(), "i"),  # sfixed32
    16: Scalar(ValueType.FIXED64, pa.int64(), "q"),  # sfixed64
    17: Scalar(ValueType.SINT32, pa.int32(), "i"),  # sint32
    18: Scalar(ValueType.SINT64, pa.int64(), "q"),  # sint64
}
TYPE_GROUP, TYPE_INT64, TYPE_INT32 = 10, 3, 5
TIMES = {
    f"{PACKAGE}Timestamp": (MessageKind.TIMESTAMP, pa.timestamp("ns", "UTC")),
    f"{PACKAGE}Duration": (MessageKind.DURATION, pa.duration("ns")),
}
WRAPPERS = {
    f"{PACKAGE}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


class DescriptorFiles:
    """The .proto files in a FileDescriptorSet, as `protoc --descriptor_set_out` writes it.

    Imports may be missing in it that `read_known_file` has.

    Raises ValueError for other bytes, for files that do not fit together and for missing imports.
    Raises ImportError if protobuf is not installed.
    """

    def __init__(self, raw: bytes):
        descriptor_pb2, descriptor_pool, message_module = _import_protobuf()
        if len(raw) > MOST_FILE_BYTES:
            raise ValueError(f"a FileDescriptorSet has at most {MOST_FILE_BYTES:,} bytes")
        try:
            files = list(descriptor_pb2.FileDescriptorSet.FromString(raw).file)
        except message_module.DecodeError:
            raise ValueError("it is not a FileDescriptorSet, which protoc writes") from None
        if not files:
            raise ValueError("the FileDescriptorSet has no file")
        self._pool = descriptor_pool.DescriptorPool()
        self._missing = {file.name: file for file in files}
        self._begun: set[str] = set()
        if len(self._missing) < len(files):
            raise ValueError("the FileDescriptorSet has a file twice")
        for file in files:
            self._add(file.name, 0)
        self._files = [self._pool.FindFileByName(file.name) for file in files]

    def _add(self, name: str, depth: int) -> None:
        """Add a file after its imports."""
        file = self._missing.pop(name, None)
        if file is None:
            return
        if depth > 2 * DEEPEST:
            raise ValueError("the files import each other too deeply")
        self._begun.add(name)
        for imported in file.dependency:
            if imported in self._begun and not self._has(imported):
                raise ValueError(f"file {imported} imports itself")
            if imported not in self._missing and not self._has(imported):
                self._missing[imported] = read_known_file(imported)
            self._add(imported, depth + 1)
        try:
            self._pool.Add(file)
        except TypeError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"file {name} of the FileDescriptorSet: {reason}") from None

    def _has(self, name: str) -> bool:
        try:
            self._pool.FindFileByName(name)
        except KeyError:
            return False
        return True

    def find(self, name: str) -> Any:
        """Return the descriptor of a message. Raises ValueError if there is none."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            names = [other for file in self._files for other in _list_names(file)]
            hint = hint_at_names(name, names[:MOST_NAMED], "the messages are")
            raise ValueError(f"there is no message {name!r}{hint}") from None

    @property
    def names(self) -> list[str]:
        """The full names of the messages of the last file, at most MOST_NAMED."""
        return _list_names(self._files[-1])[:MOST_NAMED]

    def list_paths(self) -> dict[tuple[int, ...], str]:
        """Return the full name of each message of the last file by its message indexes."""
        paths: dict[tuple[int, ...], str] = {}
        todo: list[tuple[tuple[int, ...], Any]] = [
            ((i,), message)
            for i, message in enumerate(self._files[-1].message_types_by_name.values())
        ]
        while todo:
            path, message = todo.pop()
            paths[path] = message.full_name
            todo += [((*path, i), inner) for i, inner in enumerate(message.nested_types)]
        return paths


def find_path(message: Any) -> tuple[int, ...]:
    """Return the message indexes of a descriptor in its file, as Confluent's header has them."""
    path: list[int] = []
    while message is not None:
        outer = message.containing_type
        siblings = message.file.message_types_by_name.values() if outer is None else None
        names = [item.name for item in (siblings or outer.nested_types)]
        path.insert(0, names.index(message.name))
        message = outer
    return tuple(path)


def _list_names(file: Any) -> list[str]:
    """Return the full names of the messages of a file, and of those inside them."""
    names = []
    todo = list(file.message_types_by_name.values())[::-1]
    while todo:
        message = todo.pop()
        if not message.GetOptions().map_entry:
            names.append(message.full_name)
            todo += message.nested_types[::-1]
    return names


def _import_protobuf() -> tuple[Any, Any, Any]:
    """Return google.protobuf's modules of descriptors, pools and errors."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ImportError as error:
        raise ImportError(
            "descriptors are parsed by protobuf: pip install 'wirescan[protobuf]'"
        ) from error
    return descriptor_pb2, descriptor_pool, message


# ---------------------------------------------------------------------------------- types


def make_type(message: Any) -> pa.DataType:
    """Return the Arrow type of a message.

    Raises ValueError for a message that contains itself, which no Arrow type can, and for one with
    too many fields.
    """
    return _make_message_type(message, (), [0])


def _make_message_type(message: Any, outer: tuple[str, ...], total: list[int]) -> pa.DataType:
    if message.full_name in outer:
        raise ValueError(
            f"Protobuf message {message.full_name} contains itself: no column can have this type"
        )
    if len(outer) > DEEPEST or total[0] > MOST_NODES:
        raise ValueError("the Protobuf message has too many fields, or is nested too deeply")
    kind = find_kind(message)
    if kind in (MessageKind.TIMESTAMP, MessageKind.DURATION):
        return TIMES[message.full_name][1]
    inner = (*outer, message.full_name)
    members = []
    for field in list_fields(message):
        total[0] += 1
        members.append((field.name, _make_field_type(field, inner, total)))
    if kind == MessageKind.WRAPPER:
        return members[0][1]
    return pa.struct(members)


def _make_field_type(field: Any, outer: tuple[str, ...], total: list[int]) -> pa.DataType:
    if field.message_type is None:
        kind = SCALARS[field.type].column
    else:
        kind = _make_message_type(field.message_type, outer, total)
    if not field.is_repeated:
        return kind
    if _is_map(field):
        return pa.map_(*(member.type for member in kind))
    return pa.list_(kind)


def _is_map(field: Any) -> bool:
    message = field.message_type
    return message is not None and find_kind(message) == MessageKind.ENTRY


def list_fields(message: Any) -> list[Any]:
    """Return the fields of a message in the order of its columns."""
    fields = list(message.fields)
    if find_kind(message) == MessageKind.ENTRY:
        fields.sort(key=lambda field: field.number)  # a key and a value
    return fields


def find_kind(message: Any) -> MessageKind:
    """Return how a message becomes a column.

    Files may declare well-known types and entries of maps with fields of their own. Then they are
    messages as all others.
    """
    types = [field.type for field in message.fields]
    numbers = {field.number for field in message.fields}
    is_plain = not any(field.has_presence or field.is_repeated for field in message.fields)
    if message.full_name in TIMES and is_plain and types == [TYPE_INT64, TYPE_INT32]:
        is_time = [field.number for field in message.fields] == [1, 2]
        return TIMES[message.full_name][0] if is_time else MessageKind.RECORD
    if message.full_name in WRAPPERS and is_plain and len(types) == 1 and types[0] in SCALARS:
        return MessageKind.WRAPPER
    is_entry = message.GetOptions().map_entry and len(types) == 2 and numbers == {1, 2}
    return MessageKind.ENTRY if is_entry else MessageKind.RECORD


# ---------------------------------------------------------------------------------- programs


def make_tree(message: Any) -> ColumnTree:
    """Return the columns for messages of a type. Raises ValueError as `make_type`."""
    tree = ColumnTree()
    tree.add(make_type(message))
    return tree


def make_program(message: Any, tree: ColumnTree) -> MessageProgram:
    """Return the program that reads messages into columns.

    tree: what `make_tree` returns for the message.

    Raises ValueError for a default, or a name in an enum, that is too large.
    """
    compiler = _Compiler(tree)
    compiler.add_message(message, 0)
    return MessageProgram(compiler.messages, compiler.fields, compiler.enums)


class _Compiler:
    """Makes the parts of one program: what `MessageProgram` takes."""

    def __init__(self, tree: ColumnTree):
        self.messages: list[tuple[int, int, int, int, int, int, int]] = []
        self.fields: list[tuple[int, int, int, int, int, int, bool, bytes | None]] = []
        self.enums: list[tuple[bool, list[tuple[int, bytes]]]] = []
        self._tree = tree
        self._enum_numbers: dict[str, int] = {}
        self._enum_names: dict[str, dict[int, bytes]] = {}
        self._oneof_count = 0

    def add_message(self, message: Any, node: int) -> int:
        """Add a message whose column is a node, and all messages in it. Return its number."""
        kind = find_kind(message)
        number = len(self.messages)
        self.messages.append((0, 0, 0, 0, 0, 0, 0))
        first = len(self.fields)
        stop = first + len(message.fields)
        self.fields += [(0, 0, 0, 0, 0, 0, False, None)] * len(message.fields)
        oneofs = [oneof.full_name for oneof in message.oneofs if len(oneof.fields) > 1]
        first_oneof = self._oneof_count
        self._oneof_count += len(oneofs)
        oneof_numbers = {name: first_oneof + i for i, name in enumerate(oneofs)}
        if kind in (MessageKind.RECORD, MessageKind.ENTRY):
            nodes = self._tree.list_children(node)
        else:
            nodes = [node if kind == MessageKind.WRAPPER else -1] * len(message.fields)
        ordered = sorted(zip(list_fields(message), nodes), key=lambda pair: pair[0].number)
        for at, (field, child) in enumerate(ordered):
            oneof = field.containing_oneof
            oneof_number = -1 if oneof is None else oneof_numbers.get(oneof.full_name, -1)
            slot = 2 * number + at  # of seconds and nanos
            self.fields[first + at] = self._make_field(
                field, child, oneof_number, slot, is_entry=kind == MessageKind.ENTRY
            )
        size = self._tree.count_nodes(node)
        self.messages[number] = (kind, node, first, stop, first_oneof, len(oneofs), size)
        return number

    def _make_field(
        self, field: Any, node: int, oneof: int, slot: int, *, is_entry: bool
    ) -> tuple[int, int, int, int, int, int, bool, bytes | None]:
        list_node = -1
        if field.is_repeated:
            list_node, node = node, self._tree.list_children(node)[0]
        target = slot
        constant: bytes | None = None
        if field.message_type is not None:
            kind = ValueType.GROUP if field.type == TYPE_GROUP else ValueType.MESSAGE
            target = self.add_message(field.message_type, node)
            constant = b"" if is_entry else None
        else:
            kind = SCALARS[field.type].type
            if kind == ValueType.ENUM:
                target = self._add_enum(field.enum_type)
            has_default = field.has_default_value and field.containing_oneof is None
            if not field.is_repeated and (is_entry or has_default or not field.has_presence):
                constant = self._encode_default(field)
        return field.number, kind, node, list_node, target, oneof, _is_map(field), constant

    def _add_enum(self, enum: Any) -> int:
        number = self._enum_numbers.get(enum.full_name)
        if number is None:
            names = self._enum_names[enum.full_name] = _name_numbers(enum)
            number = self._enum_numbers[enum.full_name] = len(self.enums)
            self.enums.append((enum.is_closed, sorted(names.items())))
        return number

    def _encode_default(self, field: Any) -> bytes:
        """Return the default of a field as its column has it."""
        value = field.default_value
        scalar = SCALARS[field.type]
        if scalar.type == ValueType.ENUM:
            return self._enum_names[field.enum_type.full_name][value]
        if scalar.layout:
            return struct.pack(f"={scalar.layout}", value)
        raw: bytes = value.encode() if isinstance(value, str) else bytes(value)
        if len(raw) > LARGEST_CONSTANT:
            raise ValueError(
                f"the default of field {field.full_name} has {len(raw):,} bytes, "
                f"and may have {LARGEST_CONSTANT:,}"
            )
        return raw


def _name_numbers(enum: Any) -> dict[int, bytes]:
    """Return the name of each number of an enum: the first one, if there are several."""
    names: dict[int, bytes] = {}
    for value in enum.values:
        name = value.name.encode()
        if len(name) > LARGEST_CONSTANT:
            raise ValueError(f"a name of enum {enum.full_name} has {len(name):,} bytes")
        names.setdefault(value.number, name)
    return names
