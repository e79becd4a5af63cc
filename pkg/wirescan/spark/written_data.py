"""What a task reports about a data file of a table."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

DATA = pa.struct(
    [
        ("path", pa.string()),
        ("key", pa.list_(pa.string())),
        ("records", pa.int64()),
        ("written", pa.int64()),
        ("statistics", pa.string()),
    ]
)


class WrittenData(NamedTuple):
    """A file that a task has written.

    Attributes:
        path: its path in the directory of the job's files.
        key: the values of the columns that partition, as in `hive_layout`.
        records: its rows.
        written: its bytes.
        statistics: of its columns, as Delta's JSON.
    """

    path: str
    key: tuple[str | None, ...]
    records: int
    written: int
    statistics: str
