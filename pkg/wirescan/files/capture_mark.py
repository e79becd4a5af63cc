"""Recognizes captures of packets by their first bytes."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from wirescan.frames.errors import FrameError
from wirescan.frames.fault_names import FaultMeaning
from wirescan.frames.format import Format
from wirescan.frames.registry import CAPTURE_FORMAT, format_of, make_spec

MARK_SIZE = 4  # first bytes that identify a capture


@cache
def _load_marks() -> frozenset[bytes]:
    return frozenset(format_of(CAPTURE_FORMAT).storage.marks)


def is_capture(head: Any) -> bool:
    """Return whether the first bytes of a file, at least MARK_SIZE, are those of a capture."""
    return bytes(head[:MARK_SIZE]) in _load_marks()


def explain_capture(
    error: FrameError, format: Format, head: Any, reader: Literal["scan", "stream"]
) -> FrameError:
    """Return the error for bytes of a format. For a capture of packets, it says how to read it.

    head: the first bytes. reader: the function that reads such bytes of captures.
    """
    if error.offset or not is_capture(head):
        return error
    try:
        format_of(make_spec(format.spec, capture="true"))
    except ValueError:
        text = (
            f"the source is a capture of packets, and {format.name} are not sent over connections"
        )
    else:
        call = f'wirescan.scan(source, "{format.name}")'
        if reader == "stream":
            call = f'wirescan.stream("{make_spec(format.spec, capture="true")}")'
        text = f"the source is a capture of packets: use {call}"
    meaning = FaultMeaning(error.meaning.name, text)
    return FrameError(
        error.fault, error.offset, error.row, error.near, error.source, error.inflated, meaning
    )
