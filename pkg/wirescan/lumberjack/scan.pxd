# The rows of Lumberjack.
from wirescan.core cimport Head, int32_t, uint16_t, uint32_t

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
