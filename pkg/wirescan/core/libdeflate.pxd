from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

# A decompressor of libdeflate, or NULL: the library is missing, or there is no memory. It serves
# one thread at a time.
cdef void* make_decompressor() noexcept nogil
cdef void free_decompressor(void* decompressor) noexcept nogil

# Decompress one zlib stream that fills the input, and verify its Adler-32. Return False for
# anything else: a damaged stream, other bytes after it, or a stream that does not fit `capacity`.
cdef bint decompress_zlib(void* decompressor, const uint8_t* at, size_t size, uint8_t* out,
                          size_t capacity, size_t* written) noexcept nogil

# The same for a gzip payload: its members must fill the input. Their checksums and sizes are
# verified. Return False for a header that has a checksum too.
cdef bint decompress_gzip(void* decompressor, const uint8_t* at, size_t size, uint8_t* out,
                          size_t capacity, size_t* written) noexcept nogil
