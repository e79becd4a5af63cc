# The C structs of the rows of KBAK segments. kbak_scan.pyx takes the numpy dtypes from them.
from wirescan.core cimport Head, int32_t, int64_t, uint32_t

cdef enum:
    HEADER_SIZE = 32
    FOOTER_SIZE = 8
    VERSION = 1
    LAST_CODEC = 2              # 0 none, 1 zstd, 2 lz4
    SMALLEST_RECORD = 30        # with its length: no key, no value, no headers
    SMALLEST_HEADER = 6         # with its lengths

cdef struct BackupSegment:
    Head     head
    int64_t  base_offset
    int64_t  last_offset
    int32_t  record_count
    uint32_t crc
    uint32_t version
    uint32_t codec

# Not in the order of kafka.records, so that the two dtypes differ.
cdef struct BackupRecord:
    Head     head
    int64_t  timestamp
    int64_t  offset
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size
    uint32_t headers_at
    int32_t  header_count

cdef struct BackupHeader:
    Head     head
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size
