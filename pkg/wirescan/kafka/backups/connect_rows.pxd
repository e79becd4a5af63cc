# The C struct of a record of kafka.connect_backup_records. connect_scan.pyx takes the numpy dtype
# from it. Rows of headers are those of kbak_rows.pxd.
from wirescan.core cimport Head, int32_t, int64_t, uint32_t

cdef enum:
    SEGMENT_VERSION = 1         # the first byte of a segment
    FIXED_FIELDS = 12           # bytes of the offset and the timestamp type
    SMALLEST_RECORD = 24        # no timestamp, no key, no value, no headers
    SMALLEST_HEADER = 8         # its two sizes
    NO_TIME = -2                # timestamp type of a record of CreateTime without a timestamp
    NO_TYPE = -1
    LAST_TYPE = 1

cdef struct ConnectRecord:
    Head     head
    int64_t  timestamp
    int64_t  offset
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size
    uint32_t headers_at
    int32_t  header_count
    int32_t  timestamp_type
    uint32_t reserved
