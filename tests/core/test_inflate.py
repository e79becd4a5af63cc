"""Many zlib streams are decompressed in one call, by each library that may do it."""

import random
import zlib

import numpy as np
import pytest

from wirescan.core import inflate, libdeflate
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.rows import Block
from wirescan.frames.arena import Arena
from wirescan.frames.codecs import CodecError, compress, decompress_into
from wirescan.frames.limits import Limits

LIBRARIES = {
    "libdeflate": libdeflate.available and inflate.available,
    "libz": inflate.available,
    "zlib": True,
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.skipif(not available, reason="no such library"))
        for name, available in LIBRARIES.items()
    ]
)
def path(request, monkeypatch):
    """Decompress with one library: with libdeflate, libz decompresses what it refuses."""
    monkeypatch.setattr(libdeflate, "available", request.param == "libdeflate")
    monkeypatch.setattr(inflate, "available", request.param != "zlib")


def make_spans(streams):
    spans = np.zeros(len(streams), HEAD)
    spans["size"] = [len(stream) for stream in streams]
    spans["start"] = np.cumsum(spans["size"].astype(np.int64)) - spans["size"]
    return (memoryview(b"".join(streams)),), spans


def inflate_streams(streams, check=True, limits=Limits(), expect=0):
    """Return the decompressed bytes of each stream, or its fault."""
    arena = Arena(limits, expect)
    places = arena.add_zlib_each(*make_spans(streams), check=check)
    buffers = arena.buffers
    return [
        Fault(place["fault"])
        if place["fault"]
        else bytes(buffers[place["buffer"]][place["start"] :][: place["size"]])
        for place in places
    ]


def test_libz_is_available_here():
    """Python's module is the slow path, for builds of Python without a shared libz."""
    assert inflate.available


@pytest.mark.parametrize("expect", [0, 1 << 20])
def test_streams_of_every_size(path, expect):
    shuffle = random.Random(1)
    payloads = [
        shuffle.randbytes(size) * copies
        for size in (0, 1, 7, 64, 4096, 70_000)
        for copies in (1, 3, 40)
    ]
    streams = [zlib.compress(payload, level) for payload in payloads for level in (0, 1, 9)]
    expected = [payload for payload in payloads for _ in range(3)]
    assert inflate_streams(streams, expect=expect) == expected


def test_bad_streams_have_faults(path):
    good = zlib.compress(b"payload " * 20)
    other = bytearray(good)
    other[-1] ^= 1
    text = b"payload " * 20
    cases = [  # (stream, result with checks, result without checks)
        (good, text, text),
        (b"", Fault.TRUNCATED, Fault.TRUNCATED),
        (good[:-4], Fault.TRUNCATED, Fault.TRUNCATED),
        (good[:-1], Fault.TRUNCATED, Fault.TRUNCATED),
        (good[:9], Fault.TRUNCATED, Fault.TRUNCATED),
        (good + b"!", Fault.LEFTOVER, text),
        (bytes(other), Fault.BAD_CHECKSUM, text),
        (b"no zlib at all", Fault.BAD_COMPRESSION, Fault.BAD_COMPRESSION),
        (good, text, text),
    ]
    streams = [stream for stream, _, _ in cases]
    assert inflate_streams(streams) == [checked for _, checked, _ in cases]
    assert inflate_streams(streams, check=False) == [unchecked for _, _, unchecked in cases]


def test_a_dictionary_is_refused(path):
    deflater = zlib.compressobj(zdict=b"words that are known")
    stream = deflater.compress(b"words that are known") + deflater.flush()
    assert inflate_streams([stream]) == [Fault.BAD_COMPRESSION]


def test_a_fault_of_the_span_is_kept(path):
    buffers, spans = make_spans([zlib.compress(b"one"), zlib.compress(b"two")])
    spans["fault"][0] = Fault.BAD_HEADER
    assert Arena().add_zlib_each(buffers, spans)["fault"].tolist() == [Fault.BAD_HEADER, 0]


def test_limits_of_one_of_all_and_of_the_ratio(path):
    ten = zlib.compress(b"0123456789")
    bomb = zlib.compress(bytes(8 << 20), 9)
    assert inflate_streams([ten], limits=Limits(inflated=10)) == [b"0123456789"]
    assert inflate_streams([ten], limits=Limits(inflated=9)) == [Fault.TOO_LARGE]
    results = inflate_streams([ten] * 3, limits=Limits(inflated_total=20))
    assert results == [b"0123456789", b"0123456789", Fault.TOO_LARGE]
    results = inflate_streams([bomb, ten], limits=Limits(ratio=100))
    assert results == [Fault.TOO_LARGE, b"0123456789"]
    assert inflate_streams([bomb], limits=Limits(inflated=8 << 20)) == [bytes(8 << 20)]


def test_streams_with_wrong_checksums_count_for_the_limit_of_all(path):
    ten = zlib.compress(b"0123456789")
    wrong = ten[:-1] + bytes([ten[-1] ^ 1])
    results = inflate_streams([wrong, ten, wrong, ten, ten], limits=Limits(inflated_total=30))
    expected = [Fault.BAD_CHECKSUM, b"0123456789", Fault.BAD_CHECKSUM]
    assert results == [*expected, Fault.TOO_LARGE, Fault.TOO_LARGE]


def test_spans_outside_their_buffer():
    buffers, spans = make_spans([zlib.compress(b"one")])
    for name, value in (("size", 1000), ("start", -1), ("buffer", 1)):
        moved = spans.copy()
        moved[name] = value
        with pytest.raises(ValueError, match="outside"):
            inflate.inflate_spans(
                buffers, moved, spans.copy(), 0, Block(100), 0, 0, (10, 100, 100), 100, check=True
            )


# --- the other codecs of Thrift


@pytest.mark.parametrize("data", [b"", b"a", b"0123456789" * 50, bytes(70_000)], ids=len)
def test_blocks_round_trip(data):
    for codec, writer in (("lz4-block", "lz4-block"), ("snappy-raw", "snappy")):
        out = memoryview(bytearray(len(data)))
        assert decompress_into(codec, memoryview(compress(writer, data)), out) == len(data)
        assert bytes(out) == data
    assert zlib.decompress(compress("zlib", data, 9)) == data


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x05",
        b"\x03\x10a",
        b"\x01\x20ab",
        b"\x05\x10a\x05\x00",
        bytes(6),
        b"\x00\x10a",
    ],
)
def test_invalid_blocks_are_refused(block):
    with pytest.raises(CodecError) as caught:
        Arena().add("lz4-block", memoryview(block))
    assert caught.value.fault == Fault.BAD_COMPRESSION


def test_a_block_with_a_huge_size_allocates_nothing():
    with pytest.raises(CodecError) as caught:
        Arena().add("lz4-block", memoryview(b"\xff\xff\xff\xff\x07\x10a"))
    assert caught.value.fault == Fault.TOO_LARGE


def test_parts_are_joined():
    arena = Arena(Limits(inflated=5, inflated_total=8))
    number, start, size = arena.add_parts([memoryview(b"ab"), memoryview(b""), memoryview(b"cde")])
    assert bytes(arena.buffers[number][start : start + size]) == b"abcde"
    for parts in ([b"123456"], [b"1234"]):
        with pytest.raises(CodecError) as caught:
            arena.add_parts([memoryview(part) for part in parts])
        assert caught.value.fault == Fault.TOO_LARGE
