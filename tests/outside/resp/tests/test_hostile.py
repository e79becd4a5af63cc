"""Hostile RESP: every small damage to small streams, false claims, and what few bytes may cost."""

import resource

import pytest
from generators import PACKAGE
from hypothesis import given
from hypothesis import strategies as st

import wirescan
import wirescan_resp as resp
from wirescan import FrameError, FrameTable, Limits
from wirescan.testing import laws

STREAM = (
    resp.encode_commands("SET", [b"key", b""], [b"1", None])
    + resp.encode([1, None, [resp.Text("OK"), [b"*1\r\n", -5]], resp.NullArray()])
    + resp.encode(resp.Text("ERR no", is_error=True))
    + resp.encode(7)
)
BYTES = b"+-:$*019\r\n\0\xff"


def name_faults(raw, **options):
    """Return (name of the fault, size) of each row, and the name of the fault at the end."""
    table = wirescan.scan(raw, "resp.frames", errors="mark", **options)
    rows = [
        (table.describe_fault(fault).name, size)
        for fault, size in zip(table["fault"].tolist(), table["size"].tolist())
    ]
    return rows, table.describe_fault(table.stop.fault).name


@pytest.mark.parametrize("byte", BYTES)
def test_each_byte_is_replaced(byte):
    for i in range(len(STREAM)):
        raw = STREAM[:i] + bytes([byte]) + STREAM[i + 1 :]
        laws.agrees_with_the_reference(PACKAGE, raw)
        laws.covers_every_byte(PACKAGE, raw)
        laws.ends_well(PACKAGE, raw)


def test_each_byte_is_flipped():
    for i in range(len(STREAM)):
        for bit in range(8):
            raw = bytearray(STREAM)
            raw[i] ^= 1 << bit
            laws.agrees_with_the_reference(PACKAGE, bytes(raw))


def test_the_stream_is_cut_at_each_byte():
    for i in range(len(STREAM)):
        laws.agrees_with_the_reference(PACKAGE, STREAM[:i])
        laws.agrees_with_the_reference(PACKAGE, STREAM[i:])
        laws.covers_every_byte(PACKAGE, STREAM[i:])
        table = wirescan.scan(STREAM[:i], "resp.frames", errors="strict")
        assert bytes(table.tail) == STREAM[table.stop.offset : i]


@given(st.text("+-:$*0129\r\na", max_size=200).map(str.encode))
def test_any_bytes_end_well(raw):
    laws.ends_well(PACKAGE, raw)


@pytest.mark.parametrize(
    "raw, fault",
    [
        (b"PING\r\n", "NOT_A_VALUE"),
        (b"*1\r\nPING\r\n", "NOT_A_VALUE"),
        (b"+OK\n\n", "BAD_LINE"),
        (b"+O\rK\r\n", "BAD_LINE"),
        (b"+" + bytes(65537), "BAD_LINE"),
        (b":12a\r\n", "BAD_INTEGER"),
        (b":9223372036854775808\r\n", "BAD_INTEGER"),
        (b"*1\r\n:\r\n", "BAD_INTEGER"),
        (b"$-2\r\n", "BAD_LENGTH"),
        (b"$\r\n", "BAD_LENGTH"),
        (b"$+1\r\na\r\n", "BAD_LENGTH"),
        (b"$2147483648\r\n", "BAD_LENGTH"),
        (b"$1\r\nab\r\n", "BAD_LENGTH"),
        (b"*-2\r\n", "BAD_LENGTH"),
        (b"*00000000001\r\n:1\r\n", "BAD_LENGTH"),
        (b"*1\r\n" * 33 + b":1\r\n", "TOO_DEEP"),
    ],
)
def test_each_fault_has_its_name(raw, fault):
    assert name_faults(raw) == ([(fault, len(raw))], "OK")
    with pytest.raises(FrameError, match=fault):
        resp.scan(raw)


def test_nesting_of_the_greatest_depth_is_read():
    value = 1
    for _ in range(32):
        value = [value]
    table = resp.values(resp.scan(resp.encode(value)))
    assert table["depth"].tolist() == list(range(1, 34))
    assert table["enclosing"].tolist() == list(range(-1, 32))
    with pytest.raises(ValueError, match="32 levels"):
        resp.encode([value])


