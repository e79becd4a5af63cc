"""zstd has the same results and faults with libzstd and without it."""

import random
import struct

import cramjam
import numpy as np
import pytest

from wirescan.core import libdeflate, libzstd
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.rows import Block
from wirescan.core.span_decompressor import FAST_CODECS, SpanDecompressor
from wirescan.frames.arena import Arena
from wirescan.frames.codecs import CodecError, compress
from wirescan.frames.limits import Limits

pytestmark = pytest.mark.skipif(not libzstd.available, reason="libzstd is not available")

_random = random.Random(3)
TEXT = b"".join(b'{"id":%d,"value":%d}' % (i, _random.randrange(10**6)) for i in range(4000))
FRAME = compress("zstd", TEXT)
MAGIC = bytes.fromhex("28b52ffd")
LAST_RAW_BLOCK = (1 | 5 << 3).to_bytes(3, "little") + b"hello"
# A block that repeats one byte 128 KiB times.
RLE_BLOCK = (1 << 1 | (128 << 10) << 3).to_bytes(3, "little") + b"\0"
SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"skip"


def make_streamed():
    """Return a frame without a content size, with a checksum."""
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT)
    return bytes(stream.finish())


def make_checksummed():
    """Return an empty frame with a checksum: XXH64 of nothing begins with 0x51d8e999."""
    empty_last_block = b"\x01\0\0"
    return MAGIC + b"\x04\x58" + empty_last_block + struct.pack("<I", 0x51D8E999)


ZSTD = {
    "a frame": FRAME,
    "an empty frame": compress("zstd", b""),
    "without a content size": make_streamed(),
    "a checksum": make_checksummed(),
    "a wrong checksum": make_checksummed()[:-1] + b"\0",
    "two frames": FRAME + FRAME,
    "a skippable frame before": SKIPPABLE + FRAME,
    "a skippable frame after": FRAME + SKIPPABLE,
    "only a skippable frame": SKIPPABLE,
    "a byte after it": FRAME + b"x",
    "zeros after it": FRAME + bytes(16),
    "nothing": b"",
    "a magic": MAGIC,
    "wrong magic": b"\x27" + FRAME[1:],
    "the magic of an old version": bytes.fromhex("27b52ffd") + FRAME[4:],
    **{
        f"window descriptor {descriptor:#x}": MAGIC + bytes([0, descriptor]) + LAST_RAW_BLOCK
        for descriptor in (0, 11 << 3, 17 << 3, (17 << 3) + 1, 18 << 3, 31 << 3)
    },
    "a dictionary": MAGIC + b"\x21\x07\x05" + LAST_RAW_BLOCK,
    "a reserved flag": MAGIC + b"\x08\x58" + LAST_RAW_BLOCK,
    "a wrong content size": MAGIC + b"\x20\x06" + LAST_RAW_BLOCK,
    "a bomb": MAGIC + b"\x00\x58" + RLE_BLOCK * 511 + b"\x03\0\0\0",
    "a content size of 4 GiB": MAGIC + b"\xe0" + bytes([255] * 4) + bytes(4) + LAST_RAW_BLOCK,
}
LIMITS = Limits(inflated=4 << 20)


def add(payload, expect, limits=LIMITS):
    """Return what `Arena.add` decompresses, or the fault that it raises."""
    arena = Arena(limits, expect)
    try:
        number, start, size = arena.add("zstd", memoryview(payload))
    except CodecError as error:
        return error.fault
    return bytes(arena.buffers[number][start : start + size])


def add_without_library(payload):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libzstd, "available", False)
        return add(payload, 0)


def add_each(payload, expect):
    arena = Arena(LIMITS, expect)
    spans = np.zeros(1, HEAD)
    spans["size"] = len(payload)
    place = arena.add_each(["zstd"], (memoryview(payload),), spans)[0]
    start, size = int(place["start"]), int(place["size"])
    if place["fault"]:
        return Fault(place["fault"])
    return bytes(arena.buffers[place["buffer"]][start : start + size])


@pytest.mark.parametrize("expect", [0, 32 << 20])
@pytest.mark.parametrize("name", ZSTD)
def test_the_result_is_the_same_with_and_without_libzstd(name, expect):
    expected = add_without_library(ZSTD[name])
    assert add(ZSTD[name], expect) == expected
    assert add_each(ZSTD[name], expect) == expected


def test_the_cases_are_good_damaged_and_too_large():
    results = [add_without_library(payload) for payload in ZSTD.values()]
    faults = {result for result in results if isinstance(result, Fault)}
    assert faults == {Fault.BAD_COMPRESSION, Fault.TOO_LARGE}
    assert sum(not isinstance(result, Fault) for result in results) >= 8


def test_a_cut_and_a_change_at_every_byte():
    payload = compress("zstd", TEXT[:700])
    changed = [payload[:size] for size in range(len(payload))]
    for at in range(len(payload)):
        other = bytearray(payload)
        other[at] ^= 0x55
        changed.append(bytes(other))
    for other in changed:
        assert add(other, 1 << 20) == add_without_library(other)


def test_intact_frames_are_decompressed_by_libzstd():
    payloads = [FRAME, make_streamed(), compress("gzip", TEXT), FRAME + FRAME]
    codecs = [FAST_CODECS[name] for name in ("zstd", "zstd", "gzip", "zstd")]
    spans = np.zeros(4, HEAD)
    spans["size"] = [len(payload) for payload in payloads]
    spans["start"] = np.cumsum(spans["size"].astype(np.int64)) - spans["size"]
    places = np.zeros(4, HEAD)
    buffers = (memoryview(b"".join(payloads)),)
    fast = SpanDecompressor(buffers, spans, np.array(codecs, np.uint8), places)
    block = Block(1 << 20)
    limits, totals = (2000, 1 << 20, 1 << 20), (100, 1 << 20, 1 << 20)
    stop, used, _, _ = fast.run(0, block, 0, 0, limits, totals, 0, 0)
    # It leaves several frames in one payload to another library.
    assert stop == (3 if libdeflate.available else 2)
    assert used == stop * len(TEXT)
    assert bytes(memoryview(block)[:used]) == TEXT * stop
