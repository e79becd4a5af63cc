"""Files as Arrow record batches of about equal size.

Parquet, Spark and the command line use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, SupportsIndex

import numpy as np
import pyarrow as pa

from wirescan.decoding.decoder import Decoder
from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.export.column_batches import make_column_reader
from wirescan.frames.columns import PLACES
from wirescan.frames.format import describe_rows
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_column
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import make_schema, to_batch
from wirescan.reading.chunked import PIECE, iter_tables, open_chunks
from wirescan.reading.expression import add_expression
from wirescan.reading.filters import check_filters
from wirescan.reading.splits import Slice

BATCH_BYTES = PIECE
# Bytes in memory that are scanned at a time. Where a piece cuts a frame, the frame is copied.
MEMORY_PIECE = 256 << 20
BATCH_ROWS = 1 << 16  # per batch, at most; the JVM handles this size best


def iter_batches(
    path: Any,
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
    where: str | None = None,
    workers: SupportsIndex | None = None,
    decode: Mapping[str, str | Decoder] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the frames of a range of a file, or of bytes, as record batches of about `batch_bytes`.

    Only the named columns are written. For Kafka's records they are written while the records are
    read, without a table of rows, unless there are
    filters or a condition `where`.

    workers: the number of threads that read Kafka's records as columns. None, the default: as many
        as there are cores for this process, but at most the environment variable
        WIRESCAN_WORKERS. The batches are the same for each number. Tables, which are read where
        there are filters or damage, do not use it.
    decode: columns of byte strings whose payloads become typed values, and their decoders, such as
        {"value": "json"}. `wirescan.decoding.notation` lists the texts. A payload that cannot be
        decoded is null. The column after it, such as `value_fault`, says why.

    The other arguments and the errors are those of `chunked.iter_tables`, of
    `to_arrow.make_schema` and of `PayloadColumns`.
    """
    schema = make_schema(format, columns, binary=binary, types=types)
    payloads = PayloadColumns(decode or {})
    payloads.check(schema)
    options: dict[str, Any] = {"errors": errors, "check": check, "limits": limits}
    results: Iterable[pa.RecordBatch | FrameTable]
    filters = add_expression(check_filters(filters, format), where, format)
    file = path if isinstance(path, str) else None
    reader = make_column_reader(
        format,
        schema=schema,
        source=file,
        batch_rows=BATCH_ROWS,
        batch_bytes=batch_bytes,
        workers=workers,
        **options,
    )
    if reader is None or filters:
        results = iter_tables(
            path,
            start,
            stop,
            format=format,
            piece=batch_bytes,
            tail=tail,
            filters=filters,
            **options,
        )
    else:
        piece = batch_bytes if file else max(batch_bytes, MEMORY_PIECE)
        chunks = open_chunks(path, start, stop, piece)
        results = reader.read(chunks.pieces, start, tail=tail or chunks.reach_end)

    def make_batches() -> Iterator[pa.RecordBatch]:
        for result in results:
            if isinstance(result, pa.RecordBatch):
                yield result
                continue
            for part in split_by_bytes(result, batch_bytes, columns):
                yield to_batch(
                    part,
                    columns,
                    binary=binary,
                    types=types,
                    file=file,
                    errors=errors,
                    limits=limits,
                )

    yield from payloads.decode_all(make_batches())


def fit_payloads(
    payloads: PayloadColumns, format: str, slices: Iterable[Slice], **options: Any
) -> None:
    """Infer the types of payloads that are not known from the first rows of slices.

    payloads: the columns that are decoded.
    format: the name of the format.
    slices: where the first rows are.
    options: further arguments of `iter_batches`.

    Raises ValueError if no type can be inferred, and what `iter_batches` raises.
    """
    if payloads.is_fitted:
        return
    columns = list(payloads.decoders)
    batches = chain.from_iterable(
        iter_batches(part.path, part.start, part.stop, format=format, columns=columns, **options)
        for part in slices
    )
    if next(payloads.decode_all(batches), None) is None:
        empty = pa.schema([(name, pa.binary()) for name in columns])
        payloads.fit(pa.RecordBatch.from_pylist([], schema=empty))


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
    format = describe_rows(table)
    total: np.ndarray = table["size"].astype(np.int64)
    for name in format.export_columns if columns is None else columns:
        column = format.describe_column(name)
        # The places of the row itself are part of its frame.
        if column is not None and column.owner is not format and column.kind in PLACES:
            found = find_column(table, name)
            sizes = np.maximum(found.table[column.name + "_size"].astype(np.int64), 0)
            total += sizes if found.parents is None else sizes[found.parents]
    return total
