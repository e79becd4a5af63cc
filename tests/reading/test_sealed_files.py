"""Offsets of streams do not list finished files, and still every frame is read once."""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from tests.support.log_files import append_bytes
from wirescan import kafka, lumberjack
from wirescan.files import file_identity, sealed_files
from wirescan.reading.growing import GrowingFiles

START = {"files": {}}
SETTLED = 5_000_000  # nanoseconds after which a file is settled, in these tests


@pytest.fixture(autouse=True)
def settle(monkeypatch):
    """Return a function that waits until all files are settled."""
    monkeypatch.setattr(sealed_files, "RECENT", SETTLED)
    return lambda: time.sleep(3 * SETTLED / 1e9)


def make_batch(base, count=2):
    return bytes(kafka.encode_batch([b"%d" % (base + i) for i in range(count)], base_offset=base))


def write_segments(folder, numbers):
    """Write a segment of two records for each number."""
    for number in numbers:
        (folder / f"{2 * number:020}.log").write_bytes(make_batch(2 * number))


def make_growing_files(folder, format="kafka.records", **options):
    return GrowingFiles([str(folder)], format, **options)


def advance(growing, start):
    """Return the next offset, through JSON as Spark has it, and the log offsets up to there."""
    end = json.loads(json.dumps(growing.find_latest(start)))
    return end, list_offsets(growing, start, end)


def list_offsets(growing, start, end):
    parts = [part for task in growing.plan_tasks(start, end) for part in task]
    return [
        int(number)
        for part in parts
        for _, table in growing.read_tables(part)
        for number in table["offset"]
    ]


def seal(growing, folder, start, settle, number):
    """Add a segment, so that there is a new offset in which the older ones are finished."""
    settle()
    write_segments(folder, [number])
    end, offsets = advance(growing, start)
    assert offsets == [2 * number, 2 * number + 1]
    return end


@pytest.fixture
def sealed(tmp_path, settle):
    """Six segments that were read; the offset counts five of them. (growing, folder, offset)"""
    write_segments(tmp_path, range(4))
    growing = make_growing_files(tmp_path)
    end, offsets = advance(growing, START)
    assert offsets == list(range(8))
    end = seal(growing, tmp_path, end, settle, 4)
    settle()
    write_segments(tmp_path, [5])
    end, offsets = advance(growing, end)
    assert end["sealed"][str(tmp_path)]["files"] == 5
    return growing, tmp_path, end


@pytest.mark.parametrize("restarts", [False, True])
def test_the_size_of_an_offset_follows_what_changed(tmp_path, settle, restarts):
    write_segments(tmp_path, range(2_000))
    growing = make_growing_files(tmp_path)
    end, offsets = advance(growing, START)
    assert len(offsets) == 4_000
    assert len(end["files"]) == 2_000  # all of them changed
    settle()
    for number in range(2_000, 2_003):
        write_segments(tmp_path, [number])
        if restarts:
            growing = make_growing_files(tmp_path)
        end, offsets = advance(growing, end)
        assert offsets == [2 * number, 2 * number + 1]
        settle()
    assert len(json.dumps(end)) < 1000
    assert growing.measure_backlog(end)["backlog"] == 0
    assert make_growing_files(tmp_path).find_latest(end) is end


def test_offsets_of_earlier_versions_are_read(tmp_path, settle):
    write_segments(tmp_path, range(4))
    end = json.loads(
        json.dumps(
            file_identity.make_offset(
                file_identity.parse_offset(make_growing_files(tmp_path).find_latest(START))
            )
        )
    )
    assert end.keys() == {"files"}
    settle()
    write_segments(tmp_path, [4])
    growing = make_growing_files(tmp_path)
    end, offsets = advance(growing, end)
    assert offsets == [8, 9]
    assert end["sealed"][str(tmp_path)]["files"] == 4


