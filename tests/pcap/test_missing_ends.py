"""Bytes that are missing at the end of a side: an ACK or a FIN shows that it sent them."""

import struct

import numpy as np
import pytest

import wirescan
from tests.support.packet_follower import PacketFollower
from tests.support.simulated_capture import (
    ACK,
    FIN,
    PSH,
    RST,
    STEP,
    Connection,
    SimulatedCapture,
)
from wirescan import Fault, pcap
from wirescan.reading.chunked import iter_tables

SECOND = 10**9
LARGEST_WINDOW = 1 << 30
CLIENT = (bytes([10, 0, 0, 1]), 40_000)
SERVER = (bytes([10, 0, 0, 2]), 9092)
API_VERSIONS = struct.pack(">IhhihB", 12, 18, 3, 7, -1, 0) + b"\1"


def make_conversation(data=b"hello"):
    """Return a capture of a connection whose client has sent bytes, and the connection."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, SERVER)
    capture.connect(connection)
    capture.send(connection, 0, data)
    return capture, connection


def list_rows(capture, format, **options):
    """Return the whole table of a capture."""
    return wirescan.scan(capture.to_pcap(), format, errors="mark", **options)


def list_pieces(capture, format, piece):
    """Return the tables of a capture that is read in pieces."""
    tables = iter_tables(capture.to_pcap(), format=format, piece=piece, errors="mark")
    return [table for table in tables if len(table)]


def read_flow(capture):
    (flow,) = list_rows(capture, "pcap.flows")
    return flow


def list_gaps(capture):
    """Return (fault, position, lost, size) of the rows of the client's stream."""
    streams = list_rows(capture, "pcap.streams")
    streams = streams[streams["kind"] == pcap.Direction.TO_SERVER]
    names = ("fault", "position", "lost", "size")
    return list(zip(*(streams[name].tolist() for name in names)))


def test_bytes_before_an_acknowledged_fin_are_lost():
    capture, connection = make_conversation()
    connection.lose(0, b"bytes")
    capture.close(connection)
    flow = read_flow(capture)
    assert (flow.bytes_to_server, flow.lost_to_server, flow.lost_to_client) == (5, 5, 0)
    assert flow.kind == pcap.FlowState.COMPLETE
    assert list_gaps(capture) == [(0, 0, 0, 5), (Fault.LOST, 5, 5, 0)]


def test_bytes_before_a_fin_that_nobody_acknowledged_are_lost():
    capture, connection = make_conversation()
    connection.lose(0, b"bytes")
    capture.add(connection, 0, FIN | ACK)
    assert read_flow(capture).lost_to_server == 5


def test_acknowledged_bytes_that_are_missing_at_the_end_are_lost():
    capture, connection = make_conversation()
    connection.lose(0, b"bytes")
    capture.send(connection, 1, b"answer")
    flow = read_flow(capture)
    assert (flow.bytes_to_server, flow.lost_to_server) == (5, 5)
    assert (flow.bytes_to_client, flow.lost_to_client) == (6, 0)
    assert flow.kind == pcap.FlowState.UNFINISHED


def test_all_bytes_of_a_side_may_be_lost():
    capture, connection = make_conversation(b"")
    connection.lose(0, b"question")
    capture.send(connection, 1, b"answer")
    assert list_gaps(capture) == [(Fault.LOST, 0, 8, 0)]


@pytest.mark.parametrize("end", ["close", "reset", "stay"])
def test_syn_and_fin_are_no_bytes(end):
    capture, connection = make_conversation()
    capture.add(connection, 1, ACK)
    if end == "close":
        capture.close(connection)
    elif end == "reset":
        capture.add(connection, 1, RST | ACK)
    flow = read_flow(capture)
    assert (flow.lost_to_server, flow.lost_to_client) == (0, 0)


def test_a_fin_that_is_not_captured_is_no_byte():
    capture, connection = make_conversation()
    length = len(connection.sent[0])
    capture.add(connection, 1, FIN | ACK, acknowledged=length + 1)
    capture.add(connection, 0, ACK, position=length + 1, acknowledged=1)
    assert read_flow(capture).lost_to_server == 0


def test_keep_alives_are_no_loss():
    capture = SimulatedCapture()
    connection = Connection(CLIENT, SERVER, sent=[b"before", b"before"])
    capture.add(connection, 0, ACK, position=5)  # one byte before the next one
    capture.add(connection, 1, ACK)
    capture.add(connection, 1, ACK, position=5)
    capture.add(connection, 0, ACK)
    flow = read_flow(capture)
    assert (flow.lost_to_server, flow.lost_to_client) == (0, 0)


@pytest.mark.parametrize("beyond", [LARGEST_WINDOW, (1 << 31) - 1, 1 << 31, -1])
def test_an_ack_beyond_the_largest_window_shows_nothing(beyond):
    capture, connection = make_conversation()
    capture.add(connection, 1, ACK, acknowledged=5 + beyond)
    assert read_flow(capture).lost_to_server == 0


def test_an_ack_in_a_packet_outside_the_window_shows_nothing():
    capture, connection = make_conversation()
    capture.add(connection, 1, ACK, position=LARGEST_WINDOW, acknowledged=1000)
    assert read_flow(capture).lost_to_server == 0


def test_a_fin_beyond_the_largest_window_shows_nothing():
    capture, connection = make_conversation()
    capture.add(connection, 0, FIN | ACK, position=5 + LARGEST_WINDOW)
    assert read_flow(capture).lost_to_server == 0


