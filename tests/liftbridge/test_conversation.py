"""Liftbridge's Publisher, Subscriber and Client.

Every message has one outcome and every ack has a receipt, whatever their order. Every payload is in
one table, whatever the batches.
"""

import asyncio
import contextlib
import logging
import zlib

import nats.errors
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.examples import read_example_count
from tests.support.fake_liftbridge import (
    MAGIC,
    FakeLiftbridge,
    make_ack,
    make_fields,
    parse_message,
)
from wirescan import Fault, FrameError, Limits
from wirescan.liftbridge.constants import AckError, AckPolicy, Kind
from wirescan.liftbridge.live.publisher import Outcome, Publisher, PublishError, Receipt
from wirescan.liftbridge.live.subjects import compute_partition, list_subjects
from wirescan.liftbridge.live.subscriber import Subscriber

NEXT = (1 << 64) - 1  # -1 on the wire


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def list_outcomes(receipts):
    return [(receipt.outcome, receipt.correlation_id) for receipt in receipts]


def with_content(sent):
    """Replace the payload of each published message with its decoded fields."""
    return [published._replace(payload=parse_message(published.payload)) for published in sent]


# ---- published messages


def test_the_payload_of_a_message():
    publisher = Publisher(inbox="acks.here")
    sent = publisher.publish(
        "orders",
        b"value",
        key=b"key",
        headers={"trace": b"7"},
        ack_policy=AckPolicy.ALL,
        expected_offset=41,
        correlation_id="one",
    )
    assert (sent.subject, sent.correlation_id, sent.acknowledged) == ("orders", "one", True)
    content = parse_message(sent.payload)
    assert content.pop(9) == make_fields(f1="trace", f2=b"7")
    assert content == {
        1: 41,
        2: b"key",
        3: b"value",
        10: b"acks.here",
        11: b"one",
        12: AckPolicy.ALL,
    }


def test_defaults_are_any_offset_a_new_inbox_and_a_new_id():
    publisher = Publisher()
    first, second = [parse_message(publisher.publish("orders", b"").payload) for _ in range(2)]
    assert publisher.inbox.startswith("_INBOX.")
    assert publisher.inbox != Publisher().inbox
    for content in (first, second):
        assert content[1] == NEXT
        assert content[10] == publisher.inbox.encode()
    assert first[11] != second[11]
    assert publisher.unacknowledged == 2


def test_without_an_ack_policy_no_ack_is_awaited():
    publisher = Publisher()
    sent = publisher.publish("orders", b"value", ack_policy=AckPolicy.NONE)
    assert not sent.acknowledged
    assert publisher.unacknowledged == 0
    assert publisher.deadline is None
    refused, again = publisher.receive([make_ack(sent.correlation_id, error=3, policy=2)] * 2)
    assert refused.outcome is Outcome.REFUSED
    assert refused.error.code is AckError.TOO_LARGE
    assert again.outcome is Outcome.DUPLICATE


@given(st.lists(st.none() | st.binary(max_size=5), min_size=1), st.integers(1, 9))
@settings(max_examples=read_example_count(10))
def test_publish_many_sends_the_same_as_publish(keys, partitions):
    many = Publisher(inbox="acks")
    alone = Publisher(inbox="acks")
    values = [b"%d" % number for number in range(len(keys))]
    ids = [f"id {number}" for number in range(len(keys))]
    sent = many.publish_many(
        "orders", values, keys=keys, partitions=partitions, correlation_ids=ids
    )
    one_by_one = [
        alone.publish("orders", value, key=key, partitions=partitions, correlation_id=id_)
        for value, key, id_ in zip(values, keys, ids)
    ]
    assert with_content(sent) == with_content(one_by_one)
    for published, key in zip(sent, keys):
        number = zlib.crc32(key or b"") % partitions
        assert published.subject == (f"orders.{number}" if number else "orders")


