"""The formats of Kafka's protocol: requests and responses, their pairs, their bodies, and records.

The package wirescan.kafka exports these functions. kafka/formats.py adds `FORMATS` to its own.

    requests = kafka.requests(captured_from_the_client)
    responses = kafka.responses(captured_from_the_broker, requests)
    fetched = kafka.body(responses, "Fetch")                # a row for each Fetch response
    partitions = fetched.open("responses").open("partitions")
    kafka.records(kafka.scan(partitions))                   # the fetched records

    records = kafka.records(kafka.scan("/var/lib/kafka/__cluster_metadata-0"))
    metadata = kafka.metadata_records(records)              # a row for each record
    kafka.body(metadata, "Topic record")                    # a row for each new topic

The formats are kafka.requests, kafka.responses, kafka.metadata_records, and one for each message
and each array of structs in api_definitions.py and metadata_definitions.py, such as
kafka.fetch_response.partitions. The docstring of schema.py shows the row of a struct.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import copy_rows, select_rows
from wirescan.files.boundaries import LengthPrefix, find_cuts_at_headers
from wirescan.files.whole_source import scan_source
from wirescan.frames.columns import Column
from wirescan.frames.conversation import CarriedFormat, Conversation, LabelledFrames
from wirescan.frames.errors import FrameError, enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.exchange import ExchangeFormat, SentFrames
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, iter_groups, require_rows
from wirescan.kafka.meanings import MEANINGS
from wirescan.kafka.protocol import exchanges, record_sets
from wirescan.kafka.protocol.body import open_structs, read_int16
from wirescan.kafka.protocol.compile import compile_programs
from wirescan.kafka.protocol.error_codes import ErrorCode
from wirescan.kafka.protocol.evidence import (
    OPENINGS,
    weigh_requests,
    weigh_requests_alone,
    weigh_responses,
    weigh_responses_alone,
)
from wirescan.kafka.protocol.field_meanings import find_meaning
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
from wirescan.kafka.protocol.metadata_log import open_metadata_records
from wirescan.kafka.protocol.metadata_record import METADATA_RECORD
from wirescan.kafka.protocol.request_option import REQUESTS as REQUESTS_OPTION
from wirescan.kafka.protocol.schema import (
    MESSAGE,
    OPAQUE,
    WIDTHS,
    ApiKey,
    Level,
    MessageSchema,
    MetadataType,
    get_api_key,
    get_message,
    get_metadata_type,
    iter_flat_fields,
)
from wirescan.kafka.record_batches.scan import RECORD

SIZED = LengthPrefix(header=4, length_at=0, overhead=4, smallest=(4,))
PORTS = (9092, 9093, 9094)  # of brokers
NO_ROWS = np.empty(0, np.int64)
# Message -> its places that may hold a password, or that prove the knowledge of one.
CREDENTIALS = {
    ("SaslAuthenticate", "request"): ("auth_bytes",),
    ("UserScramCredential", "record"): ("salt", "stored_key", "server_key"),
}
VERSION_SIZE = 2  # bytes of the version before the key or value of a record
KIND_MEANING = "version of the message"
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
    table = FrameTable(table.buffers, rows, table.stops, NAMED_RESPONSES, checked=check)
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


def metadata_records(
    records: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Open the values of kafka.records of a metadata log: kafka.metadata_records.

    The table has dtype METADATA_RECORD (40 bytes a row), and one row for each record.

    records: the records of the topic `__cluster_metadata`, or of one of its snapshots.
    errors: "strict", "mark" or "skip". None, the default: as in `records.errors`.

    Columns, besides those of every table:

        frame_version       i2: 1
        type                i2: see `MetadataType`. A number without a name is a type that is newer
                            than wirescan; such a row has no fault
        version             i2: of the message

    The place is message: the fields of the record. `body` opens them. In a control record, and for
    a number that was not read, the three columns are -1 and the message is null. Column `parent` is
    the row in `records`.

    `check` is accepted for consistency and ignored. Raises FrameError as `errors` says, TypeError
    for another table. Format: Apache Kafka, KIP-631.
    """
    return open_metadata_records(records, METADATA_RECORDS, errors=errors, limits=limits)


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

    messages: a table of kafka.requests, kafka.responses, kafka.records or kafka.metadata_records.
    name: the name of an API ("Fetch"). For records it is the key or the value of an internal topic
        ("OffsetCommit key", "GroupMetadata value", ...), or a type of the records in the metadata
        log ("Topic record", "Partition record", ...); records of other kinds are skipped.
    errors: "strict", "mark" or "skip". None, the default: as in `messages.errors`.
    credentials: include the credentials of clients. Without it, the place auth_bytes of
        SaslAuthenticate requests is null, because it may hold a password. So are the places salt,
        stored_key and server_key of UserScramCredential records.

    Column `parent` is the row in `messages`. For a type of the metadata log, it is the row in the
    table that `metadata_records` returns, which has the same numbers as `messages`. Column `kind`
    is the version. Arrays of structs are opened by their names: `table.open("topics")`. The column
    `topics_count` is the number of structs. It is -1 if the array is null, if the version does not
    have it, if it is in a struct that is null, or if it is a tagged field that the message does not
    have. Any other missing field has its default of api_definitions.py.

    A body that cannot be read to its end is a bad row. An array with a fault has the structs before
    the fault, and one bad row from there on. An array after the fault has one bad row for the whole
    body. With errors="strict" one such body raises FrameError; a note on the error
    names the row in `messages`. "mark" keeps it as a bad row.

    Raises FrameError as `errors` says, ValueError for an unknown name, TypeError for another table.
    """
    dtype = getattr(messages, "dtype", None)
    side = None if dtype is None else SIDES.get(dtype)
    if side is None and dtype in STORED_SIDES:
        name, side = _parse_stored_name(name, STORED_SIDES[dtype])
    if not isinstance(messages, FrameTable) or side is None:
        raise TypeError(
            "body takes a table of kafka.requests, kafka.responses, kafka.records or "
            "kafka.metadata_records"
        )
    if side == "record" and dtype == RECORD:
        errors = resolve_mode(errors, messages, limits)
        # Without the bad rows, `parent` would not be the row in `messages`.
        outer_errors = "mark" if errors == "skip" else errors
        messages = metadata_records(messages, errors=outer_errors, limits=limits)
    return BODIES[get_message(name, side)].read(
        messages, errors=errors, check=check, limits=limits, credentials=credentials
    )


def _parse_stored_name(full_name: str, sides: tuple[str, ...]) -> tuple[str, str]:
    """Return the name and the side of a message in records. sides: the possible ones."""
    name, _, side = full_name.partition(" ")
    if side in sides and (name, side) in MESSAGE:
        return name, side
    names = ", ".join(" ".join(key) for key in MESSAGE if key[1] in sides)
    raise ValueError(
        f"unknown key, value or type of a record: {full_name.strip()!r}; expected one of {names}"
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
    return _match_connections(requests, requests["buffer"], responses, responses["buffer"])


def _label_responses(answers: SentFrames, asked: SentFrames) -> LabelledFrames:
    """Return responses with the columns of their requests."""
    numbers, is_awaited = exchanges.find_requests(asked, answers)
    responses = answers.table
    rows, _ = name_responses(responses.rows, responses.buffers, asked.table.rows, numbers)
    rows["request"][numbers < 0] = -1  # rows of lost bytes have zeros
    return LabelledFrames(rows, numbers, is_awaited)


def _measure_waiting(requests: FrameTable) -> np.ndarray:
    """Return the bytes of each request that are needed for its response: those of its header.

    Requests that get no response have -1.
    """
    headers = requests.rows["body"].astype(np.int64)
    return np.where(expects_response(requests.rows, requests.buffers), headers, -1)


def _match_connections(
    requests: FrameTable,
    request_connections: np.ndarray,
    responses: FrameTable,
    response_connections: np.ndarray,
) -> np.ndarray:
    """Return an int64 array: the row of the request of each response, or -1.

    The arrays have the number of the connection of each row.
    """
    numbers = np.full(len(responses), -1, np.int64)
    awaits_response = expects_response(requests.rows, requests.buffers) & ~requests.bad
    requests_of = dict(iter_groups(request_connections, np.flatnonzero(awaits_response)))
    readable = np.flatnonzero(np.isin(responses["fault"], exchanges.READABLE))
    for connection, answers in iter_groups(response_connections, readable):
        request_rows = requests_of.get(connection, NO_ROWS)
        number = match(
            requests["correlation_id"][request_rows],
            requests["kind"][request_rows] == OPAQUE,
            responses["correlation_id"][answers],
            responses["size"][answers] >= exchanges.HEADER,
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
    if message.side == "response":
        _require_requests(messages, subject)
    chosen, version = _select(messages, message)
    programs = compile_programs(message, message.level)
    is_unknown = (version < 0) | (version > message.versions[-1])
    contexts = select_rows(programs, np.where(is_unknown, len(programs) - 1, version))
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
    hidden = () if credentials else CREDENTIALS.get((message.name, message.side), ())
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


def _require_requests(responses: FrameTable, subject: str) -> None:
    """Raise ValueError for responses without requests, of which no body would be found."""
    good = ~responses.bad
    is_named = responses.format is None or responses.format.requests is None
    if not is_named and good.any() and (responses["request"][good] < 0).all():
        raise ValueError(
            f"{subject} cannot be opened without the requests, because only a request names the "
            "API of its response: pass their table to kafka.responses, or give the option requests "
            "(requests=FILE after the name of the format, --requests FILE on the command line)"
        )


def _select(messages: FrameTable, message: MessageSchema) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that hold a message, and for every row the version of the message."""
    rows = messages.rows
    if message.side == "record":
        # Bad rows whose type was not read have no frame version.
        is_chosen = (rows["type"] == get_metadata_type(message.name)) & (rows["frame_version"] == 1)
        return np.flatnonzero(is_chosen), rows["version"]
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
    contexts = select_rows(programs, np.minimum(rows["kind"], len(programs) - 1))
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
    hidden: tuple[str, ...] = (),
) -> FrameTable:
    """Open structs into a table of a format.

    is_body: the structs are bodies, not elements of an array in a body.
    hidden: places that become null in all rows.
    """
    rows, bad, fault = open_structs(contexts, outer.buffers, spans, counts, format.dtype, limits)
    without_version = is_body & (rows["fault"] == Fault.BAD_VERSION) & (rows["size"] == 0)
    if hidden or without_version.any():
        rows = copy_rows(rows)
        for name, column in format.columns.items():
            if column.unset:
                rows[name][without_version] = column.unset
        for place in hidden:
            rows[place + "_at"] = 0
            rows[place + "_size"] = -1
        rows.flags.writeable = False
    table = raise_if_row_limit(FrameTable(outer.buffers, rows, (), format, outer), fault)
    return enforce_mode(table, errors, bad)


