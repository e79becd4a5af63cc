"""Where bytes come from: a path, glob, directory or URL, a file object, or anything with the buffer protocol.

Local files are mapped, so nothing is copied and pages are read when touched. A mapped file must not shrink while
it is in use: the system then ends the process (SIGBUS). `read_range` copies instead, for files that may.
"""
from __future__ import annotations

import builtins
import errno
import glob
import mmap
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np

from wirescan.core.rows import Block

GLOB = re.compile(r"[*?\[]")
URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
PAGE = 512              # bytes that a walk reads of a file at a time: a header, or those of several small frames
BLOCK = 1 << 20         # ... of an object in a store
LOCAL = re.compile(r"file://(localhost)?(?=/)", re.IGNORECASE)


class MappedFile(mmap.mmap):
    """A file mapped for reading, from its first byte to `length` (default: its size). It pickles as its path and
    length, so that a table over it travels without the bytes; who unpickles it has to see the same file there."""
    path: str

    def __new__(cls, path: str, length: int | None = None) -> MappedFile:
        with builtins.open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if length is not None and size < length:
                raise EOFError(f"{path} has {size} bytes now, and had at least {length} when it was read")
            self = super().__new__(cls, file.fileno(), size if length is None else length, access=mmap.ACCESS_READ)
        self.path = path
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedFile, (self.path, len(self))


def open(source: Any, *, files: str | None = None, ignore: str | None = None) -> tuple[memoryview, ...]:
    """The buffers of a source, each a contiguous memoryview of bytes.

    source: a path or URL, a glob, a directory (walked to its depths, in order of names), a binary file object (read
    to its end), a bytes-like object (bytes, memoryview, mmap, numpy array, pyarrow.Buffer), or a list of these.
    files, ignore: regular expressions: a directory gives the files whose path in it `files` finds; globs leave out
    those whose path, from the "/" before the glob's first pattern on, `ignore` finds, and take directories in that they
    meet. A URL of the scheme file is the path in it, percent-decoded.

    Raises FileNotFoundError where nothing matches, OSError of the file system, TypeError for any other object or for
    one that is not contiguous.
    """
    if isinstance(source, (str, os.PathLike)):
        return tuple(_mapped(path) for path in expand(source, files=files, ignore=ignore))
    if isinstance(source, (list, tuple)):
        return tuple(view for one in source for view in open(one, files=files, ignore=ignore))
    if hasattr(source, "read") and not isinstance(source, mmap.mmap):
        source = source.read()
        if isinstance(source, str):
            raise TypeError("the file is open in text mode; open it in binary mode")
    return (view_of(source),)


def view_of(data: Any) -> memoryview:
    """A bytes-like object as a contiguous memoryview of bytes; nothing is copied."""
    try:
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data).view(np.uint8) if data.flags.c_contiguous else data
        view = memoryview(data)
    except (TypeError, ValueError) as error:
        raise TypeError(f"neither a path nor a bytes-like object: {type(data).__name__}") from error
    if not view.c_contiguous:
        raise TypeError("the buffer is not contiguous; copy it first")
    return view.cast("B") if view.nbytes else memoryview(b"")


def expand(source: str | os.PathLike[str], *, files: str | None = None, ignore: str | None = None) -> list[str]:
    """The paths that a path, glob, directory or URL stands for, in order. See `open`."""
    path = os.fspath(source)
    if local := LOCAL.match(path):
        path = os.fsdecode(unquote_to_bytes(os.fsencode(path[local.end():])))
    elif URL.match(path):
        return [path]
    if os.path.isdir(path):
        found = _in_directory(path, files)
    elif (magic := GLOB.search(path)) and not os.path.exists(path):
        found = []
        fixed = os.path.dirname(path[:magic.start()]) or "."        # was named, not found
        for name in sorted(glob.glob(path, recursive=True)):
            is_directory = os.path.isdir(name)
            if ignore and re.search(ignore, "/" + os.path.relpath(name, fixed) + "/" * is_directory):
                continue
            if not is_directory:
                found.append(name)
            elif os.path.basename(path) != "**":        # which meets the files in it by itself
                found += _in_directory(name, files)
        once: dict[str, str] = {}           # links may lead to a file twice
        for name in found:
            once.setdefault(os.path.realpath(name), name)
        found = list(once.values())
    else:
        return [path]
    if not found:
        raise FileNotFoundError(f"no file to read in {path}: name the files, or use a glob")
    return found


def size_of(path: str) -> int:
    """The size of a file or object in bytes."""
    if URL.match(path):
        file_system, name = _file_system(path)
        info = file_system.get_file_info(name)
        if info.size is None:
            raise FileNotFoundError(f"no such object: {path}")
        return int(info.size)
    return os.stat(path).st_size


def seekable_size(path: str) -> int:
    """The size of a file or object that can be read in parts. Raises OSError for a pipe or a device, which cannot."""
    if not URL.match(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.ESPIPE, "not a regular file, so it cannot be read in parts", path)
    return size_of(path)


def read_range(path: str, start: int, stop: int) -> memoryview:
    """A copy of the bytes from start to stop; fewer where the file ends before."""
    if URL.match(path):
        file_system, name = _file_system(path)
        with file_system.open_input_file(name) as file:
            return memoryview(file.read_at(stop - start, start))
    with builtins.open(path, "rb", buffering=0) as file:
        file.seek(start)
        return read_some(file, max(stop - start, 0))


def read_some(file: Any, size: int, advance: Callable[[int], None] = lambda count: None) -> memoryview:
    """`size` bytes of a binary file, fewer where it ends; `advance` is told the bytes of each read."""
    data, filled = memoryview(Block(size)), 0
    while filled < size and (count := file.readinto(data[filled:])):
        filled += count
        advance(count)
    return data[:filled].toreadonly()


@contextmanager
def pager(path: str) -> Iterator[Callable[[int], bytes | memoryview]]:
    """A function that gives some bytes from an offset on: what a walk from header to header needs. The file is opened
    once; it is not mapped: it may shrink."""
    if URL.match(path):
        yield lambda at: read_range(path, at, at + BLOCK)
        return
    with builtins.open(path, "rb", buffering=0) as file:
        yield lambda at: os.pread(file.fileno(), PAGE, at)


def _in_directory(directory: str, files: str | None) -> list[str]:
    return sorted(name for name in _walk(directory)
                  if not files or re.search(files, os.path.relpath(name, directory)))


def _raise(error: OSError) -> None:
    raise error


def _walk(directory: str) -> Iterator[str]:
    for folder, _, names in os.walk(directory, onerror=_raise):
        yield from (os.path.join(folder, name) for name in names)


def _mapped(path: str) -> memoryview:
    if URL.match(path):
        return read_range(path, 0, size_of(path))
    state = os.stat(path)
    if stat.S_ISREG(state.st_mode) and state.st_size:
        try:
            return memoryview(MappedFile(path))
        except OSError as error:
            if error.errno != errno.ENODEV:     # a file system that cannot map
                raise
    with builtins.open(path, "rb") as file:
        return memoryview(file.read())


def _file_system(url: str) -> tuple[Any, str]:
    from pyarrow import fs
    return fs.FileSystem.from_uri(url)
