"""Regular expressions for filters. The time of a search is linear in the number of bytes.

pyarrow searches them with RE2, which does not backtrack. Payloads and conditions may be hostile,
and Python's `re` takes time without bound for a pattern such as (a+)+$.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirescan.frames.optional_packages import name_package

LONGEST_PATTERN = 1000  # characters of a regular expression
FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}  # RE2 has the same letters
# Python sets these flags by the type of the pattern. RE2 does not need them.
IGNORED_FLAGS = re.UNICODE | re.ASCII


@dataclass(frozen=True)
class Pattern:
    """A regular expression in RE2's syntax: Pattern(b"^order-[0-9]+$").

    Attributes:
        source: bytes to be searched in bytes, or str to be searched in text.
    """

    source: bytes | str

    def search(self, value: bytes | str) -> bool:
        """Return whether the expression is found in a value of the type of `source`."""
        return bool(self._find([value])[0])

    def find(self, offsets: np.ndarray, data: Any) -> np.ndarray:
        """Return a bool array: in which byte strings the expression is found.

        Args:
            offsets: i8 array. String i is data[offsets[i]:offsets[i + 1]].
            data: bytes-like.
        """
        pa = _import_pyarrow()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return self._find(pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers))

    def _find(self, values: Any) -> np.ndarray:
        pa = _import_pyarrow()
        if isinstance(values, list):
            values = pa.array(values, pa.binary() if isinstance(self.source, bytes) else None)
        found: np.ndarray = pa.compute.match_substring_regex(values, self.source).to_numpy(
            zero_copy_only=False
        )
        return found


def compile_pattern(pattern: Any, *, is_bytes: bool) -> Pattern:
    """Return a regular expression that can be searched.

    Args:
        pattern: bytes or str in RE2's syntax, or a compiled `re.Pattern` with the flags IGNORECASE,
            MULTILINE and DOTALL. Text for bytes means its UTF-8.
        is_bytes: whether byte strings are searched, and not text.

    Raises:
        ValueError: a bad or long pattern, or a flag that RE2 does not have.
        TypeError: an object that is no pattern.
        ImportError: pyarrow is not installed.
    """
    source = pattern
    if isinstance(pattern, re.Pattern):
        source = _write_flags(pattern)
    elif isinstance(pattern, Pattern):
        source = pattern.source
    if isinstance(source, str) and is_bytes:
        source = source.encode(errors="surrogateescape")
    if not isinstance(source, bytes if is_bytes else str):
        raise TypeError(
            f"a regular expression for {'bytes' if is_bytes else 'text'} cannot be {pattern!r}"
        )
    if len(source) > LONGEST_PATTERN:
        raise ValueError(
            f"a regular expression of {len(source):,} characters is too long; "
            f"at most {LONGEST_PATTERN:,} are allowed"
        )
    compiled = Pattern(source)
    try:
        compiled.search(b"" if is_bytes else "")
    except ValueError as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"{source!r} is not a regular expression: {reason}") from None
    return compiled


def _write_flags(pattern: re.Pattern[Any]) -> Any:
    """Return the source of a compiled pattern, with its flags in it. Raises ValueError."""
    letters = ""
    flags = pattern.flags & ~IGNORED_FLAGS
    for flag, letter in FLAGS.items():
        if flags & flag:
            letters += letter
            flags &= ~flag
    if flags:
        raise ValueError(f"{pattern!r} has flags that cannot be used; there are I, M and S")
    if not letters:
        return pattern.pattern
    start = f"(?{letters})"
    return start.encode() + pattern.pattern if _holds_bytes(pattern) else start + pattern.pattern


def _holds_bytes(pattern: re.Pattern[Any]) -> bool:
    return isinstance(pattern.pattern, bytes)


def _import_pyarrow() -> Any:
    with name_package("pyarrow", "a regular expression", "'wirescan[arrow]'"):
        import pyarrow as pa
        import pyarrow.compute  # noqa: F401
    return pa
