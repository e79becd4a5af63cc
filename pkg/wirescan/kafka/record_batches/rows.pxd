# The C structs of the rows of record batches, and the constants of the format.
# Other kernels cimport them, and users may too.
from wirescan.core cimport Head, int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    LOG_OVERHEAD = 12           # bytes of the offset and the length; the length excludes them
    MAGIC_AT = 16               # position of the magic, the same in every magic
    SMALLEST_LENGTH = 14        # the smallest length that Kafka accepts
    HEADER_V0 = 18              # bytes of a magic 0 message up to the length of its key
    HEADER_V1 = 26              # the same for magic 1
    HEADER_V2 = 61              # bytes of a magic 2 batch up to its first record
    SMALLEST_RECORD = 6         # attributes, two deltas, two lengths, a count: a byte each
    CODEC = 0x07                # bits of the attributes
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    LAST_LEGACY_CODEC = 3       # lz4; zstd needs magic 2
    LAST_CODEC = 4              # zstd

cdef struct Batch:
    Head     head
    int64_t  base_offset
    int64_t  last_offset
    int64_t  base_timestamp
    int64_t  max_timestamp
    int64_t  producer_id
    int32_t  leader_epoch
    int32_t  base_sequence
    int32_t  record_count       # -1 for a wrapper, which has no count on the wire
    uint32_t crc
    int16_t  producer_epoch
    int16_t  attributes
    uint8_t  magic
    uint8_t  codec
    uint8_t  is_transactional
    uint8_t  is_control

cdef struct Record:
    Head     head
    int64_t  offset
    int64_t  timestamp
    uint32_t key_at
    uint32_t value_at
    uint32_t headers_at
    int32_t  key_size
    int32_t  value_size
    int32_t  header_count

cdef struct Header:
    Head     head
    uint32_t key_at
    uint32_t value_at
    int32_t  key_size
    int32_t  value_size
