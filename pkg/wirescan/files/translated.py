"""Files whose bytes are computed from other files, such as segments that are stored in chunks.

A protocol package names the paths of such files and the module that reads them. `source.py` asks
`find_translator` before it opens a path, so every reader of files reads them too. The module is
imported when a path first matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Protocol, cast


class Translator(Protocol):
    """The functions of a module that reads such files. Each raises FileNotFoundError, OSError."""

    def get_stamp(self, path: str) -> tuple[int, int]:
        """Return (size in bytes, time of the last change in ns since 1970, or 0)."""
        ...

    def open_ranges(self, path: str) -> AbstractContextManager[Callable[[int, int], memoryview]]:
        """Open a file, and give a function that returns the bytes between two positions."""
        ...


_modules: dict[re.Pattern[str], str] = {}


def add_translator(pattern: re.Pattern[str], module: str) -> None:
    """Register a module for the paths and URLs in which a pattern is found."""
    _modules[pattern] = module


def find_translator(path: str) -> Translator | None:
    """Return the module that reads a path, or None for a file that is read as it is."""
    for pattern, module in _modules.items():
        if pattern.search(path):
            return cast(Translator, import_module(module))
    return None
