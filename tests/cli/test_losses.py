"""`wirescan verify`: the records that a damaged log has lost, and damage in its index files."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.strategies.kafka import correct_checksums
from tests.strategies.kafka_log import indexes
from tests.support.paths import KAFKA_CORPUS
from tests.support.slowness import SLOWNESS
from tests.support.tables import record_computed
from wirescan import kafka
from wirescan.cli.input import read_part
from wirescan.cli.main import main
from wirescan.cli.support import losses
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.files import SEGMENTS
from wirescan.kafka.log.index_files import TIME_ENTRY
from wirescan.kafka.log.side_files import Memory, SegmentIndexes

ORDERS = [0, 1480, 4160, 8160, 12500, 15336, 18101, 20800, 24800]
END = 27708  # offset after the last record of orders-0
HEADER = 61  # bytes of a batch's header
FIRST_TIME = 1_700_000_000_000


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


def verify_json(*arguments: object) -> list[dict]:
    return [json.loads(line) for line in run("--shallow", "--json", *arguments).stdout.splitlines()]


def find_damage(*arguments: object) -> list[dict]:
    return [finding for finding in verify_json(*arguments) if finding["kind"] == "damage"]


def get_lost_offsets(finding: dict) -> tuple[int, int, int]:
    return finding["lost_first"], finding["lost_last"], finding["lost_records"]


def make_batch(first: int, count: int = 10, **options) -> bytes:
    return encode_batch(
        [
            Record(offset=first + i, timestamp=FIRST_TIME + first + i, value=b"value")
            for i in range(count)
        ],
        **options,
    )


def make_file_name(base: int, suffix: str = "log") -> str:
    return f"{base:020}.{suffix}"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A copy of a partition that a broker wrote: nine segments, their indexes and snapshots."""
    return Path(shutil.copytree(KAFKA_CORPUS / "orders-0", tmp_path / "orders-0"))


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KAFKA_CORPUS / "compacted-0", tmp_path / "compacted-0"))


