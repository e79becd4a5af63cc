"""Compress and decompress payloads. Every decompression is bounded by its output.

The protocol packages add compressed payloads to an `Arena` (`arena.py`), which decompresses them
into buffers and applies `Limits`.

codec         accepted input (all that real clients write; bytes after its end are an error)
"gzip"        RFC 1952: one or more members, with all optional header fields.
              CRC32 and size are verified.
"snappy"      One raw block (google/snappy, format_description.txt), or xerial framing.
              Xerial framing is recognized by its magic:
                82 53 4e 41 50 50 59 00 | version i4 | compatible i4 | (size i4 BE | raw block)*
              The two words are ignored, because both byte orders are in use.
              The header may be repeated between blocks: several streams in one payload.
"lz4"         LZ4 frames (lz4_Frame_format.md 1.6): one or more, including skippable frames.
              Blocks may be linked or independent.
              Header, block and content checksums are verified where present.
              Dictionaries are refused.
"lz4-legacy"  The same, but a copy of the payload gets the right checksum in its first header.
              Kafka clients write a wrong one into magic 0 (KAFKA-3160), and Kafka ignores it.
"snappy-raw"  One raw block, whatever its first bytes are.
"lz4-block"   One raw LZ4 block (lz4_Block_format.md) after its decompressed size, a varint.
"lz4-sized"   The same after its decompressed size as four bytes, little-endian.
zlib          RFC 1950. It has its own methods, `Arena.add_zlib` and `Arena.add_zlib_each`.
              They report missing bytes and bytes after the end.
"zstd"        RFC 8878: one or more frames, including skippable frames.
              The content size is optional. Windows of up to 128 MiB are accepted.

cramjam (the library that python-snappy uses) decompresses, and Python's own zlib for zlib.
This module bounds their output and turns each of their errors into a CodecError.
No allocation uses a size that a payload claims.

Where libdeflate and libzstd are available (`wirescan.core.libdeflate`, `wirescan.core.libzstd`),
they decompress gzip, zlib and zstd first, because they are faster. What they do not decompress is
decompressed again as above, so a damaged payload has the same fault with and without them.
libdeflate accepts reserved codes of deflate if the checksum is right; only made-up streams have
them.
"""

from __future__ import annotations

import operator
import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeAlias

import cramjam
import numpy as np
import snappy

from wirescan.core import libdeflate, libzstd
from wirescan.core.checksum import adler32
from wirescan.core.fault import Fault
from wirescan.core.varint import encode_varint

__all__ = [
    "CodecError",
    "OutputTooSmallError",
    "compress",
    "decompress_into",
    "decompress_zlib",
]

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16  # the magic, version and compatible
_SIZE = struct.Struct(">I")
_SIZE_BYTES = 4
_XERIAL_BLOCK_BYTES = 32 << 10  # the block size of xerial's own writer

LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = 64 << 10  # the largest block that the headers of `_COMPRESS` announce
_LZ4_STORED = 1 << 31  # this bit of a block's size means: the block is not compressed
_LZ4_HAS_CONTENT_SIZE = 0x08  # bits in the flags of an lz4 header
_LZ4_HAS_DICTIONARY = 0x01

_ZLIB_DEFLATE = 8  # the only compression method of RFC 1950
_ZLIB_LARGEST_WINDOW = 7  # log2 of the window size, minus 8
_ZLIB_HAS_DICTIONARY = 0x20  # bit in the flags of a zlib header
_ZLIB_CHECKSUM_BYTES = 4


class CodecError(Exception):
    """A payload that cannot be decompressed.

    It is internal: callers turn it into the fault of a row.

    Attributes:
        fault: BAD_COMPRESSION, BAD_CHECKSUM, TOO_LARGE or BAD_CODEC.
        wasted: the bytes that it decompresses to, if they are known.
    """

    def __init__(self, fault: Fault, message: str, wasted: int = 0) -> None:
        super().__init__(message)
        self.fault = fault
        self.wasted = wasted


class OutputTooSmallError(CodecError):
    """A payload that decompresses to more bytes than the output has. Its fault is TOO_LARGE."""

    def __init__(self, message: str) -> None:
        super().__init__(Fault.TOO_LARGE, message)


# --- decompressing --------------------------------------------------------------------------
# `out` is an array of bytes. To mypy it is Any, because numpy's stubs do not declare the buffer
# protocol for Python 3.11.


