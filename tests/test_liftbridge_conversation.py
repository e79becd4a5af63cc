"""Publisher, Subscriber and Client of Liftbridge: every message has one fate and every ack is told, in whatever order
they come; every payload is in one table, however they are batched."""
import asyncio
import contextlib
import logging
import zlib

import nats.errors
import numpy as np
import pytest
from fake_liftbridge import MAGIC, FakeLiftbridge, ack, fields, message
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from wirescan import Fault, FrameError, Limits
from wirescan.liftbridge.kind import AckError, AckPolicy, Kind
from wirescan.liftbridge.publisher import Outcome, Publisher, PublishError, Receipt
from wirescan.liftbridge.subjects import partition_of, subjects_of
from wirescan.liftbridge.subscriber import Subscriber

NEXT = (1 << 64) - 1        # -1, as the wire has it


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def outcomes(receipts):
    return [(receipt.outcome, receipt.correlation_id) for receipt in receipts]


# ---------------------------------------------------------------------------- what is sent

def test_a_message_as_it_is_sent():
    publisher = Publisher(inbox="acks.here")
    sent = publisher.publish("orders", b"value", key=b"key", headers={"trace": b"7"}, ack_policy=AckPolicy.ALL,
                             expected_offset=41, correlation_id="one")
    assert (sent.subject, sent.correlation_id, sent.acknowledged) == ("orders", "one", True)
    found = message(sent.payload)
    assert found.pop(9) == fields(f1="trace", f2=b"7")
    assert found == {1: 41, 2: b"key", 3: b"value", 10: b"acks.here", 11: b"one", 12: AckPolicy.ALL}


def test_what_is_not_said_is_the_next_offset_a_new_inbox_and_a_new_id():
    publisher = Publisher()
    found = [message(publisher.publish("orders", b"").payload) for _ in range(2)]
    assert publisher.inbox.startswith("_INBOX.") and publisher.inbox != Publisher().inbox
    assert [one[1] for one in found] == [NEXT, NEXT] and {one[10] for one in found} == {publisher.inbox.encode()}
    assert found[0][11] != found[1][11] and publisher.unacknowledged == 2


def test_without_a_policy_nothing_is_waited_for():
    publisher = Publisher()
    sent = publisher.publish("orders", b"value", ack_policy=AckPolicy.NONE)
    assert not sent.acknowledged and publisher.unacknowledged == 0 and publisher.deadline is None
    refused, again = publisher.receive([ack(sent.correlation_id, error=3, policy=2)] * 2)
    assert refused.outcome is Outcome.REFUSED and refused.error.code is AckError.TOO_LARGE
    assert again.outcome is Outcome.DUPLICATE


@given(st.lists(st.none() | st.binary(max_size=5), min_size=1), st.integers(1, 9))
@settings(max_examples=50)
def test_many_are_sent_as_each_alone(keys, partitions):
    many, alone = Publisher(inbox="acks"), Publisher(inbox="acks")
    values = [b"%d" % number for number in range(len(keys))]
    ids = [f"id {number}" for number in range(len(keys))]
    sent = many.publish_many("orders", values, keys=keys, partitions=partitions, correlation_ids=ids)
    one_by_one = [alone.publish("orders", value, key=key, partitions=partitions, correlation_id=one)
                  for value, key, one in zip(values, keys, ids)]
    assert [one._replace(payload=message(one.payload)) for one in sent] == [
        one._replace(payload=message(one.payload)) for one in one_by_one]
    for one, key in zip(sent, keys):
        number = zlib.crc32(key or b"") % partitions
        assert one.subject == (f"orders.{number}" if number else "orders")


@given(st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=9))
@settings(max_examples=20)
def test_one_value_or_key_for_all(column):
    many, alone = Publisher(inbox="acks"), Publisher(inbox="acks")
    ids = [f"id {number}" for number in range(len(column))]
    for sent, one_by_one in (
        (many.publish_many("orders", "one", keys=column, partitions=5, correlation_ids=ids),
         [alone.publish("orders", b"one", key=key, partitions=5, correlation_id=one)
          for key, one in zip(column, ids)]),
        (many.publish_many("orders", column, keys="key", partitions=5, correlation_ids=[one + "'" for one in ids]),
         [alone.publish("orders", value or b"", key=b"key", partitions=5, correlation_id=one + "'")
          for value, one in zip(column, ids)]),
    ):
        assert [one.subject for one in sent] == [one.subject for one in one_by_one]
        assert [message(one.payload) for one in sent] == [
            {number: value for number, value in message(one.payload).items()
             if number != 3 or 3 in message(two.payload)}
            for one, two in zip(one_by_one, sent)]


