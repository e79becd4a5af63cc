"""thrift.plain: limits, hashes and the number of buffers."""

import time
import zlib
from dataclasses import replace

import numpy as np
import pytest

from tests.strategies.bombs import compress_zeros
from tests.support.slowness import SLOWNESS
from tests.support.thrift_bytes import make_binary_message, make_chunked, make_framed, make_varint
from wirescan import Fault, Limits, thrift

NUMBERS = b"\x0f\xff" + bytes(6)  # magic, flags, seq
HMAC = 2


def make_frame_with_transforms(transforms, payload, mac_size=None):
    """A header frame.

    mac_size: size of the HMAC. The HMAC itself is at the end of `payload`.
    """
    header = b"\0" + make_varint(len(transforms))
    for transform in transforms:
        header += make_varint(transform)
        if transform == HMAC and mac_size is not None:
            header += bytes([mac_size])
    header += bytes(-len(header) % 4)
    return make_framed(NUMBERS + (len(header) // 4).to_bytes(2, "big") + header + payload)


@pytest.mark.parametrize(
    "limits", [Limits(ratio=10**30), Limits(inflated_total=10**30)], ids=["ratio", "total"]
)
def test_limits_can_exceed_64_bits(limits):
    once = make_frame_with_transforms([1], zlib.compress(b"abc"))
    twice = make_frame_with_transforms([1, 1], zlib.compress(zlib.compress(b"abc")))
    table = thrift.plain(thrift.scan(once + twice), limits=limits)
    assert [bytes(table.bytes(i, "payload")) for i in range(2)] == [b"abc"] * 2


@pytest.mark.parametrize(
    "hash, error",
    [
        ("nonsense", ValueError),
        ("shake_128", ValueError),
        ("", ValueError),
        (None, TypeError),
        (5, TypeError),
    ],
)
def test_an_unknown_hash_is_rejected(hash, error):
    signed = make_frame_with_transforms([HMAC], b"payload" + bytes(4), mac_size=4)
    unsigned = make_frame_with_transforms([1], zlib.compress(b"abc"))
    for raw in (signed, unsigned):
        with pytest.raises(error, match="hashlib"):
            thrift.plain(thrift.scan(raw), key=b"key", hash=hash, errors="mark")


@pytest.mark.slow
@pytest.mark.parametrize(
    "raw",
    [make_chunked(b"ab"), make_frame_with_transforms([0, 1], zlib.compress(b"ab"))],
    ids=["chunks", "transforms"],
)
def test_a_table_has_at_most_65_536_buffers(raw):
    """Payloads that are joined or decompressed need one buffer more than the frames."""

    def frames(buffers):
        table = thrift.scan(raw)
        rows = np.repeat(table.rows, buffers)
        rows["buffer"] = np.arange(buffers)
        return replace(
            table, buffers=table.buffers * buffers, rows=rows, stops=table.stops * buffers
        )

    with pytest.raises(ValueError, match="65,536 buffers"):
        thrift.plain(frames(65_536))
    table = thrift.plain(frames(65_535))
    assert len(table) == 65_535
    assert len(table.buffers) == 65_536


@pytest.mark.parametrize("ids", [[1, 1], [1, 1, 1]])
@pytest.mark.parametrize("damaged", [False, True])
def test_the_ratio_counts_from_the_wire(ids, damaged):
    """Compression in two layers does not multiply the ratio.

    Otherwise a megabyte of such payloads, of 250 bytes each, takes a minute of work.
    """
    bomb = compress_zeros(b"", 60 << 20)
    if damaged:
        bomb = bomb[:-1] + b"?"
    for _ in ids[1:]:
        bomb = zlib.compress(bomb, 9)
    frames = thrift.scan(make_frame_with_transforms(ids, bomb) * 20)
    start = time.process_time()
    assert thrift.plain(frames, errors="mark")["fault"].tolist() == [Fault.TOO_LARGE] * 20
    assert time.process_time() - start < SLOWNESS


def test_a_small_payload_may_have_any_ratio():
    plain = make_binary_message(b"m", 1, 1) + bytes(900 << 10)
    frames = thrift.scan(make_frame_with_transforms([1, 1], zlib.compress(zlib.compress(plain))))
    table = thrift.plain(frames)
    assert table["payload_size"].tolist() == [len(plain)]
    assert not table.bad.any()
