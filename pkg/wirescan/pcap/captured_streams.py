"""Reads the connections and streams of a capture in pieces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable, join
from wirescan.pcap.assembly.assembler import STREAM
from wirescan.pcap.flow_tables import (
    MOST_CONNECTIONS,
    make_assembler,
    make_flows,
    make_streams,
    report_incomplete,
)


class CapturedStreams:
    """Reads the connections of a capture, or what they sent: a `CaptureReader`.

    name: "pcap.flows" or "pcap.streams". errors, limits: as in `frames`. check is accepted for
    consistency and ignored.

    Streams are returned as their packets come. Connections are returned when they are released,
    and at the end.
    """

    def __init__(self, name: str, *, errors: str, check: bool, limits: Limits):
        self._format = format_of(name)
        self._errors = errors
        self._assembler = make_assembler("first", connections=MOST_CONNECTIONS)
        self._open_packets = partial(format_of("pcap.packets").inside, errors="mark", limits=limits)

    def feed(self, table: FrameTable) -> FrameTable:
        """Return the streams of these blocks, or the connections that are released."""
        packets = self._open_packets(table)
        self._assembler.feed(packets.rows, packets.buffers)
        return self._read()

    def close(self) -> FrameTable:
        """Return the last streams, or all other connections."""
        self._assembler.finish()
        report_incomplete(self._assembler)
        table = self._read()
        if self._format.dtype == STREAM:
            return table
        return join([table, self._make_flows(*self._assembler.list_flows())])

    def _read(self) -> FrameTable:
        if self._format.dtype != STREAM:
            table = self._make_flows(*self._assembler.list_flows(released=True))
            self._assembler.drop_released()
            _, _, rows, _, _ = self._assembler.take()
            self._assembler.release(rows["size"].astype(np.int64))
            return table
        tables = []
        if self._assembler.released:
            tables.append(self._make_streams(*self._assembler.take(released=True)))
            self._assembler.drop_released()
        taken = self._assembler.take()
        self._assembler.release(taken[2]["size"].astype(np.int64))
        return join([*tables, self._make_streams(*taken)])

    def _make_streams(
        self,
        flows: np.ndarray,
        endpoints: np.ndarray,
        rows: np.ndarray,
        block: Any,
        segments: np.ndarray,
    ) -> FrameTable:
        """Return a table of pcap.streams. The arguments are the results of `Assembler.take`."""
        table = make_flows(None, flows, endpoints, self._errors)
        streams = make_streams(table, rows, block, segments, self._errors)
        return replace(streams, format=self._format)

    def _make_flows(self, rows: np.ndarray, endpoints: np.ndarray) -> FrameTable:
        return replace(make_flows(None, rows, endpoints, self._errors), format=self._format)
