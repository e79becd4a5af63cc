"""Frames of any format in the streams of a capture: `frames`, for whole tables of pcap.streams.

`StreamScanner` finds the frames, and `CapturedFrames` reads a capture in pieces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from wirescan.frames.errors import FrameError, enforce_mode, resolve_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of, make_spec
from wirescan.frames.table import FrameTable, make_empty, require_rows
from wirescan.pcap.assembly.assembler import STREAM
from wirescan.pcap.constants import Direction
from wirescan.pcap.decryption.tls_keys import find_blocks
from wirescan.pcap.decryption.tls_streams import CaptureScanner, DecryptingScanner
from wirescan.pcap.endpoints import format_endpoints
from wirescan.pcap.extraction.answer_scanner import AnswerScanner
from wirescan.pcap.extraction.stream_scanner import StreamScanner
from wirescan.pcap.flow_tables import complete_streams

STREAMS = "pcap.streams?tolerant=true"  # the format around the frames of captures


def frames(
    streams: FrameTable,
    format: str,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the frames of a format in the streams of a capture.

    The table is that of `wirescan.scan(capture, format)`. Besides the columns of the format it has
    `time`, when the packet with the first byte of a frame was captured, and `time_end`, when the
    last of the packets with its bytes was captured. It also has `connection`, `direction`, `client`
    and `server`. Answers, such as kafka.responses, have their `latency` in ns.

    streams: a table of pcap.streams. It may have only some of the rows.
    format: the name of a format, such as "kafka.requests".
    errors: "strict", "mark" or "skip". None, the default, means `streams.errors`.
    check: verify checksums. limits: bounds of what is read.

    A connection is read if its first frames show the format, or if its server has a usual port of
    the format. Bytes that the capture does not have are a bad row with the fault LOST.

    Raises FrameError as `errors` says; TypeError for another table; ValueError for a format that is
    not sent over connections.
    """
    captured = format_of(format)
    if captured.within != STREAMS:
        captured = format_of(make_spec(format, capture="true"))
    options: dict[str, Any] = {"errors": errors, "check": check, "limits": limits}
    return captured.inside(captured.outermost.read(streams, **options), **options)


def make_scanner(format: Format, *, check: bool, limits: Limits) -> DecryptingScanner:
    """Return the scanner of an outermost format. The arguments are those of `StreamScanner`."""
    assert format.conversation is not None
    kind = StreamScanner if format.conversation.answers is None else AnswerScanner
    scanner: CaptureScanner = kind(format, check=check, limits=limits)
    return DecryptingScanner(scanner, format.conversation.keylog)


def require_streams(streams: Any, message: str) -> None:
    """Raise TypeError unless an object is a table of pcap.streams.

    Raise ValueError for streams without their connections. message: the start of the message.
    """
    require_rows(streams, STREAM, message)
    if streams.outer is None and len(streams):
        raise ValueError("these streams have no connections: make them with pcap.streams")


def scan_whole(streams: FrameTable, scanner: DecryptingScanner, format: Format) -> FrameTable:
    """Return all frames that a scanner finds in streams, as a table of a format."""
    if streams.outer is None:
        return make_empty(format)
    scanner.read_all(find_blocks(streams))
    table, _ = scanner.scan(complete_streams(streams), more=False)
    table.rows.setflags(write=False)
    return replace(table, format=format)


def read_stream_frames(
    streams: FrameTable,
    *,
    format: Format,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the frames of an outermost format in streams: `frames` has the arguments and errors.

    format: the format, which has a `conversation`.
    """
    errors = resolve_mode(errors, streams, limits)
    require_streams(streams, "frames of captures are read from a table of pcap.streams")
    scanner = make_scanner(format, check=check, limits=limits)
    return enforce_frames(scan_whole(streams, scanner, format), errors)


def enforce_frames(table: FrameTable, errors: str) -> FrameTable:
    """Apply a mode to frames of streams, or to exchanges. An error has a note with the connection.

    Raises FrameError under "strict" if there is a bad row.
    """
    bad = np.flatnonzero(table.bad)
    try:
        return enforce_mode(table, errors, len(bad))
    except FrameError as error:
        flows = table.outer
        row = table.rows[int(bad[0])]
        assert flows is not None
        if flows.outer is not None and flows.dtype == STREAM:
            row = flows.rows[int(row["parent"])]
            flows = flows.outer
        flow = flows[[int(row["parent"])]]
        client = format_endpoints(flow, "client")[0]
        server = format_endpoints(flow, "server")[0]
        ends = (client, server) if row["kind"] == Direction.TO_SERVER else (server, client)
        error.add_note(f"the position is that in the bytes from {ends[0]} to {ends[1]}")
        raise
