"""The producer: whatever fails, each record is there once and in order, or an error says which may not be."""
import asyncio
import random
import threading
import time
from collections import Counter

import numpy as np
import pytest
from fake_broker import VERSIONS, FakeDriver, HangUp, Server
from fake_producer import KINDS, Fault, ProducerCluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from wirescan import FrameError, kafka
from wirescan.core.strings import ByteStrings
from wirescan.kafka.client import partitioners, sockets
from wirescan.kafka.client.cluster import Retries
from wirescan.kafka.client.operations import Operations
from wirescan.kafka.client.produce import may_be_written
from wirescan.kafka.client.send import REQUEST_BYTES, ProduceError
from wirescan.kafka.errors import BrokerError, ErrorCode
from wirescan.kafka.partitioner import partition_of

PATIENT = Retries(attempts=10**6, seconds=1e9, unknown=10**6)
BEFORE, AFTER = (3, 5, 6, 19, 56, 2, 74), (6, 7, 20, 56)    # errors that may pass, of a leader that wrote or did not
OLD = VERSIONS | {"Produce": (0, 2)}
del OLD["InitProducerId"]


class FakeClient(Operations):
    """A client without sockets, against a fake cluster."""

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


def numbered(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


def produced(cluster):
    """The Produce requests that were asked, and how: (node, version, request)."""
    return [(node, version, asked) for node, api, version, asked in cluster.asked if api == "Produce"]


def batches_of(cluster, partition=0):
    data = b"".join(data for _, _, data in cluster.topics["t"][partition].entries)
    return kafka.scan(data)


# ---------------------------------------------------------------------------------------- what is sent

def test_send(cluster, client):
    keys = [b"key %d" % (number % 40) for number in range(1000)]
    sent = client.send("t", numbered(1000), keys=keys, batch_bytes=2000)
    chosen = partition_of(keys, 3)
    for partition in range(3):
        values = [value for value, one in zip(numbered(1000), chosen) if one == partition]
        assert cluster.values("t", partition) == values
        row, = sent[sent["partition"] == partition]
        assert (row["count"], row["first_offset"], row["last_offset"]) == (len(values), 0, len(values) - 1)
        batches = batches_of(cluster, partition)
        assert len(batches) > 2 and batches["size"].max() <= 2000 and batches["size"][:-1].min() > 1900
        assert (batches["base_sequence"] == batches["base_offset"]).all() and len(set(batches["producer_id"])) == 1
    for node, version, asked in produced(cluster):
        assert version == 11 and asked["acks"] == -1 and asked["timeout_ms"] == 30_000
    assert {node for node, _, _ in produced(cluster)} == {1, 2}
    assert any(len(asked["topic_data"][0]["partition_data"]) == 2 for _, _, asked in produced(cluster))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_columns(cluster, client, codec):
    """Everything of a record arrives, in all codecs, from arrays."""
    pyarrow = pytest.importorskip("pyarrow")
    values = pyarrow.array([None if number % 7 == 0 else b"v" * number for number in range(300)])
    headers = ([number % 3 for number in range(300)], numbered(300), [None] * 300)
    client.send("t", values, keys=None, timestamps=np.arange(300), headers=headers, partition=2, codec=codec,
                batch_bytes=5000)
    batches = batches_of(cluster, 2)
    records = kafka.records(batches)
    assert len(batches) > 5
    assert [None if row.value is None else bytes(row.value) for row in records] == values.to_pylist()
    assert records["timestamp"].tolist() == list(range(300)) and (records["key_size"] == -1).all()
    assert records["header_count"].tolist() == headers[0]
    assert [bytes(row.key) for row in kafka.headers(records)] == headers[1]


def test_time_of_now(cluster, client):
    import time
    before = time.time() * 1000
    client.send("t", numbered(3), partition=0)
    client.send("t", numbered(3), partition=1, timestamps=-1)
    stamps = kafka.records(batches_of(cluster))["timestamp"]
    assert before - 1 <= stamps.min() and stamps.max() <= time.time() * 1000
    assert (kafka.records(batches_of(cluster, 1))["timestamp"] == -1).all()


def test_nothing(cluster, client):
    assert len(client.send("t", [])) == 0 and client.produce({}) == {} and not cluster.asked


def test_sequences_go_on(cluster, client):
    for first in range(0, 50, 10):
        client.send("t", numbered(10, first), partition=0)
    assert cluster.values("t", 0) == numbered(50)
    batches = batches_of(cluster)
    assert batches["base_sequence"].tolist() == [0, 10, 20, 30, 40] and len(set(batches["producer_id"])) == 1


def test_sequences_begin_again(cluster, client):
    """After 2**31 - 1 comes 0."""
    cluster.forgetful = True
    client.send("t", numbered(1), partition=0)
    client._producer.sessions[0].sequences["t", 0] = 2**31 - 3
    cluster.producers.clear()
    client.send("t", numbered(9, 1), partition=0)
    client.send("t", numbered(9, 10), partition=0)
    assert cluster.values("t", 0) == numbered(19)
    assert batches_of(cluster)["base_sequence"].tolist() == [0, 2**31 - 3, 6]


def test_sends_at_once_have_sessions_of_their_own(cluster):
    with Server(cluster) as server, kafka.Client(server.bootstrap) as client:
        threads = [threading.Thread(target=client.send, args=("t", numbered(500, first)), kwargs={"batch_bytes": 300})
                   for first in range(0, 2000, 500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(sum((cluster.values("t", one) for one in range(3)), [])) == sorted(numbered(2000))
    assert len(client._producer.sessions) <= 4


def test_asyncio(cluster):
    async def main(bootstrap):
        async with kafka.AsyncClient(bootstrap) as client:
            await asyncio.gather(*(client.send("t", numbered(500, first), batch_bytes=300)
                                   for first in range(0, 2000, 500)))
            return await client.produce({("t", 0): kafka.encode_batch([b"last"])})

    with Server(cluster) as server:
        assert asyncio.run(main(server.bootstrap))["t", 0].error is None
    assert sorted(sum((cluster.values("t", one) for one in range(3)), [])) == sorted(numbered(2000) + [b"last"])


def test_acks(cluster, client):
    sent = client.send("t", numbered(100), partition=0, acks=0, batch_bytes=300)
    assert sent.tolist() == [(0, 100, -1, -1)]
    assert client.send("t", numbered(100, 100), partition=0, acks=1).tolist() == [(0, 100, 100, 199)]
    assert cluster.values("t", 0) == numbered(200)
    assert set(batches_of(cluster)["producer_id"]) == {-1}
    assert {asked["acks"] for _, _, asked in produced(cluster)} == {0, 1}


def test_requests_are_bounded(cluster, client):
    """No request is much larger than REQUEST_BYTES, and what is left behind is sent first the next time."""
    cluster.add_topic("wide", 50)
    value = bytes(1_000_000)
    client.send("wide", [value] * 100, partition=np.arange(100) % 50)
    assert all(cluster.values("wide", one) == [value] * 2 for one in range(50))
    parts = [asked["topic_data"][0]["partition_data"] for _, _, asked in produced(cluster)]
    sizes = [sum(len(one["records"]) for one in some) for some in parts]
    assert max(sizes) < REQUEST_BYTES + (2 << 20) and len(sizes) <= 8
    assert len({one["index"] for one in sum(parts, [])[:50]}) == 50


@pytest.mark.parametrize("versions, magic", [(None, 0), (OLD | {"Produce": (0, 1)}, 0), (OLD, 1)])
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_brokers_without_batches(versions, magic, codec):
    """Brokers that know message sets only get these; nothing is idempotent then."""
    cluster = ProducerCluster(1, versions)
    cluster.add_topic("t")
    client = FakeClient(cluster, Retries(attempts=3))
    assert client.send("t", numbered(50), codec=codec, timestamps=7).tolist() == [(0, 50, 0, 49)]
    assert cluster.values("t", 0) == numbered(50)
    records = kafka.records(batches_of(cluster))
    assert set(batches_of(cluster)["magic"]) == {magic} and set(records["timestamp"]) == {7 if magic else -1}
    for refused in ({"codec": "zstd"}, {"headers": ([1] * 50, numbered(50), numbered(50))}):
        with pytest.raises(ProduceError) as error:
            client.send("t", numbered(50), **refused)
        assert error.value.__cause__.code == kafka.ErrorCode.UNSUPPORTED_VERSION
        assert error.value.unsent.tolist() == list(range(50)) and not len(error.value.unknown)
    with pytest.raises(kafka.BrokerError, match="UNSUPPORTED_VERSION"):
        client.send("t", numbered(50), idempotent=True)
    assert cluster.values("t", 0) == numbered(50)


def test_newest_version_names_topics_by_id(cluster, client):
    cluster.versions = VERSIONS | {"Produce": (0, 13)}
    client.send("t", numbered(5), partition=0)
    assert produced(cluster)[0][1] == 13 and produced(cluster)[0][2]["topic_data"][0]["topic_id"] == cluster.ids["t"]
    cluster.ids["t"] = bytes(16)
    client.send("t", numbered(5, 5), partition=0)
    assert produced(cluster)[-1][1] == 12 and cluster.values("t", 0) == numbered(10)


# ------------------------------------------------------------------------------------- low level

def test_produce(cluster, client):
    sets = {("t", 0): kafka.encode_batch([b"a", b"b"]), ("t", 1): kafka.encode_message_set([b"a"], magic=1),
            ("t", 2): kafka.encode_message_set([b"a", b"b"], magic=0), ("no", 0): kafka.encode_batch([b"a"])}
    found = client.produce(sets, timeout_ms=7)
    assert list(found) == list(sets)
    assert found["no", 0].error.code == kafka.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not found["no", 0].in_doubt
    assert all(found["t", one][:4:3] == (0, False) and found["t", one].error is None for one in range(3))
    assert sorted((node, version) for node, version, _ in produced(cluster)) == [(1, 2), (1, 11), (2, 2)]
    assert client.produce({("t", 0): memoryview(sets["t", 0])}, acks=1)["t", 0].base_offset == 2
    assert client.produce({("t", 0): sets["t", 0]}, acks=0)["t", 0] == (-1, -1, None, False)
    assert cluster.values("t", 0) == [b"a", b"b"] * 3


@pytest.mark.parametrize("fault, there, doubt", [
    (Fault("lost request"), False, True), (Fault("lost answer"), True, True), (Fault("cut answer"), True, True),
    (Fault("no answer"), True, True), (Fault("error before", 19), False, False),
    (Fault("error before", 10), False, False), (Fault("error before", 29), False, False),
    (Fault("error after", 20), True, True), (Fault("error after", 7), True, True),
    (Fault("error after", -1), True, True), (Fault("error after", 999), True, True)])
def test_produce_tries_once(cluster, client, fault, there, doubt):
    cluster.faults.append(fault)
    found = client.produce({("t", 0): kafka.encode_batch([b"a"])})["t", 0]
    assert found.error is not None and found.in_doubt is doubt and bool(cluster.values("t", 0)) is there
    assert len(produced(cluster)) == 1
    assert client.produce({("t", 0): kafka.encode_batch([b"a"])})["t", 0].error is None


def test_produce_to_nobody(cluster, client):
    client.metadata(["t"])
    cluster.down = {1, 2}
    found = client.produce({("t", 0): kafka.encode_batch([b"a"])})["t", 0]
    assert isinstance(found.error, ConnectionError) and not found.in_doubt


def test_answers_that_leave_out(cluster, client):
    cluster.hook = lambda node, api, version, body: {"responses": []} if api == "Produce" else body
    found = client.produce({("t", 0): kafka.encode_batch([b"a"])})["t", 0]
    assert isinstance(found.error, ConnectionError) and found.in_doubt


@pytest.mark.parametrize("data, error", [(b"", ValueError), (b"\0" * 16 + b"\5" + b"\0" * 50, ValueError),
                                         ("text", TypeError), (None, TypeError)])
def test_no_record_sets(cluster, client, data, error):
    with pytest.raises(error, match="t-0"):
        client.produce({("t", 0): data})
    assert not cluster.asked


@pytest.mark.parametrize("options, error", [
    ({"acks": 2}, ValueError), ({"timeout_ms": -1}, ValueError), ({"timeout_ms": 1 << 31}, ValueError),
    ({"codec": "best"}, ValueError), ({"batch_bytes": 0}, ValueError), ({"partitioner": "best"}, ValueError),
    ({"partitioner": 3}, TypeError), ({"partition": 3}, ValueError), ({"partition": -1}, ValueError),
    ({"partition": [0, 1]}, ValueError), ({"partition": "0"}, TypeError), ({"partition": [0.5] * 5}, TypeError),
    ({"idempotent": True, "acks": 1}, ValueError), ({"keys": [b""]}, ValueError), ({"keys": 5}, TypeError),
    ({"partitioner": lambda keys, count: [count] * 5}, ValueError),
    ({"partitioner": lambda keys, count: None}, TypeError)])
def test_unfit_arguments(cluster, client, options, error):
    with pytest.raises(error):
        client.send("t", numbered(5), **options)
    assert not produced(cluster)


# ---------------------------------------------------------------------------------- partitioners

def chosen(how, keys, values=None, partitions=7, able=None, batch_bytes=1 << 20, turn=0, seed=1):
    values = ByteStrings([b""] * len(keys) if values is None else values)
    return partitioners.choose(how, ByteStrings(keys), values, partitions, able=able or range(partitions),
                               batch_bytes=batch_bytes, turn=turn, chance=random.Random(seed)).tolist()


KEYS = [b"a", b"", b"key", None, b"a", None, b"longer key"] * 20


@pytest.mark.parametrize("how, of", [("murmur2", "murmur2"), ("consistent", "crc32"), ("consistent_random", "crc32")])
def test_partitions_of_keys(how, of):
    found, by_hash = chosen(how, KEYS), partition_of(KEYS, 7, of)
    for key, one, hashed in zip(KEYS, found, by_hash):
        if key or key == b"" and how != "consistent_random":
            assert one == hashed
    anywhere = {one for key, one in zip(KEYS, found) if key is None}
    assert anywhere == {0} if how == "consistent" else len(anywhere) == 1
    if how == "consistent_random":
        assert {one for key, one in zip(KEYS, found) if not key} == anywhere


def test_sticky_changes_after_a_batch():
    found = chosen("sticky", [b"key"] * 3000, [b"v" * 90] * 3000, batch_bytes=10_000)
    assert len(set(found)) == 7
    assert all(len(set(found[at:at + 100])) == 1 for at in range(0, 3000, 100))
    assert set(chosen("sticky", [None] * 3000, [b"v" * 90] * 3000, able=[2, 5], batch_bytes=10_000)) == {2, 5}
    assert len({chosen("sticky", [None], seed=seed)[0] for seed in range(100)}) == 7


def test_round_robin(cluster, client):
    assert chosen("round_robin", [b"a"] * 5, turn=4) == [4, 5, 6, 0, 1]
    assert chosen("round_robin", [b"a"] * 5, able=[1, 6]) == [1, 6, 1, 6, 1]
    for first in range(0, 30, 10):
        client.send("t", numbered(10, first), partitioner="round_robin")
    assert cluster.values("t", 0) == numbered(30)[::3] and cluster.values("t", 2) == numbered(30)[2::3]


def test_function_and_given_partitions(cluster, client):
    seen = []
    client.send("t", numbered(6), keys=KEYS[:6], partitioner=lambda keys, count: seen.append((keys, count)) or [2] * 6)
    client.send("t", numbered(6), partition=[0, 1, 0, 1, 0, 1])
    assert seen == [(KEYS[:6], 3)] and cluster.values("t", 2) == numbered(6)
    assert cluster.values("t", 1) == [b"1", b"3", b"5"]


def test_new_partitions_are_seen(cluster, client):
    client.send("t", numbered(3), partitioner="round_robin")
    cluster.topics["t"][3] = type(cluster.topics["t"][0])(1)
    client.send("t", numbered(1), partition=3)
    assert cluster.values("t", 3) == [b"0"]


# -------------------------------------------------------------------------------- when something fails

def check_error(cluster, error, values):
    """What an error says of partition 0 is so."""
    there = Counter(cluster.values("t", 0))
    sent = len(values) - len(error.unknown) - len(error.unsent)
    assert error.sent["count"].sum() == sent and not set(error.unknown) & set(error.unsent)
    assert error.unknown.dtype == error.unsent.dtype == np.int64
    for row, value in enumerate(values):
        if row in error.unsent:
            assert there[value] == 0
        elif row in error.unknown:
            assert there[value] <= 1
        else:
            assert there[value] == 1


@pytest.mark.parametrize("kind, code", [(kind, 0) for kind in KINDS if not kind.startswith("error")]
                         + [("error before", code) for code in BEFORE] + [("error after", code) for code in AFTER])
@pytest.mark.parametrize("at", [0, 1, 4])
def test_one_failure(cluster, client, kind, code, at):
    cluster.faults += [None] * at + [Fault(kind, code or 1)]
    client.send("t", numbered(200), partition=0, batch_bytes=400)
    client.send("t", numbered(100, 200), partition=0, batch_bytes=400)
    cluster.deliver_late()
    assert len(batches_of(cluster)) > 8
    assert cluster.values("t", 0) == numbered(300)


def test_leader_moves(cluster, client):
    client.send("t", numbered(10), partition=0)
    cluster.move("t", 0, 2)
    client.send("t", numbered(10, 10), partition=0)
    cluster.down.add(1)
    client.send("t", numbered(10, 20), partition=0)
    assert cluster.values("t", 0) == numbered(30) and len(set(batches_of(cluster)["producer_id"])) == 1


def test_broker_restarts(cluster, client):
    """Nothing is lost while a leader is away for some time; the others go on meanwhile."""
    client.metadata()
    cluster.down.add(1)
    driver = FakeDriver(cluster)
    perform = driver.perform

    def come_back(effect):
        if driver.now > 5:
            cluster.down.clear()
        return perform(effect)

    driver.perform = come_back
    client.run = driver.run
    client.send("t", numbered(900), partition=np.arange(900) % 3, batch_bytes=400)
    assert [cluster.values("t", one) for one in range(3)] == [numbered(900)[one::3] for one in range(3)]
    there = [node for node, _, _ in produced(cluster)]
    assert 1 not in there[:there.count(2)], "partition 1 did not wait for the others"


def test_patience_is_for_each_batch(cluster):
    cluster.faults += [Fault("lost answer"), Fault("error before", 19), None] * 8
    client = FakeClient(cluster, Retries(attempts=3))
    client.send("t", numbered(500), partition=0, batch_bytes=400)
    assert cluster.values("t", 0) == numbered(500) and not cluster.faults


def test_a_leader_that_does_not_come_back(cluster):
    client = FakeClient(cluster, Retries(attempts=4))
    client.metadata()
    cluster.down.add(1)
    values = numbered(90)
    with pytest.raises(ProduceError, match="60 are not") as error:
        client.send("t", values, partition=np.arange(90) % 3)
    assert error.value.sent.tolist() == [(1, 30, 0, 29)] and not len(error.value.unknown)
    assert sorted(error.value.unsent) == [row for row in range(90) if row % 3 != 1]
    assert isinstance(error.value.__cause__, ConnectionRefusedError)
    assert "after 4 attempts" in error.value.__cause__.__notes__[0]


def test_what_is_in_doubt_is_settled_when_another_fails(cluster, client):
    """One partition is refused, and the others stop; but a batch that may be written is tried until that is known."""
    cluster.faults += [Fault("error after", 7, (2,)), None]
    cluster.errors["Produce", "t", 0].append(29)
    with pytest.raises(ProduceError, match="TOPIC_AUTHORIZATION_FAILED") as error:
        client.send("t", numbered(400), partition=np.arange(400) % 2 * 2, batch_bytes=300)
    assert not len(error.value.unknown) and len(cluster.values("t", 2)) == error.value.sent["count"].sum() < 100
    assert cluster.values("t", 0) == []


@pytest.mark.parametrize("code", [45, 47, 59])
@pytest.mark.parametrize("doubt", [False, True])
def test_producer_that_is_not_recognised(cluster, client, code, doubt):
    cluster.faults += [None, Fault("lost answer")][:1 + doubt] + [Fault("error before", code)]
    with pytest.raises(ProduceError, match=kafka.ErrorCode(code).name) as error:
        client.send("t", numbered(500), partition=0, batch_bytes=400)
    check_error(cluster, error.value, numbered(500))
    assert bool(len(error.value.unknown)) is doubt and len(error.value.sent) == 1
    client.send("t", numbered(500, 500), partition=0)                       # as another producer
    assert cluster.values("t", 0)[-500:] == numbered(500, 500)
    assert len(set(batches_of(cluster)["producer_id"])) == 2


def test_duplicate_is_success(cluster, client):
    cluster.faults += [Fault("error after", 46)]
    assert client.send("t", numbered(9), partition=0).tolist() == [(0, 9, -1, -1)]
    assert cluster.values("t", 0) == numbered(9)


def test_too_large_batches_are_divided(cluster, client):
    cluster.max_bytes = 700
    sent = client.send("t", numbered(1000), partition=0)
    assert sent.tolist() == [(0, 1000, 0, 999)] and cluster.values("t", 0) == numbered(1000)
    assert len(produced(cluster)) < 40


def test_too_large_record(cluster, client):
    cluster.max_bytes = 700
    values = numbered(100)
    values[60] = bytes(1000)
    with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE") as error:
        client.send("t", values, partition=0)
    assert cluster.values("t", 0) == values[:60] and error.value.unsent.tolist() == list(range(60, 100))
    client.send("t", values[61:], partition=0)
    assert cluster.values("t", 0) == values[:60] + values[61:]


def test_too_large_after_doubt_is_not_divided(cluster, client):
    """The whole may be in the log already."""
    cluster.faults += [Fault("lost answer"), Fault("error before", 10)]
    with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE") as error:
        client.send("t", numbered(100), partition=0)
    check_error(cluster, error.value, numbered(100))
    assert len(error.value.unknown) == 100


def test_rows_that_cannot_be_written(cluster, client):
    """What is found out on the way leaves what was sent before."""
    headers = ([1] * 2000, [b"name"] * 1500 + [None] * 500, [b""] * 2000)
    with pytest.raises(ProduceError, match="row 1500: a header's key") as error:
        client.send("t", numbered(2000), partition=0, headers=headers, batch_bytes=1000)
    check_error(cluster, error.value, numbered(2000))
    assert isinstance(error.value.__cause__, ValueError) and 0 < error.value.sent["count"][0] <= 1500


@pytest.mark.parametrize("size", range(0, 60, 3))
def test_answers_that_are_cut(cluster, client, size):
    cuts = [size]

    def mangle(node, api, data):
        if api == "Produce" and cuts:
            raise HangUp(data[:cuts.pop()])
        return data

    cluster.mangle = mangle
    client.send("t", numbered(50), partition=0)
    assert cluster.values("t", 0) == numbered(50)


def test_answers_that_lie(cluster, client):
    """An answer that cannot be read is no answer; nothing is done that could make it worse."""
    cluster.mangle = lambda node, api, data: data[:10] + b"\x7f" * (len(data) - 10) if api == "Produce" else data
    with pytest.raises(ProduceError) as error:
        client.send("t", numbered(50), partition=0)
    assert isinstance(error.value.__cause__, FrameError) and len(error.value.unknown) == 50


def test_producer_id_is_asked_for_again(cluster, client):
    answers = [14, 15, 0]
    cluster.hook = lambda node, api, version, body: (
        body | {"error_code": answers.pop(0)} if api == "InitProducerId" and answers else body)
    client.send("t", numbered(5), partition=0)
    cluster.hook = lambda node, api, version, body: body | {"error_code": 31} if api == "InitProducerId" else body
    client._producer.sessions.clear()
    with pytest.raises(kafka.BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        client.send("t", numbered(5), partition=0)
    assert cluster.values("t", 0) == numbered(5) and not answers


def test_acks_0_sends_nothing_twice(cluster, client):
    client.metadata()
    cluster.faults += [None, Fault("lost request")]
    with pytest.raises(ProduceError) as error:
        client.send("t", numbered(500), partition=0, acks=0, batch_bytes=400)
    there = cluster.values("t", 0)
    assert there == numbered(len(there)) and error.value.sent["count"].tolist() == [len(there)]
    assert error.value.unknown[0] == len(there)


def test_acks_0_is_sent_when_nobody_was_there(cluster):
    client = FakeClient(cluster)
    client.metadata()
    cluster.move("t", 0, 2)
    cluster.down.add(1)
    client.send("t", numbered(5), partition=0, acks=0)
    assert cluster.values("t", 0) == numbered(5)


# ------------------------------------------------------------------------------------------- the law

faults = st.one_of(
    st.none(), st.none(),
    st.builds(Fault, st.sampled_from([kind for kind in KINDS if not kind.startswith("error")]), st.integers(0, 6)),
    st.builds(Fault, st.just("error before"), st.sampled_from(BEFORE), st.sampled_from([None, (0,), (1, 2)])),
    st.builds(Fault, st.just("error after"), st.sampled_from(AFTER), st.sampled_from([None, (0,), (1, 2)])))
fatal = st.builds(Fault, st.just("error before"), st.sampled_from([29, 45, 47, 59, 87, -1, 999]),
                  st.sampled_from([None, (0,), (1,)]))


class Producing(RuleBasedStateMachine):
    """Sends, and everything that may happen to them. Whatever it was: what `send` says is so, and stays so when the
    last late request has come; and as long as errors may pass, and patience lasts, it says that each record is there
    once."""

    @initialize(brokers=st.integers(1, 3), partitions=st.integers(1, 3), forgetful=st.booleans(),
                seed=st.integers(0, 9))
    def start(self, brokers, partitions, forgetful, seed):
        self.cluster = ProducerCluster(brokers)
        self.cluster.add_topic("t", partitions)
        self.cluster.forgetful = forgetful
        self.partitions, self.next, self.fatal = partitions, 0, False
        self.client = FakeClient(self.cluster, seed=seed)
        self.once, self.never, self.perhaps = [[] for _ in range(partitions)], set(), set()
        self.logs = None                    # of each partition its values, if they are new

    @rule(faults=st.lists(faults, max_size=12))
    def fail(self, faults):
        self.cluster.faults += faults

    @rule(fault=fatal)
    def fail_for_good(self, fault):
        self.cluster.faults.append(fault)
        self.fatal = True

    @rule(data=st.data())
    def move(self, data):
        node = data.draw(st.sampled_from(sorted(self.cluster.nodes)))
        self.cluster.move("t", data.draw(st.integers(0, self.partitions - 1)), node)

    @rule(size=st.integers(100, 2000))
    def limit(self, size):
        self.cluster.max_bytes = size

    @rule(count=st.integers(1, 60), batch_bytes=st.sampled_from([1, 100, 200, 400, 1 << 20]),
          how=st.sampled_from(["round_robin", "sticky"]), impatient=st.booleans())
    def send(self, count, batch_bytes, how, impatient):
        rows, self.next = list(range(self.next, self.next + count)), self.next + count
        values = [b"%d" % row for row in rows]
        self.client.cluster.retries = Retries(attempts=2) if impatient else PATIENT
        try:
            self.client.send("t", values, partitioner=how, batch_bytes=batch_bytes)
            lost = set()
        except ProduceError as one:
            # A batch in doubt is not divided: it may be there as it is.
            assert impatient or self.fatal or any("MESSAGE_TOO_LARGE" in each for each in one.errors), one
            unknown, unsent = ({values[row] for row in some} for some in (one.unknown, one.unsent))
            assert len(one.unknown) + len(one.unsent) + one.sent["count"].sum() == count and not unknown & unsent
            assert not any(not isinstance(each, str) for each in one.errors) and one.__cause__ is not None
            self.perhaps |= unknown
            self.never |= unsent
            lost = unknown | unsent
        except (kafka.BrokerError, OSError):
            assert impatient, "the leader or the producer id were not asked for until they came"
            lost = set(values)
            self.never |= lost
        self.logs = [self.cluster.values("t", one) for one in range(self.partitions)]
        there = [set(log) for log in self.logs]
        for value in values:
            if value not in lost:
                one, = (number for number, some in enumerate(there) if value in some)
                self.once[one].append(value)

    @invariant()
    def holds(self):
        logs, self.logs = getattr(self, "logs", None), None
        for one, there in enumerate(logs or ()):
            counts = Counter(there)
            assert max(counts.values(), default=1) == 1, "a record came twice"
            assert not self.never & set(there), "a record is there that was said not to be"
            certain = [value for value in there if value not in self.perhaps]
            assert certain == self.once[one], "records are lost, or in disorder"

    def teardown(self):
        if hasattr(self, "cluster"):
            self.cluster.deliver_late()
            self.logs = [self.cluster.values("t", one) for one in range(self.partitions)]
            self.holds()


TestProducing = Producing.TestCase
TestProducing.settings = settings(max_examples=120, stateful_step_count=12, deadline=None,
                                  suppress_health_check=list(HealthCheck))


@given(st.lists(faults, max_size=20), st.sampled_from([-1, 1]), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_at_least_once_without_idempotence(drawn, acks, partitions):
    cluster = ProducerCluster(2)
    cluster.add_topic("t", partitions)
    cluster.faults += [one for one in drawn if one is None or one.kind != "not replicated" or acks == -1]
    client = FakeClient(cluster)
    sent = client.send("t", numbered(100), partitioner="round_robin", acks=acks, idempotent=False, batch_bytes=200)
    there = Counter(value for one in range(partitions) for value in cluster.values("t", one))
    assert set(there) == set(numbered(100)) and sent["count"].sum() == 100
    assert {-1} == {producer for one in range(partitions) for producer in batches_of(cluster, one)["producer_id"]}


@given(st.lists(faults, max_size=20), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_at_most_once_with_acks_0(drawn, partitions):
    cluster = ProducerCluster(2)
    cluster.add_topic("t", partitions)
    cluster.faults += drawn
    try:
        FakeClient(cluster).send("t", numbered(100), partitioner="round_robin", acks=0, batch_bytes=200)
        unsent = []
    except ProduceError as error:
        unsent = error.unsent.tolist()
    cluster.deliver_late()
    there = Counter(value for one in range(partitions) for value in cluster.values("t", one))
    assert max(there.values(), default=1) == 1 and not {b"%d" % row for row in unsent} & set(there)


def test_cluster_is_asked_for_leaders_once_in_a_round(cluster, client):
    """However many partitions have lost theirs."""
    cluster.add_topic("wide", 200)
    client.metadata(["wide"])
    asked = len(cluster.asked)

    def late(node, api, version, body):
        """They move when they are known; and then the topic is not, for a while."""
        if api == "Metadata" and cluster.topics["wide"][0].leader == 1:
            for one in range(200):
                cluster.move("wide", one, 2)
            cluster.errors["Metadata", "wide", None] += [5, 3]
        return body

    cluster.hook = late
    client.send("wide", numbered(200), partitioner="round_robin")
    assert sum(api == "Metadata" for _, api, _, _ in cluster.asked[asked:]) <= 4
    assert all(cluster.values("wide", one) == [b"%d" % one] for one in range(200))


# ------------------------------------------------------------------------------------- over sockets

class Loop:
    """An AsyncClient whose methods wait."""

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
    """Whoever hangs up on the greeting may be starting, or a proxy before it: only answers tell an old broker."""
    left = [hang_ups]

    def start(node, api, data):
        if left[0] and (api == "ApiVersions" or hang_ups > 2):
            left[0] -= 1
            raise HangUp
        return data
    cluster.mangle = start
    cluster.faults.append(Fault("lost answer"))
    with Server(cluster) as server, kind(server.bootstrap, retries=Retries(first=0.001)) as client:
        client.send("t", numbered(10), partition=0)
    assert cluster.values("t", 0) == numbered(10) and -1 not in batches_of(cluster)["producer_id"]


def stall(cluster, seconds):
    """Brokers that stop reading at a Produce request."""
    answer, go_on = cluster.answer, threading.Event()

    def wait(session, node, request):
        if request[4:6] == b"\0\0":
            go_on.wait(seconds)
            raise HangUp
        return answer(session, node, request)
    cluster.answer = wait
    return go_on


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
    go_on = stall(cluster, 20)
    with Server(cluster) as server, Loop(server.bootstrap, timeout=0.5) as client:
        begun = time.monotonic()
        with pytest.raises(ProduceError, match="took no more bytes") as error:
            client.send("t", [bytes(100_000)] * 1000, partition=0, acks=0)
        go_on.set()
        assert time.monotonic() - begun < 10 and len(error.value.unsent) > 500


def test_an_interrupt_leaves_no_connection_behind(cluster, monkeypatch):
    """Ctrl-C while the system takes no more bytes."""
    with Server(cluster) as server, kafka.Client(server.bootstrap) as client:
        client.metadata()
        links = []
        send = sockets._Link.send

        def interrupt(self, exchange, timeout):
            if exchange.api == "Produce":
                links.append(self)
                raise KeyboardInterrupt
            send(self, exchange, timeout)
        monkeypatch.setattr(sockets._Link, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.send("t", numbered(10), partition=0)
        assert [one._socket.fileno() for one in links] == [-1]


def test_a_request_that_is_too_large_is_not_in_doubt(cluster, client, monkeypatch):
    monkeypatch.setattr("wirescan.kafka.client.produce.LARGEST", 1000)
    data = kafka.encode_batch([(0, 0, b"k", b"v" * 600)])
    sets = {("t", 0): data, ("t", 2): data}
    found = client.produce(sets)
    assert [(type(one.error), one.in_doubt) for one in found.values()] == [(ValueError, False)] * 2
    assert "do not fit in one request" in str(found["t", 0].error) and not produced(cluster)
    assert client.produce({("t", 0): sets["t", 0]})["t", 0].error is None


def test_an_empty_key_goes_anywhere_if_consistent_random():
    found = {chosen("consistent_random", [b""], seed=seed)[0] for seed in range(30)}
    assert len(found) > 1


@pytest.mark.parametrize("code, expected", [
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, True), (ErrorCode.REQUEST_TIMED_OUT, True),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True), (ErrorCode.UNKNOWN_SERVER_ERROR, True),
    (ErrorCode.NOT_ENOUGH_REPLICAS, False), (ErrorCode.MESSAGE_TOO_LARGE, False)])
def test_errors_after_which_records_may_be_in_the_log(code, expected):
    assert may_be_written(BrokerError(code)) is expected
