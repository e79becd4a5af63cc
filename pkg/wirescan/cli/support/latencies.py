"""The times from requests to their responses, for each API, method or subject.

Times are counted with three digits, so memory does not grow with the number of exchanges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from wirescan.cli.support.quantiles import Quantiles
from wirescan.frames.table import FrameTable, iter_groups
from wirescan.frames.value_numbers import number_values
from wirescan.frames.value_text import escape_bytes

MOST_GROUPS = 1000
OTHERS = "(others)"
ALL = "all"
DIGITS = 3  # of a time
PERCENTS = {"median": 50, "p95": 95, "p99": 99}


class Latencies:
    """Counts exchanges and their latencies for each value of `Display.grouped_by`.

    Groups after the first MOST_GROUPS are counted as OTHERS.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._times: dict[str, Quantiles] = {}

    def add(self, table: FrameTable) -> None:
        """Count the exchanges of a table without bad rows."""
        column = table.format.display.summary.latency
        latencies = table[column]
        null = table.format.get_column(column).null
        for name, rows in _iter_groups(table):
            if name not in self._counts and len(self._counts) >= MOST_GROUPS:
                name = OTHERS
            self._counts[name] += len(rows)
            self._answered[name] += int((table["response_size"][rows] > 0).sum())
            times = latencies[rows][latencies[rows] != null]
            self._times.setdefault(name, Quantiles(PERCENTS)).add(round_times(times))

    def make_summary(self) -> dict[str, Any]:
        """Return what is known of each group, the largest one first.

        `exchanges` is their number, and `answered` that of those with a response. `ns` has the
        quantiles of their times.
        """
        names = sorted(self._counts, key=lambda name: (-self._counts[name], name))
        return {
            name: {
                "exchanges": self._counts[name],
                "answered": self._answered[name],
                "ns": self._times[name].make_summary(),
            }
            for name in names
        }


def round_times(times: np.ndarray) -> np.ndarray:
    """Return times with DIGITS digits: int64."""
    lowest = 10 ** (DIGITS - 1)
    exponents = np.floor(np.log10(np.maximum(times, lowest) / lowest)).astype(np.int64)
    units = 10**exponents
    rests = times % units
    # No sum is above the time by more than half a unit, so none overflows int64.
    rounded: np.ndarray = times - rests + np.where(rests >= units - units // 2, units, 0)
    return rounded


def _iter_groups(table: FrameTable) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the text of each value of the column that groups, and the rows that have it."""
    column = table.format.display.grouped_by
    rows = np.arange(len(table))
    if column is None:
        if len(rows):
            yield ALL, rows
        return
    if column not in table.places:
        for number, chosen in iter_groups(table[column], rows):
            yield table.format.get_column(column).name_number(number), chosen
        return
    (numbers,) = number_values((table, rows, column))
    for _, chosen in iter_groups(numbers, rows):
        yield escape_bytes(table.bytes(int(chosen[0]), column) or b""), chosen
