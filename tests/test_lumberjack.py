"""Lumberjack tables: every column, what is decided where readers disagree, nested frames, and rolled over numbers."""
import gzip
import pickle
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laws
import wirescan
from reference import lumberjack as reference
from rooms import ROOMS
from strategies import lumberjack as strategies
from strategies.lumberjack import ack, compressed, data, deflated, json, window, wrapped
from test_laws import steady
from wirescan import Fault, FrameError, Limits, lumberjack
from wirescan.catalog import format_of
from wirescan.lumberjack import Kind
from wirescan.partition import plan
from wirescan.stream import Stream
from wirescan.table import join

ROOM = ROOMS["lumberjack"]
PAIRS = [(b"line", b"hello"), (b"", b"\xff")]
MIXED = window(3) + data(1, PAIRS) + compressed(json(2, b"[1]", 1)) + json(3, b"7") + ack(3)


def events_of(raw, errors="mark", depth=1, check=True):
    return lumberjack.events(lumberjack.scan(raw, errors=errors), errors=errors, depth=depth, check=check)


def said(events):
    """Of each event its (window, sequence), or the name of its fault."""
    return [Fault(fault).name if fault else (number, sequence) for fault, number, sequence in
            events.rows[["fault", "window", "sequence"]].tolist()]


# ------------------------------------------------------------------------------------------- columns

def columns(table, names):
    return table.rows[names.split()].tolist()


def test_frames():
    table = lumberjack.scan(MIXED)
    assert columns(table, "kind start size body sequence count length version depth") == [
        (Kind.WINDOW, 0, 6, 6, 0, 3, 0, 2, 0), (Kind.DATA, 6, 36, 10, 1, 2, 0, 1, 0),
        (Kind.COMPRESSED, 42, 25, 6, 0, 0, 19, 2, 0), (Kind.JSON, 67, 11, 10, 3, 0, 1, 2, 0),
        (Kind.ACK, 78, 6, 6, 3, 0, 0, 2, 0)]
    assert table.name == "lumberjack.frames" and table.dtype.itemsize == 40 and not table.bad.any()
    assert (table["parent"] == -1).all() and (table["buffer"] == 0).all() and table.stop == (0, len(MIXED), 0)


def test_events():
    frames = lumberjack.scan(MIXED)
    table = lumberjack.events(frames)
    assert columns(table, "kind parent size body sequence count window json_at json_size version depth") == [
        (Kind.DATA, 1, 36, 10, 1, 2, 0, 0, -1, 1, 0), (Kind.JSON, 2, 13, 10, 2, 0, 0, 10, 3, 1, 1),
        (Kind.JSON, 3, 11, 10, 3, 0, 0, 10, 1, 2, 0)]
    assert table.name == "lumberjack.events" and table.dtype.itemsize == 48 and table.outer is frames
    assert [None if event.json is None else bytes(event.json) for event in table] == [None, b"[1]", b"7"]
    assert table["buffer"].tolist() == [0, 1, 0] and table.positions.tolist() == [6, 42, 67]
    assert [[tuple(map(bytes, pair)) for pair in event.pairs] for event in table] == [
        [(b"line", b"hello"), (b"", b"\xff")], [], []]


def test_pairs():
    events = lumberjack.events(lumberjack.scan(MIXED))
    table = lumberjack.pairs(events)
    assert columns(table, "parent start size body key_at key_size value_at value_size") == [
        (0, 16, 17, 4, 4, 4, 12, 5), (0, 33, 9, 4, 4, 0, 8, 1)]
    assert table.name == "lumberjack.pairs" and table.dtype.itemsize == 40 and table.outer is events
    assert laws.meaning(wirescan.scan(MIXED, "lumberjack.pairs")) == laws.meaning(table)


def test_plain():
    frames = lumberjack.scan(MIXED)
    table = lumberjack.plain(frames)
    assert columns(table, "kind parent version depth") == [
        (Kind.WINDOW, 0, 2, 0), (Kind.DATA, 1, 1, 0), (Kind.JSON, 2, 1, 1), (Kind.JSON, 3, 2, 0), (Kind.ACK, 4, 2, 0)]
    assert table.dtype == lumberjack.FRAME and table.outer is frames and table.buffers[:1] == frames.buffers
    assert b"".join(laws.frames_of(table)) == MIXED[:42] + json(2, b"[1]", 1) + MIXED[67:]


