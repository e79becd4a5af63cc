"""Recognizes captures of packets, and compressed files, by their first bytes."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from wirescan.frames.errors import FrameError
from wirescan.frames.fault_names import FaultMeaning
from wirescan.frames.format import Format
from wirescan.frames.registry import CAPTURE_FORMAT, format_of, make_spec

MARK_SIZE = 4  # first bytes that identify a capture
COMPRESSED_MARKS = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}  # first bytes


@cache
def _load_marks() -> frozenset[bytes]:
    return frozenset(format_of(CAPTURE_FORMAT).storage.marks)


def is_capture(head: Any) -> bool:
    """Return whether the first bytes of a file, at least MARK_SIZE, are those of a capture."""
    return bytes(head[:MARK_SIZE]) in _load_marks()


def explain_source(
    error: FrameError, format: Format, head: Any, reader: Literal["scan", "stream"]
) -> FrameError:
    """Return the error for bytes of a format. It says if the source is a capture, or compressed.

    head: the first bytes. reader: the function that reads such bytes of captures.
    """
    is_first = error.offset == 0
    if is_first and is_capture(head):
        text = _describe_capture(format, reader)
    elif is_first and (codec := _find_codec(head)):
        text = f"the source is compressed with {codec}: decompress it first, as the command does"
    else:
        return error
    meaning = FaultMeaning(error.meaning.name, text)
    return FrameError(
        error.fault, error.offset, error.row, error.near, error.source, error.inflated, meaning
    )


def _find_codec(head: Any) -> str | None:
    """Return the name of the codec of a compressed file by its first bytes; None for no codec."""
    first = bytes(head[:MARK_SIZE])
    return next((name for mark, name in COMPRESSED_MARKS.items() if first.startswith(mark)), None)


def _describe_capture(format: Format, reader: Literal["scan", "stream"]) -> str:
    """Return how to read a capture of packets in a format."""
    try:
        format_of(make_spec(format.spec, capture="true"))
    except ValueError:
        return (
            f"the source is a capture of packets, and {format.name} are not sent over connections"
        )
    call = f'wirescan.scan(source, "{format.name}")'
    if reader == "stream":
        call = f'wirescan.stream("{make_spec(format.spec, capture="true")}")'
    return f"the source is a capture of packets: use {call}"
