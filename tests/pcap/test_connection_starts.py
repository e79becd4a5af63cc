"""Where the bytes of a side begin, if the capture lacks packets of the handshake or swaps them."""

import pytest

import wirescan
from tests.support.simulated_capture import (
    ACK,
    FIN,
    PSH,
    RST,
    STEP,
    SYN,
    Connection,
    SimulatedCapture,
)
from wirescan import Fault, kafka, pcap, thrift
from wirescan.reading.chunked import iter_tables

CLIENT = (bytes([10, 0, 0, 1]), 40_000)
SERVER = (bytes([10, 0, 0, 2]), 9092)
PIECES = [100, 500, 1 << 20]


def start(*flags):
    """Return a capture that has these packets of a handshake, and the connection."""
    capture, connection = SimulatedCapture(), Connection(CLIENT, SERVER)
    for flag in flags:
        add_handshake(capture, connection, flag)
    return capture, connection


def add_handshake(capture, connection, flags):
    """Add a SYN of the client, the answer of the server, or the ACK of the client."""
    position = 0 if flags == ACK else -1
    capture.add(connection, int(flags == SYN | ACK), flags, position=position)


def list_streams(capture, side):
    """Return (position, lost, bytes) of the rows of one side."""
    streams = wirescan.scan(capture.to_pcap(), "pcap.streams", errors="mark")
    kind = (pcap.Direction.TO_SERVER, pcap.Direction.TO_CLIENT)[side]
    return [
        (row.position, row.lost, bytes(streams.frame(row._index)))
        for row in streams
        if row.kind == kind
    ]


def list_flows(capture):
    return wirescan.scan(capture.to_pcap(), "pcap.flows")


def test_the_ack_of_the_client_says_where_the_bytes_of_the_server_begin():
    capture, connection = start(SYN, ACK)
    connection.lose(1, b"first")
    capture.send(connection, 1, b"second")
    assert list_streams(capture, 1) == [(0, 5, b""), (5, 0, b"second")]
    (flow,) = list_flows(capture)
    assert (flow.lost_to_client, flow.is_begun_earlier) == (5, 0)


def test_the_answer_of_the_server_says_where_the_bytes_of_the_client_begin():
    capture, connection = start(SYN | ACK)
    connection.lose(0, b"first")
    capture.send(connection, 0, b"second")
    assert list_streams(capture, 0) == [(0, 5, b""), (5, 0, b"second")]
    (flow,) = list_flows(capture)
    assert (flow.lost_to_server, flow.is_begun_earlier) == (5, 1)


def test_the_first_packets_of_a_server_may_be_swapped_without_its_answer():
    capture, connection = start(SYN, ACK)
    capture.send(connection, 1, b"12345")
    capture.send(connection, 1, b"world")
    capture.packets[-2:] = capture.packets[:-3:-1]
    assert list_streams(capture, 1) == [(0, 0, b"12345world")]


def test_the_answer_of_the_server_may_come_after_other_packets():
    """The first ACK is of bytes that are lost. The answer says that they are."""
    capture, connection = start(SYN)
    connection.lose(1, b"lost")
    capture.add(connection, 0, ACK)
    capture.add(connection, 1, ACK)
    add_handshake(capture, connection, SYN | ACK)
    capture.send(connection, 1, b"hello")
    assert list_streams(capture, 1) == [(0, 4, b""), (4, 0, b"hello")]
    assert list_flows(capture)["is_begun_earlier"].tolist() == [0]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_keep_alive_starts_no_side_one_byte_too_early(is_first):
    capture, connection = start(SYN, ACK)
    capture.add(connection, 1, ACK, position=-1, payload=b"" if is_first else b"\0")
    capture.send(connection, 1, b"hello")
    assert list_streams(capture, 1) == [(0, 0, b"hello")]


def test_bytes_before_the_first_ack_are_not_dropped():
    """The first packet of the server comes after an ACK of bytes that come later."""
    capture, connection = start(SYN)
    capture.add(connection, 0, ACK, acknowledged=5)
    capture.send(connection, 1, b"hello")
    assert list_streams(capture, 1) == [(0, 0, b"hello")]
    (flow,) = list_flows(capture)
    assert flow.is_begun_earlier == 1


def test_a_stated_start_beyond_the_largest_window_does_not_count():
    capture, connection = start(SYN)
    capture.add(connection, 0, ACK, acknowledged=-(1 << 30))
    capture.send(connection, 1, b"hello")
    assert list_streams(capture, 1) == [(0, 0, b"hello")]


@pytest.mark.parametrize("lost, begun_earlier", [(b"", 0), (b"question", 1)])
def test_a_side_without_a_known_start_has_begun_earlier(lost, begun_earlier):
    """An ACK after lost packets of the client may be of bytes that are lost too."""
    capture, connection = start(SYN)
    connection.lose(0, lost)
    capture.send(connection, 0, b"more")
    capture.send(connection, 1, b"answer")
    assert list_flows(capture)["is_begun_earlier"].tolist() == [begun_earlier]


def test_a_refused_connection_has_not_begun_earlier():
    capture, connection = start(SYN)
    capture.add(connection, 1, RST | ACK, position=-connection.first[1] - 1)
    assert list_flows(capture)["is_begun_earlier"].tolist() == [0]


