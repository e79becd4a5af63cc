"""Exchanges of Lumberjack: windows of events with the acks of their last events."""

from __future__ import annotations

import numpy as np

from wirescan.frames.exchange import NO_RESPONSE, PairedFrames, SentFrames, make_rows
from wirescan.frames.limits import Limits
from wirescan.lumberjack.constants import Kind

OWN = np.dtype([("count", "u4"), ("sequence", "u4"), ("version", "u2")])


def pair_windows(asked: SentFrames, answers: SentFrames, *, limits: Limits) -> PairedFrames:
    """Pair windows with the acks that end them, in the order of each connection.

    A receiver acknowledges the number of the last event, and may send lower numbers before that.
    They show that it works, so they end no window. `limits` is accepted for consistency and
    ignored.
    """
    table = asked.table
    kinds = table["kind"]
    good = ~table.bad
    is_window = good & (kinds == Kind.WINDOW) & asked.is_to_server
    is_ack = good & (kinds == Kind.ACK) & ~asked.is_to_server & answers.is_new
    # The windows and acks of each connection, in the order of the packets.
    rows = np.flatnonzero(is_window | is_ack)
    order = np.lexsort((~is_window[rows], asked.packet[rows], asked.connection[rows]))
    rows = rows[order]
    windows = np.flatnonzero(is_window)
    responses = np.full(len(table), NO_RESPONSE, np.int64)
    sequences = _find_ends(
        rows.tolist(),
        asked.connection[rows].tolist(),
        is_window[rows].tolist(),
        np.where(is_window, table["count"], table["sequence"])[rows].tolist(),
        responses,
    )
    found = make_rows(OWN, table, windows)
    found["count"] = table["count"][windows]
    found["version"] = table["version"][windows]
    found["sequence"] = [sequences.get(row, 0) for row in windows.tolist()]
    return PairedFrames(
        windows,
        responses[windows],
        np.ones(len(windows), bool),
        found,
        table.buffers,
        _find_last_frames(asked, windows),
    )


def _find_ends(
    rows: list[int],
    connections: list[int],
    is_window: list[bool],
    numbers: list[int],
    responses: np.ndarray,
) -> dict[int, int]:
    """Set the ack that ends each window, and return the last number that each has.

    numbers: the counts of windows and the sequence numbers of acks.
    """
    sequences: dict[int, int] = {}
    open_windows: list[tuple[int, int]] = []
    first = 0
    previous = -1
    for row, connection, begins, number in zip(rows, connections, is_window, numbers):
        if connection != previous:
            previous = connection
            open_windows = []
            first = 0
        if begins:
            open_windows.append((row, number))
        elif first < len(open_windows):
            window, count = open_windows[first]
            sequences[window] = number
            if number >= count:
                responses[window] = row
                first += 1
    return sequences


def _find_last_frames(asked: SentFrames, windows: np.ndarray) -> np.ndarray:
    """Return the row of the last frame before the next window, for each window."""
    connections = np.unique(asked.connection, return_inverse=True)[1]
    sides = connections * 2 + asked.is_to_server
    # The frames of each side, in the order of the stream.
    order = np.argsort(sides, kind="stable")
    is_first = np.zeros(len(order), bool)
    is_first[windows] = True
    begins = is_first[order]
    begins[1:] |= np.diff(sides[order]) != 0
    begins[:1] = True
    starts = np.flatnonzero(begins)
    ends = np.append(starts, len(order))[1:] - 1
    last = np.zeros(len(order), np.int64)
    last[order[starts]] = order[ends]
    return last[windows]
