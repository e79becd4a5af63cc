"""Lumberjack bytes that mean harm: every small damage to small streams, lies about lengths and counts, bombs."""
import random
import struct
import time
import zlib
from dataclasses import replace

import pytest

import laws
import many_streams
import wirescan
from children import in_a_small_room, in_small_rooms, scanned
from reference import lumberjack as reference
from rooms import ROOMS
from strategies.bombs import zlib_with_zeros
from strategies.lumberjack import EXTREMES, GOLDEN, compressed, data, deflated, json, numbers_in, window, wrapped
from wirescan import Fault, FrameError, lumberjack

ROOM = ROOMS["lumberjack"]
ALL = b"".join(GOLDEN.values())
PLAIN = b"".join(raw for raw in GOLDEN.values() if b"C" not in raw)
every_stream = pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
checked = pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])


# ------------------------------------------------------------------------------- each byte, each number, each cut

def expect_events(raw, check, resync):
    """What the reference says, and how many windows it counts."""
    rows, fault, at = reference.frames(raw, resync)
    plain = reference.plain(raw, check, resync=resync)
    events = reference.events(plain)
    pairs = []
    for parent, (event, data) in enumerate(events):
        pairs += [(pair, data) for pair in reference.pairs(event, data, parent)]
    windows = sum(row["kind"] == ord("W") and not row["fault"] for row, _ in plain)
    return {"lumberjack.frames": [(row, raw) for row in rows], "lumberjack.events": events, "lumberjack.pairs": pairs,
            "windows": windows}, fault, at


COUNTED = replace(ROOM, expected=expect_events)


def agree_with_the_reference(streams, check=True):
    many_streams.agree_with_the_reference(
        [COUNTED], streams, check, outermost=lambda raw: reference.frames(raw, False))


def agree_and_end_well(streams, check):
    streams = list(streams)
    agree_with_the_reference(streams, check)
    many_streams.end_well(ROOM, streams, check)


@every_stream
@checked
def test_every_byte(raw, check):
    def values(old):
        return {0, 1, 0x7F, 0x80, 0xFF, *b"12WADJC", old ^ 0x10}
    agree_and_end_well(many_streams.replace_bytes(raw, values), check)


@checked
def test_every_byte_of_what_is_inflated(check):
    plain = window(2) + data(1, [(b"k", b"v")]) + json(2)

    def values(old):
        return {0, 1, 0x80, 0xFF, *b"12WADJC", old ^ 0x10}
    streams = [compressed(damaged) + json(3) for damaged in many_streams.replace_bytes(plain, values)]
    agree_with_the_reference(streams, check)
    for damaged in streams:
        laws.covers_every_byte(ROOM, damaged, check)
        laws.modes_agree(ROOM, damaged, check)


def test_cut_at_each_byte():
    whole, ends = laws.meaning(wirescan.scan(ALL, "lumberjack.pairs")), [0]
    for size in lumberjack.scan(ALL)["size"].tolist():
        ends.append(ends[-1] + size)
    agree_with_the_reference([ALL[:cut] for cut in range(len(ALL))])
    for cut in range(len(ALL)):
        table = wirescan.scan(ALL[:cut], "lumberjack.pairs")
        assert laws.meaning(table) == whole[:len(table)]
        stop = laws.tables_of(table)[0].stop
        assert stop[:2] == (Fault.OK if cut in ends else Fault.SHORT, max(end for end in ends if end <= cut))


@checked
def test_what_is_inflated_cut_at_each_byte(check):
    """The frames before the cut are kept, and one row says that something is missing."""
    plain = window(3) + data(1, [(b"k", b"v")]) + json(2) + json(3)
    ends = [len(window(3)), len(window(3) + data(1, [(b"k", b"v")])), len(plain) - len(json(3)), len(plain)]
    agree_with_the_reference([compressed(plain[:cut]) for cut in range(len(plain))], check)
    for cut in range(len(plain)):
        raw = compressed(plain[:cut])
        faults = wirescan.scan(raw, "lumberjack.events", errors="mark")["fault"].tolist()
        assert faults == [0] * sum(end <= cut for end in ends[1:]) + [Fault.TRUNCATED] * (cut not in (0, *ends))


@pytest.mark.parametrize("payload", [zlib.compress(PLAIN, 9), zlib.compress(PLAIN, 0), deflated(PLAIN, ends=False)],
                         ids=["dynamic", "stored", "flushed"])
