"""Avro schemas as Arrow types, and as the programs that read values of them.

Avro                                      Arrow
null, boolean, int, long, float, double   null, bool, int32, int64, float, double
bytes, string, fixed                      binary, string, fixed_size_binary
enum                                      string
array, map, record                        list, map<string, ...>, struct
union of null and one type                that type
another union                             struct: one member for each type but null, with its name
decimal (precision up to 38)              decimal128
date, time-millis, time-micros            date32, time32[ms], time64[us]
timestamp-millis, -micros, -nanos         timestamp with the zone UTC; local-timestamp-...: without

Every value may be null. Other logical types are read as the type that is below them.

Source: Apache Avro specification 1.12, "Schema Declaration", "Logical Types", "Schema Resolution".
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from wirescan.core.varint import encode_varint
from wirescan.decoding.avro_reader import Op, Program, Target
from wirescan.decoding.column_tree import DEEPEST, MOST_NODES, ColumnTree
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

MOST_BYTES = 1 << 20  # of a schema
LARGEST_FIXED = 1024  # bytes of a value of "fixed"
PRIMITIVE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{prefix}timestamp-{name}"): pa.timestamp(unit, zone)
        for prefix, zone in (("", "UTC"), ("local-", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
DECIMAL_DIGITS = 38  # of decimal128
# The units of a day, for each type of a time of day. Arrow has no other times of day.
PER_DAY = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000}
SKIPPED = -1  # the node of a value that is skipped
NUMBERS = ("int", "long", "float", "double")
READ = {
    "null": Op.NOTHING,
    "boolean": Op.BOOLEAN,
    "int": Op.INT,
    "long": Op.LONG,
    "float": Op.FLOAT,
    "double": Op.DOUBLE,
    "bytes": Op.BINARY,
    "string": Op.STRING,
}
NO_DEFAULT = object()
# What `encode_default` raises for a default that does not fit its type.
UNFIT = (
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    IndexError,
    OverflowError,
    struct.error,
)


@dataclass(eq=False)
class AvroField:
    """A field of a record."""

    name: str
    schema: AvroSchema
    default: Any
    aliases: tuple[str, ...]


@dataclass(eq=False)
class AvroSchema:
    """A schema whose names are resolved.

    Attributes:
        kind: a primitive type, "fixed", "enum", "array", "map", "record" or "union".
        name: the full name of a named type; else the kind.
        size: bytes of "fixed".
        symbols: those of an enum.
        default: the symbol that readers use for an unknown one, or None.
        items: the schema of elements or of the values of a map: one; of a union: all.
        fields: those of a record.
        logical: the Arrow type of a logical type, or None.
        aliases: other full names of a named type.
    """

    kind: str
    name: str
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    items: tuple[AvroSchema, ...] = ()
    fields: tuple[AvroField, ...] = ()
    logical: pa.DataType | None = None
    aliases: tuple[str, ...] = ()

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]


def parse_schema(text: str | bytes) -> AvroSchema:
    """Return a schema in JSON. Raises ValueError for a bad one."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"an Avro schema has at most {MOST_BYTES:,} bytes, not {len(text):,}")
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()  # names and symbols must be UTF-8
        return _Parser().parse(content, "", 0)
    except RecursionError:
        raise ValueError("the Avro schema is nested too deeply") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an Avro schema: {type(error).__name__} {error}") from None
    except ValueError as error:
        raise ValueError(f"not an Avro schema: {error}") from None


