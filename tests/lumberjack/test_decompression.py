"""Compressed frames have the same rows and faults together as one by one."""

import random
import zlib
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.cases import steady
from tests.strategies.lumberjack import make_compressed, make_json, make_window, wrap_payload
from wirescan import Fault, Limits, lumberjack
from wirescan.core import libdeflate
from wirescan.core.loop import spans
from wirescan.frames import arena
from wirescan.frames.arena import Arena
from wirescan.frames.codecs import CodecError
from wirescan.lumberjack import Kind, formats

NOISE = random.Random(5).randbytes(40_000)
DAMAGE = ("none", "none", "none", "none", "cut", "checksum", "byte", "more", "empty", "noise")


def decompress_one_by_one(rows, buffers, target, first_buffer, *, check):
    """Return what `_decompress` returns, with one call of `Arena.add_zlib` for each frame."""
    places = spans(rows)
    for place in places:
        start = int(place["start"])
        payload = buffers[place["buffer"]][start : start + int(place["size"])]
        try:
            (number, first, size), end_fault = target.add_zlib(payload, check=check)
        except CodecError as error:
            place["fault"] = error.fault
        else:
            place["buffer"] = first_buffer + number
            place["start"], place["size"], place["kind"] = first, size, end_fault
    return places


class WatchedArena(Arena):
    """An arena that the test can find again."""

    __slots__ = ()
    made: list["WatchedArena"] = []

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.made.append(self)

    def describe(self):
        """Return what the arena counted, and the sizes of its buffers."""
        capacities = [len(buffer) for buffer in self._full] + [len(self._current)]
        return self._wire, self._spent, self._wasted, self._used, capacities


def open_frames(frames, function, limits, depth, check):
    """Return everything that a user of `plain` or `events` sees, and what the arena counted."""
    WatchedArena.made.clear()
    with mock.patch.object(formats, "Arena", WatchedArena):
        table = function(frames, errors="mark", check=check, limits=limits, depth=depth)
    return table.rows, list(map(bytes, table.buffers)), WatchedArena.made[0].describe()


def compare_with_one_by_one(raw, limits, depth, check, few=0):
    frames = lumberjack.scan(raw, errors="mark")
    for function in (lumberjack.plain, lumberjack.events):
        with mock.patch.object(arena, "_FEW_STREAMS", few):
            rows, buffers, counts = open_frames(frames, function, limits, depth, check)
        with mock.patch.object(formats, "_decompress", decompress_one_by_one):
            expected = open_frames(frames, function, limits, depth, check)
        assert rows.tobytes() == expected[0].tobytes()
        assert (buffers, counts) == expected[1:]
    return rows


def damage_stream(stream, damage, at):
    at %= len(stream)
    if damage == "cut":
        return stream[:at]
    if damage == "checksum":
        return stream[:-1] + bytes([stream[-1] ^ 1])
    if damage == "byte":
        return stream[:at] + bytes([stream[at] ^ 1 << at % 8]) + stream[at + 1 :]
    if damage == "more":
        return stream + stream[: at + 1]
    return {"none": stream, "empty": b"", "noise": NOISE[at : at + 30]}[damage]


@st.composite
def windows(draw):
    """Draw windows whose frames are compressed, some of them twice or damaged."""
    frame = st.tuples(
        st.sampled_from((0, 1, 20, 300, 30_000)),  # bytes of an event
        st.integers(1, 3),  # events
        st.sampled_from((0, 1, 6)),  # level of compression
        st.sampled_from((0, 1, 1, 1, 2, 3)),  # compressed frames around them
        st.sampled_from(DAMAGE),
        st.integers(0, 100_000),
    )
    raw = b""
    for size, count, level, layers, damage, at in draw(st.lists(frame, max_size=12)):
        plain = make_json(1, b'"%s"' % NOISE[at % 100 :][:size]) * count
        for layer in range(layers):
            stream = zlib.compress(plain, level)
            is_damaged = damage != "none" and layer == at % layers
            plain = wrap_payload(damage_stream(stream, damage, at) if is_damaged else stream)
        raw += make_window(count) + plain
    return raw


LIMITS = st.builds(
    Limits,
    inflated=st.sampled_from((64 << 20, 20_000, 400)),
    inflated_total=st.sampled_from((4 << 30, 50_000, 1000)),
    ratio=st.sampled_from((1000, 2)),
    ratio_total=st.sampled_from((100, 1)),
)


@steady
@given(windows(), LIMITS, st.integers(1, 3), st.booleans(), st.booleans(), st.sampled_from((0, 3)))
def test_frames_together_and_one_by_one(raw, limits, depth, check, has_library, few):
    with mock.patch.object(libdeflate, "available", has_library and libdeflate.available):
        compare_with_one_by_one(raw, limits, depth, check, few)


