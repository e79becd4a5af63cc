"""The segments of a Liftbridge partition: what is declared of them, and comparison with an index.

`index_files.py` describes the files. `commit_log.py` reads the segments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirescan.frames.limits import Limits
from wirescan.liftbridge.files import SEGMENTS
from wirescan.liftbridge.log import index_files
from wirescan.liftbridge.scan import ENTRY, scan_entries
from wirescan.seglog.index_entries import read_entries, read_or_empty
from wirescan.seglog.segments import Segment, SegmentLayout, walk

# A disagreement of an index and its segment. `entry` is -1 for a record without an index entry.
DISAGREEMENT = np.dtype(
    [(name, np.int64) for name in ("base_offset", "entry", "position", "offset")]
)


@dataclass(frozen=True)
class CommitLogSegment(Segment):
    """A segment of a partition directory.

    base_offset: the offset in the file's name. path: of the .log. size: bytes that the .log had.
    newest: whether it is the newest segment of its directory. Only the newest segment may end
    inside a record.
    """

    def read_index(self) -> np.ndarray:
        """Return the entries of the .index, as an array of dtype INDEX.

        The columns are `offset`, `timestamp`, `position` and `size`, all i8. The array is empty
        without the file. Raises the errors of `wirescan.liftbridge.log.index_files.read_index`.
        """
        path = index_files.make_index_path(self.path)
        return read_or_empty(path, index_files.read_index, index_files.INDEX)


LAYOUT = SegmentLayout(
    scan=scan_entries,
    names=SEGMENTS,
    index=index_files.INDEX_LAYOUT,
    first="offset",
    last="offset",
    time="timestamp",
    is_after=lambda record, offset: bool(record["offset"] >= offset),
    find_time_hint=index_files.find_time_hint,
)


def find_disagreements(segment: CommitLogSegment, limits: Limits) -> np.ndarray:
    """Return where a segment and its index disagree, as described at `CommitLog.verify`."""
    index_path = index_files.make_index_path(segment.path)
    entries = read_entries(index_path, index_files.UNCHECKED_LAYOUT)
    rows = np.concatenate([np.empty(0, ENTRY), *walk(segment.view(), 0, scan_entries, limits)])
    rows = rows[rows["fault"] == 0]
    numbers = np.minimum(np.searchsorted(rows["start"], entries["position"]), len(rows) - 1)
    has_record = np.isin(entries["position"], rows["start"])
    is_repeated = np.ones(len(entries), bool)
    is_repeated[np.unique(entries["position"], return_index=True)[1]] = False
    is_wrong = ~has_record | is_repeated
    for name in ("offset", "timestamp", "size"):
        is_wrong[has_record] |= entries[name][has_record] != rows[name][numbers[has_record]]
    unlisted = rows[~np.isin(rows["start"], entries["position"])]
    wrong = np.flatnonzero(is_wrong)
    out = np.full(len(wrong) + len(unlisted), -1, DISAGREEMENT)
    out["base_offset"] = segment.base_offset
    out["entry"][: len(wrong)] = wrong
    out["position"] = np.concatenate([entries["position"][is_wrong], unlisted["start"]])
    out["offset"] = np.concatenate([entries["offset"][is_wrong], unlisted["offset"]])
    return out
