"""Recorded connections between Lumberjack clients and servers. Every byte belongs to a frame.

They are in tests/corpus/lumberjack/recorded (see make_lumberjack.py), and are also recorded anew.
The events are those that the client sent.
"""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.peers.lumberjack_corpus import CASES, THREE, decode_events, list_sequences
from tests.support.tables import scan_whole_frames
from wirescan import lumberjack
from wirescan.lumberjack import Kind

from .lumberjack import (
    Authority,
    Receive,
    TstLj,
    TstSend,
    send,
    send_with_lumberjack_client,
    send_with_lumberjack_protocol,
    send_with_pylogbeat,
)
from .make_lumberjack import RECORDED, make_events, make_pairs, record
from .proxy import Proxy


@pytest.fixture(scope="module", params=["recorded", pytest.param("anew", marks=pytest.mark.peers)])
def streams(request, tmp_path_factory) -> Path:
    """A directory with every case: the committed one, and one that the clients fill now."""
    if request.param == "recorded":
        return RECORDED
    directory = tmp_path_factory.mktemp("lumberjack")
    record(directory)
    return directory


class Window(NamedTuple):
    """A window of a stream: its announced size, and its events with their sequence numbers."""

    announced: int
    sequences: list[int]
    events: list[dict]


def test_every_case_has_streams(streams):
    assert {path.name.split(".")[0] for path in streams.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_streams_hold_the_sent_events(streams, name):
    """The frames, windows, sequence numbers and events are those of the client."""
    case = CASES[name]
    frames = scan_whole_frames((streams / f"{name}.sent.bin").read_bytes(), "lumberjack.frames")
    version = 1 if name.startswith("lumberjack-protocol") else 2
    assert set(frames["version"].tolist()) == {version}

    inner = frames.where(frames["kind"] == Kind.COMPRESSED)
    headers = {bytes(inner.payload(row)[:2]).hex() for row in range(len(inner))}
    assert headers == ({case.header} if case.header else set())

    table = lumberjack.events(frames)
    assert not table.bad.any()
    assert set(table["depth"].tolist()) == {1 if case.header else 0}
    decoded = decode_events(table)
    events = [
        json.loads(line) for line in (streams / f"{name}.events.jsonl").read_text().splitlines()
    ]
    announced = frames["count"][frames["kind"] == Kind.WINDOW].tolist()
    windows = [Window(size, [], []) for size in announced]
    for number, sequence, event in zip(
        table["window"].tolist(), table["sequence"].tolist(), decoded, strict=True
    ):
        windows[number].sequences.append(sequence)
        windows[number].events.append(event)
    if name.startswith("filebeat"):
        assert all(event["@metadata"]["beat"] == "filebeat" for event in decoded)
        assert all(event["host"] == {"name": "shipper"} for event in decoded)
        for window in windows:
            window.events[:] = [{"message": event["message"]} for event in window.events]
        # Filebeat may send a later batch before an earlier one: it requeues the first to connect.
        windows.sort(key=lambda window: events.index(window.events[0]))
    assert [window.announced for window in windows] == case.announced
    assert [window.sequences for window in windows] == case.sequences
    assert [event for window in windows for event in window.events] == events


@pytest.mark.parametrize("name", CASES)
def test_acks_of_the_server(streams, name):
    """Each answer is an ack in the client's version.

    Acks of 0 mean that the server is busy. Each window has the expected ack.
    """
    frames = scan_whole_frames((streams / f"{name}.acks.bin").read_bytes(), "lumberjack.frames")
    assert set(frames["kind"].tolist()) <= {Kind.ACK}
    assert set(frames["version"].tolist()) <= {1 if name.startswith("lumberjack-protocol") else 2}
    acks = frames["sequence"].tolist()
    if name == "go-lumber-keepalive":
        assert acks.count(0) >= len(THREE)
        acks = [sequence for sequence in acks if sequence]
    if name.startswith("filebeat"):
        acks.sort(reverse=True)  # a later batch may be sent before an earlier one
    assert acks == CASES[name].acks


@pytest.mark.peers
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("pipeline", [0, 2])
def test_many_events_of_go_lumber(level, pipeline):
    """20,000 events in windows of 2048, on one connection."""
    events = make_events(20_000)
    with Receive() as server, Proxy() as proxy:
        proxy.target = server.address
        counts = send(proxy.address, events, level=level, pipeline=pipeline)
        (connection,) = proxy.take()
    assert counts == {"events": 20_000, "connections": 1, "windows": 10}
    frames = scan_whole_frames(bytes(connection.requests), "lumberjack.frames")
    table = lumberjack.events(frames)
    sizes = [2048] * 9 + [20_000 - 9 * 2048]
    assert frames["count"][frames["kind"] == Kind.WINDOW].tolist() == sizes
    assert table["sequence"].tolist() == sum(list_sequences(*sizes), [])
    assert decode_events(table) == events
    assert (
        scan_whole_frames(bytes(connection.responses), "lumberjack.frames")["sequence"].tolist()
        == sizes
    )


@pytest.mark.peers
@pytest.mark.parametrize("level", [0, 3])
def test_streams_of_tst_send(level):
    """go-lumber's own client and server.

    The client is stopped while it sends. An incomplete frame at the end is the tail.
    """
    with TstLj() as server, Proxy() as proxy:
        proxy.target = server.address
        with TstSend(proxy.address, batch=100, level=level, pipeline=2) as client:
            client.await_true(lambda: client.acknowledged() >= 5000)
        (connection,) = proxy.take()
    sent = bytes(connection.requests)
    acks = scan_whole_frames(bytes(connection.responses), "lumberjack.frames")
    frames = lumberjack.scan(sent)
    assert frames["size"].sum() + len(frames.tail) == len(sent)
    table = lumberjack.events(frames)
    assert not table.bad.any()
    assert set(acks["sequence"].tolist()) == {100}
    complete = [
        number
        for number in range(int(table["window"][-1]) + 1)
        if (table["window"] == number).sum() == 100
    ]
    assert 5000 <= 100 * len(acks) <= 100 * len(complete) <= len(table)
    assert {event["type"] for event in decode_events(table[:500])} == {"filebeat"}


@pytest.mark.peers
def test_tls_of_every_client(tmp_path):
    """The clients use TLS with go-lumber's server, in both versions."""
    events = make_events(10)
    strings = make_pairs(10)
    with Authority() as authority:
        identity, own = authority.identity("server"), authority.identity("shipper")
        with Receive(identity, authority.file) as server:
            send(server.address, events, authority=authority.file, identity=own)
            # A client without its own certificate is refused.
            with pytest.raises(RuntimeError, match="send ended with"):
                send(server.address, events, authority=authority.file)
            assert server.events() == events
        with Receive(identity) as server:
            send_with_pylogbeat(server.address, [events], authority=authority.file)
            send_with_lumberjack_client(server.address, events, first=10, authority=authority.file)
            send_with_lumberjack_protocol(
                server.address, strings, authority.file, window=10, acknowledged=10
            )
            assert server.windows() == [events, events, strings]
