"""Partition directories: a look-up by offset or time agrees with a scan of every batch.

The content of the indexes makes no difference.
"""

import os
import pickle
import struct
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import kafka_log as reference
from tests.strategies import kafka_log as strategy
from tests.strategies.kafka_log import make_segments
from tests.support.examples import read_example_count
from tests.support.paths import KAFKA_CORPUS
from wirescan import Fault, FrameError, Limits, kafka
from wirescan.kafka import PartitionLog, encode_batch, encode_message_set
from wirescan.kafka.log import directory
from wirescan.seglog import segments as seglog

DIRECTORIES = sorted(path.name for path in KAFKA_CORPUS.glob("*-0"))
WINDOWS = st.sampled_from((17, 200, 16 << 10))
ORDERS = KAFKA_CORPUS / "orders-0"
LIVE = KAFKA_CORPUS / "live-0"
HIGH_WATERMARKS = "replication-offset-checkpoint"


def make_place(log, place):
    """Return the place as (number of the segment, position), as the reference does."""
    if place is None:
        return None
    return log.segments.index(place.segment), place.position


def list_records(segments):
    """Yield the records of all segments, as the reference reads them."""
    for _, raw in segments:
        for _, records in reference.list_batches(raw):
            yield from records or ()


def offsets_of(segments):
    """List every offset in the segments, and offsets before, between and behind them."""
    offsets = {record[0] for record in list_records(segments)}
    offsets |= {base for base, _ in segments}
    return sorted({offset + step for offset in offsets for step in (-1, 0, 1)} | {0, 2**62})


def times_of(segments):
    """List every timestamp in the segments, and timestamps around them."""
    stamps = {record[1] for record in list_records(segments)}
    return sorted({stamp + step for stamp in stamps for step in (-1, 0, 1)} | {-2, -1, 0, 2**62})


def check_look_up(log, segments):
    """Look up every offset and time, and compare with the reference."""
    for offset in offsets_of(segments):
        assert make_place(log, log.find(offset)) == reference.find(segments, offset), offset
    for stamp in times_of(segments):
        expected = reference.find_time(segments, stamp)
        place = make_place(log, log.find_time(stamp))
        assert place == (expected and expected[0]), stamp
        if expected is None:
            assert log.find_offset(stamp) is None
        elif expected[1] is None:
            with pytest.raises(FrameError, match=r"\([A-Z_]+\) at byte \d+ of .*\.log"):
                log.find_offset(stamp)
        else:
            assert log.find_offset(stamp) == expected[1]


def remove_indexes(folder, base):
    for suffix in ("index", "timeindex"):
        strategy.write_file(folder, base, suffix, None)


def make_small_batches(offsets):
    """Make one batch with one record for each offset."""
    return [encode_batch([kafka.Record(n, 1000 + n, None, b"v" * 20)]) for n in offsets]


def offsets_within(records, start, stop):
    return kafka.within(records, start, stop)["offset"].tolist()


# ---- the laws

# An example looks up every offset and time in its log, so the slow run has more of them than the
# default run.
FEW = settings(max_examples=8, deadline=None)
MANY = settings(max_examples=300, deadline=None)
look_up_examples = given(
    st.data(), strategy.segments(), WINDOWS, st.sampled_from((0, 60, 300)), st.integers(1, 3)
)
damaged_examples = given(st.data(), strategy.segments(3), WINDOWS)


@FEW
@look_up_examples
def test_look_up_agrees_with_a_scan_whatever_the_indexes_hold(
    tmp_path_factory, data, segments, window, interval, appended
):
    check_look_up_with_any_index(tmp_path_factory, data, segments, window, interval, appended)


@pytest.mark.slow
@pytest.mark.nightly
@MANY
@look_up_examples
def test_look_up_agrees_with_a_scan_in_many_logs(
    tmp_path_factory, data, segments, window, interval, appended
):
    check_look_up_with_any_index(tmp_path_factory, data, segments, window, interval, appended)


def check_look_up_with_any_index(tmp_path_factory, data, segments, window, interval, appended):
    folder = tmp_path_factory.getbasetemp() / "look-0"
    raw = make_segments(folder, segments)
    for number, (base, batches) in enumerate(segments):
        is_closed = number < len(segments) - 1
        index, times = strategy.indexes(base, batches, interval, appended, is_closed)
        strategy.write_file(folder, base, "index", data.draw(strategy.damaged_indexes(index, 8)))
        strategy.write_file(
            folder, base, "timeindex", data.draw(strategy.damaged_indexes(times, 12))
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seglog, "WINDOW", window)
        check_look_up(PartitionLog(folder), raw)


