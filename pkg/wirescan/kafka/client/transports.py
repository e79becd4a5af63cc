"""Runs operations in an event loop of asyncio."""
from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from wirescan.kafka.client.connection import HANG_UPS, Connection, greet, lost, unreached
from wirescan.kafka.client.effects import (
    SIDE_BY_SIDE, Answer, Begin, Exchange, Finish, Give, Node, Now, Operation, Together, Wait)
from wirescan.limits import Limits

CLOSED = "the client is closed"
FAREWELL = 1.0              # seconds that `close` waits for TLS to hand on what was sent
CHUNK = 64 << 10            # bytes that are written at once: TLS takes over whatever it is given


class Driver:
    """Runs operations. Connections that are idle are kept, for each broker as many as were in use at once."""

    def __init__(self, client_id: str | None, tls: Any, sasl: tuple[str, str, str] | None, timeout: float,
                 limits: Limits):
        self._client_id, self._tls, self._sasl, self._timeout, self._limits = client_id, tls, sasl, timeout, limits
        self._idle: dict[tuple[str, int], list[_Link]] = {}
        self._links: set[_Link] = set()
        self._greeted: set[tuple[str, int]] = set()
        self._dialling: set[asyncio.Timeout] = set()
        self._closed = False

    async def run(self, operation: Operation[Any]) -> Any:
        """Runs an operation: its result, or what it raises."""
        running = _Running(self, operation)
        try:
            while isinstance(end := await running.next(), Give):
                pass
            return end.value
        finally:
            running.close()

    async def iterate(self, operation: Operation[Any]) -> AsyncGenerator[Any, None]:
        """Runs an operation: what it gives."""
        running = _Running(self, operation)
        try:
            while isinstance(given := await running.next(), Give):
                yield given.value
        finally:
            running.close()

    async def perform(self, effect: Any, tickets: set[_Ticket]) -> Any:
        """Does what an operation asks for. tickets: those that it has not finished."""
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
            return await self._together(effect.operations)
        if isinstance(effect, Wait):
            return await asyncio.sleep(effect.seconds)
        if isinstance(effect, Now):
            return time.monotonic()
        raise TypeError(f"no operation may ask for {effect!r}")

    async def close(self) -> None:
        """Ends all connections: what waits for one fails."""
        self._closed = True
        idle = [link for links in self._idle.values() for link in links if link.is_good]
        links, self._links, self._idle = list(self._links), set(), {}
        for limit in self._dialling:
            limit.reschedule(0)                 # now
        ends = [asyncio.create_task(link.end()) for link in idle if link.is_unanswered]
        for link in links:
            if link not in idle:
                link.fail(ValueError(CLOSED))
        if ends:
            await asyncio.wait(ends, timeout=FAREWELL)
        for link in idle:
            link.fail(ValueError(CLOSED))
        await asyncio.sleep(0)                  # the transports close in the next round of the loop

    def drop(self, link: _Link | None) -> None:
        """Ends a connection."""
        if link is not None:
            self._links.discard(link)
            link.fail(ConnectionAbortedError("the connection is closed"))

    async def _together(self, operations: Any) -> list[Any]:
        room = asyncio.Semaphore(SIDE_BY_SIDE)

        async def work(operation: Operation[Any]) -> Any:
            async with room:
                return await self.run(operation)

        return await asyncio.gather(*map(work, operations), return_exceptions=True)

    async def _begin(self, exchange: Exchange) -> _Ticket:
        ticket = _Ticket(exchange)
        try:
            ticket.link = await self._take(exchange.node)
            await ticket.link.send(exchange, self._timeout)
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
            link, exchange = ticket.link, ticket.exchange
            answer = Answer(link.version, None)
            if exchange.answered:
                answer = await link.answer(exchange.api, self._timeout + exchange.seconds)
        except BaseException:
            self.drop(ticket.link)
            raise
        link.is_unanswered = not exchange.answered
        if not self._closed:
            self._idle.setdefault(exchange.node[1:], []).append(link)
        return answer

    async def _take(self, node: Node) -> _Link:
        if self._closed:
            raise ValueError(CLOSED)
        idle = self._idle.get(node[1:], [])
        while idle:
            link = idle.pop()
            if link.is_good:
                return link
            self.drop(link)
        return await self._connect(node)

    async def _connect(self, node: Node) -> _Link:
        for hang_ups in range(HANG_UPS):
            is_doubted = hang_ups == HANG_UPS - 1
            link = await self._dial(node)
            try:
                await link.greet(self._sasl, self._timeout, is_doubted)
                self._greeted.add(node[1:])
                return link
            except (ConnectionResetError, BrokenPipeError):
                self.drop(link)
                if (self._sasl is not None or link.connection.versions or node[1:] in self._greeted
                        or is_doubted and not link.connection.has_answered):
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
                        lambda: _Link(Connection(node, self._client_id, self._limits)), node.host, node.port,
                        ssl=self._tls, server_hostname=None if self._tls is None else node.host)
                finally:
                    self._dialling.discard(limit)
        except (OSError, OverflowError, ValueError) as error:       # the name may be of a broker's making
            if self._closed:
                raise ValueError(CLOSED) from error
            raise unreached(node, error, self._timeout) from error
        if self._closed:
            link.fail(ValueError(CLOSED))
            raise ValueError(CLOSED)
        self._links.add(link)
        return link