def test_a_batch_is_repeated_after_a_kill(sealed, settle):
    """The plan of a batch is the same, whatever the next offset does not list any more."""
    _, folder, start = sealed
    settle()
    write_segments(folder, [6, 7])
    end, offsets = advance(make_growing_files(folder), start)
    assert offsets == [12, 13, 14, 15]
    assert list_offsets(make_growing_files(folder), start, end) == offsets
    settle()
    write_segments(folder, [8])
    later, offsets = advance(make_growing_files(folder), end)
    assert offsets == [16, 17]
    assert list_offsets(make_growing_files(folder), end, later) == offsets


def test_a_copy_of_a_finished_file_is_another_file(tmp_path, settle):
    """The copy begins with the bytes of a file that the next offset does not list any more."""
    value = bytes(2000)
    first = bytes(kafka.encode_batch([value], base_offset=0))
    (tmp_path / f"{0:020}.log").write_bytes(first)
    write_segments(tmp_path, [1])
    growing = make_growing_files(tmp_path)
    end, _ = advance(growing, START)
    settle()
    shutil.copy(tmp_path / f"{0:020}.log", tmp_path / f"{4:020}.log")
    end, offsets = advance(growing, end)
    assert end["sealed"][str(tmp_path)]["files"] >= 1
    assert offsets == [0]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_old_file_that_comes_later_is_read(sealed, settle, restarts):
    """Its mtime is older than the offset, and its name is lower than those of finished files."""
    growing, folder, end = sealed
    settle()
    other = folder.parent / f"{folder.name}-other"
    other.mkdir()
    write_segments(other, [50])
    os.utime(other / f"{100:020}.log", (1, 1))
    (other / f"{100:020}.log").rename(folder / f"{1:020}.log")
    if restarts:
        growing = make_growing_files(folder)
    end, offsets = advance(growing, end)
    assert offsets == [100, 101]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "change",
    [lambda path: path.chmod(0o600), lambda path: path.rename(path.with_name(f"{3:020}.log"))],
    ids=["chmod", "rename"],
)
def test_a_finished_file_whose_inode_changes_is_not_read_again(sealed, settle, restarts, change):
    growing, folder, end = sealed
    settle()
    change(folder / f"{2:020}.log")
    if restarts:
        growing = make_growing_files(folder)
    for number in range(6, 9):
        settle()
        write_segments(folder, [number])
        end, offsets = advance(growing, end)
        assert offsets in ([], [2 * number, 2 * number + 1]), number
    assert end["sealed"][str(folder)]["files"] == 8


def test_a_finished_file_that_grows_continues_while_the_stream_runs(sealed, settle):
    growing, folder, end = sealed
    settle()
    append_bytes(folder / f"{2:020}.log", make_batch(1000))
    end, offsets = advance(growing, end)
    assert offsets == []  # the offset lists it again
    end, offsets = advance(growing, end)
    assert offsets == [1000, 1001]


def test_finished_files_may_go(sealed, settle):
    growing, folder, end = sealed
    for number in (0, 1):
        (folder / f"{2 * number:020}.log").unlink()
    assert growing.find_latest(end) is end
    settle()
    write_segments(folder, [6])
    end, offsets = advance(make_growing_files(folder), end)
    assert offsets == [12, 13]
    assert end["sealed"][str(folder)]["files"] == 4
    assert make_growing_files(folder).measure_backlog(end)["backlog"] == 0


def test_too_many_old_files_are_an_error(sealed, settle, caplog):
    """As on a file system that does not set the ctime of a renamed file."""
    _, folder, end = sealed
    end["sealed"][str(folder)]["files"] -= 1
    with pytest.raises(EOFError, match="has 5 files from before the last offset, .* counted 4"):
        make_growing_files(folder).find_latest(end)
    make_growing_files(folder, lossless=False).find_latest(end)
    assert "counted 4" in caplog.text


