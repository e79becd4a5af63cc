"""The data source `wirescan` for Spark, and all its options.

    spark.read.format("wirescan").option("format", "kafka.records").load(path)

Options for files, with their defaults:

    path, paths         files, globs and directories: load("a") or load(["a", "b"])
    format              a name of wirescan.formats(); default kafka.records. If the first file is a
                        capture of packets, its frames are read with the columns of captures.
    columns             names separated by commas; default: the columns of the format
    schema              kafka: exactly the columns of Spark's own Kafka source, for kafka.records.
                        With includeHeaders=true there is the column headers too. `kafka_schema.py`
                        lists them. Default: the columns of the format.
    errors              strict, mark or skip; default strict
    check               whether checksums are verified; default true
    bytesPerPartition   bytes of files in one task, on average, as a number, or with k, m or g. The
                        tasks have about the same work. Default 128m. In a local session of wirescan
                        the default divides the work evenly among the cores, with at most 512m for a
                        task.
    maxFrame            maximum bytes of one frame, as a number, or with k, m or g; default 100m. A
                        longer frame is a fault.
    maxInflated         maximum bytes of the decompressed payload of one frame; default 64m
    maxRowBytes         maximum bytes of memory for the rows that are made at once. Default:
                        the largest of 256m, 3 times the bytes that hold the frames, and 16 times
                        those beyond 256m.
    maxExpansion        maximum decompressed bytes per byte of a file; a row counts as 512 bytes.
                        Small files may have 512 KiB times this number. Default 512; a large number
                        removes the bound.
    topics              Kafka: the topics of a broker's directory that are read, such as
                        orders*,payments. Default: all but Kafka's own, if there are others; * reads
                        these too.
    nonStrict           Thrift: accept binary messages that do not start with a version too; default
                        false
    idl                 thrift.fields: the path of an IDL file. The names of fields are read from it
                        and become a column. Every executor must be able to read the file.
    decode.COLUMN       how the payloads in a column of byte strings become typed columns, such as
                        .option("decode.value", "json"): see docs/payloads.md. Types that are not
                        given are inferred from the first rows whenever a query is planned.
    pushdown            whether the filters of the query are used to read and open less of the
                        files. It needs Spark 4.1 and spark.sql.python.filterPushdown.enabled.
                        Default: true if this setting is on when the source is registered, as
                        `wirescan.spark.session` does.

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

A DataFrame is written as Kafka's partition directories, with indexes beside the segments:

    df.write.format("wirescan").mode("append").option("topic", "orders").save(directory)

    topic               the topic, if there is no column of this name
    codec               none, gzip, snappy, lz4 or zstd; default none
    segmentBytes        the most bytes of a segment; default 1g
    batchBytes          the most bytes of a batch before compression; default 1m

`segment_sink.py` lists the columns. The mode "append" adds partitions, and "overwrite" replaces
partitions that are there.

A schema that is given with `.schema(...)` chooses and orders the columns. Spark does not pass a
Python data source in any other way which columns a query needs.
"""

from __future__ import annotations

import warnings

from wirescan.frames.optional_packages import name_package

# The package imports this module first, so every import of the package names what to install.
with name_package("pyspark", "wirescan.spark", "'wirescan[spark]'"):
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType
with name_package("pyarrow", "wirescan.spark", "'wirescan[spark]'"):
    import pyarrow  # noqa: F401

from wirescan.files.store_connection import FindOptions, set_default_options
from wirescan.spark import kafka_topics
from wirescan.spark.datasource_options import fit_payloads, parse_reading
from wirescan.spark.datasource_reader import WirescanReader
from wirescan.spark.hadoop_settings import read_settings
from wirescan.spark.run import hide_traceback

PUSHDOWN = "pushdown"
SETTING = "spark.sql.python.filterPushdown.enabled"
HAS_PUSHDOWN = hasattr(DataSourceReader, "pushFilters")  # since Spark 4.1


class WirescanSource(DataSource):
    """The data source. The module's docstring describes its options.

    pushes_down: the default of the option `pushdown`.
    store_options: the options of URLs, see `wirescan.spark.hadoop_settings`.
    """

    pushes_down = False
    store_options: FindOptions | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "wirescan"

    @hide_traceback()
    def schema(self) -> StructType:
        """Return the columns of the format, or those of the option `columns`.

        Raises ValueError for options that are not allowed.
        """
        set_default_options(self.store_options)
        return fit_payloads(parse_reading(self.options), self.options).struct

    @hide_traceback()
    def reader(self, schema: StructType) -> WirescanReader:
        """Return a reader of the columns in `schema`. Raises ValueError for an unknown column."""
        set_default_options(self.store_options)
        if kafka_topics.parse_flag(self.options, PUSHDOWN, default=self.pushes_down):
            if not HAS_PUSHDOWN:
                raise ValueError("option pushdown needs Spark 4.1")
            from wirescan.spark.datasource_pushdown import PushdownReader

            return PushdownReader(self.options, schema)
        return WirescanReader(self.options, schema)

    @hide_traceback()
    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Return a reader of growing files for `spark.readStream`. Raises as `reader`."""
        set_default_options(self.store_options)
        from wirescan.spark.datasource_stream import StreamReader

        return StreamReader(self.options, schema)

    @hide_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return a writer of Kafka segments. Raises ValueError for unfit options and columns."""
        from wirescan.spark.segment_sink import SegmentSink

        return SegmentSink(self.options, schema, overwrite=overwrite)


class PushdownSource(WirescanSource):
    """The data source in a session that lets it use the filters of queries."""

    pushes_down = True


def register(spark: SparkSession) -> None:
    """Register the data source `wirescan` in a session.

    The source uses the credentials for object stores that the session has now: see
    `wirescan.spark.hadoop_settings`. `wirescan.spark.session` does this for its sessions. If the
    session does not let Python sources use the filters of queries, a RuntimeWarning says how to
    change it. spark: the session.
    """
    pushes_down = HAS_PUSHDOWN and spark.conf.get(SETTING, "false") == "true"
    if HAS_PUSHDOWN and not pushes_down:
        warnings.warn(
            "queries read whole files, because this session does not pass their filters to Python "
            f'sources: call spark.conf.set("{SETTING}", "true") before '
            "wirescan.spark.register(spark)",
            RuntimeWarning,
            stacklevel=2,
        )
    base = PushdownSource if pushes_down else WirescanSource
    # Spark makes the sources in processes that have no session. They get this class.
    settings = {"store_options": read_settings(spark)}
    spark.dataSource.register(type(base.__name__, (base,), settings))
