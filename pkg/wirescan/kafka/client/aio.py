"""`AsyncClient`, the client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

from wirescan.kafka.client.decode import PARTS_AHEAD, Bound, Part, plan
from wirescan.kafka.client.effects import Operation
from wirescan.kafka.client.fetch_ranges import read_range
from wirescan.kafka.client.operations import Operations
from wirescan.kafka.client.transports import TransportDriver


class AsyncClient(Operations):
    """A client of a Kafka cluster for asyncio, for one event loop.

    It has the methods of Client. They are awaited:

        async with kafka.AsyncClient("localhost:9092") as client:
            await client.list_offsets({("orders", 0): "latest"})
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._driver = TransportDriver(**self._options)

    async def run(self, operation: Operation[Any]) -> Any:
        """Run an operation and return its result."""
        return await self._driver.run(operation)

    async def fetch(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: Bound = "earliest",
        stop: Bound = "latest",
        start_time: int | None = None,
        stop_time: int | None = None,
        isolation: str = "read_uncommitted",
        fetch_bytes: int = 8 << 20,
        side_by_side: int = 4,
        records: bool = True,
        errors: str = "strict",
        check: bool = True,
    ) -> AsyncIterator[Part]:
        """Yield the records of a topic, or of ranges of it, as Parts. Threads decode them.

        See `kafka.fetch` for the arguments. "latest" is the end of the log at the time at which the
        first part is asked for.
        """
        question, decoding = self._prepare_fetch(
            isolation=isolation,
            fetch_bytes=fetch_bytes,
            side_by_side=side_by_side,
            records=records,
            errors=errors,
            check=check,
        )
        ranges = await self.run(
            plan(self.cluster, topic, partitions, start, stop, start_time, stop_time, isolation)
        )
        remaining = [item for item in reversed(ranges) if item.start < item.stop]
        parts: asyncio.Queue[Part | None] = asyncio.Queue()
        free_slots = asyncio.Semaphore(PARTS_AHEAD * side_by_side)

        async def work() -> None:
            while remaining:
                reading = read_range(self.cluster, remaining.pop(), question, self.limits, errors)
                async with aclosing(self._driver.iterate(reading)) as answers:
                    async for answer in answers:
                        part = await asyncio.to_thread(decoding.make_part, answer)
                        await free_slots.acquire()
                        parts.put_nowait(part)

        async def work_all() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(side_by_side, len(remaining))):
                        group.create_task(work())
            finally:
                parts.put_nowait(None)

        working = asyncio.create_task(work_all())
        try:
            while (part := await parts.get()) is not None:
                free_slots.release()
                yield part
        finally:
            working.cancel()  # does nothing if the task is done
            await asyncio.wait([working])
            error = None if working.cancelled() else working.exception()
        if error is not None:
            raise error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error

    async def close(self) -> None:
        """End all connections; calls that wait for one fail. It may be called again."""
        await self._driver.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
