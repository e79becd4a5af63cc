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
from tests.support.damaged_captures import find_packet_borders, make_damaged_capture
from tests.support.simulated_capture import ACK, Connection, SimulatedCapture
from wirescan import Limits, kafka, liftbridge, lumberjack, nats, thrift
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
        chunks,
        format,
        errors="mark",
        check=True,
        limits=Limits(),
        source=None,
        offset=0,
        allow_cut=True,
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


# The formats of the cases, and those of single messages.
DAMAGED_CASES = {
    **{name: CASES[name] for name in CASES if name != "kafka.responses"},
    "kafka.responses?capture=true": CASES["kafka.responses"],
    "kafka.requests?capture=true": CASES["kafka.responses"],
    "lumberjack.frames?capture=true": CASES["lumberjack.exchanges"],
    "thrift.messages?capture=true": CASES["thrift.exchanges"],
    "nats.messages?capture=true": CASES["nats.exchanges"],
}


@pytest.mark.parametrize("name", DAMAGED_CASES)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), borders=st.none() | BORDERS)
def test_chunk_borders_change_nothing_in_damaged_captures(name, seed, borders):
    """Packets are lost or out of order, and the captures begin inside connections."""
    messages, port, first = DAMAGED_CASES[name]
    capture = make_damaged_capture(messages, port, first, seed)
    raw = capture.to_pcap()
    expected = sorted(map(repr, list_values(wirescan.scan(raw, name, errors="mark"))))
    assert read_chunks(raw, name, borders or find_packet_borders(capture)) == expected


def read_each_packet(capture, name):
    """Return the values of the rows of a capture that is read packet by packet, and as a whole."""
    raw = capture.to_pcap()
    whole = wirescan.scan(raw, name, errors="mark")
    pieces = read_chunks(raw, name, find_packet_borders(capture))
    return pieces, sorted(map(repr, list_values(whole)))


def send_packets(capture, connection, side, data, size):
    """Add the packets of bytes, and return them."""
    first = len(capture.packets)
    capture.send(connection, side, bytes(data), size=size)
    packets = capture.packets[first:]
    del capture.packets[first:]
    return packets


def test_responses_out_of_order_answer_the_requests_before_them():
    """The first byte of a later response is captured before that of an earlier one."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 9090))
    capture.connect(connection)
    call = thrift.encode_framed(thrift.encode_message("add", thrift.MessageType.CALL, 1))
    reply = thrift.encode_framed(thrift.encode_message("add", thrift.MessageType.REPLY, 1))
    capture.send(connection, 0, call)
    late = send_packets(capture, connection, 1, reply, 1448)
    early = send_packets(capture, connection, 1, reply, 10)
    second = send_packets(capture, connection, 0, call, 1448)
    capture.packets += [early[0], *second, *late, *early[1:]]
    pieces, whole = read_each_packet(capture, "thrift.exchanges")
    assert pieces == whole
    exchanges = wirescan.scan(capture.to_pcap(), "thrift.exchanges")
    assert (exchanges["response_size"] > 0).tolist() == [True, True]


def test_an_ack_waits_for_a_message_behind_missing_bytes_of_another_connection():
    capture = SimulatedCapture()
    first = Connection(CLIENT, (SERVER, 4222))
    other = Connection((CLIENT[0], 40_001), (SERVER, 4222))
    for connection in (first, other):
        capture.connect(connection)
        capture.send(connection, 1, INFO)
    capture.send(first, 0, publish(b"v", "zero"))
    late = capture.packets.pop()
    capture.send(first, 0, publish(b"v", "one"))
    capture.send(other, 1, acknowledge(7, "one"))
    capture.packets.append(late)
    pieces, whole = read_each_packet(capture, "liftbridge.exchanges")
    assert pieces == whole
    assert len(whole) == 2
    assert sum(", 7, " in row for row in whole) == 1


def test_an_ack_waits_for_a_message_behind_lost_bytes_of_another_connection():
    capture = SimulatedCapture()
    first = Connection(CLIENT, (SERVER, 4222))
    other = Connection((CLIENT[0], 40_001), (SERVER, 4222))
    for connection in (first, other):
        capture.connect(connection)
        capture.send(connection, 1, INFO)
    capture.send(first, 0, publish(b"v", "zero"))
    capture.packets.pop()
    capture.send(first, 0, publish(b"v", "one"))
    capture.send(other, 1, acknowledge(7, "one"))
    for _ in range(70):
        capture.add(first, 1, ACK)
    pieces, whole = read_each_packet(capture, "liftbridge.exchanges")
    assert pieces == whole
    assert sum(", 7, " in row for row in whole) == 1


def test_an_ack_before_an_event_ends_no_window():
    """The number of the last event is known from the first one on."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 5044))
    capture.connect(connection)
    window, events = make_window(2)
    capture.send(connection, 0, window)
    capture.send(connection, 1, lumberjack.encode_ack(2))
    capture.send(connection, 0, events)
    pieces, whole = read_each_packet(capture, "lumberjack.exchanges")
    assert pieces == whole
    assert wirescan.scan(capture.to_pcap(), "lumberjack.exchanges")["sequence"].tolist() == [0]


