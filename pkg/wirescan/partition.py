"""Cut sources into slices on frame boundaries, and share these out evenly: what the tasks of a parallel job read. numpy
only."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, overload

import numpy as np

from wirescan import sidecar
from wirescan.catalog import format_of
from wirescan.filters import Filter, checked, narrowed
from wirescan.source import File, found
from wirescan.walk import apart

SLICE_BYTES = 128 << 20
FILES = 1000            # in a task, at the most: a file counts for no less than this part of a task's bytes
LEAST = 8 << 20         # bytes of a task that is made smaller so that none runs alone at the end
GRAINS = 8              # a task is cut as exactly as this part of it
THREADS = 16            # that look for cuts: they wait for disks and stores
NAMED = 5               # slices that a plan names as too large

Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Cut = Callable[[Sequence[File], int], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Slice:
    """The bytes of a file from `start` to `stop`; both are frame boundaries, or the file's ends.

    last: the file ended at `stop` when it was planned, so a frame that is cut there is a tail; it may have grown since.
    """
    path: str
    start: int
    stop: int
    last: bool = field(default=False, compare=False)

    def __len__(self) -> int:
        return self.stop - self.start


class Plan(Sequence[list[Slice]]):
    """What each task of a job reads: a sequence of lists of slices, in the order of the sources.

    tasks: list of these lists. size: bytes that a task was to have, about. bytes: of all slices. uncut: list of the
    slices that are more than twice as large as a task was to be, since nothing tells where in them a frame begins, or
    since they are one frame. skew: the largest task over the mean, where a file counts for at least a thousandth of
    `size`: 1.0 is even. str() says all this in a few lines.
    """
    def __init__(self, tasks: Sequence[list[Slice]], size: int = SLICE_BYTES):
        self.tasks, self.size = list(tasks), size

    @overload
    def __getitem__(self, number: int) -> list[Slice]: ...
    @overload
    def __getitem__(self, number: slice) -> Plan: ...

    def __getitem__(self, number: int | slice) -> list[Slice] | Plan:
        return Plan(self.tasks[number], self.size) if isinstance(number, slice) else self.tasks[number]

    def __len__(self) -> int:
        return len(self.tasks)

    def __eq__(self, other: object) -> bool:
        return self.tasks == (other.tasks if isinstance(other, Plan) else other)

    @property
    def slices(self) -> Iterator[Slice]:
        """All slices, in order."""
        return (one for task in self.tasks for one in task)

    @property
    def bytes(self) -> int:
        """Bytes of files that are read."""
        return sum(map(len, self.slices))

    @property
    def uncut(self) -> list[Slice]:
        """The slices that are more than twice as large as a task was to be."""
        return [one for one in self.slices if len(one) > 2 * self.size]

    @property
    def skew(self) -> float:
        """The largest task over the mean."""
        loads = [sum(max(len(one), self.size // FILES) for one in task) for task in self.tasks]
        return float(max(loads) / np.mean(loads)) if loads else 1.0

    def __str__(self) -> str:
        files = len({one.path for one in self.slices})
        lines = [f"{_counted(len(self), 'task')}: {_size(self.bytes)} of {_counted(files, 'file')}; the largest task "
                 f"is {self.skew:.2f} times the mean"]
        large = self.uncut
        lines += [f"not cut: {one.path}, {_size(len(one))} from byte {one.start} on: no beginning of a frame is known "
                  "in it" for one in large[:NAMED]]
        lines += [f"... and {len(large) - NAMED} more that are not cut"] if len(large) > NAMED else []
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Plan: {str(self).splitlines()[0]}>"


def plan(sources: Sources, size: int = SLICE_BYTES, format: str = "kafka.records") -> list[Slice]:
    """Slices of about `size` bytes that cover all files of the sources, in their order.

    sources: paths, globs, directories or URLs. Files are cut where their indexes say a frame begins, or where a walk
    over the headers finds one; a file without either, or with damage in its headers, stays whole from there on.
    Raises ValueError for an unknown format or a size below 1, OSError.
    """
    slices = []
    _check(size)
    for path, end in files_of(sources, format):
        parts = -(-end // size) or 1
        # Even, so that no task is left to run alone.
        starts = starts_of(path, -(-end // parts), format) if parts > 1 else [0]
        slices += [Slice(path, start, stop, stop == end) for start, stop in zip(starts, [*starts[1:], end])
                   if start < stop]
    return slices


def tasks(sources: Sources, size: int = SLICE_BYTES, format: str = "kafka.records", *,
          filters: Sequence[tuple[Any, ...]] = (), errors: str = "strict", cut: Cut | None = None,
          slots: int = 1) -> Plan:
    """Share out the files of the sources to tasks of about `size` bytes each, in their order: a `Plan`.

    The files are thought of as one line of bytes that is divided evenly. Only those are cut that a border of tasks
    runs through, as `plan` cuts them, and where a frame begins next to the border. Small files share a task, a
    thousand of them at the most.

    filters, errors: as of `pieces.iter_tables`; what names or indexes show to hold no wanted row is left out: whole
    files, the beginnings and the ends of others. The rest has to be filtered all the same.
    cut: what finds the cuts, (files, bytes) -> for each file offsets, rising from 0, at which frames begin, about so
    many bytes apart; by default threads do. slots: how many tasks run at a time: there are a multiple of them, unless
    the tasks become too small by that.
    Raises ValueError for an unknown format, a size or slots below 1, as `filters.checked` for filters, OSError.
    """
    _check(size)
    if slots < 1:
        raise ValueError(f"at least 1 task runs at a time, not {slots}")
    parts = _parts(files_of(sources, format), format, checked(filters, format), errors)
    if not parts:
        return Plan([], size)
    loads = np.maximum([len(one) for one in parts], size // FILES)
    ends = loads.cumsum()
    begins = ends - loads
    count = int(-(-ends[-1] // size))
    share = float(ends[-1] / max(count, min(-(-count // slots) * slots, int(ends[-1] // LEAST))))
    grain = max(int(share / GRAINS), 1)
    # A border next to the end of a file moves there.
    crossed = np.flatnonzero((begins + grain / 2) // share < (ends - grain / 2) // share)
    known = dict(zip(crossed.tolist(), (cut or partial(starts_by_threads, format=format))([
        File(parts[i].path, parts[i].stop) for i in crossed], grain)))

    # Of all places where a task may begin, those begin one that are the nearest to a border.
    places = [np.array([one.start, *(at for at in known.get(i, ()) if one.start < at < one.stop)])
              for i, one in enumerate(parts)]
    line = np.concatenate([at - one.start + begin for at, one, begin in zip(places, parts, begins.tolist())])
    middles = (line + np.append(line[1:], ends[-1])) / 2
    turns = np.append(True, np.diff(middles // share) > 0)
    out: list[list[Slice]] = []
    for one, at, begun in zip(parts, places, np.split(turns, np.cumsum([len(at) for at in places])[:-1])):
        if begun[0]:
            out.append([])
        starts = [one.start, *at[1:][begun[1:]].tolist()]
        first, *others = [Slice(one.path, start, stop, one.last and stop == one.stop)
                          for start, stop in zip(starts, [*starts[1:], one.stop])]
        out[-1].append(first)
        out += [[other] for other in others]
    return Plan(out, size)


def files_of(sources: Sources, format: str = "kafka.records") -> list[File]:
    """The files that sources stand for, with their sizes. Raises ValueError for an unknown format, OSError."""
    top = format_of(format).outermost
    return [file for source in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)
            for file in found(source, files=top.files, ignore=top.ignore)]


def starts_of(path: str, size: int, format: str = "kafka.records") -> list[int]:
    """Offsets in a file at which a frame begins, about `size` bytes apart, from 0 on: by its sidecar, if that is fine
    enough, else as the format knows. Raises ValueError for an unknown format, OSError."""
    top = format_of(format).outermost
    starts = sidecar.read(path, format) if size >= sidecar.STEP else None
    if starts is not None:
        return [0, *apart(np.array(starts), 0, size)]
    return top.cuts(path, size) if top.cuts else [0]


def starts_by_threads(files: Iterable[File], size: int, format: str = "kafka.records") -> list[list[int]]:
    """`starts_of` for each file."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(starts_of, (file.path for file in files), repeat(size), repeat(format)))


def groups(slices: Sequence[Slice], size: int = SLICE_BYTES) -> list[list[Slice]]:
    """Slices side by side, in their order, so that each group has about `size` bytes: small files share a task."""
    out: list[list[Slice]] = []
    room = 0
    for one in slices:
        if not out or len(one) > room:
            out.append([])
            room = size
        out[-1].append(one)
        room -= len(one)
    return out


def _check(size: int) -> None:
    if size < 1:
        raise ValueError(f"a slice has at least 1 byte, not {size}")


def _parts(files: Sequence[File], format: str, filters: Sequence[Filter], errors: str) -> list[Slice]:
    """What is to be read of each file, where there is anything."""
    wanted: Iterable[tuple[int, int | None]] = repeat((0, None))
    if filters:
        with ThreadPoolExecutor(THREADS) as pool:
            wanted = list(pool.map(lambda file: narrowed(file.path, format, filters, errors), files))
    parts = [Slice(path, start, size if stop is None else min(stop, size), stop is None or stop >= size)
             for (path, size), (start, stop) in zip(files, wanted)]
    return [one for one in parts if one.start < one.stop]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _size(number: int) -> str:
    units = max(number.bit_length() - 1, 0) // 10
    return f"{number / (1 << 10 * units):.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[units]}"
