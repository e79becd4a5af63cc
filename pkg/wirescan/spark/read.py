"""The fast path: slices of files through `mapInArrow`, which costs the JVM less than a data source."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from wirescan.limits import Limits
from wirescan.partition import SLICE_BYTES, Slice
from wirescan.spark.reading import Paths, Reading, settle


def read(spark: SparkSession, paths: Paths, format: str = "kafka.records", columns: Sequence[str] | None = None,
         errors: str = "strict", check: bool = True, bytes_per_partition: int = SLICE_BYTES,
         limits: Limits = Limits()) -> DataFrame:
    """The frames in files as a DataFrame, one row a frame.

    paths: files, globs and directories, which every executor can read. format: a name of `wirescan.formats()`.
    columns: names in the wanted order, as of `wirescan.arrow.schema`; each of them costs. errors: "strict": a task
    that meets bad bytes fails, and the message names file and offset; "mark": a bad frame is a row with its number in
    `fault` (its other numbers may be zero: filter by it); "skip": it is left out. check: verify checksums.
    bytes_per_partition: bytes of files for one task, about.

    Raises ValueError for an unknown format, column or mode, FileNotFoundError, OSError.
    """
    reading = Reading(format, columns, errors, check, limits)
    return over(spark, reading.plan(paths, bytes_per_partition), reading.batches, reading.struct)


def over(spark: SparkSession, tasks: list[list[Slice]], call: Callable[[list[Slice]], Iterator[pa.RecordBatch]],
         struct: StructType) -> DataFrame:
    """What `call` makes of the slices of each task, as a DataFrame with one partition a task."""
    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                for batch in call(tasks[number]):
                    settle()
                    yield batch
    return spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(called, struct)
