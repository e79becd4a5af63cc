"""The Kafka client: connections, operations and drivers, against the brokers of fake_broker.py."""
import asyncio
import base64
import contextlib
import gc
import random
import socket
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_broker import NOT_LEADER, VERSIONS, FakeCluster, FakeDriver, HangUp, Server, Silence, Trickle
from wirescan import FrameError, Limits, kafka
from wirescan.kafka.client.cluster import Cluster, Retries, nodes
from wirescan.kafka.client.connection import FIRST_ROOM, Connection, greet
from wirescan.kafka.client.effects import SIDE_BY_SIDE, Exchange, Node
from wirescan.kafka.client.fetching import EMPTY, Question, Range, fetch_once, read_range
from wirescan.kafka.client.offsets import list_offsets
from wirescan.kafka.client.parts import Decoding, plan
from wirescan.kafka.encode import encode_batch, encode_message_set
from wirescan.kafka.errors import BrokerError, ErrorCode

NODE = Node(1, "broker-1", 9092)
OLD = {"Produce": (0, 1), "Fetch": (0, 1), "ListOffsets": (0, 0), "Metadata": (0, 0)}
RETRIES = Retries()


def batch(first, count=5, value=b"value %d", **options):
    return encode_batch([(first + i, 1000 + first + i, b"key", value % (first + i)) for i in range(count)],
                        base_offset=first, **options)


def filled(batches=10, partitions=1, versions=VERSIONS, brokers=1):
    """A cluster whose partitions of `orders` have so many batches of five records."""
    found = FakeCluster(brokers, versions)
    found.add_topic("orders", partitions)
    for number in range(partitions):
        found.topics["orders"][number].leader = 1 + number % brokers
        for first in range(0, 5 * batches, 5):
            found.append("orders", number, batch(first))
    return found


def cluster_of(fake, **options):
    return Cluster(nodes(fake.bootstrap), chance=random.Random(1), **options)


def read(fake, start=0, stop=50, *, topic="orders", partition=0, question=Question(), driver=None, cluster=None,
         **options):
    """Offsets of the records of a range, and the parts."""
    driver, cluster = driver or FakeDriver(fake), cluster or cluster_of(fake)
    decoding = Decoding(question.isolation, **options)
    pieces = driver.iterate(read_range(cluster, Range(topic, partition, start, stop), question, driver.limits,
                                       decoding.errors))
    parts = [decoding.part(piece) for piece in pieces]
    return [offset for part in parts for offset in part.records["offset"].tolist()], parts


# ---------------------------------------------------------------------------------------- a connection

def metadata_answer(number=0, **body):
    return kafka.encode_response("Metadata", 9, {"brokers": [{"node_id": 7, "host": "h", "port": 1}], **body},
                                 correlation_id=number)


def asked(count=1, limits=Limits(), **options):
    connection = Connection(NODE, "test", limits)
    for _ in range(count):
        connection.send("Metadata", 9, {}, **options)
    return connection


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
def test_answers_come_in_any_chunks(chunk):
    connection = asked(3)
    data = b"".join(metadata_answer(number, controller_id=number) for number in range(3))
    answers = [one for at in range(0, len(data), chunk) for one in connection.receive(data[at:at + chunk])]
    assert [answer.table["controller_id"][0] for answer in answers] == [0, 1, 2]
    assert {answer.version for answer in answers} == {9} and connection.is_idle


@pytest.mark.parametrize("number", [1, -1, 2**31 - 1])
def test_an_answer_to_another_request(number):
    connection = asked(2)
    with pytest.raises(ConnectionError, match=f"answers request {number}, and the oldest open one is 0, Metadata"):
        connection.receive(metadata_answer(number))
    with pytest.raises(ConnectionError, match="failed before"):
        connection.room()
    with pytest.raises(ConnectionError, match="failed before"):
        connection.send("Metadata", 9, {})


def test_what_nobody_asked_for():
    connection = asked(1)
    assert connection.receive(metadata_answer(0))
    with pytest.raises(ConnectionError, match="nobody asked for"):
        connection.receive(metadata_answer(1))


@pytest.mark.parametrize("size", [0, 3, -1, -2**31, 1001 - 4, 2**31 - 1])
def test_impossible_sizes(size):
    connection = asked(limits=Limits(frame=1000))
    with pytest.raises(FrameError, match="impossible length.*broker-1:9092"):
        connection.receive(size.to_bytes(4, "big", signed=True))
    assert not connection.is_idle


def test_tls_where_none_is_expected():
    with pytest.raises(PermissionError, match="speaks TLS"):
        asked().receive(b"\x15\x03\x03\x00\x02\x02\x16")


@pytest.mark.parametrize("damage", [
    lambda data: data[:4] + data[4:8] + data[8:-1] + b"\x05",               # tagged fields that are not there
    lambda data: data.replace(b"\x02h", b"\xfeh"),                      # a host of 253 bytes
    lambda data: (len(data) - 3).to_bytes(4, "big") + data[4:] + b"!"])     # a byte more than the fields
def test_bodies_that_lie(damage):
    connection = asked()
    with pytest.raises(FrameError, match="broker-1:9092"):
        connection.receive(damage(metadata_answer()))


@pytest.mark.parametrize("expected", [0, 10 << 20])
def test_memory_follows_what_arrives(expected):
    """A broker that claims 90 MiB gets no more than was expected, or twice what it sent."""
    connection, sent = asked(expected=expected), 4
    connection.receive((90 << 20).to_bytes(4, "big"))
    while sent + (room := len(connection.room())) < 90 << 20:
        assert room <= max(sent, FIRST_ROOM, expected)
        connection.filled(room)
        sent += room
    assert sent > 40 << 20


def test_an_answer_lies_in_one_buffer():
    connection = asked()
    data = metadata_answer(cluster_id=b"x" * 20000)
    answer, = connection.receive(data)
    assert len(answer.table.buffers) == 1 and bytes(answer.table.buffers[0]) == data
    assert answer.table.buffers[0].readonly


def test_the_request_that_cannot_be_encoded_leaves_the_connection_good():
    connection = asked(0)
    with pytest.raises(ValueError):
        connection.send("Metadata", 9, {"nothing": 1})
    connection.send("Metadata", 9, {})
    assert connection.receive(metadata_answer(0))


# ---------------------------------------------------------------------------------------- the greeting

def greeted(fake, sasl=None, **options):
    """The Exchange of a Metadata request, through a whole connection."""
    return FakeDriver(fake, sasl=sasl, **options).run(one_exchange("Metadata", lambda version: {}))


def one_exchange(api, body, **options):
    return (yield Exchange(NODE, api, body, **options))


@pytest.mark.parametrize("versions, version", [
    (VERSIONS, 12), (VERSIONS | {"Metadata": (4, 6)}, 6), (VERSIONS | {"Metadata": (0, 99)}, 13), (None, 0),
    (VERSIONS | {"ApiVersions": (0, 2)}, 12)])
def test_the_newest_common_version(versions, version):
    fake = filled(versions=versions)
    assert greeted(fake).version == version
    assert [one[2] for one in fake.asked if one[1] == "Metadata"] == [version]


def test_the_fallback_of_api_versions():
    fake = filled(versions=VERSIONS | {"ApiVersions": (0, 2)})
    greeted(fake)
    assert [(api, version) for _, api, version, _ in fake.asked][:2] == [("ApiVersions", 0), ("ApiVersions", 0)]


@pytest.mark.parametrize("versions", [{"Metadata": (40, 50)}, {"Fetch": (0, 17)}, {"Metadata": (5, 3)}])
def test_no_common_version(versions):
    with pytest.raises(BrokerError, match="Metadata 0 to 13 at broker-1:9092, which has") as caught:
        greeted(filled(versions={"ApiVersions": (0, 4)} | versions))
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_an_error_in_the_greeting():
    fake = filled()
    fake.hook = lambda node, api, version, body: {"error_code": 41} if api == "ApiVersions" else body
    with pytest.raises(BrokerError, match="ApiVersions at broker-1:9092"):
        greeted(fake)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl(mechanism):
    fake = filled()
    fake.users = {"alice": "secret"}
    assert greeted(fake, (mechanism, "alice", "secret")).version == 12
    for user, password in (("alice", "other"), ("bob", "secret")):
        with pytest.raises(BrokerError, match=f"{mechanism} at broker-1.*no such user") as caught:
            greeted(fake, (mechanism, user, password))
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ConnectionResetError):
        greeted(fake)


