"""Partition directories: look-up by offset and time is what a walk over every batch finds, whatever the indexes say."""
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import kafka_log as reference
from strategies import kafka_log as strategy
from strategies.kafka_log import make
from wirescan import Fault, FrameError, Limits, kafka
from wirescan.kafka import PartitionLog, encode_batch, encode_message_set, segment

CORPUS = Path(__file__).parent / "corpus" / "kafka"
DIRECTORIES = sorted(path.name for path in CORPUS.glob("*-0"))
WINDOWS = st.sampled_from((17, 200, 16 << 10))


def place_of(log, place):
    return None if place is None else (log.segments.index(place.segment), place.position)


def offsets_of(segments):
    """Every offset in the segments, some before, between and behind."""
    found = {record[0] for _, raw in segments for _, records in reference.batches(raw) for record in records or ()}
    found |= {base for base, _ in segments}
    return sorted({offset + step for offset in found for step in (-1, 0, 1)} | {0, 2**62})


def times_of(segments):
    found = {record[1] for _, raw in segments for _, records in reference.batches(raw) for record in records or ()}
    return sorted({time + step for time in found for step in (-1, 0, 1)} | {-2, -1, 0, 2**62})


def check_look_up(log, segments):
    for offset in offsets_of(segments):
        assert place_of(log, log.find(offset)) == reference.find(segments, offset), offset
    for stamp in times_of(segments):
        wanted = reference.find_time(segments, stamp)
        place = place_of(log, log.find_time(stamp))
        assert place == (wanted and wanted[0]), stamp
        if wanted is None:
            assert log.offset_at(stamp) is None
        elif wanted[1] is None:
            with pytest.raises(FrameError):
                log.offset_at(stamp)
        else:
            assert log.offset_at(stamp) == wanted[1]


# ------------------------------------------------------------------------------------------- the laws

# An example looks up every offset and time in its log, so the slow run has more of them than the default run.
FEW = settings(max_examples=60, deadline=None)
MANY = settings(max_examples=200, deadline=None)
look_up_examples = given(
    st.data(), strategy.segments(), WINDOWS, st.sampled_from((0, 60, 300)), st.integers(1, 3))
damaged_examples = given(st.data(), strategy.segments(3), WINDOWS)


@FEW
@look_up_examples
def test_look_up_is_a_walk_whatever_the_indexes_say(tmp_path_factory, data, segments, window, interval, appended):
    look_up_with_any_index(tmp_path_factory, data, segments, window, interval, appended)


@pytest.mark.slow
@MANY
@look_up_examples
def test_look_up_is_a_walk_in_many_logs(tmp_path_factory, data, segments, window, interval, appended):
    look_up_with_any_index(tmp_path_factory, data, segments, window, interval, appended)


