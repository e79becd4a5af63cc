"""The writing side of a Lumberjack conversation, without the socket. `client.py` runs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from wirescan.core.arrow_input import is_arrow
from wirescan.core.fault import Fault
from wirescan.frames.errors import NEAR, FrameError
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.encode import TEXTS, encode_batch, encode_batches, encode_events
from wirescan.lumberjack.live.conversation_errors import ConversationError, Reason

ACK_SIZE = 6  # bytes


class Sender:
    """The writing side of a connection: encode windows of events, and track their acks.

    On a new connection, `resend` returns the events that are not acknowledged.

    version: 1 or 2, of all frames. frames: "json" or "data"; by default "json" in version 2 and
    "data" in version 1. window: largest number of events in a window. pipelining: largest number of
    windows that wait for their acks. level: None, or the compression level of the events of each
    window, 0 to 9. Sequence numbers begin at 1 in each window, which all readers accept.

        while sender.ready:
            socket.sendall(sender.send(events))
        count = sender.receive(socket.recv(65536))

    Raises TypeError and ValueError for wrong arguments. Not thread-safe.
    """

    def __init__(
        self,
        *,
        version: int = 2,
        frames: str | None = None,
        window: int = 2048,
        pipelining: int = 2,
        level: int | None = None,
    ):
        if window < 1 or pipelining < 1:
            raise ValueError("window and pipelining must be 1 or more")
        self._version = version
        self._level = level
        self._frames = frames
        self._window = window
        self._pipelining = pipelining
        self._encode([{"is": "fit"}])  # raises for wrong options
        # The events of each window, and how many of them are acknowledged.
        self._sent: deque[tuple[Any, int]] = deque()
        self._answer = bytearray()  # the start of an incomplete ack
        self._offset = 0  # byte position of this ack in the connection

    @property
    def ready(self) -> bool:
        """Whether another window may be sent."""
        return len(self._sent) < self._pipelining

    @property
    def unacknowledged(self) -> int:
        """Number of events that were sent and not acknowledged."""
        return sum(len(events) - acked for events, acked in self._sent)

    def send(self, events: Any) -> bytes | memoryview:
        """Return the bytes of one window. Its events are kept until they are acknowledged.

        events: an iterable of events, each as in `encode_json` (frames "json") or `encode_data`
            ("data"). Or a table of lumberjack.events, whose frames are copied. For "json" also JSON
            texts in an array of Arrow or numpy, as in `encode_batches`. A table or an array must
            not be changed until it is acknowledged.

        Raises ValueError if the sender is not `ready`, for no events, and for more than `window`
        events. Raises TypeError and ValueError as the encoders. After an error nothing is sent.
        """
        if not self.ready:
            raise ValueError(f"{self._pipelining} windows wait for their acks")
        if isinstance(events, (Mapping, *TEXTS)):
            raise TypeError(f"events are an iterable of events, not one {type(events).__name__}")
        if not isinstance(events, (FrameTable, np.ndarray)) and not is_arrow(events):
            events = list(events)
        if not 1 <= len(events) <= self._window:
            raise ValueError(f"a window has from 1 to {self._window} events, not {len(events)}")
        data = self._encode(events)
        self._sent.append((events, 0))
        return data

    def receive(self, data: bytes | bytearray | memoryview) -> int:
        """Return how many more events the reader acknowledges. These are always the oldest ones.

        data: the next bytes of the reader.

        An ack of 0 is a keep-alive. Acks of a part of a window are accepted in both versions.
        Raises ConversationError for bytes that are not an ack, and for an ack of more events than
        the oldest window has. Then close the connection. The acks before it in `data` are counted;
        see `unacknowledged`.
        """
        self._answer += data
        count = 0
        while self._answer:
            if self._answer[0] not in b"12" or bytes(self._answer[1:2]) not in (b"", b"A"):
                raise self._make_refusal(Reason.NOT_AN_ACK)
            if len(self._answer) < ACK_SIZE:
                break
            count += self._acknowledge(int.from_bytes(self._answer[2:ACK_SIZE], "big"))
            del self._answer[:ACK_SIZE]
            self._offset += ACK_SIZE
        return count

    def resend(self) -> bytes:
        """Return all events that are not acknowledged, for a new connection.

        There are as many windows as before. The result is empty if all events are acknowledged.
        """
        self._answer = bytearray()
        self._offset = 0
        self._sent = deque((events[acked:], 0) for events, acked in self._sent)
        return b"".join(self._encode(events) for events, _ in self._sent)

    def _encode(self, events: Any) -> bytes | memoryview:
        if isinstance(events, FrameTable):
            return encode_events(
                events, window=len(events), version=self._version, level=self._level
            )
        if isinstance(events, list):
            return encode_batch(
                events, frames=self._frames, version=self._version, level=self._level
            )
        is_json = self._version != 1 if self._frames is None else self._frames == "json"
        if not is_json:
            raise TypeError("an array holds JSON texts, and this sender writes no JSON frames")
        return encode_batches(events, window=len(events), version=self._version, level=self._level)

    def _acknowledge(self, sequence: int) -> int:
        """Apply an ack to the oldest window. Returns how many more events it acknowledges."""
        if not sequence:
            return 0
        events, acked = self._sent[0] if self._sent else ((), 0)
        if sequence > len(events):
            raise self._make_refusal(Reason.ACK_BEYOND)
        if sequence == len(events):
            self._sent.popleft()
        elif sequence > acked:
            self._sent[0] = events, sequence
        return max(sequence - acked, 0)

    def _make_refusal(self, reason: Reason) -> ConversationError:
        near = bytes(self._answer[:NEAR])
        error = FrameError(Fault.OK, self._offset, self._offset // ACK_SIZE, near)
        return ConversationError(error, reason)
