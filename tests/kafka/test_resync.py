"""Damage in the middle of a log: each intact batch is returned, and bad rows cover the damage."""

import mmap
import random
import struct
import zlib

import numpy as np
import pytest

import wirescan
from tests.support.kafka_bytes import RECORDS
from wirescan import Fault, Limits, kafka
from wirescan.kafka.encode.records import Record, encode_batch, encode_message_set
from wirescan.testing import laws

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def make_log(chance, batches=30):
    """List batches and messages of all magics and codecs.

    The payload of a wrapper is always compressed by gzip. Otherwise a scan would find its messages
    when the wrapper is damaged.
    """
    frames = []
    for i in range(batches):
        rows = [
            Record(
                100 * i + k,
                1000 + k,
                chance.randbytes(chance.randrange(20)),
                bytes(chance.choices(b"abc", k=chance.randrange(300))),
            )
            for k in range(chance.randrange(1, 9))
        ]
        kind = chance.randrange(8)
        if kind < 6:
            frames.append(encode_batch(rows, codec=chance.choice(CODECS)))
        else:
            magic = kind - 6
            timestamp = None if magic == 0 else 5
            row = rows[0]._replace(timestamp=timestamp, key=None, value=b"abc" * 50)
            codec = chance.choice(("none", "gzip"))
            frames.append(encode_message_set([row], magic=magic, codec=codec))
    return frames


def check_recovery(pieces, check=True):
    """Check that the good rows are the intact batches, and that bad rows cover all other bytes.

    pieces: [(bytes, True for an intact batch)] in the order of the file.
    """
    raw = b"".join(data for data, _ in pieces)
    intact, damaged = [], []
    position = 0
    for data, is_intact in pieces:
        if is_intact:
            intact.append((position, data))
        else:
            damaged.append((position, position + len(data)))
        position += len(data)
    for errors in ("mark", "skip"):
        table = kafka.scan(raw, errors=errors, check=check)
        good = table[~table.bad]
        starts = good["start"].tolist()
        assert [(start, bytes(good.frame(row))) for row, start in enumerate(starts)] == intact
    table = kafka.scan(raw, errors="mark", check=check)
    gaps = [(row.start, row.start + row.size) for row in table[table.bad]]
    if table.tail:
        gaps.append((len(raw) - len(table.tail), len(raw)))
    assert merge(gaps) == merge(damaged)


def merge(ranges):
    """Join adjacent ranges and drop empty ones."""
    joined = []
    for start, stop in ranges:
        if start == stop:
            continue
        if joined and joined[-1][1] == start:
            start, _ = joined.pop()
        joined.append((start, stop))
    return joined


def damage_batch(chance, data, how):
    """Damage a batch at a position that its checksum or its structure covers."""
    raw = bytearray(data)
    first_covered = 21 if data[16] == 2 else 16
    if how == "flip":
        raw[chance.randrange(first_covered, len(raw))] ^= 1 << chance.randrange(8)
    elif how == "delete":
        at = chance.randrange(first_covered, len(raw) - 1)
        del raw[at : at + chance.randrange(1, len(raw) - at)]
    elif how == "zeros":
        at = chance.randrange(first_covered, len(raw) - 1)
        raw[at : at + chance.randrange(1, 64)] = bytes(63)
    else:
        length = len(raw) - 12
        lengths = {
            "short": chance.randrange(14, length),
            "long": length + chance.randrange(1, 3000),
            "tiny": chance.randrange(14),
            "negative": -chance.randrange(1, 2**31),
            "huge": 2**31 - 1 - chance.randrange(1000),
        }
        struct.pack_into(">i", raw, 8, lengths[how])
    return bytes(raw)


@pytest.mark.parametrize(
    "how", ["flip", "delete", "zeros", "short", "long", "tiny", "negative", "huge"]
)
def test_batches_around_damage_are_found(how):
    for seed in range(25):
        chance = random.Random(f"{how} {seed}")
        pieces = [(data, True) for data in make_log(chance)]
        for number in chance.sample(range(len(pieces)), chance.randrange(1, 4)):
            data = damage_batch(chance, pieces[number][0], how)
            pieces[number] = (data, data == pieces[number][0])
        check_recovery(pieces)


