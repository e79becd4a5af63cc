"""Files and streams in pieces: tables of whole frames, in memory that does not grow with what is read."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from wirescan.catalog import Format, format_of
from wirescan.core.fault import Fault
from wirescan.errors import FrameError
from wirescan.filters import Filter, checked, kept, narrowed, worth_opening
from wirescan.limits import Limits
from wirescan.source import ranges, seekable_size
from wirescan.stream import Stream
from wirescan.table import FrameTable

PIECE = 8 << 20                 # bytes read at a time
INFLATED = 128 << 20            # bytes that the frames opened together may inflate to, unless it is one frame


def iter_tables(path: str, start: int = 0, stop: int | None = None, *, format: str, piece: int = PIECE,
                errors: str = "strict", check: bool = True, limits: Limits = Limits(),
                tail: bool = False, filters: Iterable[tuple[Any, ...]] = ()) -> Iterator[FrameTable]:
    """The frames of a file between two offsets, in tables of about `piece` bytes of it; some may have no row.

    start and stop lie on frame boundaries (`partition.plan`): a frame that `stop` cuts, before the end of the file, is
    damage, unless `tail` says that it was the end when that was looked up. The file is read, not mapped: it may
    shrink meanwhile.
    filters: those that the rows have to pass, see `wirescan.filters`. Frames in which no row can are not opened, and
    without `start` and `stop` parts of a file in which none can are not read: damage there is not met.
    Raises FrameError with the file and the offset in it, EOFError where the file ends before `stop`, OSError,
    ValueError for a part of less than no bytes, ValueError and TypeError as `filters.checked`.
    """
    one = format_of(format)
    wanted = checked(filters, one)
    end = seekable_size(path)
    if wanted and (start, stop) == (0, None):
        start, stop = narrowed(path, one, wanted, errors)
    stop = end if stop is None else stop
    if piece < 1 or not 0 <= start <= stop:
        raise ValueError(f"no part of a file: bytes {start} to {stop}, {piece} at a time")
    options = {"errors": errors, "check": check, "limits": limits}
    parts = chunks(path, start, stop, piece)
    for table in outermost(parts, one, source=path, offset=start, tail=tail or stop >= end, **options):
        yield from opened(table, one, source=path, filters=wanted, **options)


def chunks(path: str, start: int, stop: int, piece: int = PIECE) -> Iterator[memoryview]:
    """The bytes of a file between two offsets, `piece` at a time. Raises EOFError where the file ends before `stop`."""
    with ranges(path) as read:
        yield from in_pieces(read, path, start, stop, piece)


def in_pieces(read: Callable[[int, int], memoryview], path: str, start: int, stop: int,
              piece: int) -> Iterator[memoryview]:
    """The same of an open file; read: what gives the bytes between two offsets, fewer where it ends."""
    for at in range(start, stop, piece):
        data = read(at, min(at + piece, stop))
        if len(data) < min(at + piece, stop) - at:
            raise EOFError(f"{path} ends at {at + len(data)}, before {stop}: it was cut while it was read")
        yield data


def outermost(chunks: Iterable[Any], format: Format, *, errors: str = "strict", check: bool = True,
              limits: Limits = Limits(), source: str | None = None, offset: int = 0,
              tail: bool = True) -> Iterator[FrameTable]:
    """The outermost frames around a format, in the chunks of a stream; the last table says why it stopped, and may be
    empty. The arguments are those of `Stream` and of its `close`."""
    stream = Stream(format.outermost, errors=errors, check=check, limits=limits, source=source, offset=offset)
    for chunk in chunks:
        table = stream.feed(chunk)
        if len(table):
            yield table
    yield stream.close(tail=tail)


def opened(table: FrameTable, format: Format, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
           source: str | None = None, filters: Sequence[Filter] = ()) -> Iterator[FrameTable]:
    """The frames of a format inside outermost ones, so many of these at a time that what is held inflated is bounded.

    filters: what `filters.checked` gives; only the rows that pass them. `source` is the file of the table.
    Raises FrameError as `errors` says; `source` is the file that it names.
    """
    if filters:
        table = worth_opening(table, format, filters, errors, source)
    together = replace(limits, inflated_total=min(INFLATED, limits.inflated_total))
    first, count, growing = 0, max(len(table), 1), False
    while first < len(table):
        part = table[first:first + count]
        alone = len(part) == 1
        try:
            # What is skipped is skipped at the end, so that it is seen here.
            inner = format.inside(part, errors="mark" if errors == "skip" else errors, check=check,
                                  limits=limits if alone else together)
            too_large = bool((inner["fault"] == Fault.TOO_LARGE).any())
        except FrameError as error:
            too_large = error.fault == Fault.TOO_LARGE
            if alone or not too_large:
                error.source = error.source or source
                raise
        if too_large and not alone:
            count, growing = len(part) // 2, False      # too large together, perhaps not apart
            continue
        inner = replace(inner.where(~inner.bad), errors=errors) if errors == "skip" else inner
        yield kept(inner, filters, source)
        first += len(part)
        growing |= too_large                    # it was this one, and not all of them together
        count *= 1 + growing
