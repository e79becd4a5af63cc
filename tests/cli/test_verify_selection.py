"""`wirescan verify` with the options that select frames: what is checked, and what is not."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from tests.strategies.kafka_log import make_segments
from tests.support.command import parse_lines, run
from tests.support.paths import CORPUS, ORDERS
from tests.support.thrift_bytes import make_binary_message, make_capture, make_framed
from wirescan import lumberjack, nats
from wirescan.core.checksum import crc32c
from wirescan.kafka import Record, encode_batch
from wirescan.thrift.constants import MessageType

TIME = 1_700_000_000_000
SUMMARY = ("selected", "selected_of", "selected_format")


def list_lines(*arguments: object) -> list[dict]:
    """Return the lines of `verify --json`, without the counts of selected rows."""
    result = run("verify", *arguments, "--json")
    lines = parse_lines(result)
    damage = any(line["kind"] == "damage" for line in lines)
    assert result.exit_code == damage, result.output
    return [{name: line[name] for name in line if name not in SUMMARY} for line in lines]


def read_summary(*arguments: object) -> dict:
    return parse_lines(run("verify", *arguments, "--json"))[-1]


def list_faults(*arguments: object) -> set[tuple]:
    """Return the damage that `verify` reports: file, position, size, fault and where inside."""
    names = ("file", "offset", "size", "fault", "meaning", "inside", "inflated_offset")
    return {
        tuple(line.get(name) for name in names)
        for line in list_lines(*arguments)
        if line["kind"] == "damage"
    }


def list_offsets(*arguments: object) -> list[int]:
    """Return the positions of the faults in their files."""
    return sorted(fault[1] for fault in list_faults(*arguments))


def encode_records(first: int, count: int = 10, codec: str = "zstd") -> bytes:
    records = [
        Record(first + i, TIME + first + i, b"key-%d" % (i % 3), b"v" * 40) for i in range(count)
    ]
    return encode_batch(records, codec=codec)


def break_records(batch: bytes) -> bytes:
    """Return a batch that states one record more than it has. Its checksum is right."""
    raw = bytearray(batch)
    raw[57:61] = (int.from_bytes(raw[57:61], "big") + 1).to_bytes(4, "big")
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def flip(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


@pytest.fixture
def log(tmp_path) -> tuple[Path, list[int]]:
    """A segment of ten batches of ten records, and the positions of the batches.

    The records of the batches 2 and 7 are damaged, and the header of batch 5.
    """
    batches = [encode_records(10 * i, codec=["zstd", "none"][i % 2]) for i in range(10)]
    batches[2] = break_records(batches[2])
    batches[7] = break_records(batches[7])
    batches[5] = flip(batches[5], 30)  # its largest timestamp, which the checksum covers
    folder = tmp_path / "orders-0"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    return path, [sum(map(len, batches[:i])) for i in range(10)]


# ---- what is checked


def test_damage_inside_the_selection_is_reported_and_outside_it_is_not(log):
    path, starts = log
    assert list_offsets(path) == [starts[2], starts[5], starts[7]]
    assert list_offsets(path, "--offset", "20:30") == [starts[2], starts[5]]
    assert list_offsets(path, "--offset", "70:") == [starts[5], starts[7]]
    assert list_offsets(path, "--where", "offset >= 30 and offset < 50") == [starts[5]]
    assert list_offsets(path, "--where", "codec == none") == [starts[5], starts[7]]
    # A header does not say which keys are in its batch, so it excludes none.
    assert list_offsets(path, "--key", "nobody") == [starts[2], starts[5], starts[7]]


def test_a_damaged_header_excludes_nothing(log):
    path, starts = log
    for condition in ("offset == 3", f"timestamp > {TIME + 95}", "codec == gzip"):
        (fault,) = [line for line in list_lines(path, "--where", condition) if "fault" in line]
        assert (fault["offset"], fault["fault"]) == (starts[5], "BAD_CHECKSUM")
        assert (fault["lost_first"], fault["lost_last"], fault["lost_records"]) == (50, 59, 10)


def test_losses_are_those_of_the_whole_log(log):
    path, _ = log

    def list_losses(*options: str) -> list[dict]:
        return [line for line in list_lines(path, *options) if "offset" in line]

    losses = list_losses("--offset", "20:30")
    assert [line["kind"] for line in losses] == ["damage", "damage", "gap"]
    assert losses == [line for line in list_losses() if line in losses]
    assert read_summary(path, "--offset", "20:30")["lost_records"] == 11


def test_the_summary_counts_the_selected_rows(log):
    path, _ = log
    summary = read_summary(path, "--offset", "25:45")
    assert (summary["selected"], summary["selected_of"]) == (20, 30)
    assert summary["selected_format"] == "kafka.records"
    assert (summary["frames"], summary["records"]) == (3, 30)
    text = run("verify", path, "--offset", "25:45").stdout
    assert "selected: 20 of 30 kafka.records in the checked frames\n" in text
    assert not set(SUMMARY) & set(read_summary(path))


def test_the_rows_are_those_that_scan_reads(log):
    path, _ = log
    scanned = run("scan", path, "--key", "key-1", "--errors", "skip", "--json")
    assert read_summary(path, "--key", "key-1")["selected"] == len(parse_lines(scanned))
    # Without --deep, and where the user asks for batches, they are batches.
    for options in (["--shallow"], ["--format", "kafka.batches"]):
        summary = read_summary(path, "--where", "codec == none", *options)
        assert (summary["selected"], summary["selected_of"]) == (4, 4)
        assert summary["selected_format"] == "kafka.batches"
    refused = run("verify", path, "--key", "a", "--shallow")
    assert refused.exit_code == 2
    assert "kafka.batches has no keys" in refused.stderr


def test_limit_and_tail(log):
    path, starts = log
    assert list_offsets(path, "--limit", 20) == []
    assert list_offsets(path, "--limit", 21) == [starts[2]]
    assert list_offsets(path, "--limit", 30) == [starts[2]]
    summary = read_summary(path, "--limit", 25)
    assert (summary["selected"], summary["selected_of"], summary["frames"]) == (25, 30, 3)
    assert summary["bytes"] == starts[3]
    assert read_summary(path, "--key", "key-1", "--limit", 4)["frames"] == 2
    assert read_summary(path, "--tail", 5)["selected"] == 5
    for option in ("--limit", "--tail"):
        summary = read_summary(path, option, 0)
        assert (summary["clean"], summary["files"], summary["frames"]) == (True, 0, 0)


def test_a_limit_ends_at_the_frame_of_its_last_row_in_a_later_file(tmp_path):
    for i in range(3):
        (tmp_path / f"{10 * i:020}.log").write_bytes(encode_records(10 * i))
    last = tmp_path / f"{20:020}.log"
    last.write_bytes(last.read_bytes() + break_records(encode_records(30)))
    assert list_faults(tmp_path, "--limit", 30) == set()
    assert len(list_faults(tmp_path, "--limit", 31)) == 1
    assert read_summary(tmp_path, "--limit", 15)["files"] == 2


def test_a_sample_is_refused(log):
    result = run("verify", log[0], "--sample", "0.5")
    assert result.exit_code == 2
    assert "--sample has no meaning here" in result.stderr


def test_nothing_is_selected():
    result = run("verify", ORDERS, "--where", "offset > 1000000")
    assert result.exit_code == 0
    assert "0 files, 0 frames, 0 records, 0 bytes: nothing was selected" in result.stdout


# ---- the files beside a log


@pytest.fixture
def segments(tmp_path) -> Path:
    """Four segments of large batches with indexes, so that parts of a segment are read."""
    folder = tmp_path / "orders-0"
    draw = random.Random(5)
    value = draw.randbytes(5_000)
    content = []
    for base in range(0, 80, 20):
        batches = [
            encode_batch([Record(i, TIME + i, b"k", value), Record(i + 1, TIME + i, b"k", value)])
            for i in range(base, base + 20, 2)
        ]
        content.append((base, batches))
    make_segments(folder, content)
    return folder


def damage_index(folder: Path, base: int) -> None:
    index = folder / f"{base:020}.index"
    raw = bytearray(index.read_bytes())
    raw[3] ^= 0xFF  # the offset of the first entry
    index.write_bytes(raw)


def test_a_part_of_a_log_is_clean(segments):
    assert run("verify", segments).exit_code == 0
    for options in ("--offset 30:34", "--offset 25:70", "--offset 44:", "--tail 3", "--limit 27"):
        assert list_faults(segments, *options.split()) == set()
        result = run("verify", segments, *options.split())
        assert "gap" not in result.stdout, options
    (segments / f"{40:020}.log").unlink()  # a missing segment is damage where it is not excluded
    assert list_faults(segments)
    assert list_faults(segments, "--offset", ":30") == set()


def test_indexes_are_checked_where_the_whole_segment_is_read(segments):
    damage_index(segments, 20)
    assert {Path(fault[0]).name for fault in list_faults(segments)} == {f"{20:020}.index"}
    assert list_faults(segments, "--where", "key == 'k'") == list_faults(segments)
    assert list_faults(segments, "--where", "size > 10") == list_faults(segments)
    assert list_faults(segments, "--offset", "60:") == set()
    assert list_faults(segments, "--offset", "66:70") == set()
    assert list_faults(segments, "--offset", "26:28") == set()


def test_times_of_an_index_are_not_compared_with_a_part(segments):
    index = segments / f"{20:020}.timeindex"
    raw = bytearray(index.read_bytes())
    for at in range(7, len(raw), 12):
        raw[at] ^= 1  # the time of each entry
    index.write_bytes(raw)
    assert len(list_faults(segments, "--where", "offset >= 0")) > 5
    assert list_faults(segments, "--offset", "24:32") == set()
    assert list_faults(segments, "--limit", 100) == list_faults(segments)


def test_segments_that_are_not_neighbours_do_not_continue_each_other(segments):
    result = run("verify", segments, "--where", '_file !~ "0020.log"')
    assert result.exit_code == 0
    assert result.stdout.startswith("3 files, 30 frames, 60 records")
    assert "gap" not in result.stdout


def test_an_excluded_segment_after_damage_is_not_missing(segments):
    path = segments / f"{20:020}.log"
    raw = path.read_bytes()
    path.write_bytes(raw[: -(len(raw) // 10) + 10])  # what remains of the last batch claims nothing
    (fault,) = list_faults(segments, "--offset", "36:40")
    assert fault in list_faults(segments)
    assert read_summary(segments, "--offset", "36:40")["lost_records"] == 2


def test_a_damaged_frame_at_the_end_of_a_part_is_read_whole(segments):
    """The batch before the part's end states a size that reaches above it."""
    path = segments / f"{20:020}.log"
    raw = path.read_bytes()
    size = len(raw) // 10
    at = 5 * size
    path.write_bytes(raw[: at + 8] + (2 * size).to_bytes(4, "big") + raw[at + 12 :])
    all_faults = list_faults(segments)
    assert [fault[1] for fault in all_faults] == [at]
    for stop in range(30, 36):
        assert list_faults(segments, "--offset", f"24:{stop}") <= all_faults
    assert list_faults(segments, "--offset", "24:33") == all_faults


