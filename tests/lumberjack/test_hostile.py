"""Hostile Lumberjack bytes: damage to every byte, false lengths and counts, decompression bombs."""

import random
import struct
import time
import zlib
from dataclasses import replace

import pytest

import wirescan
from tests.laws.packages import PACKAGES
from tests.reference import lumberjack as reference
from tests.strategies.bombs import compress_zeros
from tests.strategies.lumberjack import (
    EXTREMES,
    GOLDEN,
    deflate_bytes,
    find_numbers,
    make_compressed,
    make_data,
    make_json,
    make_window,
    wrap_payload,
)
from tests.support import many_streams
from tests.support.children import run_each_in_little_memory, run_in_little_memory, run_scans
from tests.support.slowness import SLOWNESS
from wirescan import Fault, FrameError, lumberjack
from wirescan.testing import laws

PACKAGE = PACKAGES["lumberjack"]
ALL = b"".join(GOLDEN.values())
PLAIN = b"".join(raw for raw in GOLDEN.values() if b"C" not in raw)
every_stream = pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
checked = pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])


# ---- each byte, each number, each cut


def expect_events(raw, check, resync):
    """Return the reference's rows of each format, the fault and its position; count windows too."""
    rows, fault, at = reference.read_frames(raw, resync)
    plain = reference.list_plain_frames(raw, check, resync=resync)
    events = reference.list_events(plain)
    pairs = []
    for parent, (event, source) in enumerate(events):
        pairs += [(pair, source) for pair in reference.list_pairs(event, source, parent)]
    windows = sum(row["kind"] == ord("W") and not row["fault"] for row, _ in plain)
    return (
        {
            "lumberjack.frames": [(row, raw) for row in rows],
            "lumberjack.events": events,
            "lumberjack.pairs": pairs,
            "windows": windows,
        },
        fault,
        at,
    )


COUNTED = replace(PACKAGE, expected=expect_events)


def agree_with_the_reference(streams, check=True):
    many_streams.agree_with_the_reference(
        [COUNTED], streams, check, outermost=lambda raw: reference.read_frames(raw, resync=False)
    )


def agree_and_end_well(streams, check):
    streams = list(streams)
    agree_with_the_reference(streams, check)
    many_streams.end_well(PACKAGE, streams, check)


@every_stream
@checked
def test_changes_of_every_byte_keep_the_laws(raw, check, stride):
    def values(old):
        return {0, 1, 0x7F, 0x80, 0xFF, *b"12WADJC", old ^ 0x10}

    agree_and_end_well(many_streams.replace_bytes(raw, values, stride), check)


@checked
def test_every_byte_of_a_compressed_payload(check, stride):
    plain = make_window(2) + make_data(1, [(b"k", b"v")]) + make_json(2)

    def values(old):
        return {0, 1, 0x80, 0xFF, *b"12WADJC", old ^ 0x10}

    streams = [
        make_compressed(damaged) + make_json(3)
        for damaged in many_streams.replace_bytes(plain, values, stride)
    ]
    agree_with_the_reference(streams, check)
    for damaged in streams:
        laws.covers_every_byte(PACKAGE, damaged, check=check)
        laws.modes_agree(PACKAGE, damaged, check=check)


def test_cut_at_each_byte():
    whole = laws.describe_rows(wirescan.scan(ALL, "lumberjack.pairs"))
    ends = [0]
    for size in lumberjack.scan(ALL)["size"].tolist():
        ends.append(ends[-1] + size)
    agree_with_the_reference([ALL[:cut] for cut in range(len(ALL))])
    for cut in range(len(ALL)):
        table = wirescan.scan(ALL[:cut], "lumberjack.pairs")
        assert laws.describe_rows(table) == whole[: len(table)]
        stop = laws.list_tables(table)[0].stop
        assert stop[:2] == (
            Fault.OK if cut in ends else Fault.SHORT,
            max(end for end in ends if end <= cut),
        )


