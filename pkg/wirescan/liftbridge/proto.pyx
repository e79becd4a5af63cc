# cython: boundscheck=False, wraparound=False
"""The Protocol Buffers wire format: the functions of proto.pxd that are not inline."""
from wirescan.core cimport (
    BAD_FIELD, Fault, NESTED, OK, Reader, TRUNCATED, uint8_t, uint32_t, varint32)
from wirescan.liftbridge.proto cimport (
    Field, MAX_GROUP_DEPTH, WIRE_END, WIRE_GROUP, read_fields, skip_value)


cdef Fault read_inside(const uint8_t* start, Reader* r, char* row,
                       const Field* fields) noexcept nogil:
    return read_fields(start, r, row, fields)


cdef Fault skip_group(Reader* r, uint32_t number) noexcept nogil:
    # Skip the rest of a group whose start tag has been read, and all groups nested in it.
    cdef uint32_t open[MAX_GROUP_DEPTH]
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
            if depth == MAX_GROUP_DEPTH:
                return NESTED
            open[depth] = tag >> 3
            depth += 1
        elif tag & 7 == WIRE_END:
            depth -= 1
            if open[depth] != tag >> 3:
                return BAD_FIELD
        else:
            fault = skip_value(r, tag & 7)
            if fault:
                return fault
    return OK
