"""The intact batches of damaged logs, and the indexes that are written beside them."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given

from tests.strategies import kafka_log as log_strategies
from tests.strategies import shared as st
from tests.support.command import parse_lines, run
from tests.support.paths import CORPUS, KAFKA_CORPUS
from tests.support.slowness import SLOWNESS
from tests.support.tables import record_computed
from wirescan import kafka, scan
from wirescan.frames.registry import format_of
from wirescan.kafka import Record, encode_batch, encode_message_set
from wirescan.kafka.log.index_files import read_transaction_index
from wirescan.kafka.log.index_writer import KafkaIndexWriter
from wirescan.liftbridge.log.commit_log import CommitLog
from wirescan.liftbridge.log.index_writer import LiftbridgeIndexWriter
from wirescan.seglog import log_order
from wirescan.seglog.log_order import Run, choose_runs
from wirescan.seglog.log_salvage import (
    LostRange,
    Omission,
    OpenEnd,
    SalvagedSegment,
    SalvageReport,
    salvage,
)

TIME = 1_700_000_000_000
PER_BATCH = 10  # records
HEADER = 61  # bytes of a batch's header
# Bytes of the header that no checksum covers, and that no other batch contradicts.
LEADER_EPOCH = range(12, 16)


def make_batch(first: int, count: int = PER_BATCH, **options) -> bytes:
    records = [
        Record(first + i, TIME + first + i, b"key", b"value %d" % (first + i)) for i in range(count)
    ]
    return encode_batch(records, leader_epoch=3, **options)


def make_log(segments: int = 2, batches: int = 5) -> dict[int, list[bytes]]:
    """Return base offset -> the batches of each segment."""
    log = {}
    offset = 0
    for _ in range(segments):
        base = offset
        log[base] = [make_batch(base + PER_BATCH * i) for i in range(batches)]
        offset += PER_BATCH * batches
    return log


def write_log(directory: Path, log: dict[int, list[bytes]]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for base, batches in log.items():
        (directory / f"{base:020}.log").write_bytes(b"".join(batches))
    return directory


def read_batches(directory: Path) -> list[bytes]:
    """Return the bytes of each batch in the segments of a directory, in order."""
    batches = []
    for path in sorted(directory.glob("*.log")):
        table = kafka.scan(path)
        assert table.consumed == path.stat().st_size
        batches += [bytes(table.frame(row)) for row in range(len(table))]
    return batches


def salvage_log(folder: Path, log: dict[int, list[bytes]]) -> tuple[list[bytes], SalvageReport]:
    """Write a log, salvage it, and return the batches of the result."""
    source = write_log(folder / "orders-0", log)
    report = salvage(source, folder / "out", format="kafka.batches")
    return read_batches(folder / "out" / "orders-0"), report


def flatten(log: dict[int, list[bytes]]) -> list[bytes]:
    return [batch for batches in log.values() for batch in batches]


def change_byte(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def list_lost(report: SalvageReport) -> list[tuple[int, int]]:
    return [(event.first, event.last) for event in report.events if isinstance(event, LostRange)]


def list_faults(report: SalvageReport) -> list[str]:
    return [event.fault for event in report.events if isinstance(event, Omission)]


# --- the result


@pytest.mark.parametrize("name", ["orders-0", "compacted-0", "live-0", "open-0", "appended-0"])
def test_an_intact_log_of_a_broker_is_copied_with_its_indexes(name, tmp_path):
    report = salvage(KAFKA_CORPUS / name, tmp_path / "out", format="kafka.batches")
    assert list_faults(report) == []
    assert list_lost(report) == []
    written = sorted((tmp_path / "out" / name).iterdir())
    sources = [
        path
        for path in sorted((KAFKA_CORPUS / name).iterdir())
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    ]
    assert [path.name for path in written] == [path.name for path in sources]
    for path, source in zip(written, sources, strict=True):
        # A running broker preallocates, and adds the last entry of time when it closes a segment.
        is_open = name == "live-0" and path.stem == f"{480:020}"
        if not (is_open and path.suffix == ".timeindex"):
            expected = source.read_bytes()
            size = path.stat().st_size
            assert path.read_bytes() == expected[:size], path
            assert not any(expected[size:])
    assert run("verify", tmp_path / "out").exit_code == 0


def test_the_entry_of_time_of_a_closed_segment_is_added(tmp_path):
    """The newest segment of live-0 was copied from a running broker."""
    salvage(KAFKA_CORPUS / "live-0", tmp_path / "out", format="kafka.batches")
    (segment,) = (tmp_path / "out" / "live-0").glob(f"{480:020}.log")
    entries = kafka.log.index_files.read_time_index(str(segment.with_suffix(".timeindex")))
    batches = kafka.scan(segment)
    assert entries["timestamp"][-1] == batches["max_timestamp"].max()
    before = kafka.log.index_files.read_time_index(
        str(KAFKA_CORPUS / "live-0" / f"{480:020}.timeindex")
    )
    assert entries[: len(before)].tolist() == before.tolist()


def test_indexes_do_not_depend_on_the_pieces(tmp_path):
    for log in sorted((KAFKA_CORPUS / "orders-0").glob("*.log")):
        table = kafka.scan(log)
        writer = KafkaIndexWriter()
        writer.start_segment(str(tmp_path / log.name))
        for row in range(len(table)):
            writer.add(table[row : row + 1], int(table["start"][row]))
        writer.end_segment()
    names = [path.name for path in tmp_path.iterdir()]
    assert f"{24800:020}.txnindex" in names
    for name in names:
        assert (tmp_path / name).read_bytes() == (KAFKA_CORPUS / "orders-0" / name).read_bytes()


def test_indexes_of_liftbridge_are_those_of_its_server(tmp_path):
    logs = sorted((CORPUS / "liftbridge").glob("*/logs/*/*.log"))
    assert len(logs) > 20
    for number, log in enumerate(logs):
        folder = tmp_path / str(number)
        folder.mkdir()
        writer = LiftbridgeIndexWriter()
        writer.start_segment(str(folder / log.name))
        writer.add(scan(log, "liftbridge.entries"), 0)
        writer.end_segment()
        (index,) = folder.iterdir()
        expected = log.with_suffix(".index").read_bytes()
        assert index.read_bytes() == expected[: index.stat().st_size]
        assert not any(expected[index.stat().st_size :])


def test_a_liftbridge_log_is_salvaged(tmp_path):
    source = tmp_path / "rolled-0"
    shutil.copytree(CORPUS / "liftbridge/single/logs/rolled-0", source)
    path = source / f"{11:020}.log"
    table = scan(path, "liftbridge.entries")
    path.write_bytes(change_byte(path.read_bytes(), int(table["start"][3]) + 30, 1))
    report = salvage(source, tmp_path / "out", format="liftbridge.entries")
    assert list_lost(report) == [(14, 14)]
    result = scan(tmp_path / "out", "liftbridge.entries")
    expected = [offset for offset in range(40) if offset != 14]
    assert result["offset"].tolist() == expected
    partition = tmp_path / "out" / "rolled-0"
    assert len(CommitLog(partition).verify()) == 0


# --- damage


@pytest.mark.parametrize("at", [at for at in range(HEADER) if at not in LEADER_EPOCH])
@pytest.mark.parametrize("mask", [1 << bit for bit in range(8)])
def test_a_changed_bit_of_a_header_loses_its_batch_alone(at, mask, tmp_path):
    log = make_log()
    whole = flatten(log)
    log[0][2] = change_byte(log[0][2], at, mask)
    batches, report = salvage_log(tmp_path, log)
    assert batches == whole[:2] + whole[3:]
    assert list_lost(report) == [(20, 29)]
    omitted = sum(event.size for event in report.events if isinstance(event, Omission))
    assert omitted == report.omitted == len(whole[2])
    assert run("verify", tmp_path / "out").exit_code == 0


@pytest.mark.parametrize("at", LEADER_EPOCH)
def test_a_changed_leader_epoch_cannot_be_noticed(at, tmp_path):
    """No checksum covers it, and any epoch is possible."""
    log = make_log()
    log[0][2] = change_byte(log[0][2], at, 1)
    batches, report = salvage_log(tmp_path, log)
    assert batches == flatten(log)
    assert list_faults(report) == []


@pytest.mark.parametrize("number", range(5))
def test_a_changed_byte_of_the_records_loses_their_batch_alone(number, tmp_path):
    log = make_log()
    whole = flatten(log)
    for at in range(HEADER, len(log[50][number]), 37):
        folder = tmp_path / str(at)
        changed = make_log()
        changed[50][number] = change_byte(log[50][number], at, 0x80)
        batches, report = salvage_log(folder, changed)
        assert batches == whole[: 5 + number] + whole[6 + number :]
        assert list_lost(report) == [(50 + 10 * number, 59 + 10 * number)]
        assert report.events[-1 if number < 4 else -2] is not None


@pytest.mark.parametrize("base", [0, 50])
def test_zeros_and_noise_in_a_segment(base, tmp_path):
    """They replace the end of one batch, a whole one, and the start of another."""
    for number, filler in enumerate(
        (bytes, random.Random(1).randbytes, lambda size: b"\xff" * size)
    ):
        log = make_log()
        whole = flatten(log)
        raw = b"".join(log[base])
        size = len(log[base][0])
        raw = raw[: size + 50] + filler(2 * size) + raw[3 * size + 50 :]
        log[base] = [raw]
        batches, report = salvage_log(tmp_path / str(number), log)
        first = base // 10 + 1
        assert batches == whole[:first] + whole[first + 3 :]
        assert list_lost(report) == [(base + 10, base + 39)]


def test_a_segment_that_was_cut_at_any_byte(tmp_path):
    log = make_log(batches=3)
    whole = flatten(log)
    last = log[30][2]
    for cut in range(len(last)):
        log[30][2] = last[:cut]
        batches, report = salvage_log(tmp_path / str(cut), log)
        assert batches == whole[:5]
        # A header that is cut states no offsets.
        assert list_lost(report) == ([(50, 59)] if cut >= HEADER else [])
        assert len(list_faults(report)) == (cut > 0)


def test_the_cut_end_of_an_older_segment(tmp_path):
    log = make_log(batches=3)
    whole = flatten(log)
    log[0][2] = log[0][2][:20]
    batches, report = salvage_log(tmp_path, log)
    assert batches == whole[:2] + whole[3:]
    assert list_lost(report) == [(20, 29)]
    # The names of segments stay, so the lost end of a segment is a missing segment to `verify`.
    findings = [
        line
        for line in parse_lines(run("verify", "--json", tmp_path / "out"))
        if line["kind"] == "damage"
    ]
    assert [(line["fault"], line["lost_first"], line["lost_last"]) for line in findings] == [
        ("MISSING_SEGMENT", 20, 29)
    ]


def test_the_first_batch_of_a_segment_is_lost_and_its_name_stays(tmp_path):
    log = make_log()
    log[50][0] = change_byte(log[50][0], 70, 1)
    _, report = salvage_log(tmp_path, log)
    segments = [event for event in report.events if isinstance(event, SalvagedSegment)]
    assert [(segment.base, segment.first) for segment in segments] == [(0, 0), (50, 60)]
    index = kafka.log.index_files.read_time_index(
        str(tmp_path / "out" / "orders-0" / f"{50:020}.timeindex")
    )
    assert index["offset"].tolist() == [99]
    assert run("verify", tmp_path / "out").exit_code == 0


def test_a_missing_segment_is_no_damage_of_the_others(tmp_path):
    log = make_log(segments=3)
    whole = flatten(log)
    del log[50]
    batches, report = salvage_log(tmp_path, log)
    assert batches == whole[:5] + whole[10:]
    assert list_faults(report) == []


def test_a_segment_without_intact_batches_is_not_written(tmp_path):
    log = make_log(segments=3)
    whole = flatten(log)
    log[50] = [bytes(len(batch) - 1) + b"x" for batch in log[50]]
    batches, report = salvage_log(tmp_path, log)
    assert batches == whole[:5] + whole[10:]
    assert list_lost(report) == [(50, 99)]
    assert not (tmp_path / "out" / "orders-0" / f"{50:020}.log").exists()


# --- order


def test_a_batch_that_is_written_twice_is_kept_once(tmp_path):
    log = make_log()
    whole = flatten(log)
    log[0].insert(3, log[0][2])
    log[50].append(log[0][1])
    batches, report = salvage_log(tmp_path, log)
    assert batches == whole
    assert list_faults(report) == ["DUPLICATE"] * 2
    assert list_lost(report) == []


@pytest.mark.parametrize("base", [(1 << 63) - 1, (1 << 63) - 2])
def test_a_batch_at_the_end_of_all_offsets_beside_a_duplicate(base, tmp_path):
    """The range of the last offset stops at 2**63, which is no i8."""
    first = make_batch(0)
    rows = [Record(offset, TIME, None, b"x") for offset in range(base, 1 << 63)]
    last = encode_batch(rows)
    batches, report = salvage_log(tmp_path, {0: [first, first, last, last]})
    assert batches == [first, last]
    assert list_faults(report) == ["DUPLICATE", "DUPLICATE"]


def test_a_hole_after_a_duplicate_is_no_loss(tmp_path):
    log = {0: [make_batch(0), make_batch(0), make_batch(20)]}
    _, report = salvage_log(tmp_path, log)
    assert list_faults(report) == ["DUPLICATE"]
    assert list_lost(report) == []


def test_a_stretch_that_is_written_twice_is_kept_once(tmp_path):
    log = make_log(segments=1, batches=20)
    whole = flatten(log)
    log[0] = whole[:12] + whole[4:]
    batches, report = salvage_log(tmp_path, log)
    assert batches == whole
    assert list_faults(report) == ["DUPLICATE"] * 8


def test_another_batch_with_the_same_offsets_is_out_of_order(tmp_path):
    log = make_log()
    whole = flatten(log)
    log[0].insert(2, make_batch(20, codec="gzip"))
    batches, report = salvage_log(tmp_path, log)
    assert len(batches) == len(whole)
    assert list_faults(report) == ["OFFSET_ORDER"]
    assert batches[:2] + batches[3:] == whole[:2] + whole[3:]


def test_two_batches_in_the_wrong_order_lose_one_of_them(tmp_path):
    log = make_log()
    whole = flatten(log)
    log[0][1:3] = [log[0][2], log[0][1]]
    batches, report = salvage_log(tmp_path, log)
    assert list_faults(report) == ["OFFSET_ORDER"]
    assert batches in (whole[:1] + whole[2:], whole[:2] + whole[3:])
    assert list_lost(report) in ([(10, 19)], [(20, 29)])


def test_batches_of_another_log_are_left_out(tmp_path):
    """They are a long stretch with higher offsets, after which the log continues."""
    log = make_log(segments=1, batches=40)
    whole = flatten(log)
    foreign = [make_batch(5000 + 10 * i) for i in range(30)]
    log[0] = whole[:5] + foreign + whole[5:]
    batches, report = salvage_log(tmp_path, log)
    assert batches == whole
    assert list_faults(report) == ["OFFSET_ORDER"] * 30
    assert list_lost(report) == []


def test_a_segment_below_its_name_gets_another_name(tmp_path):
    source = tmp_path / "orders-0"
    write_log(source, {1000: [make_batch(100), make_batch(110)]})
    report = salvage(source, tmp_path / "out", format="kafka.batches")
    assert [event.base for event in report.events] == [100]
    assert run("verify", tmp_path / "out").exit_code == 0


def test_files_without_names_of_segments_are_named_by_their_first_offset(tmp_path):
    (tmp_path / "part.bin").write_bytes(make_batch(100) + make_batch(110))
    salvage(str(tmp_path / "part.bin"), tmp_path / "out", format="kafka.batches")
    assert (tmp_path / "out" / "part" / f"{100:020}.log").exists()


def test_a_segment_ends_where_offsets_leave_the_reach_of_its_index(tmp_path):
    far = 2**31 - 5
    log = {0: [make_batch(0), make_batch(far), make_batch(2**40)]}
    batches, report = salvage_log(tmp_path, log)
    assert batches == log[0]
    segments = [event for event in report.events if isinstance(event, SalvagedSegment)]
    assert [segment.base for segment in segments] == [0, far, 2**40]


def test_a_name_that_is_too_low_for_the_index_is_replaced(tmp_path):
    batches, report = salvage_log(tmp_path, {7: [make_batch(2**40)]})
    assert len(batches) == 1
    assert [event.base for event in report.events] == [2**40]
    assert len(list((tmp_path / "out").rglob("*.log"))) == 1


@pytest.mark.parametrize("wrong", [10**6, 205, 203])
@pytest.mark.parametrize("number", [3, 50, 95])
def test_the_choice_is_the_same_with_few_runs_in_memory(wrong, number, tmp_path, monkeypatch):
    """A log with a hole after each batch has many runs. Older ones are joined."""
    monkeypatch.setattr(log_order, "MOST_RUNS", 8)
    log = {0: [make_batch(20 * i) for i in range(100)]}
    whole = list(log[0])
    moved = (wrong if wrong > 10**5 else 20 * number + wrong).to_bytes(8, "big")
    log[0][number] = moved + whole[number][8:]
    batches, report = salvage_log(tmp_path, log)
    assert batches == whole[:number] + whole[number + 1 :]
    assert list_faults(report) == ["OFFSET_ORDER"]


def test_the_best_choice_of_runs():
    """Compared with all choices, for small lists of single frames."""
    choose = random.Random(3)
    for _ in range(300):
        firsts = [choose.randrange(8) for _ in range(choose.randrange(1, 8))]
        runs = [Run(0, i, i + 1, first, first, 1, (1, i)) for i, first in enumerate(firsts)]
        kept = choose_runs(runs, [None])
        chosen = [first for first, keep in zip(firsts, kept, strict=True) if keep]
        assert all(a < b for a, b in pairwise(chosen))
        assert len(chosen) == find_longest(firsts)


def find_longest(values: list[int]) -> int:
    best = 0
    for choice in range(1 << len(values)):
        taken = [value for i, value in enumerate(values) if choice >> i & 1]
        if all(a < b for a, b in pairwise(taken)):
            best = max(best, len(taken))
    return best


# --- generated logs


def cut_batch(batch: bytes, choose: random.Random) -> bytes:
    return batch[: choose.randrange(1, len(batch))]


def erase_bytes(batch: bytes, choose: random.Random) -> bytes:
    start = choose.randrange(16, len(batch))
    stop = choose.randrange(start + 1, len(batch) + 1)
    return batch[:start] + bytes(stop - start) + batch[stop:]


def change_covered_byte(batch: bytes, choose: random.Random) -> bytes:
    return change_byte(batch, choose.randrange(16, len(batch)), 1 << choose.randrange(8))


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    cut_batch,
    erase_bytes,
    change_covered_byte,
    lambda batch, choose: b"",
    lambda batch, choose: choose.randbytes(choose.randrange(1, 300)),
)
# These keep the length, or remove the whole message. Many bytes look like the header of an old
# message, so the message after a cut one may be taken for a part of it.
DAMAGES_OF_OLD_MAGICS = (change_covered_byte, lambda batch, choose: b"")
MAGIC_AT = 16


@given(log_strategies.segments(), st.data())
def test_the_untouched_batches_of_any_log_are_salvaged(tmp_path_factory, parts_of, data):
    """Batches of every magic and codec. Some are damaged or written twice."""
    folder = tmp_path_factory.mktemp("salvage")
    choose = random.Random(data.draw(st.integers(0, 2**32)))
    expected: list[bytes] = []
    log: dict[int, list[bytes]] = {}
    is_old = any(part[MAGIC_AT] < 2 for _, parts in parts_of for part in parts)
    damages = DAMAGES_OF_OLD_MAGICS if is_old else DAMAGES
    for base, parts in parts_of:
        log[base] = []
        broken: list[tuple[int, bytes]] = []
        for part in parts:
            damaged = choose.choice(damages)(part, choose) if choose.random() < 0.3 else part
            if damaged == part:
                expected.append(part)
            else:
                broken.append((sum(map(len, log[base])), part))
            log[base].append(damaged)
            log[base] += [part] * (damaged == part and choose.random() < 0.1)
        joined = b"".join(log[base])
        # The bytes after a cut batch may be those that it lost, and then it is intact.
        assume(not any(joined.startswith(part, position) for position, part in broken))
    write_log(folder / "orders-0", log)
    if not expected:
        with pytest.raises(ValueError, match="no frame is intact"):
            salvage(folder / "orders-0", folder / "out", format="kafka.batches")
        return
    salvage(folder / "orders-0", folder / "out", format="kafka.batches")
    assert b"".join(read_batches(folder / "out" / "orders-0")) == b"".join(expected)
    findings = parse_lines(run("verify", "--json", folder / "out"))
    damage = {line["fault"] for line in findings if line["kind"] == "damage"}
    assert damage <= {"MISSING_SEGMENT"}


def test_messages_of_old_magics(tmp_path):
    rows = [Record(offset, TIME, None, b"v") for offset in range(8)]
    sets = [
        encode_message_set(rows[:4], magic=1, codec="gzip"),
        encode_message_set(rows[4:], magic=1, codec="gzip"),
    ]
    (tmp_path / "old.bin").write_bytes(b"?" + sets[1])
    salvage(str(tmp_path / "old.bin"), tmp_path / "out", format="kafka.batches")
    # The offset of the first message is not in the header, so the name is below it.
    assert read_batches(tmp_path / "out" / "old") == [sets[1]]
    (path,) = (tmp_path / "out" / "old").glob("*.log")
    assert int(path.stem) <= 4


# --- transactions, content


def test_a_transaction_without_its_end_is_reported(tmp_path):
    steps = [(1, "DATA"), (2, "DATA"), (1, "COMMIT"), (2, "ABORT")]
    kinds = {
        "DATA": log_strategies.DATA,
        "COMMIT": log_strategies.COMMIT,
        "ABORT": log_strategies.ABORT,
    }
    offset = 0
    batches = []
    for producer, kind in steps:
        batches.append(log_strategies.encode_step((producer, kinds[kind]), offset))
        offset = int(kafka.scan(batches[-1])["last_offset"][0]) + 1
    batches[3] = change_byte(batches[3], 62, 1)
    _, report = salvage_log(tmp_path, {0: batches})
    (end,) = (event for event in report.events if isinstance(event, OpenEnd))
    assert "producer 2 from offset 2" in end.meaning
    assert not (tmp_path / "out" / "orders-0" / f"{0:020}.txnindex").exists()


def test_many_open_transactions_cost_linear_time(tmp_path):
    """Each end of a transaction searched all others that are open for the first one."""
    count = 40_000
    steps = [(producer, log_strategies.DATA) for producer in range(count)]
    steps += [(producer, log_strategies.ABORT) for producer in reversed(range(count))]
    offsets = [*range(0, 2 * count, 2), *range(2 * count, 3 * count)]
    table = kafka.scan(b"".join(map(log_strategies.encode_step, steps, offsets)))
    writer = KafkaIndexWriter()
    writer.start_segment(str(tmp_path / f"{0:020}.log"))
    begun = time.process_time()
    writer.add(table, 0)
    assert time.process_time() - begun < 2 * SLOWNESS
    writer.end_segment()
    assert writer.describe_end() == []
    entries = read_transaction_index(str(tmp_path / f"{0:020}.txnindex"))
    ends = np.arange(2 * count, 3 * count)
    assert entries["last_offset"].tolist() == ends.tolist()
    assert entries["first_offset"].tolist() == offsets[:count][::-1]
    # Producer 0, which begins at offset 0, is the last one to end.
    assert entries["last_stable_offset"].tolist() == [0] * (count - 1) + [3 * count]


def make_unreadable(batch: bytes) -> bytes:
    """Return a batch with a right checksum whose compressed records cannot be read."""
    from crc32c import crc32c

    data = bytearray(batch)
    data[-8] ^= 0xFF
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def test_unreadable_records_are_left_out_only_on_demand(tmp_path):
    log = {0: [make_batch(0), make_unreadable(make_batch(10, codec="gzip")), make_batch(20)]}
    source = write_log(tmp_path / "orders-0", log)
    report = salvage(source, tmp_path / "shallow", format="kafka.batches")
    assert list_faults(report) == []
    report = salvage(source, tmp_path / "deep", format="kafka.batches", deep=True)
    assert list_faults(report) == ["BAD_COMPRESSION"]
    assert list_lost(report) == [(10, 19)]
    assert run("verify", tmp_path / "deep").exit_code == 0


# --- the target


def test_nothing_is_written_where_something_is(tmp_path):
    source = write_log(tmp_path / "orders-0", make_log())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_bytes(b"1")
    result = run("salvage", source, "--to", tmp_path / "out")
    assert result.exit_code == 2
    assert "not an empty directory" in result.stderr
    assert os.listdir(tmp_path / "out") == ["precious"]
    for target in (source, source / "inside"):
        result = run("salvage", source, "--to", target)
        assert result.exit_code == 2
        assert "is the directory of a source, or inside it" in result.stderr
    assert sorted(os.listdir(tmp_path)) == ["orders-0", "out"]


def test_an_empty_directory_is_filled(tmp_path):
    source = write_log(tmp_path / "orders-0", make_log())
    (tmp_path / "out").mkdir()
    assert run("salvage", source, "--to", tmp_path / "out").exit_code == 0
    assert os.listdir(tmp_path / "out") == ["orders-0"]


def test_an_error_leaves_nothing_behind(tmp_path, monkeypatch):
    source = write_log(tmp_path / "orders-0", make_log())

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    result = run("salvage", source, "--to", tmp_path / "out")
    assert result.exit_code == 2
    assert os.listdir(tmp_path) == ["orders-0"]


def test_two_logs_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        write_log(tmp_path / folder / "orders-0", make_log())
    result = run("salvage", tmp_path, "--to", tmp_path.parent / "out")
    assert result.exit_code == 2
    assert "two logs have the name orders-0" in result.stderr


def test_the_command_reports_what_is_not_in_the_result(tmp_path):
    log = make_log()
    log[0][2] = change_byte(log[0][2], 70, 1)
    log[50].insert(1, log[50][0])
    source = write_log(tmp_path / "orders-0", log)
    dry = run("salvage", source, "--to", tmp_path / "out", "--dry-run", "--json")
    assert not (tmp_path / "out").exists()
    result = run("salvage", source, "--to", tmp_path / "out", "--json")
    assert dry.exit_code == result.exit_code == 1
    lines = parse_lines(result)
    assert [line["kind"] for line in lines] == [
        "omitted",
        "lost",
        "segment",
        "omitted",
        "segment",
        "summary",
    ]
    assert parse_lines(dry)[:-1] == lines[:-1]
    assert lines[0]["fault"] == "BAD_CHECKSUM"
    assert (lines[0]["first"], lines[0]["last"], lines[0]["records"]) == (20, 29, 10)
    assert (lines[1]["lost_first"], lines[1]["lost_records"]) == (20, 10)
    assert lines[3]["fault"] == "DUPLICATE"
    size = len(log[0][2])
    assert lines[-1] | {"to": ""} == {
        "kind": "summary",
        "to": "",
        "segments": 2,
        "frames": 9,
        "bytes": sum(map(len, flatten(make_log()))) - size,
        "omitted": 2,
        "omitted_bytes": size + len(log[50][0]),
        "lost_records": 10,
        "lost_ranges": 1,
        "bound": "exact",
    }
    text = run("salvage", source, "--to", tmp_path / "other").stdout
    assert "BAD_CHECKSUM" in text
    assert "lost 10 records, offsets 20 to 29" in text
    assert text.endswith("lost: 10 records in 1 range of offsets\n")


def test_a_compressed_copy_is_salvaged(tmp_path):
    import gzip

    log = make_log(segments=1)
    folder = tmp_path / "backup"
    folder.mkdir()
    (folder / "part.log.gz").write_bytes(gzip.compress(b"".join(log[0])))
    result = run("salvage", folder / "part.log.gz", "--to", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert read_batches(tmp_path / "out" / "part") == log[0]


def test_only_outermost_frames_of_logs_are_salvaged(tmp_path):
    source = write_log(tmp_path / "orders-0", make_log())
    result = run("salvage", source, "--to", tmp_path / "out", "--format", "kafka.records")
    assert result.exit_code == 2
    with pytest.raises(ValueError, match="no segments"):
        salvage(str(source / f"{0:020}.log"), tmp_path / "out", format="nats.messages")
    assert format_of("nats.messages").storage.log is None


def test_the_work_on_a_table_does_not_grow_with_the_runs_of_the_log():
    """Each table converted the positions of all runs."""
    count = 200_000
    runs = [Run(0, 2 * i, 2 * i + 1, 2 * i, 2 * i, 1) for i in range(count)]
    kept = log_order.KeptFrames(runs, [True] * count, 1)
    begun = time.process_time()
    for first in range(0, 20_000, 100):
        assert kept.find(0, np.arange(first, first + 100)).tolist() == [True, False] * 50
    assert time.process_time() - begun < SLOWNESS


@pytest.mark.parametrize("change", ["bad", "misplaced"])
def test_the_work_on_a_table_does_not_grow_with_its_damage(change, tmp_path, monkeypatch):
    """The columns of a whole table are computed as often for much damage as for little."""
    computed = record_computed(monkeypatch, "bad", "positions")
    counts = []
    for changed in (2, 40):
        batches = [make_batch(2 * i, 2) for i in range(2 * changed + 1)]
        for i in range(1, len(batches), 2):
            at = len(batches[i]) - 1 if change == "bad" else 0
            batches[i] = change_byte(batches[i], at, 1)
        source = write_log(tmp_path / f"of-{changed}", {0: batches})
        computed.clear()
        report = salvage(source, tmp_path / f"out-{changed}", format="kafka.batches")
        counts.append(len(computed))
        assert len(list_faults(report)) == changed
    assert counts[0] == counts[1]
