"""Filters on columns: which rows are wanted, and which frames need not be opened or read.

Readers (`chunked.py`), planning (`splits.py`), exports and Spark use them. A filter is a tuple:

    ("offset", ">=", 1000)                  ==  !=  <  <=  >  >=
    ("kind", "in", ["CALL", "ONEWAY"])      in, not in
    ("key", "starts_with", b"order-")       starts_with, ends_with, contains: bytes and text
    ("key", "matches", rb"^order-[0-9]+$")  matches, not matches: search a regular expression
    ("value", "is_null")                    is_null, is_not_null

A row has to pass all filters. Null passes no comparison, as in SQL. In place of a tuple there may
be a tree of `All`, `AnyOf` and `Not` over such tuples. `expression.py` parses text into them.

A column is one of `Format.export_columns`, or any other column of a row or of the frames around it.
Values are those of an export: a kind is its name, a time is a time. A fault is its name, and null
for a good frame. In a bad row, null is what was not read. A filter may also give a fault as its
number, and 0 for a good frame.

Pruning trusts headers and indexes. Frames that they exclude are not read, so damage in those
frames is not reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from wirescan.frames.columns import (
    PATH_KINDS,
    UNITS,
    ColumnDescription,
    ColumnKind,
    show_path,
)
from wirescan.frames.fault_names import FAULT_NAMES, FaultMeaning, list_names
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import (
    FoundColumn,
    find_column,
    find_innermost_faults,
    list_declared_faults,
)
from wirescan.frames.registry import format_of
from wirescan.frames.similar_names import hint_at_names
from wirescan.frames.table import FrameTable
from wirescan.reading.byte_compare import COMPARISONS, compare_bytes, match_bytes
from wirescan.reading.patterns import compile_pattern

SUBSTRING_OPS: Mapping[str, Callable[[Any, Any], bool]] = {
    "starts_with": lambda text, part: text.startswith(part),
    "ends_with": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text,
}
SET_OPS = ("in", "not in")
NULL_OPS = ("is_null", "is_not_null")
MATCH_OPS = ("matches", "not matches")
OPS = (*COMPARISONS, *SET_OPS, *SUBSTRING_OPS, *MATCH_OPS, *NULL_OPS)
PART_OPS = (*SUBSTRING_OPS, *MATCH_OPS)  # of bytes and text only
NEGATED = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
    "matches": "not matches",
    "not matches": "matches",
    "is_null": "is_not_null",
    "is_not_null": "is_null",
}
DEEPEST_CONDITION = 100  # levels of All, AnyOf and Not
LONGEST_VALUE = 200  # characters of a value in a message
RANGE_OPS = ("==", "<", "<=", ">", ">=")  # those that bound a column
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# What the values of a column are compared with. All other kinds are numbers.
VALUE_TYPES = {
    ColumnKind.COMPUTED_TEXT: "text",
    ColumnKind.PATH: "text",
    ColumnKind.INNERMOST_FAULT: "text",
    ColumnKind.NAME: "text",
    ColumnKind.TEXT: "text",
    ColumnKind.BYTES: "bytes",
    ColumnKind.NUMBERS: "list",
    ColumnKind.FAULT: "fault",
    ColumnKind.FLOAT: "float",
}
# What these values are called in messages, if not by their type.
VALUE_NAMES = {"number": "whole numbers", "float": "numbers", "fault": "faults"}


class Filter(NamedTuple):
    """A condition on a column.

    Attributes:
        column: the name of the column.
        op: one of OPS.
        value: an int, bytes, str, bool, datetime (UTC if it has no time zone), or timedelta for a
            column that is a duration. "in" and "not in" take several, "is_null" and "is_not_null"
            none. Text for a column of bytes means its UTF-8. "matches" and "not matches" take a
            regular expression in RE2's syntax: bytes, str or compiled.
    """

    column: str
    op: str
    value: Any = None


class All(NamedTuple):
    """All parts are true."""

    parts: Sequence[Any]


class AnyOf(NamedTuple):
    """One of the parts is true."""

    parts: Sequence[Any]


class Not(NamedTuple):
    """The part is false. A part that is null makes this null too."""

    part: Any


Condition: TypeAlias = Filter | All | AnyOf | Not  # the parts are conditions too


def check_filters(
    filters: Iterable[tuple[Any, ...]], format: str | Format
) -> tuple[Condition, ...]:
    """Check filters and convert their values to those of a format's rows.

    Times become integers. Fractions become conditions on integers. Of trees, `Not` is moved to
    the filters below it, equalities on one column become an "in", and the parts of an `All` become
    elements of the result.

    Raises:
        ValueError: an unknown column, a column that is no single value, an unknown operator,
            an operator that the column does not have, or a tree that is too deep.
        TypeError: a value of another type.
    """
    format = format_of(format) if isinstance(format, str) else format
    out: list[Condition] = []
    for condition_given in filters:
        condition = _check_condition(_read_values(condition_given), format)
        out += condition.parts if isinstance(condition, All) else [condition]
    return tuple(out)


def apply_filters(
    table: FrameTable, filters: Iterable[Condition], file: str | None = None
) -> FrameTable:
    """Return the rows of a table that pass all filters.

    table: the rows.
    filters: the result of `check_filters`.
    file: the value of the column `_file`.
    """
    filters = tuple(filters)
    if not filters:
        return table
    passes = find_passing(table, All(filters), file)
    return table if passes.all() else table.where(passes)


def find_passing(table: FrameTable, condition: Condition, file: str | None = None) -> np.ndarray:
    """Return a bool array: the rows of a table for which a condition is true.

    table, file: as in `apply_filters`.
    condition: an element of the result of `check_filters`, or an `All` of several.
    """
    if isinstance(condition, Filter):
        # There is no filter on a list. One on an outer table may name a place that a list hides.
        found = find_column(table, condition.column, lists=False)
        passes = _test_column(found.table, found.column, condition, file)
        return passes if found.parents is None else passes[found.parents]
    if isinstance(condition, Not):
        # Only a filter is below it.
        return _find_present(table, condition.part, file) & ~find_passing(
            table, condition.part, file
        )
    is_any = isinstance(condition, AnyOf)
    # A part is tested only for the rows whose result is still open.
    passes = np.full(len(table), not is_any)
    left: FrameTable = table
    open_rows: np.ndarray | slice = slice(None)
    parts = sorted(condition.parts, key=lambda part: _estimate_cost(table, part))
    for number, part in enumerate(parts, 1):
        result = find_passing(left, part, file)
        passes[open_rows] = result
        if number == len(parts) or (result != is_any).all():
            continue
        open_rows = np.flatnonzero(passes != is_any)
        left = table[open_rows]
    return passes


def prune_frames(
    outer: FrameTable,
    format: Format,
    filters: Iterable[Condition],
    errors: str,
    file: str | None = None,
    *,
    keep_bad: bool = False,
) -> FrameTable:
    """Return the outermost frames that may contain wanted rows.

    A frame is excluded by its own columns, or by what its columns state about the frames inside.
    A bad row may have any number, so under "mark" only its own columns exclude a frame.

    keep_bad: bad outermost frames are never excluded.
    """
    if not len(outer):
        return outer  # the last table of a capture is one of blocks
    if keep_bad and outer.bad.any():
        wanted = prune_frames(outer.where(~outer.bad), format, filters, errors, file)
        is_wanted = np.isin(outer.positions, wanted.positions)
        return outer.where(outer.bad | is_wanted)
    top = format.outermost
    filters = list_plain_filters(filters)
    own: list[Condition] = []
    for filter in filters:
        described = format.describe_column(filter.column)
        if described is None or described.kind is ColumnKind.INNERMOST_FAULT:
            continue
        if described.owner is None or described.owner is top:
            own.append(filter._replace(column=described.name))
    outer = apply_filters(outer, own, file)
    inner = format
    while inner is not top and inner.within != top.name:
        inner = format_of(inner.within or "")
    statistics = inner.storage.statistics
    if statistics is None or errors == "mark" or inner is top:
        return outer
    bounds = find_column_ranges(format, inner, filters)
    passes = np.ones(len(outer), bool)
    for column, (lowest, highest) in statistics(outer.rows).items():
        low, high = bounds.get(column, (None, None))
        if highest is not None and low is not None:
            passes &= highest >= low
        if lowest is not None and high is not None:
            passes &= lowest <= high
    return outer if passes.all() else outer.where(passes)


def wants_file(filters: Iterable[Condition], format: Format, file: str) -> bool:
    """Return whether a file passes the filters on columns that follow from its path."""
    for filter in list_plain_filters(filters):
        column = format.describe_column(filter.column)
        read = None if column is None else column.read_path
        if read is not None and not make_condition(filter)(read(file)):
            return False
    return True


def prune_file(
    path: str,
    format: str | Format,
    filters: Iterable[Condition],
    errors: str = "strict",
    limits: Limits = Limits(),
) -> tuple[int, int | None]:
    """Return the range of bytes of a file that contains all wanted rows.

    The range follows from the file's name and from the indexes beside the file. It starts and
    stops at boundaries of frames. A stop of None is the end of the file; (0, 0) means no rows.

    A bad row may have any number, so under "mark" only the name counts. limits: a frame above
    `limits.frame` is damage. Raises OSError.
    """
    format = format_of(format) if isinstance(format, str) else format
    filters = tuple(filters)
    if not wants_file(filters, format, path):
        return 0, 0
    start: int = 0
    stop: int | None = None
    owner: Format | None = format if errors != "mark" else None
    while owner is not None:
        prune = owner.storage.prune
        if prune is not None and (bounds := find_column_ranges(format, owner, filters)):
            first, last = prune(path, bounds, limits=limits)
            start = max(start, first)
            stop = last if stop is None else min(stop, last)
        owner = None if owner.within is None else format_of(owner.within)
    return (0, 0) if stop is not None and start >= stop else (start, stop)


def find_column_ranges(
    format: Format, owner: Format, filters: Iterable[Condition]
) -> dict[str, tuple[int | None, int | None]]:
    """Return the lowest and highest integer that pass, for each column that the filters bound.

    Of a column that is exported as names, the integers are those that have the names.
    Only columns of `owner` are included. None means no bound.
    """
    out: dict[str, tuple[int | None, int | None]] = {}
    for filter in list_plain_filters(filters):
        column = format.describe_column(filter.column)
        if column is None or column.owner is not owner:
            continue
        bounds = _find_range(filter, column)
        if bounds == (None, None):
            continue
        lows, highs = zip(bounds, out.get(column.name, (None, None)))
        out[column.name] = (
            max((bound for bound in lows if bound is not None), default=None),
            min((bound for bound in highs if bound is not None), default=None),
        )
    return out


def _find_range(filter: Filter, column: ColumnDescription) -> tuple[int | None, int | None]:
    """Return the lowest and highest integer of a column that a filter passes; None: no bound."""
    _, op, value = filter
    if column.kind is ColumnKind.FLAG:
        return None, None  # every number but 0 is true
    if column.kind is ColumnKind.NAME:
        passes_one = make_condition(filter)
        if passes_one(None):
            return None, None
        op = "in"
        names = column.declared.number_names
        value = [number for number, name in names.items() if passes_one(name)]
    if op != "in" and op not in RANGE_OPS:
        return None, None
    numbers = value if op == "in" else (value,)
    if not all(isinstance(number, int) for number in numbers):
        return None, None
    # An empty "in" bounds the column to the empty range 1 .. 0.
    low = None if op[0] == "<" else min(numbers, default=1) + (op == ">")
    high = None if op[0] == ">" else max(numbers, default=0) - (op == "<")
    return low, high


def make_condition(filter: Filter) -> Callable[[Any], bool]:
    """Return a function that tests one value, or None for null, against a filter."""
    _, op, operand = filter
    if op in NULL_OPS:
        return lambda value: (value is None) == (op == "is_null")
    if op in SET_OPS:
        return lambda value: value is not None and (value in operand) == (op == "in")
    if op in MATCH_OPS:
        search = operand.search
        return lambda value: value is not None and search(value) == (op == "matches")
    compare = COMPARISONS[op] if op in COMPARISONS else SUBSTRING_OPS[op]
    return lambda value: value is not None and bool(compare(value, operand))


# ------------------------------------------------------------------------------ checking


def _is_several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes))


def _read_values(given: Any, level: int = 0) -> Any:
    """Return a filter or a tree of them, with tuples in place of iterators, which end when read.

    level: the number of nodes above it. Raises ValueError for a tree that is too deep.
    """
    if isinstance(given, (All, AnyOf, Not)) and level > DEEPEST_CONDITION:
        raise ValueError(f"a condition is nested more than {DEEPEST_CONDITION} levels deep")
    if isinstance(given, Not):
        return Not(_read_values(given.part, level + 1))
    if isinstance(given, (All, AnyOf)):
        return type(given)(tuple(_read_values(part, level + 1) for part in given.parts))
    values = tuple(given) if _is_several(given) else ()
    if len(values) == 3 and values[1] in SET_OPS and _is_several(values[2]):
        values = (*values[:2], tuple(values[2]))
        return Filter(*values) if isinstance(given, Filter) else values
    return given if isinstance(given, tuple) else values or given


def _check_condition(given: Any, format: Format) -> Condition:
    """Check a filter or a tree of them, which `_read_values` returned."""
    if not isinstance(given, (All, AnyOf, Not)):
        values = tuple(given) if _is_several(given) else ()
        if not 2 <= len(values) <= 3:
            raise TypeError(
                "filters are a list of tuples (column, operator, value), "
                f"but the list contains {values or given!r}"
            )
        return _check_filter(Filter(*values), format)
    if isinstance(given, Not):
        return _check_negation(given.part, format)
    if isinstance(given, AnyOf):
        joined = join_equalities(given)
        if joined is not None:
            return _check_filter(joined, format)
    parts: list[Condition] = []
    for part in given.parts:
        checked = _check_condition(part, format)
        parts += checked.parts if isinstance(checked, type(given)) else [checked]
    return type(given)(tuple(parts))


def _check_negation(part: Any, format: Format) -> Condition:
    """Check the negation of a condition. It is null where the condition is null."""
    if isinstance(part, Not):
        return _check_condition(part.part, format)
    if isinstance(part, (All, AnyOf)):
        opposite = AnyOf if isinstance(part, All) else All
        return _check_condition(opposite([Not(each) for each in part.parts]), format)
    checked = _check_condition(part, format)
    assert isinstance(checked, Filter)
    column, op, *_ = Filter(*part)
    kind = _describe_column(format, column).kind
    # NaN fails a comparison and its opposite, so numbers with NaN keep the Not.
    is_flipped = op in NEGATED and (kind is not ColumnKind.FLOAT or op in NULL_OPS)
    if not is_flipped and kind is ColumnKind.FAULT:
        # The filter became numbers of faults. A good frame has no fault, so it does not pass.
        return Filter(column, "in", tuple(n for n in range(1, 256) if n not in checked.value))
    if not is_flipped:
        return Not(checked)
    return _check_filter(Filter(*part)._replace(op=NEGATED[op]), format)


def join_equalities(condition: AnyOf) -> Filter | None:
    """Return a filter "in" for equalities on one column; None for any other condition."""
    values: list[Any] = []
    columns = set()
    for part in condition.parts:
        if isinstance(part, AnyOf):
            part = join_equalities(part)
        if not isinstance(part, Filter) or part.op not in ("==", "in"):
            return None
        columns.add(part.column)
        values += part.value if part.op == "in" else [part.value]
    return Filter(columns.pop(), "in", values) if len(columns) == 1 else None


def list_plain_filters(conditions: Iterable[Condition]) -> list[Filter]:
    """Return the conditions that are filters. Only these exclude frames and files."""
    return [condition for condition in conditions if isinstance(condition, Filter)]


def _estimate_cost(table: FrameTable, condition: Condition) -> int:
    """Return the rank of a condition by the time that a row takes."""
    if isinstance(condition, Not):
        return _estimate_cost(table, condition.part)
    if not isinstance(condition, Filter):
        return max((_estimate_cost(table, part) for part in condition.parts), default=0)
    if condition.op in MATCH_OPS:
        return 2
    return int(condition.column in table.places)


def _check_filter(filter: Filter, format: Format) -> Filter:
    name, op, value = filter
    if op not in OPS:
        raise ValueError(f"no operator {op!r}; there are {', '.join(OPS)}")
    column = _describe_column(format, name)
    if op in MATCH_OPS:
        is_bytes = VALUE_TYPES.get(column.kind) == "bytes"
        filter = filter._replace(value=compile_pattern(value, is_bytes=is_bytes))
        value = filter.value
    if column.kind is ColumnKind.FAULT and (
        on_numbers := _filter_fault_numbers(filter, format.faults)
    ):
        return on_numbers
    if op in NULL_OPS:
        return Filter(name, op)
    value_type = VALUE_TYPES.get(column.kind, "number")
    if value_type == "list" or op in PART_OPS and value_type not in ("text", "bytes"):
        raise ValueError(
            f"column {name!r} of {format.name} is a {value_type}, which has no operator {op!r}"
        )
    if op in MATCH_OPS:
        return filter
    if op not in SET_OPS:
        return _replace_fraction(name, op, _convert_value(name, column, value))
    if not _is_several(value):
        raise TypeError(f"column {name!r} {op} takes several values, not {value!r}")
    values = (_convert_value(name, column, item) for item in value)
    return Filter(name, op, tuple(item for item in values if not isinstance(item, Fraction)))


def _filter_fault_numbers(filter: Filter, declared: Mapping[int, FaultMeaning]) -> Filter | None:
    """Convert a filter on names of faults to one on their numbers.

    Returns None if the filter asks for numbers. Raises ValueError for a name that no fault has,
    unless the operator compares or searches names. declared: the faults that the format declares.
    """
    column, op, value = filter
    if op in NULL_OPS:
        return Filter(column, "==" if op == "is_null" else "!=", 0)
    several = op in SET_OPS and _is_several(value)
    names = tuple(value) if several else (value,)
    is_text = op in MATCH_OPS or all(isinstance(name, str) for name in names)
    if not is_text or several != (op in SET_OPS):
        return None
    names_of_numbers = list_names(declared)
    for name in names:
        if op in ("==", "!=", *SET_OPS) and name not in names_of_numbers:
            own_names = [fault.name for fault in declared.values()]
            all_names = ", ".join([*FAULT_NAMES.values(), *own_names])
            raise ValueError(
                f"no fault {name!r}; there are {all_names}, and null where the frame is good"
            )
    passes = make_condition(Filter(column, op, names if several else value))
    numbers = (number for number, name in enumerate(names_of_numbers) if passes(name))
    return Filter(column, "in", tuple(numbers))


def _describe_column(format: Format, name: str) -> ColumnDescription:
    """Return what a column is. Raises ValueError for a column that cannot be filtered by."""
    column = format.describe_column(name) if isinstance(name, str) else None
    if column is None:
        hint = hint_at_names(name, format.export_columns, "it has")
        raise ValueError(f"column {name!r} of {format.name} is not there{hint}")
    if column.kind is ColumnKind.PAIRS:
        raise ValueError(f"column {name!r} of {format.name} is a list, and no single value")
    if column.declared.local:
        raise ValueError(
            f"column {name!r} of {format.name} counts within a table, and cannot be filtered by"
        )
    return column


def _convert_value(name: str, column: ColumnDescription, value: Any) -> Any:
    """Convert a value to the type of a column's rows. Raises TypeError if it has another type."""
    kind = VALUE_TYPES.get(column.kind, "number")
    unit = column.declared.unit
    duration = column.declared.duration
    if kind == "bytes":
        value = value.encode() if isinstance(value, str) else value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
    elif kind == "text":
        if isinstance(value, str):
            return show_path(value) if column.kind is ColumnKind.PATH else value
    elif unit and isinstance(value, datetime):
        return _convert_time(value, UNITS[unit])
    elif duration and isinstance(value, timedelta):
        return _convert_duration(value, UNITS[duration])
    elif isinstance(value, (Real, Decimal, np.bool_)):
        with suppress(OverflowError):
            if kind == "float":
                return float(value)
            if isinstance(value, Rational) or math.isfinite(value):
                exact = value if isinstance(value, (Rational, Decimal)) else float(value)
                return _simplify(Fraction(exact))
    expected = VALUE_NAMES.get(kind, kind)
    if unit or duration:
        expected = "numbers or times" if unit else "numbers or durations"
    hint = " (null is asked for by is_null)" if value is None else ""
    shown = repr(value)
    if len(shown) > LONGEST_VALUE:
        shown = f"{shown[:LONGEST_VALUE]}…"
    raise TypeError(f"column {name!r} holds {expected}, and cannot be {shown}{hint}")


