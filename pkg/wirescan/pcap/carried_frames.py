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
from wirescan.frames.registry import format_of, make_spec
from wirescan.frames.table import FrameTable
from wirescan.pcap.captured import CAPTURE_COLUMNS, MEANINGS
from wirescan.pcap.derived_rows import list_names, make_bad_rows
from wirescan.pcap.files import FILES
from wirescan.pcap.stream_frames import (
    STREAMS,
    AnswerScanner,
    CapturedFrames,
    decrypt,
    enforce_frames,
    require_streams,
    scan_whole,
)

SHOWN = ("time", "client", "server", "direction")


def make_formats(formats: Iterable[Format]) -> list[Format]:
    """Return the formats of what the messages of formats carry."""
    return [
        _make_format(format, format.carried) for format in formats if format.carried is not None
    ]


def _make_format(format: Format, carried: CarriedFormat) -> Format:
    options: dict[str, Any] = {"format": format, "carried": carried}
    return Format(
        carried.name,
        carried.about,
        np.dtype([*HEAD.descr, *carried.dtype.descr]),
        partial(read_carried, **options),
        within=STREAMS,
        columns={**CAPTURE_COLUMNS, **carried.columns},
        meanings={**_list_meanings(), **carried.meanings},
        storage=Storage(files=FILES),
        display=Display(shown=(*SHOWN, *list_names(carried.dtype))),
        make_reader=partial(_make_reader, **options),
    )


def _list_meanings() -> dict[str, str]:
    """Return the meanings of the columns that all frames of captures have."""
    return {name: MEANINGS[name] for name in CAPTURE_COLUMNS if name in MEANINGS}


def _make_reader(
    *,
    format: Format,
    carried: CarriedFormat,
    errors: str,
    check: bool,
    limits: Limits,
    keylog: str | None = None,
) -> CapturedFrames:
    scanner = decrypt(CarriedScanner(format, carried, check=check, limits=limits), keylog)
    captured = format_of(make_spec(carried.name, keylog=keylog))
    return CapturedFrames(scanner, captured, errors=errors, limits=limits)


def read_carried(
    streams: FrameTable,
    *,
    format: Format,
    carried: CarriedFormat,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    keylog: str | None = None,
) -> FrameTable:
    """Return what the messages in streams carry: `pcap.frames` has the arguments and errors.

    format: the format of the answers. carried: its declaration. keylog: the path of a file with the
    secrets of TLS connections, which are decrypted.
    """
    errors = resolve_mode(errors, streams, limits)
    require_streams(streams, f"{carried.name} are read from a table of pcap.streams")
    scanner = decrypt(CarriedScanner(format, carried, check=check, limits=limits), keylog)
    captured = format_of(make_spec(carried.name, keylog=keylog))
    return enforce_frames(scan_whole(streams, scanner, captured), errors)


class CarriedScanner:
    """Finds what messages carry in tables of pcap.streams, one after another.

    format: the format of the answers. carried: its declaration. check, limits: as in `pcap.frames`.
    Raises ValueError for a format whose frames answer none.
    """

    def __init__(self, format: Format, carried: CarriedFormat, *, check: bool, limits: Limits):
        if format.conversation is None or format.conversation.answers is None:
            raise ValueError(f"{format.name} carries frames, but its frames answer none")
        self._carried = carried
        self._limits = limits
        self._answers = AnswerScanner(format, check=check, limits=limits)

    def scan(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the rows, and the bytes that are done with: see `StreamScanner.scan`."""
        asked, answers, done = self._answers.scan_both(streams, more=more, released=released)
        rows = self._carried.find(asked, answers, limits=self._limits)
        bad = [
            make_bad_rows(table, np.flatnonzero(table.bad), rows.dtype)
            for table in (asked, answers)
        ]
        rows = np.concatenate([rows, *bad])
        # Both tables are in the bytes of the streams, which are the first buffers of the answers.
        rows = rows[np.lexsort((rows["start"], rows["parent"]))]
        table = FrameTable(
            answers.buffers, rows, (), format_of(self._carried.name), streams, errors="mark"
        )
        return table, done

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: see `StreamScanner.forget`."""
        self._answers.forget(connections)
