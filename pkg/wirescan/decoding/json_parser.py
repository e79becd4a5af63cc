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
- A number that is too large for a float of 32 bits becomes infinity. `_refuse_infinity` finds it.
- It does not refuse a time of day outside of the day, a date64 that is not a whole day, and some
  decimals of more digits than the precision. So columns of these types are validated.
- It loses digits of decimals without an error, if the digits before the point do not fit beside the
  scale, and in numbers such as 1e-50. `_may_lose_digits` says where, and json_misfits.py then
  looks at each document.
- Before pyarrow 23, it does not refuse a timestamp in nanoseconds outside the years 1677 to 2262.
  The value wraps instead. `_check_years` finds such values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.strings import ByteStrings
from wirescan.decoding.json_lines import REASONS, extract_shape, make_lines
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
MOST_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}  # bits of a decimal -> its digits
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
    refused, and are parsed as {}. Segments that the parser accepts are not searched for them.
    """
    if not len(weights):
        return _read(EMPTY_DOCUMENT, given_types, "ignore").slice(0, 0)
    segment_bounds = _list_segment_bounds(weights)
    sizes = np.diff(bounds)
    is_exact = not _may_lose_digits(given_types, text)
    types = given_types
    if is_exact:
        with suppress(pa.ArrowInvalid):  # then some lines have to be changed or refused
            if infers:
                # The first lines of a stream mostly have the types of all lines.
                first_lines = text[: bounds[segment_bounds[1]]]
                types = _replace_null_lists(_infer_types(first_lines, given_types))
            return _read(text, types, "error" if infers else "ignore", int(sizes.max()))
        types = given_types
    strings = _find_strings(pa.struct(given_types))
    pieces: list[Any] = []  # the text of each segment
    longest = 0  # bytes in a line of the pieces
    trials = _Trials()
    # If types are inferred, each document may change them. And the one segment has just failed.
    may_try = not infers and len(segment_bounds) > 2
    for start, stop in pairwise(segment_bounds):
        piece = text[bounds[start] : bounds[stop]]
        may_try_piece = may_try and (is_exact or not _may_lose_digits(given_types, piece))
        if may_try_piece and trials.accepts(piece, given_types):
            pieces.append(piece)
            longest = max(longest, int(sizes[start:stop].max()))
            continue
        lines = [bytes(text[i:j]) for i, j in pairwise(bounds[start : stop + 1].tolist())]
        if strings is not None:
            _make_all_strings(lines, strings)
        types = _infer_and_refuse(lines, start, types, given_types, refuse, infers=infers)
        longest = max(longest, max(map(len, lines)))
        pieces.append(b"".join(lines))
    return _read(b"".join(pieces), _replace_null_lists(types), "ignore", longest)


def _list_segment_bounds(weights: np.ndarray) -> list[int]:
    """Return the bounds of segments of lines, whose types are inferred together."""
    total_weights = np.cumsum(weights, dtype=np.int64)
    inner_bounds = np.flatnonzero(np.diff(total_weights // HEAVIEST)) + 1
    return [0, *inner_bounds.tolist(), len(weights)]


@dataclass(slots=True)
class _Trials:
    """Tries segments as they are. A segment that the parser accepts needs no further check.

    A failed trial costs about as much as the parsing of the segment. So the more trials in a row
    fail, the more segments go without one: 0, 3, 15, 63 and so on.
    """

    failures: int = 0  # in a row
    skips: int = 0  # segments that still go without a trial

    def accepts(self, segment: memoryview, types: pa.Schema) -> bool:
        """Return whether the parser is known to accept a segment and to keep all its values."""
        if self.skips:
            self.skips -= 1
            return False
        try:
            _read(segment, types, "ignore", len(segment))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            self.skips = 4**self.failures - 1
            self.failures += 1
            return False
        self.failures = 0
        return True


def _infer_and_refuse(
    lines: list[bytes],
    first_row: int,
    types: pa.Schema,
    given_types: pa.Schema,
    refuse: Callable[[int, str], None],
    *,
    infers: bool,
) -> pa.Schema:
    """Return the types of all fields. Replace the lines that the parser refuses by {}.

    lines: those of one segment. first_row: the row of the first one.
    types: those of the fields in the segments before.
    """
    fields = Types(types, given_types, infers=infers)
    for i, line in enumerate(lines):
        reason = fields.find_misfit(line)
        if reason is not None:
            refuse(first_row + i, reason)
            lines[i] = EMPTY_DOCUMENT
    todo = [(0, len(lines))]  # parts to parse, the first one last: first line, line after the last
    while todo:
        start, stop = todo.pop()
        part = b"".join(lines[start:stop])
        try:
            if infers:
                inferred = _infer_types(part, given_types)
                types = _check_field_count(
                    pa.unify_schemas([types, inferred], promote_options="permissive")
                )
            else:
                _read(part, given_types, "ignore", len(part))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            if stop - start > 1:
                middle = (start + stop) // 2
                todo += [(middle, stop), (start, middle)]
            else:
                message = str(error)[:LONGEST_MESSAGE]
                message = re.sub(r"^JSON parse error: | in row \d+$", "", message)
                # The parser's messages quote names of fields.
                refuse(first_row + start, make_visible(message))
                lines[start] = EMPTY_DOCUMENT
    return types


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
    for field in table.schema:
        if _has_type(field.type, _accepts_wrong_numbers):
            table[field.name].validate(full=True)
        if _has_type(field.type, pa.types.is_float32):
            _refuse_infinity(table[field.name])
    if not _wraps_timestamps():
        return table
    as_text = _map_types(pa.struct(schema), _replace_nanoseconds)
    stamped = [field for field in as_text if field.type != schema.field(field.name).type]
    if stamped:
        texts = read(pa.schema(stamped), "ignore")
        for field in stamped:
            _check_years(table[field.name], texts[field.name])
    return table


def _has_type(kind: pa.DataType, is_searched: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or one inside it at any depth, is one that is searched for."""
    if pa.types.is_struct(kind):
        return any(_has_type(field.type, is_searched) for field in kind)
    if pa.types.is_list(kind):
        return _has_type(kind.value_type, is_searched)
    return is_searched(kind)


