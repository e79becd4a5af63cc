"""CRC-32 and CRC-32C: every code path of this processor agrees with zlib and with crc32c."""

import random
import zlib

import crc32c as oracle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.cases import steady
from wirescan.core.checksum import PATHS, adler32, crc32, crc32c

KINDS = {crc32: zlib.crc32, crc32c: oracle.crc32c}
every_path = pytest.mark.parametrize("path", [None, *PATHS])
every_kind = pytest.mark.parametrize("ours, theirs", KINDS.items(), ids=["crc32", "crc32c"])


def test_crc32c_has_the_check_values_of_the_catalogue():
    """The check values of the CRC catalogue, and those of RFC 3720, B.4."""
    assert crc32(b"123456789") == 0xCBF43926
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(bytes(range(31, -1, -1))) == 0x113FDB5C
    assert crc32(b"") == crc32c(b"") == 0


def test_adler32_equals_zlib():
    data = random.Random(2).randbytes(20_000)
    for size in [*range(100), 5551, 5552, 5553, 5567, 5568, 11_104, 11_105, 20_000]:
        for data_part in (data[:size], b"\xff" * size, bytes(size)):
            assert adler32(data_part) == zlib.adler32(data_part)
            assert adler32(data_part, 0xFFF0FFF0) == zlib.adler32(data_part, 0xFFF0FFF0)
    assert adler32(memoryview(data)[7:5000], adler32(data[:7])) == zlib.adler32(data[:5000])
    assert adler32(b"\xff" * 10_000_000) == zlib.adler32(b"\xff" * 10_000_000)


@every_kind
@every_path
def test_every_length_and_alignment(ours, theirs, path):
    data = random.Random(1).randbytes(5000)
    for size in [*range(700), 1023, 1024, 1025, 2047, 4096, 4099]:
        assert ours(data[:size], path=path) == theirs(data[:size])
    view = memoryview(data)
    for at in range(64):
        for size in (15, 16, 63, 64, 255, 256, 257, 1000):
            assert ours(view[at : at + size], path=path) == theirs(data[at : at + size])


@every_kind
@steady
@given(data=st.binary(max_size=600), value=st.integers(0, 2**32 - 1), cut=st.integers(0, 600))
def test_a_checksum_continues_from_a_value(ours, theirs, data, value, cut):
    for path in PATHS:
        assert ours(data, value, path=path) == theirs(data, value)
        assert ours(data[cut:], ours(data[:cut], path=path), path=path) == theirs(data)


@every_kind
def test_checksums_accept_every_buffer(ours, theirs):
    data = random.Random(2).randbytes(4000)
    for form in (
        data,
        bytearray(data),
        memoryview(data),
        np.frombuffer(data, np.uint8),
        np.frombuffer(data, ">i4"),
    ):
        assert ours(form) == theirs(data)
    with pytest.raises(TypeError, match="a bytes-like object is required"):
        ours("text")
    with pytest.raises(TypeError, match="C-contiguous"):
        ours(memoryview(data)[::2])


def test_an_unknown_path_is_refused():
    assert PATHS[0] == "portable"
    with pytest.raises(ValueError, match="portable"):
        crc32(b"", path="magic")
