"""A program of a user, for mypy: .ci/lint checks it against the types that wirescan states."""

from __future__ import annotations

from pathlib import Path

import wirescan
from wirescan import FrameTable, Limits, Stream


def count_records(path: Path) -> int:
    """Count the records of a file."""
    table: FrameTable = wirescan.scan(path, "kafka.records", errors="mark", limits=Limits(rows=10))
    return len(table)


def read_chunks(chunks: list[bytes]) -> list[FrameTable]:
    """Read a stream that comes in chunks."""
    stream: Stream = wirescan.stream("kafka.records")
    tables = [stream.feed(chunk) for chunk in chunks]
    return [*tables, stream.close()]


def list_formats() -> list[str]:
    """List the names of all formats."""
    return [format.name for format in wirescan.formats().values()]


def name_format(path: Path) -> str | None:
    """Name the format of a file, if there is no doubt."""
    candidates = wirescan.detect(path)
    is_certain = bool(candidates) and candidates[0].verdict == "certain"
    return candidates[0].format if is_certain else None
