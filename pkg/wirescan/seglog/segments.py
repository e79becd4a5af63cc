"""The segments of a log directory: what a protocol declares of them, and a walk over one.

A segment is a file of frames without gaps; the last one may be torn. Its name is its first offset,
with the ending .log. An .index beside it has the offset and the position of some of its frames.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from wirescan.files import object_store
from wirescan.files.incremental import FrameScanner
from wirescan.files.source import (
    URL,
    MappedFile,
    get_file_name,
    get_size,
    join_path,
    list_files,
    read_range,
)
from wirescan.files.translated import find_translator
from wirescan.frames.limits import Limits
from wirescan.frames.logs import OFFSET_END, SegmentNames
from wirescan.seglog.index_entries import IndexLayout

WINDOW = 16 << 10  # bytes of the first window of a walk; each next window is twice as large

Scan = Callable[..., tuple[np.ndarray, int, int, int]]  # `scan` of an outermost `Format`


@dataclass(frozen=True)
class SegmentLayout:
    """What a protocol package declares of the segments of its logs.

    scan: scans the frames of a buffer: `scan` of an outermost `Format`.
    names: how segments are named.
    index: how the .index is stored. Its entries have the columns `offset` and `position`, which
        rise. An `offset` is in the frame at the position, or in one appended together with it.
    first, last, time: columns of a frame: its first and last offset, and its latest time.
    is_after: row, offset -> whether no record in the frame is before an offset.
    find_time_hint: path of a segment, bytes of the segment, time -> (time, offset) of the last
        frame before that time by an index; None if no index has one.
    """

    scan: Scan
    names: SegmentNames
    index: IndexLayout
    first: str
    last: str
    time: str
    is_after: Callable[[np.void, int], bool]
    find_time_hint: Callable[[str, int, int], tuple[int, int] | None]


@dataclass(frozen=True)
class Segment:
    """A segment of a log directory.

    base_offset: the offset in the file's name. path: of the .log file. size: bytes of the .log file
    when the directory was listed. newest: whether it is the newest segment of its directory. Only
    the newest segment may end inside a frame. The others end with a frame or with zeros.
    """

    base_offset: int
    path: str
    size: int
    newest: bool

    def view(self) -> memoryview | RangeView:
        """Map the bytes of the segment. Raises OSError, EOFError if the file has become shorter.

        The view of a segment that cannot be mapped reads what is sliced of it.
        """
        if URL.match(self.path) or find_translator(self.path) is not None:
            return RangeView(self.path, self.size)
        return memoryview(MappedFile(self.path, self.size) if self.size else b"")

    def is_torn(self, rest: memoryview) -> bool:
        """Return whether bytes after the last frame are damage.

        They are no damage in the newest segment. Zeros are no damage: servers preallocate files.
        """
        return not self.newest and bool(np.frombuffer(rest, np.uint8).any())


class RangeView:
    """Bytes of a file that are read when they are sliced, as `view[start:stop]`.

    path: of the file. size: its bytes.
    """

    def __init__(self, path: str, size: int):
        self.path = path
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, range: slice) -> memoryview:
        start, stop, _ = range.indices(self.size)
        return read_range(self.path, start, stop)


def list_names(directory: str) -> list[str]:
    """Return the sorted names of the files in a directory of a path or URL.

    Raises NotADirectoryError, OSError.
    """
    if URL.match(directory):
        return sorted(_list_objects(directory))
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"not a directory: {directory}")
    return sorted(os.listdir(directory))


def _list_objects(directory: str) -> dict[str, int]:
    """Return name -> bytes of the objects in a directory of a store. Raises OSError."""
    named = [(get_file_name(file.path), file) for file in list_files(directory)]
    return {name: file.size for name, file in named if file.path == join_path(directory, name)}


AnySegment = TypeVar("AnySegment", bound=Segment)


def list_segments(
    directory: str, names: SegmentNames, kind: type[AnySegment]
) -> tuple[AnySegment, ...]:
    """Return the segments in a directory, in the order of their offsets.

    directory: a path, or the URL of a directory in an object store. Segments that are stored in
        chunks are included if they are stored whole.

    names: how they are named. Files that a server is about to delete or to put in place have other
    names. kind: the class of the results.
    Raises NotADirectoryError, FileNotFoundError if there is no segment, OSError.
    """
    # The listing of a store has the sizes, which would otherwise take a request each.
    objects = _list_objects(directory) if URL.match(directory) else None
    bases = {}
    sizes = {}
    for name in list_names(directory) if objects is None else sorted(objects):
        segment_name = names.parse(name)
        if not segment_name or segment_name.prefix or segment_name.base >= OFFSET_END:
            continue
        path = join_path(directory, name)
        bases[path] = segment_name.base
        if objects is not None:
            sizes[path] = objects[name]
        elif os.path.isfile(path):
            with suppress(FileNotFoundError):
                sizes[path] = get_size(path)
    if not sizes:
        raise FileNotFoundError(f"no segment in {object_store.redact_url(directory)}")
    *_, last = sizes
    return tuple(kind(bases[path], path, size, path == last) for path, size in sizes.items())


def walk(
    view: memoryview | RangeView, start: int, scan: Scan, limits: Limits
) -> Iterator[np.ndarray]:
    """Yield the rows of the frames from byte position `start` on, in windows that grow.

    A frame begins at `start`. Bad rows are included, as in the mode "mark". The column `start`
    counts from the first byte of the view.
    """
    limits = Limits(frame=limits.frame)
    scanner = FrameScanner(scan, check=True, resync=True, limits=limits, offset=start)
    size = WINDOW
    more = True
    while more and scanner.offset < len(view):
        stop = scanner.offset + size
        more = stop < len(view)
        scanned = scanner.read(view[scanner.offset : stop], more=more)
        rows = scanned.rows.copy()
        rows["start"] += scanned.offset
        yield rows
        size *= 2
