"""Kafka bytes that mean harm: every small damage there is to small files, lies about lengths and counts, bombs."""
import gzip
import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest

import laws
import wirescan
from children import in_a_small_room
from golden import (
    EXTREMES, GOLDEN, NUMBERS, RECORDS, batch, bomb, record, varint, wrapper)
from rooms import ROOMS
from strategies.kafka import mend
from wirescan import Fault, FrameError, Limits, kafka
from wirescan.kafka.encode import encode_batch, encode_message_set

ROOM = ROOMS["kafka"]
FOUND = Path(__file__).parent / "corpus" / "kafka-hostile"
every_file = pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
checked = pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])


# ------------------------------------------------------------------------------- each byte, each length, each cut

@every_file
@checked
def test_every_byte(raw, check):
    for at in range(len(raw)):
        for byte in ({raw[at] ^ 0x10} if check else {0, 1, 0x7F, 0x80, 0xFF, raw[at] ^ 0x10}) - {raw[at]}:
            laws.ends_well(ROOM, raw[:at] + bytes([byte]) + raw[at + 1:], check)


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.bin")), ids=lambda path: path.stem)
@checked
def test_what_once_went_wrong(path, check):
    raw = path.read_bytes()
    laws.all_of_them(ROOM, raw, list(range(0, len(raw), 9)), check)


@every_file
def test_every_bit_that_a_checksum_covers_is_found_out(raw):
    good = laws.meaning(kafka.scan(raw))
    for start, size, magic in zip(*(kafka.scan(raw)[name].tolist() for name in ("start", "size", "magic"))):
        for at in range(start + (21 if magic == 2 else 16), start + size):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << at % 8
            table = kafka.scan(bytes(damaged), errors="mark")
            assert table.bad.any() and table.consumed == len(raw)
            with pytest.raises(FrameError) as caught:
                kafka.scan(bytes(damaged))
            assert caught.value.offset == start
            assert laws.meaning(table[~table.bad]) == [one for one in good if one[0] != start]


@every_file
def test_cut_at_each_byte(raw):
    whole = laws.meaning(wirescan.scan(raw, "kafka.records"))
    ends = [0, *np.cumsum(kafka.scan(raw)["size"]).tolist()]
    for cut in range(len(raw)):
        laws.agrees_with_the_reference(ROOM, raw[:cut])
        table = wirescan.scan(raw[:cut], "kafka.records")
        assert laws.meaning(table) == whole[:len(table)]
        stop = table.outer.stop
        assert stop.offset == max(end for end in ends if end <= cut)
        assert stop.fault == (Fault.OK if cut in ends else Fault.SHORT)


@every_file
@checked
def test_lengths_and_counts_to_extremes(raw, check):
    for start, size, magic in zip(*(kafka.scan(raw)[name].tolist() for name in ("start", "size", "magic"))):
        places = [start + 8, *{0: [start + 18], 1: [start + 26], 2: [start + 23, start + 57]}[magic]]
        for at in places:
            true, = struct.unpack_from(">i", raw, at)
            for number in {*EXTREMES, true - 1, true + 1, size, len(raw), len(raw) - start - 12} - {true}:
                damaged = bytearray(raw)
                struct.pack_into(">i", damaged, at, number)
                for bytes_ in (bytes(damaged), mend(bytes(damaged))):
                    laws.ends_well(ROOM, bytes_, check)
                laws.agrees_with_the_reference(ROOM, mend(bytes(damaged)), check)


@pytest.mark.parametrize("name", [*NUMBERS, "length"])
def test_varints_to_extremes(name):
    true = len(record()) - 1 if name == "length" else None
    numbers = [*EXTREMES, -2, 2**31, 2**32, 2**63 - 1, -2**63, *([true - 1, true + 1] if true else [])]
    forms = [varint(number) for number in numbers]
    forms += [varint(1, size) for size in range(2, 12)]
    forms += [b"\xff" * 5, b"\xff" * 9 + b"\1", b"\xff" * 9 + b"\2", b"\x80" * 11]
    for form in forms:
        odd = record(form) if name == "length" else record(**{name.replace(" ", "_"): form})
        for payload, count in ((odd, 1), (record() + odd + record(), 3), (odd + bytes(20), 1)):
            laws.agrees_with_the_reference(ROOM, batch(payload, count))
        laws.agrees_with_the_reference(ROOM, batch(gzip.compress(odd), codec=1))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 100, 2**31 - 1, -1, -2**31])
@pytest.mark.parametrize("codec", [0, 1])
def test_counts_of_records(count, codec):
    payload = record() * 3
    raw = batch(gzip.compress(payload) if codec else payload, count, codec=codec)
    laws.agrees_with_the_reference(ROOM, raw)
    batches = kafka.scan(raw, errors="mark")
    records = kafka.records(batches, errors="mark")
    if count < 0:
        assert [row.fault for row in records] == [Fault.BAD_COUNT]
    elif count < 3:
        assert records["fault"].tolist() == [0] * count + [Fault.BAD_COUNT]
        assert records["size"][-1] == len(record()) * (3 - count)
    else:
        assert records["fault"].tolist() == [0] * 3 + [Fault.BAD_COUNT] * (count > 3)
        assert count == 3 or records["size"][-1] == 0


def test_inner_messages():
    inner = encode_message_set(RECORDS[1:], magic=1)
    nested = wrapper(wrapper(inner))
    assert wirescan.scan(nested, "kafka.records", errors="mark")["fault"].tolist() == [Fault.NESTED]
    for payload in (b"", bytes(11), bytes(40), inner[:-1], inner + bytes(3), nested, inner + nested,
                    struct.pack(">qi", 0, -12) + inner, struct.pack(">qi", 0, 2**31 - 1) + inner,
                    inner[:30] + b"\xff" * 30):
        for magic in (0, 1):
            for offset in (0, 1, 9, 2**63 - 1):
                for codec in (1, 2) if magic == 0 else (1, 2, 3):
                    laws.agrees_with_the_reference(ROOM, wrapper(payload, codec, magic, offset))