@pytest.mark.parametrize(
    "garbage",
    [
        lambda chance, size: chance.randbytes(size),
        lambda chance, size: bytes(size),
        lambda chance, size: b"\xff" * size,
        lambda chance, size: encode_batch(RECORDS)[: size % 60 + 1],
    ],
    ids=["noise", "zeros", "ones", "a cut batch"],
)
def test_garbage_between_batches_is_one_fault(garbage):
    for seed in range(25):
        chance = random.Random(seed)
        pieces = [(data, True) for data in make_log(chance)]
        for _ in range(chance.randrange(1, 4)):
            size = chance.choice((1, 11, 12, 13, 61, 1000, 65536))
            pieces.insert(chance.randrange(len(pieces)), (garbage(chance, size), False))
        check_recovery(pieces)


def test_flips_anywhere_lose_only_their_batches():
    for seed in range(40):
        chance = random.Random(seed)
        batches = make_log(chance, 60)
        raw = bytearray(b"".join(batches))
        flips = [chance.randrange(len(raw)) for _ in range(chance.randrange(1, 20))]
        for at in flips:
            raw[at] ^= 1 << chance.randrange(8)
        table = kafka.scan(bytes(raw), errors="skip")
        starts = set(table["start"].tolist())
        position = 0
        for data in batches:
            if not any(position <= flip < position + len(data) for flip in flips):
                assert position in starts, (seed, position)
            position += len(data)


def test_a_length_that_includes_the_next_batch_loses_two():
    """No byte shows that two batches are lost. The batch after them is returned."""
    first, second, third = (encode_batch([Record(i, i, None, b"value" * i)]) for i in (1, 2, 3))
    longer = bytearray(first)
    struct.pack_into(">i", longer, 8, len(first) + len(second) - 12)
    check_recovery([(bytes(longer) + second, False), (third, True)])


def test_batches_inside_a_payload_are_payload():
    inner = encode_batch(RECORDS) + encode_message_set([b"old"])
    carrier = encode_batch([Record(0, 0, inner, inner * 3)])
    tail = encode_batch([Record(1, 0, None, b"after")])
    for raw in (carrier, carrier + tail, carrier * 2 + tail):
        table = kafka.scan(raw, errors="mark")
        assert not table.bad.any()
        assert set(table["size"].tolist()) <= {len(carrier), len(tail)}
    flipped = bytearray(carrier)
    flipped[-1] ^= 1  # damages the payload and not the length
    table = kafka.scan(bytes(flipped) + tail, errors="mark")
    assert table["fault"].tolist() == [Fault.BAD_CHECKSUM, 0]


@pytest.mark.slow
def test_batches_behind_a_gap_of_more_than_4_gib():
    """A row spans less than 4 GiB, so the gap has several rows.

    Most of the memory is never written, so the system does not allocate it. The scan must read all
    zeros of the gap to find its end. The next test is fast and has positions beyond 2 GiB.
    """
    first = encode_batch(RECORDS)
    last = encode_batch([Record(99, 1, None, b"far")])
    far = (9 << 29) + 12345
    data = np.zeros(far + len(last), np.uint8)
    data[: len(first) + 12] = np.frombuffer(first + b"\xff" * 12, np.uint8)
    data[far:] = np.frombuffer(last, np.uint8)
    table = kafka.scan(data, errors="mark")
    assert table["fault"].tolist() == [0, Fault.BAD_LENGTH, Fault.BAD_LENGTH, 0]
    ends = table["start"] + table["size"].astype("i8")
    assert table["start"].tolist()[1:] == ends.tolist()[:-1]
    assert table.consumed == len(data)
    records = kafka.records(table[~table.bad])
    assert records["offset"].tolist() == [5, 7, 8, 99]
    assert bytes(records[3].value) == b"far"
    assert records.positions.tolist() == [0, 0, 0, far]


def test_positions_beyond_2_gib():
    """A batch at a far position, and a batch of the largest possible size.

    Most of the memory is never touched.
    """
    big = mmap.mmap(-1, (5 << 29))
    data = encode_batch(RECORDS)
    start = (4 << 29) + 7
    big[start : start + len(data)] = data
    table = kafka.scan(memoryview(big)[start : start + len(data)])
    assert laws.describe_rows(kafka.records(table)) == laws.describe_rows(
        wirescan.scan(data, "kafka.records")
    )
    struct.pack_into(">qi", big, 0, 1, 2**31 - 1)  # the largest length, of a batch of 2 GiB
    big[16] = 2
    huge = memoryview(big)[: (1 << 31) + 11]
    table = kafka.scan(huge, errors="mark", check=False, limits=Limits(frame=len(huge)))
    assert table["size"].tolist() == [2**31 + 11]
    assert not table.tail
    assert kafka.records(table, errors="mark", check=False)["size"].tolist() == [2**31 + 11 - 61]


