"""Exchanges of NATS: messages with a reply subject, and the first reply to each."""

from __future__ import annotations

import numpy as np

from wirescan.frames.exchange import NO_RESPONSE, PairedFrames, SentFrames
from wirescan.frames.limits import Limits
from wirescan.frames.pairing import copy_places, make_rows, pair_in_order, select_responses
from wirescan.frames.value_numbers import number_values
from wirescan.nats.constants import Kind

FIRST_ERROR = 400  # of the numbers of a status: 503 says that nobody replies
PUBLISHED = (Kind.PUB, Kind.HPUB, Kind.MSG, Kind.HMSG)
EXCHANGE_COLUMNS = np.dtype(
    [
        ("status", "u2"),
        ("subject_at", "u4"),
        ("subject_size", "i4"),
        ("reply_at", "u4"),
        ("reply_size", "i4"),
    ]
)


def pair_requests(asked: SentFrames, answers: SentFrames, *, limits: Limits) -> PairedFrames:
    """Pair messages that have a reply subject with the first reply on the same connection.

    A reply is a message to that subject in the other direction. `limits` is accepted for
    consistency and ignored.
    """
    table = asked.table
    is_message = ~table.bad & np.isin(table["kind"], PUBLISHED)
    requests = np.flatnonzero(is_message & (table["reply_size"] > 0))
    sizes = np.unique(table["reply_size"][requests])
    is_reply = is_message & answers.is_new & np.isin(table["subject_size"], sizes)
    replies = np.flatnonzero(is_reply)
    reply_numbers, subject_numbers = number_values(
        (table, requests, "reply"), (table, replies, "subject")
    )
    found = pair_in_order(
        asked.side[requests] << 32 | reply_numbers,
        asked.last_packet[requests],
        answers.other_side[replies] << 32 | subject_numbers,
        answers.packet[replies],
    )
    responses = select_responses(found, replies)
    rows = make_rows(EXCHANGE_COLUMNS, table, requests)
    copy_places(rows, table, requests, "subject", "reply")
    is_answered = responses != NO_RESPONSE
    rows["status"][is_answered] = table["status"][responses[is_answered]]
    return PairedFrames(requests, responses, rows)
