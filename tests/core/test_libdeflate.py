"""gzip and zlib have the same results and faults with libdeflate and without it."""

import gzip
import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import read_example_count
from wirescan.core import libdeflate, libzstd
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.rows import Block
from wirescan.core.span_decompressor import SpanDecompressor
from wirescan.frames.arena import Arena
from wirescan.frames.codecs import CodecError, compress
from wirescan.frames.limits import Limits

needs_library = pytest.mark.skipif(not libdeflate.available, reason="libdeflate is not available")
pytestmark = needs_library

_random = random.Random(3)
TEXT = b"".join(b'{"id":%d,"value":%d}' % (i, _random.randrange(10**6)) for i in range(4000))
NOISE = _random.randbytes(5000)
MEMBER = gzip.compress(TEXT)


def make_header(flags, fields=b""):
    header = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6) + fields
    return header + (struct.pack("<H", zlib.crc32(header) & 0xFFFF) if flags & 2 else b"")


BODY = MEMBER[10:]
EXTRA = struct.pack("<H", 4) + b"more"
WRONG_HEADER_CHECKSUM = make_header(2)[:-1] + bytes([make_header(2)[-1] ^ 1])
GZIP = {
    "one member": MEMBER,
    "empty member": gzip.compress(b""),
    "several members": MEMBER + gzip.compress(b"") + gzip.compress(NOISE) + MEMBER,
    "stored blocks": gzip.compress(NOISE, 0),
    "extra field": make_header(4, EXTRA) + BODY,
    "name": make_header(8, b"name\0") + BODY,
    "comment": make_header(16, b"comment\0") + BODY,
    "all fields": make_header(0x1E, EXTRA + b"name\0comment\0") + BODY,
    "header checksum": make_header(2) + BODY,
    "wrong header checksum": WRONG_HEADER_CHECKSUM + BODY,
    "wrong header checksum, second member": MEMBER + WRONG_HEADER_CHECKSUM + BODY,
    **{f"reserved flag {bit}": make_header(1 << bit) + BODY for bit in (5, 6, 7)},
    "text flag": make_header(1) + BODY,
    "name without an end": make_header(8, b"n" * 100),
    "extra field that is too long": make_header(4, b"\xff\xff" + b"more"),
    "wrong method": b"\x1f\x8b\x07" + MEMBER[3:],
    "wrong magic": b"\x1f\x8c" + MEMBER[2:],
    "zeros after it": MEMBER + bytes(8),
    "one byte after it": MEMBER + b"\x1f",
    "a header after it": MEMBER + MEMBER[:10],
    "half a member after it": MEMBER + MEMBER[: len(MEMBER) // 2],
    "zlib": zlib.compress(TEXT),
    "nothing": b"",
    "wrong CRC32": MEMBER[:-8] + bytes(4) + MEMBER[-4:],
    "wrong size": MEMBER[:-4] + bytes(4),
    "bomb": gzip.compress(bytes(8 << 20)),
    "bomb of members": gzip.compress(bytes(1 << 20)) * 8,
    "bomb without an end": gzip.compress(bytes(8 << 20))[:-9],
    "invalid block": MEMBER[:10] + b"\x07" + bytes(20),
    "stored block that is too long": MEMBER[:10] + b"\x01\xff\x7f\x00\x80" + bytes(100),
}
LIMITS = Limits(inflated=4 << 20, ratio=100)


def make_spans(payloads):
    spans = np.zeros(len(payloads), HEAD)
    spans["size"] = [len(payload) for payload in payloads]
    spans["start"] = np.cumsum(spans["size"].astype(np.int64)) - spans["size"]
    return (memoryview(b"".join(payloads)),), spans


def list_results(arena, places):
    """Return the decompressed bytes of each place, or its fault."""
    buffers = arena.buffers
    return [
        Fault(place["fault"])
        if place["fault"]
        else bytes(buffers[place["buffer"]][place["start"] :][: place["size"]])
        for place in places
    ]


def add_each(codecs, payloads, limits=LIMITS, expect=0):
    arena = Arena(limits, expect)
    return list_results(arena, arena.add_each(codecs, *make_spans(payloads)))


def add_one_by_one(codecs, payloads, limits=LIMITS):
    """Return the results of `Arena.add`, which decompresses without libdeflate here."""
    arena = Arena(limits)
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libdeflate, "available", False)
        patch.setattr(libzstd, "available", False)
        for codec, payload in zip(codecs, payloads):
            try:
                number, start, size = arena.add(codec, memoryview(payload))
                results.append(bytes(arena.buffers[number][start : start + size]))
            except CodecError as error:
                results.append(error.fault)
    return results


