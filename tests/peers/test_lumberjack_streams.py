"""What real Lumberjack clients send and real servers answer, in tests/corpus/lumberjack/recorded (see
make_lumberjack.py) and anew: every byte is accounted for, and the events are those that the client was given."""
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from wirescan import lumberjack
from wirescan.lumberjack import Kind

from .lumberjack import (Authority, Receive, TstLj, TstSend, lumberjack_client_send, lumberjack_protocol_send,
                         pylogbeat_send, send)
from .make_lumberjack import RECORDED, events, pairs, record
from .proxy import Proxy


class Case(NamedTuple):
    """What a case looks like: announced sizes of windows, events in them, the answers, and the zlib header of its C."""
    announced: list[int]
    held: list[list[int]]
    acks: list[int]
    header: str = ""


def steps(*sizes: int) -> list[list[int]]:
    """Sequence numbers that begin at 1 in each window."""
    return [list(range(1, size + 1)) for size in sizes]


THREE, ALL = [8, 8, 4], list(range(1, 21))
CASES = {
    "go-lumber-plain": Case(THREE, steps(8, 8, 4), THREE),
    "go-lumber-level-3": Case(THREE, steps(8, 8, 4), THREE, "785e"),
    "go-lumber-keepalive": Case(THREE, steps(8, 8, 4), THREE, "78da"),
    "pylogbeat": Case([20], [ALL], [20], "789c"),
    "pylogbeat-windows": Case(THREE, [ALL[:8], ALL[8:16], ALL[16:]], [8, 16, 20], "789c"),
    "pylogbeat-empty": Case([0, 2], [[], [1, 2]], [0, 2], "789c"),
    "lumberjack-client": Case([12] + 8 * [1], steps(12, *8 * [1]), [12] + 8 * [1], "789c"),
    "lumberjack-protocol": Case([20], [ALL], [20]),
    "lumberjack-protocol-endless": Case([1000], [ALL], []),
    "filebeat": Case(THREE, steps(8, 8, 4), THREE, "785e"),
    "filebeat-plain": Case(THREE, steps(8, 8, 4), THREE),
}


@pytest.fixture(scope="module", params=["recorded", pytest.param("anew", marks=pytest.mark.peers)])
def streams(request, tmp_path_factory) -> Path:
    """A directory with every case: the one that is kept, and one that the clients have just filled."""
    if request.param == "recorded":
        return RECORDED
    directory = tmp_path_factory.mktemp("lumberjack")
    record(directory)
    return directory


def decoded(table) -> list[dict]:
    """The events of a table of lumberjack.events: a J parsed, the pairs of a D as a dict of strings."""
    return [{str(pair.key, "utf-8"): str(pair.value, "utf-8") for pair in event.pairs} if event.kind == Kind.DATA
            else json.loads(bytes(event.json)) for event in table]


def whole(data: bytes):
    """The frames of a stream that ends where a frame does."""
    frames = lumberjack.scan(data)
    assert frames["size"].sum() == len(data) and not len(frames.tail) and not frames.bad.any()
    return frames


