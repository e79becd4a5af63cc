"""One connection of a Lumberjack server, and the order in which connections are read.

`server.py` uses both.
"""

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

from wirescan.lumberjack.live.receiver import Window

if TYPE_CHECKING:
    from wirescan.lumberjack.live.server import Server

KEEP_ALIVE = 3.0  # seconds without an ack after which a waiting writer gets a keep-alive
CLOSING = 5.0  # seconds in which the last acks must be sent
TURN = 0.008  # seconds of work for one connection, about, before the next connection's turn
SMALLEST_PIECE = 2 << 10  # bytes that are read in a turn
ACK_BYTES = 32 << 10  # bytes of acks that a writer may leave unread
WINDOW_COST = 1 << 10  # bytes of memory of an empty window
TLS_HINT = "; does the writer speak TLS, trust this certificate, and send one if it is required?"


class Turns:
    """Chooses the connection that is read next: the one that used the least time so far.

    So a writer of many small frames or of bombs delays the others by at most one turn. A connection
    that was idle gets no credit for that time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._line: list[
            tuple[float, int, ServerConnection]
        ] = []  # a heap: (time used, number, ...)
        self._numbers = count()  # connections of equal time keep their order
        self._now = 0.0  # time used by the connection of the current turn
        self._is_at_work = False

    def add(self, connection: ServerConnection) -> None:
        """Call `connection.work` in its turns, until its `rest` is empty."""
        connection.time = max(connection.time, self._now)
        heappush(self._line, (connection.time, next(self._numbers), connection))
        if not self._is_at_work:
            self._run_next()

    def _run_next(self) -> None:
        self._now, _, connection = heappop(self._line)
        start = perf_counter()
        connection.work()
        connection.time += perf_counter() - start
        if connection.rest:
            heappush(self._line, (connection.time, next(self._numbers), connection))
        self._is_at_work = bool(self._line)
        if self._is_at_work:
            self._loop.call_soon(self._run_next)


class ServerConnection(asyncio.Protocol):
    """The connection of one writer.

    held: bytes of its unfinished window. rest: bytes that arrived and are not read yet. time:
    seconds of work for this connection.
    """

    def __init__(self, server: Server):
        self._server = server
        self._bounds = server.bounds
        self._loop = server.loop
        self._receiver = server.make_receiver()
        self._transport: Any = None
        self._name = "?"
        self._sizes: deque[int] = deque()  # bytes of each window that waits to be kept, in order
        self._waiting = 0  # their sum
        self.held = 0
        self.time = 0.0
        self.rest = memoryview(b"")
        self._piece = SMALLEST_PIECE  # bytes of the next piece
        self._is_choked = False  # the writer does not read its acks
        self._is_ending = False  # nothing more is read
        self._is_paused = False  # asyncio does not read
        self._is_open = False  # accepted, and TLS is established
        self._is_finished = False  # the writer sent its last byte
        now = self._loop.time()
        self._heard = now  # when the last byte arrived
        self._spoke = now  # when the last ack was sent
        self._began = now  # when the unfinished window began, or its last part was kept
        self._ended = now  # when `_is_ending` was set

    # methods that asyncio calls

    def connection_made(self, transport: Any) -> None:
        """Accept the connection, or refuse it if there are too many."""
        server = self._server
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("?", 0)
        self._name = f"{peer[0]}:{peer[1]}"
        if len(server.connections) >= self._bounds.connections or server.is_stopping:
            if not server.is_stopping:
                server.totals.refused += 1
                server.tell(
                    f"{self._name}: refused: {self._bounds.connections:,} connections are open"
                )
            transport.abort()
            return
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, ACK_BYTES
        )
        server.connections.add(self)
        server.totals.connections += 1
        if server.tls is None:
            self._is_open = True
            self.regulate()
        else:
            transport.pause_reading()
            self._handshake = self._loop.create_task(self._start_tls(server.tls))

    async def _start_tls(self, tls: ssl.SSLContext) -> None:
        try:
            transport = await self._loop.start_tls(
                self._transport,
                self,
                tls,
                server_side=True,
                ssl_handshake_timeout=self._bounds.handshake,
            )
        except OSError as error:
            self.refuse(f"TLS fails: {error}{TLS_HINT}")
            self.connection_lost(error)  # asyncio does not call it in this case
            return
        self._transport = transport
        self._is_open = True
        self._heard = self._loop.time()
        if self._is_ending:
            self.close()

    def data_received(self, data: bytes) -> None:
        """Store bytes of the writer, to be read in this connection's turns."""
        if self._is_ending:
            return
        self._heard = self._loop.time()
        has_turn = bool(self.rest)
        self.rest = memoryview(bytes(self.rest) + data if self.rest else data)
        if not has_turn:
            self._server.turns.add(self)
        self.regulate()

    def eof_received(self) -> bool:
        """Note that the writer sent its last byte. Return whether the transport stays open."""
        self._is_finished = True
        if not self.rest:
            self._finish()
        # The last windows must still be acked, and `end` closes the connection. But asyncio's TLS
        # always ends both directions together.
        return self._server.tls is None

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        self._server.connections.discard(self)
        self._is_ending = True
        self._hold(0)

    def pause_writing(self) -> None:
        """Stop reading, because the writer does not read its acks."""
        self._is_choked = True
        self.regulate()

    def resume_writing(self) -> None:
        """Read again."""
        self._is_choked = False
        self.regulate()

    # methods that the server calls

    def work(self) -> None:
        """Read a piece of the bytes that arrived. Its size is chosen to take some milliseconds."""
        if self._is_ending:
            self.rest = memoryview(b"")
            return
        start = perf_counter()
        piece = self.rest[: self._piece]
        self.rest = self.rest[len(piece) :]
        try:
            windows = self._receiver.receive(piece)
        except (ValueError, MemoryError) as error:  # mostly a FrameError
            self.refuse(str(error) or "there is not enough memory for its frames")
            return
        duration = perf_counter() - start
        if duration > TURN:
            self._piece = max(self._piece // 4, SMALLEST_PIECE)
        elif duration < TURN / 4 and len(piece) == self._piece:
            self._piece *= 2
        if windows or not self._receiver.held:
            self._began = self._loop.time()
        if windows:
            self._queue(windows)
        self._hold(self._receiver.held)
        if self._is_finished and not self.rest:
            self._finish()
        self.regulate()

    def acknowledge(self, windows: Sequence[Window]) -> int:
        """Ack windows that are kept. Return the number of their bytes."""
        acks = []
        size = 0
        for window in windows:
            size += self._sizes.popleft()
            acks.append(self._receiver.acknowledge(window))
        self._waiting -= size
        self._send(b"".join(acks))
        if self._is_ending and not self._sizes:
            self.close()
        self.regulate()
        return size

    def check_timeouts(self, now: float) -> None:
        """Close the connection if it is idle or too slow; send a keep-alive to a waiting writer."""
        if self._is_ending:
            if not self._sizes and now - self._ended > CLOSING:
                self.abort()
        elif self._is_open:  # TLS has its own timeout before that
            self._check_open(now)

    def _check_open(self, now: float) -> None:
        silent = now - self._heard
        if self._is_choked:
            if now - self._spoke > self._bounds.idle:
                self.refuse(f"it read no ack for {self._bounds.idle:g} s")
                self.abort()
        elif silent > self._bounds.idle and not self._sizes and not self.rest:
            if self.held:
                self.refuse(f"it sent nothing for {self._bounds.idle:g} s within a window")
            self.end()
        elif self.held and now - self._began > self._bounds.window_seconds and not self._sizes:
            self.keep_part(f"no event of it came in {self._bounds.window_seconds:g} s")
        elif now - self._spoke >= KEEP_ALIVE:
            self._send(self._receiver.keep_alive())

    def regulate(self) -> None:
        """Pause or resume reading."""
        pause = (
            self._waiting > self._bounds.waiting
            or self._is_choked
            or self._is_ending
            or self._server.is_full
            or len(self.rest) > 0
        )
        if pause != self._is_paused and self._is_open:
            self._is_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def keep_part(self, reason: str) -> None:
        """Keep the events so far of the unfinished window. Without events, refuse it."""
        part = self._receiver.flush()
        self._began = self._loop.time()
        if part is None:
            self.refuse(f"a window has {self.held:,} bytes so far, and {reason}")
            return
        self._queue([part])
        self._hold(self._receiver.held)

    def refuse(self, reason: str) -> None:
        """End the connection, and report the reason."""
        if not self._is_ending:
            self._server.totals.refused += 1
            self._server.tell(f"{self._name}: closed: {reason}")
        self.end()

    def end(self) -> None:
        """Stop reading. Close the connection when the waiting windows are acked."""
        if not self._is_ending:
            self._is_ending = True
            self._ended = self._loop.time()
            self._hold(0)
            self.regulate()
        if not self._sizes:
            self.close()

    def close(self) -> None:
        """Close the connection after the acks are sent."""
        if self._is_open:
            self._transport.close()
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def _finish(self) -> None:
        """End the connection after the last byte of the writer."""
        if self._is_ending:
            return
        server = self._server
        part = self._receiver.close()
        if part is not None:
            server.totals.incomplete += len(part.events)
            action = "kept" if server.incomplete else "discarded"
            server.tell(
                f"{self._name}: closed by the writer after {len(part.events):,} of the "
                f"{part.count:,} events of a window; they are {action}, and not acked"
            )
            if server.incomplete:
                self._queue([part])
        self.end()

    def _queue(self, windows: Sequence[Window]) -> None:
        """Give windows to the server, to be kept."""
        sizes = [WINDOW_COST + window.size for window in windows]
        self._sizes += sizes
        self._waiting += sum(sizes)
        self._server.add_windows(self, windows, sum(sizes))
        self.regulate()

    def _hold(self, size: int) -> None:
        """Set `held`, and report the change to the server."""
        change = size - self.held
        self.held = size
        self._server.hold(change)

    def _send(self, data: bytes) -> None:
        if data and not self._transport.is_closing():
            self._spoke = self._loop.time()
            self._transport.write(data)
