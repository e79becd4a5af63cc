"""Damage in the middle of a log: every intact batch is delivered, and the gaps say exactly what was lost."""
import mmap
import random
import struct
import zlib

import numpy as np
import pytest

import laws
import wirescan
from golden import RECORDS
from wirescan import Fault, Limits, kafka
from wirescan.kafka.encode import Record, encode_batch, encode_message_set

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def log(random, batches=30):
    """Batches and messages of all magics and codecs, in a list.

    The messages of a wrapper do not stand in it as they are: else a search would find them when the wrapper is damaged.
    """
    out = []
    for i in range(batches):
        rows = [Record(100 * i + k, 1000 + k, random.randbytes(random.randrange(20)),
                       bytes(random.choices(b"abc", k=random.randrange(300)))) for k in range(random.randrange(1, 9))]
        kind = random.randrange(8)
        if kind < 6:
            out.append(encode_batch(rows, codec=random.choice(CODECS)))
        else:
            rows = [rows[0]._replace(timestamp=None if kind == 6 else 5, key=None, value=b"abc" * 50)]
            out.append(encode_message_set(rows, magic=kind - 6, codec=random.choice(("none", "gzip"))))
    return out


def check_recovery(pieces, check=True):
    """pieces: (bytes, True for an intact batch), in order: all of those, and nothing but those, are good rows."""
    raw = b"".join(data for data, _ in pieces)
    want, at, lost = [], 0, []
    for data, intact in pieces:
        if intact:
            want.append((at, data))
        else:
            lost.append((at, at + len(data)))
        at += len(data)
    for errors in ("mark", "skip"):
        table = kafka.scan(raw, errors=errors, check=check)
        good = table[~table.bad]
        assert [(start, bytes(good.frame(i))) for i, start in enumerate(good["start"].tolist())] == want
    table = kafka.scan(raw, errors="mark", check=check)
    gaps = [(row.start, row.start + row.size) for row in table[table.bad]]
    if table.tail:
        gaps.append((len(raw) - len(table.tail), len(raw)))
    assert merged(gaps) == merged(lost)


def merged(ranges):
    out = []
    for start, end in ranges:
        if start == end:
            continue
        if out and out[-1][1] == start:
            start = out.pop()[0]
        out.append((start, end))
    return out


def damaged(random, data, how):
    """A damaged batch, in a place that its checksum or its structure tells."""
    out = bytearray(data)
    checked = 21 if data[16] == 2 else 16
    if how == "flip":
        out[random.randrange(checked, len(out))] ^= 1 << random.randrange(8)
    elif how == "delete":
        at = random.randrange(checked, len(out) - 1)
        del out[at:at + random.randrange(1, len(out) - at)]
    elif how == "zeros":
        at = random.randrange(checked, len(out) - 1)
        out[at:at + random.randrange(1, 64)] = bytes(63)
    else:
        size = len(out) - 12
        number = {"short": random.randrange(14, size), "long": size + random.randrange(1, 3000),
                  "tiny": random.randrange(14), "negative": -random.randrange(1, 2**31),
                  "huge": 2**31 - 1 - random.randrange(1000)}[how]
        struct.pack_into(">i", out, 8, number)
    return bytes(out)


@pytest.mark.parametrize("how", ["flip", "delete", "zeros", "short", "long", "tiny", "negative", "huge"])
def test_damaged_batches(how):
    for seed in range(25):
        chance = random.Random(f"{how} {seed}")
        pieces = [(data, True) for data in log(chance)]
        for at in chance.sample(range(len(pieces)), chance.randrange(1, 4)):
            data = damaged(chance, pieces[at][0], how)
            pieces[at] = (data, data == pieces[at][0])
        check_recovery(pieces)


