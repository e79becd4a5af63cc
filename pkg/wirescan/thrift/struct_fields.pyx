# cython: boundscheck=False, wraparound=False
"""Open the structs of Thrift messages without their schema.

Each field, element, key and value is one row. walk.pxd draws the wire. Source: Apache Thrift,
doc/specs/thrift-binary-protocol.md and thrift-compact-protocol.md; for version 2 of the compact
protocol fbthrift, CompactProtocol.h.
"""
import numpy as np

from libc.string cimport memcpy
from wirescan.core cimport (
    BAD_LENGTH, Fault, LEFTOVER, LIMIT, OK, Parents, Reader, Rows, TRUNCATED, add_each, be16, be32,
    be64, begin_row, int16_t, int32_t, int64_t, is_inside, le64, open_rows, place, take, uint8_t,
    uint32_t, uint64_t, zigzag32, zigzag64)
from wirescan.thrift.rows cimport COMPACT, Field, Message
from wirescan.thrift.scan import FIELD as _FIELD, MESSAGE as _MESSAGE
from wirescan.thrift.walk cimport (
    BOOL, BYTE, DOUBLE, FIXED_SIZE, FLOAT, I16, I32, I64, LIST, Level, MAP, STOP, STRING, STRUCT,
    U64, Walk, begin_walk, open_value, read_field, read_size, skip)

cdef enum:
    ELEMENT = 1                 # roles: see `Role` in constants.py
    KEY = 2
    VALUE = 3
    BYTES_PER_ROW = 16          # of a message; the first guess for the number of rows


cdef inline double decode_double(uint64_t bits) noexcept nogil:
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline double decode_float(uint32_t bits) noexcept nogil:
    cdef float value
    memcpy(&value, &bits, 4)
    return value


cdef inline void read_fixed(Walk* walk, const uint8_t* p, uint8_t type,
                            Field* row) noexcept nogil:
    # Read a value of fixed size. All its bytes exist.
    if type == BOOL:
        row.integer = p[0] == 1 if walk.compact else p[0] != 0
    elif type == BYTE:
        row.integer = <signed char>p[0]
    elif type == I16:
        row.integer = <int16_t>be16(p)
    elif type == I32:
        row.integer = <int32_t>be32(p)
    elif type == I64 or type == U64:
        row.integer = <int64_t>be64(p)
    elif type == DOUBLE:
        row.real = decode_double(le64(p) if walk.compact and walk.version == 1 else be64(p))
    elif type == FLOAT:
        row.real = decode_float(be32(p))


cdef inline Fault read_scalar(Walk* walk, Reader* r, uint8_t type, Field* row) noexcept nogil:
    # Read a value that is neither struct nor container, and leave `r` after it.
    cdef uint32_t size = FIXED_SIZE[walk.compact][type]
    cdef const uint8_t* p
    cdef int32_t number = 0
    cdef Fault fault
    if size:
        p = take(r, size)
        if p is NULL:
            return TRUNCATED
        row.value_size = <int32_t>size
        read_fixed(walk, p, type, row)
        return OK
    if type == STRING:
        fault = read_size(walk, r, &size)
        if fault:
            return fault
        row.value_size = <int32_t>size
        return OK if size <= 0x7fffffff and take(r, size) is not NULL else TRUNCATED
    p = r.at
    if type == I64:
        fault = zigzag64(r, &row.integer)
    else:
        fault = zigzag32(r, &number)
        row.integer = number
    row.value_size = <int32_t>(r.at - p)
    return fault


cdef inline Fault read_value(Walk* walk, Reader* r, int64_t truth, int64_t number,
                             Field* row) noexcept nogil:
    # Read the value of row `number`, or the header of a struct or container.
    # truth: the value of a boolean field of the compact protocol; else -1.
    cdef Level* level
    cdef Fault fault
    if truth >= 0:
        row.integer = truth
        return OK
    if not STRUCT <= row.head.kind <= LIST:
        return read_scalar(walk, r, row.head.kind, row)
    fault = open_value(walk, r, row.head.kind)
    if fault:
        return fault
    level = &walk.level[walk.depth - 1]
    level.row = number
    row.count = level.count
    row.key_type = level.key_type
    row.element_type = level.element_type
    return OK


cdef inline void close_row(Field* row, int64_t end) noexcept nogil:
    # Set the size of a struct's or container's row. `end` is a position in its buffer.
    row.head.size = <uint32_t>(end - row.head.start)
    row.value_size = <int32_t>(row.head.size - row.value_at)


cdef inline void close_rest(Rows* rows, Walk* walk, Reader* r, const uint8_t* base) noexcept nogil:
    # The rows are full. Walk on to set the sizes of the structs and containers that are open.
    cdef Level* level = &walk.level[walk.depth - 1]
    cdef uint64_t key
    cdef uint64_t value
    cdef uint64_t rest
    cdef int32_t depth
    cdef Fault fault = OK
    cdef Field* row
    if level.type != STRUCT:
        # `skip` steps over all elements of fixed size from the first. Some are already read.
        key = FIXED_SIZE[walk.compact][level.key_type] if level.type == MAP else 0
        value = FIXED_SIZE[walk.compact][level.element_type]
        if value and (key or level.type != MAP):
            if level.type == MAP:
                rest = key * (level.remaining >> 1) + value * ((level.remaining + 1) >> 1)
            else:
                rest = value * level.remaining
            take(r, rest)
            level.remaining = 0
    for depth in range(walk.depth, 0, -1):
        level = &walk.level[depth - 1]
        if not fault:
            fault = skip(walk, r, depth - 1)
        if fault:
            r.at = r.end
        if level.row >= 0:
            row = <Field*>rows.at + level.row
            row.head.fault = <uint8_t>fault
            rows.bad += fault != OK
            close_row(row, r.at - base)


