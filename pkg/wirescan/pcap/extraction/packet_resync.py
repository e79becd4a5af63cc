"""Frames after lost bytes, in formats that declare how unlikely a frame is there.

After lost bytes, and where a capture begins inside a connection, the next byte is often inside a
frame. Programs mostly begin a frame at the start of a packet. So the starts of packets are
candidates, and the first one with plausible frames is where reading goes on. The bytes before it
are a bad row. So are the bytes from damage on, in a side of a connection that has lost bytes.

A candidate is plausible if its first good frames are worth NEEDED bits: those that
`Conversation.weigh_after_gap` returns for each frame, and BOUNDARY if one of them ends where a
packet ends. Only its first WINDOW bytes count, or its first frame, of at most LARGEST bytes. More
bytes never make a plausible candidate implausible. So the result does not depend on the pieces
that a capture is read in. The work for a candidate is bounded, and each packet is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD, Resume
from wirescan.core.row_arrays import find_first_rows, join_rows, keep_rows, select_rows
from wirescan.frames.conversation import WEIGHED_BYTES
from wirescan.frames.errors import HARD, NEAR, FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.pcap.assembly.assembler import SEGMENT
from wirescan.pcap.constants import Direction
from wirescan.pcap.extraction.frame_times import SEGMENTS_AFTER
from wirescan.pcap.extraction.stream_spans import (
    BAD_BYTES,
    CANDIDATE,
    IMPLAUSIBLE,
    NO_FAULT,
    PLAUSIBLE,
    SPAN,
    WAITING,
    StreamSpans,
)
from wirescan.pcap.verdicts import UNDECIDED, ConnectionNumbers, ConnectionVerdicts

NEEDED = 24  # bits
BOUNDARY = 16  # bits: a packet has about 2**10 bytes, and few of all sizes are in reach
WINDOW = WEIGHED_BYTES  # of a candidate that are looked at, if its first frame is smaller
LARGEST = 4 << 20  # bytes of a first frame; a bad row ends at the next packet after as many
WEIGHED = 8  # first frames of a candidate that are weighed
BATCH = 1024  # candidates whose frames are held at once
AT_FRAME = 1  # the state of a side with lost bytes whose next byte begins a frame; no fault has it


class GapScanner:
    """Scans spans of streams in which the start of the next frame may be unknown.

    format: an outermost format whose `conversation` has `weigh_after_gap`. check, limits: as in
    `pcap.frames`.
    """

    def __init__(self, format: Format, *, check: bool, limits: Limits):
        assert format.conversation is not None
        assert format.conversation.weigh_after_gap is not None
        assert format.parser.scan is not None and format.parser.spans is not None
        self._format = format
        self._weigh = format.conversation.weigh_after_gap
        self._scan_bytes = format.parser.scan
        self._scan_spans = format.parser.spans
        self._check = check
        self._limits = limits
        self._candidate_limits = Limits(frame=min(limits.frame, LARGEST))

    def scan(self, streams: FrameTable, rows: np.ndarray, dtype: np.dtype) -> list[np.ndarray]:
        """Return the rows of frames and the bad rows, as arrays in any order.

        Afterwards `start` of each span is the first byte that is in no row, and `fault` says
        whether a frame begins there. Bytes remain where the following bytes decide, and where a
        frame is cut.

        streams: a table of pcap.streams. rows: the spans, an array of dtype SPAN. dtype: that of
        the result.

        Raises FrameError if there are more frames than the limits allow.
        """
        buffers = np.unique(rows["buffer"]).tolist()
        packets = {buffer: _list_packet_starts(streams, buffer) for buffer in buffers}
        spans = StreamSpans(rows, packets, LARGEST)
        parts = []
        open_spans = np.arange(len(rows))
        while len(open_spans):
            self._search(streams, packets, spans, open_spans[rows["fault"][open_spans] != NO_FAULT])
            is_ready = rows["fault"][open_spans] == NO_FAULT
            for is_last in (False, True):
                chosen = open_spans[is_ready & (rows["is_last"][open_spans] == is_last)]
                if len(chosen):
                    parts.append(self._read(streams, spans, chosen, is_last=is_last))
            open_spans = open_spans[~rows["is_done"][open_spans]]
        return [*parts, _make_bad_rows(spans.bad_bytes, dtype)]

    def begin_with_frames(
        self, streams: FrameTable, rows: np.ndarray, chosen: np.ndarray
    ) -> np.ndarray:
        """Return whether plausible frames begin at the first byte of streams: a bool array.

        It is that of `_judge` for their first byte, or False for WAITING.

        rows: the frames, all good. chosen: the rows of streams, at least one.
        """
        candidates = np.zeros(len(chosen), CANDIDATE)
        starts = streams.rows["start"][chosen]
        buffers = streams.rows["buffer"][chosen]
        candidates["start"] = starts
        candidates["stop"] = starts + streams.rows["size"][chosen]
        candidates["parent"] = chosen
        candidates["buffer"] = buffers
        packets = {}
        is_packet = np.zeros(len(chosen), bool)
        for buffer in np.unique(buffers).tolist():
            packets[buffer] = packet_starts = _list_packet_starts(streams, buffer)
            places = np.minimum(np.searchsorted(packet_starts, starts), len(packet_starts) - 1)
            is_packet |= (buffers == buffer) & (packet_starts[places] == starts)
        numbers = np.full(len(streams), -1, np.int64)
        numbers[chosen] = np.arange(len(chosen))
        # Frames of other streams have the number -1, and do not count.
        numbers = numbers[rows["parent"]]
        ranks = np.arange(len(rows)) - find_first_rows(rows["parent"])
        ends = rows["start"] + rows["size"] - starts[numbers]
        counts = (ends <= WINDOW) | (ranks == 0) & (ends <= self._candidate_limits.frame)
        counts &= (ranks < WEIGHED) & (numbers >= 0)
        rows = keep_rows(rows, counts)
        numbers = numbers[counts]
        bits = self._sum_bits(streams, packets, candidates, rows, numbers)
        return is_packet & (bits >= NEEDED)

    def _read(
        self, streams: FrameTable, spans: StreamSpans, chosen: np.ndarray, *, is_last: bool
    ) -> np.ndarray:
        """Return the rows of the frames from the starts of some spans on, up to damage.

        chosen: the numbers of the spans. is_last: whether no byte follows any of them.
        """
        rows, _, faults, positions = self._scan_spans(
            streams.buffers,
            spans.make_heads(chosen),
            check=self._check,
            resync=False,
            limits=self._limits,
            more=not is_last,
        )
        if len(faults) and faults[-1] == Fault.LIMIT:
            at = int(positions[-1])
            buffer = int(spans.rows["buffer"][chosen[len(faults) - 1]])
            raise FrameError(Fault.LIMIT, at, len(rows), streams.buffers[buffer][at : at + NEAR])
        spans.pass_frames(chosen, positions, faults, faults >= HARD)
        return rows

    def _search(
        self,
        streams: FrameTable,
        packets: dict[int, np.ndarray],
        spans: StreamSpans,
        chosen: np.ndarray,
    ) -> None:
        """Judge the next candidates of some spans. chosen: the numbers of the spans."""
        if not len(chosen):
            return
        candidates, counts = spans.list_candidates(chosen)
        verdicts = self._judge_all(streams, packets, candidates)
        spans.take_verdicts(chosen, candidates["start"], counts, verdicts)

    def _judge_all(
        self, streams: FrameTable, packets: dict[int, np.ndarray], candidates: np.ndarray
    ) -> np.ndarray:
        """Return the verdicts on candidates: uint8."""
        verdicts = np.zeros(len(candidates), np.uint8)
        for first in range(0, len(candidates), BATCH):
            batch = slice(first, first + BATCH)
            verdicts[batch] = self._judge(streams, packets, candidates[batch])
        return verdicts

    def _judge(
        self, streams: FrameTable, packets: dict[int, np.ndarray], candidates: np.ndarray
    ) -> np.ndarray:
        """Return the verdicts on at most BATCH candidates: uint8."""
        stops = np.minimum(candidates["start"] + WINDOW, candidates["stop"])
        is_cut = (candidates["start"] + WINDOW > candidates["stop"]) & ~candidates["is_last"]
        rows, faults = self._scan_candidates(streams, candidates, stops)
        numbers = rows["parent"]
        first = find_first_rows(numbers)
        bad = np.cumsum(rows["fault"] != NO_FAULT)
        is_first_bad = rows["fault"][first] != NO_FAULT
        is_good = (bad == bad[first]) & ~is_first_bad  # all from the first on
        has_bad = np.bincount(numbers[~is_good], minlength=len(candidates)) > 0
        verdicts = np.full(len(candidates), IMPLAUSIBLE, np.uint8)
        verdicts[is_cut & ~has_bad & (faults < HARD)] = WAITING
        rows = select_rows(rows, is_good & (np.arange(len(rows)) - first < WEIGHED))
        is_large = (faults == Fault.SHORT) & (candidates["start"] + WINDOW <= candidates["stop"])
        is_large[numbers] = False
        large = [
            self._read_large(streams, candidates, number, verdicts)
            for number in np.flatnonzero(is_large).tolist()
        ]
        if large:
            rows = join_rows([rows, *large])
        numbers = rows["parent"].copy()
        rows["parent"] = candidates["parent"][numbers]
        bits = self._sum_bits(streams, packets, candidates, rows, numbers)
        verdicts[bits >= NEEDED] = PLAUSIBLE
        return verdicts

    def _scan_candidates(
        self, streams: FrameTable, candidates: np.ndarray, stops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the frames from candidates on, and why the scan of each one ended.

        stops: where the bytes end that are looked at. The `parent` of the rows is the candidate.
        """
        heads = np.zeros(len(candidates), HEAD)
        heads["start"] = candidates["start"]
        heads["size"] = stops - candidates["start"]
        heads["buffer"] = candidates["buffer"]
        heads["parent"] = np.arange(len(candidates))
        rows, _, faults, _ = self._scan_spans(
            streams.buffers,
            heads,
            check=self._check,
            resync=False,
            limits=self._candidate_limits,
            more=True,
        )
        return rows, faults

    def _read_large(
        self, streams: FrameTable, candidates: np.ndarray, number: int, verdicts: np.ndarray
    ) -> np.ndarray:
        """Return the row of the first frame of a candidate, if it is larger than WINDOW and good.

        Its verdict becomes WAITING if following bytes of the frame decide.
        """
        candidate = candidates[number]
        start = int(candidate["start"])
        resume = Resume()
        no_rows, *_ = self._scan_bytes(
            streams.buffers[int(candidate["buffer"])][start : start + WINDOW],
            check=self._check,
            resync=False,
            limits=self._candidate_limits,
            more=True,
            resume=resume,
        )
        stop = start + resume.needed
        if resume.needed <= WINDOW:
            return no_rows  # it does not state its size
        if stop > candidate["stop"]:
            verdicts[number] = IMPLAUSIBLE if candidate["is_last"] else WAITING
            return no_rows
        rows, _ = self._scan_candidates(
            streams, candidates[number : number + 1], np.array([stop], np.int64)
        )
        rows = rows[(rows["fault"] == NO_FAULT) & (rows["size"] == resume.needed)]
        rows["parent"] = number
        return rows

    def _sum_bits(
        self,
        streams: FrameTable,
        packets: dict[int, np.ndarray],
        candidates: np.ndarray,
        rows: np.ndarray,
        numbers: np.ndarray,
    ) -> np.ndarray:
        """Return the bits of each candidate: float64.

        rows: the good frames that count. numbers: int array, the candidate of each of them.
        """
        if not len(rows):
            return np.zeros(len(candidates))
        table = FrameTable(
            streams.buffers, rows, (), self._format, streams, (), self._check, "mark"
        )
        bits = np.bincount(numbers, np.maximum(self._weigh(table), 0), len(candidates))
        ends = rows["start"] + rows["size"]
        is_boundary = ends == candidates["stop"][numbers]
        for buffer, starts in packets.items():
            places = np.minimum(np.searchsorted(starts, ends), len(starts) - 1)
            is_boundary |= (rows["buffer"] == buffer) & (starts[places] == ends)
        has_boundary = np.bincount(numbers[is_boundary], minlength=len(candidates)) > 0
        return bits + BOUNDARY * has_boundary


