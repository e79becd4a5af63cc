"""Liftbridge's partition directories.

Look-ups agree with a walk over every entry, whatever the indexes hold. The files beside segments
are read, and their faults are reported.
"""

import os
import shutil
import struct
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import read_example_count
from tests.support.file_errors import catch_file_error
from tests.support.paths import CORPUS
from wirescan import Fault, FrameError, Limits, liftbridge
from wirescan.liftbridge import CommitLog, files
from wirescan.liftbridge.log import commit_log, index_files, segment
from wirescan.reading import splits as partition
from wirescan.reading.chunked import iter_tables
from wirescan.seglog import segments as seglog

DIRECTORIES = sorted({path.parent for path in (CORPUS / "liftbridge").rglob("*.log")})
TIME = 1_700_000_000_000_000_000
WINDOWS = st.sampled_from((17, 200, 16 << 10))
ENTRY = struct.Struct(">iqii")


# ---- a slow writer


def record(offset, timestamp=TIME, epoch=1, key=None, value=b"", headers=()):
    def sized(data):
        return struct.pack(">i", -1 if data is None else len(data)) + (data or b"")

    message = b"\1\0" + sized(key) + sized(value) + struct.pack(">H", len(headers))
    message += b"".join(struct.pack(">H", len(name)) + name + sized(data) for name, data in headers)
    size = 4 + len(message)
    return struct.pack(">qqQII", offset, timestamp, epoch, size, crc32c(message)) + message


def offset_of(raw):
    """Return the offset of a record."""
    return struct.unpack_from(">q", raw)[0]


def index_of(base, parts):
    out = b""
    at = 0
    for part in parts:
        offset, timestamp = struct.unpack_from(">qq", part)
        out += ENTRY.pack(offset - base, timestamp, at, len(part))
        at += len(part)
    return out


def write(folder, name, raw):
    """Write the file, or remove it if `raw` is None. Return its path."""
    path = Path(folder, name)
    path.unlink(missing_ok=True)
    if raw is not None:
        path.write_bytes(raw)
    return str(path)


