"""Redpanda's segments: batches, records of clients, names of files, Kafka offsets, manifests.

tests/strategies/kafka_redpanda.py writes the batches from the layout that is in
batch_scan.pyx. No test has bytes that Redpanda itself wrote.
"""

import json
import struct

import numpy as np
import pytest

import wirescan
from tests.strategies.kafka_redpanda import correct_checksums, make_batch
from tests.support.command import run
from wirescan import FrameError, kafka
from wirescan.core.fault import Fault
from wirescan.export.batches import iter_batches
from wirescan.kafka import RedpandaType, encode_batch
from wirescan.kafka.redpanda import binary_manifest, segment_files
from wirescan.kafka.redpanda.batch_scan import verify_redpanda_batches
from wirescan.kafka.redpanda.batch_types import UNCOUNTED, translate_offsets
from wirescan.kafka.redpanda.binary_manifest import COLUMNS, SUMMED
from wirescan.reading.chunked import iter_tables
from wirescan.reading.splits import plan

TIME = 1_700_000_000_000
CONFIGURATION = RedpandaType.RAFT_CONFIGURATION
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def make_data(base, count=1, kind=RedpandaType.RAFT_DATA, **call):
    """Return a batch of `count` records whose values are their log offsets."""
    offsets = range(base, base + count)
    rows = [{"offset": n, "value": b"%d" % n, "timestamp": TIME + n} for n in offsets]
    return make_batch(encode_batch(rows, base_offset=base, **call), kind)


def make_log(*parts):
    """Return batches one after another. parts: (number of records, type), from offset 0 on."""
    raw, base = b"", 0
    for count, kind in parts:
        raw += make_data(base, count, kind)
        base += count
    return raw


DATA = RedpandaType.RAFT_DATA
LOG = make_log((1, CONFIGURATION), (3, DATA), (2, RedpandaType.TX_FENCE), (2, DATA))


def read_values(table):
    return [bytes(row.value) for row in table]


# ---- batches and records


def test_a_batch_has_the_columns_of_its_header():
    call = dict(leader_epoch=3, producer_id=7, producer_epoch=2, base_sequence=40, codec="lz4")
    batches = kafka.scan_redpanda(make_data(26, 5, transactional=True, **call))
    row = batches.rows[0]
    got = {name: row[name].item() for name in row.dtype.names if name not in ("crc", "reserved")}
    assert got == dict(
        start=0,
        size=len(batches.buffers[0]),
        body=61,
        parent=-1,
        buffer=0,
        kind=RedpandaType.RAFT_DATA,
        fault=0,
        base_offset=26,
        last_offset=30,
        base_timestamp=TIME + 26,
        max_timestamp=TIME + 30,
        producer_id=7,
        leader_epoch=-1,
        base_sequence=40,
        record_count=5,
        producer_epoch=2,
        attributes=3 | 0x10,
        magic=2,
        codec=kafka.Codec.LZ4,
        is_transactional=1,
        is_control=0,
    )
    assert row["crc"] == int.from_bytes(batches.buffers[0][17:21], "little")


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_those_of_kafkas_batch(codec):
    rows = [
        {"offset": 5, "key": b"k", "value": b"v" * 300, "headers": {"trace": b"7"}},
        {"offset": 9, "key": None, "value": None, "timestamp": TIME},
    ]
    batch = encode_batch(rows, codec=codec)
    expected = kafka.records(kafka.scan(batch))
    opened = kafka.redpanda_records(kafka.scan_redpanda(make_batch(batch)))
    assert opened.rows.tobytes() == expected.rows.tobytes()
    pairs = kafka.redpanda_headers(opened)
    assert [(bytes(pair.key), bytes(pair.value)) for pair in pairs] == [(b"trace", b"7")]
    assert pairs.format.name == "kafka.redpanda_headers"


