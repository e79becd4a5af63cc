"""One bounded decompress per codec, and the arena that inflated payloads live in.

    codec         accepted (all that real clients write; bytes left over after the last of it are an error)
    "gzip"        RFC 1952: one or more members, all optional header fields; CRC32 and size are verified
    "snappy"      one raw block (google/snappy, format_description.txt), or xerial framing, told by its magic:
                      82 53 4e 41 50 50 59 00 | version i4 | compatible i4 | (size i4 BE | raw block of size)*
                  The two words are never looked at (both byte orders are found in the wild). The header may
                  stand again between blocks: streams one after another.
    "lz4"         LZ4 frames (lz4_Frame_format.md 1.6): one or more, skippable ones too, blocks linked or not;
                  header, block and content checksums are verified where present. Dictionaries are refused.
    "lz4-legacy"  the same, but the checksum of the first header is replaced by the right one in a copy: Kafka
                  clients put a wrong one into magic 0 (KAFKA-3160), and Kafka's own reader never looks at it
    "snappy-raw"  one raw block, whatever it begins with
    "lz4-block"   one raw LZ4 block (lz4_Block_format.md) behind its inflated size, a varint
    zlib          RFC 1950, of its own (`Arena.add_zlib`, `add_zlib_each`): what is left over, or missing at the
                  end, is told
    "zstd"        RFC 8878: one or more frames, skippable ones too, with or without a content size; windows up
                  to 128 MiB

The work is done by cramjam (the library beneath python-snappy), and for zlib by Python's own; here it is bounded, and
every error of theirs becomes a CodecError. Nothing is allocated from a size that a payload claims.
"""

from __future__ import annotations

import operator
import struct
import zlib
from collections.abc import Sequence
from typing import SupportsIndex

import cramjam
import numpy as np
import snappy

from wirescan.core import inflate
from wirescan.core.checksum import adler32
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.rows import Block
from wirescan.limits import Limits

__all__ = ["Arena", "CodecError", "NoRoom", "compress", "decompress_into"]

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_SIZE = struct.Struct(">I")
LZ4_MAGIC = b"\x04\x22\x4d\x18"

_RATIO_FREE = 1 << 20  # bytes; below this nothing is refused for its ratio
_FIRST_ROOM = 256 << 10  # bytes in the first buffer of an arena, when nothing better is known
_LARGEST_ROOM = 256 << 20  # few buffers, of a size that is kept for the next arena
_GROWTH = 8  # a payload that did not fit is given so many times the room


