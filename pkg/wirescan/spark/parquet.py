"""Frames to Parquet. The tasks write the files themselves, so that no row of frames passes through the JVM; or Spark's
own writer does it."""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from wirescan.limits import Limits
from wirescan.parquet import COMPRESSION, Output, Summary, counted, write
from wirescan.partition import SLICE_BYTES, Slice
from wirescan.source import URL
from wirescan.spark.read import over
from wirescan.spark.reading import Paths, Reading, struct_of

WRITERS = ("task", "spark")
COUNTS = ("files", "frames", "records", "bytes", "faults", "tail", "written")
DONE = pa.schema([("part", pa.string()), *((name, pa.int64()) for name in COUNTS), ("seconds", pa.float64())])


def to_parquet(spark: SparkSession, paths: Paths, out: str | os.PathLike[str], format: str = "kafka.records",
               columns: Sequence[str] | None = None, compression: str = COMPRESSION, errors: str = "strict",
               check: bool = True, writer: str = "task", bytes_per_partition: int = SLICE_BYTES,
               limits: Limits = Limits(), overwrite: bool = False) -> Summary:
    """Write the frames in files to a directory of Parquet files, and sum up what was done.

    out: a directory on a file system that the driver and every executor see. writer: "task": pyarrow in the tasks,
    one file each, as `wirescan.parquet.convert` writes them; "spark": Spark's own writer, for its tables and stores.
    What is written appears when all of it is, and once, however often a task was tried. The other arguments are as of
    `wirescan.spark.read`; under "skip" the bad frames are left out and counted.

    Raises FileExistsError for a directory that has files unless `overwrite`, ValueError, OSError, and Spark's
    PythonException for what a task raises.
    """
    if writer not in WRITERS:
        raise ValueError(f"writer must be one of {', '.join(WRITERS)}, not {writer!r}")
    begun = time.perf_counter()
    reading = Reading(format, columns, errors, check, limits)
    tasks = reading.plan(paths, bytes_per_partition) or [[]]
    writes = _by_tasks if writer == "task" else _by_spark
    total = writes(spark, reading, tasks, os.fspath(out), compression, overwrite)
    return Summary(**{**asdict(total), "seconds": time.perf_counter() - begun})


def _by_tasks(spark: SparkSession, reading: Reading, tasks: list[list[Slice]], out: str, compression: str,
              overwrite: bool) -> Summary:
    if URL.match(out):
        raise ValueError(f"the tasks write to a file system, not to {out}: give writer='spark'")
    with Output(os.path.abspath(out), overwrite) as output:
        def written(slices: list[Slice]) -> Iterator[pa.RecordBatch]:
            task = TaskContext.get()
            part = output.part(task.partitionId(), f"{task.taskAttemptId()}")
            summary = write(slices, part, format=reading.format, columns=reading.columns, compression=compression,
                            errors=reading.errors, check=reading.check, limits=reading.limits)
            yield pa.RecordBatch.from_pylist([{"part": part, **asdict(summary)}], schema=DONE)

        rows = [row.asDict() for row in over(spark, tasks, written, struct_of(DONE)).collect()]
        done = {row.pop("part"): Summary(**row) for row in rows}
        return output.commit(done)


def _by_spark(spark: SparkSession, reading: Reading, tasks: list[list[Slice]], out: str, compression: str,
              overwrite: bool) -> Summary:
    local = not URL.match(out)
    if local:
        out = os.path.abspath(out)
        Output(out, overwrite)                  # refuses what is not to be written over
    total = spark.sparkContext.accumulator(Summary(), _Sum())
    frame = over(spark, tasks, lambda slices: _counted(reading, slices, total.add), reading.struct)
    mode = "overwrite" if overwrite or local else "errorifexists"
    frame.write.mode(mode).option("compression", compression).parquet(out)
    size = sum(part.stat().st_size for part in Path(out).glob("*.parquet")) if local else 0
    return total.value + Summary(written=size)


def _counted(reading: Reading, slices: Sequence[Slice], count: Callable[[Summary], None]) -> Iterator[pa.RecordBatch]:
    """The batches of some slices; `count` is told what is in each table."""
    for done, batches in counted(slices, format=reading.format, columns=reading.columns, errors=reading.errors,
                                 check=reading.check, limits=reading.limits):
        count(done)
        yield from batches


class _Sum(AccumulatorParam):
    """Adds summaries up; Spark counts each task of the last stage once, also where it ran twice."""

    def zero(self, value: Summary) -> Summary:
        return Summary()

    def addInPlace(self, one: Summary, other: Summary) -> Summary:
        return one + other
