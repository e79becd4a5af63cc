# cython: boundscheck=False, wraparound=False
"""What is in the structs of Thrift messages, without their schema: a row for each field, element, key and value.

The wire is drawn in walk.pxd. Source: Apache Thrift, doc/specs/thrift-binary-protocol.md, thrift-compact-protocol.md;
for version 2 of the compact protocol fbthrift, CompactProtocol.h.
"""
import numpy as np

from libc.string cimport memcpy, memset
from wirescan.core cimport (
    Fault, LEFTOVER, LIMIT, OK, Readable, Reader, Rows, TRUNCATED, be16, be32, be64, int16_t, int32_t, int64_t, le64,
    take, uint8_t, uint32_t, uint64_t, zigzag32, zigzag64)
from wirescan.core.loop cimport block_for, lend, place
from wirescan.core.loop import addresses, flat
from wirescan.core.rows cimport RowBlock, grow_rows
from wirescan.thrift.scan cimport COMPACT, Field, Message, frame_of, has
from wirescan.thrift.scan import MESSAGE as _MESSAGE
from wirescan.thrift.walk cimport (
    BOOL, BYTE, DOUBLE, FIXED_SIZE, FLOAT, I16, I32, I64, LIST, Level, MAP, STOP, STRING, STRUCT, U64, Walk, begin_walk,
    open_value, read_field, read_size, skip)

cdef enum:
    ELEMENT = 1                 # roles; kind.py says what each is
    KEY = 2
    VALUE = 3

cdef Field _field
FIELD = flat(np.asarray(<Field[:1]>&_field).dtype)


cdef inline double real_of(uint64_t bits) noexcept nogil:
    cdef double value
    memcpy(&value, &bits, 8)
    return value

cdef inline double short_real_of(uint32_t bits) noexcept nogil:
    cdef float value
    memcpy(&value, &bits, 4)
    return value


cdef inline void read_fixed(Walk* walk, const uint8_t* p, uint8_t type, Field* row) noexcept nogil:
    # A value whose bytes are all there.
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
        row.real = real_of(le64(p) if walk.compact and walk.version == 1 else be64(p))
    elif type == FLOAT:
        row.real = short_real_of(be32(p))


cdef inline Fault read_scalar(Walk* walk, Reader* r, uint8_t type, Field* row) noexcept nogil:
    # A value that is neither struct nor container. It ends where r is left then.
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


cdef inline Fault read_value(Walk* walk, Reader* r, int64_t truth, int64_t number, Field* row) noexcept nogil:
    # The value of the row, whose number is given; of a struct or container its header.
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
    row.count, row.key_type, row.element_type = level.count, level.key_type, level.element_type
    return OK


cdef inline void close_row(Field* row, int64_t end) noexcept nogil:
    # The row of a struct or container ends there, in its buffer.
    row.head.size = <uint32_t>(end - row.head.start)
    row.value_size = <int32_t>(row.head.size - row.value_at)


cdef inline Field* next_row(Rows* rows) noexcept nogil:
    cdef Field* row
    if rows.count == rows.room and (rows.count >= rows.most
                                    or not grow_rows(rows, rows.room + (rows.room >> 1) + 64)):
        return NULL
    row = <Field*>rows.at + rows.count
    memset(row, 0, sizeof(Field))
    return row


