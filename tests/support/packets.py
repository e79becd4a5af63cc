"""Packets of pcap files, and what a lossy network would do to them.

    packets = read_packets(Path("kafka.pcap"))
    write_packets(Path("impaired.pcap"), impair(packets, seed=1))

`impair` changes packets as a sniffer near the receiver would see them. Segments are small, lost and
sent again, duplicated, reordered, and overlap. Acks report what the receiver has. A segment after a
gap gets a duplicate ack at once. Every byte of every connection is still in the capture, except
with `Rates.missing`.

The packets must be of Ethernet, IPv4 and TCP, and must begin with the SYN of each connection. Other
packets stay as they are. Headers: RFC 791 and RFC 9293.
"""

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

MICROSECONDS = 0xA1B2C3D4
NANOSECONDS = 0xA1B23C4D
LINK_ETHERNET = 1
SNAP_LENGTH = 262_144
ETHERNET = 14  # bytes of the Ethernet header
IPV4 = 0x0800
TCP = 6
FIN, SYN, RST, ACK = 1, 2, 4, 16
NUMBERS = 1 << 32  # sequence numbers are modulo this
GAP = 1000  # nanoseconds between packets that are moved
Endpoint = tuple[bytes, int]  # address and port


class Packet(NamedTuple):
    """A captured packet. time: nanoseconds since 1970. data: from the Ethernet header on."""

    time: int
    data: bytes


class Rates(NamedTuple):
    """The share of segments with each impairment, between 0 and 1.

    size: the most payload bytes of a segment. lost_before: the sniffer sees only the
    retransmission. lost_after: it sees the segment and the retransmission. duplicate: it sees the
    same packet twice. reorder: the segment is late. overlap: a retransmission has other boundaries.
    lost_acks: segments without payload that never arrive. missing: segments that arrive, but that
    the sniffer misses, so their bytes are not in the capture.
    """

    size: int = 200
    lost_before: float = 0.1
    lost_after: float = 0.1
    duplicate: float = 0.1
    reorder: float = 0.2
    overlap: float = 0.1
    lost_acks: float = 0.1
    missing: float = 0.0


HEAVY = Rates(
    size=60,
    lost_before=0.25,
    lost_after=0.2,
    duplicate=0.2,
    reorder=0.3,
    overlap=0.3,
    lost_acks=0.3,
)


@dataclass(frozen=True)
class Segment:
    """A TCP segment. `position` orders the segments of the capture."""

    position: float
    time: int
    source: Endpoint
    target: Endpoint
    ip_header: bytes  # with the Ethernet header before it
    tcp_header: bytes
    payload: bytes
    arrives: bool = True
    captured: bool = True

    @property
    def flags(self) -> int:
        return self.tcp_header[13]

    @property
    def sequence(self) -> int:
        return struct.unpack_from("!I", self.tcp_header, 4)[0]

    @property
    def acknowledgment(self) -> int:
        return struct.unpack_from("!I", self.tcp_header, 8)[0]

    @property
    def end(self) -> int:
        """The sequence number after the segment."""
        return (self.sequence + len(self.payload) + bool(self.flags & (SYN | FIN))) % NUMBERS

    def cut(self, start: int, stop: int, position: float) -> "Segment":
        """The segment with the bytes [start, stop) of the payload, at another position."""
        header = bytearray(self.tcp_header)
        struct.pack_into("!I", header, 4, (self.sequence + start) % NUMBERS)
        if stop < len(self.payload):
            header[13] &= ~FIN
        return replace(
            self, tcp_header=bytes(header), payload=self.payload[start:stop], position=position
        )

    def build(self, acknowledgment: int, number: int) -> bytes:
        """The packet with this acknowledgment, this number in the IP header, and checksums."""
        tcp = bytearray(self.tcp_header)
        struct.pack_into("!I", tcp, 8, acknowledgment)
        struct.pack_into("!H", tcp, 16, 0)
        size = len(tcp) + len(self.payload)
        pseudo = self.source[0] + self.target[0] + struct.pack("!HH", TCP, size)
        struct.pack_into("!H", tcp, 16, compute_checksum(pseudo + tcp + self.payload))
        ip = bytearray(self.ip_header[ETHERNET:])
        struct.pack_into("!HH", ip, 2, len(ip) + size, number & 0xFFFF)
        struct.pack_into("!H", ip, 10, 0)
        struct.pack_into("!H", ip, 10, compute_checksum(ip))
        return self.ip_header[:ETHERNET] + ip + tcp + self.payload


