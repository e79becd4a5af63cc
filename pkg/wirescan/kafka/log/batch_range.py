"""Records of a range of offsets: `within`, and the batches that hold such a range.

A range rarely begins and ends where a batch does. `BatchRange` notes it, so that the records of its
first and last batch are those of the range.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import index as integer
from typing import Any

import numpy as np

from wirescan.frames.table import FrameTable, require_rows
from wirescan.kafka.record_batches.scan import RECORD


@dataclass(frozen=True, init=False, eq=False)
class BatchRange(FrameTable):
    """A table of kafka.batches that opens only the records of a range of offsets.

    Tables of some of its rows have the range too. A table that `wirescan.join` makes has none.

    Attributes:
        first_offset: the records before it are not opened; None for no bound.
        stop_offset: the records from it on are not opened; None for no bound.
    """

    first_offset: int | None
    stop_offset: int | None

    def __init__(
        self, *arguments: Any, first_offset: int | None, stop_offset: int | None, **options: Any
    ):
        super().__init__(*arguments, **options)
        object.__setattr__(self, "first_offset", first_offset)
        object.__setattr__(self, "stop_offset", stop_offset)

    def __reduce__(self) -> tuple[Any, ...]:
        restore, arguments = super().__reduce__()
        return _restore_range, (restore, arguments, self.first_offset, self.stop_offset)


def add_range(batches: FrameTable, first_offset: int | None, stop_offset: int | None) -> FrameTable:
    """Return a table of kafka.batches that opens only the records of a range of offsets.

    first_offset, stop_offset: the attributes of `BatchRange`. Without a bound, `batches` itself is
        returned.
    """
    if first_offset is None and stop_offset is None:
        return batches
    values = {field.name: getattr(batches, field.name) for field in fields(FrameTable)}
    return BatchRange(**values, first_offset=first_offset, stop_offset=stop_offset)


def select_range(records: FrameTable, batches: FrameTable) -> FrameTable:
    """Return the records of the range of offsets of their batches; all if they have no range."""
    if not isinstance(batches, BatchRange):
        return records
    return within(records, batches.first_offset, batches.stop_offset)


def within(
    records: FrameTable,
    start: int | None = None,
    stop: int | None = None,
    start_time: int | None = None,
    stop_time: int | None = None,
) -> FrameTable:
    """Return the records with start <= offset < stop and start_time <= timestamp < stop_time.

    records: a table of kafka.records. Times are milliseconds. None is no bound. Bad rows are kept.
    Raises TypeError for another table.
    """
    require_rows(records, RECORD, "within takes a table of kafka.records")
    keep = np.ones(len(records), bool)
    for column, low, high in (("offset", start, stop), ("timestamp", start_time, stop_time)):
        if low is not None:
            keep &= records[column] >= integer(low)
        if high is not None:
            keep &= records[column] < integer(high)
    keep |= records.bad
    return records if keep.all() else records.where(keep)


def _restore_range(
    restore: Any, arguments: tuple[Any, ...], first_offset: int | None, stop_offset: int | None
) -> FrameTable:
    return add_range(restore(*arguments), first_offset, stop_offset)
