# The rows of Lumberjack, and its numbers.
from wirescan.core cimport Head, int32_t, uint16_t, uint32_t

cdef enum:
    WINDOW = 0x57
    ACK = 0x41
    DATA = 0x44
    JSON = 0x4a
    COMPRESSED = 0x43
    SHORT_HEADER = 6                # bytes of W, A, and of C before its payload
    LONG_HEADER = 10                # bytes of J before its document, and of D before its pairs
    SMALLEST_PAIR = 8
    LARGEST = 0x7fffffff            # a size above it is no place, and no other reader takes it
    MOST_PAIRS = 0x1ffffffe         # that fit in 4 GiB

cdef enum:
    LARGEST_FRAME = 0xffffffff      # as `size` of a row can say

cdef struct Frame:
    Head     head
    uint32_t sequence           # of D, J and A
    uint32_t count              # W: events in the window; D: pairs
    uint32_t length             # J and C: bytes that follow the length
    uint16_t version
    uint16_t depth              # how many C lie around it

cdef struct Event:
    Head     head
    uint32_t sequence
    uint32_t count              # pairs of a D
    int32_t  window             # number of the window in its table, or -1
    uint32_t json_at
    int32_t  json_size
    uint16_t version
    uint16_t depth

cdef struct Pair:
    Head     head
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size