def test_functions_of_kafka_return_the_formats_of_redpanda():
    batch = encode_batch([{"key": b"k", "headers": {"trace": b"7"}}])
    opened = kafka.records(kafka.scan_redpanda(make_batch(batch)))
    assert opened.format.name == "kafka.redpanda_records"
    expected = kafka.redpanda_headers(opened)
    for pairs in (kafka.headers(opened), opened.open("headers")):
        assert pairs.format.name == "kafka.redpanda_headers"
        assert pairs.outer is opened
        assert pairs.rows.tobytes() == expected.rows.tobytes()


def test_only_the_batches_of_clients_have_records():
    batches = kafka.scan_redpanda(LOG)
    assert batches["kind"].tolist() == [CONFIGURATION, DATA, RedpandaType.TX_FENCE, DATA]
    assert batches["size"].sum() == len(LOG)
    opened = kafka.redpanda_records(batches)
    assert opened.format.name == "kafka.redpanda_records"
    assert read_values(opened) == [b"1", b"2", b"3", b"6", b"7"]
    assert opened["parent"].tolist() == [1, 1, 1, 3, 3]
    assert opened.outer is batches
    into = np.empty(5, kafka.RECORD)
    assert kafka.records(batches, into=into).rows.tobytes() == opened.rows.tobytes()
    assert into["offset"].tolist() == [1, 2, 3, 6, 7]
    by_name = wirescan.scan(LOG, "kafka.redpanda_records")
    assert by_name.rows.tobytes() == opened.rows.tobytes()


def test_compressed_batches_of_other_types_are_not_decompressed():
    raw = bytearray(make_data(0, 4, CONFIGURATION, codec="zstd"))
    raw[65:] = bytes(len(raw) - 65)
    batches = kafka.scan_redpanda(correct_checksums(bytes(raw)) + make_data(4))
    assert read_values(kafka.records(batches)) == [b"4"]


@pytest.mark.parametrize("at", (2, 9, 16, 18, 30, 70))
def test_damage_in_a_batch_is_reported_with_its_position(at):
    first, second = make_data(0, 2), make_data(2, 2, RedpandaType.GHOST_BATCH)
    raw = bytearray(first + second + make_data(4))
    raw[len(first) + at] ^= 0x10
    with pytest.raises(FrameError) as caught:
        kafka.scan_redpanda(bytes(raw))
    assert caught.value.fault == Fault.BAD_CHECKSUM
    assert caught.value.offset == len(first)
    assert caught.value.near == bytes(raw[len(first) :])[: len(caught.value.near)]
    marked = kafka.scan_redpanda(bytes(raw), errors="mark")
    assert marked["fault"].tolist() == [0, Fault.BAD_CHECKSUM, 0]
    assert marked["base_offset"][[0, 2]].tolist() == [0, 4]
    assert kafka.records(marked)["fault"].tolist() == [0, 0, Fault.BAD_CHECKSUM, 0]
    # The checksums that a scan did not verify are verified when the records are opened.
    unchecked = kafka.scan_redpanda(bytes(raw), check=False)
    assert not unchecked.bad.any()
    late = kafka.redpanda_records(unchecked, errors="mark")
    assert late["fault"].tolist() == [0, 0, Fault.BAD_CHECKSUM, 0]
    assert len(kafka.redpanda_records(unchecked, check=False)) >= 3


def test_batches_after_a_damaged_size_are_found():
    first, second, third = make_data(0), make_data(1), make_data(2)
    for size in (0, 60, 61, len(second) + 1, 1 << 30, -1):
        damaged = second[:4] + struct.pack("<i", size) + second[8:]
        batches = kafka.scan_redpanda(first + damaged + third, errors="mark")
        assert batches["base_offset"][batches["fault"] == 0].tolist() == [0, 2], size
        assert batches["size"].tolist() == [len(first), len(second), len(third)]


def test_the_search_passes_over_a_batch_with_damaged_records():
    first, second, third = make_data(0), bytearray(make_data(1)), make_data(2)
    second[-2] ^= 1
    no_size = first[:4] + bytes(4) + first[8:]
    batches = kafka.scan_redpanda(no_size + bytes(second) + third, errors="mark")
    assert batches["fault"].tolist() == [Fault.BAD_LENGTH, 0]
    assert batches["size"].tolist() == [len(first) + len(second), len(third)]