def _convert_time(time: datetime, unit: int) -> int | Fraction:
    """Return the units since 1970 of a time."""
    if not time.tzinfo:
        time = time.replace(tzinfo=timezone.utc)
    return _convert_duration(time - EPOCH, unit)


def _convert_duration(duration: timedelta, unit: int) -> int | Fraction:
    """Return a duration as a number of units. unit: how many make a second."""
    microseconds = duration // timedelta(microseconds=1)
    return _simplify(Fraction(microseconds * unit, 10**6))


def _simplify(number: Fraction) -> int | Fraction:
    return int(number) if number.denominator == 1 else number


def _replace_fraction(column: str, op: str, value: Any) -> Filter:
    """Return the filter on integers that is equal to a filter by a fraction."""
    if not isinstance(value, Fraction):
        return Filter(column, op, value)
    if op == "==":
        return Filter(column, "in", ())
    if op == "!=":
        return Filter(column, "is_not_null")
    return Filter(column, "<=" if op in ("<", "<=") else ">", math.floor(value))


# ------------------------------------------------------------------------------ rows


def _test_column(
    table: FrameTable, column: ColumnDescription, filter: Filter, file: str | None
) -> np.ndarray:
    """Return a bool array: the rows that pass a filter on a column of the table itself."""
    kind = column.kind
    if kind in PATH_KINDS:
        assert column.read_path is not None
        value = None if file is None else column.read_path(file)
        return np.full(len(table), make_condition(filter)(value))
    if kind is ColumnKind.POSITION:
        return _test_numbers(table.positions, None, filter)
    if kind is ColumnKind.INNERMOST_FAULT:
        return _test_innermost_faults(table, filter)
    if kind is ColumnKind.BYTES:
        if filter.op in MATCH_OPS:
            return match_bytes(table, column.name, filter.op, filter.value)
        return compare_bytes(table, column.name, filter.op, filter.value)
    found = FoundColumn(table, None, column)
    if kind is ColumnKind.NAME:
        return _test_names(found, filter)
    if kind is ColumnKind.COMPUTED_TEXT:
        return np.fromiter(map(make_condition(filter), found.compute_texts()), bool, len(table))
    if kind is ColumnKind.TEXT:
        passes_one = make_condition(filter)
        texts, rows = np.unique(found.read_numbers(), return_inverse=True)
        return np.array([passes_one(text.decode() or None) for text in texts.tolist()], bool)[rows]
    values, absent = found.read_numbers_and_nulls()
    if kind is ColumnKind.FLAG:
        values = (values != 0).astype(np.uint8)  # an export has true for every other number
    return _test_numbers(values, absent, filter)