def test_a_mechanism_that_is_not_offered():
    fake = filled()
    fake.users = {}
    fake.hook = lambda node, api, version, body: (
        body | {"error_code": 33, "mechanisms": [{"name": "GSSAPI"}]} if api == "SaslHandshake" else body)
    with pytest.raises(BrokerError, match="UNSUPPORTED_SASL_MECHANISM.*which offers GSSAPI"):
        greeted(fake, ("PLAIN", "a", "b"))


@pytest.mark.parametrize("said", [
    b"", b"e=other-error", b"r=%s,s=AAAA,i=99999999", b"r=%s,s=AAAA,i=1", b"r=mine,s=AAAA,i=4096", b"\xff\xfe",
    b"r=%s,s=AAAA,i=4096,i=99999999", b"r=%s,s=!,i=4096", b"r=%s,s=AAAA,i=x", b"r=%sx,s=AAAA,i=4096"])
def test_scram_of_a_server_that_lies(said):
    fake = filled()
    fake.users = {"alice": "secret"}

    def lie(node, api, version, body):
        if api != "SaslAuthenticate":
            return body
        nonce = fake.asked[-1][3]["auth_bytes"].rpartition(b"r=")[2]
        return {"auth_bytes": said.replace(b"%s", nonce)}
    fake.hook = lie
    with pytest.raises(PermissionError, match="broker-1:9092"):
        greeted(fake, ("SCRAM-SHA-256", "alice", "secret"))


@pytest.mark.parametrize("sasl", [("GSSAPI", "a", "b"), ("PLAIN", "a"), "PLAIN", ("PLAIN", b"a", "b")])
def test_sasl_arguments(sasl):
    with pytest.raises(ValueError):
        kafka.Client("localhost:1", sasl=sasl)


# ---------------------------------------------------------------------------------------- the cluster

@pytest.mark.parametrize("text, found", [
    ("a:1", [("a", 1)]), ("a:1, b:2", [("a", 1), ("b", 2)]), (["[::1]:9092"], [("::1", 9092)])])
def test_addresses(text, found):
    assert [tuple(node[1:]) for node in nodes(text)] == found
    assert [node.id for node in nodes(text)] == [-1] * len(found)


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:b", "a:0", "a:65536", "::1:9092", [], "a:1,,b:2", "a:-1"])
def test_addresses_that_are_none(text):
    with pytest.raises(ValueError):
        nodes(text)


