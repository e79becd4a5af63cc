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
# Of these, the files that `wirescan receive` has finished.
FINISHED = r"(\A|/)[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[0-9]{6}\.lumberjack\Z"
WINDOW = ord("W")
WINDOW_SIZE = 6  # bytes of a W frame
# Nanoseconds of one core for a byte, by the kind of the frame: pairs and documents become columns.
# A compressed frame of log lines has about six times as many bytes inside.
WORK = {WINDOW: 3.0, ord("D"): 3.0, ord("J"): 3.0, ord("C"): 24.0}


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


def estimate_work(head: memoryview) -> float | None:
    """Return about how many nanoseconds of one core a byte of a file takes.

    head: the first bytes of the file: a frame, or a window and a frame. None for other bytes.
    """
    kinds = [head[at] for at in (1, WINDOW_SIZE + 1) if at < len(head)]
    if not kinds or kinds[0] not in WORK:
        return None
    return WORK[kinds[0]] if kinds[0] != WINDOW else max(WORK.get(kind, 0.0) for kind in kinds)
