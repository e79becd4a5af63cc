"""File names of RESP, and the positions at which such a file can be cut."""

from functools import partial

from wirescan.files.boundaries import find_cuts_at_frames
from wirescan_resp.scan import scan_stream

# Captures, and the append-only files of a server. A name that begins with _ or . is excluded.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.(resp|aof)\Z"

find_boundaries = partial(find_cuts_at_frames, scan=scan_stream)
