"""Segments of OSO's kafka-backup: real ones, and damaged and hostile ones made by hand."""

import json
import struct

import pyarrow
import pytest

import wirescan
from tests.peers.canonical import digest
from tests.support.kbak_records import encode_record, encode_segment, list_backup_records
from tests.support.paths import CORPUS
from wirescan import Fault, FrameError, Limits
from wirescan.export.batches import iter_batches
from wirescan.kafka.backups.kbak_files import read_backup_partition, read_backup_topic
from wirescan.kafka.backups.kbak_scan import bytes_needed
from wirescan.testing import check_format

BACKUPS = CORPUS / "kafka-backup"
EXPECTED = json.loads((BACKUPS / "expected.json").read_text())
COMPRESSIONS = ("none", "zstd", "lz4")
PATHS = {name: next((BACKUPS / name).rglob("segment-*")) for name in COMPRESSIONS}
SEGMENTS = {name: path.read_bytes() for name, path in PATHS.items()}


GOOD = encode_segment(encode_record(5, b"k", None, [(b"a", b""), (b"", None)]), 1, offsets=(5, 5))


def scan(source, level="records", **options):
    return wirescan.scan(source, f"kafka.kbak_{level}", **options)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_are_those_that_a_consumer_read(compression):
    records = list_backup_records(scan(BACKUPS / compression))
    assert {"records": len(records), "sha256": digest(records)} == EXPECTED


def test_the_header_of_a_segment_is_in_its_row():
    segments = scan(BACKUPS / "zstd", "segments")
    row = segments.rows[0]
    assert len(segments) == 1
    assert (row["base_offset"], row["last_offset"], row["record_count"]) == (0, 239, 240)
    assert (row["version"], row["codec"], row["size"]) == (1, 1, len(SEGMENTS["zstd"]))


def test_nulls_and_empty_values_are_different():
    (record,) = list_backup_records(scan(GOOD))
    assert record == (5, 7, b"k", None, ((b"a", b""), (b"", None)))


def test_an_export_has_the_same_rows_and_the_path_columns():
    names = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    tables = [
        pyarrow.Table.from_batches(
            iter_batches(str(PATHS[name]), format="kafka.kbak_records", columns=names)
        )
        for name in COMPRESSIONS
    ]
    assert tables[0].num_rows == EXPECTED["records"]
    assert set(tables[0]["topic"].to_pylist()) == {"orders"}
    assert set(tables[0]["partition"].to_pylist()) == {0}
    assert tables[0].to_pylist() == tables[1].to_pylist() == tables[2].to_pylist()


def test_the_path_of_a_segment_names_its_topic_and_partition():
    path = "s3://backups/daily/topics/a.b-c/partition=12/segment-00000000000000000000.bin.zst"
    assert (read_backup_topic(path), read_backup_partition(path)) == ("a.b-c", 12)
    for other in ("partition=1/segment.bin", "x/topics/t/partition=4294967296/segment.bin"):
        assert read_backup_topic(other) is None
        assert read_backup_partition(other) is None


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_detect_recognizes_the_bytes(name):
    for source in (SEGMENTS[name], BACKUPS / name):
        first = wirescan.detect(source)[0]
        assert (first.verdict, first.format) == ("certain", "kafka.kbak_segments")


