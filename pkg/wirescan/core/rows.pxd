from wirescan.core.reader cimport clear_row

# Takes the rows of a block and removes them from `rows`, so that the block can be filled again. The
# last call of a scan may have no rows: it completes what a WriteColumns wrote. Returns False to end
# the scan.
ctypedef bint (*WriteRows)(void* sink, Rows* rows) noexcept nogil

# Memory for rows: `count` rows of `stride` bytes are written, `capacity` rows fit, and there may
# never be more than `max_rows` rows.
cdef struct Rows:
    char* at
    size_t bytes                    # size of the memory, where it is not the caller's
    size_t stride
    size_t count
    size_t capacity
    size_t max_rows
    size_t bad                      # number of rows with a fault
    bint fixed                      # the memory is the caller's: it cannot grow
    bint lent                       # the memory is a part of that of other rows: to grow, move out
    bint out_of_memory
    WriteRows write                 # takes the rows when no more fit; or NULL
    void* sink                      # the argument of `write`

# Make `capacity` rows fit, or as many as `max_rows` and the available memory allow. Return False
# where the memory had to grow and could not; the rows are then unchanged. With a WriteRows, the
# rows are written instead, and the next one is the first of the block again.
cdef bint grow_rows(Rows* rows, size_t capacity) noexcept nogil


# Make one more row fit. Return False at the limit, and where the memory could not grow.
cdef inline bint reserve_row(Rows* rows) noexcept nogil:
    if rows.count < rows.capacity:
        return True
    return rows.count < rows.max_rows and grow_rows(rows, rows.capacity + (rows.capacity >> 1) + 64)


# Return the next row, zeroed, or NULL at the limit and where the memory could not grow. The caller
# counts the row in `rows.count` when it is filled. `stride` is the size of the row: a constant at
# each call, so that the compiler writes the zeros in place.
cdef inline void* begin_row(Rows* rows, size_t stride) noexcept nogil:
    cdef char* row
    if not reserve_row(rows):
        return NULL
    row = rows.at + rows.count * stride
    clear_row(row, stride)
    return row


cdef class RowBlock:
    cdef Rows rows
    cdef object owner               # keeps the caller's memory alive
    cdef bint is_writable           # only while `rows_to_array` exports the rows
    cdef int allocate(self, size_t stride, size_t capacity, size_t max_rows, into) except -1

cdef class Block:
    cdef char* at
    cdef size_t bytes
    cdef Py_ssize_t size
    cdef object __weakref__

# Allocate at least `bytes` bytes, and set `bytes` to the size of the memory. NULL: out of memory.
cdef char* allocate_memory(size_t* bytes) noexcept nogil

# Free memory of `bytes` bytes that `allocate_memory` returned, or NULL.
cdef void free_memory(char* memory, size_t bytes) noexcept nogil

# Return memory as an object that exports its first `size` bytes, and that frees it.
cdef Block adopt_memory(char* memory, size_t bytes, size_t size)
