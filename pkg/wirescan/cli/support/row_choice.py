"""Chooses among the rows that pass the conditions: --limit, --tail and --sample.

`plan_parts` and `plan_rows` say what to read, and return the `RowChooser` for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from wirescan.cli.exit_codes import Failure
from wirescan.cli.input import is_compressed, is_pipe, read_part
from wirescan.cli.output import format_path
from wirescan.cli.support.selection import FilePart, Selection
from wirescan.files.source import read_ahead
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import iter_tables, scan_outermost
from wirescan.reading.nested_groups import open_nested

PATH = attrgetter("path")
TAIL_PART = 1 << 20  # bytes at the end of a file that are searched together for the last rows


class PartPlan(NamedTuple):
    """What to read, and what chooses among the rows.

    parts: the parts of files, in order. They are looked for when they are asked for.
    chooser: chooses among the rows of all parts, which it has to get in order.
    """

    parts: Iterator[FilePart]
    chooser: RowChooser


def plan_parts(
    selection: Selection, files: Sequence[str], errors: str, limits: Limits, *, check: bool
) -> PartPlan:
    """Return the parts of files to read, and what chooses among their rows.

    --tail and --sample N count rows, so they read files, or their ends, before.

    Args:
        selection: what is selected.
        files: the result of `Selection.select_files`.
        errors: "skip" does not count bad rows.
        limits: bounds on rows and bytes.
        check: verify checksums.

    Raises Failure if rows of standard input, a pipe or a compressed file have to be counted.
    """
    counter = _RowCounter(selection, errors, limits, check=check)

    def find_parts(paths: Iterable[str]) -> Iterator[FilePart]:
        found = (selection.find_part(path, limits) for path in paths)
        return (part for part in found if part is not None)

    if selection.tail is not None:
        parts, skipped = counter.find_tail(files, selection.tail)
        return PartPlan(iter(parts), RowChooser(selection, errors, skipped=skipped))
    if isinstance(selection.sample, int):
        parts = list(find_parts(read_ahead(files, head=0)))
        total = sum(map(counter.count, read_ahead(parts, PATH)))
        numbers = draw_numbers(np.random.default_rng(selection.seed), total, selection.sample)
        return PartPlan(read_ahead(parts, PATH), RowChooser(selection, errors, numbers=numbers))
    return PartPlan(find_parts(selection.read_ahead(files)), RowChooser(selection, errors))


def plan_rows(
    selection: Selection, files: Sequence[str], errors: str, limits: Limits, *, check: bool
) -> tuple[list[str], RowChooser]:
    """Return the files that hold the chosen rows, and what chooses among those that pass.

    For `parquet.convert`, which reads whole files and tests the conditions itself. The rows are
    counted by the same reader, so damage cannot make the counts differ. The arguments are those of
    `plan_parts`. Raises FrameError for damage if errors is "strict".
    """
    options: dict[str, Any] = {
        "format": selection.format.spec,
        "errors": errors,
        "check": check,
        "limits": limits,
        "filters": selection.conditions,
    }
    paths = list(files)
    skipped = 0
    numbers: np.ndarray | None = None
    if selection.tail is not None:
        paths, skipped = _find_tail_files(files, selection.tail, options)
    elif isinstance(selection.sample, int):
        total = sum(_count_rows(path, options) for path in selection.read_ahead(files))
        numbers = draw_numbers(np.random.default_rng(selection.seed), total, selection.sample)
    rest = replace(selection, conditions=())
    return paths, RowChooser(rest, errors, skipped=skipped, numbers=numbers)


class RowChooser:
    """Chooses the rows of tables, which come in order.

    Args:
        selection: what is selected.
        errors: as in `Selection.find_rows`.
        skipped: how many rows that pass the conditions are not chosen at first.
        numbers: the chosen rows, as ascending numbers among the rows that pass the conditions;
            None for all.
    """

    def __init__(
        self,
        selection: Selection,
        errors: str,
        *,
        skipped: int = 0,
        numbers: np.ndarray | None = None,
    ):
        self._selection = selection
        self._errors = errors
        self._skipped = skipped
        self._numbers = numbers
        self._left = selection.limit
        self._passed = 0  # rows that passed the conditions so far
        fraction = selection.sample
        self._fraction = float(fraction) if isinstance(fraction, Fraction) else None
        self._random = np.random.default_rng(selection.seed)

    @property
    def is_done(self) -> bool:
        """Whether no later row will be chosen."""
        is_drawn = self._numbers is not None and not len(self._numbers)
        return self._left == 0 or is_drawn or self._selection.is_empty

    @property
    def max_rows(self) -> int | None:
        """How many good rows have to be read at most; None if that is not known."""
        is_known = not self._selection.conditions and self._selection.sample is None
        return self._left if is_known else None

    def choose(self, table: FrameTable, path: str) -> np.ndarray:
        """Return an i8 array: the chosen rows of the next table, in order.

        path: the value of the column `_file`.
        """
        rows = self._selection.find_rows(table, path, self._errors)
        first = self._passed
        self._passed += len(rows)
        if self._fraction is not None:
            rows = rows[self._random.random(len(rows)) < self._fraction]
        if self._numbers is not None:
            count = int(np.searchsorted(self._numbers, self._passed))
            rows = rows[self._numbers[:count] - first]
            self._numbers = self._numbers[count:]
        if first < self._skipped:
            rows = rows[self._skipped - first :]
        if self._left is not None:
            rows = rows[: self._left]
            self._left -= len(rows)
        return rows


class _RowCounter:
    """Counts the rows that pass the conditions. The arguments are those of `plan_parts`."""

    def __init__(self, selection: Selection, errors: str, limits: Limits, *, check: bool):
        self._selection = selection
        self._errors = errors
        self._limits = limits
        self._check = check

    def count(self, part: FilePart) -> int:
        """Return the number of rows in a part. Raises Failure as `plan_parts` does."""
        path, start, stop = part
        if path == "-" or is_pipe(path) or is_compressed(path):
            raise Failure(
                f"{format_path(path)}: --tail and --sample N count the frames first, so they need "
                "a file that is not compressed; use --sample FRACTION or --limit"
            )
        format = self._selection.format
        allowance = Allowance(self._limits)
        options: dict[str, Any] = {
            "errors": "mark",
            "check": self._check,
            "limits": self._limits,
            "allowance": allowance,
        }
        chunks = read_part(path, start, stop, allowance=allowance)
        total = 0
        for frames in scan_outermost(chunks, format, offset=start, **options):
            for table in open_nested(self._selection.prune(frames, path), format, **options):
                total += len(self._selection.find_rows(table, path, self._errors))
        return total

    def find_tail(self, files: Sequence[str], rows: int) -> tuple[list[FilePart], int]:
        """Return the parts that hold the last rows, and how many rows in them are before those."""
        parts: list[FilePart] = []
        missing = rows
        for path in reversed(files):
            part = self._selection.find_part(path, self._limits)
            if part is None:
                continue
            for start, stop in reversed(self._cut(part)):
                count = self.count(FilePart(path, start, stop))
                if count >= missing:
                    return [FilePart(path, start, part.stop), *parts], count - missing
                missing -= count
            parts.insert(0, part)
        return parts, 0

    def _cut(self, part: FilePart) -> list[tuple[int, int | None]]:
        """Return the positions of smaller parts of a part, from boundary to boundary."""
        find_boundaries = self._selection.format.outermost.storage.boundaries
        if find_boundaries is None or part.path == "-" or is_pipe(part.path):
            return [(part.start, part.stop)]
        if is_compressed(part.path):
            return [(part.start, part.stop)]
        positions = find_boundaries(part.path, TAIL_PART, part.start, limits=self._limits)
        starts = [at for at in positions if part.stop is None or at < part.stop]
        return list(zip(starts, [*starts[1:], part.stop]))


def _count_rows(path: str, options: Mapping[str, Any]) -> int:
    """Return the number of rows of a file that pass. options: arguments of `iter_tables`."""
    if options["errors"] != "skip":
        return sum(len(table) for table in iter_tables(path, **options))
    # As in `parquet.convert`, bad rows are read, and dropped afterwards.
    tables = iter_tables(path, **{**options, "errors": "mark"})
    return sum(int(np.count_nonzero(~table.bad)) for table in tables)


def _find_tail_files(
    files: Sequence[str], rows: int, options: Mapping[str, Any]
) -> tuple[list[str], int]:
    """Return the files that hold the last rows, and how many rows in them are before those.

    options: arguments of `iter_tables`.
    """
    missing = rows
    for number in reversed(range(len(files))):
        count = _count_rows(files[number], options)
        if count >= missing:
            return list(files[number:]), count - missing
        missing -= count
    return list(files), 0


def draw_numbers(random: np.random.Generator, total: int, count: int) -> np.ndarray:
    """Return ascending numbers below `total`, `count` of them or all. Each set is equally likely.

    The memory grows with `count` and not with `total`.
    """
    if 2 * count >= total:
        return np.sort(random.permutation(total)[:count])
    numbers = np.empty(0, np.int64)
    while len(numbers) < count:
        numbers = np.union1d(numbers, random.integers(total, size=count - len(numbers)))
    return numbers
