"""The protocol packages that the laws apply to. Each has one `ProtocolPackage`."""

from collections import Counter
from functools import partial

import numpy as np

from tests.reference import kafka as kafka_reference
from tests.reference import (
    kafka_connect_backup,
    kafka_kbak,
    kafka_metadata,
    kafka_protocol,
    kafka_redpanda,
    kafka_resync,
)
from tests.reference import liftbridge as liftbridge_reference
from tests.reference import lumberjack as lumberjack_reference
from tests.reference import nats as nats_reference
from tests.reference import pcap as pcap_reference
from tests.reference import thrift as thrift_reference
from tests.reference import thrift_plain as thrift_plain_reference
from tests.strategies import kafka as kafka_strategies
from tests.strategies import kafka_connect_backup as connect_strategies
from tests.strategies import kafka_kbak as kbak_strategies
from tests.strategies import kafka_metadata as metadata_strategies
from tests.strategies import kafka_protocol as message_strategies
from tests.strategies import kafka_redpanda as redpanda_strategies
from tests.strategies import liftbridge as liftbridge_strategies
from tests.strategies import lumberjack as lumberjack_strategies
from tests.strategies import nats as nats_strategies
from tests.strategies import pcap as pcap_strategies
from tests.strategies import shared as st
from tests.strategies import thrift as thrift_strategies
from tests.support.places import copy_bytes
from wirescan import FrameTable
from wirescan.kafka.encode.records import encode_batch, encode_message_set
from wirescan.kafka.protocol.encode import encode_request, encode_response
from wirescan.kafka.protocol.schema import MESSAGE, WIDTHS
from wirescan.liftbridge.encode import encode_ack, encode_entry, encode_internal, encode_message
from wirescan.lumberjack.encode import encode_batch as encode_window_of
from wirescan.nats.encode import encode_msg, encode_pub
from wirescan.testing import ProtocolPackage
from wirescan.testing.laws import list_rows
from wirescan.thrift.encode import encode_frame, encode_framed
from wirescan.thrift.encode import encode_message as encode_call

KAFKA_NAMES = ("kafka.batches", "kafka.records", "kafka.headers")


def expect_batches(raw, check, resync):
    """Return the tables that the reference reads from Kafka bytes."""
    batches, fault, at = (kafka_resync if resync else kafka_reference).read_batches(raw, check)
    return expect_records(raw, dict(enumerate(batches)), batches, check, KAFKA_NAMES), fault, at


def expect_records(raw, opened, batches, check, names):
    """Return the tables of batches, their records and the headers of these.

    opened: row number -> batch whose records have rows. names: of the three formats.
    """
    records, headers = [], []
    for i, batch in opened.items():
        for row in kafka_reference.list_records(raw, batch, check, parent=i):
            data = kafka_reference.decompress_payload(raw, batch) if row["buffer"] else raw
            headers += [
                (header, data)
                for header in kafka_reference.list_headers(data, row, parent=len(records))
            ]
            records.append((row, data))
    return dict(zip(names, ([(row, raw) for row in batches], records, headers)))


def list_records(headers):
    """Return [(offset, timestamp, key, value, headers)] from a table of kafka.headers."""
    pairs = {}
    for parent, key, value in zip(
        headers["parent"].tolist(),
        *(
            [
                None if (view := headers.bytes(i, name)) is None else bytes(view)
                for i in range(len(headers))
            ]
            for name in ("key", "value")
        ),
    ):
        pairs.setdefault(parent, []).append((key, value))
    out = []
    for i, record in enumerate(headers.outer):
        key, value = (None if view is None else bytes(view) for view in record)
        out.append((record.offset, record.timestamp, key, value, tuple(pairs.get(i, ()))))
    return out


@st.composite
def encoded_records(draw):
    """Encoded bytes, and the records that they hold."""
    raw, rows = b"", []
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            records, call = draw(kafka_strategies.batch_calls())
            raw += encode_batch(records, **call)
        else:
            records, call = draw(kafka_strategies.message_set_calls())
            if (
                call.pop("wrapper_offset", None) is not None
            ):  # of such a set the true offsets are lost
                call["codec"] = "none"
            raw += encode_message_set(records, **call)
        times = [-1 if row.timestamp is None else row.timestamp for row in records]
        if call.get("timestamp_type") == "append":
            if "producer_id" in call or "base_offset" in call:
                times = [call.get("max_timestamp", max(times, default=-1))] * len(times)
            elif call["codec"] != "none":
                times = [max(times)] * len(times)
        rows += [
            (row.offset, time, row.key, row.value, tuple(row.headers))
            for row, time in zip(records, times)
        ]
    return raw, rows


