# cython: boundscheck=False, wraparound=False
"""Byte strings out of rows, in the layouts of Arrow: gathered one after another, or as views into the buffers.

    gathered   offsets (i4 or i8)*, and the bytes
    view       size i4 | up to 12 bytes in place, or their first four, the number of a buffer i4, the offset in it i4

Source: Apache Arrow columnar format 1.4, "Variable-size Binary Layout" and "Variable-size Binary View Layout".
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from wirescan.core.rows cimport Block

cdef enum:
    INLINE = 12                 # bytes that a view holds itself
WINDOW = 1 << 30                # offsets in a view are 31 bits: larger buffers are seen through windows


cdef inline void copied(uint8_t* to, const uint8_t* at, size_t size) noexcept nogil:
    # memcpy, which costs more to call than a key to copy: ends that overlap, up to twice 64 bytes.
    if size > 128:
        memcpy(to, at, size)
    elif size >= 64:
        memcpy(to, at, 64)
        memcpy(to + size - 64, at + size - 64, 64)
    elif size >= 32:
        memcpy(to, at, 32)
        memcpy(to + size - 32, at + size - 32, 32)
    elif size >= 16:
        memcpy(to, at, 16)
        memcpy(to + size - 16, at + size - 16, 16)
    elif size >= 8:
        memcpy(to, at, 8)
        memcpy(to + size - 8, at + size - 8, 8)
    else:
        while size:
            size -= 1
            to[size] = at[size]


cdef class Places:
    """Places(table, name): where the byte string `name` of each row lies, checked against the buffers once.

    nulls: how many there are (null on the wire, or in a bad row). total: bytes in all others. longest: of one.
    Raises ValueError for a row that points outside its buffer.
    """
    cdef readonly int64_t nulls, total, longest
    cdef object buffers, held
    cdef const uint64_t[::1] bases
    cdef const uint16_t[:] buffer
    cdef uint64_t[::1] address
    cdef int32_t[::1] size              # -1 for a null
    cdef Py_ssize_t n

    def __init__(self, table, name):
        rows = table.rows
        self.buffers = table.buffers
        self.held = [np.frombuffer(b, np.uint8) for b in table.buffers]
        self.bases = np.array([b.ctypes.data for b in self.held], np.uint64)
        self.buffer, self.n = rows["buffer"], len(rows)
        self.address, self.size = np.empty(self.n, np.uint64), np.empty(self.n, np.int32)
        cdef const uint64_t[::1] bases = self.bases
        cdef const int64_t[::1] ends = np.array([len(b) for b in self.held], np.int64)
        cdef const int64_t[:] start = rows["start"]
        cdef const uint32_t[:] at = rows[name + "_at"]
        cdef const int32_t[:] size = rows[name + "_size"]
        cdef const uint16_t[:] buffer = self.buffer
        cdef const uint8_t[:] fault = rows["fault"]
        cdef uint64_t[::1] addresses = self.address
        cdef int32_t[::1] sizes = self.size
        cdef Py_ssize_t i, n = self.n
        cdef int64_t nulls = 0, total = 0, longest = 0, buffers = len(self.held)
        cdef bint good = True
        with nogil:
            for i in range(n):
                if size[i] < 0 or fault[i] != 0:
                    addresses[i], sizes[i] = 0, -1
                    nulls += 1
                    continue
                # Nothing is added to what may be forged: it could wrap.
                if buffer[i] >= buffers or start[i] < 0 or start[i] > ends[buffer[i]] - size[i] - at[i]:
                    good = False
                    break
                addresses[i], sizes[i] = bases[buffer[i]] + <uint64_t>start[i] + at[i], size[i]
                total += size[i]
                longest = max(longest, <int64_t>size[i])
        if not good:
            raise ValueError(f"row {i} points outside its buffer")
        self.nulls, self.total, self.longest = nulls, total, longest

    def validity(self):
        """Bitmap of the rows that are not null, least bit first; None where none is null."""
        if self.nulls == 0:
            return None
        return np.packbits(np.asarray(self.size) >= 0, bitorder="little")

    def gathered(self, large):
        """(offsets, bytes): copies; offsets are int64 if `large`, else int32."""
        offsets = np.empty(self.n + 1, np.int64 if large else np.int32)
        cdef Block data = Block(self.total)
        cdef int64_t[::1] wide
        cdef int32_t[::1] narrow
        cdef const uint64_t[::1] address = self.address
        cdef const int32_t[::1] size = self.size
        cdef uint8_t* to = <uint8_t*>data.at
        cdef int64_t at = 0
        cdef Py_ssize_t i, n = self.n
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
        cdef Py_ssize_t i, n = self.n, count = len(self.held)
        lows, highs = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        cdef int64_t[::1] low = lows, high = highs
        cdef const uint64_t[::1] bases = self.bases, address = self.address
        cdef const int32_t[::1] size = self.size
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
