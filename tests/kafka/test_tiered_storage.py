"""Directories of tiered storage (KIP-405): wirescan reads them like the partition they are from."""

import base64
import json
import re
import shutil
import uuid
from pathlib import Path

import numpy as np
import pytest

import wirescan
from tests.peers.canonical import digest
from tests.support.canonical_records import list_canonical_records
from tests.support.command import run
from tests.support.paths import ORDERS, TIERED_STORAGE
from wirescan import kafka
from wirescan.frames.logs import SegmentName
from wirescan.frames.registry import format_of
from wirescan.kafka import PartitionLog, Record, encode_batch
from wirescan.kafka.files import SEGMENTS, find_boundaries, is_tiered, read_partition, read_topic
from wirescan.reading.filters import check_filters, prune_file

TOPIC_ID = "XprrI0G0RYqfRBYQZua88g"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
ENDINGS = ("log", "index", "timeindex", "txnindex")


def make_id(number):
    """Return a segment id as brokers write it: 16 bytes in base64."""
    text = base64.urlsafe_b64encode(uuid.UUID(int=number << 64 | 0xF8).bytes)
    return text.decode().rstrip("=")


def store(source: Path, target: Path) -> Path:
    """Copy a partition's directory as a broker copies its closed segments to tiered storage."""
    directory = target / f"{source.name}-{TOPIC_ID}"
    directory.mkdir(parents=True)
    bases = [int(path.stem) for path in sorted(source.glob("*.log"))]
    for number, base in enumerate(bases):
        stem = f"{base:020}-{make_id(number)}"
        for ending in ENDINGS:
            file = source / f"{base:020}.{ending}"
            if file.exists():
                shutil.copy(file, directory / f"{stem}.{ending}")
        following = [*bases[number + 1 :], 27708][0]
        shutil.copy(source / f"{following:020}.snapshot", directory / f"{stem}.snapshot")
        epochs = directory / f"{stem}.leader_epoch_checkpoint"
        shutil.copy(source / "leader-epoch-checkpoint", epochs)
    return directory


@pytest.fixture
def tiered(tmp_path):
    """The partition `ORDERS` in tiered storage."""
    return store(ORDERS, tmp_path / "kafka-tiered-storage")


def find_segment(directory, base, ending="log"):
    (path,) = directory.glob(f"{base:020}-*.{ending}")
    return path


def copy_segment(directory, base, size=None):
    """Copy a segment and its files under another id, as a second upload does."""
    for ending in (*ENDINGS, "snapshot", "leader_epoch_checkpoint"):
        for path in list(directory.glob(f"{base:020}-*.{ending}")):
            copied = directory / f"{base:020}-{OTHER_ID}.{ending}"
            copied.write_bytes(path.read_bytes()[: size if ending == "log" else None])
    return directory / f"{base:020}-{OTHER_ID}.log"


def list_rows(records):
    headers = kafka.headers(records)
    return [
        *zip(records["offset"].tolist(), records["timestamp"].tolist()),
        records["key"].to_pylist(),
        records["value"].to_pylist(),
        headers["key"].to_pylist(),
        headers["value"].to_pylist(),
    ]


def test_names_of_segments():
    name = f"a/00000000000000000007-{OTHER_ID}.log"
    assert SEGMENTS.parse(name) == SegmentName("a/", 7, f"-{OTHER_ID}")
    assert is_tiered(name)
    assert not is_tiered("a/00000000000000000007.log")
    url = f"s3://b/a/00000000000000000007-{OTHER_ID}.log?region=eu&x=a.log"
    options = "?region=eu&x=a.log"
    assert SEGMENTS.parse(url) == SegmentName("s3://b/a/", 7, f"-{OTHER_ID}", options)
    assert SEGMENTS.parse(name + "?region=eu") is None
    # 16 bytes in base64 end with one of A, Q, g and w. So this is a segment with a prefix.
    plain = "00000000000000000007-aa00000000000000000008.log"
    assert SEGMENTS.parse(plain) == SegmentName("00000000000000000007-aa", 8, "")
    for other in ("", "-", "-short", f"-{OTHER_ID}A", f"{OTHER_ID}-", f"-{OTHER_ID[:-1]}B"):
        assert SEGMENTS.parse(f"00000000000000000007{other}.log") in (
            None,
            SegmentName("", 7, ""),
        ), other


@pytest.mark.parametrize(
    ("directory", "topic", "partition"),
    [
        (f"orders-0-{TOPIC_ID}", "orders", 0),
        ("a-1-b-12-_-rrI0G0RYqfRB-5-ua88g", "a-1-b", 12),
        (f"orders-0-{TOPIC_ID}x", None, None),
        (f"orders-{TOPIC_ID}", None, None),
        ("orders-0-aaaaaaaaaaaaaaaaaaaa-3", "orders-0-aaaaaaaaaaaaaaaaaaaa", 3),
    ],
)
def test_the_directory_names_topic_and_partition(directory, topic, partition):
    path = f"/store/{directory}/00000000000000000000-{OTHER_ID}.log"
    assert (read_topic(path), read_partition(path)) == (topic, partition)


