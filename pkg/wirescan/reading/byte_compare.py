"""Compare the byte strings of rows with values. Used by `filters.py`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wirescan.core.gather import Places, Side
from wirescan.core.strings import ByteStrings
from wirescan.frames.table import FrameTable

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
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


def match_bytes(table: FrameTable, column: str, op: str, pattern: re.Pattern[bytes]) -> np.ndarray:
    """Return a bool array: the rows in whose byte string a regular expression is found, or is not.

    Null passes neither. Python's `re` searches each row, so this is slower than `compare_bytes`.

    table, column: as in `compare_bytes`.
    op: "matches" or "not matches".

    Raises ValueError if a row points outside its buffer.
    """
    lengths = Places(table, column).lengths()  # verifies the places
    present = np.flatnonzero(lengths >= 0)
    rows = table.rows[present]
    starts = rows["start"] + rows[column + "_at"]
    stops = starts + lengths[present]
    passes = np.zeros(len(table), bool)
    passes[present] = [
        pattern.search(table.buffers[buffer][start:stop]) is not None
        for buffer, start, stop in zip(rows["buffer"].tolist(), starts.tolist(), stops.tolist())
    ]
    if op == "not matches":
        passes[present] = ~passes[present]
    return passes
