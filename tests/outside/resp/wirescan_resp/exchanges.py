"""Exchanges of RESP: commands with their replies, in captures of packets."""

import numpy as np

from wirescan import Column
from wirescan.frames.exchange import NO_RESPONSE, ExchangeFormat, PairedFrames
from wirescan.frames.pairing import copy_places, make_rows, pair_in_order, select_responses
from wirescan_resp.constants import Kind

# The columns after those that all exchanges have. `name_at` and `name_size` are the place `name`.
COLUMNS = np.dtype([("name_at", "u4"), ("name_size", "i4"), ("reply_kind", "u1")])


def pair_commands(asked, answers, *, limits):
    """Pair each command with the next reply on its connection that answers no other command.

    limits: accepted for consistency and ignored, because nothing is opened.
    """
    frames = asked.table
    commands = np.flatnonzero(asked.is_to_server & ~frames.bad)
    replies = np.flatnonzero(~answers.is_to_server & answers.is_new & ~answers.table.bad)
    found = pair_in_order(
        asked.connection[commands],
        asked.last_packet[commands],
        answers.connection[replies],
        answers.packet[replies],
    )
    responses = select_responses(found, replies)
    rows = make_rows(COLUMNS, frames, commands)
    copy_places(rows, frames, commands, "name")
    is_answered = responses != NO_RESPONSE
    rows["reply_kind"][is_answered] = answers.table["kind"][responses[is_answered]]
    return PairedFrames(commands, responses, rows)


def find_errors(exchanges):
    """Return which replies are errors: a bool array."""
    return exchanges["reply_kind"] == Kind.ERROR


EXCHANGES = ExchangeFormat(
    "resp.exchanges",
    "commands with their replies, from captures",
    COLUMNS,
    pair_commands,
    columns={"reply_kind": Column(names=Kind)},
    meanings={
        "name": "the first word of the command",
        "reply_kind": "the type of the reply, 0 without one: see `Kind`",
    },
    grouped_by="name",
    find_errors=find_errors,
)
