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
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any

from wirescan.kafka.client.connection import (
    CLOSED,
    Connection,
    make_connect_error,
    make_connection_lost_error,
)
from wirescan.kafka.client.driver import Driver, Link, RunningOperation, complete
from wirescan.kafka.client.effects import SIDE_BY_SIDE, Answer, Give, Node, Operation, Result

MIN_TIMEOUT = 1e-3  # seconds; a timeout of 0 would make the socket non-blocking


class SocketLink(Link):
    """A connection and its socket. Its coroutines block, and never wait."""

    def __init__(self, sock: socket.socket, connection: Connection):
        super().__init__(connection)
        self._socket = sock

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
            self._socket = secure  # so that `abort` ends the handshake too
            secure.do_handshake()

    async def write(self, data: bytes, timeout: float) -> None:
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

    async def receive_answer(self, api: str, seconds: float) -> Answer:
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

    @property
    def is_good(self) -> bool:
        """Whether the socket is open and has no bytes, and no response is missing."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
            return not poll.poll(0) and self.connection.is_idle
        except (OSError, ValueError):  # the socket is closed
            return False

    def abort(self) -> None:
        """Close the socket; a thread that waits for it wakes up with an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # `close` alone would not wake the thread
        self._socket.close()


class SocketDriver(Driver[SocketLink]):
    """Runs operations over blocking sockets."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._closed = threading.Event()
        self._branches: weakref.WeakSet[SocketDriver] = weakref.WeakSet()

    @property
    def is_closed(self) -> bool:
        """Whether the driver is closed or stopped."""
        return self._closed.is_set()

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result. Raises what the operation raises."""
        return complete(self._run(operation))

    def iterate(self, operation: Operation[Any]) -> Generator[Any, None, Any]:
        """Run an operation, yield the values that it gives, and return its result."""
        running = RunningOperation(self, operation)
        try:
            while isinstance(result := complete(running.advance()), Give):
                yield result.value
            return result.value
        finally:
            running.close()

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
        for link in self._take_all_used():
            link.abort()

    def close(self) -> None:
        """End all connections; calls that wait for one fail."""
        self.stop()
        with self._lock:
            branches = list(self._branches)
        for branch in branches:
            branch.stop()
        for link in self._take_all_idle():
            link.abort()

    async def _wait(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise ValueError(CLOSED)

    async def _run_together(self, operations: Sequence[Operation[Any]]) -> list[Any]:
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

    async def _dial(self, node: Node) -> SocketLink:
        failure: Exception = ConnectionError("the name has no address")
        try:
            addresses = socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, address in addresses:
                link = None
                try:
                    link = SocketLink(
                        socket.socket(family, kind, protocol),
                        Connection(node, self._client_id, self._limits),
                    )
                    self._hold(link)  # so that `close` ends a connection attempt too
                    link.open(address, self._timeout, self._tls)
                    self._hold(link)
                    return link
                except OSError as error:
                    self.drop(link)
                    failure = error
                except BaseException:
                    self.drop(link)
                    raise
        except (OSError, OverflowError, ValueError) as error:
            # A host name that came from a broker may be any text.
            failure = error
        if self._closed.is_set():
            raise ValueError(CLOSED)
        raise make_connect_error(node, failure, self._timeout) from failure