def look_up_with_any_index(tmp_path_factory, data, segments, window, interval, appended):
    folder = tmp_path_factory.getbasetemp() / "look-0"
    raw = make(folder, segments)
    for number, (base, parts) in enumerate(segments):
        index, times = strategy.indexes(base, parts, interval, appended, number < len(segments) - 1)
        strategy.write(folder, base, "index", data.draw(strategy.spoilt(index, 8)))
        strategy.write(folder, base, "timeindex", data.draw(strategy.spoilt(times, 12)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "WINDOW", window)
        check_look_up(PartitionLog(folder), raw)


@settings(max_examples=80, deadline=None)
@damaged_examples
def test_look_up_in_damaged_segments(tmp_path_factory, data, segments, window):
    look_up_in_damage(tmp_path_factory, data, segments, window)


@pytest.mark.slow
@MANY
@damaged_examples
def test_look_up_in_many_damaged_segments(tmp_path_factory, data, segments, window):
    look_up_in_damage(tmp_path_factory, data, segments, window)


def look_up_in_damage(tmp_path_factory, data, segments, window):
    """What lies before a batch's length is not covered by its checksum: another offset there is another log."""
    folder = tmp_path_factory.getbasetemp() / "damaged-0"
    raw = make(folder, segments)
    for number, (base, parts) in enumerate(segments):
        out = bytearray(raw[number][1])
        starts = np.cumsum([0, *map(len, parts)]).tolist()
        for _ in range(data.draw(st.integers(0, 2)) if parts else 0):
            one = data.draw(st.integers(0, len(parts) - 1))
            at = starts[one] + data.draw(st.integers(8, len(parts[one]) - 1))
            if not (parts[one][16] == 2 and 12 <= at - starts[one] < 16):       # nor is the leader epoch
                out[at] = data.draw(st.integers(0, 255))
        tail = data.draw(st.sampled_from((b"", b"", bytes(100), encode_batch([b"x"] * 9, base_offset=2**50)[:80])))
        raw[number] = base, bytes(out) + tail
        strategy.write(folder, base, "log", raw[number][1])
    log = PartitionLog(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "WINDOW", window)
        # A batch that an index names is found even where the walk would take it for a part of a damaged one.
        for offset in offsets_of(raw):
            wanted, place = reference.find(raw, offset), place_of(log, log.find(offset))
            if place != wanted:
                rows = kafka.scan(raw[place[0]][1][place[1]:], errors="mark").rows
                assert place > wanted and not rows["fault"][0]
                assert rows["base_offset"][0] <= offset or rows["base_offset"][0] == rows["last_offset"][0]
        for one in log.segments:
            for suffix in ("index", "timeindex"):
                strategy.write(folder, one.base_offset, suffix, None)
        check_look_up(log, raw)


@settings(max_examples=60, deadline=None)
@given(st.data(), strategy.segments())
def test_a_part_of_a_log_is_that_part_of_the_whole(tmp_path_factory, data, segments):
    folder = tmp_path_factory.getbasetemp() / "part-0"
    raw = make(folder, segments)
    everything = kafka.records(kafka.scan(folder))
    pairs = everything.rows[["offset", "timestamp"]].tolist()
    start, stop = (data.draw(st.none() | st.sampled_from(offsets_of(raw))) for _ in "ab")
    early, late = (data.draw(st.none() | st.sampled_from(times_of(raw))) for _ in "ab")
    part = kafka.records(kafka.open_log(folder, start=start, stop=stop))
    wanted = [pair for pair in pairs if (start is None or pair[0] >= start) and (stop is None or pair[0] < stop)]
    assert kafka.within(part, start, stop).rows[["offset", "timestamp"]].tolist() == wanted
    # Times stand for the offsets that they come to.
    log, ends = PartitionLog(folder), {None: None}
    for stamp in (early, late):
        ends[stamp] = (log.offset_at(stamp) or (2**62, 0))[0] if stamp is not None else None
    part = kafka.records(kafka.open_log(folder, start_time=early, stop_time=late))
    whole = kafka.within(everything, ends[early], ends[late])
    assert kafka.within(part, ends[early], ends[late])["offset"].tolist() == whole["offset"].tolist()
    both = kafka.records(kafka.open_log(folder, start=start, stop=stop, start_time=early, stop_time=late))
    lows = [one for one in (start, ends[early]) if one is not None]
    highs = [one for one in (stop, ends[late]) if one is not None]
    bounds = max(lows, default=None), min(highs, default=None)
    assert kafka.within(both, *bounds)["offset"].tolist() == kafka.within(everything, *bounds)["offset"].tolist()


@settings(max_examples=60, deadline=None)
@given(st.data(), strategy.segments(2))
def test_damage_in_a_part_is_told(tmp_path_factory, data, segments):
    """No offset is lost silently: it is read, or strict raises."""
    folder = tmp_path_factory.getbasetemp() / "told-0"
    make(folder, segments)
    full = {number: kafka.records(kafka.scan(b"".join(parts)))["offset"].tolist() if parts else []
            for number, (_, parts) in enumerate(segments)}
    number = data.draw(st.integers(0, len(segments) - 1))
    base, parts = segments[number]
    if not parts:
        return
    raw = bytearray(b"".join(parts))
    one = data.draw(st.integers(0, len(parts) - 1))
    begin = sum(map(len, parts[:one]))
    at = begin + data.draw(st.integers(8, 11))
    raw[at] ^= data.draw(st.integers(1, 255))
    strategy.write(folder, base, "log", bytes(raw))
    wanted = sorted(offset for some in full.values() for offset in some)
    start, stop = sorted(data.draw(st.lists(st.sampled_from(wanted), min_size=2, max_size=2)))
    try:
        found = kafka.records(kafka.open_log(folder, start=start, stop=stop))
    except FrameError as error:
        assert error.source == str(folder / f"{base:020}.log") and error.offset == begin
        marked = kafka.open_log(folder, start=start, stop=stop, errors="mark")
        assert marked.bad.any() and not kafka.open_log(folder, start=start, stop=stop, errors="skip").bad.any()
    else:
        lost = kafka.records(kafka.scan(parts[one]))["offset"].tolist()
        inside = [offset for offset in wanted if start <= offset < stop]
        assert kafka.within(found, start, stop)["offset"].tolist() == [o for o in inside if o not in lost]
        # A damaged length at the very end of the log is a tail, there as in the whole.
        whole = kafka.scan(folder / f"{base:020}.log", errors="mark")
        assert not set(inside) & set(lost) or (
            number == len(segments) - 1 and one == len(parts) - 1 and whole.stop.offset == begin)


@pytest.mark.parametrize("damage", (
    lambda raw: raw[:-1], lambda raw: raw[:8], lambda raw: raw[:11] + b"\xff" + raw[12:],
    lambda raw: raw[:8] + b"\x01" + raw[9:], lambda raw: b"\xff" * 8 + raw[8:-1]), ids=(
    "cut", "cut behind its offset", "a length that is too large", "one that is far too large", "like a filler"))
def test_a_segment_that_is_not_the_newest_has_no_tail(tmp_path, damage):
    """Where its last batch is torn, what is asked for may have been there."""
    folder = tmp_path / "torn-0"
    parts = [encode_batch([kafka.Record(n, 1000 + n, None, b"v" * 20)]) for n in (5, 6, 7)]
    for good in (0, 1):                         # batches before the torn one, whose offset is 5 + good
        raw = make(folder, [(5, parts[:good + 1]), (6 + good, parts[good + 1:])])
        position, torn, others = len(parts[0]) * good, damage(parts[good]), [n for n in (5, 6, 7) if n != 5 + good]
        raw[0] = 5, b"".join(parts[:good]) + torn
        strategy.write(folder, 5, "log", raw[0][1])
        log = PartitionLog(folder)
        check_look_up(log, raw)
        assert place_of(log, log.find(5 + good)) == place_of(log, log.find_time(1005 + good)) == (0, position)
        for options, left in (({"start": 5 + good, "stop": 6 + good}, []), ({"start": 0}, others),
                              ({"start_time": 1005 + good, "stop": 6 + good}, []), ({"stop": 8}, others),
                              ({"isolation": "read_committed"}, others)):
            with pytest.raises(FrameError) as caught:
                kafka.open_log(folder, **options)
            assert (caught.value.fault, caught.value.offset) == (Fault.BAD_LENGTH, position)
            assert caught.value.source == log.segments[0].path
            marked = kafka.open_log(folder, errors="mark", **options)
            bad = marked.where(marked.bad)
            assert bad.positions.tolist() == [position] and bad["size"].tolist() == [len(torn)]
            assert marked["base_offset"][~marked.bad].tolist() == left
            assert kafka.open_log(folder, errors="skip", **options)["base_offset"].tolist() == left
        assert kafka.open_log(folder, start=6 + good)["base_offset"].tolist() == others[good:]
    assert kafka.open_log(folder, stop=6)["base_offset"].tolist() == [5]


def test_the_torn_end_of_the_newest_segment_is_its_tail(tmp_path):
    folder = tmp_path / "newest-0"
    parts = [encode_batch([kafka.Record(n, 1000 + n, None, b"v" * 20)]) for n in range(3)]
    raw = make(folder, [(0, parts[:1]), (1, parts[1:])])
    for torn in (parts[2][:-1], parts[2][:5], parts[2][:8] + b"\x01" + parts[2][9:]):
        raw[1] = 1, parts[1] + torn
        strategy.write(folder, 1, "log", raw[1][1])
        for suffix in ("index", "timeindex"):
            strategy.write(folder, 1, suffix, None)
        log = PartitionLog(folder)
        check_look_up(log, raw)
        assert [one.newest for one in log.segments] == [False, True] and log.find(2) is None
        for errors in ("strict", "mark"):
            found = kafka.open_log(folder, start=0, stop=3, errors=errors)
            assert found["base_offset"].tolist() == [0, 1] and found["fault"].tolist() == [0, 0]
            assert found.stop.fault == Fault.SHORT and bytes(found.tail) == torn


@pytest.mark.parametrize("count", (1, 11, 12, 100, 40_000))
def test_zeros_behind_a_segment_are_preallocated(tmp_path, count):
    folder = tmp_path / "zeros-0"
    parts = [encode_batch([kafka.Record(n, 1000 + n, None, b"v" * 20)]) for n in range(3)]
    raw = make(folder, [(0, parts[:1]), (2, parts[2:])])
    raw[0] = 0, parts[0] + bytes(count)
    strategy.write(folder, 0, "log", raw[0][1])
    log = PartitionLog(folder)
    check_look_up(log, raw)
    assert place_of(log, log.find(1)) == place_of(log, log.find_time(1001)) == (1, 0)
    found = kafka.open_log(folder, start=0)
    assert found["base_offset"].tolist() == [0, 2] and found.stops[0].offset == len(parts[0])
    # One byte among them is not what a broker preallocates.
    raw[0] = 0, raw[0][1][:-1] + b"\1"
    strategy.write(folder, 0, "log", raw[0][1])
    check_look_up(log, raw)
    with pytest.raises(FrameError):
        kafka.open_log(folder, start=0)
    assert place_of(log, log.find(1)) == (0, len(parts[0]))


# ------------------------------------------------------------------------------------------- real directories

@pytest.mark.parametrize("name", DIRECTORIES)
def test_real_directories(name):
    log = PartitionLog(CORPUS / name)
    segments = [(segment.base_offset, Path(segment.path).read_bytes()) for segment in log.segments]
    assert (log.topic, log.partition) == (name[:-2], 0) and len(log.segments) == len(list(CORPUS.glob(f"{name}/*.log")))
    rows = kafka.open_log(CORPUS / name).rows
    picked = rows[np.linspace(0, len(rows) - 1, 25).astype(int)]
    for offset in {int(o) + step for o in picked["base_offset"] for step in (-1, 0, 1, 7)}:
        assert place_of(log, log.find(offset)) == reference.find(segments, offset)
    for stamp in {int(t) + step for t in picked["max_timestamp"] for step in (-1, 0, 1)}:
        wanted = reference.find_time(segments, stamp)
        assert place_of(log, log.find_time(stamp)) == (wanted and wanted[0])
        assert log.offset_at(stamp) == (wanted and wanted[1])


def test_look_up_in_a_real_segment_reads_little(monkeypatch):
    """The index is used: what is walked is about an interval, not the segment."""
    walked, scan = [], segment.scan_batches
    monkeypatch.setattr(segment, "scan_batches", lambda *args: walked.append(scan(*args)) or walked[-1])
    log = PartitionLog(CORPUS / "orders-0")
    for offset in range(0, 27_000, 500):
        walked.clear()
        place = log.find(offset)
        assert place is not None and sum(used for *_, used in walked) <= 140_000 < place.segment.size


def test_a_part_reads_only_that_part():
    whole = kafka.open_log(CORPUS / "orders-0")
    part = kafka.open_log(CORPUS / "orders-0", start=5_000, stop=13_000)
    assert sum(map(len, part.buffers)) < 800_000 and len(part.buffers) == 3
    first = int(np.flatnonzero(whole["last_offset"] >= 5_000)[0])
    assert part["base_offset"].tolist() == whole["base_offset"][first:first + len(part)].tolist()
    assert part["last_offset"][-1] >= 12_999 and part["base_offset"][-1] < 13_000
    assert set(part.positions.tolist()) <= set(whole.positions.tolist())
    assert kafka.open_log(CORPUS / "orders-0", start=5_000, stop=5_000).rows.size <= 1
    assert not len(kafka.open_log(CORPUS / "orders-0", start=27_708)) and not len(
        kafka.open_log(CORPUS / "orders-0", stop=0))


def test_without_an_option_all_is_as_it_was():
    plain, ranged = kafka.open_log(CORPUS / "live-0"), kafka.open_log(CORPUS / "live-0", start=0)
    assert plain.rows.tobytes() == ranged.rows.tobytes() and plain.stop == ranged.stop
    assert bytes(plain.tail) == bytes(ranged.tail) and plain.checked and ranged.checked
    assert not kafka.open_log(CORPUS / "live-0", start=0, check=False).checked


def test_wrong_arguments(tmp_path):
    with pytest.raises(NotADirectoryError):
        PartitionLog(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        PartitionLog(tmp_path)
    live = CORPUS / "live-0"
    for options in ({"start": 1.5}, {"stop": "3"}, {"start_time": b""}, {"start": 1, "into": None},
                    {"start": 1, "limits": 5}):
        with pytest.raises(TypeError):
            kafka.open_log(live, **options)
    for options in ({"isolation": "committed"}, {"start": 1, "errors": "none"}):
        with pytest.raises(ValueError):
            kafka.open_log(live, **options)
    for records in (kafka.open_log(live), None, []):
        with pytest.raises(TypeError):
            kafka.within(records, 1)
    assert kafka.open_log(live, start=np.int64(100)).rows.size < 20


def test_other_files_are_no_segments(tmp_path):
    folder = tmp_path / "orders-7"
    make(folder, [(0, [encode_batch([b"a"])])])
    for name in ("00000000000000000001.log.deleted", "00000000000000000001.log.swap", "1.log", "x.log"):
        (folder / name).write_bytes(b"junk")
    (folder / "00000000000000000009.log").mkdir()
    log = PartitionLog(folder)
    assert [segment.base_offset for segment in log.segments] == [0] and (log.topic, log.partition) == ("orders", 7)
    assert log.segments[0].offset_index().size == log.segments[0].transaction_index().size == 0
    assert log.leader_epochs().size == 0 and log.metadata() is None and log.snapshots() == {}
    for name in ("orders-7.c0ffee-future", "orders", "orders-", "or ders-1"):
        other = folder.rename(tmp_path / name)
        log = PartitionLog(other)
        assert (log.topic, log.partition, log.high_watermark) == (None, None, None)
        folder = other


def test_empty_segments(tmp_path):
    folder = tmp_path / "empty-0"
    make(folder, [(0, []), (0 + 5, [encode_batch([b"a"], base_offset=5)]), (6, [])])
    log = PartitionLog(folder)
    assert place_of(log, log.find(0)) == place_of(log, log.find(5)) == (1, 0) and log.find(6) is None
    assert kafka.records(kafka.open_log(folder, start=0))["offset"].tolist() == [5]
    make(folder, [(0, [])])
    assert PartitionLog(folder).find(0) is None and PartitionLog(folder).offset_at(0) is None
    assert not len(kafka.open_log(folder, start=0, isolation="read_committed"))


# ------------------------------------------------------------------------------------------- checkpoints

def test_checkpoints(tmp_path):
    folder = tmp_path / "orders-3"
    make(folder, [(0, [encode_batch([b"a"] * 5, base_offset=5 * n) for n in range(6)])])
    log = PartitionLog(folder)
    assert (log.high_watermark, log.log_start, log.recovery_point) == (None, None, None)
    offsets = lambda: kafka.open_log(folder, checkpoints=True)["base_offset"].tolist()
    assert offsets() == [0, 5, 10, 15, 20, 25]
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\norders 33 7\norders 3 20\n")
    assert (log.high_watermark, log.log_start) == (20, None) and offsets() == [0, 5, 10, 15]
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 3 7\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 3 30\n")
    assert (log.log_start, log.recovery_point) == (7, 30) and offsets() == [5, 10, 15]
    assert kafka.open_log(folder, checkpoints=True, start=11, stop=99)["base_offset"].tolist() == [10, 15]
    assert len(kafka.open_log(folder)) == 6
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\norders 3 20\n")
    with pytest.raises(FrameError):
        offsets()


def test_records_above_the_high_watermark_end_no_transaction(tmp_path):
    folder = tmp_path / "orders-0"
    do = [(1, "data"), (None, "data"), (1, "commit"), (None, "data")]
    at = [0, 2, 4, 5]
    make(folder, [(0, [strategy.step_bytes(*pair) for pair in zip(do, at)])])
    committed = lambda: kafka.open_log(folder, checkpoints=True, isolation="read_committed")["base_offset"].tolist()
    assert committed() == [0, 2, 5]
    for mark, seen in ((7, [0, 2, 5]), (5, [0, 2]), (4, []), (2, [])):
        (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {mark}\n")
        assert committed() == seen


# ------------------------------------------------------------------------------------------- odd headers

def test_a_header_that_claims_a_later_time(tmp_path):
    """Kafka opens a batch whose header says so, and goes on where its records do not bear it out."""
    folder = tmp_path / "claims-0"
    parts = [encode_batch([kafka.Record(0, 10, None, b"")], max_timestamp=50),
             encode_batch([], base_offset=1, last_offset=3, max_timestamp=90),
             encode_message_set([kafka.Record(4, 20, None, b"")], codec="gzip", wrapper_timestamp=80),
             encode_batch([kafka.Record(5, 60, None, b"")])]
    raw = make(folder, [(0, parts)])
    log = PartitionLog(folder)
    check_look_up(log, raw)
    assert log.offset_at(11) == (4, 20) and log.offset_at(40) == (5, 60) and log.offset_at(70) is None


def test_a_wrapper_has_the_offset_of_its_last_message(tmp_path):
    folder = tmp_path / "wrapped-0"
    rows = [[kafka.Record(offset, 1000 + offset, None, b"v" * 20) for offset in range(n, n + 10)]
            for n in range(0, 100, 10)]
    for magic in (0, 1):
        parts = [encode_message_set([row._replace(timestamp=row.timestamp if magic else None) for row in some],
                                    magic=magic, codec="gzip") for some in rows]
        raw = make(folder, [(0, parts)])
        check_look_up(PartitionLog(folder), raw)
        found = kafka.records(kafka.open_log(folder, start=37, stop=52))
        assert found["offset"].tolist() == list(range(30, 60))
        assert kafka.within(found, 37, 52)["offset"].tolist() == list(range(37, 52))


def test_limits_are_those_of_the_log(tmp_path):
    folder = tmp_path / "large-0"
    make(folder, [(0, [encode_batch([bytes(5_000)]), encode_batch([b""], base_offset=1)])])
    with pytest.raises(FrameError):
        kafka.open_log(folder, start=0, limits=Limits(frame=1_000))
    assert len(kafka.open_log(folder, start=0, limits=Limits(frame=10_000))) == 2


def test_a_pipe_is_no_index(tmp_path):
    folder = tmp_path / "pipe-0"
    raw = make(folder, [(0, [encode_batch([b"x" * 50], base_offset=n) for n in range(40)])])
    for suffix in ("index", "timeindex"):
        path = folder / f"{0:020}.{suffix}"
        path.unlink()
        os.mkfifo(path)
    began = time.monotonic()
    assert place_of(PartitionLog(folder), PartitionLog(folder).find(30)) == reference.find(raw, 30)
    for suffix in ("index", "timeindex"):
        path = folder / f"{0:020}.{suffix}"
        path.unlink()
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    assert place_of(PartitionLog(folder), PartitionLog(folder).find(30)) == reference.find(raw, 30)
    assert time.monotonic() - began < 10


def test_an_index_that_points_into_a_value(tmp_path):
    """Its batch has to begin where it says, and not behind the offset."""
    folder = tmp_path / "astray-0"
    parts = [encode_batch([b"v" * 100], base_offset=n) for n in range(10)]
    raw = make(folder, [(0, parts)])
    size = len(parts[0])
    for entry in ((3, 3 * size + 9), (3, 7 * size), (-1, -size), (0, 2**31 - 1), (9, 0)):
        strategy.write(folder, 0, "index", struct.pack(">ii", *entry))
        check_look_up(PartitionLog(folder), raw)
