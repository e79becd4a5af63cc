"""Runs operations over sockets that wait, and in threads what runs side by side."""
from __future__ import annotations

import copy
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Generator
from typing import Any

from wirescan.kafka.client.connection import HANG_UPS, Connection, greet, lost, unreached
from wirescan.kafka.client.effects import (
    SIDE_BY_SIDE, Answer, Begin, Exchange, Finish, Give, Node, Now, Operation, Together, Wait)
from wirescan.limits import Limits

CLOSED = "the client is closed"


class Driver:
    """Runs operations. Connections that are idle are kept, for each broker as many as were in use at once."""

    def __init__(self, client_id: str | None, tls: Any, sasl: tuple[str, str, str] | None, timeout: float,
                 limits: Limits):
        self._client_id, self._tls, self._sasl, self._timeout, self._limits = client_id, tls, sasl, timeout, limits
        self._idle: dict[tuple[str, int], list[_Link]] = {}
        self._links: set[_Link] = set()             # in use, or still dialling
        self._greeted: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._branches: weakref.WeakSet[Driver] = weakref.WeakSet()

    def run(self, operation: Operation[Any]) -> Any:
        """Runs an operation: its result, or what it raises."""
        running = self.iterate(operation)
        while True:
            try:
                next(running)
            except StopIteration as end:
                return end.value

    def iterate(self, operation: Operation[Any]) -> Generator[Any, None, Any]:
        """Runs an operation: what it gives, and at the end its result."""
        tickets: set[_Ticket] = set()
        try:
            step, value = operation.send, None
            while True:
                try:
                    effect = step(value)
                except StopIteration as end:
                    return end.value
                if isinstance(effect, Give):
                    yield effect.value
                    step, value = operation.send, None
                    continue
                try:
                    step, value = operation.send, self._perform(effect, tickets)
                except Exception as error:
                    step, value = operation.throw, error
        finally:
            operation.close()
            for ticket in tickets:
                self._drop(ticket.link)

    def branch(self) -> Driver:
        """A driver that shares the idle connections, and may be stopped alone. It is closed with this one."""
        branch = copy.copy(self)
        branch._links, branch._closed = set(), threading.Event()
        with self._lock:
            self._branches.add(branch)
            if self._closed.is_set():
                branch._closed.set()
        return branch

    def stop(self) -> None:
        """Ends what is under way, and its connections: what waits for one fails."""
        with self._lock:
            self._closed.set()
            links, self._links = self._links, set()
        for link in links:
            link.close()

    def close(self) -> None:
        """Ends all connections: what waits for one fails."""
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
            return self._together(effect.operations)
        if isinstance(effect, Wait):
            if self._closed.wait(effect.seconds):
                raise ValueError(CLOSED)
            return None
        if isinstance(effect, Now):
            return time.monotonic()
        raise TypeError(f"no operation may ask for {effect!r}")

    def _together(self, operations: Any) -> list[Any]:
        results: list[Any] = [None] * len(operations)

        left = deque(enumerate(operations))

        def work() -> None:
            while True:
                try:
                    number, operation = left.popleft()
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
            except RuntimeError:                # the system gives no more: those that there are do the work
                break
            threads.append(thread)
        work()
        for thread in threads:
            thread.join()
        return results

    def _begin(self, exchange: Exchange) -> _Ticket:
        ticket = _Ticket(exchange)
        try:
            ticket.link = self._take(exchange.node)
            ticket.link.send(exchange, self._timeout)
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
            link, exchange = ticket.link, ticket.exchange
            answer = Answer(link.version, None)
            if exchange.answered:
                answer = link.answer(exchange.api, self._timeout + exchange.seconds)
        except BaseException:
            self._drop(ticket.link)
            raise
        with self._lock:
            if link in self._links:             # else it was closed meanwhile
                self._links.discard(link)
                self._idle.setdefault(exchange.node[1:], []).append(link)
        return answer

    def _take(self, node: Node) -> _Link:
        while True:
            with self._lock:
                if self._closed.is_set():
                    raise ValueError(CLOSED)
                idle = self._idle.get(node[1:])
                link = idle.pop() if idle else None
                if link is not None:
                    self._links.add(link)
            if link is None:
                return self._connect(node)
            if not link.has_news():             # the broker hung up, or sends what nobody asked for
                return link
            self._drop(link)

    def _connect(self, node: Node) -> _Link:
        for hang_ups in range(HANG_UPS):
            is_doubted = hang_ups == HANG_UPS - 1
            link = self._dial(node)
            try:
                steps = greet(link.connection, self._sasl, is_doubted)
                data = next(steps)
                while True:
                    link.write(data, self._timeout)
                    data = steps.send(link.answer("the greeting", self._timeout))
            except StopIteration:
                self._greeted.add(node[1:])
                return link
            except (ConnectionResetError, BrokenPipeError):
                self._drop(link)
                if (self._sasl is not None or link.connection.versions or node[1:] in self._greeted
                        or is_doubted and not link.connection.has_answered):
                    raise
            except BaseException:
                self._drop(link)
                raise
        return self._dial(node)

    def _dial(self, node: Node) -> _Link:
        failure: Exception = ConnectionError("the name has no address")
        try:
            found = socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, address in found:
                link = None
                try:
                    link = _Link(socket.socket(family, kind, protocol),
                                 Connection(node, self._client_id, self._limits))
                    self._hold(link)            # so that whoever closes ends this too
                    link.open(address, self._timeout, self._tls)
                    self._hold(link)
                    return link
                except OSError as error:
                    self._drop(link)
                    failure = error
                except BaseException:
                    self._drop(link)
                    raise
        except (OSError, OverflowError, ValueError) as error:       # the name may be of a broker's making
            failure = error
        if self._closed.is_set():
            raise ValueError(CLOSED)
        raise unreached(node, failure, self._timeout) from failure

    def _hold(self, link: _Link) -> None:
        with self._lock:
            if self._closed.is_set():
                raise ValueError(CLOSED)
            self._links.add(link)

    def _drop(self, link: _Link | None) -> None:
        if link is not None:
            with self._lock:
                self._links.discard(link)
            link.close()


