"""What every way into Spark shares: what to read, how it is cut, and the batches that a task gets out of it."""
from __future__ import annotations

import gc
import os
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from wirescan import arrow
from wirescan.catalog import format_of
from wirescan.errors import check_mode
from wirescan.limits import Limits
from wirescan.partition import Cut, Plan, Slice, tasks
from wirescan.filters import Filter, checked
from wirescan.pieces import iter_tables
from wirescan.source import URL
from wirescan.table import FrameTable

UTC = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}    # no choice before Spark 4.2
TASK_BYTES = 512 << 20      # a task costs Spark some 50 ms
LOCAL = "WIRESCAN_LOCAL"    # in the environment of processes whose cores are all that there are
BATCH_BYTES = 4 << 20       # of files in a record batch: what the JVM handles best

Task = TypeVar("Task")
Located = Iterator[tuple[str | None, FrameTable]]       # tables, and the file that each is from
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Reading:
    """Which frames to read, and how. Travels to the tasks.

    format: a name of `wirescan.formats()`. columns: their names, in order; None for those of `wirescan.arrow.schema`.
    errors, check, limits: as of `wirescan.scan`. filters: as of `wirescan.filters`; rows have to pass all of them.
    Raises ValueError for a name, mode or operator that there is not, TypeError for an unfit value.
    """
    format: str
    columns: tuple[str, ...] | None = None
    errors: str = "strict"
    check: bool = True
    limits: Limits = field(default_factory=Limits)
    filters: tuple[Filter, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", checked(self.filters, format_of(self.format)))
        check_mode(self.errors, self.limits)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
        self.schema

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches, in Spark's types."""
        return arrow.schema(self.format, self.columns, types="spark")

    @property
    def struct(self) -> StructType:
        """The same as Spark's schema."""
        return struct_of(self.schema)

    def batches(self, slices: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
        """The frames of some slices, in batches of some megabytes. Raises FrameError as `errors` says."""
        with plainly():
            for one in slices:
                yield from arrow.iter_batches(one.path, one.start, one.stop, format=self.format, columns=self.columns,
                                              batch_bytes=BATCH_BYTES, errors=self.errors, check=self.check,
                                              limits=self.limits, types="spark", tail=one.last, filters=self.filters)

    def located(self, slices: Sequence[Slice]) -> Located:
        """The frames of some slices as tables, each with the path of its file. Raises FrameError as `errors` says."""
        for one in slices:
            for table in iter_tables(one.path, one.start, one.stop, format=self.format, errors=self.errors,
                                     check=self.check, limits=self.limits, tail=one.last, filters=self.filters):
                yield one.path, table

    def plan(self, paths: Paths, size: int, cut: Cut | None = None, slots: int = len(os.sched_getaffinity(0))) -> Plan:
        """What the tasks read, about `size` bytes each. cut, slots: as of `partition.tasks`."""
        return tasks(path_list(paths), size, self.format, filters=self.filters, errors=self.errors, cut=cut,
                     slots=slots)


@contextmanager
def plainly() -> Iterator[None]:
    """In a Python worker of Spark: what is wrong with the input or an option is told in a line, without a traceback.

    Spark looks into the environment for that when it hands the error on, and the worker ends with it."""
    try:
        yield
    except (OSError, EOFError, ValueError):         # FrameError is a ValueError
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def over(spark: SparkSession, tasks: Sequence[Task], call: Callable[[Task], Iterator[pa.RecordBatch]],
         struct: StructType) -> DataFrame:
    """What `call` makes of each task, slices say, as a DataFrame with one partition a task."""
    # Each task by itself, and small: all of them travel to every worker, and files may be many.
    packed = [zlib.compress(pickle.dumps(task)) for task in tasks]

    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                yield from settled(call(pickle.loads(zlib.decompress(packed[number]))))
    return spark.range(0, len(packed), 1, max(len(packed), 1)).mapInArrow(called, struct)


def settled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a task, in a worker of Spark: see `settle`."""
    for batch in batches:
        settle()
        yield batch


@cache
def settle() -> None:
    """Once in each worker, with its first batch: let the garbage collector pass over all that is loaded by now.

    Spark has every worker collect after every task, and one with pyarrow in it spends 20 ms on that. What the first
    task holds by then is never collected if it becomes garbage in a cycle.
    """
    gc.freeze()


def struct_of(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's: timestamps are instants, as they are on the wires."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_of(struct: StructType) -> pa.Schema:
    """Spark's schema as that which its bridge demands of Arrow batches."""
    return to_arrow_schema(struct, **UTC)


def path_list(paths: Paths) -> list[str]:
    """One path or several as a list of absolute ones, since workers may run in another directory."""
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [path if URL.match(path) else os.path.abspath(path) for path in map(os.fspath, several)]
