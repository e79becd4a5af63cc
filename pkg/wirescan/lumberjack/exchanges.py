"""Exchanges of Lumberjack: windows of events with the acks of their last events."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wirescan.frames.exchange import NO_RESPONSE, PairedFrames, SentFrames
from wirescan.frames.limits import Limits
from wirescan.frames.pairing import make_rows
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.constants import Kind

EXCHANGE_COLUMNS = np.dtype([("count", "u4"), ("sequence", "u4"), ("version", "u2")])
NUMBERS = 1 << 32  # of events; they wrap
LATEST = np.iinfo(np.int64).max  # the place of a frame behind all others


def pair_windows(
    asked: SentFrames,
    answers: SentFrames,
    *,
    limits: Limits,
    open_events: Callable[..., FrameTable],
) -> PairedFrames:
    """Pair windows with the acks that end them, in the order of each connection.

    The number of the last event follows from that of the first one and from the count. Some writers
    number events from 1 on in each window, others over the connection. Acks of lower numbers end no
    window. open_events: returns the events in frames.
    """
    table = asked.table
    kinds = table["kind"]
    good = ~table.bad
    is_window = good & (kinds == Kind.WINDOW) & asked.is_to_server
    is_ack = good & (kinds == Kind.ACK) & ~asked.is_to_server & answers.is_new
    windows = np.flatnonzero(is_window)
    first = _find_first_frames(asked, is_window, windows)
    has_events = first != windows
    events = open_events(table[first[has_events]], errors="mark", limits=limits)
    numbers = _find_last_numbers(table["count"][windows], has_events, events)
    by_row = np.full(len(table), NO_RESPONSE, np.int64)
    by_row[windows] = numbers
    # The windows and acks of each connection, in the order of the packets.
    rows = np.flatnonzero(is_window | is_ack)
    places = _order_windows(asked, windows, first, np.flatnonzero(is_ack))
    rows = rows[np.lexsort((~is_window[rows], places[rows], asked.connection[rows]))]
    responses = np.full(len(table), NO_RESPONSE, np.int64)
    ended, acks = _find_ends(
        rows.tolist(),
        asked.connection[rows].tolist(),
        is_window[rows].tolist(),
        np.where(is_window, by_row, table["sequence"])[rows].tolist(),
    )
    responses[ended] = acks
    responses = responses[windows]
    is_answered = responses != NO_RESPONSE
    ends = np.where(is_answered, asked.last_packet[responses], LATEST)
    last = _find_last_frames(asked, is_window, windows, ends)
    found = make_rows(EXCHANGE_COLUMNS, table, windows)
    found["count"] = table["count"][windows]
    found["version"] = table["version"][windows]
    found["sequence"][is_answered] = table["sequence"][responses[is_answered]]
    return PairedFrames(windows, responses, found, further_frames=(first, last))


def _list_groups(asked: SentFrames, is_window: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the frames of each side, in their order, and where groups begin there.

    A group is a window with the frames before the next one, or frames before the first window.
    """
    sides = asked.side
    order = np.argsort(sides, kind="stable")
    begins = is_window[order]
    begins[1:] |= np.diff(sides[order]) != 0
    begins[:1] = True
    return order, np.flatnonzero(begins)


def _find_first_frames(asked: SentFrames, is_window: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Return the row of the first frame after each window; that of a window without frames."""
    order, starts = _list_groups(asked, is_window)
    ends = np.append(starts, len(order))[1:] - 1
    first = np.zeros(len(order), np.int64)
    first[order[starts]] = order[np.minimum(starts + 1, ends)]
    return first[windows]


def _find_last_frames(
    asked: SentFrames, is_window: np.ndarray, windows: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Return the row of the last good frame of each window that was sent before its ack.

    ends: the `last_packet` of the ack of each window, or LATEST.
    """
    order, starts = _list_groups(asked, is_window)
    if not len(order):
        return windows
    latest = np.full(len(order), LATEST)
    latest[windows] = ends
    sizes = np.diff(np.append(starts, len(order)))
    is_before = asked.last_packet[order] <= np.repeat(latest[order[starts]], sizes)
    is_before &= ~asked.table.bad[order]
    places = np.where(is_before, np.arange(len(order)), np.repeat(starts, sizes))
    last = np.zeros(len(order), np.int64)
    last[order[starts]] = order[np.maximum.reduceat(places, starts)]
    return last[windows]


def _order_windows(
    asked: SentFrames, windows: np.ndarray, first: np.ndarray, acks: np.ndarray
) -> np.ndarray:
    """Return the places of windows and acks among each other: int64, for each row.

    The number of a window is known from its first frame on, and an ack from its last byte on. Both
    end one after another in their streams, also where the capture has their packets in another
    order.

    windows, first, acks: the rows of windows, of their first frames and of acks.
    """
    places = asked.last_packet.copy()
    places[windows] = _ascend(asked.last_packet[first], asked.connection[windows])
    places[acks] = _ascend(asked.last_packet[acks], asked.connection[acks])
    return places


def _ascend(places: np.ndarray, connections: np.ndarray) -> np.ndarray:
    """Return the largest place so far in each connection: int64."""
    order = np.argsort(connections, kind="stable")
    connections = connections[order]
    # Each connection has values above those of the one before it, so one pass finds all maxima.
    ranks = np.cumsum(np.append(0, np.diff(connections) != 0))[: len(order)]
    values, numbers = np.unique(places[order], return_inverse=True)
    steps = np.maximum.accumulate(numbers + ranks * len(values)) - ranks * len(values)
    largest = np.empty(len(places), np.int64)
    largest[order] = values[steps]
    return largest


def _find_last_numbers(
    counts: np.ndarray, has_events: np.ndarray, events: FrameTable
) -> np.ndarray:
    """Return the number of the last event of each window, or NO_RESPONSE if it is not known.

    counts: the number of events of each window. events: those in the first frames of the windows
    that have some.
    """
    numbers = np.full(len(counts), NO_RESPONSE, np.int64)
    good = np.flatnonzero(~events.bad)
    frames, places = np.unique(events["parent"][good], return_index=True)
    windows = np.flatnonzero(has_events)[frames]
    first_numbers = events["sequence"][good[places]].astype(np.int64)
    numbers[windows] = (first_numbers + counts[windows] - 1) % NUMBERS
    return numbers


def _find_ends(
    rows: list[int], connections: list[int], is_window: list[bool], numbers: list[int]
) -> tuple[list[int], list[int]]:
    """Return the rows of the windows that end, and those of the acks that end them.

    numbers: the numbers of the last events of windows, and those of acks.
    """
    ended: list[int] = []
    acks: list[int] = []
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
            window, last_number = open_windows[first]
            is_reached = (number - last_number) % NUMBERS < NUMBERS // 2
            if last_number != NO_RESPONSE and is_reached:
                ended.append(window)
                acks.append(row)
                first += 1
    return ended, acks
