"""Connections that are released while a capture is read in pieces, and the memory of those held."""

import random
import struct
import sys
from dataclasses import replace

import numpy as np
import pytest

import wirescan
from tests.support.packet_follower import PacketFollower, count_connections
from tests.support.simulated_capture import (
    ACK,
    FIN,
    PSH,
    RST,
    SYN,
    Connection,
    SimulatedCapture,
)
from wirescan import Fault, FrameError, Limits, kafka, pcap
from wirescan.core.row_arrays import join_rows
from wirescan.frames.registry import format_of
from wirescan.frames.table import join
from wirescan.pcap.assembly.assembler import Assembler
from wirescan.pcap.extraction.sent_frames import SENT
from wirescan.pcap.extraction.waiting_frames import WaitingConnections, WaitingFrames, copy_frames
from wirescan.reading.chunked import iter_tables
from wirescan.testing.cost import assert_linear

SECOND = 10**9
SERVER = (bytes([10, 0, 0, 2]), 9092)
OTHER = Connection((bytes([10, 9, 9, 9]), 40_000), (bytes([10, 9, 9, 8]), 9092))
PLACES = ("start", "parent", "buffer")
QUIET = 65  # packets of other connections after which a connection may be released
API_VERSIONS = struct.pack(">IhhihB", 12, 18, 3, 7, -1, 0) + b"\1"
RESPONSE = struct.pack(">Iih", 6, 7, 35)


def make_connection(number, **attributes):
    client = bytes([10, 1 + (number >> 16), number >> 8 & 255, number & 255]), 40_000
    return Connection(client, SERVER, **attributes)


def get_scanner(reader):
    """Return the scanner inside the one that decrypts."""
    return reader._scanner._scanner


def add_noise(capture, seconds, packets=QUIET):
    """Add packets of another connection after some seconds."""
    capture.now += int(seconds * SECOND)
    for _ in range(packets):
        capture.add(OTHER, 0, ACK)


def feed(assembler, capture):
    """Feed the packets of a capture. Return the numbers of the connections that are released."""
    assembler.follow_packets(capture.packets)
    return assembler.list_flows(released=True)[0]["connection"].tolist()


def start():
    """Return a capture of one connection that has sent bytes, and the connection."""
    capture = SimulatedCapture()
    connection = make_connection(1)
    capture.connect(connection)
    capture.send(connection, 0, b"question")
    return capture, connection


def end_with_fin(capture, connection):
    capture.close(connection)


def end_with_reset(capture, connection):
    capture.add(connection, 1, RST | ACK)


def end_with_lost_bytes(capture, connection):
    connection.sent[0] += b"these bytes are in no packet"
    capture.close(connection)


def begin_again(capture, connection):
    again = Connection(connection.client, connection.server, first=(70_000, 90_000))
    capture.add(again, 0, SYN, position=-1)
    add_noise(capture, 0)
    capture.add(again, 0, SYN, position=-1)


ENDS = [end_with_fin, end_with_reset, end_with_lost_bytes, begin_again]


@pytest.mark.parametrize("end", ENDS)
def test_a_connection_is_released_a_minute_after_its_end(end):
    capture, connection = start()
    end(capture, connection)
    add_noise(capture, 59)
    assert feed(PacketFollower("first", connections=100), capture) == []
    add_noise(capture, 1)
    assert feed(PacketFollower("first", connections=100), capture) == [0]
    assert feed(PacketFollower("first"), capture) == []


def test_a_connection_is_released_after_packets_of_others_only():
    capture, connection = start()
    capture.close(connection)
    add_noise(capture, 61, QUIET - 1)
    assert feed(PacketFollower("first", connections=100), capture) == []
    add_noise(capture, 0, 1)
    assert feed(PacketFollower("first", connections=100), capture) == [0]


def test_late_packets_belong_to_the_connection_that_ended():
    capture, connection = start()
    capture.close(connection)
    for _ in range(3):
        add_noise(capture, 50)
        capture.add(connection, 0, PSH | ACK, position=0, payload=b"question")
    assembler = PacketFollower("first", connections=100)
    assert feed(assembler, capture) == []
    flows, _ = assembler.list_flows()
    assert len(flows) == 2
    assert flows["retransmissions_to_server"][0] == 3
    add_noise(capture, 61)
    capture.add(connection, 0, PSH | ACK, position=0, payload=b"question")
    assembler = PacketFollower("first", connections=100)
    assert feed(assembler, capture) == [0]
    flows, _ = assembler.list_flows()
    assert flows["connection"].tolist() == [0, 1, 2]
    assert flows["is_begun_earlier"].tolist() == [0, 1, 1]


