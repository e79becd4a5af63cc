"""Server that receives windows of many connections, and acks a window after it is kept.

`wirescan receive` uses it. `server_connection.py` has a single connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from wirescan.frames.limits import Limits
from wirescan.lumberjack.live.receiver import Receiver, Window
from wirescan.lumberjack.live.server_connection import CLOSING, ServerConnection, Turns

TICK = 0.5  # seconds between two checks of the timeouts
BACKLOG = 512  # connections that wait to be accepted
CLOSING_TICK = 0.01  # seconds between two checks for connections that close


@dataclass(frozen=True)
class Bounds:
    """What connections may use. Each bound is inclusive.

    connections: open at a time; further connections are refused at once.
    window: bytes of memory for the unfinished window of a connection. Of a larger window, parts are
        kept.
    waiting: bytes of a connection's windows that wait to be kept. Above it, nothing is read from
        the connection.
    all_windows, all_waiting: the same for all connections together.
    idle: seconds without a byte, after which a connection without waiting windows is closed.
    handshake: seconds for the TLS handshake.
    window_seconds: seconds after which a part of an unfinished window is kept. A connection that
        has sent no whole event of it is closed.
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
    """Counts of a server.

    connections: accepted connections. refused: connections that were closed for what they sent, or
    because there were too many. windows, events, bytes: kept; the bytes are those on the wire.
    commits: calls of `keep`. incomplete: events of windows that their writers left incomplete.
    """

    connections: int = 0
    refused: int = 0
    windows: int = 0
    events: int = 0
    bytes: int = 0
    commits: int = 0
    incomplete: int = 0


class Server:
    """Receives windows of any number of writers, and acks each window after `keep` has returned.

    keep: called in its own thread with a list of Windows, which came from all connections since the
        last call. When it returns, the windows must be safe, because they are acked then. An
        exception from it ends the server.
    tls: None, or an ssl.SSLContext for a server.
    bounds: what connections may use. limits: what frames may use.
    strict, depth: as in `Receiver`.
    incomplete: also keep the events of a window that is incomplete when its writer closes the
        connection. They are never acked.
    tell: called with one line about each connection that is refused or ends early.

        server = Server(keep)
        await server.start("127.0.0.1", 5044)
        await server.run()                      # until server.stop(), or until keep fails
    """

    def __init__(
        self,
        keep: Callable[[list[Window]], object],
        *,
        tls: ssl.SSLContext | None = None,
        bounds: Bounds = Bounds(),
        limits: Limits = Limits(rows=1 << 18),
        strict: bool = False,
        depth: int = 1,
        incomplete: bool = False,
        tell: Callable[[str], object] = lambda line: None,
    ):
        self._keep = keep
        self.tls = tls
        self.tell = tell
        self.incomplete = incomplete
        self.make_receiver: Callable[[], Receiver] = partial(
            Receiver, strict=strict, depth=depth, limits=limits, window_bytes=bounds.window
        )
        self.bounds = bounds
        self.totals = Totals()
        self.connections: set[ServerConnection] = set()
        self._queue: dict[ServerConnection, list[Window]] = {}
        self._waiting = 0  # bytes of the windows that are in the queue or in `keep`
        self._held = 0  # bytes of the windows that are not complete
        self.is_stopping = False
        self._was_full = False
        self._listener: asyncio.Server | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each socket that the server listens on."""
        if self._listener is None:
            return []
        return [socket.getsockname()[:2] for socket in self._listener.sockets]

    @property
    def open(self) -> int:
        """Number of open connections."""
        return len(self.connections)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self.loop = asyncio.get_running_loop()
        self._news = asyncio.Event()  # set when there are windows to keep, and by `stop`
        self.turns: Turns = Turns(self.loop)
        self._listener = await self.loop.create_server(
            lambda: ServerConnection(self), host, port, backlog=BACKLOG
        )

    async def run(self) -> None:
        """Serve until `stop`. Then keep and ack what was received, and close all connections.

        Raises what `keep` raised.
        """
        timeouts = self.loop.create_task(self._check_timeouts())
        writer = ThreadPoolExecutor(1, "writer")
        try:
            await self._commit(writer)
        finally:
            self.stop()
            timeouts.cancel()
            writer.shutdown()
            for connection in list(self.connections):
                connection.close()
            deadline = self.loop.time() + CLOSING
            while self.connections and self.loop.time() < deadline:
                await asyncio.sleep(CLOSING_TICK)
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Stop listening, and end `run` when what was received is kept.

        Call it in the thread of the event loop.
        """
        self.is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.end()
        self._news.set()

    async def _commit(self, writer: ThreadPoolExecutor) -> None:
        """Keep all waiting windows together, so that many writers share one fsync."""
        while self._queue or not self.is_stopping:
            if not self._queue:
                self._news.clear()
                await self._news.wait()
                continue
            queue = self._queue
            self._queue = {}
            await self.loop.run_in_executor(
                writer, self._keep, [window for windows in queue.values() for window in windows]
            )
            self.totals.commits += 1
            while queue:  # no reference to a window is left when this is empty
                self._acknowledge(*queue.popitem())
            self._regulate()

    def _acknowledge(self, connection: ServerConnection, windows: list[Window]) -> None:
        totals = self.totals
        totals.windows += len(windows)
        totals.events += sum(len(window.events) for window in windows)
        totals.bytes += sum(len(view) for window in windows for view in window.raw)
        self._waiting -= connection.acknowledge(windows)

    def add_windows(
        self, connection: ServerConnection, windows: Sequence[Window], size: int
    ) -> None:
        """Queue windows of a connection, which have `size` bytes, to be kept."""
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
        """Whether so many bytes wait to be kept that nothing more is read."""
        return self._waiting > self.bounds.all_waiting

    def hold(self, change: int) -> None:
        """Count bytes of unfinished windows, and keep a part of the largest if there are too many.

        change: the bytes that one connection holds more than before, negative for fewer.
        """
        self._held += change
        while change > 0 and self._held > self.bounds.all_windows:
            largest = max(self.connections, key=lambda connection: connection.held)
            largest.keep_part("all unfinished windows together have too many bytes")

    async def _check_timeouts(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            now = self.loop.time()
            for connection in list(self.connections):
                connection.check_timeouts(now)