@FEW
@damaged_examples
def test_look_up_in_damaged_segments(tmp_path_factory, data, segments, window):
    check_look_up_in_damage(tmp_path_factory, data, segments, window)


@pytest.mark.slow
@pytest.mark.nightly
@MANY
@damaged_examples
def test_look_up_in_many_damaged_segments(tmp_path_factory, data, segments, window):
    check_look_up_in_damage(tmp_path_factory, data, segments, window)


def damage_batches(data, batches):
    """Change up to two bytes, but none that a checksum does not cover.

    A checksum covers neither the offset at a batch's start nor the leader epoch: a log with
    another offset there is another log.
    """
    raw = bytearray(b"".join(batches))
    starts = np.cumsum([0, *map(len, batches)]).tolist()
    for _ in range(data.draw(st.integers(0, 2)) if batches else 0):
        number = data.draw(st.integers(0, len(batches) - 1))
        at = data.draw(st.integers(8, len(batches[number]) - 1))
        is_leader_epoch = batches[number][16] == 2 and 12 <= at < 16
        if not is_leader_epoch:
            raw[starts[number] + at] = data.draw(st.integers(0, 255))
    return bytes(raw)


def check_look_up_in_damage(tmp_path_factory, data, segments, window):
    folder = tmp_path_factory.getbasetemp() / "damaged-0"
    raw = make_segments(folder, segments)
    cut_batch = encode_batch([b"x"] * 9, base_offset=2**50)[:80]
    for number, (base, batches) in enumerate(segments):
        damaged = damage_batches(data, batches)
        tail = data.draw(st.sampled_from((b"", b"", bytes(100), cut_batch)))
        raw[number] = base, damaged + tail
        strategy.write_file(folder, base, "log", raw[number][1])
    log = PartitionLog(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seglog, "WINDOW", window)
        # A look-up finds a batch that an index names, even where a scan would take that batch for
        # a part of a damaged one.
        for offset in offsets_of(raw):
            expected = reference.find(raw, offset)
            place = make_place(log, log.find(offset))
            if place == expected:
                continue
            number, position = place
            (batch, *_) = kafka.scan(raw[number][1][position:], errors="mark").rows
            assert place > expected
            assert not batch["fault"]
            is_one_offset = batch["base_offset"] == batch["last_offset"]
            assert batch["base_offset"] <= offset or is_one_offset
        for each in log.segments:
            remove_indexes(folder, each.base_offset)
        check_look_up(log, raw)


@settings(max_examples=read_example_count(16), deadline=None)
@given(st.data(), strategy.segments())
def test_a_range_of_a_log_equals_that_range_of_the_whole(tmp_path_factory, data, segments):
    folder = tmp_path_factory.getbasetemp() / "range-0"
    raw = make_segments(folder, segments)
    everything = kafka.records(kafka.scan(folder))
    pairs = everything.rows[["offset", "timestamp"]].tolist()
    start, stop = (data.draw(st.none() | st.sampled_from(offsets_of(raw))) for _ in "ab")
    early, late = (data.draw(st.none() | st.sampled_from(times_of(raw))) for _ in "ab")
    by_offset = kafka.records(kafka.open_log(folder, start=start, stop=stop))
    low = -(2**63) if start is None else start
    high = 2**63 if stop is None else stop
    wanted = [pair for pair in pairs if low <= pair[0] < high]
    assert by_offset.rows[["offset", "timestamp"]].tolist() == wanted
    # A time stands for the offset that the log has at that time.
    log = PartitionLog(folder)
    first, last = (find_offset(log, stamp) for stamp in (early, late))
    by_time = kafka.records(kafka.open_log(folder, start_time=early, stop_time=late))
    assert by_time["offset"].tolist() == offsets_within(everything, first, last)
    by_both = kafka.records(
        kafka.open_log(folder, start=start, stop=stop, start_time=early, stop_time=late)
    )
    low = max((bound for bound in (start, first) if bound is not None), default=None)
    high = min((bound for bound in (stop, last) if bound is not None), default=None)
    assert by_both["offset"].tolist() == offsets_within(everything, low, high)


