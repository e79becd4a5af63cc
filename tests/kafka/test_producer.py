"""The producer: after any failure, each record is in the log once and in order.

Otherwise an error names the records that may not be in the log.
"""

import asyncio
import random
import threading
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.examples import read_example_count
from tests.support.fake_broker import VERSIONS, FakeDriver, HangUp, Server
from tests.support.fake_producer import KINDS, Fault, ProducerCluster
from wirescan import FrameError, kafka
from wirescan.core.strings import ByteStrings
from wirescan.kafka.client import partitioners, sockets
from wirescan.kafka.client.cluster import Retries
from wirescan.kafka.client.operations import Operations
from wirescan.kafka.client.partitioner import partition_of
from wirescan.kafka.client.produce import may_be_written
from wirescan.kafka.client.send_records import REQUEST_BYTES, ProduceError
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode

PATIENT = Retries(attempts=10**6, seconds=1e9, unknown=10**6)
# Retriable errors of a leader that did not write the batch, and of a leader that did.
BEFORE = (3, 5, 6, 19, 56, 2, 74)
AFTER = (6, 7, 20, 56)
OLD = VERSIONS | {"Produce": (0, 2)}
del OLD["InitProducerId"]


class FakeClient(Operations):
    """A client without sockets, for a fake cluster."""

    def __init__(self, cluster, retries=PATIENT, seed=1):
        super().__init__(cluster.bootstrap, retries=retries, seed=seed)
        self.fake = cluster

    def run(self, operation):
        return FakeDriver(self.fake).run(operation)


@pytest.fixture
def cluster():
    cluster = ProducerCluster(2)
    cluster.add_topic("t", 3)
    cluster.topics["t"][1].leader = 2
    return cluster


@pytest.fixture
def client(cluster):
    return FakeClient(cluster)


def numbers(count, first=0):
    """List `count` values: the decimal numbers from `first` on."""
    return [b"%d" % number for number in range(first, first + count)]


def list_produce_requests(cluster):
    """List (node, version, request) of the Produce requests that the cluster received."""
    return [
        (node, version, request)
        for node, api, version, request in cluster.asked
        if api == "Produce"
    ]


def scan_batches(cluster, partition=0):
    data = b"".join(data for _, _, data in cluster.topics["t"][partition].entries)
    return kafka.scan(data)


def producer_ids(cluster, partition=0):
    return set(scan_batches(cluster, partition)["producer_id"].tolist())


def values_of(cluster, partitions):
    """List the values in the partitions of the topic t, partition by partition."""
    return [value for number in range(partitions) for value in cluster.values("t", number)]


def change_answers(cluster, api, change):
    """Make the brokers answer an API with `change(body)`."""
    cluster.hook = lambda node, name, version, body: change(body) if name == api else body


# ---- records and requests


def test_send_partitions_by_key(cluster, client):
    keys = [b"key %d" % (number % 40) for number in range(1000)]
    sent = client.send("t", numbers(1000), keys=keys, batch_bytes=2000)
    partitions = partition_of(keys, 3)
    for partition in range(3):
        values = [value for value, of in zip(numbers(1000), partitions) if of == partition]
        assert cluster.values("t", partition) == values
        (row,) = sent[sent["partition"] == partition]
        assert row["count"] == len(values)
        assert row["first_offset"] == 0
        assert row["last_offset"] == len(values) - 1
        batches = scan_batches(cluster, partition)
        assert len(batches) > 2
        assert batches["size"].max() <= 2000
        assert batches["size"][:-1].min() > 1900
        assert (batches["base_sequence"] == batches["base_offset"]).all()
        assert len(producer_ids(cluster, partition)) == 1
    requests = list_produce_requests(cluster)
    for _, version, request in requests:
        assert version == 11
        assert request["acks"] == -1
        assert request["timeout_ms"] == 30_000
    assert {node for node, _, _ in requests} == {1, 2}
    partition_counts = [
        len(request["topic_data"][0]["partition_data"]) for _, _, request in requests
    ]
    assert 2 in partition_counts


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_columns_arrive(cluster, client, codec):
    pyarrow = pytest.importorskip("pyarrow")
    values = pyarrow.array([None if number % 7 == 0 else b"v" * number for number in range(300)])
    headers = ([number % 3 for number in range(300)], numbers(300), [None] * 300)
    client.send(
        "t",
        values,
        keys=None,
        timestamps=np.arange(300),
        headers=headers,
        partition=2,
        codec=codec,
        batch_bytes=5000,
    )
    batches = scan_batches(cluster, 2)
    records = kafka.records(batches)
    assert len(batches) > 5
    sent_values = [None if row.value is None else bytes(row.value) for row in records]
    assert sent_values == values.to_pylist()
    assert records["timestamp"].tolist() == list(range(300))
    assert (records["key_size"] == -1).all()
    assert records["header_count"].tolist() == headers[0]
    assert [bytes(row.key) for row in kafka.headers(records)] == headers[1]


