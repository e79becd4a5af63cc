"""Damaged streams in chunks: rows, faults and tail are those of a whole scan, for all cuts.

The frames have intact frames in their payloads: a search must find them in both cases or in none.
"""

import random

import numpy as np
import pytest
from crc32c import crc32c

import wirescan
from tests.laws.packages import PACKAGES
from tests.strategies import kafka_redpanda
from wirescan import Fault, FrameError, Limits, kafka, liftbridge, lumberjack, nats, thrift
from wirescan.core.loop import HEAD
from wirescan.files.file_identity import make_offset
from wirescan.frames.registry import format_of
from wirescan.reading.chunked import iter_tables
from wirescan.reading.growing import GrowingFiles
from wirescan.testing import laws

FILLING = b"x" * 40


def make_batch(value):
    return kafka.encode_batch([value, FILLING])


def make_redpanda_batch(value):
    return kafka_redpanda.make_batch(make_batch(value))


def make_entry(value):
    return liftbridge.encode_entry(7, 1_700_000_000_000_000_000, 1, b"key", value)


def make_call(text):
    arguments = b"\x0b\0\1" + len(text).to_bytes(4, "big") + text + b"\0"
    return thrift.encode_frame(thrift.encode_message("add", thrift.MessageType.CALL, 1, arguments))


CARRIERS = {
    "kafka": make_batch,
    "redpanda": make_redpanda_batch,
    "lumberjack": lambda value: lumberjack.encode_data(
        1, [(b"line", value), (b"filling", FILLING)]
    ),
    "nats": lambda value: nats.encode_pub("events", value + FILLING),
    "liftbridge.entries": make_entry,
    "thrift": make_call,
}


def make_streams(carry):
    """Good streams of three frames; the second carries an intact one."""
    first, last = carry(b"first"), carry(b"last")
    yield first + carry(carry(b"phantom")) + last
    yield first + bytes(90) + last
    yield first + bytes(90) + b"\xff\xfe" + bytes(30) + last
    yield first + b"garbage" * 5 + last


@pytest.mark.parametrize("name", CARRIERS)
def test_damaged_bytes_cut_anywhere(name, stride):
    chance = random.Random(name)
    step = 1 if stride == 1 else 5 * stride  # each position costs five streams in three modes
    for raw in make_streams(CARRIERS[name]):
        for position in range(len(raw) % step, len(raw), step):
            damaged = bytearray(raw)
            damaged[position] = chance.choice((0, 3, 0x7F, 0xFF, raw[position] ^ 1))
            single = (position, position + 1, chance.randrange(len(raw)), len(raw) - 1)
            several = sorted(chance.sample(range(len(raw)), 5))
            laws.chunks_change_nothing(
                PACKAGES[name], bytes(damaged), *([cut] for cut in single), several
            )


def make_long_gaps(carry, chance, longest):
    """Return frames with damage between them that is longer than `longest` bytes."""
    frames = [carry(b"first"), carry(carry(b"inner")), carry(b"x" * 3 * longest), carry(b"last")]
    damaged = bytearray(carry(b"damaged" * chance.randrange(1, 20)))
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    gaps = [
        bytes(chance.randrange(4 * longest)),
        chance.randbytes(chance.randrange(4 * longest)),
        b"text " * chance.randrange(longest),
        bytes(damaged),
        frames[0][: chance.randrange(len(frames[0]))],
    ]
    parts = [chance.choice(frames) + chance.choice(gaps) + chance.choice(gaps) for _ in range(3)]
    return b"".join(parts)


@pytest.mark.parametrize("name", CARRIERS)
def test_a_gap_longer_than_a_frame_may_be(name, stride):
    chance = random.Random(name)
    for longest in (64, 160):
        for _ in range(2):
            raw = make_long_gaps(CARRIERS[name], chance, longest)
            step = 29 * stride
            laws.chunks_change_nothing(
                PACKAGES[name],
                raw,
                *([cut] for cut in range(chance.randrange(step), len(raw), step)),
                list(range(1, len(raw), 9)),
                check=chance.random() < 0.7,
                limits=Limits(frame=longest),
            )


LONGEST = 64 << 10


def make_false_batch():
    """Return the header of a batch of 60 KB whose checksum is wrong."""
    header = bytearray(kafka.encode_batch([b"x" * 60_000])[:61])
    header[17] ^= 1
    return bytes(header)


def make_false_redpanda_batch():
    """Return the header of a batch of Redpanda of 60 KB, without its records."""
    return make_redpanda_batch(b"x" * 60_000)[:61]