def flip_bit_in_file(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


# --- lost records


def test_a_damaged_batch_loses_the_records_of_its_header(orders):
    rows = kafka.scan(orders / make_file_name(4160)).rows
    third = rows[2]
    flip_bit_in_file(orders / make_file_name(4160), int(third["start"]) + 70)
    (finding,) = find_damage(orders)
    expected = int(third["base_offset"]), int(third["last_offset"]), int(third["record_count"])
    assert finding["fault"] == "BAD_CHECKSUM"
    assert get_lost_offsets(finding) == expected
    (gap,) = [row for row in verify_json(orders) if row["kind"] == "gap"]
    assert get_lost_offsets(gap) == expected
    assert gap["bound"] == "exact"
    assert verify_json(orders)[-1]["lost_records"] == expected[2]
    assert verify_json(orders)[-1]["lost_ranges"] == 1
    text = run("--shallow", orders).stdout
    assert f"lost {expected[2]} records, offsets {expected[0]} to {expected[1]}" in text
    assert text.endswith(f"lost: {expected[2]} records in 1 range of offsets\n")


def test_missing_headers_are_replaced_by_the_offsets_around_them(orders):
    """Garbage replaces the ends of two segments and the starts of the segments after them.

    No header of the lost batches can be read.
    """
    total = 0
    for base, following in ((1480, 4160), (15336, 18101)):
        for number, keep in ((base, slice(None, 2)), (following, slice(1, None))):
            path = orders / make_file_name(number)
            rows, data = kafka.scan(path).rows, path.read_bytes()
            lost_rows = rows[keep.stop :] if keep.start is None else rows[: keep.start]
            total += int(lost_rows["record_count"].sum())
            start, stop = (
                int(lost_rows["start"][0]),
                int(lost_rows["start"][-1]) + int(lost_rows["size"][-1]),
            )
            path.write_bytes(data[:start] + b"\xee" * (stop - start) + data[stop:])
    result = verify_json(orders)
    gaps = [gap for gap in result if gap["kind"] == "gap"]
    assert len(gaps) == 2
    assert sum(gap["lost_records"] for gap in gaps) == total == result[-1]["lost_records"]
    assert result[-1]["lost_ranges"] == 2


def test_damage_at_the_beginning_of_a_log_is_counted_from_the_name_of_its_segment(tmp_path):
    path = tmp_path / make_file_name(100)
    path.write_bytes(b"\xee" * 200 + make_batch(130))
    gaps = [finding for finding in verify_json(path) if finding["kind"] == "gap"]
    assert get_lost_offsets(gaps[0]) == (100, 129, 30)
    other = tmp_path / "x.log"  # the name has no offset, but the header has
    other.write_bytes(make_batch(100)[:-1] + b"?" + make_batch(110))
    assert verify_json(other)[-1]["lost_records"] == 10


def test_records_inside_an_intact_batch_are_counted(tmp_path):
    data = bytearray(make_batch(10, codec="gzip"))
    data[-8] ^= 0xFF  # in the compressed records; the checksum is corrected below
    (tmp_path / "x.log").write_bytes(make_batch(0) + correct_checksums(data) + make_batch(20))
    lines = [json.loads(line) for line in run("--json", tmp_path / "x.log").stdout.splitlines()]
    assert get_lost_offsets(lines[0]) == (10, 19, 10)
    assert lines[-1]["lost_records"] == 10


# --- the end of a log


def test_a_cut_batch_at_the_end_loses_the_records_of_its_header(tmp_path):
    path = tmp_path / make_file_name(0)
    path.write_bytes(make_batch(0) + make_batch(10, 7)[:-5])
    (finding,) = find_damage(path)
    assert finding["fault"] == "SHORT"
    assert get_lost_offsets(finding) == (10, 16, 7)
    assert verify_json(path)[-1]["lost_records"] == 7
    path.write_bytes(make_batch(0) + make_batch(10, 7)[:30])
    assert verify_json(path)[-1]["bound"] == "at least"
    assert "an unknown number of records" in run(path).stdout


@pytest.mark.parametrize("claimed, loses", [(0, False), (1, True)])
def test_a_cut_batch_that_claims_an_offset_before_it_loses_no_known_records(
    tmp_path, claimed, loses
):
    path = tmp_path / make_file_name(0)
    path.write_bytes(make_batch(0, 1) + make_batch(claimed, 1)[:-1])
    (finding,) = find_damage(path)
    assert ("lost_records" in finding) == loses


def test_snapshots_and_indexes_show_the_former_end_of_a_log(orders):
    path = orders / make_file_name(24800)
    rows = kafka.scan(path).rows
    path.write_bytes(
        path.read_bytes()[: int(rows["start"][3])]
    )  # between two batches: the log itself is intact
    end = int(rows["base_offset"][3])
    (short,) = [finding for finding in find_damage(orders) if finding["fault"] == "LOG_TOO_SHORT"]
    assert get_lost_offsets(short) == (end, END - 1, END - end)
    assert short["bound"] == "at least"
    assert make_file_name(END, "snapshot") in short["meaning"]
    (orders / make_file_name(END, "snapshot")).unlink()
    (short,) = [finding for finding in find_damage(orders) if finding["fault"] == "LOG_TOO_SHORT"]
    assert end < short["lost_last"] < END
    assert "index" in short["meaning"]
    assert not find_damage("--log-only", orders)


def test_a_checkpoint_shows_the_former_end_of_a_log(tmp_path):
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / make_file_name(0)).write_bytes(make_batch(0))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 25\n")
    assert get_lost_offsets(find_damage(folder)[0]) == (10, 24, 15)
    assert run(folder).exit_code == 1
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    assert run(folder).exit_code == 0


def test_a_log_that_grows_while_it_is_read_is_not_too_short(tmp_path, monkeypatch):
    folder, checkpoint = tmp_path / "orders-0", tmp_path / "replication-offset-checkpoint"
    folder.mkdir()
    (folder / make_file_name(0)).write_bytes(make_batch(0))
    checkpoint.write_text("0\n1\norders 0 10\n")

    def read_while_growing(*arguments, **options):
        yield from read_part(*arguments, **options)
        checkpoint.write_text("0\n1\norders 0 25\n")

    monkeypatch.setattr("wirescan.cli.support.verifier.read_part", read_while_growing)
    assert run(folder).exit_code == 0
    assert run(folder).exit_code == 1  # now the checkpoint has that offset before the scan


# --- missing segments


