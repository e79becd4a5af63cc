"""The fast path: slices of files through `mapInArrow`, which costs the JVM less than a data source."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from wirescan.limits import Limits
from wirescan.spark.planning import planned
from wirescan.spark.reading import Paths, Reading, over


def read(spark: SparkSession, paths: Paths, format: str = "kafka.records", columns: Sequence[str] | None = None,
         errors: str = "strict", check: bool = True, filters: Sequence[tuple[Any, ...]] = (),
         bytes_per_partition: int | None = None, limits: Limits = Limits()) -> DataFrame:
    """The frames in files as a DataFrame, one row a frame.

    paths: files, globs and directories, which every executor can read. format: a name of `wirescan.formats()`.
    columns: names in the wanted order, as of `wirescan.arrow.schema`; each of them costs. errors: "strict": a task
    that meets bad bytes fails, and the message names file and offset; "mark": a bad frame is a row with its number in
    `fault` (its other numbers may be zero: filter by it); "skip": it is left out. check: verify checksums.
    filters: what rows have to pass, as [("offset", ">=", 1000), ("key", "==", b"a")], see `wirescan.filters`: what
    cannot hold such rows is not opened, and by names and indexes not even read.
    bytes_per_partition: bytes of files for one task, about; None: so many that each core has as much to do, at most
    512 MiB; through Spark Connect, which does not tell the cores, 128 MiB.

    Raises ValueError for an unknown format, column, mode or operator, TypeError for an unfit value of a filter,
    FileNotFoundError, OSError.
    """
    reading = Reading(format, columns, errors, check, limits, filters)
    return over(spark, planned(spark, reading, paths, bytes_per_partition), reading.batches, reading.struct)
