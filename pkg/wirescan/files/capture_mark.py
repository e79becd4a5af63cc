"""Recognizes captures of packets by their first bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

from wirescan.frames.registry import CAPTURE_FORMAT, format_of

MARK_SIZE = 4  # first bytes that identify a capture


@cache
def _load_marks() -> frozenset[bytes]:
    return frozenset(format_of(CAPTURE_FORMAT).storage.marks)


def is_capture(head: Any) -> bool:
    """Return whether the first bytes of a file, at least MARK_SIZE, are those of a capture."""
    return bytes(head[:MARK_SIZE]) in _load_marks()