def test_a_missing_segment_is_damage(orders):
    for kind in ("log", "index", "timeindex", "snapshot"):
        (orders / make_file_name(8160, kind)).unlink()
    (finding,) = find_damage(orders)
    assert finding["fault"] == "MISSING_SEGMENT"
    assert get_lost_offsets(finding) == (8160, 12499, 4340)
    assert run("--shallow", orders).exit_code == 1
    assert run("--shallow", "--log-only", orders).exit_code == 1


def test_a_misplaced_batch_hides_no_missing_segment(orders):
    for path in orders.glob(make_file_name(4160, "*")):
        path.unlink()
    data = bytearray((orders / make_file_name(20800)).read_bytes())
    at = 0
    for _ in range(9):
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    (first,) = struct.unpack_from(">q", data, at)
    (last_delta,) = struct.unpack_from(">i", data, at + 23)
    data[at + 6] ^= 0x10  # the base offset, which no checksum covers
    (orders / make_file_name(20800)).write_bytes(data)
    findings = verify_json("--log-only", orders)
    faults = [finding["fault"] for finding in findings if finding["kind"] == "damage"]
    assert faults == ["OFFSET_ORDER", "MISSING_SEGMENT"]
    ranges = [get_lost_offsets(finding)[:2] for finding in findings if "lost_first" in finding]
    assert sorted(ranges) == [(4160, 8159), (first, first + last_delta)]


@pytest.mark.parametrize("change", [-10_000, -50, 50, 10_000])
def test_one_misplaced_batch_is_one_finding(tmp_path, change):
    batches = [make_batch(first) for first in range(20_000, 20_400, 10)]
    batches[20] = struct.pack(">q", 20_200 + change) + batches[20][8:]
    path = tmp_path / make_file_name(20_000)
    path.write_bytes(b"".join(batches))
    findings = verify_json(tmp_path)
    faults = [finding["fault"] for finding in findings if finding["kind"] == "damage"]
    assert faults == ["OFFSET_ORDER"]
    ranges = [get_lost_offsets(finding) for finding in findings if "lost_first" in finding]
    assert ranges == [(20_200, 20_209, 10)]


@pytest.mark.parametrize("offsets", [(-(2**63), -(2**63)), (-(2**63), 5, 4)])
def test_a_batch_with_the_smallest_offset_is_followed(tmp_path, offsets):
    path = tmp_path / make_file_name(0)
    batch = encode_batch([b""])
    path.write_bytes(
        b"".join(offset.to_bytes(8, "big", signed=True) + batch[8:] for offset in offsets)
    )
    result = run(path)
    assert result.exit_code == 1, result.exception
    assert "OFFSET_ORDER" in result.stdout


def test_a_first_segment_without_a_batch_is_missing(orders):
    (orders / make_file_name(0)).write_bytes(b"")
    (finding,) = find_damage("--log-only", orders)
    assert (finding["fault"], get_lost_offsets(finding)) == ("MISSING_SEGMENT", (0, 1479, 1480))


def test_an_emptied_time_index_is_reported(orders):
    (orders / make_file_name(4160, "timeindex")).write_bytes(b"")
    (finding,) = find_damage(orders)
    assert "no entry" in finding["meaning"]
    assert finding["file"].endswith(make_file_name(4160, "timeindex"))


def test_segments_that_were_not_named_are_not_missing(orders):
    assert (
        run("--shallow", orders / make_file_name(4160), orders / make_file_name(12500)).exit_code
        == 0
    )


def test_a_segment_without_its_log_file_is_missing(orders):
    (orders / make_file_name(8160)).unlink()
    (finding,) = find_damage(orders)
    assert get_lost_offsets(finding) == (8160, 12499, 4340)
    assert make_file_name(8160, "index") in finding["meaning"]
    (orders / make_file_name(24800)).unlink()  # the newest
    assert verify_json(orders)[-1]["lost_records"] == 4340 + END - 24800
    (orders / make_file_name(0)).unlink()  # the oldest
    assert verify_json(orders)[-1]["lost_records"] == 1480 + 4340 + END - 24800


def test_compaction_explains_a_gap_between_segments(compacted):
    path = compacted / make_file_name(7702)
    rows = kafka.scan(path).rows
    last = len(rows) - 1
    path.write_bytes(path.read_bytes()[: int(rows["start"][last])])
    for finding in compacted.glob("*index"):
        finding.unlink()
    assert run("--shallow", "--log-only", compacted).exit_code == 0
    findings = verify_json("--log-only", compacted)
    gaps = [finding for finding in findings if finding["kind"] == "gap"]
    assert any(gap["last"] == 8122 for gap in gaps)


