"""Timing: everything that is compared takes turns, in one run and on one thread.

A round calls every contender once, one after another, so that a machine that is slow for a while is slow for all of
them; the first round is not counted. Times are medians over the rounds, and a ratio is the median of the rounds' own
ratios. Giving a result's memory back is part of no time, neither of a copy's nor of a table's.
"""
from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Contender:
    """Something to time.

    seconds: does it once and says how long it took. units: how many things that handles (records, batches), so that
    those on a part of the data compare with those on all of it. size: the bytes of them.
    """
    name: str
    seconds: Callable[[], float]
    units: int
    size: int


def timed(call: Callable[[], Any], rehearse: bool = True) -> Callable[[], float]:
    """The seconds of a function.

    rehearse: call it once more, uncounted, right before. What needs fresh memory is then given what it has just
    returned; elsewhere the first touch costs what the system did in between (a virtual machine's memory that is
    free for a second goes back to its host, and comes back ten times slower).
    """
    def run() -> float:
        if rehearse:
            call()
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
        del result
        return seconds
    return run


def cpu_of_children() -> float:
    """The seconds of processor time that the processes below this one have used, those that have ended too."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue                    # it has just ended, and counts with its parent
        fields = text[text.rindex(")") + 2:].split()
        parents[int(path.parent.name)] = int(fields[1])
        used[int(path.parent.name)] = sum(map(int, fields[11:15]))
    below, before = {os.getpid()}, 0
    while len(below) > before:
        before = len(below)
        below |= {child for child, parent in parents.items() if parent in below}
    return sum(used[pid] for pid in below - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


class Times:
    """Nanoseconds per unit, of every contender in every round. Several names stand for the sum of theirs."""

    def __init__(self, contenders: Sequence[Contender], rounds: dict[str, list[float]]):
        self.contenders = {one.name: one for one in contenders}
        self.rounds = rounds

    def median(self, *names: str) -> float:
        return statistics.median(self._sums(names))

    def rate(self, name: str) -> float:
        """GB/s."""
        one = self.contenders[name]
        return one.size / one.units / self.median(name)

    def ratio(self, above: str | Sequence[str], below: str | Sequence[str]) -> tuple[float, float, float]:
        """How many times the time of `below` is the time of `above`: median, lower and upper quartile."""
        return _quartiles([a / b for a, b in zip(self._sums(_names(above)), self._sums(_names(below)))])

    def quartiles(self, name: str) -> tuple[float, float, float]:
        """Nanoseconds per unit: median, lower and upper quartile."""
        return _quartiles(self.rounds[name])

    def _sums(self, names: Sequence[str]) -> list[float]:
        return [math.fsum(turn) for turn in zip(*(self.rounds[name] for name in names))]


def _names(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def interleave(contenders: Sequence[Contender], rounds: int, warm_up: int = 1) -> Times:
    """Contenders take turns, `rounds` times (at least two), after some rounds that do not count."""
    times: dict[str, list[float]] = {one.name: [] for one in contenders}
    gc.collect()
    gc.disable()
    try:
        for turn in range(warm_up + rounds):
            for one in contenders:
                seconds = one.seconds()
                if turn >= warm_up:
                    times[one.name].append(seconds * 1e9 / one.units)
            gc.collect()
    finally:
        gc.enable()
    return Times(contenders, times)