@pytest.mark.parametrize("size", [1, 3, 40, 1000])
@pytest.mark.parametrize("name", COMPRESSIONS)
def test_chunks_change_nothing(name, size):
    raw = GOOD + SEGMENTS[name] + GOOD
    whole = scan(raw, "segments")
    stream = wirescan.stream("kafka.kbak_segments")
    tables = [stream.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    tables.append(stream.close())
    assert [row for table in tables for row in table["record_count"].tolist()] == [1, 240, 1]
    assert whole["record_count"].tolist() == [1, 240, 1]


def test_a_search_for_the_footer_continues_where_it_ended():
    raw = encode_segment(b"BKAE" * 100, 1)
    state = ()
    for size in range(len(raw)):
        needed, *state = bytes_needed(raw[:size], *state)
        assert size < needed <= len(raw)
    assert bytes_needed(raw, *state)[0] == len(raw)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_each_changed_byte_is_a_fault(name):
    raw = bytearray(SEGMENTS[name])
    for at in (0, 4, 8, 16, 24, 32, len(raw) // 2, len(raw) - 5):
        raw[at] ^= 1
        with pytest.raises(FrameError) as raised:
            scan(bytes(raw), "segments")
        assert raised.value.fault == (Fault.NOT_A_FRAME if at == 0 else Fault.BAD_CHECKSUM)
        raw[at] ^= 1


def test_a_bad_segment_is_a_bad_row_of_all_its_bytes():
    raw = GOOD[:-8] + bytes(4) + b"BKAE"
    for level in ("segments", "records"):
        table = scan(raw, level, errors="mark")
        assert table["fault"].tolist() == [Fault.BAD_CHECKSUM]
    assert scan(raw, "segments", errors="mark")["size"].tolist() == [len(raw)]
    assert len(scan(raw, errors="skip")) == 0


def test_a_segment_without_its_end_is_the_tail():
    for size in range(len(GOOD)):
        table = scan(GOOD[:size], "segments")
        assert len(table) == 0
        assert len(table.tail) == size


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (encode_segment(b"", 0, version=2), Fault.BAD_VERSION),
        (encode_segment(b"", 0, codec=3), Fault.BAD_CODEC),
        (encode_segment(b"", 1 << 31), Fault.BAD_COUNT),
        (encode_segment(b"", 1), Fault.BAD_COUNT),
        (encode_segment(encode_record(1, b"", b""), 0), Fault.BAD_COUNT),
        (encode_segment(b"no zstd", 1, codec=1), Fault.BAD_COMPRESSION),
        (encode_segment(b"", 1, codec=2), Fault.BAD_COMPRESSION),
        (encode_segment(b"\2\0\0\0\x10a", 1, codec=2), Fault.BAD_COMPRESSION),
        (encode_segment(b"\xff\xff\xff\xff\x10a", 1, codec=2), Fault.TOO_LARGE),
        (encode_segment(struct.pack("<I", 19) + bytes(19), 1), Fault.TRUNCATED),
        (encode_segment(encode_record(1, b"k", b"v")[:-2] + b"\1\0", 1), Fault.BAD_COUNT),
        (encode_segment(struct.pack("<I", 31) + bytes(31), 1), Fault.LEFTOVER),
    ],
)
def test_hostile_bytes_are_faults(raw, fault):
    table = scan(raw, errors="mark")
    assert table.bad.any()
    assert fault in table["fault"].tolist()
    with pytest.raises(FrameError):
        scan(raw)


def test_headers_that_do_not_fit_are_faults():
    record = encode_record(1, b"", b"", [(b"name", b"value")])
    headers = record.index(b"\4\0name")
    hostile = record[:headers] + b"\xff\xff" + record[headers + 2 :]
    table = scan(encode_segment(hostile, 1), "headers", errors="mark")
    assert table["fault"].tolist() == [Fault.TRUNCATED]


def test_limits_bound_a_segment_and_its_payload():
    with pytest.raises(FrameError) as raised:
        scan(SEGMENTS["none"], limits=Limits(frame=1000))
    assert raised.value.fault == Fault.BAD_LENGTH
    with pytest.raises(FrameError) as raised:
        scan(SEGMENTS["zstd"], limits=Limits(inflated=1000))
    assert raised.value.fault == Fault.TOO_LARGE


def test_only_the_segments_of_a_backup_are_read(tmp_path):
    directory = tmp_path / "daily" / "topics" / "orders" / "partition=3"
    directory.mkdir(parents=True)
    (tmp_path / "daily" / "manifest.json").write_text("{}")
    (directory / "segment-00000000000000000005.bin").write_bytes(GOOD)
    assert len(scan(tmp_path, "segments")) == 1


@pytest.mark.parametrize("level", ["segments", "records"])
def test_the_format_keeps_the_laws(level):
    check_format(f"kafka.kbak_{level}", [GOOD, GOOD + GOOD], mutations=8, generations=4)