SIDES = {REQUEST: "request", RESPONSE: "response"}
# The dtype of a table -> the sides of the messages that its rows may hold.
STORED_SIDES = {RECORD: ("key", "value", "record"), METADATA_RECORD: ("record",)}
# Side of a message -> the name and the dtype of the rows that hold it.
WITHIN = {
    "request": ("kafka.requests", REQUEST),
    "response": ("kafka.responses", RESPONSE),
    "key": ("kafka.records", RECORD),
    "value": ("kafka.records", RECORD),
    "record": ("kafka.metadata_records", METADATA_RECORD),
}
# Side of a message -> columns around it that every export of the message has.
IDENTIFIED_BY = {"record": ("offset",)}
LEVELS: dict[str, Format] = {}
BODIES: dict[MessageSchema, Format] = {}
ENUMS: dict[str, type[IntEnum]] = {
    "api_key": ApiKey,
    "error_code": ErrorCode,
    "partition_error_code": ErrorCode,
    "topic_config_error_code": ErrorCode,
}
# The numbers that are durations in ms. Others that end with "_ms" are times.
DURATIONS = {
    "heartbeat_interval_ms",
    "max_wait_ms",
    "rebalance_timeout",
    "rebalance_timeout_ms",
    "retention_time_ms",
    "session_lifetime_ms",
    "session_timeout",
    "session_timeout_ms",
    "throttle_time_ms",
    "timeout_ms",
    "transaction_timeout_ms",
}
LONG_TEXTS = ("documentation",)  # texts that do not identify a struct