def test_keep_alives_hold_an_idle_connection():
    capture, connection = start()
    for _ in range(3):
        add_noise(capture, 2 * 3600)
        capture.add(connection, 0, ACK, position=7, payload=b"n")
    add_noise(capture, 8099)
    assert feed(PacketFollower("first", connections=100), capture) == []
    add_noise(capture, 2)
    assert feed(PacketFollower("first", connections=100), capture) == [0]


def test_a_packet_with_a_false_time_releases_no_connection_that_is_used():
    capture, connection = start()
    end = capture.now
    capture.now = 4 * 10**18  # in the year 2096
    capture.add(OTHER, 0, ACK)
    capture.now = end
    capture.send(connection, 0, bytes(1000), size=5)
    assembler = PacketFollower("first", connections=100)
    assert feed(assembler, capture) == []
    assert assembler.list_flows()[0]["bytes_to_server"].tolist() == [1008, 0]


FUTURE = 4 * 10**18  # in the year 2096
CONFIRMING = 8  # packets in a row that move the clock forward
RETURNING = 64  # packets in a row that set it back


def add_false_times(capture, packets, time=FUTURE):
    """Add packets of another connection with a false time."""
    now = capture.now
    for _ in range(packets):
        capture.now = time
        capture.add(OTHER, 0, ACK)
    capture.now = now


@pytest.mark.parametrize("packets", [1, CONFIRMING - 1])
@pytest.mark.parametrize("time", [FUTURE, 10**9])
def test_some_packets_with_false_times_stop_no_release(packets, time):
    capture, connection = start()
    capture.close(connection)
    add_false_times(capture, packets, time)
    add_noise(capture, 59)
    assert feed(PacketFollower("first", connections=100), capture) == []
    add_noise(capture, 2)
    assert feed(PacketFollower("first", connections=100), capture) == [0]


def test_false_times_between_true_ones_release_nothing():
    capture, connection = start()
    capture.close(connection)
    add_noise(capture, 0, 2 * CONFIRMING)
    for _ in range(20):
        add_false_times(capture, CONFIRMING - 1)
        add_noise(capture, 0, 4)
    assert feed(PacketFollower("first", connections=100), capture) == []


@pytest.mark.parametrize("packets", [CONFIRMING, 500])
def test_connections_are_released_after_many_false_times(packets):
    """A clock that was wrong for some time is set back after 64 packets."""
    capture = SimulatedCapture()
    add_noise(capture, 0)
    add_false_times(capture, packets)
    add_noise(capture, 0)
    connection = make_connection(1)
    capture.connect(connection)
    capture.close(connection)
    add_noise(capture, 59)
    assert feed(PacketFollower("first", connections=100), capture) == []
    add_noise(capture, 2)
    assert feed(PacketFollower("first", connections=100), capture) == [1]


def test_false_times_that_last_release_only_what_is_not_used():
    capture, connection = start()
    idle = make_connection(2)
    capture.connect(idle)
    for _ in range(3):
        add_false_times(capture, 30)
        capture.send(connection, 0, b"used")
        add_noise(capture, 1, 20)
    assert feed(PacketFollower("first", connections=100), capture) == [1]


def test_the_first_packet_after_a_quiet_night_counts_as_used_then():
    """The clock has not yet gone on when it comes."""
    capture, connection = start()
    capture.now += 30_000 * SECOND
    capture.send(connection, 0, b"used")
    add_noise(capture, 0, 3 * QUIET)
    assert feed(PacketFollower("first", connections=100), capture) == []
    add_noise(capture, 8101)
    assert feed(PacketFollower("first", connections=100), capture) == [0]


def test_packets_without_a_time_do_not_set_the_clock_back():
    capture, connection = start()
    capture.close(connection)
    add_false_times(capture, 2 * RETURNING, time=0)
    add_noise(capture, 30)
    assert feed(PacketFollower("first", connections=100), capture) == []


def test_packets_that_come_late_do_not_set_the_clock_back():
    """Two interfaces, of which one is 50 seconds behind, by turns of many packets."""
    capture, connection = start()
    capture.close(connection)
    for _ in range(3):
        add_noise(capture, 0, 2 * RETURNING)
        capture.now -= 50 * SECOND
        add_noise(capture, 0, 2 * RETURNING)
        capture.now += 50 * SECOND
    assert feed(PacketFollower("first", connections=100), capture) == []


