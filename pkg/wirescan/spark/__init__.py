"""Frames in Spark: a session, a data source for batches and streams, a faster way to read, live topics, mappings and
reductions in the tasks, and Parquet written there."""
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wirescan.spark.faults import faults
from wirescan.spark.java import JavaNotFound
from wirescan.spark.mapping import map_frames
from wirescan.spark.partitions import map_partitions
from wirescan.spark.planning import index
from wirescan.spark.ranges import Ranges, ranges
from wirescan.spark.read import read
from wirescan.spark.session import session
from wirescan.spark.source import register
from wirescan.spark.topic import read_topic

if TYPE_CHECKING:
    from wirescan.spark.aggregation import aggregate
    from wirescan.spark.parquet import to_parquet

__all__ = ["JavaNotFound", "Ranges", "aggregate", "faults", "index", "map_frames", "map_partitions", "ranges", "read",
           "read_topic", "register", "session", "to_parquet"]


# Late: a worker is started to plan the first query of the data source, and parts of pyarrow would slow its start.
LATE = {"aggregate": "aggregation", "to_parquet": "parquet"}


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{LATE[name]}"), name)
