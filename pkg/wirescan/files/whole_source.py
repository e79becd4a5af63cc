"""All frames of a source as one table: what the `read` functions of outermost formats do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import spans
from wirescan.core.parallel import choose_threads, cut_evenly, run_each
from wirescan.core.stop import Stop
from wirescan.files.capture_mark import explain_source
from wirescan.files.source import BUFFERS, open, view_of
from wirescan.frames.errors import MODES, FrameError, check_mode, enforce_mode
from wirescan.frames.format import Format, Parser
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, join, make_empty

LEAST_VERIFIED = 16 << 20  # bytes to verify; a smaller share is not worth a thread
TINY = 256  # bytes of a buffer; the scan of fewer takes little longer than to choose threads


class _Scanned(NamedTuple):
    """The result of a scan: see `core.loop.scan_frames`."""

    rows: np.ndarray
    bad: int
    fault: int
    position: int


def scan_source(
    source: Any,
    format: Format,
    errors: str,
    check: bool,  # noqa: FBT001 - arguments by position take less time
    limits: Limits,
    into: np.ndarray | None = None,
    scan: Callable[..., tuple[np.ndarray, int, int, int]] | None = None,
) -> FrameTable:
    """Scan each buffer of a source, and return the outermost frames as a table of a format.

    source: anything that `wirescan.open` accepts. The format says which files of a directory are
        read.
    errors, check, limits, into: as for the functions that users call. into: only for one buffer.
    scan: the function that scans a buffer; the default is that of the format.

    Several threads verify the checksums of a large buffer if the format has a `verify`.

    Raises FrameError as `errors` says, OSError, and TypeError and ValueError for wrong arguments.
    """
    # A small buffer is scanned in the time of about ten Python calls, so there are few here.
    if errors not in MODES or type(limits) is not Limits:
        check_mode(errors, limits)
    if type(source) is bytes:
        return _scan_buffer(memoryview(source), format, errors, check, limits, into, scan)
    if type(source) in BUFFERS:
        return _scan_buffer(view_of(source), format, errors, check, limits, into, scan)
    buffers = open(source, files=format.storage.files, ignore=format.storage.ignore)
    if into is not None and len(buffers) != 1:
        raise ValueError(f"into takes the rows of one buffer, and the source has {len(buffers)}")
    tables = []
    for buffer in buffers:
        tables.append(_scan_buffer(buffer, format, errors, check, limits, into, scan))
    if len(tables) == 1:
        return tables[0]
    return join(tables) if tables else make_empty(format)


def _scan_buffer(
    buffer: memoryview,
    format: Format,
    errors: str,
    check: bool,  # noqa: FBT001 - as above
    limits: Limits,
    into: np.ndarray | None,
    scan: Callable[..., tuple[np.ndarray, int, int, int]] | None,
) -> FrameTable:
    """Return the outermost frames of one buffer. The arguments are those of `scan_source`."""
    scanned: tuple[np.ndarray, int, int, int] | None = None
    if scan is None:
        parser = format.parser
        scan = parser.scan
        assert scan is not None  # every outermost format has one
        if check and parser.verify is not None and into is None and len(buffer) >= TINY:
            threads = choose_threads(len(buffer), LEAST_VERIFIED)
            if threads > 1:
                scanned = _scan_good_frames(buffer, parser, limits, threads)
    resync = errors != "strict"
    if scanned is None:
        if into is None:
            scanned = scan(buffer, check=check, resync=resync, limits=limits)
        else:
            scanned = scan(buffer, check=check, resync=resync, limits=limits, into=into)
    rows, bad, fault, position = scanned
    stop = (fault, position, 0)  # a `Stop` takes time, and is seldom asked for
    table = FrameTable((buffer,), rows, (stop,), format, None, (), check, errors)
    if bad or fault:
        try:
            return enforce_mode(table, errors, bad)
        except FrameError as error:
            raise explain_source(error, format, buffer, "scan") from None
    return table


def scan_carried(
    outer: FrameTable, format: Format, *, errors: str, check: bool, limits: Limits
) -> FrameTable:
    """Return the frames of a format in the place `records` of the rows of a table.

    `read` of a format calls it for a table, if messages carry its frames: see `CarriedFormat`.

    format: it has `Parser.spans`. errors, check, limits: as for the functions that users call.

    Raises FrameError as `errors` says, and TypeError for a table without such a place.
    """
    if "records" not in outer.places:
        raise TypeError(f"{outer.name} has no place `records` to scan")
    scan = format.parser.spans
    assert scan is not None
    sets = spans(outer.rows, outer["records_at"])
    sets["size"] = np.maximum(outer["records_size"], 0)
    sets = sets[(sets["size"] > 0) & ~outer.bad]
    rows, bad, faults, positions = scan(
        outer.buffers, sets, check=check, resync=errors != "strict", limits=limits
    )
    stops = tuple(
        Stop(int(faults[i]), int(positions[i]), int(sets["buffer"][i]))
        for i in np.flatnonzero(faults)
    )
    return enforce_mode(
        FrameTable(outer.buffers, rows, stops, format, outer, checked=check), errors, bad
    )


def _scan_good_frames(
    buffer: memoryview, parser: Parser, limits: Limits, threads: int
) -> _Scanned | None:
    """Scan a large buffer without checksums, and verify these on several threads.

    Return None where any frame is bad. A checksum only decides whether a frame is bad. So without
    bad frames, the result is that of a scan that verifies checksums, with and without `resync`.
    """
    assert parser.scan is not None and parser.verify is not None
    scanned = _Scanned(*parser.scan(buffer, check=False, resync=False, limits=limits))
    if scanned.bad or scanned.fault >= Fault.BAD_LENGTH or not len(scanned.rows):
        return None
    shares = cut_evenly(scanned.rows["size"].astype(np.int64), threads)
    functions = [
        partial(parser.verify, scanned.rows[start:stop], (buffer,)) for start, stop in shares
    ]
    return None if any(faults.any() for faults in run_each(functions)) else scanned
