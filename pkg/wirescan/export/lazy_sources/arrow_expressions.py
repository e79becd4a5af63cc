"""Expressions of `pyarrow.compute`, decoded to conditions.

pyarrow has no functions that return the parts of an expression. Its pickle has them: an Arrow IPC
file whose one row holds the literals and options, and whose metadata lists the calls in order:

    call: 'and_kleene'
    call: 'greater'
    field_ref: 'offset'
    literal: '0'            the number of a column of the row
    end: 'greater'
    ...

The layout is Arrow's own and may change. So `decode_expression` first decodes an expression that
it knows. If the result differs from what it must be, no expression is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from wirescan.export.lazy_sources.conditions import MIRRORED, Decoded, Time
from wirescan.frames.optional_packages import name_package
from wirescan.reading.filters import All, AnyOf, Filter, Not

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa
    import pyarrow.compute as pc

COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
SUBSTRING_CALLS = {
    "starts_with": "starts_with",
    "ends_with": "ends_with",
    "match_substring": "contains",
}
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# What Python raises where the layout is another one.
LAYOUT_ERRORS = (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError)
METADATA = "-- schema metadata --\n"
ENTRY = re.compile(r"(call|field_ref|literal|options|nested_field_ref|end): '([^'\n]*)'")


class _Field(NamedTuple):
    name: str


class _Literal(NamedTuple):
    value: pa.Scalar


class _Call(NamedTuple):
    function: str
    arguments: list[Any]
    options: dict[str, Any]


class _UnknownLayoutError(Exception):
    """The serialized expression does not have the layout that this module knows."""


def decode_expression(expression: pc.Expression) -> Decoded:
    """Return an expression as a condition. Parts that are not understood are None."""
    return _to_condition(_read_tree(expression)) if _is_layout_known() else None


def list_fields(expression: pc.Expression) -> set[str] | None:
    """Return the names of the fields of an expression; None if it cannot be decoded."""
    if not _is_layout_known():
        return None
    tree = _read_tree(expression)
    return None if tree is None else set(_iter_fields(tree))


@cache
def _is_layout_known() -> bool:
    """Return whether a known expression is decoded correctly."""
    field = pc.field
    expression = (
        (field("number") >= pa.scalar(3, pa.int64()))
        & (field("key") == pa.scalar(b"a", pa.binary()))
        & ~field("text").is_null()
        & field("flag")
        & field("code").isin([1, 2])
        & pc.starts_with(field("text"), "x")
        & (field("time") < pa.scalar(5, pa.timestamp("ms", "UTC")))
    )
    expected = [
        Filter("number", ">=", 3),
        Filter("key", "==", b"a"),
        Not(Filter("text", "is_null")),
        Filter("flag", "==", value=True),
        Filter("code", "in", [1, 2]),
        Filter("text", "starts_with", b"x"),
        Filter("time", "<", Time(5, 1000)),
    ]
    return _list_parts(_to_condition(_read_tree(expression))) == expected


def _list_parts(condition: Decoded) -> list[Decoded]:
    if not isinstance(condition, All):
        return [condition]
    return [inner for part in condition.parts for inner in _list_parts(part)]


def _read_tree(expression: pc.Expression) -> Any:
    """Return the tree of an expression; None if its layout is unknown."""
    try:
        _, (buffer, *_) = expression.__reduce__()
        file = pa.ipc.open_file(buffer)
        row = file.get_batch(0)
        text = file.schema.to_string(truncate_metadata=False)
        entries = iter(_list_entries(text))
        tree = _read_node(next(entries), entries, row)
        return tree if next(entries, None) is None else None
    except (_UnknownLayoutError, pa.ArrowException, *LAYOUT_ERRORS):
        return None


def _list_entries(text: str) -> list[tuple[str, str]]:
    _, found, metadata = text.partition(METADATA)
    matches = [ENTRY.fullmatch(line) for line in metadata.split("\n")]
    if not found or not all(matches):
        raise _UnknownLayoutError
    return [(match[1], match[2]) for match in matches if match]


def _read_node(
    first: tuple[str, str], entries: Iterator[tuple[str, str]], row: pa.RecordBatch
) -> Any:
    """Return a field, literal or call.

    first: its first entry.
    entries: the entries after that. Those of the node are taken from it.
    row: the literals and options.
    """
    kind, value = first
    if kind == "field_ref":
        return _Field(value)
    if kind == "literal":
        return _Literal(row.column(int(value))[0])
    if kind != "call":
        raise _UnknownLayoutError
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    for entry in entries:
        if entry == ("end", value):
            return _Call(value, arguments, options)
        if entry[0] == "options":
            options = dict(row.column(int(entry[1]))[0].items())
        else:
            arguments.append(_read_node(entry, entries, row))
    raise _UnknownLayoutError


def _iter_fields(tree: Any) -> Iterator[str]:
    if isinstance(tree, _Field):
        yield tree.name
    elif isinstance(tree, _Call):
        for argument in tree.arguments:
            yield from _iter_fields(argument)


def _to_condition(tree: Any) -> Decoded:
    if isinstance(tree, _Field):
        return Filter(tree.name, "==", value=True)
    if not isinstance(tree, _Call):
        return None
    function, arguments, _ = tree
    if function in ("and", "and_kleene"):
        return All([_to_condition(argument) for argument in arguments])
    if function in ("or", "or_kleene"):
        return AnyOf([_to_condition(argument) for argument in arguments])
    if function == "invert":
        part = _to_condition(arguments[0])
        # `is_in` of null is false and not null, so its inverse lets nulls pass.
        is_set = isinstance(part, Filter) and part.op == "in"
        return None if is_set else Not(part)
    if function == "if_else":
        return _decode_null_guard(arguments)
    if function in COMPARISONS and len(arguments) == 2:
        return _decode_comparison(COMPARISONS[function], *arguments)
    if len(arguments) == 1 and isinstance(arguments[0], _Field):
        return _decode_test(function, arguments[0].name, tree.options)
    return None


def _decode_null_guard(arguments: list[Any]) -> Decoded:
    """Decode `if_else(is_valid(x), condition, null)`, which is true where the condition is."""
    if len(arguments) != 3:
        return None
    _, condition, otherwise = arguments
    is_null = isinstance(otherwise, _Literal) and not otherwise.value.is_valid
    return _to_condition(condition) if is_null else None


def _decode_comparison(op: str, left: Any, right: Any) -> Decoded:
    if isinstance(left, _Literal):
        op = MIRRORED[op]
        left, right = right, left
    if not isinstance(left, _Field) or not isinstance(right, _Literal):
        return None
    return Filter(left.name, op, _convert_scalar(right.value))


def _decode_test(function: str, field: str, options: dict[str, Any]) -> Decoded:
    """Decode a call that tests one field."""
    if function == "is_valid":
        return Filter(field, "is_not_null")
    if function == "is_null":
        # nan_is_null matters for floating-point numbers only.
        is_plain = options.get("nan_is_null") == pa.scalar(value=False)
        return Filter(field, "is_null") if is_plain else None
    if function == "is_in":
        values = options["value_set"].values
        if values.null_count:
            return None
        return Filter(field, "in", [_convert_scalar(value) for value in values])
    if function in SUBSTRING_CALLS and options.get("ignore_case") == pa.scalar(value=False):
        # The type of the pattern is text for columns of bytes too.
        pattern = options["pattern"].as_buffer()
        return Filter(field, SUBSTRING_CALLS[function], pattern.to_pybytes())
    return None


def _convert_scalar(scalar: pa.Scalar) -> Any:
    """Return an int, bool, bytes, str or Time; None for null and for other types.

    A time without a zone is None: pyarrow refuses to compare it with a column that has one.
    """
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(kind):
        return None if kind.tz is None else Time(scalar.value, UNITS[kind.unit])
    value = scalar.as_py()
    return value if type(value) in (int, bool, bytes, str) else None
