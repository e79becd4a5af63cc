"""Formats whose rows are made of the messages of captures: exchanges, and what messages carry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.frames.columns import RESERVED, list_columns, list_places
from wirescan.frames.errors import resolve_mode
from wirescan.frames.format import Format, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of, make_spec
from wirescan.frames.table import FrameTable
from wirescan.pcap.decryption.tls_streams import CaptureScanner, DecryptingScanner
from wirescan.pcap.extraction.captured_frames import CapturedFrames
from wirescan.pcap.extraction.stream_frames import (
    STREAMS,
    enforce_frames,
    require_streams,
    scan_whole,
)
from wirescan.pcap.files import FILES


def make_derived_format(
    name: str,
    about: str,
    dtype: np.dtype,
    make_scanner: Callable[..., CaptureScanner],
    *,
    together: bool = False,
    **attributes: Any,
) -> Format:
    """Return a format of rows that a scanner finds in the streams of captures.

    make_scanner: takes the keywords `check` and `limits`. together: as in `CapturedFrames`.
    attributes: others of the format.
    """
    options: dict[str, Any] = {"name": name, "make_scanner": make_scanner}
    return Format(
        name,
        about,
        dtype,
        partial(_read, **options),
        within=STREAMS,
        storage=Storage(files=FILES),
        make_reader=partial(_make_reader, **options, together=together),
        **attributes,
    )


def _read(
    streams: FrameTable,
    *,
    name: str,
    make_scanner: Callable[..., CaptureScanner],
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    keylog: str | None = None,
) -> FrameTable:
    """Return the rows of a format in streams: `pcap.frames` has the arguments and errors.

    keylog: the path of a file with the secrets of TLS connections, which are decrypted.
    """
    errors = resolve_mode(errors, streams, limits)
    require_streams(streams, f"{name} are read from a table of pcap.streams")
    scanner = DecryptingScanner(make_scanner(check=check, limits=limits), keylog)
    format = format_of(make_spec(name, keylog=keylog))
    return enforce_frames(scan_whole(streams, scanner, format), errors)


def _make_reader(
    *,
    name: str,
    make_scanner: Callable[..., CaptureScanner],
    errors: str,
    check: bool,
    limits: Limits,
    together: bool,
    keylog: str | None = None,
) -> CapturedFrames:
    """Return the reader of a capture in pieces.

    together: as in `CapturedFrames`. The other arguments are those of `_read`.
    """
    scanner = DecryptingScanner(make_scanner(check=check, limits=limits), keylog)
    format = format_of(make_spec(name, keylog=keylog))
    return CapturedFrames(scanner, format, errors=errors, limits=limits, together=together)


def list_names(dtype: np.dtype) -> list[str]:
    """Return the names of the columns and places of a dtype, in their order, without RESERVED."""
    places = list_places(dtype)
    hidden = {RESERVED, *(name + "_size" for name in places)}
    names = [name for name in list_columns(dtype) if name not in hidden]
    return [name.removesuffix("_at") if name[:-3] in places else name for name in names]


def make_bad_rows(messages: FrameTable, chosen: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return rows for some bad messages. Their places are null, and their other columns 0."""
    rows = np.zeros(len(chosen), dtype)
    for name in list_columns(HEAD):
        rows[name] = messages.rows[name][chosen]
    for name in list_places(dtype):
        rows[name + "_size"] = -1
    return rows
