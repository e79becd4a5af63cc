"""Captures of real programs over a lossy link have the bytes and the tables of a good network.

The kernel's TCP repairs the losses. tcpdump captures both ends: a sender's end has each segment and
its repetitions, a receiver's end has what arrives. See lossy_link.py and link_scenes.py.
"""

import struct
from collections import Counter
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import pytest

import wirescan
from tests.support.captures import FORMATS, RecordedCapture, check_frames, read_streams
from wirescan import pcap
from wirescan.frames.table import FrameTable
from wirescan.reading.chunked import iter_tables

from .capture import split_pcap
from .capture_oracle import KINDS, compare_capture, read_tables
from .link_scenes import ENDS, SCENES, LinkRecording, Servers, record_scenes
from .lossy_link import Counts, LossyLink, find_obstacle
from .relay import ADDRESSES, Conditions
from .sharkd import Sharkd

pytestmark = pytest.mark.peers
BAD = Conditions(loss=0.05, burst=2, duplicate=0.06, late=0.08)
LINKS = [
    BAD._replace(family=4, mtu=576, seed=1),
    BAD._replace(family=4, mtu=1500, seed=2),
    BAD._replace(family=6, mtu=1280, seed=3),
    BAD._replace(family=6, mtu=1500, seed=4),
]
DOZENS = 24
PIECE = 20_000  # bytes
RECORD_HEADER = 16
# Fields of Wireshark: findings about repaired losses, and selective acknowledgments.
DAMAGE = [
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.lost_segment",
    "tcp.analysis.duplicate_ack",
    "tcp.options.sack_le",
]
# The columns that depend on the network. Connections are numbered by their first packets.
NETWORK = {"time", "time_end", "request_end", "response_time", "latency", "packet", "connection"}


class Packet(NamedTuple):
    """time: when it was captured, in microseconds since 1970. data: from the IP header on."""

    time: int
    data: bytes


class LinkCaptures(NamedTuple):
    """What was recorded over one link. scenes: by their names."""

    conditions: Conditions
    to_server: Counts
    to_client: Counts
    scenes: dict[str, LinkRecording]

    def list_captures(self) -> list[RecordedCapture]:
        """Return the captures of both ends."""
        return [getattr(scene, end) for scene in self.scenes.values() for end in ENDS]


@pytest.fixture(scope="module")
def servers():
    obstacle = find_obstacle()
    if obstacle:
        pytest.skip(obstacle)
    with Servers() as servers:
        yield servers


@pytest.fixture(scope="module", params=LINKS, ids=lambda link: f"IPv{link.family}-{link.mtu}")
def recorded(request, servers, tmp_path_factory) -> LinkCaptures:
    conditions = request.param
    target = tmp_path_factory.mktemp("link")
    with LossyLink(conditions) as link:
        scenes = record_scenes(link, servers, target)
    assert scenes.keys() == SCENES.keys()
    return LinkCaptures(conditions, link.to_server, link.to_client, scenes)


def describe_rows(table: FrameTable) -> list[str]:
    """Return the rows without the columns that depend on the network."""
    return [
        repr({name: value for name, value in row.items() if name not in NETWORK})
        for row in table.to_arrow().to_pylist()
    ]


def read_rows(path: Path, format: str) -> list[str]:
    """Return the rows of a format in a capture, sorted."""
    return sorted(describe_rows(wirescan.scan(path, format)))


def read_rows_in_pieces(path: Path, format: str) -> list[str]:
    tables = iter_tables(str(path), format=format, piece=PIECE)
    return sorted(row for table in tables for row in describe_rows(table))


def list_formats(capture: RecordedCapture) -> list[str]:
    """Return the formats of frames and of exchanges that the capture has."""
    exchanges = f"{capture.protocol}.exchanges"
    return [*dict.fromkeys(FORMATS[capture.protocol]), exchanges]


@pytest.mark.parametrize("end", ENDS)
def test_streams_have_the_bytes_of_the_proxy(recorded, end):
    for name, scene in recorded.scenes.items():
        capture = getattr(scene, end)
        assert read_streams(capture.path) == capture.connections, name
        flows = read_tables(capture.path.read_bytes()).flows
        assert not flows["lost_to_server"].any() and not flows["lost_to_client"].any(), name


@pytest.mark.parametrize("end", ENDS)
def test_frames_are_those_of_the_bytes(recorded, end):
    for scene in recorded.scenes.values():
        check_frames(getattr(scene, end))


@pytest.mark.parametrize("end", ENDS)
def test_rows_are_those_of_a_good_network(recorded, end):
    for name, scene in recorded.scenes.items():
        for format in list_formats(scene.clean):
            expected = read_rows(scene.clean.path, format)
            assert len(expected) >= 10, (name, format)
            assert read_rows(getattr(scene, end).path, format) == expected, (name, format)


@pytest.mark.parametrize("end", ENDS)
def test_rows_in_pieces_are_those_of_a_good_network(recorded, end):
    for name, scene in recorded.scenes.items():
        path = getattr(scene, end).path
        for format in list_formats(scene.clean):
            expected = read_rows(scene.clean.path, format)
            assert read_rows_in_pieces(path, format) == expected, (name, format)