def test_kinds_are_letters():
    assert {kind.name: chr(kind) for kind in Kind} == dict(
        WINDOW="W", ACK="A", DATA="D", JSON="J", COMPRESSED="C")


def test_windows_count_from_0_in_each_table():
    raw = json(1) + window(1) + json(1) + window(0) + window(2) + json(1) + json(2)
    assert events_of(raw)["window"].tolist() == [-1, 0, 2, 2]
    stream = wirescan.stream("lumberjack.events")
    tables = [stream.feed(raw[:30]), stream.feed(raw[30:])]
    assert [table["window"].tolist() for table in tables] == [[-1, 0], [1, 1]]


def test_more_pairs_than_caches_hold():
    """Their rows are written past the caches; they say what they say of a few."""
    count = 900_000
    keys = b"".join(b"\0\0\0\1%c\0\0\0\2%c%c" % (i % 251, i % 250, i % 249) for i in range(count // 10)) * 10
    raw = window(3, 1) + data(1) + b"1D\0\0\0\2" + count.to_bytes(4, "big") + keys + data(3, [(b"k", b"v")])
    table = lumberjack.pairs(lumberjack.events(lumberjack.scan(raw)))
    start = 26 + 11 * np.arange(count)
    places = np.tile([11, 4, 1, 4, 1, 9, 2], (count, 1))
    assert (table["start"][:-1] == start).all() and len(table) == count + 1 and table["start"][-1] == len(raw) - 10
    names = "size body parent key_at key_size value_at value_size".split()
    assert (np.stack([table[name][:-1] for name in names], 1) == places).all()
    assert [tuple(map(bytes, pair)) for pair in table[-2:]] == [(keys[-7:-6], keys[-2:]), (b"k", b"v")]


# ------------------------------------------------------------------------------------------- where readers disagree

EVENT, LAST = json(1) + json(2), json(3)
GOOD = zlib.compress(EVENT)
BOTH = [(0, 1), (0, 2)]
NESTED = compressed(compressed(EVENT))

# What real readers do with these is known: none agrees with another on all. Here everything that one of them takes
# is taken; what another refuses has a fault that names the reason, at the place where it was met.
OUTCOMES = {
    "a window over two compressed frames": (window(3) + compressed(EVENT) + compressed(LAST), [*BOTH, (0, 3)]),
    "compressed mixed with plain": (window(3) + json(1) + compressed(json(2)) + LAST, [*BOTH, (0, 3)]),
    "window inside": (compressed(window(2) + EVENT), BOTH),
    "two windows inside one": (compressed(window(1) + json(1) + window(1) + json(1)), [(0, 1), (1, 1)]),
    "compressed twice": (window(2) + NESTED + LAST, ["NESTED", (0, 3)]),
    "more events than the window inside": (window(1) + compressed(EVENT) + window(1) + json(1), [*BOTH, (1, 1)]),
    "fewer events than the window": (window(3) + EVENT + window(1) + json(1), [*BOTH, (1, 1)]),
    "window of 10,001": (window(10_001) + EVENT, BOTH),
    "the largest window": (window(2**32 - 1) + EVENT, BOTH),
    "no window": (EVENT, [(-1, 1), (-1, 2)]),
    "JSON in version 1": (window(2, 1) + json(1, version=1) + json(2, version=1), BOTH),
    "data in version 2": (window(2) + data(1, [(b"k", b"v")], 2) + data(2, (), 2), BOTH),
    "versions mixed": (window(3) + json(1, version=1) + data(2, (), 2) + data(3, (), 1), [*BOTH, (0, 3)]),
    "sequence from 2**31 on": (window(2) + json(2**31) + json(2**32 - 1), [(0, 2**31), (0, 2**32 - 1)]),
    "data of no pairs": (window(1, 1) + data(1) + data(2), BOTH),
    "no Adler-32": (window(2) + wrapped(GOOD[:-4]) + LAST, [*BOTH, "TRUNCATED", (0, 3)]),
    "half an Adler-32": (window(2) + wrapped(GOOD[:-2]) + LAST, [*BOTH, "TRUNCATED", (0, 3)]),
    "wrong Adler-32": (window(2) + wrapped(GOOD[:-4] + bytes(4)) + LAST, ["BAD_CHECKSUM", (0, 3)]),
    "flushed, not ended": (window(2) + wrapped(deflated(EVENT, False)) + LAST, [*BOTH, "TRUNCATED", (0, 3)]),
    "trailing garbage": (window(2) + wrapped(GOOD + b"\0") + LAST, [*BOTH, "LEFTOVER", (0, 3)]),
    "two zlib members": (window(3) + wrapped(GOOD + zlib.compress(LAST)) + LAST, [*BOTH, "LEFTOVER", (0, 3)]),
    "compressed of length 0": (window(1) + wrapped(b"") + LAST, ["TRUNCATED", (0, 3)]),
    "half a zlib header": (window(1) + wrapped(b"\x78") + LAST, ["TRUNCATED", (0, 3)]),
    "only a zlib header": (window(1) + wrapped(b"\x78\x9c") + LAST, ["TRUNCATED", (0, 3)]),
    "inflates to nothing": (window(0) + compressed(b"") + window(1) + LAST, [(1, 3)]),
    "gzip": (window(2) + wrapped(gzip.compress(EVENT)) + LAST, ["BAD_COMPRESSION", (0, 3)]),
    "raw deflate": (window(2) + wrapped(deflated(EVENT, wbits=-15)) + LAST, ["BAD_COMPRESSION", (0, 3)]),
    "preset dictionary": (window(2) + wrapped(deflated(EVENT, zdict=EVENT)) + LAST, ["BAD_COMPRESSION", (0, 3)]),
    "no zlib at all": (window(2) + wrapped(EVENT) + LAST, ["BAD_COMPRESSION", (0, 3)]),
    "a bad block": (window(2) + wrapped(b"\x78\x9c\x07") + LAST, ["BAD_COMPRESSION", (0, 3)]),
    "cut frame inside": (window(2) + compressed(EVENT[:-1]) + LAST, [(0, 1), "TRUNCATED", (0, 3)]),
    "cut header inside": (window(2) + compressed(json(1) + b"2") + LAST, [(0, 1), "TRUNCATED", (0, 3)]),
    "cut frame and no Adler-32": (window(2) + wrapped(zlib.compress(EVENT[:-1])[:-4]), [(0, 1), "TRUNCATED"]),
    "cut frame and garbage": (window(2) + wrapped(zlib.compress(EVENT[:-1]) + b"\0"), [(0, 1), "TRUNCATED"]),
    "unknown frame inside": (window(2) + compressed(json(1) + b"3J" + json(2)) + LAST, [(0, 1), "NOT_A_FRAME", (0, 3)]),
    "a document of no bytes": (window(2) + json(1, b"") + json(2), ["EMPTY", (0, 2)]),
    "a document of no bytes inside": (window(2) + compressed(json(1, b"") + json(2)), ["EMPTY", (0, 2)]),
    "documents that are no objects": (window(2) + json(1, b"[1]") + json(2, b"null"), BOTH),
    "documents that are no JSON": (window(2) + json(1, b"\xff") + json(2, b"{"), BOTH),
    "acks among the events": (window(2) + json(1) + ack(1) + json(2), BOTH),
    "keep-alives": (ack(0) + ack(0, 1) + ack(7, 1), []),
    "acks inside": (window(2) + compressed(ack(0) + EVENT), BOTH),
    "the same keys again": (window(2) + data(1, [(b"k", b"1"), (b"k", b"2")]) + data(2, [(b"\xff", b"\xfe")]), BOTH),
    "an unknown type": (window(2) + EVENT + b"2K" + LAST, [*BOTH, "NOT_A_FRAME"]),
    "an unknown version": (window(2) + EVENT + b"3W" + bytes(4) + LAST, [*BOTH, "NOT_A_FRAME"]),
    "TLS": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\3\3", ["NOT_A_FRAME"]),
    "HTTP": (b"GET / HTTP/1.1\r\n", ["NOT_A_FRAME"]),
    "a document of 2**31 bytes": (window(1) + b"2J" + bytes(4) + b"\x80\0\0\0" + LAST, ["BAD_LENGTH"]),
    "compressed of 2**31 bytes": (window(1) + b"2C" + b"\x80\0\0\0" + LAST, ["BAD_LENGTH"]),
    "a key of 2**31 bytes": (window(1) + b"1D" + bytes(4) + b"\0\0\0\1\x80\0\0\0" + LAST, ["BAD_LENGTH"]),
    "a value of 2**31 bytes": (window(1) + b"1D" + bytes(4) + b"\0\0\0\1\0\0\0\0\xff\xff\xff\xff", ["BAD_LENGTH"]),
    "2**32 - 1 pairs": (window(1) + b"1D" + bytes(4) + b"\xff" * 4 + LAST, ["BAD_LENGTH"]),
    "a document cut": (window(2) + json(1) + json(2)[:-1], [(0, 1)]),
}
every_outcome = pytest.mark.parametrize("raw, outcome", OUTCOMES.values(), ids=OUTCOMES)


@every_outcome
def test_outcomes(raw, outcome):
    assert said(events_of(raw)) == outcome
    assert said(events_of(raw, "skip")) == [one for one in outcome if isinstance(one, tuple)]
    fault = next((one for one in outcome if isinstance(one, str)), None)
    if fault is None:
        assert said(events_of(raw, "strict")) == outcome
    else:
        with pytest.raises(FrameError, match=fault) as caught:
            events_of(raw, "strict")
        assert caught.value.fault.name == fault


@every_outcome
@pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])
def test_laws_of_outcomes(raw, outcome, check):
    laws.all_of_them(ROOM, raw, list(range(0, len(raw), 7)), check)