def _make_formats(
    message: MessageSchema, level: Level, within: str, names: tuple[str, ...] = ()
) -> None:
    """Make the formats of a level and of the levels in it, and add them to LEVELS and BODIES.

    names: the columns that identify the structs of the enclosing levels. Every export has them.
    """
    is_body = level is message.level
    types = {name: field.type for name, field in iter_flat_fields(level.fields)}
    inherited = tuple(name for name in names if name not in types)
    inner_names = inherited
    if not is_body:
        own_names = (
            name
            for name, kind in types.items()
            if kind in ("string", "uuid") and name not in LONG_TEXTS
        )
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
        meanings=_list_meanings(level),
        accepts=(REQUESTS_OPTION,) if message.side == "response" else (),
    )
    if is_body:
        BODIES[message] = LEVELS[level.path]


def _declare_columns(level: Level, inherited: tuple[str, ...]) -> dict[str, Column]:
    """Return what the columns of a level mean, and those of enclosing levels in its exports."""
    columns = {
        name: Column(
            duration="ms" if name in DURATIONS else None,
            names=ENUMS.get(name, {}),
            is_offset=name.endswith("offset"),
            unset=default,
        )
        for name, _, default in level.columns
        if default or name in ENUMS or name in DURATIONS or name.endswith("offset")
    }
    for name, field in iter_flat_fields(level.fields):
        if field.type.startswith("[]") and not field.is_array:
            columns[name] = Column(items=f">i{WIDTHS[field.type[2:]]}")
    return columns | dict.fromkeys(inherited, Column(inherited=True))


