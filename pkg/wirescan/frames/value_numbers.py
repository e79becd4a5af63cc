"""Numbers for byte strings, which are equal for equal bytes."""

from __future__ import annotations

import numpy as np

from wirescan.core.gather import Places
from wirescan.frames.table import FrameTable

MAX_SORTED_SIZE = 256  # bytes; numpy sorts byte strings up to this size at once


def number_values(*places: tuple[FrameTable, np.ndarray, str]) -> list[np.ndarray]:
    """Return int64 arrays of numbers, which are equal for equal bytes.

    places: tables, some of their rows, and the names of places. There is an array for each of them.
    A null place counts as an empty one.
    """
    parts = [Places(table[rows], name).gather(large=True) for table, rows, name in places]
    sizes = [np.diff(offsets) for offsets, _ in parts]
    all_sizes = np.concatenate(sizes)
    starts = []
    at = 0
    for offsets, data in parts:
        starts.append(offsets[:-1] + at)
        at += len(memoryview(data))
    all_starts = np.concatenate(starts)
    joined = np.frombuffer(b"".join(memoryview(data) for _, data in parts), np.uint8)
    numbers = np.zeros(len(all_sizes), np.int64)
    first = 1  # 0 is the number of the empty value
    order = np.argsort(all_sizes, kind="stable")
    borders = np.flatnonzero(np.diff(all_sizes[order])) + 1
    for rows in np.split(order, borders):
        size = int(all_sizes[rows[0]]) if len(rows) else 0
        if size:
            numbers[rows] = first + _number_equal_sizes(joined, all_starts[rows], size)
            first = int(numbers[rows].max()) + 1
    return np.split(numbers, np.cumsum([len(part) for part in sizes])[:-1])


def _number_equal_sizes(data: np.ndarray, starts: np.ndarray, size: int) -> np.ndarray:
    """Return numbers from 0 on for byte strings of one size, equal for equal bytes."""
    if size <= MAX_SORTED_SIZE:
        windows = np.lib.stride_tricks.sliding_window_view(data, size)[starts]
        words = np.ascontiguousarray(windows).view(f"V{size}").ravel()
        return np.unique(words, return_inverse=True)[1]
    known: dict[bytes, int] = {}
    values = (data[start : start + size].tobytes() for start in starts.tolist())
    return np.array([known.setdefault(value, len(known)) for value in values], np.int64)
