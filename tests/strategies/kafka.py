"""Kafka bytes for hypothesis: good and damaged batches and message sets of every magic and codec.

batch_calls()           (records, keyword arguments) for encode_batch
message_set_calls()     (records, keyword arguments) for encode_message_set
entries()               one batch or message set
logs()                  a mix of batches and message sets
tails()                 bytes that may follow the last whole entry
mutations(raw)          damaged copies of `raw`, often with correct checksums
damaged_inside()        a compressed entry whose payload decompresses to damaged bytes
"""

import gzip
import struct
import zlib

import lz4.frame
import snappy
import zstandard
from crc32c import crc32c

from tests.reference import kafka_resync
from tests.strategies import shared as st
from tests.strategies.byte_changes import BYTE_CHANGES, change_bytes
from wirescan.kafka.encode.records import Record, encode_batch, encode_message_set

I16, I32, I64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (15, 31, 63))
BATCH_CODECS = ("none", "gzip", "snappy", "snappy-raw", "lz4", "zstd")
MESSAGE_CODECS = {
    0: ("none", "gzip", "snappy", "snappy-raw", "lz4", "lz4-legacy"),
    1: ("none", "gzip", "snappy", "snappy-raw", "lz4"),
}
TIME = 1_700_000_000_000
EXTREMES = (-1, 0, 1, 2**7 - 1, 2**15 - 1, 2**31 - 1, -(2**31))
NEAR = st.integers(-5000, 5000).map(lambda delta: TIME + delta)
TIMES = NEAR | NEAR | I64
FIRST_OFFSETS = st.sampled_from((0, 0, 1, 7, 2**31, 2**40)) | st.integers(0, 2**62)
LEADER_EPOCHS = st.sampled_from((-1, 0, 7)) | I32
DELETE_HORIZONS = st.just(TIME + 86_400_000) | I64
SMALLEST = (13, 14, 21, 22, 48, 49)  # around the smallest lengths of the three magics

# Codec -> function that compresses.
squeeze = {
    1: gzip.compress,
    2: snappy.compress,
    3: lambda data: lz4.frame.compress(data, block_linked=False),
    4: lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
}


# ---- good bytes


@st.builds_once
def blobs(most=40):
    """Bytes whose lengths are varints of one, two and three bytes. They are never null."""
    long = st.tuples(st.sampled_from((63, 64, 200, 8191, 8192)), st.binary(min_size=1, max_size=1))
    return st.one_of(
        st.binary(max_size=most), st.binary(max_size=most), long.map(lambda t: t[0] * t[1])
    )


@st.builds_once
def nullable(most=40):
    return st.none() | blobs(most)


@st.builds_once
def headers():
    """Pairs with repeated keys, empty keys, and null or empty values."""
    names = st.sampled_from((b"", b"a", b"a", b"trace-id", "é".encode())) | st.binary(max_size=8)
    return st.lists(st.tuples(names, st.none() | st.binary(max_size=12)), max_size=4)


@st.builds_once
@st.composite
def records(draw, least=0, most=12, timed=True, headed=True):
    """Records with ascending offsets, gaps between offsets, and timestamps in any order."""
    offset = draw(FIRST_OFFSETS)
    rows = []
    for _ in range(draw(st.integers(least, most))):
        timestamp = draw(TIMES) if timed else None
        key = draw(nullable())
        value = draw(nullable())
        pairs = tuple(draw(headers())) if headed else ()
        rows.append(Record(offset, timestamp, key, value, pairs))
        offset += draw(st.sampled_from((1, 1, 1, 2, 1000)))
    return rows


@st.builds_once
@st.composite
def batch_calls(draw, codecs=BATCH_CODECS, least=0):
    """Records and arguments for encode_batch."""
    rows = draw(records(least))
    first = rows[0].offset if rows else draw(st.integers(0, 2**62))
    last = rows[-1].offset if rows else first
    call = dict(
        codec=draw(st.sampled_from(codecs)),
        timestamp_type=draw(st.sampled_from(("create", "create", "append"))),
        base_offset=first - draw(st.sampled_from((0, 0, 0, 5))),
        last_offset=last + draw(st.sampled_from((0, 0, 9))),
        leader_epoch=draw(LEADER_EPOCHS),
        transactional=draw(st.booleans()),
        control=draw(st.sampled_from((False, False, True))),
    )
    if draw(st.booleans()):
        call |= dict(producer_id=draw(I64), producer_epoch=draw(I16), base_sequence=draw(I32))
    if draw(st.integers(0, 4)) == 0:
        call |= dict(delete_horizon=draw(DELETE_HORIZONS))
    if draw(st.integers(0, 4)) == 0:
        call |= dict(max_timestamp=draw(I64))
    return rows, call


@st.builds_once
@st.composite
def message_set_calls(draw, codecs=None, least=0):
    """Records and arguments for encode_message_set."""
    magic = draw(st.sampled_from((0, 1)))
    codec = draw(st.sampled_from(codecs or MESSAGE_CODECS[magic]))
    if codec != "none":
        least = max(least, 1)
    rows = draw(records(least, 4, timed=magic == 1, headed=False))
    call = dict(magic=magic, codec=codec)
    if magic == 1:
        call |= dict(timestamp_type=draw(st.sampled_from(("create", "create", "append"))))
    if draw(st.integers(0, 4)) == 0:
        call |= dict(wrapper_offset=0)
    return rows, call


@st.builds_once
def entries(least=0):
    """One batch, or one message set."""
    batches = batch_calls(least=least).map(lambda call: encode_batch(call[0], **call[1]))
    calls = message_set_calls(least=least)
    return batches | calls.map(lambda call: encode_message_set(call[0], **call[1]))


