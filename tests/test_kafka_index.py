"""The files beside segments: what a broker wrote, what it means, and what is told where bytes are wrong."""
import base64
import shutil
import struct
import uuid
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from wirescan import Fault, FrameError, kafka
from wirescan.kafka import PartitionLog, index

CORPUS = Path(__file__).parent / "corpus" / "kafka"
LOGS = [PartitionLog(path) for path in sorted(CORPUS.glob("*-0"))]
READERS = {".index": index.offset_index, ".timeindex": index.time_index, ".txnindex": index.transaction_index,
           ".snapshot": index.producer_snapshot, ".metadata": index.partition_metadata,
           "leader-epoch-checkpoint": index.leader_epochs, "offset-checkpoint": index.offset_checkpoint}
ZERO = f"{0:020}"


def reader_of(path):
    return next(read for end, read in READERS.items() if path.name.endswith(end))


def ids(log):
    return Path(log.directory).name


# ------------------------------------------------------------------------------------------- a broker's files

@pytest.mark.parametrize("log", LOGS, ids=ids)
def test_indexes_of_a_broker(log):
    for segment in log.segments:
        table = kafka.scan(segment.path)
        last = dict(zip(table["start"].tolist(), table["last_offset"].tolist()))
        entries = segment.offset_index()
        assert entries.dtype == index.OFFSETS and [last[at] for at in entries["position"].tolist()] == (
            entries["offset"].tolist())
        times = segment.time_index()
        assert times.dtype == index.TIMES and len(times) >= len(segment.offset_index()[:1])
        for stamp, offset in times.tolist():
            holds = (table["base_offset"] <= offset) & (table["last_offset"] >= offset)
            assert table["max_timestamp"][holds].tolist() == [stamp]
            assert stamp == table["max_timestamp"][table["last_offset"] <= offset].max(initial=stamp)


@pytest.mark.parametrize("log", LOGS, ids=ids)
def test_snapshots_of_a_broker(log):
    rows = kafka.open_log(log.directory).rows
    for offset, path in log.snapshots().items():
        producers = index.producer_snapshot(path)
        assert producers.dtype == index.PRODUCERS and len(set(producers["producer_id"])) == len(producers)
        for one in producers:
            mine = rows[(rows["producer_id"] == one["producer_id"]) & (rows["last_offset"] == one["last_offset"])]
            assert one["last_offset"] < offset and one["transaction_first_offset"] in (-1, 170)
            # A batch that holds the last sequence, unless the cleaner has been there, or the marker came after it.
            for batch in mine[mine["is_control"] == 0]:
                assert batch["producer_epoch"] == one["producer_epoch"]
                assert batch["last_offset"] - batch["base_offset"] == one["offset_delta"]
                assert batch["base_sequence"] + one["offset_delta"] == one["last_sequence"]
    assert len(log.snapshots())


def test_text_files_of_a_broker():
    orders = PartitionLog(CORPUS / "orders-0")
    assert orders.leader_epochs().tolist() == [(0, 0), (2, 24000)]
    assert orders.metadata() == (0, uuid.UUID("d6b74314-0c76-4057-8b15-1290323a2585"))
    assert len({log.metadata().topic_id for log in LOGS}) == len(LOGS)


# ------------------------------------------------------------------------------------------- made ones

def write(folder, name, raw):
    path = folder / name
    path.write_bytes(raw)
    return str(path)


def fault_of(read, path):
    with pytest.raises(FrameError) as caught:
        read(path)
    assert caught.value.source == path and str(caught.value)
    return Fault(caught.value.fault), caught.value.offset, caught.value.row


def test_offset_index(tmp_path):
    read = lambda *entries, tail=b"": index.offset_index(write(
        tmp_path, f"{10**12:020}.index", b"".join(struct.pack(">ii", *entry) for entry in entries) + tail)).tolist()
    assert read() == [] == read(tail=bytes(80))
    for tail in (b"", bytes(800)):
        assert read((5, 100), (9, 200), tail=tail) == [(10**12 + 5, 100), (10**12 + 9, 200)]
    path = str(tmp_path / f"{10**12:020}.index")
    for entries, row in ([(5, 100), (5, 200)], 1), ([(5, 100), (6, 100)], 1), ([(-1, 100)], 0), ([(5, 0)], 0), (
            [(5, 100), (0, 0), (6, 200)], 1):
        write(tmp_path, Path(path).name, b"".join(struct.pack(">ii", *entry) for entry in entries))
        assert fault_of(index.offset_index, path) == (Fault.NOT_A_FRAME, 8 * row, row)
    write(tmp_path, Path(path).name, struct.pack(">ii", 5, 100) + b"\0\0\0")
    assert fault_of(index.offset_index, path) == (Fault.TRUNCATED, 8, 1)
    with pytest.raises(ValueError):
        index.offset_index(write(tmp_path, "x.index", b""))
    with pytest.raises(OSError):
        index.offset_index(str(tmp_path / f"{7:020}.index"))