def test_partitions():
    assert subjects_of("a.b", 3) == ("a.b", "a.b.1", "a.b.2")
    assert partition_of(b"123456789", 1000) == 0xCBF43926 % 1000 == partition_of("123456789", 1000)
    assert partition_of(None, 7) == partition_of(b"", 7) == 0
    assert partition_of(memoryview(b"1-2-3")[::2], 1000) == partition_of(b"123", 1000)
    for key, partitions, error in ((b"", 0, ValueError), (b"", -3, ValueError), ("\udcff", 7, ValueError),
                                   (b"", 1.5, TypeError), (7, 7, TypeError)):
        with pytest.raises(error):
            partition_of(key, partitions)
    publisher = Publisher()
    assert publisher.publish("orders", b"", partitions=3, partition=2).subject == "orders.2"
    sent = publisher.publish_many("orders", [b"a", b"b", b"c"], partitions=2, partition=np.array([1, 0, 1]))
    assert [one.subject for one in sent] == ["orders.1", "orders", "orders.1"]
    assert [one.subject for one in publisher.publish_many("orders", [b"a"], partitions=2, partition=1)] == ["orders.1"]


@pytest.mark.parametrize("subject", ["", "a b", "a..b", ".a", "a.", "a.*", ">", "a\r\nPUB b 0", "a\n", " a", "a\x00b"])
def test_what_is_no_subject(subject):
    with pytest.raises(ValueError):
        Publisher().publish(subject, b"")
    with pytest.raises(ValueError):
        Publisher(inbox=subject)


def test_arguments_that_do_not_fit_change_nothing():
    publisher = Publisher()
    publisher.publish("orders", b"", correlation_id="taken")
    for wrong in (
        lambda: publisher.publish("orders", b"", partitions=0),
        lambda: publisher.publish("orders", b"", partitions=2, partition=2),
        lambda: publisher.publish("orders", b"", partition=-1),
        lambda: publisher.publish("orders", b"", correlation_id=""),
        lambda: publisher.publish("orders", b"", correlation_id="taken"),
        lambda: publisher.publish("orders", b"", correlation_id="\udcff"),
        lambda: publisher.publish("orders", b"", key="\udcff"),
        lambda: publisher.publish("orders", b"", ack_policy=9),
        lambda: publisher.publish_many("orders", [b"", b""], correlation_ids=["same", "same"]),
        lambda: publisher.publish_many("orders", [b"", b""], correlation_ids=["one"]),
        lambda: publisher.publish_many("orders", [b"", b""], partition=[0]),
        lambda: publisher.publish_many("orders", b"one"),
        lambda: Publisher(timeout=0),
        lambda: Publisher(remembered=-1),
    ):
        with pytest.raises(ValueError) as caught:
            wrong()
        assert not isinstance(caught.value, UnicodeError)
    for wrong in (
        lambda: publisher.publish("orders", 7),
        lambda: publisher.publish(b"orders", b""),
        lambda: publisher.publish("orders", b"", correlation_id=b"one"),
        lambda: publisher.publish("orders", b"", partition=0.5),
        lambda: publisher.publish("orders", b"", key=7),
        lambda: publisher.publish_many("orders", [b"", b""], ack_policy=[0, 2]),
        lambda: publisher.publish_many("orders", [b""], partition=np.ma.array([0], mask=[True])),
    ):
        with pytest.raises(TypeError):
            wrong()
    assert publisher.unacknowledged == 1


# ---------------------------------------------------------------------------- what is heard

def test_an_ack_says_where_the_message_is():
    publisher = Publisher()
    publisher.publish("orders", b"", partitions=2, partition=1, correlation_id="one")
    receipt, = publisher.receive([ack("one", 41, stream="Orders", subject="orders.1", received=5, committed=6)])
    assert receipt == Receipt(Outcome.ACKED, "one", 41, "Orders", "orders.1", 5, 6)


