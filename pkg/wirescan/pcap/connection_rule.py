"""The rule that says whether a connection is in a format: by its first frames, or by its port.

`StreamScanner` reads frames by this rule, and `connection_protocols.py` names protocols by it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import FrameError
from wirescan.frames.table import FrameTable

EVIDENCE = 16  # bits of the first frames of a connection that show its format
WEIGHED = 8  # first frames of a stream that are weighed
# Frames that are weighed together. Weights of Thrift open all of them within one limit, so that
# one connection must not depend on many others.
GROUP = 1024


class FirstFrames(NamedTuple):
    """What the first frames of connections show, one item for each connection.

    Attributes:
        bits: how unlikely the frames are in other bytes, float64.
        frames: how many good frames were weighed, int64.
    """

    bits: np.ndarray
    frames: np.ndarray

    @property
    def show_format(self) -> np.ndarray:
        """Whether the frames show the format."""
        return self.bits >= EVIDENCE


def has_usual_port(conversation: Conversation, ports: np.ndarray) -> np.ndarray:
    """Return whether the ports of servers are usual ones of a format."""
    return np.isin(ports, conversation.ports)


def weigh_first_frames(
    table: FrameTable, connections: np.ndarray, is_open: np.ndarray
) -> FirstFrames:
    """Weigh the first frames of each connection.

    Args:
        table: frames of an outermost format in streams. `parent` ascends.
        connections: the number of the connection of each stream.
        is_open: the connections that are weighed, by their numbers. The others have 0 bits.
    """
    bits = np.zeros(len(is_open), np.float64)
    assert table.format is not None
    weigh = table.format.storage.weigh
    assert weigh is not None  # every format with a conversation has it
    parents = table["parent"]
    first = np.searchsorted(parents, parents)  # parents ascend
    is_weighed = (np.arange(len(table)) - first < WEIGHED) & ~table.bad
    is_weighed &= is_open[connections[parents]]
    chosen = np.flatnonzero(is_weighed)
    weighed_connections = connections[parents[chosen]]
    for group in _iter_groups(parents[chosen]):
        with suppress(FrameError):  # larger than the limits, so it shows nothing
            np.add.at(bits, weighed_connections[group], weigh(table[chosen[group]]))
    frames = np.bincount(weighed_connections, minlength=len(is_open))
    return FirstFrames(bits, frames)


def _iter_groups(parents: np.ndarray) -> list[slice]:
    """Return slices of about GROUP frames. The frames of one stream are in one slice."""
    count = len(parents)
    borders = np.searchsorted(parents, parents[GROUP::GROUP])
    edges = np.unique(np.concatenate([[0], borders, [count]]))
    return [slice(start, stop) for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist())]
