"""Types of an IDL, as thriftpy2 holds them: what is in structs and containers, and their numbers.

`idl.py`, `idl_calls.py` and `struct_schema.py` use this module. It does not import thriftpy2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from wirescan.thrift.constants import Role, Type

BINARY = 18  # thriftpy2's number for byte strings; on the wire they are STRING
NO_TYPE = (0, None)  # no value on the wire has type 0
CONTAINERS = (Type.MAP, Type.SET, Type.LIST)
FIELD_IDS = range(-(1 << 15), 1 << 15)  # on the wire a field number has 16 bits


class StructField(NamedTuple):
    """A field of a struct.

    type: as `read_form` returns it. is_required: whether the IDL has the word `required`.
    """

    id: int
    name: str
    type: tuple[int, Any]
    is_required: bool


class Member(NamedTuple):
    """A value in a struct or container.

    type: as `read_form` returns it, but STRING instead of BINARY.
    """

    role: Role
    id: int
    name: str
    type: tuple[int, Any]


def read_form(form: Any) -> tuple[int, Any]:
    """Return (type, specification) of a type in thriftpy2's form: a number, or that pair.

    The specification is the class of a struct or enum, or the forms inside a container; else None.
    Returns NO_TYPE for a negative number, which thriftpy2 leaves where it did not find the type
    that a name is for. It does not check what the name is for, so anything else that is no type,
    such as the value of a constant, is NO_TYPE too.
    """
    kind, spec = form if isinstance(form, tuple) and len(form) == 2 else (form, None)
    if not isinstance(kind, int) or kind < 0:
        return NO_TYPE
    if kind == Type.STRUCT:
        is_type = isinstance(spec, type) and hasattr(spec, "thrift_spec")
    elif kind == Type.MAP:
        is_type = isinstance(spec, tuple) and len(spec) == 2
    elif kind in CONTAINERS:
        is_type = spec is not None
    elif kind == Type.I32 and spec is not None:
        is_type = isinstance(spec, type) and hasattr(spec, "_VALUES_TO_NAMES")
    else:
        is_type = spec is None
    return (kind, spec) if is_type else NO_TYPE


def iter_fields(struct: Any) -> Iterator[StructField]:
    """Yield the fields of the class of a struct, in the order of the IDL."""
    for id, (kind, name, *rest) in struct.thrift_spec.items():
        form = (kind, rest[0]) if len(rest) > 1 else kind
        yield StructField(id, name, read_form(form), bool(rest[-1]))


def iter_members(kind: int, spec: Any) -> Iterator[Member]:
    """Yield the members of a struct or container.

    A field whose number does not fit 16 bits is none of them: it cannot be written.
    """
    if kind == Type.STRUCT:
        for field in iter_fields(spec):
            if field.id in FIELD_IDS:
                yield Member(Role.FIELD, field.id, field.name, _read_wire_type(field.type))
    elif kind == Type.MAP:
        yield Member(Role.KEY, 0, "", _read_wire_type(spec[0]))
        yield Member(Role.VALUE, 0, "", _read_wire_type(spec[1]))
    else:
        yield Member(Role.ELEMENT, 0, "", _read_wire_type(spec))


def _read_wire_type(form: Any) -> tuple[int, Any]:
    kind, spec = read_form(form)
    return (Type.STRING, None) if kind == BINARY else (kind, spec)


class TypeNumbers:
    """The numbers of structs and containers, from 1 on. Equal types have equal numbers.

    A type may use a typedef several times, which may use another one several times, and so on. So a
    container is looked at once, however often it is used, and not as a tree of its own.

    Attributes:
        types: (type, specification) of the numbers from 1 on.
    """

    def __init__(self) -> None:
        self.types: list[tuple[int, Any]] = []
        self._numbers: dict[Any, int] = {}
        # By the identity of the specification. The module of thriftpy2 keeps it.
        self._containers: dict[tuple[int, int], int] = {}

    def find_number(self, kind: int, spec: Any) -> int:
        """Return the number of a struct or container, a new one if needed; 0 for another type."""
        if kind == Type.STRUCT:
            return self._add((kind, spec), (kind, spec))
        if kind not in CONTAINERS:
            return 0
        # Not a recursion: containers may be nested deeply.
        pending = [(kind, spec)] if self._is_unknown(kind, spec) else []
        while pending:
            type = pending[-1]
            inside = [member.type for member in iter_members(*type)]
            unknown = [item for item in inside if self._is_unknown(*item)]
            pending += unknown
            if not unknown:
                pending.pop()
                key = type[0], tuple(map(self._identify, inside))
                self._containers[type[0], id(type[1])] = self._add(key, type)
        return self._containers[kind, id(spec)]

    def are_equal(self, structs: Iterable[Any]) -> bool:
        """Return whether all classes of structs have the same fields."""
        shapes = [self._describe(struct) for struct in dict.fromkeys(structs)]
        return all(shape == shapes[0] for shape in shapes)

    def _describe(self, struct: Any) -> dict[int, Any]:
        return {
            member.id: (member.name, self._identify(member.type))
            for member in iter_members(Type.STRUCT, struct)
        }

    def _is_unknown(self, kind: int, spec: Any) -> bool:
        return kind in CONTAINERS and (kind, id(spec)) not in self._containers

    def _identify(self, type: tuple[int, Any]) -> tuple[int, Any]:
        """Return what equal types have in common."""
        return (type[0], self.find_number(*type)) if type[0] in CONTAINERS else type

    def _add(self, key: Any, type: tuple[int, Any]) -> int:
        number = self._numbers.setdefault(key, len(self.types) + 1)
        if number > len(self.types):
            self.types.append(type)
        return number
