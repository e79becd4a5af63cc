"""Frames in Spark: read files and live topics, map and aggregate frames, and write Parquet.

It has a Spark session, the data source `wirescan` for batches and streams, a faster way to read
files, and functions that reduce frames in the tasks.

Start with `read.py` and `run.py`: what a job reads, how it is cut into tasks, and what a task
returns. `datasource.py` describes the data source and its options. The modules import the folders
below the protocol packages, and for topics `wirescan.kafka`.
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