@given(st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=9))
@settings(max_examples=read_example_count(8))
def test_publish_many_with_one_value_or_key(column):
    many = Publisher(inbox="acks")
    alone = Publisher(inbox="acks")
    ids = [f"id {number}" for number in range(len(column))]
    options = dict(partitions=5)
    by_key = many.publish_many("orders", "one", keys=column, correlation_ids=ids, **options)
    by_key_alone = [
        alone.publish("orders", b"one", key=key, correlation_id=id_, **options)
        for key, id_ in zip(column, ids)
    ]
    ids = [id_ + "'" for id_ in ids]
    by_value = many.publish_many("orders", column, keys="key", correlation_ids=ids, **options)
    by_value_alone = [
        alone.publish("orders", value or b"", key=b"key", correlation_id=id_, **options)
        for value, id_ in zip(column, ids)
    ]
    for sent, one_by_one in ((by_key, by_key_alone), (by_value, by_value_alone)):
        subjects = [published.subject for published in one_by_one]
        assert [published.subject for published in sent] == subjects
        contents = [parse_message(published.payload) for published in sent]
        expected = [parse_message(published.payload) for published in one_by_one]
        for content, wanted in zip(contents, expected):
            if 3 not in content:  # above, publish() got b"" for a null value
                wanted.pop(3, None)
        assert contents == expected


def test_partitions_follow_the_hash_of_the_key():
    assert list_subjects("a.b", 3) == ("a.b", "a.b.1", "a.b.2")
    assert compute_partition(b"123456789", 1000) == 0xCBF43926 % 1000
    assert compute_partition("123456789", 1000) == 0xCBF43926 % 1000
    assert compute_partition(None, 7) == compute_partition(b"", 7) == 0
    assert compute_partition(memoryview(b"1-2-3")[::2], 1000) == compute_partition(b"123", 1000)
    for key, partitions, error, reason in (
        (b"", 0, ValueError, "not 0"),
        (b"", -3, ValueError, "not -3"),
        ("\udcff", 7, ValueError, "key has a surrogate"),
        (b"", 1.5, TypeError, "partitions must be an integer"),
        (7, 7, TypeError, "key must be bytes or str"),
    ):
        with pytest.raises(error, match=reason):
            compute_partition(key, partitions)
    publisher = Publisher()
    assert publisher.publish("orders", b"", partitions=3, partition=2).subject == "orders.2"
    numbers = np.array([1, 0, 1])
    sent = publisher.publish_many("orders", [b"a", b"b", b"c"], partitions=2, partition=numbers)
    assert [published.subject for published in sent] == ["orders.1", "orders", "orders.1"]
    sent = publisher.publish_many("orders", [b"a"], partitions=2, partition=1)
    assert [published.subject for published in sent] == ["orders.1"]


@pytest.mark.parametrize(
    "subject", ["", "a b", "a..b", ".a", "a.", "a.*", ">", "a\r\nPUB b 0", "a\n", " a", "a\x00b"]
)
def test_bad_subjects_are_refused(subject):
    with pytest.raises(ValueError, match="a subject must be tokens between dots"):
        Publisher().publish(subject, b"")
    with pytest.raises(ValueError, match="a subject must be tokens between dots"):
        Publisher(inbox=subject)


def test_bad_arguments_change_nothing():
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
    for wrong, reason in (
        (lambda: publisher.publish("orders", 7), "value must be bytes or str"),
        (lambda: publisher.publish(b"orders", b""), "a subject must be a str"),
        (
            lambda: publisher.publish("orders", b"", correlation_id=b"one"),
            "a correlation id must be a str",
        ),
        (lambda: publisher.publish("orders", b"", partition=0.5), "partition must be an integer"),
        (lambda: publisher.publish("orders", b"", key=7), "key must be bytes or str"),
        (lambda: publisher.publish_many("orders", [b"", b""], ack_policy=[0, 2]), "as an integer"),
        (
            lambda: publisher.publish_many(
                "orders", [b""], partition=np.ma.array([0], mask=[True])
            ),
            "a masked array",
        ),
    ):
        with pytest.raises(TypeError, match=reason):
            wrong()
    assert publisher.unacknowledged == 1


