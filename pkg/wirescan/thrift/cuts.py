"""Where a capture of Thrift can be cut: before a frame, so that none is torn."""
from __future__ import annotations

from wirescan.source import size_of
from wirescan.thrift.scan import scan_stream
from wirescan.walk import apart, walk

# Of a directory; those that begin with _ are being written.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.theader\Z"


def cuts(path: str, size: int) -> list[int]:
    """Offsets in a file at which a frame begins, about `size` bytes apart; the first is 0.

    Nothing but the frames before it tells where a frame begins, so all are walked, up to the first that is damaged.
    """
    out = [0]
    if size_of(path) > size:
        for starts, _ in walk(path, scan_stream):
            out += apart(starts, out[-1], size)
    return out
