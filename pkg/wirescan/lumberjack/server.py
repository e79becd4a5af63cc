"""Receives over sockets: many connections, one writer, and an ack only for what is kept."""
from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from wirescan.limits import Limits
from wirescan.lumberjack.connection import CLOSING, Connection, Turns
from wirescan.lumberjack.conversation import Window

TICK = 0.5                  # seconds between two looks at the clock


@dataclass(frozen=True)
class Bounds:
    """What connections may take, each bound inclusive.

    connections: open at a time; further ones are refused at once. window: bytes of memory that the unfinished window
    of a connection takes; of a larger one, parts are kept. waiting: bytes of windows that wait to be kept, of one
    connection: while there are more, nothing is read from it. all_windows, all_waiting: the same for all connections
    together. idle: seconds without a byte, after which a connection of which nothing waits is closed. handshake:
    seconds for that of TLS. window_seconds: after them a part of an unfinished window is kept; a connection that has
    sent no whole event of it is closed.
    """
    connections: int = 1000
    window: int = 64 << 20
    waiting: int = 16 << 20
    all_windows: int = 128 << 20
    all_waiting: int = 128 << 20
    idle: float = 60.0
    handshake: float = 10.0
    window_seconds: float = 60.0


@dataclass
class Totals:
    """What a server did. connections: accepted. refused: connections that were closed for what they did, or because
    there were too many. windows, events, bytes: kept; the bytes are those on the wire. commits: calls of `keep`.
    incomplete: events of windows that their writers left incomplete."""
    connections: int = 0
    refused: int = 0
    windows: int = 0
    events: int = 0
    bytes: int = 0
    commits: int = 0
    incomplete: int = 0


class Server:
    """Receives windows from any number of writers, and acks each when `keep` has returned.

    keep: called in a thread of its own with a list of Windows, those that came from all connections meanwhile; when it
    returns they must be safe, for they are acked then. What it raises ends the server.
    tls: an ssl.SSLContext of a server, or None. bounds, limits: what connections may take, as `server.Bounds`, and
    frames. strict, depth: as of `Receiver`. incomplete: also keep what came of a window that its writer left
    incomplete, when it hangs up; it is never acked. tell: called with a line about each connection that was not served
    to its end.

        server = Server(keep)
        await server.start("127.0.0.1", 5044)
        await server.run()                      # until server.stop(), or until keep fails
    """

    def __init__(self, keep: Callable[[list[Window]], object], *, tls: ssl.SSLContext | None = None,
                 bounds: Bounds = Bounds(), limits: Limits = Limits(rows=1 << 18), strict: bool = False,
                 depth: int = 1, incomplete: bool = False, tell: Callable[[str], object] = lambda line: None):
        self._keep, self.tls, self.tell, self.incomplete = keep, tls, tell, incomplete
        self.receiver_options = {"strict": strict, "depth": depth, "limits": limits, "window_bytes": bounds.window}
        self.bounds, self.totals = bounds, Totals()
        self.connections: set[Connection] = set()
        self._queue: dict[Connection, list[Window]] = {}
        self._waiting = 0                       # bytes of the windows in the queue, or being kept
        self._held = 0                          # ... of those that are not complete
        self.is_stopping = self._was_full = False
        self._listener: asyncio.Server | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each socket that it listens on."""
        return [] if self._listener is None else [socket.getsockname()[:2] for socket in self._listener.sockets]

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self.connections)

    async def start(self, host: str, port: int) -> None:
        """Listens. Raises OSError."""
        self.loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        self.turns: Turns = Turns(self.loop)
        self._listener = await self.loop.create_server(lambda: Connection(self), host, port, backlog=512)

    async def run(self) -> None:
        """Serves until `stop`; when it returns, what was received is kept and acked, and no connection is open.

        Raises what `keep` raised."""
        tending = self.loop.create_task(self._tend())
        writer = ThreadPoolExecutor(1, "writer")
        try:
            await self._commit(writer)
        finally:
            self.stop()
            tending.cancel()
            writer.shutdown()
            for connection in list(self.connections):
                connection.close()
            until = self.loop.time() + CLOSING
            while self.connections and self.loop.time() < until:
                await asyncio.sleep(0.01)
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Listens no more, and ends `run` when what was received is kept. To be called in the event loop's thread."""
        self.is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.end()
        self._news.set()

    async def _commit(self, writer: ThreadPoolExecutor) -> None:
        """All that waits is kept together, so that many writers share one fsync."""
        while self._queue or not self.is_stopping:
            if not self._queue:
                self._news.clear()
                await self._news.wait()
                continue
            taken, self._queue = self._queue, {}
            await self.loop.run_in_executor(
                writer, self._keep, [window for windows in taken.values() for window in windows])
            self.totals.commits += 1
            while taken:                        # and nothing of it is held when that is empty
                self._acknowledge(*taken.popitem())
            self._regulate()

    def _acknowledge(self, connection: Connection, windows: list[Window]) -> None:
        totals = self.totals
        totals.windows += len(windows)
        totals.events += sum(len(window.events) for window in windows)
        totals.bytes += sum(len(view) for window in windows for view in window.raw)
        self._waiting -= connection.kept(windows)

    def take(self, connection: Connection, windows: Sequence[Window], size: int) -> None:
        """Windows of a connection, to be kept."""
        self._queue.setdefault(connection, []).extend(windows)
        self._waiting += size
        self._news.set()
        self._regulate()

    def _regulate(self) -> None:
        if self.is_full != self._was_full:
            self._was_full = self.is_full
            for connection in self.connections:
                connection.regulate()

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be kept that nothing more is read."""
        return self._waiting > self.bounds.all_waiting

    def hold(self, more: int) -> None:
        """Counts bytes of unfinished windows; where they are too many, the largest of these is not waited for."""
        self._held += more
        while more > 0 and self._held > self.bounds.all_windows:
            max(self.connections, key=lambda connection: connection.held).hurry("there is no more room for it")

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            now = self.loop.time()
            for connection in list(self.connections):
                connection.tend(now)
