"""Files and streams in chunks: tables of whole frames, in memory that does not grow with the input.

The exports, growing files, the command line and Spark's tasks read files with this module.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.parallel import choose_threads, choose_workers, map_ahead
from wirescan.files.source import (
    get_seekable_size,
    is_local,
    map_local_file,
    open_ranges,
    view_of,
)
from wirescan.frames.conversation import CaptureReader
from wirescan.frames.errors import FrameError, enforce_mode
from wirescan.frames.escape import make_visible
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import CAPTURE_FORMAT, format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.captures import choose_source_format
from wirescan.reading.expression import add_expression
from wirescan.reading.filters import (
    Condition,
    apply_filters,
    check_filters,
    prune_file,
    prune_frames,
)
from wirescan.reading.stream import Stream

PIECE = 8 << 20  # bytes read at a time
REPEATED = 4  # a piece repeats at most one in so many bytes of the piece before it
ROWS_MORE = 4  # the factor by which the row limit grows if too many rows are bad
INFLATED = 128 << 20  # bytes that frames opened together may decompress to; one frame may exceed it
ROW_BYTES = 64 << 20  # bytes of rows of frames opened together; one frame may exceed it
GROUPS_OF_A_SIZE = 8  # after so many groups that fit, the next one has twice as many frames


def iter_tables(
    path: Any,
    start: int = 0,
    stop: int | None = None,
    *,
    format: str,
    piece: int = PIECE,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    tail: bool = False,
    filters: Iterable[tuple[Any, ...]] = (),
    where: str | None = None,
    mapped: bool = False,
    workers: SupportsIndex | None = None,
) -> Iterator[FrameTable]:
    """Yield the frames of a range of a file, in tables of about `piece` bytes of it.

    Some tables may be empty.

    Args:
        path: the path or URL of a file, or its bytes: any object with the buffer protocol.
        start: a boundary of frames (`splits.plan`).
        stop: a boundary of frames. None, the default: the end of the file.
        format: the name of the format. If the range is the whole file, and it is a capture of
            packets, "kafka.requests" means "kafka.requests?capture=true".
        piece: bytes read at a time.
        errors: "strict", "mark" or "skip".
        check: verify checksums.
        limits: bounds on rows and bytes. `limits.expansion` bounds the whole range.
        tail: a frame that `stop` cuts is a tail, because the file ended there when its size was
            read. Otherwise such a frame before the end of the file is damage.
        filters: the filters that rows have to pass, see `wirescan.reading.filters`. Frames
            without wanted rows are not opened. If the range is the whole file (start 0, no
            `stop`), parts of the file without wanted rows are not read, and damage there is not
            reported.
        where: a condition that rows have to pass too, as text: see
            `wirescan.reading.expression`.
        mapped: map a local file instead of copying its bytes. It is faster, but the file must not
            shrink while its tables exist: the system then ends the process (SIGBUS).
        workers: with 1, the calling thread reads captures of packets. Otherwise another thread
            reads the next piece of a capture while the last one is used, if there are several
            cores.

    Raises:
        FrameError: with the path and the position in the file. In every mode: an ExpansionError
            where `limits.expansion` is exceeded.
        EOFError: the file ends before `stop`.
        OSError: the file cannot be read.
        ValueError: the range ends before it starts, `piece` is below 1, or as
            `filters.check_filters`, `expression.parse_expression` and `parallel.choose_workers`.
        TypeError: as `filters.check_filters`.
    """
    if isinstance(path, os.PathLike):
        path = os.fsdecode(path)
    if (start, stop) == (0, None):
        format = choose_source_format(format, path)
    inner = format_of(format)
    checked_filters = add_expression(check_filters(filters, inner), where, inner)
    if checked_filters and (start, stop) == (0, None) and isinstance(path, str):
        start, stop = prune_file(path, inner, checked_filters, errors, limits)
    chunks = open_chunks(path, start, stop, piece, mapped=mapped)
    yield from scan_nested(
        chunks.pieces,
        inner,
        offset=start,
        tail=tail or chunks.reach_end,
        filters=checked_filters,
        errors=errors,
        check=check,
        limits=limits,
        source=chunks.path,
        workers=workers,
    )


class LocalPieces:
    """The bytes of a range of a local file, or of memory, some at a time.

    Args:
        open_range: returns a context with a function that reads the bytes between two positions.
        start: byte position.
        stop: byte position, exclusive.
        piece: bytes read at a time.

    Iterating raises what `open_range` and its function raise.

    Attributes:
        piece: bytes read at a time.
        new_bytes: the bytes of the last piece that the pieces before do not have.
    """

    def __init__(
        self,
        open_range: Callable[[], AbstractContextManager[Callable[[int, int], memoryview]]],
        start: int,
        stop: int,
        piece: int,
    ):
        self._open_range = open_range
        self._at = start
        self._stop = stop
        self.piece = piece
        self._repeated = 0
        self.new_bytes = 0

    def __iter__(self) -> Iterator[memoryview]:
        with self._open_range() as read:
            while self._at < self._stop:
                first = self._at
                self._at = min(first + self.piece, self._stop)
                self.new_bytes = self._at - first - self._repeated
                self._repeated = 0
                yield read(first, self._at)

    def repeat_cut(self, stream: Stream) -> None:
        """Let the next piece begin with the frame that the last one cuts, if these bytes are few.

        To read them again costs less than to join the frame.

        stream: has read the last piece.
        """
        if self._at < self._stop:
            self._repeated = stream.give_back(self.piece // REPEATED)
            self._at -= self._repeated


class Chunks(NamedTuple):
    """A range of a file, in pieces.

    Attributes:
        pieces: the bytes. `LocalPieces` if they can be read again at little cost.
        path: the path of the file; None for bytes in memory.
        reach_end: whether the range ends where the file does.
    """

    pieces: Iterable[memoryview]
    path: str | None
    reach_end: bool


def open_chunks(
    source: Any, start: int, stop: int | None, piece: int, *, mapped: bool = False
) -> Chunks:
    """Return the bytes of a range of a source, `piece` at a time.

    The pieces of bytes in memory and of mapped files are not copied. The arguments and errors are
    those of `iter_tables`.
    """
    # Small integers of numpy would overflow where a position is computed.
    start = operator.index(start)
    stop = None if stop is None else operator.index(stop)
    piece = operator.index(piece)
    path = source if isinstance(source, str) else None
    view = None
    if path is None:
        view = view_of(source)
    elif mapped:
        view = map_local_file(path)
    end = len(view) if view is not None else get_seekable_size(source)
    stop = end if stop is None else stop
    if piece < 1 or not 0 <= start <= stop:
        raise ValueError(f"no part of a file: bytes {start} to {stop}, {piece} at a time")
    if view is None:
        if is_local(source):
            pieces = LocalPieces(partial(_open_range, source, stop), start, stop, piece)
            return Chunks(pieces, source, stop >= end)
        return Chunks(read_chunks(source, start, stop, piece), source, stop >= end)
    if stop > end:
        where = f"{make_visible(path)} has" if path is not None else "there are"
        raise EOFError(f"{where} {end} bytes, and the range ends at {stop}")

    def read_view(first: int, last: int) -> memoryview:
        return view[first:last]

    pieces = LocalPieces(lambda: nullcontext(read_view), start, stop, piece)
    return Chunks(pieces, path, stop >= end)


@contextmanager
def _open_range(path: str, end: int) -> Iterator[Callable[[int, int], memoryview]]:
    """Open a file to read pieces of a range that ends at `end`, as `read_piece` does."""
    with open_ranges(path) as read:
        yield partial(read_piece, read, path, end=end)


def scan_nested(
    chunks: Iterable[Any],
    format: Format,
    *,
    errors: str,
    check: bool,
    limits: Limits,
    source: str | None,
    offset: int,
    tail: bool,
    filters: Sequence[Condition] = (),
    workers: SupportsIndex | None = None,
) -> Iterator[FrameTable]:
    """Yield the frames of a format inside the chunks of one file.

    `limits.expansion` bounds the whole file. The other arguments and the errors are those of
    `scan_outermost` and `open_nested`.
    """
    allowance = Allowance(limits)
    tables = scan_outermost(
        count_pieces(chunks, allowance),
        format,
        errors=errors,
        check=check,
        limits=limits,
        source=source,
        offset=offset,
        tail=tail,
        allowance=allowance,
        workers=workers,
    )
    for table in tables:
        yield from open_nested(
            table,
            format,
            errors=errors,
            check=check,
            limits=limits,
            source=source,
            filters=filters,
            allowance=allowance,
        )


def count_pieces(chunks: Iterable[Any], allowance: Allowance) -> Iterable[Any]:
    """Return chunks for `scan_outermost`, whose bytes an allowance counts."""
    return chunks if isinstance(chunks, LocalPieces) else allowance.count_chunks(chunks)


def read_chunks(path: str, start: int, stop: int, piece: int = PIECE) -> Iterator[memoryview]:
    """Yield the bytes of a range of a file, `piece` at a time.

    path: the file; errors name it.
    start, stop: byte positions; `stop` is exclusive.
    piece: bytes read at a time.

    Raises OSError, and EOFError if the file ends before `stop`.
    """
    with open_ranges(path) as read:
        yield from read_pieces(read, path, start, stop, piece)


def read_pieces(
    read: Callable[[int, int], memoryview], path: str, start: int, stop: int, piece: int
) -> Iterator[memoryview]:
    """Yield the bytes of a range of an open file, `piece` at a time.

    read: a function of two positions that returns the bytes between them. It returns fewer where
        the file ends.

    The other arguments and the errors are those of `read_chunks`.
    """
    for at in range(start, stop, piece):
        yield read_piece(read, path, at, min(at + piece, stop), end=stop)


def read_piece(
    read: Callable[[int, int], memoryview], path: str, start: int, stop: int, *, end: int
) -> memoryview:
    """Return the bytes from `start` to `stop` of a range that ends at `end`.

    The other arguments and the errors are those of `read_pieces`.
    """
    data = read(start, stop)
    if len(data) < stop - start:
        raise EOFError(
            f"{make_visible(path)} ends at {start + len(data)}, before {end}: "
            "it was cut while it was read"
        )
    return data


def scan_outermost(
    chunks: Iterable[Any],
    format: Format,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    source: str | None = None,
    offset: int = 0,
    tail: bool = True,
    allowance: Allowance | None = None,
    workers: SupportsIndex | None = None,
) -> Iterator[FrameTable]:
    """Yield the outermost frames around a format, from the chunks of a stream.

    The last table states why the scan stopped, and it may be empty. The arguments are those of
    `Stream` and of `Stream.close`, and `allowance`, which counts the frames, and the bytes of
    `LocalPieces`. Whoever reads other chunks counts their bytes (`Allowance.count_chunks`). None,
    the default: no bound. workers: as in `iter_tables`.

    Raises FrameError as `errors` says, and ExpansionError for more frames than the allowance.
    """
    top = format.outermost
    reader = None
    if top.make_reader is not None:
        reader = top.make_reader(errors=errors, check=check, limits=limits)
        top = format_of(CAPTURE_FORMAT)
    stream = Stream(top, errors=errors, check=check, limits=limits, source=source, offset=offset)
    parts = _scan_chunks(stream, chunks)
    if reader is not None:
        # Read the next piece of a file while the caller uses these frames. Chunks of a stream may
        # come late, so each is used at once.
        is_ahead = isinstance(chunks, LocalPieces) and _choose_readers(chunks, workers) > 1
        map_parts = map_ahead if is_ahead else map
        parts = map_parts(partial(_read_part, reader), parts)
    for part in parts:
        with add_source(source):
            if allowance is not None:
                # Here and not where bytes are read ahead: the same for any number of threads.
                allowance.count_read(part.new_bytes)
                allowance.spend_frames(part.outermost)
            if part.error is not None:
                raise part.error
        if len(part.frames):
            yield part.frames
    table = stream.close(tail=tail)
    if reader is not None:
        with add_source(source):
            last_frames = [reader.feed(table)] if len(table) else []
            last_frames.append(reader.close())
        yield from last_frames
        table = table[:0]  # it says why the scan stopped
    yield table


class _Part(NamedTuple):
    """What a chunk gives.

    Attributes:
        new_bytes: those of `LocalPieces`, which an allowance counts.
        outermost: the frames that the chunk completes.
        frames: the same, or those of a `CaptureReader`.
        error: the reader's error.
    """

    new_bytes: int
    outermost: FrameTable
    frames: FrameTable
    error: FrameError | None = None


def _choose_readers(pieces: LocalPieces, workers: SupportsIndex | None) -> int:
    """Return how many threads read a capture."""
    # Two pieces are read at the same time.
    return choose_threads(2 * pieces.piece) if workers is None else choose_workers(workers)


def _scan_chunks(stream: Stream, chunks: Iterable[Any]) -> Iterator[_Part]:
    """Yield the part of each chunk of a stream."""
    for chunk in chunks:
        table = stream.feed(chunk)
        new_bytes = 0
        if isinstance(chunks, LocalPieces):
            chunks.repeat_cut(stream)
            new_bytes = chunks.new_bytes
        yield _Part(new_bytes, table, table)


def _read_part(reader: CaptureReader, part: _Part) -> _Part:
    """Return a part with the frames that its blocks complete."""
    if not len(part.outermost):
        return part
    try:
        return part._replace(frames=reader.feed(part.outermost))
    except FrameError as error:
        return part._replace(error=error)


def open_nested(
    table: FrameTable,
    format: Format,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    source: str | None = None,
    filters: Sequence[Condition] = (),
    max_rows: int | None = None,
    allowance: Allowance | None = None,
) -> Iterator[FrameTable]:
    """Yield the frames of a format inside outermost frames, a group of outermost frames at a time.

    The size of a group bounds the decompressed bytes and the rows that are held.

    table: the outermost frames.
    format: the format of the frames inside.
    errors, check, limits: as in `iter_tables`.
    source: the path of the file of the table. Errors name it.
    filters: the result of `filters.check_filters`. Only rows that pass are returned.
    max_rows: the number of good rows that are wanted. The iteration ends after them or a few more,
        and opens few frames after them.
    allowance: counts what is opened, over all tables of a file. None, the default: no bound.

    Raises FrameError as `errors` says, and ExpansionError for more than the allowance.
    """
    if filters and len(table):
        table = prune_frames(table, format, filters, errors, source)
    together = limit_group(limits, table)
    first = 0
    size = _GroupSize(len(table), max_rows)
    while first < len(table) and (max_rows is None or max_rows > 0):
        part = table[first : first + size.frames]
        with add_source(source):
            inner = _open_group(
                part,
                format,
                max_rows,
                size,
                # Bad rows are skipped at the end, so that a frame above a limit is noticed here.
                errors="mark" if errors == "skip" else errors,
                check=check,
                limits=limits if len(part) == 1 else together,
            )
            if inner is None:
                continue
            if allowance is not None:
                allowance.spend_nested(inner, part)
        if max_rows is not None:
            max_rows -= len(inner) - int(np.count_nonzero(inner.bad))
        if errors == "skip":
            inner = replace(inner.where(~inner.bad), errors=errors)
        yield apply_filters(inner, filters, source)
        first += len(part)


def limit_group(limits: Limits, table: FrameTable) -> Limits:
    """Return the limits for outermost frames of a table that are opened together."""
    row_bytes = limits.limit_row_bytes(sum(map(len, table.buffers)))
    return replace(
        limits,
        inflated_total=min(INFLATED, limits.inflated_total),
        row_bytes=min(ROW_BYTES, row_bytes),
    )


def verify_frames(
    table: FrameTable, format: Format, *, limits: Limits = Limits(), source: str | None = None
) -> FrameTable:
    """Verify the checksums of outermost frames that were scanned without, and return their table.

    table: the frames. Its format has a `verify`.
    format: the format of the frames inside. Damage inside an intact frame before the first bad one
        is reported first.
    limits: bounds on rows and bytes.
    source: the path of the file. Errors name it.

    Raises FrameError for the first fault.
    """
    assert table.format.parser.verify is not None
    faults = table.format.parser.verify(table.rows, table.buffers)
    bad = np.flatnonzero(faults)
    verified = replace(table, checked=True)
    if len(bad):
        with add_source(source):
            format.inside(verified[: bad[0]], errors="strict", limits=limits)
            rows = table.rows.copy()
            rows["fault"] = faults
            enforce_mode(replace(verified, rows=rows), "strict", len(bad))
    return verified


class _GroupSize:
    """The number of outermost frames that are opened together.

    count: the number of all outermost frames.
    max_rows: the number of good rows that are wanted; None for all.

    Attributes:
        frames: the number for the next group.
    """

    def __init__(self, count: int, max_rows: int | None):
        wanted = count if max_rows is None else min(max_rows, count)
        self.frames = max(wanted, 1)
        self._doubles = max_rows is not None  # after each group
        self._fitted = 0  # groups of the present size

    def shrink(self, fitting: int) -> None:
        """Continue with smaller groups: only the first `fitting` frames of the last one fit."""
        self.frames = max(fitting, 1)
        self._doubles = False
        self._fitted = 0

    def grow(self, *, was_too_large: bool) -> None:
        """Count a group that was opened, and perhaps continue with larger ones.

        was_too_large: the group was one frame, which exceeded a limit by itself.
        """
        # Only that frame was too large, and it is done: try larger groups again.
        self._doubles |= was_too_large
        self._fitted += 1
        if self._doubles or self._fitted == GROUPS_OF_A_SIZE:
            self.frames *= 2
            self._fitted = 0


def _open_group(
    part: FrameTable,
    format: Format,
    max_rows: int | None,
    size: _GroupSize,
    *,
    limits: Limits,
    **options: Any,
) -> FrameTable | None:
    """Return the frames inside a group of outermost frames, and adjust the size of the next group.

    The result is None if the outermost frames exceed a limit together. The arguments are those of
    `_open_inside`.

    Raises FrameError as `errors` says, but not where several frames exceed a limit together.
    """
    alone = len(part) == 1
    try:
        inner = _open_inside(part, format, max_rows, limits=limits, **options)
    except FrameError as error:
        too_large = error.fault == Fault.TOO_LARGE or _lacks_memory(error, limits)
        if alone or not too_large:
            raise
        fitting = len(part) // 2
        if error.partial is not None and len(error.partial):
            fitting = _find_outermost_row(error.partial, len(error.partial) - 1, part)
        size.shrink(fitting)
        return None
    refused = inner["fault"] == Fault.TOO_LARGE
    too_large = bool(refused.any())
    if too_large and not alone:
        # The frames exceed a limit together, but those before the limit do not.
        size.shrink(_find_outermost_row(inner, int(refused.argmax()), part))
        return None
    size.grow(was_too_large=too_large)
    return inner


@contextmanager
def add_source(source: str | None) -> Iterator[None]:
    """Add the path of the file to a FrameError that has none."""
    try:
        yield
    except FrameError as error:
        error.source = error.source or source
        raise


def _lacks_memory(error: FrameError, limits: Limits) -> bool:
    """Return whether the rows ended at `limits.row_bytes`, and not at `limits.rows`."""
    return (
        error.fault == Fault.LIMIT
        and error.partial is not None
        and len(error.partial) < limits.rows
    )


def _find_outermost_row(table: FrameTable, row: int, outermost: FrameTable) -> int:
    """Return the row of the table `outermost` that contains a row of a table inside it."""
    while table is not outermost and table.outer is not None:
        row = int(table["parent"][row])
        table = table.outer
    return row


def _open_inside(
    part: FrameTable, format: Format, max_rows: int | None, *, limits: Limits, **options: Any
) -> FrameTable:
    """Return the frames inside some outermost frames.

    If `max_rows` is given, the table may end after that many good rows.
    """
    if max_rows is None or format.within is None or format is format.outermost:
        return format.inside(part, limits=limits, **options)
    outer = format_of(format.within).inside(part, limits=limits, **options)
    rows = max_rows
    while rows < limits.rows:
        try:
            return format.inside(outer, limits=replace(limits, rows=rows), **options)
        except FrameError as error:
            table = error.partial
            if error.fault != Fault.LIMIT or table is None or len(table) < rows:
                raise
        if np.count_nonzero(~table.bad) >= max_rows:
            return table
        rows *= ROWS_MORE
    return format.inside(outer, limits=limits, **options)
