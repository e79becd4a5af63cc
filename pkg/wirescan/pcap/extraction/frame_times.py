"""When the bytes of frames were captured: columns of frames in captures.

A table of such frames has the buffers of its streams: the bytes, then an array of dtype SEGMENT. A
table of answers has a third one: an array of dtype QUESTION, in the order of `start`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirescan.pcap.assembly.assembler import SEGMENT

NO_TIME = 0
NO_LATENCY = -1
# start: position of an answer in the bytes of the streams. time: of the last byte of its question.
QUESTION = np.dtype([("start", np.int64), ("time", np.int64)])
SEGMENTS_AFTER = 1  # number of buffers from the bytes to the segments
QUESTIONS_AFTER = 2
# Columns of SENT in sent_frames.py -> those of the packet with the first or the last byte.
FIRST_COLUMNS = {"packet": "packet", "begin": "ready", "time": "time"}
LAST_COLUMNS = {"end": "order", "end_of_all": "order_of_all"}


@dataclass(frozen=True, eq=False)
class ByteRanges:
    """Bytes in the buffers of streams, for the functions of this module.

    columns: the arrays `start`, `size` and `buffer`, as those of frames.
    """

    columns: dict[str, np.ndarray]
    buffers: tuple[memoryview, ...]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]


def read_first(table: Any, *, name: str) -> np.ndarray:
    """Return a column of the packet with the first byte of each frame, int64."""
    numbers = np.zeros(len(table["start"]), np.int64)
    for rows, segments in _iter_segments(table):
        numbers[rows] = segments[name][_find_segments(segments, table["start"][rows])]
    return numbers


def read_last(table: Any, *, name: str) -> np.ndarray:
    """Return a column of the packet with the last byte of each frame, int64."""
    numbers = np.zeros(len(table["start"]), np.int64)
    for rows, segments in _iter_segments(table):
        sizes = np.maximum(table["size"][rows].astype(np.int64), 1)
        places = _find_segments(segments, table["start"][rows] + sizes - 1)
        numbers[rows] = segments[name][places]
    return numbers


def fill_packets(table: Any, sent: np.ndarray) -> None:
    """Fill columns of the packets of frames.

    sent: an array with the int64 columns of FIRST_COLUMNS, LAST_COLUMNS, and `time_end`, the latest
    time of the packets with bytes of each frame.
    """
    for rows, segments in _iter_segments(table):
        firsts, lasts = _find_ranges(table, rows, segments)
        for places, names in ((firsts, FIRST_COLUMNS), (lasts, LAST_COLUMNS)):
            for name, column in names.items():
                sent[name][rows] = segments[column][places]
        sent["time_end"][rows] = _find_latest(segments, firsts, lasts)


def compute_end(table: Any) -> np.ndarray:
    """Return the latest time of the packets with bytes of each frame, int64."""
    times = np.zeros(len(table["start"]), np.int64)
    for rows, segments in _iter_segments(table):
        times[rows] = _find_latest(segments, *_find_ranges(table, rows, segments))
    return times


def _find_ranges(
    table: Any, rows: np.ndarray, segments: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the segments with the first and with the last byte of frames."""
    starts = table["start"][rows]
    stops = starts + np.maximum(table["size"][rows].astype(np.int64), 1)
    return _find_segments(segments, starts), _find_segments(segments, stops - 1)


def _find_latest(segments: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """Return the latest time of each range of segments, int64."""
    lowest = int(firsts.min())
    times = np.append(segments["time"][lowest : int(lasts.max()) + 1], NO_TIME)
    # The ranges between them are not used.
    ranges = np.empty(2 * len(firsts), np.int64)
    ranges[::2] = firsts - lowest
    ranges[1::2] = lasts + 1 - lowest
    latest: np.ndarray = np.maximum.reduceat(times, ranges)[::2]
    return latest


def compute_latency(table: Any) -> np.ndarray:
    """Return the time from the end of the question to the beginning of each answer: int64, in ns.

    NO_LATENCY where the question is not known.
    """
    latencies = np.full(len(table["start"]), NO_LATENCY, np.int64)
    for rows, segments in _iter_segments(table):
        # The buffer after the segments has the questions.
        number = int(table["buffer"][rows[0]]) + QUESTIONS_AFTER
        questions = np.frombuffer(table.buffers[number], QUESTION)
        starts = table["start"][rows]
        places = np.searchsorted(questions["start"], starts)
        places = np.minimum(places, max(len(questions) - 1, 0))
        if len(questions):
            times = segments["time"][_find_segments(segments, starts)]
            is_known = questions["start"][places] == starts
            # A row of lost bytes begins where the next one does.
            is_known &= table["size"][rows] > 0
            latencies[rows[is_known]] = (times - questions["time"][places])[is_known]
    return latencies


def _iter_segments(table: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows of frames in each buffer, and the segments of its bytes."""
    for number in np.unique(table["buffer"]).tolist():
        # The buffer after that of the streams has their segments.
        segments = np.frombuffer(table.buffers[number + SEGMENTS_AFTER], SEGMENT)
        if len(segments):
            yield np.flatnonzero(table["buffer"] == number), segments


def _find_segments(segments: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the row of the segment that has each position in the buffer."""
    starts = segments["start"]
    if len(positions) == 1:
        # numpy would copy all starts first, because they are not contiguous.
        return np.array([max(bisect_right(starts, positions[0]) - 1, 0)])
    return np.maximum(np.searchsorted(starts, positions, "right") - 1, 0)
