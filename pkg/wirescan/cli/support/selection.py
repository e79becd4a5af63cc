"""What the user selects, and which files, parts of files and frames can hold it: `Selection`.

Files, parts of files and frames that cannot hold a selected row are not read: this trusts names,
indexes and headers, so damage in them is not reported. `selection_options.py` makes a `Selection`
of options, and `row_choice.py` chooses among the rows.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wirescan.cli.exit_codes import Failure
from wirescan.cli.input import is_compressed, is_pipe
from wirescan.files.source import get_size, read_ahead
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.filters import (
    All,
    Condition,
    find_column_ranges,
    find_passing,
    prune_file,
    prune_frames,
)

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

    def read_ahead(self, files: Iterable[str]) -> Iterator[str]:
        """Yield files, and open the next objects of a store among them.

        They are read ahead too, unless a condition may exclude them, or parts of them.
        """
        return read_ahead(files, head=0 if self.conditions else None)

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


def parse_partition(path: str) -> int | None:
    """Return the partition of a file by the name of its directory, which is topic-N or N."""
    if path == "-":
        return None
    match = DIRECTORY.fullmatch(os.path.basename(os.path.dirname(os.path.abspath(path))))
    return None if match is None else int(match[1])


def _find_offset_range(
    format: Format, conditions: Sequence[Condition]
) -> tuple[int | None, int | None]:
    """Return the lowest and the highest offset that a selected frame can hold; None: no bound."""
    lowest: int | None = None
    highest: int | None = None
    for level in list_format_levels(format):
        if level.storage.log is None:
            continue
        ranges = find_column_ranges(format, level, conditions)
        low, _ = ranges.get(level.storage.log.last, (None, None))
        _, high = ranges.get(level.storage.log.first, (None, None))
        lowest = low if lowest is None else lowest
        highest = high if highest is None else highest
    return lowest, highest


def list_format_levels(format: Format) -> Iterator[Format]:
    """Yield a format, and the formats around it."""
    level: Format | None = format
    while level is not None:
        yield level
        level = None if level.within is None else format_of(level.within)