@pytest.mark.parametrize("code", [*AckError][1:] + [77, -1])
def test_a_refusal_is_an_error(code):
    publisher = Publisher()
    publisher.publish("orders", b"", correlation_id="one")
    receipt, = publisher.receive([ack("one", error=code)])
    error = receipt.error
    assert (receipt.outcome, receipt.offset) == (Outcome.REFUSED, -1)
    assert isinstance(error, PublishError) and error.code == code and isinstance(error.code, AckError) == (0 < code < 5)
    assert (error.correlation_id, error.stream, error.subject, error.offset) == ("one", "orders", "orders", 0)
    assert "'one'" in str(error) and (AckError(code).name if 0 < code < 5 else str(code)) in str(error)


def test_what_is_no_ack_is_told_in_its_place():
    publisher = Publisher()
    publisher.publish("orders", b"", correlation_id="one")
    receipts = publisher.receive([
        b"", b"plain", MAGIC, MAGIC + b"\0" + fields(f3=b"value"), ack("one", 3), MAGIC + b"\1\xff", ack("\\xff"),
        MAGIC + b"\1" + fields(f6=b"\xff"), MAGIC + b"\1"])
    assert [receipt.outcome for receipt in receipts] == [
        *[Outcome.DAMAGED] * 4, Outcome.ACKED, Outcome.DAMAGED, *[Outcome.UNKNOWN] * 3]
    assert [receipt.error.fault for receipt in receipts[:4]] == [
        Fault.NOT_A_FRAME, Fault.NOT_A_FRAME, Fault.TRUNCATED, Fault.NOT_A_FRAME]
    assert isinstance(receipts[5].error, FrameError)
    assert [receipt.correlation_id for receipt in receipts[6:]] == ["\\xff", "\\xff", ""]


def test_a_message_expires_once_and_its_ack_comes_late():
    clock = Clock()
    publisher = Publisher(timeout=5, clock=clock)
    publisher.publish("orders", b"", correlation_id="one")
    clock.now += 1
    publisher.publish("orders", b"", correlation_id="two")
    assert publisher.deadline == 105 and publisher.expire() == []
    clock.now = 105.0
    expired, = publisher.expire()
    assert (expired.outcome, expired.correlation_id, expired.offset) == (Outcome.EXPIRED, "one", -1)
    assert isinstance(expired.error, TimeoutError) and "'one'" in str(expired.error)
    assert publisher.expire() == [] and publisher.deadline == 106
    late, again = publisher.receive([ack("one", 9), ack("one", 9)])
    assert (late.outcome, late.offset, again.outcome) == (Outcome.LATE, 9, Outcome.DUPLICATE)
    assert publisher.unacknowledged == 1


def test_two_streams_on_a_subject_ack_twice():
    publisher = Publisher()
    publisher.publish("orders", b"", correlation_id="one")
    receipts = publisher.receive([ack("one", 3, stream="a"), ack("one", 0, stream="b")])
    assert [(one.outcome, one.stream, one.offset) for one in receipts] == [
        (Outcome.ACKED, "a", 3), (Outcome.DUPLICATE, "b", 0)]


def test_an_id_may_be_used_again_when_it_is_settled_or_forgotten():
    publisher = Publisher()
    for _ in range(2):
        publisher.publish("orders", b"", correlation_id="one")
        assert outcomes(publisher.receive([ack("one")])) == [(Outcome.ACKED, "one")]
    publisher.publish("orders", b"", correlation_id="two")
    publisher.forget("two")
    publisher.forget("never there")
    assert publisher.unacknowledged == 0 and outcomes(publisher.receive([ack("two")])) == [(Outcome.UNKNOWN, "two")]


def test_no_more_is_remembered_than_asked_for():
    publisher = Publisher(remembered=2)
    ids = [sent.correlation_id for sent in publisher.publish_many("orders", [b""] * 3)]
    publisher.receive([ack(one) for one in ids])
    assert [outcome for outcome, _ in outcomes(publisher.receive([ack(one) for one in ids]))] == [
        Outcome.UNKNOWN, Outcome.DUPLICATE, Outcome.DUPLICATE]


