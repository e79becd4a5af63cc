# cython: boundscheck=False, wraparound=False
"""Decompression of many gzip, zlib and zstd payloads in one loop without the GIL.

libdeflate and libzstd decompress, where they are available.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from wirescan.core.libdeflate cimport (
    decompress_gzip, decompress_zlib, free_decompressor, make_decompressor)
from wirescan.core.libzstd cimport decompress_zstd, free_zstd_context, make_zstd_context
from wirescan.core.loop cimport Head, Readable
from wirescan.core.loop import addresses, lie_inside
from wirescan.core.rows cimport Block

cdef enum:
    GZIP = 1
    ZSTD = 2
    ZLIB = 3

# Names in `wirescan.frames.codecs` -> the numbers that `SpanDecompressor` takes.
FAST_CODECS = {"gzip": GZIP, "zlib": ZLIB, "zstd": ZSTD}


cdef class SpanDecompressor:
    """Decompress payloads in spans, as many as possible in one call.

    buffers: bytes-like objects that the spans point into.
    spans: array of dtype HEAD.
    codecs: uint8 array of the same length: a number of `FAST_CODECS`, or 0 for other codecs.
    places: array of dtype HEAD and of the same length, which `run` fills.

    Raises ValueError where a span is outside its buffer.
    """
    cdef void* deflate_state            # of libdeflate, or NULL
    cdef void* zstd_state
    cdef object buffers                 # keeps the memory alive
    cdef const Head[::1] span
    cdef Head[::1] place
    cdef const uint8_t[::1] codec
    cdef const uint64_t[:, ::1] readable

    def __init__(self, buffers, spans, codecs, places):
        if len(places) != len(spans) or len(codecs) != len(spans):
            raise ValueError("the arrays have different lengths")
        if not lie_inside(spans, buffers):
            raise ValueError("a span points outside its buffer")
        self.buffers = buffers
        self.span = spans
        self.place = places
        self.codec = codecs
        self.readable = addresses(buffers)
        # A table of one frame must not pay for a state that it does not need.
        if self.zstd_state is NULL and ZSTD in codecs:
            self.zstd_state = make_zstd_context()
        if self.deflate_state is NULL and (GZIP in codecs or ZLIB in codecs):
            self.deflate_state = make_decompressor()

    def __dealloc__(self):
        free_decompressor(self.deflate_state)
        free_zstd_context(self.zstd_state)

    cdef bint decompress(self, uint8_t codec, const uint8_t* at, size_t size, uint8_t* out,
                         size_t capacity, size_t* written) noexcept nogil:
        if codec == GZIP and self.deflate_state is not NULL:
            return decompress_gzip(self.deflate_state, at, size, out, capacity, written)
        if codec == ZLIB and self.deflate_state is not NULL:
            return decompress_zlib(self.deflate_state, at, size, out, capacity, written)
        if codec == ZSTD and self.zstd_state is not NULL:
            return decompress_zstd(self.zstd_state, at, size, out, capacity, written)
        return False

    def run(self, first, Block block not None, used, number, limits, totals, wire, spent):
        """Decompress spans from `first` on into a block; return (stop, used, wire, spent).

        The call ends before the first span that has another codec, has a fault, or is not
        decompressed: it is damaged, or the limits or the block are too small for it.

        block, used: the bytes are written to the block after its first `used` bytes.
        number: the `buffer` of the places.
        limits: (maximum ratio of output to input, output bytes that the ratio does not limit,
            maximum output bytes of a payload). Each product with a size must fit 63 bits.
        totals: the same for all payloads together.
        wire, spent: compressed bytes and decompressed bytes of all payloads so far.
        """
        cdef Py_ssize_t i = first, n = self.span.shape[0]
        cdef int64_t at = used, wire_bytes = wire, spent_bytes = spent, next_wire, allowed, capacity
        cdef int64_t ratio, free, single, total_ratio, total_free, total, ratio_stop
        cdef unsigned short output_buffer = number
        cdef size_t written
        cdef const Readable* buffer
        ratio, free, single = limits
        total_ratio, total_free, total = totals
        if not 0 <= first <= n or not 0 <= at <= block.size or total_ratio < 1:
            raise ValueError("`first` or `used` is out of range")
        # From this many compressed bytes on, the ratio allows more than `total`. So no product
        # overflows.
        ratio_stop = total // total_ratio
        with nogil:
            while i < n and self.codec[i] and not self.span[i].fault:
                next_wire = wire_bytes + self.span[i].size
                allowed = total
                if next_wire <= ratio_stop:
                    allowed = min(max(total_ratio * next_wire, total_free), total)
                allowed = max(allowed - spent_bytes, 0)
                allowed = min(allowed, max(ratio * self.span[i].size, free), single)
                capacity = min(allowed, block.size - at)
                buffer = <const Readable*>&self.readable[self.span[i].buffer, 0]
                if not self.decompress(self.codec[i], buffer.at + self.span[i].start,
                                       self.span[i].size, <uint8_t*>block.at + at,
                                       <size_t>capacity, &written):
                    break
                self.place[i].start = at
                self.place[i].size = <unsigned int>written
                self.place[i].buffer = output_buffer
                at += <int64_t>written
                spent_bytes += <int64_t>written
                wire_bytes = next_wire
                i += 1
        return i, at, wire_bytes, spent_bytes
