"""What messages in captures carry: the formats of `CarriedFormat`, such as kafka.record_sets.

The frames of the carried format, such as kafka.batches, are read from their place `records`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import join_rows, select_rows
from wirescan.frames.conversation import CarriedFormat
from wirescan.frames.format import Display, Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.pcap.extraction.answer_scanner import AnswerScanner
from wirescan.pcap.extraction.captured import CAPTURE_COLUMNS, MEANINGS
from wirescan.pcap.extraction.derived_formats import list_names, make_bad_rows, make_derived_format
from wirescan.pcap.extraction.stream_scanner import StreamScanner

SHOWN = ("time", "client", "server", "direction")


def make_formats(formats: Iterable[Format]) -> list[Format]:
    """Return the formats of what the messages of formats carry."""
    return [
        _make_format(format, format.carried) for format in formats if format.carried is not None
    ]


def _make_format(format: Format, carried: CarriedFormat) -> Format:
    return make_derived_format(
        carried.name,
        carried.about,
        np.dtype([*HEAD.descr, *carried.dtype.descr]),
        partial(CarriedScanner, format, carried),
        columns={**CAPTURE_COLUMNS, **carried.columns},
        meanings={**_list_meanings(), **carried.meanings},
        display=Display(shown=(*SHOWN, *list_names(carried.dtype))),
    )


def _list_meanings() -> dict[str, str]:
    """Return the meanings of the columns that all frames of captures have."""
    return {name: MEANINGS[name] for name in CAPTURE_COLUMNS if name in MEANINGS}


def _is_sorted(rows: np.ndarray) -> bool:
    """Return whether rows are in the order of their streams, and of their bytes there."""
    steps = np.diff(rows["parent"])
    return bool(((steps > 0) | (steps == 0) & (np.diff(rows["start"]) >= 0)).all())


class CarriedScanner:
    """Finds what messages carry in tables of pcap.streams, one after another.

    format: the format of the answers. carried: its declaration. check, limits: as in `pcap.frames`.
    Raises ValueError for a format whose frames are not sent over connections.
    """

    def __init__(self, format: Format, carried: CarriedFormat, *, check: bool, limits: Limits):
        if format.conversation is None:
            raise ValueError(f"{format.name} carries frames, but has no conversation")
        self._carried = carried
        self._limits = limits
        self._scanner: StreamScanner | AnswerScanner
        if format.conversation.answers is None:
            self._scanner = StreamScanner(format, check=check, limits=limits)
        else:
            self._scanner = AnswerScanner(format, check=check, limits=limits)

    def scan(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the rows, and the bytes that are done with: see `StreamScanner.scan`."""
        if isinstance(self._scanner, AnswerScanner):
            asked, answers, done = self._scanner.scan_both(streams, more=more, released=released)
            tables = [asked, answers]
        else:
            answers, done = self._scanner.scan(streams, more=more, released=released)
            asked = answers
            tables = [answers]
        rows = self._carried.find(asked, answers, limits=self._limits)
        bad = [make_bad_rows(table, np.flatnonzero(table.bad), rows.dtype) for table in tables]
        rows = join_rows([rows, *bad])
        # Both tables are in the bytes of the streams, which are the first buffers of the answers.
        if not _is_sorted(rows):
            rows = select_rows(rows, np.lexsort((rows["start"], rows["parent"])))
        table = FrameTable(
            answers.buffers, rows, (), format_of(self._carried.name), streams, errors="mark"
        )
        return table, done

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: see `StreamScanner.forget`."""
        self._scanner.forget(connections)
