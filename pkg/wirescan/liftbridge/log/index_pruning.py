"""Pruning of a segment by its index: the byte range that holds the wanted offsets and times.

`liftbridge.entries` uses it as the `prune` of its format. `index_files.py` describes the index.

Offsets increase in a segment. Timestamps may decrease, so only the start of a time range can be
found. An index entry is used only if the header of its record confirms it.
"""

from __future__ import annotations

from collections.abc import Mapping

from wirescan.files.source import get_file_name, get_size, read_range
from wirescan.frames.limits import Limits
from wirescan.liftbridge.files import SEGMENT
from wirescan.liftbridge.log import index_files
from wirescan.liftbridge.log.index_files import HEADER, SMALLEST, is_confirmed, make_index_path

Range = tuple[int | None, int | None]


def prune(path: str, bounds: Mapping[str, Range], *, limits: Limits = Limits()) -> tuple[int, int]:
    """Return the byte range (start, stop) of a segment that holds all wanted records.

    bounds: {"offset" or "timestamp": (lowest, highest)}; None is no bound. Timestamps are in
    nanoseconds since 1970. start and stop are starts of records, or the ends of the file. A file
    that is not named like a segment is not pruned. `limits` is accepted for consistency and
    ignored: only headers of records are read.

    Raises OSError.
    """
    total = get_size(path)
    if not SEGMENT.fullmatch(get_file_name(path)):
        return 0, total
    start = 0
    stop = total
    index_path = make_index_path(path)
    low, high = bounds.get("offset", (None, None))
    earliest, _ = bounds.get("timestamp", (None, None))
    if low is not None:
        before = index_files.find_around(index_path, "offset", low)[0]
        if before and _is_confirmed_in(path, before):
            start = before.position + before.size
    if high is not None:
        behind = index_files.find_around(index_path, "offset", high + 1)[1]
        if behind and _is_confirmed_in(path, behind):
            stop = behind.position
    if earliest is not None:
        before = index_files.find_before_time(index_path, earliest, total // SMALLEST)
        if before and _is_confirmed_in(path, before):
            start = max(start, before.position)
    start = min(start, total)
    return start, max(start, min(stop, total))


def _is_confirmed_in(path: str, entry: index_files.Entry) -> bool:
    if entry.position < 0:
        return False
    return is_confirmed(entry, read_range(path, entry.position, entry.position + HEADER.size))
