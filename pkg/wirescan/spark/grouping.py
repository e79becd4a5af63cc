"""Columns of frames to groups, by Arrow: what `aggregate` does in a task. Nothing here knows Spark."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirescan.reduce import buckets_of, coupons, fingerprints, sketches

COUNT = "* count"           # the names of partial results have a space, and so are nobody else's
SKETCHES = {"distinct": pa.binary(), "histogram": pa.list_(pa.int64())}
TOGETHER = 64 << 20         # bytes of columns that are grouped at a time
HELD = 64 << 20             # bytes of groups that are held
MADE = 4096                 # groups whose sketches are made at a time


class Groups:
    """Tables of groups, merged when they are large, by the functions that merge their columns."""

    def __init__(self, keys: Sequence[str], merges: Sequence[tuple[str, str]]):
        self.keys, self.merges = list(keys), list(merges)
        self.tables: list[pa.Table] = []
        self.bytes = 0

    def add(self, table: pa.Table) -> None:
        """Hold the groups of one more table."""
        self.tables.append(table)
        self.bytes += table.nbytes
        if self.bytes > HELD:
            self._keep([self._merged()])

    @property
    def many(self) -> bool:
        """Whether merging hardly helped: most groups are distinct, and better handed over."""
        return self.bytes > HELD // 2 and len(self.tables) == 1

    def take(self) -> pa.Table | None:
        """The merged groups, None if there are none; none are held any more."""
        table = self._merged() if self.tables else None
        self._keep([])
        return table

    def _merged(self) -> pa.Table:
        if len(self.tables) == 1:
            return self.tables[0]
        return group(pa.concat_tables(self.tables), self.keys, self.merges, [name for name, _ in self.merges])

    def _keep(self, tables: list[pa.Table]) -> None:
        self.tables, self.bytes = tables, sum(table.nbytes for table in tables)


class Sums:
    """Watches that sums of 64-bit numbers, which Arrow lets wrap, stay in range."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}

    def check(self, raw: pa.Table, names: Iterable[str]) -> None:
        """Raise OverflowError where the numbers so far, without their signs, come to 2**63."""
        for name in names:
            if pa.types.is_int64(raw.schema.field(name).type):
                sizes = pc.abs(pc.cast(raw.column(name), pa.float64(), safe=False))
                self.totals[name] = self.totals.get(name, 0.0) + (pc.sum(sizes).as_py() or 0.0)
                if self.totals[name] >= 2.0**63:
                    raise OverflowError(f"the sum of {name} may be beyond 64 bits: take min, max or histogram of it")


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as tables that are large enough to be worth a grouping."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes + len(batch)
        if size > TOGETHER:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def group(table: pa.Table, keys: Sequence[str], functions: Sequence[tuple[Any, str]], names: Sequence[str]) -> pa.Table:
    """The groups of a table: the keys, and what Arrow's functions make of other columns, under new names."""
    keys, functions = list(keys), list(functions)
    if not keys and functions == [([], "count_all")]:
        return pa.Table.from_arrays([array_of(np.array([len(table)]))], list(names))        # there may be no column
    narrow, used = table, {name for name, _ in functions if name}
    for name in keys:
        # Equal widths are grouped twice as fast.
        if name not in used and (width := _width(table.column(name))):
            column = pa.chunked_array([_fixed(chunk, width) for chunk in table.column(name).chunks], pa.binary(width))
            narrow = narrow.set_column(narrow.column_names.index(name), name, column)
    found = narrow.group_by(keys, use_threads=False).aggregate(functions)
    columns = [column.cast(pa.binary()).cast(table.schema.field(name).type)
               if pa.types.is_fixed_size_binary(column.type) else column for name, column in zip(keys, found.columns)]
    return pa.Table.from_arrays([*columns, *found.columns[len(keys):]], [*keys, *names])


def values_in(raw: pa.Table, by: Sequence[str], name: str) -> pa.Table:
    """The coupons (see `reduce.coupons`) of a column's values in each group, each value once; null is none."""
    there = raw.select(list(by)).append_column("distinct", raw.column(name)).filter(pc.is_valid(raw.column(name)))
    once = group(there, there.column_names, [], [])
    made = coupons(_fingerprints(once.column("distinct").combine_chunks()))
    return once.set_column(len(by), "distinct", array_of(made))


