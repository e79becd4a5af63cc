"""The client against a real Liftbridge server: what is published is stored where the ack says, as the server's own API
reads it; and a real NATS server between publishers and subscribers."""
import asyncio

import pytest

from wirescan import liftbridge
from wirescan.liftbridge.kind import AckError, AckPolicy, Kind
from wirescan.liftbridge.publisher import Outcome, Publisher
from wirescan.liftbridge.subjects import partition_of

from .liftbridge import Api, Liftbridge, envelope, plain, written
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


def talk(address, test, **options):
    """What test(client) returns."""
    async def run():
        async with asyncio.timeout(60), liftbridge.Client(f"nats://{address}", allow_reconnect=False,
                                                          **options) as client:
            return await test(client)

    return asyncio.run(run())


def stored(api, stream, **fields):
    return [plain("proto.Message", one) for one in api.subscribe(stream, **fields)]


def test_every_policy(nats_address, api):
    api.call("CreateStream", name="policies", subject="policies")

    async def test(client):
        receipts = [
            await client.publish("policies", b"value %d" % policy, key=b"key", headers={"trace": b"%d" % policy},
                                 ack_policy=policy) for policy in AckPolicy]
        await client.publish("policies", b"last")
        return receipts

    leader, all_, none = talk(nats_address, test)
    for offset, receipt in enumerate([leader, all_]):
        assert (receipt.outcome, receipt.offset, receipt.error) == (Outcome.ACKED, offset, None)
        assert (receipt.stream, receipt.subject) == ("policies", "policies")
        assert 1.6e18 < receipt.received <= receipt.committed
    assert none is None
    found = stored(api, "policies")
    assert [one["value"] for one in found] == [b"value 0", b"value 1", b"value 2", b"last"]
    assert [one["headers"].get("trace") for one in found] == [b"0", b"1", b"2", None]
    assert [one["key"] for one in found] == [b"key"] * 3 + [b""]


def test_expected_offsets(nats_address, api):
    api.call("CreateStream", name="careful", subject="careful", optimisticConcurrencyControl={"value": True})

    async def test(client):
        offsets = [(await client.publish("careful", b"0", expected_offset=0)).offset,
                   (await client.publish("careful", b"1", expected_offset=1)).offset]
        with pytest.raises(liftbridge.PublishError) as caught:
            await client.publish("careful", b"1 again", expected_offset=1)
        offsets.append((await client.publish("careful", b"any")).offset)
        return offsets, caught.value

    offsets, error = talk(nats_address, test)
    assert offsets == [0, 1, 2] and [one["value"] for one in stored(api, "careful")] == [b"0", b"1", b"any"]
    assert (error.code, error.stream, error.subject) == (AckError.INCORRECT_OFFSET, "careful", "careful")


def test_what_is_too_large(nats_address, api):
    api.call("CreateStream", name="small", subject="small")

    async def test(client):
        results = await client.publish_many("small", [b"small", bytes(2 << 20)], return_exceptions=True)
        with pytest.raises(Exception, match="maximum payload"):
            await client.publish("small", bytes(5 << 20))
        await client.publish("small", bytes(2 << 20), ack_policy=AckPolicy.NONE)
        await client.publish("small", b"another")
        return results

    strays = []
    good, refused = talk(nats_address, test, stray=strays.append)
    assert good.offset == 0 and refused.code is AckError.TOO_LARGE
    assert [(one.outcome, one.error.code) for one in strays] == [(Outcome.REFUSED, AckError.TOO_LARGE)]
    assert len(stored(api, "small")) == 2


def test_a_stream_of_partitions(nats_address, api):
    api.call("CreateStream", name="parts", subject="parts.all", partitions=3)
    keys = [b"key %d" % number for number in range(200)]

    async def test(client):
        return await client.publish_many("parts.all", [b"v" + key for key in keys], keys=keys, partitions=3)

    receipts = talk(nats_address, test)
    expected = [[key for key in keys if partition_of(key, 3) == number] for number in range(3)]
    assert all(expected)
    for number in range(3):
        found = stored(api, "parts", partition=number)
        assert [one["key"] for one in found] == expected[number]
        mine = [receipt for receipt, key in zip(receipts, keys) if partition_of(key, 3) == number]
        assert [receipt.offset for receipt in mine] == [one["offset"] for one in found] == [*range(len(found))]
        assert {receipt.subject for receipt in mine} == {f"parts.all.{number}" if number else "parts.all"}


