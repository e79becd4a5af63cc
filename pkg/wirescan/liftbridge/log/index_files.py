"""The files beside the segments of a Liftbridge partition, as arrays.

    <base offset>.index             { relative offset i4 | timestamp i8 | position i4 | size i4 }*
                                    and zeros up to the end of the file
    replication-offset-checkpoint   text without a line end: the high watermark, -1 if nothing is
                                    committed
    leader-epoch-checkpoint         text: 0, a count, and as many lines "epoch start-offset"

All integers are big-endian. Each record has an index entry: its start in the segment, and its size
with the header of 28 bytes. While the server writes to an index, it is a memory-mapped file of
10 MiB or more. Only a closed index ends with its last entry.
Source: github.com/liftbridge-io/liftbridge, server/commitlog: index.go, commitlog.go,
leader_epoch_cache.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.source import make_sibling_path
from wirescan.frames.errors import FrameError
from wirescan.frames.logs import OFFSET_END
from wirescan.seglog.index_entries import (
    IndexLayout,
    find_falls,
    read_entries,
    read_epochs,
    read_good_entries,
    read_side_file,
)

COLUMNS = ("offset", "timestamp", "position", "size")
INDEX_ENTRY = np.dtype(list(zip(COLUMNS, (">i4", ">i8", ">i4", ">i4"))))
SMALLEST = 44  # bytes of a record without key, value and headers
INDEX = np.dtype([(name, np.int64) for name in COLUMNS])
EPOCHS = np.dtype([("leader_epoch", np.uint64), ("start_offset", np.int64)])


def _find_faults(base: int, entries: np.ndarray) -> Iterator[tuple[Fault, np.ndarray]]:
    size = entries["size"]
    has_wrong_place = (size < SMALLEST) | (entries["position"] != np.cumsum(size) - size)
    yield Fault.NOT_A_FRAME, has_wrong_place | find_falls(entries["offset"], base)


INDEX_LAYOUT = IndexLayout(INDEX_ENTRY, INDEX, _find_faults, may_be_cut=True)
# For a comparison with the records, which finds the wrong entries itself.
UNCHECKED_LAYOUT = replace(INDEX_LAYOUT, find_faults=lambda base, entries: ())


def make_index_path(path: str) -> str:
    """Return the path of the .index beside a .log."""
    return make_sibling_path(path, ".index")


def read_index(path: str) -> np.ndarray:
    """Return the entries of an .index, as an array of dtype INDEX.

    Columns: `offset` i8, of the log and not relative; `timestamp` i8, nanoseconds since 1970;
    `position` i8, in the segment; `size` i8, of the whole record. Zeros after the last entry of an
    index in use are ignored. So is an entry that the end of the file cuts.

    Raises FrameError(NOT_A_FRAME) for an entry whose offset does not increase, or that does not
    start at the end of the previous record. Raises ValueError for a file name that is not an
    offset, and OSError.
    """
    return read_entries(path, INDEX_LAYOUT)


def find_time_hint(path: str, size: int, timestamp: int) -> tuple[int, int] | None:
    """Return the timestamp and the offset of the entry before the first one that is not earlier.

    If all timestamps are earlier, this is the last entry. Timestamps may decrease, so the entries
    are read from the first one, up to an invalid entry. path: of a segment. size: of the segment in
    bytes. Returns None if there is no such entry, or if the index cannot be read.
    """
    try:
        entries = read_good_entries(make_index_path(path), INDEX_LAYOUT, size // SMALLEST)
    except (OSError, ValueError):
        return None
    late = np.flatnonzero(entries["timestamp"] >= timestamp)
    first_late = int(late[0]) if len(late) else len(entries)
    if first_late == 0:
        return None
    before = entries[first_late - 1]
    return int(before["timestamp"]), int(before["offset"])


def read_high_watermark(path: str) -> int:
    """Return the offset in a replication-offset-checkpoint.

    It is the offset of the last record that was known to be committed, -1 if no record was. Raises
    FrameError and OSError.
    """
    raw = read_side_file(path)
    if not re.fullmatch(rb"-1|\d{1,19}", raw) or int(bytes(raw)) >= OFFSET_END:
        raise FrameError(Fault.NOT_A_FRAME if len(raw) else Fault.TRUNCATED, 0, 0, raw, path)
    return int(bytes(raw))


def read_leader_epochs(path: str) -> np.ndarray:
    """Return the lines of a leader-epoch-checkpoint, as an array of dtype EPOCHS.

    Columns: `leader_epoch` u8, which increases, and `start_offset` i8 (-1: the log was empty).

    Raises FrameError with the byte position of the line that is wrong, and OSError.
    """
    return read_epochs(path, rb"(\d+) (-1|\d+)", EPOCHS, first_row=2)