cdef inline bint add_fields(Rows* rows, const uint8_t* start, const Message* message, int32_t parent,
                            int32_t deepest) noexcept nogil:
    # A row for each field, element, key and value of a message; False where there is no room.
    cdef const uint8_t* base = start - message.head.start
    cdef const uint8_t* mark = start
    cdef Reader r = Reader(start + message.arguments_at,
                           start + message.arguments_at + max(message.arguments_size, 0))
    cdef Walk walk
    cdef Level* level
    cdef Field* row
    cdef uint8_t type = STOP
    cdef int32_t depth = 0, id = 0
    cdef int64_t truth = -1
    cdef Fault fault = <Fault>message.head.fault
    begin_walk(&walk, message.protocol == COMPACT, message.version)
    if fault:
        r = Reader(start, start + message.head.size)
    while walk.depth and not fault:
        depth, mark = walk.depth, r.at
        level = &walk.level[depth - 1]
        if level.type == STRUCT:
            fault = read_field(&walk, &r, &type, &id, &truth)
        elif level.owed:
            type = level.key_type if level.type == MAP and not level.owed & 1 else level.element_type
        else:
            type = STOP
        if type == STOP and not fault:
            walk.depth -= 1
            if level.row >= 0:
                close_row(<Field*>rows.at + level.row, r.at - base)
            continue
        row = next_row(rows)
        if row is NULL:
            return False
        row.depth, row.enclosing = <uint8_t>depth, <int32_t>level.row
        if not fault:
            row.head.kind = type
            if level.type == STRUCT:
                row.id = id
            elif level.type == MAP:
                row.id, row.role = <int32_t>(level.count - ((level.owed + 1) >> 1)), VALUE if level.owed & 1 else KEY
                level.owed -= 1
            else:
                row.id, row.role = <int32_t>(level.count - level.owed), ELEMENT
                level.owed -= 1
            fault = read_value(&walk, &r, truth if level.type == STRUCT else -1, <int64_t>rows.count, row)
        if not fault:
            row.value_at = <uint32_t>(r.at - mark) - row.value_size
            row.head.body = row.value_at
            if walk.depth > deepest:
                fault = skip(&walk, &r, deepest)
                row.value_size = <int32_t>(r.at - mark - row.value_at)
        if not fault:
            place(&row.head, base, mark, r.at, parent, message.head.buffer, OK)
            rows.count += 1
    if not fault:
        mark, fault, depth = r.at, LEFTOVER, 0
        if r.at == r.end:
            return True
    row = next_row(rows)
    if row is NULL:
        return False
    row.depth, row.enclosing = <uint8_t>depth, <int32_t>walk.level[depth - 1].row if depth else -1
    place(&row.head, base, mark, r.end, parent, message.head.buffer, <uint8_t>fault)
    rows.count += 1
    rows.bad += 1
    while walk.depth > 0:                   # what is open around it is bad too
        walk.depth -= 1
        level = &walk.level[walk.depth]
        if level.row >= 0 and level.row < <int64_t>rows.count - 1:
            row = <Field*>rows.at + level.row
            row.head.fault = <uint8_t>fault
            close_row(row, r.end - base)
            rows.bad += 1
    return True


def open_fields(messages, buffers, depth, limits):
    """(rows of dtype FIELD, bad, fault): what is in rows of dtype MESSAGE, down to `depth`, in the order of the wire.
    LIMIT where there are more than limits.rows.

    Raises ValueError where a row points outside its buffer, MemoryError."""
    cdef Py_ssize_t i, n = len(messages)
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Message* message
    cdef const uint8_t* start
    cdef size_t held = len(buffers)
    cdef int32_t deepest = depth
    cdef bint room = True, good = True
    if messages.dtype != _MESSAGE:
        raise TypeError("fields are those of rows of thrift.messages")
    cdef RowBlock block = block_for(FIELD, n + int(messages["size"].sum(dtype=np.int64)) // 16, limits, None)
    cdef Rows* rows = &block.rows
    if n:
        view, readable = np.ascontiguousarray(messages).view(np.uint8), addresses(buffers)
        with nogil:
            for i in range(n):
                message = <const Message*>&view[i * sizeof(Message)]
                start = frame_of(&message.head, <const Readable*>&readable[0, 0], held)
                good = start is not NULL and has(&message.head, message.arguments_at, message.arguments_size)
                room = good and add_fields(rows, start, message, <int32_t>i, deepest)
                if not room:
                    break
    if not good:
        raise ValueError(f"row {i} points outside its buffer")
    fault = OK if room else LIMIT
    return lend(block, FIELD, None, fault), rows.bad, int(fault)
