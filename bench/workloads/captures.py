"""Captures of Kafka clients: seeded Produce requests in packets of Ethernet, IPv4 and TCP.

Each packet has one request, of 200 to 1,400 bytes. Packets of the connections take turns. The
connections began before the capture, and no answers were captured.
"""

from __future__ import annotations

import struct

import numpy as np

from wirescan import kafka, pcap

SEED = 1
KINDS = 256  # different requests
SIZES = (200, 1400)  # of the values in the requests
TIME = 1_700_000_000
STEP = 20_000  # ns between packets
FIRST_PORT = 20_000
PORTS = 40_000  # ports of a client's address
BROKER = bytes([10, 1, 0, 1])
BROKER_PORT = 9092
ACK = 0x10
WORD = 1 << 32


def make_requests() -> list[bytes]:
    """Return different Produce requests with one batch of one record each."""
    numbers = np.random.default_rng(SEED)
    requests = []
    for number in range(KINDS):
        value = numbers.bytes(int(numbers.integers(*SIZES)))
        batch = kafka.encode_batch([{"value": value, "timestamp": 1000 * TIME}])
        partition = {"index": 0, "records": bytes(batch)}
        topics = [{"name": "orders", "partition_data": [partition]}]
        fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": topics}
        raw = kafka.encode_request("Produce", 9, fields, correlation_id=number, client_id="bench")
        requests.append(bytes(raw))
    return requests


def make_capture(count: int, connections: int) -> tuple[bytes, list[bytes]]:
    """Return a pcap file of `count` packets, and what the client of each connection sent."""
    requests = make_requests()
    chosen = np.random.default_rng(SEED + 1).integers(0, KINDS, count).tolist()
    packets = []
    sent = [0] * connections
    parts: list[list[bytes]] = [[] for _ in range(connections)]
    for number, kind in enumerate(chosen):
        payload = requests[kind]
        connection = number % connections
        client = (10 << 24 | 2 << 16) + connection // PORTS
        port = FIRST_PORT + connection % PORTS
        ip = (0x0800, 0x45, 0, 40 + len(payload), number & 0xFFFF, 0, 64, 6, 0, client, BROKER)
        tcp = (port, BROKER_PORT, sent[connection] % WORD, 1, 5 << 4, ACK, 1024, 0, 0)
        headers = struct.pack(">12xHBBHHHBBHI4sHHIIBBHHH", *ip, *tcp)
        packets.append((TIME * 10**9 + number * STEP, headers + payload))
        sent[connection] += len(payload)
        parts[connection].append(payload)
    return pcap.encode_pcap(packets, nanoseconds=True), [b"".join(part) for part in parts]
