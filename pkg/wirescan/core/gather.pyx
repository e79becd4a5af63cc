# cython: boundscheck=False, wraparound=False
"""Byte strings out of rows, in the layouts of Arrow: gathered one after another, or as views into the buffers.

    gathered   offsets (i4 or i8)*, and the bytes
    view       size i4 | up to 12 bytes in place, or their first four, the number of a buffer i4, the offset in it i4

Source: Apache Arrow columnar format 1.4, "Variable-size Binary Layout" and "Variable-size Binary View Layout".
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    INLINE = 12                 # bytes that a view holds itself
WINDOW = 1 << 30                # offsets in a view are 31 bits: larger buffers are seen through windows


cdef class Places:
    """Places(table, name): where the byte string `name` of each row lies, checked against the buffers once.

    nulls: how many there are (null on the wire, or in a bad row). total: bytes in all others.
    Raises ValueError for a row that points outside its buffer.
    """
    cdef readonly int64_t nulls, total, longest
    cdef object buffers, held
    cdef const uint64_t[::1] bases
    cdef const int64_t[::1] ends
    cdef const int64_t[:] start
    cdef const uint32_t[:] at
    cdef const int32_t[:] size
    cdef const uint16_t[:] buffer
    cdef const uint8_t[:] fault
    cdef Py_ssize_t n

    def __init__(self, table, name):
        rows = table.rows
        self.buffers = table.buffers
        self.held = [np.frombuffer(b, np.uint8) for b in table.buffers]
        self.bases = np.array([b.ctypes.data for b in self.held], np.uint64)
        self.ends = np.array([len(b) for b in self.held], np.int64)
        self.start, self.buffer, self.fault = rows["start"], rows["buffer"], rows["fault"]
        self.at, self.size = rows[name + "_at"], rows[name + "_size"]
        self.n = len(rows)
        cdef Py_ssize_t i
        cdef int64_t nulls = 0, total = 0, longest = 0, buffers = len(self.held)
        cdef bint good = True
        with nogil:
            for i in range(self.n):
                if self.absent(i):
                    nulls += 1
                    continue
                # Nothing is added to what may be forged: it could wrap.
                good = self.start[i] >= 0 and self.buffer[i] < buffers
                if not good or self.start[i] > self.ends[self.buffer[i]] - self.size[i] - self.at[i]:
                    good = False
                    break
                total += self.size[i]
                longest = max(longest, <int64_t>self.size[i])
        if not good:
            raise ValueError(f"row {i} points outside its buffer")
        self.nulls, self.total, self.longest = nulls, total, longest

    cdef inline bint absent(self, Py_ssize_t i) noexcept nogil:
        return self.size[i] < 0 or self.fault[i] != 0

    def validity(self):
        """Bitmap of the rows that are not null, least bit first; None where no row is."""
        if self.nulls == 0:
            return None
        return np.packbits((np.asarray(self.size) >= 0) & (np.asarray(self.fault) == 0), bitorder="little")

    def gathered(self, large):
        """(offsets, bytes): copies; offsets are int64 if `large`, else int32."""
        offsets = np.empty(self.n + 1, np.int64 if large else np.int32)
        data = np.empty(self.total, np.uint8)
        cdef int64_t[::1] wide
        cdef int32_t[::1] narrow
        cdef uint8_t[::1] out = data
        cdef uint8_t* to = &out[0] if self.total else NULL
        cdef int64_t at = 0
        cdef Py_ssize_t i
        if large:
            wide = offsets
        else:
            narrow = offsets
        cdef bint is_large = large
        with nogil:
            for i in range(self.n + 1):
                if is_large:
                    wide[i] = at
                else:
                    narrow[i] = <int32_t>at
                if i < self.n and not self.absent(i) and self.size[i]:
                    memcpy(to + at, <const uint8_t*>self.bases[self.buffer[i]] + self.start[i] + self.at[i],
                           <size_t>self.size[i])
                    at += self.size[i]
        return offsets, data

    def views(self):
        """(views, windows): 16 bytes a row, and the parts of the buffers that they point into, as memoryviews.

        Only the range that the rows touch is among the windows, so that a serialised part holds no more.
        Raises ValueError for a byte string of 1 GiB or more.
        """
        if self.longest >= WINDOW:
            raise ValueError(f"a byte string of {self.longest} bytes is too long for a view; gather it instead")
        cdef Py_ssize_t i, count = len(self.held)
        lows, highs = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        cdef int64_t[::1] low = lows, high = highs
        cdef int64_t first
        with nogil:
            for i in range(self.n):
                if not self.absent(i) and self.size[i] > INLINE:
                    first = self.start[i] + self.at[i]
                    low[self.buffer[i]] = min(low[self.buffer[i]], first)
                    high[self.buffer[i]] = max(high[self.buffer[i]], first + self.size[i])
        numbers, windows = np.zeros(count, np.int32), []
        for i in range(count):
            numbers[i] = len(windows)
            for first in range(lows[i], highs[i], WINDOW):
                windows.append(self.buffers[i][first:min(first + 2 * WINDOW - 1, highs[i])])
        out = np.empty(self.n * 16, np.uint8)
        cdef uint8_t[::1] out_view = out
        cdef const int32_t[::1] number = numbers
        cdef uint8_t* view = &out_view[0] if self.n else NULL
        cdef const uint8_t* p
        cdef int32_t words[4]
        cdef int64_t window = WINDOW
        with nogil:
            for i in range(self.n):
                memset(words, 0, 16)
                if not self.absent(i):
                    words[0] = self.size[i]
                    p = <const uint8_t*>self.bases[self.buffer[i]] + self.start[i] + self.at[i]
                    if self.size[i] <= INLINE:
                        memcpy(&words[1], p, <size_t>self.size[i])
                    else:
                        first = self.start[i] + self.at[i] - low[self.buffer[i]]
                        memcpy(&words[1], p, 4)
                        words[2] = number[self.buffer[i]] + <int32_t>(first // window)
                        words[3] = <int32_t>(first % window)
                memcpy(view + 16 * i, words, 16)
        return out, windows
