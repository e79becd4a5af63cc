"""Opens the frames inside outermost frames, in groups that fit into memory.

The limits on decompressed bytes and on rows hold for each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError, enforce_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.filters import Condition, apply_filters, prune_frames

ROWS_MORE = 4  # the factor by which the row limit grows if too many rows are bad
INFLATED = 128 << 20  # bytes that frames opened together may decompress to; one frame may exceed it
ROW_BYTES = 64 << 20  # bytes of rows of frames opened together; one frame may exceed it
GROUPS_OF_A_SIZE = 8  # after so many groups that fit, the next one has twice as many frames


def open_nested(
    table: FrameTable,
    format: Format,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    source: str | None = None,
    filters: Sequence[Condition] = (),
    max_rows: int | None = None,
    allowance: Allowance | None = None,
) -> Iterator[FrameTable]:
    """Yield the frames of a format inside outermost frames, a group of outermost frames at a time.

    The size of a group bounds the decompressed bytes and the rows that are held.

    table: the outermost frames.
    format: the format of the frames inside.
    errors, check, limits: as in `iter_tables`.
    source: the path of the file of the table. Errors name it.
    filters: the result of `filters.check_filters`. Only rows that pass are returned.
    max_rows: the number of good rows that are wanted. The iteration ends after them or a few more,
        and opens few frames after them.
    allowance: counts what is opened, over all tables of a file. None, the default: no bound.

    Raises FrameError as `errors` says, and ExpansionError for more than the allowance.
    """
    if filters and len(table):
        table = prune_frames(table, format, filters, errors, source)
    together = limit_group(limits, table)
    first = 0
    size = _GroupSize(len(table), max_rows)
    while first < len(table) and (max_rows is None or max_rows > 0):
        part = table[first : first + size.frames]
        with add_source(source):
            inner = _open_group(
                part,
                format,
                max_rows,
                size,
                # Bad rows are skipped at the end, so that a frame above a limit is noticed here.
                errors="mark" if errors == "skip" else errors,
                check=check,
                limits=limits if len(part) == 1 else together,
            )
            if inner is None:
                continue
            if allowance is not None:
                allowance.spend_nested(inner, part)
        if max_rows is not None:
            max_rows -= len(inner) - int(np.count_nonzero(inner.bad))
        if errors == "skip":
            inner = replace(inner.where(~inner.bad), errors=errors)
        yield apply_filters(inner, filters, source)
        first += len(part)


def limit_group(limits: Limits, table: FrameTable) -> Limits:
    """Return the limits for outermost frames of a table that are opened together."""
    row_bytes = limits.limit_row_bytes(sum(map(len, table.buffers)))
    return replace(
        limits,
        inflated_total=min(INFLATED, limits.inflated_total),
        row_bytes=min(ROW_BYTES, row_bytes),
    )


def verify_frames(
    table: FrameTable, format: Format, *, limits: Limits = Limits(), source: str | None = None
) -> FrameTable:
    """Verify the checksums of outermost frames that were scanned without, and return their table.

    table: the frames. Its format has a `verify`.
    format: the format of the frames inside. Damage inside an intact frame before the first bad one
        is reported first.
    limits: bounds on rows and bytes.
    source: the path of the file. Errors name it.

    Raises FrameError for the first fault.
    """
    assert table.format.parser.verify is not None
    faults = table.format.parser.verify(table.rows, table.buffers)
    bad = np.flatnonzero(faults)
    verified = replace(table, checked=True)
    if len(bad):
        with add_source(source):
            format.inside(verified[: bad[0]], errors="strict", limits=limits)
            rows = table.rows.copy()
            rows["fault"] = faults
            enforce_mode(replace(verified, rows=rows), "strict", len(bad))
    return verified


class _GroupSize:
    """The number of outermost frames that are opened together.

    count: the number of all outermost frames.
    max_rows: the number of good rows that are wanted; None for all.

    Attributes:
        frames: the number for the next group.
    """

    def __init__(self, count: int, max_rows: int | None):
        wanted = count if max_rows is None else min(max_rows, count)
        self.frames = max(wanted, 1)
        self._doubles = max_rows is not None  # after each group
        self._fitted = 0  # groups of the present size

    def shrink(self, fitting: int) -> None:
        """Continue with smaller groups: only the first `fitting` frames of the last one fit."""
        self.frames = max(fitting, 1)
        self._doubles = False
        self._fitted = 0

    def grow(self, *, was_too_large: bool) -> None:
        """Count a group that was opened, and perhaps continue with larger ones.

        was_too_large: the group was one frame, which exceeded a limit by itself.
        """
        # Only that frame was too large, and it is done: try larger groups again.
        self._doubles |= was_too_large
        self._fitted += 1
        if self._doubles or self._fitted == GROUPS_OF_A_SIZE:
            self.frames *= 2
            self._fitted = 0


def _open_group(
    part: FrameTable,
    format: Format,
    max_rows: int | None,
    size: _GroupSize,
    *,
    limits: Limits,
    **options: Any,
) -> FrameTable | None:
    """Return the frames inside a group of outermost frames, and adjust the size of the next group.

    The result is None if the outermost frames exceed a limit together. The arguments are those of
    `_open_inside`.

    Raises FrameError as `errors` says, but not where several frames exceed a limit together.
    """
    alone = len(part) == 1
    try:
        inner = _open_inside(part, format, max_rows, limits=limits, **options)
    except FrameError as error:
        too_large = error.fault == Fault.TOO_LARGE or _lacks_memory(error, limits)
        if alone or not too_large:
            raise
        fitting = len(part) // 2
        if error.partial is not None and len(error.partial):
            fitting = _find_outermost_row(error.partial, len(error.partial) - 1, part)
        size.shrink(fitting)
        return None
    refused = inner["fault"] == Fault.TOO_LARGE
    too_large = bool(refused.any())
    if too_large and not alone:
        # The frames exceed a limit together, but those before the limit do not.
        size.shrink(_find_outermost_row(inner, int(refused.argmax()), part))
        return None
    size.grow(was_too_large=too_large)
    return inner


@contextmanager
def add_source(source: str | None) -> Iterator[None]:
    """Add the path of the file to a FrameError that has none."""
    try:
        yield
    except FrameError as error:
        error.source = error.source or source
        raise


def _lacks_memory(error: FrameError, limits: Limits) -> bool:
    """Return whether the rows ended at `limits.row_bytes`, and not at `limits.rows`."""
    return (
        error.fault == Fault.LIMIT
        and error.partial is not None
        and len(error.partial) < limits.rows
    )


def _find_outermost_row(table: FrameTable, row: int, outermost: FrameTable) -> int:
    """Return the row of the table `outermost` that contains a row of a table inside it."""
    while table is not outermost and table.outer is not None:
        row = int(table["parent"][row])
        table = table.outer
    return row


def _open_inside(
    part: FrameTable, format: Format, max_rows: int | None, *, limits: Limits, **options: Any
) -> FrameTable:
    """Return the frames inside some outermost frames.

    If `max_rows` is given, the table may end after that many good rows.
    """
    if max_rows is None or format.within is None or format is format.outermost:
        return format.inside(part, limits=limits, **options)
    outer = format_of(format.within).inside(part, limits=limits, **options)
    rows = max_rows
    while rows < limits.rows:
        try:
            return format.inside(outer, limits=replace(limits, rows=rows), **options)
        except FrameError as error:
            table = error.partial
            if error.fault != Fault.LIMIT or table is None or len(table) < rows:
                raise
        if np.count_nonzero(~table.bad) >= max_rows:
            return table
        rows *= ROWS_MORE
    return format.inside(outer, limits=limits, **options)
