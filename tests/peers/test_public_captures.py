"""Wireshark reads the same packets, streams and retransmissions in public captures.

The captures are those of public_captures.py. Every fourth one of tcpdump is compared, and all with
TCP; the nightly run compares all.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache

import pytest

from tests.support.captures import list_captures as list_recorded
from tests.support.packets import HEAVY, impair, read_packets, write_packets
from tests.support.simulated_capture import ACK, PSH, Connection, SimulatedCapture
from wirescan import FrameError, pcap
from wirescan.frames.table import FrameTable
from wirescan.reading.chunked import iter_tables

from . import tshark
from .capture_oracle import (
    FIELDS,
    KINDS,
    REPEATS,
    compare_capture,
    read_tables,
)
from .public_captures import SOURCES, PublicCapture, list_captures
from .sharkd import Sharkd, describe_gap

pytestmark = pytest.mark.peers
PIECE = 3000  # bytes
SECOND = 10**9  # ns
WINDOW = 14 + 20 + 14  # position of the window of TCP after Ethernet and IPv4
STEP = 4  # of the captures of tcpdump that are compared
UNKNOWN_LINK = "Wireshark 4.0 does not know the link type"
# Captures that Wireshark does not open.
UNREADABLE = {
    "gopacket/pcapgo/tests/be/test901.pcapng": "it stops at a section of another version",
    "gopacket/pcapgo/tests/le/test901.pcapng": "it stops at a section of another version",
    "tcpdump/brcm-tag-prepend.pcap": UNKNOWN_LINK,
    "tcpdump/brcm-tag.pcap": UNKNOWN_LINK,
    "tcpdump/dsa-high-vid.pcap": UNKNOWN_LINK,
    "tcpdump/dsa.pcap": UNKNOWN_LINK,
    "tcpdump/edsa-high-vid.pcap": UNKNOWN_LINK,
    "tcpdump/edsa.pcap": UNKNOWN_LINK,
    "tcpdump/frf16_magic_ie-oobr.pcap": UNKNOWN_LINK,
    "tcpdump/hoobr_juniper3.pcap": UNKNOWN_LINK,
    "tcpdump/juniper_es_oobr.pcap": UNKNOWN_LINK,
    "tcpdump/kday6.pcap": UNKNOWN_LINK,
    "tcpdump/vtp_asan-2.pcap": UNKNOWN_LINK,
    "tcpdump/vtp_asan-3.pcap": UNKNOWN_LINK,
    "tcpdump/vtp_asan.pcap": UNKNOWN_LINK,
}
# Messages of OpenFlow have packets inside. Wireshark follows a stream with the bytes of these in
# place of the message. Without its dissector of OpenFlow it gives the bytes that wirescan gives.
DIFFERENT_STREAMS = {
    "tcpdump/of10_s4810.pcap": ["stream 0, TO_SERVER: 14902 bytes, not 14664"],
    "tcpdump/of13_ericsson.pcapng": [
        "stream 9, TO_SERVER: 344 bytes, not 344",
        "stream 9, TO_CLIENT: 208 bytes, not 8",
    ],
}


def choose_captures(source: str) -> list[PublicCapture]:
    """Return the captures that are compared in each run."""
    captures = list_captures(source)
    if source != "tcpdump":
        return captures
    return [
        capture
        for number, capture in enumerate(captures)
        if number % STEP == 0 or len(read_tables(capture.read()).flows)
    ]


@cache
def compare_source(source: str) -> dict[str, dict[str, list[str]]]:
    """Return name -> differences for the chosen captures that Wireshark opens."""
    with Sharkd() as sharkd:
        return {
            capture.name: compare_capture(sharkd, capture.path, capture.read())
            for capture in choose_captures(source)
            if capture.name not in UNREADABLE
        }


def list_differences(source: str, kind: str) -> dict[str, list[str]]:
    return {name: found[kind] for name, found in compare_source(source).items() if found[kind]}


@pytest.mark.parametrize("source", SOURCES)
def test_every_capture_is_read(source):
    captures = list_captures(source)
    assert len(captures) > 50
    packets = 0
    for capture in captures:
        tables = read_tables(capture.read())
        packets += len(tables.packets)
        try:
            pcap.packets(pcap.scan(capture.read()))
        except FrameError as error:
            assert tables.blocks.bad.any() or tables.packets.bad.any(), (capture.name, error)
    assert packets > 150


def collect_sides(tables: Iterable[FrameTable]) -> dict[tuple[int, int], bytes]:
    """Return the bytes of each direction, with Wireshark's text for gaps."""
    sides: dict[tuple[int, int], bytes] = defaultdict(bytes)
    for table in tables:
        columns = (table[name].tolist() for name in ("connection", "kind", "lost"))
        for row, (connection, kind, lost) in enumerate(zip(*columns)):
            data = describe_gap(lost) if lost else bytes(table.frame(row))
            sides[connection, kind] += data
    return sides