# --- the files beside a segment


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex", "snapshot"])
@pytest.mark.parametrize("harm", ["cut", "flipped", "missing"])
def test_the_files_beside_a_segment_are_verified(orders, kind, harm):
    path = orders / make_file_name(24800, kind)
    if harm == "missing":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        # In a producer id, a position, a time or a checksum.
        flip_bit_in_file(path, 10 if kind == "txnindex" else 7)
    findings = find_damage(orders)
    assert {finding["file"] for finding in findings} == {str(path)}, findings
    assert run("--shallow", orders).exit_code == 1
    assert run("--shallow", "--log-only", orders).exit_code == 0


def test_an_index_without_entries_for_a_large_segment(tmp_path):
    batches = [encode_batch([bytes(100_000)], base_offset=i) for i in range(30)]
    (tmp_path / make_file_name(0)).write_bytes(b"".join(batches))
    assert not find_damage(tmp_path)  # a copy of the segments has no index files
    entries = struct.pack(
        ">60i", *(number for i in range(30) for number in (i, i * len(batches[0])))
    )[8:]
    (tmp_path / make_file_name(0, "index")).write_bytes(entries + bytes(800))
    assert not find_damage(tmp_path)  # the newest index is preallocated
    for size in (0, 8, 16):
        (tmp_path / make_file_name(0, "index")).write_bytes(entries[:size] + bytes(800))
        (finding,) = find_damage(tmp_path)
        assert (finding["offset"], finding["size"]) == (size, 800)
        assert "no entry" in finding["meaning"]


def test_an_index_with_zeros_that_is_not_the_newest(orders):
    path = orders / make_file_name(8160, "index")
    path.write_bytes(bytes(path.stat().st_size))
    (finding,) = find_damage(orders)
    assert finding["file"] == str(path)
    assert "zeros" in finding["meaning"]


@pytest.mark.parametrize("log", sorted(KAFKA_CORPUS.glob("*-0")), ids=lambda log: log.name)
def test_the_index_files_of_a_broker_are_clean(log):
    findings = find_damage(log)
    assert [finding for finding in findings if finding["file"].endswith("index")] == []


@pytest.mark.parametrize("base", ORDERS)
def test_a_time_index_that_is_cut_between_two_entries(orders, base):
    """A time index of the newest segment has no entry for its last batches, so it may be short."""
    path = orders / make_file_name(base, "timeindex")
    entries = path.stat().st_size // 12
    largest = int(kafka.scan(orders / make_file_name(base))["max_timestamp"].max())
    for kept in range(1, entries):
        os.truncate(path, 12 * kept)
        findings = find_damage(orders)
        if base == ORDERS[-1]:
            assert not findings
            continue
        (finding,) = findings
        assert (finding["fault"], finding["file"]) == ("INDEX_MISMATCH", str(path))
        assert finding["offset"] == 12 * kept
        assert f"the largest timestamp of the segment is {largest}" in finding["meaning"]
        shutil.copy(KAFKA_CORPUS / "orders-0" / path.name, path)


def test_a_time_index_with_zeros_was_not_closed(orders):
    path = orders / make_file_name(1480, "timeindex")
    path.write_bytes(path.read_bytes()[:24] + bytes(24))
    assert not find_damage(orders)


def test_a_time_index_ends_with_a_timestamp_of_its_segment(orders):
    path = orders / make_file_name(1480, "timeindex")
    *_, (timestamp, offset) = struct.iter_unpack(">qi", path.read_bytes())
    with open(path, "ab") as file:
        file.write(struct.pack(">qi", timestamp + 1, 1 << 30))  # no batch has this offset
    (finding,) = find_damage(orders)
    assert (finding["offset"], finding["size"]) == (48, 12)
    assert f"no batch of the segment has the timestamp {timestamp + 1}" in finding["meaning"]
    path.write_bytes(path.read_bytes()[:-24] + struct.pack(">qi", timestamp + 1, offset))
    (finding,) = find_damage(orders)
    assert "has another time" in finding["meaning"]
    # The batch with the last timestamp of the index is damaged.
    shutil.copy(KAFKA_CORPUS / "orders-0" / path.name, path)
    rows = kafka.scan(orders / make_file_name(1480)).rows
    latest = rows[rows["max_timestamp"] == timestamp]
    for start in latest["start"].tolist():
        flip_bit_in_file(orders / make_file_name(1480), start + 70)
    assert {finding["fault"] for finding in find_damage(orders)} == {"BAD_CHECKSUM"}