cdef inline Fault read_type(Walk* walk, const Level* level, Reader* r, uint8_t* type, int32_t* id,
                            int64_t* truth) noexcept nogil:
    # Read the header of the next field, or find the type of the next element. STOP: there is none.
    # truth: the value of a boolean field of the compact protocol; else -1.
    if level.type == STRUCT:
        return read_field(walk, r, type, id, truth)
    truth[0] = -1
    if not level.remaining:
        type[0] = STOP
    elif level.type == MAP and not level.remaining & 1:
        type[0] = level.key_type
    else:
        type[0] = level.element_type
    return OK


cdef inline void fill_identity(Field* row, Level* level, uint8_t type, int32_t id) noexcept nogil:
    # Write the type of a value, its id or number, and its role. id: that of a field.
    row.head.kind = type
    if level.type == STRUCT:
        row.id = id
        return
    if level.type == MAP:
        row.id = <int32_t>(level.count - ((level.remaining + 1) >> 1))
        row.role = VALUE if level.remaining & 1 else KEY
    else:
        row.id = <int32_t>(level.count - level.remaining)
        row.role = ELEMENT
    level.remaining -= 1


cdef inline Fault add_bad_row(Rows* rows, Walk* walk, int32_t depth, const uint8_t* mark,
                              const uint8_t* end, const Message* message, int32_t parent,
                              const uint8_t* base, Fault fault) noexcept nogil:
    # Add one row for the bytes from `mark` on. Structs and containers that are open are bad too.
    # depth: that of the value which cannot be read, or 0 for bytes after the message.
    cdef Field* row = <Field*>begin_row(rows, sizeof(Field))
    cdef const Level* level
    if row is NULL:
        return LIMIT
    row.depth = <uint8_t>depth
    row.enclosing = <int32_t>walk.level[depth - 1].row if depth else -1
    place(&row.head, base, mark, end, parent, message.head.buffer, <uint8_t>fault)
    rows.count += 1
    rows.bad += 1
    while walk.depth > 0:
        walk.depth -= 1
        level = &walk.level[walk.depth]
        if level.row >= 0 and level.row < <int64_t>rows.count - 1:
            row = <Field*>rows.at + level.row
            row.head.fault = <uint8_t>fault
            close_row(row, end - base)
            rows.bad += 1
    return OK


cdef inline Fault add_fields(Rows* rows, const void* outer, const uint8_t* start,
                             int32_t parent, const void* context) noexcept nogil:
    # Add a row for each field, element, key and value of a message. This is an AddRows, whose
    # context is the deepest level.
    cdef const Message* message = <const Message*>outer
    cdef int32_t deepest = (<const int32_t*>context)[0]
    cdef const uint8_t* base = start - message.head.start
    cdef const uint8_t* mark = start
    cdef const uint8_t* arguments = start + message.arguments_at
    cdef Reader r = Reader(arguments, arguments + max(message.arguments_size, 0))
    cdef Walk walk
    cdef Level* level
    cdef Field* row
    cdef uint8_t type = STOP
    cdef int32_t depth = 0
    cdef int32_t id = 0
    cdef int64_t truth = -1
    cdef Fault fault = <Fault>message.head.fault
    if not is_inside(&message.head, message.arguments_at, message.arguments_size):
        return BAD_LENGTH
    begin_walk(&walk, message.protocol == COMPACT, message.version)
    if fault:
        r = Reader(start, start + message.head.size)
    while walk.depth and not fault:
        depth = walk.depth
        mark = r.at
        level = &walk.level[depth - 1]
        fault = read_type(&walk, level, &r, &type, &id, &truth)
        if type == STOP and not fault:
            walk.depth -= 1
            if level.row >= 0:
                close_row(<Field*>rows.at + level.row, r.at - base)
            continue
        row = <Field*>begin_row(rows, sizeof(Field))
        if row is NULL:
            if not fault:
                r.at = mark
                close_rest(rows, &walk, &r, base)
            return LIMIT
        row.depth = <uint8_t>depth
        row.enclosing = <int32_t>level.row
        if not fault:
            fill_identity(row, level, type, id)
            fault = read_value(&walk, &r, truth, <int64_t>rows.count, row)
        if not fault:
            row.value_at = <uint32_t>(r.at - mark) - row.value_size
            row.head.body = row.value_at
            if walk.depth > deepest:
                fault = skip(&walk, &r, deepest)
                row.value_size = <int32_t>(r.at - mark - row.value_at)
        if not fault:
            place(&row.head, base, mark, r.at, parent, message.head.buffer, OK)
            rows.count += 1
    if fault:
        return add_bad_row(rows, &walk, depth, mark, r.end, message, parent, base, fault)
    if r.at < r.end:
        return add_bad_row(rows, &walk, 0, r.at, r.end, message, parent, base, LEFTOVER)
    return OK


cdef Fault run_fields(Parents* parents, Rows* rows) noexcept nogil:
    return add_each(parents, rows, add_fields)


def open_fields(messages, buffers, depth, limits):
    """Return (rows of dtype FIELD, bad, fault): the content of rows of dtype MESSAGE.

    Rows are in the order of the wire, down to `depth`. The fault is LIMIT where there are more rows
    than the limits allow.

    Raises ValueError where a row points outside its buffer, MemoryError.
    """
    cdef int32_t deepest = depth
    if messages.dtype != _MESSAGE:
        raise TypeError("open_fields takes rows of thrift.messages")
    expected = len(messages) + int(messages["size"].sum(dtype=np.int64)) // BYTES_PER_ROW
    return open_rows(messages, buffers, _FIELD, expected, run_fields, &deepest, limits)
