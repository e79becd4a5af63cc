# cython: boundscheck=False, wraparound=False
"""Fast decompression of gzip (RFC 1952) and zlib (RFC 1950) with libdeflate, without the GIL.

The package `deflate` contains libdeflate. Its functions are looked up at run time in the extension
module of that package, or else in a shared library of the system. The package's own functions are
not used, because they cannot write into our memory. `available` is False where no library exports
the functions. Then other libraries decompress everything.

These functions decompress intact payloads. They only say that they failed, and not why: the caller
lets another library decompress the payload, and reports what that library finds. So a damaged
payload has the same fault with and without libdeflate. There is one exception, which only made-up
payloads meet: libdeflate gives a meaning to the reserved codes of RFC 1951 (lengths 286 and 287,
distances 30 and 31). It accepts a stream with them if the checksum of its result is right.
"""
from wirescan.core.shared_libraries import find_functions, list_library_paths

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


_functions = find_functions(
    list_library_paths("deflate", "_deflate", "libdeflate.so.0", "libdeflate.0.dylib"),
    ("libdeflate_alloc_decompressor", "libdeflate_free_decompressor",
     "libdeflate_gzip_decompress_ex", "libdeflate_zlib_decompress_ex"))
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


cdef class DeflateDecompressor:
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
