# cython: boundscheck=False, wraparound=False
"""Scan Kafka batches (magic 0, 1 and 2 in any mix), their records, and the headers of the records.

kafka/batch_formats.py calls these functions. The kernels are in batch.pxd, record.pxd and
record_fast.pxd. All integers are big-endian. Every entry begins alike:

    offset(8) length(4) crc or leader epoch(4) magic(1) ...

    magic 0   offset(8) length(4) crc(4) 0 attributes(1)              key(4+) value(4+)
    magic 1   offset(8) length(4) crc(4) 1 attributes(1) timestamp(8) key(4+) value(4+)
    magic 2   offset(8) length(4) epoch(4) 2 crc(4) attributes(2) last offset delta(4)
              base timestamp(8) max timestamp(8) producer id(8) producer epoch(2)
              base sequence(4) count(4) records

    record    length  attributes(1) timestamp delta  offset delta  key  value  count { header }*
    header    key  value                (lengths, deltas and counts are zig-zag varints)

A compressed message of magic 0 or 1 (a wrapper) holds a message set in its value.

Source: Apache Kafka, "Implementation: Message Format" of its documentation. For magic 0 and 1, "A
Guide To The Kafka Protocol" (0.8), "Message sets".
"""
import numpy as np

from wirescan.core cimport (
    Fault, Head, LIMIT, NOT_A_FRAME, NestedScan, OK, Parents, ReadColumns, ReadRun, Readable, Rows,
    SOME, ScanState, VerifyFrame, int32_t, int64_t, locate_frame, open_frames, open_rows,
    scan_buffer, scan_children, scan_frames, scan_spans, span_body, uint8_t, uint32_t, uint64_t)
from wirescan.core import loop
from wirescan.core.loop import HEAD as _HEAD, addresses, flatten, lie_inside
from wirescan.core.reader cimport store_fence
from wirescan.core.rows cimport reserve_row
from wirescan.kafka.record_batches.batch cimport (
    probe_batch, read_batch, read_batch_checked, verify_batch)
from wirescan.kafka.record_batches.record_fast_bmi2 cimport short_columns, short_records
from wirescan.kafka.record_batches.record cimport (
    close_batch, read_header, read_record, read_record_checked, store_message)
from wirescan.kafka.record_batches.record_fast cimport read_columns, read_run
from wirescan.kafka.record_batches.rows cimport Batch, Header, Record


# The implementations for records of magic 2 on this processor, the fastest last.
# All return the same rows.
PATHS = ("plain", "portable", "bmi2") if short_records is not NULL else ("plain", "portable")

# The columns that `read_columns` of record_fast.pxd writes, and those that it adds up, in the order
# of its numbers: OFFSET_TARGET and so on.
COLUMNS = ("offset", "timestamp", "key", "value")
COLUMN_SUMS = ("header_count",)

cdef ReadRun find_run(path) except? NULL:
    if path not in PATHS:
        raise ValueError(f"path must be one of {', '.join(PATHS)} on this processor, not {path!r}")
    if path == "bmi2":
        return <ReadRun>short_records
    if path == "portable":
        return read_run
    return <ReadRun>NULL

cdef ReadColumns find_columns(path):
    if path == "bmi2":
        return <ReadColumns>short_columns
    if path == "portable":
        return read_columns
    return <ReadColumns>NULL

cdef Fault run_batches(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Batch), read_batch, probe_batch)

cdef Fault run_batches_checked(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Batch), read_batch_checked, probe_batch)

cdef Fault run_records(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(Record), read_record, close_batch)

cdef Fault run_records_checked(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(Record), read_record_checked, close_batch)

cdef Fault run_headers(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(Header), read_header, NULL)

cdef struct MessageOptions:
    bint verify                 # verify the checksums of the messages
    bint bypass                   # there are more rows than the caches hold

cdef Fault run_messages(Parents* parents, Rows* rows) noexcept nogil:
    # Return NOT_A_FRAME at the first batch that is no intact plain message.
    cdef MessageOptions options = (<const MessageOptions*>parents.context)[0]
    cdef const Batch* batch = <const Batch*>parents.rows
    cdef const uint8_t* frame
    cdef Fault fault = OK
    while parents.opened < parents.count and not fault:
        frame = locate_frame(&batch.head, parents.buffers, parents.buffer_count)
        if frame is NULL or (
                options.verify and verify_batch(batch, parents.buffers + batch.head.buffer)):
            fault = NOT_A_FRAME
        elif not reserve_row(rows):
            fault = LIMIT
        elif store_message(batch, frame, <uint32_t>parents.opened,
                           rows.at + rows.count * sizeof(Record), options.bypass):
            rows.count += 1
            parents.opened += 1
            batch += 1
        else:
            fault = NOT_A_FRAME
    store_fence()
    return fault


cdef Batch _batch
cdef Record _record
cdef Header _header
BATCH = flatten(np.asarray(<Batch[:1]>&_batch).dtype)
RECORD = flatten(np.asarray(<Record[:1]>&_record).dtype)
HEADER = flatten(np.asarray(<Header[:1]>&_header).dtype)


