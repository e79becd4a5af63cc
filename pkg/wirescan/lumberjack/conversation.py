"""Both sides of a conversation in Lumberjack, without the socket: `Receiver` here, `Sender` in sender.py.

What a Receiver makes of frames on which real readers disagree is in the table of strict.py; the rules in prose are
those of docs/lumberjack.md, "Events and windows" and "Acknowledgements".
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.errors import FrameError, error_of
from wirescan.limits import Limits
from wirescan.lumberjack import EVENT, EVENTS, FRAMES, Kind, events, plain
from wirescan.lumberjack.encode import encode_ack
from wirescan.lumberjack.refusal import ConversationError, Reason, hint
from wirescan.lumberjack.sender import Sender
from wirescan.lumberjack.strict import offence, tolerable
from wirescan.stream import Stream
from wirescan.table import FrameTable, empty

__all__ = ["ConversationError", "Reason", "Receiver", "Sender", "Window", "hint"]

MOST_INSIDE = 1024          # windows in the compressed frames of one call, and one more for so many bytes of these
BYTES_OF_INSIDE = 4         # on the wire: a window costs much more time than it takes bytes
MOST_PIECES = 1024          # of a window that came in so many chunks; then it is given out in parts
NO_EVENTS = empty(EVENTS)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Events that a writer wants acknowledged together, or a part of them.

    events: a table of lumberjack.events; `window` is 0 and `parent` -1 in all its rows. count: what the W announced; -1
    where no W did. version: 1 or 2, of the W. last: the sequence number to acknowledge: the highest one so far, where
    one that rolled over is higher; 0 for no events. raw: what came on the wire for it, whole frames, uncopied, from its
    W to its last event; a compressed frame belongs to the first window that has anything in it.
    complete: nothing more of it will come; False for a part. size: bytes of memory that it takes, about.
    """
    events: FrameTable
    count: int
    version: int
    last: int
    raw: tuple[memoryview, ...]
    complete: bool
    size: int


@dataclass(slots=True, eq=False)
class _Open:
    """A window that began. have: events so far. last: the highest sequence number of the parts that were given out."""
    count: int
    version: int
    have: int = 0
    last: int | None = None
    pieces: list[FrameTable] = field(default_factory=list)
    container: int = -1         # where the compressed frame of its events begins; -1 for plain ones