def test_cases_are_those_recorded(streams):
    assert {path.name.split(".")[0] for path in streams.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_sent(streams, name):
    """Each byte lies in a frame; the windows, sequence numbers and events are those of the client."""
    case = CASES[name]
    frames = whole((streams / f"{name}.sent.bin").read_bytes())
    version = 1 if name.startswith("lumberjack-protocol") else 2
    assert set(frames["version"].tolist()) == {version}
    assert frames["count"][frames["kind"] == Kind.WINDOW].tolist() == case.announced

    inner = frames.where(frames["kind"] == Kind.COMPRESSED)
    headers = {bytes(inner.payload(row)[:2]).hex() for row in range(len(inner))}
    assert headers == ({case.header} if case.header else set())

    table = lumberjack.events(frames)
    assert not table.bad.any() and set(table["depth"].tolist()) == {1 if case.header else 0}
    windows, sequences = table["window"].tolist(), table["sequence"].tolist()
    assert [[sequence for sequence, window in zip(sequences, windows, strict=True) if window == number]
            for number in range(len(case.held))] == case.held

    given = [json.loads(line) for line in (streams / f"{name}.events.jsonl").read_text().splitlines()]
    found = decoded(table)
    if name.startswith("filebeat"):
        assert all(event["@metadata"]["beat"] == "filebeat" and event["host"] == {"name": "shipper"} for event in found)
        found = [{"message": event["message"]} for event in found]
    assert found == given


@pytest.mark.parametrize("name", CASES)
def test_acks(streams, name):
    """Each answer is an ack of the client's version: 0 while the server is busy, and for each window the number due."""
    frames = whole((streams / f"{name}.acks.bin").read_bytes())
    assert set(frames["kind"].tolist()) <= {Kind.ACK}
    assert set(frames["version"].tolist()) <= {1 if name.startswith("lumberjack-protocol") else 2}
    acks = frames["sequence"].tolist()
    if name == "go-lumber-keepalive":
        assert acks.count(0) >= len(THREE)
        acks = [sequence for sequence in acks if sequence]
    assert acks == CASES[name].acks


@pytest.mark.peers
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("pipeline", [0, 2])
def test_many_events_of_go_lumber(level, pipeline):
    """20,000 events in windows of 2048, on one connection."""
    given = events(20_000)
    with Receive() as server, Proxy() as proxy:
        proxy.target = server.address
        said = send(proxy.address, given, level=level, pipeline=pipeline)
        connection, = proxy.take()
    assert said == {"events": 20_000, "connections": 1, "windows": 10}
    frames = whole(bytes(connection.requests))
    table = lumberjack.events(frames)
    sizes = [2048] * 9 + [20_000 - 9 * 2048]
    assert frames["count"][frames["kind"] == Kind.WINDOW].tolist() == sizes
    assert table["sequence"].tolist() == sum(steps(*sizes), []) and decoded(table) == given
    assert whole(bytes(connection.responses))["sequence"].tolist() == sizes


@pytest.mark.peers
@pytest.mark.parametrize("level", [0, 3])
def test_tst_send(level):
    """go-lumber's own pair of programs. The client is stopped at work: what it has begun is the tail."""
    with TstLj() as server, Proxy() as proxy:
        proxy.target = server.address
        with TstSend(proxy.address, batch=100, level=level, pipeline=2) as client:
            client.await_true(lambda: client.acknowledged() >= 5000)
        connection, = proxy.take()
    sent, acks = bytes(connection.requests), whole(bytes(connection.responses))
    frames = lumberjack.scan(sent)
    assert frames["size"].sum() + len(frames.tail) == len(sent)
    table = lumberjack.events(frames)
    assert not table.bad.any() and set(acks["sequence"].tolist()) == {100}
    complete = [number for number in range(int(table["window"][-1]) + 1) if (table["window"] == number).sum() == 100]
    assert 5000 <= 100 * len(acks) <= 100 * len(complete) <= len(table)
    assert {event["type"] for event in decoded(table[:500])} == {"filebeat"}


@pytest.mark.peers
def test_tls_of_every_client(tmp_path):
    """The clients of npm and PyPI, and go-lumber's, with go-lumber's server over TLS: both versions."""
    given, strings = events(10), pairs(10)
    with Authority() as authority:
        identity, own = authority.identity("server"), authority.identity("shipper")
        with Receive(identity, authority.file) as server:
            send(server.address, given, authority=authority.file, identity=own)
            with pytest.raises(RuntimeError):
                send(server.address, given, authority=authority.file)  # without a certificate of its own
            assert server.events() == given
        with Receive(identity) as server:
            pylogbeat_send(server.address, [given], authority=authority.file)
            lumberjack_client_send(server.address, given, first=10, authority=authority.file)
            lumberjack_protocol_send(server.address, strings, authority.file, window=10, acknowledged=10)
            assert server.windows() == [given, given, strings]
