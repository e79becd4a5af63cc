"""The rule that says whether a connection is in a format: by its first frames, or by its port.

`StreamScanner` reads frames by this rule, and `connection_protocols.py` names protocols by it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from wirescan.core.row_arrays import find_first_rows
from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import FrameError
from wirescan.frames.table import FrameTable
from wirescan.pcap.constants import Direction
from wirescan.pcap.extraction.frame_times import ByteRanges, read_last

EVIDENCE = 16  # bits of the first frames of a connection that show its format
WEIGHED = 8  # first good frames of a side that are weighed
UNDECIDED_BYTES = 1 << 16  # first bytes of a side in which frames are weighed
OTHER_BYTES = 1 << 20  # the other side may have so many before them, such as a response
NEVER = np.iinfo(np.int64).max  # the number of a packet after all others
# Frames that are weighed together. Weights of Thrift open all of them within one limit, so that
# one connection must not depend on many others.
GROUP = 1024


class FirstFrames(NamedTuple):
    """What the first frames of connections show, one item for each connection.

    Attributes:
        bits: how unlikely the frames are in other bytes, float64. It is the largest sum after any
            packet, so further frames take nothing back.
        frames: how many good frames were weighed, int64.
        is_complete: no further frame counts, bool.
    """

    bits: np.ndarray
    frames: np.ndarray
    is_complete: np.ndarray

    @property
    def show_format(self) -> np.ndarray:
        """Whether the frames show the format."""
        return self.bits >= EVIDENCE


def has_usual_port(conversation: Conversation, ports: np.ndarray) -> np.ndarray:
    """Return whether the ports of servers are usual ones of a format."""
    return np.isin(ports, conversation.ports)


def weigh_first_frames(
    table: FrameTable, connections: np.ndarray, is_open: np.ndarray, *, may_send: np.ndarray
) -> FirstFrames:
    """Weigh the first frames of each connection.

    Frames count that are in the first UNDECIDED_BYTES of their side, and that were complete with
    the packet with which one of the sides had more bytes, at the latest. A side that sends no such
    frames may have OTHER_BYTES. So what counts does not depend on the pieces that a capture is read
    in.

    Args:
        table: frames of an outermost format in streams. `parent` ascends.
        connections: the number of the connection of each stream.
        is_open: the connections that are weighed, by their numbers. The others have 0 bits.
        may_send: the streams of sides that may send such frames.
    """
    streams = table.outer
    assert table.format is not None and streams is not None
    weigh = table.format.storage.weigh
    assert weigh is not None  # every format with a conversation has it
    groups, sizes_before = _measure_sides(streams, connections)
    largest = np.where(may_send, UNDECIDED_BYTES, OTHER_BYTES)
    last_packets = _find_last_packets(streams, connections, largest - sizes_before, len(is_open))
    parents = table["parent"]
    ends = sizes_before[parents] + table["start"] - streams["start"][parents] + table["size"]
    good = np.flatnonzero(~table.bad & is_open[connections[parents]] & (ends <= UNDECIDED_BYTES))
    sides = groups[parents[good]]
    ranks = np.arange(len(good)) - find_first_rows(sides)
    chosen = good[ranks < WEIGHED]
    weighed_connections = connections[parents[chosen]]
    packets = read_last(table[chosen], name="ready")
    counts = packets <= last_packets[weighed_connections]
    chosen, packets = chosen[counts], packets[counts]
    weighed_connections = weighed_connections[counts]
    frame_bits = np.zeros(len(chosen), np.float64)
    for group in _iter_groups(parents[chosen]):
        frame_bits[group] = _weigh_group(weigh, table[chosen[group]], weighed_connections[group])
    bits = _find_largest_sums(frame_bits, weighed_connections, packets, len(is_open))
    frames = np.bincount(weighed_connections, minlength=len(is_open))
    return FirstFrames(bits, frames, last_packets != NEVER)


def _measure_sides(streams: FrameTable, connections: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for the side of each stream, and the bytes of this side before it: int64.

    The streams of a side follow each other.
    """
    keys = 2 * connections + (streams["kind"] == Direction.TO_CLIENT)
    groups = np.cumsum(np.append(False, keys[1:] != keys[:-1])[: len(keys)])
    before = np.cumsum(streams["size"], dtype=np.int64) - streams["size"]
    first = find_first_rows(groups)
    return groups, before - before[first]


def _find_last_packets(
    streams: FrameTable, connections: np.ndarray, places: np.ndarray, count: int
) -> np.ndarray:
    """Return the packet after which no frame of each connection counts: int64, NEVER without one.

    places: where the first byte is in each stream that a side may not have before; outside the
    stream if it is in another one. count: the number of connections.
    """
    last_packets = np.full(count, NEVER, np.int64)
    over = np.flatnonzero((places >= 0) & (places < streams["size"]))
    if len(over):
        bytes_after = streams.rows[["start", "size", "buffer"]][over]
        bytes_after["start"] += places[over]
        bytes_after["size"] = 1
        found = {name: bytes_after[name] for name in ("start", "size", "buffer")}
        packets = read_last(ByteRanges(found, streams.buffers), name="ready")
        np.minimum.at(last_packets, connections[over], packets)
    return last_packets


def _weigh_group(
    weigh: Callable[[FrameTable], np.ndarray], frames: FrameTable, connections: np.ndarray
) -> np.ndarray:
    """Return the bits of frames, 0 for those of a connection whose frames exceed the limits."""
    with suppress(FrameError):
        return weigh(frames)
    bits = np.zeros(len(frames), np.float64)
    numbers = np.unique(connections)
    if len(numbers) > 1:
        for number in numbers.tolist():
            chosen = np.flatnonzero(connections == number)
            bits[chosen] = _weigh_group(weigh, frames[chosen], connections[chosen])
    return bits


def _find_largest_sums(
    bits: np.ndarray, connections: np.ndarray, packets: np.ndarray, count: int
) -> np.ndarray:
    """Return the largest sum of the bits of each connection after any of its packets: float64.

    connections, packets: of each frame. count: the number of connections.
    """
    largest = np.zeros(count, np.float64)
    order = np.lexsort((packets, connections))
    if not len(order):
        return largest
    connections, packets = connections[order], packets[order]
    sums = np.cumsum(bits[order])
    first = find_first_rows(connections)
    sums -= np.append(0.0, sums)[first]
    is_end = np.append((connections[1:] != connections[:-1]) | (packets[1:] != packets[:-1]), True)
    np.maximum.at(largest, connections[is_end], sums[is_end])
    return largest


def _iter_groups(parents: np.ndarray) -> list[slice]:
    """Return slices of about GROUP frames. The frames of one stream are in one slice."""
    count = len(parents)
    borders = np.searchsorted(parents, parents[GROUP::GROUP])
    edges = np.unique(np.concatenate([[0], borders, [count]]))
    return [slice(start, stop) for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist())]
