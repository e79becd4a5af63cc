"""Compress and decompress payloads. Every decompression is bounded by `Limits`.

The protocol packages add compressed payloads to an `Arena`, which decompresses them into buffers.

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
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeAlias, cast

import cramjam
import numpy as np
import snappy

from wirescan.core import inflate, libdeflate, libzstd
from wirescan.core.checksum import adler32
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD, lie_inside
from wirescan.core.rows import Block
from wirescan.core.span_decompressor import FAST_CODECS, SpanDecompressor
from wirescan.frames.limits import Limits

__all__ = [
    "Arena",
    "CodecError",
    "OutputTooSmallError",
    "compress",
    "decompress_into",
    "limit_each",
    "limit_total",
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

_RATIO_FREE = 1 << 20  # bytes; smaller output is never refused for its ratio
_RATIO_TOTAL_FREE = 128 << 20  # bytes; the same for all payloads of an arena together
_MIN_WORK = 64 << 10  # bytes; the cost of one attempt to decompress, whatever its output
_FIRST_BUFFER = 256 << 10  # bytes in the first buffer of an arena that has no better guess
_LARGEST_BUFFER = 256 << 20  # bytes; buffers of up to this size double
_GROWTH = 8  # the factor by which the buffer grows for a payload that did not fit

# Bounds that the compiled loops take, so that their sums fit 64 bits.
_LARGEST_RATIO = 1 << 31
_LARGEST_TOTAL = 1 << 62

Place: TypeAlias = tuple[int, int, int]
"""A payload in an arena: (index into `buffers`, start in that buffer, size), in bytes."""


class CodecError(Exception):
    """A payload that cannot be decompressed.

    It is internal: callers turn it into the fault of a row.

    Attributes:
        fault: BAD_COMPRESSION, BAD_CHECKSUM, TOO_LARGE or BAD_CODEC.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


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


def _get_libdeflate() -> libdeflate.DeflateDecompressor:
    """Return the decompressor of this thread. Call it only where libdeflate is available."""
    if _state.gzip is None:
        _state.gzip = libdeflate.DeflateDecompressor()
    return _state.gzip


def _decompress_gzip(payload: memoryview, out: Any) -> int:
    if libdeflate.available:
        size = _get_libdeflate().decompress_gzip(payload, out)
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


def _decompress_zlib(payload: memoryview, max_bytes: int, *, check: bool) -> tuple[bytes, Fault]:
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
            raise CodecError(Fault.BAD_CHECKSUM, "Adler-32 does not match")
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
    if size > len(out):
        raise OutputTooSmallError(
            f"the block says {size} bytes, but the output has {len(out)} bytes"
        )
    written: int = cramjam.lz4.decompress_block_into(payload[at:], out[:size])
    # The library accepts any bytes as an empty block, which is a single zero.
    is_bad_empty_block = not size and (len(payload) != at + 1 or payload[at] != 0)
    if written != size or is_bad_empty_block:
        raise CodecError(
            Fault.BAD_COMPRESSION, "the lz4 block does not decompress to its stated size"
        )
    return written


