"""Segments of itadventurer's kafka-backup: real ones, and damaged and hostile ones made by hand."""

import json
import struct

import numpy as np
import pyarrow
import pytest

import wirescan
from tests.peers.canonical import digest
from tests.support.connect_records import VERSION, encode_record, list_connect_records
from tests.support.paths import CORPUS
from wirescan import Fault, FrameError, Limits
from wirescan.export.batches import iter_batches
from wirescan.kafka.backups.connect_files import read_connect_partition, read_connect_topic
from wirescan.kafka.backups.connect_scan import bytes_needed
from wirescan.testing import check_format

RECORDS = "kafka.connect_backup_records"
HEADERS = "kafka.connect_backup_headers"
BACKUP = CORPUS / "kafka-connect-backup"
EXPECTED = json.loads((BACKUP / "expected.json").read_text())
SEGMENTS = sorted(BACKUP.rglob("*_records"))
INDEX_ENTRY = np.dtype([("offset", ">i8"), ("position", ">i8"), ("size", ">i8")])
PAIRS = ((b"a", b""), (b"", None))
GOOD = VERSION + encode_record(5, b"k", None, PAIRS) + encode_record(6, None, b"", kind=1)


def scan(source, **options):
    return wirescan.scan(source, RECORDS, **options)


@pytest.mark.parametrize("topic", sorted(EXPECTED))
def test_records_are_those_that_a_consumer_read(topic):
    records = list_connect_records(scan(BACKUP / topic))
    assert {"records": len(records), "sha256": digest(records)} == EXPECTED[topic]


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_records_are_where_the_index_of_the_program_says(path):
    index = path.with_name(path.name.replace("_records", "_index")).read_bytes()
    entries = np.frombuffer(index, INDEX_ENTRY, offset=1)
    records = scan(path)
    assert records["offset"].tolist() == entries["offset"].tolist()
    assert (records["start"] + records["body"]).tolist() == entries["position"].tolist()
    assert (records["size"] - records["body"]).tolist() == entries["size"].tolist()


def test_the_timestamp_types_are_those_of_the_topics():
    for topic, types in {"orders": {0}, "appended": {1}, "old": {0}}.items():
        assert set(scan(BACKUP / topic)["timestamp_type"].tolist()) == types
    raw = (BACKUP / "old" / SEGMENTS[0].name).read_bytes()
    assert struct.unpack_from(">i", raw, 9) == (-2,)
    assert scan(raw)["timestamp"].tolist() == [-1]


def test_nulls_and_empty_values_are_different():
    records = list_connect_records(scan(GOOD))
    assert records == [(5, 7, b"k", None, PAIRS), (6, 7, None, b"", ())]


def test_only_the_first_record_has_the_version_before_it():
    raw = GOOD + GOOD
    assert scan(raw)["body"].tolist() == [1, 0, 1, 0]
    assert scan(raw)["start"].tolist()[2] == len(GOOD)


def test_an_export_has_the_path_columns():
    names = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    table = pyarrow.concat_tables(
        pyarrow.Table.from_batches(iter_batches(str(path), format=RECORDS, columns=names))
        for path in SEGMENTS
    )
    assert table.num_rows == sum(topic["records"] for topic in EXPECTED.values())
    assert set(table["topic"].to_pylist()) == set(EXPECTED)
    assert set(table["partition"].to_pylist()) == {0}
    assert table["timestamp"].null_count == 1


def test_the_path_of_a_segment_names_its_topic_and_partition():
    name = "segment_partition_012_from_offset_0000000345_records"
    path = f"s3://backups/daily/a.b-c/{name}?region=eu"
    assert (read_connect_topic(path), read_connect_partition(path)) == ("a.b-c", 12)
    for other in (
        "a/index_partition_012",
        f"a/{name}.tmp",
        f"a/{name.replace('012', '4294967296')}",
    ):
        assert read_connect_topic(other) is None
        assert read_connect_partition(other) is None