def test_many_at_once(nats_address, api):
    api.call("CreateStream", name="many", subject="many")

    async def test(client):
        return await client.publish_many("many", [b"%d" % number for number in range(20_000)])

    receipts = talk(nats_address, test, timeout=30)
    assert sorted(receipt.offset for receipt in receipts) == [*range(20_000)]
    at = {receipt.offset: number for number, receipt in enumerate(receipts)}
    assert all(int(one["value"]) == at[one["offset"]] for one in stored(api, "many"))


def test_two_streams_on_a_subject(nats_address, api):
    for name in ("twin-a", "twin-b"):
        api.call("CreateStream", name=name, subject="twins")

    async def test(client):
        first = await client.publish("twins", b"value")
        await asyncio.sleep(0.5)
        return first

    strays = []
    first = talk(nats_address, test, stray=strays.append)
    assert [one.outcome for one in strays] == [Outcome.DUPLICATE]
    assert {first.stream, strays[0].stream} == {"twin-a", "twin-b"}


def test_nobody_acknowledges_a_subject_without_a_stream(nats_address, api):
    async def test(client):
        with pytest.raises(TimeoutError):
            await client.publish("nowhere", b"value")

    talk(nats_address, test, timeout=0.3)


def test_a_checksum_is_accepted(nats_address, api):
    api.call("CreateStream", name="checked", subject="checked")

    async def test(client):
        return await client.publish("checked", b"value", crc=True)

    assert talk(nats_address, test).offset == 0
    assert [one["value"] for one in stored(api, "checked")] == [b"value"]


def test_subscribers_see_what_google_s_library_wrote(nats_address):
    """Enveloped messages, with a checksum and without, plain ones, and damaged ones, to a subscriber of ours."""
    good = written("proto.Message", {"key": b"k", "value": b"v", "offset": -1, "headers": {"h": b"1"}})
    payloads = [envelope(good), envelope(good, crc=True), b"plain", b"", envelope(good)[:-3],
                envelope(good, crc=True)[:-1] + b"?"]

    async def test(client):
        tables = await client.subscribe("seen", count=4, seconds=0.2)
        for payload in payloads:
            await client._nats.publish("seen", payload)
        seen = []
        async for table in tables:
            seen += [(row.kind, row.fault, bytes(row.value or b"")) for row in table]
            if len(seen) == len(payloads):
                return seen

    seen = talk(nats_address, test)
    assert seen[:4] == [(Kind.PUBLISH, 0, b"v")] * 2 + [(Kind.PLAIN, 0, b"plain"), (Kind.PLAIN, 0, b"")]
    assert all(fault for _, fault, _ in seen[4:])


def test_a_queue_is_shared(nats_address):
    async def test(client):
        feeds = [await client.subscribe("shared", queue="workers", seconds=60) for _ in range(2)]
        for number in range(100):
            await client._nats.publish("shared", b"%d" % number)
        await client.close()
        return [[int(bytes(row.value)) async for table in feed for row in table] for feed in feeds]

    shares = talk(nats_address, test)
    assert sorted(sum(shares, [])) == [*range(100)] and all(shares)


def test_a_capture_of_ours_is_what_google_s_library_reads():
    sent = Publisher(inbox="acks").publish("orders", b"value", key=b"key", headers={"a": b"1", "b": b""},
                                           ack_policy=AckPolicy.ALL, expected_offset=7, correlation_id="one")
    found = plain("proto.Message", sent.payload[8:])
    assert (found["offset"], found["key"], found["value"], found["headers"]) == (7, b"key", b"value",
                                                                              {"a": b"1", "b": b""})
    assert (found["ackInbox"], found["correlationId"], found["ackPolicy"]) == ("acks", "one", AckPolicy.ALL)
