"""Frames of any format in the streams of a capture: `frames`, and the reader of captures in pieces.

A stream is read if its first frames show the format, or if its server has one of the format's
ports. All streams are scanned at once, so a connection costs no Python.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.files.source import view_of
from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import NEAR, FrameError, enforce_mode, resolve_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of, make_spec
from wirescan.frames.table import FrameTable, join, make_empty, require_rows
from wirescan.pcap.assembler import STREAM, Assembler
from wirescan.pcap.constants import Direction, FlowState
from wirescan.pcap.endpoints import format_endpoints
from wirescan.pcap.flow_tables import make_flows, make_streams
from wirescan.pcap.frame_times import QUESTION, compute_end
from wirescan.pcap.tls_streams import DecryptingScanner, Scanner

EVIDENCE = 16  # bits of the first frames of a connection that show its format
WEIGHED = 8  # first frames of a stream that are weighed
KEPT = 1000  # frames of a connection that wait for their answers
UNDECIDED_BYTES = 1 << 16  # a stream of more bytes without evidence has another format
# What is known of a connection.
UNDECIDED, ACCEPTED, REJECTED = 0, 1, 2
SENDERS = {"client": Direction.TO_SERVER, "server": Direction.TO_CLIENT}


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
    captured = format_of(make_spec(format, capture="true"))
    options: dict[str, Any] = {"errors": errors, "check": check, "limits": limits}
    return captured.inside(captured.outermost.read(streams, **options), **options)


class StreamScanner:
    """Finds the frames of an outermost format in tables of pcap.streams, one after another.

    format: the format, which has a `conversation`.
    check, limits: as in `frames`.
    asked: the scanner of the frames that these answer. Its connections are those of this one.
    """

    def __init__(
        self, format: Format, *, check: bool, limits: Limits, asked: StreamScanner | None = None
    ):
        assert format.conversation is not None
        self._asked = asked
        self._format = format
        self._conversation: Conversation = format.conversation
        self._check = check
        self._limits = limits
        self._verdicts = np.zeros(0, np.uint8)  # by the number of the connection

    def scan(self, streams: FrameTable, *, more: bool) -> tuple[FrameTable, np.ndarray]:
        """Return the frames, bad rows included, and the bytes of each stream that are done with.

        streams: a table of pcap.streams. more: whether bytes may follow those of each stream.

        Raises FrameError if there are more frames than the limits allow.
        """
        sizes = streams.rows["size"].astype(np.int64)
        chosen = self._choose_streams(streams)
        rows, ends = self._scan_spans(streams, chosen, more=more)
        table = self._make_table(streams, rows)
        connections = self._read_connections(streams)
        is_chosen = np.zeros(len(streams), bool)
        is_chosen[chosen] = True
        is_small = sizes <= UNDECIDED_BYTES
        is_judged = is_chosen if not more else is_chosen & ~is_small
        verdicts = self._decide(streams, table, connections, is_judged)
        is_read = is_chosen & (verdicts == ACCEPTED)
        rows = rows[is_read[rows["parent"]]]
        waits = is_chosen & is_small & (verdicts == UNDECIDED)
        done = np.where(waits, 0, sizes)
        if more:
            done[chosen] = np.where(is_read[chosen], ends, done[chosen])
        rows = self._add_bad_rows(streams, rows, verdicts, chosen, ends, more=more)
        return self._make_table(streams, rows), done

    def _choose_streams(self, streams: FrameTable) -> np.ndarray:
        """Return the rows of streams whose sender may send such frames."""
        return np.flatnonzero(~streams.bad & self._is_of_sender(streams))

    def _is_of_sender(self, streams: FrameTable) -> np.ndarray:
        """Return which streams have a sender that may send such frames: a bool array."""
        if self._conversation.sender is None:
            return np.ones(len(streams), bool)
        is_of_sender: np.ndarray = streams["kind"] == SENDERS[self._conversation.sender]
        return is_of_sender

    def _scan_spans(
        self, streams: FrameTable, chosen: np.ndarray, *, more: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of frames, and how many bytes of each chosen stream they cover."""
        spans = np.zeros(len(chosen), HEAD)
        for name in ("start", "size", "buffer"):
            spans[name] = streams.rows[name][chosen]
        spans["parent"] = chosen
        scan = self._format.parser.spans
        assert scan is not None  # every format with a conversation has it
        rows, _, faults, positions = scan(
            streams.buffers, spans, check=self._check, resync=True, limits=self._limits, more=more
        )
        if len(faults) and faults[-1] == Fault.LIMIT:
            at = int(positions[-1])
            near = streams.buffers[int(spans["buffer"][len(faults) - 1])][at : at + NEAR]
            raise FrameError(Fault.LIMIT, at, len(rows), near)
        return rows, positions - spans["start"]

    def _make_table(self, streams: FrameTable, rows: np.ndarray) -> FrameTable:
        return FrameTable(streams.buffers, rows, (), self._format, streams, (), self._check, "mark")

    def _read_connections(self, streams: FrameTable) -> np.ndarray:
        assert streams.outer is not None
        connections: np.ndarray = streams.outer["connection"][streams["parent"]]
        missing = int(connections.max(initial=-1)) + 1 - len(self._verdicts)
        if missing > 0:
            self._verdicts = np.concatenate([self._verdicts, np.zeros(missing, np.uint8)])
        return connections

    def _decide(
        self,
        streams: FrameTable,
        table: FrameTable,
        connections: np.ndarray,
        is_judged: np.ndarray,
    ) -> np.ndarray:
        """Return the verdict of the connection of each stream, and keep it.

        is_judged: the streams whose connection is rejected if nothing shows the format.
        """
        verdicts = self._verdicts
        if self._asked is not None:
            verdicts[:] = self._asked._verdicts
            return verdicts[connections]
        is_open = verdicts[connections] == UNDECIDED
        if is_open.any():
            assert streams.outer is not None
            ports = streams.outer["server_port"][streams["parent"]]
            is_usual = np.isin(ports, self._conversation.ports)
            verdicts[connections[is_open & is_usual]] = ACCEPTED
            is_shown = is_usual
            if (is_open & ~is_usual).any():
                is_shown = is_usual | (self._weigh(table, connections)[connections] >= EVIDENCE)
            verdicts[connections[is_open & is_shown]] = ACCEPTED
            is_other = is_judged & (verdicts[connections] == UNDECIDED)
            verdicts[connections[is_other]] = REJECTED
        return verdicts[connections]

    def _weigh(self, table: FrameTable, connections: np.ndarray) -> np.ndarray:
        """Return how unlikely the first frames of each connection are in other bytes, in bits."""
        bits = np.zeros(len(self._verdicts), np.float64)
        weigh = self._format.storage.weigh
        assert weigh is not None  # every format with a conversation has it
        parents = table["parent"]
        first = np.searchsorted(parents, parents)  # parents ascend
        is_weighed = (np.arange(len(table)) - first < WEIGHED) & ~table.bad
        is_weighed &= self._verdicts[connections[parents]] == UNDECIDED
        weighed = table[np.flatnonzero(is_weighed)]
        if len(weighed):
            np.add.at(bits, connections[weighed["parent"]], weigh(weighed))
        return bits

    def _add_bad_rows(
        self,
        streams: FrameTable,
        rows: np.ndarray,
        verdicts: np.ndarray,
        chosen: np.ndarray,
        ends: np.ndarray,
        *,
        more: bool,
    ) -> np.ndarray:
        """Return the rows with those for bad streams, and for frames that end too early.

        verdicts: of the connection of each stream.

        A frame ends too early where lost bytes or the end of its connection follow. Where only the
        capture ends, its bytes are a tail.
        """
        assert streams.outer is not None
        senders = streams["parent"].astype(np.int64) * 2 + (streams["kind"] == Direction.TO_CLIENT)
        is_lost = streams.bad & self._is_of_sender(streams) & (verdicts == ACCEPTED)
        is_followed = np.append(senders[1:] == senders[:-1], False)[: len(senders)]
        states = streams.outer["kind"][streams["parent"]]
        is_ended = is_followed | (not more) & (states != FlowState.UNFINISHED)
        left = streams.rows["size"][chosen].astype(np.int64) - ends
        is_accepted = verdicts[chosen] == ACCEPTED
        cut = np.flatnonzero((left > 0) & is_accepted & is_ended[chosen])
        lost = np.flatnonzero(is_lost)
        bad = np.zeros(len(cut) + len(lost), rows.dtype)
        parents = np.concatenate([chosen[cut], lost])
        bad["parent"] = parents
        bad["buffer"] = streams.rows["buffer"][parents]
        bad["start"] = streams.rows["start"][parents]
        bad["start"][: len(cut)] += ends[cut]
        bad["size"][: len(cut)] = left[cut]
        bad["fault"][: len(cut)] = Fault.SHORT
        bad["fault"][len(cut) :] = streams.rows["fault"][lost]
        rows = np.concatenate([rows, bad]) if len(bad) else rows
        return rows[np.argsort(rows["parent"], kind="stable")] if len(bad) else rows


