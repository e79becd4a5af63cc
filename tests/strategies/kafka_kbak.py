"""Generators for hypothesis: good and damaged KBAK segments of OSO's kafka-backup.

logs()              segments of all compressions, one after another
tails()             bytes that may follow the last whole segment
damaged_logs()      damaged copies, often with right checksums
written()           (bytes, records in them)
"""

import struct
import zlib

import lz4.block
import zstandard

from tests.strategies import kafka
from tests.strategies import shared as st
from tests.strategies.byte_changes import BYTE_CHANGES, change_bytes
from tests.support.kbak_records import encode_record, encode_segment

NONE, ZSTD, LZ4 = 0, 1, 2
NUMBERS = st.integers(-(2**63), 2**63 - 1)
FIELDS = st.none() | st.binary(max_size=20) | st.just(b"KBAK") | st.just(b"BKAE" * 3)
PAIRS = st.lists(st.tuples(st.binary(max_size=8), FIELDS), max_size=3)
CODECS = st.sampled_from((NONE, NONE, ZSTD, LZ4))
FOOTER = 8
END = b"BKAE"  # the last bytes of a segment


@st.builds_once
def records(least=0):
    """Lists of (offset, timestamp, key, value, headers)."""
    record = st.tuples(NUMBERS, NUMBERS, FIELDS, FIELDS, PAIRS.map(tuple))
    return st.lists(record, min_size=least, max_size=4)


def encode_payload(rows):
    return b"".join(
        encode_record(offset, key, value, headers, timestamp)
        for offset, timestamp, key, value, headers in rows
    )


def compress(codec, payload):
    if codec == ZSTD:
        return zstandard.ZstdCompressor().compress(payload)
    if codec == LZ4:
        return lz4.block.compress(payload, store_size=True)
    return payload


def make_segment(rows, codec):
    offsets = (rows[0][0], rows[-1][0]) if rows else (0, 0)
    return encode_segment(compress(codec, encode_payload(rows)), len(rows), codec, 1, offsets)


@st.builds_once
def segments(least=0):
    """One good segment."""
    return st.tuples(records(least), CODECS).map(lambda pair: make_segment(*pair))


@st.builds_once
def logs(least=0, most=3):
    """Good segments, one after another."""
    return st.lists(segments(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """No bytes, or a cut segment. One that ends with the mark of an end is whole, and damaged."""
    cuts = st.tuples(segments(1), st.integers(0, 10_000))
    parts = cuts.map(lambda pair: pair[0][: pair[1] % len(pair[0])])
    return st.just(b"") | parts.filter(lambda raw: not raw.endswith(END))


def correct_checksum(raw):
    """Return the bytes with a right checksum before their last four bytes."""
    if len(raw) < FOOTER:
        return raw
    return raw[:-FOOTER] + struct.pack("<I", zlib.crc32(raw[:-FOOTER])) + raw[-4:]


@st.composite
def mutations(draw, raw, number_form="<I"):
    """Copies with changed, removed and inserted bytes. number_form: of numbers, for struct."""
    out = bytearray(raw)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(out) - 1, 0)))
        kind = draw(st.sampled_from(("flip", "byte", "cut", "tail", "insert", "size")))
        if kind in BYTE_CHANGES:
            change_bytes(
                draw,
                out,
                at,
                kind,
                inserted=kafka.INSERTED,
                values=kafka.SET_BYTES,
                longest=20,
            )
        elif kind == "size" and len(out) >= 4:
            at = min(at, len(out) - 4)
            number = draw(st.sampled_from((*kafka.EXTREMES, len(out), len(out) - 4)))
            struct.pack_into(number_form, out, at, number % 2**32)
    return bytes(out)


@st.composite
def damaged_segments(draw):
    """A segment with a right checksum, whose records, payload or header are damaged."""
    rows, codec = draw(records(1)), draw(CODECS)
    payload = encode_payload(rows)
    part = draw(st.sampled_from(("records", "payload", "header")))
    if part == "records":
        payload = draw(mutations(payload))
    payload = compress(codec, payload)
    if part == "payload":
        payload = draw(mutations(payload))
    segment = encode_segment(payload, len(rows) + draw(st.sampled_from((0, 0, -1, 1))), codec)
    if part != "header":
        return segment
    head = draw(mutations(segment[4:32]))[:28]
    return correct_checksum(b"KBAK" + head.ljust(28, b"\0") + segment[32:])


@st.builds_once
def damaged_logs():
    """Damaged logs with any tail."""
    inside = st.tuples(logs(most=1), damaged_segments(), logs(most=1), tails()).map(b"".join)
    return inside | st.tuples(logs(least=1), tails()).map(b"".join).flatmap(mutations)


@st.builds_once
@st.composite
def written(draw):
    """Encoded bytes, and the records in them."""
    raw, rows = b"", []
    for own, codec in draw(st.lists(st.tuples(records(), CODECS), max_size=3)):
        raw += make_segment(own, codec)
        rows += own
    return raw, rows