KAFKA = ProtocolPackage(
    formats=("kafka.batches", "kafka.records", "kafka.headers"),
    good=kafka_strategies.logs(),
    tails=kafka_strategies.tails(),
    damaged=kafka_strategies.damaged_logs()
    | st.lists(kafka_strategies.damaged_inside(), min_size=1, max_size=2).map(b"".join),
    written=encoded_records(),
    values=list_records,
    expected=expect_batches,
    children={
        "kafka.records": lambda row: (
            (row["body"], row["size"], row["fault"])
            if (row["record_count"] or row["fault"] or row["size"] > row["body"])
            else None
        ),
        "kafka.headers": lambda row: (
            (row["headers_at"], row["size"], row["fault"])
            if (row["header_count"] or row["fault"])
            else None
        ),
    },
)


# ---- Redpanda

REDPANDA_NAMES = ("kafka.redpanda_batches", "kafka.redpanda_records", "kafka.redpanda_headers")


def holds_records_of_clients(row):
    return row["kind"] == kafka_redpanda.RAFT_DATA or row["fault"]


def expect_redpanda(raw, check, resync):
    """Return the tables that the reference reads from Redpanda's bytes."""
    batches, fault, at = kafka_redpanda.read_batches(raw, check, resync)
    opened = {i: row for i, row in enumerate(batches) if holds_records_of_clients(row)}
    kafka = {i: row | dict(kind=2) for i, row in opened.items()}
    return expect_records(raw, kafka, batches, check, REDPANDA_NAMES), fault, at


REDPANDA = ProtocolPackage(
    formats=REDPANDA_NAMES,
    good=redpanda_strategies.logs(),
    tails=redpanda_strategies.tails(),
    damaged=redpanda_strategies.damaged_logs(),
    written=redpanda_strategies.written(),
    values=list_records,
    expected=expect_redpanda,
    children={
        "kafka.redpanda_records": lambda row: (
            KAFKA.children["kafka.records"](row) if holds_records_of_clients(row) else None
        ),
        "kafka.redpanda_headers": KAFKA.children["kafka.headers"],
    },
)


# ---- Segments of OSO's kafka-backup


def expect_kbak(raw, check, resync):
    """Return the tables that the reference reads from KBAK segments."""
    segments, fault, at = kafka_kbak.read_segments(raw, resync)
    records, headers = [], []
    for i, segment in enumerate(segments):
        rows, data = kafka_kbak.list_records(raw, segment, parent=i)
        for row in rows:
            inside = kafka_kbak.list_headers(data, row, parent=len(records))
            headers += [(header, data) for header in inside]
            records.append((row, data))
    levels = ([(row, raw) for row in segments], records, headers)
    return dict(zip(KBAK_NAMES, levels)), fault, at


def locate_kbak_records(segment):
    """Return where the records of a segment are."""
    start, stop = segment["body"], segment["size"]
    if segment["fault"]:
        return start, stop, segment["fault"]
    stop -= kafka_kbak.FOOTER_SIZE
    has_rows = segment["record_count"] or segment["codec"] or start < stop
    return (start, stop, 0) if has_rows else None


KBAK_NAMES = ("kafka.kbak_segments", "kafka.kbak_records", "kafka.kbak_headers")
KBAK = ProtocolPackage(
    formats=KBAK_NAMES,
    good=kbak_strategies.logs(),
    tails=kbak_strategies.tails(),
    damaged=kbak_strategies.damaged_logs(),
    written=kbak_strategies.written(),
    values=list_records,
    expected=expect_kbak,
    children={
        "kafka.kbak_records": locate_kbak_records,
        "kafka.kbak_headers": KAFKA.children["kafka.headers"],
    },
    sparse=("kafka.kbak_records",),
)


# ---- Segments of itadventurer's kafka-backup


def expect_connect_backup(raw, check, resync):
    """Return the tables that the reference reads from segments of itadventurer's kafka-backup."""
    records, fault, at = kafka_connect_backup.read_records(raw, resync)
    headers = []
    for i, record in enumerate(records):
        headers += [(row, raw) for row in kafka_connect_backup.list_headers(raw, record, parent=i)]
    return dict(zip(CONNECT_NAMES, ([(row, raw) for row in records], headers))), fault, at


CONNECT_NAMES = ("kafka.connect_backup_records", "kafka.connect_backup_headers")
CONNECT_BACKUP = ProtocolPackage(
    formats=CONNECT_NAMES,
    good=connect_strategies.logs(),
    tails=connect_strategies.tails(),
    damaged=connect_strategies.damaged_logs(),
    written=connect_strategies.written(),
    values=list_records,
    expected=expect_connect_backup,
    children={"kafka.connect_backup_headers": KAFKA.children["kafka.headers"]},
)


# ---- Kafka's protocol


def nest_values(values, fields, prefix=""):
    """Convert the flat values of the strategies to the nested values of the encoders."""
    nested = {}
    for field in fields:
        value = values.get(prefix + field.name)
        if field.type == "struct":
            value = nest_values(values, field.fields, f"{prefix}{field.name}_") or None
        elif field.is_array and value is not None:
            value = [nest_values(each, field.fields) for each in value]
        elif field.type[:2] == "[]" and value is not None:
            value = np.frombuffer(value, f">i{WIDTHS[field.type[2:]]}").tolist()
        if value is not None:
            nested[field.name] = value
    return nested


