"""Types of MessagePack's values: inferred from a sample, and as programs that read values.

MessagePack                     inferred type
nil                             null, if there are no other values
boolean, float                  bool, double
integer                         int64; uint64, if one is larger than int64 and none is negative
string, binary                  string, binary
timestamp                       timestamp[ns, UTC]
another extension               binary: its data, without the number of its type
array, map                      list, struct
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wirescan.core.strings import ByteStrings
from wirescan.decoding.column_tree import ColumnTree
from wirescan.decoding.msgpack_reader import MapOp, MapProgram
from wirescan.decoding.msgpack_shapes import infer_shapes
from wirescan.decoding.msgpack_wire import ValueKind
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

MEMBERS = 1000  # inferred members, nested ones included
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # in a second
INFERRED = {
    None: pa.null(),
    ValueKind.TRUTH: pa.bool_(),
    ValueKind.REAL: pa.float64(),
    ValueKind.TEXT: pa.string(),
    ValueKind.OCTETS: pa.binary(),
    ValueKind.STAMP: pa.timestamp("ns", "UTC"),
    ValueKind.EXTENSION: pa.binary(),
}
OPS = {
    pa.null(): MapOp.NOTHING,
    pa.bool_(): MapOp.BOOLEAN,
    pa.float32(): MapOp.FLOAT,
    pa.float64(): MapOp.DOUBLE,
    pa.string(): MapOp.STRING,
    pa.binary(): MapOp.BINARY,
}


class Shape:
    """The types of the values at one place in maps. The first value decides between types.

    counter: one number, how many members were found so far in all shapes of a payload's column.
    """

    def __init__(self, counter: list[int]):
        self._counter = counter
        self._kind: ValueKind | None = None
        self._is_large = False
        self._is_signed = False
        self._members: dict[bytes, Shape] = {}
        self._item: Shape | None = None

    def add(self, number: int, is_negative: bool) -> bool:  # noqa: FBT001
        """Add a value: a number of `ValueKind`. Return whether values in it are to be added."""
        kind = ValueKind(number)
        if kind == ValueKind.NIL:
            return False
        if kind == ValueKind.LARGE:
            self._is_large = True
            kind = ValueKind.NUMBER
        self._is_signed |= is_negative
        is_first_real = kind == ValueKind.REAL and self._kind == ValueKind.NUMBER
        if self._kind is None or is_first_real:
            self._kind = kind
        return kind == self._kind

    def find_member(self, name: bytes) -> Shape | None:
        """Return the shape of a member. None for a name that is not UTF-8.

        Raises ValueError for too many members.
        """
        shape = self._members.get(name)
        if shape is None:
            try:
                name.decode()
            except UnicodeDecodeError:
                return None
            self._counter[0] += 1
            if self._counter[0] > MEMBERS:
                raise ValueError(
                    f"the maps have more than {MEMBERS} different members: give a schema"
                )
            shape = self._members[name] = Shape(self._counter)
        return shape

    def find_item(self) -> Shape:
        """Return the shape of the elements of an array."""
        if self._item is None:
            self._item = Shape(self._counter)
        return self._item

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the values."""
        if self._kind == ValueKind.NUMBER:
            return pa.uint64() if self._is_large and not self._is_signed else pa.int64()
        if self._kind == ValueKind.ELEMENTS:
            item = self.find_item()
            # As for JSON: an array that is always empty becomes a list of strings.
            return pa.list_(pa.string() if item._kind is None else item.type)
        if self._kind == ValueKind.PAIRS:
            members = pa.struct(self.list_members())
            return members if len(members) else pa.null()
        return INFERRED[self._kind]

    def list_members(self) -> list[tuple[str, pa.DataType]]:
        """Return the names and types of the members, in the order in which they occur first."""
        return [(name.decode(), shape.type) for name, shape in self._members.items()]


def infer_schema(payloads: pa.Array) -> pa.Schema:
    """Return the members of maps and their types. Payloads that are no maps are ignored.

    Raises ValueError for too many different members.
    """
    shape = Shape([0])
    infer_shapes(ByteStrings(payloads), shape)
    return pa.schema(shape.list_members())


def check_schema(schema: Any) -> pa.Schema:
    """Return the schema without metadata. Raises TypeError and ValueError for one of no use."""
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"schema must be a pyarrow.Schema, not {type(schema).__name__}")
    if not len(schema):
        raise ValueError("a schema for MessagePack has at least one member")
    return pa.schema([(field.name, field.type) for field in schema])


def make_program(schema: pa.Schema, tree: ColumnTree) -> tuple[MapProgram, list[str]]:
    """Return the program that reads maps into a tree, and for each of its steps a path of names.

    tree: has the type pa.struct(schema).

    Raises ValueError for a type that values of MessagePack do not have, and for a name that occurs
    twice.
    """
    steps: list[Any] = []
    paths: list[str] = []
    _add_step(steps, paths, pa.struct(schema), tree, 0, "")
    return MapProgram(steps), paths


def _add_step(
    steps: list[Any], paths: list[str], kind: pa.DataType, tree: ColumnTree, node: int, path: str
) -> int:
    """Add the step of a type and those inside it. Return the number of the step."""
    number = len(steps)
    steps.append(None)
    paths.append(path)
    nodes = tree.list_children(node)
    inner: list[tuple[pa.DataType, str]] = []
    names: list[bytes] = []
    width, low, high = 0, 0, 0
    if pa.types.is_struct(kind):
        op = MapOp.STRUCT
        names = [field.name.encode() for field in kind]
        if len(set(names)) < len(names):
            raise ValueError(f"{path or 'the schema'} has a member twice")
        inner = [(field.type, f"{path}.{field.name}".lstrip(".")) for field in kind]
    elif pa.types.is_map(kind):
        op = MapOp.MAP
        nodes = tree.list_children(nodes[0])
        inner = [(kind.key_type, path), (kind.item_type, path)]
    elif pa.types.is_list(kind):
        op = MapOp.ARRAY
        inner = [(kind.value_type, path)]
    elif pa.types.is_integer(kind):
        op, width = MapOp.INTEGER, kind.bit_width // 8
        bounds = np.iinfo(kind.to_pandas_dtype())
        low, high = int(bounds.min), int(bounds.max)
    elif pa.types.is_timestamp(kind):
        op, high = MapOp.TIME, UNITS[kind.unit]
    elif kind in OPS:
        op = OPS[kind]
    else:
        raise ValueError(f"member {path}: MessagePack has no values of the type {kind}")
    children = [
        _add_step(steps, paths, inside, tree, child, name)
        for (inside, name), child in zip(inner, nodes)
    ]
    steps[number] = op, node, children, names, width, low, high
    return number
