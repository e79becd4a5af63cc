"""zlib streams inflated together, by the library beneath Python's own module and by that module itself."""
import random
import zlib

import numpy as np
import pytest

from wirescan.codecs import Arena, CodecError, compress, decompress_into
from wirescan.core import inflate
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.rows import Block
from wirescan.limits import Limits

LIBRARY = [pytest.param(True, marks=pytest.mark.skipif(not inflate.available, reason="no libz to be found")), False]


@pytest.fixture(params=LIBRARY, ids=["libz", "zlib"])
def path(request, monkeypatch):
    monkeypatch.setattr(inflate, "available", request.param)


def spans_of(streams):
    spans = np.zeros(len(streams), HEAD)
    spans["size"] = [len(one) for one in streams]
    spans["start"] = np.cumsum(spans["size"].astype(np.int64)) - spans["size"]
    return (memoryview(b"".join(streams)),), spans


def inflated(streams, check=True, limits=Limits(), expect=0):
    """What each stream inflates to, or its fault."""
    arena = Arena(limits, expect)
    places = arena.add_zlib_each(*spans_of(streams), check)
    held = arena.buffers
    return [Fault(one["fault"]) if one["fault"] else bytes(held[one["buffer"]][one["start"]:][:one["size"]])
            for one in places]


def test_libz_is_found_here():
    """Python's module is the slow way, for builds of Python that hide the library."""
    assert inflate.available


@pytest.mark.parametrize("expect", [0, 1 << 20])
def test_streams_of_every_size(path, expect):
    shuffle = random.Random(1)
    payloads = [shuffle.randbytes(size) * copies for size in (0, 1, 7, 64, 4096, 70_000) for copies in (1, 3, 40)]
    streams = [zlib.compress(one, level) for one in payloads for level in (0, 1, 9)]
    assert inflated(streams, expect=expect) == [one for one in payloads for _ in range(3)]


def test_what_is_wrong_with_a_stream(path):
    good = zlib.compress(b"payload " * 20)
    other = bytearray(good)
    other[-1] ^= 1
    streams = [good, b"", good[:-4], good[:-1], good[:9], good + b"!", bytes(other), b"no zlib at all", good]
    text = b"payload " * 20
    assert inflated(streams) == [
        text, Fault.TRUNCATED, Fault.TRUNCATED, Fault.TRUNCATED, Fault.TRUNCATED, Fault.LEFTOVER, Fault.BAD_CHECKSUM,
        Fault.BAD_COMPRESSION, text]
    assert inflated(streams, check=False) == [
        text, Fault.TRUNCATED, Fault.TRUNCATED, Fault.TRUNCATED, Fault.TRUNCATED, text, text, Fault.BAD_COMPRESSION,
        text]


def test_a_dictionary_is_refused(path):
    deflater = zlib.compressobj(zdict=b"words that are known")
    assert inflated([deflater.compress(b"words that are known") + deflater.flush()]) == [Fault.BAD_COMPRESSION]


def test_a_fault_of_the_span_is_kept(path):
    buffers, spans = spans_of([zlib.compress(b"one"), zlib.compress(b"two")])
    spans["fault"][0] = Fault.BAD_HEADER
    assert Arena().add_zlib_each(buffers, spans)["fault"].tolist() == [Fault.BAD_HEADER, 0]


def test_limits_of_one_of_all_and_of_the_ratio(path):
    ten = zlib.compress(b"0123456789")
    bomb = zlib.compress(bytes(8 << 20), 9)
    assert inflated([ten], limits=Limits(inflated=10)) == [b"0123456789"]
    assert inflated([ten], limits=Limits(inflated=9)) == [Fault.TOO_LARGE]
    assert inflated([ten] * 3, limits=Limits(inflated_total=20)) == [b"0123456789"] * 2 + [Fault.TOO_LARGE]
    assert inflated([bomb, ten], limits=Limits(ratio=100)) == [Fault.TOO_LARGE, b"0123456789"]
    assert inflated([bomb], limits=Limits(inflated=8 << 20)) == [bytes(8 << 20)]


def test_spans_outside_their_buffer():
    buffers, spans = spans_of([zlib.compress(b"one")])
    for name, value in (("size", 1000), ("start", -1), ("buffer", 1)):
        moved = spans.copy()
        moved[name] = value
        with pytest.raises(ValueError, match="outside"):
            inflate.inflate_spans(buffers, moved, spans.copy(), 0, Block(100), 0, 0, (10, 100, 100), 100, True)


# ---------------------------------------------------------------------------------- the codecs of Thrift beside it

@pytest.mark.parametrize("data", [b"", b"a", b"0123456789" * 50, bytes(70_000)], ids=len)
def test_blocks_there_and_back(data):
    for codec, writer in (("lz4-block", "lz4-block"), ("snappy-raw", "snappy")):
        out = memoryview(bytearray(len(data)))
        assert decompress_into(codec, memoryview(compress(writer, data)), out) == len(data)
        assert bytes(out) == data
    assert zlib.decompress(compress("zlib", data, 9)) == data


@pytest.mark.parametrize("block", [
    b"", b"\x80", b"\xff\xff\xff\xff\xff\x01", b"\x05", b"\x03\x10a", b"\x01\x20ab", b"\x05\x10a\x05\x00",
    bytes(6), b"\x00\x10a"])
def test_blocks_that_are_no_blocks(block):
    with pytest.raises(CodecError) as caught:
        Arena().add("lz4-block", memoryview(block))
    assert caught.value.fault == Fault.BAD_COMPRESSION


def test_a_block_that_says_much_takes_nothing():
    with pytest.raises(CodecError) as caught:
        Arena().add("lz4-block", memoryview(b"\xff\xff\xff\xff\x07\x10a"))
    assert caught.value.fault == Fault.TOO_LARGE


def test_parts_are_put_together():
    arena = Arena(Limits(inflated=5, inflated_total=8))
    number, start, size = arena.add_parts([memoryview(b"ab"), memoryview(b""), memoryview(b"cde")])
    assert bytes(arena.buffers[number][start:start + size]) == b"abcde"
    for parts in ([b"123456"], [b"1234"]):
        with pytest.raises(CodecError) as caught:
            arena.add_parts([memoryview(one) for one in parts])
        assert caught.value.fault == Fault.TOO_LARGE
