"""The base of all ways into Spark: what to read, how to cut it into tasks, and what a task returns.

`read`, `ranges`, `to_parquet`, the data source and the mappings use this module.
"""

from __future__ import annotations

import errno
import os
import pickle
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from operator import attrgetter
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.export.batches import fit_payloads, iter_batches
from wirescan.files.source import URL, read_ahead, to_plain_path
from wirescan.files.store_connection import (
    FindOptions,
    get_default_options,
    set_default_options,
)
from wirescan.frames import to_arrow
from wirescan.frames.columns import check_distinct
from wirescan.frames.errors import check_mode
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.captures import choose_source_format
from wirescan.reading.chunked import iter_tables
from wirescan.reading.filters import check_filters
from wirescan.reading.splits import Cut, Plan, Slice, plan_tasks
from wirescan.spark import kafka_schema
from wirescan.spark.task_log import log_batches, log_tables
from wirescan.spark.worker_setup import set_up_for_batches

# The time zone of timestamps in `to_arrow_schema`. Spark before 4.2 has no such argument.
UTC = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
DEFAULT_FORMAT = "kafka.records"  # of every function and option that takes the name of a format
TASK_BYTES = 512 << 20  # bytes of files in one task at most; a task costs Spark about 50 ms
SLOTS = len(os.sched_getaffinity(0))  # tasks at a time, where Spark does not report them
DBFS = re.compile(r"dbfs:(?://(?=/)|(?=/(?!/)))", re.IGNORECASE)
LOCAL = "WIRESCAN_LOCAL"  # environment variable in a local session: tasks run on this machine only
BATCH_BYTES = 4 << 20  # bytes of files in one record batch: the JVM handles this size best