# ---- acks


def test_an_ack_has_the_offset_of_its_message():
    publisher = Publisher()
    publisher.publish("orders", b"", partitions=2, partition=1, correlation_id="one")
    payload = make_ack("one", 41, stream="Orders", subject="orders.1", received=5, committed=6)
    (receipt,) = publisher.receive([payload])
    assert receipt == Receipt(Outcome.ACKED, "one", 41, "Orders", "orders.1", 5, 6)


@pytest.mark.parametrize("code", [*AckError][1:] + [77, -1])
def test_a_refusal_is_an_error(code):
    publisher = Publisher()
    publisher.publish("orders", b"", correlation_id="one")
    (receipt,) = publisher.receive([make_ack("one", error=code)])
    error = receipt.error
    assert (receipt.outcome, receipt.offset) == (Outcome.REFUSED, -1)
    assert isinstance(error, PublishError)
    assert error.code == code
    assert isinstance(error.code, AckError) == (0 < code < 5)
    assert error.correlation_id == "one"
    assert error.stream == "orders"
    assert error.subject == "orders"
    assert error.offset == 0
    assert "'one'" in str(error)
    assert (AckError(code).name if 0 < code < 5 else str(code)) in str(error)


def test_damaged_acks_have_receipts_in_order():
    publisher = Publisher()
    publisher.publish("orders", b"", correlation_id="one")
    receipts = publisher.receive(
        [
            b"",
            b"plain",
            MAGIC,
            MAGIC + b"\0" + make_fields(f3=b"value"),
            make_ack("one", 3),
            MAGIC + b"\1\xff",
            make_ack("\\xff"),
            MAGIC + b"\1" + make_fields(f6=b"\xff"),
            MAGIC + b"\1",
        ]
    )
    expected = [*[Outcome.DAMAGED] * 4, Outcome.ACKED, Outcome.DAMAGED, *[Outcome.UNKNOWN] * 3]
    assert [receipt.outcome for receipt in receipts] == expected
    faults = [receipt.error.fault.name for receipt in receipts[:4]]
    assert faults == ["NOT_A_FRAME", "NOT_A_FRAME", "TRUNCATED", "NOT_A_FRAME"]
    assert isinstance(receipts[5].error, FrameError)
    assert [receipt.correlation_id for receipt in receipts[6:]] == ["\\xff", "\\xff", ""]


def test_a_message_expires_once_and_its_ack_comes_late():
    clock = Clock()
    publisher = Publisher(timeout=5, clock=clock)
    publisher.publish("orders", b"", correlation_id="one")
    clock.now += 1
    publisher.publish("orders", b"", correlation_id="two")
    assert publisher.deadline == 105
    assert publisher.expire() == []
    clock.now = 105.0
    (expired,) = publisher.expire()
    assert (expired.outcome, expired.correlation_id, expired.offset) == (Outcome.EXPIRED, "one", -1)
    assert isinstance(expired.error, TimeoutError)
    assert "'one'" in str(expired.error)
    assert publisher.expire() == []
    assert publisher.deadline == 106
    late, again = publisher.receive([make_ack("one", 9), make_ack("one", 9)])
    assert (late.outcome, late.offset, again.outcome) == (Outcome.LATE, 9, Outcome.DUPLICATE)
    assert publisher.unacknowledged == 1


def test_two_streams_on_a_subject_ack_twice():
    publisher = Publisher()
    publisher.publish("orders", b"", correlation_id="one")
    receipts = publisher.receive([make_ack("one", 3, stream="a"), make_ack("one", 0, stream="b")])
    first, second = receipts
    assert (first.outcome, first.stream, first.offset) == (Outcome.ACKED, "a", 3)
    assert (second.outcome, second.stream, second.offset) == (Outcome.DUPLICATE, "b", 0)


