# cython: boundscheck=False, wraparound=False
"""Decompression of many zlib streams (RFC 1950) with one inflate state and without the GIL.

The functions are those of the libz that Python's own zlib module uses. They are looked up at run
time, so no headers of zlib are needed. `available` is False where Python's libz does not export
them. Then `wirescan.frames.codecs` uses Python's module instead.

Where libdeflate is available, it decompresses the intact streams, because it is faster. libz
decompresses all other streams again, and says what is wrong with them.
"""
import zlib

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset, strcmp
from wirescan.core.fault cimport (
    BAD_CHECKSUM, BAD_COMPRESSION, Fault, LEFTOVER, OK, TOO_LARGE, TRUNCATED)
from wirescan.core.libdeflate cimport decompress_zlib, free_decompressor, make_decompressor
from wirescan.core.loop cimport Head, Readable
from wirescan.core import libdeflate
from wirescan.core.loop import addresses, lie_inside
from wirescan.core.rows cimport Block
from wirescan.core.shared_libraries import find_functions

# z_stream_s in zlib.h. Its layout is part of the library's interface and has not changed since
# 1995.
cdef struct Inflate:
    const uint8_t* next_in
    unsigned int avail_in
    unsigned long total_in
    uint8_t* next_out
    unsigned int avail_out
    unsigned long total_out
    const char* msg
    void* state
    void* zalloc
    void* zfree
    void* opaque
    int data_type
    unsigned long adler
    unsigned long reserved

cdef enum:
    Z_FINISH = 4
    Z_STREAM_END = 1
    Z_OK = 0
    Z_MEM_ERROR = -4
    Z_BUF_ERROR = -5
    WINDOW_BITS = 15                    # the maximum of RFC 1950

ctypedef int (*InflateInit)(Inflate*, int, const char*, int) noexcept nogil
ctypedef int (*InflateStep)(Inflate*, int) noexcept nogil
ctypedef int (*InflateAction)(Inflate*) noexcept nogil

cdef InflateInit inflate_init
cdef InflateStep inflate
cdef InflateAction inflate_reset, inflate_end


_functions = find_functions(
    (getattr(zlib, "__file__", None), None, "libz.so.1"),
    ("inflateInit2_", "inflate", "inflateReset", "inflateEnd"))
available = _functions is not None
if available:
    inflate_init = <InflateInit><size_t>_functions[0]
    inflate = <InflateStep><size_t>_functions[1]
    inflate_reset = <InflateAction><size_t>_functions[2]
    inflate_end = <InflateAction><size_t>_functions[3]


cdef inline Fault inflate_stream(Inflate* z, const uint8_t* at, uint32_t size, uint8_t* out,
                                 uint64_t capacity, bint check, int* code) noexcept nogil:
    # Decompress one stream into at most `capacity` bytes. Return TOO_LARGE where it has more.
    z.next_in = at
    z.avail_in = size
    z.next_out = out
    z.avail_out = <unsigned int>min(capacity, <uint64_t>0xffffffff)
    inflate_reset(z)
    code[0] = inflate(z, Z_FINISH)
    if code[0] == Z_STREAM_END:
        return LEFTOVER if check and z.avail_in else OK
    if code[0] == Z_OK or code[0] == Z_BUF_ERROR:
        return TOO_LARGE if z.avail_out == 0 else TRUNCATED
    if z.msg is not NULL and strcmp(z.msg, b"incorrect data check") == 0:
        return BAD_CHECKSUM if check else OK
    return BAD_COMPRESSION


# The two decompressors. libdeflate takes intact streams only, and zlib says what is wrong with the
# others.
cdef struct Inflaters:
    Inflate zlib
    void* fast              # of libdeflate, or NULL


