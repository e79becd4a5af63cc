"""Frames that wait for their answers while a capture is read in pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wirescan.files.source import view_of
from wirescan.frames.table import FrameTable

WAITING = 1000  # frames of a connection that wait
ALL_WAITING = 100_000  # frames of all connections that wait
WAITING_BYTES = 64 << 20  # bytes of all of them


def choose_newest(connections: np.ndarray, ages: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return which frames wait: a bool array. The oldest ones beyond the limits do not.

    connections: the number of the connection of each frame. ages: int64, larger for newer frames.
    sizes: bytes of each frame.
    """
    order = np.lexsort((ages, connections))
    ordered = connections[order]
    ranks_from_end = np.searchsorted(ordered, ordered, "right") - np.arange(len(order))
    is_kept = np.zeros(len(order), bool)
    is_kept[order] = ranks_from_end <= WAITING
    kept = np.flatnonzero(is_kept)
    newest = kept[np.argsort(ages[kept], kind="stable")[::-1]]
    total = np.cumsum(sizes[newest], dtype=np.int64)
    is_kept[newest[ALL_WAITING:]] = False
    is_kept[newest[total > WAITING_BYTES]] = False
    return is_kept


def copy_frames(
    table: FrameTable, chosen: np.ndarray, sizes: np.ndarray | None = None
) -> FrameTable:
    """Return a table of some rows, whose one buffer has only their frames.

    sizes: how many first bytes of each frame are kept. None: all.
    """
    rows = table.rows[chosen]
    if sizes is not None:
        rows["size"] = sizes
    frames = [
        bytes(table.frame(row)[:size]) for row, size in zip(chosen.tolist(), rows["size"].tolist())
    ]
    rows["buffer"] = 0
    rows["start"] = np.cumsum([0, *map(len, frames)])[:-1]
    rows.setflags(write=False)
    return replace(table, rows=rows, buffers=(view_of(b"".join(frames)),), outer=None)