@pytest.mark.parametrize("garbage", [
    lambda chance, size: chance.randbytes(size), lambda chance, size: bytes(size),
    lambda chance, size: b"\xff" * size, lambda chance, size: encode_batch(RECORDS)[:size % 60 + 1],
], ids=["noise", "zeros", "ones", "a cut batch"])
def test_garbage_between_batches(garbage):
    for seed in range(25):
        chance = random.Random(seed)
        pieces = [(data, True) for data in log(chance)]
        for _ in range(chance.randrange(1, 4)):
            size = chance.choice((1, 11, 12, 13, 61, 1000, 65536))
            pieces.insert(chance.randrange(len(pieces)), (garbage(chance, size), False))
        check_recovery(pieces)


def test_flips_anywhere():
    for seed in range(40):
        chance = random.Random(seed)
        batches = log(chance, 60)
        raw = bytearray(b"".join(batches))
        flips = [chance.randrange(len(raw)) for _ in range(chance.randrange(1, 20))]
        for at in flips:
            raw[at] ^= 1 << chance.randrange(8)
        table = kafka.scan(bytes(raw), errors="skip")
        found, at = set(table["start"].tolist()), 0
        for data in batches:
            if not any(at <= flip < at + len(data) for flip in flips):
                assert at in found, (seed, at)
            at += len(data)


def test_a_length_that_takes_in_the_next_batch_whole():
    """Nothing shows that two batches were lost and not one; what follows is delivered."""
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
        assert not table.bad.any() and set(table["size"].tolist()) <= {len(carrier), len(tail)}
    flipped = bytearray(carrier)
    flipped[-1] ^= 1                                        # its length is fine, only the payload is not
    table = kafka.scan(bytes(flipped) + tail, errors="mark")
    assert table["fault"].tolist() == [Fault.BAD_CHECKSUM, 0]


@pytest.mark.slow
def test_batches_behind_a_gap_of_more_than_4_gib():
    """A row spans less than 4 GiB, so the gap is several. Nearly all of the memory is never written, so not taken.

    Finding the end of the gap means to read all of its zeros. The next test has places beyond 2 GiB, and is fast.
    """
    first, last = encode_batch(RECORDS), encode_batch([Record(99, 1, None, b"far")])
    far = (9 << 29) + 12345
    data = np.zeros(far + len(last), np.uint8)
    data[:len(first) + 12] = np.frombuffer(first + b"\xff" * 12, np.uint8)
    data[far:] = np.frombuffer(last, np.uint8)
    table = kafka.scan(data, errors="mark")
    assert table["fault"].tolist() == [0, Fault.BAD_LENGTH, Fault.BAD_LENGTH, 0]
    assert table["start"].tolist()[1:] == (table["start"] + table["size"].astype("i8")).tolist()[:-1]
    assert table.consumed == len(data)
    records = kafka.records(table[~table.bad])
    assert records["offset"].tolist() == [5, 7, 8, 99] and bytes(records[3].value) == b"far"
    assert records.positions.tolist() == [0, 0, 0, far]


def test_places_beyond_2_gib():
    """A batch at a far offset, and one of the largest size that there is; the memory is mostly never touched."""
    big = mmap.mmap(-1, (5 << 29))
    data = encode_batch(RECORDS)
    start = (4 << 29) + 7
    big[start:start + len(data)] = data
    table = kafka.scan(memoryview(big)[start:start + len(data)])
    assert laws.meaning(kafka.records(table)) == laws.meaning(wirescan.scan(data, "kafka.records"))
    struct.pack_into(">qi", big, 0, 1, 2**31 - 1)           # a batch of 2 GiB, as large as a length can say
    big[16] = 2
    huge = memoryview(big)[:(1 << 31) + 11]
    table = kafka.scan(huge, errors="mark", check=False, limits=Limits(frame=len(huge)))
    assert table["size"].tolist() == [2**31 + 11] and not table.tail
    assert kafka.records(table, errors="mark", check=False)["size"].tolist() == [2**31 + 11 - 61]


def spans_of(tables):
    return [(at, size, fault) for table in tables for at, size, fault in zip(
        table.positions.tolist(), table["size"].tolist(), table["fault"].tolist())]


