# cython: boundscheck=False, wraparound=False
"""Scan the frames of RESP2, the protocol of Redis. `formats.py` calls these functions.

    +text CR LF                     simple string
    -text CR LF                     error
    :number CR LF                   integer of 64 bits
    $size CR LF bytes CR LF         bulk string; size -1 and nothing else: null
    *count CR LF value...           array; count -1 and nothing else: null

A frame is a value that is in no other value.

Source: Redis documentation, "Redis serialization protocol specification".
"""
import numpy as np

from wirescan.core cimport (
    Fault, Reader, Rows, SHORT, ScanState, int64_t, scan_buffer, scan_frames, scan_spans, uint8_t)
from wirescan.core.loop import flatten
from wirescan_resp.frame cimport probe_frame, read_frame
from wirescan_resp.rows cimport Frame
from wirescan_resp.value cimport Element, SMALLEST, read_value

cdef Frame _frame
FRAME = flatten(np.asarray(<Frame[:1]>&_frame).dtype)


cdef Fault run_frames(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Frame), read_frame, probe_frame)


def scan_stream(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype FRAME, bad, fault, position): see `core.loop.scan_frames`."""
    return scan_frames(buffer, FRAME, run_frames, resync, more, limits, into, resume)


def scan_streams(buffers, spans, *, check, resync, limits, more=False):
    """Return (rows, bad, faults, positions) of many spans: see `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, FRAME, run_frames, resync, limits, more)


def bytes_needed(held, at=0, missing=1):
    """Return (minimum size of the frame that `held` begins with, at, missing).

    `missing` values of the frame are not read yet, and the first of them begins at `at`. A caller
    passes both back with the next, longer `held`. So each value is read once, however small the
    pieces are.
    """
    cdef const uint8_t[::1] view = held
    cdef int64_t n = view.shape[0]
    cdef int64_t position = at
    cdef int64_t count = missing
    cdef const uint8_t* p = &view[0] if n else NULL
    cdef Reader r = Reader(p + position, p + n)
    cdef Element value
    cdef Fault fault
    while count and position + SMALLEST * count <= n:
        fault = read_value(&r, &value)
        if fault == SHORT:
            return position + value.needed + SMALLEST * (count - 1), position, count
        if fault > SHORT:
            return n, position, count           # the scan reports it
        position = r.at - p
        count += value.count - 1
    return position + SMALLEST * count, position, count
