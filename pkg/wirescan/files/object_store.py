"""Objects in stores, which `wirescan.files.source` reads for URLs.

A URL is scheme://bucket/path?option=value. The schemes are those of pyarrow's file systems (s3, gs,
abfs, hdfs). The path is percent-encoded, so that * ? [ in a name differ from the patterns of a
glob. The options are pyarrow's, such as endpoint_override and region. Each listed URL keeps them.
Credentials belong in the environment.
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
# The groups are root, path and options.
PARTS = re.compile(r"(?is)([a-z][a-z0-9+.-]+://[^/?*\[]*)(/.*?)?/*(\?\w+=.*)?")
MAGIC = re.compile(r"[*?\[]")
ENCODED = re.compile(r"(?:%[0-9a-f]{2})+", re.IGNORECASE)
SECRETS = re.compile(r"(?s)(?<=//)[^/]*:[^/]*@|\?\w+=.*")  # credentials and options
# Texts in the errors of stores, by their meaning.
DENIED = re.compile(
    "ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT|HTTP status 403|Permission|Authorization"
)
MISSING = re.compile(r"NO_SUCH_|NOT_FOUND|HTTP status 404|NotFound")
NOISE = re.compile(r" \(Request ID: [^)]*\)| Detail: \[.*")


def split(url: str) -> tuple[str, str, str]:
    """Return (root, path, options) of a URL; root is the scheme and bucket, and each may be "".

    Raises ValueError for text that is not the URL of an object.
    """
    parts = PARTS.fullmatch(url)
    if parts is None:
        raise ValueError(f"not the URL of an object: {redact_url(url)}")
    return parts[1], parts[2] or "", parts[3] or ""


def get_stamp(url: str) -> tuple[int, int]:
    """Return (size in bytes, time of the last change) of an object.

    The time is in nanoseconds since 1970, or 0 where the store does not report it.
    Raises FileNotFoundError, OSError.
    """
    file_system, name = _open_file_system(url)
    with _name_url_in_errors(url):
        info = file_system.get_file_info(name)
        if not info.is_file:
            raise FileNotFoundError
    return int(info.size), int(info.mtime_ns or 0)


@contextmanager
def open_ranges(url: str) -> Iterator[Callable[[int, int], memoryview]]:
    """Open an object, and give a function that reads the bytes between two positions.

    It returns fewer bytes where the object ends before. Opening is one request, and each read is
    one. After several reads a last request checks that the object is still the same: if it became
    shorter, pyarrow returns bytes that are not in it. Raises FileNotFoundError, OSError.
    """
    file_system, name = _open_file_system(url)
    with _name_url_in_errors(url):
        file = file_system.open_input_file(name)
        end = file.size()
    read_count = 0

    def check_unchanged() -> None:
        with _name_url_in_errors(url), file_system.open_input_file(name) as reopened:
            if (reopened.size(), reopened.metadata()) != (end, file.metadata()):
                raise OSError(errno.ESTALE, "the object was replaced while it was read")

    def read(start: int, stop: int) -> memoryview:
        nonlocal read_count
        size = min(stop, end) - start
        read_count += size > 0
        try:
            return memoryview(file.read_at(size, start) if size > 0 else b"")
        except OSError as error:
            check_unchanged()
            raise _convert_error(error, url) from None

    with file:
        yield read
        if read_count > 1:
            check_unchanged()


def write(url: str, data: bytes) -> None:
    """Write an object, and replace an object of the same name. Raises OSError."""
    file_system, name = _open_file_system(url)
    with _name_url_in_errors(url), file_system.open_output_stream(name) as file:
        file.write(data)


def list_objects(
    url: str, is_asked_for: Callable[[str], object], is_left_out: Callable[[str], object]
) -> list[tuple[str, int]]:
    """Return the objects of a URL, a glob or a directory, as (URL, size in bytes), in order.

    The sizes come from the listing, without a request for each object.

    is_asked_for: returns whether an object of a directory is listed, by its path in the directory.
    is_left_out: returns whether a match of a glob is excluded, by its path from the first pattern
    on; the path of a directory ends in "/". Raises FileNotFoundError, OSError, ValueError.
    """
    root, path, options = split(url)
    fixed = path.rstrip("/")
    patterns: list[str] = []
    if magic := MAGIC.search(path):
        fixed, _, rest = path[: magic.start()].rpartition("/")
        patterns = (rest + path[magic.start() :]).split("/")
    file_system, top = _open_file_system(root + fixed + options)
    with _name_url_in_errors(url):
        if magic:
            chosen = []
            decoded = [ENCODED.sub(_escape_decoded, pattern) for pattern in patterns]
            for info in _match_glob(file_system, top, decoded):
                if is_left_out(_make_relative_path(top, info) + "/" * (not info.is_file)):
                    continue
                if info.is_file:
                    chosen.append(info)
                else:
                    chosen += _list_directory(file_system, info.path, is_asked_for)
        elif (info := file_system.get_file_info(top)).is_file:
            return [(url, int(info.size))]
        else:
            chosen = _list_directory(file_system, top, is_asked_for)
    sizes = {_make_relative_path(top, info): int(info.size) for info in chosen}
    return [(f"{root}{fixed}/{quote(name)}{options}", sizes[name]) for name in sorted(sizes)]


def redact_url(url: str) -> str:
    """Return a URL without credentials and options, for messages."""
    return SECRETS.sub("", url)


def _make_relative_path(folder: str, info: Any) -> str:
    """Return the path of an object, relative to a folder."""
    return str(info.path)[len(folder.rstrip("/")) + 1 :]


def _list(file_system: Any, folder: str, *, recursive: bool) -> list[Any]:
    from pyarrow.fs import FileSelector

    infos: list[Any] = file_system.get_file_info(FileSelector(folder, recursive=recursive))
    return infos


def _list_directory(
    file_system: Any, folder: str, is_asked_for: Callable[[str], object]
) -> list[Any]:
    return [
        info
        for info in _list(file_system, folder, recursive=True)
        if info.is_file and is_asked_for(_make_relative_path(folder, info))
    ]


def _match_glob(file_system: Any, folder: str, patterns: list[str]) -> Iterator[Any]:
    """Yield the matches of a glob in a folder, by one listing for each level and one for **."""
    deep = patterns[0] == "**"
    for info in _list(file_system, folder, recursive=deep):
        if not _fits(
            _make_relative_path(folder, info).split("/"), patterns if deep else patterns[:1]
        ):
            continue
        if deep or len(patterns) == 1:
            # The pattern ** also matches the files in a directory, so the directory is not needed.
            if info.is_file or patterns[-1] != "**":
                yield info
        elif not info.is_file:
            yield from _match_glob(file_system, info.path, patterns[1:])


def _fits(names: list[str], patterns: list[str]) -> bool:
    """Return whether a path matches a glob. As in `glob.glob`, a leading dot hides a name."""
    if not patterns or not names:
        return not names and patterns in ([], ["**"])
    visible = patterns[0][:1] == "." or names[0][:1] != "."
    if patterns[0] == "**":
        return _fits(names, patterns[1:]) or visible and _fits(names[1:], patterns)
    return visible and fnmatchcase(names[0], patterns[0]) and _fits(names[1:], patterns[1:])


def _escape_decoded(encoded: re.Match[str]) -> str:
    """Decode percent-encoded characters, and escape them so that a glob takes them literally."""
    return glob.escape(unquote(encoded[0]))


def _open_file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the name of the object in it."""
    root, path, options = split(url)
    file_system, name = _connect(root, options)
    return file_system, name + unquote(path)


