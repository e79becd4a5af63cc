"""The Kafka client: connections, operations and drivers, against the brokers of fake_broker.py.

`Connection` and the operations have no sockets. A driver runs them with sockets or with asyncio.
"""

import asyncio
import base64
import contextlib
import gc
import random
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import read_example_count
from tests.support.fake_broker import (
    NOT_LEADER,
    VERSIONS,
    FakeCluster,
    FakeDriver,
    HangUp,
    Server,
    Silence,
    Trickle,
)
from tests.support.kafka_answers import NODE, greet_cluster, make_batch, make_cluster
from tests.support.kafka_parts import collect_offsets
from wirescan import FrameError, Limits, kafka
from wirescan.kafka.client.cluster import Cluster, Retries, parse_nodes
from wirescan.kafka.client.connection import (
    FIRST_BUFFER_BYTES,
    Connection,
    greet,
    make_connect_error,
)
from wirescan.kafka.client.decode import Decoding
from wirescan.kafka.client.effects import SIDE_BY_SIDE, Node
from wirescan.kafka.client.fetch_bounds import resolve_ranges
from wirescan.kafka.client.fetch_ranges import (
    EMPTY_ANSWERS,
    FetchRange,
    Question,
    fetch_once,
    read_range,
)
from wirescan.kafka.client.offsets import list_offsets
from wirescan.kafka.encode.records import encode_batch, encode_message_set
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode

SALT = base64.b64encode(b"sixteen bytes...")
RETRIES = Retries()
LATEST = {("orders", 0): "latest"}
COMMIT = b"\0\0\0\1"
ABORT = b"\0\0\0\0"


def make_client_cluster(fake, **options):
    return Cluster(parse_nodes(fake.bootstrap), chance=random.Random(1), **options)


def run(fake, operation):
    return FakeDriver(fake).run(operation)


def list_requests(fake, api):
    """List (node, version, request) of the requests of an API, in their order."""
    return [(node, version, body) for node, name, version, body in fake.asked if name == api]


def list_versions(fake, api):
    return [version for _, version, _ in list_requests(fake, api)]


def change_answers(fake, api, change):
    """Make the brokers answer an API with `change(body)`."""
    fake.hook = lambda node, name, version, body: change(body) if name == api else body


def change_partition(body, **fields):
    """Return a body of Fetch whose only partition has other fields."""
    (topic,) = body["responses"]
    (partition,) = topic["partitions"]
    return {"responses": [topic | {"partitions": [partition | fields]}]}


def fall_silent(node, api, data):
    raise Silence


def pass_on(node, api, data):
    return data


def make_question(size, **options):
    """Return a question that asks for at most `size` bytes at a time."""
    return Question(max_bytes=size, partition_bytes=size, **options)


def resolve_all(cluster, isolation):
    """Return the operation that resolves the ranges of all partitions of `orders`."""
    return resolve_ranges(
        cluster,
        "orders",
        partitions=None,
        start="earliest",
        stop="latest",
        start_time=None,
        stop_time=None,
        isolation=isolation,
    )


def make_control_batch(offset, key, **options):
    """Encode a batch with a marker, which is COMMIT or ABORT."""
    return encode_batch([(offset, 0, key, b"\0" * 6)], control=True, transactional=True, **options)


def count_records(parts):
    return sum(len(part.records) for part in parts)


def read(
    fake,
    start=0,
    stop=50,
    *,
    topic="orders",
    partition=0,
    question=Question(),
    driver=None,
    cluster=None,
    **options,
):
    """Read a range. Return the offsets of its records, and its parts."""
    driver = driver or FakeDriver(fake)
    cluster = cluster or make_client_cluster(fake)
    decoding = Decoding(question.isolation, **options)
    fetch_range = FetchRange(topic, partition, start, stop)
    pieces = driver.iterate(
        read_range(cluster, fetch_range, question, driver.limits, decoding.errors)
    )
    parts = [decoding.make_part(piece) for piece in pieces]
    return collect_offsets(parts), parts


def read_offsets(fake, *arguments, **options):
    offsets, _ = read(fake, *arguments, **options)
    return offsets


# ---- a connection


def make_metadata_answer(number=0, **body):
    body = {"brokers": [{"node_id": 7, "host": "h", "port": 1}], **body}
    return kafka.encode_response("Metadata", 9, body, correlation_id=number)


def make_connection(count=1, limits=Limits(), **options):
    """Return a connection that waits for the answers to Metadata requests."""
    connection = Connection(NODE, "test", limits)
    for _ in range(count):
        connection.send("Metadata", 9, {}, **options)
    return connection


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
def test_answers_come_in_any_chunks(chunk):
    connection = make_connection(3)
    data = b"".join(make_metadata_answer(number, controller_id=number) for number in range(3))
    answers = []
    for at in range(0, len(data), chunk):
        answers += connection.receive(data[at : at + chunk])
    assert [answer.table["controller_id"][0] for answer in answers] == [0, 1, 2]
    assert {answer.version for answer in answers} == {9}
    assert connection.is_idle


@pytest.mark.parametrize("number", [1, -1, 2**31 - 1])
def test_an_answer_to_another_request(number):
    connection = make_connection(2)
    message = f"answers request {number}, and the oldest open one is 0, Metadata"
    with pytest.raises(ConnectionError, match=message):
        connection.receive(make_metadata_answer(number))
    with pytest.raises(ConnectionError, match="failed before"):
        connection.get_buffer()
    with pytest.raises(ConnectionError, match="failed before"):
        connection.send("Metadata", 9, {})


def test_an_answer_without_a_request():
    connection = make_connection(1)
    assert connection.receive(make_metadata_answer(0))
    with pytest.raises(ConnectionError, match="without a request"):
        connection.receive(make_metadata_answer(1))


@pytest.mark.parametrize("size", [0, 3, -1, -(2**31), 1001 - 4, 2**31 - 1])
def test_impossible_sizes_are_refused(size):
    connection = make_connection(limits=Limits(frame=1000))
    with pytest.raises(FrameError, match="impossible length.*broker-1:9092"):
        connection.receive(size.to_bytes(4, "big", signed=True))
    assert not connection.is_idle


def test_tls_where_none_is_expected():
    with pytest.raises(PermissionError, match="speaks TLS"):
        make_connection().receive(b"\x15\x03\x03\x00\x02\x02\x16")


@pytest.mark.parametrize(
    "damage",
    [
        # A count of tagged fields without the fields.
        lambda data: data[:-1] + b"\x05",
        # A host of 253 bytes.
        lambda data: data.replace(b"\x02h", b"\xfeh"),
        # One byte more than the fields.
        lambda data: (len(data) - 3).to_bytes(4, "big") + data[4:] + b"!",
    ],
)
def test_malformed_bodies_are_refused(damage):
    connection = make_connection()
    with pytest.raises(FrameError, match="broker-1:9092"):
        connection.receive(damage(make_metadata_answer()))


@pytest.mark.parametrize("expected", [0, 10 << 20])
def test_memory_follows_what_arrives(expected):
    """If a broker claims 90 MiB, the buffer has the expected size or twice the bytes received."""
    connection = make_connection(expected=expected)
    connection.receive((90 << 20).to_bytes(4, "big"))
    received = 4
    while received + (size := len(connection.get_buffer())) < 90 << 20:
        assert size <= max(received, FIRST_BUFFER_BYTES, expected)
        connection.buffer_updated(size)
        received += size
    assert received > 40 << 20


def test_an_answer_is_in_one_buffer():
    connection = make_connection()
    data = make_metadata_answer(cluster_id=b"x" * 20000)
    (answer,) = connection.receive(data)
    (buffer,) = answer.table.buffers
    assert bytes(buffer) == data
    assert buffer.readonly


def test_a_request_that_cannot_be_encoded_leaves_the_connection_good():
    connection = make_connection(0)
    with pytest.raises(ValueError, match="no field 'nothing'"):
        connection.send("Metadata", 9, {"nothing": 1})
    connection.send("Metadata", 9, {})
    assert connection.receive(make_metadata_answer(0))


# ---- the greeting


@pytest.mark.parametrize(
    "versions, version",
    [
        (VERSIONS, 12),
        (VERSIONS | {"Metadata": (4, 6)}, 6),
        (VERSIONS | {"Metadata": (0, 99)}, 13),
        (None, 0),
        (VERSIONS | {"ApiVersions": (0, 2)}, 12),
    ],
)
def test_the_newest_common_version(versions, version):
    fake = make_cluster(versions=versions)
    assert greet_cluster(fake).version == version
    assert list_versions(fake, "Metadata") == [version]


