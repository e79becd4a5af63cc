"""Differences between wirescan's and Wireshark's reading of a capture, as text.

    compare_capture(sharkd, path, data)     # all of these:
    compare_packets(data, rows)             # rows: `sharkd.read_fields(FIELDS)`
    compare_streams(sharkd, data, rows)
    compare_repeats(data, rows)

Only what both read is compared. Wireshark reads more link layers, and headers inside others.
"""

import re
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from ipaddress import ip_address
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from wirescan import pcap
from wirescan.frames.table import FrameTable
from wirescan.pcap import BlockKind, Direction, LinkType, PacketKind

from .sharkd import Sharkd, describe_gap

# Names of tshark's findings about packets with bytes, without their prefix tcp.analysis.
REPEATS = (
    "retransmission",
    "fast_retransmission",
    "spurious_retransmission",
    "out_of_order",
    "keep_alive",
    "zero_window_probe",
)
LOST_SEGMENT = "tcp.analysis.lost_segment"
ACK_LOST_SEGMENT = "tcp.analysis.ack_lost_segment"
FIELDS = (
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "frame.encap_type",
    "frame.protocols",
    "vlan.id",
    "ieee8021ad.id",
    "ip.hdr_len",
    "ip.src",
    "ip.dst",
    "ip.ttl",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.hlim",
    "tcp.stream",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.hdr_len",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.len",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    LOST_SEGMENT,
    ACK_LOST_SEGMENT,
    *(f"tcp.analysis.{name}" for name in REPEATS),
)
KINDS = ("packets", "streams", "repeats")
Row = dict[str, str]
# Layers that both read before IP, and between IPv6 and TCP or UDP.
TAGS = {"vlan": "vlan.id", "ieee8021ad": "ieee8021ad.id"}
LINKS = {"eth", "ethertype", "null", "sll", "raw", *TAGS}
EXTENSIONS = {"ipv6.hopopts", "ipv6.routing", "ipv6.fraghdr", "ipv6.dstopts", "ah"}
BILLION = 10**9
LATEST = 1 << 63  # ns
FLAGS = 0x1FF  # of tcp.flags; the others are reserved bits
UDP_HEADER = 8
FIN, SYN, RST, ACK = 1, 2, 4, 16
LARGEST_WINDOW = 1 << 30
HALF = 1 << 31  # of all sequence numbers
GAP = re.compile(rb"\[\d+ bytes missing in capture file\]\0")


class CaptureTables(NamedTuple):
    """The tables of a capture, with errors="mark". data: its bytes."""

    data: bytes
    blocks: FrameTable
    packets: FrameTable
    flows: FrameTable
    streams: FrameTable


@cache
def read_tables(data: bytes) -> CaptureTables:
    blocks = pcap.scan(data, errors="mark")
    packets = pcap.packets(blocks)
    flows = pcap.flows(packets)
    return CaptureTables(data, blocks, packets, flows, pcap.streams(flows))


def compare_capture(sharkd: Sharkd, path: Path, data: bytes) -> dict[str, list[str]]:
    """Return the differences of a capture, for each of KINDS. data: the bytes of the file."""
    sharkd.load(path)
    rows = sharkd.read_fields(FIELDS)
    return {
        "packets": compare_packets(data, rows),
        "streams": compare_streams(sharkd, data, rows),
        "repeats": compare_repeats(data, rows),
    }


# ---- packets


def compare_packets(data: bytes, rows: Sequence[Row]) -> list[str]:
    """Compare the packets of a capture. Return a line for each packet that differs."""
    tables = read_tables(data)
    # Wireshark shows custom blocks as packets that have no encapsulation.
    rows = select_packets(rows)
    if len(rows) != len(tables.packets):
        return [f"{len(tables.packets)} packets, and {len(rows)} of Wireshark"]
    lines = []
    for number, (packet, row) in enumerate(zip(tables.packets, rows)):
        if packet.fault or packet.link not in list(LinkType):
            continue
        ours, theirs = describe_packet(packet), describe_row(packet, row)
        if not has_proper_time(tables, packet):
            ours["time"] = theirs["time"]
        names = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
        if names:
            found = {name: (ours.get(name), theirs.get(name)) for name in sorted(names)}
            lines.append(f"packet {number + 1}: {found}")
    return lines


def select_packets(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["frame.encap_type"]]