def test_a_window_ends_with_the_last_event_before_its_ack():
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 5044))
    capture.connect(connection)
    window, events = make_window(2)
    size = len(lumberjack.encode_json(1, {"n": 0}))
    capture.send(connection, 0, window + events[:size])
    capture.send(connection, 1, lumberjack.encode_ack(2))
    capture.send(connection, 0, events[size:])
    pieces, whole = read_each_packet(capture, "lumberjack.exchanges")
    assert pieces == whole
    exchanges = wirescan.scan(capture.to_pcap(), "lumberjack.exchanges")
    assert exchanges["request_size"].tolist() == [len(window) + size]


UNDECIDED = ("nats.messages?capture=true", "nats.exchanges")


@pytest.mark.parametrize("name", UNDECIDED)
def test_undecided_rows_before_a_gap_are_read_when_the_format_is_shown(name):
    """Neither the port nor the bytes before the gap show the format."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 5555))
    capture.connect(connection)
    capture.send(connection, 0, b"\xee" * 5)
    capture.add(connection, 0, ACK, position=20, payload=b"\xee" * 5)
    for _ in range(100):  # the receiver has the lost bytes
        capture.add(connection, 1, ACK, acknowledged=25)
    capture.send(connection, 1, INFO)
    pieces, whole = read_each_packet(capture, name)
    assert pieces == whole
    assert sum("LOST" in row for row in whole) == 1


def make_bodies(*sizes):
    return [bytes(produce(7, bytes(size), correlation_id=n)) for n, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes, count", [((100,), 1), ((60_000, 100), 2), ((70_000, 100), 0)])
def test_frames_within_the_first_bytes_decide_the_format(sizes, count):
    """The port is unusual. A side of more bytes without evidence has another format."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 5555))
    capture.connect(connection)
    for body in make_bodies(*sizes):
        capture.send(connection, 0, body)
    pieces, whole = read_each_packet(capture, "kafka.requests?capture=true")
    assert pieces == whole
    assert len(whole) == count


@pytest.mark.parametrize("size, count", [(60_000, 2), (70_000, 0)])
def test_frames_after_many_bytes_of_the_other_side_decide_nothing(size, count):
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 5555))
    capture.connect(connection)
    capture.send(connection, 0, b"\xee" * size)
    capture.send(connection, 1, INFO)
    pieces, whole = read_each_packet(capture, "nats.messages?capture=true")
    assert pieces == whole
    assert len(whole) == count


def test_requests_with_bad_bodies_take_no_evidence_back():
    bad = bytearray(produce(7, BATCH))
    bad[bad.index(b"orders") - 3] = 0
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 5555))
    capture.connect(connection)
    for data in (produce(7, BATCH), bad, bad, bad):
        capture.send(connection, 0, bytes(data))
    pieces, whole = read_each_packet(capture, "kafka.requests?capture=true")
    assert pieces == whole
    assert len(whole) == 4


def test_frames_after_damage_are_found_in_pieces_too():
    """The capture begins inside the connection, with a whole request."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 9092))
    request, noise = bytes(ask("ApiVersions", 0, 1)[1]), b"\xff" * 100
    for data in (request, noise, request * 2, request):
        capture.send(connection, 0, data)
    capture.send(connection, 1, bytes(answer("ApiVersions", 0, 1)[1]))
    capture.add(connection, 0, ACK)
    pieces, whole = read_each_packet(capture, "kafka.exchanges")
    assert pieces == whole
    assert len(whole) == 5


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


def test_replies_wait_for_calls_that_are_found_after_damage():
    """Bytes after a call show that it is one. The reply comes before them."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 9090))
    capture.connect(connection)
    call = thrift.encode_framed(thrift.encode_message("add", thrift.MessageType.CALL, 1))
    reply = thrift.encode_framed(thrift.encode_message("add", thrift.MessageType.REPLY, 1))
    for side, data in ((0, b"\xee" * 100), (0, call), (1, reply), (0, call)):
        capture.send(connection, side, bytes(data))
    pieces, whole = read_each_packet(capture, "thrift.exchanges")
    assert pieces == whole
    exchanges = wirescan.scan(capture.to_pcap(), "thrift.exchanges", errors="mark")
    assert (exchanges["response_size"] > 0).tolist() == [True, False, False]
