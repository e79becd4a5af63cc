"""Where bytes come from: a path, glob, directory or URL, a file object, or anything with the buffer protocol.

Local files are mapped, so nothing is copied and pages are read when touched. A mapped file must not shrink while
it is in use: the system then ends the process (SIGBUS). `ranges` copies instead, for files that may. Objects in stores
are read in ranges too: see `wirescan.store` for their URLs.
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
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

import numpy as np

from wirescan import store
from wirescan.core.rows import Block
from wirescan.store import URL

GLOB = re.compile(r"[*?\[]")
LOCAL = re.compile(r"file://(localhost)?(?=/)", re.IGNORECASE)
SIDECAR = ".frames.json"        # ends the names of what is written beside files, about them; it is never read as one


class File(NamedTuple):
    """A file or object, and its size in bytes."""
    path: str
    size: int


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
    meet. Neither gives sidecars (`*.frames.json`). A URL of the scheme file is the path in it, percent-decoded.

    Raises FileNotFoundError where nothing matches, OSError of the file system or store, which names the file or URL,
    TypeError for any other object or for one that is not contiguous, ValueError for a URL of no store that there is.
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
    """The paths that a path, glob, directory or URL stands for, in order. A path without a pattern need not be there, a
    URL has to. See `open`."""
    path = _plain(source)
    return [one.path for one in _in_store(path, files, ignore)] if URL.match(path) else _local(path, files, ignore)


def found(source: str | os.PathLike[str], *, files: str | None = None, ignore: str | None = None) -> list[File]:
    """As `expand`, with the size of each file; that of objects is taken from the listing, without a request for each.

    Raises as `open`, and OSError for what cannot be read in parts, such as a pipe."""
    path = _plain(source)
    if URL.match(path):
        return _in_store(path, files, ignore)
    return [File(name, seekable_size(name)) for name in _local(path, files, ignore)]


def name_of(path: str) -> str:
    """The last name in a path or URL: "0.log" of "s3://bucket/0.log?region=eu"."""
    return os.path.basename(unquote(store.split(path)[1]) if URL.match(path) else path)


def beside(path: str, ending: str) -> str:
    """The path or URL beside this one that has another ending: `beside("0.log", ".index")` is "0.index"."""
    root, plain, options = store.split(path) if URL.match(path) else ("", path, "")
    return root + os.path.splitext(plain)[0] + ending + options


def size_of(path: str) -> int:
    """The size of a file or object in bytes. Raises FileNotFoundError, OSError."""
    return store.size_of(path) if URL.match(path) else os.stat(path).st_size


def seekable_size(path: str) -> int:
    """The size of a file or object that can be read in parts. Raises OSError for a pipe or a device, which cannot."""
    if URL.match(path):
        return store.size_of(path)
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.ESPIPE, "not a regular file, so it cannot be read in parts", path)
    return state.st_size


@contextmanager
def ranges(path: str) -> Iterator[Callable[[int, int], memoryview]]:
    """A function that copies the bytes of a file or object from one offset to another, fewer where it ends before. It
    is opened once for all of them. Raises FileNotFoundError, OSError."""
    if URL.match(path):
        with store.ranges(path) as read:
            yield read
        return
    with builtins.open(path, "rb", buffering=0) as file:
        def copied(start: int, stop: int) -> memoryview:
            file.seek(start)
            return read_some(file, max(stop - start, 0))
        yield copied


def read_range(path: str, start: int, stop: int) -> memoryview:
    """A copy of the bytes from start to stop; fewer where the file ends before. For several of them see `ranges`."""
    with ranges(path) as read:
        return read(start, stop)


@contextmanager
def descriptor(path: str) -> Iterator[int]:
    """The number of an open file, -1 for an object in a store. Raises FileNotFoundError, OSError."""
    if URL.match(path):
        yield -1
        return
    with builtins.open(path, "rb", buffering=0) as file:
        yield file.fileno()


def read_some(file: Any, size: int, advance: Callable[[int], None] = lambda count: None) -> memoryview:
    """`size` bytes of a binary file, fewer where it ends; `advance` is told the bytes of each read."""
    data, filled = memoryview(Block(size)), 0
    while filled < size and (count := file.readinto(data[filled:])):
        filled += count
        advance(count)
    return data[:filled].toreadonly()


def _plain(source: str | os.PathLike[str]) -> str:
    path = os.fspath(source)
    local = LOCAL.match(path)
    return os.fsdecode(unquote_to_bytes(os.fsencode(path[local.end():]))) if local else path


def _in_store(url: str, files: str | None, ignore: str | None) -> list[File]:
    listed = store.found(url, lambda name: _is_asked_for(name, files), lambda name: _is_left_out(name, ignore))
    if not listed:
        raise _nothing(store.shown(url))
    return [File(*one) for one in listed]


def _local(path: str, files: str | None, ignore: str | None) -> list[str]:
    if os.path.isdir(path):
        found = _in_directory(path, files)
    elif (magic := GLOB.search(path)) and not os.path.exists(path):
        found = []
        fixed = os.path.dirname(path[:magic.start()])       # was named, not found
        for name in sorted(glob.glob(path, recursive=True)):
            is_directory = os.path.isdir(name)
            if _is_left_out(name[len(fixed):].lstrip("/") + "/" * is_directory, ignore):
                continue
            if not is_directory:
                found.append(name)
            elif os.path.basename(path) != "**":        # which meets the files in it by itself
                found += _in_directory(name, files)
        resolved = cache(os.path.realpath)
        once: dict[str, str] = {}           # links may lead to a file twice
        for name in found:
            folder, last = os.path.split(name)
            once.setdefault(os.path.realpath(name) if os.path.islink(name) else f"{resolved(folder)}/{last}", name)
        found = list(once.values())
    else:
        return [path]
    if not found:
        raise _nothing(path)
    return found


def _nothing(path: str) -> FileNotFoundError:
    return FileNotFoundError(f"no file to read in {path}: name the files, or use a glob")


def _in_directory(directory: str, files: str | None) -> list[str]:
    root = len(os.path.join(directory, ""))
    return sorted(name for name in _walk(directory) if _is_asked_for(name[root:], files))


def _is_asked_for(path: str, files: str | None) -> bool:
    """Whether a file is read, by its path in the directory."""
    return not path.endswith(SIDECAR) and (not files or re.search(files, path) is not None)


def _is_left_out(path: str, ignore: str | None) -> bool:
    """Whether a glob leaves out a file, or a directory, which ends in "/", by its path from the first pattern on."""
    return path.endswith(SIDECAR) or bool(ignore and re.search(ignore, "/" + path))


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

