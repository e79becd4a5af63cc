"""The reading side of a Lumberjack conversation, without the socket.

The server uses it. strictness.py finds the frames on which real readers disagree.
docs/lumberjack.md has the rules, in "Events and windows" and "Acknowledgements".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError, make_frame_error
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, make_empty
from wirescan.lumberjack.constants import Kind
from wirescan.lumberjack.encode import encode_ack
from wirescan.lumberjack.formats import EVENTS, FRAMES, events, plain
from wirescan.lumberjack.live.conversation_errors import ConversationError, Reason
from wirescan.lumberjack.live.strictness import (
    find_offence,
    find_wire_row,
    mark_tolerable_ends,
)
from wirescan.lumberjack.scan import EVENT
from wirescan.reading.stream import Stream

# The compressed frames of one call may contain MAX_INSIDE windows, and one more for each
# BYTES_OF_INSIDE of their bytes on the wire. A window costs much more time than its bytes suggest,
# so its number is limited.
MAX_INSIDE = 1024
BYTES_OF_INSIDE = 4
MAX_PIECES = 1024  # chunks of a window; a window of more chunks is returned in parts
SEQUENCE_MASK = 0xFFFFFFFF  # sequence numbers have 32 bits
NO_EVENTS = make_empty(EVENTS)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Events that a writer wants acknowledged together, or a part of them.

    events: table of lumberjack.events; all its rows have `window` 0 and `parent` -1.
    count: number of events that the window frame (W) announced; -1 if there was no W.
    version: 1 or 2, of the W.
    last: the sequence number to acknowledge; 0 if there are no events. It is the highest number so
        far, and a number that rolled over is higher than those before it.
    raw: the bytes on the wire, from the W to the last event: whole frames, not copied. A compressed
        frame belongs to the first window that has a frame in it.
    complete: no more events of this window will come; False for a part.
    size: bytes of memory that the window takes, approximately.
    """

    events: FrameTable
    count: int
    version: int
    last: int
    raw: tuple[memoryview, ...]
    complete: bool
    size: int


@dataclass(slots=True, eq=False)
class _OpenWindow:
    """A window that is not complete.

    count, version: as in `Window`. received: number of events so far. last: the highest sequence
    number of the parts that were returned. pieces: the events of each chunk since the last part.
    """

    count: int
    version: int
    received: int = 0
    last: int | None = None
    pieces: list[FrameTable] = field(default_factory=list)
    container: int = -1  # position of the compressed frame with its events; -1 for plain events


@dataclass(frozen=True, slots=True, eq=False)
class _Refusal:
    """A frame that is refused: its row among the frames on the wire, and what to raise."""

    wire_row: int
    error: FrameError


