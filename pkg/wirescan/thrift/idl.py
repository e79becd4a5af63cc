"""Name the fields in a table of thrift.fields by an interface definition (IDL).

`thrift.fields` uses this module where it is given an IDL. thriftpy2 parses IDLs; the extra `thrift`
installs it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.gather import Places
from wirescan.frames.table import FrameTable
from wirescan.thrift.constants import MessageType, Role, Type
from wirescan.thrift.idl_parser import make_parse_error, parse_idl
from wirescan.thrift.idl_types import TypeNumbers, iter_members
from wirescan.thrift.scan import FIELD

__all__ = ["IdlFile", "add_names", "load_module", "make_named_dtype"]

NOWHERE = (1 << 63) - 1  # greater than every key
NAME_ALIGNMENT = 8  # bytes; the width of the column `name` is a multiple, so that rows stay aligned
ARGUMENTS, RESULT = 0, 1  # indexes in the last axis of `_Names.structs`
_loaded = itertools.count()


class IdlFile(NamedTuple):
    """The path of a .thrift file, and directories with files that it includes.

    An included file is looked for in the directory of the file that includes it, then in the
    current directory, then in these.
    """

    path: str
    include: tuple[str, ...] = ()


class _Exception:
    """What an EXCEPTION carries (TApplicationException), in thriftpy2's form."""

    thrift_spec = {1: (Type.STRING, "message", False), 2: (Type.I32, "type", False)}


@dataclass(frozen=True, eq=False)
class _Names:
    """An IDL as arrays. Its structs, lists, sets and maps have numbers from 1; 0 is unknown.

    keys: i8, ascending: the values in these structs and containers (see `_make_key`), and NOWHERE.
    inside: i8, for each key: the number of the struct or container that the value is, or 0.
    names: dtype S, for each key: the name; b"" for NOWHERE and for values that are not fields.
    services, methods: their names, sorted.
    method_keys: i8, ascending: (service + 1, or 0 for any service) * len(methods) + method, for the
        methods of each service; and NOWHERE.
    structs: i8, indexed by [place in method_keys; ARGUMENTS or RESULT]; 0 for an unknown struct.
    exception: the number of the struct that an EXCEPTION carries.
    """

    keys: np.ndarray
    inside: np.ndarray
    names: np.ndarray
    services: list[bytes]
    methods: list[bytes]
    method_keys: np.ndarray
    structs: np.ndarray
    exception: int


def add_names(fields: FrameTable, idl: Any) -> FrameTable:
    """Return a table of thrift.fields with one more column: `name`, the names of fields.

    The column has dtype S. It is as wide as the longest name in the IDL, rounded up to 8 bytes. It
    is b"" where no name is known.

    Args:
        fields: a table as `thrift.fields` returns it, with all its rows.
        idl: the path of a .thrift file, or a module that thriftpy2 has loaded.

    Names are those of the arguments of a CALL or ONEWAY, of the result of a REPLY ("success" and
    the declared exceptions), of an EXCEPTION ("message" and "type"), and of all structs in them.
    Elements, keys and values have no names of their own. A value of another type than in the IDL
    has no name, and neither has its content: readers skip it.

    A message that names its service (see `thrift.messages`) is looked up in that service, if the
    IDL has it. The method of any other message is looked up in all services, including those of
    included files. It is unknown where two services disagree about it. A type that thriftpy2 leaves
    open, such as a list or typedef of a type that is declared later, gives no names, and neither
    does the name of something that is no type, such as a constant. A file is parsed again only
    after it has changed. A change of an included file is not noticed.

    Raises:
        TypeError: another table, or another kind of IDL.
        ValueError: an IDL that cannot be parsed, or rows that are not nested.
        OSError: a file that cannot be read.
        ImportError: thriftpy2 is not installed.
    """
    if not isinstance(fields, FrameTable) or fields.dtype != FIELD or fields.outer is None:
        name = getattr(fields, "name", type(fields).__name__)
        raise TypeError(f"add_names takes a table of thrift.fields, not {name}")
    names = _load_names(idl)
    rows = fields.rows
    parents = rows["parent"]
    depths = rows["depth"]
    structs = _find_message_structs(names, fields.outer)
    if len(rows) and not 0 <= parents.min() <= parents.max() < len(structs):
        raise ValueError("a row of thrift.fields points outside its messages")
    named = _widen_rows(rows, _make_dtype(names))
    inside = np.zeros(len(rows), np.int64)
    for depth in range(1, int(depths.max(initial=0)) + 1):
        at = np.flatnonzero(depths == depth)
        outer = (
            structs[parents[at]] if depth == 1 else inside[_find_enclosing_rows(rows, at, depth)]
        )
        if len(at) and not outer.any():
            break
        keys = _make_key(outer, rows["role"][at], rows["kind"][at], rows["id"][at])
        entries = np.searchsorted(names.keys, keys)
        entries[names.keys[entries] != keys] = -1
        inside[at] = names.inside[entries]
        named["name"][at] = names.names[entries]
    named.flags.writeable = False
    return replace(fields, rows=named)


