"""What an IDL says of calls and replies: the structs of methods, their fields and their types.

`call_text.py` uses this module. thriftpy2 parses IDLs: see `idl.load_module`.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from wirescan.thrift.constants import Type
from wirescan.thrift.idl import list_services, load_module
from wirescan.thrift.idl_types import BINARY, TypeNumbers, iter_fields, read_form


class IdlType(NamedTuple):
    """The type of a value in an IDL.

    Attributes:
        kind: its type on the wire; 0 if thriftpy2 has left it open, or if it is no type.
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
        return tuple(_make_type(*read_form(form)) for form in forms)


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
        self._services: set[bytes] = set()
        # The services that have a method, for each (service, method), and for (None, method).
        self._declared: dict[tuple[bytes | None, bytes], list[Any]] = {}
        for service in list_services(module):
            name = service.__name__.encode()
            if name in self._services:
                continue
            self._services.add(name)
            for method in dict.fromkeys(service.thrift_services):
                for key in ((name, method.encode()), (None, method.encode())):
                    self._declared.setdefault(key, []).append(service)
        self._methods: dict[tuple[bytes | None, bytes], MethodStructs] = {}
        self._fields: dict[Any, dict[int, IdlField]] = {}

    def find_method(self, service: bytes | None, method: bytes) -> MethodStructs:
        """Return the structs of a method.

        service: the service that a call names; None for none. A method of no service, or of one
            that the IDL does not have, is looked up in all services. It is unknown where two of
            them disagree.
        """
        key = (service if service in self._services else None, method)
        services = self._declared.get(key)
        if services is None:
            return MethodStructs()
        found = self._methods.get(key)
        if found is None:
            name = method.decode()
            found = self._methods[key] = MethodStructs(
                _find_struct(services, name + "_args"), _find_struct(services, name + "_result")
            )
        return found

    def get_fields(self, struct: Any) -> dict[int, IdlField]:
        """Return the fields of the class of a struct, by their numbers."""
        fields = self._fields.get(struct)
        if fields is None:
            fields = self._fields[struct] = {
                field.id: IdlField(field.name, _make_type(*field.type))
                for field in iter_fields(struct)
            }
        return fields


def load_calls(idl: Any) -> CallTypes:
    """Return the methods of an IDL. idl and errors: as for `load_module`."""
    return _make_calls(load_module(idl))


@lru_cache(maxsize=16)
def _make_calls(module: ModuleType) -> CallTypes:
    return CallTypes(module)


def _find_struct(services: list[Any], name: str) -> IdlType | None:
    """Return the struct of a method that some services have; None if they disagree."""
    # Services that inherit a method share its class. Separate declarations are compared.
    structs = [getattr(service, name) for service in services]
    return IdlType(Type.STRUCT, structs[0]) if TypeNumbers().are_equal(structs) else None


def _make_type(kind: int, spec: Any) -> IdlType:
    return IdlType(Type.STRING, is_binary=True) if kind == BINARY else IdlType(kind, spec)
