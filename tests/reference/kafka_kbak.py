"""KBAK segments of OSO's kafka-backup, decoded one field at a time.

    segment   "KBAK" | version u8 | codec u8 | 0 u16 | count u64 | first offset i64
              | last offset i64 | payload | CRC-32 u32 of all bytes before it | "BKAE"
    payload   records, compressed as a whole: codec 0 none, 1 zstd, 2 an lz4 block after its
              decompressed size, u32
    record    length u32 | timestamp i64 | offset i64 | key size i32 | key | value size i32 | value
              | header count u16 | headers
    header    key size u16 | key | value size i32 | value

Integers are little-endian. A negative size is null. A segment has no length: it ends with the first
footer whose checksum is right. Nothing marks the next segment after a damaged one, so the rest of
the bytes is bad.

A row is a dict with every column of the format, as in tests/reference/kafka.py. Source:
kafka-backup-core 0.25.2, src/segment/format.rs.
"""

import struct
import zlib

import lz4.block

from tests.reference.inflate import BAD_COMPRESSION, TOO_LARGE, decompress, limit_payload
from tests.reference.kafka import (
    BAD_CHECKSUM,
    BAD_CODEC,
    BAD_COUNT,
    HEAD,
    LEFTOVER,
    NOT_A_FRAME,
    OK,
    RECORD,
    SHORT,
    TRUNCATED,
    list_headers_with,
)
from tests.reference.window import BadBytesError, Window

BAD_VERSION = 3
SEGMENT = HEAD | dict(base_offset=0, last_offset=0, record_count=0, crc=0, version=0, codec=0)
HEADER_SIZE, FOOTER_SIZE = 32, 8
BEGIN, END = b"KBAK", b"BKAE"
NONE, ZSTD, LZ4 = 0, 1, 2
KAFKA_ZSTD = 4  # its number in tests/reference/inflate.py
SMALLEST_HEADER = 6
LARGEST_COUNT = 0x7FFFFFFF


class LittleWindow(Window):
    """A cursor that reads little-endian integers."""

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]


def read_segments(data, resync=True):
    """Return (rows of kafka.kbak_segments, stop fault, stop position)."""
    rows, at = [], 0
    while at < len(data):
        left = bytes(data[at:])
        if not BEGIN.startswith(left[:4]):
            if not resync:
                return rows, NOT_A_FRAME, at
            rows.append(SEGMENT | dict(start=at, size=len(left), fault=NOT_A_FRAME))
            return rows, OK, len(data)
        end = find_end(left)
        if end is not None:
            rows.append(read_segment(left[:end], at))
        elif len(left) >= HEADER_SIZE + FOOTER_SIZE and left.endswith(END):
            # Damage and no cut is why there is no right checksum.
            bad = dict(start=at, size=len(left), body=HEADER_SIZE, fault=BAD_CHECKSUM)
            rows.append(SEGMENT | bad)
        else:
            return rows, SHORT, at
        at += rows[-1]["size"]
    return rows, OK, at


def find_end(data):
    """Return the position after the first footer with a right checksum, or None."""
    at = data.find(END, HEADER_SIZE + 4)
    while at >= 0:
        if zlib.crc32(data[: at - 4]) == int.from_bytes(data[at - 4 : at], "little"):
            return at + 4
        at = data.find(END, at + 1)
    return None


def read_segment(segment, start):
    """Return the row of a whole segment with a right checksum."""
    version, codec, _, count, first, last = struct.unpack_from("<BBHQqq", segment, 4)
    crc = int.from_bytes(segment[-FOOTER_SIZE:-4], "little")
    row = SEGMENT | dict(start=start, size=len(segment), body=HEADER_SIZE, crc=crc)
    row |= dict(version=version, codec=codec, base_offset=first, last_offset=last)
    if version != 1:
        return row | dict(fault=BAD_VERSION)
    if codec > LZ4:
        return row | dict(fault=BAD_CODEC)
    if count > LARGEST_COUNT:
        return row | dict(fault=BAD_COUNT)
    return row | dict(record_count=count)


