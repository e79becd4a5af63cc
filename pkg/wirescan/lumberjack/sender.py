"""The writing side of a conversation in Lumberjack, without the socket."""
from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from wirescan.core.chunks import is_arrow
from wirescan.core.fault import Fault
from wirescan.errors import NEAR, FrameError
from wirescan.lumberjack.encode import encode_batch, encode_batches, encode_events
from wirescan.lumberjack.refusal import ConversationError, Reason
from wirescan.table import FrameTable

ACK = 6                     # bytes
TEXTS = (bytes, bytearray, memoryview, str)


class Sender:
    """Events in, bytes of windows out, and what the acks say; on a new connection again what was not acknowledged.

    version: 1 or 2, of all frames. frames: "json" or "data", by default what is known in that version. window: events
    in one window at most. pipelining: windows that may wait for their acks. level: None, or that of the zlib stream in
    which the events of each window are sent, 0 to 9. Sequence numbers begin at 1 in each window, as all readers take.

        while sender.ready:
            socket.sendall(sender.send(events))
        count = sender.receive(socket.recv(65536))

    Raises TypeError and ValueError for unfit arguments. For one thread at a time.
    """

    def __init__(self, *, version: int = 2, frames: str | None = None, window: int = 2048, pipelining: int = 2,
                 level: int | None = None):
        if window < 1 or pipelining < 1:
            raise ValueError("window and pipelining must be 1 or more")
        self._options = {"version": version, "level": level}
        self._frames, self._window, self._pipelining = frames, window, pipelining
        self._encode([{"is": "fit"}])
        self._sent: deque[tuple[Any, int]] = deque()        # the events of each window, how many are acknowledged
        self._answer = bytearray()                          # the beginning of an ack
        self._offset = 0                                    # of it, on this connection

    @property
    def ready(self) -> bool:
        """Whether another window may be sent."""
        return len(self._sent) < self._pipelining

    @property
    def unacknowledged(self) -> int:
        """Events that were sent and not acknowledged."""
        return sum(len(events) - acked for events, acked in self._sent)

    def send(self, events: Any) -> bytes | memoryview:
        """The bytes of one window; its events are held until they are acknowledged.

        events: an iterable of events, each as `encode_json` takes it (frames "json") or `encode_data` ("data"); a table
        of lumberjack.events, whose frames stay what they are; for "json" also JSON texts in an array of Arrow or numpy,
        as in `encode_batches`. The last three must not be written to meanwhile. Raises ValueError when not `ready`, for
        no events, and for more than `window`; TypeError and ValueError as the encoders. Then nothing is sent.
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
        """How many more events the reader acknowledges with these bytes: always the oldest ones.

        An ack of 0 says only that the reader is alive; acks of a part of a window are taken in both versions. Raises
        ConversationError for what is no ack, or acknowledges more than the oldest window has: close the connection;
        what came before in these bytes does count, as `unacknowledged` says.
        """
        self._answer += data
        count = 0
        while self._answer:
            if self._answer[0] not in b"12" or self._answer[1:2] not in (b"", b"A"):
                raise self._refused(Reason.NOT_AN_ACK)
            if len(self._answer) < ACK:
                break
            count += self._acknowledged(int.from_bytes(self._answer[2:ACK], "big"))
            del self._answer[:ACK]
            self._offset += ACK
        return count

    def resend(self) -> bytes:
        """All that is not acknowledged, in as many windows as before, for a new connection; empty if nothing is."""
        self._answer, self._offset = bytearray(), 0
        self._sent = deque((events[acked:], 0) for events, acked in self._sent)
        return b"".join(self._encode(events) for events, _ in self._sent)

    def _encode(self, events: Any) -> bytes | memoryview:
        if isinstance(events, FrameTable):
            return encode_events(events, window=len(events), **self._options)
        if isinstance(events, list):
            return encode_batch(events, frames=self._frames, **self._options)
        if (self._frames or "json") != "json" or self._frames is None and self._options["version"] == 1:
            raise TypeError("an array holds JSON texts, and they are no data frames")
        return encode_batches(events, window=len(events), **self._options)

    def _acknowledged(self, sequence: int) -> int:
        if not sequence:
            return 0
        events, acked = self._sent[0] if self._sent else ((), 0)
        if sequence > len(events):
            raise self._refused(Reason.ACK_BEYOND)
        if sequence == len(events):
            self._sent.popleft()
        elif sequence > acked:
            self._sent[0] = events, sequence
        return max(sequence - acked, 0)

    def _refused(self, reason: Reason) -> ConversationError:
        near = bytes(self._answer[:NEAR])
        return ConversationError(FrameError(Fault.OK, self._offset, self._offset // ACK, near), reason)