class _ThreadState(threading.local):
    """The decompressors of each thread. Making one costs as much as decompressing 1 KiB."""

    gzip: libdeflate.DeflateDecompressor | None = None
    zstd: libzstd.ZstdDecompressor | None = None


_state = _ThreadState()


def get_libdeflate() -> libdeflate.DeflateDecompressor:
    """Return the decompressor of this thread. Call it only where libdeflate is available."""
    if _state.gzip is None:
        _state.gzip = libdeflate.DeflateDecompressor()
    return _state.gzip


def _decompress_gzip(payload: memoryview, out: Any) -> int:
    if libdeflate.available:
        size = get_libdeflate().decompress_gzip(payload, out)
        if size >= 0:
            return size
    written: int = cramjam.gzip.decompress_into(payload, out)
    return written


def _decompress_zstd(payload: memoryview, out: Any) -> int:
    if libzstd.available:
        if _state.zstd is None:
            _state.zstd = libzstd.ZstdDecompressor()
        size = _state.zstd.decompress(payload, out)
        if size >= 0:
            return size
    written: int = cramjam.zstd.decompress_into(payload, out)
    return written


def _decompress_snappy(payload: memoryview, out: Any) -> int:
    written: int
    if payload and payload[0] == XERIAL_MAGIC[0] and payload[:8] == XERIAL_MAGIC:
        first_block = _XERIAL_HEADER_BYTES + _SIZE_BYTES
        if (
            len(payload) >= first_block
            and _SIZE.unpack_from(payload, _XERIAL_HEADER_BYTES)[0] == len(payload) - first_block
        ):
            # The usual case: a single block.
            written = cramjam.snappy.decompress_raw_into(payload[first_block:], out)
            return written
        return _decompress_xerial(payload, out)
    written = cramjam.snappy.decompress_raw_into(payload, out)
    return written


def _decompress_xerial(payload: memoryview, out: Any) -> int:
    at = 0
    written = 0
    end = len(payload)
    while end - at >= _SIZE_BYTES:
        if payload[at : at + 8] == XERIAL_MAGIC:
            at += _XERIAL_HEADER_BYTES
            continue
        block = at + _SIZE_BYTES
        size = int.from_bytes(payload[at:block], "big")
        if size > end - block:
            break
        written += cramjam.snappy.decompress_raw_into(payload[block : block + size], out[written:])
        at = block + size
    if at != end:
        raise CodecError(
            Fault.BAD_COMPRESSION, "a xerial header or block runs past the end of the payload"
        )
    return written


def _decompress_lz4_legacy(payload: memoryview, out: Any) -> int:
    fixed = bytearray(payload)
    flags = fixed[4] if len(fixed) > 4 else 0
    # The header: magic, flags, block descriptor, content size, dictionary id, checksum.
    checksum_at = 6
    if flags & _LZ4_HAS_CONTENT_SIZE:
        checksum_at += 8
    if flags & _LZ4_HAS_DICTIONARY:
        checksum_at += 4
    if checksum_at >= len(fixed):
        raise CodecError(Fault.BAD_COMPRESSION, "the payload ends inside its lz4 header")
    fixed[checksum_at] = _compute_xxh32(bytes(fixed[4:checksum_at])) >> 8 & 0xFF
    written: int = cramjam.lz4.decompress_into(fixed, out)
    return written


# The primes of xxHash-32 (xxhash_spec.md).
_XXH_PRIME_1 = 2654435761
_XXH_PRIME_2 = 2246822519
_XXH_PRIME_3 = 3266489917
_XXH_PRIME_4 = 668265263
_XXH_PRIME_5 = 374761393


