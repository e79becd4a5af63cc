"""A part of a log as a segment: whole batches that hold a selected record."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import run
from tests.support.paths import CORPUS, KAFKA_CORPUS, ORDERS
from wirescan import kafka, liftbridge
from wirescan.kafka import Record, encode_batch

BATCHES = kafka.scan(sorted(map(str, ORDERS.glob("*.log"))))
RECORDS = kafka.records(BATCHES)
LIFTBRIDGE_LOG = CORPUS / "liftbridge" / "single" / "logs" / "orders-0"


def expect(selected: np.ndarray) -> bytes:
    """Return the bytes of the batches that hold any of the selected records."""
    rows = np.unique(RECORDS["parent"][selected])
    return b"".join(bytes(BATCHES.frame(int(row))) for row in rows)


@pytest.mark.parametrize(
    "text, first, stop",
    [
        ("1000:2000", 1000, 2000),
        ("4159:4161", 4159, 4161),
        ("27000:", 27000, 1 << 62),
        (":5", 0, 5),
        ("1480", 1480, 1481),
    ],
)
def test_the_batches_of_a_range_of_offsets(text, first, stop, tmp_path):
    result = run("cut", ORDERS, "--offset", text, "-o", tmp_path / "part.log")
    assert result.exit_code == 0, result.stderr
    selected = (RECORDS["offset"] >= first) & (RECORDS["offset"] < stop)
    assert (tmp_path / "part.log").read_bytes() == expect(selected)
    assert run("verify", tmp_path / "part.log").exit_code == 0


def test_the_batches_of_a_range_of_times(tmp_path):
    low, high = np.quantile(RECORDS["timestamp"], [0.4, 0.6]).astype(np.int64).tolist()
    since, until = (str(np.datetime64(time, "ms")) + "Z" for time in (low, high))
    result = run("cut", ORDERS, "--since", since, "--until", until, "-o", tmp_path / "part.log")
    assert result.exit_code == 0, result.stderr
    selected = (RECORDS["timestamp"] >= low) & (RECORDS["timestamp"] < high)
    assert (tmp_path / "part.log").read_bytes() == expect(selected)


@pytest.mark.parametrize(
    "options, offsets",
    [
        (("--offset", "3:5"), [3, 4]),
        (("--offset", "18:"), [18, 19]),
        (("--where", "offset >= 3 and offset in (1, 3, 19)"), [3, 19]),
    ],
)
def test_a_log_whose_frames_are_its_records(options, offsets, tmp_path):
    part = tmp_path / "part.log"
    arguments = ("--format", "liftbridge.entries", "-o", part)
    result = run("cut", LIFTBRIDGE_LOG, *options, *arguments)
    assert result.exit_code == 0, result.output
    assert liftbridge.entries(part)["offset"].tolist() == offsets


def test_the_batches_of_a_condition(tmp_path):
    key = RECORDS[len(RECORDS) // 2].key
    where = f"key == 0x{bytes(key).hex()}"
    result = run("cut", ORDERS, "--where", where, "-o", tmp_path / "part.log")
    assert result.exit_code == 0, result.stderr
    selected = np.array([record.key == key for record in RECORDS])
    assert (tmp_path / "part.log").read_bytes() == expect(selected)


def test_a_batch_with_a_hole_at_the_selected_offset_is_not_written(tmp_path):
    """Its range has the offset, but no record has it."""
    rows = [Record(offset, 1, None, b"v") for offset in (0, 1, 5, 6)]
    (tmp_path / "log").write_bytes(encode_batch(rows))
    result = run("cut", tmp_path / "log", "--offset", "2:5", "-o", tmp_path / "part.log")
    assert result.exit_code == 2
    assert "no record is selected" in result.stderr
    assert not (tmp_path / "part.log").exists()


@pytest.mark.parametrize("name", ["magic1-gzip.bin", "magic0-none.bin"])
def test_messages_of_old_magics(name, tmp_path):
    source = KAFKA_CORPUS / "fetched" / name
    records = kafka.records(kafka.scan(source))
    offset = int(records["offset"][len(records) // 2])
    result = run("cut", source, "--offset", offset, "-o", tmp_path / "part.log")
    assert result.exit_code == 0, result.stderr
    part = kafka.scan(tmp_path / "part.log")
    assert len(part) == 1
    assert offset in kafka.records(part)["offset"]


def test_a_directory_has_segments_with_indexes(tmp_path):
    result = run("cut", ORDERS, "--offset", "1400:9000", "--to", tmp_path / "part")
    assert result.exit_code == 0, result.stderr
    folder = tmp_path / "part" / "orders-0"
    selected = (RECORDS["offset"] >= 1400) & (RECORDS["offset"] < 9000)
    segments = sorted(folder.glob("*.log"))
    assert b"".join(path.read_bytes() for path in segments) == expect(selected)
    assert [int(path.stem) for path in segments][1:] == [1480, 4160, 8160]
    whole = f"{4160:020}.index"
    assert (folder / whole).read_bytes() == (ORDERS / whole).read_bytes()
    assert run("verify", folder).exit_code == 0
    assert run("cut", ORDERS, "--offset", "1:2", "--to", tmp_path / "part").exit_code == 2


def test_input_of_any_kind(tmp_path):
    raw = (ORDERS / f"{0:020}.log").read_bytes()
    piped = run("cut", "-", "--offset", "100:200", "-o", tmp_path / "a.log", input=raw)
    assert piped.exit_code == 0, piped.stderr
    (tmp_path / "x.gz").write_bytes(gzip.compress(raw))
    run("cut", tmp_path / "x.gz", "--offset", "100:200", "-o", tmp_path / "b.log")
    run("cut", ORDERS, "--offset", "100:200", "-o", tmp_path / "c.log")
    parts = [(tmp_path / f"{name}.log").read_bytes() for name in "abc"]
    assert parts[0] == parts[1] == parts[2] != b""


def test_damage_ends_the_cut_and_leaves_nothing(tmp_path):
    copy = Path(shutil.copytree(ORDERS, tmp_path / "orders-0"))
    path = copy / f"{1480:020}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    for option in ("-o", "--to"):
        result = run("cut", copy, "--offset", "1000:2000", option, tmp_path / "part")
        assert result.exit_code == 1
        assert "BAD_CHECKSUM" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["orders-0"]


@pytest.mark.parametrize("option, offsets", [("-o", "0:"), ("--to", "15:"), ("-o", "10:20")])
def test_a_cut_frame_at_the_end_of_a_file_is_named(option, offsets, tmp_path):
    batches = [encode_batch([Record(first + i, 0) for i in range(10)]) for first in (0, 10, 20)]
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(batches[0] + batches[1][:-3])
    (folder / f"{20:020}.log").write_bytes(batches[2])
    result = run("cut", folder, "--offset", offsets, option, tmp_path / "out")
    assert result.exit_code == (2 if offsets == "10:20" else 0)
    size = len(batches[1]) - 3
    assert f"tail: {size} bytes, cut frame at byte {len(batches[0])} of" in result.stderr


def test_a_file_without_a_frame_is_damage(tmp_path):
    (tmp_path / "a.log").write_bytes(encode_batch([Record(0, 0)]))
    (tmp_path / "b.log").write_bytes(b"text")
    result = run("cut", tmp_path / "a.log", tmp_path / "b.log", "--offset", "0:", "-o", "-")
    assert result.exit_code == 1
    assert "with no frame before it" in result.stderr


@pytest.mark.parametrize(
    "options, message",
    [
        (["-o", "x"], "say which part"),
        (["--offset", "1:2"], "either -o FILE or --to DIR"),
        (["--offset", "a:2", "-o", "x"], "is not A:B"),
        (["--offset", ":", "-o", "x"], "is not A:B"),
        (["--since", "noon", "-o", "x"], "is not a date or time"),
        (["--where", "size > 1", "-o", "x", "--format", "thrift.messages"], "no log offsets"),
    ],
)
def test_wrong_options(options, message):
    result = run("cut", ORDERS, *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_two_logs_are_not_one_segment(tmp_path):
    result = run("cut", ORDERS, KAFKA_CORPUS / "open-0", "--offset", "0:9", "-o", tmp_path / "x")
    assert result.exit_code == 2
    assert "the offsets do not rise" in result.stderr


def test_a_batch_without_a_selected_record_is_not_written(tmp_path):
    """Compaction removed the records at the end of one batch, and all records of another."""
    rows = [Record(offset, 1, None, b"v") for offset in (0, 1)]
    first = encode_batch(rows, last_offset=9)
    empty = encode_batch([], base_offset=10, last_offset=19)
    last = encode_batch([Record(20, 1, None, b"v")])
    (tmp_path / "log").write_bytes(first + empty + last)
    for text, expected in (("5:30", last), ("10:30", last), ("1:21", first + last)):
        result = run("cut", tmp_path / "log", "--offset", text, "-o", tmp_path / "part.log")
        assert result.exit_code == 0, result.stderr
        assert (tmp_path / "part.log").read_bytes() == expected
