# Characters of UTF-8. Source: RFC 3629, section 4.
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline int measure_character(const uint8_t* p, const uint8_t* end) noexcept nogil:
    # Return the number of bytes of a character that is not ASCII, or 0 if it is not UTF-8.
    cdef uint8_t first = p[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xbf
    cdef int size = 4
    if first < 0xe0:
        size = 2
    elif first < 0xf0:
        size = 3
    if first < 0xc2 or first > 0xf4 or end - p < size:
        return 0
    if first == 0xe0:
        low = 0xa0              # a shorter form exists
    elif first == 0xed:
        high = 0x9f             # surrogates
    elif first == 0xf0:
        low = 0x90              # a shorter form exists
    elif first == 0xf4:
        high = 0x8f             # beyond U+10FFFF
    if (p[1] < low or p[1] > high or size > 2 and p[2] & 0xc0 != 0x80
            or size > 3 and p[3] & 0xc0 != 0x80):
        return 0
    return size


cdef inline bint is_utf8(const uint8_t* p, size_t count) noexcept nogil:
    # Whether `count` bytes are UTF-8.
    cdef const uint8_t* end = p + count
    cdef uint64_t word
    cdef int size
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            if not word & 0x8080808080808080u:
                p += 8
                continue
        if p[0] < 0x80:
            p += 1
            continue
        size = measure_character(p, end)
        if size == 0:
            return False
        p += size
    return True
