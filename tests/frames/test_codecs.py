"""codecs.py and limits.py: what is accepted, what is refused, and that nothing else can happen."""

import dataclasses
import gc
import gzip
import random
import resource
import struct
import time
import weakref
import zlib

import cramjam
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import read_example_count
from tests.support.slowness import SLOWNESS
from wirescan.core.fault import Fault
from wirescan.frames.arena import Arena
from wirescan.frames.codecs import (
    XERIAL_MAGIC,
    CodecError,
    OutputTooSmallError,
    compress,
    decompress_into,
)
from wirescan.frames.limits import Limits

WRITERS = {  # name in compress -> name in decompress_into
    "gzip": "gzip",
    "snappy": "snappy",
    "snappy-xerial": "snappy",
    "lz4": "lz4",
    "lz4-legacy": "lz4-legacy",
    "zstd": "zstd",
}
CODECS = sorted(set(WRITERS.values()))
STREAMS = ["gzip", "lz4", "zstd"]  # codecs of which several members or frames are one payload

_random = random.Random(1)
TEXT = b"".join(b'{"id":%d,"value":%d}' % (i, _random.randrange(10**6)) for i in range(130_000))[
    : 3 << 20
]
NOISE = _random.randbytes(64 << 10)
SAMPLES = [b"", b"a", TEXT[:100], TEXT[: 64 << 10], NOISE, TEXT]


def decompress(codec, payload, room=4 << 20):
    out = bytearray(room)
    return bytes(out[: decompress_into(codec, memoryview(payload), out)])


def find_fault(codec, payload, room=4 << 20):
    with pytest.raises(CodecError) as caught:
        decompress(codec, payload, room)
    assert isinstance(caught.value, OutputTooSmallError) == (caught.value.fault == Fault.TOO_LARGE)
    return caught.value.fault


# --- decompress_into ----------------------------------------------------------------------


@pytest.mark.parametrize("data", SAMPLES, ids=["0", "1", "100", "64K", "64K noise", "3M"])
@pytest.mark.parametrize("writer", WRITERS)
def test_round_trip_in_exactly_enough_room_and_one_byte_less(writer, data):
    payload = compress(writer, data)
    codec = WRITERS[writer]
    assert decompress(codec, payload, len(data)) == data
    assert decompress(codec, payload, len(data) + 1) == data
    if data:
        assert find_fault(codec, payload, len(data) - 1) == Fault.TOO_LARGE
        assert find_fault(codec, payload, 0) == Fault.TOO_LARGE


@pytest.mark.parametrize(
    "out", [bytearray(100), memoryview(bytearray(100)), numpy.zeros(100, numpy.uint8)]
)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_kind_of_buffer_is_written_in_place(writer, out):
    assert decompress_into(WRITERS[writer], compress(writer, TEXT[:100]), out) == 100
    assert bytes(out) == TEXT[:100]


@pytest.mark.parametrize("writer", ["gzip", "zstd"])
def test_a_higher_level_compresses_more(writer):
    assert decompress(WRITERS[writer], compress(writer, TEXT, numpy.int64(1))) == TEXT
    assert decompress(WRITERS[writer], compress(writer, TEXT[:100_000], 9)) == TEXT[:100_000]
    assert len(compress(writer, TEXT, 9)) < len(compress(writer, TEXT, 1))


@pytest.mark.parametrize(
    "writer, levels",
    [
        ("gzip", (-1, 10, 2**40)),
        ("zstd", (23, -131_073)),
        ("lz4", (0, 1)),
        ("lz4-legacy", (1,)),
        ("snappy", (0, 1)),
        ("snappy-xerial", (1,)),
    ],
)
def test_levels_that_a_codec_does_not_have(writer, levels):
    for level in levels:
        with pytest.raises(ValueError, match=f"codec {writer} has .* not level {level}"):
            compress(writer, b"data", level)
    for level in (1.0, "1"):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            compress(writer, b"data", level)


