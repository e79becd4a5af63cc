"""Frames of any format in the streams of a capture: `frames`, and the reader of captures in pieces.

A stream is read if its first frames show the format, or if its server has one of the format's
ports. All streams are scanned at once, so a connection costs no Python.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import join_rows, keep_rows, select_rows
from wirescan.files.source import view_of
from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import HARD, NEAR, FrameError, enforce_mode, resolve_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of, make_spec
from wirescan.frames.table import FrameTable, join, make_empty, require_rows
from wirescan.pcap.assembler import STREAM
from wirescan.pcap.connection_rule import FirstFrames, has_usual_port, weigh_first_frames
from wirescan.pcap.constants import Direction, FlowState
from wirescan.pcap.endpoints import format_endpoints
from wirescan.pcap.flow_tables import (
    MOST_CONNECTIONS,
    complete_streams,
    make_assembler,
    make_flows,
    make_streams,
    release_idle,
    report_incomplete,
)
from wirescan.pcap.frame_times import QUESTION
from wirescan.pcap.packet_resync import GapTracker, find_followed, find_senders
from wirescan.pcap.sent_frames import make_sent_frames, read_sent
from wirescan.pcap.tls_keys import find_blocks
from wirescan.pcap.tls_streams import CaptureScanner, DecryptingScanner
from wirescan.pcap.verdicts import ACCEPTED, KEPT, REJECTED, UNDECIDED, ConnectionVerdicts
from wirescan.pcap.waiting_frames import WaitingFrames

STREAMS = "pcap.streams?tolerant=true"  # the format around the frames of captures
HELD_BYTES = 64 << 20  # of a connection that wait while the next frame of one side is searched for
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
    captured = format_of(format)
    if captured.within != STREAMS:
        captured = format_of(make_spec(format, capture="true"))
    options: dict[str, Any] = {"errors": errors, "check": check, "limits": limits}
    return captured.inside(captured.outermost.read(streams, **options), **options)


class StreamScanner:
    """Finds the frames of an outermost format in tables of pcap.streams, one after another.

    format: the format, which has a `conversation`.
    check, limits: as in `frames`.
    asked: the scanner of the frames that these answer. Its connections are those of this one.
    holds: whether frames wait while a frame of the same connection may be found that was sent
        before them, or "all" for frames of all connections.
    """

    def __init__(
        self,
        format: Format,
        *,
        check: bool,
        limits: Limits,
        asked: StreamScanner | None = None,
        holds: Literal["connection", "all"] | None = None,
    ):
        assert format.conversation is not None
        self._asked = asked
        self._holds = holds
        self._held = np.zeros(0, np.int64)  # connections of the last streams that are given again
        self._format = format
        self._conversation: Conversation = format.conversation
        self._check = check
        self._limits = limits
        self._known = ConnectionVerdicts()
        self._gaps = None
        if self._conversation.weigh_after_gap is not None:
            self._gaps = GapTracker(format, check=check, limits=limits)
        # Those of the connections of the last streams, in the order of their numbers.
        self._verdicts = np.zeros(0, np.uint8)
        self._numbers = np.zeros(0, np.int64)

    def scan(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the frames, bad rows included, and the bytes of each stream that are done with.

        streams: a table of pcap.streams. more: whether bytes may follow those of each stream.
        released: the connections of these streams end here, whether their end was seen or not.

        Raises FrameError if there are more frames than the limits allow.
        """
        chosen = self._choose_streams(streams)
        rows, ends, has_damage = self._scan_spans(streams, chosen, more=more)
        table = self._make_table(streams, rows)
        connections = self._read_connections(streams)
        is_chosen = np.zeros(len(streams), bool)
        is_chosen[chosen] = True
        verdicts = self._decide(streams, table, connections, more=more)
        if more and self._asked is None:
            self._known.keep(self._numbers, self._verdicts)
        is_kept = verdicts == UNDECIDED
        self._held = self._held[:0]
        if self._asked is not None:
            is_kept |= np.isin(self._numbers, self._asked._held)[connections]
        is_read = is_chosen & (verdicts == ACCEPTED) & ~is_kept
        rows = keep_rows(rows, is_read[rows["parent"]])
        is_searched = np.zeros(len(streams), bool)
        if self._conversation.resyncs:
            is_searched[chosen] = has_damage
            is_searched &= is_read & ~find_followed(find_senders(streams))
        found = None
        if self._gaps is not None:
            found = self._gaps.scan(
                streams,
                rows,
                ends,
                chosen=chosen,
                has_damage=has_damage,
                is_read=is_read,
                more=more,
            )
            rows, ends = found.rows, found.ends
            is_searched[found.is_scanned] = found.is_searched[found.is_scanned]
        if more:
            is_kept |= self._hold(streams, connections, is_searched)
        is_read &= ~is_kept
        rows = keep_rows(rows, is_read[rows["parent"]])
        if found is not None and self._gaps is not None and more:
            self._gaps.keep_states(found, is_read)
        done = np.where(is_kept, KEPT, streams.rows["size"].astype(np.int64))
        if more:
            done[chosen] = np.where(is_read[chosen], ends, done[chosen])
        verdicts = np.where(is_kept, UNDECIDED, verdicts)
        is_ended = np.full(len(streams), released)
        if not (more or released):
            assert streams.outer is not None
            is_ended = streams.outer["kind"][streams["parent"]] != FlowState.UNFINISHED
        rows = self._add_bad_rows(streams, rows, verdicts, chosen, ends, is_ended)
        return self._make_table(streams, rows), done

    def _hold(
        self, streams: FrameTable, connections: np.ndarray, is_searched: np.ndarray
    ) -> np.ndarray:
        """Return which streams are given again, because an earlier frame may be found: bool.

        Connections with more than HELD_BYTES are not held any more.

        is_searched: the streams in which a frame may be found.
        """
        is_held = np.zeros(len(self._numbers), bool)
        if self._holds is not None:
            is_held[connections[is_searched]] = True
            sizes = np.bincount(connections, streams["size"], len(self._numbers))
            if self._holds == "all":
                is_held[:] = is_held.any() and sizes.sum() <= HELD_BYTES
            is_held &= sizes <= HELD_BYTES
        self._held = self._numbers[is_held]
        return is_held[connections]

    def weigh(self, streams: FrameTable, *, more: bool) -> tuple[np.ndarray, FirstFrames]:
        """Return the numbers of the connections, and what the first frames of each one show.

        The arguments are those of `scan`. Connections that `scan` decided have 0 bits.
        """
        rows, *_ = self._scan_spans(streams, self._choose_streams(streams), more=more)
        shown = self._weigh(self._make_table(streams, rows), self._read_connections(streams))
        return self._numbers, shown

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: no byte of them follows. connections: their numbers, int64."""
        self._known.forget(connections)
        if self._gaps is not None:
            self._gaps.forget(connections)

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
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of frames, and how many bytes of each chosen stream they cover.

        The third array says which chosen streams have damage behind these bytes: bool.

        more: whether bytes may follow those streams that no other one of the same side follows.
        """
        is_open = np.full(len(chosen), more)
        if more:
            is_open = ~find_followed(find_senders(streams))[chosen]
        if is_open.all() or not is_open.any():
            return self._scan_chosen(streams, chosen, more=bool(is_open.any()))
        ends = np.zeros(len(chosen), np.int64)
        has_damage = np.zeros(len(chosen), bool)
        parts = []
        for places, follows in ((np.flatnonzero(is_open), True), (np.flatnonzero(~is_open), False)):
            found = self._scan_chosen(streams, chosen[places], more=follows)
            rows, ends[places], has_damage[places] = found
            parts.append(rows)
        rows = join_rows(parts)
        rows = select_rows(rows, np.argsort(rows["parent"], kind="stable"))
        return rows, ends, has_damage

    def _scan_chosen(
        self, streams: FrameTable, chosen: np.ndarray, *, more: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same for streams that bytes may follow, or that none follow."""
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
        return rows, positions - spans["start"], faults >= HARD

    def _make_table(self, streams: FrameTable, rows: np.ndarray) -> FrameTable:
        return FrameTable(streams.buffers, rows, (), self._format, streams, (), self._check, "mark")

    def _read_connections(self, streams: FrameTable) -> np.ndarray:
        """Return the connection of each stream: its place in `_verdicts`, which are found."""
        assert streams.outer is not None
        numbers = streams.outer["connection"][streams["parent"]]
        self._numbers, connections = np.unique(numbers, return_inverse=True)
        self._verdicts = self._known.find(self._numbers)
        return connections

    def _decide(
        self,
        streams: FrameTable,
        table: FrameTable,
        connections: np.ndarray,
        *,
        more: bool,
    ) -> np.ndarray:
        """Return the verdict of the connection of each stream, and keep it."""
        verdicts = self._verdicts
        if self._asked is not None:
            verdicts[:] = self._asked._verdicts
            return verdicts[connections]
        is_open = verdicts[connections] == UNDECIDED
        if is_open.any():
            assert streams.outer is not None
            ports = streams.outer["server_port"][streams["parent"]]
            is_usual = has_usual_port(self._conversation, ports)
            verdicts[connections[is_open & is_usual]] = ACCEPTED
            if (verdicts == UNDECIDED).any():
                shown = self._weigh(table, connections)
                is_open = verdicts == UNDECIDED
                verdicts[is_open & shown.show_format] = ACCEPTED
                is_open = verdicts == UNDECIDED
                verdicts[is_open & (shown.is_complete | (not more))] = REJECTED
        return verdicts[connections]

    def _weigh(self, table: FrameTable, connections: np.ndarray) -> FirstFrames:
        assert table.outer is not None
        return weigh_first_frames(
            table,
            connections,
            self._verdicts == UNDECIDED,
            may_send=self._is_of_sender(table.outer),
        )

    def _add_bad_rows(
        self,
        streams: FrameTable,
        rows: np.ndarray,
        verdicts: np.ndarray,
        chosen: np.ndarray,
        ends: np.ndarray,
        is_ended: np.ndarray,
    ) -> np.ndarray:
        """Return the rows with those for bad streams, and for frames that end too early.

        verdicts: of the connection of each stream.

        is_ended: the streams whose connections end with them.

        A frame ends too early where lost bytes or the end of its connection follow. Where only the
        capture ends, its bytes are a tail.
        """
        is_lost = streams.bad & self._is_of_sender(streams) & (verdicts == ACCEPTED)
        is_ended = is_ended | find_followed(find_senders(streams))
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
        if not len(bad):
            return rows
        rows = join_rows([rows, bad])
        return select_rows(rows, np.argsort(rows["parent"], kind="stable"))


class AnswerScanner:
    """Finds the frames of a format whose columns follow from the frames that they answer.

    It is a `StreamScanner` of both. It keeps frames without an answer within the limits of
    waiting_frames.py.
    """

    def __init__(self, format: Format, *, check: bool, limits: Limits):
        assert format.conversation is not None
        assert format.conversation.answers is not None and format.conversation.label is not None
        asked = format_of(format.conversation.answers)
        self._label = format.conversation.label
        self._measure_waiting = format.conversation.measure_waiting or _measure_frames
        self._asked_format = asked
        self._asked = StreamScanner(asked, check=check, limits=limits, holds="connection")
        self._answers = StreamScanner(format, check=check, limits=limits, asked=self._asked)
        self._waiting = WaitingFrames(make_empty(asked))

    def scan(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the answers, and the bytes that are done with: see `StreamScanner.scan`."""
        _, answers, done = self.scan_both(streams, more=more, released=released)
        return answers, done

    def scan_both(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, FrameTable, np.ndarray]:
        """Return the questions, the answers, and the bytes that are done with."""
        new, asked_done = self._asked.scan(streams, more=more, released=released)
        answers, done = self._answers.scan(streams, more=more, released=released)
        done = np.where(streams["kind"] == Direction.TO_SERVER, asked_done, done)
        if not len(answers):
            if more:
                self._keep(new, read_sent(new, 0), ~new.bad)
            buffers = (*answers.buffers, view_of(np.zeros(0, np.uint8)))
            return new, replace(answers, buffers=buffers), done
        answers_sent = read_sent(answers, 0)
        waiting, waiting_sent = self._waiting.take(np.unique(answers_sent["connection"]))
        sent = join_rows([waiting_sent, read_sent(new, 0)])
        is_new = np.arange(len(sent)) >= len(waiting)
        table = join([waiting, replace(new, outer=None, format=self._asked_format)])
        answered = make_sent_frames(answers, answers_sent, np.ones(len(answers), bool))
        labelled = self._label(answered, make_sent_frames(table, sent, is_new))
        rows = labelled.rows
        if more:
            self._keep(table, sent, labelled.is_awaited)
        is_known = labelled.asked >= 0
        questions = np.zeros(int(is_known.sum()), QUESTION)
        questions["start"] = rows["start"][is_known]
        questions["time"] = sent["time_end"][labelled.asked[is_known]]
        questions = select_rows(questions, np.argsort(questions["start"], kind="stable"))
        buffers = (*answers.buffers, view_of(questions.view(np.uint8)))
        return new, replace(answers, rows=rows, buffers=buffers), done

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: see `StreamScanner.forget`."""
        self._asked.forget(connections)
        self._answers.forget(connections)
        self._waiting.forget(connections)

    def _keep(self, asked: FrameTable, sent: np.ndarray, is_awaited: np.ndarray) -> None:
        """Keep copies of the frames that may still be answered."""
        sizes = self._measure_waiting(asked)
        kept = np.flatnonzero(is_awaited & (sizes >= 0))
        frames = replace(
            asked, rows=select_rows(asked.rows, kept), outer=None, format=self._asked_format
        )
        self._waiting.add(frames, select_rows(sent, kept), sizes[kept])


def _measure_frames(asked: FrameTable) -> np.ndarray:
    """Return how many bytes of each frame are kept while it waits: all."""
    return asked.rows["size"].astype(np.int64)


def make_scanner(format: Format, *, check: bool, limits: Limits) -> DecryptingScanner:
    """Return the scanner of an outermost format. The arguments are those of `StreamScanner`."""
    assert format.conversation is not None
    kind = StreamScanner if format.conversation.answers is None else AnswerScanner
    scanner: CaptureScanner = kind(format, check=check, limits=limits)
    return DecryptingScanner(scanner, format.conversation.keylog)


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


class CapturedFrames:
    """Reads the frames of a format from the blocks of a capture: a `CaptureReader`.

    It holds the bytes of cut frames and of packets that came too early, and about 600 bytes for
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
