# cython: boundscheck=False, wraparound=False
"""Scan the batches of Redpanda's segments.

redpanda_formats.py calls these functions. The kernel is in batch_kernel.pxd. All integers are
little-endian:

    header crc(4) size(4) base offset(8) type(1) crc(4) attributes(2) last offset delta(4)
    base timestamp(8) max timestamp(8) producer id(8) producer epoch(2) base sequence(4) count(4)
    records

The size counts the whole batch. The header crc is the CRC-32C of the other 57 bytes of the header.
The fields from `crc` on, and the records, are those of Kafka's batches of magic 2. The crc is
Kafka's too: that of the fields after it as big-endian numbers, and of the records.

Source: Redpanda, `record_batch_header` and `internal_header_only_crc` in src/v/model.
"""
import numpy as np

from wirescan.core cimport (
    Fault, Readable, Rows, ScanState, scan_buffer, scan_frames, scan_spans, uint8_t, uint64_t)
from wirescan.core.loop import addresses, lie_inside
from wirescan.kafka.record_batches.rows cimport Batch
from wirescan.kafka.record_batches import scan as record_batches
from wirescan.kafka.redpanda.batch_kernel cimport (
    probe_redpanda_batch, read_redpanda_batch, read_redpanda_batch_checked, verify_redpanda_batch)


cdef Fault run_batches(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Batch), read_redpanda_batch, probe_redpanda_batch)

cdef Fault run_batches_checked(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Batch), read_redpanda_batch_checked,
                       probe_redpanda_batch)


def scan_redpanda_batches(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype BATCH, bad, fault, position) of a buffer: `core.loop.scan_frames`."""
    return scan_frames(buffer, record_batches.BATCH,
                       run_batches_checked if check else run_batches, resync, more,
                       limits, into, resume)


def scan_redpanda_sets(buffers, spans, *, check, resync, limits):
    """Return (rows of dtype BATCH, bad, faults, positions) of the batches in `spans`.

    See `core.loop.scan_spans`.
    """
    return scan_spans(buffers, spans, record_batches.BATCH,
                      run_batches_checked if check else run_batches, resync,
                      limits)


def verify_redpanda_batches(batches, buffers):
    """Return a uint8 array with the fault of each row of dtype BATCH, after a verification.

    A row without a fault gets BAD_CHECKSUM if its bytes in `buffers` do not match its checksums.
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
                    out[i] = <uint8_t>verify_redpanda_batch(
                        batch, <const Readable*>&readable[batch.head.buffer, 0])
    return faults