def test_files_that_wait_are_not_finished(tmp_path, settle):
    """Limits leave files for later offsets. These files are older than some that were read."""
    write_segments(tmp_path, range(6))
    order = [5, 3, 1, 0, 2, 4]
    for number in order:
        settle()
        os.utime(tmp_path / f"{2 * number:020}.log")
    (tmp_path / f"{1:020}.log").touch()
    growing, end, offsets = make_growing_files(tmp_path), START, []
    while True:
        settle()
        start, end = end, json.loads(json.dumps(growing.find_latest(end, max_files=1)))
        if start == end:
            break
        offsets += list_offsets(make_growing_files(tmp_path), start, end)
        growing = make_growing_files(tmp_path)
    assert sorted(offsets) == list(range(12))
    append_bytes(tmp_path / f"{1:020}.log", make_batch(100))
    end, more = advance(growing, end)
    assert more == [100, 101]


def test_files_of_the_receiver_are_finished_by_their_names(tmp_path, settle):
    def write(number):
        window = lumberjack.encode_batch([{"n": number}])
        (tmp_path / f"20260101T000000.000000Z-{number:06}.lumberjack").write_bytes(bytes(window))

    def count(start, end):
        growing = make_growing_files(tmp_path, "lumberjack.events")
        parts = [part for task in growing.plan_tasks(start, end) for part in task]
        return sum(len(table) for part in parts for _, table in growing.read_tables(part))

    for number in range(20):
        write(number)
    (tmp_path / "mine.lumberjack").write_bytes(bytes(lumberjack.encode_batch([{"n": 1}])))
    end = make_growing_files(tmp_path, "lumberjack.events").find_latest(START)
    assert count(START, end) == 21
    settle()
    write(20)
    start, end = end, make_growing_files(tmp_path, "lumberjack.events").find_latest(end)
    assert count(start, end) == 1
    assert end["sealed"][str(tmp_path)]["files"] == 20
    assert len(end["files"]) == 2


@pytest.mark.parametrize("seed", range(8))
def test_every_frame_once_with_kills(tmp_path, settle, seed):
    """A broker writes, rolls, deletes and touches segments; the reader is killed and repeats."""
    chance = random.Random(seed)
    folders = [tmp_path / "a-0", tmp_path / "b-0"]
    active = {}
    for folder in folders:
        folder.mkdir()
        active[folder] = folder / f"{0:020}.log"
    growing, end, offsets, written, most = make_growing_files(tmp_path), START, [], 0, 0
    done = set()
    for _ in range(100):
        folder = chance.choice(folders)
        what = chance.random()
        settle()
        if what < 0.4:
            append_bytes(active[folder], make_batch(written))
            written += 2
        elif what < 0.6:
            active[folder] = folder / f"{written:020}.log"
            append_bytes(active[folder], make_batch(written))
            written += 2
        elif what < 0.66 and done - set(active.values()):
            path = chance.choice(sorted(done - set(active.values())))
            done.discard(path)
            if chance.random() < 0.7:
                path.unlink()
            elif folder == path.parent:
                path.rename(f"{path}.deleted")
        else:
            begin, end = (
                end,
                json.loads(
                    json.dumps(growing.find_latest(end, chance.choice([100, 300, 1 << 30])))
                ),
            )
            if chance.random() < 0.5:
                list_offsets(make_growing_files(tmp_path), begin, end)  # killed, and repeated
                growing = make_growing_files(tmp_path)
            offsets += list_offsets(growing, begin, end)
            most = max(most, sum(entry["files"] for entry in end.get("sealed", {}).values()))
            unread = {Path(path) for path, file in end["files"].items() if file.get("left")}
            done = {
                path
                for path in tmp_path.glob("*/*.log")
                if str(path) in end["files"]
                and path not in unread
                and path.stat().st_size == end["files"][str(path)]["end"]
            } | {path for path in done if path.exists() and path not in unread}
    settle()
    while (end := growing.find_latest(begin := end)) is not begin:
        offsets += list_offsets(growing, begin, end)
    assert sorted(offsets) == list(range(written))
    assert most > 3
