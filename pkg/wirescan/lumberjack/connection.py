"""One connection of a server of Lumberjack, and whose turn it is among several."""
from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from wirescan.lumberjack.conversation import Receiver, Window

if TYPE_CHECKING:
    from wirescan.lumberjack.server import Server

KEEP_ALIVE = 3.0            # seconds without an ack after which a waiting writer is told to be patient
CLOSING = 5.0               # seconds that the last acks are given to leave
TURN = 0.008                # seconds of work for one connection, about, before it is another's turn
SMALLEST_PIECE = 2 << 10    # bytes that are read in a turn
ACK_BYTES = 32 << 10        # of acks that a writer may leave unread
WINDOW_COST = 1 << 10       # bytes of memory of a window that holds nothing
TLS_HINT = "; does the writer speak TLS, trust this certificate, and have one where it is asked for?"


class Turns:
    """Whose bytes are read next: those of the connection that took least of this process's time so far, so that a
    writer of much that is small, or of bombs, holds up the others for one turn at the most. One that was idle has no
    credit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop, self._line, self._numbers = loop, list[tuple[float, int, Connection]](), count()
        self._now, self._is_at_work = 0.0, False

    def add(self, connection: Connection) -> None:
        """Has `connection.work` called, until nothing is in its `rest`."""
        connection.time = max(connection.time, self._now)
        heappush(self._line, (connection.time, next(self._numbers), connection))
        if not self._is_at_work:
            self._next()

    def _next(self) -> None:
        self._now, _, connection = heappop(self._line)
        begun = perf_counter()
        connection.work()
        connection.time += perf_counter() - begun
        if connection.rest:
            heappush(self._line, (connection.time, next(self._numbers), connection))
        self._is_at_work = bool(self._line)
        if self._is_at_work:
            self._loop.call_soon(self._next)


class Connection(asyncio.Protocol):
    """One writer. held: bytes of its unfinished window. rest: bytes that arrived, and wait to be read. time: seconds of
    work that it made."""

    def __init__(self, server: Server):
        self._server, self._bounds, self._loop = server, server.bounds, server.loop
        self._receiver = Receiver(**server.receiver_options)
        self._transport: Any = None
        self._name = "?"
        self._sizes: deque[int] = deque()       # of the windows that wait, in order
        self._waiting, self.held, self.time = 0, 0, 0.0
        self.rest, self._piece = memoryview(b""), SMALLEST_PIECE
        self._is_choked = self._is_ending = self._is_paused = self._is_open = self._is_finished = False
        self._heard = self._spoke = self._began = self._ended = self._loop.time()

    # what asyncio calls

    def connection_made(self, transport: Any) -> None:
        server, self._transport = self._server, transport
        peer = transport.get_extra_info("peername") or ("?", 0)
        self._name = f"{peer[0]}:{peer[1]}"
        if len(server.connections) >= self._bounds.connections or server.is_stopping:
            if not server.is_stopping:
                server.totals.refused += 1
                server.tell(f"{self._name}: refused: {self._bounds.connections:,} connections are open")
            transport.abort()
            return
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ACK_BYTES)
        server.connections.add(self)
        server.totals.connections += 1
        if server.tls is None:
            self._is_open = True
            self.regulate()
        else:
            transport.pause_reading()
            self._greeting = self._loop.create_task(self._greet(server.tls))

    async def _greet(self, tls: ssl.SSLContext) -> None:
        try:
            transport = await self._loop.start_tls(self._transport, self, tls, server_side=True,
                                                   ssl_handshake_timeout=self._bounds.handshake)
        except OSError as error:
            self.refuse(f"TLS fails: {error}{TLS_HINT}")
            self.connection_lost(error)         # asyncio does not, here
            return
        self._transport, self._is_open = transport, True
        self._heard = self._loop.time()
        if self._is_ending:
            self.close()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        self._heard = self._loop.time()
        waits, self.rest = bool(self.rest), memoryview(bytes(self.rest) + data if self.rest else data)
        if not waits:
            self._server.turns.add(self)
        self.regulate()

    def eof_received(self) -> bool:
        self._is_finished = True
        if not self.rest:
            self._finish()
        # The last windows are acked yet, and `end` closes; but asyncio's TLS ends both directions at once.
        return self._server.tls is None

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._is_ending = True
        self._hold(0)

    def pause_writing(self) -> None:
        self._is_choked = True
        self.regulate()

    def resume_writing(self) -> None:
        self._is_choked = False
        self.regulate()

    # what the server calls

    def work(self) -> None:
        """Reads a piece of what arrived: one that takes some milliseconds."""
        if self._is_ending:
            self.rest = memoryview(b"")
            return
        begun, piece = perf_counter(), self.rest[:self._piece]
        self.rest = self.rest[len(piece):]
        try:
            windows = self._receiver.receive(piece)
        except (ValueError, MemoryError) as error:      # a FrameError, mostly
            self.refuse(str(error) or "there is no memory for what it sent")
            return
        took = perf_counter() - begun
        if took > TURN:
            self._piece = max(self._piece // 4, SMALLEST_PIECE)
        elif took < TURN / 4 and len(piece) == self._piece:
            self._piece *= 2
        if windows or not self._receiver.held:
            self._began = self._loop.time()
        if windows:
            self._wait(windows)
        self._hold(self._receiver.held)
        if self._is_finished and not self.rest:
            self._finish()
        self.regulate()

    def kept(self, windows: Sequence[Window]) -> int:
        """Acks windows; how many bytes wait no more."""
        acks, size = [], 0
        for window in windows:
            size += self._sizes.popleft()
            acks.append(self._receiver.acknowledge(window))
        self._waiting -= size
        self._say(b"".join(acks))
        if self._is_ending and not self._sizes:
            self.close()
        self.regulate()
        return size

    def tend(self, now: float) -> None:
        """Closes what is idle or too slow, and tells a writer that waits that it is not forgotten."""
        silent = now - self._heard
        if self._is_ending:
            if not self._sizes and now - self._ended > CLOSING:
                self.abort()
        elif not self._is_open:
            pass                                # TLS has a time of its own
        elif self._is_choked:
            if now - self._spoke > self._bounds.idle:
                self.refuse(f"it read no ack for {self._bounds.idle:g} s")
                self.abort()
        elif silent > self._bounds.idle and not self._sizes and not self.rest:
            if self.held:
                self.refuse(f"it fell silent within a window, for {self._bounds.idle:g} s")
            self.end()
        elif self.held and now - self._began > self._bounds.window_seconds and not self._sizes:
            self.hurry(f"no event of it came in {self._bounds.window_seconds:g} s")
        elif now - self._spoke >= KEEP_ALIVE:
            self._say(self._receiver.keep_alive())

    def regulate(self) -> None:
        """Reads, or does not."""
        pause = (self._waiting > self._bounds.waiting or self._is_choked or self._is_ending or self._server.is_full
                 or len(self.rest) > 0)
        if pause != self._is_paused and self._is_open:
            self._is_paused = pause
            (self._transport.pause_reading if pause else self._transport.resume_reading)()

    def hurry(self, reason: str) -> None:
        """What is there of the unfinished window is to be kept; if that is no event, it is refused."""
        part, self._began = self._receiver.flush(), self._loop.time()
        if part is None:
            self.refuse(f"a window of {self.held:,} bytes so far, and {reason}")
            return
        self._wait([part])
        self._hold(self._receiver.held)

    def refuse(self, reason: str) -> None:
        """Ends the connection for what came over it."""
        if not self._is_ending:
            self._server.totals.refused += 1
            self._server.tell(f"{self._name}: closed: {reason}")
        self.end()

    def end(self) -> None:
        """Reads no more; when what waits is acked, the connection is closed."""
        if not self._is_ending:
            self._is_ending, self._ended = True, self._loop.time()
            self._hold(0)
            self.regulate()
        if not self._sizes:
            self.close()

    def close(self) -> None:
        """Closes the connection when the acks have left."""
        (self._transport.close if self._is_open else self._transport.abort)()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._transport.abort()

    def _finish(self) -> None:
        """The writer has sent all that it will."""
        if self._is_ending:
            return
        server, left = self._server, self._receiver.close()
        if left is not None:
            server.totals.incomplete += len(left.events)
            kept = "are kept, but not acked" if server.incomplete else "are left out, and not acked"
            server.tell(f"{self._name}: hung up after {len(left.events):,} of the {left.count:,} events of a window, "
                        f"which {kept}")
            if server.incomplete:
                self._wait([left])
        self.end()

    def _wait(self, windows: Sequence[Window]) -> None:
        sizes = [WINDOW_COST + window.size for window in windows]
        self._sizes += sizes
        self._waiting += sum(sizes)
        self._server.take(self, windows, sum(sizes))
        self.regulate()

    def _hold(self, size: int) -> None:
        more, self.held = size - self.held, size
        self._server.hold(more)

    def _say(self, data: bytes) -> None:
        if data and not self._transport.is_closing():
            self._spoke = self._loop.time()
            self._transport.write(data)
