# Columns that a scan writes, from the bytes or from blocks of rows.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from wirescan.core.loop cimport ColumnTargets, MOST_TARGETS, Readable, RowSink
from wirescan.core.rows cimport Block, Rows

cdef enum ColumnLayout:
    NUMBERS                     # the bytes of a column of numbers
    VIEWS                       # a place as a view of 16 bytes
    GATHERED                    # a place as an offset, and its bytes
    KEPT_ROWS                   # whole rows that have a list, and their numbers
    SUMMED                      # the sum of a column

# Why columns are incomplete.
cdef enum Failure:
    COMPLETE
    BAD_ROW                     # a row has a fault
    OUTSIDE                     # a row points outside its buffer
    TOO_MANY_ROWS
    TOO_MANY_BYTES              # in a column with 32-bit offsets
    TOO_LONG                    # a byte string does not fit a view
    NO_MEMORY

# A byte string in memory. It has 16 bytes and begins with the size, as a view does.
cdef struct ByteString:
    int32_t size                # -1 for a null
    uint32_t unused
    uint64_t address            # of 64 bits on every processor

# One column of the output. `values` and `valid` are parts of the set's memory.
cdef struct OutputColumn:
    ColumnLayout layout
    size_t at                   # byte of the column in a row; of a place, its `<name>_at`
    size_t size_at              # of a place: the byte of its `<name>_size`
    size_t width                # bytes of a number, a view or an offset
    bint is_signed              # of a column that counts: a number below 0 counts nothing
    char* values
    uint8_t* valid              # of a place: a bitmap of the rows that are not null
    size_t nulls
    char* strings               # of gathered bytes: the ByteStrings of a block
    size_t strings_bytes
    char* data                  # gathered bytes, or kept rows
    size_t data_bytes           # bytes allocated
    char* numbers               # int64: the number of each kept row
    size_t numbers_bytes
    size_t used                 # bytes gathered, number of kept rows, or the sum
    size_t fits                 # number of kept rows that fit

# Where the views of the byte strings in one buffer point.
cdef struct Window:
    int64_t low                 # first byte of the buffer that a view can point to
    int32_t number              # number of its first window in the Arrow array

cdef struct ColumnSet:
    OutputColumn* columns
    size_t column_count
    char* memory                # of all columns
    size_t bytes                # its size
    size_t stride               # bytes in a row
    size_t count                # rows whose columns are complete
    size_t capacity
    size_t max_rows
    const Readable* buffers
    size_t buffer_count
    size_t buffer_bytes         # bytes of the buffers that rows may point to
    const Window* windows
    int target_columns[MOST_TARGETS]    # that of each of the ColumnTargets, or NO_COLUMN
    size_t target_count
    ColumnTargets targets       # of frames that `count` excludes until their columns are complete
    size_t target_capacity      # frames that fit there; 0 before `point_targets`
    size_t target_bytes         # of the spans whose frames are there, about
    bint gathers                # whether a column has gathered bytes
    int kept_column             # the column of whole rows that a ReadColumns keeps, or NO_COLUMN
    int parent_column           # that of the Head's parents, or NO_COLUMN
    bint has_bad_rows           # the places of bad rows are null; otherwise a bad row is a failure
    Failure failure
    size_t failed_row           # the row that cannot be written
    size_t failed_column

# A WriteRows: write all rows and remove them from `rows`. Return False after a failure.
cdef bint write_rows(void* sink, Rows* rows) noexcept nogil

cdef class ColumnWriter(RowSink):
    cdef ColumnSet set
    cdef readonly tuple buffers
    cdef readonly list windows
    cdef dict slots             # name of a column -> its number in `set`
    cdef const uint64_t[:, ::1] readable    # the memory of `set.buffers`
    cdef object window_array                # the memory of `set.windows`
    cdef Block memory                       # the memory of all columns, once one of them is taken
    cdef take_values(self, char* at, size_t size)
    cdef int add(self, name, ColumnLayout layout, size_t width, at, size_at) except -1
    cdef int check_failure(self) except -1
    cdef int check_count(self, name) except -1
