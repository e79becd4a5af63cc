"""The batch reader of the data source: slices of files or ranges of topics, some in each task.

`datasource.py` creates it. `datasource_pushdown.py` extends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from wirescan.spark import kafka_topics
from wirescan.spark.datasource_options import (
    choose_columns,
    fit_payloads,
    parse_plan,
    parse_reading,
)
from wirescan.spark.run import hide_traceback, make_arrow_schema
from wirescan.spark.worker_setup import set_up


class WirescanReader(DataSourceReader):
    """Cuts files into slices, or topics into ranges, on the driver, and reads these in the tasks.

    options: the options of the data source. schema: the columns to read.

    Raises ValueError for an option or a column that is not allowed.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType):
        reading = fit_payloads(parse_reading(options), options)
        self._reading = choose_columns(reading, schema)
        self._schema = make_arrow_schema(schema)
        parse = kafka_topics.parse_plan if kafka_topics.is_topic(options) else parse_plan
        self._plan: tuple[Any, ...] = parse(options)  # the arguments of the reading's `plan`

    @hide_traceback()
    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task, with its slices or ranges."""
        set_up()  # this worker plans the next query too
        return [InputPartition(parts) for parts in self._reading.plan(*self._plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of one task."""
        # For an empty plan Spark makes a partition without a value; Spark 4.0 passes None.
        if getattr(partition, "value", None) is None:
            return
        set_up()
        for batch in self._reading.read_batches(partition.value):
            # The schemas differ if the user's schema has NOT NULL columns.
            yield batch if batch.schema.equals(self._schema) else batch.cast(self._schema)
