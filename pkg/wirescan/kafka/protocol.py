"""Kafka's protocol: streams of requests and responses, their pairing, and what is in their bodies.

    requests = kafka.requests(captured_from_the_client)
    responses = kafka.responses(captured_from_the_broker, requests)
    fetched = kafka.body(responses, "Fetch")                # a row for each Fetch response
    partitions = fetched.open("responses").open("partitions")
    kafka.records(kafka.scan(partitions))                   # what was fetched

Formats: kafka.requests, kafka.responses; and for each array of structs in kafka/messages.py one that is named for it,
as kafka.fetch_response.partitions. kafka/schema.py says how a struct becomes a row.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wirescan.catalog import Format
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.errors import apply, check_mode, limited
from wirescan.kafka.body import leading_int16, open_structs
from wirescan.kafka.message import (
    REQUEST, RESPONSE, answered, match, name_responses, scan_request_streams, scan_requests,
    scan_response_streams, scan_responses)
from wirescan.kafka.program import programs_of
from wirescan.kafka.schema import MESSAGE, WIDTHS, Level, Message, api_key, flat_fields, message_of
from wirescan.kafka.scan import RECORD
from wirescan.limits import Limits
from wirescan.source import open
from wirescan.table import FrameTable, Stop, empty, groups, join
from wirescan.walk import Sized, cuts_at_headers

OPAQUE = 255            # the kind of what has no header that is known
SIZED = Sized(header=4, length_at=0, overhead=4, smallest=(4,))
HEADER = 8              # bytes of a response up to the end of its correlation id
NONE = np.empty(0, np.int64)
PAIR = np.dtype([("request", np.int32), ("response", np.int32)])


def requests(source: Any, *, errors: str = "strict", check: bool = True, limits: Limits = Limits()) -> FrameTable:
    """The requests in a stream, as a table of dtype REQUEST (40 bytes a row): kafka.requests.

    source: anything that `wirescan.open` takes; each buffer of it is a connection. `kind` is the version of the header,
    0, 1 or 2; the body begins at `body`. It is OPAQUE (255) where the API is not known: perhaps a raw token of SASL, as
    they follow SaslHandshake of version 0; the numbers of such a row are what stands in its first bytes. Place:
    client_id. Raises FrameError as `errors` says, and as `kafka.scan`; behind an impossible size nothing can be read.

    Format: Apache Kafka, "Kafka Protocol Guide", "Request Header v0" to "v2".
    """
    return _scan(source, REQUESTS, errors, check, limits)


def responses(source: Any, requests: FrameTable | None = None, *, errors: str = "strict", check: bool = True,
              limits: Limits = Limits()) -> FrameTable:
    """The responses in a stream, as a table of dtype RESPONSE (40 bytes a row): kafka.responses.

    requests: those of the same connections, a buffer for each as in `source`: only they tell what a response is. Where
    the request is not known (-1), neither are api_key and api_version (-1). `kind` is the version of the header, 0 or
    1, or OPAQUE as that of the request. api_version is that of the response: an ApiVersions request of a version that
    the broker does not know is answered in version 0. Raises as `requests`, and ValueError where the connections are
    not as many.
    """
    if requests is None:
        return _scan(source, RESPONSES, errors, check, limits)
    _refuse_unless(requests, REQUEST, "responses belong to a table of kafka.requests")
    table = _scan(source, RESPONSES, "mark", check, limits)
    rows, bad = name_responses(table.rows, table.buffers, requests.rows, _numbers(requests, table))
    rows.flags.writeable = False
    return apply(FrameTable(table.buffers, rows, table.stops, RESPONSES, checked=check), errors, bad)


def pair(requests: FrameTable, responses: FrameTable) -> np.ndarray:
    """Which response answers which request: a structured array of `request` i4 and `response` i4, row numbers.

    In the order of the requests; a request without a response has -1. Those without a request follow, with -1 there.
    On a connection a broker answers in the order of the requests, and does not answer Produce with acks = 0.
    Raises TypeError for other tables, ValueError where the connections are not as many.
    """
    _refuse_unless(requests, REQUEST, "pair takes a table of kafka.requests first")
    _refuse_unless(responses, RESPONSE, "pair takes a table of kafka.responses second")
    numbers = _numbers(requests, responses)
    lost = np.flatnonzero(numbers < 0)
    out = np.empty(len(requests) + len(lost), PAIR)
    out["request"][:len(requests)], out["request"][len(requests):] = np.arange(len(requests)), -1
    out["response"][:len(requests)], out["response"][len(requests):] = -1, lost
    known = np.flatnonzero(numbers >= 0)
    out["response"][numbers[known]] = known
    return out


def body(messages: FrameTable, name: str, *, errors: str = "strict", check: bool = True,
         limits: Limits = Limits()) -> FrameTable:
    """The bodies of the messages of one API, a row each: of a table of kafka.requests or kafka.responses.

    name: of an API ("Fetch"); or, of a table of kafka.records, of the key or value of an internal topic ("OffsetCommit
    key", "GroupMetadata value" ...: records of another kind are left out). Column `parent` is the row in `messages`,
    `kind` the version. Arrays of structs are opened by their names: `table.open("topics")`.
    A body that cannot be read to its end is a bad row. Of an array in it there are the structs before the fault, and
    one bad row from there on; of one that was not reached, only a bad row for the whole body. Raises FrameError as
    `errors` says, ValueError for a name that the table of messages does not have, TypeError for another table.
    """
    side = SIDES.get(getattr(messages, "dtype", None))
    if side is None and getattr(messages, "dtype", None) == RECORD:
        name, _, side = name.partition(" ")
        if (name, side) not in MESSAGE or side not in ("key", "value"):
            known = ", ".join(" ".join(one) for one in MESSAGE if one[1] in ("key", "value"))
            raise ValueError(f"in records lie {known}; not {f'{name} {side}'.strip()!r}")
    if not isinstance(messages, FrameTable) or side is None:
        raise TypeError("body takes a table of kafka.requests, kafka.responses or kafka.records")
    return BODIES[message_of(name, side)].read(messages, errors=errors, check=check, limits=limits)


def cuts(path: str, size: int, start: int = 0) -> list[int]:
    """Offsets in a file at which a message begins, about `size` bytes apart, by a walk from size to size; the first is
    `start`. It ends at the first size that cannot be one: who reads that slice tells what is wrong there."""
    return cuts_at_headers(path, size, start, SIZED)


def _refuse_unless(table: Any, dtype: np.dtype, what: str) -> None:
    if not isinstance(table, FrameTable) or table.dtype != dtype:
        raise TypeError(f"{what}, not {getattr(table, 'name', type(table).__name__)}")


def _scan(source: Any, format: Format, errors: str, check: bool, limits: Limits) -> FrameTable:
    check_mode(errors, limits)
    tables = []
    for buffer in open(source):
        rows, bad, fault, offset = format.scan(buffer, check, errors != "strict", limits)
        tables.append(apply(FrameTable((buffer,), rows, (Stop(fault, offset),), format, checked=True), errors, bad))
    return join(tables) if tables else empty(format)


def _numbers(requests: FrameTable, responses: FrameTable) -> np.ndarray:
    """Int64 array: the row of the request that each response answers, or -1."""
    if len(requests.buffers) != len(responses.buffers):
        raise ValueError(f"requests of {len(requests.buffers)} connections, and responses of {len(responses.buffers)}")
    found = np.full(len(responses), -1, np.int64)
    asking = answered(requests.rows, requests.buffers) & ~requests.bad
    asked_on = dict(groups(requests["buffer"], np.flatnonzero(asking)))
    for connection, answers in groups(responses["buffer"], np.flatnonzero(responses["fault"] < Fault.BAD_LENGTH)):
        asked = asked_on.get(connection, NONE)
        number = match(requests["correlation_id"][asked], requests["kind"][asked] == OPAQUE,
                       responses["correlation_id"][answers], responses["size"][answers] >= HEADER)
        found[answers[number >= 0]] = asked[number[number >= 0]]
    return found


def _bodies(messages: FrameTable, message: Message, errors: str, check: bool, limits: Limits) -> FrameTable:
    check_mode(errors, limits)
    level, rows = message.level, messages.rows
    place = message.side if message.side in ("key", "value") else None
    within = WITHIN[message.side]
    _refuse_unless(messages, {"kafka.requests": REQUEST, "kafka.responses": RESPONSE}.get(within, RECORD),
                   f"the {message.side}s of {message.name} lie in {within}")
    if place is None:
        version = rows["api_version"]
        chosen = np.flatnonzero(rows["api_key"] == api_key(message.name))
    else:
        keys = leading_int16(rows, messages.buffers, "key")
        chosen = np.flatnonzero(np.isin(keys, MESSAGE[message.name, "key"].versions) & (rows[place + "_size"] >= 0))
        version = keys if place == "key" else leading_int16(rows, messages.buffers, "value")
    programs = programs_of(message, level)
    numbers = np.where((version < 0) | (version > message.versions[-1]), len(programs) - 1, version)
    contexts = programs[numbers]
    contexts["is_whole"] = 1
    spans = np.zeros(len(chosen), HEAD)
    spans["parent"], spans["buffer"], spans["fault"] = chosen, rows["buffer"][chosen], rows["fault"][chosen]
    if place is None:
        contexts["skip"] = rows["body"]
        spans["start"], spans["size"] = rows["start"][chosen], rows["size"][chosen]
    else:
        contexts["skip"] = 2
        spans["start"] = rows["start"][chosen] + rows[place + "_at"][chosen]
        spans["size"] = rows[place + "_size"][chosen]
    return _opened(messages, contexts, spans, np.ones(len(chosen), np.int32), BODIES[message], errors, limits)


def _structs(outer: FrameTable, message: Message, level: Level, errors: str, check: bool, limits: Limits) -> FrameTable:
    check_mode(errors, limits)
    rows, array = outer.rows, level.name
    if outer.name != LEVELS[level.path].within:
        raise TypeError(f"kafka.{level.path} lies in {LEVELS[level.path].within}, not in {outer.name}")
    programs = programs_of(message, level)
    contexts = programs[np.minimum(rows["kind"], len(programs) - 1)]
    lost = outer.bad & (rows[array + "_at"] == 0)          # the fault lies before the array
    chosen = np.flatnonzero((rows[array + "_count"] > 0) | lost)
    spans, lost = np.zeros(len(chosen), HEAD), lost[chosen]
    spans["parent"], spans["buffer"] = chosen, rows["buffer"][chosen]
    spans["fault"] = np.where(lost, rows["fault"][chosen], 0)
    spans["start"] = rows["start"][chosen] + np.where(lost, 0, rows[array + "_at"][chosen])
    spans["size"] = np.where(lost, rows["size"][chosen], rows[array + "_size"][chosen])
    return _opened(outer, contexts, spans, rows[array + "_count"][chosen], LEVELS[level.path], errors, limits)


def _opened(outer: FrameTable, contexts: np.ndarray, spans: np.ndarray, counts: np.ndarray, format: Format,
            errors: str, limits: Limits) -> FrameTable:
    rows, bad, fault = open_structs(contexts, outer.buffers, spans, counts, format.dtype, limits)
    return apply(limited(FrameTable(outer.buffers, rows, (), format, outer), fault), errors, bad)


SIDES = {REQUEST: "request", RESPONSE: "response"}
WITHIN = {"request": "kafka.requests", "response": "kafka.responses", "key": "kafka.records", "value": "kafka.records"}
LEVELS: dict[str, Format] = {}
BODIES: dict[Message, Format] = {}


def _format(message: Message, level: Level, within: str, names: tuple[str, ...] = ()) -> None:
    """Makes the format of a level and of those in it. names: what the levels around it call their structs."""
    top = level is message.level
    own = {name: one.type for name, one in flat_fields(level.fields)}
    inside = () if top else (*(name for name in names if name not in own),
                             *(name for name, kind in own.items() if kind in ("string", "uuid")))
    children = {}
    for inner in level.arrays:
        _format(message, inner, f"kafka.{level.path}", inside)
        children[inner.name] = LEVELS[inner.path].read
    read: Callable[..., FrameTable] = _Reader(message, None if top else level)
    about = f"{message.name} {message.side}s" if top else f"{level.name} of {message.name} {message.side}s"
    LEVELS[level.path] = Format(
        f"kafka.{level.path}", about, level.dtype, read, within, children,
        inherited=tuple(name for name in names if name not in own),
        numbers={name: f">i{WIDTHS[kind[2:]]}" for name, kind in own.items() if kind[:2] == "[]" and kind[2:]})
    if top:
        BODIES[message] = LEVELS[level.path]


class _Reader:
    """What reads a level out of the table around it."""

    def __init__(self, message: Message, level: Level | None):
        self._message, self._level = message, level

    def __call__(self, outer: FrameTable, *, errors: str = "strict", check: bool = True,
                 limits: Limits = Limits()) -> FrameTable:
        if self._level is None:
            return _bodies(outer, self._message, errors, check, limits)
        return _structs(outer, self._message, self._level, errors, check, limits)


for _message in reversed(MESSAGE.values()):
    _format(_message, _message.level, WITHIN[_message.side])


def _bodies_of(side: str) -> dict[str, Callable[..., FrameTable]]:
    return {message.level.name: BODIES[message].read for message in MESSAGE.values() if message.side == side}


REQUESTS = Format("kafka.requests", "requests of the protocol, as a client sends them", REQUEST, requests,
                  children=_bodies_of("request"), scan=scan_requests, spans=scan_request_streams, cuts=cuts)
RESPONSES = Format("kafka.responses", "responses of the protocol, as a broker sends them", RESPONSE, responses,
                   children=_bodies_of("response"), scan=scan_responses, spans=scan_response_streams, cuts=cuts)
FORMATS = (REQUESTS, RESPONSES, *reversed(LEVELS.values()))