class Receiver:
    """The reading side of one connection: decode windows from bytes, and encode their acks.

    strict: refuse frames that only some readers accept, with a `Reason`. Otherwise accept them; see
        strictness.py. A document must be a JSON object, but its strings may have bytes that are not
        UTF-8. These bytes stay unchanged.
    depth: how many compressed frames may be nested.
    limits: `frame` limits the bytes of an incomplete frame. `inflated` limits the decompressed
        bytes of one frame.
    largest_window: number of events that a window may announce, if `strict`.
    window_bytes: bytes of memory for an unfinished window, and of the decompressed frames of one
        call together. A larger window is returned in parts, so
        memory is bounded for any window.

        for window in receiver.receive(data):       # data is kept, not copied
            keep(window.raw)
            send(receiver.acknowledge(window))

    Bytes that are refused end the conversation: `receive` raises ConversationError then, and in all
    later calls. Windows that the same bytes completed are not returned. The writer will send them
    again, because they were not acknowledged. Not thread-safe.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        depth: int = 1,
        limits: Limits = Limits(),
        largest_window: int = 10_000,
        window_bytes: int = 64 << 20,
    ):
        self._stream = Stream(FRAMES, limits=limits)
        self._strict = strict
        self._depth = depth
        self._largest_window = largest_window
        self._limits = replace(limits, inflated_total=min(limits.inflated_total, window_bytes))
        self._window_bytes = window_bytes
        self._version = 0  # version of the first frame
        self._open: _OpenWindow | None = None
        self._raw: list[memoryview] = []  # bytes of the open window on the wire
        self._bytes = 0  # bytes of memory of `_raw` and of the open window's events
        self._pending: deque[Window] = deque()  # windows that were returned and not acknowledged
        self._partly_acknowledged = 0  # events of the first of them
        self._partial_ack: int | None = None  # the last partial ack of the current window
        self._had_window = False
        self._closed = False
        self._failure: ConversationError | None = None

    @property
    def unacknowledged(self) -> int:
        """Number of windows and parts that were returned and not acknowledged."""
        return len(self._pending)

    @property
    def held(self) -> int:
        """Number of bytes that wait for the rest of their frame or window."""
        return self._stream.held + self._bytes

    def receive(self, data: Any) -> list[Window]:
        """Return the windows that these bytes complete, in order.

        data: bytes-like object, which must not be changed later.

        Raises ConversationError, and ValueError after `close`.
        """
        if self._failure is not None:
            raise copy(self._failure)
        if self._closed:
            raise ValueError("the conversation is closed")
        try:
            windows = self._receive(data)
        except FrameError as error:
            if isinstance(error, ConversationError):
                self._failure = copy(error)
            else:
                self._failure = ConversationError(copy(error))
            self._forget()
            # A copy has no traceback, which would keep the buffers alive.
            raise copy(self._failure) from None
        self._pending += windows
        return windows

    def _receive(self, data: Any) -> list[Window]:
        """Return the windows that these bytes complete.

        Raises the FrameError of the first fault on the wire.
        """
        try:
            frames = self._stream.feed(data)
        except FrameError:
            if len(before := self._stream.intact):
                list(self._split_windows(before))  # raises for a fault inside these frames
            raise
        return list(self._split_windows(frames)) if len(frames) else []

    def flush(self) -> Window | None:
        """Return the events so far of the unfinished window as a part of it, or None."""
        if self._open is None or not self._open.pieces:
            return None
        self._pending.append(self._finish(self._open, complete=False))
        return self._pending[-1]

    def close(self) -> Window | None:
        """End the conversation, because the connection ended.

        Returns the events so far of the unfinished window, or None. They are never acknowledged.
        """
        window = self.flush()
        self._closed = True
        self._forget()
        return window

    def acknowledge(self, window: Window, events: int | None = None) -> bytes:
        """Return the ack for a window that is kept.

        Windows are acknowledged in order, each once. Parts of a window may be acknowledged, or only
        the last part.

        events: for a partial ack, the number of the window's events that are kept. The window
            itself must be acknowledged after them.

        The result is empty for a part in version 1, which has no partial acks. It is also empty if
        the connection ended inside the window, and if the last ack of the window had the same
        number.

        Raises ValueError for a window out of order, and for `events` that are not more than the
        last partial ack acknowledged, or more than the window has. In version 1, raises ValueError
        for `events` that are fewer than the window has.
        """
        while self._pending and self._pending[0] is not window and not self._pending[0].complete:
            self._pending.popleft()
            self._partly_acknowledged = 0
        if not self._pending or self._pending[0] is not window:
            raise ValueError("windows are acknowledged in the order in which they came, each once")
        if events is not None and events != len(window.events):
            return self._acknowledge_partly(window, events)
        self._pending.popleft()
        self._partly_acknowledged = 0
        if not window.complete and (window.version == 1 or self._closed):
            return b""
        return self._ack(window.last, window.version, is_last=window.complete)

    def _acknowledge_partly(self, window: Window, events: int) -> bytes:
        if window.version == 1:
            raise ValueError("there are no partial acks in version 1")
        if not self._partly_acknowledged < events <= len(window.events):
            raise ValueError(
                f"{events} events, of {len(window.events)}; "
                f"acknowledged before: {self._partly_acknowledged}"
            )
        self._partly_acknowledged = events
        return self._ack(_find_highest(window.events["sequence"][:events]), 2, is_last=False)

    def keep_alive(self) -> bytes:
        """Return a keep-alive for a writer that waits for an ack: in version 2, an ack of 0.

        The result is empty in version 1, because a writer may take any ack for that of its window.
        It is also empty if there is nothing to acknowledge.
        """
        versions = {window.version for window in self._pending}
        if self._open is not None:
            versions.add(self._open.version)
        return encode_ack(0, version=2) if versions == {2} else b""

    def _ack(self, sequence: int, version: int, *, is_last: bool) -> bytes:
        """Return an ack, or no bytes if it repeats the last one of the same window.

        A writer could take a repeated ack for one of the next window.
        """
        is_repeated = sequence == self._partial_ack
        self._partial_ack = None if is_last else sequence
        return b"" if is_repeated else encode_ack(sequence, version=version)

    def _split_windows(self, frames: FrameTable) -> Iterator[Window]:
        """Yield the windows that end in these frames, and parts.

        The remaining frames are added to the open window.
        """
        flat, chunk = self._open_frames(frames)
        begins = np.flatnonzero((flat["kind"] == Kind.WINDOW) & ~flat.bad)
        # The events before each W, and after the last one, end at these rows of `chunk`.
        ends = [*np.searchsorted(chunk["window"], np.arange(len(begins))).tolist(), len(chunk)]
        wire_rows = (begins if flat is frames else flat["parent"][begins]).tolist()
        announced = zip(flat["count"][begins].tolist(), flat["version"][begins].tolist())
        parents = chunk["parent"]
        events = replace(chunk, outer=None)
        frame_stop = 0  # rows of `frames` that belong to a window
        at = 0  # rows of `chunk` that belong to a window
        for number, end in enumerate(ends):
            while at < end:
                if self._open is None:
                    reason = Reason.SURPLUS_EVENT if self._had_window else Reason.NO_WINDOW
                    self._refuse_if_strict(reason, chunk, at)
                    self._open = _OpenWindow(-1, int(chunk["version"][at]))
                    frame_stop = max(frame_stop, int(parents[at]))
                window = self._open
                stop = end if window.count < 0 else min(end, at + window.count - window.received)
                self._add_events(window, events[at:stop], chunk, at)
                at = stop
                if window.received == window.count:
                    frame_stop = self._add_raw(frames, frame_stop, int(parents[at - 1]) + 1)
                    yield self._finish(window)
            if number < len(wire_rows):
                wire_row = wire_rows[number]
                if self._open is not None:
                    self._refuse_if_strict(Reason.SHORT_WINDOW, flat, int(begins[number]))
                    after_events = int(parents[at - 1]) + 1 if at else 0
                    frame_stop = self._add_raw(frames, frame_stop, max(wire_row, after_events))
                    if self._open.received:
                        yield self._finish(self._open)
                self._raw = []
                self._bytes = 0
                self._had_window = True
                frame_stop = max(frame_stop, wire_row)
                self._open = _OpenWindow(*next(announced))
                if self._open.count == 0:
                    frame_stop = self._add_raw(frames, frame_stop, wire_row + 1)
                    yield self._finish(self._open)
        if self._open is not None:
            yield from self._end_chunk(self._open, frames, frame_stop)

    def _end_chunk(self, window: _OpenWindow, frames: FrameTable, first: int) -> Iterator[Window]:
        """Add the remaining frames to the open window, from row `first`.

        Yields the window if it has no W, and a part of it if it is too large to wait for its end.
        """
        self._add_raw(frames, first, len(frames))
        if window.count < 0:
            yield self._finish(window)
        elif self._bytes > self._window_bytes or len(window.pieces) >= MAX_PIECES:
            if window.pieces:
                yield self._finish(window, complete=False)
            self._raw = []
            self._bytes = 0

    def _open_frames(self, frames: FrameTable) -> tuple[FrameTable, FrameTable]:
        """Return the result of `plain` for the frames, and the events in it.

        Raises FrameError for the first fault: that of a refused frame or, if strict, that of a
        window before it. Also raises it where limits are exceeded.
        """
        flat = frames
        if (frames["kind"] == Kind.COMPRESSED).any():
            flat = plain(frames, errors="mark", limits=self._limits, depth=self._depth)
            inside = np.flatnonzero((flat["kind"] == Kind.WINDOW) & (flat["depth"] > 0))
            allowed = MAX_INSIDE + int(frames["size"].sum(dtype=np.int64)) // BYTES_OF_INSIDE
            # A strict receiver refuses the first of them, wherever the bytes of a call end.
            if len(inside) > allowed and not self._strict:
                raise make_frame_error(flat, int(inside[allowed]), Fault.LIMIT)
        chunk = events(flat, errors="mark", limits=self._limits, depth=self._depth)
        if flat.bad.any():
            chunk = chunk.where(~chunk.bad)
        refusal = self._find_refusal(frames, flat, chunk)
        if refusal is not None:
            if self._strict and refusal.wire_row:
                list(self._split_windows(frames[: refusal.wire_row]))  # raises for a fault in them
            raise refusal.error
        return flat, chunk

    def _find_refusal(
        self, frames: FrameTable, flat: FrameTable, chunk: FrameTable
    ) -> _Refusal | None:
        """Return the first frame on the wire that is refused, whatever the frames before it are.

        A frame that is bad and has an offence is reported as bad.
        """
        refusals = []
        refused = flat.bad & ~mark_tolerable_ends(flat)
        if refused.any():
            row = int(refused.argmax())
            refusals.append(_Refusal(find_wire_row(flat, row), make_frame_error(flat, row)))
        if self._strict:
            self._version = self._version or int(frames["version"][0])
            offence = find_offence(frames, flat, chunk, self._version, self._largest_window)
            if offence is not None:
                reason, table, row = offence
                error = ConversationError(make_frame_error(table, row), reason)
                refusals.append(_Refusal(find_wire_row(table, row), error))
        return min(refusals, key=lambda refusal: refusal.wire_row, default=None)

    def _refuse_if_strict(self, reason: Reason, table: FrameTable, row: int) -> None:
        """Raise ConversationError if the receiver is strict."""
        if self._strict:
            raise ConversationError(make_frame_error(table, row), reason)

    def _add_events(
        self, window: _OpenWindow, events: FrameTable, chunk: FrameTable, at: int
    ) -> None:
        """Add events to the open window. They begin at row `at` of `chunk`."""
        inside = events["depth"] > 0
        if self._strict:
            container = int(chunk[at : at + 1].positions[0]) if inside[0] else -1
            if container < 0:
                is_together = inside == inside[0]
            else:
                is_together = inside & (events["parent"] == events["parent"][0])
            if window.received and window.container != container or not is_together.all():
                self._refuse_if_strict(Reason.SPLIT_WINDOW, chunk, at + int(is_together.argmin()))
            window.container = container
        window.pieces.append(events)
        window.received += len(events)
        self._bytes += events.rows.nbytes + int(events["size"][inside].sum(dtype=np.int64))

    def _add_raw(self, frames: FrameTable, start: int, stop: int) -> int:
        """Add the bytes of the rows from `start` to `stop` of `frames` to the open window.

        Returns the number of rows of `frames` that belong to a window now.
        """
        numbers = frames["buffer"]
        while start < stop:
            number = numbers[start]
            end = stop
            if numbers[stop - 1] != number:  # a frame that spans two chunks has its own buffer
                end = start + int(np.searchsorted(numbers[start:stop], number, "right"))
            first = frames.rows[start]
            last = frames.rows[end - 1]
            end_byte = int(last["start"]) + int(last["size"])
            view = frames.buffers[number][int(first["start"]) : end_byte]
            self._raw.append(view)
            self._bytes += len(view)
            start = end
        return start

    def _finish(self, window: _OpenWindow, *, complete: bool = True) -> Window:
        """Return the open window, or the events so far as a part of it."""
        table = NO_EVENTS
        if window.pieces:
            table = _join_pieces(window.pieces)
            window.last = _find_highest(table["sequence"], window.last)
        result = Window(
            events=table,
            count=window.count,
            version=window.version,
            last=window.last or 0,
            raw=tuple(self._raw),
            complete=complete,
            size=self._bytes,
        )
        window.pieces = []
        self._raw = []
        self._bytes = 0
        if complete:
            self._open = None
        return result

    def _forget(self) -> None:
        """Release the bytes of frames and windows that will not be completed."""
        self._stream = Stream(FRAMES)
        self._open = None
        self._raw = []
        self._bytes = 0


def _join_pieces(pieces: list[FrameTable]) -> FrameTable:
    """Return the events of one window, from the tables of its chunks."""
    rows = np.empty(sum(map(len, pieces)), EVENT)
    buffers: list[memoryview] = []
    at = 0
    for piece in pieces:
        segment = rows[at : at + len(piece)]
        segment[...] = piece.rows
        if buffers:
            segment["buffer"] += len(buffers)
        buffers += piece.buffers
        at += len(piece)
    rows["window"] = 0
    rows["parent"] = -1
    rows.flags.writeable = False
    return FrameTable(tuple(buffers), rows, (), EVENTS, checked=True)


def _find_highest(sequence: np.ndarray, before: int | None = None) -> int:
    """Return the highest of some sequence numbers and of the number `before` them.

    A number that rolled over is higher than those before it (RFC 1982).
    """
    first = np.uint32(sequence[0] if before is None else before)
    ahead = int((sequence - first).view(np.int32).max())
    return (int(first) + max(ahead, 0)) & SEQUENCE_MASK
