"""Frames that wait for their answers while a capture is read in pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wirescan.core.gather import Places
from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import join_rows, select_rows
from wirescan.files.source import view_of
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable, join, make_empty
from wirescan.pcap.extraction.sent_frames import SENT

WAITING = 1000  # frames of a connection that wait
ALL_WAITING = 100_000  # frames of all connections that wait
WAITING_BYTES = 64 << 20  # bytes of all of them
MERGED = 4  # chunks that are merged into one
FRAME = np.dtype([*HEAD.descr, ("frame_at", "u4"), ("frame_size", "i4")])


@dataclass(eq=False)
class _Chunk:
    """Frames that began to wait together, by their connections. The older ones come first in each.

    table: the frames. sent: array of dtype SENT. is_waiting: bool array, those that still wait.
    """

    table: FrameTable
    sent: np.ndarray
    is_waiting: np.ndarray

    def __len__(self) -> int:
        return int(np.count_nonzero(self.is_waiting))

    def take(self, connections: np.ndarray) -> np.ndarray:
        """Return the rows that wait of connections, and forget them. connections: ascending."""
        numbers = self.sent["connection"]
        firsts = np.searchsorted(numbers, connections)
        counts = np.searchsorted(numbers, connections, "right") - firsts
        ends = np.cumsum(counts)
        rows = np.arange(counts.sum()) + np.repeat(firsts - ends + counts, counts)
        rows = rows[self.is_waiting[rows]]
        self.is_waiting[rows] = False
        return rows


class WaitingFrames:
    """Frames of one format that wait for their answers.

    The last MERGED chunks are merged when the first of them has no more frames than the others
    together. A chunk is copied when most of its frames have answers. So the number of chunks is
    logarithmic, and so is the number of times that a frame is copied in merges. Taking the frames
    of some connections costs no work for others.

    empty: a table of the format without rows. discards: whether `add` discards the oldest frames
    beyond the limits.
    """

    def __init__(self, empty: FrameTable, *, discards: bool = True):
        self._empty = empty
        self._discards = discards
        self._chunks: list[_Chunk] = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    @property
    def held_bytes(self) -> int:
        """Bytes of the copies of frames."""
        return sum(len(buffer) for chunk in self._chunks for buffer in chunk.table.buffers)

    def would_exceed(self, count: int, size: int) -> bool:
        """Return whether more frames may be beyond the limits. size: their bytes."""
        return len(self) + count > ALL_WAITING or self.held_bytes + size > WAITING_BYTES

    def add(self, table: FrameTable, sent: np.ndarray, sizes: np.ndarray) -> None:
        """Copy frames that begin to wait, or wait on.

        table: the frames. Of a connection, they are newer than those before, or all of them. sent:
        array of dtype SENT. sizes: int64 array, how many first bytes of each frame are kept.
        """
        if len(table):
            self._append(table, sent, sizes)
            while self._has_small_chunks():
                self._merge(self._chunks[-MERGED:])
        if self._discards and (len(self) > 2 * ALL_WAITING or self.held_bytes > 2 * WAITING_BYTES):
            self._discard_oldest()

    def take(self, connections: np.ndarray | None = None) -> tuple[FrameTable, np.ndarray]:
        """Return frames and their array of dtype SENT, and forget them.

        The frames of each connection are in the order in which they were added.

        connections: their numbers, int64, ascending. None: all connections.
        """
        tables, parts = [self._empty], [np.zeros(0, SENT)]
        for chunk in list(self._chunks):
            if connections is None:
                rows = np.flatnonzero(chunk.is_waiting)
                chunk.is_waiting[:] = False
            else:
                rows = chunk.take(connections)
            if not len(rows):
                continue
            tables.append(replace(chunk.table, rows=select_rows(chunk.table.rows, rows)))
            parts.append(select_rows(chunk.sent, rows))
            if 2 * len(chunk) < len(chunk.sent):
                self._merge([chunk])
        return join(tables), join_rows(parts)

    def forget(self, connections: np.ndarray) -> None:
        """Forget the frames of connections. connections: their numbers, int64."""
        self.take(np.unique(connections))

    def _has_small_chunks(self) -> bool:
        """Return whether the last MERGED chunks are to be merged."""
        sizes = [len(chunk) for chunk in self._chunks[-MERGED:]]
        return len(sizes) == MERGED and sizes[0] <= sum(sizes[1:])

    def _append(self, table: FrameTable, sent: np.ndarray, sizes: np.ndarray) -> None:
        order = np.argsort(sent["connection"], kind="stable")
        copied = copy_frames(table, order, sizes[order])
        is_waiting = np.ones(len(order), bool)
        self._chunks.append(_Chunk(copied, select_rows(sent, order), is_waiting))

    def _merge(self, chunks: list[_Chunk]) -> None:
        """Make one chunk of the frames that wait in chunks, which follow each other."""
        place = self._chunks.index(chunks[0])
        after = self._chunks[place + len(chunks) :]
        del self._chunks[place:]
        rows = [np.flatnonzero(chunk.is_waiting) for chunk in chunks]
        merged = join(
            [
                replace(chunk.table, rows=select_rows(chunk.table.rows, kept))
                for chunk, kept in zip(chunks, rows)
            ]
        )
        sent = join_rows([select_rows(chunk.sent, kept) for chunk, kept in zip(chunks, rows)])
        if len(merged):
            self._append(merged, sent, merged.rows["size"].astype(np.int64))
        self._chunks += after

    def _discard_oldest(self) -> None:
        """Discard the oldest frames beyond the limits."""
        table, sent = self.take()
        self._chunks = []
        sizes = table.rows["size"].astype(np.int64)
        kept = np.flatnonzero(choose_newest(sent["connection"], sent["packet"], sizes))
        frames = replace(table, rows=select_rows(table.rows, kept))
        self._append(frames, select_rows(sent, kept), sizes[kept])


class WaitingConnections:
    """The connections of frames that wait: their rows of pcap.flows, by their numbers.

    They are kept as `WaitingFrames`: each connection has one frame, with its endpoints.
    """

    def __init__(self) -> None:
        self._flows = WaitingFrames(make_empty(format_of("pcap.flows")), discards=False)

    def __len__(self) -> int:
        return len(self._flows)

    def keep(self, flows: FrameTable, chosen: np.ndarray) -> None:
        """Keep some rows of a table of pcap.flows.

        chosen: the rows. Of several rows of one connection, the last one is kept. The connections
        are not kept yet.
        """
        last_first = chosen[::-1]
        numbers, places = np.unique(flows["connection"][last_first], return_index=True)
        rows = select_rows(flows.rows, last_first[places])
        rows["parent"] = -1
        sent = np.zeros(len(rows), SENT)
        sent["connection"] = numbers
        self._flows.add(replace(flows, rows=rows, outer=None), sent, rows["size"].astype(np.int64))

    def take(self, connections: np.ndarray) -> tuple[FrameTable, np.ndarray]:
        """Return a table of connections and the row of each one in it, and forget them.

        connections: their numbers, int64, which may occur several times. Each is kept.
        """
        numbers, places = np.unique(connections, return_inverse=True)
        table, sent = self._flows.take(numbers)
        order = np.argsort(sent["connection"], kind="stable")
        assert np.array_equal(sent["connection"][order], numbers)
        rows = select_rows(table.rows, order)
        rows.setflags(write=False)
        return replace(table, rows=rows, checked=True, errors="mark"), places


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
    # `stops` and `origins` are those of the former buffers.
    return replace(table, buffers=(view_of(block),), rows=rows, stops=(), outer=None, origins=())
