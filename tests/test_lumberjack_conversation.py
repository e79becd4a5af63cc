"""Receiver and Sender of Lumberjack: windows, acks, and what each of them makes of a peer that does as it likes."""
import copy
import pickle
import struct
import tracemalloc
import zlib

import numpy as np
import pyarrow as pa
import pytest

from wirescan import Fault, FrameError, Limits, lumberjack
from wirescan.lumberjack.conversation import ConversationError, Reason, Receiver, Sender, hint

U32 = 2**32
CHUNKS = (1, 2, 7, 64, 1 << 20)


def W(count, version=b"2"):
    return version + b"W" + struct.pack(">I", count)


def J(sequence, document=b"{}", version=b"2"):
    return version + b"J" + struct.pack(">II", sequence, len(document)) + document


def D(sequence, pairs=((b"line", b"text"),), version=b"1"):
    return version + b"D" + struct.pack(">II", sequence, len(pairs)) + b"".join(
        struct.pack(">I", len(one)) + one for pair in pairs for one in pair)


def C(*frames, version=b"2", level=3):
    return packed(zlib.compress(b"".join(frames), level), version)


def packed(payload, version=b"2"):
    return version + b"C" + struct.pack(">I", len(payload)) + payload


def A(sequence, version=b"2"):
    return version + b"A" + struct.pack(">I", sequence)


def deflated(frames, bits=15, end=zlib.Z_FINISH, **options):
    packer = zlib.compressobj(3, wbits=bits, **options)
    return packer.compress(frames) + packer.flush(end)


def pieces(raw, size):
    return [raw[at:at + size] for at in range(0, len(raw), size)]


def received(raw, size=1 << 20, **options):
    """The windows of a stream that comes in chunks of this size, and its Receiver."""
    receiver = Receiver(**options)
    return [window for chunk in pieces(raw, size) for window in receiver.receive(chunk)], receiver


def told(windows):
    for events in (window.events for window in windows):
        numbers = [int.from_bytes(events.frame(row)[2:6], "big") for row in range(len(events))]
        assert numbers == events["sequence"].tolist()
    return [(window.count, window.events["sequence"].tolist(), window.last) for window in windows]


def raw_of(windows):
    return b"".join(view for window in windows for view in window.raw)


# ---------------------------------------------------------------------------- what all readers take

GOOD = {
    "plain": (W(2) + J(1) + J(2), [(2, [1, 2], 2)]),
    "compressed": (W(2) + C(J(1), J(2)), [(2, [1, 2], 2)]),
    "stored": (W(1) + C(J(1), level=0), [(1, [1], 1)]),
    "two in flight": (W(2) + J(1) + J(2) + W(1) + J(1), [(2, [1, 2], 2), (1, [1], 1)]),
    "numbers that run on": (W(2) + C(J(7), J(8)) + W(1) + C(J(9)), [(2, [7, 8], 8), (1, [9], 9)]),
    "version 1": (W(2, b"1") + D(1) + D(2), [(2, [1, 2], 2)]),
    "version 1, compressed": (W(2, b"1") + C(D(1), D(2), version=b"1"), [(2, [1, 2], 2)]),
    "W(0)": (W(0) + W(1) + J(1) + W(0), [(0, [], 0), (1, [1], 1), (0, [], 0)]),
    "an object behind blanks": (W(1) + J(1, b" \r\n\t {}"), [(1, [1], 1)]),
    "out of order": (W(3) + J(2) + J(3) + J(1), [(3, [2, 3, 1], 3)]),
}


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", GOOD)
def test_what_all_take(name, strict, size):
    raw, expected = GOOD[name]
    windows, receiver = received(raw, size, strict=strict)
    assert told(windows) == expected and all(window.complete for window in windows)
    assert raw_of(windows) == raw and receiver.held == 0 and receiver.unacknowledged == len(windows)
    for window in windows:
        assert not window.events.bad.any() and set(window.events["window"]) <= {0}
        assert set(window.events["parent"]) <= {-1} and window.version == raw[0] - ord("0")
        assert receiver.acknowledge(window) == A(window.last, raw[:1])
    assert receiver.unacknowledged == 0 and receiver.close() is None


