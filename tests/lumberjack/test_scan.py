"""Lumberjack tables: columns, streams on which readers disagree, nested frames, unrolling."""

import gzip
import pickle
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirescan
from tests.laws.cases import steady
from tests.laws.packages import PACKAGES
from tests.reference import lumberjack as reference
from tests.strategies import lumberjack as strategies
from tests.strategies.lumberjack import (
    deflate_bytes,
    make_ack,
    make_compressed,
    make_data,
    make_json,
    make_window,
    wrap_payload,
)
from tests.support.paths import CORPUS
from tests.support.tables import list_columns
from wirescan import Fault, FrameError, Limits, Parser, lumberjack
from wirescan.frames.registry import format_of
from wirescan.frames.table import join
from wirescan.lumberjack import Kind
from wirescan.reading.splits import plan
from wirescan.reading.stream import Stream
from wirescan.testing import laws

PACKAGE = PACKAGES["lumberjack"]
PAIRS = [(b"line", b"hello"), (b"", b"\xff")]
MIXED = (
    make_window(3)
    + make_data(1, PAIRS)
    + make_compressed(make_json(2, b"[1]", 1))
    + make_json(3, b"7")
    + make_ack(3)
)


def scan_events(raw, errors="mark", depth=1, check=True):
    return lumberjack.events(
        lumberjack.scan(raw, errors=errors), errors=errors, depth=depth, check=check
    )


def list_outcomes(events):
    """Return (window, sequence) of each good event, and the name of its fault of each bad event."""
    return [
        Fault(fault).name if fault else (number, sequence)
        for fault, number, sequence in events.rows[["fault", "window", "sequence"]].tolist()
    ]


# ---- columns


def test_frames_have_columns():
    table = lumberjack.scan(MIXED)
    assert list_columns(table, "kind start size body sequence count length version depth") == [
        (Kind.WINDOW, 0, 6, 6, 0, 3, 0, 2, 0),
        (Kind.DATA, 6, 36, 10, 1, 2, 0, 1, 0),
        (Kind.COMPRESSED, 42, 25, 6, 0, 0, 19, 2, 0),
        (Kind.JSON, 67, 11, 10, 3, 0, 1, 2, 0),
        (Kind.ACK, 78, 6, 6, 3, 0, 0, 2, 0),
    ]
    assert table.name == "lumberjack.frames"
    assert table.dtype.itemsize == 40
    assert not table.bad.any()
    assert (table["parent"] == -1).all()
    assert (table["buffer"] == 0).all()
    assert table.stop == (0, len(MIXED), 0)


def test_events_have_columns():
    frames = lumberjack.scan(MIXED)
    table = lumberjack.events(frames)
    names = "kind parent size body sequence count window json_at json_size version depth"
    assert list_columns(table, names) == [
        (Kind.DATA, 1, 36, 10, 1, 2, 0, 0, -1, 1, 0),
        (Kind.JSON, 2, 13, 10, 2, 0, 0, 10, 3, 1, 1),
        (Kind.JSON, 3, 11, 10, 3, 0, 0, 10, 1, 2, 0),
    ]
    assert table.name == "lumberjack.events"
    assert table.dtype.itemsize == 48
    assert table.outer is frames
    documents = [None if event.json is None else bytes(event.json) for event in table]
    assert documents == [None, b"[1]", b"7"]
    assert table["buffer"].tolist() == [0, 1, 0]
    assert table.positions.tolist() == [6, 42, 67]
    assert [[tuple(map(bytes, pair)) for pair in event.pairs] for event in table] == [
        [(b"line", b"hello"), (b"", b"\xff")],
        [],
        [],
    ]


def test_pairs_have_columns():
    events = lumberjack.events(lumberjack.scan(MIXED))
    table = lumberjack.pairs(events)
    assert list_columns(table, "parent start size body key_at key_size value_at value_size") == [
        (0, 16, 17, 4, 4, 4, 12, 5),
        (0, 33, 9, 4, 4, 0, 8, 1),
    ]
    assert table.name == "lumberjack.pairs"
    assert table.dtype.itemsize == 40
    assert table.outer is events
    assert laws.describe_rows(wirescan.scan(MIXED, "lumberjack.pairs")) == laws.describe_rows(table)


