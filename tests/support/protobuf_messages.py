"""Messages of Protobuf with all kinds of fields, and what the protobuf package reads of payloads.

The protobuf package drops the entry of a map if a field in it is unknown. Other implementations
keep it, and so does wirescan. So the oracle reads maps as what they are in the encoding: repeated
messages with a key and a value.
"""

from __future__ import annotations

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    unknown_fields,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from tests.support.varint import make_varint

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
)
WRAPPERS = (
    *("DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value"),
    *("BoolValue", "StringValue", "BytesValue"),
)
KNOWN = [module.DESCRIPTOR for module in (timestamp_pb2, duration_pb2, wrappers_pb2)]
SECOND = 10**9


def add_field(message, name, number, kind, label="optional", **more):
    """Add a field to a DescriptorProto. kind: a scalar's name, or the full name of a type."""
    field = message.field.add(name=name, number=number)
    field.label = Field.Label.Value(f"LABEL_{label.upper()}")
    if kind in SCALARS:
        field.type = Field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        prefix, _, field.type_name = kind.partition(" ")
        field.type = Field.Type.Value(f"TYPE_{prefix.upper()}")
    for key, value in more.items():
        setattr(field, key, value)
    return field


def add_optional(message, name, number, kind):
    """Add a field with `optional` of proto3."""
    add_field(
        message, name, number, kind, proto3_optional=True, oneof_index=len(message.oneof_decl)
    )
    message.oneof_decl.add(name=f"_{name}")


def add_map(message, path, name, number, key, value):
    """Add a map. path: the full name of the message."""
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    add_field(entry, "key", 1, key)
    add_field(entry, "value", 2, value)
    add_field(message, name, number, f"message {path}.{entry.name}", "repeated")


def add_enum(parent, name, **numbers):
    enum = parent.enum_type.add(name=name)
    for value, number in numbers.items():
        enum.value.add(name=value, number=number)
    return enum


def make_new_file():
    """Return a file in proto3."""
    file = descriptor_pb2.FileDescriptorProto(name="new.proto", package="new", syntax="proto3")
    file.dependency.extend(known.name for known in KNOWN)
    add_enum(file, "Color", RED=0, GREEN=1, BLUE=2, FAR=-7, HUGE=2**31 - 1)
    inner = file.message_type.add(name="Inner")
    add_field(inner, "x", 1, "sint32")
    add_field(inner, "names", 2, "string", "repeated")
    leaf = inner.nested_type.add(name="Leaf")
    add_field(leaf, "y", 1, "bytes")
    add_field(leaf, "z", 900, "double")
    add_field(inner, "leaf", 3, "message .new.Inner.Leaf")
    add_field(inner, "leaves", 4, "message .new.Inner.Leaf", "repeated")
    file.message_type.add(name="Nothing")
    everything = file.message_type.add(name="All")
    choice = everything.oneof_decl.add(name="choice")
    assert choice.name == "choice"
    kinds = [
        *("int32", "string", "enum .new.Color", "message .new.Inner", "message .new.Nothing"),
        "message .google.protobuf.Timestamp",
        "message .google.protobuf.StringValue",
    ]
    for i, kind in enumerate(kinds):
        add_field(everything, f"choice{i}", 500 + i, kind, oneof_index=0)
    for i, kind in enumerate((*SCALARS, "enum .new.Color")):
        name = kind.rpartition(".")[2].lower()
        add_field(everything, f"one_{name}", 1 + i, kind)
        add_optional(everything, f"optional_{name}", 101 + i, kind)
        add_field(everything, f"many_{name}", 201 + i, kind, "repeated")
        unpacked = add_field(everything, f"unpacked_{name}", 301 + i, kind, "repeated")
        if kind not in ("string", "bytes"):
            unpacked.options.packed = False
    for i, name in enumerate(("Timestamp", "Duration", *WRAPPERS)):
        kind = f"message .google.protobuf.{name}"
        add_field(everything, f"one_{name.lower()}", 401 + i, kind)
        add_field(everything, f"many_{name.lower()}", 431 + i, kind, "repeated")
    # Declared before fields with smaller numbers.
    add_field(everything, "inner", 50, "message .new.Inner")
    add_field(everything, "inners", 49, "message .new.Inner", "repeated")
    add_field(everything, "nothing", 48, "message .new.Nothing")
    maps = {
        "counts": ("string", "int64"),
        "flags": ("bool", "bool"),
        "colors": ("sint64", "enum .new.Color"),
        "insides": ("fixed32", "message .new.Inner"),
        "times": ("int32", "message .google.protobuf.Timestamp"),
        "texts": ("uint64", "message .google.protobuf.StringValue"),
    }
    for i, (name, (key, value)) in enumerate(maps.items()):
        add_map(everything, ".new.All", name, 60 + i, key, value)
    return file


