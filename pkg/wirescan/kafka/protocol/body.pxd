# The programs that drive the kernel of body.pyx. compile.py makes them.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

# What a step of a program reads.
cpdef enum Read:
    NUMBER = 0                  # `width` bytes
    SIZED = 1                   # a length in `width` bytes (a varint if compact), then these bytes
    FIXED = 2                   # `width` bytes, stored as a place
    NUMBERS = 3                 # a count, then `width` bytes for each number
    STRUCTS = 4                 # a count, then for each struct the steps from `first` to `last`
    TAGS = 5                    # tagged fields; the steps from `first` to `last` are the known ones
    TAG = 6                     # the field with the tag `width`: the steps from `first` to `last`
    OPTIONAL = 7                # a byte; unless it is negative, the steps from `first` to `last`

cdef struct Step:
    int32_t  read
    int32_t  width
    int32_t  at                 # position in the row of the number or of the place
    int32_t  count              # position in the row of the number of structs
    uint8_t  is_nullable
    uint8_t  is_compact
    uint8_t  unused[2]
    int32_t  first
    int32_t  last

# How to read one struct. While a struct is read, its Program is the parent of its row.
cdef struct Program:
    uint64_t steps              # address of an array of Step
    uint64_t template           # address of a row with the defaults of the columns
    int32_t  first              # -1: this version has no such struct
    int32_t  last
    uint32_t skip               # bytes before the first field
    uint32_t stride             # bytes of a row
    uint8_t  version
    uint8_t  is_whole           # bytes after the last field are a fault
    uint8_t  unused[6]
