"""The bytes of objects in stores: ranges of one object, and several objects ahead.

A store takes long to answer, and answers many requests at the same time. So the parts of a large
range are read at the same time, and so are the next objects while the caller works on one.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, TypeVar

from wirescan.core.parallel import map_in_order
from wirescan.core.rows import Block
from wirescan.files import object_store
from wirescan.files.object_store import URL, name_url_in_errors
from wirescan.files.store_errors import convert_error
from wirescan.files.translated import find_translator

REQUESTS = 4  # ranges of an object that are read at the same time
PART_BYTES = 8 << 20  # a range of at least two such parts is read in parts
OBJECTS = 8  # objects that are opened and read at the same time
AHEAD_BYTES = 4 << 20  # an object of at most so many bytes is read ahead as a whole
# What was opened ahead is used for so long: an iteration may pause, and the object may change.
KEEP_SECONDS = 10
Item = TypeVar("Item")


class _OpenObject:
    """An object that was opened, which is one request.

    Attributes:
        size: its bytes.
        first: its first bytes, if they were read ahead.
        is_ahead: whether it was opened ahead, so that a while passes before it is read.
        opened_at: the time when it was opened, by `time.monotonic`.

    Raises FileNotFoundError, OSError, ValueError.
    """

    def __init__(self, url: str, *, is_ahead: bool = False):
        self._url = url
        self.is_ahead = is_ahead
        self.opened_at = time.monotonic()
        self._file_system, self._name = object_store.open_file_system(url)
        with name_url_in_errors(url):
            try:
                self._file = self._file_system.open_input_file(self._name)
            except FileNotFoundError:
                object_store.check_bucket(self._file_system, self._name, url)
                raise
            self.size = int(self._file.size())
        self.first = memoryview(b"")

    def read_first(self, size: int) -> None:
        """Read the first bytes into memory, which is another request. Raises OSError."""
        if size:
            with name_url_in_errors(self._url):
                self.first = memoryview(self._file.read_at(size, 0))

    @contextmanager
    def open_ranges(self) -> Iterator[Callable[[int, int], memoryview]]:
        """Give the function that `open_ranges` gives."""
        reads: list[int] = []  # the starts of all ranges that were asked for

        def read(start: int, stop: int) -> memoryview:
            size = min(stop, self.size) - start
            if size <= 0:
                return memoryview(b"")
            if start + size <= len(self.first):
                return self.first[start : start + size]
            part_bytes = PART_BYTES if size >= 2 * PART_BYTES else size
            reads.extend(range(start, start + size, part_bytes))
            try:
                return _read_parts(self._file, start, size, part_bytes)
            except Exception as error:
                fault = object_store.find_store_error(error)
                if fault is None:
                    raise
                self._check_unchanged()
                raise convert_error(fault, self._url) from None

        yield read
        if len(reads) + self.is_ahead > 1:
            self._check_unchanged()

    def close(self) -> None:
        """Close pyarrow's file."""
        self._file.close()

    def _check_unchanged(self) -> None:
        """Raise OSError if the object has been replaced since it was opened."""
        with (
            name_url_in_errors(self._url),
            self._file_system.open_input_file(self._name) as reopened,
        ):
            if (reopened.size(), reopened.metadata()) != (self.size, self._file.metadata()):
                raise OSError(errno.ESTALE, "the object was replaced while it was read")


# The objects that were opened ahead, and that callers of `read_ahead` work on now, by their URLs.
_opened: dict[str, _OpenObject] = {}


def read_ahead(
    items: Iterable[Item], find_path: Callable[[Item], str] = str, *, head: int | None = None
) -> Iterator[Item]:
    """Yield items, and read the objects among them before they are needed.

    While the caller works on one item, other threads open the objects of the next nine and read
    those of at most AHEAD_BYTES. Until the next item is asked for, but not more than KEEP_SECONDS
    after an object was opened, its `open_ranges` and `get_size` use what was read. The first object
    is read alone. An object that cannot be read is an error where the caller opens it.

    items: paths, or what `find_path` finds a path of. Files are not read ahead.
    head: read only so many first bytes of each object, such as 0. None, the default: all bytes of
        small objects.
    """
    items = list(items)
    paths = list(map(find_path, items))
    if sum(URL.match(path) is not None for path in paths) < 2:
        yield from items
        return
    results = map_in_order(partial(_open_ahead, head=head), paths, OBJECTS, begins_slowly=True)
    for item, path, opened in zip(items, paths, results):
        if opened is None:
            yield item
            continue
        _opened[path] = opened
        try:
            yield item
        finally:
            if _opened.get(path) is opened:
                del _opened[path]


def _open_ahead(path: str, *, head: int | None) -> _OpenObject | None:
    """Return an open object; None for a file or a glob, and after an error."""
    try:
        if not URL.match(path) or object_store.MAGIC.search(object_store.split(path)[1]):
            return None
        if head is not None and find_translator(path) is not None:
            return None  # neither the head nor the size is that of the object
        opened = _OpenObject(path, is_ahead=True)
        small = opened.size if opened.size <= AHEAD_BYTES else 0
        opened.read_first(small if head is None else min(head, opened.size))
    except Exception:
        return None  # the caller opens it too, and gets the error
    return opened


def get_size(url: str) -> int:
    """Return the bytes of an object. Raises FileNotFoundError, OSError."""
    size = find_opened_size(url)
    return object_store.get_stamp(url)[0] if size is None else size


def find_opened_size(url: str) -> int | None:
    """Return the bytes of an object that `read_ahead` has opened; None if it has not."""
    opened = _find_opened(url)
    return None if opened is None else opened.size


def _find_opened(url: str) -> _OpenObject | None:
    opened = _opened.get(url)
    is_new = opened is not None and time.monotonic() - opened.opened_at <= KEEP_SECONDS
    return opened if is_new else None


@contextmanager
def open_ranges(url: str) -> Iterator[Callable[[int, int], memoryview]]:
    """Open an object, and give a function that reads the bytes between two positions.

    It returns fewer bytes where the object ends before. Opening is one request, and each read is
    one, or one for each part of a large range. After several reads a last request checks that the
    object is still the same: if it became shorter, pyarrow returns bytes that are not in it.
    Several threads may call the function. Raises FileNotFoundError, OSError.
    """
    if (opened := _find_opened(url)) is not None:
        with opened.open_ranges() as read:
            yield read
        return
    with closing(_OpenObject(url)) as opened, opened.open_ranges() as read:
        yield read


def _read_parts(file: Any, start: int, size: int, part_bytes: int) -> memoryview:
    """Return a range of an object. Several parts of it are read at the same time.

    The result is shorter where the object is. part_bytes: bytes of each part but the last.
    """
    if part_bytes == size:
        return memoryview(file.read_at(size, start))
    data = memoryview(Block(size))

    def read_part(at: int) -> int:
        part = file.read_at(min(part_bytes, size - at), start + at)
        data[at : at + len(part)] = part
        return len(part)

    filled = 0
    for length in map_in_order(read_part, range(0, size, part_bytes), REQUESTS):
        if filled % part_bytes:
            break  # the last part was short
        filled += length
    return data[:filled].toreadonly()
