"""Chooses the frames of a damaged log that are in order, where some have a wrong place or offset.

No checksum covers the offset of a record batch, and copies of files may hold a frame twice. The
chosen frames have rising offsets, and there are as many as possible. Of two equal choices, the one
is taken whose offsets continue each other more often.

The frames are counted in runs, so memory grows with the number of holes and of places that are out
of order, and not with the number of frames.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import NamedTuple
from zlib import crc32

import numpy as np

from wirescan.frames.table import FrameTable
from wirescan.seglog.frame_offsets import UNKNOWN, find_first_offsets, log_columns

MOST_RUNS = 1 << 16  # before older runs that continue each other are joined


class Run(NamedTuple):
    """Frames of a file with rising offsets.

    file: the number of the file. start, stop: byte positions in it. first, last: offsets.
    frames: their number. mark: the size and the checksum of a frame that overlaps others; None for
    all other runs.
    """

    file: int
    start: int
    stop: int
    first: int
    last: int
    frames: int
    mark: tuple[int, int] | None = None


class Splits(NamedTuple):
    """Where runs must be divided, because runs overlap.

    bounds: sorted u8 array of offsets; a run ends before each. starts, stops: u8 arrays, the ranges
    of offsets that several runs have. A frame in such a range is a run of its own. `starts` has the
    largest u8 after them. All are unsigned because the range of the largest offset stops at 2**63.
    """

    bounds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def is_shared(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Return a bool array: the frames with an offset that several runs have."""
        if not len(self.stops):
            return np.zeros(len(first), bool)
        following = np.searchsorted(self.stops, first.astype(np.uint64), "right")
        shared: np.ndarray = self.starts[following] <= last.astype(np.uint64)
        return shared


LARGEST = (1 << 64) - 1  # as u8
NO_SPLITS = Splits(*(np.empty(0, np.uint64) for _ in range(3)))


def find_sound_rows(frames: FrameTable) -> np.ndarray:
    """Return a bool array: the good frames whose offsets are possible."""
    columns = log_columns(frames)
    sound: np.ndarray = (
        ~frames.bad & (frames[columns.first] >= 0) & (frames[columns.last] >= frames[columns.first])
    )
    return sound


class RunList:
    """Collects the runs of a log: `start_file` for each file, then `add` its frames.

    splits: where runs must be divided.
    """

    def __init__(self, splits: Splits = NO_SPLITS):
        self.runs: list[Run] = []
        self._splits = splits
        self._file = -1
        self._room = 2 * MOST_RUNS

    def start_file(self) -> None:
        """Announce that the next frames are those of the next file."""
        self._file += 1

    def add(self, frames: FrameTable) -> None:
        """Add the next frames of the file. Those that are bad, or have no offset, are ignored."""
        frames = frames.where(find_sound_rows(frames))
        if not len(frames):
            return
        columns = log_columns(frames)
        last = frames[columns.last]
        first = find_first_offsets(frames)
        first = np.where(first == UNKNOWN, last, first)
        starts = frames.positions
        stops = starts + frames["size"]
        shared = self._splits.is_shared(first, last)
        part = np.searchsorted(self._splits.bounds, first.astype(np.uint64), "right")
        is_new = np.ones(len(frames), bool)
        is_new[1:] = (first[1:] != last[:-1] + 1) | (part[1:] != part[:-1])
        is_new[1:] |= shared[1:] | shared[:-1]
        begins = np.flatnonzero(is_new)
        ends = np.append(begins[1:], len(frames)) - 1
        for begin, end in zip(begins.tolist(), ends.tolist()):
            mark = None
            if shared[begin]:
                frame = frames.frame(begin)
                mark = (len(frame), crc32(frame))
            self._append(
                Run(
                    self._file,
                    int(starts[begin]),
                    int(stops[end]),
                    int(first[begin]),
                    int(last[end]),
                    end - begin + 1,
                    mark,
                )
            )

    def _append(self, run: Run) -> None:
        """Append a run, or continue the last one with it."""
        before = self.runs[-1] if self.runs else None
        if (
            before is not None
            and before.file == run.file
            and before.mark is run.mark is None
            and before.last + 1 == run.first
            and not self._has_bound(run.first)
        ):
            self.runs[-1] = _join(before, run)
            return
        self.runs.append(run)
        if len(self.runs) > self._room and not len(self._splits.bounds):
            self._join_older()

    def _has_bound(self, offset: int) -> bool:
        bounds = self._splits.bounds
        place = int(np.searchsorted(bounds, np.uint64(offset)))
        return place < len(bounds) and int(bounds[place]) == offset

    def _join_older(self) -> None:
        """Join the older runs of a file that are in order, across the holes between them."""
        joined: list[Run] = []
        for run in self.runs[:-MOST_RUNS]:
            if joined and joined[-1].file == run.file and joined[-1].last < run.first:
                joined[-1] = _join(joined[-1], run)
            else:
                joined.append(run)
        self.runs = joined + self.runs[-MOST_RUNS:]
        self._room = 2 * max(len(joined), MOST_RUNS)


def _join(run: Run, following: Run) -> Run:
    return run._replace(
        stop=following.stop, last=following.last, frames=run.frames + following.frames
    )


def is_ordered(runs: list[Run]) -> bool:
    """Return whether the offsets of all runs rise."""
    return all(run.last < following.first for run, following in zip(runs, runs[1:]))


