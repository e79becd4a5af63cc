# The C structs of NATS' rows, and the numbers of its operations. scan.pyx takes the numpy dtypes
# from the structs.
from wirescan.core cimport Head, int32_t, uint16_t, uint32_t

cdef enum:
    INFO = 1
    CONNECT = 2
    PUB = 3
    HPUB = 4
    SUB = 5
    UNSUB = 6
    MSG = 7
    HMSG = 8
    PING = 9
    PONG = 10
    ACCEPTED = 11               # +OK
    ERR = 12

cdef enum:
    MAX_DIGITS = 9              # digits in a size; no server accepts more

cdef struct Message:
    Head     head
    uint32_t subject_at
    int32_t  subject_size
    uint32_t sid_at
    int32_t  sid_size
    uint32_t reply_at
    int32_t  reply_size
    uint32_t queue_at
    int32_t  queue_size
    uint32_t headers_at
    int32_t  headers_size
    uint32_t payload_at
    int32_t  payload_size
    uint32_t count              # UNSUB: the maximum number of messages
    uint16_t status             # of the header block, or 0
    uint16_t header_count

cdef struct Header:
    Head     head
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size