def _list_meanings(level: Level) -> dict[str, str]:
    """Return what the columns of a level mean, in words."""
    names = [name for name, _ in iter_flat_fields(level.fields)]
    return {"kind": KIND_MEANING} | {name: find_meaning(level.path, name) for name in names}


for _message in reversed(MESSAGE.values()):
    _make_formats(
        _message, _message.level, WITHIN[_message.side][0], IDENTIFIED_BY.get(_message.side, ())
    )


def _list_body_readers(side: str) -> dict[str, Callable[..., FrameTable]]:
    return {
        message.level.name: BODIES[message].read
        for message in MESSAGE.values()
        if message.side == side
    }


ANSWERS = Conversation(
    ports=PORTS,
    sender="server",
    answers="kafka.requests",
    label=_label_responses,
    measure_waiting=_measure_waiting,
    weigh_after_gap=weigh_responses_alone,
)
RESPONSES = Format(
    "kafka.responses",
    "responses of the protocol, sent by a broker",
    RESPONSE,
    responses,
    children=_list_body_readers("response"),
    columns={"api_key": Column(names=ApiKey), "request": Column(local=True)},
    parser=Parser(scan=scan_responses, spans=scan_response_streams),
    conversation=ANSWERS,
    carried=CarriedFormat(
        "kafka.record_sets",
        "record sets of partitions in Produce requests and Fetch responses, from captures",
        "kafka.batches",
        record_sets.RECORD_SET_COLUMNS,
        record_sets.find_record_sets,
        inherited=("topic", "topic_id", "partition", "api_key"),
        columns={"api_key": Column(names=ApiKey)},
        meanings=MEANINGS["kafka.record_sets"],
    ),
    storage=Storage(
        text_marks=(),
        boundaries=find_boundaries,
        weigh=weigh_responses,
        evidence="they list API versions, or their correlation ids follow each other",
    ),
    display=Display(shown=("_start", "size", "correlation_id")),
    requests="kafka.requests",
    accepts=(REQUESTS_OPTION,),
    meanings=MEANINGS["kafka.responses"],
)
# The format of responses whose requests are known.
NAMED_RESPONSES = replace(RESPONSES, requests=None)
EXCHANGES = ExchangeFormat(
    "kafka.exchanges",
    "requests with their responses, from captures",
    exchanges.EXCHANGE_COLUMNS,
    partial(exchanges.pair_requests, conversation=ANSWERS, named_responses=NAMED_RESPONSES),
    answers="kafka.responses",
    columns={"api_key": Column(names=ApiKey), "error_code": Column(names=ErrorCode)},
    meanings=MEANINGS["kafka.exchanges"],
    grouped_by="api_key",
    find_errors=lambda table: table["error_code"] != 0,
)
REQUESTS = Format(
    "kafka.requests",
    "requests of the protocol, sent by a client",
    REQUEST,
    requests,
    children=_list_body_readers("request"),
    columns={"api_key": Column(names=ApiKey)},
    parser=Parser(scan=scan_requests, spans=scan_request_streams, writes_columns=True),
    conversation=Conversation(
        ports=PORTS, openings=OPENINGS, sender="client", weigh_after_gap=weigh_requests_alone
    ),
    exchange=EXCHANGES,
    storage=Storage(
        text_marks=(),
        boundaries=find_boundaries,
        weigh=weigh_requests,
        evidence="their APIs and versions are known, and their bodies end where their sizes say",
    ),
    display=Display(
        shown=("_start", "size", "correlation_id", "api_key", "api_version", "client_id")
    ),
    meanings=MEANINGS["kafka.requests"],
)
TYPE_NAMES = {-1: "CONTROL_RECORD"} | {member.value: member.name for member in MetadataType}
METADATA_RECORDS = Format(
    "kafka.metadata_records",
    "records of the metadata log of a cluster, __cluster_metadata, and of its snapshots",
    METADATA_RECORD,
    metadata_records,
    within="kafka.records",
    children=_list_body_readers("record"),
    columns={
        "type": Column(names=TYPE_NAMES, unset=-1),
        "version": Column(unset=-1),
        "frame_version": Column(unset=-1),
        "offset": Column(inherited=True),
        "timestamp": Column(inherited=True),
        "is_control": Column(inherited=True),
    },
    display=Display(shown=("offset", "timestamp", "type", "version", "size"), grouped_by="type"),
    meanings=MEANINGS["kafka.metadata_records"],
)
FORMATS = (REQUESTS, RESPONSES, METADATA_RECORDS, *reversed(LEVELS.values()))
