"""Lumberjack's Receiver and Sender: windows, acks, and peers that break the protocol."""

import copy
import pickle
import random
import struct
import tracemalloc
import zlib

import numpy as np
import pyarrow as pa
import pytest

from wirescan import Fault, FrameError, Limits, lumberjack
from wirescan.lumberjack.live.conversation_errors import ConversationError, Reason, guess_protocol
from wirescan.lumberjack.live.receiver import Receiver
from wirescan.lumberjack.live.sender import Sender

U32 = 2**32
CHUNKS = (1, 2, 7, 64, 1 << 20)


def W(count, version=b"2"):
    return version + b"W" + struct.pack(">I", count)


def J(sequence, document=b"{}", version=b"2"):
    return version + b"J" + struct.pack(">II", sequence, len(document)) + document


def D(sequence, pairs=((b"line", b"text"),), version=b"1"):
    header = version + b"D" + struct.pack(">II", sequence, len(pairs))
    strings = [string for pair in pairs for string in pair]
    return header + b"".join(struct.pack(">I", len(string)) + string for string in strings)


def C(*frames, version=b"2", level=3):
    return wrap(zlib.compress(b"".join(frames), level), version)


def wrap(payload, version=b"2"):
    return version + b"C" + struct.pack(">I", len(payload)) + payload


def A(sequence, version=b"2"):
    return version + b"A" + struct.pack(">I", sequence)


def deflate(frames, bits=15, end=zlib.Z_FINISH, **options):
    packer = zlib.compressobj(3, wbits=bits, **options)
    return packer.compress(frames) + packer.flush(end)


def split(raw, size):
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def receive_all(raw, size=1 << 20, **options):
    """Pass a stream to a new Receiver in chunks of `size` bytes; return (windows, receiver)."""
    receiver = Receiver(**options)
    windows = [window for chunk in split(raw, size) for window in receiver.receive(chunk)]
    return windows, receiver


def describe(windows):
    """Return (count, sequence numbers, last) of each window, as its frames have them."""
    for window in windows:
        events = window.events
        numbers = [int.from_bytes(events.frame(row)[2:6], "big") for row in range(len(events))]
        assert numbers == events["sequence"].tolist()
    return [(window.count, window.events["sequence"].tolist(), window.last) for window in windows]


def join_windows(windows):
    return b"".join(view for window in windows for view in window.raw)


# ---- streams that all readers accept

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
def test_all_readers_accept_valid_streams(name, strict, size):
    raw, expected = GOOD[name]
    windows, receiver = receive_all(raw, size, strict=strict)
    assert describe(windows) == expected
    assert all(window.complete for window in windows)
    assert join_windows(windows) == raw
    assert receiver.held == 0
    assert receiver.unacknowledged == len(windows)
    for window in windows:
        assert not window.events.bad.any()
        assert set(window.events["window"]) <= {0}
        assert set(window.events["parent"]) <= {-1}
        assert window.version == raw[0] - ord("0")
        assert receiver.acknowledge(window) == A(window.last, raw[:1])
    assert receiver.unacknowledged == 0
    assert receiver.close() is None


# ---- streams on which readers disagree