class Publishing(RuleBasedStateMachine):
    """A Publisher, and acks in any order: lost, late, twice, for nothing, refusals, and bytes that are none."""

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.publisher = Publisher(timeout=5, clock=self.clock)
        self.expires, self.fates, self.wire, self.expected = {}, {}, [], []

    def _sent(self, sent):
        self.expires |= {one.correlation_id: self.clock.now + 5 for one in sent if one.acknowledged}

    @rule(policy=st.sampled_from(AckPolicy))
    def publish(self, policy):
        self._sent([self.publisher.publish("orders", b"value", ack_policy=policy)])

    @rule(count=st.integers(0, 5), policy=st.sampled_from(AckPolicy))
    def publish_many(self, count, policy):
        self._sent(self.publisher.publish_many("orders", [b"value"] * count, ack_policy=policy))

    @rule(data=st.data(), code=st.sampled_from([0, 0, 0, 1, 2, 77]))
    def answer(self, data, code):
        """An ack, or a refusal, of anything that was ever sent."""
        if ids := [*self.expires, *self.fates]:
            one = data.draw(st.sampled_from(ids))
            self.wire.append((ack(one, 7, code), one, code))

    @rule(payload=st.sampled_from([b"", b"plain", MAGIC + b"\1\xff", ack("not ours"), ack()]))
    def disturb(self, payload):
        self.wire.append((payload, None, 0))

    @rule(count=st.integers(1, 9))
    def receive(self, count):
        taken, self.wire = self.wire[:count], self.wire[count:]
        receipts = self.publisher.receive([payload for payload, _, _ in taken])
        assert len(receipts) == len(taken)
        for receipt, (_, one, code) in zip(receipts, taken):
            if one is None:
                assert receipt.outcome in (Outcome.UNKNOWN, Outcome.DAMAGED)
                continue
            if one in self.expires:
                expected = Outcome.REFUSED if code else Outcome.ACKED
                del self.expires[one]
            else:
                expected = Outcome.LATE if self.fates[one] is Outcome.EXPIRED else Outcome.DUPLICATE
            self.fates[one] = expected
            assert (receipt.outcome, receipt.correlation_id) == (expected, one)
            assert receipt.offset == (-1 if code else 7) and (receipt.error is not None) == (code != 0)

    @rule(seconds=st.sampled_from([0, 1, 2.5, 5, 9]))
    def wait(self, seconds):
        self.clock.now += seconds
        due = [one for one, when in self.expires.items() if when <= self.clock.now]
        assert outcomes(self.publisher.expire()) == [(Outcome.EXPIRED, one) for one in due]
        for one in due:
            del self.expires[one]
            self.fates[one] = Outcome.EXPIRED

    @invariant()
    def what_waits_is_known(self):
        assert self.publisher.unacknowledged == len(self.expires)
        assert self.publisher.deadline == min(self.expires.values(), default=None)


Publishing.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestPublishing = Publishing.TestCase


# ---------------------------------------------------------------------------- subscribing

GOOD = MAGIC + b"\0" + fields(f1=-1, f2=b"key", f3=b"value", f9=fields(f1="name", f2=b"header"))
PAYLOADS = st.sampled_from([
    GOOD, MAGIC + b"\0", b"", b"plain", b"LIFT" + fields(f3=b"old"), ack("one", 3), MAGIC, MAGIC + b"\0\xff",
    MAGIC + b"\x63", b"\xb9\x0eC\xb4\x01\x08\0\0"])


def drained(subscriber):
    tables = []
    while (table := subscriber.poll()) is not None:
        tables.append(table)
    return tables


def content(table):
    places = [[None if one is None else bytes(one) for one in row] for row in table]
    return [*zip(table["fault"].tolist(), table["kind"].tolist(), table["size"].tolist(), places)]


@given(st.lists(PAYLOADS, max_size=40), st.integers(1, 12), st.integers(1, 120), st.integers(1, 9),
       st.lists(st.sampled_from([0, 0, 0.4, 1]), min_size=40, max_size=40),
       st.sampled_from(["liftbridge.messages", "liftbridge.envelopes", "liftbridge.headers", "liftbridge.acks"]),
       st.sampled_from(["mark", "skip"]))
