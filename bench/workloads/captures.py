"""Captures of Kafka clients: seeded Produce requests in packets of Ethernet, IPv4 and TCP.

Each packet has one request with one batch of 200 to 1,400 bytes. Sizes of values are lognormal, and
timestamps jitter. Packets of the connections take turns. The connections began before the capture,
and no answers were captured.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from wirescan import kafka, pcap

SEED = 1
PRODUCE_VERSION = 8  # the newest one that tshark 4.0 reads
KINDS = 256  # different requests
SIZES = (200, 1300)  # bytes of the records in a request
KEY_SIZES = (8, 32)
VALUE_SIZES = (4.5, 0.6)  # of the lognormal distribution: median 90 bytes
TIME = 1_700_000_000
STEP = 20_000  # ns between packets
RECORD_OVERHEAD = 8  # bytes of a record besides its key and value
FIRST_PORT = 20_000
PORTS = 40_000  # ports of a client's address
BROKER = bytes([10, 1, 0, 1])
BROKER_PORT = 9092
ACK = 0x10
WORD = 1 << 32


def make_requests() -> list[bytes]:
    """Return different Produce requests with one batch each."""
    numbers = np.random.default_rng(SEED)
    requests = []
    for number in range(KINDS):
        batch = kafka.encode_batch(make_records(numbers, int(numbers.integers(*SIZES))))
        partition = {"index": 0, "records": bytes(batch)}
        topics = [{"name": "orders", "partition_data": [partition]}]
        fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": topics}
        raw = kafka.encode_request(
            "Produce", PRODUCE_VERSION, fields, correlation_id=number, client_id="bench"
        )
        requests.append(bytes(raw))
    return requests


def make_records(numbers: np.random.Generator, size: int) -> list[dict[str, Any]]:
    """Return records of about `size` bytes together, at least one."""
    records: list[dict[str, Any]] = []
    while size > 0 or not records:
        key = numbers.bytes(int(numbers.integers(*KEY_SIZES)))
        value = numbers.bytes(min(int(numbers.lognormal(*VALUE_SIZES)), max(size, 1)))
        timestamp = 1000 * TIME + int(numbers.integers(-500, 500))
        records.append({"key": key, "value": value, "timestamp": timestamp})
        size -= len(key) + len(value) + RECORD_OVERHEAD
    return records


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
