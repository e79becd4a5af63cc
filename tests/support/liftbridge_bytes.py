"""Bytes of NATS and Liftbridge, built by hand: captures, commit logs, payloads of every kind."""

import struct

from crc32c import crc32c

from tests.support.varint import make_varint
from wirescan.liftbridge.constants import Kind

MOMENT = 1_700_000_000_123_456_789  # nanoseconds since 1970


def make_fields(pairs):
    """Return a Protocol Buffers message of (number, value).

    A value is an integer or bytes. A field whose value is None is missing.
    """
    out = b""
    for number, value in pairs:
        if isinstance(value, bytes):
            out += make_varint(number << 3 | 2) + make_varint(len(value)) + value
        elif value is not None:
            out += make_varint(number << 3) + make_varint(value)
    return out


def make_envelope(kind, payload, crc=False):
    header = struct.pack(">4sBBBB", b"\xb9\x0e\x43\xb4", 0, 12 if crc else 8, crc, kind)
    return header + (struct.pack(">I", crc32c(payload)) if crc else b"") + payload


def make_message(key, value, headers=(), *, stream=b"s", offset=0, timestamp=0):
    return make_fields(
        [
            (1, offset or None),
            (2, key),
            (3, value),
            (4, timestamp or None),
            (5, stream),
            *((9, make_fields([(1, name), (2, header)])) for name, header in headers),
        ]
    )


def make_ack(stream, offset, at):
    return make_fields([(1, stream), (4, offset), (8, at), (9, at + 999)])


def make_nullable(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def make_entry(offset, timestamp, key, value, headers=(), epoch=7):
    """Return a record of the commit log."""
    body = b"\1\0" + make_nullable(key) + make_nullable(value) + struct.pack(">H", len(headers))
    for name, header in headers:
        body += struct.pack(">H", len(name)) + name + make_nullable(header)
    return struct.pack(">qqQII", offset, timestamp, epoch, len(body) + 4, crc32c(body)) + body


def make_payloads(first, count=60):
    """Yield payloads of NATS messages.

    They are messages with and without checksum, acks, internal messages, plain and empty payloads.
    """
    for i in range(first, first + count):
        key = None if i % 5 == 0 else b"key %d" % (i % 7)
        headers = [(b"h%d" % n, b"" if n else b"x" * (i % 20)) for n in range(i % 3)]
        value = b"value %d " % i * (i % 9)
        timestamp = MOMENT + i if i % 2 else 0
        body = make_message(key, value, headers, offset=i, timestamp=timestamp)
        records = b"".join(
            make_entry(i + n, MOMENT + n, key, b"v%d" % n, headers) for n in range(i % 4)
        )
        yield (
            make_envelope(Kind.PUBLISH, body, crc=i % 2 == 0),
            b"plain %d" % i,
            make_envelope(Kind.ACK, make_ack(b"s", i, MOMENT + i)),
            b"LIFT" + body,
            make_envelope(Kind.REPLICATION_RESPONSE, struct.pack(">Qq", 7, i) + records),
            make_envelope(Kind.PARTITION_STATUS_REQUEST, make_fields([(1, b"s"), (2, i)])),
            b"",
        )[i % 7]


def make_capture(first, count=60):
    """Return the bytes that a server sends.

    Each payload is in MSG, or in HMSG with NATS headers. INFO and PING are among the messages.
    """
    out = [b'INFO {"server_id":"x"} \r\n']
    for i, payload in enumerate(make_payloads(first, count), first):
        if i % 4:
            out.append(b"MSG s.%d 1 %d\r\n%s\r\n" % (i % 3, len(payload), payload))
        else:
            lines = b"".join(b"N%d: %d\r\n" % (n, i) for n in range(1 + i % 2))
            headers = b"NATS/1.0\r\n" + lines + b"\r\n"
            sizes = len(headers), len(headers + payload)
            out.append(b"HMSG s.%d 1 inbox %d %d\r\n" % (i % 3, *sizes))
            out.append(headers + payload + b"\r\n")
        if i % 10 == 0:
            out.append(b"PING\r\n")
    return b"".join(out)


def make_segment(first, count=100):
    """Return a segment of a commit log. It has every second offset."""
    headers = [(b"subject", b"s"), (b"reply", b""), (b"n", None)]
    return b"".join(
        make_entry(
            i,
            MOMENT + 10 * i,
            None if i % 5 == 0 else b"key %d" % (i % 7),
            None if i % 8 == 2 else b"value %d" % i,
            headers[: i // 2 % 4],
        )
        for i in range(first, first + 2 * count, 2)
    )


def write_partition(folder, parts=3, count=100):
    """Write a partition directory: segments, their indexes and a checkpoint. Return its path."""
    folder.mkdir()
    for number in range(parts):
        first = 2 * count * number
        (folder / f"{first:020}.log").write_bytes(make_segment(first, count))
        (folder / f"{first:020}.index").write_bytes(bytes(60))
    (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    return folder