@pytest.mark.parametrize("expect", [0, 32 << 20])
@pytest.mark.parametrize("name", GZIP)
def test_gzip_has_the_same_result_with_and_without_libdeflate(name, expect):
    payload = GZIP[name]
    expected = add_one_by_one(["gzip"], [payload])
    assert add_each(["gzip"], [payload], expect=expect) == expected
    place = None
    try:
        place = Arena(LIMITS, expect).add("gzip", memoryview(payload))
    except CodecError as error:
        assert [error.fault] == expected
    assert (place is None) == isinstance(expected[0], Fault)


def test_the_cases_are_good_damaged_and_too_large():
    results = [add_one_by_one(["gzip"], [payload])[0] for payload in GZIP.values()]
    faults = [result for result in results if isinstance(result, Fault)]
    assert set(faults) == {Fault.BAD_COMPRESSION, Fault.TOO_LARGE}
    good = [name for name, result in zip(GZIP, results) if not isinstance(result, Fault)]
    assert len(good) >= 10
    assert add_one_by_one(["gzip"], [GZIP["wrong header checksum"]]) == [Fault.BAD_COMPRESSION]


def test_a_cut_at_every_byte():
    payload = gzip.compress(TEXT[:2000]) + gzip.compress(b"end")
    cuts = [payload[:size] for size in range(len(payload) + 1)]
    codecs = ["gzip"] * len(cuts)
    results = add_each(codecs, cuts)
    assert results == add_one_by_one(codecs, cuts)
    assert sum(not isinstance(result, Fault) for result in results) == 2


def test_intact_payloads_are_decompressed_by_libdeflate():
    payloads = [MEMBER, GZIP["several members"], GZIP["all fields"], gzip.compress(b"")]
    buffers, spans = make_spans(payloads)
    places = np.zeros(4, HEAD)
    fast = SpanDecompressor(buffers, spans, np.ones(4, np.uint8), places)
    block = Block(1 << 20)
    limits, totals = (2000, 1 << 20, 1 << 20), (100, 1 << 20, 1 << 20)
    # It leaves the header with a checksum to another library.
    wire = len(MEMBER) + len(GZIP["several members"])
    written = 3 * len(TEXT) + len(NOISE)
    stopped = fast.run(0, block, 10, 5, limits, totals, 0, 0)
    assert stopped == (2, 10 + written, wire, written)
    assert places["buffer"].tolist() == [5, 5, 0, 0]
    assert bytes(memoryview(block)[10 : 10 + len(TEXT)]) == TEXT
    rest = fast.run(3, block, 0, 6, limits, totals, wire, written)
    assert rest == (4, 0, wire + len(payloads[3]), written)


CHOICES = ["gzip", "snappy", "lz4", "zstd"]