def child_spans(batches, buffers):
    """Return (spans, counts, packed) for rows of dtype BATCH.

    spans: array of dtype HEAD, the payload of each batch: see `core.loop.spans`.
    counts: int32 array, how many records each batch claims to have; SOME if it has no count.
    packed: int64 array, the rows whose payload is compressed.

    Raises TypeError for rows of another dtype, ValueError if a row points outside its buffer.
    """
    cdef size_t i, n = len(batches), buffer_count = len(buffers), packed_count = 0
    cdef const uint8_t[::1] rows
    cdef const uint64_t[:, ::1] readable
    cdef const Readable* buffer
    cdef const Batch* batch
    if batches.dtype != BATCH:
        raise TypeError("records are opened from a table of kafka.batches")
    spans, counts, packed = np.empty(n, _HEAD), np.empty(n, np.int32), np.empty(n, np.int64)
    cdef Head[::1] span = spans
    cdef int32_t[::1] count = counts
    cdef int64_t[::1] number = packed
    cdef bint good = True
    if n:
        rows = np.ascontiguousarray(batches).view(np.uint8)
        readable = addresses(buffers)
        buffer = <const Readable*>&readable[0, 0] if buffer_count else NULL
        # One pass, because the rows of many small batches are not in the caches any more.
        with nogil:
            for i in range(n):
                batch = <const Batch*>&rows[i * sizeof(Batch)]
                good = locate_frame(&batch.head, buffer, buffer_count) is not NULL
                if not good:
                    break
                span[i] = span_body(&batch.head, batch.head.body, i)
                count[i] = batch.record_count if batch.record_count >= 0 else SOME
                if batch.codec and not batch.head.fault and (
                        batch.head.size > batch.head.body or batch.record_count):
                    number[packed_count] = <int64_t>i
                    packed_count += 1
    if not good:
        raise ValueError(f"row {i} points outside its buffer")
    return spans, counts, packed[:packed_count]


def verify_batches(batches, buffers):
    """Return a uint8 array with the fault of each row of dtype BATCH, after a verification.

    A row without a fault gets BAD_CHECKSUM if its bytes in `buffers` do not match its checksum.
    Raises ValueError if a row points outside its buffer.
    """
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
                    out[i] = <uint8_t>verify_batch(
                        batch, <const Readable*>&readable[batch.head.buffer, 0])
    return faults


def scan_batches(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype BATCH, bad, fault, position) of a buffer: `core.loop.scan_frames`."""
    return scan_frames(buffer, BATCH, run_batches_checked if check else run_batches, resync, more,
                       limits, into, resume)


def scan_sets(buffers, spans, *, check, resync, limits):
    """Return (rows of dtype BATCH, bad, faults, positions) of the record sets in `spans`.

    See `core.loop.scan_spans`.
    """
    return scan_spans(buffers, spans, BATCH, run_batches_checked if check else run_batches, resync,
                      limits)


def open_records(batches, buffers, spans, counts, check, limits, into=None, verify=False,
                 path=PATHS[len(PATHS) - 1], writer=None):
    """Return (rows of dtype RECORD, bad, fault) of batches: see `core.loop.open_frames`.

    batches: rows of dtype BATCH. spans: where their records are.
    check: verify the checksums of the messages in wrappers.
    verify: verify the checksums of the batches too.
    path: one of PATHS. The default is the fastest.
    writer: ColumnWriter that takes the rows instead.
    Raises TypeError for rows of another dtype, ValueError for an unknown path.
    """
    if batches.dtype != BATCH:
        raise TypeError("records are opened from a table of kafka.batches")
    return open_frames(batches, buffers, spans, counts, RECORD,
                       run_records_checked if check else run_records, find_run(path),
                       verify_batch if verify else <VerifyFrame>NULL, limits, into, writer,
                       find_columns(path), COLUMNS, COLUMN_SUMS)


def open_messages(batches, buffers, limits, verify=False):
    """Return (rows of dtype RECORD, 0, 0) if all batches are intact plain messages, else None.

    A message of magic 0 or 1 that is no wrapper has one record. So a pass over the rows of the
    batches makes the rows of their records, which equal those of `open_records`.

    batches: rows of dtype BATCH. verify: verify the checksums.
    Raises TypeError for rows of another dtype.
    """
    cdef Py_ssize_t count = len(batches)
    cdef bint bypass = count * sizeof(Record) >= loop.BYPASS_BYTES
    cdef MessageOptions options = MessageOptions(verify, bypass)
    if batches.dtype != BATCH:
        raise TypeError("records are opened from a table of kafka.batches")
    # Many logs change to magic 2 at some point. Their last batch shows it at once.
    if not count or batches["magic"][count - 1] > 1:
        return None
    opened = open_rows(batches, buffers, RECORD, count, run_messages, &options, limits,
                       np.ones(count, np.int64))
    return None if opened[2] else opened


def open_headers(records, buffers, spans, counts, limits, into=None):
    """Return (rows of dtype HEADER, bad, fault) of records: see `core.loop.open_frames`.

    records: rows of dtype RECORD. spans: where their headers are.
    Raises TypeError for rows of another dtype.
    """
    if records.dtype != RECORD:
        raise TypeError("headers are opened from a table of kafka.records")
    return open_frames(records, buffers, spans, counts, HEADER, run_headers, NULL, NULL, limits,
                       into)
