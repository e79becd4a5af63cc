# Protocol Buffers, the wire format: the fields of a message, by a table that says which column takes which.
#
# Fields that the table does not name, or that have another type than it says, are stepped over; of a field that comes
# twice the last one stays. Source: protobuf.dev, "Encoding".
from wirescan.core cimport Fault, Reader, uint8_t, uint16_t, uint32_t

cdef enum:
    FIELDS = 16             # of a table: numbers 0 to 15

# How a field is put into its column.
cdef enum:
    UNKNOWN = 0
    WORD = 1                # 64 bits
    HALF = 2                # 32 bits
    QUARTER = 3             # 16 bits
    FLAG = 4                # 8 bits: 0 or 1
    PLACE = 5               # _at and _size
    INSIDE = 6              # a message, whose fields have a table of their own
    WHOLE = 7               # ... and PLACE: it is noted as well
    LISTED = 8              # ... but only where the first one's tag is, and how many there are

cdef struct Field:
    uint16_t how
    uint16_t column             # bytes from the row's begin
    const Field* inside


# Put every field up to the end of r into its column; places count from `start`.
cdef Fault read_fields(const uint8_t* start, Reader* r, char* row, const Field* fields) noexcept nogil

# The next field of that number, if it is one of bytes: where it begins, and they are. False where there is none.
cdef bint find_field(Reader* r, uint32_t wanted, const uint8_t** field, Reader* inside) noexcept nogil