def test_the_default_timestamp_is_the_current_time(cluster, client):
    before = time.time() * 1000
    client.send("t", numbers(3), partition=0)
    client.send("t", numbers(3), partition=1, timestamps=-1)
    stamps = kafka.records(scan_batches(cluster))["timestamp"]
    assert before - 1 <= stamps.min()
    assert stamps.max() <= time.time() * 1000
    assert (kafka.records(scan_batches(cluster, 1))["timestamp"] == -1).all()


def test_no_records_need_no_request(cluster, client):
    assert len(client.send("t", [])) == 0
    assert client.produce({}) == {}
    assert not cluster.asked


def test_sequences_continue_in_the_next_send(cluster, client):
    for first in range(0, 50, 10):
        client.send("t", numbers(10, first), partition=0)
    assert cluster.values("t", 0) == numbers(50)
    assert scan_batches(cluster)["base_sequence"].tolist() == [0, 10, 20, 30, 40]
    assert len(producer_ids(cluster)) == 1


def test_the_sequence_after_the_largest_is_zero(cluster, client):
    cluster.forgetful = True
    client.send("t", numbers(1), partition=0)
    client._producer.sessions[0].sequences["t", 0] = 2**31 - 3
    cluster.producers.clear()
    client.send("t", numbers(9, 1), partition=0)
    client.send("t", numbers(9, 10), partition=0)
    assert cluster.values("t", 0) == numbers(19)
    assert scan_batches(cluster)["base_sequence"].tolist() == [0, 2**31 - 3, 6]