class AnswerScanner:
    """Finds the frames of a format whose columns follow from the frames that they answer.

    It is a `StreamScanner` of both. It keeps the frames without an answer, at most KEPT of each
    connection.
    """

    def __init__(self, format: Format, *, check: bool, limits: Limits):
        assert format.conversation is not None
        assert format.conversation.answers is not None and format.conversation.label is not None
        asked = format_of(format.conversation.answers)
        self._label = format.conversation.label
        self._asked = StreamScanner(asked, check=check, limits=limits)
        self._answers = StreamScanner(format, check=check, limits=limits, asked=self._asked)
        self._waiting = make_empty(asked)
        self._waiting_connections = np.zeros(0, np.int64)
        self._waiting_times = np.zeros(0, np.int64)

    def scan(self, streams: FrameTable, *, more: bool) -> tuple[FrameTable, np.ndarray]:
        """Return the answers, and the bytes that are done with: see `StreamScanner.scan`."""
        asked, asked_done = self._asked.scan(streams, more=more)
        answers, done = self._answers.scan(streams, more=more)
        assert streams.outer is not None
        connections = streams.outer["connection"][streams["parent"]]
        times = np.concatenate([self._waiting_times, compute_end(asked)])
        asked = replace(asked, outer=None, format=self._waiting.format)
        table = join([self._waiting, asked])
        asked_connections = np.concatenate(
            [self._waiting_connections, connections[asked["parent"]]]
        )
        rows, _ = self._label(answers, connections[answers["parent"]], table, asked_connections)
        if more:
            self._keep(table, asked_connections, times, rows["request"])
        is_known = rows["request"] >= 0
        questions = np.zeros(int(is_known.sum()), QUESTION)
        questions["start"] = rows["start"][is_known]
        questions["time"] = times[rows["request"][is_known]]
        questions.sort(order="start")
        buffers = (*answers.buffers, view_of(questions.view(np.uint8)))
        answers = replace(answers, rows=rows, buffers=buffers)
        is_asked = streams["kind"] == Direction.TO_SERVER
        return answers, np.where(is_asked, asked_done, done)

    def _keep(
        self,
        asked: FrameTable,
        connections: np.ndarray,
        times: np.ndarray,
        answered: np.ndarray,
    ) -> None:
        """Keep copies of the frames that may still be answered.

        A connection answers in order, so frames before an answered one are not answered any more.
        """
        count = len(asked)
        order = np.argsort(connections, kind="stable")
        last = np.full(int(connections.max(initial=-1)) + 1, -1, np.int64)
        answered = answered[answered >= 0].astype(np.int64)
        np.maximum.at(last, connections[answered], answered)
        is_kept = np.arange(count) > last[connections]
        # The place of each frame from the end of its connection.
        ends = np.searchsorted(connections[order], connections[order], "right")
        is_recent = np.zeros(count, bool)
        is_recent[order] = ends - np.arange(count) <= KEPT
        kept = np.flatnonzero(is_kept & is_recent & ~asked.bad)
        frames = [bytes(asked.frame(row)) for row in kept.tolist()]
        rows = asked.rows[kept]
        rows["buffer"] = 0
        rows["start"] = np.cumsum([0, *map(len, frames)])[:-1]
        self._waiting = replace(asked, rows=rows, buffers=(view_of(b"".join(frames)),))
        self._waiting_connections = connections[kept]
        self._waiting_times = times[kept]


