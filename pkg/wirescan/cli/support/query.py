"""A first query on the Parquet files that `wirescan convert` has written.

Two engines run it, Spark SQL and Arrow's Acero, and return the same answer:

    SELECT count(*), min(offset), max(offset), min(timestamp), max(timestamp) FROM frames
    SELECT key, count(*) FROM frames WHERE key IS NOT NULL GROUP BY key ORDER BY 2 DESC, 1 LIMIT 5
"""

from __future__ import annotations

from typing import Any

from wirescan.frames.columns import PLAIN, Column
from wirescan.frames.format import Format
from wirescan.frames.optional_packages import name_package
from wirescan.frames.row_values import FAULT_COLUMN
from wirescan.frames.value_text import ENCODINGS, encode, format_time, show_bytes

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

COMMONEST = 5  # values of the grouped column
MICROSECONDS = 1000  # in a millisecond
COUNT = "count of rows"  # a column name that no format has


class Query:
    """The query for files of one format and Arrow schema. It excludes rows with a fault."""

    def __init__(self, schema: pa.Schema, format: Format):
        self._ranges = [
            field.name
            for field in schema
            if _get_declared(field.name, format).is_offset or _is_time(field.name, format)
        ]
        self._times = {name for name in self._ranges if _is_time(name, format)}
        grouped_by = format.display.grouped_by
        self._grouped = grouped_by if grouped_by in schema.names else None
        self._has_faults = FAULT_COLUMN in schema.names

    def run_with_spark(self, spark: Any, path: str) -> dict[str, Any]:
        """Run the query with Spark SQL on the files in the directory `path`."""
        from pyspark.sql import functions as f

        frames = spark.read.parquet(path)
        frames = frames.where(f.col(FAULT_COLUMN).isNull()) if self._has_faults else frames
        as_numbers = [
            f.unix_micros(name).alias(name) if name in self._times else f.col(name)
            for name in self._ranges
        ]
        numbers = frames.select(f.lit(1).alias(COUNT), *as_numbers)
        ends = [end(f.col(name)) for name in self._ranges for end in (f.min, f.max)]
        rows, *values = numbers.agg(f.count(COUNT), *ends).first()
        common = None
        if self._grouped:
            grouped = frames.where(f.col(self._grouped).isNotNull()).groupBy(self._grouped).count()
            best = grouped.orderBy(f.desc("count"), self._grouped).limit(COMMONEST).collect()
            common = [
                (bytes(value) if isinstance(value, bytearray) else value, number)
                for value, number in best
            ]
        return self._make_answer(rows, values, common)

    def run_with_arrow(self, path: str) -> dict[str, Any]:
        """Run the query with Acero on the files in the directory `path`, batch by batch."""
        import pyarrow.compute as pc
        import pyarrow.dataset as ds
        from pyarrow import acero

        frames = ds.dataset(path, format="parquet")
        good = pc.field(FAULT_COLUMN).is_null() if self._has_faults else pc.scalar(value=True)

        def aggregate(
            names: list[str],
            aggregates: list[tuple[Any, ...]],
            keys: list[str],
            condition: pc.Expression,
        ) -> pa.Table:
            columns = [*names, FAULT_COLUMN] if self._has_faults else names
            count: tuple[Any, ...] = ([], "hash_count_all" if keys else "count_all", None, COUNT)
            steps = [
                ("scan", acero.ScanNodeOptions(frames, columns=columns)),
                ("filter", acero.FilterNodeOptions(condition)),
                ("aggregate", acero.AggregateNodeOptions([count, *aggregates], keys=keys)),
            ]
            return acero.Declaration.from_sequence(
                [acero.Declaration(*step) for step in steps]
            ).to_table()

        ends = [
            (name, end, None, f"{name} {end}") for name in self._ranges for end in ("min", "max")
        ]
        table = aggregate(self._ranges, ends, [], good)
        scalars = [table[f"{name} {end}"][0] for name in self._ranges for end in ("min", "max")]
        numbers = [
            scalar.value if isinstance(scalar, pa.TimestampScalar) else scalar.as_py()
            for scalar in scalars
        ]
        common = None
        if self._grouped:
            condition = good & pc.field(self._grouped).is_valid()
            counts = aggregate([self._grouped], [], [self._grouped], condition)
            pairs = zip(counts[self._grouped].to_pylist(), counts[COUNT].to_pylist())
            common = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:COMMONEST]
        return self._make_answer(table[COUNT][0].as_py(), numbers, common)

    def _make_answer(
        self, rows: int, ends: list[Any], common: list[tuple[Any, int]] | None
    ) -> dict[str, Any]:
        """Return the answer: "rows", {column: [lowest, highest]}, and "commonest"."""
        out: dict[str, Any] = {"rows": rows}
        for name, first, last in zip(self._ranges, ends[::2], ends[1::2]):
            if name in self._times:
                first = None if first is None else first // MICROSECONDS
                last = None if last is None else last // MICROSECONDS
            out[name] = [first, last]
        if common is not None:
            out["commonest"] = {"column": self._grouped, "values": common}
        return out


def make_answer_lines(answer: dict[str, Any], format: Format) -> list[tuple[str, str]]:
    """Return an answer for people, as (label, text)."""
    out = []
    for name, result in answer.items():
        if name == "rows":
            out.append((name, f"{result:,}"))
        elif name == "commonest":
            column = result["column"]
            values = ", ".join(
                f"{_format_value(column, value, format)} ({count:,})"
                for value, count in result["values"]
            )
            out.append((f"top {column}", values or "none"))
        else:
            show = format_time if _is_time(name, format) else str
            out.append((name, " to ".join("none" if end is None else show(end) for end in result)))
    return out


def make_json_answer(answer: dict[str, Any], format: Format) -> dict[str, Any]:
    """Return an answer for JSON: times are milliseconds, bytes are text, codes have names."""
    common = answer.get("commonest")
    if common is None:
        return answer
    column = common["column"]
    values = [
        [
            encode(value, ENCODINGS[0])
            if isinstance(value, bytes)
            else _name_value(column, value, format),
            count,
        ]
        for value, count in common["values"]
    ]
    return answer | {"commonest": {"column": column, "values": values}}


def _get_declared(name: str, format: Format) -> Column:
    """Return what the format that owns a column declares about it."""
    column = format.describe_column(name)
    return PLAIN if column is None else column.declared


def _is_time(name: str, format: Format) -> bool:
    return _get_declared(name, format).unit is not None


def _name_value(column: str, value: Any, format: Format) -> Any:
    """Return the name of a number, or the value itself if it has none."""
    declared = _get_declared(column, format)
    return declared.name_number(value) if declared.number_names else value


def _format_value(column: str, value: Any, format: Format) -> str:
    """Return a value as text for people."""
    if isinstance(value, bytes):
        return show_bytes(value) or '""'
    return str(_name_value(column, value, format))
