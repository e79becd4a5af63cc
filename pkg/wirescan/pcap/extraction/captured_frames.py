"""Reads the frames of a format in a capture in pieces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable, join
from wirescan.pcap.decryption.tls_streams import DecryptingScanner
from wirescan.pcap.extraction.stream_frames import enforce_frames
from wirescan.pcap.flow_tables import (
    MOST_CONNECTIONS,
    make_assembler,
    make_flows,
    make_streams,
    release_idle,
    report_incomplete,
)


class CapturedFrames:
    """Reads the frames of a format from the blocks of a capture: a `CaptureReader`.

    It holds the bytes of cut frames and of packets that came too early, and about 650 bytes for
    each connection. `Assembler` says when a connection is released.

    scanner: finds the frames. captured: the format of the tables. errors, limits: as in `frames`.
    together: the scanner gets all bytes up to a packet, so that no connection is behind another.
    """

    def __init__(
        self,
        scanner: DecryptingScanner,
        captured: Format,
        *,
        errors: str,
        limits: Limits,
        together: bool = False,
    ):
        self._captured = captured
        self._together = together
        self._errors = errors
        self._assembler = make_assembler("first", connections=MOST_CONNECTIONS)
        self._scanner = scanner
        self._open_packets = partial(format_of("pcap.packets").inside, errors="mark", limits=limits)

    def feed(self, table: FrameTable) -> FrameTable:
        """Return the frames that the packets of these blocks complete."""
        self._scanner.read_blocks(table)
        packets = self._open_packets(table)
        self._assembler.feed(packets.rows, packets.buffers)
        return self._read(is_last=False)

    def close(self) -> FrameTable:
        """Return the frames that lost bytes and the end of the capture complete."""
        self._assembler.finish()
        report_incomplete(self._assembler)
        return self._read(is_last=True)

    def _read(self, *, is_last: bool) -> FrameTable:
        tables = []
        if self._assembler.released:
            table, _ = self._scan(more=False, released=True)
            self._scanner.forget(self._assembler.list_flows(released=True)[0]["connection"])
            self._assembler.drop_released()
            tables.append(table)
        table, done = self._scan(more=not is_last, released=False)
        self._assembler.release(done)
        release_idle(self._assembler, self._scanner)
        table = join([*tables, table])
        table.rows.setflags(write=False)
        return enforce_frames(table, self._errors)

    def _scan(self, *, more: bool, released: bool) -> tuple[FrameTable, np.ndarray]:
        """Return the frames of the released connections, or of all others.

        Return also the bytes of each stream that are done with.
        """
        rows, endpoints, stream_rows, block, segments = self._assembler.take(
            everything=not more, released=released, together=self._together
        )
        if not more:
            # The scanner has decrypted bytes of connections without other bytes.
            numbers = rows["connection"]
            rows, endpoints = self._assembler.list_flows(released=released)
            places = np.searchsorted(rows["connection"], numbers)
            stream_rows["parent"] = places[stream_rows["parent"]]
        flows = make_flows(None, rows, endpoints, "mark")
        streams = make_streams(flows, stream_rows, block, segments, "mark")
        table, done = self._scanner.scan(streams, more=more, released=released)
        return replace(table, format=self._captured), done