def test_plain_frames_have_columns():
    frames = lumberjack.scan(MIXED)
    table = lumberjack.plain(frames)
    assert list_columns(table, "kind parent version depth") == [
        (Kind.WINDOW, 0, 2, 0),
        (Kind.DATA, 1, 1, 0),
        (Kind.JSON, 2, 1, 1),
        (Kind.JSON, 3, 2, 0),
        (Kind.ACK, 4, 2, 0),
    ]
    assert table.dtype == lumberjack.FRAME
    assert table.outer is frames
    assert table.buffers[:1] == frames.buffers
    assert b"".join(laws.list_frames(table)) == MIXED[:42] + make_json(2, b"[1]", 1) + MIXED[67:]


def test_kinds_are_letters():
    letters = dict(WINDOW="W", ACK="A", DATA="D", JSON="J", COMPRESSED="C")
    assert {kind.name: chr(kind) for kind in Kind} == letters


def test_windows_count_from_0_in_each_table():
    raw = (
        make_json(1)
        + make_window(1)
        + make_json(1)
        + make_window(0)
        + make_window(2)
        + make_json(1)
        + make_json(2)
    )
    assert scan_events(raw)["window"].tolist() == [-1, 0, 2, 2]
    stream = wirescan.stream("lumberjack.events")
    tables = [stream.feed(raw[:30]), stream.feed(raw[30:])]
    assert [table["window"].tolist() for table in tables] == [[-1, 0], [1, 1]]


