"""Frame boundaries of a file, found by scanning it from its start.

This is used for planning: it finds positions at which a file can be cut. It is not used for
reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from wirescan.files.incremental import FrameScanner
from wirescan.files.length_prefix import FOUND, MORE, hop
from wirescan.files.source import get_size, open_descriptor, open_ranges
from wirescan.frames.errors import HARD
from wirescan.frames.limits import Limits

PIECE = 8 << 20  # bytes that are read at a time
WINDOW = 16 << 10  # bytes that are first read to find one frame; then twice as many, and so on
PAGE = 1 << 20  # bytes that are read at a time from an object, to find headers


class LengthPrefix(NamedTuple):
    """How the header of a frame states the frame's length.

    header: number of first bytes that are read, at most 64. length_at: position in them of the
    length, which has 4 bytes, big-endian. overhead: bytes that the length does not count. smallest:
    sizes of empty frames in bytes, by the kind in the byte at `kind_at`. kind_at: -1 where all
    frames are of kind 0.
    """

    header: int
    length_at: int
    overhead: int
    smallest: tuple[int, ...]
    kind_at: int = -1


def walk(
    path: str,
    scan: Callable[..., tuple[np.ndarray, int, int, int]],
    start: int = 0,
    *,
    limits: Limits,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the frames of a file in pieces, as (starts, rows), up to the first damaged frame.

    The reader of that part reports the damage.

    scan: `scan` of an outermost `Format`. start: the byte position of a frame, where the walk
    begins. limits: a frame above `limits.frame` is damaged. starts: int64 array of byte positions
    in the file. Raises FileNotFoundError, OSError.
    """
    total = get_size(path)
    limits = Limits(frame=limits.frame)
    scanner = FrameScanner(scan, check=False, resync=False, limits=limits, offset=start)
    with open_ranges(path) as read:
        while start < total:
            # A frame larger than a piece is read in parts that double.
            page = read(start, min(start + max(PIECE, scanner.held), total))
            if not len(page):
                break  # the file became shorter
            for scanned in scanner.feed(page):
                yield scanned.rows["start"] + scanned.offset, scanned.rows
                if scanned.stop.fault >= HARD:
                    return
            start += len(page)


def read_frame(
    read: Callable[[int, int], memoryview],
    at: int,
    stop: int,
    scan: Callable[..., Any],
    limits: Limits,
) -> np.void | None:
    """Return the row of the frame at a byte position of a file; None if it is not intact.

    Checksums are verified. The `start` of the row is the position in the file.

    Some formats have no magic number or checksum, such as the messages of Kafka's protocol. In
    these other bytes may also pass as a frame.

    read: returns the bytes between two positions. at: the position. stop: the size of the file.
    scan: `scan` of an outermost `Format`. limits: a frame above `limits.frame` is not intact.
    """
    limits = Limits(frame=limits.frame, rows=1)
    size = WINDOW
    while True:
        data = read(at, min(at + size, stop))
        rows, _, fault, _ = scan(
            data, check=True, resync=False, limits=limits, more=at + len(data) < stop
        )
        if len(rows):
            row: np.void = rows[0].copy()
            is_intact = row["start"] == 0 and row["fault"] == 0
            row["start"] += at
            return row if is_intact else None
        if fault >= HARD or len(data) < size or size > limits.frame:
            return None
        size *= 2


def thin_out(starts: np.ndarray, last: int, size: int) -> list[int]:
    """Return the starts that are at least `size` bytes after the previously chosen start.

    starts: rising byte positions. last: the start chosen before the first of them.
    """
    chosen = []
    while (i := int(np.searchsorted(starts, last + size))) < len(starts):
        last = int(starts[i])
        chosen.append(last)
    return chosen


def find_cuts_at_frames(
    path: str,
    size: int,
    start: int = 0,
    *,
    scan: Callable[..., tuple[np.ndarray, int, int, int]],
    has_checksums: bool = False,
    limits: Limits = Limits(),
) -> list[int]:
    """Return byte positions of frames in a file, about `size` bytes apart; the first is `start`.

    For formats in which a frame's start follows only from the frames before it. All frames are
    scanned, up to the first damaged one.

    scan: `scan` of an outermost `Format`. has_checksums: the frames have checksums. They are
    verified at each position, because after a damaged length the walk may go on inside a frame.
    limits: a frame above `limits.frame` is damaged. Raises FileNotFoundError, OSError.
    """
    out = [start]
    total = get_size(path)
    if total - start <= size:
        return out
    with open_ranges(path) if has_checksums else nullcontext() as read:
        for starts, _ in walk(path, scan, start, limits=limits):
            for at in thin_out(starts, out[-1], size):
                if read is None or read_frame(read, at, total, scan, limits) is not None:
                    out.append(at)
    return out


def find_cuts_at_headers(
    path: str,
    size: int,
    start: int,
    sized: LengthPrefix,
    is_intact: Callable[[memoryview], bool] = lambda frame: True,
    *,
    limits: Limits,
) -> list[int]:
    """Return byte positions of frames in a file, about `size` bytes apart; the first is `start`.

    For formats whose frames begin with their length. Only headers are read, up to the first that
    cannot be one.

    is_intact: returns whether the bytes are a frame. After a damaged length the walk may go on
    inside a frame, at bytes that look like a header. limits: the header of a frame above
    `limits.frame` is not valid. Raises FileNotFoundError, OSError.
    """
    total = get_size(path)
    largest = limits.frame
    out = [start]
    position = start
    page = memoryview(b"")
    first = 0
    with open_descriptor(path) as opened, open_ranges(path) as read:
        while True:
            position, stop, state = hop(
                opened, page, first, position, out[-1] + size, total, largest, sized
            )
            if state == FOUND:
                if is_intact(read(position, stop)):
                    out.append(position)
                position = stop
            elif state == MORE:
                page = read(position, position + PAGE)
                if len(page) < sized.header:
                    return out
                first = position
            else:
                return out
