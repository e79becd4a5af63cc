"""`SummaryColumns`: what `wirescan stat` counts of the frames of one format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable


@dataclass(frozen=True)
class SummaryColumns:
    """The columns of a format that a summary counts.

    A summary always has the number, bytes, sizes, times, kinds and faults of outermost frames.
    Their formats declare the attributes up to `unopened`. The format whose frames are counted
    inside them (`Display.counted_as`) declares the others.

    Attributes:
        codec: the column of the codec that compresses the payload of a frame. The number 0 stands
            for no compression. For each codec the frames and their bytes are counted, and if the
            frames are opened, also the frames inside and their decompressed bytes.
        latency: the column of the time from a request to its response, in ns. For each value of
            `Display.grouped_by` the frames are counted, and the times have quantiles.
        find_errors: a function of a table of exchanges that returns a bool array: the rows whose
            response is an error. Optional: the errors of each group are counted beside `latency`.
        values: columns for each of whose values the frames are counted.
        flags: columns of 0 and 1, with names that begin with is_. Frames with 1 are counted. The
            map of `wirescan report` shows frames with the first flag apart.
        unopened: what a frame is called that does not state the number of records inside it. See
            `Display.record_count`.
        by_kind: count the frames of each kind, in place of all frames together.
        sizes: report how large the frames are.
        places: the places whose sizes and nulls are counted: name -> the text for its nulls.
    """

    codec: str | None = None
    latency: str | None = None
    find_errors: Callable[[FrameTable], np.ndarray] | None = None
    values: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    unopened: str = "frame"
    by_kind: bool = False
    sizes: bool = False
    places: Mapping[str, str] = field(default_factory=dict)