def test_times_far_apart_do_not_overflow():
    capture, connection = start()
    capture.close(connection)
    add_noise(capture, 0, 4 * QUIET)
    packets = pcap.packets(pcap.scan(capture.to_pcap()))
    rows = packets.rows.copy()
    for number, time in enumerate((2**63 - 1, -(2**63), 2**63 - 1, -(2**63))):
        rows["time"][10 + number * QUIET :] = time
    assembler = Assembler("first", connections=100)
    assembler.feed(rows, packets.buffers)
    assert assembler.list_flows(released=True)[0]["connection"].tolist() == [0]


def make_jumping_packets(seed, count=3000):
    """Return packets of connections, with times that jump in both directions."""
    chance = np.random.default_rng(seed)
    capture = SimulatedCapture()
    for _ in range(count):
        if chance.random() < 0.05:
            capture.now += int(chance.choice([-1, 1]) * 10 ** chance.uniform(9, 14))
        capture.add(make_connection(int(chance.integers(150))), 0, ACK)
        if chance.random() < 0.1:
            add_false_times(capture, int(chance.integers(1, 12)))
    return pcap.packets(pcap.scan(capture.to_pcap()))


@pytest.mark.parametrize("seed", range(5))
def test_releases_do_not_depend_on_the_pieces(seed):
    packets = make_jumping_packets(seed)

    def follow(piece):
        assembler = Assembler("first", connections=1000)
        released = []
        for first in range(0, len(packets), piece):
            part = packets[first : first + piece]
            assembler.feed(part.rows, part.buffers)
            released += assembler.list_flows(released=True)[0]["connection"].tolist()
            assembler.take(released=True)
            assembler.drop_released()
        return sorted(released), assembler.list_flows()[0]["packets_to_server"].tolist()

    whole = follow(len(packets))
    assert len(whole[0]) > 0
    for piece in (1, 7, 100):
        assert follow(piece) == whole


def test_times_that_run_backwards_take_linear_time_and_bounded_memory():
    capture = SimulatedCapture()
    for number in range(4000):
        capture.now -= 3 * SECOND
        capture.add(make_connection(number), 0, ACK)
    packets = pcap.packets(pcap.scan(capture.to_pcap()))

    def follow(times):
        assembler = Assembler("first", connections=1000)
        for number in range(times):
            rows = packets.rows.copy()
            rows["time"] -= number * 12_000 * SECOND
            assembler.feed(rows, packets.buffers)
            assert count_connections(assembler) - assembler.released <= 1000
            assembler.take(released=True)
            assembler.drop_released()

    assert_linear(lambda: follow(20), lambda: follow(160))


def test_the_longest_idle_connections_are_released_beyond_a_number():
    capture = SimulatedCapture()
    connections = [make_connection(number) for number in range(6)]
    for connection in connections:
        capture.connect(connection)
    capture.send(connections[0], 0, b"used")
    capture.close(connections[4])
    assembler = PacketFollower("first", connections=6)
    assert feed(assembler, capture) == []
    more = SimulatedCapture(now=capture.now)
    for number in (100, 101):
        more.connect(make_connection(number))
    # 4 ended, and then 1 is the longest idle one.
    assert feed(assembler, more) == [1, 4]
    assert count_connections(assembler) == 8
    assembler.take(released=True)
    assembler.drop_released()
    assert count_connections(assembler) == 6


def test_numbers_ascend_although_places_are_used_again():
    assembler = PacketFollower("first", connections=3)
    numbers = []
    for first in range(0, 40, 5):
        capture = SimulatedCapture()
        for number in range(first, first + 5):
            connection = make_connection(number)
            capture.connect(connection)
            capture.send(connection, 0, b"%d" % number)
        feed(assembler, capture)
        for released in (True, False):
            flows, _, streams, block, _ = assembler.take(released=released)
            assert (np.diff(flows["connection"]) > 0).all()
            for row in streams:
                start = int(row["start"])
                text = bytes(block)[start : start + int(row["size"])]
                assert int(text) == flows["connection"][row["parent"]]
            if released:
                numbers += assembler.list_flows(released=True)[0]["connection"].tolist()
                assembler.drop_released()
            else:
                assembler.release(streams["size"].astype(np.int64))
    numbers += assembler.list_flows()[0]["connection"].tolist()
    assert numbers == list(range(40))


