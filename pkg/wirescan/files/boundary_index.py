"""Frame boundaries of a file, stored in a small file beside it (a sidecar), for planning.

With a sidecar a plan need not scan a large file again.

    <file>.frames.json
    {"version": 2, "format": "lumberjack.frames",
     "size": 1234567890,                    bytes in the file when the sidecar was written
     "time": 1790000000123456789,           time of the file's last change, in ns since 1970
     "first": 305419896,                    CRC-32C of the first bytes
     "last": 2596069104,                    CRC-32C of the last bytes
     "starts": [0, 1048831, ...]}           byte positions of frames, about one for each MiB

A sidecar of another version, or one that does not fit its file, is not used. A file of the same
size must have the same time. In a file that only grew, the new bytes are scanned. Whoever can write
beside a file can write a sidecar. So `find_indexed_boundaries` verifies that a frame begins at each
start that it returns.

Sidecars can also be in a directory of their own, as <directory>/<absolute path>.frames.json. The
environment variable WIRESCAN_INDEX_DIR names this directory. It is used where no sidecar beside the
file fits.
"""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np

from wirescan.core.checksum import crc32c
from wirescan.files import object_store
from wirescan.files.boundaries import read_frame, thin_out
from wirescan.files.object_store import URL
from wirescan.files.source import (
    SIDECAR,
    get_seekable_size,
    get_size,
    get_stamp,
    open_ranges,
    read_range,
)
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of

DIRECTORY_VARIABLE = "WIRESCAN_INDEX_DIR"  # the environment variable
VERSION = 2
STEP = 1 << 20  # approximate bytes between starts
MAX_STARTS = 1 << 20  # maximum number of starts; in larger files they are farther apart
HEADER_BYTES = 1024  # maximum bytes in a sidecar beside its starts
START_BYTES = 20  # maximum bytes of one start: 19 digits and a comma
CHECKED_BYTES = 4096  # bytes at either end of a file, whose checksums show whether it changed
REQUESTS = 16  # concurrent requests to an object store


def make_sidecar_path(
    path: str | os.PathLike[str], directory: str | os.PathLike[str] | None = None
) -> str:
    """Return the path or URL of a file's sidecar.

    directory: a directory of sidecars; default is beside the file.
    """
    path = os.fspath(path)
    root, plain, options = object_store.split(path) if URL.match(path) else ("", path, "")
    if directory is None:
        return root + plain + SIDECAR + options
    absolute = root.replace("://", "/", 1) + plain if root else os.path.abspath(plain)
    return os.path.join(directory, absolute.lstrip("/") + SIDECAR)


