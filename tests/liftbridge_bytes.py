"""Bytes of NATS and Liftbridge, put together by hand: captures, commit logs, payloads with every kind of envelope."""
import struct

from crc32c import crc32c

from wirescan.liftbridge.kind import Kind

MOMENT = 1_700_000_000_123_456_789      # nanoseconds since 1970


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def fields(pairs):
    """A Protocol Buffers message of (number, integer, bytes or None for no such field)."""
    return b"".join(
        varint(number << 3 | 2) + varint(len(value)) + value if isinstance(value, bytes)
        else varint(number << 3) + varint(value) for number, value in pairs if value is not None)


def envelope(kind, payload, crc=False):
    header = struct.pack(">4sBBBB", b"\xb9\x0e\x43\xb4", 0, 12 if crc else 8, crc, kind)
    return header + (struct.pack(">I", crc32c(payload)) if crc else b"") + payload


def message(key, value, headers=(), *, stream=b"s", offset=0, timestamp=0):
    return fields([(1, offset or None), (2, key), (3, value), (4, timestamp or None), (5, stream),
                   *((9, fields([(1, name), (2, one)])) for name, one in headers)])


def ack(stream, offset, at):
    return fields([(1, stream), (4, offset), (8, at), (9, at + 999)])


def nullable(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def entry(offset, timestamp, key, value, headers=(), epoch=7):
    """A record of the commit log."""
    body = b"\1\0" + nullable(key) + nullable(value) + struct.pack(">H", len(headers)) + b"".join(
        struct.pack(">H", len(name)) + name + nullable(one) for name, one in headers)
    return struct.pack(">qqQII", offset, timestamp, epoch, len(body) + 4, crc32c(body)) + body


def payloads(first, count=60):
    """Payloads of NATS messages: messages, with checksums or not, acks, internal ones, plain and empty ones."""
    for i in range(first, first + count):
        key = None if i % 5 == 0 else b"key %d" % (i % 7)
        headers = [(b"h%d" % n, b"" if n else b"x" * (i % 20)) for n in range(i % 3)]
        one = message(key, b"value %d " % i * (i % 9), headers, offset=i, timestamp=MOMENT + i if i % 2 else 0)
        records = b"".join(entry(i + n, MOMENT + n, key, b"v%d" % n, headers) for n in range(i % 4))
        yield (envelope(Kind.PUBLISH, one, crc=i % 2 == 0), b"plain %d" % i,
               envelope(Kind.ACK, ack(b"s", i, MOMENT + i)), b"LIFT" + one,
               envelope(Kind.REPLICATION_RESPONSE, struct.pack(">Qq", 7, i) + records),
               envelope(Kind.PARTITION_STATUS_REQUEST, fields([(1, b"s"), (2, i)])), b"")[i % 7]


def capture(first, count=60):
    """What a server sends: each payload in MSG, or in HMSG with headers of NATS, and what is no message between."""
    out = [b'INFO {"server_id":"x"} \r\n']
    for i, one in enumerate(payloads(first, count), first):
        block = b"NATS/1.0\r\n" + b"".join(b"N%d: %d\r\n" % (n, i) for n in range(1 + i % 2)) + b"\r\n"
        out.append(b"MSG s.%d 1 %d\r\n%s\r\n" % (i % 3, len(one), one) if i % 4 else
                   b"HMSG s.%d 1 inbox %d %d\r\n%s%s\r\n" % (i % 3, len(block), len(block + one), block, one))
        if i % 10 == 0:
            out.append(b"PING\r\n")
    return b"".join(out)


def segment(first, count=100):
    """A commit log's segment, of every second offset."""
    headers = [(b"subject", b"s"), (b"reply", b""), (b"n", None)]
    return b"".join(
        entry(i, MOMENT + 10 * i, None if i % 5 == 0 else b"key %d" % (i % 7), None if i % 8 == 2 else b"value %d" % i,
              headers[:i // 2 % 4]) for i in range(first, first + 2 * count, 2))


def segments(folder, parts=3, count=100):
    """A partition's directory of such segments, with what lies beside them."""
    folder.mkdir()
    for number in range(parts):
        first = 2 * count * number
        (folder / f"{first:020}.log").write_bytes(segment(first, count))
        (folder / f"{first:020}.index").write_bytes(bytes(60))
    (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    return folder
