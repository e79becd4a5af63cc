"""What is to be read, cut into tasks but not read yet: for functions that take tables instead of rows."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from wirescan.limits import Limits
from wirescan.partition import Plan
from wirescan.spark.planning import planned
from wirescan.spark.reading import Paths, Reading
from wirescan.table import FrameTable


@dataclass(frozen=True)
class Ranges:
    """Frames in files, shared out to tasks; `map_partitions` and `aggregate` take it, `ranges` makes it.

    spark: the session; None where they travelled to a task. reading: which frames, and how they are read. plan: the
    slices of each task; str() says how large they are, and what could not be cut.
    """
    spark: SparkSession | None
    reading: Reading
    plan: Plan

    def __reduce__(self) -> tuple[Any, ...]:
        return Ranges, (None, self.reading, self.plan)

    def tables(self, task: int) -> Iterator[FrameTable]:
        """The frames of a task, by its number, in tables of some megabytes, read here and now. Raises FrameError as
        `errors` says, OSError, IndexError for a task that there is not."""
        return (table for _, table in self.reading.located(self.plan[task]))

    def __str__(self) -> str:
        return f"{self.reading.format}: {self.plan}"

    __repr__ = __str__


def ranges(spark: SparkSession, paths: Paths, format: str = "kafka.records", *, errors: str = "strict",
           check: bool = True, filters: Sequence[tuple[Any, ...]] = (), bytes_per_partition: int | None = None,
           limits: Limits = Limits()) -> Ranges:
    """The frames in files, for `map_partitions` and `aggregate`; nothing but what planning needs is read.

    filters: (column, op, value) that all have to hold, see `wirescan.filters`: files, byte ranges and batches that
    cannot match are passed over. The other arguments are as of `wirescan.spark.read`.

    Raises ValueError for an unknown format, mode, column or operator, FileNotFoundError, OSError.
    """
    reading = Reading(format, None, errors, check, limits, filters)
    return Ranges(spark, reading, planned(spark, reading, paths, bytes_per_partition))
