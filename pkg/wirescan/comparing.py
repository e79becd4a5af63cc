"""Byte strings of rows compared with values: by numpy, some bytes of all of them at a time."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from wirescan.core.gather import Places
from wirescan.table import FrameTable

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
BLOCK = 1 << 20                 # bytes of strings that are looked through at a time


def compared(table: FrameTable, column: str, op: str, value: Any) -> np.ndarray:
    """Bool array: the rows whose byte string in a place passes a comparison; null passes none but is_null.

    op: one of COMPARISONS or of "starts_with", "ends_with", "contains", with a value in bytes; "in" or "not in", with
    several; "is_null" or "is_not_null". Raises ValueError for a row that points outside its buffer.
    """
    sizes = Places(table, column).lengths()
    present = sizes >= 0
    if op.startswith("is_"):
        return present ^ (op == "is_null")
    if op in ("==", "!=", "in", "not in"):
        found = _equal(table, column, sizes, value if op.endswith("in") else (value,))
        return present & ~found if op in ("!=", "not in") else found
    passes = np.zeros(len(table), bool)
    if op in ("starts_with", "ends_with", "contains"):
        rows = np.flatnonzero(sizes >= len(value))
        if value:
            passes[rows] = (_holding(table, column, rows, sizes[rows], value) if op == "contains"
                            else _equal_ends(table, column, rows, [value], op == "ends_with"))
        return passes if value else present
    rows = np.flatnonzero(present)
    # Beyond the bytes of the value a string is greater, whatever follows.
    order = np.sign(sizes[rows].astype(np.int64) - len(value))
    heads = np.minimum(sizes[rows], len(value))
    for start, stop in _blocks(np.full(len(rows), len(value), np.int64)):
        order[start:stop] = _order(table, column, rows[start:stop], heads[start:stop], value, order[start:stop])
    passes[rows] = COMPARISONS[op](order, 0)
    return passes


def _equal(table: FrameTable, column: str, sizes: np.ndarray, values: Iterable[bytes]) -> np.ndarray:
    found = np.zeros(len(table), bool)
    by_size: dict[int, list[bytes]] = {}
    for value in values:
        by_size.setdefault(len(value), []).append(value)
    for size, alike in by_size.items():
        rows = np.flatnonzero(sizes == size)
        found[rows] = _equal_ends(table, column, rows, alike) if size else True
    return found


def _equal_ends(table: FrameTable, column: str, rows: np.ndarray, values: list[bytes],
                last: bool = False) -> np.ndarray:
    """Whether the byte strings of some rows begin with one of the values, or end; all are of one size, which is not 0,
    and no string is shorter."""
    dtype = f"S{len(values[0])}"        # numpy passes over zeros at an end: no matter, where all have one size
    found = np.frombuffer(_gathered(table, column, rows, len(values[0]), last), dtype)
    return np.isin(found, np.array(values, dtype))


def _gathered(table: FrameTable, column: str, rows: np.ndarray, sizes: Any, last: bool = False) -> Any:
    """The first bytes of the byte strings of some rows, or the last, one after another: `sizes` of them."""
    part = table.rows[rows]
    if last:
        part[column + "_at"] += (part[column + "_size"] - sizes).astype(np.uint32)
    part[column + "_size"] = sizes
    return Places(replace(table, rows=part), column).gathered(True)[1]


def _order(table: FrameTable, column: str, rows: np.ndarray, sizes: np.ndarray, value: bytes,
           alike: np.ndarray) -> np.ndarray:
    """-1, 0 or 1 for each row: where the first bytes, `sizes` of them, compare with the value; `alike` where they do
    not differ."""
    if not value:
        return alike
    found, wanted = np.frombuffer(_gathered(table, column, rows, sizes), np.uint8), np.frombuffer(value, np.uint8)
    if len(found) == len(rows) * len(value):
        heads = found.reshape(len(rows), len(value))
    else:
        heads = np.zeros((len(rows), len(value)), np.uint8)
        heads[np.arange(len(value)) < sizes[:, None]] = found
    differ = heads != wanted
    at = differ.argmax(axis=1)
    # A zero that only fills a shorter string up may hide that it ended; then it is less, which is what `alike` says.
    return np.where(differ.any(axis=1), np.where(heads[np.arange(len(rows)), at] < wanted[at], -1, 1), alike)


def _holding(table: FrameTable, column: str, rows: np.ndarray, sizes: np.ndarray, value: bytes) -> np.ndarray:
    """Whether the byte strings of some rows hold a value, which is not empty."""
    found = np.zeros(len(rows), bool)
    for start, stop in _blocks(sizes):
        data = np.frombuffer(_gathered(table, column, rows[start:stop], sizes[start:stop]), np.uint8)
        places = np.flatnonzero(data[:len(data) - len(value) + 1] == value[0])
        for i, byte in enumerate(value[1:], 1):
            places = places[data[places + i] == byte]
        ends = np.cumsum(sizes[start:stop])
        owner = np.searchsorted(ends, places, "right")
        found[start + owner[places + len(value) <= ends[owner]]] = True
    return found


def _blocks(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of rows that have about BLOCK bytes together, or one row."""
    ends, start = np.cumsum(sizes, dtype=np.int64), 0
    while start < len(sizes):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + BLOCK, "right")))
        yield start, stop
        start = stop