def test_a_segment_without_times_has_no_entry_of_time(tmp_path):
    batches = [
        kafka.encode_message_set([Record(offset=i, timestamp=None, value=b"value")], magic=0)
        for i in range(20)
    ]
    (tmp_path / make_file_name(0)).write_bytes(b"".join(batches[:10]))
    (tmp_path / make_file_name(10)).write_bytes(b"".join(batches[10:]))
    for base in (0, 10):
        (tmp_path / make_file_name(base, "index")).write_bytes(b"")
        (tmp_path / make_file_name(base, "timeindex")).write_bytes(b"")
    assert not find_damage(tmp_path)


def test_an_index_that_lags_behind_the_time_index(tmp_path, monkeypatch):
    """A broker adds an entry of offset with each entry of time, unless it stops there."""
    interval = "wirescan.kafka.log.side_files.INDEX_INTERVAL"
    for base in (0, 1000):
        batches = [make_batch(first) for first in range(base, base + 1000, 10)]
        index, times = indexes(base, batches, interval=0, appended=1, closed=base == 0)
        (tmp_path / make_file_name(base)).write_bytes(b"".join(batches))
        (tmp_path / make_file_name(base, "index")).write_bytes(index)
        (tmp_path / make_file_name(base, "timeindex")).write_bytes(times)
    assert not find_damage(tmp_path)
    os.truncate(tmp_path / make_file_name(1000, "index"), 8)  # the newest segment
    assert not find_damage(tmp_path)
    path = tmp_path / make_file_name(0, "index")
    entries = path.read_bytes()
    assert len(entries) == 8 * 99
    path.write_bytes(entries[: 8 * (99 - 32)])
    assert not find_damage(tmp_path)
    for kept in (99 - 33, 1, 0):
        path.write_bytes(entries[: 8 * kept])
        with monkeypatch.context() as patch:
            patch.setattr(interval, len(make_batch(0)) + 100)
            # A broker that stops after each batch adds an entry of time each time.
            assert not find_damage(tmp_path)
            patch.setattr(interval, len(make_batch(0)) - 100)
            (finding,) = find_damage(tmp_path)
        assert (finding["file"], finding["offset"]) == (str(path), 8 * kept)
        assert f"has {99 - kept} entries after the last entry" in finding["meaning"]


def test_an_index_at_the_end_of_a_log_gives_a_lower_bound(orders):
    (orders / make_file_name(END, "snapshot")).unlink()
    (orders / make_file_name(24800)).unlink()
    summary = verify_json(orders)[-1]
    assert 0 < summary["lost_records"] <= END - 24800
    assert summary["bound"] == "at least"
    # The index of an older segment has an offset that the log never had.
    flip_bit_in_file(orders / make_file_name(1480, "timeindex"), 45)
    assert verify_json(orders)[-1]["lost_records"] == summary["lost_records"]