def test_more_pairs_than_caches_hold():
    """Rows of large frames are written past the caches, and hold the same values."""
    count = 900_000
    pairs = [b"\0\0\0\1%c\0\0\0\2%c%c" % (i % 251, i % 250, i % 249) for i in range(count // 10)]
    keys = b"".join(pairs) * 10
    large = b"1D\0\0\0\2" + count.to_bytes(4, "big") + keys
    raw = make_window(3, 1) + make_data(1) + large + make_data(3, [(b"k", b"v")])
    table = lumberjack.pairs(lumberjack.events(lumberjack.scan(raw)))
    start = 26 + 11 * np.arange(count)
    places = np.tile([11, 4, 1, 4, 1, 9, 2], (count, 1))
    assert (table["start"][:-1] == start).all()
    assert len(table) == count + 1
    assert table["start"][-1] == len(raw) - 10
    names = ["size", "body", "parent", "key_at", "key_size", "value_at", "value_size"]
    assert (np.stack([table[name][:-1] for name in names], 1) == places).all()
    last = [tuple(map(bytes, pair)) for pair in table[-2:]]
    assert last == [(keys[-7:-6], keys[-2:]), (b"k", b"v")]


# ---- streams on which readers disagree

EVENT = make_json(1) + make_json(2)
LAST = make_json(3)
GOOD = zlib.compress(EVENT)
BOTH = [(0, 1), (0, 2)]
NESTED = make_compressed(make_compressed(EVENT))

# No two real readers agree on all of these streams. wirescan accepts each event that some reader
# accepts. A row with a fault names the reason why another reader refuses, and the position.
OUTCOMES = {
    "a window over two compressed frames": (
        make_window(3) + make_compressed(EVENT) + make_compressed(LAST),
        [*BOTH, (0, 3)],
    ),
    "compressed mixed with plain": (
        make_window(3) + make_json(1) + make_compressed(make_json(2)) + LAST,
        [*BOTH, (0, 3)],
    ),
    "window inside": (make_compressed(make_window(2) + EVENT), BOTH),
    "two windows inside one": (
        make_compressed(make_window(1) + make_json(1) + make_window(1) + make_json(1)),
        [(0, 1), (1, 1)],
    ),
    "compressed twice": (make_window(2) + NESTED + LAST, ["NESTED", (0, 3)]),
    "more events than the window inside": (
        make_window(1) + make_compressed(EVENT) + make_window(1) + make_json(1),
        [*BOTH, (1, 1)],
    ),
    "fewer events than the window": (
        make_window(3) + EVENT + make_window(1) + make_json(1),
        [*BOTH, (1, 1)],
    ),
    "window of 10,001": (make_window(10_001) + EVENT, BOTH),
    "the largest window": (make_window(2**32 - 1) + EVENT, BOTH),
    "no window": (EVENT, [(-1, 1), (-1, 2)]),
    "JSON in version 1": (
        make_window(2, 1) + make_json(1, version=1) + make_json(2, version=1),
        BOTH,
    ),
    "data in version 2": (
        make_window(2) + make_data(1, [(b"k", b"v")], 2) + make_data(2, (), 2),
        BOTH,
    ),
    "versions mixed": (
        make_window(3) + make_json(1, version=1) + make_data(2, (), 2) + make_data(3, (), 1),
        [*BOTH, (0, 3)],
    ),
    "sequence from 2**31 on": (
        make_window(2) + make_json(2**31) + make_json(2**32 - 1),
        [(0, 2**31), (0, 2**32 - 1)],
    ),
    "data of no pairs": (make_window(1, 1) + make_data(1) + make_data(2), BOTH),
    "no Adler-32": (make_window(2) + wrap_payload(GOOD[:-4]) + LAST, [*BOTH, "TRUNCATED", (0, 3)]),
    "half an Adler-32": (
        make_window(2) + wrap_payload(GOOD[:-2]) + LAST,
        [*BOTH, "TRUNCATED", (0, 3)],
    ),
    "wrong Adler-32": (
        make_window(2) + wrap_payload(GOOD[:-4] + bytes(4)) + LAST,
        ["BAD_CHECKSUM", (0, 3)],
    ),
    "flushed, not ended": (
        make_window(2) + wrap_payload(deflate_bytes(EVENT, ends=False)) + LAST,
        [*BOTH, "TRUNCATED", (0, 3)],
    ),
    "trailing garbage": (
        make_window(2) + wrap_payload(GOOD + b"\0") + LAST,
        [*BOTH, "LEFTOVER", (0, 3)],
    ),
    "two zlib members": (
        make_window(3) + wrap_payload(GOOD + zlib.compress(LAST)) + LAST,
        [*BOTH, "LEFTOVER", (0, 3)],
    ),
    "compressed of length 0": (make_window(1) + wrap_payload(b"") + LAST, ["TRUNCATED", (0, 3)]),
    "half a zlib header": (make_window(1) + wrap_payload(b"\x78") + LAST, ["TRUNCATED", (0, 3)]),
    "only a zlib header": (
        make_window(1) + wrap_payload(b"\x78\x9c") + LAST,
        ["TRUNCATED", (0, 3)],
    ),
    "inflates to nothing": (
        make_window(0) + make_compressed(b"") + make_window(1) + LAST,
        [(1, 3)],
    ),
    "gzip": (
        make_window(2) + wrap_payload(gzip.compress(EVENT)) + LAST,
        ["BAD_COMPRESSION", (0, 3)],
    ),
    "raw deflate": (
        make_window(2) + wrap_payload(deflate_bytes(EVENT, wbits=-15)) + LAST,
        ["BAD_COMPRESSION", (0, 3)],
    ),
    "preset dictionary": (
        make_window(2) + wrap_payload(deflate_bytes(EVENT, zdict=EVENT)) + LAST,
        ["BAD_COMPRESSION", (0, 3)],
    ),
    "no zlib at all": (make_window(2) + wrap_payload(EVENT) + LAST, ["BAD_COMPRESSION", (0, 3)]),
    "a bad block": (
        make_window(2) + wrap_payload(b"\x78\x9c\x07") + LAST,
        ["BAD_COMPRESSION", (0, 3)],
    ),
    "cut frame inside": (
        make_window(2) + make_compressed(EVENT[:-1]) + LAST,
        [(0, 1), "TRUNCATED", (0, 3)],
    ),
    "cut header inside": (
        make_window(2) + make_compressed(make_json(1) + b"2") + LAST,
        [(0, 1), "TRUNCATED", (0, 3)],
    ),
    "cut frame and no Adler-32": (
        make_window(2) + wrap_payload(zlib.compress(EVENT[:-1])[:-4]),
        [(0, 1), "TRUNCATED"],
    ),
    "cut frame and garbage": (
        make_window(2) + wrap_payload(zlib.compress(EVENT[:-1]) + b"\0"),
        [(0, 1), "TRUNCATED"],
    ),
    "unknown frame inside": (
        make_window(2) + make_compressed(make_json(1) + b"3J" + make_json(2)) + LAST,
        [(0, 1), "NOT_A_FRAME", (0, 3)],
    ),
    "a document of no bytes": (
        make_window(2) + make_json(1, b"") + make_json(2),
        ["EMPTY", (0, 2)],
    ),
    "a document of no bytes inside": (
        make_window(2) + make_compressed(make_json(1, b"") + make_json(2)),
        ["EMPTY", (0, 2)],
    ),
    "documents that are no objects": (
        make_window(2) + make_json(1, b"[1]") + make_json(2, b"null"),
        BOTH,
    ),
    "documents that are no JSON": (
        make_window(2) + make_json(1, b"\xff") + make_json(2, b"{"),
        BOTH,
    ),
    "acks among the events": (make_window(2) + make_json(1) + make_ack(1) + make_json(2), BOTH),
    "keep-alives": (make_ack(0) + make_ack(0, 1) + make_ack(7, 1), []),
    "acks inside": (make_window(2) + make_compressed(make_ack(0) + EVENT), BOTH),
    "the same keys again": (
        make_window(2)
        + make_data(1, [(b"k", b"1"), (b"k", b"2")])
        + make_data(2, [(b"\xff", b"\xfe")]),
        BOTH,
    ),
    "an unknown type": (make_window(2) + EVENT + b"2K" + LAST, [*BOTH, "NOT_A_FRAME"]),
    "an unknown version": (
        make_window(2) + EVENT + b"3W" + bytes(4) + LAST,
        [*BOTH, "NOT_A_FRAME"],
    ),
    "TLS": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\3\3", ["NOT_A_FRAME"]),
    "HTTP": (b"GET / HTTP/1.1\r\n", ["NOT_A_FRAME"]),
    "a document of 2**31 bytes": (
        make_window(1) + b"2J" + bytes(4) + b"\x80\0\0\0" + LAST,
        ["BAD_LENGTH"],
    ),
    "compressed of 2**31 bytes": (make_window(1) + b"2C" + b"\x80\0\0\0" + LAST, ["BAD_LENGTH"]),
    "a key of 2**31 bytes": (
        make_window(1) + b"1D" + bytes(4) + b"\0\0\0\1\x80\0\0\0" + LAST,
        ["BAD_LENGTH"],
    ),
    "a value of 2**31 bytes": (
        make_window(1) + b"1D" + bytes(4) + b"\0\0\0\1\0\0\0\0\xff\xff\xff\xff",
        ["BAD_LENGTH"],
    ),
    "2**32 - 1 pairs": (make_window(1) + b"1D" + bytes(4) + b"\xff" * 4 + LAST, ["BAD_LENGTH"]),
    "a document cut": (make_window(2) + make_json(1) + make_json(2)[:-1], [(0, 1)]),
}
every_outcome = pytest.mark.parametrize("raw, outcome", OUTCOMES.values(), ids=OUTCOMES)


@every_outcome
def test_streams_have_their_outcomes(raw, outcome):
    assert list_outcomes(scan_events(raw)) == outcome
    good = [event for event in outcome if isinstance(event, tuple)]
    assert list_outcomes(scan_events(raw, "skip")) == good
    fault = next((event for event in outcome if isinstance(event, str)), None)
    if fault is None:
        assert list_outcomes(scan_events(raw, "strict")) == outcome
    else:
        with pytest.raises(FrameError, match=fault) as caught:
            scan_events(raw, "strict")
        assert caught.value.fault.name == fault


@every_outcome
@pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])
def test_streams_keep_the_laws(raw, outcome, check):
    laws.keeps_every_law(PACKAGE, raw, list(range(0, len(raw), 7)), check=check)


