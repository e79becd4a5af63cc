# Walks over a struct of either protocol without its schema. The walk has its own stack, so nested
# input cannot exhaust the C stack. A walk that runs out of bytes can resume at the same place.
#
#     binary      field: type(1) id(2) value; stop: 00. Numbers have fixed sizes.
#                 string: size(4); list, set: type(1) count(4);
#                 map: key type(1) value type(1) count(4)
#     compact     field: id delta(4 bits) type(4 bits), or 0(4) type(4) id(zig-zag).
#                 Integers are zig-zag varints. string: size(varint);
#                 list, set: count(4 bits) type(4 bits), for count 15 then count(varint);
#                 map: count(varint), and unless that is 0 key type(4 bits) value type(4 bits).
#                 The type of a boolean field is its value.
from wirescan.core cimport (
    BAD_COUNT, BAD_FIELD, Fault, NESTED, OK, Reader, TRUNCATED, be16, be32, int16_t, int32_t,
    int64_t, left, take, uint8_t, uint32_t, uint64_t, varint32, varint64, zigzag32)

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
    /* For each protocol and type: the bytes of a value, 0 where the size varies. */
    static const unsigned char wirescan_thrift_fixed[2][20] = {
        {0, 0, 1, 1, 8, 0, 2, 0, 4, 8, 8, 0, 0, 0, 0, 0, 16, 0, 0, 4},
        {0, 0, 1, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 4}};
    /* For each protocol and type: the minimum bytes of a value, 0 where there is no such type. */
    static const unsigned char wirescan_thrift_minimum[2][20] = {
        {0, 0, 1, 1, 8, 0, 2, 0, 4, 8, 8, 4, 1, 6, 5, 5, 16, 0, 0, 4},
        {0, 0, 1, 1, 8, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 16, 0, 0, 4}};
    /* Maps types of the compact protocol to those above. 13 is UUID in version 1. */
    static const unsigned char wirescan_thrift_compact[16] = {
        0, 2, 2, 3, 6, 8, 10, 4, 11, 15, 14, 13, 12, 19, 0xff, 0xff};
    """
    const uint8_t FIXED_SIZE "wirescan_thrift_fixed"[2][20]
    const uint8_t MINIMUM_SIZE "wirescan_thrift_minimum"[2][20]
    const uint8_t COMPACT_TYPE "wirescan_thrift_compact"[16]

# An open struct or container.
cdef struct Level:
    uint64_t remaining          # elements not read yet; of a map, keys and values
    int64_t  row                # its row, for struct_fields.pyx
    uint32_t count              # elements; of a map, pairs
    int16_t  last_id
    uint8_t  type
    uint8_t  key_type
    uint8_t  element_type

cdef struct Walk:
    int64_t  needed             # where bytes are missing: bytes from r on at least; else 0
    int32_t  depth
    uint8_t  compact
    uint8_t  version
    Level    level[DEEPEST]


cdef inline void begin_walk(Walk* walk, bint compact, uint8_t version) noexcept nogil:
    walk.needed = 0
    walk.depth = 1
    walk.compact = compact
    walk.version = version
    walk.level[0].type = STRUCT
    walk.level[0].last_id = 0
    walk.level[0].row = -1


cdef inline Fault set_needed(Walk* walk, int64_t needed) noexcept nogil:
    walk.needed = needed
    return TRUNCATED


cdef inline Fault set_needed_if_truncated(Walk* walk, const Reader* r, Fault fault) noexcept nogil:
    if fault == TRUNCATED:
        walk.needed = <int64_t>left(r) + 1
    return fault


cdef inline bint is_known(const Walk* walk, uint8_t type) noexcept nogil:
    return type < TYPES and MINIMUM_SIZE[walk.compact][type]


cdef inline uint8_t convert_compact_type(const Walk* walk, uint8_t nibble) noexcept nogil:
    if nibble == 13 and walk.version == 1:
        return UUID
    return COMPACT_TYPE[nibble]


cdef inline Fault read_field(Walk* walk, Reader* r, uint8_t* type, int32_t* id,
                             int64_t* truth) noexcept nogil:
    # Reads the header of a field, or STOP.
    # truth: the value of a boolean field of the compact protocol; else -1.
    cdef Level* level = &walk.level[walk.depth - 1]
    cdef const uint8_t* p = take(r, 1)
    cdef int32_t number = 0
    cdef Fault fault
    truth[0] = -1
    if p is NULL:
        return set_needed(walk, 1)
    if p[0] == STOP:
        type[0] = STOP
        return OK
    if not walk.compact:
        type[0] = p[0]
        if not is_known(walk, type[0]):
            return BAD_FIELD
        p = take(r, 2)
        if p is NULL:
            return set_needed(walk, 2)
        id[0] = <int16_t>be16(p)
        return OK
    type[0] = convert_compact_type(walk, p[0] & 15)
    if type[0] == STOP or type[0] == UNKNOWN:
        return BAD_FIELD
    if type[0] == BOOL:
        truth[0] = (p[0] & 15) == 1
    if p[0] >> 4:
        number = level.last_id + (p[0] >> 4)
    else:
        fault = zigzag32(r, &number)
        if fault:
            return set_needed_if_truncated(walk, r, fault)
    if number > 32767 or number < -32768:
        return BAD_FIELD
    id[0] = number
    level.last_id = <int16_t>number
    return OK


cdef inline Fault read_size(Walk* walk, Reader* r, uint32_t* size) noexcept nogil:
    # Reads the size of a string, or the count of a container.
    cdef const uint8_t* p
    if walk.compact:
        return set_needed_if_truncated(walk, r, varint32(r, size))
    p = take(r, 4)
    if p is NULL:
        return set_needed(walk, 4)
    size[0] = be32(p)
    return OK


cdef inline Fault open_value(Walk* walk, Reader* r, uint8_t type) noexcept nogil:
    # Steps over the header of a struct or container and opens a level for its content.
    cdef Level level = Level(0, -1, 0, 0, type, 0, 0)
    cdef const uint8_t* p
    cdef uint32_t count = 0
    cdef uint32_t minimum
    cdef Fault fault
    if walk.depth == DEEPEST:
        return NESTED
    if type != STRUCT:
        if not walk.compact:
            p = take(r, 2 if type == MAP else 1)
            if p is NULL:
                return set_needed(walk, 6 if type == MAP else 5)
            level.key_type = p[0] if type == MAP else 0
            level.element_type = p[type == MAP]
            fault = read_size(walk, r, &count)
        elif type == MAP:
            fault = read_size(walk, r, &count)
            if not fault and count:
                p = take(r, 1)
                if p is NULL:
                    return set_needed(walk, 1)
                level.key_type = convert_compact_type(walk, p[0] >> 4)
                level.element_type = convert_compact_type(walk, p[0] & 15)
        else:
            p = take(r, 1)
            if p is NULL:
                return set_needed(walk, 1)
            level.element_type = convert_compact_type(walk, p[0] & 15)
            count = p[0] >> 4
            fault = read_size(walk, r, &count) if count == 15 else OK
        if fault:
            return fault
        if count > 0x7fffffff:
            return BAD_COUNT
        level.count = count
        level.remaining = count
        if count:
            if not is_known(walk, level.element_type):
                return BAD_FIELD
            if type == MAP and not is_known(walk, level.key_type):
                return BAD_FIELD
            minimum = MINIMUM_SIZE[walk.compact][level.element_type]
            if type == MAP:
                minimum += MINIMUM_SIZE[walk.compact][level.key_type]
                level.remaining = 2 * <uint64_t>count
            if <uint64_t>count * minimum > left(r):
                walk.needed = <int64_t>count * minimum
                return BAD_COUNT
    walk.level[walk.depth] = level
    walk.depth += 1
    return OK


cdef inline Fault skip_scalar(Walk* walk, Reader* r, uint8_t type) noexcept nogil:
    # Steps over a value that is neither struct nor container.
    cdef uint32_t size = FIXED_SIZE[walk.compact][type]
    cdef uint64_t number = 0
    cdef Fault fault
    if size:
        return OK if take(r, size) is not NULL else set_needed(walk, size)
    if type == STRING:
        fault = read_size(walk, r, &size)
        if fault:
            return fault
        if size > 0x7fffffff:
            return TRUNCATED
        return OK if take(r, size) is not NULL else set_needed(walk, size)
    if type == I64 or type == U64:
        return set_needed_if_truncated(walk, r, varint64(r, &number))
    return set_needed_if_truncated(walk, r, varint32(r, &size))


cdef inline Fault skip(Walk* walk, Reader* r, int32_t base) noexcept nogil:
    # Steps over everything that is open above the depth `base`.
    # On a fault, r is before the bad field or element, and `needed` counts from there. The walk
    # can resume there with more bytes.
    cdef Level* level
    cdef const uint8_t* mark
    cdef const uint8_t* fault_at
    cdef uint8_t type = STOP
    cdef int32_t id = 0
    cdef int32_t depth
    cdef int64_t truth = 0
    cdef int16_t last_id
    cdef uint64_t run_size
    cdef Fault fault
    walk.needed = 0
    while walk.depth > base:
        depth = walk.depth
        mark = r.at
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
                if STRUCT <= type <= LIST:
                    fault = open_value(walk, r, type)
                else:
                    fault = skip_scalar(walk, r, type)
        else:
            if level.remaining == 0:
                walk.depth -= 1
                continue
            run_size = FIXED_SIZE[walk.compact][level.element_type]
            if run_size and (level.type != MAP or FIXED_SIZE[walk.compact][level.key_type]):
                run_size *= level.count
                if level.type == MAP:
                    run_size += <uint64_t>FIXED_SIZE[walk.compact][level.key_type] * level.count
                take(r, run_size)               # open_value has checked that these bytes exist
                level.remaining = 0
                continue
            if level.type == MAP and not level.remaining & 1:
                type = level.key_type
            else:
                type = level.element_type
            if STRUCT <= type <= LIST:
                fault = open_value(walk, r, type)
            else:
                fault = skip_scalar(walk, r, type)
            if not fault:
                level.remaining -= 1
        if fault:
            fault_at = r.at
            r.at = mark
            level.last_id = last_id
            walk.depth = depth
            if walk.needed:
                walk.needed += fault_at - mark
            return fault
    return OK
