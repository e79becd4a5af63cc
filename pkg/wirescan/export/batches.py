"""Files as Arrow record batches of about equal size.

Parquet, Spark and the command line use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, SupportsIndex, TypeAlias

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

from wirescan.core.parallel import choose_workers, map_in_order
from wirescan.decoding.decoder import Decoder
from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.export.column_batches import ColumnReader, make_column_reader
from wirescan.export.outermost_columns import OutermostReader, can_write_columns
from wirescan.export.table_parts import BATCH_ROWS, make_batches, split_by_bytes
from wirescan.frames.limits import Limits
from wirescan.frames.scanned_columns import ScannedColumns
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import ColumnScan, make_schema, to_batch
from wirescan.reading.chunked import scan_nested
from wirescan.reading.chunks import CHUNK_BYTES, LocalChunks, open_chunks
from wirescan.reading.prepared_read import PreparedRead, prepare_read
from wirescan.reading.splits import Slice

BATCH_BYTES = CHUNK_BYTES
# Bytes in memory that are scanned at a time, if their frames hold many others each. If a chunk cuts
# a frame and has more than a quarter of its bytes in it, the frame is copied.
MEMORY_CHUNK_BYTES = 256 << 20
# Frames before they become record batches of the wanted sizes.
Result: TypeAlias = "pa.RecordBatch | ScannedColumns | FrameTable"
MOST_THREADS = 4  # that make columns of tables: one thread reads the frames of all of them


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
    mapped: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the frames of a range of a file, or of bytes, as record batches of about `batch_bytes`.

    Only the named columns are written. For most formats they are written while the frames are read,
    without a table of rows, unless there are filters, damage, or a column that needs rows.

    workers: the number of threads that read and filter records of Kafka, events of Lumberjack and
        messages of Thrift. Other frames are read by the calling thread, and up to four threads make
        their batches. Captures of packets are read on one more thread, unless the number is 1.
        None, the default: as many as there are cores for this process, but at most the environment
        variable WIRESCAN_WORKERS. The batches are the same for each number. Groups of records with
        damage use one thread. With several threads, about two batches more than threads are read
        ahead.
    decode: columns of byte strings whose payloads become typed values, and their decoders, such as
        {"value": "json"}. `wirescan.decoding.notation` lists the texts. A payload that cannot be
        decoded is null. The column after it, such as `value_fault`, says why.
    mapped: map a local file instead of copying its bytes, which is about twice as fast. The file
        must not shrink while its batches are read, and not while they exist if `binary` is "view":
        the system then ends the process (SIGBUS). Deleting the file is safe.

    If all of a file is read, and it is a capture of packets, "kafka.requests" means
    "kafka.requests?capture=true". The other arguments and the errors are those of
    `chunked.iter_tables`, of `to_arrow.make_schema` and of `PayloadColumns`.
    """
    prepared = prepare_read(path, start, stop, format)
    schema = make_schema(prepared.format, columns, binary=binary, types=types)
    payloads = PayloadColumns(decode or {})
    payloads.check(schema)
    options: dict[str, Any] = {"errors": errors, "check": check, "limits": limits}
    prepared = prepared.add_filters(filters, where, errors=errors, limits=limits)
    reader = make_column_reader(
        prepared.format,
        schema=schema,
        binary=binary,
        types=types,
        source=prepared.path,
        batch_rows=BATCH_ROWS,
        batch_bytes=batch_bytes,
        workers=workers,
        filters=prepared.filters,
        **options,
    )
    column_scan = ColumnScan(prepared.format, schema, file=prepared.path, **options)
    results: Iterable[Result]
    if reader is not None:
        results = _read_columns(reader, prepared, tail=tail, mapped=mapped)
    else:
        results = _read_outermost(
            prepared, column_scan, batch_bytes, tail=tail, mapped=mapped, workers=workers, **options
        )
    make_batch = partial(
        to_batch,
        columns=columns,
        binary=binary,
        types=types,
        file=prepared.path,
        errors=errors,
        limits=limits,
    )
    # A `ColumnReader` has its own threads, and rarely gives a table.
    threads = min(choose_workers(workers), MOST_THREADS) if reader is None else 1
    batches = map_in_order(
        partial(_make_batches, make_batch, column_scan, batch_bytes),
        _split_tables(results, batch_bytes, columns),
        threads,
    )
    yield from payloads.decode_all(chain.from_iterable(batches))


