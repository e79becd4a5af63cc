"""The Liftbridge client against a real Liftbridge server and a real NATS server.

The server's own API returns the published messages at the offsets of the acks. Subscribers receive
messages through NATS.
"""

import asyncio

import pytest

from wirescan import liftbridge
from wirescan.liftbridge.constants import AckError, AckPolicy, Kind
from wirescan.liftbridge.live.publisher import Outcome, Publisher
from wirescan.liftbridge.live.subjects import compute_partition

from .liftbridge import Api, Liftbridge, parse_message, serialize, wrap_payload
from .nats import NatsServer

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def nats_address():
    with NatsServer("max_payload: 4194304") as server:
        yield server.address


@pytest.fixture(scope="module")
def api(nats_address):
    with Liftbridge(nats_address) as server, Api(server.address) as api:
        yield api


def run_client(address, test, **options):
    """Connect a client to an address, and return the result of test(client)."""

    async def run():
        async with (
            asyncio.timeout(60),
            liftbridge.Client(f"nats://{address}", allow_reconnect=False, **options) as client,
        ):
            return await test(client)

    return asyncio.run(run())


def read_stored(api, stream, **fields):
    return [parse_message("proto.Message", data) for data in api.subscribe(stream, **fields)]


def list_values(messages):
    return [message["value"] for message in messages]


def test_publish_with_every_ack_policy(nats_address, api):
    api.create_stream("policies", "policies")

    async def test(client):
        receipts = [
            await client.publish(
                "policies",
                b"value %d" % policy,
                key=b"key",
                headers={"trace": b"%d" % policy},
                ack_policy=policy,
            )
            for policy in AckPolicy
        ]
        await client.publish("policies", b"last")
        return receipts

    leader, all_, none = run_client(nats_address, test)
    for offset, receipt in enumerate([leader, all_]):
        assert (receipt.outcome, receipt.offset, receipt.error) == (Outcome.ACKED, offset, None)
        assert (receipt.stream, receipt.subject) == ("policies", "policies")
        assert 1.6e18 < receipt.received <= receipt.committed
    assert none is None
    messages = read_stored(api, "policies")
    assert list_values(messages) == [b"value 0", b"value 1", b"value 2", b"last"]
    assert [message["headers"].get("trace") for message in messages] == [b"0", b"1", b"2", None]
    assert [message["key"] for message in messages] == [b"key"] * 3 + [b""]


def test_a_wrong_expected_offset_is_refused(nats_address, api):
    api.create_stream("careful", "careful", optimisticConcurrencyControl={"value": True})

    async def test(client):
        offsets = [
            (await client.publish("careful", b"0", expected_offset=0)).offset,
            (await client.publish("careful", b"1", expected_offset=1)).offset,
        ]
        with pytest.raises(liftbridge.PublishError) as caught:
            await client.publish("careful", b"1 again", expected_offset=1)
        offsets.append((await client.publish("careful", b"any")).offset)
        return offsets, caught.value

    offsets, error = run_client(nats_address, test)
    assert offsets == [0, 1, 2]
    assert list_values(read_stored(api, "careful")) == [b"0", b"1", b"any"]
    assert error.code == AckError.INCORRECT_OFFSET
    assert (error.stream, error.subject) == ("careful", "careful")


def test_too_large_messages_are_refused(nats_address, api):
    api.create_stream("small", "small")

    async def test(client):
        results = await client.publish_many(
            "small", [b"small", bytes(2 << 20)], return_exceptions=True
        )
        with pytest.raises(Exception, match="maximum payload"):
            await client.publish("small", bytes(5 << 20))
        await client.publish("small", bytes(2 << 20), ack_policy=AckPolicy.NONE)
        await client.publish("small", b"another")
        return results

    strays = []
    good, refused = run_client(nats_address, test, stray=strays.append)
    assert good.offset == 0
    assert refused.code is AckError.TOO_LARGE
    (stray,) = strays
    assert (stray.outcome, stray.error.code) == (Outcome.REFUSED, AckError.TOO_LARGE)
    assert len(read_stored(api, "small")) == 2


