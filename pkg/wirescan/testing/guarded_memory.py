"""Bytes next to memory pages that the process may not read.

A kernel that reads one byte too many crashes. This needs no sanitizer and no special build. It
needs `mprotect` of POSIX.
"""

from __future__ import annotations

import ctypes
import mmap

PROT_NONE = 0  # of mprotect


class GuardedMemory:
    """Memory for at least `size` bytes between two pages that cannot be read.

    Raises OSError if the pages cannot be protected.
    """

    def __init__(self, size: int):
        library = ctypes.CDLL(None, use_errno=True)
        library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        page = mmap.PAGESIZE
        self.size = -(-max(size, 1) // page) * page
        self.map = mmap.mmap(-1, self.size + 2 * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for edge in (base, base + page + self.size):
            if library.mprotect(edge, page, PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def place_at_end(self, data: bytes) -> memoryview:
        """Return `data` as a memoryview. Its last byte is the last readable byte."""
        stop = mmap.PAGESIZE + self.size
        self.map[stop - len(data) : stop] = data
        return memoryview(self.map)[stop - len(data) : stop]

    def place_at_beginning(self, data: bytes) -> memoryview:
        """Return `data` as a memoryview. Its first byte is the first readable byte."""
        self.map[mmap.PAGESIZE : mmap.PAGESIZE + len(data)] = data
        return memoryview(self.map)[mmap.PAGESIZE : mmap.PAGESIZE + len(data)]
