"""The driver of `AsyncClient`: it runs operations in an asyncio event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from wirescan.frames.limits import Limits
from wirescan.kafka.client.connection import (
    CLOSED,
    HANG_UPS,
    Connection,
    greet,
    make_connect_error,
    make_connection_lost_error,
)
from wirescan.kafka.client.effects import (
    SIDE_BY_SIDE,
    Answer,
    Begin,
    Exchange,
    Finish,
    Give,
    Node,
    Now,
    Operation,
    Together,
    Wait,
)

FLUSH_TIMEOUT = 1.0  # seconds that `close` waits for TLS to pass on the bytes that were sent
# Bytes that are written at once. TLS would take any number of bytes into its buffer.
CHUNK = 64 << 10


class TransportDriver:
    """Runs operations.

    It keeps idle connections. For each broker, these are as many as were in use at the same time.
    """

    def __init__(
        self,
        client_id: str | None,
        tls: Any,
        sasl: tuple[str, str, str] | None,
        timeout: float,
        limits: Limits,
    ):
        self._client_id = client_id
        self._tls = tls
        self._sasl = sasl
        self._timeout = timeout
        self._limits = limits
        self._idle: dict[tuple[str, int], list[_Link]] = {}
        self._links: set[_Link] = set()
        self._greeted: set[tuple[str, int]] = set()
        self._dialling: set[asyncio.Timeout] = set()
        self._closed = False

    async def run(self, operation: Operation[Any]) -> Any:
        """Run an operation and return its result. Raises what the operation raises."""
        running = _Running(self, operation)
        try:
            while isinstance(end := await running.advance(), Give):
                pass
            return end.value
        finally:
            running.close()

    async def iterate(self, operation: Operation[Any]) -> AsyncGenerator[Any, None]:
        """Run an operation and yield the values that it gives."""
        running = _Running(self, operation)
        try:
            while isinstance(result := await running.advance(), Give):
                yield result.value
        finally:
            running.close()

    async def perform(self, effect: Any, tickets: set[_Ticket]) -> Any:
        """Perform an effect of an operation and return its result.

        tickets: the tickets of the operation that are not finished; updated here.
        """
        if isinstance(effect, Exchange):
            return await self._finish(await self._begin(effect))
        if isinstance(effect, Begin):
            ticket = await self._begin(effect.exchange)
            tickets.add(ticket)
            return ticket
        if isinstance(effect, Finish):
            tickets.discard(effect.ticket)
            return await self._finish(effect.ticket)
        if isinstance(effect, Together):
            return await self._run_together(effect.operations)
        if isinstance(effect, Wait):
            return await asyncio.sleep(effect.seconds)
        if isinstance(effect, Now):
            return time.monotonic()
        raise TypeError(f"an operation must yield an effect, not {effect!r}")

    async def close(self) -> None:
        """End all connections; calls that wait for one fail."""
        self._closed = True
        idle = [link for links in self._idle.values() for link in links if link.is_good]
        links = list(self._links)
        self._links = set()
        self._idle = {}
        for limit in self._dialling:
            limit.reschedule(0)  # a time in the past: the limit expires now
        ends = [asyncio.create_task(link.end()) for link in idle if link.is_unanswered]
        for link in links:
            if link not in idle:
                link.fail(ValueError(CLOSED))
        if ends:
            await asyncio.wait(ends, timeout=FLUSH_TIMEOUT)
        for link in idle:
            link.fail(ValueError(CLOSED))
        await asyncio.sleep(0)  # the transports close in the next turn of the event loop

    def drop(self, link: _Link | None) -> None:
        """End a connection, if there is one."""
        if link is not None:
            self._links.discard(link)
            link.fail(ConnectionAbortedError("the connection is closed"))

    async def _run_together(self, operations: Any) -> list[Any]:
        free_slots = asyncio.Semaphore(SIDE_BY_SIDE)

        async def work(operation: Operation[Any]) -> Any:
            async with free_slots:
                return await self.run(operation)

        return await asyncio.gather(*map(work, operations), return_exceptions=True)

    async def _begin(self, exchange: Exchange) -> _Ticket:
        ticket = _Ticket(exchange)
        try:
            link = await self._take(exchange.node)
            ticket.link = link
            await link.send(exchange, self._timeout)
        except Exception as error:
            ticket.error = error
        except BaseException:
            self.drop(ticket.link)
            raise
        return ticket

    async def _finish(self, ticket: _Ticket) -> Answer:
        try:
            if ticket.error is not None:
                raise ticket.error
            link = ticket.link
            assert link is not None  # a ticket without an error has a connection
            exchange = ticket.exchange
            answer = Answer(link.version, None)
            if exchange.answered:
                answer = await link.receive_answer(exchange.api, self._timeout + exchange.seconds)
        except BaseException:
            self.drop(ticket.link)
            raise
        link.is_unanswered = not exchange.answered
        if not self._closed:
            self._idle.setdefault(_get_address(exchange.node), []).append(link)
        return answer

    async def _take(self, node: Node) -> _Link:
        if self._closed:
            raise ValueError(CLOSED)
        idle = self._idle.get(_get_address(node), [])
        while idle:
            link = idle.pop()
            if link.is_good:
                return link
            self.drop(link)
        return await self._connect(node)

    async def _connect(self, node: Node) -> _Link:
        """Return a new connection after the greeting.

        A broker before 0.10 hangs up on every greeting. It gets a connection without one.
        """
        for hang_ups in range(HANG_UPS):
            is_doubted = hang_ups == HANG_UPS - 1
            link = await self._dial(node)
            try:
                await link.greet(self._sasl, self._timeout, is_doubted=is_doubted)
                self._greeted.add(_get_address(node))
                return link
            except (ConnectionResetError, BrokenPipeError):
                self.drop(link)
                if (
                    self._sasl is not None
                    or link.connection.versions
                    or _get_address(node) in self._greeted
                    or is_doubted
                    and not link.connection.has_answered
                ):
                    raise
            except BaseException:
                self.drop(link)
                raise
        return await self._dial(node)

    async def _dial(self, node: Node) -> _Link:
        if self._closed:
            raise ValueError(CLOSED)
        try:
            async with asyncio.timeout(self._timeout) as limit:
                self._dialling.add(limit)
                try:
                    _, link = await asyncio.get_running_loop().create_connection(
                        lambda: _Link(Connection(node, self._client_id, self._limits)),
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
        if self._closed:
            link.fail(ValueError(CLOSED))
            raise ValueError(CLOSED)
        self._links.add(link)
        return link


def _get_address(node: Node) -> tuple[str, int]:
    """Return host and port, the key of a node's connections."""
    return node.host, node.port


