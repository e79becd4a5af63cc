"""Exchanges of Thrift: calls with their replies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wirescan.frames.exchange import NO_RESPONSE, PairedFrames, SentFrames
from wirescan.frames.limits import Limits
from wirescan.frames.pairing import copy_places, make_rows, pair_in_order, select_responses
from wirescan.frames.table import FrameTable
from wirescan.thrift.constants import MessageType

EXCHANGE_COLUMNS = np.dtype(
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
    frames = messages["parent"].astype(np.int64)
    calls = np.flatnonzero(~messages.bad & np.isin(kinds, (MessageType.CALL, MessageType.ONEWAY)))
    is_reply = ~messages.bad & np.isin(kinds, (MessageType.REPLY, MessageType.EXCEPTION))
    replies = np.flatnonzero(is_reply & answers.is_new[frames])
    expecting = np.flatnonzero(kinds[calls] == MessageType.CALL)
    seqids = messages["seqid"].view(np.uint32).astype(np.int64)
    found = pair_in_order(
        (asked.side[frames] << 32 | seqids)[calls[expecting]],
        asked.last_packet[frames[calls[expecting]]],
        (answers.other_side[frames] << 32 | seqids)[replies],
        answers.packet[frames[replies]],
    )
    reply_messages = np.full(len(calls), NO_RESPONSE, np.int64)
    reply_messages[expecting] = select_responses(found, replies)
    is_answered = reply_messages != NO_RESPONSE
    rows = make_rows(EXCHANGE_COLUMNS, messages, calls)
    copy_places(rows, messages, calls, "method", "service")
    rows["seqid"] = messages["seqid"][calls]
    rows["call_type"] = kinds[calls]
    rows["reply_type"][is_answered] = kinds[reply_messages[is_answered]]
    responses = select_responses(reply_messages, frames)
    is_awaited = kinds[calls] == MessageType.CALL
    return PairedFrames(
        frames[calls], responses, rows, buffers=messages.buffers, is_awaited=is_awaited
    )
