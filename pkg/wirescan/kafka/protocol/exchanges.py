"""Exchanges of Kafka's protocol: requests with their responses and the errors in them."""

from __future__ import annotations

from collections import deque
from functools import cache

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.conversation import Conversation
from wirescan.frames.exchange import NO_RESPONSE, PairedFrames, SentFrames
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.pairing import (
    copy_places,
    find_superseded,
    make_rows,
    pair_latest,
    select_responses,
)
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
HEADER = 8  # bytes of a response up to the end of its correlation id
# Faults of responses that may answer a request. A response that is TRUNCATED may be shorter than a
# correlation id. `name_responses` sets TRUNCATED and BAD_VARINT, if tagged fields are damaged.
READABLE = (Fault.OK, Fault.TRUNCATED, Fault.BAD_VARINT)
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
    labelled = conversation.label(answers, asked)
    numbers = labelled.asked
    named = FrameTable(answers.table.buffers, labelled.rows, (), named_responses, errors="mark")
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
    is_awaited = labelled.is_awaited[requests]
    # The body of a request may be large, and is not needed.
    headers = asked.table.rows["body"][requests].astype(np.int64)
    rows["size"] = headers
    return PairedFrames(requests, responses, rows, is_awaited=is_awaited, kept_sizes=headers)


def find_requests(asked: SentFrames, answers: SentFrames) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of the request of each response, or NO_RESPONSE, and which requests wait.

    The arrays are int64 and bool. A response answers the last request with its id that was sent
    before it. `_answer_tokens` has the rule for raw tokens of SASL, which have no id.
    """
    requests, responses = asked.table, answers.table
    is_pending = expects_response(requests.rows, requests.buffers) & ~requests.bad
    is_open = np.isin(responses["fault"], READABLE)
    numbers = np.full(len(responses), NO_RESPONSE, np.int64)
    if (is_pending & (requests["kind"] == OPAQUE)).any():
        _answer_tokens(asked, answers, is_pending, is_open, numbers)
    expecting = np.flatnonzero(is_pending)
    readable = np.flatnonzero(is_open & (responses["size"] >= HEADER))
    ids, response_ids = (
        table["correlation_id"].view(np.uint32).astype(np.int64) for table in (requests, responses)
    )
    keys = (asked.connection << 32 | ids)[expecting]
    packets = asked.last_packet[expecting]
    found = pair_latest(
        keys,
        packets,
        (answers.connection << 32 | response_ids)[readable],
        answers.packet[readable],
    )
    numbers[readable] = select_responses(found, expecting)
    is_answered = np.zeros(len(expecting), bool)
    is_answered[found[found != NO_RESPONSE]] = True
    is_pending[expecting] = ~find_superseded(keys, packets, is_answered)
    return numbers, is_pending


def _answer_tokens(
    asked: SentFrames,
    answers: SentFrames,
    is_pending: np.ndarray,
    is_open: np.ndarray,
    numbers: np.ndarray,
) -> None:
    """Find the requests of responses in connections with tokens, until no token waits.

    A response answers a token if no other request was sent before the token and waits. Otherwise
    its id decides. Tokens before an answered request are not answered any more.

    is_pending: bool array of the requests, set to False for those that are not answered any more.
    is_open: bool array of the responses, set to False for those that were looked at. numbers: the
    request of each response, set for those that answer one.
    """
    requests, responses = asked.table, answers.table
    is_token = requests["kind"] == OPAQUE
    chosen = np.unique(asked.connection[is_pending & is_token])
    asked_rows = np.flatnonzero(is_pending & np.isin(asked.connection, chosen))
    answer_rows = np.flatnonzero(is_open & np.isin(answers.connection, chosen))
    rows = np.concatenate([asked_rows, answer_rows])
    connections = np.concatenate([asked.connection[asked_rows], answers.connection[answer_rows]])
    packets = np.concatenate([asked.last_packet[asked_rows], answers.packet[answer_rows]])
    is_response = np.arange(len(rows)) >= len(asked_rows)
    has_id = np.concatenate(
        [~is_token[asked_rows], responses["size"][answer_rows].astype(np.int64) >= HEADER]
    )
    ids = np.concatenate(
        [requests["correlation_id"][asked_rows], responses["correlation_id"][answer_rows]]
    )
    order = np.lexsort((is_response, packets, connections))
    begins = np.flatnonzero(np.diff(connections[order], prepend=-1))
    for group in np.split(order, begins[1:]):
        queue = _TokenQueue(int((~has_id & ~is_response)[group].sum()))
        events = zip(*(column[group].tolist() for column in (rows, is_response, has_id, ids)))
        for row, is_answer, with_id, number in events:
            if not queue.tokens_left:
                break
            if not is_answer:
                queue.add(row, number if with_id else None)
                continue
            is_open[row] = False
            numbers[row] = queue.answer(number if with_id else None)
        is_pending[queue.ended] = False


class _TokenQueue:
    """The requests of a connection that wait, some of which are tokens.

    tokens_left: how many tokens the connection has.

    Attributes:
        tokens_left: how many of them wait, or were not added yet.
        ended: the rows of the requests that are not answered any more.
    """

    def __init__(self, tokens_left: int):
        self.tokens_left = tokens_left
        self.ended: list[int] = []
        self._waiting: dict[int, int | None] = {}  # row -> id, in the order of the wire
        self._by_id: dict[int, list[int]] = {}
        self._tokens: deque[tuple[int, int]] = deque()  # place, row
        self._places: dict[int, int] = {}

    def add(self, row: int, number: int | None) -> None:
        """Add a request. number: its id, None for a token."""
        self._places[row] = len(self._places)
        self._waiting[row] = number
        if number is None:
            self._tokens.append((self._places[row], row))
        else:
            self._by_id.setdefault(number, []).append(row)

    def answer(self, number: int | None) -> int:
        """Return the row of the request that a response answers, or NO_RESPONSE.

        number: the id of the response, None without one.
        """
        oldest = next(iter(self._waiting), NO_RESPONSE)
        if self._tokens and self._tokens[0][1] == oldest:
            self._end_token()
            return oldest
        rows = [] if number is None else self._by_id.pop(number, [])
        if not rows:
            return NO_RESPONSE
        self.ended += rows
        for row in rows:
            del self._waiting[row]
        while self._tokens and self._tokens[0][0] < self._places[rows[-1]]:
            self._end_token()
        return rows[-1]

    def _end_token(self) -> None:
        _, row = self._tokens.popleft()
        del self._waiting[row]
        self.ended.append(row)
        self.tokens_left -= 1


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
