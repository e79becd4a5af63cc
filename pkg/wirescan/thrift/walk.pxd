# A walk over a struct of either protocol, whatever its schema: with a stack of its own, so that no input can exhaust
# ours, and a walk that the bytes' end interrupted goes on where it was.
#
#     binary      field: type(1) id(2) value; stop: 00. Sizes are fixed; string size(4); list, set: type(1) count(4);
#                 map: key type(1) value type(1) count(4)
#     compact     field: id delta(4 bits) type(4 bits), or 0(4) type(4) id(zig-zag); integers zig-zag varints; string
#                 size(varint); list, set: count(4 bits) type(4 bits), count 15: count(varint); map: count(varint), and
#                 unless that is 0 key type(4 bits) value type(4 bits). A boolean field has its value in its type.
from wirescan.core cimport (
    BAD_COUNT, BAD_FIELD, Fault, NESTED, OK, Reader, TRUNCATED, be16, be32, int16_t, int32_t, int64_t, left, take,
    uint8_t, uint16_t, uint32_t, uint64_t, varint32, varint64, zigzag32)

cdef enum:
    DEEPEST = 64
    # Types, as the binary protocol numbers them.
    STOP = 0
    BOOL = 2
    BYTE = 3
    DOUBLE = 4
    I16 = 6
    I32 = 8
    U64 = 9
    I64 = 10
    STRING = 11
    STRUCT = 12
    MAP = 13
    SET = 14
    LIST = 15
    UUID = 16
    FLOAT = 19
    TYPES = 20
    UNKNOWN = 0xff

cdef extern from *:
    """
    /* By type: bytes of a value, 0 where they vary; and the least that one takes. A type with least 0 is none. */
    static const unsigned char wirescan_thrift_fixed[2][20] = {
        {0, 0, 1, 1, 8, 0, 2, 0, 4, 8, 8, 0, 0, 0, 0, 0, 16, 0, 0, 4},
        {0, 0, 1, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 4}};
    static const unsigned char wirescan_thrift_least[2][20] = {
        {0, 0, 1, 1, 8, 0, 2, 0, 4, 8, 8, 4, 1, 6, 5, 5, 16, 0, 0, 4},
        {0, 0, 1, 1, 8, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 16, 0, 0, 4}};
    /* What the types of the compact protocol are; 13 is UUID in version 1. */
    static const unsigned char wirescan_thrift_compact[16] = {
        0, 2, 2, 3, 6, 8, 10, 4, 11, 15, 14, 13, 12, 19, 0xff, 0xff};
    """
    const uint8_t FIXED_SIZE "wirescan_thrift_fixed"[2][20]
    const uint8_t LEAST_SIZE "wirescan_thrift_least"[2][20]
    const uint8_t COMPACT_TYPE "wirescan_thrift_compact"[16]

# An open struct or container.
cdef struct Level:
    uint64_t owed               # elements to come; of a map, keys and values
    int64_t  row                # for who makes rows
    uint32_t count              # elements; of a map, pairs
    int16_t  last_id
    uint8_t  type
    uint8_t  key_type
    uint8_t  element_type

cdef struct Walk:
    int64_t  least              # bytes from r on that there are at the least, where some are missing; else 0
    int32_t  depth
    uint8_t  compact
    uint8_t  version
    Level    level[DEEPEST]


cdef inline void begin_walk(Walk* walk, bint compact, uint8_t version) noexcept nogil:
    walk.least, walk.depth, walk.compact, walk.version = 0, 1, compact, version
    walk.level[0].type, walk.level[0].last_id, walk.level[0].row = STRUCT, 0, -1

cdef inline Fault missing(Walk* walk, int64_t least) noexcept nogil:
    walk.least = least
    return TRUNCATED

cdef inline Fault cut_or(Walk* walk, const Reader* r, Fault fault) noexcept nogil:
    if fault == TRUNCATED:
        walk.least = <int64_t>left(r) + 1
    return fault


cdef inline bint is_known(const Walk* walk, uint8_t type) noexcept nogil:
    return type < TYPES and LEAST_SIZE[walk.compact][type]

cdef inline uint8_t compact_type(const Walk* walk, uint8_t nibble) noexcept nogil:
    if nibble == 13 and walk.version == 1:
        return UUID
    return COMPACT_TYPE[nibble]


cdef inline Fault read_field(Walk* walk, Reader* r, uint8_t* type, int32_t* id, int64_t* truth) noexcept nogil:
    # The header of a field, or STOP. truth: of a boolean in the compact protocol its value; else -1.
    cdef Level* level = &walk.level[walk.depth - 1]
    cdef const uint8_t* p = take(r, 1)
    cdef int32_t number = 0
    cdef Fault fault
    truth[0] = -1
    if p is NULL:
        return missing(walk, 1)
    if p[0] == STOP:
        type[0] = STOP
        return OK
    if not walk.compact:
        type[0] = p[0]
        if not is_known(walk, type[0]):
            return BAD_FIELD
        p = take(r, 2)
        if p is NULL:
            return missing(walk, 2)
        id[0] = <int16_t>be16(p)
        return OK
    type[0] = compact_type(walk, p[0] & 15)
    if type[0] == STOP or type[0] == UNKNOWN:
        return BAD_FIELD
    if type[0] == BOOL:
        truth[0] = (p[0] & 15) == 1
    if p[0] >> 4:
        number = level.last_id + (p[0] >> 4)
    else:
        fault = zigzag32(r, &number)
        if fault:
            return cut_or(walk, r, fault)
    if number > 32767 or number < -32768:
        return BAD_FIELD
    id[0] = number
    level.last_id = <int16_t>number
    return OK


