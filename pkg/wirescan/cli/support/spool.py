"""The directory that `wirescan receive` writes, without losing anything that was acked.

    _<time>-<number>.lumberjack         frames as received; synced to disk before they are acked
    <time>-<number>.lumberjack          ... when it is full or old enough; it does not change again
    _<time>-<number>.parquet            its events, while they are written
    <time>-<number>.parquet             ... replaces it, when it is synced to disk

The time is that of the file's first frame, in UTC, so names sort by time. Every command of wirescan
ignores names that begin with an underscore. A process that dies leaves such files; the next run
completes them. A file whose frames cannot all be read again is not replaced by Parquet.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.cli.exit_codes import Failure
from wirescan.cli.output import FILE_MODE, format_path, print_message
from wirescan.cli.support.durable_directory import DurableDirectory, publish
from wirescan.core.fault import Fault
from wirescan.files.new_directory import sync_directory
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.value_text import format_bytes, format_count
from wirescan.reading.chunked import iter_tables, scan_outermost
from wirescan.reading.chunks import read_chunks
from wirescan.reading.splits import Slice

if TYPE_CHECKING:
    from wirescan.lumberjack.live.receiver import Window

NAME = re.compile(r"_?([0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[0-9]{6,})\.(lumberjack|parquet)")
MAX_VIEWS = 1024  # buffers in one call of writev (IOV_MAX)
SHORTEST_WAIT = 0.01  # seconds
# The frames of a spool were accepted, with whatever limits that run had.
WIDEST = Limits(frame=(1 << 32) - 1, inflated=(1 << 31) - 1, expansion=None)
MAX_UNPUBLISHED = 4  # files that wait to become Parquet; with more, writers have to wait


class Spool:
    """A directory of files of frames, or of Parquet files made from them.

    Use it as a context manager: the directory is created, and locked until the context ends. Files
    of an earlier run are completed first.

    Args:
        directory: where the files go.
        kind: "frames" or "parquet".
        size: a file with at least so many bytes is completed.
        seconds: a file of at least this age is completed.
        columns: of Parquet; None is all columns.
        compression: of Parquet.

    Attributes:
        events, bytes, files: written by this run.
        faults: bad frames found while Parquet was written.

    Raises:
        Failure: if another process writes to the directory, or this one may not.
        OSError: if the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        kind: str,
        size: int,
        seconds: float,
        columns: Sequence[str] | None = None,
        compression: str = "zstd",
    ):
        self._directory = directory
        self._lock_on_disk = DurableDirectory(directory, "receiver")
        self._kind = kind
        self._limit = size
        self._seconds = seconds
        self._columns = columns
        self._compression = compression
        self.events = 0
        self.bytes = 0
        self.files = 0
        self.faults = 0
        self._lock = threading.RLock()
        self._news = threading.Event()
        self._full = threading.Condition(self._lock)
        self._path: Path | None = None  # the file in progress
        self._unpublished: list[tuple[Path, int]] = []  # complete files, and their events
        self._number = 0
        self._is_closed = False
        self._error: Exception | None = None
        self._publisher = threading.Thread(target=self._publish_all, name="publisher", daemon=True)

    def __enter__(self) -> Spool:
        with ExitStack() as stack:
            stack.enter_context(self._lock_on_disk)
            matches = map(NAME.fullmatch, os.listdir(self._directory))
            self._last = max((match[1] for match in matches if match), default="")
            self._recover()
            stack.pop_all()
        self._publisher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._lock:
                self._complete_file()
                self._is_closed = True
            self._news.set()
            self._publisher.join()
        finally:
            self._lock_on_disk.__exit__()
        if kind is None:
            self._raise_error()

    def store(self, windows: Sequence[Window]) -> None:
        """Write windows to disk, and return when they are synced.

        Raises OSError, and any error of the thread that publishes files.
        """
        with self._lock:
            while len(self._unpublished) > MAX_UNPUBLISHED and self._error is None:
                self._full.wait()
            self._raise_error()
            views = [view for window in windows for view in window.raw]
            if not any(map(len, views)):
                return
            if self._path is None:
                self._open_file()
            try:
                size = self._write(views)
                os.fdatasync(self._file)
                if not os.fstat(self._file).st_nlink:  # nobody could find the frames
                    raise OSError(errno.ENOENT, "it was removed while it was written to")
            except OSError as error:
                error.filename = str(self._path)
                with suppress(OSError):
                    os.ftruncate(self._file, self._size)  # discard a frame that is not complete
                raise
            self._size += size
            self.bytes += size
            count = sum(len(window.events) for window in windows)
            self.events += count
            self._count += count
            if self._size >= self._limit:
                self._complete_file()

    def _write(self, views: Sequence[memoryview]) -> int:
        """Write buffers to the file in progress, and return their bytes."""
        total = 0
        for first in range(0, len(views), MAX_VIEWS):
            remaining = [view for view in views[first : first + MAX_VIEWS] if len(view)]
            while remaining:
                written = os.writev(self._file, remaining)
                total += written
                while remaining and written >= len(remaining[0]):
                    written -= len(remaining.pop(0))
                if written:
                    remaining[0] = remaining[0][written:]
        return total

    def _open_file(self) -> None:
        """Create the next file of frames."""
        now = datetime.fromtimestamp(time.time(), timezone.utc)
        self._number += 1
        name = f"{now:%Y%m%dT%H%M%S.%fZ}-{self._number:06}"
        if name <= self._last:  # the clock was set back; names must sort nevertheless
            stem, number = self._last.rsplit("-", 1)
            name = f"{stem}-{int(number) + 1:06}"
        self._last = name
        path = self._directory / f"_{name}.lumberjack"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, FILE_MODE)
        self._path = path
        self._size = 0
        self._count = 0
        self._opened = time.monotonic()
        sync_directory(self._directory)
        self._news.set()

    def _complete_file(self) -> None:
        """Close the file in progress, if any, and leave it to the publisher."""
        if self._path is not None:
            os.close(self._file)
            self._unpublished.append((self._path, self._count))
            self._path = None
            self._news.set()

    def _publish_all(self) -> None:
        """Complete old files and publish complete ones; the publisher's thread runs this."""
        while True:
            with self._lock:
                age = 0.0 if self._path is None else time.monotonic() - self._opened
                if age >= self._seconds:
                    self._complete_file()
                path, events = self._unpublished[0] if self._unpublished else (None, 0)
                wait = None if self._path is None else max(self._seconds - age, SHORTEST_WAIT)
                if path is None and self._is_closed:
                    return
                self._news.clear()
            if path is None:
                self._news.wait(wait)
                continue
            try:
                self._publish(path, events)
            except Exception as error:
                with self._full:
                    self._error = error
                    self._full.notify_all()
                return
            with self._full:
                self._unpublished.pop(0)
                self._full.notify_all()

    def _publish(self, path: Path, events: int = 0) -> None:
        """Give a file its final name, or replace it by Parquet; remove an empty file."""
        final = self._directory / path.name.removeprefix("_")
        size = path.stat().st_size
        if size and not (self._kind == "parquet" and self._convert(path, final, events)):
            os.rename(path, final)
        else:
            path.unlink()
        sync_directory(self._directory)
        self.files += size > 0

    def _convert(self, path: Path, final: Path, events: int) -> bool:
        """Write the events of a file as Parquet, and return whether none of them was lost.

        Args:
            path: the file of frames.
            final: its final name; the Parquet file gets this name with another suffix.
            events: the acked events in the file; 0 if that is not known.
        """
        from wirescan.export.parquet import write

        partial = path.with_suffix(".parquet")
        summary = write(
            [Slice(str(path), 0, path.stat().st_size, last=True)],
            str(partial),
            format="lumberjack.events",
            columns=self._columns,
            compression=self._compression,
            errors="skip",
            limits=WIDEST,
        )
        self.faults += summary.faults
        if summary.records < events or summary.faults and summary.faults > count_tolerable(path):
            partial.unlink()
            events_read = format_count(summary.records, "event")
            bad_frames = format_count(summary.faults, "bad frame")
            print_message(
                f"wirescan: {format_path(final.name)}: frames stay as they came, because not all "
                f"could be read again: {events_read}, {bad_frames}"
            )
            return False
        publish(partial, final.with_suffix(".parquet"))
        return True

    def _recover(self) -> None:
        """Complete the files of an earlier run.

        Its last file is truncated after its last whole frame: what follows was not acked.
        """
        for path in sorted(self._directory.glob("_*.parquet")):
            if NAME.fullmatch(path.name):
                path.unlink()
        for path in sorted(self._directory.glob("_*.lumberjack")):
            if not NAME.fullmatch(path.name):
                continue
            if (self._directory / path.name[1:]).with_suffix(".parquet").exists():
                path.unlink()
                continue
            size = path.stat().st_size
            cut = find_end(path)
            with open(path, "rb+") as file:  # synced before the file gets its final name
                file.truncate(cut)
                os.fsync(file.fileno())
            message = f"wirescan: {format_path(path.name)}: {format_bytes(cut)} of an earlier run"
            if cut < size:
                dropped = format_count(size - cut, "byte")
                message += f"; cut off {dropped} of a frame that was not acked"
            print_message(message)
            self._publish(path)
        sync_directory(self._directory)

    def _raise_error(self) -> None:
        """Raise the error that ended the publisher's thread, if any."""
        if self._error is not None:
            raise self._error


