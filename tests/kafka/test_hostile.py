"""Hostile Kafka bytes: every small damage to small files, false lengths and counts, bombs."""

import gzip
import random
import struct
import time

import numpy as np
import pytest

import wirescan
from tests.laws.packages import PACKAGES
from tests.strategies.kafka import correct_checksums
from tests.support import many_streams
from tests.support.children import run_each_in_little_memory
from tests.support.kafka_bytes import (
    EXTREMES,
    GOLDEN,
    NUMBERS,
    RECORDS,
    make_batch,
    make_bomb,
    make_record,
    make_varint,
    make_wrapper,
)
from tests.support.paths import CORPUS
from tests.support.slowness import SLOWNESS
from wirescan import Fault, FrameError, Limits, kafka
from wirescan.kafka.encode.records import encode_batch, encode_message_set
from wirescan.testing import laws

PACKAGE = PACKAGES["kafka"]
HOSTILE = CORPUS / "kafka-hostile"
every_file = pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
checked = pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])
mostly_checked = pytest.mark.parametrize(
    "check",
    [pytest.param(True, id="check"), pytest.param(False, id="no check", marks=pytest.mark.slow)],
)


# ---- each byte, each length, each cut


def split_frames(raw):
    """Yield (start, size, magic) of each batch and message."""
    table = kafka.scan(raw)
    return zip(*(table[name].tolist() for name in ("start", "size", "magic")))


@every_file
@checked
def test_changes_of_every_byte_keep_the_laws(raw, check, stride):
    for at in many_streams.sample_positions(len(raw), stride):
        values = {raw[at] ^ 0x10}
        if not check:
            values |= {0, 1, 0x7F, 0x80, 0xFF}
        for value in values - {raw[at]}:
            laws.ends_well(PACKAGE, raw[:at] + bytes([value]) + raw[at + 1 :], check=check)


@pytest.mark.parametrize("path", sorted(HOSTILE.glob("*.bin")), ids=lambda path: path.stem)
@checked
def test_inputs_of_earlier_errors(path, check):
    raw = path.read_bytes()
    laws.keeps_every_law(PACKAGE, raw, list(range(0, len(raw), 9)), check=check)


@every_file
def test_a_checksum_detects_each_changed_bit(raw):
    good = laws.describe_rows(kafka.scan(raw))
    for start, size, magic in split_frames(raw):
        first_covered = start + (21 if magic == 2 else 16)
        others = [row for row in good if row[0] != start]
        for at in range(first_covered, start + size):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << at % 8
            table = kafka.scan(bytes(damaged), errors="mark")
            assert table.bad.any()
            assert table.consumed == len(raw)
            with pytest.raises(FrameError) as caught:
                kafka.scan(bytes(damaged))
            assert caught.value.offset == start
            assert laws.describe_rows(table[~table.bad]) == others


@every_file
def test_cut_at_each_byte(raw, stride):
    whole = laws.describe_rows(wirescan.scan(raw, "kafka.records"))
    ends = [0, *np.cumsum(kafka.scan(raw)["size"]).tolist()]
    for cut in many_streams.sample_positions(len(raw), stride):
        laws.agrees_with_the_reference(PACKAGE, raw[:cut])
        table = wirescan.scan(raw[:cut], "kafka.records")
        assert laws.describe_rows(table) == whole[: len(table)]
        stop = table.outer.stop
        assert stop.offset == max(end for end in ends if end <= cut)
        assert stop.fault == (Fault.OK if cut in ends else Fault.SHORT)


@every_file
@mostly_checked
def test_lengths_and_counts_to_extremes(raw, check, stride):
    numbers_of_magic = {0: [8, 18], 1: [8, 26], 2: [8, 23, 57]}
    changes = []
    for start, size, magic in split_frames(raw):
        for at in numbers_of_magic[magic]:
            (true,) = struct.unpack_from(">i", raw, start + at)
            numbers = {*EXTREMES, true - 1, true + 1, size, len(raw), len(raw) - start - 12}
            changes += [(start + at, number) for number in sorted(numbers - {true})]
    for at, number in changes[::stride]:
        damaged = bytearray(raw)
        struct.pack_into(">i", damaged, at, number)
        mended = correct_checksums(bytes(damaged))
        laws.ends_well(PACKAGE, bytes(damaged), check=check)
        laws.ends_well(PACKAGE, mended, check=check)
        laws.agrees_with_the_reference(PACKAGE, mended, check=check)


