# cython: boundscheck=False, wraparound=False
"""The driver of the writers: two passes over rows, without the GIL.

Writers that compress do not know the sizes before. They use `reserve_bytes`.
"""
import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from wirescan.core.rows cimport RowBlock, Rows, grow_rows


cdef tuple write_rows(const void* columns, Py_ssize_t count, RunOutput run, problems):
    """Return (bytes, offsets): rows without gaps; offsets are int64.

    Row i is between offsets i and i + 1. `run` calls `write_each`.
    problems: the text of each problem that a row can have, by its number.

    Raises ValueError for a row with a problem, MemoryError.
    """
    cdef RowOutput output
    cdef Py_ssize_t refused
    offset_array = np.empty(count + 1, np.int64)
    cdef int64_t[::1] offsets = offset_array
    output = RowOutput(columns, count, &offsets[0], NULL, 0)
    with nogil:
        refused = run(&output)
    if refused >= 0:
        raise ValueError(f"row {refused}: {problems[output.problem]}")
    # A bytes object ends with one more byte, which put_varint may overwrite with the same zero.
    try:
        out = PyBytes_FromStringAndSize(NULL, offsets[count])
    except MemoryError:
        raise MemoryError(f"no memory for {offsets[count]} bytes") from None
    output.to = <uint8_t*>PyBytes_AS_STRING(out)
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
