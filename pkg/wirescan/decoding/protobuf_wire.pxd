# Protobuf's binary encoding.
#
# message   fields, in any order: tag | value. The tag is a varint: field number << 3 | wire type
# wire type 0   varint                               1   8 bytes, little-endian
#           2   varint, the size | bytes             5   4 bytes, little-endian
#           3   fields up to a tag of wire type 4 with the same field number: a group
#
# Source: protobuf.dev, "Encoding".
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from wirescan.core cimport OK, Reader, TOPS, TRUNCATED, le32, le64, left, lowest, take, varint32
from wirescan.core.reader cimport groups
from wirescan.decoding.payload_reader cimport FINE, FIRST_OWN, Refusal

# Reasons of Protobuf: see REASONS in protobuf_reader.pyx.
cdef enum:
    CUT = FIRST_OWN
    BAD_VARINT, BAD_TAG, BAD_WIRE_TYPE, BAD_GROUP, BAD_PACKED, BAD_NANOS, FAR_TIME

cdef enum WireType:
    VARINT, WORD64, SIZED, GROUP_START, GROUP_END, WORD32

cdef enum:
    DEEPEST = 100               # messages and groups inside each other, as in Protobuf's libraries

cdef Refusal skip_value(Reader* r, uint32_t tag, int depth) noexcept nogil


cdef inline Refusal read_varint(Reader* r, uint64_t* value) noexcept nogil:
    # Read a varint of at most ten bytes. Bits above the 64th are discarded, as in Protobuf's
    # libraries. Where ten bytes are left, the first eight are loaded as one word.
    cdef const uint8_t* p = r.at
    cdef uint64_t word, last
    cdef unsigned int shift = 0
    cdef uint8_t byte
    if p < r.end and p[0] < 0x80:
        value[0] = p[0]
        r.at = p + 1
        return FINE
    if left(r) >= 10:
        word = le64(p)
        last = ~word & TOPS             # its lowest bit is the top bit of the last byte
        if last:
            value[0] = groups(word & (last ^ (last - 1)) & ~TOPS)
            r.at = p + (lowest(last) >> 3) + 1
            return FINE
    value[0] = 0
    while p < r.end:
        if shift > 63:
            return BAD_VARINT
        byte = p[0]
        value[0] |= <uint64_t>(byte & 0x7f) << shift
        shift += 7
        p += 1
        if byte < 0x80:
            r.at = p
            return FINE
    return BAD_VARINT if shift > 63 else CUT


cdef inline Refusal read_tag(Reader* r, uint32_t* tag) noexcept nogil:
    cdef int fault = varint32(r, tag)
    if fault != OK:
        return CUT if fault == TRUNCATED else BAD_VARINT
    return FINE if tag[0] >> 3 else BAD_TAG


cdef inline Refusal read_sized(Reader* r, Reader* inside) noexcept nogil:
    # Step over a size and as many bytes, and set `inside` to the bytes.
    cdef uint32_t size = 0
    cdef int fault = varint32(r, &size)
    if fault != OK:
        return CUT if fault == TRUNCATED else BAD_VARINT
    if size > left(r):
        return CUT
    inside.at = r.at
    inside.end = r.at + size
    r.at = inside.end
    return FINE


cdef inline Refusal read_number(Reader* r, WireType wire_type, uint64_t* value) noexcept nogil:
    cdef const uint8_t* p
    if wire_type == VARINT:
        return read_varint(r, value)
    p = take(r, 4 if wire_type == WORD32 else 8)
    if p is NULL:
        return CUT
    value[0] = le32(p) if wire_type == WORD32 else le64(p)
    return FINE


cdef inline int64_t unzigzag32(uint64_t value) noexcept nogil:
    cdef uint32_t low = <uint32_t>value
    return <int32_t>(low >> 1 ^ (0 - (low & 1)))
