"""Functions for `ExchangeFormat.pair`: they match requests with responses, and fill rows."""

from __future__ import annotations

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.frames.exchange import NO_RESPONSE
from wirescan.frames.table import FrameTable


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


def select_responses(found: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the row of the response to each request, or NO_RESPONSE: an int64 array.

    found: as `pair_in_order` returns it. rows: the row of each response.
    """
    responses = np.full(len(found), NO_RESPONSE, np.int64)
    is_answered = found != NO_RESPONSE
    responses[is_answered] = rows[found[is_answered]]
    return responses


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


def pair_latest(
    request_keys: np.ndarray,
    request_packets: np.ndarray,
    response_keys: np.ndarray,
    response_packets: np.ndarray,
) -> np.ndarray:
    """Return the index of the request of each response, or NO_RESPONSE: an int64 array.

    A response answers the last request of its key before it, unless another response did. Earlier
    ones are not answered any more: see `find_superseded`. The arguments are those of
    `pair_in_order`.
    """
    count = len(request_keys)
    keys = np.concatenate([request_keys, response_keys])
    packets = np.concatenate([request_packets, response_packets])
    is_request = np.arange(len(keys)) < count
    order = np.lexsort((~is_request, packets, keys))
    before, after = order[:-1], order[1:]
    is_pair = (keys[before] == keys[after]) & is_request[before] & ~is_request[after]
    requests = np.full(len(response_keys), NO_RESPONSE, np.int64)
    requests[after[is_pair] - count] = before[is_pair]
    return requests


def find_superseded(
    request_keys: np.ndarray, request_packets: np.ndarray, is_answered: np.ndarray
) -> np.ndarray:
    """Return which requests `pair_latest` pairs with no later response: a bool array.

    They are the answered ones, and those before an answered request of the same key.

    is_answered: bool array, for each request. The other arguments are those of `pair_in_order`.
    """
    is_superseded = np.zeros(len(request_keys), bool)
    if not is_answered.any():
        return is_superseded
    order = np.lexsort((request_packets, request_keys))
    keys = request_keys[order]
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    places = np.arange(len(order))
    last = np.maximum.reduceat(np.where(is_answered[order], places, NO_RESPONSE), begins)
    counts = np.diff(np.append(begins, len(order)))
    is_superseded[order] = places <= np.repeat(last, counts)
    return is_superseded
