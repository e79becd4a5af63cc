"""Writes DataFrames as Kafka's partition directories: `df.write.format("wirescan")`.

    <directory>/<topic>-<partition>/<base offset, 20 digits>.log, with .index and .timeindex

`datasource.py` describes the options. The columns are those of Spark's own Kafka source:

    value       binary or string; null is a tombstone
    key         binary or string, optional
    headers     array<struct<key: string, value: binary>>, optional
    timestamp   timestamp, optional; null is no timestamp
    topic       string; or the option topic
    partition   int; without it, each task of Spark writes the partition of its own number
    offset      bigint; without it, the offsets of a partition begin at 0 and have no gaps

The tasks write into a directory of the job, <directory>/_temporary/<id>-future. When all tasks have
ended, the driver moves the partitions to their places, one after the other. So a task that is
retried writes no record twice, and a job whose tasks fail leaves nothing. Readers of <directory>
pass over the job's directory because of the end of its name, which is that of Kafka's directories
of replicas that are not in place yet.

Each partition appears in one step, and several partitions do not. A reader may see some of them
before the others, and a driver that is killed while it moves them leaves some at their places. The
mode "overwrite" takes two steps for each partition: the old one is moved to
<directory>/_temporary/<id>-future/<partition>.replaced, and the new one to its place. Between
them, a reader sees neither. After a kill, both are in that directory.

Driver and executors must share the file system.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from wirescan.core.arguments import I32
from wirescan.files.source import URL
from wirescan.frames.registry import format_of
from wirescan.frames.similar_names import hint_at_names
from wirescan.frames.table import FrameTable
from wirescan.kafka import encode_batches, scan
from wirescan.kafka.encode.records import CODECS
from wirescan.seglog.segment_writer import SegmentWriter
from wirescan.spark.datasource_options import parse_size
from wirescan.spark.run import hide_traceback, list_paths

BATCHES = "kafka.batches"
COLUMNS = ("key", "value", "headers", "timestamp", "topic", "partition", "offset")
IGNORED = ("timestampType",)  # of Spark's Kafka source: all times are written as CreateTime
OPTIONS = ("path", "topic", "codec", "segmentBytes", "batchBytes")
TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint"),
    "offset": ("bigint", "int"),
}
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
SEGMENT_BYTES = 1 << 30
BATCH_BYTES = 1 << 20
FUTURE = "-future"  # the end of names of directories that readers pass over
PROGRESS = "_temporary"  # in the directory, while a job runs; Spark's sinks use this name too


@dataclass
class WrittenPartitions(WriterCommitMessage):
    """What a task has written.

    folder: the task's directory. names: the partition directories in it.
    """

    folder: str
    names: tuple[str, ...]


@dataclass
class _Partition:
    """A partition that a task writes.

    writer: of its segments. offset: of the next record, if the rows state none; otherwise the
    lowest that may follow. size: bytes in the segment in progress; -1 before the first.
    """

    writer: SegmentWriter
    offset: int = 0
    size: int = -1


@dataclass
class _Run:
    """Rows of a batch that belong to one partition and have adjacent offsets."""

    topic: str
    partition: int
    rows: slice
    offset: int | None


@dataclass
class _Folder:
    """The partitions that a task writes, by their names."""

    path: str
    stack: ExitStack
    partitions: dict[str, _Partition] = field(default_factory=dict)

    def get(self, name: str) -> _Partition:
        """Return a partition, which is created if it is new."""
        if name not in self.partitions:
            directory = os.path.join(self.path, name)
            os.makedirs(directory)
            writer = self.stack.enter_context(SegmentWriter(directory, format_of(BATCHES)))
            self.partitions[name] = _Partition(writer)
        return self.partitions[name]


class SegmentSink(DataSourceArrowWriter):
    """Writes the rows of a DataFrame as segments. See the module's docstring.

    options: the options of the data source. schema: of the DataFrame. overwrite: replace partitions
    that are in the directory. Otherwise these are an error.

    Raises ValueError for an option or a column that is not allowed.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool):
        for name in options:
            if name.lower() not in map(str.lower, OPTIONS):
                raise ValueError(
                    f"the data source wirescan writes without an option {name!r}; it has "
                    f"{', '.join(OPTIONS)}"
                )
        if "path" not in options:
            raise ValueError("the data source wirescan needs a directory: save(path)")
        (self._directory,) = list_paths(options["path"])
        if URL.match(self._directory):
            raise ValueError(
                f"segments are written to a file system that driver and executors share, not to "
                f"{self._directory}"
            )
        self._topic = options.get("topic")
        self._codec = options.get("codec", "none")
        if self._codec not in CODECS:
            raise ValueError(
                f"option codec must be one of {', '.join(CODECS)}, not {self._codec!r}"
            )
        self._segment_bytes = int(
            parse_size(options.get("segmentBytes"), SEGMENT_BYTES, "segmentBytes")
        )
        self._batch_bytes = int(
            parse_size(options.get("batchBytes"), BATCH_BYTES, "batchBytes", largest=I32[1])
        )
        self._overwrite = overwrite
        self._progress = os.path.join(self._directory, PROGRESS, uuid4().hex + FUTURE)
        _check_schema(schema, has_topic=self._topic is not None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenPartitions:
        """Write the rows of a task into a directory of its own.

        Raises ValueError for rows that make no segment, and OSError.
        """
        with hide_traceback(), ExitStack() as stack:
            path = os.path.join(self._progress, uuid4().hex)
            folder = _Folder(path, stack)
            for batch in iterator:
                for run in self._iter_runs(batch):
                    self._write_run(folder, batch, run)
            return WrittenPartitions(path, tuple(folder.partitions))

    @hide_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Move the partitions of all tasks to their places. Raises ValueError and OSError."""
        written = [message for message in messages if isinstance(message, WrittenPartitions)]
        try:
            self._check_partitions(written)
            os.makedirs(self._directory, exist_ok=True)
            for message in written:
                for name in message.names:
                    self._move(os.path.join(message.folder, name), name)
        finally:
            self._clean_up()

    @hide_traceback()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have written."""
        self._clean_up()

    def _iter_runs(self, batch: pa.RecordBatch) -> Iterator[_Run]:
        """Yield the runs of a batch's rows."""
        count = batch.num_rows
        if not count:
            return
        names = batch.schema.names
        starts = np.zeros(count, bool)
        starts[0] = True
        topics = batch.column("topic") if "topic" in names else None
        partitions = _read_numbers(batch, "partition") if "partition" in names else None
        offsets = _read_numbers(batch, "offset") if "offset" in names else None
        if topics is not None:
            _check_for_nulls(topics, "topic")
            codes = topics.dictionary_encode().indices.to_numpy(zero_copy_only=False)
            starts[1:] |= codes[1:] != codes[:-1]
        if partitions is not None:
            starts[1:] |= partitions[1:] != partitions[:-1]
        if offsets is not None:
            starts[1:] |= offsets[1:] != offsets[:-1] + 1
        own_partition = _get_task_number() if partitions is None else 0
        bounds = [*np.flatnonzero(starts).tolist(), count]
        for first, stop in zip(bounds, bounds[1:]):
            yield _Run(
                str(self._topic if topics is None else topics[first].as_py()),
                own_partition if partitions is None else int(partitions[first]),
                slice(first, stop),
                None if offsets is None else int(offsets[first]),
            )

    def _write_run(self, folder: _Folder, batch: pa.RecordBatch, run: _Run) -> None:
        """Write some rows as batches of one partition."""
        if TOPIC.fullmatch(run.topic) is None or run.topic in (".", ".."):
            raise ValueError(f"{run.topic!r} is not the name of a topic")
        if run.partition < 0:
            raise ValueError(f"there is no partition {run.partition} of topic {run.topic}")
        if run.offset is not None and run.offset < 0:
            raise ValueError(f"there is no offset {run.offset} in a log")
        name = f"{run.topic}-{run.partition}"
        partition = folder.get(name)
        offset = partition.offset if run.offset is None else run.offset
        if offset < partition.offset:
            raise ValueError(
                f"offset {offset} of {name} follows offset {partition.offset - 1}: sort the rows, "
                'as in df.repartition("topic", "partition")'
                '.sortWithinPartitions("topic", "partition", "offset")'
            )
        rows = batch.slice(run.rows.start, run.rows.stop - run.rows.start)
        columns = dict(zip(rows.schema.names, rows.columns))
        try:
            data = encode_batches(
                columns["value"],
                keys=columns.get("key"),
                headers=columns.get("headers"),
                timestamps=columns.get("timestamp"),
                base_offset=offset,
                batch_bytes=self._batch_bytes,
                codec=self._codec,
            )
        except ValueError as error:
            # The message counts rows from the first row of this run.
            raise ValueError(f"rows of {name} from offset {offset} on: {error}") from None
        self._add(partition, scan(data, check=False))
        partition.offset = offset + rows.num_rows

    def _add(self, partition: _Partition, frames: FrameTable) -> None:
        """Write batches into the segment in progress, and into new ones where it is full."""
        ends = np.cumsum(frames["size"], dtype=np.int64)
        first = 0
        while first < len(frames):
            before = int(ends[first - 1]) if first else 0
            free = self._segment_bytes - partition.size if partition.size >= 0 else 0
            stop = int(np.searchsorted(ends, before + free, "right"))
            if stop <= first:  # the segment is full, or one large batch exceeds it
                partition.writer.start_segment(int(frames["base_offset"][first]))
                partition.size = 0
                stop = max(
                    int(np.searchsorted(ends, before + self._segment_bytes, "right")), first + 1
                )
            partition.writer.add(frames[first:stop])
            partition.size += int(ends[stop - 1]) - before
            first = stop

    def _check_partitions(self, written: Sequence[WrittenPartitions]) -> None:
        """Raise ValueError if two tasks wrote one partition, or if a partition exists."""
        names = [name for message in written for name in message.names]
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            raise ValueError(
                f"several tasks have rows of {', '.join(repeated[:3])}, whose order is not known: "
                'use df.repartition("topic", "partition")'
            )
        # A link to nothing is in the way too.
        existing = [name for name in names if os.path.lexists(os.path.join(self._directory, name))]
        if existing and not self._overwrite:
            raise ValueError(
                f"{self._directory} has {', '.join(sorted(existing)[:3])} already: write to "
                'another directory, or use mode("overwrite"), which replaces these partitions'
            )

    def _move(self, source: str, name: str) -> None:
        """Move a partition to its place, and replace the one that is there.

        If that fails, the one that was there is put back. Raises OSError.
        """
        target = os.path.join(self._directory, name)
        replaced = os.path.join(self._progress, f"{name}.replaced")
        is_replaced = os.path.lexists(target)
        if is_replaced:
            os.rename(target, replaced)
        try:
            os.rename(source, target)
        except OSError:
            if is_replaced:
                os.rename(replaced, target)
            raise
        shutil.rmtree(replaced, ignore_errors=True)

    def _clean_up(self) -> None:
        """Remove the directory of the job. Other jobs may have theirs beside it."""
        shutil.rmtree(self._progress, ignore_errors=True)
        parent = os.path.dirname(self._progress)
        if os.path.isdir(parent) and not os.listdir(parent):
            shutil.rmtree(parent, ignore_errors=True)


def _check_schema(schema: StructType, *, has_topic: bool) -> None:
    """Raise ValueError for columns that make no records."""
    names = [name for name in schema.names if name not in IGNORED]
    for name in names:
        if name not in COLUMNS:
            raise ValueError(
                f"segments of Kafka have no column {name!r}"
                + hint_at_names(name, COLUMNS, "they have")
            )
        kind = schema[name].dataType.simpleString()
        if kind not in TYPES[name]:
            raise ValueError(f"column {name} must be {' or '.join(TYPES[name])}, not {kind}")
    if "value" not in names:
        raise ValueError("a record needs the column value, which may be null")
    if has_topic == ("topic" in names):
        raise ValueError("give the topic as a column or as the option topic, and not both")


def _read_numbers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """Return a column of whole numbers. Raises ValueError for null."""
    column = batch.column(name)
    _check_for_nulls(column, name)
    return np.asarray(column.cast(pa.int64()))


def _check_for_nulls(column: pa.Array, name: str) -> None:
    """Raise ValueError if a column has a null. name: of the column."""
    if column.null_count:
        raise ValueError(f"column {name} has a null")


def _get_task_number() -> int:
    context: Any = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
