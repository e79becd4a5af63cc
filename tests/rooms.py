"""The rooms that the laws are run for: one entry each."""
from functools import partial

import numpy as np
from strategies import shared as st

from laws import Room
from reference import kafka as reference
from reference import kafka_protocol, kafka_resync
from reference import liftbridge as lifted
from reference import lumberjack as beats
from reference import nats as wires
from reference import thrift as calls
from reference import thrift_plain as called
from strategies import kafka as strategies
from strategies import kafka_protocol as messages
from strategies import liftbridge as carried
from strategies import lumberjack as sent
from strategies import nats as wired
from strategies import thrift as spoken
from wirescan.kafka.compose import encode_request, encode_response
from wirescan.kafka.encode import encode_batch, encode_message_set
from wirescan.kafka.schema import MESSAGE, WIDTHS
from wirescan.liftbridge.encode import encode_ack, encode_entry, encode_internal, encode_message
from wirescan.lumberjack.encode import encode_batch as encode_window_of
from wirescan.nats.encode import encode_msg, encode_pub
from wirescan.thrift.encode import encode_frame, encode_framed
from wirescan.thrift.encode import encode_message as encode_call


def expect(raw, check, resync):
    """What tests/reference says of Kafka bytes."""
    batches, fault, at = (kafka_resync if resync else reference).batches(raw, check)
    records, headers = [], []
    for i, batch in enumerate(batches):
        for row in reference.records(raw, batch, check, parent=i):
            data = reference.payload(raw, batch) if row["buffer"] else raw
            headers += [(header, data) for header in reference.headers(data, row, parent=len(records))]
            records.append((row, data))
    return {"kafka.batches": [(row, raw) for row in batches], "kafka.records": records,
            "kafka.headers": headers}, fault, at


def values(headers):
    """[(offset, timestamp, key, value, headers)] of a table of kafka.headers."""
    pairs = {}
    for parent, key, value in zip(headers["parent"].tolist(), *(
            [None if (view := headers.bytes(i, name)) is None else bytes(view) for i in range(len(headers))]
            for name in ("key", "value"))):
        pairs.setdefault(parent, []).append((key, value))
    out = []
    for i, record in enumerate(headers.outer):
        key, value = (None if view is None else bytes(view) for view in record)
        out.append((record.offset, record.timestamp, key, value, tuple(pairs.get(i, ()))))
    return out


@st.composite
def written(draw):
    """Bytes of the encoders, and the records that they were given."""
    raw, rows = b"", []
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            given, call = draw(strategies.batch_calls())
            raw += encode_batch(given, **call)
        else:
            given, call = draw(strategies.message_set_calls())
            if call.pop("wrapper_offset", None) is not None:      # of such a set the true offsets are lost
                call["codec"] = "none"
            raw += encode_message_set(given, **call)
        times = [-1 if row.timestamp is None else row.timestamp for row in given]
        if call.get("timestamp_type") == "append":
            if "producer_id" in call or "base_offset" in call:
                times = [call.get("max_timestamp", max(times, default=-1))] * len(times)
            elif call["codec"] != "none":
                times = [max(times)] * len(times)
        rows += [(row.offset, time, row.key, row.value, tuple(row.headers)) for row, time in zip(given, times)]
    return raw, rows


KAFKA = Room(
    formats=("kafka.batches", "kafka.records", "kafka.headers"),
    good=strategies.logs(), tails=strategies.tails(), damaged=strategies.damaged_logs()
    | st.lists(strategies.damaged_inside(), min_size=1, max_size=2).map(b"".join),
    written=written(), values=values, expected=expect,
    children={
        "kafka.records": lambda row: (row["body"], row["size"], row["fault"]) if (
            row["record_count"] or row["fault"] or row["size"] > row["body"]) else None,
        "kafka.headers": lambda row: (row["headers_at"], row["size"], row["fault"]) if (
            row["header_count"] or row["fault"]) else None,
    })


# ---------------------------------------------------------------------------------------- Kafka's protocol