def test_the_end_of_a_file_may_be_zeros_or_a_cut_batch():
    for count in (8, 60, 61, 5000):
        batches = kafka.scan_redpanda(LOG + bytes(count))
        assert len(batches) == 4
        assert batches.stop[:2] == (Fault.ZEROS, len(LOG))
    cut = make_data(8, 3)[:-1]
    assert kafka.scan_redpanda(LOG + bytes(7)).stop[:2] == (Fault.SHORT, len(LOG))
    for size in (1, 60, 61, len(cut)):
        batches = kafka.scan_redpanda(LOG + cut[:size])
        assert batches.stop[:2] == (Fault.SHORT, len(LOG))
    with pytest.raises(FrameError) as caught:
        kafka.scan_redpanda(LOG + bytes([cut[0] ^ 1]) + cut[1:])
    assert (caught.value.fault, caught.value.offset) == (Fault.NOT_A_FRAME, len(LOG))


def test_a_stream_may_be_cut_after_a_zero():
    """The first bytes of a batch may be zeros: one checksum in 256 begins with one."""
    zero = next(raw for n in range(9999) if not (raw := make_data(n))[0])
    for size in range(1, 62):
        stream = wirescan.stream("kafka.redpanda_batches")
        tables = [stream.feed(LOG + zero[:size]), stream.feed(zero[size:]), stream.close()]
        assert sum(map(len, tables)) == 5


def test_rows_that_do_not_fit_their_bytes_are_not_read():
    buffers = (memoryview(LOG),)
    rows = kafka.scan_redpanda(LOG).rows.copy()
    rows["size"][0] -= 1
    rows["size"][1] = 60
    faults = verify_redpanda_batches(rows, buffers).tolist()
    assert faults == [Fault.BAD_CHECKSUM, Fault.BAD_CHECKSUM, 0, 0]
    rows["start"][2] = len(LOG)
    with pytest.raises(ValueError, match="outside its buffer"):
        verify_redpanda_batches(rows, buffers)


def test_a_table_is_no_source():
    with pytest.raises(TypeError, match="not a table"):
        kafka.scan_redpanda(kafka.scan_redpanda(LOG))


# ---- files


@pytest.fixture
def data(tmp_path):
    """A data directory with a partition of two segments. Their names do not sort by offsets."""
    directory = tmp_path / "data" / "kafka" / "orders" / "3_21"
    directory.mkdir(parents=True)
    (directory / "8-1-v1.log").write_bytes(make_data(8, 2) + make_data(10, 1, CONFIGURATION))
    (directory / "11-2-v1.log").write_bytes(make_data(11, 4) + bytes(4096))
    (directory / "0-1-v1.log").write_bytes(LOG)
    (directory / "0-1-v1.base_index").write_bytes(b"index")
    (directory / "15-2-v1.log.staging").write_bytes(make_data(15))
    return tmp_path / "data"


def test_names_give_the_topic_the_partition_and_the_term(data):
    text = run("scan", data, "--format", "kafka.redpanda_records", "--csv",
               "--columns", "topic,partition,term,offset").stdout  # fmt: skip
    lines = text.splitlines()
    assert lines[0] == "topic,partition,term,offset"
    assert sorted(lines[1:])[:2] == ["orders,3,1,1", "orders,3,1,2"]
    assert "orders,3,2,14" in lines
    assert len(lines) == 1 + 5 + 2 + 4


@pytest.mark.parametrize(
    "name, parts",
    (
        ("0-1-v1.log", (0, None, None, 1, None)),
        ("128-2-v1.log.9", (128, None, None, 2, 9)),
        ("3795-7604-466-1-v1.log.1", (3795, 7604, 466, 1, 1)),
        ("3795-7604-466-1-v1.log.1.index", None),
        ("0-1-v1.log.staging", None),
        ("00000000000000000000.log", None),
    ),
)
def test_names_of_segments(name, parts):
    path = f"s3://bucket/e1b0/kafka/orders/3_21/{name}"
    assert segment_files.parse_segment_name(path) == parts
    if parts:
        assert segment_files.parse_partition_path(path) == ("orders", 3, 21)
        assert segment_files.read_term(path) == parts[3]


