"""Progress bars of the commands, on standard error, and only if that is a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

PATIENCE = 0.7  # seconds of work before a bar appears


class Progress:
    """A progress bar over bytes. Call it with the number of bytes that were just processed.

    Several threads may call it.

    Use it as a context manager. A subclass may count other things: `make_columns` shows them.

    Args:
        total: bytes of the whole work; None if not known.
        about: text beside the bar.
        quiet: show nothing, for example because rows go to the same terminal.
    """

    def __init__(self, total: int | None, about: str, *, quiet: bool = False):
        self._total = total
        self._about = about
        self._done = 0
        self._started = time.monotonic()
        self._off = quiet or not _is_terminal()
        self._bar: Any = None
        self._lock = threading.Lock()

    def __call__(self, count: int, about: str | None = None) -> None:
        """Add the bytes that were just processed, and show the bar once the work takes long.

        about: new text beside the bar.
        """
        with self._lock:
            self._done += count
            self._about = about or self._about
            if self._off:
                return
            if self._bar is None and time.monotonic() - self._started > PATIENCE:
                self._start()
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done, description=self._about)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            *self.make_columns(),
            console=Console(stderr=True),
            transient=True,
            redirect_stderr=False,
            # On a shared terminal lines go above the bar. Otherwise data keeps its own stream.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._bar.add_task(self._about, total=self._total)
        self._bar.start()

    def make_columns(self) -> list[ProgressColumn]:
        """Return what the bar shows."""
        from rich import progress

        return [
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        ]


@contextmanager
def show_spinner(about: str) -> Iterator[None]:
    """Show a spinner on a terminal during work whose progress is not known."""
    if not _is_terminal():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(about):
        yield


def _is_terminal() -> bool:
    """Return whether standard error is a terminal that can show a bar."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