def test_a_part_of_a_log_opens_exactly_its_records():
    part = kafka.open_log(ORDERS, start=26_000, stop=26_005)
    wanted = list(range(26_000, 26_005))
    assert part["base_offset"][0] < 26_000
    assert part["last_offset"][-1] > 26_004
    assert kafka.records(part)["offset"].tolist() == wanted
    assert part.open("records")["offset"].tolist() == wanted
    assert len(kafka.headers(kafka.records(part))) == 1
    # Tables of its rows, and copies in another process, have the range too.
    assert kafka.records(part[:1])["offset"].tolist() == wanted
    assert kafka.records(part.where(~part.bad))["offset"].tolist() == wanted
    copy = pickle.loads(pickle.dumps(part))
    assert kafka.records(copy)["offset"].tolist() == wanted
    assert kafka.records(kafka.open_log(ORDERS, start=26_000, stop=26_000)).rows.size == 0
    # One bound, and the end of the log.
    assert kafka.records(kafka.open_log(ORDERS, start=27_700))["offset"].tolist() == list(
        range(27_700, 27_708)
    )
    assert kafka.records(kafka.open_log(ORDERS, stop=3))["offset"].tolist() == [0, 1, 2]


def test_a_part_by_time_begins_and_ends_at_the_offsets_of_these_times():
    log = PartitionLog(ORDERS)
    early, late = 1_700_000_020_100, 1_700_000_021_000
    (first, _), (last, _) = log.find_offset(early), log.find_offset(late)
    part = kafka.open_log(ORDERS, start_time=early, stop_time=late)
    assert kafka.records(part)["offset"].tolist() == list(range(first, last))


def test_a_part_keeps_the_bad_rows_of_its_batches(tmp_path):
    folder = tmp_path / "bad-0"
    batches = [encode_batch([b"x"] * 10, base_offset=10 * i) for i in range(3)]
    damaged = bytearray(batches[1])
    damaged[-1] ^= 1
    make_segments(folder, [(0, [batches[0], bytes(damaged), batches[2]])])
    marked = kafka.records(kafka.open_log(folder, start=5, stop=25, errors="mark"), errors="mark")
    assert marked["offset"][~marked.bad].tolist() == [*range(5, 10), *range(20, 25)]
    assert marked.bad.sum() == 1


def find_offset(log, stamp):
    """Return the offset at a time, None for no time, and 2**62 for a time after the log's end."""
    if stamp is None:
        return None
    offset, _ = log.find_offset(stamp) or (2**62, 0)
    return offset


@settings(max_examples=read_example_count(16), deadline=None)
@given(st.data(), strategy.segments(2))
def test_damage_in_a_range_is_reported(tmp_path_factory, data, segments):
    """No offset is lost silently: either it is read, or strict raises."""
    folder = tmp_path_factory.getbasetemp() / "reported-0"
    make_segments(folder, segments)
    wanted = sorted(
        offset
        for _, batches in segments
        if batches
        for offset in kafka.records(kafka.scan(b"".join(batches)))["offset"].tolist()
    )
    number = data.draw(st.integers(0, len(segments) - 1))
    base, batches = segments[number]
    if not batches:
        return
    path = folder / f"{base:020}.log"
    raw = bytearray(b"".join(batches))
    damaged = data.draw(st.integers(0, len(batches) - 1))
    begin = sum(map(len, batches[:damaged]))
    at_length = begin + data.draw(st.integers(8, 11))
    raw[at_length] ^= data.draw(st.integers(1, 255))
    strategy.write_file(folder, base, "log", bytes(raw))
    start, stop = sorted(data.draw(st.lists(st.sampled_from(wanted), min_size=2, max_size=2)))
    try:
        records = kafka.records(kafka.open_log(folder, start=start, stop=stop))
    except FrameError as error:
        assert error.source == str(path)
        assert error.offset == begin
        marked = kafka.open_log(folder, start=start, stop=stop, errors="mark")
        assert marked.bad.any()
        skipped = kafka.open_log(folder, start=start, stop=stop, errors="skip")
        assert not skipped.bad.any()
        return
    lost = kafka.records(kafka.scan(batches[damaged]))["offset"].tolist()
    inside = [offset for offset in wanted if start <= offset < stop]
    left = [offset for offset in inside if offset not in lost]
    assert offsets_within(records, start, stop) == left
    # A damaged length at the very end of the log is a tail, as it is in the whole log.
    is_last_batch = number == len(segments) - 1 and damaged == len(batches) - 1
    whole = kafka.scan(path, errors="mark")
    is_tail = is_last_batch and whole.stop.offset == begin
    assert not set(inside) & set(lost) or is_tail


