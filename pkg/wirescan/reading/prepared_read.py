"""What readers of one source decide before they read: its format, the filters and the range."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.reading.captures import choose_source_format
from wirescan.reading.expression import add_expression
from wirescan.reading.filters import Condition, check_filters, prune_file


@dataclass(frozen=True)
class PreparedRead:
    """What is read of a source.

    Attributes:
        source: the path or URL of a file, or its bytes: any object with the buffer protocol.
        format: the format of the frames.
        start: byte position.
        stop: byte position, exclusive; None for the end of the file.
        filters: the result of `filters.check_filters`.
    """

    source: Any
    format: Format
    start: int
    stop: int | None
    filters: tuple[Condition, ...] = ()

    @property
    def path(self) -> str | None:
        """The path or URL of the file; None for bytes in memory."""
        return self.source if isinstance(self.source, str) else None

    def add_filters(
        self,
        filters: Iterable[tuple[Any, ...]],
        where: str | None,
        *,
        errors: str,
        limits: Limits,
    ) -> PreparedRead:
        """Return the same read with filters. If it is of a whole file, they shorten the range.

        The arguments are those of `chunked.iter_tables`.

        Raises ValueError and TypeError as `filters.check_filters` and
        `expression.parse_expression`, and OSError as `filters.prune_file`.
        """
        checked = add_expression(check_filters(filters, self.format), where, self.format)
        start, stop = self.start, self.stop
        if checked and _is_whole(start, stop) and self.path is not None:
            start, stop = prune_file(self.path, self.format, checked, errors, limits)
        return replace(self, start=start, stop=stop, filters=checked)


def prepare_read(source: Any, start: int, stop: int | None, format: str) -> PreparedRead:
    """Return what is read of a source, without filters.

    If the range is the whole file, and the file is a capture, the format is that of captures. The
    arguments are those of `chunked.iter_tables`.

    Raises ValueError as `captures.choose_source_format`.
    """
    if isinstance(source, os.PathLike):
        source = os.fsdecode(source)
    if _is_whole(start, stop):
        format = choose_source_format(format, source)
    return PreparedRead(source, format_of(format), start, stop)


def _is_whole(start: int, stop: int | None) -> bool:
    """Return whether a range is the whole file."""
    return (start, stop) == (0, None)
