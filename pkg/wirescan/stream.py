"""Frames from chunks: sans-IO, it holds nothing but the frame that the last chunk cut."""
from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from wirescan.catalog import Format
from wirescan.core.fault import Fault
from wirescan.errors import HARD, NEAR, FrameError, apply, check_mode
from wirescan.limits import Limits
from wirescan.source import view_of
from wirescan.table import FrameTable, Stop, empty, join

LARGEST_ROW = (1 << 32) - 1
HELD_ZEROS = 64         # bytes; more than any frame begins with
FIRST_REACH = 256       # bytes of a chunk that are joined to a cut frame at first; as many again each turn


class Stream:
    """Stream(format, ...): `feed` it the chunks of a stream, get tables; `close` it at the end.

    The table that a chunk gives holds the chunk and does not copy it; only a frame that two chunks share is joined
    in memory. Offsets in a `FrameError` count from the stream's first byte, `start` in a row from that of its buffer.
    source and offset tell where the stream comes from, if that is a file: errors and tables name them.
    No more than limits.frame bytes are held: a frame that is not whole by then is a fault, BAD_LENGTH. More than
    limits.rows frames in what is read at once is a FrameError, LIMIT, in every mode. After a hard
    fault, `mark` and `skip` hold what comes until an intact frame is found; a gap that is longer is several rows.
    Zeros to the end of the stream are its tail, and are counted, not held. It is for one thread at a time.
    """
    def __init__(self, format: Format, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
                 source: str | None = None, offset: int = 0):
        check_mode(errors, limits)
        if not isinstance(format, Format):
            raise TypeError(f"a Stream is one of a Format, not of {format!r}: wirescan.stream takes a name")
        self._format, self._errors, self._check, self._limits = format, errors, check, limits
        self._outermost = format.outermost
        self._held = bytearray()        # what is not in a table yet
        self._needed: tuple[int, ...] = ()              # what the format says of the frame that it begins with
        self._source, self._offset = source, offset     # of the first held byte
        self._lost = False              # where the next frame begins is not known
        self._searched = 0              # held bytes at the last search for it
        self._zeros = 0                 # bytes of a tail of zeros, which are not held
        self._closed = False
        self._failed: FrameError | None = None

    @property
    def offset(self) -> int:
        """Where in the stream the first byte that is not in a table yet lies."""
        return self._offset

    @property
    def held(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._held)

    def feed(self, chunk: Any) -> FrameTable:
        """The frames that this chunk completes. Raises FrameError as `errors` says, ValueError after `close`.

        A stream that raised FrameError has ended there: it raises that again.
        """
        if self._closed:
            raise ValueError("the stream is closed")
        return self._named(self._feed, view_of(chunk))

    def _feed(self, view: memoryview) -> FrameTable:
        tables = []
        while len(view):
            if self._zeros:
                if not np.frombuffer(view, np.uint8).any():
                    self._zeros += len(view)
                    break
                tables.append(self._gap(self._zeros))
            elif self._held:
                before = len(self._held)
                piece = view[:self._reach(before)]
                self._held += piece
                if not self._ready():
                    view = view[len(piece):]
                    continue
                table, used = self._read(view_of(bytes(self._held)))
                tables.append(table)
                # What follows the frame that was cut came with this chunk: it is read where it lies.
                self._hold(self._held[used:] if used <= before else bytearray())
                view = view[len(piece) if used <= before else used - before:]
            else:
                table, used = self._read(view)
                tables.append(table)
                self._hold(bytearray(view[used:]))
                break
        return self._out(tables)

    def close(self, *, tail: bool = True) -> FrameTable:
        """The end of the stream: what is held is all that there is.

        A frame that was cut is no error, but the tail of the table returned, whose `stop` says SHORT. Without `tail`,
        as for a part of a file whose end is known to be that of a frame, what is left over is a fault, BAD_LENGTH.
        """
        self._closed = True
        return self._named(self._close, tail)

    def _close(self, tail: bool) -> FrameTable:
        held = len(self._held) or self._zeros
        view = view_of(bytes(self._held)) if self._held else _zeros(self._zeros)
        self._held = bytearray()
        if held and self._errors == "strict" and not tail:
            raise FrameError(Fault.BAD_LENGTH, self._offset, 0, view)
        if self._zeros:
            rows, bad, fault, at = self._no_rows(0), 0, Fault.ZEROS, 0
        else:
            rows, bad, fault, at = self._scan(view, more=False)
        if not tail and at < held:
            rows = np.concatenate([rows, self._no_rows(held - at, at)])
            bad, fault, at = bad + 1, Fault.OK, held
        return self._out([self._table(view, rows, Stop(fault, at), bad)])

    def _scan(self, view: Any, more: bool) -> tuple:
        found = self._outermost.scan(view, self._check, self._errors != "strict", self._limits, more=more)
        rows, bad, fault, at = found
        if fault == Fault.LIMIT and not (bad and self._errors == "strict"):     # which meets the bad row first
            raise FrameError(fault, self._offset + at, len(rows), view[at:at + NEAR])
        return found

    def _hold(self, held: bytearray) -> None:
        """Keep what begins a frame that is not whole, or what is searched for one."""
        self._held, self._needed = held, ()
        if held:
            self._ready()

    def _reach(self, held: int) -> int:
        """Bytes of a chunk to join to those held: what the frame needs. That may be known byte by byte only, and each
        turn costs more than a few bytes that are copied; but no more than a frame may have are held for them."""
        if not self._needed:
            return max(FIRST_REACH, held)
        return max(self._needed[0] - held, min(FIRST_REACH, self._limits.frame - held), 1)

    def _ready(self) -> bool:
        """Whether the held bytes are worth reading: a whole frame, a fault, or enough to search through."""
        if self._lost:
            return len(self._held) > min(self._limits.frame, 2 * self._searched)
        if self._outermost.needed is not None:
            self._needed = self._outermost.needed(self._held, *self._needed[1:])
            return self._needed[0] <= len(self._held) or self._needed[0] > self._limits.frame
        rows, _, fault, _ = self._outermost.scan(self._held, False, False, self._limits, more=True)
        return len(rows) > 0 or fault not in (Fault.SHORT, Fault.FILLER)

    def _read(self, view: memoryview) -> tuple[FrameTable, int]:
        """The frames in view, and how many bytes of it are done with."""
        full = len(view) > self._limits.frame and bool(self._held)
        rows, bad, fault, used = self._scan(view, more=not full)
        self._lost = fault >= HARD
        self._searched = len(view) - used
        if self._lost and self._errors != "strict":
            fault = Fault.SHORT
        table = self._table(view, rows, Stop(fault, used), bad)
        self._offset += used
        if fault == Fault.ZEROS:
            self._zeros, used = len(view) - used, len(view)
        return table, used

    def _gap(self, zeros: int) -> FrameTable:
        """Zeros that were no tail, since more follows: a fault where they begin.

        The last of them may be the first of the next frame, and are held."""
        back = min(zeros, HELD_ZEROS)
        self._zeros, self._needed, self._held = 0, (), bytearray(back)
        zeros -= back
        if self._errors == "strict":
            raise FrameError(Fault.BAD_LENGTH, self._offset, 0, bytes(NEAR))
        self._lost, self._searched = True, 0
        table = self._table(_zeros(zeros), self._no_rows(zeros), Stop(Fault.OK, zeros), 1)
        self._offset += zeros
        return table

    def _no_rows(self, gap: int, start: int = 0) -> np.ndarray:
        """The rows of bytes that hold no frame: one for a gap of that size, more for one of 4 GiB, none for 0."""
        rows = np.zeros(-(-gap // LARGEST_ROW), self._outermost.dtype)
        rows["start"] = start + LARGEST_ROW * np.arange(len(rows))
        rows["size"] = np.minimum(start + gap - rows["start"], LARGEST_ROW)
        rows["parent"], rows["fault"] = -1, Fault.BAD_LENGTH
        return rows

    def _table(self, view: memoryview, rows: np.ndarray, stop: Stop, bad: int) -> FrameTable:
        table = FrameTable((view,), rows, (stop,), self._outermost, origins=(self._offset,),
                           checked=self._check)
        return apply(table, self._errors, bad)

    def _named(self, call: Callable[..., FrameTable], *arguments: Any) -> FrameTable:
        """What the call returns; a FrameError is given its source, and is the end of the stream."""
        if self._failed is not None:
            raise copy(self._failed)
        try:
            return call(*arguments)
        except FrameError as error:
            error.source = error.source or self._source
            self._failed = copy(error)          # without the frames that its traceback holds
            raise

    def _out(self, tables: list[FrameTable]) -> FrameTable:
        options = {"errors": self._errors, "check": self._check, "limits": self._limits}
        outer = join(tables) if tables else empty(self._outermost)
        return self._format.inside(outer, **options)


def _zeros(count: int) -> memoryview:
    """So many zeros, which take no memory until they are read."""
    return memoryview(np.zeros(count, np.uint8)).toreadonly()