def buckets_in(raw: pa.Table, by: Sequence[str], name: str) -> pa.Table:
    """How many of a column's values are in each bucket (see `reduce.Histogram`), in each group; null is no value."""
    there = raw.select(list(by)).append_column("histogram", raw.column(name)).filter(pc.is_valid(raw.column(name)))
    made = buckets_of(there.column("histogram").to_numpy()).astype(np.int16)
    there = there.set_column(len(by), "histogram", array_of(made))
    return group(there, there.column_names, [([], "count_all")], [COUNT])


def sketched(table: pa.Table, by: Sequence[str], what: str) -> Iterator[pa.Table]:
    """The sketches or histograms of groups that `values_in` or `buckets_in` gave: tables of the keys and `what`."""
    names = [what, COUNT] if what == "histogram" else [what]
    if not by:
        columns = [table.column(name).to_numpy() for name in names]
        yield pa.Table.from_arrays([_SKETCH[what](np.array([0, len(table)]), *columns)], [what])
        return
    lists = group(table, by, [(name, "list") for name in names], names)
    for at in range(0, len(lists), MADE):
        part = lists.slice(at, MADE).combine_chunks()
        columns = [part.column(name).combine_chunks() for name in names]
        offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(columns[0]).to_numpy())])
        made = _SKETCH[what](offsets, *(column.flatten().to_numpy() for column in columns))
        yield part.select(list(by)).append_column(what, made)


def _sketches(offsets: np.ndarray, found: np.ndarray) -> pa.Array:
    ends, data = sketches(found, offsets)
    return pa.Array.from_buffers(SKETCHES["distinct"], len(offsets) - 1,
                                 [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)])


def _histograms(offsets: np.ndarray, buckets: np.ndarray, counts: np.ndarray) -> pa.Array:
    """The counts up to the last bucket of each group, none of which is empty."""
    sizes = np.maximum.reduceat(buckets.astype(np.int64), offsets[:-1]) + 1 if len(buckets) else np.zeros(1, np.int64)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    dense = np.zeros(ends[-1], np.int64)
    dense[np.repeat(ends[:-1], np.diff(offsets)) + buckets] = counts
    return pa.Array.from_buffers(SKETCHES["histogram"], len(sizes), [None, pa.py_buffer(ends.astype(np.int32))],
                                 children=[array_of(dense)])


_SKETCH = {"distinct": _sketches, "histogram": _histograms}


def array_of(values: np.ndarray) -> pa.Array:
    """Numbers as Arrow, uncopied. (`pa.array` imports pandas where there is one.)"""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def texts(values: Iterable[str | None]) -> pa.Array:
    """Names of files as Arrow; they may be no text."""
    raw = [None if value is None else value.encode(errors="backslashreplace") for value in values]
    ends = np.cumsum([0, *(len(one or b"") for one in raw)]).astype(np.int32)
    there = np.packbits([one is not None for one in raw], bitorder="little")
    return pa.Array.from_buffers(pa.string(), len(raw), [pa.py_buffer(there), pa.py_buffer(ends),
                                                         pa.py_buffer(b"".join(one or b"" for one in raw))])


def _width(column: pa.ChunkedArray) -> int:
    """The bytes that each value of a column of bytes or texts has; 0 where they differ, or some are null."""
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)) or column.null_count:
        return 0
    sizes = [np.diff(_offsets(chunk)) for chunk in column.chunks if len(chunk)]
    width = int(sizes[0][0]) if sizes else 0
    return width if all((one == width).all() for one in sizes) else 0


def _fixed(chunk: pa.Array, width: int) -> pa.Array:
    data = chunk.buffers()[2].slice(int(_offsets(chunk)[0])) if len(chunk) else pa.py_buffer(b"")
    return pa.Array.from_buffers(pa.binary(width), len(chunk), [None, data])


def _offsets(array: pa.Array) -> np.ndarray:
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset:array.offset + len(array) + 1]


def _fingerprints(array: pa.Array) -> np.ndarray:
    if pa.types.is_binary(array.type) or pa.types.is_string(array.type):
        data = array.buffers()[2]
        return fingerprints((_offsets(array), np.frombuffer(b"" if data is None else data, np.uint8)))
    if not pa.types.is_floating(array.type):
        array = array.cast(pa.int8() if pa.types.is_boolean(array.type) else pa.int64())
    return fingerprints(array.to_numpy(zero_copy_only=False))
