"""Predicates of polars, decoded to conditions.

`Expr.meta.serialize` gives the tree of an expression as JSON. polars does not promise that the
JSON stays the same. So each name and shape is compared with those that are known, and any other
part of a tree is no condition. Values carry their type in the JSON.
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from wirescan.export.lazy_sources.conditions import MIRRORED, Decoded, Time
from wirescan.frames.optional_packages import name_package
from wirescan.reading.filters import All, AnyOf, Filter, Not

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

COMPARISONS = {
    "Eq": "==",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
}
SUBSTRING_FUNCTIONS = {"StartsWith": "starts_with", "EndsWith": "ends_with", "Contains": "contains"}
# The operators for the lower and for the upper bound of `is_between`.
BOUNDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
UNITS = {"Milliseconds": 10**3, "Microseconds": 10**6, "Nanoseconds": 10**9}
ARROW_UNITS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
INTEGERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")


class _UnknownShapeError(Exception):
    """A part of the tree is not one that this module knows."""


def decode_predicate(predicate: pl.Expr) -> Decoded:
    """Return a predicate as a condition. Parts that are not understood are None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:
        # polars raises exceptions of several kinds for expressions that JSON cannot hold, such as
        # Python functions. Without a condition all rows are read, and polars filters them.
        return None
    return _decode(tree)


def _decode(tree: Any) -> Decoded:
    try:
        return _decode_node(tree)
    except (_UnknownShapeError, KeyError, TypeError, ValueError, pa.ArrowException):
        return None


def _decode_node(tree: Any) -> Decoded:
    name, node = _unpack(tree)
    if name == "Column":
        return Filter(_read_column(tree), "==", value=True)
    if name == "BinaryExpr":
        return _decode_binary(node["left"], node["op"], node["right"])
    if name == "Function":
        return _decode_function(node["function"], node["input"])
    return None


def _unpack(tree: Any) -> tuple[str, Any]:
    """Return the name and the content of an object that has one name."""
    if not isinstance(tree, dict) or len(tree) != 1:
        raise _UnknownShapeError
    ((name, content),) = tree.items()
    return name, content


def _decode_binary(left: Any, op: str, right: Any) -> Decoded:
    if op in ("And", "LogicalAnd"):
        return All([_decode(left), _decode(right)])
    if op in ("Or", "LogicalOr"):
        return AnyOf([_decode(left), _decode(right)])
    if op == "EqValidity":
        return _without_inverse(_decode_binary(left, "Eq", right))
    if op not in COMPARISONS:
        return None
    own_op = COMPARISONS[op]
    if "Literal" in left:
        own_op = MIRRORED[own_op]
        left, right = right, left
    # A null literal has no value of a column's type, so its filter is dropped later.
    return Filter(_read_column(left), own_op, _read_literal(right))


def _decode_function(function: Any, inputs: list[Any]) -> Decoded:
    family, call = _unpack(function)
    name, options = (call, {}) if isinstance(call, str) else _unpack(call)
    if family == "Boolean":
        return _decode_boolean(name, options, inputs)
    if family in ("StringExpr", "BinaryExpr") and name in SUBSTRING_FUNCTIONS:
        column, part = inputs
        is_pattern = family == "StringExpr" and name == "Contains" and not options["literal"]
        if is_pattern:
            return None
        return Filter(_read_column(column), SUBSTRING_FUNCTIONS[name], _read_literal(part))
    return None


def _decode_boolean(name: str, options: Any, inputs: list[Any]) -> Decoded:
    if name == "Not":
        return Not(_decode(inputs[0]))
    column = _read_column(inputs[0])
    if name == "IsNull":
        return Filter(column, "is_null")
    if name == "IsNotNull":
        return Filter(column, "is_not_null")
    if name == "IsIn":
        is_in = Filter(column, "in", _read_list(inputs[1]))
        return _without_inverse(is_in) if options["nulls_equal"] else is_in
    if name == "IsBetween":
        lower_op, upper_op = BOUNDS[options["closed"]]
        lower = Filter(column, lower_op, _read_literal(inputs[1]))
        return All([lower, Filter(column, upper_op, _read_literal(inputs[2]))])
    return None


def _without_inverse(condition: Decoded) -> Decoded:
    """Return a condition that is false for nulls, so that no filter follows from its inverse."""
    return All([condition])


def _read_column(tree: Any) -> str:
    name, column = _unpack(tree)
    if name != "Column" or not isinstance(column, str):
        raise _UnknownShapeError
    return column


def _read_literal(tree: Any) -> Any:
    """Return an int, bool, str, bytes or Time."""
    name, literal = _unpack(tree)
    if name != "Literal":
        raise _UnknownShapeError
    family, typed = _unpack(literal)
    kind, value = _unpack(typed)
    if family == "Dyn" and kind == "Int" or family == "Scalar" and kind in INTEGERS:
        return int(value)
    if family != "Scalar":
        raise _UnknownShapeError
    if kind == "Boolean" and isinstance(value, bool):
        return value
    if kind == "String" and isinstance(value, str):
        return value
    if kind == "Binary":
        return bytes(value)
    if kind == "Datetime":
        count, unit, _ = value
        return Time(int(count), UNITS[unit])
    raise _UnknownShapeError


def _read_list(tree: Any) -> list[Any]:
    """Return the values of a literal list, which polars serializes as an Arrow stream."""
    _, literal = _unpack(tree)
    stream = literal["Scalar"]["List"]
    column = pa.ipc.open_stream(bytes(stream)).read_all().column(0)
    if column.null_count:
        raise _UnknownShapeError
    if pa.types.is_timestamp(column.type):
        return [Time(scalar.value, ARROW_UNITS[column.type.unit]) for scalar in column]
    values = column.to_pylist()
    if not all(type(value) in (int, bool, str, bytes) for value in values):
        raise _UnknownShapeError
    return values
