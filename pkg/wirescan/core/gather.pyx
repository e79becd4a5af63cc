# cython: boundscheck=False, wraparound=False
"""Byte strings of rows: compared with values in place, or gathered as offsets and bytes."""
import numpy as np

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp
from wirescan.core.rows cimport Block
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.writer cimport copy_bytes

# Where `Places.find` looks for a value in a byte string.
cpdef enum Side:
    AT_START = 0
    AT_END = 1
    ANYWHERE = 2


cdef inline int compare(const uint8_t* p, int64_t size, const uint8_t* value,
                        int64_t value_size) noexcept nogil:
    # Return a negative number, 0 or a positive number, as `memcmp`. A prefix is the smaller one.
    cdef int64_t shared = min(size, value_size)
    cdef int order = memcmp(p, value, <size_t>shared) if shared > 0 else 0
    return order if order else (size > value_size) - (size < value_size)


cdef inline bint is_one_of(const uint8_t* p, int64_t size, const Strings* values,
                           Py_ssize_t count) noexcept nogil:
    # Return whether a byte string is one of some values in ascending order.
    cdef Py_ssize_t low = 0, middle
    cdef int order
    while low < count:
        middle = low + (count - low) // 2
        order = compare(p, size, <const uint8_t*>values.address[middle], values.size[middle])
        if order == 0:
            return True
        if order < 0:
            count = middle
        else:
            low = middle + 1
    return False


cdef inline bint has_inside(const uint8_t* p, int64_t size, const uint8_t* value,
                            int64_t value_size) noexcept nogil:
    # Return whether a byte string contains a value, which is not empty.
    cdef const uint8_t* last = p + size - value_size
    while p <= last:
        p = <const uint8_t*>memchr(p, value[0], <size_t>(last - p + 1))
        if p is NULL:
            return False
        if memcmp(p, value, <size_t>value_size) == 0:
            return True
        p += 1
    return False


cdef class Places(ByteStrings):
    """The byte string `name` of each row of a table, as `ByteStrings`: Places(table, name).

    Raises ValueError for a row that points outside its buffer, and for a name that is no place.
    """
    def __init__(self, table, name):
        super().__init__((table, name))

    def compare(self, const uint8_t[::1] value not None):
        """Return the order of each byte string and a value: an int8 array of -1, 0 and 1.

        Bytes are unsigned, and a prefix is the smaller one. A null is smaller than all values.
        """
        orders = np.empty(self.count, np.int8)
        cdef int8_t[::1] order = orders
        cdef const uint64_t* address = self.strings.address
        cdef const int32_t* size = self.strings.size
        cdef int64_t value_size = value.shape[0]
        cdef const uint8_t* p = &value[0] if value_size else NULL
        cdef int result
        cdef Py_ssize_t i, n = self.count
        with nogil:
            for i in range(n):
                result = compare(<const uint8_t*>address[i], size[i], p, value_size)
                order[i] = (result > 0) - (result < 0)
        return orders

    def find_any(self, ByteStrings values not None):
        """Return a bool array: the rows whose byte string is one of some values.

        values: in ascending order, without nulls. A null is none of them.
        """
        found = np.zeros(self.count, np.uint8)
        cdef uint8_t[::1] out = found
        cdef Strings strings = values.strings
        cdef const uint64_t* address = self.strings.address
        cdef const int32_t* size = self.strings.size
        cdef Py_ssize_t i, n = self.count, count = len(values)
        with nogil:
            for i in range(n):
                if size[i] >= 0:
                    out[i] = is_one_of(<const uint8_t*>address[i], size[i], &strings, count)
        return found.view(bool)

    def find(self, const uint8_t[::1] value not None, Side side):
        """Return a bool array: the rows whose byte string has a value at a side, or anywhere.

        A null has no value, and every other byte string has the empty one.
        """
        found = np.zeros(self.count, np.uint8)
        cdef uint8_t[::1] out = found
        cdef const uint64_t* address = self.strings.address
        cdef const int32_t* size = self.strings.size
        cdef int64_t value_size = value.shape[0]
        cdef const uint8_t* p
        cdef Py_ssize_t i, n = self.count
        with nogil:
            for i in range(n):
                p = <const uint8_t*>address[i]
                if size[i] < value_size:
                    continue
                if value_size == 0:
                    out[i] = True
                elif side == ANYWHERE:
                    out[i] = has_inside(p, size[i], &value[0], value_size)
                else:
                    if side == AT_END:
                        p += size[i] - value_size
                    out[i] = memcmp(p, &value[0], <size_t>value_size) == 0
        return found.view(bool)

    def gather(self, *, large):
        """Return (offsets, bytes), where the bytes are copies in the order of the rows.

        large: offsets are an int64 array, else int32. There is one more offset than rows.
        """
        offsets = np.empty(self.count + 1, np.int64 if large else np.int32)
        cdef Block data = Block(self.total)
        cdef int64_t[::1] wide
        cdef int32_t[::1] narrow
        cdef const uint64_t* address = self.strings.address
        cdef const int32_t* size = self.strings.size
        cdef uint8_t* to = <uint8_t*>data.at
        cdef int64_t at = 0
        cdef Py_ssize_t i, n = self.count
        if large:
            wide = offsets
            wide[0] = 0
            with nogil:
                for i in range(n):
                    at += max(size[i], 0)
                    wide[i + 1] = at
        else:
            narrow = offsets
            narrow[0] = 0
            with nogil:
                for i in range(n):
                    at += max(size[i], 0)
                    narrow[i + 1] = <int32_t>at
        with nogil:
            for i in range(n):
                if size[i] > 0:
                    copy_bytes(to, <const uint8_t*>address[i], <size_t>size[i])
                    to += size[i]
        return offsets, data
