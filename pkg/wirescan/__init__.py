"""Bytes that were on a wire become tables: framed protocols, read in bulk and without copying."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from wirescan.catalog import Format, format_of, formats, register
from wirescan.core.fault import Fault
from wirescan.errors import FrameError, check_mode
from wirescan.limits import Limits
from wirescan.source import open
from wirescan.stream import Stream
from wirescan.table import FrameTable, join

__version__ = "0.6.0"
__all__ = ["Fault", "Format", "FrameError", "FrameTable", "Limits", "Stream", "formats", "get_include",
           "join", "open", "register", "scan", "stream"]


def scan(source: Any, format: str, *, errors: str = "strict", check: bool = True,
         limits: Limits = Limits()) -> FrameTable:
    """The frames of one format in a source, as a table.

    source: anything that `wirescan.open` takes. format: a name of `wirescan.formats()`, such as "kafka.records".
    errors: "strict" raises FrameError at the first fault; "mark" keeps bad frames as rows with their fault and goes
    on at the next intact frame; "skip" keeps the good frames only. check: verify checksums.

    Raises FrameError, OSError, TypeError and ValueError for unfit arguments.
    """
    check_mode(errors, limits)
    return format_of(format).open(source, errors=errors, check=check, limits=limits)


def stream(format: str, *, errors: str = "strict", check: bool = True, limits: Limits = Limits()) -> Stream:
    """A `Stream` of frames of one format: feed it chunks, get tables."""
    return Stream(format_of(format), errors=errors, check=check, limits=limits)


def get_include() -> str:
    """The directory of the core's C headers, for `include_dirs` of an extension that cimports `wirescan.core`."""
    return str(Path(__file__).parent / "core")
