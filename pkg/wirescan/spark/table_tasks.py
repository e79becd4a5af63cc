"""Frames to a Delta Lake or Iceberg table: `wirescan.spark.to_table`.

The tasks write Parquet files with names of their own. Then the driver commits one transaction that
names the files of the tasks whose results Spark took. So nothing is renamed, and no file system is
shared: an object store is enough.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from wirescan.decoding.decoder import Decoder
from wirescan.export.hive_layout import Key, Layout
from wirescan.export.parquet import Summary, write_counted
from wirescan.export.parquet_writer import COMPRESSION, FILE_BYTES, Sink, check_compression
from wirescan.frames.limits import Limits
from wirescan.reading.splits import Slice
from wirescan.spark.delta_commit import DeltaTarget, describe_file
from wirescan.spark.hadoop_settings import use_session
from wirescan.spark.iceberg_commit import IcebergTarget
from wirescan.spark.payload_types import make_payloads
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
from wirescan.spark.store_files import StoreFiles
from wirescan.spark.written_data import DATA, WrittenData

MODES = ("append", "overwrite")
COUNTS = ("files", "frames", "records", "bytes", "faults", "tail", "written")
RESULT = pa.schema(
    [*((name, pa.int64()) for name in COUNTS), ("seconds", pa.float64()), ("data", pa.list_(DATA))]
)


class TableTarget(Protocol):
    """A table that files can be added to."""

    files: StoreFiles
    layout: Layout
    file_schema: pa.Schema

    def commit(self, written: Sequence[WrittenData], *, overwrite: bool) -> None:
        """Make the rows of the files those of the table, or add them."""


def to_table(
    spark: SparkSession,
    paths: Paths,
    table: str | os.PathLike[str],
    format: str = DEFAULT_FORMAT,
    columns: Sequence[str] | None = None,
    errors: str = "strict",
    *,
    catalog: Any = None,
    mode: str = "append",
    partition_by: str | Sequence[str] = (),
    check: bool = True,
    bytes_per_partition: int | None = None,
    limits: Limits = Limits(),
    compression: str = COMPRESSION,
    file_bytes: int = FILE_BYTES,
    filters: Sequence[tuple[Any, ...]] = (),
    decode: Mapping[str, str | Decoder] | None = None,
) -> Summary:
    """Write the frames in files to a Delta Lake or Iceberg table, and return a summary.

    The rows become visible together, in one transaction. A job that fails changes nothing that
    readers see. Every row is written once, also if a task runs several times.

    spark: the session.
    table: without a catalog, the directory of a Delta table as a URL or as a path that the driver
        and all executors share. With a catalog, the name of an Iceberg table, such as
        "logs.orders". A table that does not exist is created.
    catalog: a catalog of pyiceberg, or the name of one in pyiceberg's configuration. Only the
        driver uses it.
    mode: "append" adds the rows. "overwrite" replaces all rows of the table in the same
        transaction.
    partition_by: as in `to_parquet`. `wirescan.spark.delta_commit` and
        `wirescan.spark.iceberg_commit` say what becomes of it. A table that exists has to be
        partitioned in the same way.
    file_bytes: bytes of one file; after these, another file is begun.

    The other arguments are those of `wirescan.spark.read`. Under "skip" bad frames are discarded
    and counted. `wirescan.spark.faults` lists them.

    Raises ValueError for arguments that are not allowed, and for a table with other columns or
    partitions; ModuleNotFoundError without deltalake or pyiceberg; OSError; and Spark's
    PythonException for the exceptions of a task. If the commit itself fails, the files of the job
    remain, because they may belong to the table.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    check_compression(compression)
    begun = time.perf_counter()
    table = os.fspath(table)
    if catalog is None:
        (table,) = list_paths(table)
    use_session(spark, [*list_paths(paths), table])
    payloads = make_payloads(decode)
    format = find_format(paths, format)
    reading = Reading(format, columns, errors, check, limits, filters, payloads)
    layout = Layout.from_columns(format, columns, partition_by)
    payloads.check(layout.stored_schema)
    plan = make_plan(spark, reading, paths, bytes_per_partition)
    reading.fit_payloads(plan.slices)
    layout = replace(layout, payloads=payloads, has_directories=False)
    target: TableTarget
    if catalog is not None:
        target = IcebergTarget(table, layout, catalog)
    else:
        target = DeltaTarget(table, layout)
    summary, written = _write_in_tasks(
        spark, reading, target, plan, compression=compression, file_bytes=file_bytes
    )
    if written or mode == "overwrite":
        target.commit(written, overwrite=mode == "overwrite")
    target.files.remove_others({part.path for part in written})
    files = len({part.path for part in plan.slices})
    return replace(summary, files=files, seconds=time.perf_counter() - begun)


def _write_in_tasks(
    spark: SparkSession,
    reading: Reading,
    target: TableTarget,
    plan: Sequence[list[Slice]],
    *,
    compression: str,
    file_bytes: int,
) -> tuple[Summary, list[WrittenData]]:
    """Write the data files, and return what was written. If that fails, the files are removed."""
    files, layout, schema = target.files, target.layout, target.file_schema
    options = reading.options

    def write(slices: list[Slice]) -> Iterator[pa.RecordBatch]:
        with hide_traceback():
            summary, written = write_files(
                slices, files, layout, schema, compression, file_bytes, options
            )
        row = asdict(summary) | {"data": [part._asdict() for part in written]}
        yield pa.RecordBatch.from_pylist([row], schema=RESULT)

    try:
        results = run_tasks(spark, plan, write, make_struct(RESULT)).collect()
    except BaseException:
        files.remove_others(())
        raise
    rows = [row.asDict(recursive=True) for row in results]
    written = [WrittenData(**part) for row in rows for part in row.pop("data")]
    summary = sum((Summary(**row) for row in rows), Summary())
    return replace(summary, written=sum(part.written for part in written)), written


def write_files(
    slices: Sequence[Slice],
    files: StoreFiles,
    layout: Layout,
    schema: pa.Schema,
    compression: str,
    file_bytes: int,
    options: Mapping[str, Any],
) -> tuple[Summary, list[WrittenData]]:
    """Write the frames of some slices to data files, and return a summary and the files.

    schema: of the files. options: those of `write_counted`, whose errors this function raises too.
    """
    begun = time.perf_counter()
    keys: dict[str, Key] = {}
    # The names have no directories: readers of tables take the values of partitions from the table.
    sink = Sink(files.make_name, compression, file_bytes, open_file=files.open_file, schema=schema)
    total = Summary()
    with files.name_errors(), sink:
        for summary, batches, _ in write_counted(slices, layout, **options):
            total += summary
            for key, batch in batches:
                group = repr(key)  # a text for each key; no path is made of it
                keys[group] = key
                sink.add(group, batch)
    written = [
        WrittenData(
            part.path,
            keys[part.directory],
            part.records,
            part.written,
            describe_file(sink.metadata[number]),
        )
        for number, part in enumerate(sink.parts)
    ]
    return replace(total, seconds=time.perf_counter() - begun), written
