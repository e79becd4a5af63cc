# The C structs of the rows of requests and responses.
from wirescan.core cimport Head, int16_t, int32_t, uint32_t

cdef struct Request:
    Head     head
    int32_t  correlation_id
    uint32_t client_id_at
    int32_t  client_id_size
    int16_t  api_key
    int16_t  api_version

cdef struct Response:
    Head     head
    int32_t  correlation_id
    int32_t  request            # row in the table of requests, or -1
    int32_t  tag_count
    int16_t  api_key
    int16_t  api_version