def test_an_acked_or_forgotten_id_may_be_used_again():
    publisher = Publisher()
    for _ in range(2):
        publisher.publish("orders", b"", correlation_id="one")
        assert list_outcomes(publisher.receive([make_ack("one")])) == [(Outcome.ACKED, "one")]
    publisher.publish("orders", b"", correlation_id="two")
    publisher.forget("two")
    publisher.forget("never published")
    assert publisher.unacknowledged == 0
    assert list_outcomes(publisher.receive([make_ack("two")])) == [(Outcome.UNKNOWN, "two")]


def test_remembered_limits_the_old_ids():
    publisher = Publisher(remembered=2)
    ids = [sent.correlation_id for sent in publisher.publish_many("orders", [b""] * 3)]
    acks = [make_ack(id_) for id_ in ids]
    publisher.receive(acks)
    again = [receipt.outcome for receipt in publisher.receive(acks)]
    assert again == [Outcome.UNKNOWN, Outcome.DUPLICATE, Outcome.DUPLICATE]


class Publishing(RuleBasedStateMachine):
    """A Publisher, and acks in any order: lost, late, repeated, unknown, refusing, damaged.

    expires: time at which each message without an outcome expires. fates: the last outcome of each
    other message. wire: (payload, correlation id or None, error code) of each ack on its way.
    """

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.publisher = Publisher(timeout=5, clock=self.clock)
        self.expires = {}
        self.fates = {}
        self.wire = []

    def _expect_acks(self, sent):
        for published in sent:
            if published.acknowledged:
                self.expires[published.correlation_id] = self.clock.now + 5

    @rule(policy=st.sampled_from(AckPolicy))
    def publish(self, policy):
        self._expect_acks([self.publisher.publish("orders", b"value", ack_policy=policy)])

    @rule(count=st.integers(0, 5), policy=st.sampled_from(AckPolicy))
    def publish_many(self, count, policy):
        self._expect_acks(
            self.publisher.publish_many("orders", [b"value"] * count, ack_policy=policy)
        )

    @rule(data=st.data(), code=st.sampled_from([0, 0, 0, 1, 2, 77]))
    def answer(self, data, code):
        """Send an ack, or a refusal, of any message so far."""
        ids = [*self.expires, *self.fates]
        if ids:
            id_ = data.draw(st.sampled_from(ids))
            self.wire.append((make_ack(id_, 7, code), id_, code))

    @rule(
        payload=st.sampled_from(
            [b"", b"plain", MAGIC + b"\1\xff", make_ack("not ours"), make_ack()]
        )
    )
    def disturb(self, payload):
        self.wire.append((payload, None, 0))

    @rule(count=st.integers(1, 9))
    def receive(self, count):
        arrived = self.wire[:count]
        self.wire = self.wire[count:]
        receipts = self.publisher.receive([payload for payload, _, _ in arrived])
        assert len(receipts) == len(arrived)
        for receipt, (_, id_, code) in zip(receipts, arrived):
            if id_ is None:
                assert receipt.outcome in (Outcome.UNKNOWN, Outcome.DAMAGED)
                continue
            if id_ in self.expires:
                expected = Outcome.REFUSED if code else Outcome.ACKED
                del self.expires[id_]
            elif self.fates[id_] is Outcome.EXPIRED:
                expected = Outcome.LATE
            else:
                expected = Outcome.DUPLICATE
            self.fates[id_] = expected
            assert (receipt.outcome, receipt.correlation_id) == (expected, id_)
            assert receipt.offset == (-1 if code else 7)
            assert (receipt.error is not None) == (code != 0)

    @rule(seconds=st.sampled_from([0, 1, 2.5, 5, 9]))
    def wait(self, seconds):
        self.clock.now += seconds
        due = [id_ for id_, when in self.expires.items() if when <= self.clock.now]
        assert list_outcomes(self.publisher.expire()) == [(Outcome.EXPIRED, id_) for id_ in due]
        for id_ in due:
            del self.expires[id_]
            self.fates[id_] = Outcome.EXPIRED

    @invariant()
    def waiting_messages_are_counted(self):
        assert self.publisher.unacknowledged == len(self.expires)
        assert self.publisher.deadline == min(self.expires.values(), default=None)