@settings(max_examples=150)
def test_the_rows_are_the_same_however_they_are_batched(payloads, count, most, chunk, pauses, format, errors):
    whole = Subscriber(format=format, errors=errors)
    whole.receive(payloads)
    expected = whole.flush()
    clock = Clock()
    subscriber = Subscriber(count=count, bytes=most, seconds=1, format=format, errors=errors, clock=clock)
    tables, sizes = [], []
    for at, pause in zip(range(0, len(payloads), chunk), pauses):
        subscriber.receive(payloads[at:at + chunk])
        clock.now += pause
        held = subscriber.held
        for table in drained(subscriber):
            tables.append(table)
        sizes.append(held - subscriber.held)
        assert not subscriber.ready and subscriber.held < count
        assert subscriber.deadline is None or clock.now < subscriber.deadline <= clock.now + 1
    while (table := subscriber.flush()) is not None:
        tables.append(table)
    assert subscriber.held == 0 and subscriber.deadline is None and (expected is None) == (not payloads)
    assert [row for table in tables for row in content(table)] == (content(expected) if payloads else [])
    if errors == "mark" and format == "liftbridge.messages":
        assert sum(len(table.outer) for table in tables) == len(payloads)


def test_batches_end_by_count_bytes_and_time():
    clock = Clock()
    subscriber = Subscriber(count=3, bytes=10, seconds=2, format="liftbridge.envelopes", clock=clock)
    subscriber.receive([b"1", b"2"])
    assert subscriber.poll() is None and subscriber.held == 2 and subscriber.deadline == 102
    clock.now = 101.0
    subscriber.receive([b"3", b"4"])
    table = subscriber.poll()
    assert len(table) == 3 and (table["kind"] == Kind.PLAIN).all()
    assert subscriber.poll() is None and subscriber.deadline == 103
    subscriber.receive([b"a long payload", b"5"])
    assert [len(table) for table in drained(subscriber)] == [2] and subscriber.held == 1
    clock.now = 104.0
    assert [len(table) for table in drained(subscriber)] == [1] and subscriber.deadline is None
    subscriber.receive([b"6"])
    clock.now = 105.0
    subscriber.receive([b"7"])
    assert not subscriber.ready
    clock.now = 106.0
    assert [len(table) for table in drained(subscriber)] == [2]


def test_a_message_in_a_table():
    subscriber = Subscriber()
    subscriber.receive([b"plain", GOOD, ack("one")])
    table = subscriber.flush()
    assert table.name == "liftbridge.messages" and table["parent"].tolist() == [0, 1] and len(table.outer) == 3
    assert bytes(table[0].value) == b"plain" and table[0].key is None
    assert (bytes(table[1].key), bytes(table[1].value), table[1].offset) == (b"key", b"value", -1)
    assert [(bytes(key), bytes(value)) for key, value in table[1].headers] == [(b"name", b"header")]


def test_strict_keeps_the_batch_that_it_refuses():
    subscriber = Subscriber(count=2, errors="strict")
    subscriber.receive([GOOD, GOOD, GOOD, MAGIC])
    assert len(subscriber.poll()) == 2
    for _ in range(2):
        with pytest.raises(FrameError) as caught:
            subscriber.poll()
        assert caught.value.fault is Fault.TRUNCATED and caught.value.row == 1 and subscriber.held == 2
    table = subscriber.poll(errors="mark")
    assert table["fault"].tolist() == [0, Fault.TRUNCATED] and subscriber.held == 0


def test_a_batch_has_no_more_payloads_than_a_table_may_have_rows():
    subscriber = Subscriber(limits=Limits(rows=2))
    subscriber.receive([b"1", b"2", b"3"])
    assert [len(table) for table in drained(subscriber)] == [2] and len(subscriber.flush()) == 1