@pytest.mark.parametrize("version", range(13))
def test_metadata(version):
    fake = filled(partitions=2, brokers=2, versions=VERSIONS | {"Metadata": (0, version)})
    cluster = cluster_of(fake)
    found = FakeDriver(fake).run(cluster.metadata())
    assert found.brokers == {1: Node(1, "broker-1", 9092), 2: Node(2, "broker-2", 9092)}
    orders = found.topics["orders"]
    assert {number: one.leader for number, one in orders.partitions.items()} == {0: 1, 1: 2}
    assert orders.partitions[0].replicas == orders.partitions[0].in_sync == (1, 2)
    assert orders.id == (fake.ids["orders"] if version >= 10 else bytes(16))
    assert found.controller == (1 if version else -1) and found.cluster_id == ("fake" if version >= 2 else None)
    some = FakeDriver(fake).run(cluster.metadata(["orders", "none"]))
    assert some.topics["none"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert all(request["allow_auto_topic_creation"] == 0 for *_, number, request in fake.asked[-1:] if number >= 4)


def test_bootstrap_asks_one_after_another():
    fake = filled(brokers=3)
    fake.down = {1, 2}
    driver = FakeDriver(fake)
    assert driver.run(cluster_of(fake).metadata()).brokers.keys() == {1, 2, 3}
    assert driver.exchanges == 3 and driver.now == 0


def test_nobody_answers():
    fake = filled(brokers=3)
    fake.down = {1, 2, 3}
    driver = FakeDriver(fake)
    with pytest.raises(ConnectionRefusedError) as caught:
        driver.run(cluster_of(fake).metadata())
    assert driver.exchanges == 3 * RETRIES.attempts and driver.now < RETRIES.seconds
    assert f"after {RETRIES.attempts} attempts" in caught.value.__notes__[0]


def test_silence_ends_by_the_time():
    fake = filled()
    def silent(node, api, data):
        raise Silence
    fake.mangle = silent
    driver = FakeDriver(fake, timeout=25)
    with pytest.raises(TimeoutError):
        driver.run(cluster_of(fake).metadata())
    assert driver.exchanges == 3                # at 0, 25, 50; at 75 the minute is over


def test_pauses_double_and_vary():
    pauses = []
    for seed in (1, 2):
        fake = filled()
        fake.down = {1}
        driver, cluster = FakeDriver(fake), Cluster(nodes(fake.bootstrap), chance=random.Random(seed))
        perform, seen = driver.perform, []
        driver.perform = lambda effect: (seen.append(getattr(effect, "seconds", 0)), perform(effect))[1]
        with pytest.raises(ConnectionError):
            driver.run(cluster.metadata())
        pauses.append([pause for pause in seen if pause])
    for number, pause in enumerate(pauses[0]):
        longest = min(RETRIES.longest, RETRIES.first * 2 ** number)
        assert longest / 2 <= pause <= longest
    assert pauses[0] != pauses[1]


@pytest.mark.parametrize("code", [29, 999, -7, -32768, 32767])
def test_errors_that_do_not_pass(code):
    fake = filled()
    fake.errors["ListOffsets", "orders", 0] += [code] * 99
    driver = FakeDriver(fake)
    with pytest.raises(BrokerError, match="orders-0 at broker-1:9092") as caught:
        driver.run(list_offsets(cluster_of(fake), {("orders", 0): "latest"}))
    assert int(caught.value.code) == code and len(fake.errors["ListOffsets", "orders", 0]) == 98


@pytest.mark.parametrize("code", [6, 5, 3, 74, 75, 100, 103, 56, 78, 7])
def test_errors_that_pass(code):
    fake = filled()
    fake.errors["ListOffsets", "orders", 0] += [code, code]
    driver = FakeDriver(fake)
    found = driver.run(list_offsets(cluster_of(fake), {("orders", 0): "latest"}))
    assert found["orders", 0].offset == 50 and driver.now > 0
    assert [api for _, api, *_ in fake.asked].count("Metadata") == 3    # asked anew after each


def test_errors_that_last():
    fake = filled()
    fake.errors["ListOffsets", "orders", 0] += [NOT_LEADER] * 999
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        FakeDriver(fake).run(list_offsets(cluster_of(fake), {("orders", 0): "latest"}))
    assert len(fake.errors["ListOffsets", "orders", 0]) == 999 - RETRIES.attempts


def test_a_topic_that_is_not_there_is_asked_for_a_while():
    fake = filled()
    driver = FakeDriver(fake)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION.*nothing-0"):
        driver.run(list_offsets(cluster_of(fake), {("nothing", 0): "latest"}))
    assert driver.exchanges == RETRIES.unknown and 0 < driver.now < 3
    fake.errors["Metadata", "orders", None] += [3, 5]
    assert driver.run(list_offsets(cluster_of(fake), {("orders", 0): "latest"}))


def test_the_leader_moves():
    fake = filled(brokers=2)
    cluster, driver = cluster_of(fake), FakeDriver(fake)
    wanted = {("orders", 0): "latest"}
    driver.run(list_offsets(cluster, wanted))
    fake.topics["orders"][0].leader, fake.topics["orders"][0].epoch = 2, 1
    assert driver.run(list_offsets(cluster, wanted))["orders", 0].leader_epoch == 1
    assert fake.asked[-1][0] == 2 and fake.asked[-1][3]["topics"][0]["partitions"][0]["current_leader_epoch"] == 1
    fake.down = {2}
    fake.topics["orders"][0].leader = 1
    assert driver.run(list_offsets(cluster, wanted))["orders", 0].offset == 50


def test_leaders_are_asked_side_by_side_and_only_for_what_is_left():
    fake = filled(brokers=3, partitions=6)
    fake.errors["ListOffsets", "orders", 4] += [NOT_LEADER]
    found = FakeDriver(fake).run(list_offsets(cluster_of(fake), {("orders", number): "latest" for number in range(6)}))
    assert {number: one.offset for (_, number), one in found.items()} == dict.fromkeys(range(6), 50)
    requests = [[one["partition_index"] for topic in request["topics"] for one in topic["partitions"]]
                for _, api, _, request in fake.asked if api == "ListOffsets"]
    assert sorted(requests) == [[0, 3], [1, 4], [2, 5], [4]]


@pytest.mark.parametrize("leader", [-1, 9])
def test_no_leader(leader):
    fake = filled()
    fake.topics["orders"][0].leader = leader
    with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"):
        FakeDriver(fake).run(list_offsets(cluster_of(fake), {("orders", 0): "latest"}))


def test_an_answer_that_leaves_a_partition_out():
    fake = filled()
    fake.hook = lambda node, api, version, body: {"topics": []} if api == "ListOffsets" else body
    with pytest.raises(BrokerError, match="leaves out"):
        FakeDriver(fake).run(list_offsets(cluster_of(fake), {("orders", 0): "latest"}))


def test_an_error_that_was_told_before_may_have_passed():
    fake = filled()
    cluster, driver = cluster_of(fake), FakeDriver(fake)
    fake.errors["Metadata", "orders", None] += [29]
    assert driver.run(cluster.metadata()).topics["orders"].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert driver.run(list_offsets(cluster, {("orders", 0): "latest"}))["orders", 0].offset == 50


# ---------------------------------------------------------------------------------------- offsets and one fetch

@pytest.mark.parametrize("version", range(10))
def test_list_offsets(version):
    fake = filled(versions=VERSIONS | {"ListOffsets": (version, version)})
    fake.topics["orders"][0].start, fake.topics["orders"][0].stable = 5, 30

    def ask(when, isolation="read_uncommitted"):
        found = FakeDriver(fake).run(list_offsets(cluster_of(fake), {("orders", 0): when}, isolation))
        return found["orders", 0]

    assert ask("earliest").offset == 5 and ask("latest").offset == 50
    assert ask(1017).offset == 17 and ask(10**6).offset == -1
    if version:
        assert ask(1017).timestamp == 1017
    if version >= 2:
        assert ask("latest", "read_committed").offset == 30
    else:
        with pytest.raises(BrokerError, match="ListOffsets 2 to 11"):
            ask("latest", "read_committed")
    if version >= 7:
        assert ask("max_timestamp")[:2] == (49, 1049)
    else:
        with pytest.raises(BrokerError, match="ListOffsets 7 to 11"):
            ask("max_timestamp")


@pytest.mark.parametrize("when", ["newest", -5])
def test_times_that_are_none(when):
    fake = filled()
    with pytest.raises(ValueError, match="a time is milliseconds"):
        FakeDriver(fake).run(list_offsets(cluster_of(fake), {("orders", 0): when}))
    with pytest.raises(ValueError, match="isolation is one of"):
        FakeDriver(fake).run(list_offsets(cluster_of(fake), {}, "read"))


@pytest.mark.parametrize("version", range(18))
def test_fetch_once(version):
    fake = filled(partitions=2, brokers=2, versions=VERSIONS | {"Fetch": (0, version)})
    fake.topics["orders"][0].aborted = [(7, 10), (8, 20)]
    wanted = {("orders", 0): 12, ("orders", 1): 45}
    found = FakeDriver(fake).run(fetch_once(cluster_of(fake), wanted, Question()))
    first = found["orders", 0]
    assert kafka.records(kafka.scan(first.table))["offset"].tolist() == list(range(10, 50))
    assert kafka.records(kafka.scan(found["orders", 1].table))["offset"].tolist() == list(range(45, 50))
    assert first.high_watermark == 50 and first.size == len(first.table.bytes(0, "records"))
    assert first.log_start_offset == (0 if version >= 5 else -1)
    listed = [(7, 10), (8, 20)] if version >= 4 else []
    assert first.aborted.tolist() == listed
    assert [one[2] for one in fake.asked if one[1] == "Fetch"] == [version] * 2


def test_fetch_by_name_where_the_id_is_not_known():
    fake = filled(versions=VERSIONS | {"Metadata": (0, 9)})
    FakeDriver(fake).run(fetch_once(cluster_of(fake), {("orders", 0): 0}, Question()))
    assert fake.asked[-1][1:3] == ("Fetch", 12)


def test_an_offset_out_of_range():
    fake = filled()
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE.*for offset 99 of orders-0 at broker-1"):
        FakeDriver(fake).run(fetch_once(cluster_of(fake), {("orders", 0): 99}, Question()))
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE.*for offset 99 of orders-0 at broker-1"):
        read(fake, 99, 100)


# ---------------------------------------------------------------------------------------- ranges

@pytest.mark.parametrize("most", [1, 60, 150, 300, 1000, 1 << 20])
@pytest.mark.parametrize("version", [0, 2, 3, 11, 17])
def test_a_range_in_answers_of_any_size(most, version):
    fake = filled(versions=VERSIONS | {"Fetch": (0, version)})
    for start, stop in ((0, 50), (3, 48), (12, 13), (5, 10), (49, 50)):
        offsets, parts = read(fake, start, stop, question=Question(max_bytes=most, partition_bytes=most))
        assert offsets == list(range(start, stop))
        assert parts[-1].next_offset == stop
        assert [part.next_offset for part in parts] == sorted({part.next_offset for part in parts})


def test_the_next_fetch_is_sent_before_a_piece_is_given():
    fake = filled()
    driver, question = FakeDriver(fake), Question(max_bytes=100, partition_bytes=100)
    begun = []
    perform = driver.perform
    driver.perform = lambda effect: (begun.append(type(effect).__name__), perform(effect))[1]
    pieces = driver.iterate(read_range(cluster_of(fake), Range("orders", 0, 0, 50), question, Limits(), "strict"))
    next(pieces)
    assert begun[-1] == "Begin" and begun.count("Begin") == begun.count("Finish") + 1


def test_gaps_and_a_tail_that_compaction_left():
    fake = FakeCluster()
    fake.add_topic("orders")
    fake.append("orders", 0, encode_batch([(3, 0, b"k", b"v"), (7, 0, b"k", b"v")], base_offset=2, last_offset=19))
    fake.append("orders", 0, encode_batch([], base_offset=20, last_offset=29))      # a batch without records
    fake.append("orders", 0, batch(60))
    fake.topics["orders"][0].end = 100                                              # and nothing up to there
    offsets, parts = read(fake, 0, 100, question=Question(max_bytes=90, partition_bytes=90))
    assert offsets == [3, 7, *range(60, 65)]
    assert [part.next_offset for part in parts] == [20, 30, 65]
    assert [one[1] for one in fake.asked].count("Fetch") == 3 + EMPTY
    assert read(fake, 65, 100)[0] == [] and read(fake, 25, 62)[0] == [60, 61]


def test_a_range_beyond_the_end():
    assert read(filled(), 48, 10**6)[0] == [48, 49]


def test_control_records_are_left_out():
    fake = filled(2)
    marker = encode_batch([(10, 0, b"\0\0\0\1", b"\0" * 6)], transactional=True, control=True, producer_id=1)
    fake.append("orders", 0, marker)
    offsets, parts = read(fake, 0, 11)
    assert offsets == list(range(10)) and parts[-1].next_offset == 11
    assert read(fake, 10, 11)[0] == []
    batches, = read_batches(fake, 0, 11)
    assert batches.batches["is_control"].tolist() == [0, 0, 1]


def read_batches(fake, start, stop, **options):
    wanted = Range("orders", 0, start, stop)
    pieces = FakeDriver(fake).iterate(read_range(cluster_of(fake), wanted, Question(), Limits(), "strict"))
    return [Decoding(records=False, **options).part(piece) for piece in pieces]


def test_batches_as_they_are():
    fake = filled()
    part, = read_batches(fake, 7, 33)
    assert part.records is None and part.next_offset == 33
    assert b"".join(part.pieces) == b"".join(data for _, _, data in fake.topics["orders"][0].entries[1:7])
    assert len(part.pieces) == 1
    again = kafka.scan(b"".join(part.pieces))
    assert again["base_offset"].tolist() == [5, 10, 15, 20, 25, 30]
    empty = part._replace(batches=part.batches[:0])
    assert empty.pieces == []
    apart = part._replace(batches=part.batches.where(part.batches["base_offset"] != 15))
    assert [len(piece) for piece in apart.pieces] == [len(batch(5) + batch(10)), len(batch(20) + batch(25) + batch(30))]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_message_sets(magic, codec):
    """Wrappers say the offset of their last message alone."""
    fake = FakeCluster(versions=VERSIONS | {"Fetch": (0, 3)})
    fake.add_topic("orders")
    for first in range(0, 50, 10):
        messages = [(i, 1000 if magic else None, b"k", b"v") for i in range(first, first + 10)]
        fake.append("orders", 0, encode_message_set(messages, magic=magic, codec=codec, base_offset=first))
    for start, stop in ((0, 50), (5, 15), (9, 10), (10, 11), (25, 26), (45, 50)):
        for most in (40, 200, 1 << 20):
            assert read(fake, start, stop, question=Question(max_bytes=most, partition_bytes=most))[0] == list(
                range(start, stop))


@pytest.mark.parametrize("most", [1, 200, 1 << 20])
def test_committed_records(most):
    fake = FakeCluster()
    fake.add_topic("orders")
    marker = dict(transactional=True, control=True)
    for first, producer in ((0, 1), (5, 2), (10, -1)):
        fake.append("orders", 0, batch(first, producer_id=producer, transactional=producer > 0))
    fake.append("orders", 0, encode_batch([(15, 0, b"\0\0\0\0", b"\0" * 6)], producer_id=1, **marker))     # abort
    fake.append("orders", 0, encode_batch([(16, 0, b"\0\0\0\1", b"\0" * 6)], producer_id=2, **marker))     # commit
    fake.append("orders", 0, batch(17, producer_id=1, transactional=True))
    fake.append("orders", 0, encode_batch([(22, 0, b"\0\0\0\1", b"\0" * 6)], producer_id=1, **marker))
    fake.append("orders", 0, batch(23, producer_id=3, transactional=True))                                 # open
    log = fake.topics["orders"][0]
    log.stable, log.aborted = 23, [(1, 0)]
    question = Question(max_bytes=most, partition_bytes=most, isolation="read_committed")
    ranges = FakeDriver(fake).run(plan(cluster_of(fake), "orders", None, "earliest", "latest", None, None,
                                       "read_committed"))
    assert ranges == [Range("orders", 0, 0, 23)]
    if most > 200:
        assert read(fake, 0, 23, question=question)[0] == [*range(5, 15), *range(17, 22)]
        assert read(fake, 0, 28)[0] == [*range(15), *range(17, 22), *range(23, 28)]
    # A broker lists those that end behind the offset that is asked for.
    fake.hook = lambda node, api, version, body: drop_ended(fake, body) if api == "Fetch" else body
    assert read(fake, 0, 23, question=question)[0] == [*range(5, 15), *range(17, 22)]
    assert read(fake, 0, 28, question=question)[0] == [*range(5, 15), *range(17, 22)]


def drop_ended(fake, body):
    partition = body["responses"][0]["partitions"][0]
    offset = fake.asked[-1][3]["topics"][0]["partitions"][0]["fetch_offset"]
    return {"responses": [body["responses"][0] | {"partitions": [
        partition | {"aborted_transactions": partition["aborted_transactions"] if offset <= 15 else None}]}]}


def damaged(fake, number, at=-3):
    first, last, data = fake.topics["orders"][0].entries[number]
    data = bytearray(data)
    data[at] ^= 0xFF
    fake.topics["orders"][0].entries[number] = first, last, bytes(data)


@pytest.mark.parametrize("records", [True, False])
def test_damaged_records(records):
    fake = filled()
    damaged(fake, 4)
    options = dict(records=records)
    with pytest.raises(FrameError, match="checksum"):
        read(fake, **options) if records else read_batches(fake, 0, 50)
    if records:
        assert read(fake, errors="skip")[0] == [*range(20), *range(25, 50)]
        _, parts = read(fake, errors="mark")
        assert [part.records.bad.sum() for part in parts] == [1] and len(parts[0].records) == 46
        assert read(fake, check=False)[0] == list(range(50))


def test_damaged_sizes():
    fake = filled()
    damaged(fake, 4, 8)         # the first byte of the batch's length
    with pytest.raises(FrameError, match="impossible length|magic"):
        read(fake)
    assert read(fake, errors="skip")[0] == [*range(20), *range(25, 50)]
    small = Question(max_bytes=90, partition_bytes=90)
    damaged(fake, 0, 8)
    assert read(fake, 0, 5, errors="skip", question=small)[0] == []
    _, parts = read(fake, 0, 5, errors="mark", question=small)
    assert [part.records.bad.tolist() for part in parts] == [[True]]
    for number in range(1, 10):
        damaged(fake, number, 8)
    for errors in ("skip", "mark"):         # nothing tells where to go on
        with pytest.raises(FrameError, match="impossible length"):
            read(fake, errors=errors, driver=FakeDriver(fake, limits=Limits(frame=100_000)))


def test_a_batch_that_never_comes_whole():
    fake = filled()
    fake.topics["orders"][0].entries[0] = 0, 4, batch(0)[:40] + b"\0" * 10
    driver = FakeDriver(fake, limits=Limits(frame=200_000))
    question = Question(max_bytes=100, partition_bytes=100)
    fake.hook = lambda node, api, version, body: cut(body) if api == "Fetch" else body
    with pytest.raises(FrameError, match="impossible length"):
        read(fake, question=question, driver=driver)


def cut(body):
    partition = body["responses"][0]["partitions"][0]
    return {"responses": [body["responses"][0] | {"partitions": [partition | {"records": partition["records"][:50]}]}]}


def test_batches_from_before_the_offset():
    fake = filled()
    log = fake.topics["orders"][0]
    log.read = lambda offset, most, whole, stop: log.entries[0][2]
    with pytest.raises(ConnectionError, match="from offset 5 with batches that end before it, at 4"):
        read(fake)
    assert [api for _, api, *_ in fake.asked].count("Fetch") == 1 + RETRIES.attempts


def test_throttled_for_ever():
    fake = filled()
    fake.hook = lambda node, api, version, body: throttled(body) if api == "Fetch" else body
    with pytest.raises(BrokerError, match="THROTTLING_QUOTA_EXCEEDED"):
        read(fake)


def throttled(body):
    partition = body["responses"][0]["partitions"][0]
    return {"throttle_time_ms": 100,
            "responses": [body["responses"][0] | {"partitions": [partition | {"records": None}]}]}


def test_reading_goes_on_where_it_was():
    """Through leaders that move, errors and lost connections between any two answers."""
    fake = filled(brokers=2)
    count = [0]

    def trouble(node, api, version, body):
        if api == "Fetch":
            count[0] += 1
            if count[0] % 3 == 1:
                raise HangUp(b"\0\0\1")
            if count[0] % 3 == 2:
                log = fake.topics["orders"][0]
                log.leader, log.epoch = 3 - log.leader, log.epoch + 1
                return {"responses": [body["responses"][0] | {"partitions": [
                    {"partition_index": 0, "error_code": NOT_LEADER}]}]}
        return body
    fake.hook = trouble
    assert read(fake, question=Question(max_bytes=100, partition_bytes=100))[0] == list(range(50))


# ---------------------------------------------------------------------------------------- what is planned

def planned(fake, partitions=None, start="earliest", stop="latest", start_time=None, stop_time=None,
            isolation="read_uncommitted"):
    found = FakeDriver(fake).run(plan(
        cluster_of(fake), "orders", partitions, start, stop, start_time, stop_time, isolation))
    return [(one.partition, one.start, one.stop) for one in found]


def test_plans():
    fake = filled(partitions=3)
    fake.topics["orders"][1].start = 20
    assert planned(fake) == [(0, 0, 50), (1, 20, 50), (2, 0, 50)]
    assert planned(fake, [2, 0, 2], 10, 40) == [(0, 10, 40), (2, 10, 40)]
    assert planned(fake, None, {0: 7, 1: "latest"}, {2: 9}) == [(0, 7, 50), (1, 50, 50), (2, 0, 9)]
    assert planned(fake, start_time=1025) == [(0, 25, 50), (1, 25, 50), (2, 25, 50)]
    assert planned(fake, [0], start_time=1025, stop_time=1030) == [(0, 25, 30)]
    assert planned(fake, [0], start_time=0, stop_time=10**6) == [(0, 0, 50)]
    assert planned(fake, [0], start_time=10**6) == [(0, 50, 50)]
    assert planned(fake, [0], start_time=1025, stop=30) == [(0, 25, 30)]


@pytest.mark.parametrize("arguments", [
    dict(start="now"), dict(start=-1), dict(stop=1.5), dict(start={0: "x"}), dict(start=3, start_time=4),
    dict(stop=3, stop_time=4), dict(start_time=-4)])
def test_plans_of_nothing(arguments):
    with pytest.raises(ValueError):
        planned(filled(), **arguments)


def test_a_topic_that_is_not_there():
    fake = FakeCluster()
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION.*orders"):
        planned(fake)


# ---------------------------------------------------------------------------------------- the drivers

class Blocking:
    def __init__(self, bootstrap, **options):
        self.client = kafka.Client(bootstrap, **options)

    def call(self, name, *arguments, **options):
        return getattr(self.client, name)(*arguments, **options)

    def fetch(self, *arguments, **options):
        return list(self.client.fetch(*arguments, **options))

    def close(self):
        self.client.close()
        self.client.close()


class Async(Blocking):
    def __init__(self, bootstrap, **options):
        self.loop = asyncio.new_event_loop()
        self.client = kafka.AsyncClient(bootstrap, **options)

    def call(self, name, *arguments, **options):
        return self.loop.run_until_complete(getattr(self.client, name)(*arguments, **options))

    def fetch(self, *arguments, **options):
        async def collect():
            return [part async for part in self.client.fetch(*arguments, **options)]
        return self.loop.run_until_complete(collect())

    def close(self):
        self.loop.run_until_complete(self.client.close())
        self.loop.run_until_complete(self.client.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


@pytest.fixture(params=[Blocking, Async], ids=["blocking", "asyncio"])
def driver(request):
    """Makes clients of a kind; at the end they are closed, and no thread is left."""
    before, made = threading.active_count(), []

    def make(*arguments, **options):
        made.append(request.param(*arguments, **options))
        return made[-1]
    yield make
    for one in made:
        one.close()
    until = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


FEW = Retries(attempts=3, first=0.01)


@pytest.mark.parametrize("versions", [VERSIONS, None, VERSIONS | {"Fetch": (0, 2)}])
def test_drivers(driver, versions):
    fake = filled(partitions=5, brokers=2, versions=versions)
    with Server(fake) as server:
        client = driver(server.bootstrap)
        assert client.call("metadata").brokers.keys() == {1, 2}
        offsets = client.call("list_offsets", {("orders", number): "latest" for number in range(5)})
        assert [one.offset for one in offsets.values()] == [50] * 5
        found = client.call("fetch_once", {("orders", 0): 0, ("orders", 1): 5}, max_wait=10)
        assert len(kafka.records(kafka.scan(found["orders", 1].table))) == 45
        parts = client.fetch("orders", fetch_bytes=300, side_by_side=2)
        offsets = {number: [] for number in range(5)}
        for part in parts:
            offsets[part.partition] += part.records["offset"].tolist()
        assert offsets == {number: list(range(50)) for number in range(5)}
        for _ in range(5):
            client.fetch("orders", fetch_bytes=300, side_by_side=2)
        # They are used again; a broker that hangs up on the greeting sees four for one.
        assert server.connections <= 2 * 2 * (4 if versions is None else 1)


def test_a_connection_cut_at_every_byte(driver):
    fake = filled(2)
    with Server(fake) as server:
        at = [0]

        def cut_once(node, api, data):
            if api != "Fetch" or at[0] is None:
                return data
            part, at[0] = data[:at[0]], None
            raise HangUp(part)
        fake.mangle = cut_once
        client = driver(server.bootstrap, retries=Retries(first=0.001))
        client.fetch("orders")
        size = len(client.fetch("orders", records=False)[0].pieces[0]) + 120
        for at[0] in [*range(0, size, 7), *range(size - 10, size)]:
            parts = client.fetch("orders", start=3, stop=9)
            assert [offset for part in parts for offset in part.records["offset"].tolist()] == list(range(3, 9))


@pytest.mark.parametrize("mangle, error", [
    (HangUp, ConnectionError), (Silence, TimeoutError), (lambda: HangUp(b"\0\0"), ConnectionError),
    (lambda: Silence(b"\0\0\0\x40\0"), TimeoutError), (lambda: HangUp(b"\x7f\xff\xff\xff"), FrameError),
    (lambda: Silence(b"\0\0\0\4\0\1\0\0"), ConnectionError)])
def test_brokers_that_fail(driver, mangle, error):
    fake = filled()

    def fail(node, api, data):
        if api == "Metadata":
            raise mangle()
        return data
    fake.mangle = fail
    with Server(fake) as server:
        client = driver(server.bootstrap, timeout=0.4, retries=Retries(attempts=2, first=0.01))
        begun = time.monotonic()
        with pytest.raises(error):
            client.call("metadata")
        assert time.monotonic() - begun < 10
        fake.mangle = lambda node, api, data: data
        assert client.call("metadata").brokers             # the client itself is good


@pytest.mark.parametrize("mangle", [HangUp, Silence])
def test_brokers_that_fail_in_the_greeting(driver, mangle):
    fake = filled()

    def fail(node, api, data):
        raise mangle(b"\0")
    fake.mangle = fail
    with Server(fake) as server:
        with pytest.raises((ConnectionError, TimeoutError)):
            driver(server.bootstrap, timeout=0.2, retries=FEW).call("metadata")


@pytest.mark.parametrize("hang_ups, version", [(1, 12), (2, 12), (3, 0)])
def test_a_broker_that_is_just_starting_is_not_an_old_one(driver, hang_ups, version):
    fake, left = filled(), [hang_ups]

    def start(node, api, data):
        if api == "ApiVersions" and left[0]:
            left[0] -= 1
            raise HangUp
        return data
    fake.mangle = start
    with Server(fake) as server:
        client = driver(server.bootstrap, retries=FEW)
        client.call("fetch_once", {("orders", 0): 0})
        found = [one[2] for one in fake.asked if one[1] == "Metadata"]
        assert found == [version]
        left[0] = 1
        server.hang_up()                        # one that was greeted once is none either
        time.sleep(0.05)
        client.call("list_offsets", {("orders", 0): "latest"})
        assert [one[2] for one in fake.asked if one[1] == "ListOffsets"][-1:] == [9]


def test_a_broker_that_answers_a_byte_at_a_time(driver):
    fake = filled()

    def trickle(node, api, data):
        raise Trickle(data)
    with Server(fake) as server:
        client = driver(server.bootstrap, timeout=0.4, retries=Retries(attempts=1))
        assert client.call("metadata").brokers
        fake.mangle = trickle
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match="did not answer"):
            client.call("metadata")
        assert time.monotonic() - begun < 10


def test_nobody_listens(driver):
    with Server(filled()) as server:
        bootstrap = server.bootstrap
    with pytest.raises(ConnectionError, match="cannot connect to 127.0.0.1"):
        driver(bootstrap, retries=FEW).call("metadata")


def test_hosts_that_are_none(driver):
    """A broker may tell anything."""
    fake = filled()
    with Server(fake) as server:
        for host, port in (("", 1), ("a\0b", 1), ("x" * 300, 1), *(("127.0.0.1", port) for port in (0, 70000, -1))):
            fake.hook = lambda node, api, version, body: (
                body | {"brokers": [{"node_id": 1, "host": host, "port": port}]} if api == "Metadata" else body)
            with pytest.raises(ConnectionError, match="cannot connect"):
                driver(server.bootstrap, retries=FEW).call("list_offsets", {("orders", 0): "latest"})


def test_connections_that_the_broker_ended_while_they_were_idle(driver):
    fake = filled()
    with Server(fake) as server:
        client = driver(server.bootstrap, retries=Retries(attempts=1))
        for _ in range(3):
            assert client.call("metadata").brokers
            server.hang_up()
            if type(client) is Async:
                client.loop.run_until_complete(asyncio.sleep(0.05))
            time.sleep(0.05)


def test_sasl_over_sockets(driver):
    fake = filled()
    fake.users = {"alice": "secret"}
    with Server(fake) as server:
        assert driver(server.bootstrap, sasl=("SCRAM-SHA-512", "alice", "secret")).call("metadata").brokers
        with pytest.raises(BrokerError, match="SASL_AUTHENTICATION_FAILED"):
            driver(server.bootstrap, sasl=("PLAIN", "alice", "")).call("metadata")


def test_a_fetch_that_fails_says_so_after_what_was_read(driver):
    fake = filled()
    damaged(fake, 9)
    with Server(fake) as server:
        client = driver(server.bootstrap)
        with pytest.raises(FrameError, match="checksum"):
            client.fetch("orders", fetch_bytes=100)
        assert sum(len(part.records) for part in client.fetch("orders", fetch_bytes=100, errors="skip")) == 45


@pytest.mark.parametrize("arguments", [
    dict(fetch_bytes=0), dict(fetch_bytes=1 << 40), dict(side_by_side=0), dict(errors="no"), dict(isolation="no"),
    dict(start=-1)])
def test_arguments_of_fetch(driver, arguments):
    with Server(filled()) as server:
        with pytest.raises(ValueError):
            driver(server.bootstrap).fetch("orders", **arguments)


@pytest.mark.parametrize("options, error", [
    (dict(timeout=0), ValueError), (dict(limits=3), TypeError), (dict(tls=3), TypeError), (dict(tls="/none"), OSError)])
@pytest.mark.parametrize("kind", [kafka.Client, kafka.AsyncClient])
def test_arguments_of_clients(kind, options, error):
    with pytest.raises(error):
        kind("localhost:1", **options)


def test_fetch_closes_its_client():
    fake = filled(partitions=4)
    before = threading.active_count()
    with Server(fake) as server:
        baseline = threading.active_count()
        assert sum(len(part.records) for part in kafka.fetch(server.bootstrap, "orders")) == 200
        with kafka.fetch(server.bootstrap, "orders", fetch_bytes=100, side_by_side=4) as parts:
            assert [(one.partition, one.start, one.stop) for one in parts.ranges] == [(n, 0, 50) for n in range(4)]
            next(parts)
        assert list(parts) == []
        left = kafka.fetch(server.bootstrap, "orders", fetch_bytes=100)
        next(left)
        del left
        never = kafka.fetch(server.bootstrap, "orders")
        del never
        gc.collect()
        until = time.monotonic() + 5
        while threading.active_count() > baseline and time.monotonic() < until:
            time.sleep(0.01)        # the server's threads see their connections end
        assert threading.active_count() <= baseline
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            kafka.fetch(server.bootstrap, "none", retries=FEW)
    assert threading.active_count() <= before


def test_an_asynchronous_fetch_that_is_left():
    async def leave(bootstrap):
        async with kafka.AsyncClient(bootstrap) as client:
            parts = client.fetch("orders", fetch_bytes=100)
            async for part in parts:
                break
            await parts.aclose()
            return len(asyncio.all_tasks())

    with Server(filled(partitions=4)) as server:
        assert asyncio.run(leave(server.bootstrap)) == 1


def test_close_ends_what_waits():
    fake = filled()

    def silent(node, api, data):
        raise Silence
    fake.mangle = silent
    with Server(fake) as server:
        client = kafka.Client(server.bootstrap, timeout=60)
        failed = []

        def ask():
            try:
                client.metadata()
            except ValueError as error:
                failed.append(str(error))
        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.2)
        client.close()
        thread.join(5)
        assert not thread.is_alive() and failed == ["the client is closed"]
        with pytest.raises(ValueError, match="closed"):
            client.metadata()