class _Parser:
    """Resolves the names in one schema."""

    def __init__(self) -> None:
        self._named: dict[str, AvroSchema] = {}

    def parse(self, content: Any, namespace: str, depth: int) -> AvroSchema:
        if depth > 2 * DEEPEST:
            raise ValueError("it is nested too deeply")
        if isinstance(content, list):
            return self._parse_union(content, namespace, depth)
        if isinstance(content, str):
            if content in PRIMITIVE:
                return AvroSchema(content, content)
            for name in (_qualify(content, namespace), content):
                if name in self._named:
                    return self._named[name]
            raise ValueError(f"there is no type {content!r}")
        kind = content["type"]
        if not isinstance(kind, str):
            return self.parse(kind, namespace, depth + 1)
        if kind in PRIMITIVE:
            return AvroSchema(kind, kind, logical=_find_logical_type(content, kind, 0))
        if kind in ("array", "map"):
            inside = content["items" if kind == "array" else "values"]
            inner = self.parse(inside, namespace, depth + 1)
            return AvroSchema(kind, kind, items=(inner,))
        if kind in ("record", "error", "enum", "fixed"):
            return self._parse_named(content, kind, namespace, depth)
        return self.parse(kind, namespace, depth + 1)  # the name of a type

    def _parse_union(self, content: list[Any], namespace: str, depth: int) -> AvroSchema:
        branches = tuple(self.parse(branch, namespace, depth + 1) for branch in content)
        names = [branch.name for branch in branches]
        if len(set(names)) < len(names) or "union" in names:
            raise ValueError("a union has two branches of one type, or a union as a branch")
        return AvroSchema("union", "union", items=branches)

    def _parse_named(
        self, content: dict[str, Any], kind: str, namespace: str, depth: int
    ) -> AvroSchema:
        name = _qualify(content["name"], content.get("namespace", namespace))
        if name in self._named:
            raise ValueError(f"type {name} is declared twice")
        inner_namespace = name.rpartition(".")[0]
        aliases = tuple(_qualify(alias, inner_namespace) for alias in content.get("aliases", ()))
        schema = AvroSchema("record" if kind == "error" else kind, name, aliases=aliases)
        self._named[name] = schema
        if kind == "enum":
            schema.symbols = tuple(map(str, content["symbols"]))
            schema.default = content.get("default")
            if not isinstance(schema.default, (str, type(None))):
                raise ValueError(f"enum {name} has a default that is no symbol")
        elif kind == "fixed":
            size = content["size"]
            # A payload of one byte can be null, and a null takes as much memory.
            if type(size) is not int or not 1 <= size <= LARGEST_FIXED:
                raise ValueError(
                    f"fixed {name} has {size} bytes, and may have 1 to {LARGEST_FIXED:,}"
                )
            schema.size = size
            schema.logical = _find_logical_type(content, kind, schema.size)
        else:
            fields = []
            for field in content["fields"]:
                inner = self.parse(field["type"], inner_namespace, depth + 1)
                default = field.get("default", NO_DEFAULT)
                field_aliases = tuple(field.get("aliases", ()))
                if not all(isinstance(alias, str) for alias in field_aliases):
                    raise ValueError(f"an alias of field {field['name']} is no name")
                fields.append(AvroField(str(field["name"]), inner, default, field_aliases))
            if len({field.name for field in fields}) < len(fields):
                raise ValueError(f"record {name} has a field twice")
            schema.fields = tuple(fields)
        return schema


