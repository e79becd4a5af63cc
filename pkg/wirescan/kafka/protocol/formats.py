"""The formats of Kafka's protocol: streams of requests and responses, their pairs, their bodies.

The package wirescan.kafka exports these functions. kafka/formats.py adds `FORMATS` to its own.

    requests = kafka.requests(captured_from_the_client)
    responses = kafka.responses(captured_from_the_broker, requests)
    fetched = kafka.body(responses, "Fetch")                # a row for each Fetch response
    partitions = fetched.open("responses").open("partitions")
    kafka.records(kafka.scan(partitions))                   # the fetched records

The formats are kafka.requests, kafka.responses, and one for each array of structs in
api_definitions.py, such as kafka.fetch_response.partitions. The docstring of schema.py shows the
row of a struct.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.files.boundaries import LengthPrefix, find_cuts_at_headers
from wirescan.files.whole_source import scan_source
from wirescan.frames.columns import Column
from wirescan.frames.errors import FrameError, enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, iter_groups, require_rows
from wirescan.kafka.protocol.body import open_structs, read_int16
from wirescan.kafka.protocol.compile import compile_programs
from wirescan.kafka.protocol.error_codes import ErrorCode
from wirescan.kafka.protocol.evidence import weigh_requests, weigh_responses
from wirescan.kafka.protocol.message import (
    REQUEST,
    RESPONSE,
    expects_response,
    match,
    name_responses,
    scan_request_streams,
    scan_requests,
    scan_response_streams,
    scan_responses,
)
from wirescan.kafka.protocol.schema import (
    MESSAGE,
    OPAQUE,
    WIDTHS,
    ApiKey,
    Level,
    MessageSchema,
    get_api_key,
    get_message,
    iter_flat_fields,
)
from wirescan.kafka.record_batches.scan import RECORD

SIZED = LengthPrefix(header=4, length_at=0, overhead=4, smallest=(4,))
HEADER = 8  # bytes of a response up to the end of its correlation id
NO_ROWS = np.empty(0, np.int64)
CREDENTIALS = {("SaslAuthenticate", "request"): "auth_bytes"}  # places that may hold a password
VERSION_SIZE = 2  # bytes of the version before the key or value of a record
PAIR = np.dtype([("request", np.int32), ("response", np.int32)])


def requests(
    source: Any, *, errors: str = "strict", check: bool = True, limits: Limits = Limits()
) -> FrameTable:
    """Scan the requests of a stream into a table of dtype REQUEST (40 bytes a row): kafka.requests.

    source: anything that `wirescan.open` accepts. Each buffer of it is one connection.

    `kind` is the version of the header, 0, 1 or 2. `api_key` and `api_version` say which request it
    is. Its response has the same `correlation_id`. The body begins at `body`. The place is
    client_id. `kind` is OPAQUE (255) if the API is not known. Such a row may be a raw token of
    SASL, which follows SaslHandshake of version 0; its numbers are those in its first bytes.

    Raises FrameError as `errors` says, and as `kafka.scan`. After an impossible size the rest of
    the stream cannot be read.

    Format: Apache Kafka, "Kafka Protocol Guide", "Request Header v0" to "v2".
    """
    # There is no checksum, so the rows count as checked.
    return scan_source(source, REQUESTS, errors=errors, check=True, limits=limits)


def responses(
    source: Any,
    requests: FrameTable | None = None,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Scan the responses of a stream into a table of dtype RESPONSE: kafka.responses.

    A row has 40 bytes.

    requests: the requests of the same connections, with one buffer for each buffer of `source`. A
        response has no API on the wire: only its request has it. Without its request (`request` is
        -1), api_key and api_version are -1 too.

    `kind` is the version of the header, 0 or 1, or OPAQUE if the request is opaque. `api_version`
    is the version of the response. It differs from the request's version in one case: a broker
    answers an ApiVersions request of an unknown version in version 0. `tag_count` is the number of
    tagged fields in the header.

    Raises as `requests`, and ValueError if the numbers of connections differ.
    """
    if requests is None:
        return scan_source(source, RESPONSES, errors=errors, check=True, limits=limits)
    require_rows(requests, REQUEST, "responses need a table of kafka.requests")
    table = scan_source(source, RESPONSES, errors="mark", check=True, limits=limits)
    rows, bad = name_responses(
        table.rows, table.buffers, requests.rows, _match_requests(requests, table)
    )
    rows.flags.writeable = False
    table = FrameTable(table.buffers, rows, table.stops, RESPONSES, checked=check)
    return enforce_mode(table, errors, bad)


