"""IP fragments, for tests: cuts packets into fragments, and puts fragments together.

`put_together` is a decoder of its own, written from RFC 791 and RFC 8200, with the rules of
docs/captures.md. A packet is (time in ns, bytes from the header of Ethernet on).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Packet = tuple[int, bytes]
SECOND = 10**9
ETHERNET, IPV4, IPV6, EXTENSION = 14, 20, 40, 8  # bytes of headers
FRAGMENT = 44  # the protocol of a fragment header
MOST = 65_535  # bytes of a datagram
WAIT = 30 * SECOND
REMEMBERED = SECOND
COMPARED = 24  # bytes of datagrams with one id


def make_fragment(
    data: bytes,
    payload: bytes,
    *,
    number: int,
    offset: int,
    more: bool,
    protocol: int | None = None,
) -> bytes:
    """Return a fragment of a packet.

    data: a packet, whose headers the fragment has. payload: the bytes of the fragment. number: the
    id. offset: in bytes. more: whether more fragments follow. protocol: None for that of `data`.
    """
    if data[ETHERNET] >> 4 == 4:
        header = bytearray(data[ETHERNET : ETHERNET + IPV4])
        words = (IPV4 + len(payload), number & 0xFFFF, more << 13 | offset // 8)
        struct.pack_into(">HHH", header, 2, *words)
        header[9] = header[9] if protocol is None else protocol
        return data[:ETHERNET] + header + payload
    header = bytearray(data[ETHERNET : ETHERNET + IPV6])
    protocol = header[6] if protocol is None else protocol
    struct.pack_into(">HB", header, 4, EXTENSION + len(payload), FRAGMENT)
    extension = struct.pack(">BBHI", protocol, 0, offset | more, number)
    return data[:ETHERNET] + header + extension + payload


def read_payload(data: bytes) -> bytes:
    """Return the payload of IP in a packet without options and extension headers."""
    return data[ETHERNET + (IPV4 if data[ETHERNET] >> 4 == 4 else IPV6) :]


def cut_packet(data: bytes, number: int, stops: Iterable[int]) -> list[bytes]:
    """Return the fragments of a packet. stops: where they end in its payload; multiples of 8."""
    payload = read_payload(data)
    edges = [0, *stops, len(payload)]
    return [
        make_fragment(data, payload[at:stop], number=number, offset=at, more=stop < len(payload))
        for at, stop in zip(edges, edges[1:])
    ]


def cut_packets(packets: Sequence[Packet], seed: int) -> list[list[Packet]]:
    """Cut some packets into fragments at random. Return the fragments of each, or the packet."""
    chance = random.Random(seed)
    groups = []
    for number, (time, data) in enumerate(packets):
        size = len(read_payload(data))
        places = range(8, size, 8)
        if not places or chance.random() < 0.2:
            groups.append([(time, data)])
            continue
        stops = sorted(chance.sample(places, chance.randint(1, min(len(places), 5))))
        groups.append([(time, part) for part in cut_packet(data, number, stops)])
    return groups


@dataclass
class Datagram:
    """Fragments that wait for others. `size` is None before the last one came."""

    time: int
    found: dict[int, int] = field(default_factory=dict)  # position -> byte
    size: int | None = None
    protocol: int = 0
    whole: tuple[int, bytes] | None = None  # when it was whole, and its first bytes


def put_together(packets: Iterable[Packet]) -> Iterator[Packet]:
    """Yield the packets with whole datagrams in place of the fragments that completed them.

    Fragments that complete none are left out. Those of protocols other than TCP stay.
    """
    waiting: dict[tuple, Datagram] = {}
    now = 0
    for time, data in packets:
        now = max(now, time)
        fragment = read_fragment(data)
        if fragment is None:
            yield time, data
            continue
        key, protocol, offset, more, payload = fragment
        waiting = {
            other: datagram for other, datagram in waiting.items() if now - datagram.time <= WAIT
        }
        datagram = waiting.get(key)
        if datagram is not None and datagram.whole is not None:
            since, begin = datagram.whole
            if now - since <= REMEMBERED and (offset or begin.startswith(payload[:COMPARED])):
                continue
            datagram = None
        if datagram is None:
            waiting.pop(key, None)
            datagram = waiting[key] = Datagram(now)
        whole = add_fragment(datagram, protocol, offset, more, payload)
        if whole is not None:
            datagram.whole = now, whole[:COMPARED]
            yield time, make_whole(data, datagram.protocol, whole)


def read_fragment(data: bytes) -> tuple[tuple, int, int, bool, bytes] | None:
    """Return (key, protocol, offset, more, payload) of a fragment; None for another packet."""
    if data[ETHERNET] >> 4 == 4:
        size, number, word = struct.unpack_from(">HHH", data, ETHERNET + 2)
        protocol = data[ETHERNET + 9]
        if not word & 0x3FFF:
            return None
        key = (data[ETHERNET + 12 : ETHERNET + 20], number, protocol)
        payload = data[ETHERNET + IPV4 : ETHERNET + size]
        return key, protocol, (word & 0x1FFF) * 8, bool(word & 0x2000), payload
    if data[ETHERNET + 6] != FRAGMENT:
        return None
    at = ETHERNET + IPV6
    protocol, _, word, number = struct.unpack_from(">BBHI", data, at)
    if not word & ~6:
        return None  # it is whole (RFC 6946)
    key = (data[ETHERNET + 8 : at], number, 6)
    return key, protocol, word & ~7, bool(word & 1), data[at + EXTENSION :]


def add_fragment(
    datagram: Datagram, protocol: int, offset: int, more: bool, payload: bytes
) -> bytes | None:
    """Add a fragment to its datagram. Return all bytes if they are there."""
    stop = offset + len(payload)
    if stop > MOST or more and (not payload or len(payload) % 8):
        return None
    if datagram.size is not None and (stop > datagram.size or not more and stop < datagram.size):
        return None
    if not more and datagram.size is None:
        if datagram.found and stop <= max(datagram.found):
            return None
        datagram.size = stop
    for position, byte in enumerate(payload, offset):
        if position == 0 and 0 not in datagram.found:
            datagram.protocol = protocol
        datagram.found.setdefault(position, byte)
    if not datagram.size or len(datagram.found) < datagram.size:
        return None
    return bytes(datagram.found[position] for position in range(datagram.size))


def make_whole(data: bytes, protocol: int, payload: bytes) -> bytes:
    """Return a packet with the headers of a fragment and the payload of its whole datagram."""
    if data[ETHERNET] >> 4 == 4:
        header = bytearray(data[ETHERNET : ETHERNET + IPV4])
        struct.pack_into(">H", header, 2, IPV4 + len(payload))
        struct.pack_into(">H", header, 6, 0)
        return data[:ETHERNET] + header + payload
    header = bytearray(data[ETHERNET : ETHERNET + IPV6])
    struct.pack_into(">HB", header, 4, len(payload), protocol)
    return data[:ETHERNET] + header + payload
