# How a message begins, in both protocols. walk.pxd goes on with the struct that follows.
from wirescan.core cimport (
    BAD_KIND, BAD_MAGIC, BAD_VERSION, Fault, OK, Reader, TRUNCATED, be32, int32_t, int64_t, left, take, uint8_t,
    uint32_t, varint32)
from wirescan.thrift.scan cimport BINARY, CALL, COMPACT, ONEWAY

cdef struct Begin:
    const uint8_t* name
    uint32_t name_size
    int32_t  seqid
    int64_t  least              # bytes that the rest of the message has at the least, where some are missing; else 0
    uint8_t  protocol
    uint8_t  version
    uint8_t  strict
    uint8_t  type


cdef inline bint is_type(uint8_t type) noexcept nogil:
    return CALL <= type <= ONEWAY

cdef inline bint is_compact(uint8_t first, uint8_t second) noexcept nogil:
    # Version 1 is Apache's, version 2 fbthrift's.
    return first == 0x82 and 1 <= (second & 0x1f) <= 2 and is_type(second >> 5)


cdef inline Fault short_of(Begin* begin, int64_t least) noexcept nogil:
    begin.least = least
    return TRUNCATED


cdef inline Fault read_binary(Reader* r, Begin* begin) noexcept nogil:
    # strict        80 01 unused(1) type(1) name(4+) seqid(4)
    # not strict    name(4+) type(1) seqid(4)
    cdef const uint8_t* p = take(r, 4)
    cdef uint32_t size
    if p is NULL:
        return short_of(begin, 4)
    begin.protocol, size = BINARY, be32(p)
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
            return short_of(begin, 4)
        size = be32(p)
        if size > 0x7fffffff:
            return TRUNCATED
    begin.name, begin.name_size = take(r, size), size
    if begin.name is NULL:
        return short_of(begin, size)
    if not begin.strict:
        p = take(r, 1)
        if p is NULL:
            return short_of(begin, 1)
        begin.type = p[0]
        if not is_type(begin.type):
            return BAD_KIND
    p = take(r, 4)
    if p is NULL:
        return short_of(begin, 4)
    begin.seqid = <int32_t>be32(p)
    return OK


cdef inline Fault read_compact(Reader* r, Begin* begin) noexcept nogil:
    # 82  type(3 bits) version(5 bits)  seqid  name(varint+)
    cdef const uint8_t* p = take(r, 2)
    cdef uint32_t number = 0
    cdef Fault fault
    begin.protocol = COMPACT
    if p is NULL:
        return short_of(begin, 2)
    if p[0] != 0x82:
        return BAD_MAGIC
    begin.version, begin.type, begin.strict = p[1] & 0x1f, p[1] >> 5, 1
    if begin.version < 1 or begin.version > 2:
        return BAD_VERSION
    if not is_type(begin.type):
        return BAD_KIND
    fault = varint32(r, &number)
    if fault:
        return short_of(begin, <int64_t>left(r) + 1) if fault == TRUNCATED else fault
    begin.seqid = <int32_t>number
    fault = varint32(r, &number)
    if fault:
        return short_of(begin, <int64_t>left(r) + 1) if fault == TRUNCATED else fault
    begin.name, begin.name_size = take(r, number), number
    return short_of(begin, number) if begin.name is NULL else OK


cdef inline Fault read_begin(Reader* r, bint compact, Begin* begin) noexcept nogil:
    # Leaves r where the struct begins; on a fault, where the field does that is missing or wrong.
    begin.least, begin.seqid, begin.strict, begin.version, begin.type = 0, 0, 0, 0, 0
    return read_compact(r, begin) if compact else read_binary(r, begin)
