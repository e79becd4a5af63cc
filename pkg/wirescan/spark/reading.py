"""What every way into Spark shares: what to read, how it is cut, and the batches that a task gets out of it."""
from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from wirescan import arrow
from wirescan.catalog import format_of
from wirescan.errors import check_mode
from wirescan.limits import Limits
from wirescan.partition import Slice, groups, plan
from wirescan.source import URL

BATCH_BYTES = 4 << 20       # of files in a record batch: what the JVM handles best

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Reading:
    """Which frames to read, and how. Travels to the tasks.

    format: a name of `wirescan.formats()`. columns: their names, in order; None for those of `wirescan.arrow.schema`.
    errors, check, limits: as of `wirescan.scan`. Raises ValueError for a name or mode that there is not.
    """
    format: str
    columns: tuple[str, ...] | None = None
    errors: str = "strict"
    check: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        format_of(self.format)
        check_mode(self.errors, self.limits)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
        self.schema

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches, in Spark's types."""
        return arrow.schema(self.format, self.columns, types="spark")

    @property
    def struct(self) -> StructType:
        """The same as Spark's schema."""
        return struct_of(self.schema)

    def batches(self, slices: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
        """The frames of some slices, in batches of some megabytes. Raises FrameError as `errors` says."""
        for one in slices:
            yield from arrow.iter_batches(one.path, one.start, one.stop, format=self.format, columns=self.columns,
                                          batch_bytes=BATCH_BYTES, errors=self.errors, check=self.check,
                                          limits=self.limits, types="spark", tail=one.last)

    def plan(self, paths: Paths, size: int) -> list[list[Slice]]:
        """What the tasks read: for each about `size` bytes, in one slice or in several small files."""
        return groups(plan(path_list(paths), size, self.format), size)


@cache
def settle() -> None:
    """Once in each worker, with its first batch: let the garbage collector pass over all that is loaded by now.

    Spark has every worker collect after every task, and one with pyarrow in it spends 20 ms on that. What the first
    task holds by then is never collected if it becomes garbage in a cycle.
    """
    gc.freeze()


def struct_of(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's: timestamps are instants, as they are on the wires."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_of(struct: StructType) -> pa.Schema:
    """Spark's schema as that which its bridge demands of Arrow batches."""
    return to_arrow_schema(struct, timezone="UTC")


def path_list(paths: Paths) -> list[str]:
    """One path or several as a list of absolute ones, since workers may run in another directory."""
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [path if URL.match(path) else os.path.abspath(path) for path in map(os.fspath, several)]
