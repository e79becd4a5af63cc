# The C structs of Liftbridge's rows. scan.pyx takes the numpy dtypes from them.
from wirescan.core cimport (
    Head, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)

cdef struct Envelope:
    Head     head
    uint32_t crc                # 0 if the envelope has no checksum
    uint8_t  version
    uint8_t  header_size
    uint8_t  flags
    uint8_t  reserved

cdef struct Message:
    Head     head
    int64_t  offset
    int64_t  timestamp
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size
    uint32_t stream_at
    int32_t  stream_size
    uint32_t subject_at
    int32_t  subject_size
    uint32_t reply_subject_at
    int32_t  reply_subject_size
    uint32_t ack_inbox_at
    int32_t  ack_inbox_size
    uint32_t correlation_id_at
    int32_t  correlation_id_size
    uint32_t headers_at         # of the tag of the first header
    uint32_t header_count
    int32_t  partition
    int32_t  ack_policy

cdef struct Ack:
    Head     head
    int64_t  offset
    int64_t  reception_timestamp
    int64_t  commit_timestamp
    uint32_t stream_at
    int32_t  stream_size
    uint32_t partition_subject_at
    int32_t  partition_subject_size
    uint32_t msg_subject_at
    int32_t  msg_subject_size
    uint32_t ack_inbox_at
    int32_t  ack_inbox_size
    uint32_t correlation_id_at
    int32_t  correlation_id_size
    int32_t  ack_policy
    int32_t  ack_error

# Messages between servers. Each kind uses some of the columns.
cdef struct Internal:
    Head     head
    uint64_t leader_epoch
    int64_t  offset
    int64_t  high_watermark
    int64_t  end_offset
    uint64_t epoch
    uint32_t id_at
    int32_t  id_size
    uint32_t host_at
    int32_t  host_size
    uint32_t stream_at
    int32_t  stream_size
    uint32_t error_at
    int32_t  error_size
    uint32_t operation_at
    int32_t  operation_size
    uint32_t replica_at
    int32_t  replica_size
    uint32_t leader_at
    int32_t  leader_size
    uint32_t group_at
    int32_t  group_size
    uint32_t consumer_at
    int32_t  consumer_size
    uint32_t coordinator_at
    int32_t  coordinator_size
    uint32_t entries_at
    int32_t  entries_size
    int32_t  partition
    int32_t  port
    uint32_t error_code
    int16_t  op
    uint8_t  exists
    uint8_t  is_leader

cdef struct Entry:
    Head     head
    int64_t  offset
    int64_t  timestamp
    uint64_t leader_epoch
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size
    uint32_t headers_at
    uint32_t crc
    uint16_t header_count
    int8_t   magic
    int8_t   attributes
    uint32_t reserved

cdef struct Header:
    Head     head
    uint32_t key_at
    int32_t  key_size
    uint32_t value_at
    int32_t  value_size