def test_arguments_of_a_subscriber():
    for wrong in ({"count": 0}, {"bytes": 0}, {"seconds": -1}, {"seconds": float("nan")}, {"errors": "lax"},
                  {"format": "kafka.records"}, {"format": "nats.messages"}, {"format": "nothing"}):
        with pytest.raises(ValueError):
            Subscriber(**wrong)
    for wrong in ({"count": 1.5}, {"limits": 7}):
        with pytest.raises(TypeError):
            Subscriber(**wrong)
    subscriber = Subscriber()
    for wrong in ([b"good", "text"], [7], 7):
        with pytest.raises(TypeError):
            subscriber.receive(wrong)
    assert subscriber.held == 0


# ---------------------------------------------------------------------------- over a connection

def held(test, answer=None, **options):
    """Runs test(client, server)."""
    from wirescan.liftbridge.client import Client

    async def run():
        async with asyncio.timeout(20), FakeLiftbridge(answer) as server:
            async with Client(server.url, **{"allow_reconnect": False, **options}) as client:
                await test(client, server)

    asyncio.run(run())


def test_client_publishes():
    async def test(client, server):
        receipt = await client.publish("orders", b"value", key=b"key", headers={"trace": b"7"})
        assert (receipt.outcome, receipt.offset, receipt.received) == (Outcome.ACKED, 0, 7)
        assert await client.publish("orders", b"value", ack_policy=AckPolicy.NONE) is None
        receipts = await asyncio.gather(*(client.publish("orders", b"%d" % number) for number in range(20)))
        assert sorted(receipt.offset for receipt in receipts) == [*range(2, 22)]
        receipts = await client.publish_many("orders", [b"%d" % number for number in range(50)], partitions=3,
                                             keys=[b"%d" % number for number in range(50)])
        assert {receipt.subject for receipt in receipts} == {"orders", "orders.1", "orders.2"}
        assert await client.publish_many("orders", [b"a", b"b"], ack_policy=AckPolicy.NONE) == [None, None]
        await client.publish("orders", b"the last one")
        assert len(server.stored) == 75

    held(test)


def test_client_raises_what_is_refused_and_what_is_not_answered():
    def answer(subject, found):
        code = {b"refuse": 2, b"keep still": None}.get(found[3], 0)
        return [] if code is None else [ack(found[11].decode(), 5, code)]

    async def test(client, server):
        with pytest.raises(PublishError) as caught:
            await client.publish("orders", b"refuse", expected_offset=9)
        assert caught.value.code is AckError.INCORRECT_OFFSET
        with pytest.raises(TimeoutError):
            await client.publish("orders", b"keep still")
        values = [b"good", b"refuse", b"keep still", b"good"]
        with pytest.raises(ExceptionGroup) as group:
            await client.publish_many("orders", values)
        assert [type(error) for error in group.value.exceptions] == [PublishError, TimeoutError]
        results = await client.publish_many("orders", values, return_exceptions=True)
        assert [type(one) for one in results] == [Receipt, PublishError, TimeoutError, Receipt]
        with pytest.raises(Exception, match="maximum payload"):
            await client.publish("orders", bytes(2 << 20))
        assert client._publisher.unacknowledged == 0
        assert (await client.publish("orders", b"good")).offset == 5

    held(test, answer, timeout=0.2)


def test_client_tells_what_nobody_waits_for(caplog):
    def answer(subject, found):
        one = found[11].decode()
        return [b"noise", ack("not ours"), ack(one, 1), ack(one, 2)]

    async def test(client, server):
        assert (await client.publish("orders", b"value")).offset == 1
        await asyncio.sleep(0)
        await client.publish("orders", b"value")

    strays = []
    held(test, answer, stray=strays.append)
    assert [one.outcome for one in strays] == [Outcome.DAMAGED, Outcome.UNKNOWN, Outcome.DUPLICATE] * 2
    with caplog.at_level(logging.WARNING, "wirescan"):
        held(test, answer)
    assert "not ours" in caplog.text


def test_client_closes_on_who_still_waits():
    async def test(client, server):
        waiting = asyncio.ensure_future(client.publish("orders", b"value"))
        while not server.stored:
            await asyncio.sleep(0.001)
        await client.close()
        with pytest.raises(ConnectionError):
            await waiting

    held(test, lambda subject, found: [])