# name: (stream, reason that a strict receiver gives, windows that a lenient receiver returns)
ODD = {
    "a short window": (
        W(3) + J(1) + J(2) + W(1) + J(1),
        Reason.SHORT_WINDOW,
        [(3, [1, 2], 2), (1, [1], 1)],
    ),
    "a window without events": (W(3) + W(1) + J(1), Reason.SHORT_WINDOW, [(1, [1], 1)]),
    "a short window before W(0)": (
        W(3) + J(1) + W(0),
        Reason.SHORT_WINDOW,
        [(3, [1], 1), (0, [], 0)],
    ),
    "surplus events": (
        W(1) + J(1) + J(2) + J(3) + W(1) + J(1),
        Reason.SURPLUS_EVENT,
        [(1, [1], 1), (-1, [2, 3], 3), (1, [1], 1)],
    ),
    "surplus events in one C": (
        W(2) + C(J(1), J(2), J(3)),
        Reason.SURPLUS_EVENT,
        [(2, [1, 2], 2), (-1, [3], 3)],
    ),
    "no window": (J(1) + J(2), Reason.NO_WINDOW, [(-1, [1, 2], 2)]),
    "no window, version 1": (D(1) + D(2), Reason.NO_WINDOW, [(-1, [1, 2], 2)]),
    "a window of 10,001": (W(10_001), Reason.LARGE_WINDOW, []),
    "a window of 2**32 - 1": (W(U32 - 1), Reason.LARGE_WINDOW, []),
    "several C": (W(3) + C(J(1), J(2)) + C(J(3)), Reason.SPLIT_WINDOW, [(3, [1, 2, 3], 3)]),
    "plain and C": (W(2) + J(1) + C(J(2)), Reason.SPLIT_WINDOW, [(2, [1, 2], 2)]),
    "C and plain": (W(2) + C(J(1)) + J(2), Reason.SPLIT_WINDOW, [(2, [1, 2], 2)]),
    "W in a C": (C(W(2), J(1), J(2)), Reason.WINDOW_INSIDE, [(2, [1, 2], 2)]),
    "two windows in a C": (
        C(W(2), J(1), J(2), W(1), J(1)),
        Reason.WINDOW_INSIDE,
        [(2, [1, 2], 2), (1, [1], 1)],
    ),
    "a window that ends in the C of the next": (
        C(W(3), J(1)) + C(J(2), W(1), J(1)) + W(0),
        Reason.WINDOW_INSIDE,
        [(3, [1, 2], 2), (1, [1], 1), (0, [], 0)],
    ),
    "1J": (W(1, b"1") + J(1, version=b"1"), Reason.WRONG_VERSION, [(1, [1], 1)]),
    "2D": (W(1) + D(1, version=b"2"), Reason.WRONG_VERSION, [(1, [1], 1)]),
    "1D under 2W": (W(1) + D(1), Reason.MIXED_VERSIONS, [(1, [1], 1)]),
    "1C under 2W": (W(1) + C(J(1), version=b"1"), Reason.MIXED_VERSIONS, [(1, [1], 1)]),
    "the version changes": (
        W(1) + J(1) + W(1, b"1") + D(1),
        Reason.MIXED_VERSIONS,
        [(1, [1], 1), (1, [1], 1)],
    ),
    "a large sequence": (
        W(2) + J(2**31 - 1) + J(2**31),
        Reason.LARGE_SEQUENCE,
        [(2, [2**31 - 1, 2**31], 2**31)],
    ),
    "roll-over to 0": (
        W(3) + J(U32 - 1) + J(0) + J(1),
        Reason.LARGE_SEQUENCE,
        [(3, [U32 - 1, 0, 1], 1)],
    ),
    "roll-over to 1": (W(2) + J(U32 - 1) + J(1), Reason.LARGE_SEQUENCE, [(2, [U32 - 1, 1], 1)]),
    "no pairs": (W(1, b"1") + D(1, ()), Reason.NO_PAIRS, [(1, [1], 1)]),
    "an array": (W(1) + J(1, b"[1]"), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "a scalar": (W(1) + C(J(1, b" 7")), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "blanks": (W(1) + J(1, b"  "), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "no JSON": (W(2) + J(1) + J(2, b"{not json"), Reason.NOT_AN_OBJECT, [(2, [1, 2], 2)]),
    "no JSON in C": (W(1) + C(J(1, b'{"a": 1,}')), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "two objects": (W(1) + J(1, b"{}{}"), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "a number that JSON has not": (W(1) + J(1, b'{"a": NaN}'), Reason.NOT_AN_OBJECT, [(1, [1], 1)]),
    "a byte outside strings that is not UTF-8": (
        W(1) + J(1, b'{"a": \xff}'),
        Reason.NOT_AN_OBJECT,
        [(1, [1], 1)],
    ),
    "an object in UTF-16": (
        W(1) + J(1, "{}".encode("utf-16-le")),
        Reason.NOT_AN_OBJECT,
        [(1, [1], 1)],
    ),
    "an object too deep to read": (
        W(1) + J(1, b'{"a":' * 9999 + b"1" + b"}" * 9999),
        Reason.NOT_AN_OBJECT,
        [(1, [1], 1)],
    ),
    "no Adler-32": (W(1) + wrap(zlib.compress(J(1))[:-4]), Reason.CUT_PAYLOAD, [(1, [1], 1)]),
    "half an Adler-32": (
        W(1) + wrap(zlib.compress(J(1))[:-2]),
        Reason.CUT_PAYLOAD,
        [(1, [1], 1)],
    ),
    "no final block": (
        W(1) + wrap(deflate(J(1), end=zlib.Z_SYNC_FLUSH)),
        Reason.CUT_PAYLOAD,
        [(1, [1], 1)],
    ),
    "C of no bytes": (W(1) + wrap(b"") + J(1), Reason.CUT_PAYLOAD, [(1, [1], 1)]),
    "garbage behind it": (
        W(1) + wrap(zlib.compress(J(1)) + b"garbage"),
        Reason.LONG_PAYLOAD,
        [(1, [1], 1)],
    ),
    "two zlib streams": (
        W(2) + wrap(zlib.compress(J(1)) + zlib.compress(J(2))) + J(2),
        Reason.LONG_PAYLOAD,
        [(2, [1, 2], 2)],
    ),
    "an empty C behind W(0)": (
        W(0) + C() + W(1) + J(1),
        Reason.EMPTY_PAYLOAD,
        [(0, [], 0), (1, [1], 1)],
    ),
    "an ack": (W(1) + A(0) + J(1) + A(5), Reason.ACK_FROM_WRITER, [(1, [1], 1)]),
    "an ack in a C": (W(1) + C(A(0), J(1)), Reason.ACK_FROM_WRITER, [(1, [1], 1)]),
}


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("name", ODD)
def test_strict_names_the_reason(name, size):
    raw, reason, _ = ODD[name]
    with pytest.raises(ConversationError) as caught:
        receive_all(raw, size, strict=True)
    error = caught.value
    assert error.reason is reason
    assert error.fault == reason.fault
    assert reason.name in str(error)
    assert reason.meaning in str(error)
    frame = raw[error.offset : error.offset + 2]
    assert frame.strip(b"WJDCA") in (b"1", b"2")
    assert str(copy.copy(error)) == str(pickle.loads(pickle.dumps(error))) == str(error)


def describe_refusal(pieces):
    """Return what a strict receiver reports for bytes in pieces, or None."""
    receiver = Receiver(strict=True)
    try:
        for piece in pieces:
            receiver.receive(piece)
    except ConversationError as error:
        return error.reason, error.fault, error.offset
    return None


SEVERAL = {
    "no window, then a large sequence": (J(1, b'{"a":1}') + J(2**31), Reason.NO_WINDOW, 0),
    "surplus, then another version": (W(1) + J(1) + J(2) + D(1), Reason.SURPLUS_EVENT, 16 + 6 - 4),
    "a short window, then bad zlib data": (W(2) + W(0) + wrap(b"no zlib"), Reason.SHORT_WINDOW, 6),
    "an array, then bad zlib data": (W(2) + J(1, b"[]") + wrap(b"x" * 9), Reason.NOT_AN_OBJECT, 6),
    "split, then no frame": (W(2) + J(1) + C(J(2)) + b"no frame", Reason.SPLIT_WINDOW, 18),
    "a large sequence without a window": (J(2**31), Reason.LARGE_SEQUENCE, 0),
    "windows inside, then many of them": (
        W(0) + C(W(0)) + C(*[W(0)] * 3000) + J(1),
        Reason.WINDOW_INSIDE,
        6,
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_strict_reports_the_first_fault_on_the_wire(name):
    raw, reason, offset = SEVERAL[name]
    for pieces in ([raw], split(raw, 1), *([raw[:cut], raw[cut:]] for cut in range(len(raw)))):
        found = describe_refusal(pieces)
        assert found is not None
        assert (found[0], found[2]) == (reason, offset)


@pytest.mark.parametrize("seed", range(40))
def test_cuts_do_not_change_what_strict_reports(seed):
    chance = random.Random(seed)
    frames = [W(0), W(1), W(2), W(2), J(1), J(1), J(2), C(J(1), J(2)), C(J(1), J(2), J(3))]
    rare = [W(20_000), W(1, b"1"), D(1), D(1, ()), J(2**31), J(1, b"[]"), J(1, b""), A(1), C(W(1))]
    rare += [C(), wrap(b"no zlib"), wrap(zlib.compress(J(1)) + b"x"), C(A(1), J(1), J(1, b"1"))]
    rare += [wrap(zlib.compress(J(1))[:-4]), C(J(1), J(1)[:-1]), C(C(J(1))), b"no frame"]
    for _ in range(12):
        parts = [chance.choice(rare if chance.random() < 0.2 else frames) for _ in range(9)]
        raw = W(2) * (chance.random() < 0.8) + b"".join(parts)
        whole = describe_refusal([raw])
        assert describe_refusal(split(raw, 1)) == whole
        for cut in range(0, len(raw), 3):
            assert describe_refusal([raw[:cut], raw[cut:]]) == whole


@pytest.mark.parametrize(
    "document",
    [
        b"{}",
        b' \r\n{"a": [1, null, true]} ',
        b'{"a": 1, "a": 2}',
    ],
)
def test_strict_accepts_json_objects(document):
    assert len(receive_all(W(1) + J(1, document), strict=True)[0]) == 1


@pytest.mark.parametrize(
    "document, reason",
    [
        (b'{"a": "\xff"}', "a string is not UTF-8"),
        (b'{"\xff": 1}', "a string is not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "a string is not UTF-8"),
        (b'{"a": 1e999}', "Field a: a number is too large for a double"),
        (b'{"a": %s}' % (b"9" * 5000), "a number has more than 300 digits"),
    ],
)
def test_strict_accepts_objects_that_the_parser_of_documents_refuses(document, reason):
    """The receiver keeps the bytes of a document. Real readers disagree on these documents."""
    (window,), _ = receive_all(W(1) + J(1, document), strict=True)
    assert bytes(window.events.bytes(0, "json")) == document
    assert lumberjack.documents(window.events, errors="mark")["refused"].to_pylist() == [reason]


@pytest.mark.parametrize("name", ODD)
def test_lenient_accepts_every_odd_stream(name):
    raw, _, expected = ODD[name]
    windows, receiver = receive_all(raw)
    assert describe(windows) == expected
    assert all(window.complete for window in windows)
    assert not any(window.events.bad.any() for window in windows)
    for window in windows:
        assert receiver.acknowledge(window)[1:] == A(window.last)[1:]
    assert receiver.close() is None


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("name", ODD)
def test_chunks_do_not_change_announced_windows(name, size):
    """Chunks divide only the events that no window announced."""
    raw, _, expected = ODD[name]
    windows, _ = receive_all(raw, size)
    described = describe(windows)
    announced = [window for window in described if window[0] >= 0]
    assert announced == [window for window in expected if window[0] >= 0]
    numbers = [number for _, sequence, _ in described for number in sequence]
    assert numbers == [number for _, sequence, _ in expected for number in sequence]
    assert described[-1:] == expected[-1:] or windows[-1].last == expected[-1][2]
    without_window = {
        "a window without events": W(3),
        "an empty C behind W(0)": C(),
        "an ack": A(5),
    }.get(name, b"")
    assert join_windows(windows) == (raw.replace(without_window, b"") if expected else b"")


def test_surplus_events_behind_a_window_of_two_chunks():
    receiver = Receiver()
    assert receiver.receive(W(2) + J(1)) == []
    assert describe(receiver.receive(J(2) + J(3) + J(4))) == [(2, [1, 2], 2), (-1, [3, 4], 4)]


def test_every_reason_is_tested():
    senders = {Reason.NOT_AN_ACK, Reason.ACK_BEYOND}
    assert {reason for _, reason, _ in ODD.values()} | senders == set(Reason)


def test_strict_accepts_windows_up_to_its_limit():
    assert receive_all(W(10_000), strict=True)[1].held == 6
    assert receive_all(W(20_000), strict=True, largest_window=20_000)[1].held == 6
    with pytest.raises(ConversationError, match="LARGE_WINDOW"):
        receive_all(W(3), strict=True, largest_window=2)


# ---- streams that no reader accepts

BAD = {
    "a type that is none": (W(1) + b"2X\0\0\0\0", Fault.NOT_A_FRAME),
    "a version that is none": (W(1) + b"3W\0\0\0\0", Fault.NOT_A_FRAME),
    "J of no bytes": (W(1) + J(1, b""), Fault.EMPTY),
    "J of 2**32 - 1 bytes": (W(1) + b"2J\0\0\0\1\xff\xff\xff\xff", Fault.BAD_LENGTH),
    "C of 2**32 - 1 bytes": (W(1) + b"2C\xff\xff\xff\xff", Fault.BAD_LENGTH),
    "D of 2**32 - 1 pairs": (W(1) + b"1D\0\0\0\1\xff\xff\xff\xff", Fault.BAD_LENGTH),
    "a key of 2**32 - 1 bytes": (W(1) + b"1D\0\0\0\1\0\0\0\1\xff\xff\xff\xff", Fault.BAD_LENGTH),
    "above the limit on frames": (
        W(1) + b"2J\0\0\0\1" + struct.pack(">I", Limits().frame),
        Fault.BAD_LENGTH,
    ),
    "gzip": (W(1) + wrap(deflate(J(1), 31)), Fault.BAD_COMPRESSION),
    "raw deflate": (W(1) + wrap(deflate(J(1), -15)), Fault.BAD_COMPRESSION),
    "a dictionary": (W(1) + wrap(deflate(J(1), zdict=b"{}")), Fault.BAD_COMPRESSION),
    "a wrong Adler-32": (W(1) + wrap(zlib.compress(J(1))[:-1] + b"\xff"), Fault.BAD_CHECKSUM),
    "a cut frame in a C": (W(1) + C(J(1)[:-1]), Fault.TRUNCATED),
    "no frame in a C": (W(1) + C(J(1), b"garbage"), Fault.NOT_A_FRAME),
    "a C in a C": (W(1) + C(C(J(1))), Fault.NESTED),
}


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_no_reader_accepts_bad_streams(name, strict, size):
    raw, fault = BAD[name]
    receiver = Receiver(strict=strict)
    with pytest.raises(FrameError) as caught:
        for chunk in split(raw, size):
            assert receiver.receive(chunk) == []
    in_payload = fault in (Fault.BAD_COMPRESSION, Fault.BAD_CHECKSUM)
    assert caught.value.fault == fault
    assert caught.value.offset == (12 if in_payload else 6)
    assert caught.value.reason is None
    with pytest.raises(ConversationError) as again:
        receiver.receive(W(1))
    assert str(again.value) == str(caught.value)
    assert receiver.held == 0
    assert receiver.unacknowledged == 0
    assert receiver.close() is None
    assert receiver.keep_alive() == b""


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_nested_frames_have_a_limit(depth):
    frame = J(1)
    for _ in range(depth):
        frame = C(frame)
    assert describe(receive_all(W(1) + frame, depth=depth)[0]) == [(1, [1], 1)]
    assert describe(receive_all(W(1) + frame, depth=depth, strict=True)[0]) == [(1, [1], 1)]
    with pytest.raises(FrameError) as caught:
        receive_all(W(1) + C(frame), depth=depth)
    assert caught.value.fault == Fault.NESTED


def test_a_window_before_bad_bytes_can_be_acknowledged():
    receiver = Receiver()
    (first,) = receiver.receive(W(1) + J(1))
    with pytest.raises(FrameError, match="NOT_A_FRAME.*at byte 36"):
        receiver.receive(W(1) + J(1) + b"nonsense")
    assert receiver.unacknowledged == 1
    assert receiver.acknowledge(first) == A(1)


# ---- acks


def test_windows_are_acknowledged_once_and_in_order():
    (first, second), receiver = receive_all(W(1) + J(1) + W(2) + J(1) + J(2))
    with pytest.raises(ValueError, match="in the order"):
        receiver.acknowledge(second)
    assert receiver.acknowledge(first) == A(1)
    with pytest.raises(ValueError, match="each once"):
        receiver.acknowledge(first)
    assert receiver.acknowledge(second) == A(2)
    (other,) = receive_all(W(1) + J(1))[0]
    with pytest.raises(ValueError, match="in the order in which they came"):
        receiver.acknowledge(other)


def test_windows_are_acked_in_parts():
    (window,), receiver = receive_all(W(4) + b"".join(J(n) for n in (U32 - 1, 0, 1, 2)))
    assert receiver.acknowledge(window, 1) == A(U32 - 1)
    assert receiver.acknowledge(window, 3) == A(1)
    for count in (3, 2, 0, -1, 5):
        with pytest.raises(ValueError, match="acknowledged before: 3"):
            receiver.acknowledge(window, count)
    assert receiver.unacknowledged == 1
    assert receiver.acknowledge(window, 4) == A(2)
    assert receiver.unacknowledged == 0
    (first, second), receiver = receive_all(W(2) + J(1) + J(2) + W(2) + J(1) + J(2))
    assert receiver.acknowledge(first, 1) == A(1)
    assert receiver.acknowledge(first) == A(2)
    assert receiver.acknowledge(second, 1) == A(1)


def test_version_1_has_no_partial_acks():
    (window,), receiver = receive_all(W(2, b"1") + D(1) + D(2))
    with pytest.raises(ValueError, match="version 1"):
        receiver.acknowledge(window, 1)
    assert receiver.acknowledge(window, 2) == A(2, b"1")


def test_keep_alive_acks_nothing_new():
    receiver = Receiver()
    assert receiver.keep_alive() == b""
    receiver.receive(W(2) + J(1))
    assert receiver.keep_alive() == A(0)
    (window,) = receiver.receive(J(2))
    assert receiver.keep_alive() == A(0)
    receiver.acknowledge(window)
    assert receiver.keep_alive() == b""
    for raw in (
        W(2, b"1") + D(1),
        W(1, b"1") + D(1),
        W(1) + J(1) + W(1, b"1"),
        W(1, b"1") + D(1) + W(1),
    ):
        _, receiver = receive_all(raw)
        assert receiver.keep_alive() == b"", "version 1 may count a keep-alive as an ack"


def test_flush_returns_a_part_of_a_window():
    receiver = Receiver()
    assert receiver.flush() is None
    assert receiver.receive(W(5) + J(1) + J(2)) == []
    part = receiver.flush()
    assert describe([part]) == [(5, [1, 2], 2)]
    assert not part.complete
    assert bytes(part.raw[0]) == W(5) + J(1) + J(2)
    assert receiver.flush() is None
    assert receiver.held == 0
    (rest,) = receiver.receive(J(3) + J(4) + J(5))
    assert describe([rest]) == [(5, [3, 4, 5], 5)]
    assert rest.complete
    assert receiver.acknowledge(part) + receiver.acknowledge(rest) == A(2) + A(5)


def test_the_last_part_acknowledges_the_others():
    receiver = Receiver()
    receiver.receive(W(4) + J(1))
    receiver.flush()
    receiver.receive(J(4) + J(2))
    part = receiver.flush()
    assert receiver.acknowledge(part, 1) == A(4)
    (rest,) = receiver.receive(J(3))
    assert rest.last == 4, "not the highest number of the whole window"
    assert receiver.acknowledge(rest) == b"", "the ack of 4 was sent twice"
    assert receiver.unacknowledged == 0
    (window,) = receiver.receive(W(4) + J(1) + J(2) + J(3) + J(4))
    assert receiver.acknowledge(window) == A(4)


def test_the_last_ack_covers_unacknowledged_parts():
    receiver = Receiver()
    receiver.receive(W(3) + J(1))
    receiver.flush()
    receiver.receive(J(2))
    receiver.flush()
    (rest,) = receiver.receive(W(0))[:1]
    assert describe([rest]) == [(3, [], 2)]
    assert receiver.acknowledge(rest) == A(2)
    receiver.receive(W(3) + J(1))
    assert receiver.unacknowledged == 1
    assert receiver.flush() is not None


def test_a_part_in_version_1_is_not_acknowledged():
    receiver = Receiver()
    receiver.receive(W(2, b"1") + D(1))
    part = receiver.flush()
    assert receiver.acknowledge(part) == b""
    assert receiver.unacknowledged == 0
    (rest,) = receiver.receive(D(2))
    assert receiver.acknowledge(rest) == A(2, b"1")


def test_an_ack_is_not_repeated():
    """The writer would count a second ack for its next window."""
    receiver = Receiver()
    receiver.receive(W(3) + J(1))
    part = receiver.flush()
    assert receiver.acknowledge(part) == A(1)
    end, window = receiver.receive(W(2) + J(1) + J(2))
    assert describe([end]) == [(3, [], 1)]
    assert receiver.acknowledge(end) == b""
    assert receiver.acknowledge(window, 1) + receiver.acknowledge(window) == A(1) + A(2)


def test_a_flushed_short_window_ends_without_events():
    receiver = Receiver()
    receiver.receive(W(2, b"1") + D(1))
    part = receiver.flush()
    (end,) = receiver.receive(W(1, b"1"))
    assert describe([end]) == [(2, [], 1)]
    assert end.complete
    assert receiver.acknowledge(part) + receiver.acknowledge(end) == A(1, b"1")


def test_close_returns_the_incomplete_window():
    receiver = Receiver()
    (whole,) = receiver.receive(W(1) + J(1) + W(3) + J(1) + J(2)[:-1])
    left = receiver.close()
    assert describe([left]) == [(3, [1], 1)]
    assert not left.complete
    assert bytes(left.raw[0]) == W(3) + J(1)
    assert receiver.acknowledge(whole) == A(1), "the writer may still read acks"
    assert receiver.acknowledge(left) == b""
    assert receiver.close() is None
    assert receiver.held == 0
    with pytest.raises(ValueError, match="closed"):
        receiver.receive(b"")


# ---- bytes and bounds


def test_nothing_is_copied():
    chunk = W(2) + J(1, b'{"a":1}') + J(2) + W(1) + C(J(1))
    first, second = Receiver().receive(chunk)
    assert first.raw[0].obj is chunk
    assert first.events.buffers[0].obj is chunk
    assert second.raw[0].obj is chunk
    assert bytes(first.events.bytes(0, "json")) == b'{"a":1}'
    assert len(first.raw) == len(second.raw) == 1
    assert [row.json for row in second.events] == [b"{}"]


def test_a_compressed_frame_belongs_to_one_window():
    raw = C(W(2), J(1), J(2), W(1), J(1), W(2), J(1)) + C(J(2)) + W(1) + J(1)
    windows, _ = receive_all(raw)
    second = C(J(2))
    last = W(1) + J(1)
    sizes = [sum(map(len, window.raw)) for window in windows]
    assert sizes == [len(raw) - len(second) - len(last), 0, len(second), len(last)]
    assert join_windows(windows) == raw
    first = C(W(3), J(1), W(1), J(1))
    second = C(W(2), J(1))
    windows, _ = receive_all(first + second + W(1) + J(1))
    assert [b"".join(window.raw) for window in windows] == [first, b"", second, W(1) + J(1)]


@pytest.mark.parametrize(
    "version, frame", [(b"2", J(1, b'{"x":"%s"}' % (b"y" * 1000))), (b"1", D(1, ()))]
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_window_without_end_takes_bounded_memory(version, frame, strict):
    if strict and version == b"1":
        frame = D(1)
    receiver = Receiver(window_bytes=1 << 18, strict=strict, largest_window=U32)
    receiver.receive(W(U32 - 1, version))
    chunk = frame * ((1 << 16) // len(frame))
    events = 0
    tracemalloc.start()
    try:
        for _ in range(100):
            for part in receiver.receive(chunk):
                assert not part.complete
                assert part.size < 8 << 18
                receiver.acknowledge(part)
                events += len(part.events)
            assert receiver.held <= 1 << 18
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    rest = receiver.close()
    if rest is not None:
        events += len(rest.events)
    assert events == 100 * len(chunk) // len(frame)
    assert peak < 4 << 20


@pytest.mark.slow
def test_a_window_of_many_chunks_takes_bounded_memory():
    receiver = Receiver(strict=True)
    assert receiver.receive(W(5000, b"1")) == []
    parts = [window for n in range(1, 5001) for window in receiver.receive(D(n))]
    assert [len(part.events) for part in parts] == [1024, 1024, 1024, 1024, 904]
    assert parts[-1].last == 5000
    assert [part.complete for part in parts] == [False] * 4 + [True]
    assert b"".join(map(receiver.acknowledge, parts)) == A(5000, b"1")


def test_acks_from_a_writer_are_not_held():
    receiver = Receiver(window_bytes=1000)
    receiver.receive(W(2))
    for _ in range(100):
        assert receiver.receive(A(0) * 50) == []
        assert receiver.held <= 1000
    assert describe(receiver.receive(J(1) + J(2))) == [(2, [1, 2], 2)]


def test_bombs_are_refused():
    zeros = J(1, b" " * (32 << 20))
    for raw in (C(zeros), C(C(zeros)), C(zeros[: 16 << 20]) * 3):
        receiver = Receiver(depth=2, limits=Limits(inflated=20 << 20), window_bytes=24 << 20)
        tracemalloc.start()
        try:
            with pytest.raises(FrameError) as caught:
                receiver.receive(W(3) + raw)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert caught.value.fault in (Fault.TOO_LARGE, Fault.TRUNCATED)
        assert peak < 100 << 20
        assert receiver.held == 0


# ---- hints

HINTS = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
    (b"\x15\x03\x03\x00\x02\x02\x46", "a TLS alert"),
    (b"GET / HTTP/1.1\r\nHost: x\r\n", "HTTP"),
    (b"POST /_bulk HTTP/1.1\r\n", "HTTP"),
    (b"HTTP/1.1 400 Bad", "HTTP"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"),
    (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "PROXY"),
    (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "PROXY"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    (b"<34>Oct 11 22:14:15 host", "syslog"),
    (b"123 <34>1 2003-10-11T22:14:15", "syslog"),
    (b'{"message":"x"}\n', "JSON"),
    (b'[{"message":"x"}]', "JSON"),
]


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("data, word", HINTS)
def test_other_protocols_are_named(data, word, size):
    assert word in guess_protocol(data)
    with pytest.raises(ConversationError) as caught:
        receive_all(data, size)
    if size > 4:
        assert caught.value.hint == guess_protocol(data)
        assert str(caught.value).endswith("; " + guess_protocol(data))


def test_a_first_byte_may_give_a_hint():
    for byte, word in (
        (b"\x16", "TLS"),
        (b"G", "HTTP"),
        (b"S", "SSH"),
        (b"<", "syslog"),
        (b"{", "JSON"),
    ):
        assert word in guess_protocol(byte)
    assert (
        guess_protocol(b"")
        == guess_protocol(b"\0")
        == guess_protocol(W(1))
        == guess_protocol(b"hello")
        == ""
    )
    with pytest.raises(ConversationError) as caught:
        receive_all(W(1) + b"GET / HTTP/1.1")
    assert caught.value.hint == "", "a hint after a valid Lumberjack frame"


# ---- the sender

EVENTS = [{"n": n} for n in range(5)]


def test_a_sender_waits_for_acks_of_its_windows():
    sender = Sender(window=5)
    first = sender.send(EVENTS)
    sender.send(EVENTS[:2])
    assert not sender.ready
    assert sender.unacknowledged == 7
    with pytest.raises(ValueError, match="2 windows wait"):
        sender.send(EVENTS)
    assert bytes(first) == W(5) + b"".join(J(n + 1, b'{"n":%d}' % n) for n in range(5))
    assert sender.receive(A(0) + A(0)) == 0
    assert not sender.ready
    assert sender.receive(A(3)) == 3
    assert sender.receive(A(2)) == 0
    assert sender.unacknowledged == 4
    assert sender.receive(A(5) + A(1)[:3]) == 2
    assert sender.ready
    assert sender.receive(A(1)[3:]) == 1
    assert sender.receive(A(2)) == 1
    assert sender.unacknowledged == 0
    assert sender.resend() == b""


def test_a_sender_resends_unacknowledged_events():
    sender = Sender(window=5)
    sender.send(EVENTS)
    sender.send(EVENTS[:2])
    sender.receive(A(3) + A(5)[:2])
    first = W(2) + J(1, b'{"n":3}') + J(2, b'{"n":4}')
    second = W(2) + J(1, b'{"n":0}') + J(2, b'{"n":1}')
    assert sender.resend() == first + second
    assert sender.resend() == first + second
    assert sender.unacknowledged == 4
    assert sender.receive(A(2) + A(2)) == 4


@pytest.mark.parametrize(
    "raw, reason, counted",
    [
        (A(6), Reason.ACK_BEYOND, 0),
        (A(5) + A(3), Reason.ACK_BEYOND, 5),
        (A(5) + A(2) + A(1), Reason.ACK_BEYOND, 7),
        (A(1) + W(5), Reason.NOT_AN_ACK, 1),
        (b"\x15\x03\x03\0\2\2\x46", Reason.NOT_AN_ACK, 0),
        (b"2X", Reason.NOT_AN_ACK, 0),
        (b"H", Reason.NOT_AN_ACK, 0),
    ],
)
def test_wrong_answers_are_refused(raw, reason, counted):
    sender = Sender()
    sender.send(EVENTS)
    sender.send(EVENTS[:2])
    with pytest.raises(ConversationError) as caught:
        sender.receive(raw)
    error = caught.value
    assert error.reason is reason
    assert sender.unacknowledged == 7 - counted
    assert error.offset == {0: 0, 1: 6, 5: 6, 7: 12}[counted]
    assert error.row == error.offset // 6
    assert ("TLS" in str(error)) == (raw[0] == 0x15)
    assert ("HTTP" in str(error)) == (raw == b"H")
    with pytest.raises(ConversationError, match=reason.name):
        sender.receive(b"")
    assert (sender.resend() != b"") == (counted < 7)
    assert sender.receive(A(0)) == 0, "resend() must begin a new connection"


def test_a_sender_ignores_keep_alives_of_another_version():
    sender = Sender(version=1)
    assert bytes(sender.send([{"line": "x"}])) == W(1, b"1") + D(1, [(b"line", b"x")])
    assert sender.receive(A(0, b"2") + A(1, b"1")) == 1


TABLE = lumberjack.events(
    lumberjack.scan(W(3) + C(J(7, b'{"n":0}'), J(8, b'{"n":1}')) + D(9, version=b"2"))
)
SAME = [{"n": 0}, b'{"n":1}', '{"n":2}']


@pytest.mark.parametrize(
    "events",
    [
        SAME,
        tuple(SAME),
        iter(SAME),
        pa.array([b'{"n":0}', b'{"n":1}', b'{"n":2}']),
        pa.chunked_array([['{"n":0}'], ['{"n":1}', '{"n":2}']]),
        np.array([b'{"n":0}', b'{"n":1}', b'{"n":2}']),
    ],
)
def test_a_sender_accepts_events_of_every_kind(events):
    sender = Sender(level=3)
    (window,) = Receiver(strict=True).receive(bytes(sender.send(events)))
    assert [bytes(row.json) for row in window.events] == [b'{"n":%d}' % n for n in range(3)]
    sender.receive(A(1))
    (window,) = Receiver(strict=True).receive(sender.resend())
    assert [bytes(row.json) for row in window.events] == [b'{"n":%d}' % n for n in (1, 2)]


def test_a_sender_accepts_received_events():
    sender = Sender()
    documents = J(1, b'{"n":0}') + J(2, b'{"n":1}')
    assert bytes(sender.send(TABLE)) == W(3) + documents + D(3, version=b"2")
    sender.receive(A(2))
    assert sender.resend() == W(1) + D(1, version=b"2")


@pytest.mark.parametrize(
    "options, error, reason",
    [
        ({"version": 3}, ValueError, "version must be from 1 to 2"),
        ({"version": "2"}, TypeError, "version must be an integer"),
        ({"window": 0}, ValueError, "window and pipelining must be 1 or more"),
        ({"window": "5"}, TypeError, "'<' not supported"),
        ({"pipelining": 0}, ValueError, "window and pipelining must be 1 or more"),
        ({"level": 10}, ValueError, "level must be from 0 to 9"),
        ({"level": "3"}, TypeError, "level must be an integer"),
        ({"frames": "xml"}, ValueError, "frames must be 'json' or 'data'"),
    ],
)
def test_bad_options_are_refused(options, error, reason):
    with pytest.raises(error, match=reason):
        Sender(**options)


@pytest.mark.parametrize(
    "events, error, reason",
    [
        ([], ValueError, "not 0"),
        (EVENTS * 3, ValueError, "from 1 to 10 events, not 15"),
        (b"{}", TypeError, "not one bytes"),
        ({"n": 1}, TypeError, "not one dict"),
        (7, TypeError, "not iterable"),
        ("{}", TypeError, "not one str"),
        ([{}, 7], TypeError, "event 1: a document must be"),
        ([b""], ValueError, "must not be empty"),
        (TABLE[:0], ValueError, "from 1 to 10 events, not 0"),
        (pa.array([None, b"{}"]), ValueError, "document 0 must not be null"),
        (lumberjack.scan(W(1)), TypeError, "a table of lumberjack.events"),
        (np.arange(3), TypeError, "of dtype S"),
    ],
)
def test_bad_events_are_refused(events, error, reason):
    sender = Sender(window=10)
    with pytest.raises(error, match=reason):
        sender.send(events)
    assert sender.ready
    assert sender.unacknowledged == 0


def test_an_array_cannot_become_data_frames():
    for options in ({"version": 1}, {"frames": "data"}):
        with pytest.raises(TypeError, match="no JSON frames"):
            Sender(**options).send(pa.array([b"{}"]))
    sender = Sender(version=1, frames="json")
    assert bytes(sender.send(pa.array([b"{}"]))) == W(1, b"1") + J(1, version=b"1")


def test_decompressed_events_count_toward_the_window_bound():
    receiver = Receiver(window_bytes=1 << 18)
    receiver.receive(W(U32 - 1))
    inflated = J(1, b'{"x":"%s"}' % (b"y" * 20_000)) * 4
    parts = [part for _ in range(40) for part in receiver.receive(C(inflated))]
    assert len(parts) >= 40 * len(inflated) // (2 << 18)
    assert all(not part.complete and part.size > 1 << 18 for part in parts)