def test_an_index_that_points_elsewhere(tmp_path):
    def find_mismatches():
        return [(finding["fault"], finding["offset"]) for finding in find_damage(tmp_path)]

    size = len(make_batch(0))
    (tmp_path / make_file_name(0)).write_bytes(b"".join(make_batch(10 * i) for i in range(9)))
    (tmp_path / make_file_name(0, "index")).write_bytes(
        struct.pack(">iiii", 29, 2 * size, 59, 5 * size)
    )
    assert not find_damage(tmp_path)
    (tmp_path / make_file_name(0, "index")).write_bytes(
        struct.pack(">iiii", 29, 2 * size + 1, 59, 5 * size)
    )
    assert find_mismatches() == [("INDEX_MISMATCH", 0)]
    assert find_damage(tmp_path)[0]["size"] == 8
    (tmp_path / make_file_name(0, "index")).write_bytes(
        struct.pack(">iiii", 29, 2 * size, 59, 50 * size)
    )
    assert find_mismatches() == [("INDEX_MISMATCH", 8)]
    # An offset inside the batch is wrong. The offset of a later batch before the next entry is
    # right: old brokers write such entries.
    for offset, count in ((28, 1), (40, 0)):
        (tmp_path / make_file_name(0, "index")).write_bytes(
            struct.pack(">iiii", offset, 2 * size, 59, 5 * size)
        )
        assert [fault for fault, _ in find_mismatches()] == ["INDEX_MISMATCH"] * count
    (tmp_path / make_file_name(0, "index")).write_bytes(
        struct.pack(">iiii", 59, 2 * size, 69, 5 * size)
    )
    assert find_mismatches() == [("INDEX_MISMATCH", 0)]
    (tmp_path / make_file_name(0, "index")).unlink()
    (tmp_path / make_file_name(0, "timeindex")).write_bytes(
        struct.pack(">qiqi", FIRST_TIME + 9, 9, FIRST_TIME + 30, 39)
    )
    mismatches = [pair for pair in find_mismatches() if pair[0] != "MISSING_FILE"]
    assert mismatches == [("INDEX_MISMATCH", 12)]


def test_an_unreadable_index_does_not_hide_the_log(orders):
    (orders / make_file_name(8160, "index")).unlink()
    (orders / make_file_name(8160, "index")).mkdir()
    flip_bit_in_file(orders / make_file_name(8160), 100)
    result = run("--shallow", "--json", orders)
    assert result.exit_code == 2
    assert make_file_name(8160, "index") in result.stderr
    assert "BAD_CHECKSUM" in result.stdout
    assert '"kind":"summary"' in result.stdout


def test_stat_counts_no_records_where_none_can_be_read(tmp_path):
    batch = bytearray(encode_batch([b"one", b"two"]))
    batch[61] = 0x7F  # the length of the first record
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(batch)
    result = CliRunner().invoke(main, ["stat", str(path), "--deep", "--json", "--no-check"])
    total = json.loads(result.stdout)["total"]
    assert total["records"] == 0
    assert total["records_at_least"] == 0


def test_records_at_time_zero_need_no_entry_that_differs_from_unused_space(tmp_path):
    for base in (0, 10):
        batch = encode_batch([Record(offset=base + i, timestamp=0, value=b"v") for i in range(10)])
        (tmp_path / make_file_name(base)).write_bytes(batch)
        (tmp_path / make_file_name(base, "index")).write_bytes(b"")
        (tmp_path / make_file_name(base, "timeindex")).write_bytes(struct.pack(">qi", 0, 0))
    assert not find_damage(tmp_path)


def test_names_of_the_files_of_a_log_in_a_store(monkeypatch):
    asked = []

    def list_names(url):
        asked.append(url)
        return [f"{7:020}.log", f"{7:020}.index", "other"]

    monkeypatch.setattr(losses, "list_names", list_names)
    log = losses.LogLosses("s3://b/orders-0/", SEGMENTS, None, "?region=eu")
    assert log.bases == [7]
    assert len(log.names) == 3
    assert asked == ["s3://b/orders-0?region=eu"]
    assert losses.LogLosses("s3://b/orders-0/copy-of-", SEGMENTS).names is None


def test_a_store_that_lists_no_directory(monkeypatch):
    def refuse(url):
        raise PermissionError(13, "access is denied", url)

    monkeypatch.setattr(losses, "list_names", refuse)
    log = losses.LogLosses("s3://b/orders-0/", SEGMENTS)
    assert (log.names, log.bases) == (None, None)


def damage_at_random(seed):
    """Return a log with bad batches, misplaced batches and gaps."""
    random = Random(seed)
    log = []
    offset = 0
    for _ in range(60):
        batch = bytearray(make_batch(offset, 2))
        offset += 2
        offset += random.choice([0, 0, 0, 5])
        batch[-1] ^= random.random() < 0.3
        if random.random() < 0.1:
            batch[:8] = (3).to_bytes(8, "big")
        log.append(batch)
    return b"".join(map(bytes, log))


