"""Aggregates of frames, computed in the tasks: `wirescan.spark.aggregate`.

A task groups some hundred thousand frames at a time with Arrow and merges the results. Spark merges
the results of the tasks. Only partial results pass from the Python workers to the JVM.

Each sketch (a measure "distinct" or "histogram") has its own rows of partial results. All other
measures are null in these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions

from wirescan.export.grouping import (
    COUNT,
    GROUP_BYTES,
    SKETCHES,
    Groups,
    Sums,
    collect_coupons,
    combine_batches,
    count_buckets,
    group,
    make_summaries,
)
from wirescan.export.sketches import STEPS
from wirescan.export.table_parts import split_by_bytes
from wirescan.frames import to_arrow
from wirescan.frames.arrow_arrays import make_texts, wrap_numbers
from wirescan.frames.columns import FILE, START, list_places
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.spark.partition_mapping import ROWS, map_tables
from wirescan.spark.ranges import Ranges
from wirescan.spark.run import DEFAULT_FORMAT, TablesOfFiles, make_struct

# Arrow's functions whose partial results make up each measure.
PARTS = {
    "count": ["count"],
    "sum": ["sum"],
    "min": ["min"],
    "max": ["max"],
    "mean": ["sum", "count"],
}
SHUFFLED = 200  # partitions that merge groups, at most: Spark's own default
MEASURES = (*PARTS, *SKETCHES)

# Bucket i of `sketches.Histogram` starts at i if i is below STEPS (32). The buckets after these
# start at 32 to 63 times a power of two.
_LOW = (
    f"if(i < {STEPS}, bigint(i), shiftleft(bigint(i % {STEPS} + {STEPS}), int(i div {STEPS}) - 1))"
)
_WIDTH_LESS_1 = f"if(i < {STEPS}, 0L, shiftleft(1L, int(i div {STEPS}) - 1) - 1)"


class Measure(NamedTuple):
    """A column, and the name of the function that is computed of it."""

    column: str
    function: str


def aggregate(
    source: Ranges | DataFrame,
    by: Sequence[str] = (),
    measures: Sequence[tuple[str, str]] = (),
    *,
    column: str | None = None,
    format: str = DEFAULT_FORMAT,
    errors: str = "strict",
    check: bool = True,
    cut: str = "fault",
    limits: Limits = Limits(),
) -> DataFrame:
    """Count frames and compute measures, for each combination of values in the columns `by`.

    The result has one row for each combination, or a single row without `by`. Its columns are those
    of `by`, then `count` (bigint: the number of frames), then `<column>_<function>` for each
    measure.

    source: the result of `wirescan.spark.ranges`, or a DataFrame with frames in a binary column.
    by: columns of the frames or of enclosing frames, or `_file`. Lists are not allowed. Null is a
        value.
    measures: pairs (column, function). The functions, and the types of their results:

        count       bigint: rows where the column is not null
        sum         of numbers; bigint or double
        mean        of numbers; double
        min, max    the column's type
        distinct    bigint: an estimate of the number of distinct values, without null. It is nearly
                    exact for a few hundred values. For more values the error is up to 1.6 percent
                    in two of three cases, and up to 5 percent in all but a few of a thousand.
        histogram   of integers; array<struct<low, high, count: bigint>>. `Histogram.from_buckets`
                    in `wirescan.export.sketches` takes it.

        Nulls are ignored.
    column, format, errors, check, cut, limits: the arguments of `map_partitions`. Under "mark" a
        bad frame counts too, with the values that were read before the fault: group by `fault`.

    Raises ValueError for an unknown column or function, for a function that does not fit the
    column's type, and for two results of the same name. Raises the exceptions of `map_partitions`
    too. The tasks raise OverflowError if a sum, or the sum of a mean, may exceed 64 bits.
    """
    job = Aggregation(
        source.reading.format if isinstance(source, Ranges) else format,
        (by,) if isinstance(by, str) else tuple(by),
        _parse_measures(measures),
    )
    partial = map_tables(
        source,
        job.iter_partials,
        make_struct(job.schema),
        column=column,
        format=format,
        errors=errors,
        check=check,
        cut=cut,
        limits=limits,
    )
    if START in job.columns and not isinstance(source, Ranges):
        raise ValueError(
            f"{START} is a byte position in a file, and the values of a DataFrame are not in files"
        )
    groups = [functions.col(f"`{name}`") for name in job.by]
    if groups and isinstance(source, Ranges):
        # A task has each group once. With this, Spark does not try to merge groups before it
        # shuffles them.
        partial = partial.repartition(max(1, min(len(source.plan), SHUFFLED)), *groups)
    count = functions.coalesce(functions.sum(f"`{COUNT}`"), functions.lit(0)).alias("count")
    return partial.groupBy(*groups).agg(count, *map(_make_merge_expression, job.measures))


def _parse_measures(measures: Sequence[tuple[str, str]]) -> tuple[Measure, ...]:
    """Return pairs as Measures. Raises ValueError for other tuples and for unknown functions."""
    result = []
    for measure in map(tuple, measures):
        if len(measure) != 2 or measure[1] not in MEASURES:
            raise ValueError(
                f"a measure is (column, function) with a function of {', '.join(MEASURES)}, "
                f"not {measure!r}"
            )
        result.append(Measure(*measure))
    return tuple(result)


def _make_merge_expression(measure: tuple[str, str]) -> Column:
    """Return the expression that merges the partial results of all tasks for one measure."""
    name, function = measure
    special = {
        "count": f"coalesce(sum(`{name} count`), 0L)",
        "mean": f"try_divide(sum(`{name} sum`), sum(`{name} count`))",
        "distinct": f"coalesce(hll_sketch_estimate(hll_union_agg(`{name} distinct`)), 0L)",
        "histogram": _make_histogram_sql(f"`{name} histogram`"),
    }
    sql = special.get(function, f"{function}(`{name} {function}`)")
    return functions.expr(sql).alias(f"{name}_{function}")


def _make_histogram_sql(column: str) -> str:
    """Return SQL that adds the histograms in a column (array<bigint>, the count of each bucket)."""
    return f"""aggregate(collect_list({column}), cast(array() as array<bigint>),
        (sums, more) -> zip_with(sums, more, (x, y) -> coalesce(x, 0L) + coalesce(y, 0L)),
        sums -> filter(
            transform(sums, (n, i) -> named_struct(
                'low', {_LOW},
                'high', {_LOW} + {_WIDTH_LESS_1},
                'count', n)),
            bucket -> bucket.count > 0))"""


@dataclass(frozen=True)
class Aggregation:
    """The groups and measures of one call of `aggregate`. Spark sends it to the tasks.

    format: the format of the frames.
    by: the columns that make groups.
    measures: pairs (column, function) with known functions.

    Raises ValueError as `aggregate`.
    """

    format: str
    by: tuple[str, ...]
    measures: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for name, kind in zip(self.by, self.types.types):
            if pa.types.is_nested(kind):
                raise ValueError(f"column {name} is {kind}: lists cannot be grouped by")
        for name, function in self.measures:
            if name == FILE:
                raise ValueError(f"{FILE} can be grouped by, but has no {function}")
            _check_measure(function, name, self.types.field(name).type)
        names = [*self.by, "count", *map("_".join, self.measures)]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(f"two columns would be named {repeated.pop()!r}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that are read. Those of the groups come first."""
        return tuple(dict.fromkeys((*self.by, *(name for name, _ in self.measures))))

    @property
    def types(self) -> pa.Schema:
        """Return the Arrow schema of `columns`, in Spark's types."""
        return to_arrow.make_schema(self.format, self.columns, types="spark")

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs (column, function) that Arrow computes, each once."""
        parts = [
            (name, part) for name, function in self.measures for part in PARTS.get(function, ())
        ]
        return tuple(dict.fromkeys(parts))

    @property
    def sketches(self) -> tuple[tuple[str, str], ...]:
        """Return the measures that Arrow does not compute."""
        return tuple(measure for measure in self.measures if measure[1] in SKETCHES)

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of partial results."""
        groups = [self.types.field(name) for name in self.by]
        numbers = [
            (f"{name} {part}", _choose_partial_type(part, self.types.field(name).type))
            for name, part in self.numbers
        ]
        sketches = [(f"{name} {function}", SKETCHES[function]) for name, function in self.sketches]
        return pa.schema([*groups, (COUNT, pa.int64()), *numbers, *sketches])

    def iter_partials(self, tables: TablesOfFiles) -> Iterator[pa.RecordBatch]:
        """Yield the partial results of the tables of one task.

        A measure's results are yielded at the end, and whenever it has too many groups to keep.

        Raises OverflowError if a sum may exceed 64 bits.
        """
        files: dict[str | None, int] = {}
        # Arrow merges the partial results of a function by the same function, but adds counts.
        merges = [
            (f"{name} {part}", "sum" if part == "count" else part) for name, part in self.numbers
        ]
        levels = [Groups(self.by, [(COUNT, "sum"), *merges])]
        for _, function in self.sketches:
            counts = [(COUNT, "sum")] if function == "histogram" else []
            levels.append(Groups((*self.by, function), counts))
        sums = Sums()
        for raw in combine_batches(self._iter_batches(tables, files)):
            sums.check(raw, [name for name, part in self.numbers if part == "sum"])
            for number, groups in enumerate(levels):
                groups.add(self._group(raw, number))
                if groups.should_flush:
                    yield from self._iter_results(groups.take(), number, files)
        for number, groups in enumerate(levels):
            yield from self._iter_results(groups.take(), number, files)

    def _iter_batches(
        self, tables: TablesOfFiles, files: dict[str | None, int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of each table as batches.

        files: the number of each path, which is extended here. The column `_file` has these
            numbers, because numbers are faster to compare than texts.
        """
        names = [name for name in self.columns if name != FILE]
        own = list_places(format_of(self.format).dtype)
        # Bytes of an enclosing frame are copied to each row, so such tables are split by size.
        is_copied = any(
            pa.types.is_binary(self.types.field(name).type) and name not in own for name in names
        )
        for file, table in tables:
            for part in split_by_bytes(table, GROUP_BYTES, names) if is_copied else [table]:
                batch = to_arrow.to_batch(part, names, types="spark", file=file)
                if FILE in self.columns:
                    number = np.full(len(part), files.setdefault(file, len(files)), np.int32)
                    batch = pa.RecordBatch.from_arrays(
                        [*batch.columns, wrap_numbers(number)], [*names, FILE]
                    )
                yield batch

    def _group(self, raw: pa.Table, number: int) -> pa.Table:
        """Return the groups of some frames.

        number: 0 for what Arrow computes, else the number of a sketch, from 1.
        """
        if not number:
            names = [COUNT, *map(" ".join, self.numbers)]
            return group(raw, self.by, [([], "count_all"), *self.numbers], names)
        name, function = self.sketches[number - 1]
        if function == "distinct":
            return collect_coupons(raw, self.by, name)
        return count_buckets(raw, self.by, name)

    def _iter_results(
        self, groups: pa.Table | None, number: int, files: dict[str | None, int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield groups as batches of `schema`. Columns of other measures are null.

        groups: a table of `_group`, or None for no groups. number: as in `_group`.
        """
        if groups is None:
            return
        tables: Iterable[pa.Table] = [groups]
        if number:
            name, function = self.sketches[number - 1]
            tables = (
                table.rename_columns([*self.by, f"{name} {function}"])
                for table in make_summaries(groups, self.by, function)
            )
        for table in tables:
            columns = [self._make_result_column(table, field, files) for field in self.schema]
            yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches(ROWS)

    def _make_result_column(
        self, table: pa.Table, field: pa.Field, files: dict[str | None, int]
    ) -> pa.Array | pa.ChunkedArray:
        """Return a column of `schema` from a table of groups, or nulls if it is not there."""
        if field.name not in table.column_names:
            return pa.nulls(len(table), field.type)
        if field.name == FILE:
            return make_texts(files).take(table.column(FILE))
        return table.column(field.name).cast(field.type)


def _choose_partial_type(function: str, kind: pa.DataType) -> pa.DataType:
    """Return the type of a partial result of a function of Arrow, for a column's type."""
    if function in ("min", "max"):
        return kind
    if function == "sum" and pa.types.is_floating(kind):
        return pa.float64()
    return pa.int64()


def _check_measure(function: str, name: str, kind: pa.DataType) -> None:
    """Raise ValueError if a function cannot be computed of a column's type."""
    is_integer = pa.types.is_integer(kind)
    is_number = is_integer or pa.types.is_floating(kind)
    fits = {"sum": is_number, "mean": is_number, "histogram": is_integer, "count": True}
    if not fits.get(function, not pa.types.is_nested(kind)):
        raise ValueError(f"column {name} is {kind}, which has no {function}")
