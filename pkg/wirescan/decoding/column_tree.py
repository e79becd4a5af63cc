"""`ColumnTree`: the Arrow type of decoded values, and the nodes that a kernel writes for it.

`value_builder.pxd` describes nodes. A tree is made once for a schema. Each call of a kernel has a
`ValueBuilder` of its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import numpy as np

from wirescan.decoding.value_builder import ValueBuilder
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

# The numbers of `NodeKind` in value_builder.pxd.
NULLS, FIXED, BYTES, LIST, STRUCT = range(5)
DEEPEST = 60  # levels of structs and lists; Arrow's own files allow 64
MOST_NODES = 10_000


@dataclass
class _TreeNode:
    """A node. symbols: the texts that the numbers of an enum stand for."""

    type: pa.DataType
    kind: int
    width: int = 0
    children: list[int] = field(default_factory=list)
    symbols: list[str] | None = None


class ColumnTree:
    """The nodes of a type, in the order that `ValueBuilder` takes. Node 0 is the root."""

    def __init__(self) -> None:
        self._nodes: list[_TreeNode] = []

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the root."""
        return self._nodes[0].type

    def add(self, kind: pa.DataType, symbols: list[str] | None = None) -> int:
        """Add a type with all types in it, and return the number of its node.

        kind: null, bool, a type of fixed width, binary, string, list, map or struct.
        symbols: the kernel writes int32 numbers of these texts; the type is string.

        Raises ValueError for a type that is nested too deeply or has too many members.
        """
        return self._add(kind, symbols, 0)

    def _add(self, kind: pa.DataType, symbols: list[str] | None, depth: int) -> int:
        if depth > DEEPEST or len(self._nodes) >= MOST_NODES:
            raise ValueError("the schema has too many members, or is nested too deeply")
        number = len(self._nodes)
        node = _TreeNode(kind, NULLS, symbols=symbols)
        self._nodes.append(node)
        if symbols is not None:
            node.kind, node.width = FIXED, 4
        elif pa.types.is_boolean(kind):
            node.kind, node.width = FIXED, 1
        elif pa.types.is_binary(kind) or pa.types.is_string(kind):
            node.kind = BYTES
        elif pa.types.is_map(kind):
            node.kind = LIST
            entries = pa.struct([kind.key_field, kind.item_field])
            node.children.append(self._add(entries, None, depth + 1))
        elif pa.types.is_list(kind):
            node.kind = LIST
            node.children.append(self._add(kind.value_type, None, depth + 1))
        elif pa.types.is_struct(kind):
            node.kind = STRUCT
            node.children += [self._add(member.type, None, depth + 1) for member in kind]
        elif not pa.types.is_null(kind):
            node.kind, node.width = FIXED, kind.bit_width // 8
        return number

    def set_symbols(self, number: int, symbols: list[str]) -> None:
        """Make a node of type string one that a kernel fills with int32 numbers of texts."""
        node = self._nodes[number]
        node.kind, node.width, node.symbols = FIXED, 4, symbols

    def list_children(self, number: int) -> list[int]:
        """Return the numbers of the nodes directly in a node."""
        return self._nodes[number].children

    def count_nodes(self, number: int) -> int:
        """Return the number of nodes in a node, with itself."""
        return 1 + sum(map(self.count_nodes, self._nodes[number].children))

    def make_builder(self) -> ValueBuilder:
        """Return empty memory for the nodes."""
        return ValueBuilder([(node.kind, node.width, node.children) for node in self._nodes])

    def make_array(self, builder: ValueBuilder) -> pa.Array:
        """Return the values of a builder as an array of `type`."""
        return self._make_array(0, builder.export())

    def _make_array(self, number: int, parts: list[tuple[int, bytes, bytes, bytes]]) -> pa.Array:
        node = self._nodes[number]
        count, validity, values, offsets = parts[number]
        if pa.types.is_null(node.type):
            return pa.nulls(count)
        is_valid = np.frombuffer(validity, np.uint8)
        bitmap = None if is_valid.all() else _pack(is_valid)
        children = [self._make_array(child, parts) for child in node.children]
        if node.symbols is not None:
            numbers = pa.Array.from_buffers(pa.int32(), count, [bitmap, pa.py_buffer(values)])
            return pa.array(node.symbols, pa.string()).take(numbers)
        if pa.types.is_boolean(node.type):
            bits = _pack(np.frombuffer(values, np.uint8))
            return pa.Array.from_buffers(node.type, count, [bitmap, bits])
        if pa.types.is_decimal(node.type) and sys.byteorder == "big":
            values = np.frombuffer(values, np.uint64).reshape(-1, 2)[:, ::-1].tobytes()
        buffers = [bitmap]
        if node.kind in (BYTES, LIST):
            buffers.append(pa.py_buffer(offsets))
        if node.kind in (FIXED, BYTES):
            buffers.append(pa.py_buffer(values))
        return pa.Array.from_buffers(node.type, count, buffers, children=children)


def _pack(octets: np.ndarray) -> pa.Buffer:
    """Return the bits of an array of 0 and 1."""
    return pa.py_buffer(np.packbits(octets, bitorder="little"))