def pair(requests: FrameTable, responses: FrameTable) -> np.ndarray:
    """Match responses to requests: return an array of `request` i4 and `response` i4, row numbers.

    The pairs are in the order of the requests. A request without a response has -1 as `response`.
    Responses without a request follow, with -1 as `request`. On a connection a broker answers in
    the order of the requests. It does not answer Produce with acks = 0.
    Raises TypeError for other tables, ValueError if the numbers of connections differ.
    """
    require_rows(requests, REQUEST, "pair takes a table of kafka.requests first")
    require_rows(responses, RESPONSE, "pair takes a table of kafka.responses second")
    numbers = _match_requests(requests, responses)
    unmatched = np.flatnonzero(numbers < 0)
    matched = np.flatnonzero(numbers >= 0)
    count = len(requests)
    out = np.empty(count + len(unmatched), PAIR)
    out["request"][:count] = np.arange(count)
    out["request"][count:] = -1
    out["response"][:count] = -1
    out["response"][count:] = unmatched
    out["response"][numbers[matched]] = matched
    return out


def body(
    messages: FrameTable,
    name: str,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    credentials: bool = False,
) -> FrameTable:
    """Open the bodies of the messages of one API, one row for each body.

    messages: a table of kafka.requests, kafka.responses or kafka.records.
    name: the name of an API ("Fetch"). For records it is the key or the value of an internal topic
        ("OffsetCommit key", "GroupMetadata value", ...); records of other kinds are skipped.
    errors: "strict", "mark" or "skip". None, the default: as in `messages.errors`.
    credentials: include the credentials of clients. Without it, the place auth_bytes of
        SaslAuthenticate requests is null, because it may hold a password.

    Column `parent` is the row in `messages`. Column `kind` is the version. Arrays of structs are
    opened by their names: `table.open("topics")`. The column `topics_count` is the number of
    structs. It is -1 if the array is null, if the version does not have it, or if it is a tagged
    field that the message does not have. Any other missing field has its default of
    api_definitions.py.

    A body that cannot be read to its end is a bad row. An array with a fault has the structs before
    the fault, and one bad row from there on. An array after the fault has one bad row for the whole
    body. With errors="strict" one such body raises FrameError; a note on the error
    names the row in `messages`. "mark" keeps it as a bad row.

    Raises FrameError as `errors` says, ValueError for an unknown name, TypeError for another table.
    """
    dtype = getattr(messages, "dtype", None)
    side = None if dtype is None else SIDES.get(dtype)
    if side is None and dtype == RECORD:
        name, _, side = name.partition(" ")
        if (name, side) not in MESSAGE or side not in ("key", "value"):
            names = ", ".join(" ".join(key) for key in MESSAGE if key[1] in ("key", "value"))
            full_name = f"{name} {side}".strip()
            raise ValueError(
                f"unknown key or value of a record: {full_name!r}; expected one of {names}"
            )
    if not isinstance(messages, FrameTable) or side is None:
        raise TypeError("body takes a table of kafka.requests, kafka.responses or kafka.records")
    return BODIES[get_message(name, side)].read(
        messages, errors=errors, check=check, limits=limits, credentials=credentials
    )


def find_boundaries(
    path: str, size: int, start: int = 0, *, limits: Limits = Limits()
) -> list[int]:
    """Return positions in a file at which a message begins, about `size` bytes apart.

    The first position is `start`. The walk ends at the first size that is not valid, or is above
    `limits.frame`. Raises OSError.
    """
    return find_cuts_at_headers(path, size, start, SIZED, limits=limits)


def _match_requests(requests: FrameTable, responses: FrameTable) -> np.ndarray:
    """Return an int64 array: the row of the request of each response, or -1."""
    if len(requests.buffers) != len(responses.buffers):
        raise ValueError(
            f"the requests have {len(requests.buffers)} connections, "
            f"but the responses have {len(responses.buffers)}"
        )
    numbers = np.full(len(responses), -1, np.int64)
    awaits_response = expects_response(requests.rows, requests.buffers) & ~requests.bad
    requests_of = dict(iter_groups(requests["buffer"], np.flatnonzero(awaits_response)))
    readable = np.flatnonzero(responses["fault"] < Fault.BAD_LENGTH)
    for connection, answers in iter_groups(responses["buffer"], readable):
        request_rows = requests_of.get(connection, NO_ROWS)
        number = match(
            requests["correlation_id"][request_rows],
            requests["kind"][request_rows] == OPAQUE,
            responses["correlation_id"][answers],
            responses["size"][answers] >= HEADER,
        )
        numbers[answers[number >= 0]] = request_rows[number[number >= 0]]
    return numbers


