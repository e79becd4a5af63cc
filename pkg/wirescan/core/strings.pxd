# Arrays of byte strings as kernels read them. String i is at address[i * step] and has
# size[i * step] bytes, or -1 for null.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from wirescan.core.rows cimport Block

cdef struct Strings:
    const uint64_t* address
    const int32_t* size
    Py_ssize_t step                 # 1, or 0 where one string is repeated

cdef class ByteStrings:
    cdef Strings strings            # valid while this object is alive
    cdef Py_ssize_t count
    cdef Block addresses, sizes     # the memory of `strings`
    cdef list owners                # keeps the bytes alive
    cdef tuple counts               # (nulls, total, longest), or None before the first use
    cdef int allocate(self, Py_ssize_t count, Py_ssize_t slots) except -1
    cdef tuple count_sizes(self)
    cdef int repeat(self, value, count) except -1
    cdef int put(self, Py_ssize_t i, value) except -1
    cdef int fill_list(self, list values) except -1
    cdef int fill_place(self, table, name) except -1
    # The next three fill `count` strings. `at` is the number of the first of them in this array,
    # and `skip` is its bit in the validity bitmap.
    cdef int fill_offsets(self, Py_ssize_t at, Py_ssize_t count, offsets, data, validity,
                          Py_ssize_t skip) except -1
    cdef int fill_width(self, Py_ssize_t at, Py_ssize_t count, Py_ssize_t width, data, validity,
                        Py_ssize_t skip, bint stripped) except -1
    cdef int fill_views(self, Py_ssize_t at, Py_ssize_t count, views, data_buffers, validity,
                        Py_ssize_t skip) except -1
    cdef const uint8_t* read_bitmap(self, validity, Py_ssize_t bits) except? NULL
    cdef int fill_arrow(self, chunks) except -1
