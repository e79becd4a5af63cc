"""Captures of packets as a source of frames of other formats.

A capture is recognized by its first bytes. In it, the format "kafka.requests" means
"kafka.requests?capture=true", which has the columns of captures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from wirescan.files.capture_mark import MARK_SIZE, is_capture
from wirescan.files.file_pattern import include_left_out
from wirescan.files.source import (
    URL,
    expand,
    get_file_name,
    read_range,
    to_plain_path,
    view_of,
)
from wirescan.frames.escape import make_visible
from wirescan.frames.format import Format
from wirescan.frames.registry import CAPTURE_FORMAT, format_of, formats, make_spec
from wirescan.reading.splits import list_source_files


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

    format: any format of the package, also that of the exchanges. Its option `keylog` is kept.
    """
    protocol = format.name.partition(".")[0]
    if format.name.endswith(".exchanges"):
        return format
    conversation = format.outermost.conversation
    keylog = None if conversation is None else conversation.keylog
    for other in formats().values():
        if other.exchange is not None and other.exchange.name.partition(".")[0] == protocol:
            return format_of(make_spec(other.exchange.name, keylog=keylog))
    return None


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
        file = _find_first_file(paths[0], format)
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


def choose_source_format(format: str, source: Any) -> str:
    """Return the name of the format to read a source in: that of captures if it is a capture.

    format: the name of a format.
    source: bytes, or a path, or several paths, of which the first file is looked at. A URL is
        looked at if it is named as a capture. Pipes are not looked at.

    Raises ValueError for an unknown format, and for a capture and a format whose frames are not
    sent over connections.
    """
    found = format_of(format)
    if is_of_captures(found):
        return format
    if isinstance(source, (str, os.PathLike)):
        paths = [to_plain_path(source)]
    elif isinstance(source, (list, tuple)):
        paths = [to_plain_path(item) for item in source]
    else:
        return find_captured(found).spec if is_capture(view_of(source)) else format
    chosen = choose_captured(found, paths, _read_head)
    return format if chosen is found else chosen.spec


def _read_head(path: str, size: int) -> memoryview:
    """Return the first bytes of a file that may be a capture, and no bytes of any other one."""
    if URL.match(path):
        pattern = format_of(CAPTURE_FORMAT).storage.files
        is_named = pattern is not None and re.search(pattern, get_file_name(path)) is not None
        return read_range(path, 0, size) if is_named else memoryview(b"")
    return read_range(path, 0, size) if os.path.isfile(path) else memoryview(b"")


def _find_first_file(path: str, format: Format) -> str | None:
    """Return the file to look at for a path, or None.

    It is the path, or the first file of a glob. Of a directory it is the first file that is named
    as a capture, unless there are files with the names of the format.
    """
    if path == "-" or URL.match(path):
        return path
    if not os.path.isdir(path):
        return expand(path)[0]
    pattern = format.outermost.storage.files
    if pattern is not None and _has_files(path, pattern):
        return None
    return list_source_files([path], CAPTURE_FORMAT)[0].path


def _has_files(directory: str, pattern: str) -> bool:
    """Return whether a directory has files whose names match a pattern."""
    try:
        return bool(expand(directory, files=include_left_out(pattern)))
    except OSError:
        return False