def make(folder, parts_of):
    """Write segments [(base, [record])] with indexes into an empty folder; return [(base, bytes)].

    The last index ends in zeros, as a server leaves it while it writes.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, (base, parts) in enumerate(parts_of):
        tail = bytes(20 * 30) if number == len(parts_of) - 1 else b""
        write(folder, f"{base:020}.log", b"".join(parts))
        write(folder, f"{base:020}.index", index_of(base, parts) + tail)
    return [(base, b"".join(parts)) for base, parts in parts_of]


@st.composite
def segments(draw, most=4):
    """Draw [(base offset, [record])]. Offsets rise, with gaps; timestamps mostly rise."""
    offset = draw(st.sampled_from((0, 5, 2**40)))
    stamp = 100
    out = []
    for _ in range(draw(st.integers(1, most))):
        base = offset
        parts = []
        for _ in range(draw(st.integers(0, 8))):
            offset += draw(st.sampled_from((0, 0, 0, 3)))
            stamp += draw(st.sampled_from((0, 1, 2, 9, -4)))
            headers = draw(st.sampled_from(((), ((b"subject", b"s"), (b"", None)))))
            key = draw(st.sampled_from((None, b"", b"key")))
            value = b"v" * draw(st.integers(0, 30))
            parts.append(record(offset, TIME + stamp, 1, key, value, headers))
            offset += 1
        out.append((base, parts))
        offset = max(offset, base + 1)
    return out


@st.composite
def damaged_indexes(draw, raw, times=True):
    """Draw an index that is cut, changed, empty, missing, padded, noise, or out of order.

    times: timestamps may be changed too.
    """
    kind = draw(
        st.sampled_from(
            ("as it is", "padded", "cut", "changed", "empty", "missing", "noise", "shuffled")
        )
    )
    if kind == "padded":
        return raw + bytes(draw(st.integers(1, 800)))
    if kind == "cut":
        return raw[: draw(st.integers(0, len(raw)))]
    if kind == "changed" and raw:
        positions = st.integers(0, len(raw) - 1)
        at = draw(positions.filter(lambda at: times or not 4 <= at % ENTRY.size < 12))
        return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
    if kind == "shuffled":
        entries = [raw[at : at + ENTRY.size] for at in range(0, len(raw), ENTRY.size)]
        return b"".join(draw(st.permutations(entries)))
    return {"empty": b"", "missing": None, "noise": draw(st.binary(max_size=60))}.get(kind, raw)


# ---- the slow reader


def rows_of(raw):
    table = liftbridge.entries(raw, errors="mark")
    return [dict(zip(table.dtype.names, row)) for row in table.rows.tolist()]


def slow_find(raw_of, column, goal):
    """Return the place of the first entry whose column is at least `goal`, or None.

    Damage before that entry may hide an earlier one; then the place is the start of the damage.
    """
    first = 0
    if column == "offset":
        first = max((n for n, (base, _) in enumerate(raw_of) if base <= goal), default=0)
    for number in range(first, len(raw_of)):
        end = 0
        damaged = False
        for row in rows_of(raw_of[number][1]):
            if row["fault"]:
                damaged = True
                continue
            if row[column] >= goal:
                exact = column == "offset" and row["offset"] == goal
                return number, row["start"] if exact else end
            end = row["start"] + row["size"]
            damaged = False
        if damaged or (number < len(raw_of) - 1 and any(raw_of[number][1][end:])):
            return number, end  # a torn entry is a tail only at the end of the log
    return None


def around(values, step=1):
    near = {value + by for value in values for by in (-step, 0, step)}
    return sorted(near | {-1, 0, 2**62, 2**70})


def numbered_place(log, place):
    return None if place is None else (log.segments.index(place.segment), place.position)


def good_values(raw_of, column):
    """Return a column of all entries that are not bad."""
    rows = [row for _, raw in raw_of for row in rows_of(raw)]
    return [row[column] for row in rows if not row["fault"]]


def check_look_up(folder, raw_of, columns=("offset", "timestamp")):
    log = CommitLog(folder)
    for column in columns:
        look_up = log.find if column == "offset" else log.find_time
        for goal in around(good_values(raw_of, column)):
            expected = slow_find(raw_of, column, goal)
            assert numbered_place(log, look_up(goal)) == expected, (column, goal)


# ---- the laws


@pytest.mark.parametrize("column", ["offset", "timestamp"])
@settings(max_examples=read_example_count(8), deadline=None)
@given(st.data(), segments(), WINDOWS)
def test_look_up_agrees_with_a_walk_for_any_index(tmp_path_factory, column, data, parts_of, window):
    folder = tmp_path_factory.getbasetemp() / "look" / "0"
    raw_of = make(folder, parts_of)
    for base, parts in parts_of:
        damaged = data.draw(damaged_indexes(index_of(base, parts), times=column == "offset"))
        write(folder, f"{base:020}.index", damaged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seglog, "WINDOW", window)
        check_look_up(folder, raw_of, (column,))


def damage(data, raw, parts):
    """Damage some records of a segment, and append something to it.

    Records are damaged from their size on. No checksum covers the bytes before the size, so another
    offset there would be another valid log.
    """
    out = bytearray(raw)
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    for _ in range(data.draw(st.integers(0, 2)) if parts else 0):
        number = data.draw(st.integers(0, len(parts) - 1))
        start = starts[number]
        if data.draw(st.booleans()):  # another plausible size
            size = data.draw(st.integers(16, len(raw) - start))
            struct.pack_into(">I", out, start + 24, size)
        else:
            at = start + data.draw(st.integers(24, len(parts[number]) - 1))
            out[at] = data.draw(st.integers(0, 255))
    tails = (b"", b"", bytes(100), record(2**50, value=bytes(90))[:80])
    return bytes(out) + data.draw(st.sampled_from(tails))


@settings(max_examples=read_example_count(10), deadline=None)
@given(st.data(), segments(3), WINDOWS)
def test_look_up_in_damaged_segments(tmp_path_factory, data, parts_of, window):
    folder = tmp_path_factory.getbasetemp() / "damaged" / "0"
    raw_of = make(folder, parts_of)
    raw_of = [
        (base, damage(data, raw, parts))
        for (base, raw), (_, parts) in zip(raw_of, parts_of, strict=True)
    ]
    for base, raw in raw_of:
        write(folder, f"{base:020}.log", raw)
    log = CommitLog(folder)
    whole = []  # (place, offset) of each record without damage
    for number, (_, parts) in enumerate(parts_of):
        for at, part in zip(np.cumsum([0, *map(len, parts)]).tolist(), parts):
            if raw_of[number][1][at : at + len(part)] == part:
                whole.append(((number, at), offset_of(part)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seglog, "WINDOW", window)
        # An index may lead to an entry that the walk counts as a part of a damaged entry.
        end = (len(raw_of), 0)
        for goal in around(good_values(raw_of, "offset")):
            wanted = slow_find(raw_of, "offset", goal)
            place = numbered_place(log, log.find(goal))
            if place != wanted:
                assert all(offset < goal for at, offset in whole if at < (place or end))
                if place is None:
                    continue
                number, position = place
                first = rows_of(raw_of[number][1][position:])[:1]
                assert not first or first[0]["fault"] or first[0]["offset"] >= goal
        for base, _ in raw_of:
            write(folder, f"{base:020}.index", None)
        check_look_up(folder, raw_of)


@settings(max_examples=read_example_count(8), deadline=None)
@given(st.data(), segments())
def test_a_part_of_a_log_equals_that_part_of_the_whole(tmp_path_factory, data, parts_of):
    folder = tmp_path_factory.getbasetemp() / "part" / "0"
    raw_of = make(folder, parts_of)
    pairs = [(row["offset"], row["timestamp"]) for _, raw in raw_of for row in rows_of(raw)]
    offset_bounds = st.none() | st.sampled_from(around(offset for offset, _ in pairs))
    time_bounds = st.none() | st.sampled_from(around(stamp for _, stamp in pairs))
    start = data.draw(offset_bounds)
    stop = data.draw(offset_bounds)
    early = data.draw(time_bounds)
    late = data.draw(time_bounds)

    def first(stamp):
        """Return the number of the first entry that is not before a time."""
        return next((i for i, pair in enumerate(pairs) if pair[1] >= stamp), len(pairs))

    low = first(-(2**63) if early is None else early)
    high = len(pairs) if late is None else first(late)
    wanted = [
        (offset, stamp)
        for offset, stamp in pairs[low:high]
        if (start is None or offset >= start) and (stop is None or offset < stop)
    ]
    for check in (True, False):
        part = liftbridge.open_log(
            folder, start=start, stop=stop, start_time=early, stop_time=late, check=check
        )
        assert part.rows[["offset", "timestamp"]].tolist() == wanted
        assert part.checked == check or not wanted
        rows = [row for _, raw in raw_of for row in rows_of(raw)]
        starts = [row["start"] for row in rows if (row["offset"], row["timestamp"]) in wanted]
        assert [part.positions[i] for i in range(len(part))] == starts


@settings(max_examples=read_example_count(8), deadline=None)
@given(st.data(), segments(2))
def test_damage_in_a_part_is_reported(tmp_path_factory, data, parts_of):
    """No offset is lost silently: it is read, or a strict read raises."""
    folder = tmp_path_factory.getbasetemp() / "damaged part" / "0"
    make(folder, parts_of)
    base, parts = parts_of[data.draw(st.integers(0, len(parts_of) - 1))]
    if not parts:
        return
    number = data.draw(st.integers(0, len(parts) - 1))
    damage_start = sum(map(len, parts[:number]))
    raw = bytearray(b"".join(parts))
    raw[damage_start + data.draw(st.integers(24, 27))] ^= data.draw(st.integers(1, 255))
    write(folder, f"{base:020}.log", bytes(raw))
    lost = offset_of(parts[number])
    offsets = [offset_of(part) for _, segment_parts in parts_of for part in segment_parts]
    start, stop = sorted(data.draw(st.lists(st.sampled_from(offsets), min_size=2, max_size=2)))
    inside = [offset for offset in offsets if start <= offset < stop and offset != lost]
    try:
        table = liftbridge.open_log(folder, start=start, stop=stop)
    except FrameError as error:
        assert error.source == str(folder / f"{base:020}.log")
        assert error.offset == damage_start
        marked = liftbridge.open_log(folder, start=start, stop=stop, errors="mark")
        skipped = liftbridge.open_log(folder, start=start, stop=stop, errors="skip")
        # If a wrong size ends where another record ends, the bad row covers the records between.
        bad_start = marked.positions[marked.bad][0]
        bad_stop = (marked.positions + marked["size"])[marked.bad][0]
        starts = np.cumsum([0, *map(len, parts)]).tolist()
        covered = {offset_of(part) for part, at in zip(parts, starts) if bad_start <= at < bad_stop}
        rest = [offset for offset in inside if offset not in covered]
        assert bad_start == damage_start
        assert marked["offset"][~marked.bad].tolist() == rest
        assert skipped["offset"].tolist() == rest
    else:
        # A wrong size at the end of the log is a tail, as it is when the whole log is read.
        assert table["offset"].tolist() == inside
        is_tail = (
            number == len(parts) - 1
            and base == parts_of[-1][0]
            and Fault.SHORT in [end.fault for end in table.stops]
        )
        assert is_tail or not start <= lost < stop


def test_a_false_size_beyond_the_part(tmp_path):
    """The index leads past the damage, so the part ends inside the record with the wrong size."""
    parts = [record(n, TIME + n, value=bytes(50)) for n in range(20)]
    raw = bytearray(b"".join(parts))
    size = len(parts[0])
    struct.pack_into(">I", raw, 4 * size + 24, 6 * size)
    make(tmp_path / "0", [(0, parts)])
    write(tmp_path / "0", f"{0:020}.log", raw)
    with pytest.raises(FrameError) as caught:
        liftbridge.open_log(tmp_path / "0", start=2, stop=6)
    assert caught.value.fault == Fault.BAD_LENGTH
    assert caught.value.offset == 4 * size
    assert caught.value.row == 2
    for stop in (5, 6, 12):
        marked = liftbridge.open_log(tmp_path / "0", start=2, stop=stop, errors="mark")
        assert marked["offset"][~marked.bad].tolist() == [n for n in range(2, stop) if n != 4]
        assert marked["size"].sum() == sum(map(len, marked.buffers)) == (stop - 2) * size
        assert marked.bad.sum() == 1


def test_damage_at_the_end_of_a_part(tmp_path):
    """Damage between the last entry and `stop`, or at the torn end of a segment, is reported."""
    parts = [record(n, value=bytes(20)) for n in range(4)]
    make(tmp_path / "0", [(0, parts[:3]), (3, parts[3:])])
    broken = bytearray(b"".join(parts[:3]))
    broken[len(parts[0]) + 60] ^= 1
    write(tmp_path / "0", f"{0:020}.log", broken)
    marked = liftbridge.open_log(tmp_path / "0", start=0, stop=2, errors="mark")
    assert marked["fault"].tolist() == [0, Fault.BAD_CHECKSUM]
    write(tmp_path / "0", f"{0:020}.log", b"".join(parts[:3])[:-1])
    for stop in 3, 4, None:
        with pytest.raises(FrameError, match="BAD_LENGTH"):
            liftbridge.open_log(tmp_path / "0", start=2, stop=stop)
    torn = liftbridge.open_log(tmp_path / "0", start=2, errors="mark")
    assert torn["fault"].tolist() == [Fault.BAD_LENGTH, 0]
    assert bytes(torn.frame(0)) == parts[2][:-1]
    assert liftbridge.open_log(tmp_path / "0", start=2, errors="skip")["offset"].tolist() == [3]
    assert CommitLog(tmp_path / "0").find(4) is None


# ---- gaps, verify


def slow_gaps(offsets):
    return [[min(a + 1, 2**63 - 1), b] for a, b in zip(offsets, offsets[1:]) if b != a + 1]


@settings(max_examples=read_example_count(12), deadline=None)
@given(
    st.lists(
        st.integers(0, 12) | st.sampled_from((-(2**63), -1, 2**63 - 2, 2**63 - 1)), max_size=12
    )
)
def test_gaps_are_found(offsets):
    table = liftbridge.entries(b"".join(record(offset) for offset in offsets))
    gaps = liftbridge.gaps(table)
    assert gaps.dtype == np.int64
    assert gaps.shape[1] == 2
    assert gaps.tolist() == slow_gaps(offsets)


def test_gaps_of_a_compacted_log(tmp_path):
    segments_of_offsets = {10: (10, 11, 15), 20: (20, 21), 30: (), 31: (31,)}
    make(
        tmp_path / "0",
        [(base, [record(n) for n in offsets]) for base, offsets in segments_of_offsets.items()],
    )
    table = liftbridge.open_log(tmp_path / "0")
    assert liftbridge.gaps(table).tolist() == [[12, 15], [16, 20], [22, 31]]
    broken = bytearray(b"".join(record(n, value=b"abc") for n in range(5)))
    broken[2 * len(broken) // 5 + 45] ^= 1
    assert liftbridge.gaps(liftbridge.entries(broken, errors="mark")).tolist() == [[2, 3]]
    back = b"".join(record(n) for n in (4, 5, 2, 3, 3))
    assert liftbridge.gaps(liftbridge.entries(back)).tolist() == [[6, 2], [4, 3]]
    for other in (liftbridge.headers(table), None, table["offset"]):
        with pytest.raises(TypeError, match="gaps are computed from a table of liftbridge.entries"):
            liftbridge.gaps(other)


def slow_verify(base, listed, raw):
    """Return (base, number, position, offset) as `CommitLog.verify` does for one index."""
    records = {
        row["start"]: (row["offset"], row["timestamp"], row["size"])
        for row in rows_of(raw)
        if not row["fault"]
    }
    entries = [(base + offset, stamp, at, size) for offset, stamp, at, size in listed]
    while entries and listed[len(entries) - 1] == (0, 0, 0, 0):
        entries.pop()
    seen = set()
    out = []
    for number, (offset, stamp, at, size) in enumerate(entries):
        if records.get(at) != (offset, stamp, size) or at in seen:
            out.append((base, number, at, offset))
        seen.add(at)
    unlisted = records.keys() - {at for _, _, at, _ in entries}
    return out + [
        (base, -1, at, offset) for at, (offset, _, _) in records.items() if at in unlisted
    ]


@settings(max_examples=read_example_count(12), deadline=None)
@given(st.data(), segments(2))
def test_verify_finds_damaged_indexes(tmp_path_factory, data, parts_of):
    folder = tmp_path_factory.getbasetemp() / "verify" / "0"
    raw_of = make(folder, parts_of)
    disagreements = CommitLog(folder).verify()
    assert disagreements.dtype == segment.DISAGREEMENT
    assert not len(disagreements)
    wanted = []
    for number, (base, parts) in enumerate(parts_of):
        raw = damage(data, raw_of[number][1], parts)
        listed = data.draw(damaged_indexes(index_of(base, parts)))
        write(folder, f"{base:020}.log", raw)
        write(folder, f"{base:020}.index", listed)
        if listed is not None:
            whole = listed[: len(listed) // ENTRY.size * ENTRY.size]
            wanted += slow_verify(base, list(ENTRY.iter_unpack(whole)), raw)
    assert CommitLog(folder).verify().tolist() == wanted


def test_verify_reports_every_field(tmp_path):
    parts = [record(n, TIME + n) for n in range(5)]
    make(tmp_path / "0", [(0, parts)])
    entries = list(ENTRY.iter_unpack(index_of(0, parts)))
    for field in range(4):
        changed = [list(entry) for entry in entries]
        changed[2][field] += 1
        write(tmp_path / "0", f"{0:020}.index", b"".join(ENTRY.pack(*entry) for entry in changed))
        offset, _, position, _ = changed[2]
        expected = [(0, 2, position, offset)]
        if field == 2:  # the position: no entry lists the record
            expected.append((0, -1, 2 * len(parts[0]), 2))
        assert CommitLog(tmp_path / "0").verify().tolist() == expected
    write(tmp_path / "0", f"{0:020}.index", index_of(0, parts[:3]))
    expected = [(0, -1, n * len(parts[0]), n) for n in (3, 4)]
    assert CommitLog(tmp_path / "0").verify().tolist() == expected
    write(tmp_path / "0", f"{0:020}.log", b"")
    expected = [(0, n, n * len(parts[0]), n) for n in range(3)]
    assert CommitLog(tmp_path / "0").verify().tolist() == expected


# ---- boundaries


def list_starts_slowly(raw):
    return [row["start"] for row in rows_of(raw)]


@settings(max_examples=read_example_count(12), deadline=None)
@given(st.data(), segments(1), st.integers(1, 400), st.booleans())
def test_boundaries_are_starts_of_entries(tmp_path_factory, data, parts_of, size, damaged):
    folder = tmp_path_factory.getbasetemp() / "cuts" / "0"
    [(base, raw)] = make(folder, parts_of)
    [(_, parts)] = parts_of
    raw = damage(data, raw, parts) if damaged else raw
    path = write(folder, f"{base:020}.log", raw)
    write(folder, f"{base:020}.index", data.draw(damaged_indexes(index_of(base, parts))))
    boundaries = files.find_boundaries(path, size)
    good = {row["start"] for row in rows_of(raw) if not row["fault"]}
    assert boundaries[0] == 0
    assert all(b - a >= size for a, b in zip(boundaries, boundaries[1:]))
    bounds = [*boundaries, len(raw)]
    slices = list(zip(bounds, bounds[1:]))
    if not damaged:
        assert set(boundaries[1:]) <= good
        for start, stop in slices:
            assert stop - start < 2 * size + 100 or any(start < at < stop for at in good)
    tables = [
        table
        for start, stop in slices
        for table in iter_tables(path, start, stop, format="liftbridge.entries", errors="skip")
    ]
    offsets = [offset for table in tables for offset in table["offset"].tolist()]
    whole = liftbridge.entries(raw, errors="skip")["offset"].tolist()
    assert offsets == whole or (damaged and set(whole) <= set(offsets))


def test_boundaries_by_an_index_need_no_walk(tmp_path, monkeypatch):
    parts = [record(n, TIME + n, value=bytes(n % 300)) for n in range(2000)]
    [(_, raw)] = make(tmp_path / "0", [(0, parts)])
    path = str(tmp_path / "0" / f"{0:020}.log")
    starts = list_starts_slowly(raw)
    by_walk = [0]
    for start in starts:
        if start - by_walk[-1] >= 20_000:
            by_walk.append(start)
    walked = []
    walk = files.find_cuts_at_headers

    def note_walk(*arguments, limits):
        walked.append(arguments)
        return walk(*arguments, limits=limits)

    monkeypatch.setattr(files, "find_cuts_at_headers", note_walk)
    assert files.find_boundaries(path, 20_000) == by_walk
    assert not walked
    assert files.find_boundaries(path, len(raw)) == [0]
    listed = index_of(0, parts)
    # An index of half the segment, an index with a wrong entry, and no index.
    number = starts.index(by_walk[3])
    wrong = ENTRY.pack(number, TIME, by_walk[3], len(parts[number]))
    with_wrong_entry = listed[: 20 * number] + wrong + listed[20 * number + 20 :]
    for index_raw in (listed[:20_000], with_wrong_entry, None):
        write(tmp_path / "0", f"{0:020}.index", index_raw)
        walked.clear()
        assert files.find_boundaries(path, 20_000) == by_walk
        assert walked
    slices = partition.plan(tmp_path / "0", "liftbridge.entries", 20_000)
    assert len(slices) == -(-len(raw) // 20_000)
    assert sum(map(len, slices)) == len(raw)
    assert {part.start for part in slices} <= set(starts)


def test_boundaries_end_before_damage(tmp_path):
    parts = [record(n, value=bytes(100)) for n in range(50)]
    raw = bytearray(b"".join(parts))
    raw[20 * len(parts[0]) + 24] = 0xFF
    path = write(tmp_path, f"{0:020}.log", raw)
    assert files.find_boundaries(path, 500)[-1] <= 20 * len(parts[0])
    assert len(files.find_boundaries(path, 500)) > 3
    # A false size leads into a value that looks like a header.
    fake = record(7, value=bytes(60))
    inside = struct.pack(">qqQI", 9, 9, 9, 200) + bytes(100) + fake
    raw = bytearray(b"".join([record(0), record(1, value=inside), *parts]))
    at = len(record(0))
    struct.pack_into(">I", raw, at + 24, 16 + raw[at:].index(inside) - 44)
    path = write(tmp_path, f"{0:020}.log", raw)
    starts = {row["start"] for row in rows_of(bytes(raw)) if not row["fault"]}
    assert struct.unpack_from(">q", raw, at + raw[at:].index(inside))[0] == 9
    assert set(files.find_boundaries(path, 40)) <= starts | {0}


# ---- directories


def test_files_of_a_directory(tmp_path):
    parts = [record(n, TIME + n) for n in range(6)]
    folder = tmp_path / "streams" / "orders" / "0"
    make(folder, [(0, parts[:3]), (3, parts[3:])])
    others = [f"{0:020}.log.cleaned", f"{3:020}.log.truncated", f"{0:020}.index.cleaned"]
    for name in (*others, "notes.log"):
        write(folder, name, parts[0])
    assert CommitLog(folder).high_watermark is None
    assert not len(CommitLog(folder).read_leader_epochs())
    write(folder, "replication-offset-checkpoint", b"4")
    write(folder, "leader-epoch-checkpoint", b"0\n2\n1 -1\n3 2\n")
    log = CommitLog(folder)
    assert [part.base_offset for part in log.segments] == [0, 3]
    assert "2 segments" in repr(log)
    assert log.high_watermark == 4
    assert log.read_leader_epochs().tolist() == [(1, -1), (3, 2)]
    indexes = [part.read_index()["offset"].tolist() for part in log.segments]
    assert indexes == [[0, 1, 2], [3, 4, 5]]
    for source in (folder, tmp_path / "streams", f"{folder}/*"):
        if source == f"{folder}/*":
            (folder / "notes.log").unlink()
        assert liftbridge.entries(source)["offset"].tolist() == [0, 1, 2, 3, 4, 5]
    os.remove(folder / f"{0:020}.index")
    assert not len(log.segments[0].read_index())
    assert not len(log.verify())
    write(folder, f"{0:020}.index", b"x" * 20)
    with pytest.raises(FrameError, match="NOT_A_FRAME.*index"):
        log.segments[0].read_index()


def test_a_part_from_offset_0_equals_the_whole(tmp_path):
    parts = [record(n, TIME + n) for n in range(6)]
    make(tmp_path / "0", [(0, parts[:3]), (3, [*parts[3:], parts[0][:30]])])
    plain = liftbridge.open_log(tmp_path / "0")
    ranged = liftbridge.open_log(tmp_path / "0", start=0)
    assert plain.rows.tobytes() == ranged.rows.tobytes()
    assert plain.stop == ranged.stop
    assert bytes(plain.tail) == bytes(ranged.tail) == parts[0][:30]
    assert plain.checked
    assert ranged.checked
    assert plain.stop.fault == Fault.SHORT
    assert plain.format is ranged.format


def test_a_part_reads_only_that_part(tmp_path, monkeypatch):
    parts = [record(n, TIME + n, value=bytes(200)) for n in range(4000)]
    make(tmp_path / "0", [(0, parts[:2000]), (2000, parts[2000:])])
    walked = []
    scan = commit_log.LAYOUT.scan

    def scan_and_record(*args, **options):
        walked.append(scan(*args, **options))
        return walked[-1]

    layout = replace(commit_log.LAYOUT, scan=scan_and_record)
    monkeypatch.setattr(commit_log, "LAYOUT", layout)
    part = liftbridge.open_log(tmp_path / "0", start=1990, stop=2020)
    assert part["offset"].tolist() == list(range(1990, 2020))
    assert sum(map(len, part.buffers)) == 30 * len(parts[0])
    assert sum(used for *_, used in walked) < 60_000
    walked.clear()
    part = liftbridge.open_log(tmp_path / "0", start_time=TIME + 3000, stop_time=TIME + 3010)
    assert part["offset"].tolist() == list(range(3000, 3010))
    assert sum(used for *_, used in walked) < 60_000
    assert [bytes(row.value) for row in part[:1]] == [bytes(200)]
    assert part.positions[0] == 1000 * len(parts[0])


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(NotADirectoryError, match="not a directory: .*nothing"):
        CommitLog(tmp_path / "nothing")
    with pytest.raises(NotADirectoryError, match="not a directory: .*nothing"):
        liftbridge.open_log(tmp_path / "nothing")
    for read in (CommitLog, liftbridge.open_log):
        with pytest.raises(FileNotFoundError, match="no segment in|no file to read in"):
            read(tmp_path)
    make(tmp_path / "0", [(0, [record(0)])])
    for options in (
        {"start": 1.5},
        {"stop": "3"},
        {"start_time": b""},
        {"start": 1, "into": None},
        {"start": 1, "limits": 5},
    ):
        with pytest.raises(TypeError, match="as an integer|argument 'into'|limits must be"):
            liftbridge.open_log(tmp_path / "0", **options)
    with pytest.raises(ValueError, match="errors must be one of"):
        liftbridge.open_log(tmp_path / "0", start=1, errors="none")
    assert liftbridge.open_log(tmp_path / "0", start=np.int64(0)).rows.size == 1
    assert not len(liftbridge.open_log(tmp_path / "0", start=1))
    assert not len(liftbridge.open_log(tmp_path / "0", start=1, stop=0))


def test_limits_apply_to_a_log(tmp_path):
    make(tmp_path / "0", [(0, [record(0, value=bytes(5_000)), record(1)])])
    with pytest.raises(FrameError, match="BAD_LENGTH"):
        liftbridge.open_log(tmp_path / "0", start=0, limits=Limits(frame=1_000))
    assert len(liftbridge.open_log(tmp_path / "0", start=0, limits=Limits(frame=10_000))) == 2


def test_a_segment_that_became_shorter(tmp_path):
    make(tmp_path / "0", [(0, [record(n) for n in range(4)])])
    log = CommitLog(tmp_path / "0")
    os.truncate(log.segments[0].path, 50)
    for call in (lambda: log.find(2), lambda: log.read(1), log.verify):
        with pytest.raises(EOFError, match="has 50 bytes now, and had at least"):
            call()


def test_a_pipe_or_a_huge_file_is_not_an_index(tmp_path):
    raw_of = make(tmp_path / "0", [(0, [record(n, TIME + n, value=bytes(50)) for n in range(40)])])
    path = tmp_path / "0" / f"{0:020}.index"
    start = time.monotonic()
    path.unlink()
    os.mkfifo(path)
    check_look_up(tmp_path / "0", raw_of)
    files.find_boundaries(str(path)[:-5] + "log", 500)
    with pytest.raises(OSError, match="not a regular file"):
        CommitLog(tmp_path / "0").verify()
    path.unlink()
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    check_look_up(tmp_path / "0", raw_of)
    with pytest.raises(FrameError) as caught:
        index_files.read_index(str(path))
    assert caught.value.fault == Fault.BAD_LENGTH
    assert time.monotonic() - start < 10


# ---- the files beside segments


def test_an_index_is_read(tmp_path):
    base = 10**12
    good = [
        (0, TIME, 0, 44),
        (5, TIME - 1, 44, 256),
        (6, 0, 300, 1 << 30),
        (9, 5, 300 + (1 << 30), 100),
    ]

    def read(entries, tail):
        raw = b"".join(ENTRY.pack(*entry) for entry in entries) + tail
        return index_files.read_index(write(tmp_path, f"{base:020}.index", raw))

    expected = [(base + offset, *rest) for offset, *rest in good]
    for tail in (b"", bytes(20), bytes(10 << 20), b"\0\0\1", bytes(7), bytes(43)):
        entries = read(good, tail)
        assert entries.dtype == index_files.INDEX
        assert entries.tolist() == expected
        assert read([], tail).tolist() == []
    path = str(tmp_path / f"{base:020}.index")
    for entries, row in (
        ([(1, 1, 1, 44)], 0),
        ([(-1, 1, 0, 44)], 0),
        ([(0, 1, 0, 43)], 0),
        ([(0, 1, 0, 44), (0, 1, 44, 44)], 1),
        ([(0, 1, 0, 44), (1, 1, 43, 44)], 1),
        ([(0, 1, 0, 44), (1, 1, 45, 44)], 1),
        ([(0, 1, 0, -1)], 0),
        ([(0, 1, 0, 44), (0, 0, 0, 0), (1, 1, 44, 44)], 1),
        ([(7, 0, 0, 0)], 0),
        ([(0, 7, 0, 0)], 0),
    ):
        write(tmp_path, Path(path).name, b"".join(ENTRY.pack(*entry) for entry in entries))
        assert catch_file_error(index_files.read_index, path) == (Fault.NOT_A_FRAME, 20 * row, row)
    beyond = ENTRY.pack(1, 1, 0, 44) + ENTRY.pack(2, 1, 44, 44)
    largest = write(tmp_path, f"{2**63 - 2:020}.index", beyond)
    assert catch_file_error(index_files.read_index, largest) == (Fault.NOT_A_FRAME, 20, 1)
    for name in ("x.index", f"{2**63:020}.index"):
        with pytest.raises(ValueError, match="invalid literal for int|not an offset of a log"):
            index_files.read_index(write(tmp_path, name, b""))
    with pytest.raises(OSError, match="No such file"):
        index_files.read_index(str(tmp_path / f"{7:020}.index"))


def test_a_high_watermark_is_read(tmp_path):
    def read(raw):
        return index_files.read_high_watermark(
            write(tmp_path, "replication-offset-checkpoint", raw)
        )

    assert read(b"-1") == -1
    assert read(b"0") == 0
    assert read(b"12") == 12
    assert read(b"9223372036854775807") == 2**63 - 1
    path = str(tmp_path / "replication-offset-checkpoint")
    for raw in (
        b"-2",
        b"12\n",
        b" 1",
        b"1_0",
        b"9223372036854775808",
        b"9" * 5000,
        b"\xff",
        b"\xd9\xa1",
    ):
        write(tmp_path, Path(path).name, raw)
        assert catch_file_error(index_files.read_high_watermark, path) == (Fault.NOT_A_FRAME, 0, 0)
    write(tmp_path, Path(path).name, b"")
    assert catch_file_error(index_files.read_high_watermark, path) == (Fault.TRUNCATED, 0, 0)


def test_leader_epochs_are_read(tmp_path):
    def read(raw):
        return index_files.read_leader_epochs(write(tmp_path, "leader-epoch-checkpoint", raw))

    assert read(b"0\n0\n").tolist() == []
    assert read(b"0\n0\n").dtype == index_files.EPOCHS
    assert read(b"0\n2\n3 -1\n5 70\n").tolist() == [(3, -1), (5, 70)]
    largest = read(b"0\n1\n9223372036854775807 9223372036854775807\n")
    assert largest.tolist() == [(2**63 - 1, 2**63 - 1)]
    path = str(tmp_path / "leader-epoch-checkpoint")
    for raw, expected in (
        (b"", (Fault.TRUNCATED, 0, 0)),
        (b"0\n", (Fault.TRUNCATED, 2, 1)),
        (b"1\n0\n", (Fault.BAD_VERSION, 0, 0)),
        (b"0\n1\n", (Fault.BAD_COUNT, 2, 1)),
        (b"0\n1\n1 7\n2 7\n", (Fault.BAD_COUNT, 2, 1)),
        (b"0\n1\n1 7", (Fault.TRUNCATED, 4, 2)),
        (b"0\n2\n3 0\n3 70\n", (Fault.NOT_A_FRAME, 8, 3)),
        (b"0\n1\n1 -2\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"0\n1\n-1 7\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"0\n1\n1 9223372036854775808\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"0\n1\n1 " + b"9" * 5000 + b"\n", (Fault.NOT_A_FRAME, 4, 2)),
        (b"x\n", (Fault.NOT_A_FRAME, 0, 0)),
        (b"0\r\n0\r\n", (Fault.NOT_A_FRAME, 0, 0)),
        (b"\n\n", (Fault.NOT_A_FRAME, 0, 0)),
    ):
        write(tmp_path, Path(path).name, raw)
        assert catch_file_error(index_files.read_leader_epochs, path) == expected


READERS = {
    f"{0:020}.index": index_files.read_index,
    "replication-offset-checkpoint": index_files.read_high_watermark,
    "leader-epoch-checkpoint": index_files.read_leader_epochs,
}
ENTRIES = st.lists(st.tuples(*[st.integers(-2, 2**31 - 1)] * 4), max_size=4)


@settings(max_examples=read_example_count(24), deadline=None)
@given(
    st.sampled_from(tuple(READERS)),
    st.binary(max_size=120)
    | st.text("01 -\n9", max_size=40).map(str.encode)
    | ENTRIES.map(lambda entries: b"".join(ENTRY.pack(*entry) for entry in entries)),
)
def test_any_bytes_are_read_or_refused(tmp_path_factory, name, raw):
    path = write(tmp_path_factory.getbasetemp(), name, raw)
    try:
        READERS[name](path)
    except FrameError as error:
        assert 0 <= error.offset <= len(raw)
        assert error.source == path


# ---- a server's directories


@pytest.mark.parametrize(
    "folder", DIRECTORIES, ids=lambda folder: str(folder.relative_to(CORPUS / "liftbridge"))
)
def test_directories_of_a_server(folder):
    log = CommitLog(folder)
    raw_of = [(part.base_offset, Path(part.path).read_bytes()) for part in log.segments]
    rows = [row for _, raw in raw_of for row in rows_of(raw)]
    assert not any(row["fault"] for row in rows)
    assert not len(log.verify())
    for part in log.segments:
        table = liftbridge.entries(part.path)
        listed = part.read_index()
        if os.path.exists(index_files.make_index_path(part.path)):
            assert listed["offset"].tolist() == table["offset"].tolist()
            assert listed["timestamp"].tolist() == table["timestamp"].tolist()
            assert listed["size"].tolist() == table["size"].tolist()
    picked = rows[:: max(len(rows) // 20, 1)]
    for column, look_up in (("offset", log.find), ("timestamp", log.find_time)):
        for goal in around(row[column] for row in picked):
            assert numbered_place(log, look_up(goal)) == slow_find(raw_of, column, goal)
    offsets = [row["offset"] for row in rows]
    assert liftbridge.gaps(liftbridge.open_log(folder)).tolist() == slow_gaps(offsets)
    assert log.high_watermark is None or -1 <= log.high_watermark <= max(offsets, default=-1)
    for epoch, start in log.read_leader_epochs().tolist():
        assert all(row["leader_epoch"] >= epoch for row in rows if row["offset"] > start)


def test_a_server_leaves_gaps_and_a_live_index_ends_in_zeros():
    logs = {folder: liftbridge.open_log(folder) for folder in DIRECTORIES}
    compacted = [folder for folder, log in logs.items() if len(liftbridge.gaps(log))]
    assert compacted
    assert all(len(CommitLog(folder).segments) > 1 for folder in compacted)
    tails = {
        Path(index_files.make_index_path(part.path)).stat().st_size
        - ENTRY.size * len(part.read_index())
        for folder in DIRECTORIES
        for part in CommitLog(folder).segments
    }
    assert 0 in tails
    assert max(tails) > 0
