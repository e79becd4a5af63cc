"""Read the files beside the segments of a log: indexes of fixed-size entries, and text checkpoints.

An index has the name of its segment, with another ending. Its entries are big-endian. While a
server writes to an index, zeros may follow the entries.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.source import (
    URL,
    exists,
    get_file_name,
    get_seekable_size,
    open_ranges,
    read_range,
)
from wirescan.frames.errors import NEAR, FrameError
from wirescan.frames.escape import make_visible
from wirescan.frames.logs import OFFSET_END

LARGEST = 1 << 31  # the files beside segments have fewer bytes
PAGE = 16 << 10  # bytes of an index that a search reads together
OBJECT_PAGE = 1 << 20  # the same for an object in a store, where each read is a request
ID = re.compile(r"-[A-Za-z0-9_-]{22}\Z")  # may follow the offset in a name: 16 bytes in base64
MAX_DIGITS = 19  # digits of the largest i8

Entry = dict[str, int]  # column -> number, with an absolute offset


@dataclass(frozen=True)
class IndexLayout:
    """How an index is stored.

    entry: dtype of an entry in the file. A column `offset` counts from the first offset of the
        segment.
    dtype: of the entries that are returned. Their `offset` is absolute.
    find_faults: first offset of the segment, entries of `dtype` -> for each fault a bool array, the
        entries with this fault. The first fault with an entry is the one that is reported.
    is_preallocated: whether zeros at the end of the file are no entries.
    may_be_cut: whether an entry that the end of the file cuts is ignored.
    """

    entry: np.dtype
    dtype: np.dtype
    find_faults: Callable[[int, np.ndarray], Iterable[tuple[Fault, np.ndarray]]]
    is_preallocated: bool = True
    may_be_cut: bool = False


def parse_base_offset(path: str) -> int:
    """Return the offset in a file's name. Raises ValueError if the name has no valid offset."""
    base = int(ID.sub("", get_file_name(path).split(".")[0]))
    if not 0 <= base < OFFSET_END:
        raise ValueError(f"the name of {make_visible(path)} is not an offset of a log: {base}")
    return base


def read_side_file(path: str) -> memoryview:
    """Return the bytes of a file beside segments. Raises FrameError if it is too large, OSError."""
    size = get_seekable_size(path)
    if size >= LARGEST:
        raise FrameError(Fault.BAD_LENGTH, 0, 0, read_range(path, 0, NEAR), path)
    return read_range(path, 0, size)


