"""Structs of an IDL as Arrow types, and as the programs that read them.

Thrift                          Arrow
bool, byte (i8), i16, i32, i64  bool, int8, int16, int32, int64
double, string, binary          double, string, binary
enum                            string: the name of the number, or its digits if it has none
list, set                       list
map                             map
struct, union, exception        struct

Every field may be null.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from wirescan.decoding.column_tree import DEEPEST, MOST_NODES, ColumnTree
from wirescan.frames.optional_packages import name_package
from wirescan.thrift.constants import Type
from wirescan.thrift.idl import load_module
from wirescan.thrift.idl_types import BINARY, FIELD_IDS, iter_fields, read_form
from wirescan.thrift.struct_reader import Form, StructProgram

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

NUMBERS = {
    Type.BOOL: pa.bool_(),
    Type.BYTE: pa.int8(),
    Type.I16: pa.int16(),
    Type.I32: pa.int32(),
    Type.I64: pa.int64(),
    Type.DOUBLE: pa.float64(),
}
I32 = range(-(1 << 31), 1 << 31)  # the numbers of an enum on the wire


@dataclass(frozen=True)
class ThriftField:
    """A field of a struct."""

    id: int
    name: str
    type: ThriftType
    is_required: bool


@dataclass(frozen=True)
class ThriftType:
    """A type of an IDL.

    Attributes:
        kind: its type on the wire.
        form: how its values are in the column.
        symbols: of an enum: (number, name), ascending.
        items: of a list or set: the type of elements; of a map: those of key and value.
        fields: of a struct, in the order of the IDL.
    """

    kind: Type
    form: Form = Form.PLAIN
    symbols: tuple[tuple[int, str], ...] = ()
    items: tuple[ThriftType, ...] = ()
    fields: tuple[ThriftField, ...] = ()


def read_struct_type(idl: Any, name: str) -> ThriftType:
    """Return the type of a struct, union or exception in an IDL.

    idl: the path of a .thrift file, or a module that thriftpy2 has loaded.
    name: as the IDL has it; "shared.Order" is Order of the included file shared.thrift.

    Raises ValueError for an IDL that cannot be parsed, for a struct that it does not have, and for
    one that contains itself. Raises OSError, TypeError and ImportError as `load_module`.
    """
    module = load_module(idl)
    struct: Any = module
    for part in name.split("."):
        struct = getattr(struct, part, None)
    if not hasattr(struct, "thrift_spec"):
        names = ", ".join(_list_struct_names(module)) or "none"
        raise ValueError(f"the IDL has no struct {name!r}; its structs are: {names}")
    return _TypeReader().read(Type.STRUCT, struct, (), name)


def _list_struct_names(module: ModuleType) -> list[str]:
    meta = getattr(module, "__thrift_meta__", {})
    return [
        struct.__name__
        for group in ("structs", "unions", "exceptions")
        for struct in meta.get(group, ())
    ]


class _TypeReader:
    """Reads types of a module of thriftpy2, and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def read(self, kind: int, spec: Any, outer: tuple[Any, ...], path: str) -> ThriftType:
        """Return a type. outer: the structs around it. path: its name, for errors."""
        self._count += 1
        if len(outer) > DEEPEST or self._count > MOST_NODES:
            raise ValueError("the struct has too many fields, or is nested too deeply")
        if kind in (Type.STRING, BINARY):
            return ThriftType(Type.STRING, Form.TEXT if kind == Type.STRING else Form.PLAIN)
        if kind == Type.I32 and spec is not None:
            names = spec._VALUES_TO_NAMES
            # Other numbers cannot be written.
            symbols = tuple((number, names[number]) for number in sorted(names) if number in I32)
            return ThriftType(Type.I32, Form.SYMBOL, symbols)
        if kind in NUMBERS:
            return ThriftType(Type(kind))
        inner = (*outer, spec)
        if kind == Type.STRUCT:
            if any(spec is struct for struct in outer):
                raise ValueError(f"{spec.__name__} contains itself: no column can have this type")
            return self._read_struct(spec, inner, path)
        if kind in (Type.LIST, Type.SET, Type.MAP):
            forms = spec if kind == Type.MAP else (spec,)
            items = tuple(self.read(*read_form(form), inner, path) for form in forms)
            return ThriftType(Type(kind), items=items)
        raise ValueError(
            f"{path}: its type has no column, or is no type, or is declared only after it is used; "
            "declare it before"
        )

    def _read_struct(self, struct: Any, inner: tuple[Any, ...], path: str) -> ThriftType:
        fields = []
        for field in iter_fields(struct):
            if field.id not in FIELD_IDS:
                raise ValueError(
                    f"{path}.{field.name}: its number {field.id} does not fit 16 bits, so it "
                    "cannot be written"
                )
            type = self.read(*field.type, inner, f"{path}.{field.name}")
            fields.append(ThriftField(field.id, field.name, type, field.is_required))
        return ThriftType(Type.STRUCT, fields=tuple(fields))


# ---------------------------------------------------------------------------------- columns


def make_type(type: ThriftType) -> pa.DataType:
    """Return the Arrow type of the values of a type."""
    if type.kind in (Type.LIST, Type.SET):
        return pa.list_(make_type(type.items[0]))
    if type.kind == Type.MAP:
        return pa.map_(*map(make_type, type.items))
    if type.kind == Type.STRUCT:
        return pa.struct([(field.name, make_type(field.type)) for field in type.fields])
    if type.form != Form.PLAIN:
        return pa.string()
    return NUMBERS.get(type.kind, pa.binary())


def make_tree(type: ThriftType) -> ColumnTree:
    """Return the columns for structs. Raises ValueError for a type that is nested too deeply."""
    tree = ColumnTree()
    tree.add(make_type(type))
    return tree


def make_program(type: ThriftType, tree: ColumnTree) -> StructProgram:
    """Return the program that reads structs into the columns that `make_tree` returns."""
    steps: list[Any] = []
    _add_step(steps, type, tree, 0)
    return StructProgram(steps)


def _add_step(steps: list[Any], type: ThriftType, tree: ColumnTree, node: int) -> int:
    """Add the step of a type and those inside it. Return the number of the step."""
    number = len(steps)
    steps.append(None)
    nodes = tree.list_children(node)
    children: list[int] = []
    numbers: list[int] = []
    more: list[Any] = []
    if type.kind == Type.STRUCT:
        fields = sorted(zip(type.fields, nodes), key=lambda pair: pair[0].id)
        children = [_add_step(steps, field.type, tree, child) for field, child in fields]
        numbers = [field.id for field, _ in fields]
        more = [field.is_required for field, _ in fields]
    elif type.form == Form.SYMBOL:
        numbers = [value for value, _ in type.symbols]
        more = [name.encode() for _, name in type.symbols]
    elif type.items:
        if type.kind == Type.MAP:
            nodes = tree.list_children(nodes[0])
        children = [_add_step(steps, item, tree, child) for item, child in zip(type.items, nodes)]
    size = _count_nodes(tree, node)
    steps[number] = type.kind, type.form, node, size, children, numbers, more
    return number


def _count_nodes(tree: ColumnTree, node: int) -> int:
    return 1 + sum(_count_nodes(tree, child) for child in tree.list_children(node))
