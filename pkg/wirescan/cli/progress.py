"""A progress bar for long work, on standard error, and only where that is a terminal."""
from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

PATIENCE = 0.7                  # seconds before a bar is shown at all


class Progress:
    """Progress(total, about): call it with the bytes done. A context manager; `total` None: not known.

    quiet: show nothing, as when rows go to the same terminal.
    """
    def __init__(self, total: int | None, about: str, quiet: bool = False):
        self._total, self._about, self._done = total, about, 0
        self._begun = time.monotonic()
        self._off = quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb"
        self._bar: Any = None

    def __call__(self, count: int) -> None:
        self._done += count
        if self._off:
            return
        if self._bar is None and time.monotonic() - self._begun > PATIENCE:
            self._start()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> None:
        from rich import progress
        from rich.console import Console
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.DownloadColumn(True),
            progress.TransferSpeedColumn(), progress.TimeRemainingColumn(),
            console=Console(stderr=True), transient=True, redirect_stderr=False,
            # Lines go above the bar where both share a terminal; else the data keeps its own stream.
            redirect_stdout=sys.stdout.isatty())
        self._task = self._bar.add_task(self._about, total=self._total)
        self._bar.start()


@contextmanager
def waiting(about: str) -> Iterator[None]:
    """A spinner for work that cannot tell how far it is, where standard error is a terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    from rich.console import Console
    with Console(stderr=True).status(about):
        yield
