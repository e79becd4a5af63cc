# cython: boundscheck=False, wraparound=False
"""Rows that several threads fill: each fills its part of one block, in the order of one thread.

The parts are cut by the expected numbers of rows. A share with more rows continues in memory of its
own. Afterwards the parts are moved together. They are seldom moved, because formats mostly state
how many frames are inside a frame.
"""
from libc.string cimport memmove
from wirescan.core.fault cimport OK
from wirescan.core.parallel import run_each
from wirescan.core.rows cimport free_memory

# Rows of this size together are copied rather than keep a block that is more than twice as large.
cdef enum:
    SMALL_BLOCK = 1 << 20


cdef class Share:
    """A part of the work of one call, which a thread runs by calling it."""

    cdef void work(self) noexcept nogil:
        pass

    def __call__(self):
        with nogil:
            self.work()

    def __dealloc__(self):
        if not self.rows.lent:
            free_memory(self.rows.at, self.rows.bytes)


cdef RowBlock run_shares(list shares, RowBlock block, list expected):
    cdef Rows* rows = &block.rows
    cdef size_t first = 0, room, spare, claimed = sum(expected)
    cdef Share share
    if claimed > rows.capacity:
        return None
    # All shares together have at most `max_rows` rows.
    spare = (rows.max_rows - claimed) // <size_t>len(shares)
    for share, room in zip(shares, expected):
        share.rows = Rows(rows.at + first * rows.stride, 0, rows.stride, 0, room, room + spare, 0,
                          False, True, False, NULL, NULL)
        first += room
    run_each(shares)
    return join_shares(shares, block)


cdef RowBlock join_shares(list shares, RowBlock block):
    # Move the rows of the shares together. See `run_shares`.
    cdef Rows* rows = &block.rows
    cdef RowBlock result = block
    cdef size_t count = 0, bad = 0
    cdef bint lent = True
    cdef Share share
    for share in shares:
        if share.fault != OK:
            return None
        count += share.rows.count
        bad += share.rows.bad
        lent &= share.rows.lent
    if not lent and rows.fixed:
        return None
    if not lent or count < rows.capacity // 2 and rows.bytes > SMALL_BLOCK:
        try:
            result = RowBlock(rows.stride, count, rows.max_rows)
        except MemoryError:
            return None
    result.rows.count = 0
    result.rows.bad = bad
    for share in shares:
        append_rows(&result.rows, &share.rows)
    return result


cdef void append_rows(Rows* joined, const Rows* rows) noexcept:
    # In the memory of `joined`, rows only move towards its beginning.
    cdef char* into = joined.at + joined.count * joined.stride
    if into != rows.at:
        with nogil:
            memmove(into, rows.at, rows.count * rows.stride)
    joined.count += rows.count
