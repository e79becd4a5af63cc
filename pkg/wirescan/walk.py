"""Where the frames of a file begin whose bytes have to be walked from the first: for planning, not for reading."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from wirescan.core.hop import FOUND, MORE, hop
from wirescan.errors import HARD
from wirescan.limits import Limits
from wirescan.source import descriptor, ranges, size_of

PIECE = 8 << 20             # bytes read at a time
PAGE = 1 << 20              # ... of an object in a store, to look for headers in


class Sized(NamedTuple):
    """How a frame tells its length. header: its first bytes, 64 at the most, that are looked at. length_at: where in
    them the length is, of 4 bytes, big-endian. overhead: bytes that it does not count. smallest: bytes of a frame that
    holds nothing, by the byte at kind_at, if there is one."""
    header: int
    length_at: int
    overhead: int
    smallest: tuple[int, ...]
    kind_at: int = -1


def walk(path: str, scan: Callable[..., tuple[np.ndarray, int, int, int]],
         start: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(starts, rows) of the frames of a file from `start` on, where one begins, a piece at a time, up to the first that
    is damaged: who reads the slice tells what is wrong there. starts: int64 array, offsets in the file. scan: that of
    an outermost `Format`."""
    total, at, held, limits = size_of(path), start, b"", Limits()
    with ranges(path) as read:
        while at + len(held) < total:
            first = at + len(held)
            page = read(first, min(first + max(PIECE, len(held)), total))
            if not len(page):
                break                       # the file is shorter by now
            data = held + bytes(page)
            rows, _, fault, used = scan(data, False, False, limits, more=True)
            yield rows["start"] + at, rows
            if fault and used == 0 and len(data) > limits.frame or fault >= HARD:
                break
            at, held = at + used, data[used:]


def apart(starts: np.ndarray, last: int, size: int) -> list[int]:
    """Those of the starts, which rise, that lie `size` or more behind the one chosen before, which was `last`."""
    found = []
    while (i := int(np.searchsorted(starts, last + size))) < len(starts):
        last = int(starts[i])
        found.append(last)
    return found


def cuts_at_frames(path: str, size: int, start: int = 0, *,
                   scan: Callable[..., tuple[np.ndarray, int, int, int]]) -> list[int]:
    """Offsets in a file at which a frame begins, about `size` bytes apart; the first is `start`.

    For formats in which nothing but the frames before it tells where one begins: all are walked, up to the first that
    is damaged. scan: that of an outermost `Format`.
    """
    out = [start]
    if size_of(path) - start > size:
        for starts, _ in walk(path, scan, start):
            out += apart(starts, out[-1], size)
    return out


def cuts_at_headers(path: str, size: int, start: int, sized: Sized,
                    is_intact: Callable[[memoryview], bool] = lambda frame: True) -> list[int]:
    """The same, from header to header, for frames that tell their length first. It ends at the first header that cannot
    be one. is_intact: whether bytes are a frame: after a damaged length the hops may go on inside one, at what looks
    like a header."""
    total, largest, out, at = size_of(path), Limits().frame, [start], start
    page, first = memoryview(b""), 0
    with descriptor(path) as opened, ranges(path) as read:
        while True:
            at, stop, state = hop(opened, page, first, at, out[-1] + size, total, largest, sized)
            if state == FOUND:
                if is_intact(read(at, stop)):
                    out.append(at)
                at = stop
            elif state == MORE and len(page := read(at, at + PAGE)) >= sized.header:
                first = at
            else:
                return out