def test_the_fallback_of_api_versions():
    fake = make_cluster(versions=VERSIONS | {"ApiVersions": (0, 2)})
    greet_cluster(fake)
    first_two = [(api, version) for _, api, version, _ in fake.asked[:2]]
    assert first_two == [("ApiVersions", 0), ("ApiVersions", 0)]


@pytest.mark.parametrize(
    "versions", [{"Metadata": (40, 50)}, {"Fetch": (0, 17)}, {"Metadata": (5, 3)}]
)
def test_no_common_version_is_an_error(versions):
    with pytest.raises(BrokerError, match="Metadata 0 to 13 at broker-1:9092, which has") as caught:
        greet_cluster(make_cluster(versions={"ApiVersions": (0, 4)} | versions))
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_an_error_in_the_greeting():
    fake = make_cluster()
    change_answers(fake, "ApiVersions", lambda body: {"error_code": 41})
    with pytest.raises(BrokerError, match="ApiVersions at broker-1:9092"):
        greet_cluster(fake)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_accepts_only_the_right_password(mechanism):
    fake = make_cluster()
    fake.users = {"alice": "secret"}
    assert greet_cluster(fake, (mechanism, "alice", "secret")).version == 12
    for user, password in (("alice", "other"), ("bob", "secret")):
        with pytest.raises(BrokerError, match=f"{mechanism} at broker-1.*no such user") as caught:
            greet_cluster(fake, (mechanism, user, password))
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    message = "closed the connection instead of answering Metadata"
    with pytest.raises(ConnectionResetError, match=message):
        greet_cluster(fake)


def test_a_mechanism_that_is_not_offered():
    fake = make_cluster()
    fake.users = {}
    refusal = {"error_code": 33, "mechanisms": [{"name": "GSSAPI"}]}
    change_answers(fake, "SaslHandshake", lambda body: body | refusal)
    with pytest.raises(BrokerError, match="UNSUPPORTED_SASL_MECHANISM.*which offers GSSAPI"):
        greet_cluster(fake, ("PLAIN", "a", "b"))


@pytest.mark.parametrize(
    "message, reason",
    [
        (b"", "Malformed server first message"),
        (b"e=other-error", "returned an error|Malformed server first message"),
        (b"r=%sx,s=SALT,i=99999999", "asks for '99999999' iterations"),
        (b"r=%sx,s=SALT,i=1", "asks for '1' iterations"),
        (b"r=mine,s=SALT,i=4096", "Client nonce doesn't match"),
        (b"\xff\xfe", "'utf-8' codec can't decode"),
        (b"r=%sx,s=SALT,i=4096,i=99999999", "asks for '99999999' iterations"),
        (b"r=%sx,s=A,i=4096", "Invalid base.?64"),
        (b"r=%sx,s=SALT,i=x", "asks for 'x' iterations"),
        (b"r=%sx,s=SALT,i=4096", "Malformed server final message"),
    ],
)
def test_wrong_messages_of_a_scram_server(message, reason):
    fake = make_cluster()
    fake.users = {"alice": "secret"}

    def answer(body):
        *_, request = fake.asked[-1]
        nonce = request["auth_bytes"].rpartition(b"r=")[2]
        return {"auth_bytes": message.replace(b"%s", nonce).replace(b"SALT", SALT)}

    change_answers(fake, "SaslAuthenticate", answer)
    with pytest.raises(PermissionError, match=f"broker-1:9092.*({reason})"):
        greet_cluster(fake, ("SCRAM-SHA-256", "alice", "secret"))


@pytest.mark.parametrize(
    "sasl, reason",
    [
        (("GSSAPI", "a", "b"), "not 'GSSAPI'"),
        (("PLAIN", "a"), "must be"),
        ("PLAIN", "must be"),
        (("PLAIN", b"a", "b"), "must be"),
    ],
)
def test_bad_sasl_arguments_are_refused(sasl, reason):
    with pytest.raises(ValueError, match=reason):
        kafka.Client("localhost:1", sasl=sasl)


# ---- the cluster


@pytest.mark.parametrize(
    "text, address",
    [("a:1", [("a", 1)]), ("a:1, b:2", [("a", 1), ("b", 2)]), (["[::1]:9092"], [("::1", 9092)])],
)
def test_addresses_are_parsed(text, address):
    assert [tuple(node[1:]) for node in parse_nodes(text)] == address
    assert [node.id for node in parse_nodes(text)] == [-1] * len(address)


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":1", "a:b", "a:0", "a:65536", "::1:9092", [], "a:1,,b:2", "a:-1"]
)
def test_wrong_addresses_are_refused(text):
    with pytest.raises(ValueError, match="an address is host:port|names no broker"):
        parse_nodes(text)


@pytest.mark.parametrize("version", range(13))
def test_metadata_lists_brokers_and_topics(version):
    fake = make_cluster(partitions=2, brokers=2, versions=VERSIONS | {"Metadata": (0, version)})
    cluster = make_client_cluster(fake)
    metadata = run(fake, cluster.fetch_metadata())
    assert metadata.brokers == {1: Node(1, "broker-1", 9092), 2: Node(2, "broker-2", 9092)}
    orders = metadata.topics["orders"]
    leaders = {number: partition.leader for number, partition in orders.partitions.items()}
    assert leaders == {0: 1, 1: 2}
    assert orders.partitions[0].replicas == (1, 2)
    assert orders.partitions[0].in_sync == (1, 2)
    assert orders.id == (fake.ids["orders"] if version >= 10 else bytes(16))
    assert metadata.controller == (1 if version else -1)
    assert metadata.cluster_id == ("fake" if version >= 2 else None)
    metadata = run(fake, cluster.fetch_metadata(["orders", "none"]))
    assert metadata.topics["none"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    *_, used_version, request = fake.asked[-1]
    if used_version >= 4:
        assert request["allow_auto_topic_creation"] == 0


def test_bootstrap_asks_one_after_another():
    fake = make_cluster(brokers=3)
    fake.down = {1, 2}
    driver = FakeDriver(fake)
    assert driver.run(make_client_cluster(fake).fetch_metadata()).brokers.keys() == {1, 2, 3}
    assert driver.exchanges == 3
    assert driver.now == 0


def test_unreachable_brokers_are_an_error():
    fake = make_cluster(brokers=3)
    fake.down = {1, 2, 3}
    driver = FakeDriver(fake)
    with pytest.raises(ConnectionRefusedError) as caught:
        driver.run(make_client_cluster(fake).fetch_metadata())
    assert driver.exchanges == 3 * RETRIES.attempts
    assert driver.now < RETRIES.seconds
    assert f"after {RETRIES.attempts} attempts" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "failure, kind, message",
    [
        (TimeoutError("timed out"), TimeoutError, "kafka:9092 cannot be reached in 2.5 s"),
        (
            ConnectionRefusedError("refused"),
            ConnectionError,
            "cannot connect to kafka:9092: refused",
        ),
        (ssl.SSLEOFError("closed"), ConnectionError, "cannot connect to kafka:9092"),
        (ssl.SSLCertVerificationError("expired"), PermissionError, "TLS with kafka:9092 fails"),
    ],
)
def test_errors_of_connecting_name_the_broker(failure, kind, message):
    error = make_connect_error(Node(1, "kafka", 9092), failure, 2.5)
    assert type(error) is kind
    assert str(error).startswith(message)


def test_attempts_end_when_the_time_is_over():
    fake = make_cluster()
    fake.mangle = fall_silent
    driver = FakeDriver(fake, timeout=25)
    with pytest.raises(TimeoutError, match="no answer"):
        driver.run(make_client_cluster(fake).fetch_metadata())
    assert driver.exchanges == 3  # at 0, 25 and 50 seconds; the limit is 60 seconds


def test_pauses_double_and_vary():
    pauses = [list_pauses(seed) for seed in (1, 2)]
    for number, pause in enumerate(pauses[0]):
        longest = min(RETRIES.longest, RETRIES.first * 2**number)
        assert longest / 2 <= pause <= longest
    assert pauses[0] != pauses[1]


def list_pauses(seed):
    """List the pauses between attempts to reach a broker that is down."""
    fake = make_cluster()
    fake.down = {1}
    cluster = Cluster(parse_nodes(fake.bootstrap), chance=random.Random(seed))
    driver = FakeDriver(fake)
    perform = driver.perform
    seconds = []

    def record_pause(effect):
        seconds.append(getattr(effect, "seconds", 0))
        return perform(effect)

    driver.perform = record_pause
    with pytest.raises(ConnectionError, match="nobody listens at broker-1:9092"):
        driver.run(cluster.fetch_metadata())
    return [pause for pause in seconds if pause]