@pytest.mark.parametrize("codec", STREAMS)
def test_several_members_or_frames(codec):
    empty, first, second = (compress(codec, data) for data in (b"", b"one", TEXT[:70_000]))
    assert decompress(codec, first + second) == b"one" + TEXT[:70_000]
    assert decompress(codec, empty + first + empty + second + empty) == b"one" + TEXT[:70_000]
    assert find_fault(codec, first + second, 3) == Fault.TOO_LARGE
    assert find_fault(codec, first + second[:-1]) == Fault.BAD_COMPRESSION


@pytest.mark.parametrize(
    "junk", [b"x", b"junk that is long enough to be a header", bytes(1), bytes(64)]
)
@pytest.mark.parametrize("writer", WRITERS)
def test_whatever_follows_is_an_error(writer, junk):
    assert (
        find_fault(WRITERS[writer], compress(writer, TEXT[:1000]) + junk) == Fault.BAD_COMPRESSION
    )


@pytest.mark.parametrize("codec", CODECS)
def test_no_payload_at_all(codec):
    assert find_fault(codec, b"") == Fault.BAD_COMPRESSION


def test_an_unknown_codec_is_refused():
    assert find_fault("brotli", b"payload") == Fault.BAD_CODEC
    with pytest.raises(ValueError, match="brotli"):
        compress("brotli", b"data")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_skippable_frames_are_skipped(codec):
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    assert decompress(codec, skipped + compress(codec, b"data") + skipped) == b"data"


def test_gzip_with_every_optional_field_and_a_wrong_trailer():
    member = gzip.compress(b"data")
    header = b"\x1f\x8b\x08\x1e" + bytes(6) + struct.pack("<H", 4) + b"more" + b"name\0comment\0"
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    assert decompress("gzip", header + member[10:]) == b"data"
    for at in range(-8, 0):
        broken = bytearray(member)
        broken[at] ^= 1
        assert find_fault("gzip", broken) == Fault.BAD_COMPRESSION


@pytest.mark.parametrize("words", [struct.pack(">ii", 1, 1), struct.pack("<ii", 1, 1), b"\xff" * 8])
def test_xerial_words_are_never_looked_at(words):
    first, two = compress("snappy", b"one"), compress("snappy", b"two")
    blocks = struct.pack(">i", len(first)) + first + struct.pack(">i", len(two)) + two
    stream = XERIAL_MAGIC + words + blocks
    assert decompress("snappy", stream) == b"onetwo"
    assert decompress("snappy", stream + stream) == b"onetwoonetwo"
    assert decompress("snappy", XERIAL_MAGIC + words) == b""


@pytest.mark.parametrize("size", [0, 5, 7, 2**31 - 1, 2**31, 2**32 - 1])
def test_xerial_block_sizes_are_bounded(size):
    block = compress("snappy", b"data")  # 6 bytes
    stream = XERIAL_MAGIC + struct.pack(">iiI", 1, 1, size) + block
    assert find_fault("snappy", stream) == Fault.BAD_COMPRESSION


def test_snappy_that_claims_4_gib():
    assert find_fault("snappy", b"\xff\xff\xff\xff\x0f\x00a") == Fault.TOO_LARGE
    assert find_fault("snappy", b"\xff\xff\xff\xff\x1f\x00a") in (
        Fault.TOO_LARGE,
        Fault.BAD_COMPRESSION,
    )


def make_lz4_frame(flags, descriptor, checksum, block):
    body = bytes.fromhex("04224d18") + bytes([flags, 0x40]) + descriptor + bytes([checksum])
    return body + struct.pack("<I", len(block) | 1 << 31) + block + bytes(4)


def test_lz4_header_checksum_of_magic_0():
    right, wrong = compress("lz4", TEXT[:100_000]), compress("lz4-legacy", TEXT[:100_000])
    assert right[6] == 0x82 and wrong[6] == 0x1A and right[7:] == wrong[7:]
    assert decompress("lz4-legacy", wrong) == decompress("lz4-legacy", right) == TEXT[:100_000]
    assert decompress("lz4-legacy", wrong + right) == TEXT[:100_000] * 2
    assert find_fault("lz4", wrong) == Fault.BAD_COMPRESSION


