"""Liftbridge's partition directories: what a walk over every entry finds is found, whatever the indexes say; and the
files beside segments: what they mean, and what is told where bytes are wrong."""
import os
import shutil
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from wirescan import Fault, FrameError, Limits, liftbridge, partition, pieces
from wirescan.liftbridge import CommitLog, index, log, segment

CORPUS = Path(__file__).parent / "corpus" / "liftbridge"
DIRECTORIES = sorted({path.parent for path in CORPUS.rglob("*.log")})
TIME = 1_700_000_000_000_000_000
WINDOWS = st.sampled_from((17, 200, 16 << 10))
ENTRY = struct.Struct(">iqii")


# ------------------------------------------------------------------------------------------- a slow writer

def record(offset, timestamp=TIME, epoch=1, key=None, value=b"", headers=()):
    def sized(data):
        return struct.pack(">i", -1 if data is None else len(data)) + (data or b"")
    message = b"\1\0" + sized(key) + sized(value) + struct.pack(">H", len(headers))
    message += b"".join(struct.pack(">H", len(name)) + name + sized(data) for name, data in headers)
    return struct.pack(">qqQII", offset, timestamp, epoch, 4 + len(message), crc32c(message)) + message


def index_of(base, parts):
    out, at = b"", 0
    for part in parts:
        offset, timestamp = struct.unpack_from(">qq", part)
        out += ENTRY.pack(offset - base, timestamp, at, len(part))
        at += len(part)
    return out


def write(folder, name, raw):
    """A file, or none."""
    path = Path(folder, name)
    path.unlink(missing_ok=True)
    if raw is not None:
        path.write_bytes(raw)
    return str(path)


