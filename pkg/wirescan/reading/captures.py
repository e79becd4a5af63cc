"""Captures of packets as a source of frames of other formats.

A capture is recognized by its first bytes. In it, the format "kafka.requests" means
"kafka.requests?capture=true", which has the columns of captures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from wirescan.frames.escape import make_visible
from wirescan.frames.format import Format
from wirescan.frames.registry import CAPTURE_FORMAT, format_of, formats, make_spec
from wirescan.reading.splits import list_source_files

MARK_SIZE = 4  # first bytes that identify a capture


@cache
def _load_marks() -> frozenset[bytes]:
    return frozenset(format_of(CAPTURE_FORMAT).storage.marks)


def is_capture(head: Any) -> bool:
    """Return whether the first bytes of a file, at least MARK_SIZE, are those of a capture."""
    return bytes(head[:MARK_SIZE]) in _load_marks()


@lru_cache(maxsize=1024)  # every small scan asks
def is_of_captures(format: Format) -> bool:
    """Return whether the frames of a format are read from captures."""
    level = format
    while level.within is not None:
        level = format_of(level.within)
    return level.name == CAPTURE_FORMAT


def find_captured(format: Format) -> Format:
    """Return the format of the frames of a format in captures.

    Raises ValueError for frames that are not sent over connections.
    """
    return format_of(make_spec(format.spec, capture="true"))


def find_exchanges(format: Format) -> Format | None:
    """Return the format of the exchanges of a format's protocol; None if it has none.

    format: any format of the protocol, also that of the exchanges. Of several formats of exchanges
    in the same outermost frames, it is the one of the same package.
    """
    if format.exchange is not None:
        return format_of(format.exchange.name)
    top = format.outermost.name
    found = [
        other
        for other in formats().values()
        if other.exchange is not None
        and top in (other.exchange.name, other.exchange.answers, other.outermost.name)
    ]
    if not found:
        return None
    protocol = format.name.partition(".")[0]
    chosen = max(found, key=lambda other: other.name.partition(".")[0] == protocol)
    assert chosen.exchange is not None
    return format_of(chosen.exchange.name)


def choose_captured(
    format: Format, paths: Sequence[str], read_head: Callable[[str, int], Any]
) -> Format:
    """Return the format to read paths in: that of captures if the first path is a capture.

    read_head: reads the first bytes of a file; it may raise OSError and ValueError. A path that
    cannot be read is no capture: whoever reads it reports it.

    Raises ValueError for a capture and a format whose frames are not sent over connections.
    """
    if is_of_captures(format) or not paths:
        return format
    try:
        file = _find_first_file(paths[0])
        if file is None or not is_capture(read_head(file, MARK_SIZE)):
            return format
    except (OSError, ValueError):
        return format
    try:
        return find_captured(format)
    except ValueError as error:
        raise ValueError(f"{make_visible(paths[0])} is a capture of packets: {error}") from None


def _find_first_file(path: str) -> str | None:
    """Return a path, or the first file of a directory that is named as a capture, or None."""
    if path == "-" or not os.path.isdir(path):
        return path
    files = list_source_files([path], CAPTURE_FORMAT)
    return files[0].path if files else None
