"""Exchanges in captures of real programs: as tshark sees them, and as the programs count them."""

import asyncio
import time
from collections import Counter

import pytest

import wirescan
from tests.support.captures import list_captures
from wirescan import pcap, thrift
from wirescan.kafka import ApiKey

from . import tshark
from .capture import Form
from .make_captures import SCENES, Recorder

pytestmark = pytest.mark.peers
MICROSECOND = 1000  # ns


def find_recorded(name):
    (capture,) = (capture for capture in list_captures() if capture.name == name)
    return capture


def to_nanoseconds(seconds):
    """Return the ns of a decimal text of seconds."""
    whole, _, fraction = seconds.partition(".")
    return int(whole) * 10**9 + int(fraction.ljust(9, "0"))


def read_kafka_times(capture):
    """Return how often each (API, time of the request, time of the response) occurs.

    tshark dissects a message in the packet with its last byte.
    """
    fields = ["tcp.stream", "frame.time_epoch", "tcp.srcport", "kafka.correlation_id"]
    fields.append("kafka.request_key")
    found = {}
    protocols = dict.fromkeys(capture.ports, "kafka")
    for streams, times, sources, ids, keys in tshark.read_fields(capture.path, fields, protocols):
        moment = to_nanoseconds(times[0])
        is_request = int(sources[0]) not in capture.ports
        for number in ids:
            entry = found.setdefault((streams[0], int(number)), [None, None, None])
            entry[1 if is_request else 2] = moment
        if is_request:
            for number, key in zip(ids, keys, strict=True):
                found[streams[0], int(number)][0] = ApiKey(int(key)).name
    return Counter(map(tuple, found.values()))


@pytest.mark.parametrize("name", ["kafka"])
def test_requests_of_kafka_are_paired_as_tshark_does(name):
    capture = find_recorded(name)
    table = wirescan.scan(capture.path, "kafka.exchanges")
    names = [ApiKey(key).name for key in table["api_key"].tolist()]
    found = zip(names, table["request_end"].tolist(), table["time_end"].tolist())
    assert Counter(found) == read_kafka_times(capture)


def test_new_captures_of_kafka_are_paired_as_tshark_does(tmp_path):
    SCENES["kafka"].record(Recorder(tmp_path))
    for capture in list_captures(tmp_path):
        table = wirescan.scan(capture.path, "kafka.exchanges")
        names = [ApiKey(key).name for key in table["api_key"].tolist()]
        found = zip(names, table["request_end"].tolist(), table["time_end"].tolist())
        assert len(table) > 10
        assert set(found) >= {entry for entry in read_kafka_times(capture) if None not in entry}
        assert (table["latency"][table["response_size"] > 0] >= 0).all()


def test_calls_of_thrift_are_paired_as_tshark_does():
    capture = find_recorded("thrift")
    fields = ["frame.time_epoch", "thrift.seq_id", "thrift.method", "thrift.mtype"]
    calls, replies = {}, {}
    protocols = dict.fromkeys(capture.ports, "thrift")
    for times, ids, methods, types in tshark.read_fields(capture.path, fields, protocols):
        for seqid, method, kind in zip(ids, methods, types, strict=True):
            is_call = int(kind, 16) in (thrift.MessageType.CALL, thrift.MessageType.ONEWAY)
            (calls if is_call else replies)[int(seqid), method] = to_nanoseconds(times[0])
    expected = {key: (moment, replies.get(key)) for key, moment in calls.items()}
    table = wirescan.scan(capture.path, "thrift.exchanges")
    ends = [end or None for end in table["time_end"].tolist()]
    keys = zip(table["seqid"].tolist(), (name.decode() for name in table["method"].to_pylist()))
    assert dict(zip(keys, zip(table["request_end"].tolist(), ends))) == expected


async def ask(address, count):
    """Send requests with nats-py to a subscriber that answers; return the times of the client."""
    from nats.errors import NoRespondersError

    from .nats import close_cleanly, connect

    async def answer(message):
        await asyncio.sleep(0.01)
        await message.respond(b"answer to " + message.data)

    responder = await connect(address, name="responder")
    await responder.subscribe("questions", cb=answer)
    await responder.flush()
    requester = await connect(address, name="requester")
    times = []
    for number in range(count):
        start = time.perf_counter_ns()
        await requester.request("questions", b"%d" % number, timeout=5)
        times.append(time.perf_counter_ns() - start)
    with pytest.raises(NoRespondersError):
        await requester.request("nobody", b"", timeout=5)
    await close_cleanly(requester)
    await close_cleanly(responder)
    return times


def test_requests_of_nats_have_the_replies_that_the_client_waited_for(tmp_path):
    from .nats import NatsServer

    with NatsServer() as server, Recorder(tmp_path).record("ask", "nats", Form.PCAPNG) as proxy:
        proxy.target = server.address
        times = asyncio.run(ask(proxy.address, 10))
    (capture,) = list_captures(tmp_path)
    table = wirescan.scan(capture.path, "nats.exchanges")
    asked = table[(table["direction"] == pcap.Direction.TO_SERVER).nonzero()[0]]
    answered = table[(table["direction"] == pcap.Direction.TO_CLIENT).nonzero()[0]]
    assert asked["subject"].to_pylist() == [b"questions"] * 10 + [b"nobody"]
    assert asked["status"].tolist() == [0] * 10 + [503]
    for measured, latency in zip(times, asked["latency"].tolist()):
        assert 10 * 1000 * MICROSECOND <= latency <= measured
    assert answered["reply"].to_pylist() == asked["reply"].to_pylist()[:10]
    assert set(asked["connection"].tolist()).isdisjoint(answered["connection"].tolist())
    # The responder takes less time than the client waits.
    assert (answered["latency"] < asked["latency"][:10]).all()


def test_published_messages_of_liftbridge_are_acknowledged(tmp_path):
    SCENES["liftbridge"].record(Recorder(tmp_path))
    (capture,) = list_captures(tmp_path)
    table = wirescan.scan(capture.path, "liftbridge.exchanges")
    published = table[(table["direction"] == pcap.Direction.TO_SERVER).nonzero()[0]]
    delivered = table[(table["direction"] == pcap.Direction.TO_CLIENT).nonzero()[0]]
    for part in (published, delivered):
        assert part["subject"].to_pylist() == [b"orders.new"] * 5
        assert part["offset"].tolist() == list(range(5))
        assert part["ack_error"].tolist() == [0] * 5
        assert (part["latency"] > 0).all()
    assert published["correlation_id"].to_pylist() == delivered["correlation_id"].to_pylist()


@pytest.mark.parametrize("scene", ["lumberjack", "filebeat"])
def test_windows_of_real_writers_are_acknowledged(scene, tmp_path):
    SCENES[scene].record(Recorder(tmp_path))
    (capture,) = list_captures(tmp_path)
    table = wirescan.scan(capture.path, "lumberjack.exchanges")
    assert table["count"].tolist() == table["sequence"].tolist()
    assert sum(table["count"].tolist()) == 20
    assert (table["latency"] > 0).all()
    (sides,) = capture.connections.values()
    assert table["request_size"].sum() == len(sides[0])
