"""The bytes of files and of memory, in chunks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from wirescan.core.parallel import map_in_order
from wirescan.files.object_ranges import REQUESTS
from wirescan.files.source import (
    get_seekable_size,
    is_local,
    is_object,
    map_local_file,
    open_ranges,
    view_of,
)
from wirescan.frames.escape import make_visible
from wirescan.reading.stream import Stream

CHUNK_BYTES = 8 << 20  # bytes read at a time
REPEATED = 4  # a chunk repeats at most one in so many bytes of the chunk before it


class LocalChunks:
    """The bytes of a range of a local file, or of memory, in chunks.

    Args:
        open_range: returns a context with a function that reads the bytes between two positions.
        start: byte position.
        stop: byte position, exclusive.
        size: bytes in a chunk.

    Iterating raises what `open_range` and its function raise.

    Attributes:
        size: bytes in a chunk. It may be set for the next chunks.
        new_bytes: the bytes of the last chunk that the chunks before do not have.
    """

    def __init__(
        self,
        open_range: Callable[[], AbstractContextManager[Callable[[int, int], memoryview]]],
        start: int,
        stop: int,
        size: int,
    ):
        self._open_range = open_range
        self._at = start
        self._stop = stop
        self.size = size
        self._repeated = 0
        self.new_bytes = 0

    def __iter__(self) -> Iterator[memoryview]:
        with self._open_range() as read:
            while self._at < self._stop:
                first = self._at
                self._at = min(first + self.size, self._stop)
                self.new_bytes = self._at - first - self._repeated
                self._repeated = 0
                yield read(first, self._at)

    def repeat_cut(self, stream: Stream) -> None:
        """Let the next chunk begin with the frame that the last one cuts, if these bytes are few.

        To read them again costs less than to join the frame.

        stream: has read the last chunk.
        """
        if self._at < self._stop:
            self._repeated = stream.give_back(self.size // REPEATED)
            self._at -= self._repeated


class FileRange(NamedTuple):
    """A range of a file, or of bytes in memory.

    Attributes:
        chunks: its bytes. `LocalChunks` if they can be read again at little cost.
        path: the path of the file; None for bytes in memory.
        reaches_end: whether the range ends where the file does.
    """

    chunks: Iterable[memoryview]
    path: str | None
    reaches_end: bool


def open_chunks(
    source: Any, start: int, stop: int | None, size: int, *, mapped: bool = False
) -> FileRange:
    """Return the bytes of a range of a source, in chunks of `size` bytes.

    The chunks of bytes in memory and of mapped files are not copied. The other arguments and the
    errors are those of `chunked.iter_tables`, whose `piece` is the size.
    """
    # Small integers of numpy would overflow where a position is computed.
    start = operator.index(start)
    stop = None if stop is None else operator.index(stop)
    size = operator.index(size)
    path = source if isinstance(source, str) else None
    view = None
    if path is None:
        view = view_of(source)
    elif mapped:
        view = map_local_file(path)
    end = len(view) if view is not None else get_seekable_size(source)
    stop = end if stop is None else stop
    if size < 1 or not 0 <= start <= stop:
        raise ValueError(f"no part of a file: bytes {start} to {stop}, {size} at a time")
    if view is None:
        if is_local(source):
            chunks = LocalChunks(partial(_open_range, source, stop), start, stop, size)
            return FileRange(chunks, source, stop >= end)
        return FileRange(read_chunks(source, start, stop, size), source, stop >= end)
    if stop > end:
        where = f"{make_visible(path)} has" if path is not None else "there are"
        raise EOFError(f"{where} {end} bytes, and the range ends at {stop}")

    def read_view(first: int, last: int) -> memoryview:
        return view[first:last]

    chunks = LocalChunks(lambda: nullcontext(read_view), start, stop, size)
    return FileRange(chunks, path, stop >= end)


@contextmanager
def _open_range(path: str, end: int) -> Iterator[Callable[[int, int], memoryview]]:
    """Open a file to read chunks of a range that ends at `end`, as `read_chunk` does."""
    with open_ranges(path) as read:
        yield partial(read_chunk, read, path, end=end)


def read_chunks(path: str, start: int, stop: int, size: int = CHUNK_BYTES) -> Iterator[memoryview]:
    """Yield the bytes of a range of a file, in chunks.

    path: the file; errors name it.
    start, stop: byte positions; `stop` is exclusive.
    size: bytes in a chunk.

    Other threads read up to six chunks of an object in a store ahead, because most of the time is
    spent waiting for the store. The first chunk is read alone.

    Raises OSError, and EOFError if the file ends before `stop`.
    """
    with open_ranges(path) as read:
        if not is_object(path):
            yield from read_open_file(read, path, start, stop, size)
            return

        def read_next(at: int) -> memoryview:
            return read_chunk(read, path, at, min(at + size, stop), end=stop)

        positions = range(start, stop, size)
        yield from map_in_order(read_next, positions, REQUESTS, begins_slowly=True)


def read_open_file(
    read: Callable[[int, int], memoryview], path: str, start: int, stop: int, size: int
) -> Iterator[memoryview]:
    """Yield the bytes of a range of an open file, in chunks.

    read: a function of two positions that returns the bytes between them. It returns fewer where
        the file ends.

    The other arguments and the errors are those of `read_chunks`.
    """
    for at in range(start, stop, size):
        yield read_chunk(read, path, at, min(at + size, stop), end=stop)


def read_chunk(
    read: Callable[[int, int], memoryview], path: str, start: int, stop: int, *, end: int
) -> memoryview:
    """Return the bytes from `start` to `stop` of a range that ends at `end`.

    The other arguments and the errors are those of `read_open_file`.
    """
    data = read(start, stop)
    if len(data) < stop - start:
        raise EOFError(
            f"{make_visible(path)} ends at {start + len(data)}, before {end}: "
            "it was cut while it was read"
        )
    return data
