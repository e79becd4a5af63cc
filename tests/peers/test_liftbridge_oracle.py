"""wirescan's Liftbridge tables and encoders against Google's library and a real server.

hypothesis makes the messages. Google's library writes and reads them. A real server accepts the
encoders' messages.
"""

import asyncio
import itertools
import re

import pytest
from google.protobuf.message import DecodeError
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.strategies import liftbridge as strategies
from wirescan import Fault, liftbridge
from wirescan.liftbridge import AckError, AckPolicy, Kind
from wirescan.liftbridge.encode import encode_ack, encode_internal, encode_message

from . import liftbridge_views as views
from .liftbridge import MESSAGES, Api, Liftbridge, parse_message, serialize, wrap_payload
from .nats import NatsServer, close_cleanly, connect, wait_until

pytestmark = pytest.mark.peers

LONG = st.integers(-1 << 63, (1 << 63) - 1)
INT = st.integers(-1 << 31, (1 << 31) - 1)
UNSIGNED = st.integers(0, (1 << 64) - 1)
TEXT = st.text(max_size=20)
BYTES = st.binary(max_size=40)
STRATEGIES = {views.TEXT: TEXT, views.BYTES: BYTES, views.NUMBER: LONG}
NARROW = {"partition": INT, "ack_policy": INT, "ack_error": INT}
HEADERS = st.dictionaries(TEXT, BYTES, max_size=4)


def make_strategies(names: dict[str, str]) -> dict:
    """Strategies for the columns of a table, by name."""
    return {name: NARROW.get(name, STRATEGIES[kind]) for name, kind in names.items()}


def optional(columns: dict) -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries({}, optional=columns)


def as_fields(values: dict) -> dict:
    return {views.to_camel_case(name): value for name, value in values.items()}


def all_fields(name: str, values: dict) -> dict:
    """All fields of a message, with the values of some columns."""
    return parse_message(name, b"") | as_fields(values)


MESSAGE = make_strategies(views.MESSAGE) | {"headers": HEADERS}
ACK = make_strategies(views.ACK)


@given(optional(MESSAGE))
def test_messages_that_google_writes(values):
    data = serialize("proto.Message", as_fields(values))
    (message,) = views.list_messages(
        liftbridge.messages(liftbridge.scan([data], bare=Kind.PUBLISH))
    )
    assert message == all_fields("proto.Message", values)


@given(optional(ACK))
def test_acks_that_google_writes(values):
    data = serialize("proto.Ack", as_fields(values))
    (ack,) = views.list_acks(liftbridge.acks(liftbridge.scan([data], bare=Kind.ACK)))
    assert ack == all_fields("proto.Ack", values)


@given(
    optional({name: kind for name, kind in MESSAGE.items() if name not in ("value", "ack_policy")}),
    BYTES,
    st.sampled_from(AckPolicy),
    st.booleans(),
)
def test_messages_that_google_reads(values, value, policy, crc):
    """wirescan and Google read the same fields in the bytes of encode_message."""
    values = values | {"value": value, "ack_policy": policy}
    data = encode_message(**values, envelope=False)
    assert parse_message("proto.Message", data) == all_fields("proto.Message", values)
    enveloped = encode_message(**values, crc=crc)
    assert enveloped == wrap_payload(data, Kind.PUBLISH, crc=crc)
    (message,) = views.list_messages(liftbridge.messages(liftbridge.scan(enveloped)))
    assert message == all_fields("proto.Message", values)


@given(
    optional({name: kind for name, kind in ACK.items() if name not in ("ack_policy", "ack_error")}),
    st.sampled_from(AckPolicy),
    st.sampled_from(AckError),
)
def test_acks_that_google_reads(values, policy, error):
    values = values | {"ack_policy": policy, "ack_error": error}
    data = encode_ack(**values, envelope=False)
    assert parse_message("proto.Ack", data) == all_fields("proto.Ack", values)


