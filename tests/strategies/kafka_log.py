"""Partition directories for hypothesis: segments of every magic, with Kafka's indexes.

segments()            [(base offset, [bytes of a batch])], with ascending offsets and gaps
indexes(...)          (.index, .timeindex) of a segment, like Kafka's LogSegment writes them
damaged_indexes(raw)  a damaged index
steps()               the steps of producers, with and without transactions (see
                      reference.kafka_log.committed)
encode_step(...)      the batch of a step
make_segments(...)    writes segments and their indexes
"""

import shutil
import struct
from pathlib import Path

from tests.reference.kafka_log import ABORT, COMMIT, DATA
from tests.strategies import shared as st
from wirescan import kafka
from wirescan.kafka.encode.records import Record, encode_batch, encode_message_set

TIME = 1_700_000_000_000


@st.builds_once
@st.composite
def segments(draw, most=4):
    """Segments of a partition.

    No two batches have the same highest timestamp. So every entry of an index has one batch.
    """
    offset = draw(st.sampled_from((0, 5, 2**40)))
    out = []
    times = set()
    for _ in range(draw(st.integers(1, most))):
        base, parts = offset, []
        offset += draw(st.sampled_from((0, 0, 3)))
        for _ in range(draw(st.integers(0, 8))):
            part, offset = draw(batch(offset, times))
            parts.append(part)
        out.append((base, parts))
        offset = max(offset, base + 1)
    return out


MAGICS_AND_CODECS = (
    (0, "none"),
    (1, "none"),
    (0, "gzip"),
    (1, "gzip"),
    (1, "snappy"),
    (2, "none"),
    (2, "none"),
    (2, "none"),
    (2, "zstd"),
)


@st.composite
def batch(draw, offset, times):
    """(bytes, next offset) of a batch that begins at `offset`.

    Without a codec, a batch of magic 0 or 1 is one message.
    """
    magic, codec = draw(st.sampled_from(MAGICS_AND_CODECS))
    latest = draw(st.integers(0, 400).filter(lambda time: time not in times))
    times.add(latest)
    count = 1 if magic < 2 and codec == "none" else draw(st.integers(1, 4))
    rows = []
    for _ in range(count):
        early = draw(st.integers(0, latest))
        timestamp = TIME + early if magic else None
        rows.append(Record(offset, timestamp, None, b"v" * draw(st.integers(0, 30))))
        offset += draw(st.sampled_from((1, 1, 1, 4)))
    if magic:
        peak = draw(st.integers(0, count - 1))
        rows[peak] = rows[peak]._replace(timestamp=TIME + latest)
    if magic < 2:
        return encode_message_set(rows, magic=magic, codec=codec), rows[-1].offset + 1
    stamped = "append" if draw(st.integers(0, 4)) == 0 else "create"
    removed = draw(st.sampled_from((0, 0, 2)))  # records that compaction removed from the end
    last_offset = rows[-1].offset + removed
    raw = encode_batch(rows, codec=codec, timestamp_type=stamped, last_offset=last_offset)
    return raw, last_offset + 1


def indexes(base, parts, interval, appended, closed):
    """Return the .index and .timeindex of a segment.

    interval: bytes between two entries.
    appended: number of batches in one write. A follower writes several batches at once. The entry
        of the write then has the last offset of all its batches.
    closed: whether the segment is closed. A closed segment has one more entry of time.
    """
    index = b""
    times = [(-1, 0)]
    position = 0
    since_entry = 0  # bytes
    latest = (-1, 0)

    def add_time():
        if latest[0] > times[-1][0]:
            times.append(latest)

    for first in range(0, len(parts), appended):
        group = b"".join(parts[first : first + appended])
        rows = kafka.scan(group, check=False)
        for time, last in rows.rows[["max_timestamp", "last_offset"]].tolist():
            latest = max(latest, (time, last), key=lambda pair: pair[0])
        if since_entry > interval:
            index += struct.pack(">ii", int(rows["last_offset"][-1]) - base, position)
            add_time()
            since_entry = 0
        since_entry += len(group)
        position += len(group)
    if closed:
        add_time()
    return index, b"".join(struct.pack(">qi", time, last - base) for time, last in times[1:])


@st.composite
def damaged_indexes(draw, raw, entry):
    """An index that may be damaged, empty, or missing (None). entry: size of an entry in bytes."""
    kinds = ("as it is", "padded", "cut", "changed", "empty", "missing", "noise", "shuffled")
    kind = draw(st.sampled_from(kinds))
    if kind == "padded":
        return raw + bytes(entry * draw(st.integers(1, 40)))
    if kind == "cut":
        return raw[: draw(st.integers(0, len(raw)))]
    if kind == "changed" and raw:
        at = draw(st.integers(0, len(raw) - 1))
        return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
    if kind == "shuffled":
        entries = [raw[at : at + entry] for at in range(0, len(raw), entry)]
        return b"".join(draw(st.permutations(entries)))
    return {"empty": b"", "missing": None, "noise": draw(st.binary(max_size=60))}.get(kind, raw)


def write_file(directory, base, suffix, raw):
    """Write a file of a segment, or remove it if `raw` is None."""
    path = Path(directory, f"{base:020}.{suffix}")
    path.unlink(missing_ok=True)
    if raw is not None:
        path.write_bytes(raw)


def make_segments(folder, parts_of):
    """Write segments [(base, [batch])] with their indexes into an empty folder.

    Return [(base, bytes)].
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, (base, parts) in enumerate(parts_of):
        closed = number < len(parts_of) - 1
        index, times = indexes(base, parts, interval=60, appended=1, closed=closed)
        for suffix, raw in (("log", b"".join(parts)), ("index", index), ("timeindex", times)):
            write_file(folder, base, suffix, raw)
    return [(base, b"".join(parts)) for base, parts in parts_of]


# ---- transactions


@st.builds_once
def steps(most=30):
    """Lists of (producer or None, kind).

    The producers interleave. There are markers without a transaction, and batches without a
    producer.
    """
    producers = st.sampled_from((1, 2, 3, 2**40))
    kinds = st.sampled_from((DATA, DATA, DATA, ABORT, COMMIT))
    step = st.tuples(producers, kinds)
    return st.lists(step | step | st.just((None, DATA)), max_size=most)


def encode_step(step, offset, epoch=0):
    """Return the batch of a step: two records of data, or one marker."""
    producer, kind = step
    if producer is None:
        return encode_batch([b"plain", b"plain"], base_offset=offset)
    if kind == DATA:
        return encode_batch(
            [b"data", b"data"],
            base_offset=offset,
            transactional=True,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=0,
        )
    key = struct.pack(">hh", 0, (ABORT, COMMIT).index(kind))
    return encode_batch(
        [Record(offset, TIME, key, struct.pack(">hi", 0, 0))],
        transactional=True,
        control=True,
        producer_id=producer,
        producer_epoch=epoch,
    )