def test_every_fault_among_good_frames():
    event = make_json(1, b'{"message":"hello"}')
    good = zlib.compress(event)
    nested = zlib.compress(make_compressed(event))
    bomb = zlib.compress(bytes(3 << 20), 9)
    wrong = good[:-1] + bytes([good[-1] ^ 1])
    streams = [good, good + b"!", good, good[:-2], good, wrong, b"?" + good, nested, bomb, good]
    raw = b"".join(wrap_payload(stream) for stream in streams)
    cases = {
        True: [0, 0, "LEFTOVER", 0, 0, "TRUNCATED", 0, "BAD_CHECKSUM"],
        False: [0, 0, "LEFTOVER", 0, 0, "TRUNCATED", 0, 0],
    }
    for check, expected in cases.items():
        rows = compare_with_one_by_one(raw, Limits(inflated=2 << 20), 1, check)
        faults = [fault and Fault(fault).name for fault in rows["fault"].tolist()]
        assert faults == [*expected, "BAD_COMPRESSION", "NESTED", "TOO_LARGE", 0]


def test_much_wasted_work_refuses_what_follows():
    good = make_compressed(make_json(1))
    bomb = wrap_payload(zlib.compress(bytes(8 << 20), 9))
    for limits in (Limits(inflated=4 << 20, ratio_total=1), Limits(inflated_total=9 << 20)):
        rows = compare_with_one_by_one(good + bomb * 40 + good, limits, depth=1, check=True)
        assert Fault.TOO_LARGE in rows["fault"].tolist()
    assert rows["fault"][0] == 0


@pytest.mark.skipif(not libdeflate.available, reason="libdeflate is not available")
def test_intact_frames_are_decompressed_in_one_loop():
    raw = b"".join(make_window(1) + make_compressed(make_json(1)) for _ in range(1000))
    frames = lumberjack.scan(raw)
    with mock.patch.object(Arena, "_add_zlib", side_effect=AssertionError):
        events = lumberjack.events(frames)
    assert len(events) == 1000
    assert np.all(events["kind"] == Kind.JSON)


@pytest.mark.skipif(not libdeflate.available, reason="libdeflate is not available")
@pytest.mark.parametrize("count", [3, 300])  # one by one, and in a loop
def test_libdeflate_goes_on_where_a_buffer_is_full(count):
    document = NOISE[:150] * 30  # compressed to a twentieth, so the first buffer is too small
    raw = make_compressed(make_json(1, document)) * count
    with mock.patch.object(arena, "decompress_zlib", side_effect=AssertionError):
        events = lumberjack.events(lumberjack.scan(raw))
    assert [bytes(events.bytes(i, "json")) for i in range(count)] == [document] * count
    assert len(events.buffers) > 2


@pytest.mark.skipif(not libdeflate.available, reason="libdeflate is not available")
def test_damaged_streams_reserve_little_memory():
    """Damaged streams between good ones could start one large buffer after another."""
    damaged = bytearray(zlib.compress(NOISE * 50, 1))
    damaged[-1] ^= 1
    target = Arena(Limits(ratio=1 << 20))
    for _ in range(20):
        target.add_zlib(memoryview(zlib.compress(b"good")))
        with pytest.raises(CodecError):
            target.add_zlib(memoryview(damaged))
    reserved = sum(len(memoryview(buffer.obj)) for buffer in (*target._full, target._current))
    assert reserved < 4 * 32 * len(damaged)


@pytest.mark.skipif(not libdeflate.available, reason="libdeflate is not available")
@pytest.mark.parametrize("count", [3, 30])  # one by one, and in a loop
def test_libdeflate_decompresses_frames_of_the_highest_ratio(count):
    document = bytes(4 << 20)
    raw = make_compressed(make_json(1, document)) * count
    with mock.patch.object(arena, "decompress_zlib", side_effect=AssertionError):
        events = lumberjack.events(lumberjack.scan(raw))
    assert [bytes(events.bytes(i, "json")) for i in range(count)] == [document] * count


@pytest.mark.skipif(not libdeflate.available, reason="libdeflate is not available")
def test_damaged_frames_start_few_buffers():
    stream = zlib.compress(bytes(1 << 20), 9)
    good = make_compressed(make_json(1, bytes(1000)))
    raw = (good + wrap_payload(stream[:-1] + bytes([stream[-1] ^ 1]))) * 100
    events = lumberjack.events(lumberjack.scan(raw), errors="mark")
    assert events["fault"].tolist() == [0, Fault.BAD_CHECKSUM] * 100
    assert len(events.buffers) <= 5
