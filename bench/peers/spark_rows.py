"""How Spark is usually given such files: rows as Python tuples, by a data source or by an RDD."""
from __future__ import annotations

import importlib
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from wirescan import kafka
from wirescan.partition import Slice, plan

SCHEMA = "offset bigint, timestamp bigint, key binary, value binary"
BYTES_PER_PARTITION = 64 << 20
Rows = Iterator[tuple[int, int, bytes, bytes]]


class TupleSource(DataSource):
    """A data source that parses with wirescan, and then yields a tuple for every record."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema) -> TupleReader:
        return TupleReader(self.options["path"])


class TupleReader(DataSourceReader):
    def __init__(self, path: str):
        self.path = path

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in plan([self.path], BYTES_PER_PARTITION)]

    def read(self, partition: InputPartition) -> Rows:
        data = content(partition.value)
        records = kafka.records(kafka.scan(data))
        columns = [(records["start"] + records[name + "_at"], records[name + "_size"]) for name in ("key", "value")]
        places = [(start.tolist(), (start + size).tolist()) for start, size in columns]
        for offset, timestamp, key, key_end, value, value_end in zip(
                records["offset"].tolist(), records["timestamp"].tolist(), *places[0], *places[1]):
            yield offset, timestamp, data[key:key_end], data[value:value_end]


def rows_of(spark: SparkSession, path: str, library: str) -> DataFrame:
    """An RDD that maps byte ranges through the records of a client library, as a DataFrame. library: the module."""
    parts = plan([path], BYTES_PER_PARTITION)
    rdd = spark.sparkContext.parallelize(parts, len(parts)).mapPartitions(lambda parts: _records(parts, library))
    return spark.createDataFrame(rdd, SCHEMA)


def _records(parts: Iterator[Slice], library: str) -> Rows:
    records = importlib.import_module(library).MemoryRecords
    for part in parts:
        batches = records(content(part))
        while batches.has_next():
            batch = batches.next_batch()
            if not batch.validate_crc():
                raise ValueError("a batch with a bad checksum")
            for record in batch:
                yield record.offset, record.timestamp, record.key, record.value


def content(part: Slice) -> bytes:
    """The bytes of one slice of a file."""
    with open(part.path, "rb") as file:
        file.seek(part.start)
        return file.read(part.stop - part.start)
