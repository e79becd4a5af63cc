# Where rows are written. `count` rows of `stride` bytes are; there is room for `room`, and never more than `most`.
cdef struct Rows:
    char* at
    size_t bytes                    # that the memory has, where it is not the caller's
    size_t stride
    size_t count
    size_t room
    size_t most
    size_t bad                      # rows with a fault
    bint fixed                      # the memory is the caller's: it cannot grow
    bint out_of_memory

# Make room for this many rows, or as many as may be and there is memory for; False if that is no more than there was.
# Nothing is lost then.
cdef bint grow_rows(Rows* rows, size_t room) noexcept nogil

cdef class RowBlock:
    cdef Rows rows
    cdef object owner               # keeps the caller's memory alive

cdef class Block:
    cdef char* at
    cdef size_t bytes
    cdef Py_ssize_t size
    cdef object __weakref__