def test_records_are_those_of_the_partition(tiered):
    expected = list_rows(kafka.records(kafka.open_log(ORDERS)))
    assert list_rows(kafka.records(kafka.open_log(tiered))) == expected
    assert list_rows(kafka.records(kafka.open_log(tiered.parent))) == expected
    assert list_rows(wirescan.scan(tiered, "kafka.records")) == expected


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_records_are_those_of_a_consumer(isolation):
    """A consumer read them through the broker that wrote the corpus."""
    expected = json.loads((TIERED_STORAGE / "expected.json").read_text())[isolation]
    (directory,) = TIERED_STORAGE.glob("orders-0-*")
    batches = kafka.open_log(directory, isolation=isolation)
    records = kafka.records(batches)
    records = records.where(batches["is_control"][records["parent"]] == 0)
    assert len(records) == expected["records"]
    assert digest(list_canonical_records(records)) == expected["sha256"]


def test_a_directory_of_a_broker_is_whole():
    (directory,) = TIERED_STORAGE.glob("orders-0-*")
    result = run("verify", directory)
    assert result.exit_code == 0, result.output
    assert "6 files, 31 frames, 605 records, 61,941 bytes: clean" in result.output


def test_ranges_and_times_are_those_of_the_partition(tiered):
    log, original = PartitionLog(tiered), PartitionLog(ORDERS)
    assert (log.topic, log.partition) == ("orders", 0)
    for start, stop in ((0, 10), (1400, 1500), (20_000, 26_000), (27_000, None)):
        ours, theirs = log.read(start, stop), original.read(start, stop)
        assert (ours["base_offset"] == theirs["base_offset"]).all()
        assert (kafka.records(ours)["offset"] == kafka.records(theirs)["offset"]).all()
    for time in kafka.records(original.read())["timestamp"][::999].tolist():
        assert log.find_offset(time) == original.find_offset(time)
    for ours, theirs in zip(log.segments, original.segments, strict=True):
        assert (ours.read_offset_index() == theirs.read_offset_index()).all()
        assert (ours.read_time_index() == theirs.read_time_index()).all()
        assert (ours.read_transaction_index() == theirs.read_transaction_index()).all()
    assert (log.read_leader_epochs() == original.read_leader_epochs()).all()


def test_committed_records_are_those_of_the_partition(tiered):
    for until in (None, 27_000):
        ours = kafka.records(kafka.open_log(tiered, isolation="read_committed", stop=until))
        theirs = kafka.records(kafka.open_log(ORDERS, isolation="read_committed", stop=until))
        assert (ours["offset"] == theirs["offset"]).all()


def test_a_snapshot_is_for_the_end_of_its_segment(tmp_path):
    """Of the open transactions, the newest snapshot states those before the last segment."""
    directory = tmp_path / f"t-0-{TOPIC_ID}"
    directory.mkdir()
    options = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    for base in (0, 1, 2):
        batch = encode_batch([Record(base, value=b"v")], base_sequence=base, **options)
        (directory / f"{base:020}-{make_id(base)}.log").write_bytes(batch)
    log = PartitionLog(directory)
    assert log.find_last_stable_offset() == 0
    # A snapshot without open transactions: the transaction has ended by then.
    snapshot = find_segment(directory, 1).with_suffix(".snapshot")
    shutil.copy(ORDERS / f"{1480:020}.snapshot", snapshot)
    assert log.find_last_stable_offset() == 2


def test_indexes_prune_and_cut(tiered):
    segment = find_segment(tiered, 20800)
    original = ORDERS / f"{20800:020}.log"
    format = format_of("kafka.records")
    newest = ("timestamp", ">=", 1_700_000_000_000)
    for where in ([("offset", ">=", 22_000), ("offset", "<", 23_000)], [newest]):
        filters = check_filters(where, format)
        bounds = prune_file(str(segment), format, filters)
        assert bounds == prune_file(str(original), format, filters)
    filters = check_filters([("offset", "==", 22_000)], format)
    assert prune_file(str(segment), format, filters)[0] > 0
    cuts = find_boundaries(str(segment), 50_000)
    assert cuts == find_boundaries(str(original), 50_000)
    assert len(cuts) > 3


def test_a_range_reads_only_its_segments(tiered):
    expected = list_rows(kafka.records(kafka.open_log(ORDERS, start=13_000, stop=16_000)))
    for path in tiered.glob("*.log"):
        if int(path.name[:20]) not in (12_500, 15_336):
            path.write_bytes(b"x" * path.stat().st_size)
    records = kafka.records(kafka.open_log(tiered, start=13_000, stop=16_000))
    assert list_rows(records) == expected


