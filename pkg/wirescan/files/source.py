"""Sources of bytes: a path, glob, directory or URL, a file object, or any object with a buffer.

Local files are mapped, so nothing is copied and pages are read when they are used. A mapped file
must not shrink while it is in use: the system then ends the process (SIGBUS). `open_ranges` copies
instead, for files that may shrink. Objects in stores are read in ranges too.
`wirescan.files.object_store` describes their URLs.
"""

from __future__ import annotations

import builtins
import errno
import glob
import mmap
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, unquote_to_bytes

import numpy as np

from wirescan.core.parallel import map_in_order
from wirescan.core.rows import Block
from wirescan.files import object_ranges, object_store
from wirescan.files.file_pattern import is_left_out, report_left_out
from wirescan.files.object_ranges import read_ahead as read_ahead
from wirescan.files.object_store import URL as URL
from wirescan.files.translated import find_translator
from wirescan.frames.escape import make_visible

GLOB = re.compile(r"[*?\[]")
LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)
# Sources that are recognized by their type alone. A subclass may be a path or a file too.
BUFFERS = (bytes, bytearray, memoryview, np.ndarray)
# The ending of a boundary index, which is written beside a file. Such a file is never read as data.
SIDECAR = ".frames.json"
Result = TypeVar("Result")


class File(NamedTuple):
    """A file or object, and its size in bytes."""

    path: str
    size: int


class MappedFile(mmap.mmap):
    """A file mapped for reading, from its first byte to `length` (default: its size).

    It pickles as its path and length, so that a pickled table over it does not hold the bytes. The
    process that unpickles it must see the same file at this path. Raises EOFError where the file
    has less than `length` bytes.
    """

    path: str

    def __new__(cls, path: str, length: int | None = None) -> MappedFile:
        """Map the file."""
        with builtins.open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if length is not None and size < length:
                raise EOFError(
                    f"{make_visible(path)} has {size} bytes now, "
                    f"and had at least {length} when it was read"
                )
            self = super().__new__(
                cls, file.fileno(), size if length is None else length, access=mmap.ACCESS_READ
            )
        self.path = path
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedFile, (self.path, len(self))


def open(
    source: Any, *, files: str | None = None, ignore: str | None = None
) -> tuple[memoryview, ...]:
    """Return the buffers of a source, each a contiguous memoryview of bytes.

    source: one of
      a path or URL      a URL of the scheme `file` is the path in it, percent-decoded
      a glob             of paths or URLs; directories that match are read too
      a directory        all files in it and in its subdirectories, in order of their names
      a file object      binary; it is read to its end
      bytes-like         bytes, memoryview, mmap, numpy array, pyarrow.Buffer
      a list             of these
    files: regular expression. In a directory, only files are read whose path in it matches.
    ignore: regular expression. A glob excludes files and directories whose path matches. The path
        starts with the "/" before the glob's first pattern.

    Regular expressions match anywhere in the path. Directories and globs never give sidecars
    (`*.frames.json`).

    Raises FileNotFoundError where nothing matches; OSError of the file system or store, with the
    path or URL; TypeError for any other object or one that is not contiguous; ValueError for a URL
    of an unknown store.
    """
    if type(source) in BUFFERS:
        return (view_of(source),)
    if isinstance(source, (str, os.PathLike)):
        paths = expand(source, files=files, ignore=ignore)
        return tuple(map(_map_file, read_ahead(paths)))
    if isinstance(source, (list, tuple)):
        return tuple(
            view
            for item in read_ahead(source, _find_path)
            for view in open(item, files=files, ignore=ignore)
        )
    if hasattr(source, "read") and not isinstance(source, mmap.mmap):
        source = source.read()
        if isinstance(source, str):
            raise TypeError("the file is open in text mode; open it in binary mode")
    return (view_of(source),)


def view_of(data: Any) -> memoryview:
    """Return a bytes-like object as a contiguous memoryview of bytes, without a copy.

    Raises TypeError for an object that is not bytes-like or not contiguous.
    """
    if type(data) is bytes:
        return memoryview(data)
    try:
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data).view(np.uint8) if data.flags.c_contiguous else data
        view = memoryview(data)
    except (TypeError, ValueError) as error:
        raise TypeError(f"neither a path nor a bytes-like object: {type(data).__name__}") from error
    if not view.c_contiguous:
        raise TypeError("the buffer is not contiguous; copy it first")
    return view.cast("B") if view.nbytes else memoryview(b"")


