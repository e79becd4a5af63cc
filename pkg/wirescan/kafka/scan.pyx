# cython: boundscheck=False, wraparound=False
"""Kafka record data: batches (magic 0, 1 and 2 in any mix), the records in them, and the headers of those.

Every entry:  offset(8) length(4) crc or leader epoch(4) magic(1) ...      all integers big-endian

    magic 0   offset(8) length(4) crc(4) 0 attributes(1)              key(4+) value(4+)
    magic 1   offset(8) length(4) crc(4) 1 attributes(1) timestamp(8) key(4+) value(4+)
    magic 2   offset(8) length(4) epoch(4) 2 crc(4) attributes(2) last offset delta(4) base timestamp(8)
              max timestamp(8) producer id(8) producer epoch(2) base sequence(4) count(4) records

    record    length  attributes(1) timestamp delta  offset delta  key  value  count { header }*   (zig-zag varints)
    header    key  value

Source: Apache Kafka, "Implementation: Message Format" of its documentation; for magic 0 and 1, "A Guide To The
Kafka Protocol" (0.8), "Message sets". A compressed magic 0 or 1 message (a wrapper) holds a message set in its value.
"""
import numpy as np

from wirescan.core cimport (
    Fault, Head, Opening, ReadRun, Readable, Reader, Rows, SOME, Top, VerifyFrame, int32_t, int64_t, open_all,
    open_frames, scan_frames, scan_spans, scan_top, uint8_t, uint64_t)
from wirescan.core.loop import addresses, flat, lie_inside
from wirescan.kafka.batch cimport intact_batch, read_batch, read_batch_checked, verify_batch
from wirescan.kafka.bmi2 cimport short_records
from wirescan.kafka.record cimport close_batch, read_header, read_record, read_record_checked
from wirescan.kafka.short cimport read_short_records


cdef size_t portable(Reader* r, char* rows, size_t most, const void* parent, const Readable* buffer,
                     const Head* span, bint ahead, bint past) noexcept nogil:
    # Two loops, neither with the branches of the other.
    if past:
        return read_short_records(r, rows, most, parent, buffer, span, ahead, True)
    return read_short_records(r, rows, most, parent, buffer, span, ahead, False)

# The ways to read records of magic 2, the fastest of this processor last: all give the same rows.
PATHS = ("plain", "portable", "bmi2") if short_records is not NULL else ("plain", "portable")

cdef ReadRun run_of(path) except? NULL:
    if path not in PATHS:
        raise ValueError(f"path must be one of {', '.join(PATHS)} on this processor, not {path!r}")
    if path == "bmi2":
        return <ReadRun>short_records
    return portable if path == "portable" else <ReadRun>NULL

cdef Fault run_batches(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Batch), read_batch, intact_batch)

cdef Fault run_batches_checked(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Batch), read_batch_checked, intact_batch)

cdef Fault run_records(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, sizeof(Record), read_record, close_batch)

cdef Fault run_records_checked(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, sizeof(Record), read_record_checked, close_batch)

cdef Fault run_headers(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, sizeof(Header), read_header, NULL)


cdef Batch _batch
cdef Record _record
cdef Header _header
BATCH = flat(np.asarray(<Batch[:1]>&_batch).dtype)
RECORD = flat(np.asarray(<Record[:1]>&_record).dtype)
HEADER = flat(np.asarray(<Header[:1]>&_header).dtype)


def claims(batches):
    """(counts, packed) for rows of dtype BATCH: int32 array, how many records each claims (SOME: it does not say); i8
    array, the rows whose payload has to be inflated."""
    cdef Py_ssize_t i, n = len(batches), found = 0
    cdef const uint8_t[::1] rows
    cdef const Batch* batch
    counts, packed = np.empty(n, np.int32), np.empty(n, np.int64)
    cdef int32_t[::1] count = counts
    cdef int64_t[::1] number = packed
    if n:
        rows = np.ascontiguousarray(batches).view(np.uint8)
        with nogil:
            for i in range(n):
                batch = <const Batch*>&rows[i * sizeof(Batch)]
                count[i] = batch.record_count if batch.record_count >= 0 else SOME
                if batch.codec and not batch.head.fault and (
                        batch.head.size > batch.head.body or batch.record_count):
                    number[found] = i
                    found += 1
    return counts, packed[:found]


def verify_batches(batches, buffers):
    """Uint8 array: for each row of dtype BATCH its fault, or BAD_CHECKSUM where its bytes in `buffers` say so."""
    faults = batches["fault"].copy()
    cdef uint8_t[::1] out = faults
    cdef const uint8_t[::1] rows
    cdef const uint64_t[:, ::1] readable
    cdef const Batch* batch
    cdef Py_ssize_t i
    if not lie_inside(batches, buffers):
        raise ValueError("a row points outside its buffer")
    if len(batches):
        readable = addresses(buffers)
        rows = np.ascontiguousarray(batches).view(np.uint8)
        with nogil:
            for i in range(out.shape[0]):
                batch = <const Batch*>&rows[i * sizeof(Batch)]
                if not out[i]:
                    out[i] = <uint8_t>verify_batch(batch, <const Readable*>&readable[batch.head.buffer, 0])
    return faults


def scan_batches(buffer, check, resync, limits, into=None, more=False):
    """(rows of dtype BATCH, bad, fault, offset): see `core.loop.scan_frames`."""
    return scan_frames(buffer, BATCH, run_batches_checked if check else run_batches, resync, more, limits, into)


def scan_sets(buffers, spans, check, resync, limits):
    """(rows of dtype BATCH, bad, faults, offsets) of record sets in spans: see `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, BATCH, run_batches_checked if check else run_batches, resync, limits)


def open_records(batches, buffers, spans, counts, check, limits, into=None, verify=False,
                 path=PATHS[len(PATHS) - 1]):
    """(rows of dtype RECORD, bad, fault) of the spans of rows of dtype BATCH: see `core.loop.open_frames`.

    check: verify the checksums of messages in wrappers. verify: those of the batches too. path: one of PATHS, instead
    of the fastest.
    """
    if batches.dtype != BATCH:
        raise TypeError("records are opened from a table of kafka.batches")
    return open_frames(batches, buffers, spans, counts, RECORD,
                       run_records_checked if check else run_records, run_of(path),
                       verify_batch if verify else <VerifyFrame>NULL, limits, into)


def open_headers(records, buffers, spans, counts, limits, into=None):
    """(rows of dtype HEADER, bad, fault) of the spans of rows of dtype RECORD: see `core.loop.open_frames`."""
    if records.dtype != RECORD:
        raise TypeError("headers are opened from a table of kafka.records")
    return open_frames(records, buffers, spans, counts, HEADER, run_headers, NULL, NULL, limits, into)
