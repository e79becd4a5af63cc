# cython: boundscheck=False, wraparound=False
"""Protocol Buffers, the wire format: what proto.pxd does not hold itself."""
from wirescan.core cimport BAD_FIELD, Fault, NESTED, OK, Reader, TRUNCATED, uint8_t, uint32_t, varint32
from wirescan.liftbridge.proto cimport (
    DEEPEST, Field, WIRE_END, WIRE_GROUP, read_fields, step_over)


cdef Fault read_inside(const uint8_t* start, Reader* r, char* row, const Field* fields) noexcept nogil:
    return read_fields(start, r, row, fields)


cdef Fault step_over_group(Reader* r, uint32_t number) noexcept nogil:
    # Up to the end of the group that has just begun, and of those in it.
    cdef uint32_t open[DEEPEST]
    cdef uint32_t tag, depth = 1
    cdef Fault fault
    open[0] = number
    while depth:
        if r.at == r.end:
            return TRUNCATED
        fault = varint32(r, &tag)
        if fault:
            return fault
        if tag >> 3 == 0:
            return BAD_FIELD
        if tag & 7 == WIRE_GROUP:
            if depth == DEEPEST:
                return NESTED
            open[depth] = tag >> 3
            depth += 1
        elif tag & 7 == WIRE_END:
            depth -= 1
            if open[depth] != tag >> 3:
                return BAD_FIELD
        else:
            fault = step_over(r, tag & 7)
            if fault:
                return fault
    return OK