def _find_present(table: FrameTable, filter: Filter, file: str | None) -> np.ndarray:
    """Return a bool array: the rows where the column of a filter is not null."""
    found = find_column(table, filter.column, lists=False)
    is_fault = found.column.kind is ColumnKind.FAULT  # a good frame has the number 0
    present = Filter(filter.column, "!=", 0) if is_fault else Filter(filter.column, "is_not_null")
    return find_passing(table, present, file)


def _test_numbers(values: np.ndarray, absent: np.ndarray | None, filter: Filter) -> np.ndarray:
    """Return a bool array: which numbers pass. Those in `absent` are null."""
    _, op, value = filter
    if op in NULL_OPS:
        nulls = np.zeros(len(values), bool) if absent is None else absent
        return nulls ^ (op == "is_not_null")
    passes: np.ndarray
    if op in COMPARISONS:
        passes = COMPARISONS[op](values, value)
    else:
        if values.dtype.kind in "iu":
            limits = np.iinfo(values.dtype)
            value = [number for number in value if limits.min <= number <= limits.max]
        passes = np.isin(values, np.array(value, values.dtype), invert=op == "not in")
    return passes if absent is None else passes & ~absent


def _test_names(found: FoundColumn, filter: Filter) -> np.ndarray:
    """Return a bool array: which 8-bit numbers have a name that passes.

    A number without a name is null, and so is one that was not read.
    """
    names = found.column.declared.number_names
    passes_one = make_condition(filter)
    numbers, absent = found.read_numbers_and_nulls()
    passes = np.array([passes_one(names.get(code)) for code in range(256)])[numbers]
    return passes if absent is None else np.where(absent, passes_one(None), passes)


def _test_innermost_faults(table: FrameTable, filter: Filter) -> np.ndarray:
    """Return a bool array: the rows whose fault, or that of a frame around them, passes."""
    passes_one = make_condition(filter)
    passes_by_level = np.array(
        [[passes_one(name) for name in list_names(level)] for level in list_declared_faults(table)]
    )
    faults, levels = find_innermost_faults(table)
    passes: np.ndarray = passes_by_level[levels, faults]
    return passes
