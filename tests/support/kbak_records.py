"""KBAK segments: encoders that know only the format, and records as the peer tests compare them."""

import struct
import zlib

from tests.peers.canonical import Record
from tests.support.canonical_records import list_canonical_records
from wirescan.kafka.backups.kbak_formats import read_kbak_headers


def list_backup_records(records) -> list[Record]:
    """List the records of a table of kafka.kbak_records."""
    return list_canonical_records(records, read_kbak_headers)


def encode_field(data, width="<i"):
    return struct.pack(width, -1) if data is None else struct.pack(width, len(data)) + data


def encode_record(offset, key, value, headers=(), timestamp=7):
    body = struct.pack("<qq", timestamp, offset) + encode_field(key) + encode_field(value)
    body += struct.pack("<H", len(headers))
    for name, content in headers:
        body += encode_field(name, "<H") + encode_field(content)
    return struct.pack("<I", len(body)) + body


def encode_segment(payload, count, codec=0, version=1, offsets=(0, 0)):
    raw = b"KBAK" + struct.pack("<BBHQqq", version, codec, 0, count, *offsets) + payload
    return raw + struct.pack("<I", zlib.crc32(raw)) + b"BKAE"