def find_splits(runs: list[Run]) -> Splits:
    """Return where runs must be divided; NO_SPLITS if none overlap."""
    ranges = sorted((run.first, run.last + 1) for run in runs)
    shared: list[list[int]] = []
    reach = -1
    for first, stop in ranges:
        if first < reach:
            if shared and first <= shared[-1][1]:
                shared[-1][1] = max(shared[-1][1], min(stop, reach))
            else:
                shared.append([first, min(stop, reach)])
        reach = max(reach, stop)
    if not shared:
        return NO_SPLITS
    bounds = np.unique(np.array(ranges, np.uint64))
    starts, stops = np.array([*shared, [LARGEST, 0]], np.uint64).T.copy()
    return Splits(bounds, starts, stops[:-1])


class Chain(NamedTuple):
    """The best choice of runs that end with some run: their value, and the number of that run.

    value: (frames, places where a run continues the one before, or a file begins as named).
    """

    value: tuple[int, int]
    number: int


NO_CHAIN = Chain((0, 0), -1)


def choose_runs(runs: list[Run], bases: list[int | None]) -> list[bool]:
    """Return for each run whether it is kept: those of the best choice with rising offsets.

    runs: they do not overlap in part: of two that share an offset, both are single frames.
    bases: for each file, the offset in its name; None if there is none.
    """
    lasts = sorted({run.last for run in runs})
    best = _PrefixMaximum(len(lasts))
    ending_at: dict[int, Chain] = {}
    previous: list[int] = []
    for number, run in enumerate(runs):
        place = bisect_left(lasts, run.first)  # of the first `last` that is not below the run
        before = best.find(place)
        frames, joints = before.value
        adjacent = ending_at.get(run.first - 1)
        if adjacent is not None and (adjacent.value[0], adjacent.value[1] + 1) > before.value:
            before = adjacent
            frames, joints = adjacent.value
            joints += 1
        elif run.first == bases[run.file]:
            joints += 1
        chain = Chain((frames + run.frames, joints), number)
        previous.append(before.number)
        if chain.value > ending_at.get(run.last, NO_CHAIN).value:
            ending_at[run.last] = chain
        best.raise_to(bisect_left(lasts, run.last), chain)
    kept = [False] * len(runs)
    number = best.find(len(lasts)).number
    while number >= 0:
        kept[number] = True
        number = previous[number]
    return kept


class _PrefixMaximum:
    """The best chain among the first places of a list, in logarithmic time (a Fenwick tree)."""

    def __init__(self, size: int):
        self._tree = [NO_CHAIN] * (size + 1)

    def raise_to(self, place: int, chain: Chain) -> None:
        """Set the chain at a place, unless a better one is there."""
        place += 1
        while place < len(self._tree):
            if chain.value > self._tree[place].value:
                self._tree[place] = chain
            place += place & -place

    def find(self, stop: int) -> Chain:
        """Return the best chain at the places before `stop`."""
        best = NO_CHAIN
        while stop > 0:
            if self._tree[stop].value > best.value:
                best = self._tree[stop]
            stop -= stop & -stop
        return best


class KeptFrames:
    """Which frames of a log are kept.

    runs: all runs, in the order of the log. kept: whether each is kept.
    """

    def __init__(self, runs: list[Run], kept: list[bool], files: int):
        starts: list[list[int]] = [[] for _ in range(files)]
        stops: list[list[int]] = [[] for _ in range(files)]
        self._duplicates: set[tuple[int, int]] = set()
        self._firsts = [run.first for run, keep in zip(runs, kept) if keep]
        self._lasts = [run.last for run, keep in zip(runs, kept) if keep]
        kept_marks = {(run.first, run.last, run.mark) for run, keep in zip(runs, kept) if keep}
        for run, keep in zip(runs, kept):
            if keep:
                starts[run.file].append(run.start)
                stops[run.file].append(run.stop)
            elif run.mark is not None and (run.first, run.last, run.mark) in kept_marks:
                self._duplicates.add((run.file, run.start))
        self._starts = [np.array(of_file, np.int64) for of_file in starts]
        # The -1 is the stop of the run before the first one.
        self._stops = [np.array([*of_file, -1], np.int64) for of_file in stops]

    def find(self, file: int, positions: np.ndarray) -> np.ndarray:
        """Return a bool array: whether the frames at these positions of a file are kept."""
        before = np.searchsorted(self._starts[file], positions, "right") - 1
        kept: np.ndarray = positions < self._stops[file][before]
        return kept

    def is_hole(self, first: int, last: int) -> bool:
        """Return whether kept frames are before and after these offsets, and none has one."""
        following = bisect_left(self._lasts, first)
        return 0 < following < len(self._firsts) and last < self._firsts[following]

    def is_duplicate(self, file: int, position: int) -> bool:
        """Return whether a frame that is not kept has the bytes of one that is."""
        return (file, position) in self._duplicates


def choose_frames(
    scan: Callable[[int], Iterable[FrameTable]], bases: list[int | None]
) -> KeptFrames | None:
    """Return which frames of a log are kept; None for all with possible offsets.

    scan: number of a file -> its frames, in tables, in the mode "mark". bases: as for
    `choose_runs`. Raises as `scan`.
    """
    runs = _list_runs(scan, len(bases), NO_SPLITS)
    if is_ordered(runs):
        return None
    splits = find_splits(runs)
    if len(splits.bounds):
        runs = _list_runs(scan, len(bases), splits)
    return KeptFrames(runs, choose_runs(runs, bases), len(bases))


def _list_runs(
    scan: Callable[[int], Iterable[FrameTable]], files: int, splits: Splits
) -> list[Run]:
    runs = RunList(splits)
    for number in range(files):
        runs.start_file()
        for table in scan(number):
            runs.add(table)
    return runs.runs