def expand(
    source: str | os.PathLike[str], *, files: str | None = None, ignore: str | None = None
) -> list[str]:
    """Return the paths or URLs of a path, glob, directory or URL, in order.

    A path without a pattern need not exist; a URL must. Arguments and errors are those of `open`.
    """
    path = to_plain_path(source)
    if URL.match(path):
        names = [file.path for file in _list_store(path, files, ignore)]
    else:
        names = _list_local(path, files, ignore)
    return _drop_unreadable(path, names)


def list_files(
    source: str | os.PathLike[str], *, files: str | None = None, ignore: str | None = None
) -> list[File]:
    """Return the files of a path, glob, directory or URL, in order, with their sizes.

    The sizes of objects come from the listing, without a request for each object.
    Raises as `open`, and OSError for a file that cannot be read in parts, such as a pipe.
    """
    path = to_plain_path(source)
    if URL.match(path):
        listed = _list_store(path, files, ignore)
        if not any(find_translator(file.path) for file in listed):
            return listed
        sizes = {file.path: file.size for file in listed}
        names = _drop_unreadable(path, list(sizes))
        translated = list(filter(find_translator, names))
        sizes |= zip(translated, get_sizes(translated))
        return [File(name, sizes[name]) for name in names]
    names = _drop_unreadable(path, _list_local(path, files, ignore))
    return [File(name, get_seekable_size(name)) for name in names]


def get_file_name(path: str) -> str:
    """Return the last name in a path or URL: "0.log" for "s3://bucket/0.log?region=eu"."""
    return os.path.basename(_get_plain_path(path))


def list_directory_names(path: str) -> list[str]:
    """Return the names of the directories that a file is in, the innermost first.

    path: a path or URL: "s3://bucket/logs/orders-0/0.log" gives ["orders-0", "logs"]. "-", for
        standard input, is in none.
    """
    if path == "-":
        return []
    plain = _get_plain_path(path) if URL.match(path) else os.path.abspath(path)
    return [name for name in reversed(plain.split("/")[:-1]) if name]


def _get_plain_path(path: str) -> str:
    return unquote(object_store.split(path)[1]) if URL.match(path) else path


def make_sibling_path(path: str, ending: str) -> str:
    """Return the path or URL with another ending.

    `make_sibling_path("0.log", ".index")` is "0.index".
    """
    root, plain, options = object_store.split(path) if URL.match(path) else ("", path, "")
    return root + os.path.splitext(plain)[0] + ending + options


def join_path(directory: str, name: str) -> str:
    """Return the path or URL of a file in a directory."""
    if not URL.match(directory):
        return os.path.join(directory, name)
    root, plain, options = object_store.split(directory)
    return f"{root}{plain.rstrip('/')}/{object_store.quote(name)}{options}"


def get_size(path: str) -> int:
    """Return the size of a file or object in bytes. Raises FileNotFoundError, OSError."""
    return object_ranges.get_size(path) if is_object(path) else get_stamp(path)[0]


def exists(path: str) -> bool:
    """Return whether there is a file or object. Raises OSError if a store does not answer."""
    try:
        get_stamp(path)
    except FileNotFoundError:
        return False
    return True


def get_sizes(paths: Sequence[str]) -> list[int]:
    """Return the sizes of files and objects. Stores are asked for several at the same time.

    Raises FileNotFoundError, OSError.
    """
    return _map(get_size, paths)


def get_stamp(path: str) -> tuple[int, int]:
    """Return (size in bytes, time of the last change) of a file or object.

    The time is in nanoseconds since 1970, or 0 where a store does not report it.
    Raises FileNotFoundError, OSError.
    """
    translator = find_translator(path)
    return get_stored_stamp(path) if translator is None else translator.get_stamp(path)


def get_stored_stamp(path: str) -> tuple[int, int]:
    """Return what `get_stamp` does, for the file as it is stored."""
    if URL.match(path):
        return object_store.get_stamp(path)
    state = os.stat(path)
    return state.st_size, state.st_mtime_ns


def get_seekable_size(path: str) -> int:
    """Return the size in bytes of a file or object that can be read in parts.

    Raises FileNotFoundError, and OSError for a pipe or a device, which cannot be read in parts.
    """
    return stat_file(path).st_size if is_local(path) else get_size(path)