@pytest.mark.parametrize("name", [*NUMBERS, "length"])
def test_extreme_varints_keep_the_laws(name, stride):
    numbers = [*EXTREMES, -2, 2**31, 2**32, 2**63 - 1, -(2**63)]
    if name == "length":
        true = len(make_record()) - 1
        numbers += [true - 1, true + 1]
    forms = [make_varint(number) for number in numbers]
    forms += [make_varint(1, size) for size in range(2, 12)]
    forms += [b"\xff" * 5, b"\xff" * 9 + b"\1", b"\xff" * 9 + b"\2", b"\x80" * 11]
    for form in forms[:: min(stride, 4)]:
        odd = (
            make_record(form) if name == "length" else make_record(**{name.replace(" ", "_"): form})
        )
        for payload, count in (
            (odd, 1),
            (make_record() + odd + make_record(), 3),
            (odd + bytes(20), 1),
        ):
            laws.agrees_with_the_reference(PACKAGE, make_batch(payload, count))
        laws.agrees_with_the_reference(PACKAGE, make_batch(gzip.compress(odd), codec=1))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 100, 2**31 - 1, -1, -(2**31)])
@pytest.mark.parametrize("codec", [0, 1])
def test_counts_of_records(count, codec):
    payload = make_record() * 3
    raw = make_batch(gzip.compress(payload) if codec else payload, count, codec=codec)
    laws.agrees_with_the_reference(PACKAGE, raw)
    batches = kafka.scan(raw, errors="mark")
    records = kafka.records(batches, errors="mark")
    if count < 0:
        assert [row.fault for row in records] == [Fault.BAD_COUNT]
    elif count < 3:
        assert records["fault"].tolist() == [0] * count + [Fault.BAD_COUNT]
        assert records["size"][-1] == len(make_record()) * (3 - count)
    else:
        assert records["fault"].tolist() == [0] * 3 + [Fault.BAD_COUNT] * (count > 3)
        if count > 3:
            assert records["size"][-1] == 0


def test_wrappers_hold_only_messages():
    inner = encode_message_set(RECORDS[1:], magic=1)
    nested = make_wrapper(make_wrapper(inner))
    assert wirescan.scan(nested, "kafka.records", errors="mark")["fault"].tolist() == [Fault.NESTED]
    for payload in (
        b"",
        bytes(11),
        bytes(40),
        inner[:-1],
        inner + bytes(3),
        nested,
        inner + nested,
        struct.pack(">qi", 0, -12) + inner,
        struct.pack(">qi", 0, 2**31 - 1) + inner,
        inner[:30] + b"\xff" * 30,
    ):
        for magic in (0, 1):
            for offset in (0, 1, 9, 2**63 - 1):
                codecs = (1, 2) if magic == 0 else (1, 2, 3)
                for codec in codecs:
                    laws.agrees_with_the_reference(
                        PACKAGE, make_wrapper(payload, codec, magic, offset)
                    )


# ---- memory and time

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


CLAIMS = {
    "count": (make_batch(make_record(), 2**31 - 1), "BAD_COUNT"),
    "headers": (make_batch(make_record(header_count=2**31 - 1)), "BAD_COUNT"),
    "count gzip": (make_batch(gzip.compress(make_record()), 2**31 - 1, codec=1), "BAD_COUNT"),
    "a thousand counts": (make_batch(make_record(), 2**31 - 1) * 1000, "BAD_COUNT"),
    "length": (make_batch(make_record(length=2**31 - 1)), "TRUNCATED"),
    "value": (make_batch(make_record(value_length=2**31 - 1)), "TRUNCATED"),
    "snappy length": (make_batch(b"\xff\xff\xff\xff\x0f\x00a", codec=2), "TOO_LARGE"),
}


def test_a_claimed_size_is_not_allocated():
    inputs = {name: raw for name, (raw, _) in CLAIMS.items()}
    for name, (words, seconds) in run_each_in_little_memory(CHILD, inputs, 64).items():
        assert words[2] == CLAIMS[name][1], name
        assert seconds < 2 * SLOWNESS, name