def fill_defaults(read, values):
    """Return the expected values of a row. Fields without a value have their default."""
    expected = {}
    for name, default in read.columns.items():
        field, _, end = name.rpartition("_")
        if end == "size" and field not in read.arrays:
            expected[field] = values.get(field)
        elif end not in ("at", "size", "count"):
            expected[name] = values.get(name, default)
    # A uuid of zeros is none: as a tagged field it is left out.
    return {name: None if value == bytes(16) else value for name, value in expected.items()}


def make_struct_reader(read):
    """Return a function that lists the values of the rows of a table. read: of the reference."""

    def values(table):
        expected = fill_defaults(read, {})
        return [
            fill_defaults(
                read,
                {
                    name: getattr(row, name)
                    if name not in table.places
                    else copy_bytes(table.bytes(i, name))
                    for name in expected
                },
            )
            for i, row in enumerate(table)
        ]

    return values


HIDDEN = {"auth_bytes_at": 0, "auth_bytes_size": -1}  # what logs a client in is not shown


def make_request_package(message, chain):
    """Return the package of one API's requests. chain: levels, the outermost first."""
    api, formats = message.name, tuple(f"kafka.{level.path}" for level in chain)
    read = kafka_protocol.list_formats(api, "request")

    def expected(raw, check, resync):
        rows, fault, at = kafka_protocol.read_requests(raw)
        if resync and fault >= kafka_protocol.BAD_LENGTH:
            rest = dict(start=at, size=len(raw) - at, parent=-1, fault=fault)
            rows.append(
                dict.fromkeys(kafka_protocol.REQUEST, 0) | dict(api_key=-1, api_version=-1) | rest
            )
            fault, at = 0, len(raw)
        levels = {"kafka.requests": rows} | {name: [] for name in read}
        for number, row in enumerate(rows):
            if row["api_key"] == kafka_protocol.API[api]:
                kafka_protocol.read_body(raw, row, api, "request", number, levels)
        for row in levels.get("kafka.sasl_authenticate_request", ()):
            row |= HIDDEN
        return {name: [(row, raw) for row in levels[name]] for name in levels}, fault, at

    @st.composite
    def written(draw):
        raw, structs = b"", []
        for asked in draw(st.lists(message_strategies.requests(api), max_size=2)):
            raw += encode_request(
                api,
                asked.api_version,
                nest_values(asked.values, message.fields),
                correlation_id=asked.correlation_id,
                client_id=asked.client_id,
            )
            inside = [asked.values]
            for level in chain[1:]:
                inside = [one for values in inside for one in values.get(level.name) or ()]
            structs += [values | {"auth_bytes": None} for values in inside]
        return raw, [fill_defaults(read[formats[-1]], values) for values in structs]

    children = {
        formats[0]: lambda row: (
            (0, row["size"], row["fault"]) if row["api_key"] == kafka_protocol.API[api] else None
        )
    }
    children |= {
        name: make_array_locator(level.name) for name, level in zip(formats[1:], chain[1:])
    }
    return ProtocolPackage(
        ("kafka.requests", *formats),
        message_strategies.request_streams(api),
        message_strategies.cut_messages(message_strategies.requests(api)),
        message_strategies.broken_streams(message_strategies.request_streams(api))
        | message_strategies.broken_request_streams(api),
        written(),
        make_struct_reader(read[formats[-1]]),
        expected,
        children,
    )


