# cython: boundscheck=False, wraparound=False
"""Write commands from columns. `encode.py` calls `write_commands`."""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from wirescan.core.pairs cimport size_of, string_at
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.text cimport count_digits, put_decimal
from wirescan.core.writer cimport RowOutput, copy_bytes, write_each, write_rows

cdef enum:
    MOST_WORDS = 64

# The columns that are written.
cdef struct Commands:
    size_t columns
    Strings words[MOST_WORDS]


cdef inline uint64_t count_words(const Commands* commands, Py_ssize_t i) noexcept nogil:
    # A null is not written.
    cdef uint64_t count = 0
    cdef size_t column
    for column in range(commands.columns):
        count += size_of(&commands.words[column], i) >= 0
    return count


cdef inline int64_t measure(const void* columns, Py_ssize_t i) noexcept nogil:
    cdef const Commands* commands = <const Commands*>columns
    cdef int64_t total = 3 + <int64_t>count_digits(count_words(commands, i))
    cdef int64_t size
    cdef size_t column
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


cdef inline void put(const void* columns, Py_ssize_t i, uint8_t* to, int64_t total) noexcept nogil:
    cdef const Commands* commands = <const Commands*>columns
    cdef int64_t size
    cdef size_t column
    to = put_line(to, c"*", count_words(commands, i))
    for column in range(commands.columns):
        size = size_of(&commands.words[column], i)
        if size >= 0:
            to = put_line(to, c"$", <uint64_t>size)
            copy_bytes(to, string_at(&commands.words[column], i), <size_t>size)
            to[size] = c"\r"
            to[size + 1] = c"\n"
            to += size + 2


cdef Py_ssize_t run(RowOutput* output) noexcept nogil:
    return write_each(output, measure, put)


def write_commands(list columns not None):
    """Return one command for each row of some columns, as bytes without gaps.

    columns: 1 to 64 `ByteStrings` of one length. Raises ValueError for other columns.
    """
    cdef Commands commands
    cdef ByteStrings column
    if not 1 <= len(columns) <= MOST_WORDS:
        raise ValueError(f"a command has 1 to {MOST_WORDS} columns, not {len(columns)}")
    rows = len(columns[0])
    commands.columns = 0
    for column in columns:
        if len(column) != rows:
            raise ValueError("columns of unequal length")
        commands.words[commands.columns] = column.strings
        commands.columns += 1
    return write_rows(&commands, rows, run, {})[0]