class _Ticket:
    """A request that was sent, or why it was not."""

    def __init__(self, exchange: Exchange):
        self.exchange = exchange
        self.link: Any = None                   # a _Link
        self.error: Exception | None = None


class _Link:
    """A connection and its socket."""

    def __init__(self, sock: socket.socket, connection: Connection):
        self._socket, self.connection, self.version = sock, connection, 0

    def open(self, address: Any, timeout: float, tls: Any) -> None:
        """Connects to an address."""
        self._socket.settimeout(timeout)
        self._socket.connect(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=self.connection.node.host,
                                           do_handshake_on_connect=False)
            self._socket.do_handshake()

    def send(self, exchange: Exchange, timeout: float) -> None:
        self.version = self.connection.version_of(exchange.api, exchange.versions)
        self.write(self.connection.send(exchange.api, self.version, exchange.body(self.version),
                                        answered=exchange.answered, expected=exchange.expected), timeout)

    def write(self, data: bytes, timeout: float) -> None:
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(data)
        except TimeoutError as error:
            raise TimeoutError(f"{self.connection.node} took no more bytes for {timeout} s") from error
        except OSError as error:
            raise lost(self.connection.node, error) from error

    def answer(self, api: str, seconds: float) -> Answer:
        until = time.monotonic() + seconds
        while True:
            try:
                self._socket.settimeout(max(until - time.monotonic(), 1e-3))
                count = self._socket.recv_into(self.connection.room())
            except TimeoutError as error:
                raise TimeoutError(f"{self.connection.node} did not answer {api} in {seconds} s") from error
            except OSError as error:
                raise lost(self.connection.node, error) from error
            if not count:
                raise self.connection.closed()
            answer = self.connection.filled(count)
            if answer is not None:
                return answer
            if time.monotonic() > until:
                raise TimeoutError(f"{self.connection.node} did not answer {api} whole in {seconds} s")

    def has_news(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0)) or not self.connection.is_idle
        except (OSError, ValueError):           # closed
            return True

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)         # wakes a thread that waits for it
        except OSError:
            pass
        self._socket.close()
