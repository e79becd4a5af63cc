"""`FrameScanner`: the scan of bytes that come in pieces.

`Stream` makes tables of its rows. The walks over files and over segments use the rows themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.fault import Fault
from wirescan.core.loop import Resume
from wirescan.core.stop import Stop, make_stop
from wirescan.files.source import view_of
from wirescan.frames.errors import HARD, NEAR, FrameError
from wirescan.frames.limits import Limits
from wirescan.frames.table import make_gap_rows

# While a search for a frame goes on, at least this fraction of `limits.frame` more bytes are held
# before the next turn. So the cost of the search is linear.
SEARCH_STEPS = 8
FIRST_REACH = 256  # bytes of a piece that are first joined to a cut frame; they double


class Scanned(NamedTuple):
    """The frames that a piece completes.

    Attributes:
        view: the bytes that the rows point into.
        rows: one row for each frame.
        bad: the number of rows with a fault.
        stop: why the scan of the view ended, and where.
        offset: the position in the stream of the view's first byte.
    """

    view: memoryview
    rows: np.ndarray
    bad: int
    stop: Stop
    offset: int


make_scanned: Callable[[tuple[Any, ...]], Scanned] = partial(tuple.__new__, Scanned)


class FrameScanner:
    """Rows of outermost frames from the pieces of a stream: `feed` each piece, then `close`.

    If all bytes are in memory, `read` scans a window of them that begins at `offset`, and holds
    nothing.

    `feed` holds the bytes of a cut frame, at most `limits.frame`. During a search it holds up to
    two and a quarter times as many. It counts zeros at the end and does not hold them. The rows do
    not depend on the pieces, but a gap of more than `limits.frame` bytes may be several rows.

    Args:
        scan: `Parser.scan` of an outermost `Format`.
        bytes_needed: `Parser.bytes_needed`, or None.
        check: verify checksums.
        resync: after damage, search for an intact frame. Without a search the stop has the fault,
            and nothing may be fed after it.
        limits: bounds on rows and bytes.
        offset: the position in the stream of the first piece.
    """

    def __init__(
        self,
        scan: Callable[..., tuple[np.ndarray, int, int, int]],
        bytes_needed: Callable[..., tuple[int, ...]] | None = None,
        *,
        check: bool,
        resync: bool,
        limits: Limits,
        offset: int = 0,
    ):
        self.offset = operator.index(offset)  # of the first byte that is not in a row yet
        self._scan_bytes = scan
        self._bytes_needed = bytes_needed
        self._check = check
        self._resync = resync
        self._limits = limits
        self._held = bytearray()  # the bytes that are not in a row yet
        self._needed: tuple[int, ...] = ()  # their frame's minimum size, and the parser's state
        self._lost = False  # the start of the next frame is unknown
        self._resume = Resume()
        self._searched = 0  # held bytes at the last search for that start
        self._zeros = 0  # bytes of a tail of zeros, which are not held

    @property
    def held(self) -> int:
        """The number of bytes that wait for the rest of their frame."""
        return len(self._held)

    def feed(self, view: memoryview) -> Iterator[Scanned]:
        """Yield the frames that a piece completes.

        Raises FrameError with the fault LIMIT if there are more frames than `limits` allow.
        """
        while len(view):
            if self._zeros:
                if not np.frombuffer(view, np.uint8).any():
                    self._zeros += len(view)
                    break
                scanned = self._end_zeros()
                yield scanned
                self.offset += scanned.stop.offset
            elif self._held:
                before = len(self._held)
                piece = view[: self._choose_reach(before)]
                self._held += piece
                if not self._is_ready():
                    view = view[len(piece) :]
                    continue
                scanned = self._read(memoryview(self._held).toreadonly())
                yield scanned
                used = self._advance(scanned)
                if used <= before:
                    self._hold(self._held[used:])
                    view = view[len(piece) :]
                else:
                    # The rest came with this piece, so it is read from the piece without a copy.
                    self._hold(bytearray())
                    view = view[used - before :]
            else:
                scanned = self._read(view)
                yield scanned
                self._hold_rest(scanned)
                break

    def feed_columns(self, view: memoryview, writer: ColumnWriter) -> Scanned | None:
        """Return what `feed` yields for a piece, but a writer of columns has the rows.

        None if rows are needed: bytes or zeros of earlier pieces wait, a frame is bad, or a limit
        is reached. It is None for an empty piece too. Then nothing was read, and the writer cannot
        be used again. The parser has `writes_columns`.

        Raises MemoryError.
        """
        if self._held or self._zeros or not len(view):
            return None
        resume = self._resume.copy()
        rows, bad, fault, used = self._scan_bytes(
            view,
            check=self._check,
            resync=self._resync,
            limits=self._limits,
            more=True,
            resume=resume,
            into=writer,
        )
        if writer.failed or fault >= HARD:
            return None
        self._resume = resume
        self._lost = False
        scanned = self._report(view, rows, bad, make_stop((fault, used, 0)))
        self._hold_rest(scanned)
        return scanned

    def give_back(self, most: int) -> int:
        """Forget the held bytes if they are at most `most`, and return their number; 0 if not.

        The next piece must begin with these bytes, which are lost otherwise, and have more. Then
        their frame is not joined.
        """
        held = len(self._held)
        if held > most:
            return 0
        self._hold(bytearray())
        return held

    def read(self, view: memoryview, *, more: bool) -> Scanned:
        """Return the frames in bytes that begin at `offset`, and advance `offset` past them.

        The next call must begin at the new `offset`, with more bytes than remained.

        view: the bytes.
        more: whether bytes follow them.

        Raises FrameError with the fault LIMIT if there are more frames than `limits` allow.
        """
        rows, bad, fault, used = self._scan(view, more=more)
        scanned = self._report(view, rows, bad, make_stop((fault, used, 0)))
        self.offset += used
        return scanned

    def close(self, *, tail: bool = True) -> Scanned:
        """End the stream and return the frames in the held bytes.

        tail: a cut frame is no fault: the stop says SHORT. With False, held bytes that are no whole
            frames are a fault, BAD_LENGTH.

        Raises FrameError with the fault LIMIT if there are more frames than `limits` allow.
        """
        view = view_of(bytes(self._held)) if self._held else _make_zeros(self._zeros)
        held = len(view)
        self._held = bytearray()
        if self._zeros:
            rows, bad, fault, at = self._make_gap(0), 0, int(Fault.ZEROS), 0
        else:
            rows, bad, fault, at = self._scan(view, more=False)
        if not tail and at < held and not self._resync:
            stop = Stop(fault if fault >= HARD else Fault.BAD_LENGTH, at)
            return self._report(view, rows, bad, stop)
        if not tail and at < held:
            gap = make_gap_rows(rows.dtype, at, held - at)
            rows = np.concatenate([rows, gap])
            bad += 1
            fault = Fault.OK
            at = held
        return self._report(view, rows, bad, Stop(fault, at))

    def _read(self, view: memoryview) -> Scanned:
        """Return the frames in `view`, after which more bytes may come."""
        rows, bad, fault, used = self._scan(view, more=True)
        self._lost = fault >= HARD
        self._searched = len(view) - used
        if self._lost and self._resync:
            fault = Fault.SHORT
        return self._report(view, rows, bad, make_stop((fault, used, 0)))

    def _scan(self, view: memoryview, *, more: bool) -> tuple[np.ndarray, int, int, int]:
        rows, bad, fault, at = self._scan_bytes(
            view,
            check=self._check,
            resync=self._resync,
            limits=self._limits,
            more=more,
            resume=self._resume,
        )
        # Without a search, a bad row comes first.
        if fault == Fault.LIMIT and not (bad and not self._resync):
            raise FrameError(fault, self.offset + at, len(rows), view[at : at + NEAR])
        return rows, bad, fault, at

    def _report(self, view: memoryview, rows: np.ndarray, bad: int, stop: Stop) -> Scanned:
        return make_scanned((view, rows, bad, stop, self.offset))

    def _advance(self, scanned: Scanned) -> int:
        """Step over the frames of a view. Return how many of its bytes need not be held."""
        fault, used = scanned.stop.fault, scanned.stop.offset
        self.offset += used
        if fault == Fault.ZEROS:
            self._zeros = len(scanned.view) - used
            return len(scanned.view)
        return used

    def _hold_rest(self, scanned: Scanned) -> None:
        """Step over the frames of a piece, and hold the bytes after them."""
        used = self._advance(scanned)
        if used < len(scanned.view):
            self._hold(bytearray(scanned.view[used:]))

    def _hold(self, held: bytearray) -> None:
        """Hold the bytes of a cut frame, or the bytes that are searched for a frame."""
        self._held = held
        self._needed = ()
        if held:
            self._is_ready()

    def _choose_reach(self, held: int) -> int:
        """Return how many bytes of a piece to join to the held bytes.

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
        if self._bytes_needed is not None:
            self._needed = self._bytes_needed(self._held, *self._needed[1:])
            return self._needed[0] <= len(self._held) or self._needed[0] > self._limits.frame
        if self._needed and len(self._held) < self._needed[0]:
            return False
        resume = self._resume.peek()
        rows, _, fault, _ = self._scan_bytes(
            self._held, check=False, resync=False, limits=self._limits, more=True, resume=resume
        )
        self._needed = (resume.needed,) if resume.needed else ()
        return len(rows) > 0 or fault not in (Fault.SHORT, Fault.FILLER)

    def _end_zeros(self) -> Scanned:
        """Return a gap for zeros that are no tail, because other bytes follow.

        The fault is where the zeros begin. At most `limits.frame` zeros are held, because the last
        zeros may begin the next frame. The zeros before them become a row, and the held bytes
        continue that gap.
        """
        if not self._resync:
            zeros = _make_zeros(self._zeros)
            return self._report(zeros, self._make_gap(0), 0, Stop(Fault.BAD_LENGTH, 0))
        held = min(self._zeros, self._limits.frame)
        gap = self._zeros - held
        self._zeros = 0
        self._needed = ()
        self._held = bytearray(held)
        self._lost = True
        self._searched = 0
        self._resume.skip_gap(gap)
        rows = self._make_gap(gap)
        return self._report(_make_zeros(gap), rows, len(rows), Stop(Fault.OK, gap))

    def _make_gap(self, size: int) -> np.ndarray:
        """Return the rows of a gap of some bytes."""
        no_bytes = self._scan_bytes(b"", check=False, resync=False, limits=self._limits)
        return make_gap_rows(no_bytes[0].dtype, 0, size)


def _make_zeros(count: int) -> memoryview:
    """Return `count` zeros, which take no memory until they are read."""
    return memoryview(np.zeros(count, np.uint8).data).toreadonly()