@checked
def test_zlib_streams_cut_and_damaged_at_each_byte(payload, check):
    streams = []
    for at in range(len(payload)):
        for damaged in (payload[:at], payload[:at] + bytes([payload[at] ^ 1 << at % 8]) + payload[at + 1:]):
            streams.append(window(2) + wrapped(damaged) + json(9))
    agree_and_end_well(streams, check)
    for at in range(len(payload)):
        events = wirescan.scan(wrapped(payload[:at]), "lumberjack.events", errors="mark")
        assert events["fault"].tolist()[-1] == Fault.TRUNCATED and events["fault"].sum() == Fault.TRUNCATED


@every_stream
@checked
def test_numbers_to_extremes(raw, check):
    streams = []
    for at in numbers_in(raw):
        true, = struct.unpack_from(">I", raw, at)
        near = {true - 1, true + 1, len(raw), len(raw) - at, len(raw) - at - 4}
        for number in sorted({*EXTREMES, *(number % 2**32 for number in near)} - {true}):
            damaged = raw[:at] + struct.pack(">I", number) + raw[at + 4:]
            streams += [damaged, damaged + json(1), compressed(damaged) + json(1)]
    agree_and_end_well(streams, check)


GUARD = """
import random, sys
import numpy as np
from guard import Guarded
from strategies.lumberjack import GOLDEN, compressed, data, wrapped
from wirescan import Limits, lumberjack
from wirescan.core.loop import spans
from wirescan.lumberjack.scan import needed, unpack

chance, limits, scans = random.Random(1), Limits(), 0
room = Guarded(400)
outer = lumberjack.scan(compressed(b"")).rows.copy()
pairs = lumberjack.events(lumberjack.scan(data(1, [(b"", b"")] * 9))).rows.copy()

def opened(frames):
    for depth in (1, 2):
        lumberjack.pairs(lumberjack.events(frames, errors="mark", depth=depth), errors="mark")
    lumberjack.plain(frames, errors="mark")

def scan(raw):
    global scans
    for view in (room.at_the_end(raw), room.at_the_beginning(raw)):
        opened(lumberjack.scan(view, errors="mark"))
        needed(view)
        inside = spans(outer)                   # as if it had been inflated there
        inside["start"], inside["size"], inside["buffer"] = 0, len(raw), 0
        for events in (True, False):
            unpack(outer, (view,), np.zeros(1, np.int64), inside, False, True, events, limits)
        pairs["start"], pairs["size"], pairs["body"] = 0, len(raw), min(10, len(raw))
        lumberjack.pairs(lumberjack.FrameTable((view,), pairs, (), lumberjack.FORMATS[1]), errors="mark")
    scans += 1

for raw in GOLDEN.values():
    for cut in range(len(raw) + 1):
        scan(raw[:cut])
        for _ in range(int(sys.argv[1])):
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                damaged[chance.randrange(cut)] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, *b"12WADJC"))
            scan(bytes(damaged))
print(scans)
"""


def test_nothing_is_read_outside():
    """Every cut and some damage, against pages that cannot be read: test_guard.py proves that these bite."""
    assert scanned(GUARD, 3) > 700


@pytest.mark.slow
def test_nothing_is_read_outside_with_much_damage():
    assert scanned(GUARD, 20) > 4000


# ------------------------------------------------------------------------------------------------ memory and time

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
    "a key": (data(1, [(b"k", b"v")])[:10] + b"\x7f\xff\xff\xff" + bytes(100), "BAD_LENGTH"),
    "a window": (window(2**32 - 1) * 1000 + json(1), "1/0"),
    "a document inside": (compressed(b"2J" + bytes(4) + b"\x7f\xff\xff\xff{"), "TRUNCATED"),
    "pairs inside": (compressed(b"1D" + bytes(4) + b"\x0f\xff\xff\xff" + bytes(100)), "TRUNCATED"),
}


@pytest.fixture(scope="module")
def claims_read():
    return dict(zip(CLAIMS, in_small_rooms(CHILD, [raw for raw, _ in CLAIMS.values()], 64, 1)))


@pytest.mark.parametrize("claim", CLAIMS)
def test_nothing_is_allocated_from_a_claim(claims_read, claim):
    (_, _, strict), seconds = claims_read[claim]
    assert strict == CLAIMS[claim][1] and seconds < 2


def bomb(size):
    """The zlib stream of so many bytes of one document."""
    return zlib_with_zeros(b"2J" + bytes(4) + struct.pack(">I", size - 10), size - 10)


