# The C struct of the rows of the records of the metadata log.
from wirescan.core cimport Head, int16_t, int32_t, uint16_t, uint32_t

cdef struct MetadataRecord:
    Head     head
    uint32_t message_at
    int32_t  message_size
    int16_t  frame_version
    int16_t  type               # -1: not known
    int16_t  version
    uint16_t reserved
