"""The subscribing side of a conversation over NATS, without the connection: payloads in, tables out, batch by batch.

A subscriber on NATS sees messages as they are published: what Liftbridge adds when it stores them, offset and
timestamp, is not in them. A subject may carry anything: plain NATS messages are rows, too (Kind.PLAIN).
"""
from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from wirescan.catalog import format_of
from wirescan.core.chunks import flat
from wirescan.errors import check_mode
from wirescan.liftbridge import scan
from wirescan.limits import Limits
from wirescan.table import FrameTable

__all__ = ["Subscriber"]

ENVELOPES = "liftbridge.envelopes"


class Subscriber:
    """Payloads of NATS messages in, tables out: each of a batch of payloads.

    count, bytes: a batch ends with the payload that reaches one of them. seconds: ... or once its first payload has
    waited so long. format: what the tables hold: "liftbridge.messages", "liftbridge.envelopes" or what lies in them;
    `table.outer` leads to the envelopes, a row for each payload of the batch. errors: "mark" by default, as anybody may
    publish anything on a subject. clock: seconds that never go back.

        subscriber.receive(payloads)
        while (table := subscriber.poll()) is not None:
            ...

    No more is held than `receive` was given since, a batch that is not full, and what they take. Raises TypeError and
    ValueError for unfit arguments. For one thread at a time.
    """

    def __init__(self, *, count: int = 10_000, bytes: int = 4 << 20, seconds: float = 1.0,
                 format: str = "liftbridge.messages", errors: str = "mark", check: bool = True,
                 limits: Limits = Limits(), clock: Callable[[], float] = time.monotonic):
        check_mode(errors, limits)
        if operator.index(count) < 1 or operator.index(bytes) < 1 or not seconds >= 0:
            raise ValueError("count and bytes must be 1 or more, seconds 0 or more")
        self._format = format_of(format)
        inner = self._format
        while inner.name != ENVELOPES:
            if inner.within is None:
                raise ValueError(f"{format} does not lie in {ENVELOPES}")
            inner = format_of(inner.within)
        # A batch beyond the limit would never be a table.
        self._count, self._most, self._seconds, self._clock = min(count, limits.rows), bytes, seconds, clock
        self._errors, self._options = errors, {"check": check, "limits": limits}
        self._held: deque[tuple[Any, int, float]] = deque()     # payload, its size, when it came
        self._bytes = 0

    @property
    def held(self) -> int:
        """Payloads that are in no table yet."""
        return len(self._held)

    @property
    def ready(self) -> bool:
        """Whether a batch has ended, for `poll`."""
        return len(self._held) >= self._count or self._bytes >= self._most or (
            bool(self._held) and self._clock() >= self._held[0][2] + self._seconds)

    @property
    def deadline(self) -> float | None:
        """When, by the clock, the next batch is due; None while nothing waits."""
        return self._held[0][2] + self._seconds if self._held else None

    def receive(self, payloads: Iterable[Any]) -> None:
        """Takes the payloads of some NATS messages, in order: bytes-like, not copied, and not written to any more."""
        now = self._clock()
        sizes = [(payload, len(flat(payload)), now) for payload in payloads]
        self._held += sizes
        self._bytes += sum(size for _, size, _ in sizes)

    def poll(self, *, errors: str | None = None) -> FrameTable | None:
        """The table of the next batch, if one has ended.

        errors: for this once. Raises FrameError if they are "strict"; the batch then stays, and comes again.
        """
        return self.flush(errors=errors) if self.ready else None

    def flush(self, *, errors: str | None = None) -> FrameTable | None:
        """The same, for who does not want to wait: of what is there, if anything is."""
        batch, size = [], 0
        for payload, own, _ in self._held:
            batch.append(payload)
            size += own
            if len(batch) == self._count or size >= self._most:
                break
        if not batch:
            return None
        options: dict[str, Any] = {"errors": self._errors if errors is None else errors, **self._options}
        table = self._format.inside(scan(batch, **options), **options)
        for _ in batch:
            self._held.popleft()
        self._bytes -= size
        return table
