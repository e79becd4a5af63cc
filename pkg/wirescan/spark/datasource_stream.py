"""Growing files as a stream: `spark.readStream.format("wirescan").load(path)`.

`datasource.py` describes its options.

A frame is read when all its bytes are in the file. Files that were renamed or rotated continue at
the position that was reached, see `wirescan.reading.growing`. With Trigger.AvailableNow the query
reads the bytes that files had when it started, and ends.

Each batch writes an offset to the checkpoint. It has about 150 bytes for each file that grew in the
batch or may still grow, and for each directory with finished files: see
`wirescan.files.sealed_files`. Segments that a broker compacts become other files, and are read
again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from wirescan.export.table_parts import split_by_bytes
from wirescan.frames import to_arrow
from wirescan.frames.table import FrameTable
from wirescan.reading.growing import GrowingFiles
from wirescan.spark import kafka_topics
from wirescan.spark.datasource_options import (
    choose_columns,
    fit_payloads,
    parse_paths,
    parse_reading,
    parse_size,
)
from wirescan.spark.run import (
    BATCH_BYTES,
    Reading,
    hide_traceback,
    list_paths,
    make_arrow_schema,
)
from wirescan.spark.task_log import log_tables
from wirescan.spark.worker_setup import set_up

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # before Spark 4.2
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]  # in older versions only
        """Replaces the class of Spark 4.2."""


LIMITS = ("maxBytesPerTrigger", "maxFilesPerTrigger")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds on the driver how far files can be read, and reads parts of them in the tasks.

    options: the options of the data source. schema: the columns to read.

    Raises ValueError for an option or a column that is not allowed.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType):
        if kafka_topics.is_topic(options):
            raise ValueError(
                "the data source wirescan streams files; for a stream of topics use Spark's own "
                "data source kafka"
            )
        reading = fit_payloads(parse_reading(options), options)
        assert isinstance(reading, Reading)  # options without a topic
        self._reading = choose_columns(reading, schema)
        self._schema = make_arrow_schema(schema)
        lossless = kafka_topics.parse_flag(options, "failOnDataLoss", default=True)
        self._max_bytes, self._max_files = (
            parse_size(options.get(name), math.inf, name, "a number such as 1000 or 64m")
            for name in LIMITS
        )
        if not HAS_LIMITS and (self._max_bytes < math.inf or self._max_files < math.inf):
            raise ValueError(f"options {' and '.join(LIMITS)} need Spark 4.2")
        self._tail = GrowingFiles(
            list_paths(parse_paths(options)),
            reading.format,
            errors=reading.errors,
            check=reading.check,
            limits=reading.limits,
            size=parse_size(options.get("bytesPerPartition")),
            lossless=lossless,
        )
        # Spark before 4.2 does not pass the last offset, so it is kept here.
        self._last: Mapping[str, Any] = self.initialOffset()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before the first byte of all files."""
        return {"files": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much one batch may read, as the options say."""
        if self._max_bytes < math.inf:
            return ReadMaxBytes(int(self._max_bytes))
        if self._max_files < math.inf:
            return ReadMaxFiles(int(self._max_files))
        return ReadAllAvailable()

    @hide_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Ignore all bytes that are appended to files from now on."""
        self._tail.stop_growing()

    @hide_traceback()
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Mapping[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the offset up to which the files can be read.

        start: the previous offset; Spark before 4.2 does not pass it.
        limit: all available bytes, or the limits of the options.

        Raises FrameError for damage under "strict", and OSError.
        """
        max_bytes = self._max_bytes
        max_files = self._max_files
        if HAS_LIMITS and isinstance(limit, ReadAllAvailable):
            max_bytes = math.inf
            max_files = math.inf
        previous = self._last if start is None else start
        self._last = self._tail.find_latest(previous, max_bytes, max_files)
        return dict(self._last)

    @hide_traceback()
    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the size of the files and what is unread of them, for the progress of a query.

        `GrowingFiles.measure_backlog` describes the numbers. Spark calls it since 4.2.

        Raises OSError.
        """
        return self._tail.measure_backlog(self._last)

    @hide_traceback()
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return one partition for each task, with its parts of files. Raises OSError."""
        if not self._last["files"]:
            # The query was restarted during a batch, and Spark repeats this batch.
            self._last = end
        return [InputPartition(parts) for parts in self._tail.plan_tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of one task. Raises FrameError as `errors` says, and OSError."""
        set_up()
        with hide_traceback():
            parts = getattr(partition, "value", None) or ()
            tables = (item for part in parts for item in self._tail.read_tables(part, BATCH_BYTES))
            for path, table in log_tables(parts, tables, self._reading.errors):
                yield from self._iter_batches(path, table)

    def _iter_batches(self, path: str, table: FrameTable) -> Iterator[pa.RecordBatch]:
        """Yield the frames of a table as batches of the schema. path: the file's name now."""
        reading = self._reading
        for rows in split_by_bytes(table, BATCH_BYTES, reading.columns):
            batch = to_arrow.to_batch(
                rows,
                reading.columns,
                types="spark",
                file=path,
                errors=reading.errors,
                limits=reading.limits,
            )
            batch = reading.convert(reading.payloads.decode(batch))
            # The schemas differ if the user's schema has NOT NULL columns.
            yield batch if batch.schema.equals(self._schema) else batch.cast(self._schema)
