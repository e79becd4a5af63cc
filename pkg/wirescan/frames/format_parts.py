"""The parts of a `Format`: how its bytes are parsed, how its files are stored, how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.frames.logs import LogColumns
from wirescan.frames.summary_columns import SummaryColumns

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable


@dataclass(frozen=True, eq=False)
class Parser:
    """The functions that find the frames of a format in bytes.

    Attributes:
        scan: a function of one buffer that returns (rows, bad, fault, position). It takes `check`,
            `resync`, `limits`, `more` if bytes may follow, and `resume` for the next bytes of a
            stream, by keyword. `core.loop.scan_frames` describes them. Outermost formats only.
        spans: a function of buffers, spans of them (dtype HEAD), and the keywords `check`, `resync`
            and `limits`. It returns (rows, bad, faults, positions), as `scan` for each span.
            Optional: with it many small streams cost little more than one stream.
        scan_values: a function of a buffer, spans of it (dtype HEAD), and the keywords `check`
            and `limits`. It returns (rows, bad). Each span, such as a value of a binary column,
            is one frame and one row, up to `limits.rows`. Optional: for formats whose frames do
            not state their size.
        bytes_needed: `bytes_needed(held, *state) -> (minimum frame size, *state)`, where `held`
            are the first bytes of a frame. `state` is the rest of the previous result for the
            same frame. Optional: it lets `Stream` skip scans that cannot succeed.
    """

    scan: Callable[..., tuple[np.ndarray, int, int, int]] | None = None
    spans: Callable[..., tuple[np.ndarray, int, np.ndarray, np.ndarray]] | None = None
    scan_values: Callable[..., tuple[np.ndarray, int]] | None = None
    bytes_needed: Callable[..., tuple[Any, ...]] | None = None


@dataclass(frozen=True, eq=False)
class Storage:
    """How the files of a format are found, cut and skipped.

    Attributes:
        files: a regular expression: the files of a directory that are read.
        ignore: a regular expression: the files that a glob excludes.
        text_marks: the first bytes of files of this format that look like text. None: the format
            is text. Outermost formats only.
        boundaries: a function of a path, a distance in bytes, a start position (default 0), and
            the keyword `limits`. It returns positions, from the start on, at which the file can be
            cut, about that distance apart. A frame above `limits.frame` is damage, after which it
            finds no position. The start is given for files that grew. Outermost formats only.
        statistics: a function of the rows of the format `within` that returns {column of this
            format: (lowest, highest)}, arrays or None. The good frames inside each row have
            values in that range. Optional.
        prune: a function of a path, {column of this format: (lowest, highest)}, numbers or
            None, and the keyword `limits`. It returns the range of bytes (start, stop) that
            contains all frames with such values. Both are boundaries of outermost frames.
            Optional.
        log: how the frames of a log follow each other; None for frames without log offsets.
    """

    files: str | None = None
    ignore: str | None = None
    text_marks: tuple[bytes, ...] | None = None
    boundaries: Callable[..., list[int]] | None = None
    statistics: Callable[[np.ndarray], Mapping[str, tuple[Any, Any]]] | None = None
    prune: Callable[..., tuple[int, int]] | None = None
    log: LogColumns | None = None


@dataclass(frozen=True, eq=False)
class Display:
    """How the command shows and counts the frames of a format.

    Attributes:
        shown: the columns of text output where none are named; empty: all columns.
        grouped_by: the column that a first query on converted frames groups by; optional.
        record_count: the column with the number of records inside a frame, -1 if the frame does
            not state it; optional.
        counted_as: what a summary calls these frames, a plural such as "records". None: a summary
            does not open these frames.
        summary: the columns that a summary counts.
        has_time: a function of a table and the name of a column of times that returns a bool
            array: the rows that a summary includes in the range of times. Optional.
        repeats: whether another format, read from the same frames, reports every fault of this one.
    """

    shown: tuple[str, ...] = ()
    grouped_by: str | None = None
    record_count: str | None = None
    counted_as: str | None = None
    summary: SummaryColumns = SummaryColumns()
    has_time: Callable[[FrameTable, str], np.ndarray] | None = None
    repeats: bool = False
