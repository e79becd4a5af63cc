"""Group columns of frames with Arrow. Spark's `aggregate` runs this in its tasks.

This module does not import Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from wirescan.export.sketches import (
    compute_fingerprints,
    find_buckets,
    make_coupons,
    make_sketches,
    unify_floats,
)
from wirescan.frames.arrow_arrays import wrap_numbers
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa
    import pyarrow.compute as pc

COUNT = "* count"  # the names of partial results have a space, so they match no column
SKETCHES = {"distinct": pa.binary(), "histogram": pa.list_(pa.int64())}
GROUP_BYTES = 64 << 20  # bytes of columns that are grouped at a time
MERGE_BYTES = 64 << 20  # bytes of groups that are held before they are merged
GROUPS_PER_TABLE = 4096  # groups whose sketches are made at a time
SUM_LIMIT = 2.0**63  # int64 sums below this cannot overflow


class Groups:
    """Tables of groups, which are merged when they are large.

    keys: the names of the columns that identify a group.
    merges: the other columns, each with the Arrow function that merges it.
    """

    def __init__(self, keys: Sequence[str], merges: Sequence[tuple[str, str]]):
        self.keys = list(keys)
        self.merges = list(merges)
        self.tables: list[pa.Table] = []
        self.bytes = 0

    def add(self, table: pa.Table) -> None:
        """Add the groups of one more table."""
        self.tables.append(table)
        self.bytes += table.nbytes
        if self.bytes > MERGE_BYTES:
            self._replace([self._merge()])

    @property
    def should_flush(self) -> bool:
        """Whether merging hardly helped, because most groups are distinct. Then pass them on."""
        return self.bytes > MERGE_BYTES // 2 and len(self.tables) == 1

    def take(self) -> pa.Table | None:
        """Return the merged groups, or None if there are none, and discard them here."""
        table = self._merge() if self.tables else None
        self._replace([])
        return table

    def _merge(self) -> pa.Table:
        if len(self.tables) == 1:
            return self.tables[0]
        names = [name for name, _ in self.merges]
        return group(pa.concat_tables(self.tables), self.keys, self.merges, names)

    def _replace(self, tables: list[pa.Table]) -> None:
        self.tables = tables
        self.bytes = sum(table.nbytes for table in tables)


class Sums:
    """Checks that sums of 64-bit integers stay in range, because Arrow lets them wrap."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}

    def check(self, raw: pa.Table, names: Iterable[str]) -> None:
        """Add the absolute values of some columns. Raise OverflowError if a total reaches 2**63."""
        for name in names:
            if pa.types.is_int64(raw.schema.field(name).type):
                sizes = pc.abs(pc.cast(raw.column(name), pa.float64(), safe=False))
                self.totals[name] = self.totals.get(name, 0.0) + (pc.sum(sizes).as_py() or 0.0)
                if self.totals[name] >= SUM_LIMIT:
                    raise OverflowError(
                        f"the sum of {name} may be beyond 64 bits: take min, max or histogram of it"
                    )


def combine_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches as tables that are large enough to be worth a grouping."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes + len(batch)
        if size > GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending = []
            size = 0
    if pending:
        yield pa.Table.from_batches(pending)


def group(
    table: pa.Table, keys: Sequence[str], functions: Sequence[tuple[Any, str]], names: Sequence[str]
) -> pa.Table:
    """Return the groups of a table.

    table: the rows.
    keys: the names of the columns that identify a group.
    functions: pairs of a column and an Arrow aggregate function.
    names: the names of the columns of results.
    """
    keys = list(keys)
    functions = list(functions)
    if not keys and functions == [([], "count_all")]:
        # The table may have no column, which Arrow cannot group.
        return pa.Table.from_arrays([wrap_numbers(np.array([len(table)]))], list(names))
    narrow = table
    used = {name for name, _ in functions if name}
    for name in keys:
        # Values of equal width are grouped twice as fast.
        if name not in used and (width := _find_common_width(table.column(name))):
            chunks = [_cast_to_fixed_width(chunk, width) for chunk in table.column(name).chunks]
            column = pa.chunked_array(chunks, pa.binary(width))
            narrow = narrow.set_column(narrow.column_names.index(name), name, column)
    grouped = narrow.group_by(keys, use_threads=False).aggregate(functions)
    columns = [
        column.cast(pa.binary()).cast(table.schema.field(name).type)
        if pa.types.is_fixed_size_binary(column.type)
        else column
        for name, column in zip(keys, grouped.columns)
    ]
    return pa.Table.from_arrays([*columns, *grouped.columns[len(keys) :]], [*keys, *names])


