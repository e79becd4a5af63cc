# cython: boundscheck=False, wraparound=False
"""zlib streams (RFC 1950), one after another, by one inflate state and without the GIL.

The functions are those of the libz that Python's own zlib module stands on: it is there already, and no headers of it
have to be. `available` is False where that is linked in a way that hides them; then Python's module has to do.
"""
import ctypes
import zlib

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset, strcmp
from wirescan.core.fault cimport BAD_CHECKSUM, BAD_COMPRESSION, Fault, LEFTOVER, OK, TOO_LARGE, TRUNCATED
from wirescan.core.loop cimport Head, Readable
from wirescan.core.loop import HEAD as _HEAD, addresses, lie_inside
from wirescan.core.rows cimport Block

# zlib.h, z_stream_s: its layout is the library's interface, and has been the same since 1995.
cdef struct Inflate:
    const uint8_t* next_in
    unsigned int   avail_in
    unsigned long  total_in
    uint8_t*       next_out
    unsigned int   avail_out
    unsigned long  total_out
    const char*    msg
    void*          state
    void*          zalloc
    void*          zfree
    void*          opaque
    int            data_type
    unsigned long  adler
    unsigned long  reserved

cdef enum:
    Z_FINISH = 4
    Z_STREAM_END = 1
    Z_OK = 0
    Z_MEM_ERROR = -4
    Z_BUF_ERROR = -5
    WINDOW_BITS = 15                    # the most that RFC 1950 knows

ctypedef int (*Begin)(Inflate*, int, const char*, int) noexcept nogil
ctypedef int (*Turn)(Inflate*, int) noexcept nogil
ctypedef int (*Done)(Inflate*) noexcept nogil

cdef Begin inflate_init
cdef Turn inflate
cdef Done inflate_reset, inflate_end


def _find():
    for name in (getattr(zlib, "__file__", None), None, "libz.so.1"):
        try:
            library = ctypes.CDLL(name)
            return [ctypes.cast(getattr(library, one), ctypes.c_void_p).value
                    for one in ("inflateInit2_", "inflate", "inflateReset", "inflateEnd")]
        except (AttributeError, OSError, TypeError):
            continue


_found = _find()
available = _found is not None
if available:
    inflate_init, inflate = <Begin><size_t>_found[0], <Turn><size_t>_found[1]
    inflate_reset, inflate_end = <Done><size_t>_found[2], <Done><size_t>_found[3]


cdef inline Fault one(Inflate* z, const uint8_t* at, uint32_t size, uint8_t* out, uint64_t room, bint check,
                      int* code) noexcept nogil:
    # TOO_LARGE where the room does not do.
    z.next_in, z.avail_in = at, size
    z.next_out, z.avail_out = out, <unsigned int>min(room, <uint64_t>0xffffffff)
    inflate_reset(z)
    code[0] = inflate(z, Z_FINISH)
    if code[0] == Z_STREAM_END:
        return LEFTOVER if check and z.avail_in else OK
    if code[0] == Z_OK or code[0] == Z_BUF_ERROR:
        return TOO_LARGE if z.avail_out == 0 else TRUNCATED
    if z.msg is not NULL and strcmp(z.msg, b"incorrect data check") == 0:
        return BAD_CHECKSUM if check else OK
    return BAD_COMPRESSION


def inflate_spans(buffers, spans, places, first, Block block, used, number, limits, left, check):
    """(count, used): inflate spans[first:count] into `block`, behind the bytes that are used; `places` are told where.

    spans, places: arrays of dtype HEAD of one length; a place is given start, size and buffer (`number`), or a fault: a
    span that has one, BAD_COMPRESSION, BAD_CHECKSUM (of Adler-32), TRUNCATED (the stream has no end), LEFTOVER (more
    follows it), TOO_LARGE. check: verify Adler-32, and refuse what follows. limits: (ratio, bytes that are free of it,
    bytes of one). left: bytes of all. It ends early where the block has no room for the next.

    Raises ValueError where a span lies outside its buffer, MemoryError."""
    cdef Py_ssize_t i = first, n = len(spans)
    cdef const Head[::1] span = spans
    cdef Head[::1] place = places
    cdef const uint64_t[:, ::1] readable
    cdef const Readable* buffer
    cdef int64_t at = used, rest = left, room, most, ratio, free, single
    cdef bint checked = check, full = False
    cdef unsigned short which = number
    cdef Inflate z
    cdef Fault fault
    cdef int code = 0
    ratio, free, single = limits
    if len(places) != n or not lie_inside(spans, buffers) or not 0 <= at <= block.size:
        raise ValueError("a span lies outside its buffer")
    if i >= n:
        return n, used
    memset(&z, 0, sizeof(Inflate))
    readable = addresses(buffers)
    if inflate_init(&z, WINDOW_BITS, zlib.ZLIB_VERSION.encode(), sizeof(Inflate)) != Z_OK:
        raise MemoryError("no memory to inflate")
    with nogil:
        while i < n:
            buffer = <const Readable*>&readable[span[i].buffer, 0]
            fault = <Fault>span[i].fault
            if not fault:
                most = min(max(min(ratio, <int64_t>1 << 31) * span[i].size, free), single, rest)
                room = min(most, <int64_t>block.size - at)
                fault = one(&z, buffer.at + span[i].start, span[i].size, <uint8_t*>block.at + at,
                            <uint64_t>room, checked, &code)
                if code == Z_MEM_ERROR or (fault == TOO_LARGE and room < most):
                    full = True
                    break
            place[i].fault = <uint8_t>fault
            if not fault:
                place[i].start, place[i].size, place[i].buffer = at, <uint32_t>z.total_out, which
                at += <int64_t>z.total_out
                rest -= <int64_t>z.total_out
            i += 1
    inflate_end(&z)
    if code == Z_MEM_ERROR and full:
        raise MemoryError("no memory to inflate")
    return i, at
