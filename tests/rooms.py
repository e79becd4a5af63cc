"""The rooms that the laws are run for: one entry each."""
import numpy as np
from hypothesis import strategies as st

from laws import Room
from reference import kafka as reference
from reference import kafka_protocol, kafka_resync
from reference import lumberjack as beats
from strategies import kafka as strategies
from strategies import kafka_protocol as messages
from strategies import lumberjack as sent
from wirescan.kafka.compose import encode_request, encode_response
from wirescan.kafka.encode import encode_batch, encode_message_set
from wirescan.kafka.schema import MESSAGE, WIDTHS
from wirescan.lumberjack.encode import encode_batch as encode_window_of


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

ROOMS = {"kafka": KAFKA, "kafka.responses": RESPONSES, "lumberjack": LUMBERJACK} | {
    f"kafka.{chain[-1].path}": room_of_requests(message, chain)
    for message in MESSAGE.values() if message.side == "request" for chain in chains(message.level)}
