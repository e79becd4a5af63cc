"""The values of frames, without the columns that say where the frames are."""

from __future__ import annotations

import wirescan

PLACE_NAMES = ("start", "parent", "buffer")


def list_values(rows):
    """Return the rows without the columns that say where the frames are."""
    names = [name for name in rows.dtype.names if name not in PLACE_NAMES]
    return rows[names].tolist()


def scan_alone(format, pairs, side):
    """Return the values of the frames that one side of each connection sent."""
    scan = wirescan.formats()[format].read
    return [list_values(scan(pair[side], errors="mark").rows) for pair in pairs]
