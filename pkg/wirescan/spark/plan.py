"""Plans of jobs. Where much must be scanned to find frame boundaries, Spark's tasks scan it.

`read`, `ranges`, `faults` and `to_parquet` plan with `make_plan`. `wirescan.spark.index`, which
writes boundary indexes in tasks, is defined here too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from wirescan.files import boundary_index
from wirescan.files.source import URL, File, make_sibling_path
from wirescan.frames.limits import Limits
from wirescan.reading.splits import (
    ROUNDS,
    SLICE_BYTES,
    Cut,
    Plan,
    find_starts,
    find_starts_in_threads,
    list_source_files,
)
from wirescan.spark.hadoop_settings import use_session
from wirescan.spark.run import (
    DEFAULT_FORMAT,
    TASK_BYTES,
    Paths,
    Reading,
    list_paths,
    make_struct,
    run_tasks,
)

# The driver scans at most so many bytes and files itself. A job scans more than that.
WALKED_BYTES = 1 << 30
WALKED_FILES = 1000
PASSES = 256  # tasks of the job that scans files, at most
STARTS = pa.schema([("file", pa.int64()), ("starts", pa.list_(pa.int64()))])


def make_plan(spark: SparkSession, reading: Reading, paths: Paths, size: int | None) -> Plan:
    """Return the slices of each task of a job.

    `wirescan.reading.splits.plan_tasks` makes them, with the function of `make_cutter`.

    The number of tasks is a multiple of the tasks that run at the same time, if Spark reports that
    number. The tasks have the same estimated work, and not the same bytes.

    size: bytes of files in one task, on average. None is TASK_BYTES at most if Spark reports how
        many tasks run at the same time, else SLICE_BYTES. Then there are up to ROUNDS tasks for
        each task that runs at the same time, if each takes about a second or more.

    Raises ValueError for a size below 1, OSError, and Spark's PythonException for the exceptions of
    a task.
    """
    # A session of Spark Connect has no SparkContext.
    slots = spark.sparkContext.defaultParallelism if hasattr(spark, "sparkContext") else None
    rounds = 1
    if size is None:
        size = TASK_BYTES if slots else SLICE_BYTES
        rounds = ROUNDS
    cut = make_cutter(spark, reading.format, reading.limits)
    return reading.plan(paths, size, cut, slots or 1, rounds)


def index(
    spark: SparkSession,
    paths: Paths,
    format: str = DEFAULT_FORMAT,
    *,
    limits: Limits = Limits(),
) -> int:
    """Write a boundary index beside each file, in Spark's tasks. Return how many were written.

    `wirescan.files.boundary_index` describes these files, which are called sidecars too.

    spark: the session.
    paths: files, globs and directories.
    format: a name of `wirescan.formats()`.
    limits: a frame above `limits.frame` counts as damaged, and a file has no starts after it.

    Raises ValueError for an unknown format, OSError, and Spark's PythonException for the exceptions
    of a task.
    """
    use_session(spark, list_paths(paths))
    files = list_source_files(list_paths(paths), format)
    write = partial(boundary_index.write, format=format, limits=limits)
    return len(_find_starts_in_tasks(spark, files, write))


def make_cutter(spark: SparkSession, format: str, limits: Limits) -> Cut:
    """Return the function that finds frame boundaries for `wirescan.reading.splits.plan_tasks`.

    It scans files that have no index and no sidecar. If these are more than WALKED_FILES, or have
    more than WALKED_BYTES together, a job scans them, each file in one task. A frame above
    `limits.frame` is damage.
    """

    def cut(files: Sequence[File], size: int) -> list[list[int]]:
        scanned = [number for number, file in enumerate(files) if not _has_index(file.path)]
        scanned_bytes = sum(files[number].size for number in scanned)
        if len(scanned) <= WALKED_FILES and scanned_bytes <= WALKED_BYTES:
            return find_starts_in_threads(files, size, format, limits)
        starts_in_file = partial(find_starts, size=size, format=format, limits=limits)
        by_tasks = _find_starts_in_tasks(
            spark, [files[number] for number in scanned], starts_in_file
        )
        starts = dict(zip(scanned, by_tasks))
        indexed = [number for number in range(len(files)) if number not in starts]
        indexed_files = [files[number] for number in indexed]
        starts |= zip(indexed, find_starts_in_threads(indexed_files, size, format, limits))
        return [starts[number] for number in range(len(files))]

    return cut


def _has_index(path: str) -> bool:
    """Return whether a file has an index or a sidecar beside it.

    It is False for a URL: the tasks ask the object store, not the driver.
    """
    beside = make_sibling_path(path, ".index"), boundary_index.make_sidecar_path(path)
    return not URL.match(path) and any(map(os.path.exists, beside))


def _find_starts_in_tasks(
    spark: SparkSession, files: Sequence[File], starts: Callable[[str], list[int]]
) -> list[list[int]]:
    """Return the result of `starts` for each file. A job of Spark calls it."""

    def find_starts(share: list[tuple[int, str]]) -> Iterator[pa.RecordBatch]:
        for number, path in share:
            row = {"file": number, "starts": starts(path)}
            yield pa.RecordBatch.from_pylist([row], schema=STARTS)

    # The tasks get the files in turns, the largest files first, so that they end together.
    order = sorted(range(len(files)), key=lambda number: -files[number].size)
    passes = min(len(order), PASSES)
    shares = [[(number, files[number].path) for number in order[i::passes]] for i in range(passes)]
    rows = run_tasks(spark, shares, find_starts, make_struct(STARTS)).collect()
    by_number = {row.file: row.starts for row in rows}
    return [by_number[number] for number in range(len(files))]