def _make_scanner(format: Format, *, check: bool, limits: Limits) -> Scanner:
    assert format.conversation is not None
    kind = StreamScanner if format.conversation.answers is None else AnswerScanner
    scanner = kind(format, check=check, limits=limits)
    keylog = format.conversation.keylog
    return scanner if keylog is None else DecryptingScanner(scanner, keylog)


class CapturedStreams:
    """Reads the connections of a capture, or what they sent: a `CaptureReader`.

    name: "pcap.flows" or "pcap.streams". errors, limits: as in `frames`. check is accepted for
    consistency and ignored.

    Streams are returned as their packets come. Connections are returned at the end.
    """

    def __init__(self, name: str, *, errors: str, check: bool, limits: Limits):
        self._format = format_of(name)
        self._errors = errors
        self._assembler = Assembler("first")
        self._open_packets = partial(format_of("pcap.packets").inside, errors="mark", limits=limits)

    def feed(self, table: FrameTable) -> FrameTable:
        """Return the streams of these blocks; an empty table of connections."""
        packets = self._open_packets(table)
        self._assembler.feed(packets.rows, packets.buffers)
        return self._read()

    def close(self) -> FrameTable:
        """Return the last streams, or all connections."""
        self._assembler.finish()
        table = self._read()
        if self._format.dtype == STREAM:
            return table
        flows = make_flows(None, *self._assembler.list_flows(), self._errors)
        return replace(flows, format=self._format)

    def _read(self) -> FrameTable:
        rows, endpoints, stream_rows, block, segments = self._assembler.take()
        self._assembler.release(stream_rows["size"].astype(np.int64))
        is_stream = self._format.dtype == STREAM
        flows = make_flows(None, rows, endpoints, self._errors)
        if not is_stream:
            return replace(flows[:0], format=self._format)
        streams = make_streams(flows, stream_rows, block, segments, self._errors)
        return replace(streams, format=self._format)


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
    require_rows(streams, STREAM, "frames of captures are read from a table of pcap.streams")
    table, _ = _make_scanner(format, check=check, limits=limits).scan(streams, more=False)
    table.rows.setflags(write=False)
    return enforce_frames(table, errors)


