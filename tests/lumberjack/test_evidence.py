"""How many bits Lumberjack frames are worth in bytes of another kind."""

import struct
import zlib

import pytest

from wirescan import lumberjack
from wirescan.lumberjack.evidence import weigh_frames, weigh_frames_alone

START = 12
BYTE = 8


def make_json(payload):
    return b"2J" + struct.pack(">II", 1, len(payload)) + payload


def make_compressed(payload):
    return b"2C" + struct.pack(">I", len(payload)) + payload


SMALL = 29  # bits that the number 1 is worth among 32 bits
# (frame, its bits)
FRAMES = [
    (lumberjack.encode_window(1), START + SMALL),
    (lumberjack.encode_ack(1 << 31), START),
    (lumberjack.encode_ack(1), START + SMALL),
    (make_json(b"{}"), START + SMALL + 2 * BYTE),
    (make_json(b'{"a":1'), START + SMALL + BYTE),
    (make_json(b"[{}"), START + SMALL + BYTE),
    (make_json(b"{"), START + SMALL + BYTE),
    (make_json(b"}"), START + SMALL + BYTE),
    (make_compressed(zlib.compress(b"x")), START + BYTE + BYTE // 2),
    (make_compressed(b"\x78\x00"), START),
    (make_compressed(b"\x79\x9c"), START),
    (make_compressed(b"\x78"), START),
    (make_compressed(b""), START),
    (lumberjack.encode_data(1, {b"a": b"b"}), START + SMALL),
]


@pytest.mark.parametrize(("frame", "bits"), FRAMES)
def test_the_weight_of_a_frame(frame, bits):
    assert weigh_frames(lumberjack.scan(bytes(frame))).tolist() == [bits]


def test_frames_of_several_buffers_have_their_own_weights():
    frames = [bytes(frame) for frame, _ in FRAMES]
    bits = [value for _, value in FRAMES]
    assert weigh_frames(lumberjack.scan(b"".join(frames))).tolist() == bits
    assert weigh_frames(lumberjack.scan(frames)).tolist() == bits
    assert weigh_frames(lumberjack.scan(b"")).tolist() == []


def test_a_long_frame_of_pairs_is_worth_nothing_after_lost_bytes():
    table = lumberjack.scan(
        bytes(lumberjack.encode_data(1, {b"a": b"b" * 1100})) + make_json(b"{" + b"x" * 1100)
    )
    assert weigh_frames(table).tolist() == [START + SMALL, START + SMALL + BYTE]
    assert weigh_frames_alone(table).tolist() == [0, START + SMALL + BYTE]
