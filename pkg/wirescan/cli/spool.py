"""What `wirescan receive` leaves in a directory, so that nothing that was acked is lost.

    _<time>-<number>.lumberjack         frames as they came; on the disk before they are acked
    <time>-<number>.lumberjack          ... when it is full, or old enough: it does not change any more
    _<time>-<number>.parquet            its events, while they are written
    <time>-<number>.parquet             ... instead of it, when they are on the disk

The time is that of the file's first frame, in UTC, and names sort by it. Whoever looks for files passes over names that
begin with an underscore. A process that died leaves files that begin with one: the next run ends what was begun.
Frames that cannot all be read again keep their file, in place of Parquet.
"""
from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.catalog import format_of
from wirescan.cli.common import Failure
from wirescan.cli.output import bytes_of, counted, name_of, say
from wirescan.cli.store import sync
from wirescan.core.fault import Fault
from wirescan.limits import Limits
from wirescan.pieces import chunks, iter_tables, outermost

if TYPE_CHECKING:
    from wirescan.lumberjack.conversation import Window

NAME = re.compile(r"_?(\d{8}T\d{6}\.\d{6}Z-\d{6,})\.(lumberjack|parquet)")
MOST_VIEWS = 1024           # that the system takes in one write
WIDEST = Limits(frame=(1 << 32) - 1, inflated=(1 << 31) - 1)     # what is in a spool was accepted, by whatever limits
UNPUBLISHED = 4             # files that wait to become Parquet; with more, what comes has to wait


