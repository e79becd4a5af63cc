"""Messages that hypothesis makes, as Google's library writes and reads them, against wirescan's tables and encoders;
and what the encoders write, as a real server takes it."""
import asyncio
import itertools
import re

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from strategies import liftbridge as made
from wirescan import Fault, liftbridge
from wirescan.liftbridge import AckError, AckPolicy, Kind
from wirescan.liftbridge.encode import encode_ack, encode_internal, encode_message

from . import liftbridge_views as views
from .liftbridge import MESSAGES, Api, Liftbridge, envelope, plain, written
from .nats import NatsServer, connected, part, until

pytestmark = pytest.mark.peers

LONG, INT, UNSIGNED = (st.integers(low, high) for low, high in (
    (-1 << 63, (1 << 63) - 1), (-1 << 31, (1 << 31) - 1), (0, (1 << 64) - 1)))
TEXT, BYTES = st.text(max_size=20), st.binary(max_size=40)
STRATEGIES = {views.TEXT: TEXT, views.BYTES: BYTES, views.NUMBER: LONG}
NARROW = {"partition": INT, "ack_policy": INT, "ack_error": INT}
HEADERS = st.dictionaries(TEXT, BYTES, max_size=4)


def columns(names: dict[str, str]) -> dict:
    """Strategies for the columns of a table, by name."""
    return {name: NARROW.get(name, STRATEGIES[what]) for name, what in names.items()}


def optional(strategies: dict) -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries({}, optional=strategies)


def as_fields(given: dict) -> dict:
    return {views.camel(name): value for name, value in given.items()}


def full(name: str, given: dict) -> dict:
    """What was given by column name, as all fields of a message of the oracle."""
    return plain(name, b"") | as_fields(given)


MESSAGE, ACK = columns(views.MESSAGE) | {"headers": HEADERS}, columns(views.ACK)


@given(optional(MESSAGE))
def test_messages_that_google_writes(given):
    data = written("proto.Message", as_fields(given))
    found, = views.messages(liftbridge.messages(liftbridge.scan([data], bare=Kind.PUBLISH)))
    assert found == full("proto.Message", given)


@given(optional(ACK))
def test_acks_that_google_writes(given):
    data = written("proto.Ack", as_fields(given))
    found, = views.acks(liftbridge.acks(liftbridge.scan([data], bare=Kind.ACK)))
    assert found == full("proto.Ack", given)


@given(optional({name: one for name, one in MESSAGE.items() if name not in ("value", "ack_policy")}), BYTES,
       st.sampled_from(AckPolicy), st.booleans())
def test_messages_that_google_reads(given, value, policy, crc):
    """Both read the same in what encode_message writes, in an envelope and without."""
    given = given | {"value": value, "ack_policy": policy}
    data = encode_message(**given, envelope=False)
    assert plain("proto.Message", data) == full("proto.Message", given)
    enclosed = encode_message(**given, crc=crc)
    assert enclosed == envelope(data, Kind.PUBLISH, crc=crc)
    found, = views.messages(liftbridge.messages(liftbridge.scan(enclosed)))
    assert found == full("proto.Message", given)


@given(optional({name: one for name, one in ACK.items() if name not in ("ack_policy", "ack_error")}),
       st.sampled_from(AckPolicy), st.sampled_from(AckError))
def test_acks_that_google_reads(given, policy, error):
    given = given | {"ack_policy": policy, "ack_error": error}
    assert plain("proto.Ack", encode_ack(**given, envelope=False)) == full("proto.Ack", given)


FIXED = {"leader_epoch": UNSIGNED, "offset": LONG, "end_offset": LONG, "exists": st.booleans(),
         "is_leader": st.booleans(), "partition": INT, "port": INT}
WRITTEN = [kind for kind in Kind if kind in views.SENT and kind not in (
    Kind.REPLICATION_RESPONSE, Kind.PROPAGATED_REQUEST, Kind.PROPAGATED_RESPONSE)]


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.name)
@given(data=st.data(), crc=st.booleans())
def test_messages_between_servers(kind, data, crc):
    """What encode_internal writes Google reads, and the other way round."""
    names = views.SENT[kind]
    given = data.draw(st.fixed_dictionaries({column: FIXED.get(column, TEXT) for column in names.values()}))
    expected = {field: given[column] for field, column in names.items()}
    ours = encode_internal(kind, crc=crc, **given)
    assert plain(MESSAGES[kind], ours[12 if crc else 8:]) == expected
    for enclosed in ours, envelope(written(MESSAGES[kind], expected), kind, crc=crc):
        table = liftbridge.internal(liftbridge.scan(enclosed))
        found = views.internal(table, 0)
        assert {name: found[name] for name in given} == given
        assert {value for name, value in found.items() if name not in given} <= {0, "", b"", -1}


