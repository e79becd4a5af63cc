"""JSON documents as typed Arrow columns. Documents that cannot be read are found and refused.

The parser is the JSON reader of pyarrow. Version 26.0 of it has these limits, which this module
works around:

- It skips an empty line, and reads two objects in one line as two rows. It recurses without bound
  and does not check UTF-8. So json_lines.pyx checks each line before.
- When it infers types, it loses nulls at the start of a list. If types differ between its blocks,
  it ends the process or loses values. A row of many names next to many rows takes memory for the
  product of both. So types are inferred from few lines in one block, and only the types are kept.
  Values are then read with these types.
- It loses some values of a list of type null, even with given types. So such lists are read as
  lists of string.
- Before pyarrow 23, it does not refuse a timestamp in nanoseconds outside the years 1677 to 2262.
  The value wraps instead. `_check_years` finds such values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from wirescan.core.strings import ByteStrings
from wirescan.decoding.json_lines import REASONS, make_lines
from wirescan.decoding.json_misfits import Types, find_field_type
from wirescan.frames.escape import make_visible
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa
    import pyarrow.json
    from pyarrow import compute

DEEPEST = 50  # nesting of objects and arrays; Arrow's own files allow 64
# Objects and members in one document, and in the documents whose types are inferred together.
HEAVIEST = 1 << 13
FIELDS = 1000  # inferred fields, nested ones included: Elasticsearch's default limit
BLOCK = 1 << 20  # bytes that a thread parses at a time
LONGEST_MESSAGE = 200  # characters of a message of the parser
EMPTY_DOCUMENT = b"{}\n"
FIRST_YEAR = 1970  # year of the time 0


def check_types(schema: pa.Schema) -> pa.Schema:
    """Return the types of fields as the parser reads them. Any field may be absent.

    Raises TypeError and ValueError for a schema that cannot be used.
    """
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"schema must be a pyarrow.Schema, not {type(schema).__name__}")
    if len(set(schema.names)) < len(schema):
        raise ValueError("schema must have no name twice")
    types = _replace_null_lists(pa.schema([pa.field(field.name, field.type) for field in schema]))
    try:
        _read(EMPTY_DOCUMENT, types, "ignore")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"schema: {error}") from None
    return types


def parse_documents(
    documents: ByteStrings,
    given_types: pa.Schema,
    refuse: Callable[[int, str], None],
    *,
    infers: bool,
) -> pa.Table:
    """Parse JSON objects into a table with one row for each document.

    documents: one object each. The row of a document that is null or refused is to be ignored.
    given_types: the fields whose types are given, as `check_types` returns them.
    refuse: called with the row of each refused document and the reason.
    infers: read other fields too, and infer their types.

    Raises ValueError for too many different fields, and what `refuse` raises.
    """
    text, bounds, weights, refusals = make_lines(documents, DEEPEST, HEAVIEST)
    for row in np.flatnonzero(refusals).tolist():
        refuse(row, REASONS[refusals[row]])
    return _parse(text, bounds, weights, given_types, refuse, infers=infers)


def _parse(
    text: memoryview,
    bounds: np.ndarray,
    weights: np.ndarray,
    given_types: pa.Schema,
    refuse: Callable[[int, str], None],
    *,
    infers: bool,
) -> pa.Table:
    """Parse lines into a table.

    The fast path parses all lines at once. If that fails, the lines that cause it are found and
    refused, and are parsed as {}.
    """
    if not len(weights):
        return _read(EMPTY_DOCUMENT, given_types, "ignore").slice(0, 0)
    segment_bounds = _list_segment_bounds(weights)
    try:
        types = given_types
        if infers:
            # The first lines of a stream mostly have the types of all lines.
            first_lines = text[: bounds[segment_bounds[1]]]
            types = _replace_null_lists(_infer_types(first_lines, given_types))
        longest = int(np.diff(bounds).max())
        return _read(text, types, "error" if infers else "ignore", longest)
    except pa.ArrowInvalid:
        lines = [bytes(text[start:stop]) for start, stop in pairwise(bounds.tolist())]
    if any(_has_strings(field.type) for field in given_types):
        lines = [_make_strings(line, pa.struct(given_types)) for line in lines]
    types = _infer_and_refuse(lines, segment_bounds, given_types, refuse, infers=infers)
    return _read(b"".join(lines), types, "ignore", max(map(len, lines)))


def _list_segment_bounds(weights: np.ndarray) -> list[int]:
    """Return the bounds of segments of lines, whose types are inferred together."""
    total_weights = np.cumsum(weights, dtype=np.int64)
    inner_bounds = np.flatnonzero(np.diff(total_weights // HEAVIEST)) + 1
    return [0, *inner_bounds.tolist(), len(weights)]


def _infer_and_refuse(
    lines: list[bytes],
    segment_bounds: list[int],
    given_types: pa.Schema,
    refuse: Callable[[int, str], None],
    *,
    infers: bool,
) -> pa.Schema:
    """Return the types of all fields. Replace the lines that the parser refuses by {}."""
    types = given_types
    # Segments to parse, the first one last: (first line, line after the last, is a whole segment).
    todo = [(start, stop, True) for start, stop in pairwise(segment_bounds)][::-1]
    while todo:
        start, stop, is_whole = todo.pop()
        if is_whole:
            fields = Types(types, given_types, infers=infers)
            for row in range(start, stop):
                reason = fields.find_misfit(lines[row])
                if reason is not None:
                    refuse(row, reason)
                    lines[row] = EMPTY_DOCUMENT
        segment = b"".join(lines[start:stop])
        try:
            if infers:
                inferred = _infer_types(segment, given_types)
                types = _check_field_count(
                    pa.unify_schemas([types, inferred], promote_options="permissive")
                )
            else:
                _read(segment, given_types, "ignore", len(segment))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            if stop - start > 1:
                middle = (start + stop) // 2
                todo += [(middle, stop, False), (start, middle, False)]
            else:
                message = str(error)[:LONGEST_MESSAGE]
                message = re.sub(r"^JSON parse error: | in row \d+$", "", message)
                refuse(start, make_visible(message))  # the parser's messages quote names of fields
                lines[start] = EMPTY_DOCUMENT
    return _replace_null_lists(types)


def _read(text: Any, schema: pa.Schema, unexpected: str, longest: int = 0) -> pa.Table:
    """Parse lines of at most `longest` bytes. Types are inferred in one block, so in one thread.

    unexpected: what pyarrow does with fields outside the schema: "ignore", "error" or "infer".
    """
    block = len(text) if unexpected == "infer" else min(len(text), max(longest, BLOCK))
    options = pa.json.ReadOptions(use_threads=block < len(text), block_size=block)

    def read(schema: pa.Schema, unexpected: str) -> pa.Table:
        parsing = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
        return pa.json.read_json(pa.BufferReader(text), options, parsing)

    table = read(schema, unexpected)
    if not _wraps_timestamps():
        return table
    as_text = _map_types(pa.struct(schema), _replace_nanoseconds)
    stamped = [field for field in as_text if field.type != schema.field(field.name).type]
    if stamped:
        texts = read(pa.schema(stamped), "ignore")
        for field in stamped:
            _check_years(table[field.name], texts[field.name])
    return table


@cache
def _wraps_timestamps() -> bool:
    """Return whether the parser wraps nanoseconds that int64 cannot hold, instead of refusing."""
    schema = pa.schema([("t", pa.timestamp("ns"))])
    try:
        pa.json.read_json(
            pa.BufferReader(b'{"t":"3000-01-01"}'),
            parse_options=pa.json.ParseOptions(explicit_schema=schema),
        )
    except pa.ArrowInvalid:
        return False
    return True


def _map_types(
    kind: pa.DataType,
    change: Callable[[pa.DataType, pa.DataType | None], pa.DataType],
    given_type: pa.DataType | None = None,
) -> pa.DataType:
    """Return a type after `change` of it, and then of the types in a struct or list.

    change: function of a type and of the given type at the same path, or None.
    """
    kind = change(kind, given_type)
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                (
                    field.name,
                    _map_types(field.type, change, find_field_type(given_type, field.name)),
                )
                for field in kind
            ]
        )
    if pa.types.is_list(kind):
        given_item = None if given_type is None else given_type.value_type
        return pa.list_(_map_types(kind.value_type, change, given_item))
    return kind


def _replace_nanoseconds(kind: pa.DataType, given_type: pa.DataType | None) -> pa.DataType:
    """Return string in place of a timestamp in nanoseconds."""
    is_stamp = pa.types.is_timestamp(kind) and kind.unit == "ns"
    return pa.string() if is_stamp else kind


def _check_years(values: pa.ChunkedArray, texts: pa.ChunkedArray) -> None:
    """Raise ArrowInvalid if a timestamp in nanoseconds, at any depth, differs from its text."""
    kind = values.type
    if kind == texts.type:
        return
    if pa.types.is_struct(kind):
        for value, text in zip(values.flatten(), texts.flatten()):
            _check_years(value, text)
    elif pa.types.is_list(kind):
        _check_years(compute.list_flatten(values), compute.list_flatten(texts))
    else:
        texts = texts.drop_null()
        stamps = values.drop_null().cast(pa.int64()).to_numpy().view("M8[ns]")
        years = stamps.astype("M8[Y]").astype(np.int64) + FIRST_YEAR
        years_in_text = compute.utf8_slice_codeunits(texts, 0, 4).cast(pa.int64()).to_numpy()
        # A wrapped value is wrong by 2**64 nanoseconds, which are 584 years. An offset from UTC
        # changes the year by at most one.
        wrong = np.flatnonzero(np.abs(years - years_in_text) > 1)
        if len(wrong):
            raise pa.ArrowInvalid(f"{texts[wrong[0]]} is outside the range of {kind}")


def _infer_types(text: Any, given_types: pa.Schema) -> pa.Schema:
    """Infer the types of lines. The given fields come first, then the others as they occur."""
    inferred = pa.struct(_read(text, given_types, "infer").schema)
    types = _map_types(inferred, _replace_guessed_time, pa.struct(given_types))
    return _check_field_count(pa.schema(types))


def _replace_guessed_time(kind: pa.DataType, given_type: pa.DataType | None) -> pa.DataType:
    """Return string in place of a timestamp that was guessed, not given."""
    return pa.string() if given_type is None and pa.types.is_timestamp(kind) else kind


def _replace_null_lists(schema: pa.Schema) -> pa.Schema:
    """Return the schema, with lists of string in place of lists in which only nulls were found."""
    return pa.schema(_map_types(pa.struct(schema), _replace_null_list))


def _replace_null_list(kind: pa.DataType, given_type: pa.DataType | None) -> pa.DataType:
    is_null = pa.types.is_list(kind) and pa.types.is_null(kind.value_type)
    return pa.list_(pa.string()) if is_null else kind


def _check_field_count(schema: pa.Schema) -> pa.Schema:
    """Return the schema. Raises ValueError if it has too many fields."""
    count = _count_fields(pa.struct(schema))
    if count > FIELDS:
        raise ValueError(
            f"the documents have more than {FIELDS} different fields, {count} so far: give a schema"
        )
    return schema


def _count_fields(kind: pa.DataType) -> int:
    return sum(1 + _count_fields(kind.field(i).type) for i in range(kind.num_fields))


def _is_string(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _has_strings(kind: pa.DataType) -> bool:
    return _is_string(kind) or any(_has_strings(kind.field(i).type) for i in range(kind.num_fields))


def _make_strings(line: bytes, kind: pa.DataType) -> bytes:
    """Return a line in which values of string fields that are no strings are their JSON text."""
    try:
        value = json.loads(line, object_pairs_hook=_make_object)
        converted = _convert_to_strings(value, kind)
        if converted == value:
            return line
        return json.dumps(converted, allow_nan=False).encode() + b"\n"
    except ValueError:
        return line  # the parser will refuse it


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a name twice")
    return members


def _convert_to_strings(value: Any, kind: pa.DataType | None) -> Any:
    if value is None or kind is None:
        return value
    if _is_string(kind):
        if isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {
            name: _convert_to_strings(member, find_field_type(kind, name))
            for name, member in value.items()
        }
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_convert_to_strings(item, kind.value_type) for item in value]
    return value


# ---------------------------------------------------------------------------- to arrays


def make_structs(table: pa.Table, absent: np.ndarray) -> pa.ChunkedArray:
    """Return the rows of a table as structs; `absent` rows are null."""
    chunks = []
    start = 0
    for batch in table.to_batches():
        mask = pa.array(absent[start : start + len(batch)])
        chunks.append(
            pa.StructArray.from_arrays(batch.columns, fields=list(table.schema), mask=mask)
        )
        start += len(batch)
    return pa.chunked_array(chunks, pa.struct(table.schema))
