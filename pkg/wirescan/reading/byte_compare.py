"""Compare the byte strings of rows with values. Used by `filters.py`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wirescan.core.gather import Places, Side
from wirescan.core.strings import ByteStrings
from wirescan.frames.table import FrameTable
from wirescan.reading.patterns import Pattern

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COPIED_BYTES = 16 << 20  # of byte strings that are searched together for a regular expression
SIDES = {"starts_with": Side.AT_START, "ends_with": Side.AT_END, "contains": Side.ANYWHERE}


def compare_bytes(table: FrameTable, column: str, op: str, value: Any) -> np.ndarray:
    """Return a bool array: the rows whose byte string in a place passes a comparison.

    Null passes only "is_null".

    table: the rows.
    column: the name of the place.
    op: one of COMPARISONS, "starts_with", "ends_with", "contains", "in", "not in", "is_null" or
        "is_not_null".
    value: bytes. For "in" and "not in" several, for "is_null" and "is_not_null" ignored.

    Raises ValueError if a row points outside its buffer.
    """
    places = Places(table, column)
    if op in SIDES:
        return places.find(value, SIDES[op])
    present = places.lengths() >= 0
    if op.startswith("is_"):
        return present ^ (op == "is_null")
    if op in ("==", "!=", "in", "not in"):
        values = sorted(set(value)) if op.endswith("in") else [value]
        is_equal = places.find_any(ByteStrings(values))
        return present & ~is_equal if op in ("!=", "not in") else is_equal
    passes: np.ndarray = present & COMPARISONS[op](places.compare(value), 0)
    return passes


def match_bytes(table: FrameTable, column: str, op: str, pattern: Pattern) -> np.ndarray:
    """Return a bool array: the rows in whose byte string a regular expression is found, or is not.

    Null passes neither. The byte strings are copied, so this is slower than `compare_bytes`.

    table, column: as in `compare_bytes`.
    op: "matches" or "not matches".

    Raises ValueError if a row points outside its buffer.
    """
    lengths = Places(table, column).lengths()
    stops = np.cumsum(np.maximum(lengths, 0), dtype=np.int64)
    passes = np.zeros(len(table), bool)
    first = 0
    while first < len(table):
        copied = int(stops[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(stops, copied + COPIED_BYTES, "right")))
        offsets, data = Places(table[first:last], column).gather(large=True)
        passes[first:last] = pattern.find(offsets, data)
        first = last
    if op == "not matches":
        passes = ~passes
    return passes & (lengths >= 0)
