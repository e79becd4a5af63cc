"""Compare the byte strings of rows with values. Used by `filters.py`.

numpy compares a block of strings at a time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from wirescan.core.gather import Places
from wirescan.frames.table import FrameTable

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
BLOCK = 1 << 20  # bytes of strings that are compared at a time


def compare_bytes(table: FrameTable, column: str, op: str, value: Any) -> np.ndarray:
    """Return a bool array: the rows whose byte string in a place passes a comparison.

    Null passes only "is_null".

    Args:
        table: the rows.
        column: the name of the place.
        op: one of COMPARISONS, "starts_with", "ends_with", "contains", "in", "not in",
            "is_null" or "is_not_null".
        value: bytes. For "in" and "not in" several, for "is_null" and "is_not_null" ignored.

    Raises:
        ValueError: a row points outside its buffer.
    """
    sizes = Places(table, column).lengths()
    present = sizes >= 0
    if op.startswith("is_"):
        return present ^ (op == "is_null")
    if op in ("==", "!=", "in", "not in"):
        is_equal = _find_equal(table, column, sizes, value if op.endswith("in") else (value,))
        return present & ~is_equal if op in ("!=", "not in") else is_equal
    passes = np.zeros(len(table), bool)
    if op in ("starts_with", "ends_with", "contains"):
        rows = np.flatnonzero(sizes >= len(value))
        if value and op == "contains":
            passes[rows] = _find_containing(table, column, rows, sizes[rows], value)
        elif value:
            passes[rows] = _compare_edges(table, column, rows, [value], last=op == "ends_with")
        return passes if value else present
    rows = np.flatnonzero(present)
    # A string that continues after the bytes of the value is greater, whatever follows.
    order = np.sign(sizes[rows].astype(np.int64) - len(value))
    prefix_sizes = np.minimum(sizes[rows], len(value))
    for start, stop in _split_blocks(np.full(len(rows), len(value), np.int64)):
        order[start:stop] = _compare_prefixes(
            table, column, rows[start:stop], prefix_sizes[start:stop], value, order[start:stop]
        )
    passes[rows] = COMPARISONS[op](order, 0)
    return passes


def _find_equal(
    table: FrameTable, column: str, sizes: np.ndarray, values: Iterable[bytes]
) -> np.ndarray:
    """Return a bool array: the rows whose byte string is one of the values."""
    is_equal = np.zeros(len(table), bool)
    by_size: dict[int, list[bytes]] = {}
    for value in values:
        by_size.setdefault(len(value), []).append(value)
    for size, candidates in by_size.items():
        rows = np.flatnonzero(sizes == size)
        is_equal[rows] = _compare_edges(table, column, rows, candidates) if size else True
    return is_equal


def _compare_edges(
    table: FrameTable, column: str, rows: np.ndarray, values: list[bytes], *, last: bool = False
) -> np.ndarray:
    """Return whether the byte strings of some rows begin with one of the values.

    With `last`: whether they end with one. All values have the same size, which is not 0.
    No string is shorter than the values.
    """
    # numpy ignores zeros at an end. That is harmless, because all operands have one size.
    dtype = f"S{len(values[0])}"
    edges = np.frombuffer(_gather_edges(table, column, rows, len(values[0]), last=last), dtype)
    return np.isin(edges, np.array(values, dtype))


def _gather_edges(
    table: FrameTable, column: str, rows: np.ndarray, sizes: Any, *, last: bool = False
) -> memoryview:
    """Return the first `sizes` bytes of the byte strings of some rows, joined.

    With `last`: the last bytes.
    """
    part = table.rows[rows]
    if last:
        part[column + "_at"] += (part[column + "_size"] - sizes).astype(np.uint32)
    part[column + "_size"] = sizes
    _, data = Places(replace(table, rows=part), column).gather(large=True)
    return memoryview(data)


def _compare_prefixes(
    table: FrameTable,
    column: str,
    rows: np.ndarray,
    sizes: np.ndarray,
    value: bytes,
    if_equal: np.ndarray,
) -> np.ndarray:
    """Return -1, 0 or 1 for each row: the order of its first `sizes` bytes and the value.

    Where they do not differ, the result is that of `if_equal`.
    """
    if not value:
        return if_equal
    data = np.frombuffer(_gather_edges(table, column, rows, sizes), np.uint8)
    value_bytes = np.frombuffer(value, np.uint8)
    if len(data) == len(rows) * len(value):
        prefixes = data.reshape(len(rows), len(value))
    else:
        prefixes = np.zeros((len(rows), len(value)), np.uint8)
        prefixes[np.arange(len(value)) < sizes[:, None]] = data
    differ = prefixes != value_bytes
    first = differ.argmax(axis=1)
    order = np.where(prefixes[np.arange(len(rows)), first] < value_bytes[first], -1, 1)
    # A shorter string is padded with zeros. If these equal the value, the string is less, and
    # `if_equal` says so.
    return np.where(differ.any(axis=1), order, if_equal)


def _find_containing(
    table: FrameTable, column: str, rows: np.ndarray, sizes: np.ndarray, value: bytes
) -> np.ndarray:
    """Return whether the byte strings of some rows contain a value, which is not empty."""
    contains = np.zeros(len(rows), bool)
    for start, stop in _split_blocks(sizes):
        data = np.frombuffer(
            _gather_edges(table, column, rows[start:stop], sizes[start:stop]), np.uint8
        )
        places = np.flatnonzero(data[: len(data) - len(value) + 1] == value[0])
        for i, byte in enumerate(value[1:], 1):
            places = places[data[places + i] == byte]
        # A match that crosses the end of its string is no match.
        ends = np.cumsum(sizes[start:stop])
        owner = np.searchsorted(ends, places, "right")
        contains[start + owner[places + len(value) <= ends[owner]]] = True
    return contains


def _split_blocks(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that have about BLOCK bytes together, at least one row each."""
    ends = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK, "right")))
        yield start, stop
        start = stop