def test_concurrent_sends_have_separate_sessions(cluster):
    with Server(cluster) as server, kafka.Client(server.bootstrap) as client:
        threads = [
            threading.Thread(
                target=client.send, args=("t", numbers(500, first)), kwargs={"batch_bytes": 300}
            )
            for first in range(0, 2000, 500)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(values_of(cluster, 3)) == sorted(numbers(2000))
    assert len(client._producer.sessions) <= 4


def test_asyncio_sends_concurrently(cluster):
    async def send_all(bootstrap):
        async with kafka.AsyncClient(bootstrap) as client:
            sends = [
                client.send("t", numbers(500, first), batch_bytes=300)
                for first in range(0, 2000, 500)
            ]
            await asyncio.gather(*sends)
            return await client.produce({("t", 0): kafka.encode_batch([b"last"])})

    with Server(cluster) as server:
        assert asyncio.run(send_all(server.bootstrap))["t", 0].error is None
    assert sorted(values_of(cluster, 3)) == sorted([*numbers(2000), b"last"])


def test_acks_decide_which_offsets_return(cluster, client):
    sent = client.send("t", numbers(100), partition=0, acks=0, batch_bytes=300)
    assert sent.tolist() == [(0, 100, -1, -1)]
    sent = client.send("t", numbers(100, 100), partition=0, acks=1)
    assert sent.tolist() == [(0, 100, 100, 199)]
    assert cluster.values("t", 0) == numbers(200)
    assert producer_ids(cluster) == {-1}
    assert {request["acks"] for _, _, request in list_produce_requests(cluster)} == {0, 1}


def test_requests_are_bounded(cluster, client):
    """No request is much larger than REQUEST_BYTES.

    A partition that does not fit into a request comes first in the next request.
    """
    cluster.add_topic("wide", 50)
    value = bytes(1_000_000)
    client.send("wide", [value] * 100, partition=np.arange(100) % 50)
    for partition in range(50):
        assert cluster.values("wide", partition) == [value] * 2
    requests = [
        request["topic_data"][0]["partition_data"]
        for _, _, request in list_produce_requests(cluster)
    ]
    sizes = [sum(len(data["records"]) for data in request) for request in requests]
    assert max(sizes) < REQUEST_BYTES + (2 << 20)
    assert len(sizes) <= 8
    partitions = [data["index"] for request in requests for data in request]
    assert len(set(partitions[:50])) == 50


@pytest.mark.parametrize("versions, magic", [(None, 0), (OLD | {"Produce": (0, 1)}, 0), (OLD, 1)])
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_brokers_without_batches_get_message_sets(versions, magic, codec):
    """Brokers that do not know batches get message sets, which cannot be idempotent."""
    cluster = ProducerCluster(1, versions)
    cluster.add_topic("t")
    client = FakeClient(cluster, Retries(attempts=3))
    assert client.send("t", numbers(50), codec=codec, timestamps=7).tolist() == [(0, 50, 0, 49)]
    assert cluster.values("t", 0) == numbers(50)
    assert set(scan_batches(cluster)["magic"]) == {magic}
    timestamps = kafka.records(scan_batches(cluster))["timestamp"]
    assert set(timestamps) == {7 if magic else -1}
    for refused in ({"codec": "zstd"}, {"headers": ([1] * 50, numbers(50), numbers(50))}):
        with pytest.raises(ProduceError) as error:
            client.send("t", numbers(50), **refused)
        assert error.value.__cause__.code == kafka.ErrorCode.UNSUPPORTED_VERSION
        assert error.value.unsent.tolist() == list(range(50))
        assert not len(error.value.unknown)
    with pytest.raises(kafka.BrokerError, match="UNSUPPORTED_VERSION"):
        client.send("t", numbers(50), idempotent=True)
    assert cluster.values("t", 0) == numbers(50)


def test_the_newest_version_has_the_ids_of_topics(cluster, client):
    cluster.versions = VERSIONS | {"Produce": (0, 13)}
    client.send("t", numbers(5), partition=0)
    _, version, request = list_produce_requests(cluster)[0]
    assert version == 13
    assert request["topic_data"][0]["topic_id"] == cluster.ids["t"]
    cluster.ids["t"] = bytes(16)
    client.send("t", numbers(5, 5), partition=0)
    _, version, _ = list_produce_requests(cluster)[-1]
    assert version == 12
    assert cluster.values("t", 0) == numbers(10)


# ---- low level


def test_produce_reports_each_partition(cluster, client):
    sets = {
        ("t", 0): kafka.encode_batch([b"a", b"b"]),
        ("t", 1): kafka.encode_message_set([b"a"], magic=1),
        ("t", 2): kafka.encode_message_set([b"a", b"b"], magic=0),
        ("no", 0): kafka.encode_batch([b"a"]),
    }
    results = client.produce(sets, timeout_ms=7)
    assert list(results) == list(sets)
    unknown = results["no", 0]
    assert unknown.error.code == kafka.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not unknown.in_doubt
    for partition in range(3):
        assert results["t", partition].base_offset == 0
        assert results["t", partition].error is None
        assert results["t", partition].in_doubt is False
    versions = sorted((node, version) for node, version, _ in list_produce_requests(cluster))
    assert versions == [(1, 2), (1, 11), (2, 2)]
    assert client.produce({("t", 0): memoryview(sets["t", 0])}, acks=1)["t", 0].base_offset == 2
    assert client.produce({("t", 0): sets["t", 0]}, acks=0)["t", 0] == (-1, -1, None, False)
    assert cluster.values("t", 0) == [b"a", b"b"] * 3


@pytest.mark.parametrize(
    "fault, is_written, in_doubt",
    [
        (Fault("lost request"), False, True),
        (Fault("lost answer"), True, True),
        (Fault("cut answer"), True, True),
        (Fault("no answer"), True, True),
        (Fault("error before", 19), False, False),
        (Fault("error before", 10), False, False),
        (Fault("error before", 29), False, False),
        (Fault("error after", 20), True, True),
        (Fault("error after", 7), True, True),
        (Fault("error after", 6), True, True),
        (Fault("error after", -1), True, True),
        (Fault("error after", 999), True, True),
    ],
)
def test_produce_tries_once(cluster, client, fault, is_written, in_doubt):
    cluster.faults.append(fault)
    result = client.produce({("t", 0): kafka.encode_batch([b"a"])})["t", 0]
    assert result.error is not None
    assert result.in_doubt is in_doubt
    assert bool(cluster.values("t", 0)) is is_written
    assert len(list_produce_requests(cluster)) == 1
    assert client.produce({("t", 0): kafka.encode_batch([b"a"])})["t", 0].error is None


def test_produce_to_a_broker_that_is_down_is_not_in_doubt(cluster, client):
    client.metadata(["t"])
    cluster.down = {1, 2}
    result = client.produce({("t", 0): kafka.encode_batch([b"a"])})["t", 0]
    assert isinstance(result.error, ConnectionError)
    assert not result.in_doubt


def test_an_answer_without_the_partition_leaves_it_in_doubt(cluster, client):
    change_answers(cluster, "Produce", lambda body: {"responses": []})
    result = client.produce({("t", 0): kafka.encode_batch([b"a"])})["t", 0]
    assert isinstance(result.error, ConnectionError)
    assert result.in_doubt


@pytest.mark.parametrize(
    "data, error",
    [
        (b"", ValueError),
        (b"\0" * 16 + b"\5" + b"\0" * 50, ValueError),
        ("text", TypeError),
        (None, TypeError),
    ],
)
def test_bytes_without_record_sets_are_refused(cluster, client, data, error):
    with pytest.raises(error, match="t-0"):
        client.produce({("t", 0): data})
    assert not cluster.asked


@pytest.mark.parametrize(
    "options, error, reason",
    [
        ({"acks": 2}, ValueError, "acks must be"),
        ({"timeout_ms": -1}, ValueError, "timeout_ms must be"),
        ({"timeout_ms": 1 << 31}, ValueError, "timeout_ms must be"),
        ({"codec": "best"}, ValueError, "codec must be"),
        ({"batch_bytes": 0}, ValueError, "batch_bytes must be"),
        ({"partitioner": "best"}, ValueError, "must be one of"),
        ({"partitioner": 3}, TypeError, "a name or a function"),
        ({"partition": 3}, ValueError, "from 3 to 3 are given"),
        ({"partition": -1}, ValueError, "from -1 to -1 are given"),
        ({"partition": [0, 1]}, ValueError, "for 5 records"),
        ({"partition": "0"}, TypeError, "must be an integer"),
        ({"partition": [0.5] * 5}, TypeError, "must be an integer"),
        ({"idempotent": True, "acks": 1}, ValueError, "needs acks=-1"),
        ({"keys": [b""]}, ValueError, "unequal length"),
        ({"keys": 5}, TypeError, "keys: byte strings"),
        ({"partitioner": lambda keys, count: [count] * 5}, ValueError, "from 3 to 3 are given"),
        ({"partitioner": lambda keys, count: None}, TypeError, "must be an integer"),
    ],
)
def test_wrong_arguments_are_refused(cluster, client, options, error, reason):
    with pytest.raises(error, match=reason):
        client.send("t", numbers(5), **options)
    assert not list_produce_requests(cluster)


# ---- partitioners


def choose_partitions(
    how, keys, values=None, partitions=7, able=None, batch_bytes=1 << 20, turn=0, seed=1
):
    """List the partitions that a partitioner chooses."""
    values = ByteStrings([b""] * len(keys) if values is None else values)
    return partitioners.choose(
        how,
        ByteStrings(keys),
        values,
        partitions,
        able=able or range(partitions),
        batch_bytes=batch_bytes,
        turn=turn,
        chance=random.Random(seed),
    ).tolist()


KEYS = [b"a", b"", b"key", None, b"a", None, b"longer key"] * 20


@pytest.mark.parametrize(
    "how, hash_name",
    [("murmur2", "murmur2"), ("consistent", "crc32"), ("consistent_random", "crc32")],
)
def test_equal_keys_have_one_partition(how, hash_name):
    partitions = choose_partitions(how, KEYS)
    by_hash = partition_of(KEYS, 7, hash_name)
    for key, partition, hashed in zip(KEYS, partitions, by_hash):
        is_hashed_empty_key = key == b"" and how != "consistent_random"
        if key or is_hashed_empty_key:
            assert partition == hashed
    without_key = {partition for key, partition in zip(KEYS, partitions) if key is None}
    if how == "consistent":
        assert without_key == {0}
    else:
        assert len(without_key) == 1
    if how == "consistent_random":
        null_or_empty = {partition for key, partition in zip(KEYS, partitions) if not key}
        assert null_or_empty == without_key


def test_sticky_changes_after_a_batch():
    values = [b"v" * 90] * 3000
    partitions = choose_partitions("sticky", [b"key"] * 3000, values, batch_bytes=10_000)
    assert len(set(partitions)) == 7
    for at in range(0, 3000, 100):
        assert len(set(partitions[at : at + 100])) == 1
    partitions = choose_partitions("sticky", [None] * 3000, values, able=[2, 5], batch_bytes=10_000)
    assert set(partitions) == {2, 5}
    assert len({choose_partitions("sticky", [None], seed=seed)[0] for seed in range(100)}) == 7


def test_round_robin_takes_turns(cluster, client):
    assert choose_partitions("round_robin", [b"a"] * 5, turn=4) == [4, 5, 6, 0, 1]
    assert choose_partitions("round_robin", [b"a"] * 5, able=[1, 6]) == [1, 6, 1, 6, 1]
    for first in range(0, 30, 10):
        client.send("t", numbers(10, first), partitioner="round_robin")
    assert cluster.values("t", 0) == numbers(30)[::3]
    assert cluster.values("t", 2) == numbers(30)[2::3]


def test_partitions_of_a_function_and_of_an_argument(cluster, client):
    calls = []

    def choose_two(keys, count):
        calls.append((keys, count))
        return [2] * 6

    client.send("t", numbers(6), keys=KEYS[:6], partitioner=choose_two)
    client.send("t", numbers(6), partition=[0, 1, 0, 1, 0, 1])
    assert calls == [(KEYS[:6], 3)]
    assert cluster.values("t", 2) == numbers(6)
    assert cluster.values("t", 1) == [b"1", b"3", b"5"]


def test_a_send_uses_new_partitions(cluster, client):
    client.send("t", numbers(3), partitioner="round_robin")
    cluster.topics["t"][3] = type(cluster.topics["t"][0])(1)
    client.send("t", numbers(1), partition=3)
    assert cluster.values("t", 3) == [b"0"]


# ---- failures


def check_error(cluster, error, values):
    """Check an error of a send against the log of partition 0."""
    counts = Counter(cluster.values("t", 0))
    assert error.sent["count"].sum() + len(error.unknown) + len(error.unsent) == len(values)
    assert not set(error.unknown) & set(error.unsent)
    assert error.unknown.dtype == np.int64
    assert error.unsent.dtype == np.int64
    for row, value in enumerate(values):
        if row in error.unsent:
            assert counts[value] == 0
        elif row in error.unknown:
            assert counts[value] <= 1
        else:
            assert counts[value] == 1


@pytest.mark.parametrize(
    "kind, code",
    [(kind, 0) for kind in KINDS if not kind.startswith("error")]
    + [("error before", code) for code in BEFORE]
    + [("error after", code) for code in AFTER],
)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_one_failure_loses_no_record(cluster, client, kind, code, at):
    cluster.faults += [None] * at + [Fault(kind, code or 1)]
    client.send("t", numbers(200), partition=0, batch_bytes=400)
    client.send("t", numbers(100, 200), partition=0, batch_bytes=400)
    cluster.deliver_late()
    assert len(scan_batches(cluster)) > 8
    assert cluster.values("t", 0) == numbers(300)


def test_records_follow_the_leader(cluster, client):
    client.send("t", numbers(10), partition=0)
    cluster.move("t", 0, 2)
    client.send("t", numbers(10, 10), partition=0)
    cluster.down.add(1)
    client.send("t", numbers(10, 20), partition=0)
    assert cluster.values("t", 0) == numbers(30)
    assert len(producer_ids(cluster)) == 1


def test_a_restart_loses_no_record(cluster, client):
    """No record is lost while a leader is down. The other leaders get their records meanwhile."""
    client.metadata()
    cluster.down.add(1)
    driver = FakeDriver(cluster)
    perform = driver.perform

    def perform_and_restart(effect):
        if driver.now > 5:
            cluster.down.clear()
        return perform(effect)

    driver.perform = perform_and_restart
    client.run = driver.run
    client.send("t", numbers(900), partition=np.arange(900) % 3, batch_bytes=400)
    for partition in range(3):
        assert cluster.values("t", partition) == numbers(900)[partition::3]
    order = [node for node, _, _ in list_produce_requests(cluster)]
    assert 1 not in order[: order.count(2)], "partition 1 did not wait for the others"


def test_the_limit_of_attempts_is_for_each_batch(cluster):
    cluster.faults += [Fault("lost answer"), Fault("error before", 19), None] * 8
    client = FakeClient(cluster, Retries(attempts=3))
    client.send("t", numbers(500), partition=0, batch_bytes=400)
    assert cluster.values("t", 0) == numbers(500)
    assert not cluster.faults


def test_a_leader_that_does_not_come_back(cluster):
    client = FakeClient(cluster, Retries(attempts=4))
    client.metadata()
    cluster.down.add(1)
    values = numbers(90)
    with pytest.raises(ProduceError, match="60 are not") as error:
        client.send("t", values, partition=np.arange(90) % 3)
    assert error.value.sent.tolist() == [(1, 30, 0, 29)]
    assert not len(error.value.unknown)
    assert sorted(error.value.unsent) == [row for row in range(90) if row % 3 != 1]
    assert isinstance(error.value.__cause__, ConnectionRefusedError)
    assert "after 4 attempts" in error.value.__cause__.__notes__[0]


def test_a_batch_in_doubt_is_settled_when_another_fails(cluster, client):
    """A broker refuses one partition, and the sends to the others stop.

    A batch that may be in the log is retried until its state is known.
    """
    cluster.faults += [Fault("error after", 7, (2,)), None]
    cluster.errors["Produce", "t", 0].append(29)
    with pytest.raises(ProduceError, match="TOPIC_AUTHORIZATION_FAILED") as error:
        client.send("t", numbers(400), partition=np.arange(400) % 2 * 2, batch_bytes=300)
    assert not len(error.value.unknown)
    assert error.value.sent["count"].sum() == len(cluster.values("t", 2))
    assert len(cluster.values("t", 2)) < 100
    assert cluster.values("t", 0) == []


@pytest.mark.parametrize("code", [45, 47, 59])
@pytest.mark.parametrize("doubt", [False, True])
def test_producer_that_is_not_recognised(cluster, client, code, doubt):
    cluster.faults += [None, Fault("lost answer")] if doubt else [None]
    cluster.faults.append(Fault("error before", code))
    with pytest.raises(ProduceError, match=kafka.ErrorCode(code).name) as error:
        client.send("t", numbers(500), partition=0, batch_bytes=400)
    check_error(cluster, error.value, numbers(500))
    assert bool(len(error.value.unknown)) is doubt
    assert len(error.value.sent) == 1
    client.send("t", numbers(500, 500), partition=0)  # with another producer id
    assert cluster.values("t", 0)[-500:] == numbers(500, 500)
    assert len(producer_ids(cluster)) == 2


def test_duplicate_is_success(cluster, client):
    cluster.faults += [Fault("error after", 46)]
    assert client.send("t", numbers(9), partition=0).tolist() == [(0, 9, -1, -1)]
    assert cluster.values("t", 0) == numbers(9)


def test_too_large_batches_are_divided(cluster, client):
    cluster.max_bytes = 700
    sent = client.send("t", numbers(1000), partition=0)
    assert sent.tolist() == [(0, 1000, 0, 999)]
    assert cluster.values("t", 0) == numbers(1000)
    assert len(list_produce_requests(cluster)) < 40


def test_a_too_large_record_fails_its_send(cluster, client):
    cluster.max_bytes = 700
    values = numbers(100)
    values[60] = bytes(1000)
    with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE") as error:
        client.send("t", values, partition=0)
    assert cluster.values("t", 0) == values[:60]
    assert error.value.unsent.tolist() == list(range(60, 100))
    client.send("t", values[61:], partition=0)
    assert cluster.values("t", 0) == values[:60] + values[61:]


def test_too_large_after_doubt_is_not_divided(cluster, client):
    """The whole batch may be in the log already."""
    cluster.faults += [Fault("lost answer"), Fault("error before", 10)]
    with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE") as error:
        client.send("t", numbers(100), partition=0)
    check_error(cluster, error.value, numbers(100))
    assert len(error.value.unknown) == 100


def test_rows_that_cannot_be_written(cluster, client):
    """An error in a later row does not undo the batches that were sent before."""
    headers = ([1] * 2000, [b"name"] * 1500 + [None] * 500, [b""] * 2000)
    with pytest.raises(ProduceError, match="row 1500: a header's key") as error:
        client.send("t", numbers(2000), partition=0, headers=headers, batch_bytes=1000)
    check_error(cluster, error.value, numbers(2000))
    assert isinstance(error.value.__cause__, ValueError)
    assert 0 < error.value.sent["count"][0] <= 1500


@pytest.mark.parametrize("size", range(0, 60, 3))
def test_answers_that_are_cut(cluster, client, size):
    cuts = [size]

    def cut_once(node, api, data):
        if api == "Produce" and cuts:
            raise HangUp(data[: cuts.pop()])
        return data

    cluster.mangle = cut_once
    client.send("t", numbers(50), partition=0)
    assert cluster.values("t", 0) == numbers(50)


def test_a_malformed_answer_leaves_the_records_in_doubt(cluster, client):
    """The client sends nothing more after an answer that it cannot read."""
    cluster.mangle = lambda node, api, data: (
        data[:10] + b"\x7f" * (len(data) - 10) if api == "Produce" else data
    )
    with pytest.raises(ProduceError) as error:
        client.send("t", numbers(50), partition=0)
    assert isinstance(error.value.__cause__, FrameError)
    assert len(error.value.unknown) == 50


def test_the_request_for_a_producer_id_is_retried(cluster, client):
    codes = [14, 15, 0]

    def fail_twice(body):
        return body | {"error_code": codes.pop(0)} if codes else body

    change_answers(cluster, "InitProducerId", fail_twice)
    client.send("t", numbers(5), partition=0)
    change_answers(cluster, "InitProducerId", lambda body: body | {"error_code": 31})
    client._producer.sessions.clear()
    with pytest.raises(kafka.BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        client.send("t", numbers(5), partition=0)
    assert cluster.values("t", 0) == numbers(5)
    assert not codes


def test_acks_0_sends_nothing_twice(cluster, client):
    client.metadata()
    cluster.faults += [None, Fault("lost request")]
    with pytest.raises(ProduceError) as error:
        client.send("t", numbers(500), partition=0, acks=0, batch_bytes=400)
    values = cluster.values("t", 0)
    assert values == numbers(len(values))
    assert error.value.sent["count"].tolist() == [len(values)]
    assert error.value.unknown[0] == len(values)


def test_acks_0_is_sent_to_the_new_leader_if_the_old_one_is_down(cluster):
    client = FakeClient(cluster)
    client.metadata()
    cluster.move("t", 0, 2)
    cluster.down.add(1)
    client.send("t", numbers(5), partition=0, acks=0)
    assert cluster.values("t", 0) == numbers(5)


# ---- the law

faults = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        Fault,
        st.sampled_from([kind for kind in KINDS if not kind.startswith("error")]),
        st.integers(0, 6),
    ),
    st.builds(
        Fault,
        st.just("error before"),
        st.sampled_from(BEFORE),
        st.sampled_from([None, (0,), (1, 2)]),
    ),
    st.builds(
        Fault, st.just("error after"), st.sampled_from(AFTER), st.sampled_from([None, (0,), (1, 2)])
    ),
)
fatal = st.builds(
    Fault,
    st.just("error before"),
    st.sampled_from([29, 45, 47, 59, 87, -1, 999]),
    st.sampled_from([None, (0,), (1,)]),
)


