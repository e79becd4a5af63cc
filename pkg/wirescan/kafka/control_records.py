"""The types of control records: the column `control` of kafka.records, and names for text output.

The key of a control record is version i2 | type i2. Source: Apache Kafka, "Control Records" in the
documentation of the record batch, and `ControlRecordType` in its source.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wirescan.core.gather import Places
from wirescan.core.loop import HEAD
from wirescan.frames.lookup import find_parents
from wirescan.frames.table import FrameTable
from wirescan.kafka.constants import NOT_CONTROL, ControlType

# The columns of a record by which its key is found.
KEY_COLUMNS = ("start", "size", "parent", "buffer", "key_at", "key_size")
KEY_ROW = np.dtype([*HEAD.descr, ("key_at", "u4"), ("key_size", "i4")])
TYPE_END = 4  # bytes of a key up to the end of the type
NAMES = {member.value: member.name for member in ControlType if member is not ControlType.UNKNOWN}


def compute_control_types(records: Any) -> np.ndarray:
    """Return the column `control`, an i1 array: a `ControlType` for each record.

    NOT_CONTROL stands for other records and for bad ones. Only records of control batches are
    read. A key that is too short, and a type that `ControlType` does not have, is UNKNOWN.

    records: a table of kafka.records, or an object that `ComputedColumn.compute` describes.

    Raises ValueError for a row that points outside its buffer or outside its table of batches.
    """
    types = np.full(len(records), NOT_CONTROL, np.int8)
    rows = _find_control_records(records)
    if len(rows):
        types[rows] = ControlType.UNKNOWN
        rows, numbers = _read_types(records, rows)
        is_known = np.isin(numbers, list(NAMES))
        types[rows[is_known]] = numbers[is_known]
    return types


def name_control_keys(records: FrameTable) -> dict[str, dict[int, str]]:
    """Return the names of control records in a table of kafka.records: {"key": {row: name}}.

    There are none in a table of some columns without the keys, or without the batches.
    """
    if "key" not in records.places or records.outer is None:
        return {}
    rows, numbers = _read_types(records, _find_control_records(records))
    names = [NAMES.get(number, f"control type {number}") for number in numbers.tolist()]
    return {"key": dict(zip(rows.tolist(), names))}


def _find_control_records(records: Any) -> np.ndarray:
    """Return the numbers of the good records of control batches."""
    is_control = records.outer["is_control"]
    # Few records of many batches do not look at all batches.
    if len(is_control) <= len(records) and not is_control.any():
        return np.empty(0, np.intp)
    return np.flatnonzero((is_control[find_parents(records)] != 0) & (records["fault"] == 0))


def _read_types(records: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the types in the keys of some records: the rows that have one, and a u2 array."""
    rows = rows[records["key_size"][rows] >= TYPE_END]
    keys = np.zeros(len(rows), KEY_ROW)
    for name in KEY_COLUMNS:
        keys[name] = records[name][rows]
    keys["key_size"] = TYPE_END  # the rest of a key is not copied
    table = FrameTable(records.buffers, keys)
    _, data = Places(table, "key").gather(large=True)
    versions_and_types = np.frombuffer(memoryview(data), ">u2").reshape(-1, 2)
    return rows, versions_and_types[:, 1]
