"""Frames to Parquet: `wirescan.spark.to_parquet`.

The tasks write the files with pyarrow, so rows do not pass through the JVM. Spark's own writer can
be used instead.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from wirescan.decoding.decoder import Decoder
from wirescan.export.hive_layout import Layout
from wirescan.export.parquet import Summary, write_counted, write_parts
from wirescan.export.parquet_writer import (
    COMPRESSION,
    FILE_BYTES,
    Output,
    WrittenFile,
    check_compression,
    find_small,
    make_faults_path,
    merge,
    replace_merged,
)
from wirescan.files.source import URL
from wirescan.frames.limits import Limits
from wirescan.reading.splits import Plan, Slice
from wirescan.spark.fault_rows import find_faults
from wirescan.spark.hadoop_settings import use_session
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
from wirescan.spark.store_output import StoreOutput

WRITERS = ("task", "spark")
# The start of a URL without a host, as Hadoop may spell it: file:/x is file:///x.
SINGLE_SLASH = re.compile(r"^(file|dbfs):(?=/(?!/))", re.IGNORECASE)
COUNTS = ("files", "frames", "records", "bytes", "faults", "tail", "written")
PART = pa.struct(
    [
        ("directory", pa.string()),
        ("path", pa.string()),
        ("records", pa.int64()),
        ("written", pa.int64()),
    ]
)
RESULT = pa.schema(
    [*((name, pa.int64()) for name in COUNTS), ("seconds", pa.float64()), ("parts", pa.list_(PART))]
)


def to_parquet(
    spark: SparkSession,
    paths: Paths,
    out: str | os.PathLike[str],
    format: str = DEFAULT_FORMAT,
    columns: Sequence[str] | None = None,
    compression: str = COMPRESSION,
    errors: str = "strict",
    *,
    check: bool = True,
    writer: str = "task",
    bytes_per_partition: int | None = None,
    limits: Limits = Limits(),
    overwrite: bool = False,
    partition_by: str | Sequence[str] = (),
    file_bytes: int = FILE_BYTES,
    filters: Sequence[tuple[Any, ...]] = (),
    decode: Mapping[str, str | Decoder] | None = None,
) -> Summary:
    """Write the frames in files to a directory of Parquet files, and return a summary.

    The files appear in the directory when all of them are written. Every row is written once, also
    if a task runs several times.

    spark: the session.
    out: a directory on a file system that the driver and every executor can write to, or the URL
        of a directory in an object store. In a store the files do not appear all at once:
        `wirescan.spark.store_output` describes how.
    writer: "task": pyarrow in the tasks, which writes files as `wirescan.export.parquet.convert`.
        "spark": Spark's own writer, which also writes to Hadoop's other file systems.
    overwrite: replace the files of an existing directory.
    partition_by: columns whose values name the directories, such as "kind" or "timestamp:day". See
        `wirescan.export.hive_layout`.
    file_bytes: bytes of one file; after these, another file is begun. A second job merges files
        that are smaller than a sixteenth of it. Only the writer "task" uses it.

    The other arguments are those of `wirescan.spark.read`. Under "skip" bad frames are discarded
    and counted. Under "mark" and "skip", the bad frames are also written as a table to the
    directory `<out>.faults`, if there are any. Its schema is that of `wirescan.spark.faults`.

    Raises FileExistsError for a directory with files unless `overwrite` is true, ValueError,
    TypeError, OSError, and Spark's PythonException for the exceptions of a task.
    """
    if writer not in WRITERS:
        raise ValueError(f"writer must be one of {', '.join(WRITERS)}, not {writer!r}")
    if writer == "task":
        check_compression(compression)
    begun = time.perf_counter()
    (directory,) = list_paths(out)
    use_session(spark, [*list_paths(paths), directory])
    payloads = make_payloads(decode)
    format = find_format(paths, format)
    reading = Reading(format, columns, errors, check, limits, filters, payloads)
    layout = Layout.from_columns(format, columns, partition_by)
    payloads.check(layout.stored_schema)
    plan = make_plan(spark, reading, paths, bytes_per_partition)
    reading.fit_payloads(plan.slices)
    layout = replace(layout, payloads=payloads)
    write = _write_with_spark
    if writer == "task":
        write = partial(_write_in_tasks, file_bytes=file_bytes)
    else:
        # Hadoop's file systems take the URL as it is.
        directory = SINGLE_SLASH.sub(r"\1://", os.fspath(out))
    summary = write(
        spark, reading, layout, plan, directory, compression=compression, overwrite=overwrite
    )
    files = len({part.path for part in plan.slices})
    return replace(summary, files=files, seconds=time.perf_counter() - begun)


def _write_in_tasks(
    spark: SparkSession,
    reading: Reading,
    layout: Layout,
    plan: Plan,
    out: str,
    *,
    compression: str,
    file_bytes: int,
    overwrite: bool,
) -> Summary:
    """Write Parquet files in the tasks, see `to_parquet`."""
    with _make_output(out, overwrite=overwrite) as output:

        def write_slices(slices: list[Slice]) -> Iterator[pa.RecordBatch]:
            with hide_traceback():
                summary, parts = write_parts(
                    slices,
                    _make_attempt_path(output),
                    layout,
                    compression=compression,
                    file_bytes=file_bytes,
                    open_file=output.open_file,
                    **reading.options,
                )
            row = asdict(summary) | {"parts": [part._asdict() for part in parts]}
            yield pa.RecordBatch.from_pylist([row], schema=RESULT)

        def merge_run(run: list[WrittenFile]) -> Iterator[pa.RecordBatch]:
            with hide_traceback():
                part = merge(
                    run,
                    f"{_make_attempt_path(output)}.parquet",
                    compression,
                    open_file=output.open_file,
                    open_input=output.open_input,
                )
            yield pa.RecordBatch.from_pylist([part._asdict()], schema=pa.schema(PART))

        results = run_tasks(spark, plan, write_slices, make_struct(RESULT)).collect()
        rows = [row.asDict(recursive=True) for row in results]
        parts = [WrittenFile(**part) for row in rows for part in row.pop("parts")]
        runs = find_small(parts, file_bytes)
        merged_rows = []
        if runs:
            merged_rows = run_tasks(spark, runs, merge_run, make_struct(pa.schema(PART))).collect()
        into = [WrittenFile(*row) for row in merged_rows]
        size = output.commit(replace_merged(parts, runs, into), layout.schema)
    return replace(sum((Summary(**row) for row in rows), Summary()), written=size)


def _make_output(out: str, *, overwrite: bool) -> Output | StoreOutput:
    """Return the output for a URL or an absolute path."""
    return (StoreOutput if URL.match(out) else Output)(out, overwrite=overwrite)


def _make_attempt_path(output: Output | StoreOutput) -> str:
    """Return the path for the files of this attempt of a task. No other attempt has this path."""
    task = TaskContext.get()
    return output.make_part_path(task.partitionId(), f"{task.taskAttemptId()}")


def _write_with_spark(
    spark: SparkSession,
    reading: Reading,
    layout: Layout,
    plan: Plan,
    out: str,
    *,
    compression: str,
    overwrite: bool,
) -> Summary:
    """Write Parquet files with Spark's own writer, see `to_parquet`."""
    is_local = not URL.match(out)
    if is_local:
        out = os.path.abspath(out)
        Output(out, overwrite=overwrite)  # raises for files that may not be replaced
    if not hasattr(spark, "sparkContext"):
        raise ValueError(
            "writer='spark' counts rows with accumulators, which Spark Connect does not have: "
            "use writer='task', or write the result of wirescan.spark.read"
        )
    path = spark._jvm.org.apache.hadoop.fs.Path(make_faults_path(out))
    file_system = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if not is_local and not overwrite and file_system.exists(path):
        raise FileExistsError(
            f"{make_faults_path(out)} has files in it; choose another directory, or overwrite it"
        )
    counted = spark.sparkContext.accumulator(Summary(), _SummaryAccumulator())
    schema = layout.schema
    keys = [key.name for key in layout.by]
    for name in keys:
        schema = schema.append(pa.field(name, pa.string()))
    frame = run_tasks(
        spark,
        plan,
        lambda slices: _count_and_read(reading, layout, schema, slices, counted.add),
        make_struct(schema),
    )
    writer = frame.write.mode("overwrite" if overwrite or is_local else "errorifexists")
    writer.option("compression", compression).partitionBy(*keys).parquet(out)
    size = sum(part.stat().st_size for part in Path(out).rglob("*.parquet")) if is_local else 0
    summary = counted.value + Summary(written=size)
    # The faults of an earlier output. Java's method takes no keywords: True means recursive.
    file_system.delete(path, True)  # noqa: FBT003
    if summary.faults:
        bad = find_faults(spark, plan, reading)
        bad.write.option("compression", compression).parquet(make_faults_path(out))
    return summary


def _count_and_read(
    reading: Reading,
    layout: Layout,
    schema: pa.Schema,
    slices: Sequence[Slice],
    count: Callable[[Summary], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of slices, with the keys of the layout as further columns.

    schema: the schema with these columns. count: is called with the summary of each table.

    Raises ValueError for a value that is too long for the name of a directory.
    """
    with hide_traceback():
        for piece in write_counted(slices, layout, **reading.options):
            count(piece.summary)
            for key, batch in piece.batches:
                layout.format_directory(key)  # raises for a value that Spark cannot write
                keys = [pa.repeat(pa.scalar(text, pa.string()), batch.num_rows) for text in key]
                if keys:
                    batch = pa.RecordBatch.from_arrays([*batch.columns, *keys], schema=schema)
                yield batch


class _SummaryAccumulator(AccumulatorParam):
    """Adds summaries. Spark counts each task of the last stage once, also if it ran twice."""

    def zero(self, value: Summary) -> Summary:
        """Return the summary of nothing."""
        return Summary()

    def addInPlace(self, summary: Summary, other: Summary) -> Summary:  # noqa: N802 - Spark's name
        """Return the sum of two summaries."""
        return summary + other