def make_metadata_package(message, chain):
    """Return the package of one type of metadata record. chain: levels, the outermost first."""
    name, formats = message.name, tuple(f"kafka.{level.path}" for level in chain)
    read = kafka_protocol.list_formats(name, "record")
    number, _ = kafka_metadata.TYPES[name]

    def expected(raw, check, resync):
        levels, fault, at = expect_batches(raw, check, resync)
        batches = [row for row, _ in levels["kafka.batches"]]
        levels["kafka.metadata_records"] = metadata = []
        rows = {level: [] for level in read}
        bytes_of = {level: [] for level in read}
        for i, (record, data) in enumerate(levels["kafka.records"]):
            is_control = batches[record["parent"]]["is_control"]
            row = kafka_protocol.read_metadata_record(data, record, is_control, parent=i)
            metadata.append((row, data))
            kafka_protocol.read_metadata_message(data, row, name, i, rows)
            for level in read:
                bytes_of[level] += [data] * (len(rows[level]) - len(bytes_of[level]))
        levels |= {level: list(zip(rows[level], bytes_of[level])) for level in read}
        for row in rows.get("kafka.user_scram_credential_record", ()):
            for place in ("salt", "stored_key", "server_key"):
                row |= {f"{place}_at": 0, f"{place}_size": -1}
        return levels, fault, at

    @st.composite
    def written(draw):
        pairs = draw(st.lists(metadata_strategies.messages(name), max_size=2))
        raw = encode_batch([{"value": value} for value, _ in pairs]) if pairs else b""
        structs = [values for _, values in pairs]
        for level in chain[1:]:
            structs = [one for values in structs for one in values.get(level.name) or ()]
        if name == "UserScramCredential":
            hidden = dict(salt=None, stored_key=None, server_key=None)
            structs = [values | hidden for values in structs]
        return raw, [fill_defaults(read[formats[-1]], values) for values in structs]

    children = {
        formats[0]: lambda row: (
            (0, row["size"], row["fault"])
            if row["type"] == number and row["frame_version"] == kafka_metadata.FRAME_VERSION
            else None
        )
    }
    children |= {
        name: make_array_locator(level.name) for name, level in zip(formats[1:], chain[1:])
    }
    return ProtocolPackage(
        ("kafka.batches", "kafka.records", "kafka.metadata_records", *formats),
        metadata_strategies.logs(metadata_strategies.good_values(name)),
        metadata_strategies.cut_batches(metadata_strategies.good_values(name)),
        metadata_strategies.damaged_logs(name),
        written(),
        make_struct_reader(read[formats[-1]]),
        expected,
        children | {"kafka.records": KAFKA.children["kafka.records"]},
    )


def make_array_locator(array):
    """Return a function that finds the structs of an array in a row."""

    def span(row):
        at = row[array + "_at"]
        if row["fault"] and not at:
            return 0, row["size"], row["fault"]  # the fault comes before the array
        return (at, at + row[array + "_size"], 0) if row[array + "_count"] > 0 else None

    return span


def list_chains(level):
    """Yield every chain of levels from `level` to an innermost level."""
    for inner in level.arrays:
        for rest in list_chains(inner):
            yield level, *rest
    if not level.arrays:
        yield (level,)


def expect_responses(raw, check, resync):
    """Return the responses that the reference reads without their requests."""
    rows, fault, at = kafka_protocol.read_responses(raw)
    if resync and fault >= kafka_protocol.BAD_LENGTH:
        rows.append(kafka_protocol.RESPONSE | dict(start=at, size=len(raw) - at, fault=fault))
        fault, at = 0, len(raw)
    return {"kafka.responses": [(row, raw) for row in rows]}, fault, at


@st.composite
def encoded_responses(draw):
    raw, numbers = b"", []
    for api in draw(st.lists(st.sampled_from(list(kafka_protocol.API)), max_size=3)):
        response = draw(message_strategies.responses(api))
        raw += encode_response(
            api,
            response.api_version,
            nest_values(response.values, MESSAGE[api, "response"].fields),
            correlation_id=response.correlation_id,
        )
        numbers.append(response.correlation_id)
    return raw, numbers


RESPONSES = ProtocolPackage(
    ("kafka.responses",),
    message_strategies.response_streams(),
    message_strategies.cut_messages(message_strategies.responses("Fetch")),
    message_strategies.broken_streams(message_strategies.response_streams()),
    encoded_responses(),
    lambda table: table["correlation_id"].tolist(),
    expect_responses,
    {},
)


# ---- Lumberjack


def expect_events(raw, check, resync):
    """Return the tables that the reference reads from Lumberjack bytes."""
    rows, fault, at = lumberjack_reference.read_frames(raw, resync)
    events = lumberjack_reference.list_events(
        lumberjack_reference.list_plain_frames(raw, check, resync=resync)
    )
    pairs = [
        (pair, data)
        for i, (event, data) in enumerate(events)
        for pair in lumberjack_reference.list_pairs(event, data, parent=i)
    ]
    return (
        {
            "lumberjack.frames": [(row, raw) for row in rows],
            "lumberjack.events": events,
            "lumberjack.pairs": pairs,
        },
        fault,
        at,
    )


@st.composite
def encoded_events(draw):
    raw, read = b"", []
    for events, call, values in draw(st.lists(lumberjack_strategies.calls(), max_size=3)):
        raw += encode_window_of(events, **call)
        read += values
    return raw, read


def list_events(pairs):
    """Return [(sequence, version, document or None, pairs)] from a table of lumberjack.pairs."""
    events = [(event.sequence, event.version, copy_bytes(event.json), []) for event in pairs.outer]
    for parent, pair in zip(pairs["parent"].tolist(), pairs):
        events[parent][3].append(tuple(copy_bytes(string) for string in pair))
    return [(*event, tuple(inside)) for *event, inside in events]


def locate_events(frame):
    """Return where the events of a frame are."""
    if frame["fault"] or chr(frame["kind"]) in "DJ":
        return 0, frame["size"], frame["fault"]
    return (frame["body"], frame["size"], 0) if chr(frame["kind"]) == "C" else None


