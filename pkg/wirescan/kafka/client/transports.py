"""The driver of `AsyncClient`: it runs operations in an asyncio event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from wirescan.kafka.client.connection import (
    CLOSED,
    Connection,
    make_connect_error,
    make_connection_lost_error,
)
from wirescan.kafka.client.driver import Driver, Link, RunningOperation
from wirescan.kafka.client.effects import SIDE_BY_SIDE, Answer, Give, Node, Operation

FLUSH_TIMEOUT = 1.0  # seconds that `close` waits for TLS to pass on the bytes that were sent
# Bytes that are written at once. TLS would take any number of bytes into its buffer.
CHUNK = 64 << 10


class TransportLink(Link, asyncio.BufferedProtocol):
    """A connection and its transport."""

    def __init__(self, connection: Connection):
        super().__init__(connection)
        self._ready: deque[Answer] = deque()
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._is_flushed = asyncio.Event()  # no bytes are left to write
        self._is_flushed.set()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Store the transport; asyncio calls this when the connection is open."""
        self._transport = transport
        # Writing pauses as soon as bytes are left in the buffer. TLS would pause at a limit of 0
        # even with an empty buffer.
        is_tls = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=int(is_tls), low=0)

    def pause_writing(self) -> None:
        """Make `write` wait; asyncio calls this when bytes are left to write."""
        self._is_flushed.clear()

    def resume_writing(self) -> None:
        """Let `write` continue; asyncio calls this when all bytes are written."""
        self._is_flushed.set()

    def get_buffer(self, sizehint: int) -> Any:
        """Return the buffer for received bytes; after an error they are discarded."""
        return self.connection.get_buffer() if self._error is None else bytearray(1)

    def buffer_updated(self, count: int) -> None:
        """Store the answer that the received bytes complete, if any."""
        try:
            answer = None if self._error else self.connection.buffer_updated(count)
        except Exception as error:
            self.fail(error)
            return
        if answer is not None:
            self._ready.append(answer)
            self._news.set()

    def eof_received(self) -> bool:
        """Fail: the broker closed the connection."""
        self.fail(self.connection.make_close_error())
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Fail with the error of the connection; asyncio calls this when the connection ends."""
        if error is None:
            self.fail(self.connection.make_close_error())
        else:
            self.fail(make_connection_lost_error(self.connection.node, error))

    def fail(self, error: Exception) -> None:
        """End the connection; calls that wait for it raise `error`."""
        self._error = self._error or error
        self._news.set()
        self._is_flushed.set()
        self._transport.abort()

    def abort(self) -> None:
        """End the connection at once. A call that waits for it fails."""
        self.fail(ConnectionAbortedError("the connection is closed"))

    async def end(self) -> None:
        """End the connection after all bytes are sent."""
        self._transport.close()
        while self._error is None:
            self._news.clear()
            await self._news.wait()

    @property
    def is_good(self) -> bool:
        """Whether the connection is open and has no unexpected bytes."""
        return self._error is None and not self._ready and self.connection.is_idle

    async def write(self, data: bytes, timeout: float) -> None:
        """Send bytes, and wait until the system has accepted them."""
        view = memoryview(data)
        try:
            async with asyncio.timeout(timeout):
                while self._error is None and len(view):
                    self._transport.write(view[:CHUNK])
                    view = view[CHUNK:]
                    await self._is_flushed.wait()
        except TimeoutError as error:
            raise TimeoutError(
                f"{self.connection.node} accepted no more bytes for {timeout} s"
            ) from error
        if self._error is not None:
            raise self._error

    async def receive_answer(self, api: str, seconds: float) -> Answer:
        """Return the answer to the oldest request. `api` names the request in error messages."""
        try:
            async with asyncio.timeout(seconds):
                while not self._ready:
                    if self._error is not None:
                        raise self._error
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            raise TimeoutError(
                f"{self.connection.node} did not answer {api} in {seconds} s"
            ) from error
        return self._ready.popleft()


class TransportDriver(Driver[TransportLink]):
    """Runs operations in an event loop."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._dialling: set[asyncio.Timeout] = set()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the driver is closed."""
        return self._closed

    async def run(self, operation: Operation[Any]) -> Any:
        """Run an operation and return its result. Raises what the operation raises."""
        return await self._run(operation)

    async def iterate(self, operation: Operation[Any]) -> AsyncGenerator[Any, None]:
        """Run an operation and yield the values that it gives."""
        running = RunningOperation(self, operation)
        try:
            while isinstance(result := await running.advance(), Give):
                yield result.value
        finally:
            running.close()

    async def close(self) -> None:
        """End all connections; calls that wait for one fail."""
        self._closed = True
        idle = self._take_all_idle()
        for limit in self._dialling:
            limit.reschedule(0)  # a time in the past: the limit expires now
        ends = [
            asyncio.create_task(link.end()) for link in idle if link.is_good and link.is_unanswered
        ]
        for link in self._take_all_used():
            link.fail(ValueError(CLOSED))
        if ends:
            await asyncio.wait(ends, timeout=FLUSH_TIMEOUT)
        for link in idle:
            link.fail(ValueError(CLOSED))
        await asyncio.sleep(0)  # the transports close in the next turn of the event loop

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _run_together(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        free_slots = asyncio.Semaphore(SIDE_BY_SIDE)

        async def work(operation: Operation[Any]) -> Any:
            async with free_slots:
                return await self.run(operation)

        return await asyncio.gather(*map(work, operations), return_exceptions=True)

    async def _dial(self, node: Node) -> TransportLink:
        if self._closed:
            raise ValueError(CLOSED)
        try:
            async with asyncio.timeout(self._timeout) as limit:
                self._dialling.add(limit)
                try:
                    _, link = await asyncio.get_running_loop().create_connection(
                        lambda: TransportLink(Connection(node, self._client_id, self._limits)),
                        node.host,
                        node.port,
                        ssl=self._tls,
                        server_hostname=None if self._tls is None else node.host,
                    )
                finally:
                    self._dialling.discard(limit)
        except (OSError, OverflowError, ValueError) as error:
            # A host name that came from a broker may be any text.
            if self._closed:
                raise ValueError(CLOSED) from error
            raise make_connect_error(node, error, self._timeout) from error
        try:
            self._hold(link)
        except ValueError as error:
            link.fail(error)
            raise
        return link