def _open_bodies(
    messages: FrameTable,
    *,
    message: MessageSchema,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    credentials: bool = False,
) -> FrameTable:
    """Open the bodies of a message. The arguments are those of `body`."""
    errors = resolve_mode(errors, messages, limits)
    within, dtype = WITHIN[message.side]
    subject = f"the {message.side}s of {message.name}"
    require_rows(messages, dtype, f"{subject} are opened from a table of {within}")
    chosen, version = _select(messages, message)
    programs = compile_programs(message, message.level)
    is_unknown = (version < 0) | (version > message.versions[-1])
    contexts = programs[np.where(is_unknown, len(programs) - 1, version)]
    contexts["is_whole"] = 1
    rows = messages.rows
    spans = np.zeros(len(chosen), HEAD)
    spans["parent"] = chosen
    spans["buffer"] = rows["buffer"][chosen]
    spans["fault"] = rows["fault"][chosen]
    if message.side in ("key", "value"):
        contexts["skip"] = VERSION_SIZE
        spans["start"] = rows["start"][chosen] + rows[message.side + "_at"][chosen]
        spans["size"] = rows[message.side + "_size"][chosen]
        # An empty one has no version. Its span would have no struct at all.
        spans["fault"][(spans["size"] == 0) & (spans["fault"] == 0)] = Fault.BAD_VERSION
    else:
        contexts["skip"] = rows["body"]
        spans["start"] = rows["start"][chosen]
        spans["size"] = rows["size"][chosen]
    counts = np.ones(len(chosen), np.int32)
    hidden = None if credentials else CREDENTIALS.get((message.name, message.side))
    try:
        format = BODIES[message]
        return _open(
            messages, contexts, spans, counts, format, errors, limits, is_body=True, hidden=hidden
        )
    except FrameError as error:
        if error.row < len(chosen):
            error.add_note(
                f"in row {chosen[error.row]} of {messages.name}; "
                'errors="mark" reads the other bodies'
            )
        raise