FIXED = {
    "leader_epoch": UNSIGNED,
    "offset": LONG,
    "end_offset": LONG,
    "exists": st.booleans(),
    "is_leader": st.booleans(),
    "partition": INT,
    "port": INT,
}
ENCODED_KINDS = [
    kind
    for kind in Kind
    if kind in views.SENT
    and kind not in (Kind.REPLICATION_RESPONSE, Kind.PROPAGATED_REQUEST, Kind.PROPAGATED_RESPONSE)
]


@pytest.mark.parametrize("kind", ENCODED_KINDS, ids=lambda kind: kind.name)
@given(data=st.data(), crc=st.booleans())
def test_messages_between_servers_agree_with_google(kind, data, crc):
    """Google reads the bytes of encode_internal. wirescan reads Google's bytes."""
    names = views.SENT[kind]
    values = data.draw(
        st.fixed_dictionaries({column: FIXED.get(column, TEXT) for column in names.values()})
    )
    expected = {field: values[column] for field, column in names.items()}
    ours = encode_internal(kind, crc=crc, **values)
    assert parse_message(MESSAGES[kind], ours[12 if crc else 8 :]) == expected
    theirs = wrap_payload(serialize(MESSAGES[kind], expected), kind, crc=crc)
    for enveloped in ours, theirs:
        table = liftbridge.internal(liftbridge.scan(enveloped))
        row = views.list_internal_columns(table, 0)
        assert {name: row[name] for name in values} == values
        assert {value for name, value in row.items() if name not in values} <= {0, "", b"", -1}


OPERATIONS = [
    (number, field, make_strategies)
    for number, field in enumerate(
        (
            "createStreamOp",
            "shrinkISROp",
            "reportLeaderOp",
            "expandISROp",
            "deleteStreamOp",
            "pauseStreamOp",
            "resumeStreamOp",
            "setStreamReadonlyOp",
            "joinConsumerGroupOp",
            "leaveConsumerGroupOp",
            "reportConsumerGroupCoordinatorOp",
        ),
        2,
    )
    if (make_strategies := views.INSIDE.get(field))
]


@pytest.mark.parametrize(
    "number, field, names", OPERATIONS, ids=[field for _, field, _ in OPERATIONS]
)
@given(data=st.data(), op=st.integers(0, 14))
def test_propagated_requests_agree_with_google(number, field, names, data, op):
    """Each operation that one server forwards to another."""
    fields = {
        name: data.draw(FIXED.get(column, UNSIGNED if column == "epoch" else TEXT))
        for name, column in names.items()
    }
    payload = serialize("protocol.PropagatedRequest", {"op": op, field: fields})
    table = liftbridge.internal(liftbridge.scan(wrap_payload(payload, Kind.PROPAGATED_REQUEST)))
    row = views.list_internal_columns(table, 0)
    expected = {"op": op} | {column: fields[name] for name, column in names.items()}
    assert {name: row[name] for name in expected} == expected
    operation = bytes(table.bytes(0, "operation"))
    message = "protocol." + field[0].upper() + field[1:]
    assert parse_message(message, operation).items() >= fields.items()


def parse_loosely(raw: bytes) -> dict | None:
    """The message that Google's library reads, with strings as bytes. None if it refuses."""
    from google.protobuf.message import DecodeError

    try:
        return parse_message("proto.Message", raw, loose=True)
    except DecodeError:
        return None


PIECES = st.one_of(
    st.builds(strategies.make_field, st.integers(1, 20), LONG | BYTES),
    st.builds(strategies.make_pair, BYTES, BYTES),
    st.builds(strategies.make_fixed, st.integers(1, 20), st.sampled_from([4, 8])),
    st.binary(max_size=3),
    st.builds(
        strategies.make_group,
        st.integers(1, 20),
        st.builds(strategies.make_field, st.integers(1, 20), LONG),
    ),
)


