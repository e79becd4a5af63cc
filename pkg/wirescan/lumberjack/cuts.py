"""Where a file of Lumberjack frames can be cut: before windows, so that none is torn."""
from __future__ import annotations

import numpy as np

from wirescan.lumberjack.scan import scan_stream
from wirescan.source import size_of
from wirescan.walk import walk

# Of a directory, as `wirescan receive` names them; those that begin with _ are being written.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.lumberjack\Z"
WINDOW = ord("W")


def cuts(path: str, size: int, start: int = 0) -> list[int]:
    """Offsets in a file at which a frame begins, about `size` bytes apart; the first is `start`.

    Data frames have no length, so all frames are walked, up to the first that is damaged. A cut lies before the next
    window, unless that is `size` bytes away: writers without windows are cut at any frame.
    """
    out = [start]
    if size_of(path) - start > size:
        for starts, rows in walk(path, scan_stream, start):
            out += _among(starts, rows["kind"] == WINDOW, out[-1], size)
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