@checked
def test_a_compressed_payload_cut_at_each_byte(check):
    """The frames before the cut stay, and one bad row reports the missing bytes."""
    plain = make_window(3) + make_data(1, [(b"k", b"v")]) + make_json(2) + make_json(3)
    ends = [
        len(make_window(3)),
        len(make_window(3) + make_data(1, [(b"k", b"v")])),
        len(plain) - len(make_json(3)),
        len(plain),
    ]
    agree_with_the_reference([make_compressed(plain[:cut]) for cut in range(len(plain))], check)
    for cut in range(len(plain)):
        raw = make_compressed(plain[:cut])
        faults = wirescan.scan(raw, "lumberjack.events", errors="mark")["fault"].tolist()
        expected = [0] * sum(end <= cut for end in ends[1:])
        if cut not in (0, *ends):
            expected.append(Fault.TRUNCATED)
        assert faults == expected


@pytest.mark.parametrize(
    "payload",
    [zlib.compress(PLAIN, 9), zlib.compress(PLAIN, 0), deflate_bytes(PLAIN, ends=False)],
    ids=["dynamic", "stored", "flushed"],
)
@checked
def test_zlib_streams_cut_and_damaged_at_each_byte(payload, check):
    streams = []
    for at in range(len(payload)):
        flipped = bytes([payload[at] ^ 1 << at % 8])
        for damaged in (payload[:at], payload[:at] + flipped + payload[at + 1 :]):
            streams.append(make_window(2) + wrap_payload(damaged) + make_json(9))
    agree_and_end_well(streams, check)
    for at in range(len(payload)):
        events = wirescan.scan(wrap_payload(payload[:at]), "lumberjack.events", errors="mark")
        assert events["fault"].tolist()[-1] == Fault.TRUNCATED
        assert events["fault"].sum() == Fault.TRUNCATED


@every_stream
@checked
def test_extreme_numbers_keep_the_laws(raw, check):
    streams = []
    for at in find_numbers(raw):
        (true,) = struct.unpack_from(">I", raw, at)
        near = {true - 1, true + 1, len(raw), len(raw) - at, len(raw) - at - 4}
        for number in sorted({*EXTREMES, *(number % 2**32 for number in near)} - {true}):
            damaged = raw[:at] + struct.pack(">I", number) + raw[at + 4 :]
            streams += [damaged, damaged + make_json(1), make_compressed(damaged) + make_json(1)]
    agree_and_end_well(streams, check)


GUARD = """
import random, sys
import numpy as np
from wirescan.testing.guarded_memory import GuardedMemory
from tests.strategies.lumberjack import GOLDEN, make_compressed, make_data, wrap_payload
import wirescan
from wirescan import Limits, lumberjack
from wirescan.core.loop import spans
from wirescan.lumberjack.scan import bytes_needed, unpack

chance = random.Random(1)
limits = Limits()
scans = 0
guarded = GuardedMemory(400)
outer = lumberjack.scan(make_compressed(b"")).rows.copy()
pairs = lumberjack.events(lumberjack.scan(make_data(1, [(b"", b"")] * 9))).rows.copy()

def open_frames(frames):
    for depth in (1, 2):
        lumberjack.pairs(lumberjack.events(frames, errors="mark", depth=depth), errors="mark")
    lumberjack.plain(frames, errors="mark")

def scan(raw):
    global scans
    for view in (guarded.place_at_end(raw), guarded.place_at_beginning(raw)):
        open_frames(lumberjack.scan(view, errors="mark"))
        bytes_needed(view)
        inside = spans(outer)  # as if the view were the decompressed payload
        inside["start"] = 0
        inside["size"] = len(raw)
        inside["buffer"] = 0
        for events in (True, False):
            unpack(outer, (view,), np.zeros(1, np.int64), inside, False, True, events, limits)
        pairs["start"] = 0
        pairs["size"] = len(raw)
        pairs["body"] = min(10, len(raw))
        table = wirescan.FrameTable((view,), pairs, (), lumberjack.FORMATS[1])
        lumberjack.pairs(table, errors="mark")
    scans += 1

for raw in GOLDEN.values():
    for cut in range(len(raw) + 1):
        scan(raw[:cut])
        for _ in range(int(sys.argv[1])):
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                value = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, *b"12WADJC"))
                damaged[chance.randrange(cut)] = value
            scan(bytes(damaged))
print(scans)
"""


