# cython: boundscheck=False, wraparound=False
"""Where payloads of Thrift frames lie, before and after their transforms are undone; transforms.py undoes them."""
import numpy as np

from wirescan.core cimport (
    BAD_CODEC, Head, Readable, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)
from wirescan.core.loop import HEAD as _HEAD, addresses
from wirescan.thrift.scan cimport Frame, HTTP_CHUNKED, Plain, frame_of, has
from wirescan.thrift.scan import FRAME as _FRAME, PLAIN as _PLAIN

cdef enum:
    ZLIB = 1                    # transforms: kind.py
    ZLIB_LESS = 8
    ZLIB_MORE = 11


cdef inline bint is_deflated(const Frame* frame) noexcept nogil:
    return frame.transform_count == 1 and (frame.transform_0 == ZLIB or frame.transform_0 == ZLIB_LESS
                                           or frame.transform_0 == ZLIB_MORE)


def payloads(frames, buffers):
    """(rows, deflated, others): of each row of dtype FRAME that has a payload or is bad a row of dtype PLAIN, as it
    lies on the wire; array of dtype HEAD, the spans of those that were transformed by zlib alone, `parent` being the
    row's number among these; int64 array, which were transformed in another way.

    Raises TypeError for other rows, ValueError where a row points outside its buffer."""
    cdef Py_ssize_t i, n = len(frames), found = 0, zlibs = 0, rest = 0
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Frame* frame
    cdef Plain* row
    cdef size_t held = len(buffers)
    cdef bint good = True
    if frames.dtype != _FRAME:
        raise TypeError("payloads are those of rows of thrift.frames")
    rows, deflated, others = np.empty(n, _PLAIN), np.empty(n, _HEAD), np.empty(n, np.int64)
    cdef uint8_t[::1] out
    cdef Head[::1] span = deflated
    cdef int64_t[::1] other = others
    if n:
        view, readable, out = np.ascontiguousarray(frames).view(np.uint8), addresses(buffers), rows.view(np.uint8)
        with nogil:
            for i in range(n):
                frame = <const Frame*>&view[i * sizeof(Frame)]
                good = frame_of(&frame.head, <const Readable*>&readable[0, 0], held) is not NULL and has(
                    &frame.head, frame.payload_at, frame.payload_size)
                if not good:
                    break
                if frame.payload_size < 0 and not frame.head.fault:
                    continue
                row = <Plain*>&out[found * sizeof(Plain)]
                row.head, row.payload_at, row.payload_size = frame.head, 0, 0
                row.head.body, row.head.parent = 0, <int32_t>i
                if not frame.head.fault or frame.head.fault == BAD_CODEC:
                    row.head.start += frame.payload_at
                    row.head.size = <uint32_t>max(frame.payload_size, 0)
                if not frame.head.fault:
                    row.payload_size = frame.payload_size
                    if is_deflated(frame):
                        span[zlibs] = row.head
                        span[zlibs].parent = <int32_t>found
                        zlibs += 1
                    elif frame.transform_count or frame.head.kind == HTTP_CHUNKED:
                        other[rest] = found
                        rest += 1
                found += 1
    if not good:
        raise ValueError(f"row {i} points outside its buffer")
    return rows[:found], deflated[:zlibs], others[:rest]


def settle(rows, spans, places, held):
    """Tell rows of dtype PLAIN where their payloads are now: of each span the row that `parent` names. places: array of
    dtype HEAD, with a fault, or start, size and the buffer's number behind the first `held`."""
    cdef uint8_t[::1] out = rows.view(np.uint8)
    cdef const Head[::1] span = spans, place = places
    cdef Py_ssize_t i
    cdef int32_t before = held
    cdef Plain* row
    for i in range(span.shape[0]):
        row = <Plain*>&out[span[i].parent * sizeof(Plain)]
        row.head.fault = place[i].fault
        row.payload_size = 0
        if not place[i].fault:
            row.head.start, row.head.size = place[i].start, place[i].size
            row.head.buffer = <uint16_t>(before + place[i].buffer)
            row.payload_size = <int32_t>place[i].size
