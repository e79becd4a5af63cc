"""All frames of a source as one table: what the `read` functions of outermost formats do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wirescan.files.source import BUFFERS, open, view_of
from wirescan.frames.errors import check_mode, enforce_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, join, make_empty, make_stop


def scan_source(
    source: Any,
    format: Format,
    *,
    errors: str,
    check: bool,
    limits: Limits,
    into: np.ndarray | None = None,
    scan: Callable[..., tuple[np.ndarray, int, int, int]] | None = None,
    **options: Any,
) -> FrameTable:
    """Scan each buffer of a source, and return the outermost frames as a table of a format.

    source: anything that `wirescan.open` accepts. The format says which files of a directory are
        read.
    errors, check, limits, into: as for the functions that users call. into: only for one buffer.
    scan: the function that scans a buffer; the default is that of the format. options: further
        arguments of it.

    Raises FrameError as `errors` says, OSError, and TypeError and ValueError for wrong arguments.
    """
    check_mode(errors, limits)
    scan = scan or format.parser.scan
    assert scan is not None  # every outermost format has one
    if type(source) in BUFFERS:
        buffers: tuple[memoryview, ...] = (view_of(source),)
    else:
        buffers = open(source, files=format.storage.files, ignore=format.storage.ignore)
    if into is not None:
        options["into"] = into
        if len(buffers) != 1:
            raise ValueError(
                f"into takes the rows of one buffer, and the source has {len(buffers)}"
            )
    if options:
        scan = partial(scan, **options)
    tables = []
    for buffer in buffers:
        rows, bad, fault, position = scan(
            buffer, check=check, resync=errors != "strict", limits=limits
        )
        stops = (make_stop((fault, position, 0)),)
        table = FrameTable((buffer,), rows, stops, format, None, (), check, errors)
        if bad or fault:
            table = enforce_mode(table, errors, bad)
        tables.append(table)
    if len(tables) == 1:
        return tables[0]
    return join(tables) if tables else make_empty(format)