def test_time_index(tmp_path):
    path = write(tmp_path, f"{100:020}.timeindex", struct.pack(">qiqi", 50, 0, 60, 7) + bytes(24))
    assert index.time_index(path).tolist() == [(50, 100), (60, 107)]
    for pair in ((50, 0, 50, 7), (50, 8, 60, 7)):
        write(tmp_path, Path(path).name, struct.pack(">qiqi", *pair))
        assert fault_of(index.time_index, path) == (Fault.NOT_A_FRAME, 12, 1)
    write(tmp_path, Path(path).name, struct.pack(">qi", -1, 7))
    assert fault_of(index.time_index, path) == (Fault.NOT_A_FRAME, 0, 0)


def test_transaction_index(tmp_path):
    entry = lambda *numbers: struct.pack(">hqqqq", *numbers)
    good = entry(0, 7, 100, 200, 201) + entry(0, 8, 90, 210, 211)
    path = write(tmp_path, f"{150:020}.txnindex", good)
    assert index.transaction_index(path).tolist() == [(7, 100, 200, 201), (8, 90, 210, 211)]
    for bad, fault in ((entry(1, 7, 100, 300, 0), Fault.BAD_VERSION), (entry(0, 7, 100, 210, 0), Fault.NOT_A_FRAME),
                       (entry(0, 7, 300, 300, 0), Fault.NOT_A_FRAME), (bytes(34), Fault.NOT_A_FRAME),
                       (entry(0, 7, -1, 300, 0), Fault.NOT_A_FRAME), (bytes(33), Fault.TRUNCATED)):
        write(tmp_path, Path(path).name, good + bad)
        assert fault_of(index.transaction_index, path) == (fault, 68, 2)
    write(tmp_path, Path(path).name, entry(0, 7, 100, 149, 0))          # its marker is in the segment before
    assert fault_of(index.transaction_index, path) == (Fault.NOT_A_FRAME, 0, 0)


def test_producer_snapshot(tmp_path):
    def made(count, body, version=1):
        rest = struct.pack(">i", count) + body
        return write(tmp_path, f"{9:020}.snapshot", struct.pack(">hI", version, crc32c(rest)) + rest)
    one = struct.pack(">qhiqiqiq", 1, 2, 3, 4, 5, 6, 7, 8)
    assert index.producer_snapshot(made(1, one)).tolist() == [(1, 2, 3, 4, 5, 6, 7, 8)]
    assert index.producer_snapshot(made(0, b"")).tolist() == []
    for arguments, fault in (((2, one), Fault.BAD_COUNT), ((0, one), Fault.BAD_COUNT), ((-1, one), Fault.BAD_COUNT),
                             ((2**31 - 1, b""), Fault.BAD_COUNT), ((1, one, 2), Fault.BAD_VERSION)):
        assert fault_of(index.producer_snapshot, made(*arguments))[0] == fault
    path = write(tmp_path, f"{9:020}.snapshot", b"\0\1\0")
    assert fault_of(index.producer_snapshot, path)[0] == Fault.TRUNCATED


def test_checkpoints(tmp_path):
    read = lambda text: index.offset_checkpoint(write(tmp_path, "replication-offset-checkpoint", text))
    assert read(b"0\n0\n") == {}
    assert read(b"0\n2\na.b-c_d 0 7\na.b-c_d 12 9223372036854775807\n") == {
        ("a.b-c_d", 0): 7, ("a.b-c_d", 12): 2**63 - 1}
    path = str(tmp_path / "replication-offset-checkpoint")
    for text, wanted in ((b"", (Fault.TRUNCATED, 0, 0)), (b"0\n", (Fault.TRUNCATED, 2, 1)),
                         (b"1\n0\n", (Fault.BAD_VERSION, 0, 0)), (b"0\n1\n", (Fault.BAD_COUNT, 2, 1)),
                         (b"0\n1\na 0 7\nb 0 7\n", (Fault.BAD_COUNT, 2, 1)), (b"0\n1\na 0 7", (Fault.TRUNCATED, 4, 2)),
                         (b"0\n1\na 0 -7\n", (Fault.NOT_A_FRAME, 4, 2)),
                         (b"0\n1\na b 0 7\n", (Fault.NOT_A_FRAME, 4, 2)),
                         (b"0\n1\na 0 9223372036854775808\n", (Fault.NOT_A_FRAME, 4, 2)),
                         (b"0\n1\na 0 " + b"9" * 5000 + b"\n", (Fault.NOT_A_FRAME, 4, 2)),
                         (b"0\n1\n\xff 0 7\n", (Fault.NOT_A_FRAME, 4, 2)), (b"x\n", (Fault.NOT_A_FRAME, 0, 0)),
                         (b"0\r\n0\r\n", (Fault.NOT_A_FRAME, 0, 0)), (b"\n\n", (Fault.NOT_A_FRAME, 0, 0))):
        write(tmp_path, Path(path).name, text)
        assert fault_of(index.offset_checkpoint, path) == wanted
    read = lambda text: index.leader_epochs(write(tmp_path, "leader-epoch-checkpoint", text))
    assert read(b"0\n2\n3 0\n5 70\n").tolist() == [(3, 0), (5, 70)] and read(b"0\n0\n").tolist() == []
    path = write(tmp_path, "leader-epoch-checkpoint", b"0\n2\n3 0\n3 70\n")
    assert fault_of(index.leader_epochs, path) == (Fault.NOT_A_FRAME, 8, 1)