def test_the_end_of_a_cut_segment_is_damage_only_if_it_is_selected(segments):
    path = segments / f"{20:020}.log"
    path.write_bytes(path.read_bytes()[:-200])
    assert len(list_faults(segments)) >= 1
    assert list_faults(segments, "--offset", "0:30") == set()
    assert len(list_faults(segments, "--offset", "38:40")) == 1
    assert read_summary(segments, "--offset", "38:40")["lost_records"] == 2
    # What follows is read without the batches before it.
    assert list_faults(segments, "--offset", "40:") == set()
    assert list_faults(segments, "--offset", "50:") == set()


def test_a_wrong_offset_before_the_selection_is_no_fault_of_it(tmp_path):
    folder = tmp_path / "orders-0"
    value = random.Random(3).randbytes(5_000)
    batches = [
        encode_batch([Record(i, TIME + i, b"k", value), Record(i + 1, TIME + i, b"k", value)])
        for i in range(0, 20, 2)
    ]
    make_segments(folder, [(0, batches)])
    for wrong in range(10):
        moved = list(batches)
        moved[wrong] = (1000).to_bytes(8, "big") + batches[wrong][8:]
        (folder / f"{0:020}.log").write_bytes(b"".join(moved))
        all_faults = list_faults(folder)
        for start in range(0, 20, 2):
            assert list_faults(folder, "--offset", f"{start}:") <= all_faults, (wrong, start)


