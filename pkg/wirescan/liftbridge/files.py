"""File names of commit-log segments, and the boundaries at which a segment can be cut.

    streams/<stream>/<partition>/<base offset, 20 digits>.log

A segment has records without gaps; the last one may be torn.
`log/index_files.py` describes the files beside a segment.
Source: github.com/liftbridge-io/liftbridge, server/commitlog.
"""

from __future__ import annotations

import re
from functools import partial

from wirescan.files.boundaries import LengthPrefix, find_cuts_at_headers, read_frame
from wirescan.files.source import (
    get_file_name,
    get_size,
    list_directory_names,
    open_ranges,
)
from wirescan.frames.limits import Limits
from wirescan.frames.logs import SegmentNames
from wirescan.liftbridge.log.index_files import (
    INDEX_ENTRY,
    INDEX_LAYOUT,
    SMALLEST,
    make_index_path,
)
from wirescan.liftbridge.scan import scan_entries
from wirescan.seglog.index_entries import find_around

# A server writes a new segment beside the old one before it replaces it. Both hold the same
# records.
IGNORE = r"\.(cleaned|truncated|index)$|(^|/)(replication-offset|leader-epoch)-checkpoint$"
FILES = r"(?s)(\A|/)[0-9]{20}\.log\Z"
# The files beside a segment, and the bytes of their entries.
BESIDE = {
    ".index": INDEX_ENTRY.itemsize,
    "leader-epoch-checkpoint": 0,
    "replication-offset-checkpoint": 0,
}
SEGMENT = re.compile(r"[0-9]{20}\.log")
SEGMENTS = SegmentNames(digits=20, suffix=".log")
# A header has three numbers of 8 bytes (see scan.pyx), and the number of bytes that follow.
SIZED = LengthPrefix(header=28, length_at=24, overhead=28, smallest=(SMALLEST,))

PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")  # the name of a directory


def read_stream(path: str) -> str | None:
    """Return the stream of a segment, by the names of its directories; None for other names."""
    names = list_directory_names(path)
    return names[1] if len(names) > 1 and PARTITION.fullmatch(names[0]) else None


def read_partition(path: str) -> int | None:
    """Return the partition of a segment, by the names of its directories; None for other names."""
    return None if read_stream(path) is None else int(list_directory_names(path)[0])


def find_boundaries(
    path: str, size: int, start: int = 0, *, limits: Limits = Limits()
) -> list[int]:
    """Return byte positions in a file at which a record starts, about `size` bytes apart.

    The first position is `start`.

    The positions come from the `.index` beside a segment, if the header of each record confirms the
    index entry that is used. Otherwise the file is walked from header to header. The walk ends at
    the first header that is wrong, or of a record above `limits.frame`. The reader of that slice
    reports the damage.
    """
    total = get_size(path)
    if total - start <= size:
        return [start]
    is_segment = SEGMENT.fullmatch(get_file_name(path))
    cuts = _cut_at_entries(path, size, total, limits) if is_segment else None
    if cuts:
        return [start, *(position for position in cuts if position >= start + size)]
    return find_cuts_at_headers(
        path, size, start, SIZED, partial(_is_intact, limits=limits), limits=limits
    )


def _cut_at_entries(path: str, size: int, total: int, limits: Limits) -> list[int] | None:
    """Return the positions of index entries about `size` bytes apart.

    None means that the index lacks records at the end, or disagrees with a record.
    """
    find = partial(find_around, make_index_path(path), INDEX_LAYOUT, "position")
    last, _, _ = find(total)
    if last is None or total - last["position"] - last["size"] > size:
        return None
    cuts = [0]
    with open_ranges(path) as read:
        while (entry := find(cuts[-1] + size)[1]) and entry["position"] < total:
            record = read_frame(read, entry["position"], total, scan_entries, limits)
            names = ("offset", "timestamp", "size")
            if record is None or any(record[name] != entry[name] for name in names):
                return None
            cuts.append(entry["position"])
    return cuts


def _is_intact(record: memoryview, limits: Limits) -> bool:
    """Return whether these bytes are one record with the right checksum."""
    rows, bad, _, used = scan_entries(record, check=True, resync=False, limits=limits)
    return len(rows) == 1 and not bad and bool(used == len(record))