def _qualify(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _find_logical_type(content: dict[str, Any], kind: str, size: int) -> pa.DataType | None:
    """Return the Arrow type of a logical type; None if there is none, or if it is not known."""
    name = content.get("logicalType")
    if name == "decimal" and kind in ("bytes", "fixed"):
        precision = content.get("precision")
        scale = content.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return None
        is_known = 1 <= precision <= DECIMAL_DIGITS and 0 <= scale <= precision
        return pa.decimal128(precision, scale) if is_known else None
    return LOGICAL.get((kind, name)) if isinstance(name, str) else None


# ---------------------------------------------------------------------------------- types


def make_type(schema: AvroSchema) -> pa.DataType:
    """Return the Arrow type of a schema.

    Raises ValueError for a schema that contains itself, which no Arrow type can.
    """
    return _make_type(schema, (), [0])


def _make_type(schema: AvroSchema, outer: tuple[AvroSchema, ...], total: list[int]) -> pa.DataType:
    total[0] += 1
    if schema in outer:
        raise ValueError(f"Avro type {schema.name} contains itself: no column can have this type")
    if len(outer) > DEEPEST or total[0] > MOST_NODES:
        raise ValueError("the Avro schema has too many fields, or is nested too deeply")
    inner = (*outer, schema)
    if schema.logical is not None:
        return schema.logical
    if schema.kind in PRIMITIVE:
        return PRIMITIVE[schema.kind]
    if schema.kind == "fixed":
        return pa.binary(schema.size)
    if schema.kind == "enum":
        return pa.string()
    if schema.kind == "array":
        return pa.list_(_make_type(schema.items[0], inner, total))
    if schema.kind == "map":
        return pa.map_(pa.string(), _make_type(schema.items[0], inner, total))
    if schema.kind == "record":
        return pa.struct(
            [(field.name, _make_type(field.schema, inner, total)) for field in schema.fields]
        )
    branches = _list_branches(schema)
    if len(branches) == 1:
        return _make_type(branches[0], inner, total)
    names = [branch.short_name for branch in branches]
    if len(set(names)) < len(names):
        names = [branch.name for branch in branches]
    return pa.struct(
        [(name, _make_type(branch, inner, total)) for name, branch in zip(names, branches)]
    )


def _list_branches(union: AvroSchema) -> list[AvroSchema]:
    """Return the branches of a union that are not null; a union of null alone has this branch."""
    return [item for item in union.items if item.kind != "null"] or list(union.items[:1])


# ---------------------------------------------------------------------------------- programs


def make_tree(reader: AvroSchema) -> ColumnTree:
    """Return the columns for the values of a schema. Raises ValueError as `make_type`."""
    tree = ColumnTree()
    tree.add(make_type(reader))
    _set_symbols(tree, reader, 0)
    return tree


def _set_symbols(tree: ColumnTree, schema: AvroSchema, node: int) -> None:
    """Set the symbols of all enums in a schema."""
    children = tree.list_children(node)
    if schema.kind == "enum":
        tree.set_symbols(node, list(schema.symbols))
    elif schema.kind == "array":
        _set_symbols(tree, schema.items[0], children[0])
    elif schema.kind == "map":
        _set_symbols(tree, schema.items[0], tree.list_children(children[0])[1])
    elif schema.kind == "record":
        for field, child in zip(schema.fields, children):
            _set_symbols(tree, field.schema, child)
    elif schema.kind == "union":
        branches = _list_branches(schema)
        nodes = [node] if len(branches) == 1 else children
        for branch, child in zip(branches, nodes):
            _set_symbols(tree, branch, child)


def make_program(writer: AvroSchema, reader: AvroSchema, tree: ColumnTree) -> Program:
    """Return the program that reads values of one schema into columns of another.

    It follows Avro's rules of schema resolution, with two exceptions. A field that the writer does
    not have, and that has no default, is null. A null of a writer's union is null in each type.

    writer: the schema of the bytes.
    reader: the schema of the columns.
    tree: what `make_tree` returns for the reader.

    Raises ValueError for a writer's schema that is too large.
    """
    compiler = _Compiler(tree)
    compiler.add_first(writer, reader)
    return Program(compiler.steps)


class _Compiler:
    """Makes the steps of one program. A step is what `Program` takes."""

    def __init__(self, tree: ColumnTree):
        self.steps: list[tuple[int, int, int, list[int], bytes]] = []
        self._tree = tree
        self._skips: dict[AvroSchema, int] = {}

    def add_first(self, writer: AvroSchema, reader: AvroSchema) -> None:
        """Add the steps of whole values. The first step is step 0."""
        number = self._reserve()
        assert number == 0
        self.steps[0] = (Op.UNION, 0, 0, [], b"")
        self.steps[0] = self.steps[self._resolve(writer, reader, 0)]

    def _reserve(self) -> int:
        if len(self.steps) >= 4 * MOST_NODES:
            raise ValueError("the Avro schema has too many fields")
        self.steps.append((Op.ERROR, 0, 0, [], b""))
        return len(self.steps) - 1

    def _add(
        self,
        op: Op,
        node: int,
        argument: int = 0,
        children: list[int] | None = None,
        constant: bytes = b"",
    ) -> int:
        number = self._reserve()
        self.steps[number] = (op, node, argument, children or [], constant)
        return number

    def _skip(self, schema: AvroSchema) -> int:
        """Return the step that skips a value. If a schema contains itself, its steps do too."""
        if schema in self._skips:
            return self._skips[schema]
        number = self._skips[schema] = self._reserve()
        children: list[int] = []
        argument = 0
        if schema.kind == "record":
            op = Op.RECORD
            children = [self._skip(field.schema) for field in schema.fields]
        elif schema.kind in ("array", "union"):
            op = Op.ARRAY if schema.kind == "array" else Op.UNION
            children = [self._skip(item) for item in schema.items]
        elif schema.kind == "map":
            op = Op.MAP
            children = [self._add(Op.BINARY, SKIPPED), self._skip(schema.items[0])]
        elif schema.kind == "enum":
            op = Op.ENUM
            children = [-1] * len(schema.symbols)
        elif schema.kind == "fixed":
            op, argument = Op.FIXED, schema.size
        else:
            op = READ[schema.kind]
        self.steps[number] = (op, SKIPPED, argument, children, b"")
        return number

    def _resolve(self, writer: AvroSchema, reader: AvroSchema, node: int) -> int:
        """Return the step that reads a value of the writer into a node of the reader."""
        if writer.kind == "union":
            children = [self._resolve(item, reader, node) for item in writer.items]
            return self._add(Op.UNION, node, 0, children)
        if writer.kind == "null":
            return self._add(Op.NOTHING, node)
        if reader.kind == "union":
            return self._resolve_union(writer, reader, node)
        if not _matches(writer, reader):
            return self._add(Op.ERROR, node)
        if reader.kind == "record":
            return self._resolve_record(writer, reader, node)
        if reader.kind == "array":
            child = self._tree.list_children(node)[0]
            inner = self._resolve(writer.items[0], reader.items[0], child)
            return self._add(Op.ARRAY, node, 0, [inner])
        if reader.kind == "map":
            key, value = self._tree.list_children(self._tree.list_children(node)[0])
            inner = self._resolve(writer.items[0], reader.items[0], value)
            return self._add(Op.MAP, node, 0, [self._add(Op.STRING, key, 1), inner])
        if reader.kind == "enum":
            numbers = {symbol: number for number, symbol in enumerate(reader.symbols)}
            other = numbers.get(reader.default or "", -1)
            return self._add(
                Op.ENUM, node, 0, [numbers.get(symbol, other) for symbol in writer.symbols]
            )
        return self._resolve_scalar(writer, reader, node)

    def _resolve_scalar(self, writer: AvroSchema, reader: AvroSchema, node: int) -> int:
        if reader.logical is not None and pa.types.is_decimal(reader.logical):
            limit = 10**reader.logical.precision
            constant = struct.pack("=QQ", limit & (1 << 64) - 1, limit >> 64)
            size = writer.size if writer.kind == "fixed" else -1
            return self._add(Op.DECIMAL, node, size, [], constant)
        if reader.kind in NUMBERS:
            target = Target(NUMBERS.index(reader.kind))
            limit = PER_DAY.get(reader.logical)
            constant = b"" if limit is None else struct.pack("=q", limit)
            return self._add(READ[writer.kind], node, target, constant=constant)
        if reader.kind == "fixed":
            return self._add(Op.FIXED, node, reader.size)
        return self._add(READ[writer.kind], node, int(reader.kind == "string"))

    def _resolve_union(self, writer: AvroSchema, reader: AvroSchema, node: int) -> int:
        branches = _list_branches(reader)
        exact = [n for n, item in enumerate(branches) if _is_same(writer, item)]
        fitting = [n for n, item in enumerate(branches) if _matches(writer, item)]
        if not fitting:
            return self._add(Op.ERROR, node)
        number = (exact or fitting)[0]
        if len(branches) == 1:
            return self._resolve(writer, branches[0], node)
        child = self._tree.list_children(node)[number]
        return self._add(Op.BRANCH, node, number, [self._resolve(writer, branches[number], child)])

    def _resolve_record(self, writer: AvroSchema, reader: AvroSchema, node: int) -> int:
        children = dict(
            zip((field.name for field in reader.fields), self._tree.list_children(node))
        )
        by_name = {alias: field for field in reader.fields for alias in field.aliases}
        by_name |= {field.name: field for field in reader.fields}
        steps = []
        missing = dict(children)
        for field in writer.fields:
            target = by_name.get(field.name)
            if target is None or target.name not in missing:
                steps.append(self._skip(field.schema))
            else:
                child = missing.pop(target.name)
                steps.append(self._resolve(field.schema, target.schema, child))
        for field in reader.fields:
            if field.name in missing:
                steps.append(self._add_default(field, missing[field.name]))
        return self._add(Op.RECORD, node, 0, steps)

    def _add_default(self, field: AvroField, node: int) -> int:
        if field.default is NO_DEFAULT or field.default is None:
            return self._add(Op.NOTHING, node)
        try:
            constant = encode_default(field.schema, field.default)
        except UNFIT:
            raise ValueError(
                f"field {field.name} has a default that does not fit its type"
            ) from None
        return self._add(
            Op.DEFAULT, node, 0, [self._resolve(field.schema, field.schema, node)], constant
        )


def _is_same(writer: AvroSchema, reader: AvroSchema) -> bool:
    """Return whether two schemas have one type and, if they have names, one name."""
    if writer.kind in ("record", "enum", "fixed"):
        return writer.kind == reader.kind and writer.short_name == reader.short_name
    return writer.kind == reader.kind


def _matches(writer: AvroSchema, reader: AvroSchema) -> bool:
    """Return whether values of one schema can be read as the other. Names of records may differ."""
    if reader.kind == "union":
        return any(_matches(writer, item) for item in reader.items)
    decimals = [
        schema.logical
        if schema.logical is not None and pa.types.is_decimal(schema.logical)
        else None
        for schema in (writer, reader)
    ]
    if decimals[1] is not None:
        return decimals[0] is not None and decimals[0].scale == decimals[1].scale
    if writer.kind in NUMBERS and reader.kind in NUMBERS:
        units = [schema.logical for schema in (writer, reader)]
        is_same_unit = units[1] is None or units[0] == units[1]
        return is_same_unit and NUMBERS.index(writer.kind) <= NUMBERS.index(reader.kind)
    if {writer.kind, reader.kind} == {"bytes", "string"}:
        return True
    return writer.kind == reader.kind and writer.size == reader.size


def encode_default(schema: AvroSchema, value: Any) -> bytes:
    """Return a default in JSON as Avro's bytes. Raises `UNFIT` for another type."""
    if schema.kind == "union":
        for number, item in enumerate(schema.items):
            try:
                return _encode_number(number) + encode_default(item, value)
            except UNFIT:
                continue
        raise ValueError("no branch fits")
    if schema.kind == "enum":
        return _encode_number(schema.symbols.index(value))
    if schema.kind == "record":
        return b"".join(
            encode_default(field.schema, value.get(field.name, field.default))
            for field in schema.fields
        )
    if schema.kind in ("array", "map"):
        return _encode_items(schema, value)
    return _encode_scalar(schema, value)


def _encode_scalar(schema: AvroSchema, value: Any) -> bytes:
    """Return the default of a primitive type or fixed as Avro's bytes."""
    if schema.kind == "null":
        if value is not None:
            raise TypeError("not null")
        return b""
    if schema.kind == "boolean":
        return b"\1" if _expect(value, bool) else b"\0"
    if schema.kind in ("int", "long"):
        return _encode_number(_expect(value, int), 32 if schema.kind == "int" else 64)
    if schema.kind in ("float", "double"):
        return struct.pack("<f" if schema.kind == "float" else "<d", _expect(value, (int, float)))
    raw: bytes = _expect(value, str).encode("utf-8" if schema.kind == "string" else "latin-1")
    if schema.kind != "fixed":
        return _encode_number(len(raw)) + raw
    if len(raw) != schema.size:
        raise ValueError("another size")
    return raw


def _encode_items(schema: AvroSchema, value: Any) -> bytes:
    """Return the default of an array or map as Avro's bytes."""
    if schema.kind == "array":
        items = [encode_default(schema.items[0], item) for item in _expect(value, list)]
    else:
        items = [
            encode_default(AvroSchema("string", "string"), name)
            + encode_default(schema.items[0], item)
            for name, item in _expect(value, dict).items()
        ]
    return (_encode_number(len(items)) + b"".join(items) if items else b"") + b"\0"


def _expect(value: Any, kind: Any) -> Any:
    is_other_bool = isinstance(value, bool) and kind is not bool
    if not isinstance(value, kind) or is_other_bool:
        raise TypeError(f"{value!r:.40} has another type")
    return value


def _encode_number(number: int, bits: int = 64) -> bytes:
    """Return a zig-zag varint. Raises ValueError for a number of more bits."""
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"a number has more than {bits} bits")
    return encode_varint((number << 1) ^ (number >> 63))