@dataclass
class Received:
    """What a receiver has of one direction, as sequence numbers relative to its first one."""

    first: int
    next: int = 0
    early: set[tuple[int, int]] = field(default_factory=set)

    def add(self, segment: Segment) -> bool:
        """Add a segment that arrives. Return whether bytes before it are missing."""
        start = (segment.sequence - self.first) % NUMBERS
        self.early.add((start, start + (segment.end - segment.sequence) % NUMBERS))
        is_early = start > self.next
        for start, stop in sorted(self.early):
            if start <= self.next:
                self.next = max(self.next, stop)
                self.early.discard((start, stop))
        return is_early

    def limit(self, acknowledgment: int) -> int:
        """The acknowledgment, or a lower one if the receiver has less."""
        relative = (acknowledgment - self.first) % NUMBERS
        return (self.first + min(relative, self.next)) % NUMBERS


def compute_checksum(data: bytes | bytearray) -> int:
    """The Internet checksum of RFC 1071."""
    padded = bytes(data) + bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def read_packets(file: Path) -> list[Packet]:
    """Read a pcap file of Ethernet, in either byte order. Raises ValueError for other files."""
    data = file.read_bytes()
    orders = {order: struct.unpack_from(f"{order}I", data)[0] for order in "<>"}
    known = [order for order, magic in orders.items() if magic in (MICROSECONDS, NANOSECONDS)]
    if not known:
        raise ValueError(f"{file} is not a pcap file")
    (order,) = known
    (link,) = struct.unpack_from(f"{order}I", data, 20)
    if link != LINK_ETHERNET:
        raise ValueError(f"{file} has link type {link}, not {LINK_ETHERNET}")
    unit = 1 if orders[order] == NANOSECONDS else 1000
    packets = []
    position = 24
    while position < len(data):
        seconds, part, size, _ = struct.unpack_from(f"{order}IIII", data, position)
        position += 16
        time = seconds * 10**9 + part * unit
        packets.append(Packet(time, data[position : position + size]))
        position += size
    return packets