RAW = st.lists(PIECES, max_size=6).map(b"".join) | strategies.odd_messages()


@given(RAW)
def test_any_bytes_read_like_google(raw):
    """wirescan accepts the same bytes as Google, and reads the same fields."""
    table = liftbridge.messages(liftbridge.scan([raw], bare=Kind.PUBLISH), errors="mark")
    headers = liftbridge.headers(table, errors="mark")
    expected = parse_loosely(raw)
    assert (table.bad.any() or headers.bad.any()) == (expected is None)
    if expected is not None:
        for name in views.MESSAGE:
            value = expected[views.to_camel_case(name)]
            if isinstance(value, bytes):
                assert bytes(table.bytes(0, name) or b"") == value, name
            else:
                assert table[name][0] == value, name
        pairs = [
            {name: bytes(headers.bytes(i, name) or b"") for name in ("key", "value")}
            for i in range(len(headers))
        ]
        assert pairs == expected["headers"]


NUMBERS = itertools.count()


async def publish(address: str, subject: str, payloads: list[bytes], acks: int) -> list[bytes]:
    """Publish, and wait for so many acks on the subject `acks`. Return them in their order."""
    client = await connect(address)
    inbox = await client.subscribe("acks")
    await client.flush()
    for payload in payloads:
        await client.publish(subject, payload)
    await wait_until(lambda: len(client.received) >= acks)
    await inbox.unsubscribe()
    await close_cleanly(client)
    return [bytes.fromhex(message["payload"]) for message in client.received]


@pytest.fixture(scope="module")
def servers():
    with (
        NatsServer() as nats_server,
        Liftbridge(nats_server.address) as server,
        Api(server.address) as api,
    ):
        yield nats_server.address, api


@pytest.mark.parametrize("crc", [False, True])
def test_encoded_messages_are_stored(servers, crc):
    """The server stores, acknowledges and delivers 500 messages of the encoder."""
    address, api = servers
    subject = f"encoded.{crc}"
    api.create_stream(subject, subject)
    messages = [
        {
            "key": b"%d" % i if i % 3 else None,
            "value": bytes(range(i % 256)),
            "headers": {f"header {j}": b"%d" % i for j in range(i % 4)},
            "correlation_id": f"Grüße {i}",
        }
        for i in range(500)
    ]
    payloads = [
        encode_message(**message, ack_inbox="acks", ack_policy=AckPolicy(i % 2), crc=crc)
        for i, message in enumerate(messages)
    ]
    ack_payloads = asyncio.run(publish(address, subject, payloads, len(messages)))
    acks = views.list_acks(liftbridge.acks(liftbridge.scan(ack_payloads)))
    assert sorted(ack["offset"] for ack in acks) == list(range(500))
    for ack in acks:
        assert ack["correlationId"] == f"Grüße {ack['offset']}"
        assert ack["ackError"] == 0
        assert ack["stream"] == subject
    delivered_data = api.subscribe(subject, len(messages))
    table = liftbridge.messages(liftbridge.scan(delivered_data, bare=Kind.PUBLISH))
    server_headers = {"subject": subject.encode(), "reply": b""}
    assert [(row["key"], row["value"], row["headers"]) for row in views.list_messages(table)] == [
        (message["key"] or b"", message["value"], message["headers"] | server_headers)
        for message in messages
    ]


def test_a_wrong_checksum_is_a_plain_message(servers):
    address, api = servers
    api.create_stream("damaged", "damaged")
    good = encode_message(b"value", ack_inbox="acks", crc=True)
    damaged = good.replace(b"value", b"Value")
    assert liftbridge.scan(damaged, errors="mark")["fault"].tolist() == [Fault.BAD_CHECKSUM]
    acks = asyncio.run(publish(address, "damaged", [damaged, good], 1))
    (ack,) = views.list_acks(liftbridge.acks(liftbridge.scan(acks)))
    assert ack["offset"] == 1
    stored = [parse_message("proto.Message", data) for data in api.subscribe("damaged", 2)]
    assert [message["value"] for message in stored] == [damaged, b"value"]