def has_proper_time(tables: CaptureTables, packet) -> bool:
    """Is the fraction of a pcap record less than a second? Else there is no right time."""
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<"}.get(tables.data[:4], ">")
    if tables.blocks["kind"][0] != BlockKind.FILE:
        return True
    units = BILLION if b"\x4d" in tables.data[:4] else 10**6
    start = int(tables.blocks["start"][packet.parent])
    return struct.unpack_from(order + "I", tables.data, start + 4)[0] < units


def describe_packet(packet) -> dict[str, object]:
    """Return what wirescan reads of a packet."""
    found = {
        "time": packet.time,
        "length": packet.length,
        "captured": packet.size,
        "version": packet.version,
        "vlan": packet.vlan,
    }
    if packet.version:
        found["source"] = str(ip_address(bytes(packet.source_address)))
        found["destination"] = str(ip_address(bytes(packet.destination_address)))
        found["ttl"] = packet.ttl
    found["transport"] = {PacketKind.TCP: "tcp", PacketKind.UDP: "udp"}.get(packet.kind, "")
    if packet.kind in (PacketKind.TCP, PacketKind.UDP):
        found["ports"] = (packet.source_port, packet.destination_port)
        found["payload"] = packet.payload_length
    if packet.kind == PacketKind.TCP:
        found["numbers"] = (packet.sequence, packet.acknowledgment)
        found["flags"] = packet.flags
        found["window"] = packet.window
    return found


def describe_row(packet, row: Row) -> dict[str, object]:
    """Return what Wireshark reads of the same layers, in the form of `describe_packet`."""
    time = int(Decimal(row["frame.time_epoch"] or 0) * BILLION)
    found = {
        "time": time if time < LATEST else 0,
        "length": int(row["frame.len"]),
        "captured": int(row["frame.cap_len"]),
        "version": 0,
        "transport": "",
    }
    layers = row["frame.protocols"].split(":")
    links = list(takewhile(LINKS.__contains__, layers))
    layers = layers[len(links) :]
    found["vlan"] = next((int(row[TAGS[link]]) for link in links if link in TAGS), 0)
    if layers[:2] == ["ip", "ipv6"] and not row["ip.dst"]:
        del layers[0]  # the link type says IPv4, and the version is 6
    if (
        layers[:1] == ["ip"]
        and row["ip.dst"]
        and not is_cut(packet, PacketKind.OTHER, row["ip.hdr_len"])
    ):
        found["version"] = 4
        found["source"] = row["ip.src"]
        found["destination"] = row["ip.dst"]
        found["ttl"] = int(row["ip.ttl"])
    elif layers[:1] == ["ipv6"] and row["ipv6.dst"]:
        found["version"] = 6
        found["source"] = row["ipv6.src"]
        found["destination"] = row["ipv6.dst"]
        found["ttl"] = int(row["ipv6.hlim"])
        layers = [layer for layer in layers if layer not in EXTENSIONS]
    # Fragments have rows of their own, also where Wireshark puts them together.
    if found["version"] and packet.kind != PacketKind.FRAGMENT:
        found |= describe_transport(packet, layers[1:2], row)
    return found


def is_cut(packet, kind: PacketKind, size: str) -> bool:
    """Is a header of this size cut? wirescan does not read such a header, so it is the payload.

    kind: the kind of a packet whose next header is not read.
    """
    return packet.kind == kind and packet.payload_size < int(size)


def describe_transport(packet, layers: list[str], row: Row) -> dict[str, object]:
    """Return what Wireshark reads of TCP or UDP. layers: the one after IP, or none."""
    if (
        layers == ["tcp"]
        and row["tcp.len"]
        and not is_cut(packet, PacketKind.IP, row["tcp.hdr_len"])
    ):
        return {
            "transport": "tcp",
            "ports": (int(row["tcp.srcport"]), int(row["tcp.dstport"])),
            "payload": int(row["tcp.len"]),
            "numbers": (int(row["tcp.seq_raw"]), int(row["tcp.ack_raw"])),
            "flags": int(row["tcp.flags"], 16) & FLAGS,
            "window": int(row["tcp.window_size_value"]),
        }
    if layers == ["udp"] and row["udp.length"]:
        return {
            "transport": "udp",
            "ports": (int(row["udp.srcport"]), int(row["udp.dstport"])),
            # The length of IP is a limit too.
            "payload": min(int(row["udp.length"]) - UDP_HEADER, packet.payload_length),
        }
    return {}


# ---- connections