def make(folder, parts_of):
    """Write segments [(base, [record])] into an empty folder, each with its index, the last one's as one in use.
    Returns [(base, bytes)]."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, (base, parts) in enumerate(parts_of):
        tail = bytes(20 * 30) if number == len(parts_of) - 1 else b""
        write(folder, f"{base:020}.log", b"".join(parts))
        write(folder, f"{base:020}.index", index_of(base, parts) + tail)
    return [(base, b"".join(parts)) for base, parts in parts_of]


@st.composite
def segments(draw, most=4):
    """[(base offset, [record])]: offsets rise, with gaps; timestamps mostly do."""
    offset, stamp, out = draw(st.sampled_from((0, 5, 2**40))), 100, []
    for _ in range(draw(st.integers(1, most))):
        base, parts = offset, []
        for _ in range(draw(st.integers(0, 8))):
            offset += draw(st.sampled_from((0, 0, 0, 3)))
            stamp += draw(st.sampled_from((0, 1, 2, 9, -4)))
            headers = draw(st.sampled_from(((), ((b"subject", b"s"), (b"", None)))))
            key = draw(st.sampled_from((None, b"", b"key")))
            parts.append(record(offset, TIME + stamp, 1, key, b"v" * draw(st.integers(0, 30)), headers))
            offset += 1
        out.append((base, parts))
        offset = max(offset, base + 1)
    return out


@st.composite
def spoilt(draw, raw, times=True):
    """An index that is cut, changed, empty, missing, padded, noise, or out of order. times: those may be changed too.
    """
    kind = draw(st.sampled_from(("as it is", "padded", "cut", "changed", "empty", "missing", "noise", "shuffled")))
    if kind == "padded":
        return raw + bytes(draw(st.integers(1, 800)))
    if kind == "cut":
        return raw[:draw(st.integers(0, len(raw)))]
    if kind == "changed" and raw:
        at = draw(st.integers(0, len(raw) - 1).filter(lambda at: times or not 4 <= at % ENTRY.size < 12))
        return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1:]
    if kind == "shuffled":
        return b"".join(draw(st.permutations([raw[at:at + ENTRY.size] for at in range(0, len(raw), ENTRY.size)])))
    return {"empty": b"", "missing": None, "noise": draw(st.binary(max_size=60))}.get(kind, raw)


# ------------------------------------------------------------------------------------------- the slow reader

def rows_of(raw):
    table = liftbridge.entries(raw, errors="mark")
    return [dict(zip(table.dtype.names, row)) for row in table.rows.tolist()]


def slow_find(raw_of, column, goal):
    """Where the first entry begins whose column reaches a goal, or the damage that may hide it."""
    first = 0
    if column == "offset":
        first = max((n for n, (base, _) in enumerate(raw_of) if base <= goal), default=0)
    for number in range(first, len(raw_of)):
        ended, damaged = 0, False
        for row in rows_of(raw_of[number][1]):
            if row["fault"]:
                damaged = True
                continue
            if row[column] >= goal:
                return number, row["start"] if column == "offset" and row["offset"] == goal else ended
            ended, damaged = row["start"] + row["size"], False
        if damaged or (number < len(raw_of) - 1 and any(raw_of[number][1][ended:])):
            return number, ended                # a torn entry is a tail only at the end of the log
    return None


def around(values, step=1):
    return sorted({value + by for value in values for by in (-step, 0, step)} | {-1, 0, 2**62, 2**70})


def place_of(log, place):
    return None if place is None else (log.segments.index(place.segment), place.position)


def check_look_up(folder, raw_of, columns=("offset", "timestamp")):
    log = CommitLog(folder)
    for column in columns:
        look_up = log.find if column == "offset" else log.find_time
        for goal in around(row[column] for _, raw in raw_of for row in rows_of(raw) if not row["fault"]):
            assert place_of(log, look_up(goal)) == slow_find(raw_of, column, goal), (column, goal)


# ------------------------------------------------------------------------------------------- the laws

@pytest.mark.parametrize("column", ["offset", "timestamp"])
@settings(max_examples=40, deadline=None)
@given(st.data(), segments(), WINDOWS)
def test_look_up_is_a_walk_whatever_the_indexes_say(tmp_path_factory, column, data, parts_of, window):
    folder = tmp_path_factory.getbasetemp() / "look" / "0"
    raw_of = make(folder, parts_of)
    for base, parts in parts_of:
        write(folder, f"{base:020}.index", data.draw(spoilt(index_of(base, parts), column == "offset")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "WINDOW", window)
        check_look_up(folder, raw_of, (column,))


def damage(data, raw, parts):
    """A segment, some of whose records are damaged from their size on, and something behind it: what lies before the
    size is not covered by a checksum, so another offset there is another log."""
    out, starts = bytearray(raw), np.cumsum([0, *map(len, parts)]).tolist()
    for _ in range(data.draw(st.integers(0, 2)) if parts else 0):
        one = data.draw(st.integers(0, len(parts) - 1))
        if data.draw(st.booleans()):            # a size that may be one
            struct.pack_into(">I", out, starts[one] + 24, data.draw(st.integers(16, len(raw) - starts[one])))
        else:
            out[starts[one] + data.draw(st.integers(24, len(parts[one]) - 1))] = data.draw(st.integers(0, 255))
    return bytes(out) + data.draw(st.sampled_from((b"", b"", bytes(100), record(2**50, value=bytes(90))[:80])))


@settings(max_examples=50, deadline=None)
@given(st.data(), segments(3), WINDOWS)
def test_look_up_in_damaged_segments(tmp_path_factory, data, parts_of, window):
    folder = tmp_path_factory.getbasetemp() / "damaged" / "0"
    raw_of = make(folder, parts_of)
    raw_of = [(base, damage(data, raw, parts)) for (base, raw), (_, parts) in zip(raw_of, parts_of, strict=True)]
    for base, raw in raw_of:
        write(folder, f"{base:020}.log", raw)
    log = CommitLog(folder)
    whole = []                                  # the places and offsets of what is not damaged
    for number, (_, parts) in enumerate(parts_of):
        for at, part in zip(np.cumsum([0, *map(len, parts)]).tolist(), parts):
            if raw_of[number][1][at:at + len(part)] == part:
                whole.append(((number, at), struct.unpack_from(">q", part)[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "WINDOW", window)
        # What an index names is found even where the walk would take it for a part of a damaged entry.
        end = len(raw_of), 0
        for goal in around(row["offset"] for _, raw in raw_of for row in rows_of(raw) if not row["fault"]):
            wanted, place = slow_find(raw_of, "offset", goal), place_of(log, log.find(goal))
            if place != wanted:
                assert all(offset < goal for at, offset in whole if at < (place or end))
                first = rows_of(raw_of[place[0]][1][place[1]:])[:1] if place else []
                assert not first or first[0]["fault"] or first[0]["offset"] >= goal
        for base, _ in raw_of:
            write(folder, f"{base:020}.index", None)
        check_look_up(folder, raw_of)


@settings(max_examples=40, deadline=None)
@given(st.data(), segments())
def test_a_part_of_a_log_is_that_part_of_the_whole(tmp_path_factory, data, parts_of):
    folder = tmp_path_factory.getbasetemp() / "part" / "0"
    raw_of = make(folder, parts_of)
    pairs = [(row["offset"], row["timestamp"]) for _, raw in raw_of for row in rows_of(raw)]
    start, stop = (data.draw(st.none() | st.sampled_from(around(offset for offset, _ in pairs))) for _ in "ab")
    early, late = (data.draw(st.none() | st.sampled_from(around(stamp for _, stamp in pairs))) for _ in "ab")

    def first(stamp):
        """A time stands for the place of the first entry that is not before it."""
        return next((i for i, pair in enumerate(pairs) if pair[1] >= stamp), len(pairs))
    low, high = first(-2**63 if early is None else early), len(pairs) if late is None else first(late)
    wanted = [(offset, stamp) for offset, stamp in pairs[low:high]
              if (start is None or offset >= start) and (stop is None or offset < stop)]
    for check in (True, False):
        part = liftbridge.open_log(folder, start=start, stop=stop, start_time=early, stop_time=late, check=check)
        assert part.rows[["offset", "timestamp"]].tolist() == wanted and (part.checked == check or not wanted)
        assert [part.positions[i] for i in range(len(part))] == [
            row["start"] for _, raw in raw_of for row in rows_of(raw) if (row["offset"], row["timestamp"]) in wanted]


@settings(max_examples=40, deadline=None)
@given(st.data(), segments(2))
def test_damage_in_a_part_is_told(tmp_path_factory, data, parts_of):
    """No offset is lost silently: it is read, or strict raises."""
    folder = tmp_path_factory.getbasetemp() / "told" / "0"
    make(folder, parts_of)
    base, parts = parts_of[data.draw(st.integers(0, len(parts_of) - 1))]
    if not parts:
        return
    one = data.draw(st.integers(0, len(parts) - 1))
    begin, raw = sum(map(len, parts[:one])), bytearray(b"".join(parts))
    raw[begin + data.draw(st.integers(24, 27))] ^= data.draw(st.integers(1, 255))
    write(folder, f"{base:020}.log", bytes(raw))
    lost = struct.unpack_from(">q", parts[one])[0]
    wanted = [struct.unpack_from(">q", part)[0] for _, some in parts_of for part in some]
    start, stop = sorted(data.draw(st.lists(st.sampled_from(wanted), min_size=2, max_size=2)))
    inside = [offset for offset in wanted if start <= offset < stop and offset != lost]
    try:
        found = liftbridge.open_log(folder, start=start, stop=stop)
    except FrameError as error:
        assert error.source == str(folder / f"{base:020}.log") and error.offset == begin
        marked = liftbridge.open_log(folder, start=start, stop=stop, errors="mark")
        skipped = liftbridge.open_log(folder, start=start, stop=stop, errors="skip")
        # A size that ends where a record does takes those between into the bad row.
        first, behind = marked.positions[marked.bad][0], (marked.positions + marked["size"])[marked.bad][0]
        taken = {offset for offset, at in zip((struct.unpack_from(">q", part)[0] for part in parts),
                                              np.cumsum([0, *map(len, parts)]).tolist()) if first <= at < behind}
        left = [offset for offset in inside if offset not in taken]
        assert first == begin and marked["offset"][~marked.bad].tolist() == skipped["offset"].tolist() == left
    else:
        # A damaged size at the very end of the log is a tail, there as in the whole.
        assert found["offset"].tolist() == inside
        assert not start <= lost < stop or (
            one == len(parts) - 1 and base == parts_of[-1][0]
            and Fault.SHORT in [stop.fault for stop in found.stops])


def test_a_size_that_leads_beyond_the_part(tmp_path):
    """An index leads behind the damage, so that the part ends inside what looks like a record."""
    parts = [record(n, TIME + n, value=bytes(50)) for n in range(20)]
    raw = bytearray(b"".join(parts))
    size = len(parts[0])
    struct.pack_into(">I", raw, 4 * size + 24, 6 * size)
    make(tmp_path / "0", [(0, parts)])
    write(tmp_path / "0", f"{0:020}.log", raw)
    with pytest.raises(FrameError) as caught:
        liftbridge.open_log(tmp_path / "0", start=2, stop=6)
    assert (caught.value.fault, caught.value.offset, caught.value.row) == (Fault.BAD_LENGTH, 4 * size, 2)
    for stop in (5, 6, 12):
        marked = liftbridge.open_log(tmp_path / "0", start=2, stop=stop, errors="mark")
        assert marked["offset"][~marked.bad].tolist() == [n for n in range(2, stop) if n != 4]
        assert marked["size"].sum() == sum(map(len, marked.buffers)) == (stop - 2) * size and marked.bad.sum() == 1


def test_damage_at_the_end_of_what_is_asked_for(tmp_path):
    """It hides offsets that were asked for: between the last entry and `stop`, and where a segment was torn."""
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
    assert torn["fault"].tolist() == [Fault.BAD_LENGTH, 0] and bytes(torn.frame(0)) == parts[2][:-1]
    assert liftbridge.open_log(tmp_path / "0", start=2, errors="skip")["offset"].tolist() == [3]
    assert CommitLog(tmp_path / "0").find(4) is None


# ------------------------------------------------------------------------------------------- gaps, verify

def slow_gaps(offsets):
    return [[min(a + 1, 2**63 - 1), b] for a, b in zip(offsets, offsets[1:]) if b != a + 1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12) | st.sampled_from((-2**63, -1, 2**63 - 2, 2**63 - 1)), max_size=12))
def test_gaps(offsets):
    table = liftbridge.entries(b"".join(record(offset) for offset in offsets))
    found = liftbridge.gaps(table)
    assert found.dtype == np.int64 and found.shape[1] == 2 and found.tolist() == slow_gaps(offsets)


def test_gaps_of_a_compacted_log(tmp_path):
    make(tmp_path / "0", [(10, [record(n) for n in (10, 11, 15)]), (20, [record(n) for n in (20, 21)]), (30, []),
                          (31, [record(31)])])
    table = liftbridge.open_log(tmp_path / "0")
    assert liftbridge.gaps(table).tolist() == [[12, 15], [16, 20], [22, 31]]
    broken = bytearray(b"".join(record(n, value=b"abc") for n in range(5)))
    broken[2 * len(broken) // 5 + 45] ^= 1
    assert liftbridge.gaps(liftbridge.entries(broken, errors="mark")).tolist() == [[2, 3]]
    back = b"".join(record(n) for n in (4, 5, 2, 3, 3))
    assert liftbridge.gaps(liftbridge.entries(back)).tolist() == [[6, 2], [4, 3]]
    for other in (liftbridge.headers(table), None, table["offset"]):
        with pytest.raises(TypeError):
            liftbridge.gaps(other)


def slow_disagreements(base, listed, raw):
    """(base, number, position, offset), as `CommitLog.verify` gives them, of the entries of one index."""
    records = {row["start"]: (row["offset"], row["timestamp"], row["size"]) for row in rows_of(raw) if not row["fault"]}
    entries = [(base + offset, stamp, at, size) for offset, stamp, at, size in listed]
    while entries and listed[len(entries) - 1] == (0, 0, 0, 0):
        entries.pop()
    seen, out = set(), []
    for number, (offset, stamp, at, size) in enumerate(entries):
        if records.get(at) != (offset, stamp, size) or at in seen:
            out.append((base, number, at, offset))
        seen.add(at)
    known = {entry[2] for entry in entries}
    return out + [(base, -1, at, offset) for at, (offset, _, _) in records.items() if at not in known]


@settings(max_examples=60, deadline=None)
@given(st.data(), segments(2))
def test_verify(tmp_path_factory, data, parts_of):
    folder = tmp_path_factory.getbasetemp() / "verify" / "0"
    raw_of = make(folder, parts_of)
    found = CommitLog(folder).verify()
    assert found.dtype == segment.DISAGREEMENT and not len(found)
    wanted = []
    for number, (base, parts) in enumerate(parts_of):
        raw = damage(data, raw_of[number][1], parts)
        listed = data.draw(spoilt(index_of(base, parts)))
        write(folder, f"{base:020}.log", raw)
        write(folder, f"{base:020}.index", listed)
        if listed is not None:
            whole = listed[:len(listed) // ENTRY.size * ENTRY.size]
            wanted += slow_disagreements(base, list(ENTRY.iter_unpack(whole)), raw)
    assert CommitLog(folder).verify().tolist() == wanted


def test_verify_tells_of_every_field(tmp_path):
    parts = [record(n, TIME + n) for n in range(5)]
    make(tmp_path / "0", [(0, parts)])
    entries = list(ENTRY.iter_unpack(index_of(0, parts)))
    for field in range(4):
        changed = [list(entry) for entry in entries]
        changed[2][field] += 1
        write(tmp_path / "0", f"{0:020}.index", b"".join(ENTRY.pack(*entry) for entry in changed))
        offset, _, position, _ = changed[2]
        assert CommitLog(tmp_path / "0").verify().tolist() == [(0, 2, position, offset)] + [
            (0, -1, 2 * len(parts[0]), 2)] * (field == 2)
    write(tmp_path / "0", f"{0:020}.index", index_of(0, parts[:3]))
    assert CommitLog(tmp_path / "0").verify().tolist() == [(0, -1, n * len(parts[0]), n) for n in (3, 4)]
    write(tmp_path / "0", f"{0:020}.log", b"")
    assert CommitLog(tmp_path / "0").verify().tolist() == [(0, n, n * len(parts[0]), n) for n in range(3)]


# ------------------------------------------------------------------------------------------- cuts

def slow_starts(raw):
    return [row["start"] for row in rows_of(raw)]


@settings(max_examples=60, deadline=None)
@given(st.data(), segments(1), st.integers(1, 400), st.booleans())
def test_cuts_are_where_entries_begin(tmp_path_factory, data, parts_of, size, damaged):
    folder = tmp_path_factory.getbasetemp() / "cuts" / "0"
    [(base, raw)], [(_, parts)] = make(folder, parts_of), parts_of
    raw = damage(data, raw, parts) if damaged else raw
    path = write(folder, f"{base:020}.log", raw)
    write(folder, f"{base:020}.index", data.draw(spoilt(index_of(base, parts))))
    found, good = log.cuts(path, size), {row["start"] for row in rows_of(raw) if not row["fault"]}
    assert found[0] == 0 and all(b - a >= size for a, b in zip(found, found[1:]))
    if not damaged:
        assert set(found[1:]) <= good
        assert all(any(a < start < b for start in good) or b - a < 2 * size + 100
                   for a, b in zip(found, [*found[1:], len(raw)]))
    bounds = [*found, len(raw)]
    tables = [table for start, stop in zip(bounds, bounds[1:])
              for table in pieces.iter_tables(path, start, stop, format="liftbridge.entries", errors="skip")]
    offsets = [offset for table in tables for offset in table["offset"].tolist()]
    whole = liftbridge.entries(raw, errors="skip")["offset"].tolist()
    assert offsets == whole or (damaged and set(whole) <= set(offsets))


def test_cuts_by_an_index_walk_over_nothing(tmp_path, monkeypatch):
    parts = [record(n, TIME + n, value=bytes(n % 300)) for n in range(2000)]
    [(_, raw)] = make(tmp_path / "0", [(0, parts)])
    path = str(tmp_path / "0" / f"{0:020}.log")
    starts = slow_starts(raw)
    by_walk = [0]
    for start in starts:
        if start - by_walk[-1] >= 20_000:
            by_walk.append(start)
    walked = []
    walk = log.cuts_at_headers
    monkeypatch.setattr(log, "cuts_at_headers", lambda *args: walked.append(args) or walk(*args))
    assert log.cuts(path, 20_000) == by_walk and not walked
    assert log.cuts(path, len(raw)) == [0]
    listed = index_of(0, parts)
    # The index of half the segment, one that knows another record there, and none.
    number = starts.index(by_walk[3])
    other = ENTRY.pack(number, TIME, by_walk[3], len(parts[number]))
    for spoiled in (listed[:20_000], listed[:20 * number] + other + listed[20 * number + 20:], None):
        write(tmp_path / "0", f"{0:020}.index", spoiled)
        walked.clear()
        assert log.cuts(path, 20_000) == by_walk and walked
    slices = partition.plan(tmp_path / "0", 20_000, "liftbridge.entries")
    assert len(slices) == -(-len(raw) // 20_000) and sum(map(len, slices)) == len(raw)
    assert {one.start for one in slices} <= set(starts)


def test_cuts_end_before_damage(tmp_path):
    parts = [record(n, value=bytes(100)) for n in range(50)]
    raw = bytearray(b"".join(parts))
    raw[20 * len(parts[0]) + 24] = 0xFF
    path = write(tmp_path, f"{0:020}.log", raw)
    assert log.cuts(path, 500)[-1] <= 20 * len(parts[0]) and len(log.cuts(path, 500)) > 3
    # A size that lies leads into a value that looks like a header.
    fake = record(7, value=bytes(60))
    inside = struct.pack(">qqQI", 9, 9, 9, 200) + bytes(100) + fake
    raw = bytearray(b"".join([record(0), record(1, value=inside), *parts]))
    at = len(record(0))
    struct.pack_into(">I", raw, at + 24, 16 + raw[at:].index(inside) - 44)
    path = write(tmp_path, f"{0:020}.log", raw)
    starts = {row["start"] for row in rows_of(bytes(raw)) if not row["fault"]}
    assert struct.unpack_from(">q", raw, at + raw[at:].index(inside))[0] == 9
    assert set(log.cuts(path, 40)) <= starts | {0}


# ------------------------------------------------------------------------------------------- directories

def test_files_of_a_directory(tmp_path):
    parts = [record(n, TIME + n) for n in range(6)]
    folder = tmp_path / "streams" / "orders" / "0"
    make(folder, [(0, parts[:3]), (3, parts[3:])])
    for name in (f"{0:020}.log.cleaned", f"{3:020}.log.truncated", f"{0:020}.index.cleaned", "notes.log"):
        write(folder, name, parts[0])
    assert CommitLog(folder).high_watermark is None and not len(CommitLog(folder).leader_epochs())
    write(folder, "replication-offset-checkpoint", b"4")
    write(folder, "leader-epoch-checkpoint", b"0\n2\n1 -1\n3 2\n")
    found = CommitLog(folder)
    assert [one.base_offset for one in found.segments] == [0, 3] and "2 segments" in repr(found)
    assert found.high_watermark == 4 and found.leader_epochs().tolist() == [(1, -1), (3, 2)]
    assert [one.index()["offset"].tolist() for one in found.segments] == [[0, 1, 2], [3, 4, 5]]
    for source in (folder, tmp_path / "streams", f"{folder}/*"):
        if source == f"{folder}/*":
            (folder / "notes.log").unlink()
        assert liftbridge.entries(source)["offset"].tolist() == [0, 1, 2, 3, 4, 5]
    os.remove(folder / f"{0:020}.index")
    assert not len(found.segments[0].index()) and not len(found.verify())
    write(folder, f"{0:020}.index", b"x" * 20)
    with pytest.raises(FrameError):
        found.segments[0].index()


def test_without_an_option_all_is_as_it_was(tmp_path):
    parts = [record(n, TIME + n) for n in range(6)]
    make(tmp_path / "0", [(0, parts[:3]), (3, [*parts[3:], parts[0][:30]])])
    plain, ranged = liftbridge.open_log(tmp_path / "0"), liftbridge.open_log(tmp_path / "0", start=0)
    assert plain.rows.tobytes() == ranged.rows.tobytes() and plain.stop == ranged.stop
    assert bytes(plain.tail) == bytes(ranged.tail) == parts[0][:30] and plain.checked and ranged.checked
    assert plain.stop.fault == Fault.SHORT and plain.format is ranged.format


def test_a_part_reads_only_that_part(tmp_path, monkeypatch):
    parts = [record(n, TIME + n, value=bytes(200)) for n in range(4000)]
    make(tmp_path / "0", [(0, parts[:2000]), (2000, parts[2000:])])
    walked, scan = [], segment.scan_entries
    monkeypatch.setattr(segment, "scan_entries", lambda *args: walked.append(scan(*args)) or walked[-1])
    part = liftbridge.open_log(tmp_path / "0", start=1990, stop=2020)
    assert part["offset"].tolist() == list(range(1990, 2020)) and sum(map(len, part.buffers)) == 30 * len(parts[0])
    assert sum(used for *_, used in walked) < 60_000
    walked.clear()
    part = liftbridge.open_log(tmp_path / "0", start_time=TIME + 3000, stop_time=TIME + 3010)
    assert part["offset"].tolist() == list(range(3000, 3010)) and sum(used for *_, used in walked) < 60_000
    assert [bytes(row.value) for row in part[:1]] == [bytes(200)]
    assert part.positions[0] == 1000 * len(parts[0])


def test_wrong_arguments(tmp_path):
    with pytest.raises(NotADirectoryError):
        CommitLog(tmp_path / "nothing")
    with pytest.raises(NotADirectoryError):
        liftbridge.open_log(tmp_path / "nothing")
    for read in (CommitLog, liftbridge.open_log):
        with pytest.raises(FileNotFoundError):
            read(tmp_path)
    make(tmp_path / "0", [(0, [record(0)])])
    for options in ({"start": 1.5}, {"stop": "3"}, {"start_time": b""}, {"start": 1, "into": None},
                    {"start": 1, "limits": 5}):
        with pytest.raises(TypeError):
            liftbridge.open_log(tmp_path / "0", **options)
    with pytest.raises(ValueError):
        liftbridge.open_log(tmp_path / "0", start=1, errors="none")
    assert liftbridge.open_log(tmp_path / "0", start=np.int64(0)).rows.size == 1
    assert not len(liftbridge.open_log(tmp_path / "0", start=1)) and not len(
        liftbridge.open_log(tmp_path / "0", start=1, stop=0))


def test_limits_are_those_of_the_log(tmp_path):
    make(tmp_path / "0", [(0, [record(0, value=bytes(5_000)), record(1)])])
    with pytest.raises(FrameError):
        liftbridge.open_log(tmp_path / "0", start=0, limits=Limits(frame=1_000))
    assert len(liftbridge.open_log(tmp_path / "0", start=0, limits=Limits(frame=10_000))) == 2


def test_a_segment_that_became_shorter(tmp_path):
    make(tmp_path / "0", [(0, [record(n) for n in range(4)])])
    found = CommitLog(tmp_path / "0")
    os.truncate(found.segments[0].path, 50)
    for call in (lambda: found.find(2), lambda: found.read(1), found.verify):
        with pytest.raises(EOFError):
            call()


def test_a_pipe_and_a_vast_file_are_no_index(tmp_path):
    raw_of = make(tmp_path / "0", [(0, [record(n, TIME + n, value=bytes(50)) for n in range(40)])])
    path = tmp_path / "0" / f"{0:020}.index"
    began = time.monotonic()
    path.unlink()
    os.mkfifo(path)
    check_look_up(tmp_path / "0", raw_of)
    log.cuts(str(path)[:-5] + "log", 500)
    with pytest.raises(OSError):
        CommitLog(tmp_path / "0").verify()
    path.unlink()
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    check_look_up(tmp_path / "0", raw_of)
    with pytest.raises(FrameError) as caught:
        index.read_index(str(path))
    assert caught.value.fault == Fault.BAD_LENGTH
    assert time.monotonic() - began < 10


# ------------------------------------------------------------------------------------------- the files beside segments

def fault_of(read, path):
    with pytest.raises(FrameError) as caught:
        read(path)
    assert caught.value.source == path and str(caught.value)
    return Fault(caught.value.fault), caught.value.offset, caught.value.row


def test_index(tmp_path):
    base = 10**12
    good = [(0, TIME, 0, 44), (5, TIME - 1, 44, 256), (6, 0, 300, 1 << 30), (9, 5, 300 + (1 << 30), 100)]
    read = lambda *entries, tail=b"": index.read_index(write(
        tmp_path, f"{base:020}.index", b"".join(ENTRY.pack(*entry) for entry in entries) + tail))
    wanted = [(base + offset, *rest) for offset, *rest in good]
    for tail in (b"", bytes(20), bytes(10 << 20), b"\0\0\1", bytes(7), bytes(43)):
        found = read(*good, tail=tail)
        assert found.dtype == index.INDEX and found.tolist() == wanted
        assert read(tail=tail).tolist() == []
    path = str(tmp_path / f"{base:020}.index")
    for entries, row in (
            ([(1, 1, 1, 44)], 0), ([(-1, 1, 0, 44)], 0), ([(0, 1, 0, 43)], 0), ([(0, 1, 0, 44), (0, 1, 44, 44)], 1),
            ([(0, 1, 0, 44), (1, 1, 43, 44)], 1), ([(0, 1, 0, 44), (1, 1, 45, 44)], 1), ([(0, 1, 0, -1)], 0),
            ([(0, 1, 0, 44), (0, 0, 0, 0), (1, 1, 44, 44)], 1), ([(7, 0, 0, 0)], 0), ([(0, 7, 0, 0)], 0)):
        write(tmp_path, Path(path).name, b"".join(ENTRY.pack(*entry) for entry in entries))
        assert fault_of(index.read_index, path) == (Fault.NOT_A_FRAME, 20 * row, row)
    largest = write(tmp_path, f"{2**63 - 2:020}.index", ENTRY.pack(1, 1, 0, 44) + ENTRY.pack(2, 1, 44, 44))
    assert fault_of(index.read_index, largest) == (Fault.NOT_A_FRAME, 20, 1)
    for name in ("x.index", f"{2**63:020}.index"):
        with pytest.raises(ValueError):
            index.read_index(write(tmp_path, name, b""))
    with pytest.raises(OSError):
        index.read_index(str(tmp_path / f"{7:020}.index"))


def test_high_watermark(tmp_path):
    read = lambda raw: index.high_watermark(write(tmp_path, "replication-offset-checkpoint", raw))
    assert [read(raw) for raw in (b"-1", b"0", b"12", b"9223372036854775807")] == [-1, 0, 12, 2**63 - 1]
    path = str(tmp_path / "replication-offset-checkpoint")
    for raw in (b"-2", b"12\n", b" 1", b"1_0", b"9223372036854775808", b"9" * 5000, b"\xff", b"\xd9\xa1"):
        write(tmp_path, Path(path).name, raw)
        assert fault_of(index.high_watermark, path) == (Fault.NOT_A_FRAME, 0, 0)
    write(tmp_path, Path(path).name, b"")
    assert fault_of(index.high_watermark, path) == (Fault.TRUNCATED, 0, 0)


def test_leader_epochs(tmp_path):
    read = lambda raw: index.leader_epochs(write(tmp_path, "leader-epoch-checkpoint", raw))
    assert read(b"0\n0\n").tolist() == [] and read(b"0\n0\n").dtype == index.EPOCHS
    assert read(b"0\n2\n3 -1\n5 70\n").tolist() == [(3, -1), (5, 70)]
    assert read(b"0\n1\n9223372036854775807 9223372036854775807\n").tolist() == [(2**63 - 1, 2**63 - 1)]
    path = str(tmp_path / "leader-epoch-checkpoint")
    for raw, wanted in ((b"", (Fault.TRUNCATED, 0, 0)), (b"0\n", (Fault.TRUNCATED, 2, 1)),
                        (b"1\n0\n", (Fault.BAD_VERSION, 0, 0)), (b"0\n1\n", (Fault.BAD_COUNT, 2, 1)),
                        (b"0\n1\n1 7\n2 7\n", (Fault.BAD_COUNT, 2, 1)), (b"0\n1\n1 7", (Fault.TRUNCATED, 4, 2)),
                        (b"0\n2\n3 0\n3 70\n", (Fault.NOT_A_FRAME, 8, 3)),
                        (b"0\n1\n1 -2\n", (Fault.NOT_A_FRAME, 4, 2)), (b"0\n1\n-1 7\n", (Fault.NOT_A_FRAME, 4, 2)),
                        (b"0\n1\n1 9223372036854775808\n", (Fault.NOT_A_FRAME, 4, 2)),
                        (b"0\n1\n1 " + b"9" * 5000 + b"\n", (Fault.NOT_A_FRAME, 4, 2)),
                        (b"x\n", (Fault.NOT_A_FRAME, 0, 0)), (b"0\r\n0\r\n", (Fault.NOT_A_FRAME, 0, 0)),
                        (b"\n\n", (Fault.NOT_A_FRAME, 0, 0))):
        write(tmp_path, Path(path).name, raw)
        assert fault_of(index.leader_epochs, path) == wanted


@settings(max_examples=120, deadline=None)
@given(st.sampled_from((f"{0:020}.index", "replication-offset-checkpoint", "leader-epoch-checkpoint")),
       st.binary(max_size=120) | st.text("01 -\n9", max_size=40).map(str.encode)
       | st.lists(st.tuples(*[st.integers(-2, 2**31 - 1)] * 4), max_size=4).map(
           lambda entries: b"".join(ENTRY.pack(*entry) for entry in entries)))
def test_any_bytes(tmp_path_factory, name, raw):
    path = write(tmp_path_factory.getbasetemp(), name, raw)
    try:
        {".index": index.read_index, "replication-offset-checkpoint": index.high_watermark}.get(
            name[-6:] if name.endswith(".index") else name, index.leader_epochs)(path)
    except FrameError as error:
        assert 0 <= error.offset <= len(raw) and error.source == path


# ------------------------------------------------------------------------------------------- a server's directories

@pytest.mark.parametrize("folder", DIRECTORIES, ids=lambda folder: str(folder.relative_to(CORPUS)))
def test_directories_of_a_server(folder):
    found = CommitLog(folder)
    raw_of = [(one.base_offset, Path(one.path).read_bytes()) for one in found.segments]
    rows = [row for _, raw in raw_of for row in rows_of(raw)]
    assert not any(row["fault"] for row in rows) and not len(found.verify())
    for one in found.segments:
        table = liftbridge.entries(one.path)
        listed = one.index()
        if os.path.exists(segment.index_of(one.path)):
            assert listed["offset"].tolist() == table["offset"].tolist()
            assert listed["timestamp"].tolist() == table["timestamp"].tolist()
            assert listed["size"].tolist() == table["size"].tolist()
    picked = rows[::max(len(rows) // 20, 1)]
    for column, look_up in (("offset", found.find), ("timestamp", found.find_time)):
        for goal in around(row[column] for row in picked):
            assert place_of(found, look_up(goal)) == slow_find(raw_of, column, goal)
    offsets = [row["offset"] for row in rows]
    assert liftbridge.gaps(liftbridge.open_log(folder)).tolist() == slow_gaps(offsets)
    assert found.high_watermark is None or -1 <= found.high_watermark <= max(offsets, default=-1)
    for epoch, start in found.leader_epochs().tolist():
        assert all(row["leader_epoch"] >= epoch for row in rows if row["offset"] > start)


def test_a_server_leaves_gaps_and_a_live_index_ends_in_zeros():
    compacted = [folder for folder in DIRECTORIES if len(liftbridge.gaps(liftbridge.open_log(folder)))]
    assert compacted and all(len(CommitLog(folder).segments) > 1 for folder in compacted)
    tails = {Path(segment.index_of(one.path)).stat().st_size - ENTRY.size * len(one.index())
             for folder in DIRECTORIES for one in CommitLog(folder).segments}
    assert 0 in tails and max(tails) > 0