def test_a_packet_of_an_earlier_connection_does_not_end_the_next_one():
    capture, connection = start(SYN)
    earlier = Connection(CLIENT, SERVER, first=(10, 20))
    capture.add(earlier, 1, FIN | ACK)
    add_handshake(capture, connection, SYN | ACK)
    add_handshake(capture, connection, ACK)
    capture.send(connection, 1, b"hello")
    capture.add(connection, 0, FIN | ACK)
    assert list_streams(capture, 1) == [(0, 0, b"hello")]
    (flow,) = list_flows(capture)
    assert (flow.kind, flow.is_begun_earlier) == (pcap.FlowState.UNFINISHED, 0)


@pytest.mark.parametrize("direction", (0, 1))
def test_a_capture_of_one_direction_with_a_syn_has_no_loss(direction):
    capture, connection = start(SYN, SYN | ACK, ACK)
    capture.send(connection, 1, b"a" * 500, size=100)
    capture.send(connection, 0, b"b" * 500, size=100)
    address = (CLIENT, SERVER)[direction][0]
    capture.packets = [packet for packet in capture.packets if packet[1][26:30] == address]
    (flow,) = list_flows(capture)
    assert (flow.lost_to_server, flow.lost_to_client) == (0, 0)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("packets", [(SYN, ACK), (SYN | ACK, ACK), (ACK,)])
def test_frames_after_lost_first_bytes_are_found(packets, piece):
    capture, connection = start(*packets)
    requests = [kafka.encode_request("ApiVersions", 0, {}, correlation_id=i) for i in range(20)]
    responses = [kafka.encode_response("ApiVersions", 0, {}, correlation_id=i) for i in range(20)]
    for request, response in zip(requests, responses):
        capture.send(connection, 0, bytes(request))
        lost = b"" if connection.sent[1] else bytes(response)[:7]
        connection.lose(1, lost)
        capture.send(connection, 1, bytes(response)[len(lost) :])
    capture.add(connection, 0, ACK)
    whole = wirescan.scan(capture.to_pcap(), "kafka.responses", errors="mark")
    assert whole["correlation_id"][~whole.bad].tolist() == list(range(1, 20))
    assert (Fault.LOST in whole["fault"]) == bool(packets[0] & SYN)
    tables = iter_tables(capture.to_pcap(), format="kafka.responses", piece=piece, errors="mark")
    names = ["fault", "correlation_id"]
    rows = [row for table in tables for row in table.rows[names].tolist()]
    assert sorted(rows) == sorted(whole.rows[names].tolist())


@pytest.mark.parametrize("piece", [64, 200])
def test_pieces_agree_where_the_answer_comes_after_bytes(piece):
    # The search for frames does not believe such a name.
    call = thrift.encode_framed(thrift.encode_message(b";a", 1, 1, b"\0"))
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER[0], 9090))
    add_handshake(capture, connection, SYN)
    capture.add(connection, 1, ACK)
    capture.send(connection, 0, bytes(call) * 4)
    add_handshake(capture, connection, SYN | ACK)
    data = capture.to_pcap()
    whole = wirescan.scan(data, "thrift.frames?capture=true", errors="mark")
    options = {"format": "thrift.frames?capture=true", "piece": piece, "errors": "mark"}
    rows = [row for table in iter_tables(data, **options) for row in table["size"].tolist()]
    assert rows == whole["size"].tolist()
    assert list_flows(capture)["is_begun_earlier"].tolist() == [1]


def make_simultaneous_open():
    capture, connection = start(SYN)
    capture.add(connection, 1, SYN, position=-1)
    capture.add(connection, 0, SYN | ACK, position=-1)
    capture.add(connection, 1, SYN | ACK, position=-1)
    capture.send(connection, 0, b"hello")
    capture.send(connection, 1, b"world")
    return capture


def test_both_sides_may_send_a_syn():
    capture = make_simultaneous_open()
    assert list_streams(capture, 0) == [(0, 0, b"hello")]
    assert list_streams(capture, 1) == [(0, 0, b"world")]
    (flow,) = list_flows(capture)
    assert flow.client == "10.0.0.1:40000"
    assert (flow.is_begun_earlier, flow.handshake) == (0, 4 * STEP)


def test_the_server_may_connect_back_later():
    capture, connection = start(SYN, SYN | ACK, ACK)
    capture.send(connection, 0, b"hello")
    capture.close(connection)
    back = Connection(SERVER, CLIENT, first=(70_000, 90_000))
    capture.connect(back)
    capture.send(back, 0, b"back")
    assert list_flows(capture)["client"].to_pylist() == ["10.0.0.1:40000", "10.0.0.2:9092"]


def test_a_syn_may_come_after_the_answer_to_it():
    capture, connection = start(SYN | ACK, SYN, ACK)
    capture.send(connection, 0, b"hello")
    (flow,) = list_flows(capture)
    assert (flow.is_begun_earlier, flow.handshake) == (0, STEP)
    assert list_streams(capture, 0) == [(0, 0, b"hello")]


def test_a_syn_after_the_bytes_begins_no_connection():
    capture, connection = start(SYN | ACK, ACK)
    capture.send(connection, 0, b"hello")
    capture.add(connection, 0, SYN, position=-1)
    capture.send(connection, 0, b" world")
    assert list_flows(capture)["is_begun_earlier"].tolist() == [1]
    assert list_streams(capture, 0) == [(0, 0, b"hello world")]


def test_a_syn_with_another_number_than_the_answer_begins_a_connection():
    capture, connection = start(SYN | ACK)
    other = Connection(CLIENT, SERVER, first=(70_000, 90_000))
    capture.connect(other)
    capture.add(other, 0, PSH | ACK, payload=b"hello")
    assert list_flows(capture)["is_begun_earlier"].tolist() == [1, 0]
