"""The faults of files as a DataFrame: where each bad frame is, and what is wrong with it."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from wirescan import faults as table
from wirescan.limits import Limits
from wirescan.partition import Plan, Slice
from wirescan.spark.planning import planned
from wirescan.spark.reading import Paths, Reading, over, plainly, struct_of


def faults(spark: SparkSession, paths: Paths, format: str = "kafka.records", *, check: bool = True,
           filters: Sequence[tuple[Any, ...]] = (), bytes_per_partition: int | None = None,
           limits: Limits = Limits()) -> DataFrame:
    """The bad frames in files as a DataFrame, one row each, with the columns file, start, size, format, fault, meaning
    and near, as `wirescan.faults` explains them: what `to_parquet` writes to `_faults`, too.

    The good frames do not leave the tasks. The arguments are as of `wirescan.spark.read`, and so is what is raised.
    """
    reading = Reading(format, None, "mark", check, limits, tuple(filters))
    return found(spark, planned(spark, reading, paths, bytes_per_partition), reading)


def found(spark: SparkSession, plan: Plan, reading: Reading) -> DataFrame:
    """The same of a plan; of the frames in lists, such as headers, those that belong to the columns of the reading."""
    def told(slices: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
        with plainly():
            for path, frames in replace(reading, errors="mark").located(slices):
                batch = table.to_batch(frames, path, reading.columns)
                if batch.num_rows:
                    yield batch
    return over(spark, plan, told, struct_of(table.SCHEMA))
