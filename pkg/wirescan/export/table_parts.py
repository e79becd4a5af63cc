"""Cuts tables and record batches into parts with about a given number of bytes, for exports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from wirescan.frames.columns import PLACES
from wirescan.frames.format import describe_rows
from wirescan.frames.lookup import EnclosingTables, find_column
from wirescan.frames.optional_packages import name_package
from wirescan.frames.scanned_columns import ScannedColumns
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import ColumnScan

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

BATCH_ROWS = 1 << 16  # per batch, at most; the JVM handles this size best


def split_by_bytes(
    table: FrameTable, size: int, columns: Sequence[str] | None = None
) -> Iterator[FrameTable]:
    """Return parts of a table, each of about `size` bytes and at most BATCH_ROWS rows.

    The bytes are those that `count_gathered_bytes` counts.
    """
    return (table[part] for part in split_rows(count_gathered_bytes(table, columns), size))


def split_rows(sizes: np.ndarray, size: int) -> Iterator[slice]:
    """Yield slices of rows, so that the sizes of each part add up to about `size`.

    sizes: the bytes of each row.
    size: the bytes of a part. Each part has at least one row and at most BATCH_ROWS rows.
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + size, "right"))
        last = min(max(last, first + 1), first + BATCH_ROWS)
        yield slice(first, last)
        first = last


def make_batches(
    column_scan: ColumnScan, frames: ScannedColumns, *, batch_rows: int, batch_bytes: int
) -> list[pa.RecordBatch]:
    """Return scanned frames as record batches that share memory. All but the last are equally long.

    batch_rows: rows in a batch, at most. batch_bytes: bytes of the frames in a batch, about.

    Raises FrameError as `ColumnScan.make_batch`.
    """
    batch = column_scan.make_batch(frames)
    size = frames.count_bytes()
    parts = max(-(-len(batch) // batch_rows), min(size // batch_bytes, len(batch)))
    rows = -(-len(batch) // max(parts, 1))
    return [batch.slice(first, rows) for first in range(0, len(batch), max(rows, 1))]


def count_gathered_bytes(table: FrameTable, columns: Sequence[str] | None = None) -> np.ndarray:
    """Return an int64 array: the bytes that an export gathers for each row.

    These are the bytes of the frame, and those of the places of enclosing frames among the
    columns.

    table: the frames.
    columns: the exported columns. None, the default: those of the format.
    """
    format = describe_rows(table)
    around = EnclosingTables(table)
    total: np.ndarray = table["size"].astype(np.int64)
    for name in format.export_columns if columns is None else columns:
        column = format.describe_column(name)
        # The places of the row itself are part of its frame.
        if column is not None and column.owner is not format and column.kind in PLACES:
            found = find_column(table, name, around=around)
            sizes = np.maximum(found.table[column.name + "_size"].astype(np.int64), 0)
            total += sizes if found.parents is None else sizes[found.parents]
    return total
