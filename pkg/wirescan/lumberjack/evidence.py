"""How unlikely a good Lumberjack frame is in bytes of another kind."""

from __future__ import annotations

import numpy as np

from wirescan.frames.conversation import WEIGHED_BYTES, make_opening
from wirescan.frames.evidence import read_byte, weigh_small_numbers
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.constants import Kind

START = 12  # bits: two of 256 versions, and five of 256 types
BYTE = 8
ZLIB = 0x78  # the first byte of a zlib stream that writers make; the first two are divisible by 31
ZLIB_CHECK = 31
OPENING_BRACE = ord("{")
CLOSING_BRACE = ord("}")
# A window of less than 65,536 events, an event, compressed frames, and an ack.
OPENINGS = (
    make_opening("client", (0x31, 0x32), b"W\0\0"),
    make_opening("client", (0x31, 0x32), b"D"),
    make_opening("client", (0x31, 0x32), b"C", 4, bytes([ZLIB])),
    make_opening("client", b"2J", 8, b"{"),
    make_opening("server", (0x31, 0x32), b"A", 4),
)
COUNTED = {
    Kind.WINDOW: "count",
    Kind.ACK: "sequence",
    Kind.DATA: "count",
    Kind.JSON: "sequence",
}


def weigh_frames(frames: FrameTable) -> np.ndarray:
    """Return how unlikely each frame is, in bits: float64."""
    rows = frames.rows
    bits = np.full(len(rows), START, np.float64)
    for kind, column in COUNTED.items():
        chosen = np.flatnonzero(rows["kind"] == kind)
        bits[chosen] += weigh_small_numbers(rows[column][chosen])
    events = np.flatnonzero(rows["kind"] == Kind.JSON)
    bits[events] += _weigh_braces(frames, events)
    compressed = np.flatnonzero(rows["kind"] == Kind.COMPRESSED)
    bits[compressed] += _weigh_zlib_header(frames, compressed)
    return bits


def _weigh_braces(frames: FrameTable, chosen: np.ndarray) -> np.ndarray:
    """Return the bits of the first and the last byte of events, which are JSON objects: int64."""
    first = read_byte(frames, chosen, frames.rows["body"][chosen].astype(np.int64))
    last = read_byte(frames, chosen, frames.rows["size"][chosen].astype(np.int64) - 1)
    return BYTE * (first == OPENING_BRACE) + BYTE * (last == CLOSING_BRACE)


def _weigh_zlib_header(frames: FrameTable, chosen: np.ndarray) -> np.ndarray:
    """Return the bits of the first two compressed bytes: int64."""
    at = frames.rows["body"][chosen].astype(np.int64)
    first = read_byte(frames, chosen, at)
    second = read_byte(frames, chosen, at + 1)
    is_header = (first == ZLIB) & ((ZLIB << 8 | second) % ZLIB_CHECK == 0)
    return (BYTE + BYTE // 2) * is_header


def weigh_frames_alone(frames: FrameTable) -> np.ndarray:
    """Return how unlikely each frame is after lost bytes, in bits: float64.

    The size of a long frame of pairs depends on all of its bytes, so it has 0.
    """
    bits = weigh_frames(frames)
    bits[(frames["kind"] == Kind.DATA) & (frames["size"] > WEIGHED_BYTES)] = 0
    return bits