@cache
def _connect(root: str, options: str) -> tuple[Any, str]:
    """Return the file system of a bucket, and the bucket's name.

    It is created once for each process, so that its connections are reused.
    """
    from pyarrow import fs

    plain = re.sub("(?i)^s3[an]://", "s3://", root)  # names that Hadoop uses
    try:
        file_system, name = fs.FileSystem.from_uri(f"{plain}/{options}")
    except (ValueError, NotImplementedError) as error:
        raise ValueError(
            f"no file system for {redact_url(root)}: {str(error).partition(': ' + plain)[0]}"
        ) from None
    except OSError as error:
        raise _convert_error(error, root) from error
    return file_system, name.rstrip("/")


@contextmanager
def _name_url_in_errors(url: str) -> Iterator[None]:
    """Turn errors of a store into errors of a file system that name the URL."""
    try:
        yield
    except OSError as error:
        raise _convert_error(error, url) from None


def _convert_error(error: OSError, url: str) -> OSError:
    """Return the error of a file system for an error of a store."""
    text = NOISE.sub("", error.strerror or str(error))
    if DENIED.search(text):
        return PermissionError(errno.EACCES, text, redact_url(url))
    if isinstance(error, FileNotFoundError) or MISSING.search(text):
        return FileNotFoundError(errno.ENOENT, "no such object", redact_url(url))
    return OSError(error.errno or errno.EIO, text, redact_url(url))
