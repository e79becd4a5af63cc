"""`wirescan scan --follow`: rows appear as files grow and as pipes bring bytes."""

import json
import os
import subprocess
import time

import pytest

from tests.support.command import run
from tests.support.follower import SECONDS, append, start
from wirescan.kafka import Record, encode_batch


def make_batch(offset):
    return encode_batch([Record(offset, 1_700_000_000_000, b"k", b"v" * (offset % 7))])


@pytest.fixture
def log(tmp_path):
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(make_batch(0) + make_batch(1))
    return folder


def test_rows_of_a_growing_log(log):
    first = log / f"{0:020}.log"
    with start(log, "--follow", "--json") as follower:
        assert follower.read_offsets(2) == [0, 1]
        batch = make_batch(2)
        append(first, batch[:40])
        assert follower.read_soon() is None  # a frame that is cut is no damage yet
        append(first, batch[40:] + make_batch(3))
        assert follower.read_offsets(2) == [2, 3]
        second = log / f"{4:020}.log"
        second.write_bytes(b"".join(map(make_batch, range(4, 7))))
        assert follower.read_offsets(3) == [4, 5, 6]
        append(second, make_batch(7))
        assert follower.read_offsets(1) == [7]
        assert follower.interrupt() == "wirescan: interrupted"


def test_the_last_rows_come_first(log):
    with start(log, "-f", "--json", "--tail", 1, "--where", "offset != 1") as follower:
        assert follower.read_offsets(1) == [0]
        append(log / f"{0:020}.log", make_batch(1) + make_batch(2))
        assert follower.read_offsets(1) == [2]
        assert follower.read_soon() is None


def test_a_limit_ends_the_command(log):
    with start(log, "--follow", "--json", "--limit", 3) as follower:
        assert follower.read_offsets(2) == [0, 1]
        append(log / f"{0:020}.log", make_batch(2) + make_batch(3))
        assert follower.read_offsets(1) == [2]
        assert follower.process.wait(SECONDS) == 0


def test_a_file_that_is_cut_is_reported_and_read_on(log):
    path = log / f"{0:020}.log"
    batches = list(map(make_batch, range(100)))
    path.write_bytes(b"".join(batches))
    with start(log, "--follow", "--json") as follower:
        assert follower.read_offsets(100) == list(range(100))
        os.truncate(path, len(b"".join(batches[:90])))
        assert "is not what it was when" in follower.read_message()
        append(path, make_batch(6))
        assert follower.read_offsets(1) == [6]
        os.replace(path, log / "old")
        path.write_bytes(make_batch(5))
        assert follower.read_offsets(1) == [5]  # another file of this name is read from its start


def test_damage_is_shown_when_a_frame_follows_or_the_file_is_left_alone(log):
    path = log / f"{0:020}.log"
    damaged = bytearray(make_batch(2))
    damaged[-1] ^= 1
    with start(log, "--follow", "--json") as follower:
        assert follower.read_offsets(2) == [0, 1]
        append(path, damaged)
        assert follower.read_soon() is None
        append(path, make_batch(3))
        rows = [json.loads(line) for line in follower.read(2)]
        assert [row["fault"] for row in rows] == ["BAD_CHECKSUM", None]
        assert [row["offset"] for row in rows] == [None, 3]
        append(path, damaged)
        assert follower.read_soon() is None
        minutes_ago = time.time() - 120
        os.utime(path, (minutes_ago, minutes_ago))
        assert b"BAD_CHECKSUM" in follower.read(1)[0]
    with start(log, "--follow", "--json", "--errors", "strict") as follower:
        assert follower.read_offsets(2) == [0, 1]
        assert follower.process.wait(SECONDS) == 1
        assert "BAD_CHECKSUM" in follower.read_message()


@pytest.mark.parametrize("option", ["--json", "--csv", "--columns=offset"])
def test_a_pipe_shows_each_row_at_once(option):
    with start("-", option, "--columns", "offset", stdin=subprocess.PIPE) as follower:
        heading = 0 if option == "--json" else 1
        for number in range(3):
            follower.process.stdin.write(make_batch(number))
            follower.process.stdin.flush()
            line = follower.read(1 + (heading if number == 0 else 0))[-1]
            assert str(number).encode() in line
        batch = make_batch(3)
        follower.process.stdin.write(batch[:-1])
        follower.process.stdin.flush()
        assert follower.read_soon() is None
        follower.process.stdin.write(batch[-1:])
        follower.process.stdin.close()
        assert b"3" in follower.read(1)[0]
        assert follower.process.wait(SECONDS) == 0


def test_a_pipe_in_pieces_of_any_size_has_the_same_rows(log):
    raw = b"".join(map(make_batch, range(30)))
    expected = run("scan", "-", "--json", input=raw).stdout
    for size in (1, 7, 61, 1000):
        with start("-", "--json", "--follow", stdin=subprocess.PIPE) as follower:
            for at in range(0, len(raw), size):
                follower.process.stdin.write(raw[at : at + size])
                follower.process.stdin.flush()
            follower.process.stdin.close()
            assert b"".join(follower.read(30)).decode() == expected


def test_a_named_pipe_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with start(path, "--json") as follower, open(path, "wb", buffering=0) as pipe:
        pipe.write(make_batch(0))
        assert follower.read_offsets(1) == [0]
        pipe.write(make_batch(1))
        assert follower.read_offsets(1) == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "x.jsonl"), "--follow writes to standard output"),
        (("--sample", "0.5"), "--follow excludes --sample"),
        (("-",), "files or standard input, and not both"),
    ],
)
def test_what_cannot_be_followed(log, options, message):
    result = run("scan", log, "--follow", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_pipes_and_compressed_files_cannot_be_followed(tmp_path):
    packed = tmp_path / "0.log.gz"
    packed.write_bytes(b"\x1f\x8b\x08" + bytes(20))
    result = run("scan", packed, "--follow")
    assert result.exit_code == 2
    assert "is a pipe or compressed" in " ".join(result.stderr.split())
