from libc.stdint cimport uint8_t, uint32_t

# Return the checksum of n bytes, by the fastest path that this processor has.
cdef uint32_t crc32_of(const uint8_t* p, size_t n) noexcept nogil
cdef uint32_t crc32c_of(const uint8_t* p, size_t n) noexcept nogil

# Return the checksum of bytes of which the first part has the checksum `value`, and the rest is at
# `p`. The checksum of no bytes is 0.
cdef uint32_t extend_crc32(uint32_t value, const uint8_t* p, size_t n) noexcept nogil
cdef uint32_t extend_crc32c(uint32_t value, const uint8_t* p, size_t n) noexcept nogil
