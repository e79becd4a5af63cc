"""Committed reads agree with the slow reference, for whole logs and ranges.

The content of the files beside the log makes no difference.
"""

import json
import struct

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.peers.canonical import digest
from tests.reference import kafka_log as reference
from tests.strategies import kafka_log as strategy
from tests.strategies.kafka_log import make_segments
from tests.support.canonical_records import list_canonical_records
from tests.support.examples import read_example_count
from tests.support.paths import KAFKA_CORPUS
from wirescan import FrameError, kafka
from wirescan.frames.table import FrameTable
from wirescan.kafka import PartitionLog, encode_batch
from wirescan.kafka.log import transactions
from wirescan.seglog import segments as seglog

EXPECTED = json.loads((KAFKA_CORPUS / "expected.json").read_text())
DATA, ABORT, COMMIT = reference.DATA, reference.ABORT, reference.COMMIT


def offsets_of(steps, first=0):
    """List the offset of each step, and the next offset. Data has two offsets, a marker has one."""
    sizes = [1 if kind != DATA else 2 for _, kind in steps]
    return np.cumsum([first, *sizes]).tolist()


def batches_of(steps, epochs=None):
    offsets = offsets_of(steps)
    epochs = epochs or [0] * len(steps)
    return [strategy.encode_step(*arguments) for arguments in zip(steps, offsets, epochs)]


def make_snapshot(steps, offsets):
    """Encode the producer snapshot that a broker writes after these steps."""
    first_offsets = dict(reference.list_open(steps, offsets))
    producers = sorted({producer for producer, _ in steps if producer is not None})
    rest = struct.pack(">i", len(producers))
    for producer in producers:
        first = first_offsets.get(producer, -1)
        rest += struct.pack(">qhiqiqiq", producer, 0, 5, 0, 1, strategy.TIME, 0, first)
    return struct.pack(">hI", 1, crc32c(rest)) + rest


def make_transaction_index(steps, offsets, low, high):
    """Encode the .txnindex of the segment with the offsets from `low` to below `high`."""
    aborted = reference.list_aborted(steps, offsets[:-1])
    entries = [entry for entry in aborted if low <= entry[2] < high]
    entries.sort(key=lambda entry: entry[2])
    return b"".join(struct.pack(">hqqqq", 0, *entry, entry[2] + 1) for entry in entries)


def write_log(folder, steps, cuts, parts=None, snapshots=True, listed=True):
    """Write segments that begin at the steps `cuts`, with .txnindex files and snapshots.

    parts: the batch of each step. snapshots, listed: whether to write the snapshots and the
    .txnindex files. Returns the offsets of the steps.
    """
    offsets = offsets_of(steps)
    parts = parts or batches_of(steps)
    bounds = [0, *sorted(set(cuts) - {0, len(steps)}), len(steps)]
    make_segments(folder, [(offsets[a], parts[a:b]) for a, b in zip(bounds, bounds[1:])])
    for a, b in zip(bounds, bounds[1:]):
        index = make_transaction_index(steps, offsets, offsets[a], offsets[b])
        strategy.write_file(folder, offsets[a], "txnindex", index if index and listed else None)
        snapshot = make_snapshot(steps[:a], offsets[:a]) if a and snapshots else None
        strategy.write_file(folder, offsets[a], "snapshot", snapshot)
    return offsets


def base_offsets(table):
    return table["base_offset"].tolist()


def transactions_of(array):
    return array[["producer_id", "first_offset", "last_offset"]].tolist()


def committed_offsets(steps, offsets):
    return [offsets[number] for number in reference.list_committed(steps)]


# ---- the laws

INTERLEAVED = [
    (1, DATA),
    (2, DATA),
    (None, DATA),
    (1, DATA),
    (2, ABORT),
    (2, DATA),
    (1, COMMIT),
    (2, COMMIT),
    (1, DATA),
    (3, ABORT),
    (1, ABORT),
    (None, DATA),
]


@settings(max_examples=read_example_count(40), deadline=None)
@given(strategy.steps(), st.randoms(use_true_random=False))
@example(INTERLEAVED, None)
@example([(1, DATA)], None)
@example([(1, ABORT), (1, ABORT), (1, DATA), (1, COMMIT)], None)
def test_committed_batches_of_a_table(steps, random):
    # The marker of a coordinator may have a higher epoch than the data.
    epochs = [random.randrange(3) for _ in steps] if random else None
    offsets = offsets_of(steps)
    table = kafka.scan(b"".join(batches_of(steps, epochs)))
    assert base_offsets(kafka.committed(table)) == committed_offsets(steps, offsets)
    aborted = kafka.aborted(table)
    assert transactions_of(aborted) == reference.list_aborted(steps, offsets[:-1])
    # The list of aborted transactions may have any order, and may lack their last offsets.
    # Data of open transactions is not in the list, so it is kept.
    dropped = {
        offset
        for offset, (producer, _) in zip(offsets, steps)
        for aborted_producer, first, last in transactions_of(aborted)
        if producer == aborted_producer and first <= offset <= last
    }
    data_offsets = [offset for offset, (_, kind) in zip(offsets, steps) if kind == DATA]
    wanted = [offset for offset in data_offsets if offset not in dropped]
    reverse = aborted[::-1]
    assert base_offsets(kafka.committed(table, reverse)) == wanted
    without_ends = reverse[["producer_id", "first_offset"]]
    assert base_offsets(kafka.committed(table, without_ends)) == wanted


