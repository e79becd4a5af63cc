# cython: boundscheck=False, wraparound=False
"""Open frames: each value in a frame becomes a row, the outermost one and all inside it."""
import numpy as np

from wirescan.core cimport (
    Fault, LEFTOVER, LIMIT, OK, Parents, Reader, Rows, TRUNCATED, add_each, begin_row, int32_t,
    int64_t, open_rows, place, uint8_t, uint16_t, uint32_t)
from wirescan.core.loop import flatten
from wirescan_resp.frame cimport Walk, begin_walk, walk_value
from wirescan_resp.rows cimport ARRAY, Frame, Value
from wirescan_resp.scan import FRAME as _FRAME
from wirescan_resp.value cimport DEEPEST, Element, SMALLEST, find_kind

# An array of the deepest level has elements, which are one level deeper.
MAX_DEPTH = DEEPEST + 1

cdef Value _value
VALUE = flatten(np.asarray(<Value[:1]>&_value).dtype)


cdef inline void fill_row(Value* row, const Element* value, const uint8_t* start,
                          const uint8_t* end) noexcept nogil:
    row.head.kind = value.kind
    row.head.body = row.value_at = <uint32_t>(value.at - start)
    row.value_size = <int32_t>value.size
    row.integer = value.integer
    row.count = <int32_t>value.count
    if value.kind == ARRAY:
        row.value_size = min(row.value_size, 0)         # the elements are added when they are read
        if value.count and value.at < end:
            row.element_kind = find_kind(value.at[0])


cdef inline void close_arrays(Rows* rows, Walk* walk, const int64_t* numbers, int32_t depth,
                              int64_t end) noexcept nogil:
    # Close the open arrays above a depth, and set the sizes of their rows. `end` is a position in
    # the buffer.
    cdef Value* row
    while walk.depth > depth:
        walk.depth -= 1
        if numbers[walk.depth] >= 0:
            row = <Value*>rows.at + numbers[walk.depth]
            row.head.size = <uint32_t>(end - row.head.start)
            row.value_size = <int32_t>(row.head.size - row.value_at)


cdef inline Fault read_all(Rows* rows, const Frame* frame, const uint8_t* start, int32_t parent,
                           int32_t levels, bint* full) noexcept nogil:
    # Add a row for each value of a frame, in the order of the wire. Values below `levels`, and
    # those for which there is no more space, are walked only: so the arrays around them get their
    # sizes.
    cdef const uint8_t* base = start - frame.head.start
    cdef const uint8_t* at
    cdef Reader r = Reader(start, start + frame.head.size)
    cdef int64_t numbers[DEEPEST]               # the row of each open array, or -1
    cdef int32_t depth
    cdef Element value
    cdef Walk walk
    cdef Value* row
    cdef Fault fault
    begin_walk(&walk)
    while walk.missing:
        at = r.at
        while walk.depth and walk.open[walk.depth - 1] == 0:
            close_arrays(rows, &walk, numbers, walk.depth - 1, at - base)
        depth = walk.depth
        fault = walk_value(&walk, &r, &value)
        if fault:
            return TRUNCATED
        if walk.fault:
            return walk.fault
        row = NULL
        if depth < levels and not full[0]:
            row = <Value*>begin_row(rows, sizeof(Value))
            full[0] = row is NULL
        if value.count:
            numbers[depth] = -1 if row is NULL else <int64_t>rows.count
        if row is NULL:
            continue
        fill_row(row, &value, at, r.end)
        row.depth = <uint16_t>(depth + 1)
        row.enclosing = -1
        if depth:
            row.enclosing = <int32_t>numbers[depth - 1]
            row.index = (<Value*>rows.at + row.enclosing).count - <int32_t>walk.open[depth - 1] - 1
        place(&row.head, base, at, r.at, parent, frame.head.buffer, OK)
        rows.count += 1
    close_arrays(rows, &walk, numbers, 0, r.at - base)
    return OK if r.at == r.end else LEFTOVER


cdef inline Fault add_values(Rows* rows, const void* outer, const uint8_t* start,
                             int32_t parent, const void* context) noexcept nogil:
    # The AddRows of values: see wirescan/core/loop.pxd. One bad row covers a bad frame. The context
    # is the number of levels whose values become rows.
    cdef const Frame* frame = <const Frame*>outer
    cdef int32_t levels = (<const int32_t*>context)[0]
    cdef size_t first = rows.count
    cdef bint full = False
    cdef Fault fault = <Fault>frame.head.fault
    cdef Value* row
    if not fault:
        fault = read_all(rows, frame, start, parent, levels, &full)
    if not fault:
        return LIMIT if full else OK
    rows.count = first                          # without the rows of values before the fault
    row = <Value*>begin_row(rows, sizeof(Value))
    if row is NULL:
        return LIMIT
    row.enclosing = -1
    place(&row.head, start - frame.head.start, start, start + frame.head.size, parent,
          frame.head.buffer, <uint8_t>fault)
    rows.count += 1
    rows.bad += 1
    return OK


cdef Fault run_values(Parents* parents, Rows* rows) noexcept nogil:
    return add_each(parents, rows, add_values)


def open_values(frames, buffers, depth, limits):
    """Return (rows of dtype VALUE, bad, fault): the values in rows of dtype FRAME.

    depth: the levels whose values become rows. fault: LIMIT if there are more values than the
    limits allow. Raises ValueError if a row points outside its buffer, and MemoryError.
    """
    cdef int32_t levels = depth
    if frames.dtype != _FRAME:
        raise TypeError("open_values takes rows of resp.frames")
    # A value has at least three bytes. So a forged count cannot claim more rows than that.
    expected = np.minimum(frames["value_count"], frames["size"] // SMALLEST).sum(dtype=np.int64)
    return open_rows(frames, buffers, VALUE, int(expected) + len(frames), run_values, &levels,
                     limits)
