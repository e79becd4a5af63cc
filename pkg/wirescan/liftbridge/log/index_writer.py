"""Writes the index beside each segment of a commit log: an entry for each record.

The docstring of index_files.py shows the file.
"""

from __future__ import annotations

import numpy as np

from wirescan.frames.table import FrameTable
from wirescan.liftbridge.log.index_files import INDEX_ENTRY, make_index_path
from wirescan.seglog.index_entries import parse_base_offset


class LiftbridgeIndexWriter:
    """Writes the .index of the segments of one partition.

    The methods are those of `wirescan.frames.logs.IndexWriter`.
    """

    def start_segment(self, path: str) -> None:
        """Begin the index of a new segment. Its name is its base offset. Raises OSError."""
        self._base = parse_base_offset(path)
        self._file = open(make_index_path(path), "xb")  # noqa: SIM115 -- `end_segment` closes it

    def add(self, frames: FrameTable, position: int) -> None:
        """Add entries for good records of the segment, in their order. Raises OSError.

        The records are one after another in the segment, from the byte `position` on.
        """
        sizes = frames["size"].astype(np.int64)
        entries = np.empty(len(frames), INDEX_ENTRY)
        entries["offset"] = frames["offset"] - self._base
        entries["timestamp"] = frames["timestamp"]
        entries["position"] = position + np.cumsum(sizes) - sizes
        entries["size"] = sizes
        self._file.write(entries.tobytes())

    def end_segment(self) -> None:
        """Complete the index of the segment. Raises OSError."""
        self._file.close()

    def describe_end(self) -> list[str]:
        """Return nothing: a record belongs to no transaction."""
        return []
