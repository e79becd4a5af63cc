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
    BAD_COUNT, BAD_NULL, BAD_VERSION, Context, Fault, Head, LEFTOVER, LIMIT, NestedScan, OK,
    Parents, Reader, Rows, TRUNCATED, add_each, be16, be32, be64, begin_row, int16_t, int32_t,
    int64_t, left, open_frames, open_rows, scan_children, take, uint8_t, uint16_t, uint32_t,
    uint64_t, varint32)
from wirescan.core.loop import flatten, lie_inside
from wirescan.frames.table import iter_groups

cdef Program _program
cdef Step _step
cdef Program[::1] _programs = <Program[:1]>&_program
cdef Step[::1] _steps = <Step[:1]>&_step
cdef RecordSet _record_set
cdef RecordSetPath _record_set_path
PROGRAM = np.asarray(_programs).dtype
STEP = np.asarray(_steps).dtype
RECORD_SET = flatten(np.asarray(<RecordSet[:1]>&_record_set).dtype)
RECORD_SET_PATH = np.asarray(<RecordSetPath[:1]>&_record_set_path).dtype

# The search for the record sets in one message.
cdef struct RecordSetWalk:
    const RecordSetPath* path
    Rows* rows
    const Head* message
    const uint8_t* start                        # first byte of the message
    const uint8_t* starts[DEPTHS]               # first bytes of the structs that are read
    char structs[DEPTHS][LARGEST_STRUCT]        # their rows
    int32_t version
    bint is_full                                # there is no room for more rows


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


cdef inline void copy_place(RecordSetWalk* walk, int depth, int32_t column, uint32_t* at,
                            int32_t* size) noexcept nogil:
    # Copy a place from the row of a struct. In the row of the record set, it counts from the first
    # byte of the message.
    cdef const char* row = walk.structs[depth]
    at[0] = 0
    memcpy(size, row + column + 4, 4)
    if size[0] >= 0:
        memcpy(at, row + column, 4)
        at[0] += <uint32_t>(walk.starts[depth] - walk.start)


cdef RecordSet* add_record_set(RecordSetWalk* walk, Fault fault) noexcept nogil:
    # Add a row without places. Return NULL where there is no room for it.
    cdef RecordSet* row = <RecordSet*>begin_row(walk.rows, sizeof(RecordSet))
    if row is NULL:
        walk.is_full = True
        return NULL
    row.head.start = walk.message.start
    row.head.size = walk.message.size
    row.head.parent = walk.message.parent
    row.head.buffer = walk.message.buffer
    row.head.fault = <uint8_t>fault
    row.topic_size = -1
    row.topic_id_size = -1
    row.records_size = -1
    row.api_key = walk.path.api_key
    walk.rows.count += 1
    walk.rows.bad += fault != OK
    return row


cdef void add_partition(RecordSetWalk* walk) noexcept nogil:
    # Add the row of the partition that was read, unless it has no records.
    cdef const RecordSetPath* path = walk.path
    cdef uint32_t at, topic_at, topic_id_at
    cdef int32_t size, topic_size, topic_id_size
    cdef RecordSet* row
    copy_place(walk, DEPTHS - 1, path.records, &at, &size)
    if size <= 0:
        return
    row = add_record_set(walk, OK)
    if row is NULL:
        return
    copy_place(walk, DEPTHS - 2, path.topic, &topic_at, &topic_size)
    copy_place(walk, DEPTHS - 2, path.topic_id, &topic_id_at, &topic_id_size)
    row.records_at = at
    row.records_size = size
    row.topic_at = topic_at
    row.topic_size = topic_size
    row.topic_id_at = topic_id_at
    row.topic_id_size = topic_id_size
    memcpy(&row.partition, walk.structs[DEPTHS - 1] + path.partition, 4)


cdef Fault walk_struct(RecordSetWalk* walk, Reader* r, int depth) noexcept nogil:
    # Read a struct, and add the record sets in it.
    cdef const Program* program = (
        <const Program*>walk.path.programs[depth] + min(walk.version, walk.path.version_count))
    cdef const Step* steps = <const Step*>program.steps
    cdef char* row = walk.structs[depth]
    cdef const uint8_t* start = r.at
    cdef int32_t first = program.first, array = program.first
    cdef int64_t count, _i
    cdef Fault fault
    if first < 0:
        return BAD_VERSION
    memcpy(row, <const char*>program.template, program.stride)
    walk.starts[depth] = start
    if depth + 1 < DEPTHS:
        while (array + 1 < program.last
               and (steps[array].read != STRUCTS or steps[array].at != walk.path.arrays[depth])):
            array += 1
        fault = read_fields(r, start, row, steps, first, array)
        if not fault:
            fault = read_count(r, steps + array, &count)
        if fault:
            return fault
        for _i in range(count):
            # A struct has at least one byte, so the loop ends with the bytes, for any count.
            fault = walk_struct(walk, r, depth + 1) if left(r) else BAD_COUNT
            if fault or walk.is_full:
                return fault
        first = array + 1
    fault = read_fields(r, start, row, steps, first, program.last)
    if depth + 1 == DEPTHS and fault == OK:
        add_partition(walk)
    return fault


cdef Fault add_record_sets(Rows* rows, const void* row, const uint8_t* frame, int32_t number,
                           const void* context) noexcept nogil:
    # Add the record sets of a message. A fault is one more row, after those before the fault.
    cdef const Head* message = <const Head*>row
    cdef RecordSetWalk walk
    cdef int16_t version
    cdef Reader r = Reader(frame, frame + message.size)
    cdef Fault fault = <Fault>message.fault
    walk.path = <const RecordSetPath*>context
    walk.rows = rows
    walk.message = message
    walk.start = frame
    walk.is_full = False
    memcpy(&version, <const char*>row + walk.path.api_version, 2)
    walk.version = version if version >= 0 else walk.path.version_count
    if not fault:
        fault = TRUNCATED if take(&r, message.body) is NULL else walk_struct(&walk, &r, 0)
    if not fault and left(&r):
        fault = LEFTOVER
    if fault and not walk.is_full:
        add_record_set(&walk, fault)
    return LIMIT if walk.is_full else OK


cdef Fault run_record_sets(Parents* parents, Rows* rows) noexcept nogil:
    return add_each(parents, rows, add_record_sets)


def find_record_sets(messages, buffers, path, limits):
    """Return (rows, bad, fault), a row of dtype RECORD_SET for each partition with records.

    See `core.loop.open_rows`. messages: rows of the messages of one API. path: array of dtype
    RECORD_SET_PATH with one element. The addresses in it are not validated, nor the positions: the
    caller must keep the memory alive.
    """
    cdef const uint8_t[::1] view = np.ascontiguousarray(path).view(np.uint8)
    return open_rows(messages, buffers, RECORD_SET, len(messages) + 1, run_record_sets, &view[0],
                     limits)


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