def test_an_ack_alone_loses_no_byte_that_comes():
    """The packets of one side may come seconds before those of the other side."""
    capture, connection = make_conversation()
    capture.add(connection, 1, ACK, acknowledged=1000)
    capture.now += 2 * SECOND
    for _ in range(100):
        capture.add(connection, 1, ACK, acknowledged=1000)
    capture.send(connection, 0, b"late")
    flow = read_flow(capture)
    assert (flow.bytes_to_server, flow.lost_to_server, flow.repeated_to_server) == (9, 991, 0)


@pytest.mark.parametrize("seconds, packets", [(2, 1), (0, 64)])
def test_bytes_that_both_sides_have_passed_are_lost_before_the_capture_ends(seconds, packets):
    capture, connection = make_conversation()
    connection.lose(0, b"bytes")
    capture.add(connection, 0, ACK)
    capture.add(connection, 1, ACK)
    follower = PacketFollower("first")
    follower.follow_packets(capture.packets)
    assert follower.list_flows()[0]["lost_to_server"].tolist() == [0]
    capture.now += seconds * SECOND
    first = len(capture.packets)
    for _ in range(packets):
        capture.add(connection, 1, ACK)
    follower.follow_packets(capture.packets[first:])
    assert follower.list_flows()[0]["lost_to_server"].tolist() == [5]
    capture.add(connection, 0, PSH | ACK, position=5, payload=b"bytes")
    follower.follow_packets(capture.packets[-1:])
    flows = follower.list_flows()[0]
    assert flows["repeated_to_server"].tolist() == [5]
    assert flows["bytes_to_server"].tolist() == [5]


@pytest.mark.parametrize("side", (0, 1))
def test_a_capture_of_one_direction_has_no_loss_that_acks_show(side):
    capture, connection = make_conversation()
    capture.send(connection, 1, b"answer" * 100, size=100)
    capture.send(connection, 0, b"question" * 100, size=100)
    capture.close(connection)
    other = connection.server if side == 0 else connection.client
    is_sent = [packet[1][26:30] != other[0] for packet in capture.packets]
    capture.packets = [packet for packet, is_kept in zip(capture.packets, is_sent) if is_kept]
    flow = read_flow(capture)
    assert (flow.lost_to_server, flow.lost_to_client) == (0, 0)
    assert flow.kind == pcap.FlowState.UNFINISHED


def make_cut_capture(end):
    """A frame is cut, and its rest and the next one are acknowledged, but not captured."""
    capture, connection = make_conversation(API_VERSIONS + API_VERSIONS[:5])
    connection.lose(0, API_VERSIONS[5:] + API_VERSIONS)
    for _ in range(200):
        capture.send(connection, 1, b"x")
        capture.add(connection, 0, ACK)
        capture.now += 9 * STEP
    end(capture, connection)
    return capture


def end_with_fin(capture, connection):
    capture.close(connection)


def end_with_frames(capture, connection):
    capture.send(connection, 0, API_VERSIONS)


def end_with_other_connection(capture, connection):
    other = Connection((CLIENT[0], 40_001), SERVER)
    capture.connect(other)
    capture.send(other, 0, API_VERSIONS)


def list_values(table, names):
    """Return a tuple of the columns for each row."""
    return list(zip(*(table[name].tolist() for name in names)))


ENDS = [end_with_fin, end_with_frames, end_with_other_connection]


@pytest.mark.parametrize("piece", [200, 1000, 7000, 1 << 20])
@pytest.mark.parametrize("end", ENDS)
def test_a_frame_that_is_cut_at_the_end_is_short(end, piece):
    capture = make_cut_capture(end)
    names = ("fault", "size", "time", "packet", "connection")
    whole = list_rows(capture, "kafka.requests?capture=true")
    assert whole["fault"].tolist()[:3] == [0, Fault.SHORT, Fault.LOST]
    tables = list_pieces(capture, "kafka.requests?capture=true", piece)
    rows = [row for table in tables for row in list_values(table, names)]
    assert sorted(rows) == sorted(list_values(whole, names))


@pytest.mark.parametrize("piece", [200, 1000, 7000, 1 << 20])
@pytest.mark.parametrize("end", ENDS)
def test_pieces_have_the_gaps_of_the_whole(end, piece):
    capture = make_cut_capture(end)
    whole = list_rows(capture, "pcap.streams")
    whole = whole[whole.bad]
    tables = list_pieces(capture, "pcap.streams", piece)
    names = ["position", "lost", "time", "time_end", "fault"]
    gaps = np.concatenate([table.rows[names][table.bad] for table in tables])
    assert gaps.tolist() == whole.rows[names].tolist()
    tables = list_pieces(capture, "pcap.flows", piece)
    names = ["connection", "kind", "bytes_to_server", "lost_to_server", "lost_to_client"]
    flows = np.concatenate([table.rows[names] for table in tables])
    assert flows.tolist() == list_rows(capture, "pcap.flows").rows[names].tolist()


def test_a_connection_with_lost_bytes_at_both_ends_is_released_a_minute_after_them():
    capture, connection = make_conversation()
    connection.lose(0, b"bytes")
    connection.lose(1, b"more bytes")
    capture.close(connection)
    capture.add(connection, 0, ACK, position=11, acknowledged=11)
    other = Connection((CLIENT[0], 40_001), SERVER)
    capture.now += 61 * SECOND
    for _ in range(65):
        capture.add(other, 0, ACK)
    follower = PacketFollower("first", connections=100)
    follower.follow_packets(capture.packets)
    flows, _ = follower.list_flows(released=True)
    assert flows["kind"].tolist() == [pcap.FlowState.COMPLETE]
    assert flows["lost_to_server"].tolist() == [5]
    assert flows["lost_to_client"].tolist() == [10]