@pytest.mark.parametrize("end", ENDS)
def test_responses_come_after_their_requests(recorded, end):
    for name, scene in recorded.scenes.items():
        capture = getattr(scene, end)
        table = wirescan.scan(capture.path, f"{capture.protocol}.exchanges")
        is_answered = table["response_size"] > 0
        assert is_answered.any(), name
        assert (table["latency"][is_answered] > 0).all(), name


def test_frames_leave_before_they_arrive(recorded):
    """The same clock gives the times at both ends."""
    for scene in recorded.scenes.values():
        for format in dict.fromkeys(FORMATS[scene.near.protocol]):
            near, far = (
                sort_frames(wirescan.scan(getattr(scene, end).path, format)) for end in ENDS
            )
            assert near.keys() == far.keys()
            for key, (start, stop) in near.items():
                early, late = (start, stop), far[key]
                if key[1] == pcap.Direction.TO_CLIENT:
                    early, late = late, early
                assert early[0] < late[0] and early[1] < late[1]


def sort_frames(table: FrameTable) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Return {(client, direction, number of the frame there): (time, time_end)}."""
    counts: Counter[tuple[str, int]] = Counter()
    times = {}
    columns = (table[name].tolist() for name in ("direction", "time", "time_end"))
    for client, direction, start, stop in zip(table["client"].to_pylist(), *columns):
        times[client, direction, counts[client, direction]] = start, stop
        counts[client, direction] += 1
    return times


class Findings(NamedTuple):
    """Of Wireshark: the differences to wirescan, and how many packets have each of DAMAGE."""

    differences: dict[str, list[str]]
    counts: Counter[str]


@pytest.fixture(scope="module")
def wireshark(recorded) -> dict[str, Findings]:
    """What Wireshark finds in each capture."""
    findings = {}
    with Sharkd() as sharkd:
        for capture in recorded.list_captures():
            differences = compare_capture(sharkd, capture.path, capture.path.read_bytes())
            counts: Counter[str] = Counter()
            for row in sharkd.read_fields(DAMAGE):
                counts.update(name for name in DAMAGE if row[name])
            findings[capture.name] = Findings(differences, counts)
    return findings


def test_wireshark_reads_the_same(wireshark):
    """Packets, streams, and the relations of docs/captures.md for retransmissions."""
    for name, findings in wireshark.items():
        assert findings.differences == {kind: [] for kind in KINDS}, name


def read_packets(path: Path) -> list[Packet]:
    """Return the packets of a little-endian pcap file with times in microseconds."""
    packets = []
    for record in split_pcap(path.read_bytes()):
        seconds, microseconds = struct.unpack_from("<II", record.data)
        packets.append(Packet(seconds * 10**6 + microseconds, record.data[RECORD_HEADER:]))
    return packets


def count_packets(packets: list[Packet], source: bytes) -> Counter[bytes]:
    """Count the packets from an address, headers included."""
    at = 12 if len(source) == 4 else 8
    return Counter(
        packet.data for packet in packets if packet.data[at : at + len(source)] == source
    )


def test_the_link_is_as_bad_as_it_should_be(recorded):
    """The captures differ by what the relay did to the packets."""
    near, far = (ip_address(text).packed for text in ADDRESSES[recorded.conditions.family])
    sides = ((near, "near", "far", recorded.to_server), (far, "far", "near", recorded.to_client))
    for source, here, there, counts in sides:
        lost = doubled = sizes = 0
        for scene in recorded.scenes.values():
            own, others = (read_packets(getattr(scene, end).path) for end in (here, there))
            sent = count_packets(own, source)
            arrived = count_packets(others, source)
            # A side may repeat its FIN when the capture of its end has ended.
            early = [packet for packet in others if packet.time <= own[-1].time]
            assert count_packets(early, source).keys() <= sent.keys()
            for packet in arrived.keys() - sent.keys():
                del arrived[packet]
            lost += (sent - arrived).total()
            doubled += (arrived - sent).total()
            sizes = max(sizes, *map(len, sent))
        assert sizes == recorded.conditions.mtu
        assert DOZENS < lost <= counts.lost + 2 * len(SCENES)  # the last ones may be under way
        assert DOZENS < doubled <= counts.duplicated
        assert counts.late > DOZENS


@pytest.mark.parametrize("end", ENDS)
def test_the_captures_have_every_kind_of_damage(recorded, wireshark, end):
    counts: Counter[str] = Counter()
    retransmissions = repeated = 0
    for scene in recorded.scenes.values():
        capture = getattr(scene, end)
        counts += wireshark[capture.name].counts
        flows = read_tables(capture.path.read_bytes()).flows
        for side in "server", "client":
            retransmissions += int(flows[f"retransmissions_to_{side}"].sum())
            repeated += int(flows[f"repeated_to_{side}"].sum())
    assert counts.keys() == set(DAMAGE)
    assert counts["tcp.analysis.retransmission"] > DOZENS
    assert counts["tcp.options.sack_le"] > DOZENS
    assert retransmissions > DOZENS
    assert repeated > DOZENS * 100
