# The C structs of Lumberjack's rows, and the numbers of the protocol.
from wirescan.core cimport Head, int32_t, uint16_t, uint32_t

cdef enum:
    WINDOW = 0x57
    ACK = 0x41
    DATA = 0x44
    JSON = 0x4a
    COMPRESSED = 0x43
    SHORT_HEADER = 6                # bytes of W and A, and of C before its payload
    LONG_HEADER = 10                # bytes of J before its document, and of D before its pairs
    SMALLEST_PAIR = 8               # bytes of a pair with an empty key and an empty value
    LARGEST = 0x7fffffff            # a place holds no larger size, and no known reader takes one
    MAX_PAIRS = 0x1ffffffe         # pairs that fit in 4 GiB

cdef enum:
    LARGEST_FRAME = 0xffffffff      # the largest `size` of a row

cdef struct Frame:
    Head     head
    uint32_t sequence           # D, J and A: sequence number
    uint32_t count              # W: events in the window; D: pairs
    uint32_t length             # J and C: bytes after the length field
    uint16_t version
    uint16_t depth              # number of C frames that enclose this frame

cdef struct Event:
    Head     head
    uint32_t sequence
    uint32_t count              # D: pairs
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