LUMBERJACK = ProtocolPackage(
    ("lumberjack.frames", "lumberjack.events", "lumberjack.pairs"),
    lumberjack_strategies.streams(),
    lumberjack_strategies.tails(),
    lumberjack_strategies.damaged_streams(),
    encoded_events(),
    list_events,
    expect_events,
    {
        "lumberjack.events": locate_events,
        "lumberjack.pairs": lambda event: (
            (event["body"], event["size"], event["fault"])
            if (event["count"] or event["fault"])
            else None
        ),
    },
    sparse=("lumberjack.events",),
)


# ---- NATS


def expect_messages(raw, check, resync):
    """Return the tables that the reference reads from NATS bytes."""
    rows, fault, at = nats_reference.read_messages(raw, resync)
    headers = [
        (header, raw)
        for i, row in enumerate(rows)
        for header in nats_reference.read_headers(row, raw, parent=i)
    ]
    return {"nats.messages": [(row, raw) for row in rows], "nats.headers": headers}, fault, at


@st.composite
def encoded_messages(draw):
    """Messages as (subject, sid, reply, payload, headers); header values are stripped."""
    raw, rows = b"", []
    for _ in range(draw(st.integers(0, 3))):
        subject, sid, reply = (
            draw(nats_strategies.PLAIN_WORDS),
            draw(st.none() | nats_strategies.PLAIN_WORDS),
            draw(nats_strategies.PLAIN_OPTIONAL),
        )
        payload = draw(nats_strategies.PAYLOADS)
        pairs = draw(
            st.lists(
                st.tuples(
                    nats_strategies.NAMES, st.sampled_from((b"", b"1", b"a b", b":", b"\xff"))
                ),
                max_size=3,
            )
        )
        raw += (
            encode_pub(subject, payload, reply=reply, headers=pairs)
            if sid is None
            else encode_msg(subject, sid, payload, reply=reply, headers=pairs)
        )
        rows.append((subject, sid, reply, payload, tuple(pairs)))
    return raw, rows


def list_messages(headers):
    """Return [(subject, sid, reply, payload, headers)] from a table of nats.headers."""
    pairs = list_pairs(headers)
    return [
        tuple(copy_bytes(getattr(row, name)) for name in ("subject", "sid", "reply", "payload"))
        + (pairs[i],)
        for i, row in enumerate(headers.outer)
    ]


def list_pairs(headers):
    """Return the headers of each enclosing row, as tuples of pairs."""
    pair_lists = [[] for _ in headers.outer]
    for parent, pair in zip(headers["parent"].tolist(), headers):
        pair_lists[parent].append(tuple(map(copy_bytes, pair)))
    return [tuple(pairs) for pairs in pair_lists]


def locate_pairs(row):
    """Return (None, None, fault) for a row with headers. Their position is not in the row."""
    if row["fault"]:
        return 0, row["size"], row["fault"]
    return (None, None, 0) if row["header_count"] else None


NATS = ProtocolPackage(
    ("nats.messages", "nats.headers"),
    nats_strategies.streams(),
    nats_strategies.tails(),
    nats_strategies.damaged_streams(),
    encoded_messages(),
    list_messages,
    expect_messages,
    {"nats.headers": locate_pairs},
)


# ---- Liftbridge


def expect_payloads(raw, check, resync):
    """Return the tables that the reference reads from NATS bytes with Liftbridge payloads."""
    rows, fault, at = nats_reference.read_messages(raw, resync)
    envelopes = liftbridge_reference.read_envelopes(raw, rows, check)
    messages = liftbridge_reference.read_messages(raw, envelopes)
    levels = {
        "nats.messages": rows,
        "liftbridge.envelopes": envelopes,
        "liftbridge.messages": messages,
        "liftbridge.acks": liftbridge_reference.read_acks(raw, envelopes),
        "liftbridge.internal": liftbridge_reference.read_internal(raw, envelopes),
        "liftbridge.headers": [
            header
            for i, row in enumerate(messages)
            for header in liftbridge_reference.read_headers(raw, row, parent=i)
        ],
    }
    return {name: [(row, raw) for row in rows] for name, rows in levels.items()}, fault, at


def expect_entries(raw, check, resync):
    rows, fault, at = liftbridge_reference.read_entries(raw, check, resync)
    return {"liftbridge.entries": [(row, raw) for row in rows]}, fault, at


@st.composite
def encoded_payloads(draw, encode, drawn):
    """Encoded payloads in NATS messages, and their fields."""
    raw, rows = b"", []
    for fields in draw(st.lists(drawn, max_size=3)):
        raw += encode_pub(b"s", encode(crc=draw(st.booleans()), **fields))
        rows.append(fields)
    return raw, rows


