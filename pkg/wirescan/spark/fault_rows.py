"""The bad frames in files as a DataFrame: where each frame is, and what is wrong with it.

`wirescan.spark.faults` is defined here. `to_parquet` writes the same rows beside its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from wirescan.export import fault_report
from wirescan.frames.limits import Limits
from wirescan.reading.splits import Plan, Slice
from wirescan.spark.hadoop_settings import use_session
from wirescan.spark.plan import make_plan
from wirescan.spark.run import (
    DEFAULT_FORMAT,
    Paths,
    Reading,
    find_format,
    hide_traceback,
    list_paths,
    make_struct,
    run_tasks,
)


def faults(
    spark: SparkSession,
    paths: Paths,
    format: str = DEFAULT_FORMAT,
    *,
    check: bool = True,
    filters: Sequence[tuple[Any, ...]] = (),
    bytes_per_partition: int | None = None,
    limits: Limits = Limits(),
) -> DataFrame:
    """Return the bad frames in files as a DataFrame with one row for each bad frame.

    The columns are file, start, size, format, fault, meaning and near.
    `wirescan.export.fault_report` describes them. `to_parquet` writes the same rows to
    `<out>.faults`. Good frames do not leave the tasks.

    The arguments and exceptions are those of `wirescan.spark.read`.
    """
    use_session(spark, list_paths(paths))
    format = find_format(paths, format)
    reading = Reading(format, None, "mark", check, limits, filters)
    return find_faults(spark, make_plan(spark, reading, paths, bytes_per_partition), reading)


def find_faults(spark: SparkSession, plan: Plan, reading: Reading) -> DataFrame:
    """Return the bad frames of a plan as a DataFrame, see `faults`.

    Bad frames in lists, such as headers, are included if the list is among the reading's columns.
    """

    def report(slices: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
        with hide_traceback():
            for path, frames in replace(reading, errors="mark").read_tables(slices):
                batch = fault_report.to_batch(frames, path, reading.columns)
                if batch.num_rows:
                    yield batch

    return run_tasks(spark, plan, report, make_struct(fault_report.SCHEMA))
