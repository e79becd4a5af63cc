"""Names of fields, out of the interface definition (IDL) that thriftpy2 parses; it comes with the extra `thrift`."""
from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from wirescan.core.gather import Places
from wirescan.table import FrameTable
from wirescan.thrift.kind import MessageType, Role, Type
from wirescan.thrift.structs import FIELD

__all__ = ["named"]

BINARY = 18                         # thriftpy2's own number for strings that are no text
NOWHERE = (1 << 63) - 1             # behind every key
_loaded = itertools.count()


class _Exception:
    """What an EXCEPTION carries (TApplicationException), in thriftpy2's form."""
    thrift_spec = {1: (Type.STRING, "message", False), 2: (Type.I32, "type", False)}


@dataclass(frozen=True, eq=False)
class _Names:
    """An IDL as arrays. Each struct, list, set and map in it has a number from 1 on; 0 is what it does not know.

    keys: i8, ascending, of what lies in one of these (see `_key`), and NOWHERE. inside: i8, for each key the number of
    the struct or container that its value is, or 0. names: for each key, dtype S; b"" for NOWHERE and what is no field.
    services, methods: the names. structs: i8, [service + 1 or 0 for any, method, 0 arguments or 1 result].
    exception: the number of what an EXCEPTION carries.
    """
    keys: np.ndarray
    inside: np.ndarray
    names: np.ndarray
    services: list[bytes]
    methods: list[bytes]
    structs: np.ndarray
    exception: int


def named(fields: FrameTable, idl: Any) -> FrameTable:
    """A table of thrift.fields with one more column: `name`, dtype S, as wide as the longest name in an IDL, in words of
    eight bytes; b"" where none is known.

    fields: as `thrift.fields` gives them: no row may have been left out. idl: the path of a .thrift file, or a module
    that thriftpy2 loaded. Names are those of the arguments of a CALL or ONEWAY, of the result of a REPLY: "success"
    and the exceptions that are declared, of an EXCEPTION "message" and "type", and of all structs in them. Elements,
    keys and values have no names of their own. What is of another type than the IDL says has no name, and neither has
    what lies in it: readers pass over it.

    A message that names its service (see `thrift.messages`) is of that one, if the IDL has it. A method of another is
    looked for in all services, also in files that are included, and is not known where two of them disagree about it.
    What thriftpy2 leaves open has none in it, as a list or typedef of what is declared only later. A file is parsed
    again only when it was changed; one that it includes is not looked at for that.

    Raises TypeError for another table and another kind of IDL; ValueError for an IDL that cannot be parsed, and for
    rows that do not lie in each other; OSError for a file that cannot be read; ImportError without thriftpy2.
    """
    if not isinstance(fields, FrameTable) or fields.dtype != FIELD or fields.outer is None:
        raise TypeError("named takes a table of thrift.fields, not "
                        f"{getattr(fields, 'name', type(fields).__name__)}")
    known, rows = _names_of(idl), fields.rows
    around, parents, depths = _structs(known, fields.outer), rows["parent"], rows["depth"]
    if len(rows) and not 0 <= parents.min() <= parents.max() < len(around):
        raise ValueError("a row of thrift.fields points outside its messages")
    dtype = np.dtype([(name, FIELD[name]) for name in FIELD.names] + [("name", known.names.dtype)])
    octets = np.zeros((len(rows), dtype.itemsize), np.uint8)            # numpy copies rows of many columns slowly
    octets[:, :FIELD.itemsize] = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), FIELD.itemsize)
    whole = octets.view(dtype).reshape(len(rows))
    inside = np.zeros(len(rows), np.int64)
    for depth in range(1, int(depths.max(initial=0)) + 1):
        at = np.flatnonzero(depths == depth)
        if depth == 1:
            outer = around[parents[at]]
        else:
            enclosing = rows["enclosing"][at]
            if ((enclosing < 0) | (enclosing >= at)).any() or (depths[enclosing] != depth - 1).any() or (
                    parents[enclosing] != parents[at]).any():
                raise ValueError("rows of thrift.fields do not lie in each other: names need all of them")
            outer = inside[enclosing]
        if len(at) and not outer.any():
            break
        keys = _key(outer, rows["role"][at], rows["kind"][at], rows["id"][at])
        place = np.searchsorted(known.keys, keys)
        place[known.keys[place] != keys] = -1
        inside[at], whole["name"][at] = known.inside[place], known.names[place]
    whole.flags.writeable = False
    return replace(fields, rows=whole)


