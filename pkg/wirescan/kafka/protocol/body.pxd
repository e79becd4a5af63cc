# The programs that drive the kernel of body.pyx. compile.py makes them.
from wirescan.core cimport Head, int16_t, int32_t, uint8_t, uint32_t, uint64_t

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

cdef enum:
    DEPTHS = 3                  # of the structs that lead to a record set

cpdef enum:
    LARGEST_STRUCT = 256        # bytes in the row of such a struct

# The record set of a partition, in a message. Places count from the first byte of the message.
cdef struct RecordSet:
    Head     head
    uint32_t topic_at
    int32_t  topic_size
    uint32_t topic_id_at
    int32_t  topic_id_size
    uint32_t records_at
    int32_t  records_size
    int32_t  partition
    int16_t  api_key
    char     reserved[2]

# Where the record sets are in the messages of one API: in its body there are topics, and in these
# partitions. `programs` are their addresses at each depth, one for each version and one more for
# unknown versions. The others are positions in the rows.
cdef struct RecordSetPath:
    uint64_t programs[DEPTHS]
    int32_t  version_count      # of known versions, from 0 on
    int32_t  api_version        # in the row of a message
    int32_t  arrays[DEPTHS]     # place of the array that leads on; -1 at the last depth
    int32_t  topic              # place in the row of a topic
    int32_t  topic_id           # the same
    int32_t  partition          # in the row of a partition
    int32_t  records            # place in the row of a partition
    int16_t  api_key