COLUMNS_CHILD = """
import resource, sys, time
from wirescan import FrameError
from wirescan.export.batches import iter_batches
raw = sys.stdin.buffer.read()
list(iter_batches(b"", format="kafka.records"))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
start = time.process_time()
try:
    print(sum(map(len, iter_batches(raw, format="kafka.records", workers=1))), end=" ")
except FrameError as error:
    print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""


def test_columns_of_a_claimed_count_are_not_allocated():
    """There are more records than the bytes let expect, so the columns grow."""
    inputs = {"smallest records": make_batch(b"\x0c\0\0\0\1\1\0" * 100_000, 2**31 - 1)}
    ((words, seconds),) = run_each_in_little_memory(COLUMNS_CHILD, inputs, 64).values()
    assert words == ["BAD_COUNT"]
    assert seconds < 2 * SLOWNESS


def make_bomb_in_a_message_set(codec):
    packed = make_bomb(codec)
    body = struct.pack(">bbqii", 1, codec, 0, -1, len(packed)) + packed
    return correct_checksums(struct.pack(">qiI", 9, 4 + len(body), 0) + body)


@pytest.mark.slow
def test_bombs_are_refused():
    inputs = {
        f"codec {codec}": make_batch(make_bomb(codec), 1, codec=codec) for codec in (1, 2, 3, 4)
    }
    inputs |= {
        f"codec {codec} in a message set": make_bomb_in_a_message_set(codec) for codec in (1, 2, 3)
    }
    for name, (words, seconds) in run_each_in_little_memory(CHILD, inputs, 256).items():
        assert words == ["1", "0", "TOO_LARGE"], name
        assert seconds < 5 * SLOWNESS, name


@pytest.mark.parametrize(
    "filling",
    [bytes(1), b"\2" + bytes(1), b"\x0a" + bytes(5), b"\x0c\0\0\0\1\1\0"],
    ids=["no bytes", "one byte", "five bytes", "the smallest"],
)
def test_rows_are_bounded_by_bytes(filling):
    """A row takes 64 bytes, so a small payload must not give many rows.

    The smallest record has seven bytes.
    """
    payload = filling * (700_000 // len(filling))
    raw = make_batch(gzip.compress(payload), 2**31 - 1, codec=1)
    table = wirescan.scan(raw, "kafka.records", errors="mark")
    assert len(table) <= len(payload) // 7 + 1
    assert sum(table["size"].tolist()) == len(payload)


def test_limits_hold_for_a_call_as_a_whole():
    large_record = make_record(
        value=bytes(100_000),
        value_length=100_000,
        header_count=0,
        header_key_length=b"",
        header_key=b"",
        header_value_length=b"",
        header_value=b"",
        second_key_length=b"",
        second_value_length=b"",
    )
    raw = make_batch(gzip.compress(large_record), codec=1)
    batches = kafka.scan(raw * 10)
    assert not kafka.records(batches).bad.any()
    faults = kafka.records(batches, errors="mark", limits=Limits(inflated_total=350_000))["fault"]
    assert faults.tolist() == [0] * 3 + [Fault.TOO_LARGE] * 7
    assert kafka.records(batches, errors="mark", limits=Limits(inflated=99_999)).bad.all()
    with pytest.raises(FrameError) as caught:
        kafka.records(batches, limits=Limits(rows=4))
    assert caught.value.fault == Fault.LIMIT


def make_plausible_headers(size):
    """Make headers of batches that all reach to the end, each inside the batch before."""
    head = bytearray(encode_batch([], base_offset=0, last_offset=0))
    out = bytearray()
    while size - len(out) > 61:
        struct.pack_into(">i", head, 8, size - len(out) - 12)
        out += head[:17] + bytes(4) + head[21:]
    return bytes(out) + bytes(size - len(out))


def make_bad_checksums(size):
    empty_batch = encode_batch([])
    return (empty_batch[:17] + bytes(4) + empty_batch[21:]) * (size // 61)


TRAPS = {
    "plausible headers": make_plausible_headers,
    "bad magic": lambda size: (struct.pack(">qiib", 1, 14, 0, 9) + bytes(9)) * (size // 26),
    "bad checksums": make_bad_checksums,
    "lengths of zero": lambda size: (struct.pack(">qi", 1, 0) + bytes(14)) * (size // 26),
    "fillers": lambda size: struct.pack(">qi", -1, 2**31 - 1) * (size // 12),
    "zeros and a one": lambda size: (bytes(63) + b"\1") * (size // 64),
    "zeros": lambda size: b"\1" + bytes(size) + b"\1",
    "noise": lambda size: random.Random(1).randbytes(size),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    raw = trap(1 << 20)
    start = time.process_time()
    table = kafka.scan(raw, errors="mark")
    seconds = time.process_time() - start
    assert seconds < 2 * SLOWNESS, f"{seconds} seconds for a mebibyte"
    assert sum(table["size"].tolist()) + len(table.tail) == len(raw)


def test_a_stream_is_linear_in_zeros():
    stream = wirescan.stream("kafka.batches", errors="mark")
    start = time.process_time()
    for _ in range(512):
        stream.feed(bytes(32 << 10))
    stream.close()
    assert time.process_time() - start < 5 * SLOWNESS
