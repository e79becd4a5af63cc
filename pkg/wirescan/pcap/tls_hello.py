"""Recognizes connections of TLS by their first bytes."""

from __future__ import annotations

import numpy as np

from wirescan.frames.table import FrameTable

# The first bytes of a record with a ClientHello: the content type, the version, two bytes of the
# size, the type of the handshake message. Format: RFC 8446, sections 4 and 5.1.
SIZE = 6
HANDSHAKE, MAJOR, LARGEST_MINOR = 22, 3, 4
CLIENT_HELLO = 1


def find_client_hellos(streams: FrameTable) -> np.ndarray:
    """Return whether each stream is the beginning of what a client of TLS sends, as an array.

    streams: a table of pcap.streams.
    """
    rows = streams.rows
    is_hello = ~streams.bad & (rows["position"] == 0) & (rows["size"] >= SIZE)
    chosen = np.flatnonzero(is_hello)
    view = np.frombuffer(streams.buffers[0], np.uint8)
    first = view[rows["start"][chosen, None] + np.arange(SIZE)]
    is_hello[chosen] = (
        (first[:, 0] == HANDSHAKE)
        & (first[:, 1] == MAJOR)
        & (first[:, 2] <= LARGEST_MINOR)
        & (first[:, 5] == CLIENT_HELLO)
    )
    return is_hello
