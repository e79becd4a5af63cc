# cython: boundscheck=False, wraparound=False
"""Read the structs in the bodies of Kafka's messages, driven by programs.

compile.py makes the programs from api_definitions.py. protocol/formats.py calls `open_structs`.
The types on the wire are:

    number         bool, int8, int16, int32 or int64
    string         length(2), or length + 1 (varint) in flexible versions: -1, or 0, is null
    bytes          length(4), or length + 1 (varint)
    array          count(4), or count + 1 (varint), and its elements
    struct         its fields; a byte precedes those of a struct that may be null: -1 is null
    tagged fields  count { tag  size  field }*   (varints)

Flexible versions have tagged fields at the end of each struct. All integers are big-endian. All
varints are unsigned. Source: Apache Kafka, "Kafka Protocol Guide", "Protocol Primitive Types"; for
flexible versions, KIP-482.

A fault inside an array of structs is a fault of the enclosing struct too. The place of such an
array reaches to the end of the enclosing bytes, so the structs before the fault can still be read.
"""
import numpy as np

from libc.string cimport memcpy
from wirescan.core cimport (
    BAD_COUNT, BAD_NULL, BAD_VERSION, Context, Fault, Head, LEFTOVER, OK, NestedScan, Reader, Rows,
    TRUNCATED, be16, be32, be64, int16_t, int32_t, int64_t, left, scan_children, open_frames, take,
    uint8_t, uint16_t, uint32_t, uint64_t, varint32)
from wirescan.core.loop import lie_inside
from wirescan.frames.table import iter_groups

cdef Program _program
cdef Step _step
cdef Program[::1] _programs = <Program[:1]>&_program
cdef Step[::1] _steps = <Step[:1]>&_step
PROGRAM = np.asarray(_programs).dtype
STEP = np.asarray(_steps).dtype


cdef inline void store(char* to, const uint8_t* p, int32_t width) noexcept nogil:
    # Store a big-endian number of 1, 2, 4 or 8 bytes in the byte order of the machine.
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


cdef inline void store_place(char* row, const Step* step, const uint8_t* start, const uint8_t* at,
                             int64_t size) noexcept nogil:
    # A place is two columns: the position, counted from `start`, and the size.
    cdef uint32_t position = <uint32_t>(at - start)
    cdef int32_t bytes = <int32_t>size
    if row is not NULL:
        memcpy(row + step.at, &position, 4)
        memcpy(row + step.at + 4, &bytes, 4)


cdef inline void store_count(char* to, int32_t count) noexcept nogil:
    memcpy(to, &count, 4)


cdef inline Fault read_count(Reader* r, const Step* step, int64_t* out) noexcept nogil:
    # Read a length or a count; -1 is null. A compact one is a varint of the value plus 1, so 0 is
    # null. Otherwise it is an integer, and any negative value is null.
    cdef uint32_t value = 0
    cdef const uint8_t* p
    cdef Fault fault
    if step.is_compact:
        fault = varint32(r, &value)
        if fault:
            return fault
        out[0] = <int64_t>value - 1
    else:
        p = take(r, 2 if step.read == SIZED and step.width == 2 else 4)
        if p is NULL:
            return TRUNCATED
        if step.read == SIZED and step.width == 2:
            out[0] = <int16_t>be16(p)
        else:
            out[0] = <int32_t>be32(p)
    if out[0] < 0:
        out[0] = -1
        return OK if step.is_nullable else BAD_NULL
    return OK


cdef Fault read_tags(Reader* r, const uint8_t* start, char* row, const Step* steps,
                     const Step* step) noexcept nogil:
    # Read the tagged fields of a struct, and skip those with an unknown tag.
    cdef uint32_t tags = 0, tag = 0, size = 0, _i
    cdef int32_t number
    cdef Reader inside
    cdef Fault fault = varint32(r, &tags)
    if fault:
        return fault
    for _i in range(tags):
        fault = varint32(r, &tag)
        if not fault:
            fault = varint32(r, &size)
        if fault:
            return fault
        inside.at = take(r, size)
        if inside.at is NULL:
            return TRUNCATED
        inside.end = inside.at + size
        for number in range(step.first, step.last):
            if <uint32_t>steps[number].width == tag:
                fault = read_fields(
                    &inside, start, row, steps, steps[number].first, steps[number].last)
                if fault:
                    return fault
                if left(&inside):
                    return LEFTOVER
    return OK


