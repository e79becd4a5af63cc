"""The data source `wirescan`: spark.read.format("wirescan").option("format", "kafka.records").load(path)

    path, paths         files, globs and directories            load("a"), load(["a", "b"])
    format              a name of wirescan.formats()            kafka.records
    columns             names, separated by commas              the default columns of the format
    errors              strict, mark or skip                    strict
    check               whether checksums are verified          true
    bytesPerPartition   bytes of files in one task              128m; as a number, or with k, m or g; in a local
                        session of wirescan as many as give each core as much, at most 512m, if none are given
    pushdown            whether filters of the query are used   false; needs spark.sql.python.filterPushdown.enabled
                        to open, and read, less of the files

In a stream (`spark.readStream`), which goes on with what files grow by:

    maxBytesPerTrigger, maxFilesPerTrigger      what is taken in at a time          all that is there
    failOnDataLoss                              whether a file may be gone before it was read       true: it may not

Or a topic of a live Kafka cluster, as it is when the query is planned:

    bootstrap.servers   host:port, several by commas
    topic               its name, several by commas
    partitions          numbers, separated by commas        all
    start, stop         an offset, earliest or latest       earliest and latest; stop is not in it
    startTime, stopTime instead of them: milliseconds since 1970, or ISO 8601
    isolation           read_uncommitted or read_committed  read_uncommitted
    recordsPerPartition offsets in one task, about          1000000
    security.protocol   PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; with ssl.ca.location (a PEM file),
                        sasl.mechanism, sasl.username, sasl.password
    columns, errors, check as above; there are the columns topic and partition too
    (bootstrap.servers and the security options may have a `kafka.` before them, as in Spark's own source)

A schema given with `.schema(...)` chooses and orders the columns: Spark tells a Python source of no other pruning.
"""
from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from wirescan.partition import SLICE_BYTES
from wirescan.spark import topic
from wirescan.spark.reading import LOCAL, TASK_BYTES, Reading, arrow_of, plainly, settle
from wirescan.spark.topic import TopicReading

OPTIONS = ("path", "paths", "format", "columns", "errors", "check", "bytesPerPartition", "pushdown")
STREAM_OPTIONS = ("maxBytesPerTrigger", "maxFilesPerTrigger", "failOnDataLoss")
SIZE = re.compile(r"(\d+)([kmg]?)b?", re.IGNORECASE)
UNITS = {"": 0, "k": 10, "m": 20, "g": 30}
AnyReading = TypeVar("AnyReading", Reading, TopicReading)


class WirescanSource(DataSource):
    """The data source; see the module's text for its options."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "wirescan"

    @plainly()
    def schema(self) -> StructType:
        """The columns of the format, or those of the option `columns`. Raises ValueError for unfit options."""
        return reading_of(self.options).struct

    @plainly()
    def reader(self, schema: StructType) -> WirescanReader:
        """A reader of the columns that `schema` names. Raises ValueError for one that there is not."""
        if topic.flag(self.options, "pushdown", False):
            if not hasattr(DataSourceReader, "pushFilters"):
                raise ValueError("option pushdown needs Spark 4.1")
            from wirescan.spark.pushdown import PushdownReader
            return PushdownReader(self.options, schema)
        return WirescanReader(self.options, schema)

    @plainly()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of files that grow, for `spark.readStream`. Raises ValueError as `reader`."""
        from wirescan.spark.stream import StreamReader
        return StreamReader(self.options, schema)


class WirescanReader(DataSourceReader):
    """Cuts files into slices, or topics into ranges, on the driver, and reads some in each task."""

    def __init__(self, options: Mapping[str, str], schema: StructType):
        self._reading = chosen(reading_of(options), schema)
        self._schema = arrow_of(schema)
        self._plan = topic.plan_of(options) if topic.is_topic(options) else plan_of(options)

    @plainly()
    def partitions(self) -> list[InputPartition]:
        """One for each task, with its slices or ranges."""
        settle()                    # this worker plans the next query too
        return [InputPartition(parts) for parts in self._reading.plan(*self._plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task."""
        if getattr(partition, "value", None) is None:       # what Spark makes of an empty plan; 4.0 passes None
            return
        for batch in self._reading.batches(partition.value):
            settle()
            yield batch if batch.schema.equals(self._schema) else batch.cast(self._schema)      # NOT NULL columns


def register(spark: SparkSession) -> None:
    """Make the data source `wirescan` known to a session; `wirescan.spark.session` does so itself."""
    spark.dataSource.register(WirescanSource)


def reading_of(options: Mapping[str, str]) -> Reading | TopicReading:
    """What the options of the data source say. Raises ValueError for an unknown name or an unfit value."""
    if topic.is_topic(options):
        return topic.reading_of(options)
    known = {name.lower() for name in (*OPTIONS, *STREAM_OPTIONS)}
    for name in options:
        if name.lower() not in known:
            raise ValueError(f"the data source wirescan has no option {name!r}, only "
                             f"{', '.join((*OPTIONS, *STREAM_OPTIONS))}")
    columns = options.get("columns")
    return Reading(options.get("format", "kafka.records"),
                   None if columns is None else tuple(name.strip() for name in columns.split(",")),
                   options.get("errors", "strict"), topic.flag(options, "check", True))


def chosen(reading: AnyReading, schema: StructType) -> AnyReading:
    """The reading of just the columns of `schema`. Raises ValueError unless each has its name and its type."""
    reading = replace(reading, columns=tuple(schema.names))
    for wanted, there in zip(schema.fields, reading.struct.fields):
        if wanted.dataType.simpleString() != there.dataType.simpleString():
            raise ValueError(f"column {wanted.name} of {reading.format} is {there.dataType.simpleString()}, "
                             f"not {wanted.dataType.simpleString()}")
    return reading


def plan_of(options: Mapping[str, str]) -> tuple[list[str], int]:
    """The arguments of `Reading.plan` in the options."""
    size = size_of(options.get("bytesPerPartition"), TASK_BYTES if LOCAL in os.environ else SLICE_BYTES)
    return paths_of(options), size


def paths_of(options: Mapping[str, str]) -> list[str]:
    """The paths given to `load`. Raises ValueError where there is none, or `paths` is no list of them."""
    try:
        paths = json.loads(options["paths"]) if "paths" in options else [options["path"]] if "path" in options else []
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError(f"option paths must be a list of texts in JSON, as load([...]) makes it, not "
                         f"{options['paths']!r:.80}")
    if not paths:
        raise ValueError("the data source wirescan needs a path: load(path)")
    return paths


def size_of(text: str | None, default: int = SLICE_BYTES) -> int:
    """Bytes of an option such as 67108864 or 64m. Raises ValueError for anything else, and for zero."""
    if text is None:
        return default
    found = SIZE.fullmatch(text.strip())
    if not found or not int(found[1]):
        raise ValueError(f"option bytesPerPartition must be a size such as 64m, not {text!r}")
    return int(found[1]) << UNITS[found[2].lower()]
