"""Objects in stores: their names, sizes and times. `object_ranges.py` reads their bytes.

A URL is scheme://bucket/path?option=value. The schemes are those of pyarrow's file systems (s3, gs,
abfs, hdfs) and az, which is another name of abfs. The path is percent-encoded, so that * ? [ in a
name differ from the patterns of a glob. The options are pyarrow's, such as endpoint_override and
region, and those of `wirescan.files.store_connection`. Each listed URL keeps them. Credentials
belong in the environment.
"""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, unquote

from wirescan.files import store_connection
from wirescan.files.store_connection import get_store_kind
from wirescan.files.store_errors import convert_error, make_no_bucket_error
from wirescan.files.store_errors import redact_url as redact_url

URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
# The groups are root, path and options.
PARTS = re.compile(r"(?is)([a-z][a-z0-9+.-]+://[^/?*\[]*)(/.*?)?/*(\?\w+=.*)?")
MAGIC = re.compile(r"[*?\[]")
KINDS_WITH_BUCKETS = ("s3", "abfs", "gs")
ENCODED = re.compile(r"(?:%[0-9a-f]{2})+", re.IGNORECASE)


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
    file_system, name = open_file_system(url)
    with name_url_in_errors(url):
        info = file_system.get_file_info(name)
        if not info.is_file:
            check_bucket(file_system, name, url)
            raise FileNotFoundError
    return int(info.size), int(info.mtime_ns or 0)


def write(url: str, data: bytes) -> None:
    """Write an object, and replace an object of the same name. Raises OSError."""
    file_system, name = open_file_system(url)
    # By default pyarrow compresses an object whose name ends with .gz and the like.
    with name_url_in_errors(url), file_system.open_output_stream(name, compression=None) as file:
        file.write(data)


def open_file_system(url: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a URL, and the name of the object in it.

    Raises ValueError for a URL of no store, and OSError.
    """
    root, path, options = split(url)
    file_system, name = _connect(root, options)
    path = name + unquote(path)
    # Some URLs of Azure have the container in the path.
    return file_system, path.lstrip("/") if get_store_kind(url) == "abfs" else path


@contextmanager
def name_url_in_errors(url: str) -> Iterator[None]:
    """Turn errors of a store into errors of a file system that name the URL."""
    try:
        yield
    except Exception as error:
        fault = find_store_error(error)
        if fault is None:
            raise
        raise convert_error(fault, url) from None


def find_store_error(error: Exception) -> OSError | None:
    """Return the OSError for an error of pyarrow; None if no store is the reason of the error."""
    if isinstance(error, OSError):
        return error
    from pyarrow import ArrowException

    # pyarrow raises exactly this class if Azure's client finds no login.
    return OSError(str(error)) if type(error) is ArrowException else None


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
    file_system, top = open_file_system(root + fixed + options)
    with name_url_in_errors(url):
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


def list_names(url: str) -> list[str]:
    """Return the names of the objects in a directory, without those in its subdirectories.

    Raises FileNotFoundError, OSError, ValueError.
    """
    file_system, folder = open_file_system(url)
    with name_url_in_errors(url):
        infos = _list(file_system, folder, recursive=False)
    return [_make_relative_path(folder, info) for info in infos if info.is_file]


def check_bucket(file_system: Any, name: str, url: str) -> None:
    """Raise FileNotFoundError if the bucket of an object does not exist."""
    bucket, separator, _ = name.partition("/")
    kind = get_store_kind(url)
    if not separator or kind not in KINDS_WITH_BUCKETS:
        return
    try:
        exists = _exists(file_system, bucket)
    except OSError:
        if kind == "s3":
            raise
        return  # in Azure and Google Cloud, reading objects needs no permission for buckets
    if not exists:
        raise make_no_bucket_error(url)


def _exists(file_system: Any, name: str) -> bool:
    from pyarrow.fs import FileType

    return bool(file_system.get_file_info(name).type != FileType.NotFound)


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
    # pyarrow lists no directories of Google Cloud: all objects are listed at once.
    has_directories = file_system.type_name != "gcs"
    deep = patterns[0] == "**" or not has_directories
    infos = _list(file_system, folder, recursive=deep)
    if not has_directories:
        infos = [*infos, *_make_directories(infos, folder)]
    for info in infos:
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


def _make_directories(infos: list[Any], folder: str) -> list[Any]:
    """Return the directories in a folder that files are in, and that are not among `infos`."""
    from pyarrow.fs import FileInfo, FileType

    top = folder.rstrip("/")
    paths = set()
    for info in infos:
        path = posixpath.dirname(info.path)
        while len(path) > len(top) and path not in paths:
            paths.add(path)
            path = posixpath.dirname(path)
    paths -= {info.path for info in infos}
    return [FileInfo(path, FileType.Directory) for path in sorted(paths)]


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


def _connect(root: str, options: str) -> tuple[Any, str]:
    """Return the file system of a bucket, and the bucket's name. Raises ValueError and OSError."""
    try:
        return store_connection.connect(root, options)
    except (ValueError, NotImplementedError) as error:
        # pyarrow ends its messages with the URL, which may have a login.
        text = str(error).partition(": s3://")[0].partition(f": {root}")[0]
        raise ValueError(f"no file system for {redact_url(root)}: {text}") from None
    except OSError as error:
        raise convert_error(error, root) from None
