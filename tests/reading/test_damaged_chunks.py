"""Damaged streams in chunks: rows, faults and tail are those of a whole scan, for all cuts.

The frames have intact frames in their payloads: a search must find them in both cases or in none.
"""

import random

import pytest
from crc32c import crc32c

import wirescan
from tests.laws import laws
from tests.laws.packages import PACKAGES
from wirescan import Fault, FrameError, kafka, liftbridge, lumberjack, nats, thrift

FILLING = b"x" * 40


def make_batch(value):
    return kafka.encode_batch([value, FILLING])


def make_entry(value):
    return liftbridge.encode_entry(7, 1_700_000_000_000_000_000, 1, b"key", value)


def make_call(text):
    arguments = b"\x0b\0\1" + len(text).to_bytes(4, "big") + text + b"\0"
    return thrift.encode_frame(thrift.encode_message("add", thrift.MessageType.CALL, 1, arguments))


CARRIERS = {
    "kafka": make_batch,
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
    step = 1 if stride == 1 else 3 * stride  # each position costs five streams in three modes
    for raw in make_streams(CARRIERS[name]):
        for position in range(len(raw) % step, len(raw), step):
            damaged = bytearray(raw)
            damaged[position] = chance.choice((0, 3, 0x7F, 0xFF, raw[position] ^ 1))
            single = (position, position + 1, chance.randrange(len(raw)), len(raw) - 1)
            several = sorted(chance.sample(range(len(raw)), 5))
            laws.chunks_change_nothing(
                PACKAGES[name], bytes(damaged), *([cut] for cut in single), several
            )


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