RECORDED = sorted((Path(__file__).parent / "corpus/lumberjack/recorded").glob("*.bin"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_real_programs_sent(path):
    raw = path.read_bytes()
    laws.all_of_them(ROOM, raw, list(range(0, len(raw), 11)))
    laws.streams_agree(ROOM, raw, list(range(0, len(raw), 3)), "strict")
    assert len(lumberjack.scan(raw).tail) == 0


def test_without_a_check_adler_32_is_not_looked_at():
    wrong = window(2) + wrapped(GOOD[:-4] + bytes(4)) + wrapped(GOOD[:-4] + bytes(3))
    assert said(events_of(wrong, check=False)) == [*BOTH, *BOTH, "TRUNCATED"]


def test_where_faults_lie():
    """What cannot be inflated is covered as it lies on the wire; the end of what can, by a row of no bytes."""
    raw = window(2) + wrapped(gzip.compress(EVENT)) + wrapped(GOOD[:-4]) + compressed(json(1) + b"2J?")
    table = events_of(raw)
    gzipped, first, second, end, third, rest = (bytes(table.frame(i)) for i in range(len(table)))
    assert (gzipped, end, rest) == (gzip.compress(EVENT), b"", b"2J?") and first + second == EVENT
    assert columns(table.where(table.bad), "kind body sequence count json_at json_size version depth") == [
        (Kind.COMPRESSED, 0, 0, 0, 0, -1, 2, 0), (0, 0, 0, 0, 0, -1, 0, 1), (0, 0, 0, 0, 0, -1, 0, 1)]
    for begin, told in ((6, (Fault.BAD_COMPRESSION, 6, 0, False)), (12 + len(gzipped), (Fault.TRUNCATED, 0, 2, True))):
        with pytest.raises(FrameError) as caught:
            lumberjack.events(lumberjack.scan(raw[begin:]))
        error = caught.value
        assert (error.fault, error.offset, error.row, error.inflated) == told


# ------------------------------------------------------------------------------------------- compressed in compressed

def nest(raw, depth):
    for _ in range(depth):
        raw = compressed(raw)
    return raw


@pytest.mark.parametrize("layers", [1, 2, 5, 40])
def test_depth(layers):
    raw = window(2) + nest(EVENT, layers) + LAST
    for depth in {1, 2, layers - 1, layers, layers + 1, 0xFFFF} - {0}:
        opens = depth >= layers
        plain = lumberjack.plain(lumberjack.scan(raw), errors="mark", depth=depth)
        for events in (events_of(raw, depth=depth), lumberjack.events(plain, errors="mark")):
            assert said(events) == ([*BOTH, (0, 3)] if opens else ["NESTED", (0, 3)])
            assert events["depth"].tolist() == ([layers, layers, 0] if opens else [depth, 0])
            if not opens:
                assert bytes(events.frame(0)) == nest(EVENT, layers - depth)


@pytest.mark.parametrize("depth", [0, -1, 1 << 16])
def test_no_such_depth(depth):
    for call in (lumberjack.plain, lumberjack.events):
        with pytest.raises(ValueError, match="depth"):
            call(lumberjack.scan(MIXED), depth=depth)


def test_depth_is_an_integer():
    for depth in (1.5, "1", None):
        with pytest.raises(TypeError):
            lumberjack.plain(lumberjack.scan(nest(EVENT, 3)), depth=depth)


@st.composite
def nested_streams(draw):
    """Frames that are compressed again and again, and damaged in between."""
    raw = draw(strategies.odd_streams())
    for _ in range(draw(st.integers(0, 3))):
        raw = draw(strategies.mutations(raw) | st.just(raw) | st.just(raw) | st.just(raw))
        end = draw(st.sampled_from((None, None, None, -1, -4, -6)))
        raw = wrapped(zlib.compress(raw)[:end]) + draw(st.sampled_from((b"", json(9), window(1))))
    return raw


def placed(table):
    """The rows, without where what is inflated lies."""
    return [row | dict(start=0, buffer=1) if row["depth"] and row["buffer"] else row for row in laws.rows_of(table)]


@steady
@given(nested_streams(), st.integers(1, 4), st.booleans())
def test_nested_frames_agree_with_the_reference(raw, depth, check):
    frames = lumberjack.scan(raw, errors="mark")
    found = reference.plain(raw, check, depth)
    table = lumberjack.plain(frames, errors="mark", check=check, depth=depth)
    events = lumberjack.events(frames, errors="mark", check=check, depth=depth)
    again = lumberjack.events(table, errors="mark", check=check)
    for one, want in ((table, found), (events, reference.events(found)), (again, reference.events(found))):
        assert placed(one) == [row | dict(start=0) if row["buffer"] else row for row, _ in want]
        assert laws.frames_of(one) == [bytes(data[row["start"]:row["start"] + row["size"]]) for row, data in want]
        laws.places_lie_in_their_frames(one)
    skipped = lumberjack.events(lumberjack.scan(raw, errors="skip"), errors="skip", check=check, depth=depth)
    assert laws.meaning(skipped, False) == laws.meaning(events.where(~events.bad), False)
    back = pickle.loads(pickle.dumps(table))
    assert laws.meaning(lumberjack.events(back, errors="mark", check=check)) == laws.meaning(events)
    parts = lumberjack.events(join([table[:2], table[2:]]), errors="mark", check=check)
    assert laws.meaning(parts, False) == laws.meaning(events, False)


# ------------------------------------------------------------------------------------------- rolled over numbers

TURN = 2**32


@pytest.mark.parametrize("windows, numbers", [
    ([], []),
    ([[1, 2, 3]], [1, 2, 3]),
    ([[1, 2], [1, 2], [1]], [1, 2, 1, 2, 1]),                                       # most writers
    ([[1, 2], [3, 4]], [1, 2, 3, 4]),                                               # those that count on
    ([[TURN - 2, TURN - 1, 0, 1]], [TURN - 2, TURN - 1, TURN, TURN + 1]),
    ([[TURN - 1], [0, 1]], [TURN - 1, TURN, TURN + 1]),
    ([[TURN - 1], [1, 2]], [TURN - 1, TURN + 1, TURN + 2]),                         # 0 is left out by some
    ([[5, 3]], [5, TURN + 3]),
    ([[2**31 + 1], [2]], [2**31 + 1, 2]),
    ([[2**31 + 2], [2]], [2**31 + 2, TURN + 2]),
    ([[TURN - 1, 0], [TURN - 1, 0]], [TURN - 1, TURN, 2 * TURN - 1, 2 * TURN]),
    ([[7, 7]], [7, 7]),
], ids=str)
def test_unroll(windows, numbers):
    raw = b"".join(window(len(one)) + b"".join(map(json, one)) for one in windows)
    events = events_of(raw)
    unrolled = lumberjack.unroll(events)
    assert unrolled.dtype == np.int64 and unrolled.tolist() == numbers
    assert numbers == reference.unroll(events["sequence"].tolist(), events["window"].tolist())


def test_unroll_without_windows():
    assert lumberjack.unroll(events_of(json(TURN - 1) + json(0) + json(1))).tolist() == [TURN - 1, TURN, TURN + 1]


def test_bad_rows_do_not_roll_over():
    """They have no number, or one that nobody vouches for."""
    events = events_of(window(2) + json(5) + wrapped(b"") + json(6) + wrapped(b"garbage") + json(7))
    assert lumberjack.unroll(events)[~events.bad].tolist() == [5, 6, 7]


# ------------------------------------------------------------------------------------------- arguments

def test_unfit_arguments():
    frames = lumberjack.scan(MIXED)
    events = lumberjack.events(frames)
    for call, wrong in ((lumberjack.plain, events), (lumberjack.events, events), (lumberjack.events, MIXED),
                        (lumberjack.pairs, frames), (lumberjack.pairs, lumberjack.pairs(events)), (lumberjack.scan, 7),
                        (lumberjack.unroll, frames), (lumberjack.unroll, [1, 2])):
        with pytest.raises(TypeError):
            call(wrong)
    for call, table in ((lumberjack.scan, MIXED), (lumberjack.plain, frames), (lumberjack.events, frames),
                        (lumberjack.pairs, events)):
        with pytest.raises(ValueError, match="errors"):
            call(table, errors="ignore")
        with pytest.raises(TypeError, match="limits"):
            call(table, limits=7)


def test_rows_that_the_caller_gives():
    room = np.empty(9, lumberjack.FRAME)
    table = lumberjack.scan(MIXED, into=room)
    assert np.shares_memory(table.rows, room) and table.rows.tobytes() == lumberjack.scan(MIXED).rows.tobytes()
    with pytest.raises(ValueError, match="room for 4 rows"):
        lumberjack.scan(MIXED, into=np.empty(4, lumberjack.FRAME))
    with pytest.raises(TypeError, match="into"):
        lumberjack.scan(MIXED, into=np.empty(9, lumberjack.EVENT))
    with pytest.raises(ValueError, match="one buffer"):
        lumberjack.scan([MIXED, MIXED], into=room)


def test_nothing():
    for name in ROOM.formats:
        table = wirescan.scan(b"", name)
        assert len(table) == 0 and table.dtype == format_of(name).dtype
    assert len(lumberjack.plain(lumberjack.scan(b""))) == 0


def test_limits():
    frames = lumberjack.scan(window(2) + compressed(EVENT) + EVENT)
    for call in (lumberjack.plain, lumberjack.events):
        with pytest.raises(FrameError) as caught:
            call(frames, limits=Limits(rows=3))
        assert caught.value.fault == Fault.LIMIT
        assert len(call(frames, limits=Limits(rows=5))) in (4, 5)
    assert said(lumberjack.events(frames, errors="mark", limits=Limits(inflated=23))) == ["TOO_LARGE", *BOTH]
    assert said(lumberjack.events(frames, errors="mark", limits=Limits(inflated=24))) == BOTH * 2
    three = lumberjack.scan(compressed(EVENT) * 3)
    assert lumberjack.events(three, errors="mark", limits=Limits(inflated_total=50))["fault"].tolist() == [
        0, 0, 0, 0, Fault.TOO_LARGE]
    with pytest.raises(FrameError) as caught:
        lumberjack.scan(json(1, bytes(100)), limits=Limits(frame=109))
    assert caught.value.fault == Fault.BAD_LENGTH
    assert len(lumberjack.scan(json(1, bytes(100)), limits=Limits(frame=110))) == 1


@pytest.mark.parametrize("column, value", [
    ("start", -1), ("start", 1 << 40), ("size", 2**32 - 1), ("buffer", 9), ("body", 2**32 - 1), ("start", 2**63 - 1),
    ("count", 2**32 - 1), ("length", 2**32 - 1), ("json_size", 2**31 - 1), ("parent", -5), ("parent", 99)])
def test_rows_that_lie_lead_no_kernel_astray(column, value):
    """Rows may come from anywhere."""
    for table, opens in ((lumberjack.scan(MIXED), (lumberjack.plain, lumberjack.events)),
                         (lumberjack.plain(lumberjack.scan(MIXED)), (lumberjack.plain, lumberjack.events)),
                         (events_of(MIXED), (lumberjack.pairs,))):
        if column not in table.dtype.names:
            continue
        rows = table.rows.copy()
        rows[column] = value
        forged = replace(table, rows=rows)
        for open_ in opens:
            try:
                found = open_(forged, errors="mark")
            except ValueError:
                continue
            for i, row in enumerate(found):
                try:
                    assert len(found.frame(i)) == row.size
                    assert all(len(string) <= row.size for string in row if string is not None)
                except ValueError:
                    pass        # the row lies still, and says so where it is asked


# ------------------------------------------------------------------------------------------- files and streams

def test_files_are_cut_before_windows(tmp_path):
    batch = window(20) + b"".join(json(i, b'{"message":"some text"}') for i in range(20))
    raw = batch * 300
    path = tmp_path / "one.lumberjack"
    path.write_bytes(raw)
    slices = plan(path, 20_000, "lumberjack.events")
    assert len(slices) > 5 and [one.start for one in slices] == [0, *(one.stop for one in slices)][:-1]
    assert all(one.start % len(batch) == 0 and len(one) < 30_000 for one in slices) and slices[-1].stop == len(raw)
    endless = json(1, bytes(90)) * 1000                 # of a writer that sends no windows
    path.write_bytes(window(1000) + endless)
    assert all(len(one) <= 20_000 for one in plan(path, 10_000, "lumberjack.events"))
    (tmp_path / "_two.lumberjack").write_bytes(path.read_bytes()[:-1])      # still being written
    assert len(lumberjack.events(lumberjack.scan(tmp_path))) == 1000


def fed(raw, sizes):
    """What a stream did with a frame that came in pieces: (tables, calls of `needed`, bytes that these walked, bytes
    scanned)."""
    known = format_of("lumberjack.frames")
    walked, scanned = [], []

    def needed(held, at=0, pairs=0):
        least, now, left = known.needed(held, at, pairs)
        walked.append(now - at)
        return least, now, left

    def scan(view, *arguments, **options):
        scanned.append(len(view))
        return known.scan(view, *arguments, **options)

    stream, at, tables = Stream(replace(known, scan=scan, needed=needed)), 0, []
    while at < len(raw):
        for size in sizes:
            tables.append(stream.feed(raw[at:at + size]))
            at += size
    return [table for table in [*tables, stream.close()] if len(table)], len(walked), sum(walked), sum(scanned)


@pytest.mark.parametrize("sizes", [(1,), (1, 2, 3, 4, 5, 6, 7), (7,), (100_000,)], ids=str)
def test_data_frames_in_small_pieces_cost_linear_work(sizes):
    """A data frame has no length: it is walked once, however small the pieces that it comes in, and scanned once."""
    count = 200_000 if sizes == (100_000,) else 3000
    raw = data(1, [(b"k", b"")] * count)
    tables, calls, walked, scanned = fed(raw, sizes)
    assert [table["count"].tolist() for table in tables] == [[count]]
    assert walked <= len(raw) and scanned <= 2 * len(raw) + 1000
    assert calls <= len(raw) / (sum(sizes) / len(sizes)) + 2 * count


def test_an_empty_document_does_not_wait_for_what_follows():
    stream = Stream(format_of("lumberjack.frames"), errors="mark")
    assert stream.feed(window(2) + json(1, b""))["fault"].tolist() == [0, Fault.EMPTY] and stream.held == 0
    assert stream.feed(json(2))["sequence"].tolist() == [2]


@pytest.mark.parametrize("raw", [b"\x16\3\1\2\0\1", b"GET / ", b"3J\0\0\0\1", b"2K\0\0\0\1", b"<13>Oc", b"1d\0\0\0\1"])
def test_what_is_no_frame_is_told_at_once(raw):
    stream = wirescan.stream("lumberjack.frames")
    stream.feed(json(1))
    with pytest.raises(FrameError, match="NOT_A_FRAME") as caught:
        for i in range(len(raw)):
            stream.feed(raw[i:i + 1])
    assert caught.value.offset == len(json(1))


@steady
@given(strategies.damaged_streams() | strategies.streams(least=1), st.lists(st.integers(0, 300), max_size=4))
def test_what_a_frame_needs_is_never_more_than_it_has(raw, cuts):
    """And as long as a good frame is not whole, it is more than there is."""
    needed, given = format_of("lumberjack.frames").needed, (0, 0)
    try:
        size = reference.frame(raw, 0)["size"]
    except reference.Bad as bad:
        size = None if bad.fault == reference.TRUNCATED else 0
    for cut in sorted({*(cut % (len(raw) + 1) for cut in cuts), len(raw)}):
        if size != 0 and cut:
            least, *given = needed(raw[:cut], *given)
            assert least > cut if size is None or cut < size else least <= size
            if size is not None:
                assert least <= size
