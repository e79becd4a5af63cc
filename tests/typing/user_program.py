"""A program of a user, for mypy: .ci/lint checks it against the types that wirescan states."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import wirescan
from wirescan import FrameTable, Limits, Stream
from wirescan.frames.table import Row


def count_records(path: Path) -> int:
    """Count the records of a file."""
    table: FrameTable = wirescan.scan(path, "kafka.records", errors="mark", limits=Limits(rows=10))
    return len(table)


def read_chunks(chunks: list[bytes]) -> list[FrameTable]:
    """Read a stream that comes in chunks."""
    stream: Stream = wirescan.stream("kafka.records")
    tables = [stream.feed(chunk) for chunk in chunks]
    return [*tables, stream.close()]


def select(table: FrameTable) -> list[FrameTable]:
    """Select rows and columns of a table: each is a table."""
    mask: np.ndarray = table["offset"] > 10
    return [table[mask], table.where(mask), table[1:], table[[2, 0]], table[["offset", "key"]]]


def read_columns(table: FrameTable) -> tuple[int, list[bytes | None], object]:
    """Read a column of numbers, a column of bytes, and a data frame."""
    latest: int = table["offset"].max()
    keys: list[bytes | None] = table["key"].to_pylist()
    return latest, keys, table.to_arrow(table.columns, binary="binary")


def read_rows(table: FrameTable) -> list[object]:
    """Read some values of rows."""
    first: Row = table[0]
    return [first.offset, *(row.key for row in table.head())]


def list_formats() -> list[str]:
    """List the names of all formats."""
    return [format.name for format in wirescan.formats().values()]


def name_format(path: Path) -> str | None:
    """Name the format of a file, if there is no doubt."""
    candidates = wirescan.detect(path)
    is_certain = bool(candidates) and candidates[0].verdict == "certain"
    return candidates[0].format if is_certain else None