def nested(values, fields, prefix=""):
    """Values of the strategies as the encoders take them."""
    found = {}
    for one in fields:
        value = values.get(prefix + one.name)
        if one.type == "struct":
            value = nested(values, one.fields, f"{prefix}{one.name}_") or None
        elif one.is_array and value is not None:
            value = [nested(each, one.fields) for each in value]
        elif one.type[:2] == "[]" and value is not None:
            value = np.frombuffer(value, f">i{WIDTHS[one.type[2:]]}").tolist()
        if value is not None:
            found[one.name] = value
    return found


def given(read, values):
    """What a row has to say of the values of its struct; those that are not given have their default."""
    found = {}
    for name, default in read.columns.items():
        field, _, end = name.rpartition("_")
        if end == "size" and field not in read.arrays:
            found[field] = values.get(field)
        elif end not in ("at", "size", "count"):
            found[name] = values.get(name, default)
    # A uuid of zeros is none: as a tagged field it is left out.
    return {name: None if value == bytes(16) else value for name, value in found.items()}


def room_of_requests(message, chain):
    """Requests of one API, and of arrays in them the chain from the outermost level to an innermost one."""
    api, formats = message.name, tuple(f"kafka.{level.path}" for level in chain)
    read = kafka_protocol.formats(api, "request")

    def expected(raw, check, resync):
        rows, fault, at = kafka_protocol.requests(raw)
        if resync and fault >= kafka_protocol.BAD_LENGTH:
            rest = dict(start=at, size=len(raw) - at, parent=-1, fault=fault)
            rows.append(dict.fromkeys(kafka_protocol.REQUEST, 0) | dict(api_key=-1, api_version=-1) | rest)
            fault, at = 0, len(raw)
        levels = {"kafka.requests": rows} | {name: [] for name in read}
        for number, row in enumerate(rows):
            if row["api_key"] == kafka_protocol.API[api]:
                kafka_protocol.body(raw, row, api, "request", number, levels)
        return {name: [(row, raw) for row in levels[name]] for name in levels}, fault, at

    @st.composite
    def written(draw):
        raw, structs = b"", []
        for asked in draw(st.lists(messages.requests(api), max_size=2)):
            raw += encode_request(api, asked.api_version, nested(asked.values, message.fields),
                                  correlation_id=asked.correlation_id, client_id=asked.client_id)
            inside = [asked.values]
            for level in chain[1:]:
                inside = [one for values in inside for one in values.get(level.name) or ()]
            structs += inside
        return raw, [given(read[formats[-1]], values) for values in structs]

    def values(table):
        found = given(read[formats[-1]], {})
        return [given(read[formats[-1]], {name: getattr(row, name) if name not in table.places else as_bytes(
            table.bytes(i, name)) for name in found}) for i, row in enumerate(table)]

    children = {formats[0]: lambda row: (0, row["size"], row["fault"])
                if row["api_key"] == kafka_protocol.API[api] else None}
    children |= {name: inside(level.name) for name, level in zip(formats[1:], chain[1:])}
    return Room(("kafka.requests", *formats), messages.sent(api), messages.cut(messages.requests(api)),
                messages.broken(messages.sent(api)) | messages.broken_alike(api), written(), values, expected, children)


def as_bytes(view):
    return None if view is None else bytes(view)


def inside(array):
    """Where in a row the structs of an array are."""
    def span(row):
        at = row[array + "_at"]
        if row["fault"] and not at:
            return 0, row["size"], row["fault"]         # the fault comes before the array
        return (at, at + row[array + "_size"], 0) if row[array + "_count"] > 0 else None
    return span


def chains(level):
    """Every way from a level to an innermost one."""
    for inner in level.arrays:
        for rest in chains(inner):
            yield level, *rest
    if not level.arrays:
        yield level,


def expect_responses(raw, check, resync):
    """Of responses alone: what they answer is not known."""
    rows, fault, at = kafka_protocol.responses(raw)
    if resync and fault >= kafka_protocol.BAD_LENGTH:
        rows.append(kafka_protocol.RESPONSE | dict(start=at, size=len(raw) - at, fault=fault))
        fault, at = 0, len(raw)
    return {"kafka.responses": [(row, raw) for row in rows]}, fault, at


