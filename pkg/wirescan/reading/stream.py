"""`Stream`: frames from chunks of bytes. It does no I/O and holds only the frame that was cut.

The public `wirescan.stream` makes one. Files are read with it in `chunked.py` and `growing.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import Resume
from wirescan.files.source import view_of
from wirescan.frames.errors import HARD, NEAR, FrameError, check_mode, enforce_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, Stop, join, make_empty, make_gap_rows

# While a stream searches for a frame, it holds at least this fraction of `limits.frame` more bytes
# before the next search. So the cost of the searches is linear.
SEARCH_STEPS = 8
FIRST_REACH = 256  # bytes of a chunk that are first joined to a cut frame; they double


class _Scan(NamedTuple):
    """The result of `Parser.scan`."""

    rows: np.ndarray
    bad: int
    fault: int
    offset: int


class Stream:
    """Frames of one format from the chunks of a stream: `feed` each chunk, then `close`.

    The table for a chunk holds the chunk and does not copy it. Only a frame that spans two chunks
    is joined in memory. `start` in a row counts from the first byte of its buffer. The offset in
    a `FrameError` counts from the first byte of the stream.

    At most `limits.frame` bytes of a frame are held. A frame that is not complete by then is a
    fault, BAD_LENGTH. More than `limits.rows` frames in one read raise a FrameError, LIMIT, in
    every mode.

    After damage, `mark` and `skip` search for an intact frame. The search holds about
    `limits.frame` bytes. If the damaged frame has a known end, another frame may seem to begin
    inside it or after it. Then the search holds up to two and a quarter times as many bytes.

    The rows are those of a scan of the whole stream, wherever it is cut. But a gap of more than
    `limits.frame` bytes may be several adjacent rows with the same fault.

    Zeros at the end of the stream are its tail. They are counted and not held. If other bytes
    follow the zeros, the zeros are part of a gap.

    A stream is for one thread at a time.

    Args:
        format: the format of the frames.
        errors: "strict", "mark" or "skip".
        check: verify checksums.
        limits: bounds on rows and bytes.
        source: the path of the file that the chunks come from. Errors name it.
        offset: the position in that file of the first chunk. Errors and tables count from it.
    """

    def __init__(
        self,
        format: Format,
        *,
        errors: str = "strict",
        check: bool = True,
        limits: Limits = Limits(),
        source: str | None = None,
        offset: int = 0,
    ):
        check_mode(errors, limits)
        if not isinstance(format, Format):
            raise TypeError(
                f"a Stream needs a Format, not {format!r}: wirescan.stream takes a name"
            )
        self._format = format
        self._errors = errors
        self._check = check
        self._limits = limits
        self._outermost = format.outermost
        self._held = bytearray()  # the bytes that are not in a table yet
        self._needed: tuple[int, ...] = ()  # the last result of `Parser.bytes_needed` for them
        self._source = source
        self._offset = offset  # of the first held byte
        self._lost = False  # the start of the next frame is unknown
        self._resume = Resume()
        self._searched = 0  # held bytes at the last search for that start
        self._zeros = 0  # bytes of a tail of zeros, which are not held
        self._closed = False
        self._failed: FrameError | None = None
        self._intact: list[FrameTable] = []  # of the chunk that failed

    @property
    def offset(self) -> int:
        """The position in the stream of the first byte that is not in a table yet."""
        return self._offset

    @property
    def held(self) -> int:
        """The number of bytes that wait for the rest of their frame."""
        return len(self._held)

    def feed(self, chunk: Any) -> FrameTable:
        """Return the frames that a chunk completes.

        A stream that raised FrameError has ended. It raises the same error again.

        Args:
            chunk: anything with the buffer protocol.

        Raises:
            FrameError: as `errors` says.
            ValueError: the stream is closed.
        """
        if self._closed:
            raise ValueError("the stream is closed")
        return self._run(partial(self._feed, view_of(chunk)))

    @property
    def intact(self) -> FrameTable:
        """Outermost frames before the fault in the chunk that ended a strict stream.

        In every other case the table is empty.
        """
        return join(self._intact) if self._intact else make_empty(self._outermost)

    def _feed(self, view: memoryview) -> FrameTable:
        tables: list[FrameTable] = []
        try:
            self._collect(view, tables)
        except FrameError:
            self._intact = tables
            # A fault inside a frame that precedes this one comes first.
            self._open_nested(tables)
            raise
        return self._open_nested(tables)

    def _collect(self, view: memoryview, tables: list[FrameTable]) -> None:
        """Append tables of the outermost frames that a chunk completes."""
        while len(view):
            if self._zeros:
                if not np.frombuffer(view, np.uint8).any():
                    self._zeros += len(view)
                    break
                tables.append(self._end_zeros(self._zeros))
            elif self._held:
                before = len(self._held)
                piece = view[: self._choose_reach(before)]
                self._held += piece
                if not self._is_ready():
                    view = view[len(piece) :]
                    continue
                used = self._read(view_of(bytes(self._held)), tables)
                if used <= before:
                    self._hold(self._held[used:])
                    view = view[len(piece) :]
                else:
                    # The rest came with this chunk, so it is read from the chunk without a copy.
                    self._hold(bytearray())
                    view = view[used - before :]
            else:
                used = self._read(view, tables)
                self._hold(bytearray(view[used:]))
                break

    def close(self, *, tail: bool = True) -> FrameTable:
        """End the stream and return the frames in the held bytes.

        Args:
            tail: a cut frame is no error. It is the tail of the returned table, whose `stop`
                says SHORT. With False, held bytes are a fault, BAD_LENGTH. That is for a part of
                a file that is known to stop at the end of a frame.
        """
        self._closed = True
        return self._run(partial(self._close, tail=tail))

    def _close(self, *, tail: bool) -> FrameTable:
        held = len(self._held) or self._zeros
        view = view_of(bytes(self._held)) if self._held else _make_zeros(self._zeros)
        self._held = bytearray()
        if held and self._errors == "strict" and not tail:
            raise FrameError(Fault.BAD_LENGTH, self._offset, 0, view)
        if self._zeros:
            rows, bad, fault, at = _Scan(np.empty(0, self._outermost.dtype), 0, Fault.ZEROS, 0)
        else:
            rows, bad, fault, at = self._scan(view, more=False)
        if not tail and at < held:
            rows = np.concatenate([rows, make_gap_rows(self._outermost.dtype, at, held - at)])
            bad += 1
            fault = Fault.OK
            at = held
        tables: list[FrameTable] = []
        try:
            self._append(tables, view, rows, Stop(fault, at), bad)
        except FrameError:
            # A fault inside a frame that precedes this one comes first.
            self._open_nested(tables)
            raise
        return self._open_nested(tables)

    def _scan(self, view: memoryview, *, more: bool) -> _Scan:
        scan = self._outermost.parser.scan
        assert scan is not None  # every outermost format has it
        result = _Scan(
            *scan(
                view,
                check=self._check,
                resync=self._errors != "strict",
                limits=self._limits,
                more=more,
                resume=self._resume,
            )
        )
        rows, bad, fault, at = result
        # A strict stream reports a bad row first.
        if fault == Fault.LIMIT and not (bad and self._errors == "strict"):
            raise FrameError(fault, self._offset + at, len(rows), view[at : at + NEAR])
        return result

    def _hold(self, held: bytearray) -> None:
        """Hold the bytes of a cut frame, or the bytes that are searched for a frame."""
        self._held = held
        self._needed = ()
        if held:
            self._is_ready()

    def _choose_reach(self, held: int) -> int:
        """Return how many bytes of a chunk to join to the held bytes.

        The frame needs at least these bytes. Some formats only learn byte by byte how many they
        need, and each turn costs more than a copy of a few bytes. So more bytes are joined, but
        never more than a frame may have.
        """
        if not self._needed:
            return max(FIRST_REACH, held)
        return max(self._needed[0] - held, min(FIRST_REACH, self._limits.frame - held), 1)

    def _is_ready(self) -> bool:
        """Return whether the held bytes are worth a scan.

        They are if they contain a whole frame or a fault, or enough bytes for a search.
        """
        if self._lost:
            longest = self._limits.frame
            least = max(longest, self._searched + longest // SEARCH_STEPS)
            return len(self._held) > min(least, 2 * self._searched)
        parser = self._outermost.parser
        if parser.bytes_needed is not None:
            self._needed = parser.bytes_needed(self._held, *self._needed[1:])
            return self._needed[0] <= len(self._held) or self._needed[0] > self._limits.frame
        assert parser.scan is not None  # every outermost format has it
        rows, _, fault, _ = parser.scan(
            self._held, check=False, resync=False, limits=self._limits, more=True
        )
        return len(rows) > 0 or fault not in (Fault.SHORT, Fault.FILLER)

    def _read(self, view: memoryview, tables: list[FrameTable]) -> int:
        """Append the frames in `view` and return how many of its bytes are done."""
        rows, bad, fault, used = self._scan(view, more=True)
        self._lost = fault >= HARD
        self._searched = len(view) - used
        if self._lost and self._errors != "strict":
            fault = Fault.SHORT
        self._append(tables, view, rows, Stop(fault, used), bad)
        self._offset += used
        if fault == Fault.ZEROS:
            self._zeros = len(view) - used
            used = len(view)
        return used

    def _end_zeros(self, zeros: int) -> FrameTable:
        """Return a gap for zeros that are no tail, because other bytes follow.

        The fault is where the zeros begin. At most `limits.frame` zeros are held, because the last
        zeros may begin the next frame. The zeros before them become a row, and the held bytes
        continue that gap.
        """
        if self._errors == "strict":
            raise FrameError(Fault.BAD_LENGTH, self._offset, 0, bytes(NEAR))
        held = min(zeros, self._limits.frame)
        self._zeros = 0
        self._needed = ()
        self._held = bytearray(held)
        self._lost = True
        self._searched = 0
        gap = zeros - held
        self._resume.skip_gap(gap)
        rows = make_gap_rows(self._outermost.dtype, 0, gap)
        table = self._make_table(_make_zeros(gap), rows, Stop(Fault.OK, gap))
        self._offset += gap
        return enforce_mode(table, self._errors, len(table))

    def _append(
        self, tables: list[FrameTable], view: memoryview, rows: np.ndarray, stop: Stop, bad: int
    ) -> None:
        """Append a table of rows. Before `strict` raises, append the rows before the fault."""
        table = self._make_table(view, rows, stop)
        try:
            tables.append(enforce_mode(table, self._errors, bad))
        except FrameError:
            tables.append(table[: int(table.bad.argmax())] if bad else table)
            raise

    def _make_table(self, view: memoryview, rows: np.ndarray, stop: Stop) -> FrameTable:
        return FrameTable(
            (view,), rows, (stop,), self._outermost, origins=(self._offset,), checked=self._check
        )

    def _run(self, call: Callable[[], FrameTable]) -> FrameTable:
        """Return the result of a call. A FrameError gets its source and ends the stream."""
        if self._failed is not None:
            raise copy(self._failed)
        try:
            return call()
        except FrameError as error:
            error.source = error.source or self._source
            self._failed = copy(error)  # without the stack frames of its traceback
            raise

    def _open_nested(self, tables: list[FrameTable]) -> FrameTable:
        outer = join(tables) if tables else make_empty(self._outermost)
        return self._format.inside(
            outer, errors=self._errors, check=self._check, limits=self._limits
        )


def _make_zeros(count: int) -> memoryview:
    """Return `count` zeros, which take no memory until they are read."""
    return memoryview(np.zeros(count, np.uint8).data).toreadonly()