@pytest.mark.parametrize(
    "damage",
    (
        lambda raw: raw[:-1],
        lambda raw: raw[:8],
        lambda raw: raw[:11] + b"\xff" + raw[12:],
        lambda raw: raw[:8] + b"\x01" + raw[9:],
        lambda raw: b"\xff" * 8 + raw[8:-1],
    ),
    ids=(
        "cut",
        "cut behind its offset",
        "a length that is too large",
        "one that is far too large",
        "like a filler",
    ),
)
def test_a_segment_that_is_not_the_newest_has_no_tail(tmp_path, damage):
    """If its last batch is torn, that batch may have held the requested offset."""
    folder = tmp_path / "torn-0"
    parts = make_small_batches((5, 6, 7))
    for intact in (0, 1):  # the number of batches before the torn one
        torn_offset = 5 + intact
        torn = damage(parts[intact])
        position = len(parts[0]) * intact
        others = [offset for offset in (5, 6, 7) if offset != torn_offset]
        raw = make_segments(folder, [(5, parts[: intact + 1]), (6 + intact, parts[intact + 1 :])])
        raw[0] = 5, b"".join(parts[:intact]) + torn
        strategy.write_file(folder, 5, "log", raw[0][1])
        log = PartitionLog(folder)
        check_look_up(log, raw)
        assert make_place(log, log.find(torn_offset)) == (0, position)
        assert make_place(log, log.find_time(1000 + torn_offset)) == (0, position)
        for options, left in (
            ({"start": torn_offset, "stop": torn_offset + 1}, []),
            ({"start": 0}, others),
            ({"start_time": 1000 + torn_offset, "stop": torn_offset + 1}, []),
            ({"stop": 8}, others),
            ({"isolation": "read_committed"}, others),
        ):
            with pytest.raises(FrameError) as caught:
                kafka.open_log(folder, **options)
            assert caught.value.fault == Fault.BAD_LENGTH
            assert caught.value.offset == position
            assert caught.value.source == log.segments[0].path
            marked = kafka.open_log(folder, errors="mark", **options)
            bad = marked.where(marked.bad)
            assert bad.positions.tolist() == [position]
            assert bad["size"].tolist() == [len(torn)]
            assert marked["base_offset"][~marked.bad].tolist() == left
            assert kafka.open_log(folder, errors="skip", **options)["base_offset"].tolist() == left
        behind = kafka.open_log(folder, start=torn_offset + 1)
        assert behind["base_offset"].tolist() == others[intact:]
    assert kafka.open_log(folder, stop=6)["base_offset"].tolist() == [5]


def test_a_length_that_reaches_beyond_the_range_is_a_fault(tmp_path):
    """In the newest segment too: a range ends where an intact batch begins."""
    folder = tmp_path / "beyond-0"
    parts = make_small_batches((5, 6, 7))
    make_segments(folder, [(5, parts)])
    wrong = parts[1][:8] + (10_000).to_bytes(4, "big") + parts[1][12:]
    strategy.write_file(folder, 5, "log", parts[0] + wrong + parts[2])
    with pytest.raises(FrameError) as caught:
        kafka.open_log(folder, start=5, stop=7)
    assert caught.value.fault == Fault.BAD_LENGTH
    assert caught.value.offset == len(parts[0])
    log = PartitionLog(folder)
    assert make_place(log, log.find(6)) == (0, len(parts[0])), "the damage may hide the offset"
    marked = kafka.open_log(folder, start=5, stop=7, errors="mark")
    assert marked.positions.tolist() == [0, len(parts[0])]
    assert marked["size"].tolist() == [len(parts[0]), len(wrong)]
    assert marked["fault"].tolist() == [0, Fault.BAD_LENGTH]
    assert not marked.tail


def test_the_torn_end_of_the_newest_segment_is_its_tail(tmp_path):
    folder = tmp_path / "newest-0"
    parts = make_small_batches(range(3))
    raw = make_segments(folder, [(0, parts[:1]), (1, parts[1:])])
    for torn in (parts[2][:-1], parts[2][:5], parts[2][:8] + b"\x01" + parts[2][9:]):
        raw[1] = 1, parts[1] + torn
        strategy.write_file(folder, 1, "log", raw[1][1])
        remove_indexes(folder, 1)
        log = PartitionLog(folder)
        check_look_up(log, raw)
        assert [segment.newest for segment in log.segments] == [False, True]
        assert log.find(2) is None
        for errors in ("strict", "mark"):
            table = kafka.open_log(folder, start=0, stop=3, errors=errors)
            assert table["base_offset"].tolist() == [0, 1]
            assert table["fault"].tolist() == [0, 0]
            assert table.stop.fault == Fault.SHORT
            assert bytes(table.tail) == torn