def find_end(path: Path) -> int:
    """Return the bytes of a file up to the end of its last whole frame.

    A process that dies leaves only a cut frame or zeros after it. Raises Failure for anything else.
    """
    size = path.stat().st_size
    last: Any = None
    for last in scan_outermost(
        read_chunks(str(path), 0, size),
        format_of("lumberjack.frames"),
        errors="mark",
        limits=WIDEST,
    ):
        lost = np.isin(last["fault"], (Fault.NOT_A_FRAME, Fault.BAD_LENGTH))
        if lost.any():
            at = int(last.positions[lost.argmax()])
            if is_zeros(path, at, size):
                return at
            raise Failure(
                f"{format_path(str(path))}: no frame at byte {at}, and nothing was changed: "
                "truncate the file there (truncate -s), or rename it"
            )
    return size - len(last.tail)


def count_tolerable(path: Path) -> int:
    """Return how many bad rows of a file's events only describe how a compressed frame ends.

    The receiver accepts such frames.
    """
    from wirescan.lumberjack.live.strictness import mark_tolerable_ends

    tables = iter_tables(
        str(path), format="lumberjack.events", errors="mark", limits=WIDEST, tail=True
    )
    return sum(int(np.count_nonzero(mark_tolerable_ends(table))) for table in tables)


def is_zeros(path: Path, start: int, stop: int) -> bool:
    """Return whether bytes start..stop-1 of a file are zeros, as a power failure may leave them."""
    return not any(
        np.frombuffer(piece, np.uint8).any() for piece in read_chunks(str(path), start, stop)
    )