@pytest.mark.parametrize("code", [29, 999, -7, -32768, 32767])
def test_final_errors_are_not_retried(code):
    fake = make_cluster()
    fake.errors["ListOffsets", "orders", 0] += [code] * 99
    with pytest.raises(BrokerError, match="orders-0 at broker-1:9092") as caught:
        run(fake, list_offsets(make_client_cluster(fake), LATEST))
    assert int(caught.value.code) == code
    assert len(fake.errors["ListOffsets", "orders", 0]) == 98


@pytest.mark.parametrize("code", [6, 5, 3, 74, 75, 100, 103, 56, 78, 7])
def test_retriable_errors_are_retried(code):
    fake = make_cluster()
    fake.errors["ListOffsets", "orders", 0] += [code, code]
    driver = FakeDriver(fake)
    offsets = driver.run(list_offsets(make_client_cluster(fake), LATEST))
    assert offsets["orders", 0].offset == 50
    assert driver.now > 0
    assert len(list_requests(fake, "Metadata")) == 3  # one at first, and one after each error


def test_retriable_errors_that_last_are_raised():
    fake = make_cluster()
    fake.errors["ListOffsets", "orders", 0] += [NOT_LEADER] * 999
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        run(fake, list_offsets(make_client_cluster(fake), LATEST))
    assert len(fake.errors["ListOffsets", "orders", 0]) == 999 - RETRIES.attempts


def test_metadata_of_an_unknown_topic_is_retried_for_a_short_time():
    fake = make_cluster()
    driver = FakeDriver(fake)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION.*nothing-0"):
        driver.run(list_offsets(make_client_cluster(fake), {("nothing", 0): "latest"}))
    assert driver.exchanges == RETRIES.unknown
    assert 0 < driver.now < 3
    fake.errors["Metadata", "orders", None] += [3, 5]
    assert driver.run(list_offsets(make_client_cluster(fake), LATEST))


def test_the_leader_moves():
    fake = make_cluster(brokers=2)
    cluster, driver = make_client_cluster(fake), FakeDriver(fake)
    log = fake.topics["orders"][0]
    driver.run(list_offsets(cluster, LATEST))
    log.leader = 2
    log.epoch = 1
    assert driver.run(list_offsets(cluster, LATEST))["orders", 0].leader_epoch == 1
    node, _, _, request = fake.asked[-1]
    assert node == 2
    assert request["topics"][0]["partitions"][0]["current_leader_epoch"] == 1
    fake.down = {2}
    log.leader = 1
    assert driver.run(list_offsets(cluster, LATEST))["orders", 0].offset == 50


def test_leaders_are_asked_side_by_side_and_only_for_what_is_left():
    fake = make_cluster(brokers=3, partitions=6)
    fake.errors["ListOffsets", "orders", 4] += [NOT_LEADER]
    questions = {("orders", number): "latest" for number in range(6)}
    listed = run(fake, list_offsets(make_client_cluster(fake), questions))
    offsets = {number: answer.offset for (_, number), answer in listed.items()}
    assert offsets == dict.fromkeys(range(6), 50)
    partitions = [
        [each["partition_index"] for topic in request["topics"] for each in topic["partitions"]]
        for _, _, request in list_requests(fake, "ListOffsets")
    ]
    assert sorted(partitions) == [[0, 3], [1, 4], [2, 5], [4]]


@pytest.mark.parametrize("leader", [-1, 9])
def test_a_missing_leader_is_an_error(leader):
    fake = make_cluster()
    fake.topics["orders"][0].leader = leader
    with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"):
        run(fake, list_offsets(make_client_cluster(fake), LATEST))


def test_an_answer_without_the_partition():
    fake = make_cluster()
    change_answers(fake, "ListOffsets", lambda body: {"topics": []})
    with pytest.raises(BrokerError, match="leaves out"):
        run(fake, list_offsets(make_client_cluster(fake), LATEST))


def test_an_error_in_earlier_metadata_does_not_last():
    fake = make_cluster()
    cluster, driver = make_client_cluster(fake), FakeDriver(fake)
    fake.errors["Metadata", "orders", None] += [29]
    orders = driver.run(cluster.fetch_metadata()).topics["orders"]
    assert orders.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert driver.run(list_offsets(cluster, LATEST))["orders", 0].offset == 50


# ---- offsets and one fetch


@pytest.mark.parametrize("version", range(10))
def test_list_offsets_finds_times(version):
    fake = make_cluster(versions=VERSIONS | {"ListOffsets": (version, version)})
    fake.topics["orders"][0].start = 5
    fake.topics["orders"][0].stable = 30

    def ask(when, isolation="read_uncommitted"):
        offsets = run(
            fake, list_offsets(make_client_cluster(fake), {("orders", 0): when}, isolation)
        )
        return offsets["orders", 0]

    assert ask("earliest").offset == 5
    assert ask("latest").offset == 50
    assert ask(1017).offset == 17
    assert ask(10**6).offset == -1
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
def test_wrong_times_are_refused(when):
    fake = make_cluster()
    with pytest.raises(ValueError, match="a time is milliseconds"):
        run(fake, list_offsets(make_client_cluster(fake), {("orders", 0): when}))
    with pytest.raises(ValueError, match="isolation is one of"):
        run(fake, list_offsets(make_client_cluster(fake), {}, "read"))


@pytest.mark.parametrize("version", range(18))
def test_fetch_once_asks_every_leader(version):
    fake = make_cluster(partitions=2, brokers=2, versions=VERSIONS | {"Fetch": (0, version)})
    fake.topics["orders"][0].aborted = [(7, 10), (8, 20)]
    starts = {("orders", 0): 12, ("orders", 1): 45}
    answers = run(fake, fetch_once(make_client_cluster(fake), starts, Question()))
    first, second = answers["orders", 0], answers["orders", 1]
    assert kafka.records(kafka.scan(first.table))["offset"].tolist() == list(range(10, 50))
    assert kafka.records(kafka.scan(second.table))["offset"].tolist() == list(range(45, 50))
    assert first.high_watermark == 50
    assert first.size == len(first.table.bytes(0, "records"))
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert first.aborted.tolist() == ([(7, 10), (8, 20)] if version >= 4 else [])
    assert list_versions(fake, "Fetch") == [version] * 2


def test_fetch_names_the_topic_if_its_id_is_unknown():
    fake = make_cluster(versions=VERSIONS | {"Metadata": (0, 9)})
    run(fake, fetch_once(make_client_cluster(fake), {("orders", 0): 0}, Question()))
    assert fake.asked[-1][1:3] == ("Fetch", 12)


def test_an_offset_out_of_range():
    fake = make_cluster()
    message = "OFFSET_OUT_OF_RANGE.*for offset 99 of orders-0 at broker-1"
    with pytest.raises(BrokerError, match=message):
        run(fake, fetch_once(make_client_cluster(fake), {("orders", 0): 99}, Question()))
    with pytest.raises(BrokerError, match=message):
        read(fake, 99, 100)


# ---- ranges


@pytest.mark.parametrize(
    "most",
    [1, 150, 1 << 20, *(pytest.param(value, marks=pytest.mark.slow) for value in (60, 300, 1000))],
)
@pytest.mark.parametrize("version", [0, 2, 3, 11, 17])
def test_a_range_in_answers_of_any_size(most, version):
    fake = make_cluster(versions=VERSIONS | {"Fetch": (0, version)})
    for start, stop in ((0, 50), (3, 48), (12, 13), (5, 10), (49, 50)):
        offsets, parts = read(fake, start, stop, question=make_question(most))
        assert offsets == list(range(start, stop))
        next_offsets = [part.next_offset for part in parts]
        assert next_offsets[-1] == stop
        assert next_offsets == sorted(set(next_offsets))


def test_the_next_fetch_is_sent_before_a_piece_is_returned():
    fake = make_cluster()
    driver = FakeDriver(fake)
    perform = driver.perform
    effects = []

    def record_effect(effect):
        effects.append(type(effect).__name__)
        return perform(effect)

    driver.perform = record_effect
    fetch_range = FetchRange("orders", 0, 0, 50)
    pieces = driver.iterate(
        read_range(make_client_cluster(fake), fetch_range, make_question(100), Limits(), "strict")
    )
    next(pieces)
    assert effects[-1] == "Begin"
    assert effects.count("Begin") == effects.count("Finish") + 1


