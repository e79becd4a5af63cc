"""The usual ways to read such files with Spark: Python tuples from a data source or an RDD."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from wirescan import kafka
from wirescan.reading.splits import Slice, plan

SCHEMA = "offset bigint, timestamp bigint, key binary, value binary"
BYTES_PER_PARTITION = 64 << 20
Rows = Iterator[tuple[int, int, bytes, bytes]]


class TupleSource(DataSource):
    """A data source that parses with wirescan and yields a tuple for every record."""

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
        return [
            InputPartition(part) for part in plan([self.path], "kafka.records", BYTES_PER_PARTITION)
        ]

    def read(self, partition: InputPartition) -> Rows:
        data = read_slice(partition.value)
        records = kafka.records(kafka.scan(data))
        columns = [
            (records["start"] + records[name + "_at"], records[name + "_size"])
            for name in ("key", "value")
        ]
        places = [(start.tolist(), (start + size).tolist()) for start, size in columns]
        for offset, timestamp, key, key_end, value, value_end in zip(
            records["offset"].tolist(), records["timestamp"].tolist(), *places[0], *places[1]
        ):
            yield offset, timestamp, data[key:key_end], data[value:value_end]


def read_rows(spark: SparkSession, path: str, library: str) -> DataFrame:
    """Return a DataFrame over an RDD that reads byte ranges with a client library.

    library: the name of its module.
    """
    slices = plan([path], "kafka.records", BYTES_PER_PARTITION)
    rdd = spark.sparkContext.parallelize(slices, len(slices)).mapPartitions(
        lambda slices: _read_records(slices, library)
    )
    return spark.createDataFrame(rdd, SCHEMA)


def _read_records(slices: Iterator[Slice], library: str) -> Rows:
    records = importlib.import_module(library).MemoryRecords
    for piece in slices:
        batches = records(read_slice(piece))
        while batches.has_next():
            batch = batches.next_batch()
            if not batch.validate_crc():
                raise ValueError("a batch with a bad checksum")
            for record in batch:
                yield record.offset, record.timestamp, record.key, record.value


def read_slice(piece: Slice) -> bytes:
    """Return the bytes of one slice of a file."""
    with open(piece.path, "rb") as file:
        file.seek(piece.start)
        return file.read(piece.stop - piece.start)
