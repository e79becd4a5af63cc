"""Exchanges of Liftbridge: published messages with their acks."""

from __future__ import annotations

from collections.abc import Callable

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
    message_frames = envelopes["parent"][messages["parent"]]
    ack_frames = envelopes["parent"][acks["parent"]]
    is_published = ~messages.bad & (messages["kind"] == Kind.PUBLISH)
    requests = np.flatnonzero(is_published & (messages["ack_inbox_size"] > 0))
    replies = np.flatnonzero(~acks.bad & answers.is_new[ack_frames])
    request_frames = message_frames[requests].astype(np.int64)
    reply_frames = ack_frames[replies].astype(np.int64)
    ids, ack_ids = number_values(
        (messages, requests, "correlation_id"), (acks, replies, "correlation_id")
    )
    inboxes, subjects = number_values(
        (messages, requests, "ack_inbox"), (frames, reply_frames, "subject")
    )
    sides = asked.is_to_server.astype(np.int64)
    keys = _number_rows(
        np.stack([sides[request_frames], inboxes, ids], 1),
        np.stack([1 - sides[reply_frames], subjects, ack_ids], 1),
    )
    expecting = np.flatnonzero(messages["ack_policy"][requests] != AckPolicy.NONE)
    found = np.full(len(requests), NO_RESPONSE, np.int64)
    found[expecting] = pair_in_order(
        keys[: len(requests)][expecting],
        asked.last_packet[request_frames[expecting]],
        keys[len(requests) :],
        answers.packet[reply_frames],
    )
    is_answered = found != NO_RESPONSE
    rows = make_rows(EXCHANGE_COLUMNS, frames, request_frames)
    copy_places(rows, frames, request_frames, "subject")
    rows["offset"] = NO_OFFSET
    rows["ack_policy"] = messages["ack_policy"][requests]
    for name in ("offset", "ack_error"):
        rows[name][is_answered] = acks[name][replies[found[is_answered]]]
    # The bytes of an envelope are those of its message of NATS, in the same buffer.
    distance = messages["start"][requests] - frames["start"][request_frames]
    rows["correlation_id_at"] = messages["correlation_id_at"][requests] + distance
    rows["correlation_id_size"] = messages["correlation_id_size"][requests]
    responses = select_responses(found, reply_frames)
    is_awaited = messages["ack_policy"][requests] != AckPolicy.NONE
    return PairedFrames(request_frames, responses, rows, is_awaited=is_awaited)


def _number_rows(requests: np.ndarray, replies: np.ndarray) -> np.ndarray:
    """Return a number for each row of two arrays, one after another. Equal rows have equal ones."""
    rows = np.concatenate([requests, replies])
    numbers: np.ndarray = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    return numbers