INSIDE = [(number, field, columns) for number, field in enumerate((
    "createStreamOp", "shrinkISROp", "reportLeaderOp", "expandISROp", "deleteStreamOp", "pauseStreamOp",
    "resumeStreamOp", "setStreamReadonlyOp", "joinConsumerGroupOp", "leaveConsumerGroupOp",
    "reportConsumerGroupCoordinatorOp"), 2) if (columns := views.INSIDE.get(field))]


@pytest.mark.parametrize("number, field, names", INSIDE, ids=[field for _, field, _ in INSIDE])
@given(data=st.data(), op=st.integers(0, 14))
def test_propagated_requests(number, field, names, data, op):
    """Each operation that one server hands on to another."""
    inside = {name: data.draw(FIXED.get(column, UNSIGNED if column == "epoch" else TEXT))
              for name, column in names.items()}
    payload = written("protocol.PropagatedRequest", {"op": op, field: inside})
    table = liftbridge.internal(liftbridge.scan(envelope(payload, Kind.PROPAGATED_REQUEST)))
    found = views.internal(table, 0)
    told = {"op": op} | {column: inside[name] for name, column in names.items()}
    assert {name: found[name] for name in told} == told
    operation = bytes(table.bytes(0, "operation"))
    message = "protocol." + field[0].upper() + field[1:]
    assert plain(message, operation).items() >= inside.items()


def loosely(raw: bytes) -> dict | None:
    """Google's reading of bytes as a message, strings as bytes; None for no message."""
    from google.protobuf.message import DecodeError

    try:
        return plain("proto.Message", raw, loose=True)
    except DecodeError:
        return None


PIECES = st.one_of(
    st.builds(made.field, st.integers(1, 20), LONG | BYTES), st.builds(made.pair, BYTES, BYTES),
    st.builds(made.fixed, st.integers(1, 20), st.sampled_from([4, 8])), st.binary(max_size=3),
    st.builds(made.group, st.integers(1, 20), st.builds(made.field, st.integers(1, 20), LONG)))


RAW = st.lists(PIECES, max_size=6).map(b"".join) | made.odd_messages()


@given(RAW)
def test_any_bytes(raw):
    """What Google takes for a message, wirescan takes for one, and reads the same in it."""
    table = liftbridge.messages(liftbridge.scan([raw], bare=Kind.PUBLISH), errors="mark")
    headers = liftbridge.headers(table, errors="mark")
    expected = loosely(raw)
    assert (table.bad.any() or headers.bad.any()) == (expected is None)
    if expected is not None:
        for name in views.MESSAGE:
            value = expected[views.camel(name)]
            found = bytes(table.bytes(0, name) or b"") if isinstance(value, bytes) else table[name][0]
            assert found == value, name
        assert [{name: bytes(headers.bytes(i, name) or b"") for name in ("key", "value")}
                for i in range(len(headers))] == expected["headers"]


NUMBERS = itertools.count()


async def publish(address: str, subject: str, payloads: list[bytes], acks: int) -> list[bytes]:
    """Publish, and wait for so many acks to `acks`; returns them as they came."""
    client = await connected(address)
    inbox = await client.subscribe("acks")
    await client.flush()
    for payload in payloads:
        await client.publish(subject, payload)
    await until(lambda: len(client.given) >= acks)
    await inbox.unsubscribe()
    await part(client)
    return [bytes.fromhex(message["payload"]) for message in client.given]


@pytest.fixture(scope="module")
def servers():
    with NatsServer() as nats_server, Liftbridge(nats_server.address) as server, Api(server.address) as api:
        yield nats_server.address, api


