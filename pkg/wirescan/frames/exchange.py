"""Exchanges: requests with their responses. `ExchangeFormat` declares how a protocol pairs them.

Exchanges are found in captures, because they have the times of packets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from wirescan.core.gather import Places
from wirescan.core.loop import HEAD
from wirescan.frames.columns import Column

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable

NO_RESPONSE = -1
SHORT = 256  # bytes of a value, up to which numpy compares many at once


@dataclass(frozen=True, eq=False)
class SentFrames:
    """Frames of an outermost format, with the connections and packets that they were sent in.

    Attributes:
        table: the frames. Bad ones are among them.
        connection: int64 array, the number of each frame's connection.
        packet: int64 array, the number of the packet with its first byte.
        is_to_server: bool array, whether the client sent it.
        is_new: bool array. False for frames that were paired before and still have no response.
            They are no responses.
    """

    table: FrameTable
    connection: np.ndarray
    packet: np.ndarray
    is_to_server: np.ndarray
    is_new: np.ndarray


@dataclass(frozen=True, eq=False)
class PairedFrames:
    """What a function `ExchangeFormat.pair` returns: one row for each request.

    Attributes:
        requests: int64 array, the row of each request in the frames.
        responses: int64 array, the row of its response in the answers, or NO_RESPONSE.
        is_awaited: bool array, whether a response may still come.
        rows: array of dtype HEAD, followed by the columns of `ExchangeFormat.dtype`. Its `start`,
            `size` and `buffer` say which bytes the places are in.
        buffers: the buffers of `rows`. They begin with those of the frames.
        last_frames: int64 array, the row of the last frame of each request. None: a request is one
            frame.
    """

    requests: np.ndarray
    responses: np.ndarray
    is_awaited: np.ndarray
    rows: np.ndarray
    buffers: tuple[memoryview, ...]
    last_frames: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class ExchangeFormat:
    """How the requests of a protocol are paired with their responses.

    Attributes:
        name: the name of the format of the exchanges, such as "kafka.exchanges".
        about: a description in one line.
        dtype: the columns of the protocol. The rows of exchanges begin with others.
        pair: a function of the frames that may be requests, of those that may be responses, and of
            the keyword `limits`.
        answers: the name of the format of the responses. None: that of the requests.
        columns, meanings: as in `Format`, for the columns of `dtype`.
        grouped_by: the column whose values have statistics of their own.
    """

    name: str
    about: str
    dtype: np.dtype
    pair: Callable[..., PairedFrames]
    answers: str | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    grouped_by: str | None = None


def make_rows(dtype: np.dtype, frames: FrameTable, requests: np.ndarray) -> np.ndarray:
    """Return rows of dtype HEAD with more columns, whose bytes are those of some frames."""
    rows = np.zeros(len(requests), np.dtype([*HEAD.descr, *dtype.descr]))
    for name in ("start", "size", "buffer"):
        rows[name] = frames.rows[name][requests]
    return rows


def copy_places(rows: np.ndarray, frames: FrameTable, requests: np.ndarray, *names: str) -> None:
    """Copy the places of some frames into rows whose bytes are those of the frames."""
    for name in names:
        for ending in ("_at", "_size"):
            rows[name + ending] = frames.rows[name + ending][requests]


def number_values(*places: tuple[FrameTable, np.ndarray, str]) -> list[np.ndarray]:
    """Return int64 arrays of numbers, which are equal for equal bytes.

    places: tables, some of their rows, and the names of places. There is an array for each of them.
    A null place counts as an empty one.
    """
    parts = [Places(table[rows], name).gather(large=True) for table, rows, name in places]
    sizes = [np.diff(offsets) for offsets, _ in parts]
    all_sizes = np.concatenate(sizes)
    starts = []
    at = 0
    for offsets, data in parts:
        starts.append(offsets[:-1] + at)
        at += len(memoryview(data))
    all_starts = np.concatenate(starts)
    joined = np.frombuffer(b"".join(memoryview(data) for _, data in parts), np.uint8)
    numbers = np.zeros(len(all_sizes), np.int64)
    first = 1  # 0 is the number of the empty value
    order = np.argsort(all_sizes, kind="stable")
    borders = np.flatnonzero(np.diff(all_sizes[order])) + 1
    for rows in np.split(order, borders):
        size = int(all_sizes[rows[0]]) if len(rows) else 0
        if size:
            numbers[rows] = first + _number_equal_sizes(joined, all_starts[rows], size)
            first = int(numbers[rows].max()) + 1
    return np.split(numbers, np.cumsum([len(part) for part in sizes])[:-1])


def _number_equal_sizes(data: np.ndarray, starts: np.ndarray, size: int) -> np.ndarray:
    """Return numbers from 0 on for byte strings of one size, equal for equal bytes."""
    if size <= SHORT:
        words = data[starts[:, None] + np.arange(size)].view(f"V{size}").ravel()
        return np.unique(words, return_inverse=True)[1]
    known: dict[bytes, int] = {}
    values = (data[start : start + size].tobytes() for start in starts.tolist())
    return np.array([known.setdefault(value, len(known)) for value in values], np.int64)


def pair_in_order(
    request_keys: np.ndarray,
    request_packets: np.ndarray,
    response_keys: np.ndarray,
    response_packets: np.ndarray,
) -> np.ndarray:
    """Return the index of the response to each request, or NO_RESPONSE: an int64 array.

    A response answers the first request of its key that was sent before it and has no response. A
    response without such a request answers none.

    The keys are int64. The packets say in which order the frames were sent. If a request and a
    response are in one packet, the request is first.
    """
    count = len(request_keys)
    found = np.full(count, NO_RESPONSE, np.int64)
    if not count or not len(response_keys):
        return found
    keys = np.unique(np.concatenate([request_keys, response_keys]), return_inverse=True)[1]
    packets = np.concatenate([request_packets, response_packets])
    is_request = np.arange(len(keys)) < count
    order = np.lexsort((~is_request, packets, keys))
    keys, is_request = keys[order], is_request[order]
    # The balance of requests and responses of each key. A response below the lowest balance so
    # far, or below 0, has no request.
    steps = np.where(is_request, 1, -1)
    balance = np.cumsum(steps)
    begins = np.flatnonzero(np.append(True, np.diff(keys) != 0))
    before = (balance - steps)[begins]
    balance -= np.repeat(before, np.diff(np.append(begins, len(keys))))
    # Each key has values below those of the key before it, so one pass finds all minima.
    shift = keys * (2 * len(keys) + 1)
    lowest = np.minimum.accumulate(np.minimum(balance, 0) - shift) + shift
    lowest_before = np.append(0, lowest[:-1])
    lowest_before[begins] = 0
    is_answer = ~is_request & (balance >= lowest_before)
    requests = np.flatnonzero(is_request)
    answers = np.flatnonzero(is_answer)
    # The n-th answer of a key is that of its n-th request.
    rank = np.arange(len(requests)) - np.searchsorted(keys[requests], keys[requests])
    places = rank + np.searchsorted(keys[answers], keys[requests])
    ends = np.searchsorted(keys[answers], keys[requests], "right")
    is_answered = places < ends
    found[order[requests[is_answered]]] = order[answers[places[is_answered]]] - count
    return found
