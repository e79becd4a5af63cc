"""Reads a file, a URL or standard input in pieces, for all commands."""

from __future__ import annotations

import builtins
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import chain
from typing import Any

from wirescan.cli.foreign_files import (
    HEAD,
    CompressionError,
    decompress_chunks,
    describe_foreign_file,
    detect_compression,
)
from wirescan.files.source import URL, get_size, read_range, read_some
from wirescan.files.translated import find_translator
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunks import CHUNK_BYTES, read_chunks

PIPE_PIECE = 1 << 20  # bytes of a pipe that are read at a time, at most
MARK = 4  # bytes that tell a compressed stream
# Seconds in which further bytes of a pipe are gathered after the first ones. A program that writes
# 64 KiB at a time needs some of it between two writes, and each piece has a fixed cost. Rows of a
# live source are late by no more than that.
GATHERING = 0.005
IDLE = 0.3  # seconds without a byte after which the first bytes of a pipe are judged
STEP = 4096  # bytes that are decompressed at a time, where only the first ones are wanted
# The pipes whose first bytes were looked at: path -> the open file, and these bytes.
_looked_at: dict[str, tuple[Any, bytes]] = {}


def read_input(
    path: str,
    advance: Callable[[int], None] = lambda count: None,
    size: int = CHUNK_BYTES,
    allowance: Allowance | None = None,
) -> Iterator[memoryview]:
    """Yield the contents of a file, a URL or standard input in pieces of `size` bytes.

    gzip and zstd files are decompressed. Bytes are copied, not mapped: a local file that shrinks
    while it is read ends early.

    Args:
        path: the file, the URL, or "-" for standard input.
        advance: called with the number of bytes of each read, before decompression.
        size: bytes in a piece.
        allowance: counts the bytes of each read, and the contents of a compressed file.

    Raises:
        ExpansionError: if a compressed file has more contents than the allowance.
        OSError: if the input cannot be read.
        EOFError: if an object of a store shrinks while it is read.
        CompressionError: if compressed data is damaged.
        ValueError: if the input is a known kind of file that holds no frames.
    """
    pieces = _read_raw(path, advance, size)
    if allowance is not None:
        pieces = allowance.count_chunks(pieces)
    for first in pieces:
        codec = detect_compression(bytes(first[:HEAD]))
        if codec is None:
            _refuse_foreign(first, path)
            yield first
        else:
            pieces = decompress_chunks(chain([first], pieces), codec, size)
            for number, data in enumerate(pieces):
                if not number:
                    _refuse_foreign(data, path)
                if allowance is not None:
                    allowance.spend_contents(data)
                yield data
            return
        yield from pieces


def read_part(
    path: str,
    start: int,
    stop: int | None,
    advance: Callable[[int], None] = lambda count: None,
    allowance: Allowance | None = None,
) -> Iterator[memoryview]:
    """Yield the bytes of a part of a file in pieces.

    Args:
        path: the file, as in `read_input`. A part other than 0 to None, which is all of it, is one
            of a file or URL that is not compressed.
        start: byte position of its first byte.
        stop: byte position after its last byte. None is the end.
        advance: as in `read_input`.
        allowance: as in `read_input`.

    Raises the errors of `read_input`, and EOFError if the file ends before the part does.
    """
    if (start, stop) == (0, None):
        yield from read_input(path, advance, allowance=allowance)
        return
    pieces = read_chunks(path, start, get_size(path) if stop is None else stop)
    for piece in pieces if allowance is None else allowance.count_chunks(pieces):
        advance(len(piece))
        yield piece


def _refuse_foreign(data: memoryview, path: str) -> None:
    """Raise ValueError if a file's first bytes are those of a file without frames."""
    if message := describe_foreign_file(bytes(data[:HEAD]), path):
        raise ValueError(message)


def _read_raw(path: str, advance: Callable[[int], None], size: int) -> Iterator[memoryview]:
    """Yield the bytes of an input as they are stored."""
    if URL.match(path) or find_translator(path) is not None:
        for data in read_chunks(path, 0, get_size(path), size):
            advance(len(data))
            yield data
        return
    with _open_raw(path) as (file, first):
        if first:
            advance(len(first))
            yield memoryview(first)
        if (path == "-" or is_pipe(path)) and _has_handle(file):
            yield from _read_pipe(file, min(size, PIPE_PIECE), advance, MARK - len(first))
            return
        while data := read_some(file, size, advance):
            yield data


def _read_pipe(
    file: Any, size: int, advance: Callable[[int], None], least: int
) -> Iterator[memoryview]:
    """Yield the bytes of a pipe a few milliseconds after they are there, at most `size` at a time.

    least: the bytes of the first piece, unless the pipe ends.
    """
    is_open = True
    while is_open:
        data, is_open = _gather(file.fileno(), size, least)
        if data:
            advance(len(data))
            yield memoryview(data).toreadonly()
        least = 1