def test_other_directories_are_no_partition():
    for path in ("/data/orders-0/0-1-v1.log", "/3_21/0-1-v1.log", "/o/99999999999_1/0-1-v1.log"):
        assert segment_files.parse_partition_path(path) is None
    assert segment_files.read_topic("0-1-v1.log.txt") is None


def test_detect_finds_the_format(data):
    for source in (data, LOG):
        best = wirescan.detect(source)[0]
        assert (best.format, best.inner, best.verdict) == (
            "kafka.redpanda_batches",
            "kafka.redpanda_records",
            "certain",
        )
    assert run("verify", data).exit_code == 0


def test_boundaries_are_starts_of_batches(data):
    path = data / "kafka" / "orders" / "3_21" / "0-1-v1.log"
    starts = kafka.scan_redpanda(LOG)["start"].tolist()
    find = segment_files.find_redpanda_boundaries
    assert find(str(path), 1) == starts
    assert find(str(path), starts[2]) == [0, starts[2]]


def test_a_damaged_size_makes_no_boundaries_inside_batches(tmp_path):
    """Four bytes later, the offset of a batch is taken for its size."""
    batches = [bytearray(make_data(base)) for base in range(100, 120)]
    size = len(batches[3])
    batches[3][4:8] = struct.pack("<i", size + 4)
    path = tmp_path / "100-1-v1.log"
    path.write_bytes(b"".join(batches))
    starts = kafka.scan_redpanda(path, errors="mark")["start"].tolist()
    assert set(segment_files.find_redpanda_boundaries(str(path), 1)) <= set(starts)
    for errors in ("mark", "skip"):
        expected = kafka.scan_redpanda(path, errors=errors)["base_offset"].tolist()
        parts = plan(path, "kafka.redpanda_batches", 1)
        tables = [
            table
            for part in parts
            for table in iter_tables(
                part.path,
                part.start,
                part.stop,
                format="kafka.redpanda_batches",
                errors=errors,
            )
        ]
        assert [n for table in tables for n in table["base_offset"].tolist()] == expected
        assert len(expected) == (20 if errors == "mark" else 19)


def test_exports_equal_the_table(data):
    path = str(data / "kafka" / "orders" / "3_21" / "0-1-v1.log")
    table = wirescan.scan(path, "kafka.redpanda_records").to_arrow(["offset", "value"])
    batches = list(iter_batches(path, format="kafka.redpanda_records"))
    assert [v for batch in batches for v in batch["offset"].to_pylist()] == [1, 2, 3, 6, 7]
    assert [v for batch in batches for v in batch["value"].to_pylist()] == (
        table["value"].to_pylist()
    )


def test_a_claim_is_read_from_a_damaged_header():
    assert segment_files.read_redpanda_claim(memoryview(make_data(7, 3))) == (7, 9, 3)
    assert segment_files.read_redpanda_claim(memoryview(make_data(7, 3)[:60])) is None
    assert segment_files.read_redpanda_claim(memoryview(bytes(61))) is None


# ---- offsets of Kafka


def test_a_log_gives_the_offsets_of_kafka(data):
    """Offset 0 and 10 are configurations. The two batches TX_FENCE count, but have no records."""
    log = kafka.open_redpanda_log(data / "kafka" / "orders" / "3_21")
    records = kafka.records(log)
    assert records["offset"].tolist() == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12]
    logged = [1, 2, 3, 6, 7, 8, 9, 11, 12, 13, 14]
    assert read_values(records) == [b"%d" % n for n in logged]
    assert log["base_offset"].tolist() == [0, 0, 3, 5, 7, 9, 9]
    assert log["last_offset"].tolist() == [0, 2, 4, 6, 8, 9, 12]


