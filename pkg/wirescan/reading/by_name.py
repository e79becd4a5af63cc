"""`wirescan.scan` and `wirescan.stream`: frames of a format that the caller gives by its name."""

from __future__ import annotations

from typing import Any, SupportsIndex

from wirescan.core.parallel import FixedWorkers
from wirescan.frames.errors import resolve_mode
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
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
    with FixedWorkers(workers):
        return format_of(format).open(source, errors=errors, check=check, limits=limits)


def stream(
    format: str, *, errors: str = "strict", check: bool = True, limits: Limits = Limits()
) -> Stream:
    """Return a `Stream` of one format, which takes chunks of bytes and gives tables.

    Arguments are those of `scan`. Raises TypeError and ValueError for unfit arguments.
    """
    return Stream(format_of(format), errors=errors, check=check, limits=limits)