def test_the_longest_idle_connections_are_released_for_the_bytes_that_wait():
    capture = SimulatedCapture()
    for number in range(10):
        connection = make_connection(number)
        capture.connect(connection)
        capture.send(connection, 0, bytes(1000))
    assembler = PacketFollower("first", connections=100, waiting=5500)
    assert feed(assembler, capture) == []
    _, _, streams, _, _ = assembler.take()
    assembler.release(np.zeros(len(streams), np.int64))
    assert assembler.waiting_bytes == 10 * 1064
    assert assembler.list_flows(released=True)[0]["connection"].tolist() == [0, 1, 2, 3, 4]
    assert len(assembler.take(released=True)[2]) == 5
    assembler.drop_released()
    assert assembler.waiting_bytes == 5 * 1064


def test_copies_are_counted_until_they_are_dropped():
    capture, connection = start()
    capture.send(connection, 0, bytes(1000), size=100)
    del capture.packets[7]
    assembler = PacketFollower("last", connections=100)
    feed(assembler, capture)
    _, _, streams, _, _ = assembler.take()
    assembler.release(np.array([50]))
    # Three nodes of 308 bytes in order, of which the first is gone, and six that came too early.
    assert assembler.waiting_bytes == 308 - 50 + 600 + 64 * 9
    capture.packets = capture.packets[:0]
    capture.add(connection, 0, PSH | ACK, position=408, payload=b"x" * 100)  # they overlap
    feed(assembler, capture)
    assembler.finish()
    _, _, streams, _, _ = assembler.take()
    assembler.release(streams["size"].astype(np.int64))
    assert assembler.waiting_bytes == 0


def read_pieces(capture, format, piece=2000, errors="mark"):
    """Return the tables of a capture that is read in pieces."""
    tables = iter_tables(capture.to_pcap(), format=format, piece=piece, errors=errors)
    return [table for table in tables if len(table)]


def make_lossy_capture():
    """A frame is cut by lost bytes, the next one by the end of the connection, after an hour."""
    capture, connection = SimulatedCapture(), make_connection(1)
    capture.connect(connection)
    capture.send(connection, 0, API_VERSIONS + API_VERSIONS[:5])
    connection.sent[0] += b"gap"
    capture.send(connection, 0, API_VERSIONS + API_VERSIONS[:7])
    capture.add(connection, 1, RST)
    add_noise(capture, 3600)
    return capture


def test_a_released_connection_reports_what_is_lost_and_cut():
    capture = make_lossy_capture()
    tables = read_pieces(capture, "kafka.requests?capture=true")
    faults = [fault for table in tables for fault in table["fault"].tolist()]
    assert faults == [0, Fault.SHORT, Fault.LOST, 0, Fault.SHORT]
    (at,) = [number for number, table in enumerate(tables) if Fault.LOST in table["fault"]]
    whole = wirescan.scan(capture.to_pcap(), "kafka.requests", errors="mark")
    assert whole["fault"].tolist() == faults
    assert tables[at]["time"].tolist() == whole["time"][-len(tables[at]) :].tolist()
    with pytest.raises(FrameError, match="SHORT"):
        read_pieces(capture, "kafka.requests?capture=true", errors="strict")


def test_an_idle_connection_reports_the_frame_that_is_cut():
    capture, connection = SimulatedCapture(), make_connection(1)
    capture.connect(connection)
    capture.send(connection, 0, API_VERSIONS + API_VERSIONS[:5])
    add_noise(capture, 10_000)
    tables = read_pieces(capture, "kafka.requests?capture=true")
    faults = [fault for table in tables for fault in table["fault"].tolist()]
    assert faults == [0, Fault.SHORT]


def test_streams_of_released_connections_are_returned():
    capture = make_lossy_capture()
    tables = read_pieces(capture, "pcap.streams")
    rows = [row for table in tables for row in table["fault"].tolist()]
    whole = wirescan.scan(capture.to_pcap(), "pcap.streams", errors="mark")
    assert rows == whole["fault"].tolist()
    skipped = read_pieces(capture, "pcap.streams", errors="skip")
    assert sum(map(len, skipped)) == len(whole) - 1


@pytest.mark.parametrize("piece", [500, 7000, 1 << 20])
@pytest.mark.parametrize("end", ENDS)
def test_pieces_have_each_connection_once(piece, end):
    capture = SimulatedCapture()
    for number in range(30):
        connection = make_connection(number % 20)
        connection.first = (1000 * number, 2000 * number)
        capture.connect(connection)
        capture.send(connection, 0, b"question")
        end(capture, connection)
        add_noise(capture, 10)
    tables = read_pieces(capture, "pcap.flows", piece)
    assert len(tables) > 1 or piece > 10_000
    for table in tables:
        assert (np.diff(table["connection"]) > 0).all()
    rows = np.concatenate([table.rows for table in tables])
    texts = [text for table in tables for text in table["client"].to_pylist()]
    order = np.argsort(rows["connection"])
    whole = wirescan.scan(capture.to_pcap(), "pcap.flows", errors="mark")
    names = [name for name in rows.dtype.names if name not in (*PLACES, "reserved")]
    assert rows[order][names].tolist() == whole.rows[names].tolist()
    assert [texts[row] for row in order] == whole["client"].to_pylist()