Publishing.TestCase.settings = settings(max_examples=read_example_count(8), stateful_step_count=30)
TestPublishing = Publishing.TestCase


# ---- subscribing

GOOD = (
    MAGIC
    + b"\0"
    + make_fields(f1=-1, f2=b"key", f3=b"value", f9=make_fields(f1="name", f2=b"header"))
)
PAYLOADS = st.sampled_from(
    [
        GOOD,
        MAGIC + b"\0",
        b"",
        b"plain",
        b"LIFT" + make_fields(f3=b"old"),
        make_ack("one", 3),
        MAGIC,
        MAGIC + b"\0\xff",
        MAGIC + b"\x63",
        b"\xb9\x0eC\xb4\x01\x08\0\0",
    ]
)


def poll_all(subscriber):
    tables = []
    while (table := subscriber.poll()) is not None:
        tables.append(table)
    return tables


def content(table):
    """Return (fault, kind, size, byte columns) of each row."""
    texts = [[None if view is None else bytes(view) for view in row] for row in table]
    return [*zip(table["fault"].tolist(), table["kind"].tolist(), table["size"].tolist(), texts)]


@given(
    st.lists(PAYLOADS, max_size=40),
    st.integers(1, 12),
    st.integers(1, 120),
    st.integers(1, 9),
    st.lists(st.sampled_from([0, 0, 0.4, 1]), min_size=40, max_size=40),
    st.sampled_from(
        ["liftbridge.messages", "liftbridge.envelopes", "liftbridge.headers", "liftbridge.acks"]
    ),
    st.sampled_from(["mark", "skip"]),
)
@settings(max_examples=read_example_count(30))
def test_batches_do_not_change_the_rows(payloads, count, most, chunk, pauses, format, errors):
    whole = Subscriber(format=format, errors=errors)
    whole.receive(payloads)
    expected = whole.flush()
    clock = Clock()
    subscriber = Subscriber(
        count=count, bytes=most, seconds=1, format=format, errors=errors, clock=clock
    )
    tables = []
    for at, pause in zip(range(0, len(payloads), chunk), pauses):
        subscriber.receive(payloads[at : at + chunk])
        clock.now += pause
        tables += poll_all(subscriber)
        assert not subscriber.ready
        assert subscriber.held < count
        assert subscriber.deadline is None or clock.now < subscriber.deadline <= clock.now + 1
    while (table := subscriber.flush()) is not None:
        tables.append(table)
    assert subscriber.held == 0
    assert subscriber.deadline is None
    assert (expected is None) == (not payloads)
    rows = [row for table in tables for row in content(table)]
    assert rows == (content(expected) if payloads else [])
    if errors == "mark" and format == "liftbridge.messages":
        assert sum(len(table.outer) for table in tables) == len(payloads)


def test_batches_end_by_count_bytes_and_time():
    clock = Clock()
    subscriber = Subscriber(
        count=3, bytes=10, seconds=2, format="liftbridge.envelopes", clock=clock
    )
    subscriber.receive([b"1", b"2"])
    assert subscriber.poll() is None
    assert subscriber.held == 2
    assert subscriber.deadline == 102
    clock.now = 101.0
    subscriber.receive([b"3", b"4"])
    table = subscriber.poll()
    assert len(table) == 3
    assert (table["kind"] == Kind.PLAIN).all()
    assert subscriber.poll() is None
    assert subscriber.deadline == 103
    subscriber.receive([b"a long payload", b"5"])
    assert [len(table) for table in poll_all(subscriber)] == [2]
    assert subscriber.held == 1
    clock.now = 104.0
    assert [len(table) for table in poll_all(subscriber)] == [1]
    assert subscriber.deadline is None
    subscriber.receive([b"6"])
    clock.now = 105.0
    subscriber.receive([b"7"])
    assert not subscriber.ready
    clock.now = 106.0
    assert [len(table) for table in poll_all(subscriber)] == [2]


