# cython: boundscheck=False, wraparound=False
"""Fast decompression of gzip (RFC 1952) and zlib (RFC 1950) with libdeflate, without the GIL.

The package `deflate` contains libdeflate. Its functions are looked up at run time in the extension
module of that package, or else in a shared library of the system. The package's own functions are
not used, because they cannot write into our memory. `available` is False where no library exports
the functions. Then other libraries decompress everything.

These functions decompress intact payloads. They only say that they failed, and not why: the caller
lets another library decompress the payload, and reports what that library finds. So the fault of a
payload does not depend on whether libdeflate is installed.
"""
import ctypes
from importlib.machinery import PathFinder

from libc.stdint cimport int64_t, uint64_t
from wirescan.core.loop cimport Head, Readable
from wirescan.core.loop import addresses, lie_inside
from wirescan.core.rows cimport Block

cdef enum:
    SUCCESS = 0                         # of libdeflate_result
    SMALLEST_GZIP = 18                  # bytes in the header and the trailer of a gzip member
    GZIP_FLAGS_AT = 3
    # libdeflate does not verify the checksum of a header (FHCRC). The upper bits are reserved.
    GZIP_UNUSUAL_FLAGS = 0x02 | 0xE0

# From libdeflate.h. The last two arguments receive the bytes read and the bytes written.
ctypedef void* (*AllocateDecompressor)() noexcept nogil
ctypedef void (*FreeDecompressor)(void*) noexcept nogil
ctypedef int (*DecompressStream)(void*, const void*, size_t, void*, size_t,
                                 size_t*, size_t*) noexcept nogil

cdef AllocateDecompressor library_allocate = NULL
cdef FreeDecompressor library_free = NULL
cdef DecompressStream library_gzip = NULL
cdef DecompressStream library_zlib = NULL


def _list_libraries():
    # Yield the paths of libraries that may export libdeflate. `deflate` is not imported: Python
    # without a GIL would enable the GIL for modules that do not support its absence.
    package = PathFinder.find_spec("deflate")
    if package is not None and package.submodule_search_locations:
        module = PathFinder.find_spec("_deflate", list(package.submodule_search_locations))
        if module is not None and module.origin:
            yield module.origin
    yield "libdeflate.so.0"
    yield "libdeflate.0.dylib"


