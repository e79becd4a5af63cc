"""Where a capture of Thrift can be cut: before a frame, so that none is torn."""
from functools import partial

from wirescan.thrift.scan import scan_stream
from wirescan.walk import cuts_at_frames

# Of a directory; those that begin with _ are being written.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.theader\Z"

cuts = partial(cuts_at_frames, scan=scan_stream)
