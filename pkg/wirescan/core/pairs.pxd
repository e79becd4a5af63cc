from libc.stdint cimport int32_t, int64_t, uint8_t
from wirescan.core.rows cimport Block
from wirescan.core.strings cimport Strings

cdef struct Pair:
    const uint8_t* key
    const uint8_t* value
    int32_t key_size
    int32_t value_size          # -1: null

cdef class Pairs:
    # The pairs of all rows, one after another: row i has the pairs from end[i] to end[i + 1].
    cdef Pair* pair
    cdef int64_t* end
    cdef Py_ssize_t count       # number of rows
    cdef Block pairs, ends      # the memory of `pair` and `end`
    cdef object owners          # keeps the bytes alive
    cdef int allocate(self, Py_ssize_t count, Py_ssize_t pairs) except -1

cdef inline const uint8_t* string_at(const Strings* strings, Py_ssize_t i) noexcept nogil:
    return <const uint8_t*>strings.address[i * strings.step]

cdef inline int32_t size_of(const Strings* strings, Py_ssize_t i) noexcept nogil:
    return strings.size[i * strings.step]
