"""Captures of clients: seeded frames in packets of Ethernet, IPv4 and TCP.

Kafka: each packet has one Produce request with one batch of 200 to 1,400 bytes. Sizes of values are
lognormal, and timestamps jitter. The connections began before the capture.

Lumberjack and NATS: each packet has one window of events, or several messages. Each connection has
few packets. The capture has its beginning, or begins inside its first frame.

Packets of the connections take turns. Only the captures of exchanges have responses: half of their
clients produce, and the others fetch responses of several packets.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from wirescan import kafka, lumberjack, nats, pcap

SEED = 1
PRODUCE_VERSION = 8  # the newest one that tshark 4.0 reads
FETCH_VERSION = 11  # the newest one that tshark 4.0 reads
REQUEST_NUMBER_AT = 8  # the place of the correlation id
RESPONSE_NUMBER_AT = 4
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
LUMBERJACK_PORT = 5044
NATS_PORT = 4222
PACKETS_EACH = 8  # packets of a connection of Lumberjack or NATS
CUT = 37  # bytes of its first frame that a capture does not have
MOST_FRAMES = 8  # of a packet
MOST_BATCHES = 8  # of a response to Fetch
SEGMENT_BYTES = 1448  # what a packet of Ethernet carries
ACK = 0x10
SYN = 0x02
WORD = 1 << 32


def make_requests() -> list[bytes]:
    """Return different Produce requests with one batch each."""
    numbers = np.random.default_rng(SEED)
    requests = [make_produce_exchange(numbers)[0] for _ in range(KINDS)]
    return [
        number_message(request, REQUEST_NUMBER_AT, number)
        for number, request in enumerate(requests)
    ]


def number_message(message: bytes, place: int, correlation_id: int) -> bytes:
    """Return a message with another correlation id. place: where it begins."""
    return message[:place] + struct.pack(">i", correlation_id) + message[place + 4 :]


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
        data = make_packet(number, connection, BROKER_PORT, sent[connection], payload)
        packets.append((TIME * 10**9 + number * STEP, data))
        sent[connection] += len(payload)
        parts[connection].append(payload)
    return pcap.encode_pcap(packets, nanoseconds=True), [b"".join(part) for part in parts]


def make_produce_exchange(numbers: np.random.Generator) -> tuple[bytes, bytes]:
    """Return a Produce request with one batch, and its response."""
    batch = kafka.encode_batch(make_records(numbers, int(numbers.integers(*SIZES))))
    partition = {"index": 0, "records": bytes(batch)}
    topics = [{"name": "orders", "partition_data": [partition]}]
    fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": topics}
    request = kafka.encode_request("Produce", PRODUCE_VERSION, fields, client_id="bench")
    partition = {"index": 0, "base_offset": int(numbers.integers(1 << 40))}
    topics = [{"name": "orders", "partition_responses": [partition]}]
    return request, kafka.encode_response("Produce", PRODUCE_VERSION, {"responses": topics})


def make_fetch_exchange(numbers: np.random.Generator) -> tuple[bytes, bytes]:
    """Return a Fetch request of one partition, and a response with one or several batches."""
    partition = {"partition": 0, "fetch_offset": int(numbers.integers(1 << 40))}
    topics = [{"topic": "orders", "partitions": [partition]}]
    request = kafka.encode_request("Fetch", FETCH_VERSION, {"topics": topics}, client_id="bench")
    batches = b"".join(
        bytes(kafka.encode_batch(make_records(numbers, int(numbers.integers(*SIZES)))))
        for _ in range(int(numbers.integers(1, MOST_BATCHES)))
    )
    partition = {"partition_index": 0, "records": batches}
    topics = [{"topic": "orders", "partitions": [partition]}]
    return request, kafka.encode_response("Fetch", FETCH_VERSION, {"responses": topics})


def make_exchanges(count: int, connections: int) -> tuple[bytes, int]:
    """Return a pcap file of `count` requests and their responses, and the number of its packets.

    Half of the connections produce, and the others fetch. Each response follows its request after
    `connections // 2` further requests.
    """
    numbers = np.random.default_rng(SEED)
    makers = (make_produce_exchange, make_fetch_exchange)
    kinds = [[maker(numbers) for _ in range(KINDS)] for maker in makers]
    chosen = np.random.default_rng(SEED + 1).integers(0, KINDS, count).tolist()
    packets: list[tuple[int, bytes]] = []
    sent = {client: [0] * connections for client in (True, False)}

    def send(number: int, payload: bytes, *, is_client: bool) -> None:
        connection = number % connections
        positions = sent[is_client]
        for start in range(0, len(payload), SEGMENT_BYTES):
            part = payload[start : start + SEGMENT_BYTES]
            data = make_packet(
                len(packets),
                connection,
                BROKER_PORT,
                positions[connection],
                part,
                is_client=is_client,
            )
            packets.append((TIME * 10**9 + len(packets) * STEP, data))
            positions[connection] += len(part)

    lag = connections // 2
    for number in range(count + lag):
        if number < count:
            request, _ = kinds[number % connections % 2][chosen[number]]
            send(number, number_message(request, REQUEST_NUMBER_AT, number), is_client=True)
        if number >= lag:
            asked = number - lag
            _, response = kinds[asked % connections % 2][chosen[asked]]
            send(asked, number_message(response, RESPONSE_NUMBER_AT, asked), is_client=False)
    return pcap.encode_pcap(packets, nanoseconds=True), len(packets)


def make_packet(
    number: int,
    connection: int,
    port: int,
    position: int,
    payload: bytes,
    flags: int = ACK,
    *,
    is_client: bool = True,
) -> bytes:
    """Return a packet of one side of a connection.

    number: of the packet. port: of the server. position: of the payload in what this side sends.
    """
    client = ((10 << 24 | 2 << 16) + connection // PORTS).to_bytes(4, "big")
    client_port = FIRST_PORT + connection % PORTS
    ends = (client, BROKER, client_port, port) if is_client else (BROKER, client, port, client_port)
    ip = (0x0800, 0x45, 0, 40 + len(payload), number & 0xFFFF, 0, 64, 6, 0, *ends[:2])
    tcp = (*ends[2:], position % WORD, 1, 5 << 4, flags, 1024, 0, 0)
    return struct.pack(">12xHBBHHHBBH4s4sHHIIBBHHH", *ip, *tcp) + payload


def make_windows() -> list[bytes]:
    """Return different windows of Lumberjack: their headers, and events of about 200 bytes."""
    numbers = np.random.default_rng(SEED)
    windows = []
    for _ in range(KINDS):
        count = int(numbers.integers(2, MOST_FRAMES - 2))
        events = [
            bytes(
                lumberjack.encode_json(number, {"message": "x" * int(numbers.integers(120, 240))})
            )
            for number in range(1, count + 1)
        ]
        windows.append(bytes(lumberjack.encode_window(count)) + b"".join(events))
    return windows


def make_publishes() -> list[bytes]:
    """Return different PUB messages of NATS with about 128 bytes, several together."""
    numbers = np.random.default_rng(SEED)
    return [
        b"".join(
            bytes(nats.encode_pub("shop.orders", numbers.bytes(int(numbers.integers(64, 160)))))
            for _ in range(int(numbers.integers(3, MOST_FRAMES)))
        )
        for _ in range(KINDS)
    ]


def make_short_connections(
    payloads: list[bytes], port: int, count: int, *, has_beginning: bool
) -> bytes:
    """Return a pcap file of `count` packets with payloads, PACKETS_EACH of a connection.

    has_beginning: whether it has the SYN of each client. Otherwise it does not have the first CUT
    bytes either.
    """
    connections = max(count // PACKETS_EACH, 1)
    packets = []
    if has_beginning:
        packets = [
            (TIME * 10**9, make_packet(number, number, port, -1, b"", SYN))
            for number in range(connections)
        ]
    chosen = np.random.default_rng(SEED + 1).integers(0, len(payloads), count).tolist()
    sent = [0] * connections
    for number, kind in enumerate(chosen):
        connection = number % connections
        position = sent[connection]
        payload = payloads[kind]
        sent[connection] += len(payload)
        if position == 0 and not has_beginning:
            position, payload = CUT, payload[CUT:]
        data = make_packet(number, connection, port, position, payload)
        packets.append((TIME * 10**9 + number * STEP, data))
    return pcap.encode_pcap(packets, nanoseconds=True)