def test_client_goes_on_over_a_new_connection():
    async def test(client, server):
        tables = await client.subscribe("orders", seconds=0.05)
        await client.publish("orders", b"before")
        server.hang_up()
        with contextlib.suppress(TimeoutError):         # where it went into the old connection
            await client.publish("orders", b"lost or not")
        await client.publish("orders", b"after")
        seen = []
        async for table in tables:
            seen += [bytes(row.value) for row in table]
            if b"after" in seen:
                break
        assert [one for one in seen if one != b"lost or not"] == [b"before", b"after"]

    held(test, timeout=0.3, allow_reconnect=True, reconnect_time_wait=0.01)


def test_client_is_strict_if_asked():
    async def test(client, server):
        tables = await client.subscribe("orders", count=1, errors="strict")
        for payload in GOOD, MAGIC, GOOD:
            server.deliver("orders", payload)
        assert len(await anext(tables)) == 1
        with pytest.raises(FrameError):
            await anext(tables)
        assert not client._feeds
        await client.publish("orders", b"value")

    held(test)


def test_client_subscribes():
    async def test(client, server):
        tables = await client.subscribe("orders", partitions=2, count=3, seconds=0.05)
        await client.publish_many("orders", [b"%d" % number for number in range(10)], partition=np.arange(10) % 2,
                                  partitions=2)
        seen = []
        async for table in tables:
            assert 1 <= len(table) <= 3
            seen += [int(bytes(row.value)) for row in table]
            if len(seen) == 10:
                break
        await tables.aclose()
        assert sorted(seen) == [*range(10)] and [one for one in seen if one % 2] == [1, 3, 5, 7, 9]
        await client.publish("orders", b"nobody listens")

    held(test)


def test_client_gives_what_has_arrived_when_it_is_closed():
    async def test(client, server):
        tables = await client.subscribe("orders", count=4, seconds=60)
        for number in range(10):
            await client.publish("orders", b"%d" % number)
        await client.close()
        assert [[bytes(row.value) for row in table] async for table in tables] == [
            [b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8", b"9"]]

    held(test)


def test_client_says_that_messages_were_dropped():
    async def test(client, server):
        tables = await client.subscribe("orders", count=1)
        feed, = client._feeds.values()
        subscription, = client._feeds
        subscription._pending_queue._maxsize = 2        # nats-py's own bound, of half a million
        for number in range(9):
            server.deliver("orders", b"%d" % number)
        from nats.errors import SlowConsumerError
        seen = []
        with pytest.raises(SlowConsumerError):
            while feed.lost is None:
                await asyncio.sleep(0.001)
            async for table in tables:
                seen += [int(bytes(row.value)) for row in table]
        assert seen and seen == [*range(len(seen))] and len(seen) < 9

    held(test)


@pytest.mark.parametrize("options", [{}, {"allow_reconnect": True, "max_reconnect_attempts": 1,
                                          "reconnect_time_wait": 0.01}])
def test_client_says_that_the_connection_is_lost_for_good(options):
    told = []

    async def ended():
        told.append("ended")

    async def test(client, server):
        tables = await client.subscribe("orders", seconds=60)
        await client.publish("orders", b"before")
        server.stop()
        assert [bytes(row.value) for row in await anext(tables)] == [b"before"]
        with pytest.raises(nats.errors.ConnectionClosedError):
            await anext(tables)
        assert told == ["ended"]

    held(test, closed_cb=ended, **options)


def test_client_leaves_nobody_waiting_when_it_cannot_be_closed_well():
    async def test(client, server):
        tables = await client.subscribe("orders", seconds=60)
        waiting = asyncio.ensure_future(client.publish("orders", b"value"))
        while not server.stored:
            await asyncio.sleep(0.001)

        async def drain():
            raise nats.errors.FlushTimeoutError

        client._nats.drain = drain
        with pytest.raises(nats.errors.FlushTimeoutError):
            await client.close()
        assert client._nats.is_closed
        with pytest.raises(ConnectionError):
            await waiting
        assert [bytes(row.value) async for table in tables for row in table] == [b"value"]

    held(test, lambda subject, found: [])


def test_client_wants_coroutine_functions():
    from wirescan.liftbridge.client import Client
    for name in "error_cb", "closed_cb":
        with pytest.raises(TypeError):
            Client(**{name: print})