@st.composite
def written_responses(draw):
    raw, numbers = b"", []
    for api in draw(st.lists(st.sampled_from(list(kafka_protocol.API)), max_size=3)):
        one = draw(messages.responses(api))
        raw += encode_response(api, one.api_version, nested(one.values, MESSAGE[api, "response"].fields),
                               correlation_id=one.correlation_id)
        numbers.append(one.correlation_id)
    return raw, numbers


RESPONSES = Room(
    ("kafka.responses",), messages.received(), messages.cut(messages.responses("Fetch")),
    messages.broken(messages.received()), written_responses(), lambda table: table["correlation_id"].tolist(),
    expect_responses, {})


# ---------------------------------------------------------------------------------------- Lumberjack

def expect_events(raw, check, resync):
    """What tests/reference says of Lumberjack bytes."""
    rows, fault, at = beats.frames(raw, resync)
    events = beats.events(beats.plain(raw, check, resync=resync))
    pairs = [(pair, data) for i, (event, data) in enumerate(events) for pair in beats.pairs(event, data, parent=i)]
    return {"lumberjack.frames": [(row, raw) for row in rows], "lumberjack.events": events,
            "lumberjack.pairs": pairs}, fault, at


@st.composite
def written_events(draw):
    raw, read = b"", []
    for events, call, values in draw(st.lists(sent.calls(), max_size=3)):
        raw += encode_window_of(events, **call)
        read += values
    return raw, read


def events_of(pairs):
    """[(sequence, version, document or None, pairs)] of a table of lumberjack.pairs."""
    found = [(event.sequence, event.version, as_bytes(event.json), []) for event in pairs.outer]
    for parent, pair in zip(pairs["parent"].tolist(), pairs):
        found[parent][3].append(tuple(as_bytes(string) for string in pair))
    return [(*event, tuple(inside)) for *event, inside in found]


def events_in(frame):
    """Where the events of a frame are."""
    if frame["fault"] or chr(frame["kind"]) in "DJ":
        return 0, frame["size"], frame["fault"]
    return (frame["body"], frame["size"], 0) if chr(frame["kind"]) == "C" else None


LUMBERJACK = Room(
    ("lumberjack.frames", "lumberjack.events", "lumberjack.pairs"), sent.streams(), sent.tails(),
    sent.damaged_streams(), written_events(), events_of, expect_events,
    {"lumberjack.events": events_in,
     "lumberjack.pairs": lambda event: (event["body"], event["size"], event["fault"]) if (
         event["count"] or event["fault"]) else None},
    sparse=("lumberjack.events",))


# ---------------------------------------------------------------------------------------- NATS

def expect_lines(raw, check, resync):
    """What tests/reference says of NATS bytes."""
    rows, fault, at = wires.messages(raw, resync)
    headers = [(header, raw) for i, row in enumerate(rows) for header in wires.headers(row, raw, parent=i)]
    return {"nats.messages": [(row, raw) for row in rows], "nats.headers": headers}, fault, at


@st.composite
def written_lines(draw):
    """Messages of the encoders, as (subject, sid, reply, payload, headers); blanks around a header's value are none."""
    raw, rows = b"", []
    for _ in range(draw(st.integers(0, 3))):
        subject, sid, reply = draw(wired.PLAIN_WORDS), draw(st.none() | wired.PLAIN_WORDS), draw(wired.PLAIN_OPTIONAL)
        payload = draw(wired.PAYLOADS)
        pairs = draw(st.lists(st.tuples(wired.NAMES, st.sampled_from((b"", b"1", b"a b", b":", b"\xff"))), max_size=3))
        raw += encode_pub(subject, payload, reply=reply, headers=pairs) if sid is None else encode_msg(
            subject, sid, payload, reply=reply, headers=pairs)
        rows.append((subject, sid, reply, payload, tuple(pairs)))
    return raw, rows


