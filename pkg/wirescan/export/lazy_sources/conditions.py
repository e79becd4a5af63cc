"""Conditions of a query engine, as filters of `wirescan.reading.filters`.

A decoder of an engine's expressions returns a condition: a `Filter`, `All`, `AnyOf`, `Not`, or
None for a part that it does not understand. `list_filters` returns filters that every row of the
result passes. A part without an exact equivalent has no filter. So the engine's whole expression
must be applied to the rows too.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from wirescan.frames.columns import UNITS, ColumnDescription, ColumnKind
from wirescan.frames.format import Format
from wirescan.reading.byte_compare import COMPARISONS
from wirescan.reading.filters import (
    NEGATED,
    NULL_OPS,
    SET_OPS,
    SUBSTRING_OPS,
    All,
    AnyOf,
    Condition,
    Filter,
    Not,
    check_filters,
    join_equalities,
)

MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# The types that an engine compares a column of a kind with. Floating-point columns have none,
# because engines differ in how NaN compares.
COMPARED_TYPES: dict[ColumnKind, type] = {
    ColumnKind.NUMBER: int,
    ColumnKind.POSITION: int,
    ColumnKind.FLAG: bool,
    ColumnKind.NAME: str,
    ColumnKind.TEXT: str,
    ColumnKind.PATH: str,
    ColumnKind.PATH_NUMBER: int,
    ColumnKind.FAULT: str,
    ColumnKind.INNERMOST_FAULT: str,
    ColumnKind.BYTES: bytes,
}
# Values of these kinds have no order, or engines order them in another way.
UNORDERED = (ColumnKind.FLAG, ColumnKind.FAULT, ColumnKind.INNERMOST_FAULT)
ORDER_OPS = tuple(op for op in COMPARISONS if op not in ("==", "!="))


class Time(NamedTuple):
    """A time as an engine has it.

    Attributes:
        units: since 1970, UTC.
        per_second: how many units make a second.
    """

    units: int
    per_second: int


# None is a part that a decoder does not understand.
Decoded: TypeAlias = Condition | None


def list_filters(condition: Decoded, format: Format) -> list[Filter]:
    """Return filters that are true of every row for which a condition is true.

    condition: the condition. Numbers are int, texts str, byte strings bytes and times `Time`. A
        part of a text may be its UTF-8.
    format: the format of the rows.
    """
    if isinstance(condition, All):
        return [filter for part in condition.parts for filter in list_filters(part, format)]
    if isinstance(condition, AnyOf):
        condition = join_equalities(condition)
    elif isinstance(condition, Not):
        condition = _negate(condition.part)
    if not isinstance(condition, Filter):
        return []
    with suppress(ValueError, TypeError):
        filter = _convert(condition, format)
        if filter is not None:
            check_filters([filter], format)
            return [filter]
    return []


def _negate(part: Decoded) -> Filter | None:
    if isinstance(part, Not) and isinstance(part.part, Filter):
        return part.part
    if isinstance(part, Filter) and part.op in NEGATED:
        return part._replace(op=NEGATED[part.op])
    return None


def _convert(filter: Filter, format: Format) -> Filter | None:
    """Convert the values of a filter; None if the column has none of their type.

    Raises ValueError for a part of a text that is not UTF-8.
    """
    column = format.describe_column(filter.column)
    if column is None:
        return None
    if filter.op in NULL_OPS:
        return filter
    if filter.op in ORDER_OPS and column.kind in UNORDERED:
        return None
    if filter.op in SUBSTRING_OPS and COMPARED_TYPES.get(column.kind) is str:
        part = filter.value
        filter = filter._replace(value=part.decode() if isinstance(part, bytes) else part)
    values = filter.value if filter.op in SET_OPS else [filter.value]
    if not all(_fits(column, value) for value in values):
        return None
    converted = [_convert_time(column, v) if isinstance(v, Time) else v for v in values]
    return filter._replace(value=converted if filter.op in SET_OPS else converted[0])


def _fits(column: ColumnDescription, value: Any) -> bool:
    wanted = Time if column.kind is ColumnKind.TIME else COMPARED_TYPES.get(column.kind)
    return type(value) is wanted


def _convert_time(column: ColumnDescription, time: Time) -> Fraction:
    """Return a time in the unit of a column."""
    assert column.declared.unit is not None
    return Fraction(time.units * UNITS[column.declared.unit], time.per_second)
