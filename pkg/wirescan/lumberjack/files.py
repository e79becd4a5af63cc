"""Names of Lumberjack files, and the positions at which such a file can be cut.

A file is cut before windows, so that each window is in one part.
"""

from __future__ import annotations

import numpy as np

from wirescan.files.boundaries import walk
from wirescan.files.source import get_size
from wirescan.frames.limits import Limits
from wirescan.lumberjack.scan import scan_stream

# The files that are read in a directory: `wirescan receive` names them so. A name that begins with
# _ is a file that is still written.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.lumberjack\Z"
WINDOW = ord("W")


def find_boundaries(
    path: str, size: int, start: int = 0, *, limits: Limits = Limits()
) -> list[int]:
    """Return byte positions of frames in a file, about `size` bytes apart; the first is `start`.

    Data frames have no length, so all frames are walked, up to the first one that is damaged or
    above `limits.frame`. Each cut is before the first window that begins at least `size` bytes
    after the previous cut. If that is 2 * `size` bytes or more, because the writer sends no
    windows, the cut is before the first frame at that distance.
    """
    cuts = [start]
    if get_size(path) - start > size:
        for starts, rows in walk(path, scan_stream, start, limits=limits):
            cuts += _select_cuts(starts, rows["kind"] == WINDOW, cuts[-1], size)
    return cuts


def _select_cuts(starts: np.ndarray, windows: np.ndarray, last: int, size: int) -> list[int]:
    """Select cuts after position `last` from the frames at `starts`; `windows` marks W frames."""
    cuts = []
    window_starts = starts[windows]
    while len(starts):
        next_window = np.searchsorted(window_starts, last + size)
        next_frame = np.searchsorted(starts, last + 2 * size)
        if next_window < len(window_starts) and window_starts[next_window] < last + 2 * size:
            last = int(window_starts[next_window])
        elif next_frame < len(starts):
            last = int(starts[next_frame])
        else:
            break
        cuts.append(last)
    return cuts
