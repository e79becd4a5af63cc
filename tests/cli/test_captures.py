"""Commands without --format read captures of packets in the format of their connections."""

import gzip
import json
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.command import START, make_environment, run
from tests.support.paths import CORPUS
from tests.support.simulated_capture import Connection, SimulatedCapture
from wirescan import kafka, nats

PCAP = CORPUS / "pcap"
# A capture -> the formats of commands that read frames inside others, and of those that do not.
CHOSEN = {
    "kafka.pcap": ("kafka.requests", "kafka.requests"),
    "kafka-impaired.pcap": ("kafka.requests", "kafka.requests"),
    "lumberjack.pcap": ("lumberjack.events", "lumberjack.frames"),
    "nats.pcapng": ("nats.messages", "nats.messages"),
    "thrift.pcapng": ("thrift.messages", "thrift.frames"),
}
REQUESTS = kafka.encode_request("ApiVersions", 0) * 3
PUBS = bytes(nats.encode_pub("a", b"x")) * 3
HELLO = b"\x16\x03\x01\x00\xf4\x01" + bytes(240)
HTTP = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def write_capture(path, *sent):
    """Write a capture of connections. sent: (bytes of the client, port of the server) of each."""
    capture = SimulatedCapture()
    for number, (data, port) in enumerate(sent):
        connection = Connection((bytes([10, 0, 0, number]), 40_000), (bytes([10, 1, 0, 1]), port))
        capture.connect(connection)
        capture.send(connection, 0, data)
    path.write_bytes(capture.to_pcap())
    return path


def find_chosen(result):
    """Return the format and the reason in the message of a command."""
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if " is read as " in line]
    format, reason = line.partition(" is read as ")[2].split(" (--format chooses another format): ")
    return format, reason


@pytest.mark.parametrize("name", CHOSEN)
def test_commands_read_the_format_of_the_connections(name, tmp_path):
    inner, outermost = CHOSEN[name]
    path = PCAP / name
    assert find_chosen(run("scan", path))[0] == inner
    expected = run("scan", path, "--format", inner)
    assert run("scan", path).stdout == expected.stdout
    # `stat` and `report` count exchanges.
    exchanges = f"{inner.partition('.')[0]}.exchanges"
    report = ("report", path, "-o", tmp_path / "report.html")
    assert find_chosen(run("stat", path))[0] == exchanges
    assert find_chosen(run(*report))[0] == exchanges
    # With --deep they count what is inside frames.
    has_frames_inside = outermost != "kafka.requests"
    assert find_chosen(run(*report, "--deep"))[0] == (outermost if has_frames_inside else exchanges)
    if has_frames_inside:
        assert find_chosen(run("stat", path, "--deep"))[0] == outermost
    result = run("convert", path, tmp_path / "out.parquet", "--engine", "local")
    assert find_chosen(result)[0] == inner
    assert pq.read_table(tmp_path / "out.parquet").num_rows == len(wirescan.scan(path, inner))


@pytest.fixture
def damaged(tmp_path):
    """A capture with one bad block, and the position of the block."""
    blocks = wirescan.scan(PCAP / "kafka.pcap", "pcap.blocks")
    row = len(blocks) // 2
    at = int(blocks["start"][row])
    data = bytearray((PCAP / "kafka.pcap").read_bytes())
    data[at + 8 : at + 12] = b"\xff\xff\xff\x7f"  # the captured size
    path = tmp_path / "damaged.pcap"
    path.write_bytes(data)
    return path, at


MESSAGE = "1 bad block of the capture: BAD_LENGTH, impossible length"


@pytest.mark.parametrize(
    "verb",
    [
        ["scan"],
        ["scan", "--format", "pcap.flows"],
        ["scan", "--where", "time < 0"],
        ["exchanges"],
        ["stat"],
        ["stat", "--total"],
        ["report", "-o", "/dev/null"],
    ],
    ids=" ".join,
)
def test_a_bad_block_of_a_capture_is_damage(verb, damaged):
    result = run(verb[0], damaged[0], *verb[1:])
    assert result.exit_code == 1
    assert MESSAGE in result.stderr