def test_gaps_and_a_tail_that_compaction_left():
    fake = FakeCluster()
    fake.add_topic("orders")
    with_gaps = encode_batch(
        [(3, 0, b"k", b"v"), (7, 0, b"k", b"v")], base_offset=2, last_offset=19
    )
    without_records = encode_batch([], base_offset=20, last_offset=29)
    fake.append("orders", 0, with_gaps)
    fake.append("orders", 0, without_records)
    fake.append("orders", 0, make_batch(60))
    fake.topics["orders"][0].end = 100  # the offsets from 65 on have no batch
    offsets, parts = read(fake, 0, 100, question=make_question(90))
    assert offsets == [3, 7, *range(60, 65)]
    assert [part.next_offset for part in parts] == [20, 30, 65]
    assert len(list_requests(fake, "Fetch")) == 3 + EMPTY_ANSWERS
    assert read_offsets(fake, 65, 100) == []
    assert read_offsets(fake, 25, 62) == [60, 61]


def test_a_range_beyond_the_end():
    assert read_offsets(make_cluster(), 48, 10**6) == [48, 49]


def test_control_records_are_not_returned():
    fake = make_cluster(2)
    fake.append("orders", 0, make_control_batch(10, COMMIT, producer_id=1))
    offsets, parts = read(fake, 0, 11)
    assert offsets == list(range(10))
    assert parts[-1].next_offset == 11
    assert read_offsets(fake, 10, 11) == []
    (part,) = read_batches(fake, 0, 11)
    assert part.batches["is_control"].tolist() == [0, 0, 1]


def read_batches(fake, start, stop, **options):
    fetch_range = FetchRange("orders", 0, start, stop)
    pieces = FakeDriver(fake).iterate(
        read_range(make_client_cluster(fake), fetch_range, Question(), Limits(), "strict")
    )
    return [Decoding(records=False, **options).make_part(piece) for piece in pieces]