@pytest.mark.parametrize("crc", [False, True])
def test_encoded_messages_are_stored(servers, crc):
    """500 messages of the encoder, which the server stores, acknowledges and delivers."""
    address, api = servers
    subject = f"encoded.{crc}"
    api.call("CreateStream", name=subject, subject=subject)
    told = [{"key": b"%d" % i if i % 3 else None, "value": bytes(range(i % 256)),
             "headers": {f"header {j}": b"%d" % i for j in range(i % 4)}, "correlation_id": f"Grüße {i}"}
            for i in range(500)]
    payloads = [encode_message(**one, ack_inbox="acks", ack_policy=AckPolicy(i % 2), crc=crc)
                for i, one in enumerate(told)]
    acks = views.acks(liftbridge.acks(liftbridge.scan(asyncio.run(publish(address, subject, payloads, len(told))))))
    assert [ack["offset"] for ack in sorted(acks, key=lambda ack: ack["offset"])] == list(range(500))
    for ack in acks:
        assert (ack["correlationId"], ack["ackError"], ack["stream"]) == (f"Grüße {ack['offset']}", 0, subject)
    given = liftbridge.messages(liftbridge.scan(api.subscribe(subject, len(told)), bare=Kind.PUBLISH))
    assert [(row["key"], row["value"], row["headers"]) for row in views.messages(given)] == [
        (one["key"] or b"", one["value"], one["headers"] | {"subject": subject.encode(), "reply": b""}) for one in told]


def test_a_wrong_checksum_is_a_plain_message(servers):
    address, api = servers
    api.call("CreateStream", name="damaged", subject="damaged")
    good = encode_message(b"value", ack_inbox="acks", crc=True)
    damaged = good.replace(b"value", b"Value")
    assert liftbridge.scan(damaged, errors="mark")["fault"].tolist() == [Fault.BAD_CHECKSUM]
    acks = asyncio.run(publish(address, "damaged", [damaged, good], 1))
    ack, = views.acks(liftbridge.acks(liftbridge.scan(acks)))
    assert ack["offset"] == 1
    stored = [plain("proto.Message", one) for one in api.subscribe("damaged", 2)]
    assert [message["value"] for message in stored] == [damaged, b"value"]


def test_a_wrong_expected_offset_is_refused(servers):
    address, api = servers
    api.call("CreateStream", name="checked", subject="checked", optimisticConcurrencyControl={"value": True})
    payloads = [encode_message(b"%d" % offset, offset=offset, ack_inbox="acks", correlation_id=str(offset))
                for offset in (0, 9, 1, -1)]
    found = [view for payload in payloads for view in views.acks(liftbridge.acks(liftbridge.scan(
        asyncio.run(publish(address, "checked", [payload], 1)))))]
    assert [ack["ackError"] for ack in found] == [
        AckError.OK, AckError.INCORRECT_OFFSET, AckError.OK, AckError.OK]
    assert [plain("proto.Message", one)["value"] for one in api.subscribe("checked", 3)] == [b"0", b"1", b"-1"]


def whole(raw: bytes) -> bytes:
    return envelope(raw + written("proto.Message", {"ackPolicy": "NONE"}))  # an inbox would be written to NATS as it is


def delivered(servers, stream: str, payloads: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The key and the value of each message that a server makes of these payloads."""
    address, api = servers
    api.call("CreateStream", name=stream, subject=stream)
    asyncio.run(publish(address, stream, payloads, 0))
    found = [plain("proto.Message", one, loose=True) for one in api.subscribe(stream, len(payloads))]
    return [(message["key"], message["value"]) for message in found]


def key_and_value(payload: bytes) -> tuple[bytes, bytes]:
    table = liftbridge.messages(liftbridge.scan(payload))
    liftbridge.headers(table)
    return tuple(bytes(table.bytes(0, name) or b"") for name in ("key", "value"))


LONG_FORM = re.compile(rb"[\x80-\xff]{5}")      # a tag or a size in more bytes than it can need


@settings(max_examples=10, phases=[Phase.generate])     # an example takes long: none is made smaller
@given(st.lists(RAW, min_size=40, max_size=80))
def test_what_a_server_takes_for_a_message(servers, raws):
    """Any bytes in an envelope: what the server does not store as a plain value wirescan takes for a message, too, and
    reads the same key and value in it. Long forms of tags and sizes are another matter: Google's library refuses them.
    """
    payloads = [whole(raw) for raw in raws if not LONG_FORM.search(raw)]
    for payload, stored in zip(payloads, delivered(servers, f"odd.{next(NUMBERS)}", payloads), strict=True):
        assert stored == (b"", payload) or stored == key_and_value(payload), payload


def test_what_a_server_takes_otherwise(servers):
    """A known field of another type is to a server no message at all, and to Google's libraries an unknown field; so it
    is here. No UTF-8 is the other way round: the server takes it, and so does wirescan."""
    types, text = [whole(raw) for raw in (b"\n\0", b"\x10\5", b"J\2\x08\5")], whole(b"*\1\xff\x1a\1v")
    assert delivered(servers, "types", [*types, text]) == [*((b"", payload) for payload in types), (b"", b"v")]
    assert [key_and_value(payload) for payload in (*types, text)] == [(b"", b"")] * 3 + [(b"", b"v")]