@st.builds_once
def logs(least=0, most=4):
    """Entries of all magics and codecs, one after another."""
    return st.lists(entries(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """No bytes, the zeros of a preallocated file, Kafka's overflow filler, or a cut entry."""
    zeros = st.integers(1, 40).map(bytes)
    filler = st.binary(max_size=20).map(lambda junk: struct.pack(">qi", -1, 10_000) + junk)
    cuts = st.tuples(entries(1), st.integers(0, 10_000))
    cut = cuts.map(lambda pair: pair[0][: pair[1] % len(pair[0])])
    return st.just(b"") | zeros | filler | cut.filter(hides_messages)


def hides_messages(tail):
    """Is there no whole message in the cut entry?

    A codec stores bytes unchanged where it cannot compress them. So a cut wrapper may contain a
    whole message, and then the length of the wrapper would count as wrong.
    """
    at = max((end for _, end in find_entries(tail) if end <= len(tail)), default=0)
    return kafka_resync.find_next_intact(tail, at + 1) is None


# ---- damage


def find_entries(raw):
    """Yield (start, end) of the entries, each found by the length of the previous one."""
    at = 0
    while len(raw) - at >= 26:
        (length,) = struct.unpack_from(">i", raw, at + 8)
        if not 14 <= length <= len(raw) - at - 12:
            return
        yield at, at + 12 + length
        at += 12 + length


def correct_checksums(raw):
    """Return `raw` with correct checksums: CRC-32C for magic 2, CRC-32 for magic 0 and 1."""
    out = bytearray(raw)
    for start, end in find_entries(raw):
        if raw[start + 16] == 2 and end - start >= 61:
            struct.pack_into(">I", out, start + 17, crc32c(bytes(out[start + 21 : end])))
        elif raw[start + 16] < 2:
            struct.pack_into(">I", out, start + 12, zlib.crc32(out[start + 16 : end]))
    return bytes(out)


def find_length_positions(raw):
    """Yield the positions of lengths and counts of 32 bits.

    They are the length of each entry, and the length of the key (magic 0 and 1) or the number of
    records (magic 2).
    """
    for start, end in find_entries(raw):
        magic = raw[start + 16]
        yield start + 8
        yield start + {0: 18, 1: 26}.get(magic, min(57, end - start - 4))


SET_BYTES = st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)) | st.integers(0, 255)
INSERTED = st.binary(min_size=1, max_size=12) | st.just(bytes(16)) | st.just(b"\xff" * 10)


@st.composite
def mutations(draw, raw, steps=4):
    """Copies of `raw` with flipped bits, changed, removed or inserted bytes, extreme lengths."""
    for _ in range(draw(st.integers(1, steps))):
        if len(raw) < 4:
            break
        out = bytearray(raw)
        at = draw(st.integers(0, len(raw) - 1))
        kinds = ("flip", "byte", "cut", "tail", "insert", "length", "length", "small")
        kind = draw(st.sampled_from(kinds))
        if kind in BYTE_CHANGES:
            change_bytes(draw, out, at, kind, inserted=INSERTED, values=SET_BYTES, longest=20)
        elif kind == "length":
            at = draw(st.sampled_from(list(find_length_positions(raw)) or [min(at, len(raw) - 4)]))
            (true,) = struct.unpack_from(">i", raw, at)
            near = [true - 1, true + 1, len(raw) - 1, len(raw) + 1]
            number = draw(st.sampled_from([*EXTREMES, *near, *SMALLEST]))
            struct.pack_into(">I", out, at, number % 2**32)
        else:
            end = min(len(raw), at + 4)  # any byte may begin a varint: make it large, long, or -1
            run = draw(st.sampled_from((b"\xff\xff\xff\x7f", b"\x80\x80\x80\x00", b"\1\1\1\1")))
            out[at:end] = run[: end - at]
        raw = bytes(out)
    return correct_checksums(raw) if draw(st.booleans()) else raw


@st.builds_once
def damaged_logs():
    """Damaged mixes of all kinds of entries with any tail."""
    return st.tuples(logs(least=1), tails()).map(b"".join).flatmap(mutations)


@st.builds_once
@st.composite
def damaged_inside(draw):
    """A sound compressed entry whose payload decompresses to damaged bytes."""
    codec = draw(st.integers(1, 4))
    if codec == 4 or draw(st.booleans()):
        rows, call = draw(batch_calls(codecs=("none",), least=1))
        raw = encode_batch(rows, **call)
        out = bytearray(raw[:61] + squeeze[codec](draw(changed_records(raw[61:]))))
        out[22] |= codec
        struct.pack_into(">i", out, 8, len(out) - 12)
        return correct_checksums(bytes(out))
    rows, call = draw(message_set_calls(codecs=("none", "none", "none", "gzip"), least=1))
    plain = encode_message_set(rows, **call)
    plain = draw(st.just(plain) | mutations(plain) | st.just(b""))
    magic = draw(st.sampled_from((call["magic"], call["magic"], 1)))
    packed = squeeze[codec](plain)
    append = 8 * draw(st.booleans()) * magic
    body = struct.pack(">bb", magic, codec | append) + struct.pack(">q", TIME) * magic
    body += struct.pack(">ii", -1, len(packed)) + packed
    last = rows[-1].offset
    offset = draw(st.one_of(st.sampled_from((0, 1, last, last + 10, 2**63 - 1)), I64))
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


VARINTS = st.sampled_from((b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x01", b"\1", b"\0"))
CHANGES = st.binary(max_size=2) | VARINTS


@st.composite
def changed_records(draw, payload):
    """The records of a batch with a few changed bytes. Most of its bytes are varints."""
    out = bytearray(payload)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(out) - 1, 0)))
        out[at : at + draw(st.integers(0, 2))] = draw(CHANGES)
    return bytes(out)
