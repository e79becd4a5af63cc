"""Why a conversation in Lumberjack ends: the reasons, the exception, and a guess what the peer speaks instead."""
from __future__ import annotations

import re
from enum import Enum

from wirescan.core.fault import Fault
from wirescan.errors import MEANING, FrameError


class Reason(Enum):
    """What a frame did that no frame may at that place. Those of a strict Receiver are taken by some real readers only;
    which, the table in docs/lumberjack.md says. fault: the `Fault` that it is told as. meaning: one line."""
    fault: Fault
    meaning: str

    def __init__(self, fault: Fault, meaning: str):
        self.fault, self.meaning = fault, meaning

    # a strict receiver
    SHORT_WINDOW = Fault.BAD_COUNT, "a window begins before all events of the one before it came"
    SURPLUS_EVENT = Fault.BAD_COUNT, "an event more than its window announced"
    NO_WINDOW = Fault.BAD_COUNT, "an event before the first window"
    LARGE_WINDOW = Fault.BAD_COUNT, "a window of more events than allowed"
    SPLIT_WINDOW = Fault.BAD_COUNT, "the events of a window are neither all plain nor all in one compressed frame"
    WINDOW_INSIDE = Fault.NESTED, "a window begins inside a compressed frame"
    WRONG_VERSION = Fault.BAD_VERSION, "a JSON frame of version 1, or a data frame of version 2"
    MIXED_VERSIONS = Fault.BAD_VERSION, "a frame of another version than the first one"
    LARGE_SEQUENCE = Fault.BAD_OFFSET, "a sequence number of 2**31 or more"
    NO_PAIRS = Fault.EMPTY, "a data frame without pairs"
    NOT_AN_OBJECT = Fault.NOT_A_FRAME, "a JSON document that is no object"
    CUT_PAYLOAD = Fault.TRUNCATED, "a compressed frame ends before its zlib stream does"
    LONG_PAYLOAD = Fault.LEFTOVER, "bytes follow the zlib stream in a compressed frame"
    EMPTY_PAYLOAD = Fault.EMPTY, "a compressed frame without frames"
    ACK_FROM_WRITER = Fault.NOT_A_FRAME, "an ack, which only readers send"
    # a sender
    NOT_AN_ACK = Fault.NOT_A_FRAME, "something else than an ack, which is all that readers send"
    ACK_BEYOND = Fault.BAD_COUNT, "an ack of more events than its window has"


class ConversationError(FrameError):
    """Bytes after which a connection must be closed.

    reason: the `Reason`, or None where the bytes are no frame, as `fault` says. hint: what the peer may speak instead,
    or an empty string. offset: in bytes from the beginning of the connection. The rest is as in FrameError.
    """
    def __init__(self, error: FrameError, reason: Reason | None = None):
        fault = error.fault if reason is None else reason.fault
        super().__init__(fault, error.offset, error.row, error.near, error.source, error.inflated)
        self.args = error, reason
        self.reason = reason
        self.hint = hint(error.near) if error.offset == 0 and not error.inflated else ""

    def __str__(self) -> str:
        text = super().__str__()
        if self.reason is not None:
            text = text.replace(f"{MEANING[self.fault]} ({self.fault.name})",
                                f"{self.reason.meaning} ({self.reason.name})", 1)
        return f"{text}; {self.hint}" if self.hint else text


# What the peer does instead, and how that begins.
HINTS = {
    "the peer speaks TLS, and this side does not": (b"\x16\x03",),
    "the peer answers with an alert of TLS: it expects TLS": (b"\x15\x03",),
    "the peer speaks HTTP": (b"HTTP/", b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ",
                             b"CONNECT ", b"TRACE ", b"PRI * HTTP/2"),
    "a proxy between puts the PROXY protocol first": (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"),
    "the peer speaks SSH": (b"SSH-",),
    "the peer sends syslog": (b"<",),
    "the peer sends JSON without the frames of Lumberjack": (b"{", b"["),
}
COUNTED_SYSLOG = re.compile(rb"\d+ <")        # RFC 6587: the length first


def hint(data: bytes | bytearray | memoryview) -> str:
    """What a peer speaks whose first bytes, one or more, are no Lumberjack: a sentence for an error message, or ""
    where that is not known."""
    data = bytes(data[:16])
    if COUNTED_SYSLOG.match(data):
        return "the peer sends syslog"
    return next((said for said, beginnings in HINTS.items() if data and any(
        data.startswith(one) or one.startswith(data) for one in beginnings)), "")
