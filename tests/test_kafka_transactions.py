"""What readers of committed data see: as the slow reference says, whole or in part, whatever lies beside the log."""
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from peers.canonical import Record, digest, owned
from reference import kafka_log as reference
from strategies import kafka_log as strategy
from strategies.kafka_log import make
from wirescan import FrameError, kafka
from wirescan.kafka import PartitionLog, encode_batch, segment, transactions

CORPUS = Path(__file__).parent / "corpus" / "kafka"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())
DATA, ABORT, COMMIT = reference.DATA, reference.ABORT, reference.COMMIT


def offsets_of(steps, first=0):
    """The offset of each step: data has two, a marker one; and the offset behind the last."""
    sizes = [1 if kind != DATA else 2 for _, kind in steps]
    return np.cumsum([first, *sizes]).tolist()


def batches_of(steps, epochs=None):
    offsets = offsets_of(steps)
    epochs = epochs or [0] * len(steps)
    return [strategy.step_bytes(*one) for one in zip(steps, offsets, epochs)]


def snapshot(steps, offsets):
    """A producer snapshot behind these steps."""
    known = dict(reference.still_open(steps, offsets))
    producers = sorted({producer for producer, _ in steps if producer is not None})
    rest = struct.pack(">i", len(producers)) + b"".join(
        struct.pack(">qhiqiqiq", producer, 0, 5, 0, 1, strategy.TIME, 0, known.get(producer, -1))
        for producer in producers)
    return struct.pack(">hI", 1, crc32c(rest)) + rest


def write_log(folder, steps, cuts, parts=None, snapshots=True, listed=True):
    """The steps in segments that begin at the steps `cuts`, with .txnindex files and snapshots beside them."""
    offsets, parts = offsets_of(steps), parts or batches_of(steps)
    bounds = [0, *sorted(set(cuts) - {0, len(steps)}), len(steps)]
    make(folder, [(offsets[a], parts[a:b]) for a, b in zip(bounds, bounds[1:])])
    for a, b in zip(bounds, bounds[1:]):
        mine = [entry for entry in reference.aborted(steps, offsets[:-1]) if offsets[a] <= entry[2] < offsets[b]]
        mine.sort(key=lambda entry: entry[2])
        raw = b"".join(struct.pack(">hqqqq", 0, *entry, entry[2] + 1) for entry in mine)
        strategy.write(folder, offsets[a], "txnindex", raw if raw and listed else None)
        strategy.write(folder, offsets[a], "snapshot",
                       snapshot(steps[:a], offsets[:a]) if a and snapshots else None)
    return offsets


def bases(table):
    return table["base_offset"].tolist()


def rows(array):
    return array[["producer_id", "first_offset", "last_offset"]].tolist()


# ------------------------------------------------------------------------------------------- the laws

INTERLEAVED = [(1, DATA), (2, DATA), (None, DATA), (1, DATA), (2, ABORT), (2, DATA), (1, COMMIT), (2, COMMIT),
               (1, DATA), (3, ABORT), (1, ABORT), (None, DATA)]


@settings(max_examples=200, deadline=None)
@given(strategy.steps(), st.randoms(use_true_random=False))
@example(INTERLEAVED, None)
@example([(1, DATA)], None)
@example([(1, ABORT), (1, ABORT), (1, DATA), (1, COMMIT)], None)
def test_a_table(steps, random):
    epochs = [random.randrange(3) for _ in steps] if random else None       # a coordinator's marker has a higher one
    offsets = offsets_of(steps)
    table = kafka.scan(b"".join(batches_of(steps, epochs)))
    wanted = [offsets[number] for number in reference.committed(steps)]
    assert bases(kafka.committed(table)) == wanted
    listed = kafka.aborted(table)
    assert rows(listed) == reference.aborted(steps, offsets[:-1])
    # A list in any order, or without its ends, says the same, but for what is open.
    dropped = {offset for offset, (producer, _) in zip(offsets, steps) for one, first, last in rows(listed)
               if producer == one and first <= offset <= last}
    kept = [offset for offset, (_, kind) in zip(offsets, steps) if kind == DATA and offset not in dropped]
    assert bases(kafka.committed(table, listed[::-1])) == kept
    assert bases(kafka.committed(table, listed[::-1][["producer_id", "first_offset"]])) == kept


