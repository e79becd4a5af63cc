"""Files that grow, without Spark: every frame once, whatever happens to the files."""

import json
import os
import random
import shutil
import struct
import time
from pathlib import Path

import pytest

from tests.support.log_files import append_bytes
from tests.support.paths import ORDERS
from wirescan import FrameError, kafka, lumberjack, thrift
from wirescan.files import file_identity, source
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.reading import growing as growing_module
from wirescan.reading.chunked import iter_tables
from wirescan.reading.growing import GrowingFiles

START = {"files": {}}


def make_batch(base, count=3, size=20, codec="none"):
    return bytes(
        kafka.encode_batch(
            [b"%020d" % (base + i) + b"x" * size for i in range(count)],
            base_offset=base,
            codec=codec,
        )
    )


def read_new_offsets(growing, start, **most):
    """The next offset, through JSON as Spark has it, and the offsets of the records up to there."""
    end = json.loads(json.dumps(growing.find_latest(start, **most)))
    return end, list_offsets(growing, start, end)


def list_offsets(growing, start, end):
    parts = [part for task in growing.plan_tasks(start, end) for part in task]
    return [
        int(n) for part in parts for _, table in growing.read_tables(part) for n in table["offset"]
    ]


def list_ends(offset):
    return {os.path.basename(path): state["end"] for path, state in offset["files"].items()}


@pytest.fixture
def log(tmp_path):
    return tmp_path / ("0" * 20 + ".log")


# ---- growing


def test_frames_are_read_when_they_are_whole(log, tmp_path):
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    assert read_new_offsets(growing, START) == (START, [])
    whole, torn = make_batch(0), make_batch(3)
    append_bytes(log, whole + torn[:70])
    end, got = read_new_offsets(growing, START)
    assert got == [0, 1, 2] and list_ends(end) == {log.name: len(whole)}
    assert growing.find_latest(end) is end
    append_bytes(log, torn[70:-1])
    assert growing.find_latest(end) is end
    append_bytes(log, torn[-1:] + make_batch(6) + bytes(100))  # a segment may end in zeros
    end, got = read_new_offsets(growing, end)
    assert got == list(range(3, 9))
    assert growing.find_latest(end) is end


def test_zeros_made_ahead_become_frames(log, tmp_path):
    log.write_bytes(make_batch(0) + bytes(1 << 20))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, got = read_new_offsets(growing, START)
    assert got == [0, 1, 2] and growing.find_latest(end) is end
    with open(log, "rb+") as file:
        file.seek(list_ends(end)[log.name])
        file.write(make_batch(3))
    end, got = read_new_offsets(growing, end)
    assert got == [3, 4, 5]
    os.truncate(log, list_ends(end)[log.name])  # as when the segment is rolled
    assert read_new_offsets(growing, end) == (end, [])


def test_the_same_rows_as_of_whole_files():
    growing, end, got = GrowingFiles([str(ORDERS)], "kafka.records", size=5000), START, []
    while (end := growing.find_latest(begin := end, max_bytes=4000)) is not begin:
        got += list_offsets(growing, begin, end)
    paths = map(str, sorted(ORDERS.glob("*.log")))
    tables = [table for path in paths for table in iter_tables(path, format="kafka.records")]
    assert got == [int(n) for table in tables for n in table["offset"]]


def test_large_parts_are_cut_for_several_tasks(log, tmp_path):
    log.write_bytes(b"".join(make_batch(3 * i) for i in range(200)))
    growing = GrowingFiles([str(tmp_path)], "kafka.records", size=5000)
    end = growing.find_latest(START)
    tasks = growing.plan_tasks(START, end)
    assert len(tasks) > 4 and {len(task) for task in tasks} == {1}
    assert list_offsets(growing, START, end) == list(range(600))


def test_small_files_share_a_task(tmp_path):
    for i in range(50):
        (tmp_path / f"{3 * i:020}.log").write_bytes(make_batch(3 * i))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end = growing.find_latest(START)
    assert len(growing.plan_tasks(START, end)) == 1 and list_offsets(growing, START, end) == list(
        range(150)
    )


# ---- limits


