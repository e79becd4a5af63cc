# cython: boundscheck=False, wraparound=False
"""Protobuf's binary encoding: see protobuf_wire.pxd."""
from wirescan.decoding.payload_reader cimport DEEP


cdef Refusal skip_value(Reader* r, uint32_t tag, int depth) noexcept nogil:
    # Step over the value of a field, whose tag is no end of a group. `depth` is that of the message
    # around it.
    cdef uint32_t[DEEPEST + 1] begun
    cdef int level = 0
    cdef int wire_type
    cdef uint64_t number
    cdef Reader inside
    cdef Refusal refusal = FINE
    while True:
        wire_type = tag & 7
        if wire_type == VARINT:
            refusal = read_varint(r, &number)
        elif wire_type == SIZED:
            refusal = read_sized(r, &inside)
        elif wire_type == WORD32 or wire_type == WORD64:
            if take(r, 4 if wire_type == WORD32 else 8) is NULL:
                return CUT
        elif wire_type == GROUP_START:
            level += 1
            if depth + level > DEEPEST:
                return DEEP
            begun[level] = tag >> 3
        elif wire_type == GROUP_END:
            if begun[level] != tag >> 3:
                return BAD_GROUP
            level -= 1
        else:
            return BAD_WIRE_TYPE
        if refusal != FINE or level == 0:
            return refusal
        refusal = read_tag(r, &tag)
        if refusal != FINE:
            return refusal
