# The Protocol Buffers wire format: reads the fields of a message into the columns of a row.
# scan.pyx uses it for all protobuf messages of Liftbridge.
#
# A table of `Field`, indexed by field number, says which column takes which field.
# Fields that are not in the table are skipped. So are fields with another wire type than the table
# expects. If a field is repeated, its last value counts.
# Source: protobuf.dev, "Encoding".
from wirescan.core cimport (
    BAD_FIELD, BAD_VARINT, Fault, OK, Reader, TRUNCATED, int32_t, left, take, uint8_t, uint16_t,
    uint32_t, uint64_t, varint32, varint64)

cdef enum:
    TABLE_SIZE = 16         # entries in a table of fields: the field numbers 0 to 15

# How a field is stored in its column.
cdef enum:
    SKIPPED = 0
    INT64 = 1
    INT32 = 2
    INT16 = 3               # a value that is too large becomes 0x7fff
    BOOL = 4                # 0 or 1, in 8 bits
    PLACE = 5               # the columns <name>_at and <name>_size
    SUBMESSAGE = 6          # a nested message, which has its own table of fields
    SUBMESSAGE_PLACE = 7    # the same, and its place is stored
    MAP_ENTRIES = 8         # the same; stores the position of the first tag, and the count

cdef struct Field:
    uint16_t how                # one of the constants above
    uint16_t column             # byte position of the column in the row
    const Field* inside         # the table of fields of a nested message

cdef enum:
    WIRE_VARINT = 0
    WIRE_64 = 1
    WIRE_BYTES = 2
    WIRE_GROUP = 3
    WIRE_END = 4
    WIRE_32 = 5
    LARGEST_FIELD = 0x7fffffff
    MAX_GROUP_DEPTH = 100

# These two are in proto.pyx: the first is recursive, the second is rarely needed.
cdef Fault read_inside(const uint8_t* start, Reader* r, char* row,
                       const Field* fields) noexcept nogil
cdef Fault skip_group(Reader* r, uint32_t number) noexcept nogil


cdef inline Fault read_varint(Reader* r, uint64_t* out) noexcept nogil:
    # The last of ten bytes may hold bits above the 64th. They are dropped, as other readers do.
    cdef const uint8_t* p = r.at
    cdef Fault fault = varint64(r, out)
    return OK if fault == BAD_VARINT and r.at == p + 10 and p[9] < 0x80 else fault


cdef inline Fault skip_value(Reader* r, uint32_t wire) noexcept nogil:
    # Skip the value of a field that is not a group.
    cdef uint64_t value
    cdef uint32_t length
    cdef Fault fault
    if wire == WIRE_VARINT:
        return read_varint(r, &value)
    if wire == WIRE_BYTES:
        fault = varint32(r, &length)
        if fault:
            return fault
        return TRUNCATED if length > LARGEST_FIELD or take(r, length) is NULL else OK
    if wire == WIRE_64 or wire == WIRE_32:
        return TRUNCATED if take(r, 8 if wire == WIRE_64 else 4) is NULL else OK
    return BAD_FIELD


cdef inline Fault read_next_field(Reader* r, uint32_t* number, uint32_t* wire, uint64_t* value,
                                  Reader* inside) noexcept nogil:
    # Read one field. A varint is stored in `value`; a byte string is left in `inside`.
    cdef uint32_t tag, length
    cdef Fault fault
    if r.at[0] < 0x80:
        tag = r.at[0]
        r.at += 1
    else:
        fault = varint32(r, &tag)
        if fault:
            return fault
    number[0] = tag >> 3
    wire[0] = tag & 7
    if tag >> 3 == 0:
        return BAD_FIELD
    if tag & 7 == WIRE_VARINT:
        return read_varint(r, value)
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
        inside.at = r.at
        inside.end = r.at + length
        r.at = inside.end
        return OK
    if tag & 7 == WIRE_GROUP:
        return skip_group(r, tag >> 3)
    return skip_value(r, tag & 7)


cdef inline bint find_field(Reader* r, uint32_t field_number, const uint8_t** field,
                            Reader* inside) noexcept nogil:
    # Find the next byte string with this field number. `field` becomes the address of its tag, and
    # `inside` its bytes. Return False if there is no such field, or a bad one comes first.
    cdef uint32_t number, wire
    cdef uint64_t value
    while r.at < r.end:
        field[0] = r.at
        if read_next_field(r, &number, &wire, &value, inside):
            return False
        if number == field_number and wire == WIRE_BYTES:
            return True
    return False


cdef inline Fault read_fields(const uint8_t* start, Reader* r, char* row,
                              const Field* fields) noexcept nogil:
    # Store each field up to the end of r in its column. Places are counted from `start`.
    cdef const uint8_t* field
    cdef uint32_t number, wire
    cdef uint64_t value
    cdef const Field* target
    cdef Reader inside
    cdef Fault fault
    cdef char* column
    while r.at < r.end:
        field = r.at
        fault = read_next_field(r, &number, &wire, &value, &inside)
        if fault:
            return fault
        target = fields + (number if number < TABLE_SIZE else 0)
        column = row + target.column
        if wire == WIRE_VARINT:
            if target.how == INT64:
                (<uint64_t*>column)[0] = value
            elif target.how == INT32:
                (<uint32_t*>column)[0] = <uint32_t>value
            elif target.how == INT16:
                (<uint16_t*>column)[0] = <uint16_t>min(value, <uint64_t>0x7fff)
            elif target.how == BOOL:
                (<uint8_t*>column)[0] = value != 0
        elif wire == WIRE_BYTES:
            if target.how == PLACE or target.how == SUBMESSAGE_PLACE:
                (<uint32_t*>column)[0] = <uint32_t>(inside.at - start)
                (<int32_t*>column)[1] = <int32_t>left(&inside)
            elif target.how == MAP_ENTRIES:
                if (<uint32_t*>column)[1] == 0:
                    (<uint32_t*>column)[0] = <uint32_t>(field - start)
                (<uint32_t*>column)[1] += 1
            if target.how >= SUBMESSAGE:
                fault = read_inside(start, &inside, row, target.inside)
                if fault:
                    return fault
    return OK
