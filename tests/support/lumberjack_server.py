"""A Lumberjack server in a thread, and functions that wait for its results."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

from tests.support.paths import ROOT
from wirescan import lumberjack
from wirescan.lumberjack.live.client import Client
from wirescan.lumberjack.live.server import Server

TLS = ROOT / "tests" / "tls"
PATIENCE = 20  # seconds after which a test has failed


class ServerThread:
    """A server in a thread.

    Attributes:
        stored: the bytes of each window, in order.
        calls: the number of windows in each call of `keep`.
        lines: the lines that the server reported.
        error: the exception that ended the server, or None.
        go: an event. `keep` waits while it is not set.
    """

    def __init__(self, keep=None, **options):
        self.stored = []
        self.calls = []
        self.lines = []
        self.error = None
        self.go = threading.Event()
        self.go.set()
        self._keep = keep
        self._options = options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def keep(self, windows):
        self.calls.append(len(windows))
        assert self.go.wait(PATIENCE)
        if self._keep is not None:
            self._keep(windows)
        self.stored += [b"".join(window.raw) for window in windows]

    async def _main(self):
        self.server = Server(self.keep, tell=self.lines.append, **self._options)
        await self.server.start("127.0.0.1", 0)
        self.address = self.server.addresses[0]
        self._ready.set()
        try:
            await self.server.run()
        except Exception as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        self.go.set()
        self.stop()

    def stop(self):
        if self._thread.is_alive():
            self.server.loop.call_soon_threadsafe(self.server.stop)
            self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, PATIENCE)

    def client(self, **options) -> Client:
        return Client(*self.address, **options)

    @property
    def documents(self) -> list[bytes]:
        """The documents of the JSON stored windows."""
        frames = lumberjack.scan(b"".join(self.stored), errors="skip")
        table = lumberjack.events(frames, errors="skip")
        return [bytes(row.json) for row in table]

    def wait_for_line(self, text: str) -> bool:
        """Wait for a line with this text. Return whether it came."""
        return wait_until(lambda: any(text in line for line in self.lines))


def wait_until(condition) -> bool:
    """Wait until a condition is true. Return whether it became true."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def make_documents(count: int, first: int = 0) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(first, first + count)]


def receive_bytes(sock: socket.socket, size: int) -> bytes:
    """Receive `size` bytes, or all bytes before the end of the connection."""
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data
