"""Captures with commands and replies: the frames in them, and the exchanges."""

import json
import struct

import pytest
from click.testing import CliRunner

import wirescan
import wirescan_resp as resp
from wirescan import pcap
from wirescan.cli.main import main
from wirescan.reading.chunked import iter_tables

STEP = 1_000_000  # ns between packets
OK = resp.encode(resp.Text("OK"))
ERROR = resp.encode(resp.Text("ERR no", is_error=True))


def make_capture(*turns, port=6379, size=1000):
    """Return a capture of one connection. turns: (side, bytes); the client is 0."""
    packets = []
    sequences = [1, 1]
    ends = [(bytes([10, 0, 0, 1]), 40_000), (bytes([10, 0, 0, 2]), port)]
    for side, data in turns:
        sender, receiver = ends[side], ends[1 - side]
        for at in range(0, len(data), size):
            payload = data[at : at + size]
            segment = struct.pack(">HHII", sender[1], receiver[1], sequences[side], 0)
            segment += struct.pack(">BBHHH", 5 << 4, 0x18, 65535, 0, 0) + payload
            head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 1, 0, 64, 6, 0)
            packet = bytes(12) + b"\x08\x00" + head + sender[0] + receiver[0] + segment
            packets.append((10**18 + len(packets) * STEP, packet))
            sequences[side] += len(payload)
    return pcap.encode_pcap(packets, nanoseconds=True)


PIPELINE = [
    (0, resp.encode([b"GET", b"a"]) + resp.encode([b"INCR", b"a"])),
    (1, resp.encode(b"x" * 3000)),
    (1, ERROR),
    (0, resp.encode([b"SET", b"a", b"y" * 90_000])),
    (1, OK),
    (0, resp.encode([b"PING"])),
]


def test_commands_have_their_replies():
    table = wirescan.scan(make_capture(*PIPELINE), "resp.exchanges")
    assert table["name"].to_pylist() == [b"GET", b"INCR", b"SET", b"PING"]
    assert table["reply_kind"].tolist() == [
        resp.Kind.BULK_STRING,
        resp.Kind.ERROR,
        resp.Kind.SIMPLE_STRING,
        0,
    ]
    assert table["latency"].tolist() == [STEP, 5 * STEP, STEP, -1]
    assert table["client"].to_pylist() == ["10.0.0.1:40000"] * 4
    assert table["request_size"].tolist()[3] == len(resp.encode([b"PING"]))


@pytest.mark.parametrize("piece", [61, 1500, 50_000])
def test_pieces_have_the_exchanges_of_the_whole(tmp_path, piece):
    path = tmp_path / "redis.pcap"
    path.write_bytes(make_capture(*PIPELINE))
    tables = iter_tables(str(path), format="resp.exchanges", piece=piece)
    found = [row for t in tables if len(t) for row in t.to_arrow().to_pylist()]
    assert found == wirescan.scan(path, "resp.exchanges").to_arrow().to_pylist()


def test_the_first_frames_show_the_format_on_any_port():
    raw = make_capture(*PIPELINE, port=7777)
    assert len(wirescan.scan(raw, "resp.exchanges")) == 4
    (group,) = wirescan.detect(raw)[0].connections
    assert (group.protocol, group.rule) == ("resp.frames", "frames")


def test_values_in_captures_have_times_and_endpoints():
    table = wirescan.scan(make_capture(*PIPELINE), "resp.values")
    columns = table.to_arrow(["time", "server", "value"])
    assert columns["server"].to_pylist() == ["10.0.0.2:6379"] * len(table)


def test_the_command_counts_exchanges_and_errors(tmp_path):
    path = tmp_path / "redis.pcap"
    path.write_bytes(make_capture(*PIPELINE))
    result = CliRunner().invoke(main, ["stat", str(path), "--json"])
    found = json.loads(result.stdout)["total"]["latency"]
    assert {name: (group["answered"], group["errors"]) for name, group in found.items()} == {
        "GET": (1, 0),
        "INCR": (1, 1),
        "SET": (1, 0),
        "PING": (0, 0),
    }
    result = CliRunner().invoke(main, ["exchanges", str(path), "--json", "--columns", "name"])
    assert len(result.stdout.splitlines()) == 4
