# cython: boundscheck=False, wraparound=False
"""The structs in the bodies of Kafka's messages, read by programs that kafka/program.py makes of kafka/messages.py.

    number         bool, int8, int16, int32 or int64
    string         length(2), or length + 1 (varint) in flexible versions: -1, or 0, is null
    bytes          length(4), or length + 1 (varint)
    array          count(4), or count + 1 (varint), and its elements
    tagged fields  count { tag  size  field }*   (varints), at the end of each struct in flexible versions

All integers are big-endian, all varints unsigned. Source: Apache Kafka, "Kafka Protocol Guide", "Protocol Primitive
Types"; for flexible versions, KIP-482.

A fault inside an array of structs is the fault of the struct around it too; but the place of the array is kept, to the
end of what encloses it: so the structs before the fault can still be read.
"""
import numpy as np

from libc.string cimport memcpy
from wirescan.core cimport (
    BAD_COUNT, BAD_NULL, BAD_VERSION, Fault, Head, LEFTOVER, OK, Opening, Reader, Rows, TRUNCATED, be16, be32, be64,
    int16_t, int32_t, int64_t, left, open_all, open_frames, take, uint8_t, uint16_t, uint32_t, uint64_t, varint32)
from wirescan.core.loop import lie_inside
from wirescan.table import groups

cdef Program _program
cdef Step _step
cdef Program[::1] _programs = <Program[:1]>&_program
cdef Step[::1] _steps = <Step[:1]>&_step
PROGRAM = np.asarray(_programs).dtype
STEP = np.asarray(_steps).dtype


cdef inline void store(char* to, const uint8_t* p, int32_t width) noexcept nogil:
    cdef uint64_t word
    cdef uint32_t half
    cdef uint16_t quarter
    if width == 4:
        half = be32(p)
        memcpy(to, &half, 4)
    elif width == 8:
        word = be64(p)
        memcpy(to, &word, 8)
    elif width == 2:
        quarter = be16(p)
        memcpy(to, &quarter, 2)
    else:
        to[0] = p[0]


cdef inline void note(char* row, const Step* step, const uint8_t* start, const uint8_t* at,
                      int64_t size) noexcept nogil:
    cdef uint32_t where = <uint32_t>(at - start)
    cdef int32_t bytes = <int32_t>size
    if row is not NULL:
        memcpy(row + step.at, &where, 4)
        memcpy(row + step.at + 4, &bytes, 4)


cdef inline void store_count(char* to, int32_t count) noexcept nogil:
    memcpy(to, &count, 4)


cdef inline Fault read_count(Reader* r, const Step* step, int64_t* out) noexcept nogil:
    # A length or a count: a varint of one more, so that 0 is null, or an integer, where all that are negative are.
    cdef uint32_t more = 0
    cdef const uint8_t* p
    cdef Fault fault
    if step.is_compact:
        fault = varint32(r, &more)
        if fault:
            return fault
        out[0] = <int64_t>more - 1
    else:
        p = take(r, 2 if step.read == SIZED and step.width == 2 else 4)
        if p is NULL:
            return TRUNCATED
        out[0] = <int16_t>be16(p) if step.read == SIZED and step.width == 2 else <int32_t>be32(p)
    if out[0] < 0:
        out[0] = -1
        return OK if step.is_nullable else BAD_NULL
    return OK


cdef Fault read_tags(Reader* r, const uint8_t* start, char* row, const Step* steps, const Step* step) noexcept nogil:
    cdef uint32_t tags = 0, tag = 0, size = 0, i
    cdef int32_t known
    cdef Reader inside
    cdef Fault fault = varint32(r, &tags)
    if fault:
        return fault
    for i in range(tags):
        fault = varint32(r, &tag)
        if not fault:
            fault = varint32(r, &size)
        if fault:
            return fault
        inside.at = take(r, size)
        if inside.at is NULL:
            return TRUNCATED
        inside.end = inside.at + size
        for known in range(step.first, step.last):
            if <uint32_t>steps[known].width == tag:
                fault = read_fields(&inside, start, row, steps, steps[known].first, steps[known].last)
                if fault:
                    return fault
                if left(&inside):
                    return LEFTOVER
    return OK