def test_headers_that_claim_everything_hide_nothing():
    """Each looks like that of a batch to the end of the file, and is verified at the cost of the whole of it."""
    good = [encode_batch([Record(i, 1, None, bytes(3000))], base_offset=i) for i in range(300)]
    rest = b"".join(good)
    fakes = b""
    for _ in range(100):
        claim = 61 + len(fakes) + len(rest)
        fakes = struct.pack(">qiibIhiqqqhii", 1, claim - 12, 0, 2, 0xDEADBEEF, 0, 0, 1, 1, -1, -1, -1, 1) + fakes
    check_recovery([(b"\xff" * 20 + fakes, False), *((one, True) for one in good)])


@pytest.mark.parametrize("unusual", [
    encode_batch([Record(5, 1, b"k", b"v")] * 3), encode_batch([Record(-5, 1, b"k", b"v")]),
    encode_batch([Record(5, 1, b"k", b"v")], leader_epoch=-2)],
    ids=["more records than offsets", "a negative offset", "an unknown epoch"])
def test_unusual_batches_behind_a_bad_one(unusual):
    """No search would take them for batches, but a length leads to them, and their checksum is right."""
    bad = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    bad[-2] ^= 1
    last = encode_batch([Record(9, 1, None, None)])
    check_recovery([(bytes(bad), False), (unusual, True), (last, True)])
    for size in (1, 50, 100, 1000):
        stream, raw = wirescan.stream("kafka.batches", errors="mark"), bytes(bad) + unusual + last
        tables = [stream.feed(raw[at:at + size]) for at in range(0, len(raw), size)]
        assert spans_of([*tables, stream.close()]) == spans_of([kafka.scan(raw, errors="mark")])


@pytest.mark.parametrize("size", [1, 100, 240])
def test_what_only_later_bytes_tell_is_waited_for(size):
    """A damaged length ends inside a good batch, at what may be a message whose key has not arrived yet."""
    fake = struct.pack(">qiIbbi", 0, 288, 0, 0, 0, 200)
    good = encode_batch([Record(1, 1, b"k", fake + b"x" * 260)], base_offset=1)
    bad = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    struct.pack_into(">i", bad, 8, len(bad) - 12 + good.index(fake))
    raw = bytes(bad) + good + encode_batch([Record(2, 1, b"k", b"v")], base_offset=2)
    stream = wirescan.stream("kafka.batches", errors="mark")
    tables = [stream.feed(raw[at:at + size]) for at in range(0, len(raw), size)]
    whole = spans_of([kafka.scan(raw, errors="mark")])
    assert spans_of([*tables, stream.close()]) == whole and [fault for *_, fault in whole] == [4, 0, 0]


@pytest.mark.parametrize("size", [1, 35, 54, 72, 100])
def test_a_wrapper_that_is_still_to_come_is_waited_for(size):
    """A message lies in it as it is, since snappy found nothing to compress; it arrives whole before the wrapper does."""
    inner = encode_message_set([Record(0, 5, None, b"v")], magic=1)
    block = bytes([len(inner), len(inner) - 1 << 2]) + inner            # one literal
    body = struct.pack(">bbqii", 1, 2, 5, -1, len(block)) + block
    wrapper = struct.pack(">qiI", 7, 4 + len(body), zlib.crc32(body)) + body
    assert [bytes(row.value) for row in kafka.records(kafka.scan(wrapper))] == [b"v"]
    bad = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    struct.pack_into(">i", bad, 8, len(bad) + 40)
    raw = bytes(bad) + wrapper + encode_batch([Record(9, 1, None, None)], base_offset=9)
    stream = wirescan.stream("kafka.batches", errors="mark")
    tables = [stream.feed(raw[at:at + size]) for at in range(0, len(raw), size)]
    whole = spans_of([kafka.scan(raw, errors="mark")])
    assert spans_of([*tables, stream.close()]) == whole and [fault for *_, fault in whole][1:] == [0, 0]