RECORDED = sorted((CORPUS / "lumberjack/recorded").glob("*.bin"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recordings_of_real_programs(path):
    raw = path.read_bytes()
    laws.keeps_every_law(PACKAGE, raw, list(range(0, len(raw), 29)))
    laws.streams_agree(PACKAGE, raw, list(range(0, len(raw), 7)), "strict")
    assert len(lumberjack.scan(raw).tail) == 0


def test_adler_32_is_not_verified_without_check():
    wrong = make_window(2) + wrap_payload(GOOD[:-4] + bytes(4)) + wrap_payload(GOOD[:-4] + bytes(3))
    assert list_outcomes(scan_events(wrong, check=False)) == [*BOTH, *BOTH, "TRUNCATED"]


def test_faults_have_positions():
    """Faults inside compressed frames have a row.

    A payload that cannot be decompressed is one row. A payload that ends early adds an empty row.
    """
    payloads = wrap_payload(gzip.compress(EVENT)) + wrap_payload(GOOD[:-4])
    raw = make_window(2) + payloads + make_compressed(make_json(1) + b"2J?")
    table = scan_events(raw)
    gzipped, first, second, end, third, rest = (bytes(table.frame(i)) for i in range(len(table)))
    assert (gzipped, end, rest) == (gzip.compress(EVENT), b"", b"2J?")
    assert first + second == EVENT
    names = "kind body sequence count json_at json_size version depth"
    assert list_columns(table.where(table.bad), names) == [
        (Kind.COMPRESSED, 0, 0, 0, 0, -1, 2, 0),
        (0, 0, 0, 0, 0, -1, 0, 1),
        (0, 0, 0, 0, 0, -1, 0, 1),
    ]
    for begin, expected in (
        (6, (Fault.BAD_COMPRESSION, 6, 0, False)),
        (12 + len(gzipped), (Fault.TRUNCATED, 0, 2, True)),
    ):
        with pytest.raises(FrameError) as caught:
            lumberjack.events(lumberjack.scan(raw[begin:]))
        error = caught.value
        assert (error.fault, error.offset, error.row, error.inflated) == expected


# ---- compressed in compressed


def nest(raw, depth):
    for _ in range(depth):
        raw = make_compressed(raw)
    return raw


@pytest.mark.parametrize("layers", [1, 2, 5, 40])
def test_nested_frames_have_a_limit(layers):
    raw = make_window(2) + nest(EVENT, layers) + LAST
    for depth in {1, 2, layers - 1, layers, layers + 1, 0xFFFF} - {0}:
        opens = depth >= layers
        plain = lumberjack.plain(lumberjack.scan(raw), errors="mark", depth=depth)
        for events in (scan_events(raw, depth=depth), lumberjack.events(plain, errors="mark")):
            assert list_outcomes(events) == ([*BOTH, (0, 3)] if opens else ["NESTED", (0, 3)])
            assert events["depth"].tolist() == ([layers, layers, 0] if opens else [depth, 0])
            if not opens:
                assert bytes(events.frame(0)) == nest(EVENT, layers - depth)


@pytest.mark.parametrize("depth", [0, -1, 1 << 16])
def test_depth_out_of_range(depth):
    for call in (lumberjack.plain, lumberjack.events):
        with pytest.raises(ValueError, match="depth"):
            call(lumberjack.scan(MIXED), depth=depth)


def test_depth_is_an_integer():
    for depth in (1.5, "1", None):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            lumberjack.plain(lumberjack.scan(nest(EVENT, 3)), depth=depth)


@st.composite
def nested_streams(draw):
    """Draw frames that are compressed several times, with damage in between."""
    raw = draw(strategies.odd_streams())
    for _ in range(draw(st.integers(0, 3))):
        raw = draw(strategies.mutations(raw) | st.just(raw) | st.just(raw) | st.just(raw))
        end = draw(st.sampled_from((None, None, None, -1, -4, -6)))
        raw = wrap_payload(zlib.compress(raw)[:end]) + draw(
            st.sampled_from((b"", make_json(9), make_window(1)))
        )
    return raw


def rows_without_starts(table):
    """Return the rows without the positions of decompressed frames, which may differ."""
    return [
        row | dict(start=0, buffer=1) if row["depth"] and row["buffer"] else row
        for row in laws.list_rows(table)
    ]


@steady
@given(nested_streams(), st.integers(1, 4), st.booleans())
def test_nested_frames_agree_with_the_reference(raw, depth, check):
    frames = lumberjack.scan(raw, errors="mark")
    expected = reference.list_plain_frames(raw, check, depth)
    expected_events = reference.list_events(expected)
    table = lumberjack.plain(frames, errors="mark", check=check, depth=depth)
    events = lumberjack.events(frames, errors="mark", check=check, depth=depth)
    again = lumberjack.events(table, errors="mark", check=check)
    for actual, wanted in ((table, expected), (events, expected_events), (again, expected_events)):
        rows = [row | dict(start=0) if row["buffer"] else row for row, _ in wanted]
        assert rows_without_starts(actual) == rows
        assert laws.list_frames(actual) == [
            bytes(source[row["start"] : row["start"] + row["size"]]) for row, source in wanted
        ]
        laws.places_are_in_their_frames(actual)
    frames = lumberjack.scan(raw, errors="skip")
    skipped = lumberjack.events(frames, errors="skip", check=check, depth=depth)
    good = events.where(~events.bad)
    assert laws.describe_rows(skipped, parents=False) == laws.describe_rows(good, parents=False)
    unpickled = pickle.loads(pickle.dumps(table))
    events_again = lumberjack.events(unpickled, errors="mark", check=check)
    assert laws.describe_rows(events_again) == laws.describe_rows(events)
    parts = lumberjack.events(join([table[:2], table[2:]]), errors="mark", check=check)
    assert laws.describe_rows(parts, parents=False) == laws.describe_rows(events, parents=False)


# ---- unrolled numbers

TURN = 2**32


@pytest.mark.parametrize(
    "windows, numbers",
    [
        ([], []),
        ([[1, 2, 3]], [1, 2, 3]),
        ([[1, 2], [1, 2], [1]], [1, 2, 1, 2, 1]),  # most writers
        ([[1, 2], [3, 4]], [1, 2, 3, 4]),  # writers that count through all windows
        ([[TURN - 2, TURN - 1, 0, 1]], [TURN - 2, TURN - 1, TURN, TURN + 1]),
        ([[TURN - 1], [0, 1]], [TURN - 1, TURN, TURN + 1]),
        ([[TURN - 1], [1, 2]], [TURN - 1, TURN + 1, TURN + 2]),  # some writers skip 0
        ([[5, 3]], [5, TURN + 3]),
        ([[2**31 + 1], [2]], [2**31 + 1, 2]),
        ([[2**31 + 2], [2]], [2**31 + 2, TURN + 2]),
        ([[TURN - 1, 0], [TURN - 1, 0]], [TURN - 1, TURN, 2 * TURN - 1, 2 * TURN]),
        ([[7, 7]], [7, 7]),
    ],
    ids=str,
)
def test_unroll_undoes_wraps(windows, numbers):
    raw = b"".join(
        make_window(len(events)) + b"".join(map(make_json, events)) for events in windows
    )
    events = scan_events(raw)
    unrolled = lumberjack.unroll(events)
    assert unrolled.dtype == np.int64
    assert unrolled.tolist() == numbers
    assert numbers == reference.unroll(events["sequence"].tolist(), events["window"].tolist())


def test_unroll_works_without_windows():
    events = scan_events(make_json(TURN - 1) + make_json(0) + make_json(1))
    assert lumberjack.unroll(events).tolist() == [TURN - 1, TURN, TURN + 1]


def test_bad_rows_do_not_roll_over():
    """A bad row has no sequence number, or one that may be wrong."""
    events = scan_events(
        make_window(2)
        + make_json(5)
        + wrap_payload(b"")
        + make_json(6)
        + wrap_payload(b"garbage")
        + make_json(7)
    )
    assert lumberjack.unroll(events)[~events.bad].tolist() == [5, 6, 7]


# ---- arguments


def test_bad_arguments_are_refused():
    frames = lumberjack.scan(MIXED)
    events = lumberjack.events(frames)
    for call, wrong in (
        (lumberjack.plain, events),
        (lumberjack.events, events),
        (lumberjack.events, MIXED),
        (lumberjack.pairs, frames),
        (lumberjack.pairs, lumberjack.pairs(events)),
        (lumberjack.scan, 7),
        (lumberjack.unroll, frames),
        (lumberjack.unroll, [1, 2]),
    ):
        message = "are those of a table of|neither a path nor a bytes-like object"
        with pytest.raises(TypeError, match=message):
            call(wrong)
    for call, table in (
        (lumberjack.scan, MIXED),
        (lumberjack.plain, frames),
        (lumberjack.events, frames),
        (lumberjack.pairs, events),
    ):
        with pytest.raises(ValueError, match="errors"):
            call(table, errors="ignore")
        with pytest.raises(TypeError, match="limits"):
            call(table, limits=7)


def test_scan_into_rows_of_the_caller():
    out = np.empty(9, lumberjack.FRAME)
    table = lumberjack.scan(MIXED, into=out)
    assert np.shares_memory(table.rows, out)
    assert table.rows.tobytes() == lumberjack.scan(MIXED).rows.tobytes()
    with pytest.raises(ValueError, match="into has 4 rows"):
        lumberjack.scan(MIXED, into=np.empty(4, lumberjack.FRAME))
    with pytest.raises(TypeError, match="into"):
        lumberjack.scan(MIXED, into=np.empty(9, lumberjack.EVENT))
    with pytest.raises(ValueError, match="one buffer"):
        lumberjack.scan([MIXED, MIXED], into=out)


def test_empty_streams_have_no_rows():
    for name in PACKAGE.formats:
        table = wirescan.scan(b"", name)
        assert len(table) == 0
        assert table.dtype == format_of(name).dtype
    assert len(lumberjack.plain(lumberjack.scan(b""))) == 0


def test_rows_have_a_limit():
    frames = lumberjack.scan(make_window(2) + make_compressed(EVENT) + EVENT)
    for call in (lumberjack.plain, lumberjack.events):
        with pytest.raises(FrameError) as caught:
            call(frames, limits=Limits(rows=3))
        assert caught.value.fault == Fault.LIMIT
        assert len(call(frames, limits=Limits(rows=5))) in (4, 5)
    events = lumberjack.events(frames, errors="mark", limits=Limits(inflated=23))
    assert list_outcomes(events) == ["TOO_LARGE", *BOTH]
    events = lumberjack.events(frames, errors="mark", limits=Limits(inflated=24))
    assert list_outcomes(events) == BOTH * 2
    three = lumberjack.scan(make_compressed(EVENT) * 3)
    events = lumberjack.events(three, errors="mark", limits=Limits(inflated_total=50))
    assert events["fault"].tolist() == [0, 0, 0, 0, Fault.TOO_LARGE]
    with pytest.raises(FrameError) as caught:
        lumberjack.scan(make_json(1, bytes(100)), limits=Limits(frame=109))
    assert caught.value.fault == Fault.BAD_LENGTH
    assert len(lumberjack.scan(make_json(1, bytes(100)), limits=Limits(frame=110))) == 1


@pytest.mark.parametrize(
    "column, value",
    [
        ("start", -1),
        ("start", 1 << 40),
        ("size", 2**32 - 1),
        ("buffer", 9),
        ("body", 2**32 - 1),
        ("start", 2**63 - 1),
        ("count", 2**32 - 1),
        ("length", 2**32 - 1),
        ("json_size", 2**31 - 1),
        ("parent", -5),
        ("parent", 99),
    ],
)
def test_forged_rows_do_no_harm(column, value):
    """Rows may come from a user: a kernel refuses them, or stays in their frames."""
    for table, opens in (
        (lumberjack.scan(MIXED), (lumberjack.plain, lumberjack.events)),
        (lumberjack.plain(lumberjack.scan(MIXED)), (lumberjack.plain, lumberjack.events)),
        (scan_events(MIXED), (lumberjack.pairs,)),
    ):
        if column not in table.dtype.names:
            continue
        rows = table.rows.copy()
        rows[column] = value
        forged = replace(table, rows=rows)
        for open_frames in opens:
            try:
                inner = open_frames(forged, errors="mark")
            except ValueError:
                continue
            for i, row in enumerate(inner):
                try:
                    assert len(inner.frame(i)) == row.size
                    assert all(len(string) <= row.size for string in row if string is not None)
                except ValueError:
                    pass  # the inner row is out of bounds too, and its access raises


# ---- files and streams


def test_files_are_divided_before_windows(tmp_path):
    batch = make_window(20) + b"".join(make_json(i, b'{"message":"some text"}') for i in range(20))
    raw = batch * 300
    path = tmp_path / "one.lumberjack"
    path.write_bytes(raw)
    slices = plan(path, "lumberjack.events", 20_000)
    assert len(slices) > 5
    assert [part.start for part in slices] == [0, *(part.stop for part in slices)][:-1]
    assert all(part.start % len(batch) == 0 for part in slices)
    assert all(len(part) < 30_000 for part in slices)
    assert slices[-1].stop == len(raw)
    endless = make_json(1, bytes(90)) * 1000  # a writer that sends no windows
    path.write_bytes(make_window(1000) + endless)
    assert all(len(part) <= 20_000 for part in plan(path, "lumberjack.events", 10_000))
    (tmp_path / "_two.lumberjack").write_bytes(path.read_bytes()[:-1])  # still being written
    assert len(lumberjack.events(lumberjack.scan(tmp_path))) == 1000


def feed_stream(raw, sizes):
    """Feed `raw` to a stream in pieces.

    Return (tables, calls of `bytes_needed`, bytes that these calls walked, bytes scanned).
    """
    frame_format = format_of("lumberjack.frames")
    walked = []
    scanned = []

    def bytes_needed(held, at=0, pairs=0):
        least, new_at, pairs_left = frame_format.parser.bytes_needed(held, at, pairs)
        walked.append(new_at - at)
        return least, new_at, pairs_left

    def scan(view, *arguments, **options):
        scanned.append(len(view))
        return frame_format.parser.scan(view, *arguments, **options)

    stream = Stream(replace(frame_format, parser=Parser(scan=scan, bytes_needed=bytes_needed)))
    at = 0
    tables = []
    while at < len(raw):
        for size in sizes:
            tables.append(stream.feed(raw[at : at + size]))
            at += size
    tables.append(stream.close())
    return [table for table in tables if len(table)], len(walked), sum(walked), sum(scanned)


@pytest.mark.parametrize("sizes", [(1,), (1, 2, 3, 4, 5, 6, 7), (7,), (100_000,)], ids=str)
def test_data_frames_in_small_pieces_cost_linear_work(sizes):
    """A data frame has no length prefix. It is walked once and scanned once in any pieces."""
    count = 200_000 if sizes == (100_000,) else 3000
    raw = make_data(1, [(b"k", b"")] * count)
    tables, calls, walked, scanned = feed_stream(raw, sizes)
    assert [table["count"].tolist() for table in tables] == [[count]]
    assert walked <= len(raw)
    assert scanned <= 2 * len(raw) + 1000
    assert calls <= len(raw) / (sum(sizes) / len(sizes)) + 2 * count


def test_an_empty_document_does_not_wait_for_what_follows():
    stream = Stream(format_of("lumberjack.frames"), errors="mark")
    assert stream.feed(make_window(2) + make_json(1, b""))["fault"].tolist() == [0, Fault.EMPTY]
    assert stream.held == 0
    assert stream.feed(make_json(2))["sequence"].tolist() == [2]


@pytest.mark.parametrize(
    "raw", [b"\x16\3\1\2\0\1", b"GET / ", b"3J\0\0\0\1", b"2K\0\0\0\1", b"<13>Oc", b"1d\0\0\0\1"]
)
def test_other_protocols_are_refused_at_once(raw):
    stream = wirescan.stream("lumberjack.frames")
    stream.feed(make_json(1))
    with pytest.raises(FrameError, match="NOT_A_FRAME") as caught:
        for i in range(len(raw)):
            stream.feed(raw[i : i + 1])
    assert caught.value.offset == len(make_json(1))


@steady
@given(
    strategies.damaged_streams() | strategies.streams(least=1),
    st.lists(st.integers(0, 300), max_size=4),
)
def test_bytes_needed_never_exceeds_the_frame(raw, cuts):
    """And it is more than the bytes held, as long as a good frame is incomplete."""
    bytes_needed = format_of("lumberjack.frames").parser.bytes_needed
    state = (0, 0)
    try:
        size = reference.read_frame(raw, 0)["size"]
    except reference.BadBytesError as bad:
        size = None if bad.fault == reference.TRUNCATED else 0
    for cut in sorted({*(cut % (len(raw) + 1) for cut in cuts), len(raw)}):
        if size != 0 and cut:
            least, *state = bytes_needed(raw[:cut], *state)
            if size is None or cut < size:
                assert least > cut
            else:
                assert least <= size
            if size is not None:
                assert least <= size
