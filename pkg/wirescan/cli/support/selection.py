"""The options that select frames, such as --where and --offset, and what they select.

Each verb adds them with a decorator and gets one `Selection`. Files, parts of files and frames
that cannot hold a selected row are not read: this trusts names, indexes and headers, so damage in
them is not reported.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import wraps
from typing import Any, NamedTuple

import click
import numpy as np

from wirescan.cli.common_options import Command, count_option
from wirescan.cli.exit_codes import Failure
from wirescan.cli.format_command import DEFAULT_FORMAT
from wirescan.cli.input import is_compressed, is_pipe, read_part
from wirescan.cli.output import format_path
from wirescan.files.source import get_size
from wirescan.frames.columns import UNITS, ColumnKind
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import iter_tables, scan_outermost
from wirescan.reading.expression import parse_expression, parse_time
from wirescan.reading.filters import (
    All,
    Condition,
    Filter,
    check_filters,
    find_column_ranges,
    find_passing,
    prune_file,
    prune_frames,
)
from wirescan.reading.nested_groups import open_nested

TAIL_PIECE = 1 << 20  # bytes at the end of a file that are searched together for the last rows
LARGEST_SAMPLE = 1_000_000  # rows of --sample N, whose numbers are held
KEY = "key"  # the column of --key
CAPTURE_TIME = "time"  # when the first packet of a frame was captured; other times follow it
RELATIVE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
OFFSETS = re.compile(r"([0-9]{1,19})?(:)?([0-9]{1,19})?")
DIRECTORY = re.compile(r"(?:.*-)?([0-9]{1,10})", re.DOTALL)  # topic-N, or N


class FilePart(NamedTuple):
    """The bytes of a file that hold all selected rows. Both positions are boundaries of frames.

    path: the file, or "-" for standard input.
    start, stop: byte positions. A stop of None is the end of the file.
    """

    path: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Selection:
    """What the options select.

    Attributes:
        format: the format of the selected rows.
        conditions: every selected row passes them.
        partitions: numbers of partitions; None for all.
        limit: select the first rows only, so many.
        tail: select the last rows only, so many.
        sample: select a random sample: of so many rows, or of this fraction of them.
        seed: of the sample.
        keeps_bad: bad rows are selected whatever the conditions are, so that they are counted.
    """

    format: Format
    conditions: tuple[Condition, ...] = ()
    partitions: tuple[int, ...] | None = None
    limit: int | None = None
    tail: int | None = None
    sample: int | Fraction | None = None
    seed: int = 0
    keeps_bad: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no row can be selected, because the option asks for none."""
        return 0 in (self.limit, self.tail)

    @property
    def has_choice(self) -> bool:
        """Whether rows are selected by their number or at random, besides the conditions."""
        return any(option is not None for option in (self.limit, self.tail, self.sample))

    def select_files(self, files: Sequence[str]) -> list[str]:
        """Return the files that may hold selected rows, by their names.

        Raises Failure if no file is of the selected partitions.
        """
        return self._select_segments(self._select_partitions(files))

    def wants_file(self, path: str) -> bool:
        """Return whether a file is of a selected partition, by the name of its directory."""
        return self.partitions is None or parse_partition(path) in self.partitions

    def find_part(self, path: str, limits: Limits) -> FilePart | None:
        """Return the part of a file that holds all selected rows; None if there is none.

        Raises OSError.
        """
        if not self.conditions or path == "-" or is_pipe(path):
            return FilePart(path)
        start, stop = prune_file(path, self.format, self.conditions, "skip", limits)
        if (start, stop) == (0, None) or is_compressed(path):
            return FilePart(path)
        if stop is not None and stop >= get_size(path):
            stop = None
        return None if start == stop else FilePart(path, start, stop)

    def prune(self, frames: FrameTable, path: str) -> FrameTable:
        """Return the outermost frames that are bad or may hold selected rows."""
        if not self.conditions:
            return frames
        return prune_frames(frames, self.format, self.conditions, "skip", path, keep_bad=True)

    def find_rows(self, table: FrameTable, path: str, errors: str) -> np.ndarray:
        """Return an i8 array: the rows of a table that pass the conditions, in order.

        errors: "skip" excludes bad rows.
        """
        if not len(table):
            return np.empty(0, np.int64)  # the last table of a capture has the blocks' columns
        passes = find_passing(table, All(self.conditions), path)
        if self.keeps_bad:
            passes |= table.bad
        if errors == "skip":
            passes &= ~table.bad
        return np.flatnonzero(passes)

    def plan(self, files: Sequence[str], errors: str, limits: Limits, *, check: bool) -> PartPlan:
        """Return the parts of files to read, and what chooses among their rows.

        --tail and --sample N count rows, so they read files, or their ends, before.

        Args:
            files: the result of `select_files`.
            errors: "skip" does not count bad rows.
            limits: bounds on rows and bytes.
            check: verify checksums.

        Raises Failure if rows of standard input, a pipe or a compressed file have to be counted.
        """
        counter = _RowCounter(self, errors, limits, check=check)
        found = (self.find_part(path, limits) for path in files)
        if self.tail is not None:
            parts, skipped = counter.find_tail(files, self.tail)
            return PartPlan(iter(parts), RowChooser(self, errors, skipped=skipped))
        if isinstance(self.sample, int):
            parts = [part for part in found if part is not None]
            total = sum(map(counter.count, parts))
            numbers = draw_numbers(np.random.default_rng(self.seed), total, self.sample)
            return PartPlan(iter(parts), RowChooser(self, errors, numbers=numbers))
        return PartPlan((part for part in found if part is not None), RowChooser(self, errors))

    def plan_rows(
        self, files: Sequence[str], errors: str, limits: Limits, *, check: bool
    ) -> tuple[list[str], RowChooser]:
        """Return the files that hold the chosen rows, and what chooses among those that pass.

        For `parquet.convert`, which reads whole files and tests the conditions itself. The rows are
        counted by the same reader, so damage cannot make the counts differ. The arguments are those
        of `plan`. Raises FrameError for damage if errors is "strict".
        """
        options: dict[str, Any] = {
            "format": self.format.spec,
            "errors": errors,
            "check": check,
            "limits": limits,
            "filters": self.conditions,
        }
        paths = list(files)
        skipped = 0
        numbers: np.ndarray | None = None
        if self.tail is not None:
            paths, skipped = _find_tail_files(files, self.tail, options)
        elif isinstance(self.sample, int):
            total = sum(_count_rows(path, options) for path in files)
            numbers = draw_numbers(np.random.default_rng(self.seed), total, self.sample)
        rest = replace(self, conditions=())
        return paths, RowChooser(rest, errors, skipped=skipped, numbers=numbers)

    def _select_partitions(self, files: Sequence[str]) -> list[str]:
        if self.partitions is None:
            return list(files)
        selected = list(filter(self.wants_file, files))
        if not selected:
            found = map(parse_partition, files)
            numbers = sorted({number for number in found if number is not None})
            raise Failure(
                f"no file is of partition {', '.join(map(str, self.partitions))}; by the names of "
                f"directories there are {', '.join(map(str, numbers)) or 'none'}"
            )
        return selected

    def _select_segments(self, files: list[str]) -> list[str]:
        """Return the files that may hold selected offsets. A segment ends before the next one."""
        log = self.format.outermost.storage.log
        lowest, highest = _find_offset_range(self.format, self.conditions)
        if log is None or log.segments is None or (lowest, highest) == (None, None):
            return files
        names = [log.segments.parse(path) for path in files]
        bases: dict[str, list[int]] = {}
        for segment in sorted({name for name in names if name is not None}):
            bases.setdefault(segment.prefix, []).append(segment.base)
        selected = []
        for path, name in zip(files, names):
            is_wanted = True
            if name is not None:
                own_bases = bases[name.prefix]
                next_number = bisect_right(own_bases, name.base)
                following = own_bases[next_number : next_number + 1]
                is_before = lowest is not None and bool(following) and following[0] <= lowest
                is_after = highest is not None and name.base > highest
                is_wanted = not (is_before or is_after)
            if is_wanted:
                selected.append(path)
        return selected


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


