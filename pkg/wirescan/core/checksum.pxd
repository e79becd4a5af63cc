from libc.stdint cimport uint8_t, uint32_t

# Return the checksum of n bytes, by the fastest path that this processor has.
cdef uint32_t crc32_of(const uint8_t* p, size_t n) noexcept nogil
cdef uint32_t crc32c_of(const uint8_t* p, size_t n) noexcept nogil