def make_named_dtype(idl: Any) -> np.dtype:
    """Return the dtype of the rows that `add_names` makes with an IDL. Raises as `add_names`."""
    return _make_dtype(_load_names(idl))


def _make_dtype(names: _Names) -> np.dtype:
    columns = [(name, FIELD[name]) for name in FIELD.names or ()]
    return np.dtype([*columns, ("name", names.names.dtype)])


def _widen_rows(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a copy of rows of dtype FIELD with the further column of `dtype`, empty.

    Rows are copied as bytes, because numpy copies rows of many columns slowly.
    """
    octets = np.zeros((len(rows), dtype.itemsize), np.uint8)
    source = np.ascontiguousarray(rows).view(np.uint8)
    octets[:, : FIELD.itemsize] = source.reshape(len(rows), FIELD.itemsize)
    return octets.view(dtype).reshape(len(rows))


def _find_enclosing_rows(rows: np.ndarray, at: np.ndarray, depth: int) -> np.ndarray:
    """Return the rows that enclose the rows `at` of a depth. Raises ValueError for a bad one."""
    enclosing: np.ndarray = rows["enclosing"][at]
    if (
        ((enclosing < 0) | (enclosing >= at)).any()
        or (rows["depth"][enclosing] != depth - 1).any()
        or (rows["parent"][enclosing] != rows["parent"][at]).any()
    ):
        raise ValueError("rows of thrift.fields are not nested: names need all of them")
    return enclosing


def _make_key(outer: Any, role: Any, kind: Any, id: Any) -> np.ndarray:
    """Return one int64 number for each value in a struct or container.

    Its bits: number of the struct or container (35), role (4), type (8), id of a field (16).
    """
    outer, role, kind, id = (np.asarray(array, np.int64) for array in (outer, role, kind, id))
    field_id = np.where(role == Role.FIELD, id & 0xFFFF, 0)
    keys: np.ndarray = outer << 28 | (role & 15) << 24 | kind << 16 | field_id
    return keys


# ---------------------------------------------------------------------------------- messages


def _find_message_structs(names: _Names, messages: FrameTable) -> np.ndarray:
    """Return for each message the number of the struct that is its arguments, as int64."""
    methods = _match_names(messages, "method", names.methods)
    services = _match_names(messages, "service", names.services)
    kinds = messages["kind"]
    structs = np.zeros(len(messages), np.int64)
    at = np.flatnonzero(methods >= 0)
    sides = np.where(kinds[at] == MessageType.REPLY, RESULT, ARGUMENTS)
    keys = (services[at] + 1) * len(names.methods) + methods[at]
    places = np.searchsorted(names.method_keys, keys)
    places[names.method_keys[places] != keys] = -1
    structs[at] = names.structs[places, sides]
    structs[kinds == MessageType.EXCEPTION] = names.exception
    return structs


def _match_names(table: FrameTable, place: str, names: list[bytes]) -> np.ndarray:
    """Return for each row the index in `names` of the bytes in `place`, or -1, as int64.

    names: sorted.
    """
    numbers = np.full(len(table), -1, np.int64)
    lengths = np.array([len(name) for name in names], np.int64)
    sizes = table[place + "_size"]
    rows = np.flatnonzero(np.isin(sizes, lengths) & ~table.bad)
    offsets, block = Places(table[rows], place).gather(large=True)
    data = memoryview(block)
    for length in np.unique(sizes[rows]).tolist():
        candidates = np.flatnonzero(lengths == length)
        listed = np.array([names[candidate] for candidate in candidates], f"S{length}")
        some = np.flatnonzero(sizes[rows] == length)
        texts = np.ndarray(len(data) - length + 1, listed.dtype, data, strides=(1,))[offsets[some]]
        nearest = np.minimum(np.searchsorted(listed, texts), len(listed) - 1)
        is_equal = listed[nearest] == texts
        numbers[rows[some[is_equal]]] = candidates[nearest[is_equal]]
    return numbers


# ---------------------------------------------------------------------------------- the IDL


def _load_names(idl: Any) -> _Names:
    """Return the names in an IDL. Raises as `add_names`."""
    module = load_module(idl)
    try:
        return _read_module(module)
    except Exception as error:
        if isinstance(idl, ModuleType):
            raise
        raise make_parse_error(
            module.__thrift_file__, str(error) or type(error).__name__
        ) from error


def load_module(idl: Any) -> ModuleType:
    """Return an IDL as a module of thriftpy2.

    idl: the path of a .thrift file, such a module, or an `IdlFile`. A file is parsed again only
        after it has changed; a change of an included file is not noticed.

    Raises TypeError for another argument, ValueError for an IDL that cannot be parsed, OSError for
    a file that cannot be read, and ImportError if thriftpy2 is not installed.
    """
    if isinstance(idl, ModuleType):
        if not hasattr(idl, "__thrift_file__"):
            raise TypeError(f"{idl.__name__} is not a module that thriftpy2 has loaded")
        return idl
    file = idl if isinstance(idl, IdlFile) else IdlFile(idl)
    try:
        path = os.path.abspath(os.fsdecode(file.path))
    except TypeError:
        raise TypeError(
            f"idl must be a path or a module of thriftpy2, not {type(idl).__name__}"
        ) from None
    status = os.stat(path)
    return _parse_file(path, file.include, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _parse_file(path: str, include: tuple[str, ...], *_: int) -> ModuleType:
    stem = os.path.splitext(os.path.basename(path))[0]
    # thriftpy2 caches included files by the name of the module. A new name avoids stale files.
    name = f"wirescan{next(_loaded)}.{stem}_thrift"
    return parse_idl(path, name, include)


@lru_cache(maxsize=16)
def _read_module(module: ModuleType) -> _Names:
    numbers = TypeNumbers()
    named: dict[str, Any] = {}
    for service in list_services(module):
        named.setdefault(service.__name__, service)
    services = sorted(named)
    methods = sorted({method for service in named.values() for method in service.thrift_services})
    structs = _number_methods(numbers, [named[name] for name in services], methods)
    exception = numbers.find_number(Type.STRUCT, _Exception)
    entries = _list_members(numbers)
    entries[NOWHERE] = 0, b""
    keys = np.array(sorted(entries), np.int64)
    inside, names = zip(*(entries[key] for key in keys.tolist()))
    longest = max(map(len, names))
    width = NAME_ALIGNMENT * -(-longest // NAME_ALIGNMENT) or NAME_ALIGNMENT
    method_keys = sorted(structs)
    return _Names(
        keys,
        np.array(inside, np.int64),
        np.array(names, f"S{width}"),
        [name.encode() for name in services],
        [method.encode() for method in methods],
        np.array(method_keys, np.int64),
        np.array([structs[key] for key in method_keys], np.int64),
        exception,
    )


def _number_methods(
    numbers: TypeNumbers, services: list[Any], methods: list[str]
) -> dict[int, tuple[int, int]]:
    """Return the numbers of the arguments and the result of each method, by `_Names.method_keys`.

    Adds them to `numbers`.
    """
    columns = {method: column for column, method in enumerate(methods)}
    structs: dict[int, tuple[int, int]] = {NOWHERE: (0, 0)}
    declared: dict[str, list[tuple[Any, Any]]] = {method: [] for method in methods}
    for row, service in enumerate(services, 1):
        for method in dict.fromkeys(service.thrift_services):
            pair = getattr(service, method + "_args"), getattr(service, method + "_result")
            declared[method].append(pair)
            structs[row * len(methods) + columns[method]] = _number_pair(numbers, pair)
    for method, pairs in declared.items():
        # Services that inherit a method share its class. Separate declarations are compared.
        arguments, results = _number_pair(numbers, pairs[0])
        structs[columns[method]] = (
            arguments if numbers.are_equal(pair[0] for pair in pairs) else 0,
            results if numbers.are_equal(pair[1] for pair in pairs) else 0,
        )
    return structs


def _number_pair(numbers: TypeNumbers, pair: tuple[Any, Any]) -> tuple[int, int]:
    arguments, result = (numbers.find_number(Type.STRUCT, struct) for struct in pair)
    return arguments, result


def _list_members(numbers: TypeNumbers) -> dict[int, tuple[int, bytes]]:
    """Return {key: (number of the struct or container inside, name)} for all values.

    Adds nested structs and containers to `numbers`.
    """
    entries: dict[int, tuple[int, bytes]] = {}
    for number, (kind, spec) in enumerate(numbers.types, 1):  # grows meanwhile
        for member in iter_members(kind, spec):
            key = int(_make_key(number, member.role, member.type[0], member.id))
            entries[key] = numbers.find_number(*member.type), member.name.encode()
    return entries


def list_services(module: ModuleType) -> Iterator[Any]:
    """Yield the services of a file, then those of all files that it includes."""
    modules = [module]
    for member in modules:  # grows meanwhile
        meta = getattr(member, "__thrift_meta__", {})
        yield from meta.get("services", ())
        modules += [included for included in meta.get("includes", ()) if included not in modules]