def test_the_offsets_of_each_type():
    """Kafka's offset of a batch is the number of counted log offsets before it."""
    rows = kafka.scan_redpanda(b"".join(make_data(n, 1, n) for n in range(1, 40))).rows.copy()
    end = translate_offsets(rows, 1)
    assert end == 1 + len(UNCOUNTED) == 7
    counted = 0
    for row in rows:
        assert row["base_offset"] == row["last_offset"] == counted
        counted += row["kind"] not in {2, 19, 23, 25, 34, 38}


def test_a_log_that_begins_later_needs_a_delta(data):
    directory = data / "kafka" / "orders" / "3_21"
    (directory / "0-1-v1.log").unlink()
    with pytest.raises(ValueError, match=r"8-1-v1.log: the log begins at log offset 8"):
        kafka.open_redpanda_log(directory)
    log = kafka.open_redpanda_log(directory, delta=1)
    assert kafka.records(log)["offset"].tolist() == [7, 8, 9, 10, 11, 12]


def test_a_missing_segment_hides_the_offsets(data):
    directory = data / "kafka" / "orders" / "3_21"
    (directory / "8-1-v1.log").unlink()
    with pytest.raises(ValueError, match=r"begins at log offset 11, and .* ends before 8"):
        kafka.open_redpanda_log(directory)


def test_damage_hides_the_offsets_after_it(data):
    directory = data / "kafka" / "orders" / "3_21"
    raw = bytearray(LOG)
    raw[5] ^= 1
    (directory / "0-1-v1.log").write_bytes(raw)
    with pytest.raises(FrameError):
        kafka.open_redpanda_log(directory)
    with pytest.raises(ValueError, match="the damage at byte 0 or before it"):
        kafka.open_redpanda_log(directory, errors="mark")
    raw = bytearray(LOG)
    raw[-1] ^= 1
    (directory / "0-1-v1.log").write_bytes(raw)
    with pytest.raises(ValueError, match="8-1-v1.log: the damage"):
        kafka.open_redpanda_log(directory, errors="mark")
    for name in ("8-1-v1.log", "11-2-v1.log"):
        (directory / name).unlink()
    log = kafka.open_redpanda_log(directory, errors="mark")
    assert kafka.records(log)["fault"].tolist() == [0, 0, 0, Fault.BAD_CHECKSUM]
    # Rows that were skipped leave a hole in front of the next batch.
    (directory / "0-1-v1.log").write_bytes(bytes(raw) + make_data(8))
    with pytest.raises(ValueError, match="damage"):
        kafka.open_redpanda_log(directory, errors="skip")


def test_one_partition_is_opened_at_a_time(data):
    other = data / "kafka" / "orders" / "4_21"
    other.mkdir()
    (other / "0-1-v1.log").write_bytes(LOG)
    with pytest.raises(ValueError, match="segments of 2 partitions"):
        kafka.open_redpanda_log(data)
    with pytest.raises(FileNotFoundError):
        kafka.open_redpanda_log(data / "kafka" / "orders" / "5_21")


def test_aborted_transactions_are_dropped(tmp_path):
    """Redpanda's markers are control records of Kafka, in a batch of type RAFT_DATA."""

    def mark(base, kind):
        key = struct.pack(">hh", 0, kind)
        record = {"offset": base, "key": key, "value": bytes(6), "timestamp": TIME}
        return make_batch(encode_batch([record], control=True, **producer))

    producer = dict(transactional=True, producer_id=5, producer_epoch=0)
    raw = make_data(0, 1, CONFIGURATION) + make_data(1, 2, **producer)
    raw += mark(3, kafka.ControlType.ABORT) + make_data(4, 2, base_sequence=2, **producer)
    raw += mark(6, kafka.ControlType.COMMIT)
    (tmp_path / "0-1-v1.log").write_bytes(raw)
    log = kafka.open_redpanda_log(tmp_path)
    names = kafka.records(log).to_arrow(["control"])["control"].to_pylist()
    assert names == [None, None, "ABORT", None, None, "COMMIT"]
    records = kafka.records(kafka.committed(log))
    assert records["offset"].tolist() == [3, 4]
    assert read_values(records) == [b"4", b"5"]


