"""Captures of simulated TCP connections, for tests: the bytes of pcap and pcapng files."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from wirescan import pcap

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
WORD = 1 << 32
STEP = 1_000_000  # ns between packets
EPOCH = 1_700_000_000 * 10**9


@dataclass
class Connection:
    """A connection that is simulated.

    client, server: (address, port). first: the sequence numbers of the two SYN.
    sent: bytes that were sent so far, by the client and by the server.
    """

    client: tuple[bytes, int]
    server: tuple[bytes, int]
    first: tuple[int, int] = (1000, 5000)
    sent: list[bytes] = field(default_factory=lambda: [b"", b""])

    def lose(self, side: int, data: bytes) -> None:
        """Send bytes in a packet that is not captured."""
        self.sent[side] += data


@dataclass
class SimulatedCapture:
    """Packets of connections, in the order of a capture. Each packet is (time in ns, bytes)."""

    packets: list[tuple[int, bytes]] = field(default_factory=list)
    now: int = EPOCH

    def add(
        self,
        connection: Connection,
        side: int,
        flags: int,
        *,
        position: int | None = None,
        payload: bytes = b"",
        acknowledged: int | None = None,
    ) -> None:
        """Add one packet.

        side: 0 for the client, 1 for the server. position: of the payload in the stream of that
        side; -1 is that of the SYN. None is the end. acknowledged: position in the other stream.
        """
        ends = (connection.client, connection.server)
        (source, source_port), (target, target_port) = ends[side], ends[1 - side]
        if position is None:
            position = len(connection.sent[side])
        if acknowledged is None:
            acknowledged = len(connection.sent[1 - side])
        sequence = (connection.first[side] + 1 + position) % WORD
        number = (connection.first[1 - side] + 1 + acknowledged) % WORD
        segment = struct.pack(
            ">HHIIBBHHH",
            source_port,
            target_port,
            sequence,
            number if flags & ACK else 0,
            5 << 4,
            flags,
            65_535,
            0,
            0,
        )
        self.packets.append((self.now, make_ethernet(source, target, segment + payload)))
        self.now += STEP

    def connect(self, connection: Connection) -> None:
        """Add the three packets of a handshake."""
        self.add(connection, 0, SYN, position=-1)
        self.add(connection, 1, SYN | ACK, position=-1)
        self.add(connection, 0, ACK)

    def send(self, connection: Connection, side: int, data: bytes, size: int = 1448) -> None:
        """Add the packets of bytes, of at most `size` bytes each."""
        for at in range(0, len(data), size):
            self.add(connection, side, PSH | ACK, payload=data[at : at + size])
            connection.sent[side] += data[at : at + size]

    def close(self, connection: Connection) -> None:
        """Add the packets that end a connection."""
        self.add(connection, 0, FIN | ACK)
        self.add(connection, 1, FIN | ACK, acknowledged=len(connection.sent[0]) + 1)
        self.add(connection, 0, ACK, position=len(connection.sent[0]) + 1)

    def to_pcap(self, **options: bool) -> bytes:
        """Return the packets as a pcap file with times in nanoseconds.

        options: arguments of `pcap.encode_pcap`.
        """
        return pcap.encode_pcap(self.packets, **{"nanoseconds": True, **options})

    def to_pcapng(self, **options: object) -> bytes:
        """Return the packets as a pcapng file with times in nanoseconds.

        options: arguments of `pcap.encode_pcapng`.
        """
        return pcap.encode_pcapng(self.packets, **options)


def make_ethernet(source: bytes, target: bytes, segment: bytes, protocol: int = 6) -> bytes:
    """Return a packet of Ethernet with IPv4 or IPv6, as the addresses are."""
    if len(source) == 4:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 1, 0, 64, protocol, 0)
        return bytes(12) + b"\x08\x00" + head + source + target + segment
    head = struct.pack(">IHBB", 6 << 28, len(segment), protocol, 64)
    return bytes(12) + b"\x86\xdd" + head + source + target + segment


def shuffle_packets(packets: Sequence[tuple[int, bytes]], seed: int) -> list[tuple[int, bytes]]:
    """Return packets with some repeated and some out of order, also acks before their bytes.

    Every packet remains. The first three ones, which connect, keep their places.
    """
    random_numbers = random.Random(seed)
    head, rest = list(packets[:3]), list(packets[3:])
    repeated = [packet for packet in rest if random_numbers.random() < 0.1]
    places = [
        (place + random_numbers.choice((0, 0, 0, 3, 9)) * random_numbers.random(), packet)
        for place, packet in enumerate(rest)
    ]
    places += [(random_numbers.uniform(0, len(rest)), packet) for packet in repeated]
    return head + [packet for _, packet in sorted(places, key=lambda item: item[0])]
