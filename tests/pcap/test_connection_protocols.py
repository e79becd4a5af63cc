"""Protocols of the connections of a capture: `wirescan.detect` and the command."""

import random
import shutil
from dataclasses import replace

import numpy as np
import pytest

import wirescan
from tests.support.captures import FORMATS, list_captures
from tests.support.command import parse_lines, run
from tests.support.paths import CORPUS
from tests.support.simulated_capture import Connection, SimulatedCapture
from tests.support.slowness import SLOWNESS
from wirescan import kafka, lumberjack, nats, pcap, thrift
from wirescan.pcap.extraction.connection_protocols import (
    LARGEST_GROUPS,
    decide_protocols,
    find_connections,
)
from wirescan.reading.detect import CONNECTION_BYTES, HEADS, detect_path
from wirescan.testing.cost import measure_cpu_seconds

CAPTURES = {capture.name: capture for capture in list_captures()}
HELLO = b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03" + bytes(230)
REQUESTS = kafka.encode_request("ApiVersions", 0) * 3
CALLS = thrift.encode_framed(thrift.encode_message("add", 1, 7)) * 3
# What a client sends, the port of the server -> the protocol and the rule.
SENT = {
    "kafka on an unusual port": (REQUESTS, 5555, "kafka.requests", "frames"),
    "kafka on its port": (REQUESTS, 9092, "kafka.requests", "frames"),
    "thrift on the port of kafka": (CALLS, 9092, "thrift.frames", "frames"),
    "zeros on the port of kafka": (bytes(3), 9092, "kafka.requests", "port"),
    "nothing on the port of nats": (b"", 4222, "nats.messages", "port"),
    "nats": (bytes(nats.encode_pub("a", b"x")) * 3, 80, "nats.messages", "frames"),
    "lumberjack": (lumberjack.encode_batch([{"a": 1}] * 3), 80, "lumberjack.frames", "frames"),
    "tls": (HELLO, 443, "TLS", "TLS"),
    "tls on a port of kafka": (HELLO, 9093, "TLS", "TLS"),
    "tls without a version": (b"\x16\x03\x05" + HELLO[3:], 443, None, "none"),
    "tls with data": (b"\x17" + HELLO[1:], 443, None, "none"),
    "the hello of a server": (HELLO[:5] + b"\x02" + HELLO[6:], 443, None, "none"),
    "a cut hello": (HELLO[:5], 443, None, "none"),
    "http": (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 80, None, "none"),
    "nothing": (b"", 80, None, "none"),
}


def simulate(sent):
    """Return a capture of connections. sent: (bytes of the client, port of the server) of each."""
    capture = SimulatedCapture()
    for number, (data, port) in enumerate(sent):
        client = (bytes([10, 0, number >> 8, number & 255]), 40_000)
        connection = Connection(client, (bytes([10, 1, 0, 1]), port))
        capture.connect(connection)
        capture.send(connection, 0, bytes(data))
    return capture


def list_groups(source):
    """Return what is known of the groups of a capture: (protocol, server, connections, rule)."""
    (candidate, *_) = wirescan.detect(source)
    assert candidate.format == "pcap.blocks"
    return [
        (group.protocol, group.server, group.connections, group.rule)
        for group in candidate.connections
    ]


@pytest.mark.parametrize("name", CAPTURES)
def test_recorded_captures_have_one_protocol(name):
    capture = CAPTURES[name]
    (candidate, *_) = wirescan.detect(capture.path)
    (group,) = candidate.connections
    servers = {server for _, server in capture.connections}
    assert (group.protocol, group.rule) == (FORMATS[capture.protocol][0], "frames")
    assert {group.server} == servers
    assert group.client == next(iter(capture.connections))[0]
    assert group.connections == len(capture.connections)
    assert group.bytes == sum(map(len, sum(capture.connections.values(), ())))
    count = f"{group.connections} TCP connection{'s' * (group.connections > 1)}"
    assert candidate.reason.endswith(f"; {count} in all {capture.path.stat().st_size:,} bytes")


@pytest.mark.parametrize("name", SENT)
def test_the_first_bytes_or_the_port_decide(name):
    data, port, protocol, rule = SENT[name]
    assert list_groups(simulate([(data, port)]).to_pcap()) == [
        (protocol, f"10.1.0.1:{port}", 1, rule)
    ]


