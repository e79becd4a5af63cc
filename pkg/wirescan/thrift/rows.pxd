# The C structs of Thrift's rows, and Thrift's numbers. The dtypes in scan.pyx come from them.
from wirescan.core cimport Head, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

# Kinds of frames: see `Kind` in constants.py.
cdef enum:
    HEADER = 1
    BIG_HEADER = 2
    DOUBLE_HEADER = 3
    FRAMED_BINARY = 4
    FRAMED_COMPACT = 5
    UNFRAMED_BINARY = 6
    UNFRAMED_COMPACT = 7
    HTTP = 8
    HTTP_CHUNKED = 9
    TTHEADER = 10

cdef enum:
    BINARY = 0                      # protocol ids
    JSON = 1
    COMPACT = 2
    HMAC = 2                        # the only transform with a byte of data in the header
    KEYVALUE = 1                    # info ids
    PKEYVALUE = 2
    CALL = 1                        # types of messages
    ONEWAY = 4
    LARGEST_LENGTH = 0x3fffffff     # bytes that a frame's 32-bit length may give
    FIXED = 10                      # bytes from the magic to the header

cdef struct Frame:
    Head     head
    uint32_t seq
    uint32_t info_count         # pairs
    uint32_t infos_at
    int32_t  infos_size
    uint32_t payload_at
    int32_t  payload_size
    uint16_t transform_0
    uint16_t transform_1
    uint16_t transform_2
    uint16_t transform_3
    uint16_t flags
    uint16_t header_words
    uint8_t  protocol_id
    uint8_t  transform_count
    uint8_t  padding
    uint8_t  mac_size

cdef struct Info:
    Head     head
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size

cdef struct Plain:
    Head     head
    uint32_t payload_at
    int32_t  payload_size

cdef struct Message:
    Head     head
    uint32_t method_at
    int32_t  method_size
    uint32_t service_at
    int32_t  service_size
    uint32_t arguments_at
    int32_t  arguments_size
    int32_t  seqid
    uint8_t  protocol
    uint8_t  version
    uint8_t  strict
    uint8_t  reserved

cdef struct Field:
    Head     head
    int64_t  integer
    double   real
    uint32_t value_at
    int32_t  value_size
    int32_t  enclosing          # row of the struct or container around it, or -1
    uint32_t count
    int32_t  id
    uint8_t  depth
    uint8_t  role
    uint8_t  key_type
    uint8_t  element_type
