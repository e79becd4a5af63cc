"""Exchanges in captures: which response answers which request, and the times between them."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirescan
from tests.support.captured_conversations import (
    CASES,
    CLIENT,
    INFO,
    SERVER,
    acknowledge,
    converse,
    list_values,
    make_window,
    publish,
    read_in_pieces,
    simulate,
)
from tests.support.simulated_capture import ACK, RST, STEP, Connection, SimulatedCapture
from wirescan import Fault, FrameError, Limits, kafka, liftbridge, lumberjack, nats, pcap, thrift
from wirescan.frames.exchange import NO_RESPONSE
from wirescan.frames.pairing import pair_in_order, pair_latest
from wirescan.frames.table import join
from wirescan.frames.value_numbers import number_values
from wirescan.pcap.extraction import waiting_frames
from wirescan.reading.chunked import iter_tables


def pair_slowly(requests, responses):
    """Pair (key, packet) of requests and responses, one after another."""
    events = [(packet, 0, key, i) for i, (key, packet) in enumerate(requests)]
    events += [(packet, 1, key, i) for i, (key, packet) in enumerate(responses)]
    waiting = {}
    found = [NO_RESPONSE] * len(requests)
    for _, is_response, key, i in sorted(events):
        if not is_response:
            waiting.setdefault(key, deque()).append(i)
        elif waiting.get(key):
            found[waiting[key].popleft()] = i
    return found


SENT = st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 9)), max_size=30)


@given(requests=SENT, responses=SENT)
def test_pairs_are_those_of_a_queue_for_each_key(requests, responses):
    requests.sort(key=lambda item: item[1])
    responses.sort(key=lambda item: item[1])
    columns = [
        np.array([item[n] for item in items], np.int64)
        for items in (requests, responses)
        for n in (0, 1)
    ]
    assert pair_in_order(*columns).tolist() == pair_slowly(requests, responses)


@given(requests=SENT, responses=SENT)
def test_latest_pairs_are_those_of_one_request_for_each_key(requests, responses):
    requests.sort(key=lambda item: item[1])
    responses.sort(key=lambda item: item[1])
    events = [(packet, 0, key, i) for i, (key, packet) in enumerate(requests)]
    events += [(packet, 1, key, i) for i, (key, packet) in enumerate(responses)]
    waiting = {}
    expected = [NO_RESPONSE] * len(responses)
    for _, is_response, key, i in sorted(events):
        if is_response:
            expected[i] = waiting.pop(key, NO_RESPONSE)
        else:
            waiting[key] = i
    columns = [
        np.array([item[n] for item in items], np.int64)
        for items in (requests, responses)
        for n in (0, 1)
    ]
    assert pair_latest(*columns).tolist() == expected


@given(
    first=st.lists(st.binary(max_size=3) | st.just(b"x" * 300), max_size=20),
    second=st.lists(st.binary(max_size=3) | st.just(b"x" * 300), max_size=20),
)
def test_numbers_are_equal_for_equal_bytes(first, second):
    tables = [
        nats.scan(b"".join(nats.encode_pub("a", value) for value in values))
        for values in (first, second)
    ]
    numbers = number_values(*((table, np.arange(len(table)), "payload") for table in tables))
    found = [number for part in numbers for number in part.tolist()]
    values = first + second
    assert [len(part) for part in numbers] == [len(first), len(second)]
    for i, value in enumerate(values):
        assert [found[i] == other for other in found] == [value == other for other in values]


def test_requests_of_kafka_have_their_responses():
    pairs, port, _ = CASES["kafka.requests"]
    table = wirescan.scan(
        simulate(pairs, port, piece=1 << 20).to_pcap(), "kafka.exchanges", errors="mark"
    )
    for number, (asked, answered) in enumerate(pairs):
        requests = kafka.requests(asked, errors="mark")
        responses = kafka.responses(answered, requests, errors="mark")
        rows = table.rows[(table["connection"] == number) & ~table.bad]
        by_request = {int(row["request"]): row for row in responses.rows if row["request"] >= 0}
        good = np.flatnonzero(~requests.bad)
        for name in ("api_key", "api_version", "correlation_id"):
            assert rows[name].tolist() == requests.rows[name][good].tolist()
        assert rows["request_size"].tolist() == requests.rows["size"][good].tolist()
        sizes = [int(by_request[row]["size"]) if row in by_request else 0 for row in good.tolist()]
        assert rows["response_size"].tolist() == sizes


@pytest.mark.parametrize("tags", [b"\xff" * 6, b"\x05"])
def test_a_response_of_kafka_with_a_broken_header_ends_its_exchange(tags):
    request = kafka.encode_request("Heartbeat", 4, correlation_id=7)
    payload = (7).to_bytes(4, "big") + tags
    response = len(payload).to_bytes(4, "big") + payload
    capture = converse((0, request), (1, response), port=9092)
    table = wirescan.scan(capture.to_pcap(), "kafka.exchanges", errors="mark")
    assert table["response_size"].tolist() == [len(response)]


def test_the_error_of_a_partition_is_that_of_the_exchange():
    request = kafka.encode_request("Metadata", 1, {"topics": [{"name": "a"}]}, correlation_id=7)
    topics = [
        {"error_code": 0, "name": "a", "is_internal": False, "partitions": []},
        {"error_code": 3, "name": "b", "is_internal": False, "partitions": []},
        {"error_code": 5, "name": "c", "is_internal": False, "partitions": []},
    ]
    body = {"brokers": [], "controller_id": 1, "topics": topics}
    response = kafka.encode_response("Metadata", 1, body, correlation_id=7)
    capture = converse((0, request), (1, response), port=9092)
    table = wirescan.scan(capture.to_pcap(), "kafka.exchanges")
    assert table["error_code"].tolist() == [3]
    assert "unknown_topic_or_partition" in repr(table[["error_code"]])


def test_a_produce_request_without_acks_waits_for_no_response():
    body = {"transactional_id": None, "acks": 0, "timeout_ms": 1, "topic_data": []}
    produce = kafka.encode_request("Produce", 7, body, correlation_id=1)
    other = kafka.encode_request("ApiVersions", 0, correlation_id=2)
    answer = kafka.encode_response("ApiVersions", 0, correlation_id=2)
    capture = converse((0, produce), (0, other), (1, answer), port=9092)
    table = wirescan.scan(capture.to_pcap(), "kafka.exchanges")
    assert table["correlation_id"].tolist() == [1, 2]
    assert (table["response_size"] > 0).tolist() == [False, True]
    assert table["latency"].tolist() == [-1, STEP]
    assert table.to_arrow(["latency"])["latency"].to_pylist() == [None, STEP]


def test_calls_of_thrift_have_their_replies():
    pairs, port, _ = CASES["thrift.frames"]
    table = wirescan.scan(
        simulate(pairs, port, piece=1 << 20).to_pcap(), "thrift.exchanges", errors="mark"
    )
    for number, (asked, answered) in enumerate(pairs):
        calls = thrift.messages(thrift.scan(asked, errors="mark"), errors="mark")
        replies = thrift.messages(thrift.scan(answered, errors="mark"), errors="mark")
        expected = thrift.pair(calls, replies)
        rows = table[np.flatnonzero((table["connection"] == number) & ~table.bad)]
        assert rows["seqid"].tolist() == calls["seqid"][expected["call"]].tolist()
        names = [bytes(calls.bytes(row, "method")) for row in expected["call"].tolist()]
        assert rows["method"].to_pylist() == names
        assert (rows["response_size"] > 0).tolist() == (expected["reply"] >= 0).tolist()
        types = [replies["kind"][row] if row >= 0 else 0 for row in expected["reply"].tolist()]
        assert rows["reply_type"].tolist() == types


def test_the_first_message_to_a_reply_subject_is_the_reply():
    capture = converse(
        (1, INFO),
        (0, nats.encode_pub("a", b"1", reply="in.1") + nats.encode_pub("a", b"2", reply="in.2")),
        (0, nats.encode_pub("in.1", b"not a reply")),
        (1, nats.encode_msg("in.2", "9", b"second")),
        (1, nats.encode_msg("in.1", "9", b"", status=503)),
        (1, nats.encode_msg("in.1", "9", b"late")),
        (1, nats.encode_msg("b", "3", b"asks", reply="in.3")),
        (0, nats.encode_pub("in.3", b"answers")),
        (0, nats.encode_pub("a", b"3", reply="in.4")),
    )
    table = wirescan.scan(capture.to_pcap(), "nats.exchanges")
    assert table["subject"].to_pylist() == [b"a", b"a", b"b", b"a"]
    assert table["reply"].to_pylist() == [b"in.1", b"in.2", b"in.3", b"in.4"]
    assert table["latency"].tolist() == [3 * STEP, 2 * STEP, STEP, -1]
    assert table["direction"].tolist() == [
        pcap.Direction.TO_SERVER,
        pcap.Direction.TO_SERVER,
        pcap.Direction.TO_CLIENT,
        pcap.Direction.TO_SERVER,
    ]


def test_a_frame_is_a_response_once(tmp_path):
    """It waits for its own response, and another request has the same reply subject by then."""
    turns = [
        (1, INFO),
        (0, nats.encode_pub("a", b"", reply="in")),
        (0, nats.encode_pub("b", b"", reply="in")),
        (1, nats.encode_msg("in", "1", b"answers a, and asks", reply="other")),
        (1, nats.encode_msg("c", "1", bytes(300))),
        (1, nats.encode_msg("c", "1", bytes(300))),
    ]
    path = tmp_path / "capture.pcap"
    path.write_bytes(converse(*turns).to_pcap())
    whole = wirescan.scan(path, "nats.exchanges")
    assert whole["response_size"].astype(bool).tolist() == [True, False, False]
    found = read_in_pieces(path, "nats.exchanges", 200)
    assert sorted(map(repr, found)) == sorted(map(repr, list_values(whole)))


def test_published_messages_of_liftbridge_have_their_acks():
    capture = converse(
        (1, INFO),
        (0, publish(b"v", "one") + publish(b"v", "two") + publish(b"v", "two", "elsewhere")),
        (0, nats.encode_pub("events", bytes(liftbridge.encode_message(b"no inbox")))),
        (1, acknowledge(7, "two")),
        (1, acknowledge(8, "one")),
        (1, acknowledge(9, "other")),
    )
    table = wirescan.scan(capture.to_pcap(), "liftbridge.exchanges")
    assert table["correlation_id"].to_pylist() == [b"one", b"two", b"two"]
    assert table["offset"].tolist() == [8, 7, -1]
    assert table["subject"].to_pylist() == [b"events"] * 3
    assert table["latency"].tolist() == [3 * STEP, 2 * STEP, -1]


def deliver(value, correlation_id):
    message = liftbridge.encode_message(value, ack_inbox="acks", correlation_id=correlation_id)
    return nats.encode_msg("events", "1", bytes(message))


def test_an_ack_may_come_over_another_connection():
    capture = converse((1, INFO), (1, deliver(b"v", "one")))
    other = Connection((CLIENT[0], 40_001), (SERVER, 4222))
    capture.connect(other)
    ack = liftbridge.encode_ack(stream="s", offset=5, correlation_id="one")
    capture.send(other, 0, nats.encode_pub("acks", bytes(ack)))
    table = wirescan.scan(capture.to_pcap(), "liftbridge.exchanges")
    assert table["offset"].tolist() == [5]
    assert table["client"].to_pylist() == ["10.0.0.1:40000"]


def converse_over_two_connections(size):
    """Return a capture of a message of a size, its ack, and the connection of the ack."""
    capture = converse((1, INFO), (1, deliver(bytes(size), "one")))
    other = Connection((CLIENT[0], 40_001), (SERVER, 4222))
    capture.connect(other)
    ack = liftbridge.encode_ack(stream="s", offset=5, correlation_id="one")
    capture.send(other, 0, nats.encode_pub("acks", bytes(ack)))
    return capture, other


@pytest.mark.parametrize("piece", [61, 1000, 1500, 3100, 50_000])
def test_an_ack_over_another_connection_waits_for_the_end_of_the_message(tmp_path, piece):
    """Few new bytes of a large message are held back, and then the ack is held back too."""
    path = tmp_path / "capture.pcap"
    capture, _ = converse_over_two_connections(90_000)
    path.write_bytes(capture.to_pcap())
    whole = list_values(wirescan.scan(path, "liftbridge.exchanges"))
    assert read_in_pieces(path, "liftbridge.exchanges", piece) == whole
    assert wirescan.scan(path, "liftbridge.exchanges")["offset"].tolist() == [5]


@pytest.mark.parametrize("ends", [0, 1])
def test_an_ack_may_come_over_a_connection_that_is_released(tmp_path, ends):
    """Either the connection of the ack is released in the piece that has both, or the other one."""
    path = tmp_path / "capture.pcap"
    capture, other = converse_over_two_connections(300)
    first = Connection(CLIENT, (SERVER, 4222))
    capture.add((first, other)[ends], 1, RST | ACK, position=300)
    capture.now += 61 * 10**9
    for number in range(70):
        capture.add(Connection((CLIENT[0], 50_000), (SERVER, 80)), 0, ACK, position=number)
    path.write_bytes(capture.to_pcap())
    whole = list_values(wirescan.scan(path, "liftbridge.exchanges"))
    found = read_in_pieces(path, "liftbridge.exchanges", 1 << 20)
    assert found == whole
    assert wirescan.scan(path, "liftbridge.exchanges")["offset"].tolist() == [5]


def test_windows_of_lumberjack_have_the_acks_of_their_last_events():
    first, second, third = make_window(3), make_window(2), make_window(1)
    ack = lumberjack.encode_ack
    capture = converse(
        (0, first[0]),
        (0, first[1]),
        (0, second[0] + second[1]),
        (1, ack(0)),
        (1, ack(2)),
        (1, ack(3)),
        (0, b"".join(third)),
        (1, ack(1)),
        port=5044,
    )
    table = wirescan.scan(capture.to_pcap(), "lumberjack.exchanges")
    assert table["count"].tolist() == [3, 2, 1]
    assert table["sequence"].tolist() == [3, 0, 0]
    assert table["request_size"].tolist() == [len(b"".join(w)) for w in (first, second, third)]
    assert table["request_end"].tolist()[0] == table["time"].tolist()[0] + STEP
    assert table["latency"].tolist() == [4 * STEP, -1, -1]


def number_window(first, count):
    events = b"".join(bytes(lumberjack.encode_json(first + n, {"n": n})) for n in range(count))
    return bytes(lumberjack.encode_window(count)) + events


def test_events_may_be_numbered_over_the_connection():
    ack = lumberjack.encode_ack
    capture = converse(
        (0, number_window(101, 3)),
        (0, number_window(104, 2)),
        *((1, ack(number)) for number in (102, 103, 104, 105)),
        port=5044,
    )
    table = wirescan.scan(capture.to_pcap(), "lumberjack.exchanges")
    assert table["sequence"].tolist() == [103, 105]
    assert table["latency"].tolist() == [3 * STEP, 4 * STEP]


def test_numbers_of_events_wrap():
    ack = lumberjack.encode_ack
    events = lumberjack.encode_json(2**32 - 1, {}) + lumberjack.encode_json(0, {})
    window = bytes(lumberjack.encode_window(2)) + bytes(events)
    capture = converse((0, window), (1, ack(2**32 - 1)), (1, ack(0)), port=5044)
    table = wirescan.scan(capture.to_pcap(), "lumberjack.exchanges")
    assert table["latency"].tolist() == [2 * STEP]


def repair_windows(late):
    """Return a capture of two windows and their acks. `late` sides send their first frame again.

    The first transmission was lost before it was captured.
    """
    windows = [number_window(1, 3), number_window(1, 2)]
    acks = [bytes(lumberjack.encode_ack(3)), bytes(lumberjack.encode_ack(2))]
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 5044))
    capture.connect(connection)
    for side, (first, second) in enumerate((windows, acks)):
        frames = [(0, first), (len(first), second)]
        for position, frame in reversed(frames) if side in late else frames:
            capture.add(connection, side, ACK, position=position, payload=frame, acknowledged=0)
        connection.sent[side] = first + second
    return capture


@pytest.mark.parametrize("piece", [61, 1 << 20])
@pytest.mark.parametrize("late", [(), (0,), (1,), (0, 1)])
def test_windows_and_acks_are_paired_in_the_order_of_their_streams(late, piece, tmp_path):
    path = tmp_path / "windows.pcap"
    path.write_bytes(repair_windows(late).to_pcap())
    tables = iter_tables(str(path), format="lumberjack.exchanges", piece=piece)
    for table in (wirescan.scan(path, "lumberjack.exchanges"), join(list(tables))):
        rows = zip(*(table[name].tolist() for name in ("position", "count", "sequence")))
        (first, second) = sorted(rows)
        assert first == (0, 3, 3)
        assert second[1:] == (2, 2)
        assert table["request_size"].sum() == second[0] + len(number_window(1, 2))


def test_windows_of_several_connections_are_paired_apart():
    capture = SimulatedCapture()
    connections = [Connection((CLIENT[0], port), (SERVER, 5044)) for port in (40001, 40002)]
    for connection in connections:
        capture.connect(connection)
    capture.send(connections[1], 0, number_window(1, 2))
    capture.send(connections[1], 1, bytes(lumberjack.encode_ack(2)))
    capture.send(connections[0], 0, number_window(1, 3))  # gets no ack
    table = wirescan.scan(capture.to_pcap(), "lumberjack.exchanges")
    assert sorted(table["sequence"].tolist()) == [0, 2]


def test_windows_in_compressed_frames_have_acks():
    events = b"".join(bytes(lumberjack.encode_json(n, {"n": n})) for n in (1, 2, 3))
    window = bytes(lumberjack.encode_window(3)) + bytes(lumberjack.encode_compressed(events))
    ack = lumberjack.encode_ack
    capture = converse((0, window), (1, ack(2)), (1, ack(3)), port=5044)
    table = wirescan.scan(capture.to_pcap(), "lumberjack.exchanges")
    assert table["sequence"].tolist() == [3]


def test_messages_that_want_no_ack_take_none():
    none = liftbridge.encode_message(b"v", ack_inbox="acks", ack_policy=liftbridge.AckPolicy.NONE)
    other = liftbridge.encode_message(b"v", ack_inbox="acks")
    capture = converse(
        (1, INFO),
        (0, nats.encode_pub("events", bytes(none)) + nats.encode_pub("events", bytes(other))),
        (1, acknowledge(7, None)),
    )
    table = wirescan.scan(capture.to_pcap(), "liftbridge.exchanges")
    assert table["offset"].tolist() == [-1, 7]


def test_a_response_answers_the_last_request_with_its_id(tmp_path):
    """The second request with the id 1 is answered, and not the first one."""
    turns = []
    for correlation_id in (1, 2):
        turns.append((0, kafka.encode_request("ApiVersions", 0, correlation_id=correlation_id)))
    turns.append((1, kafka.encode_response("ApiVersions", 0, correlation_id=2)))
    turns += [(0, kafka.encode_request("ApiVersions", 0, correlation_id=1))]
    turns += [(1, kafka.encode_response("ApiVersions", 0, correlation_id=1))]
    path = tmp_path / "capture.pcap"
    path.write_bytes(converse(*turns, port=9092).to_pcap())
    whole = wirescan.scan(path, "kafka.exchanges")
    assert (whole["response_size"] > 0).tolist() == [False, True, True]
    found = read_in_pieces(path, "kafka.exchanges", 90)
    assert sorted(map(repr, found)) == sorted(map(repr, list_values(whole)))


def test_a_time_that_is_not_known_gives_no_latency():
    request = kafka.encode_request("ApiVersions", 0, correlation_id=1)
    capture = SimulatedCapture(now=-3 * STEP)
    connection = Connection(CLIENT, (SERVER, 9092))
    capture.connect(connection)
    capture.send(connection, 0, request)
    capture.send(connection, 1, kafka.encode_response("ApiVersions", 0, correlation_id=1))
    capture.packets = [(max(time, 0), packet) for time, packet in capture.packets]
    table = wirescan.scan(capture.to_pcap(), "kafka.exchanges")
    assert table["request_end"].tolist() == [0]
    assert table["latency"].tolist() == [-1]
    assert table.to_arrow(["time", "latency"]).to_pylist() == [{"time": None, "latency": None}]


PIECES = {
    "kafka.exchanges": ("kafka.requests", 12),
    "thrift.exchanges": ("thrift.frames", 6),
}


@pytest.mark.parametrize("piece", [61, 1000, 1 << 20])
@pytest.mark.parametrize("name", PIECES)
def test_pieces_of_a_file_have_the_exchanges_of_the_whole(name, piece, tmp_path):
    case, count = PIECES[name]
    pairs, port, _ = CASES[case]
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate(pairs[:count], port, piece=1 << 20).to_pcap())
    whole = list_values(wirescan.scan(path, name, errors="mark"))
    assert sorted(map(repr, read_in_pieces(path, name, piece))) == sorted(map(repr, whole))
    assert len(whole) > 20


@pytest.mark.parametrize("piece", [61, 1000])
def test_pieces_have_the_exchanges_of_other_protocols(piece, tmp_path):
    acked = [publish(b"v", str(n)) for n in range(9)]
    talks = {
        "nats.exchanges": converse(
            (1, INFO),
            *((0, nats.encode_pub("a", b"1", reply=f"in.{n}")) for n in range(9)),
            *((1, nats.encode_msg(f"in.{n}", "9", b"1")) for n in (4, 3, 2, 5, 8)),
        ),
        "liftbridge.exchanges": converse(
            (1, INFO), *((0, pub) for pub in acked), *((1, acknowledge(n, str(n))) for n in (3, 1))
        ),
        "lumberjack.exchanges": converse(
            *((0, b"".join(make_window(n + 1))) for n in range(9)),
            *((1, lumberjack.encode_ack(n + 1)) for n in range(7)),
            *((1, lumberjack.encode_ack(n)) for n in (0, 1)),
            port=5044,
        ),
    }
    for name, capture in talks.items():
        path = tmp_path / f"{name}.pcap"
        path.write_bytes(capture.to_pcap())
        whole = list_values(wirescan.scan(path, name))
        assert sorted(map(repr, read_in_pieces(path, name, piece))) == sorted(map(repr, whole))
        assert len(whole) == 9


def test_only_some_requests_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting_frames, "WAITING", 3)
    turns = [(0, nats.encode_pub("a", bytes(100), reply=f"in.{n}")) for n in range(9)]
    turns.append((1, nats.encode_msg("in.0", "9", b"too late")))
    turns.append((1, nats.encode_msg("in.7", "9", b"in time")))
    path = tmp_path / "capture.pcap"
    path.write_bytes(converse((1, INFO), *turns).to_pcap())
    tables = [t for t in iter_tables(str(path), format="nats.exchanges", piece=200) if len(t)]
    found = {
        bytes(table.bytes(row, "reply")): int(table["response_size"][row]) > 0
        for table in tables
        for row in range(len(table))
    }
    assert len(found) == 9
    assert [name for name, is_answered in found.items() if is_answered] == [b"in.7"]


def test_requests_of_all_connections_wait_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting_frames, "ALL_WAITING", 4)
    capture = SimulatedCapture()
    for number in range(8):
        connection = Connection((CLIENT[0], 40_000 + number), (SERVER, 4222))
        capture.connect(connection)
        capture.send(connection, 0, nats.encode_pub("a", bytes(100), reply="in"))
    path = tmp_path / "capture.pcap"
    path.write_bytes(capture.to_pcap())
    tables = [t for t in iter_tables(str(path), format="nats.exchanges", piece=300) if len(t)]
    assert sum(map(len, tables)) == 8
    assert sum(map(len, tables[:-1])) == 4
    assert {client for table in tables for client in table["client"].to_pylist()} == {
        f"10.0.0.1:{40_000 + number}" for number in range(8)
    }


def test_bad_frames_are_bad_rows():
    capture = converse((1, INFO), (0, nats.encode_pub("a", b"1", reply="in")), (0, b"NONSENSE\r\n"))
    table = wirescan.scan(capture.to_pcap(), "nats.exchanges", errors="mark")
    assert table["fault"].tolist() == [0, Fault.NOT_A_FRAME]
    assert wirescan.scan(capture.to_pcap(), "nats.exchanges", errors="skip")["fault"].tolist() == [
        0
    ]
    with pytest.raises(FrameError) as caught:
        wirescan.scan(capture.to_pcap(), "nats.exchanges")
    assert caught.value.offset == len(nats.encode_pub("a", b"1", reply="in"))
    assert caught.value.__notes__ == [
        "the position is that in the bytes from 10.0.0.1:40000 to 10.0.0.2:4222"
    ]


def test_exchanges_are_read_from_chosen_streams():
    pairs, port, _ = CASES["kafka.requests"]
    flows = pcap.flows(pcap.packets(pcap.scan(simulate(pairs[:3], port).to_pcap())))
    table = pcap.frames(
        pcap.streams(flows[flows["connection"] == 1]), "kafka.exchanges", errors="mark"
    )
    assert set(table["connection"].tolist()) == {1}
    assert len(table)


def test_limits_bound_the_exchanges():
    capture = simulate(CASES["kafka.requests"][0][:3], 9092)
    streams = wirescan.scan(capture.to_pcap(), "pcap.streams")
    with pytest.raises(FrameError) as caught:
        pcap.frames(streams, "kafka.exchanges", limits=Limits(rows=3))
    assert caught.value.fault == Fault.LIMIT


def test_a_response_waits_for_the_last_bytes_of_its_request(tmp_path):
    """Few new bytes after many are held back, but not those that a response answers."""
    filler = "x" * 30_000
    body = {"topics": [{"name": filler} for _ in range(3)]}
    request = kafka.encode_request("Metadata", 1, body, correlation_id=9)
    response = kafka.encode_response("Metadata", 1, correlation_id=9)
    path = tmp_path / "capture.pcap"
    path.write_bytes(converse((0, request), (1, response), port=9092).to_pcap())
    for piece in (1500, 3100, 5000):
        found = read_in_pieces(path, "kafka.exchanges", piece)
        assert found == list_values(wirescan.scan(path, "kafka.exchanges"))


def test_requests_of_released_connections_are_exchanges(tmp_path, monkeypatch):
    """They come with the piece after which their connection is released."""
    monkeypatch.setattr("wirescan.pcap.extraction.captured_frames.MOST_CONNECTIONS", 3)
    capture = SimulatedCapture()
    for number in range(40):
        connection = Connection((CLIENT[0], 40_000 + number), (SERVER, 4222))
        capture.connect(connection)
        capture.send(connection, 0, nats.encode_pub("a", bytes(300), reply="in"))
    path = tmp_path / "capture.pcap"
    path.write_bytes(capture.to_pcap())
    tables = [t for t in iter_tables(str(path), format="nats.exchanges", piece=2000) if len(t)]
    found = [client for table in tables for client in table["client"].to_pylist()]
    assert sorted(found) == [f"10.0.0.1:{40_000 + number}" for number in range(40)]
    assert sum(map(len, tables[:-1])) > 30


def test_a_latency_that_does_not_fit_is_not_known():
    request = kafka.encode_request("ApiVersions", 0, correlation_id=1)
    capture = converse(
        (0, request),
        (1, kafka.encode_response("ApiVersions", 0, correlation_id=1)),
        port=9092,
    )
    table = wirescan.scan(capture.to_pcap(), "kafka.exchanges")
    rows = table.rows.copy()
    rows["request_end"], rows["response_time"] = -(1 << 62) - 1, 1 << 62
    assert replace(table, rows=rows)["latency"].tolist() == [-1]
    rows["response_time"] = rows["request_end"] - 5  # the clock was set
    assert replace(table, rows=rows)["latency"].tolist() == [-5]
