# Kernels that read the begin of a message in both protocols. walk.pxd reads the struct after it.
from wirescan.core cimport (
    BAD_KIND, BAD_MAGIC, BAD_VERSION, Fault, OK, Reader, TRUNCATED, be32, int32_t, int64_t, left,
    take, uint8_t, uint32_t, varint32)
from wirescan.thrift.rows cimport BINARY, CALL, COMPACT, ONEWAY

cdef struct Begin:
    const uint8_t* name
    uint32_t name_size
    int32_t  seqid
    int64_t  needed             # where bytes are missing: bytes from r on at least; else 0
    uint8_t  protocol
    uint8_t  version
    uint8_t  strict
    # No uint8_t: gcc 12 would store one byte and load four, for which a processor waits.
    uint32_t type


cdef inline bint is_type(uint32_t type) noexcept nogil:
    return CALL <= type <= ONEWAY


cdef inline bint is_compact(uint8_t first, uint8_t second) noexcept nogil:
    # Version 1 is Apache's. Version 2 is fbthrift's.
    return first == 0x82 and 1 <= (second & 0x1f) <= 2 and is_type(second >> 5)


cdef inline Fault set_needed(Begin* begin, int64_t needed) noexcept nogil:
    begin.needed = needed
    return TRUNCATED


cdef inline Fault read_binary(Reader* r, Begin* begin) noexcept nogil:
    # strict        80 01 unused(1) type(1) name(4+) seqid(4)
    # not strict    name(4+) type(1) seqid(4)
    cdef const uint8_t* p = take(r, 4)
    cdef uint32_t size
    if p is NULL:
        return set_needed(begin, 4)
    begin.protocol = BINARY
    size = be32(p)
    begin.strict = size >> 31
    begin.version = begin.strict
    if begin.strict:
        if size >> 16 != 0x8001:
            return BAD_MAGIC
        begin.type = p[3]
        if not is_type(begin.type):
            return BAD_KIND
        p = take(r, 4)
        if p is NULL:
            return set_needed(begin, 4)
        size = be32(p)
        if size > 0x7fffffff:
            return TRUNCATED
    begin.name = take(r, size)
    begin.name_size = size
    if begin.name is NULL:
        return set_needed(begin, size)
    if not begin.strict:
        p = take(r, 1)
        if p is NULL:
            return set_needed(begin, 1)
        begin.type = p[0]
        if not is_type(begin.type):
            return BAD_KIND
    p = take(r, 4)
    if p is NULL:
        return set_needed(begin, 4)
    begin.seqid = <int32_t>be32(p)
    return OK


cdef inline Fault read_compact(Reader* r, Begin* begin) noexcept nogil:
    # 82  type(3 bits) version(5 bits)  seqid  name(varint+)
    cdef const uint8_t* p = take(r, 2)
    cdef uint32_t number = 0
    cdef Fault fault
    begin.protocol = COMPACT
    if p is NULL:
        return set_needed(begin, 2)
    if p[0] != 0x82:
        return BAD_MAGIC
    begin.version = p[1] & 0x1f
    begin.type = p[1] >> 5
    begin.strict = 1
    if begin.version < 1 or begin.version > 2:
        return BAD_VERSION
    if not is_type(begin.type):
        return BAD_KIND
    fault = varint32(r, &number)
    if fault:
        return set_needed(begin, <int64_t>left(r) + 1) if fault == TRUNCATED else fault
    begin.seqid = <int32_t>number
    fault = varint32(r, &number)
    if fault:
        return set_needed(begin, <int64_t>left(r) + 1) if fault == TRUNCATED else fault
    begin.name = take(r, number)
    begin.name_size = number
    return set_needed(begin, number) if begin.name is NULL else OK


cdef inline Fault read_begin(Reader* r, bint compact, Begin* begin) noexcept nogil:
    # Leaves r at the struct, or on a fault at the field that is missing or wrong.
    begin.needed = 0
    begin.seqid = 0
    begin.strict = 0
    begin.version = 0
    begin.type = 0
    return read_compact(r, begin) if compact else read_binary(r, begin)