def test_batches_are_returned_unchanged():
    fake = make_cluster()
    (part,) = read_batches(fake, 7, 33)
    assert part.records is None
    assert part.next_offset == 33
    (piece,) = part.pieces
    written = [data for _, _, data in fake.topics["orders"][0].entries[1:7]]
    assert bytes(piece) == b"".join(written)
    assert kafka.scan(bytes(piece))["base_offset"].tolist() == [5, 10, 15, 20, 25, 30]
    empty = part._replace(batches=part.batches[:0])
    assert empty.pieces == []
    without_one = part.batches.where(part.batches["base_offset"] != 15)
    pieces = part._replace(batches=without_one).pieces
    before = make_batch(5) + make_batch(10)
    behind = make_batch(20) + make_batch(25) + make_batch(30)
    assert [len(piece) for piece in pieces] == [len(before), len(behind)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_message_sets_are_fetched(magic, codec):
    """A wrapper has only the offset of its last message."""
    fake = FakeCluster(versions=VERSIONS | {"Fetch": (0, 3)})
    fake.add_topic("orders")
    timestamp = 1000 if magic else None
    for first in range(0, 50, 10):
        messages = [(offset, timestamp, b"k", b"v") for offset in range(first, first + 10)]
        raw = encode_message_set(messages, magic=magic, codec=codec, base_offset=first)
        fake.append("orders", 0, raw)
    for start, stop in ((0, 50), (5, 15), (9, 10), (10, 11), (25, 26), (45, 50)):
        for most in (40, 200, 1 << 20):
            offsets = read_offsets(fake, start, stop, question=make_question(most))
            assert offsets == list(range(start, stop))


@pytest.mark.parametrize("most", [1, 200, 1 << 20])
def test_aborted_records_are_not_fetched(most):
    fake = FakeCluster()
    fake.add_topic("orders")
    for first, producer in ((0, 1), (5, 2), (10, -1)):
        fake.append(
            "orders", 0, make_batch(first, producer_id=producer, transactional=producer > 0)
        )
    fake.append("orders", 0, make_control_batch(15, ABORT, producer_id=1))
    fake.append("orders", 0, make_control_batch(16, COMMIT, producer_id=2))
    fake.append("orders", 0, make_batch(17, producer_id=1, transactional=True))
    fake.append("orders", 0, make_control_batch(22, COMMIT, producer_id=1))
    fake.append("orders", 0, make_batch(23, producer_id=3, transactional=True))  # stays open
    log = fake.topics["orders"][0]
    log.stable = 23
    log.aborted = [(1, 0)]
    question = make_question(most, isolation="read_committed")
    ranges = run(
        fake,
        resolve_all(make_client_cluster(fake), isolation="read_committed"),
    )
    assert ranges == [FetchRange("orders", 0, 0, 23)]
    committed = [*range(5, 15), *range(17, 22)]
    if most > 200:
        assert read_offsets(fake, 0, 23, question=question) == committed
        assert read_offsets(fake, 0, 28) == [*range(15), *range(17, 22), *range(23, 28)]

    def drop_ended(body):
        """List only transactions that end behind the requested offset, as a broker does."""
        *_, request = fake.asked[-1]
        offset = request["topics"][0]["partitions"][0]["fetch_offset"]
        listed = body["responses"][0]["partitions"][0]["aborted_transactions"]
        return change_partition(body, aborted_transactions=listed if offset <= 15 else None)

    change_answers(fake, "Fetch", drop_ended)
    assert read_offsets(fake, 0, 23, question=question) == committed
    assert read_offsets(fake, 0, 28, question=question) == committed


def change_batch(fake, number, change):
    """Apply `change` to the bytes of a batch in the log of orders-0."""
    entries = fake.topics["orders"][0].entries
    first, last, data = entries[number]
    data = bytearray(data)
    change(data)
    entries[number] = first, last, bytes(data)


def damage_payload(data):
    data[-3] ^= 0xFF


def damage_length(data):
    data[8] ^= 0xFF


@pytest.mark.parametrize("records", [True, False])
def test_damaged_records_follow_the_mode(records):
    fake = make_cluster()
    change_batch(fake, 4, damage_payload)
    if not records:
        with pytest.raises(FrameError, match="checksum"):
            read_batches(fake, 0, 50)
        return
    with pytest.raises(FrameError, match="checksum"):
        read(fake, records=records)
    assert read_offsets(fake, errors="skip") == [*range(20), *range(25, 50)]
    _, parts = read(fake, errors="mark")
    (part,) = parts
    assert part.records.bad.sum() == 1
    assert len(part.records) == 46
    assert read_offsets(fake, check=False) == list(range(50))


def test_damaged_lengths_follow_the_mode():
    fake = make_cluster()
    change_batch(fake, 4, damage_length)
    with pytest.raises(FrameError, match="impossible length|magic"):
        read(fake)
    assert read_offsets(fake, errors="skip") == [*range(20), *range(25, 50)]
    small = make_question(90)
    change_batch(fake, 0, damage_length)
    assert read_offsets(fake, 0, 5, errors="skip", question=small) == []
    _, parts = read(fake, 0, 5, errors="mark", question=small)
    assert [part.records.bad.tolist() for part in parts] == [[True]]
    # This damages all other lengths and restores that of batch 4. Batches 5 to 9 cannot be read.
    for number in range(1, 10):
        change_batch(fake, number, damage_length)
    for errors in ("skip", "mark"):
        with pytest.raises(FrameError, match="impossible length"):
            read(fake, errors=errors, driver=FakeDriver(fake, limits=Limits(frame=100_000)))


def test_a_batch_that_never_comes_whole():
    fake = make_cluster()
    fake.topics["orders"][0].entries[0] = 0, 4, make_batch(0)[:40] + b"\0" * 10
    driver = FakeDriver(fake, limits=Limits(frame=200_000))

    def cut_records(body):
        records = body["responses"][0]["partitions"][0]["records"]
        return change_partition(body, records=records[:50])

    change_answers(fake, "Fetch", cut_records)
    with pytest.raises(FrameError, match="impossible length"):
        read(fake, question=make_question(100), driver=driver)


def test_batches_from_before_the_offset():
    fake = make_cluster()
    log = fake.topics["orders"][0]
    log.read = lambda offset, most, whole, stop: log.entries[0][2]
    message = "from offset 5 with batches that end before it, at 4"
    with pytest.raises(ConnectionError, match=message):
        read(fake)
    assert len(list_requests(fake, "Fetch")) == 1 + RETRIES.attempts


def test_a_broker_that_throttles_without_end():
    fake = make_cluster()

    def throttle(body):
        return change_partition(body, records=None) | {"throttle_time_ms": 100}

    change_answers(fake, "Fetch", throttle)
    with pytest.raises(BrokerError, match="THROTTLING_QUOTA_EXCEEDED"):
        read(fake)


def test_a_read_continues_after_failures():
    """Leaders move, and connections are lost, between any two answers."""
    fake = make_cluster(brokers=2)
    log = fake.topics["orders"][0]
    count = 0

    def fail(body):
        nonlocal count
        count += 1
        if count % 3 == 1:
            raise HangUp(b"\0\0\1")
        if count % 3 == 2:
            log.leader = 3 - log.leader
            log.epoch += 1
            (topic,) = body["responses"]
            error = {"partition_index": 0, "error_code": NOT_LEADER}
            return {"responses": [topic | {"partitions": [error]}]}
        return body

    change_answers(fake, "Fetch", fail)
    assert read_offsets(fake, question=make_question(100)) == list(range(50))


# ---- plans


def plan_ranges(
    fake,
    partitions=None,
    start="earliest",
    stop="latest",
    start_time=None,
    stop_time=None,
    isolation="read_uncommitted",
):
    ranges = run(
        fake,
        resolve_ranges(
            make_client_cluster(fake),
            "orders",
            partitions=partitions,
            start=start,
            stop=stop,
            start_time=start_time,
            stop_time=stop_time,
            isolation=isolation,
        ),
    )
    return [(planned.partition, planned.start, planned.stop) for planned in ranges]


def test_plans_have_a_range_for_each_partition():
    fake = make_cluster(partitions=3)
    fake.topics["orders"][1].start = 20
    assert plan_ranges(fake) == [(0, 0, 50), (1, 20, 50), (2, 0, 50)]
    assert plan_ranges(fake, [2, 0, 2], 10, 40) == [(0, 10, 40), (2, 10, 40)]
    of_each = plan_ranges(fake, None, {0: 7, 1: "latest"}, {2: 9})
    assert of_each == [(0, 7, 50), (1, 50, 50), (2, 0, 9)]
    assert plan_ranges(fake, start_time=1025) == [(0, 25, 50), (1, 25, 50), (2, 25, 50)]
    assert plan_ranges(fake, [0], start_time=1025, stop_time=1030) == [(0, 25, 30)]
    assert plan_ranges(fake, [0], start_time=0, stop_time=10**6) == [(0, 0, 50)]
    assert plan_ranges(fake, [0], start_time=10**6) == [(0, 50, 50)]
    assert plan_ranges(fake, [0], start_time=1025, stop=30) == [(0, 25, 30)]


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (dict(start="now"), "not at 'now'"),
        (dict(start=-1), "no offset of a log: -1"),
        (dict(stop=1.5), "no offset of a log: 1.5"),
        (dict(start={0: "x"}), "not at 'x'"),
        (dict(start=3, start_time=4), "not at both"),
        (dict(stop=3, stop_time=4), "not at both"),
        (dict(start_time=-4), "a time is milliseconds since 1970"),
    ],
)
def test_wrong_bounds_of_a_plan(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        plan_ranges(make_cluster(), **arguments)


def test_a_plan_of_an_unknown_topic():
    fake = FakeCluster()
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION.*orders"):
        plan_ranges(fake)


# ---- the drivers


class Blocking:
    """A Client. `call` calls a method, and `fetch` collects all parts."""

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
    """An AsyncClient with the methods of Blocking."""

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
    """Return a function that makes clients. At the end, close them and check that threads end."""
    before = threading.active_count()
    clients = []

    def make_client(*arguments, **options):
        clients.append(request.param(*arguments, **options))
        return clients[-1]

    yield make_client
    for client in clients:
        client.close()
    wait_for_threads(before)
    assert threading.active_count() <= before


def wait_for_threads(count):
    """Wait up to five seconds until at most `count` threads are left."""
    until = time.monotonic() + 5
    while threading.active_count() > count and time.monotonic() < until:
        time.sleep(0.01)


FEW = Retries(attempts=3, first=0.01)


@pytest.mark.parametrize(
    "versions",
    [
        VERSIONS,
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param(VERSIONS | {"Fetch": (0, 2)}, marks=pytest.mark.slow),
    ],
)
def test_both_drivers_call_a_broker(driver, versions):
    fake = make_cluster(partitions=5, brokers=2, versions=versions)
    with Server(fake) as server:
        client = driver(server.bootstrap)
        assert client.call("metadata").brokers.keys() == {1, 2}
        listed = client.call("list_offsets", {("orders", number): "latest" for number in range(5)})
        assert [answer.offset for answer in listed.values()] == [50] * 5
        answers = client.call("fetch_once", {("orders", 0): 0, ("orders", 1): 5}, max_wait=10)
        assert len(kafka.records(kafka.scan(answers["orders", 1].table))) == 45
        parts = client.fetch("orders", fetch_bytes=300, side_by_side=2)
        offsets = {number: [] for number in range(5)}
        for part in parts:
            offsets[part.partition] += part.records["offset"].tolist()
        assert offsets == {number: list(range(50)) for number in range(5)}
        for _ in range(5):
            client.fetch("orders", fetch_bytes=300, side_by_side=2)
        # Connections are used again. A broker that hangs up on the greeting gets four for each.
        greetings = 4 if versions is None else 1
        assert server.connections <= 2 * 2 * greetings


def test_a_connection_cut_at_every_byte(driver, stride):
    fake = make_cluster(2)
    cut = 0

    def cut_once(node, api, data):
        nonlocal cut
        if api != "Fetch" or cut is None:
            return data
        part = data[:cut]
        cut = None
        raise HangUp(part)

    fake.mangle = cut_once
    with Server(fake) as server:
        client = driver(server.bootstrap, retries=Retries(first=0.001))
        client.fetch("orders")
        size = len(client.fetch("orders", records=False)[0].pieces[0]) + 120
        for position in [*range(0, size, 7 * stride), *range(size - 10, size)]:
            cut = position
            parts = client.fetch("orders", start=3, stop=9)
            assert collect_offsets(parts) == list(range(3, 9))


@pytest.mark.parametrize(
    "mangle, error, reason",
    [
        (HangUp, ConnectionError, "closed the connection instead of answering Metadata"),
        (Silence, TimeoutError, "did not answer .* in 0.4 s"),
        (lambda: HangUp(b"\0\0"), ConnectionError, "inside a response, 2 bytes into it"),
        (lambda: Silence(b"\0\0\0\x40\0"), TimeoutError, "did not answer .* in 0.4 s"),
        (lambda: HangUp(b"\x7f\xff\xff\xff"), FrameError, "BAD_LENGTH"),
        (
            lambda: Silence(b"\0\0\0\4\0\1\0\0"),
            ConnectionError,
            "answers request 65536, and the oldest open one is 1",
        ),
    ],
)
def test_a_failing_broker_is_an_error(driver, mangle, error, reason):
    fake = make_cluster()

    def fail(node, api, data):
        if api == "Metadata":
            raise mangle()
        return data

    fake.mangle = fail
    with Server(fake) as server:
        client = driver(server.bootstrap, timeout=0.4, retries=Retries(attempts=2, first=0.01))
        begun = time.monotonic()
        with pytest.raises(error, match=reason):
            client.call("metadata")
        assert time.monotonic() - begun < 10
        fake.mangle = pass_on
        assert client.call("metadata").brokers  # the client can still be used


@pytest.mark.parametrize("mangle", [HangUp, Silence])
def test_brokers_that_fail_in_the_greeting(driver, mangle):
    fake = make_cluster()

    def fail(node, api, data):
        raise mangle(b"\0")

    fake.mangle = fail
    message = "closed the connection|did not answer the greeting"
    with (
        Server(fake) as server,
        pytest.raises((ConnectionError, TimeoutError), match=message),
    ):
        driver(server.bootstrap, timeout=0.2, retries=FEW).call("metadata")


@pytest.mark.parametrize("hang_ups, version", [(1, 12), (2, 12), (3, 0)])
def test_a_broker_that_is_just_starting_is_not_an_old_one(driver, hang_ups, version):
    fake = make_cluster()
    left = hang_ups

    def hang_up_on_greetings(node, api, data):
        nonlocal left
        if api == "ApiVersions" and left:
            left -= 1
            raise HangUp
        return data

    fake.mangle = hang_up_on_greetings
    with Server(fake) as server:
        client = driver(server.bootstrap, retries=FEW)
        client.call("fetch_once", {("orders", 0): 0})
        assert list_versions(fake, "Metadata") == [version]
        # A broker that answered a greeting before is not an old one either.
        left = 1
        server.hang_up()
        time.sleep(0.05)
        client.call("list_offsets", LATEST)
        assert list_versions(fake, "ListOffsets")[-1:] == [9]


def test_a_broker_that_answers_a_byte_at_a_time(driver):
    fake = make_cluster()

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


def test_a_closed_port_is_an_error(driver):
    with Server(make_cluster()) as server:
        bootstrap = server.bootstrap
    with pytest.raises(ConnectionError, match="cannot connect to 127.0.0.1"):
        driver(bootstrap, retries=FEW).call("metadata")


def test_impossible_addresses_in_metadata(driver):
    fake = make_cluster()
    with Server(fake) as server:
        for host, port in (
            ("", 1),
            ("a\0b", 1),
            ("x" * 300, 1),
            *(("127.0.0.1", port) for port in (0, 70000, -1)),
        ):
            brokers = [{"node_id": 1, "host": host, "port": port}]
            change_answers(fake, "Metadata", lambda body: body | {"brokers": brokers})
            client = driver(server.bootstrap, retries=FEW)
            with pytest.raises(ConnectionError, match="cannot connect"):
                client.call("list_offsets", LATEST)


def test_connections_that_the_broker_closed_while_they_were_idle(driver):
    fake = make_cluster()
    with Server(fake) as server:
        client = driver(server.bootstrap, retries=Retries(attempts=1))
        for _ in range(3):
            assert client.call("metadata").brokers
            server.hang_up()
            if type(client) is Async:
                client.loop.run_until_complete(asyncio.sleep(0.05))
            time.sleep(0.05)


def test_sasl_works_over_sockets(driver):
    fake = make_cluster()
    fake.users = {"alice": "secret"}
    with Server(fake) as server:
        client = driver(server.bootstrap, sasl=("SCRAM-SHA-512", "alice", "secret"))
        assert client.call("metadata").brokers
        with pytest.raises(BrokerError, match="SASL_AUTHENTICATION_FAILED"):
            driver(server.bootstrap, sasl=("PLAIN", "alice", "")).call("metadata")


def test_a_fetch_raises_for_damage_in_the_last_batch(driver):
    fake = make_cluster()
    change_batch(fake, 9, damage_payload)
    with Server(fake) as server:
        client = driver(server.bootstrap)
        with pytest.raises(FrameError, match="checksum"):
            client.fetch("orders", fetch_bytes=100)
        parts = client.fetch("orders", fetch_bytes=100, errors="skip")
        assert count_records(parts) == 45


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (dict(fetch_bytes=0), "fetch_bytes must be"),
        (dict(fetch_bytes=1 << 40), "fetch_bytes must be"),
        (dict(side_by_side=0), "side_by_side must be"),
        (dict(errors="no"), "errors must be one of"),
        (dict(isolation="no"), "isolation is one of"),
        (dict(start=-1), "no offset of a log: -1"),
    ],
)
def test_bad_arguments_of_fetch_are_refused(driver, arguments, reason):
    with Server(make_cluster()) as server, pytest.raises(ValueError, match=reason):
        driver(server.bootstrap).fetch("orders", **arguments)


