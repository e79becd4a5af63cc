"""Exact quantiles of integers. Memory grows with the number of distinct values."""

from __future__ import annotations

from collections import Counter

import numpy as np

PERCENTS = {"median": 50, "p95": 95}


class Quantiles:
    """How often each number occurred.

    percents: the quantiles between the minimum and the maximum: name -> percent.
    """

    def __init__(self, percents: dict[str, int] = PERCENTS) -> None:
        self._percents = percents
        self._counts: Counter[int] = Counter()

    def add(self, values: np.ndarray) -> None:
        """Count an array of numbers."""
        numbers, counts = np.unique(values, return_counts=True)
        self.add_counts(numbers.tolist(), counts.tolist())

    def add_counts(self, numbers: list[int], counts: list[int]) -> None:
        """Count distinct numbers, each so many times."""
        self._counts.update(dict(zip(numbers, counts)))

    def make_summary(self) -> dict[str, int] | None:
        """Return the minimum, the quantiles, the maximum and the total; None without numbers.

        The median of an even number of values is the lower one.
        """
        if not self._counts:
            return None
        values = np.array(sorted(self._counts), np.int64)
        counts = np.array([self._counts[value] for value in values.tolist()], np.int64)
        reach = np.cumsum(counts)
        ranks = [-(-int(reach[-1]) * percent // 100) for percent in self._percents.values()]
        return {
            "min": int(values[0]),
            **dict(zip(self._percents, values[np.searchsorted(reach, ranks)].tolist())),
            "max": int(values[-1]),
            # Python's numbers: the total may not fit in int64.
            "total": sum(value * count for value, count in self._counts.items()),
        }
