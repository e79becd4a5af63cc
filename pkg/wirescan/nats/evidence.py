"""How unlikely a good NATS message is in bytes of another kind."""

from __future__ import annotations

import numpy as np

from wirescan.frames.conversation import WEIGHED_BYTES, make_opening
from wirescan.frames.table import FrameTable
from wirescan.nats.constants import Kind

LETTER = 7  # bits of a letter in upper or lower case
BYTE = 8
SHOWN = 64  # first bytes of a message that are looked at
LINE_END = b"\r\n"
SIZED = (Kind.PUB, Kind.HPUB, Kind.MSG, Kind.HMSG)  # their sizes say where a line end must be
# PING and PONG are sent by both sides.
OPENINGS = (
    *(
        make_opening("client", word)
        for word in (b"CONNECT {", b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ")
    ),
    *(
        make_opening("server", word)
        for word in (b"INFO {", b"MSG ", b"HMSG ", b"+OK\r\n", b"-ERR '")
    ),
)
OBJECTS = (Kind.INFO, Kind.CONNECT)  # a JSON object follows the operation


def weigh_messages(messages: FrameTable) -> np.ndarray:
    """Return how unlikely each message is, in bits: float64."""
    bits = np.zeros(len(messages), np.float64)
    for row, kind in enumerate(messages["kind"].tolist()):
        frame = messages.frame(row)
        words = bytes(frame[:SHOWN]).split(None, 1)
        has_object = len(words) > 1 and words[1].startswith(b"{")
        if kind in OBJECTS and not has_object:
            continue  # many other texts have lines that begin with INFO
        bits[row] = LETTER * len(words[0])
        ends = (bytes(frame[-2:]) == LINE_END) + (kind in SIZED)
        bits[row] += 2 * BYTE * ends + BYTE * has_object
    return bits


def weigh_messages_alone(messages: FrameTable) -> np.ndarray:
    """Return how unlikely each message is after lost bytes, in bits: float64.

    A long line says nothing of its size, so it has 0.
    """
    bits = weigh_messages(messages)
    is_line = ~np.isin(messages["kind"], SIZED)
    bits[is_line & (messages["size"] > WEIGHED_BYTES)] = 0
    return bits