# ------------------------------------------------------------------------------------------------ memory and time

CHILD = """
import resource, sys, time
import wirescan, wirescan.kafka
from wirescan import FrameError
raw = sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
start = time.process_time()
for errors in ("mark", "skip", "strict"):
    try:
        print(len(wirescan.scan(raw, "kafka.headers", errors=errors).outer), end=" ")
    except FrameError as error:
        print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""


@pytest.mark.parametrize("raw, fault", [
    (batch(record(), 2**31 - 1), "BAD_COUNT"),
    (batch(record(header_count=2**31 - 1)), "BAD_COUNT"),
    (batch(gzip.compress(record()), 2**31 - 1, codec=1), "BAD_COUNT"),
    (batch(record(), 2**31 - 1) * 1000, "BAD_COUNT"),
    (batch(record(length=2**31 - 1)), "TRUNCATED"),
    (batch(record(value_length=2**31 - 1)), "TRUNCATED"),
    (batch(b"\xff\xff\xff\xff\x0f\x00a", codec=2), "TOO_LARGE"),
], ids=["count", "headers", "count gzip", "a thousand counts", "length", "value", "snappy length"])
def test_nothing_is_allocated_from_a_claim(raw, fault):
    (_, _, strict), seconds = in_a_small_room(CHILD, raw, 64)
    assert strict == fault and seconds < 2


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("magic", [1, 2])
def test_bombs(codec, magic):
    packed = bomb(codec)
    if magic == 2:
        raw = batch(packed, 1, codec=codec)
    elif codec < 4:
        body = struct.pack(">bbqii", 1, codec, 0, -1, len(packed)) + packed
        raw = mend(struct.pack(">qiI", 9, 4 + len(body), 0) + body)
    else:
        return
    (marked, skipped, strict), seconds = in_a_small_room(CHILD, raw, 256)
    assert (marked, skipped, strict) == ("1", "0", "TOO_LARGE") and seconds < 5


@pytest.mark.parametrize("filling", [bytes(1), b"\2" + bytes(1), b"\x0a" + bytes(5), b"\x0c\0\0\0\1\1\0"],
                         ids=["no bytes", "one byte", "five bytes", "the smallest"])
def test_rows_are_bounded_by_bytes(filling):
    """A row takes 64 bytes, so tiny records must not be cheap: seven bytes is the least that one can be."""
    payload = filling * (700_000 // len(filling))
    table = wirescan.scan(batch(gzip.compress(payload), 2**31 - 1, codec=1), "kafka.records", errors="mark")
    assert len(table) <= len(payload) // 7 + 1 and sum(table["size"].tolist()) == len(payload)


def test_limits_hold_for_a_call_as_a_whole():
    one = batch(gzip.compress(record(value=bytes(100_000), value_length=100_000, header_count=0,
                                     header_key_length=b"", header_key=b"", header_value_length=b"",
                                     header_value=b"", second_key_length=b"", second_value_length=b"")), codec=1)
    batches = kafka.scan(one * 10)
    assert not kafka.records(batches).bad.any()
    faults = kafka.records(batches, errors="mark", limits=Limits(inflated_total=350_000))["fault"]
    assert faults.tolist() == [0] * 3 + [Fault.TOO_LARGE] * 7
    assert kafka.records(batches, errors="mark", limits=Limits(inflated=99_999)).bad.all()
    with pytest.raises(FrameError) as caught:
        kafka.records(batches, limits=Limits(rows=4))
    assert caught.value.fault == Fault.LIMIT


def seconds_of(raw, errors="mark"):
    start = time.process_time()
    table = kafka.scan(raw, errors=errors)
    return time.process_time() - start, table


def plausible(size):
    """Headers that look like those of batches which reach to the end, each inside the one before."""
    head = bytearray(encode_batch([], base_offset=0, last_offset=0))
    out = bytearray()
    while size - len(out) > 61:
        struct.pack_into(">i", head, 8, size - len(out) - 12)
        out += head[:17] + bytes(4) + head[21:]
    return bytes(out) + bytes(size - len(out))


TRAPS = {
    "plausible headers": plausible,
    "bad magic": lambda size: (struct.pack(">qiib", 1, 14, 0, 9) + bytes(9)) * (size // 26),
    "bad checksums": lambda size: (encode_batch([])[:17] + bytes(4) + encode_batch([])[21:]) * (size // 61),
    "lengths of zero": lambda size: (struct.pack(">qi", 1, 0) + bytes(14)) * (size // 26),
    "fillers": lambda size: struct.pack(">qi", -1, 2**31 - 1) * (size // 12),
    "zeros and a one": lambda size: (bytes(63) + b"\1") * (size // 64),
    "zeros": lambda size: b"\1" + bytes(size) + b"\1",
    "noise": lambda size: random.Random(1).randbytes(size),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    size = 1 << 20
    taken, table = seconds_of(trap(size))
    assert taken < 2, f"{taken} seconds for a mebibyte"
    assert sum(table["size"].tolist()) + len(table.tail) == len(trap(size))


def test_a_stream_is_linear_in_zeros():
    stream = wirescan.stream("kafka.batches", errors="mark")
    start = time.process_time()
    for _ in range(512):
        stream.feed(bytes(32 << 10))
    stream.close()
    assert time.process_time() - start < 5