_DECOMPRESS: dict[str, Callable[[memoryview, Any], int]] = {
    "gzip": _decompress_gzip,
    "snappy": _decompress_snappy,
    "snappy-raw": cramjam.snappy.decompress_raw_into,
    "lz4": cramjam.lz4.decompress_into,
    "lz4-block": _decompress_lz4_block,
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
    decompress = _DECOMPRESS.get(codec)
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


def limit_each(limits: Limits, sizes: np.ndarray) -> np.ndarray:
    """Return how many bytes payloads may decompress to, each by itself, as an int64 array.

    sizes: the compressed bytes of each payload.
    """
    ratio = min(limits.ratio, _LARGEST_RATIO)
    by_ratio = np.maximum(ratio * sizes.astype(np.int64), _RATIO_FREE)
    return np.minimum(by_ratio, limits.inflated)


def limit_total(limits: Limits, wire: np.ndarray) -> np.ndarray:
    """Return how many bytes all payloads up to each one may decompress to, as an int64 array.

    wire: int64 array, the compressed bytes of all payloads up to each one.
    """
    total = min(limits.inflated_total, _LARGEST_TOTAL)
    ratio = min(limits.ratio_total, _LARGEST_TOTAL)
    # Where the ratio allows more than `total`, its product might not fit 64 bits.
    by_ratio = np.maximum(np.minimum(wire, total // ratio) * ratio, _RATIO_TOTAL_FREE)
    return np.where(wire > total // ratio, total, np.minimum(by_ratio, total))


class Arena:
    """Decompressed payloads, one after another in a few large buffers.

    Buffers are never zeroed, moved or shrunk. A buffer stays valid while a memoryview on it
    exists. Only one thread at a time may add payloads.

    Args:
        limits: the bounds for each payload and for all payloads together.
        expect: a guess of the decompressed bytes to come. It must not be a size read from the
            wire. Pages that are never written cost no memory.
    """

    __slots__ = ("_limits", "_wire", "_spent", "_wasted", "_full", "_current", "_used")

    def __init__(self, limits: Limits = Limits(), expect: int = 0) -> None:
        self._limits = limits
        self._wire = 0  # compressed bytes so far
        self._spent = 0  # decompressed bytes so far
        self._wasted = 0  # bytes decompressed from payloads that were too large
        self._full: list[memoryview] = []  # buffers in front of the current one
        capacity = max(0, min(expect, _LARGEST_BUFFER, limits.inflated_total))
        self._current = memoryview(Block(capacity))
        self._used = 0  # bytes of the current buffer

    @property
    def remaining(self) -> int:
        """The bytes that the next payloads may decompress to, all together."""
        allowed = max(self._limits.ratio_total * self._wire, _RATIO_TOTAL_FREE)
        return max(min(allowed, self._limits.inflated_total) - self._spent, 0)

    def spend(self, other: Arena) -> None:
        """Count the bytes that another arena decompressed for a payload of this arena."""
        self._spent += other._spent
        self._wasted += other._wasted

    def add(self, codec: str, payload: memoryview, wire: int | None = None) -> Place:
        """Decompress `payload` and return its place.

        After an error the arena is as it was before. An arena that has spent much work on
        payloads above a limit refuses all further payloads.

        codec: as in `decompress_into`.
        payload: the compressed bytes.
        wire: the bytes of the payload on the wire, if an earlier step decompressed it. The ratio is
            computed from this size. Default: the size of `payload`.

        Raises CodecError: TOO_LARGE if the payload decompresses to more than the limits allow;
        otherwise as `decompress_into`.
        """
        start = self._used
        max_bytes = self._limit_output(len(payload) if wire is None else wire)
        size: int | None
        try:
            size = decompress_into(codec, payload, self._current[start : start + max_bytes])
        except CodecError as error:
            # Any message may mean a full output, while the output was smaller than allowed.
            if error.fault == Fault.BAD_CODEC or len(self._current) - start >= max_bytes:
                self._count_refused(error, max_bytes)
                raise
            size = None
        if size is None:
            # Tried again outside of the handler, so that no second error chains to the first.
            size = self._decompress_in_new_buffer(codec, payload, max_bytes)
            start = 0
        self._used = start + size
        self._spent += size
        return len(self._full), start, size

    def add_each(
        self, codecs: Sequence[str], buffers: Sequence[memoryview], spans: np.ndarray
    ) -> np.ndarray:
        """Decompress payloads as `add` does, one after another.

        Args:
            codecs: the codec of each payload, as in `decompress_into`.
            buffers: the buffers that the spans point into.
            spans: array of dtype HEAD, one row for each payload. Their faults must be 0.

        Returns:
            An array of dtype HEAD. Its `buffer`, `start` and `size` are the place that `add`
            returns, or `fault` is set to the fault that `add` raises.

        Raises:
            ValueError: a span is outside its buffer.
        """
        places = np.zeros(len(spans), HEAD)
        available = {"gzip": libdeflate.available, "zstd": libzstd.available}
        is_fast = np.array(
            [FAST_CODECS[codec] if available.get(codec) else 0 for codec in codecs], np.uint8
        )
        fast = None
        if is_fast.any():
            fast = SpanDecompressor(buffers, spans, is_fast, places)
        elif not lie_inside(spans, buffers):
            raise ValueError("a span points outside its buffer")
        columns = (spans["buffer"], spans["start"], spans["start"] + spans["size"], is_fast)
        values = zip(*(column.tolist() for column in columns))
        results: list[tuple[int, int, int, int, int]] = []  # row, buffer, start, size, fault
        stop = 0  # payloads before this one are decompressed
        limits = limit_each(self._limits, spans["size"]).tolist()
        remaining = 0  # a lower bound of `self.remaining`, which is costly to compute
        for i, (number, first, last, fast_codec) in enumerate(values):
            if fast is not None and fast_codec and i >= stop:
                stop = self._run(fast, i)
                remaining = 0
            if i < stop:
                continue
            payload = buffers[number][first:last]
            place = None
            if remaining >= limits[i] and not self._wasted:
                place = self._add_to_current(codecs[i], payload, limits[i])
            if place is not None:
                remaining -= place[2]
                results.append((i, *place, 0))
                continue
            try:
                results.append((i, *self.add(codecs[i], payload), 0))
            except CodecError as error:
                results.append((i, 0, 0, 0, error.fault))
            remaining = self.remaining
        by_column = np.array(results, np.int64).reshape(-1, 5).T
        for name, column in zip(("buffer", "start", "size", "fault"), by_column[1:]):
            places[name][by_column[0]] = column
        return places

    def _add_to_current(self, codec: str, payload: memoryview, max_bytes: int) -> Place | None:
        """Decompress a payload into the current buffer; return None where `add` has to do it.

        max_bytes: the bytes that the payload may decompress to, within all limits.
        """
        start = self._used
        try:
            size = _DECOMPRESS[codec](payload, np.asarray(self._current[start : start + max_bytes]))
        except (cramjam.DecompressionError, CodecError, KeyError):
            return None
        self._wire += len(payload)
        self._used = start + size
        self._spent += size
        return len(self._full), start, size

    def _run(self, fast: SpanDecompressor, first: int) -> int:
        """Decompress payloads from `first` on; return the first that is left to `add`."""
        limits = self._limits
        if self._wasted:
            return first  # only `add` counts the work on payloads that are refused
        stop, self._used, self._wire, self._spent = fast.run(
            first,
            cast(Block, self._current.obj),
            self._used,
            len(self._full),
            (min(limits.ratio, _LARGEST_RATIO), _RATIO_FREE, limits.inflated),
            (
                min(limits.ratio_total, _LARGEST_TOTAL),
                _RATIO_TOTAL_FREE,
                min(limits.inflated_total, _LARGEST_TOTAL),
            ),
            self._wire,
            self._spent,
        )
        return stop

    def add_zlib(
        self, payload: memoryview, *, check: bool = True, wire: int | None = None
    ) -> tuple[Place, Fault]:
        """Decompress a zlib stream and return its place and the fault at its end.

        The fault is TRUNCATED if the payload ends before the stream, LEFTOVER if bytes follow
        the stream, otherwise OK. After an error the arena is as after `add`.

        payload: the zlib stream.
        check: verify Adler-32.
        wire: as in `add`.

        Raises CodecError: BAD_COMPRESSION, BAD_CHECKSUM or TOO_LARGE.
        """
        max_bytes = self._limit_output(len(payload) if wire is None else wire)
        if libdeflate.available:
            start = self._used
            out = self._current[start : start + max_bytes]
            written = _get_libdeflate().decompress_zlib(payload, out)
            if written >= 0:
                self._used += written
                self._spent += written
                return (len(self._full), start, written), Fault.OK
        try:
            data, fault = _decompress_zlib(payload, max_bytes, check=check)
        except CodecError as error:
            self._count_refused(error, max_bytes)
            raise
        return self._append(data), fault

    def add_zlib_each(
        self, buffers: Sequence[memoryview], spans: np.ndarray, *, check: bool = True
    ) -> np.ndarray:
        """Decompress zlib streams, each of which has to fill its span.

        Args:
            buffers: the buffers that the spans point into.
            spans: array of dtype HEAD, one row for each stream.
            check: verify Adler-32, and refuse bytes after a stream.

        Returns:
            An array of dtype HEAD. Its `buffer`, `start` and `size` are the place that `add`
            returns, or `fault` is set: to the fault of the span, or to BAD_COMPRESSION,
            BAD_CHECKSUM, TOO_LARGE, TRUNCATED or LEFTOVER.
        """
        places = np.zeros(len(spans), HEAD)
        if not inflate.available:
            self._add_zlib_with_python(buffers, spans, places, check=check)
            return places
        bounds = (min(self._limits.ratio, _LARGEST_RATIO), _RATIO_FREE, self._limits.inflated)
        self._wire += int(spans["size"].sum(dtype=np.int64))
        count = 0
        while True:
            before = self._used
            count, self._used = inflate.inflate_spans(
                buffers,
                spans,
                places,
                count,
                cast(Block, self._current.obj),
                before,
                len(self._full),
                bounds,
                min(self.remaining, _LARGEST_TOTAL),
                check,
            )
            self._spent += self._used - before
            if count == len(spans):
                return places
            # An unused buffer was too small for the next stream by itself.
            tried = len(self._current) if self._used == 0 else 0
            capacity = _GROWTH * max(tried, int(spans["size"][count]))
            self._start_buffer(min(capacity, self._limits.inflated))

    def _add_zlib_with_python(
        self,
        buffers: Sequence[memoryview],
        spans: np.ndarray,
        places: np.ndarray,
        *,
        check: bool,
    ) -> None:
        """Fill `places` as `add_zlib_each` does, without the compiled decompressor."""
        columns = ["start", "size", "buffer", "fault"]
        for i, (start, size, number, fault) in enumerate(spans[columns].tolist()):
            place: Place = (0, 0, 0)
            if not fault:
                try:
                    place, fault = self.add_zlib(buffers[number][start : start + size], check=check)
                except CodecError as error:
                    fault = error.fault
                if fault == Fault.LEFTOVER and not check:
                    fault = Fault.OK
            if fault:
                places["fault"][i] = fault
            else:
                places["buffer"][i], places["start"][i], places["size"][i] = place

    def add_parts(self, parts: Sequence[memoryview]) -> Place:
        """Copy bytes into the arena, one part after another, and return their place.

        Raises CodecError: TOO_LARGE if the limits do not allow so many bytes.
        """
        size = sum(map(len, parts))
        self._wire += size
        max_bytes = min(self._limits.inflated, self.remaining)
        if size > max_bytes:
            raise OutputTooSmallError(
                f"the parts have {size} bytes, but {max_bytes} bytes are allowed"
            )
        return self._append(b"".join(parts))

    def _append(self, data: bytes) -> Place:
        if len(data) > len(self._current) - self._used:
            self._start_buffer(len(data))
        start = self._used
        self._used += len(data)
        self._current[start : self._used] = data
        self._spent += len(data)
        return len(self._full), start, len(data)

    def _start_buffer(self, least: int) -> None:
        self._finish_buffer()
        self._current = memoryview(Block(max(self._choose_capacity(), least)))
        self._used = 0

    def _finish_buffer(self) -> None:
        if self._used:
            self._full.append(self._current[: self._used].toreadonly())

    def _choose_capacity(self) -> int:
        return max(_FIRST_BUFFER, min(2 * len(self._current), _LARGEST_BUFFER))

    def _limit_output(self, size: int) -> int:
        """Count a payload of `size` bytes and return how many bytes it may decompress to."""
        limits = self._limits
        self._wire += size
        wasted = self._wasted
        if wasted > _RATIO_TOTAL_FREE and wasted > limits.ratio_total * self._wire:
            raise OutputTooSmallError("too many payloads are above a limit")
        return min(max(limits.ratio * size, _RATIO_FREE), limits.inflated, self.remaining)

    def _count_refused(self, error: CodecError, max_bytes: int) -> None:
        """Count the work on a payload that is too large.

        Many such payloads of a few bytes each would cost much.
        """
        if error.fault == Fault.TOO_LARGE:
            self._wasted += max(max_bytes, _MIN_WORK)

    def _decompress_in_new_buffer(self, codec: str, payload: memoryview, max_bytes: int) -> int:
        capacity = max(self._choose_capacity(), min(_GROWTH * len(payload), max_bytes))
        capacity = min(capacity, self.remaining)
        while True:
            buffer = memoryview(Block(capacity))
            try:
                size = decompress_into(codec, payload, buffer[:max_bytes])
                break
            except CodecError as error:
                refused = error.with_traceback(None)
            # Neither this name nor a traceback keeps the buffer of a failed attempt alive.
            del buffer
            if capacity >= max_bytes:
                self._count_refused(refused, max_bytes)
                raise refused
            capacity = min(_GROWTH * capacity, max_bytes)
        self._finish_buffer()
        self._current = buffer
        return size

    @property
    def buffers(self) -> list[memoryview]:
        """Read-only views on the decompressed bytes: at least one. The last may be empty."""
        return [*self._full, self._current[: self._used].toreadonly()]


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
    size = len(data)
    prefix = bytearray()
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + bytes(cramjam.lz4.compress_block(data, store_size=False))


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