@settings(max_examples=100, deadline=None)
@given(st.data(), strategy.steps())
def test_a_part_of_a_log(tmp_path_factory, data, steps):
    """Which transactions were aborted, and which are open, is decided by what lies before and behind the part."""
    folder = tmp_path_factory.getbasetemp() / "part-0"
    cuts = data.draw(st.lists(st.integers(0, len(steps)), max_size=3))
    files = {name: data.draw(st.booleans()) for name in ("snapshots", "listed")}
    offsets = write_log(folder, steps, cuts, **files)
    start, stop = (data.draw(st.none() | st.integers(0, offsets[-1] + 1)) for _ in "ab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "WINDOW", data.draw(st.sampled_from((100, 16 << 10))))
        table = kafka.open_log(folder, start=start, stop=stop, isolation="read_committed")
        log = PartitionLog(folder)
        is_open = reference.still_open(steps, offsets[:-1])
        assert log.open_transactions()[["producer_id", "first_offset"]].tolist() == is_open
        assert log.last_stable_offset() == min((first for _, first in is_open), default=None)
    wanted = [offsets[number] for number in reference.committed(steps)]
    low, high = 0 if start is None else start, offsets[-1] if stop is None else stop
    assert bases(table) == [offset for offset in wanted if offset + 1 >= low and offset < high]


@settings(max_examples=100, deadline=None)
@given(st.data(), strategy.steps().filter(len))
def test_files_that_lie_change_nothing(tmp_path_factory, data, steps):
    """A .txnindex has no checksum; a snapshot that is bad is not read."""
    folder = tmp_path_factory.getbasetemp() / "lies-0"
    offsets = write_log(folder, steps, data.draw(st.lists(st.integers(0, len(steps)), max_size=3)))
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        if path.suffix in (".txnindex", ".snapshot") and raw:
            at = data.draw(st.integers(0, len(raw) - 1))
            path.write_bytes(raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1:])
    wanted = [offsets[number] for number in reference.committed(steps)]
    assert bases(kafka.open_log(folder, isolation="read_committed")) == wanted


@settings(max_examples=100, deadline=None)
@given(st.data(), strategy.steps())
def test_the_index_knows_what_a_damaged_marker_said(tmp_path_factory, data, steps):
    """Where every marker ends a transaction: an abort of nothing is in no index."""
    folder = tmp_path_factory.getbasetemp() / "damaged-0"
    ends = [step for producer in (9, 1, 2, 3, 2**40) for step in ((producer, DATA), (producer, COMMIT))]
    steps = [*ends[:2], *steps, *ends, *ends]       # nothing is open, even without the marker
    steps = [one for n, one in enumerate(steps) if one[1] == DATA or one[0] in dict(reference.still_open(
        steps[:n], range(n)))]
    offsets, parts = offsets_of(steps), batches_of(steps)
    number = data.draw(st.sampled_from([n for n, (_, kind) in enumerate(steps[:-len(ends)]) if kind != DATA]))
    parts[number] = parts[number][:-1] + bytes([parts[number][-1] ^ 1])
    write_log(folder, steps, data.draw(st.lists(st.integers(0, len(steps)), max_size=3)), parts)
    wanted = [offsets[number] for number in reference.committed(steps)]
    table = kafka.open_log(folder, isolation="read_committed", errors="skip")
    assert bases(table) == wanted
    marked = kafka.open_log(folder, isolation="read_committed", errors="mark")
    assert marked.bad.sum() == 1 and bases(marked[~marked.bad]) == wanted
    with pytest.raises(FrameError):
        kafka.open_log(folder, isolation="read_committed")


# ------------------------------------------------------------------------------------------- real logs