# ---- object storage

SEGMENT = dict(is_compacted=False, base_timestamp=TIME, max_timestamp=TIME, archiver_term=4)
SEGMENTS = {
    "8-1-v1.log": SEGMENT
    | dict(
        base_offset=8,
        committed_offset=10,
        size_bytes=200,
        delta_offset=1,
        delta_offset_end=2,
        segment_term=1,
        sname_format=3,
    ),
    "11-2-v1.log": SEGMENT
    | dict(base_offset=11, committed_offset=14, size_bytes=100, delta_offset=2),
}
MANIFEST = dict(
    version=2,
    namespace="kafka",
    topic="orders",
    partition=3,
    revision=21,
    start_offset=8,
    last_offset=14,
    segments=SEGMENTS,
)


def write_manifest(path, **changes):
    content = {name: value for name, value in (MANIFEST | changes).items() if value is not None}
    path.write_text(json.dumps(content))
    return kafka.read_redpanda_manifest(path)


def test_a_manifest_lists_the_segments(tmp_path):
    manifest = write_manifest(tmp_path / "manifest.json")
    assert (manifest.namespace, manifest.topic) == ("kafka", "orders")
    assert (manifest.partition, manifest.revision) == (3, 21)
    assert (manifest.start_offset, manifest.last_offset) == (8, 14)
    assert manifest.make_segment_names() == ["8-10-200-1-v1.log.4", "11-2-v1.log.4"]
    assert manifest.segments["delta_offset"].tolist() == [1, 2]
    assert manifest.segments["delta_offset_end"].tolist() == [2, -(2**63)]
    assert write_manifest(tmp_path / "manifest.json", start_offset=None).start_offset is None
    empty = write_manifest(tmp_path / "manifest.json", segments=None)
    assert len(empty.segments) == 0
    assert len(kafka.open_redpanda_log(tmp_path, manifest=empty)) == 0


def test_a_manifest_gives_the_offsets_of_kafka(tmp_path):
    manifest = write_manifest(tmp_path / "manifest.json")
    segments = {
        "0a0b0c0d": ("8-10-200-1-v1.log.4", make_data(8, 2) + make_data(10, 1, CONFIGURATION)),
        "ffeeddcc": ("11-2-v1.log.4", make_data(11, 4)),
        "00000000": ("0-7-300-1-v1.log.1", LOG),  # not in the manifest
    }
    for prefix, (name, raw) in segments.items():
        directory = tmp_path / prefix / "kafka" / "orders" / "3_21"
        directory.mkdir(parents=True)
        (directory / name).write_bytes(raw)
    log = kafka.open_redpanda_log(tmp_path, manifest=manifest)
    assert kafka.records(log)["offset"].tolist() == [7, 8, 9, 10, 11, 12]
    with pytest.raises(ValueError, match="only one of both"):
        kafka.open_redpanda_log(tmp_path, manifest=manifest, delta=1)
    (tmp_path / "ffeeddcc" / "kafka" / "orders" / "3_21" / "11-2-v1.log.4").unlink()
    with pytest.raises(FileNotFoundError, match=r"names the segment 11-2-v1\.log\.4"):
        kafka.open_redpanda_log(tmp_path, manifest=manifest)


def test_a_manifest_may_have_no_deltas(tmp_path):
    old = {"8-1-v1.log": {**SEGMENTS["8-1-v1.log"], "delta_offset": -(2**63), "sname_format": 1}}
    manifest = write_manifest(tmp_path / "manifest.json", segments=old)
    directory = tmp_path / "0a0b0c0d" / "kafka" / "orders" / "3_21"
    directory.mkdir(parents=True)
    (directory / "8-1-v1.log.4").write_bytes(make_data(8, 3))
    with pytest.raises(ValueError, match=r"no delta_offset of the segment 8-1-v1\.log\.4"):
        kafka.open_redpanda_log(tmp_path, manifest=manifest)