# ---- laws

CONDITIONS = {
    "kafka": (
        "offset >= 33",
        "offset < 33",
        "offset in (12, 57)",
        f"timestamp >= {TIME + 30}",
        'key == "key-1"',
        "codec == none or offset > 50",
        "size < 60",
    ),
    "liftbridge": ("offset >= 15", "offset < 9", "key == null", "timestamp > 0", "size < 60"),
    "lumberjack": ("sequence >= 3", "count == 3", "size > 40", "kind == J"),
    "thrift": ("kind == CALL", "protocol == binary", "size > 60", "seqid < 5"),
    "nats": ("kind == PUB", "kind == MSG", "size > 40", "fault != null"),
}
ALWAYS = "_start >= 0 or fault != null or _start == null"


def make_log(name: str, draw: random.Random) -> list[bytes]:
    """Return the frames of a file."""
    if name == "kafka":
        codecs = ["none", "gzip", "zstd", "snappy", "lz4"]
        batches = [encode_records(10 * i, codec=draw.choice(codecs)) for i in range(9)]
        broken = draw.randrange(9)
        return [*batches[:broken], break_records(batches[broken]), *batches[broken + 1 :]]
    if name == "liftbridge":
        path = next((CORPUS / "liftbridge" / "single").glob("**/orders-0/*.log"))
        return [path.read_bytes()]
    if name == "lumberjack":
        frames = []
        for first in range(0, 12, 3):
            events = [{"n": first + i, "text": "a" * 9} for i in range(3)]
            level = draw.choice([None, 6])
            frames.append(lumberjack.encode_batch(events, sequence=first + 1, level=level))
        return frames
    if name == "thrift":
        calls = [
            make_framed(make_binary_message(b"add", kind, number, b"\0"))
            for number, kind in enumerate([MessageType.CALL, MessageType.REPLY] * 4)
        ]
        return [make_capture(0, 30), *calls]
    return [bytes(nats.encode_pub(f"s.{i}", b"x" * 10 * i)) for i in range(9)]


