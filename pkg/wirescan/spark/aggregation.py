"""Counts, sums, extremes, distinct values and histograms of frames, reduced in the tasks: only results cross to the
JVM.

A task groups some hundred thousand frames at a time, with Arrow, and merges what that gives; Spark merges the results
of the tasks. For each measure that is no number there are rows of their own, in which all else is null.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wirescan import arrow
from wirescan.catalog import FILE, START, format_of
from wirescan.limits import Limits
from wirescan.reduce import STEPS
from wirescan.spark.grouping import (COUNT, SKETCHES, TOGETHER, Groups, Sums, array_of, buckets_in, group, sketched,
                                     texts, together, values_in)
from wirescan.spark.partitions import ROWS, over_tables
from wirescan.spark.ranges import Ranges
from wirescan.spark.reading import Located, struct_of
from wirescan.table import places

MERGE = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}         # how results of Arrow's functions add up
PARTS = {"count": ["count"], "sum": ["sum"], "min": ["min"], "max": ["max"], "mean": ["sum", "count"]}
SHUFFLED = 200              # partitions that groups are merged in, at the most: Spark's own default
MEASURES = (*PARTS, *SKETCHES)


def aggregate(source: Ranges | DataFrame, by: Sequence[str] = (), measures: Sequence[tuple[str, str]] = (), *,
              column: str | None = None, format: str = "kafka.records", errors: str = "strict", check: bool = True,
              cut: str = "fault", limits: Limits = Limits()) -> DataFrame:
    """One row for each combination of values in the columns `by`, or one for all: these, `count` (bigint: frames), and
    a column `<column>_<measure>` for each measure.

    source, and the arguments behind `measures`: as of `map_partitions`. by: any columns of the frames or of those that
    enclose them, `_file` too, but no lists; null is a value. measures: (column, measure):

        count       bigint      rows where the column is not null
        sum, mean   of numbers: bigint or double; double
        min, max    the column's type
        distinct    bigint, an estimate: as good as exact for a few hundred values, then within 1.6 percent in two of
                    three cases, 5 percent in all but a few of a thousand; null is no value
        histogram   array<struct<low, high, count: bigint>> of integers: see `wirescan.reduce.Histogram`, whose `of`
                    takes it

    Nulls are left out. Under "mark" a bad frame counts, with what was read of it before the fault: group by `fault`.

    Raises ValueError for a column or measure that there is not, one that does not fit the type, and two results of one
    name; and as `map_partitions`. In the tasks: OverflowError for sums, those of means too, that may be beyond 64
    bits.
    """
    format = source.reading.format if isinstance(source, Ranges) else format
    job = Aggregation(format, (by,) if isinstance(by, str) else tuple(by), tuple(map(tuple, measures)))
    options = {} if isinstance(source, Ranges) else {"format": format}
    partial = over_tables(source, job.partials, struct_of(job.schema), column=column, errors=errors, check=check,
                          cut=cut, limits=limits, **{"format": "kafka.records", **options})
    if START in job.columns and not isinstance(source, Ranges):
        raise ValueError(f"{START} is a place in a file, and the values of a DataFrame are in none")
    groups = [F.col(f"`{name}`") for name in job.by]
    if groups and isinstance(source, Ranges):
        # A task has each group once: Spark need not look for what it can merge before it shuffles.
        partial = partial.repartition(max(1, min(len(source.plan), SHUFFLED)), *groups)
    count = F.coalesce(F.sum(f"`{COUNT}`"), F.lit(0)).alias("count")
    return partial.groupBy(*groups).agg(count, *map(_merged, job.measures))


def _merged(measure: tuple[str, str]) -> Any:
    """The expression that makes a result of the partial ones of all tasks."""
    name, what = measure
    texts = {
        "count": f"coalesce(sum(`{name} count`), 0L)",
        "mean": f"try_divide(sum(`{name} sum`), sum(`{name} count`))",
        "distinct": f"coalesce(hll_sketch_estimate(hll_union_agg(`{name} distinct`)), 0L)",
        "histogram": HISTOGRAM.format(f"`{name} histogram`"),
    }
    return F.expr(texts.get(what, f"{what}(`{name} {what}`)")).alias(f"{name}_{what}")


# Bucket i of `reduce.Histogram` begins at i below 32, and from there on at 32 to 63 times a power of two.
HISTOGRAM = f"""aggregate(collect_list({{}}), cast(array() as array<bigint>),
    (sums, more) -> zip_with(sums, more, (x, y) -> coalesce(x, 0L) + coalesce(y, 0L)),
    sums -> filter(transform(sums, (n, i) -> named_struct(
        'low', if(i < {STEPS}, bigint(i), shiftleft(bigint(i % {STEPS} + {STEPS}), int(i div {STEPS}) - 1)),
        'high', if(i < {STEPS}, bigint(i), shiftleft(bigint(i % {STEPS} + {STEPS}), int(i div {STEPS}) - 1)
                + (shiftleft(1L, int(i div {STEPS}) - 1) - 1)),
        'count', n)), bucket -> bucket.count > 0))"""


@dataclass(frozen=True)
class Aggregation:
    """What is to be counted; travels to the tasks. Raises ValueError as `aggregate`."""
    format: str
    by: tuple[str, ...]
    measures: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for measure in self.measures:
            if len(measure) != 2 or measure[1] not in MEASURES:
                raise ValueError(f"a measure is (column, one of {', '.join(MEASURES)}), not {measure!r}")
        for name, kind in zip(self.by, self.types.types):
            if pa.types.is_nested(kind):
                raise ValueError(f"{name} is {kind}, and lists make no groups")
        for name, what in self.measures:
            if name == FILE:
                raise ValueError(f"{FILE} makes groups, and has no {what}")
            _check(what, name, self.types.field(name).type)
        names = [*self.by, "count", *map("_".join, self.measures)]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"two columns would be named {twice.pop()!r}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are read: of the groups first."""
        return tuple(dict.fromkeys((*self.by, *(name for name, _ in self.measures))))

    @property
    def types(self) -> pa.Schema:
        """Their Arrow schema, in Spark's types."""
        return arrow.schema(self.format, self.columns, types="spark")

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        """The (column, function) that Arrow computes."""
        return tuple(dict.fromkeys((name, part) for name, what in self.measures for part in PARTS.get(what, ())))

    @property
    def sketches(self) -> tuple[tuple[str, str], ...]:
        """The other measures."""
        return tuple(measure for measure in self.measures if measure[1] in SKETCHES)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of partial results."""
        kinds = {"count": lambda kind: pa.int64(), "min": lambda kind: kind, "max": lambda kind: kind,
                 "sum": lambda kind: pa.float64() if pa.types.is_floating(kind) else pa.int64()}
        return pa.schema([*(self.types.field(name) for name in self.by), (COUNT, pa.int64()),
                          *((f"{name} {part}", kinds[part](self.types.field(name).type))
                            for name, part in self.numbers),
                          *((f"{name} {what}", SKETCHES[what]) for name, what in self.sketches)])

    def partials(self, located: Located) -> Iterator[pa.RecordBatch]:
        """The partial results of the tables of a task: at its end, and of a measure whenever its groups are many."""
        files: dict[str | None, int] = {}
        held = [Groups(self.by, [(COUNT, "sum"), *((f"{name} {part}", MERGE[part]) for name, part in self.numbers)]),
                *(Groups((*self.by, what), [(COUNT, "sum")] if what == "histogram" else [])
                  for _, what in self.sketches)]
        sums = Sums()
        for raw in together(self._batches(located, files)):
            sums.check(raw, [name for name, part in self.numbers if part == "sum"])
            for number, groups in enumerate(held):
                groups.add(self._grouped(raw, number))
                if groups.many:
                    yield from self._results(groups.take(), number, files)
        for number, groups in enumerate(held):
            yield from self._results(groups.take(), number, files)

    def _batches(self, located: Located, files: dict[str | None, int]) -> Iterator[pa.RecordBatch]:
        """The columns of each table; of the file its number, since that is quick to compare."""
        names = [name for name in self.columns if name != FILE]
        own = places(format_of(self.format).dtype)
        repeated = any(pa.types.is_binary(self.types.field(name).type) and name not in own for name in names)
        for file, table in located:
            for part in arrow.split(table, TOGETHER, names) if repeated else [table]:
                batch = arrow.to_batch(part, names, types="spark", file=file)
                if FILE in self.columns:
                    number = np.full(len(part), files.setdefault(file, len(files)), np.int32)
                    batch = pa.RecordBatch.from_arrays([*batch.columns, array_of(number)], [*names, FILE])
                yield batch

    def _grouped(self, raw: pa.Table, number: int) -> pa.Table:
        """The groups of some frames: number 0 is of what Arrow computes, the others of the sketches."""
        if number:
            name, what = self.sketches[number - 1]
            return (values_in if what == "distinct" else buckets_in)(raw, self.by, name)
        return group(raw, self.by, [([], "count_all"), *self.numbers], [COUNT, *map(" ".join, self.numbers)])

    def _results(self, table: pa.Table | None, number: int, files: dict[str | None, int]) -> Iterator[pa.RecordBatch]:
        """Groups as batches of the schema, in which everything else is null."""
        tables = [] if table is None else [table]
        if number and tables:
            name, what = self.sketches[number - 1]
            tables = (one.rename_columns([*self.by, f"{name} {what}"]) for one in sketched(table, self.by, what))
        for one in tables:
            columns = [pa.nulls(len(one), wanted.type) if wanted.name not in one.column_names
                       else texts(files).take(one.column(FILE)) if wanted.name == FILE
                       else one.column(wanted.name).cast(wanted.type) for wanted in self.schema]
            yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches(ROWS)


def _check(what: str, name: str, kind: pa.DataType) -> None:
    """Raise ValueError for a measure that a type does not have."""
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    fits = {"sum": number, "mean": number, "histogram": pa.types.is_integer(kind), "count": True}
    if not fits.get(what, not pa.types.is_nested(kind)):
        raise ValueError(f"{name} is {kind}, which has no {what}")
