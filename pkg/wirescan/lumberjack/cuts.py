"""Where a file of Lumberjack frames can be cut: before windows, so that none is torn."""
from __future__ import annotations

import numpy as np

from wirescan.errors import HARD
from wirescan.limits import Limits
from wirescan.lumberjack.scan import scan_stream
from wirescan.source import read_range, size_of

# Of a directory, as `wirescan receive` names them; those that begin with _ are being written.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.lumberjack\Z"
PIECE = 8 << 20                         # bytes read at a time
WINDOW = ord("W")


def cuts(path: str, size: int) -> list[int]:
    """Offsets in a file at which a frame begins, about `size` bytes apart; the first is 0.

    Data frames have no length, so all frames are walked, up to the first that is damaged. A cut lies before the next
    window, unless that is `size` bytes away: writers without windows are cut at any frame.
    """
    total = size_of(path)
    out, at, held = [0], 0, b""
    limits = Limits()
    while total > size and at + len(held) < total:
        first = at + len(held)
        page = read_range(path, first, min(first + max(PIECE, len(held)), total))
        if not len(page):
            break                       # the file is shorter by now
        data = held + bytes(page)
        rows, _, fault, used = scan_stream(data, False, False, limits, more=True)
        out += _among(rows["start"] + at, rows["kind"] == WINDOW, out[-1], size)
        if fault and used == 0 and len(data) > limits.frame or fault >= HARD:
            break                       # who reads the slice tells what is wrong there
        at, held = at + used, data[used:]
    return out


def _among(starts: np.ndarray, windows: np.ndarray, last: int, size: int) -> list[int]:
    found = []
    before = starts[windows]
    while len(starts):
        i, j = np.searchsorted(before, last + size), np.searchsorted(starts, last + 2 * size)
        if i < len(before) and before[i] < last + 2 * size:
            last = int(before[i])
        elif j < len(starts):
            last = int(starts[j])
        else:
            break
        found.append(last)
    return found
