"""The files beside segments: files of a broker, made files, and faults in wrong bytes."""

import base64
import shutil
import struct
import uuid
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import read_example_count
from tests.support.file_errors import catch_file_error
from tests.support.paths import KAFKA_CORPUS
from wirescan import Fault, FrameError, kafka
from wirescan.kafka import PartitionLog
from wirescan.kafka.log import index_files

LOGS = [PartitionLog(path) for path in sorted(KAFKA_CORPUS.glob("*-0"))]
READERS = {
    ".index": index_files.read_offset_index,
    ".timeindex": index_files.read_time_index,
    ".txnindex": index_files.read_transaction_index,
    ".snapshot": index_files.read_producer_snapshot,
    ".metadata": index_files.read_partition_metadata,
    "leader-epoch-checkpoint": index_files.read_leader_epochs,
    "offset-checkpoint": index_files.read_offset_checkpoint,
}
ZERO = f"{0:020}"


def find_reader(path):
    return next(read for end, read in READERS.items() if path.name.endswith(end))


def get_name(log):
    return Path(log.directory).name


# ---- a broker's files


@pytest.mark.parametrize("log", LOGS, ids=get_name)
def test_indexes_of_a_broker(log):
    for segment in log.segments:
        table = kafka.scan(segment.path)
        last_offsets = dict(zip(table["start"].tolist(), table["last_offset"].tolist()))
        entries = segment.read_offset_index()
        assert entries.dtype == index_files.OFFSETS
        of_positions = [last_offsets[position] for position in entries["position"].tolist()]
        assert of_positions == entries["offset"].tolist()
        times = segment.read_time_index()
        assert times.dtype == index_files.TIMES
        assert len(times) >= len(segment.read_offset_index()[:1])
        for stamp, offset in times.tolist():
            holds_offset = (table["base_offset"] <= offset) & (table["last_offset"] >= offset)
            assert table["max_timestamp"][holds_offset].tolist() == [stamp]
            until_offset = table["last_offset"] <= offset
            assert stamp == table["max_timestamp"][until_offset].max(initial=stamp)


@pytest.mark.parametrize("log", LOGS, ids=get_name)
def test_snapshots_of_a_broker(log):
    rows = kafka.open_log(log.directory).rows
    for offset, path in log.list_snapshots().items():
        producers = index_files.read_producer_snapshot(path)
        assert producers.dtype == index_files.PRODUCERS
        assert len(set(producers["producer_id"])) == len(producers)
        for producer in producers:
            assert producer["last_offset"] < offset
            assert producer["transaction_first_offset"] in (-1, 170)
            # The log has no data batch with the last sequence if the cleaner removed that batch,
            # or if a marker came after it.
            is_last = (rows["producer_id"] == producer["producer_id"]) & (
                rows["last_offset"] == producer["last_offset"]
            )
            for batch in rows[is_last & (rows["is_control"] == 0)]:
                delta = producer["offset_delta"]
                assert batch["producer_epoch"] == producer["producer_epoch"]
                assert batch["last_offset"] - batch["base_offset"] == delta
                assert batch["base_sequence"] + delta == producer["last_sequence"]
    assert len(log.list_snapshots())


def test_text_files_of_a_broker():
    orders = PartitionLog(KAFKA_CORPUS / "orders-0")
    assert orders.read_leader_epochs().tolist() == [(0, 0), (2, 24000)]
    assert orders.read_metadata() == (0, uuid.UUID("d6b74314-0c76-4057-8b15-1290323a2585"))
    assert len({log.read_metadata().topic_id for log in LOGS}) == len(LOGS)


# ---- made files


def write_file(folder, name, raw):
    path = folder / name
    path.write_bytes(raw)
    return str(path)


def test_an_offset_index_is_read(tmp_path):
    name = f"{10**12:020}.index"
    path = str(tmp_path / name)

    def pack(entries):
        return b"".join(struct.pack(">ii", *entry) for entry in entries)

    def read(*entries, tail=b""):
        write_file(tmp_path, name, pack(entries) + tail)
        return index_files.read_offset_index(path).tolist()

    assert read() == []
    assert read(tail=bytes(80)) == []
    for tail in (b"", bytes(800)):
        assert read((5, 100), (9, 200), tail=tail) == [(10**12 + 5, 100), (10**12 + 9, 200)]
    for entries, row in (
        ([(5, 100), (5, 200)], 1),
        ([(5, 100), (6, 100)], 1),
        ([(-1, 100)], 0),
        ([(5, 0)], 0),
        ([(5, 100), (0, 0), (6, 200)], 1),
    ):
        write_file(tmp_path, name, pack(entries))
        assert catch_file_error(index_files.read_offset_index, path) == (
            Fault.NOT_A_FRAME,
            8 * row,
            row,
        )
    write_file(tmp_path, name, pack([(5, 100)]) + b"\0\0\0")
    assert catch_file_error(index_files.read_offset_index, path) == (Fault.TRUNCATED, 8, 1)
    with pytest.raises(ValueError, match="invalid literal for int"):
        index_files.read_offset_index(write_file(tmp_path, "x.index", b""))
    with pytest.raises(OSError, match="No such file"):
        index_files.read_offset_index(str(tmp_path / f"{7:020}.index"))


