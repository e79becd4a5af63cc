# cython: boundscheck=False, wraparound=False
"""Scan KBAK segments, their records, and the headers of the records. kbak_formats.py calls this.

    segment   "KBAK" version(1) codec(1) 0(2) count(8) first offset(8) last offset(8)
              payload crc(4) "BKAE"
    payload   records, compressed as a whole: codec 0 none, 1 zstd, 2 lz4
    record    length(4) timestamp(8) offset(8) key size(4) key  value size(4) value
              header count(2) { header }*
    header    key size(2) key  value size(4) value

All integers are little-endian. A size of -1 is null. The checksum is the CRC-32 of all bytes before
it. An lz4 payload is one block after its decompressed size, an u4. A segment has no length: it ends
with the first footer whose checksum is right.

Source: kafka-backup-core 0.25.2 (crates.io), src/segment/format.rs.
"""
import numpy as np

from wirescan.core cimport (
    Fault, NestedScan, Rows, ScanState, int64_t, open_frames, scan_buffer, scan_children,
    scan_frames, scan_spans, uint8_t, uint32_t)
from wirescan.core.checksum cimport extend_crc32
from wirescan.core.loop import flatten
from wirescan.kafka.backups.kbak_kernels cimport (
    begins_segment, find_footer, read_backup_header, read_backup_record, read_segment)
from wirescan.kafka.backups.kbak_rows cimport (
    BackupHeader, BackupRecord, BackupSegment, FOOTER_SIZE, HEADER_SIZE)


cdef Fault run_segments(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(BackupSegment), read_segment, NULL)


cdef Fault run_records(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(BackupRecord), read_backup_record, NULL)


cdef Fault run_headers(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(BackupHeader), read_backup_header, NULL)


cdef BackupSegment _segment
cdef BackupRecord _record
cdef BackupHeader _header
KBAK_SEGMENT = flatten(np.asarray(<BackupSegment[:1]>&_segment).dtype)
KBAK_RECORD = flatten(np.asarray(<BackupRecord[:1]>&_record).dtype)
KBAK_HEADER = flatten(np.asarray(<BackupHeader[:1]>&_header).dtype)
FOOTER = FOOTER_SIZE


def scan_segments(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype KBAK_SEGMENT, bad, fault, position): `core.loop.scan_frames`.

    check: ignored. The checksum shows where a segment ends, so it is always verified.
    """
    return scan_frames(buffer, KBAK_SEGMENT, run_segments, resync, more, limits, into, resume)


def scan_segment_spans(buffers, spans, *, check, resync, limits):
    """Return (rows, bad, faults, positions) of spans of buffers: `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, KBAK_SEGMENT, run_segments, resync, limits)


def bytes_needed(held, at=0, crc=0):
    """Return (minimum size of the segment at the start of `held`, at, crc).

    at: no footer begins before this position. crc: the checksum of the bytes before it. So a
    segment is searched for its footer once, however small the chunks are.
    """
    cdef const uint8_t[::1] view = held
    cdef int64_t n = view.shape[0]
    cdef const uint8_t* start = &view[0] if n else NULL
    cdef const uint8_t* position
    cdef const uint8_t* footer
    cdef uint32_t checksum = crc
    if not begins_segment(start, start + n):
        return n, 0, 0                      # this is no segment: the scan reports it
    if n < HEADER_SIZE + FOOTER_SIZE:
        return HEADER_SIZE + FOOTER_SIZE, 0, 0
    position = start + <int64_t>at
    if not at:
        position = start + HEADER_SIZE
        checksum = extend_crc32(0, start, HEADER_SIZE)
    footer = find_footer(&position, start + n, &checksum)
    at = position - start
    return (n + 1 if footer is NULL else at + FOOTER_SIZE), at, checksum


def open_records(segments, buffers, spans, counts, limits, writer=None):
    """Return (rows of dtype KBAK_RECORD, bad, fault) of segments: see `core.loop.open_frames`.

    segments: rows of dtype KBAK_SEGMENT. spans: where their records are. counts: int32 array.
    writer: ColumnWriter that takes the rows instead.
    """
    return open_frames(segments, buffers, spans, counts, KBAK_RECORD, run_records, NULL, NULL,
                       limits, None, writer)


def open_headers(records, buffers, spans, counts, limits):
    """Return (rows of dtype KBAK_HEADER, bad, fault) of records: see `core.loop.open_frames`."""
    return open_frames(records, buffers, spans, counts, KBAK_HEADER, run_headers, NULL, NULL,
                       limits)