def test_keys_choose_the_partitions(nats_address, api):
    api.create_stream("parts", "parts.all", partitions=3)
    keys = [b"key %d" % number for number in range(200)]

    async def test(client):
        return await client.publish_many(
            "parts.all", [b"v" + key for key in keys], keys=keys, partitions=3
        )

    receipts = run_client(nats_address, test)
    expected = [[key for key in keys if compute_partition(key, 3) == number] for number in range(3)]
    assert all(expected)
    for number in range(3):
        messages = read_stored(api, "parts", partition=number)
        assert [message["key"] for message in messages] == expected[number]
        here = [
            receipt for receipt, key in zip(receipts, keys) if compute_partition(key, 3) == number
        ]
        assert [message["offset"] for message in messages] == [*range(len(messages))]
        assert [receipt.offset for receipt in here] == [*range(len(messages))]
        subject = f"parts.all.{number}" if number else "parts.all"
        assert {receipt.subject for receipt in here} == {subject}


def test_many_messages_at_once(nats_address, api):
    api.create_stream("many", "many")

    async def test(client):
        return await client.publish_many("many", [b"%d" % number for number in range(20_000)])

    receipts = run_client(nats_address, test, timeout=30)
    assert sorted(receipt.offset for receipt in receipts) == [*range(20_000)]
    number_at = {receipt.offset: number for number, receipt in enumerate(receipts)}
    messages = read_stored(api, "many")
    assert all(int(message["value"]) == number_at[message["offset"]] for message in messages)


def test_two_streams_on_a_subject_give_two_acks(nats_address, api):
    for name in ("twin-a", "twin-b"):
        api.create_stream(name, "twins")

    async def test(client):
        first = await client.publish("twins", b"value")
        await asyncio.sleep(0.5)
        return first

    strays = []
    first = run_client(nats_address, test, stray=strays.append)
    assert [stray.outcome for stray in strays] == [Outcome.DUPLICATE]
    assert {first.stream, strays[0].stream} == {"twin-a", "twin-b"}


def test_a_subject_without_a_stream_has_no_ack(nats_address, api):
    async def test(client):
        with pytest.raises(TimeoutError, match="no ack in 0.3 s"):
            await client.publish("nowhere", b"value")

    run_client(nats_address, test, timeout=0.3)


def test_a_checksum_is_accepted(nats_address, api):
    api.create_stream("checked", "checked")

    async def test(client):
        return await client.publish("checked", b"value", crc=True)

    assert run_client(nats_address, test).offset == 0
    assert list_values(read_stored(api, "checked")) == [b"value"]


def test_subscribers_read_messages_of_googles_library(nats_address):
    """wirescan's subscriber receives messages that Google's library wrote.

    They are enveloped, with and without a checksum, plain, and damaged.
    """
    good = serialize(
        "proto.Message", {"key": b"k", "value": b"v", "offset": -1, "headers": {"h": b"1"}}
    )
    payloads = [
        wrap_payload(good),
        wrap_payload(good, crc=True),
        b"plain",
        b"",
        wrap_payload(good)[:-3],
        wrap_payload(good, crc=True)[:-1] + b"?",
    ]

    async def test(client):
        tables = await client.subscribe("seen", count=4, seconds=0.2)
        for payload in payloads:
            await client._nats.publish("seen", payload)
        seen = []
        async for table in tables:
            seen += [(row.kind, row.fault, bytes(row.value or b"")) for row in table]
            if len(seen) == len(payloads):
                break
        return seen

    seen = run_client(nats_address, test)
    assert seen[:2] == [(Kind.PUBLISH, 0, b"v")] * 2
    assert seen[2:4] == [(Kind.PLAIN, 0, b"plain"), (Kind.PLAIN, 0, b"")]
    assert all(fault for _, fault, _ in seen[4:])


def test_queue_subscribers_share_the_messages(nats_address):
    async def test(client):
        feeds = [await client.subscribe("shared", queue="workers", seconds=60) for _ in range(2)]
        for number in range(100):
            await client._nats.publish("shared", b"%d" % number)
        await client.close()
        return [[int(bytes(row.value)) async for table in feed for row in table] for feed in feeds]

    shares = run_client(nats_address, test)
    assert sorted(sum(shares, [])) == [*range(100)]
    assert all(shares)


def test_googles_library_reads_a_published_message():
    sent = Publisher(inbox="acks").publish(
        "orders",
        b"value",
        key=b"key",
        headers={"a": b"1", "b": b""},
        ack_policy=AckPolicy.ALL,
        expected_offset=7,
        correlation_id="one",
    )
    message = parse_message("proto.Message", sent.payload[8:])
    assert message["offset"] == 7
    assert message["key"] == b"key"
    assert message["value"] == b"value"
    assert message["headers"] == {"a": b"1", "b": b""}
    assert message["ackInbox"] == "acks"
    assert message["correlationId"] == "one"
    assert message["ackPolicy"] == AckPolicy.ALL
