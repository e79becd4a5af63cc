"""Events to Arrow, their documents parsed into typed columns by the JSON reader of pyarrow.

What that reader (26.0) has to be kept from. An empty line is no row to it, two objects in a line are two; it recurses
without bound, and checks no UTF-8: so lines.pyx proves each line. Where it infers types, nulls that begin a list are
lost, types that differ between its blocks end the process or lose values, and a row of many names beside many rows
takes the product of both in memory. So it infers in one block of few lines, and only the types are taken from that;
values are read with types that are known. Even then a list of the type null loses some: such are read as strings.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.core.gather import Places
from wirescan.errors import check_mode
from wirescan.limits import Limits
from wirescan.lumberjack.lines import WRONG, lines
from wirescan.table import FrameTable

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP = "@timestamp"
DEEPEST = 50                    # objects and arrays in each other; Arrow's own files take 64
HEAVIEST = 1 << 13              # objects and members in one document, and in those whose types are inferred at a time
FIELDS = 1000                   # that are inferred, nested ones too: as many as Elasticsearch takes unless told
BLOCK = 1 << 20                 # bytes that a thread parses at a time
LARGEST = (1 << 31) - 1         # bytes in a column of binary
NEAR = 60                       # bytes shown of a refused document
DATA = 0x44


def documents(events: FrameTable, *, schema: pa.Schema | None = None, others: bool = False,
              errors: str | None = None, limits: Limits = Limits()) -> pa.Table:
    """A table of lumberjack.events as an Arrow table, row for row, with the JSON of the events parsed. Needs pyarrow.

    Columns: sequence uint32, version uint16, window int32, fault uint8, as in the events;
    pairs: map<binary, binary>, those of a data frame in the order of the wire, duplicates too; else null;
    document: struct, the fields of the JSON document; null where the event has none, or it was refused;
    refused: string, why it was; else null.
    `pyarrow.Table.from_struct_array(table["document"])` has the fields as columns, with the same rows.

    schema: the fields that are wanted and their types, of those that pyarrow.json.read_json takes; no others are kept,
        unless `others`. A field of type string takes any value: the JSON text of what is no string.
    Without a schema, or with `others`, types are inferred from all documents: null, bool, int64, double (where a number
        is no int64), string, struct (`@metadata` is one like any other) and list (of string, where no value is in any).
        No string is guessed to be a date, but "@timestamp", unless the schema has it, is timestamp[ns, UTC]: ISO 8601,
        with any offset, or in UTC.
    errors: what a refused document does: "strict" raises, "mark" keeps the row, "skip" leaves it out, and bad events
        too; None: as in `events.errors`. Refused is what is not one object in UTF-8; the name of a kept field twice in
        an object; half a surrogate pair; a number that is no double, or of more than 300 digits; more than 50 objects
        and arrays in each other; more than 8,192 objects and members; 1 GiB or more; a value that is not of its field's
        type, as it is given or was inferred from events before: fields that change their type need a schema. To find
        one takes some 0.1 ms.
    limits: for the pairs.

    Memory is that of all rows times all fields. Raises TypeError for anything but events; ValueError for a schema that
    cannot be read into, for more than 1,000 inferred fields, for 2 GiB of keys or values of pairs, and, "strict", for a
    refused document: its row, the reason and its first bytes; FrameError for pairs, as `errors` says.
    """
    if not isinstance(events, FrameTable) or "json" not in events.places:
        raise TypeError("documents are those of a table of lumberjack.events, not of "
                        f"{getattr(events, 'name', type(events).__name__)}")
    errors = events.errors if errors is None else errors
    check_mode(errors, limits)
    import pyarrow as pa
    known = _known(schema, others)
    refused: dict[int, str] = {}

    def refuse(row: int, why: str) -> None:
        if errors == "strict":
            near = bytes(events.bytes(row, "json")[:NEAR])
            raise ValueError(f"the document of event {row} is refused: {why}; it begins {near!r}; "
                             'errors="mark", or a schema, may go on')
        refused[row] = why

    places = Places(events, "json")
    text, bounds, weights, wrong = lines(places, DEEPEST, HEAVIEST)
    for row in np.flatnonzero(wrong).tolist():
        refuse(row, WRONG[wrong[row]])
    table = _parsed(text, bounds, weights, known, schema is None or others, refuse)
    absent, count = places.lengths() < 0, len(events)
    absent[list(refused)] = True
    found = pa.table({
        **{name: _numbers(events[name]) for name in ("sequence", "version", "window", "fault")},
        "pairs": _maps(events, errors, limits), "document": _structs(table, absent),
        "refused": pa.array([refused.get(row) for row in range(count)], pa.string()) if refused
        else pa.nulls(count, pa.string())})
    keep = ~events.bad
    keep[list(refused)] = False
    return found if errors != "skip" or keep.all() else found.filter(_flags(keep))


def _known(schema: pa.Schema | None, others: bool) -> pa.Schema:
    """The fields whose types are given."""
    import pyarrow as pa
    if schema is not None and not isinstance(schema, pa.Schema):
        raise TypeError(f"schema is a pyarrow.Schema, not {type(schema).__name__}")
    given = [pa.field(field.name, field.type) for field in schema or ()]        # any field may be absent
    if len({field.name for field in given}) < len(given) or schema is not None and not given:
        raise ValueError("schema has a name twice, or none")
    if (schema is None or others) and TIMESTAMP not in (field.name for field in given):
        given.append(pa.field(TIMESTAMP, pa.timestamp("ns", "UTC")))
    try:
        _read(b"{}\n", _settled(pa.schema(given)), "ignore")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"schema: {error}") from None
    return _settled(pa.schema(given))


def _parsed(text: memoryview, bounds: np.ndarray, weights: np.ndarray, known: pa.Schema, infers: bool,
            refuse: Callable[[int, str], None]) -> pa.Table:
    """Lines as a table: at once, if all is well; else those that are refused are found, and read as {}."""
    import pyarrow as pa
    if not len(weights):
        return _read(b"{}\n", known, "ignore").slice(0, 0)
    parts = [0, *(np.flatnonzero(np.diff(np.cumsum(weights, dtype=np.int64) // HEAVIEST)) + 1).tolist(), len(weights)]
    longest = int(np.diff(bounds).max())
    try:
        # What begins a stream mostly has the types of all of it.
        types = _settled(_inferred(text[:bounds[parts[1]]], known)) if infers else known
        return _read(text, types, "error" if infers else "ignore", longest)
    except pa.ArrowInvalid:
        found, types = [bytes(text[start:stop]) for start, stop in pairwise(bounds.tolist())], known
    if any(_has_strings(field.type) for field in known):
        found = [_mended(line, pa.struct(known)) for line in found]

    todo = list(pairwise(parts))[::-1]
    while todo:
        start, stop = todo.pop()
        part = b"".join(found[start:stop])
        try:
            if infers:
                types = _limited(pa.unify_schemas([types, _inferred(part, known)], promote_options="permissive"))
            else:
                _read(part, known, "ignore", len(part))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            if stop - start > 1:
                middle = (start + stop) // 2
                todo += [(middle, stop), (start, middle)]
            else:
                refuse(start, re.sub(r"^JSON parse error: | in row \d+$", "", str(error)[:200]))
                found[start] = b"{}\n"
    return _read(b"".join(found), _settled(types), "ignore", max(map(len, found)))


def _read(text: Any, schema: pa.Schema, unexpected: str, longest: int = 0) -> pa.Table:
    """Lines, of at most `longest` bytes, as a table. Types are inferred in one block, so in one thread."""
    import pyarrow as pa
    from pyarrow import json as reader
    block = len(text) if unexpected == "infer" else min(len(text), max(longest, BLOCK))
    return reader.read_json(
        pa.BufferReader(text), reader.ReadOptions(use_threads=block < len(text), block_size=block),
        reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected))


def _inferred(text: Any, known: pa.Schema) -> pa.Schema:
    """The types of lines, in the order that the fields come in, behind those that are known."""
    import pyarrow as pa
    return _limited(pa.schema(_undated(pa.struct(_read(text, known, "infer").schema), pa.struct(known))))


def _settled(kind: pa.Schema | pa.DataType) -> Any:
    """The type, or schema, with lists of string for lists in which only nulls were met."""
    import pyarrow as pa
    if isinstance(kind, pa.Schema):
        return pa.schema(_settled(pa.struct(kind)))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.string() if pa.types.is_null(kind.value_type) else _settled(kind.value_type))
    return kind


def _limited(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa
    if (count := _count(pa.struct(schema))) > FIELDS:
        raise ValueError(f"the documents have more than {FIELDS} different fields, {count} so far: give a schema")
    return schema


def _count(kind: pa.DataType) -> int:
    return sum(1 + _count(kind.field(i).type) for i in range(kind.num_fields))


def _undated(kind: pa.DataType, given: pa.DataType | None = None) -> pa.DataType:
    """The type, with string for each timestamp that was not given but guessed."""
    import pyarrow as pa
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _undated(field.type, _field_type(given, field.name))) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_undated(kind.value_type, None if given is None else given.value_type))
    return pa.string() if given is None and pa.types.is_timestamp(kind) else kind


def _field_type(kind: pa.DataType | None, name: str) -> pa.DataType | None:
    at = -1 if kind is None else kind.get_field_index(name)
    return None if at < 0 else kind.field(at).type


def _is_string(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _has_strings(kind: pa.DataType) -> bool:
    return _is_string(kind) or any(_has_strings(kind.field(i).type) for i in range(kind.num_fields))


def _mended(line: bytes, kind: pa.DataType) -> bytes:
    """A line, with the JSON text of what is no string where the schema says string."""
    try:
        value = json.loads(line, object_pairs_hook=_once)
        fit = _fitted(value, kind)
        return line if fit == value else json.dumps(fit, allow_nan=False).encode() + b"\n"
    except ValueError:
        return line                     # the reader will refuse it


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _fitted(value: Any, kind: pa.DataType | None) -> Any:
    if value is None or kind is None:
        return value
    if _is_string(kind):
        return value if isinstance(value, str) else json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if isinstance(value, dict) and kind.num_fields and not hasattr(kind, "value_type"):
        return {name: _fitted(one, _field_type(kind, name)) for name, one in value.items()}
    if isinstance(value, list) and hasattr(kind, "value_type"):
        return [_fitted(one, kind.value_type) for one in value]
    return value


# ---------------------------------------------------------------------------- to arrays

def _numbers(values: np.ndarray) -> pa.Array:
    import pyarrow as pa
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _flags(values: np.ndarray) -> pa.Array:
    import pyarrow as pa
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _bits(values: np.ndarray) -> pa.Buffer:
    import pyarrow as pa
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _structs(table: pa.Table, absent: np.ndarray) -> pa.ChunkedArray:
    import pyarrow as pa
    chunks, at = [], 0
    for batch in table.to_batches():
        mask = _flags(absent[at:at + len(batch)])
        chunks.append(pa.StructArray.from_arrays(batch.columns, fields=list(table.schema), mask=mask))
        at += len(batch)
    return pa.chunked_array(chunks, pa.struct(table.schema))


def _maps(events: FrameTable, errors: str, limits: Limits) -> pa.Array:
    import pyarrow as pa
    kind = pa.map_(pa.binary(), pa.binary())
    have = (events["kind"] == DATA) & ~events.bad
    if not have.any():
        return pa.nulls(len(events), kind)
    pairs = events.where(have).open("pairs", errors=errors, limits=limits)
    pairs = pairs.where(~pairs.bad)                     # a map has no null for a key
    offsets = np.zeros(len(events) + 1, np.int32)
    np.cumsum(np.bincount(np.flatnonzero(have)[pairs["parent"]], minlength=len(events)), out=offsets[1:])
    entries = pa.StructArray.from_arrays([_binary(pairs, name) for name in ("key", "value")],
                                         fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(events), [_bits(have), pa.py_buffer(offsets)], children=[entries])


def _binary(pairs: FrameTable, name: str) -> pa.Array:
    import pyarrow as pa
    found = Places(pairs, name)
    if found.total > LARGEST:
        raise ValueError(f"{found.total} bytes of {name}s in the pairs: take fewer events at a time")
    return pa.Array.from_buffers(pa.binary(), len(pairs), [None, *map(pa.py_buffer, found.gathered(False))])