def make_old_file():
    """Return a file in proto2."""
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    add_enum(file, "Closed", ZERO=0, ONE=1, FIVE=5)
    everything = file.message_type.add(name="All")
    defaults = {
        "int32": "-3",
        "uint64": str(2**64 - 1),
        "float": "1.5",
        "double": "inf",
        "bool": "true",
        "string": "h\u00e9",
        "bytes": r"a\377",
        "enum .old.Closed": "FIVE",
    }
    for i, kind in enumerate((*SCALARS, "enum .old.Closed")):
        name = kind.rpartition(".")[2].lower()
        add_field(everything, f"one_{name}", 1 + i, kind)
        add_field(everything, f"many_{name}", 101 + i, kind, "repeated")
        if kind in defaults:
            add_field(everything, f"set_{name}", 201 + i, kind, default_value=defaults[kind])
    add_field(everything, "must", 30, "int32", "required")
    for i, name in enumerate(("One", "Many")):
        group = everything.nested_type.add(name=name)
        add_field(group, "a", 1, "int32")
        add_field(group, "b", 2, "string", "repeated")
        deep = group.nested_type.add(name="Deep")
        add_field(deep, "c", 1, "fixed32")
        add_field(group, "deep", 3, f"group .old.All.{name}.Deep")
        label = "repeated" if i else "optional"
        add_field(everything, name.lower(), 40 + i, f"group .old.All.{name}", label)
    add_map(everything, ".old.All", "closed", 50, "string", "enum .old.Closed")
    everything.oneof_decl.add(name="choice")
    add_field(everything, "chosen_group", 60, "group .old.All.One", oneof_index=0)
    add_field(everything, "chosen_enum", 61, "enum .old.Closed", oneof_index=0)
    add_field(everything, "chosen_number", 62, "sfixed64", oneof_index=0)
    everything.extension_range.add(start=1000, end=2000)
    return file


def make_order_files():
    """Return a FileDescriptorSet with the message shop.Order, as bytes."""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    add_field(file.message_type.add(name="Order"), "number", 1, "int64")
    return pack_files(file)


def pack_files(*files):
    """Return a FileDescriptorSet as bytes."""
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


def _make_pool(files):
    pool = descriptor_pool.DescriptorPool()
    for known in KNOWN:
        pool.AddSerializedFile(known.serialized_pb)
    for file in files:
        pool.Add(file)
    return pool


def make_class(name, *files):
    """Return the class of a message with maps as they are declared."""
    return message_factory.GetMessageClass(_make_pool(files).FindMessageTypeByName(name))


