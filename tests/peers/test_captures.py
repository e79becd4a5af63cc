"""Captures of real programs hold the bytes that a proxy recorded, as tshark reassembles them.

They are in tests/corpus/pcap (see make_captures.py), and are also recorded anew.
"""

import random
import socket
import time
from pathlib import Path

import pytest

import wirescan
from tests.support.captures import (
    CAPTURES,
    FORMATS,
    Connections,
    RecordedCapture,
    check_frames,
    list_captures,
    read_streams,
)
from tests.support.fragments import cut_packets
from tests.support.packets import (
    ACK,
    FIN,
    HEAVY,
    NUMBERS,
    SYN,
    Packet,
    Rates,
    impair,
    parse_segment,
    read_packets,
    shift_numbers,
    write_packets,
)
from tests.support.simulated_capture import Connection, SimulatedCapture
from tests.support.tables import check_whole_frames

from . import tshark
from .capture import Capture, Form
from .make_captures import SCENES, Recorder, add_impaired, record_with_small_packets
from .proxy import Proxy

RECORDED = ("kafka", "kafka-impaired", "lumberjack", "lumberjack-impaired", "nats", "thrift")
MTU = 300
PORTS = {"kafka": "kafka", "thrift": "thrift"}


def find_recorded(name: str) -> RecordedCapture:
    (capture,) = (capture for capture in list_captures() if capture.name == name)
    return capture


def record_scene(scene: str, target: Path) -> list[RecordedCapture]:
    SCENES[scene].record(Recorder(target))
    captures = list(list_captures(target))
    assert sorted(capture.name for capture in captures) == sorted(SCENES[scene].names)
    return captures


def check_streams(capture: RecordedCapture) -> None:
    """Assert that wirescan and tshark reassemble the proxy's bytes, and that they are frames."""
    assert capture.connections
    assert tshark.read_streams(capture.path) == capture.connections
    assert read_streams(capture.path) == capture.connections
    check_frames(capture)
    conversations = {
        (conversation.client, conversation.server)
        for conversation in tshark.list_conversations(capture.path)
    }
    assert conversations == set(capture.connections)
    for sides in capture.connections.values():
        for data, format in zip(sides, FORMATS[capture.protocol], strict=True):
            check_whole_frames(wirescan.scan(data, format), data)


def reassemble(packets: list[Packet]) -> Connections:
    """The bytes of connections, and a check that no ack is for bytes that come later.

    Connections are (address of the SYN, other address) -> (bytes to the other, bytes back).
    """
    first, streams, clients = {}, {}, []
    for position, packet in enumerate(packets):
        segment = parse_segment(position, packet)
        here, there = (
            f"{socket.inet_ntoa(host)}:{port}" for host, port in (segment.source, segment.target)
        )
        if segment.flags & SYN:
            first[here, there] = segment.sequence
            streams[here, there] = {0: b"S"[0]}
            if not segment.flags & ACK:
                clients.append((here, there))
        stream = streams[here, there]
        start = (segment.sequence - first[here, there]) % NUMBERS
        end = start + len(segment.payload)
        for index, byte in enumerate(segment.payload, start):
            assert stream.setdefault(index, byte) == byte
        if segment.flags & FIN:
            stream[end] = b"F"[0]
        if segment.flags & ACK:
            acknowledged = (segment.acknowledgment - first[there, here]) % NUMBERS
            assert set(range(acknowledged)) <= streams[there, here].keys()

    def take_payload(here: str, there: str) -> bytes:
        stream = streams[here, there]
        assert sorted(stream) == list(range(len(stream)))
        return bytes(stream[index] for index in range(1, len(stream) - 1))

    return {pair: (take_payload(*pair), take_payload(*pair[::-1])) for pair in clients}


@pytest.mark.parametrize("name", ["kafka", "kafka-impaired", "lumberjack", "lumberjack-impaired"])
def test_acks_follow_the_bytes(name):
    capture = find_recorded(name)
    assert reassemble(read_packets(capture.path)) == capture.connections


