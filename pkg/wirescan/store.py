"""Objects in stores, by URLs: scheme://bucket/path?option=value, for the file systems of pyarrow (s3, gs, abfs, hdfs).

The path is percent-encoded, so that * ? [ in a name can be told from the patterns of a glob. The options are pyarrow's,
such as endpoint_override and region; they go along with each URL that is listed. Logins belong into the environment.
"""
from __future__ import annotations

import errno
import glob
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
PARTS = re.compile(r"(?is)([a-z][a-z0-9+.-]+://[^/?*\[]*)(/.*?)?/*(\?\w+=.*)?")         # root, path, options
MAGIC = re.compile(r"[*?\[]")
ENCODED = re.compile(r"(?:%[0-9a-f]{2})+", re.IGNORECASE)
ASIDE = re.compile(r"(?s)(?<=//)[^/]*:[^/]*@|\?\w+=.*")      # login and options
# What the stores' own words come down to.
DENIED = re.compile("ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT|HTTP status 403|Permission|Authorization")
MISSING = re.compile(r"NO_SUCH_|NOT_FOUND|HTTP status 404|NotFound")
NOISE = re.compile(r" \(Request ID: [^)]*\)| Detail: \[.*")


def split(url: str) -> tuple[str, str, str]:
    """The root of a URL (scheme and bucket), its path, and its options, each of which may be "". Raises ValueError."""
    parts = PARTS.fullmatch(url)
    if parts is None:
        raise ValueError(f"not the URL of an object: {shown(url)}")
    return parts[1], parts[2] or "", parts[3] or ""


def size_of(url: str) -> int:
    """The size of an object in bytes. Raises FileNotFoundError, OSError."""
    file_system, name = _file_system(url)
    with _naming(url):
        info = file_system.get_file_info(name)
        if not info.is_file:
            raise FileNotFoundError
    return int(info.size)


@contextmanager
def ranges(url: str) -> Iterator[Callable[[int, int], memoryview]]:
    """A function that reads the bytes of an object from one offset to another, fewer where it ends before. To open it
    is a request, each reading is one, and where there were several of these a last one finds out whether the object is
    still the same: of one that became shorter pyarrow gives bytes that are none. Raises FileNotFoundError, OSError.
    """
    file_system, name = _file_system(url)
    with _naming(url):
        file = file_system.open_input_file(name)
        end, readings = file.size(), 0

    def check() -> None:
        with _naming(url), file_system.open_input_file(name) as now:
            if (now.size(), now.metadata()) != (end, file.metadata()):
                raise OSError(errno.ESTALE, "the object was replaced while it was read")

    def read(start: int, stop: int) -> memoryview:
        nonlocal readings
        size = min(stop, end) - start
        readings += size > 0
        try:
            return memoryview(file.read_at(size, start) if size > 0 else b"")
        except OSError as error:
            check()
            raise _renamed(error, url) from None

    with file:
        yield read
        if readings > 1:
            check()


def write(url: str, data: bytes) -> None:
    """Write an object; one of that name is replaced. Raises OSError."""
    file_system, name = _file_system(url)
    with _naming(url), file_system.open_output_stream(name) as file:
        file.write(data)


def found(url: str, is_asked_for: Callable[[str], object],
          is_left_out: Callable[[str], object]) -> list[tuple[str, int]]:
    """The objects that a URL, a glob of URLs or a directory stands for, in order: the URL and size in bytes of each, as
    they were listed, without a request for each.

    is_asked_for: told the path of an object in its directory. is_left_out: told the path of what a glob finds from
    the first pattern on; a directory's ends in "/". Raises FileNotFoundError, OSError, ValueError.
    """
    root, path, options = split(url)
    fixed, patterns = path.rstrip("/"), list[str]()
    if magic := MAGIC.search(path):
        fixed, _, rest = path[:magic.start()].rpartition("/")
        patterns = (rest + path[magic.start():]).split("/")
    file_system, top = _file_system(root + fixed + options)
    with _naming(url):
        if magic:
            chosen = []
            for one in _matching(file_system, top, [ENCODED.sub(_literally, part) for part in patterns]):
                if is_left_out(_below(top, one) + "/" * (not one.is_file)):
                    continue
                chosen += [one] if one.is_file else _inside(file_system, one.path, is_asked_for)
        elif (one := file_system.get_file_info(top)).is_file:
            return [(url, int(one.size))]
        else:
            chosen = _inside(file_system, top, is_asked_for)
    once = {_below(top, one): int(one.size) for one in chosen}
    return [(f"{root}{fixed}/{quote(name)}{options}", once[name]) for name in sorted(once)]