@settings(max_examples=read_example_count(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(CHOICES), st.integers(0, 3000), st.sampled_from([0, 0, 0, 1])),
        max_size=12,
    ),
    st.sampled_from([300, 5000, 64 << 20]),
    st.sampled_from([400, 9000, 4 << 30]),
)
def test_mixed_payloads_within_every_limit(choices, inflated, total):
    limits = Limits(inflated=inflated, inflated_total=total)
    codecs = [codec for codec, _, _ in choices]
    payloads = []
    for codec, size, damage in choices:
        payload = bytearray(compress(codec, TEXT[:size]))
        if damage:
            payload[len(payload) // 2] ^= 0x55
        payloads.append(bytes(payload))
    assert add_each(codecs, payloads, limits) == add_one_by_one(codecs, payloads, limits)


@pytest.mark.parametrize("codec", CHOICES)
def test_ratios_of_all_payloads(codec):
    bomb = compress(codec, bytes(1 << 20))
    limits = Limits(ratio_total=2)
    # The first buffer is larger than what the ratio allows.
    results = add_each([codec] * 140, [bomb] * 140, limits, expect=200 << 20)
    good = [not isinstance(result, Fault) for result in results]
    assert good == [True] * 128 + [False] * 12  # 128 MiB are never refused for their ratio
    assert results[128:] == [Fault.TOO_LARGE] * 12


@pytest.mark.parametrize("expect", [0, 1 << 20])
@pytest.mark.parametrize("codec", CHOICES)
def test_the_limit_of_all_payloads_in_one_buffer(codec, expect):
    limits = Limits(inflated=3000, inflated_total=10_000)
    payloads = [compress(codec, TEXT[:size]) for size in (3000, 3000, 3000, 3000, 900, 200, 100, 1)]
    results = add_each([codec] * 8, payloads, limits, expect)
    assert results == add_one_by_one([codec] * 8, payloads, limits)
    sizes = [len(result) if isinstance(result, bytes) else -1 for result in results]
    assert sizes == [3000, 3000, 3000, -1, 900, -1, 100, -1]


def test_spans_and_arguments_outside_their_range():
    buffers, spans = make_spans([MEMBER])
    for name, value in (("size", 10**6), ("start", -1), ("buffer", 1)):
        moved = spans.copy()
        moved[name] = value
        for codec in ("gzip", "snappy"):
            with pytest.raises(ValueError, match="outside its buffer"):
                Arena().add_each([codec], buffers, moved)
    with pytest.raises(ValueError, match="different lengths"):
        SpanDecompressor(buffers, spans, np.ones(2, np.uint8), spans.copy())
    fast = SpanDecompressor(buffers, spans, np.ones(1, np.uint8), spans.copy())
    limits = (1, 1, 1)
    for first, used in ((-1, 0), (2, 0), (0, -1), (0, 11)):
        with pytest.raises(ValueError, match="out of range"):
            fast.run(first, Block(10), used, 0, limits, limits, 0, 0)


def test_a_reserved_code_is_accepted_only_with_the_checksum_of_its_result():
    # One literal 0, then the reserved length code 286 with distance 1, in a block of fixed codes.
    codes = "1" + "10" + "00110000" + "11000110" + "00000" + "0000000"
    body = int(codes[::-1], 2).to_bytes(4, "little")
    header = b"\x1f\x8b\x08" + bytes(7)
    for crc, expected in ((zlib.crc32(bytes(259)), bytes(259)), (1, Fault.BAD_COMPRESSION)):
        payload = header + body + struct.pack("<II", crc, 259)
        assert add_each(["gzip"], [payload], expect=1 << 20) == [expected]
        assert add_one_by_one(["gzip"], [payload]) == [Fault.BAD_COMPRESSION]


@pytest.mark.parametrize("check", [True, False])
def test_zlib_streams_one_by_one(monkeypatch, check):
    good = zlib.compress(TEXT)
    other = good[:-1] + bytes([good[-1] ^ 1])
    streams = [good, good + b"!", good[:-1], other, b"", b"x", zlib.compress(b""), NOISE]
    outcomes = []
    for available in (True, False):
        monkeypatch.setattr(libdeflate, "available", available)
        arena = Arena(expect=1 << 20)
        results = []
        for stream in streams:
            try:
                (number, start, size), fault = arena.add_zlib(memoryview(stream), check=check)
                results.append((bytes(arena.buffers[number][start : start + size]), fault))
            except CodecError as error:
                results.append(error.fault)
        outcomes.append(results)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][:2] == [(TEXT, Fault.OK), (TEXT, Fault.LEFTOVER)]