@pytest.mark.parametrize(
    "options, error, reason",
    [
        (dict(timeout=0), ValueError, "timeout must be"),
        (dict(limits=3), TypeError, "limits must be"),
        (dict(tls=3), TypeError, "tls must be"),
        (dict(tls="/none"), OSError, "No such file"),
    ],
)
@pytest.mark.parametrize("kind", [kafka.Client, kafka.AsyncClient])
def test_bad_arguments_of_clients_are_refused(kind, options, error, reason):
    with pytest.raises(error, match=reason):
        kind("localhost:1", **options)


def test_fetch_closes_its_client():
    fake = make_cluster(partitions=4)
    before = threading.active_count()
    with Server(fake) as server:
        baseline = threading.active_count()
        assert count_records(kafka.fetch(server.bootstrap, "orders")) == 200
        with kafka.fetch(server.bootstrap, "orders", fetch_bytes=100, side_by_side=4) as parts:
            ranges = [(each.partition, each.start, each.stop) for each in parts.ranges]
            assert ranges == [(number, 0, 50) for number in range(4)]
            next(parts)
        assert list(parts) == []
        abandoned = kafka.fetch(server.bootstrap, "orders", fetch_bytes=100)
        next(abandoned)
        del abandoned
        unused = kafka.fetch(server.bootstrap, "orders")
        del unused
        gc.collect()
        wait_for_threads(baseline)  # until the server's threads see that their connections ended
        assert threading.active_count() <= baseline
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            kafka.fetch(server.bootstrap, "none", retries=FEW)
    assert threading.active_count() <= before


def test_an_asynchronous_fetch_that_ends_early_leaves_no_task():
    async def fetch_one_part(bootstrap):
        async with kafka.AsyncClient(bootstrap) as client:
            parts = client.fetch("orders", fetch_bytes=100)
            async for _ in parts:
                break
            await parts.aclose()
            return len(asyncio.all_tasks())

    with Server(make_cluster(partitions=4)) as server:
        assert asyncio.run(fetch_one_part(server.bootstrap)) == 1


def test_close_ends_a_waiting_call():
    fake = make_cluster()
    fake.mangle = fall_silent
    with Server(fake) as server:
        client = kafka.Client(server.bootstrap, timeout=60)
        errors = []

        def ask():
            try:
                client.metadata()
            except ValueError as error:
                errors.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.2)
        client.close()
        thread.join(5)
        assert not thread.is_alive()
        assert errors == ["the client is closed"]
        with pytest.raises(ValueError, match="closed"):
            client.metadata()


