"""Files that grow, as a stream: `spark.readStream.format("wirescan").load(path)`, with the options of `source` and

    maxBytesPerTrigger  whole frames for one batch, about       none; as a number, or with k, m or g. Spark 4.2
    maxFilesPerTrigger  files for one batch                     none. Spark 4.2
    failOnDataLoss      whether files that are gone or cut      true
                        before they were read end the query

A frame is read when all of it is there. Files that are renamed or rolled go on where they were, see `wirescan.tailing`;
under Trigger.AvailableNow what the files held when the query began is read, and the query ends. An offset, which each
batch leaves in the checkpoint, has about 150 bytes for each file that is there. Segments that a broker compacts are
other files then, and read again.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from wirescan import arrow
from wirescan.spark import topic
from wirescan.spark.reading import BATCH_BYTES, Reading, arrow_of, path_list, plainly, settle
from wirescan.spark.source import SIZE, UNITS, chosen, paths_of, reading_of, size_of
from wirescan.tailing import Tail

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
    HAS_LIMITS = True
except ImportError:                         # before Spark 4.2
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:      # type: ignore[no-redef]
        """Stands for that of Spark 4.2."""

LIMITS = ("maxBytesPerTrigger", "maxFilesPerTrigger")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds on the driver how far files can be read, and reads parts of them in the tasks.

    options: of the data source. schema: the columns that are wanted. Raises ValueError for unfit ones."""

    def __init__(self, options: Mapping[str, str], schema: StructType):
        if topic.is_topic(options):
            raise ValueError("the data source wirescan streams files; for a stream of topics use Spark's own, kafka")
        reading = reading_of(options)
        assert isinstance(reading, Reading)
        self._reading, self._schema = chosen(reading, schema), arrow_of(schema)
        lossless = options.get("failOnDataLoss", "true").lower()
        if lossless not in ("true", "false"):
            raise ValueError(f"option failOnDataLoss must be true or false, not {lossless!r}")
        self._most = [_number(options, name) for name in LIMITS]
        if not HAS_LIMITS and self._most != [math.inf, math.inf]:
            raise ValueError(f"options {' and '.join(LIMITS)} need Spark 4.2")
        self._tail = Tail(path_list(paths_of(options)), reading.format, errors=reading.errors, check=reading.check,
                          limits=reading.limits, size=size_of(options.get("bytesPerPartition")),
                          lossless=lossless == "true")
        self._last: Mapping[str, Any] = self.initialOffset()        # Spark before 4.2 does not tell

    def initialOffset(self) -> dict[str, Any]:
        """Before the first byte of all files."""
        return {"files": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """What one batch may read, as the options say."""
        most_bytes, most_files = self._most
        if most_bytes < math.inf:
            return ReadMaxBytes(int(most_bytes))
        return ReadAllAvailable() if most_files == math.inf else ReadMaxFiles(int(most_files))

    @plainly()
    def prepareForTriggerAvailableNow(self) -> None:
        """What files hold from now on is left for another query."""
        self._tail.stop_growing()

    @plainly()
    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """How far the files can be read. Raises FrameError where they are damaged, OSError."""
        settle()
        most = (math.inf, math.inf) if HAS_LIMITS and isinstance(limit, ReadAllAvailable) else self._most
        self._last = self._tail.latest(self._last if start is None else start, *most)
        return dict(self._last)

    @plainly()
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """One for each task, with its parts of files. Raises OSError."""
        if not self._last["files"]:
            self._last = end                # the batch that was under way when the query was ended
        return [InputPartition(parts) for parts in self._tail.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task. Raises FrameError as `errors` says, OSError."""
        columns, errors, limits = self._reading.columns, self._reading.errors, self._reading.limits
        with plainly():
            for part in getattr(partition, "value", None) or ():
                for path, table in self._tail.tables(part, BATCH_BYTES):
                    for some in arrow.split(table, BATCH_BYTES, columns):
                        batch = arrow.to_batch(some, columns, types="spark", file=path, errors=errors, limits=limits)
                        settle()
                        yield batch if batch.schema.equals(self._schema) else batch.cast(self._schema)


def _number(options: Mapping[str, str], name: str) -> float:
    """Bytes or files of an option. Raises ValueError for anything but a number from 1 on, with k, m or g behind it."""
    text = options.get(name)
    if text is None:
        return math.inf
    found = SIZE.fullmatch(text.strip())
    if not found or not int(found[1]):
        raise ValueError(f"option {name} must be a number such as 1000 or 64m, not {text!r}")
    return int(found[1]) << UNITS[found[2].lower()]
