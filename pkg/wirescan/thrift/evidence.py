"""How unlikely a good Thrift frame is in bytes of another kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import numpy as np

from wirescan.frames.conversation import WEIGHED_BYTES, Opening, make_opening
from wirescan.frames.errors import FrameError
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.thrift.constants import Kind, MessageType, Protocol

# Bits of the first bytes of a frame: the magic of a header, and the words of HTTP.
FRAME_BITS = {
    Kind.HEADER: 16,
    Kind.BIG_HEADER: 32,
    Kind.DOUBLE_HEADER: 32,
    Kind.HTTP: 40,
    Kind.HTTP_CHUNKED: 40,
    Kind.TTHEADER: 16,
}
STRICT = 24 + 6  # version word and type of a binary message
LOOSE = 6  # type of a binary message without a version word
COMPACT = 8 + 5 + 1  # protocol, version and type of a compact message
METHOD = re.compile(rb"[A-Za-z_][A-Za-z0-9_.:]*")
CHARACTER = 2  # bits that a character of a method is worth: it is one of 65
LONGEST = 16  # characters of a method that count
STRUCT = 12  # a struct ends where the length of the frame says
UNFRAMED = (Kind.UNFRAMED_BINARY, Kind.UNFRAMED_COMPACT)
PLAIN = (Kind.FRAMED_BINARY, Kind.FRAMED_COMPACT, *UNFRAMED)  # a message, with a length or without
UNSIZED = (*UNFRAMED, Kind.HTTP, Kind.HTTP_CHUNKED)  # their first bytes may not state their size
NEEDS_MESSAGE = (Kind.HTTP, Kind.HTTP_CHUNKED)  # other content than Thrift is frequent there
LIMITS = Limits(inflated=1 << 20, inflated_total=4 << 20, rows=1 << 16)
SENDERS: dict[MessageType, Literal["client", "server"]] = {
    MessageType.CALL: "client",
    MessageType.REPLY: "server",
    MessageType.EXCEPTION: "server",
    MessageType.ONEWAY: "client",
}
COMPACT_VERSION = 1  # in the five low bits of a byte; the type is in the three high ones


def _list_openings() -> Iterator[Opening]:
    """Yield how binary and compact messages of each type begin, and what HTTP begins with.

    Messages in a framed transport have less than 16 MiB. Compact ones are only found there.
    """
    for kind, sender in SENDERS.items():
        yield make_opening(sender, b"\0", 3, b"\x80\x01\0", bytes([kind]))
        yield make_opening(sender, b"\0", 3, b"\x82", bytes([kind << 5 | COMPACT_VERSION]))
        yield make_opening(sender, b"\x80\x01\0", bytes([kind]), b"\0\0")
    yield make_opening("client", b"POST /")
    yield make_opening("server", b"HTTP/1.")


OPENINGS = tuple(_list_openings())


def weigh_frames(frames: FrameTable) -> np.ndarray:
    """Return how unlikely each frame is, in bits: float64."""
    bits = np.zeros(len(frames), np.float64)
    for kind, value in FRAME_BITS.items():
        bits[frames["kind"] == kind] = value
    message_bits = np.zeros(len(frames), np.float64)
    with suppress(FrameError):  # the payloads are larger than is worth while
        message_bits = _weigh_messages(frames)
    bits += message_bits
    bits[np.isin(frames["kind"], NEEDS_MESSAGE) & (message_bits == 0)] = 0
    return bits


def weigh_frames_alone(frames: FrameTable) -> np.ndarray:
    """Return how unlikely each frame is after lost bytes, in bits: float64.

    Of a plain frame, the beginning of its message counts, and of others their first bytes. So the
    number of a frame does not depend on how much the others have to be decompressed to.
    """
    kinds = frames["kind"]
    bits = np.zeros(len(frames), np.float64)
    for kind, value in FRAME_BITS.items():
        bits[kinds == kind] = value
    plain = np.flatnonzero(np.isin(kinds, PLAIN))
    messages = frames[plain].open("messages", errors="skip")
    bits[plain[messages["parent"]]] = _weigh_methods(messages)
    bits[np.isin(kinds, UNSIZED) & (frames["size"] > WEIGHED_BYTES)] = 0
    return bits


def _weigh_messages(frames: FrameTable) -> np.ndarray:
    """Return the bits of the message in each frame, float64; 0 without one.

    Raises FrameError if the payloads are too large.
    """
    bits = np.zeros(len(frames), np.float64)
    messages = frames.open("messages", errors="skip", limits=LIMITS)
    fields = messages.open("fields", depth=1, errors="mark", limits=LIMITS)
    has_end = np.ones(len(messages), bool)
    has_end[fields["parent"][fields.bad]] = False
    kinds = frames["kind"][messages["parent"]]
    has_end[np.isin(kinds, UNFRAMED)] = False  # the struct is what ends the frame
    method_bits = _weigh_methods(messages)
    named = np.flatnonzero(method_bits)
    bits[messages["parent"][named]] = method_bits[named] + STRUCT * has_end[named]
    return bits


def _weigh_methods(messages: FrameTable) -> np.ndarray:
    """Return the bits of messages up to their methods, int64; 0 if a method is no name."""
    is_compact = messages["protocol"] == Protocol.COMPACT
    bits = np.where(is_compact, COMPACT, np.where(messages["strict"], STRICT, LOOSE))
    for row in range(len(messages)):
        method = bytes(messages.bytes(row, "method") or b"")
        if METHOD.fullmatch(method):
            bits[row] += CHARACTER * min(len(method), LONGEST)
        else:
            bits[row] = 0
    return bits
