from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

# A decompression context of libzstd, or NULL: the library is missing, or there is no memory. It
# serves one thread at a time.
cdef void* make_zstd_context() noexcept nogil
cdef void free_zstd_context(void* context) noexcept nogil

# Decompress one zstd frame that fills the input. Return False for anything else: damage, several
# frames, a skippable frame, a window of more than 128 MiB, or a frame that does not fit `capacity`.
cdef bint decompress_zstd(void* context, const uint8_t* at, size_t size, uint8_t* out,
                          size_t capacity, size_t* written) noexcept nogil