cdef inline Fault decompress(Inflaters* inflaters, const uint8_t* at, uint32_t size, uint8_t* out,
                             uint64_t capacity, bint check, size_t* written,
                             int* code) noexcept nogil:
    # Decompress one stream into at most `capacity` bytes: see `inflate_stream`.
    cdef Fault fault
    if inflaters.fast is not NULL and decompress_zlib(
            inflaters.fast, at, size, out, <size_t>capacity, written):
        return OK
    fault = inflate_stream(&inflaters.zlib, at, size, out, capacity, check, code)
    written[0] = inflaters.zlib.total_out
    return fault


def inflate_spans(buffers, spans, places, first, Block block, used, number, limits, total, check):
    """Decompress spans[first:] into a block, and return (count, used, wasted).

    count: the number of spans that are done, from span 0. used: the bytes of the block that are
    used. wasted: bytes that were decompressed from damaged streams. The call ends early where the
    block is too small for the next stream.

    buffers: bytes-like objects that the spans point into.
    spans, places: arrays of dtype HEAD and of one length. The function fills `places`: start, size
        and buffer of the decompressed bytes, or a fault. The fault is that of the span, or
        BAD_COMPRESSION, BAD_CHECKSUM (of Adler-32), TRUNCATED (the stream has no end), LEFTOVER
        (bytes follow the stream) or TOO_LARGE.
    first: number of the first span to decompress.
    block, used: the bytes are written to the block after its first `used` bytes.
    number: the `buffer` of the places.
    limits: (maximum ratio of output to input, output bytes that the ratio does not limit, maximum
        output bytes of a stream).
    total: maximum output bytes of all streams, those of damaged ones included.
    check: verify Adler-32, and refuse bytes after a stream.

    Raises ValueError where a span is outside its buffer, MemoryError.
    """
    cdef Py_ssize_t i = first, n = len(spans)
    cdef const Head[::1] span = spans
    cdef Head[::1] place = places
    cdef const uint64_t[:, ::1] readable
    cdef const Readable* buffer
    cdef int64_t at = used, remaining = total, capacity, max_size, ratio, free, single, wasted = 0
    cdef bint checked = check, full = False
    cdef unsigned short output_buffer = number
    cdef Inflaters inflaters
    cdef Fault fault
    cdef int code = 0
    cdef size_t written = 0
    ratio, free, single = limits
    if len(places) != n or not lie_inside(spans, buffers) or not 0 <= at <= block.size:
        raise ValueError("a span points outside its buffer")
    if i >= n:
        return n, used, 0
    memset(&inflaters, 0, sizeof(Inflaters))
    readable = addresses(buffers)
    if inflate_init(
            &inflaters.zlib, WINDOW_BITS, zlib.ZLIB_VERSION.encode(), sizeof(Inflate)) != Z_OK:
        raise MemoryError("no memory to inflate")
    if libdeflate.available:
        inflaters.fast = make_decompressor()
    with nogil:
        while i < n:
            buffer = <const Readable*>&readable[span[i].buffer, 0]
            fault = <Fault>span[i].fault
            if not fault:
                max_size = max(min(ratio, <int64_t>1 << 31) * span[i].size, free)
                max_size = min(max_size, single, remaining)
                capacity = min(max_size, <int64_t>block.size - at)
                fault = decompress(
                    &inflaters, buffer.at + span[i].start, span[i].size, <uint8_t*>block.at + at,
                    <uint64_t>capacity, checked, &written, &code)
                if code == Z_MEM_ERROR or (fault == TOO_LARGE and capacity < max_size):
                    full = True
                    break
            place[i].fault = <uint8_t>fault
            if not fault:
                place[i].start = at
                place[i].size = <uint32_t>written
                place[i].buffer = output_buffer
                at += <int64_t>written
                remaining -= <int64_t>written
            elif fault != TOO_LARGE and not span[i].fault:
                wasted += <int64_t>written
                remaining = max(remaining - <int64_t>written, 0)
            i += 1
    inflate_end(&inflaters.zlib)
    free_decompressor(inflaters.fast)
    if code == Z_MEM_ERROR and full:
        raise MemoryError("no memory to inflate")
    return i, at, wasted
