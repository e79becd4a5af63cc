"""How unlikely a frame of RESP is in bytes of another protocol."""

import numpy as np

from wirescan_resp.constants import Kind

LINE_BITS = 5  # one of 5 first bytes of 256; a line end may be anywhere
COUNT_BITS = 20  # ... and digits, then CR LF


def weigh_frames(frames):
    """Return the bits that each frame is worth: see `wirescan.frames.evidence`."""
    is_counted = np.isin(frames["kind"], (Kind.BULK_STRING, Kind.ARRAY))
    return np.where(is_counted, COUNT_BITS, LINE_BITS)
