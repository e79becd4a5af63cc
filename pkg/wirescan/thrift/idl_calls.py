"""What an IDL says of calls and replies: the structs of methods, their fields and their types.

`call_text.py` uses this module. thriftpy2 parses IDLs: see `idl.load_module`.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from wirescan.thrift.constants import Type
from wirescan.thrift.idl import BINARY, iter_members, list_services, load_module

MOST_METHODS = 1 << 16  # whose structs are kept


class IdlType(NamedTuple):
    """The type of a value in an IDL.

    Attributes:
        kind: its type on the wire; 0 if thriftpy2 has left it open.
        spec: of a struct its class, of an enum its class, of a container the types inside it, in
            thriftpy2's form; else None.
        is_binary: a byte string that is no text.
    """

    kind: int
    spec: Any = None
    is_binary: bool = False

    @property
    def is_enum(self) -> bool:
        """Whether the numbers have names."""
        return self.kind == Type.I32 and self.spec is not None

    @property
    def items(self) -> tuple[IdlType, ...]:
        """The types of elements, or of keys and values."""
        forms = self.spec if self.kind == Type.MAP else (self.spec,)
        return tuple(map(_read_type, forms))


class IdlField(NamedTuple):
    """A field of a struct in an IDL: its name and its type."""

    name: str
    type: IdlType


class MethodStructs(NamedTuple):
    """The structs of a method: its arguments and its result. None for an unknown one."""

    arguments: IdlType | None = None
    result: IdlType | None = None


class CallTypes:
    """The methods of an IDL.

    idl: as `load_module` takes it. Raises as `load_module`.
    """

    def __init__(self, module: ModuleType):
        self._services: dict[bytes, Any] = {}
        for service in list_services(module):
            self._services.setdefault(service.__name__.encode(), service)
        self._methods: dict[tuple[bytes | None, bytes], MethodStructs] = {}
        self._fields: dict[Any, dict[int, IdlField]] = {}

    def find_method(self, service: bytes | None, method: bytes) -> MethodStructs:
        """Return the structs of a method.

        service: the service that a call names; None for none. A method of no service, or of one
            that the IDL does not have, is looked up in all services. It is unknown where two of
            them disagree.
        """
        key = (service if service in self._services else None, method)
        found = self._methods.get(key)
        if found is None:
            service_name, name = key[0], method.decode(errors="replace")
            services = (
                self._services.values() if service_name is None else [self._services[service_name]]
            )
            found = MethodStructs(
                _find_struct(services, name + "_args"), _find_struct(services, name + "_result")
            )
            if len(self._methods) < MOST_METHODS:  # names of hostile messages are no end of them
                self._methods[key] = found
        return found

    def get_fields(self, struct: Any) -> dict[int, IdlField]:
        """Return the fields of the class of a struct, by their numbers."""
        fields = self._fields.get(struct)
        if fields is None:
            fields = self._fields[struct] = {
                id: IdlField(name, _read_type((type, rest[0]) if len(rest) > 1 else type))
                for id, (type, name, *rest) in struct.thrift_spec.items()
            }
        return fields


def load_calls(idl: Any) -> CallTypes:
    """Return the methods of an IDL. idl and errors: as for `load_module`."""
    return _make_calls(load_module(idl))


@lru_cache(maxsize=16)
def _make_calls(module: ModuleType) -> CallTypes:
    return CallTypes(module)


def _find_struct(services: Any, name: str) -> IdlType | None:
    """Return the struct of a method in some services; None if none has it, or they disagree."""
    structs = [struct for service in services if (struct := getattr(service, name, None))]
    # Services that inherit a method share its class. Separate declarations are compared.
    shapes = [
        {member.id: (member.name, member.type) for member in iter_members(Type.STRUCT, struct)}
        for struct in structs
    ]
    if not structs or any(shape != shapes[0] for shape in shapes):
        return None
    return IdlType(Type.STRUCT, structs[0])


def _read_type(form: Any) -> IdlType:
    """Return a type in thriftpy2's form: a number, or a pair of a number and a specification."""
    kind, spec = (form, None) if isinstance(form, int) else form
    if kind == BINARY:
        return IdlType(Type.STRING, is_binary=True)
    return IdlType(kind, spec) if kind >= 0 else IdlType(0)
