"""Cut sources into slices on frame boundaries and distribute them evenly over tasks.

`export/parquet.py` and Spark plan parallel jobs with this module. It needs only numpy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, TypeVar, overload

import numpy as np

from wirescan.files import boundary_index
from wirescan.files.source import File, list_files, read_ahead, to_plain_path
from wirescan.frames.escape import make_visible
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.reading.filters import Condition, check_filters, prune_file
from wirescan.reading.work import DEFAULT_WORK, estimate_densities

SLICE_BYTES = 128 << 20
FILES = 1000  # per task, at most: a file counts for at least this fraction of a task's bytes
SMALLEST_TASK = 8 << 20  # bytes; tasks are not made smaller than this to fill all slots
ROUNDS = 4  # of tasks, one after another on each slot, if the tasks are worth it
TASK_WORK = 1e9  # nanoseconds; a task costs Spark about 50 ms, so no smaller ones make more rounds
FINEST_GRAIN = 8  # cuts of files with much work per byte are closer by this factor at most
GRAINS = 8  # cuts are looked for at distances of this fraction of a task
THREADS = 16  # that look for cuts; they wait for disks and stores
LISTED_SLICES = 5  # slices that `str(plan)` lists as too large
BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Cut = Callable[[Sequence[File], int], Sequence[Sequence[int]]]
Sliceable = TypeVar("Sliceable", bound=Sized)


@dataclass(frozen=True)
class Slice:
    """The bytes of a file from `start` to `stop`.

    Attributes:
        path: the path or URL of the file.
        start: a frame boundary.
        stop: a frame boundary, or the end of the file.
        last: the file ended at `stop` when it was planned, so a frame that is cut there is a
            tail. The file may have grown since then.
    """

    path: str
    start: int
    stop: int
    last: bool = field(default=False, compare=False)

    def __len__(self) -> int:
        return self.stop - self.start


class Plan(Sequence[list[Slice]]):
    """What each task of a job reads: a sequence of lists of slices, in the order of the sources.

    `str(plan)` describes the plan in a few lines.

    Attributes:
        tasks: the list of these lists.
        size: the bytes that a task should have.
        densities: path of a file -> the estimated work of one of its bytes. The mean of all bytes
            is 1. A path that is not there has that mean.
    """

    def __init__(
        self,
        tasks: Sequence[list[Slice]],
        size: int = SLICE_BYTES,
        densities: Mapping[str, float] | None = None,
    ):
        self.tasks = list(tasks)
        self.size = size
        self.densities = densities or {}

    @overload
    def __getitem__(self, number: int) -> list[Slice]: ...
    @overload
    def __getitem__(self, number: slice) -> Plan: ...

    def __getitem__(self, number: int | slice) -> list[Slice] | Plan:
        if isinstance(number, slice):
            return Plan(self.tasks[number], self.size, self.densities)
        return self.tasks[number]

    def __len__(self) -> int:
        return len(self.tasks)

    def __eq__(self, other: object) -> bool:
        return self.tasks == (other.tasks if isinstance(other, Plan) else other)

    @property
    def slices(self) -> Iterator[Slice]:
        """All slices, in order."""
        return (slice for task in self.tasks for slice in task)

    @property
    def bytes(self) -> int:
        """The bytes of all slices."""
        return sum(map(len, self.slices))

    @property
    def uncut(self) -> list[Slice]:
        """The slices with more than twice the work that a task should have.

        Such a slice is a single frame, or no start of a frame is known in it.
        """
        return [
            part
            for part in self.slices
            if len(part) * self.densities.get(part.path, 1.0) > 2 * self.size
        ]

    @property
    def works(self) -> list[float]:
        """The estimated work of each task, in bytes of mean work.

        A file counts for at least a thousandth of `size`.
        """
        smallest = self.size // FILES
        return [
            sum(max(len(part) * self.densities.get(part.path, 1.0), smallest) for part in task)
            for task in self.tasks
        ]

    @property
    def skew(self) -> float:
        """The estimated work of the largest task over the mean; 1.0 is even."""
        works = self.works
        return float(max(works) / np.mean(works)) if works else 1.0

    def __str__(self) -> str:
        files = len({slice.path for slice in self.slices})
        tasks = _format_count(len(self), "task")
        sizes = f"{_format_bytes(self.bytes)} of {_format_count(files, 'file')}"
        lines = [f"{tasks}: {sizes}; the largest task is {self.skew:.2f} times the mean"]
        large = self.uncut
        for slice in large[:LISTED_SLICES]:
            lines.append(
                f"not cut: {make_visible(slice.path)}, {_format_bytes(len(slice))} from byte "
                f"{slice.start} on: no beginning of a frame is known in it"
            )
        if len(large) > LISTED_SLICES:
            lines.append(f"... and {len(large) - LISTED_SLICES} more that are not cut")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Plan: {str(self).splitlines()[0]}>"


def plan(
    sources: Sources, format: str, size: int = SLICE_BYTES, *, limits: Limits = Limits()
) -> list[Slice]:
    """Return slices of about `size` bytes that cover all files of the sources, in their order.

    Files are cut at frame starts from their indexes, or from a walk over the headers. A file
    without either stays whole. A file with damage in its headers stays whole from there on.

    sources, format, size, limits: as in `plan_tasks`; `size` is that of a slice.

    Raises ValueError for an unknown format and a size below 1, and OSError if a source cannot be
    read.
    """
    slices = []
    _check_size(size)
    for path, end in list_source_files(sources, format):
        parts = -(-end // size) or 1
        # The slices have equal sizes, so that no small task is left to run alone.
        starts = find_starts(path, -(-end // parts), format, limits) if parts > 1 else [0]
        slices += [
            Slice(path, start, stop, stop == end)
            for start, stop in zip(starts, [*starts[1:], end])
            if start < stop
        ]
    return slices


def plan_tasks(
    sources: Sources,
    format: str,
    size: int = SLICE_BYTES,
    *,
    filters: Sequence[tuple[Any, ...]] = (),
    errors: str = "strict",
    limits: Limits = Limits(),
    cut: Cut | None = None,
    slots: int = 1,
    rounds: int = 1,
) -> Plan:
    """Distribute the files of the sources over tasks of about `size` bytes each, in their order.

    The files are treated as one line of work that is divided evenly, so a task has fewer bytes if
    they take longer. `wirescan.reading.work` estimates the work of a byte in each file. Only the
    files that contain a border between tasks are cut, as `plan` cuts them, at the frame start next
    to the border. Small files share a task, at most a thousand of them.

    sources: paths, globs, directories or URLs.
    format: the name of the format.
    size: bytes per task, on average.
    filters: as in `chunked.iter_tables`. Files without wanted rows, and such starts and ends of
        files, are excluded by names and indexes. The remaining rows still have to be filtered.
    errors: as in `chunked.iter_tables`.
    limits: bounds on rows and bytes. A frame above `limits.frame` is damage, and the file is not
        cut after it.
    cut: a function of files and a distance in bytes. For each file it returns ascending positions
        from 0 on, at which frames start, about that distance apart. Default: threads look for them.
    slots: how many tasks run at a time. The number of tasks is a multiple of it, unless the tasks
        become too small.
    rounds: how many tasks each slot should run one after another, so that progress can be seen.
        There are no more tasks than `size` asks for if such tasks would take less than a second.

    Raises ValueError for an unknown format and for a size or slots below 1, the errors of
    `filters.check_filters`, and OSError if a source cannot be read.
    """
    _check_size(size)
    if slots < 1:
        raise ValueError(f"at least 1 task runs at a time, not {slots}")
    parts = _list_parts(
        list_source_files(sources, format), format, check_filters(filters, format), errors, limits
    )
    if not parts:
        return Plan([], size)
    count, densities = _count_tasks(parts, format, size, slots, rounds)
    weights = np.array([densities.get(part.path, 1.0) for part in parts])
    loads = np.maximum([len(part) for part in parts] * weights, size // FILES)
    ends = loads.cumsum()
    begins = ends - loads
    count = max(count, int(-(-ends[-1] // size)))
    full_rounds = -(-count // slots) * slots
    max_tasks = int(ends[-1] // SMALLEST_TASK)
    share = float(ends[-1] / max(count, min(full_rounds, max_tasks)))
    grain = max(int(share / GRAINS), 1)
    # A border next to the end of a file moves to that end, so such a file is not cut.
    crossed = np.flatnonzero((begins + grain / 2) // share < (ends - grain / 2) // share)
    densest = float(weights[crossed].max(initial=1.0))
    grain = max(int(grain / min(densest, FINEST_GRAIN)), 1)
    find_cuts = cut or partial(find_starts_in_threads, format=format, limits=limits)
    cuts = find_cuts([File(parts[i].path, parts[i].stop) for i in crossed], grain)
    cuts_of = dict(zip(crossed.tolist(), cuts))
    starts = [
        np.array([part.start, *(at for at in cuts_of.get(i, ()) if part.start < at < part.stop)])
        for i, part in enumerate(parts)
    ]
    tasks = _assign(parts, starts, weights, begins, float(ends[-1]), share)
    return Plan(tasks, size, densities)


def _count_tasks(
    parts: Sequence[Slice], format: str, size: int, slots: int, rounds: int
) -> tuple[int, dict[str, float]]:
    """Return how many tasks of about `size` bytes there are, and how dense the work of files is.

    The arguments are those of `plan_tasks`.
    """
    total = sum(map(len, parts))
    count = -(-total // size)
    max_tasks = total // SMALLEST_TASK
    if count <= 1 and (rounds <= 1 or max_tasks <= 1):
        return count, {}
    files = [File(part.path, len(part)) for part in parts]
    densities = estimate_densities(files, format_of(format).outermost)
    work = sum(len(part) * densities.get(part.path, DEFAULT_WORK) for part in parts)
    count = max(count, min(rounds * slots, int(work // TASK_WORK), max_tasks))
    return count, {path: density * total / work for path, density in densities.items()}


def _assign(
    parts: Sequence[Slice],
    starts: Sequence[np.ndarray],
    weights: np.ndarray,
    begins: np.ndarray,
    total: float,
    share: float,
) -> list[list[Slice]]:
    """Cut parts of files into tasks.

    parts: the parts, in their order.
    starts: for each part, the positions in its file at which a task may start.
    weights: for each part, the work of one of its bytes.
    begins: for each part, its position in the line of the work of all parts.
    total: the length of that line.
    share: the length of a task on that line.
    """
    # Of all possible starts, the one nearest to each border starts a task.
    line = np.concatenate(
        [
            (at - part.start) * weight + begin
            for at, part, weight, begin in zip(starts, parts, weights.tolist(), begins.tolist())
        ]
    )
    middles = (line + np.append(line[1:], total)) / 2
    starts_task = np.append(True, np.diff(middles // share) > 0)
    borders = np.cumsum([len(at) for at in starts])[:-1]
    out: list[list[Slice]] = []
    for part, at, chosen in zip(parts, starts, np.split(starts_task, borders)):
        if chosen[0]:
            out.append([])
        cuts = [part.start, *at[1:][chosen[1:]].tolist()]
        first, *others = [
            Slice(part.path, start, stop, part.last and stop == part.stop)
            for start, stop in zip(cuts, [*cuts[1:], part.stop])
        ]
        out[-1].append(first)
        out += [[other] for other in others]
    return out


def list_source_files(sources: Sources, format: str) -> list[File]:
    """Return the files of sources, with their sizes.

    Raises ValueError for an unknown format, and OSError.
    """
    top = format_of(format).outermost
    several = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    return [
        file
        for source in read_ahead(several, to_plain_path, head=0)
        for file in list_files(source, files=top.storage.files, ignore=top.storage.ignore)
    ]


def find_starts(path: str, size: int, format: str, limits: Limits) -> list[int]:
    """Return positions in a file at which frames start, from 0 on, about `size` bytes apart.

    They come from the file's sidecar if that is fine enough, else from `Storage.boundaries`. A
    frame above `limits.frame` is damage.
    Raises ValueError for an unknown format, and OSError.
    """
    top = format_of(format).outermost
    if size >= boundary_index.STEP:
        starts = boundary_index.find_indexed_boundaries(path, size, format, limits=limits)
        if starts is not None:
            return starts
    return top.storage.boundaries(path, size, limits=limits) if top.storage.boundaries else [0]


def find_starts_in_threads(
    files: Iterable[File], size: int, format: str, limits: Limits
) -> list[list[int]]:
    """Return `find_starts` for each file, computed by threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        paths = (file.path for file in files)
        return list(pool.map(find_starts, paths, repeat(size), repeat(format), repeat(limits)))