class Oracle:
    """Reads payloads with the protobuf package: Oracle("new.All", file)."""

    def __init__(self, name, *files):
        self._maps = set()
        plain = [type(file).FromString(file.SerializeToString()) for file in files]
        for file in plain:
            for message in file.message_type:
                self._open_maps(message, f"{file.package}.{message.name}")
        descriptor = _make_pool(plain).FindMessageTypeByName(name)
        self._class = message_factory.GetMessageClass(descriptor)

    def _open_maps(self, message, path):
        for nested in message.nested_type:
            if nested.options.map_entry:
                self._maps.add(f"{path}.{nested.name}")
                nested.ClearField("options")
            self._open_maps(nested, f"{path}.{nested.name}")

    def read(self, raw):
        """Return the value of a payload, with times as numbers. Raises ValueError if it is bad."""
        try:
            message = self._class.FromString(raw)
        except DecodeError as error:
            raise ValueError(str(error)) from None
        return self._read_message(message)

    def _read_message(self, message):
        descriptor = message.DESCRIPTOR
        if descriptor.full_name.startswith("google.protobuf."):
            return self._read_known(message, descriptor.name)
        return {field.name: self._read_field(message, field) for field in descriptor.fields}

    def _read_known(self, message, name):
        if name in WRAPPERS:
            return message.value
        nanos, seconds = message.nanos, message.seconds
        if not abs(nanos) < SECOND or name == "Timestamp" and nanos < 0:
            raise ValueError("nanos")
        if name == "Duration" and nanos * seconds < 0:
            raise ValueError("signs")
        if not -(2**63) < seconds * SECOND + nanos < 2**63:
            raise ValueError("range")
        return seconds * SECOND + nanos

    def _read_field(self, message, field):
        if field.message_type is not None and field.message_type.full_name in self._maps:
            return self._read_map(getattr(message, field.name))
        if field.is_repeated:
            return [self._read_value(field, item) for item in getattr(message, field.name)]
        is_missing = field.has_presence and not message.HasField(field.name)
        if is_missing and not field.has_default_value:
            return None
        return self._read_value(field, getattr(message, field.name))

    def _read_map(self, entries):
        values = {}
        for entry in entries:
            key, value = entry.DESCRIPTOR.fields
            if _has_unknown_number(entry, value):
                continue
            name = self._read_value(key, entry.key)
            values.pop(name, None)  # the last entry counts, at its place
            values[name] = self._read_value(value, entry.value)
        return list(values.items())

    def _read_value(self, field, value):
        if field.message_type is not None:
            return self._read_message(value)
        if field.type == field.TYPE_STRING and isinstance(value, bytes):
            raise ValueError("a string of proto2 is not UTF-8")
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return known.name if known else str(value)
        return value


def _has_unknown_number(entry, field):
    """Return whether the closed enum in the entry of a map has a number that it does not have."""
    if field.enum_type is None or not field.enum_type.is_closed:
        return False
    unknown = unknown_fields.UnknownFieldSet(entry)
    return any((item.field_number, item.wire_type) == (field.number, 0) for item in unknown)


# ---------------------------------------------------------------------- payloads

FILES = {"new.All": make_new_file(), "old.All": make_old_file()}
CLASSES = {name: make_class(name, file) for name, file in FILES.items()}
ORACLES = {name: Oracle(name, file) for name, file in FILES.items()}


def tag(number, wire_type):
    return make_varint(number << 3 | wire_type)


def sized(number, raw):
    return tag(number, 2) + make_varint(len(raw)) + raw


def make_samples(name):
    """Return small messages with fields of each kind."""
    kind = CLASSES[name]
    if name == "old.All":
        first = kind(one_int32=300, one_string="hé", set_closed=1, closed={"a": 5})
        first.one.deep.c = 7
        first.many.add(a=-1, b=["x"]).deep.SetInParent()
        second = kind(chosen_enum=5, many_fixed32=[1, 2], many_closed=[0, 5], one_double=0.5)
        return [item.SerializePartialToString() for item in (first, second)]
    first = kind(one_int64=-1, one_sint32=-300, optional_string="é", many_sfixed32=[1, -1])
    first.inner.leaf.z = 1.5
    first.inner.names.extend(["", "a"])
    first.inners.add(x=1).leaves.add(y=b"\xff")
    second = kind(
        one_bool=True, many_color=[1, 2, 99], counts={"a": 1, "b": 2}, unpacked_bool=[True]
    )
    second.choice4.SetInParent()
    second.insides[3].x = 5
    second.times[-1].seconds = 2
    third = kind()
    third.one_timestamp.seconds, third.one_timestamp.nanos = 1, 999_999_999
    third.many_duration.add(seconds=-1, nanos=-1)
    third.one_stringvalue.value = "é"
    third.many_boolvalue.add()
    return [item.SerializeToString() for item in (first, second, third)]