def make_field_reader(columns):
    """Return a function that lists the encoded fields of each row of a table."""

    def fields(table):
        inner = table if table.name != "liftbridge.headers" else table.outer
        rows = [
            {
                name: copy_bytes(getattr(row, name))
                if name in inner.places
                else int(getattr(row, name))
                for name in columns
            }
            for row in inner
        ]
        if inner is not table:
            for row, pairs in zip(rows, list_pairs(table)):
                row["headers"] = list(pairs)
        return rows

    return fields


def locate_payload(message):
    """Return where the payload of a published or delivered message is."""
    if message["fault"]:
        return 0, message["size"], message["fault"]
    begin = message["payload_at"]
    return (begin, begin + message["payload_size"], 0) if message["kind"] in (3, 4, 7, 8) else None


def make_body_locator(*kinds):
    def locate_body(row):
        is_selected = row["kind"] in kinds or liftbridge_reference.is_of_any_kind(row)
        return (row["body"], row["size"], row["fault"]) if is_selected else None

    return locate_body


def make_payload_package(payloads, written, columns, *inside):
    """Return the package of NATS messages with some kinds of payloads."""
    captures = liftbridge_strategies.captures(payloads)
    return ProtocolPackage(
        ("nats.messages", "liftbridge.envelopes", *inside),
        captures,
        liftbridge_strategies.tails(captures),
        liftbridge_strategies.damaged_captures(),
        written,
        make_field_reader(columns),
        expect_payloads,
        {
            "liftbridge.envelopes": locate_payload,
            "liftbridge.messages": make_body_locator(0, 254, 255),
            "liftbridge.acks": make_body_locator(1),
            "liftbridge.internal": make_body_locator(*range(2, 15)),
            "liftbridge.headers": locate_pairs,
        },
        sparse=("liftbridge.headers",),
    )


@st.composite
def encoded_entries(draw):
    raw, rows = b"", []
    for row in draw(
        st.lists(
            st.tuples(
                st.integers(0, 2**63 - 1),
                liftbridge_strategies.BITS_64,
                st.integers(0, 2**64 - 1),
                liftbridge_strategies.OPTIONAL,
                liftbridge_strategies.VALUES,
                st.lists(
                    st.tuples(liftbridge_strategies.STRINGS, liftbridge_strategies.OPTIONAL),
                    max_size=3,
                ).map(tuple),
            ),
            max_size=3,
        )
    ):
        raw += encode_entry(*row)
        rows.append(row)
    return raw, rows


def list_entries(entries):
    return [
        (
            row.offset,
            row.timestamp,
            row.leader_epoch,
            copy_bytes(row.key),
            copy_bytes(row.value),
            tuple(tuple(map(copy_bytes, pair)) for pair in row.headers),
        )
        for row in entries
    ]


TEXT, NUMBER = liftbridge_strategies.OPTIONAL, liftbridge_strategies.BITS_64
WRITTEN = {
    "message": dict(
        value=TEXT,
        key=TEXT,
        offset=NUMBER,
        timestamp=NUMBER,
        stream=TEXT,
        partition=liftbridge_strategies.BITS_32,
        subject=TEXT,
        reply_subject=TEXT,
        ack_inbox=TEXT,
        correlation_id=TEXT,
        ack_policy=st.integers(0, 2),
    ),
    "ack": dict(
        stream=TEXT,
        partition_subject=TEXT,
        msg_subject=TEXT,
        offset=NUMBER,
        ack_inbox=TEXT,
        correlation_id=TEXT,
        ack_policy=st.integers(0, 2),
        reception_timestamp=NUMBER,
        commit_timestamp=NUMBER,
        ack_error=st.integers(0, 4),
    ),
    "internal": dict(stream=TEXT, partition=liftbridge_strategies.BITS_32),
}
HEADERS = st.lists(
    st.tuples(liftbridge_strategies.STRINGS.filter(len), liftbridge_strategies.OPTIONAL), max_size=3
)
LIFTBRIDGE = make_payload_package(
    liftbridge_strategies.payloads(),
    encoded_payloads(
        encode_message, st.fixed_dictionaries(WRITTEN["message"] | {"headers": HEADERS})
    ),
    list(WRITTEN["message"]),
    "liftbridge.messages",
    "liftbridge.headers",
)
ACKS = make_payload_package(
    liftbridge_strategies.payloads(),
    encoded_payloads(encode_ack, st.fixed_dictionaries(WRITTEN["ack"])),
    list(WRITTEN["ack"]),
    "liftbridge.acks",
)
INTERNAL = make_payload_package(
    liftbridge_strategies.internals(),
    encoded_payloads(partial(encode_internal, 12), st.fixed_dictionaries(WRITTEN["internal"])),
    list(WRITTEN["internal"]),
    "liftbridge.internal",
)
ENTRIES = ProtocolPackage(
    ("liftbridge.entries",),
    liftbridge_strategies.logs(),
    liftbridge_strategies.log_tails(),
    liftbridge_strategies.damaged_logs(),
    encoded_entries(),
    list_entries,
    expect_entries,
    {},
)