class Receiver:
    """The reading side of one connection: bytes in, windows out, acks to send back.

    strict: refuse what only some readers take, and name the `Reason`; otherwise take it (see strict.py).
    depth: how many compressed frames may lie in one another. limits: `frame` bounds what is held of a frame that is
    cut, `inflated` what one frame inflates to; all frames of one call may inflate to `window_bytes` together.
    largest_window: events that a window may announce, if strict. window_bytes: of memory that an unfinished window may
    take; of a larger one parts are given out, so that any window is received in bounded memory.

        for window in receiver.receive(data):       # bytes, as large as they come: they are not copied, but kept
            keep(window.raw)
            send(receiver.acknowledge(window))

    Bytes that cannot be taken end the conversation: ConversationError, in `receive`, from then on. Windows that the
    same bytes completed before are not given out: the writer sends again what was not acknowledged. For one thread at
    a time.
    """

    def __init__(self, *, strict: bool = False, depth: int = 1, limits: Limits = Limits(),
                 largest_window: int = 10_000, window_bytes: int = 64 << 20):
        self._stream = Stream(FRAMES, limits=limits)
        self._strict, self._depth, self._largest_window = strict, depth, largest_window
        self._limits = replace(limits, inflated_total=min(limits.inflated_total, window_bytes))
        self._window_bytes = window_bytes
        self._version = 0                           # of the first frame
        self._open: _Open | None = None
        self._raw: list[memoryview] = []            # what came for it
        self._bytes = 0                             # of memory that this and its events take
        self._given: deque[Window] = deque()
        self._partly = 0                            # events of the first of them that are acknowledged
        self._said: int | None = None               # the last partial ack of it
        self._had_window = self._closed = False
        self._failed: ConversationError | None = None

    @property
    def unacknowledged(self) -> int:
        """Windows, and parts of such, that were given out and not acknowledged."""
        return len(self._given)

    @property
    def held(self) -> int:
        """Bytes that wait for the rest of their frame, or of their window."""
        return self._stream.held + self._bytes

    def receive(self, data: Any) -> list[Window]:
        """The windows that these bytes complete, in order. data: bytes-like, and not written to any more.

        Raises ConversationError, and ValueError after `close`."""
        if self._failed is not None:
            raise copy(self._failed)
        if self._closed:
            raise ValueError("the conversation is closed")
        try:
            frames = self._stream.feed(data)
            windows = list(self._windows(frames)) if len(frames) else []
        except FrameError as error:
            self._failed = copy(error) if isinstance(error, ConversationError) else ConversationError(copy(error))
            self._forget()
            raise copy(self._failed) from None      # without what a traceback holds
        self._given += windows
        return windows

    def flush(self) -> Window | None:
        """What came of the unfinished window, for who does not want to wait for the rest: a part of it, or None."""
        if self._open is None or not self._open.pieces:
            return None
        self._given.append(self._finish(complete=False))
        return self._given[-1]

    def close(self) -> Window | None:
        """The connection ended: what came of the unfinished window, or None. It is never acknowledged."""
        window, self._closed = self.flush(), True
        self._forget()
        return window

    def acknowledge(self, window: Window, events: int | None = None) -> bytes:
        """The ack to send for a window, now that it is kept. Windows are acknowledged in order, each once.

        events: for a partial ack, that many of its events are kept; at the end the window is acknowledged itself. Parts
        of a window may be acknowledged, or left to its last one. Version 1 has no partial acks: for a part the result
        is empty, as it is where the connection ended inside the window, or where the same was said of it before.
        Raises ValueError for a window out of order, for `events` that do not rise or are more than there are, and in
        version 1 if they are fewer.
        """
        while self._given and self._given[0] is not window and not self._given[0].complete:
            self._given.popleft()
            self._partly = 0
        if not self._given or self._given[0] is not window:
            raise ValueError("windows are acknowledged in the order in which they came, each once")
        if events is not None and events != len(window.events):
            if window.version == 1:
                raise ValueError("there are no partial acks in version 1")
            if not self._partly < events <= len(window.events):
                raise ValueError(f"{events} events, of {len(window.events)}; acknowledged before: {self._partly}")
            self._partly = events
            return self._ack(_highest(window.events["sequence"][:events]), 2, False)
        self._given.popleft()
        self._partly = 0
        if not window.complete and (window.version == 1 or self._closed):
            return b""
        return self._ack(window.last, window.version, window.complete)

    def keep_alive(self) -> bytes:
        """What tells the writer to be patient, where it waits for an ack: an ack of 0, in version 2. Writers of version
        1 may take any ack for theirs: empty, as it is when nothing is to be acknowledged."""
        versions = {window.version for window in self._given}
        if self._open is not None:
            versions.add(self._open.version)
        return encode_ack(0, version=2) if versions == {2} else b""

    def _ack(self, sequence: int, version: int, ends: bool) -> bytes:
        """An ack. Said twice of one window, it might be taken for one of the next."""
        repeated, self._said = sequence == self._said, None if ends else sequence
        return b"" if repeated else encode_ack(sequence, version=version)

    def _windows(self, frames: FrameTable) -> Iterator[Window]:
        """The windows that end in these frames, and parts; what is left belongs to the open one."""
        flat, found = self._opened(frames)
        begins = np.flatnonzero((flat["kind"] == Kind.WINDOW) & ~flat.bad)
        ends = [*np.searchsorted(found["window"], np.arange(len(begins))).tolist(), len(found)]
        tops = (begins if flat is frames else flat["parent"][begins]).tolist()
        announced = zip(flat["count"][begins].tolist(), flat["version"][begins].tolist())
        parents, own = found["parent"], replace(found, outer=None)
        done = at = 0                   # rows of `frames`, and of `found`, that are dealt with
        for number, end in enumerate(ends):
            while at < end:
                if self._open is None:
                    self._refuse(Reason.SURPLUS_EVENT if self._had_window else Reason.NO_WINDOW, found, at)
                    self._open, done = _Open(-1, int(found["version"][at])), max(done, int(parents[at]))
                window = self._open
                stop = end if window.count < 0 else min(end, at + window.count - window.have)
                self._add(own[at:stop], found, at)
                at = stop
                if window.have == window.count:
                    done = self._wire(frames, done, int(parents[at - 1]) + 1)
                    yield self._finish()
            if number < len(tops):
                top = tops[number]
                if self._open is not None:
                    self._refuse(Reason.SHORT_WINDOW, flat, int(begins[number]))
                    done = self._wire(frames, done, max(top, int(parents[at - 1]) + 1 if at else 0))
                    if self._open.have:
                        yield self._finish()
                self._raw, self._bytes, self._had_window, done = [], 0, True, max(done, top)
                self._open = _Open(*next(announced))
                if self._open.count == 0:
                    done = self._wire(frames, done, top + 1)
                    yield self._finish()
        if self._open is not None:
            self._wire(frames, done, len(frames))
            if self._open.count < 0:
                yield self._finish()
            elif self._bytes > self._window_bytes or len(self._open.pieces) >= MOST_PIECES:
                if self._open.pieces:
                    yield self._finish(complete=False)
                self._raw, self._bytes = [], 0

    def _opened(self, frames: FrameTable) -> tuple[FrameTable, FrameTable]:
        """The frames with what is in the compressed ones in their place, and the events among them. Raises
        ConversationError for those that this receiver does not take."""
        flat = frames
        if (frames["kind"] == Kind.COMPRESSED).any():
            flat = plain(frames, errors="mark", limits=self._limits, depth=self._depth)
            inside = np.flatnonzero((flat["kind"] == Kind.WINDOW) & (flat["depth"] > 0))
            most = MOST_INSIDE + int(frames["size"].sum(dtype=np.int64)) // BYTES_OF_INSIDE
            if len(inside) > most:
                raise error_of(flat, int(inside[most]), Fault.LIMIT)
        found, bad = events(flat, errors="mark", limits=self._limits, depth=self._depth), flat.bad
        if bad.any():
            refused = bad & ~tolerable(flat)
            if refused.any():
                raise error_of(flat, int(refused.argmax()))
            found = found.where(~found.bad)
        if self._strict:
            self._version = self._version or int(frames["version"][0])
            offended = offence(frames, flat, found, self._version, self._largest_window)
            if offended is not None:
                self._refuse(*offended)
        return flat, found

    def _refuse(self, reason: Reason, table: FrameTable, row: int) -> None:
        """Raises ConversationError, if strict."""
        if self._strict:
            raise ConversationError(error_of(table, row), reason)

    def _add(self, events: FrameTable, found: FrameTable, at: int) -> None:
        """Some more events of the open window; they begin at row `at` of `found`."""
        window, inside = self._open, events["depth"] > 0
        if self._strict:
            container = int(found[at:at + 1].positions[0]) if inside[0] else -1
            same = inside == inside[0] if container < 0 else inside & (events["parent"] == events["parent"][0])
            if window.have and window.container != container or not same.all():
                self._refuse(Reason.SPLIT_WINDOW, found, at + int(same.argmin()))
            window.container = container
        window.pieces.append(events)
        window.have += len(events)
        self._bytes += events.rows.nbytes + int(events["size"][inside].sum(dtype=np.int64))

    def _wire(self, frames: FrameTable, done: int, end: int) -> int:
        """The rows done .. end of `frames` are what came for the open window; returns the row behind them."""
        numbers = frames["buffer"]
        while done < end:
            number, stop = numbers[done], end
            if numbers[end - 1] != number:      # a frame that chunks share lies in a buffer of its own
                stop = done + int(np.searchsorted(numbers[done:end], number, "right"))
            first, last = frames.rows[done], frames.rows[stop - 1]
            view = frames.buffers[number][int(first["start"]):int(last["start"]) + int(last["size"])]
            self._raw.append(view)
            self._bytes += len(view)
            done = stop
        return done

    def _finish(self, complete: bool = True) -> Window:
        """What came for the open window, as a whole or as a part of it."""
        window, table = self._open, NO_EVENTS
        if window.pieces:
            table = _joined(window.pieces)
            window.last = _highest(table["sequence"], window.last)
        done = Window(table, window.count, window.version, window.last or 0, tuple(self._raw), complete, self._bytes)
        window.pieces, self._raw, self._bytes = [], [], 0
        if complete:
            self._open = None
        return done

    def _forget(self) -> None:
        """Lets go of what will not be completed."""
        self._stream, self._open, self._raw, self._bytes = Stream(FRAMES), None, [], 0


def _joined(pieces: list[FrameTable]) -> FrameTable:
    """The events of one window, from tables of several chunks."""
    rows, buffers, at = np.empty(sum(map(len, pieces)), EVENT), list[memoryview](), 0
    for piece in pieces:
        part = rows[at:at + len(piece)]
        part[...] = piece.rows
        if buffers:
            part["buffer"] += len(buffers)
        buffers += piece.buffers
        at += len(piece)
    rows["window"], rows["parent"] = 0, -1
    rows.flags.writeable = False
    return FrameTable(tuple(buffers), rows, (), EVENTS, checked=True)


def _highest(sequence: np.ndarray, before: int | None = None) -> int:
    """The highest of some sequence numbers, and of one `before` them; those that rolled over are higher (RFC 1982)."""
    first = np.uint32(sequence[0] if before is None else before)
    ahead = int((sequence - first).view(np.int32).max())
    return (int(first) + max(ahead, 0)) & 0xFFFFFFFF
