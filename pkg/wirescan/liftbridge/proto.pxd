# Protocol Buffers, the wire format: the fields of a message, by a table that says which column takes which.
#
# Fields that the table does not name, or that have another type than it says, are stepped over; of a field that comes
# twice the last one stays. Source: protobuf.dev, "Encoding".
from wirescan.core cimport (
    BAD_FIELD, BAD_VARINT, Fault, OK, Reader, TRUNCATED, int32_t, left, take, uint8_t, uint16_t, uint32_t,
    uint64_t, varint32, varint64)

cdef enum:
    FIELDS = 16             # of a table: numbers 0 to 15

# How a field is put into its column.
cdef enum:
    UNKNOWN = 0
    WORD = 1                # 64 bits
    HALF = 2                # 32 bits
    QUARTER = 3             # 16 bits, the largest number where the value has more
    FLAG = 4                # 8 bits: 0 or 1
    PLACE = 5               # _at and _size
    INSIDE = 6              # a message, whose fields have a table of their own
    WHOLE = 7               # ... and PLACE: it is noted as well
    LISTED = 8              # ... but only where the first one's tag is, and how many there are

cdef struct Field:
    uint16_t how
    uint16_t column             # bytes from the row's begin
    const Field* inside

cdef enum:
    WIRE_VARINT = 0
    WIRE_64 = 1
    WIRE_BYTES = 2
    WIRE_GROUP = 3
    WIRE_END = 4
    WIRE_32 = 5
    LARGEST_FIELD = 0x7fffffff
    DEEPEST = 100           # groups in one another

# What is rare, or calls itself: the fields of a message inside; and a group, up to its end.
cdef Fault read_inside(const uint8_t* start, Reader* r, char* row, const Field* fields) noexcept nogil
cdef Fault step_over_group(Reader* r, uint32_t number) noexcept nogil


cdef inline Fault varint(Reader* r, uint64_t* out) noexcept nogil:
    # Of ten bytes the last may have bits that no number of 64 has: they are cut off, as other readers do.
    cdef const uint8_t* p = r.at
    cdef Fault fault = varint64(r, out)
    return OK if fault == BAD_VARINT and r.at == p + 10 and p[9] < 0x80 else fault


cdef inline Fault step_over(Reader* r, uint32_t wire) noexcept nogil:
    # A field that is no group.
    cdef uint64_t value
    cdef uint32_t length
    cdef Fault fault
    if wire == WIRE_VARINT:
        return varint(r, &value)
    if wire == WIRE_BYTES:
        fault = varint32(r, &length)
        if fault:
            return fault
        return TRUNCATED if length > LARGEST_FIELD or take(r, length) is NULL else OK
    if wire == WIRE_64 or wire == WIRE_32:
        return TRUNCATED if take(r, 8 if wire == WIRE_64 else 4) is NULL else OK
    return BAD_FIELD


cdef inline Fault next_field(Reader* r, uint32_t* number, uint32_t* wire, uint64_t* value,
                             Reader* inside) noexcept nogil:
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
        return varint(r, value)
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


cdef inline bint find_field(Reader* r, uint32_t wanted, const uint8_t** field, Reader* inside) noexcept nogil:
    # The next field of that number, if it is one of bytes: where it begins, and they are. False where there is none.
    cdef uint32_t number, wire
    cdef uint64_t value
    while r.at < r.end:
        field[0] = r.at
        if next_field(r, &number, &wire, &value, inside):
            return False
        if number == wanted and wire == WIRE_BYTES:
            return True
    return False


cdef inline Fault read_fields(const uint8_t* start, Reader* r, char* row, const Field* fields) noexcept nogil:
    # Put every field up to the end of r into its column; places count from `start`.
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
                (<uint16_t*>column)[0] = <uint16_t>min(value, <uint64_t>0x7fff)
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
                fault = read_inside(start, &inside, row, known.inside)
                if fault:
                    return fault
    return OK
