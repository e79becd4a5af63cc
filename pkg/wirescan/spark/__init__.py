"""Frames in Spark: read files and live topics, map and aggregate frames, and write Parquet.

It has a Spark session, the data source `wirescan` for batches and streams, a faster way to read
files, and functions that reduce frames in the tasks.

Start with `read.py` and `run.py`: what a job reads, how it is cut into tasks, and what a task
returns.

Ways to read:

    read.py                 `read`: slices of files through `mapInArrow`
    ranges.py               `ranges`: files that are cut into tasks but not read yet
    kafka_topics.py         `read_topic`: topics of a live cluster
    fault_rows.py           `faults`: bad frames as a DataFrame
    frame_mapping.py        `map_frames`: frames in a binary column
    partition_mapping.py    `map_partitions`: functions of the user over tables
    aggregation.py          `aggregate`: aggregates in the tasks

The data source:

    datasource.py           the data source, and all its options
    datasource_options.py   parses the options
    datasource_reader.py    batches
    datasource_pushdown.py  batches, with filters from Spark
    datasource_stream.py    growing files as a stream
    kafka_schema.py         the option `schema=kafka`
    segment_sink.py         DataFrames as Kafka's partition directories

Tasks:

    run.py                  the base of all ways: what to read, and what a task returns
    plan.py                 how files are cut into tasks, and `index`
    payload_types.py        payloads as typed columns
    worker_setup.py         what a worker does before its first task
    task_log.py             one log line for each task

Write:

    parquet_tasks.py        `to_parquet`
    table_tasks.py          `to_table`: Delta Lake and Iceberg
    delta_commit.py         commits to Delta Lake
    iceberg_commit.py       commits to Iceberg
    store_files.py          files of the tasks, before they are committed
    store_output.py         a directory of Parquet files in an object store
    written_data.py         what a task reports about a file

The session:

    session.py              `session`
    java.py                 finds a Java that runs Spark
    hadoop_settings.py      credentials of object stores in the session

The modules import the folders below the protocol packages, and for topics `wirescan.kafka`.
"""

from typing import TYPE_CHECKING

from wirescan.frames.lazy import make_lazy_names
from wirescan.spark.datasource import register
from wirescan.spark.fault_rows import faults
from wirescan.spark.frame_mapping import map_frames
from wirescan.spark.java import JavaNotFound
from wirescan.spark.kafka_topics import read_topic
from wirescan.spark.partition_mapping import map_partitions
from wirescan.spark.plan import index
from wirescan.spark.ranges import Ranges, ranges
from wirescan.spark.read import read
from wirescan.spark.session import session

if TYPE_CHECKING:
    from wirescan.spark.aggregation import aggregate
    from wirescan.spark.parquet_tasks import to_parquet
    from wirescan.spark.table_tasks import to_table

__all__ = [
    "JavaNotFound",
    "Ranges",
    "aggregate",
    "faults",
    "index",
    "map_frames",
    "map_partitions",
    "ranges",
    "read",
    "read_topic",
    "register",
    "session",
    "to_parquet",
    "to_table",
]


# These are imported when they are first used. Spark starts a worker to plan the first query of the
# data source, and the parts of pyarrow that these modules import would slow its start.
__getattr__, __dir__ = make_lazy_names(
    __name__,
    {"aggregate": "aggregation", "to_parquet": "parquet_tasks", "to_table": "table_tasks"},
)
