"""A partition directory on disk: its segments in order, their indexes, and where a segment can be cut.

    <base offset, 20 digits>.log         entries one after another, and perhaps zeros behind them
    <base offset>.index                  (relative offset i4, position i4)*, sparse, big-endian; zeros behind them:
                                         the last offset of the batch that begins at that position of the .log

Source: Apache Kafka, "Log" of the documentation, and its LogSegment, OffsetIndex and LocalLog.
"""
from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from wirescan.kafka.scan import scan_batches
from wirescan.limits import Limits
from wirescan.source import URL, read_range, size_of

# Segments that a broker is about to delete or to put in place hold records twice, and so do directories on the move.
IGNORE = r"\.(deleted|cleaned|swap|index|timeindex|txnindex|snapshot|metadata)$|[.-]checkpoint$|-(delete|future|stray)/"
FILES = r"(?s)^(?!.*-(delete|future|stray)/).*(^|/)\d{20}\.log\Z"
SEGMENT = re.compile(r"(\d{20})\.log$")

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
HEADER_SIZE = 27            # bytes of a batch up to its last offset delta
LENGTH = struct.Struct(">8xi4xb")       # how many bytes follow the length, and the magic: so every batch begins
LOG_OVERHEAD = 12           # bytes of a batch up to where its length counts from
SMALLEST = (26, 34, 61)     # bytes of a batch of magic 0, 1 and 2 that holds nothing
PAGE = 512                  # bytes that a walk reads of a file at a time: a header, or those of several small batches
BLOCK = 1 << 20             # ... of an object in a store
INTERVAL = 4096             # bytes between the entries of an index, unless a broker is told otherwise


def open_log(directory: str | os.PathLike[str], **options: Any) -> Any:
    """The batches of a partition directory, its segments in order, as one table of kafka.batches.

    Files with the suffixes .deleted, .cleaned and .swap are left out. options: as of `kafka.scan`.
    Raises NotADirectoryError, FileNotFoundError where there is no segment, and as `kafka.scan`.
    """
    from wirescan.kafka import scan
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"not a directory: {os.fspath(directory)}")
    return scan(directory, **options)


def read_index(path: str, most: int | None = None) -> np.ndarray:
    """The entries of an offset index: `offset` i8 (of the log, not relative) and `position` i8 in the segment.

    Ends before the zeros of a preallocated file, and before an entry that does not increase. No entry is that of the
    batch at position 0. most: entries that are read. Raises ValueError for a name that is no offset, OSError.
    """
    base = int(os.path.basename(path).split(".")[0])
    if not 0 <= base < 1 << 63:
        raise ValueError(f"no offset of a log: {base}")
    size = size_of(path)
    raw = read_range(path, 0, size if most is None else min(size, OFFSET_ENTRY.itemsize * most))
    entries = np.frombuffer(raw[:len(raw) // 8 * 8], OFFSET_ENTRY)
    falls = np.flatnonzero((np.diff(entries["offset"].astype(np.int64), prepend=-1) <= 0)
                           | (np.diff(entries["position"].astype(np.int64), prepend=0) <= 0))
    good = int(falls[0]) if len(falls) else len(entries)
    out = np.empty(good, [("offset", np.int64), ("position", np.int64)])
    out["offset"], out["position"] = base + entries["offset"][:good].astype(np.int64), entries["position"][:good]
    return out


def cuts(path: str, size: int) -> list[int]:
    """Offsets in a file at which a batch begins, about `size` bytes apart; the first is 0.

    Taken from the `.index` beside a segment where it is there and every entry used is confirmed by the batch that it
    points to; else by a walk from header to header, which ends at the first that cannot be one: who reads the slice
    tells what is wrong there.
    """
    total = size_of(path)
    if total <= size:
        return [0]
    index = path[:-len(".log")] + ".index"
    if SEGMENT.search(path) and os.path.isfile(index):
        with suppress(OSError, ValueError):     # whatever is wrong with an index, the segment can be walked
            found = _cuts_by_index(path, read_index(index, total // SMALLEST[0]), size, total)
            if found is not None:
                return found
    return _cuts_by_walk(path, size, total)


def _cuts_by_index(path: str, entries: np.ndarray, size: int, total: int) -> list[int] | None:
    targets = np.arange(size, total, size)
    places = np.searchsorted(entries["position"], targets)
    chosen = np.unique(places[places < len(entries)])
    if not len(chosen) or np.diff(entries["position"][chosen], prepend=0, append=total).max() > 2 * size + INTERVAL:
        return None                     # there are parts of the segment that the index does not know
    out = [0]
    for entry in entries[chosen]:
        position = int(entry["position"])
        if _last_offset(bytes(read_range(path, position, position + HEADER_SIZE))) != entry["offset"]:
            return None
        out.append(position)
    return out


def _last_offset(header: bytes) -> int | None:
    if len(header) < HEADER_SIZE or header[16] > 2:
        return None
    base = int.from_bytes(header[:8], "big", signed=True)
    return base + int.from_bytes(header[23:27], "big", signed=True) if header[16] == 2 else base


def _cuts_by_walk(path: str, size: int, total: int) -> list[int]:
    out, at, unpack, largest = [0], 0, LENGTH.unpack_from, Limits().frame
    with _reader(path) as read:
        while at + LENGTH.size <= total:
            page, first = read(at), at
            last = first + len(page) - LENGTH.size
            while at <= last:
                length, magic = unpack(page, at - first)
                stop = at + LOG_OVERHEAD + length
                if not 0 <= magic <= 2 or stop > total or not SMALLEST[magic] <= stop - at <= largest:
                    return out
                if at - out[-1] >= size and _is_intact(read_range(path, at, stop)):
                    out.append(at)
                at = stop
            if at == first:
                break                   # the file is shorter by now
    return out


def _is_intact(batch: memoryview) -> bool:
    # After a damaged length the walk may be inside a batch, at what looks like a header; a cut there would lose it.
    _, bad, _, used = scan_batches(batch, True, False, Limits())
    return bool(used == len(batch) and not bad)


@contextmanager
def _reader(path: str) -> Iterator[Callable[[int], bytes | memoryview]]:
    """A function that gives some bytes from an offset on. The file is opened once; it is not mapped: it may shrink."""
    if URL.match(path):
        yield lambda at: read_range(path, at, at + BLOCK)
        return
    with open(path, "rb", buffering=0) as file:
        yield partial(os.pread, file.fileno(), PAGE)
