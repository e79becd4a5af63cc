"""When and how frames were sent: arrays of dtype SENT, and `SentFrames` for pairing."""

from __future__ import annotations

import numpy as np

from wirescan.frames.exchange import SentFrames
from wirescan.frames.table import FrameTable
from wirescan.pcap.constants import Direction
from wirescan.pcap.extraction.frame_times import fill_packets

# `flow` is the row of the connection. `packet` is the one with the first byte. `begin` and `end`
# are `packet` and `last_packet` of `SentFrames`, and `end_of_all` is `last_packet` where the frames
# of all connections are compared.
SENT = np.dtype(
    [
        ("connection", "i8"),
        ("flow", "i8"),
        ("position", "i8"),
        ("size", "i8"),
        ("packet", "i8"),
        ("begin", "i8"),
        ("end", "i8"),
        ("end_of_all", "i8"),
        ("time", "i8"),
        ("time_end", "i8"),
        ("is_to_server", "?"),
    ]
)


def read_sent(frames: FrameTable, first_flow: int) -> np.ndarray:
    """Return an array of dtype SENT for frames of streams.

    first_flow: number of the first connection of these streams among all.
    """
    streams = frames.outer
    assert streams is not None and streams.outer is not None
    parents = frames["parent"]
    flows = streams["parent"][parents]
    sent = np.zeros(len(frames), SENT)
    sent["connection"] = streams.outer["connection"][flows]
    sent["flow"] = flows + first_flow
    sent["position"] = (streams["position"] - streams["start"])[parents] + frames["start"]
    sent["size"] = frames["size"]
    fill_packets(frames, sent)
    sent["is_to_server"] = streams["kind"][parents] == Direction.TO_SERVER
    return sent


def make_sent_frames(
    table: FrameTable, sent: np.ndarray, is_new: np.ndarray, *, crosses_connections: bool = False
) -> SentFrames:
    """Return frames for pairing.

    sent: array of dtype SENT. is_new: as in `SentFrames`. crosses_connections: the order is that
    among the frames of all connections, and only the ends of frames count.
    """
    begins, ends = sent["begin"], sent["end"]
    if crosses_connections:
        begins = ends = sent["end_of_all"]
    return SentFrames(table, sent["connection"], begins, ends, sent["is_to_server"], is_new=is_new)