def collect_coupons(raw: pa.Table, by: Sequence[str], name: str) -> pa.Table:
    """Return the coupons (see `sketches.make_coupons`) of a column's values in each group.

    Each value is included once per group. Nulls are ignored.
    """
    values = _select_valid(raw, by, name, "distinct")
    if pa.types.is_floating(values.schema.field("distinct").type):
        # Arrow groups floating-point numbers by their bytes.
        numbers = unify_floats(values.column("distinct").to_numpy())
        values = values.set_column(len(by), "distinct", wrap_numbers(numbers))
    distinct = group(values, values.column_names, [], [])
    coupons = make_coupons(_fingerprint_array(distinct.column("distinct").combine_chunks()))
    return distinct.set_column(len(by), "distinct", wrap_numbers(coupons))


def count_buckets(raw: pa.Table, by: Sequence[str], name: str) -> pa.Table:
    """Return how many of a column's values are in each bucket of each group.

    The buckets are those of `sketches.Histogram`. Nulls are ignored.
    """
    values = _select_valid(raw, by, name, "histogram")
    buckets = find_buckets(values.column("histogram").to_numpy()).astype(np.int16)
    values = values.set_column(len(by), "histogram", wrap_numbers(buckets))
    return group(values, values.column_names, [([], "count_all")], [COUNT])


def _select_valid(raw: pa.Table, by: Sequence[str], name: str, new_name: str) -> pa.Table:
    """Return the columns `by`, and the column `name` under a new name, where it is not null."""
    column = raw.column(name)
    return raw.select(list(by)).append_column(new_name, column).filter(pc.is_valid(column))


def make_summaries(table: pa.Table, by: Sequence[str], measure: str) -> Iterator[pa.Table]:
    """Yield the sketches or histograms of groups: tables of the columns `by` and `measure`.

    table: the result of `collect_coupons` or `count_buckets`.
    by: the names of the columns that identify a group.
    measure: "distinct" or "histogram".
    """
    names = [measure, COUNT] if measure == "histogram" else [measure]
    if not by:
        columns = [table.column(name).to_numpy() for name in names]
        yield pa.Table.from_arrays([_MAKE[measure](np.array([0, len(table)]), *columns)], [measure])
        return
    lists = group(table, by, [(name, "list") for name in names], names)
    for at in range(0, len(lists), GROUPS_PER_TABLE):
        part = lists.slice(at, GROUPS_PER_TABLE).combine_chunks()
        columns = [part.column(name).combine_chunks() for name in names]
        offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(columns[0]).to_numpy())])
        summaries = _MAKE[measure](offsets, *(column.flatten().to_numpy() for column in columns))
        yield part.select(list(by)).append_column(measure, summaries)


def _make_sketches(offsets: np.ndarray, group_coupons: np.ndarray) -> pa.Array:
    ends, data = make_sketches(group_coupons, offsets)
    return pa.Array.from_buffers(
        SKETCHES["distinct"],
        len(offsets) - 1,
        [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)],
    )


def _make_histograms(offsets: np.ndarray, buckets: np.ndarray, counts: np.ndarray) -> pa.Array:
    """Return the counts of each group, up to its last bucket. No group is empty."""
    sizes = np.zeros(1, np.int64)
    if len(buckets):
        sizes = np.maximum.reduceat(buckets.astype(np.int64), offsets[:-1]) + 1
    ends = np.concatenate([[0], np.cumsum(sizes)])
    dense = np.zeros(ends[-1], np.int64)
    dense[np.repeat(ends[:-1], np.diff(offsets)) + buckets] = counts
    return pa.Array.from_buffers(
        SKETCHES["histogram"],
        len(sizes),
        [None, pa.py_buffer(ends.astype(np.int32))],
        children=[wrap_numbers(dense)],
    )


_MAKE: dict[str, Callable[..., pa.Array]] = {
    "distinct": _make_sketches,
    "histogram": _make_histograms,
}


def _is_bytes_or_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


def _find_common_width(column: pa.ChunkedArray) -> int:
    """Return the size in bytes of all values of a column of bytes or texts.

    It is 0 if the sizes differ, or if some values are null.
    """
    if not _is_bytes_or_text(column.type) or column.null_count:
        return 0
    sizes = [np.diff(_read_offsets(chunk)) for chunk in column.chunks if len(chunk)]
    width = int(sizes[0][0]) if sizes else 0
    return width if all((chunk_sizes == width).all() for chunk_sizes in sizes) else 0


def _cast_to_fixed_width(chunk: pa.Array, width: int) -> pa.Array:
    data = (
        chunk.buffers()[2].slice(int(_read_offsets(chunk)[0])) if len(chunk) else pa.py_buffer(b"")
    )
    return pa.Array.from_buffers(pa.binary(width), len(chunk), [None, data])


def _read_offsets(array: pa.Array) -> np.ndarray:
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _fingerprint_array(array: pa.Array) -> np.ndarray:
    if _is_bytes_or_text(array.type):
        data = array.buffers()[2]
        letters = np.frombuffer(b"" if data is None else data, np.uint8)
        return compute_fingerprints((_read_offsets(array), letters))
    if not pa.types.is_floating(array.type):
        array = array.cast(pa.int8() if pa.types.is_boolean(array.type) else pa.int64())
    return compute_fingerprints(array.to_numpy(zero_copy_only=False))
