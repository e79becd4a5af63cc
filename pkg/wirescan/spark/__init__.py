"""Frames in Spark: a local session, a data source, a faster way to read, live topics, mappings, and Parquet written
in the tasks."""
from typing import TYPE_CHECKING, Any

from wirescan.spark.java import JavaNotFound
from wirescan.spark.mapping import map_frames
from wirescan.spark.read import read
from wirescan.spark.session import session
from wirescan.spark.source import register
from wirescan.spark.topic import read_topic

if TYPE_CHECKING:
    from wirescan.spark.parquet import to_parquet

__all__ = ["JavaNotFound", "map_frames", "read", "read_topic", "register", "session", "to_parquet"]


def __getattr__(name: str) -> Any:
    # Late: a worker is started to plan the first query of the data source, and pyarrow.parquet would slow its start.
    if name == "to_parquet":
        from wirescan.spark.parquet import to_parquet
        return to_parquet
    raise AttributeError(f"module {__name__} has no attribute {name}")
