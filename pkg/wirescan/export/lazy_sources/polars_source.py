"""`scan_polars`: files of frames as a LazyFrame of polars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from wirescan.core.parallel import map_ahead
from wirescan.export.lazy_sources.conditions import list_filters
from wirescan.export.lazy_sources.file_scan import FileScan, slice_batch
from wirescan.export.lazy_sources.polars_predicates import decode_predicate
from wirescan.frames.limits import Limits
from wirescan.frames.optional_packages import name_package
from wirescan.frames.registry import format_of
from wirescan.reading.filters import Filter
from wirescan.reading.splits import Sources

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

BATCH_ROWS = 1 << 16  # rows of a frame, if polars gives no number
CHEAPEST = "fault"  # the column that costs least, which every format has


def scan_polars(
    source: Sources,
    *,
    format: str,
    columns: Sequence[str] | None = None,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    mapped: bool = False,
) -> pl.LazyFrame:
    """Return the frames of files as a LazyFrame of polars, which is read when a query runs.

    Only the columns that the query needs are read. Conditions that
    `wirescan.reading.filters` can express exclude rows before they become columns, and exclude
    parts of files by their indexes. Damage in excluded parts is not reported. `head` and `limit`
    stop the reading early.

    Args:
        source: paths, globs, directories or URLs. They are listed when a query runs.
        format: a name of `wirescan.formats()`. If the first file is a capture of packets now,
            "kafka.requests" means "kafka.requests?capture=true".
        columns: as in `wirescan.frames.to_arrow.make_schema`. None, the default: the format's own
            columns. Name `_file` and `_start` to have the path and the position of each row.
        errors: "strict", "mark" or "skip".
        check: verify checksums.
        limits: bounds on rows and bytes. `limits.expansion` bounds each file.
        mapped: map local files instead of copying their bytes, which is faster. The files must not
            shrink while a query runs, or while byte strings of its result exist: the system then
            ends the process (SIGBUS).

    Returns:
        The LazyFrame. Byte strings are Binary, and faults Categorical. Without a condition or a
        limit, byte strings of local files are not copied if they are at least a quarter of the
        bytes. Then a result keeps the bytes around its byte strings in memory.

    Raises:
        ModuleNotFoundError: polars or pyarrow is not installed.
        ValueError: an unknown format, column or mode.
        TypeError: unfit columns or limits.

    A query raises FrameError for damage under "strict", and OSError if a file cannot be read.
    """
    with name_package("polars", "scan_polars", "'wirescan[polars]'"):
        import polars
        from polars.io.plugins import register_io_source

    scan = FileScan.from_arguments(
        source, format, columns, errors, check=check, limits=limits, mapped=mapped
    )

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = list(scan.columns) if with_columns is None else with_columns
        needed = names
        filters: list[Filter] = []
        if predicate is not None:
            needed = list(dict.fromkeys([*names, *predicate.meta.root_names()]))
        if predicate is not None and n_rows is None:
            filters = list_filters(decode_predicate(predicate), format_of(scan.format))
        # Of a few rows, views would keep the bytes of all rows in memory.
        views = predicate is None and n_rows is None
        # A batch without columns would lose the number of its rows in polars.
        batches = _limit(scan, needed or [CHEAPEST], filters, n_rows, views=views)
        parts = chain.from_iterable(
            slice_batch(batch, batch_size or BATCH_ROWS) for batch in batches
        )

        def convert(part: pa.RecordBatch) -> pl.DataFrame:
            # polars would make views of offsets too, but takes 1.5 times as long.
            frame = polars.from_arrow(part.cast(_use_views(part.schema)))
            if predicate is not None:
                frame = frame.filter(predicate)  # polars does not filter again
            return frame if frame.columns == names or not names else frame.select(names)

        first = next(parts, None)
        if first is None:
            return
        # Without copied byte strings, and for few rows, another thread costs more than it saves.
        is_costly = n_rows is None and pa.binary() in first.schema.types
        yield from (map_ahead if is_costly else map)(convert, chain([first], parts))

    empty = polars.from_arrow(scan.make_schema().empty_table())
    return register_io_source(read, schema=empty.schema)


def _use_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema with views instead of offsets for the columns of byte strings."""
    fields = [
        field.with_type(pa.binary_view()) if field.type == pa.binary() else field
        for field in schema
    ]
    return pa.schema(fields)


def _limit(
    scan: FileScan,
    columns: Sequence[str],
    filters: Sequence[Filter],
    rows: int | None,
    *,
    views: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield batches until they have `rows` rows.

    rows: polars counts them before the predicate. None: all.
    views: as in `FileScan.read_batches`.
    """
    left = rows
    if left == 0:
        return
    for batch in scan.read_batches(columns, filters, few_rows=rows is not None, views=views):
        part = batch if left is None else batch.slice(0, left)
        yield part
        if left is not None:
            left -= part.num_rows
            if not left:
                return
