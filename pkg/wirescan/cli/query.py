"""A first query on Parquet that was just written: how many rows, from where to where, and what is commonest.

Two engines run it, Spark SQL and Arrow's Acero, and answer alike:

    SELECT count(*), min(offset), max(offset), min(timestamp), max(timestamp) FROM frames
    SELECT key, count(*) FROM frames WHERE key IS NOT NULL GROUP BY key ORDER BY 2 DESC, 1 LIMIT 5
"""
from __future__ import annotations

from typing import Any

import pyarrow as pa

from wirescan.cli.output import ENCODINGS, encode, shown, time_of
from wirescan.cli.rows import FAULT, named

COMMONEST = 5
GROUPED = ("key", "codec", "subject", "method")     # the first of these that was written is counted by its values
COUNT = "count of rows"         # the name of a column that no format has


class Query:
    """The query for files of one Arrow schema. Rows with a fault are left out."""

    def __init__(self, schema: pa.Schema):
        self._whole = [field.name for field in schema
                       if field.name.endswith("offset") or pa.types.is_timestamp(field.type)]
        self._times = {field.name for field in schema if pa.types.is_timestamp(field.type)}
        self._grouped = next((name for name in GROUPED if name in schema.names), None)
        self._faults = FAULT in schema.names

    def with_spark(self, spark: Any, path: str) -> dict[str, Any]:
        """Run it by Spark SQL."""
        from pyspark.sql import functions as f
        frames = spark.read.parquet(path)
        frames = frames.where(f.col(FAULT) == 0) if self._faults else frames
        as_numbers = [f.unix_micros(name).alias(name) if name in self._times else f.col(name)
                      for name in self._whole]
        numbers = frames.select(f.lit(1).alias(COUNT), *as_numbers)
        ends = [end(f.col(name)) for name in self._whole for end in (f.min, f.max)]
        rows, *found = numbers.agg(f.count(COUNT), *ends).first()
        common = None
        if self._grouped:
            grouped = frames.where(f.col(self._grouped).isNotNull()).groupBy(self._grouped).count()
            best = grouped.orderBy(f.desc("count"), self._grouped).limit(COMMONEST).collect()
            common = [(_plain(value), number) for value, number in best]
        return self._answer(rows, found, common)

    def with_arrow(self, path: str) -> dict[str, Any]:
        """Run it by Acero, over pieces of the files."""
        import pyarrow.compute as pc
        import pyarrow.dataset as ds
        from pyarrow import acero
        frames = ds.dataset(path, format="parquet")
        good = pc.field(FAULT) == 0 if self._faults else pc.scalar(True)

        def run(names: list[str], aggregates: list[tuple[Any, ...]], keys: list[str], only: pc.Expression) -> pa.Table:
            steps = [("scan",
                      acero.ScanNodeOptions(frames, columns=[*names, *([FAULT] if self._faults else [])])),
                     ("filter", acero.FilterNodeOptions(only)),
                     ("project",
                      acero.ProjectNodeOptions([*map(pc.field, names), pc.scalar(1)], [*names, COUNT])),
                     ("aggregate",
                      acero.AggregateNodeOptions([(COUNT, "hash_sum" if keys else "sum", None, COUNT),
                                                               *aggregates], keys=keys))]
            return acero.Declaration.from_sequence([acero.Declaration(*step) for step in steps]).to_table()

        ends = [(name, end, None, f"{name} {end}") for name in self._whole for end in ("min", "max")]
        table = run(self._whole, ends, [], good)
        found = [table[f"{name} {end}"][0] for name in self._whole for end in ("min", "max")]
        numbers = [getattr(one, "value", None) if isinstance(one, pa.TimestampScalar) else one.as_py()
                   for one in found]
        common = None
        if self._grouped:
            counts = run([self._grouped], [], [self._grouped], good & pc.field(self._grouped).is_valid())
            pairs = zip(counts[self._grouped].to_pylist(), counts[COUNT].to_pylist())
            common = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:COMMONEST]
        return self._answer(table[COUNT][0].as_py() or 0, numbers, common)

    def _answer(self, rows: int, ends: list[Any], common: list[tuple[Any, int]] | None) -> dict[str, Any]:
        out: dict[str, Any] = {"rows": rows}
        for name, first, last in zip(self._whole, ends[::2], ends[1::2]):
            if name in self._times:
                first, last = (None if end is None else end // 1000 for end in (first, last))
            out[name] = [first, last]
        if common is not None:
            out["commonest"] = {"column": self._grouped, "values": common}
        return out


def lines(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) of an answer, for people."""
    out = []
    for name, found in answer.items():
        if name == "rows":
            out.append((name, f"{found:,}"))
        elif name == "commonest":
            values = ", ".join(f"{_shown(found['column'], value)} ({count:,})"
                               for value, count in found["values"])
            out.append((f"top {found['column']}", values or "none"))
        else:
            times = name.endswith("timestamp")
            told = ["none" if end is None else time_of(end) if times else f"{end:,}" for end in found]
            out.append((name, " to ".join(told)))
    return out


def as_json(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as JSON holds it: times as milliseconds, bytes as text or {"base64": ...}."""
    common = answer.get("commonest")
    if common is None:
        return answer
    values = [[encode(value, ENCODINGS[0]) if isinstance(value, bytes) else value, count]
              for value, count in common["values"]]
    return answer | {"commonest": {"column": common["column"], "values": values}}


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _shown(column: str, value: Any) -> str:
    if isinstance(value, bytes):
        return shown(value) or '""'
    return named(column, value)