def enforce_frames(table: FrameTable, errors: str) -> FrameTable:
    """Apply a mode to frames of streams. An error has a note that names the connection.

    Raises FrameError under "strict" if there is a bad row.
    """
    bad = np.flatnonzero(table.bad)
    try:
        return enforce_mode(table, errors, len(bad))
    except FrameError as error:
        streams = table.outer
        assert streams is not None and streams.outer is not None
        stream = streams.rows[int(table["parent"][bad[0]])]
        flow = streams.outer[[int(stream["parent"])]]
        client = format_endpoints(flow, "client")[0]
        server = format_endpoints(flow, "server")[0]
        ends = (client, server) if stream["kind"] == Direction.TO_SERVER else (server, client)
        error.add_note(f"the position is that in the bytes from {ends[0]} to {ends[1]}")
        raise


class CapturedFrames:
    """Reads the frames of a format from the blocks of a capture: a `CaptureReader`.

    It holds the bytes of cut frames and of packets that came too early, and about 400 bytes for
    each connection.

    format: the outermost format. captured: the format of the tables.
    errors, check, limits: as in `frames`.
    """

    def __init__(
        self, format: Format, captured: Format, *, errors: str, check: bool, limits: Limits
    ):
        self._captured = captured
        self._errors = errors
        self._assembler = Assembler("first")
        self._scanner = _make_scanner(format, check=check, limits=limits)
        self._open_packets = partial(format_of("pcap.packets").inside, errors="mark", limits=limits)

    def feed(self, table: FrameTable) -> FrameTable:
        """Return the frames that the packets of these blocks complete."""
        packets = self._open_packets(table)
        self._assembler.feed(packets.rows, packets.buffers)
        return self._read(is_last=False)

    def close(self) -> FrameTable:
        """Return the frames that lost bytes and the end of the capture complete."""
        self._assembler.finish()
        return self._read(is_last=True)

    def _read(self, *, is_last: bool) -> FrameTable:
        rows, endpoints, stream_rows, block, segments = self._assembler.take(everything=is_last)
        if is_last and isinstance(self._scanner, DecryptingScanner):
            # It has decrypted bytes of connections without other bytes.
            stream_rows["parent"] = rows["connection"][stream_rows["parent"]]
            rows, endpoints = self._assembler.list_flows()
        flows = make_flows(None, rows, endpoints, "mark")
        streams = make_streams(flows, stream_rows, block, segments, "mark")
        table, done = self._scanner.scan(streams, more=not is_last)
        self._assembler.release(done)
        table = replace(table, format=self._captured)
        table.rows.setflags(write=False)
        return enforce_frames(table, self._errors)
