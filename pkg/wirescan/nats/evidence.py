"""How unlikely a good NATS message is in bytes of another kind."""

from __future__ import annotations

import numpy as np

from wirescan.frames.conversation import WEIGHED_BYTES, make_opening
from wirescan.frames.evidence import read_byte
from wirescan.frames.table import FrameTable
from wirescan.nats.constants import Kind

LETTER = 7  # bits of a letter in upper or lower case
BYTE = 8
SHOWN = 64  # first bytes of a message that are looked at
CR, LF = b"\r\n"
OPENING_BRACE = ord("{")
BLANK, TAB = b" \t"
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
SIGNED = (Kind.OK, Kind.ERR)  # +OK and -ERR
OBJECTS = (Kind.INFO, Kind.CONNECT)  # a JSON object follows the operation
# By the number of a kind, which is 1 or more.
WORD_SIZES = np.array([0, *(len(kind.name) + (kind in SIGNED) for kind in Kind)])
IS_SIZED = np.isin(np.arange(len(WORD_SIZES)), SIZED)
NEEDS_OBJECT = np.isin(np.arange(len(WORD_SIZES)), OBJECTS)


def weigh_messages(messages: FrameTable) -> np.ndarray:
    """Return how unlikely each message is, in bits: float64."""
    kinds = messages["kind"]
    word_sizes = WORD_SIZES[kinds]
    has_object = _find_objects(messages, word_sizes)
    everything = np.arange(len(messages))
    sizes = messages["size"].astype(np.int64)
    has_line_end = read_byte(messages, everything, sizes - 2) == CR
    has_line_end &= read_byte(messages, everything, sizes - 1) == LF
    ends = has_line_end.astype(np.float64) + IS_SIZED[kinds]
    bits = LETTER * word_sizes + 2 * BYTE * ends + BYTE * has_object
    bits[NEEDS_OBJECT[kinds] & ~has_object] = 0  # many other texts have lines with INFO
    return bits


def _find_objects(messages: FrameTable, at: np.ndarray) -> np.ndarray:
    """Return in which messages a JSON object follows the operation: a bool array.

    at: the size of each operation.
    """
    has_object = np.zeros(len(messages), bool)
    rows = np.arange(len(messages))
    at = at.copy()
    while len(rows):
        values = read_byte(messages, rows, at[rows])
        has_object[rows] = values == OPENING_BRACE
        # CR is the last of the five bytes from TAB on, which are all blank.
        rows = rows[(values == BLANK) | (values >= TAB) & (values <= CR)]
        at[rows] += 1
        rows = rows[at[rows] < SHOWN]
    return has_object


def weigh_messages_alone(messages: FrameTable) -> np.ndarray:
    """Return how unlikely each message is after lost bytes, in bits: float64.

    A long line says nothing of its size, so it has 0.
    """
    bits = weigh_messages(messages)
    is_line = ~IS_SIZED[messages["kind"]]
    bits[is_line & (messages["size"] > WEIGHED_BYTES)] = 0
    return bits
