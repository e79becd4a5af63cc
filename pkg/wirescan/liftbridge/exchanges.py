"""Exchanges of Liftbridge: published messages with their acks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wirescan.frames.exchange import NO_RESPONSE, PairedFrames, SentFrames
from wirescan.frames.limits import Limits
from wirescan.frames.pairing import copy_places, make_rows, pair_in_order, select_responses
from wirescan.frames.table import FrameTable
from wirescan.frames.value_numbers import number_values
from wirescan.liftbridge.constants import AckPolicy, Kind

EXCHANGE_COLUMNS = np.dtype(
    [
        ("offset", "i8"),
        ("ack_policy", "i4"),
        ("ack_error", "i4"),
        ("subject_at", "u4"),
        ("subject_size", "i4"),
        ("correlation_id_at", "u4"),
        ("correlation_id_size", "i4"),
    ]
)
NO_OFFSET = -1


def pair_publications(
    asked: SentFrames,
    answers: SentFrames,
    *,
    limits: Limits,
    open_envelopes: Callable[..., FrameTable],
    open_messages: Callable[..., FrameTable],
    open_acks: Callable[..., FrameTable],
) -> PairedFrames:
    """Pair published messages with acks of the same correlation id to their ack inbox.

    Only messages with an ack inbox are exchanges. An ack may be sent over another connection,
    because a server of Liftbridge has several connections to NATS. The functions open the envelopes
    in messages of NATS, and the messages and the acks in envelopes.
    """
    frames = asked.table
    envelopes = open_envelopes(frames, errors="mark", limits=limits)
    messages = open_messages(envelopes, errors="mark", limits=limits)
    acks = open_acks(envelopes, errors="mark", limits=limits)
    is_published = ~messages.bad & (messages["kind"] == Kind.PUBLISH)
    requests = _select(messages, envelopes, is_published & (messages["ack_inbox_size"] > 0))
    ack_frames = envelopes["parent"][acks["parent"]]
    replies = _select(acks, envelopes, ~acks.bad & answers.is_new[ack_frames])
    is_awaited = requests.read("ack_policy") != AckPolicy.NONE
    found = _find_acks(asked, answers, requests, replies, is_awaited)
    return PairedFrames(
        requests.frames,
        select_responses(found, replies.frames),
        _make_exchange_rows(frames, requests, replies, found),
        is_awaited=is_awaited,
    )


class _Selected(NamedTuple):
    """Some frames in envelopes, and the messages of NATS that the envelopes are in.

    table: has these frames, and others.
    numbers: int64 array, their row numbers in `table`.
    frames: int64 array, the row number of the message of NATS of each.
    """

    table: FrameTable
    numbers: np.ndarray
    frames: np.ndarray

    def read(self, name: str) -> np.ndarray:
        """Return a column of these frames."""
        column: np.ndarray = self.table[name][self.numbers]
        return column


def _select(table: FrameTable, envelopes: FrameTable, is_selected: np.ndarray) -> _Selected:
    """Return some frames of a table that was opened from envelopes."""
    numbers = np.flatnonzero(is_selected)
    frames = envelopes["parent"][table["parent"][numbers]].astype(np.int64)
    return _Selected(table, numbers, frames)


def _find_acks(
    asked: SentFrames,
    answers: SentFrames,
    requests: _Selected,
    replies: _Selected,
    is_awaited: np.ndarray,
) -> np.ndarray:
    """Return for each request the place of its ack among the replies, or NO_RESPONSE.

    is_awaited: bool array, the requests that want an ack.
    """
    ids, ack_ids = number_values(
        (requests.table, requests.numbers, "correlation_id"),
        (replies.table, replies.numbers, "correlation_id"),
    )
    inboxes, subjects = number_values(
        (requests.table, requests.numbers, "ack_inbox"), (asked.table, replies.frames, "subject")
    )
    sides = asked.is_to_server.astype(np.int64)
    keys = _number_rows(
        np.stack([sides[requests.frames], inboxes, ids], 1),
        np.stack([1 - sides[replies.frames], subjects, ack_ids], 1),
    )
    count = len(requests.numbers)
    expecting = np.flatnonzero(is_awaited)
    found = np.full(count, NO_RESPONSE, np.int64)
    found[expecting] = pair_in_order(
        keys[:count][expecting],
        asked.last_packet[requests.frames[expecting]],
        keys[count:],
        answers.packet[replies.frames],
    )
    return found


def _make_exchange_rows(
    frames: FrameTable, requests: _Selected, replies: _Selected, found: np.ndarray
) -> np.ndarray:
    """Return the rows of the exchanges, one for each request.

    frames: the messages of NATS. found: the result of `_find_acks`.
    """
    rows = make_rows(EXCHANGE_COLUMNS, frames, requests.frames)
    copy_places(rows, frames, requests.frames, "subject")
    rows["offset"] = NO_OFFSET
    rows["ack_policy"] = requests.read("ack_policy")
    is_answered = found != NO_RESPONSE
    for name in ("offset", "ack_error"):
        rows[name][is_answered] = replies.read(name)[found[is_answered]]
    # The bytes of an envelope are those of its message of NATS, in the same buffer.
    distance = requests.read("start") - frames["start"][requests.frames]
    rows["correlation_id_at"] = requests.read("correlation_id_at") + distance
    rows["correlation_id_size"] = requests.read("correlation_id_size")
    return rows


def _number_rows(requests: np.ndarray, replies: np.ndarray) -> np.ndarray:
    """Return a number for each row of two arrays, one after another. Equal rows have equal ones."""
    rows = np.concatenate([requests, replies])
    numbers: np.ndarray = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    return numbers