def make_false_entry():
    """Return the header of an entry of 60 KB whose checksum is wrong."""
    header = bytearray(make_entry(b"x" * 60_000)[:60])
    header[28] ^= 1
    return bytes(header)


def make_false_call():
    """Return the length and the header of a THeader frame of 60 KB that nothing follows."""
    return thrift.encode_frame(b"x" * 60_000)[:64]


FALSE_FRAMES = {
    "kafka": make_false_batch,
    "redpanda": make_false_redpanda_batch,
    "liftbridge.entries": make_false_entry,
    "thrift": make_false_call,
}


def exhaust_budget(name):
    """Return bytes with four frames, of which a search finds fewer."""
    large = CARRIERS[name](b"y" * 40_000)
    false = FALSE_FRAMES[name]() + bytes(9)
    raw = b"\xff" + false * 300 + large + false * 40 + large + large + b"\xff" + large
    found = wirescan.scan(raw, PACKAGES[name].formats[0], errors="skip")
    assert len(found) < 4, "the budget is not exhausted"
    return raw


@pytest.mark.parametrize("name", FALSE_FRAMES)
def test_false_frames_that_exhaust_the_budget(name, stride):
    """The budget for false frames belongs to a position, not to the chunk that contains it."""
    chance = random.Random(name)
    raw = exhaust_budget(name)
    count = 1 + 4 // stride
    cuts = [sorted(chance.sample(range(len(raw)), 3)) for _ in range(count)]
    steps = list(range(chance.randrange(5000), len(raw), 20_000))
    laws.chunks_change_nothing(PACKAGES[name], raw, *cuts, steps, limits=Limits(frame=LONGEST))


@pytest.mark.parametrize("name", FALSE_FRAMES)
def test_each_stream_has_a_budget(name):
    """What the search in one stream costs does not count in the next one."""
    raw = exhaust_budget(name)
    spans = np.zeros(2, HEAD)
    spans["size"] = len(raw)
    spans["start"] = 0, len(raw)
    spans["parent"] = 0, 1
    scan = format_of(PACKAGES[name].formats[0]).parser.spans
    limits = Limits(frame=LONGEST)
    rows, *_ = scan((raw + raw,), spans, check=True, resync=True, limits=limits)
    first = rows[rows["parent"] == 0]
    second = rows[rows["parent"] == 1]
    assert np.count_nonzero(first["fault"] == 0) == len(
        wirescan.scan(raw, PACKAGES[name].formats[0], errors="skip", limits=limits)
    )
    assert (second["start"] - len(raw)).tolist() == first["start"].tolist()


@pytest.mark.parametrize("name", FALSE_FRAMES)
def test_a_repeated_search_is_free(name):
    """A stream searches held bytes again when more bytes come. Only one search is charged."""
    large = CARRIERS[name](b"y" * 40_000)
    false = FALSE_FRAMES[name]() + bytes(9)
    raw = b"\xff" + false * 18 + b"\xff" * 60_000 + false * 2 + large + large
    found = wirescan.scan(raw, PACKAGES[name].formats[0], errors="skip")
    assert len(found) == 2, "the budget is exhausted"
    cuts = list(range(63_000, len(raw), 1000))
    laws.chunks_change_nothing(PACKAGES[name], raw, cuts, limits=Limits(frame=LONGEST))


EMPTY_CALL = bytes(thrift.encode_message("", thrift.MessageType.CALL, 0, b"\0"))
FRAMED_CALL = len(EMPTY_CALL).to_bytes(4, "big") + EMPTY_CALL


def make_long_strings(longest):
    """Return messages without a length, with a string that ends one byte after `longest`."""
    string = EMPTY_CALL[:-1] + b"\x0b\0\1" + (longest + 1 - len(EMPTY_CALL) - 6).to_bytes(4, "big")
    return (FRAMED_CALL + string) * 25


