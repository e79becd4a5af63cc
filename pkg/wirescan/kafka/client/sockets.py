"""The driver of `Client`: it runs operations over blocking sockets.

Concurrent operations run in threads.
"""

from __future__ import annotations

import copy
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
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

MIN_TIMEOUT = 1e-3  # seconds; a timeout of 0 would make the socket non-blocking


class SocketDriver:
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
        self._links: set[_Link] = set()  # in use, or not connected yet
        self._greeted: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._branches: weakref.WeakSet[SocketDriver] = weakref.WeakSet()

    def run(self, operation: Operation[Any]) -> Any:
        """Run an operation and return its result. Raises what the operation raises."""
        running = self.iterate(operation)
        while True:
            try:
                next(running)
            except StopIteration as end:
                return end.value

    def iterate(self, operation: Operation[Any]) -> Generator[Any, None, Any]:
        """Run an operation, yield the values that it gives, and return its result."""
        tickets: set[_Ticket] = set()
        try:
            step: Callable[[Any], Any] = operation.send
            value: Any = None
            while True:
                try:
                    effect = step(value)
                except StopIteration as end:
                    return end.value
                if isinstance(effect, Give):
                    yield effect.value
                    step = operation.send
                    value = None
                    continue
                try:
                    value = self._perform(effect, tickets)
                    step = operation.send
                except Exception as error:
                    value = error
                    step = operation.throw
        finally:
            operation.close()
            for ticket in tickets:
                self._drop(ticket.link)

    def make_branch(self) -> SocketDriver:
        """Return a driver that shares the idle connections and can be stopped alone.

        It is closed with this driver.
        """
        branch = copy.copy(self)
        branch._links = set()
        branch._closed = threading.Event()
        with self._lock:
            self._branches.add(branch)
            if self._closed.is_set():
                branch._closed.set()
        return branch

    def stop(self) -> None:
        """End the running operations and their connections; calls that wait for one fail."""
        with self._lock:
            self._closed.set()
            links = self._links
            self._links = set()
        for link in links:
            link.close()

    def close(self) -> None:
        """End all connections; calls that wait for one fail."""
        self.stop()
        with self._lock:
            branches = list(self._branches)
        for branch in branches:
            branch.stop()
        with self._lock:
            links = [link for idle in self._idle.values() for link in idle]
            self._idle.clear()
        for link in links:
            link.close()

    def _perform(self, effect: Any, tickets: set[_Ticket]) -> Any:
        if isinstance(effect, Exchange):
            return self._finish(self._begin(effect))
        if isinstance(effect, Begin):
            ticket = self._begin(effect.exchange)
            tickets.add(ticket)
            return ticket
        if isinstance(effect, Finish):
            tickets.discard(effect.ticket)
            return self._finish(effect.ticket)
        if isinstance(effect, Together):
            return self._run_together(effect.operations)
        if isinstance(effect, Wait):
            if self._closed.wait(effect.seconds):
                raise ValueError(CLOSED)
            return None
        if isinstance(effect, Now):
            return time.monotonic()
        raise TypeError(f"an operation must yield an effect, not {effect!r}")

    def _run_together(self, operations: Any) -> list[Any]:
        results: list[Any] = [None] * len(operations)
        remaining = deque(enumerate(operations))

        def work() -> None:
            while True:
                try:
                    number, operation = remaining.popleft()
                except IndexError:
                    return
                try:
                    results[number] = self.run(operation)
                except Exception as error:
                    results[number] = error

        threads = []
        for _ in range(min(len(operations), SIDE_BY_SIDE) - 1):
            thread = threading.Thread(target=work, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # The system allows no more threads: the threads that run do the work.
                break
            threads.append(thread)
        work()
        for thread in threads:
            thread.join()
        return results

    def _begin(self, exchange: Exchange) -> _Ticket:
        ticket = _Ticket(exchange)
        try:
            link = self._take(exchange.node)
            ticket.link = link
            link.send(exchange, self._timeout)
        except Exception as error:
            ticket.error = error
        except BaseException:
            self._drop(ticket.link)
            raise
        return ticket

    def _finish(self, ticket: _Ticket) -> Answer:
        try:
            if ticket.error is not None:
                raise ticket.error
            link = ticket.link
            assert link is not None  # a ticket without an error has a connection
            exchange = ticket.exchange
            answer = Answer(link.version, None)
            if exchange.answered:
                answer = link.receive_answer(exchange.api, self._timeout + exchange.seconds)
        except BaseException:
            self._drop(ticket.link)
            raise
        with self._lock:
            if link in self._links:  # otherwise it has been closed
                self._links.discard(link)
                self._idle.setdefault(_get_address(exchange.node), []).append(link)
        return answer

    def _take(self, node: Node) -> _Link:
        while True:
            with self._lock:
                if self._closed.is_set():
                    raise ValueError(CLOSED)
                idle = self._idle.get(_get_address(node))
                link = idle.pop() if idle else None
                if link is not None:
                    self._links.add(link)
            if link is None:
                return self._connect(node)
            if not link.has_news():
                return link
            # The broker has hung up, or sends bytes without a request.
            self._drop(link)

    def _connect(self, node: Node) -> _Link:
        """Return a new connection after the greeting.

        A broker before 0.10 hangs up on every greeting. It gets a connection without one.
        """
        for hang_ups in range(HANG_UPS):
            is_doubted = hang_ups == HANG_UPS - 1
            link = self._dial(node)
            try:
                steps = greet(link.connection, self._sasl, is_doubted=is_doubted)
                data = next(steps)
                while True:
                    link.write(data, self._timeout)
                    data = steps.send(link.receive_answer("the greeting", self._timeout))
            except StopIteration:
                self._greeted.add(_get_address(node))
                return link
            except (ConnectionResetError, BrokenPipeError):
                self._drop(link)
                if (
                    self._sasl is not None
                    or link.connection.versions
                    or _get_address(node) in self._greeted
                    or is_doubted
                    and not link.connection.has_answered
                ):
                    raise
            except BaseException:
                self._drop(link)
                raise
        return self._dial(node)

    def _dial(self, node: Node) -> _Link:
        failure: Exception = ConnectionError("the name has no address")
        try:
            addresses = socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, address in addresses:
                link = None
                try:
                    link = _Link(
                        socket.socket(family, kind, protocol),
                        Connection(node, self._client_id, self._limits),
                    )
                    self._hold(link)  # so that `close` ends a connection attempt too
                    link.open(address, self._timeout, self._tls)
                    self._hold(link)
                    return link
                except OSError as error:
                    self._drop(link)
                    failure = error
                except BaseException:
                    self._drop(link)
                    raise
        except (OSError, OverflowError, ValueError) as error:
            # A host name that came from a broker may be any text.
            failure = error
        if self._closed.is_set():
            raise ValueError(CLOSED)
        raise make_connect_error(node, failure, self._timeout) from failure

    def _hold(self, link: _Link) -> None:
        """Register a connection with `close`. Raises ValueError where the driver is closed."""
        with self._lock:
            if self._closed.is_set():
                raise ValueError(CLOSED)
            self._links.add(link)

    def _drop(self, link: _Link | None) -> None:
        if link is not None:
            with self._lock:
                self._links.discard(link)
            link.close()


def _get_address(node: Node) -> tuple[str, int]:
    """Return host and port, the key of a node's connections."""
    return node.host, node.port


class _Ticket:
    """A request that was sent, or the error that prevented it."""

    def __init__(self, exchange: Exchange):
        self.exchange = exchange
        self.link: _Link | None = None
        self.error: Exception | None = None


class _Link:
    """A connection and its socket."""

    def __init__(self, sock: socket.socket, connection: Connection):
        self._socket = sock
        self.connection = connection
        self.version = 0  # of the request that was sent last

    def open(self, address: Any, timeout: float, tls: Any) -> None:
        """Connect to an address."""
        self._socket.settimeout(timeout)
        self._socket.connect(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            secure = tls.wrap_socket(
                self._socket,
                server_hostname=self.connection.node.host,
                do_handshake_on_connect=False,
            )
            self._socket = secure  # so that `close` ends the handshake too
            secure.do_handshake()

    def send(self, exchange: Exchange, timeout: float) -> None:
        """Send the request of an exchange, in the newest version that both sides have."""
        self.version = self.connection.choose_version(exchange.api, exchange.versions)
        data = self.connection.send(
            exchange.api,
            self.version,
            exchange.body(self.version),
            answered=exchange.answered,
            expected=exchange.expected,
        )
        self.write(data, timeout)

    def write(self, data: bytes, timeout: float) -> None:
        """Send bytes. Raises TimeoutError or ConnectionError where that fails."""
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(data)
        except TimeoutError as error:
            raise TimeoutError(
                f"{self.connection.node} accepted no more bytes for {timeout} s"
            ) from error
        except OSError as error:
            raise make_connection_lost_error(self.connection.node, error) from error

    def receive_answer(self, api: str, seconds: float) -> Answer:
        """Return the answer to the oldest request. `api` names the request in error messages."""
        until = time.monotonic() + seconds
        while True:
            try:
                self._socket.settimeout(max(until - time.monotonic(), MIN_TIMEOUT))
                count = self._socket.recv_into(self.connection.get_buffer())
            except TimeoutError as error:
                raise TimeoutError(
                    f"{self.connection.node} did not answer {api} in {seconds} s"
                ) from error
            except OSError as error:
                raise make_connection_lost_error(self.connection.node, error) from error
            if not count:
                raise self.connection.make_close_error()
            answer = self.connection.buffer_updated(count)
            if answer is not None:
                return answer
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{self.connection.node} did not answer {api} completely in {seconds} s"
                )

    def has_news(self) -> bool:
        """Return whether the socket has bytes or is closed, or a response is missing."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0)) or not self.connection.is_idle
        except (OSError, ValueError):  # the socket is closed
            return True

    def close(self) -> None:
        """Close the socket; a thread that waits for it wakes up with an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # `close` alone would not wake the thread
        self._socket.close()
