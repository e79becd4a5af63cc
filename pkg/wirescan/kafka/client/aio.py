"""`AsyncClient`, the client for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from wirescan.kafka.client.decode import PARTS_AHEAD, FetchJob, Part
from wirescan.kafka.client.effects import Operation
from wirescan.kafka.client.fetch_bounds import Bound
from wirescan.kafka.client.fetch_ranges import FetchRange
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

    # `Operations.run` is typed for `Client`.
    async def run(self, operation: Operation[Any]) -> Any:  # type: ignore[override]
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
        job, planning = self._prepare_fetch(
            topic,
            partitions,
            start=start,
            stop=stop,
            start_time=start_time,
            stop_time=stop_time,
            isolation=isolation,
            fetch_bytes=fetch_bytes,
            side_by_side=side_by_side,
            records=records,
            errors=errors,
            check=check,
        )
        reader = _PartReader(self._driver, await self.run(planning), job)
        try:
            while (part := await reader.take()) is not None:
                yield part
        finally:
            error = await reader.stop()
        if error is not None:
            raise error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error

    async def close(self) -> None:
        """End all connections; calls that wait for one fail. It may be called again."""
        await self._driver.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class _PartReader:
    """Reads offset ranges side by side, and has threads decode them."""

    def __init__(self, driver: TransportDriver, ranges: Sequence[FetchRange], job: FetchJob):
        self._driver = driver
        self._job = job
        self._remaining = deque(item for item in ranges if item.start < item.stop)
        self._parts: asyncio.Queue[Part | None] = asyncio.Queue()  # None ends them
        self._free_slots = asyncio.Semaphore(PARTS_AHEAD * job.side_by_side)
        self._task = asyncio.create_task(self._read_all())

    async def take(self) -> Part | None:
        """Return the next part; None after the last one, and after an error."""
        part = await self._parts.get()
        if part is not None:
            self._free_slots.release()
        return part

    async def stop(self) -> BaseException | None:
        """End all reading, and return the error that ended it before."""
        self._task.cancel()  # does nothing if the task is done
        await asyncio.wait([self._task])
        return None if self._task.cancelled() else self._task.exception()

    async def _read_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._job.side_by_side, len(self._remaining))):
                    group.create_task(self._read_ranges())
        finally:
            self._parts.put_nowait(None)

    async def _read_ranges(self) -> None:
        """Read one range after the other, until none is left."""
        while self._remaining:
            reading = self._job.read(self._remaining.popleft())
            async with aclosing(self._driver.iterate(reading)) as answers:
                async for answer in answers:
                    part = await asyncio.to_thread(self._job.decoding.make_part, answer)
                    await self._free_slots.acquire()
                    self._parts.put_nowait(part)