def decompress_payload(data, segment):
    """Return the decompressed records of a good compressed segment. Raises BadBytesError."""
    start, end = find_payload(segment)
    payload = bytes(data[start:end])
    if segment["codec"] == ZSTD:
        return decompress(KAFKA_ZSTD, payload)
    if len(payload) < 4:
        raise BadBytesError(BAD_COMPRESSION)
    size = int.from_bytes(payload[:4], "little")
    if size > limit_payload(len(payload)):
        raise BadBytesError(TOO_LARGE)
    try:
        plain = lz4.block.decompress(payload[4:], uncompressed_size=size)
    except lz4.block.LZ4BlockError:
        raise BadBytesError(BAD_COMPRESSION) from None
    if len(plain) != size:
        raise BadBytesError(BAD_COMPRESSION)
    return plain


def find_payload(segment):
    """Return the start and the stop of the payload. That of a bad segment is all of the rest."""
    stop = segment["start"] + segment["size"]
    return segment["start"] + segment["body"], stop if segment["fault"] else stop - FOOTER_SIZE


def list_records(data, segment, parent=0):
    """Return (rows of kafka.kbak_records for a row of kafka.kbak_segments, their bytes).

    `buffer` is 0 where a row points into `data`, and 1 where it points into a decompressed payload.
    """
    start, stop = find_payload(segment)
    buffer = data
    try:
        if segment["fault"]:
            raise BadBytesError(segment["fault"])
        window = LittleWindow(data, start, stop)
        if segment["codec"] != NONE:
            buffer = decompress_payload(data, segment)
            window = LittleWindow(buffer, 0, len(buffer))
    except BadBytesError as bad:
        return [RECORD | dict(start=start, size=stop - start, fault=bad.fault, parent=parent)], data
    rows = read_records(window, segment["record_count"])
    number = int(buffer is not data)
    return [row | dict(parent=parent, buffer=number) for row in rows], buffer


def read_records(window, count):
    rows = []

    def add_rest(fault):
        rows.append(RECORD | dict(start=window.at, size=window.left, fault=fault))
        return rows

    for _ in range(count):
        if not window.left:
            return add_rest(BAD_COUNT)
        start = window.at
        if window.left < 4 or (length := window.number("I")) > window.left:
            window.at = start
            return add_rest(TRUNCATED)
        end = window.at + length
        row = RECORD | dict(start=start, size=end - start, body=4)
        rows.append(row)
        try:
            read_record(LittleWindow(window.data, window.at, end), row)
        except BadBytesError as bad:
            row["fault"] = bad.fault
        window.at = end
        if row["fault"] and not window.left:
            return rows  # one bad row covers everything that is missing
    return add_rest(BAD_COUNT) if window.left else rows


def read_record(window, row):
    """Read the fields of a record into its row. Raises BadBytesError."""
    fixed = LittleWindow(window.data, window.at, window.at + 20)
    window.take(20)  # the times are read together with the size of the key
    row["timestamp"] = fixed.number("q")
    row["offset"] = fixed.number("q")
    window.field(row, "key", fixed.number("i"))
    window.field(row, "value", window.number("i"))
    row["header_count"] = window.number("H")
    row["headers_at"] = window.at - row["start"]
    if not row["header_count"] and window.left:
        raise BadBytesError(LEFTOVER)
    if row["header_count"] * SMALLEST_HEADER > window.left:
        raise BadBytesError(BAD_COUNT)


def list_headers(buffer, record, parent=0):
    """Return the rows of kafka.kbak_headers for one row of kafka.kbak_records.

    `buffer` holds the bytes that the row points into.
    """
    return list_headers_with(read_header, LittleWindow, buffer, record, parent)


def read_header(window, row):
    """Read the fields of a header into its row. Raises BadBytesError."""
    size = window.number("H")
    row["body"] = window.at - row["start"]
    window.field(row, "key", size)
    window.field(row, "value", window.number("i"))
