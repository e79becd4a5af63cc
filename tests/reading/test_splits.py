"""Slices on batch boundaries, from a true index or a walk: all bytes, each once."""

import os
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wirescan
from tests.support.examples import read_example_count
from tests.support.paths import ORDERS
from wirescan import FrameError, kafka
from wirescan.files import boundaries as walk
from wirescan.kafka import encode_batch, files
from wirescan.reading import splits as partition
from wirescan.reading.chunked import iter_tables
from wirescan.reading.splits import FILES, SLICE_BYTES, Plan, Slice, group_slices, plan, plan_tasks

LIVE = ORDERS.parent / "live-0"
SEGMENTS = sorted(str(path) for path in ORDERS.glob("*.log"))


def list_starts(path):
    return set(kafka.scan(path, check=False)["start"].tolist())


def segment(folder, raw, base=0):
    folder.mkdir(exist_ok=True)
    path = folder / f"{base:020}.log"
    path.write_bytes(raw)
    return str(path)


def write_index(path, entries):
    """Write the index of a segment: (relative offset, position) pairs."""
    Path(path[:-3] + "index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))


def check_cover(slices, paths):
    """The slices are the files, each once and in order."""
    expected = [(path, os.path.getsize(path)) for path in paths if os.path.getsize(path)]
    at = {}
    for piece in slices:
        assert (
            piece.start == at.get(piece.path, 0)
            and piece.stop > piece.start
            and len(piece) == piece.stop - piece.start
        )
        at[piece.path] = piece.stop
    assert list(at.items()) == expected


def list_offsets(slices, errors="strict"):
    return [
        offset
        for piece in slices
        for table in iter_tables(
            piece.path, piece.start, piece.stop, format="kafka.records", errors=errors
        )
        for offset in table["offset"].tolist()
    ]


# ---- the corpus


@pytest.mark.parametrize(
    "size", [1, 100, 5_000, 16_384, 50_000, 100_000, 258_000, 1 << 20, SLICE_BYTES]
)
def test_slices_of_real_segments(size):
    slices = plan(ORDERS, "kafka.records", size)
    check_cover(slices, SEGMENTS)
    for path in SEGMENTS:
        assert {piece.start for piece in slices if piece.path == path} <= list_starts(path)
    if size in (16_384, SLICE_BYTES):
        assert list_offsets(slices) == wirescan.scan(ORDERS, "kafka.records")["offset"].tolist()


@pytest.mark.parametrize("path", SEGMENTS, ids=os.path.basename)
def test_index_entries_are_real_batches(path):
    entries = files.read_index(path[:-3] + "index")
    table = kafka.scan(path)
    last = dict(zip(table["start"].tolist(), table["last_offset"].tolist()))
    assert len(entries) > 10
    for entry in entries:
        assert last[int(entry["position"])] == entry["offset"]
    for size in (40_000, 100_000):  # for less the index is too coarse
        assert set(files.find_boundaries(path, size)[1:]) <= set(entries["position"].tolist())


def test_a_preallocated_index_ends_before_its_zeros():
    path = LIVE / "00000000000000000480.index"
    assert os.path.getsize(path) == 2048
    entries = files.read_index(str(path))
    assert (
        0 < len(entries) < 10
        and (entries["offset"] > 480).all()
        and (entries["position"] > 0).all()
    )
    slices = plan(LIVE, "kafka.records", 4_096)
    check_cover(slices, sorted(map(str, LIVE.glob("*.log"))))
    assert list_offsets(slices) == list(range(600))


def test_read_index_drops_bad_entries(tmp_path):
    path = str(tmp_path / f"{10**12:020}.index")

    def read(data):
        Path(path).write_bytes(data)
        return [tuple(entry) for entry in files.read_index(path).tolist()]

    def pair(*numbers):
        return struct.pack(f">{len(numbers)}i", *numbers)

    assert read(b"") == [] and read(b"\0\0\0") == [] and read(bytes(80)) == []
    assert read(pair(5, 100)) == [(10**12 + 5, 100)]
    assert read(pair(5, 100, 9, 200) + bytes(80)) == [(10**12 + 5, 100), (10**12 + 9, 200)]
    assert read(pair(5, 100, 9, 200) + b"\1\2\3") == [(10**12 + 5, 100), (10**12 + 9, 200)]  # cut
    assert read(pair(5, 100, 4, 200, 9, 300)) == [(10**12 + 5, 100)]
    assert read(pair(5, 100, 9, 100)) == [(10**12 + 5, 100)]


def test_an_index_that_cannot_be_one_is_left_alone(tmp_path):
    """A pipe, terabytes of nothing, and a name beyond all offsets."""
    path = segment(tmp_path, encode_batch([b"x" * 50]) * 40)
    want = files.find_boundaries(path, 500)
    os.mkfifo(path[:-3] + "index")
    assert files.find_boundaries(path, 500) == want
    os.remove(path[:-3] + "index")
    with open(path[:-3] + "index", "wb") as file:
        file.truncate(1 << 42)
    assert files.find_boundaries(path, 500) == want
    far = str(tmp_path / f"{10**20 - 1}.log")
    os.rename(path, far)
    Path(far[:-3] + "index").write_bytes(struct.pack(">2i", 5, 500))
    assert files.find_boundaries(far, 500) == want


@pytest.mark.parametrize("data", [bytes(8), bytes(2048)])
def test_an_index_of_nothing_but_zeros_has_no_entries_of_use(tmp_path, data):
    path = segment(tmp_path, encode_batch([b"x" * 50]) * 40)
    Path(path[:-3] + "index").write_bytes(data)
    check_cover(plan(path, "kafka.records", 500), [path])
    assert (
        set(files.find_boundaries(path, 500)) <= list_starts(path)
        and len(files.find_boundaries(path, 500)) > 3
    )


# ---- indexes that lie

RAW = b"".join(
    encode_batch([b"%04d" % (3 * i + j) * 20 for j in range(3)], base_offset=3 * i)
    for i in range(40)
)
SIZE = len(RAW) // 40
TRUE = [(3 * i + 2, i * SIZE) for i in range(4, 40, 4)]


def test_a_true_index_is_used(tmp_path):
    path = segment(tmp_path, RAW)
    write_index(path, TRUE)
    assert files.find_boundaries(path, 1_000) == [0, *(position for _, position in TRUE)]
    assert files.find_boundaries(path, 800) == files.find_boundaries(
        path, 1_000
    )  # no finer than the index
    os.unlink(path[:-3] + "index")
    assert files.find_boundaries(path, 800) == [i * SIZE for i in range(0, 40, 3)]


LIES = {
    "empty": [],
    "inside batches": [(offset, position + 5) for offset, position in TRUE],
    "one inside a batch": [(o, p + (7 if i == 3 else 0)) for i, (o, p) in enumerate(TRUE)],
    "other offsets": [(offset + 1, position) for offset, position in TRUE],
    "beyond the file": [(o + 10_000, p + len(RAW)) for o, p in TRUE],
    "negative": [(o, -p) for o, p in TRUE],
    "descending": TRUE[::-1],
    "short": TRUE[:1],
    "all ones": [(-1, -1)] * 5,
    "largest": [(2**31 - 1, 2**31 - 1)],
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("size", [1, 500, 1_000, 4_000])
def test_wrong_indexes_do_not_change_the_rows(tmp_path, lie, size):
    path = segment(tmp_path, RAW)
    write_index(path, LIES[lie])
    boundaries = files.find_boundaries(path, size)
    assert (
        boundaries[0] == 0
        and set(boundaries) <= {i * SIZE for i in range(40)}
        and boundaries == sorted(set(boundaries))
    )
    if lie != "descending":  # its first entry is true, but far away
        assert len(boundaries) >= len(RAW) // max(size, SIZE) // 4  # the walk stands in
    assert list_offsets(plan(path, "kafka.records", size)) == list(range(120))


def test_index_of_another_segment(tmp_path):
    for source, target in ((SEGMENTS[2], SEGMENTS[3]), (SEGMENTS[3], SEGMENTS[2])):
        copy = shutil.copy(target, tmp_path / os.path.basename(target))
        shutil.copy(source[:-3] + "index", str(copy)[:-3] + "index")
        assert set(files.find_boundaries(str(copy), 20_000)) <= list_starts(target)
        check_cover(plan(copy, "kafka.records", 20_000), [str(copy)])
        assert (
            list_offsets(plan(copy, "kafka.records", 20_000))
            == wirescan.scan(target, "kafka.records")["offset"].tolist()
        )


@settings(max_examples=read_example_count(8), deadline=None)
@given(st.binary(max_size=64), st.integers(1, 3_000))
def test_any_bytes_as_an_index(tmp_path_factory, data, size):
    path = segment(tmp_path_factory.getbasetemp() / "any", RAW)
    Path(path[:-3] + "index").write_bytes(data)
    found = files.find_boundaries(path, size)
    assert found[0] == 0 and set(found) <= {i * SIZE for i in range(40)}


def test_files_without_an_index_are_walked(tmp_path):
    path = segment(tmp_path, RAW)
    assert files.find_boundaries(path, 1) == [i * SIZE for i in range(40)]
    assert files.find_boundaries(path, len(RAW)) == [0]
    other = tmp_path / "capture.bin"  # not named as a segment
    other.write_bytes(RAW)
    assert files.find_boundaries(str(other), 2 * SIZE) == [i * SIZE for i in range(0, 40, 2)]


def test_the_walk_crosses_its_blocks(tmp_path, monkeypatch):
    path = segment(tmp_path, RAW)
    large = segment(tmp_path, RAW[:SIZE] + encode_batch([bytes(50_000)]) + RAW[:SIZE], 1)
    for step in (17, 18, 100, SIZE, SIZE + 16, SIZE + 17, 4096):
        monkeypatch.setattr(walk, "PAGE", step)  # of objects
        for place in (path, Path(path).as_uri()):
            assert files.find_boundaries(place, 1) == [i * SIZE for i in range(40)]
        assert (
            len(files.find_boundaries(large, 1))
            == len(files.find_boundaries(Path(large).as_uri(), 1))
            == 3
        )


def test_the_walk_reads_headers_and_not_what_is_between(tmp_path):
    def bytes_read():
        return int(Path("/proc/self/io").read_text().split()[1])

    path = segment(tmp_path, encode_batch([bytes(100_000)]) * 40)
    size = os.path.getsize(path) // 40
    before = bytes_read()
    assert files.find_boundaries(path, 10 * size) == [0, 10 * size, 20 * size, 30 * size]
    assert (
        bytes_read() - before <= 40 * files.SIZED.header + 3 * size + 4096
    )  # and each batch at which it cuts


@pytest.mark.parametrize("magic", [0, 1])
def test_the_walk_over_messages(tmp_path, magic):
    message = kafka.encode_message_set([kafka.Record()], magic=magic)  # as small as a message gets
    assert len(message) == files.SMALLEST[magic]
    path = segment(tmp_path, message * 500)
    assert files.find_boundaries(path, 1) == list(range(0, 500 * len(message), len(message)))
    path = segment(
        tmp_path,
        message * 100 + message[:8] + (9).to_bytes(4, "big") + message[12:] + message * 100,
    )
    assert files.find_boundaries(path, 1) == list(
        range(0, 100 * len(message), len(message))
    )  # the rest is one slice


def test_magic_0_and_1_are_cut_too(tmp_path):
    for name in ("magic0-none", "magic1-gzip", "magic1-none", "magic0-lz4"):
        path = str(ORDERS.parent / "fetched" / f"{name}.bin")
        assert (
            set(files.find_boundaries(path, 3_000)) <= list_starts(path)
            and len(files.find_boundaries(path, 3_000)) > 3
        )


# ---- damage


def list_rows(slices, errors="mark"):
    """(position, offset or None, fault) of every record row."""
    out = []
    for piece in slices:
        for table in iter_tables(
            piece.path,
            piece.start,
            piece.stop,
            format="kafka.records",
            errors=errors,
            tail=piece.last,
        ):
            out += list(
                zip(table.positions.tolist(), table["offset"].tolist(), table["fault"].tolist())
            )
    return out


@pytest.mark.parametrize("size", [1, 500, 3_000])
@pytest.mark.parametrize("indexed", [True, False])
def test_soft_damage_gives_the_same_rows_sliced_or_not(tmp_path, size, indexed):
    raw = bytearray(RAW)
    for batch in (0, 7, 8, 20, 39):
        raw[batch * SIZE + 100] ^= 0xFF  # checksums
    path = segment(tmp_path, bytes(raw))
    if indexed:
        write_index(path, TRUE)
    whole = list_rows([Slice(path, 0, len(raw))])
    assert list_rows(plan(path, "kafka.records", size)) == whole
    assert sum(fault != 0 for _, _, fault in whole) == 5 and len(whole) == 35 * 3 + 5


@pytest.mark.parametrize("size", [1, 500, 3_000])
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("at", [0, 3 * SIZE, 17 * SIZE, 39 * SIZE])
@pytest.mark.parametrize(
    "damage", [b"\xff" * 4, b"\0\0\0\1", b"\x7f\xff\xff\xff", b"\0\0\1\0", b"\0\0\2\0"]
)
def test_damaged_lengths_lose_no_intact_batch(tmp_path, size, indexed, at, damage):
    raw = RAW[: at + 8] + damage + RAW[at + 12 :]
    path = segment(tmp_path, raw)
    if indexed:
        write_index(path, TRUE)
    slices = plan(path, "kafka.records", size)
    check_cover(slices, [path])
    good = [offset for _, offset, fault in list_rows(slices) if not fault]
    lost = set(range(120)) - set(good)
    number = at // SIZE
    assert lost == {3 * number, 3 * number + 1, 3 * number + 2} and len(good) == len(set(good))
    skipped = list_rows(slices, "skip")
    assert [offset for _, offset, _ in skipped] == good and not any(
        fault for _, _, fault in skipped
    )


@pytest.mark.parametrize("size", [1, 500, 3_000])
def test_the_walk_is_not_led_astray(tmp_path, size):
    """A damaged length leads to false headers in an intact batch, which must stay whole."""
    like = b"\x80" + bytes(7) + struct.pack(">i", 100 - 12) + b"\0\0\0\0\2" + bytes(100 - 17)
    trap = encode_batch([like * 40], base_offset=120)
    inside = trap.index(like)
    before = RAW[: 10 * SIZE]
    damaged = (
        before[:-SIZE]
        + before[-SIZE : -SIZE + 8]
        + (SIZE + inside - 12).to_bytes(4, "big")
        + before[-SIZE + 12 :]
    )
    path = segment(tmp_path, damaged + trap + RAW[10 * SIZE :])
    slices = plan(path, "kafka.records", size)
    check_cover(slices, [path])
    good = [offset for _, offset, fault in list_rows(slices) if not fault]
    assert good == [*range(27), 120, *range(30, 120)]


@pytest.mark.parametrize("size", [500, 1_000, 3_000, SLICE_BYTES])
@pytest.mark.parametrize("number", [0, 3, 7, 8, 17, 38])
@pytest.mark.parametrize("damage", [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\2\0", b"\0\0\x20\0"])
def test_damage_is_told_however_the_file_is_cut(tmp_path, size, number, damage):
    """A frame that runs past the end of its slice is damage, unless that is the end of the file."""
    at = number * SIZE
    path = segment(tmp_path, RAW[: at + 8] + damage + RAW[at + 12 :])
    write_index(path, TRUE)
    slices = plan(path, "kafka.records", size)
    positions = [position for position, _, fault in list_rows(slices) if fault]
    assert positions and positions[0] == at
    with pytest.raises(FrameError) as caught:
        list_rows(slices, "strict")
    assert (caught.value.source, caught.value.offset) == (path, at)


@pytest.mark.parametrize("size", [1_000, 3_000, SLICE_BYTES])
def test_a_hole_of_zeros_is_told_however_the_file_is_cut(tmp_path, size):
    """Zeros at the end of a file were never written; at the end of a slice they are damage."""
    path = segment(tmp_path, RAW[: 3 * SIZE] + bytes(SIZE) + RAW[4 * SIZE :])
    write_index(path, TRUE)
    slices = plan(path, "kafka.records", size)
    assert [(position, fault > 0) for position, _, fault in list_rows(slices) if fault] == [
        (3 * SIZE, True)
    ]
    with pytest.raises(FrameError) as caught:
        list_rows(slices, "strict")
    assert (caught.value.source, caught.value.offset) == (path, 3 * SIZE)


@pytest.mark.parametrize("size", [1, 3_000])
def test_a_hole_of_zeros_loses_no_intact_batch(tmp_path, size):
    raw = RAW[: 10 * SIZE] + bytes(3 * SIZE) + RAW[13 * SIZE :]
    path = segment(tmp_path, raw)
    good = [
        offset for _, offset, fault in list_rows(plan(path, "kafka.records", size)) if not fault
    ]
    assert good == [n for n in range(120) if not 30 <= n < 39]


@pytest.mark.parametrize("tail", [b"", bytes(5_000), RAW[:40], RAW[: SIZE - 1]])
@pytest.mark.parametrize("size", [1, 1_000])
def test_tails_are_in_the_last_slice(tmp_path, tail, size):
    path = segment(tmp_path, RAW + tail)
    slices = plan(path, "kafka.records", size)
    check_cover(slices, [path])
    for errors in ("strict", "mark", "skip"):
        assert [(offset, fault) for _, offset, fault in list_rows(slices, errors)] == [
            (n, 0) for n in range(120)
        ]


@pytest.mark.parametrize("whole, stop", [(10, 10 * SIZE + 100), (0, 1), (40, 41 * SIZE)])
def test_a_slice_that_ends_inside_a_batch_before_its_file_does(tmp_path, whole, stop):
    path = segment(tmp_path, RAW + bytes(SIZE) + RAW)
    cut = [Slice(path, 0, stop)]
    with pytest.raises(FrameError, match="BAD_LENGTH") as caught:
        list_rows(cut, "strict")
    assert (caught.value.source, caught.value.offset) == (path, whole * SIZE)
    marked = list_rows(cut)
    assert [offset for _, offset, fault in marked if not fault] == list(range(3 * whole))
    assert [position for position, _, fault in marked if fault] == [whole * SIZE]
    assert list_rows(cut, "skip") == marked[: 3 * whole]


@pytest.mark.parametrize("cut", [0, 1, 100, SIZE - 1])
@pytest.mark.parametrize("size", [1, 1_000, SLICE_BYTES])
def test_a_file_that_grows_after_it_was_planned(tmp_path, cut, size):
    """The bytes of the time of the plan are read. The batch that was cut then is the tail."""
    path = segment(tmp_path, RAW[: 20 * SIZE + cut])
    slices = plan(path, "kafka.records", size)
    assert [piece.last for piece in slices] == [False] * (len(slices) - 1) + [True]
    Path(path).write_bytes(RAW)
    for errors in ("strict", "mark", "skip"):
        assert [(offset, fault) for _, offset, fault in list_rows(slices, errors)] == [
            (n, 0) for n in range(60)
        ]


def test_rubbish_stays_whole(tmp_path):
    path = segment(tmp_path, b"\xfe" * 10_000)
    assert plan(path, "kafka.records", 100) == [Slice(path, 0, 10_000)]


# ---- plan and groups


def test_plan_takes_what_open_takes(tmp_path):
    for number in range(3):
        segment(tmp_path / "t-0", RAW, number)
    paths = sorted(map(str, (tmp_path / "t-0").glob("*.log")))
    for source in (
        tmp_path,
        str(tmp_path / "t-0"),
        str(tmp_path / "*" / "*.log"),
        paths,
        [Path(p) for p in paths],
    ):
        check_cover(plan(source, "kafka.records", 1_000), paths)
    assert plan([paths[1], paths[0]], "kafka.records") == [
        Slice(paths[1], 0, len(RAW)),
        Slice(paths[0], 0, len(RAW)),
    ]
    url = Path(paths[0]).as_uri()
    assert [(piece.start, piece.stop) for piece in plan(url, "kafka.records", 1_000)] == [
        (piece.start, piece.stop) for piece in plan(paths[0], "kafka.records", 1_000)
    ]
    assert (
        plan(paths[0], "kafka.headers", 1_000)
        == plan(paths[0], "kafka.batches", 1_000)
        == plan(paths[0], "kafka.records", 1_000)
    )


def test_plan_refuses_bad_arguments(tmp_path):
    for size in (0, -1):
        with pytest.raises(ValueError, match="at least 1 byte"):
            plan(ORDERS, "kafka.records", size)
    with pytest.raises(ValueError, match="no format"):
        plan(ORDERS, "kafka.nothing", 100)
    with pytest.raises(FileNotFoundError, match="no file to read in"):
        plan(tmp_path, "kafka.records")
    with pytest.raises(FileNotFoundError, match="No such file.*none.log"):
        plan(tmp_path / "none.log", "kafka.records")


def test_empty_files_have_no_slices(tmp_path):
    path = segment(tmp_path, b"")
    assert plan(path, "kafka.records") == [] and plan([path, SEGMENTS[0]], "kafka.records") == [
        Slice(SEGMENTS[0], 0, os.path.getsize(SEGMENTS[0]))
    ]


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(1, 150))
def test_groups_have_at_most_the_given_size(sizes, size):
    slices = [Slice(f"{i}", 10, 10 + n) for i, n in enumerate(sizes)]
    found = group_slices(slices, size)
    assert sum(found, []) == slices and all(found)
    for group in found:
        assert sum(map(len, group)) <= size or len(group) == 1
    for one, other in zip(found, found[1:]):
        assert sum(map(len, one)) + len(other[0]) > size


def test_no_slices_give_no_groups():
    assert group_slices([]) == []


# ---- tasks

MIB = 1 << 20


def sparse(folder, sizes):
    """Files of these sizes that take no room on the disk; their paths."""
    folder.mkdir(exist_ok=True)
    paths = [str(folder / f"{number:020}.log") for number in range(len(sizes))]
    for path, size in zip(paths, sizes):
        Path(path).touch()
        os.truncate(path, size)
    return paths


def every(step, asked=None):
    """What finds cuts in files whose frames have `step` bytes each."""

    def cut(files, size):
        if asked is not None:
            asked.extend(file.path for file in files)
        return [range(0, file.size, max(-(-size // step) * step, step)) for file in files]

    return cut


@pytest.mark.parametrize(
    "size", [1, 100, 5_000, 16_384, 50_000, 100_000, 258_000, 1 << 20, SLICE_BYTES]
)
def test_tasks_of_real_segments(size):
    task_plan = plan_tasks(ORDERS, "kafka.records", size)
    check_cover(task_plan.slices, SEGMENTS)
    assert {piece.start for piece in task_plan.slices if piece.path == SEGMENTS[1]} <= list_starts(
        SEGMENTS[1]
    ) | {0}
    assert (
        list_offsets(task_plan.slices) == wirescan.scan(ORDERS, "kafka.records")["offset"].tolist()
    )
    assert [piece.last for piece in task_plan.slices] == [
        piece.stop == os.path.getsize(piece.path) for piece in task_plan.slices
    ]
    if size >= 100_000:
        assert task_plan.skew < 1.3 and task_plan.uncut == []


@settings(max_examples=read_example_count(12), deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 3_000), st.integers(0, 100 * MIB)), max_size=40),
    st.integers(1, 100_000),
    st.integers(20, 300),
)
def test_tasks_are_even(tmp_path_factory, sizes, step, mib):
    paths = sparse(tmp_path_factory.mktemp("even"), sizes)
    size, asked = mib * MIB // 10, []
    found = plan_tasks(paths, "kafka.records", size, cut=every(step, asked))
    check_cover(found.slices, paths)
    assert all(one.start % step == 0 for one in found.slices)
    assert all(found) and len(found) <= -(-found.bytes // size) + 1 and found.skew < 1.3
    assert set(asked) == {one.path for one in found.slices if len(one) < os.path.getsize(one.path)}
    for one, other in zip(found, found[1:]):  # in order, and neighbours are one slice
        assert (one[-1].path, one[-1].stop) != (one[0].path, one[0].start) and one[
            -1
        ].path <= other[0].path
    for task in found:
        assert len({one.path for one in task}) == len(task)


def test_only_files_across_a_border_are_cut(tmp_path):
    paths, asked = sparse(tmp_path / "t-0", [64 * MIB] * 20), []
    task_plan = plan_tasks(tmp_path / "t-0", "kafka.records", 128 * MIB, cut=every(1000, asked))
    assert [[piece.path for piece in task] for task in task_plan] == [
        paths[i : i + 2] for i in range(0, 20, 2)
    ]
    assert asked == [] and task_plan.skew == 1
    task_plan = plan_tasks(tmp_path / "t-0", "kafka.records", 100 * MIB, cut=every(1000, asked))
    assert len(task_plan) == 13 and task_plan.skew < 1.3 and 10 <= len(asked) <= 12


@pytest.mark.parametrize("slots", [1, 2, 4, 5, 7])
def test_tasks_fill_all_slots(tmp_path, slots):
    """Each round of tasks has work for all slots, unless the tasks would be too small."""
    paths = sparse(tmp_path / "t-0", [500 * MIB])
    task_plan = plan_tasks(paths, "kafka.records", 50 * MIB, cut=every(1000), slots=slots)
    assert len(task_plan) == -(-10 // slots) * slots
    assert task_plan.skew < 1.3
    check_cover(task_plan.slices, paths)
    paths = sparse(tmp_path / "t-1", [20 * MIB])
    assert len(plan_tasks(paths, "kafka.records", 20 * MIB, cut=every(1000), slots=slots)) == min(
        slots, 2
    )


def test_small_files_share_a_task_but_not_too_many(tmp_path):
    paths = sparse(tmp_path / "t-0", [10] * 5 * FILES)
    task_plan = plan_tasks(tmp_path / "t-0", "kafka.records")
    assert [len(task) for task in task_plan] == [FILES] * 5
    check_cover(task_plan.slices, paths)
    assert task_plan.skew == 1 and task_plan.bytes == 50 * FILES


def test_what_cannot_be_cut_is_told(tmp_path):
    paths = sparse(tmp_path / "t-0", [10 * MIB, 700 * MIB, 10 * MIB] + [600 * MIB] * 6)
    task_plan = plan_tasks(
        paths, "kafka.records", 100 * MIB, cut=lambda files, size: [[0] for file in files]
    )
    check_cover(task_plan.slices, paths)
    assert [piece.path for piece in task_plan.uncut] == [
        paths[1],
        *paths[3:],
    ] and task_plan.skew > 1.1
    lines = str(task_plan).splitlines()
    assert lines[0].startswith(
        f"{len(task_plan)} tasks: 4.219 GiB of 9 files; the largest task is 1."
    )
    assert (
        lines[1]
        == f"not cut: {paths[1]}, 700 MiB from byte 0 on: no beginning of a frame is known in it"
    )
    assert lines[6:] == ["... and 2 more that are not cut"]
    assert repr(task_plan) == f"<Plan: {lines[0]}>"
    assert (
        str(plan_tasks(paths[0], "kafka.records"))
        == "1 task: 10 MiB of 1 file; the largest task is 1.00 times the mean"
    )
    assert "1023 bytes" in str(Plan([[Slice("a", 0, 1023)]]))


def test_a_plan_is_a_sequence(tmp_path):
    task_plan = plan_tasks(ORDERS, "kafka.records", 100_000)
    assert (
        list(task_plan) == task_plan.tasks == [task_plan[i] for i in range(len(task_plan))]
        and task_plan == task_plan.tasks
    )
    assert (
        isinstance(task_plan[3:5], Plan)
        and task_plan[3:5] == task_plan.tasks[3:5]
        and task_plan != task_plan[1:]
    )
    assert pickle.loads(pickle.dumps(task_plan)) == task_plan
    with pytest.raises(IndexError, match="out of range"):
        task_plan[len(task_plan)]
    segment(tmp_path / "empty-0", b"")
    nothing = plan_tasks(tmp_path / "empty-0", "kafka.records")
    assert (
        nothing == [] and not nothing and (nothing.bytes, nothing.skew, nothing.uncut) == (0, 1, [])
    )
    assert str(nothing) == "0 tasks: 0 bytes of 0 files; the largest task is 1.00 times the mean"


def test_tasks_refuse_what_plan_refuses(tmp_path):
    for arguments in ((ORDERS, "kafka.records", 0), (ORDERS, "kafka.nothing", 100)):
        with pytest.raises(ValueError, match="at least 1 byte|no format 'kafka.nothing'"):
            plan_tasks(*arguments)
    with pytest.raises(FileNotFoundError, match="No such file.*none.log"):
        plan_tasks(tmp_path / "none.log", "kafka.records")
    with pytest.raises(ValueError, match="no operator"):
        plan_tasks(ORDERS, "kafka.records", filters=[("offset", "=", 3)])
    with pytest.raises(ValueError, match="at least 1 task"):
        plan_tasks(ORDERS, "kafka.records", slots=0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="cannot be read in parts"):
        plan_tasks(tmp_path / "pipe", "kafka.records")


@pytest.mark.parametrize(
    "low, high", [(0, 10), (9_000, 9_100), (1_000, 26_000), (27_000, 10**9), (-5, -1)]
)
def test_filters_leave_out_what_has_no_such_row(low, high):
    conditions = [("offset", ">=", low), ("offset", "<=", high)]
    task_plan = plan_tasks(ORDERS, "kafka.records", 50_000, filters=conditions)
    offsets = [offset for offset in list_offsets(task_plan.slices) if low <= offset <= high]
    whole = wirescan.scan(ORDERS, "kafka.records")["offset"]
    assert offsets == whole[(whole >= low) & (whole <= high)].tolist()
    assert task_plan.bytes < plan_tasks(ORDERS, "kafka.records").bytes and (
        task_plan.bytes < 300_000 or high - low > 10_000
    )
    assert all(
        piece.last == (piece.stop == os.path.getsize(piece.path)) for piece in task_plan.slices
    )
    name = plan_tasks(ORDERS, "kafka.records", filters=[("_file", "==", SEGMENTS[2])])
    assert [piece.path for piece in name.slices] == [SEGMENTS[2]]


@pytest.mark.slow
def test_a_thousand_segments_are_planned_quickly(tmp_path):
    """64 MiB each, with an index entry every 4 KiB. All bytes but the headers are holes."""
    count, size, batch = 1000, 64 * MIB, 4096
    grid = np.arange(1, size // batch)
    entries = np.empty(len(grid), [("offset", ">i4"), ("position", ">i4")])
    entries["offset"], entries["position"] = grid, grid * batch
    (tmp_path / "index").write_bytes(entries.tobytes())
    (tmp_path / "t-0").mkdir()
    header = bytearray(files.LAST_OFFSET_STOP)
    header[8:12], header[16] = (batch - files.SIZED.overhead).to_bytes(4, "big"), 2
    looked_at = {
        int(number)
        for parts in (25 * MIB, 100 * MIB)
        for number in -(-_count_targets(count, size, parts) // batch)
    }
    for number in range(count):
        base = number * (size // batch)
        path = tmp_path / "t-0" / f"{base:020}.log"
        with open(path, "wb") as file:
            for entry in looked_at:
                header[:8] = (base + entry).to_bytes(8, "big")
                os.pwrite(file.fileno(), header, entry * batch)
            os.truncate(file.fileno(), size)
        os.link(tmp_path / "index", path.with_suffix(".index"))
    for parts in (25 * MIB, 100 * MIB):
        task_plan = plan_tasks(tmp_path / "t-0", "kafka.records", parts)
        assert task_plan.skew < 1.3 and task_plan.uncut == []
        assert task_plan.bytes == count * size and len(task_plan) == count * size // parts


def _count_targets(count, size, parts):
    """Where cuts are looked for in each file, `splits.GRAINS` of them a task."""
    grain = int(count * size / -(-count * size // parts) / partition.GRAINS)
    return np.arange(grain, size, grain)
