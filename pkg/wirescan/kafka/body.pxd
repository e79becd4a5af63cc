# The programs that the bodies of Kafka's messages are read by.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

# What a step of a program reads.
cpdef enum Read:
    NUMBER = 0                  # `width` bytes
    SIZED = 1                   # a length in `width` bytes (0: a varint), and as many bytes
    FIXED = 2                   # `width` bytes, as a place
    NUMBERS = 3                 # a count, and as many times `width` bytes
    STRUCTS = 4                 # a count, and as many times the steps from `first` to `last`
    TAGS = 5                    # tagged fields: those known are the steps from `first` to `last`
    TAG = 6                     # the field with the tag `width`: the steps from `first` to `last`

cdef struct Step:
    int32_t  read
    int32_t  width
    int32_t  at                 # where in the row it goes: the number, or the place
    int32_t  count              # ... and the number of structs
    uint8_t  is_nullable
    uint8_t  is_compact
    uint8_t  unused[2]
    int32_t  first
    int32_t  last

# How to read one struct: what is the parent of its row while it is opened.
cdef struct Program:
    uint64_t steps              # address of an array of Step
    uint64_t template           # ... of a row with the defaults of the columns
    int32_t  first              # -1: there is none for this version
    int32_t  last
    uint32_t skip               # bytes before the first field
    uint32_t stride             # bytes in a row
    uint8_t  version
    uint8_t  is_whole           # nothing may follow the last field
    uint8_t  unused[6]