def test_a_bad_block_is_dropped_with_skip(damaged):
    result = run("scan", damaged[0], "--errors", "skip")
    assert result.exit_code == 0
    assert "1 bad block of the capture (dropped): BAD_LENGTH" in result.stderr


@pytest.mark.parametrize("verb", ["scan", "exchanges"])
def test_a_bad_block_ends_a_strict_command_after_the_frames_before_it(verb, damaged):
    path, at = damaged
    result = run(verb, path, "--errors", "strict")
    assert result.exit_code == 1
    assert f"(BAD_LENGTH) at byte {at} of " in result.stderr
    marked = run(verb, path).stdout
    assert 1 < len(result.stdout.splitlines()) < len(marked.splitlines())


def test_a_conversion_lists_the_bad_blocks_of_a_capture(damaged, tmp_path):
    path, at = damaged
    out = tmp_path / "out.parquet"
    options = ("--engine", "local", "--format", "kafka.records", "--errors", "mark")
    assert run("convert", path, out, *options).exit_code == 1
    (fault,) = pq.read_table(f"{out}.faults").to_pylist()
    assert (fault["start"], fault["format"], fault["fault"]) == (at, "pcap.blocks", "BAD_LENGTH")


@pytest.mark.parametrize("format", ["pcap.flows", "kafka.exchanges", "kafka.requests?capture=true"])
def test_a_file_that_is_no_capture_is_damage(format, tmp_path):
    path = tmp_path / "random.bin"
    path.write_bytes(bytes(range(255, 155, -1)))
    result = run("scan", path, "--format", format)
    assert result.exit_code == 1
    assert "1 bad block of the capture: NOT_A_FRAME" in result.stderr


def test_commands_about_files_read_blocks():
    assert find_chosen(run("verify", PCAP / "kafka.pcap"))[0] == "pcap.blocks"


def test_times_and_endpoints_come_first():
    lines = run("scan", PCAP / "kafka.pcap").stdout.splitlines()
    assert lines[0].split()[:4] == ["time", "client", "server", "size"]
    lines = run("scan", PCAP / "nats.pcapng").stdout.splitlines()
    assert lines[0].split()[:5] == ["time", "client", "server", "direction", "kind"]
    assert lines[1].split()[3:5] == ["TO_CLIENT", "INFO"]