def test_a_frame_follows_nesting_that_is_too_deep():
    raw = b"*2\r\n" * 40 + b":1\r\n" * 41
    assert name_faults(raw + b"+OK\r\n") == ([("TOO_DEEP", len(raw)), ("OK", 5)], "OK")


def test_the_search_does_not_take_elements_for_frames():
    """A cut reply is the tail, although arrays are in it."""
    raw = resp.encode([[b"a", b"b"], [b"c", b"d"]])
    for i in range(1, len(raw)):
        assert name_faults(raw[:i]) == ([], "SHORT")
    command = resp.encode([b"SET", b"a", b"b"])
    damaged = command.replace(b"$1", b"$x", 1)
    assert name_faults(damaged + command) == ([("BAD_LENGTH", 27), ("OK", 27)], "OK")


# ---- what few bytes may cost


@pytest.mark.parametrize("raw", [b"*1000000000\r\n", b"*2\r\n$2000000000\r\n", b"$2147483647\r\n"])
def test_a_claim_allocates_nothing(raw):
    """The frame would be larger than `limits.frame`, so no stream waits for it."""
    assert name_faults(raw) == ([("BAD_LENGTH", len(raw))], "OK")
    stream = wirescan.stream("resp.frames", errors="mark")
    stream.feed(raw + b"+OK\r\n" * 10)
    assert stream.held < 100
    with pytest.raises(FrameError, match="BAD_LENGTH"):
        wirescan.stream("resp.values").feed(raw)


def test_a_claim_within_the_limits_holds_only_what_is_there():
    stream = wirescan.stream("resp.frames")
    for _ in range(1000):
        assert len(stream.feed(b"*1000\r\n")) == 0
    assert stream.held == 7000


def test_a_stream_does_not_hold_a_gap():
    stream = wirescan.stream("resp.frames", errors="mark", limits=Limits(frame=1000))
    for _ in range(200):
        stream.feed(b"x" * 100)
        assert stream.held < 3000
    assert len(stream.feed(resp.encode([1]) * 1000)) > 500


def measure_seconds(raw):
    """Return the seconds of a scan, without those of the system, which clears memory for rows."""
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    wirescan.scan(raw, "resp.values", errors="mark", limits=Limits(row_bytes=1 << 30))
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - start


@pytest.mark.parametrize(
    "piece",
    [
        b"*2\r\n",
        b"*9\r\n:1\r\n",
        b"*3\r\n*1\r\n:1\r\n",
        b"*1\r\n",
        b"*1\r\n$5\r\n",
        b"+*1\r\n",
        b"*100000\r\n$0\r\n\r\n",
    ],
)
def test_the_cost_of_hostile_bytes_is_linear(piece):
    """Four times the bytes take four times as long. A quadratic search takes 16 times as long."""
    count = (2 << 20) // len(piece)
    once, four_times = (
        min(measure_seconds(piece * n + b"\0") for _ in range(3)) for n in (count, 4 * count)
    )
    assert four_times < 4 * 2.5 * max(once, 0.02)


def test_forged_rows_do_no_harm():
    frames = resp.scan(STREAM)
    for column, value in [("value_count", 2**32 - 1), ("size", 0), ("size", 4), ("count", -5)]:
        rows = frames.rows.copy()
        rows[column] = value
        forged = FrameTable(frames.buffers, rows, (), frames.format)
        laws.places_are_in_their_frames(resp.values(forged, errors="mark"))
    rows = frames.rows.copy()
    rows["start"] = 2**40
    with pytest.raises(ValueError, match="outside its buffer"):
        resp.values(FrameTable(frames.buffers, rows, (), frames.format))


def test_too_many_values():
    frames = resp.scan(resp.encode([list(range(100))] * 10))
    with pytest.raises(FrameError, match="LIMIT") as caught:
        resp.values(frames, limits=Limits(rows=150))
    partial = caught.value.partial
    assert len(partial) == 150
    laws.places_are_in_their_frames(partial)
    assert partial["size"][0] == frames["size"][0]


def test_a_line_that_ends_with_lf_alone_at_the_limit_of_a_frame():
    laws.chunks_change_nothing(PACKAGE, b":000\n", [4], limits=Limits(frame=5))