@pytest.mark.parametrize("flags", [0x60, 0x68, 0x40, 0x48])
def test_lz4_header_is_mended_with_and_without_a_content_size(flags):
    descriptor = struct.pack("<Q", 4) if flags & 0x08 else b""
    right = [
        c for c in range(256) if is_accepted("lz4", make_lz4_frame(flags, descriptor, c, b"data"))
    ]
    assert (
        len(right) == 1
    )  # cramjam knows the one right checksum; ours must find it whatever stands there
    for checksum in range(256):
        assert (
            decompress("lz4-legacy", make_lz4_frame(flags, descriptor, checksum, b"data"))
            == b"data"
        )


def is_accepted(codec, payload):
    try:
        return decompress(codec, payload, 100) is not None
    except CodecError:
        return False


def test_lz4_linked_blocks_with_checksums():
    data = NOISE[:30_000] * 10
    stream = cramjam.lz4.Compressor()
    stream.compress(data)
    payload = bytes(stream.finish())
    assert payload[4] & 0x20 == 0 and len(payload) < len(
        data
    )  # linked: blocks refer to those before them
    assert decompress("lz4", payload) == data
    broken = bytearray(payload)
    broken[-1] ^= 1  # the content checksum
    assert find_fault("lz4", broken) == Fault.BAD_COMPRESSION


@pytest.mark.parametrize("window_log", [10, 21, 27, 28, 41])
def test_zstd_window_is_bounded(window_log):
    last_raw_block = (1 | 5 << 3).to_bytes(3, "little") + b"hello"
    payload = bytes.fromhex("28b52ffd00") + bytes([window_log - 10 << 3]) + last_raw_block
    before = measure_peak()
    if window_log <= 27:
        assert decompress("zstd", payload, 5) == b"hello"
    else:
        assert find_fault("zstd", payload, 5) == Fault.BAD_COMPRESSION
    assert measure_peak() - before < 16 << 20


def test_zstd_without_a_content_size():
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT)
    payload = bytes(stream.finish())
    assert payload[4] & 0xE0 == 0  # neither a content size nor a single segment
    assert decompress("zstd", payload) == TEXT


