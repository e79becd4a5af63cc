"""Captures of conversations with lost packets, packets out of order and a late beginning."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.support.captured_conversations import CLIENT, SERVER
from tests.support.simulated_capture import ACK, EPOCH, STEP, Connection, SimulatedCapture

LARGE = 20_000  # bytes of a message that is sent in full packets
SIZES = (20, 60, 200, 1448)  # bytes of a packet
UNUSUAL_PORTS = (80, 45_000)

Message = tuple[int, bytes]


def make_damaged_capture(
    messages: Sequence[Message], port: int, first: Sequence[Message], seed: int
) -> SimulatedCapture:
    """Return a capture of some connections.

    messages: what they may send: (side, bytes). first: what each sends first. port: a usual port
    of the server; some connections have another one.
    """
    chance = random.Random(seed)
    small = [message for message in messages if len(message[1]) < LARGE]
    pool = list(messages) if chance.random() < 0.3 else small
    ports = UNUSUAL_PORTS if chance.random() < 0.5 else (port,)
    parts = []
    for number in range(chance.choice((1, 1, 2, 3))):
        connection = Connection((CLIENT[0], 40_000 + number), (SERVER, chance.choice(ports)))
        packets = _converse(connection, pool, first, chance)
        parts.append(_damage(packets, chance))
    capture = SimulatedCapture(_mix(parts, chance))
    if chance.random() < 0.5:
        times = sorted(time for time, _ in capture.packets)
        capture.packets = [(time, data) for time, (_, data) in zip(times, capture.packets)]
    return capture


def _converse(
    connection: Connection,
    pool: Sequence[Message],
    first: Sequence[Message],
    chance: random.Random,
) -> list[tuple[int, bytes]]:
    """Return the packets of one connection."""
    capture = SimulatedCapture(now=EPOCH + chance.randrange(10) * STEP)
    capture.connect(connection)
    size = chance.choice(SIZES)
    turns = [*first, *(chance.choice(pool) for _ in range(chance.randrange(14)))]
    for side, data in turns:
        if chance.random() < 0.05:
            data = chance.randbytes(chance.randrange(1, 2000))
        capture.send(connection, side, bytes(data), size=SIZES[-1] if len(data) > LARGE else size)
        if chance.random() < 0.3:
            capture.add(connection, 1 - side, ACK)
        if chance.random() < 0.05:
            capture.now += 2 * 10**9
    if chance.random() < 0.4:
        capture.close(connection)
    return capture.packets


def _damage(packets: list[tuple[int, bytes]], chance: random.Random) -> list[tuple[int, bytes]]:
    """Return packets of a connection without the first ones, without some, or in another order."""
    if chance.random() < 0.4:
        packets = packets[chance.randrange(min(len(packets), 12)) :]
    if chance.random() < 0.5:
        rate = chance.choice((0.02, 0.1, 0.3))
        packets = [packet for packet in packets if chance.random() >= rate]
    if chance.random() < 0.5:
        reach, rate = chance.choice((2, 5, 20, 80)), chance.choice((0.05, 0.3))
        first = chance.choice((0, 3))
        rest = packets[first:]
        places = [
            place + (chance.random() * reach if chance.random() < rate else 0)
            for place in range(len(rest))
        ]
        order = sorted(range(len(rest)), key=places.__getitem__)
        packets = packets[:first] + [rest[place] for place in order]
    return packets


def _mix(parts: list[list[tuple[int, bytes]]], chance: random.Random) -> list[tuple[int, bytes]]:
    """Return the packets of all connections, a few of each by turns."""
    mixed = []
    while any(parts):
        chosen = chance.choice([part for part in parts if part])
        count = chance.randrange(1, 4)
        mixed += chosen[:count]
        del chosen[:count]
    return mixed


def find_packet_borders(capture: SimulatedCapture) -> list[int]:
    """Return where the packets of a capture end in its pcap file."""
    borders, at = [], len(SimulatedCapture().to_pcap())
    for _, data in capture.packets:
        at += 16 + len(data)
        borders.append(at)
    return borders