class PartPlan(NamedTuple):
    """What to read, and what chooses among the rows.

    parts: the parts of files, in order. They are looked for when they are asked for.
    chooser: chooses among the rows of all parts, which it has to get in order.
    """

    parts: Iterator[FilePart]
    chooser: RowChooser


class _RowCounter:
    """Counts the rows that pass the conditions of a selection. Arguments are those of `plan`."""

    def __init__(self, selection: Selection, errors: str, limits: Limits, *, check: bool):
        self._selection = selection
        self._errors = errors
        self._limits = limits
        self._check = check

    def count(self, part: FilePart) -> int:
        """Return the number of rows in a part. Raises Failure as `Selection.plan`."""
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
        pieces = read_part(path, start, stop, allowance=allowance)
        total = 0
        for frames in scan_outermost(pieces, format, offset=start, **options):
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
        """Return pieces of a part, from boundary to boundary."""
        find_boundaries = self._selection.format.outermost.storage.boundaries
        if find_boundaries is None or part.path == "-" or is_pipe(part.path):
            return [(part.start, part.stop)]
        if is_compressed(part.path):
            return [(part.start, part.stop)]
        positions = find_boundaries(part.path, TAIL_PIECE, part.start, limits=self._limits)
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


# ------------------------------------------------------------------------------ options


