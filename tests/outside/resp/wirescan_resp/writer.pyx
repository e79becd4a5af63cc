# cython: boundscheck=False, wraparound=False
"""Write commands from columns. `encode.py` calls `write_commands`.

Two passes over the rows run without the GIL: the first adds up sizes, the second writes bytes.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from wirescan.core.pairs cimport size_of, string_at
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.text cimport count_digits, put_decimal
from wirescan.core.writer cimport copy_bytes

cdef enum:
    MOST_WORDS = 64

# The columns that are written.
cdef struct Commands:
    Py_ssize_t rows
    size_t columns
    Strings words[MOST_WORDS]


cdef inline uint64_t count_words(const Commands* commands, Py_ssize_t i) noexcept nogil:
    # A null is not written.
    cdef uint64_t count = 0
    cdef size_t column
    for column in range(commands.columns):
        count += size_of(&commands.words[column], i) >= 0
    return count


cdef int64_t measure(const Commands* commands) noexcept nogil:
    cdef int64_t total = 0
    cdef int64_t size
    cdef Py_ssize_t i
    cdef size_t column
    for i in range(commands.rows):
        total += 3 + <int64_t>count_digits(count_words(commands, i))
        for column in range(commands.columns):
            size = size_of(&commands.words[column], i)
            if size >= 0:
                total += 5 + <int64_t>count_digits(<uint64_t>size) + size
    return total


cdef inline uint8_t* put_line(uint8_t* to, uint8_t type, uint64_t number) noexcept nogil:
    to[0] = type
    to = put_decimal(to + 1, number)
    to[0] = c"\r"
    to[1] = c"\n"
    return to + 2


cdef void write(const Commands* commands, uint8_t* to) noexcept nogil:
    cdef int64_t size
    cdef Py_ssize_t i
    cdef size_t column
    for i in range(commands.rows):
        to = put_line(to, c"*", count_words(commands, i))
        for column in range(commands.columns):
            size = size_of(&commands.words[column], i)
            if size >= 0:
                to = put_line(to, c"$", <uint64_t>size)
                copy_bytes(to, string_at(&commands.words[column], i), <size_t>size)
                to[size] = c"\r"
                to[size + 1] = c"\n"
                to += size + 2


def write_commands(list columns not None):
    """Return one command for each row of some columns, as bytes without gaps.

    columns: 1 to 64 `ByteStrings` of one length. Raises ValueError for other columns.
    """
    cdef Commands commands
    cdef ByteStrings column
    cdef uint8_t* to
    cdef int64_t total
    if not 1 <= len(columns) <= MOST_WORDS:
        raise ValueError(f"a command has 1 to {MOST_WORDS} columns, not {len(columns)}")
    commands.rows = len(columns[0])
    commands.columns = 0
    for column in columns:
        if len(column) != commands.rows:
            raise ValueError("columns of unequal length")
        commands.words[commands.columns] = column.strings
        commands.columns += 1
    with nogil:
        total = measure(&commands)
    out = PyBytes_FromStringAndSize(NULL, total)
    to = <uint8_t*>PyBytes_AS_STRING(out)
    with nogil:
        write(&commands, to)
    return out