# ---- Thrift


def expect_calls(raw, check, resync):
    """Return the tables that the reference reads from Thrift bytes."""
    rows, fault, at = thrift_reference.read_frames(raw, resync)
    messages = thrift_plain_reference.read_messages(raw, rows, check)
    plain = [
        plain_row
        for i, row in enumerate(rows)
        if (plain_row := thrift_plain_reference.read_plain(raw, row, check, parent=i))
    ]
    return (
        {
            "thrift.frames": [(row, raw) for row in rows],
            "thrift.plain": plain,
            "thrift.messages": messages,
            "thrift.fields": thrift_plain_reference.read_all_fields(messages),
            "thrift.infos": [
                (info, raw)
                for i, row in enumerate(rows)
                for info in thrift_reference.read_infos(raw, row, i)
            ],
        },
        fault,
        at,
    )


@st.composite
def encoded_calls(draw):
    """Encoded frames, and their calls in the form of `list_calls`."""
    raw, said = b"", []
    for _ in range(draw(st.integers(0, 3))):
        version, kind = draw(thrift_strategies.VERSIONS), draw(st.integers(1, 4))
        method, service = (
            draw(thrift_strategies.METHODS.filter(lambda name: b":" not in name)),
            draw(st.none() | st.just(b"S")),
        )
        service = service if kind in (1, 4) else None
        fields, seqid = (
            draw(thrift_strategies.structs(version)),
            draw(thrift_strategies.SCALARS[thrift_strategies.I32]),
        )
        frame = encode_call(
            method,
            kind,
            seqid,
            thrift_strategies.make_struct(fields, version),
            service=service,
            **dict(protocol="compact", version=version) if version else {},
        )
        call = dict(
            protocol_id=thrift_strategies.COMPACT if version else thrift_strategies.BINARY,
            flags=draw(thrift_strategies.U16),
            seq=draw(thrift_strategies.U32),
            transforms=draw(thrift_strategies.TRANSFORMS),
            infos=draw(thrift_strategies.PAIRS),
            persistent=draw(thrift_strategies.PAIRS),
            padding=draw(st.sampled_from(("0-3", "1-4"))),
            infos_order=draw(st.sampled_from(("normal", "persistent"))),
            big=draw(st.booleans()),
        )
        raw += draw(st.sampled_from((encode_frame(frame, **call), encode_framed(frame), frame)))
        said.append(
            (method, service, kind, seqid, tuple(thrift_strategies.list_field_rows(fields)))
        )
    return raw, said


def list_calls(table):
    """Return [(method, service, type, seqid, fields)] from a table of thrift.fields."""
    inside = [[] for _ in table.outer]
    for row in table:
        value = (
            row.real
            if row.kind in (thrift_strategies.DOUBLE, thrift_strategies.FLOAT)
            else row.integer
        )
        strings = (
            copy_bytes(row.value)
            if row.kind in (thrift_strategies.STRING, thrift_strategies.UUID)
            else None
        )
        inside[row.parent].append(
            (row.depth, row.role, row.id, row.kind, row.count, value, strings)
        )
    return [
        (copy_bytes(row.method), copy_bytes(row.service), row.kind, row.seqid, tuple(inside[i]))
        for i, row in enumerate(table.outer)
    ]


@st.composite
def encoded_infos(draw):
    raw, rows = b"", []
    for normal, persistent, order in draw(
        st.lists(
            st.tuples(
                thrift_strategies.PAIRS,
                thrift_strategies.PAIRS,
                st.sampled_from(("normal", "persistent")),
            ),
            max_size=3,
        )
    ):
        raw += encode_frame(
            thrift_strategies.make_message(), infos=normal, persistent=persistent, infos_order=order
        )
        blocks = [(1, pair) for pair in normal], [(2, pair) for pair in persistent]
        rows += sum(blocks if order == "normal" else reversed(blocks), [])
    return raw, rows


def list_infos(table):
    return [(row.kind, tuple(map(copy_bytes, row))) for row in table]


@st.composite
def encoded_frame_payloads(draw):
    raw, rows = b"", []
    for payload, ids in draw(
        st.lists(st.tuples(st.binary(max_size=60), thrift_strategies.TRANSFORMS), max_size=3)
    ):
        raw += encode_frame(payload, transforms=ids, big=draw(st.booleans()))
        rows.append(payload)
    return raw, rows


def locate_sent_payload(row):
    """Return where the payload of an untransformed frame is."""
    if row["fault"] and row["fault"] != thrift_reference.BAD_CODEC:
        return 0, row["size"], row["fault"]
    if row["payload_size"] < 0:
        return None
    return row["payload_at"], row["payload_at"] + row["payload_size"], row["fault"]


def locate_messages(row):
    return locate_sent_payload(row) if row["payload_size"] or row["fault"] else None