def _gather(handle: int, size: int, least: int) -> tuple[bytearray, bool]:
    """Return the next bytes of a pipe, and whether it is still open.

    Waits without a bound for the first `least` bytes. Then gathers those that come within GATHERING
    seconds, `size` bytes in all at most.
    """
    data = bytearray()
    deadline: float | None = None
    while len(data) < size:
        if len(data) >= max(least, 1):
            now = time.monotonic()
            deadline = now + GATHERING if deadline is None else deadline
            if now >= deadline or not _has_bytes(handle, deadline - now):
                break
        piece = os.read(handle, size - len(data))
        if not piece:
            return data, False  # a terminal and a named pipe may go on after their end
        data += piece
    return data, True


def _read_ready(file: Any, size: int, least: int, wait: float) -> memoryview:
    """Return the bytes that a pipe has; none at its end.

    Args:
        file: the pipe.
        size: bytes to return, at most.
        least: bytes to wait for, unless the pipe ends.
        wait: seconds to wait for each further piece.
    """
    handle = file.fileno()
    data = bytearray()
    while len(data) < max(least, 1) or len(data) < size and _has_bytes(handle, wait):
        piece = os.read(handle, size - len(data))
        if not piece:
            break
        data += piece
    return memoryview(data).toreadonly()


def _has_handle(file: Any) -> bool:
    """Return whether a file is one of the system, and not one in memory."""
    try:
        return bool(file.fileno() >= 0)
    except OSError:
        return False


def _has_bytes(handle: int, wait: float) -> bool:
    """Return whether a read returns at once, after some seconds at most."""
    ready, _, _ = select.select([handle], [], [], wait)
    return bool(ready)


@contextmanager
def _open_raw(path: str) -> Iterator[tuple[Any, bytes]]:
    """Open a file or pipe, and give it with the bytes that `read_first_contents` took from it."""
    file, first = _looked_at.pop(path, (None, b""))
    if path == "-":
        # The first bytes of another standard input, such as that of a test, are not those of this.
        is_same = file is sys.stdin.buffer
        yield sys.stdin.buffer, first if is_same else b""
        return
    with builtins.open(path, "rb", buffering=0) if file is None else file as opened:
        yield opened, first


def is_pipe(path: str) -> bool:
    """Return whether a path is a pipe or a device."""
    is_local = not URL.match(path) and os.path.exists(path)
    return is_local and not os.path.isfile(path) and not os.path.isdir(path)


def read_head(path: str) -> bytes:
    """Return the first HEAD bytes of a file or object, which identify its kind.

    The result is empty for standard input, a pipe or a device. Raises OSError.
    """
    if find_translator(path) is not None:
        return b""  # the name says what it is, so no chunk is fetched for that
    if path == "-" or not URL.match(path) and not os.path.isfile(path):
        return b""
    return bytes(read_range(path, 0, HEAD))


def is_compressed(path: str) -> bool:
    """Return whether a file is decompressed when it is read. Raises OSError."""
    return detect_compression(read_head(path)) is not None


def read_first_contents(path: str, size: int) -> memoryview:
    """Return the first bytes of a file, URL, pipe or standard input, decompressed.

    The bytes of a pipe are not lost: `read_input` returns them again. A file without frames, such
    as a Parquet file, has no bytes here.

    Args:
        path: as in `read_input`.
        size: the largest number of bytes to return.

    Raises:
        OSError: if the input cannot be read.
    """
    data = _read_first(path, size)
    codec = detect_compression(bytes(data[:HEAD]))
    if codec is not None:
        if size < STEP:
            data = _read_first(path, STEP)  # a few compressed bytes are nothing
        contents = bytearray()
        # The data is cut here. A damaged file is reported when all of it is read.
        with suppress(CompressionError, ImportError):
            for piece in decompress_chunks([data], codec, STEP):
                contents += piece
                if len(contents) >= size:
                    break
        data = memoryview(contents)[:size]
    is_foreign = describe_foreign_file(bytes(data[:HEAD]), path) is not None
    return memoryview(b"") if is_foreign else data


def _read_first(path: str, size: int) -> memoryview:
    """Return the first bytes of a file, URL, pipe or standard input, as they are."""
    is_stream = path == "-" or is_pipe(path)
    return _look_at(path, size) if is_stream else read_range(path, 0, size)


def _look_at(path: str, size: int) -> memoryview:
    """Return the first bytes of a pipe, which `_open_raw` gives again."""
    file, first = _looked_at.get(path, (None, b""))
    if path == "-" and file is not sys.stdin.buffer:
        file, first = sys.stdin.buffer, b""
    elif file is None:
        file = FileIO(path)
    missing = size - len(first)
    if missing > 0 and _has_handle(file):
        # A live source sends its first frame, and then perhaps nothing for hours.
        first += bytes(_read_ready(file, missing, MARK - len(first), wait=IDLE))
    elif missing > 0:
        first += bytes(read_some(file, missing))
    _looked_at[path] = file, first
    return memoryview(first)[:size]