def test_a_message_in_a_table():
    subscriber = Subscriber()
    subscriber.receive([b"plain", GOOD, make_ack("one")])
    table = subscriber.flush()
    assert table.name == "liftbridge.messages"
    assert table["parent"].tolist() == [0, 1]
    assert len(table.outer) == 3
    assert bytes(table[0].value) == b"plain"
    assert table[0].key is None
    assert (bytes(table[1].key), bytes(table[1].value), table[1].offset) == (b"key", b"value", -1)
    assert [(bytes(key), bytes(value)) for key, value in table[1].headers] == [(b"name", b"header")]


def test_strict_keeps_a_refused_batch():
    subscriber = Subscriber(count=2, errors="strict")
    subscriber.receive([GOOD, GOOD, GOOD, MAGIC])
    assert len(subscriber.poll()) == 2
    for _ in range(2):
        with pytest.raises(FrameError) as caught:
            subscriber.poll()
        assert caught.value.fault is Fault.TRUNCATED
        assert caught.value.row == 1
        assert subscriber.held == 2
    table = subscriber.poll(errors="mark")
    assert table["fault"].tolist() == [0, Fault.TRUNCATED]
    assert subscriber.held == 0


def test_a_batch_is_within_the_limit_of_rows():
    subscriber = Subscriber(limits=Limits(rows=2))
    subscriber.receive([b"1", b"2", b"3"])
    assert [len(table) for table in poll_all(subscriber)] == [2]
    assert len(subscriber.flush()) == 1


def test_arguments_of_a_subscriber():
    bounds = "count and bytes must be 1 or more, seconds 0"
    other_format = "format must be liftbridge.envelopes or a format inside it"
    for wrong, reason in (
        ({"count": 0}, bounds),
        ({"bytes": 0}, bounds),
        ({"seconds": -1}, bounds),
        ({"seconds": float("nan")}, bounds),
        ({"errors": "lax"}, "errors must be one of"),
        ({"format": "kafka.records"}, other_format),
        ({"format": "nats.messages"}, other_format),
        ({"format": "nothing"}, "no format 'nothing'"),
    ):
        with pytest.raises(ValueError, match=reason):
            Subscriber(**wrong)
    for wrong in ({"count": 1.5}, {"limits": 7}):
        with pytest.raises(TypeError, match="as an integer|limits must be"):
            Subscriber(**wrong)
    subscriber = Subscriber()
    for wrong in ([b"good", "text"], [7], 7):
        with pytest.raises(TypeError, match="not a contiguous bytes-like object|not iterable"):
            subscriber.receive(wrong)
    assert subscriber.held == 0


# ---- over a connection


def run_with_client(test, answer=None, **options):
    """Run test(client, server) against a fake server."""
    from wirescan.liftbridge.live.client import Client

    options = {"allow_reconnect": False, **options}

    async def run():
        async with (
            asyncio.timeout(20),
            FakeLiftbridge(answer) as server,
            Client(server.url, **options) as client,
        ):
            await test(client, server)

    asyncio.run(run())


