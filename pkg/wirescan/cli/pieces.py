"""The bytes of a file, URL or standard input, a piece at a time."""
from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext

from wirescan.pieces import PIECE
from wirescan.pieces import chunks as ranges
from wirescan.source import URL, read_some, size_of


def chunks(path: str, advance: Callable[[int], None] = lambda count: None, size: int = PIECE) -> Iterator[memoryview]:
    """Pieces of `size` bytes of a file, a URL or standard input ("-"), to its end; `advance` is told the bytes read.

    Bytes are copied, not mapped: a file that shrinks meanwhile ends early, and the process lives. Raises OSError, and
    EOFError for an object that shrinks.
    """
    if URL.match(path):
        for data in ranges(path, 0, size_of(path), size):
            advance(len(data))
            yield data
        return
    with nullcontext(sys.stdin.buffer) if path == "-" else builtins.open(path, "rb", buffering=0) as file:
        while data := read_some(file, size, advance):
            yield data
