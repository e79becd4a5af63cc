"""Small good Kafka files of each magic and codec, and functions that build damaged ones."""

import gzip
import struct

from tests.strategies.kafka import TIME, correct_checksums, squeeze
from wirescan.kafka.encode.records import Record, encode_batch, encode_message_set

EXTREMES = (-1, 0, 1, 2**7 - 1, 2**15 - 1, 2**31 - 1, -(2**31))
RECORDS = [
    Record(5, TIME, b"key", b"value", ((b"h", b"x"), (b"", None))),
    Record(7, TIME + 300, None, b""),
    Record(8, TIME - 1, b"", None),
]
PLAIN = [row._replace(headers=()) for row in RECORDS]
UNTIMED = [row._replace(timestamp=None) for row in PLAIN]

GOLDEN = {
    f"batch-{codec}": encode_batch(RECORDS, codec=codec)
    for codec in ("none", "gzip", "snappy", "snappy-raw", "lz4", "zstd")
}
GOLDEN |= {
    f"magic1-{codec}": encode_message_set(PLAIN, magic=1, codec=codec)
    for codec in ("none", "gzip", "snappy", "snappy-raw", "lz4")
}
GOLDEN |= {
    f"magic0-{codec}": encode_message_set(UNTIMED, magic=0, codec=codec)
    for codec in ("none", "gzip", "snappy", "snappy-raw", "lz4", "lz4-legacy")
}
GOLDEN |= {
    "batch-empty": encode_batch([], base_offset=3, last_offset=9),
    "batch-append": encode_batch(RECORDS, timestamp_type="append"),
    "magic1-append": encode_message_set(PLAIN, magic=1, codec="gzip", timestamp_type="append"),
    "mixed": encode_message_set(UNTIMED[:1], magic=0)
    + encode_message_set(PLAIN[:2], magic=1)
    + encode_batch(RECORDS[1:], codec="lz4"),
}


def make_varint(number, size=1):
    """Return a zigzag varint of at least `size` bytes."""
    number = ((number << 1) ^ (number >> 63)) & 2**64 - 1
    out = bytearray()
    while number > 0x7F or len(out) + 1 < size:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


# The fields of one record. A number is written as a varint.
FIELDS = {
    "attributes": b"\0",
    "timestamp": 300,
    "offset": 1,
    "key length": 3,
    "key": b"key",
    "value length": 5,
    "value": b"value",
    "header count": 2,
    "header key length": 1,
    "header key": b"h",
    "header value length": 1,
    "header value": b"x",
    "second key length": 0,
    "second value length": -1,
}
NUMBERS = [name for name, value in FIELDS.items() if isinstance(value, int)]


def make_record(length=None, **changed):
    """Return a record with other values for its length or for some of its fields."""
    fields = FIELDS | {name.replace("_", " "): value for name, value in changed.items()}
    body = b"".join(
        make_varint(value) if isinstance(value, int) else value for value in fields.values()
    )
    if length is None:
        length = make_varint(len(body))
    return (make_varint(length) if isinstance(length, int) else length) + body


def make_batch(payload, count=1, last_delta=None, codec=0, **options):
    """Return a batch of magic 2 with any payload and a correct checksum."""
    empty = encode_batch([], base_offset=10, last_offset=10, base_timestamp=TIME, **options)
    if last_delta is None:
        last_delta = max(count - 1, 0) % 2**31
    raw = bytearray(empty + payload)
    raw[22] |= codec
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">i", raw, 23, last_delta)
    struct.pack_into(">i", raw, 57, count)
    return correct_checksums(bytes(raw))


def make_wrapper(payload, codec=1, magic=1, offset=9, attributes=0):
    """Return a wrapper of magic 0 or 1 with any payload and a correct checksum.

    attributes: their bits besides those of the codec.
    """
    packed = squeeze[codec](payload)
    key_and_value = struct.pack(">ii", -1, len(packed)) + packed
    return make_message(magic, key_and_value, codec=codec | attributes, offset=offset)


def make_message(magic, key_and_value, codec=0, offset=9):
    """Return a message of magic 0 or 1 with the given bytes after its header.

    Its checksum is correct.
    """
    timestamp = struct.pack(">q", TIME) * magic
    body = struct.pack(">bb", magic, codec) + timestamp + key_and_value
    return correct_checksums(struct.pack(">qiI", offset, 4 + len(body), 0) + body)


def make_bomb(codec, size=100 << 20):
    """Return a payload that decompresses to `size` zeros."""
    if codec == 1:
        return b"".join([gzip.compress(bytes(4 << 20))] * (size >> 22))
    return squeeze[codec](bytes(size))
