"""Small good Kafka files, one of each magic and codec, and exact damage to them."""
import gzip
import struct

from strategies.kafka import TIME, mend, squeeze
from wirescan.kafka.encode import Record, encode_batch, encode_message_set

EXTREMES = (-1, 0, 1, 2**7 - 1, 2**15 - 1, 2**31 - 1, -2**31)
RECORDS = [
    Record(5, TIME, b"key", b"value", ((b"h", b"x"), (b"", None))),
    Record(7, TIME + 300, None, b""),
    Record(8, TIME - 1, b"", None),
]
PLAIN = [row._replace(headers=()) for row in RECORDS]
UNTIMED = [row._replace(timestamp=None) for row in PLAIN]

GOLDEN = {f"batch-{codec}": encode_batch(RECORDS, codec=codec)
          for codec in ("none", "gzip", "snappy", "snappy-raw", "lz4", "zstd")}
GOLDEN |= {f"magic1-{codec}": encode_message_set(PLAIN, magic=1, codec=codec)
           for codec in ("none", "gzip", "snappy", "snappy-raw", "lz4")}
GOLDEN |= {f"magic0-{codec}": encode_message_set(UNTIMED, magic=0, codec=codec)
           for codec in ("none", "gzip", "snappy", "snappy-raw", "lz4", "lz4-legacy")}
GOLDEN |= {
    "batch-empty": encode_batch([], base_offset=3, last_offset=9),
    "batch-append": encode_batch(RECORDS, timestamp_type="append"),
    "magic1-append": encode_message_set(PLAIN, magic=1, codec="gzip", timestamp_type="append"),
    "mixed": encode_message_set(UNTIMED[:1], magic=0) + encode_message_set(PLAIN[:2], magic=1)
    + encode_batch(RECORDS[1:], codec="lz4"),
}


def varint(number, size=1):
    """A zig-zag varint in at least `size` bytes, longer than it has to be if that is more."""
    number, out = (number << 1) ^ (number >> 63), bytearray()
    number &= 2**64 - 1
    while number > 0x7F or len(out) + 1 < size:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


# One record, field by field: numbers are varints, bytes are themselves.
FIELDS = {"attributes": b"\0", "timestamp": 300, "offset": 1, "key length": 3, "key": b"key", "value length": 5,
          "value": b"value", "header count": 2, "header key length": 1, "header key": b"h", "header value length": 1,
          "header value": b"x", "second key length": 0, "second value length": -1}
NUMBERS = [name for name, value in FIELDS.items() if isinstance(value, int)]


def record(length=None, **changed):
    """A record, with some of its fields, or its length, given as they are to stand in the bytes."""
    fields = FIELDS | {name.replace("_", " "): value for name, value in changed.items()}
    body = b"".join(varint(value) if isinstance(value, int) else value for value in fields.values())
    if length is None:
        length = varint(len(body))
    return (varint(length) if isinstance(length, int) else length) + body


def batch(payload, count=1, last_delta=None, codec=0, **options):
    """A batch of magic 2 around any payload, its checksum right."""
    raw = bytearray(encode_batch([], base_offset=10, last_offset=10, base_timestamp=TIME, **options) + payload)
    raw[22] |= codec
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">i", raw, 23, max(count - 1, 0) % 2**31 if last_delta is None else last_delta)
    struct.pack_into(">i", raw, 57, count)
    return mend(bytes(raw))


def wrapper(payload, codec=1, magic=1, offset=9):
    """A wrapper of magic 0 or 1 around any payload, its checksum right."""
    packed = squeeze[codec](payload)
    body = struct.pack(">bb", magic, codec) + struct.pack(">q", TIME) * magic + struct.pack(">i", -1)
    body += struct.pack(">i", len(packed)) + packed
    return mend(struct.pack(">qiI", offset, 4 + len(body), 0) + body)


def bomb(codec, size=100 << 20):
    """A payload of zeros, `size` bytes of them once it is inflated."""
    if codec == 1:
        return b"".join([gzip.compress(bytes(4 << 20))] * (size >> 22))
    return squeeze[codec](bytes(size))
