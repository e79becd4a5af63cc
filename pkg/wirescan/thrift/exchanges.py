"""Exchanges of Thrift: calls with their replies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wirescan.frames.exchange import (
    NO_RESPONSE,
    PairedFrames,
    SentFrames,
    copy_places,
    make_rows,
    pair_in_order,
)
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.thrift.constants import MessageType

OWN = np.dtype(
    [
        ("seqid", "i4"),
        ("call_type", "u1"),
        ("reply_type", "u1"),
        ("method_at", "u4"),
        ("method_size", "i4"),
        ("service_at", "u4"),
        ("service_size", "i4"),
    ]
)


def pair_calls(
    asked: SentFrames,
    answers: SentFrames,
    *,
    limits: Limits,
    open_messages: Callable[..., FrameTable],
) -> PairedFrames:
    """Pair calls with replies by their seqids, in the order of each connection.

    open_messages: returns the messages in frames.
    """
    messages = open_messages(asked.table, errors="mark", limits=limits)
    kinds = messages["kind"]
    calls = np.flatnonzero(~messages.bad & np.isin(kinds, (MessageType.CALL, MessageType.ONEWAY)))
    frames = messages["parent"]
    is_reply = ~messages.bad & np.isin(kinds, (MessageType.REPLY, MessageType.EXCEPTION))
    replies = np.flatnonzero(is_reply & answers.is_new[frames])
    expecting = np.flatnonzero(kinds[calls] == MessageType.CALL)
    found = np.full(len(calls), NO_RESPONSE, np.int64)
    keys = _number_keys(asked, messages, frames)
    # A reply is sent in the other direction than its call.
    is_to_server = asked.is_to_server[frames]
    answered = pair_in_order(
        (keys * 2 + is_to_server)[calls[expecting]],
        asked.packet[frames[calls[expecting]]],
        (keys * 2 + ~is_to_server)[replies],
        answers.packet[frames[replies]],
    )
    is_answered = answered != NO_RESPONSE
    found[expecting[is_answered]] = replies[answered[is_answered]]
    rows = make_rows(OWN, messages, calls)
    copy_places(rows, messages, calls, "method", "service")
    rows["seqid"] = messages["seqid"][calls]
    rows["call_type"] = kinds[calls]
    rows["reply_type"] = np.where(found == NO_RESPONSE, 0, kinds[found])
    responses = np.where(found == NO_RESPONSE, NO_RESPONSE, frames[found])
    is_awaited = kinds[calls] == MessageType.CALL
    return PairedFrames(
        frames[calls].astype(np.int64), responses, is_awaited, rows, messages.buffers
    )


def _number_keys(asked: SentFrames, messages: FrameTable, frames: np.ndarray) -> np.ndarray:
    """Return a number for the connection and the seqid of each message: an int64 array."""
    connections = np.unique(asked.connection, return_inverse=True)[1]
    return connections[frames].astype(np.int64) << 32 | messages["seqid"].view(np.uint32)
