"""Payloads made plain within their bounds."""
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest

from strategies.bombs import zlib_with_zeros
from thrift_bytes import binary, chunked, framed, varint
from wirescan import Fault, Limits, thrift

NUMBERS = b"\x0f\xff" + bytes(6)            # magic, flags, seq


def under(transforms, payload, code=None):
    """A header frame; code: bytes of HMAC's code, behind the payload already."""
    header = b"\0" + varint(len(transforms)) + b"".join(
        varint(one) + (b"" if code is None or one != 2 else bytes([code])) for one in transforms)
    header += bytes(-len(header) % 4)
    return framed(NUMBERS + (len(header) // 4).to_bytes(2, "big") + header + payload)


@pytest.mark.parametrize("limits", [Limits(ratio=10**30), Limits(inflated_total=10**30)], ids=["ratio", "total"])
def test_limits_beyond_64_bits(limits):
    raw = under([1], zlib.compress(b"abc")) + under([1, 1], zlib.compress(zlib.compress(b"abc")))
    table = thrift.plain(thrift.scan(raw), limits=limits)
    assert [bytes(table.bytes(i, "payload")) for i in range(2)] == [b"abc"] * 2


@pytest.mark.parametrize("hash, error", [
    ("nonsense", ValueError), ("shake_128", ValueError), ("", ValueError), (None, TypeError), (5, TypeError)])
def test_a_hash_that_there_is_not(hash, error):
    for raw in (under([2], b"payload" + bytes(4), code=4), under([1], zlib.compress(b"abc"))):
        with pytest.raises(error, match="hashlib"):
            thrift.plain(thrift.scan(raw), key=b"key", hash=hash, errors="mark")


@pytest.mark.parametrize("one", [chunked(b"ab"), under([0, 1], zlib.compress(b"ab"))], ids=["chunks", "transforms"])
def test_more_buffers_than_a_table_holds(one):
    """Payloads that are put together or decompressed need one buffer more than the frames have."""
    def frames(buffers):
        table = thrift.scan(one)
        rows = np.repeat(table.rows, buffers)
        rows["buffer"] = np.arange(buffers)
        return replace(table, buffers=table.buffers * buffers, rows=rows, stops=table.stops * buffers)
    with pytest.raises(ValueError, match="65,536 buffers"):
        thrift.plain(frames(65_536))
    table = thrift.plain(frames(65_535))
    assert len(table) == 65_535 and len(table.buffers) == 65_536


@pytest.mark.parametrize("ids", [[1, 1], [1, 1, 1]])
@pytest.mark.parametrize("damaged", [False, True])
def test_the_ratio_counts_from_the_wire(ids, damaged):
    """Else a payload of 250 bytes, compressed twice, is worth a minute of work in each megabyte of them."""
    bomb = zlib_with_zeros(b"", 60 << 20)
    bomb = bomb[:-1] + b"?" if damaged else bomb
    for _ in ids[1:]:
        bomb = zlib.compress(bomb, 9)
    frames, start = thrift.scan(under(ids, bomb) * 20), time.process_time()
    assert thrift.plain(frames, errors="mark")["fault"].tolist() == [Fault.TOO_LARGE] * 20
    assert time.process_time() - start < 1


def test_what_is_small_is_not_refused_for_its_ratio():
    plain = binary(b"m", 1, 1) + bytes(900 << 10)
    table = thrift.plain(thrift.scan(under([1, 1], zlib.compress(zlib.compress(plain)))))
    assert table["payload_size"].tolist() == [len(plain)] and not table.bad.any()