@settings(max_examples=read_example_count(20), deadline=None)
@given(st.data(), strategy.steps())
def test_committed_batches_of_a_range(tmp_path_factory, data, steps):
    """Batches outside the range decide which transactions are aborted and which are open."""
    folder = tmp_path_factory.getbasetemp() / "range-0"
    cuts = data.draw(st.lists(st.integers(0, len(steps)), max_size=3))
    files = {name: data.draw(st.booleans()) for name in ("snapshots", "listed")}
    offsets = write_log(folder, steps, cuts, **files)
    start, stop = (data.draw(st.none() | st.integers(0, offsets[-1] + 1)) for _ in "ab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seglog, "WINDOW", data.draw(st.sampled_from((100, 16 << 10))))
        table = kafka.open_log(folder, start=start, stop=stop, isolation="read_committed")
        log = PartitionLog(folder)
        is_open = reference.list_open(steps, offsets[:-1])
        assert log.open_transactions()[["producer_id", "first_offset"]].tolist() == is_open
        assert log.find_last_stable_offset() == min((first for _, first in is_open), default=None)
    low = 0 if start is None else start
    high = offsets[-1] if stop is None else stop
    wanted = committed_offsets(steps, offsets)
    assert base_offsets(table) == [offset for offset in wanted if low - 1 <= offset < high]


@settings(max_examples=read_example_count(20), deadline=None)
@given(st.data(), strategy.steps().filter(len))
def test_damaged_side_files_change_nothing(tmp_path_factory, data, steps):
    """A .txnindex has no checksum. A bad snapshot is not read."""
    folder = tmp_path_factory.getbasetemp() / "side-0"
    offsets = write_log(folder, steps, data.draw(st.lists(st.integers(0, len(steps)), max_size=3)))
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        if path.suffix in (".txnindex", ".snapshot") and raw:
            damaged = bytearray(raw)
            damaged[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
            path.write_bytes(damaged)
    table = kafka.open_log(folder, isolation="read_committed")
    assert base_offsets(table) == committed_offsets(steps, offsets)


@settings(max_examples=read_example_count(20), deadline=None)
@given(st.data(), strategy.steps())
def test_the_index_replaces_a_damaged_marker(tmp_path_factory, data, steps):
    """Every marker here ends a transaction, because no index lists an abort without data."""
    folder = tmp_path_factory.getbasetemp() / "damaged-0"
    ends = [
        step for producer in (9, 1, 2, 3, 2**40) for step in ((producer, DATA), (producer, COMMIT))
    ]
    # The ends come twice, so that no transaction stays open without the damaged marker.
    candidates = [*ends[:2], *steps, *ends, *ends]
    steps = [
        step
        for number, step in enumerate(candidates)
        if step[1] == DATA
        or step[0] in dict(reference.list_open(candidates[:number], range(number)))
    ]
    offsets = offsets_of(steps)
    parts = batches_of(steps)
    markers = [number for number, (_, kind) in enumerate(steps[: -len(ends)]) if kind != DATA]
    number = data.draw(st.sampled_from(markers))
    parts[number] = parts[number][:-1] + bytes([parts[number][-1] ^ 1])
    write_log(folder, steps, data.draw(st.lists(st.integers(0, len(steps)), max_size=3)), parts)
    wanted = committed_offsets(steps, offsets)
    table = kafka.open_log(folder, isolation="read_committed", errors="skip")
    assert base_offsets(table) == wanted
    marked = kafka.open_log(folder, isolation="read_committed", errors="mark")
    assert marked.bad.sum() == 1
    assert base_offsets(marked[~marked.bad]) == wanted
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        kafka.open_log(folder, isolation="read_committed")


# ---- real logs


@pytest.mark.parametrize("name", [name for name, about in EXPECTED.items() if "committed" in about])
def test_committed_records_equal_those_of_librdkafka(name):
    """librdkafka's consumer read these logs with isolation.level=read_committed."""
    expected = EXPECTED[name]["committed"]
    for table in (
        kafka.open_log(KAFKA_CORPUS / name, isolation="read_committed"),
        kafka.committed(kafka.open_log(KAFKA_CORPUS / name)),
    ):
        records = kafka.records(table)
        assert len(records) == expected["records"]
        assert digest(list_canonical_records(records)) == expected["sha256"]


@pytest.mark.parametrize("name", [name for name, about in EXPECTED.items() if "aborted" in about])
def test_aborted_transactions_equal_those_of_the_broker(name):
    listed = [
        (entry["producerId"], entry["firstOffset"], entry["lastOffset"])
        for entry in EXPECTED[name]["aborted"]
    ]
    aborted = kafka.aborted(kafka.open_log(KAFKA_CORPUS / name))
    assert transactions_of(aborted) == sorted(listed)
    entries = [
        entry
        for segment in PartitionLog(KAFKA_CORPUS / name).segments
        for entry in transactions_of(segment.read_transaction_index())
    ]
    assert entries == listed


def test_a_real_open_transaction():
    log = PartitionLog(KAFKA_CORPUS / "open-0")
    assert log.find_last_stable_offset() == 170
    assert transactions_of(log.open_transactions()) == [(1005, 170, transactions.LAST)]
    assert transactions_of(log.open_transactions(301)) == [
        (1004, 10, transactions.LAST),
        (1005, 170, transactions.LAST),
    ]
    assert log.find_last_stable_offset(301) == 10
    assert log.find_last_stable_offset(0) is None
    assert log.read(isolation="read_committed")["last_offset"].max() < 170
    assert not len(kafka.open_log(KAFKA_CORPUS / "open-0", start=200, isolation="read_committed"))


# ---- odd batches


def test_other_control_batches_end_no_transaction():
    def control_batch(offset, key, **options):
        return encode_batch([kafka.Record(offset, 0, key, b"")], control=True, **options)

    producer = dict(transactional=True, producer_id=1)
    keys = (
        struct.pack(">hh", 0, 3),
        struct.pack(">hh", 0, 256),
        struct.pack(">hh", 0, -2),
        b"\0\0\0",
        None,
    )
    raw = strategy.encode_step((1, DATA), 0) + control_batch(2, struct.pack(">hh", 0, 2))
    raw += b"".join(control_batch(3 + n, key, **producer) for n, key in enumerate(keys))
    assert base_offsets(kafka.committed(kafka.scan(raw))) == []
    assert len(kafka.aborted(kafka.scan(raw))) == 0
    raw += encode_batch([], base_offset=8, control=True, **producer)
    raw += strategy.encode_step((1, ABORT), 9)
    assert transactions_of(kafka.aborted(kafka.scan(raw))) == [(1, 0, 9)]
    compressed_commit = control_batch(10, struct.pack(">hh", 0, 1), codec="gzip", **producer)
    table = kafka.scan(raw + strategy.encode_step((1, DATA), 10) + compressed_commit)
    assert base_offsets(kafka.committed(table)) == [10]


def test_a_batch_that_a_broker_emptied_opens_no_transaction(tmp_path):
    emptied = encode_batch([], base_offset=0, transactional=True, producer_id=1)
    steps = [(None, DATA), (1, DATA), (1, ABORT)]
    parts = [emptied, *(strategy.encode_step(step, 1 + 2 * n) for n, step in enumerate(steps))]
    make_segments(tmp_path, [(0, parts)])
    log = PartitionLog(tmp_path)
    assert not len(log.open_transactions(3))
    assert log.find_last_stable_offset(3) is None
    assert transactions_of(kafka.aborted(log.read())) == [(1, 3, 5)]
    assert 1 in base_offsets(kafka.committed(kafka.scan(b"".join(parts[:2]))))
    assert base_offsets(log.read(start=1, isolation="read_committed")) == [1]


def test_old_messages_are_committed():
    raw = kafka.encode_message_set([b"a", b"b"], magic=1)
    raw += kafka.encode_message_set([b"c"], codec="gzip")
    assert len(kafka.committed(kafka.scan(raw))) == 3
    assert len(kafka.aborted(kafka.scan(raw))) == 0
    assert len(kafka.committed(kafka.scan(b""))) == 0


def test_the_end_of_a_long_transaction_is_found_in_linear_time(tmp_path, monkeypatch):
    """Each segment was searched together with all transactions of the segments before it."""
    searched = []
    find_transactions = transactions.find_transactions

    def count_steps(steps):
        searched.append(len(steps))
        return find_transactions(steps)

    monkeypatch.setattr(transactions, "find_transactions", count_steps)
    others = [(2, DATA), (2, COMMIT)] * 5
    steps = [(1, DATA), *others * 60, (1, ABORT)]
    offsets = write_log(tmp_path, steps, range(10, len(steps), 10), snapshots=False, listed=False)
    table = kafka.open_log(tmp_path, stop=offsets[20], isolation="read_committed")
    assert table["producer_id"].tolist() == [2] * 10
    assert sum(searched) < 2 * len(steps)


def test_wrong_arguments_are_refused():
    table = kafka.scan(strategy.encode_step((1, DATA), 0))
    for other in (kafka.records(table), None, table.rows):
        with pytest.raises(TypeError, match="a table of kafka.batches"):
            kafka.committed(other)
        with pytest.raises(TypeError, match="a table of kafka.batches"):
            kafka.aborted(other)
    for listed in ([], np.empty(0), [(1, 0, 5)], table):
        with pytest.raises(TypeError, match="must have the columns producer_id, first_offset"):
            kafka.committed(table, listed)
    assert base_offsets(kafka.committed(table, kafka.aborted(table))) == [0]


def test_a_table_without_a_format_has_transactions_too():
    batches = kafka.open_log(KAFKA_CORPUS / "orders-0")
    rows = FrameTable(batches.buffers, batches.rows)
    aborted = kafka.aborted(rows)
    assert len(aborted) == 4
    assert aborted.tolist() == kafka.aborted(batches).tolist()