class Producing(RuleBasedStateMachine):
    """Sends, and failures of the cluster.

    The result of `send` is right, also after the last late request has arrived. If all errors are
    retriable and the retries do not end, `send` writes each record once.

    `written` has the values of each partition that `send` reported as written. `unsent` and
    `unknown` have the values that an error reported as unsent or unknown.
    """

    @initialize(
        brokers=st.integers(1, 3),
        partitions=st.integers(1, 3),
        forgetful=st.booleans(),
        seed=st.integers(0, 9),
    )
    def start(self, brokers, partitions, forgetful, seed):
        self.cluster = ProducerCluster(brokers)
        self.cluster.add_topic("t", partitions)
        self.cluster.forgetful = forgetful
        self.partitions = partitions
        self.next_number = 0
        self.has_fatal_fault = False
        self.client = FakeClient(self.cluster, seed=seed)
        self.written = [[] for _ in range(partitions)]
        self.unsent = set()
        self.unknown = set()
        self.logs = None  # the values of each partition, if they are new

    @rule(faults=st.lists(faults, max_size=12))
    def fail(self, faults):
        self.cluster.faults += faults

    @rule(fault=fatal)
    def fail_for_good(self, fault):
        self.cluster.faults.append(fault)
        self.has_fatal_fault = True

    @rule(data=st.data())
    def move(self, data):
        node = data.draw(st.sampled_from(sorted(self.cluster.nodes)))
        self.cluster.move("t", data.draw(st.integers(0, self.partitions - 1)), node)

    @rule(size=st.integers(100, 2000))
    def limit(self, size):
        self.cluster.max_bytes = size

    @rule(
        count=st.integers(1, 60),
        batch_bytes=st.sampled_from([1, 100, 200, 400, 1 << 20]),
        how=st.sampled_from(["round_robin", "sticky"]),
        impatient=st.booleans(),
    )
    def send(self, count, batch_bytes, how, impatient):
        values = numbers(count, self.next_number)
        self.next_number += count
        self.client.cluster.retries = Retries(attempts=2) if impatient else PATIENT
        failed = set()
        try:
            self.client.send("t", values, partitioner=how, batch_bytes=batch_bytes)
        except ProduceError as error:
            self.check_error(error, count, impatient)
            unknown = {values[row] for row in error.unknown}
            unsent = {values[row] for row in error.unsent}
            assert not unknown & unsent
            self.unknown |= unknown
            self.unsent |= unsent
            failed = unknown | unsent
        except (kafka.BrokerError, OSError):
            assert impatient, "the request for the leader or the producer id was not retried"
            failed = set(values)
            self.unsent |= failed
        self.read_logs()
        for value in values:
            if value not in failed:
                (partition,) = (number for number, log in enumerate(self.logs) if value in log)
                self.written[partition].append(value)

    def check_error(self, error, count, impatient):
        # A batch in doubt is not divided, because the whole batch may be in the log.
        is_too_large = any("MESSAGE_TOO_LARGE" in text for text in error.errors)
        assert impatient or self.has_fatal_fault or is_too_large, error
        assert len(error.unknown) + len(error.unsent) + error.sent["count"].sum() == count
        assert all(isinstance(text, str) for text in error.errors)
        assert error.__cause__ is not None

    def read_logs(self):
        self.logs = [self.cluster.values("t", number) for number in range(self.partitions)]

    @invariant()
    def logs_agree_with_the_results(self):
        logs = getattr(self, "logs", None)
        self.logs = None
        for partition, log in enumerate(logs or ()):
            counts = Counter(log)
            assert max(counts.values(), default=1) == 1, "a record is in the log twice"
            assert not self.unsent & set(log), "an unsent record is in the log"
            certain = [value for value in log if value not in self.unknown]
            assert certain == self.written[partition], "records are lost, or in disorder"

    def teardown(self):
        if hasattr(self, "cluster"):
            self.cluster.deliver_late()
            self.read_logs()
            self.logs_agree_with_the_results()


