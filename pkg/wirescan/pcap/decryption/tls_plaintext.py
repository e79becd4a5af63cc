"""The decrypted bytes of one side of a TLS connection, with the packets that they came in.

Plain bytes before the handshake come first. A byte of a record is encrypted into one byte at the
same place, so a decrypted byte has the packet of the encrypted one.
"""

from __future__ import annotations

import numpy as np

from wirescan.pcap.verdicts import KEPT

FILLER = b"\0"  # a piece without bytes has one in the buffer, so that it has a segment of its own


class PlainPiece:
    """Contiguous bytes, or a fault between them.

    position: of the first byte in everything that was decrypted. fault: 0 for bytes. lost: the
    number of bytes that a fault LOST stands for.
    """

    __slots__ = ("chunks", "fault", "lost", "position", "segments", "size")

    def __init__(self, position: int, fault: int = 0, lost: int = 0):
        self.position = position
        self.fault = fault
        self.lost = lost
        self.size = 0
        self.chunks: list[bytes] = []
        self.segments: list[np.ndarray] = []  # dtype SEGMENT, `start` counts from the first byte

    @property
    def segment_bytes(self) -> int:
        """Bytes of memory of the segments."""
        return sum(segments.nbytes for segments in self.segments)

    def join(self) -> bytes:
        """Return the bytes of the piece in the buffer of a table."""
        if self.fault:
            return FILLER
        if len(self.chunks) > 1:
            self.chunks = [b"".join(self.chunks)]
        return self.chunks[0]

    def join_segments(self) -> np.ndarray:
        """Return the segments of these bytes."""
        if len(self.segments) > 1:
            self.segments = [np.concatenate(self.segments)]
        return self.segments[0]


class Plaintext:
    """What was decrypted of one side and is still needed."""

    __slots__ = ("_chunks", "_emitted", "_starts", "pieces", "position")

    def __init__(self) -> None:
        self.position = 0  # of the next byte
        self.pieces: list[PlainPiece] = []
        self._emitted = 0  # bytes of the only piece after the last `release`
        self._chunks: list[bytes] = []
        self._starts: list[int] = []

    def add(self, chunk: bytes, start: int) -> None:
        """Add bytes. `start` is the place of the encrypted ones in the buffer of the streams."""
        if chunk:
            self._chunks.append(chunk)
            self._starts.append(start)

    def flush(self, segments: np.ndarray) -> None:
        """Find the segments of the bytes that were added.

        segments: dtype SEGMENT, those of the encrypted bytes.
        """
        if not self._chunks:
            return
        if not self.pieces or self.pieces[-1].fault:
            self.pieces.append(PlainPiece(self.position))
        piece = self.pieces[-1]
        sizes = np.array([len(chunk) for chunk in self._chunks], np.int64)
        starts = np.array(self._starts, np.int64)
        places = piece.size + np.cumsum(sizes) - sizes
        piece.segments.append(_map_segments(segments, starts, sizes, places))
        piece.chunks += self._chunks
        total = int(sizes.sum())
        piece.size += total
        self.position += total
        self._chunks = []
        self._starts = []

    def add_fault(self, fault: int, segment: np.ndarray, lost: int = 0) -> None:
        """Add a fault. segment: one segment, of the packet with the fault. Call `flush` before."""
        piece = PlainPiece(self.position, fault, lost)
        segment = segment.copy()
        segment["start"] = 0
        piece.segments.append(segment)
        self.pieces.append(piece)
        self.position += lost

    @property
    def size(self) -> int:
        """Bytes of the first piece, which waits for more."""
        return self.pieces[0].size if self.pieces else 0

    @property
    def held_bytes(self) -> int:
        """Bytes of memory of all pieces."""
        return sum(piece.size + piece.segment_bytes for piece in self.pieces)

    @property
    def emitted(self) -> int:
        """How many of them were given before."""
        return self._emitted

    @property
    def has_end(self) -> bool:
        """Whether nothing can be added to the first piece: a fault follows, or it is one."""
        return len(self.pieces) > 1 or bool(self.pieces and self.pieces[0].fault)

    def release(self, size: int) -> None:
        """Forget all pieces but the last one, and the first bytes of that one.

        size: how many they are. KEPT: all pieces are given again.
        """
        if size == KEPT:
            self._emitted = self.size
            return
        piece = self.pieces[-1]
        self.pieces = []
        if not piece.fault and size < piece.size:
            kept = PlainPiece(piece.position + size)
            kept.size = piece.size - size
            kept.chunks = [piece.join()[size:]]
            segments = piece.join_segments()
            first = int(np.searchsorted(segments["start"], size, "right")) - 1
            segments = segments[first:].copy()
            segments["start"] = np.maximum(segments["start"] - size, 0)
            kept.segments = [segments]
            self.pieces = [kept]
            self._emitted = kept.size
        else:
            self._emitted = 0


def _map_segments(
    segments: np.ndarray, starts: np.ndarray, sizes: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Return the segments of decrypted bytes.

    segments: of the encrypted bytes. starts, sizes: of the encrypted bytes of each record, in the
    same buffer. places: where the bytes of each record are in their piece.
    """
    first = np.searchsorted(segments["start"], starts, "right") - 1
    counts = np.searchsorted(segments["start"], starts + sizes, "left") - first
    records = np.repeat(np.arange(len(starts)), counts)
    numbers = np.arange(len(records)) - np.repeat(np.cumsum(counts) - counts, counts)
    mapped: np.ndarray = segments[first[records] + numbers]
    # A byte of a record is not there before the last one.
    last = segments[first + counts - 1]
    for name in ("ready", "order", "order_of_all"):
        mapped[name] = last[name][records]
    inside = np.maximum(mapped["start"] - starts[records], 0)
    mapped["start"] = inside + places[records]
    return mapped


def select_segment(segments: np.ndarray, start: int) -> np.ndarray:
    """Return the one segment, dtype SEGMENT, that has the byte at a place of the buffer."""
    place = max(int(np.searchsorted(segments["start"], start, "right")) - 1, 0)
    selected: np.ndarray = segments[place : place + 1]
    return selected