cdef inline Fault read_size(Walk* walk, Reader* r, uint32_t* size) noexcept nogil:
    # Of a string, or a count.
    cdef const uint8_t* p
    if walk.compact:
        return cut_or(walk, r, varint32(r, size))
    p = take(r, 4)
    if p is NULL:
        return missing(walk, 4)
    size[0] = be32(p)
    return OK


cdef inline Fault open_value(Walk* walk, Reader* r, uint8_t type) noexcept nogil:
    # Step over the header of a struct or container, and stand inside.
    cdef Level level = Level(0, -1, 0, 0, type, 0, 0)
    cdef const uint8_t* p
    cdef uint32_t count = 0, least
    cdef Fault fault
    if walk.depth == DEEPEST:
        return NESTED
    if type != STRUCT:
        if not walk.compact:
            p = take(r, 2 if type == MAP else 1)
            if p is NULL:
                return missing(walk, 6 if type == MAP else 5)
            level.key_type, level.element_type = (p[0] if type == MAP else 0), p[type == MAP]
            fault = read_size(walk, r, &count)
        elif type == MAP:
            fault = read_size(walk, r, &count)
            if not fault and count:
                p = take(r, 1)
                if p is NULL:
                    return missing(walk, 1)
                level.key_type, level.element_type = compact_type(walk, p[0] >> 4), compact_type(walk, p[0] & 15)
        else:
            p = take(r, 1)
            if p is NULL:
                return missing(walk, 1)
            level.element_type, count = compact_type(walk, p[0] & 15), p[0] >> 4
            fault = read_size(walk, r, &count) if count == 15 else OK
        if fault:
            return fault
        if count > 0x7fffffff:
            return BAD_COUNT
        level.count, level.owed = count, count
        if count:
            if not is_known(walk, level.element_type) or type == MAP and not is_known(walk, level.key_type):
                return BAD_FIELD
            least = LEAST_SIZE[walk.compact][level.element_type]
            if type == MAP:
                least += LEAST_SIZE[walk.compact][level.key_type]
                level.owed = 2 * <uint64_t>count
            if <uint64_t>count * least > left(r):
                walk.least = <int64_t>count * least
                return BAD_COUNT
    walk.level[walk.depth] = level
    walk.depth += 1
    return OK


cdef inline Fault skip_scalar(Walk* walk, Reader* r, uint8_t type) noexcept nogil:
    # Step over a value that is neither struct nor container.
    cdef uint32_t size = FIXED_SIZE[walk.compact][type]
    cdef uint64_t number = 0
    cdef Fault fault
    if size:
        return OK if take(r, size) is not NULL else missing(walk, size)
    if type == STRING:
        fault = read_size(walk, r, &size)
        if fault:
            return fault
        if size > 0x7fffffff:
            return TRUNCATED
        return OK if take(r, size) is not NULL else missing(walk, size)
    if type == I64 or type == U64:
        return cut_or(walk, r, varint64(r, &number))
    return cut_or(walk, r, varint32(r, &size))


cdef inline Fault skip(Walk* walk, Reader* r, int32_t base) noexcept nogil:
    # Step over what is open above the depth `base`. On a fault r stands before the field or element that has it, and
    # the walk can go on there when more bytes have come; `least` counts from there.
    cdef Level* level
    cdef const uint8_t* mark
    cdef const uint8_t* found
    cdef uint8_t type = STOP
    cdef int32_t id = 0, depth
    cdef int64_t truth = 0
    cdef int16_t last_id
    cdef uint64_t each
    cdef Fault fault
    walk.least = 0
    while walk.depth > base:
        depth, mark = walk.depth, r.at
        level = &walk.level[depth - 1]
        last_id = level.last_id
        if level.type == STRUCT:
            fault = read_field(walk, r, &type, &id, &truth)
            if not fault:
                if type == STOP:
                    walk.depth -= 1
                    continue
                if truth >= 0:
                    continue
                fault = open_value(walk, r, type) if STRUCT <= type <= LIST else skip_scalar(walk, r, type)
        else:
            if level.owed == 0:
                walk.depth -= 1
                continue
            each = FIXED_SIZE[walk.compact][level.element_type]
            if each and (level.type != MAP or FIXED_SIZE[walk.compact][level.key_type]):
                each = each * level.count + (
                    <uint64_t>FIXED_SIZE[walk.compact][level.key_type] * level.count if level.type == MAP else 0)
                take(r, each)                               # there are so many: open_value has compared
                level.owed = 0
                continue
            type = level.key_type if level.type == MAP and not level.owed & 1 else level.element_type
            fault = open_value(walk, r, type) if STRUCT <= type <= LIST else skip_scalar(walk, r, type)
            if not fault:
                level.owed -= 1
        if fault:
            found = r.at
            r.at, level.last_id, walk.depth = mark, last_id, depth
            if walk.least:
                walk.least += found - mark
            return fault
    return OK