def test_the_client_publishes():
    async def test(client, server):
        receipt = await client.publish("orders", b"value", key=b"key", headers={"trace": b"7"})
        assert (receipt.outcome, receipt.offset, receipt.received) == (Outcome.ACKED, 0, 7)
        assert await client.publish("orders", b"value", ack_policy=AckPolicy.NONE) is None
        calls = [client.publish("orders", b"%d" % number) for number in range(20)]
        receipts = await asyncio.gather(*calls)
        assert sorted(receipt.offset for receipt in receipts) == [*range(2, 22)]
        values = [b"%d" % number for number in range(50)]
        receipts = await client.publish_many("orders", values, partitions=3, keys=values)
        assert {receipt.subject for receipt in receipts} == {"orders", "orders.1", "orders.2"}
        receipts = await client.publish_many("orders", [b"a", b"b"], ack_policy=AckPolicy.NONE)
        assert receipts == [None, None]
        await client.publish("orders", b"the last one")
        assert len(server.stored) == 75

    run_with_client(test)


def test_client_raises_for_refusals_and_missing_acks():
    def answer(subject, content):
        if content[3] == b"keep still":
            return []
        code = 2 if content[3] == b"refuse" else 0
        return [make_ack(content[11].decode(), 5, code)]

    async def test(client, server):
        with pytest.raises(PublishError) as caught:
            await client.publish("orders", b"refuse", expected_offset=9)
        assert caught.value.code is AckError.INCORRECT_OFFSET
        with pytest.raises(TimeoutError, match="no ack in 0.2 s"):
            await client.publish("orders", b"keep still")
        values = [b"good", b"refuse", b"keep still", b"good"]
        with pytest.raises(ExceptionGroup) as group:
            await client.publish_many("orders", values)
        assert [type(error) for error in group.value.exceptions] == [PublishError, TimeoutError]
        results = await client.publish_many("orders", values, return_exceptions=True)
        types = [type(result) for result in results]
        assert types == [Receipt, PublishError, TimeoutError, Receipt]
        with pytest.raises(Exception, match="maximum payload"):
            await client.publish("orders", bytes(2 << 20))
        assert client._publisher.unacknowledged == 0
        assert (await client.publish("orders", b"good")).offset == 5

    run_with_client(test, answer, timeout=0.2)


def test_client_reports_stray_acks(caplog):
    def answer(subject, content):
        id_ = content[11].decode()
        return [b"noise", make_ack("not ours"), make_ack(id_, 1), make_ack(id_, 2)]

    async def test(client, server):
        assert (await client.publish("orders", b"value")).offset == 1
        await asyncio.sleep(0)
        await client.publish("orders", b"value")

    strays = []
    run_with_client(test, answer, stray=strays.append)
    expected = [Outcome.DAMAGED, Outcome.UNKNOWN, Outcome.DUPLICATE]
    assert [receipt.outcome for receipt in strays] == expected * 2
    with caplog.at_level(logging.WARNING, "wirescan"):
        run_with_client(test, answer)
    assert "not ours" in caplog.text


def test_closing_the_client_ends_waiting_calls():
    async def test(client, server):
        waiting = asyncio.ensure_future(client.publish("orders", b"value"))
        while not server.stored:
            await asyncio.sleep(0.001)
        await client.close()
        with pytest.raises(ConnectionError, match="the client is closed"):
            await waiting

    run_with_client(test, lambda subject, content: [])


def test_client_continues_over_a_new_connection():
    async def test(client, server):
        tables = await client.subscribe("orders", seconds=0.05)
        await client.publish("orders", b"before")
        server.hang_up()
        with contextlib.suppress(TimeoutError):  # if it went into the old connection
            await client.publish("orders", b"lost or not")
        await client.publish("orders", b"after")
        values = []
        async for table in tables:
            values += [bytes(row.value) for row in table]
            if b"after" in values:
                break
        assert [value for value in values if value != b"lost or not"] == [b"before", b"after"]

    run_with_client(test, timeout=0.3, allow_reconnect=True, reconnect_time_wait=0.01)