@pytest.mark.parametrize("seed", range(5))
def test_heavily_impaired_captures_hold_every_byte(seed, tmp_path):
    for name in "kafka", "lumberjack":
        capture = find_recorded(name)
        packets = read_packets(capture.path)
        # The numbers of one direction wrap after its first 100 bytes.
        first = parse_segment(0, packets[0]).sequence
        packets = shift_numbers(packets, NUMBERS - 100 - first)
        impaired = impair(packets, seed, HEAVY)
        assert len(impaired) > len(packets)
        assert impair(packets, seed, HEAVY) == impaired
        assert reassemble(impaired) == capture.connections
        write_packets(tmp_path / "impaired.pcap", impaired)
        assert read_streams(tmp_path / "impaired.pcap") == capture.connections


def test_the_corpus_lists_its_captures():
    captures = list(list_captures())
    assert tuple(capture.name for capture in captures) == RECORDED
    used = {capture.path.name for capture in captures}
    assert {path.name for path in CAPTURES.iterdir() if "pcap" in path.suffix} == used
    assert all(capture.path.stat().st_size < 20_000 for capture in captures)
    assert sum(path.stat().st_size for path in CAPTURES.iterdir()) < 100_000


@pytest.mark.peers
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_captures_hold_the_bytes_of_the_proxy(name):
    check_streams(find_recorded(name))


@pytest.mark.peers
@pytest.mark.parametrize("scene", SCENES)
def test_new_captures_hold_the_bytes_of_the_proxy(scene, tmp_path):
    for capture in record_scene(scene, tmp_path):
        check_streams(capture)
        if capture.path.suffix == ".pcap" and capture.name != "filebeat":
            check_streams(add_impaired(tmp_path, capture))


@pytest.mark.peers
@pytest.mark.parametrize("scene", ["lumberjack", "nats"])
def test_captures_of_small_packets_hold_the_bytes_of_the_proxy(scene, tmp_path):
    record_with_small_packets(scene, tmp_path, MTU)
    (capture,) = list_captures(tmp_path)
    check_streams(capture)
    sizes = [int(size) for ((size,),) in tshark.read_fields(capture.path, ["ip.len"])]
    assert max(sizes) == MTU
    to_server = max(len(to_server) for to_server, _ in capture.connections.values())
    assert len(sizes) > to_server / MTU


@pytest.mark.peers
def test_clean_captures_lack_no_packet():
    for name in "kafka", "lumberjack", "nats", "thrift":
        counts = tshark.count_expert_information(find_recorded(name).path)
        assert not counts, name


@pytest.mark.peers
@pytest.mark.parametrize("name", ["kafka", "lumberjack"])
@pytest.mark.parametrize("seed", range(3))
def test_impaired_captures_hold_every_byte(name, seed, tmp_path):
    capture = find_recorded(name)
    impaired = add_impaired(tmp_path, capture, seed=seed, rates=HEAVY)
    assert tshark.read_streams(impaired.path) == capture.connections
    assert tshark.count_checksums(impaired.path).keys() == {"good"}
    counts = tshark.count_expert_information(impaired.path)
    assert counts["duplicate_ack"] > 0
    assert counts["out_of_order"] + counts["retransmission"] > 10
    times = [packet.time for packet in read_packets(impaired.path)]
    assert times == sorted(times)


@pytest.mark.peers
def test_a_sniffer_that_misses_packets_loses_their_bytes(tmp_path):
    capture = find_recorded("kafka")
    file = tmp_path / "missing.pcap"
    write_packets(file, impair(read_packets(capture.path), 1, Rates(missing=0.3)))
    streams = tshark.read_streams(file)
    assert streams.keys() == capture.connections.keys()
    assert streams != capture.connections
    assert tshark.count_expert_information(file)["lost_segment"] > 0