def group_slices(slices: Sequence[Sliceable], size: int = SLICE_BYTES) -> list[list[Sliceable]]:
    """Group adjacent slices, in their order, so that each group has about `size` bytes.

    Small files share a group. The slices may be any objects with a length.
    """
    out: list[list[Sliceable]] = []
    remaining = 0
    for slice in slices:
        if not out or len(slice) > remaining:
            out.append([])
            remaining = size
        out[-1].append(slice)
        remaining -= len(slice)
    return out


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"a slice has at least 1 byte, not {size}")


def _list_parts(
    files: Sequence[File], format: str, filters: Sequence[Condition], errors: str, limits: Limits
) -> list[Slice]:
    """Return the part of each file that has to be read. Files without such a part are omitted."""
    ranges: Iterable[tuple[int, int | None]] = repeat((0, None))
    if filters:
        with ThreadPoolExecutor(THREADS) as pool:
            ranges = list(
                pool.map(lambda file: prune_file(file.path, format, filters, errors, limits), files)
            )
    parts = [
        Slice(path, start, size if stop is None else min(stop, size), stop is None or stop >= size)
        for (path, size), (start, stop) in zip(files, ranges)
    ]
    return [part for part in parts if part.start < part.stop]


def _format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _format_bytes(number: int) -> str:
    units = max(number.bit_length() - 1, 0) // 10
    return f"{number / (1 << 10 * units):.4g} {BYTE_UNITS[units]}"
