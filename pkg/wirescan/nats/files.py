"""File names of NATS captures, and the boundaries (starts of messages) at which they can be cut."""

from functools import partial

from wirescan.files.boundaries import find_cuts_at_frames
from wirescan.nats.scan import scan_stream

# Files in a directory. A file that begins with _ or . is still being written, or is hidden.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.nats\Z"

find_boundaries = partial(find_cuts_at_frames, scan=scan_stream)
