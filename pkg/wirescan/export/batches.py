"""Files as Arrow record batches of about equal size.

Parquet, Spark and the command line use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from wirescan.frames.columns import PLACES
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_column
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import get_format, to_batch
from wirescan.reading.chunked import PIECE, iter_tables

BATCH_BYTES = PIECE
BATCH_ROWS = 1 << 16  # per batch, at most; the JVM handles this size best


def iter_batches(
    path: str,
    start: int = 0,
    stop: int | None = None,
    *,
    format: str,
    columns: Sequence[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    binary: str = "binary",
    types: str = "arrow",
    tail: bool = False,
    filters: Iterable[tuple[Any, ...]] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the frames of a range of a file as record batches of about `batch_bytes`.

    The arguments and errors are those of `chunked.iter_tables` and `to_arrow.make_schema`.
    """
    for table in iter_tables(
        path,
        start,
        stop,
        format=format,
        piece=batch_bytes,
        errors=errors,
        check=check,
        limits=limits,
        tail=tail,
        filters=filters,
    ):
        for part in split_by_bytes(table, batch_bytes, columns):
            yield to_batch(
                part, columns, binary=binary, types=types, file=path, errors=errors, limits=limits
            )


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


def count_gathered_bytes(table: FrameTable, columns: Sequence[str] | None = None) -> np.ndarray:
    """Return an int64 array: the bytes that an export gathers for each row.

    These are the bytes of the frame, and those of the places of enclosing frames among the
    columns.

    table: the frames.
    columns: the exported columns. None, the default: those of the format.
    """
    format = get_format(table)
    total: np.ndarray = table["size"].astype(np.int64)
    for name in format.export_columns if columns is None else columns:
        column = format.describe_column(name)
        # The places of the row itself are part of its frame.
        if column is not None and column.owner is not format and column.kind in PLACES:
            found = find_column(table, name)
            sizes = np.maximum(found.table[column.name + "_size"].astype(np.int64), 0)
            total += sizes if found.parents is None else sizes[found.parents]
    return total