cdef Fault read_fields(Reader* r, const uint8_t* start, char* row, const Step* steps, int32_t first,
                       int32_t last) noexcept nogil:
    # Read a struct into its row; without a row, step over it. `start`: where places in the row count from.
    cdef const Step* step
    cdef const uint8_t* p
    cdef int64_t count, i
    cdef int32_t number
    cdef Fault fault = OK
    for number in range(first, last):
        step = steps + number
        if step.read == NUMBER or step.read == FIXED:
            p = take(r, <size_t>step.width)
            if p is NULL:
                return TRUNCATED
            if step.read == FIXED:
                note(row, step, start, p, step.width)
            elif row is not NULL:
                store(row + step.at, p, step.width)
            continue
        if step.read == TAGS:
            fault = read_tags(r, start, row, steps, step)
            if fault:
                return fault
            continue
        fault = read_count(r, step, &count)
        if fault:
            return fault
        p = r.at
        if step.read == STRUCTS:
            for i in range(count):
                # A struct has at least a byte, so whatever the count, this ends with the bytes.
                fault = read_fields(r, start, NULL, steps, step.first, step.last) if left(r) else BAD_COUNT
                if fault:
                    break
            if row is not NULL:
                store_count(row + step.count, <int32_t>min(count, <int64_t>0x7fffffff))
            note(row, step, start, p, -1 if count < 0 else (r.end if fault else r.at) - p)
            if fault:
                return fault
        else:
            i = count * (step.width if step.read == NUMBERS else 1)
            if count > 0 and (count > <int64_t>left(r) or take(r, <size_t>i) is NULL):
                return TRUNCATED
            note(row, step, start, p, i if count >= 0 else -1)
    return OK


cdef Fault read_struct(Reader* r, void* out, const void* parent) noexcept nogil:
    cdef const Program* program = <const Program*>parent
    cdef Head* head = <Head*>out
    cdef const uint8_t* start = r.at
    cdef Fault fault = BAD_VERSION
    memcpy(<char*>out + sizeof(Head), <const char*>program.template + sizeof(Head), program.stride - sizeof(Head))
    head.kind = program.version
    if program.first >= 0:
        head.body = program.skip
        if take(r, program.skip) is NULL:
            fault = TRUNCATED
        else:
            fault = read_fields(r, start, <char*>out, <const Step*>program.steps, program.first, program.last)
        if fault == OK and program.is_whole and left(r):
            fault = LEFTOVER
    if fault:
        r.at = r.end                # where it ends is not known
    return fault


cdef Fault run_structs(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, rows.stride, read_struct, NULL)


def open_structs(programs, buffers, spans, counts, dtype, limits):
    """(rows, bad, fault): a row of `dtype` for each struct in the spans. As core.loop.open_frames.

    programs: array of dtype PROGRAM, one for each row that is opened. The caller vouches for the addresses in it.
    """
    return open_frames(programs, buffers, spans, counts, dtype, run_structs, NULL, NULL, limits)


def leading_int16(rows, buffers, name):
    """Int16 array: what the place `name` of each row begins with: the version of a key or a value; -1 where it is null
    or shorter."""
    if not lie_inside(rows, buffers):
        raise ValueError("a row points outside its buffer")
    at, size = rows[name + "_at"].astype(np.int64), rows[name + "_size"]
    out = np.full(len(rows), -1, np.int16)
    for number, have in groups(rows["buffer"], np.flatnonzero(
            (size >= 2) & (rows["fault"] == 0) & (at + 2 <= rows["size"]))):
        data, first = np.frombuffer(buffers[number], np.uint8), rows["start"][have] + at[have]
        out[have] = (data[first].astype(np.int16) << 8) | data[first + 1]
    return out
