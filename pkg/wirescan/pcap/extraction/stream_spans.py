"""Spans of streams in which the start of the next frame may be unknown: `GapScanner` scans them.

A capture may have many of them, so all are searched at once, with numpy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wirescan.core.loop import HEAD

NO_FAULT = 0
# The verdict on a candidate.
IMPLAUSIBLE = 0
WAITING = 1  # following bytes decide
PLAUSIBLE = 2
FIRST_CANDIDATES = 2  # that are judged at once; they double
# Bytes of a stream that are scanned.
# parent: the row of the stream. buffer: the number of its buffer.
# start: the position in the buffer of the first byte that is in no row yet.
# stop: the position after its last byte, where a packet ends.
# searched: the position from which on packets may have the next frame.
# fault: why no frame begins at `start`, as far as is known; or NO_FAULT.
# is_last: no byte follows. is_done: nothing more is found in these bytes.
# is_waiting: following bytes decide whether a frame begins at `searched`.
# next, end: numbers of packets: those from `next` to `end` may have the next frame.
# count: how many of them are judged next.
SPAN = np.dtype(
    [
        ("start", "i8"),
        ("stop", "i8"),
        ("searched", "i8"),
        ("parent", "i4"),
        ("buffer", "u2"),
        ("fault", "u1"),
        ("is_last", "?"),
        ("is_done", "?"),
        ("is_waiting", "?"),
        ("next", "i8"),
        ("end", "i8"),
        ("count", "i8"),
    ]
)
# The start of a packet. `stop` is the end of the span, and `parent` the row of the stream.
CANDIDATE = np.dtype(
    [("start", "i8"), ("stop", "i8"), ("parent", "i4"), ("buffer", "u2"), ("is_last", "?")]
)
# Bytes before the next frame.
BAD_BYTES = np.dtype(
    [("parent", "i4"), ("buffer", "u2"), ("start", "i8"), ("size", "i8"), ("fault", "u1")]
)


class StreamSpans:
    """Spans of streams, and the search for the next frame in each of them.

    rows: an array of dtype SPAN, which is changed. packets: for each buffer the positions at which
    packets begin, in ascending order. enough_bytes: a bad row ends at the first packet that
    begins after so many of its bytes.

    Attributes:
        rows: the spans.
        bad_bytes: arrays of dtype BAD_BYTES: the bytes before frames, so far.
    """

    def __init__(self, rows: np.ndarray, packets: Mapping[int, np.ndarray], enough_bytes: int):
        self.rows = rows
        self.bad_bytes = [np.zeros(0, BAD_BYTES)]
        self._packets = packets
        self._enough_bytes = enough_bytes
        self._begin_search(np.arange(len(rows)))

    def make_heads(self, chosen: np.ndarray) -> np.ndarray:
        """Return the rest of some spans as an array of dtype HEAD. chosen: their numbers."""
        rows = self.rows
        heads = np.zeros(len(chosen), HEAD)
        for name in ("start", "buffer", "parent"):
            heads[name] = rows[name][chosen]
        heads["size"] = rows["stop"][chosen] - rows["start"][chosen]
        return heads

    def pass_frames(
        self, chosen: np.ndarray, positions: np.ndarray, faults: np.ndarray, is_hard: np.ndarray
    ) -> None:
        """Move some spans to the end of their frames.

        positions, faults: where the frames end, and why. is_hard: the spans in which the next frame
        is searched for from there on. The others are done.
        """
        rows = self.rows
        rows["start"][chosen] = positions
        rows["is_done"][chosen] = ~is_hard
        damaged = chosen[is_hard]
        rows["fault"][damaged] = faults[is_hard]
        rows["searched"][damaged] = positions[is_hard]
        self._begin_search(damaged)

    def list_candidates(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the next candidates of some spans, dtype CANDIDATE, and how many each one has."""
        rows = self.rows
        first = rows["next"][chosen]
        counts = np.minimum(rows["count"][chosen], rows["end"][chosen] - first)
        owners = np.repeat(chosen, counts)
        numbers = np.repeat(first - (np.cumsum(counts) - counts), counts)
        numbers += np.arange(len(numbers))
        candidates = np.zeros(len(owners), CANDIDATE)
        for name in ("parent", "buffer", "stop", "is_last"):
            candidates[name] = rows[name][owners]
        for buffer, packet_starts in self._packets.items():
            is_inside = candidates["buffer"] == buffer
            candidates["start"][is_inside] = packet_starts[numbers[is_inside]]
        return candidates, counts

    def take_verdicts(
        self, chosen: np.ndarray, starts: np.ndarray, counts: np.ndarray, verdicts: np.ndarray
    ) -> None:
        """Move each span to its first candidate that is not implausible.

        chosen, counts: as in `list_candidates`. starts: the positions of the candidates. verdicts:
        on these candidates.
        """
        rows = self.rows
        rows["next"][chosen] += counts
        rows["count"][chosen] *= 2
        ends = np.cumsum(counts)
        deciding, decisions = _find_first(verdicts, ends - counts, ends)
        self._split(chosen, starts, ends - counts, np.minimum(deciding + 1, ends))
        is_found = decisions == PLAUSIBLE
        found = chosen[is_found]
        self._pass_over(found, starts[deciding[is_found]])
        rows["fault"][found] = NO_FAULT
        is_waiting = decisions == WAITING
        waiting = chosen[is_waiting]
        rows["is_done"][waiting] = True
        rows["is_waiting"][waiting] = True
        rows["searched"][waiting] = starts[deciding[is_waiting]]
        others = chosen[decisions == IMPLAUSIBLE]
        exhausted = others[rows["next"][others] == rows["end"][others]]
        rows["is_done"][exhausted] = True
        rows["searched"][exhausted] = rows["stop"][exhausted]
        last = exhausted[rows["is_last"][exhausted]]
        self._pass_over(last, rows["stop"][last])

    def _begin_search(self, chosen: np.ndarray) -> None:
        """Search for the next frame from the first packet on that begins at `searched` or later."""
        rows = self.rows
        for buffer, packet_starts in self._packets.items():
            places = chosen[rows["buffer"][chosen] == buffer]
            rows["next"][places] = np.searchsorted(packet_starts, rows["searched"][places])
            rows["end"][places] = np.searchsorted(packet_starts, rows["stop"][places])
        rows["count"][chosen] = FIRST_CANDIDATES

    def _split(
        self, chosen: np.ndarray, starts: np.ndarray, first: np.ndarray, ends: np.ndarray
    ) -> None:
        """End bad rows that have enough bytes at the next candidate.

        first, ends: the numbers of the candidates of each span, up to the one that decides.
        """
        has_candidates = np.flatnonzero(ends > first)
        sizes = starts[ends[has_candidates] - 1] - self.rows["start"][chosen[has_candidates]]
        for place in has_candidates[sizes >= self._enough_bytes].tolist():
            span = chosen[place : place + 1]
            of_span = starts[first[place] : ends[place]]
            while True:
                enough = self.rows["start"][span] + self._enough_bytes
                (number,) = np.searchsorted(of_span, enough).tolist()
                if number == len(of_span):
                    break
                self._pass_over(span, of_span[number : number + 1])

    def _pass_over(self, chosen: np.ndarray, positions: np.ndarray) -> None:
        """Add bad rows of the bytes of some spans before positions."""
        rows = self.rows
        bad = np.zeros(len(chosen), BAD_BYTES)
        for name in ("parent", "buffer", "start", "fault"):
            bad[name] = rows[name][chosen]
        bad["size"] = positions - bad["start"]
        self.bad_bytes.append(bad[bad["size"] > 0])
        rows["start"][chosen] = positions


def _find_first(
    verdicts: np.ndarray, first: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first candidate of each span that is not implausible, and the verdict on it.

    Without such a candidate, its number is the end, and the verdict is IMPLAUSIBLE. first, ends:
    the numbers of the candidates of each span.
    """
    decided = np.append(np.flatnonzero(verdicts != IMPLAUSIBLE), len(verdicts))
    numbers = decided[np.searchsorted(decided, first)]
    is_inside = numbers < ends
    decisions = np.full(len(first), IMPLAUSIBLE, np.uint8)
    decisions[is_inside] = verdicts[numbers[is_inside]]
    return np.where(is_inside, numbers, ends), decisions