Task = TypeVar("Task")
# Tables, each with the path of its file; None for tables that are not from a file.
TablesOfFiles = Iterator[tuple[str | None, FrameTable]]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Reading:
    """Which frames to read, and how. Spark sends it to the tasks.

    format: a name of `wirescan.formats()`. Options may follow the name (`registry.format_of`).
    columns: their names, in order. None is the default of `wirescan.frames.to_arrow.make_schema`.
    errors, check, limits: the arguments of `wirescan.scan`.
    filters: the filters of `wirescan.reading.filters`. A row must pass all of them.
    payloads: the columns that are decoded, in Spark's types: see `payload_types.make_payloads`.
    kafka_columns: the columns of the result, which are those of Spark's Kafka source: see
        `kafka_schema`. `columns` are then what they are made of. None: they are `columns`.

    Raises ValueError for an unknown format, column, mode or operator, and for a column that is
    named twice; and TypeError for a filter's value of the wrong type.
    """

    format: str
    columns: Sequence[str] | None = None
    errors: str = "strict"
    check: bool = True
    limits: Limits = field(default_factory=Limits)
    filters: Sequence[tuple[Any, ...]] = ()
    payloads: PayloadColumns = field(default_factory=lambda: PayloadColumns({}), compare=False)
    kafka_columns: tuple[str, ...] | None = None
    # The options of URLs, which tasks need too: see `hadoop_settings`.
    store_options: FindOptions | None = field(
        default_factory=get_default_options, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        # The normalized name has absolute paths, because workers may run in another directory.
        object.__setattr__(self, "format", format_of(self.format).spec)
        object.__setattr__(self, "filters", check_filters(self.filters, format_of(self.format)))
        check_mode(self.errors, self.limits)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
            check_distinct(self.columns)
        # Raises ValueError for an unknown column.
        self.payloads.check(to_arrow.make_schema(self.format, self.columns, types="spark"))

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the batches, in Spark's types. `fit_payloads` comes before."""
        schema = to_arrow.make_schema(self.format, self.columns, types="spark")
        schema = self.payloads.make_schema(schema)
        if self.kafka_columns is None:
            return schema
        return kafka_schema.convert_schema(self.kafka_columns, schema)

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of `columns`, with decoded payloads, as a batch of the schema."""
        if self.kafka_columns is None:
            return batch
        return kafka_schema.convert_batch(self.kafka_columns, batch)

    @property
    def struct(self) -> StructType:
        """Return the schema of the batches as a Spark schema."""
        return make_struct(self.schema)

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments that all functions which read slices have."""
        return {
            "errors": self.errors,
            "check": self.check,
            "limits": self.limits,
            "filters": self.filters,
        }

    def fit_payloads(self, slices: Iterable[Slice]) -> None:
        """Infer the types of payloads that are not known from the first rows of slices.

        Raises ValueError if no type can be inferred, FrameError as `errors` says, and OSError.
        """
        fit_payloads(self.payloads, self.format, slices, **self.options)

    def read_batches(self, slices: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
        """Yield the frames of slices in record batches of about BATCH_BYTES.

        Raises FrameError as `errors` says, and OSError.
        """
        set_default_options(self.store_options)
        with hide_traceback():
            batches = log_batches(slices, self._iter_batches(slices), self.errors)
            yield from map(self.convert, batches)

    def _read_ahead(self, slices: Sequence[Slice]) -> Iterator[Slice]:
        """Yield slices, and read the next objects of a store unless a filter may exclude parts."""
        return read_ahead(slices, attrgetter("path"), head=0 if self.filters else None)

    def _iter_batches(self, slices: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
        """Yield the frames of slices in record batches of `columns`."""
        for part in self._read_ahead(slices):
            yield from iter_batches(
                part.path,
                part.start,
                part.stop,
                format=self.format,
                columns=self.columns,
                batch_bytes=BATCH_BYTES,
                types="spark",
                tail=part.last,
                decode=self.payloads.decoders,
                **self.options,
            )

    def read_tables(self, slices: Sequence[Slice]) -> Iterator[tuple[str, FrameTable]]:
        """Yield the frames of slices as tables, each with the path of its file.

        Raises FrameError as `errors` says, and OSError.
        """
        return log_tables(slices, self._iter_tables(slices), self.errors)

    def _iter_tables(self, slices: Sequence[Slice]) -> Iterator[tuple[str, FrameTable]]:
        """Yield the frames of slices as tables, each with the path of its file."""
        set_default_options(self.store_options)
        for part in self._read_ahead(slices):
            for table in iter_tables(
                part.path,
                part.start,
                part.stop,
                format=self.format,
                tail=part.last,
                **self.options,
            ):
                yield part.path, table

    def plan(
        self,
        paths: Paths,
        size: int,
        cut: Cut | None = None,
        slots: int = SLOTS,
        rounds: int = 1,
    ) -> Plan:
        """Return the slices of each task: about `size` bytes for one task.

        cut, slots, rounds: the arguments of `splits.plan_tasks`.

        Raises ValueError for a size below 1, and OSError.
        """
        return plan_tasks(
            list_paths(paths),
            self.format,
            size,
            filters=self.filters,
            errors=self.errors,
            limits=self.limits,
            cut=cut,
            slots=slots,
            rounds=rounds,
        )


def make_reading(
    format: str,
    columns: Sequence[str] | None,
    schema: str | None,
    *,
    include_headers: bool = False,
    errors: str = "strict",
    **options: Any,
) -> Reading:
    """Return a reading of the columns of a format, or of those of Spark's Kafka source.

    schema: "kafka" or None. include_headers: with "kafka", there is the column `headers`.
    The other arguments are those of `Reading`.

    Raises ValueError and TypeError for unfit arguments.
    """
    if schema is None:
        if include_headers:
            raise ValueError("includeHeaders is for schema=kafka; other columns are named")
        return Reading(format, columns, errors, **options)
    if schema != kafka_schema.NAME:
        raise ValueError(f"the schema can be {kafka_schema.NAME!r}, not {schema!r}")
    if format_of(format).name != DEFAULT_FORMAT:
        raise ValueError(f"schema={schema} is for {DEFAULT_FORMAT}, not {format}")
    if errors == "mark":
        raise ValueError(
            f"schema={schema} has no column for the faults of errors=mark: use strict or skip"
        )
    names = kafka_schema.list_columns(columns, include_headers=include_headers)
    sources = kafka_schema.list_sources(names)
    return Reading(format, sources, errors, kafka_columns=names, **options)


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Report an error in the input or in an option in one line, without a Python traceback.

    It works in a Python worker of Spark. When the worker reports the error, Spark reads an
    environment variable, which is set here. The worker ends with the error.
    """
    try:
        yield
    except (OSError, EOFError, ValueError):  # FrameError is a ValueError
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def run_tasks(
    spark: SparkSession,
    tasks: Sequence[Task],
    call: Callable[[Task], Iterator[pa.RecordBatch]],
    struct: StructType,
) -> DataFrame:
    """Return the batches that `call` makes of each task as a DataFrame, one partition for a task.

    spark: the session.
    tasks: the argument of `call` for each task, such as a list of slices.
    call: runs in the tasks.
    struct: the schema of its batches.
    """
    # Every worker gets all tasks, and there may be many files. So each task is compressed, and a
    # worker decompresses only its own tasks.
    packed = [zlib.compress(pickle.dumps(task)) for task in tasks]
    store_options = get_default_options()

    def run_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        set_default_options(store_options)
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                task = pickle.loads(zlib.decompress(packed[number]))
                yield from set_up_for_batches(call(task))

    return spark.range(0, len(packed), 1, max(len(packed), 1)).mapInArrow(run_numbers, struct)


def make_struct(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as a Spark schema. Timestamps are instants, as in the protocols."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def make_arrow_schema(struct: StructType) -> pa.Schema:
    """Return a Spark schema as the Arrow schema that Spark requires of record batches."""
    return to_arrow_schema(struct, **UTC)


def list_paths(paths: Paths) -> list[str]:
    """Return one path or several as a list of URLs and absolute paths.

    The paths are absolute because workers may run in another directory. Paths may be spelled as
    Spark spells them: file:/x, file:///x, dbfs:/x, s3a://bucket/x.

    Raises FileNotFoundError for an empty path, which would be the current directory.
    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    result = []
    for path in several:
        if not os.fspath(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        name = _mount_dbfs(to_plain_path(path))
        result.append(name if URL.match(name) else os.path.abspath(name))
    return result


def find_format(paths: Paths, format: str) -> str:
    """Return the name of the format to read paths in: that of captures if the first is a capture.

    The driver reads the first bytes of the first file. Raises ValueError for an unknown format, and
    for a capture and a format whose frames are not sent over connections.
    """
    return choose_source_format(format, list_paths(paths))


def _mount_dbfs(path: str) -> str:
    """Return the path at which Databricks mounts a path of DBFS; any other path unchanged."""
    match = DBFS.match(path)
    if match is None:
        return path
    rest = path[match.end() :]
    return rest if rest.startswith("/Volumes/") else f"/dbfs{rest}"