def test_answers_are_paired_until_their_connection_is_released():
    capture = SimulatedCapture()
    for number in range(100):
        connection = make_connection(number)
        capture.connect(connection)
        capture.send(connection, 0, API_VERSIONS * 2)
        add_noise(capture, 30, 3)
        capture.send(connection, 1, RESPONSE)
        capture.close(connection)
    tables = read_pieces(capture, "kafka.responses?capture=true")
    latencies = [value for table in tables for value in table["latency"].tolist()]
    assert len(latencies) == 100
    assert min(latencies) >= 30 * SECOND
    reader = make_reader("kafka.responses")
    reader.feed(pcap.scan(capture.to_pcap()))
    assert len(get_scanner(reader)._waiting) < 20


# ---- memory

BATCH = 2000  # connections


def make_conversation():
    """Return the packets of one short connection to a broker, and where they may differ."""
    capture, connection = SimulatedCapture(), Connection((bytes(4), 40_000), SERVER)
    capture.connect(connection)
    capture.send(connection, 0, API_VERSIONS)
    capture.send(connection, 1, RESPONSE)
    capture.close(connection)
    return capture.to_pcap()[24:]


def make_batch(number, seconds):
    """Return a capture of BATCH short connections, which begin in these seconds."""
    packets = make_conversation()
    records = np.frombuffer(packets * BATCH, np.uint8).reshape(BATCH, -1).copy()
    numbers = np.arange(BATCH) + number * BATCH
    clients = (numbers + (10 << 24)).astype(">u4").view(np.uint8).reshape(BATCH, 4)
    times = (1_700_000_000 + number * seconds + np.arange(BATCH) * seconds // BATCH).astype("<u4")
    at = 0
    while at < len(packets):
        size = int.from_bytes(packets[at + 8 : at + 12], "little")
        records[:, at : at + 4] = times.view(np.uint8).reshape(BATCH, 4)
        client = at + 16 + 14 + (12 if packets[at + 16 + 14 + 12 : at + 46] == bytes(4) else 16)
        records[:, client : client + 4] = clients
        at += 16 + size
    return pcap.encode_pcap([], nanoseconds=True) + records.tobytes()


def make_reader(name):
    format = format_of(f"{name}?capture=true" if name.startswith("kafka") else name)
    return format.outermost.make_reader(errors="mark", check=True, limits=Limits())


@pytest.mark.parametrize(
    "name, batches", [("kafka.requests", 100), ("pcap.flows", 100), ("kafka.responses", 15)]
)
def test_many_short_connections_are_read_in_bounded_memory(name, batches):
    reader = make_reader(name)
    connections = []
    most = 0
    for number in range(batches):
        table = reader.feed(pcap.scan(make_batch(number, 20)))
        connections.append(table["connection"])
        assembler = reader._assembler
        most = max(most, count_connections(assembler))
        assert assembler.waiting_bytes == 0
        if name != "pcap.flows":
            scanner = getattr(get_scanner(reader), "_asked", None) or get_scanner(reader)
            assert len(scanner._known) <= count_connections(assembler)
            assert len(scanner._verdicts) <= 2 * BATCH
        if name == "kafka.responses":
            assert len(get_scanner(reader)._waiting) == 0
            assert len(get_scanner(reader)._answers._known) == 0  # those of the requests count
    # Those of the last minute are held, and those of the batch that is read.
    assert BATCH <= most < 6 * BATCH
    connections.append(reader.close()["connection"])
    numbers = np.concatenate(connections)
    assert np.array_equal(numbers, np.arange(batches * BATCH))


def test_connections_that_never_end_are_bounded(monkeypatch):
    monkeypatch.setattr("wirescan.pcap.captured_streams.MOST_CONNECTIONS", 3000)
    reader = make_reader("pcap.flows")
    total = 0
    for number in range(10):
        blocks = pcap.scan(make_batch(number, 1))
        is_syn = np.zeros(len(blocks), bool)
        is_syn[0] = True
        is_syn[1::8] = True
        total += len(reader.feed(blocks[is_syn]))
        assert count_connections(reader._assembler) <= 3000 + BATCH
    assert total == 10 * BATCH - 3000
    assert total + len(reader.close()) == 10 * BATCH


def test_frames_that_wait_for_answers_are_bounded(monkeypatch):
    monkeypatch.setattr("wirescan.pcap.extraction.waiting_frames.ALL_WAITING", 1500)
    monkeypatch.setattr("wirescan.pcap.extraction.waiting_frames.WAITING", 1000)
    reader = make_reader("kafka.responses")
    for number, count in ((1, 3), (2, 2900), (3, 200)):
        capture, connection = SimulatedCapture(), make_connection(number)
        capture.connect(connection)
        capture.send(connection, 0, API_VERSIONS * count)
        reader.feed(pcap.scan(capture.to_pcap()))
    assert len(get_scanner(reader)._waiting) == 3 + 1000 + 200


def test_frames_that_wait_for_answers_are_copied_seldom(monkeypatch):
    """One answer comes, to the last of 400 chunks."""
    copied = []
    monkeypatch.setattr(
        "wirescan.pcap.extraction.waiting_frames.copy_frames",
        lambda table, chosen, sizes: (
            copied.append(len(chosen)) or copy_frames(table, chosen, sizes)
        ),
    )
    reader = make_reader("kafka.responses")
    capture, connection = SimulatedCapture(), make_connection(1)
    capture.connect(connection)
    for _ in range(400):
        capture.send(connection, 0, API_VERSIONS)
    capture.send(connection, 1, RESPONSE)
    blocks = pcap.scan(capture.to_pcap())
    found = [len(reader.feed(blocks[i : i + 2])) for i in range(0, len(blocks), 2)]
    assert sum(found) == 1
    assert sum(copied) <= 400 * 8  # with a copy of all in every third chunk: 13,798


@pytest.mark.parametrize("name", ["kafka.responses", "kafka.exchanges"])
def test_requests_of_connections_without_answers_cost_nothing(name):
    """One connection has answers, and requests of many others wait."""
    capture = SimulatedCapture()
    for number in range(2, 100):
        connection = make_connection(number)
        capture.connect(connection)
        capture.send(connection, 0, API_VERSIONS)
    first = len(capture.packets)
    connection = make_connection(1)
    capture.connect(connection)
    for _ in range(5):
        capture.send(connection, 0, API_VERSIONS)
        capture.send(connection, 1, RESPONSE)
    spec = "kafka.responses?capture=true" if name == "kafka.responses" else name
    reader = format_of(spec).make_reader(errors="mark", check=True, limits=Limits())
    scanner = get_scanner(reader)
    asked = []
    if name == "kafka.responses":
        label = scanner._label
        scanner._label = lambda answers, requests: (
            asked.append(len(requests.table)) or label(answers, requests)
        )
    else:
        pair = scanner._exchange.pair
        scanner._exchange = replace(
            scanner._exchange,
            pair=lambda requests, answers, limits: (
                asked.append(len(requests.table)) or pair(requests, answers, limits=limits)
            ),
        )
    blocks = pcap.scan(capture.to_pcap())
    reader.feed(blocks[: first + 1])
    del asked[:]
    tables = [reader.feed(blocks[i : i + 1]) for i in range(first + 1, len(blocks))]
    assert sum(map(len, tables)) == 5
    assert max(asked) <= 2
    last = reader.close()
    assert len(last) == (0 if name == "kafka.responses" else 98)


def test_frames_of_some_connections_are_taken_in_their_order():
    table = kafka.requests(API_VERSIONS * 3)
    waiting = WaitingFrames(table[:0])
    sizes = table["size"].astype(np.int64)
    for first in range(0, 30, 3):
        sent = np.zeros(3, SENT)
        sent["packet"] = np.arange(first, first + 3)
        sent["connection"] = (1, 2, first)
        waiting.add(table, sent, sizes)
    taken, sent = waiting.take(np.array([2, 7, 9]))
    in_order = sent["packet"][sent["connection"] == 2].tolist()
    assert in_order == list(range(1, 30, 3))
    assert sent["packet"][sent["connection"] == 9].tolist() == [11]
    assert len(taken) == 11
    assert [bytes(taken.frame(i)) for i in range(11)] == [API_VERSIONS] * 11
    assert len(waiting) == 30 - 11
    assert len(waiting.take(np.array([2, 9]))[0]) == 0
    waiting.forget(np.array([1]))
    assert sorted(waiting.take()[1]["packet"].tolist()) == [2, 5, 8, *range(14, 30, 3)]
    assert len(waiting) == 0


def test_frames_that_wait_are_in_few_buffers():
    """A live capture has a piece for each packet, and a table holds at most 65,536 buffers."""
    table = kafka.requests(API_VERSIONS)
    waiting = WaitingFrames(table[:0])
    sizes = table["size"].astype(np.int64)
    for number in range(1000):
        sent = np.zeros(1, SENT)
        sent["packet"] = number
        waiting.add(table, sent, sizes)
    taken, sent = waiting.take()
    assert len(taken.buffers) <= 11
    assert sent["packet"].tolist() == list(range(1000))
    assert [bytes(taken.frame(i)) for i in range(1000)] == [API_VERSIONS] * 1000


def test_frames_that_wait_on_keep_nothing_of_former_buffers():
    """What they kept doubled in each piece, until a capture in 120 pieces took all memory."""
    table = kafka.requests(API_VERSIONS)
    waiting = WaitingFrames(table[:0])
    for connection in range(10):
        taken, sent = waiting.take()
        new = np.zeros(1, SENT)
        new["connection"] = connection
        frames = join([taken, table])
        waiting.add(frames, join_rows([sent, new]), frames["size"].astype(np.int64))
    taken, sent = waiting.take()
    assert sent["connection"].tolist() == list(range(10))
    assert len(taken.buffers) <= 2
    assert len(taken.origins) == len(taken.buffers)
    assert len(taken.stops) <= len(taken.buffers)


def make_flows(count):
    """Return a table of pcap.flows with some connections, whose numbers are 0, 1, ..."""
    capture = SimulatedCapture()
    for number in range(count):
        capture.connect(make_connection(number))
    return wirescan.scan(capture.to_pcap(), "pcap.flows")


def list_connections(flows):
    """Return the number, the ports and the endpoints of each connection."""
    return [
        (int(row["connection"]), int(row["packets_to_server"]), bytes(flows.frame(i)))
        for i, row in enumerate(flows.rows)
    ]


def test_connections_that_wait_are_those_that_were_kept():
    """Each is compared with a dict of the connections."""
    flows = make_flows(60)
    expected = dict(enumerate(list_connections(flows)))
    waiting = WaitingConnections()
    generator = random.Random(1)
    kept = set()
    for _ in range(200):
        chosen = generator.sample(
            sorted(set(range(60)) - kept), generator.randint(0, 60 - len(kept))
        )
        waiting.keep(flows, np.array(sorted(chosen), np.int64))
        kept |= set(chosen)
        assert len(waiting) == len(kept)
        taken = generator.choices(sorted(kept), k=generator.randint(0, 50)) if kept else []
        table, places = waiting.take(np.array(taken, np.int64))
        kept -= set(taken)
        connections = list_connections(table)
        assert connections == [expected[number] for number in sorted(set(taken))]
        assert table["parent"].tolist() == [-1] * len(table)
        assert [connections[place] for place in places] == [expected[number] for number in taken]


def test_the_last_of_two_rows_of_a_connection_waits():
    flows = make_flows(3)
    rows = join_rows([flows.rows, flows.rows])
    rows["packets_to_server"][:3] = 0
    waiting = WaitingConnections()
    waiting.keep(replace(flows, rows=rows), np.arange(6))
    table, places = waiting.take(np.arange(3))
    assert list_connections(table) == list_connections(flows)
    assert places.tolist() == [0, 1, 2]
    assert len(waiting) == 0


def count_calls(call):
    """Return how many functions a call calls, in Python and in C."""
    events = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        call()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


def test_connections_that_wait_cost_no_call_of_python_each():
    def keep_and_take(count):
        waiting = WaitingConnections()
        waiting.keep(flows, np.arange(count))
        waiting.take(np.arange(count))

    flows = make_flows(400)
    keep_and_take(400)
    few = count_calls(lambda: keep_and_take(10))
    assert count_calls(lambda: keep_and_take(400)) <= 2 * few  # a call for each: 38 * few


def test_connections_that_wait_are_copied_seldom(monkeypatch):
    """Each of 400 pieces has a connection that waits, and one that ends its wait."""
    copied = []
    monkeypatch.setattr(
        "wirescan.pcap.extraction.waiting_frames.copy_frames",
        lambda table, chosen, sizes: (
            copied.append(len(chosen)) or copy_frames(table, chosen, sizes)
        ),
    )
    flows = make_flows(800)
    waiting = WaitingConnections()
    for number in range(400):
        waiting.keep(flows, np.array([2 * number, 2 * number + 1]))
        waiting.take(np.array([2 * number]))
    assert len(waiting) == 400
    assert sum(copied) <= 800 * 8  # with a copy of all in each piece: 80,600


@pytest.mark.parametrize("name", ["kafka.responses", "kafka.exchanges"])
def test_requests_of_two_connections_by_turns_wait_in_few_buffers(name):
    capture = SimulatedCapture()
    connections = [make_connection(number) for number in range(2)]
    for connection in connections:
        capture.connect(connection)
    for number in range(400):
        turn, place = divmod(number, 8)
        connection = connections[place // 4]
        order = 4 * turn + place % 4
        capture.send(connection, 0, struct.pack(">Ihhih", 10, 18, 0, order, -1))
        if order > 8:
            capture.send(connection, 1, struct.pack(">Iih", 6, order - 8, 0))
    spec = "kafka.responses?capture=true" if name == "kafka.responses" else name
    reader = format_of(spec).make_reader(errors="strict", check=True, limits=Limits())
    blocks = pcap.scan(capture.to_pcap())
    waiting = get_scanner(reader)._waiting
    for first in range(0, len(blocks), 30):
        reader.feed(blocks[first : first + 30])
        for chunk in waiting._chunks:
            assert len(chunk.table.buffers) == 1
            assert len(chunk.table.origins) <= 1


@pytest.mark.parametrize(("acks", "waiting"), [(0, 0), (-1, 1)])
def test_only_the_headers_of_requests_wait_that_get_a_response(acks, waiting):
    body = {"acks": acks, "timeout_ms": 1, "topic_data": []}
    request = kafka.encode_request("Produce", 3, body, correlation_id=7, client_id="a client")
    capture, connection = SimulatedCapture(), make_connection(1)
    capture.connect(connection)
    capture.send(connection, 0, bytes(request))
    reader = make_reader("kafka.responses")
    reader.feed(pcap.scan(capture.to_pcap()))
    table, _ = get_scanner(reader)._waiting.take()
    assert len(table) == waiting
    assert table.rows["size"].tolist() == kafka.requests(request).rows["body"].tolist()[:waiting]


def test_the_bytes_of_frames_that_wait_for_answers_are_bounded(monkeypatch):
    monkeypatch.setattr("wirescan.pcap.extraction.waiting_frames.WAITING_BYTES", 100)
    capture, connection = SimulatedCapture(), make_connection(1)
    capture.connect(connection)
    capture.send(connection, 0, API_VERSIONS * 50)
    reader = make_reader("kafka.responses")
    reader.feed(pcap.scan(capture.to_pcap()))
    assert len(get_scanner(reader)._waiting) == 100 // len(API_VERSIONS)


def test_held_bytes_beyond_the_limit_give_up_what_is_missing():
    """The capture has no acknowledgment, so nothing else shows that bytes are lost."""
    capture, connection = SimulatedCapture(), make_connection(1)
    capture.connect(connection)
    for _ in range(2):
        connection.sent[0] += b"gap"
        capture.send(connection, 0, b"x" * 1000, size=100)
    assembler = PacketFollower("first", 1500)
    feed(assembler, capture)
    _, _, streams, _, _ = assembler.take()
    assert streams["lost"].tolist() == [3, 0]
    assert streams["size"].tolist() == [0, 1000]
    assembler.finish()
    _, _, streams, _, _ = assembler.take()
    assert streams["lost"].tolist() == [0, 3, 0]
    assert streams["size"].tolist() == [1000, 0, 1000]


@pytest.mark.parametrize("connections", [None, 1000])
def test_endpoints_that_connect_again_and_again_take_linear_time(connections):
    capture = SimulatedCapture()
    connection = make_connection(1)
    for number in range(4):
        connection.first = (number * 1000, 0)
        capture.add(connection, 0, SYN, position=-1)
    packets = pcap.packets(pcap.scan(capture.to_pcap()))

    def follow(times):
        assembler = Assembler("first", connections=connections)
        for _ in range(times):
            assembler.feed(np.tile(packets.rows, 1000), packets.buffers)
            assembler.take(released=True)
            assembler.drop_released()

    assert_linear(lambda: follow(20), lambda: follow(160))


def test_the_end_of_one_side_ends_no_connection():
    capture, connection = start()
    capture.add(connection, 0, FIN | ACK)
    capture.add(connection, 1, ACK, acknowledged=len(connection.sent[0]) + 1)
    add_noise(capture, 3600)
    assert feed(PacketFollower("first", connections=100), capture) == []
