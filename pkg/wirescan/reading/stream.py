"""`Stream`: frames from chunks of bytes. It does no I/O and holds only the frame that was cut.

The public `wirescan.stream` makes one. Files are read with it in `chunked.py` and `growing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

from wirescan.core.column_writer import ColumnWriter
from wirescan.files.capture_mark import explain_source
from wirescan.files.incremental import FrameScanner, Scanned
from wirescan.files.source import view_of
from wirescan.frames.conversation import CaptureReader
from wirescan.frames.errors import FrameError, check_mode, enforce_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import CAPTURE_FORMAT, format_of
from wirescan.frames.table import FrameTable, join, make_empty


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

    With a format of captures, such as "kafka.requests?capture=true", the chunks are those of a
    capture of packets, and the tables have the frames that these packets complete. `offset`,
    `held`, `intact` and `damaged` are about its blocks. The tables have no `stop` and no `tail`.
    The offset in a `FrameError` counts from the first byte that one side of a connection sent. The
    stream also holds connections and the bytes of their cut frames.

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
        self._reader: CaptureReader | None = None
        self._scanned = self._outermost  # the format of the bytes
        if self._outermost.make_reader is not None:
            self._reader = self._outermost.make_reader(errors=errors, check=check, limits=limits)
            self._scanned = format_of(CAPTURE_FORMAT)
        parser = self._scanned.parser
        assert parser.scan is not None  # every outermost format has it
        self._scanner = FrameScanner(
            parser.scan,
            parser.bytes_needed,
            check=check,
            resync=errors != "strict",
            limits=limits,
            offset=offset,
        )
        self._source = source
        self._closed = False
        self._failed: FrameError | None = None
        self._intact: list[FrameTable] = []  # before the fault that ended it
        self._damaged: list[FrameTable] = []  # up to and with the bad frame, if its end is known

    @property
    def offset(self) -> int:
        """The position in the stream of the first byte that is not in a table yet."""
        return self._scanner.offset

    @property
    def held(self) -> int:
        """The number of bytes that wait for the rest of their frame."""
        return self._scanner.held

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
        return self._read(self._scanner.feed(view_of(chunk)))

    def feed_to_fault(
        self, chunk: Any, *, tail: bool = True
    ) -> tuple[FrameTable, FrameError | None]:
        """Return the frames up to a fault, and its error; None if there is no fault.

        `feed` and `close` raise the error and return no frames. The format is an outermost one.

        Args:
            chunk: as in `feed`. None ends the stream.
            tail: as in `close`. Only used if `chunk` is None.

        Raises:
            ValueError: as `feed`.
        """
        try:
            return self.close(tail=tail) if chunk is None else self.feed(chunk), None
        except FrameError as error:
            return self.intact, error

    def feed_columns(self, chunk: Any, writer: ColumnWriter) -> FrameTable | None:
        """Read the frames that a chunk completes into a writer of columns.

        The result is the table that `feed` returns, without its rows. It is None if rows are
        needed, and if the stream has ended. Then nothing was read, the writer cannot be used again,
        and `feed` takes the chunk or raises. The format is an outermost one whose parser has
        `writes_columns`.

        Raises MemoryError.
        """
        if self._closed or self._failed:
            return None
        scanned = self._scanner.feed_columns(view_of(chunk), writer)
        if scanned is None:
            return None
        tables: list[FrameTable] = []
        self._append(tables, scanned)
        return tables[0]

    def give_back(self, most: int) -> int:
        """Forget the held bytes if they are at most `most`, and return their number; 0 if not.

        The next chunk must begin with these bytes, which are lost otherwise, and have more. Then
        their frame is not joined. It is for readers that can read bytes again.
        """
        return self._scanner.give_back(most)

    @property
    def intact(self) -> FrameTable:
        """Outermost frames before the fault in the bytes that ended a strict stream.

        In every other case the table is empty.
        """
        return self._join(self._intact)

    @property
    def damaged(self) -> FrameTable:
        """Outermost frames up to the bad frame that ended a strict stream, which is the last.

        In every other case, and if the end of the frame is not known, the table is empty.
        """
        return self._join(self._damaged)

    def close(self, *, tail: bool = True) -> FrameTable:
        """End the stream and return the frames in the held bytes.

        Args:
            tail: a cut frame is no error. It is the tail of the returned table, whose `stop`
                says SHORT. With False, held bytes are a fault, BAD_LENGTH. That is for a part of
                a file that is known to stop at the end of a frame.
        """
        self._closed = True
        return self._read(self._close(tail=tail), is_last=True)

    def _close(self, *, tail: bool) -> Iterator[Scanned]:
        yield self._scanner.close(tail=tail)

    def _read(self, scans: Iterator[Scanned], *, is_last: bool = False) -> FrameTable:
        """Return the frames that scans complete. Each runs when the iterator gives it.

        is_last: no bytes follow. A FrameError gets its source and ends the stream.
        """
        if self._failed is not None:
            raise copy(self._failed)
        tables: list[FrameTable] = []
        try:
            try:
                for scanned in scans:
                    self._append(tables, scanned)
            except FrameError:
                self._intact = tables
                # A fault inside a frame that precedes this one comes first.
                self._open_nested(tables)
                raise
            return self._open_nested(tables, is_last=is_last)
        except FrameError as error:
            error.source = error.source or self._source
            self._failed = copy(error)  # without the stack frames of its traceback
            raise

    def _append(self, tables: list[FrameTable], scanned: Scanned) -> None:
        """Append a table of rows. Before `strict` raises, append the rows before the fault."""
        view, rows, bad, stop, offset = scanned
        table = FrameTable(
            (view,), rows, (stop,), self._scanned, None, (offset,), self._check, self._errors
        )
        try:
            if bad or stop.fault:
                table = enforce_mode(table, self._errors, bad)
            tables.append(table)
        except FrameError as error:
            if bad:
                row = int(table.bad.argmax())
                self._damaged = [table[: row + 1]]
                table = table[:row]
            tables.append(table)
            raise explain_source(error, self._scanned, view, "stream") from None

    def _join(self, tables: list[FrameTable]) -> FrameTable:
        if len(tables) == 1:
            return tables[0]
        return join(tables) if tables else make_empty(self._scanned)

    def _open_nested(self, tables: list[FrameTable], *, is_last: bool = False) -> FrameTable:
        outer = self._join(tables)
        if self._reader is not None:
            outer = self._read_capture(self._reader, outer, is_last=is_last)
        if self._format is self._outermost:
            return outer
        return self._format.inside(
            outer, errors=self._errors, check=self._check, limits=self._limits
        )

    def _read_capture(
        self, reader: CaptureReader, blocks: FrameTable, *, is_last: bool
    ) -> FrameTable:
        """Return the frames that blocks of a capture complete. is_last: no blocks follow."""
        tables = [reader.feed(blocks)] if len(blocks) else []
        if is_last:
            tables.append(reader.close())
        if not tables:
            return make_empty(self._outermost)
        return tables[0] if len(tables) == 1 else join(tables)
