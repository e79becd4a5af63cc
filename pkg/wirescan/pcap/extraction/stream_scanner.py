"""Finds the frames of a format in tables of pcap.streams, one table after another.

A stream is read if its first frames show the format, or if its server has one of the format's
ports. All streams are scanned at once, so a connection costs no Python.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import join_rows, keep_rows, select_rows
from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import HARD, NEAR, FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.pcap.constants import Direction, FlowState
from wirescan.pcap.extraction.connection_rule import FirstFrames, has_usual_port, weigh_first_frames
from wirescan.pcap.extraction.packet_resync import GapTracker, find_followed, find_senders
from wirescan.pcap.verdicts import ACCEPTED, KEPT, REJECTED, UNDECIDED, ConnectionVerdicts

HELD_BYTES = 64 << 20  # of a connection that wait while the next frame of one side is searched for
SENDERS = {"client": Direction.TO_SERVER, "server": Direction.TO_CLIENT}


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
