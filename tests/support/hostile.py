"""Hostile input: generators of small inputs that expand to much, and what reads them."""

from __future__ import annotations

import struct
import zlib

import pytest
from crc32c import crc32c

import wirescan
from tests.support import connect_records
from tests.support.kbak_records import encode_record, encode_segment
from tests.support.simulated_capture import ACK, SYN, Connection, SimulatedCapture
from wirescan import kafka, liftbridge, lumberjack, nats, thrift
from wirescan.frames.codecs import compress
from wirescan.thrift import MessageType, Protocol, Transform


def make_zstd_batches(count: int, records: int) -> bytes:
    """Kafka batches of equal records of seven bytes: they compress as well as anything can."""
    batch = bytearray(kafka.encode_batch([b""], codec="zstd"))[:61] + compress(
        "zstd", b"\x0c\0\0\0\1\1\0" * records
    )
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, records)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch) * count


def make_thrift_elements(count: int) -> bytes:
    """A compressed Thrift frame: a list of `count` booleans in the compact protocol."""
    size, varint = count, bytearray()
    while size > 127:
        varint.append(size & 127 | 128)
        size >>= 7
    arguments = b"\x19\xf1" + bytes(varint) + bytes((size,)) + b"\1" * count + b"\0"
    message = thrift.encode_message("m", MessageType.CALL, 1, arguments, protocol=Protocol.COMPACT)
    return thrift.encode_frame(message, protocol_id=Protocol.COMPACT, transforms=[Transform.ZSTD])


ROW_MAKERS = {
    "kafka.records": lambda: make_zstd_batches(2, 5000),
    "thrift.fields": lambda: make_thrift_elements(10_000),
}


def make_wrong_checksum(data: bytes) -> bytes:
    """A zlib stream whose Adler-32 is wrong, which shows when all of it is decompressed."""
    stream = zlib.compress(data, 9)
    return stream[:-1] + bytes([stream[-1] ^ 1])


def make_wrong_lumberjack(size: int) -> bytes:
    """A compressed Lumberjack frame with a wrong checksum. size: of the event in it, in bytes."""
    payload = make_wrong_checksum(b"2J" + struct.pack(">II", 1, size) + b" " * size)
    return b"2C" + struct.pack(">I", len(payload)) + payload


def make_wrong_thrift(size: int) -> bytes:
    """A Thrift frame with a transform of zlib and a wrong checksum. size: of its message."""
    message = thrift.encode_message("m", MessageType.CALL, 1, bytes(size))
    frame = thrift.encode_frame(message, transforms=[Transform.ZLIB], level=9)
    return frame[:-1] + bytes([frame[-1] ^ 1])


def make_layers(count: int, size: int = 1_000_000) -> bytes:
    """A Thrift frame with `count` transforms: one of zstd, and snappy that holds only literals."""
    payload = thrift.encode_message("m", MessageType.CALL, 1, bytes(size))
    inner = make_snappy_literals(payload)
    for _ in range(count - 2):
        inner = make_snappy_literals(inner)
    header = thrift.encode_frame(compress("zstd", inner), transforms=[])
    return add_transforms(header, [Transform.SNAPPY] * (count - 1) + [Transform.ZSTD])


def make_snappy_literals(data: bytes) -> bytes:
    """One raw block of snappy: its size, and one literal."""
    size, prefix = len(data), bytearray()
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes(prefix) + bytes((size, 63 << 2)) + (len(data) - 1).to_bytes(4, "little") + data