@pytest.mark.parametrize("count", (1, 11, 12, 100, 40_000))
def test_zeros_behind_a_segment_are_preallocated(tmp_path, count):
    folder = tmp_path / "zeros-0"
    parts = make_small_batches(range(3))
    raw = make_segments(folder, [(0, parts[:1]), (2, parts[2:])])
    raw[0] = 0, parts[0] + bytes(count)
    strategy.write_file(folder, 0, "log", raw[0][1])
    log = PartitionLog(folder)
    check_look_up(log, raw)
    assert make_place(log, log.find(1)) == (1, 0)
    assert make_place(log, log.find_time(1001)) == (1, 0)
    table = kafka.open_log(folder, start=0)
    assert table["base_offset"].tolist() == [0, 2]
    assert table.stops[0].offset == len(parts[0])
    # A broker preallocates zeros only, so one other byte is damage.
    raw[0] = 0, raw[0][1][:-1] + b"\1"
    strategy.write_file(folder, 0, "log", raw[0][1])
    check_look_up(log, raw)
    with pytest.raises(FrameError, match="BAD_LENGTH.*at byte 88 "):
        kafka.open_log(folder, start=0)
    assert make_place(log, log.find(1)) == (0, len(parts[0]))


# ---- real directories


@pytest.mark.parametrize("name", DIRECTORIES)
def test_directories_of_brokers_are_read(name):
    log = PartitionLog(KAFKA_CORPUS / name)
    segments = [(segment.base_offset, Path(segment.path).read_bytes()) for segment in log.segments]
    assert (log.topic, log.partition) == (name[:-2], 0)
    assert len(log.segments) == len(list(KAFKA_CORPUS.glob(f"{name}/*.log")))
    rows = kafka.open_log(KAFKA_CORPUS / name).rows
    sample = rows[np.linspace(0, len(rows) - 1, 25).astype(int)]
    for offset in {int(base) + step for base in sample["base_offset"] for step in (-1, 0, 1, 7)}:
        assert make_place(log, log.find(offset)) == reference.find(segments, offset)
    for stamp in {int(latest) + step for latest in sample["max_timestamp"] for step in (-1, 0, 1)}:
        expected = reference.find_time(segments, stamp)
        assert make_place(log, log.find_time(stamp)) == (expected and expected[0])
        assert log.find_offset(stamp) == (expected and expected[1])


def test_look_up_in_a_real_segment_reads_little(monkeypatch):
    """The look-up uses the index: it scans about one interval of it, not the segment."""
    scans = []
    scan = directory.LAYOUT.scan

    def record_scan(*arguments, **options):
        scans.append(scan(*arguments, **options))
        return scans[-1]

    monkeypatch.setattr(directory, "LAYOUT", replace(directory.LAYOUT, scan=record_scan))
    log = PartitionLog(ORDERS)
    for offset in range(0, 27_000, 500):
        scans.clear()
        place = log.find(offset)
        assert place is not None
        assert sum(used for *_, used in scans) <= 140_000 < place.segment.size


def test_a_range_reads_only_that_range():
    whole = kafka.open_log(ORDERS)
    part = kafka.open_log(ORDERS, start=5_000, stop=13_000)
    assert sum(map(len, part.buffers)) < 800_000
    assert len(part.buffers) == 3
    first = int(np.flatnonzero(whole["last_offset"] >= 5_000)[0])
    assert part["base_offset"].tolist() == whole["base_offset"][first : first + len(part)].tolist()
    assert part["last_offset"][-1] >= 12_999
    assert part["base_offset"][-1] < 13_000
    assert set(part.positions.tolist()) <= set(whole.positions.tolist())
    assert kafka.open_log(ORDERS, start=5_000, stop=5_000).rows.size <= 1
    assert not len(kafka.open_log(ORDERS, start=27_708))
    assert not len(kafka.open_log(ORDERS, stop=0))