def _key(outer: Any, role: Any, kind: Any, id: Any) -> Any:
    """One number for a place in a struct or container: outer (35 bits) role (4) type (8) id of a field (16)."""
    outer, role, kind, id = (np.asarray(one, np.int64) for one in (outer, role, kind, id))
    return outer << 28 | (role & 15) << 24 | kind << 16 | np.where(role == Role.FIELD, id & 0xFFFF, 0)


# ---------------------------------------------------------------------------------- messages

def _structs(known: _Names, messages: FrameTable) -> np.ndarray:
    """Int64 array: for each message the number of the struct that is its arguments."""
    methods = _numbers(messages, "method", known.methods)
    services = _numbers(messages, "service", known.services)
    kinds = messages["kind"]
    found = np.zeros(len(messages), np.int64)
    at = np.flatnonzero(methods >= 0)
    found[at] = known.structs[services[at] + 1, methods[at], (kinds[at] == MessageType.REPLY).astype(np.intp)]
    found[kinds == MessageType.EXCEPTION] = known.exception
    return found


def _numbers(table: FrameTable, place: str, names: list[bytes]) -> np.ndarray:
    """Int64 array: the number, among some names, of the one that stands in that place of each row; or -1."""
    found = np.full(len(table), -1, np.int64)
    lengths = np.array([len(name) for name in names], np.int64)
    sizes = table[place + "_size"]
    chosen = np.flatnonzero(np.isin(sizes, lengths) & ~table.bad)
    offsets, data = Places(table[chosen], place).gathered(True)
    for length in np.unique(sizes[chosen]).tolist():
        numbers = np.flatnonzero(lengths == length)
        listed = np.array([names[number] for number in numbers], f"S{length}")
        order = np.argsort(listed)
        some = np.flatnonzero(sizes[chosen] == length)
        texts = np.ndarray(len(data) - length + 1, listed.dtype, data, strides=(1,))[offsets[some]]
        nearest = order[np.minimum(np.searchsorted(listed, texts, sorter=order), len(order) - 1)]
        same = listed[nearest] == texts
        found[chosen[some[same]]] = numbers[nearest[same]]
    return found


# ---------------------------------------------------------------------------------- the IDL

