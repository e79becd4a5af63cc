# cython: boundscheck=False, wraparound=False
"""Byte strings of rows in the layouts of Arrow: copied into one buffer, or as views of the buffers.

    gather     offsets (i4 or i8)*, and the bytes
    view       size i4 | up to 12 bytes inline; or their first four bytes, the number of a buffer
               i4, the offset in that buffer i4

Source: Apache Arrow columnar format 1.4, "Variable-size Binary Layout" and "Variable-size Binary
View Layout".
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset
from wirescan.core.rows cimport Block
from wirescan.core.strings cimport ByteStrings
from wirescan.core.writer cimport copy_bytes

cdef enum:
    INLINE = 12                 # maximum bytes that a view holds inline
    VIEW_BYTES = 16
# Offsets in a view have 31 bits. So larger buffers are cut into windows.
WINDOW = 1 << 30


cdef class Places(ByteStrings):
    """The byte string `name` of each row of a table, as `ByteStrings`: Places(table, name).

    Raises ValueError for a row that points outside its buffer, and for a name that is no place.
    """
    cdef object buffers
    cdef const uint16_t[:] buffer

    def __init__(self, table, name):
        super().__init__((table, name))
        self.buffers = table.buffers
        self.buffer = table.rows["buffer"]

    def validity(self):
        """Return a bitmap of the rows that are not null, least bit first; None where none is null.

        The bitmap is a uint8 array.
        """
        if self.nulls == 0:
            return None
        return np.packbits(np.frombuffer(self.sizes, np.int32) >= 0, bitorder="little")

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

    def views(self):
        """Return (views, windows): 16 bytes for each row, and the memory that they point into.

        windows: memoryviews of parts of the buffers. They cover only the bytes that the rows use,
        so that serialising a slice of the rows does not write whole buffers. Raises ValueError for
        a byte string of 1 GiB or more.
        """
        if self.longest >= WINDOW:
            raise ValueError(
                f"a byte string of {self.longest} bytes is too long for a view; gather it instead")
        cdef Py_ssize_t i, n = self.count, count = len(self.owners)
        lows = np.full(count, np.iinfo(np.int64).max)
        highs = np.zeros(count, np.int64)
        cdef int64_t[::1] low = lows, high = highs
        cdef const uint64_t[::1] bases = np.array(
            [array.ctypes.data for array in self.owners], np.uint64)
        cdef const uint64_t* address = self.strings.address
        cdef const int32_t* size = self.strings.size
        cdef const uint16_t[:] buffer = self.buffer
        cdef int64_t first
        with nogil:
            for i in range(n):
                if size[i] > INLINE:
                    first = <int64_t>(address[i] - bases[buffer[i]])
                    low[buffer[i]] = min(low[buffer[i]], first)
                    high[buffer[i]] = max(high[buffer[i]], first + size[i])
        numbers = np.zeros(count, np.int32)
        windows = []
        for i in range(count):
            numbers[i] = len(windows)
            for first in range(lows[i], highs[i], WINDOW):
                windows.append(self.buffers[i][first:min(first + 2 * WINDOW - 1, highs[i])])
        cdef Block out = Block(VIEW_BYTES * n)
        cdef const int32_t[::1] number = numbers
        cdef uint8_t* view = <uint8_t*>out.at
        cdef const uint8_t* p
        cdef int32_t words[4]
        cdef int64_t window = WINDOW
        with nogil:
            for i in range(n):
                memset(words, 0, VIEW_BYTES)
                if size[i] >= 0:
                    words[0] = size[i]
                    p = <const uint8_t*>address[i]
                    if size[i] <= INLINE:
                        memcpy(&words[1], p, <size_t>size[i])
                    else:
                        first = <int64_t>(address[i] - bases[buffer[i]]) - low[buffer[i]]
                        memcpy(&words[1], p, 4)
                        words[2] = number[buffer[i]] + <int32_t>(first // window)
                        words[3] = <int32_t>(first % window)
                memcpy(view + VIEW_BYTES * i, words, VIEW_BYTES)
        return out, windows
