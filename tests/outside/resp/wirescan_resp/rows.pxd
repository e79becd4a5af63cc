# The C structs of the rows. The numpy dtypes in scan.pyx and values.pyx come from them.
from wirescan.core cimport Head, int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef enum:
    SIMPLE_STRING = 1           # the kinds of values: `Kind` in constants.py
    ERROR = 2
    INTEGER = 3
    BULK_STRING = 4
    ARRAY = 5

cdef struct Frame:
    Head     head               # every row begins with it
    int64_t  integer
    uint32_t value_at           # a pair of these names is a place: table.bytes(i, "value")
    int32_t  value_size
    uint32_t name_at
    int32_t  name_size
    int32_t  count              # elements of an array
    uint32_t value_count        # values in the frame: the outermost one and all inside it

cdef struct Value:
    Head     head
    int64_t  integer
    uint32_t value_at
    int32_t  value_size
    int32_t  enclosing          # row of the array around it, or -1
    int32_t  count
    int32_t  index              # of the element in its array
    uint16_t depth              # 1 for an outermost value
    uint8_t  element_kind       # of an array: the kind of its first element, or 0
    uint8_t  reserved           # fills the last word: a struct must have no padding