def test_a_range_without_bounds_is_the_whole_log():
    plain = kafka.open_log(LIVE)
    ranged = kafka.open_log(LIVE, start=0)
    assert plain.rows.tobytes() == ranged.rows.tobytes()
    assert plain.stop == ranged.stop
    assert bytes(plain.tail) == bytes(ranged.tail)
    assert plain.checked
    assert ranged.checked
    assert not kafka.open_log(LIVE, start=0, check=False).checked


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(NotADirectoryError, match="not a directory: .*nothing"):
        PartitionLog(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="no segment in"):
        PartitionLog(tmp_path)
    for options in (
        {"start": 1.5},
        {"stop": "3"},
        {"start_time": b""},
        {"start": 1, "into": None},
        {"start": 1, "limits": 5},
    ):
        with pytest.raises(TypeError, match="as an integer|argument 'into'|limits must be"):
            kafka.open_log(LIVE, **options)
    for options in ({"isolation": "committed"}, {"start": 1, "errors": "none"}):
        with pytest.raises(ValueError, match="must be one of"):
            kafka.open_log(LIVE, **options)
    for records in (kafka.open_log(LIVE), None, []):
        with pytest.raises(TypeError, match="within takes a table of kafka.records"):
            kafka.within(records, 1)
    assert kafka.open_log(LIVE, start=np.int64(100)).rows.size < 20


def test_other_files_are_no_segments(tmp_path):
    folder = tmp_path / "orders-7"
    make_segments(folder, [(0, [encode_batch([b"a"])])])
    for name in (
        "00000000000000000001.log.deleted",
        "00000000000000000001.log.swap",
        "1.log",
        "x.log",
    ):
        (folder / name).write_bytes(b"junk")
    (folder / "00000000000000000009.log").mkdir()
    log = PartitionLog(folder)
    assert [segment.base_offset for segment in log.segments] == [0]
    assert (log.topic, log.partition) == ("orders", 7)
    assert log.segments[0].read_offset_index().size == 0
    assert log.segments[0].read_transaction_index().size == 0
    assert log.read_leader_epochs().size == 0
    assert log.read_metadata() is None
    assert log.list_snapshots() == {}
    for name in ("orders-7.c0ffee-future", "orders", "orders-", "or ders-1"):
        folder = folder.rename(tmp_path / name)
        log = PartitionLog(folder)
        assert (log.topic, log.partition, log.high_watermark) == (None, None, None)


def test_empty_segments_are_skipped(tmp_path):
    folder = tmp_path / "empty-0"
    make_segments(folder, [(0, []), (0 + 5, [encode_batch([b"a"], base_offset=5)]), (6, [])])
    log = PartitionLog(folder)
    assert make_place(log, log.find(0)) == (1, 0)
    assert make_place(log, log.find(5)) == (1, 0)
    assert log.find(6) is None
    assert kafka.records(kafka.open_log(folder, start=0))["offset"].tolist() == [5]
    make_segments(folder, [(0, [])])
    assert PartitionLog(folder).find(0) is None
    assert PartitionLog(folder).find_offset(0) is None
    assert not len(kafka.open_log(folder, start=0, isolation="read_committed"))


# ---- checkpoints


def test_checkpoints_limit_the_log(tmp_path):
    folder = tmp_path / "orders-3"
    make_segments(folder, [(0, [encode_batch([b"a"] * 5, base_offset=5 * n) for n in range(6)])])
    log = PartitionLog(folder)

    def base_offsets(**options):
        return kafka.open_log(folder, checkpoints=True, **options)["base_offset"].tolist()

    assert (log.high_watermark, log.log_start, log.recovery_point) == (None, None, None)
    assert base_offsets() == [0, 5, 10, 15, 20, 25]
    (tmp_path / HIGH_WATERMARKS).write_text("0\n2\norders 33 7\norders 3 20\n")
    assert (log.high_watermark, log.log_start) == (20, None)
    assert base_offsets() == [0, 5, 10, 15]
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 3 7\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 3 30\n")
    assert (log.log_start, log.recovery_point) == (7, 30)
    assert base_offsets() == [5, 10, 15]
    assert base_offsets(start=11, stop=99) == [10, 15]
    assert len(kafka.open_log(folder)) == 6
    (tmp_path / HIGH_WATERMARKS).write_text("0\n2\norders 3 20\n")
    with pytest.raises(FrameError, match="BAD_COUNT"):
        base_offsets()