@pytest.mark.peers
@pytest.mark.parametrize("name", ["kafka", "kafka-impaired", "lumberjack-impaired"])
@pytest.mark.parametrize("seed", range(3))
def test_fragments_hold_every_byte(name, seed, tmp_path):
    """Each datagram has an id of its own, and its fragments come in any order, also twice."""
    capture = find_recorded(name)
    chance = random.Random(seed)
    packets = []
    for group in cut_packets(read_packets(capture.path), seed):
        count = len(group)
        # A repeated last fragment would begin a datagram of its own in tshark.
        repeated = chance.sample(group, chance.randint(0, count - 1))
        packets += [Packet(*part) for part in (*repeated, *chance.sample(group, count))]
    file = tmp_path / "fragments.pcap"
    write_packets(file, packets)
    fragments = tshark.read_fields(file, ["ip.flags.mf"], options=["-Y", "ip.flags.mf == 1"])
    assert len(fragments) > len(capture.connections)
    assert read_streams(file) == capture.connections
    assert tshark.read_streams(file) == capture.connections


@pytest.mark.peers
def test_fragments_of_ipv6_hold_every_byte(tmp_path):
    capture = SimulatedCapture()
    connection = Connection((bytes(15) + b"\1", 50_000), (bytes(15) + b"\2", 9092))
    capture.connect(connection)
    capture.send(connection, 0, random.Random(1).randbytes(20_000))
    capture.close(connection)
    packets = [Packet(*part) for group in cut_packets(capture.packets, 1) for part in group[::-1]]
    file = tmp_path / "fragments.pcap"
    write_packets(file, packets)
    expected = [(connection.sent[0], b"")]
    assert list(tshark.read_streams(file).values()) == expected
    assert list(read_streams(file).values()) == expected


@pytest.mark.peers
@pytest.mark.parametrize(
    ("name", "field"), [("kafka", "kafka.request_key"), ("thrift", "thrift.method")]
)
def test_tshark_dissects_the_captures(name, field):
    capture = find_recorded(name)
    protocols = dict.fromkeys(capture.ports, PORTS[capture.protocol])
    values = [
        value for row in tshark.read_fields(capture.path, [field], protocols) for value in row[0]
    ]
    assert values
    if name == "thrift":
        frames = wirescan.scan(b"".join(*capture.connections.values()), "thrift.frames")
        assert len(values) == len(frames)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("form", "magic"),
    [
        (Form.PCAP, "d4c3b2a1"),
        (Form.PCAP_NANOSECONDS, "4d3cb2a1"),
        (Form.PCAPNG, "0a0d0d0a"),
    ],
)
def test_a_capture_has_every_packet_of_its_ports(form, magic, tmp_path):
    file = tmp_path / "capture"
    start = time.time()
    data = bytes(range(256)) * 4096
    with socket.create_server(("127.0.0.1", 0)) as server, Proxy() as proxy, Proxy() as other:
        proxy.target = other.target = f"127.0.0.1:{server.getsockname()[1]}"
        with Capture(file, [proxy.port], form):
            for target in proxy, other:
                with socket.create_connection(("127.0.0.1", target.port)) as client:
                    accepted, _ = server.accept()
                    with accepted:
                        client.sendall(data)
                        client.shutdown(socket.SHUT_WR)
                        while accepted.recv(1 << 16):
                            pass
            (connection,) = proxy.take()
            other.take()
    assert tshark.read_streams(file) == {(connection.client, connection.server): (data, b"")}
    content = file.read_bytes()
    assert content[:4].hex() == magic
    assert b"Linux" not in content
    (conversation,) = tshark.list_conversations(file)
    packets = tshark.read_fields(file, ["frame.time_epoch"])
    assert all(start < float(seconds) < time.time() for ((seconds,),) in packets)
    assert len(packets) == conversation.to_server_packets + conversation.to_client_packets
    assert conversation.to_server_bytes > len(data) > conversation.to_client_bytes


@pytest.mark.peers
def test_a_capture_reports_why_it_cannot_start(tmp_path):
    with (
        pytest.raises(RuntimeError, match="tcpdump ended:\n.*no-interface"),
        Capture(tmp_path / "capture", [1], interface="no-interface"),
    ):
        pass
    assert not list(tmp_path.iterdir())