def write(
    path: str | os.PathLike[str],
    format: str,
    to: str | os.PathLike[str] | None = None,
    *,
    limits: Limits = Limits(),
) -> list[int]:
    """Write the sidecar of a file atomically, and return the starts in it.

    The starts are byte positions in the file: 0, and further ones about a MiB apart, up to the
    first damaged frame. In a file above 1 TiB they are a millionth of its size apart. An older
    sidecar is replaced.

    format: a name of `wirescan.formats()`; the starts are those of its outermost frames.
    to: a directory of sidecars, which is created where needed; default is beside the file.
    limits: a frame above `limits.frame` counts as damaged.

    Raises ValueError for an unknown format and for one without frame boundaries, OSError.
    """
    path = os.fspath(path)
    top = format_of(format).outermost
    if top.storage.boundaries is None:
        raise ValueError(f"{top.name} declares no frame boundaries, so its files have no index")
    # Taken before the scan: a change during the scan makes the sidecar stale.
    size, time = get_stamp(path)
    boundaries = top.storage.boundaries(path, max(STEP, size // MAX_STARTS), limits=limits)
    starts = [at for at in boundaries if at < size] or [0]
    first, last = _compute_checksums(path, size)
    text = json.dumps(
        {
            "version": VERSION,
            "format": top.spec,
            "size": size,
            "time": time,
            "first": first,
            "last": last,
            "starts": starts,
        },
        separators=(",", ":"),
    )
    _write_sidecar(path, make_sidecar_path(path, to), text.encode())
    return starts


def read(
    path: str | os.PathLike[str], format: str, *, limits: Limits = Limits()
) -> list[int] | None:
    """Return the starts of a file from its sidecar, as `write` returns them, or None.

    In a file that grew, the starts of the new bytes are included. Starts of the sidecar are not
    verified, except the one where the scan of the new bytes begins. limits: as for `write`, for
    that scan.

    The result is None where no sidecar can be read and where it does not fit:
    - it is of another format or version, or too large for a file of this size,
    - the file is smaller than it was, or of the same size and with another time,
    - the first bytes or the last bytes have changed,
    - no frame begins where the scan of the new bytes starts.

    Raises ValueError for an unknown format, OSError for the file itself.
    """
    path = os.fspath(path)
    top = format_of(format).outermost
    starts = _read(path, make_sidecar_path(path), top, limits)
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if starts is None and directory:
        return _read(path, make_sidecar_path(path, directory), top, limits)
    return starts


def _read(path: str, sidecar: str, top: Format, limits: Limits) -> list[int] | None:
    try:
        sidecar_size = get_seekable_size(sidecar)
    except (OSError, ValueError):
        return None
    now, changed = get_stamp(path)
    if sidecar_size > HEADER_BYTES + START_BYTES * (min(now // STEP, MAX_STARTS) + 1):
        return None
    try:
        fields = json.loads(bytes(read_range(sidecar, 0, sidecar_size)))
        version, name, size, time, first, last, starts = (
            fields[key] for key in ("version", "format", "size", "time", "first", "last", "starts")
        )
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if (version, name) != (VERSION, top.spec) or top.storage.boundaries is None:
        return None
    if not _are_rising(starts, size):
        return None
    if now < size or now == size and changed != time:
        return None
    if (first, last) != _compute_checksums(path, size):
        return None
    if now - max(size, starts[-1] + STEP) > STEP:
        if not _are_starts(path, starts[-1:], now, top.spec, limits):
            return None
        starts += top.storage.boundaries(path, STEP, starts[-1], limits=limits)[1:]
    return list(starts)


def find_indexed_boundaries(
    path: str | os.PathLike[str], size: int, format: str, *, limits: Limits = Limits()
) -> list[int] | None:
    """Return starts of a file that are about `size` bytes apart, from 0 on, or None.

    An intact frame begins at each of them. The result is None as for `read`, and where no intact
    frame begins at one of them: then the sidecar is wrong. limits: a frame above `limits.frame` is
    not intact. Raises as `read`.
    """
    path = os.fspath(path)
    starts = read(path, format, limits=limits)
    if starts is None:
        return None
    chosen = thin_out(np.array(starts), 0, size)
    return [0, *chosen] if _are_starts(path, chosen, get_size(path), format, limits) else None


def _are_starts(path: str, starts: list[int], stop: int, format: str, limits: Limits) -> bool:
    """Return whether an intact frame begins at each start. stop: the size of the file."""
    if not starts:
        return True
    scan = format_of(format).outermost.parser.scan
    assert scan is not None  # every outermost format has one
    with open_ranges(path) as read_bytes:
        read_row = partial(read_frame, read_bytes, stop=stop, scan=scan, limits=limits)
        if not URL.match(path):
            return all(read_row(start) is not None for start in starts)
        with ThreadPoolExecutor(REQUESTS) as pool:
            return all(row is not None for row in pool.map(read_row, starts))


def _compute_checksums(path: str, size: int) -> tuple[int, int]:
    """Return the CRC-32C of the first and of the last bytes of a file of this size."""
    with open_ranges(path) as read_bytes:
        first = crc32c(read_bytes(0, min(CHECKED_BYTES, size)))
        last = crc32c(read_bytes(max(size - CHECKED_BYTES, 0), size))
        return first, last


def _write_sidecar(path: str, sidecar: str, data: bytes) -> None:
    """Write the sidecar of a file, so that no reader sees a part of it."""
    if URL.match(sidecar):  # a store shows an object only when it is complete
        return object_store.write(sidecar, data)
    folder, name = os.path.split(sidecar)
    if folder:
        os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(SIDECAR, name.removesuffix(SIDECAR), folder or ".")
    try:
        with os.fdopen(handle, "wb") as file:
            if not URL.match(path):
                # Whoever may read the file may read its sidecar.
                os.fchmod(handle, os.stat(path).st_mode & 0o666)
            file.write(data)
        os.replace(temporary, sidecar)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _are_rising(starts: object, size: object) -> bool:
    """Return whether the starts of a sidecar are integers that rise from 0 to below the size."""
    return (
        type(size) is int
        and size >= 0
        and isinstance(starts, list)
        and set(map(type, starts)) == {int}
        and starts[0] == 0
        and all(start < stop for start, stop in zip(starts, [*starts[1:], max(size, 1)]))
    )