def list_spans(tables):
    """List (position, size, fault) of each row."""
    return [
        span
        for table in tables
        for span in zip(table.positions.tolist(), table["size"].tolist(), table["fault"].tolist())
    ]


def list_spans_in_chunks(raw, size):
    """List the spans that a stream returns for chunks of a size."""
    stream = wirescan.stream("kafka.batches", errors="mark")
    tables = [stream.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    return list_spans([*tables, stream.close()])


def test_headers_with_false_lengths_hide_no_batch():
    """Each header looks like that of a batch to the end of the file.

    To verify such a header, the scan must read the file to its end.
    """
    good = [encode_batch([Record(i, 1, None, bytes(3000))], base_offset=i) for i in range(300)]
    rest = sum(map(len, good))
    fakes = b""
    for _ in range(100):
        length = 61 + len(fakes) + rest - 12
        fake = struct.pack(">qiibIhiqqqhii", 1, length, 0, 2, 0xDEADBEEF, 0, 0, 1, 1, -1, -1, -1, 1)
        fakes = fake + fakes
    check_recovery([(b"\xff" * 20 + fakes, False), *((data, True) for data in good)])


@pytest.mark.parametrize(
    "unusual",
    [
        encode_batch([Record(5, 1, b"k", b"v")] * 3),
        encode_batch([Record(-5, 1, b"k", b"v")]),
        encode_batch([Record(5, 1, b"k", b"v")], leader_epoch=-2),
    ],
    ids=["more records than offsets", "a negative offset", "an unknown epoch"],
)
def test_unusual_batches_behind_a_bad_one(unusual):
    """A search takes none of them for a batch. But a length leads to it, and its checksum fits."""
    bad = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    bad[-2] ^= 1
    last = encode_batch([Record(9, 1, None, None)])
    check_recovery([(bytes(bad), False), (unusual, True), (last, True)])
    raw = bytes(bad) + unusual + last
    for size in (1, 50, 100, 1000):
        assert list_spans_in_chunks(raw, size) == list_spans([kafka.scan(raw, errors="mark")])


@pytest.mark.parametrize("size", [1, 100, 240])
def test_a_stream_waits_for_the_rest_of_a_possible_message(size):
    """A damaged length ends inside a good batch, at bytes that may be a message.

    The key of that message has not arrived yet.
    """
    fake = struct.pack(">qiIbbi", 0, 288, 0, 0, 0, 200)
    good = encode_batch([Record(1, 1, b"k", fake + b"x" * 260)], base_offset=1)
    bad = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    struct.pack_into(">i", bad, 8, len(bad) - 12 + good.index(fake))
    raw = bytes(bad) + good + encode_batch([Record(2, 1, b"k", b"v")], base_offset=2)
    whole = list_spans([kafka.scan(raw, errors="mark")])
    assert list_spans_in_chunks(raw, size) == whole
    assert [fault for *_, fault in whole] == [4, 0, 0]


@pytest.mark.parametrize("size", [1, 35, 54, 72, 100])
def test_a_stream_waits_for_the_rest_of_a_wrapper(size):
    """The wrapper contains an uncompressed message, because snappy can store literal bytes.

    That message arrives whole before the wrapper does.
    """
    inner = encode_message_set([Record(0, 5, None, b"v")], magic=1)
    block = bytes([len(inner), len(inner) - 1 << 2]) + inner  # one literal
    body = struct.pack(">bbqii", 1, 2, 5, -1, len(block)) + block
    wrapper = struct.pack(">qiI", 7, 4 + len(body), zlib.crc32(body)) + body
    assert [bytes(row.value) for row in kafka.records(kafka.scan(wrapper))] == [b"v"]
    bad = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    struct.pack_into(">i", bad, 8, len(bad) + 40)
    raw = bytes(bad) + wrapper + encode_batch([Record(9, 1, None, None)], base_offset=9)
    whole = list_spans([kafka.scan(raw, errors="mark")])
    assert list_spans_in_chunks(raw, size) == whole
    assert [fault for *_, fault in whole][1:] == [0, 0]
