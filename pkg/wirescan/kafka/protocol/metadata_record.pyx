# cython: boundscheck=False, wraparound=False
"""Read the frames in the values of Kafka's metadata log, `__cluster_metadata`.

    value          frame version  type  version  message      (three unsigned varints)

The frame version is 1. The message has the fields of its type, in the flexible encoding. The value
of a control record is no such frame. protocol/metadata_log.py calls `open_values`, and body.pyx
reads the messages.

Source: Apache Kafka, KIP-631, "Record Format Versions", and its class AbstractApiMessageSerde.
"""
import numpy as np

from wirescan.core cimport (
    BAD_FIELD, BAD_VERSION, Context, Fault, NestedScan, OK, Reader, Rows, int16_t, int32_t,
    left, open_frames, scan_children, uint8_t, uint32_t, varint32)
from wirescan.core.loop import flatten

cdef enum:
    FRAME_VERSION = 1
    LARGEST = 0x7fff            # Kafka keeps the three numbers in 16 bits

cdef MetadataRecord _record
cdef MetadataRecord[::1] _records = <MetadataRecord[:1]>&_record
METADATA_RECORD = flatten(np.asarray(_records).dtype)


cdef inline Fault read_number(Reader* r, int16_t* out) noexcept nogil:
    cdef uint32_t value = 0
    cdef Fault fault = varint32(r, &value)
    if fault:
        return fault
    if value > LARGEST:
        return BAD_FIELD
    out[0] = <int16_t>value
    return OK


cdef inline Fault read_head(Reader* r, MetadataRecord* record) noexcept nogil:
    # Read the three numbers before the message.
    cdef Fault fault = read_number(r, &record.frame_version)
    if fault:
        return fault
    if record.frame_version != FRAME_VERSION:
        return BAD_VERSION
    fault = read_number(r, &record.type)
    if fault:
        return fault
    return read_number(r, &record.version)


cdef Fault read_value(Reader* r, void* row, const Context* context) noexcept nogil:
    cdef MetadataRecord* record = <MetadataRecord*>row
    cdef const uint8_t* is_control = <const uint8_t*>context.parent
    cdef const uint8_t* start = r.at
    cdef Fault fault = OK
    record.frame_version = record.type = record.version = -1
    record.message_size = -1
    if not is_control[0]:
        fault = read_head(r, record)
        if fault == OK:
            record.head.body = <uint32_t>(r.at - start)
            record.message_at = record.head.body
            record.message_size = <int32_t>left(r)
    r.at = r.end                # the value ends with the message
    return fault


cdef Fault run_values(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(MetadataRecord), read_value, NULL)


def open_values(is_control, buffers, spans, limits):
    """Return (rows of dtype METADATA_RECORD, bad, fault), one row for each value.

    See `core.loop.open_frames`. is_control: uint8 array, 1 for the value of a control record, with
    one element for each row that is opened. spans: where the values are, with at least one byte
    unless they have a fault.
    """
    counts = np.ones(len(spans), np.int32)
    return open_frames(is_control, buffers, spans, counts, METADATA_RECORD, run_values, NULL, NULL,
                       limits)
