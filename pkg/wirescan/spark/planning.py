"""Plans whose first pass runs in Spark: where much has to be walked over, tasks do it. They write sidecars, too."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from wirescan import sidecar
from wirescan.partition import SLICE_BYTES, Cut, Plan, files_of, starts_by_threads, starts_of
from wirescan.source import URL, File, beside
from wirescan.spark.reading import TASK_BYTES, Paths, Reading, over, path_list, struct_of

WALKED_BYTES, WALKED_FILES = 1 << 30, 1000      # the most that the driver walks over by itself
PASSES = 256                                    # tasks of the first pass, at the most
FOUND = pa.schema([("file", pa.int64()), ("starts", pa.list_(pa.int64()))])


def planned(spark: SparkSession, reading: Reading, paths: Paths, size: int | None) -> Plan:
    """What each task of a job reads: as `wirescan.partition.tasks`, with the first pass of `cutter`. There are as many
    tasks as run at a time, or a multiple, where Spark tells how many; then they have up to TASK_BYTES unless a size is
    given. Raises ValueError for a size below 1, OSError, and Spark's PythonException for what a task raises."""
    slots = spark.sparkContext.defaultParallelism if hasattr(spark, "sparkContext") else None      # Connect has none
    if size is None:
        size = TASK_BYTES if slots else SLICE_BYTES
    return reading.plan(paths, size, cutter(spark, reading.format), slots or 1)


def index(spark: SparkSession, paths: Paths, format: str = "kafka.records") -> int:
    """Write a sidecar beside each file (see `wirescan.sidecar`), in tasks; returns how many there are.

    Raises ValueError for an unknown format, OSError, and Spark's PythonException for what a task raises.
    """
    return len(_in_tasks(spark, files_of(path_list(paths), format), partial(sidecar.write, format=format)))


def cutter(spark: SparkSession, format: str) -> Cut:
    """What finds cuts for `wirescan.partition.tasks`: where the files without an index and without a sidecar are more
    than a thousand, or have more than a GiB together, a job walks over them, each file in one task."""
    def cut(files: Sequence[File], size: int) -> list[list[int]]:
        walked = [number for number, file in enumerate(files) if not _is_told(file.path)]
        if len(walked) <= WALKED_FILES and sum(files[number].size for number in walked) <= WALKED_BYTES:
            return starts_by_threads(files, size, format)
        done = dict(zip(walked, _in_tasks(spark, [files[number] for number in walked],
                                          partial(starts_of, size=size, format=format))))
        told = [number for number in range(len(files)) if number not in done]
        done |= zip(told, starts_by_threads([files[number] for number in told], size, format))
        return [done[number] for number in range(len(files))]
    return cut


def _is_told(path: str) -> bool:
    """Whether a file beside this one is likely to tell where frames begin. A store is not asked: so do the tasks."""
    return not URL.match(path) and any(map(os.path.exists, (beside(path, ".index"), sidecar.path_of(path))))


def _in_tasks(spark: SparkSession, files: Sequence[File], starts: Callable[[str], list[int]]) -> list[list[int]]:
    """What `starts` finds in each file."""
    def found(share: list[tuple[int, str]]) -> Iterator[pa.RecordBatch]:
        for number, path in share:
            yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([starts(path)], FOUND.field("starts").type)],
                                             schema=FOUND)

    # The largest first, and dealt out in turns, so that the tasks end together.
    order = sorted(range(len(files)), key=lambda number: -files[number].size)
    passes = min(len(order), PASSES)
    shares = [[(number, files[number].path) for number in order[i::passes]] for i in range(passes)]
    done = {row.file: row.starts for row in over(spark, shares, found, struct_of(FOUND)).collect()}
    return [done[number] for number in range(len(files))]
