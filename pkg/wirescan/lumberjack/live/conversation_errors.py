"""Why a Lumberjack conversation ends: reasons, the exception, and hints about the peer's protocol.

`receiver.py` and `sender.py` raise these errors.
"""

from __future__ import annotations

import re
from enum import Enum

from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError
from wirescan.frames.fault_names import MEANING


class Reason(Enum):
    """Why a frame is refused at its position in the conversation.

    Frames that a strict Receiver refuses are accepted by some real readers only. The table in
    docs/lumberjack.md has these readers. fault: the `Fault` of the error. meaning: one line.
    """

    fault: Fault
    meaning: str

    def __init__(self, fault: Fault, meaning: str):
        self.fault = fault
        self.meaning = meaning

    # Reasons of a strict receiver.
    SHORT_WINDOW = Fault.BAD_COUNT, "a window begins before all events of the previous window came"
    SURPLUS_EVENT = Fault.BAD_COUNT, "a window has more events than it announced"
    NO_WINDOW = Fault.BAD_COUNT, "an event comes before the first window"
    LARGE_WINDOW = Fault.BAD_COUNT, "a window announces more events than allowed"
    SPLIT_WINDOW = (
        Fault.BAD_COUNT,
        "the events of a window are neither all plain nor all in one compressed frame",
    )
    WINDOW_INSIDE = Fault.NESTED, "a window begins inside a compressed frame"
    WRONG_VERSION = Fault.BAD_VERSION, "a JSON frame has version 1, or a data frame has version 2"
    MIXED_VERSIONS = Fault.BAD_VERSION, "a frame has another version than the first frame"
    LARGE_SEQUENCE = Fault.BAD_OFFSET, "a sequence number is 2**31 or more"
    NO_PAIRS = Fault.EMPTY, "a data frame has no pairs"
    NOT_AN_OBJECT = Fault.NOT_A_FRAME, "a document is not a JSON object"
    CUT_PAYLOAD = Fault.TRUNCATED, "a compressed frame ends before its zlib stream"
    LONG_PAYLOAD = Fault.LEFTOVER, "bytes follow the zlib stream in a compressed frame"
    EMPTY_PAYLOAD = Fault.EMPTY, "a compressed frame has no frames"
    ACK_FROM_WRITER = Fault.NOT_A_FRAME, "a writer sent an ack, which only readers send"
    # Reasons of a sender.
    NOT_AN_ACK = Fault.NOT_A_FRAME, "the reader sent something other than an ack"
    ACK_BEYOND = Fault.BAD_COUNT, "an ack is for more events than its window has"


class ConversationError(FrameError):
    """The peer sent bytes that are refused, so the connection must be closed.

    reason: the `Reason`, or None if the bytes are bad at any position; `fault` says why.
    hint: the protocol that the peer may speak instead, as a clause, or an empty string.
    offset: byte position in the connection. The other attributes are those of FrameError.
    """

    def __init__(self, error: FrameError, reason: Reason | None = None):
        fault = error.fault if reason is None else reason.fault
        super().__init__(fault, error.offset, error.row, error.near, error.source, error.inflated)
        self.args = error, reason
        self.reason = reason
        self.hint = guess_protocol(error.near) if error.offset == 0 and not error.inflated else ""

    def __str__(self) -> str:
        text = super().__str__()
        if self.reason is not None:
            fault = self.reason.fault
            text = text.replace(
                f"{MEANING[fault]} ({fault.name})",
                f"{self.reason.meaning} ({self.reason.name})",
                1,
            )
        return f"{text}; {self.hint}" if self.hint else text


# What the peer does instead: the first bytes of each protocol.
HINTS = {
    "the peer speaks TLS, and this side does not": (b"\x16\x03",),
    "the peer answers with a TLS alert: it expects TLS": (b"\x15\x03",),
    "the peer speaks HTTP": (
        b"HTTP/",
        b"GET ",
        b"HEAD ",
        b"POST ",
        b"PUT ",
        b"DELETE ",
        b"OPTIONS ",
        b"PATCH ",
        b"CONNECT ",
        b"TRACE ",
        b"PRI * HTTP/2",
    ),
    "a proxy sends a header of the PROXY protocol": (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"),
    "the peer speaks SSH": (b"SSH-",),
    "the peer sends syslog": (b"<",),
    "the peer sends JSON without Lumberjack frames": (b"{", b"["),
}
COUNTED_SYSLOG = re.compile(rb"\d+ <")  # RFC 6587: each message begins with its length
LONGEST_BEGINNING = 16  # bytes that are compared


def guess_protocol(data: bytes | bytearray | memoryview) -> str:
    """Return which other protocol a peer speaks: a clause for an error message, or "" if unknown.

    data: the first bytes of the peer, at least one.
    """
    data = bytes(data[:LONGEST_BEGINNING])
    if not data:
        return ""
    if COUNTED_SYSLOG.match(data):
        return "the peer sends syslog"
    for clause, beginnings in HINTS.items():
        # The first bytes may also be the start of a beginning.
        if any(data.startswith(start) or start.startswith(data) for start in beginnings):
            return clause
    return ""
