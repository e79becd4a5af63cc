"""Where in a segment the entries of some offsets and times can be, by the index beside it, which index.py draws.

Offsets rise in a segment; timestamps need not, so that only where the wanted ones begin can be known. An entry of the
index counts where the header that it points at bears it out.
"""
from __future__ import annotations

from collections.abc import Mapping

from wirescan.liftbridge import index
from wirescan.liftbridge.index import SMALLEST
from wirescan.liftbridge.log import SEGMENT
from wirescan.liftbridge.segment import HEADER, index_of, is_confirmed
from wirescan.source import name_of, read_range, size_of

Range = tuple[int | None, int | None]


def narrow(path: str, wanted: Mapping[str, Range]) -> tuple[int, int]:
    """The bytes of a segment between which all entries are whose `offset` and `timestamp` (nanoseconds) lie in the
    ranges (lowest, highest; None: any): (start, stop), where entries begin, or the ends of the file.

    All of a file that is not named as a segment is. Raises OSError.
    """
    total = size_of(path)
    if not SEGMENT.fullmatch(name_of(path)):
        return 0, total
    start, stop, listed = 0, total, index_of(path)
    low, high = wanted.get("offset", (None, None))
    earliest, _ = wanted.get("timestamp", (None, None))
    before = index.around(listed, "offset", low)[0] if low is not None else None
    if before and _is_there(path, before):
        start = before.position + before.size
    behind = index.around(listed, "offset", high + 1)[1] if high is not None else None
    if behind and _is_there(path, behind):
        stop = behind.position
    before = index.before_time(listed, earliest, total // SMALLEST) if earliest is not None else None
    if before and _is_there(path, before):
        start = max(start, before.position)
    start = min(start, total)
    return start, max(start, min(stop, total))


def _is_there(path: str, entry: index.Entry) -> bool:
    return entry.position >= 0 and is_confirmed(entry, read_range(path, entry.position, entry.position + HEADER.size))