SENT = {
    "one": (
        [(REQUESTS, 80)] * 2,
        "kafka.requests",
        "2 TCP connections of kafka.requests in its first bytes",
    ),
    "one and others": (
        [(REQUESTS, 80), (b"?", 81), (HELLO, 443), (b"?", 82)],
        "kafka.requests",
        (
            "1 TCP connection of kafka.requests in its first bytes, "
            "beside unknown (2 connections), TLS (1 connection)"
        ),
    ),
    "several": (
        [(REQUESTS, 80), (PUBS, 81), (REQUESTS, 82), (HELLO, 443)],
        "pcap.packets",
        (
            "its TCP connections have several formats: "
            "kafka.requests (2 connections), nats.messages (1 connection)"
        ),
    ),
    "a port": (
        [(b"\0\0\0", 9092)],
        "kafka.requests",
        "1 TCP connection of kafka.requests in its first bytes",
    ),
    "frames are stronger than a port": (
        [(HTTP, 9090), (REQUESTS, 80)],
        "kafka.requests",
        (
            "1 TCP connection of kafka.requests in its first bytes, "
            "beside thrift.frames (1 connection)"
        ),
    ),
    "several ports": (
        [(b"?", 9092), (b"?", 4222)],
        "pcap.packets",
        (
            "its TCP connections have several formats: "
            "kafka.requests (1 connection), nats.messages (1 connection)"
        ),
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_the_message_says_what_the_connections_have(name, tmp_path):
    sent, format, reason = SENT[name]
    path = write_capture(tmp_path / "a.pcap", *sent)
    result = run("scan", path, "--errors", "skip")
    assert find_chosen(result) == (format, reason)


@pytest.mark.parametrize("sent", [[(HELLO, 9093)], [(b"", 9092)], [(HTTP, 80)], []])
def test_packets_are_read_where_no_connection_has_a_format(sent, tmp_path):
    path = write_capture(tmp_path / "a.pcap", *sent)
    format, reason = find_chosen(run("scan", path))
    assert format == "pcap.packets"
    assert "; the file begins as a capture, and sizes lead from block to block" in reason


def test_captures_without_frames_of_the_format_say_so(tmp_path):
    path = write_capture(tmp_path / "a.pcap", (PUBS, 4222))
    expected = "no kafka.requests in the captures: `wirescan detect` lists their connections"
    result = run("scan", str(path), "--format", "kafka.requests")
    assert (result.exit_code, result.stdout) == (0, "")
    assert expected in result.stderr
    shown = run("scan", str(path), "--format", "nats.messages", "--where", "size == 0")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "")


def test_several_captures_have_one_format(tmp_path):
    requests = write_capture(tmp_path / "a.pcap", (REQUESTS, 80))
    others = write_capture(tmp_path / "b.pcap", (REQUESTS, 81), (HTTP, 80))
    pubs = write_capture(tmp_path / "c.pcap", (PUBS, 80))
    result = run("scan", requests, others, "--json")
    assert find_chosen(result)[0] == "kafka.requests"
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["server"] for row in rows] == ["10.1.0.1:80"] * 3 + ["10.1.0.1:81"] * 3
    assert find_chosen(run("scan", requests, pubs)) == (
        "pcap.packets",
        (
            "its TCP connections have several formats: "
            "kafka.requests (1 connection), nats.messages (1 connection)"
        ),
    )
    # Of a directory, several captures are looked at.
    assert find_chosen(run("scan", tmp_path))[0] == "pcap.packets"
    pubs.unlink()
    assert find_chosen(run("scan", tmp_path))[0] == "kafka.requests"
    shutil.copy(CORPUS / "pcap" / "nats-1.client.bytes", tmp_path / "d.nats")
    result = run("scan", requests, tmp_path / "d.nats")
    assert result.exit_code == 2
    assert "the paths have different formats" in result.stderr


def test_a_growing_capture_is_read_as_packets(tmp_path):
    path = write_capture(tmp_path / "a.pcap", (REQUESTS, 80))
    command = [sys.executable, "-c", START, "scan", "--follow", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=make_environment()
    ) as process:
        message = process.stderr.readline()
        process.terminate()
    assert b"is read as pcap.packets" in message


def test_a_pipe_is_read_in_the_format_of_its_connections():
    result = subprocess.run(
        [sys.executable, "-c", START, "scan", "-"],
        input=(PCAP / "kafka.pcap").read_bytes(),
        capture_output=True,
        env=make_environment(),
    )
    assert b"(standard input) is read as kafka.requests" in result.stderr
    assert result.stdout.decode() == run("scan", PCAP / "kafka.pcap").stdout


def test_a_followed_pipe_is_read_in_the_format_of_its_connections():
    result = subprocess.run(
        [sys.executable, "-c", START, "scan", "-", "--follow", "--json"],
        input=(PCAP / "kafka.pcap").read_bytes(),
        capture_output=True,
        env=make_environment(),
    )
    assert b"(standard input) is read as kafka.requests" in result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == len(wirescan.scan(PCAP / "kafka.pcap", "kafka.requests"))


def test_an_option_chooses_the_level():
    result = run("scan", PCAP / "thrift.pcapng", "--non-strict")
    assert find_chosen(result)[0] == "thrift.messages"
    assert result.stdout.startswith("time")


@pytest.mark.parametrize("way", ["file", "standard input"])
@pytest.mark.parametrize("options", [(), ("--format", "kafka.requests")])
def test_compressed_captures_are_read(way, options, tmp_path):
    path = tmp_path / "kafka.pcap.gz"
    path.write_bytes(gzip.compress((PCAP / "kafka.pcap").read_bytes()))
    expected = run("scan", PCAP / "kafka.pcap", "--format", "kafka.requests").stdout
    if way == "file":
        result = run("scan", path, *options)
    else:
        result = run("scan", "-", *options, input=path.read_bytes())
    assert result.exit_code == 0, result.stderr
    assert result.stdout == expected