def add_transforms(frame: bytes, transforms: list[int]) -> bytes:
    """A header frame without transforms, whose header says that it has some."""
    words = int.from_bytes(frame[12:14], "big")
    payload = frame[14 + 4 * words :]
    header = bytes((frame[14], len(transforms), *transforms))
    header += bytes(-len(header) % 4)
    body = frame[4:12] + (len(header) // 4).to_bytes(2, "big") + header + payload
    return len(body).to_bytes(4, "big") + body


def make_persistent_headers(frames: int) -> bytes:
    """Frames that each bring one more persistent header: all before them stay in force."""
    return b"".join(
        bytes(thrift.encode_frame(b"", persistent={b"%x" % i: b""})) for i in range(frames)
    )


def prepare_scan(name: str):
    def work(data: bytes) -> int:
        return measure_table(wirescan.scan(data, name, errors="mark"), data)

    return work


def measure_table(table, data: bytes) -> int:
    """What a table keeps in memory beside the data."""
    size, level = sum(map(len, table.buffers)), table
    while level is not None:
        size, level = size + level.rows.nbytes, level.outer
    return size - len(data)


def resolve_headers(data: bytes) -> int:
    return measure_table(thrift.resolve(thrift.scan(data)), data)


def receive_frames(data: bytes) -> int:
    with pytest.raises(thrift.ConversationError) as caught:
        thrift.ServerChannel().receive(data)
    return sum(len(call.arguments) for call in caught.value.events)


def parse_documents(data: bytes) -> int:
    return lumberjack.documents(lumberjack.events(lumberjack.scan(data)), errors="mark").nbytes


def refuse_fields(data: bytes) -> int:
    with pytest.raises(ValueError, match="1000 different fields"):
        lumberjack.documents(lumberjack.events(lumberjack.scan(data)), errors="mark")
    return 0


def repeat_to_size(size: int, one: bytes) -> bytes:
    return one * max(size // len(one), 1)


def make_documents(size: int, *texts: bytes) -> bytes:
    count = size // (sum(map(len, texts)) + 10 * len(texts)) or 1
    return b"".join(bytes(lumberjack.encode_json(i, text)) for i, text in enumerate(texts * count))


def make_record_headers(count: int) -> bytes:
    return bytes(
        kafka.encode_batch([{"value": b"", "headers": [(b"", b"")] * count}], codec="zstd")
    )


def make_backup_records(count: int) -> bytes:
    """A compressed KBAK segment with `count` records of nothing."""
    payload = compress("zstd", encode_record(0, b"", b"") * count)
    return encode_segment(payload, count, codec=1)


def make_backup_headers(count: int) -> bytes:
    """A compressed KBAK segment with `count` headers of nothing in one record."""
    payload = compress("zstd", encode_record(0, b"", b"", [(b"", b"")] * count))
    return encode_segment(payload, 1, codec=1)


def make_connect_headers(count: int) -> bytes:
    """A record of itadventurer's kafka-backup with `count` headers of nothing."""
    return connect_records.encode_record(0, b"", b"", [(b"", b"")] * count)


def make_empty_pairs(count: int) -> bytes:
    frame = b"2D" + (1).to_bytes(4, "big") + count.to_bytes(4, "big") + bytes(8 * count)
    packed = zlib.compress(frame, 9)
    return b"2C" + len(packed).to_bytes(4, "big") + packed


def make_acks_in_layers(count: int) -> bytes:
    packed = zlib.compress(b"2A\0\0\0\1" * count, 9)
    return b"2C" + len(packed).to_bytes(4, "big") + packed


def make_structs(depth: int) -> bytes:
    return bytes(
        thrift.encode_framed(
            thrift.encode_message("m", MessageType.CALL, 1, b"\x0c\0\1" * depth + bytes(depth + 1))
        )
    )


def make_nats_headers(count: int) -> bytes:
    block = b"NATS/1.0\r\n" + b"".join(b"%x:\r\n" % i for i in range(count)) + b"\r\n"
    return b"HPUB a %d %d\r\n%s\r\n" % (len(block), len(block), block)


def make_liftbridge_message(envelope: bytes) -> bytes:
    return bytes(nats.encode_pub("a", bytes(liftbridge.encode_envelope(envelope, 0))))


def make_connections(count: int) -> bytes:
    """A capture of `count` packets, each of which begins a connection."""
    capture = SimulatedCapture()
    for number in range(count):
        client = (number.to_bytes(4), 40_000)
        capture.add(Connection(client, (bytes(4), 9092)), 0, SYN, position=-1)
    return capture.to_pcap()


def make_late_bytes(count: int) -> bytes:
    """A capture of one byte in each of `count` packets, the last byte first, all with gaps."""
    capture = SimulatedCapture()
    connection = Connection((bytes(4), 40_000), (bytes([1] * 4), 9092))
    capture.add(connection, 0, SYN, position=-1)
    for number in range(count, 0, -1):
        capture.add(connection, 0, ACK, position=2 * number, payload=b"x")
    return capture.to_pcap()


# Hostile input: (function of a size that returns bytes, the call, bytes of memory for each byte
# of input, if measured).
# Small inputs have the largest factors, because each call and each payload has a free allowance.
HOSTILE = {
    "pcap.packets, rows": (
        lambda n: SimulatedCapture().to_pcap() + bytes(n // 16 * 16),
        prepare_scan("pcap.packets"),
        20,
    ),
    "pcap.flows, connections": (
        lambda n: make_connections(n // 70),
        prepare_scan("pcap.flows"),
        20,
    ),
    "pcap.streams, the last bytes first": (
        lambda n: make_late_bytes(n // 71),
        prepare_scan("pcap.streams"),
        20,
    ),
    "kafka.records, rows": (
        lambda n: repeat_to_size(n, make_zstd_batches(1, 5000)),
        prepare_scan("kafka.records"),
        8000,
    ),
    "kafka.headers, rows": (
        lambda n: repeat_to_size(n, make_record_headers(5000)),
        prepare_scan("kafka.headers"),
        4000,
    ),
    "kafka.kbak_segments, footers with wrong checksums": (
        lambda n: encode_segment(b"BKAE" * (n // 4), 0),
        prepare_scan("kafka.kbak_segments"),
        1,
    ),
    "kafka.kbak_segments, footers without a right checksum": (
        lambda n: encode_segment(b"BKAE" * (n // 4), 0)[:-1],
        prepare_scan("kafka.kbak_segments"),
        1,
    ),
    "kafka.kbak_records, rows": (
        lambda n: repeat_to_size(n, make_backup_records(20_000)),
        prepare_scan("kafka.kbak_records"),
        20_000,
    ),
    "kafka.kbak_headers, rows": (
        lambda n: repeat_to_size(n, make_backup_headers(60_000)),
        prepare_scan("kafka.kbak_headers"),
        40_000,
    ),
    "kafka.connect_backup_records, rows": (
        lambda n: repeat_to_size(n, connect_records.encode_record(0, None, None, kind=-1)),
        prepare_scan("kafka.connect_backup_records"),
        20,
    ),
    "kafka.connect_backup_records, cut in its headers": (
        lambda n: make_connect_headers(n // 8)[:-1],
        prepare_scan("kafka.connect_backup_records"),
        1,
    ),
    "kafka.connect_backup_headers, rows": (
        lambda n: repeat_to_size(n, make_connect_headers(5000)),
        prepare_scan("kafka.connect_backup_headers"),
        40,
    ),
    "lumberjack.pairs, rows": (
        lambda n: repeat_to_size(n, make_empty_pairs(20_000)),
        prepare_scan("lumberjack.pairs"),
        8000,
    ),
    "lumberjack.frames, rows": (
        lambda n: repeat_to_size(n, b"2A\0\0\0\1"),
        prepare_scan("lumberjack.frames"),
        10,
    ),
    "lumberjack.events, layers": (
        lambda n: repeat_to_size(n, make_acks_in_layers(20_000)),
        prepare_scan("lumberjack.events"),
        8000,
    ),
    "lumberjack.events, wrong checksums": (
        lambda n: repeat_to_size(n, make_wrong_lumberjack(1_000_000)),
        prepare_scan("lumberjack.events"),
        10,
    ),
    "nats.messages, rows": (
        lambda n: repeat_to_size(n, b"+OK\r\n"),
        prepare_scan("nats.messages"),
        20,
    ),
    "nats.headers, many names": (
        lambda n: make_nats_headers(n // 6),
        prepare_scan("nats.headers"),
        20,
    ),
    "liftbridge.messages, rows": (
        lambda n: repeat_to_size(n, make_liftbridge_message(b"")),
        prepare_scan("liftbridge.messages"),
        20,
    ),
    "liftbridge.headers, rows": (
        lambda n: make_liftbridge_message(
            b"\x4a\x00" * (n // 2)
        ),  # empty headers of two bytes each
        prepare_scan("liftbridge.headers"),
        40,
    ),
    "liftbridge.entries, rows": (
        lambda n: repeat_to_size(n, bytes(liftbridge.encode_entry(1, 1, 1, b"", b""))),
        prepare_scan("liftbridge.entries"),
        10,
    ),
    "kafka.batches, search": (
        lambda n: repeat_to_size(
            n, bytes(7) + b"\1\0\0\0\x32\0\0\0\0\2"
        ),  # headers without batches
        prepare_scan("kafka.batches"),
        10,
    ),
    "kafka.requests, rows": (
        lambda n: repeat_to_size(
            n, b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff"
        ),  # ApiVersions of 14 bytes
        prepare_scan("kafka.requests"),
        10,
    ),
    "thrift.infos, rows": (
        lambda n: make_persistent_headers(n // 26),
        prepare_scan("thrift.infos"),
        10,
    ),
    "thrift.fields, rows": (
        lambda n: repeat_to_size(n, make_thrift_elements(5000)),
        prepare_scan("thrift.fields"),
        10_000,
    ),
    "thrift.fields, deep": (
        lambda n: repeat_to_size(n, make_structs(64)),
        prepare_scan("thrift.fields"),
        30,
    ),
    "thrift.fields, too deep": (
        lambda n: repeat_to_size(n, make_structs(5000)),
        prepare_scan("thrift.fields"),
        30,
    ),
    "thrift.plain, wrong checksums": (
        lambda n: repeat_to_size(n, make_wrong_thrift(1_000_000)),
        prepare_scan("thrift.plain"),
        10,
    ),
    "thrift.plain, layers": (
        lambda n: repeat_to_size(n, make_layers(8)),
        prepare_scan("thrift.plain"),
        10_000,
    ),
    "thrift.plain, too many layers": (
        lambda n: repeat_to_size(n, make_layers(60)),
        prepare_scan("thrift.plain"),
        2,
    ),
    "thrift.ServerChannel, layers": (
        lambda n: repeat_to_size(max(n, 2000), make_layers(8)),
        receive_frames,
        10_000,
    ),
    "thrift.resolve, persistent headers": (
        lambda n: make_persistent_headers(n // 26),
        resolve_headers,
        400,
    ),
    "documents, refused": (
        lambda n: make_documents(n, b'{"a":1}', b'{"a":"x"}'),
        parse_documents,
        10,
    ),
    "documents, no JSON": (lambda n: make_documents(n, b"{]"), parse_documents, 15),
    "documents, deep": (
        lambda n: make_documents(n, b'{"a":' * 49 + b"1" + b"}" * 49),
        parse_documents,
        10,
    ),
    "documents, many names": (
        lambda n: b"".join(
            bytes(lumberjack.encode_json(i, b'{"k%d":1}' % i)) for i in range(max(n // 20, 1100))
        ),
        refuse_fields,
        1,
    ),
}
