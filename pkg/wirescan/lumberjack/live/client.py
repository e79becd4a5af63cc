"""Client that sends events over a blocking socket, and sends them again after a lost connection.

Several windows may wait for their acks. `wirescan send` uses it.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from wirescan.core.arguments import check_host, to_tls_context
from wirescan.core.arrow_input import is_arrow
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.live.conversation_errors import ConversationError
from wirescan.lumberjack.live.sender import Sender

FIRST_DELAY = 0.1  # seconds between the first two attempts to connect
LONGEST_DELAY = 10.0  # seconds between two attempts
READ_SIZE = 64 << 10  # bytes


class Client:
    """Sends events to a Lumberjack receiver, each at least once.

    A context manager: when its block ends without an error, all events are acked.

    host, port: address of the receiver.
    tls: None; True, for the certificate authorities of this system; the path of a file of
        authorities (PEM); or an ssl.SSLContext.
    timeout: seconds to wait for the receiver. A keep-alive starts the time again.
    attempts: number of connections in a row without an ack after which the client gives up. The
        pauses between them grow from 0.1 s to 10 s.
    options: those of `Sender`: version, frames, window, pipelining, level.

        with lumberjack.Client("127.0.0.1", 5044) as client:
            client.send([{"message": "one"}, b'{"message":"two"}'])

    Methods raise ConnectionError if the client gives up, and for an answer that is not an ack;
    __cause__ is the last error. They raise PermissionError for an error of TLS, such as a
    certificate that is not trusted. A receiver that closes the connection, because it does not
    speak TLS or wants a certificate, counts as a lost connection. The constructor raises ValueError
    for a name that no host can have, and as `Sender`. Not thread-safe.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: Any = None,
        timeout: float = 30.0,
        attempts: int = 8,
        **options: Any,
    ):
        check_host(host)
        self._address = (host, port)
        self._timeout = timeout
        self._attempts = attempts
        self._tls = to_tls_context(tls)
        self._sender = Sender(**options)
        self._window: int = options.get("window", 2048)
        self._socket: socket.socket | None = None
        self._failures = 0  # connections in a row without an ack
        self.acknowledged = 0
        """Number of events that were acked."""
        self.connections = 0
        """Number of connections made. Each one after the first replaces a lost one."""

    def send(self, events: Any) -> None:
        """Send events in as many windows as needed, and wait while no window is free.

        events: an iterable of events, a table or an array, as in `Sender.send`. When this returns,
            they are sent but not acked yet: see `flush`.
        """
        for window in split_events(events, self._window):
            while not self._sender.ready:
                self._receive()
            self._try(partial(self._write, self._sender.send(window)))

    def flush(self) -> None:
        """Wait until all events that were sent are acked."""
        while self._sender.unacknowledged:
            self._receive()

    def close(self) -> None:
        """Close the connection. Events that are not acked may or may not have arrived."""
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

    def _receive(self) -> None:
        """Wait for bytes of the receiver, and count the events that they acknowledge."""
        data = b""

        def read() -> None:
            nonlocal data
            data = self._connect_socket().recv(READ_SIZE)
            if not data:
                raise ConnectionResetError("the receiver closed the connection")

        self._try(read)
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

    def _try(self, act: Callable[[], None]) -> None:
        """Call a function that uses the socket.

        If there is no connection or the call fails, connect again and send all events that are not
        acked.
        """
        try:
            if self._socket is not None:
                return act()
            error: OSError | None = None
        except OSError as failure:
            error = failure
        while True:
            self._prepare_attempt(error)
            try:
                self._connect()
                return self._write(self._sender.resend())
            except OSError as failure:
                error = failure

    def _write(self, data: bytes | memoryview) -> None:
        """Send data. `timeout` is for each call of `send`; that of `sendall` is for all data."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._connect_socket().send(rest) :]

    def _prepare_attempt(self, error: OSError | None) -> None:
        """Close the connection and wait before the next attempt. Raise if there is none."""
        host, port = self._address
        self.close()
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            # Another attempt would fail in the same way.
            raise PermissionError(f"TLS with {host}:{port} fails: {error}") from error
        if self._failures >= self._attempts:
            attempts = f"{self._attempts} attempt{'s' * (self._attempts != 1)}"
            raise ConnectionError(
                f"{host}:{port} acks nothing, after {attempts}: {self._describe(error)}"
            ) from error
        if self._failures:
            delay = min(FIRST_DELAY * 2 ** (self._failures - 1), LONGEST_DELAY)
            time.sleep(delay * random.uniform(0.5, 1))
        self._failures += 1

    def _describe(self, error: OSError | None) -> str:
        """Return what failed, with a possible reason if the receiver never acked an event."""
        hint = ""
        if not self.acknowledged and isinstance(error, ssl.SSLEOFError):
            return "the receiver ends the TLS handshake; does it speak TLS?"
        if not self.acknowledged and isinstance(error, ConnectionResetError):
            if self._tls:
                hint = "; does it require a certificate?"
            else:
                hint = "; does it require TLS, or a certificate?"
        return f"{(error and error.strerror) or error}{hint}"

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, self._timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            self._socket = self._tls.wrap_socket(self._socket, server_hostname=self._address[0])
        self.connections += 1

    def _connect_socket(self) -> socket.socket:
        assert self._socket is not None  # `_try` connects before it uses the socket
        return self._socket


def split_events(events: Any, size: int) -> Iterator[Any]:
    """Yield events in groups of at most `size`. Raises TypeError for a single event."""
    if isinstance(events, (Mapping, str, bytes, bytearray, memoryview)):
        raise TypeError(f"events are an iterable of events, not one {type(events).__name__}")
    if isinstance(events, (list, tuple, FrameTable, np.ndarray)) or is_arrow(events):
        yield from (events[first : first + size] for first in range(0, len(events), size))
        return
    rest = iter(events)
    while group := list(islice(rest, size)):
        yield group
