"""Scans bytes next to unreadable pages, in a process of its own.

`assert_nothing_is_read_outside` starts this module as a program. The program reads its task from
standard input and prints the number of each input before it scans it. A crash belongs to the last
number.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module

from wirescan.frames.errors import FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.testing.guarded_memory import GuardedMemory
from wirescan.testing.laws import make_writer

SECONDS = 600  # for all scans


def assert_nothing_is_read_outside(name: str, inputs: Sequence[bytes]) -> None:
    """Assert that no scan reads a byte before or after its buffer.

    Each input is scanned twice: before a page that cannot be read, and after one.

    Args:
        name: the name of the format. The module that has its function `read` must register it.
        inputs: bytes, good or bad.

    Raises:
        AssertionError: a scan read a byte outside. The message has the input.
        RuntimeError: the process failed in another way.
    """
    task = (format_of(name).read.__module__, name, list(inputs))
    done = subprocess.run(
        [sys.executable, "-m", "wirescan.testing.guarded_scans"],
        input=pickle.dumps(task),
        capture_output=True,
        timeout=SECONDS,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if not done.returncode:
        return
    numbers = done.stdout.split()
    if -done.returncode in (signal.SIGSEGV, signal.SIGBUS) and numbers:
        raw = inputs[int(numbers[-1])]
        raise AssertionError(f"a scan of {name} reads bytes outside its buffer: {raw!r}")
    raise RuntimeError(f"the guarded scans of {name} failed: {done.stderr.decode()}")


def scan_inputs(module: str, name: str, inputs: list[bytes]) -> None:
    """Scan all inputs. Print the number of each before its scans.

    Args:
        module: the module to import, which registers the format.
        name: the name of the format.
        inputs: the bytes of each scan.
    """
    if module != "__main__":
        import_module(module)
    format = format_of(name)
    guarded = GuardedMemory(max(map(len, inputs), default=0))
    for number, raw in enumerate(inputs):
        print(number, flush=True)
        for place in (guarded.place_at_end, guarded.place_at_beginning):
            for check in (True, False):
                _scan_view(format, place(raw), check=check)


def _scan_view(format: Format, view: memoryview, *, check: bool) -> None:
    """Scan a view in each way that a format has, and open everything in it."""
    outermost = format.outermost
    options = {"check": check, "limits": Limits()}
    if outermost.parser.scan is not None:
        outermost.parser.scan(view, resync=False, **options)
        outermost.parser.scan(view, resync=True, more=True, **options)
        if outermost.parser.writes_columns:
            outermost.parser.scan(view, resync=True, into=make_writer(outermost), **options)
    if outermost.parser.bytes_needed is not None:
        outermost.parser.bytes_needed(view)
    try:
        _open_children(format.open(view, errors="mark", **options))
        if format.write is not None and format.within is not None:
            outer = format_of(format.within).open(view, errors="mark", **options)
            format.write(outer, make_writer(format), **options)
    except FrameError:
        return  # a limit on rows


def _open_children(table: FrameTable) -> None:
    """Open the frames inside the rows of a table."""
    for open_child in table.format.children.values():
        child = open_child(table, errors="mark")
        if child.format is not table.format:
            _open_children(child)


if __name__ == "__main__":
    scan_inputs(*pickle.load(sys.stdin.buffer))