def test_metadata(tmp_path):
    topic = uuid.UUID(int=2**127 + 12345)
    text = base64.urlsafe_b64encode(topic.bytes).rstrip(b"=")
    read = lambda raw: index.partition_metadata(write(tmp_path, "partition.metadata", raw))
    assert read(b"version: 0\ntopic_id: " + text) == read(b"version: 0\ntopic_id: " + text + b"\n") == (0, topic)
    path = str(tmp_path / "partition.metadata")
    for raw, fault in ((b"version: 1\ntopic_id: " + text, Fault.BAD_VERSION), (b"", Fault.NOT_A_FRAME),
                       (b"version: 0\ntopic_id: " + text[:-1], Fault.NOT_A_FRAME)):
        write(tmp_path, Path(path).name, raw)
        assert fault_of(index.partition_metadata, path)[0] == fault


# ------------------------------------------------------------------------------------------- hostile bytes

def hostile_files():
    """One real file of each kind, and a checkpoint. The longest is cut where its zeros begin, a few entries later."""
    some = [f"orders-0/{ZERO}.index", f"orders-0/{ZERO}.timeindex", f"live-0/{480:020}.timeindex",
            f"orders-0/{24800:020}.txnindex", f"open-0/{302:020}.snapshot", "orders-0/leader-epoch-checkpoint",
            "orders-0/partition.metadata"]
    files = [(Path(name).name, (CORPUS / name).read_bytes()) for name in some]
    return [(name, raw[:len(raw.rstrip(b"\0")) // 12 * 12 + 60]) for name, raw in files] + [
        ("log-start-offset-checkpoint", b"0\n2\norders 0 12\norders 1 77\n")]


@pytest.mark.parametrize("name, raw", hostile_files(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_byte_changed_and_every_cut(tmp_path, name, raw):
    """FrameError, or an array: what is still a possible file is one. A snapshot has a checksum: no change passes."""
    path, read = tmp_path / name, reader_of(Path(name))
    for at in range(len(raw)):
        for value in {raw[at] ^ 1, raw[at] ^ 0x80, 0, 0xFF, 0x2D, 0x0A} - {raw[at]}:
            path.write_bytes(raw[:at] + bytes([value]) + raw[at + 1:])
            try:
                read(str(path))
            except FrameError as error:
                assert error.source == str(path) and 0 <= error.offset <= len(raw)
            else:
                assert not name.endswith(".snapshot")
        path.write_bytes(raw[:at])
        try:
            read(str(path))
        except FrameError:
            pass
        else:
            assert not name.endswith(".snapshot")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.binary(max_size=120) | st.text("01 -:\nab", max_size=40).map(str.encode))
def test_any_bytes(tmp_path_factory, kind, raw):
    name = kind if not kind.startswith(".") else ZERO + kind
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(raw)
    try:
        READERS[kind](str(path))
    except FrameError as error:
        assert 0 <= error.offset <= len(raw)


def test_a_file_larger_than_any(tmp_path):
    path = tmp_path / f"{ZERO}.index"
    with open(path, "wb") as file:
        file.truncate(1 << 42)
    assert fault_of(index.offset_index, str(path))[0] == Fault.BAD_LENGTH


def test_a_whole_directory_with_noise_beside_its_segments(tmp_path):
    """Reading a part, and what is committed, is the same without any of the files, and with noise in each."""
    want = kafka.open_log(CORPUS / "open-0", isolation="read_committed", start=5).rows.tobytes()
    for noise in (None, b"", b"noise", bytes(4096)):
        folder = tmp_path / "open-0"
        shutil.copytree(CORPUS / "open-0", folder)
        for path in folder.iterdir():
            if path.suffix != ".log":
                path.unlink()
                if noise is not None:
                    path.write_bytes(noise)
        assert kafka.open_log(folder, isolation="read_committed", start=5).rows.tobytes() == want
        shutil.rmtree(folder)