def test_threads_may_share_a_client():
    with Server(make_cluster(partitions=3)) as server, kafka.Client(server.bootstrap) as client:
        counts = []

        def fetch():
            counts.append(count_records(client.fetch("orders", fetch_bytes=200)))

        threads = [threading.Thread(target=fetch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert counts == [150] * 4


DECODE_IN_THREADS = """
import threading

from wirescan import kafka
from wirescan.kafka.protocol import compile as program, schema

partitions = [{"records": bytes(61)}] * 50
body = {"responses": [{"topic_id": bytes(16), "partitions": partitions}]}
requests = kafka.requests(kafka.encode_request("Fetch", 17))
data = kafka.encode_response("Fetch", 17, body)


def work():
    barrier.wait()
    bodies = kafka.body(kafka.responses(data, requests), "Fetch")
    sizes.append(bodies.open("responses").open("partitions")["records_size"].sum())


for _ in range(20):
    program.compile_programs.cache_clear()
    program.compile_steps.cache_clear()
    barrier = threading.Barrier(8)
    sizes = []
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [50 * 61] * 8, sizes
"""


def test_answers_are_decoded_in_many_threads_at_once():
    """Threads also race to compile the program of a message, which all of them then use."""
    subprocess.run([sys.executable, "-c", DECODE_IN_THREADS], check=True, timeout=60)


def test_names_are_imported_at_their_first_use():
    heavy = ["asyncio", "ssl", "wirescan.kafka.client.cluster"]
    program = (
        f"import sys, wirescan.kafka; print([name for name in {heavy} if name in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert child.stdout.strip() == "[]"
    assert kafka.Client.__name__ == "Client"
    assert callable(kafka.fetch)
    with pytest.raises(AttributeError, match="has no attribute 'Klient'"):
        kafka.Klient
    from wirescan.kafka import client

    assert all(hasattr(client, name) for name in client.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Klient'"):
        client.Klient


@settings(max_examples=read_example_count(30), deadline=None)
@given(st.data())
def test_any_bytes_for_an_answer(data):
    """A read of a damaged answer returns rows, or raises an expected error."""
    fake = make_cluster(2)

    def damage(node, api, answer):
        answer = bytearray(answer)
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(answer) - 1))
            answer[at] = data.draw(st.integers(0, 255))
        return bytes(answer)

    fake.mangle = damage
    driver = FakeDriver(fake, limits=Limits(frame=100_000))
    with contextlib.suppress(BrokerError, FrameError, OSError):
        read(fake, 0, 10, driver=driver)
    assert driver.largest <= max(2 * FIRST_BUFFER_BYTES, 100_000)


def test_greet_needs_no_driver():
    connection = Connection(NODE)
    steps = greet(connection)
    assert kafka.requests(next(steps))["api_version"].tolist() == [3]


def fall_silent_on_fetch(node, api, data):
    if api == "Fetch":
        raise Silence
    return data


@pytest.mark.parametrize("how", ["next", "close"])
def test_parts_are_closed_while_brokers_are_silent(how):
    """Another thread may wait for the next part. The client can be used afterwards."""
    fake = make_cluster(20)
    with Server(fake) as server, kafka.Client(server.bootstrap, timeout=20) as client:
        parts = client.fetch("orders", fetch_bytes=100)
        next(parts)
        fake.mangle = fall_silent_on_fetch
        time.sleep(0.2)
        waiting = threading.Thread(target=lambda: list(parts), daemon=True)
        if how == "next":
            waiting.start()
            time.sleep(0.2)
        begun = time.monotonic()
        parts.close()
        if how == "next":
            waiting.join(5)
            assert not waiting.is_alive()
        assert time.monotonic() - begun < 3
        fake.mangle = pass_on
        assert count_records(client.fetch("orders")) == 100
        parts = client.fetch("orders", fetch_bytes=100)
        next(parts)
        client.close()  # also closes the connections of `parts`
        with pytest.raises((ValueError, OSError), match="closed|Bad file descriptor"):
            list(parts)


@pytest.mark.parametrize("tls", [None, True])
def test_close_ends_an_attempt_to_connect(driver, tls):
    """The peer does not accept the connection, or does not answer the TLS handshake."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listening,
        contextlib.ExitStack() as stack,
    ):
        host, port = listening.getsockname()
        if tls is None:
            for _ in range(3):  # fill the backlog
                pending = stack.enter_context(socket.socket())
                pending.setblocking(False)  # noqa: FBT003
                pending.connect_ex((host, port))
        client = driver(f"127.0.0.1:{port}", tls=tls, timeout=20, retries=FEW)
        begun = time.monotonic()
        if type(client) is Async:
            client.loop.call_later(0.3, lambda: client.loop.create_task(client.client.close()))
        else:
            threading.Timer(0.3, client.close).start()
        with pytest.raises(ValueError, match="closed"):
            client.call("metadata")
        assert time.monotonic() - begun < 5


def test_many_leaders_are_asked_some_at_a_time(driver):
    fake = make_cluster(1)
    count = 300
    thread_counts = []

    def name_many_leaders(body):
        port = fake.nodes[1][1]
        body["brokers"] = [
            {"node_id": node, "host": f"127.0.{1 + node // 200}.{1 + node % 200}", "port": port}
            for node in range(count)
        ]
        partitions = [{"partition_index": node, "leader_id": node} for node in range(count)]
        body["topics"] = [
            {"name": "orders", "topic_id": fake.ids["orders"], "partitions": partitions}
        ]
        return body

    change_answers(fake, "Metadata", name_many_leaders)

    def watch(frame, event, argument):
        thread_counts.append(threading.active_count())

    with Server(fake) as server:
        client = driver(server.bootstrap, retries=Retries(attempts=1))
        client.call("metadata")
        before = threading.active_count()
        questions = {("orders", number): "latest" for number in range(count)}
        threading.setprofile(watch)
        try:
            with pytest.raises(ConnectionError, match="cannot connect"):
                client.call("list_offsets", questions)
        finally:
            threading.setprofile(None)
    if type(client) is Blocking:
        assert 1 < max(thread_counts) - before + 1 <= SIDE_BY_SIDE


def test_threads_that_cannot_be_started(monkeypatch):
    fake = make_cluster(2, partitions=4, brokers=4)
    questions = {("orders", number): "latest" for number in range(4)}
    with Server(fake) as server, kafka.Client(server.bootstrap) as client:
        client.metadata()
        client.list_offsets(questions)
        parts = client.fetch("orders")
        start = threading.Thread.start
        this_thread = threading.current_thread()

        def fail(self):
            if threading.current_thread() is this_thread:
                raise RuntimeError("can't start new thread")
            start(self)

        monkeypatch.setattr(threading.Thread, "start", fail)
        assert len(client.list_offsets(questions)) == 4
        with pytest.raises(OSError, match="no thread"):
            next(parts)


def test_an_unexpected_error_does_not_end_a_partition_silently(monkeypatch):
    make_part = Decoding.make_part
    count = 0

    def fail(self, piece):
        nonlocal count
        count += 1
        if count == 2:
            raise IndexError("a mistake")
        return make_part(self, piece)

    monkeypatch.setattr(Decoding, "make_part", fail)
    with Server(make_cluster()) as server, pytest.raises(IndexError, match="a mistake"):
        list(kafka.fetch(server.bootstrap, "orders", fetch_bytes=100))


# ---- damage that hides a batch


def make_control(data):
    data[22] |= 0x20


def make_aborted(data):
    data[22] |= 0x10
    data[43:51] = (7).to_bytes(8, "big")


def make_earlier(data):
    data[23:27] = (-100).to_bytes(4, "big", signed=True)


@pytest.mark.parametrize(
    "change, isolation",
    [
        (make_control, "read_uncommitted"),
        (make_control, "read_committed"),
        (make_aborted, "read_committed"),
        (make_earlier, "read_uncommitted"),
    ],
)
def test_damage_that_hides_a_batch_is_reported(change, isolation):
    fake = make_cluster(5)
    change_batch(fake, 2, change)
    fake.topics["orders"][0].aborted = [(7, 0)]
    question = Question(isolation=isolation)
    with pytest.raises(FrameError, match="checksum"):
        read(fake, 0, 25, question=question)
    others = [*range(10), *range(15, 25)]
    assert read_offsets(fake, 0, 25, question=question, check=False) == others
    assert read_offsets(fake, 0, 25, question=question, errors="skip") == others


def reach_far(data):
    data[23:27] = (0x100004).to_bytes(4, "big")


@pytest.mark.parametrize("most", [1, 300, 1 << 20])
def test_a_damaged_batch_does_not_decide_where_to_continue(most):
    fake = make_cluster(5)
    change_batch(fake, 2, reach_far)
    question = make_question(most, verify=True)
    others = [*range(10), *range(15, 25)]
    assert read_offsets(fake, 0, 25, question=question, errors="skip") == others
    _, parts = read(fake, 0, 25, question=question, errors="mark")
    assert sum(part.records.bad.sum() for part in parts) == 1
    assert parts[-1].next_offset == 25
    good = [offset for part in parts for offset in part.records["offset"][~part.records.bad]]
    assert good == others


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_a_damaged_batch_at_the_end(most):
    """No batch follows, so its last offset counts, but only up to the end of the log."""
    fake = make_cluster(5)
    change_batch(fake, 4, reach_far)
    question = make_question(most, verify=True)
    offsets, parts = read(fake, 0, 25, question=question, errors="skip")
    assert offsets == list(range(20))
    assert parts[-1].next_offset == 25
    _, parts = read(fake, 0, 30, question=question, errors="mark")
    assert parts[-1].next_offset == 25
    assert sum(part.records.bad.sum() for part in parts) == 1


def test_the_client_verifies_before_it_continues():
    fake = make_cluster(5)
    change_batch(fake, 2, reach_far)
    with Server(fake) as server:

        def fetch_offsets(check):
            parts = kafka.fetch(
                server.bootstrap, "orders", fetch_bytes=1, errors="skip", check=check
            )
            return collect_offsets(parts)

        assert fetch_offsets(check=True) == [*range(10), *range(15, 25)]
        assert fetch_offsets(check=False)[:15] == list(range(15))


# ---- leaders with an older state


def make_followers_lag(fake, count, end=10):
    """Make the next `count` answers to Fetch empty, with the high watermark `end`."""
    left = count

    def lag_behind(body):
        nonlocal left
        if not left:
            return body
        left -= 1
        return change_partition(body, records=b"", high_watermark=end, last_stable_offset=end)

    change_answers(fake, "Fetch", lag_behind)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_high_watermark_that_lags_is_not_the_end(isolation):
    fake = make_cluster()
    driver, cluster = FakeDriver(fake), make_client_cluster(fake)
    (fetch_range,) = driver.run(resolve_all(cluster, isolation))
    question = Question(isolation=isolation)
    make_followers_lag(fake, EMPTY_ANSWERS + 2)
    pieces = driver.iterate(read_range(cluster, fetch_range, question, Limits(), "strict"))
    assert collect_offsets(Decoding().make_part(piece) for piece in pieces) == list(range(50))
    make_followers_lag(fake, 99)
    pieces = driver.iterate(read_range(cluster, fetch_range, question, Limits(), "strict"))
    message = "OFFSET_NOT_AVAILABLE.*offsets to 10; before there were offsets to 50"
    with pytest.raises(BrokerError, match=message):
        list(pieces)


def test_a_high_watermark_below_an_earlier_one_is_not_the_end():
    fake = make_cluster()
    driver = FakeDriver(fake)
    fetch_range = FetchRange("orders", 0, 0, 99)
    pieces = driver.iterate(
        read_range(make_client_cluster(fake), fetch_range, make_question(100), Limits(), "strict")
    )
    next(pieces)
    make_followers_lag(fake, 5, 5)
    assert [piece.next_offset for piece in pieces] == list(range(10, 55, 5))


@pytest.mark.parametrize("version", [11, 12, 17])
def test_a_leader_with_another_history(version):
    fake = FakeCluster(versions=VERSIONS | {"Fetch": (0, version)})
    fake.add_topic("orders")
    for first in range(0, 20, 5):
        fake.append("orders", 0, make_batch(first, leader_epoch=3))
    fake.topics["orders"][0].epoch = 4

    def diverge(body):
        *_, request = fake.asked[-1]
        asked = request["topics"][0]["partitions"][0]
        if asked["fetch_offset"] != 10 or asked["last_fetched_epoch"] != 3:
            return body
        diverging = {"epoch": 2, "end_offset": 7}
        return change_partition(body, records=None, diverging_epoch=diverging)

    change_answers(fake, "Fetch", diverge)
    question = make_question(100)
    if version < 12:
        assert read_offsets(fake, 0, 20, question=question) == list(range(20))
        return
    message = "OFFSET_OUT_OF_RANGE.*offset 10 of orders-0 .* history from 7 on"
    with pytest.raises(BrokerError, match=message):
        read(fake, 0, 20, question=question)
    assert read_offsets(fake, 10, 20, question=question) == list(range(10, 20))
    # Now the batches have a later epoch than the leader, which is impossible.
    fake.topics["orders"][0].epoch = 1
    assert read_offsets(fake, 0, 20, question=question) == list(range(20))


# ---- bounds


@pytest.mark.parametrize(
    "isolation, offsets", [("read_uncommitted", [0, 5, 6]), ("read_committed", [0, 6])]
)
def test_control_batches_among_batches(isolation, offsets):
    fake = FakeCluster()
    fake.add_topic("orders")
    producer = dict(producer_id=7, producer_epoch=0)
    fake.append("orders", 0, make_batch(0, transactional=True, **producer))
    fake.append("orders", 0, make_control_batch(5, COMMIT, **producer))
    fake.append("orders", 0, make_batch(6))
    (part,) = read_batches(fake, 0, 11, isolation=isolation)
    assert part.batches["base_offset"].tolist() == offsets


def test_many_brokers_that_are_silent():
    fake = make_cluster()
    driver, cluster = (
        FakeDriver(fake, timeout=25),
        make_client_cluster(fake, retries=Retries(seconds=60)),
    )
    fake.nodes.update({number: (f"broker-{number}", 9092) for number in range(2, 32)})
    driver.run(cluster.fetch_metadata())
    fake.mangle = fall_silent
    before = driver.exchanges
    with pytest.raises(TimeoutError, match="no answer"):
        driver.run(cluster.fetch_metadata())
    assert driver.now <= 60 + 25
    assert driver.exchanges - before == 3
    fake.mangle = pass_on
    fake.down = set(range(2, 32))
    before = driver.exchanges
    assert driver.run(cluster.fetch_metadata()).brokers
    assert driver.exchanges - before <= 4


@pytest.mark.parametrize(
    "body",
    [
        {"brokers": [{"node_id": number, "host": "", "port": 1} for number in range(1001)]},
        {"topics": [{"name": "", "partitions": []}] * 1001},
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1}] * 501}] * 2},
        {
            "topics": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": 1, "replica_nodes": [1] * 501}] * 2,
                }
            ]
        },
    ],
)
def test_metadata_beyond_the_limit(monkeypatch, body):
    monkeypatch.setattr("wirescan.kafka.client.cluster.MAX_METADATA_ROWS", 1000)
    monkeypatch.setattr("wirescan.kafka.client.cluster.METADATA_LIMITS", Limits(rows=1000))
    fake = make_cluster()
    change_answers(fake, "Metadata", lambda usual: usual | body)
    with pytest.raises(FrameError, match="limit"):
        run(fake, make_client_cluster(fake).fetch_metadata())


@pytest.mark.parametrize(
    "arguments, error, reason",
    [
        (dict(partitions="01"), TypeError, "not str"),
        (dict(partitions=b"01"), TypeError, "not bytes"),
        (dict(partitions=["0"]), TypeError, "as an integer"),
        (dict(partitions=[0], start={1: 20}), ValueError, "orders that are not read: 1"),
        (dict(stop={"0": 5}), ValueError, "orders that are not read: '0'"),
        (dict(stop={7: 5}), ValueError, "orders that are not read: 7"),
    ],
)
def test_wrong_partitions_are_refused(arguments, error, reason):
    with pytest.raises(error, match=reason):
        plan_ranges(make_cluster(), **arguments)


@pytest.mark.parametrize("topics", ["orders", b"orders"])
def test_topics_are_a_list(topics):
    with kafka.Client("localhost:1") as client, pytest.raises(TypeError, match="list of names"):
        client.metadata(topics)


@pytest.mark.parametrize("timeout", [float("inf"), float("nan"), 1e11, -1])
def test_wrong_timeouts_are_refused(timeout):
    with pytest.raises(ValueError, match="timeout"):
        kafka.Client("localhost:1", timeout=timeout)


@pytest.mark.parametrize("user, password", [("a\0b", "c"), ("a", "b\0c")])
def test_plain_has_no_nul(user, password):
    with pytest.raises(ValueError, match="NUL"):
        kafka.Client("localhost:1", sasl=("PLAIN", user, password))


def keep_message(message):
    return message


def change_scram_answers(fake, change_first=keep_message, change_final=keep_message):
    """Change a fake broker's answers to the first and to the second message of SCRAM."""

    def change(body):
        if "auth_bytes" not in body:
            return body
        message = bytes(body["auth_bytes"])
        is_first = message.startswith(b"r=")
        message = change_first(message) if is_first else change_final(message)
        return body | {"auth_bytes": message}

    fake.users = {"alice": "secret"}
    change_answers(fake, "SaslAuthenticate", change)


def count_scram_messages(fake):
    return len(list_requests(fake, "SaslAuthenticate"))


@pytest.mark.parametrize(
    "change, reason",
    [
        (
            lambda message: b"r=another" + message[message.index(b",") :],
            "Client nonce doesn't match",
        ),
        (lambda message: b"r=x" + message[2:], "Client nonce doesn't match"),
        (
            lambda message: message[: message.index(b"i=")] + b"i=4095",
            "asks for '4095' iterations.*4096 to 131072",
        ),
        (
            lambda message: message[: message.index(b"i=")] + b"i=131073",
            "asks for '131073' iterations.*4096 to 131072",
        ),
    ],
    ids=["nonce", "nonce at the end", "few iterations", "many iterations"],
)
def test_a_doubtful_server_gets_no_proof_of_the_password(change, reason):
    fake = make_cluster()
    change_scram_answers(fake, change_first=change)
    with pytest.raises(PermissionError, match=f"broker-1:9092.*{reason}"):
        greet_cluster(fake, ("SCRAM-SHA-256", "alice", "secret"))
    assert count_scram_messages(fake) == 1


def test_a_server_has_to_extend_the_nonce():
    pytest.importorskip("scramp", "1.5", reason="takes a nonce that is not extended")
    fake = make_cluster()

    def return_the_client_nonce(message):
        *_, request = fake.asked[-1]
        _, _, nonce = request["auth_bytes"].rpartition(b"r=")
        return b"r=" + nonce + message[message.index(b",") :]

    change_scram_answers(fake, change_first=return_the_client_nonce)
    with pytest.raises(PermissionError, match="broker-1:9092.*longer than the client nonce"):
        greet_cluster(fake, ("SCRAM-SHA-256", "alice", "secret"))
    assert count_scram_messages(fake) == 1


def test_a_server_has_to_prove_that_it_knows_the_password():
    fake = make_cluster()
    wrong_signature = b"v=" + base64.b64encode(bytes(32))
    change_scram_answers(fake, change_final=lambda message: wrong_signature)
    with pytest.raises(PermissionError, match="broker-1:9092.*The server signature doesn't match"):
        greet_cluster(fake, ("SCRAM-SHA-256", "alice", "secret"))
    assert count_scram_messages(fake) == 2