@dataclass(frozen=True, eq=False)
class FoundFrames:
    """What `GapTracker.scan` returns.

    Attributes:
        rows: the rows of frames.
        ends: how many bytes of each chosen stream they cover.
        chosen: the rows of streams that were scanned.
        states: the state of the side of each of them after its last byte.
        positions: the position in what this side sent, from which on packets may have the next
            frame; 0 if it is not searched.
        senders: the number of its side.
        is_scanned: the streams that may not begin with a frame, and are searched: a bool array, for
            all streams.
        is_searched: those of them with a packet in which the next frame may begin, as far as their
            bytes show.
    """

    rows: np.ndarray
    ends: np.ndarray
    chosen: np.ndarray
    states: np.ndarray
    positions: np.ndarray
    senders: np.ndarray
    is_scanned: np.ndarray
    is_searched: np.ndarray


class GapTracker:
    """Reads the sides of connections that have lost bytes, in tables of pcap.streams.

    The tables are those of one capture, one after another. A side whose beginning the capture does
    not have counts as one with lost bytes. format, check, limits: as in `GapScanner`.
    """

    def __init__(self, format: Format, *, check: bool, limits: Limits):
        self._scanner = GapScanner(format, check=check, limits=limits)
        self._limits = limits
        # Of sides that have lost bytes, by the numbers of `find_senders`: AT_FRAME if a frame
        # begins at their next byte, or the fault of the next byte.
        self._states = ConnectionVerdicts()
        # Where the search goes on, in what these sides sent. Earlier packets begin with no frame.
        self._searched = ConnectionNumbers(np.int64)
        self._has_scanned = False

    def scan(
        self,
        streams: FrameTable,
        rows: np.ndarray,
        ends: np.ndarray,
        *,
        chosen: np.ndarray,
        has_damage: np.ndarray,
        is_read: np.ndarray,
        more: bool,
    ) -> FoundFrames:
        """Return the frames, as far as they are found. `keep_states` keeps what is known then.

        rows, ends, has_damage: those of a scan in which each stream begins with a frame.
        chosen: the rows of streams that were scanned. is_read: the streams whose frames are
        returned. more: whether bytes may follow the streams.

        Raises FrameError if there are more frames than the limits allow.
        """
        senders = find_senders(streams)
        is_followed = find_followed(senders)
        states = self._find_states(streams, senders)[chosen]
        with_gaps = np.flatnonzero((states != UNDECIDED) & is_read[chosen])
        is_last = is_followed[chosen[with_gaps]] | (not more)
        is_intact = self._find_intact(
            streams,
            rows,
            ends[with_gaps],
            chosen[with_gaps],
            states=states[with_gaps],
            may_be_intact=~has_damage[with_gaps],
            is_last=is_last,
        )
        states[with_gaps[is_intact]] = AT_FRAME
        with_gaps, is_last = with_gaps[~is_intact], is_last[~is_intact]
        positions = np.zeros(len(chosen), np.int64)
        is_waiting = np.zeros(len(streams), bool)
        is_scanned = np.zeros(len(streams), bool)
        if len(with_gaps):
            stream_rows = streams.rows[chosen[with_gaps]]
            spans = _make_spans(stream_rows, chosen[with_gaps], states[with_gaps], is_last)
            searched = self._searched.find(senders[chosen[with_gaps]]) - stream_rows["position"]
            spans["searched"] += np.maximum(searched, 0)
            is_scanned[chosen[with_gaps]] = True
            others = keep_rows(rows, ~is_scanned[rows["parent"]])
            parts = [others, *self._scanner.scan(streams, spans, rows.dtype)]
            rows = join_rows(parts)
            rows = select_rows(rows, np.lexsort((rows["start"], rows["parent"])))
            self._check_rows(streams, rows)
            ends = ends.copy()
            ends[with_gaps] = spans["start"] - stream_rows["start"]
            states[with_gaps] = np.where(spans["fault"] == NO_FAULT, AT_FRAME, spans["fault"])
            is_waiting[chosen[with_gaps]] = spans["is_waiting"]
            searched = spans["searched"] - stream_rows["start"]
            positions[with_gaps] = stream_rows["position"] + searched
        self._has_scanned = True
        return FoundFrames(rows, ends, chosen, states, positions, senders, is_scanned, is_waiting)

    def keep_states(self, found: FoundFrames, is_read: np.ndarray) -> None:
        """Keep the states of sides whose next bytes follow.

        found: the last result of `scan`. is_read: the streams that are not given again.
        """
        is_kept = (~find_followed(found.senders) & is_read)[found.chosen]
        kept = found.senders[found.chosen[is_kept]]
        self._states.keep(kept, found.states[is_kept])
        self._searched.keep(kept, found.positions[is_kept])

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: no byte of them follows. connections: their numbers, int64."""
        senders = np.concatenate([2 * connections, 2 * connections + 1])
        self._states.forget(senders)
        self._searched.forget(senders)

    def _find_intact(
        self,
        streams: FrameTable,
        rows: np.ndarray,
        ends: np.ndarray,
        chosen: np.ndarray,
        *,
        states: np.ndarray,
        may_be_intact: np.ndarray,
        is_last: np.ndarray,
    ) -> np.ndarray:
        """Return which streams begin with a frame and have no damage: a bool array.

        Their rows stay as they are. Most streams are such ones, so they cost no Python.

        rows: of all streams. ends, chosen, states, is_last: of the streams that may have damage.
        may_be_intact: those of them without damage behind their last frame.
        """
        has_bad = np.zeros(len(streams), bool)
        has_bad[rows["parent"][rows["fault"] != NO_FAULT]] = True
        is_covered = ends == streams.rows["size"][chosen]
        is_intact = may_be_intact & ~has_bad[chosen] & (is_covered | ~is_last)
        unknown = np.flatnonzero(is_intact & (states != AT_FRAME))
        if len(unknown):
            is_intact[unknown] = self._scanner.begin_with_frames(streams, rows, chosen[unknown])
        return is_intact

    def _find_states(self, streams: FrameTable, senders: np.ndarray) -> np.ndarray:
        """Return for each stream UNDECIDED if it has no lost bytes before it, or its state."""
        assert streams.outer is not None
        rows = streams.rows
        ends = rows["position"] + rows["size"]
        is_next = np.append(False, senders[1:] == senders[:-1])[: len(senders)]
        is_after_gap = is_next & (np.roll(streams.bad, 1) | (rows["position"] > np.roll(ends, 1)))
        is_first = ~is_next & (rows["position"] == 0)
        begun_earlier = streams.outer["is_begun_earlier"][rows["parent"]] != 0
        is_after_gap |= is_first & begun_earlier
        if not self._has_scanned:
            is_after_gap |= ~is_next & (rows["position"] > 0)
        states = np.where(is_after_gap, np.uint8(Fault.NOT_A_FRAME), np.uint8(UNDECIDED))
        if len(self._states):
            first = np.flatnonzero(~is_next)
            known = self._states.find(senders[first])
            states[first] = np.where(known == UNDECIDED, states[first], known)
        return states

    def _check_rows(self, streams: FrameTable, rows: np.ndarray) -> None:
        """Raise FrameError if there are more rows than the limits allow."""
        size = sum(map(len, streams.buffers))
        most = self._limits.limit_rows(rows.dtype.itemsize, size)
        if len(rows) > most:
            row = rows[most]
            at = int(row["start"])
            near = streams.buffers[int(row["buffer"])][at : at + NEAR]
            raise FrameError(Fault.LIMIT, at, most, near)


def find_senders(streams: FrameTable) -> np.ndarray:
    """Return a number for the side of each stream: 2 * connection, and 1 more for the server."""
    assert streams.outer is not None
    numbers: np.ndarray = streams.outer["connection"][streams["parent"]]
    return 2 * numbers + (streams["kind"] == Direction.TO_CLIENT)


def find_followed(senders: np.ndarray) -> np.ndarray:
    """Return which streams another one of the same side follows: a bool array."""
    is_followed: np.ndarray = np.append(senders[1:] == senders[:-1], False)[: len(senders)]
    return is_followed


def _make_spans(
    rows: np.ndarray, chosen: np.ndarray, states: np.ndarray, is_last: np.ndarray
) -> np.ndarray:
    """Return the spans of whole streams: an array of dtype SPAN.

    rows, chosen: the rows of the streams, and their numbers. states: those of `GapTracker`.
    is_last: the streams that no byte follows.
    """
    spans = np.zeros(len(rows), SPAN)
    spans["parent"] = chosen
    spans["buffer"] = rows["buffer"]
    spans["start"] = spans["searched"] = rows["start"]
    spans["stop"] = rows["start"] + rows["size"]
    spans["fault"] = np.where(states == AT_FRAME, NO_FAULT, states)
    spans["is_last"] = is_last
    return spans


def _list_packet_starts(streams: FrameTable, buffer: int) -> np.ndarray:
    """Return the positions in a buffer at which the bytes of packets begin: int64."""
    segments = np.frombuffer(streams.buffers[buffer + SEGMENTS_AFTER], SEGMENT)
    return np.ascontiguousarray(segments["start"])


def _make_bad_rows(bad_bytes: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    bad = np.concatenate(bad_bytes)
    rows = np.zeros(len(bad), dtype)
    for name in BAD_BYTES.names or ():
        rows[name] = bad[name]
    return rows
