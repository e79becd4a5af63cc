"""Generators for hypothesis: good and damaged batches of Redpanda.

make_batch(...)     one batch of Redpanda, from a batch of Kafka
logs()              batches of several types, one after another
tails()             bytes that may follow the last whole batch
damaged_logs()      damaged copies, often with right checksums
written()           (bytes, records that the clients' batches hold)
"""

import struct

from crc32c import crc32c

from tests.strategies import kafka
from tests.strategies import shared as st
from tests.strategies.byte_changes import BYTE_CHANGES, change_bytes
from wirescan.kafka.encode.records import encode_batch

RAFT_DATA = 1
FIELDS = "hiqqqhii"  # attributes to count
HEADER = 61
TYPES = st.sampled_from((1, 1, 1, 2, 19, 7, 29, 38, 127, 200, 0))


def make_batch(batch, kind=RAFT_DATA):
    """Return a batch of Redpanda with the offsets, the fields and the records of one of Kafka.

    batch: of magic 2.
    """
    (base,) = struct.unpack_from(">q", batch)
    (crc,) = struct.unpack_from(">I", batch, 17)
    fields = struct.unpack_from(">" + FIELDS, batch, 21)
    head = struct.pack("<iqBI" + FIELDS, len(batch), base, kind, crc, *fields)
    return struct.pack("<I", crc32c(head)) + head + batch[HEADER:]


@st.builds_once
@st.composite
def batches(draw, least=0):
    """One batch of any type."""
    rows, call = draw(kafka.batch_calls(least=least))
    return make_batch(encode_batch(rows, **call), draw(TYPES))


@st.builds_once
def logs(least=0, most=4):
    """Batches of several types, one after another."""
    return st.lists(batches(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """No bytes, the zeros of a file that was allocated in advance, or a cut batch."""
    zeros = st.integers(1, 150).map(bytes)
    cuts = st.tuples(batches(1), st.integers(0, 10_000))
    cut = cuts.map(lambda pair: pair[0][: pair[1] % len(pair[0])])
    return st.just(b"") | zeros | cut


def find_batches(raw):
    """Yield (start, end) of the batches, each found by the size of the previous one."""
    at = 0
    while len(raw) - at >= HEADER:
        (size,) = struct.unpack_from("<i", raw, at + 4)
        if not HEADER <= size <= len(raw) - at:
            return
        yield at, at + size
        at += size


def correct_checksums(raw):
    """Return `raw` with right checksums of its batches."""
    out = bytearray(raw)
    for start, end in find_batches(raw):
        fields = struct.unpack_from("<" + FIELDS, out, start + 21)
        body = struct.pack(">" + FIELDS, *fields) + bytes(out[start + HEADER : end])
        struct.pack_into("<I", out, start + 17, crc32c(body))
        struct.pack_into("<I", out, start, crc32c(bytes(out[start + 4 : start + HEADER])))
    return bytes(out)


@st.composite
def mutations(draw, raw):
    """Copies of `raw` with changed, removed or inserted bytes, and with extreme sizes."""
    for _ in range(draw(st.integers(1, 4))):
        if len(raw) < HEADER:
            break
        out = bytearray(raw)
        at = draw(st.integers(0, len(raw) - 4))
        kind = draw(st.sampled_from(("flip", "byte", "cut", "tail", "insert", "size", "count")))
        if kind in BYTE_CHANGES:
            change_bytes(
                draw, out, at, kind, inserted=kafka.INSERTED, values=kafka.SET_BYTES, longest=20
            )
        else:
            start = draw(st.sampled_from([start for start, _ in find_batches(raw)] or [0]))
            position = start + (4 if kind == "size" else 57)
            (true,) = struct.unpack_from("<i", raw, position)
            number = draw(st.sampled_from((*kafka.EXTREMES, true - 1, true + 1, 60, 61, len(raw))))
            struct.pack_into("<I", out, position, number % 2**32)
        raw = bytes(out)
    return correct_checksums(raw) if draw(st.booleans()) else raw


@st.builds_once
def damaged_logs():
    """Damaged logs with any tail."""
    return st.tuples(logs(least=1), tails()).map(b"".join).flatmap(mutations)


@st.builds_once
@st.composite
def written(draw):
    """Encoded bytes, and the records of the batches of clients among them."""
    raw, rows = b"", []
    for _ in range(draw(st.integers(0, 3))):
        records, call = draw(kafka.batch_calls())
        kind = draw(TYPES)
        raw += make_batch(encode_batch(records, **call), kind)
        times = [row.timestamp for row in records]
        if call["timestamp_type"] == "append":
            times = [call.get("max_timestamp", max(times, default=-1))] * len(times)
        if kind == RAFT_DATA:
            rows += [
                (row.offset, time, row.key, row.value, tuple(row.headers))
                for row, time in zip(records, times)
            ]
    return raw, rows
