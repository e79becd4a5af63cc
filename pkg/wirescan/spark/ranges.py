"""`Ranges`: frames in files that are cut into tasks but not read yet.

Functions that need tables instead of rows take them: `map_partitions` and `aggregate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.reading.splits import Plan
from wirescan.spark.hadoop_settings import use_session
from wirescan.spark.plan import make_plan
from wirescan.spark.run import DEFAULT_FORMAT, Paths, Reading, find_format, list_paths


@dataclass(frozen=True)
class Ranges:
    """Frames in files, divided into tasks. `map_partitions` and `aggregate` take it.

    spark: the session; None in a task.
    reading: which frames to read, and how.
    plan: the slices of each task. str() reports their sizes, and the files that could not be cut.
    """

    spark: SparkSession | None
    reading: Reading
    plan: Plan

    def __reduce__(self) -> tuple[Any, ...]:
        return Ranges, (None, self.reading, self.plan)

    def read_tables(self, task: int) -> Iterator[FrameTable]:
        """Read the frames of one task in this process, and yield them in tables of some megabytes.

        task: the number of the task.

        Raises FrameError as `errors` says, OSError, and IndexError for an unknown task.
        """
        return (table for _, table in self.reading.read_tables(self.plan[task]))

    def __str__(self) -> str:
        return f"{self.reading.format}: {self.plan}"

    __repr__ = __str__


def ranges(
    spark: SparkSession,
    paths: Paths,
    format: str = DEFAULT_FORMAT,
    *,
    errors: str = "strict",
    check: bool = True,
    filters: Sequence[tuple[Any, ...]] = (),
    bytes_per_partition: int | None = None,
    limits: Limits = Limits(),
) -> Ranges:
    """Plan how tasks read the frames in files, for `map_partitions` and `aggregate`.

    It reads only the bytes that the plan needs.

    filters: tuples (column, op, value) that every row must pass, see `wirescan.reading.filters`.
        Files, byte ranges and batches that cannot match are not read.

    The other arguments are those of `wirescan.spark.read`.

    Raises ValueError for an unknown format, mode, column or operator, FileNotFoundError, OSError.
    """
    use_session(spark, list_paths(paths))
    format = find_format(paths, format)
    reading = Reading(format, None, errors, check, limits, filters)
    return Ranges(spark, reading, make_plan(spark, reading, paths, bytes_per_partition))
