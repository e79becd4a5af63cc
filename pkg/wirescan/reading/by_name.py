"""`wirescan.scan` and `wirescan.stream`: frames of a format that the caller gives by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, SupportsIndex

from wirescan.core.parallel import FixedWorkers
from wirescan.files.capture_mark import is_capture
from wirescan.files.source import BUFFERS, open
from wirescan.frames.errors import FrameError, resolve_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.captures import check_is_captured, find_captured, is_of_captures
from wirescan.reading.stream import Stream


def scan(
    source: Any,
    format: str,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    workers: SupportsIndex | None = None,
) -> FrameTable:
    """Return the frames of one format in a source as a table.

    source: anything that `wirescan.open` takes.
    format: a name of `wirescan.formats()`, such as "kafka.records". Options may follow the name as
        in a URL: "thrift.fields?non_strict=true&idl=calc.thrift".
    errors: "strict" raises FrameError at the first fault. "mark" keeps bad frames as rows with
        their fault, and goes on at the next intact frame. "skip" keeps only the good frames. None,
        the default: "strict", or the mode of the source if it is a table.
    check: verify checksums.
    limits: bounds of the memory that the scan may use.
    workers: how many threads verify, decompress and open frames. None, the default: as many as
        there are cores for this process, but at most the environment variable WIRESCAN_WORKERS, and
        one thread for few bytes. The frames are the same for each number of threads.

    Raises FrameError, OSError; TypeError and ValueError for unfit arguments.
    """
    errors = resolve_mode(errors, source, limits)
    found = format_of(format)
    if not isinstance(source, FrameTable) and not is_of_captures(found):
        source, found = _find_captures(source, found)
    with FixedWorkers(workers):
        if check and _verifies_when_opened(found) and not isinstance(source, FrameTable):
            buffers = [source] if type(source) in BUFFERS else list(source)
            table = _open_intact(buffers, found, errors, limits)
            if table is not None:
                return table
        return found.open(source, errors=errors, check=check, limits=limits)


def _find_captures(source: Any, format: Format) -> tuple[Any, Format]:
    """Return a source, opened if it is no bytes, and the format to read it in.

    Raises ValueError for captures among other files, and for a format that captures do not have.
    """
    buffers: Any = (source,)
    if type(source) not in BUFFERS:
        storage = format.outermost.storage
        source = buffers = list(open(source, files=storage.files, ignore=storage.ignore))
    captures = [is_capture(buffer) for buffer in buffers if len(buffer)]
    if not any(captures):
        check_is_captured(format)
        return source, format
    if not all(captures):
        raise ValueError("some of the files are captures of packets: read them one by one")
    return source, find_captured(format)


def _verifies_when_opened(format: Format) -> bool:
    """Return whether the frames around a format can be verified when they are opened."""
    outermost = format.outermost
    return format.within == outermost.name and outermost.parser.verify is not None


def _open_intact(
    buffers: list[memoryview], format: Format, errors: str, limits: Limits
) -> FrameTable | None:
    """Return the frames of a format in buffers without damage; None if there is any damage.

    Checksums are verified when the outermost frames are opened, and not by the scan. So the bytes
    pass through the caches once. A checksum only decides whether a frame is bad. So without bad
    frames the result is that of a scan that verifies checksums.
    """
    options = {"errors": "strict", "limits": limits}
    try:
        outer = format.outermost.open(buffers, check=False, **options)
        table = format.inside(outer, check=True, **options)
    except FrameError:
        return None
    verified = replace(outer, checked=True, errors=errors)
    return replace(table, outer=verified, errors=errors)


def stream(
    format: str, *, errors: str = "strict", check: bool = True, limits: Limits = Limits()
) -> Stream:
    """Return a `Stream` of one format, which takes chunks of bytes and gives tables.

    Arguments are those of `scan`. A stream does not recognize captures of packets by their first
    bytes: name the format with its option, as in "kafka.requests?capture=true".

    Raises TypeError and ValueError for unfit arguments.
    """
    found = format_of(format)
    if not is_of_captures(found):
        check_is_captured(found)
    return Stream(found, errors=errors, check=check, limits=limits)