def shown(url: str) -> str:
    """A URL for people: without the login that may stand in it, and without options."""
    return ASIDE.sub("", url)


def _below(folder: str, info: Any) -> str:
    return str(info.path)[len(folder.rstrip("/")) + 1:]


def _list(file_system: Any, folder: str, recursive: bool = True) -> list[Any]:
    from pyarrow.fs import FileSelector
    return file_system.get_file_info(FileSelector(folder, recursive=recursive))


def _inside(file_system: Any, folder: str, is_asked_for: Callable[[str], object]) -> list[Any]:
    return [one for one in _list(file_system, folder) if one.is_file and is_asked_for(_below(folder, one))]


def _matching(file_system: Any, folder: str, patterns: list[str]) -> Iterator[Any]:
    """What a glob finds in a folder, a level at a time, and from ** on by one listing."""
    deep = patterns[0] == "**"
    for one in _list(file_system, folder, deep):
        if not _fits(_below(folder, one).split("/"), patterns if deep else patterns[:1]):
            continue
        if deep or len(patterns) == 1:
            if one.is_file or patterns[-1] != "**":         # which meets the files in it by itself
                yield one
        elif not one.is_file:
            yield from _matching(file_system, one.path, patterns[1:])


def _fits(names: list[str], patterns: list[str]) -> bool:
    """Whether a path fits a glob, as `glob.glob` has it: names that begin with a dot are hidden."""
    if not patterns or not names:
        return not names and patterns in ([], ["**"])
    visible = patterns[0][:1] == "." or names[0][:1] != "."
    if patterns[0] == "**":
        return _fits(names, patterns[1:]) or visible and _fits(names[1:], patterns)
    return visible and fnmatchcase(names[0], patterns[0]) and _fits(names[1:], patterns[1:])


def _literally(encoded: re.Match[str]) -> str:
    return glob.escape(unquote(encoded[0]))


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and what the object is called there."""
    root, path, options = split(url)
    file_system, name = _connected(root, options)
    return file_system, name + unquote(path)


@cache
def _connected(root: str, options: str) -> tuple[Any, str]:
    """The file system of a bucket, and the bucket's name. Once in a process, so that its connections are used again."""
    from pyarrow import fs
    plain = re.sub("(?i)^s3[an]://", "s3://", root)         # as Hadoop calls it
    try:
        file_system, name = fs.FileSystem.from_uri(f"{plain}/{options}")
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"no file system for {shown(root)}: {str(error).partition(': ' + plain)[0]}") from None
    except OSError as error:
        raise _renamed(error, root) from error
    return file_system, name.rstrip("/")


@contextmanager
def _naming(url: str) -> Iterator[None]:
    """Errors of a store become those of a file system, and name the URL."""
    try:
        yield
    except OSError as error:
        raise _renamed(error, url) from None


def _renamed(error: OSError, url: str) -> OSError:
    text = NOISE.sub("", error.strerror or str(error))
    if DENIED.search(text):
        return PermissionError(errno.EACCES, text, shown(url))
    if isinstance(error, FileNotFoundError) or MISSING.search(text):
        return FileNotFoundError(errno.ENOENT, "no such object", shown(url))
    return OSError(error.errno or errno.EIO, text, shown(url))