def test_a_wrong_expected_offset_is_refused(servers):
    address, api = servers
    api.create_stream("checked", "checked", optimisticConcurrencyControl={"value": True})
    payloads = [
        encode_message(b"%d" % offset, offset=offset, ack_inbox="acks", correlation_id=str(offset))
        for offset in (0, 9, 1, -1)
    ]
    acks = []
    for payload in payloads:
        ack_payloads = asyncio.run(publish(address, "checked", [payload], 1))
        acks += views.list_acks(liftbridge.acks(liftbridge.scan(ack_payloads)))
    assert [ack["ackError"] for ack in acks] == [
        AckError.OK,
        AckError.INCORRECT_OFFSET,
        AckError.OK,
        AckError.OK,
    ]
    stored = [parse_message("proto.Message", data) for data in api.subscribe("checked", 3)]
    assert [message["value"] for message in stored] == [b"0", b"1", b"-1"]


def enclose(raw: bytes) -> bytes:
    """Put bytes into an envelope, without an ack: the server would use any inbox as a subject."""
    return wrap_payload(raw + serialize("proto.Message", {"ackPolicy": "NONE"}))


def publish_and_read(servers, stream: str, payloads: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Publish payloads. Return the key and the value of each stored message."""
    address, api = servers
    api.create_stream(stream, stream)
    asyncio.run(publish(address, stream, payloads, 0))
    messages = [
        parse_message("proto.Message", data, loose=True)
        for data in api.subscribe(stream, len(payloads))
    ]
    return [(message["key"], message["value"]) for message in messages]


def key_and_value(payload: bytes) -> tuple[bytes, bytes]:
    table = liftbridge.messages(liftbridge.scan(payload))
    liftbridge.headers(table)
    return tuple(bytes(table.bytes(0, name) or b"") for name in ("key", "value"))


def google_accepts(raw: bytes) -> bool:
    """Return whether Google's library parses bytes as a Message. Text may be invalid UTF-8."""
    try:
        parse_message("proto.Message", raw, loose=True)
    except DecodeError:
        return False
    return True


LONG_FORM = re.compile(rb"[\x80-\xff]{5}")  # a tag or a size in too many bytes


@settings(max_examples=10, phases=[Phase.generate])  # an example takes long, so do not shrink
@given(st.lists(RAW, min_size=40, max_size=80))
def test_any_enveloped_bytes_read_like_the_server(servers, raws):
    """The server and wirescan read the same key and value in any enveloped bytes.

    The server may also store the bytes as a plain value. Bytes that Google's library refuses are
    not tested. The server accepts some of them, such as a header whose key runs past its end.
    """
    acceptable = [raw for raw in raws if not LONG_FORM.search(raw) and google_accepts(raw)]
    payloads = [enclose(raw) for raw in acceptable]
    messages = publish_and_read(servers, f"odd.{next(NUMBERS)}", payloads)
    for payload, stored in zip(payloads, messages, strict=True):
        assert stored == (b"", payload) or stored == key_and_value(payload), payload


def test_wrong_types_and_invalid_utf_8(servers):
    """Differences between the server and Google's libraries.

    A known field of another type: the server sees no message. Google's libraries and wirescan see
    an unknown field. Invalid UTF-8: the server and wirescan accept it, Google's libraries do not.
    """
    types = [enclose(raw) for raw in (b"\n\0", b"\x10\5", b"J\2\x08\5")]
    text = enclose(b"*\1\xff\x1a\1v")
    *stored_types, stored_text = publish_and_read(servers, "types", [*types, text])
    assert stored_types == [(b"", payload) for payload in types]
    assert stored_text == (b"", b"v")
    assert [key_and_value(payload) for payload in types] == [(b"", b"")] * 3
    assert key_and_value(text) == (b"", b"v")