def is_local(path: str) -> bool:
    """Return whether a path is that of a file that is read as it is, and not of an object."""
    return not URL.match(path) and find_translator(path) is None


def is_object(path: str) -> bool:
    """Return whether a path is the URL of an object that is read as it is stored."""
    return bool(URL.match(path)) and find_translator(path) is None


def stat_file(path: str) -> os.stat_result:
    """Return the state of a local file. Raises as `get_seekable_size`."""
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.ESPIPE, "not a regular file, so it cannot be read in parts", path)
    return state


def map_local_file(path: str) -> memoryview | None:
    """Return the bytes of a file, mapped; None if it cannot be mapped.

    Objects in stores, empty files and pipes cannot be mapped, files of some file systems, and files
    that are computed from others.

    Raises FileNotFoundError, OSError.
    """
    if not is_local(path):
        return None
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode) or not state.st_size:
        return None
    try:
        return memoryview(MappedFile(path))
    except OSError as error:
        if error.errno == errno.ENODEV:  # the file system cannot map files
            return None
        raise


@contextmanager
def open_ranges(path: str) -> Iterator[Callable[[int, int], memoryview]]:
    """Open a file or object, and give a function that copies the bytes between two positions.

    The function returns fewer bytes where the file ends before. Raises FileNotFoundError, OSError.
    """
    translator = find_translator(path)
    with open_stored_ranges(path) if translator is None else translator.open_ranges(path) as read:
        yield read


@contextmanager
def open_stored_ranges(path: str) -> Iterator[Callable[[int, int], memoryview]]:
    """Open a file or object as it is stored, as `open_ranges` does."""
    if URL.match(path):
        with object_ranges.open_ranges(path) as read:
            yield read
        return
    with builtins.open(path, "rb", buffering=0) as file:

        def read_file(start: int, stop: int) -> memoryview:
            file.seek(start)
            return read_some(file, max(stop - start, 0))

        yield read_file


def read_range(path: str, start: int, stop: int) -> memoryview:
    """Return a copy of the bytes from start to stop, fewer where the file ends before.

    For several ranges of a file use `open_ranges`. Raises FileNotFoundError, OSError.
    """
    with open_ranges(path) as read:
        return read(start, stop)


@contextmanager
def open_descriptor(path: str) -> Iterator[int]:
    """Open a file and give its descriptor; -1 for an object in a store and for a computed file.

    Raises FileNotFoundError, OSError.
    """
    if not is_local(path):
        yield -1
        return
    with builtins.open(path, "rb", buffering=0) as file:
        yield file.fileno()


def read_some(
    file: Any, size: int, advance: Callable[[int], None] = lambda count: None
) -> memoryview:
    """Read `size` bytes of a binary file, fewer where it ends, into a read-only buffer.

    advance: called with the number of bytes after each read.
    """
    data = memoryview(Block(size))
    filled = 0
    while filled < size and (count := file.readinto(data[filled:])):
        filled += count
        advance(count)
    return data[:filled].toreadonly()


def to_plain_path(source: str | os.PathLike[str]) -> str:
    """Return a path or URL as text. A URL of the scheme `file` becomes the path in it."""
    path = os.fspath(source)
    local = LOCAL.match(path)
    return os.fsdecode(unquote_to_bytes(os.fsencode(path[local.end() :]))) if local else path


def _map(function: Callable[[str], Result], paths: Sequence[str]) -> list[Result]:
    """Return the results of a function for paths. It asks for several objects at the same time."""
    workers = object_ranges.OBJECTS if any(map(URL.match, paths)) else 1
    return list(map_in_order(function, paths, workers))


def _find_path(source: Any) -> str:
    """Return the path or URL of a source; "" if it has none."""
    return to_plain_path(source) if isinstance(source, (str, os.PathLike)) else ""


def _drop_unreadable(source: str, names: list[str]) -> list[str]:
    """Return the names without computed files whose bytes are not stored whole.

    source: the path, glob or directory that was listed. A file that it names itself stays.
    """
    translated = [name for name in names if name != source and find_translator(name) is not None]
    missing = {name for name, is_there in zip(translated, _map(exists, translated)) if not is_there}
    readable = [name for name in names if name not in missing]
    if not readable:
        raise _make_no_files_error(object_store.redact_url(source))
    return readable