def lines_of(headers):
    """[(subject, sid, reply, payload, headers)] of a table of nats.headers."""
    pairs = pairs_of(headers)
    return [tuple(as_bytes(getattr(row, name)) for name in ("subject", "sid", "reply", "payload")) + (pairs[i],)
            for i, row in enumerate(headers.outer)]


def pairs_of(headers):
    """Of each row around a table of headers a tuple of its pairs."""
    found = [[] for _ in headers.outer]
    for parent, pair in zip(headers["parent"].tolist(), headers):
        found[parent].append(tuple(map(as_bytes, pair)))
    return [tuple(pairs) for pairs in found]


def pairs_in(row):
    """Where the headers of a row are; between what, it does not tell."""
    if row["fault"]:
        return 0, row["size"], row["fault"]
    return (None, None, 0) if row["header_count"] else None


NATS = Room(
    ("nats.messages", "nats.headers"), wired.streams(), wired.tails(), wired.damaged_streams(), written_lines(),
    lines_of, expect_lines, {"nats.headers": pairs_in})


# ---------------------------------------------------------------------------------------- Liftbridge

def expect_carried(raw, check, resync):
    """What tests/reference says of NATS bytes whose payloads are Liftbridge's."""
    rows, fault, at = wires.messages(raw, resync)
    envelopes = lifted.envelopes(raw, rows, check)
    messages = lifted.messages(raw, envelopes)
    levels = {
        "nats.messages": rows, "liftbridge.envelopes": envelopes, "liftbridge.messages": messages,
        "liftbridge.acks": lifted.acks(raw, envelopes), "liftbridge.internal": lifted.internal(raw, envelopes),
        "liftbridge.headers": [one for i, row in enumerate(messages) for one in lifted.headers(raw, row, parent=i)]}
    return {name: [(row, raw) for row in rows] for name, rows in levels.items()}, fault, at


def expect_entries(raw, check, resync):
    rows, fault, at = lifted.entries(raw, check, resync)
    return {"liftbridge.entries": [(row, raw) for row in rows]}, fault, at


@st.composite
def written_payloads(draw, encode, drawn):
    """Payloads of an encoder in NATS messages, and the fields that it was given."""
    raw, rows = b"", []
    for fields in draw(st.lists(drawn, max_size=3)):
        raw += encode_pub(b"s", encode(crc=draw(st.booleans()), **fields))
        rows.append(fields)
    return raw, rows


def fields_of(columns):
    """Function of a table: of each row the fields that were given to an encoder; those that were not have 0."""
    def fields(table):
        inner = table if table.name != "liftbridge.headers" else table.outer
        found = [{name: as_bytes(getattr(row, name)) if name in inner.places else int(getattr(row, name))
                  for name in columns} for row in inner]
        if inner is not table:
            for row, pairs in zip(found, pairs_of(table)):
                row["headers"] = list(pairs)
        return found
    return fields


def payload_in(message):
    """Where the payload of a message is; of all that are not published or delivered there is none."""
    if message["fault"]:
        return 0, message["size"], message["fault"]
    begin = message["payload_at"]
    return (begin, begin + message["payload_size"], 0) if message["kind"] in (3, 4, 7, 8) else None


def body_of(*kinds):
    return lambda row: (row["body"], row["size"], row["fault"]) if row["kind"] in kinds else None


def room_of_payloads(payloads, written, columns, *inside):
    """Captures that carry some kinds of payloads, and what is read of these."""
    captures = carried.captures(payloads)
    return Room(
        ("nats.messages", "liftbridge.envelopes", *inside), captures, carried.tails(captures),
        carried.damaged_captures(), written, fields_of(columns), expect_carried,
        {"liftbridge.envelopes": payload_in, "liftbridge.messages": body_of(0, 254, 255),
         "liftbridge.acks": body_of(1), "liftbridge.internal": body_of(*range(2, 15)),
         "liftbridge.headers": pairs_in}, sparse=("liftbridge.headers",))


