"""File names of Thrift captures, and the positions where a capture can be cut.

A cut is before a frame, so that no frame is in two parts. `formats.py` uses both.
"""

from functools import partial

from wirescan.files.boundaries import find_cuts_at_frames
from wirescan.thrift.scan import scan_stream

# In a directory, only these files are read. Names that begin with _ are files being written.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.theader\Z"

find_boundaries = partial(find_cuts_at_frames, scan=scan_stream)