def locate_infos(row):
    if row["fault"] and row["fault"] != thrift_reference.BAD_CODEC:
        return 0, row["size"], row["fault"]
    return (None, None, 0) if row["info_count"] else None


def locate_fields(row):
    return (0, row["size"], row["fault"]) if row["fault"] else (None, None, 0)


def rows_enclose_one_another(table: FrameTable) -> None:
    """Values inside another value follow it in wire order, one level deeper."""
    if "enclosing" not in table.dtype.names:
        return
    rows = list_rows(table)
    stops = {}  # {enclosing row: stop of the last row inside it so far}
    for i, row in enumerate(rows):
        enclosing = row["enclosing"]
        assert row["kind"] or row["fault"]
        if enclosing < 0:
            continue
        outer = rows[enclosing]
        assert enclosing < i
        assert outer["parent"] == row["parent"]
        assert outer["buffer"] == row["buffer"]
        assert row["depth"] == outer["depth"] + 1
        assert stops.get(enclosing, outer["start"] + outer["value_at"]) <= row["start"]
        stops[enclosing] = row["start"] + row["size"]
        assert stops[enclosing] <= outer["start"] + outer["size"]
    counts = Counter(row["enclosing"] for row in rows if row["kind"])
    for i, row in enumerate(rows):
        if row["count"] and not row["fault"] and i in counts:
            values_per_element = 2 if row.get("key_type") else 1
            assert counts[i] == row["count"] * values_per_element


def make_thrift_package(written, values, *inside):
    return ProtocolPackage(
        ("thrift.frames", *inside),
        thrift_strategies.streams(),
        thrift_strategies.tails(),
        thrift_strategies.damaged_streams(),
        written,
        values,
        expect_calls,
        {
            "thrift.plain": locate_sent_payload,
            "thrift.messages": locate_messages,
            "thrift.infos": locate_infos,
            "thrift.fields": locate_fields,
        },
        # A payload may be empty once its transforms are undone.
        sparse=("thrift.infos", "thrift.messages", "thrift.fields"),
        check_table=rows_enclose_one_another,
    )


THRIFT = make_thrift_package(encoded_calls(), list_calls, "thrift.messages", "thrift.fields")
INFOS = make_thrift_package(encoded_infos(), list_infos, "thrift.infos")
PLAIN = make_thrift_package(
    encoded_frame_payloads(),
    lambda table: [copy_bytes(row.payload) for row in table],
    "thrift.plain",
)


# ---- Captures


def expect_packets(raw, check, resync):
    """Return the tables that the reference reads from captures."""
    rows, fault, at = pcap_reference.read_blocks(raw, resync)
    packets = pcap_reference.read_packets(raw, rows)
    levels = {"pcap.blocks": rows, "pcap.packets": packets}
    return {name: [(row, raw) for row in rows] for name, rows in levels.items()}, fault, at


def list_packets(packets):
    """Return [(time, length, interface, link, data, comment)] from a table of pcap.packets."""
    comments = [copy_bytes(row.comment) for row in packets.outer]
    return [
        (
            row.time,
            row.length,
            row.interface,
            row.link,
            bytes(packets.frame(i)),
            comments[row.parent],
        )
        for i, row in enumerate(packets)
    ]


def locate_packet(block):
    """Return where the packet of a block is."""
    if block["fault"]:
        return 0, block["size"], block["fault"]
    if block["kind"] != pcap_reference.PACKET_KIND:
        return None
    return block["data_at"], block["data_at"] + block["data_size"], 0


PCAP = ProtocolPackage(
    ("pcap.blocks", "pcap.packets"),
    pcap_strategies.streams(),
    pcap_strategies.tails(),
    pcap_strategies.damaged_streams(),
    pcap_strategies.written(),
    list_packets,
    expect_packets,
    {"pcap.packets": locate_packet},
    sparse=("pcap.packets",),
)

PACKAGES = {
    "kafka": KAFKA,
    "redpanda": REDPANDA,
    "kbak": KBAK,
    "connect-backup": CONNECT_BACKUP,
    "kafka.responses": RESPONSES,
    "lumberjack": LUMBERJACK,
    "nats": NATS,
    "liftbridge": LIFTBRIDGE,
    "liftbridge.acks": ACKS,
    "liftbridge.internal": INTERNAL,
    "liftbridge.entries": ENTRIES,
    "thrift": THRIFT,
    "thrift.infos": INFOS,
    "thrift.plain": PLAIN,
    "pcap": PCAP,
} | {
    f"kafka.{chain[-1].path}": make_request_package(message, chain)
    for message in MESSAGE.values()
    if message.side == "request"
    for chain in list_chains(message.level)
}
PACKAGES |= {
    f"metadata {chain[-1].path}": make_metadata_package(message, chain)
    for message in MESSAGE.values()
    if message.side == "record"
    for chain in list_chains(message.level)
}