@pytest.mark.parametrize("size", [None, 100_000])
def test_a_segment_that_was_copied_twice_is_read_once(tiered, size):
    """The second file is a whole copy, or what an upload that failed has left."""
    copied = copy_segment(tiered, 4160, size)
    batches = kafka.open_log(tiered)
    assert (batches["base_offset"] == kafka.open_log(ORDERS)["base_offset"]).all()
    assert len(kafka.records(kafka.open_log(tiered, start=4000, stop=5000))) == 1000
    log = PartitionLog(tiered)
    assert len(log.segments) == 9
    assert (str(copied) in [segment.path for segment in log.segments]) == (size is None)
    # Other functions read each file.
    assert len(kafka.scan(tiered, errors="skip")) > len(batches)


def test_only_the_newest_segment_may_be_torn(tiered):
    copied = copy_segment(tiered, 24800, 100_000)
    log = PartitionLog(tiered)
    assert [segment.newest for segment in log.segments] == [False] * 8 + [True]
    assert log.segments[-1].path != str(copied)


def test_overlapping_segments_give_each_batch_once(tiered):
    """A new leader's segment begins with the batches that end the segment of the old leader."""
    segment = find_segment(tiered, 4160)
    batches = kafka.scan(find_segment(tiered, 1480))
    overlap = batches[-4:]
    base = int(overlap["base_offset"][0])
    data = b"".join(bytes(overlap.frame(row)) for row in range(4)) + segment.read_bytes()
    for path in tiered.glob(f"{4160:020}-*"):
        path.unlink()
    (tiered / f"{base:020}-{make_id(99)}.log").write_bytes(data)
    expected = kafka.open_log(ORDERS)["base_offset"]
    for read in (kafka.open_log(tiered), PartitionLog(tiered).read()):
        assert (read["base_offset"] == expected).all()
    part = kafka.records(kafka.open_log(tiered, start=4000, stop=4500))
    assert part["offset"].tolist() == list(range(4000, 4500))


def test_batches_of_other_partitions_are_no_copies(tmp_path):
    for number in (0, 1):
        directory = tmp_path / f"t-{number}-{TOPIC_ID}"
        directory.mkdir()
        batch = encode_batch([Record(0, value=b"v")])
        (directory / f"{0:020}-{make_id(number)}.log").write_bytes(batch)
    assert len(kafka.open_log(tmp_path)) == 2


def test_batches_with_other_content_are_no_copies(tmp_path):
    """Two leaders may have had different records at one offset. Both are reported."""
    directory = tmp_path / f"t-0-{TOPIC_ID}"
    directory.mkdir()
    old, new = (encode_batch([Record(1, value=value)]) for value in (b"old", b"new"))
    (directory / f"{0:020}-{make_id(0)}.log").write_bytes(encode_batch([Record(0)]) + old)
    (directory / f"{1:020}-{make_id(1)}.log").write_bytes(new)
    assert kafka.records(kafka.open_log(directory))["value"].to_pylist() == [None, b"old", b"new"]


def test_verify_checks_the_files_beside_segments(tiered):
    result = run("verify", tiered)
    assert result.exit_code == 0, result.output
    assert "9 files, 284 frames, 27,708 records" in result.output
    snapshot = find_segment(tiered, 15336, "snapshot")
    data = bytearray(snapshot.read_bytes())
    data[20] ^= 1
    snapshot.write_bytes(data)
    index = find_segment(tiered, 18101, "index")
    index.write_bytes(index.read_bytes()[:8] * 2)
    find_segment(tiered, 20800).unlink()
    output = run("verify", tiered).output
    assert f"{snapshot.name}: " in output and "BAD_CHECKSUM" in output
    assert f"{index.name}: " in output and "NOT_A_FRAME" in output
    assert re.search(r"MISSING_SEGMENT.*20800-\S+\.index exists", output), output


def test_verify_names_the_segment_that_ends_the_log(tiered):
    segment = find_segment(tiered, 24800)
    shutil.copy(ORDERS / f"{27708:020}.snapshot", tiered)
    last = kafka.scan(segment)[-1]
    segment.write_bytes(segment.read_bytes()[: int(last.start)])
    output = run("verify", tiered).output
    assert f"{segment.name}: LOG_TOO_SHORT" in output, output


def test_salvage_writes_a_partition_without_copies(tiered, tmp_path):
    copy_segment(tiered, 4160, 100_000)
    assert "OFFSET_ORDER" in run("verify", tiered).output
    assert run("salvage", tiered, "--to", tmp_path / "out").exit_code == 1
    directory = tmp_path / "out" / tiered.name
    assert run("verify", directory).exit_code == 0
    rows = kafka.scan(directory).rows
    assert np.array_equal(rows["base_offset"], kafka.scan(ORDERS).rows["base_offset"])


def test_topics_lists_the_partitions(tiered):
    output = run("topics", tiered.parent).output
    assert re.search(r"^orders +1 +9 .* 27,708 ", output, re.M), output


def test_columns_of_files(tiered):
    columns = ["--columns", "topic,partition,offset"]
    where = ["--where", "offset == 22000"]
    result = run("scan", tiered, "--format", "kafka.records", *where, *columns)
    assert result.output.split()[-3:] == ["orders", "0", "22000"]
