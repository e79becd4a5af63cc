"""The Kafka client against real brokers, with both drivers.

The tests cover metadata, offsets, ranges of topics in all codecs, transactions, compaction, TLS and
SASL, and leaders that end.
"""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from tests.support.places import copy_bytes
from wirescan import Limits, kafka
from wirescan.kafka.client.decode import Decoding
from wirescan.kafka.client.effects import Begin, Exchange, Together
from wirescan.kafka.client.fetch_ranges import FetchRange, Question, read_range
from wirescan.kafka.client.offsets import list_offsets
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode

from .broker import MECHANISMS, PASSWORD, SECURE, USER
from .canonical import Record
from .producers import make_compactable, make_orders, send_librdkafka, send_transactions
from .readers import consume

pytestmark = pytest.mark.peers

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LOGINS = [
    (protocol, mechanism)
    for protocol in ("PLAINTEXT", *SECURE)
    for mechanism in (MECHANISMS if "SASL" in protocol else ("",))
]


def call_blocking(bootstrap, options, call):
    """Make the calls of a generator of (method, arguments, options). Return its result."""
    with kafka.Client(bootstrap, **options) as client:

        def make_call(name, arguments, named):
            return list_parts(getattr(client, name)(*arguments, **named))

        return run_generator(call, make_call)


def list_parts(result):
    """The parts of `fetch` as a list, or another method's result."""
    return list(result) if hasattr(result, "ranges") else result


def call_asyncio(bootstrap, options, call):
    async def run():
        async with kafka.AsyncClient(bootstrap, **options) as client:
            value = None
            while True:
                try:
                    name, arguments, named = call.send(value)
                except StopIteration as end:
                    return end.value
                result = getattr(client, name)(*arguments, **named)
                value = [part async for part in result] if name == "fetch" else await result

    return asyncio.run(run())


def run_generator(call, make_call):
    """Send the result of each call into the generator. Return the generator's result."""
    value = None
    while True:
        try:
            value = make_call(*call.send(value))
        except StopIteration as end:
            return end.value


@pytest.fixture(params=[call_blocking, call_asyncio], ids=["blocking", "asyncio"])
def client(request):
    """A function (bootstrap, method, *arguments, options={}, **named) that makes one call."""

    def call(bootstrap, method, *arguments, options=None, **named):
        def single_call():
            return (yield method, arguments, named)

        return request.param(bootstrap, options or {}, single_call())

    return call


def list_records(parts) -> list[Record]:
    """The records of parts, in the form of the other readers."""
    return [
        Record(
            row.offset,
            row.timestamp,
            copy_bytes(row.key),
            copy_bytes(row.value),
            tuple((bytes(key), copy_bytes(value)) for key, value in row.headers),
        )
        for part in parts
        for row in part.records
    ]


@pytest.fixture(scope="session")
def codecs(broker_39, broker_4):
    """A topic of each broker with batches of all codecs."""
    for broker in (broker_39, broker_4):
        broker.create_topic("all-codecs", partitions=2)
        for seed, codec in enumerate(CODECS):
            send_librdkafka(
                broker.address,
                "all-codecs",
                make_orders(300, seed, big=False),
                codec,
                batch_num_messages=50,
                partitioner="consistent",
            )
            send_librdkafka(
                broker.address,
                "all-codecs",
                make_orders(5, seed + 50),
                codec,
                partitioner="consistent",
            )
    return "all-codecs"


