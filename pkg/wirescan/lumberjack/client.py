"""Sends over a socket that waits: windows in flight, and again on a new connection what was not acked."""
from __future__ import annotations

import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from wirescan.core.chunks import is_arrow

from wirescan.lumberjack.refusal import ConversationError
from wirescan.lumberjack.sender import Sender
from wirescan.table import FrameTable

FIRST_DELAY, LONGEST_DELAY = 0.1, 10.0      # seconds between two attempts to connect
READ = 64 << 10


class Client:
    """Sends events to a receiver of Lumberjack: at least once each. A context manager: at its end everything is acked.

    host, port: of the receiver. tls: None, True (the authorities of this system), the path of a file of authorities
    (PEM), or an ssl.SSLContext. timeout: seconds that the receiver may say nothing while an ack is awaited; a
    keep-alive counts. attempts: connections in a row over which nothing is acked, until it is given up; the pauses
    between them grow from 0.1 s to 10 s. options: as of `Sender`: version, frames, window, pipelining, level.

        with lumberjack.Client("127.0.0.1", 5044) as client:
            client.send([{"message": "one"}, b'{"message":"two"}'])

    Methods raise ConnectionError when it is given up, or for an answer that is no ack (__cause__ is the last error),
    and PermissionError for an error of TLS, such as a certificate that is not trusted. Where a receiver only hangs up,
    because it does not speak TLS, or asks for a certificate, that is a lost connection. For one thread at a time.
    """

    def __init__(self, host: str, port: int, *, tls: Any = None, timeout: float = 30.0, attempts: int = 8,
                 **options: Any):
        self._address, self._timeout, self._attempts = (host, port), timeout, attempts
        self._tls, self._sender = context_of(tls), Sender(**options)
        self._window: int = options.get("window", 2048)
        self._socket: socket.socket | None = None
        self._failures = 0
        self.acknowledged = 0
        """Events that were acked."""
        self.connections = 0
        """Connections made: each after the first is one that was lost."""

    def send(self, events: Any) -> None:
        """Sends events, in as many windows as it takes; waits while no window is free.

        events: an iterable of events, a table or an array, as `Sender.send` takes them. They are sent, but not acked
        yet, when it returns: see `flush`.
        """
        for part in parts(events, self._window):
            while not self._sender.ready:
                self._wait()
            data = self._sender.send(part)
            self._do(lambda: self._put(data))

    def flush(self) -> None:
        """Waits until all that was sent is acked."""
        while self._sender.unacknowledged:
            self._wait()

    def close(self) -> None:
        """Closes the connection; what is not acked may be there or not."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _wait(self) -> None:
        """Waits for news from the receiver."""
        data = b""

        def read() -> None:
            nonlocal data
            data = self._socket.recv(READ)
            if not data:
                raise ConnectionResetError("the receiver hung up")

        self._do(read)
        before = self._sender.unacknowledged
        try:
            self._sender.receive(data)
        except ConversationError as error:
            host, port = self._address
            raise ConnectionError(f"{host}:{port} does not speak Lumberjack: {error}") from error
        finally:
            count = before - self._sender.unacknowledged
            self.acknowledged += count
            if count:
                self._failures = 0

    def _do(self, act: Callable[[], None]) -> None:
        """Does something with the socket; where that fails, what is not acked goes over a new one instead."""
        try:
            if self._socket is not None:
                return act()
            error: OSError | None = None
        except OSError as failed:
            error = failed
        while True:
            self._refuse_more(error)
            try:
                self._connect()
                return self._put(self._sender.resend())
            except OSError as failed:
                error = failed

    def _put(self, data: bytes | memoryview) -> None:
        """Sends it; `timeout` is for each part that the receiver takes: sendall's would be for all of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._socket.send(rest):]

    def _refuse_more(self, error: OSError | None) -> None:
        """Waits before the next attempt; raises where there is none."""
        host, port = self._address
        self.close()
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):     # no use in trying again
            raise PermissionError(f"TLS with {host}:{port} fails: {error}") from error
        if self._failures >= self._attempts:
            tried = f"{self._attempts} attempt{'s' * (self._attempts != 1)}"
            raise ConnectionError(f"{host}:{port} acks nothing, after {tried}: {self._told(error)}") from error
        if self._failures:
            delay = min(FIRST_DELAY * 2 ** (self._failures - 1), LONGEST_DELAY)
            time.sleep(delay * random.uniform(0.5, 1))
        self._failures += 1

    def _told(self, error: OSError | None) -> str:
        """What went wrong, and what may be the reason where nothing was ever acked."""
        hint = ""
        if not self.acknowledged and isinstance(error, ssl.SSLEOFError):
            return "it ends the handshake of TLS: does it speak TLS?"
        if not self.acknowledged and isinstance(error, ConnectionResetError):
            hint = "; does it ask for a certificate?" if self._tls else "; does it expect TLS, or a certificate?"
        return f"{(error and error.strerror) or error}{hint}"

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, self._timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            self._socket = self._tls.wrap_socket(self._socket, server_hostname=self._address[0])
        self.connections += 1


def parts(events: Any, size: int) -> Iterator[Any]:
    """Events in parts of so many. Raises TypeError for what is one event, or none."""
    if isinstance(events, (Mapping, str, bytes, bytearray, memoryview)):
        raise TypeError(f"events are an iterable of events, not one {type(events).__name__}")
    if isinstance(events, (list, tuple, FrameTable, np.ndarray)) or is_arrow(events):
        yield from (events[first:first + size] for first in range(0, len(events), size))
        return
    rest = iter(events)
    while part := list(islice(rest, size)):
        yield part


def context_of(tls: Any) -> ssl.SSLContext | None:
    """The ssl.SSLContext that `tls` stands for (see `Client`), or None. Raises OSError, TypeError."""
    if tls is None or tls is False or isinstance(tls, ssl.SSLContext):
        return tls or None
    if tls is not True and not isinstance(tls, (str, os.PathLike)):
        raise TypeError(f"tls must be None, True, a path or an ssl.SSLContext, not {type(tls).__name__}")
    return ssl.create_default_context(cafile=None if tls is True else os.fspath(tls))
