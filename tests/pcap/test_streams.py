"""Connections, and the bytes that each side sent, in simulated captures."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.support.packet_follower import PacketFollower
from tests.support.simulated_capture import (
    ACK,
    FIN,
    PSH,
    RST,
    STEP,
    SYN,
    Connection,
    SimulatedCapture,
    shuffle_packets,
)
from wirescan import Fault, FrameError, pcap
from wirescan.core.parallel import FixedWorkers, run_each
from wirescan.pcap.assembly.assembler import Assembler
from wirescan.testing.guarded_memory import GuardedMemory

CLIENT = (bytes([10, 0, 0, 1]), 40_000)
SERVER = (bytes([10, 0, 0, 2]), 9092)
CLIENT_6 = (bytes(15) + b"\x01", 50_000)
SERVER_6 = (bytes(15) + b"\x02", 4222)


def read_flows(capture):
    return pcap.flows(pcap.packets(pcap.scan(capture.to_pcap())))


def read_streams(capture, **options):
    return pcap.streams(read_flows(capture), **options)


def collect_bytes(streams):
    """Return {(connection, direction): [(position, bytes)]} of the rows without a fault."""
    found = {}
    for row, connection in zip(streams, streams["connection"].tolist()):
        if row.fault == 0:
            key = connection, pcap.Direction(row.kind).name
            found.setdefault(key, []).append((row.position, bytes(streams.frame(row._index))))
    return found


def make_conversation(**attributes):
    capture = SimulatedCapture()
    connection = Connection(CLIENT, SERVER, **attributes)
    capture.connect(connection)
    return capture, connection


def test_each_side_has_its_bytes():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"question " * 500)
    capture.send(connection, 1, b"answer" * 1000)
    capture.close(connection)
    streams = read_streams(capture)
    assert collect_bytes(streams) == {
        (0, "TO_SERVER"): [(0, b"question " * 500)],
        (0, "TO_CLIENT"): [(0, b"answer" * 1000)],
    }
    assert streams.outer["kind"].tolist() == [pcap.FlowState.COMPLETE]


@pytest.mark.parametrize("seed", range(20))
def test_repeated_and_late_packets_change_nothing(seed):
    numbers = random.Random(seed)
    capture, connection = make_conversation(first=(2**32 - 700, 2**32 - 3))
    sent = [numbers.randbytes(numbers.randrange(4000)) for _ in range(2)]
    for side in (0, 1):
        capture.send(connection, side, sent[side], size=numbers.randrange(1, 300))
    capture.packets = shuffle_packets(capture.packets, seed)
    found = collect_bytes(read_streams(capture))
    expected = {
        (0, name): [(0, sent[side])]
        for side, name in enumerate(("TO_SERVER", "TO_CLIENT"))
        if sent[side]
    }
    assert found == expected


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_a_capture_give_the_bytes_of_the_whole(seed):
    numbers = random.Random(seed)
    capture, connection = make_conversation()
    sent = [numbers.randbytes(3000) for _ in range(2)]
    for side in (0, 1):
        capture.send(connection, side, sent[side], size=100)
    capture.packets = shuffle_packets(capture.packets, seed)
    packets = pcap.packets(pcap.scan(capture.to_pcap()))
    assembler = Assembler("first")
    found = {pcap.Direction.TO_SERVER: b"", pcap.Direction.TO_CLIENT: b""}
    at = 0
    while at < len(packets):
        count = numbers.randrange(1, 9)
        part = packets[at : at + count]
        at += count
        # The bytes are gone after `release`, as those of a chunk of a stream are.
        held = [bytearray(buffer) for buffer in part.buffers]
        assembler.feed(part.rows, held)
        if at >= len(packets):
            assembler.finish()
        _, _, rows, block, _ = assembler.take(everything=at >= len(packets))
        data = bytes(block)
        consumed = np.zeros(len(rows), np.int64)
        for place, row in enumerate(rows):
            assert row["position"] == len(found[row["kind"]])
            consumed[place] = row["size"] if at >= len(packets) else numbers.randint(0, row["size"])
            start = int(row["start"])
            found[row["kind"]] += data[start : start + int(consumed[place])]
        assembler.release(consumed)
        for buffer in held:
            buffer[:] = bytes(len(buffer))
    assert list(found.values()) == sent


def test_lost_bytes_are_a_fault_with_their_number():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"a" * 100, size=10)
    del capture.packets[5]
    with pytest.raises(FrameError) as caught:
        read_streams(capture)
    assert (caught.value.fault, caught.value.offset) == (Fault.LOST, 20)
    assert not caught.value.inflated
    streams = read_streams(capture, errors="mark")
    assert streams["fault"].tolist() == [0, Fault.LOST, 0]
    assert streams["lost"].tolist() == [0, 10, 0]
    assert streams["position"].tolist() == [0, 20, 30]
    assert streams["size"].tolist() == [20, 0, 70]
    assert streams.outer["lost_to_server"].tolist() == [10]
    assert len(read_streams(capture, errors="skip")) == 2


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_several_threads_copy_the_bytes_and_segments_of_one(workers):
    """Runs of about 1 MiB are shared. One connection has several, and a gap; others are small."""
    numbers = random.Random(workers)
    capture, large = make_conversation()
    sent = numbers.randbytes(5_000_000)
    capture.send(large, 0, sent, size=60_000)
    del capture.packets[40]
    for number in range(5):
        small = Connection((CLIENT[0], 50_000 + number), SERVER)
        capture.connect(small)
        capture.send(small, number % 2, numbers.randbytes(300), size=100)
    tables = []
    for threads in (1, workers):
        with FixedWorkers(threads):
            tables.append(read_streams(capture, errors="mark"))
    one, several = tables
    assert one.rows.tobytes() == several.rows.tobytes()
    assert [bytes(buffer) for buffer in one.buffers] == [
        bytes(buffer) for buffer in several.buffers
    ]
    found = collect_bytes(several)[0, "TO_SERVER"]
    assert len(found) == 2
    for position, data in found:
        assert sent[position : position + len(data)] == data


def test_several_threads_copy_many_bytes(monkeypatch):
    capture, connection = make_conversation()
    capture.send(connection, 0, bytes(4_000_000), size=60_000)
    shared = []

    def note_functions(functions):
        shared.append(len(functions))
        return run_each(functions)

    monkeypatch.setattr("wirescan.pcap.assembly.assembler.run_each", note_functions)
    for workers in (1, 3):
        with FixedWorkers(workers):
            read_streams(capture)
    assert shared == [1, 3]


def test_after_an_error_the_bytes_and_gaps_are_taken_again(monkeypatch):
    capture, connection = make_conversation()
    capture.send(connection, 0, b"a" * 100, size=10)
    del capture.packets[3]  # a gap before the first bytes
    packets = pcap.packets(pcap.scan(capture.to_pcap()))
    follower = Assembler("first")
    follower.feed(packets.rows, packets.buffers)
    follower.finish()

    def fail(functions):
        raise MemoryError

    with monkeypatch.context() as changed:
        changed.setattr("wirescan.pcap.assembly.assembler.run_each", fail)
        with pytest.raises(MemoryError):
            follower.take()
        with pytest.raises(ValueError, match="2 numbers for 0 rows"):
            follower.release(np.zeros(2, np.int64))
    _, _, rows, block, _ = follower.take()
    assert rows["fault"].tolist() == [Fault.LOST, 0]
    assert rows["time_end"][0] == rows["time"][0] == rows["time"][1]
    assert bytes(block) == b"a" * 90


def test_a_stream_of_4_gib_is_an_error():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"a" * 60_000, size=60_000)
    packets = pcap.packets(pcap.scan(capture.to_pcap()))
    rows = np.concatenate([packets.rows[:3], np.repeat(packets.rows[3:], (1 << 32) // 60_000 + 1)])
    first = int(rows["sequence"][3])
    rows["sequence"][3:] = (first + 60_000 * np.arange(len(rows) - 3)) % (1 << 32)
    assembler = Assembler("first")
    assembler.feed(rows, packets.buffers)
    for _ in range(2):
        with pytest.raises(ValueError, match="a side of connection 0 has 4 GiB .* in pieces"):
            assembler.take()


def test_bytes_that_the_receiver_has_are_given_before_the_capture_ends():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"a" * 30, size=10)
    del capture.packets[4]
    capture.add(connection, 1, ACK)
    capture.now += 2 * 10**9
    capture.add(connection, 1, ACK)
    packets = pcap.packets(pcap.scan(capture.to_pcap()))
    assembler = Assembler("first")
    assembler.feed(packets.rows[:-1], packets.buffers)
    assert assembler.take()[2]["fault"].tolist() == [0]
    assembler.feed(packets.rows[-1:], packets.buffers)
    assert assembler.take()[2]["fault"].tolist() == [0, Fault.LOST, 0]


@pytest.mark.parametrize("policy, expected", [("first", b"..ABCDEF"), ("last", b"..ABxyzF")])
def test_the_policy_decides_where_held_bytes_overlap(policy, expected):
    capture, connection = make_conversation()
    capture.add(connection, 0, PSH | ACK, position=2, payload=b"ABCDEF")
    capture.add(connection, 0, PSH | ACK, position=4, payload=b"xyz")
    capture.add(connection, 0, PSH | ACK, position=0, payload=b"..")
    streams = read_streams(capture, policy=policy)
    assert bytes(streams.frame(0)) == expected
    assert streams.outer["repeated_to_server"].tolist() == [3]


def test_an_unknown_policy_is_an_error():
    capture, _ = make_conversation()
    with pytest.raises(ValueError, match="first or last, not 'best'"):
        read_streams(capture, policy="best")


def test_keep_alives_and_probes_of_a_closed_window_add_no_byte():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"abc")
    capture.add(connection, 0, ACK, position=2, payload=b"c")  # a keep-alive
    capture.add(connection, 0, ACK, position=3, payload=b"d")  # a probe, which is sent again
    capture.send(connection, 0, b"def")
    assert collect_bytes(read_streams(capture)) == {(0, "TO_SERVER"): [(0, b"abcdef")]}


def test_a_packet_that_repeats_held_bytes_is_a_retransmission():
    capture, connection = make_conversation()
    capture.add(connection, 0, PSH | ACK, position=2, payload=b"cdef")
    capture.add(connection, 0, PSH | ACK, position=3, payload=b"de")  # all held already
    capture.add(connection, 0, PSH | ACK, position=4, payload=b"efg")  # one new byte
    capture.add(connection, 0, PSH | ACK, position=0, payload=b"ab")
    flow = read_flows(capture)[0]
    assert (flow.retransmissions_to_server, flow.repeated_to_server) == (1, 4)
    assert (flow.bytes_to_server, flow.lost_to_server) == (7, 0)


@pytest.mark.parametrize("side", (0, 1))
def test_a_capture_may_begin_with_a_keep_alive(side):
    capture = SimulatedCapture()
    connection = Connection(CLIENT, SERVER, sent=[b"before", b"before"])
    capture.add(connection, side, ACK, position=5)  # one byte before the next one
    capture.add(connection, 1 - side, ACK)
    capture.send(connection, side, b"after")
    capture.add(connection, 1 - side, ACK)
    name = ("TO_SERVER", "TO_CLIENT")[side]
    assert collect_bytes(read_streams(capture)) == {(0, name): [(0, b"after")]}


def test_bytes_after_an_empty_packet_may_be_lost():
    capture = SimulatedCapture()
    connection = Connection(CLIENT, SERVER, sent=[b"before", b"before"])
    capture.add(connection, 0, ACK)
    capture.send(connection, 0, b"a")
    capture.add(connection, 0, PSH | ACK, position=8, payload=b"c")
    flow = read_flows(capture)[0]
    assert (flow.bytes_to_server, flow.lost_to_server) == (2, 1)


@pytest.mark.parametrize("answer", (0, 1))
def test_a_server_may_answer_a_syn_again_with_another_number(answer):
    capture = SimulatedCapture()
    answers = [Connection(CLIENT, SERVER, first=(1000, number)) for number in (5000, 3_000_000_000)]
    connection = answers[answer]  # the answer that the client acknowledges
    capture.add(connection, 0, SYN, position=-1)
    for other in answers:
        capture.add(other, 1, SYN | ACK, position=-1)
    capture.add(connection, 0, ACK)
    # The client has an answer, so it ignores this one.
    capture.add(answers[1 - answer], 1, SYN | ACK, position=-1)
    capture.add(connection, 0, ACK)
    capture.send(connection, 1, b"hello")
    assert collect_bytes(read_streams(capture)) == {(0, "TO_CLIENT"): [(0, b"hello")]}


def test_a_refused_connection_may_be_tried_again():
    capture = SimulatedCapture()
    connection = Connection(CLIENT, SERVER)
    capture.add(connection, 0, SYN, position=-1)
    capture.add(connection, 1, RST | ACK, position=-connection.first[1] - 1)  # its number is 0
    assert read_flows(capture)["kind"].tolist() == [pcap.FlowState.RESET]
    capture.connect(connection)
    capture.send(connection, 1, b"hello")
    streams = read_streams(capture)
    assert collect_bytes(streams) == {(0, "TO_CLIENT"): [(0, b"hello")]}
    assert streams.outer["kind"].tolist() == [pcap.FlowState.UNFINISHED]


def test_a_capture_may_begin_inside_a_connection():
    capture = SimulatedCapture()
    connection = Connection(CLIENT, SERVER)
    connection.sent[0] = b"before"
    capture.send(connection, 0, b"after")
    streams = read_streams(capture)
    assert collect_bytes(streams) == {(0, "TO_SERVER"): [(0, b"after")]}
    assert streams.outer["is_begun_earlier"].tolist() == [1]
    assert streams.outer["server_port"].tolist() == [9092]


def test_a_flow_counts_packets_and_times():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"a" * 10, size=5)
    capture.packets.append((capture.now, capture.packets[3][1]))
    capture.now += STEP
    capture.add(connection, 1, RST | ACK)
    flow = read_flows(capture)[0]
    assert flow.kind == pcap.FlowState.RESET
    assert flow.handshake == 2 * STEP
    assert flow.time_end - flow.time == 6 * STEP
    assert (flow.packets_to_server, flow.packets_to_client) == (5, 2)
    assert (flow.bytes_to_server, flow.bytes_to_client) == (10, 0)
    assert (flow.retransmissions_to_server, flow.repeated_to_server) == (1, 5)


@pytest.mark.parametrize("address", [SERVER[0], SERVER_6[0]], ids=["IPv4", "IPv6"])
def test_many_endpoints_with_one_port_are_different(address):
    """Some slots of the hash table have several connections."""
    capture = SimulatedCapture()
    for number in range(1, 2001):
        client = address[:-2] + number.to_bytes(2, "big")
        capture.connect(Connection((client, 7), (address[:-2] + b"\xff\xff", 7)))
    flows = read_flows(capture)
    assert len(flows) == 2000
    assert set(flows["packets_to_server"].tolist()) == {2}
    assert set(flows["packets_to_client"].tolist()) == {1}


def test_the_same_endpoints_may_connect_again():
    capture, first = make_conversation()
    capture.send(first, 0, b"first")
    capture.close(first)
    second = Connection(CLIENT, SERVER, first=(70_000, 90_000))
    capture.connect(second)
    capture.send(second, 0, b"second")
    assert collect_bytes(read_streams(capture)) == {
        (0, "TO_SERVER"): [(0, b"first")],
        (1, "TO_SERVER"): [(0, b"second")],
    }


def test_the_syn_of_the_next_connection_may_be_missing():
    capture, first = make_conversation()
    capture.send(first, 0, b"first")
    capture.close(first)
    # An answer that was late is one of the connection that ended.
    capture.add(first, 1, SYN | ACK, position=-1)
    second = Connection(CLIENT, SERVER, first=(70_000, 90_000))
    capture.add(second, 1, SYN | ACK, position=-1)
    capture.add(second, 0, ACK)
    capture.send(second, 0, b"second")
    streams = read_streams(capture)
    assert collect_bytes(streams) == {
        (0, "TO_SERVER"): [(0, b"first")],
        (1, "TO_SERVER"): [(0, b"second")],
    }
    assert streams.outer["packets_to_client"].tolist() == [3, 1]
    assert streams.outer["is_begun_earlier"].tolist() == [0, 1]
    assert streams.outer["client"].to_pylist() == ["10.0.0.1:40000"] * 2


def test_a_repeated_syn_begins_no_connection():
    capture = SimulatedCapture()
    connection = Connection(CLIENT, SERVER)
    capture.add(connection, 0, SYN, position=-1)
    capture.connect(connection)
    assert len(read_flows(capture)) == 1


def test_endpoints_are_text():
    capture = SimulatedCapture()
    for ends in ((CLIENT, SERVER), (CLIENT_6, SERVER_6)):
        connection = Connection(*ends)
        capture.connect(connection)
        capture.send(connection, 0, b"x")
    streams = read_streams(capture)
    assert streams["client"].to_pylist() == ["10.0.0.1:40000", "[::1]:50000"]
    assert streams["server"].to_pylist() == ["10.0.0.2:9092", "[::2]:4222"]


def test_chosen_flows_have_their_streams_alone():
    capture = SimulatedCapture()
    for number in range(4):
        connection = Connection((CLIENT[0], 40_000 + number), SERVER)
        capture.connect(connection)
        capture.send(connection, 0, b"%d" % number)
    flows = read_flows(capture)
    streams = pcap.streams(flows[flows["client_port"] % 2 == 1])
    assert [bytes(streams.frame(row)) for row in range(len(streams))] == [b"1", b"3"]
    assert streams["client"].to_pylist() == ["10.0.0.1:40001", "10.0.0.1:40003"]


def test_segments_say_when_each_byte_came():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"a" * 30, size=10)
    streams = read_streams(capture)
    segments = np.frombuffer(streams.buffers[1], pcap.SEGMENT)
    assert segments["packet"].tolist() == [4, 5, 6]
    assert segments["start"].tolist() == [0, 10, 20]
    assert np.diff(segments["time"]).tolist() == [STEP, STEP]
    assert streams["time_end"][0] - streams["time"][0] == 2 * STEP


def test_fin_with_the_last_bytes_ends_the_connection():
    capture, connection = make_conversation()
    capture.add(connection, 0, FIN | ACK, payload=b"bye")
    connection.sent[0] += b"bye"
    capture.add(connection, 1, FIN | ACK, acknowledged=4)
    streams = read_streams(capture)
    assert collect_bytes(streams) == {(0, "TO_SERVER"): [(0, b"bye")]}
    assert streams.outer["kind"].tolist() == [pcap.FlowState.COMPLETE]


def test_a_repeated_syn_without_a_time_begins_no_connection():
    capture = SimulatedCapture(now=0)
    connection = Connection(CLIENT, SERVER)
    for _ in range(2):
        capture.now = 0
        capture.add(connection, 0, SYN, position=-1)
    assert len(read_flows(capture)) == 1


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_any_make_read_nothing_outside_their_frames(seed):
    numbers = np.random.default_rng(seed)
    rows = np.frombuffer(numbers.bytes(4000 * pcap.PACKET.itemsize), pcap.PACKET).copy()
    rows["start"] = numbers.integers(0, 50, len(rows))
    rows["size"] = numbers.integers(0, 50, len(rows))
    rows["kind"] = pcap.PacketKind.TCP
    for name in ("source_address", "destination_address", "payload"):
        rows[f"{name}_at"] = numbers.integers(0, 60, len(rows))
        rows[f"{name}_size"] = numbers.choice([-1, 4, 16, 20], len(rows))
    rows["buffer"] = 0
    rows["fault"] = 0
    memory = GuardedMemory(100)
    for place in (memory.place_at_end, memory.place_at_beginning):
        assembler = Assembler("first")
        assembler.feed(rows, (place(bytes(98)),))
        assembler.finish()
        _, _, streams, _, _ = assembler.take()
        assert len(streams) > 0


@pytest.mark.parametrize("read", [pcap.packets, pcap.flows, pcap.streams])
def test_another_table_is_a_type_error(read):
    capture, _ = make_conversation()
    table = read_streams(capture)
    with pytest.raises(TypeError):
        read(table)


def test_streams_of_flows_are_the_same_whenever_they_are_read():
    """Connections that were just followed are not followed again."""
    first = pcap.packets(pcap.scan(make_talk(b"first" * 400)))
    other = pcap.packets(pcap.scan(make_talk(b"other" * 300)))
    flows = pcap.flows(first)
    expected = describe_bytes(pcap.streams(flows))
    assert expected == [b"first" * 400]
    # Again, after others were followed, and with a part of the packets.
    assert describe_bytes(pcap.streams(flows)) == expected
    flows = pcap.flows(first)
    pcap.flows(other)
    assert describe_bytes(pcap.streams(flows)) == expected
    flows = pcap.flows(first)
    assert describe_bytes(pcap.streams(pcap.flows(other))) == [b"other" * 300]
    assert describe_bytes(pcap.streams(flows, policy="last")) == expected
    flows = pcap.flows(first)
    part = replace(flows, outer=first[: len(first) - 1])
    assert describe_bytes(pcap.streams(part)) == [expected[0][:1448]]
    flows = pcap.flows(first)
    capture = bytes(first.buffers[0]).replace(b"first", b"FIRST")
    changed = replace(flows, outer=replace(first, buffers=(memoryview(capture),)))
    assert describe_bytes(pcap.streams(changed))[0].startswith(b"FIRST")


def make_talk(data):
    capture = SimulatedCapture()
    connection = Connection((bytes([10, 0, 0, 1]), 40_000), (bytes([10, 0, 0, 2]), 9092))
    capture.connect(connection)
    capture.send(connection, 0, data)
    return capture.to_pcap()


def describe_bytes(streams):
    return [bytes(streams.frame(row)) for row in range(len(streams))]


def find_places(capture, held=64 << 20):
    """Return (size, packet, ready, order, order_of_all) of the segments of the first side."""
    assembler = PacketFollower("first", held)
    assembler.follow_packets(capture.packets)
    assembler.finish()
    _, _, rows, block, segments = assembler.take()
    stop = int(rows["size"][rows["kind"] == pcap.Direction.TO_SERVER].sum())
    segments = segments[segments["start"] < stop]
    sizes = np.diff(np.append(segments["start"], stop))
    names = ("packet", "ready", "order", "order_of_all")
    return list(zip(sizes.tolist(), *(segments[name].tolist() for name in names)))


def send_late(capture, connection, between):
    """Send two packets, the first one after the bytes `between` of the other side."""
    capture.send(connection, 0, b"a" * 10)
    late = capture.packets.pop()
    capture.send(connection, 0, b"b" * 20)
    capture.send(connection, 1, between, size=1000)
    capture.packets.append((capture.now, late[1]))


def test_bytes_have_the_places_of_their_packets():
    capture, connection = make_conversation()
    send_late(capture, connection, b"c")
    assert find_places(capture) == [(10, 6, 6, 6, 6), (20, 4, 6, 4, 4)]


def test_bytes_that_came_too_late_have_the_place_of_the_missing_ones():
    capture, connection = make_conversation()
    send_late(capture, connection, b"c" * 1000)
    assert find_places(capture, 999) == [(10, 6, 6, 6, 6), (20, 4, 6, 6, 6)]
    assert find_places(capture, 1030) == [(10, 6, 6, 6, 6), (20, 4, 6, 4, 4)]


def test_other_connections_wait_for_ten_seconds():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"a" * 10)
    late = capture.packets.pop()
    capture.send(connection, 0, b"b" * 20)
    capture.now += 11 * 10**9
    capture.packets.append((capture.now, late[1]))
    assert find_places(capture) == [(10, 5, 5, 5, 5), (20, 4, 5, 4, 5)]


def test_bytes_behind_lost_ones_have_the_places_of_their_packets():
    capture, connection = make_conversation()
    capture.send(connection, 0, b"a" * 10)
    capture.packets.pop()
    capture.send(connection, 0, b"b" * 20)
    assert find_places(capture) == [(20, 4, 5, 4, 4)]