def test_metadata_describes_topics(broker, codecs, client):
    metadata = client(broker.address, "metadata")
    assert [str(node) for node in metadata.brokers.values()] == [broker.address]
    topic = metadata.topics[codecs]
    leaders = {
        number: (partition.leader, partition.in_sync)
        for number, partition in topic.partitions.items()
    }
    assert leaders == {0: (1, (1,)), 1: (1, (1,))}
    assert topic.id != bytes(16)
    assert metadata.cluster_id
    assert metadata.controller == 1
    absent = client(broker.address, "metadata", ["nothing"])
    assert absent.topics["nothing"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_like_the_consumer(broker, codecs, client):
    theirs = consume(broker.address, codecs)

    def ask(when):
        return client(broker.address, "list_offsets", {(codecs, 0): when})[codecs, 0]

    assert ask("earliest").offset == 0
    assert ask("latest").offset == theirs[-1].offset + 1 == len(theirs)
    highest = max(row.timestamp for row in theirs)
    assert ask("max_timestamp").timestamp == highest
    middle = sorted(row.timestamp for row in theirs)[len(theirs) // 2]
    assert ask(middle).offset == next(row.offset for row in theirs if row.timestamp >= middle)
    assert ask(highest + 1).offset == -1


@pytest.mark.parametrize("fetch_bytes", [1000, 40_000, 8 << 20])
def test_fetch_of_all_codecs(broker, codecs, client, fetch_bytes):
    theirs = consume(broker.address, codecs)
    parts = client(broker.address, "fetch", codecs, fetch_bytes=fetch_bytes)
    assert list_records(part for part in parts if part.partition == 0) == theirs
    assert sum(len(part.records) for part in parts) == 5 * 305
    middle = client(
        broker.address, "fetch", codecs, partitions=[0], start=77, stop=333, fetch_bytes=fetch_bytes
    )
    assert list_records(middle) == theirs[77:333]


def test_fetched_batches_are_the_segment(broker, codecs, client):
    parts = client(
        broker.address, "fetch", codecs, partitions=[0], records=False, fetch_bytes=20_000
    )
    segments = sorted(broker.directory(codecs).glob("*.log"))
    fetched = b"".join(piece for part in parts for piece in part.pieces)
    assert fetched == b"".join(segment.read_bytes() for segment in segments)


def test_every_version_of_fetch_and_list_offsets(broker_39):
    """3.9 down-converts below version 4.

    Down-conversion makes the data larger. The broker cuts it at the requested size.
    """
    broker_39.create_topic("versions")
    rows = make_orders(200, 5, big=False)
    send_librdkafka(broker_39.address, "versions", rows, "lz4", batch_num_messages=40)
    fetch_range = FetchRange("versions", 0, 0, 200)
    with kafka.Client(broker_39.address) as client:
        for version in range(18):
            reading = read_range(client.cluster, fetch_range, Question(), Limits(), "strict")
            parts = [
                Decoding().make_part(piece)
                for piece in client.iterate(fix_version(reading, version))
            ]
            read = list_records(parts)
            assert [row.value for row in read] == [row.value for row in rows], version
            assert [row.offset for row in read] == list(range(200))
            magic = (0, 0, 1, 1)[version] if version < 4 else 2
            assert set(parts[0].batches["magic"].tolist()) == {magic}
        for version in range(10):
            listing = list_offsets(client.cluster, {("versions", 0): "latest"})
            offsets = client.run(fix_version(listing, version))
            assert offsets["versions", 0].offset == 200


def fix_version(operation, version):
    """The operation with all its exchanges but Metadata in one version."""
    value = None
    while True:
        try:
            effect = operation.send(value)
        except StopIteration as end:
            return end.value
        if isinstance(effect, Together):
            effect = Together([fix_version(inner, version) for inner in effect.operations])
        elif isinstance(effect, Begin):
            effect = Begin(replace(effect.exchange, versions=range(version, version + 1)))
        elif isinstance(effect, Exchange) and effect.api != "Metadata":
            effect = replace(effect, versions=range(version, version + 1))
        value = yield effect


def test_isolation_levels_like_the_consumer(broker, client):
    topic = "transactions"
    if topic not in client(broker.address, "metadata").topics:
        broker.create_topic(topic)
        send_transactions(
            broker.address, topic, make_orders(300, seed=9), "lz4", "cacaac", "client"
        )
    for isolation in ("read_committed", "read_uncommitted"):
        theirs = consume(broker.address, topic, isolation)
        for fetch_bytes in (500, 8 << 20):
            parts = client(
                broker.address, "fetch", topic, isolation=isolation, fetch_bytes=fetch_bytes
            )
            assert list_records(parts) == theirs
        after_marker = theirs[-1].offset + (2 if theirs else 0)
        assert parts[-1].next_offset == after_marker


def test_a_compacted_topic_with_gaps(broker, client):
    topic = "compacted"
    if topic not in client(broker.address, "metadata").topics:
        broker.create_topic(
            topic,
            {
                "cleanup.policy": "compact",
                "segment.ms": 100,
                "min.cleanable.dirty.ratio": 0.01,
                "delete.retention.ms": 0,
                "min.compaction.lag.ms": 0,
                "segment.bytes": 20_000,
            },
        )
        for seed in range(4):
            send_librdkafka(broker.address, topic, make_compactable(400, seed), "none")
            time.sleep(0.3)
        until = time.monotonic() + 30
        while len(consume(broker.address, topic)) > 1400 and time.monotonic() < until:
            time.sleep(0.5)
    for _ in range(5):  # the cleaner may still run
        theirs = consume(broker.address, topic)
        read = list_records(client(broker.address, "fetch", topic, fetch_bytes=3000))
        if theirs == consume(broker.address, topic):
            break
    assert read == theirs
    assert len(theirs) < theirs[-1].offset
    after_gap = next(
        row.offset for before, row in zip(theirs, theirs[1:]) if row.offset > before.offset + 1
    )
    parts = client(broker.address, "fetch", topic, start=after_gap - 1, stop=after_gap + 1)
    assert list_records(parts) == [row for row in theirs if row.offset == after_gap]


@pytest.mark.parametrize("protocol, mechanism", LOGINS)
def test_every_listener_and_login(broker, codecs, client, protocol, mechanism):
    options = {"tls": str(broker.authority)} if "SSL" in protocol else {}
    if mechanism:
        options["sasl"] = mechanism, USER, PASSWORD
    parts = client(broker.addresses[protocol], "fetch", codecs, options=options)
    assert sum(len(part.records) for part in parts) == 5 * 305
    if mechanism:
        with pytest.raises(BrokerError) as caught:
            client(
                broker.addresses[protocol],
                "metadata",
                options=options | {"sasl": (mechanism, USER, "not " + PASSWORD)},
            )
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_an_unknown_certificate_is_refused(broker, client):
    with pytest.raises(PermissionError, match="certificate verify failed"):
        client(broker.addresses["SSL"], "metadata", options={"tls": True})


def test_absent_topics_and_offsets_raise(broker, codecs, client):
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client(broker.address, "fetch", "nothing")
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        client(broker.address, "fetch", codecs, start=10**9, stop=10**9 + 1)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_leader_ends_during_a_fetch(cluster, end):
    topic = f"read-{end}"
    cluster.create_topic(topic)
    rows = make_orders(3000, seed=60, big=False)
    send_librdkafka(cluster.address, topic, rows, "none", batch_num_messages=20)
    leader = cluster.leader(topic)
    ended = threading.Event()

    def end_leader():
        getattr(leader, end)()
        ended.set()

    thread = threading.Thread(target=end_leader)
    read = []
    with kafka.fetch(cluster.address, topic, fetch_bytes=4000) as parts:
        for number, part in enumerate(parts):
            read += list_records([part])
            if number == 3:
                thread.start()
            if number == 4 or (end == "kill" and number == 5):
                ended.wait(60)
    thread.join()
    assert [row[1:] for row in read] == [row[1:] for row in rows]
    assert [row.offset for row in read] == list(range(3000))
    leader.restart()
    cluster.await_in_sync(topic)
