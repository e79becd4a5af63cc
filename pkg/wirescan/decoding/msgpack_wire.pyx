# cython: boundscheck=False, wraparound=False
"""Values of MessagePack: see msgpack_wire.pxd."""
from libc.stdint cimport int32_t
from libc.string cimport memcpy
from wirescan.core cimport be16, be32, be64, int16_t


cdef Refusal take_sized(Reader* r, uint8_t first, Value* value) noexcept nogil:
    # Read a value after its first byte, c4 to c9 or d9 to df, which has its size in further bytes.
    cdef const uint8_t* p
    cdef uint32_t size
    cdef int exponent           # of the number of bytes
    if first <= 0xc9:
        exponent = (first - 0xc4) % 3
    elif first <= 0xdb:
        exponent = first - 0xd9
    else:
        exponent = 1 + (first & 1)
    p = take(r, 1 << exponent)
    if p is NULL:
        return CUT
    size = p[0] if exponent == 0 else be16(p) if exponent == 1 else be32(p)
    if first <= 0xc6:
        return take_octets(r, value, OCTETS, size)
    if first <= 0xc9:
        return take_extension(r, value, size)
    if first <= 0xdb:
        return take_octets(r, value, TEXT, size)
    return set_count(r, value, ELEMENTS if first <= 0xdd else PAIRS, size)


cdef Refusal take_number(Reader* r, uint8_t first, Value* value) noexcept nogil:
    # Read a number after its first byte, ca to d3.
    cdef int exponent = 2 + (first & 1) if first <= 0xcb else first & 3
    cdef const uint8_t* p = take(r, 1 << exponent)
    cdef uint64_t bits
    cdef uint32_t word
    cdef float single
    if p is NULL:
        return CUT
    if exponent == 0:
        bits = p[0]
    elif exponent == 1:
        bits = be16(p)
    elif exponent == 2:
        bits = be32(p)
    else:
        bits = be64(p)
    if first == 0xca:
        word = <uint32_t>bits
        memcpy(&single, &word, 4)
        value.real = single
    elif first == 0xcb:
        memcpy(&value.real, &bits, 8)
    elif first == 0xd0:
        value.number = <int8_t>bits
    elif first == 0xd1:
        value.number = <int16_t>bits
    elif first == 0xd2:
        value.number = <int32_t>bits
    else:
        value.number = <int64_t>bits
    if first <= 0xcb:
        value.kind = REAL
    else:
        value.kind = LARGE if first == 0xcf and value.number < 0 else NUMBER
    return FINE


cdef Refusal skip_values(Reader* r, uint64_t count) noexcept nogil:
    # Skip values with all values in them. It does not recurse, so they may be nested in any way.
    cdef Value value
    cdef Refusal refusal
    while count:
        refusal = take_value(r, &value)
        if refusal != FINE:
            return refusal
        count += count_inner(&value)
        count -= 1
    return FINE


cdef Refusal read_stamp(const Value* value, int64_t* seconds, uint32_t* nanos) noexcept nogil:
    cdef const uint8_t* p = value.octets
    cdef uint64_t word
    nanos[0] = 0
    if value.size == 4:
        seconds[0] = be32(p)
    elif value.size == 8:
        word = be64(p)
        nanos[0] = <uint32_t>(word >> 34)
        seconds[0] = <int64_t>(word & 0x3ffffffffu)
    elif value.size == 12:
        nanos[0] = be32(p)
        seconds[0] = <int64_t>be64(p + 4)
    else:
        return BAD_TIME
    return FINE if nanos[0] < BILLION else BAD_TIME