def _read_columns(
    reader: ColumnReader, prepared: PreparedRead, *, tail: bool, mapped: bool
) -> Iterator[pa.RecordBatch | FrameTable]:
    """Yield the frames of a prepared read: record batches, or tables where rows are needed.

    tail, mapped, and the errors: as in `chunked.iter_tables`.
    """
    size = reader.batch_bytes
    is_copied = prepared.path is not None and not mapped
    # Frames that hold many others are read in large chunks. Others are read in small ones: their
    # rows are still in the caches when they are opened.
    if reader.outermost.display.record_count is not None and not is_copied:
        size = max(size, MEMORY_CHUNK_BYTES)
    file_range = open_chunks(prepared.source, prepared.start, prepared.stop, size, mapped=mapped)
    yield from reader.read(
        file_range.chunks, prepared.start, allow_cut=tail or file_range.reaches_end
    )


def _read_outermost(
    prepared: PreparedRead,
    column_scan: ColumnScan,
    batch_bytes: int,
    *,
    tail: bool,
    mapped: bool,
    workers: SupportsIndex | None,
    **options: Any,
) -> Iterator[ScannedColumns | FrameTable]:
    """Yield the frames of a prepared read: columns, or tables where rows are needed.

    column_scan: writes the columns, if the format can. options: `errors`, `check` and `limits`.

    The other arguments and the errors are those of `iter_batches`.
    """
    file_range = open_chunks(
        prepared.source, prepared.start, prepared.stop, batch_bytes, mapped=mapped
    )
    allow_cut = tail or file_range.reaches_end
    can_write = not prepared.filters and can_write_columns(column_scan)
    # Other chunks mostly begin inside a frame, whose bytes are joined. Then rows are needed.
    if can_write and isinstance(file_range.chunks, LocalChunks):
        reader = OutermostReader(column_scan, file_range.path, **options)
        yield from reader.read(file_range.chunks, prepared.start, allow_cut=allow_cut)
        return
    yield from scan_nested(
        file_range.chunks,
        prepared.format,
        offset=prepared.start,
        allow_cut=allow_cut,
        filters=prepared.filters,
        source=file_range.path,
        workers=workers,
        **options,
    )


def _split_tables(
    results: Iterable[Result],
    batch_bytes: int,
    columns: Sequence[str] | None,
) -> Iterator[Result]:
    """Yield tables in parts of about `batch_bytes`, and other results as they are."""
    for result in results:
        if isinstance(result, FrameTable):
            yield from split_by_bytes(result, batch_bytes, columns)
        else:
            yield result


def _make_batches(
    make_batch: Callable[[FrameTable], pa.RecordBatch],
    column_scan: ColumnScan,
    batch_bytes: int,
    part: Result,
) -> list[pa.RecordBatch]:
    """Return the record batches of a part that `_split_tables` yields."""
    if isinstance(part, ScannedColumns):
        return make_batches(column_scan, part, batch_rows=BATCH_ROWS, batch_bytes=batch_bytes)
    return [make_batch(part) if isinstance(part, FrameTable) else part]


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
        iter_batches(
            part.path, part.start, part.stop, format=format, columns=columns, workers=1, **options
        )
        for part in slices
    )
    if next(payloads.decode_all(batches), None) is None:
        empty = pa.schema([(name, pa.binary()) for name in columns])
        payloads.fit(pa.RecordBatch.from_pylist([], schema=empty))
