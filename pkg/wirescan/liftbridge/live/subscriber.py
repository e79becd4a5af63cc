"""The subscribing side of a conversation over NATS, without the connection.

`Subscriber` collects payloads in batches, and returns a table for each batch. `client.py` runs it
on a connection.

A subscriber on NATS receives messages as they are published. They lack the offset and the
timestamp, which Liftbridge adds when it stores them. A subject may carry anything, so plain NATS
messages are rows too (Kind.PLAIN).
"""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from wirescan.core.arrow_input import as_byte_array
from wirescan.frames.errors import check_mode
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.liftbridge.formats import scan

ENVELOPES = "liftbridge.envelopes"


class _WaitingPayload(NamedTuple):
    """A payload that is in no table yet, its size in bytes, and when it arrived."""

    payload: Any
    size: int
    arrived: float


class Subscriber:
    """Turns payloads of NATS messages into tables: one table for each batch of payloads.

    count, bytes: a batch ends with the payload that reaches one of these limits. seconds: a batch
    also ends when its first payload has waited for this time. format: of the tables:
    "liftbridge.messages", "liftbridge.envelopes", or a format inside them; `table.outer` leads to
    the envelopes, which have a row for each payload of the batch. errors: "mark" by default,
    because anybody may publish anything on a subject. check, limits: as in `liftbridge.scan`.
    clock: returns seconds that never decrease.

        subscriber.receive(payloads)
        while (table := subscriber.poll()) is not None:
            ...

    Between polls, memory holds the payloads that `receive` got since then, and a batch that is not
    full. Raises TypeError and ValueError for wrong arguments. Not safe for threads.
    """

    def __init__(
        self,
        *,
        count: int = 10_000,
        bytes: int = 4 << 20,
        seconds: float = 1.0,
        format: str = "liftbridge.messages",
        errors: str = "mark",
        check: bool = True,
        limits: Limits = Limits(),
        clock: Callable[[], float] = time.monotonic,
    ):
        check_mode(errors, limits)
        if operator.index(count) < 1 or operator.index(bytes) < 1 or not seconds >= 0:
            raise ValueError("count and bytes must be 1 or more, seconds 0 or more")
        self._format = format_of(format)
        outer = self._format
        while outer.name != ENVELOPES:
            if outer.within is None:
                raise ValueError(f"format must be {ENVELOPES} or a format inside it, not {format}")
            outer = format_of(outer.within)
        self._count = min(count, limits.rows)  # a table cannot have more rows than the limit
        self._max_bytes = bytes
        self._seconds = seconds
        self._clock = clock
        self._errors = errors
        self._options = {"check": check, "limits": limits}
        self._waiting: deque[_WaitingPayload] = deque()
        self._bytes = 0

    @property
    def held(self) -> int:
        """The number of payloads that are in no table yet."""
        return len(self._waiting)

    @property
    def ready(self) -> bool:
        """Whether a batch has ended, so that `poll` returns a table."""
        return (
            len(self._waiting) >= self._count
            or self._bytes >= self._max_bytes
            or (bool(self._waiting) and self._clock() >= self._waiting[0].arrived + self._seconds)
        )

    @property
    def deadline(self) -> float | None:
        """The time, by the clock, at which the next batch ends; None if no payload waits."""
        return self._waiting[0].arrived + self._seconds if self._waiting else None

    def receive(self, payloads: Iterable[Any]) -> None:
        """Add the payloads of some NATS messages, in order.

        payloads: bytes-like objects. They are not copied, so they must not change afterwards.
        """
        now = self._clock()
        items = [_WaitingPayload(payload, len(as_byte_array(payload)), now) for payload in payloads]
        self._waiting += items
        self._bytes += sum(item.size for item in items)

    def poll(self, *, errors: str | None = None) -> FrameTable | None:
        """Return the table of the next batch, or None if no batch has ended.

        errors: replaces the mode of this object for one call. Raises FrameError if the mode is
        "strict"; then the batch is kept, and the next call returns it again.
        """
        return self.flush(errors=errors) if self.ready else None

    def flush(self, *, errors: str | None = None) -> FrameTable | None:
        """Return the table of the next batch, even if it has not ended; None without payloads.

        errors: as in `poll`.
        """
        batch: list[Any] = []
        size = 0
        for item in self._waiting:
            batch.append(item.payload)
            size += item.size
            if len(batch) == self._count or size >= self._max_bytes:
                break
        if not batch:
            return None
        options: dict[str, Any] = {
            "errors": self._errors if errors is None else errors,
            **self._options,
        }
        table = self._format.inside(scan(batch, **options), **options)
        for _ in batch:
            self._waiting.popleft()
        self._bytes -= size
        return table