def match_flows(tables: CaptureTables, rows: Sequence[Row]) -> dict[int, int]:
    """Return {tcp.stream: row of pcap.flows}. Connections match if their first packets do.

    Raises AssertionError if they do not. TCP inside other headers is not in pcap.flows.
    """
    rows = select_packets(rows)
    first: dict[int, int] = {}
    for place, packet in enumerate(tables.packets):
        if packet.kind == PacketKind.TCP and not packet.fault:
            first.setdefault(int(rows[place]["tcp.stream"]), place)
    begins = tables.flows["parent"].tolist()
    for place in begins:
        # The last fragment of a packet is no row of TCP.
        first.setdefault(int(rows[place]["tcp.stream"]), place)
    assert sorted(first.values()) == begins
    return {stream: begins.index(place) for stream, place in first.items()}


def list_cut_streams(rows: Sequence[Row]) -> set[int]:
    """Return tcp.stream of the connections with a packet that the snap length cut."""
    return {
        int(row["tcp.stream"])
        for row in rows
        if row["tcp.stream"] and row["frame.cap_len"] != row["frame.len"]
    }


def compare_streams(sharkd: Sharkd, data: bytes, rows: Sequence[Row]) -> list[str]:
    """Compare the bytes of each connection. Return a line for each direction that differs.

    Wireshark leaves out what follows missing bytes that nobody acknowledged. Connections with cut
    packets are not compared: it joins what was captured of them.
    """
    tables = read_tables(data)
    lines = []
    for stream, flow in match_flows(tables, rows).items():
        if stream in list_cut_streams(rows):
            continue
        followed = sharkd.follow(stream)
        theirs = [followed.to_server, followed.to_client]
        if followed.client != tuple(read_endpoint(tables.flows, flow, "client")):
            theirs.reverse()
        for kind in Direction:
            ours, is_whole = join_stream(tables, flow, kind)
            other = theirs[kind - 1]
            follows_gap = not is_whole and GAP.match(ours, len(other))
            if ours != other and not (ours.startswith(other) and follows_gap):
                lines.append(f"stream {stream}, {kind.name}: {len(ours)} bytes, not {len(other)}")
    return lines


def read_endpoint(flows: FrameTable, flow: int, side: str) -> tuple[str, int]:
    """Return the address and the port of a side of a connection."""
    address = ip_address(bytes(flows.bytes(flow, f"{side}_address")))
    return str(address), int(flows[f"{side}_port"][flow])


def join_stream(tables: CaptureTables, flow: int, kind: Direction) -> tuple[bytes, bool]:
    """Return the bytes of a direction with Wireshark's text for gaps, and whether there is none."""
    streams = tables.streams
    chosen = (streams["parent"] == flow) & (streams["kind"] == kind)
    parts = []
    for row in chosen.nonzero()[0].tolist():
        lost = int(streams["lost"][row])
        parts.append(describe_gap(lost) if lost else bytes(streams.frame(row)))
    return b"".join(parts), not streams["lost"][chosen].any()


# ---- repeated and lost bytes


class Counts(NamedTuple):
    """Of a direction: packets with bytes but without a new one, repeated bytes, lost bytes."""

    retransmissions: int
    repeated: int
    lost: int


