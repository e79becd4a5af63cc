"""The times from requests to their responses, for each API, method or subject.

`wirescan stat` and `wirescan report` show them. Times are counted with three digits, so memory does
not grow with the number of exchanges.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from wirescan.cli.support.quantiles import Quantiles
from wirescan.core.gather import Places
from wirescan.frames.table import FrameTable
from wirescan.frames.value_numbers import number_values
from wirescan.frames.value_text import escape_bytes

MOST_GROUPS = 1000
LONGEST_NAME = 200  # characters of the name of a group
OTHERS = "(others)"
ALL = "all"
DIGITS = 3  # of a time
PERCENTS = {"median": 50, "p95": 95, "p99": 99}
QUANTILES = ("min", *PERCENTS, "max")
SHOWN_GROUPS = 20
COUNTED = ("exchanges", "answered", "errors")  # what is counted of a group


class Latencies:
    """Counts exchanges and their latencies for each value of `Display.grouped_by`.

    Groups after the first MOST_GROUPS are counted as OTHERS.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._knows_errors = False
        self._times: dict[str, Quantiles] = {}

    def add(self, table: FrameTable) -> None:
        """Count the exchanges of a table without bad rows."""
        summary = table.format.display.summary
        assert summary.latency is not None
        latencies = table[summary.latency]
        null = table.format.get_column(summary.latency).null
        is_answered = table["response_size"] > 0
        is_error = np.zeros(len(table), bool)
        if summary.find_errors is not None:
            self._knows_errors = True
            is_error = is_answered & summary.find_errors(table)
        texts, values = _number_groups(table)
        numbers: dict[str, int] = {}  # of the groups that the table has, from 0 on
        of_value = [numbers.setdefault(name, len(numbers)) for name in self._name_groups(texts)]
        groups = np.array(of_value, np.int64)[values]
        for counter, rows in (
            (self._counts, groups),
            (self._answered, groups[is_answered]),
            (self._errors, groups[is_error]),
        ):
            counts = np.bincount(rows, minlength=len(numbers)).tolist()
            counter.update(dict(zip(numbers, counts)))
        has_time = latencies != null
        self._add_times(list(numbers), groups[has_time], round_times(latencies[has_time]))

    def _name_groups(self, texts: list[str]) -> list[str]:
        """Return the group of each value, which is OTHERS if there are too many groups."""
        known = set(self._counts)
        names = []
        for text in texts:
            name = _shorten(text)
            if name not in known and len(known) >= MOST_GROUPS:
                name = OTHERS
            known.add(name)
            names.append(name)
        return names

    def _add_times(self, names: list[str], groups: np.ndarray, times: np.ndarray) -> None:
        """Count rounded times.

        Args:
            names: the groups.
            groups: the place in `names` of the group of each time.
            times: the times.
        """
        order = np.lexsort((times, groups))
        groups = groups[order]
        times = times[order]
        # Equal times of a group are adjacent. Each run of them is counted at once.
        is_new = (np.diff(groups, prepend=-1) != 0) | (np.diff(times, prepend=0) != 0)
        runs = np.flatnonzero(is_new)
        numbers = times[runs].tolist()
        counts = np.diff(runs, append=len(times)).tolist()
        borders = np.searchsorted(groups[runs], np.arange(len(names) + 1)).tolist()
        for name, start, stop in zip(names, borders, borders[1:]):
            quantiles = self._times.setdefault(name, Quantiles(PERCENTS))
            quantiles.add_counts(numbers[start:stop], counts[start:stop])

    def make_summary(self) -> dict[str, Any]:
        """Return what is known of each group, the largest one first.

        `exchanges` is their number, `answered` that of those with a response, and `errors` that of
        responses that are errors, if the format says which. `ns` has the quantiles of their times.
        """
        names = sorted(self._counts, key=lambda name: (-self._counts[name], name))
        return {
            name: {
                "exchanges": self._counts[name],
                "answered": self._answered[name],
                **({"errors": self._errors[name]} if self._knows_errors else {}),
                "ns": self._times[name].make_summary(),
            }
            for name in names
        }


def measure_exchanges(table: FrameTable) -> np.ndarray:
    """Return the bytes of each request and its response together: int64."""
    sizes: np.ndarray = table["request_size"] + table["response_size"]
    return sizes


def list_cells(groups: dict[str, Any], most: int) -> list[tuple[str, ...]]:
    """Return the cells of a table of latencies: the names of its columns, and its first rows.

    groups: a result of `Latencies.make_summary`. most: the largest number of rows. The first cell
    of a row is the name of its group.
    """
    counted = [name for name in COUNTED if any(name in group for group in groups.values())]
    rows: list[tuple[str, ...]] = [("", *counted, *QUANTILES)]
    for name, group in list(groups.items())[:most]:
        times = group["ns"]
        texts = [format_duration(times[key]) if times else "-" for key in QUANTILES]
        rows.append((name, *(f"{group[key]:,}" for key in counted), *texts))
    return rows


def format_duration(nanoseconds: int) -> str:
    """Return a time for people, such as "1.2 ms"."""
    size = float(nanoseconds)
    for unit in ("ns", "us", "ms"):
        if abs(size) < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} s" if size >= 1000 else f"{size:.3g} s"


def round_times(times: np.ndarray) -> np.ndarray:
    """Return times with DIGITS digits: int64."""
    lowest = 10 ** (DIGITS - 1)
    exponents = np.floor(np.log10(np.maximum(times, lowest) / lowest)).astype(np.int64)
    units = 10**exponents
    rests = times % units
    # No sum is above the time by more than half a unit, so none overflows int64.
    rounded: np.ndarray = times - rests + np.where(rests >= units - units // 2, units, 0)
    return rounded


def _number_groups(table: FrameTable) -> tuple[list[str], np.ndarray]:
    """Return the text of each value of the column that groups, and the value of each row.

    The value of a row is its place in the list.
    """
    column = table.format.display.grouped_by
    if column is None:
        return [ALL] if len(table) else [], np.zeros(len(table), np.int64)
    if column not in table.places:
        distinct, values = np.unique(table[column], return_inverse=True)
        name_number = table.format.get_column(column).name_number
        return [name_number(int(number)) for number in distinct], values
    (numbers,) = number_values((table, np.arange(len(table)), column))
    _, rows, values = np.unique(numbers, return_index=True, return_inverse=True)
    offsets, data = Places(table[rows], column).gather(large=True)
    view = memoryview(data)
    borders = offsets.tolist()
    texts = [escape_bytes(view[start:stop]) for start, stop in zip(borders, borders[1:])]
    return texts, values


def _shorten(name: str) -> str:
    """Return the beginning of a long name. Groups with one beginning are one group."""
    return name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "..."
