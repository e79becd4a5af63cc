# cython: boundscheck=False, wraparound=False
"""Protocol Buffers, the wire format: see proto.pxd."""
from wirescan.core cimport (
    BAD_FIELD, Fault, NESTED, OK, Reader, TRUNCATED, int32_t, left, take, uint8_t, uint16_t, uint32_t, uint64_t,
    varint32, varint64)

cdef enum:
    WIRE_VARINT = 0
    WIRE_64 = 1
    WIRE_BYTES = 2
    WIRE_GROUP = 3
    WIRE_END = 4
    WIRE_32 = 5
    LARGEST_FIELD = 0x7fffffff
    DEEPEST = 100           # groups in one another


cdef inline Fault step_over(Reader* r, uint32_t wire) noexcept nogil:
    # A field that is no group.
    cdef uint64_t value
    cdef uint32_t length
    cdef Fault fault
    if wire == WIRE_VARINT:
        return varint64(r, &value)
    if wire == WIRE_BYTES:
        fault = varint32(r, &length)
        if fault:
            return fault
        return TRUNCATED if length > LARGEST_FIELD or take(r, length) is NULL else OK
    if wire == WIRE_64 or wire == WIRE_32:
        return TRUNCATED if take(r, 8 if wire == WIRE_64 else 4) is NULL else OK
    return BAD_FIELD


cdef inline Fault step_over_group(Reader* r, uint32_t number) noexcept nogil:
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


cdef inline Fault next_field(Reader* r, uint32_t* number, uint32_t* wire, uint64_t* value, Reader* inside) noexcept nogil:
    # Step over a field: its number, and its value where it is a varint, or its bytes.
    cdef uint32_t tag, length
    cdef Fault fault
    if r.at[0] < 0x80:
        tag = r.at[0]
        r.at += 1
    else:
        fault = varint32(r, &tag)
        if fault:
            return fault
    number[0], wire[0] = tag >> 3, tag & 7
    if tag >> 3 == 0:
        return BAD_FIELD
    if tag & 7 == WIRE_VARINT:
        return varint64(r, value)
    if tag & 7 == WIRE_BYTES:
        if r.at < r.end and r.at[0] < 0x80:
            length = r.at[0]
            r.at += 1
        else:
            fault = varint32(r, &length)
            if fault:
                return fault
        if length > LARGEST_FIELD or length > left(r):
            return TRUNCATED
        inside.at, inside.end = r.at, r.at + length
        r.at = inside.end
        return OK
    if tag & 7 == WIRE_GROUP:
        return step_over_group(r, tag >> 3)
    return step_over(r, tag & 7)


cdef bint find_field(Reader* r, uint32_t wanted, const uint8_t** field, Reader* inside) noexcept nogil:
    cdef uint32_t number, wire
    cdef uint64_t value
    while r.at < r.end:
        field[0] = r.at
        if next_field(r, &number, &wire, &value, inside):
            return False
        if number == wanted and wire == WIRE_BYTES:
            return True
    return False


cdef Fault read_fields(const uint8_t* start, Reader* r, char* row, const Field* fields) noexcept nogil:
    cdef const uint8_t* field
    cdef uint32_t number, wire
    cdef uint64_t value
    cdef const Field* known
    cdef Reader inside
    cdef Fault fault
    cdef char* column
    while r.at < r.end:
        field = r.at
        fault = next_field(r, &number, &wire, &value, &inside)
        if fault:
            return fault
        known = fields + (number if number < FIELDS else 0)
        column = row + known.column
        if wire == WIRE_VARINT:
            if known.how == WORD:
                (<uint64_t*>column)[0] = value
            elif known.how == HALF:
                (<uint32_t*>column)[0] = <uint32_t>value
            elif known.how == QUARTER:
                (<uint16_t*>column)[0] = <uint16_t>value
            elif known.how == FLAG:
                (<uint8_t*>column)[0] = value != 0
        elif wire == WIRE_BYTES:
            if known.how == PLACE or known.how == WHOLE:
                (<uint32_t*>column)[0] = <uint32_t>(inside.at - start)
                (<int32_t*>column)[1] = <int32_t>left(&inside)
            elif known.how == LISTED:
                if (<uint32_t*>column)[1] == 0:
                    (<uint32_t*>column)[0] = <uint32_t>(field - start)
                (<uint32_t*>column)[1] += 1
            if known.how >= INSIDE:
                fault = read_fields(start, &inside, row, known.inside)
                if fault:
                    return fault
    return OK
