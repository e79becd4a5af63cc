# Byte strings as kernels see them: string i lies at address[i * step], with size[i * step] bytes, or -1 for a null.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from wirescan.core.rows cimport Block

cdef struct Strings:
    const uint64_t* address
    const int32_t* size
    Py_ssize_t step                 # 1, or 0 where one stands for all

cdef class ByteStrings:
    cdef Strings strings            # valid as long as this object is
    cdef Py_ssize_t count
    cdef Block addresses, sizes     # what `strings` points to
    cdef list held                  # what keeps the bytes alive
    cdef tuple counts               # nulls, total, longest; None until somebody asks
    cdef int room(self, Py_ssize_t count, Py_ssize_t slots) except -1
    cdef tuple tally(self)
    cdef int repeat(self, value, count) except -1
    cdef int put(self, Py_ssize_t i, value) except -1
    cdef int of_list(self, list values) except -1
    cdef int of_place(self, table, name) except -1
    cdef int of_offsets(self, Py_ssize_t at, Py_ssize_t count, offsets, data, validity, Py_ssize_t skip) except -1
    cdef int of_width(self, Py_ssize_t at, Py_ssize_t count, Py_ssize_t width, data, validity, Py_ssize_t skip,
                      bint stripped) except -1
    cdef int of_views(self, Py_ssize_t at, Py_ssize_t count, views, parts, validity, Py_ssize_t skip) except -1
    cdef const uint8_t* bitmap(self, validity, Py_ssize_t bits) except? NULL
    cdef int of_arrow(self, chunks) except -1
