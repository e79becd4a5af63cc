# cython: boundscheck=False, wraparound=False
"""Byte strings out of rows, in the layouts of Arrow: gathered one after another, or as views into the buffers.

    gathered   offsets (i4 or i8)*, and the bytes
    view       size i4 | up to 12 bytes in place, or their first four, the number of a buffer i4, the offset in it i4

Source: Apache Arrow columnar format 1.4, "Variable-size Binary Layout" and "Variable-size Binary View Layout".
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset
from wirescan.core.rows cimport Block
from wirescan.core.strings cimport ByteStrings
from wirescan.core.writer cimport copied

cdef enum:
    INLINE = 12                 # bytes that a view holds itself
WINDOW = 1 << 30                # offsets in a view are 31 bits: larger buffers are seen through windows


cdef class Places(ByteStrings):
    """Places(table, name): where the byte string `name` of each row lies, as `ByteStrings`.

    Raises ValueError for a row that points outside its buffer.
    """
    cdef object buffers
    cdef const uint16_t[:] buffer

    def __init__(self, table, name):
        super().__init__((table, name))
        self.buffers, self.buffer = table.buffers, table.rows["buffer"]

    def validity(self):
        """Bitmap of the rows that are not null, least bit first; None where none is null."""
        if self.nulls == 0:
            return None
        return np.packbits(np.frombuffer(self.sizes, np.int32) >= 0, bitorder="little")

    def gathered(self, large):
        """(offsets, bytes): copies; offsets are int64 if `large`, else int32."""
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
                    copied(to, <const uint8_t*>address[i], <size_t>size[i])
                    to += size[i]
        return offsets, data

    def views(self):
        """(views, windows): 16 bytes a row, and the parts of the buffers that they point into, as memoryviews.

        Only the range that the rows touch is among the windows, so that a serialised part holds no more.
        Raises ValueError for a byte string of 1 GiB or more.
        """
        if self.longest >= WINDOW:
            raise ValueError(f"a byte string of {self.longest} bytes is too long for a view; gather it instead")
        cdef Py_ssize_t i, n = self.count, count = len(self.held)
        lows, highs = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        cdef int64_t[::1] low = lows, high = highs
        cdef const uint64_t[::1] bases = np.array([held.ctypes.data for held in self.held], np.uint64)
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
        numbers, windows = np.zeros(count, np.int32), []
        for i in range(count):
            numbers[i] = len(windows)
            for first in range(lows[i], highs[i], WINDOW):
                windows.append(self.buffers[i][first:min(first + 2 * WINDOW - 1, highs[i])])
        cdef Block out = Block(16 * n)
        cdef const int32_t[::1] number = numbers
        cdef uint8_t* view = <uint8_t*>out.at
        cdef const uint8_t* p
        cdef int32_t words[4]
        cdef int64_t window = WINDOW
        with nogil:
            for i in range(n):
                memset(words, 0, 16)
                if size[i] >= 0:
                    words[0], p = size[i], <const uint8_t*>address[i]
                    if size[i] <= INLINE:
                        memcpy(&words[1], p, <size_t>size[i])
                    else:
                        first = <int64_t>(address[i] - bases[buffer[i]]) - low[buffer[i]]
                        memcpy(&words[1], p, 4)
                        words[2] = number[buffer[i]] + <int32_t>(first // window)
                        words[3] = <int32_t>(first % window)
                memcpy(view + 16 * i, words, 16)
        return out, windows
