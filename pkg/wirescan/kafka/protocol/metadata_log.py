"""Opens the records of Kafka's metadata log as kafka.metadata_records. See `formats.py`."""

from __future__ import annotations

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_column
from wirescan.frames.table import FrameTable, require_rows
from wirescan.kafka.protocol.metadata_record import open_values
from wirescan.kafka.record_batches.scan import RECORD


def open_metadata_records(
    records: FrameTable, format: Format, *, errors: str | None, limits: Limits
) -> FrameTable:
    """Open the values of records. The arguments are those of `formats.metadata_records`.

    format: of the result.
    """
    errors = resolve_mode(errors, records, limits)
    require_rows(records, RECORD, "metadata records are opened from a table of kafka.records")
    rows = records.rows
    is_control = np.zeros(len(rows), np.uint8)
    if records.outer is not None:
        is_control |= find_column(records, "is_control").read_numbers()
    spans = _find_values(rows, is_control)
    opened, bad, fault = open_values(is_control, records.buffers, spans, limits)
    table = raise_if_row_limit(FrameTable(records.buffers, opened, (), format, records), fault)
    return enforce_mode(table, errors, bad)


def _find_values(rows: np.ndarray, is_control: np.ndarray) -> np.ndarray:
    """Return the spans of the values, dtype HEAD.

    The span of a control record, or of one that cannot be opened, is the whole record: its value
    may have no bytes.
    """
    spans = np.zeros(len(rows), HEAD)
    spans["parent"] = np.arange(len(rows))
    for column in ("buffer", "start", "size", "fault"):
        spans[column] = rows[column]
    is_opened = (rows["fault"] == 0) & (is_control == 0)
    spans["fault"][is_opened & (rows["value_size"] < 0)] = Fault.BAD_NULL
    spans["fault"][is_opened & (rows["value_size"] == 0)] = Fault.TRUNCATED
    is_opened &= rows["value_size"] > 0
    spans["start"][is_opened] += rows["value_at"][is_opened]
    spans["size"][is_opened] = rows["value_size"][is_opened]
    return spans