# --- hostile payloads ---------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
def test_a_cut_payload_is_bad(writer):
    codec = WRITERS[writer]
    payload = compress(writer, TEXT[:300])
    for end in range(len(payload)):
        if writer == "snappy-xerial" and end == 16:
            assert (
                decompress(codec, payload[:end], 400) == b""
            )  # a header without blocks is a whole stream
        else:
            fault = find_fault(codec, payload[:end], 400)
            # Part of a xerial magic reads as a raw block that claims 10 KiB.
            assert fault == Fault.BAD_COMPRESSION or (writer == "snappy-xerial" and end < 8)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_flipped_bit_stays_within_the_buffer(writer):
    payload = bytearray(compress(writer, TEXT[:300]))
    out = bytearray(400)
    for bit in range(8 * len(payload)):
        payload[bit // 8] ^= 1 << bit % 8
        try:
            assert 0 <= decompress_into(WRITERS[writer], payload, out) <= 400
        except CodecError as error:
            assert error.fault in (Fault.BAD_COMPRESSION, Fault.TOO_LARGE)
        payload[bit // 8] ^= 1 << bit % 8


@settings(max_examples=read_example_count(120), deadline=None)
@given(
    st.sampled_from(sorted(WRITERS)),
    st.binary(max_size=60),
    st.integers(0, 16),
    st.binary(max_size=8),
)
def test_any_bytes_behind_a_good_beginning(writer, tail, keep, data):
    arena = Arena(Limits(inflated=1 << 16))
    try:
        arena.add(WRITERS[writer], compress(writer, data)[:keep] + tail)
    except CodecError as error:
        assert error.fault in (Fault.BAD_COMPRESSION, Fault.TOO_LARGE)
        assert [len(buffer) for buffer in arena.buffers] == [0]


def measure_peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def make_bombs():
    """512 MiB of zeros in every form."""
    zeros = bytes(1 << 20)
    for codec in STREAMS:
        yield codec + " in many members", codec, compress(codec, zeros) * 512
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(zeros) + deflate.flush(zlib.Z_FULL_FLUSH)
    yield "gzip in one member", "gzip", gzip.compress(b"")[:10] + block * 512 + b"\x03\0" + bytes(8)
    yield "snappy", "snappy", bytes.fromhex("80808080020000") + b"\xfe\x01\x00" * (8 << 20)
    block = struct.pack(">i", len(compress("snappy", zeros))) + compress("snappy", zeros)
    yield "snappy-xerial", "snappy", XERIAL_MAGIC + bytes(8) + block * 512
    frame = compress("lz4", zeros)
    yield "lz4 in one frame", "lz4", frame[:7] + frame[7:-4] * 512 + bytes(4)
    yield "lz4-legacy", "lz4-legacy", frame * 512
    one_byte_run = (1 << 1 | (128 << 10) << 3).to_bytes(3, "little") + b"\0"  # RLE block of 128 KiB
    yield (
        "zstd in one frame",
        "zstd",
        bytes.fromhex("28b52ffd0058") + one_byte_run * 4095 + b"\x03\0\0\0",
    )


ROOM = "whole buffer|smaller than required|more than|the block says"


@pytest.mark.parametrize(
    "codec, payload", [pytest.param(c, p, id=name) for name, c, p in make_bombs()]
)
def test_bombs_stop_at_the_limit(codec, payload):
    before, began = measure_peak(), time.process_time()
    arena = Arena(Limits(inflated=16 << 20))
    with pytest.raises(OutputTooSmallError, match=ROOM):
        arena.add(codec, payload)
    assert measure_peak() - before < 40 << 20
    assert time.process_time() - began < 5 * SLOWNESS
    assert [len(buffer) for buffer in arena.buffers] == [0]
    assert arena.add("gzip", compress("gzip", b"and on it goes")) == (0, 0, 14)


# --- the arena ----------------------------------------------------------------------------


def test_an_arena_keeps_its_limits():
    two_mib = bytes(2 << 20)
    small = compress("zstd", two_mib)
    assert len(small) * 2000 < len(two_mib)
    with pytest.raises(OutputTooSmallError, match="whole buffer"):
        Arena().add("zstd", small)  # for its ratio
    assert Arena(Limits(ratio=2**30)).add("zstd", small) == (0, 0, 2 << 20)
    assert Arena(Limits(ratio=1)).add("zstd", compress("zstd", bytes(1 << 20))) == (0, 0, 1 << 20)
    with pytest.raises(OutputTooSmallError, match="whole buffer"):
        Arena(Limits(ratio=1)).add("zstd", compress("zstd", bytes((1 << 20) + 1)))

    exactly = compress("lz4", TEXT)
    assert Arena(Limits(inflated=len(TEXT))).add("lz4", exactly) == (0, 0, len(TEXT))
    with pytest.raises(OutputTooSmallError, match="whole buffer"):
        Arena(Limits(inflated=len(TEXT) - 1)).add("lz4", exactly)

    arena = Arena(Limits(inflated_total=250))
    payload = compress("snappy", TEXT[:100])
    assert [arena.add("snappy", payload)[1] for _ in range(2)] == [0, 100]
    with pytest.raises(OutputTooSmallError, match="smaller than required"):
        arena.add("snappy", payload)
    assert arena.add("snappy", compress("snappy", TEXT[:50])) == (0, 200, 50)
    assert arena.add("snappy", compress("snappy", b"")) == (0, 250, 0)
    with pytest.raises(OutputTooSmallError, match="smaller than required"):
        arena.add("snappy", compress("snappy", b"a"))


@pytest.mark.parametrize("expect", [-1, 0, 1, 10**6, 10**15])
def test_arena_expect_is_only_a_guess(expect):
    arena = Arena(expect=expect)
    assert [len(buffer) for buffer in arena.buffers] == [0]
    places = [arena.add("snappy", compress("snappy", TEXT[:100_000])) for _ in range(3)]
    for buffer, start, size in places:
        assert arena.buffers[buffer][start : start + size] == TEXT[:100_000]


def test_arena_has_few_buffers():
    arena = Arena()
    payload = compress("lz4", NOISE)
    for _ in range(1000):
        arena.add("lz4", payload)
    assert len(arena.buffers) < 10
    assert sum(map(len, arena.buffers)) == 1000 * len(NOISE)


def test_views_outlive_the_arena_and_an_error_holds_no_room():
    arena = Arena()
    place = arena.add("gzip", compress("gzip", TEXT[:1000]))
    view = arena.buffers[place[0]]
    owner = weakref.ref(view.obj)
    with pytest.raises(CodecError) as caught:
        arena.add("gzip", b"\x1f\x8b" + bytes(20))
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    del arena, caught
    gc.collect()
    assert view == TEXT[:1000] and view.readonly and owner() is not None
    del view
    gc.collect()
    assert owner() is None


additions = st.lists(
    st.tuples(
        st.sampled_from(sorted(WRITERS)),
        st.integers(0, 300_000) | st.integers(0, 2000),
        st.sampled_from(["good", "good", "good", "cut", "unknown"]),
    ),
    max_size=25,
)


@settings(max_examples=read_example_count(60), deadline=None)
@given(additions, st.integers(0, 200_000), st.integers(1, 400_000), st.integers(1, 2_000_000))
def test_an_arena_keeps_its_invariants(steps, expect, inflated, total):
    arena = Arena(Limits(inflated=inflated, inflated_total=total), expect)
    kept, taken, at = [], 0, (0, 0)
    for writer, size, state in steps:
        data, codec = TEXT[size : 2 * size], WRITERS[writer]
        payload = compress(writer, data, 1 if writer in ("gzip", "zstd") else None)
        if state != "good":
            before = [bytes(buffer) for buffer in arena.buffers]
            with pytest.raises(CodecError) as caught:
                arena.add("unknown" if state == "unknown" else codec, payload[:-1])
            assert state == "cut" or caught.value.fault == Fault.BAD_CODEC
            assert [bytes(buffer) for buffer in arena.buffers] == before
        elif size > inflated or taken + size > total:
            with pytest.raises(OutputTooSmallError, match=ROOM):
                arena.add(codec, payload)
        else:
            index, start, length = arena.add(codec, payload)
            assert length == size and ((index, start) == at or (index, start) == (at[0] + 1, 0))
            at, taken = (index, start + length), taken + size
            view = arena.buffers[index]
            assert view.readonly and len(view) == start + length
            kept.append((view[start:], data))
        assert all(view == data for view, data in kept[-3:])
    assert all(view == data for view, data in kept)
    assert sum(map(len, arena.buffers)) == taken <= total


# --- limits -------------------------------------------------------------------------------


def test_limits_have_documented_defaults():
    assert dataclasses.astuple(Limits()) == (
        100 << 20,
        64 << 20,
        4 << 30,
        2000,
        100,
        2**31 - 1,
        None,
        512,
    )
    assert (
        Limits(ratio=numpy.int64(5)) == Limits(ratio=5)
        and type(Limits(ratio=numpy.int64(5)).ratio) is int
    )
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'frame'"):
        Limits().frame = 1
    for name in (
        "frame",
        "inflated",
        "inflated_total",
        "ratio",
        "ratio_total",
        "rows",
        "row_bytes",
    ):
        for bad in (0, -1, *{"frame": [2**32], "inflated": [2**31], "rows": [2**31]}.get(name, [])):
            with pytest.raises(ValueError, match=name):
                Limits(**{name: bad})
        for bad in (1.5, "1", *([] if name == "row_bytes" else [None])):
            with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
                Limits(**{name: bad})
