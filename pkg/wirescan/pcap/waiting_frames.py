"""Frames that wait for their answers while a capture is read in pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wirescan.core.gather import Places
from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import join_rows, select_rows
from wirescan.files.source import view_of
from wirescan.frames.table import FrameTable, join
from wirescan.pcap.sent_frames import SENT

WAITING = 1000  # frames of a connection that wait
ALL_WAITING = 100_000  # frames of all connections that wait
WAITING_BYTES = 64 << 20  # bytes of all of them
FRAME = np.dtype([*HEAD.descr, ("frame_at", "u4"), ("frame_size", "i4")])


class WaitingFrames:
    """Frames of one format that wait for their answers.

    A table is merged with the one before it when that one has no more frames. So there are few
    tables, and each frame without an answer is copied a logarithmic number of times.

    empty: a table of the format without rows.
    """

    def __init__(self, empty: FrameTable):
        self._tables = [empty]
        self._sent = [np.zeros(0, SENT)]

    def __len__(self) -> int:
        return sum(map(len, self._tables))

    def add(self, table: FrameTable, sent: np.ndarray, sizes: np.ndarray) -> None:
        """Copy frames that begin to wait, or wait on. All of them are newer than those before.

        table: the frames. sent: array of dtype SENT. sizes: int64 array, how many first bytes of
        each frame are kept.
        """
        if len(table):
            self._tables.append(copy_frames(table, np.arange(len(table)), sizes))
            self._sent.append(sent)
            while len(self._tables) > 1 and len(self._tables[-2]) <= len(self._tables[-1]):
                self._merge_last()
        held = sum(len(buffer) for table in self._tables for buffer in table.buffers)
        if len(self) > 2 * ALL_WAITING or held > 2 * WAITING_BYTES:
            self._discard_oldest()

    def take(self) -> tuple[FrameTable, np.ndarray]:
        """Return all frames and their array of dtype SENT, oldest first, and forget them."""
        taken = join(self._tables), join_rows(self._sent)
        self._tables = [replace(self._tables[0], rows=self._tables[0].rows[:0], buffers=())]
        self._sent = [self._sent[0][:0]]
        return taken

    def forget(self, connections: np.ndarray) -> None:
        """Forget the frames of connections. connections: their numbers, int64."""
        for number, sent in enumerate(self._sent):
            is_kept = ~np.isin(sent["connection"], connections)
            table = self._tables[number]
            self._tables[number] = replace(table, rows=select_rows(table.rows, is_kept))
            self._sent[number] = select_rows(sent, is_kept)

    def _merge_last(self) -> None:
        """Merge the last two tables, whose frames are copied into one buffer."""
        merged = join(self._tables[-2:])
        sizes = merged.rows["size"].astype(np.int64)
        self._tables[-2:] = [copy_frames(merged, np.arange(len(merged)), sizes)]
        self._sent[-2:] = [join_rows(self._sent[-2:])]

    def _discard_oldest(self) -> None:
        """Discard the oldest frames beyond the limits."""
        table, sent = self.take()
        sizes = table.rows["size"].astype(np.int64)
        kept = np.flatnonzero(choose_newest(sent["connection"], np.arange(len(sent)), sizes))
        self._tables.append(copy_frames(table, kept, sizes[kept]))
        self._sent.append(select_rows(sent, kept))


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


def copy_frames(table: FrameTable, chosen: np.ndarray, sizes: np.ndarray) -> FrameTable:
    """Return a table of some rows, whose one buffer has only the bytes of their frames.

    chosen: the rows. sizes: int64 array, how many first bytes of each of their frames are kept.

    Raises ValueError for a row that points outside its buffer.
    """
    rows = select_rows(table.rows, chosen)
    rows["size"] = np.minimum(sizes, rows["size"])
    frames = np.zeros(len(rows), FRAME)
    for name in ("start", "size", "buffer"):
        frames[name] = rows[name]
    frames["frame_size"] = rows["size"]
    offsets, block = Places(replace(table, rows=frames, outer=None), "frame").gather(large=True)
    rows["buffer"] = 0
    rows["start"] = offsets[:-1]
    rows.setflags(write=False)
    return replace(table, rows=rows, buffers=(view_of(block),), outer=None)
