"""Timing: compared programs take turns, in one run and on one thread.

A contender of several threads states their number itself.

A round calls every contender once. If the machine is slow for a while, it is slow for all of them.
The first round is not counted. A time is the median over the rounds, and a ratio is the median of
the rounds' ratios. The time to free a result is not counted, neither for copies nor for tables.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wirescan.core.parallel import FixedWorkers


@dataclass(frozen=True)
class Contender:
    """A call to time.

    seconds: makes the call and returns its seconds. units: the number of records or batches of a
    call; contenders with a part of the data are compared per unit. size: the bytes of these units.
    """

    name: str
    seconds: Callable[[], float]
    units: int
    size: int


def time_call(call: Callable[[], Any], *, rehearse: bool = True) -> Callable[[], float]:
    """Return a function that makes a call and returns its seconds.

    rehearse: make the call once before, without counting it. The counted call then reuses the
    memory that the first one freed. Otherwise a virtual machine may have returned that memory to
    its host, and the first write to it is ten times slower.
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


@dataclass
class Usage:
    """What the timed rounds of a section took.

    rounds: the numbers of rounds, without warm-up. wall, cpu: seconds of all rounds, with warm-up
    and rehearsals. cpu counts this process and its children.
    """

    rounds: list[int] = field(default_factory=list)
    wall: float = 0.0
    cpu: float = 0.0


_usage = Usage()


def take_usage() -> Usage:
    """Return the usage since the last call of this function."""
    global _usage
    taken = _usage
    _usage = Usage()
    return taken


def read_cpu() -> float:
    """Return the processor seconds of this process and all its children, including ended ones."""
    ended = os.times()
    own = time.process_time()
    return own + ended.children_user + ended.children_system + read_cpu_of_children()


def read_cpu_of_children() -> float:
    """Return the processor seconds of all child processes, including ended ones."""
    parents = {}
    used = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # the process has just ended, and counts for its parent
        fields = text[text.rindex(")") + 2 :].split()
        parents[int(path.parent.name)] = int(fields[1])
        used[int(path.parent.name)] = sum(map(int, fields[11:15]))
    family = {os.getpid()}
    size_before = 0
    while len(family) > size_before:
        size_before = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return sum(used[pid] for pid in family - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


class Times:
    """Nanoseconds per unit of every contender in every round.

    Methods that take several names use the sum of their times.
    """

    def __init__(self, contenders: Sequence[Contender], rounds: dict[str, list[float]]):
        self.contenders = {contender.name: contender for contender in contenders}
        self.rounds = rounds

    def median(self, *names: str) -> float:
        return statistics.median(self._sums(names))

    def rate(self, name: str) -> float:
        """Return GB/s."""
        contender = self.contenders[name]
        return contender.size / contender.units / self.median(name)

    def ratio(
        self, above: str | Sequence[str], below: str | Sequence[str]
    ) -> tuple[float, float, float]:
        """Return the time of `above` divided by the time of `below`: median and quartiles."""
        pairs = zip(self._sums(_names(above)), self._sums(_names(below)))
        return _quartiles([numerator / denominator for numerator, denominator in pairs])

    def quartiles(self, name: str) -> tuple[float, float, float]:
        """Return nanoseconds per unit: median, lower and upper quartile."""
        return _quartiles(self.rounds[name])

    def _sums(self, names: Sequence[str]) -> list[float]:
        return [math.fsum(turn) for turn in zip(*(self.rounds[name] for name in names))]


def _names(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def interleave(contenders: Sequence[Contender], rounds: int, warm_up: int = 1) -> Times:
    """Time contenders in turns, for at least two rounds after `warm_up` uncounted rounds."""
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    cpu_before = read_cpu()
    wall_before = time.perf_counter()
    gc.collect()
    gc.disable()
    try:
        for turn in range(warm_up + rounds):
            for contender in contenders:
                with FixedWorkers(1):
                    seconds = contender.seconds()
                if turn >= warm_up:
                    times[contender.name].append(seconds * 1e9 / contender.units)
            gc.collect()
    finally:
        gc.enable()
    _usage.rounds.append(rounds)
    _usage.wall += time.perf_counter() - wall_before
    _usage.cpu += read_cpu() - cpu_before
    return Times(contenders, times)