def test_a_time_index_is_read(tmp_path):
    path = write_file(
        tmp_path, f"{100:020}.timeindex", struct.pack(">qiqi", 50, 0, 60, 7) + bytes(24)
    )
    assert index_files.read_time_index(path).tolist() == [(50, 100), (60, 107)]
    for pair in ((50, 0, 50, 7), (50, 8, 60, 7)):
        write_file(tmp_path, Path(path).name, struct.pack(">qiqi", *pair))
        assert catch_file_error(index_files.read_time_index, path) == (Fault.NOT_A_FRAME, 12, 1)
    write_file(tmp_path, Path(path).name, struct.pack(">qi", -1, 7))
    assert catch_file_error(index_files.read_time_index, path) == (Fault.NOT_A_FRAME, 0, 0)


def test_a_transaction_index_is_read(tmp_path):
    def entry(*numbers):
        return struct.pack(">hqqqq", *numbers)

    good = entry(0, 7, 100, 200, 201) + entry(0, 8, 90, 210, 211)
    path = write_file(tmp_path, f"{150:020}.txnindex", good)
    assert index_files.read_transaction_index(path).tolist() == [
        (7, 100, 200, 201),
        (8, 90, 210, 211),
    ]
    for bad, fault in (
        (entry(1, 7, 100, 300, 0), Fault.BAD_VERSION),
        (entry(0, 7, 100, 210, 0), Fault.NOT_A_FRAME),
        (entry(0, 7, 300, 300, 0), Fault.NOT_A_FRAME),
        (bytes(34), Fault.NOT_A_FRAME),
        (entry(0, 7, -1, 300, 0), Fault.NOT_A_FRAME),
        (bytes(33), Fault.TRUNCATED),
    ):
        write_file(tmp_path, Path(path).name, good + bad)
        assert catch_file_error(index_files.read_transaction_index, path) == (fault, 68, 2)
    in_segment_before = entry(0, 7, 100, 149, 0)
    write_file(tmp_path, Path(path).name, in_segment_before)
    assert catch_file_error(index_files.read_transaction_index, path) == (Fault.NOT_A_FRAME, 0, 0)


def test_a_producer_snapshot_is_read(tmp_path):
    def write_snapshot(count, body, version=1):
        rest = struct.pack(">i", count) + body
        head = struct.pack(">hI", version, crc32c(rest))
        return write_file(tmp_path, f"{9:020}.snapshot", head + rest)

    entry = struct.pack(">qhiqiqiq", 1, 2, 3, 4, 5, 6, 7, 8)
    assert index_files.read_producer_snapshot(write_snapshot(1, entry)).tolist() == [
        (1, 2, 3, 4, 5, 6, 7, 8)
    ]
    assert index_files.read_producer_snapshot(write_snapshot(0, b"")).tolist() == []
    for arguments, fault in (
        ((2, entry), Fault.BAD_COUNT),
        ((0, entry), Fault.BAD_COUNT),
        ((-1, entry), Fault.BAD_COUNT),
        ((2**31 - 1, b""), Fault.BAD_COUNT),
        ((1, entry, 2), Fault.BAD_VERSION),
    ):
        assert (
            catch_file_error(index_files.read_producer_snapshot, write_snapshot(*arguments))[0]
            == fault
        )
    path = write_file(tmp_path, f"{9:020}.snapshot", b"\0\1\0")
    assert catch_file_error(index_files.read_producer_snapshot, path)[0] == Fault.TRUNCATED


