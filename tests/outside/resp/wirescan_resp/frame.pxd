# The kernel that reads one frame, and the probe that finds the next frame after damage.
from libc.string cimport memchr
from wirescan.core cimport (
    BAD_LENGTH, Context, Fault, NOT_A_FRAME, OK, Reader, SHORT, SearchBudget, UNDECIDED,
    charge_budget, charge_walk, int32_t, int64_t, left, may_walk, uint8_t, uint32_t, uint64_t)
from wirescan_resp.rows cimport ARRAY, ERROR, Frame
from wirescan_resp.value cimport (
    DEEPEST, Element, SMALLEST, TOO_DEEP, find_kind, read_value)

# The way through a value and all values inside it. `missing` values are not read yet. `open` has
# the number of those that are missing in each open array.
cdef struct Walk:
    int64_t missing
    int64_t value_count
    int64_t open[DEEPEST]
    int32_t depth               # number of open arrays
    Fault   fault               # the first soft fault, or OK


cdef inline void begin_walk(Walk* walk) noexcept nogil:
    walk.missing = 1
    walk.value_count = 0
    walk.depth = 0
    walk.fault = OK


cdef inline Fault walk_value(Walk* walk, Reader* r, Element* value) noexcept nogil:
    # Read the next value. Leave r before it where it cannot be read.
    cdef const uint8_t* start = r.at
    cdef Fault fault = read_value(r, value)
    if fault >= SHORT:
        r.at = start
        return fault
    if fault and not walk.fault:
        walk.fault = fault
    walk.value_count += 1
    walk.missing += value.count - 1
    while walk.depth and walk.open[walk.depth - 1] == 0:
        walk.depth -= 1                         # the arrays that the value before has ended
    if walk.depth:
        walk.open[walk.depth - 1] -= 1
    if value.count:
        if walk.depth < DEEPEST:
            walk.open[walk.depth] = value.count
            walk.depth += 1
        else:                                   # a level is not needed to find the end
            walk.open[walk.depth - 1] += value.count
            walk.fault = walk.fault if walk.fault else <Fault>TOO_DEEP
    return OK


cdef inline Fault walk_frame(Reader* r, Walk* walk, Element* first, int64_t* size) noexcept nogil:
    # Step over a value, which becomes `first`, and over all values inside it.
    #
    # Each missing value has at least SMALLEST bytes. So `*1000000000` needs 3 GB. Without them it
    # is SHORT, with the `size` that the frame has at least, and r is after the values that are
    # there.
    cdef const uint8_t* start = r.at
    cdef Element inner
    cdef Element* value = first
    cdef Fault fault = OK
    begin_walk(walk)
    size[0] = 0
    while walk.missing and not fault:
        fault = walk_value(walk, r, value)
        if fault == SHORT and size[0] == 0:
            size[0] = r.at - start + value.needed + SMALLEST * (walk.missing - 1)
        elif not fault and size[0] == 0 and SMALLEST * walk.missing > <int64_t>left(r):
            size[0] = r.at - start + SMALLEST * walk.missing
        value = &inner
    if size[0]:
        return BAD_LENGTH if size[0] > <int64_t>0xffffffff else SHORT
    return fault if fault else walk.fault


cdef inline void find_name(Frame* row, const Element* value, const uint8_t* start,
                           const uint8_t* end) noexcept nogil:
    # The name of a command is the first element of an array, a bulk string. The name of an error is
    # its first word.
    cdef Reader r = Reader(value.at, end)
    cdef Element first
    cdef const void* blank
    row.name_size = -1
    if value.kind == ERROR:
        blank = memchr(value.at, c" ", <size_t>value.size)
        row.name_at = <uint32_t>(value.at - start)
        row.name_size = <int32_t>value.size
        if blank is not NULL:
            row.name_size = <int32_t>(<const uint8_t*>blank - value.at)
    elif value.count and value.at[0] == c"$" and read_value(&r, &first) == OK and first.size >= 0:
        row.name_at = <uint32_t>(first.at - start)
        row.name_size = <int32_t>first.size


cdef inline Fault read_frame(Reader* r, void* out, const Context* context) noexcept nogil:
    # The kernel: see ReadFrame in wirescan/core/loop.pxd.
    cdef Frame* row = <Frame*>out
    cdef SearchBudget* budget = context.budget
    cdef const uint8_t* start = r.at
    cdef int64_t size = 0
    cdef Element value
    cdef Walk walk
    cdef Fault fault
    if start[0] == c"*" and not may_walk(budget, start):
        return NOT_A_FRAME
    fault = walk_frame(r, &walk, &value, &size)
    if fault >= SHORT:
        if r.at > start:
            charge_walk(budget, start, <uint64_t>(r.at - start))
        if fault == SHORT:
            row.head.size = <uint32_t>size
            row.head.start = r.at - start       # these values are whole: search no frame in them
        return fault
    row.head.kind = value.kind
    if fault:
        return fault
    row.head.body = row.value_at = <uint32_t>(value.at - start)
    row.value_size = <int32_t>value.size
    if value.kind == ARRAY and value.size >= 0:
        row.value_size = <int32_t>(r.at - value.at)
    row.integer = value.integer
    row.count = <int32_t>value.count
    row.value_count = <uint32_t>walk.value_count
    find_name(row, &value, start, r.at)
    return OK


cdef inline size_t probe_frame(const uint8_t* at, const uint8_t* end, bint deep,
                               SearchBudget* budget) noexcept nogil:
    # The probe: see ResyncProbe in wirescan/core/loop.pxd.
    #
    # Only arrays with elements are searched for. Any other value may be an element of the damaged
    # array, or a line of text in a bulk string.
    cdef Reader r = Reader(at, end)
    cdef const uint8_t* star
    cdef int64_t size = 0
    cdef Element value
    cdef Walk walk
    cdef Fault fault
    if not deep and find_kind(at[0]):
        return 0
    if at[0] != c"*":
        star = <const uint8_t*>memchr(at, c"*", <size_t>(end - at))
        return <size_t>((end if star is NULL else star) - at)
    if not may_walk(budget, at):
        return 1
    fault = walk_frame(&r, &walk, &value, &size)
    if not fault and value.count:
        return 0 if charge_budget(budget, at, <uint64_t>(r.at - at)) else 1
    charge_walk(budget, at, <uint64_t>(r.at - at))
    return UNDECIDED if fault == SHORT else 1