@dataclass
class Direct:
    """What Wireshark says of the packets of a direction.

    segments: (first, stop) of those with bytes, counted from the first sequence number.
    is_flagged: whether each of them has a finding of REPEATS.
    lost_segments: packets with a finding of lost bytes of this direction.
    fin: the position of the FIN, or None. acks: the acknowledged sequence numbers.
    has_syn: whether it has a SYN. stated: the first ACK of the other direction after its SYN.
    """

    base: int | None = None
    segments: list[tuple[int, int]] = field(default_factory=list)
    is_flagged: list[bool] = field(default_factory=list)
    lost_segments: int = 0
    fin: int | None = None
    acks: list[int] = field(default_factory=list)
    has_syn: bool = False
    stated: int | None = None

    def add(self, row: Row) -> None:
        is_syn = int(row["tcp.flags"], 16) & SYN == SYN
        sequence = int(row["tcp.seq_raw"]) + is_syn
        self.has_syn |= is_syn
        self.lost_segments += bool(row[LOST_SEGMENT])
        if self.base is None:
            self.base = sequence
            if self.stated is not None and not is_syn:
                self.base = self.stated
                if not -1 <= self.locate(sequence) < LARGEST_WINDOW:
                    self.base = sequence
        first = self.locate(sequence)
        size = int(row["tcp.len"] or 0)
        if int(row["tcp.flags"], 16) & FIN and self.fin is None:
            self.fin = first + size
        if size:
            self.segments.append((first, first + size))
            self.is_flagged.append(any(row[f"tcp.analysis.{name}"] for name in REPEATS))

    def locate(self, sequence: int) -> int:
        """Return the position of a sequence number in this direction."""
        assert self.base is not None
        return (sequence - self.base + HALF) % (2 * HALF) - HALF

    def add_ack(self, row: Row, other: "Direct") -> None:
        """Add a packet of the other direction."""
        self.lost_segments += bool(row[ACK_LOST_SEGMENT])
        flags = int(row["tcp.flags"], 16)
        if flags & ACK:
            number = int(row["tcp.ack_raw"])
            self.acks.append(number)
            if self.stated is None and other.has_syn and not flags & RST:
                self.stated = number

    def find_end(self) -> int:
        """Return how many bytes were sent at least, as segments, FIN and ACKs show.

        A single number behind the segments is that of a FIN.
        """
        stop = max((stop for _, stop in self.segments), default=0)
        if self.base is None or not self.acks and self.fin is None:
            return stop
        if self.fin is not None:
            return max(stop, self.fin)
        acknowledged = max(self.locate(number) for number in self.acks)
        return acknowledged if stop + 1 < acknowledged < LARGEST_WINDOW else stop


def count_segments(direct: Direct) -> tuple[Counts, list[bool]]:
    """Return the counts of a direction, and whether each segment has a new byte.

    Bytes before the first packet of the capture are not new.
    """
    seen = bytearray(direct.find_end())
    is_new, repeated = [], 0
    for first, stop in direct.segments:
        known = max(0, min(stop, 0) - first) + seen[max(first, 0) : max(stop, 0)].count(1)
        is_new.append(known < stop - first)
        repeated += known
        seen[max(first, 0) : max(stop, 0)] = b"\1" * (max(stop, 0) - max(first, 0))
    return Counts(is_new.count(False), repeated, seen.count(0)), is_new


def agree(ours: Counts, theirs: Counts) -> bool:
    """Do the counts of wirescan agree with those of the segments?

    Bytes that come after wirescan gave them up are lost, and also repeated.
    """
    late = ours.lost - theirs.lost
    return (
        ours.repeated - theirs.repeated == late
        and 0 <= ours.retransmissions - theirs.retransmissions <= late
    )


def compare_repeats(data: bytes, rows: Sequence[Row]) -> list[str]:
    """Compare retransmissions, repeated and lost bytes. Return a line for each difference.

    These relations must hold for each direction:

    - Each packet that wirescan counts as a retransmission has a finding of REPEATS.
    - A packet with such a finding that is not counted has a new byte.
    - Repeated and lost bytes are those of the segments, ACKs and FINs: see `agree`. Lost bytes
      have a LOST_SEGMENT, or an ACK_LOST_SEGMENT of the other direction.
    """
    tables = read_tables(data)
    flows = match_flows(tables, rows)
    clients = {
        stream: read_endpoint(tables.flows, flow, "client") for stream, flow in flows.items()
    }
    cut = list_cut_streams(rows)
    sides: dict[tuple[int, Direction], Direct] = defaultdict(Direct)
    for row in rows:
        stream = int(row["tcp.stream"] or -1)
        if stream in flows and stream not in cut:
            source = row["ip.src"] or row["ipv6.src"], int(row["tcp.srcport"])
            is_client = source == clients[stream]
            directions = [Direction.TO_SERVER, Direction.TO_CLIENT]
            own, other = directions if is_client else reversed(directions)
            sides[stream, own].add(row)
            sides[stream, other].add_ack(row, sides[stream, own])
    lines = []
    for (stream, kind), side in sides.items():
        name, flow = kind.name.lower(), flows[stream]
        ours = Counts(*(int(tables.flows[f"{column}_{name}"][flow]) for column in Counts._fields))
        theirs, is_new = count_segments(side)
        if not agree(ours, theirs):
            lines.append(f"stream {stream}, {kind.name}: {ours}, not {theirs}")
        is_expected = [flag or new for flag, new in zip(side.is_flagged, is_new, strict=True)]
        if not all(is_expected):
            lines.append(f"stream {stream}, {kind.name}: a retransmission is not flagged")
        if bool(ours.lost) > bool(side.lost_segments):
            lines.append(f"stream {stream}, {kind.name}: no lost segment is flagged")
    return lines