class _End:
    """The end of an operation, with its result."""

    def __init__(self, value: Any):
        self.value = value


class _Running:
    """A running operation."""

    def __init__(self, driver: TransportDriver, operation: Operation[Any]):
        self._driver = driver
        self._operation = operation
        self._tickets: set[_Ticket] = set()

    async def advance(self) -> Give | _End:
        """Run the operation up to the next value that it gives, or to its end."""
        step: Callable[[Any], Any] = self._operation.send
        value: Any = None
        while True:
            try:
                effect = step(value)
            except StopIteration as end:
                return _End(end.value)
            if isinstance(effect, Give):
                return effect
            try:
                value = await self._driver.perform(effect, self._tickets)
                step = self._operation.send
            except Exception as error:
                value = error
                step = self._operation.throw

    def close(self) -> None:
        """End the operation and the connections of its unfinished exchanges."""
        self._operation.close()
        for ticket in self._tickets:
            self._driver.drop(ticket.link)


class _Ticket:
    """A request that was sent, or the error that prevented it."""

    def __init__(self, exchange: Exchange):
        self.exchange = exchange
        self.link: _Link | None = None
        self.error: Exception | None = None


class _Link(asyncio.BufferedProtocol):
    """A connection and its transport."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.version = 0  # of the request that was sent last
        self.is_unanswered = False  # whether that request has no answer (acks=0)
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

    async def greet(
        self, sasl: tuple[str, str, str] | None, timeout: float, *, is_doubted: bool
    ) -> None:
        """Make the first exchanges of the connection. See `connection.greet`."""
        steps = greet(self.connection, sasl, is_doubted=is_doubted)
        data = next(steps)
        while True:
            await self.write(data, timeout)
            answer = await self.receive_answer("the greeting", timeout)
            try:
                data = steps.send(answer)
            except StopIteration:
                return

    async def send(self, exchange: Exchange, timeout: float) -> None:
        """Send the request of an exchange, in the newest version that both sides have."""
        self.version = self.connection.choose_version(exchange.api, exchange.versions)
        data = self.connection.send(
            exchange.api,
            self.version,
            exchange.body(self.version),
            answered=exchange.answered,
            expected=exchange.expected,
        )
        await self.write(data, timeout)

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