def selection_options(
    *,
    outermost: bool = False,
    by_number: bool = True,
    choose_level: Callable[[Format, Mapping[str, Any]], Format] | None = None,
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options to a command with --format.

    The command gets `selection`, a `Selection`.

    Args:
        outermost: the command reads only the outermost frames of the format, and counts bad ones.
        by_number: the command also has the options that select by number or at random.
        choose_level: a function of the command's format and its other options that returns the
            format of the rows to select. None, the default: the format, or with `outermost` its
            outermost one.
    """
    options = [*_make_file_options(), *_make_row_options()]
    if by_number:
        options += _make_number_options()

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*arguments: Any, format_name: Format, **others: Any) -> Any:
            values = {name: others.pop(name, None) for name in OPTION_NAMES}
            format = format_name.outermost if outermost else format_name
            if choose_level is not None:
                format = choose_level(format_name, others)
            selection = make_selection(format, **values)
            selection = replace(selection, keeps_bad=outermost)
            return command(*arguments, format_name=format_name, selection=selection, **others)

        decorated: Command = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def record_selection_options(command: Command) -> Command:
    """Add options that select the records of a command without --format, such as `produce`.

    --partition belongs to the command itself, so the partitions to read are --partitions. The
    command gets `selection`, a `Selection` of records in the default format.
    """

    @wraps(command)
    def run(*arguments: Any, partitions: str | None, **others: Any) -> Any:
        names = [name for name in OPTION_NAMES if name != "partition"]
        values = {name: others.pop(name, None) for name in names}
        selection = make_selection(format_of(DEFAULT_FORMAT), partition=partitions, **values)
        return command(*arguments, selection=selection, **others)

    decorated: Command = run
    by_partition: Callable[[Command], Command] = click.option(
        "--partitions",
        metavar="N,M",
        help="Select the files of these partitions, by the names of their directories.",
    )
    offset, _ = _make_file_options()
    limit = count_option("--limit", default=None, help="Stop after N records.", smallest=0)
    options = [offset, by_partition, *_make_row_options(), limit]
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


OPTION_NAMES = (
    "offset",
    "partition",
    "where",
    "since",
    "until",
    "key",
    "limit",
    "tail",
    "sample",
    "seed",
)


def _make_file_options() -> list[Callable[[Command], Command]]:
    return [
        click.option(
            "--offset",
            metavar="A:B",
            help="Select offsets from A on and before B. Either may be missing, and A alone is "
            "one offset.",
        ),
        click.option(
            "--partition",
            metavar="N,M",
            help="Select the files of these partitions, by the names of their directories.",
        ),
    ]


def _make_row_options() -> list[Callable[[Command], Command]]:
    return [
        click.option(
            "--since",
            metavar="TIME",
            help="Select times from TIME on: a date or time of ISO 8601 (UTC), or an age: 30m, 2h, "
            "3d.",
        ),
        click.option("--until", metavar="TIME", help="Select times before TIME."),
        click.option(
            "--key", multiple=True, metavar="TEXT", help="Select this key. May be repeated."
        ),
        click.option(
            "--where",
            multiple=True,
            metavar="CONDITION",
            help="Select what a condition is true of: 'size > 1000 and key ~ \"^a\"'. "
            "docs/command-line.md has the grammar.",
        ),
    ]


def _make_number_options() -> list[Callable[[Command], Command]]:
    return [
        count_option("--limit", default=None, help="Stop after N frames.", smallest=0),
        count_option("--tail", default=None, help="Select the last N frames.", smallest=0),
        click.option(
            "--sample",
            metavar="FRACTION|N",
            help="Select each frame with a probability, such as 0.01, or N frames of all.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0),
            default=0,
            metavar="N",
            help="Seed of --sample. The same seed selects the same frames.",
        ),
    ]


def make_selection(
    format: Format,
    *,
    offset: str | None = None,
    partition: str | None = None,
    where: Sequence[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    key: Sequence[str] | None = None,
    limit: int | None = None,
    tail: int | None = None,
    sample: str | None = None,
    seed: int | None = None,
) -> Selection:
    """Return the selection that the values of the options ask for. Raises click.UsageError.

    format: the format of the rows. The other arguments are the texts of the options.
    """
    if tail is not None and (limit is not None or sample is not None):
        raise click.UsageError("--tail excludes --limit and --sample")
    conditions: list[Condition] = []
    if offset is not None:
        conditions += _make_offset_filters(format, offset)
    conditions += _make_time_filters(format, since, until)
    if key:
        conditions += _make_key_filters(format, key)
    for text in where or ():
        try:
            conditions += parse_expression(text, format)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--where") from None
    return Selection(
        format,
        tuple(conditions),
        None if partition is None else _parse_partitions(partition),
        limit,
        tail,
        None if sample is None else _parse_sample(sample),
        seed or 0,
    )


def _make_offset_filters(format: Format, text: str) -> tuple[Condition, ...]:
    """Return the filters of --offset: frames that hold offsets of a range."""
    match = OFFSETS.fullmatch(text)
    if match is None or text in ("", ":"):
        raise click.BadParameter(
            f"{text!r} is not A:B, A:, :B or A, with offsets from 0 on", param_hint="--offset"
        )
    low = None if match[1] is None else int(match[1])
    high = None if match[3] is None else int(match[3])
    if match[2] is None and low is not None:
        high = low + 1
    log = next((level.storage.log for level in _list_levels(format) if level.storage.log), None)
    if log is None:
        raise click.UsageError(f"--offset: {format.name} has no offsets")
    filters = []
    if low is not None:
        filters.append((log.last, ">=", low))
    if high is not None:
        filters.append((log.first, "<", high))
    return check_filters(filters, format)


def _make_time_filters(
    format: Format, since: str | None, until: str | None
) -> tuple[Condition, ...]:
    filters = []
    for option, op, text in (("--since", ">=", since), ("--until", "<", until)):
        if text is None:
            continue
        column, unit = _find_time_column(format, option)
        filters.append((column, op, _parse_moment(text, option) * UNITS[unit]))
    return check_filters(filters, format)


def _find_time_column(format: Format, option: str) -> tuple[str, str]:
    """Return the column of times of a format, or of the nearest one around it, and its unit."""
    for level in _list_levels(format):
        times = {name: column.unit for name, column in level.columns.items() if column.unit}
        # In a capture these frames are no log. They have the same times.
        log = level.storage.log or format_of(level.name).storage.log
        if log is not None and log.time is not None:
            times = {log.time: times[log.time]}
        elif CAPTURE_TIME in times:
            times = {CAPTURE_TIME: times[CAPTURE_TIME]}
        if len(times) > 1:
            raise click.UsageError(
                f"{option}: {format.name} has several times ({', '.join(times)}); use --where"
            )
        for name, unit in times.items():
            return name, unit
    raise click.UsageError(f"{option}: {format.name} has no times")


def _parse_moment(text: str, option: str) -> Fraction:
    """Return the seconds since 1970 of a time of ISO 8601, or of an age such as "2h"."""
    if match := RELATIVE.fullmatch(text):
        return Fraction(time.time()) - Fraction(match[1]) * SECONDS[match[2]]
    try:
        return parse_time(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or an age such as 2h", param_hint=option) from None


def _make_key_filters(format: Format, keys: Sequence[str]) -> tuple[Condition, ...]:
    column = format.describe_column(KEY)
    if column is None or column.kind is not ColumnKind.BYTES:
        raise click.UsageError(f"--key: {format.name} has no keys")
    # An argument that is not UTF-8 has its bytes as surrogates.
    values = [key.encode(errors="surrogateescape") for key in keys]
    return check_filters([Filter(KEY, "in", values)], format)


def _parse_partitions(text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(re.fullmatch(r"\s*[0-9]{1,10}\s*", number) for number in numbers):
        raise click.BadParameter(f"{text!r} is not N or N,M", param_hint="--partition")
    return tuple(map(int, numbers))


def parse_partition(path: str) -> int | None:
    """Return the partition of a file by the name of its directory, which is topic-N or N."""
    if path == "-":
        return None
    match = DIRECTORY.fullmatch(os.path.basename(os.path.dirname(os.path.abspath(path))))
    return None if match is None else int(match[1])


def _parse_sample(text: str) -> int | Fraction:
    """Return a number of rows, or a fraction of them, which is written with a point."""
    if re.fullmatch(r"[0-9]{1,9}", text) and 0 < int(text) <= LARGEST_SAMPLE:
        return int(text)
    if re.fullmatch(r"[0-9]?\.[0-9]{1,20}", text) and 0 < Fraction(text) <= 1:
        return Fraction(text)
    raise click.BadParameter(
        f"{text!r} is neither a fraction, such as 0.01, nor a number of frames from 1 to "
        f"{LARGEST_SAMPLE:,}",
        param_hint="--sample",
    )


def _find_offset_range(
    format: Format, conditions: Sequence[Condition]
) -> tuple[int | None, int | None]:
    """Return the lowest and the highest offset that a selected frame can hold; None: no bound."""
    lowest: int | None = None
    highest: int | None = None
    for level in _list_levels(format):
        if level.storage.log is None:
            continue
        ranges = find_column_ranges(format, level, conditions)
        low, _ = ranges.get(level.storage.log.last, (None, None))
        _, high = ranges.get(level.storage.log.first, (None, None))
        lowest = low if lowest is None else lowest
        highest = high if highest is None else highest
    return lowest, highest


def _list_levels(format: Format) -> Iterator[Format]:
    """Yield a format, and the formats around it."""
    level: Format | None = format
    while level is not None:
        yield level
        level = None if level.within is None else format_of(level.within)