@st.composite
def written_entries(draw):
    raw, rows = b"", []
    for row in draw(st.lists(st.tuples(
            st.integers(0, 2**63 - 1), carried.BITS_64, st.integers(0, 2**64 - 1), carried.OPTIONAL, carried.VALUES,
            st.lists(st.tuples(carried.STRINGS, carried.OPTIONAL), max_size=3).map(tuple)), max_size=3)):
        raw += encode_entry(*row)
        rows.append(row)
    return raw, rows


def records_of(entries):
    return [(row.offset, row.timestamp, row.leader_epoch, as_bytes(row.key), as_bytes(row.value),
             tuple(tuple(map(as_bytes, pair)) for pair in row.headers)) for row in entries]


TEXT, NUMBER = carried.OPTIONAL, carried.BITS_64
WRITTEN = {
    "message": dict(
        value=TEXT, key=TEXT, offset=NUMBER, timestamp=NUMBER, stream=TEXT, partition=carried.BITS_32, subject=TEXT,
        reply_subject=TEXT, ack_inbox=TEXT, correlation_id=TEXT, ack_policy=st.integers(0, 2)),
    "ack": dict(
        stream=TEXT, partition_subject=TEXT, msg_subject=TEXT, offset=NUMBER, ack_inbox=TEXT, correlation_id=TEXT,
        ack_policy=st.integers(0, 2), reception_timestamp=NUMBER, commit_timestamp=NUMBER, ack_error=st.integers(0, 4)),
    "internal": dict(stream=TEXT, partition=carried.BITS_32)}
HEADERS = st.lists(st.tuples(carried.STRINGS.filter(len), carried.OPTIONAL), max_size=3)
LIFTBRIDGE = room_of_payloads(
    carried.payloads(),
    written_payloads(encode_message, st.fixed_dictionaries(WRITTEN["message"] | {"headers": HEADERS})),
    list(WRITTEN["message"]), "liftbridge.messages", "liftbridge.headers")
ACKS = room_of_payloads(
    carried.payloads(), written_payloads(encode_ack, st.fixed_dictionaries(WRITTEN["ack"])), list(WRITTEN["ack"]),
    "liftbridge.acks")
INTERNAL = room_of_payloads(
    carried.internals(), written_payloads(partial(encode_internal, 12), st.fixed_dictionaries(WRITTEN["internal"])),
    list(WRITTEN["internal"]), "liftbridge.internal")
ENTRIES = Room(
    ("liftbridge.entries",), carried.logs(), carried.log_tails(), carried.damaged_logs(), written_entries(), records_of,
    expect_entries, {})


# ---------------------------------------------------------------------------------------- Thrift

def expect_calls(raw, check, resync):
    """What tests/reference says of Thrift bytes."""
    rows, fault, at = calls.frames(raw, resync)
    messages = called.messages(raw, rows, check)
    plain = [found for i, row in enumerate(rows) if (found := called.plain(raw, row, check, parent=i))]
    return {"thrift.frames": [(row, raw) for row in rows], "thrift.plain": plain, "thrift.messages": messages,
            "thrift.fields": called.all_fields(messages),
            "thrift.infos": [(info, raw) for i, row in enumerate(rows) for info in calls.infos(raw, row, i)]}, fault, at


@st.composite
def written_calls(draw):
    """Frames of the encoders, and what is in them, as `fields_said` tells it."""
    raw, said = b"", []
    for _ in range(draw(st.integers(0, 3))):
        version, kind = draw(spoken.VERSIONS), draw(st.integers(1, 4))
        method, service = draw(spoken.METHODS.filter(lambda name: b":" not in name)), draw(st.none() | st.just(b"S"))
        service = service if kind in (1, 4) else None
        fields, seqid = draw(spoken.structs(version)), draw(spoken.SCALARS[spoken.I32])
        one = encode_call(
            method, kind, seqid, spoken.put_struct(fields, version), service=service,
            **dict(protocol="compact", version=version) if version else {})
        call = dict(
            protocol_id=spoken.COMPACT if version else spoken.BINARY, flags=draw(spoken.U16), seq=draw(spoken.U32),
            transforms=draw(spoken.TRANSFORMS), infos=draw(spoken.PAIRS), persistent=draw(spoken.PAIRS),
            padding=draw(st.sampled_from(("0-3", "1-4"))), infos_order=draw(st.sampled_from(("normal", "persistent"))),
            big=draw(st.booleans()))
        raw += draw(st.sampled_from((encode_frame(one, **call), encode_framed(one), one)))
        said.append((method, service, kind, seqid, tuple(spoken.told(fields))))
    return raw, said