def test_checkpoints_are_read(tmp_path):
    def read_offsets(text):
        path = write_file(tmp_path, "replication-offset-checkpoint", text)
        return index_files.read_offset_checkpoint(path)

    def read_epochs(text):
        path = write_file(tmp_path, "leader-epoch-checkpoint", text)
        return index_files.read_leader_epochs(path).tolist()

    assert read_offsets(b"0\n0\n") == {}
    assert read_offsets(b"0\n2\na.b-c_d 0 7\na.b-c_d 12 9223372036854775807\n") == {
        ("a.b-c_d", 0): 7,
        ("a.b-c_d", 12): 2**63 - 1,
    }
    path = str(tmp_path / "replication-offset-checkpoint")
    for text, expected in (
        (b"", (Fault.TRUNCATED, 0, 0)),
        (b"0\n", (Fault.TRUNCATED, 2, 1)),
        (b"1\n0\n", (Fault.BAD_VERSION, 0, 0)),
        (b"0\n1\n", (Fault.BAD_COUNT, 2, 1)),
        (b"0\n1\na 0 7\nb 0 7\n", (Fault.BAD_COUNT, 2, 1)),
        (b"0\n1\na 0 7", (Fault.TRUNCATED, 4, 2)),
        (b"0\n1\na 0 -7\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"0\n1\na b 0 7\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"0\n1\na 0 9223372036854775808\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"0\n1\na 0 " + b"9" * 5000 + b"\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"0\n1\n\xff 0 7\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"x\n", (Fault.NOT_A_FRAME, 0, 0)),
        (b"0\r\n0\r\n", (Fault.NOT_A_FRAME, 0, 0)),
        (b"\n\n", (Fault.NOT_A_FRAME, 0, 0)),
    ):
        write_file(tmp_path, Path(path).name, text)
        assert catch_file_error(index_files.read_offset_checkpoint, path) == expected
    assert read_epochs(b"0\n2\n3 0\n5 70\n") == [(3, 0), (5, 70)]
    assert read_epochs(b"0\n0\n") == []
    path = write_file(tmp_path, "leader-epoch-checkpoint", b"0\n2\n3 0\n3 70\n")
    assert catch_file_error(index_files.read_leader_epochs, path) == (Fault.NOT_A_FRAME, 8, 1)


def test_partition_metadata_is_read(tmp_path):
    topic = uuid.UUID(int=2**127 + 12345)
    text = base64.urlsafe_b64encode(topic.bytes).rstrip(b"=")

    def read(raw):
        return index_files.read_partition_metadata(write_file(tmp_path, "partition.metadata", raw))

    assert read(b"version: 0\ntopic_id: " + text) == (0, topic)
    assert read(b"version: 0\ntopic_id: " + text + b"\n") == (0, topic)
    path = str(tmp_path / "partition.metadata")
    for raw, fault in (
        (b"version: 1\ntopic_id: " + text, Fault.BAD_VERSION),
        (b"", Fault.NOT_A_FRAME),
        (b"version: 0\ntopic_id: " + text[:-1], Fault.NOT_A_FRAME),
    ):
        write_file(tmp_path, Path(path).name, raw)
        assert catch_file_error(index_files.read_partition_metadata, path)[0] == fault


# ---- hostile bytes


def list_hostile_files():
    """Return [(name, bytes)] of one real file of each kind, and of a checkpoint.

    Zeros at the end are removed, but for a few entries.
    """
    names = [
        f"orders-0/{ZERO}.index",
        f"orders-0/{ZERO}.timeindex",
        f"live-0/{480:020}.timeindex",
        f"orders-0/{24800:020}.txnindex",
        f"open-0/{302:020}.snapshot",
        "orders-0/leader-epoch-checkpoint",
        "orders-0/partition.metadata",
    ]
    files = [(Path(name).name, (KAFKA_CORPUS / name).read_bytes()) for name in names]
    short = [(name, raw[: len(raw.rstrip(b"\0")) // 12 * 12 + 60]) for name, raw in files]
    return [*short, ("log-start-offset-checkpoint", b"0\n2\norders 0 12\norders 1 77\n")]


@pytest.mark.parametrize(
    "name, raw", list_hostile_files(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_byte_changed_and_every_cut(tmp_path, name, raw, stride):
    """A damaged file is a FrameError, or it is still a valid file.

    A snapshot has a checksum, so damage in a snapshot is always an error.
    """
    path = tmp_path / name
    read = find_reader(path)
    has_checksum = name.endswith(".snapshot")

    def check(damaged):
        path.write_bytes(damaged)
        try:
            read(str(path))
        except FrameError as error:
            return error
        assert not has_checksum
        return None

    for at in range(0, len(raw), stride):
        for value in {raw[at] ^ 1, raw[at] ^ 0x80, 0, 0xFF, 0x2D, 0x0A} - {raw[at]}:
            error = check(raw[:at] + bytes([value]) + raw[at + 1 :])
            if error is not None:
                assert error.source == str(path)
                assert 0 <= error.offset <= len(raw)
        check(raw[:at])


@settings(max_examples=read_example_count(60), deadline=None)
@given(
    st.sampled_from(sorted(READERS)),
    st.binary(max_size=120) | st.text("01 -:\nab", max_size=40).map(str.encode),
)
def test_any_bytes_are_read_or_refused(tmp_path_factory, kind, raw):
    name = kind if not kind.startswith(".") else ZERO + kind
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(raw)
    try:
        READERS[kind](str(path))
    except FrameError as error:
        assert 0 <= error.offset <= len(raw)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / f"{ZERO}.index"
    with open(path, "wb") as file:
        file.truncate(1 << 42)
    assert catch_file_error(index_files.read_offset_index, str(path))[0] == Fault.BAD_LENGTH


def test_a_whole_directory_with_noise_beside_its_segments(tmp_path):
    """A committed read of a range is the same without the side files, and with noise in them."""
    source = KAFKA_CORPUS / "open-0"
    expected = kafka.open_log(source, isolation="read_committed", start=5).rows.tobytes()
    for noise in (None, b"", b"noise", bytes(4096)):
        folder = tmp_path / "open-0"
        shutil.copytree(source, folder)
        for path in folder.iterdir():
            if path.suffix != ".log":
                path.unlink()
                if noise is not None:
                    path.write_bytes(noise)
        table = kafka.open_log(folder, isolation="read_committed", start=5)
        assert table.rows.tobytes() == expected
        shutil.rmtree(folder)