def test_bytes_are_limited_but_a_frame_is_read(log, tmp_path):
    frame = make_batch(0)
    log.write_bytes(b"".join(make_batch(3 * i) for i in range(10)))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, got = read_new_offsets(growing, START, max_bytes=2.5 * len(frame))
    assert got == list(range(6)) and end["files"][str(log)]["left"]
    end, got = read_new_offsets(growing, end, max_bytes=1)
    assert got == [6, 7, 8]
    end, got = read_new_offsets(growing, end)
    assert got == list(range(9, 30)) and "left" not in end["files"][str(log)]


def test_files_are_limited_and_take_turns(tmp_path):
    names = [tmp_path / f"{i:020}.log" for i in range(3)]
    for i, name in enumerate(names):
        name.write_bytes(make_batch(1000 * i))
    growing, end, got = GrowingFiles([str(tmp_path)], "kafka.records"), START, []
    for _ in range(3):
        append_bytes(names[0], make_batch(100))  # it never ends, and keeps no other from its turn
        end, more = read_new_offsets(growing, end, max_files=1)
        got.append({n // 1000 for n in more})
    assert got == [{0}, {1}, {2}]
    growing, end, got = GrowingFiles([str(tmp_path)], "kafka.records"), START, []
    for _ in range(8):
        append_bytes(names[0], make_batch(100) * 5)
        end, more = read_new_offsets(growing, end, max_bytes=4 * len(make_batch(0)))
        got += more
    assert {1000, 2000} < set(got)


def test_nothing_that_comes_later(log, tmp_path):
    log.write_bytes(make_batch(0))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    growing.stop_growing()
    append_bytes(log, make_batch(3))
    (tmp_path / ("1" * 20 + ".log")).write_bytes(make_batch(6))
    end, got = read_new_offsets(growing, START)
    assert got == [0, 1, 2] and growing.find_latest(end) is end
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    log.rename(tmp_path / "rolled")
    growing.stop_growing()
    end, got = read_new_offsets(growing, end)
    assert got == [6, 7, 8, 3, 4, 5]
    append_bytes(tmp_path / "rolled", make_batch(9))
    assert growing.find_latest(end) is end


# ---- renamed, recreated, gone


def test_a_renamed_file_goes_on(log, tmp_path):
    log.write_bytes(make_batch(0))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, _ = read_new_offsets(growing, START)
    rolled, deleted = tmp_path / ("9" * 20 + ".log"), tmp_path / (log.name + ".deleted")
    log.rename(rolled)
    append_bytes(rolled, make_batch(3))
    log.write_bytes(make_batch(6))  # another one, under its name
    end, got = read_new_offsets(growing, end)
    assert sorted(got) == list(range(3, 9))
    append_bytes(log, make_batch(9))
    log.rename(deleted)  # a name that is not read otherwise
    end, got = read_new_offsets(growing, end)
    assert got == [9, 10, 11] and deleted.name in list_ends(end)


def test_a_file_is_known_without_its_inode(log, tmp_path):
    """As on another machine, or after it was copied back."""
    log.write_bytes(make_batch(0, size=500))
    end, _ = read_new_offsets(GrowingFiles([str(tmp_path)], "kafka.records"), START)
    shutil.copy(log, tmp_path / "copy")
    os.replace(tmp_path / "copy", log)
    append_bytes(log, make_batch(3))
    end, got = read_new_offsets(GrowingFiles([str(tmp_path)], "kafka.records"), end)
    assert got == [3, 4, 5]
    moved = tmp_path / ("7" * 20 + ".log")
    shutil.copy(log, moved)
    log.unlink()
    append_bytes(moved, make_batch(6))
    assert read_new_offsets(GrowingFiles([str(tmp_path)], "kafka.records"), end)[1] == [6, 7, 8]


def test_a_few_bytes_are_no_evidence(log, tmp_path):
    log.write_bytes(make_batch(0))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, _ = read_new_offsets(growing, START)
    (tmp_path / "new").write_bytes(make_batch(0) + make_batch(3))
    os.replace(tmp_path / "new", log)
    assert read_new_offsets(growing, end)[1] == list(range(6))


def test_a_copy_is_another_file(log, tmp_path):
    log.write_bytes(make_batch(0))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, _ = read_new_offsets(growing, START)
    shutil.copy(log, tmp_path / ("1" * 20 + ".log"))
    assert read_new_offsets(growing, end)[1] == [0, 1, 2]


def test_a_file_that_begins_again(log, tmp_path):
    """Its inode may be that of the one before."""
    log.write_bytes(make_batch(0))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, _ = read_new_offsets(growing, START)
    log.unlink()
    log.write_bytes(make_batch(10) + make_batch(13))
    end, got = read_new_offsets(growing, end)
    assert got == list(range(10, 16))
    with open(log, "rb+") as file:  # the same inode for certain
        file.truncate(0)
        file.write(make_batch(20))
    assert read_new_offsets(growing, end)[1] == [20, 21, 22]


def test_files_that_were_read_may_go(log, tmp_path):
    other = tmp_path / ("1" * 20 + ".log")
    log.write_bytes(make_batch(0))
    other.write_bytes(make_batch(3))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, _ = read_new_offsets(growing, START)
    log.unlink()
    assert growing.find_latest(end) is end
    append_bytes(other, make_batch(6))
    end, got = read_new_offsets(growing, end)
    assert got == [6, 7, 8] and list_ends(end).keys() == {other.name}


@pytest.mark.parametrize("begun", [True, False])
def test_files_that_were_not_read(log, tmp_path, begun, caplog):
    other = tmp_path / ("1" * 20 + ".log")
    log.write_bytes(make_batch(0) + make_batch(3))
    other.write_bytes(make_batch(6))
    strict, lax = (
        GrowingFiles([str(tmp_path)], "kafka.records"),
        GrowingFiles([str(tmp_path)], "kafka.records", lossless=False),
    )
    end = lax.find_latest(START, max_bytes=1)
    assert strict.find_latest(START, max_bytes=1) == end
    (log if begun else other).unlink()
    with pytest.raises(FileNotFoundError, match="gone") as caught:
        strict.find_latest(end)
    assert caught.value.filename == str(log if begun else other)
    assert read_new_offsets(lax, end)[1] == ([6, 7, 8] if begun else [3, 4, 5])
    assert "gone" in caplog.text


def test_a_part_whose_file_is_gone(log, tmp_path):
    log.write_bytes(make_batch(0))
    strict, lax = (
        GrowingFiles([str(tmp_path)], "kafka.records"),
        GrowingFiles([str(tmp_path)], "kafka.records", lossless=False),
    )
    end = strict.find_latest(START)
    ((part,),) = strict.plan_tasks(START, end)
    moved = tmp_path / "moved"
    log.rename(moved)
    assert [path for path, _ in strict.read_tables(part)] == [
        str(moved)
    ]  # a name that it got meanwhile
    moved.unlink()
    for call in (
        lambda growing: growing.plan_tasks(START, end),
        lambda growing: list(growing.read_tables(part)),
    ):
        with pytest.raises(FileNotFoundError, match=log.name):
            call(strict)
        assert call(lax) == []


def test_a_file_that_was_cut(log, tmp_path, caplog):
    first, second = make_batch(0, size=2000), make_batch(3, size=2000)
    log.write_bytes(first + second)
    strict, lax = (
        GrowingFiles([str(tmp_path)], "kafka.records"),
        GrowingFiles([str(tmp_path)], "kafka.records", lossless=False),
    )
    end = strict.find_latest(START)
    os.truncate(log, len(first) + 20)
    with pytest.raises(EOFError, match=f"{log.name} has {len(first) + 20} bytes now"):
        strict.find_latest(end)
    end, got = read_new_offsets(lax, end)
    assert got == [] and list_ends(end) == {log.name: len(first)} and log.name in caplog.text
    os.truncate(log, len(first))
    append_bytes(log, make_batch(50))
    end, got = read_new_offsets(lax, end)
    assert got == [50, 51, 52] and lax.find_latest(end) is end


# ---- damage


def test_damage_ends_a_strict_stream_behind_what_is_good(log, tmp_path):
    good = make_batch(0) + make_batch(3)
    log.write_bytes(good + b"\xff" * 50)
    append_bytes(log, make_batch(6))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, got = read_new_offsets(growing, START)
    assert got == list(range(6))
    with pytest.raises(FrameError) as caught:
        growing.find_latest(end)
    assert caught.value.offset == len(good) and caught.value.source == str(log)


def test_damage_at_the_end_is_an_error_at_once_under_strict(log, tmp_path):
    good = make_batch(0)
    log.write_bytes(good + b"\xff" * 50)
    os.utime(log, (time.time() - 10,) * 2)
    growing = GrowingFiles([str(tmp_path)], "kafka.records", errors="strict")
    end, got = read_new_offsets(growing, START)
    assert got == [0, 1, 2]
    with pytest.raises(FrameError, match=f"at byte {len(good)} "):
        growing.find_latest(end)


def test_damage_at_the_end_is_read_a_minute_after_the_last_change(log, tmp_path, monkeypatch):
    """Searches within the minute find nothing, and the last change stays the same."""
    good = make_batch(0)
    log.write_bytes(good + b"\xff" * 50)
    os.utime(log, (time.time() - 10,) * 2)
    growing = GrowingFiles([str(tmp_path)], "kafka.records", errors="mark")
    end, got = read_new_offsets(growing, START)
    assert got == [0, 1, 2]
    for _ in range(3):
        assert growing.find_latest(end) is end
    monkeypatch.setattr(growing_module, "OLD", 5 * file_identity.SECOND)
    reached = growing.find_latest(end)
    assert list_ends(reached) == {log.name: len(good) + 50}
    assert growing.find_latest(reached) is reached


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
def test_a_frame_that_only_the_end_of_the_file_ends(tmp_path, monkeypatch, errors):
    """The body of an HTTP/1.0 response without a length ends where the connection ends."""
    call = thrift.encode_message("add", 1, 7)
    response = b"HTTP/1.0 200 OK\r\n\r\n" + bytes(call)
    path = tmp_path / "thrift.bin"
    path.write_bytes(response)
    os.utime(path, (time.time() - 10,) * 2)
    growing = GrowingFiles([str(path)], "thrift.messages", errors=errors)
    assert growing.find_latest(START) is START
    monkeypatch.setattr(growing_module, "OLD", 5 * file_identity.SECOND)
    end = growing.find_latest(START)
    expected = list_rows(iter_tables(str(path), format="thrift.messages", errors=errors))
    ((part,),) = growing.plan_tasks(START, end)
    assert list_rows(table for _, table in growing.read_tables(part)) == expected
    assert len(expected) == 1
    assert growing.find_latest(end) is end


def test_damage_that_only_the_end_of_the_file_shows_ends_a_strict_stream(tmp_path, monkeypatch):
    """A scan of the whole file raises the same error."""
    path = tmp_path / "0-1-v1.log"
    # A header that states 1 MiB. Its own checksum is wrong.
    path.write_bytes(struct.pack("<Ii", 1, 1 << 20) + b"\1" * 100)
    os.utime(path, (time.time() - 10,) * 2)
    with pytest.raises(FrameError, match="at byte 0 ") as expected:
        list(iter_tables(str(path), format="kafka.redpanda_batches"))
    growing = GrowingFiles([str(path)], "kafka.redpanda_batches")
    assert growing.find_latest(START) is START
    monkeypatch.setattr(growing_module, "OLD", 5 * file_identity.SECOND)
    with pytest.raises(FrameError) as caught:
        growing.find_latest(START)
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize(
    "format, frames",
    [
        ("kafka.records", [make_batch(3 * i, codec=("none", "gzip")[i % 2]) for i in range(40)]),
        (
            "lumberjack.events",
            [
                lumberjack.encode_batch([b'{"n":%d}' % (2 * i), b'{"m":1}'], level=3 * (i % 2))
                for i in range(40)
            ],
        ),
    ],
)
@pytest.mark.parametrize("turns", [20, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_damage_as_in_whole_files(tmp_path, errors, turns, format, frames):
    path = tmp_path / "all.log"
    chance = random.Random(7)
    for turn in range(turns):
        raw = bytearray(b"".join(map(bytes, frames)))
        for _ in range(chance.randrange(1, 5)):
            raw[chance.randrange(len(raw) - 500)] ^= 1 << chance.randrange(8)  # the end stays good
        path.write_bytes(raw)
        expected = list_rows(iter_tables(str(path), format=format, errors=errors))
        path.write_bytes(b"")
        growing, end, got = GrowingFiles([str(path)], format, errors=errors), START, []
        written = 0
        while written < len(raw) or growing.find_latest(end) is not end:
            more = chance.randrange(1, 3000)
            append_bytes(path, raw[written : written + more])
            written += more
            if written >= len(raw):
                os.utime(path, (0, 0))  # nothing was added for long
            begin, end = (
                end,
                growing.find_latest(end, max_bytes=chance.choice([500, 2000, 1 << 20])),
            )
            got += list_rows(
                table
                for task in growing.plan_tasks(begin, end)
                for part in task
                for _, table in growing.read_tables(part)
            )
        assert got == expected, turn


def list_rows(tables):
    """The position of each row, whether it is bad, and its first place.

    The name of the fault may depend on the bytes that follow.
    """
    return [
        (
            int(at),
            bool(fault),
            None
            if table.bytes(i, table.places[0]) is None
            else bytes(table.bytes(i, table.places[0])),
        )
        for table in tables
        for i, (at, fault) in enumerate(zip(table.positions, table["fault"]))
    ]


def test_a_frame_that_is_too_long_is_not_waited_for(log, tmp_path):
    log.write_bytes(make_batch(0) + make_batch(3, size=5000))
    growing = GrowingFiles([str(tmp_path)], "kafka.records", limits=Limits(frame=4000))
    end, got = read_new_offsets(growing, START)
    assert got == [0, 1, 2]
    with pytest.raises(FrameError, match="BAD_LENGTH"):
        growing.find_latest(end)


# ---- what is asked


def test_paths_that_are_not_there_yet(tmp_path):
    for path in (str(tmp_path), str(tmp_path / "*.log")):
        assert GrowingFiles([path], "kafka.records").find_latest(START) is START
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        GrowingFiles([str(tmp_path / "nothing-here")], "kafka.records").find_latest(START)
    with pytest.raises(ValueError, match="no format"):
        GrowingFiles([str(tmp_path)], "kafka.nothing")
    with pytest.raises(ValueError, match="errors must be"):
        GrowingFiles([str(tmp_path)], "kafka.records", errors="ignore")


@pytest.mark.peers
def test_objects_come_and_go():
    """They do not grow, but come and go, and may be replaced by larger ones."""
    from tests.support.object_store import ObjectStore

    with ObjectStore() as store:
        growing = GrowingFiles([store.url("topic/*.log")], "kafka.records")
        assert growing.find_latest(START) is START
        store.put("topic/0.log", make_batch(0, size=500))
        end, got = read_new_offsets(growing, START)
        assert got == [0, 1, 2]
        nothing, requests = store.record_requests(lambda: growing.find_latest(end))
        assert nothing is end and not [request for request in requests if "0.log" in request]
        store.put("topic/0.log", make_batch(0, size=500) + make_batch(3))
        store.put("topic/1.log", make_batch(6) + make_batch(9)[:-1])
        end, got = read_new_offsets(GrowingFiles([store.url("topic/*.log")], "kafka.records"), end)
        assert got == list(range(3, 9))
        store.files.delete_file("bucket/topic/0.log")
        store.put("topic/2.log", make_batch(12))
        assert read_new_offsets(growing, end)[1] == [12, 13, 14]


def test_many_files_that_give_way_to_others(tmp_path, monkeypatch):
    """What it takes grows with the files, not with the pairs of old and new ones."""
    opened = []
    monkeypatch.setattr(
        file_identity, "open_ranges", lambda path: opened.append(path) or source.open_ranges(path)
    )
    growing, count = GrowingFiles([str(tmp_path)], "kafka.records"), 100
    olds = [tmp_path / f"{i:020}.log" for i in range(count)]
    for i, path in enumerate(olds):
        append_bytes(path, make_batch(3 * i, size=500))
    end = growing.find_latest(START)
    for i in range(count):
        append_bytes(tmp_path / f"{count + i:020}.log", make_batch(3 * (count + i), size=500))
    for path in olds:
        path.unlink()
    opened.clear()
    start, end = end, growing.find_latest(end)
    for i in range(count):
        (tmp_path / f"{count + i:020}.log").rename(tmp_path / f"{2 * count + i:020}.log")
    list_all, listed = file_identity.Files.list_present, []
    monkeypatch.setattr(
        file_identity.Files, "list_present", lambda *args: listed.append(args) or list_all(*args)
    )
    growing.plan_tasks(start, end)
    assert len(opened) < 10 * count and len(listed) == 1
    assert list_offsets(growing, start, end) == list(range(3 * count, 6 * count))


def test_what_reads_a_file_may_miss_another(log, tmp_path):
    append_bytes(log, make_batch(0))
    files = file_identity.Files([str(tmp_path)], format_of("kafka.batches"))
    (identity,) = file_identity.parse_offset(
        GrowingFiles([str(tmp_path)], "kafka.records").find_latest(START)
    ).values()
    with pytest.raises(FileNotFoundError, match="another"), files.open(identity):
        raise FileNotFoundError("another")


# ---- at random


@pytest.mark.parametrize("seed", range(30))
def test_every_frame_once_whatever_happens(tmp_path, seed):
    """A writer cuts, rolls, renames, copies, truncates, deletes; a reader dies and replays."""
    chance = random.Random(seed)
    growing, end, got = (
        GrowingFiles([str(tmp_path)], "kafka.records", size=chance.choice([300, 1 << 20])),
        START,
        [],
    )
    written, pending, number = 0, b"", 0
    active = tmp_path / f"{0:020}.log"
    for _ in range(120):
        what = chance.random()
        if what < 0.5:
            pending += make_batch(written, 2, chance.randrange(60))
            written += 2
            cut = chance.randrange(len(pending) + 1)
            append_bytes(active, pending[:cut])
            pending = pending[cut:]
        elif what < 0.65:
            append_bytes(active, pending)
            pending = b""
            if chance.random() < 0.5 and active.exists():
                active.rename(tmp_path / f"{1000 + number:020}.log")
            number += 1
            active = tmp_path / f"{chance.choice([0, number]):020}.log"
        elif what < 0.7 and end is not START:  # read to its end, so it may go
            for path in sorted(end["files"]):
                state = end["files"][path]
                if (
                    Path(path) != active
                    and os.path.exists(path)
                    and (state["end"], state["node"])
                    == (os.path.getsize(path), os.stat(path).st_ino)
                ):
                    os.unlink(path)
                    break
        else:
            begin = end
            end = json.loads(
                json.dumps(growing.find_latest(end, chance.choice([200, 1000, 1 << 30])))
            )
            if chance.random() < 0.3:
                growing = GrowingFiles([str(tmp_path)], "kafka.records")
                list_offsets(growing, begin, end)  # an attempt that came to nothing
            got += list_offsets(growing, begin, end)
    append_bytes(active, pending)
    while (end := growing.find_latest(begin := end)) is not begin:
        got += list_offsets(growing, begin, end)
    assert sorted(got) == list(range(written))


def test_a_file_with_a_changed_end_is_another_file(log, tmp_path):
    log.write_bytes(make_batch(0, size=500) + make_batch(3, size=500))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, got = read_new_offsets(growing, START)
    assert got == list(range(6))
    with open(log, "rb+") as file:  # the inode and the beginning stay
        file.seek(-len(make_batch(3, size=500)), os.SEEK_END)
        file.write(make_batch(10, size=500) + make_batch(13, size=500))
    with pytest.raises(EOFError, match="is not what it was"):
        read_new_offsets(growing, end)


def test_a_file_with_a_changed_beginning_is_read_from_there(log, tmp_path):
    log.write_bytes(make_batch(0, size=500) + make_batch(3, size=500))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, _ = read_new_offsets(growing, START)
    with open(log, "rb+") as file:  # the inode and the end stay
        file.write(make_batch(-3, size=500))
    append_bytes(log, make_batch(6))
    assert read_new_offsets(growing, end)[1] == [-3, -2, -1, 3, 4, 5, 6, 7, 8]


def test_another_file_with_the_same_beginning_is_read_whole(log, tmp_path):
    log.write_bytes(make_batch(0, size=500) + make_batch(3, size=500))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, _ = read_new_offsets(growing, START)
    (tmp_path / "new").write_bytes(
        make_batch(0, size=500) + make_batch(10, size=500) + make_batch(13)
    )
    os.replace(tmp_path / "new", log)
    assert read_new_offsets(growing, end)[1] == [0, 1, 2, 10, 11, 12, 13, 14, 15]


def replace_second_batch(path):
    with open(path, "rb+") as file:
        file.seek(len(make_batch(0, size=500)))
        file.write(make_batch(10, size=500))


def test_a_file_that_changes_before_more_of_it_is_read_is_left(log, tmp_path, monkeypatch):
    """It was known again when its directory was listed."""
    log.write_bytes(make_batch(0, size=500) + make_batch(3, size=500))
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    end, _ = read_new_offsets(growing, START)
    append_bytes(log, make_batch(6))

    def ranges_of_changed(path):
        replace_second_batch(path)
        return source.open_ranges(path)

    monkeypatch.setattr("wirescan.reading.growing.open_ranges", ranges_of_changed)
    assert growing.find_latest(end) is end


def test_a_file_that_changes_before_it_is_opened_is_gone(log, tmp_path, monkeypatch):
    log.write_bytes(make_batch(0, size=500) + make_batch(3, size=500))
    files = file_identity.Files([str(tmp_path)], format_of("kafka.batches"))
    (identity,) = file_identity.parse_offset(
        GrowingFiles([str(tmp_path)], "kafka.records").find_latest(START)
    ).values()
    find_path = files.find_path

    def find_path_then_change(file):
        path = find_path(file)
        replace_second_batch(log)
        return path

    monkeypatch.setattr(files, "find_path", find_path_then_change)
    with pytest.raises(FileNotFoundError, match="gone before it was read"), files.open(identity):
        pass


def test_the_backlog_is_what_an_offset_leaves(tmp_path):
    path = tmp_path / f"{0:020}.log"
    batch = kafka.encode_batch([kafka.Record(0, value=b"v")])
    path.write_bytes(batch + batch[:-1])
    growing = GrowingFiles([str(tmp_path)], "kafka.records")
    size = len(batch)
    start = {"files": {}}
    assert growing.measure_backlog(start) == {
        "files": 1,
        "bytes": 2 * size - 1,
        "backlog": 2 * size - 1,
    }
    latest = growing.find_latest(start)
    assert growing.measure_backlog(latest)["backlog"] == size - 1
    (tmp_path / f"{1:020}.log").write_bytes(batch)
    assert growing.measure_backlog(latest) == {
        "files": 2,
        "bytes": 3 * size - 1,
        "backlog": 2 * size - 1,
    }


def test_bytes_after_a_cut_are_read_if_the_file_was_listed_before_it(tmp_path, monkeypatch):
    """The listing has the old size. What is appended after the message about the cut is new."""
    path = tmp_path / f"{0:020}.log"
    batches = [kafka.encode_batch([kafka.Record(number, value=bytes(50))]) for number in range(100)]
    path.write_bytes(b"".join(batches))
    growing = GrowingFiles([str(tmp_path)], "kafka.records", lossless=False)
    offset = growing.find_latest({"files": {}})
    list_present = file_identity.Files.list_present

    def list_and_cut(self, progress, **options):
        states = list_present(self, progress, **options)
        os.truncate(path, len(b"".join(batches[:90])))
        return states

    def append_one(message, *arguments):
        append_bytes(path, batches[6])

    with monkeypatch.context() as patch:
        patch.setattr(file_identity.Files, "list_present", list_and_cut)
        patch.setattr("wirescan.reading.growing.logger.warning", append_one)
        cut = growing.find_latest(offset)
    latest = growing.find_latest(cut)
    parts = [part for task in growing.plan_tasks(cut, latest) for part in task]
    tables = [table for part in parts for _, table in growing.read_tables(part)]
    assert [number for table in tables for number in table["offset"].tolist()] == [6]