def canonical(records):
    headers = kafka.headers(records)
    of_record = [[] for _ in range(len(records))]
    for row, parent in enumerate(headers["parent"].tolist()):
        of_record[parent].append((owned(headers.bytes(row, "key")), owned(headers.bytes(row, "value"))))
    return [Record(offset, timestamp, owned(records.bytes(row, "key")), owned(records.bytes(row, "value")),
                   tuple(of_record[row]))
            for row, (offset, timestamp) in enumerate(records.rows[["offset", "timestamp"]].tolist())]


@pytest.mark.parametrize("name", [name for name, about in EXPECTED.items() if "committed" in about])
def test_what_a_consumer_got(name):
    """As many records, and the same, as librdkafka's consumer with isolation.level=read_committed."""
    wanted = EXPECTED[name]["committed"]
    for table in (kafka.open_log(CORPUS / name, isolation="read_committed"),
                  kafka.committed(kafka.open_log(CORPUS / name))):
        records = kafka.records(table)
        assert len(records) == wanted["records"] and digest(canonical(records)) == wanted["sha256"]


@pytest.mark.parametrize("name", [name for name, about in EXPECTED.items() if "aborted" in about])
def test_markers_say_what_the_broker_wrote_down(name):
    listed = [(one["producerId"], one["firstOffset"], one["lastOffset"]) for one in EXPECTED[name]["aborted"]]
    assert rows(kafka.aborted(kafka.open_log(CORPUS / name))) == sorted(listed)
    entries = [entry for segment in PartitionLog(CORPUS / name).segments for entry in rows(segment.transaction_index())]
    assert entries == listed


def test_a_real_open_transaction():
    log = PartitionLog(CORPUS / "open-0")
    assert log.last_stable_offset() == 170 and rows(log.open_transactions()) == [(1005, 170, transactions.LAST)]
    assert rows(log.open_transactions(301)) == [(1004, 10, transactions.LAST), (1005, 170, transactions.LAST)]
    assert log.last_stable_offset(301) == 10 and log.last_stable_offset(0) is None
    assert log.read(isolation="read_committed")["last_offset"].max() < 170
    assert not len(kafka.open_log(CORPUS / "open-0", start=200, isolation="read_committed"))


# ------------------------------------------------------------------------------------------- odd batches

def test_control_batches_that_end_nothing():
    def control(offset, key, **producer):
        return encode_batch([kafka.Record(offset, 0, key, b"")], control=True, **producer)
    one = dict(transactional=True, producer_id=1)
    raw = strategy.step_bytes((1, DATA), 0) + control(2, struct.pack(">hh", 0, 2)) + b"".join(
        control(3 + n, key, **one) for n, key in enumerate(
            (struct.pack(">hh", 0, 3), struct.pack(">hh", 0, 256), struct.pack(">hh", 0, -2), b"\0\0\0", None)))
    assert bases(kafka.committed(kafka.scan(raw))) == [] and len(kafka.aborted(kafka.scan(raw))) == 0
    raw += encode_batch([], base_offset=8, control=True, **one) + strategy.step_bytes((1, ABORT), 9)
    assert rows(kafka.aborted(kafka.scan(raw))) == [(1, 0, 9)]
    packed = encode_batch([kafka.Record(10, 0, struct.pack(">hh", 0, 1), b"")], control=True, codec="gzip", **one)
    table = kafka.scan(raw + strategy.step_bytes((1, DATA), 10) + packed)
    assert bases(kafka.committed(table)) == [10]


def test_old_messages_are_committed():
    raw = kafka.encode_message_set([b"a", b"b"], magic=1) + kafka.encode_message_set([b"c"], codec="gzip")
    assert len(kafka.committed(kafka.scan(raw))) == 3 and len(kafka.aborted(kafka.scan(raw))) == 0
    assert len(kafka.committed(kafka.scan(b""))) == 0


def test_wrong_arguments():
    table = kafka.scan(strategy.step_bytes((1, DATA), 0))
    for other in (kafka.records(table), None, table.rows):
        with pytest.raises(TypeError):
            kafka.committed(other)
        with pytest.raises(TypeError):
            kafka.aborted(other)
    for listed in ([], np.empty(0), [(1, 0, 5)], table):
        with pytest.raises(TypeError):
            kafka.committed(table, listed)
    assert bases(kafka.committed(table, kafka.aborted(table))) == [0]
