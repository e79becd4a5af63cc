# Stores into memory, the counterpart of reader.pxd. Nothing here checks bounds: the caller has
# allocated enough memory.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from wirescan.core.rows cimport RowBlock

cdef extern from "varint.h":
    size_t varint_size(uint64_t value) noexcept nogil
    # Returns the address after the varint. The byte there may be overwritten.
    uint8_t* put_varint(uint8_t* to, uint64_t value) noexcept nogil
    uint64_t zigzag(int64_t value) noexcept nogil


# Unaligned big-endian stores. Compilers turn each into at most one byte swap and one store.
cdef inline void store16(uint8_t* to, uint16_t value) noexcept nogil:
    to[0] = <uint8_t>(value >> 8)
    to[1] = <uint8_t>value


cdef inline void store32(uint8_t* to, uint32_t value) noexcept nogil:
    to[0] = <uint8_t>(value >> 24)
    to[1] = <uint8_t>(value >> 16)
    to[2] = <uint8_t>(value >> 8)
    to[3] = <uint8_t>value


cdef inline void store64(uint8_t* to, uint64_t value) noexcept nogil:
    store32(to, <uint32_t>(value >> 32))
    store32(to + 4, <uint32_t>value)


cdef inline void copy_bytes(uint8_t* to, const uint8_t* at, size_t size) noexcept nogil:
    # Copy bytes; up to 128 bytes without a call of memcpy, which costs more than a short copy.
    # Two copies of a fixed size cover the first and the last bytes. They may overlap.
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
    elif size >= 4:
        memcpy(to, at, 4)
        memcpy(to + size - 4, at + size - 4, 4)
    else:
        while size:
            size -= 1
            to[size] = at[size]


# Rows to write. The first pass measures each row, and the second pass writes it.
cdef struct RowOutput:
    const void* columns         # what the functions of the protocol package read
    Py_ssize_t count            # number of rows
    int64_t* offsets            # row i is written from offsets[i] to offsets[i + 1]
    uint8_t* to                 # the first byte of row 0; NULL in the first pass
    int problem                 # afterwards: what is wrong with a row, or 0

# Return the bytes of row `i`, or minus the number of a problem.
ctypedef int64_t (*MeasureRow)(const void* columns, Py_ssize_t i) noexcept nogil

# Write row `i`, of `size` bytes. The byte after them may be overwritten: see `put_varint`.
ctypedef void (*PutRow)(const void* columns, Py_ssize_t i, uint8_t* to, int64_t size) noexcept nogil

# Run one of the passes. Return the row that has a problem, or -1.
ctypedef Py_ssize_t (*RunOutput)(RowOutput* output) noexcept nogil


cdef inline Py_ssize_t write_each(RowOutput* output, MeasureRow measure, PutRow put) noexcept nogil:
    # Run one of the passes. A protocol package makes its `RunOutput` of this, so that the loop is
    # compiled around its functions.
    cdef const void* columns = output.columns
    cdef int64_t* offsets = output.offsets
    cdef uint8_t* to = output.to
    cdef Py_ssize_t i, count = output.count
    cdef int64_t size
    if to is not NULL:
        for i in range(count):
            put(columns, i, to + offsets[i], offsets[i + 1] - offsets[i])
        return -1
    offsets[0] = 0
    for i in range(count):
        size = measure(columns, i)
        if size < 0:
            output.problem = <int>-size
            return i
        offsets[i + 1] = offsets[i] + size
    return -1


# These are defined in writer.pyx.
cdef tuple write_rows(const void* columns, Py_ssize_t count, RunOutput run, problems,
                      bint into_block=*)
cdef uint8_t* reserve_bytes(RowBlock out, size_t size) except NULL
