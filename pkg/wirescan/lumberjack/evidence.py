"""How unlikely a good Lumberjack frame is in bytes of another kind."""

from __future__ import annotations

import numpy as np

from wirescan.frames.conversation import WEIGHED_BYTES, make_opening
from wirescan.frames.evidence import weigh_small_numbers
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.constants import Kind

START = 12  # bits: two of 256 versions, and five of 256 types
BYTE = 8
ZLIB = 0x78  # the first byte of a zlib stream that writers make; the first two are divisible by 31
ZLIB_CHECK = 31
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
    bits = np.full(len(frames), START, np.float64)
    for kind, column in COUNTED.items():
        chosen = frames["kind"] == kind
        bits[chosen] += weigh_small_numbers(frames[column][chosen])
    for row in np.flatnonzero(np.isin(frames["kind"], (Kind.JSON, Kind.COMPRESSED))).tolist():
        frame = frames.frame(row)
        payload = frame[int(frames["body"][row]) :]
        if frames["kind"][row] == Kind.JSON:
            bits[row] += BYTE * (payload[:1] == b"{") + BYTE * (payload[-1:] == b"}")
        elif payload[:1] == bytes([ZLIB]) and int.from_bytes(payload[:2], "big") % ZLIB_CHECK == 0:
            bits[row] += BYTE + BYTE // 2
    return bits


def weigh_frames_alone(frames: FrameTable) -> np.ndarray:
    """Return how unlikely each frame is after lost bytes, in bits: float64.

    The size of a long frame of pairs depends on all of its bytes, so it has 0.
    """
    bits = weigh_frames(frames)
    bits[(frames["kind"] == Kind.DATA) & (frames["size"] > WEIGHED_BYTES)] = 0
    return bits
