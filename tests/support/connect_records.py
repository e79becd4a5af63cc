"""Records of itadventurer's kafka-backup: an encoder that knows only the format, and lists."""

import struct

from tests.peers.canonical import Record
from tests.support.canonical_records import list_canonical_records
from wirescan.kafka.backups.connect_formats import read_connect_headers

VERSION = b"\1"  # the first byte of a segment


def list_connect_records(records) -> list[Record]:
    """List the records of a table of kafka.connect_backup_records."""
    return list_canonical_records(records, read_connect_headers)


def encode_field(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def encode_record(offset, key, value, headers=(), timestamp=7, kind=0):
    """Encode a record. kind: the timestamp type, without a timestamp if it is negative."""
    raw = struct.pack(">qi", offset, kind)
    raw += struct.pack(">q", timestamp) if kind >= 0 else b""
    raw += encode_field(key) + encode_field(value) + struct.pack(">i", len(headers))
    return raw + b"".join(encode_field(name) + encode_field(content) for name, content in headers)