class _End:
    """An operation is over."""

    def __init__(self, value: Any):
        self.value = value


class _Running:
    """An operation under way."""

    def __init__(self, driver: Driver, operation: Operation[Any]):
        self._driver, self._operation = driver, operation
        self._tickets: set[_Ticket] = set()

    async def next(self) -> Give | _End:
        step, value = self._operation.send, None
        while True:
            try:
                effect = step(value)
            except StopIteration as end:
                return _End(end.value)
            if isinstance(effect, Give):
                return effect
            try:
                step, value = self._operation.send, await self._driver.perform(effect, self._tickets)
            except Exception as error:
                step, value = self._operation.throw, error

    def close(self) -> None:
        self._operation.close()
        for ticket in self._tickets:
            self._driver.drop(ticket.link)


class _Ticket:
    """A request that was sent, or why it was not."""

    def __init__(self, exchange: Exchange):
        self.exchange = exchange
        self.link: Any = None                   # a _Link
        self.error: Exception | None = None


class _Link(asyncio.BufferedProtocol):
    """A connection and its transport."""

    def __init__(self, connection: Connection):
        self.connection, self.version, self.is_unanswered = connection, 0, False
        self._ready: deque[Answer] = deque()
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._is_empty = asyncio.Event()        # what is to be written
        self._is_empty.set()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        # Paused as soon as anything is left; TLS takes 0 for "even if nothing is".
        transport.set_write_buffer_limits(int(transport.get_extra_info("sslcontext") is not None), 0)

    def pause_writing(self) -> None:
        self._is_empty.clear()

    def resume_writing(self) -> None:
        self._is_empty.set()

    def get_buffer(self, sizehint: int) -> Any:
        return self.connection.room() if self._error is None else bytearray(1)

    def buffer_updated(self, count: int) -> None:
        try:
            answer = None if self._error else self.connection.filled(count)
        except Exception as error:
            self.fail(error)
            return
        if answer is not None:
            self._ready.append(answer)
            self._news.set()

    def eof_received(self) -> bool:
        self.fail(self.connection.closed())
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(self.connection.closed() if error is None else lost(self.connection.node, error))

    def fail(self, error: Exception) -> None:
        """Ends the connection; what waits for it raises `error`."""
        self._error = self._error or error
        self._news.set()
        self._is_empty.set()
        self._transport.abort()

    async def end(self) -> None:
        """Ends the connection when all is sent."""
        self._transport.close()
        while self._error is None:
            self._news.clear()
            await self._news.wait()

    @property
    def is_good(self) -> bool:
        """Whether it is there, and says nothing that nobody asked for."""
        return self._error is None and not self._ready and self.connection.is_idle

    async def greet(self, sasl: tuple[str, str, str] | None, timeout: float, is_doubted: bool) -> None:
        """Says what is said first."""
        steps = greet(self.connection, sasl, is_doubted)
        data = next(steps)
        while True:
            await self.write(data, timeout)
            answer = await self.answer("the greeting", timeout)
            try:
                data = steps.send(answer)
            except StopIteration:
                return

    async def send(self, exchange: Exchange, timeout: float) -> None:
        """Sends a request."""
        self.version = self.connection.version_of(exchange.api, exchange.versions)
        await self.write(self.connection.send(exchange.api, self.version, exchange.body(self.version),
                                              answered=exchange.answered, expected=exchange.expected), timeout)

    async def write(self, data: bytes, timeout: float) -> None:
        """Sends bytes, and waits until the system has taken them."""
        view = memoryview(data)
        try:
            async with asyncio.timeout(timeout):
                while self._error is None and len(view):
                    self._transport.write(view[:CHUNK])
                    view = view[CHUNK:]
                    await self._is_empty.wait()
        except TimeoutError as error:
            raise TimeoutError(f"{self.connection.node} took no more bytes for {timeout} s") from error
        if self._error is not None:
            raise self._error

    async def answer(self, api: str, seconds: float) -> Answer:
        """The answer to what was sent."""
        try:
            async with asyncio.timeout(seconds):
                while not self._ready:
                    if self._error is not None:
                        raise self._error
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            raise TimeoutError(f"{self.connection.node} did not answer {api} in {seconds} s") from error
        return self._ready.popleft()