class CodecError(Exception):
    """A payload could not be inflated. `fault` says why: BAD_COMPRESSION, BAD_CHECKSUM, TOO_LARGE or BAD_CODEC.

    Internal: it becomes the fault of a row, and never leaves the package.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class NoRoom(CodecError):
    """The payload inflates to more bytes than there is room for. Its fault is TOO_LARGE."""

    def __init__(self, message: str) -> None:
        super().__init__(Fault.TOO_LARGE, message)


# --- inflating ----------------------------------------------------------------------------------------------


def _inflate_snappy(payload, out) -> int:
    if payload and payload[0] == XERIAL_MAGIC[0] and payload[:8] == XERIAL_MAGIC:
        if len(payload) >= 20 and _SIZE.unpack_from(payload, 16)[0] == len(payload) - 20:      # one block, as is usual
            return cramjam.snappy.decompress_raw_into(payload[20:], out)
        return _inflate_xerial(memoryview(payload), memoryview(out))
    return cramjam.snappy.decompress_raw_into(payload, out)


def _inflate_xerial(payload: memoryview, out: memoryview) -> int:
    at = written = 0
    end = len(payload)
    while end - at >= 4:
        if payload[at : at + 8] == XERIAL_MAGIC:
            at += 16
            continue
        size = int.from_bytes(payload[at : at + 4], "big")
        if size > end - at - 4:
            break
        written += cramjam.snappy.decompress_raw_into(payload[at + 4 : at + 4 + size], out[written:])
        at += 4 + size
    if at != end:
        raise CodecError(Fault.BAD_COMPRESSION, "a xerial header or block runs past the end of the payload")
    return written


def _inflate_lz4_legacy(payload, out) -> int:
    mended = bytearray(payload)
    flags = mended[4] if len(mended) > 4 else 0
    # Magic, flags, block descriptor, then a content size and a dictionary if flagged, then the checksum.
    checksum_at = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if checksum_at >= len(mended):
        raise CodecError(Fault.BAD_COMPRESSION, "the payload ends inside its lz4 header")
    mended[checksum_at] = _xxh32(mended[4:checksum_at]) >> 8 & 0xFF
    return cramjam.lz4.decompress_into(mended, out)


def _xxh32(data: bytes) -> int:
    """xxHash-32 with seed 0 of fewer than 16 bytes (xxhash_spec.md): all that an lz4 header can have."""
    value = 374761393 + len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _turn(value + word * 3266489917, 17) * 668265263
    for byte in data[whole:]:
        value = _turn(value + byte * 374761393, 11) * 2654435761
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * 2246822519 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 3266489917 & 0xFFFFFFFF
    return value ^ value >> 16


def _turn(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits & 0xFFFFFFFF | value >> 32 - bits


def _inflate_zlib(payload: memoryview, most: int, check: bool) -> tuple[bytes, Fault]:
    if len(payload) < 2:
        return b"", Fault.TRUNCATED
    method, flags = payload[0], payload[1]
    if method & 15 != 8 or method >> 4 > 7 or (method << 8 | flags) % 31 or flags & 32:
        raise CodecError(Fault.BAD_COMPRESSION, "no zlib header, or one that asks for a dictionary")
    inflater = zlib.decompressobj(-15)  # without its checksum, which may be missing, and is compared here
    try:
        data = inflater.decompress(payload[2:], most + 1)
    except zlib.error as error:
        message = str(error)
    else:
        if len(data) > most:
            raise NoRoom(f"more than {most} bytes")
        rest = inflater.unused_data
        if not inflater.eof or len(rest) < 4:
            return data, Fault.TRUNCATED
        if check and adler32(data) != int.from_bytes(rest[:4], "big"):
            raise CodecError(Fault.BAD_CHECKSUM, "Adler-32 does not match")
        return data, Fault.LEFTOVER if len(rest) > 4 else Fault.OK
    raise CodecError(Fault.BAD_COMPRESSION, message)


def _inflate_lz4_block(payload, out) -> int:
    # Only the wire says how large it is: that is compared with the room before anything else.
    size = shift = at = 0
    while True:
        if at == len(payload) or shift > 28:
            raise CodecError(Fault.BAD_COMPRESSION, "no size before the lz4 block")
        byte = payload[at]
        size, shift, at = size | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            break
    if size > len(out):
        raise NoRoom(f"the block says {size} bytes")
    written = cramjam.lz4.decompress_block_into(payload[at:], out[:size])
    if written != size or not size and payload[at:] != b"\0":       # of those the library takes any
        raise CodecError(Fault.BAD_COMPRESSION, "the block is not what it says")
    return written


_INFLATE = {
    "gzip": cramjam.gzip.decompress_into,
    "snappy": _inflate_snappy,
    "snappy-raw": cramjam.snappy.decompress_raw_into,
    "lz4": cramjam.lz4.decompress_into,
    "lz4-block": _inflate_lz4_block,
    "lz4-legacy": _inflate_lz4_legacy,
    "zstd": cramjam.zstd.decompress_into,
}
_NO_MEMORY = "not enough memory"         # of zstd, whose window may be large
_NO_ROOM = ("failed to write whole buffer", "is smaller than required")  # Rust's WriteZero, and snap's own


def decompress_into(codec: str, payload: memoryview, out) -> int:
    """Inflate `payload` into `out`, a writable buffer of bytes, and return how many bytes were written.

    Raises NoRoom if `out` is too small, CodecError(BAD_COMPRESSION) for a payload that is malformed, cut or
    followed by anything, CodecError(BAD_CODEC) for a codec that is not known. `out` is then partly written.
    MemoryError where the codec finds no memory for itself.
    """
    inflate = _INFLATE.get(codec)
    if inflate is None:
        raise CodecError(Fault.BAD_CODEC, f"unknown codec {codec!r}")
    try:
        return inflate(payload, out)
    except cramjam.DecompressionError as error:
        message = str(error)
    # Raised here, so that no chained traceback keeps `out` alive.
    if any(text in message for text in _NO_ROOM):
        raise NoRoom(message)
    if _NO_MEMORY in message:
        raise MemoryError(message)
    raise CodecError(Fault.BAD_COMPRESSION, message)


class Arena:
    """Inflated payloads, one after another in few large buffers that are never zeroed, moved nor shrunk.

    `expect` is a guess of the bytes to come (no size read from the wire); pages never written cost no memory.
    A buffer stays valid for as long as a memoryview on it lives. One thread at a time may add.
    """

    __slots__ = ("_limits", "_left", "_full", "_room", "_used")

    def __init__(self, limits: Limits = Limits(), expect: int = 0) -> None:
        self._limits = limits
        self._left = limits.inflated_total
        self._full: list[memoryview] = []
        self._room = memoryview(Block(max(0, min(expect, _LARGEST_ROOM, self._left))))
        self._used = 0

    def add(self, codec: str, payload: memoryview, wire: int | None = None) -> tuple[int, int, int]:
        """Inflate `payload`; return (index into `buffers`, start in that buffer, size), in bytes. wire: bytes that it
        was on the wire, if it was inflated before: the ratio counts from there.

        Raises CodecError: TOO_LARGE if the payload inflates to more than the limits allow, otherwise as
        `decompress_into` does. The arena is then as it was.
        """
        start = self._used
        most = self._most(len(payload) if wire is None else wire)
        try:
            size = decompress_into(codec, payload, self._room[start : start + most])
        except CodecError as error:
            # Whatever the library said: as long as there was less room than allowed, that may be the reason.
            if error.fault == Fault.BAD_CODEC or len(self._room) - start >= most:
                raise
            size = None
        if size is None:  # tried again out here, so that a second error does not chain to the first
            size = self._inflate_in_a_new_buffer(codec, payload, most)
            start = 0
        self._used = start + size
        self._left -= size
        return len(self._full), start, size

    def add_zlib(self, payload: memoryview, check: bool = True,
                 wire: int | None = None) -> tuple[tuple[int, int, int], Fault]:
        """Inflate a zlib stream; return what `add` does, and what is wrong at its end: TRUNCATED where the payload ends
        before the stream does, LEFTOVER where it goes on behind it, else OK. check: verify Adler-32. wire: as of `add`.

        Raises CodecError: BAD_COMPRESSION, BAD_CHECKSUM, or TOO_LARGE. The arena is then as it was.
        """
        data, fault = _inflate_zlib(payload, self._most(len(payload) if wire is None else wire), check)
        return self._put(data), fault

    def add_zlib_each(self, buffers: Sequence[memoryview], spans: np.ndarray, check: bool = True) -> np.ndarray:
        """Inflate zlib streams, each of which has to be all of its span (array of dtype HEAD); return an array of
        dtype HEAD: `buffer`, `start` and `size` as `add` returns them, or a `fault`: that of the span, or BAD_COMPRESSION,
        BAD_CHECKSUM, TOO_LARGE, TRUNCATED or LEFTOVER. check: verify Adler-32, and refuse what follows a stream."""
        places, done, tried = np.zeros(len(spans), HEAD), 0, 0
        bounds = min(self._limits.ratio, 1 << 31), _RATIO_FREE, self._limits.inflated       # 64 bits hold what follows
        while inflate.available:
            before = self._used
            done, self._used = inflate.inflate_spans(buffers, spans, places, done, self._room.obj, before,
                                                     len(self._full), bounds, min(self._left, 1 << 62), check)
            self._left -= self._used - before
            if done == len(spans):
                return places
            tried = len(self._room) if self._used == 0 else 0           # that room alone did not do for the next
            wanted = _GROWTH * max(tried, int(spans["size"][done]))
            self._next_room(min(wanted, self._limits.inflated))
        for i, (start, size, number, fault) in enumerate(spans[["start", "size", "buffer", "fault"]].tolist()):
            try:
                if not fault:
                    (number, start, size), fault = self.add_zlib(buffers[number][start : start + size], check)
                    fault = fault if check or fault != Fault.LEFTOVER else Fault.OK
            except CodecError as error:
                fault = error.fault
            places[i] = (0, 0, 0, 0, 0, 0, fault) if fault else (start, size, 0, 0, number, 0, 0)
        return places

    def add_parts(self, parts: Sequence[memoryview]) -> tuple[int, int, int]:
        """Put bytes there as they are, one after another; return what `add` does. Raises CodecError(TOO_LARGE)."""
        size = sum(map(len, parts))
        if size > min(self._limits.inflated, self._left):
            raise NoRoom(f"more than {min(self._limits.inflated, self._left)} bytes")
        return self._put(b"".join(parts))

    def _put(self, data: bytes) -> tuple[int, int, int]:
        if len(data) > len(self._room) - self._used:
            self._next_room(len(data))
        start, self._used = self._used, self._used + len(data)
        self._room[start : self._used] = data
        self._left -= len(data)
        return len(self._full), start, len(data)

    def _next_room(self, least: int) -> None:
        if self._used:
            self._full.append(self._room[: self._used].toreadonly())
        self._room = memoryview(Block(max(_FIRST_ROOM, min(2 * len(self._room), _LARGEST_ROOM), least)))
        self._used = 0

    def _most(self, size: int) -> int:
        """Bytes that a payload of that size may inflate to."""
        limits = self._limits
        return min(max(limits.ratio * size, _RATIO_FREE), limits.inflated, self._left)

    def _inflate_in_a_new_buffer(self, codec: str, payload: memoryview, most: int) -> int:
        room = max(_FIRST_ROOM, min(2 * len(self._room), _LARGEST_ROOM), min(_GROWTH * len(payload), most))
        room = min(room, self._left)
        while True:
            buffer = memoryview(Block(room))
            try:
                size = decompress_into(codec, payload, buffer[:most])
                break
            except CodecError as error:
                refused = error.with_traceback(None)
            buffer = None  # neither this name nor a traceback keeps the room of a failed attempt
            if room >= most:
                raise refused
            room = min(_GROWTH * room, most)
        if self._used:
            self._full.append(self._room[: self._used].toreadonly())
        self._room = buffer
        return size

    @property
    def buffers(self) -> list[memoryview]:
        """Read-only views on what was inflated so far: at least one, the last of them possibly empty."""
        return [*self._full, self._room[: self._used].toreadonly()]


# --- compressing --------------------------------------------------------------------------------------------


def _compress_xerial(data, level) -> bytes:
    out = bytearray(XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for at in range(0, len(data), 32 << 10):  # the block size of xerial's own writer
        block = snappy.compress(bytes(data[at : at + (32 << 10)]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _compress_lz4(header: bytes):
    # Independent blocks, which Kafka's own reader insists on; cramjam's frames have linked ones.
    def compress_lz4(data, level) -> bytes:
        out = bytearray(LZ4_MAGIC + header)
        for at in range(0, len(data), 64 << 10):
            block = bytes(data[at : at + (64 << 10)])
            smaller = bytes(cramjam.lz4.compress_block(block, store_size=False))     # takes a level, and ignores it
            if len(smaller) < len(block):
                out += struct.pack("<I", len(smaller)) + smaller
            else:  # the highest bit says: stored as it is
                out += struct.pack("<I", len(block) | 1 << 31) + block
        return bytes(out + bytes(4))

    return compress_lz4


def _compress_lz4_block(data, level) -> bytes:
    size, prefix = len(data), bytearray()
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes(prefix) + bytes((size,)) + bytes(cramjam.lz4.compress_block(data, store_size=False))


_COMPRESS = {
    "gzip": lambda data, level: bytes(cramjam.gzip.compress(data, level)),
    "snappy": lambda data, level: snappy.compress(bytes(data)),
    "snappy-xerial": _compress_xerial,
    "zlib": lambda data, level: zlib.compress(data, -1 if level is None else level),
    "lz4-block": _compress_lz4_block,
    "lz4": _compress_lz4(b"\x60\x40\x82"),  # version 1, independent blocks of at most 64 KiB, header checksum
    "lz4-legacy": _compress_lz4(b"\x60\x40\x1a"),  # the same with the checksum of KAFKA-3160
    "zstd": lambda data, level: bytes(cramjam.zstd.compress(data, level)),
}
_LEVELS = {"gzip": range(10), "zlib": range(10), "zstd": range(-131_072, 23)}     # what the library would clamp is refused


def compress(codec: str, data: bytes | memoryview, level: SupportsIndex | None = None) -> bytes:
    """Compress `data` as the protocols' own clients do. level: gzip and zlib 0 .. 9, zstd -131072 .. 22; others have
    none.

    Codecs: those of `decompress_into`, but "snappy" is what "snappy-raw" is there; "snappy-xerial", which is inflated
    as "snappy"; "zlib". Raises ValueError
    for a codec that is not known and a level that it does not have, TypeError for one that is not an integer.
    """
    if codec not in _COMPRESS:
        raise ValueError(f"unknown codec {codec!r}; known are {', '.join(_COMPRESS)}")
    if level is not None:
        level, levels = operator.index(level), _LEVELS.get(codec, range(0))
        if level not in levels:
            known = f"levels from {levels[0]} to {levels[-1]}" if levels else "no levels"
            raise ValueError(f"codec {codec} has {known}, and not level {level}")
    return _COMPRESS[codec](data, level)
