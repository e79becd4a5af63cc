"""Partition directories for hypothesis: segments of every magic, with the indexes that Kafka writes beside them.

    segments()            [(base offset, [bytes of a batch])], offsets rising, with gaps
    indexes(...)          (.index, .timeindex) of a segment, as its LogSegment appends to them
    spoilt(raw)           an index that is cut, changed, empty, padded with zeros, or nothing but noise
    steps()               what producers of transactions do, and others: see reference.kafka_log.committed
    step_bytes(...)       the batch of such a step
    make(folder, ...)     segments and their indexes, written
"""
import shutil
import struct
from pathlib import Path

from strategies import shared as st

from reference.kafka_log import ABORT, COMMIT, DATA
from wirescan import kafka
from wirescan.kafka.encode import Record, encode_batch, encode_message_set

TIME = 1_700_000_000_000


@st.builds_once
@st.composite
def segments(draw, most=4):
    """No two batches have the same highest timestamp, so that an entry of an index is of one batch."""
    offset, out, times = draw(st.sampled_from((0, 5, 2**40))), [], set()
    for _ in range(draw(st.integers(1, most))):
        base, parts = offset, []
        offset += draw(st.sampled_from((0, 0, 3)))
        for _ in range(draw(st.integers(0, 8))):
            part, offset = draw(batch(offset, times))
            parts.append(part)
        out.append((base, parts))
        offset = max(offset, base + 1)
    return out


@st.composite
def batch(draw, offset, times):
    """(bytes, the offset behind them) of a batch from `offset` on, or of the one message that is one."""
    magic, codec = draw(st.sampled_from(((0, "none"), (1, "none"), (0, "gzip"), (1, "gzip"), (1, "snappy"), (2, "none"),
                                         (2, "none"), (2, "none"), (2, "zstd"))))
    latest = draw(st.integers(0, 400).filter(lambda time: time not in times))
    times.add(latest)
    count = 1 if magic < 2 and codec == "none" else draw(st.integers(1, 4))
    rows = []
    for _ in range(count):
        early = draw(st.integers(0, latest))
        rows.append(Record(offset, TIME + early if magic else None, None, b"v" * draw(st.integers(0, 30))))
        offset += draw(st.sampled_from((1, 1, 1, 4)))
    if magic:
        peak = draw(st.integers(0, count - 1))
        rows[peak] = rows[peak]._replace(timestamp=TIME + latest)
    if magic < 2:
        return encode_message_set(rows, magic=magic, codec=codec), rows[-1].offset + 1
    stamped = "append" if draw(st.integers(0, 4)) == 0 else "create"
    behind = draw(st.sampled_from((0, 0, 2)))       # offsets that compaction took from the batch's end
    raw = encode_batch(rows, codec=codec, timestamp_type=stamped, last_offset=rows[-1].offset + behind)
    return raw, rows[-1].offset + behind + 1


def indexes(base, parts, interval, appended, closed):
    """The .index and .timeindex of a segment whose batches came `appended` at a time (a follower's come together, and
    its entry then has the last offset of them all); `closed`: the last entry that a segment gets."""
    index, times = b"", [(-1, 0)]
    position = since = 0
    latest = (-1, 0)

    def note():
        if latest[0] > times[-1][0]:
            times.append(latest)
    for first in range(0, len(parts), appended):
        group = b"".join(parts[first:first + appended])
        rows = kafka.scan(group, check=False)
        for time, last in rows.rows[["max_timestamp", "last_offset"]].tolist():
            latest = max(latest, (time, last), key=lambda pair: pair[0])
        if since > interval:
            index += struct.pack(">ii", int(rows["last_offset"][-1]) - base, position)
            note()
            since = 0
        since += len(group)
        position += len(group)
    if closed:
        note()
    return index, b"".join(struct.pack(">qi", time, last - base) for time, last in times[1:])


@st.composite
def spoilt(draw, raw, entry):
    kind = draw(st.sampled_from(("as it is", "padded", "cut", "changed", "empty", "missing", "noise", "shuffled")))
    if kind == "padded":
        return raw + bytes(entry * draw(st.integers(1, 40)))
    if kind == "cut":
        return raw[:draw(st.integers(0, len(raw)))]
    if kind == "changed" and raw:
        at = draw(st.integers(0, len(raw) - 1))
        return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1:]
    if kind == "shuffled":
        entries = [raw[at:at + entry] for at in range(0, len(raw), entry)]
        return b"".join(draw(st.permutations(entries)))
    return {"empty": b"", "missing": None, "noise": draw(st.binary(max_size=60))}.get(kind, raw)


def write(directory, base, suffix, raw):
    """A file of a segment, or none."""
    path = Path(directory, f"{base:020}.{suffix}")
    path.unlink(missing_ok=True)
    if raw is not None:
        path.write_bytes(raw)


def make(folder, parts_of):
    """Write segments [(base, [batch])] with their indexes into an empty folder. Returns [(base, bytes)]."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, (base, parts) in enumerate(parts_of):
        index, times = indexes(base, parts, 60, 1, number < len(parts_of) - 1)
        for suffix, raw in (("log", b"".join(parts)), ("index", index), ("timeindex", times)):
            write(folder, base, suffix, raw)
    return [(base, b"".join(parts)) for base, parts in parts_of]


# ------------------------------------------------------------------------------------------- transactions

@st.builds_once
def steps(most=30):
    """[(producer or None, kind)]: producers that interleave, markers without a transaction, and other batches."""
    one = st.tuples(st.sampled_from((1, 2, 3, 2**40)), st.sampled_from((DATA, DATA, DATA, ABORT, COMMIT)))
    return st.lists(one | one | st.just((None, DATA)), max_size=most)


def step_bytes(step, offset, epoch=0):
    """The batch of a step; of data it has two records, a marker is one."""
    producer, kind = step
    if producer is None:
        return encode_batch([b"plain", b"plain"], base_offset=offset)
    if kind == DATA:
        return encode_batch([b"data", b"data"], base_offset=offset, transactional=True, producer_id=producer,
                            producer_epoch=epoch, base_sequence=0)
    key = struct.pack(">hh", 0, (ABORT, COMMIT).index(kind))
    return encode_batch([Record(offset, TIME, key, struct.pack(">hi", 0, 0))], transactional=True, control=True,
                        producer_id=producer, producer_epoch=epoch)
