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
from wirescan.frames.registry import CAPTURE_FORMAT, format_of, make_spec
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


def check_is_captured(format: Format) -> None:
    """Raise ValueError for a format with an option of captures, before it reads other files."""
    conversation = format.outermost.conversation
    if conversation is not None and conversation.keylog is not None:
        raise ValueError("the option keylog is for captures of packets, and this is none")


def choose_captured(
    format: Format, paths: Sequence[str], read_head: Callable[[str, int], Any]
) -> Format:
    """Return the format to read paths in: that of captures if the first path is a capture.

    read_head: reads the first bytes of a file; it may raise OSError and ValueError. A path that
    cannot be read is no capture: whoever reads it reports it.

    Raises ValueError for a capture and a format whose frames are not sent over connections, and for
    another file and a format with an option of captures.
    """
    if is_of_captures(format) or not paths:
        return format
    try:
        file = _find_first_file(paths[0])
        if file is None:
            return format
        is_captured = is_capture(read_head(file, MARK_SIZE))
    except (OSError, ValueError):
        return format
    if not is_captured:
        check_is_captured(format)
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