def _names_of(idl: Any) -> _Names:
    if isinstance(idl, ModuleType):
        if not hasattr(idl, "__thrift_file__"):
            raise TypeError(f"{idl.__name__} is no module that thriftpy2 has loaded")
        return _of_module(idl)
    try:
        path = os.path.abspath(os.fsdecode(idl))
    except TypeError:
        raise TypeError(f"idl is a path or a module of thriftpy2, not {type(idl).__name__}") from None
    status = os.stat(path)
    return _of_file(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _of_file(path: str, *_: int) -> _Names:
    try:
        from thriftpy2.parser import parse
    except ImportError as error:
        raise ImportError("an IDL is parsed by thriftpy2: pip install 'wirescan[thrift]'") from error
    stem = os.path.splitext(os.path.basename(path))[0]
    try:
        # thriftpy2 keeps included files by the name of the module: another one may not meet them.
        return _of_module(parse(path, f"wirescan{next(_loaded)}.{stem}_thrift", enable_cache=False))
    except OSError:
        raise
    except Exception as error:          # of thriftpy2, ply, or Python's own where an IDL asks for what cannot be
        raise ValueError(f"{path} cannot be parsed: {error or type(error).__name__}") from error


@lru_cache(maxsize=16)
def _of_module(module: ModuleType) -> _Names:
    numbers: dict[tuple[int, Any], int] = {}
    services: dict[str, Any] = {}
    for service in _services(module):
        services.setdefault(service.__name__, service)
    methods = sorted({method for service in services.values() for method in service.thrift_services})
    structs = np.zeros((len(services) + 1, len(methods), 2), np.int64)
    for (column, method), (side, suffix) in itertools.product(enumerate(methods), enumerate(("_args", "_result"))):
        given = [getattr(service, method + suffix, None) for service in services.values()]
        for row, struct in enumerate(given, 1):
            if struct:
                structs[row, column, side] = _number(numbers, Type.STRUCT, struct)
        # What several services inherit is one class; what they declare each for itself is compared.
        shapes = [{id: rest for _, id, *rest in _members(Type.STRUCT, struct)} for struct in given if struct]
        if all(shape == shapes[0] for shape in shapes):
            structs[0, column, side] = structs[1:, column, side].max()
    exception = _number(numbers, Type.STRUCT, _Exception)
    entries: dict[int, tuple[int, bytes]] = {}
    for (kind, spec), number in _growing(numbers):
        for role, id, name, member in _members(kind, spec):
            entries[int(_key(number, role, member[0], id))] = _number(numbers, *member), name.encode()
    entries[NOWHERE] = 0, b""
    keys = np.array(sorted(entries), np.int64)
    inside, names = zip(*(entries[key] for key in keys.tolist()))
    width = 8 * -(-max(map(len, names)) // 8) or 8      # so that rows stay aligned
    return _Names(keys, np.array(inside, np.int64), np.array(names, f"S{width}"), [name.encode() for name in services],
                  [method.encode() for method in methods], structs, exception)


def _services(module: ModuleType) -> Iterator[Any]:
    """The services of a file and of all that it includes, its own ones first."""
    modules = [module]
    for one in modules:
        meta = getattr(one, "__thrift_meta__", {})
        yield from meta.get("services", ())
        modules += [more for more in meta.get("includes", ()) if more not in modules]


def _growing(numbers: dict[tuple[int, Any], int]) -> Iterator[tuple[tuple[int, Any], int]]:
    """The items of a dict to which more are added meanwhile."""
    done = 0
    while done < len(numbers):
        for item in list(itertools.islice(numbers.items(), done, None)):
            done += 1
            yield item


def _number(numbers: dict[tuple[int, Any], int], kind: int, spec: Any) -> int:
    """That of a struct or container, a new one if need be; 0 for another type."""
    return numbers.setdefault((kind, spec), len(numbers) + 1) if Type.STRUCT <= kind <= Type.LIST else 0


def _members(kind: int, spec: Any) -> Iterator[tuple[Role, int, str, tuple[int, Any]]]:
    """What lies in a struct or container: role, id, name, and (type, what that consists of)."""
    if kind == Type.STRUCT:
        for id, (type, name, *more) in spec.thrift_spec.items():
            yield Role.FIELD, id, name, _type((type, more[0]) if len(more) > 1 else type)
    elif kind == Type.MAP:
        yield Role.KEY, 0, "", _type(spec[0])
        yield Role.VALUE, 0, "", _type(spec[1])
    else:
        yield Role.ELEMENT, 0, "", _type(spec)


def _type(form: Any) -> tuple[int, Any]:
    """(type, what it consists of) of a type in thriftpy2's form: a number, or that pair."""
    type, spec = (form, None) if isinstance(form, int) else form
    # thriftpy2 leaves a number below 0 where it did not find what a name stands for; nothing on the wire has type 0.
    return (Type.STRING, None) if type == BINARY else (0, None) if type < 0 else (type, spec)