def _accepts_wrong_numbers(kind: pa.DataType) -> bool:
    """Return whether the parser accepts numbers that are no values of a type."""
    types = pa.types
    return bool(types.is_time(kind) or types.is_date64(kind) or types.is_decimal(kind))


def _may_lose_digits(types: pa.Schema, text: memoryview) -> bool:
    """Return whether the parser may lose digits of decimals in a text."""
    fewest = _find_overflow(pa.struct(types))
    if fewest is None:
        return False
    many = b"[0-9]{%d}" % max(fewest, 1)
    patterns = (
        rb"[:,\[\s][-+]?(?:%s|[0-9.]+[eE])" % many,  # a number
        rb'"[-+]?(?:%s[0-9.]*|[0-9.]+[eE][-+]?[0-9]+)"' % many,  # text that is a number
        rb"\\u00(?:2[bBdDeE]|3[0-9]|[46]5)",  # a character of a number, as an escape
    )
    return re.search(b"|".join(patterns), text) is not None


def _find_overflow(kind: pa.DataType) -> int | None:
    """Return how many digits before the point may overflow a decimal in a type, at any depth.

    None: there is no decimal.
    """
    if pa.types.is_decimal(kind):
        return MOST_DIGITS[kind.bit_width] + 1 - kind.scale
    if pa.types.is_list(kind):
        return _find_overflow(kind.value_type)
    members = [field.type for field in kind] if pa.types.is_struct(kind) else []
    found = [fewest for fewest in map(_find_overflow, members) if fewest is not None]
    return min(found, default=None)


def _refuse_infinity(values: pa.ChunkedArray) -> None:
    """Raise ArrowInvalid if a float of 32 bits is infinite, at any depth: JSON has no infinity."""
    if pa.types.is_struct(values.type):
        for member in values.flatten():
            _refuse_infinity(member)
    elif pa.types.is_list(values.type):
        _refuse_infinity(compute.list_flatten(values))
    elif pa.types.is_float32(values.type) and compute.any(compute.is_inf(values)).as_py():
        raise pa.ArrowInvalid("a number is too large: failed to convert it to float")


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


def _find_strings(kind: pa.DataType) -> Any:
    """Return where a type has strings. None if it has none.

    A string is True, a struct is a dict of its members that have strings, and a list is a list of
    its item. Plain objects are quicker to walk than types of pyarrow.
    """
    if _is_string(kind):
        return True
    if pa.types.is_struct(kind):
        members = {}
        for field in kind:
            field_type = find_field_type(kind, field.name)
            inside = None if field_type is None else _find_strings(field_type)
            if inside is not None:
                members[field.name] = inside
        return members or None
    if pa.types.is_list(kind):
        inside = _find_strings(kind.value_type)
        return None if inside is None else [inside]
    return None


def _make_all_strings(lines: list[bytes], strings: Any) -> None:
    """Replace lines by those of `_make_strings`.

    The shape of a line decides whether it changes, because it has the kinds of all values.
    """
    unchanged: set[bytes] = set()  # shapes
    for i, line in enumerate(lines):
        shape = extract_shape(line)
        if shape in unchanged:
            continue
        lines[i] = _make_strings(line, strings)
        if lines[i] is line:
            unchanged.add(shape)


def _make_strings(line: bytes, strings: Any) -> bytes:
    """Return a line in which values of string fields that are no strings are their JSON text.

    strings: where the strings are, as `_find_strings` returns it.
    """
    try:
        value = json.loads(
            line, object_pairs_hook=_make_object, parse_float=_Number, parse_int=_Number
        )
    except ValueError:
        return line  # the parser will refuse it
    converted = _convert_to_strings(value, strings)
    if converted == value:
        return line
    return _write_json(converted, encode_basestring_ascii).encode() + b"\n"


class _Number(NamedTuple):
    """A number as it is written. A float would lose digits, of decimals and of texts."""

    text: str


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a name twice")
    return members


def _convert_to_strings(value: Any, strings: Any) -> Any:
    if value is None or strings is None:
        return value
    if strings is True:
        if isinstance(value, str):
            return value
        return _write_json(value, encode_basestring)
    if isinstance(value, dict) and isinstance(strings, dict):
        return {
            name: _convert_to_strings(member, strings.get(name)) for name, member in value.items()
        }
    if isinstance(value, list) and isinstance(strings, list):
        return [_convert_to_strings(item, strings[0]) for item in value]
    return value


def _write_json(value: Any, quote: Callable[[str], str]) -> str:
    """Return a value as JSON without white space. quote: writes a string."""
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict):
        members = (f"{quote(name)}:{_write_json(each, quote)}" for name, each in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_write_json(item, quote) for item in value) + "]"
    return json.dumps(value)


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
