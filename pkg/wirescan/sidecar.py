"""Where the frames of a file begin, in a small file beside it, so that a plan need not walk over a large one again.

    <file>.frames.json
    {"version": 1, "format": "lumberjack.frames", "size": 1234567890,       bytes that the file had
     "first": 305419896, "last": 2596069104,                                CRC-32C of the first and the last of these
     "starts": [0, 1048831, ...]}                                           where a frame begins, about every MiB

A sidecar that does not fit its file (any more) is not used. Of a file that only grew, the new bytes are walked over.
"""
from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress

from crc32c import crc32c

from wirescan import store
from wirescan.catalog import format_of
from wirescan.source import SIDECAR, URL, ranges, read_range, seekable_size, size_of

VERSION = 1
STEP = 1 << 20              # bytes between the starts, about
WITNESS = 4096              # bytes at both ends of a file that tell whether it is still the same


def path_of(path: str | os.PathLike[str]) -> str:
    """The path or URL of the sidecar of a file."""
    path = os.fspath(path)
    root, plain, options = store.split(path) if URL.match(path) else ("", path, "")
    return root + plain + SIDECAR + options


def write(path: str | os.PathLike[str], format: str = "kafka.records") -> list[int]:
    """Write the sidecar of a file, whole or not at all; an older one is replaced. Returns the starts: offsets in the
    file, about a MiB apart from 0 on, up to the first frame that is damaged.

    format: a name of `wirescan.formats()`; the starts are those of its outermost frames.
    Raises ValueError for an unknown format, or one whose frames cannot be found by a walk; OSError.
    """
    path, top = os.fspath(path), format_of(format).outermost
    if top.cuts is None:
        raise ValueError(f"nothing tells where the frames of {top.name} begin")
    size = size_of(path)
    starts = [at for at in top.cuts(path, STEP) if at < size] or [0]        # it may have grown meanwhile
    first, last = _witnesses(path, size)
    text = json.dumps({"version": VERSION, "format": top.name, "size": size, "first": first, "last": last,
                       "starts": starts}, separators=(",", ":"))
    _put(path, text.encode())
    return starts


def read(path: str | os.PathLike[str], format: str = "kafka.records") -> list[int] | None:
    """The starts of a file, as `write` returns them, by its sidecar; those in what the file grew by since then, too.

    None where there is no sidecar that can be read, or where it does not fit: it is of another format, the file is
    smaller now, or its first bytes or those where it ended have changed. Raises ValueError for an unknown format,
    OSError of the file itself.
    """
    path, top = os.fspath(path), format_of(format).outermost
    try:
        name = path_of(path)
        told = json.loads(bytes(read_range(name, 0, seekable_size(name))))
        version, name, size, first, last, starts = (
            told[key] for key in ("version", "format", "size", "first", "last", "starts"))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if (version, name) != (VERSION, top.name) or not _rise(starts, size) or top.cuts is None:
        return None
    now = size_of(path)
    if now < size or (first, last) != _witnesses(path, size):
        return None
    if now - max(size, starts[-1] + STEP) > STEP:
        starts += top.cuts(path, STEP, starts[-1])[1:]
    return starts


def _witnesses(path: str, size: int) -> tuple[int, int]:
    with ranges(path) as copied:
        return crc32c(copied(0, min(WITNESS, size))), crc32c(copied(max(size - WITNESS, 0), size))


def _put(path: str, data: bytes) -> None:
    if URL.match(path):                 # stores show no object before it is whole
        return store.write(path_of(path), data)
    folder, name = os.path.split(path)
    handle, made = tempfile.mkstemp(SIDECAR, name, folder or ".")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, os.stat(path).st_mode & 0o666)        # whoever may read the file may read this
            file.write(data)
        os.replace(made, path_of(path))
    except BaseException:
        with suppress(OSError):
            os.unlink(made)
        raise


def _rise(starts: object, size: object) -> bool:
    return (type(size) is int and isinstance(starts, list) and set(map(type, starts)) == {int} and starts[0] == 0
            and all(one < other for one, other in zip(starts, [*starts[1:], max(size, 1)])))