def damage(frames: list[bytes], draw: random.Random) -> bytes:
    """Return frames with some damage: flipped bits, a cut, lost or strange bytes."""
    raw = bytearray(b"".join(frames))
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(raw))
        match draw.randrange(4):
            case 0 | 1:
                raw[at] ^= 1 << draw.randrange(8)
            case 2:
                del raw[at : at + draw.randrange(1, 60)]
            case 3:
                raw[at:at] = draw.randbytes(draw.randrange(1, 60))
    return bytes(raw)


FORMATS = {
    "kafka": "kafka.records",
    "liftbridge": "liftbridge.entries",
    "lumberjack": "lumberjack.events",
    "thrift": "thrift.messages",
    "nats": "nats.messages",
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_faults_are_a_subset_of_those_of_a_whole_verification(name, tmp_path):
    draw = random.Random(name)
    format = ("--format", FORMATS[name])
    path = tmp_path / "00000000000000000000.log"
    fewer = 0
    for _ in range(12):
        path.write_bytes(damage(make_log(name, draw), draw))
        all_lines = list_lines(path, *format)
        all_faults = list_faults(path, *format)
        assert list_lines(path, *format, "--where", ALWAYS) == all_lines
        for condition in CONDITIONS[name]:
            faults = list_faults(path, *format, "--where", condition)
            assert faults <= all_faults, condition
            fewer += faults < all_faults
        for count in (1, 7):
            assert list_faults(path, *format, "--limit", count) <= all_faults
    assert fewer or name != "kafka"


@pytest.mark.parametrize("seed", range(6))
def test_faults_of_a_damaged_directory_are_a_subset(segments, seed):
    draw = random.Random(seed)
    for _ in range(2):
        path = draw.choice(sorted(segments.iterdir()))
        raw = path.read_bytes()
        if raw:
            path.write_bytes(damage([raw], draw))
    all_faults = list_faults(segments)
    assert list_lines(segments, "--where", "offset >= 0") == list_lines(segments)
    for _ in range(12):
        low, high = sorted(draw.sample(range(82), 2))
        for options in (["--offset", f"{low}:{high}"], ["--offset", f"{low}:"], ["--tail", high]):
            assert list_faults(segments, *options) <= all_faults, options


# ---- other formats


def test_a_capture(tmp_path):
    path = CORPUS / "pcap" / "kafka.pcap"
    requests = ("--format", "kafka.requests")
    summary = read_summary(path, *requests, "--where", "api_key == 1")
    scanned = run("scan", path, *requests, "--where", "api_key == 1", "--json")
    assert summary["selected"] == len(parse_lines(scanned)) > 0
    assert summary["frames"] == summary["selected"] < read_summary(path, *requests)["frames"]
    assert read_summary(path, *requests, "--limit", 3)["frames"] == 3
    assert read_summary(path, *requests, "--limit", 3)["bytes"] == path.stat().st_size
    records = ("--format", "kafka.records")
    assert read_summary(path, *records, "--where", "offset >= 0")["selected"] == 24
    # Without --format, packets are verified.
    summary = read_summary(path, "--where", "size > 60")
    assert summary["selected_format"] == "pcap.packets"
    damaged = tmp_path / "damaged.pcap"
    raw = bytearray(path.read_bytes())
    at = raw.index(b"orders")
    raw[at - 30 : at + 30] = random.Random(1).randbytes(60)
    damaged.write_bytes(raw)
    for condition in ("api_key == 1", "size > 100", 'client == "nobody"'):
        for format in (requests, records):
            if format is records and condition.startswith("api_key"):
                continue
            faults = list_faults(damaged, *format, "--where", condition)
            assert faults <= list_faults(damaged, *format)


def test_liftbridge_entries(tmp_path):
    folder = tmp_path / "orders-0"
    shutil.copytree(next((CORPUS / "liftbridge" / "single").glob("**/orders-0")), folder)
    path = next(folder.glob("*.log"))
    lines = parse_lines(run("scan", folder, "--json", "--columns", "offset,_start,size"))
    fifth = lines[5]
    raw = bytearray(path.read_bytes())
    raw[fifth["_start"] + fifth["size"] - 1] ^= 1
    path.write_bytes(raw)
    assert list_offsets(folder, "--offset", f"{lines[3]['offset']}:") == [fifth["_start"]]
    # The fault is in a row that has no offset to trust, so it is reported wherever it is read.
    assert list_offsets(path, "--where", "offset == 0") in ([], [fifth["_start"]])
    summary = read_summary(folder, "--where", f"offset >= {lines[10]['offset']}")
    assert summary["selected"] == len(lines) - 10


def test_nats_messages(tmp_path):
    path = tmp_path / "a.nats"
    path.write_bytes(b"".join(bytes(nats.encode_pub(f"s.{i}", b"x" * i)) for i in range(5)))
    summary = read_summary(path, "--format", "nats.messages", "--where", 'subject ~ "[13]"')
    assert (summary["selected"], summary["selected_of"]) == (2, 2)


def test_thrift_messages(tmp_path):
    path = tmp_path / "a.theader"
    good = [make_framed(make_binary_message(b"add", MessageType.CALL, i, b"\0")) for i in range(4)]
    bad = make_framed(make_binary_message(b"add", 9, 7, b"\0"))
    unknown = make_framed(struct.pack(">HHIH", 0x0FFF, 0, 0, 9) + bytes(8))
    path.write_bytes(b"".join([*good[:2], bad, unknown, *good[2:]]))
    positions = list_offsets(path)
    assert len(positions) == 2
    assert list_offsets(path, "--where", "kind == CALL") == positions
    assert list_offsets(path, "--where", "_start > 1000000") == [positions[1]]


def test_frames_that_are_records_are_counted_once():
    result = run("verify", CORPUS / "kafka-connect-backup" / "orders")
    assert result.stdout == "2 files, 240 frames, 34,509 bytes: clean\n"
