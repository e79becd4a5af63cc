"""A first query on the Parquet files that `wirescan convert` has written.

Two engines run it, Spark SQL and Arrow, and return the same answer:

    SELECT count(*), min(offset), max(offset), min(timestamp), max(timestamp) FROM frames
    SELECT key, count(*) FROM frames WHERE key IS NOT NULL GROUP BY key ORDER BY 2 DESC, 1 LIMIT 5
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wirescan.frames.arrow_arrays import read_integers, wrap_numbers
from wirescan.frames.columns import PLAIN, Column
from wirescan.frames.format import Format
from wirescan.frames.optional_packages import name_package
from wirescan.frames.row_values import FAULT_COLUMN
from wirescan.frames.value_text import ENCODINGS, encode, format_time, show_bytes

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

COMMONEST = 5  # values of the grouped column
MICROSECONDS = 1000  # in a millisecond
MERGED_VALUES = 1_000_000  # values that are counted apart in several arrays, before a merge
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
        """Run the query with Arrow on the files in the directory `path`, batch by batch."""
        import pyarrow.compute as pc

        rows = 0
        lowest: dict[str, list[Any]] = {name: [] for name in self._ranges}
        highest: dict[str, list[Any]] = {name: [] for name in self._ranges}
        counts = ValueCounts()
        for batch in self._read_good_rows(path):
            rows += len(batch)
            for name in self._ranges:
                found = pc.min_max(batch[name])
                if found["min"].is_valid:
                    lowest[name].append(_get_number(found["min"]))
                    highest[name].append(_get_number(found["max"]))
            if self._grouped:
                counts.add(batch[self._grouped])
        numbers = []
        for name in self._ranges:
            numbers += [min(lowest[name], default=None), max(highest[name], default=None)]
        common = counts.find_commonest(COMMONEST) if self._grouped else None
        return self._make_answer(rows, numbers, common)

    def _read_good_rows(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows without a fault in the directory `path`, with the query's columns."""
        import pyarrow.parquet as pq

        names = [*self._ranges, *([self._grouped] if self._grouped else [])]
        names += [FAULT_COLUMN] if self._has_faults else []
        for file in Path(path).rglob("*.parquet"):
            with pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches(columns=names):
                    if self._has_faults and batch[FAULT_COLUMN].null_count < len(batch):
                        yield batch.filter(batch[FAULT_COLUMN].is_null())
                    else:
                        yield batch

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


class ValueCounts:
    """Counts how often each value occurs in Arrow arrays. It does not count null.

    Its memory grows with the number of different values, and not with the number of rows.
    """

    def __init__(self) -> None:
        self._counted: list[pa.StructArray] = []  # values and their counts, of some arrays each
        self._held = 0  # values in them
        self._most = MERGED_VALUES

    def add(self, array: pa.Array) -> None:
        """Count the values of an array."""
        if pa.types.is_binary(array.type):
            array = array.cast(pa.large_binary())  # others may have more bytes than 32 bits count
        elif pa.types.is_string(array.type):
            array = array.cast(pa.large_string())
        counted = array.drop_null().value_counts()
        self._counted.append(counted)
        self._held += len(counted)
        if self._held > self._most:
            values, counts = self._merge()
            fields = [values, wrap_numbers(counts)]
            self._counted = [pa.StructArray.from_arrays(fields, ["values", "counts"])]
            self._held = len(values)
            self._most = max(MERGED_VALUES, 2 * self._held)

    def _merge(self) -> tuple[pa.Array, np.ndarray]:
        """Return each value once, and its count."""
        encoded = pa.concat_arrays([part.field("values") for part in self._counted])
        encoded = encoded.dictionary_encode()
        counts = np.zeros(len(encoded.dictionary), np.int64)
        parts = [read_integers(part.field("counts")) for part in self._counted]
        np.add.at(counts, read_integers(encoded.indices), np.concatenate(parts))
        return encoded.dictionary, counts

    def find_commonest(self, most: int) -> list[tuple[Any, int]]:
        """Return the commonest values and their counts, by count; equal counts, by value."""
        import pyarrow.compute as pc

        if not self._counted:
            return []
        values, counts = self._merge()
        chosen = np.arange(len(values))
        if len(values) > most:
            least = np.partition(counts, -most)[-most]
            chosen = np.flatnonzero(counts > least)
            tied = np.flatnonzero(counts == least)
            keys = [("", "ascending")]  # an array has no name
            lowest = pc.select_k_unstable(values.take(wrap_numbers(tied)), most - len(chosen), keys)
            chosen = np.concatenate([chosen, tied[read_integers(lowest)]])
        pairs = zip(values.take(wrap_numbers(chosen)).to_pylist(), counts[chosen].tolist())
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


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


def _get_number(scalar: pa.Scalar) -> Any:
    """Return a scalar as a number: times in the unit of their type."""
    return scalar.value if isinstance(scalar, pa.TimestampScalar) else scalar.as_py()


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
