# cython: boundscheck=False, wraparound=False
"""Locate the payloads of Thrift frames before and after their transforms are undone.

transforms.py undoes the transforms.
"""
import numpy as np

from wirescan.core cimport (
    BAD_CODEC, Head, Readable, int32_t, int64_t, is_inside, locate_frame, uint8_t, uint16_t,
    uint32_t, uint64_t)
from wirescan.core.loop import HEAD as _HEAD, addresses
from wirescan.thrift.rows cimport Frame, HTTP_CHUNKED, Plain
from wirescan.thrift.scan import FRAME as _FRAME, PLAIN as _PLAIN

cdef enum:
    ZLIB = 1                    # transforms: see `Transform` in constants.py
    ZLIB_LESS = 8
    ZLIB_MORE = 11


cdef inline bint is_deflated(const Frame* frame) noexcept nogil:
    return frame.transform_count == 1 and (
        frame.transform_0 == ZLIB or frame.transform_0 == ZLIB_LESS
        or frame.transform_0 == ZLIB_MORE)


def list_payloads(frames, buffers):
    """Return (rows, deflated, others): where the payloads of rows of dtype FRAME are on the wire.

    rows: dtype PLAIN; one row for each frame that has a payload or is bad. deflated: dtype HEAD;
    the spans of the payloads with a single zlib transform; `parent` is the number in `rows`.
    others: int64; the numbers in `rows` of payloads with other transforms or in HTTP chunks.

    Raises TypeError for rows of another dtype, ValueError where a row points outside its buffer.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(frames)
    cdef Py_ssize_t row_count = 0
    cdef Py_ssize_t deflated_count = 0
    cdef Py_ssize_t other_count = 0
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Frame* frame
    cdef const uint8_t* start
    cdef Plain* row
    cdef size_t buffer_count = len(buffers)
    cdef bint good = True
    if frames.dtype != _FRAME:
        raise TypeError("list_payloads takes rows of thrift.frames")
    rows = np.empty(n, _PLAIN)
    deflated = np.empty(n, _HEAD)
    others = np.empty(n, np.int64)
    cdef uint8_t[::1] out
    cdef Head[::1] span = deflated
    cdef int64_t[::1] other = others
    if n:
        view = np.ascontiguousarray(frames).view(np.uint8)
        readable = addresses(buffers)
        out = rows.view(np.uint8)
        with nogil:
            for i in range(n):
                frame = <const Frame*>&view[i * sizeof(Frame)]
                start = locate_frame(&frame.head, <const Readable*>&readable[0, 0], buffer_count)
                good = start is not NULL and is_inside(
                    &frame.head, frame.payload_at, frame.payload_size)
                if not good:
                    break
                if frame.payload_size < 0 and not frame.head.fault:
                    continue
                row = <Plain*>&out[row_count * sizeof(Plain)]
                row.head = frame.head
                row.head.body = 0
                row.head.parent = <int32_t>i
                row.payload_at = 0
                row.payload_size = 0
                if not frame.head.fault or frame.head.fault == BAD_CODEC:
                    row.head.start += frame.payload_at
                    row.head.size = <uint32_t>max(frame.payload_size, 0)
                if not frame.head.fault:
                    row.payload_size = frame.payload_size
                    if is_deflated(frame):
                        span[deflated_count] = row.head
                        span[deflated_count].parent = <int32_t>row_count
                        deflated_count += 1
                    elif frame.transform_count or frame.head.kind == HTTP_CHUNKED:
                        other[other_count] = row_count
                        other_count += 1
                row_count += 1
    if not good:
        raise ValueError(f"row {i} points outside its buffer")
    return rows[:row_count], deflated[:deflated_count], others[:other_count]


def set_places(rows, spans, places, int32_t first_buffer):
    """Set where the payloads of rows of dtype PLAIN are after their transforms were undone.

    spans: dtype HEAD; `parent` names the row of each span. places: dtype HEAD, one for each span:
    a fault, or start, size and a buffer number, to which `first_buffer` is added.
    """
    cdef uint8_t[::1] out = rows.view(np.uint8)
    cdef const Head[::1] span = spans
    cdef const Head[::1] place = places
    cdef Py_ssize_t i
    cdef Plain* row
    for i in range(span.shape[0]):
        row = <Plain*>&out[span[i].parent * sizeof(Plain)]
        row.head.fault = place[i].fault
        row.payload_size = 0
        if not place[i].fault:
            row.head.start = place[i].start
            row.head.size = place[i].size
            row.head.buffer = <uint16_t>(first_buffer + place[i].buffer)
            row.payload_size = <int32_t>place[i].size