def _list_store(url: str, files: str | None, ignore: str | None) -> list[File]:
    if size := object_ranges.find_opened_size(url):  # an empty object may stand for a directory
        return [File(url, size)]
    left_out: list[str] = []

    def is_asked_for(name: str) -> bool:
        if is_left_out(name, files):
            left_out.append(name)
        return _is_asked_for(name, files)

    objects = object_store.list_objects(url, is_asked_for, lambda name: _is_left_out(name, ignore))
    if left_out and not objects:
        objects = object_store.list_objects(
            url, lambda name: is_left_out(name, files), lambda name: _is_left_out(name, ignore)
        )
    elif left_out:
        report_left_out(object_store.redact_url(url), left_out, files)
    if not objects:
        raise _make_no_files_error(object_store.redact_url(url))
    return [File(*entry) for entry in objects]


def _list_local(path: str, files: str | None, ignore: str | None) -> list[str]:
    if os.path.isdir(path):
        names = _list_directory(path, files)
    elif (magic := GLOB.search(path)) and not os.path.exists(path):
        names = _remove_duplicates(_list_glob(path, magic.start(), files, ignore))
    else:
        return [path]
    if not names:
        raise _make_no_files_error(path)
    return names


def _list_glob(path: str, magic: int, files: str | None, ignore: str | None) -> list[str]:
    """Return the files of a glob. magic: position of its first pattern."""
    names = []
    # The caller named this directory, so `ignore` does not apply to it.
    fixed = os.path.dirname(path[:magic])
    for name in sorted(glob.glob(path, recursive=True)):
        is_directory = os.path.isdir(name)
        if _is_left_out(name[len(fixed) :].lstrip("/") + "/" * is_directory, ignore):
            continue
        if not is_directory:
            names.append(name)
        elif os.path.basename(path) != "**":  # this pattern also matches the files in the directory
            names += _list_directory(name, files)
    return names


def _remove_duplicates(names: list[str]) -> list[str]:
    """Return each file once, by its first name: links may lead to a file twice."""
    resolve = cache(os.path.realpath)
    first_names: dict[str, str] = {}
    for name in names:
        folder, last = os.path.split(name)
        is_link = os.path.islink(name)
        real = os.path.realpath(name) if is_link else f"{resolve(folder)}/{last}"
        first_names.setdefault(real, name)
    return list(first_names.values())


def _make_no_files_error(path: str) -> FileNotFoundError:
    return FileNotFoundError(f"no file to read in {path}: name the files, or use a glob")


def _list_directory(directory: str, files: str | None) -> list[str]:
    root = len(os.path.join(directory, ""))
    paths = (
        os.path.join(folder, name)
        for folder, _, names in os.walk(directory, onerror=_raise)
        for name in names
    )
    return sorted(_choose_files(paths, root, files, directory))


def _choose_files(paths: Iterable[str], root: int, files: str | None, directory: str) -> list[str]:
    """Return the files of a directory that are read.

    paths: all its files. root: where their paths in the directory begin.
    """
    chosen: list[str] = []
    left_out: list[str] = []
    for path in paths:
        if _is_asked_for(path[root:], files):
            chosen.append(path)
        elif is_left_out(path[root:], files):
            left_out.append(path)
    if not chosen:
        return left_out
    if left_out:
        report_left_out(directory, (path[root:] for path in left_out), files)
    return chosen


def _is_asked_for(path: str, files: str | None) -> bool:
    """Return whether a file of a directory is read. path: its path in the directory."""
    return not path.endswith(SIDECAR) and (not files or re.search(files, path) is not None)


def _is_left_out(path: str, ignore: str | None) -> bool:
    """Return whether a glob excludes a match.

    path: its path from the glob's first pattern on; that of a directory ends in "/".
    """
    return path.endswith(SIDECAR) or bool(ignore and re.search(ignore, "/" + path))


def _raise(error: OSError) -> None:
    raise error


def _map_file(path: str) -> memoryview:
    """Return the bytes of a file or object, mapped where possible."""
    if URL.match(path) or find_translator(path) is not None:
        return read_range(path, 0, get_size(path))
    view = map_local_file(path)
    if view is not None:
        return view
    with builtins.open(path, "rb") as file:
        return memoryview(file.read())