@pytest.mark.parametrize(
    "changes",
    (
        dict(topic=None),
        dict(partition="3"),
        dict(segments={"8.log": SEGMENTS["8-1-v1.log"]}),
        dict(segments={"8-1-v1.log": {**SEGMENTS["8-1-v1.log"], "size_bytes": None}}),
        dict(segments={"8-1-v1.log": {**SEGMENTS["8-1-v1.log"], "base_offset": 1 << 63}}),
        dict(segments=[1]),
    ),
)
def test_a_wrong_manifest_is_an_error(tmp_path, changes):
    with pytest.raises(FrameError) as caught:
        write_manifest(tmp_path / "manifest.json", **changes)
    assert caught.value.fault == Fault.BAD_FIELD
    assert caught.value.source == str(tmp_path / "manifest.json")


def test_bytes_that_are_no_json_are_an_error_at_their_position(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text('{"topic": "ö", ]')
    with pytest.raises(FrameError) as caught:
        kafka.read_redpanda_manifest(path)
    assert (caught.value.fault, caught.value.offset) == (Fault.NOT_A_FRAME, 16)


# ---- binary manifests


def wrap(content, compatible=0):
    """Return an envelope."""
    return struct.pack("<BBI", 0, compatible, len(content)) + content


def hold(content):
    """Return a byte string."""
    return struct.pack("<I", len(content)) + content


def pack_row(numbers, bits):
    """Return a row of 16 numbers, packed bit by bit."""
    raw, shift = bytes([bits]), 0
    for width in (64, 32, 16, 8, 7, 6, 5, 4, 3, 2, 1):
        if width <= bits - shift:
            chunks = [number >> shift & ((1 << width) - 1) for number in numbers]
            text = "".join(f"{chunk:0{width}b}" for chunk in reversed(chunks))
            raw += int(text, 2).to_bytes(width * 2, "little")
            shift += width
    return raw


def make_column(name, numbers, rows_in_frame):
    """Return a column: frames of full rows, and the rest as it is."""
    frames = []
    size = 16 * rows_in_frame + 16
    for start in range(0, max(len(numbers), 1), size):
        values = numbers[start : start + size]
        whole = len(values) // 16 * 16
        packed, last = b"", 5
        for at in range(0, whole, 16):
            differences = []
            for value in values[at : at + 16]:
                change = value - last if name == SUMMED else value ^ last
                differences.append(change % 2**64)
                last = value
            packed += pack_row(differences, max(differences).bit_length())
        tail = struct.pack("<qq", 5, 0) + hold(packed) + struct.pack("<I", whole // 16)
        head = (values[whole:] + [0] * 16)[:16]
        frame = struct.pack("<I16q", 16, *head)
        frame += b"\1" + wrap(tail) if whole else b"\0"
        frames.append(wrap(frame + struct.pack("<QB", len(values), 0)))
    return wrap(struct.pack("<I", len(frames)) + b"".join(frames))


def make_binary_manifest(columns, rows_in_frame=3, replaced=1):
    parts = [make_column(name, columns[name], rows_in_frame) for name in COLUMNS]
    store = wrap(wrap(b"".join(parts) + b"more columns and hints"))
    content = hold(b"kafka") + hold("örders".encode()) + struct.pack("<iq", 3, 21) + hold(store)
    content += struct.pack("<I", replaced) + wrap(bytes(52)) * replaced
    return wrap(content + struct.pack("<qq", 4999, -(2**63)) + b"more fields")


def draw_columns(count, seed):
    generator = np.random.default_rng(seed)
    columns = {}
    for name in COLUMNS:
        most = 1 << int(generator.integers(1, 62))
        columns[name] = generator.integers(0, most, count).tolist()
    columns["base_offset"] = np.cumsum(generator.integers(1, 1000, count)).tolist()
    columns["is_compacted"] = [number % 2 for number in columns["is_compacted"]]
    columns["delta_offset_end"] = [-(2**63)] * count
    return columns


@pytest.mark.parametrize("count", (0, 1, 15, 16, 17, 100, 1000))
def test_binary_manifests_are_read(tmp_path, count):
    columns = draw_columns(count, seed=count)
    path = tmp_path / "manifest.bin"
    path.write_bytes(make_binary_manifest(columns))
    manifest = kafka.read_redpanda_manifest(path)
    assert (manifest.topic, manifest.partition, manifest.revision) == ("örders", 3, 21)
    assert (manifest.start_offset, manifest.last_offset) == (None, 4999)
    assert len(manifest.segments) == count
    for name in manifest.segments.dtype.names:
        assert manifest.segments[name].tolist() == columns[name], name


def test_a_cut_binary_manifest_is_an_error(tmp_path):
    raw = make_binary_manifest(draw_columns(40, seed=1))
    path = tmp_path / "manifest.bin"
    for size in range(0, len(raw) - len(b"more fields"), 7):
        # The outermost size is right, so the bytes end in a part of the content.
        path.write_bytes(raw[:2] + struct.pack("<I", max(size - 6, 0)) + raw[6:size])
        with pytest.raises(FrameError) as caught:
            kafka.read_redpanda_manifest(path)
        assert caught.value.fault == Fault.TRUNCATED
        assert caught.value.offset <= max(size, 6)


def test_a_later_binary_manifest_is_an_error(tmp_path):
    path = tmp_path / "manifest.bin"
    path.write_bytes(b"\x09\x05" + make_binary_manifest(draw_columns(1, seed=1))[2:])
    with pytest.raises(FrameError) as caught:
        kafka.read_redpanda_manifest(path)
    assert (caught.value.fault, caught.value.offset) == (Fault.BAD_VERSION, 0)


@pytest.mark.parametrize(
    "frame, fault",
    (
        (struct.pack("<I", 15), Fault.BAD_COUNT),
        (struct.pack("<I16qBQ", 16, *range(16), 0, 17), Fault.BAD_COUNT),
        (
            struct.pack("<I16qB", 16, *range(16), 1)
            + wrap(struct.pack("<qq", 0, 0) + hold(b"\x41") + struct.pack("<I", 1)),
            Fault.BAD_FIELD,
        ),
        (
            struct.pack("<I16qB", 16, *range(16), 1)
            + wrap(struct.pack("<qq", 0, 0) + hold(bytes(99)) + struct.pack("<I", 1 << 30)),
            Fault.TOO_LARGE,
        ),
    ),
)
def test_a_wrong_column_is_an_error(tmp_path, frame, fault):
    column = wrap(struct.pack("<I", 1) + wrap(frame))
    content = hold(b"kafka") + hold(b"orders") + struct.pack("<iq", 3, 21)
    path = tmp_path / "manifest.bin"
    path.write_bytes(wrap(content + hold(wrap(wrap(column)))))
    with pytest.raises(FrameError) as caught:
        kafka.read_redpanda_manifest(path)
    assert caught.value.fault == fault


def test_a_column_of_too_many_segments_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(binary_manifest, "MOST", 48)
    path = tmp_path / "manifest.bin"
    path.write_bytes(make_binary_manifest(draw_columns(48, seed=1), rows_in_frame=1))
    assert len(kafka.read_redpanda_manifest(path).segments) == 48
    path.write_bytes(make_binary_manifest(draw_columns(49, seed=1), rows_in_frame=1))
    with pytest.raises(FrameError) as caught:
        kafka.read_redpanda_manifest(path)
    assert caught.value.fault == Fault.TOO_LARGE


def test_columns_of_different_lengths_are_an_error(tmp_path):
    columns = draw_columns(4, seed=1)
    columns["size_bytes"].pop()
    path = tmp_path / "manifest.bin"
    path.write_bytes(make_binary_manifest(columns))
    with pytest.raises(FrameError) as caught:
        kafka.read_redpanda_manifest(path)
    assert caught.value.fault == Fault.BAD_COUNT