def test_reasons_say_what_decided():
    def explain(*sent):
        return [group.reason for group in find_connections(simulate(sent).to_pcap(), is_whole=True)]

    assert explain((REQUESTS, 80)) == ["its first 3 frames show it"]
    assert explain((REQUESTS[: len(REQUESTS) // 3], 80)) == ["its first frame shows it"]
    assert explain((REQUESTS, 80), (REQUESTS, 80)) == ["their first frames show it"]
    assert explain((b"", 9092)) == ["the port 9092 of the server"]
    assert explain((HELLO, 80)) == ["the first bytes are a ClientHello"]
    assert explain((b"", 80), (b"?", 81)) == ["no bytes", "no format fits"]
    many = [(b"", 9092)] * 2 + [(b"a", port) for port in range(100, 130)]
    assert explain(*many)[-1] == "no format fits"


def test_the_frames_that_are_read_are_those_of_the_connections_that_are_listed():
    sent = [(data, port) for data, port, _, _ in SENT.values()]
    data = simulate(sent).to_pcap()
    found = decide_protocols(data, is_whole=True)
    by_format = {name: set() for name in found.names[:-1]}
    for connection, (protocol, rule) in enumerate(zip(found.protocols, found.rules)):
        if 0 <= protocol < len(by_format):
            by_format[found.names[protocol]].add((connection, rule))
    for format, listed in by_format.items():
        table = wirescan.scan(data, format, errors="mark")
        read = set(table["connection"].tolist())
        shown = {connection for connection, rule in listed if rule == 1}
        assert shown
        assert shown <= read
        # Connections with another protocol are only read on a usual port of the format.
        ports = found.flows["server_port"][sorted(read - shown)].tolist()
        assert set(ports) <= {9090, 9092, 9093, 4222}


@pytest.mark.parametrize("seed", range(3))
def test_packets_out_of_order_change_nothing(seed):
    pairs = [(data, port) for data, port, _, _ in SENT.values() if data]
    capture = SimulatedCapture()
    for number, (data, port) in enumerate(pairs):
        alone = SimulatedCapture(now=capture.now)
        connection = Connection((bytes([10, 0, 0, number]), 40_000), (bytes([10, 1, 0, 1]), port))
        alone.connect(connection)
        alone.send(connection, 0, bytes(data), size=7)
        rest = alone.packets[3:]
        random.Random(seed).shuffle(rest)
        capture.packets += alone.packets[:3] + rest
        capture.now = alone.now
    assert list_groups(capture.to_pcapng()) == list_groups(simulate(pairs).to_pcap())


def test_connections_of_one_server_are_one_group():
    data = simulate([(REQUESTS, 9092)] * 1000 + [(HELLO, 9093)] * 7 + [(b"", 9092)]).to_pcap()
    (candidate, *_) = wirescan.detect(data)
    assert list_groups(data) == [
        ("kafka.requests", "10.1.0.1:9092", 1000, "frames"),
        ("TLS", "10.1.0.1:9093", 7, "TLS"),
        ("kafka.requests", "10.1.0.1:9092", 1, "port"),
    ]
    assert [group.bytes for group in candidate.connections] == [
        1000 * len(REQUESTS),
        7 * len(HELLO),
        0,
    ]
    assert candidate.connections[0].client == "10.0.0.0:40000"


def test_many_servers_are_few_groups():
    sent = [(b"a", port) for port in range(100, 300)]
    sent += [(REQUESTS, port) for port in range(500, 530)] * 2
    groups = list_groups(simulate(sent).to_pcap())
    assert len(groups) == LARGEST_GROUPS + 2
    assert sum(count for _, _, count, _ in groups) == len(sent)
    # The largest groups are shown, and the others come behind them.
    assert {count for _, server, count, _ in groups if server} == {2}
    others = [group for group in groups if group[1] is None]
    assert others == groups[-2:]
    assert others == [
        (None, None, 200, "none"),
        ("kafka.requests", None, 60 - 2 * LARGEST_GROUPS, "frames"),
    ]


def test_a_directory_of_captures_has_the_connections_of_its_files(tmp_path):
    kafka_capture, nats_capture = CORPUS / "pcap" / "kafka.pcap", CORPUS / "pcap" / "nats.pcapng"
    for name, path in {"a": kafka_capture, "b": nats_capture, "c": kafka_capture}.items():
        shutil.copy(path, tmp_path / f"{name}.bin")
    (protocol, server, count, rule), *others = list_groups(tmp_path)
    assert (protocol, server, count, rule) == ("kafka.requests", "127.0.0.1:37639", 8, "frames")
    assert others == list_groups(nats_capture)


def test_few_bytes_of_a_large_capture_are_read(tmp_path):
    path = tmp_path / "large.pcap"
    data = simulate([(REQUESTS, 9092)] + [(bytes(1000), 80)] * 5000).to_pcap()
    assert len(data) > CONNECTION_BYTES
    path.write_bytes(data)
    read = []

    def read_head(path, size):
        read.append(size)
        return memoryview(data)[:size]

    (candidate, *_) = detect_path(str(path), read_head)
    assert read == [HEADS[0], CONNECTION_BYTES]
    assert f" TCP connections in the first {CONNECTION_BYTES:,} bytes" in candidate.reason
    read.clear()
    (candidate, *_) = detect_path(str(path), read_head, reads_more=False)
    assert read == [HEADS[0]]
    assert f" TCP connections in the first {HEADS[0]:,} bytes" in candidate.reason
    assert candidate.connections[0].protocol == "kafka.requests"


def test_a_cut_frame_is_no_evidence_against_a_format():
    data = simulate([(REQUESTS + REQUESTS[:5], 80)]).to_pcap()
    assert [group.frames for group in find_connections(data, is_whole=False)] == [3]
    assert [group.frames for group in find_connections(data, is_whole=True)] == [3]


def test_one_connection_does_not_depend_on_many_others():
    """Weights of Thrift open all frames that are weighed together, within a limit."""
    # Each argument is a boolean: the type, the id, the value.
    arguments = b"".join(b"\2" + id.to_bytes(2, "big") + b"\1" for id in range(1, 60)) + b"\0"
    call = thrift.encode_framed(thrift.encode_message("add", 1, 7, arguments))
    sent = [(call * 8, 5555)] * 400
    data = simulate(sent).to_pcap()
    table = wirescan.scan(data, "thrift.frames")
    assert len(table) == 8 * len(sent)


def test_the_command_lists_connections():
    path = CORPUS / "pcap" / "kafka.pcap"
    result = run("detect", path)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    heading = ["protocol", "connections", "server", "first", "client", "bytes", "reason"]
    row = "kafka.requests 4 127.0.0.1:37639 127.0.0.1:33606 7,995 their first frames show it"
    assert lines[2:4] == [heading, row.split()]
    (line,) = parse_lines(run("detect", path, "--json"))
    assert line["formats"][0]["connections"] == [
        {
            "protocol": "kafka.requests",
            "server": "127.0.0.1:37639",
            "client": "127.0.0.1:33606",
            "connections": 4,
            "bytes": 7995,
            "rule": "frames",
            "frames": 2,
            "reason": "their first frames show it",
        }
    ]
    assert "connections" not in line["formats"][1]


def test_the_command_names_other_servers_and_unknown_protocols(tmp_path):
    path = tmp_path / "many.pcap"
    path.write_bytes(simulate([(b"a", port) for port in range(100, 130)]).to_pcap())
    result = run("detect", path)
    lines = result.stdout.splitlines()
    assert len(lines) == 2 + 1 + LARGEST_GROUPS + 1
    assert lines[-1].split()[:4] == ["unknown", "10", "other", "servers"]


def test_mutations_of_captures_raise_nothing():
    data = simulate([(data, port) for data, port, _, _ in SENT.values()]).to_pcap()
    rng = np.random.default_rng(5)
    for _ in range(300):
        mutated = bytearray(data)
        for at in rng.integers(0, len(data), 1 + int(rng.integers(12))):
            mutated[at] = rng.integers(256)
        cut = int(rng.integers(len(data)))
        for part in (mutated, mutated[:cut]):
            groups = find_connections(memoryview(bytes(part)), is_whole=False)
            assert all(group.connections > 0 and group.bytes >= 0 for group in groups)


HOSTILE = {
    "pings": b"PING\r\n" * 8,
    "windows": b"2W\0\0\0\1" * 8,
    "calls": thrift.encode_framed(thrift.encode_message("add", 1, 7)) * 8,
    "zlib of thrift": thrift.encode_frame(bytes(1 << 20), transforms=[1, 1]),
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_many_connections_have_bounded_cost(name):
    count = CONNECTION_BYTES // (70 + len(HOSTILE[name]))
    capture = SimulatedCapture()
    for number in range(count):
        client = (bytes([10, number >> 16, number >> 8 & 255, number & 255]), 40_000)
        connection = Connection(client, (bytes([10, 0, 0, number % 250]), 5555))
        capture.add(connection, 0, 16, payload=HOSTILE[name][:1448])
    data = capture.to_pcap()[:CONNECTION_BYTES]
    # It took 7 seconds on a slow machine.
    assert measure_cpu_seconds(lambda: wirescan.detect(data), times=2) < 12 * SLOWNESS


def test_a_format_of_another_package_is_listed(monkeypatch):
    from wirescan.frames import registry

    format = wirescan.formats()["lumberjack.frames"]
    assert format.conversation is not None
    other = replace(
        format, name="out.frames", conversation=replace(format.conversation, ports=(777,))
    )
    monkeypatch.setitem(registry.load_formats(), "out.frames", other)
    assert list_groups(simulate([(b"", 777)]).to_pcap()) == [
        ("out.frames", "10.1.0.1:777", 1, "port")
    ]


def test_a_capture_without_connections_has_none():
    data = pcap.encode_pcap([])
    (candidate, *_) = wirescan.detect(data)
    assert candidate.connections == ()
    assert candidate.reason.endswith("; 0 TCP connections in all 24 bytes")
