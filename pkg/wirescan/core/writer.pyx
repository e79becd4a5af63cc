# cython: boundscheck=False, wraparound=False
"""The driver of the writers: two passes over rows, without the GIL.

Writers that compress do not know the sizes before. They use `reserve_bytes`.
"""
import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from wirescan.core.grow_memory cimport use_huge_pages
from wirescan.core.rows cimport Block, RowBlock, Rows, grow_rows


cdef tuple write_rows(const void* columns, Py_ssize_t count, RunOutput run, problems,
                      bint into_block=False):
    """Return (bytes, offsets): rows without gaps; offsets are int64.

    Row i is between offsets i and i + 1. `run` calls `write_each`.
    problems: the text of each problem that a row can have, by its number.
    into_block: return a read-only memoryview instead of bytes. Its memory is kept for the next
        call.

    Raises ValueError for a row with a problem, MemoryError.
    """
    cdef RowOutput output
    cdef Block block
    cdef Py_ssize_t refused, size
    offset_array = np.empty(count + 1, np.int64)
    cdef int64_t[::1] offsets = offset_array
    output = RowOutput(columns, count, &offsets[0], NULL, 0)
    with nogil:
        refused = run(&output)
    if refused >= 0:
        raise ValueError(f"row {refused}: {problems[output.problem]}")
    size = <Py_ssize_t>offsets[count]
    # put_varint may write one more byte, a zero. A bytes object ends with it in any case.
    if into_block:
        block = Block(size + 1)
        out = memoryview(block)[:size].toreadonly()
        output.to = <uint8_t*>block.at
    else:
        try:
            out = PyBytes_FromStringAndSize(NULL, size)
        except MemoryError:
            raise MemoryError(f"no memory for {size} bytes") from None
        output.to = <uint8_t*>PyBytes_AS_STRING(out)
        use_huge_pages(output.to, <size_t>size)
    with nogil:
        run(&output)
    return out, offset_array


cdef uint8_t* reserve_bytes(RowBlock out, size_t size) except NULL:
    """Make `size` more bytes fit, and return where they go. Raises MemoryError.

    out: rows of one byte. The caller counts the bytes in `out.rows.count`.
    """
    cdef Rows* rows = &out.rows
    if rows.capacity - rows.count < size:
        grow_rows(rows, max(2 * rows.capacity, rows.count + size))
    if rows.capacity - rows.count < size:
        raise MemoryError(f"no memory for {rows.count + size} bytes")
    return <uint8_t*>rows.at + rows.count