def make_open_responses(longest):
    """Return HTTP responses without a length, whose heads all end with the last of them."""
    response = FRAMED_CALL + b"HTTP/1.1 200 OK\r\n"
    return response * (longest // len(response) - 20) + b"\r\n"


@pytest.mark.parametrize("make", [make_long_strings, make_open_responses])
def test_messages_without_a_length_that_exceed_the_limit(make):
    """What a candidate costs does not depend on the bytes after the longest frame."""
    chance = random.Random(make.__name__)
    message = bytes(thrift.encode_message("add", thrift.MessageType.CALL, 1, b"\0"))
    raw = make(LONGEST) + FRAMED_CALL + message + FRAMED_CALL * 5000
    cuts = [sorted(chance.sample(range(len(raw)), 3)), list(range(100, len(raw), 3000))]
    laws.chunks_change_nothing(PACKAGES["thrift"], raw, *cuts, limits=Limits(frame=LONGEST))


@pytest.mark.parametrize("name", CARRIERS)
def test_a_file_with_long_gaps_in_pieces(name, tmp_path):
    chance = random.Random(name)
    path = tmp_path / "file"
    outermost = PACKAGES[name].formats[0]
    for longest in (64, 256):
        options = dict(errors="mark", limits=Limits(frame=longest))
        raw = make_long_gaps(CARRIERS[name], chance, longest)
        path.write_bytes(raw)
        whole = wirescan.scan(raw, outermost, **options)
        expected = laws.merge_gaps([whole], laws.describe_rows(whole))
        for piece in (1, 50, 300, 1 << 20):
            tables = list(iter_tables(str(path), format=outermost, piece=piece, **options))
            rows = [row for table in tables for row in laws.describe_rows(table)]
            assert laws.merge_gaps(tables, rows) == expected
            assert bytes(tables[-1].tail) == bytes(whole.tail)


@pytest.mark.parametrize("name", CARRIERS)
def test_a_growing_file_with_long_gaps(name, tmp_path, monkeypatch):
    """The rows of all parts are those of a whole scan, however the file grew."""
    chance = random.Random(name)
    monkeypatch.setattr("wirescan.reading.growing.CHUNK_BYTES", 100)
    outermost = PACKAGES[name].formats[0]
    for number, longest in enumerate((64, 256)):
        options = dict(errors="mark", limits=Limits(frame=longest))
        path = tmp_path / f"file{number}"
        raw = make_long_gaps(CARRIERS[name], chance, longest) + CARRIERS[name](b"end")
        whole = wirescan.scan(raw, outermost, **options)
        good = [row for row in laws.describe_rows(whole) if row[0] >= 0]
        good = [row for row, bad in zip(good, whole.bad.tolist()) if not bad]
        files = GrowingFiles([str(path)], outermost, **options)
        offset = make_offset({})
        found = []
        cuts = sorted(chance.sample(range(len(raw)), 4))
        for start, stop in zip([0, *cuts], [*cuts, len(raw)]):
            with path.open("ab") as file:
                file.write(raw[start:stop])
            later = files.find_latest(offset)
            for part in (part for parts in files.plan_tasks(offset, later) for part in parts):
                for _, table in files.read_tables(part, chunk_bytes=70):
                    rows = zip(laws.describe_rows(table), table.bad.tolist())
                    found += [row for row, bad in rows if not bad]
            offset = later
        assert found == good[: len(found)]
        assert len(found) >= len(good) - 1


def test_a_batch_inside_a_damaged_batch_is_no_data(stride):
    raw = bytearray(kafka.encode_batch([bytes(kafka.encode_batch([b"phantom"])), b"x" * 200]))
    raw[16] = 3
    laws.chunks_change_nothing(
        PACKAGES["kafka"], bytes(raw), *([cut] for cut in range(1, len(raw), stride))
    )


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_missing_records_are_a_fault_of_their_batch(codec):
    good = kafka.encode_batch([b"a"])
    damaged = bytearray(kafka.encode_batch([b"a", b"b"], codec=codec))
    damaged[23:27] = (4).to_bytes(4, "big")  # last offset delta
    damaged[57:61] = (5).to_bytes(4, "big")  # records
    damaged[17:21] = crc32c(bytes(damaged[21:])).to_bytes(4, "big")
    with pytest.raises(FrameError) as caught:
        wirescan.scan(good + bytes(damaged) + good, "kafka.records")
    error = caught.value
    assert (error.fault, error.offset, error.inflated) == (
        Fault.BAD_COUNT,
        len(good),
        codec == "gzip",
    )
    assert error.near == bytes(damaged[:16])


def test_a_receiver_names_the_same_fault_however_its_bytes_arrive():
    damaged = lumberjack.encode_compressed(lumberjack.encode_json(1, b"{}"))[:-4]
    raw = lumberjack.encode_window(1) + damaged + b"garbage....."
    faults = set()
    for cut in range(len(raw)):
        receiver = lumberjack.Receiver()
        with pytest.raises(FrameError) as caught:
            receiver.receive(raw[:cut])
            receiver.receive(raw[cut:])
        faults.add((caught.value.fault, caught.value.offset))
    assert faults == {(Fault.BAD_CHECKSUM, 12)}
