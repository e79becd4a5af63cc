"""Reads a file, a URL or standard input in pieces, for all commands."""

from __future__ import annotations

import builtins
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Any

from wirescan.cli.common import is_pipe
from wirescan.cli.foreign_files import (
    HEAD,
    decompress_chunks,
    describe_foreign_file,
    detect_compression,
)
from wirescan.files.source import URL, get_size, read_some
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import PIECE, read_chunks

PIPE_PIECE = 1 << 20  # bytes of a pipe that are read at a time, at most
MARK = 4  # bytes that tell a compressed stream


def read_input(
    path: str,
    advance: Callable[[int], None] = lambda count: None,
    size: int = PIECE,
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
    if URL.match(path):
        for data in read_chunks(path, 0, get_size(path), size):
            advance(len(data))
            yield data
        return
    with (
        nullcontext(sys.stdin.buffer)
        if path == "-"
        else builtins.open(path, "rb", buffering=0) as file
    ):
        if (path == "-" or is_pipe(path)) and _has_handle(file):
            yield from _read_pipe(file, min(size, PIPE_PIECE), advance)
            return
        while data := read_some(file, size, advance):
            yield data


def _read_pipe(file: Any, size: int, advance: Callable[[int], None]) -> Iterator[memoryview]:
    """Yield the bytes of a pipe as soon as they are there, at most `size` at a time.

    The first piece has at least the bytes that tell a compressed stream, unless the pipe ends.
    """
    least = MARK
    handle = file.fileno()
    while True:
        data = bytearray()
        while len(data) < least or len(data) < size and _has_bytes(handle):
            piece = os.read(handle, size - len(data))
            if not piece:
                break
            data += piece
            advance(len(piece))
        if not data:
            return
        yield memoryview(data).toreadonly()
        least = 1


def _has_handle(file: Any) -> bool:
    """Return whether a file is one of the system, and not one in memory."""
    try:
        return bool(file.fileno() >= 0)
    except OSError:
        return False


def _has_bytes(handle: int) -> bool:
    """Return whether a read would return at once."""
    ready, _, _ = select.select([handle], [], [], 0)
    return bool(ready)
