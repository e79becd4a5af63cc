"""What messages in captures carry: the formats of `CarriedFormat`, such as kafka.record_sets.

The frames of the carried format, such as kafka.batches, are read from their place `records`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.frames.conversation import CarriedFormat
from wirescan.frames.errors import resolve_mode
from wirescan.frames.format import Display, Format, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable, require_rows
from wirescan.pcap.assembler import STREAM
from wirescan.pcap.captured import CAPTURE_COLUMNS, MEANINGS
from wirescan.pcap.files import FILES
from wirescan.pcap.stream_frames import (
    STREAMS,
    AnswerScanner,
    CapturedFrames,
    enforce_frames,
)

SHOWN = ("time", "client", "server", "direction")


def make_formats(formats: Iterable[Format]) -> list[Format]:
    """Return the formats of what the messages of formats carry."""
    return [
        _make_format(format, format.carried) for format in formats if format.carried is not None
    ]


def _make_format(format: Format, carried: CarriedFormat) -> Format:
    options: dict[str, Any] = {"format": format, "carried": carried}
    names = [name.removesuffix("_at") for name in carried.dtype.names or ()]
    return Format(
        carried.name,
        carried.about,
        np.dtype([*HEAD.descr, *carried.dtype.descr]),
        partial(read_carried, **options),
        within=STREAMS,
        columns={**CAPTURE_COLUMNS, **carried.columns},
        meanings={**MEANINGS, **carried.meanings},
        storage=Storage(files=FILES),
        display=Display(
            shown=(*SHOWN, *(name for name in names if not name.endswith("_size"))),
        ),
        make_reader=partial(_make_reader, **options),
    )


def _make_reader(
    *, format: Format, carried: CarriedFormat, errors: str, check: bool, limits: Limits
) -> CapturedFrames:
    scanner = CarriedScanner(format, carried, check=check, limits=limits)
    return CapturedFrames(scanner, format_of(carried.name), errors=errors, limits=limits)


def read_carried(
    streams: FrameTable,
    *,
    format: Format,
    carried: CarriedFormat,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return what the messages in streams carry: `pcap.frames` has the arguments and errors.

    format: the format of the answers. carried: its declaration.
    """
    errors = resolve_mode(errors, streams, limits)
    require_rows(streams, STREAM, f"{carried.name} are read from a table of pcap.streams")
    scanner = CarriedScanner(format, carried, check=check, limits=limits)
    table, _ = scanner.scan(streams, more=False)
    table.rows.setflags(write=False)
    return enforce_frames(table, errors)


class CarriedScanner:
    """Finds what messages carry in tables of pcap.streams, one after another.

    format: the format of the answers. carried: its declaration. check, limits: as in `pcap.frames`.
    """

    def __init__(self, format: Format, carried: CarriedFormat, *, check: bool, limits: Limits):
        self._carried = carried
        self._limits = limits
        self._answers = AnswerScanner(format, check=check, limits=limits)

    def scan(self, streams: FrameTable, *, more: bool) -> tuple[FrameTable, np.ndarray]:
        """Return the rows, and the bytes that are done with: see `StreamScanner.scan`."""
        asked, answers, done = self._answers.scan_both(streams, more=more)
        rows = self._carried.find(asked, answers, limits=self._limits)
        parts = [rows, _make_bad_rows(asked, rows.dtype), _make_bad_rows(answers, rows.dtype)]
        rows = np.concatenate(parts)
        # Both tables are in the bytes of the streams, which are the first buffers of the answers.
        rows = rows[np.lexsort((rows["start"], rows["parent"]))]
        table = FrameTable(
            answers.buffers, rows, (), format_of(self._carried.name), streams, errors="mark"
        )
        return table, done


def _make_bad_rows(messages: FrameTable, dtype: np.dtype) -> np.ndarray:
    """Return rows for bad messages."""
    chosen = np.flatnonzero(messages.bad)
    rows = np.zeros(len(chosen), dtype)
    for name in HEAD.names or ():
        rows[name] = messages.rows[name][chosen]
    for name in dtype.names or ():
        if name.endswith("_size"):
            rows[name] = -1
    return rows
