# Values of MessagePack.
#
# Each value begins with a byte that has its type. It also has a small value or size, or says how
# many bytes of a big-endian number or size follow:
#
# 00-7f, e0-ff  integer               c0, c2, c3   nil, false, true
# 80-8f         map                   c4-c6        binary, size of 1, 2, 4 bytes
# 90-9f         array                 c7-c9        extension, size of 1, 2, 4 bytes
# a0-bf         string                ca, cb       float of 4, 8 bytes
# c1            never used            cc-cf        unsigned integer of 1, 2, 4, 8 bytes
# dc, dd        array                 d0-d3        signed integer of 1, 2, 4, 8 bytes
# de, df        map                   d4-d8        extension of 1, 2, 4, 8, 16 bytes
# d9-db         string, size of 1, 2, 4 bytes
#
# After the size of an extension comes a byte, its type. Type -1 is a timestamp.
#
# Source: MessagePack specification, "Formats" and "Timestamp extension type".
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from wirescan.core cimport Reader, int8_t, left, take
from wirescan.decoding.payload_reader cimport FINE, FIRST_OWN, Refusal

# Reasons of MessagePack: see REASONS in msgpack_reader.pyx.
cdef enum:
    CUT = FIRST_OWN
    UNUSED_BYTE, NOT_A_MAP, WRONG_TYPE, BAD_NUMBER, BAD_KEY, TWICE, BAD_TIME, MORE

cpdef enum ValueKind:
    NIL, TRUTH, NUMBER, LARGE, REAL, TEXT, OCTETS, STAMP, EXTENSION, ELEMENTS, PAIRS

cdef enum:
    DIGITS = 24                 # characters of an integer, with sign and NUL
    STAMP_TYPE = 255            # -1, the type of timestamps
    BILLION = 1000000000

cdef struct Value:
    ValueKind kind
    int64_t number              # TRUTH and NUMBER; LARGE: the bits of an unsigned number
    double real
    const uint8_t* octets       # TEXT, OCTETS, STAMP, EXTENSION
    uint32_t size               # of `octets`; ELEMENTS and PAIRS: how many

cdef Refusal take_sized(Reader* r, uint8_t first, Value* value) noexcept nogil
cdef Refusal take_number(Reader* r, uint8_t first, Value* value) noexcept nogil
cdef Refusal skip_values(Reader* r, uint64_t count) noexcept nogil
cdef Refusal read_stamp(const Value* value, int64_t* seconds, uint32_t* nanos) noexcept nogil


cdef inline Refusal take_octets(
        Reader* r, Value* value, ValueKind kind, uint32_t size) noexcept nogil:
    value.kind = kind
    value.size = size
    value.octets = take(r, size)
    return CUT if value.octets is NULL else FINE


cdef inline Refusal take_extension(Reader* r, Value* value, uint32_t size) noexcept nogil:
    cdef const uint8_t* p = take(r, 1)
    if p is NULL:
        return CUT
    return take_octets(r, value, STAMP if p[0] == STAMP_TYPE else EXTENSION, size)


cdef inline Refusal set_count(
        Reader* r, Value* value, ValueKind kind, uint32_t count) noexcept nogil:
    # Each element has a byte at least.
    value.kind = kind
    value.size = count
    return CUT if <uint64_t>count * (2 if kind == PAIRS else 1) > left(r) else FINE


cdef inline Refusal take_value(Reader* r, Value* value) noexcept nogil:
    # Read a value, or the head of an array or a map.
    cdef const uint8_t* p = take(r, 1)
    cdef uint8_t first
    if p is NULL:
        return CUT
    first = p[0]
    if first < 0x80 or first >= 0xe0:
        value.kind = NUMBER
        value.number = <int8_t>first
        return FINE
    if first >= 0xa0 and first < 0xc0:
        return take_octets(r, value, TEXT, first & 31)
    if first < 0xa0:
        return set_count(r, value, PAIRS if first < 0x90 else ELEMENTS, first & 15)
    if first == 0xc0:
        value.kind = NIL
        return FINE
    if first == 0xc1:
        return UNUSED_BYTE
    if first <= 0xc3:
        value.kind = TRUTH
        value.number = first & 1
        return FINE
    if first >= 0xca and first <= 0xd3:
        return take_number(r, first, value)
    if first >= 0xd4 and first <= 0xd8:
        return take_extension(r, value, 1 << (first - 0xd4))
    return take_sized(r, first, value)


cdef inline uint64_t count_inner(const Value* value) noexcept nogil:
    # Return the number of values that directly follow the head of an array or a map.
    if value.kind == PAIRS:
        return 2 * <uint64_t>value.size
    return value.size if value.kind == ELEMENTS else 0


cdef inline Refusal take_key(Reader* r, Value* key, char* digits) noexcept nogil:
    # Read a key. An integer becomes its digits.
    cdef int size
    cdef inline Refusal refusal = take_value(r, key)
    if refusal != FINE or key.kind == TEXT:
        return refusal
    if key.kind == NUMBER:
        size = snprintf(digits, DIGITS, b"%lld", <long long>key.number)
    elif key.kind == LARGE:
        size = snprintf(digits, DIGITS, b"%llu", <unsigned long long>key.number)
    else:
        return BAD_KEY
    key.octets = <const uint8_t*>digits
    key.size = <uint32_t>size
    return FINE