def _find_functions():
    # Return the addresses of libdeflate's functions, or None where no library exports them.
    names = ("libdeflate_alloc_decompressor", "libdeflate_free_decompressor",
             "libdeflate_gzip_decompress_ex", "libdeflate_zlib_decompress_ex")
    for path in _list_libraries():
        try:
            library = ctypes.CDLL(path)
            return [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
        except (AttributeError, OSError):
            continue


_functions = _find_functions()
available = _functions is not None
if available:
    library_allocate = <AllocateDecompressor><size_t>_functions[0]
    library_free = <FreeDecompressor><size_t>_functions[1]
    library_gzip = <DecompressStream><size_t>_functions[2]
    library_zlib = <DecompressStream><size_t>_functions[3]


cdef void* make_decompressor() noexcept nogil:
    return library_allocate() if library_allocate is not NULL else NULL


cdef void free_decompressor(void* decompressor) noexcept nogil:
    if decompressor is not NULL:
        library_free(decompressor)


cdef bint decompress_zlib(void* decompressor, const uint8_t* at, size_t size, uint8_t* out,
                          size_t capacity, size_t* written) noexcept nogil:
    cdef size_t read = 0
    cdef int result = library_zlib(decompressor, at, size, out, capacity, &read, written)
    return result == SUCCESS and read == size


cdef bint decompress_gzip(void* decompressor, const uint8_t* at, size_t size, uint8_t* out,
                          size_t capacity, size_t* written) noexcept nogil:
    # Decompress the members that fill the input, and verify their checksums and sizes. Return
    # False for anything else.
    cdef size_t position = 0, read, member
    written[0] = 0
    if size == 0:
        return False
    while position < size:
        if size - position < SMALLEST_GZIP:
            return False
        if at[position + GZIP_FLAGS_AT] & GZIP_UNUSUAL_FLAGS:
            return False
        read = 0
        member = 0
        if library_gzip(decompressor, at + position, size - position, out + written[0],
                        capacity - written[0], &read, &member) != SUCCESS:
            return False
        position += read
        written[0] += member
    return True


cdef class Decompressor:
    """A decompressor of libdeflate. Raises MemoryError, also where the library is missing.

    One thread at a time may use it.
    """
    cdef void* state

    def __cinit__(self):
        self.state = make_decompressor()
        if self.state is NULL:
            raise MemoryError("no memory to decompress gzip")

    def __dealloc__(self):
        free_decompressor(self.state)

    def decompress_gzip(self, const uint8_t[::1] payload not None, uint8_t[::1] out not None):
        """Decompress a gzip payload; return the bytes written to `out`, or -1 for a failure.

        A failure is any payload that is not a sequence of intact members, whose header has a
        checksum, or that does not fit into `out`.
        """
        cdef size_t written = 0
        cdef size_t size = payload.shape[0], capacity = out.shape[0]
        cdef const uint8_t* at = &payload[0] if size else NULL
        cdef uint8_t* target = &out[0] if capacity else <uint8_t*>b""
        cdef bint good
        with nogil:
            good = decompress_gzip(self.state, at, size, target, capacity, &written)
        return <Py_ssize_t>written if good else -1

    def decompress_zlib(self, const uint8_t[::1] payload not None, uint8_t[::1] out not None):
        """Decompress a zlib stream; return the bytes written to `out`, or -1 for a failure.

        A failure is any payload that is not one intact stream, or that does not fit into `out`.
        """
        cdef size_t written = 0
        cdef size_t size = payload.shape[0], capacity = out.shape[0]
        cdef const uint8_t* at = &payload[0] if size else NULL
        cdef uint8_t* target = &out[0] if capacity else <uint8_t*>b""
        cdef bint good
        if size == 0:
            return -1
        with nogil:
            good = decompress_zlib(self.state, at, size, target, capacity, &written)
        return <Py_ssize_t>written if good else -1


cdef class GzipSpans:
    """Decompress the gzip payloads among spans, as many as possible in one call.

    buffers: bytes-like objects that the spans point into.
    spans: array of dtype HEAD.
    selected: uint8 array of the same length, 1 where the span is a gzip payload.
    places: array of dtype HEAD and of the same length, which `run` fills.

    Raises ValueError where a span is outside its buffer, MemoryError.
    """
    cdef Decompressor decompressor
    cdef object buffers                 # keeps the memory alive
    cdef const Head[::1] span
    cdef Head[::1] place
    cdef const uint8_t[::1] selected
    cdef const uint64_t[:, ::1] readable

    def __init__(self, buffers, spans, selected, places):
        if len(places) != len(spans) or len(selected) != len(spans):
            raise ValueError("the arrays have different lengths")
        if not lie_inside(spans, buffers):
            raise ValueError("a span points outside its buffer")
        self.decompressor = Decompressor()
        self.buffers = buffers
        self.span = spans
        self.place = places
        self.selected = selected
        self.readable = addresses(buffers)

    def run(self, first, Block block not None, used, number, limits, totals, wire, spent):
        """Decompress spans from `first` on into a block; return (stop, used, wire, spent).

        The call ends before the first span that is not selected, has a fault, or is not
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
            while i < n and self.selected[i] and not self.span[i].fault:
                next_wire = wire_bytes + self.span[i].size
                allowed = total
                if next_wire <= ratio_stop:
                    allowed = min(max(total_ratio * next_wire, total_free), total)
                allowed = max(allowed - spent_bytes, 0)
                allowed = min(allowed, max(ratio * self.span[i].size, free), single)
                capacity = min(allowed, block.size - at)
                buffer = <const Readable*>&self.readable[self.span[i].buffer, 0]
                if not decompress_gzip(self.decompressor.state, buffer.at + self.span[i].start,
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