TestProducing = Producing.TestCase
TestProducing.settings = settings(
    max_examples=read_example_count(8),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@given(st.lists(faults, max_size=20), st.sampled_from([-1, 1]), st.integers(1, 3))
@settings(max_examples=read_example_count(10), deadline=None)
def test_at_least_once_without_idempotence(drawn, acks, partitions):
    cluster = ProducerCluster(2)
    cluster.add_topic("t", partitions)
    for fault in drawn:
        if acks == -1 or fault is None or fault.kind != "not replicated":
            cluster.faults.append(fault)
    client = FakeClient(cluster)
    sent = client.send(
        "t", numbers(100), partitioner="round_robin", acks=acks, idempotent=False, batch_bytes=200
    )
    assert set(values_of(cluster, partitions)) == set(numbers(100))
    assert sent["count"].sum() == 100
    ids = [producer_ids(cluster, number) for number in range(partitions)]
    assert set().union(*ids) == {-1}


@given(st.lists(faults, max_size=20), st.integers(1, 3))
@settings(max_examples=read_example_count(10), deadline=None)
def test_at_most_once_with_acks_0(drawn, partitions):
    cluster = ProducerCluster(2)
    cluster.add_topic("t", partitions)
    cluster.faults += drawn
    try:
        FakeClient(cluster).send(
            "t", numbers(100), partitioner="round_robin", acks=0, batch_bytes=200
        )
        unsent = []
    except ProduceError as error:
        unsent = error.unsent.tolist()
    cluster.deliver_late()
    counts = Counter(values_of(cluster, partitions))
    assert max(counts.values(), default=1) == 1
    assert not {b"%d" % row for row in unsent} & set(counts)


def test_metadata_is_requested_once_for_all_partitions_that_moved(cluster, client):
    cluster.add_topic("wide", 200)
    client.metadata(["wide"])
    asked = len(cluster.asked)

    def move_leaders(body):
        """Move all leaders after the client has asked for them. Then Metadata fails twice."""
        if cluster.topics["wide"][0].leader == 1:
            for partition in range(200):
                cluster.move("wide", partition, 2)
            cluster.errors["Metadata", "wide", None] += [5, 3]
        return body

    change_answers(cluster, "Metadata", move_leaders)
    client.send("wide", numbers(200), partitioner="round_robin")
    assert sum(api == "Metadata" for _, api, _, _ in cluster.asked[asked:]) <= 4
    for partition in range(200):
        assert cluster.values("wide", partition) == [b"%d" % partition]


# ---- over sockets


class Loop:
    """An AsyncClient whose methods block."""

    def __init__(self, *arguments, **options):
        self.loop = asyncio.new_event_loop()
        self.client = kafka.AsyncClient(*arguments, **options)

    def send(self, *arguments, **options):
        return self.loop.run_until_complete(self.client.send(*arguments, **options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


@pytest.mark.parametrize("kind", [kafka.Client, Loop])
@pytest.mark.parametrize("hang_ups", [1, 2, 10])
def test_a_broker_that_is_just_starting_does_not_end_idempotence(cluster, kind, hang_ups):
    """A peer that hangs up on the greeting may be a broker that is starting, or a proxy before it.

    Only an answer shows that a broker is old.
    """
    left = hang_ups

    def hang_up_at_first(node, api, data):
        nonlocal left
        if left and (api == "ApiVersions" or hang_ups > 2):
            left -= 1
            raise HangUp
        return data

    cluster.mangle = hang_up_at_first
    cluster.faults.append(Fault("lost answer"))
    with Server(cluster) as server, kind(server.bootstrap, retries=Retries(first=0.001)) as client:
        client.send("t", numbers(10), partition=0)
    assert cluster.values("t", 0) == numbers(10)
    assert -1 not in producer_ids(cluster)


def stall(cluster, seconds):
    """Make brokers stop reading at a Produce request. Return the event that ends this."""
    answer = cluster.answer
    resume = threading.Event()

    def wait(session, node, request):
        if request[4:6] == b"\0\0":
            resume.wait(seconds)
            raise HangUp
        return answer(session, node, request)

    cluster.answer = wait
    return resume


def test_asyncio_sends_all_before_it_returns(cluster):
    values = [bytes([number]) * 100_000 for number in range(200)]
    with Server(cluster) as server:
        with Loop(server.bootstrap) as client:
            client.send("t", values, partition=0, acks=0)
        until = time.monotonic() + 10
        while len(cluster.values("t", 0)) < 200 and time.monotonic() < until:
            time.sleep(0.01)
    assert cluster.values("t", 0) == values


def test_asyncio_buffers_no_more_than_a_request(cluster):
    resume = stall(cluster, 20)
    with Server(cluster) as server, Loop(server.bootstrap, timeout=0.5) as client:
        begun = time.monotonic()
        with pytest.raises(ProduceError, match="accepted no more bytes") as error:
            client.send("t", [bytes(100_000)] * 1000, partition=0, acks=0)
        resume.set()
        assert time.monotonic() - begun < 10
        assert len(error.value.unsent) > 500


def test_an_interrupt_leaves_no_connection_behind(cluster, monkeypatch):
    """The user presses Ctrl-C while the socket accepts no more bytes."""
    with Server(cluster) as server, kafka.Client(server.bootstrap) as client:
        client.metadata()
        links = []
        send = sockets.SocketLink.send

        async def interrupt(self, exchange, timeout):
            if exchange.api == "Produce":
                links.append(self)
                raise KeyboardInterrupt("while it sends")
            await send(self, exchange, timeout)

        monkeypatch.setattr(sockets.SocketLink, "send", interrupt)
        with pytest.raises(KeyboardInterrupt, match="while it sends"):
            client.send("t", numbers(10), partition=0)
        (link,) = links
        assert link._socket.fileno() == -1


def test_a_request_that_is_too_large_is_not_in_doubt(cluster, client, monkeypatch):
    monkeypatch.setattr("wirescan.kafka.client.produce.MAX_REQUEST_BYTES", 1000)
    data = kafka.encode_batch([(0, 0, b"k", b"v" * 600)])
    sets = {("t", 0): data, ("t", 2): data}
    results = client.produce(sets)
    assert len(results) == 2
    for result in results.values():
        assert type(result.error) is ValueError
        assert result.in_doubt is False
    assert "do not fit in one request" in str(results["t", 0].error)
    assert not list_produce_requests(cluster)
    assert client.produce({("t", 0): sets["t", 0]})["t", 0].error is None


def test_an_empty_key_goes_anywhere_if_consistent_random():
    partitions = {choose_partitions("consistent_random", [b""], seed=seed)[0] for seed in range(30)}
    assert len(partitions) > 1


@pytest.mark.parametrize(
    "code, expected",
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
    ],
)
def test_errors_after_which_records_may_be_in_the_log(code, expected):
    assert may_be_written(BrokerError(code)) is expected