cdef Fault read_fields(Reader* r, const uint8_t* start, char* row, const Step* steps, int32_t first,
                       int32_t last) noexcept nogil:
    # Read a struct into its row, or skip it if `row` is NULL. Places in the row count from `start`.
    cdef const Step* step
    cdef const uint8_t* p
    cdef int64_t count, size, _i
    cdef int32_t number
    cdef Fault fault = OK
    for number in range(first, last):
        step = steps + number
        if step.read == NUMBER or step.read == FIXED:
            p = take(r, <size_t>step.width)
            if p is NULL:
                return TRUNCATED
            if step.read == FIXED:
                store_place(row, step, start, p, step.width)
            elif row is not NULL:
                store(row + step.at, p, step.width)
            continue
        if step.read == TAGS:
            fault = read_tags(r, start, row, steps, step)
            if fault:
                return fault
            continue
        if step.read == OPTIONAL:
            p = take(r, 1)
            if p is NULL:
                return TRUNCATED
            if not p[0] & 0x80:
                fault = read_fields(r, start, row, steps, step.first, step.last)
                if fault:
                    return fault
            continue
        fault = read_count(r, step, &count)
        if fault:
            return fault
        p = r.at
        if step.read == STRUCTS:
            for _i in range(count):
                # A struct has at least one byte, so the loop ends with the bytes, for any count.
                if left(r):
                    fault = read_fields(r, start, NULL, steps, step.first, step.last)
                else:
                    fault = BAD_COUNT
                if fault:
                    break
            if row is not NULL:
                store_count(row + step.count, <int32_t>min(count, <int64_t>0x7fffffff))
            if count < 0:
                size = -1
            else:
                size = (r.end if fault else r.at) - p
            store_place(row, step, start, p, size)
            if fault:
                return fault
        else:
            size = count * (step.width if step.read == NUMBERS else 1)
            if count > 0 and (count > <int64_t>left(r) or take(r, <size_t>size) is NULL):
                return TRUNCATED
            store_place(row, step, start, p, size if count >= 0 else -1)
    return OK


cdef Fault read_struct(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef const Program* program = <const Program*>context.parent
    cdef Head* head = <Head*>out
    cdef const uint8_t* start = r.at
    cdef Fault fault = BAD_VERSION
    memcpy(<char*>out + sizeof(Head), <const char*>program.template + sizeof(Head),
           program.stride - sizeof(Head))
    head.kind = program.version
    if program.first >= 0:
        head.body = program.skip
        if take(r, program.skip) is NULL:
            fault = TRUNCATED
        else:
            fault = read_fields(
                r, start, <char*>out, <const Step*>program.steps, program.first, program.last)
        if fault == OK and program.is_whole and left(r):
            fault = LEFTOVER
    if fault:
        r.at = r.end                # the end of the struct is not known
    return fault


cdef Fault run_structs(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, rows.stride, read_struct, NULL)


def open_structs(programs, buffers, spans, counts, dtype, limits):
    """Return (rows, bad, fault), a row of `dtype` for each struct in the spans.

    See `core.loop.open_frames`. programs: array of dtype PROGRAM, one for each row that is opened.
    The addresses in it are not validated: the caller must keep their memory alive.
    """
    return open_frames(programs, buffers, spans, counts, dtype, run_structs, NULL, NULL, limits)


def read_int16(rows, buffers, name, at=0):
    """Return an int16 array: two bytes of the place `name` of each row, big-endian.

    The number is -1 where the row is bad, or where the place is null or too short.

    at: position of the two bytes in the place; default 0.

    Raises ValueError if a row points outside its buffer.
    """
    if not lie_inside(rows, buffers):
        raise ValueError("a row points outside its buffer")
    position = rows[name + "_at"].astype(np.int64) + at
    size = rows[name + "_size"]
    out = np.full(len(rows), -1, np.int16)
    readable = np.flatnonzero(
        (size >= at + 2) & (rows["fault"] == 0) & (position + 2 <= rows["size"]))
    for number, selected in iter_groups(rows["buffer"], readable):
        data = np.frombuffer(buffers[number], np.uint8)
        first = rows["start"][selected] + position[selected]
        out[selected] = (data[first].astype(np.int16) << 8) | data[first + 1]
    return out
