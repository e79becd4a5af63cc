"""Files and streams in chunks: tables of whole frames, in memory that does not grow with the input.

The exports, growing files, the command line and Spark's tasks read files with this module.
`chunks.py` gives the bytes, and `nested_groups.py` opens the frames inside outermost frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

from wirescan.core.parallel import choose_threads, choose_workers, map_ahead
from wirescan.frames.conversation import CaptureReader
from wirescan.frames.errors import FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import CAPTURE_FORMAT, format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunks import CHUNK_BYTES, LocalChunks, open_chunks
from wirescan.reading.filters import Condition
from wirescan.reading.nested_groups import add_source, open_nested
from wirescan.reading.prepared_read import prepare_read
from wirescan.reading.stream import Stream


def iter_tables(
    path: Any,
    start: int = 0,
    stop: int | None = None,
    *,
    format: str,
    piece: int = CHUNK_BYTES,
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
    prepared = prepare_read(path, start, stop, format)
    prepared = prepared.add_filters(filters, where, errors=errors, limits=limits)
    file_range = open_chunks(prepared.source, prepared.start, prepared.stop, piece, mapped=mapped)
    yield from scan_nested(
        file_range.chunks,
        prepared.format,
        offset=prepared.start,
        allow_cut=tail or file_range.reaches_end,
        filters=prepared.filters,
        errors=errors,
        check=check,
        limits=limits,
        source=file_range.path,
        workers=workers,
    )


def scan_nested(
    chunks: Iterable[Any],
    format: Format,
    *,
    errors: str,
    check: bool,
    limits: Limits,
    source: str | None,
    offset: int,
    allow_cut: bool,
    filters: Sequence[Condition] = (),
    workers: SupportsIndex | None = None,
) -> Iterator[FrameTable]:
    """Yield the frames of a format inside the chunks of one file.

    `limits.expansion` bounds the whole file. The other arguments and the errors are those of
    `scan_outermost` and `open_nested`.
    """
    allowance = Allowance(limits)
    tables = scan_outermost(
        count_chunks(chunks, allowance),
        format,
        errors=errors,
        check=check,
        limits=limits,
        source=source,
        offset=offset,
        allow_cut=allow_cut,
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


def count_chunks(chunks: Iterable[Any], allowance: Allowance) -> Iterable[Any]:
    """Return chunks for `scan_outermost`, whose bytes an allowance counts."""
    return chunks if isinstance(chunks, LocalChunks) else allowance.count_chunks(chunks)


def scan_outermost(
    chunks: Iterable[Any],
    format: Format,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    source: str | None = None,
    offset: int = 0,
    allow_cut: bool = True,
    allowance: Allowance | None = None,
    workers: SupportsIndex | None = None,
    block_errors: str | None = None,
    inspect_blocks: Callable[[FrameTable], None] | None = None,
) -> Iterator[FrameTable]:
    """Yield the outermost frames around a format, from the chunks of a stream.

    The last table states why the scan stopped, and it may be empty. Frames before a fault are
    yielded before its error is raised: a fault inside them comes first.

    chunks: the bytes.
    format, errors, check, limits, source, offset: as in `Stream`.
    allow_cut: a frame that the end of the stream cuts is no error, as `tail` in `Stream.close`.
    allowance: counts the frames, and the bytes of `LocalChunks`. Whoever reads other chunks counts
        their bytes (`Allowance.count_chunks`). None, the default: no bound.
    workers: as in `iter_tables`.
    block_errors: `errors` for the blocks of a capture. None, the default: the same as for frames.
    inspect_blocks: called with each table of blocks of a capture, before the frames in it. Bad
        blocks are in no frame.

    Raises FrameError as `errors` says, and ExpansionError for more frames than the allowance.
    """
    top = format.outermost
    reader = None
    mode = errors
    if top.make_reader is not None:
        reader = top.make_reader(errors=errors, check=check, limits=limits)
        top = format_of(CAPTURE_FORMAT)
        mode = block_errors or errors
    stream = Stream(top, errors=mode, check=check, limits=limits, source=source, offset=offset)
    parts = _scan_chunks(stream, chunks)
    if reader is not None:
        # Read the next chunk of a file while the caller uses these frames. Chunks of a stream may
        # come late, so each is used at once.
        is_ahead = isinstance(chunks, LocalChunks) and _choose_readers(chunks, workers) > 1
        map_parts = map_ahead if is_ahead else map
        parts = map_parts(partial(_read_part, reader), parts)
    for part in parts:
        with add_source(source):
            if allowance is not None:
                # Here and not where bytes are read ahead: the same for any number of threads.
                allowance.count_read(part.new_bytes)
                allowance.spend_frames(part.outermost)
            if reader is not None and inspect_blocks is not None:
                inspect_blocks(part.outermost)
            if part.error is not None:
                raise part.error
        if len(part.frames):
            yield part.frames
    yield from _end_stream(stream, reader, inspect_blocks, source, allow_cut=allow_cut)


def _end_stream(
    stream: Stream,
    reader: CaptureReader | None,
    inspect_blocks: Callable[[FrameTable], None] | None,
    source: str | None,
    *,
    allow_cut: bool,
) -> Iterator[FrameTable]:
    """Yield the frames that the end of a stream completes, and a table that says why it stopped.

    The arguments and the errors are those of `scan_outermost`.
    """
    table, error = stream.feed_to_fault(None, tail=allow_cut)
    if reader is not None:
        if inspect_blocks is not None:
            inspect_blocks(table)
        with add_source(source):
            last_frames = [reader.feed(table)] if len(table) else []
            if error is None:
                last_frames.append(reader.close())
        yield from last_frames
        table = table[:0]  # it says why the scan stopped
    yield table
    if error is not None:
        raise error


class _Part(NamedTuple):
    """What a chunk gives.

    Attributes:
        new_bytes: those of `LocalChunks`, which an allowance counts.
        outermost: the frames that the chunk completes.
        frames: the same, or those of a `CaptureReader`.
        error: the reader's error.
    """

    new_bytes: int
    outermost: FrameTable
    frames: FrameTable
    error: FrameError | None = None


def _choose_readers(chunks: LocalChunks, workers: SupportsIndex | None) -> int:
    """Return how many threads read a capture."""
    # Two chunks are read at the same time.
    return choose_threads(2 * chunks.size) if workers is None else choose_workers(workers)


def _scan_chunks(stream: Stream, chunks: Iterable[Any]) -> Iterator[_Part]:
    """Yield the part of each chunk of a stream. An error is raised after the frames before it."""
    for chunk in chunks:
        table, error = stream.feed_to_fault(chunk)
        new_bytes = 0
        if isinstance(chunks, LocalChunks):
            new_bytes = chunks.new_bytes
            if error is None:
                chunks.repeat_cut(stream)
        yield _Part(new_bytes, table, table)
        if error is not None:
            raise error


def _read_part(reader: CaptureReader, part: _Part) -> _Part:
    """Return a part with the frames that its blocks complete."""
    if not len(part.outermost):
        return part
    try:
        return part._replace(frames=reader.feed(part.outermost))
    except FrameError as error:
        return part._replace(error=error)