@pytest.mark.parametrize("depth", [1, 2])
def test_bombs_of_one_layer(depth):
    said, seconds = in_a_small_room(CHILD, wrapped(bomb(100 << 20)) + json(1), 256, depth)
    assert said == ["2/1", "1/0", "TOO_LARGE"] and seconds < 5


def test_bombs_of_two_layers():
    """300 bytes for 100 MB: refused for what lies in one another, and if that is asked for, for its size."""
    raw = compressed(wrapped(bomb(100 << 20)), level=9)
    assert len(raw) < 1000
    said, seconds = in_a_small_room(CHILD, raw + json(1), 64, 1)
    assert said == ["2/1", "1/0", "NESTED"] and seconds < 1
    said, seconds = in_a_small_room(CHILD, raw + json(1), 256, 2)
    assert said == ["2/1", "1/0", "TOO_LARGE"] and seconds < 5


def test_many_small_bombs():
    """Each is within the limits; all together are not."""
    limits = wirescan.Limits(inflated_total=10 << 20)
    frames = lumberjack.scan(wrapped(bomb(1 << 20)) * 40 + compressed(wrapped(bomb(1 << 20)) * 40))
    for depth in (1, 2):
        table = lumberjack.events(frames, errors="mark", limits=limits, depth=depth)
        assert (~table.bad).sum() == 10 and sum(map(len, table.buffers[1:])) <= 10 << 20
        assert {Fault(fault).name for fault in set(table["fault"].tolist())} <= {"OK", "TOO_LARGE", "NESTED"}


def test_rows_are_bounded_by_bytes():
    """A row of events takes 48 bytes, so they must not be cheap: six bytes is the least that one can be."""
    for plain, least in ((data(1), 10), (json(1, b""), 10), (wrapped(b""), 6), (window(9), 6)):
        count = 100_000
        table = wirescan.scan(compressed(plain * count), "lumberjack.events", errors="mark")
        assert len(table) <= count * len(plain) // least
        table = lumberjack.plain(lumberjack.scan(plain * count, errors="mark"), errors="mark")
        assert len(table) == count


TRAPS = {
    "windows": lambda size: window(2**32 - 1) * (size // 6),
    "data without pairs": lambda size: data(1) * (size // 10),
    "one data frame of empty pairs": lambda size: data(1, [(b"", b"")] * (size // 8)),
    "data frames that each claim the rest": lambda size: b"".join(
        b"1D" + bytes(4) + struct.pack(">I", (size - at) // 8) for at in range(0, size, 10)),
    "compressed of no bytes": lambda size: wrapped(b"") * (size // 6),
    "compressed of none": lambda size: compressed(b"") * (size // 14),
    "compressed that end early": lambda size: wrapped(b"\x78\x9c") * (size // 8),
    "compressed without a header": lambda size: wrapped(b"??") * (size // 8),
    "wrong checksums": lambda size: wrapped(zlib.compress(json(1))[:-1] + b"?") * (size // 26),
    "documents of no bytes": lambda size: json(1, b"") * (size // 10),
    "zeros": bytes,
    "noise": lambda size: random.Random(1).randbytes(size),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    raw = trap(1 << 19)
    start = time.process_time()
    frames = lumberjack.scan(raw, errors="mark")
    lumberjack.pairs(lumberjack.events(frames, errors="mark"), errors="mark")
    taken = time.process_time() - start
    assert taken < 2, f"{taken} seconds for half a mebibyte"
    assert sum(frames["size"].tolist()) + len(frames.tail) == len(raw)


def test_a_stream_holds_no_more_than_a_frame_may_have():
    limits = wirescan.Limits(frame=1000)
    for raw in (json(1, bytes(2000)), data(1, [(b"k", bytes(10))] * 100), wrapped(bytes(2000)),
                b"1D" + bytes(4) + struct.pack(">I", 200) + bytes(2000)):
        for size in (1, 7, 300, 5000):
            stream = wirescan.stream("lumberjack.frames", limits=limits)
            with pytest.raises(FrameError) as caught:
                for at in range(0, len(raw), size):
                    stream.feed(raw[at:at + size])
                    assert stream.held <= 1000 + size
            assert (caught.value.fault, caught.value.offset) == (Fault.BAD_LENGTH, 0)
            marked = wirescan.stream("lumberjack.frames", limits=limits, errors="mark")
            for at in range(0, len(raw), size):
                marked.feed(raw[at:at + size])
                assert marked.held <= 2 * (1000 + size)
            marked.close()
