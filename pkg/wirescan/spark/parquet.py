"""Frames to Parquet. The tasks write the files themselves, so that no row of frames passes through the JVM; or Spark's
own writer does it."""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from wirescan.layout import Layout
from wirescan.limits import Limits
from wirescan.parquet import Summary, counted, needed, write_parts
from wirescan.partition import Plan, Slice
from wirescan.sink import COMPRESSION, FAULTS, FILE_BYTES, Output, Part, merge, merged, small
from wirescan.source import URL
from wirescan.spark.faults import found
from wirescan.spark.planning import planned
from wirescan.spark.reading import Paths, Reading, over, plainly, struct_of

WRITERS = ("task", "spark")
COUNTS = ("files", "frames", "records", "bytes", "faults", "tail", "written")
PART = pa.struct([("directory", pa.string()), ("path", pa.string()), ("records", pa.int64()), ("written", pa.int64())])
DONE = pa.schema([*((name, pa.int64()) for name in COUNTS), ("seconds", pa.float64()), ("parts", pa.list_(PART))])


def to_parquet(spark: SparkSession, paths: Paths, out: str | os.PathLike[str], format: str = "kafka.records",
               columns: Sequence[str] | None = None, compression: str = COMPRESSION, errors: str = "strict",
               check: bool = True, writer: str = "task", bytes_per_partition: int | None = None,
               limits: Limits = Limits(), overwrite: bool = False, *, partition_by: str | Sequence[str] = (),
               file_bytes: int = FILE_BYTES, filters: Sequence[tuple[Any, ...]] = ()) -> Summary:
    """Write the frames in files to a directory of Parquet files, and sum up what was done.

    out: a directory on a file system that the driver and every executor see. writer: "task": pyarrow in the tasks,
    as `wirescan.parquet.convert` writes files; "spark": Spark's own writer, for its tables and stores. What is written
    appears when all of it is, and once, however often a task was tried. partition_by: columns whose values name the
    directories, such as "kind" or "timestamp:day", as of `wirescan.layout`. file_bytes: a file that has as many is
    followed by another; files with less than a sixteenth of it are merged, by a second job (only of writer "task").
    The other arguments are as of `wirescan.spark.read`. Under "skip" the bad frames are left out and counted.

    With "mark" and "skip" the bad frames are told in the table `_faults` in `out`, of the schema of
    `wirescan.spark.faults`; readers of `out` pass over it.

    Raises FileExistsError for a directory that has files unless `overwrite`, ValueError, TypeError, OSError, and
    Spark's PythonException for what a task raises.
    """
    if writer not in WRITERS:
        raise ValueError(f"writer must be one of {', '.join(WRITERS)}, not {writer!r}")
    begun = time.perf_counter()
    reading = Reading(format, columns, errors, check, limits, tuple(filters))
    layout = Layout.of(format, columns, partition_by)
    plan = planned(spark, reading, paths, bytes_per_partition)
    if writer == "task":
        total = _by_tasks(spark, reading, layout, plan, os.fspath(out), compression, file_bytes, overwrite)
    else:
        total = _by_spark(spark, reading, layout, plan, os.fspath(out), compression, overwrite)
    return replace(total, files=len({one.path for one in plan.slices}), seconds=time.perf_counter() - begun)


def _by_tasks(spark: SparkSession, reading: Reading, layout: Layout, plan: Plan, out: str,
              compression: str, file_bytes: int, overwrite: bool) -> Summary:
    if URL.match(out):
        raise ValueError(f"the tasks write to a file system, not to {out}: give writer='spark'")
    with Output(os.path.abspath(out), overwrite) as output:
        def written(slices: list[Slice]) -> Iterator[pa.RecordBatch]:
            with plainly():
                done, parts = write_parts(slices, _mine(output), layout, compression=compression,
                                          file_bytes=file_bytes, **_options(reading))
            row = asdict(done) | {"parts": [part._asdict() for part in parts]}
            yield pa.RecordBatch.from_pylist([row], schema=DONE)

        def joined(run: list[Part]) -> Iterator[pa.RecordBatch]:
            with plainly():
                part = merge(run, f"{_mine(output)}.parquet", compression)
            yield pa.RecordBatch.from_pylist([part._asdict()], schema=pa.schema(PART))

        rows = [row.asDict(True) for row in over(spark, plan, written, struct_of(DONE)).collect()]
        parts = [Part(**part) for row in rows for part in row.pop("parts")]
        runs = small(parts, file_bytes)
        into = over(spark, runs, joined, struct_of(pa.schema(PART))).collect() if runs else []
        size = output.commit(merged(parts, runs, [Part(*row) for row in into]), needed(layout, reading.errors))
    return replace(sum((Summary(**row) for row in rows), Summary()), written=size)


def _mine(output: Output) -> str:
    """A path for the files of this attempt of a task, and of no other."""
    task = TaskContext.get()
    return output.part(task.partitionId(), f"{task.taskAttemptId()}")


def _by_spark(spark: SparkSession, reading: Reading, layout: Layout, plan: Plan, out: str,
              compression: str, overwrite: bool) -> Summary:
    local = not URL.match(out)
    if local:
        out = os.path.abspath(out)
        Output(out, overwrite)                  # refuses what is not to be written over
    if not hasattr(spark, "sparkContext"):
        raise ValueError("writer='spark' counts what it writes by accumulators, which Spark Connect does not have: "
                         "give writer='task', or write what wirescan.spark.read gives")
    total = spark.sparkContext.accumulator(Summary(), _Sum())
    schema = layout.schema
    for one in layout.by:
        schema = schema.append(pa.field(one.name, pa.string()))
    frame = over(spark, plan, lambda slices: _counted(reading, layout, schema, slices, total.add), struct_of(schema))
    writer = frame.write.mode("overwrite" if overwrite or local else "errorifexists")
    writer.option("compression", compression).partitionBy(*(one.name for one in layout.by)).parquet(out)
    size = sum(part.stat().st_size for part in Path(out).rglob("*.parquet")) if local else 0
    done = total.value + Summary(written=size)
    if reading.errors != "strict":
        told = found(spark, plan, reading)
        told = told if done.faults else told.limit(0)           # which Spark answers without a look at the files
        told.write.mode("overwrite").option("compression", compression).parquet(f"{out}/{FAULTS}")
    return done


def _counted(reading: Reading, layout: Layout, schema: pa.Schema, slices: Sequence[Slice],
             count: Callable[[Summary], None]) -> Iterator[pa.RecordBatch]:
    """The batches of some slices, with their keys as columns; `count` is told what is in each table."""
    with plainly():
        for piece in counted(slices, layout, **_options(reading)):
            count(piece.done)
            for key, batch in piece.batches:
                keys = [pa.repeat(pa.scalar(text, pa.string()), batch.num_rows) for text in key]
                yield pa.RecordBatch.from_arrays([*batch.columns, *keys], schema=schema) if keys else batch


def _options(reading: Reading) -> dict[str, Any]:
    return {"errors": reading.errors, "check": reading.check, "limits": reading.limits, "filters": reading.filters}


class _Sum(AccumulatorParam):
    """Adds summaries up; Spark counts each task of the last stage once, also where it ran twice."""

    def zero(self, value: Summary) -> Summary:
        return Summary()

    def addInPlace(self, one: Summary, other: Summary) -> Summary:
        return one + other
