"""Exchanges of Kafka's protocol: requests with their responses and the errors in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.conversation import Conversation
from wirescan.frames.exchange import NO_RESPONSE, PairedFrames, SentFrames
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.pairing import copy_places, make_rows, pair_latest, select_responses
from wirescan.frames.table import FrameTable
from wirescan.kafka.protocol.message import expects_response
from wirescan.kafka.protocol.schema import MESSAGE, OPAQUE, Level, get_api_key

EXCHANGE_COLUMNS = np.dtype(
    [
        ("correlation_id", "i4"),
        ("api_key", "i2"),
        ("api_version", "i2"),
        ("error_code", "i2"),
        ("client_id_at", "u4"),
        ("client_id_size", "i4"),
    ]
)
ERROR_CODE = "error_code"  # the end of the names of columns with errors
LEVELS = {
    get_api_key(name): schema.level
    for (name, side), schema in MESSAGE.items()
    if side == "response"
}
COPIED = ("correlation_id", "api_key", "api_version")


def pair_requests(
    asked: SentFrames,
    answers: SentFrames,
    *,
    limits: Limits,
    conversation: Conversation,
    named_responses: Format,
) -> PairedFrames:
    """Pair requests with responses by their correlation ids.

    A response answers the last request with its id that was sent before it.

    A request that is not answered, such as Produce with acks = 0, is an exchange without response.

    conversation: that of kafka.responses. named_responses: the format of responses with the columns
    of their requests.
    """
    assert conversation.label is not None
    labelled, _ = conversation.label(answers, asked)
    numbers = labelled["request"]
    named = FrameTable(answers.table.buffers, labelled, (), named_responses, errors="mark")
    responses = np.full(len(asked.table), NO_RESPONSE, np.int64)
    known = np.flatnonzero(numbers >= 0)
    responses[numbers[known]] = known
    requests = np.flatnonzero(~asked.table.bad)
    responses = responses[requests]
    rows = make_rows(EXCHANGE_COLUMNS, asked.table, requests)
    for name in COPIED:
        rows[name] = asked.table.rows[name][requests]
    copy_places(rows, asked.table, requests, "client_id")
    is_answered = responses != NO_RESPONSE
    rows["error_code"][is_answered] = find_error_codes(named, limits)[responses[is_answered]]
    is_awaited = expects_response(asked.table.rows, asked.table.buffers)[requests]
    # The body of a request may be large, and is not needed.
    headers = asked.table.rows["body"][requests].astype(np.int64)
    rows["size"] = headers
    buffers = asked.table.buffers
    return PairedFrames(requests, responses, is_awaited, rows, buffers, kept_sizes=headers)


def find_requests(
    asked: SentFrames, answers: SentFrames, match_connections: Callable[..., np.ndarray]
) -> np.ndarray:
    """Return the row of the request of each response, or NO_RESPONSE: an int64 array.

    Raw tokens of SASL have no correlation id. In connections with such requests, the order of the
    frames decides. match_connections: finds the requests by that order.
    """
    requests, responses = asked.table, answers.table
    expecting = np.flatnonzero(expects_response(requests.rows, requests.buffers) & ~requests.bad)
    readable = np.flatnonzero(responses["fault"] < Fault.BAD_LENGTH)
    ids, response_ids = (
        table["correlation_id"].view(np.uint32).astype(np.int64) for table in (requests, responses)
    )
    found = pair_latest(
        (asked.connection << 32 | ids)[expecting],
        asked.last_packet[expecting],
        (answers.connection << 32 | response_ids)[readable],
        answers.packet[readable],
    )
    numbers = np.full(len(responses), NO_RESPONSE, np.int64)
    numbers[readable] = select_responses(found, expecting)
    has_tokens = np.isin(answers.connection, asked.connection[requests["kind"] == OPAQUE])
    if has_tokens.any():
        by_order = match_connections(requests, asked.connection, responses, answers.connection)
        numbers[has_tokens] = by_order[has_tokens]
    return numbers


def find_error_codes(responses: FrameTable, limits: Limits) -> np.ndarray:
    """Return the first error in the body of each response, 0 without one: an int16 array.

    An error of the whole response comes before those of its topics and partitions.
    """
    codes = np.zeros(len(responses), np.int16)
    assert responses.format is not None
    for api_key in np.unique(responses["api_key"][~responses.bad]).tolist():
        level = LEVELS.get(api_key)
        if level is not None and _has_errors(level):
            bodies = responses.open(level.name, errors="mark", limits=limits)
            _collect_errors(bodies, level, bodies["parent"], codes, limits)
    return codes


def _collect_errors(
    table: FrameTable, level: Level, responses: np.ndarray, codes: np.ndarray, limits: Limits
) -> None:
    """Set the codes of responses that have none yet. responses: that of each row of a table."""
    for name in _list_error_columns(level):
        values = table[name]
        chosen = np.flatnonzero((values != 0) & (codes[responses] == 0) & ~table.bad)
        # The first of several rows is written last.
        codes[responses[chosen[::-1]]] = values[chosen[::-1]]
    for inner in filter(_has_errors, level.arrays):
        structs = table.open(inner.name, errors="mark", limits=limits)
        _collect_errors(structs, inner, responses[structs["parent"]], codes, limits)


def _list_error_columns(level: Level) -> list[str]:
    return [name for name in level.dtype.names or () if name.endswith(ERROR_CODE)]


@cache
def _has_errors(level: Level) -> bool:
    """Return whether structs, or those inside them, have error codes."""
    return bool(_list_error_columns(level)) or any(map(_has_errors, level.arrays))