class Spool:
    """Files of frames in a directory, and of Parquet made of them. A context manager: the directory is made, and locked
    until it is left; what an earlier run left behind is ended first.

    kind: "frames" or "parquet". size, seconds: a file that has so many bytes, or is so old, is followed by the next.
    columns, compression: of Parquet. events, bytes, files, faults: written by this run; faults are bad frames that were
    met on the way to Parquet.
    Raises Failure where another process writes there, or this one may not; OSError.
    """

    def __init__(self, directory: Path, kind: str, size: int, seconds: float, columns: Sequence[str] | None = None,
                 compression: str = "zstd"):
        self._directory, self._kind, self._limit, self._seconds = directory, kind, size, seconds
        self._columns, self._compression = columns, compression
        self.events = self.bytes = self.files = self.faults = 0
        self._lock, self._news = threading.RLock(), threading.Event()
        self._full = threading.Condition(self._lock)
        self._path: Path | None = None          # of the file that is written to
        self._unpublished: list[tuple[Path, int]] = []      # and how many events they have
        self._number = 0
        self._is_closed = False
        self._error: Exception | None = None
        self._publisher = threading.Thread(target=self._publish_all, name="publisher", daemon=True)

    def __enter__(self) -> Spool:
        made = [path for path in (self._directory, *self._directory.parents) if not path.exists()]
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in made:
            sync(path.parent)
        if not os.access(self._directory, os.W_OK | os.X_OK):
            raise Failure(f"{name_of(str(self._directory))}: it cannot be written to")
        self._handle = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._last = max((found[1] for found in map(NAME.fullmatch, os.listdir(self._directory)) if found),
                             default="")
            self._recover()
        except BaseException as error:
            os.close(self._handle)
            if isinstance(error, BlockingIOError):
                raise Failure(f"{name_of(str(self._directory))}: another receiver writes to it") from None
            raise
        self._publisher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            with self._lock:
                self._roll()
                self._is_closed = True
            self._news.set()
            self._publisher.join()
        finally:
            os.close(self._handle)
        if kind is None:
            self._raise()

    def keep(self, windows: Sequence[Window]) -> None:
        """Puts windows on the disk. Raises OSError, and what went wrong with files before."""
        with self._lock:
            while len(self._unpublished) > UNPUBLISHED and self._error is None:
                self._full.wait()
            self._raise()
            views = [view for window in windows for view in window.raw]
            if not any(map(len, views)):
                return
            if self._path is None:
                self._open()
            try:
                size = self._write(views)
                os.fdatasync(self._file)
                if not os.fstat(self._file).st_nlink:           # no one will ever find what is in it
                    raise OSError(errno.ENOENT, "it was removed while it was written to")
            except OSError as error:
                error.filename = str(self._path)
                with suppress(OSError):
                    os.ftruncate(self._file, self._size)        # no torn frame stays in a file that gets its name
                raise
            self._size += size
            self.bytes += size
            count = sum(len(window.events) for window in windows)
            self.events += count
            self._count += count
            if self._size >= self._limit:
                self._roll()

    def _write(self, views: Sequence[memoryview]) -> int:
        total = 0
        for first in range(0, len(views), MOST_VIEWS):
            part = [view for view in views[first:first + MOST_VIEWS] if len(view)]
            while part:
                done = os.writev(self._file, part)
                total += done
                while part and done >= len(part[0]):
                    done -= len(part.pop(0))
                if done:
                    part[0] = part[0][done:]
        return total

    def _open(self) -> None:
        now = datetime.fromtimestamp(time.time(), timezone.utc)
        self._number += 1
        name = f"{now:%Y%m%dT%H%M%S.%fZ}-{self._number:06}"
        if name <= self._last:                  # the clock was set back: names sort all the same
            stem, number = self._last.rsplit("-", 1)
            name = f"{stem}-{int(number) + 1:06}"
        self._last = name
        path = self._directory / f"_{name}.lumberjack"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self._path, self._size, self._count, self._opened = path, 0, 0, time.monotonic()
        sync(self._directory)
        self._news.set()

    def _roll(self) -> None:
        if self._path is not None:
            os.close(self._file)
            self._unpublished.append((self._path, self._count))
            self._path = None
            self._news.set()

    def _publish_all(self) -> None:
        """What the publisher's thread does: files that are old are followed by others, and those are given their names.
        """
        while True:
            with self._lock:
                age = 0.0 if self._path is None else time.monotonic() - self._opened
                if age >= self._seconds:
                    self._roll()
                path, events = self._unpublished[0] if self._unpublished else (None, 0)
                wait = None if self._path is None else max(self._seconds - age, 0.01)
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
        """Gives a file its name, or puts Parquet in its place; one that is empty is removed."""
        final, size = self._directory / path.name.removeprefix("_"), path.stat().st_size
        if size and not (self._kind == "parquet" and self._convert(path, final, events)):
            os.rename(path, final)
        else:
            path.unlink()
        sync(self._directory)
        self.files += size > 0

    def _convert(self, path: Path, final: Path, events: int) -> bool:
        """Whether Parquet was made of a file's frames, without the loss of any.

        events: those in it that were acked, as far as that is known."""
        from wirescan.parquet import write
        from wirescan.partition import Slice
        partial = path.with_suffix(".parquet")
        done = write([Slice(str(path), 0, path.stat().st_size, True)], str(partial), format="lumberjack.events",
                     columns=self._columns, compression=self._compression, errors="skip", limits=WIDEST)
        self.faults += done.faults
        if done.records < events or done.faults and done.faults > ends(path):
            partial.unlink()
            say(f"wirescan: {name_of(final.name)}: frames stay as they came, since not all could be read again: "
                f"{counted(done.records, 'event')}, {counted(done.faults, 'bad frame')}")
            return False
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.rename(partial, final.with_suffix(".parquet"))
        sync(self._directory)
        return True

    def _recover(self) -> None:
        """What an earlier run left behind: its last file is cut behind its last whole frame, for what follows that was
        not acked; and all get their names."""
        for path in sorted(self._directory.glob("_*.parquet")):
            if NAME.fullmatch(path.name):
                path.unlink()
        for path in sorted(self._directory.glob("_*.lumberjack")):
            if not NAME.fullmatch(path.name):
                continue
            if (self._directory / path.name[1:]).with_suffix(".parquet").exists():
                path.unlink()
                continue
            size, cut = path.stat().st_size, whole(path)
            with open(path, "rb+") as file:         # on the disk before it gets its name
                file.truncate(cut)
                os.fsync(file.fileno())
            say(f"wirescan: {name_of(path.name)}: {bytes_of(cut)} that an earlier run left"
                + (f"; cut off {counted(size - cut, 'byte')} of a frame that was not acked" if cut < size else ""))
            self._publish(path)
        sync(self._directory)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def whole(path: Path) -> int:
    """Bytes of a file up to the end of its last whole frame. Raises Failure where something else than a cut frame or
    zeros follows it, which no process leaves that dies."""
    size = path.stat().st_size
    last: Any = None
    for last in outermost(chunks(str(path), 0, size), format_of("lumberjack.frames"), errors="mark", limits=WIDEST):
        lost = np.isin(last["fault"], (Fault.NOT_A_FRAME, Fault.BAD_LENGTH))
        if lost.any():
            at = int(last.positions[lost.argmax()])
            if zeros(path, at, size):
                return at
            raise Failure(f"{name_of(str(path))}: no frame at byte {at:,}, and nothing was changed: cut the file there "
                          "(truncate -s), or give it another name")
    return size - len(last.tail)


def ends(path: Path) -> int:
    """How many bad rows of a file's events only tell how a compressed frame ends, which the receiver takes."""
    from wirescan.lumberjack.strict import tolerable
    tables = iter_tables(str(path), format="lumberjack.events", errors="mark", limits=WIDEST, tail=True)
    return sum(np.count_nonzero(tolerable(table)) for table in tables)


def zeros(path: Path, start: int, stop: int) -> bool:
    """Whether a part of a file is nothing but zeros, as a file system may leave it when the power fails."""
    return not any(np.frombuffer(piece, np.uint8).any() for piece in chunks(str(path), start, stop))