def test_threads_may_share_a_client():
    with Server(filled(partitions=3)) as server, kafka.Client(server.bootstrap) as client:
        counts = []
        threads = [threading.Thread(target=lambda: counts.append(
            sum(len(part.records) for part in client.fetch("orders", fetch_bytes=200)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert counts == [150] * 4


def test_answers_are_decoded_in_many_threads_at_once():
    """The first time, too: what the kernel reads by is made then, and must outlive the race."""
    program = (
        "import threading; from wirescan import kafka; from wirescan.kafka import program, schema\n"
        "body = {'responses': [{'topic_id': bytes(16), 'partitions': [{'records': bytes(61)}] * 50}]}\n"
        "asked = kafka.requests(kafka.encode_request('Fetch', 17))\n"
        "data = kafka.encode_response('Fetch', 17, body)\n"
        "def work():\n"
        "    begun.wait()\n"
        "    fetched = kafka.body(kafka.responses(data, asked), 'Fetch')\n"
        "    found.append(fetched.open('responses').open('partitions')['records_size'].sum())\n"
        "for _ in range(60):\n"
        "    program.programs_of.cache_clear(); program.steps_of.cache_clear()\n"
        "    begun, found = threading.Barrier(8), []\n"
        "    threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "    [one.start() for one in threads]; [one.join() for one in threads]\n"
        "    assert found == [50 * 61] * 8, found\n")
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_names_are_imported_when_they_are_asked_for():
    heavy = ["asyncio", "ssl", "wirescan.kafka.client"]
    program = f"import sys, wirescan.kafka; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"
    assert kafka.Client.__name__ == "Client" and callable(kafka.fetch)
    with pytest.raises(AttributeError):
        kafka.Klient
    from wirescan.kafka import client
    assert all(hasattr(client, name) for name in client.__all__)
    with pytest.raises(AttributeError):
        client.Klient


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bytes_for_an_answer(data):
    """Damage anywhere in an answer ends in rows, or in an error that says so."""
    fake = filled(2)

    def damage(node, api, answer):
        answer = bytearray(answer)
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(answer) - 1))
            answer[at] = data.draw(st.integers(0, 255))
        return bytes(answer)
    fake.mangle = damage
    driver = FakeDriver(fake, limits=Limits(frame=100_000))
    try:
        read(fake, 0, 10, driver=driver)
    except (BrokerError, FrameError, OSError):
        pass
    assert driver.largest <= max(2 * FIRST_ROOM, 100_000)


def test_greet_needs_no_driver():
    connection = Connection(NODE)
    steps = greet(connection)
    assert kafka.requests(next(steps))["api_version"].tolist() == [3]


def refuse(fake, *apis):
    """From now on brokers answer all but these."""
    def fail(node, api, data):
        if api in apis:
            raise Silence
        return data
    fake.mangle = fail


@pytest.mark.parametrize("how", ["next", "close"])
def test_parts_are_closed_while_brokers_are_silent(how):
    """By another thread than that which waits for the next part, too; the client stays good."""
    fake = filled(20)
    with Server(fake) as server, kafka.Client(server.bootstrap, timeout=20) as client:
        parts = client.fetch("orders", fetch_bytes=100)
        next(parts)
        refuse(fake, "Fetch")
        time.sleep(0.2)
        found = []
        waiting = threading.Thread(target=lambda: found.extend(parts), daemon=True)
        if how == "next":
            waiting.start()
            time.sleep(0.2)
        begun = time.monotonic()
        parts.close()
        if how == "next":
            waiting.join(5)
            assert not waiting.is_alive()
        assert time.monotonic() - begun < 3
        fake.mangle = lambda node, api, data: data
        assert sum(len(part.records) for part in client.fetch("orders")) == 100
        left = client.fetch("orders", fetch_bytes=100)
        next(left)
        client.close()                          # ends what it reads
        with pytest.raises((ValueError, OSError)):
            list(left)


@pytest.mark.parametrize("tls", [None, True])
def test_close_ends_what_still_dials(driver, tls):
    """A TLS handshake that nobody answers, and a connection that nobody accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, contextlib.ExitStack() as stack:
        if tls is None:
            for _ in range(3):                  # fill the backlog
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(listening.getsockname())
        client = driver("127.0.0.1:%d" % listening.getsockname()[1], tls=tls, timeout=20, retries=FEW)
        begun = time.monotonic()
        if type(client) is Async:
            client.loop.call_later(0.3, lambda: client.loop.create_task(client.client.close()))
        else:
            threading.Timer(0.3, client.close).start()
        with pytest.raises(ValueError, match="closed"):
            client.call("metadata")
        assert time.monotonic() - begun < 5


def test_as_many_leaders_as_metadata_names(driver):
    """They are asked some at a time."""
    fake, count, most = filled(1), 300, []

    def claim(node, api, version, body):
        if api == "Metadata":
            port = fake.nodes[1][1]
            body["brokers"] = [{"node_id": one, "host": f"127.0.{1 + one // 200}.{1 + one % 200}", "port": port}
                               for one in range(count)]
            body["topics"] = [{"name": "orders", "topic_id": fake.ids["orders"], "partitions": [
                {"partition_index": one, "leader_id": one} for one in range(count)]}]
        return body
    fake.hook = claim

    def watch(frame, event, argument):
        most.append(threading.active_count())
    with Server(fake) as server:
        client = driver(server.bootstrap, retries=Retries(attempts=1))
        client.call("metadata")
        before = threading.active_count()
        threading.setprofile(watch)
        try:
            with pytest.raises(ConnectionError, match="cannot connect"):
                client.call("list_offsets", {("orders", one): "latest" for one in range(count)})
        finally:
            threading.setprofile(None)
    if type(client) is Blocking:
        assert 1 < max(most) - before + 1 <= SIDE_BY_SIDE


def test_threads_that_cannot_be_started(monkeypatch):
    fake = filled(2, partitions=4, brokers=4)
    with Server(fake) as server, kafka.Client(server.bootstrap) as client:
        client.metadata()
        client.list_offsets({("orders", one): "latest" for one in range(4)})
        parts = client.fetch("orders")
        start, mine = threading.Thread.start, threading.current_thread()

        def fail(self):
            if threading.current_thread() is mine:
                raise RuntimeError("can't start new thread")
            start(self)
        monkeypatch.setattr(threading.Thread, "start", fail)
        assert len(client.list_offsets({("orders", one): "latest" for one in range(4)})) == 4
        with pytest.raises(OSError, match="no thread"):
            next(parts)


def test_no_error_ends_a_partition_as_if_it_were_whole(monkeypatch):
    part, count = Decoding.part, [0]

    def fail(self, piece):
        count[0] += 1
        if count[0] == 2:
            raise IndexError("a mistake")
        return part(self, piece)
    monkeypatch.setattr(Decoding, "part", fail)
    with Server(filled()) as server, pytest.raises(IndexError):
        list(kafka.fetch(server.bootstrap, "orders", fetch_bytes=100))


# ---------------------------------------------------------------------------------------- damage that hides a batch

def set_bits(fake, number, change):
    first, last, data = fake.topics["orders"][0].entries[number]
    data = bytearray(data)
    change(data)
    fake.topics["orders"][0].entries[number] = first, last, bytes(data)


def make_control(data):
    data[22] |= 0x20


def make_aborted(data):
    data[22] |= 0x10
    data[43:51] = (7).to_bytes(8, "big")


def make_earlier(data):
    data[23:27] = (-100).to_bytes(4, "big", signed=True)


@pytest.mark.parametrize("change, isolation", [
    (make_control, "read_uncommitted"), (make_control, "read_committed"), (make_aborted, "read_committed"),
    (make_earlier, "read_uncommitted")])
def test_damage_that_would_leave_a_batch_out(change, isolation):
    fake = filled(5)
    set_bits(fake, 2, change)
    fake.topics["orders"][0].aborted = [(7, 0)]
    question = Question(isolation=isolation)
    with pytest.raises(FrameError, match="checksum"):
        read(fake, 0, 25, question=question)
    left = [*range(10), *range(15, 25)]
    assert read(fake, 0, 25, question=question, check=False)[0] == left
    assert read(fake, 0, 25, question=question, errors="skip")[0] == left


def reach_far(data):
    data[23:27] = (0x100004).to_bytes(4, "big")


@pytest.mark.parametrize("most", [1, 300, 1 << 20])
def test_a_damaged_batch_does_not_tell_where_to_go_on(most):
    fake = filled(5)
    set_bits(fake, 2, reach_far)
    question = Question(max_bytes=most, partition_bytes=most, verify=True)
    assert read(fake, 0, 25, question=question, errors="skip")[0] == [*range(10), *range(15, 25)]
    _, parts = read(fake, 0, 25, question=question, errors="mark")
    assert sum(part.records.bad.sum() for part in parts) == 1 and parts[-1].next_offset == 25
    assert [offset for part in parts for offset in part.records["offset"][~part.records.bad].tolist()] == [
        *range(10), *range(15, 25)]


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_a_damaged_batch_at_the_end(most):
    """Nothing follows: then it is believed, up to the end of the log."""
    fake = filled(5)
    set_bits(fake, 4, reach_far)
    question = Question(max_bytes=most, partition_bytes=most, verify=True)
    offsets, parts = read(fake, 0, 25, question=question, errors="skip")
    assert offsets == list(range(20)) and parts[-1].next_offset == 25
    _, parts = read(fake, 0, 30, question=question, errors="mark")
    assert [part.next_offset for part in parts][-1] == 25 and sum(part.records.bad.sum() for part in parts) == 1


def test_the_client_verifies_before_it_goes_on():
    fake = filled(5)
    set_bits(fake, 2, reach_far)
    with Server(fake) as server:
        for check, left in ((True, [*range(10), *range(15, 25)]), (False, None)):
            parts = list(kafka.fetch(server.bootstrap, "orders", fetch_bytes=1, errors="skip", check=check))
            found = [offset for part in parts for offset in part.records["offset"].tolist()]
            assert found == left if check else found[:15] == list(range(15))


# ---------------------------------------------------------------------------------------- leaders that know less

def lagging(fake, answers, end=10):
    """The high watermark lags behind for some answers."""
    def hook(node, api, version, body):
        if api == "Fetch" and answers:
            answers.pop()
            partition = body["responses"][0]["partitions"][0] | {
                "records": b"", "high_watermark": end, "last_stable_offset": end}
            return {"responses": [body["responses"][0] | {"partitions": [partition]}]}
        return body
    fake.hook = hook


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_high_watermark_that_lags_is_not_the_end(isolation):
    fake, driver = filled(), None
    driver, cluster = FakeDriver(fake), cluster_of(fake)
    wanted, = driver.run(plan(cluster, "orders", None, "earliest", "latest", None, None, isolation))
    question = Question(isolation=isolation)
    for count, right in ((EMPTY + 2, list(range(50))), (99, BrokerError)):
        lagging(fake, [None] * count)
        pieces = driver.iterate(read_range(cluster, wanted, question, Limits(), "strict"))
        if right is BrokerError:
            with pytest.raises(BrokerError, match="OFFSET_NOT_AVAILABLE.*offsets to 10, and there were some to 50"):
                list(pieces)
        else:
            assert [one for piece in pieces for one in Decoding().part(piece).records["offset"].tolist()] == right


def test_a_high_watermark_that_was_seen_to_be_higher():
    fake = filled()
    driver, question = FakeDriver(fake), Question(max_bytes=100, partition_bytes=100)
    pieces = driver.iterate(read_range(cluster_of(fake), Range("orders", 0, 0, 99), question, Limits(), "strict"))
    next(pieces)
    lagging(fake, [None] * 5, 5)
    assert [piece.next_offset for piece in pieces] == list(range(10, 55, 5))


@pytest.mark.parametrize("version", [11, 12, 17])
def test_a_leader_with_another_history(version):
    fake = FakeCluster(versions=VERSIONS | {"Fetch": (0, version)})
    fake.add_topic("orders")
    for first in range(0, 20, 5):
        fake.append("orders", 0, batch(first, leader_epoch=3))
    fake.topics["orders"][0].epoch = 4

    def hook(node, api, version, body):
        if api == "Fetch":
            asked = fake.asked[-1][3]["topics"][0]["partitions"][0]
            if asked["fetch_offset"] == 10 and asked["last_fetched_epoch"] == 3:
                partition = body["responses"][0]["partitions"][0] | {
                    "records": None, "diverging_epoch": {"epoch": 2, "end_offset": 7}}
                return {"responses": [body["responses"][0] | {"partitions": [partition]}]}
        return body
    fake.hook = hook
    question = Question(max_bytes=100, partition_bytes=100)
    if version < 12:
        assert read(fake, 0, 20, question=question)[0] == list(range(20))
    else:
        with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE.*offset 10 of orders-0 .* history from 7 on"):
            read(fake, 0, 20, question=question)
        assert read(fake, 10, 20, question=question)[0] == list(range(10, 20))
        fake.topics["orders"][0].epoch = 1          # then the batches' epoch is none that can be
        assert read(fake, 0, 20, question=question)[0] == list(range(20))


# ---------------------------------------------------------------------------------------- bounds

@pytest.mark.parametrize("isolation, offsets", [("read_uncommitted", [0, 5, 6]), ("read_committed", [0, 6])])
def test_control_batches_among_batches(isolation, offsets):
    fake = FakeCluster()
    fake.add_topic("orders")
    of_producer = dict(transactional=True, producer_id=7, producer_epoch=0)
    fake.append("orders", 0, batch(0, **of_producer))
    fake.append("orders", 0, encode_batch([(5, 0, b"\0\0\0\1", b"\0" * 6)], control=True, **of_producer))
    fake.append("orders", 0, batch(6))
    part, = read_batches(fake, 0, 11, isolation=isolation)
    assert part.batches["base_offset"].tolist() == offsets


def test_many_brokers_that_are_silent():
    fake = filled()
    driver, cluster = FakeDriver(fake, timeout=25), cluster_of(fake, retries=Retries(seconds=60))
    fake.nodes.update({number: (f"broker-{number}", 9092) for number in range(2, 32)})
    driver.run(cluster.metadata())

    def silent(node, api, data):
        raise Silence
    fake.mangle, before = silent, driver.exchanges
    with pytest.raises(TimeoutError):
        driver.run(cluster.metadata())
    assert driver.now <= 60 + 25 and driver.exchanges - before == 3
    fake.mangle = lambda node, api, data: data
    fake.down, before = set(range(2, 32)), driver.exchanges
    assert driver.run(cluster.metadata()).brokers and driver.exchanges - before <= 4


@pytest.mark.parametrize("body", [
    {"brokers": [{"node_id": number, "host": "", "port": 1} for number in range(1001)]},
    {"topics": [{"name": "", "partitions": []}] * 1001},
    {"topics": [{"name": "t", "partitions": [{"partition_index": 1}] * 501}] * 2},
    {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "replica_nodes": [1] * 501}] * 2}]}])
def test_metadata_of_too_much(monkeypatch, body):
    monkeypatch.setattr("wirescan.kafka.client.cluster.ROWS", 1000)
    monkeypatch.setattr("wirescan.kafka.client.cluster.MOST", Limits(rows=1000))
    fake = filled()
    fake.hook = lambda node, api, version, usual: {**usual, **body} if api == "Metadata" else usual
    with pytest.raises(FrameError, match="limit"):
        FakeDriver(fake).run(cluster_of(fake).metadata())


@pytest.mark.parametrize("arguments, error", [
    (dict(partitions="01"), TypeError), (dict(partitions=b"01"), TypeError), (dict(partitions=["0"]), TypeError),
    (dict(partitions=[0], start={1: 20}), ValueError), (dict(stop={"0": 5}), ValueError),
    (dict(stop={7: 5}), ValueError)])
def test_partitions_that_are_none(arguments, error):
    with pytest.raises(error):
        planned(filled(), **arguments)


@pytest.mark.parametrize("topics", ["orders", b"orders"])
def test_topics_are_a_list(topics):
    with kafka.Client("localhost:1") as client, pytest.raises(TypeError, match="list of names"):
        client.metadata(topics)


@pytest.mark.parametrize("timeout", [float("inf"), float("nan"), 1e11, -1])
def test_timeouts_that_are_none(timeout):
    with pytest.raises(ValueError, match="timeout"):
        kafka.Client("localhost:1", timeout=timeout)


@pytest.mark.parametrize("user, password", [("a\0b", "c"), ("a", "b\0c")])
def test_plain_has_no_nul(user, password):
    with pytest.raises(ValueError, match="NUL"):
        kafka.Client("localhost:1", sasl=("PLAIN", user, password))


def answer_scram(fake, change_first=lambda said: said, change_final=lambda said: said):
    """Change what a fake broker answers to the first and to the second message of SCRAM."""
    def change(node, api, version, body):
        if api != "SaslAuthenticate":
            return body
        said = bytes(body["auth_bytes"])
        said = change_first(said) if said.startswith(b"r=") else change_final(said)
        return body | {"auth_bytes": said}

    fake.users = {"alice": "secret"}
    fake.hook = change


def count_scram_messages(fake):
    return sum(asked[1] == "SaslAuthenticate" for asked in fake.asked)


@pytest.mark.parametrize("change", [
    lambda said: b"r=another" + said[said.index(b","):],
    lambda said: said[:said.index(b"i=")] + b"i=4095",
    lambda said: said[:said.index(b"i=")] + b"i=131073"], ids=["nonce", "few iterations", "many iterations"])
def test_a_doubtful_server_gets_no_proof_of_the_password(change):
    fake = filled()
    answer_scram(fake, change_first=change)
    with pytest.raises(PermissionError, match="broker-1:9092"):
        greeted(fake, ("SCRAM-SHA-256", "alice", "secret"))
    assert count_scram_messages(fake) == 1


def test_a_server_has_to_prove_that_it_knows_the_password():
    fake = filled()
    answer_scram(fake, change_final=lambda said: b"v=" + base64.b64encode(bytes(32)))
    with pytest.raises(PermissionError, match="does not know the password"):
        greeted(fake, ("SCRAM-SHA-256", "alice", "secret"))
    assert count_scram_messages(fake) == 2
