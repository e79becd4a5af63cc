# Stores into memory, the counterpart of reader.pxd. Nothing here checks bounds: the caller has
# allocated enough memory.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "varint.h":
    size_t varint_size(uint64_t value) noexcept nogil
    # Returns the address after the varint. The byte there may be overwritten.
    uint8_t* put_varint(uint8_t* to, uint64_t value) noexcept nogil
    uint64_t zigzag(int64_t value) noexcept nogil


# Unaligned big-endian stores. Compilers turn each into at most one byte swap and one store.
cdef inline void store16(uint8_t* to, uint16_t value) noexcept nogil:
    to[0] = <uint8_t>(value >> 8)
    to[1] = <uint8_t>value


cdef inline void store32(uint8_t* to, uint32_t value) noexcept nogil:
    to[0] = <uint8_t>(value >> 24)
    to[1] = <uint8_t>(value >> 16)
    to[2] = <uint8_t>(value >> 8)
    to[3] = <uint8_t>value


cdef inline void store64(uint8_t* to, uint64_t value) noexcept nogil:
    store32(to, <uint32_t>(value >> 32))
    store32(to + 4, <uint32_t>value)


cdef inline void copy_bytes(uint8_t* to, const uint8_t* at, size_t size) noexcept nogil:
    # Copy bytes; up to 128 bytes without a call of memcpy, which costs more than a short copy.
    # Two copies of a fixed size cover the first and the last bytes. They may overlap.
    if size > 128:
        memcpy(to, at, size)
    elif size >= 64:
        memcpy(to, at, 64)
        memcpy(to + size - 64, at + size - 64, 64)
    elif size >= 32:
        memcpy(to, at, 32)
        memcpy(to + size - 32, at + size - 32, 32)
    elif size >= 16:
        memcpy(to, at, 16)
        memcpy(to + size - 16, at + size - 16, 16)
    elif size >= 8:
        memcpy(to, at, 8)
        memcpy(to + size - 8, at + size - 8, 8)
    elif size >= 4:
        memcpy(to, at, 4)
        memcpy(to + size - 4, at + size - 4, 4)
    else:
        while size:
            size -= 1
            to[size] = at[size]
