"""What both drivers share: running operations, connections and their greeting, idle connections.

It is written once, as coroutines. `TransportDriver` awaits them in an event loop. The coroutines of
`SocketDriver` block instead of waiting, so `complete` runs one of them in a single step.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from wirescan.frames.limits import Limits
from wirescan.kafka.client.connection import CLOSED, HANG_UPS, Connection, greet
from wirescan.kafka.client.effects import (
    Answer,
    Begin,
    Exchange,
    Finish,
    Give,
    Node,
    Now,
    Operation,
    Result,
    Together,
    Wait,
)


def complete(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine that never waits. Raises what it raises."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a coroutine of blocking calls waited")


class Link(ABC):
    """A connection to a broker. A driver's own class moves the bytes.

    Attributes:
        connection: the state of the connection.
        version: the version of the request that was sent last.
        is_unanswered: whether that request has no answer (acks=0).
    """

    def __init__(self, connection: Connection):
        self.connection = connection
        self.version = 0
        self.is_unanswered = False

    @property
    @abstractmethod
    def is_good(self) -> bool:
        """Whether the connection is open, has all its answers and no unexpected bytes."""

    @abstractmethod
    async def write(self, data: bytes, timeout: float) -> None:
        """Send bytes. Raises TimeoutError or ConnectionError where that fails."""

    @abstractmethod
    async def receive_answer(self, api: str, seconds: float) -> Answer:
        """Return the answer to the oldest request. `api` names the request in error messages."""

    @abstractmethod
    def abort(self) -> None:
        """End the connection at once. A call that waits for it fails."""

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


AnyLink = TypeVar("AnyLink", bound=Link)


@dataclass(eq=False)
class Ticket(Generic[AnyLink]):
    """A request that was sent, or the error that prevented it."""

    exchange: Exchange
    link: AnyLink | None = None
    error: Exception | None = None


class OperationEnd(NamedTuple):
    """The end of an operation, with its result."""

    value: Any


class RunningOperation(Generic[AnyLink]):
    """An operation that runs, and the requests that it has not finished."""

    def __init__(self, driver: Driver[AnyLink], operation: Operation[Any]):
        self._driver = driver
        self._operation = operation
        self._tickets: set[Ticket[AnyLink]] = set()

    async def advance(self) -> Give | OperationEnd:
        """Run the operation up to the next value that it gives, or to its end."""
        step: Callable[[Any], Any] = self._operation.send
        value: Any = None
        while True:
            try:
                effect = step(value)
            except StopIteration as end:
                return OperationEnd(end.value)
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


class Driver(ABC, Generic[AnyLink]):
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
        self._idle: dict[tuple[str, int], list[AnyLink]] = {}
        self._links: set[AnyLink] = set()  # in use
        self._greeted: set[tuple[str, int]] = set()
        self._lock = threading.Lock()  # of the connections; nothing waits while it is held

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the driver is closed or stopped."""

    @abstractmethod
    async def _dial(self, node: Node) -> AnyLink:
        """Return a new connection without a greeting, after `_hold`."""

    @abstractmethod
    async def _run_together(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Perform a `Together`."""

    @abstractmethod
    async def _wait(self, seconds: float) -> None:
        """Perform a `Wait`."""

    async def perform(self, effect: Any, tickets: set[Ticket[AnyLink]]) -> Any:
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
            return await self._wait(effect.seconds)
        if isinstance(effect, Now):
            return time.monotonic()
        raise TypeError(f"an operation must yield an effect, not {effect!r}")

    def drop(self, link: AnyLink | None) -> None:
        """End a connection, if there is one."""
        if link is not None:
            with self._lock:
                self._links.discard(link)
            link.abort()

    async def _run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result. The values that it gives are dropped."""
        running = RunningOperation(self, operation)
        try:
            while isinstance(end := await running.advance(), Give):
                pass
            result: Result = end.value
            return result
        finally:
            running.close()

    async def _begin(self, exchange: Exchange) -> Ticket[AnyLink]:
        ticket: Ticket[AnyLink] = Ticket(exchange)
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

    async def _finish(self, ticket: Ticket[AnyLink]) -> Answer:
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
        with self._lock:
            if link in self._links:  # otherwise it has been closed
                self._links.discard(link)
                self._idle.setdefault(_get_address(exchange.node), []).append(link)
        return answer

    async def _take(self, node: Node) -> AnyLink:
        while True:
            with self._lock:
                if self.is_closed:
                    raise ValueError(CLOSED)
                idle = self._idle.get(_get_address(node))
                link = idle.pop() if idle else None
                if link is not None:
                    self._links.add(link)
            if link is None:
                return await self._connect(node)
            if link.is_good:
                return link
            # The broker has hung up, or sends bytes without a request.
            self.drop(link)

    async def _connect(self, node: Node) -> AnyLink:
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

    def _hold(self, link: AnyLink) -> None:
        """Register a connection with `close`. Raises ValueError where the driver is closed."""
        with self._lock:
            if self.is_closed:
                raise ValueError(CLOSED)
            self._links.add(link)

    def _take_all_idle(self) -> list[AnyLink]:
        """Remove all idle connections and return them."""
        with self._lock:
            links = [link for idle in self._idle.values() for link in idle]
            self._idle.clear()
        return links

    def _take_all_used(self) -> list[AnyLink]:
        """Remove all connections in use and return them."""
        with self._lock:
            links = list(self._links)
            self._links.clear()
        return links


def _get_address(node: Node) -> tuple[str, int]:
    """Return host and port, the key of a node's connections."""
    return node.host, node.port
