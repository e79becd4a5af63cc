"""The names of control records, for text output.

The key of a control record is version i2 | type i2. Source: Apache Kafka, "Control Records" in the
documentation of the record batch, and `ControlRecordType` in its source.
"""

from __future__ import annotations

import numpy as np

from wirescan.frames.lookup import find_column
from wirescan.frames.table import FrameTable

TYPE_AT = 2  # position of the type in a key
TYPE_END = 4
NAMES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}


def name_control_keys(records: FrameTable) -> dict[str, dict[int, str]]:
    """Return the names of control records in a table of kafka.records: {"key": {row: name}}.

    There are none in a table of some columns without the keys, or without the batches.
    """
    if "key" not in records.places or records.outer is None:
        return {}
    found = find_column(records, "is_control")
    rows = np.flatnonzero((found.read_numbers() != 0) & ~records.bad)
    names = {}
    for row in rows.tolist():
        key = records[row].key
        if key is not None and len(key) >= TYPE_END:
            number = int.from_bytes(key[TYPE_AT:TYPE_END], "big")
            names[row] = NAMES.get(number, f"control type {number}")
    return {"key": names}
