# cython: boundscheck=False, wraparound=False
"""Scan the records of itadventurer's kafka-backup, and their headers.

connect_formats.py calls this.

    segment   version 1(1) { record }*
    record    offset(8) timestamp type(4) [timestamp(8)] key size(4) key  value size(4) value
              header count(4) { header }*
    header    key size(4) key  value size(4) value

All integers are big-endian. A negative size of a key or a value is null. The timestamp type is 0
for CreateTime and 1 for LogAppendTime. It is -1 for none and -2 for CreateTime without a timestamp,
and then there is no timestamp. The frames are the records: the first one of a segment begins with
the version. No offset has a first byte other than 0, so the version is no part of an offset.

A record has no length and no checksum, so nothing marks the next record after a damaged one.

Source: github.com/itadventurer/kafka-backup, RecordSerde.java and SegmentWriter.java.
"""
import numpy as np
from libc.string cimport memset

from wirescan.core cimport (
    Fault, NestedScan, Reader, Rows, SHORT, ScanState, int64_t, open_frames, scan_buffer,
    scan_children, scan_frames, scan_spans, uint8_t)
from wirescan.core.loop import flatten
from wirescan.kafka.backups.connect_kernels cimport (
    read_connect_header, read_connect_record, read_fields, skip_headers)
from wirescan.kafka.backups.connect_rows cimport ConnectRecord
from wirescan.kafka.backups.kbak_rows cimport BackupHeader


cdef Fault run_records(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(ConnectRecord), read_connect_record, NULL)


cdef Fault run_headers(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(BackupHeader), read_connect_header, NULL)


cdef ConnectRecord _record
cdef BackupHeader _header
CONNECT_RECORD = flatten(np.asarray(<ConnectRecord[:1]>&_record).dtype)
CONNECT_HEADER = flatten(np.asarray(<BackupHeader[:1]>&_header).dtype)


def scan_records(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype CONNECT_RECORD, bad, fault, position): `core.loop.scan_frames`.

    check: accepted for consistency and ignored: records have no checksum.
    """
    return scan_frames(buffer, CONNECT_RECORD, run_records, resync, more, limits, into, resume)


def scan_record_spans(buffers, spans, *, check, resync, limits):
    """Return (rows, bad, faults, positions) of spans of buffers: `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, CONNECT_RECORD, run_records, resync, limits)


def bytes_needed(held, at=0, owed=0):
    """Return (minimum size of the record at the start of `held`, at, owed).

    at: the position of a header of the record, from which on `owed` headers follow; 0 before the
    headers. So each header is read once, however small the chunks are.
    """
    cdef const uint8_t[::1] view = held
    cdef int64_t n = view.shape[0]
    cdef int64_t position = at
    cdef int64_t headers = owed
    cdef const uint8_t* p = &view[0] if n else NULL
    cdef Reader r = Reader(p, p + n)
    cdef ConnectRecord row
    cdef Fault fault
    memset(&row, 0, sizeof(ConnectRecord))
    if position:
        r.at = p + position
    else:
        fault = read_fields(&r, &row, &headers)
        if fault:
            return (row.head.size if fault == SHORT else n), 0, 0
    fault = skip_headers(&r, p, &row.head, &headers)
    return (row.head.size if fault == SHORT else n), r.at - p, headers


def open_headers(records, buffers, spans, counts, limits):
    """Return (rows of dtype CONNECT_HEADER, bad, fault) of records: `core.loop.open_frames`."""
    return open_frames(records, buffers, spans, counts, CONNECT_HEADER, run_headers, NULL, NULL,
                       limits)