@pytest.mark.parametrize("source", SOURCES)
def test_pieces_have_the_streams_of_the_whole(source):
    compared = 0
    for capture in list_captures(source):
        data = capture.read()
        whole = read_tables(data).streams
        if len(whole):
            pieces = iter_tables(data, format="pcap.streams", piece=PIECE, errors="mark")
            assert collect_sides(pieces) == collect_sides([whole]), capture.name
            compared += 1
    assert compared > 20 or source == "gopacket"


@pytest.mark.parametrize("name", UNREADABLE)
def test_wireshark_does_not_open_some_captures(name):
    (capture,) = (one for one in list_captures(name.partition("/")[0]) if one.name == name)
    assert tshark.list_errors(capture.path)


@pytest.mark.parametrize("source", SOURCES)
def test_wireshark_reads_the_same_packets(source):
    assert list_differences(source, "packets") == {}


@pytest.mark.parametrize("source", SOURCES)
def test_wireshark_follows_the_same_streams(source):
    known = {name: lines for name, lines in DIFFERENT_STREAMS.items() if name.startswith(source)}
    assert list_differences(source, "streams") == known


@pytest.mark.parametrize("source", SOURCES)
def test_wireshark_flags_the_same_retransmissions(source):
    assert list_differences(source, "repeats") == {}


@pytest.mark.parametrize("missing", (0, 0.05), ids=("whole", "missing"))
@pytest.mark.parametrize("name", ["kafka", "lumberjack"])
def test_wireshark_flags_the_retransmissions_of_impaired_captures(name, missing, tmp_path):
    (capture,) = (one for one in list_recorded() if one.name == name)
    path = tmp_path / "impaired.pcap"
    with Sharkd() as sharkd:
        for seed in range(5):
            packets = impair(read_packets(capture.path), seed, HEAVY._replace(missing=missing))
            write_packets(path, packets)
            data = path.read_bytes()
            found = compare_capture(sharkd, path, data)
            assert found["packets"] == found["repeats"] == []
            # Wireshark gives up bytes when they are acknowledged, wirescan waits for them.
            assert missing or found["streams"] == []
            flows = read_tables(data).flows
            assert (flows["retransmissions_to_server"] > 0).any()
            assert (flows["repeated_to_server"] > 0).any()
            assert (flows["lost_to_server"] > 0).any() == bool(missing)


def make_findings() -> bytes:
    """Return a capture that has each finding of REPEATS."""
    capture = SimulatedCapture()
    connection = Connection((b"\x0a\0\0\1", 40_000), (b"\x0a\0\0\2", 9092))
    capture.connect(connection)
    capture.send(connection, 0, b"a" * 100, size=50)
    capture.add(connection, 1, ACK)
    capture.add(connection, 0, PSH | ACK, position=0, payload=b"a" * 50)  # acknowledged: spurious
    capture.add(connection, 0, ACK, position=99, payload=b"a")  # a keep-alive
    capture.send(connection, 0, b"b" * 100, size=50)
    for _ in range(3):
        capture.add(connection, 1, ACK, acknowledged=100)
    capture.add(connection, 0, PSH | ACK, position=100, payload=b"b" * 50)  # fast
    capture.now += SECOND
    capture.add(connection, 0, PSH | ACK, position=150, payload=b"b" * 50)
    capture.add(connection, 0, PSH | ACK, position=250, payload=b"d" * 50)
    capture.add(connection, 0, PSH | ACK, position=200, payload=b"c" * 50)  # out of order
    connection.sent[0] += b"c" * 50 + b"d" * 50
    capture.add(connection, 1, ACK)
    time, data = capture.packets[-1]
    capture.packets[-1] = time, data[:WINDOW] + bytes(2) + data[WINDOW + 2 :]
    capture.add(connection, 0, ACK, payload=b"e")  # a probe of the closed window
    capture.add(connection, 1, ACK)
    capture.send(connection, 0, b"e" * 50)
    capture.close(connection)
    return capture.to_pcap()


def test_wireshark_flags_each_kind_of_retransmission(tmp_path):
    path = tmp_path / "findings.pcap"
    data = make_findings()
    path.write_bytes(data)
    with Sharkd() as sharkd:
        assert compare_capture(sharkd, path, data) == {kind: [] for kind in KINDS}
        rows = sharkd.read_fields(FIELDS)
    missing = [name for name in REPEATS if not any(row[f"tcp.analysis.{name}"] for row in rows)]
    assert missing == []
    flows = read_tables(data).flows
    # The packet out of order has new bytes, and so has the probe.
    assert flows["retransmissions_to_server"].tolist() == [4]
    assert flows["repeated_to_server"].tolist() == [50 + 1 + 50 + 50 + 1]


@pytest.mark.nightly
def test_wireshark_reads_all_captures_of_tcpdump():
    differences = {}
    with Sharkd() as sharkd:
        for capture in list_captures("tcpdump"):
            if capture.name not in UNREADABLE:
                found = compare_capture(sharkd, capture.path, capture.read())
                differences[capture.name] = [line for kind in KINDS for line in found[kind]]
    assert len(differences) > 600
    assert {name: lines for name, lines in differences.items() if lines} == DIFFERENT_STREAMS