@pytest.mark.parametrize("seed", range(20))
def test_only_damage_beside_a_gap_makes_it_a_loss(seed, tmp_path):
    path = tmp_path / make_file_name(0)
    path.write_bytes(damage_at_random(seed))
    lines = verify_json(path)
    damaged = {line["offset"] for line in lines if line["kind"] == "damage"}
    batches = kafka.scan(path, errors="mark")
    rows = {position: row for row, position in enumerate(batches.positions.tolist())}
    gaps = [line for line in lines if line["kind"] == "gap"]
    assert gaps
    for gap in gaps:
        row = rows[gap["offset"]]
        previous = max((i for i in range(row) if not batches.bad[i]), default=-1)
        near = batches.positions[max(previous, 0) : row + 1].tolist()
        assert ("lost_records" in gap) == bool(damaged & set(near))


@pytest.mark.parametrize("change", ["bad", "misplaced", "gap"])
def test_the_work_on_a_table_does_not_grow_with_its_damage(change, tmp_path, monkeypatch):
    """The columns of a whole table are computed as often for much damage as for little."""
    path = tmp_path / make_file_name(0)
    computed = record_computed(monkeypatch, "bad", "positions")
    counts = []
    for changed in (2, 40):
        batches = [bytearray(make_batch(2 * i, 1 if change == "gap" else 2)) for i in range(99)]
        for batch in batches[1 : 2 * changed : 2]:
            if change == "bad":
                batch[-1] ^= 1
            elif change == "misplaced":
                batch[:8] = bytes(8)
        path.write_bytes(b"".join(map(bytes, batches[: 2 * changed + 1])))
        computed.clear()
        assert len(verify_json(path)) > changed
        counts.append(len(computed))
    assert counts[0] == counts[1]


def test_the_work_on_a_table_does_not_grow_with_the_rest_of_the_log(tmp_path):
    """Neither entries of other batches nor transactions of other producers are work."""
    entries = 400_000
    producers = 12_000
    times = np.empty(entries, TIME_ENTRY)
    times["timestamp"] = FIRST_TIME + producers + np.arange(entries)
    times["offset"] = producers + np.arange(entries)
    path = tmp_path / make_file_name(0)
    path.with_suffix(".timeindex").write_bytes(times.tobytes())
    batches = [
        make_batch(i, 1, transactional=True, producer_id=i, producer_epoch=0, base_sequence=0)
        for i in range(producers)
    ]
    table = kafka.scan(b"".join(batches))
    log = SimpleNamespace(names=None, bases=None, verified=[0], memory=Memory())
    check = SegmentIndexes(str(path), log)
    assert list(check.check_frames(table[:-1000])) == []
    begun = time.process_time()
    for row in range(producers - 1000, producers):
        assert list(check.check_frames(table[row : row + 1])) == []
    assert time.process_time() - begun < SLOWNESS
    assert len(log.memory.first_offsets) == producers


def test_the_work_on_a_segment_does_not_grow_with_the_number_of_segments(tmp_path):
    """Each segment without an index searched the names of all files of its directory."""
    count = 20_000
    log = SimpleNamespace(
        names=[make_file_name(base) for base in range(count)],
        bases=list(range(count)),
        verified=[],
        memory=Memory(),
    )
    begun = time.process_time()
    for base in range(1000):
        log.verified.append(base)
        assert list(SegmentIndexes(str(tmp_path / make_file_name(base)), log).end()) == []
    assert time.process_time() - begun < SLOWNESS


def test_what_many_intact_batches_have_lost_is_found_in_one_pass(monkeypatch):
    """Each batch has a damaged record, which hides the ones after it.

    The column `bad` is computed as often for many batches as for few.
    """
    computed = record_computed(monkeypatch, "bad")
    counts = []
    for batch_count in (3, 60):
        log = []
        for i in range(batch_count):
            batch = bytearray(make_batch(10 * i))
            record_size = (len(batch) - HEADER) // 10
            batch[HEADER + i % 10 * record_size] = 0  # the length of a record
            log.append(correct_checksums(batch))
        batches = kafka.scan(b"".join(log))
        records = kafka.records(batches, errors="mark")
        bad = np.flatnonzero(records.bad)
        computed.clear()
        found = losses.find_lost_records(records, bad, batches)
        counts.append(len(computed))
        assert list(found.values()) == [
            losses.Lost(10 * i + i % 10, 10 * i + 9, 10 - i % 10) for i in range(batch_count)
        ]
    assert counts[0] == counts[1]