def test_records_above_the_high_watermark_end_no_transaction(tmp_path):
    folder = tmp_path / "orders-0"
    steps = [(1, "data"), (None, "data"), (1, "commit"), (None, "data")]
    offsets = [0, 2, 4, 5]
    make_segments(folder, [(0, [strategy.encode_step(*pair) for pair in zip(steps, offsets)])])

    def committed_offsets():
        table = kafka.open_log(folder, checkpoints=True, isolation="read_committed")
        return table["base_offset"].tolist()

    assert committed_offsets() == [0, 2, 5]
    for high_watermark, expected in ((7, [0, 2, 5]), (5, [0, 2]), (4, []), (2, [])):
        (tmp_path / HIGH_WATERMARKS).write_text(f"0\n1\norders 0 {high_watermark}\n")
        assert committed_offsets() == expected


# ---- odd headers


def test_a_header_that_claims_a_later_time(tmp_path):
    """Kafka opens a batch with such a header, and goes on if no record has that time."""
    folder = tmp_path / "claims-0"
    parts = [
        encode_batch([kafka.Record(0, 10, None, b"")], max_timestamp=50),
        encode_batch([], base_offset=1, last_offset=3, max_timestamp=90),
        encode_message_set([kafka.Record(4, 20, None, b"")], codec="gzip", wrapper_timestamp=80),
        encode_batch([kafka.Record(5, 60, None, b"")]),
    ]
    raw = make_segments(folder, [(0, parts)])
    log = PartitionLog(folder)
    check_look_up(log, raw)
    assert log.find_offset(11) == (4, 20)
    assert log.find_offset(40) == (5, 60)
    assert log.find_offset(70) is None


def test_a_wrapper_has_the_offset_of_its_last_message(tmp_path):
    folder = tmp_path / "wrapped-0"
    groups = [
        [kafka.Record(offset, 1000 + offset, None, b"v" * 20) for offset in range(n, n + 10)]
        for n in range(0, 100, 10)
    ]
    for magic in (0, 1):
        if magic == 0:
            groups_of_magic = [[row._replace(timestamp=None) for row in rows] for rows in groups]
        else:
            groups_of_magic = groups
        parts = [encode_message_set(rows, magic=magic, codec="gzip") for rows in groups_of_magic]
        raw = make_segments(folder, [(0, parts)])
        check_look_up(PartitionLog(folder), raw)
        records = kafka.records(kafka.open_log(folder, start=37, stop=52))
        assert records["offset"].tolist() == list(range(37, 52))


def test_limits_are_those_of_the_log(tmp_path):
    folder = tmp_path / "large-0"
    make_segments(folder, [(0, [encode_batch([bytes(5_000)]), encode_batch([b""], base_offset=1)])])
    with pytest.raises(FrameError, match="BAD_LENGTH"):
        kafka.open_log(folder, start=0, limits=Limits(frame=1_000))
    assert len(kafka.open_log(folder, start=0, limits=Limits(frame=10_000))) == 2


def test_a_pipe_is_no_index(tmp_path):
    folder = tmp_path / "pipe-0"
    raw = make_segments(
        folder, [(0, [encode_batch([b"x" * 50], base_offset=n) for n in range(40)])]
    )
    for suffix in ("index", "timeindex"):
        path = folder / f"{0:020}.{suffix}"
        path.unlink()
        os.mkfifo(path)
    began = time.monotonic()
    assert make_place(PartitionLog(folder), PartitionLog(folder).find(30)) == reference.find(
        raw, 30
    )
    for suffix in ("index", "timeindex"):
        path = folder / f"{0:020}.{suffix}"
        path.unlink()
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    assert make_place(PartitionLog(folder), PartitionLog(folder).find(30)) == reference.find(
        raw, 30
    )
    assert time.monotonic() - began < 10


def test_an_index_that_points_into_a_value(tmp_path):
    """An entry counts only if a batch begins at its position, with an offset up to the entry's."""
    folder = tmp_path / "astray-0"
    parts = [encode_batch([b"v" * 100], base_offset=n) for n in range(10)]
    raw = make_segments(folder, [(0, parts)])
    size = len(parts[0])
    for entry in ((3, 3 * size + 9), (3, 7 * size), (-1, -size), (0, 2**31 - 1), (9, 0)):
        strategy.write_file(folder, 0, "index", struct.pack(">ii", *entry))
        check_look_up(PartitionLog(folder), raw)