def _compute_xxh32(data: bytes) -> int:
    """Return the xxHash-32 with seed 0 of fewer than 16 bytes (xxhash_spec.md).

    An lz4 header has no more bytes than that.
    """
    value = _XXH_PRIME_5 + len(data)
    words_end = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:words_end]):
        value = _rotate_left(value + word * _XXH_PRIME_3, 17) * _XXH_PRIME_4
    for byte in data[words_end:]:
        value = _rotate_left(value + byte * _XXH_PRIME_5, 11) * _XXH_PRIME_1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * _XXH_PRIME_2 & 0xFFFFFFFF
    value = (value ^ value >> 13) * _XXH_PRIME_3 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotate_left(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits & 0xFFFFFFFF | value >> 32 - bits


def decompress_zlib(payload: memoryview, max_bytes: int, *, check: bool) -> tuple[bytes, Fault]:
    """Decompress a zlib stream with Python's own zlib, and return the fault at its end.

    Args:
        payload: the zlib stream.
        max_bytes: the largest size of the result.
        check: verify Adler-32.

    Returns:
        The bytes, and a fault: TRUNCATED if the payload ends before the stream, LEFTOVER if bytes
        follow the stream, otherwise OK.

    Raises:
        CodecError: BAD_COMPRESSION, BAD_CHECKSUM or TOO_LARGE.
    """
    if len(payload) < 2:
        return b"", Fault.TRUNCATED
    method, flags = payload[0], payload[1]
    if (
        method & 15 != _ZLIB_DEFLATE
        or method >> 4 > _ZLIB_LARGEST_WINDOW
        or (method << 8 | flags) % 31
        or flags & _ZLIB_HAS_DICTIONARY
    ):
        raise CodecError(
            Fault.BAD_COMPRESSION,
            "the payload has no zlib header, or one that asks for a dictionary",
        )
    # Raw deflate: zlib would demand the checksum, which may be missing. It is compared below.
    decompressor = zlib.decompressobj(-15)
    try:
        data = decompressor.decompress(payload[2:], max_bytes + 1)
    except zlib.error as error:
        message = str(error)
    else:
        if len(data) > max_bytes:
            raise OutputTooSmallError(f"the payload decompresses to more than {max_bytes} bytes")
        rest = decompressor.unused_data
        if not decompressor.eof or len(rest) < _ZLIB_CHECKSUM_BYTES:
            return data, Fault.TRUNCATED
        if check and adler32(data) != int.from_bytes(rest[:4], "big"):
            raise CodecError(Fault.BAD_CHECKSUM, "Adler-32 does not match", len(data))
        return data, Fault.LEFTOVER if len(rest) > _ZLIB_CHECKSUM_BYTES else Fault.OK
    raise CodecError(Fault.BAD_COMPRESSION, message)


def _decompress_lz4_block(payload: memoryview, out: Any) -> int:
    # Only the payload states its decompressed size, so that size is checked against `out` first.
    size = 0
    shift = 0
    at = 0
    while True:
        if at == len(payload) or shift > 28:
            raise CodecError(Fault.BAD_COMPRESSION, "the lz4 block has no size in front of it")
        byte = payload[at]
        size |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            break
    return _decompress_lz4_raw(payload[at:], size, out)


def _decompress_lz4_sized(payload: memoryview, out: Any) -> int:
    if len(payload) < _SIZE_BYTES:
        raise CodecError(Fault.BAD_COMPRESSION, "the lz4 block has no size in front of it")
    size = int.from_bytes(payload[:_SIZE_BYTES], "little")
    return _decompress_lz4_raw(payload[_SIZE_BYTES:], size, out)


def _decompress_lz4_raw(block: memoryview, size: int, out: Any) -> int:
    """Decompress a block that is said to decompress to `size` bytes."""
    if size > len(out):
        raise OutputTooSmallError(
            f"the block says {size} bytes, but the output has {len(out)} bytes"
        )
    written: int = cramjam.lz4.decompress_block_into(block, out[:size])
    # The library accepts any bytes as an empty block, which is a single zero.
    is_bad_empty_block = not size and (len(block) != 1 or block[0] != 0)
    if written != size or is_bad_empty_block:
        raise CodecError(
            Fault.BAD_COMPRESSION, "the lz4 block does not decompress to its stated size"
        )
    return written


DECOMPRESSORS: dict[str, Callable[[memoryview, Any], int]] = {
    "gzip": _decompress_gzip,
    "snappy": _decompress_snappy,
    "snappy-raw": cramjam.snappy.decompress_raw_into,
    "lz4": cramjam.lz4.decompress_into,
    "lz4-block": _decompress_lz4_block,
    "lz4-sized": _decompress_lz4_sized,
    "lz4-legacy": _decompress_lz4_legacy,
    "zstd": _decompress_zstd,
}
# Fragments of cramjam's messages, which has one exception for all errors.
_OUT_OF_MEMORY = "not enough memory"  # zstd, whose window may be large
_OUTPUT_TOO_SMALL = (
    "failed to write whole buffer",  # Rust's WriteZero
    "is smaller than required",  # snappy
)


def decompress_into(codec: str, payload: memoryview, out: memoryview) -> int:
    """Decompress `payload` into `out` and return the number of bytes written.

    Args:
        codec: a name of the module's table.
        payload: the compressed bytes.
        out: a writable buffer of bytes. After an error it is partly written.

    Raises:
        OutputTooSmallError: `out` is too small.
        CodecError: BAD_COMPRESSION for a payload that is malformed, cut, or followed by bytes;
            BAD_CODEC for an unknown codec.
        MemoryError: the codec has no memory for itself.
    """
    decompress = DECOMPRESSORS.get(codec)
    if decompress is None:
        raise CodecError(Fault.BAD_CODEC, f"unknown codec {codec!r}")
    # Without a global interpreter lock, cramjam writes into arrays but not into memoryviews.
    array = np.asarray(out)
    try:
        return decompress(payload, array)
    except cramjam.DecompressionError as error:
        message = str(error)
    # Raised outside of the handler, so that no chained traceback keeps `out` alive.
    if any(text in message for text in _OUTPUT_TOO_SMALL):
        raise OutputTooSmallError(message)
    if _OUT_OF_MEMORY in message:
        raise MemoryError(message)
    raise CodecError(Fault.BAD_COMPRESSION, message)


# --- compressing ----------------------------------------------------------------------------

Compress: TypeAlias = Callable[[bytes | memoryview, int | None], bytes]


def _compress_xerial(data: bytes | memoryview, level: int | None) -> bytes:
    out = bytearray(XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(data[at : at + _XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _compress_lz4(header: bytes) -> Compress:
    # Kafka's own reader accepts independent blocks only; cramjam's frames have linked blocks.
    def compress_lz4(data: bytes | memoryview, level: int | None) -> bytes:
        out = bytearray(LZ4_MAGIC + header)
        for at in range(0, len(data), _LZ4_BLOCK_BYTES):
            block = bytes(data[at : at + _LZ4_BLOCK_BYTES])
            # The function has an argument for a level, and ignores it.
            compressed = bytes(cramjam.lz4.compress_block(block, store_size=False))
            if len(compressed) < len(block):
                out += struct.pack("<I", len(compressed)) + compressed
            else:
                out += struct.pack("<I", len(block) | _LZ4_STORED) + block
        end_mark = bytes(4)
        return bytes(out + end_mark)

    return compress_lz4


def _compress_lz4_block(data: bytes | memoryview, level: int | None) -> bytes:
    return encode_varint(len(data)) + bytes(cramjam.lz4.compress_block(data, store_size=False))


# Version 1, independent blocks of at most 64 KiB, header checksum.
_LZ4_HEADER = b"\x60\x40\x82"
_LZ4_LEGACY_HEADER = b"\x60\x40\x1a"  # with the wrong checksum of KAFKA-3160

_COMPRESS: dict[str, Compress] = {
    "gzip": lambda data, level: bytes(cramjam.gzip.compress(data, level)),
    "snappy": lambda data, level: snappy.compress(bytes(data)),
    "snappy-xerial": _compress_xerial,
    "zlib": lambda data, level: zlib.compress(data, -1 if level is None else level),
    "lz4-block": _compress_lz4_block,
    "lz4": _compress_lz4(_LZ4_HEADER),
    "lz4-legacy": _compress_lz4(_LZ4_LEGACY_HEADER),
    "zstd": lambda data, level: bytes(cramjam.zstd.compress(data, level)),
}
# The libraries clamp other levels; `compress` refuses them.
_LEVELS = {"gzip": range(10), "zlib": range(10), "zstd": range(-131_072, 23)}


def compress(codec: str, data: bytes | memoryview, level: SupportsIndex | None = None) -> bytes:
    """Compress `data` as the protocols' own clients do.

    Args:
        codec: a codec of `decompress_into`, with three differences. "snappy" writes a raw block.
            "snappy-xerial" writes xerial framing, which "snappy" decompresses. "zlib" is added.
        data: the bytes to compress.
        level: 0 to 9 for gzip and zlib, -131072 to 22 for zstd. Other codecs have no levels.

    Raises:
        ValueError: the codec is unknown, or it does not have that level.
        TypeError: the level is not an integer.
    """
    if codec not in _COMPRESS:
        raise ValueError(f"unknown codec {codec!r}; known codecs are {', '.join(_COMPRESS)}")
    if level is None:
        return _COMPRESS[codec](data, None)
    number = operator.index(level)
    levels = _LEVELS.get(codec, range(0))
    if number not in levels:
        allowed = f"levels from {levels[0]} to {levels[-1]}" if levels else "no levels"
        raise ValueError(f"codec {codec} has {allowed}, and not level {number}")
    return _COMPRESS[codec](data, number)
