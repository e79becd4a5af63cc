"""The data source `wirescan`: spark.read.format("wirescan").option("format", "kafka.records").load(path)

    path, paths         files, globs and directories            load("a"), load(["a", "b"])
    format              a name of wirescan.formats()            kafka.records
    columns             names, separated by commas              the default columns of the format
    errors              strict, mark or skip                    strict
    check               whether checksums are verified          true
    bytesPerPartition   bytes of a file in one task             128m; as a number, or with k, m or g

A schema given with `.schema(...)` chooses and orders the columns: Spark tells a Python source of no other pruning.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from wirescan.partition import SLICE_BYTES
from wirescan.spark.reading import Reading, arrow_of, settle

OPTIONS = ("path", "paths", "format", "columns", "errors", "check", "bytesPerPartition")
SIZE = re.compile(r"(\d+)([kmg]?)b?", re.IGNORECASE)
UNITS = {"": 0, "k": 10, "m": 20, "g": 30}


class WirescanSource(DataSource):
    """The data source; see the module's text for its options."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "wirescan"

    def schema(self) -> StructType:
        """The columns of the format, or those of the option `columns`. Raises ValueError for unfit options."""
        return reading_of(self.options).struct

    def reader(self, schema: StructType) -> WirescanReader:
        """A reader of the columns that `schema` names. Raises ValueError for one that there is not."""
        return WirescanReader(self.options, schema)


class WirescanReader(DataSourceReader):
    """Cuts the files into slices on the driver, and reads some in each task."""

    def __init__(self, options: Mapping[str, str], schema: StructType):
        self._reading = chosen(reading_of(options), schema)
        self._schema = arrow_of(schema)
        self._paths = paths_of(options)
        self._size = size_of(options.get("bytesPerPartition"))

    def partitions(self) -> list[InputPartition]:
        """One for each task, with its slices."""
        settle()                    # this worker plans the next query too
        return [InputPartition(slices) for slices in self._reading.plan(self._paths, self._size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task."""
        if partition.value is None:             # what Spark makes of an empty plan
            return
        for batch in self._reading.batches(partition.value):
            settle()
            yield batch if batch.schema.equals(self._schema) else batch.cast(self._schema)      # NOT NULL columns


def register(spark: SparkSession) -> None:
    """Make the data source `wirescan` known to a session; `wirescan.spark.session` does so itself."""
    spark.dataSource.register(WirescanSource)


def reading_of(options: Mapping[str, str]) -> Reading:
    """The options of the data source as a `Reading`. Raises ValueError for an unknown name or an unfit value."""
    known = {name.lower() for name in OPTIONS}
    for name in options:
        if name.lower() not in known:
            raise ValueError(f"the data source wirescan has no option {name!r}, only {', '.join(OPTIONS)}")
    columns = options.get("columns")
    check = options.get("check", "true").lower()
    if check not in ("true", "false"):
        raise ValueError(f"option check must be true or false, not {check!r}")
    return Reading(options.get("format", "kafka.records"),
                   None if columns is None else tuple(name.strip() for name in columns.split(",")),
                   options.get("errors", "strict"), check == "true")


def chosen(reading: Reading, schema: StructType) -> Reading:
    """The reading of just the columns of `schema`. Raises ValueError unless each has its name and its type."""
    reading = Reading(reading.format, tuple(schema.names), reading.errors, reading.check)
    for wanted, there in zip(schema.fields, reading.struct.fields):
        if wanted.dataType.simpleString() != there.dataType.simpleString():
            raise ValueError(f"column {wanted.name} of {reading.format} is {there.dataType.simpleString()}, "
                             f"not {wanted.dataType.simpleString()}")
    return reading


def paths_of(options: Mapping[str, str]) -> list[str]:
    """The paths given to `load`. Raises ValueError where there is none."""
    paths = json.loads(options["paths"]) if "paths" in options else [options["path"]] if "path" in options else []
    if not paths:
        raise ValueError("the data source wirescan needs a path: load(path)")
    return paths


def size_of(text: str | None) -> int:
    """Bytes of an option such as 67108864 or 64m. Raises ValueError for anything else, and for zero."""
    if text is None:
        return SLICE_BYTES
    found = SIZE.fullmatch(text.strip())
    if not found or not int(found[1]):
        raise ValueError(f"option bytesPerPartition must be a size such as 64m, not {text!r}")
    return int(found[1]) << UNITS[found[2].lower()]