def read_or_empty(path: str, read: Callable[[str], np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Return the content of a file, or an empty array without the file. Raises as `read`."""
    return read(path) if exists(path) else np.empty(0, dtype)


def read_entries(path: str, layout: IndexLayout) -> np.ndarray:
    """Return the entries of an index, as an array of dtype `layout.dtype`.

    Raises FrameError for the first entry with a fault, and for a file that ends inside an entry.
    Raises ValueError if the file's name is no offset, OSError.
    """
    raw = read_side_file(path)
    base, entries = _parse_index(path, layout, raw)
    size = layout.entry.itemsize
    for fault, bad in layout.find_faults(base, entries):
        for row in np.flatnonzero(bad)[:1].tolist():
            raise FrameError(fault, row * size, row, raw[row * size : (row + 1) * size], path)
    return entries


def read_good_entries(path: str, layout: IndexLayout, max_entries: int | None = None) -> np.ndarray:
    """Return the entries of an index before the first one with a fault.

    max_entries: the most entries to read; None for all.
    Raises ValueError if the file's name is no offset, OSError.
    """
    size = get_seekable_size(path)
    stop = size if max_entries is None else min(size, layout.entry.itemsize * max_entries)
    raw = read_range(path, 0, stop // layout.entry.itemsize * layout.entry.itemsize)
    base, entries = _parse_index(path, layout, raw)
    for _, bad in layout.find_faults(base, entries):
        entries = entries[: int(bad.argmax())] if bad.any() else entries
    return entries


def _parse_index(path: str, layout: IndexLayout, raw: memoryview) -> tuple[int, np.ndarray]:
    """Return the first offset of a segment, and the entries in the bytes of its index."""
    base = parse_base_offset(path)
    size = layout.entry.itemsize
    count, rest = divmod(len(raw), size)
    if rest and not layout.may_be_cut:
        raise FrameError(Fault.TRUNCATED, count * size, count, raw[-rest:], path)
    if layout.is_preallocated:
        count = min(count, -(-len(bytes(raw).rstrip(b"\0")) // size))
    entries = np.frombuffer(raw[: count * size], layout.entry).astype(layout.dtype)
    if "offset" in (layout.dtype.names or ()):
        entries["offset"] += base
    return base, entries


def find_falls(values: np.ndarray, least: int, *, strict: bool = True) -> np.ndarray:
    """Return a bool array: the values below `least`, and those that do not rise.

    strict: a value that is repeated does not rise.
    """
    falls = values < least
    falls[1:] |= values[1:] <= values[:-1] if strict else values[1:] < values[:-1]
    return falls


def find_around(path: str, layout: IndexLayout, column: str, goal: int) -> list[Entry | None]:
    """Return the last entry whose column is below a goal, and the next two entries.

    The search is binary, so the column must be sorted. An entry is None if it does not exist, or if
    the index cannot be read. Nothing verifies the entries.
    """
    size = layout.entry.itemsize
    names = layout.entry.names or ()
    number = names.index(column)
    page = (OBJECT_PAGE if URL.match(path) else PAGE) // size  # entries
    try:
        base = parse_base_offset(path)
        goal -= base if column == "offset" else 0
        count = get_seekable_size(path) // size
        with open_ranges(path) as read_bytes:

            @cache
            def read_page(number: int) -> np.ndarray:
                raw = read_bytes(number * page * size, (number + 1) * page * size)
                return np.frombuffer(raw[: len(raw) // size * size], layout.entry)

            def read(i: int) -> tuple[int, ...]:
                values: tuple[int, ...] = read_page(i // page)[i % page].item()
                return values

            def is_behind(i: int) -> bool:
                values = read(i)
                return not any(values) or values[number] >= goal

            first = bisect_left(range(count), x=True, key=is_behind)
            around = [read(i) if 0 <= i < count else () for i in range(first - 1, first + 2)]
    except (OSError, ValueError, IndexError):  # the file cannot be read, or has become shorter
        return [None, None, None]
    entries = [dict(zip(names, values)) if any(values) else None for values in around]
    for entry in filter(None, entries):
        entry["offset"] += base
    return entries


class CheckpointLine(NamedTuple):
    """A line of a checkpoint: its byte position, and the fields in it."""

    position: int
    fields: tuple[bytes, ...]


def read_checkpoint(path: str, pattern: bytes) -> list[CheckpointLine]:
    """Return the entries of a text checkpoint: a line 0, a line with their count, and their lines.

    pattern: regular expression of an entry. Its groups are the fields; the last two are numbers.
    Raises FrameError with the position of the wrong line, OSError.
    """
    *lines, rest = bytes(read_side_file(path)).split(b"\n")
    position = 0
    parsed: list[CheckpointLine] = []
    for number, line in enumerate(lines):
        match = re.fullmatch(pattern if number > 1 else rb"(\d+)", line)
        if not match or any(map(_is_too_large, match.groups()[-2:])):
            raise FrameError(Fault.NOT_A_FRAME, position, number, line, path)
        if number == 0 and int(line):
            raise FrameError(Fault.BAD_VERSION, position, number, line, path)
        parsed.append(CheckpointLine(position, match.groups()))
        position += len(line) + 1
    if rest or len(parsed) < 2:
        raise FrameError(Fault.TRUNCATED, position, len(parsed), rest, path)
    if int(parsed[1].fields[0]) != len(parsed) - 2:
        raise FrameError(Fault.BAD_COUNT, parsed[1].position, 1, lines[1], path)
    return parsed[2:]


def read_epochs(path: str, pattern: bytes, dtype: np.dtype, *, first_row: int = 0) -> np.ndarray:
    """Return the entries of a text checkpoint whose first field rises, as an array.

    pattern: regular expression with a group for each column of `dtype`. first_row: the number that
    an error has for the first entry. Raises as `read_checkpoint`.
    """
    lines = read_checkpoint(path, pattern)
    out = np.array([tuple(map(int, line.fields)) for line in lines], dtype)
    for row in np.flatnonzero(find_falls(out[(dtype.names or ())[0]], 0))[:1].tolist():
        position, fields = lines[row]
        raise FrameError(Fault.NOT_A_FRAME, position, first_row + row, b" ".join(fields), path)
    return out


def _is_too_large(field: bytes) -> bool:
    """Return whether a decimal number does not fit in an i8."""
    return len(field) > MAX_DIGITS or int(field) >= OFFSET_END
