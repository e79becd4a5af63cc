# Read one value: a line, and the bytes of a bulk string. The elements of an array are values of
# their own.
from wirescan.core cimport BAD_LENGTH, Fault, OK, Reader, SHORT, int64_t, left, uint8_t
from wirescan.core.text cimport find_line_break, read_decimal, read_integer
from wirescan_resp.rows cimport ARRAY, BULK_STRING, ERROR, INTEGER, SIMPLE_STRING

cdef enum:
    BAD_INTEGER = 64            # faults of this package: `FAULTS` in constants.py
    TOO_DEEP = 65
    NOT_A_VALUE = 192
    BAD_LINE = 193

cdef enum:
    DEEPEST = 32                # levels of arrays
    SMALLEST = 3                # bytes of the smallest value: a type and CR LF
    LONGEST_LINE = 65536        # bytes of a line without its CR LF
    LONGEST_LENGTH = 20         # of the line of a length or a count
    MOST_DIGITS = 10            # of a length or a count
    LARGEST = 0x7fffffff        # the largest length and the largest count

# A value that was just read.
cdef struct Element:
    uint8_t  kind
    const uint8_t* at           # the text of a line, or the bytes of a bulk string
    int64_t  size               # bytes of it; -1: null
    int64_t  count              # elements of an array; of any other value 0
    int64_t  integer            # the number of an INTEGER; else 0
    int64_t  needed             # where bytes are missing: the bytes of the value at least


cdef inline uint8_t find_kind(uint8_t byte) noexcept nogil:
    # Return the kind of the value that begins with a byte, or 0.
    if byte == c"$":
        return BULK_STRING
    if byte == c"*":
        return ARRAY
    if byte == c":":
        return INTEGER
    if byte == c"+":
        return SIMPLE_STRING
    return ERROR if byte == c"-" else 0


cdef inline Fault read_line(Reader* r, Element* value) noexcept nogil:
    # Step over the type and the line after it. Set the place of the line's text.
    #
    # The search for an array after damage reads a line at each `*`. The bound of its length keeps
    # the time for many of them linear.
    cdef bint is_text = value.kind != ARRAY and value.kind != BULK_STRING
    cdef int64_t longest = LONGEST_LINE if is_text else LONGEST_LENGTH
    cdef const uint8_t* start = r.at
    cdef const uint8_t* end = r.end
    cdef const uint8_t* line_break
    if end - start > longest + 2:
        end = start + longest + 2               # one byte more than a line may have
    line_break = find_line_break(start + 1, end)
    value.at = start + 1
    value.size = line_break - value.at
    value.needed = value.size + SMALLEST
    if value.size > longest:
        return <Fault>BAD_LINE
    if line_break == r.end:
        value.needed -= 1                       # a bad line may end with LF alone
        return SHORT
    if line_break[0] != c"\r":
        return <Fault>BAD_LINE
    if line_break + 1 == r.end:
        return SHORT
    if line_break[1] != c"\n":
        return <Fault>BAD_LINE
    r.at = line_break + 2
    return OK


cdef inline Fault read_length(Element* value, int64_t* length) noexcept nogil:
    # Read the length of a bulk string, or the count of an array, from the text of its line.
    if value.size == 2 and value.at[0] == c"-" and value.at[1] == c"1":
        length[0] = -1
        return OK
    length[0] = read_decimal(value.at, value.at + value.size, MOST_DIGITS)
    if value.size == 0 or length[0] < 0 or length[0] > LARGEST:
        return BAD_LENGTH
    return OK


cdef inline Fault read_value(Reader* r, Element* value) noexcept nogil:
    # Read the value at r, of an array only its line. Leave r after it.
    #
    # Return OK; BAD_INTEGER, which is soft; SHORT, with `needed`; or a hard fault.
    cdef const uint8_t* start = r.at
    cdef int64_t length = 0
    cdef Fault fault
    value.count = 0
    value.integer = 0
    if start == r.end:
        value.needed = SMALLEST
        return SHORT
    value.kind = find_kind(start[0])
    if value.kind == 0:
        return <Fault>NOT_A_VALUE
    fault = read_line(r, value)
    if fault or value.kind == SIMPLE_STRING or value.kind == ERROR:
        return fault
    if value.kind == INTEGER:
        if not read_integer(value.at, value.at + value.size, &value.integer):
            return <Fault>BAD_INTEGER
        return OK
    fault = read_length(value, &length)
    if fault:
        return fault
    value.at = r.at
    value.size = length
    if value.kind == ARRAY:
        value.count = max(length, <int64_t>0)
        return OK
    if length < 0:
        return OK
    if <int64_t>left(r) < length + 2:
        value.needed = r.at - start + length + 2
        return SHORT
    r.at += length + 2
    if r.at[-2] != c"\r" or r.at[-1] != c"\n":
        return BAD_LENGTH
    return OK
