"""Filters on columns: which rows are wanted, and what need not be opened, or not even read, to find them.

    ("offset", ">=", 1000)                  ==  !=  <  <=  >  >=
    ("kind", "in", ["CALL", "ONEWAY"])      in, not in
    ("key", "starts_with", b"order-")       starts_with, ends_with, contains: of bytes and text
    ("value", "is_null")                    is_null, is_not_null

Rows have to pass all of them. Null passes no comparison, as in SQL. Columns are those of `Format.columns`, and any
other of a row or of the frames around it, as exports show them: a kind by its name, a time as such, the bytes of a bad
row as null. What headers and indexes say of the frames inside is believed: what they exclude is passed over.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, NamedTuple

import numpy as np

from wirescan.catalog import FAULT, FILE, START, Format, format_of
from wirescan.comparing import COMPARISONS, compared
from wirescan.core.fault import Fault
from wirescan.table import FrameTable, places

PARTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "starts_with": lambda text, part: text.startswith(part), "ends_with": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text}
OPS = (*COMPARISONS, "in", "not in", *PARTS, "is_null", "is_not_null")
FAULTS = {fault.value: fault.name for fault in Fault if fault}
COUNTED = ("start", "parent", "buffer")     # columns that mean nothing beyond their table
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Filter(NamedTuple):
    """What a column has to be. op: one of OPS; value: an int, bytes, str, bool or datetime (without a zone: UTC), for
    "in" and "not in" several, for "is_null" and "is_not_null" none. Text for a column of bytes is its UTF-8."""
    column: str
    op: str
    value: Any = None


def checked(filters: Iterable[tuple[Any, ...]], format: str | Format) -> tuple[Filter, ...]:
    """Filters with their values in the terms of a format's rows: times are numbers, and fractions are gone.

    Raises ValueError for a column that there is not or that is no single value, an unknown operator, or one that the
    column does not have; TypeError for a value of another type.
    """
    format = format_of(format) if isinstance(format, str) else format
    out = []
    for one in filters:
        if isinstance(one, (str, bytes)) or not isinstance(one, Iterable) or not 2 <= len(one := tuple(one)) <= 3:
            raise TypeError(f"filters are a list of tuples (column, operator, value), and in this one is {one!r}")
        out.append(_checked(Filter(*one), format))
    return tuple(out)


def kept(table: FrameTable, filters: Iterable[Filter], file: str | None = None) -> FrameTable:
    """The rows of a table that pass all filters, as `checked` gives them. file: what the column `_file` says."""
    for one in sorted(filters, key=lambda one: one.column in table.places):         # numbers are quick
        passes = _passes(table, one, file)
        table = table if passes.all() else table.where(passes)
    return table


def worth_opening(outer: FrameTable, format: Format, filters: Iterable[Filter], errors: str,
                  file: str | None = None) -> FrameTable:
    """The outermost frames in which some of the wanted rows may be: by what their own columns are, and by what these
    say of the frames inside. A bad row may have any number, so that under "mark" only the former counts."""
    top, filters = format.outermost, tuple(filters)
    own = (one for one in filters if one.column in (FILE, START) or format.owner(one.column) is top)
    outer = kept(outer, own, file)
    inner = format
    while inner is not top and inner.within != top.name:
        inner = format_of(inner.within or "")
    if inner.bounds is None or errors == "mark" or inner is top:
        return outer
    wanted, passes = ranges(format, inner, filters), np.ones(len(outer), bool)
    for column, (lowest, highest) in inner.bounds(outer.rows).items():
        low, high = wanted.get(column, (None, None))
        if highest is not None and low is not None:
            passes &= highest >= low
        if lowest is not None and high is not None:
            passes &= lowest <= high
    return outer if passes.all() else outer.where(passes)


def wants_file(filters: Iterable[Filter], file: str) -> bool:
    """Whether a file passes the filters on the column `_file`."""
    return all(condition(one)(_text(file)) for one in filters if one.column == FILE)


def narrowed(path: str, format: str | Format, filters: Iterable[Filter],
             errors: str = "strict") -> tuple[int, int | None]:
    """The bytes of a file, from one boundary of frames to another (None: its end), between which all the wanted rows
    are, by its name and the indexes beside it; (0, 0) where there are none.

    Under "mark", where a bad row may have any number, only the name counts. Raises OSError.
    """
    format = format_of(format) if isinstance(format, str) else format
    filters = tuple(filters)
    if not wants_file(filters, path):
        return 0, 0
    start, stop = 0, None
    owner: Format | None = format if errors != "mark" else None
    while owner is not None:
        if owner.narrow is not None and (wanted := ranges(format, owner, filters)):
            first, last = owner.narrow(path, wanted)
            start, stop = max(start, first), last if stop is None else min(stop, last)
        owner = None if owner.within is None else format_of(owner.within)
    return (0, 0) if stop is not None and start >= stop else (start, stop)


def faults_of(table: FrameTable) -> np.ndarray:
    """The fault of each row, or else of the nearest of the frames around it that has one: u1."""
    faults, rows, parents = np.array(table["fault"]), table, None
    while rows.outer is not None:
        parents = rows["parent"] if parents is None else rows["parent"][parents]
        rows = rows.outer
        faults = np.where(faults, faults, rows["fault"][parents])
    return faults


def ranges(format: Format, owner: Format, filters: Iterable[Filter]) -> dict[str, tuple[int | None, int | None]]:
    """The lowest and highest whole number that passes, for those columns of `owner` that the filters bound."""
    out: dict[str, tuple[int | None, int | None]] = {}
    for column, op, value in filters:
        numbers = value if op == "in" else (value,) if op in ("==", "<", "<=", ">", ">=") else (None,)
        if not all(isinstance(number, int) for number in numbers) or format.owner(column) is not owner:
            continue
        low = None if op[0] == "<" else min(numbers, default=1) + (op == ">")
        high = None if op[0] == ">" else max(numbers, default=0) - (op == "<")
        before = out.get(column, (None, None))
        out[column] = (max((one for one in (low, before[0]) if one is not None), default=None),
                       min((one for one in (high, before[1]) if one is not None), default=None))
    return out


def condition(one: Filter) -> Callable[[Any], bool]:
    """A function: whether one value, or None for null, passes a filter."""
    _, op, wanted = one
    if op.startswith("is_"):
        return lambda value: (value is None) == (op == "is_null")
    if op in ("in", "not in"):
        return lambda value: value is not None and (value in wanted) == (op == "in")
    compare = COMPARISONS[op] if op in COMPARISONS else PARTS[op]
    return lambda value: value is not None and bool(compare(value, wanted))


# ---------------------------------------------------------------------------------------------- checking

def _checked(one: Filter, format: Format) -> Filter:
    column, op, value = one
    if op not in OPS:
        raise ValueError(f"no operator {op!r}; there are {', '.join(OPS)}")
    kind, unit = _kind(format, column)
    if op.startswith("is_"):
        return Filter(column, op)
    if kind == "list" or op in PARTS and kind not in ("text", "bytes"):
        raise ValueError(f"column {column!r} of {format.name} is a {kind}, which has no operator {op!r}")
    if op not in ("in", "not in"):
        return _whole(column, op, _value(column, kind, unit, value))
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"column {column!r} {op} takes several values, not {value!r}")
    values = (_value(column, kind, unit, each) for each in value)
    return Filter(column, op, tuple(each for each in values if not isinstance(each, Fraction)))


def _kind(format: Format, column: str) -> tuple[str, int | None]:
    """What the values of a column are: "text", "bytes", "number", "fault", "float" or "list"; of a time, its units in a
    second."""
    if column in (FILE, FAULT):
        return "text", None
    if column == START:
        return "number", None
    owner = None if column in format.lists else format.owner(column)
    if owner is None or not isinstance(column, str):
        what = "is a list, and no single value" if column in format.lists else "is not there"
        raise ValueError(f"column {column!r} of {format.name} {what}; it has {', '.join(format.columns)}")
    if column in COUNTED or column in owner.local:
        raise ValueError(f"column {column!r} of {format.name} counts within a table, and cannot be filtered by")
    if column in owner.numbers:
        return "list", None
    if column in places(owner.dtype):
        return "bytes", None
    if column == "kind" and owner.kinds or owner.dtype[column].kind == "S":
        return "text", None
    if column == "fault":
        return "fault", None
    unit = 1000 if column in owner.times else 10**9 if column in owner.nanoseconds else None
    return "float" if owner.dtype[column].kind == "f" else "number", unit


def _value(column: str, kind: str, unit: int | None, value: Any) -> Any:
    if kind == "bytes":
        value = value.encode() if isinstance(value, str) else value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
    elif kind == "text" or kind == "fault" and isinstance(value, str):
        if isinstance(value, str):
            if kind == "text":
                return value
            if value in Fault.__members__:
                return Fault[value].value
            raise ValueError(f"no fault {value!r}; there are {', '.join(Fault.__members__)}")
    elif unit and isinstance(value, datetime):
        value = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        value = Fraction((value - EPOCH) // timedelta(microseconds=1) * unit, 10**6)
        return int(value) if value.denominator == 1 else value
    elif isinstance(value, (Real, Decimal, np.bool_)):
        with suppress(OverflowError):
            if kind == "float":
                return float(value)
            if isinstance(value, Rational) or math.isfinite(value):
                value = Fraction(value if isinstance(value, (Rational, Decimal)) else float(value))
                return int(value) if value.denominator == 1 else value
    raise TypeError(f"column {column!r} holds {'numbers or times' if unit else NAMES[kind]}, and cannot be {value!r}"
                    + " (null is asked for by is_null)" * (value is None))


NAMES = {"bytes": "bytes", "text": "text", "number": "whole numbers", "float": "numbers", "fault": "faults"}


def _whole(column: str, op: str, value: Any) -> Filter:
    """A filter by a fraction on whole numbers, as one by a whole number."""
    if not isinstance(value, Fraction):
        return Filter(column, op, value)
    if op in ("==", "!="):
        return Filter(column, "in", ()) if op == "==" else Filter(column, "is_not_null")
    return Filter(column, "<=" if op in ("<", "<=") else ">", math.floor(value))


# ---------------------------------------------------------------------------------------------- rows

def _passes(table: FrameTable, one: Filter, file: str | None) -> np.ndarray:
    """Bool array: the rows that pass a filter."""
    if one.column == FILE:
        return np.full(len(table), condition(one)(None if file is None else _text(file)))
    if one.column == START:
        return _numbers(table.positions, None, one)
    if one.column == FAULT:
        return _named(faults_of(table), FAULTS, one)
    rows, parents = table, None
    while one.column not in rows.dtype.names and one.column not in rows.places:
        if rows.outer is None:
            raise ValueError(f"column {one.column!r} is that of an enclosing frame, and this table has none")
        parents = rows["parent"] if parents is None else rows["parent"][parents]
        rows = rows.outer
    passes = _own(rows, one)
    return passes if parents is None else passes[parents]


def _own(table: FrameTable, one: Filter) -> np.ndarray:
    column, format = one.column, table.format
    if column in table.places:
        return compared(table, *one)
    values = table[column]
    if column == "kind" and format.kinds:
        return _named(values, format.kinds, one)
    if values.dtype.kind == "S":
        texts, rows = np.unique(values, return_inverse=True)
        return np.array([condition(one)(text.decode() or None) for text in texts.tolist()], bool)[rows]
    absent = values == -1 if column in format.times else values == 0 if column in format.nanoseconds else None
    return _numbers(values, absent, one)


def _numbers(values: np.ndarray, absent: np.ndarray | None, one: Filter) -> np.ndarray:
    _, op, value = one
    if op.startswith("is_"):
        return (np.zeros(len(values), bool) if absent is None else absent) ^ (op == "is_not_null")
    if op in COMPARISONS:
        passes = COMPARISONS[op](values, value)
    else:
        if values.dtype.kind in "iu":
            limits = np.iinfo(values.dtype)
            value = [number for number in value if limits.min <= number <= limits.max]
        passes = np.isin(values, np.array(value, values.dtype), invert=op == "not in")
    return passes if absent is None else passes & ~absent


def _named(codes: np.ndarray, names: Mapping[int, str], one: Filter) -> np.ndarray:
    """Those of numbers of 8 bits whose name passes; one without a name is null."""
    wanted = condition(one)
    return np.array([wanted(names.get(code)) for code in range(256)])[codes]


def _text(file: str) -> str:
    return file.encode(errors="backslashreplace").decode()       # as the column has it: a file's name may be no text
