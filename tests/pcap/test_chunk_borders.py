"""A law: where a capture is cut into chunks changes no exchange, no answer and no carried frame."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import wirescan
from tests.support.captured_conversations import (
    CLIENT,
    INFO,
    SERVER,
    acknowledge,
    list_values,
    make_window,
    produce,
    publish,
)
from tests.support.simulated_capture import ACK, Connection, SimulatedCapture
from wirescan import Limits, kafka, liftbridge, lumberjack, nats, pcap, thrift
from wirescan.frames.registry import format_of
from wirescan.reading.chunked import scan_nested

CONNECTIONS = 2
LARGE = 90_000  # bytes: few new bytes after so many are held back, see `Assembler.take`
BATCH = bytes(kafka.encode_batch([{"key": b"k", "value": b"v"}]))
IDS = range(3)


def ask(api, version, number, body=None):
    return 0, kafka.encode_request(api, version, body, correlation_id=number)


def answer(api, version, number, body=None):
    return 1, kafka.encode_response(api, version, body, correlation_id=number)


FETCHED = {"responses": [{"topic": "t", "partitions": [{"partition_index": 0, "records": BATCH}]}]}
LARGE_BODY = {"topics": [{"name": "x" * 30_000}] * 3}
NO_ACKS = {"transactional_id": None, "acks": 0, "timeout_ms": 1, "topic_data": []}
TOKEN = b"\0\0\0\5\0a\0bc"
KAFKA = [
    *(ask("ApiVersions", 0, number) for number in IDS),
    *(answer("ApiVersions", 0, number) for number in IDS),
    *(ask("Fetch", 7, number) for number in IDS),
    *(answer("Fetch", 7, number, FETCHED) for number in IDS),
    ask("Metadata", 1, 1, LARGE_BODY),
    answer("Metadata", 1, 1),
    ask("Produce", 7, 2, NO_ACKS),
    (0, produce(7, BATCH, correlation_id=2)),
    ask("SaslHandshake", 0, 0, {"mechanism": "PLAIN"}),
    (0, TOKEN),
    (1, b"\0\0\0\0"),
    (1, b"\0\0\0\x06token!"),
]
NATS = [
    *((0, nats.encode_pub("a", bytes(size), reply=f"in.{n}")) for n in IDS for size in (5, LARGE)),
    *((1, nats.encode_msg(f"in.{n}", "9", b"")) for n in IDS),
    (1, nats.encode_msg("in.1", "9", b"", reply="in.2")),
    (0, nats.encode_pub("in.2", b"")),
]
LIFTBRIDGE = [
    *((0, publish(bytes(size), str(n))) for n in IDS for size in (5, LARGE)),
    *((1, acknowledge(n, str(n))) for n in IDS),
    *(
        (
            1,
            nats.encode_msg(
                "events",
                "1",
                bytes(
                    liftbridge.encode_message(bytes(size), ack_inbox="acks", correlation_id=str(n))
                ),
            ),
        )
        for n in IDS
        for size in (5, LARGE)
    ),
    *(
        (
            0,
            nats.encode_pub(
                "acks", bytes(liftbridge.encode_ack(stream="s", offset=n, correlation_id=str(n)))
            ),
        )
        for n in IDS
    ),
]
LUMBERJACK = [
    *((0, b"".join(make_window(n + 1))) for n in IDS),
    *((1, lumberjack.encode_ack(n)) for n in (0, 1, 2, 3)),
    (0, lumberjack.encode_window(1) + lumberjack.encode_json(1, {"text": "x" * LARGE})),
]
THRIFT = [
    *(
        (0, thrift.encode_framed(thrift.encode_message("add", kind, n)))
        for n in IDS
        for kind in (thrift.MessageType.CALL, thrift.MessageType.ONEWAY)
    ),
    *(
        (1, thrift.encode_framed(thrift.encode_message("add", kind, n)))
        for n in IDS
        for kind in (thrift.MessageType.REPLY, thrift.MessageType.EXCEPTION)
    ),
]
# The messages, the port, and what both sides send first.
CASES = {
    "kafka.exchanges": (KAFKA, 9092, []),
    "kafka.responses": (KAFKA, 9092, []),
    "kafka.record_sets": (KAFKA, 9092, []),
    "nats.exchanges": (NATS, 4222, [(1, INFO)]),
    "liftbridge.exchanges": (LIFTBRIDGE, 4222, [(1, INFO)]),
    "lumberjack.exchanges": (LUMBERJACK, 5044, []),
    "thrift.exchanges": (THRIFT, 9090, []),
}


def test_every_format_with_answers_has_a_case():
    expected = set()
    for name, format in wirescan.formats().items():
        if format.exchange is not None:
            expected.add(format.exchange.name)
        if format.carried is not None:
            expected.add(format.carried.name)
        if format.conversation is not None and format.conversation.answers is not None:
            expected.add(name)
    assert expected == set(CASES)


def make_capture(messages, port, first, turns):
    """Return a capture of some connections. turns: (connection, number of a message)."""
    capture = SimulatedCapture()
    connections = []
    for number in range(CONNECTIONS):
        connection = Connection((CLIENT[0], 40_000 + number), (SERVER, port))
        capture.connect(connection)
        for side, data in first:
            capture.send(connection, side, bytes(data))
        connections.append(connection)
    for number, message in turns:
        side, data = messages[message % len(messages)]
        capture.send(connections[number], side, bytes(data))
    return capture.to_pcap()


def read_chunks(raw, name, borders):
    """Return the values of the rows of a capture that is read in chunks."""
    cuts = [0, *sorted({border % len(raw) for border in borders} - {0}), len(raw)]
    chunks = [raw[start:stop] for start, stop in zip(cuts, cuts[1:])]
    format = format_of("kafka.responses?capture=true" if name == "kafka.responses" else name)
    tables = scan_nested(
        chunks, format, errors="mark", check=True, limits=Limits(), source=None, offset=0, tail=True
    )
    return sorted(repr(row) for table in tables if len(table) for row in list_values(table))


TURNS = st.lists(st.tuples(st.integers(0, CONNECTIONS - 1), st.integers(0, 99)), max_size=14)
BORDERS = st.lists(st.integers(0, 1 << 20), max_size=12)


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=TURNS, borders=BORDERS)
@example(turns=[(0, 1), (0, 1), (0, 4), (0, 4)], borders=list(range(24, 1200, 60)))  # an id twice
def test_chunk_borders_change_nothing(name, turns, borders):
    raw = make_capture(*CASES[name], turns)
    whole = wirescan.scan(raw, name, errors="mark")
    expected = sorted(map(repr, list_values(whole)))
    assert read_chunks(raw, name, borders) == expected
    # A border near the end of each packet.
    assert read_chunks(raw, name, range(24, len(raw), 1500)) == expected


def read_each_packet(capture, name):
    """Return the values of the rows of a capture that is read packet by packet, and as a whole."""
    raw = capture.to_pcap()
    borders = [len(pcap.encode_pcap(capture.packets[:n])) for n in range(len(capture.packets))]
    whole = wirescan.scan(raw, name, errors="mark")
    return read_chunks(raw, name, borders), sorted(map(repr, list_values(whole)))


@pytest.mark.parametrize("lost", [True, False])
def test_answers_wait_for_requests_behind_missing_bytes(lost):
    """A response may come while bytes before its request are missing."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 9092))
    capture.connect(connection)
    for side, data in (ask("ApiVersions", 0, 1), ask("ApiVersions", 0, 2)):
        capture.send(connection, side, bytes(data))
    late = capture.packets.pop(3)
    capture.send(connection, 1, bytes(answer("ApiVersions", 0, 2)[1]))
    if not lost:
        capture.packets.append(late)
    pieces, whole = read_each_packet(capture, "kafka.responses?capture=true")
    assert pieces == whole
    assert len(whole) == 1


def test_bytes_before_a_gap_have_one_fault():
    """No byte follows the bytes before a gap, also where the capture goes on."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 9090))
    capture.add(connection, 0, ACK, position=0, payload=b"\x15\xa4" * 20)
    capture.add(connection, 0, ACK, position=120, payload=b"\x0c\x84" * 20)
    capture.add(connection, 1, ACK, position=0, payload=b"\xe9\xee" * 5, acknowledged=160)
    capture.now += 10**10  # so long that the missing bytes are given up
    capture.add(connection, 0, ACK, position=160, acknowledged=10)
    pieces, whole = read_each_packet(capture, "thrift.messages?capture=true")
    assert pieces == whole
    assert sum("NOT_A_FRAME" in row for row in whole) == 3