def fields_said(table):
    """[(method, service, type, seqid, fields)] of a table of thrift.fields."""
    inside = [[] for _ in table.outer]
    for row in table:
        value = row.real if row.kind in (spoken.DOUBLE, spoken.FLOAT) else row.integer
        strings = as_bytes(row.value) if row.kind in (spoken.STRING, spoken.UUID) else None
        inside[row.parent].append((row.depth, row.role, row.id, row.kind, row.count, value, strings))
    return [(as_bytes(row.method), as_bytes(row.service), row.kind, row.seqid, tuple(inside[i]))
            for i, row in enumerate(table.outer)]


@st.composite
def written_infos(draw):
    raw, rows = b"", []
    for normal, persistent, order in draw(st.lists(st.tuples(
            spoken.PAIRS, spoken.PAIRS, st.sampled_from(("normal", "persistent"))), max_size=3)):
        raw += encode_frame(spoken.message(), infos=normal, persistent=persistent, infos_order=order)
        blocks = [(1, pair) for pair in normal], [(2, pair) for pair in persistent]
        rows += sum(blocks if order == "normal" else reversed(blocks), [])
    return raw, rows


def infos_said(table):
    return [(row.kind, tuple(map(as_bytes, row))) for row in table]


@st.composite
def written_payloads_of_calls(draw):
    raw, rows = b"", []
    for payload, ids in draw(st.lists(st.tuples(st.binary(max_size=60), spoken.TRANSFORMS), max_size=3)):
        raw += encode_frame(payload, transforms=ids, big=draw(st.booleans()))
        rows.append(payload)
    return raw, rows


def sent_in(row):
    """Where the payload of a frame is, where that can be told: what was transformed lies elsewhere."""
    if row["fault"] and row["fault"] != calls.BAD_CODEC:
        return 0, row["size"], row["fault"]
    if row["payload_size"] < 0:
        return None
    return row["payload_at"], row["payload_at"] + row["payload_size"], row["fault"]


def infos_in(row):
    if row["fault"] and row["fault"] != calls.BAD_CODEC:
        return 0, row["size"], row["fault"]
    return (None, None, 0) if row["info_count"] else None


def fields_in(row):
    return (0, row["size"], row["fault"]) if row["fault"] else (None, None, 0)


def room_of_calls(written, values, *inside):
    return Room(
        ("thrift.frames", *inside), spoken.streams(), spoken.tails(), spoken.damaged_streams(), written, values,
        expect_calls, {"thrift.plain": sent_in, "thrift.messages": sent_in, "thrift.infos": infos_in,
                       "thrift.fields": fields_in},
        sparse=("thrift.infos", "thrift.fields"))


THRIFT = room_of_calls(written_calls(), fields_said, "thrift.messages", "thrift.fields")
INFOS = room_of_calls(written_infos(), infos_said, "thrift.infos")
PLAIN = room_of_calls(
    written_payloads_of_calls(), lambda table: [as_bytes(row.payload) for row in table], "thrift.plain")

ROOMS = {"kafka": KAFKA, "kafka.responses": RESPONSES, "lumberjack": LUMBERJACK, "nats": NATS,
         "liftbridge": LIFTBRIDGE, "liftbridge.acks": ACKS, "liftbridge.internal": INTERNAL,
         "liftbridge.entries": ENTRIES, "thrift": THRIFT, "thrift.infos": INFOS, "thrift.plain": PLAIN} | {
    f"kafka.{chain[-1].path}": room_of_requests(message, chain)
    for message in MESSAGE.values() if message.side == "request" for chain in chains(message.level)}