def write_packets(file: Path, packets: Iterable[Packet], *, nanoseconds: bool = False) -> None:
    """Write a little-endian pcap file of Ethernet."""
    magic = NANOSECONDS if nanoseconds else MICROSECONDS
    unit = 1 if nanoseconds else 1000
    parts = [struct.pack("<IHHiIII", magic, 2, 4, 0, 0, SNAP_LENGTH, LINK_ETHERNET)]
    for packet in packets:
        seconds, rest = divmod(packet.time, 10**9)
        size = len(packet.data)
        parts += [struct.pack("<IIII", seconds, rest // unit, size, size), packet.data]
    file.write_bytes(b"".join(parts))


def parse_segment(position: int, packet: Packet) -> Segment | None:
    """The segment in a packet, or None if the packet has no IPv4 and TCP."""
    data = packet.data
    if len(data) < ETHERNET + 20 or struct.unpack_from("!H", data, 12)[0] != IPV4:
        return None
    if data[ETHERNET + 9] != TCP:
        return None
    tcp_start = ETHERNET + (data[ETHERNET] & 15) * 4
    payload_start = tcp_start + (data[tcp_start + 12] >> 4) * 4
    (length,) = struct.unpack_from("!H", data, ETHERNET + 2)
    source_port, target_port = struct.unpack_from("!HH", data, tcp_start)
    return Segment(
        position=position,
        time=packet.time,
        source=(data[ETHERNET + 12 : ETHERNET + 16], source_port),
        target=(data[ETHERNET + 16 : ETHERNET + 20], target_port),
        ip_header=data[:tcp_start],
        tcp_header=data[tcp_start:payload_start],
        payload=data[payload_start : ETHERNET + length],
    )


def shift_numbers(packets: Iterable[Packet], amount: int) -> list[Packet]:
    """The packets with `amount` added to all sequence and acknowledgment numbers.

    So the numbers can wrap. Packets without TCP stay as they are.
    """
    shifted = []
    for position, packet in enumerate(packets):
        segment = parse_segment(position, packet)
        if segment is not None:
            header = bytearray(segment.tcp_header)
            struct.pack_into("!I", header, 4, (segment.sequence + amount) % NUMBERS)
            acknowledgment = segment.acknowledgment
            if segment.flags & ACK:
                acknowledgment = (acknowledgment + amount) % NUMBERS
            (number,) = struct.unpack_from("!H", segment.ip_header, ETHERNET + 4)
            data = replace(segment, tcp_header=bytes(header)).build(acknowledgment, number)
            packet = packet._replace(data=data)
        shifted.append(packet)
    return shifted


def find_deadline(segments: Sequence[Segment], index: int) -> float:
    """The position before which the receiver must have the segment at `index`.

    That is the next segment of the receiver that depends on it, or the end of the sender's side.
    """
    segment = segments[index]
    for later in segments[index + 1 :]:
        if (later.source, later.target) == (segment.source, segment.target):
            if later.flags & (FIN | RST):
                return later.position
        elif (later.source, later.target) == (segment.target, segment.source):
            behind = (later.acknowledgment - segment.end) % NUMBERS
            depends = bool(later.payload) or later.flags & (FIN | RST)
            if depends and behind < NUMBERS // 2:
                return later.position
    return segments[-1].position + 1


def impair_segment(
    segment: Segment, deadline: float, rates: Rates, chance: random.Random
) -> list[Segment]:
    """The segments that a sniffer sees instead of one with a payload, in any order."""

    def happens(rate: float) -> bool:
        return chance.random() < rate

    def choose_later(position: float) -> float:
        return position + (deadline - position) * chance.uniform(0.1, 0.9)

    seen = []
    start = 0
    while start < len(segment.payload):
        size = min(len(segment.payload) - start, chance.randint(1, rates.size))
        # All parts are in the first half of the space before the next segment.
        share = start / len(segment.payload) / 2
        part = segment.cut(start, start + size, segment.position + share)
        start += size
        if happens(rates.missing):
            seen.append(replace(part, captured=False))
            continue
        if happens(rates.lost_before):
            seen.append(replace(part, position=choose_later(part.position)))
            continue
        if happens(rates.lost_after):
            seen += [
                replace(part, arrives=False),
                replace(part, position=choose_later(part.position)),
            ]
            continue
        if happens(rates.reorder):
            part = replace(part, position=choose_later(part.position))
        seen.append(part)
        if happens(rates.duplicate):
            seen.append(part)
        if happens(rates.overlap):
            other = segment.cut(
                max(0, start - size - chance.randrange(rates.size)),
                min(len(segment.payload), start + chance.randrange(rates.size)),
                choose_later(part.position),
            )
            seen.append(other)
    return seen


def impair(packets: Sequence[Packet], seed: int, rates: Rates = Rates()) -> list[Packet]:
    """What a sniffer would see of these packets on a bad network.

    Sequence numbers may wrap. Times do not decrease. Checksums of TCP and IP are right. The same
    seed gives the same packets.
    """
    chance = random.Random(seed)
    parsed = [parse_segment(position, packet) for position, packet in enumerate(packets)]
    others = {
        position: packets[position] for position, segment in enumerate(parsed) if segment is None
    }
    segments = [segment for segment in parsed if segment is not None]
    seen = []
    for index, segment in enumerate(segments):
        if segment.payload:
            deadline = find_deadline(segments, index)
            seen += impair_segment(segment, deadline, rates, chance)
        elif segment.flags & (SYN | FIN | RST) or chance.random() >= rates.lost_acks:
            seen.append(segment)
    return build_packets(seen, others)


class Builder:
    """Builds packets from segments in their order, as their receivers acknowledge them."""

    def __init__(self):
        self.packets: list[Packet] = []
        self._received: dict[tuple[Endpoint, Endpoint], Received] = {}
        # The segment of each direction with the highest end.
        self._newest: dict[tuple[Endpoint, Endpoint], Segment] = {}
        self._previous: Segment | None = None
        self._number = 0

    def add_packet(self, packet: Packet) -> None:
        """Add a packet. Its time becomes later than that of the packet before it."""
        earliest = self.packets[-1].time + GAP if self.packets else packet.time
        self.packets.append(packet._replace(time=max(packet.time, earliest)))

    def add_segment(self, segment: Segment) -> None:
        """Add the packet of a segment, and the duplicate ack that it may cause."""
        direction = segment.source, segment.target
        if segment.flags & SYN:
            self._received[direction] = Received(segment.sequence)
            self._newest[direction] = segment
        newest = self._newest.get(direction)
        if newest and 0 < (segment.end - newest.end) % NUMBERS < NUMBERS // 2:
            self._newest[direction] = segment
        if segment.captured:
            self._build(segment)
        if not segment.arrives or direction not in self._received:
            return
        answer = self._newest.get((segment.target, segment.source))
        if self._received[direction].add(segment) and segment.payload and answer:
            header = bytearray(answer.tcp_header)
            struct.pack_into("!I", header, 4, answer.end)
            header[13] = ACK
            # Its acknowledgment becomes that of all received bytes, which is lower.
            struct.pack_into("!I", header, 8, segment.end)
            self._build(replace(answer, time=segment.time, tcp_header=bytes(header), payload=b""))

    def _build(self, segment: Segment) -> None:
        acknowledgment = segment.acknowledgment
        opposite = self._received.get((segment.target, segment.source))
        if segment.flags & ACK and opposite:
            acknowledgment = opposite.limit(acknowledgment)
        # A packet that the network duplicates keeps its number.
        self._number += segment is not self._previous
        self._previous = segment
        self.add_packet(Packet(segment.time, segment.build(acknowledgment, self._number)))


def build_packets(segments: Sequence[Segment], others: dict[int, Packet]) -> list[Packet]:
    """Build the packets of segments in their order. others: other packets by their position."""
    entries: list[tuple[float, Segment | Packet]] = [
        *((segment.position, segment) for segment in segments),
        *others.items(),
    ]
    builder = Builder()
    for _, item in sorted(entries, key=lambda entry: entry[0]):
        if isinstance(item, Packet):
            builder.add_packet(item)
        else:
            builder.add_segment(item)
    return builder.packets
