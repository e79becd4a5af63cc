"""Fragments of IP datagrams with TCP: the streams are those of the whole datagrams."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

import wirescan
from tests.support.fragments import (
    ETHERNET,
    IPV4,
    SECOND,
    cut_packet,
    cut_packets,
    make_fragment,
    put_together,
    read_payload,
)
from tests.support.packet_follower import PacketFollower
from tests.support.simulated_capture import (
    ACK,
    EPOCH,
    PSH,
    Connection,
    SimulatedCapture,
    make_ethernet,
)
from wirescan import Fault, pcap
from wirescan.pcap.assembly.assembler import Assembler
from wirescan.reading.chunked import iter_tables
from wirescan.testing.cost import assert_linear
from wirescan.testing.guarded_memory import GuardedMemory

ENDS = {
    4: ((bytes([10, 0, 0, 1]), 40_000), (bytes([10, 0, 0, 2]), 9092)),
    6: ((bytes(15) + b"\x01", 50_000), (bytes(15) + b"\x02", 4222)),
}
LARGEST = 65_535 - 20  # bytes after the header of IPv4
UDP, DESTINATION_OPTIONS, TCP = 17, 60, 6


def make_capture(version, seed=0, size=1400):
    """Return a capture of one connection in which both sides send 20,000 bytes."""
    numbers = random.Random(seed)
    capture, connection = SimulatedCapture(), Connection(*ENDS[version])
    capture.connect(connection)
    for side in (0, 1):
        capture.send(connection, side, numbers.randbytes(20_000), size=size)
    capture.close(connection)
    return capture


def read_streams(packets):
    """Return the connections and the bytes of packets, without the numbers of the packets."""
    raw = pcap.encode_pcap(packets, nanoseconds=True)
    packets = pcap.packets(pcap.scan(raw), errors="mark")
    streams = pcap.streams(pcap.flows(packets))
    assert streams.outer is not None
    names = [name for name in streams.dtype.names if name not in ("reserved",)]
    flow_names = [name for name in streams.outer.dtype.names if name not in ("parent", "reserved")]
    segments = np.frombuffer(streams.buffers[1], pcap.SEGMENT)
    return (
        streams.outer.rows[flow_names].tolist(),
        streams.rows[names].tolist(),
        [bytes(streams.frame(row)) for row in range(len(streams))],
        segments[["start", "time"]].tolist(),
    )


def feed(packets, assembler=None):
    """Feed packets to an assembler, and return it."""
    assembler = assembler or PacketFollower("first")
    assembler.follow_packets(packets)
    return assembler


def make_segment(payload=b"", position=0, version=4):
    """Return a packet of the client with these bytes."""
    capture = SimulatedCapture()
    capture.add(Connection(*ENDS[version]), 0, PSH | ACK, position=position, payload=payload)
    return capture.packets[0][1]


# ---- whole datagrams

ORDERS = {
    "in order": lambda group, chance: group,
    "backwards": lambda group, chance: group[::-1],
    "any": lambda group, chance: chance.sample(group, len(group)),
    "twice": lambda group, chance: [part for part in group for _ in range(2)],
    "all twice": lambda group, chance: group * 2,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("version", [4, 6])
def test_streams_are_those_without_fragments(version, order, seed):
    capture = make_capture(version, seed)
    chance = random.Random(seed)
    groups = [ORDERS[order](group, chance) for group in cut_packets(capture.packets, seed)]
    packets = list(itertools.chain(*groups))
    assert len(packets) > 2 * len(capture.packets)
    found, expected = read_streams(packets), read_streams(capture.packets)
    if "twice" in order:
        # Packets without fragments come twice too, and are counted.
        found, expected = found[1:], expected[1:]
    assert found == expected
    assert feed(packets).incomplete_datagrams == 0


@pytest.mark.parametrize("piece", [61, 3000])
def test_pieces_of_a_capture_have_the_streams_of_the_whole(piece):
    capture = make_capture(4, 5)
    packets = list(itertools.chain(*cut_packets(capture.packets, 5)))
    raw = pcap.encode_pcap(packets, nanoseconds=True)
    tables = iter_tables(raw, format="pcap.streams", piece=piece)
    sent = {kind: b"" for kind in pcap.Direction}
    for table in tables:
        for row, kind in enumerate(table["kind"].tolist()):
            sent[kind] += bytes(table.frame(row))
    assert list(sent.values()) == read_streams(capture.packets)[2]


def test_a_datagram_has_the_time_and_the_number_of_its_last_fragment():
    data = make_segment(b"x" * 100)
    parts = cut_packet(data, 7, [24, 64])
    packets = [(EPOCH + at * SECOND, parts[part]) for at, part in enumerate((2, 0, 1))]
    streams = pcap.streams(
        pcap.flows(pcap.packets(pcap.scan(pcap.encode_pcap(packets, nanoseconds=True))))
    )
    assert streams["time"].tolist() == [EPOCH + 2 * SECOND]
    assert np.frombuffer(streams.buffers[1], pcap.SEGMENT)["packet"].tolist() == [3]
    assert streams.outer["packets_to_server"].tolist() == [1]
    assert streams.outer["parent"].tolist() == [2]


def test_each_fragment_is_a_row_of_the_packets():
    parts = [(EPOCH, part) for part in cut_packet(make_segment(b"x" * 100), 7, [24, 64])]
    rows = pcap.packets(pcap.scan(pcap.encode_pcap(parts)))
    assert rows["kind"].tolist() == [pcap.PacketKind.FRAGMENT] * 3
    assert rows["payload_size"].tolist() == [24, 40, 56]


def test_extension_headers_of_ipv6_may_be_in_the_fragments():
    whole = make_segment(b"y" * 50, version=6)
    options = bytes([TCP, 0]) + bytes(6)
    payload = options + read_payload(whole)
    parts = [
        make_fragment(
            whole,
            payload[at : at + 16],
            number=1,
            offset=at,
            more=at + 16 < len(payload),
            protocol=DESTINATION_OPTIONS,
        )
        for at in range(0, len(payload), 16)
    ]
    streams = read_streams([(EPOCH, part) for part in parts])[2]
    assert streams == [b"y" * 50]


def test_the_largest_datagram_is_put_together():
    data = make_segment(bytes(LARGEST - 20))
    parts = cut_packet(data, 1, range(1480, LARGEST, 1480))
    assert read_streams([(EPOCH, part) for part in parts])[2] == [bytes(LARGEST - 20)]


def test_frames_are_read_in_fragmented_captures():
    frame = b"PUB a 3\r\nabc\r\n"
    capture, connection = SimulatedCapture(), Connection(*ENDS[6])
    capture.connect(connection)
    capture.send(connection, 0, frame * 200)
    packets = list(itertools.chain(*cut_packets(capture.packets, 1)))
    table = wirescan.scan(pcap.encode_pcap(packets, nanoseconds=True), "nats.messages")
    assert len(table) == 200


# ---- overlaps, missing fragments, false ones


def test_the_first_bytes_win_where_fragments_overlap():
    data = make_segment(b"A" * 24 + b"B" * 24)
    payload = read_payload(data)
    other = bytes(LARGEST)[: len(payload)]
    fragments = [
        make_fragment(data, payload[:32], number=1, offset=0, more=True),
        make_fragment(data, other[:48], number=1, offset=0, more=True),
        make_fragment(data, payload[40:], number=1, offset=40, more=False),
    ]
    streams = read_streams([(EPOCH, part) for part in fragments])[2]
    expected = payload[:32] + other[32:40] + other[40:48] + payload[48:]
    assert streams == [expected[20:]]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("version", [4, 6])
def test_any_fragments_agree_with_the_reference(version, seed):
    """Fragments of other sizes, places and ids than those of a sender, some of them late."""
    chance = random.Random(seed)
    capture = make_capture(version, seed, size=chance.choice([30, 100, 1400]))
    packets, waiting = [], []
    for time, data in capture.packets:
        payload = read_payload(data)
        number = chance.randrange(4)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(0, len(payload) + 8, 8)
            stop = min(at + chance.choice([8, 16, 24, 4000, 7]), len(payload))
            waiting.append(
                make_fragment(
                    data,
                    payload[at : max(at, stop)],
                    number=number,
                    offset=at,
                    more=(stop < len(payload)) ^ (chance.random() < 0.02),
                    protocol=TCP if version == 4 or chance.random() < 0.9 else DESTINATION_OPTIONS,
                )
            )
        if chance.random() < 0.8:
            waiting += cut_packet(data, number, range(16, len(payload), 16))
        chance.shuffle(waiting)
        now = time + chance.choice([0, 0, 0, 2 * SECOND, 31 * SECOND])
        packets += [(now, part) for part in waiting[3:]]
        waiting = waiting[:3]
    expected = list(put_together(packets))
    assert any(len(data) > 60 for _, data in expected)
    assert read_streams(packets) == read_streams(expected)


def test_missing_fragments_are_lost_bytes(caplog):
    capture, connection = SimulatedCapture(), Connection(*ENDS[4])
    capture.connect(connection)
    for _ in range(3):
        capture.send(connection, 0, b"x" * 100)
    parts = cut_packet(capture.packets[4][1], 1, [40, 80])
    del parts[1]
    capture.packets[4:5] = [(capture.packets[4][0], part) for part in parts]
    flows = pcap.flows(pcap.packets(pcap.scan(capture.to_pcap())))
    assert flows["lost_to_server"].tolist() == [100]
    assert "1 fragmented IP datagrams of TCP are incomplete" in caplog.text
    assert pcap.streams(flows, errors="mark")["fault"].tolist() == [0, Fault.LOST, 0]
    caplog.clear()
    for format in ("pcap.flows", "nats.messages?capture=true"):
        list(iter_tables(capture.to_pcap(), format=format, errors="mark"))
    assert caplog.text.count("incomplete") == 2


@pytest.mark.parametrize("part", [0, 1])
def test_a_fragment_with_a_fault_is_missing(part):
    parts = cut_packet(make_segment(b"x" * 100), 1, [40])
    packets = pcap.packets(pcap.scan(pcap.encode_pcap([(EPOCH, data) for data in parts])))
    assert len(pcap.flows(packets)) == 1
    rows = packets.rows.copy()
    rows["fault"][part] = Fault.BAD_CHECKSUM
    assert len(pcap.flows(replace(packets, rows=rows, errors="mark"))) == 0


@pytest.mark.parametrize("part", [0, 1])
def test_a_fragment_that_the_snap_length_cut_is_missing(part):
    packets = [(EPOCH, data, len(data)) for data in cut_packet(make_segment(b"x" * 100), 1, [40])]
    _, data, length = packets[part]
    packets[part] = (EPOCH, data[:-8], length)
    assembler = feed(packets)
    assembler.finish()
    assert assembler.incomplete_datagrams == 1
    assert len(assembler.take()[2]) == 0


@pytest.mark.parametrize("seconds, count", [(30, 1), (31, 0)])
def test_fragments_wait_for_30_seconds(seconds, count):
    parts = cut_packet(make_segment(b"x" * 100), 1, [40])
    assembler = feed([(EPOCH, parts[0]), (EPOCH + seconds * SECOND, parts[1])])
    assembler.finish()
    assert len(assembler.take()[2]) == count
    assert assembler.incomplete_datagrams == 2 * (1 - count)
    assert assembler.fragment_bytes == 0


def test_an_id_may_be_used_again():
    capture = make_capture(4)
    groups = [cut_packet(data, 7, [24] if len(data) > 60 else []) for _, data in capture.packets]
    times = [time for time, _ in capture.packets]
    packets = [(time, part) for time, group in zip(times, groups) for part in group]
    assert read_streams(packets) == read_streams(capture.packets)


def test_repeated_fragments_of_a_whole_datagram_begin_no_other_one():
    first, second = (make_segment(bytes([65 + at]) * 100, 100 * at) for at in range(2))
    parts = cut_packet(first, 7, [40])
    later = cut_packet(second, 7, [40])
    packets = [(EPOCH + at, part) for at, part in enumerate([*parts, parts[1], *later])]
    assert read_streams(packets)[2] == [b"A" * 100 + b"B" * 100]
    # After a second the id is that of another datagram.
    packets = [*packets[:2], *((EPOCH + 2 * SECOND, part) for part in later[::-1])]
    assert read_streams(packets)[2] == [b"A" * 100 + b"B" * 100]


def test_fragments_of_other_protocols_are_not_held():
    data = make_ethernet(ENDS[4][0][0], ENDS[4][1][0], bytes(1000), UDP)
    assembler = feed([(EPOCH, part) for part in cut_packet(data, 1, [80])[:1]])
    assert assembler.fragment_bytes == 0
    assembler.finish()
    assert assembler.incomplete_datagrams == 0


def test_datagrams_of_other_hosts_and_protocols_have_the_same_id():
    """The same id and ports between other hosts."""
    others = [Connection((bytes([10, 0, 1, at]), 40_000), ENDS[4][1]) for at in range(3)]
    groups = []
    for at, connection in enumerate(others):
        capture = SimulatedCapture()
        capture.add(connection, 0, PSH | ACK, position=0, payload=b"%d" % at * 100)
        groups.append(cut_packet(capture.packets[0][1], 7, [40]))
    packets = [(EPOCH, part) for group in zip(*groups) for part in group]
    assert read_streams(packets)[2] == [b"%d" % at * 100 for at in range(3)]


# ---- memory and time


def make_rows(data, count):
    """Return rows of packets, each with the bytes of `data`, and the buffers."""
    packets = pcap.packets(pcap.scan(pcap.encode_pcap([(EPOCH, data)])))
    return np.tile(packets.rows, count), packets.buffers


@pytest.mark.parametrize("offset, size", [(0, 8), (65_520, 8), (8, 1480)])
def test_a_million_datagrams_that_are_never_whole_are_bounded(offset, size):
    data = make_segment(bytes(size))
    part = make_fragment(data, bytes(size), number=1, offset=offset, more=True)
    rows, buffers = make_rows(part, 1_000_000)
    rows["fragment_id"] = np.arange(len(rows))
    assembler = Assembler("first")
    for at in range(0, len(rows), 100_000):
        assembler.feed(rows[at : at + 100_000], buffers)
        assert assembler.fragment_bytes <= 32 << 20
    assert assembler.incomplete_datagrams >= len(rows) - (1 << 15)
    assembler.finish()
    assert assembler.incomplete_datagrams == len(rows)
    assert assembler.fragment_bytes == 0


HOSTILE = {
    "the smallest fragments": lambda rows: np.arange(len(rows)) % 8000,
    "the smallest ones backwards": lambda rows: 8000 - np.arange(len(rows)) % 8000,
    "the same one": lambda rows: np.full(len(rows), 5),
    "every other one": lambda rows: np.arange(len(rows)) % 4000 * 2,
}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("size", [8, 1480])
def test_time_is_linear(hostile, size):
    data = make_segment(bytes(size))
    part = make_fragment(data, bytes(size), number=1, offset=8, more=True)

    def follow(count):
        rows, buffers = make_rows(part, count)
        rows["fragment_offset"] = HOSTILE[hostile](rows)
        rows["fragment_id"] = np.arange(count) // 50_000
        Assembler("first").feed(rows, buffers)

    assert_linear(lambda: follow(20_000), lambda: follow(160_000))


def test_whole_datagrams_take_no_memory_after_release():
    parts = cut_packet(make_segment(bytes(1000)), 1, [80])
    assembler = PacketFollower("first", connections=10)
    for number in range(100):
        feed([(EPOCH, part) for part in parts], assembler)
        taken = assembler.take()
        assert len(taken[2]) == (number == 0)
        assembler.release(taken[2]["size"].astype(np.int64))
        assert assembler.fragment_bytes == assembler.waiting_bytes == 0
    assembler.finish()
    assert assembler.incomplete_datagrams == 0


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_any_make_read_nothing_outside_their_frames(seed):
    numbers = np.random.default_rng(seed)
    rows = np.frombuffer(numbers.bytes(4000 * pcap.PACKET.itemsize), pcap.PACKET).copy()
    rows["time"] = EPOCH
    rows["start"] = numbers.integers(0, 50, len(rows))
    rows["size"] = numbers.integers(0, 50, len(rows))
    rows["kind"] = pcap.PacketKind.FRAGMENT
    rows["protocol"] = TCP
    rows["fragment_id"] = numbers.integers(0, 3, len(rows))
    rows["fragment_offset"] = numbers.integers(0, 4, len(rows))
    rows["more_fragments"] = numbers.integers(0, 2, len(rows))
    for name in ("source_address", "destination_address", "payload"):
        rows[f"{name}_at"] = numbers.integers(0, 10, len(rows))
        rows[f"{name}_size"] = numbers.choice([-1, 4, 8, 16, 24], len(rows))
    rows["payload_length"] = np.maximum(rows["payload_size"], 0)
    rows["buffer"] = rows["fault"] = 0
    memory = GuardedMemory(100)
    for place in (memory.place_at_end, memory.place_at_beginning):
        assembler = Assembler("first")
        assembler.feed(rows, (place(bytes(98)),))
        assembler.finish()
        assert assembler.fragment_bytes == 0


def test_a_segment_of_tcp_that_is_cut_is_no_packet():
    """The whole datagram has fewer bytes than a header of TCP."""
    data = make_segment()[: ETHERNET + IPV4 + 16]
    packets = [(EPOCH, part) for part in cut_packet(data, 1, [8])]
    assert read_streams(packets)[0] == []
