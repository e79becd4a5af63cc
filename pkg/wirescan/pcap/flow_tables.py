"""Tables of connections and of what they sent, from the results of an `Assembler`."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.row_arrays import copy_rows
from wirescan.files.source import view_of
from wirescan.frames.conversation import make_opening
from wirescan.frames.errors import enforce_mode
from wirescan.frames.registry import format_of, load_formats
from wirescan.frames.table import FrameTable
from wirescan.pcap.assembly.assembler import SEGMENT, Assembler
from wirescan.pcap.constants import Direction

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 1 << 17  # that are held while a capture is read in pieces
MOST_WAITING = 1 << 30  # bytes of them that wait for others, decrypted bytes included
# The hellos of TLS: a record of a handshake, and the type of the message in it.
TLS_OPENINGS = [
    make_opening("client", b"\x16\x03", (0, 4), 2, b"\x01"),
    make_opening("server", b"\x16\x03", (0, 4), 2, b"\x02"),
]


def make_assembler(policy: str, *, connections: int | None = None) -> Assembler:
    """Return an `Assembler` that knows the ports and the first bytes of all formats.

    The arguments are those of `Assembler`.
    """
    conversations = [
        format.conversation for format in load_formats().values() if format.conversation is not None
    ]
    openings = [opening for item in conversations for opening in item.openings] + TLS_OPENINGS
    return Assembler(
        policy,
        connections=connections,
        ports={port for item in conversations for port in item.ports},
        openings=[(item.sender == "client", item.lowest, item.highest) for item in openings],
    )


def make_flows(
    packets: FrameTable | None, rows: np.ndarray, endpoints: np.ndarray, errors: str
) -> FrameTable:
    """Return a table of pcap.flows. rows, endpoints: results of `Assembler`."""
    if packets is None:
        rows["parent"] = -1
    rows.setflags(write=False)
    return FrameTable(
        (view_of(endpoints.ravel()),),
        rows,
        (),
        format_of("pcap.flows"),
        packets,
        checked=True,
        errors=errors,
    )


def make_streams(
    flows: FrameTable, rows: np.ndarray, block: Any, segments: np.ndarray, errors: str
) -> FrameTable:
    """Return a table of pcap.streams. The arguments are results of `Assembler.take`."""
    rows.setflags(write=False)
    segments.setflags(write=False)
    buffers = (view_of(block), view_of(segments.view(np.uint8)))
    table = FrameTable(
        buffers, rows, (), format_of("pcap.streams"), flows, checked=True, errors=errors
    )
    return enforce_mode(table, errors, int(np.count_nonzero(table.bad)))


def report_incomplete(assembler: Assembler) -> None:
    """Log how many fragmented datagrams are incomplete. Nothing says which connections they are of.

    assembler: one whose capture ended.
    """
    count = assembler.incomplete_datagrams
    if count:
        logger.warning(
            "%d fragmented IP datagrams of TCP are incomplete in the capture: their bytes are lost",
            count,
        )


class HeldBytes(Protocol):
    """Memory of connections besides that of an `Assembler`."""

    @property
    def held_bytes(self) -> int:
        """Bytes of all connections."""
        ...

    def count_bytes(self, connection: int) -> int:
        """Return the bytes of one connection."""
        ...


def release_idle(assembler: Assembler, held: HeldBytes) -> None:
    """Release the longest idle connections until at most MOST_WAITING bytes wait.

    held: other bytes of the connections. Connections that are released already come first.
    """
    if assembler.released:
        return
    excess = assembler.waiting_bytes + held.held_bytes - MOST_WAITING
    while excess > 0:
        connection, size = assembler.release_idle()
        if connection < 0:
            break
        excess -= size + held.count_bytes(connection)


def complete_streams(streams: FrameTable) -> FrameTable:
    """Return streams with one buffer of bytes, and with a row for each gap.

    streams: a table of pcap.streams. Joined tables have several buffers, and tables that were read
    with "skip" have no rows for gaps.

    Raises ValueError for a row in a buffer that has no bytes of streams: a user may make rows.
    """
    numbers = streams.rows["buffer"]
    if (numbers % 2).any() or numbers.max(initial=0) + 1 >= len(streams.buffers):
        raise ValueError("a row of pcap.streams is in a buffer that has no bytes of streams")
    senders = streams["parent"].astype(np.int64) * 2 + (streams["kind"] == Direction.TO_CLIENT)
    if len(streams.buffers) == 2 and not len(_find_gaps(streams.rows, senders)[0]):
        return streams
    rows = copy_rows(streams.rows)
    parts, segment_parts = [], []
    at = 0
    count = 0
    for number in np.unique(rows["buffer"]).tolist():
        chosen = rows["buffer"] == number
        segments = np.frombuffer(streams.buffers[number + 1], SEGMENT).copy()
        segments["start"] += at
        rows["start"][chosen] += at
        rows["first_segment"][chosen] += count
        parts.append(streams.buffers[number])
        segment_parts.append(segments)
        at += len(streams.buffers[number])
        count += len(segments)
    rows["buffer"] = 0
    before, expected = _find_gaps(rows, senders)
    gaps = rows[before]
    gaps["lost"] = gaps["position"] - expected[before]
    gaps["position"] = expected[before]
    gaps["fault"] = Fault.LOST
    for name in ("size", "segment_count"):
        gaps[name] = 0
    rows = np.insert(rows, before, gaps)
    segments = np.concatenate([np.zeros(0, SEGMENT), *segment_parts])
    flows = streams.outer
    assert flows is not None
    return make_streams(flows, rows, view_of(b"".join(parts)), segments, "mark")


def _find_gaps(rows: np.ndarray, senders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows before which a row for a gap is missing, and the expected position of each.

    senders: a number of the connection and side of each row.
    """
    ends = rows["position"] + np.where(rows["fault"] == Fault.LOST, rows["lost"], rows["size"])
    expected = np.where(np.diff(senders, prepend=-1) == 0, np.roll(ends, 1), 0)
    return np.flatnonzero(rows["position"] > expected), expected
