"""Tables of connections and of what they sent, from the results of an `Assembler`."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from wirescan.files.source import view_of
from wirescan.frames.errors import enforce_mode
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.pcap.assembler import Assembler

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 1 << 17  # that are held while a capture is read in pieces


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


def copy_flows(flows: FrameTable, chosen: np.ndarray) -> FrameTable:
    """Return a table of some rows of pcap.flows, with their addresses only."""
    ends = b"".join(bytes(flows.frame(row)) for row in chosen.tolist())
    rows = flows.rows[chosen]
    rows["buffer"] = 0
    rows["start"] = np.cumsum([0, *rows["size"]])[:-1]
    endpoints = np.frombuffer(ends, np.uint8)
    return make_flows(None, rows, endpoints, flows.errors)


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