def test_client_in_strict_mode():
    async def test(client, server):
        tables = await client.subscribe("orders", count=1, errors="strict")
        for payload in GOOD, MAGIC, GOOD:
            server.deliver("orders", payload)
        assert len(await anext(tables)) == 1
        with pytest.raises(FrameError, match="TRUNCATED"):
            await anext(tables)
        assert not client._feeds
        await client.publish("orders", b"value")

    run_with_client(test)


def test_the_client_subscribes():
    async def test(client, server):
        tables = await client.subscribe("orders", partitions=2, count=3, seconds=0.05)
        values = [b"%d" % number for number in range(10)]
        partition = np.arange(10) % 2
        await client.publish_many("orders", values, partition=partition, partitions=2)
        numbers = []
        async for table in tables:
            assert 1 <= len(table) <= 3
            numbers += [int(bytes(row.value)) for row in table]
            if len(numbers) == 10:
                break
        await tables.aclose()
        assert sorted(numbers) == [*range(10)]
        assert [number for number in numbers if number % 2] == [1, 3, 5, 7, 9]
        await client.publish("orders", b"nobody listens")

    run_with_client(test)


def test_a_closed_client_returns_received_messages():
    async def test(client, server):
        tables = await client.subscribe("orders", count=4, seconds=60)
        for number in range(10):
            await client.publish("orders", b"%d" % number)
        await client.close()
        assert [[bytes(row.value) for row in table] async for table in tables] == [
            [b"0", b"1", b"2", b"3"],
            [b"4", b"5", b"6", b"7"],
            [b"8", b"9"],
        ]

    run_with_client(test)


def test_client_reports_dropped_messages():
    async def test(client, server):
        tables = await client.subscribe("orders", count=1)
        (feed,) = client._feeds.values()
        (subscription,) = client._feeds
        subscription._pending_queue._maxsize = 2  # nats-py's own bound is half a million
        for number in range(9):
            server.deliver("orders", b"%d" % number)
        from nats.errors import SlowConsumerError

        numbers = []
        with pytest.raises(SlowConsumerError, match="slow consumer"):
            while feed.error is None:
                await asyncio.sleep(0.001)
            async for table in tables:
                numbers += [int(bytes(row.value)) for row in table]
        assert numbers
        assert numbers == [*range(len(numbers))]
        assert len(numbers) < 9

    run_with_client(test)


@pytest.mark.parametrize(
    "options",
    [{}, {"allow_reconnect": True, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.01}],
)
def test_client_reports_a_lost_connection(options):
    calls = []

    async def record_call():
        calls.append("closed")

    async def test(client, server):
        tables = await client.subscribe("orders", seconds=60)
        await client.publish("orders", b"before")
        server.stop()
        assert [bytes(row.value) for row in await anext(tables)] == [b"before"]
        with pytest.raises(nats.errors.ConnectionClosedError, match="connection closed"):
            await anext(tables)
        assert calls == ["closed"]

    run_with_client(test, closed_cb=record_call, **options)


def test_a_failed_close_ends_waiting_calls():
    async def test(client, server):
        tables = await client.subscribe("orders", seconds=60)
        received = client._nats.stats["in_msgs"]
        waiting = asyncio.ensure_future(client.publish("orders", b"value"))
        while client._nats.stats["in_msgs"] == received:  # the publication is not acknowledged
            await asyncio.sleep(0.001)

        async def drain():
            raise nats.errors.FlushTimeoutError

        client._nats.drain = drain
        with pytest.raises(nats.errors.FlushTimeoutError, match="flush timeout"):
            await client.close()
        assert client._nats.is_closed
        with pytest.raises(ConnectionError, match="the client is closed"):
            await waiting
        assert [bytes(row.value) async for table in tables for row in table] == [b"value"]

    run_with_client(test, lambda subject, content: [])


def test_client_requires_coroutine_functions():
    from wirescan.liftbridge.live.client import Client

    for name in "error_cb", "closed_cb":
        with pytest.raises(TypeError, match="error_cb and closed_cb must be coroutine functions"):
            Client(**{name: print})