def test_detect_recognizes_the_bytes_and_the_directory():
    for source in (BACKUP, *(path.read_bytes() for path in SEGMENTS)):
        first = wirescan.detect(source)[0]
        assert (first.verdict, first.format) == ("certain", RECORDS)


def test_zeros_are_not_recognized():
    assert len(scan(bytes(320))) == 10
    assert wirescan.detect(bytes(320)) == []


def test_zeros_before_other_bytes_are_not_recognized():
    """The bytes after zeros are a record whose offset is above 0."""
    number = (1 << 33).to_bytes(8, "big")
    raw = b"\0\0\0[" + number + bytes(20) + bytes(192) + number + bytes(24)
    records = wirescan.scan(raw, "kafka.connect_backup_records", errors="mark")
    assert len(records) > 5
    assert [item.format for item in wirescan.detect(raw)] == []


def test_only_segments_are_read(tmp_path):
    for path in (BACKUP / "old").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "consumer_offsets_partition_000").write_text('{"readers":1}')
    assert len(scan(tmp_path)) == len(scan(f"{tmp_path}/*")) == 1


@pytest.mark.parametrize("size", [1, 3, 40, 1000])
def test_chunks_change_nothing(size):
    raw = GOOD + SEGMENTS[-1].read_bytes()
    stream = wirescan.stream(RECORDS)
    tables = [stream.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    tables.append(stream.close())
    offsets = [offset for table in tables for offset in table["offset"].tolist()]
    assert offsets == scan(raw)["offset"].tolist()


def test_headers_are_walked_once():
    raw = encode_record(1, b"key", b"value", [(b"name", b"value")] * 50)
    state, positions = (), set()
    for size in range(len(raw)):
        needed, *state = bytes_needed(raw[:size], *state)
        assert size < needed <= len(raw)
        positions.add(state[0])
    assert len(positions) > 40
    assert bytes_needed(raw, *state)[0] == len(raw)


def test_a_cut_record_is_the_tail():
    start = scan(GOOD)["start"].tolist()[1]
    for size in range(len(GOOD)):
        table = scan(GOOD[:size])
        assert len(table) == (size >= start)
        assert len(table.tail) == (size - start if size >= start else size)


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"\2" + GOOD[1:], Fault.NOT_A_FRAME),
        (VERSION + GOOD, Fault.NOT_A_FRAME),
        (encode_record(1 << 57, b"", b""), Fault.NOT_A_FRAME),
        (encode_record(-1, b"", b""), Fault.NOT_A_FRAME),
        (encode_record(1, b"", b"", kind=2), Fault.NOT_A_FRAME),
        (encode_record(1, b"", b"", kind=-3), Fault.NOT_A_FRAME),
        (encode_record(1, b"", b"")[:-4] + struct.pack(">i", -1), Fault.BAD_LENGTH),
        (encode_record(1, b"", b"", [(None, b"")]), Fault.BAD_LENGTH),
        (encode_record(1, b"", b"")[:-4] + struct.pack(">i", 1 << 30), Fault.BAD_LENGTH),
        (encode_record(1, b"", b"")[:20] + struct.pack(">i", 1 << 30), Fault.BAD_LENGTH),
    ],
)
def test_hostile_bytes_are_faults(raw, fault):
    raw = encode_record(0, b"", b"") + raw
    table = scan(raw, errors="mark")
    assert table["fault"].tolist() == [0, fault]
    assert table["size"].sum() == len(raw)
    assert wirescan.scan(raw, HEADERS, errors="mark")["fault"].tolist() == [fault]
    with pytest.raises(FrameError) as raised:
        scan(raw)
    assert (raised.value.fault, raised.value.offset) == (fault, len(encode_record(0, b"", b"")))


def test_limits_bound_a_record():
    with pytest.raises(FrameError) as raised:
        scan(SEGMENTS[-1], limits=Limits(frame=100))
    assert raised.value.fault == Fault.BAD_LENGTH


@pytest.mark.parametrize("name", [RECORDS, HEADERS])
def test_the_formats_keep_the_laws(name):
    check_format(name, [GOOD, GOOD + GOOD], mutations=8, generations=4)
