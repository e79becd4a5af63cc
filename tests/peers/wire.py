"""Raw Fetch and Produce requests: record sets as a broker sends and takes them, with no client between.

    frame      := size i32, body                                            both ways, big-endian
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

Source: Kafka protocol guide, Fetch API and Produce API. Magic 0 goes with v0 and v1 of both, magic 1 with v2
(and Fetch v3), magic 2 with what follows, zstd with Produce v7.
"""
import socket
import struct


class BrokerError(Exception):
    """The broker answered with a protocol error; `code` is its number."""

    def __init__(self, code: int):
        super().__init__(f"the broker answered with error {code}")
        self.code = code


def fetch(address: str, topic: str, offset: int = 0, *, version: int, max_bytes: int = 1 << 20) -> bytes:
    """The record set that a Fetch of `version` returns for partition 0, from `offset` on."""
    return records(ask(address, fetch_request(topic, offset, version, max_bytes)), version)


def produce(address: str, topic: str, record_set: bytes, *, version: int) -> None:
    """Append a record set to partition 0 with a Produce of `version`; BrokerError where it is refused."""
    parts = [header(0, version), text(None) if version >= 3 else b"", struct.pack(">hii", -1, 30_000, 1),
             text(topic), struct.pack(">iii", 1, 0, len(record_set)), record_set]
    answer = ask(address, b"".join(parts))
    error, = struct.unpack_from(">h", answer, 4 + 4 + len(text(topic)) + 4 + 4)
    if error:
        raise BrokerError(error)


def ask(address: str, body: bytes) -> bytes:
    """The answer to one request on a connection of its own."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        size, = struct.unpack(">i", exactly(connection, 4))
        return exactly(connection, size)


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def header(api: int, version: int) -> bytes:
    return struct.pack(">hhi", api, version, 7) + text("peer")


def fetch_request(topic: str, offset: int, version: int, max_bytes: int) -> bytes:
    parts = [header(1, version), struct.pack(">iii", -1, 500, 1)]
    if version >= 3:
        parts.append(struct.pack(">i", max_bytes))
    if version >= 4:
        parts.append(b"\x00")
    parts += struct.pack(">i", 1), text(topic), struct.pack(">iiqi", 1, 0, offset, max_bytes)
    return b"".join(parts)


def records(answer: bytes, version: int) -> bytes:
    at = 4 + (4 if version >= 1 else 0) + 4
    name_size, = struct.unpack_from(">h", answer, at)
    at += 2 + name_size + 4 + 4
    error, = struct.unpack_from(">h", answer, at)
    if error:
        raise BrokerError(error)
    at += 2 + 8
    if version >= 4:
        aborted, = struct.unpack_from(">i", answer, at + 8)
        at += 12 + 16 * max(aborted, 0)
    size, = struct.unpack_from(">i", answer, at)
    found = answer[at + 4:at + 4 + max(size, 0)]
    if at + 4 + max(size, 0) != len(answer):
        raise ValueError(f"{len(answer) - at - 4 - size} bytes lie after the record set")
    return found


def exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("the broker closed the connection inside an answer")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
