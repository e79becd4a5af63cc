"""Raw Fetch and Produce requests, which exchange record sets with a broker without a client.

    frame      := size i32, body; both directions, big-endian
    header     := api key i16, version i16, correlation i32, client i16+text

    Fetch, v0 to v4
    request    := header, replica i32 = -1, max wait i32, min bytes i32, [max bytes i32, 3+],
                  [isolation i8, 4+], topics i32 { name i16+text, partitions i32 {
                  partition i32, offset i64, max bytes i32 } }
    answer     := correlation i32, [throttle i32, 1+], topics i32 { name i16+text, partitions i32 {
                  partition i32, error i16, high watermark i64,
                  [last stable offset i64, aborted i32 { producer i64, first offset i64 }, 4+],
                  records i32+bytes } }

    Produce, v0 to v7
    request    := header, [transactional id i16 = -1, 3+], acks i16, timeout i32,
                  topics i32 { name i16+text, partitions i32 { partition i32, records i32+bytes } }
    answer     := correlation i32, topics i32 { name i16+text, partitions i32 {
                  partition i32, error i16, ... } }, ...

Source: Kafka protocol guide, Fetch API and Produce API. v0 and v1 of both carry magic 0. v2 (and
Fetch v3) carries magic 1. Later versions carry magic 2. Produce v7 allows zstd.
"""

import socket
import struct
import time

NOT_LEADER = 6  # the error of a partition that has no leader yet
SECONDS = 10  # how long to wait for the leader of a new topic


class BrokerError(Exception):
    """The broker answered with a protocol error; `code` is its number."""

    def __init__(self, code: int):
        super().__init__(f"the broker answered with error {code}")
        self.code = code


def fetch(
    address: str, topic: str, offset: int = 0, *, version: int, max_bytes: int = 1 << 20
) -> bytes:
    """The record set that a Fetch returns for partition 0, from `offset` on."""
    return extract_records(
        ask(address, make_fetch_request(topic, offset, version, max_bytes)), version
    )


def produce(address: str, topic: str, record_set: bytes, *, version: int) -> None:
    """Append a record set to partition 0. Wait for the leader of a new topic.

    Raises BrokerError if the broker refuses it.
    """
    parts = [
        make_header(0, version),
        encode_text(None) if version >= 3 else b"",
        struct.pack(">hii", -1, 30_000, 1),
        encode_text(topic),
        struct.pack(">iii", 1, 0, len(record_set)),
        record_set,
    ]
    end = time.monotonic() + SECONDS
    while True:
        answer = ask(address, b"".join(parts))
        (error,) = struct.unpack_from(">h", answer, 4 + 4 + len(encode_text(topic)) + 4 + 4)
        if error != NOT_LEADER or time.monotonic() > end:
            break
        time.sleep(0.1)
    if error:
        raise BrokerError(error)


def ask(address: str, body: bytes) -> bytes:
    """Send one request on a new connection and return the answer."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", read_exactly(connection, 4))
        return read_exactly(connection, size)


def encode_text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value.encode())) + value.encode()


def make_header(api: int, version: int) -> bytes:
    return struct.pack(">hhi", api, version, 7) + encode_text("peer")


def make_fetch_request(topic: str, offset: int, version: int, max_bytes: int) -> bytes:
    parts = [make_header(1, version), struct.pack(">iii", -1, 500, 1)]
    if version >= 3:
        parts.append(struct.pack(">i", max_bytes))
    if version >= 4:
        parts.append(b"\x00")
    parts.append(struct.pack(">i", 1))
    parts.append(encode_text(topic))
    parts.append(struct.pack(">iiqi", 1, 0, offset, max_bytes))
    return b"".join(parts)


def extract_records(answer: bytes, version: int) -> bytes:
    position = 4 + (4 if version >= 1 else 0) + 4
    (name_size,) = struct.unpack_from(">h", answer, position)
    position += 2 + name_size + 4 + 4
    (error,) = struct.unpack_from(">h", answer, position)
    if error:
        raise BrokerError(error)
    position += 2 + 8
    if version >= 4:
        (aborted,) = struct.unpack_from(">i", answer, position + 8)
        position += 12 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", answer, position)
    record_set = answer[position + 4 : position + 4 + max(size, 0)]
    if position + 4 + max(size, 0) != len(answer):
        raise ValueError(f"{len(answer) - position - 4 - size} bytes follow the record set")
    return record_set


def read_exactly(connection: socket.socket, size: int) -> bytes:
    chunks = []
    while size:
        chunk = connection.recv(min(size, 1 << 16))
        if not chunk:
            raise ConnectionError("the broker closed the connection inside an answer")
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