def _select(messages: FrameTable, message: MessageSchema) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that hold a message, and for every row the version of the message."""
    rows = messages.rows
    if message.side not in ("key", "value"):
        chosen = np.flatnonzero(rows["api_key"] == get_api_key(message.name))
        return chosen, rows["api_version"]
    # A key and a value begin with their version.
    keys = read_int16(rows, messages.buffers, "key")
    has_key = np.isin(keys, MESSAGE[message.name, "key"].versions)
    chosen = np.flatnonzero(has_key & (rows[message.side + "_size"] >= 0))
    if message.side == "key":
        return chosen, keys
    return chosen, read_int16(rows, messages.buffers, "value")


def _open_structs(
    outer: FrameTable,
    *,
    message: MessageSchema,
    level: Level,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    credentials: bool = False,
) -> FrameTable:
    """Open the structs of an array. outer: the table of the enclosing structs.

    `check` and `credentials` are accepted for consistency and ignored.
    """
    errors = resolve_mode(errors, outer, limits)
    rows = outer.rows
    array = level.name
    format = LEVELS[level.path]
    if outer.name != format.within:
        raise TypeError(
            f"{format.name} is opened from a table of {format.within}, not of {outer.name}"
        )
    programs = compile_programs(message, level)
    contexts = programs[np.minimum(rows["kind"], len(programs) - 1)]
    is_lost = outer.bad & (rows[array + "_at"] == 0)  # the fault is before the array
    chosen = np.flatnonzero((rows[array + "_count"] > 0) | is_lost)
    is_lost = is_lost[chosen]
    spans = np.zeros(len(chosen), HEAD)
    spans["parent"] = chosen
    spans["buffer"] = rows["buffer"][chosen]
    spans["fault"] = np.where(is_lost, rows["fault"][chosen], 0)
    spans["start"] = rows["start"][chosen] + np.where(is_lost, 0, rows[array + "_at"][chosen])
    spans["size"] = np.where(is_lost, rows["size"][chosen], rows[array + "_size"][chosen])
    counts = rows[array + "_count"][chosen]
    return _open(outer, contexts, spans, counts, format, errors, limits)


def _open(
    outer: FrameTable,
    contexts: np.ndarray,
    spans: np.ndarray,
    counts: np.ndarray,
    format: Format,
    errors: str,
    limits: Limits,
    *,
    is_body: bool = False,
    hidden: str | None = None,
) -> FrameTable:
    """Open structs into a table of a format.

    is_body: the structs are bodies, not elements of an array in a body.
    hidden: a place that becomes null in all rows.
    """
    rows, bad, fault = open_structs(contexts, outer.buffers, spans, counts, format.dtype, limits)
    without_version = is_body & (rows["fault"] == Fault.BAD_VERSION) & (rows["size"] == 0)
    if hidden is not None or without_version.any():
        rows = rows.copy()
        for name, column in format.columns.items():
            if column.unset:
                rows[name][without_version] = column.unset
        if hidden is not None:
            rows[hidden + "_at"] = 0
            rows[hidden + "_size"] = -1
        rows.flags.writeable = False
    table = raise_if_row_limit(FrameTable(outer.buffers, rows, (), format, outer), fault)
    return enforce_mode(table, errors, bad)


SIDES = {REQUEST: "request", RESPONSE: "response"}
# Side of a message -> the name and the dtype of the rows that hold it.
WITHIN = {
    "request": ("kafka.requests", REQUEST),
    "response": ("kafka.responses", RESPONSE),
    "key": ("kafka.records", RECORD),
    "value": ("kafka.records", RECORD),
}
LEVELS: dict[str, Format] = {}
BODIES: dict[MessageSchema, Format] = {}
ENUMS: dict[str, type[IntEnum]] = {"api_key": ApiKey, "error_code": ErrorCode}


def _make_formats(
    message: MessageSchema, level: Level, within: str, names: tuple[str, ...] = ()
) -> None:
    """Make the formats of a level and of the levels in it, and add them to LEVELS and BODIES.

    names: the columns that identify the structs of the enclosing levels. Every export has them.
    """
    is_body = level is message.level
    types = {name: field.type for name, field in iter_flat_fields(level.fields)}
    inherited = tuple(name for name in names if name not in types)
    inner_names: tuple[str, ...] = ()
    if not is_body:
        own_names = (name for name, kind in types.items() if kind in ("string", "uuid"))
        inner_names = (*inherited, *own_names)
    children = {}
    for inner in level.arrays:
        _make_formats(message, inner, f"kafka.{level.path}", inner_names)
        children[inner.name] = LEVELS[inner.path].read
    read = partial(_open_structs, message=message, level=level)
    if is_body:
        read = partial(_open_bodies, message=message)
    about = f"{message.name} {message.side}s"
    LEVELS[level.path] = Format(
        f"kafka.{level.path}",
        about if is_body else f"{level.name} of {about}",
        level.dtype,
        read,
        within,
        children,
        _declare_columns(level, inherited),
    )
    if is_body:
        BODIES[message] = LEVELS[level.path]


def _declare_columns(level: Level, inherited: tuple[str, ...]) -> dict[str, Column]:
    """Return what the columns of a level mean, and those of enclosing levels in its exports."""
    columns = {
        name: Column(names=ENUMS.get(name, {}), is_offset=name.endswith("offset"), unset=default)
        for name, _, default in level.columns
        if default or name in ENUMS or name.endswith("offset")
    }
    for name, field in iter_flat_fields(level.fields):
        if field.type[:2] == "[]" and field.type[2:]:
            columns[name] = Column(items=f">i{WIDTHS[field.type[2:]]}")
    return columns | dict.fromkeys(inherited, Column(inherited=True))


for _message in reversed(MESSAGE.values()):
    _make_formats(_message, _message.level, WITHIN[_message.side][0])


def _list_body_readers(side: str) -> dict[str, Callable[..., FrameTable]]:
    return {
        message.level.name: BODIES[message].read
        for message in MESSAGE.values()
        if message.side == side
    }


REQUESTS = Format(
    "kafka.requests",
    "requests of the protocol, sent by a client",
    REQUEST,
    requests,
    children=_list_body_readers("request"),
    columns={"api_key": Column(names=ApiKey)},
    parser=Parser(scan=scan_requests, spans=scan_request_streams),
    storage=Storage(
        text_marks=(),
        boundaries=find_boundaries,
        weigh=weigh_requests,
        evidence="their APIs and versions are known, and their bodies end where their sizes say",
    ),
    display=Display(
        shown=("_start", "size", "correlation_id", "api_key", "api_version", "client_id")
    ),
)
RESPONSES = Format(
    "kafka.responses",
    "responses of the protocol, sent by a broker",
    RESPONSE,
    responses,
    children=_list_body_readers("response"),
    columns={"api_key": Column(names=ApiKey)},
    parser=Parser(scan=scan_responses, spans=scan_response_streams),
    storage=Storage(
        text_marks=(),
        boundaries=find_boundaries,
        weigh=weigh_responses,
        evidence="they list API versions, or their correlation ids follow each other",
    ),
    display=Display(shown=("_start", "size", "correlation_id")),
    requests="kafka.requests",
)
FORMATS = (REQUESTS, RESPONSES, *reversed(LEVELS.values()))