# ---------------------------------------------------------------------------- on what they disagree

# what comes -> the reason of a strict receiver, what a lenient one makes of it
ODD = {
    "a short window": (W(3) + J(1) + J(2) + W(1) + J(1), Reason.SHORT_WINDOW, [(3, [1, 2], 2), (1, [1], 1)]),
    "a window without events": (W(3) + W(1) + J(1), Reason.SHORT_WINDOW, [(1, [1], 1)]),
    "a short window before W(0)": (W(3) + J(1) + W(0), Reason.SHORT_WINDOW, [(3, [1], 1), (0, [], 0)]),
    "surplus events": (W(1) + J(1) + J(2) + J(3) + W(1) + J(1), Reason.SURPLUS_EVENT,
                       [(1, [1], 1), (-1, [2, 3], 3), (1, [1], 1)]),
    "surplus events in one C": (W(2) + C(J(1), J(2), J(3)), Reason.SURPLUS_EVENT, [(2, [1, 2], 2), (-1, [3], 3)]),
    "no window": (J(1) + J(2), Reason.NO_WINDOW, [(-1, [1, 2], 2)]),
    "no window, version 1": (D(1) + D(2), Reason.NO_WINDOW, [(-1, [1, 2], 2)]),
    "a window of 10,001": (W(10_001), Reason.LARGE_WINDOW, []),
    "a window of 2**32 - 1": (W(U32 - 1), Reason.LARGE_WINDOW, []),
    "several C": (W(3) + C(J(1), J(2)) + C(J(3)), Reason.SPLIT_WINDOW, [(3, [1, 2, 3], 3)]),
    "plain and C": (W(2) + J(1) + C(J(2)), Reason.SPLIT_WINDOW, [(2, [1, 2], 2)]),
    "C and plain": (W(2) + C(J(1)) + J(2), Reason.SPLIT_WINDOW, [(2, [1, 2], 2)]),
    "W in a C": (C(W(2), J(1), J(2)), Reason.WINDOW_INSIDE, [(2, [1, 2], 2)]),
    "two windows in a C": (C(W(2), J(1), J(2), W(1), J(1)), Reason.WINDOW_INSIDE, [(2, [1, 2], 2), (1, [1], 1)]),
    "a window that ends in the C of the next": (
        C(W(3), J(1)) + C(J(2), W(1), J(1)) + W(0), Reason.WINDOW_INSIDE, [(3, [1, 2], 2), (1, [1], 1), (0, [], 0)]),
    "1J": (W(1, b"1") + J(1, version=b"1"), Reason.WRONG_VERSION, [(1, [1], 1)]),
    "2D": (W(1) + D(1, version=b"2"), Reason.WRONG_VERSION, [(1, [1], 1)]),
    "1D under 2W": (W(1) + D(1), Reason.MIXED_VERSIONS, [(1, [1], 1)]),
    "1C under 2W": (W(1) + C(J(1), version=b"1"), Reason.MIXED_VERSIONS, [(1, [1], 1)]),
    "the version changes": (W(1) + J(1) + W(1, b"1") + D(1), Reason.MIXED_VERSIONS, [(1, [1], 1), (1, [1], 1)]),
    "a large sequence": (W(2) + J(2**31 - 1) + J(2**31), Reason.LARGE_SEQUENCE, [(2, [2**31 - 1, 2**31], 2**31)]),
    "roll-over to 0": (W(3) + J(U32 - 1) + J(0) + J(1), Reason.LARGE_SEQUENCE, [(3, [U32 - 1, 0, 1], 1)]),
    "roll-over to 1": (W(2) + J(U32 - 1) + J(1), Reason.LARGE_SEQUENCE, [(2, [U32 - 1, 1], 1)]),
    "no pairs": (W(1, b"1") + D(1, ()), Reason.NO_PAIRS, [(1, [1], 1)]),
    "an array": (W(1) + J(1, b"[1]"), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "a scalar": (W(1) + C(J(1, b" 7")), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "blanks": (W(1) + J(1, b"  "), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "no Adler-32": (W(1) + packed(zlib.compress(J(1))[:-4]), Reason.CUT_PAYLOAD, [(1, [1], 1)]),
    "half an Adler-32": (W(1) + packed(zlib.compress(J(1))[:-2]), Reason.CUT_PAYLOAD, [(1, [1], 1)]),
    "no final block": (W(1) + packed(deflated(J(1), end=zlib.Z_SYNC_FLUSH)), Reason.CUT_PAYLOAD, [(1, [1], 1)]),
    "C of no bytes": (W(1) + packed(b"") + J(1), Reason.CUT_PAYLOAD, [(1, [1], 1)]),
    "garbage behind it": (W(1) + packed(zlib.compress(J(1)) + b"garbage"), Reason.LONG_PAYLOAD, [(1, [1], 1)]),
    "two zlib streams": (W(2) + packed(zlib.compress(J(1)) + zlib.compress(J(2))) + J(2), Reason.LONG_PAYLOAD,
                         [(2, [1, 2], 2)]),
    "an empty C behind W(0)": (W(0) + C() + W(1) + J(1), Reason.EMPTY_PAYLOAD, [(0, [], 0), (1, [1], 1)]),
    "an ack": (W(1) + A(0) + J(1) + A(5), Reason.ACK_FROM_WRITER, [(1, [1], 1)]),
    "an ack in a C": (W(1) + C(A(0), J(1)), Reason.ACK_FROM_WRITER, [(1, [1], 1)]),
}


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("name", ODD)
def test_strict_names_the_reason(name, size):
    raw, reason, _ = ODD[name]
    with pytest.raises(ConversationError) as caught:
        received(raw, size, strict=True)
    error = caught.value
    assert error.reason is reason and error.fault == reason.fault and reason.name in str(error)
    assert reason.meaning in str(error) and raw[error.offset:error.offset + 2].strip(b"WJDCA") in (b"1", b"2")
    assert str(copy.copy(error)) == str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("name", ODD)
def test_lenient_takes_what_any_reader_takes(name):
    raw, _, expected = ODD[name]
    windows, receiver = received(raw)
    assert told(windows) == expected and all(window.complete for window in windows)
    assert not any(window.events.bad.any() for window in windows)
    for window in windows:
        assert receiver.acknowledge(window)[1:] == A(window.last)[1:]
    assert receiver.close() is None


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("name", ODD)
def test_lenient_in_any_chunks(name, size):
    """Events that no window announced come as their chunks do, all else as in one piece."""
    raw, _, expected = ODD[name]
    windows, _ = received(raw, size)
    assert [one for one in told(windows) if one[0] >= 0] == [one for one in expected if one[0] >= 0]
    assert [n for one in told(windows) for n in one[1]] == [n for one in expected for n in one[1]]
    assert told(windows)[-1:] == expected[-1:] or windows[-1].last == expected[-1][2]
    left_out = {"a window without events": W(3), "an empty C behind W(0)": C(), "an ack": A(5)}.get(name, b"")
    assert raw_of(windows) == (raw.replace(left_out, b"") if expected else b"")


def test_surplus_events_behind_a_window_of_two_chunks():
    receiver = Receiver()
    assert receiver.receive(W(2) + J(1)) == []
    assert told(receiver.receive(J(2) + J(3) + J(4))) == [(2, [1, 2], 2), (-1, [3, 4], 4)]


def test_every_reason_is_tested():
    senders = {Reason.NOT_AN_ACK, Reason.ACK_BEYOND}
    assert {reason for _, reason, _ in ODD.values()} | senders == set(Reason)


def test_strict_takes_windows_up_to_its_limit():
    assert received(W(10_000), strict=True)[1].held == 6
    assert received(W(20_000), strict=True, largest_window=20_000)[1].held == 6
    with pytest.raises(ConversationError, match="LARGE_WINDOW"):
        received(W(3), strict=True, largest_window=2)


# ---------------------------------------------------------------------------- what none of them takes

BAD = {
    "a type that is none": (W(1) + b"2X\0\0\0\0", Fault.NOT_A_FRAME),
    "a version that is none": (W(1) + b"3W\0\0\0\0", Fault.NOT_A_FRAME),
    "J of no bytes": (W(1) + J(1, b""), Fault.EMPTY),
    "J of 2**32 - 1 bytes": (W(1) + b"2J\0\0\0\1\xff\xff\xff\xff", Fault.BAD_LENGTH),
    "C of 2**32 - 1 bytes": (W(1) + b"2C\xff\xff\xff\xff", Fault.BAD_LENGTH),
    "D of 2**32 - 1 pairs": (W(1) + b"1D\0\0\0\1\xff\xff\xff\xff", Fault.BAD_LENGTH),
    "a key of 2**32 - 1 bytes": (W(1) + b"1D\0\0\0\1\0\0\0\1\xff\xff\xff\xff", Fault.BAD_LENGTH),
    "above the limit on frames": (W(1) + b"2J\0\0\0\1" + struct.pack(">I", Limits().frame), Fault.BAD_LENGTH),
    "gzip": (W(1) + packed(deflated(J(1), 31)), Fault.BAD_COMPRESSION),
    "raw deflate": (W(1) + packed(deflated(J(1), -15)), Fault.BAD_COMPRESSION),
    "a dictionary": (W(1) + packed(deflated(J(1), zdict=b"{}")), Fault.BAD_COMPRESSION),
    "a wrong Adler-32": (W(1) + packed(zlib.compress(J(1))[:-1] + b"\xff"), Fault.BAD_CHECKSUM),
    "a cut frame in a C": (W(1) + C(J(1)[:-1]), Fault.TRUNCATED),
    "no frame in a C": (W(1) + C(J(1), b"garbage"), Fault.NOT_A_FRAME),
    "a C in a C": (W(1) + C(C(J(1))), Fault.NESTED),
}


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_what_none_takes(name, strict, size):
    raw, fault = BAD[name]
    receiver = Receiver(strict=strict)
    with pytest.raises(FrameError) as caught:
        for chunk in pieces(raw, size):
            assert receiver.receive(chunk) == []
    payload = fault in (Fault.BAD_COMPRESSION, Fault.BAD_CHECKSUM)
    assert caught.value.fault == fault and caught.value.offset == 6 + 6 * payload and caught.value.reason is None
    with pytest.raises(ConversationError) as again:
        receiver.receive(W(1))
    assert str(again.value) == str(caught.value) and receiver.held == 0
    assert receiver.unacknowledged == 0 and receiver.close() is None and receiver.keep_alive() == b""


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_depth(depth):
    frame = J(1)
    for _ in range(depth):
        frame = C(frame)
    assert told(received(W(1) + frame, depth=depth)[0]) == [(1, [1], 1)]
    assert told(received(W(1) + frame, depth=depth, strict=True)[0]) == [(1, [1], 1)]
    with pytest.raises(FrameError) as caught:
        received(W(1) + C(frame), depth=depth)
    assert caught.value.fault == Fault.NESTED


def test_windows_before_bad_bytes_stay_in_their_places():
    receiver = Receiver()
    first, = receiver.receive(W(1) + J(1))
    with pytest.raises(FrameError):
        receiver.receive(W(1) + J(1) + b"nonsense")
    assert receiver.unacknowledged == 1 and receiver.acknowledge(first) == A(1)


# ---------------------------------------------------------------------------- acks

def test_acks_are_in_order_and_each_once():
    (one, two), receiver = received(W(1) + J(1) + W(2) + J(1) + J(2))
    with pytest.raises(ValueError, match="in the order"):
        receiver.acknowledge(two)
    assert receiver.acknowledge(one) == A(1)
    with pytest.raises(ValueError, match="each once"):
        receiver.acknowledge(one)
    assert receiver.acknowledge(two) == A(2)
    other, = received(W(1) + J(1))[0]
    with pytest.raises(ValueError):
        receiver.acknowledge(other)


def test_partial_acks():
    (one,), receiver = received(W(4) + b"".join(J(n) for n in (U32 - 1, 0, 1, 2)))
    assert [receiver.acknowledge(one, 1), receiver.acknowledge(one, 3)] == [A(U32 - 1), A(1)]
    for count in (3, 2, 0, -1, 5):
        with pytest.raises(ValueError, match="acknowledged before: 3"):
            receiver.acknowledge(one, count)
    assert receiver.unacknowledged == 1 and receiver.acknowledge(one, 4) == A(2) and receiver.unacknowledged == 0
    (one, two), receiver = received(W(2) + J(1) + J(2) + W(2) + J(1) + J(2))
    assert receiver.acknowledge(one, 1) + receiver.acknowledge(one) + receiver.acknowledge(two, 1) == A(1) + A(2) + A(1)


def test_version_1_has_no_partial_acks():
    (one,), receiver = received(W(2, b"1") + D(1) + D(2))
    with pytest.raises(ValueError, match="version 1"):
        receiver.acknowledge(one, 1)
    assert receiver.acknowledge(one, 2) == A(2, b"1")


def test_keep_alive():
    receiver = Receiver()
    assert receiver.keep_alive() == b""
    receiver.receive(W(2) + J(1))
    assert receiver.keep_alive() == A(0)
    window, = receiver.receive(J(2))
    assert receiver.keep_alive() == A(0)
    receiver.acknowledge(window)
    assert receiver.keep_alive() == b""
    for raw in (W(2, b"1") + D(1), W(1, b"1") + D(1), W(1) + J(1) + W(1, b"1"), W(1, b"1") + D(1) + W(1)):
        assert received(raw)[1].keep_alive() == b"", "a writer of version 1 may take any ack for its own"


def test_a_part_of_a_window():
    receiver = Receiver()
    assert receiver.flush() is None and receiver.receive(W(5) + J(1) + J(2)) == []
    part = receiver.flush()
    assert told([part]) == [(5, [1, 2], 2)] and not part.complete and bytes(part.raw[0]) == W(5) + J(1) + J(2)
    assert receiver.flush() is None and receiver.held == 0
    rest, = receiver.receive(J(3) + J(4) + J(5))
    assert told([rest]) == [(5, [3, 4, 5], 5)] and rest.complete
    assert receiver.acknowledge(part) + receiver.acknowledge(rest) == A(2) + A(5)


def test_the_last_part_acknowledges_the_others():
    receiver = Receiver()
    receiver.receive(W(4) + J(1))
    receiver.flush()
    receiver.receive(J(4) + J(2))
    part = receiver.flush()
    assert receiver.acknowledge(part, 1) == A(4)
    rest, = receiver.receive(J(3))
    assert rest.last == 4, "the highest of the whole window"
    assert receiver.acknowledge(rest) == b"" and receiver.unacknowledged == 0, "which was said"
    window, = receiver.receive(W(4) + J(1) + J(2) + J(3) + J(4))
    assert receiver.acknowledge(window) == A(4)


def test_parts_that_are_not_acknowledged_are_left_to_the_last():
    receiver = Receiver()
    receiver.receive(W(3) + J(1))
    receiver.flush()
    receiver.receive(J(2))
    receiver.flush()
    rest, = receiver.receive(W(0))[:1]
    assert told([rest]) == [(3, [], 2)] and receiver.acknowledge(rest) == A(2)
    receiver.receive(W(3) + J(1))
    assert receiver.unacknowledged == 1 and receiver.flush() is not None


def test_a_part_in_version_1_is_not_acknowledged():
    receiver = Receiver()
    receiver.receive(W(2, b"1") + D(1))
    part = receiver.flush()
    assert receiver.acknowledge(part) == b"" and receiver.unacknowledged == 0
    rest, = receiver.receive(D(2))
    assert receiver.acknowledge(rest) == A(2, b"1")


def test_an_ack_is_not_repeated():
    """The writer would take it for one of its next window."""
    receiver = Receiver()
    receiver.receive(W(3) + J(1))
    part = receiver.flush()
    assert receiver.acknowledge(part) == A(1)
    end, window = receiver.receive(W(2) + J(1) + J(2))
    assert told([end]) == [(3, [], 1)] and receiver.acknowledge(end) == b""
    assert receiver.acknowledge(window, 1) + receiver.acknowledge(window) == A(1) + A(2)


def test_a_short_window_of_which_all_was_given_out():
    receiver = Receiver()
    receiver.receive(W(2, b"1") + D(1))
    part = receiver.flush()
    end, = receiver.receive(W(1, b"1"))
    assert told([end]) == [(2, [], 1)] and end.complete
    assert receiver.acknowledge(part) + receiver.acknowledge(end) == A(1, b"1")


def test_what_a_closed_connection_leaves():
    receiver = Receiver()
    whole, = receiver.receive(W(1) + J(1) + W(3) + J(1) + J(2)[:-1])
    left = receiver.close()
    assert told([left]) == [(3, [1], 1)] and not left.complete and bytes(left.raw[0]) == W(3) + J(1)
    assert receiver.acknowledge(whole) == A(1), "the writer may still read"
    assert receiver.acknowledge(left) == b""
    assert receiver.close() is None and receiver.held == 0
    with pytest.raises(ValueError, match="closed"):
        receiver.receive(b"")


# ---------------------------------------------------------------------------- bytes and bounds

def test_nothing_is_copied():
    chunk = W(2) + J(1, b'{"a":1}') + J(2) + W(1) + C(J(1))
    one, two = Receiver().receive(chunk)
    assert one.raw[0].obj is chunk and one.events.buffers[0].obj is chunk and two.raw[0].obj is chunk
    assert bytes(one.events.bytes(0, "json")) == b'{"a":1}' and len(one.raw) == len(two.raw) == 1
    assert [row.json for row in two.events] == [b"{}"]


def test_a_compressed_frame_belongs_to_one_window():
    raw = C(W(2), J(1), J(2), W(1), J(1), W(2), J(1)) + C(J(2)) + W(1) + J(1)
    windows, _ = received(raw)
    assert [sum(map(len, window.raw)) for window in windows] == [len(raw) - 12 - 6 - len(C(J(2))), 0, len(C(J(2))), 18]
    assert raw_of(windows) == raw
    first, second = C(W(3), J(1), W(1), J(1)), C(W(2), J(1))
    windows, _ = received(first + second + W(1) + J(1))
    assert [b"".join(window.raw) for window in windows] == [first, b"", second, W(1) + J(1)]


@pytest.mark.parametrize("version, frame", [(b"2", J(1, b'{"x":"%s"}' % (b"y" * 1000))), (b"1", D(1, ()))])
@pytest.mark.parametrize("strict", [False, True])
def test_a_window_without_end_takes_bounded_memory(version, frame, strict):
    if strict and version == b"1":
        frame = D(1)
    receiver = Receiver(window_bytes=1 << 18, strict=strict, largest_window=U32)
    receiver.receive(W(U32 - 1, version))
    chunk, have = frame * ((1 << 16) // len(frame)), 0
    tracemalloc.start()
    try:
        for _ in range(100):
            for part in receiver.receive(chunk):
                assert not part.complete and part.size < 8 << 18
                receiver.acknowledge(part)
                have += len(part.events)
            assert receiver.held <= 1 << 18
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    left = receiver.close()
    assert have + (0 if left is None else len(left.events)) == 100 * len(chunk) // len(frame) and peak < 4 << 20


def test_a_window_that_dribbles_takes_bounded_memory():
    receiver = Receiver(strict=True)
    assert receiver.receive(W(5000, b"1")) == []
    parts = [window for n in range(1, 5001) for window in receiver.receive(D(n))]
    assert [len(part.events) for part in parts] == [1024, 1024, 1024, 1024, 904] and parts[-1].last == 5000
    assert [part.complete for part in parts] == [False] * 4 + [True]
    assert b"".join(map(receiver.acknowledge, parts)) == A(5000, b"1")


def test_what_is_no_event_is_not_kept():
    receiver = Receiver(window_bytes=1000)
    receiver.receive(W(2))
    for _ in range(100):
        assert receiver.receive(A(0) * 50) == [] and receiver.held <= 1000
    assert told(receiver.receive(J(1) + J(2))) == [(2, [1, 2], 2)]


def test_bombs_are_refused():
    zeros = J(1, b" " * (32 << 20))
    for raw in (C(zeros), C(C(zeros)), C(zeros[:16 << 20]) * 3):
        receiver = Receiver(depth=2, limits=Limits(inflated=20 << 20), window_bytes=24 << 20)
        tracemalloc.start()
        try:
            with pytest.raises(FrameError) as caught:
                receiver.receive(W(3) + raw)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert caught.value.fault in (Fault.TOO_LARGE, Fault.TRUNCATED) and peak < 100 << 20 and receiver.held == 0


# ---------------------------------------------------------------------------- hints

HINTS = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"), (b"\x15\x03\x03\x00\x02\x02\x46", "alert of TLS"),
    (b"GET / HTTP/1.1\r\nHost: x\r\n", "HTTP"), (b"POST /_bulk HTTP/1.1\r\n", "HTTP"), (b"HTTP/1.1 400 Bad", "HTTP"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"), (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "PROXY"),
    (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "PROXY"), (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    (b"<34>Oct 11 22:14:15 host", "syslog"),
    (b"123 <34>1 2003-10-11T22:14:15", "syslog"), (b'{"message":"x"}\n', "JSON"), (b'[{"message":"x"}]', "JSON"),
]


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("data, word", HINTS)
def test_hints(data, word, size):
    assert word in hint(data)
    with pytest.raises(ConversationError) as caught:
        received(data, size)
    if size > 4:
        assert caught.value.hint == hint(data) and str(caught.value).endswith("; " + hint(data))


def test_a_first_byte_may_be_enough():
    for byte, word in (b"\x16", "TLS"), (b"G", "HTTP"), (b"S", "SSH"), (b"<", "syslog"), (b"{", "JSON"):
        assert word in hint(byte)
    assert hint(b"") == hint(b"\0") == hint(W(1)) == hint(b"hello") == ""
    with pytest.raises(ConversationError) as caught:
        received(W(1) + b"GET / HTTP/1.1")
    assert caught.value.hint == "", "it did speak Lumberjack before"


# ---------------------------------------------------------------------------- the sender

EVENTS = [{"n": n} for n in range(5)]


def test_a_sender_waits_when_its_windows_are_in_flight():
    sender = Sender(window=5)
    first, _ = sender.send(EVENTS), sender.send(EVENTS[:2])
    assert not sender.ready and sender.unacknowledged == 7
    with pytest.raises(ValueError, match="2 windows wait"):
        sender.send(EVENTS)
    assert bytes(first) == W(5) + b"".join(J(n + 1, b'{"n":%d}' % n) for n in range(5))
    assert sender.receive(A(0) + A(0)) == 0 and not sender.ready
    assert sender.receive(A(3)) == 3 and sender.receive(A(2)) == 0 and sender.unacknowledged == 4
    assert sender.receive(A(5) + A(1)[:3]) == 2 and sender.ready and sender.receive(A(1)[3:]) == 1
    assert sender.receive(A(2)) == 1 and sender.unacknowledged == 0 and sender.resend() == b""


def test_a_sender_sends_again_what_was_not_acknowledged():
    sender = Sender(window=5)
    sender.send(EVENTS), sender.send(EVENTS[:2])
    sender.receive(A(3) + A(5)[:2])
    again = W(2) + J(1, b'{"n":3}') + J(2, b'{"n":4}') + W(2) + J(1, b'{"n":0}') + J(2, b'{"n":1}')
    assert sender.resend() == again and sender.resend() == again and sender.unacknowledged == 4
    assert sender.receive(A(2) + A(2)) == 4


@pytest.mark.parametrize("raw, reason, counted", [
    (A(6), Reason.ACK_BEYOND, 0), (A(5) + A(3), Reason.ACK_BEYOND, 5), (A(5) + A(2) + A(1), Reason.ACK_BEYOND, 7),
    (A(1) + W(5), Reason.NOT_AN_ACK, 1), (b"\x15\x03\x03\0\2\2\x46", Reason.NOT_AN_ACK, 0),
    (b"2X", Reason.NOT_AN_ACK, 0), (b"H", Reason.NOT_AN_ACK, 0)])
def test_answers_that_are_wrong(raw, reason, counted):
    sender = Sender()
    sender.send(EVENTS), sender.send(EVENTS[:2])
    with pytest.raises(ConversationError) as caught:
        sender.receive(raw)
    error = caught.value
    assert error.reason is reason and sender.unacknowledged == 7 - counted
    assert error.offset == {0: 0, 1: 6, 5: 6, 7: 12}[counted] and error.row == error.offset // 6
    assert ("TLS" in str(error)) == (raw[0] == 0x15) and ("HTTP" in str(error)) == (raw == b"H")
    with pytest.raises(ConversationError):
        sender.receive(b"")
    assert (sender.resend() != b"") == (counted < 7) and sender.receive(A(0)) == 0, "a new connection"


def test_keep_alives_of_another_version():
    sender = Sender(version=1)
    assert bytes(sender.send([{"line": "x"}])) == W(1, b"1") + D(1, [(b"line", b"x")])
    assert sender.receive(A(0, b"2") + A(1, b"1")) == 1


TABLE = lumberjack.events(lumberjack.scan(W(3) + C(J(7, b'{"n":0}'), J(8, b'{"n":1}')) + D(9, version=b"2")))
SAME = [{"n": 0}, b'{"n":1}', '{"n":2}']


@pytest.mark.parametrize("events", [
    SAME, tuple(SAME), iter(SAME), pa.array([b'{"n":0}', b'{"n":1}', b'{"n":2}']),
    pa.chunked_array([['{"n":0}'], ['{"n":1}', '{"n":2}']]), np.array([b'{"n":0}', b'{"n":1}', b'{"n":2}'])])
def test_what_a_sender_takes(events):
    sender = Sender(level=3)
    window, = Receiver(strict=True).receive(bytes(sender.send(events)))
    assert [bytes(row.json) for row in window.events] == [b'{"n":%d}' % n for n in range(3)]
    sender.receive(A(1))
    window, = Receiver(strict=True).receive(sender.resend())
    assert [bytes(row.json) for row in window.events] == [b'{"n":%d}' % n for n in (1, 2)]


def test_a_sender_takes_events_that_were_received():
    sender = Sender()
    assert bytes(sender.send(TABLE)) == W(3) + J(1, b'{"n":0}') + J(2, b'{"n":1}') + D(3, version=b"2")
    sender.receive(A(2))
    assert sender.resend() == W(1) + D(1, version=b"2")


@pytest.mark.parametrize("options, error", [
    ({"version": 3}, ValueError), ({"version": "2"}, TypeError), ({"window": 0}, ValueError),
    ({"window": "5"}, TypeError),
    ({"pipelining": 0}, ValueError), ({"level": 10}, ValueError), ({"level": "3"}, TypeError),
    ({"frames": "xml"}, ValueError)])
def test_options_that_are_none(options, error):
    with pytest.raises(error):
        Sender(**options)


@pytest.mark.parametrize("events, error", [
    ([], ValueError), (EVENTS * 3, ValueError), (b"{}", TypeError), ({"n": 1}, TypeError), (7, TypeError),
    ("{}", TypeError), ([{}, 7], TypeError), ([b""], ValueError), (TABLE[:0], ValueError),
    (pa.array([None, b"{}"]), ValueError),
    (lumberjack.scan(W(1)), TypeError), (np.arange(3), TypeError)])
def test_events_that_are_none(events, error):
    sender = Sender(window=10)
    with pytest.raises(error):
        sender.send(events)
    assert sender.ready and sender.unacknowledged == 0


def test_an_array_has_no_data_frames():
    for options in ({"version": 1}, {"frames": "data"}):
        with pytest.raises(TypeError, match="no data frames"):
            Sender(**options).send(pa.array([b"{}"]))
    assert bytes(Sender(version=1, frames="json").send(pa.array([b"{}"]))) == W(1, b"1") + J(1, version=b"1")


def test_inflated_events_count_for_the_bound_of_a_window():
    receiver = Receiver(window_bytes=1 << 18)
    receiver.receive(W(U32 - 1))
    inflated = J(1, b'{"x":"%s"}' % (b"y" * 20_000)) * 4
    parts = [part for _ in range(40) for part in receiver.receive(C(inflated))]
    assert len(parts) >= 40 * len(inflated) // (2 << 18)
    assert all(not part.complete and part.size > 1 << 18 for part in parts)
