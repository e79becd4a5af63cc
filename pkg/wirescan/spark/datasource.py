"""The data source `wirescan` for Spark, and all its options.

    spark.read.format("wirescan").option("format", "kafka.records").load(path)

Options for files, with their defaults:

    path, paths         files, globs and directories: load("a") or load(["a", "b"])
    format              a name of wirescan.formats(); default kafka.records
    columns             names separated by commas; default: the columns of the format
    errors              strict, mark or skip; default strict
    check               whether checksums are verified; default true
    bytesPerPartition   bytes of files in one task, as a number, or with k, m or g. Default 128m. In
                        a local session of wirescan the default divides the bytes evenly among the
                        cores, with at most 512m for a task.
    maxFrame            maximum bytes of one frame, as a number, or with k, m or g; default 100m. A
                        longer frame is a fault.
    maxInflated         maximum bytes of the decompressed payload of one frame; default 64m
    maxRowBytes         maximum bytes of memory for the rows that are made at once. Default 256m, or
                        3 times the bytes that hold the frames if that is more.
    maxExpansion        maximum decompressed bytes per byte of a file; a row counts as 512 bytes.
                        Small files may have 512 KiB times this number. Default 512; a large number
                        removes the bound.
    nonStrict           Thrift: accept binary messages that do not start with a version too; default
                        false
    idl                 thrift.fields: the path of an IDL file. The names of fields are read from it
                        and become a column. Every executor must be able to read the file.
    decode.COLUMN       how the payloads in a column of byte strings become typed columns, such as
                        .option("decode.value", "json"): see docs/payloads.md. Types that are not
                        given are inferred from the first rows whenever a query is planned.
    pushdown            whether the filters of the query are used to read and open less of the
                        files; default false. It needs
                        spark.sql.python.filterPushdown.enabled.

A stream (`spark.readStream`) reads what is appended to files. It has these options too:

    maxBytesPerTrigger, maxFilesPerTrigger
                        bytes of whole frames in one batch, approximately, or files in one batch; a
                        number, or with k, m or g. Default: everything that is available. They need
                        Spark 4.2.
    failOnDataLoss      whether the query fails if a file is removed or truncated before it was
                        read; default true

Options for topics of a live Kafka cluster, as they are when the query is planned:

    bootstrap.servers   host:port, or several separated by commas
    topic               a name, or several separated by commas
    partitions          numbers separated by commas; default: all
    start, stop         an offset, earliest or latest; default earliest and latest. `stop` is
                        exclusive.
    startTime, stopTime used instead of start and stop: milliseconds since 1970, or ISO 8601
    isolation           read_uncommitted or read_committed; default read_uncommitted
    recordsPerPartition offsets in one task, approximately; default 1000000
    security.protocol   PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, with ssl.ca.location (a PEM
                        file), sasl.mechanism, sasl.username and sasl.password
    columns, errors, check, pushdown, decode.COLUMN
                        as above. The columns topic and partition exist too. The types of payloads
                        are not inferred.

bootstrap.servers and the security options may have the prefix `kafka.`, as in Spark's own source.

A schema that is given with `.schema(...)` chooses and orders the columns. Spark does not pass a
Python data source in any other way which columns a query needs.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from wirescan.spark import kafka_topics
from wirescan.spark.datasource_options import fit_payloads, parse_reading
from wirescan.spark.datasource_reader import WirescanReader
from wirescan.spark.run import hide_traceback


class WirescanSource(DataSource):
    """The data source. The module's docstring describes its options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "wirescan"

    @hide_traceback()
    def schema(self) -> StructType:
        """Return the columns of the format, or those of the option `columns`.

        Raises ValueError for options that are not allowed.
        """
        return fit_payloads(parse_reading(self.options), self.options).struct

    @hide_traceback()
    def reader(self, schema: StructType) -> WirescanReader:
        """Return a reader of the columns in `schema`. Raises ValueError for an unknown column."""
        if kafka_topics.parse_flag(self.options, "pushdown", default=False):
            if not hasattr(DataSourceReader, "pushFilters"):
                raise ValueError("option pushdown needs Spark 4.1")
            from wirescan.spark.datasource_pushdown import PushdownReader

            return PushdownReader(self.options, schema)
        return WirescanReader(self.options, schema)

    @hide_traceback()
    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Return a reader of growing files for `spark.readStream`. Raises as `reader`."""
        from wirescan.spark.datasource_stream import StreamReader

        return StreamReader(self.options, schema)


def register(spark: SparkSession) -> None:
    """Register the data source `wirescan` in a session.

    `wirescan.spark.session` does this for its sessions. spark: the session.
    """
    spark.dataSource.register(WirescanSource)