def test_nothing_is_read_outside():
    """Scan every cut, with some damage, next to unreadable pages. test_guard.py tests the pages."""
    assert run_scans(GUARD, 3) > 700


@pytest.mark.slow
def test_nothing_is_read_outside_with_much_damage():
    assert run_scans(GUARD, 20) > 4000


# ---- memory and time

CHILD = """
import resource, sys, time
import wirescan, wirescan.lumberjack as lumberjack
from wirescan import FrameError
raw = sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
start = time.process_time()
for errors in ("mark", "skip", "strict"):
    try:
        frames = lumberjack.scan(raw, errors=errors)
        events = lumberjack.events(frames, errors=errors, depth=int(sys.argv[2]))
        print(len(events), len(lumberjack.pairs(events, errors=errors)), sep="/", end=" ")
    except FrameError as error:
        print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""


CLAIMS = {
    "a document": (b"2J" + bytes(4) + b"\x7f\xff\xff\xff{", "BAD_LENGTH"),
    "a compressed frame": (b"2C" + b"\x7f\xff\xff\xff" + GOLDEN["json"], "BAD_LENGTH"),
    "pairs": (b"1D" + bytes(4) + struct.pack(">I", (2**32 - 11) // 8) + bytes(100), "BAD_LENGTH"),
    "pairs within limits": (b"1D" + bytes(4) + struct.pack(">I", 13_000_000) + bytes(100), "0/0"),
    "a key": (make_data(1, [(b"k", b"v")])[:10] + b"\x7f\xff\xff\xff" + bytes(100), "BAD_LENGTH"),
    "a window": (make_window(2**32 - 1) * 1000 + make_json(1), "1/0"),
    "a document inside": (make_compressed(b"2J" + bytes(4) + b"\x7f\xff\xff\xff{"), "TRUNCATED"),
    "pairs inside": (
        make_compressed(b"1D" + bytes(4) + b"\x0f\xff\xff\xff" + bytes(100)),
        "TRUNCATED",
    ),
}


@pytest.fixture(scope="module")
def claims_read():
    inputs = {claim: raw for claim, (raw, _) in CLAIMS.items()}
    return run_each_in_little_memory(CHILD, inputs, 64, 1)


@pytest.mark.parametrize("claim", CLAIMS)
def test_nothing_is_allocated_from_a_claim(claims_read, claim):
    (_, _, strict), seconds = claims_read[claim]
    assert strict == CLAIMS[claim][1]
    assert seconds < 2 * SLOWNESS


def make_bomb(size):
    """Return the zlib stream of one JSON frame of `size` bytes."""
    return compress_zeros(b"2J" + bytes(4) + struct.pack(">I", size - 10), size - 10)


@pytest.mark.parametrize("depth", [1, 2])
def test_bombs_of_one_layer(depth):
    output, seconds = run_in_little_memory(
        CHILD, wrap_payload(make_bomb(100 << 20)) + make_json(1), 256, depth
    )
    assert output == ["2/1", "1/0", "TOO_LARGE"]
    assert seconds < 5 * SLOWNESS


@pytest.mark.slow
def test_bombs_of_two_layers():
    """300 bytes decompress to 100 MB: refused for nesting at depth 1, and for size at depth 2."""
    raw = make_compressed(wrap_payload(make_bomb(100 << 20)), level=9)
    assert len(raw) < 1000
    output, seconds = run_in_little_memory(CHILD, raw + make_json(1), 64, 1)
    assert output == ["2/1", "1/0", "NESTED"]
    assert seconds < SLOWNESS
    output, seconds = run_in_little_memory(CHILD, raw + make_json(1), 256, 2)
    assert output == ["2/1", "1/0", "TOO_LARGE"]
    assert seconds < 5 * SLOWNESS


def test_many_small_bombs_exceed_the_total_limit():
    """Each bomb is within the limits; all of them together exceed `inflated_total`."""
    limits = wirescan.Limits(inflated_total=10 << 20)
    frames = lumberjack.scan(
        wrap_payload(make_bomb(1 << 20)) * 40
        + make_compressed(wrap_payload(make_bomb(1 << 20)) * 40)
    )
    for depth in (1, 2):
        table = lumberjack.events(frames, errors="mark", limits=limits, depth=depth)
        assert (~table.bad).sum() == 10
        assert sum(map(len, table.buffers[1:])) <= 10 << 20
        faults = set(table["fault"].tolist())
        assert faults <= {Fault.OK, Fault.TOO_LARGE, Fault.NESTED}


def test_rows_are_bounded_by_bytes():
    """A row of an event takes 48 bytes, and each row costs the stream six bytes or more."""
    for plain, least in (
        (make_data(1), 10),
        (make_json(1, b""), 10),
        (wrap_payload(b""), 6),
        (make_window(9), 6),
    ):
        count = 100_000
        table = wirescan.scan(make_compressed(plain * count), "lumberjack.events", errors="mark")
        assert len(table) <= count * len(plain) // least
        table = lumberjack.plain(lumberjack.scan(plain * count, errors="mark"), errors="mark")
        assert len(table) == count


TRAPS = {
    "windows": lambda size: make_window(2**32 - 1) * (size // 6),
    "data without pairs": lambda size: make_data(1) * (size // 10),
    "one data frame of empty pairs": lambda size: make_data(1, [(b"", b"")] * (size // 8)),
    "data frames that each claim the rest": lambda size: b"".join(
        b"1D" + bytes(4) + struct.pack(">I", (size - at) // 8) for at in range(0, size, 10)
    ),
    "compressed of no bytes": lambda size: wrap_payload(b"") * (size // 6),
    "compressed of none": lambda size: make_compressed(b"") * (size // 14),
    "compressed that end early": lambda size: wrap_payload(b"\x78\x9c") * (size // 8),
    "compressed without a header": lambda size: wrap_payload(b"??") * (size // 8),
    "wrong checksums": lambda size: (
        wrap_payload(zlib.compress(make_json(1))[:-1] + b"?") * (size // 26)
    ),
    "documents of no bytes": lambda size: make_json(1, b"") * (size // 10),
    "zeros": bytes,
    "noise": lambda size: random.Random(1).randbytes(size),
}


@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    raw = trap(1 << 19)
    start = time.process_time()
    frames = lumberjack.scan(raw, errors="mark")
    lumberjack.pairs(lumberjack.events(frames, errors="mark"), errors="mark")
    seconds = time.process_time() - start
    assert seconds < 2 * SLOWNESS, f"{seconds} seconds for half a mebibyte"
    assert sum(frames["size"].tolist()) + len(frames.tail) == len(raw)


def test_a_stream_holds_at_most_the_frame_limit():
    limits = wirescan.Limits(frame=1000)
    for raw in (
        make_json(1, bytes(2000)),
        make_data(1, [(b"k", bytes(10))] * 100),
        wrap_payload(bytes(2000)),
        b"1D" + bytes(4) + struct.pack(">I", 200) + bytes(2000),
    ):
        for size in (1, 7, 300, 5000):
            stream = wirescan.stream("lumberjack.frames", limits=limits)
            with pytest.raises(FrameError) as caught:
                for at in range(0, len(raw), size):
                    stream.feed(raw[at : at + size])
                    assert stream.held <= 1000 + size
            assert (caught.value.fault, caught.value.offset) == (Fault.BAD_LENGTH, 0)
            marked = wirescan.stream("lumberjack.frames", limits=limits, errors="mark")
            for at in range(0, len(raw), size):
                marked.feed(raw[at : at + size])
                assert marked.held <= 2 * (1000 + size)
            marked.close()
